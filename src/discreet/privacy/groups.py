"""Group privacy: what a promise about one record is worth for somebody who has several.

Proofs: ``docs/proofs/groups.md``.
"""

from __future__ import annotations

import dataclasses
import math

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
from discreet.privacy.gaussian import gaussian_delta, gaussian_mu
from discreet.privacy.guarantee import Guarantee

# Room for what Gaussian noise on a grid costs beyond ideal noise; a plan that needs more is refused and replanned.
_MARGIN = 1e-3


def group_delta(epsilon: float, delta: float, size: int) -> float:
    """The delta at ``size * epsilon`` for ``size`` records at once, if one has (epsilon, delta).

    delta (1 + e^epsilon + ... + e^((size - 1) epsilon)).

    >>> group_delta(0.5, 1e-6, 1), round(group_delta(0.5, 1e-6, 2) * 1e6, 6)
    (1e-06, 2.648721)
    """
    return min(1.0, delta * _geometric_sum(epsilon, size))


def record_guarantee(guarantee: Guarantee, size: int) -> Guarantee:
    """A promise about one record from which ``guarantee`` follows for ``size`` of them, whatever the mechanism."""
    epsilon = guarantee.epsilon / size
    # Two units in the last place pay for the rounding of the quotient and of the sum.
    delta = guarantee.delta / _geometric_sum(epsilon, size) * (1 - 2.0**-40)
    return dataclasses.replace(guarantee, epsilon=epsilon * (1 - 2.0**-50), delta=delta, unit="record")


def gaussian_record_guarantee(guarantee: Guarantee, size: int) -> Guarantee:
    """The promise about one record of the Gaussian mechanism that keeps ``guarantee`` for ``size`` of them.

    A mechanism that is not Gaussian may keep this promise and break the other: price `group_event` to know.
    """
    epsilon = guarantee.epsilon / size
    mu = gaussian_mu(guarantee.epsilon, guarantee.delta * (1 - _MARGIN)) / size
    return dataclasses.replace(
        guarantee, epsilon=epsilon, delta=float(gaussian_delta(epsilon, mu)), unit="record"
    )


def group_event(event: Event, size: int) -> Event | None:
    """What ``event`` is for somebody who has ``size`` records; None where no exact rule is proved.

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
    """1 + e^epsilon + ... + e^((size - 1) epsilon)."""
    total = size * epsilon
    if total > 700:
        return math.inf
    return math.expm1(total) / math.expm1(epsilon) if epsilon > 0 else float(size)
