"""Center rows before clipping: remove each row's own mean and half of the intercept, or a private mean of all rows.

Wide rows often share a direction: entries of one sign have a large mean, and the intercept is as long as a row of
norm 1. Noise along such a direction shifts all predictions together, and the direction uses up part of the clipped
norm. Both directions are known before any data is seen. The linear map Q subtracts the mean from a row and halves its
constant; rows are clipped by the norm after Q. Proofs: docs/proofs/gradient-methods.md, section 8.

Rows of counts often share a few large columns. If one class is rare, every gradient at the start points along that
common part, which does not help ranking, and descent must first undo it. One noisy sum of the records shows the
columns that rise above the noise; their mean, times the constant, is subtracted from every row. Then Q takes
(x, t) to (L (x - a t), c t): L removes the mean of the entries, a is the center, c the kept part of the constant.
Proofs: docs/proofs/gradient-methods.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse as sp

from discreet._typing import Array
from discreet.losses import Linear, Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import Bounds, gamma, gradient_rounding, row_products, without_duplicates
from discreet.solvers.second_order.coordinates import singles

_BLOCK_ENTRIES = 1 << 18


@dataclass(frozen=True)
class LeveledBounds(Bounds):
    """Bounds with |Q v|_2 <= feature_norm for every record v = s (x, 1), and |v|_2 <= 8 feature_norm.

    Privacy
    -------
    As for `Bounds`: the scale depends on one row at a time, and a non-finite row is a null record.

    Examples
    --------
    >>> import numpy as np
    >>> LeveledBounds(1.0, intercept=False).row_scales(np.array([[4.0, 4.0, 5.0, 3.0]])).round(4)
    array([0.7071])
    """

    longest: ClassVar[float] = 8.0
    constant: ClassVar[float] = 0.5  # kept part of the intercept; a power of two, for exact products

    def row_scales(self, X: Any) -> Array:
        """Return the scale s of every row: 1 for rows within the bound after leveling."""
        return self._scales(X, None)

    def _scales(self, X: Any, center: Array | None) -> Array:
        """Return the scales of rows from which ``center`` is subtracted before leveling."""
        if isinstance(X, sp.csr_array | sp.csr_matrix):
            X = without_duplicates(X)
        n_columns = X.shape[1]
        radius = self.feature_norm * (1.0 - (n_columns + 8) * 2.0**-52)
        margin = 8 * (n_columns + 16) * 2.0**-53
        own, total = (0.0, 0.0) if center is None else (float(center @ center), float(center.sum()))
        squares, sums, products = _sums(X, center)
        with np.errstate(all="ignore"):
            plain = self._scales_from(X, slice(0, X.shape[0]), squares)
            left = squares - 2.0 * products + own - (sums - total) ** 2 / max(1, n_columns)
            left += margin * (squares + own + 1.0) + (self.constant**2 if self.intercept else 0.0)
            leveled = np.minimum(radius / np.sqrt(left), np.minimum(1.0, self.longest * plain))
            usable = np.isfinite(squares) & (left > 0)
            anyhow = plain / self.growth  # satisfies the bound for any row
            return np.where(usable, np.maximum(anyhow, leveled), anyhow)

    def level(self, values: Array) -> Array:
        """Apply Q to the coefficients or sums of one model, with features along the first axis."""
        n_columns = len(values) - int(self.intercept)
        leveled = values.copy()
        leveled[:n_columns] -= values[:n_columns].mean(axis=0)
        leveled[n_columns:] *= self.constant
        return leveled

    @property
    def growth(self) -> float:
        """A bound on the norm of Q."""
        return 1.0

    @property
    def pace(self) -> float:
        """Step size of the constant relative to that of the features."""
        return 1.0

    def images(self, sums: Array) -> Array:
        """Apply Q to the sums of every model."""
        return np.stack([self.level(one) for one in sums])

    def coefficients(self, theta: Array) -> Array:
        """Apply the transpose of Q to every model, which gives coefficients for the original rows."""
        return np.stack([self.level(one) for one in theta])


def _sums(X: Any, weights: Array | None = None) -> tuple[Array, Array, Array]:
    """Return squared norms, sums and weighted sums of the rows, block by block; without weights the last are 0.

    Each is summed along its own row, in an order that depends on the row's length only: rows are contiguous for any
    layout of ``X``, and no matrix product is used, because its order may depend on the number of rows.
    """
    sparse, n_rows = bool(sp.issparse(X)), X.shape[0]
    squares, sums, weighted = np.zeros((3, n_rows))
    height = 1 << 16 if sparse else max(1, _BLOCK_ENTRIES // max(1, X.shape[1]))
    in_place = not sparse and X.dtype == np.float64 and X.flags.c_contiguous
    copies = np.empty((0 if sparse or in_place else min(height, n_rows), X.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, n_rows, height):
            rows, block = slice(start, start + height), X[start : start + height]
            if sparse:
                block = block.astype(np.float64)
            elif not in_place:
                np.copyto(copies[: len(block)], block)
                block = copies[: len(block)]
            found = block.multiply(block).sum(axis=1) if sparse else row_products(block)
            squares[rows] = np.asarray(found).ravel()
            sums[rows] = np.asarray(block.sum(axis=1)).ravel()
            if weights is not None:
                weighted[rows] = block @ weights if sparse else row_products(block, weights)
    return squares, sums, weighted


def leveled(problem: Problem) -> Problem:
    """Return the same problem for leveled rows."""
    return replace(problem, bounds=LeveledBounds(problem.bounds.feature_norm, problem.bounds.intercept))


def leveled_mechanism(
    problem: Problem, field: Loss, radius: float, neighboring: Neighboring, noise_multiplier: float
) -> GaussianMechanism:
    """Return the mechanism for noisy leveled gradient sums of all models, at leveled points of the ball."""
    n, p, norm = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    growth = problem.bounds.growth if isinstance(problem.bounds, LeveledBounds) else 1.0
    longest = LeveledBounds.longest * norm
    rounding = gradient_rounding(field, n, p, longest, radius * growth * SLACK)
    rounding += 1.02 * gamma(p + 8) * n * longest * field.lipschitz  # of the leveling itself
    one = neighboring.contributions * field.lipschitz * norm + 2 * growth * rounding
    every = Sensitivity(one * SLACK * math.sqrt(problem.n_models))
    return GaussianMechanism(every, noise_multiplier, problem.n_coefficients)


_VISIBLE = 3.0  # a column's sum, or the constant's, must exceed this many standard deviations of its noise
_LONGEST = 1024.0  # largest norm of a center, in the units of rows
LEAST_LEFT = 0.05  # minimum fraction of the squared norm that is kept


@dataclass(frozen=True, eq=False)
class CenteredBounds(LeveledBounds):
    """Bounds with |Q v|_2 <= feature_norm for every record v = s (x, 1), and |v|_2 <= 8 feature_norm.

    Parameters
    ----------
    center : a, with one entry per column, computed from released numbers.

    Privacy
    -------
    As for `Bounds`: the scale depends on one row at a time, and a non-finite row is a null record.
    """

    constant: ClassVar[float] = 0.25
    center: Array = field(default_factory=lambda: np.zeros(0))

    def row_scales(self, X: Any) -> Array:
        """Return the scale s of every row: 1 for rows near the center."""
        return self._scales(X, self.center)

    @property
    def growth(self) -> float:
        """A bound on the norm of Q."""
        return (1.0 + float(np.linalg.norm(self.center))) * SLACK

    @property
    def pace(self) -> float:
        """Step size of the constant relative to that of the features: as if half were kept, but stable."""
        return min(4.0, max(1.0, (self.feature_norm / self.constant) ** 2))

    def images(self, sums: Array) -> Array:
        """Apply Q to the sums of every model."""
        moved = sums.copy()
        for one in moved:
            one[:-1] -= np.multiply.outer(self.center, one[-1])
        return super().images(moved)

    def coefficients(self, theta: Array) -> Array:
        """Apply the transpose of Q to every model, which gives coefficients for the original rows."""
        found = super().coefficients(theta)
        for one in found:
            one[-1] -= self.center @ one[:-1]
        return found


def mean_mechanism(problem: Problem, neighboring: Neighboring, noise_multiplier: float) -> GaussianMechanism:
    """Return the mechanism for the noisy sum of leveled records."""
    return leveled_mechanism(_sums_private_centering(problem), Linear(), 0.0, neighboring, noise_multiplier)


def released_center(
    problem: Problem, records: Records, mechanism: GaussianMechanism, entropy: Entropy
) -> CenteredBounds:
    """Return the bounds of centered rows, from one noisy sum of the records.

    A column's sum counts by the amount that exceeds its noise. Centered rows are shorter: the allowed squared norm is
    reduced by the squared norm of the mean (estimated from below) and by what the smaller constant saves. If not even
    the sum of the constants rises above the noise, rows were far longer than the bound, and there is no center.
    """
    bounds = cast(LeveledBounds, problem.bounds)
    exact = bounds.images(records.weighted_sum(np.ones(records.n_samples))[None])[0]
    noisy = mechanism.release(exact, entropy)
    return center_from(noisy, mechanism.stddev, problem)


def center_from(noisy: Array, stddev: float, problem: Problem) -> CenteredBounds:
    """Estimate the center from a noisy sum of leveled records; a function of released numbers."""
    bounds, n = cast(LeveledBounds, problem.bounds), problem.n_samples
    level = _VISIBLE * stddev
    columns, constants = noisy[:-1], noisy[-1] / bounds.constant
    center, square = np.zeros(len(columns)), 0.0
    if noisy[-1] > level:
        sizes = np.maximum(np.abs(columns), level)
        square = float(np.square((sizes - level) / n).sum())
        center = columns * (1.0 - (level / sizes) ** 2) / min(constants, n)
        center -= center.mean()
        center *= min(1.0, _LONGEST / max(_LONGEST, float(np.linalg.norm(center))))
    share = min(max(constants / n, 0.0), 1.0)
    spared = (bounds.constant**2 - CenteredBounds.constant**2) * share**2
    left = max(LEAST_LEFT * bounds.feature_norm**2, bounds.feature_norm**2 - square - spared)
    return CenteredBounds(math.sqrt(left), True, center)


def recentered(records: Records, bounds: CenteredBounds, n_samples: int) -> Records:
    """Return the same rows, in `singles` by the public ``n_samples``, clipped after centering."""
    return singles(records, n_samples, bounds)


def _sums_private_centering(problem: Problem) -> Problem:
    """Return the problem whose gradient at 0 is the sum of the records."""
    return replace(problem, loss=Linear(), n_models=1)
