"""Standard Gaussian real numbers, exactly: as many digits as anybody asks for.

A number is x = +-(j + r) / 256. The cell j comes from the table of a discrete Gaussian, r is a uniform real number of
[0, 1) of which only the first digits are drawn, and a coin accepts the pair with the probability that is still
missing. Digits that a decision needed are kept, all others stay undrawn and uniform, so that the number has exactly
the density exp(-x^2 / 2) / sqrt(2 pi) (docs/proofs/gamma-noise.md, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms._tables import (
    LazyUniform,
    Weights,
    cumulative_table,
    exact_index,
    exp_minus,
)
from discreet.mechanisms.discrete import Integers
from discreet.mechanisms.entropy import Entropy, Words

Array = NDArray[np.float64]

CELL_BITS = 8  # cells of width 2^-8
WORDS_PER_CANDIDATE = 3
FRACTION_BITS = 63  # the digits of r that come with a candidate; the 64th bit is the sign
_WEIGHTS = Weights(Fraction(0), Fraction(1, 2 ** (2 * CELL_BITS + 1)))
_QUADRATIC = float(_WEIGHTS.quadratic)
_CLOSE = 2.0**-48  # well above the error of the float64 test, which is below 2^-49
_GUARD_BITS = 192


class LazyFraction:
    """A uniform number of [0, 1) of which only the first digits have been drawn."""

    def __init__(self, digits: int, entropy: Entropy) -> None:
        self._digits, self._bits, self._entropy = digits, FRACTION_BITS, entropy

    def floor(self, bits: int) -> int:
        """The first ``bits`` binary digits, as a whole number; draws the missing ones."""
        while self._bits < bits:
            self._digits = self._digits << 64 | int(self._entropy.words(1)[0])
            self._bits += 64
        return self._digits >> (self._bits - bits)


@dataclass(eq=False)
class Normals:
    """A sequence of independent standard Gaussian numbers, known to as many digits as needed.

    Attributes
    ----------
    cells, digits, negative : cell j, first 63 digits of r, sign; one entry per number.
    refined : the numbers of which more digits are known.
    """

    cells: Integers
    digits: Words
    negative: NDArray[np.bool_]
    refined: dict[int, LazyFraction]
    entropy: Entropy

    def __len__(self) -> int:
        return len(self.cells)

    def magnitudes(self) -> Array:
        """|x| in float64; off by at most 2^-53 |x| + 2^-61."""
        fractions = self.digits.astype(np.float64) * 2.0**-FRACTION_BITS
        return (self.cells + fractions) * 2.0**-CELL_BITS

    def floor(self, index: int, bits: int) -> int:
        """|x| of one number in whole units of 2^-(bits + 8), rounded down."""
        if bits <= FRACTION_BITS:
            fraction = int(self.digits[index]) >> (FRACTION_BITS - bits)
        else:
            if index not in self.refined:
                self.refined[index] = LazyFraction(int(self.digits[index]), self.entropy)
            fraction = self.refined[index].floor(bits)
        return (int(self.cells[index]) << bits) + fraction


def draw_normals(count: int, entropy: Entropy) -> Normals:
    """``count`` independent numbers; the words used are a function of ``count`` but for events of tiny probability."""
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
    return np.searchsorted(cumulative_table(_WEIGHTS).thresholds, first).astype(np.int64)


def _accepted(words: Words, entropy: Entropy) -> tuple[Integers, dict[int, tuple[int, LazyFraction]]]:
    """Which candidates are accepted, in order; with cell and digits of those that took exact arithmetic."""
    first, second, third = words.T
    thresholds = cumulative_table(_WEIGHTS).thresholds
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
    """What three words spell, decided in exact arithmetic: cell and digits, or None for a rejected candidate."""
    first, second, third = (int(word) for word in words)
    cell = exact_index(_WEIGHTS, first, entropy)
    fraction = LazyFraction(second >> 1, entropy)

    def bracket(bits: int) -> tuple[int, int]:
        """Integers around 2^bits exp(-drop), from as many digits of r."""
        known, unit = fraction.floor(bits), 1 << bits
        least, most = (_WEIGHTS.drop(cell, Fraction(known + step, unit)) for step in (0, 1))
        low = exp_minus(most, bits + _GUARD_BITS) - 1 >> _GUARD_BITS
        return low, (exp_minus(least, bits + _GUARD_BITS) + 1 >> _GUARD_BITS) + 1

    return (cell, fraction) if LazyUniform(third, entropy).is_below(bracket) else None
