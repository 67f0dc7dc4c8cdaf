"""Sums of the rows of every class, released together, and the rows with weighted columns that enter them.

A row enters as its positive part, its negative part and a constant, so no entry is negative. Two such rows never form
an obtuse angle, so replacing one within a class moves the sums no more than moving a row to another class. Proofs:
docs/proofs/discriminant.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import softmax

from discreet._typing import Array
from discreet.losses import Linear, Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds, chunked_sum, gamma, gradient_rounding, row_products

UNIT = Bounds(1.0, intercept=False)
_LARGEST_LOG = 10.0  # row lengths are clipped to between 2^-10 and 2^10 times the bound
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


# -- rows with weighted columns, scaled to norm 1, for the sums of wide rows -------------------------------------------
#
# Each row is a function of its own record and of published weights, so every later release is as private as if the
# weights had been known in advance. Proofs: docs/proofs/text.md.


def focused_part(records: ArrayRecords, weights: Array) -> ArrayRecords:
    """Return the records d x / |d x| for column weights d; null records and rows without a weighted entry are 0.

    Rows d x are stored, and scales s of which the exact norm of s d x is at most 1 (rounding.md, section 1).
    """
    if records.sparse:
        matrix = records.matrix
        entries = matrix.data.astype(np.float64)
        if not (weights == 1).all():
            entries *= weights[matrix.indices]
        norms = _segment_norms(entries, np.asarray(matrix.indptr, dtype=np.int64))
        rows = _with_entries(matrix, entries)
    else:
        null = records.scales == 0
        rows = np.where(null[:, None], 0.0, np.asarray(records.matrix, dtype=np.float64)) * weights
        norms = np.sqrt(row_products(rows))
    return records.with_rows(rows, _inverse(norms) * (1.0 - (records.n_columns + 32) * 2.0**-52), UNIT)


def split_sums(records: ArrayRecords, weights: Array, factors: Array, constant: float) -> Array:
    """Return sums of (z+, z-, constant) over the records, z as in `focused_part`: one row for each row of ``factors``.

    A record counts ``factors[., k]`` times if its class is number k; null records do not count.
    """
    part = focused_part(records, weights)
    used, labels = records.scales > 0, records.labels
    codes = np.where(used, labels > 0 if factors.shape[1] == 2 else labels, 0).astype(np.int64)
    entries = part.matrix.data if part.sparse else part.matrix
    cuts = np.maximum(entries, 0.0), np.maximum(-entries, 0.0)  # both, so that all data take the same steps
    rows = [part.with_rows(_with_entries(part.matrix, cut), part.scales, UNIT) for cut in cuts]
    sums = np.zeros((len(factors), 2 * part.n_columns + 1))
    for one, factor in zip(sums, factors, strict=True):
        counts = np.where(used, factor[codes], 0.0)
        for place, signed in enumerate(rows):
            one[place * part.n_columns :][: part.n_columns] = signed.weighted_sum(counts)
        one[-1] = constant * chunked_sum(counts[:, None])[0]
    return sums


def row_error(n_columns: int) -> float:
    """Bound the rounding error of a focused row."""
    return 1.01 * gamma(n_columns + 32)


def _segment_norms(entries: Array, starts: NDArray[np.int64]) -> Array:
    """Return the norms of the rows of a sparse matrix.

    Where squares could over- or underflow, entries are first scaled near 1.
    """
    lengths = np.diff(starts)
    with np.errstate(all="ignore"):
        squares = _reduced(np.add, np.square(entries), lengths)
        norms = np.sqrt(squares)
    extreme = ~((squares > 2.0**-400) & (squares < 2.0**400)) & (lengths > 0)
    if extreme.any():
        few, sizes = entries[np.repeat(extreme, lengths)], lengths[extreme]
        largest = _reduced(np.maximum, np.abs(few), sizes)
        few *= np.repeat(_inverse(largest), sizes)
        norms[extreme] = largest * np.sqrt(_reduced(np.add, np.square(few), sizes))
    return np.asarray(norms)


def _reduced(operation: np.ufunc, entries: Array, lengths: NDArray[np.int64]) -> Array:
    """Reduce the entries of every row; 0 for empty rows."""
    found = np.zeros(len(lengths))
    occupied = np.flatnonzero(lengths)
    if len(occupied):
        found[occupied] = operation.reduceat(entries, (np.cumsum(lengths) - lengths)[occupied])
    return found


def _with_entries(rows: Any, entries: Array) -> Any:
    """Return a matrix with other entries in the same places."""
    if isinstance(rows, np.ndarray):
        return entries
    other = copy.copy(rows)
    other.data = entries
    return other


def _inverse(norms: Array) -> Array:
    usable = (norms > 2.0**-300) & (norms < 2.0**300)
    return np.where(usable, 1.0 / np.where(usable, norms, 1.0), 0.0)


def log_lengths(records: ArrayRecords, bound: float) -> Array:
    """Sum log2(|x| / bound) / 10 over the rows, each term clipped to [-1, 1]; empty rows add 0."""
    if records.sparse:
        matrix = records.matrix
        norms = _segment_norms(matrix.data.astype(np.float64), np.asarray(matrix.indptr, dtype=np.int64))
    else:
        rows = np.where(records.scales[:, None] > 0, np.asarray(records.matrix, dtype=np.float64), 0.0)
        norms = np.linalg.norm(rows, axis=1)
    known = (norms > 0) & (records.scales > 0)
    logs = np.log2(np.where(known, norms, bound) / bound) / _LARGEST_LOG
    return chunked_sum(np.where(known, np.clip(logs, -1.0, 1.0), 0.0)[:, None])


def length_of(mean_log: float) -> float:
    """Return the typical length, in units of the bound, from a mean of `log_lengths`."""
    return float(2.0 ** (_LARGEST_LOG * min(max(mean_log, -1.0), 1.0)))


def clipped_scores(records: ArrayRecords, matrix: Array, longest: float) -> Array:
    """Sum the scores of the records along the columns of a matrix, each clipped to +-longest."""
    raw = np.column_stack([records.raw_predictions(column) for column in matrix.T])
    return chunked_sum(np.clip(raw, -longest, longest))


def capped_residuals(records: ArrayRecords, weights: Array, loss: Loss, theta: Array, cap: float) -> Array:
    """Return sum_i r_i z_i for the focused rows z_i, where the residual r_i is clipped to +-cap.

    r_i is minus the derivative of the loss; for a softmax of two classes, that of the second class.
    """
    raw = records.raw_predictions(theta)
    null = records.scales == 0
    if loss.n_outputs == 1:
        missing = -loss.derivative(np.where(null, 1.0, records.labels), raw)
    else:
        missing = (records.labels == 1) - softmax(raw, axis=1)[:, 1]
    rows = focused_part(records, weights)
    return rows.weighted_sum(np.where(null, 0.0, np.clip(missing, -cap, cap)))
