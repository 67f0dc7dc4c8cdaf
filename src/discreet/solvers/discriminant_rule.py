"""Directions that tell classes apart, from noisy sums of their rows.

Everything here is post-processing of released numbers. The contrast of a class is its sum without what its share of all
rows would bring. A ridge discriminant divides it, column by column, by the second moment and a ridge: the sizes of a
column's entries stand for its second moment, as for words in texts. Which ridge is best shows in the contrast itself,
because the noise in it is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.solvers.class_sums import CONSTANT, NoisyClassSums

Array = NDArray[np.float64]

_SEEN = 3.0  # standard deviations above its noise at which the size of a column is believed
_LEAST_RIDGE = 1300.0  # over the variance of the noise in a mean: below, the choice itself follows the noise
_RIDGES = 1e-12, 10.0  # the moments add up to 1: here none matters, and here all columns count alike
_RIDGES_PER_DECADE = 4
_SHRUNK = 0.9  # of the constants is left, or less, where rows are longer than the bound


@dataclass(frozen=True)
class Directions:
    """What the sums say about scores.

    Attributes
    ----------
    matrix : its columns are directions along which rows of norm 1 score about 1.
    means : mean scores of all rows.
    length : of a typical row, before it was shrunk to 1 at most.
    gaps : how much higher a class scores than the others do, less the doubt about it.
    shares : of all rows, for every class.
    """

    matrix: Array
    means: Array
    length: float
    gaps: Array
    shares: Array


def directions(sums: NoisyClassSums, n_samples: int) -> Directions:
    """One direction for two classes (towards the second), else one for every class."""
    n_classes = len(sums.counts)
    shares = class_shares(sums.counts, sums.count_variance)
    means, seen = column_means(sums.sizes / n_samples, math.sqrt(n_classes * sums.variance) / n_samples)
    moments = means / means.sum()
    total = sums.features.sum(axis=0)
    variance = sums.variance / n_samples**2
    found, gaps = [], []
    for k in [1] if n_classes == 2 else range(n_classes):
        share = shares[k]
        contrast = (sums.features[k] - share * total) / n_samples
        noise = variance * ((1 - share) ** 2 + (n_classes - 1) * share**2)
        direction, covariance = ridge_direction(contrast, moments, noise, _LEAST_RIDGE * variance)
        found.append(direction)
        gaps.append(covariance / (share * (1 - share)))
    matrix = np.stack(found, axis=1)
    mean = np.where(seen, total / n_samples, 0.0)
    if n_classes == 2 and sums.left < _SHRUNK:
        # Of rows longer than the bound, the constant shrinks with their length: what is taken off must too.
        matrix = matrix - np.outer(mean, mean @ matrix) / max(float(mean @ mean), 1e-300)
    return Directions(matrix, mean @ matrix, row_length(sums.left), np.array(gaps), shares)


def row_length(left: float) -> float:
    """How long rows are of which, with their constant, this fraction is left."""
    return math.sqrt((1 + CONSTANT**2) / left**2 - CONSTANT**2)


def class_shares(counts: Array, variance: float) -> Array:
    """Shares of the classes, drawn towards equal ones as far as noise alone would tell them apart (James and Stein)."""
    believed = np.maximum(counts, 0.0) + 1.0
    even = believed.mean()
    differences = believed - even
    noise = (len(counts) - 1) * variance
    kept = max(0.0, 1.0 - noise / max(float(differences @ differences), noise))
    return np.asarray((even + kept * differences) / believed.sum())


def column_means(noisy: Array, stddev: float) -> tuple[Array, NDArray[np.bool_]]:
    """Mean sizes of the columns, and which stand out of the noise.

    What is left of the sum, and at least what noise could hide of it, is spread evenly over the others.
    """
    seen = noisy > _SEEN * stddev
    left = max(float(noisy[~seen].sum()), stddev * math.sqrt(len(noisy)))
    return np.where(seen, noisy, left / max(1, int((~seen).sum()))), seen


def ridge_direction(contrast: Array, moments: Array, variance: float, least: float) -> tuple[Array, float]:
    """contrast / (moments + ridge), scaled so that scores are about 1, for the ridge that seems best; its covariance.

    The covariance of score and class is estimated without bias: the noise in the contrast, of known ``variance``, adds
    its square times the weights. The best ridge has the largest covariance over the score's standard deviation, or is
    the largest where none is positive. What is given back is less by one standard deviation of the estimate.
    """
    smallest, largest = _RIDGES
    least = min(max(least, smallest), largest)
    decades = math.log10(largest / least)
    grid = np.geomspace(largest, least, 1 + math.ceil(_RIDGES_PER_DECADE * decades))
    squares = contrast**2 - variance
    weights = max(
        (1.0 / (moments + ridge) for ridge in grid),
        key=lambda w: max(0.0, float(w @ squares)) / _spread(w * contrast, moments),
    )
    direction = weights * contrast
    doubt = variance * (4 * np.maximum(squares, 0.0) + 2 * variance)
    covariance = float(weights @ squares) - math.sqrt(float(weights**2 @ doubt))
    spread = _spread(direction, moments)
    return np.asarray(direction / spread), max(0.0, covariance / spread)


def _spread(direction: Array, moments: Array) -> float:
    """About the standard deviation of scores along a direction."""
    return max(math.sqrt(float(moments @ direction**2)), 1e-300)
