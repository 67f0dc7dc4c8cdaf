"""Estimates about the columns of wide rows from released sums; post-processing only."""

from __future__ import annotations

import numpy as np

from discreet._typing import Array
from discreet.solvers.class_sums.discriminant import class_shares
from discreet.solvers.class_sums.empirical_bayes import column_sizes, leans, water_filling
from discreet.solvers.class_sums.mechanism import NoisyClassSums


class ColumnEvidence:
    """Posterior means of column sizes and leans, where a lean is the contrast of a class over the column's size.

    There is one contrast for two classes (of the second), otherwise one for every class. The column weights d are those
    of the rows that were summed last.

    Attributes
    ----------
    shares : shares of the classes.
    weights : weights of the columns; 0 for a column that the model does not use.
    """

    def __init__(self, look: NoisyClassSums, n_samples: int) -> None:
        self.n_samples = n_samples
        self.shares = class_shares(look.counts, look.count_variance)
        self._n_classes, columns = len(self.shares), look.features.shape[1]
        self._of = [1] if self._n_classes == 2 else list(range(self._n_classes))
        self.weights = np.ones(columns)
        self.sizes = np.ones(columns)
        self._scale = 1.0  # mean factor by which weighted rows are scaled to norm 1
        self._sizes = _Precise(columns)
        self._contrasts: list[tuple[Array, Array, Array]] = []  # value, variance by class, weights of columns
        self._mean = look.features.sum(axis=0) / n_samples
        self._signed = bool(np.abs(look.sizes - look.features.sum(axis=0)).max() > 0)
        self.add_sums(look)

    # -- releases ------------------------------------------------------------------------------------------

    def add_sums(self, sums: NoisyClassSums) -> None:
        """Add class sums of rows with the current weights."""
        n = self.n_samples
        total = sums.features.sum(axis=0)
        if self._contrasts:
            expected = self.weights * self.sizes
            self._scale = float(sums.sizes @ expected / n / max(float(expected @ expected), 1e-300))
            self._scale = min(max(self._scale, 0.1), 10.0)
        gain = self._scale * self.weights
        self._sizes.add(sums.sizes / n, self._n_classes * sums.variance / n**2, gain)
        self.sizes = column_sizes(*self._sizes.estimate)
        shares = self.shares[self._of]
        values = (sums.features[self._of] - np.outer(shares, total)) / n
        noise = sums.variance / n**2 * ((1 - shares) ** 2 + (self._n_classes - 1) * shares**2)
        self._contrasts.append((values, noise, gain))
        self._update()

    def add_contrast(self, value: Array, variance: float) -> None:
        """Add the contrast of two classes as one vector, for rows with the current weights."""
        self._contrasts.append((value[None], np.array([variance]), self._scale * self.weights))
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

    def refocus(self, stddev: float, most: int | None, *, one_vector: bool = False) -> None:
        """Weight columns to learn most from sums with this noise; use at most ``most`` columns if given."""
        moments, shares = self.moments, self.shares[self._of]
        factor = 1.0 if one_vector else float(np.mean((1 - shares) ** 2 + (self._n_classes - 1) * shares**2))
        gains = self._squares * moments
        if most is not None and most < len(gains):
            gains[np.argsort(-gains)[most:]] = 0.0
        signal = (self.n_samples * self.sizes.sum()) ** 2 / (stddev**2 * factor)
        filled = water_filling(gains, signal)
        self.weights = np.sqrt(filled / moments)
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
        mean = self._mean if self._signed else self.sizes
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
