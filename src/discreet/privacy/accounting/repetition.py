"""Price a mechanism that runs a random number of times and releases only the best output.

Releasing the best of k runs costs up to k times the price of one. If the number of runs is random, secret and spread
out, it costs little more than one run (Liu and Talwar, 2019; Papernot and Steinke, 2022). The bound here uses the
whole privacy profile of one run (compare Koskela, Redberg and Wang, 2024). Proofs: docs/proofs/selection.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scipy.optimize import brentq

from discreet.privacy.accounting import accountants
from discreet.privacy.events import Approximate, Event, NonPrivate, OneOf, Pure, RandomTries
from discreet.privacy.guarantee import Neighboring

Profile = Callable[[float], float]

_UP = 1 + 1e-11  # covers the few roundings of a closed form
LAWS = ("logarithmic", "geometric", "poisson")


@dataclass(frozen=True)
class TriesLaw:
    """The distribution of the number K >= 1 of tries.

    law : "negative-binomial" or "poisson".
    shape, scale : as in `RandomTries`.
    """

    law: Literal["negative-binomial", "poisson"]
    shape: float
    scale: float

    @property
    def mean(self) -> float:
        """E[K], rounded up.

        >>> round(TriesLaw("poisson", 0.0, 3.0).mean, 4)  # 3 / (1 - e^-3)
        3.1572
        """
        if self.law == "poisson":
            return _UP * self.scale / -math.expm1(-self.scale)
        odds = 1 / math.expm1(1 / self.scale)  # (1 - gamma) / gamma
        if self.shape == 0:
            return _UP * odds / -_log_gamma(self.scale)
        gamma_power = math.exp(self.shape * _log_gamma(self.scale))
        return _UP * self.shape * odds / (1 - gamma_power)

    def overhead(self, profile: Profile) -> float:
        """Return the epsilon that selection adds to that of one run with the given profile.

        Poisson: scale x profile(0). Negative binomial: (1 + eta) x, where x solves e^x - 1 = (1 - gamma) / gamma
        profile(x); any x with a larger left side is valid.
        """
        if self.law == "poisson":
            return _UP * self.scale * profile(0.0)
        odds = _UP / math.expm1(1 / self.scale)
        high = math.log1p(odds * profile(0.0)) * _UP

        def missing(x: float) -> float:
            return odds * profile(x) - math.expm1(x)

        if high <= 0 or missing(0.0) <= 0:
            return 0.0
        root = float(brentq(missing, 0.0, high, xtol=1e-9, rtol=1e-7)) if missing(high) < 0 else high
        while missing(root) > 0:
            root = min(high, root * (1 + 1e-6) + 1e-12)
            if root == high:
                break
        return (1 + self.shape) * root * _UP

    def largest_overhead(self, profiles: list[Profile]) -> float:
        """Return the overhead of a run with any of these profiles, which is that of their maximum.

        The search starts with the largest profile at 0; another is searched only if the bound so far is not valid for
        it.
        """
        first, *others = sorted(profiles, key=lambda profile: profile(0.0), reverse=True)
        largest = self.overhead(first)
        if self.law == "poisson":
            return largest
        odds = _UP / math.expm1(1 / self.scale)
        for profile in others:
            x = largest / ((1 + self.shape) * _UP)
            if not odds * profile(x) <= math.expm1(x):
                largest = max(largest, self.overhead(profile))
        return largest

    def event(self, event: Event, delta: float, neighboring: Neighboring) -> RandomTries:
        """Return the event of running ``event`` a random number of times and keeping the best."""
        return RandomTries(event, self.law, self.shape, self.scale, delta, neighboring.value)


def law_with_mean(name: str, mean: float) -> TriesLaw:
    """Return the distribution of the given kind with ``mean`` expected tries.

    >>> round(law_with_mean("geometric", 20.0).mean, 6), round(law_with_mean("poisson", 20.0).mean, 6)
    (20.0, 20.0)
    """
    if name not in LAWS:
        raise ValueError(f"the number of tries must follow one of {LAWS}, got {name!r}")
    if not 1 < mean <= 1e6:
        raise ValueError(f"the expected number of tries must be above 1 and at most a million, got {mean!r}")

    def law(scale: float) -> TriesLaw:
        if name == "poisson":
            return TriesLaw("poisson", 0.0, scale)
        return TriesLaw("negative-binomial", 1.0 if name == "geometric" else 0.0, scale)

    low, high = 1 / 16, 2.0
    if law(low).mean >= mean:
        return law(low)
    while law(high).mean < mean:
        high *= 2
    return law(float(brentq(lambda scale: law(scale).mean - mean, low, high, rtol=1e-12)))


def profile_of(event: Event, neighboring: Neighboring) -> Profile:
    """Return delta as a function of epsilon; for several alternatives, the largest at every epsilon."""
    if parts := _alternatives(event, neighboring):
        profiles = [profile_of(part, neighboring) for part in parts]
        return lambda epsilon: max(profile(epsilon) for profile in profiles)
    return lambda epsilon: accountants.delta(event, epsilon, neighboring)


def epsilon_of(event: Event, delta: float, neighboring: Neighboring) -> float:
    """Return the smallest epsilon at ``delta``; for several alternatives, the largest."""
    if parts := _alternatives(event, neighboring):
        return _largest_epsilon(parts, delta, neighboring)
    if isinstance(event, RandomTries) and _is_under(event, neighboring):
        law = TriesLaw(event.law, event.shape, event.scale)
        parts = _alternatives(event.event, neighboring) or [event.event]
        overhead = law.largest_overhead([profile_of(part, neighboring) for part in parts])
        return (overhead + epsilon_of(event.event, delta / law.mean, neighboring)) * _UP
    return accountants.epsilon(event, delta, neighboring)


def _largest_epsilon(parts: list[Event], delta: float, neighboring: Neighboring) -> float:
    """Return the largest epsilon of the parts, searching in as few parts as possible.

    A part whose delta at the largest epsilon so far is small enough needs no search.
    """
    tries = [part for part in parts if isinstance(part, RandomTries)]  # these have no profile
    largest = max((epsilon_of(part, delta, neighboring) for part in tries), default=0.0)
    profiles = {part: profile_of(part, neighboring) for part in parts if part not in tries}
    while profiles and largest < math.inf:
        deltas = {part: profile(largest) for part, profile in profiles.items()}
        profiles = {part: profile for part, profile in profiles.items() if not deltas[part] <= delta}
        if profiles:
            worst = max(profiles, key=lambda part: deltas[part])
            largest = max(largest, epsilon_of(worst, delta, neighboring))
            del profiles[worst]
    return largest


def summarized(event: OneOf | RandomTries) -> Event:
    """Return the event as one (epsilon, delta) pair, at its own delta."""
    epsilon = epsilon_of(event, event.delta, Neighboring(event.neighboring))
    if math.isinf(epsilon):
        return NonPrivate()
    return Pure(epsilon) if event.delta == 0 and epsilon > 0 else Approximate(epsilon, event.delta)


def _alternatives(event: Event, neighboring: Neighboring) -> list[Event]:
    """Return the different parts of an event that is one of several; empty for any other event."""
    if isinstance(event, OneOf) and _is_under(event, neighboring):
        return list(dict.fromkeys(event.events))
    return []


def _is_under(event: OneOf | RandomTries, neighboring: Neighboring) -> bool:
    """Whether ``event`` was made for ``neighboring``; if not, accountants refuse it."""
    return Neighboring(event.neighboring) is neighboring


def _log_gamma(scale: float) -> float:
    """Return log(1 - exp(-1 / scale))."""
    return math.log(-math.expm1(-1 / scale))
