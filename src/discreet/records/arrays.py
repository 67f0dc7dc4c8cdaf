"""Records in memory: the sums of `clipped_rows`, and the curvature of a loss over them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array, Mask
from discreet.losses import Loss
from discreet.losses.row_gradients import GradientLoss
from discreet.records.bounds import gradient_rounding
from discreet.records.clipped_rows import LANES, ClippedRows, add_up, by_row

__all__ = ["ArrayRecords", "gradient_rounding"]


class ArrayRecords(ClippedRows):
    """Sums over the clipped records v_i = s_i (x_i, 1) of a dense or CSR matrix.

    Every method returns a SUM over records, in float64. The clip and the intercept are applied on the fly: no
    clipped copy and no constant column is ever stored. Results do not depend on the number of threads.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_columns)
        float64 and float32 in C order are used in place; anything else numeric is converted a few rows at a time.
    y : array of shape (n_samples,)
        Labels in the form the loss expects: -1 / +1, real numbers, or class codes.
    bounds : Bounds
        The public bounds on rows.
    null_rows : boolean array, optional
        Rows to enter as null records, whatever they hold. A null record adds 0 to every sum, values included.
    n_threads : int, optional
        Defaults to the number of processors that this process may use, at most OMP_NUM_THREADS of the environment.

    Attributes
    ----------
    n_samples, n_features : int
        Number of records; length of a record, with the intercept (last).

    Privacy
    -------
    Each record is a function of its own row, its exact norm is at most ``bounds.feature_norm``, and
    ``gradient_rounding`` bounds how far a computed sum of gradients can be from the exact one
    (docs/proofs/rounding.md). Rows that are not finite raise an error unless they are in ``null_rows``. Such an
    error depends on the data, so callers that must not fail pass ``null_rows=~bounds.valid_rows(X)``. The constructor
    makes sure that a CSR ``matrix`` stores each entry at most once, whatever the container and flags of X, because
    norms of stored entries rely on it.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.records.bounds import Bounds
    >>> from discreet.losses import Logistic
    >>> records = ArrayRecords(np.array([[3.0, 4.0]]), [1.0], Bounds(feature_norm=1.0, intercept=False))
    >>> value, gradient = records.value_and_gradient(Logistic(), np.zeros(2))
    >>> round(value, 4), gradient.round(4)
    (0.6931, array([-0.3, -0.4]))
    """

    whole = True

    def take(self, rows: NDArray[np.int64], *, n_threads: int | None = 1) -> ArrayRecords:
        """Return the chosen records, clipped as before; their sums do not depend on the others."""
        chosen = self.matrix[rows], self.labels[rows], self.bounds, self._null[rows]
        return ArrayRecords(*chosen, n_threads=n_threads)

    def hessian_product(self, loss: Loss, theta: ArrayLike) -> Callable[[Array], Array]:
        """Return the map v -> H v for the Hessian of the summed loss at theta; one pass over the data per call."""
        point = self._check(loss, theta)
        if loss.n_outputs > 1:
            return functools.partial(self._softmax_hessian_product, loss, point)
        return self._weighted_product(self.curvatures(loss, point))

    def hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1, smoothing: float = 0.0) -> Array:
        """Return the Hessian of the summed loss as a matrix with theta.size rows; dense records only.

        ``every`` > 1 estimates it from every ``every``-th record. ``smoothing`` > 0 replaces f''(t) by the
        slope of f' over [t - smoothing, t + smoothing], which smooths the corner of a hinge.
        """
        point = self._check(loss, theta)
        if loss.n_outputs > 1:
            return self._gram_sum(
                loss, point, every, functools.partial(self._add_softmax_gram, loss), point.size
            )

        def add(rows: slice, block: Array, raw: Array, total: Array) -> None:
            y = self.labels[rows]
            if smoothing > 0:
                rise = loss.derivative(y, raw + smoothing) - loss.derivative(y, raw - smoothing)
                curvatures = np.maximum(rise, 0.0) / (2.0 * smoothing)  # rounding may leave -1e-17
            else:
                curvatures = loss.second_derivative(y, raw)
            self._add_gram(block, self.scales[rows] ** 2 * curvatures, total)

        return self._gram_sum(loss, point, every, add, self.n_features)

    def mean_class_hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1) -> Array:
        """Return sum_i (1 - |q_i|^2) / (K - 1) v_i v_i^T: a softmax's Hessian averaged over its outputs."""

        def add(rows: slice, block: Array, raw: Array, total: Array) -> None:
            spread = 1.0 - np.square(loss.probabilities(raw, self.labels[rows])).sum(axis=1)
            self._add_gram(block, self.scales[rows] ** 2 * spread / (loss.n_outputs - 1), total)

        return self._gram_sum(loss, self._check(loss, theta), every, add, self.n_features)

    def in_memory(self) -> ArrayRecords:
        """Return these records."""
        return self

    def curvatures(self, loss: Loss, theta: ArrayLike) -> Array:
        """Return s_i^2 f''(y_i, <v_i, theta>) for every record of a binary loss."""
        point = self._check(loss, theta)
        raw = self.raw_predictions(point)
        return np.asarray(self.scales**2 * loss.second_derivative(self.labels, raw))

    def additions(self, loss: Loss) -> int:
        """Return the most additions that a record's term passes through: in its block, its lane, and over lanes.

        Never more than there are records, because each addition merges two disjoint sets of them.
        """
        rows = max((lane.stop - lane.start for lane in self._lanes), default=0)
        together = self._height if self._compiled(loss) and not self.sparse else self._chunk
        return min(self.n_samples, together + (rows // together + 1) + LANES)

    # -- pieces --------------------------------------------------------------------------------------------

    def _softmax_hessian_product(self, loss: Loss, theta: Array, direction: Array) -> Array:
        """Probabilities are recomputed block by block: keeping them would cost n x K numbers."""
        vector = np.ascontiguousarray(direction, dtype=np.float64).reshape(theta.shape)

        def lane_sum(lane: slice) -> Array:
            total = np.zeros(theta.shape)
            for rows, block in self._blocks(lane):
                scales, raw = self._raw_predictions(rows, block, theta)
                q = loss.probabilities(raw, self.labels[rows])
                moved = q * by_row(scales, self._dots(block, vector))
                moved -= q * moved.sum(axis=1, keepdims=True)
                self._combine(block, by_row(scales, moved), total)
            return total

        return add_up(self._map(lane_sum), theta.shape)

    def _gram_sum(
        self,
        loss: Loss,
        theta: Array,
        every: int,
        add: Callable[[slice, Array, Array, Array], None],
        size: int,
    ) -> Array:
        """Sum matrices of ``size`` rows that depend on raw predictions at theta, as ``_dense_sum`` does."""
        if self.sparse:
            raise ValueError("dense Hessians of CSR records are not formed; use hessian_product")

        def with_raw(rows: slice, block: Array, total: Array) -> None:
            add(rows, block, self._raw_predictions(rows, block, theta)[1], total)

        return self._dense_sum(with_raw, size, every)

    def _add_softmax_gram(self, loss: Loss, rows: slice, block: Array, raw: Array, total: Array) -> None:
        """total += sum_i (v_i v_i^T) kron (diag(q_i) - q_i q_i^T), theta flattened row by row."""
        p, n_classes = self.n_features, raw.shape[1]
        blocks = total.reshape(p, n_classes, p, n_classes)
        records = np.ones((len(block), p))
        records[:, : self.n_columns] = block
        records *= self.scales[rows][:, None]
        q = loss.probabilities(raw, self.labels[rows])
        for a in range(n_classes):
            weighted = records * q[:, a, None]
            blocks[:, a, :, a] += weighted.T @ records
            for b in range(a + 1):
                part = weighted.T @ (records * q[:, b, None])
                blocks[:, a, :, b] -= part
                if b < a:
                    blocks[:, b, :, a] -= part.T


# -- Rows for losses that give the gradient of each record: sums of clipped gradients ----------------------------


_ROWS = 256  # rows that are summed at a time, and passed to a batch function


@dataclass(frozen=True)
class RowGradients:
    """Unchanged rows and labels, for gradients that are clipped one by one.

    Attributes
    ----------
    X : array or CSR matrix of shape (n_samples, n_columns).
    labels : one number per row.
    null : rows that add nothing to any sum.

    Privacy
    -------
    Each term of a sum is a function of its own row and theta, of norm at most ``loss.clip``; it passes at most
    256 + n / 256 additions, which `discreet.records.bounds.worst_additions` covers.
    """

    X: Any
    labels: Array
    null: Mask

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.labels)

    def value_and_gradient(self, loss: GradientLoss, theta: Array) -> tuple[float, Array]:
        """Return no value, and the sum of the clipped gradients."""
        return math.nan, self.gradient(loss, theta)

    def gradient(self, loss: GradientLoss, theta: Array) -> Array:
        """Return the sum of the clipped gradients."""
        total = np.zeros(theta.size)
        for start in range(0, self.n_samples, _ROWS):
            rows = slice(start, start + _ROWS)
            if not self.null[rows].all():
                total += self._gradients(loss, theta.ravel(), rows).sum(axis=0)
        return total.reshape(theta.shape)

    def _gradients(self, loss: GradientLoss, theta: Array, rows: slice) -> Array:
        """Return clipped gradients of a few rows, 0 for null rows, which a batch function sees as zeros."""
        block, y, null = self.X[rows], self.labels[rows], self.null[rows]
        dense = np.array(block.toarray() if bool(sp.issparse(block)) else block, dtype=np.float64)
        dense[null] = 0.0
        found = np.zeros((len(y), theta.size))
        asked = slice(None) if loss.batch else ~null
        found[asked] = loss.rows(theta, dense[asked], np.where(null, 0.0, y)[asked])
        found[null] = 0.0
        return found

    def in_memory(self) -> RowGradients:
        """Return these records."""
        return self

    def take(self, rows: NDArray[np.int64]) -> RowGradients:
        """Return the chosen records."""
        return RowGradients(self.X[rows], self.labels[rows], self.null[rows])
