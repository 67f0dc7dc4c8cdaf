"""Rows without their private mean: what is left of the norm is what tells rows apart.

Rows of counts mostly agree: a few columns that are large in all of them. Where one class is rare, every gradient at the
start points along that common part, which ranks nothing, and descent must first undo it. One noisy sum of the records
shows the columns that stand out; their mean, times the constant, is taken off every row. The map Q takes
(x, t) to (L (x - a t), c t): L removes the mean of the entries, a is the center, c what is kept of the constant.
Proofs: docs/proofs/gradient-methods.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from discreet.losses import Linear
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.privacy.guarantee import Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.parts import PartitionedRecords
from discreet.solvers.leveled import LeveledBounds, leveled_mechanism

Array = NDArray[np.float64]

_SLACK = 1 + 2.0**-40
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
        return (1.0 + float(np.linalg.norm(self.center))) * _SLACK

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
    return leveled_mechanism(_sums(problem), Linear(), 0.0, neighboring, noise_multiplier)


def released_center(
    problem: Problem, records: ArrayRecords, mechanism: GaussianMechanism, entropy: Entropy
) -> CenteredBounds:
    """The bounds of centered rows, from one noisy sum of the records.

    A column counts as far as its sum exceeds its noise. Rows without their mean are shorter: from the squared norm that
    is allowed, the squared norm of the mean (estimated from below) and what the smaller constant spares are subtracted.
    Where not even the sum of the constants stands out, rows were far longer than the bound, and no center is known.
    """
    bounds = cast(LeveledBounds, problem.bounds)
    ones = records.with_labels(np.ones(records.n_samples))
    exact = bounds.images(-ones.value_and_gradient(Linear(), np.zeros(problem.n_features))[1][None])[0]
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


def recentered(records: ArrayRecords, bounds: CenteredBounds) -> ArrayRecords:
    """The same rows, clipped once they are centered; nothing is copied."""
    if isinstance(records, PartitionedRecords):
        made = records.derived(recentered, bounds, width=records.n_columns, bounds=bounds)
        made.sparse = records.sparse
        return cast(ArrayRecords, made)
    return ArrayRecords(
        records.matrix, records.labels, bounds, records.scales == 0, n_threads=records.n_threads
    )


def _sums(problem: Problem) -> Problem:
    """The problem whose gradient at 0 is the sum of the records."""
    return replace(problem, loss=Linear(), n_models=1)
