"""Empirical Bayes estimates for columns from noisy sums: sizes, leans towards a class, and weights.

Everything here is post-processing of released numbers. Priors are mixtures on public grids, fitted to the released
numbers by a fixed number of EM steps (Kiefer and Wolfowitz, 1956; Stephens, 2017), on at most 20,000 columns.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array

Columns = NDArray[np.int64]

_SIZES, _LEANS = 40, 24  # points of the grids
_SIZE_STEPS, _LEAN_STEPS = 40, 100  # EM steps
_FITTED = 20_000  # maximum number of columns used to fit a prior
_BLOCK = 1 << 21  # numbers per block
_CERTAIN = 12.0  # standard deviations above which a column needs no prior
_EXPONENT = 0.75  # rarer columns have larger leans: their variance falls with this power of the size
_FLATTEST = 1e-5  # the least variance of a lean on the grid; the largest is 1
_INFORMATIVE = 0.1, 100  # least signal over noise of columns used to fit a prior, and their least number


def column_sizes(observed: Array, variance: Array) -> Array:
    """Return posterior means of nonnegative sizes, from observations with normal noise.

    >>> column_sizes(np.array([0.0, 50.0]), np.ones(2)).round(1).tolist()
    [0.3, 50.0]
    """
    stddev = np.sqrt(variance)
    least = float(stddev.min())
    grid = np.append(0.0, np.geomspace(0.02 * least, max(float(observed.max()), 4 * least), _SIZES))
    unsure = np.flatnonzero(observed <= _CERTAIN * stddev)
    found = np.maximum(observed, 0.0)

    def likelihoods(columns: Columns) -> Array:
        distance = (observed[columns, None] - grid) / stddev[columns, None]
        return np.asarray(np.exp(-0.5 * np.square(distance)) + 1e-300)

    weights = _fitted(likelihoods(_some(unsure)), _SIZE_STEPS, 0.5)
    for columns in _blocks(unsure, len(grid)):
        posterior = likelihoods(columns) * weights
        found[columns] = posterior @ grid / posterior.sum(axis=1)
    return np.maximum(found, 1e-3 * least)


def leans(observed: Array, variance: Array, sizes: Array) -> tuple[Array, Array]:
    """Return posterior means and second moments of leans under a scale mixture of normals, from noisy observations.

    The prior is fitted to columns with enough signal; the others would keep it close to its starting point.
    """
    typical = float(np.average(sizes, weights=sizes))
    rarity = np.minimum((np.maximum(sizes, 1e-12) / typical) ** -_EXPONENT, 1 / _FLATTEST)
    grid = np.append(0.0, np.geomspace(_FLATTEST, 1.0, _LEANS))
    signal = np.minimum(0.1 * rarity, 1.0) / variance
    least, fewest = _INFORMATIVE
    seen = np.flatnonzero(signal > least)
    if len(seen) < fewest:
        seen = np.argsort(-signal)[:fewest]

    def laws(columns: Columns) -> tuple[Array, Array]:
        prior = np.minimum(grid * rarity[columns, None], 1.0)
        total = prior + variance[columns, None]
        logs = -0.5 * (np.log(total) + np.square(observed[columns, None]) / total)
        return prior / total, np.exp(logs - logs.max(axis=1, keepdims=True))

    weights = _fitted(laws(_some(seen))[1], _LEAN_STEPS, 0.2)
    means, squares = np.empty(len(observed)), np.empty(len(observed))
    for columns in _blocks(np.arange(len(observed)), len(grid)):
        kept, likelihoods = laws(columns)
        posterior = likelihoods * weights
        total = posterior.sum(axis=1)
        mean = np.einsum("ij,ij->i", posterior, kept) / total
        square = np.einsum("ij,ij,ij->i", posterior, kept, kept) / total
        means[columns] = mean * observed[columns]
        squares[columns] = mean * variance[columns] + square * np.square(observed[columns])
    return means, squares


def water_filling(gains: Array, signal: float) -> Array:
    """Shares a_j = max(0, level - 1 / (signal gains_j)) that add up to 1.

    They maximize sum_j gains_j a_j / (a_j + 1 / (signal gains_j)): columns too rare to rise above the noise get 0.

    >>> water_filling(np.array([1.0, 1.0, 1e-6]), 10.0).round(6).tolist()
    [0.5, 0.5, 0.0]
    """
    floors = 1 / np.maximum(signal * gains, 1e-200)
    floors = floors - floors.min()  # shifts only the level, and avoids losing shares next to huge floors
    ordered = np.sort(floors)
    levels = (1 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    n_kept = int(np.flatnonzero(levels > ordered)[-1]) + 1
    return np.asarray(np.maximum(0.0, levels[n_kept - 1] - floors))


def _fitted(likelihoods: Array, steps: int, extra: float) -> Array:
    """Return the weights of a mixture by EM, with ``extra`` pseudo-observations of every component."""
    size = likelihoods.shape[1]
    weights = np.full(size, 1 / size)
    for _ in range(steps):
        counts = weights * (1 / (likelihoods @ weights) @ likelihoods)
        weights = (counts + extra) / (len(likelihoods) + extra * size)
    return weights


def _some(columns: Columns) -> Columns:
    return columns[:: max(1, math.ceil(len(columns) / _FITTED))]


def _blocks(columns: Columns, width: int) -> list[Columns]:
    height = max(1, _BLOCK // width)
    return [columns[first : first + height] for first in range(0, len(columns), height)]
