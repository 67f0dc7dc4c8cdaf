"""Compute the privacy cost of a tree of events: stateless accountants, and the tightest of them.

Every accountant returns an upper bound on delta at an epsilon, and on epsilon at a delta, for the whole event run
adaptively. The base class handles inexact sampling and missing guarantees. Proofs: ``docs/proofs/composition.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from discreet.privacy.accounting.curves import curve, smallest_epsilon
from discreet.privacy.accounting.gaussian import delta_on_grid, gaussian_delta, gaussian_epsilon, ideal_target
from discreet.privacy.accounting.losses import (
    LossDistribution,
    choose_interval,
    composed_delta,
    connect_the_dots,
)
from discreet.privacy.accounting.renyi import (
    best_renyi_delta,
    best_renyi_epsilon,
    concentrated_delta,
    concentrated_epsilon,
    concentration,
    renyi_delta,
    renyi_divergence,
    renyi_epsilon,
)
from discreet.privacy.events import (
    Approximate,
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    Leaves,
    Pure,
    ZeroConcentrated,
    leaves_of,
)
from discreet.privacy.guarantee import Neighboring

Counts = tuple[tuple[Event, int], ...]


class UnsupportedEvent(ValueError):
    """No accountant has a proof for this event under this relation."""


def priced_leaves(event: Event, neighboring: Neighboring) -> Leaves:
    """Return the leaves of ``event``; raise ``UnsupportedEvent`` if a part was priced under another relation."""
    leaves = leaves_of(event)
    if not leaves.relations <= {neighboring}:
        asked = ", ".join(sorted(relation.value for relation in leaves.relations))
        raise UnsupportedEvent(
            f"{event!r} was priced under {asked}, and there is no proof for it under {neighboring.value}; plan it "
            f"for {neighboring.value}, or ask under {asked}"
        )
    return leaves


class Accountant(ABC):
    """Price the events it supports.

    Privacy
    -------
    ``delta`` and ``epsilon`` are upper bounds for adaptive composition with a fixed list of events. If sizes are chosen
    along the way, use a ledger. With a total variation t between the sampled and the ideal distributions,
    ``(1 + e^epsilon) t`` is added to delta.
    """

    name: ClassVar[str]

    def supports(self, event: Event, neighboring: Neighboring) -> bool:
        """Whether this accountant has a proof for ``event`` under ``neighboring``."""
        leaves = leaves_of(event)
        return leaves.relations <= {neighboring} and self._supports(leaves.counts, neighboring)

    def delta(self, event: Event, epsilon: float, neighboring: Neighboring) -> float:
        """Return an upper bound on delta at ``epsilon`` >= 0."""
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be a number of at least 0, got {epsilon!r}")
        leaves = self._checked(event, neighboring)
        if not leaves.private:
            return 1.0
        on_grid = delta_on_grid(self._profile(leaves.counts, neighboring), leaves.variates, epsilon)
        if leaves.total_variation == 0:
            return min(1.0, on_grid)
        return _with_slip(on_grid, leaves.total_variation, epsilon)

    def epsilon(self, event: Event, delta: float, neighboring: Neighboring) -> float:
        """Return an upper bound on the smallest epsilon at ``delta``; infinite if there is none."""
        if not 0 <= delta <= 1:
            raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
        leaves = self._checked(event, neighboring)
        if delta == 1:
            return 0.0
        if not leaves.private:
            return math.inf
        slip, found = leaves.total_variation, 0.0
        if slip == 0 and leaves.variates == 0:
            return self._epsilon(leaves.counts, delta, neighboring)
        for _ in range(100):  # find the smallest epsilon that leaves enough of delta after its own slip
            shift, room = ideal_target(delta - _with_slip(0.0, slip, found), leaves.variates, found)
            if room <= 0 or math.isinf(found):
                return math.inf
            needed = self._epsilon(leaves.counts, room, neighboring) + shift
            if needed <= found:
                return found
            found = needed * (1 + 1e-12)
        return math.inf

    def _checked(self, event: Event, neighboring: Neighboring) -> Leaves:
        leaves = priced_leaves(event, neighboring)
        if leaves.private and not self._supports(leaves.counts, neighboring):
            raise UnsupportedEvent(
                f"the {self.name} accountant has no proof for {event!r} under {neighboring.value}"
            )
        return leaves

    def _profile(self, counts: Counts, neighboring: Neighboring) -> Callable[[float], float]:
        """Return delta as a function of epsilon, for continuous noise."""
        return lambda epsilon: self._delta(counts, epsilon, neighboring)

    @abstractmethod
    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool: ...

    @abstractmethod
    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float: ...

    @abstractmethod
    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float: ...


def _with_slip(ideal: float, total_variation: float, epsilon: float) -> float:
    if total_variation == 0:
        return min(1.0, ideal)
    growth = math.exp(epsilon) if epsilon < 700 else math.inf
    return min(1.0, math.nextafter(ideal + (1 + growth) * total_variation * (1 + 1e-15), 1.0))


__all__ = [
    "Accountant",
    "BasicAccountant",
    "ConcentratedAccountant",
    "GaussianAccountant",
    "LossDistributionAccountant",
    "ProfileAccountant",
    "PureAccountant",
    "RenyiAccountant",
    "RenyiCurveAccountant",
    "UnsupportedEvent",
    "accountants_for",
    "delta",
    "epsilon",
]


class PureAccountant(Accountant):
    """Sums of pure epsilons; for up to a million equal ones, their exact composition.

    k runs of an epsilon-DP mechanism are dominated by k randomized responses (Kairouz, Oh and Viswanath,
    2015), whose loss is (2 j - k) epsilon with j binomial.
    """

    name = "pure"
    most_runs: ClassVar[int] = 2**20  # above this, listing the binomial distribution is too slow

    @staticmethod
    def width(leaf: Event) -> float | None:
        """Return the epsilon of a pure leaf; None for any other."""
        if isinstance(leaf, Pure | BoundedRange):
            return leaf.epsilon
        return 1.0 / leaf.noise_multiplier if isinstance(leaf, Laplace) else None

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        return all(self.width(leaf) is not None for leaf, _ in counts)

    def _runs(self, counts: Counts) -> tuple[float, int]:
        """Return (epsilon of one run, number of runs); unequal epsilons count as one run of their sum."""
        runs = [(self.width(leaf) or 0.0, times) for leaf, times in counts]
        if len({width for width, _ in runs}) == 1:
            return runs[0][0], sum(times for _, times in runs)
        return float(sum((Fraction(width) * times for width, times in runs), start=Fraction(0))), 1

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        width, times = self._runs(counts)
        if width == 0 or epsilon >= width * times:
            return 0.0
        if times > self.most_runs:
            return 1.0
        j = np.arange(max(0, math.floor((epsilon / width + times) / 2)), times + 1)
        loss = (2 * j - times) * width
        log_chance = gammaln(times + 1) - gammaln(j + 1) - gammaln(times - j + 1) - (times - j) * width
        log_chance -= times * math.log1p(math.exp(-width))
        excess = -np.expm1(np.minimum(epsilon - loss, 0.0))
        # Every logarithm is a sum of terms below k log(k + 3) and k width, each accurate to a few units in the last
        # place.
        rounding = 1e-9 + 4e-15 * times * (math.log(times + 3) + width)
        return min(1.0, float(np.exp(log_chance) @ excess) * (1 + rounding))

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        width, times = self._runs(counts)
        total = float(Fraction(width) * times)
        if delta == 0 or width == 0 or times > self.most_runs:
            return total
        return min(total, smallest_epsilon(lambda e: self._delta(counts, e, neighboring), delta))


class GaussianAccountant(Accountant):
    """Exact for Gaussian releases: squared Gaussian-DP parameters add up (Dong, Roth and Su, 2022)."""

    name = "gaussian"

    @staticmethod
    def mu(counts: Counts) -> float:
        """Return the Gaussian-DP parameter of all leaves together."""
        if len(counts) == 1 and counts[0][1] == 1 and isinstance(counts[0][0], Gaussian):
            return 1.0 / counts[0][0].noise_multiplier
        shifts = (
            math.sqrt(times) / leaf.noise_multiplier for leaf, times in counts if isinstance(leaf, Gaussian)
        )
        return math.hypot(*shifts) * (1 + 1e-15)

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        return all(isinstance(leaf, Gaussian) for leaf, _ in counts)

    def _profile(self, counts: Counts, neighboring: Neighboring) -> Callable[[float], float]:
        mu = self.mu(counts)
        return lambda epsilon: float(gaussian_delta(epsilon, mu))

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        return self._profile(counts, neighboring)(epsilon)

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        return gaussian_epsilon(self.mu(counts), delta)


class ProfileAccountant(Accountant):
    """One mechanism, run once: its own privacy profile."""

    name = "profile"

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        if not counts:
            return True
        return len(counts) == 1 and counts[0][1] == 1 and curve(counts[0][0], neighboring) is not None

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        if not counts:
            return 0.0
        leaf = counts[0][0]
        if isinstance(leaf, ZeroConcentrated):
            return concentrated_delta(leaf.rho, epsilon)
        profile = curve(leaf, neighboring)
        assert profile is not None
        return profile.delta(epsilon)

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        if delta == 0 and counts:
            width = None if _failure(counts) else _stated_epsilon(counts[0][0])
            return math.inf if width is None else width
        return smallest_epsilon(lambda e: self._delta(counts, e, neighboring), delta)


class ConcentratedAccountant(Accountant):
    """Zero-concentrated DP: rhos add up, and convert at the best order (Canonne, Kamath and Steinke, 2020)."""

    name = "concentrated"

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        return all(math.isfinite(concentration(_core(leaf))) for leaf, _ in counts)

    def rho(self, counts: Counts) -> float:
        """Return the zCDP parameter of all leaves together."""
        return math.fsum(times * concentration(_core(leaf)) for leaf, times in counts)

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        return min(1.0, concentrated_delta(self.rho(counts), epsilon) + _failure(counts))

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        room = delta - _failure(counts)
        return math.inf if room < 0 else concentrated_epsilon(self.rho(counts), room)


class RenyiCurveAccountant(ConcentratedAccountant):
    """Use the divergence of every order instead of its bound ``order * rho``; never worse."""

    name = "renyi curve"

    def _curve(self, counts: Counts, neighboring: Neighboring) -> Callable[[float], float]:
        cores = [(_core(leaf), times) for leaf, times in counts]
        return lambda a: math.fsum(times * renyi_divergence(core, a, neighboring) for core, times in cores)

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        rho = self.rho(counts)
        best = best_renyi_delta(self._curve(counts, neighboring), rho, epsilon) if rho else 0.0
        return min(1.0, best + _failure(counts))

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        rho, room = self.rho(counts), delta - _failure(counts)
        if rho == 0 or room <= 0:
            return 0.0 if rho == 0 and room >= 0 else math.inf
        return best_renyi_epsilon(self._curve(counts, neighboring), rho, room)


@dataclass(frozen=True)
class RenyiAccountant(Accountant):
    """Renyi divergences of one fixed order add up, even if later events are chosen by earlier results."""

    order: float
    name: ClassVar[str] = "renyi"

    def __post_init__(self) -> None:
        if not 1 < self.order < math.inf:
            raise ValueError(f"order must be a number greater than 1, got {self.order!r}")

    def divergence(self, event: Event, neighboring: Neighboring) -> float:
        """Return the divergence of an event at this order, in the worse direction; infinite if none is proved."""
        leaves = priced_leaves(event, neighboring)
        inexact = leaves.total_variation > 0 or leaves.variates > 0 or _failure(leaves.counts) > 0
        if inexact or not leaves.private:
            return math.inf
        return self._divergence(leaves.counts, neighboring)

    def _divergence(self, counts: Counts, neighboring: Neighboring) -> float:
        return math.fsum(
            times * renyi_divergence(_core(leaf), self.order, neighboring) for leaf, times in counts
        )

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        return math.isfinite(self._divergence(counts, neighboring))

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        if not counts:
            return 0.0
        divergence = self._divergence(counts, neighboring)
        return min(1.0, renyi_delta(divergence, self.order, epsilon) + _failure(counts))

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        if not counts:
            return 0.0
        return renyi_epsilon(self._divergence(counts, neighboring), self.order, delta - _failure(counts))


def _core(leaf: Event) -> Event:
    """Return the pure core: (epsilon, delta)-DP is epsilon-DP except for mass delta (Kairouz et al., 2015)."""
    if not isinstance(leaf, Approximate):
        return leaf
    return Pure(leaf.epsilon) if leaf.epsilon > 0 else Gaussian(math.inf)


def _failure(counts: Counts) -> float:
    return math.fsum(times * leaf.delta for leaf, times in counts if isinstance(leaf, Approximate))


class BasicAccountant(Accountant):
    """Epsilons and deltas add up; epsilon is split in proportion to the parts' epsilons at delta = 1e-6."""

    name = "basic"

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        return all(curve(leaf, neighboring) is not None for leaf, _ in counts)

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        left = epsilon - float(_stated_sum(counts))
        if left < 0:
            return 1.0
        open_ended = tuple((leaf, times) for leaf, times in counts if _stated_epsilon(leaf) is None)
        parts = _merge_gaussians(open_ended)
        needs = [_single_epsilon(leaf, neighboring) + 1e-9 for leaf, _ in parts]
        needed = math.fsum(times * need for (_, times), need in zip(parts, needs, strict=True))
        profile = ProfileAccountant()
        deltas = [
            times * profile._delta(((leaf, 1),), left * need / needed, neighboring)
            for (leaf, times), need in zip(parts, needs, strict=True)
        ]
        return min(1.0, math.fsum(deltas) + _failure(counts))

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        if delta == 0:
            pure = _failure(counts) == 0 and all(_stated_epsilon(leaf) is not None for leaf, _ in counts)
            return float(_stated_sum(counts)) if pure else math.inf
        return smallest_epsilon(lambda e: self._delta(counts, e, neighboring), delta)


