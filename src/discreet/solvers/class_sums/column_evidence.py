"""Estimates about the columns of wide rows from released sums; post-processing only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.solvers.class_sums.mechanism import NoisyClassSums
from discreet.solvers.second_order.margins import class_shares


class ColumnEvidence:
    """Posterior means of column sizes and leans, where a lean is the contrast of a class over the column's size.

    There is one contrast for two classes (of the second), otherwise one for every class. The column weights d are those
    of the rows that were summed last.

    Attributes
    ----------
    shares : shares of the classes.
    weights : weights of the columns; 0 for a column that the model does not use.
    signed : whether rows have negative entries, judging by the first release.
    """

    def __init__(self, look: NoisyClassSums, n_samples: int) -> None:
        self.n_samples = n_samples
        total = max(float(look.counts.sum()), math.sqrt(len(look.counts) * look.count_variance))
        self.shares = class_shares(look.counts / total, look.count_variance / total**2)
        self._n_classes, columns = len(self.shares), look.features.shape[1]
        self._of = [1] if self._n_classes == 2 else list(range(self._n_classes))
        self.weights = np.ones(columns)
        self.sizes = np.ones(columns)
        self._scale = 1.0  # mean factor by which weighted rows are scaled to norm 1
        self._sizes = _Precise(columns)
        self._contrasts: list[tuple[Array, Array, Array]] = []  # value, variance by class, weights of columns
        self._mean = look.features.sum(axis=0) / n_samples
        self.signed = bool(np.abs(look.sizes - look.features.sum(axis=0)).max() > 0)
        self.add_sums(look)

    # -- releases ------------------------------------------------------------------------------------------

    def add_sums(self, sums: NoisyClassSums) -> None:
        """Add class sums of rows with the current weights."""
        n, shares = self.n_samples, self.shares[self._of]
        values = (sums.features[self._of] - np.outer(shares, sums.features.sum(axis=0))) / n
        noise = self.contrast_variances(sums.variance)
        self.add(sums.sizes / n, self._n_classes * sums.variance / n**2, values, noise / n**2)

    def contrast_variances(self, variance: float) -> Array:
        """Return the variance of the noise in every contrast of class sums with this ``variance``."""
        shares = self.shares[self._of]
        return np.asarray(variance * ((1 - shares) ** 2 + (self._n_classes - 1) * shares**2))

    def add(self, sizes: Array, variance: float, contrasts: Array, variances: Array) -> None:
        """Add mean sizes and contrasts in rows with the current weights, and the variances of their noise."""
        if self._contrasts:
            expected = self.weights * self.sizes
            self._scale = float(sizes @ expected / max(float(expected @ expected), 1e-300))
            self._scale = min(max(self._scale, 0.1), 10.0)
        gain = self._scale * self.weights
        self._sizes.add(sizes, variance, gain)
        self.sizes = column_sizes(*self._sizes.estimate)
        self._contrasts.append((contrasts, variances, gain))
        self._update()

    def _update(self) -> None:
        """Combine all contrasts by precision, then compute posterior means of the leans."""
        found = []
        for place in range(len(self._of)):
            known = _Precise(len(self.sizes))
            for values, variance, gain in self._contrasts:
                known.add(values[place], float(variance[place]), gain * self.sizes)
            found.append(leans(*known.estimate, self.sizes))
        self._leans = np.stack([mean for mean, _ in found])
        self._squares = np.mean([square for _, square in found], axis=0)

    # -- what follows --------------------------------------------------------------------------------------

    @property
    def moments(self) -> Array:
        """Approximate shares of the columns in the squared norm of rows."""
        return np.asarray(self.sizes / self.sizes.sum())

    def refocus(self, variance: float, most: int | None) -> None:
        """Weight columns to learn most from contrasts with this noise; use at most ``most`` columns if given."""
        moments = self.moments
        gains = self._squares * moments
        if most is not None and most < len(gains):
            gains[np.argsort(-gains)[most:]] = 0.0
        signal = (self.n_samples * self.sizes.sum()) ** 2 / variance
        self.weights = np.sqrt(water_filling(gains, signal) / moments)
        self._scale = 1.0

    def keep(self, most: int | None) -> None:
        """Use at most this many columns."""
        if most is not None and most < len(self.weights):
            self.weights[np.argsort(-self._squares * self.moments)[most:]] = 0.0

    def directions(self) -> tuple[Array, Array]:
        """Return directions (as columns) with scores of standard deviation 1 on rows of norm 1, and mean scores."""
        used = np.where(self.weights > 0, self._leans, 0.0)
        return self._scaled(used)

    def residual_direction(self, noisy: Array, variance: float) -> tuple[Array, Array]:
        """Return the same for a noisy mean of residuals times rows."""
        gain = np.where(self.weights > 0, self._scale * self.weights * self.sizes, 0.0)
        used = np.flatnonzero(gain > 0)
        mean, _ = leans(noisy[used] / gain[used], variance / gain[used] ** 2, self.sizes[used])
        direction = np.zeros(len(gain))
        direction[used] = mean
        return self._scaled(direction[None])

    def _scaled(self, found: Array) -> tuple[Array, Array]:
        spread = np.sqrt(np.square(found) @ self.moments)
        directions = (found / np.maximum(spread, 1e-300)[:, None]).T
        mean = self._mean if self.signed else self.sizes
        return directions, mean @ directions


class _Precise:
    """Observations value = gain x unknown + noise, combined by precision."""

    def __init__(self, size: int) -> None:
        self._weighted, self._precision = np.zeros(size), np.zeros(size)

    def add(self, value: Array, variance: float, gain: Array) -> None:
        self._weighted += gain * value / variance
        self._precision += np.square(gain) / variance

    @property
    def estimate(self) -> tuple[Array, Array]:
        """Return the estimate and its variance."""
        precision = np.maximum(self._precision, 1e-300)
        return self._weighted / precision, 1 / precision


# -- Empirical Bayes estimates for columns from noisy sums: sizes, leans towards a class, and weights ----------------
#
# Everything here is post-processing of released numbers, in single precision where many are compared. Priors are
# mixtures on public grids, fitted by a fixed number of EM steps (Kiefer and Wolfowitz, 1956; Stephens, 2017):
# to the clearest columns, and to some of the others, each of which stands for those around it in rank.


Columns = NDArray[np.int64]
Singles = NDArray[np.float32]

_SIZES, _LEANS = 40, 24  # points of the grids
_SIZE_STEPS, _LEAN_STEPS = 40, 100  # EM steps
_CLEAREST, _OTHERS = 2048, 1024  # maximum number of columns used to fit a prior
_BLOCK = 1 << 21  # numbers per block
_LEAST, _MOST = np.float32(1e-30), 1e15  # of likelihoods, and of numbers in single precision
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
    relative, precise = _singles(observed / stddev), _singles(least / stddev)
    points = _singles(grid / least)

    def likelihoods(columns: Columns) -> Singles:
        made = np.multiply.outer(precise[columns], points)
        made -= relative[columns, None]
        np.square(made, out=made)
        made *= np.float32(-0.5)
        np.exp(made, out=made)
        made += _LEAST
        return made

    weights = _fitted(likelihoods, unsure, relative, _SIZE_STEPS, 0.5)
    for columns in _blocks(unsure, len(grid)):
        table = likelihoods(columns)
        found[columns] = least * (table @ (weights * points)) / (table @ weights)
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

    most, rates, points = _singles(1 / variance), _singles(rarity / variance), _singles(grid)
    squares_seen = _singles(np.square(observed) / variance)

    def ratios(columns: Columns) -> Singles:
        """1 plus prior variances over those of the noise."""
        made = np.multiply.outer(rates[columns], points)
        np.minimum(made, most[columns, None], out=made)
        made += np.float32(1)
        return made

    def likelihoods(columns: Columns, ratio: Singles | None = None) -> Singles:
        total = ratios(columns) if ratio is None else ratio
        made = squares_seen[columns, None] / total
        made += np.log(total)
        made -= made.min(axis=1, keepdims=True)
        made *= np.float32(-0.5)
        return np.asarray(np.exp(made, out=made))

    weights = _fitted(likelihoods, seen, squares_seen, _LEAN_STEPS, 0.2)
    means, squares = np.empty(len(observed)), np.empty(len(observed))
    for columns in _blocks(np.arange(len(observed)), len(grid)):
        ratio = ratios(columns)
        table = likelihoods(columns, ratio)
        kept = 1 - 1 / ratio
        total = table @ weights
        table *= kept
        mean = table @ weights / total
        table *= kept
        square = table @ weights / total
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


def _fitted(
    likelihoods: Callable[[Columns], Singles],
    columns: Columns,
    strength: NDArray[Any],
    steps: int,
    extra: float,
) -> Singles:
    """Return the weights of a mixture by EM, with ``extra`` pseudo-observations of every component."""
    number = np.ones(len(columns), dtype=np.float32)
    if len(columns) > _CLEAREST + _OTHERS:
        ranked = columns[np.argsort(-strength[columns])]
        others = ranked[_CLEAREST :: math.ceil((len(ranked) - _CLEAREST) / _OTHERS)]
        number = np.ones(_CLEAREST + len(others), dtype=np.float32)
        number[_CLEAREST:] = (len(ranked) - _CLEAREST) / len(others)
        columns = np.concatenate([ranked[:_CLEAREST], others])
    table = np.ascontiguousarray(likelihoods(columns).T)
    size = len(table)
    weights = np.full(size, 1 / size, dtype=np.float32)
    total = np.float32(number.sum() + extra * size)
    for _ in range(steps):
        weights = (weights * (table @ (number / (weights @ table))) + np.float32(extra)) / total
    return weights


def _singles(values: Array) -> Singles:
    return np.minimum(values, _MOST).astype(np.float32)


def _blocks(columns: Columns, width: int) -> list[Columns]:
    height = max(1, _BLOCK // width)
    return [columns[first : first + height] for first in range(0, len(columns), height)]
