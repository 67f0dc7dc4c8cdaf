"""Estimates from noisy counts and sums, with intervals that stay valid although noise decides whether they are given.

Each metric is a ratio. For every possible value theta, a statistic T(theta) has mean 0 if theta is the truth and a
known variance; the interval collects the values whose statistic is not too large. It is given only if the denominator
rises above its noise, and T(theta) is compared with its distribution under that condition (docs/proofs/evaluation.md,
section 2). Otherwise the answer is "unknown": the whole range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from discreet._typing import Array

#: For each theta: the statistic, its variance, and its covariances with the totals that must rise above their noise.
Pivot = Callable[[Array], tuple[Array, Array, tuple[Array, ...]]]

CLEAR = 3.0  # standard deviations of noise that a denominator must exceed
AREA = 1.5  # the same for AUC, in standard deviations of its numerator at 1/2 per record of the other class
_POINTS, _ROUNDS = (
    64,
    6,
)  # of the search for the ends; each round divides the uncertainty by the number of points


@dataclass(frozen=True)
class Estimate:
    """A released number with an interval for its value in the population of the held-out records.

    value : the estimate; NaN if unknown.
    lower, upper : ends of the interval; the ends of the possible range if unknown.
    noise : the part of the standard error due to privacy noise.
    """

    value: float
    lower: float
    upper: float
    noise: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{self.value:.4f}  [{self.lower:.4f}, {self.upper:.4f}]  noise {self.noise:.4f}"


@dataclass(frozen=True)
class Noise:
    """The noise of one cell, and the confidence of intervals.

    gaussian : False for Laplace noise, whose tails are heavier than normal; a value is then rejected only if both
        distributions reject it.
    rows : maximum number of rows per person. They may be similar: sampling varies at most this many times as much as
        with independent rows.
    """

    variance: float
    confidence: float
    gaussian: bool = True
    rows: int = 1

    def times(self, cells: float) -> Noise:
        """Return the noise of a sum of several cells."""
        return replace(self, variance=self.variance * cells)

    @property
    def stddev(self) -> float:
        """Standard deviation of one cell."""
        return math.sqrt(self.variance)

    def accepts(self, x: Array, low: Array, high: Array) -> NDArray[np.bool_]:
        """Whether a standard variate known to lie in [low, high] may be x.

        Each tail is compared under the condition that makes it heavier: P(X >= x | X >= low) and P(X <= x | X <= high)
        must both be at least (1 - confidence) / 2. The other condition only makes such an x less likely.
        """
        tail = math.log((1 - self.confidence) / 2)
        found = np.zeros(x.shape, dtype=bool)
        for law in (log_ndtr,) if self.gaussian else (log_ndtr, _log_laplace):
            found |= (law(x) - law(high) >= tail) & (law(-x) - law(-low) >= tail)
        return found


def _log_laplace(x: Array) -> Array:
    """Return the log of the distribution function of the Laplace distribution with variance 1."""
    far = math.sqrt(2) * np.abs(x)
    return np.asarray(np.where(x < 0, -far - math.log(2), np.log1p(-np.exp(-far) / 2)))


def interval(
    pivot: Pivot, clear: tuple[float, ...], value: float, least: float, most: float, noise: Noise
) -> tuple[float, float]:
    """Return the smallest interval that contains all accepted values in [least, most] and the estimate itself.

    clear : how far each conditioning total exceeds its threshold.
    """

    def accepted(theta: Array) -> NDArray[np.bool_]:
        statistic, variance, covariances = pivot(theta)
        scale = np.sqrt(variance)
        x = statistic / scale
        low, high = np.full(x.shape, -np.inf), np.full(x.shape, np.inf)
        for covariance, excess in zip(covariances, clear, strict=True):
            # All that is uncorrelated with the statistic is fixed: the total exceeds its threshold on this side only.
            edge = excess * scale / np.abs(covariance)
            low = np.where(covariance > 0, np.maximum(low, x - edge), low)
            high = np.where(covariance < 0, np.minimum(high, x + edge), high)
        return np.asarray((theta == value) | noise.accepts(x, low, high))

    with np.errstate(all="ignore"):
        return _end(accepted, value, least), _end(accepted, value, most)


def _end(accepted: Callable[[Array], NDArray[np.bool_]], inner: float, outer: float) -> float:
    """Return the accepted value farthest from ``inner``, which is accepted, in the direction of ``outer``."""
    for _ in range(_ROUNDS):
        points = np.linspace(outer, inner, _POINTS)
        first = int(np.argmax(accepted(points)))
        if first == 0:
            return outer
        outer, inner = float(points[first - 1]), float(points[first])
    return outer


UNKNOWN = Estimate(math.nan, 0.0, 1.0, math.inf)


def proportion(hits: Array, misses: Array, noise: Noise) -> Estimate:
    """Estimate hits / (hits + misses), each a set of noisy cells.

    T(p) = N - p D for N hits among D, with variance D p (1 - p) + s^2 (a (1 - p)^2 + b p^2) for a noisy cells of hits
    and b of misses. Without noise this is Wilson's interval.

    >>> clean = Noise(0.0, 0.95)
    >>> proportion(np.array([90.0]), np.array([10.0]), clean)
    Estimate(value=0.9, lower=0.825..., upper=0.944..., noise=0.0)
    """
    n, d = float(hits.sum()), float(hits.sum() + misses.sum())
    a, b, s = hits.size, misses.size, noise.variance
    clear = d - CLEAR * math.sqrt(s * (a + b))
    if d <= 0 or clear <= 0:
        return UNKNOWN

    def pivot(p: Array) -> tuple[Array, Array, tuple[Array, ...]]:
        variance = noise.rows * d * p * (1 - p) + s * (a * (1 - p) ** 2 + b * p**2)
        return n - p * d, variance, (s * (a * (1 - p) - b * p),)

    value = min(1.0, max(0.0, n / d))
    spread = math.sqrt(s * (a * (1 - value) ** 2 + b * value**2)) / d
    return Estimate(value, *interval(pivot, (clear,), value, 0.0, 1.0, noise), spread)


@dataclass(frozen=True, eq=False)
class Scores:
    """Noisy counts of true class (negative, positive) by bin of the score, reconciled with other counts of the classes.

    Attributes
    ----------
    counts : one row per class.
    noise : noise of one cell before reconciliation.
    shared : number of noisy cells that count each class, in both tables; None without a second table.

    If a second table counts the same records, the difference of the two totals of a class is spread over all cells that
    count it: weighted least squares. The bins then have covariance s^2 (I - J / shared), J all ones.
    """

    counts: Array
    noise: Noise
    shared: int | None = None

    @staticmethod
    def agreed(counts: Array, others: Array, noise: Noise) -> Scores:
        """Reconcile the bins with another table of the same records, one row per class in both."""
        shared = counts.shape[1] + others.shape[1]
        surplus = (counts.sum(axis=1) - others.sum(axis=1)) / shared
        return Scores(counts - surplus[:, None], noise, shared)

    def variance(self, weights: Array) -> Array:
        """Return the noise variance of sum weights * counts over one class, the last axis of the weights."""
        return np.asarray(self.noise.variance * (np.square(weights).sum(axis=-1) - self._pooled(weights)))

    def covariance(self, weights: Array) -> Array:
        """Return the noise covariance of sum weights * counts and sum counts, over one class."""
        left = 1.0 if self.shared is None else 1 - self.counts.shape[1] / self.shared
        return np.asarray(self.noise.variance * left * weights.sum(axis=-1))

    def clear(self, totals: float, classes: int = 1) -> float:
        """Return how far the count of one or both classes exceeds its threshold."""
        return totals - CLEAR * math.sqrt(classes * float(self.covariance(np.ones(self.counts.shape[1]))))

    def _pooled(self, weights: Array) -> Array | float:
        return 0.0 if self.shared is None else np.square(weights.sum(axis=-1)) / self.shared

    def mean(self, weights: Array, rest: float, reach: float) -> Estimate:
        """Estimate (sum weights * counts + rest) / sum counts, in [-1, 1], for numbers known to within ``reach``.

        rest : noisy sum of the differences from the weights. Their size is public, their spread is not: the standard
            deviation of the number is at most that of the weights plus ``reach``.

        >>> Scores(np.array([[60.0], [40.0]]), Noise(0.0, 0.95)).mean(np.array([[0.5], [-0.5]]), -10.0, 0.5).value
        0.0
        """
        total, counts = float(self.counts.sum()), self.counts
        clear = self.clear(total, classes=2)
        if total <= 0 or clear <= 0:
            return Estimate(math.nan, -1.0, 1.0, math.inf)
        weighted = float((weights * counts).sum()) + rest
        value = min(1.0, max(-1.0, weighted / total))

        def noise(centered: Array) -> Array:
            return np.asarray(self.variance(centered).sum(axis=-1) + self.noise.variance)

        def pivot(theta: Array) -> tuple[Array, Array, tuple[Array, ...]]:
            centered = weights - theta[:, None, None]
            squares = np.maximum((np.square(centered) * counts).sum(axis=(-2, -1)), 0.0)
            sampling = np.square(np.sqrt(squares) + reach * math.sqrt(total))
            return (
                weighted - theta * total,
                self.noise.rows * sampling + noise(centered),
                (self.covariance(centered).sum(axis=-1),),
            )

        ends = interval(pivot, (clear,), value, -1.0, 1.0, self.noise)
        return Estimate(value, *ends, math.sqrt(float(noise(weights - value))) / total)

    def area_under_curve(self) -> Estimate:
        """Estimate the probability that a positive record scores above a negative one, ties counted half.

        T(A) = sum over pairs of bins of P_b N_c (K_bc - A), K_bc = 1 where b > c, 1/2 where they are equal.

        >>> counts = np.array([[50.0, 50.0, 0.0], [0.0, 30.0, 70.0]])
        >>> Scores(counts, Noise(0.0, 0.95)).area_under_curve().value
        0.925
        """
        negatives, positives = self.counts
        n, p = float(negatives.sum()), float(positives.sum())
        # Noise in the bins must not be able to hide every area: with B bins it is at most s sqrt(B) / (2 p) at 1/2.
        least = AREA * math.sqrt(self.noise.variance * len(positives)) / 2
        clear = (min(self.clear(p), p - least), min(self.clear(n), n - least))
        if min(p, n) <= 1 or min(clear) <= 0:
            return UNKNOWN
        below = np.cumsum(negatives) - negatives / 2
        above = p - np.cumsum(positives) + positives / 2
        won = float(positives @ below)
        value = min(1.0, max(0.0, won / (p * n)))

        def slopes(area: Array) -> tuple[Array, Array]:
            return below - area[:, None] * n, above - area[:, None] * p

        def pivot(area: Array) -> tuple[Array, Array, tuple[Array, ...]]:
            by_positive, by_negative = slopes(area)
            parts = np.square(by_positive) @ positives, np.square(by_negative) @ negatives
            sampling = self.noise.rows * sum(np.maximum(part, 0.0) for part in parts)
            variance = self.variance(by_positive) + self.variance(by_negative)
            return (
                won - area * (p * n),
                variance + sampling,
                (self.covariance(by_positive), self.covariance(by_negative)),
            )

        ends = interval(pivot, clear, value, 0.0, 1.0, self.noise)
        noise = sum(float(self.variance(part)[0]) for part in slopes(np.array([value])))
        return Estimate(value, *ends, math.sqrt(noise) / (p * n))
