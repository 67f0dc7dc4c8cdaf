"""What a ledger answers when asked how much is gone and how much is left."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.privacy.guarantee import Neighboring


@dataclass(frozen=True)
class Spent:
    """How much has been used: the smallest cap, at this delta, that would have admitted every charge."""

    epsilon: float
    delta: float
    neighboring: Neighboring
    n_charges: int

    def __str__(self) -> str:
        charges = f"{self.n_charges} charge{'' if self.n_charges == 1 else 's'}"
        if self.n_charges == 0:
            return "nothing spent"
        return (
            f"epsilon {number(self.epsilon)} at delta {self.delta:g} spent by {charges} ({self.neighboring})"
        )


@dataclass(frozen=True)
class Remaining:
    """What ONE further release could be, now; each number is an alternative to the others.

    epsilon : price, alone and at the cap's delta, of the largest further Gaussian release; of a pure one if
        the cap's delta is 0.
    pure_epsilon : the largest further pure release.
    noise_multiplier : the smallest of a further Gaussian release, infinite if none fits.
    """

    epsilon: float
    delta: float
    pure_epsilon: float
    noise_multiplier: float
    neighboring: Neighboring
    closed: bool

    def within(self, other: Remaining) -> Remaining:
        """What is left where another ledger, with the same delta and relation, must admit the release too."""
        pure = min(self.pure_epsilon, other.pure_epsilon)
        noise = max(self.noise_multiplier, other.noise_multiplier)
        epsilon = pure if math.isinf(noise) else min(self.epsilon, other.epsilon)
        return Remaining(epsilon, self.delta, pure, noise, self.neighboring, self.closed or other.closed)

    def __str__(self) -> str:
        if self.closed:
            return "nothing remains: the first charge took the whole cap"
        if self.epsilon == 0 and self.pure_epsilon == 0:
            return "nothing further is sure to fit"
        pure = f"a pure one of epsilon {number(self.pure_epsilon)}"
        if math.isinf(self.noise_multiplier):
            none = "; no Gaussian noise fits any more" if self.delta > 0 else ""
            return f"one release: {pure}{none} ({self.neighboring})"
        return (
            f"one release: Gaussian noise of multiplier {number(self.noise_multiplier)} or more "
            f"(epsilon {number(self.epsilon)} at delta {self.delta:g}), or {pure} ({self.neighboring})"
        )


def number(value: float) -> str:
    """Four digits, for people."""
    return "infinity" if math.isinf(value) else f"{value:.4g}"
