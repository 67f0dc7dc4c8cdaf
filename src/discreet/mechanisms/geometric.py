"""One-sided geometric noise: whole numbers k >= 0 with P(k) proportional to exp(-k / scale), sampled exactly.

Where a privacy proof needs the ratio of neighboring probabilities in one direction only, one-sided noise does
with half the variance of two-sided noise (docs/proofs/sparse-vector.md, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from discreet.mechanisms.discrete import DiscreteLaw, Integers, discrete_laplace
from discreet.mechanisms.entropy import Entropy

_TABLE_SCALE = 256  # larger scales share a table of this scale by a larger width
_SCALES = (1 / 16, 2.0**30)


@dataclass(frozen=True)
class GeometricNoise:
    """The law P(G = k) = (1 - a) a^k, k = 0, 1, 2, ..., with a = exp(-1 / scale).

    Parameters
    ----------
    scale : float
        Between 1/16 and 2^30; the number is taken exactly.

    Privacy
    -------
    Subtracted from whole numbers that differ by at most 1, P(G <= x) grows by at most a factor
    exp(1 / scale) per step of x (for x at which it is positive), and P(G >= x) falls by exactly that factor.
    Samples have exactly this law: a discrete Laplace variate, given that it is not negative, is geometric.

    Examples
    --------
    >>> from discreet.mechanisms.entropy import fresh_entropy
    >>> draws = GeometricNoise(10.0).draw(20000, fresh_entropy())
    >>> bool(draws.min() == 0), bool(abs(draws.mean() / 9.508 - 1) < 0.05)
    (True, True)
    """

    scale: float

    def __post_init__(self) -> None:
        low, high = _SCALES
        if not low <= self.scale <= high:
            raise ValueError(f"scale must lie between {low:g} and {high:g}, got {self.scale!r}")

    @property
    def ratio(self) -> float:
        """a = exp(-1 / scale)."""
        return math.exp(-1 / self.scale)

    @cached_property
    def _law(self) -> DiscreteLaw:
        width = max(1, math.ceil(self.scale / _TABLE_SCALE))
        return discrete_laplace(Fraction(self.scale) / width, width)

    def draw(self, count: int, entropy: Entropy) -> Integers:
        """``count`` independent samples."""
        values = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            sample = self._law.draw(2 * (count - filled) + 8, entropy)
            kept = sample[sample >= 0][: count - filled]
            values[filled : filled + len(kept)] = kept
            filled += len(kept)
        return values