def _stated_epsilon(leaf: Event) -> float | None:
    """Return the stated epsilon of a leaf, ignoring its delta."""
    return leaf.epsilon if isinstance(leaf, Approximate) else PureAccountant.width(leaf)


def _stated_sum(counts: Counts) -> Fraction:
    return sum((Fraction(_stated_epsilon(leaf) or 0.0) * times for leaf, times in counts), start=Fraction(0))


@lru_cache(maxsize=1024)
def _single_epsilon(leaf: Event, neighboring: Neighboring) -> float:
    return ProfileAccountant()._epsilon(((leaf, 1),), 1e-6, neighboring)


class LossDistributionAccountant(Accountant):
    """Composition of privacy loss distributions: tight for every event with a privacy profile."""

    name = "loss distribution"
    # With more runs it claims nothing: the transform that resolves them would take too long.
    most_runs: ClassVar[int] = 2**24

    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool:
        return all(curve(leaf, neighboring) is not None for leaf, _ in counts)

    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
        if not counts:
            return 0.0
        if self._too_many(counts):
            return 1.0
        merged = _merge_gaussians(counts)
        interval = _interval(merged, _scale(epsilon), neighboring)
        return self._delta_on_grid(merged, epsilon, neighboring, interval)

    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float:
        if not counts:
            return 0.0
        if self._too_many(counts):
            return math.inf
        merged, scale = _merge_gaussians(counts), 1.0
        for _ in range(6):  # use one grid per search, until it fits the result
            interval = _interval(merged, scale, neighboring)
            found = smallest_epsilon(
                lambda e, interval=interval: self._delta_on_grid(merged, e, neighboring, interval),  # type: ignore[misc]
                delta,
            )
            if math.isinf(found) or _scale(found) == scale:
                break
            scale = _scale(found)
        return found

    def _too_many(self, counts: Counts) -> bool:
        return sum(times for _, times in _merge_gaussians(counts)) > self.most_runs

    @staticmethod
    def _delta_on_grid(counts: Counts, epsilon: float, neighboring: Neighboring, interval: float) -> float:
        if math.isinf(interval):
            return 1.0
        pairs = [(_loss_distributions(leaf, neighboring, interval), times) for leaf, times in counts]
        return max(composed_delta([(pair[way], times) for pair, times in pairs], epsilon) for way in (0, 1))


