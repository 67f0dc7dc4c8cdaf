"""Sums of the rows of every class, released together.

A row enters as its positive part, its negative part and a constant, so no entry is negative. Two such rows never form
an obtuse angle, so replacing one within a class moves the sums no more than moving a row to another class. Proofs:
docs/proofs/discriminant.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.losses import Linear
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds, gradient_rounding

CONSTANT = 0.25  # next to a row of norm 1, unless a solver asks for another power of two
_DOUBT = 3.0  # standard deviations by which the sum of all counts may miss the declared number of rows


@dataclass(frozen=True)
class NoisyClassSums:
    """Noisy sums in units of the longest row.

    Attributes
    ----------
    features : sums of rows, one per class.
    sizes : sums of absolute values, over all classes.
    counts : number of rows in every class; a clipped row counts as the fraction that is left of it.
    left : mean fraction of a row that is left after clipping; 1 if the number of rows is private.
    variance, count_variance : variance of the noise in one number of ``features`` and of ``counts``.
    constant : the constant next to a row of norm 1.
    """

    features: Array
    sizes: Array
    counts: Array
    left: float
    variance: float
    count_variance: float
    constant: float = CONSTANT


@dataclass(frozen=True)
class ClassSumsMechanism:
    """Release the noisy sums of all classes for rows clipped to ``row_norm``.

    Privacy
    -------
    Gaussian DP with parameter 1 / noise_multiplier (Theorem 1 of docs/proofs/discriminant.md).
    """

    n_samples: int
    n_columns: int
    n_classes: int
    row_norm: float
    neighboring: Neighboring
    noise_multiplier: float
    row_error: float = 0.0  # bound on the rounding error of a row
    constant: float = CONSTANT

    @property
    def bounds(self) -> Bounds:
        """The bounds of a row with its constant."""
        return Bounds(self.row_norm * math.sqrt(1 + self.constant**2) * SLACK, intercept=False)

    @property
    def width(self) -> int:
        """Number of columns of a split row."""
        return 2 * self.n_columns + 1

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism for all sums."""
        norm = self.bounds.feature_norm
        rounding = gradient_rounding(Linear(), self.n_samples, self.width, norm, 0.0)
        exact = acute_sum_sensitivity(norm, self.neighboring).value
        errors = math.sqrt(self.n_classes) * rounding + self.n_samples * self.row_error
        computed = (exact + 2.0 * errors) * SLACK
        return GaussianMechanism(Sensitivity(computed), self.noise_multiplier, self.n_classes * self.width)

    def release(self, records: Records, codes: NDArray[Any], entropy: Entropy) -> NoisyClassSums:
        """Release the noisy sums; ``codes`` are class numbers, ignored for null records."""
        rows = split(records, self.row_norm * self.constant, self.bounds)
        return self.noisy(np.stack([rows.weighted_sum(codes == k) for k in range(self.n_classes)]), entropy)

    def noisy(self, exact: Array, entropy: Entropy) -> NoisyClassSums:
        """Release the noisy sums of split rows, one row of sums per class."""
        return self.read(self.gaussian.release(exact.ravel(), entropy).reshape(exact.shape) / self.row_norm)

    def read(self, noisy: Array) -> NoisyClassSums:
        """Interpret released sums. Negative parts that sum to at most half of the positive ones count as noise."""
        positive, negative = noisy[:, : self.n_columns], noisy[:, self.n_columns : -1]
        variance = (self.gaussian.stddev / self.row_norm) ** 2
        counts = noisy[:, -1] / self.constant
        left = 1.0
        missing = self.n_samples - float(counts.sum())
        doubt = math.sqrt(self.n_classes * variance) / self.constant
        if abs(missing) <= _DOUBT * doubt:
            counts = counts + missing / self.n_classes
        elif self.neighboring.size_is_public:
            left = min(1.0, max(float(counts.sum()), 2 * doubt) / self.n_samples)
        features, sizes, terms = positive, positive, 1
        if 2 * negative.sum() > positive.sum():
            features, sizes, terms = positive - negative, positive + negative, 2
        variances = terms * variance, variance / self.constant**2
        return NoisyClassSums(features, sizes.sum(axis=0), counts, left, *variances, self.constant)


def split(records: Records, constant: float, bounds: Bounds) -> Records:
    """Return a copy of the rows as positive parts, negative parts and a constant, clipped by ``bounds``."""
    width = 2 * records.n_columns + 1
    return records.map_rows(_split, constant, bounds, width=width, bounds=bounds, sparse=records.sparse)


def _split(records: ArrayRecords, constant: float, bounds: Bounds) -> ArrayRecords:
    null = records.scales == 0
    if records.sparse:
        matrix: Any = _split_sparse(records.matrix, constant)
    else:
        rows = np.where(null[:, None], 0.0, records.matrix)
        matrix = np.hstack([np.maximum(rows, 0.0), np.maximum(-rows, 0.0), np.full((len(rows), 1), constant)])
    return ArrayRecords(matrix, records.labels, bounds, null, n_threads=records.n_threads)


def _split_sparse(matrix: Any, constant: float) -> Any:
    n_rows, n_columns = matrix.shape
    starts = matrix.indptr + np.arange(n_rows + 1, dtype=np.int64)
    ends = starts[1:] - 1  # the constant of a row is its last entry
    places = np.ones(int(starts[-1]), dtype=bool)
    places[ends] = False
    # SciPy would check 64-bit indices and copy them to 32 bits in every part of the rows.
    index = np.int32 if max(2 * n_columns, len(places)) <= np.iinfo(np.int32).max else np.int64
    sizes, columns = np.empty(len(places)), np.empty(len(places), dtype=index)
    sizes[places], sizes[ends] = (
        np.abs(matrix.data.astype(np.float64)),
        constant,
    )  # abs(-128) is negative for int8
    negative = matrix.data < 0
    parts = matrix.indices + np.where(negative, n_columns, 0) if negative.any() else matrix.indices
    columns[places], columns[ends] = parts, 2 * n_columns
    return sp.csr_array((sizes, columns, starts.astype(index)), shape=(n_rows, 2 * n_columns + 1))
