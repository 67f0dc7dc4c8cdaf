"""What noisy sums say about columns: their sizes, how they lean towards a class, which deserve a second look.

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
_SIZE_STEPS, _LEAN_STEPS = 40, 100  # of EM
_FITTED = 20_000  # columns that a prior is fitted to
_BLOCK = 1 << 21  # numbers handled together
_CERTAIN = 12.0  # standard deviations: such a column needs no prior
_EXPONENT = 0.75  # leans of rarer columns are larger: their variance falls with this power of the size
_FLATTEST = 1e-5  # the least variance of a lean on the grid; the largest is 1
_INFORMATIVE = 0.1, 100  # signal over noise of columns that a prior is fitted to, and how many at least


def column_sizes(observed: Array, variance: Array) -> Array:
    """Posterior means of sizes that are not negative, from observations with normal noise.

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
        posterior = _normalized(likelihoods(columns) * weights)
        found[columns] = posterior @ grid
    return np.maximum(found, 1e-3 * least)


def leans(observed: Array, variance: Array, sizes: Array) -> tuple[Array, Array]:
    """Posterior means and second moments of leans, a scale mixture of normal laws, from noisy observations.

    The prior is fitted to the columns of which something is seen: the others would hold it where EM begins.
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
        posterior = _normalized(likelihoods * weights)
        noise, value = variance[columns, None], observed[columns, None]
        means[columns] = (posterior * kept).sum(axis=1) * observed[columns]
        squares[columns] = (posterior * (kept * noise + np.square(kept * value))).sum(axis=1)
    return means, squares


def water_filling(gains: Array, signal: float) -> Array:
    """Shares a_j = max(0, level - 1 / (signal gains_j)) that add up to 1.

    They maximize sum_j gains_j a_j / (a_j + 1 / (signal gains_j)): columns too rare to be seen get nothing.

    >>> water_filling(np.array([1.0, 1.0, 1e-6]), 10.0).round(6).tolist()
    [0.5, 0.5, 0.0]
    """
    floors = 1 / np.maximum(signal * gains, 1e-200)
    floors = floors - floors.min()  # moves the level alone, and keeps shares in sight of floors that are huge
    ordered = np.sort(floors)
    levels = (1 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    n_kept = int(np.flatnonzero(levels > ordered)[-1]) + 1
    return np.asarray(np.maximum(0.0, levels[n_kept - 1] - floors))


def _fitted(likelihoods: Array, steps: int, extra: float) -> Array:
    """Weights of a mixture by EM, with ``extra`` observations of every part."""
    size = likelihoods.shape[1]
    weights = np.full(size, 1 / size)
    for _ in range(steps):
        counts = _normalized(likelihoods * weights).sum(axis=0)
        weights = (counts + extra) / (len(likelihoods) + extra * size)
    return weights


def _normalized(rows: Array) -> Array:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _some(columns: Columns) -> Columns:
    return columns[:: max(1, math.ceil(len(columns) / _FITTED))]


def _blocks(columns: Columns, width: int) -> list[Columns]:
    height = max(1, _BLOCK // width)
    return [columns[first : first + height] for first in range(0, len(columns), height)]
