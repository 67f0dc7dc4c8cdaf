"""Metrics as functions of noisy counts, with intervals for noise and sampling together.

Every metric here is unchanged when all counts are multiplied by a number, so that its gradient g is orthogonal to the
counts c. Independent records then give it the sampling variance sum g^2 c, and noise of variance s^2 in every cell adds
sum g^2 s^2 (docs/proofs/evaluation.md, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A released number with an interval for its value in the population the held-out records came from.

    value : the estimate.
    lower, upper : ends of the interval.
    noise : the part of the standard error that is privacy noise.
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
    """Variance of the noise in one cell, and the normal quantile of intervals.

    Laplace noise has longer tails than a normal law of its variance: its own quantile is used where that is larger.
    """

    variance: float
    quantile: float

    @staticmethod
    def of(variance: float, confidence: float, gaussian: bool) -> Noise:
        """For two-sided intervals of the given confidence."""
        quantile = float(ndtri(0.5 + confidence / 2))
        if not gaussian:
            quantile = max(quantile, -math.log(1 - confidence) / math.sqrt(2))
        return Noise(variance, quantile)


UNKNOWN = Estimate(math.nan, 0.0, 1.0, math.inf)


def proportion(hits: Array, misses: Array, noise: Noise) -> Estimate:
    """hits / (hits + misses), each a set of noisy cells.

    The interval holds every p with (N - p D)^2 <= z^2 (D p (1 - p) + s^2 (a (1 - p)^2 + b p^2)): N hits of D in all,
    spread over a cells and b cells of misses. Without noise this is Wilson's interval; noise in the denominator is
    treated as by Fieller.

    >>> clean = Noise.of(0.0, 0.95, True)
    >>> proportion(np.array([90.0]), np.array([10.0]), clean)
    Estimate(value=0.9, lower=0.825..., upper=0.944..., noise=0.0)
    """
    n, d = float(hits.sum()), float(hits.sum() + misses.sum())
    a, b, s, z2 = hits.size, misses.size, noise.variance, noise.quantile**2
    square = d * d + z2 * max(d, 0.0) - z2 * s * (a + b)
    if d <= 0 or square <= 0:
        return UNKNOWN
    middle = 2 * n * d + z2 * d - 2 * a * z2 * s
    constant = n * n - z2 * s * a
    root = math.sqrt(max(0.0, middle * middle - 4 * square * constant))
    value = min(1.0, max(0.0, n / d))
    low, high = (middle - root) / (2 * square), (middle + root) / (2 * square)
    spread = math.sqrt(s * (a * (1 - value) ** 2 + b * value**2)) / d
    return Estimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)), spread)


def mean_of_cells(weights: Array, counts: Array, rest: float, reach: float, noise: Noise) -> Estimate:
    """(sum weights c + rest) / sum c: the mean of a number that a cell's weight gives to within ``reach``.

    rest : noisy sum of what the weights leave over. Its size is public, its spread is not: the standard deviation of
        the number is at most that of the weights plus ``reach``.

    >>> clean = Noise.of(0.0, 0.95, True)
    >>> mean_of_cells(np.array([0.5, -0.5]), np.array([60.0, 40.0]), -10.0, 0.5, clean).value
    0.0
    """
    total = float(counts.sum())
    if total <= 3 * math.sqrt(noise.variance * counts.size):
        return Estimate(math.nan, -math.inf, math.inf, math.inf)
    value = (float((weights * counts).sum()) + rest) / total
    gradient = (weights - value) / total
    from_noise = noise.variance * (_square(gradient) + 1 / total**2)
    sampling = math.sqrt(_sampling(gradient, counts)) + reach / math.sqrt(total)
    return _normal(value, from_noise, sampling**2, noise, -math.inf, math.inf)


def area_under_curve(positives: Array, negatives: Array, noise: Noise) -> Estimate:
    """Probability that a positive record scores above a negative one, ties counted half.

    >>> area_under_curve(np.array([0.0, 30.0, 70.0]), np.array([50.0, 50.0, 0.0]), Noise.of(0.0, 0.95, True)).value
    0.925
    """
    p, n = float(positives.sum()), float(negatives.sum())
    least = 3 * math.sqrt(noise.variance * positives.size)
    if p <= max(least, 1.0) or n <= max(least, 1.0):
        return UNKNOWN
    below = np.cumsum(negatives) - negatives / 2
    above = p - np.cumsum(positives) + positives / 2
    value = float(positives @ below) / (p * n)
    gradient = np.concatenate([below / (p * n) - value / p, above / (p * n) - value / n])
    counts = np.concatenate([positives, negatives])
    from_noise = noise.variance * _square(gradient)
    return _normal(min(1.0, max(0.0, value)), from_noise, _sampling(gradient, counts), noise, 0.0, 1.0)


def _square(gradient: Array) -> float:
    return float(np.square(gradient).sum())


def _sampling(gradient: Array, counts: Array) -> float:
    """Sampling variance of a metric with this gradient."""
    return float((np.square(gradient) * np.maximum(counts, 0.0)).sum())


def _normal(
    value: float, from_noise: float, sampling: float, noise: Noise, least: float, largest: float
) -> Estimate:
    """The normal interval of a metric with these variances, cut to its range."""
    half = noise.quantile * math.sqrt(from_noise + sampling)
    return Estimate(value, max(least, value - half), min(largest, value + half), math.sqrt(from_noise))
