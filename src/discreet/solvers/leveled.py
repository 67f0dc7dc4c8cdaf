"""Rows without what all of them share by convention: their mean, and half of the intercept.

Wide rows often point one way: entries of one sign have a large mean, and the constant of the intercept is as long as a
row of norm 1. Noise along such a direction shifts all predictions together, and the direction takes up room in the norm
that noise must hide. Both directions are known before any data is seen. The linear map Q takes the mean off a row and
halves its constant; records are clipped by the norm that is left. Proofs: docs/proofs/gradient-methods.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.bounds import Bounds, without_duplicates
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.privacy.guarantee import Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.kernels import gamma, gradient_rounding

Array = NDArray[np.float64]

_SLACK = 1 + 2.0**-40
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
    """Squared norms, sums and weighted sums of the rows, block by block; without weights the last are 0."""
    sparse = bool(sp.issparse(X))
    height = 1 << 16 if sparse else max(1, _BLOCK_ENTRIES // max(1, X.shape[1]))
    for start in range(0, X.shape[0], height):
        block: Any = X[start : start + height].astype(np.float64)
        squares = block.multiply(block).sum(axis=1) if sparse else np.einsum("ij,ij->i", block, block)
        weighted = np.zeros(block.shape[0]) if weights is None else block @ weights
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
    rounding = gradient_rounding(field, n, p, longest, radius * growth * _SLACK)
    rounding += 1.02 * gamma(p + 8) * n * longest * field.lipschitz  # of the leveling itself
    one = neighboring.contributions * field.lipschitz * norm + 2 * growth * rounding
    every = Sensitivity(one * _SLACK * math.sqrt(problem.n_models))
    return GaussianMechanism(every, noise_multiplier, problem.n_coefficients)
