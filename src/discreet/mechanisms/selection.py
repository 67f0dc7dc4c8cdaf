"""The exponential mechanism on integer scores, sampled exactly.

Adding floating-point Gumbel noise to floating-point scores has no proof: rounding decides ties, and the tail of a
64-bit logarithm ends too early. Here scores are rounded down to a public grid. They become integers whose change
between neighbors is bounded, and an index is drawn with probability *exactly* proportional to exp(rate x score).
Floating point decides only comparisons that are not close; close ones read more bits of the same uniform number and
more digits of the weights. Proofs: docs/proofs/frank-wolfe.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Integers
from discreet.mechanisms.additive import LaplaceNoise
from discreet.mechanisms.recording import observed
from discreet.mechanisms.samplers.discrete import LazyUniform, exp_minus
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import BoundedRange, Event, Pure

_STEPS = 30  # the score range contains at least 2^30 steps of the grid
_LARGEST = 2.0**61  # scores are clamped to this many steps, so that differences fit 64 bits
_GUARD_BITS = 64
_UNIT_ROUNDOFF = 2.0**-53


class Selection(Protocol):
    """Interface of a mechanism that chooses among candidates."""

    @property
    def score_range(self) -> float: ...
    @property
    def grid(self) -> float: ...
    @property
    def largest_score(self) -> float: ...
    @property
    def scale(self) -> float: ...
    @property
    def event(self) -> Event: ...
    def select(self, scores: ArrayLike, entropy: Entropy) -> int: ...


@dataclass(frozen=True)
class ExponentialMechanism:
    """Choose one of ``size`` candidates with P(i) proportional to exp(score_i / scale).

    Equivalent to adding independent Gumbel noise of the given scale and taking the largest.

    Parameters
    ----------
    score_range : float
        Bound on max_i h_i - min_i h_i, where h is the difference of the score vectors of two neighbors, computed in
        float64 as passed to ``select``. For scores that each move by at most D it is 2 D, or D if all move the same
        way.
    epsilon : float
        Length of the interval that contains the log-likelihood ratio of neighbors.
    size : int
        Public number of candidates.

    Attributes
    ----------
    grid : float
        Power of two; scores are rounded down to multiples of it.
    scale : float
        Scale of the equivalent Gumbel noise: ``score_range / epsilon``, plus a billionth for rounding.

    Privacy
    -------
    Event: ``BoundedRange(epsilon)``, exactly: epsilon-DP, and (epsilon^2 / 8)-zCDP, for finite scores of at most
    ``largest_score`` in absolute value and within the range. Other scores count as 0 or are clamped without an error,
    because an error would reveal something about the data.

    Examples
    --------
    >>> mechanism = ExponentialMechanism(score_range=2.0, epsilon=0.5, size=3)
    >>> mechanism.event, round(mechanism.scale, 6)
    (BoundedRange(epsilon=0.5), 4.0)
    >>> mechanism.probabilities([0.0, 0.0, 4.0]).round(3)
    array([0.212, 0.212, 0.576])
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> mechanism.select([0.0, 0.0, 1e6], fresh_entropy())
    2
    """

    score_range: float
    epsilon: float
    size: int

    def __post_init__(self) -> None:
        for name, value in (("score_range", self.score_range), ("epsilon", self.epsilon)):
            if isinstance(value, bool) or not 2.0**-900 <= value <= 2.0**900:
                raise ValueError(f"{name} must be a number between 2**-900 and 2**900, got {value!r}")
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size < 2**40:
            raise ValueError(f"size must be a whole number from 1 to 2**40, got {self.size!r}")

    @property
    def grid(self) -> float:
        """The step of the scores."""
        return math.ldexp(1.0, math.frexp(self.score_range)[1] - 1 - _STEPS)

    @property
    def largest_score(self) -> float:
        """Scores are clamped to this absolute value, more than a billion times the range."""
        return _LARGEST * self.grid

    @property
    def integer_range(self) -> int:
        """Bound on how much more one rounded score can move than another: the range in steps, plus one per rounding.

        floor(a) - floor(b) lies strictly within 1 of a - b, so the spread of the differences grows by less than 2.
        """
        return math.floor(Fraction(self.score_range) / Fraction(self.grid)) + 2

    @cached_property
    def rate(self) -> Fraction:
        """The exponent per step of score."""
        return Fraction(self.epsilon) / self.integer_range

    @property
    def scale(self) -> float:
        """Scale of the equivalent Gumbel noise, in units of the scores."""
        return self.integer_range * self.grid / self.epsilon

    @property
    def event(self) -> Event:
        """The event of one call of ``select``."""
        return BoundedRange(self.epsilon)

    def steps(self, scores: ArrayLike) -> Integers:
        """Return the scores in integer steps of the grid, rounded down."""
        return _in_steps(scores, self.size, self.grid)

    def probabilities(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the distribution of ``select`` in float64, for tests and inspection."""
        weights = np.exp(-self._drops(self.steps(scores)))
        return np.asarray(weights / weights.sum())

    def _drops(self, steps: Integers) -> NDArray[np.float64]:
        """Return -log of every weight relative to the largest."""
        return np.asarray(float(self.rate) * (steps.max() - steps).astype(np.float64))

    def select(self, scores: ArrayLike, entropy: Entropy) -> int:
        """Return the index of the chosen candidate."""
        index = self._index(self.steps(scores), entropy)
        return observed(
            self,
            entropy,
            index,
            scale=self.scale,
            value=scores,
            score_range=self.score_range,
            event=self.event,
            exact_tries=True,
            additive=False,
        )

    def _index(self, steps: Integers, entropy: Entropy) -> int:
        """Compare a uniform number U with the cumulative weights.

        The float64 sums are within a known margin of the true ones. A comparison closer than the margin is decided in
        exact arithmetic on the same U.
        """
        drops = self._drops(steps)
        with np.errstate(under="ignore"):
            weights = np.exp(-drops)
            sums, additions = _prefix_sums(weights)
            total = float(sums[-1])
            # A weight w = exp(-x) is off by at most w (4 x + 10) units of roundoff.
            margin = 4 * _UNIT_ROUNDOFF * (4 * float(weights @ drops) + (additions + 16) * total)
        word = int(entropy.words(1)[0])
        target = (word >> 11) * _UNIT_ROUNDOFF * total
        index = min(int(np.searchsorted(sums, target, side="right")), self.size - 1)
        above = index == 0 or target - sums[index - 1] > margin
        below = index == self.size - 1 or sums[index] - target > margin
        return index if above and below else self._select_exactly(steps, word, entropy)

    def _select_exactly(self, steps: Integers, word: int, entropy: Entropy) -> int:
        """Decide in exact arithmetic: return the first index whose cumulative probability is above U."""
        values, inverse = np.unique(steps.max() - steps, return_inverse=True)
        sums_at: dict[int, NDArray[np.object_]] = {}

        def cumulative(bits: int) -> NDArray[np.object_]:
            """Return sums of weights in units of 2^-bits, each weight within one unit."""
            if bits not in sums_at:
                weights = np.array(
                    [exp_minus(self.rate * int(value), bits) for value in values], dtype=object
                )
                sums_at[bits] = np.cumsum(weights[inverse])
            return sums_at[bits]

        uniform = LazyUniform(word, entropy)

        def is_below(index: int) -> bool:
            """Whether U is below the cumulative probability of ``index``."""

            def bracket(bits: int) -> tuple[int, int]:
                sums = cumulative(bits + _GUARD_BITS)
                part, total, error = int(sums[index]), int(sums[-1]), self.size
                low = (max(0, part - error) << bits) // (total + error)
                high = ((part + error) << bits) // (total - error) + 1
                return low, high

            return uniform.is_below(bracket)

        first, last = 0, self.size - 1  # the last index is above every U
        while first < last:
            middle = (first + last) // 2
            if is_below(middle):
                last = middle
            else:
                first = middle + 1
        return first


