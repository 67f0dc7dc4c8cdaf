"""Noise whose density falls with its Euclidean norm, exp(-|z| / scale): pure differential privacy in L2.

For two values at L2 distance D the densities differ by a factor of at most exp(D / scale), by the triangle inequality.
|z| has a gamma distribution with shape ``size``, hence the name. In R^p

    z = scale |M| N,     N ~ N(0, I_p),   M ~ N(0, I_{p+1}) independent,

and the release is value + z rounded to a public grid: post-processing of a continuous mechanism, with rounding decided
by as many digits as needed. Proofs: docs/proofs/gamma-noise.md.

A standard normal number is x = +-(j + r) / 256. The cell j comes from the table of a discrete Gaussian, r is a
uniform number in [0, 1) whose digits are drawn when needed, and a coin accepts the pair with the remaining
probability. Digits used by a decision are kept and all others stay undrawn and uniform, so the number has exactly the
density exp(-x^2 / 2) / sqrt(2 pi) (section 2 of the proofs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array, Integers
from discreet.mechanisms.additive import LaplaceNoise, PureMechanism, Shape, from_grid, sizes_of
from discreet.mechanisms.recording import observed
from discreet.mechanisms.samplers.discrete import (
    LazyUniform,
    Weights,
    exact_index,
    exp_minus,
)
from discreet.mechanisms.samplers.entropy import Entropy, Words

CELL_BITS = 8  # cells of width 2^-8
WORDS_PER_CANDIDATE = 3
FRACTION_BITS = 63  # the digits of r that come with a candidate; the 64th bit is the sign
_WEIGHTS = Weights(Fraction(0), Fraction(1, 2 ** (2 * CELL_BITS + 1)))
_QUADRATIC = float(_WEIGHTS.quadratic)
_CLOSE = 2.0**-48  # well above the error of the float64 test, which is below 2^-49
_GUARD_BITS = 192


class LazyFraction:
    """A uniform number in [0, 1) whose digits are drawn when needed."""

    def __init__(self, digits: int, entropy: Entropy) -> None:
        self._digits, self._bits, self._entropy = digits, FRACTION_BITS, entropy

    def floor(self, bits: int) -> int:
        """Return the first ``bits`` binary digits as an integer, drawing the missing ones."""
        while self._bits < bits:
            self._digits = self._digits << 64 | int(self._entropy.words(1)[0])
            self._bits += 64
        return self._digits >> (self._bits - bits)


@dataclass(eq=False)
class Normals:
    """Independent standard Gaussian numbers, known to as many digits as needed.

    Attributes
    ----------
    cells, digits, negative : cell j, first 63 digits of r, sign; one entry per number.
    refined : numbers with more known digits.
    """

    cells: Integers
    digits: Words
    negative: NDArray[np.bool_]
    refined: dict[int, LazyFraction]
    entropy: Entropy

    def __len__(self) -> int:
        return len(self.cells)

    def magnitudes(self) -> Array:
        """Return |x| in float64, off by at most 2^-53 |x| + 2^-61."""
        fractions = self.digits.astype(np.float64) * 2.0**-FRACTION_BITS
        return (self.cells + fractions) * 2.0**-CELL_BITS

    def floor(self, index: int, bits: int) -> int:
        """Return |x| of one number in integer units of 2^-(bits + 8), rounded down."""
        if bits <= FRACTION_BITS:
            fraction = int(self.digits[index]) >> (FRACTION_BITS - bits)
        else:
            if index not in self.refined:
                self.refined[index] = LazyFraction(int(self.digits[index]), self.entropy)
            fraction = self.refined[index].floor(bits)
        return (int(self.cells[index]) << bits) + fraction


def draw_normals(count: int, entropy: Entropy) -> Normals:
    """Draw ``count`` independent numbers; with overwhelming probability the words used depend on ``count`` only."""
    cells, digits = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint64)
    negative, refined, filled = np.empty(count, dtype=bool), {}, 0
    while filled < count:
        wanted = count - filled
        candidates = wanted + wanted // 64 + 64  # fewer than 1 in 400 is rejected
        words = entropy.words(WORDS_PER_CANDIDATE * candidates).reshape(candidates, WORDS_PER_CANDIDATE)
        found, exact = _accepted(words, entropy)
        kept = found[:wanted]
        place = slice(filled, filled + len(kept))
        cells[place] = _cells(words[kept, 0])
        digits[place], negative[place] = words[kept, 1] >> np.uint64(1), (words[kept, 1] & np.uint64(1)) == 1
        for offset in np.flatnonzero(np.isin(kept, list(exact))) if exact else ():
            cells[filled + offset], refined[filled + int(offset)] = exact[int(kept[offset])]
        filled += len(kept)
    return Normals(cells, digits, negative, refined, entropy)


def _cells(first: Words) -> Integers:
    return np.searchsorted(_WEIGHTS.table.thresholds, first).astype(np.int64)


def _accepted(words: Words, entropy: Entropy) -> tuple[Integers, dict[int, tuple[int, LazyFraction]]]:
    """Return which candidates are accepted, in order, with cell and digits of those that needed exact arithmetic."""
    first, second, third = words.T
    thresholds = _WEIGHTS.table.thresholds
    cells = np.minimum(_cells(first), len(thresholds) - 1)
    fractions = (second >> np.uint64(1)).astype(np.float64) * 2.0**-FRACTION_BITS
    drop = fractions * (_QUADRATIC * (2.0 * cells + fractions))
    gap = np.exp(-drop) - (third >> np.uint64(11)).astype(np.float64) * 2.0**-53
    accepted = gap > 0
    exact = {}
    for candidate in np.flatnonzero((first == thresholds[cells]) | (np.abs(gap) < _CLOSE)):
        sample = exact_candidate(words[candidate], entropy)
        accepted[candidate] = sample is not None
        if sample is not None:
            exact[int(candidate)] = sample
    return np.flatnonzero(accepted), exact


def exact_candidate(words: Words, entropy: Entropy) -> tuple[int, LazyFraction] | None:
    """Decide three words in exact arithmetic: return cell and digits, or None for a rejected candidate."""
    first, second, third = (int(word) for word in words)
    cell = exact_index(_WEIGHTS, first, entropy)
    fraction = LazyFraction(second >> 1, entropy)

    def bracket(bits: int) -> tuple[int, int]:
        """Return integers around 2^bits exp(-drop), from as many digits of r."""
        known, unit = fraction.floor(bits), 1 << bits
        least, most = (_WEIGHTS.drop(cell, Fraction(known + step, unit)) for step in (0, 1))
        low = exp_minus(most, bits + _GUARD_BITS) - 1 >> _GUARD_BITS
        return low, (exp_minus(least, bits + _GUARD_BITS) + 1 >> _GUARD_BITS) + 1

    return (cell, fraction) if LazyUniform(third, entropy).is_below(bracket) else None


@dataclass(frozen=True)
class GammaNormNoise:
    """A vector with density proportional to exp(-|z| / scale), rounded to the nearest points of a grid.

    Attributes
    ----------
    grid : float
        A power of two with ``scale / grid`` in [2^30, 2^31). Every draw is a multiple of it.
    effective_scale : float
        The scale of the rounded distribution: ``scale`` rounded up to an integer number of steps.

    Privacy
    -------
    Added to vectors of multiples of ``grid`` that differ by at most D in L2 norm, one draw is
    (D / effective_scale)-DP exactly, with delta = 0. A draw is ONE vector of any shape: its entries are not
    independent.

    Examples
    --------
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> draw = GammaNormNoise(0.01).draw(10_000, fresh_entropy())
    >>> bool(90 < np.linalg.norm(draw) < 110)  # size x scale = 100, give or take 1
    True
    """

    scale: float

    def __post_init__(self) -> None:
        LaplaceNoise(self.scale)  # raises for scales without a grid

    @property
    def grid(self) -> float:
        """The step between neighboring values of the noise."""
        return LaplaceNoise(self.scale).grid

    @property
    def steps(self) -> int:
        """The scale in integer steps of the grid."""
        return math.ceil(self.scale / self.grid)

    @property
    def effective_scale(self) -> float:
        """The sampled scale, exact in float64."""
        return self.steps * self.grid

    def draw(self, shape: Shape, entropy: Entropy) -> Array:
        """Draw one vector of the given shape, in multiples of ``grid``."""
        noise = from_grid(self.draw_integers(shape, entropy), self.grid)
        return observed(self, entropy, noise, scale=self.effective_scale)

    def draw_integers(self, shape: Shape, entropy: Entropy) -> Integers:
        """Draw the same vector, counted in steps of ``grid``."""
        sizes = sizes_of(shape)
        size = math.prod(sizes)
        directions, radius = draw_normals(size, entropy), draw_normals(size + 1, entropy)
        magnitudes = rounded_products(self.steps, directions, radius)[0]
        return np.where(directions.negative, -magnitudes, magnitudes).reshape(sizes)


def rounded_products(steps: int, directions: Normals, radius: Normals) -> tuple[Integers, int]:
    """Round ``steps`` |M| |N_i| to the nearest integer for every i; also return how many needed exact arithmetic.

    Float64 decides if its proved error bound allows it; arbitrary-length integers decide the rest.
    """
    factors = radius.magnitudes()
    length = math.sqrt(math.fsum(factors * factors))
    magnitudes = directions.magnitudes()
    products = steps * length * magnitudes
    error = products * 10 * 2.0**-53 + 2.0**-60 * steps * (math.sqrt(len(radius)) * (magnitudes + 1) + length)
    lifted = products + 0.5
    whole = np.floor(lifted)
    margin = error + lifted * 2.0**-53
    unclear = ~((lifted - whole > margin) & (whole + 1 - lifted > margin) & (lifted < 2.0**52))
    values = np.where(unclear, 0.0, whole).astype(np.int64)
    open_places = [int(place) for place in np.flatnonzero(unclear)]
    bits = FRACTION_BITS
    while open_places:
        bounds = _length_bounds(radius, bits)
        undecided = []
        for place in open_places:
            low, high = _product_bounds(steps, directions.floor(place, bits), bounds, bits)
            if low == high:
                values[place] = (low + 2**63) % 2**64 - 2**63  # wraps like 64-bit integers
            else:
                undecided.append(place)
        open_places, bits = undecided, bits + 64
    return values, int(unclear.sum())


def _length_bounds(radius: Normals, bits: int) -> tuple[int, int]:
    """Return integers around 2^(bits + 8) |M|."""
    known = [radius.floor(index, bits) for index in range(len(radius))]
    low = sum(number * number for number in known)
    high = sum((number + 1) ** 2 for number in known)
    return math.isqrt(low), math.isqrt(high) + 1


def _product_bounds(steps: int, known: int, length: tuple[int, int], bits: int) -> tuple[int, int]:
    """Return the least and the largest integer that steps |M| |N_i| can round to, given the digits."""
    shift = 2 * (bits + CELL_BITS)
    half = 1 << (shift - 1)
    return (steps * known * length[0] + half) >> shift, (steps * (known + 1) * length[1] + half) >> shift


@dataclass(frozen=True)
class GammaNormMechanism(PureMechanism):
    """Release a vector of ``size`` numbers with gamma-norm noise of ``noise_multiplier`` times its L2 sensitivity.

    Parameters
    ----------
    sensitivity : Sensitivity
        L2 distance between the values of neighbors, for the float64 numbers passed to ``release``.
    noise_multiplier : float
        Noise scale over sensitivity: 1 / epsilon.
    size : int
        Public number of coordinates.

    Privacy
    -------
    Event: ``Pure(1 / noise_multiplier)``, exactly, under the relation of the sensitivity. Rounding down to the grid
    adds at most ``grid * sqrt(size)`` to the distance, which ``scale`` includes. Non-finite values are handled as in
    :class:`~discreet.mechanisms.additive.GaussianMechanism`. The norm of the noise is about ``size`` times its scale;
    Laplace noise for the same L2 sensitivity would have a norm sqrt(2) times that.

    Examples
    --------
    >>> from discreet.privacy.guarantee import Sensitivity
    >>> GammaNormMechanism(Sensitivity(1.0), noise_multiplier=2.0, size=3).event
    Pure(epsilon=0.5)
    """

    norm: ClassVar[float] = 2.0

    @cached_property
    def noise(self) -> GammaNormNoise:
        return GammaNormNoise(self.scale)

    def release_or_uniform(self, value: ArrayLike | None, entropy: Entropy) -> Array:
        """Release the noisy value; without one, and with probability 2^-64, a uniform point of the whole range.

        Privacy
        -------
        As for ``release``, including delta = 0, even if the value is missing, provided that it is missing with
        probability at most exp(-`ending_exponent`) on every data set (docs/proofs/gamma-noise.md, section 6).
        """
        noisy = None if value is None else self.release(value, entropy)
        words = entropy.words(1 + self.size)
        if noisy is not None and words[0] != 0:
            return noisy
        steps = words[1:].view(np.int64)
        return from_grid(steps if noisy is None else steps.reshape(noisy.shape), self.noise.grid)


def ending_exponent(size: int, epsilon: float) -> float:
    """Return minus the log of the probability with which ``size`` numbers may have no value at no extra cost.

    exp(-x) <= 2^-64 tanh(epsilon / 2) / 2^(64 size), where 2^(64 size) is the number of points in the range.
    """
    return 64 * math.log(2) * (size + 1) - math.log(math.tanh(epsilon / 2)) + 1


def norm_bound(size: int, exponent: float) -> float:
    """Return a norm, in scales, that a vector of ``size`` entries exceeds with probability at most exp(-exponent)."""
    return size + math.sqrt(2 * size * exponent) + exponent
