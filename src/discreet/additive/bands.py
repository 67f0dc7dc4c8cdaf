"""Noise bands: how far the noise of the sums of residuals may have moved each value of a shape.

The fit answers to noise by the slope of its sums of residuals, a weighted second moment of the records. What was
released tells it: counts of bins give the part within columns, the noisy second moment that between columns, shrunk by
what its noise allows. Everything here is post-processing. Proofs: docs/proofs/additive-models.md, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, ndtr, ndtri

from discreet._typing import Array
from discreet.additive.bins import Bins
from discreet.additive.records import Coordinates
from discreet.solvers.second_order.coordinates import NoisyMoments, Reshaping
from discreet.solvers.second_order.posterior import PosteriorMean

Slope = Callable[[Array], Array]

#: Share of values, on average over records, that a band is to hold.
LEVEL = 0.9
_DRAWS = 2  # second moments that what was released allows, over which a band is averaged
_LEAST = 0.05  # of the moment that counts give, what is left in any direction
_DECAYS = 0.0, 0.5, 1.0, 2.0  # of relations between columns, along directions with less and less energy
_SIZES = np.geomspace(1e-6, 1.0, 16)  # their variance along the strongest direction
_LEAST_KEPT = 0.5  # of the mean square of records, by shortening
_LEAST_SHARE = 0.02  # of residuals that are not clipped
_FLATTEST = 1e-9  # slope of probabilities
_NODES, _WEIGHTS = hermegauss(21)


@dataclass(frozen=True)
class Trace:
    """What a stage released beside its coefficients.

    Attributes
    ----------
    looked : the second look at the second moment.
    first, second : the coordinates in which it was taken, and those that followed from it.
    mean : the posterior mean, with all gradients it has seen.
    cap, scale : of the last gradient, and the standard deviation of residuals.
    """

    looked: NoisyMoments
    first: Reshaping
    second: Reshaping
    mean: PosteriorMean
    cap: float
    scale: float


def margins(
    made: Coordinates, bins: Sequence[Bins], theta: Array, n_samples: int, slope: Slope, trace: Trace
) -> list[Array]:
    """Half the width of the band around every value of every shape.

    ``slope`` is the mean slope of clipped residuals, by the prediction; ``theta`` has one output.
    """
    shares = _shares(bins)
    plain, sloped, typical = _moments(made, shares, theta, slope)
    matrix = trace.first.matrix @ trace.second.matrix
    covariance = np.zeros_like(matrix)
    generator = np.random.default_rng(0)  # what is averaged over is no secret
    between = _Between.of(trace.first.matrix.T @ plain @ trace.first.matrix * n_samples, trace.looked)
    base = n_samples * matrix.T @ (sloped - typical * plain) @ matrix
    for _ in range(_DRAWS):
        found = trace.second.matrix.T @ between.drawn(generator) @ trace.second.matrix
        sums = between.kept * (between.kept * base + typical * found)
        values, vectors = np.linalg.eigh(sums)
        covariance += trace.mean.noise_covariance((vectors * np.maximum(values, 0.0)) @ vectors.T) / _DRAWS
    covariance = matrix @ covariance @ matrix.T
    width, found_margins = float(ndtri((1 + LEVEL) / 2)), []
    for table, part, share in zip(made.tables, made.parts, shares, strict=True):
        rows = table - share @ table
        variances = ((rows @ covariance[part, part]) * rows).sum(axis=1)
        found_margins.append(width * np.sqrt(np.maximum(variances, 0.0)))
    return found_margins


def _shares(bins: Sequence[Bins]) -> list[Array]:
    """The share of records in every bin of every column, as released."""
    masses = [np.maximum(one.counts, 0.0) for one in bins]
    return [mass / max(float(mass.sum()), 1.0) for mass in masses]


def class_slope(cap: float) -> Slope:
    """Of probabilities minus labels: the slope where they are within the cap."""

    def slope(raw: Array) -> Array:
        high = expit(raw)
        inside = high * (1 - high < cap) + (1 - high) * (high < cap)
        return np.asarray(np.maximum(high * (1 - high) * inside, _FLATTEST))

    return slope


def count_slope(cap: float, scale: float, reach: float, middle: float) -> Slope:
    """Of predicted means minus counts, which spread more where means are larger; ``scale`` holds at ``middle``."""

    middle = min(reach, max(-reach, middle))

    def slope(raw: Array) -> Array:
        raw = np.clip(raw, -reach, reach)
        inside = 1 - 2 * ndtr(-cap / (scale * np.exp((raw - middle) / 2)))
        return np.asarray(np.maximum(inside, _LEAST_SHARE) * np.exp(raw))

    return slope


def _moments(
    made: Coordinates, shares: Sequence[Array], theta: Array, slope: Slope
) -> tuple[Array, Array, float]:
    """The mean second moment of records with unrelated columns, the same weighted by slopes, and the mean slope.

    Predictions count as normal, given the bin of one column.
    """
    weights = _WEIGHTS / _WEIGHTS.sum()
    shapes = [table @ theta[part] for table, part in zip(made.tables, made.parts, strict=True)]
    centers = [float(share @ shape) for share, shape in zip(shares, shapes, strict=True)]
    spreads = [
        float(share @ np.square(shape - center))
        for share, shape, center in zip(shares, shapes, centers, strict=True)
    ]
    middle = math.fsum(centers) + float(made.constant * theta[-1])
    total = math.fsum(spreads)
    typical = float(weights @ slope(middle + math.sqrt(total) * _NODES))
    row, weighted = np.zeros(made.width), np.zeros(made.width)
    row[-1], weighted[-1] = made.constant, typical * made.constant
    steep = []
    for table, part, share, shape, center, spread in zip(
        made.tables, made.parts, shares, shapes, centers, spreads, strict=True
    ):
        rest = math.sqrt(max(total - spread, 0.0))
        steep.append(slope(middle + (shape - center)[:, None] + rest * _NODES) @ weights)
        row[part], weighted[part] = share @ table, (share * steep[-1]) @ table
    plain, sloped = np.outer(row, row), np.outer(weighted, weighted) / typical
    for table, part, share, one in zip(made.tables, made.parts, shares, steep, strict=True):
        plain[part, part] = (table.T * share) @ table
        sloped[part, part] = (table.T * (share * one)) @ table
    return plain, sloped, typical


def prediction_center(made: Coordinates, bins: Sequence[Bins], theta: Array) -> float:
    """The logarithm of the mean of exp(prediction), for normal predictions of unrelated columns."""
    plain, _, _ = _moments(made, _shares(bins), theta, np.ones_like)
    mean = float(made.mean(bins) @ theta)
    return mean + max(float(theta @ plain @ theta) - mean**2, 0.0) / 2


@dataclass(frozen=True)
class _Between:
    """The law of a second moment, given the counts of bins and one noisy look.

    In units of the moment of unrelated columns, entries that the look adds have a normal prior, whose width maximizes
    the likelihood of what was released.
    """

    vectors: Array
    roots: Array
    expected: Array
    stddev: Array
    kept: float

    @staticmethod
    def of(unrelated: Array, looked: NoisyMoments) -> _Between:
        """The law for a moment of unrelated columns, in the coordinates of the look."""
        trace = float(np.trace(unrelated))
        kept = min(1.0, max(_LEAST_KEPT, float(np.trace(looked.second)) / trace))
        values, vectors = np.linalg.eigh(unrelated)
        values = kept * np.maximum(values, 1e-9 * values[-1])
        roots, sizes = np.sqrt(values), np.outer(values, values)
        added = (vectors.T @ looked.second @ vectors - np.diag(values)) / np.outer(roots, roots)
        noise = looked.second_stddev**2 * (1 + np.eye(len(values))) / 2 / sizes
        squares, relative = np.square(added), sizes / sizes[-1, -1]
        likeliest, prior = -math.inf, np.zeros_like(noise)
        for decay in _DECAYS:
            for size in _SIZES:
                tried = size * relative**decay
                likelihood = -float((np.log(noise + tried) + squares / (noise + tried)).sum())
                if likelihood > likeliest:
                    likeliest, prior = likelihood, tried
        gain = prior / (prior + noise)
        return _Between(vectors, roots, added * gain, np.sqrt(gain * noise), kept)

    def drawn(self, generator: np.random.Generator) -> Array:
        """One draw of the law."""
        normal = generator.normal(size=self.expected.shape)
        symmetric = (normal + normal.T) / math.sqrt(2.0)
        np.fill_diagonal(symmetric, np.diag(normal))
        values, rotation = np.linalg.eigh(np.eye(len(normal)) + self.expected + self.stddev * symmetric)
        half = (self.vectors * self.roots) @ rotation
        return np.asarray((half * np.maximum(values, _LEAST)) @ half.T)
