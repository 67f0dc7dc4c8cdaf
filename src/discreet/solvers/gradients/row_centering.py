"""Rows without what all of them share by convention: their mean, and half of the intercept.

Wide rows often point one way: entries of one sign have a large mean, and the constant of the intercept is as long as a
row of norm 1. Noise along such a direction shifts all predictions together, and the direction takes up room in the norm
that noise must hide. Both directions are known before any data is seen. The linear map Q takes the mean off a row and
halves its constant; records are clipped by the norm that is left. Proofs: docs/proofs/gradient-methods.md, section 8.

Rows without their private mean: what is left of the norm is what tells rows apart.

Rows of counts mostly agree: a few columns that are large in all of them. Where one class is rare, every gradient at the
start points along that common part, which ranks nothing, and descent must first undo it. One noisy sum of the records
shows the columns that stand out; their mean, times the constant, is taken off every row. The map Q takes
(x, t) to (L (x - a t), c t): L removes the mean of the entries, a is the center, c what is kept of the constant.
Proofs: docs/proofs/gradient-methods.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds, without_duplicates
from discreet.records.kernels.passes import gamma, gradient_rounding

_BLOCK_ENTRIES = 1 << 18


@dataclass(frozen=True)
class LeveledBounds(Bounds):
    """The public promise |Q v|_2 <= feature_norm about every record v = s (x, 1), and |v|_2 <= 8 feature_norm.

    Privacy
    -------
    As for `Bounds`: the rule looks at one row at a time, and a row that is not finite is a null record.

    Examples
    --------
    >>> import numpy as np
    >>> LeveledBounds(1.0, intercept=False).row_scales(np.array([[4.0, 4.0, 5.0, 3.0]])).round(4)
    array([0.7071])
    """

    longest: ClassVar[float] = 8.0
    constant: ClassVar[float] = 0.5  # left of the intercept's 1; a power of two, so that products are exact

    def row_scales(self, X: Any) -> Array:
        """The scale s of every row: 1 for rows that are short once leveled."""
        return self._scales(X, None)

    def _scales(self, X: Any, center: Array | None) -> Array:
        """The scales of rows that lose ``center`` before they are leveled."""
        if isinstance(X, sp.csr_array | sp.csr_matrix):
            X = without_duplicates(X)
        n_columns = X.shape[1]
        radius = self.feature_norm * (1.0 - (n_columns + 8) * 2.0**-52)
        margin = 8 * (n_columns + 16) * 2.0**-53
        own, total = (0.0, 0.0) if center is None else (float(center @ center), float(center.sum()))
        plain = super().row_scales(X)
        scales = plain / self.growth  # keeps the promise of any row
        with np.errstate(all="ignore"):
            for rows, squares, sums, products in _sums(X, center):
                left = squares - 2.0 * products + own - (sums - total) ** 2 / max(1, n_columns)
                left += margin * (squares + own + 1.0) + (self.constant**2 if self.intercept else 0.0)
                leveled = np.minimum(radius / np.sqrt(left), np.minimum(1.0, self.longest * plain[rows]))
                usable = np.isfinite(squares) & (left > 0)
                scales[rows] = np.where(usable, np.maximum(scales[rows], leveled), scales[rows])
        return scales

    def level(self, values: Array) -> Array:
        """Q times the coefficients or sums of one model, the features along the first axis."""
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
        """How much faster than the features the constant is walked."""
        return 1.0

    def images(self, sums: Array) -> Array:
        """Q times the sums of every model."""
        return np.stack([self.level(one) for one in sums])

    def coefficients(self, theta: Array) -> Array:
        """The transpose of Q times the coefficients of every model: what they are for rows as they came."""
        return np.stack([self.level(one) for one in theta])


def _sums(X: Any, weights: Array | None = None) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Squared norms, sums and weighted sums of the rows, block by block; without weights the last are 0.

    Each is summed along its own row, in an order that its length alone decides: rows lie one after the other, whatever
    the layout of ``X``, and no product of matrices is used, whose order may depend on the number of rows.
    """
    sparse = bool(sp.issparse(X))
    height = 1 << 16 if sparse else max(1, _BLOCK_ENTRIES // max(1, X.shape[1]))
    for start in range(0, X.shape[0], height):
        block: Any = X[start : start + height]
        block = block.astype(np.float64) if sparse else np.ascontiguousarray(block, dtype=np.float64)
        squares = block.multiply(block).sum(axis=1) if sparse else np.einsum("ij,ij->i", block, block)
        weighted: Any = np.zeros(block.shape[0])
        if weights is not None:
            weighted = block @ weights if sparse else np.einsum("ij,j->i", block, weights)
        sums = (
            np.asarray(squares).ravel(),
            np.asarray(block.sum(axis=1)).ravel(),
            np.asarray(weighted).ravel(),
        )
        yield slice(start, start + height), *sums


def leveled(problem: Problem) -> Problem:
    """The same problem for leveled rows."""
    return replace(problem, bounds=LeveledBounds(problem.bounds.feature_norm, problem.bounds.intercept))


def leveled_mechanism(
    problem: Problem, field: Loss, radius: float, neighboring: Neighboring, noise_multiplier: float
) -> GaussianMechanism:
    """The noisy leveled sum of gradients of all models, at leveled points of the ball."""
    n, p, norm = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    growth = problem.bounds.growth if isinstance(problem.bounds, LeveledBounds) else 1.0
    longest = LeveledBounds.longest * norm
    rounding = gradient_rounding(field, n, p, longest, radius * growth * SLACK)
    rounding += 1.02 * gamma(p + 8) * n * longest * field.lipschitz  # of the leveling itself
    one = neighboring.contributions * field.lipschitz * norm + 2 * growth * rounding
    every = Sensitivity(one * SLACK * math.sqrt(problem.n_models))
    return GaussianMechanism(every, noise_multiplier, problem.n_coefficients)


_VISIBLE = 3.0  # standard deviations of its noise that a column's sum, or the constant's, must exceed
_LONGEST = 1024.0  # of a center, in the units of rows
LEAST_LEFT = 0.05  # of the squared norm, whatever the mean is


@dataclass(frozen=True, eq=False)
class CenteredBounds(LeveledBounds):
    """The public promise |Q v|_2 <= feature_norm about every record v = s (x, 1), and |v|_2 <= 8 feature_norm.

    Parameters
    ----------
    center : a, as long as a row; it is made from released numbers.

    Privacy
    -------
    As for `Bounds`: the rule looks at one row at a time, and a row that is not finite is a null record.
    """

    constant: ClassVar[float] = 0.25
    center: Array = field(default_factory=lambda: np.zeros(0))

    def row_scales(self, X: Any) -> Array:
        """The scale s of every row: 1 for rows that are near the center."""
        return self._scales(X, self.center)

    @property
    def growth(self) -> float:
        """A bound on the norm of Q."""
        return (1.0 + float(np.linalg.norm(self.center))) * SLACK

    @property
    def pace(self) -> float:
        """How much faster the constant is walked: as if half of it were kept, while that is not too fast for steps."""
        return min(4.0, max(1.0, (self.feature_norm / self.constant) ** 2))

    def images(self, sums: Array) -> Array:
        """Q times the sums of every model."""
        moved = sums.copy()
        for one in moved:
            one[:-1] -= np.multiply.outer(self.center, one[-1])
        return super().images(moved)

    def coefficients(self, theta: Array) -> Array:
        """The transpose of Q times the coefficients of every model: what they are for rows as they came."""
        found = super().coefficients(theta)
        for one in found:
            one[-1] -= self.center @ one[:-1]
        return found


def mean_mechanism(problem: Problem, neighboring: Neighboring, noise_multiplier: float) -> GaussianMechanism:
    """The noisy sum of leveled records."""
    return leveled_mechanism(_sums_private_centering(problem), Linear(), 0.0, neighboring, noise_multiplier)


def released_center(
    problem: Problem, records: Records, mechanism: GaussianMechanism, entropy: Entropy
) -> CenteredBounds:
    """The bounds of centered rows, from one noisy sum of the records.

    A column counts as far as its sum exceeds its noise. Rows without their mean are shorter: from the squared norm that
    is allowed, the squared norm of the mean (estimated from below) and what the smaller constant spares are subtracted.
    Where not even the sum of the constants stands out, rows were far longer than the bound, and no center is known.
    """
    bounds = cast(LeveledBounds, problem.bounds)
    exact = bounds.images(records.weighted_sum(np.ones(records.n_samples))[None])[0]
    noisy = mechanism.release(exact, entropy)
    return center_from(noisy, mechanism.stddev, problem)


def center_from(noisy: Array, stddev: float, problem: Problem) -> CenteredBounds:
    """What a noisy sum of leveled records says about the center; a function of released numbers."""
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


def recentered(records: Records, bounds: CenteredBounds) -> Records:
    """The same rows, clipped once they are centered; nothing is copied."""
    return records.map_rows(_rebounded, bounds, width=records.n_columns, bounds=bounds, sparse=records.sparse)


def _rebounded(records: ArrayRecords, bounds: CenteredBounds) -> ArrayRecords:
    return ArrayRecords(
        records.matrix, records.labels, bounds, records.scales == 0, n_threads=records.n_threads
    )


def _sums_private_centering(problem: Problem) -> Problem:
    """The problem whose gradient at 0 is the sum of the records."""
    return replace(problem, loss=Linear(), n_models=1)
