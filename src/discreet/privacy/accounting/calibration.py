"""Find the smallest noise that meets a guarantee, rounded to the private side.

The noise is that of one release, or of several that share a budget. Group privacy turns a guarantee for one record into
one for a person with several: ``docs/proofs/groups.md``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.gaussian import gaussian_delta, gaussian_mu
from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    Repeated,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import SHRINK, Guarantee

_SMALLEST, _LARGEST = 1e-12, 1e15
_JUST_ABOVE = 1e-18
_WASTE = 1e-6  # fraction of delta that may stay unused


class Unattainable(ValueError):
    """No amount of noise of this kind meets the guarantee."""


def calibrate(
    make_event: Callable[[float], Event], guarantee: Guarantee, *, low: float = 1e-3, high: float = 1e7
) -> float:
    """Return the smallest noise parameter x for which ``make_event(x)`` meets ``guarantee``.

    Parameters
    ----------
    make_event : the event at noise x > 0; more noise must not cost more privacy.
    guarantee : the target; its ``delta`` may be 0 if the event is pure.
    low, high : start of the search, extended if the answer lies outside.

    Returns
    -------
    A noise parameter whose price is at most ``guarantee`` and, for delta > 0, at least 99% of its delta,
    unless no noise parameter has such a price.

    Privacy
    -------
    The price of the returned parameter was evaluated and is within the guarantee; nothing about the data is
    used.

    Examples
    --------
    >>> from discreet.privacy.events import Gaussian, Repeated
    >>> round(calibrate(lambda x: Repeated(Gaussian(x), 4), Guarantee(1.0, 1 / 45000**2)), 4)
    11.2233
    """
    if not 0 < low < high:
        raise ValueError(f"the search needs 0 < low < high, got low={low!r}, high={high!r}")
    pure = guarantee.delta == 0
    limit, height = (guarantee.epsilon, _pure_height) if pure else (guarantee.delta, _height)
    target = height(limit)

    def shortfall(log_x: float) -> float:
        """Return how far the price exceeds the limit, on a scale on which prices are nearly linear in log x.

        The sign comes from the prices themselves, because the scale rounds away their last digits.
        """
        event = make_event(math.exp(log_x))
        if pure:
            price = accountants.epsilon(event, 0.0, guarantee.neighboring)
        else:
            price = accountants.delta(event, guarantee.epsilon, guarantee.neighboring)
        gap = target - height(price)
        return max(gap, _JUST_ABOVE) if price > limit else min(gap, 0.0)

    bad, good = _bracket(shortfall, math.log(low), math.log(high), guarantee)
    if good is None:
        raise Unattainable(_unattainable(make_event(math.exp(bad[0])), guarantee))
    if bad[1] <= 0:  # even the least noise is enough
        return math.exp(bad[0])
    # Regula falsi with the Illinois rule, until a point on the private side wastes little enough.
    enough = 1e-12 if pure else _WASTE / -math.log(guarantee.delta)
    (lower, f_lower), (upper, f_upper) = bad, good
    best, side = good, 0
    for _ in range(200):
        if -best[1] <= enough or upper - lower <= 4e-16 * max(1.0, abs(upper)):
            break
        # Aim slightly beyond the root: a point on the private side ends the search.
        aim = 0.5 * enough
        at = lower + (upper - lower) * (f_lower + aim) / (f_lower - f_upper) if f_upper < 0 else upper
        if not lower < at < upper:
            at = (lower + upper) / 2
        value = shortfall(at)
        if value > 0:
            lower, f_lower = at, value
            if side == 1:
                f_upper = min(f_upper / 2, -aim)
            side = 1
        else:
            upper, f_upper, best = at, value, (at, value)
            if side == -1:
                f_lower /= 2
            side = -1
    return math.exp(best[0])


def _height(delta: float) -> float:
    """Return log sqrt(-log delta), nearly linear with slope 1 in the log of the noise for Gaussian-like tails."""
    return 0.5 * math.log(-math.log(min(max(delta, 1e-300), 1 - 1e-15)))


def _pure_height(epsilon: float) -> float:
    """Return -log epsilon, which grows with the noise as ``_height`` does."""
    return -math.log(min(max(epsilon, 1e-300), 1e300))


Point = tuple[float, float]


def _bracket(
    shortfall: Callable[[float], float], low: float, high: float, guarantee: Guarantee
) -> tuple[Point, Point | None]:
    """Return a point that is not private enough and one that is; steps assume a slope of 1."""
    bad: Point | None = None
    good: Point | None = None
    at = min(
        max(0.0 if guarantee.delta == 0 else -math.log(gaussian_mu(guarantee.epsilon, guarantee.delta)), low),
        high,
    )
    lowest, highest, stride = math.log(_SMALLEST), math.log(_LARGEST), 0.1
    while bad is None or good is None:
        value = shortfall(at)
        if value > 0:
            bad = (at, value) if bad is None or at > bad[0] else bad
            if at >= highest:
                return bad, None
        else:
            good = (at, value) if good is None or at < good[0] else good
            if at <= lowest:
                return (at, value), (at, value)
        step = max(-3.0, min(3.0, 1.1 * value)) + math.copysign(stride, value if value else -1.0)
        at, stride = min(max(at + step, lowest), highest), 2 * stride
    return bad, good


def _needs_pure(guarantee: Guarantee) -> str:
    return (
        f"delta = 0 at epsilon = {guarantee.epsilon} needs pure differential privacy, which Gaussian noise "
        "never gives; choose delta > 0, for instance 1 / n**2, or a solver of the pure kind (Laplace or "
        "gamma noise, exponential mechanism)"
    )


def _unattainable(event: Event, guarantee: Guarantee) -> str:
    if guarantee.delta == 0:
        return _needs_pure(guarantee)
    price = accountants.delta(event, guarantee.epsilon, guarantee.neighboring)
    return (
        f"no amount of noise brings delta at epsilon = {guarantee.epsilon:g} down to {guarantee.delta:.3g}: with the "
        f"most it is {price:.3g}; raise epsilon or delta, or drop the part that noise does not reduce"
    )


# -- several releases that share a budget ---------------------------------------------------------------------
#
# Squared Gaussian-DP parameters add up: a release with share s of the budget has 1 / sqrt(s) times the noise multiplier
# (the "unit") of a single release with the whole budget.

_ABOVE = 1 + 2.0**-30  # an epsilon found by a search of finite precision must not exceed the guarantee


class Part(NamedTuple):
    """A share of a budget, for one release of ``size`` numbers, or for ``times`` of them together."""

    share: float
    size: int
    times: int | None = None


def split_unit(parts: Sequence[Part], guarantee: Guarantee) -> float:
    """Return the smallest unit with which releases with these parts of the budget meet the guarantee together."""
    return calibrated_unit(lambda unit: split_event(unit, parts), guarantee)


def split_event(unit: float, parts: Sequence[Part]) -> Event:
    """Return the event of releases with these parts of the budget."""
    made = [
        share_event(unit, share, size)
        if times is None
        else Repeated(share_event(unit, share / times, size), times)
        for share, size, times in parts
    ]
    return made[0] if len(made) == 1 else Composed(tuple(made))


def calibrated_unit(event: Callable[[float], Event], guarantee: Guarantee) -> float:
    """Return the smallest unit with which the event of all releases meets the guarantee."""
    return calibrate(event, guarantee) * _ABOVE


def multiplier(unit: float, share: float) -> float:
    """Return the noise multiplier of a release with this share of the budget."""
    return unit / math.sqrt(share)


def share_event(unit: float, share: float, size: int) -> Event:
    """Return the event of a release of ``size`` numbers with this share of the budget."""
    return Discretized(Gaussian(multiplier(unit, share)), size)


# -- several records of one person ----------------------------------------------------------------------------

# Allowance for the extra cost of Gaussian noise on a grid; a plan that needs more is refused and replanned.
_MARGIN = 1e-3


def group_delta(epsilon: float, delta: float, size: int) -> float:
    """Return the delta at ``size * epsilon`` for ``size`` records at once, if one has (epsilon, delta).

    delta (1 + e^epsilon + ... + e^((size - 1) epsilon)).

    >>> group_delta(0.5, 1e-6, 1), round(group_delta(0.5, 1e-6, 2) * 1e6, 6)
    (1e-06, 2.648721)
    """
    return min(1.0, delta * _geometric_sum(epsilon, size))


def record_guarantee(guarantee: Guarantee, size: int) -> Guarantee:
    """Return a guarantee for one record that implies ``guarantee`` for ``size`` records, for any mechanism."""
    epsilon = guarantee.epsilon / size
    # The factor covers the rounding of the quotient and of the sum.
    delta = guarantee.delta / _geometric_sum(epsilon, size) * SHRINK
    return dataclasses.replace(guarantee, epsilon=epsilon * (1 - 2.0**-50), delta=delta, unit="record")


def gaussian_record_guarantee(guarantee: Guarantee, size: int) -> Guarantee:
    """Return the guarantee for one record of a Gaussian mechanism that meets ``guarantee`` for ``size`` records.

    A mechanism that is not Gaussian may meet this one and fail the other: price `group_event` to check.
    """
    epsilon = guarantee.epsilon / size
    mu = gaussian_mu(guarantee.epsilon, guarantee.delta * (1 - _MARGIN)) / size
    return dataclasses.replace(
        guarantee, epsilon=epsilon, delta=float(gaussian_delta(epsilon, mu)), unit="record"
    )


def group_event(event: Event, size: int) -> Event | None:
    """Return ``event`` as it is for a person with ``size`` records; None if no exact rule is proved.

    >>> group_event(Repeated(Gaussian(6.0), 10), 3)
    Repeated(event=Gaussian(noise_multiplier=2.0), times=10)
    """
    match event:
        case Gaussian(noise_multiplier=multiplier):
            return Gaussian(multiplier / size)
        case Laplace(noise_multiplier=multiplier):
            return Laplace(multiplier / size)
        case Pure(epsilon=epsilon):
            return Pure(size * epsilon)
        case BoundedRange(epsilon=epsilon):
            return BoundedRange(size * epsilon)
        case ZeroConcentrated(rho=rho):
            return ZeroConcentrated(size**2 * rho)
        case Approximate(epsilon=epsilon, delta=delta):
            return Approximate(size * epsilon, group_delta(epsilon, delta, size))
        case Approximated() | Discretized() | Repeated():
            inner = group_event(event.event, size)
            return None if inner is None else dataclasses.replace(event, event=inner)
        case Composed(events=parts):
            scaled = [group_event(part, size) for part in parts]
            known = tuple(part for part in scaled if part is not None)
            return Composed(known) if len(known) == len(scaled) else None
        case ObjectivePerturbation():
            return Grouped(event, size)
        case NonPrivate():
            return event
        case _:
            return None


def _geometric_sum(epsilon: float, size: int) -> float:
    """Return 1 + e^epsilon + ... + e^((size - 1) epsilon)."""
    total = size * epsilon
    if total > 700:
        return math.inf
    return math.expm1(total) / math.expm1(epsilon) if epsilon > 0 else float(size)