def _in_steps(scores: ArrayLike, size: int, grid: float) -> Integers:
    """Return ``size`` scores in integer steps of a grid, rounded down; defined for all float64, so none can raise."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (size,):
        raise ValueError(f"this mechanism compares {size} scores, got an array of shape {array.shape}")
    with np.errstate(all="ignore"):
        steps = np.where(np.isfinite(array), array, 0.0) / grid
        return np.floor(np.clip(steps, -_LARGEST, _LARGEST)).astype(np.int64)


def _prefix_sums(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return all prefix sums, and the most additions that any weight passes: about 2 sqrt(size), not size."""
    size = len(weights)
    width = math.isqrt(size - 1) + 1
    table = np.zeros((-(-size // width), width))
    table.ravel()[:size] = weights
    inside = np.cumsum(table, axis=1)
    before = np.concatenate([[0.0], np.cumsum(inside[:-1, -1])])
    return (before[:, None] + inside).ravel()[:size], 2 * width + 2


@dataclass(frozen=True)
class LaplaceNoisyMax:
    """Choose the largest of ``size`` scores after adding Laplace noise to each, as in the papers.

    Parameters as for :class:`ExponentialMechanism`. It is epsilon-DP but has no bounded range, so compositions cost up
    to four times as much. Kept for comparison.

    Privacy
    -------
    Event: ``Pure(epsilon)``, exactly: noise and scores are integers (docs/proofs/frank-wolfe.md, section 6).

    Examples
    --------
    >>> LaplaceNoisyMax(2.0, 0.5, 3).event
    Pure(epsilon=0.5)
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> LaplaceNoisyMax(2.0, 0.5, 3).select([0.0, 1e6, 0.0], fresh_entropy())
    1
    """

    score_range: float
    epsilon: float
    size: int

    def __post_init__(self) -> None:
        ExponentialMechanism(self.score_range, self.epsilon, self.size)  # checks the parameters
        if not self.epsilon >= 2.0**-18:
            raise ValueError(
                f"epsilon must be at least 2**-18, got {self.epsilon!r}; choose fewer iterations"
            )

    @cached_property
    def noise(self) -> LaplaceNoise:
        """Laplace noise of scale range / epsilon, increased for two roundings of a score to the grid."""
        return LaplaceNoise(self.score_range / self.epsilon * (1 + 2.0**-27 / self.epsilon))

    @property
    def grid(self) -> float:
        """The step of the scores and of the noise."""
        return self.noise.grid

    @property
    def largest_score(self) -> float:
        """Scores are clamped to this absolute value."""
        return _LARGEST * self.grid

    @property
    def scale(self) -> float:
        """Scale of the noise, in units of the scores."""
        return self.noise.effective_scale

    @property
    def event(self) -> Event:
        """The event of one call of ``select``."""
        return Pure(self.epsilon)

    def select(self, scores: ArrayLike, entropy: Entropy) -> int:
        """Return the index of the largest noisy score, the first if there are several."""
        steps = _in_steps(scores, self.size, self.grid)
        index = int(np.argmax(steps + self.noise.draw_integers(self.size, entropy)))
        return observed(
            self,
            entropy,
            index,
            scale=self.scale,
            value=scores,
            score_range=self.score_range,
            event=self.event,
            additive=False,
        )
