"""The releases of a matrix completion, priced before any rating is read.

A method lists its releases (`Release`), each with its sensitivity and its share of the Gaussian-DP budget mu^2. The
plan finds the least noise for all of them together, and is the only place where they meet noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from discreet._typing import Array
from discreet.mechanisms.additive import GaussianMechanism, SymmetricGaussianMechanism
from discreet.mechanisms.recording import listening
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.events import Composed, Discretized, Event, Gaussian
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity
from discreet.privacy.page import ShowsPlan
from discreet.recommend.item_models import ItemModel
from discreet.recommend.ratings import Users

MOST_ENTRIES = 20_000**2  # of one dense symmetric matrix
# From here on, a direction with 3% of the rows' energy is at twice the edge of the noise in a dense covariance.
_SPECTRAL_RATIO = 60.0
# If users are declared to rate half of the catalog or more: equal to the profile on generated blocks at 17, and better
# above (`python -m benchmarks.recommenders blocks`).
_DENSE_RATIO, _DENSE = 17.0, 0.5
_CLICK_RATIO = 20.0  # 10%: clicks share their popular items, residuals of ratings do not


@dataclass(frozen=True)
class Facts:
    """Public numbers of a completion; ratings are in units of half the range.

    Attributes
    ----------
    guarantee : epsilon, delta and relation.
    n_users : number of users, or a public bound on it if the number is private.
    n_items : size of the catalog.
    rank : largest number of latent directions.
    n_iterations : rounds of the method; None for its default.
    per_user : users with fewer ratings than this count less, all others count the same.
    rating_clip : bound on one centered rating in sums of item effects.
    row_clip : bound on the weighted norm of a user's residual row.
    nuclear_norm : radius for Frank-Wolfe, relative to sqrt(n_users n_items).
    implicit : whether rows are sets of items rather than ratings.
    """

    guarantee: Guarantee
    n_users: int
    n_items: int
    rank: int = 20
    n_iterations: int | None = None
    per_user: float = 1.0
    rating_clip: float = 0.5
    row_clip: float = 0.5
    nuclear_norm: float = 1 / 3
    implicit: bool = False

    def __post_init__(self) -> None:
        self.bound(2)  # too many users are refused now, before a charge

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of the whole budget."""
        return gaussian_mu(self.guarantee.epsilon, self.guarantee.delta)

    @property
    def replaces(self) -> bool:
        """Whether neighbors replace a row by another one, so that two contributions differ."""
        return self.guarantee.neighboring is Neighboring.REPLACE_ONE

    @property
    def apart(self) -> float:
        """Frobenius distance of two rank-one contributions of norm at most 1, whose product is never negative."""
        return math.sqrt(2.0) if self.replaces else 1.0

    def bound(self, powers: int, most: int = 15) -> int:
        """The largest power of two K, at most 2^most, with n_users K^powers <= 2^52."""
        bits = (52 - math.ceil(math.log2(max(2, self.n_users)))) // powers
        if bits < 8:
            raise ValueError(
                f"{self.n_users} users are too many for exact 64-bit sums; split the catalog or the users"
            )
        return 1 << min(most, bits)

    def spectral_ratio(self) -> float:
        """Energy of all rows over the spectral norm of the noise in their covariance.

        Little of a sparse row's energy is off the diagonal; this is counted if the number of ratings is declared.
        """
        dense = 1.0 if self.per_user == 1 else min(1.0, 2 * self.per_user / self.n_items)
        return dense * self.n_users * self.mu / (math.sqrt(2.0) * self.apart * math.sqrt(self.n_items))


@dataclass(frozen=True)
class Release:
    """One noisy sum: its name, its share of mu^2, its sensitivity, and its shape.

    With ``order`` > 0 it consists of ``size`` symmetric matrices of that order, otherwise of ``size`` numbers. Sums are
    integer multiples of a power of two; the noisy result is multiplied by ``unit``. A printed algorithm can require
    more noise than needed with ``least_multiplier``.
    """

    name: str
    share: float
    sensitivity: float
    size: int
    order: int = 0
    unit: float = 1.0
    least_multiplier: float = 0.0

    def mechanism(self, noise_multiplier: float) -> GaussianMechanism | SymmetricGaussianMechanism:
        """Return the mechanism for a noise multiplier."""
        if self.order:
            return SymmetricGaussianMechanism(
                Sensitivity(self.sensitivity), noise_multiplier, self.order, self.size
            )
        return GaussianMechanism(Sensitivity(self.sensitivity), noise_multiplier, self.size)

    def event(self, noise_multiplier: float) -> Event:
        """Return the event for a noise multiplier."""
        variates = self.size * self.order * (self.order + 1) // 2 if self.order else self.size
        return Discretized(Gaussian(noise_multiplier), variates)


