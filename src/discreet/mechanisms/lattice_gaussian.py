"""Correlated Gaussian vectors on a public grid, one coordinate after the other, with point masses known exactly.

Write M = L L^T. A Gaussian of precision M is, coordinate by coordinate from the last to the first, a scalar Gaussian
around a center that the later coordinates determine (Klein, 2000; Gentry, Peikert and Vaikuntanathan, 2008). Here every
center is rounded to the grid and the scalar noise is an exact discrete Gaussian, so that

    P(theta) = exp(-Q(theta)) / constant,      Q(theta) = sum_j e_j^2 / (2 (256 width_j)^2),

holds exactly, e being the integer noise that led to theta. Whatever rounding errors the centers suffer belong to the
definition of Q. Proof: docs/proofs/exponential-sampling.md, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numba
import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.discrete import MAX_WIDTH, Integers, discrete_gaussian
from discreet.mechanisms.entropy import Entropy

Array = NDArray[np.float64]

TABLE_SCALE = 256  # standard deviation of the table's law; a coordinate's is this times its width


@dataclass(frozen=True, eq=False)
class LatticeGaussian:
    """Near-Gaussian vectors around ``mean`` with precision near ``factor factor^T``, on multiples of ``grid``.

    Parameters
    ----------
    mean : array of p numbers.
    factor : lower triangular matrix with a diagonal greater than 0.
    grid : a power of two, well below the smallest conditional standard deviation 1 / factor_jj.

    Attributes
    ----------
    widths : conditional standard deviations in units of 256 grid steps, rounded up: the law is never narrower than
        the Gaussian that was asked for.
    """

    mean: Array
    factor: Array
    grid: float

    @property
    def widths(self) -> Integers:
        """Units of 256 steps in every conditional standard deviation."""
        wanted = np.ceil(1.0 / (np.diag(self.factor) * (TABLE_SCALE * self.grid)))
        return np.clip(wanted, 1, MAX_WIDTH).astype(np.int64)

    def draw(self, count: int, entropy: Entropy) -> tuple[Array, Integers]:
        """``count`` vectors, one per row, and the integer noise of each."""
        noise = np.empty((count, len(self.mean)), dtype=np.int64)
        for j, width in enumerate(self.widths):
            noise[:, j] = discrete_gaussian(TABLE_SCALE, int(width)).draw(count, entropy)
        ratios = np.ascontiguousarray((self.factor / np.diag(self.factor)).T)
        return _place(noise, self.mean, ratios, self.grid), noise

    def exponent(self, noise: Integers) -> Array:
        """Q of every row of ``noise``, in float64: relative error below (p + 4) 2^-53."""
        scaled = noise / (TABLE_SCALE * self.widths).astype(np.float64)
        return np.asarray(0.5 * np.square(scaled).sum(axis=1))

    def exact_exponent(self, noise: Integers) -> Fraction:
        """Q of one vector of noise."""
        terms = (
            Fraction(int(e), TABLE_SCALE * int(w)) ** 2 / 2 for e, w in zip(noise, self.widths, strict=True)
        )
        return sum(terms, Fraction(0))

    def farthest_center(self, radius: float) -> float:
        """A bound on the conditional centers |c_j| that belong to theta with |theta| <= radius."""
        reach = float(np.linalg.norm(self.factor)) * (radius + float(np.linalg.norm(self.mean)))
        return 2 * (radius + reach / float(np.min(np.diag(self.factor))))

    def excess(self, radius: float) -> float:
        """How far Q(theta) can exceed (theta - mean)^T factor factor^T (theta - mean) / 2 where |theta| <= radius.

        Centers are off by half a step and by the rounding of a sum of p products (section 2 of the proof).
        """
        p = len(self.mean)
        size = float(np.linalg.norm(self.factor)) * (1 + 2.0**-40)
        norm = float(np.linalg.norm(self.mean)) * (1 + 2.0**-40)
        unit = (p + 8) * 2.0**-52
        length = size * (radius + norm)
        shift = size * (self.grid / 2 + unit * (radius + 2 * norm))
        narrow = float(np.max(1.0 / (np.diag(self.factor) * self.grid * TABLE_SCALE * self.widths))) ** 2
        return (length * shift + 0.5 * shift**2 + max(0.0, narrow - 1.0) * (length + shift) ** 2) * (1 + 1e-9)


def _place_python(noise: Integers, mean: Array, ratios: Array, grid: float) -> Array:
    """theta_j = grid (round(center_j / grid) + noise_j) for j = p - 1, ..., 0.

    center_j = mean_j - sum_{k > j} ratios_jk (theta_k - mean_k).
    """
    count, p = noise.shape
    theta = np.empty((count, p))
    moved = np.empty(p)
    for row in range(count):
        for j in range(p - 1, -1, -1):
            pull = 0.0
            for k in range(j + 1, p):
                pull += ratios[j, k] * moved[k]
            theta[row, j] = (np.rint((mean[j] - pull) / grid) + noise[row, j]) * grid
            moved[j] = theta[row, j] - mean[j]
    return theta


# Any order of summation is as good as another here, as long as all rows are treated alike.
_place: Callable[[Integers, Array, Array, float], Array] = numba.njit(
    cache=True, nogil=True, fastmath={"reassoc", "contract"}
)(_place_python)


def power_of_two_below(value: float) -> float:
    """The largest power of two that is at most ``value``.

    >>> power_of_two_below(0.3)
    0.25
    """
    return math.ldexp(1.0, math.frexp(value)[1] - 1)
