"""Exact samples of the discrete Gaussian and the discrete Laplace distribution, in bulk.

Both have the form P(X = x) proportional to exp(-a |x| - b x^2) on the integers. A sample is X = +-(jB + r): j comes
from a small table (the same distribution with a small scale), r is uniform on 0, ..., B - 1, and a coin accepts the
candidate with the remaining probability. The result has *exactly* the stated distribution
(docs/proofs/discrete-noise.md, section 1): floating point only decides comparisons that are not close, and
arbitrary-precision arithmetic on more bits of the same uniform number decides the close ones.

Tables are computed in integers that represent multiples of 2^-bits, with proved error bounds. A comparison that the
current bits cannot decide reads more bits; it never guesses. If a privacy proof needs the ratio of neighboring
probabilities in one direction only, one-sided geometric noise is enough, with half the variance of two-sided noise
(docs/proofs/sparse-vector.md, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Integers
from discreet.mechanisms.samplers.entropy import Entropy, Words
from discreet.mechanisms.samplers.numba_decorator import compiled

GUIDE_BITS = 12
_GUARD_BITS = 192


@dataclass(frozen=True)
class Weights:
    """The sequence w_j = exp(-linear j - quadratic j^2), j = 0, 1, 2, ..., with at least one positive coefficient."""

    linear: Fraction
    quadratic: Fraction

    def __post_init__(self) -> None:
        if self.linear < 0 or self.quadratic < 0 or self.linear + self.quadratic == 0:
            raise ValueError(f"weights must decrease: coefficients >= 0 and not both 0, got {self}")

    def drop(self, index: int, fraction: Fraction) -> Fraction:
        """-log of the weight at ``index + fraction`` relative to the weight at ``index``."""
        return fraction * (self.linear + self.quadratic * (2 * index + fraction))


@dataclass(frozen=True)
class Table:
    """First 64 bits of the cumulative distribution of an index, with a guide that shortens the search.

    ``thresholds[j]`` is floor(2^64 P(J <= j)); the last entry is 2^64 - 1. ``guide[b]`` is the first j whose
    threshold is at least b 2^(64 - GUIDE_BITS).
    """

    thresholds: NDArray[np.uint64]
    guide: NDArray[np.int64]


def exp_minus(exponent: Fraction, bits: int) -> int:
    """Return 2^bits exp(-exponent), to within one unit.

    The decimal module's exponential is correctly rounded, and x exp(-x) < 1 damps an error of the quotient, so ten
    digits beyond 2^-bits are plenty.
    """
    context = Context(prec=bits * 302 // 1000 + 12, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
    quotient = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
    return int(context.multiply(context.exp(quotient), Decimal(1 << bits)))


@lru_cache(maxsize=16)
def partial_sums(weights: Weights, bits: int) -> tuple[list[int], int]:
    """Return the sums w_0 + ... + w_j in units of 2^-bits, and a bound on their errors in the same units.

    The list ends where the weights fall below one unit; its last entry also approximates the infinite sum,
    within the same bound (section 1.2 of the proof).
    """
    weight, total, sums = 1 << bits, 0, []
    ratio = exp_minus(weights.linear + weights.quadratic, bits)
    step = exp_minus(2 * weights.quadratic, bits)
    while weight > 0:
        total += weight
        sums.append(total)
        weight = weight * ratio >> bits
        ratio = ratio * step >> bits
    return sums, 8 * (len(sums) + 2) ** 3


@lru_cache(maxsize=8)
def cumulative_table(weights: Weights) -> Table:
    """Return the 64-bit table of an index J with P(J = j) proportional to w_j."""
    bits = 256
    thresholds = _thresholds(weights, bits)
    while thresholds is None:  # a probability too close to a multiple of 2^-64 needs more bits
        bits *= 2
        thresholds = _thresholds(weights, bits)
    starts = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - GUIDE_BITS)
    guide = np.searchsorted(thresholds, starts).astype(np.int64)
    for part in (thresholds, guide):
        part.setflags(write=False)
    return Table(thresholds, guide)


def _thresholds(weights: Weights, bits: int) -> NDArray[np.uint64] | None:
    """Return floor(2^64 P(J <= j)) up to the first 2^64 - 1, or None if ``bits`` are not enough."""
    sums, error = partial_sums(weights, bits)
    total = sums[-1]
    margin = 2 * error << 64
    thresholds = []
    for partial in sums:
        floor, remainder = divmod(partial << 64, total)
        if not margin < remainder < total - margin:
            return None
        thresholds.append(floor)
        if floor == 2**64 - 1:
            return np.array(thresholds, dtype=np.uint64)
    return None


class LazyUniform:
    """A uniform number in [0, 1), starting with a given word, whose further bits are drawn when needed."""

    def __init__(self, word: int, entropy: Entropy) -> None:
        self._digits, self._bits = word, 64
        self._entropy = entropy

    def is_below(self, bracket: Callable[[int], tuple[int, int]]) -> bool:
        """Whether the number is below an irrational p, where ``bracket(bits)`` = integers around 2^bits p."""
        while True:
            low, high = bracket(self._bits)
            if self._digits + 1 <= low:
                return True
            if self._digits >= high:
                return False
            self._digits = self._digits << 64 | int(self._entropy.words(1)[0])
            self._bits += 64


def exact_index(weights: Weights, word: int, entropy: Entropy) -> int:
    """Return the index picked by a uniform number starting with ``word``: the first j with P(J <= j) above it."""
    uniform = LazyUniform(word, entropy)
    index = int(np.searchsorted(cumulative_table(weights).thresholds, np.uint64(word)))

    def bracket(bits: int) -> tuple[int, int]:
        sums, error = partial_sums(weights, bits + _GUARD_BITS)
        partial, total = sums[min(index, len(sums) - 1)], sums[-1]
        low = (partial - error << bits) // (total + error)
        high = (partial + error << bits) // (total - error) + 1
        return low, high

    while not uniform.is_below(bracket):
        index += 1
    return index


def exact_coin(exponent: Fraction, word: int, entropy: Entropy) -> bool:
    """Whether a uniform number starting with ``word`` is below exp(-exponent)."""
    if exponent == 0:
        return True

    def bracket(bits: int) -> tuple[int, int]:
        value = exp_minus(exponent, bits + _GUARD_BITS)
        return value - 1 >> _GUARD_BITS, (value + 1 >> _GUARD_BITS) + 1

    return LazyUniform(word, entropy).is_below(bracket)


WORDS_PER_CANDIDATE = 3
MAX_WIDTH = 1 << 24
_OFFSET_BITS = 40  # (2^40 - 1) MAX_WIDTH < 2^64
_BLOCK = 1 << 14
_TABLE_SCALES = (Fraction(1, 16), 4096)  # below: all mass at 0; above: tables that outgrow the cache
# Well above the float64 error of the acceptance test, which is below 2^-49 for an exponential good to eight ulps.
_CLOSE = 2.0**-48


@dataclass(frozen=True)
class DiscreteLaw:
    """An integer X with P(X = x) proportional to exp(-linear |x|/width - quadratic (x/width)^2).

    Parameters
    ----------
    weights : Weights
        The distribution at width 1, restricted to x >= 0; its table is computed once and kept.
    width : int
        Number of integers that share one entry of the table, at most 2^24.

    Privacy
    -------
    ``draw`` samples the stated distribution exactly, given uniform words. The number of candidates depends only on the
    public ``count``, up to an event of negligible probability, and the work per candidate is a short table search.

    Examples
    --------
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> sample = discrete_gaussian(256, width=1000).draw(1 << 16, fresh_entropy())
    >>> sample.dtype, bool(abs(sample.std() / 256000 - 1) < 0.03)
    (dtype('int64'), True)
    """

    weights: Weights
    width: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_WIDTH:
            raise ValueError(f"width must lie between 1 and {MAX_WIDTH}, got {self.width!r}")

    def draw(self, count: int, entropy: Entropy) -> Integers:
        """Draw ``count`` independent samples."""
        values = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            wanted = min(count - filled, _BLOCK)
            # At large scales fewer than 1 in 400 is rejected, so one round suffices.
            candidates = wanted + wanted // 64 + 64
            accepted = self.accepted(entropy.words(WORDS_PER_CANDIDATE * candidates), entropy)[:wanted]
            values[filled : filled + len(accepted)] = accepted
            filled += len(accepted)
        return values

    def accepted(self, words: Words, entropy: Entropy) -> Integers:
        """Return the accepted samples among the candidates in ``words`` (three words each), in order."""
        table: Table = cumulative_table(self.weights)
        n_candidates = len(words) // WORDS_PER_CANDIDATE
        values = np.empty(n_candidates, dtype=np.int64)
        close = np.empty((n_candidates, 2), dtype=np.int64)
        n_values, n_close = _try_candidates(
            words,
            table.thresholds,
            table.guide,
            np.uint64(self.width),
            float(self.weights.linear),
            float(self.weights.quadratic),
            values,
            close,
        )
        values = values[:n_values]
        rejected = []
        for candidate, place in close[:n_close]:
            begin = WORDS_PER_CANDIDATE * candidate
            sample = self.exact(words[begin : begin + WORDS_PER_CANDIDATE], entropy)
            if sample is None:
                rejected.append(place)
            else:
                values[place] = sample
        return np.delete(values, rejected) if rejected else values

    def exact(self, words: Words, entropy: Entropy) -> int | None:
        """Decide three words in exact arithmetic: return a sample, or None for a rejected candidate."""
        first, second, third = (int(word) for word in words)
        index = exact_index(self.weights, first, entropy)
        product = (second >> (64 - _OFFSET_BITS)) * self.width
        offset, rest = divmod(product, 1 << _OFFSET_BITS)
        if rest < (1 << _OFFSET_BITS) % self.width:
            return None
        magnitude, negative = index * self.width + offset, second & 1
        if negative and magnitude == 0:
            return None
        drop = self.weights.drop(index, Fraction(offset, self.width))
        if not exact_coin(drop, third, entropy):
            return None
        return -magnitude if negative else magnitude


def discrete_gaussian(stddev: int | float | Fraction, width: int = 1) -> DiscreteLaw:
    """P(X = x) proportional to exp(-x^2 / (2 s^2)) with s = ``stddev * width``, taken exactly.

    Building the table takes longer for a larger ``stddev``, and more candidates are rejected for a smaller one; 256 is
    a good value for large scales.
    """
    return DiscreteLaw(_gaussian_weights(stddev), width)


@lru_cache(maxsize=256)
def _gaussian_weights(stddev: int | float | Fraction) -> Weights:
    scale = _table_scale("stddev", stddev)
    return Weights(Fraction(0), 1 / (2 * scale**2))


def discrete_laplace(scale: int | float | Fraction, width: int = 1) -> DiscreteLaw:
    """P(X = x) proportional to exp(-|x| / s) with s = ``scale * width``, taken exactly."""
    return DiscreteLaw(Weights(1 / _table_scale("scale", scale), Fraction(0)), width)


def _table_scale(name: str, value: int | float | Fraction) -> Fraction:
    low, high = _TABLE_SCALES
    if not low <= value <= high:
        raise ValueError(
            f"{name} must lie between {low} and {high}, got {value!r}; for more, use a larger width"
        )
    return Fraction(value)


_GUIDE_SHIFT = np.uint64(64 - GUIDE_BITS)
_OFFSET_SHIFT = np.uint64(64 - _OFFSET_BITS)
_OFFSET_UNIT = np.uint64(_OFFSET_BITS)
_OFFSET_MASK = np.uint64((1 << _OFFSET_BITS) - 1)
_OFFSET_RANGE = np.uint64(1 << _OFFSET_BITS)
_ONE = np.uint64(1)
_FRACTION_SHIFT = np.uint64(11)
_FRACTION_UNIT = 2.0**-53


def _try_candidates_python(
    words: Words,
    thresholds: NDArray[np.uint64],
    guide: Integers,
    width: np.uint64,
    linear: float,
    quadratic: float,
    values: Integers,
    close: Integers,
) -> tuple[int, int]:
    """Write the accepted candidates to ``values``; if floats cannot decide, reserve a place and note it.

    Returns the numbers of values and of notes; a note is a row (candidate, place) of ``close``.
    """
    biased = _OFFSET_RANGE % width
    inverse = 1.0 / np.float64(width)
    n_values, n_close = 0, 0
    for candidate in range(len(values)):
        first = words[3 * candidate]
        second = words[3 * candidate + 1]
        third = words[3 * candidate + 2]

        index = guide[first >> _GUIDE_SHIFT]
        while first > thresholds[index]:
            index += 1

        # Uniform offset by a product and a rare rejection (Lemire, 2019).
        product = (second >> _OFFSET_SHIFT) * width
        offset = np.int64(product >> _OFFSET_UNIT)
        magnitude = index * np.int64(width) + offset
        negative = np.int64(second & _ONE)
        legal = (product & _OFFSET_MASK) >= biased and (negative == 0 or magnitude != 0)

        fraction = offset * inverse
        drop = fraction * (linear + quadratic * (2 * index + fraction))
        uniform = np.int64(third >> _FRACTION_SHIFT) * _FRACTION_UNIT
        gap = 1.0 - drop - uniform
        if gap < _CLOSE:  # exp(-drop) >= 1 - drop decides nearly every candidate without the exponential
            gap = math.exp(-drop) - uniform

        values[n_values] = magnitude - 2 * negative * magnitude
        if first == thresholds[index] or abs(gap) < _CLOSE:
            close[n_close, 0] = candidate
            close[n_close, 1] = n_values
            n_close += 1
            n_values += 1
        elif legal and gap > 0:
            n_values += 1
    return n_values, n_close


_Kernel = Callable[
    [Words, NDArray[np.uint64], Integers, np.uint64, float, float, Integers, Integers], tuple[int, int]
]
_try_candidates: _Kernel = compiled()(_try_candidates_python)

_TABLE_SCALE = 256  # larger scales share a table of this scale by a larger width
_SCALES = (1 / 16, 2.0**30)


@dataclass(frozen=True)
class GeometricNoise:
    """The geometric distribution P(G = k) = (1 - a) a^k, k = 0, 1, 2, ..., with a = exp(-1 / scale).

    Parameters
    ----------
    scale : float
        Between 1/16 and 2^30, taken exactly.

    Privacy
    -------
    Subtracted from integers that differ by at most 1, P(G <= x) grows by at most a factor exp(1 / scale) per step of x
    (for x at which it is positive), and P(G >= x) falls by exactly that factor. Samples have exactly this distribution:
    a discrete Laplace variate, given that it is not negative, is geometric.

    Examples
    --------
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
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
        """Draw ``count`` independent samples."""
        values = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            sample = self._law.draw(2 * (count - filled) + 8, entropy)
            kept = sample[sample >= 0][: count - filled]
            values[filled : filled + len(kept)] = kept
            filled += len(kept)
        return values