def _scale(epsilon: float) -> float:
    """Round epsilon to one digit, so that grids can be reused."""
    return float(f"{epsilon:.0e}")


def _merge_gaussians(counts: Counts) -> Counts:
    """Merge all Gaussian leaves into one, which is exact."""
    gaussians = tuple((leaf, times) for leaf, times in counts if isinstance(leaf, Gaussian))
    if not gaussians:
        return counts
    others = tuple((leaf, times) for leaf, times in counts if not isinstance(leaf, Gaussian))
    return (*others, (Gaussian(1.0 / GaussianAccountant.mu(gaussians)), 1))


@lru_cache(maxsize=1024)
def _interval(counts: Counts, epsilon: float, neighboring: Neighboring) -> float:
    """Return the grid for these events; infinite if their losses exceed every grid."""
    curves = [(profile, times) for leaf, times in counts if (profile := curve(leaf, neighboring)) is not None]
    if any(profile.delta(1e5) > 0.5 for profile, _ in curves):
        return math.inf
    return choose_interval(curves, epsilon)


@lru_cache(maxsize=64)
def _loss_distributions(
    leaf: Event, neighboring: Neighboring, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    profile = curve(leaf, neighboring)
    assert profile is not None
    return connect_the_dots(profile, interval)


# With more runs the transform takes too long, and Renyi divergences are nearly as good.
_MANY_RUNS = 2**22


def accountants_for(event: Event, neighboring: Neighboring) -> tuple[Accountant, ...]:
    """Return the accountants to ask: a single one if it is exact, otherwise all that apply."""
    leaves = priced_leaves(event, neighboring)
    counts = leaves.counts
    for exact in (GaussianAccountant(), ProfileAccountant()):
        if exact.supports(event, neighboring):
            return (exact,)
    if len(counts) == 1 and isinstance(counts[0][0], Pure) and counts[0][1] <= PureAccountant.most_runs:
        return (PureAccountant(),)
    if all(isinstance(leaf, ZeroConcentrated) for leaf, _ in counts):
        return (ConcentratedAccountant(),)
    every: tuple[Accountant, ...] = (PureAccountant(), RenyiCurveAccountant(), LossDistributionAccountant())
    if all(isinstance(leaf, Pure | Laplace | BoundedRange | Approximate) for leaf, _ in counts):
        every = (BasicAccountant(), *every)  # cheap here, and the only one for delta = 0 with Approximate
    found = tuple(accountant for accountant in every if accountant.supports(event, neighboring))
    by_order = any(isinstance(accountant, RenyiCurveAccountant) for accountant in found)
    if by_order and sum(times for _, times in counts) > _MANY_RUNS:
        found = tuple(other for other in found if not isinstance(other, LossDistributionAccountant))
    if leaves.private and not found:
        for leaf, _ in counts:
            if curve(leaf, neighboring) is None:
                raise UnsupportedEvent(
                    f"no privacy proof is known for {leaf!r} under {neighboring.value}; sampling is priced "
                    "for Poisson-subsampled Gaussian noise under zero-out and add-remove-one, other events "
                    "under every relation: change the relation, or do not sample"
                )
    return found or (PureAccountant(),)


def delta(event: Event, epsilon: float, neighboring: Neighboring) -> float:
    """Return the tightest proved upper bound on delta at ``epsilon``.

    Parameters
    ----------
    event : the event to price.
    epsilon : at least 0.
    neighboring : the relation the event was calibrated for.

    Privacy
    -------
    Running ``event`` is (epsilon, delta)-DP under ``neighboring``. Covers inexact sampling declared by
    ``Approximated``; does not cover anything that no event declares.

    Examples
    --------
    >>> delta(Gaussian(5.61163), 1.0, Neighboring.REPLACE_ONE) * 45000**2
    1.0000...
    """
    return _least_delta(event, epsilon, Neighboring(neighboring))


def epsilon(event: Event, delta: float, neighboring: Neighboring) -> float:
    """Return the tightest proved upper bound on epsilon at ``delta``; infinite if there is none. See ``delta``.

    >>> round(epsilon(Gaussian(5.61163), 1 / 45000**2, Neighboring.REPLACE_ONE), 5)
    1.0
    """
    return _least_epsilon(event, delta, Neighboring(neighboring))


# A fit that is planned again asks for the same prices.
@lru_cache(maxsize=65536)
def _least_delta(event: Event, epsilon: float, neighboring: Neighboring) -> float:
    return min(
        accountant.delta(event, epsilon, neighboring) for accountant in accountants_for(event, neighboring)
    )


@lru_cache(maxsize=65536)
def _least_epsilon(event: Event, delta: float, neighboring: Neighboring) -> float:
    return min(
        accountant.epsilon(event, delta, neighboring) for accountant in accountants_for(event, neighboring)
    )
