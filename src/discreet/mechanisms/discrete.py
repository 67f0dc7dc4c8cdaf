"""Exact samples of the discrete Gaussian and the discrete Laplace distribution, in bulk.

Both laws have the form P(X = x) proportional to exp(-a |x| - b x^2) on the integers. A sample is built as
X = +-(jB + r): j comes from a small table (the same law with a small scale), r is uniform on 0, ..., B - 1,
and a coin accepts the candidate with the probability that is still missing. The result has *exactly* the
stated law (docs/proofs/discrete-noise.md, section 1): floating point only ever decides comparisons that are
not close, and the close ones are decided by arbitrary-precision arithmetic on more bits of the same uniform
number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numba
import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms._tables import (
    GUIDE_BITS,
    Table,
    Weights,
    cumulative_table,
    exact_coin,
    exact_index,
)
from discreet.mechanisms.entropy import Entropy, Words

Integers = NDArray[np.int64]

WORDS_PER_CANDIDATE = 3
MAX_WIDTH = 1 << 24
_OFFSET_BITS = 40  # (2^40 - 1) MAX_WIDTH < 2^64
_BLOCK = 1 << 14
_TABLE_SCALES = (Fraction(1, 16), 4096)  # below: all mass at 0; above: tables that outgrow the cache
# Well above the float64 error of the acceptance test, with an exponential good to eight ulps: below 2^-49.
_CLOSE = 2.0**-48


@dataclass(frozen=True)
class DiscreteLaw:
    """The law of an integer X with P(X = x) proportional to exp(-linear |x|/width - quadratic (x/width)^2).

    Parameters
    ----------
    weights : Weights
        The law at width 1, restricted to x >= 0; its table is computed once and kept.
    width : int
        How many integers share one entry of the table, at most 2^24.

    Privacy
    -------
    ``draw`` samples the stated law exactly, given uniform words. The number of candidates it makes is a
    function of the public ``count`` up to an event of negligible probability, and the work per candidate is a
    short table search.

    Examples
    --------
    >>> from discreet.mechanisms.entropy import fresh_entropy
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
        """``count`` independent samples."""
        values = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            wanted = min(count - filled, _BLOCK)
            # At large scales fewer than 1 in 400 is rejected: one round suffices, whatever the noise.
            candidates = wanted + wanted // 64 + 64
            accepted = self.accepted(entropy.words(WORDS_PER_CANDIDATE * candidates), entropy)[:wanted]
            values[filled : filled + len(accepted)] = accepted
            filled += len(accepted)
        return values

    def accepted(self, words: Words, entropy: Entropy) -> Integers:
        """The samples that survive among the candidates spelled by ``words``, in order; three words each."""
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
        """What three words spell, decided in exact arithmetic: a sample, or None for a rejected candidate."""
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
    """P(X = x) proportional to exp(-x^2 / (2 s^2)) with s = ``stddev * width``; the number is taken exactly.

    The work of building the table grows with ``stddev`` and the rate of rejection with 1/``stddev``; 256 is a
    good value for large scales.
    """
    scale = _table_scale("stddev", stddev)
    return DiscreteLaw(Weights(Fraction(0), 1 / (2 * scale**2)), width)


def discrete_laplace(scale: int | float | Fraction, width: int = 1) -> DiscreteLaw:
    """P(X = x) proportional to exp(-|x| / s) with s = ``scale * width``; the number is taken exactly."""
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
    """Write the accepted candidates to ``values``; where floats cannot tell, leave a place and note it.

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
        if gap < _CLOSE:  # exp(-drop) >= 1 - drop settles nearly every candidate without the exponential
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
_try_candidates: _Kernel = numba.njit(cache=True, nogil=True)(_try_candidates_python)
