"""Exact arithmetic behind the table sampler: weights, cumulative thresholds, lazily drawn uniform numbers.

Everything is done in integers that stand for multiples of 2^-bits, with proved error bounds
(docs/proofs/discrete-noise.md, section 1). A comparison that the bits at hand cannot decide reads more bits;
it never guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.entropy import Entropy

GUIDE_BITS = 12
_GUARD_BITS = 192


@dataclass(frozen=True)
class Weights:
    """The sequence w_j = exp(-linear j - quadratic j^2), j = 0, 1, 2, ..., not both coefficients zero."""

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
    """First 64 bits of the cumulative distribution of an index, with a guide to where a search should start.

    ``thresholds[j]`` is floor(2^64 P(J <= j)); the last entry is 2^64 - 1. ``guide[b]`` is the first j whose
    threshold is at least b 2^(64 - GUIDE_BITS).
    """

    thresholds: NDArray[np.uint64]
    guide: NDArray[np.int64]


def exp_minus(exponent: Fraction, bits: int) -> int:
    """2^bits exp(-exponent), to within one unit.

    The decimal module's exponential is correctly rounded, and an error of the quotient is damped by
    x exp(-x) < 1, so ten digits beyond 2^-bits are plenty.
    """
    context = Context(prec=bits * 302 // 1000 + 12, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
    quotient = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
    return int(context.multiply(context.exp(quotient), Decimal(1 << bits)))


@lru_cache(maxsize=16)
def partial_sums(weights: Weights, bits: int) -> tuple[list[int], int]:
    """Sums w_0 + ... + w_j in units of 2^-bits, and a bound on their errors in the same units.

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
    """The 64-bit table of an index J with P(J = j) proportional to w_j."""
    bits = 256
    thresholds = _thresholds(weights, bits)
    while thresholds is None:  # a probability too close to a multiple of 2^-64 to be floored: look closer
        bits *= 2
        thresholds = _thresholds(weights, bits)
    starts = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - GUIDE_BITS)
    guide = np.searchsorted(thresholds, starts).astype(np.int64)
    for part in (thresholds, guide):
        part.setflags(write=False)
    return Table(thresholds, guide)


def _thresholds(weights: Weights, bits: int) -> NDArray[np.uint64] | None:
    """floor(2^64 P(J <= j)) up to the first 2^64 - 1, or None if ``bits`` do not suffice to floor them."""
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
    """A uniform number of [0, 1) of which only the first bits have been drawn, starting with a given word."""

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
    """The index picked by a uniform number beginning with ``word``: the first j with P(J <= j) above it."""
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
    """Whether a uniform number that begins with ``word`` is below exp(-exponent)."""
    if exponent == 0:
        return True

    def bracket(bits: int) -> tuple[int, int]:
        value = exp_minus(exponent, bits + _GUARD_BITS)
        return value - 1 >> _GUARD_BITS, (value + 1 >> _GUARD_BITS) + 1

    return LazyUniform(word, entropy).is_below(bracket)