class Noise:
    """The releases of one run; each can be requested once, with exact sums."""

    def __init__(self, plan: CompletionPlan, entropy: Entropy) -> None:
        self._left = dict(plan.mechanisms)
        self._plan = plan
        self._entropy = entropy

    def release(self, name: str, value: Array) -> Array:
        """Return the noisy value; a second request under the same name raises an error.

        Symmetric matrices are overwritten. The caller owns the result and may change it.
        """
        mechanism = self._left.pop(name)
        if isinstance(mechanism, SymmetricGaussianMechanism):
            noisy = mechanism.release(value, self._entropy, in_place=True)
        else:
            noisy = mechanism.release(value, self._entropy)
        if listening():
            noisy = noisy.copy()
        noisy *= self._plan.units[name]
        return noisy

    def stddev(self, name: str) -> float:
        """Return the public standard deviation of a release's noise; on the diagonal, if it is symmetric."""
        return self._plan.mechanisms[name].stddev * self._plan.units[name]

    def public_directions(self, n: int, k: int) -> Array:
        """Return a random orthonormal start that depends on no rating."""
        words = self._entropy.words(n * k).astype(np.float64).reshape(n, k) * 2.0**-63 - 1.0
        return np.asarray(np.linalg.qr(words)[0])


class Method(Protocol):
    """One algorithm, with public settings only."""

    @property
    def name(self) -> str: ...
    @property
    def theorem(self) -> str: ...
    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List everything that will be released, from public numbers only."""
        ...

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> ItemModel:
        """Return the item side, a function of the releases alone."""
        ...


def choose(method: str, facts: Facts, known: Mapping[str, Callable[[], Method]]) -> Method:
    """Return the named method, or choose one from public numbers.

    Latent directions pay off only if they rise above the noise. If users are declared to rate most items, one
    covariance of their rows shows more than a profile, and needs less signal.
    """
    if method == "auto" and not facts.implicit and facts.per_user >= max(2.0, _DENSE * facts.n_items):
        method = "svd" if facts.spectral_ratio() >= _DENSE_RATIO else "profile"
    if method == "auto":
        dense = facts.n_items**2 <= MOST_ENTRIES
        latent = facts.spectral_ratio() >= (_CLICK_RATIO if facts.implicit else _SPECTRAL_RATIO)
        plain = "bias" if facts.implicit else "profile"
        method = plain if not latent else "subspace" if dense else "power"
    return known[method]()


@dataclass(frozen=True)
class CompletionPlan(ShowsPlan):
    """A calibrated run, frozen before any data is seen; printable."""

    method: Method
    facts: Facts

    @property
    def guarantee(self) -> Guarantee:
        """The promise."""
        return self.facts.guarantee

    @cached_property
    def _releases(self) -> tuple[tuple[Release, float], ...]:
        """All releases, with their noise multipliers."""
        wanted = self.method.releases(self.facts)
        total = math.fsum(release.share for release in wanted)

        def multiplier(release: Release, scale: float) -> float:
            return max(scale / math.sqrt(release.share / total), release.least_multiplier)

        def event(scale: float) -> Event:
            return Composed(tuple(release.event(multiplier(release, scale)) for release in wanted))

        scale = calibrate(event, self.facts.guarantee)
        return tuple((release, multiplier(release, scale)) for release in wanted)

    @cached_property
    def mechanisms(self) -> dict[str, GaussianMechanism | SymmetricGaussianMechanism]:
        """The mechanism of every release."""
        return {release.name: release.mechanism(multiplier) for release, multiplier in self._releases}

    @cached_property
    def units(self) -> dict[str, float]:
        """Factor by which every noisy release is multiplied."""
        return {release.name: release.unit for release, _ in self._releases}

    @property
    def event(self) -> Event:
        """The event of the run: all releases, adaptively composed."""
        return Composed(tuple(mechanism.event for mechanism in self.mechanisms.values()))

    @property
    def noise(self) -> dict[str, float | str]:
        """Standard deviation of every release."""
        return {
            f"stddev of {name}": mechanism.stddev * self.units[name]
            for name, mechanism in self.mechanisms.items()
        }

    @property
    def mechanism(self) -> str:
        return (
            f"joint differential privacy, unit: user; method {self.method.name!r}. The item side is released with "
            "Gaussian noise calibrated to a user's whole row; a user's predictions come from that release and the "
            "user's own row, and what other users see changes through the release only"
        )

    @property
    def theorem(self) -> str:
        return f"{self.method.theorem}; Gaussian composition; billboard lemma (Hsu et al., 2014)"

    def run(self, ratings: Users, entropy: Entropy) -> ItemModel:
        """Return the item side; the only place where ratings meet noise."""
        return self.method.run(self.facts, ratings, Noise(self, entropy))

    def __str__(self) -> str:
        facts = self.facts
        lines = [
            f"method           {self.method.name}",
            f"guarantee        ({facts.guarantee.epsilon:g}, {facts.guarantee.delta:.3g}) joint differential privacy, "
            f"unit: user, {facts.guarantee.neighboring.value}",
            f"catalog          {facts.n_items} items, at most {facts.n_users} users",
        ]
        for release, multiplier in self._releases:
            kind = (
                f"{release.size} x symmetric {release.order}" if release.order else f"{release.size} numbers"
            )
            lines.append(
                f"release          {release.name}: {kind}, sensitivity {release.sensitivity:.4g}, "
                f"noise multiplier {multiplier:.4g}"
            )
        return "\n".join(lines)
