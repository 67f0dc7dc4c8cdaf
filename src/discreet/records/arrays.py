"""Records held in memory: NumPy matrices and SciPy CSR matrices, summed over in one deterministic pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.losses import Loss, Softmax
from discreet.records import kernels
from discreet.records.compiling import WIDTH
from discreet.records.kernels import gradient_rounding
from discreet.records.softmax_kernel import MOST_CLASSES
from discreet.records.sparse_kernel import sparse_loss_and_gradient
from discreet.records.storage import COPY_ENTRIES, LANES, ClippedRows, one_blas_thread
from discreet.records.tiles import by_class, by_feature, groups, wide

__all__ = ["ArrayRecords", "gradient_rounding"]

Array = NDArray[np.float64]


class ArrayRecords(ClippedRows):
    """Sums over the clipped records v_i = s_i (x_i, 1) of a dense or CSR matrix.

    Every method returns a SUM over records, in float64. The clip and the intercept are applied on the fly: no
    clipped copy and no constant column is ever stored. Results do not depend on the number of threads.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_columns)
        float64 and float32 in C order are used in place; anything else numeric is converted a few rows at a time.
    y : array of shape (n_samples,)
        Labels as the loss wants them: -1 / +1, real numbers, or class codes.
    bounds : Bounds
        The public promise about rows.
    null_rows : boolean array, optional
        Rows to enter as null records, whatever they hold. A null record adds 0 to every sum, values included.
    n_threads : int, optional
        Defaults to the processors this process may use, or to the environment's OMP_NUM_THREADS if that is less.

    Attributes
    ----------
    n_samples, n_features : int
        Number of records; length of a record, with the intercept (last).

    Privacy
    -------
    Each record is a function of its own row, its exact norm is at most ``bounds.feature_norm``, and
    ``gradient_rounding`` bounds how far a computed sum of gradients can be from the exact one
    (docs/proofs/rounding.md). Rows that are not finite are refused unless they are named in ``null_rows``:
    refusing looks at the data, so callers that must not fail pass ``null_rows=~bounds.valid_rows(X)``.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.bounds import Bounds
    >>> from discreet.losses import Logistic
    >>> records = ArrayRecords(np.array([[3.0, 4.0]]), [1.0], Bounds(feature_norm=1.0, intercept=False))
    >>> value, gradient = records.value_and_gradient(Logistic(), np.zeros(2))
    >>> round(value, 4), gradient.round(4)
    (0.6931, array([-0.3, -0.4]))
    """

    @property
    def matrix(self) -> Any:
        """The rows as they are stored, not clipped; with null rows emptied where they are sparse. Not to be changed."""
        return self._X

    @property
    def scales(self) -> Array:
        """s_i for every row, 0 for null records. Not to be changed."""
        return self._scales

    @property
    def labels(self) -> Array:
        """One number per row, 0 for null records. Not to be changed."""
        return self._y

    def dense(self, rows: slice) -> Array:
        """A dense float64 copy of some rows, not clipped, with null rows zeroed."""
        return np.asarray(self._X[rows].toarray(), dtype=np.float64) if self.sparse else self._copy_rows(rows)

    def take(self, rows: NDArray[np.int64], *, n_threads: int | None = 1) -> ArrayRecords:
        """The chosen records, clipped as before; their sums do not look at the others."""
        chosen = self._X[rows], self._y[rows], self.bounds, self._null[rows]
        return ArrayRecords(*chosen, n_threads=n_threads)

    def value_and_gradient(self, loss: Loss, theta: ArrayLike) -> tuple[float, Array]:
        """The sum of losses and the sum of their gradients; the gradient has the shape of theta."""
        point = self._check(loss, theta)
        if self._compiled(loss):
            return self._fused_sums(loss, point)
        if type(loss) in kernels.COMPILED_LOSSES:
            return self._sparse_sums(loss, point)

        def lane_sum(lane: slice) -> tuple[float, Array]:
            value, gradient = 0.0, np.zeros(point.shape)
            for rows, block in self._blocks(lane):
                if not self.sparse:
                    # Chunks with null records are float64 copies; all must take the same path, because where a
                    # derivative jumps the last bit of a prediction decides (gradient-methods.md, "Corners").
                    block = np.asarray(block, dtype=np.float64)
                scales, raw = self._raw_predictions(rows, block, point)
                losses, derivatives = self._pointwise(loss, rows, raw)
                value += float(np.where(scales > 0, losses, 0.0).sum())
                self._combine(block, _by_row(scales, derivatives), gradient)
            return value, gradient

        return _totals(self._map(lane_sum), point.shape)

    def raw_predictions(self, theta: ArrayLike) -> Array:
        """<v_i, theta> for every record (0 for null records)."""
        point = np.ascontiguousarray(theta, dtype=np.float64)
        raw = np.empty((self.n_samples, *point.shape[1:]))

        def lane_fill(lane: slice) -> None:
            for rows, block in self._blocks(lane, whole=point.ndim == 1 and self.n_columns >= WIDTH):
                raw[rows] = self._raw_predictions(rows, block, point)[1]

        self._map(lane_fill)
        return raw

    def hessian_product(self, loss: Loss, theta: ArrayLike) -> Callable[[Array], Array]:
        """The map v -> H v for the Hessian of the summed loss at theta; one pass over the data per call."""
        point = self._check(loss, theta)
        if isinstance(loss, Softmax):
            return functools.partial(self._softmax_hessian_product, loss, point)
        weights = self.curvatures(loss, point)

        def product(direction: Array) -> Array:
            vector = np.ascontiguousarray(direction, dtype=np.float64)

            def sparse_sum(lane: slice) -> Array:
                total = np.zeros(self.n_features)
                for rows, block in self._blocks(lane):
                    self._combine(block, weights[rows] * self._dots(block, vector), total)
                return total

            if self.sparse:
                return _total(self._map(sparse_sum), vector.shape)
            spread = by_class(vector, self.n_columns)

            def lane_sum(lane: slice) -> Array:
                total = np.zeros(spread.shape)
                for rows, block in self._wide_blocks(lane):
                    kernels.weighted_product(block, weights[rows], spread, groups(1), self._height, total)
                return total

            return by_feature(_total(self._map(lane_sum), spread.shape), self.n_columns, vector.shape)

        return product

    def hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1, smoothing: float = 0.0) -> Array:
        """The Hessian of the summed loss as a matrix with theta.size rows; dense records only.

        ``every`` > 1 estimates it from every ``every``-th record. ``smoothing`` > 0 replaces f''(t) by the
        slope of f' over [t - smoothing, t + smoothing], which sees the corner of a hinge before reaching it.
        """
        point = self._check(loss, theta)
        if isinstance(loss, Softmax):
            return self._gram_sum(loss, point, every, self._add_softmax_gram, point.size)

        def add(rows: NDArray[np.int64], block: Array, raw: Array, total: Array) -> None:
            y = self._y[rows]
            if smoothing > 0:
                rise = loss.derivative(y, raw + smoothing) - loss.derivative(y, raw - smoothing)
                curvatures = np.maximum(rise, 0.0) / (2.0 * smoothing)  # rounding may leave -1e-17
            else:
                curvatures = loss.second_derivative(y, raw)
            self._add_gram(block, self._scales[rows] ** 2 * curvatures, total)

        return self._gram_sum(loss, point, every, add, self.n_features)

    def mean_class_hessian(self, loss: Softmax, theta: ArrayLike, *, every: int = 1) -> Array:
        """sum_i (1 - |q_i|^2) / (K - 1) v_i v_i^T: a softmax's Hessian averaged over its outputs."""

        def add(rows: NDArray[np.int64], block: Array, raw: Array, total: Array) -> None:
            spread = 1.0 - np.square(loss.probabilities(raw)).sum(axis=1)
            self._add_gram(block, self._scales[rows] ** 2 * spread / (loss.n_classes - 1), total)

        return self._gram_sum(loss, self._check(loss, theta), every, add, self.n_features)

    def curvatures(self, loss: Loss, theta: ArrayLike) -> Array:
        """s_i^2 f''(y_i, <v_i, theta>) for every record of a binary loss."""
        point = self._check(loss, theta)
        raw = self.raw_predictions(point)
        return np.asarray(self._scales**2 * loss.second_derivative(self._y, raw))

    def gradient_rounding(self, loss: Loss, theta_norm: float) -> float:
        """A proved bound on the L2 error of ``value_and_gradient``'s gradient at any theta of this norm."""
        sizes = self.n_samples, self.n_features
        radius = self.bounds.feature_norm
        return kernels.gradient_rounding(loss, *sizes, radius, theta_norm, self.additions(loss))

    def additions(self, loss: Loss) -> int:
        """Additions a record's term can pass through: in its block or chunk, its lane, and over lanes.

        Never more than there are records, because each addition merges two disjoint sets of them.
        """
        rows = max((lane.stop - lane.start for lane in self._lanes), default=0)
        together = self._height if self._compiled(loss) else self._chunk
        return min(self.n_samples, together + (rows // together + 1) + LANES)

    # -- pieces --------------------------------------------------------------------------------------------

    def _compiled(self, loss: Loss) -> bool:
        if type(loss) in kernels.COMPILED_SOFTMAXES:
            return not self.sparse and loss.n_outputs <= MOST_CLASSES
        return not self.sparse and type(loss) in kernels.COMPILED_LOSSES

    def _wide_blocks(self, lane: slice) -> Iterator[tuple[slice, Any]]:
        """The lane's rows as the compiled kernels want them; rows of few columns are copied chunk by chunk."""
        for rows, block in self._blocks(lane, whole=self.n_columns >= WIDTH):
            yield rows, wide(block)

    def _fused_sums(self, loss: Loss, theta: Array) -> tuple[float, Array]:
        """Value and gradient by a compiled pass."""
        weights = by_class(theta, self.n_columns)
        kernel, sizes = kernels.kernel_of(loss), groups(len(weights))

        def lane_sum(lane: slice) -> tuple[float, Array]:
            value, gradient = 0.0, np.zeros(weights.shape)
            for rows, block in self._wide_blocks(lane):
                labelled = block, self._y[rows], self._scales[rows]
                value += kernels.loss_and_gradient(*kernel, *labelled, weights, sizes, self._height, gradient)
            return value, gradient

        value, gradient = _totals(self._map(lane_sum), weights.shape)
        return value, by_feature(gradient, self.n_columns, theta.shape)

    def _sparse_sums(self, loss: Loss, theta: Array) -> tuple[float, Array]:
        """Value and gradient by a compiled pass over the entries."""
        matrix, kernel = (self._X.data, self._X.indices, self._X.indptr), kernels.kernel_of(loss)

        def lane_sum(lane: slice) -> tuple[float, Array]:
            value, parts = 0.0, []
            for rows, _ in self._blocks(lane):
                place, part = (self.n_columns, rows.start, rows.stop), np.zeros(theta.shape)
                value += sparse_loss_and_gradient(
                    *kernel, *matrix, *place, self._y, self._scales, theta, part
                )
                parts.append(part)
            return value, _total(parts, theta.shape)

        return _totals(self._map(lane_sum), theta.shape)

    def _raw_predictions(self, rows: Any, block: Any, theta: Array) -> tuple[Array, Array]:
        """The scales and raw predictions of a block of rows."""
        scales = self._scales[rows]
        return scales, _by_row(scales, self._dots(block, theta))

    def _dots(self, block: Any, theta: Array) -> Array:
        """<(x, 1), theta> for the rows of a block."""
        if not self.sparse and theta.ndim == 1:
            dots = np.empty((1, block.shape[0]))
            kernels.dot_products(wide(block), by_class(theta, self.n_columns), groups(1), self._height, dots)
            return cast(Array, dots[0])
        dots = block @ theta[: self.n_columns]
        if self.bounds.intercept:
            dots += theta[-1]
        return cast(Array, dots)

    def _combine(self, block: Any, coefficients: Array, total: Array) -> None:
        """total += sum_i coefficients_i (x_i, 1)."""
        total[: self.n_columns] += block.T @ coefficients
        if self.bounds.intercept:
            total[-1] += coefficients.sum(axis=0)

    def _pointwise(self, loss: Loss, rows: slice, raw: Array) -> tuple[Array, Array]:
        if isinstance(loss, Softmax):
            return loss.value_and_derivative(self._y[rows], raw)
        return loss.value(self._y[rows], raw), loss.derivative(self._y[rows], raw)

    def _softmax_hessian_product(self, loss: Softmax, theta: Array, direction: Array) -> Array:
        """Probabilities are recomputed block by block: keeping them would cost n x K numbers."""
        vector = np.ascontiguousarray(direction, dtype=np.float64).reshape(theta.shape)

        def lane_sum(lane: slice) -> Array:
            total = np.zeros(theta.shape)
            for rows, block in self._blocks(lane):
                scales, raw = self._raw_predictions(rows, block, theta)
                q = loss.probabilities(raw)
                moved = q * _by_row(scales, self._dots(block, vector))
                moved -= q * moved.sum(axis=1, keepdims=True)
                self._combine(block, _by_row(scales, moved), total)
            return total

        return _total(self._map(lane_sum), theta.shape)

    def _gram_sum(
        self,
        loss: Loss,
        theta: Array,
        every: int,
        add: Callable[[NDArray[np.int64], Array, Array, Array], None],
        size: int,
    ) -> Array:
        """Sum matrices of ``size`` rows over every ``every``-th record, scaled up to all records."""
        if self.sparse:
            raise ValueError("dense Hessians of CSR records are not formed; use hessian_product")
        # Many columns: enough rows that adding a block's matrix to the sum costs little beside forming it.
        height = max(16, COPY_ENTRIES // max(1, self.n_columns), min(self.n_columns, 1024))
        chosen = np.arange(0, self.n_samples, every)

        def part_sum(rows: NDArray[np.int64]) -> Array:
            total = np.zeros((size, size))
            for start in range(0, len(rows), height):
                block_rows = rows[start : start + height]
                block = self._copy_rows(block_rows)
                add(block_rows, block, self._raw_predictions(block_rows, block, theta)[1], total)
            return total

        with one_blas_thread:
            sums = np.sum(self._run(part_sum, np.array_split(chosen, LANES // 2)), axis=0)
        return np.asarray(sums * (self.n_samples / max(1, len(chosen))))

    def _add_gram(self, block: Array, weights: Array, total: Array) -> None:
        """total += sum_i weights_i (x_i, 1) (x_i, 1)^T for weights >= 0; overwrites the block."""
        d = self.n_columns
        if self.bounds.intercept:
            edge = weights @ block
            total[d, :d] += edge
            total[:d, d] += edge
            total[d, d] += weights.sum()
        block *= np.sqrt(weights)[:, None]
        total[:d, :d] += block.T @ block

    def _add_softmax_gram(self, rows: NDArray[np.int64], block: Array, raw: Array, total: Array) -> None:
        """total += sum_i (v_i v_i^T) kron (diag(q_i) - q_i q_i^T), theta flattened row by row."""
        p, n_classes = self.n_features, raw.shape[1]
        blocks = total.reshape(p, n_classes, p, n_classes)
        records = np.ones((len(rows), p))
        records[:, : self.n_columns] = block
        records *= self._scales[rows][:, None]
        q = Softmax(n_classes).probabilities(raw)
        for a in range(n_classes):
            weighted = records * q[:, a, None]
            blocks[:, a, :, a] += weighted.T @ records
            for b in range(a + 1):
                part = weighted.T @ (records * q[:, b, None])
                blocks[:, a, :, b] -= part
                if b < a:
                    blocks[:, b, :, a] -= part.T

    def _check(self, loss: Loss, theta: ArrayLike) -> Array:
        """Theta as a contiguous array of the right shape, after a check of the labels."""
        point = np.ascontiguousarray(theta, dtype=np.float64)
        shape = (self.n_features,) if loss.n_outputs == 1 else (self.n_features, loss.n_outputs)
        if point.shape != shape:
            raise ValueError(f"theta must have shape {shape}, got {point.shape}")
        self.check_labels(loss)
        return point

    def check_labels(self, loss: Loss) -> None:
        """Refuse labels that the loss does not know; looks at them once per loss."""
        if loss in self._checked_losses:
            return
        if np.any(bad := ~loss.valid_labels(self._y) & ~self._null):
            raise ValueError(
                f"{int(bad.sum())} labels are not valid for {loss}, the first in row "
                f"{int(np.argmax(bad))}; encode the labels, or name the rows in null_rows"
            )
        self._checked_losses.add(loss)


def _total(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """The sum of parts from first to last, in the memory of the first; zeros where there are no records."""
    if not parts:
        return np.zeros(shape)
    total, *others = parts
    for other in others:
        total += other
    return total


def _totals(parts: list[tuple[float, Array]], shape: tuple[int, ...]) -> tuple[float, Array]:
    """The sums of the lanes' values and gradients."""
    return float(sum(value for value, _ in parts)), _total([gradient for _, gradient in parts], shape)


def _by_row(scales: Array, values: Array) -> Array:
    """Multiply row i of ``values`` by ``scales[i]``, in place."""
    values *= scales if values.ndim == 1 else scales[:, None]
    return values
