"""The exponential mechanism over scores +-G_1, ..., +-G_p that change a few at a time, without a full pass.

Drawing from 2p weights takes a pass, and so does certifying a running sum of floating-point weights. Here totals G_j
are integers, sorted into levels of doubling weight: level l holds the |G_j| from l 2^k to (l + 1) 2^k. A candidate of
level l is proposed with weight 2^(l+1), at least its own 2^(+-G_j / 2^k), and accepted with the ratio of the two.
Proposals are drawn with integers alone: nothing underflows or drifts, and a total that moves within its level costs
one addition. Proofs: docs/proofs/sparse-frank-wolfe.md, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Integers
from discreet.mechanisms.recording import observed
from discreet.mechanisms.samplers.discrete import LazyUniform, exp_minus
from discreet.mechanisms.samplers.entropy import Entropy, Words
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.privacy.events import BoundedRange, Event

MOST_LEVELS = 1 << 22
LARGEST_TOTAL = 1 << 61
_LN2 = Fraction(math.log(2)) + Fraction(1, 2**52)  # an upper bound
_WORDS = 3  # per proposal: level, place, coin
_PROPOSALS = 32
_SPAN = 54  # lighter levels, this many doublings below the heaviest, are resolved by extra bits, drawn when needed
_MOST_ROOM = 32  # bits of a place in a level
_FEW = 1 << 7  # bound on the total weight of all lighter levels, in units of 2^-_SPAN of the heaviest
_CLOSE = 2.0**-48  # well above the error of a float64 coin
_GUARD_BITS = 96
_REJECTED, _CLOSE_COIN, _LIGHT_LEVEL = -1, -2, -3


def largest_range(epsilon: float, shift: int) -> int:
    """Return the largest range of integer scores that ``shift`` makes private at ``epsilon``.

    >>> largest_range(math.log(2), 10)
    1023
    """
    return int(Fraction(epsilon) * 2**shift // _LN2)


class LeveledTotals:
    """Integer totals G_1, ..., G_p sorted into levels of |G_j|, for ``LeveledSelection.select``.

    ``order`` lists the indices level by level, ``place`` is its inverse, and level l is
    order[starts[l] : starts[l + 1]]. The compiled ``add_at`` changes one total.

    >>> totals = LeveledTotals(np.array([5, -9, 0]), shift=2, largest=20)
    >>> totals.starts[:4], totals.order
    (array([0, 1, 2, 3]), array([2, 0, 1], dtype=int32))
    """

    def __init__(self, values: Integers, shift: int, largest: int) -> None:
        n_levels = (largest >> shift) + 1
        if largest > LARGEST_TOTAL or n_levels > MOST_LEVELS:
            raise ValueError(f"totals up to {largest} in levels of 2**{shift} are too many levels")
        self.values, self.shift = values, shift
        self.order = np.empty(len(values), dtype=np.int32)
        self.place = np.empty(len(values), dtype=np.int32)
        self.starts = np.zeros(n_levels + 1, dtype=np.int64)
        _sort(values, shift, self.order, self.place, self.starts)


@dataclass(frozen=True)
class LeveledSelection:
    """Choose one of 2p candidates, larger scores more likely: j with score -G_j, p + j with score G_j.

    P(candidate) is proportional to 2^(score / 2^shift), exactly.

    Parameters
    ----------
    step_range : int
        Bound on max_i h_i - min_i h_i, where h is the change of the 2p integer scores between neighbors.
    epsilon : float
        Length of the interval that contains the log-likelihood ratio of neighbors.
    size : int
        p, public.
    unit : float
        Score of one step of a total, for ``scale`` and ``score_range``.

    Privacy
    -------
    Event: ``BoundedRange(epsilon)``, exactly, for totals below 2^61. The time and the number of random words of a
    selection depend on the totals.

    Examples
    --------
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> mechanism = LeveledSelection(step_range=20, epsilon=0.5, size=3)
    >>> mechanism.shift, mechanism.event
    (5, BoundedRange(epsilon=0.5))
    >>> mechanism.select(LeveledTotals(np.array([0, -10_000, 0]), 5, 10_000), fresh_entropy())
    1
    """

    step_range: int
    epsilon: float
    size: int
    unit: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or not 2.0**-60 <= self.epsilon <= 2.0**60:
            raise ValueError(f"epsilon must be a number between 2**-60 and 2**60, got {self.epsilon!r}")
        if isinstance(self.step_range, bool) or self.step_range < 1:
            raise ValueError(f"step_range must be a whole number of at least 1, got {self.step_range!r}")
        if isinstance(self.size, bool) or not 1 <= self.size < 2**31:
            raise ValueError(f"size must be a whole number from 1 to 2**31, got {self.size!r}")
        if not self.shift <= 61:
            raise ValueError(
                f"a range of {self.step_range} steps is too fine for epsilon {self.epsilon:g}; take larger steps"
            )

    @cached_property
    def shift(self) -> int:
        """The least k at which scores that differ by the range differ in weight by at most e^epsilon."""
        k = 0
        while largest_range(self.epsilon, k) < self.step_range:
            k += 1
        return k

    @property
    def score_range(self) -> float:
        """The range in units of the scores."""
        return self.step_range * self.unit

    @property
    def scale(self) -> float:
        """Scale of the equivalent Gumbel noise, in units of the scores."""
        return math.ldexp(self.unit, self.shift) / math.log(2)

    @property
    def event(self) -> Event:
        """The event of one call of ``select``."""
        return BoundedRange(self.epsilon)

    def select(self, totals: LeveledTotals, entropy: Entropy) -> int:
        """Return the index of the chosen candidate."""
        if totals.shift != self.shift or len(totals.values) != self.size:
            raise ValueError(
                f"this mechanism chooses among {self.size} totals in levels of 2**{self.shift}, got "
                f"{len(totals.values)} in levels of 2**{totals.shift}"
            )
        return observed(
            self,
            entropy,
            self._index(totals, entropy),
            scale=self.scale,
            value=_Scores(totals.values, self.unit),
            score_range=self.score_range,
            event=self.event,
            exact_tries=True,
            additive=False,
        )

    def _index(self, totals: LeveledTotals, entropy: Entropy) -> int:
        """Propose until a proposal is accepted."""
        levels, edges, heaviest, n_light = _heavy_levels(totals.starts)
        parts = totals.values, totals.order, totals.starts, totals.shift
        while True:
            words = entropy.words(_WORDS * _PROPOSALS)
            begin = 0
            while begin < len(words):
                found, at = _first_kept(words, begin, levels, edges, n_light > 0, *parts)
                if found == _REJECTED:
                    break
                if found < 0:
                    proposal = words[at : at + _WORDS]
                    found = _decide_exactly(totals, proposal, levels, edges, heaviest, n_light, entropy)
                if found >= 0:
                    return int(found)
                begin = at + _WORDS


class _Scores:
    """The 2p scores of totals, computed only if a recorder asks for them."""

    def __init__(self, totals: Integers, unit: float) -> None:
        self._totals, self._unit = totals, unit

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[np.float64]:
        scaled = self._totals * self._unit
        return np.concatenate([-scaled, scaled])


@compiled()
def _sort(values: Integers, shift: int, order: Any, place: Any, starts: Integers) -> None:
    """Sort by level (counting sort)."""
    for value in values:
        starts[(abs(value) >> shift) + 1] += 1
    for level in range(1, len(starts)):
        starts[level] += starts[level - 1]
    following = starts.copy()
    for index in range(len(values)):
        level = abs(values[index]) >> shift
        place[index] = following[level]
        order[following[level]] = index
        following[level] += 1


@compiled()
def add_at(
    index: int, change: int, values: Integers, shift: int, order: Any, place: Any, starts: Integers
) -> None:
    """Add ``change`` to G_index; the index crosses levels by swapping with the one at the border."""
    old = values[index]
    new = old + change
    values[index] = new
    level, wanted = abs(old) >> shift, abs(new) >> shift
    while level != wanted:
        if level < wanted:
            level += 1
            starts[level] -= 1
            border = starts[level]
        else:
            border = starts[level]
            starts[level] += 1
            level -= 1
        here, other = place[index], order[border]
        order[here], order[border] = other, index
        place[other], place[index] = here, border


@compiled()
def _room(count: int) -> int:
    """Return the bits of a place among the 2 count candidates of a level: 2^bits >= 2 count."""
    bits = 1
    while (1 << bits) < 2 * count:
        bits += 1
    return bits


@compiled()
def _heavy_levels(starts: Integers) -> tuple[Integers, Integers, int, int]:
    """Return levels within 2^-54 of the heaviest, and their cumulative weights in units of 2^(heaviest - 54).

    Level l weighs 2^(l + room). Also returns the exponent of the heaviest, and the number of other levels.
    """
    size = starts[-1]
    top = np.searchsorted(starts, size) - 1
    heaviest = 0
    for level in range(top, -1, -1):
        count = starts[level + 1] - starts[level]
        if count > 0:
            heaviest = max(heaviest, level + _room(count))
        if level + _MOST_ROOM < heaviest:
            break
    levels = np.empty(min(top + 1, _SPAN + 64), dtype=np.int64)
    edges = np.empty(len(levels), dtype=np.int64)
    n_heavy, n_light, total = 0, 0, 0
    for level in range(top, -1, -1):
        if starts[level + 1] == 0:
            break
        count = starts[level + 1] - starts[level]
        if count > 0:
            exponent = level + _room(count) - heaviest + _SPAN
            if exponent >= 0:
                total += 1 << exponent
                levels[n_heavy], edges[n_heavy] = level, total
                n_heavy += 1
            else:
                n_light += 1
        if level + _MOST_ROOM - heaviest + _SPAN < 0:
            n_light += 1  # all following levels are light
            break
    return levels[:n_heavy], edges[:n_heavy], heaviest, n_light


@compiled()
def _first_kept(
    words: Words,
    begin: int,
    levels: Integers,
    edges: Integers,
    light: bool,
    values: Integers,
    order: Any,
    starts: Integers,
    shift: int,
) -> tuple[int, int]:
    """Return the first proposal from ``begin`` on that is accepted or needs exact arithmetic, and its first word."""
    total = edges[-1]
    reach = total + (_FEW if light else 0)
    bits = 1
    while (1 << bits) < reach:
        bits += 1
    step = math.ldexp(1.0, -shift)
    for at in range(begin, len(words), _WORDS):
        target = np.int64(words[at] >> np.uint64(64 - bits))
        if target >= total:
            if target < reach:
                return _LIGHT_LEVEL, at
            continue
        k = 0
        while target >= edges[k]:
            k += 1
        level = levels[k]
        index, drop = _proposed(words[at + 1], level, values, order, starts, shift)
        if index < 0:
            continue
        chance = math.exp(-0.6931471805599453 * (drop * step))
        uniform = (words[at + 2] >> np.uint64(11)) * 2.0**-53
        if abs(uniform - chance) < _CLOSE:
            return _CLOSE_COIN, at
        if uniform < chance:
            return index, at
    return _REJECTED, 0


@compiled()
def _proposed(
    word: int, level: int, values: Integers, order: Any, starts: Integers, shift: int
) -> tuple[int, int]:
    """Return the candidate at a uniform place of a level (-1 if empty), and 2^shift log2(proposed / own weight)."""
    count = starts[level + 1] - starts[level]
    slot = np.int64(np.uint64(word) >> np.uint64(64 - _room(count)))
    if slot >= 2 * count:
        return -1, 0
    feature = np.int64(order[starts[level] + (slot >> 1)])
    value = values[feature]
    score = -abs(value) if slot & 1 else abs(value)
    plus = slot & 1 == 1 if value == 0 else score == -value
    return int(feature if plus else feature + starts[-1]), int(((level + 1) << shift) - score)


def _decide_exactly(
    totals: LeveledTotals,
    words: Words,
    levels: Integers,
    edges: Integers,
    heaviest: int,
    n_light: int,
    entropy: Entropy,
) -> int:
    """Decide three words in exact arithmetic: return a candidate, or -1 if it is rejected."""
    total = int(edges[-1])
    bits = max(1, (total + (_FEW if n_light else 0) - 1).bit_length())
    target = int(words[0]) >> (64 - bits)
    level = int(levels[int(np.searchsorted(edges, target, side="right"))]) if target < total else -1
    if level < 0:
        level = _light_level(totals.starts, target - total, heaviest, entropy)
        if level < 0:
            return -1
    index, drop = _proposed(words[1], level, totals.values, totals.order, totals.starts, totals.shift)
    if index < 0 or not power_coin(Fraction(int(drop), 1 << totals.shift), int(words[2]), entropy):
        return -1
    return int(index)


def _light_level(starts: Integers, target: int, heaviest: int, entropy: Entropy) -> int:
    """Return the light level at a target in units of 2^(heaviest - 54), drawing the bits below; -1 if none."""
    counts = np.diff(starts)
    light = [
        (level, exponent)
        for level in map(int, np.flatnonzero(counts))
        if (exponent := level + _room(int(counts[level]))) < heaviest - _SPAN
    ]
    if not light:
        return -1
    lowest = min(exponent for _, exponent in light)
    missing = heaviest - _SPAN - lowest
    n_words = -(-missing // 64)
    for word in entropy.words(n_words):
        target = target << 64 | int(word)
    target >>= 64 * n_words - missing
    edge = 0
    for level, exponent in light:
        edge += 1 << (exponent - lowest)
        if target < edge:
            return level
    return -1


def power_coin(exponent: Fraction, word: int, entropy: Entropy) -> bool:
    """Whether a uniform number starting with ``word`` is below 2^-exponent, for an exponent of at least 0."""
    if exponent == 0:
        return True

    def bracket(bits: int) -> tuple[int, int]:
        fine = bits + _GUARD_BITS
        ln2 = Fraction(Context(prec=fine * 302 // 1000 + 12).ln(Decimal(2)))  # correctly rounded
        value = exp_minus(exponent * ln2, fine)
        return value - 2 >> _GUARD_BITS, (value + 2 >> _GUARD_BITS) + 1

    return LazyUniform(word, entropy).is_below(bracket)
