"""Clipped rows in memory, and the sums of their losses and gradients.

Rows are split into lanes and blocks of public sizes, so a sum has the same bits for any number of threads. Matrices are
used in place if possible; clipping and the intercept are applied on the fly.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from discreet._checks import ParameterError, Setting, silently
from discreet._typing import Array
from discreet.losses import Loss
from discreet.losses.base import Kernel
from discreet.records.base import Records
from discreet.records.bounds import MAX_CHUNK_ROWS, Bounds, row_products, squared_norms, without_duplicates
from discreet.records.kernels import passes
from discreet.records.kernels.numba_tools import WIDTH
from discreet.records.kernels.passes import by_class, by_feature, groups, sparse_loss_and_gradient, wide
from discreet.records.kernels.softmax import MOST_CLASSES
from discreet.records.kernels.tiles import ROWS

if TYPE_CHECKING:
    from discreet.records.arrays import ArrayRecords

Result = TypeVar("Result")

LANES = 16  # parts that are summed independently; fixed, so results do not depend on the thread count
COPY_ENTRIES = 1 << 16  # entries converted or multiplied at a time if rows cannot be used in place
_SMALL = 1 << 21  # with fewer entries, threads cost more than they save
_SPARSE = 4  # dense entries that take as long as one of a sparse matrix
COMPILED_FROM = (
    1 << 18
)  # entries of dense rows; with fewer, a compiled pass costs more to compile than it ever saves


class ClippedRows(Records):
    """Rows with their scales and labels, split into pieces that are always summed in the same way.

    Attributes
    ----------
    scales : array of shape (n_samples,)
        s_i for every row, 0 for null records. Do not modify.
    """

    labels: Array  # 0 for null records
    matrix: Any  # the rows as stored, not clipped; null rows are emptied if sparse; not to be modified

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        bounds: Bounds,
        null_rows: ArrayLike | None = None,
        *,
        n_threads: int | None = None,
    ) -> None:
        self.bounds = bounds
        self.sparse = bool(sp.issparse(X))
        self.matrix: Any = _usable_sparse(X) if self.sparse else _usable_dense(X)
        self.n_samples, self.n_columns = (int(size) for size in self.matrix.shape)
        self.n_features = bounds.n_features(self.n_columns)
        self.n_threads = _check_threads(n_threads)
        null = np.zeros(self.n_samples, dtype=bool)
        if null_rows is not None:
            null = _check_length("null_rows", np.asarray(null_rows, dtype=bool), self.n_samples)
        self._null = null
        self._set_labels(y)
        if self.sparse:
            self.matrix = _without_rows(self.matrix, null)
        self._in_place = not self.sparse and _is_native(self.matrix)
        self._lanes = self._split()
        self.compiles_first = not (self.sparse or self._is_few or passes.is_compiled())
        scales = bounds.row_scales(self.matrix)
        if np.any(bad := (scales == 0) & ~null):
            raise ParameterError(
                "X",
                f"has {int(bad.sum())} rows with values that are not finite or exceed 2**300; the first is row "
                f"{int(np.argmax(bad))}",
                "correct them",
                Setting("bad_rows", "null", purpose="to an estimator"),
                "pass null_rows=~bounds.valid_rows(X) here",
            )
        scales[null] = 0.0
        self._usable = {lane.start: self._in_place and not null[lane].any() for lane in self._lanes}
        self.scales = scales

    @cached_property
    def squared_norms(self) -> Array:
        """The squared norms of all records, up to rounding; 0 for null records."""
        found, one = np.zeros(self.n_samples), 1.0 if self.bounds.intercept else 0.0
        with np.errstate(all="ignore"):
            for rows, squares in squared_norms(self.matrix):
                found[rows] = self.scales[rows] ** 2 * (squares + one)
        # Rows whose squares overflow are clipped, so that they have the largest norm.
        return np.where(
            self.scales > 0,
            np.minimum(np.where(np.isfinite(found), found, np.inf), 1.01 * self.bounds.feature_norm**2),
            0.0,
        )

    def with_labels(self, y: ArrayLike) -> Self:
        """Return the same rows with other labels; nothing is copied or recomputed."""
        other = copy.copy(self)
        other._set_labels(y)
        return other

    def with_rows(self, matrix: Any, scales: Array, bounds: Bounds) -> Self:
        """Return the same records with other rows and their scales, which obey ``bounds``; nothing is checked.

        Null records stay null. Dense rows are zero there, and a CSR matrix stores the same places as before.
        """
        other = copy.copy(self)
        vars(other).pop("squared_norms", None)
        other.matrix, other.scales, other.bounds = matrix, scales, bounds
        other.n_features = bounds.n_features(self.n_columns)
        other._in_place = not self.sparse and _is_native(matrix)
        other._usable = dict.fromkeys(self._usable, other._in_place)
        other._csr_chunks = {}
        return other

    def __sizeof__(self) -> int:
        """Bytes of rows, scales and labels: what clusters go by when they place or spill parts."""
        rows = [self.matrix.data, self.matrix.indices, self.matrix.indptr] if self.sparse else [self.matrix]
        return sum(array.nbytes for array in (*rows, self.scales, self._null, self.labels))

    def dense(self, rows: Any, out: Array | None = None) -> Array:
        """Return a dense float64 copy of some rows, not clipped, with null rows zeroed.

        Rows of a dense matrix are copied to the memory of ``out``, which has room for at least so many.
        """
        if self.sparse:
            return np.asarray(self.matrix[rows].toarray(), dtype=np.float64)
        return self._copy_rows(rows, out)

    def value_and_gradient(self, loss: Loss, theta: ArrayLike) -> tuple[float, Array]:
        """Return the sum of losses and the sum of their gradients; the gradient has the shape of theta."""
        point = self._check(loss, theta)
        if loss.kernel is not None and self._compiled(loss):
            if self.sparse:
                return self._sparse_sums(loss.kernel, point)
            return self._fused_sums(loss.kernel, point, self.labels[None])

        return self._block_sums(loss, point, values=True)

    def gradient(self, loss: Loss, theta: ArrayLike) -> Array:
        """Return the sum of gradients; the same numbers as from `value_and_gradient`, without the losses."""
        point = self._check(loss, theta)
        if self._compiled(loss):
            return self.value_and_gradient(loss, point)[1]
        return self._block_sums(loss, point, values=False)[1]

    def gradients_together(self, labeled: Sequence[Records], loss: Loss) -> Callable[[Array], Array] | None:
        """Return the map from a point per model to the sum of gradients per model, by one compiled pass."""
        if self.sparse or loss.kernel is None or loss.n_outputs > 1 or not self._compiled(loss):
            return None
        for part in labeled:
            if not (
                isinstance(part, ClippedRows) and part.matrix is self.matrix and part.scales is self.scales
            ):
                return None
            part.check_labels(loss)
        return functools.partial(self._gradients, loss.kernel, np.stack([part.labels for part in labeled]))

    def _gradients(self, kernel: Kernel, labels: Array, points: Array) -> Array:
        return self._fused_sums(kernel, points.T, labels)[1].T

    def _block_sums(self, loss: Loss, point: Array, *, values: bool) -> tuple[float, Array]:
        """Compute value and gradient by NumPy, block by block; 0 for the value unless it is asked for."""
        # The bound on rounding holds for every order of summation, so a smooth loss can use the fastest one.
        smooth = math.isfinite(loss.smoothness)

        def lane_sum(lane: slice) -> tuple[float, Array]:
            value, gradient = 0.0, np.zeros(point.shape)
            for rows, block in self._blocks(lane):
                # Chunks with null records are float64 copies. All must take the same path: where a derivative jumps,
                # the last bit of a prediction decides (gradient-methods.md, "Corners").
                block = self._doubles(block)
                scales, raw = self._raw_predictions(rows, block, point, any_order=smooth)
                if values:
                    losses, derivatives = loss.value_and_derivative(self.labels[rows], raw)
                    value += float(np.where(scales > 0, losses, 0.0).sum())
                else:
                    derivatives = loss.derivative(self.labels[rows], raw)
                self._combine(block, by_row(scales, derivatives), gradient)
            return value, gradient

        return _totals(self._map(lane_sum), point.shape)

    def raw_predictions(self, theta: ArrayLike) -> Array:
        """Return <v_i, theta> for every record (0 for null records)."""
        point = np.ascontiguousarray(theta, dtype=np.float64)
        raw = np.empty((self.n_samples, *point.shape[1:]))

        def lane_fill(lane: slice) -> None:
            for rows, block in self._blocks(lane, whole=point.ndim == 1 and self.n_columns >= WIDTH):
                raw[rows] = self._raw_predictions(rows, block, point)[1]

        self._map(lane_fill)
        return raw

    def separate_dots(self, theta: Array, *, compiled: bool) -> Array:
        """Return <v_i, theta_j> for every record and every column; each is a function of its own row, to the last bit.

        BLAS would be faster, but adds up in an order that may depend on the number of rows and on a row's place.
        ``compiled`` code adds up in another order than NumPy, so a public number must decide.
        """
        dots = np.empty((self.n_samples, theta.shape[1]))
        prepared = None
        if compiled and not self.sparse:
            prepared = by_class(theta, self.n_columns), groups(theta.shape[1])

        def lane_fill(lane: slice) -> None:
            copies = np.empty(
                (0 if self.sparse else min(self._chunk, lane.stop - lane.start), self.n_columns)
            )
            for rows in _cut(lane, self._chunk):
                made = dots[rows]
                if self.sparse:
                    made[:] = csr_view(self.matrix, rows) @ theta[: self.n_columns]
                    made += theta[-1] if self.bounds.intercept else 0.0
                elif prepared is None:
                    block = self._copy_rows(rows, copies)
                    for j, one in enumerate(theta.T):
                        made[:, j] = row_products(block, np.ascontiguousarray(one[: self.n_columns]))
                    made += theta[-1] if self.bounds.intercept else 0.0
                else:
                    out = np.empty((theta.shape[1], len(made)))
                    block = wide(self._copy_rows(rows, copies))
                    passes.dot_products(block, *prepared, self._height, out)
                    made[:] = out.T
                by_row(self.scales[rows], made)

        self._map(lane_fill)
        return dots

    def shortened(self, lost: Array, norm: float, slack: float, compiled: bool) -> Self:
        """Return the records v, each scaled so that |v|^2 - |``lost``^T v|^2 is at most ``norm``^2.

        ``slack`` bounds the error of these squares, over |v|^2. Every factor is a function of its own row, to the last
        bit.
        """
        dots, squares = self.separate_dots(lost, compiled=compiled), self.squared_norms
        length = np.sqrt(squares * (1 + slack) - np.einsum("ij,ij->i", dots, dots))
        other = copy.copy(self)
        vars(other).pop("squared_norms", None)  # of the longer records
        other.scales = self.scales * (norm * (1 - 2.0**-48) / np.maximum(length, norm))
        return other

    def weighted_sum(self, weights: ArrayLike) -> Array:
        """Return sum_i w_i v_i for one finite weight per record; weights of null records are ignored."""
        coefficients = self.scales * self._checked_weights(weights)

        def lane_sum(lane: slice) -> Array:
            total = np.zeros(self.n_features)
            for rows, block in self._blocks(lane):
                self._combine(self._doubles(block), coefficients[rows], total)
            return total

        return add_up(self._map(lane_sum), (self.n_features,))

    def gram(self, weights: ArrayLike | None = None) -> Array:
        """Return sum_i w_i v_i v_i^T for nonnegative weights, all 1 by default; symmetric up to rounding."""
        given = np.ones(self.n_samples) if weights is None else self._checked_weights(weights)
        squares = self.scales**2 * given
        if self.sparse:
            product = self._weighted_product(squares)
            return np.column_stack([product(unit) for unit in np.eye(self.n_features)])

        def add(rows: slice, block: Array, total: Array) -> None:
            self._add_gram(block, squares[rows], total)

        return self._dense_sum(add, self.n_features)

    def map_rows(
        self, make: Callable[..., ArrayRecords], *arguments: Any, width: int, bounds: Bounds, sparse: bool
    ) -> ArrayRecords:
        """Return ``make(self, *arguments)``: these records are one part."""
        return make(self, *arguments)

    def sum_rows(self, question: Callable[..., Array], *arguments: Any) -> Array:
        """Return ``question(self, *arguments)``: these records are one part."""
        return question(self, *arguments)

    def check_labels(self, loss: Loss) -> None:
        """Raise for labels that are not valid for the loss; checked once per loss."""
        if loss in self._checked_losses:
            return
        if np.any(bad := ~loss.valid_labels(self.labels) & ~self._null):
            raise ValueError(
                f"{int(bad.sum())} labels are not valid for {loss}, the first in row "
                f"{int(np.argmax(bad))}; encode the labels, or name the rows in null_rows"
            )
        self._checked_losses.add(loss)

    # -- pieces --------------------------------------------------------------------------------------------

    def _compiled(self, loss: Loss) -> bool:
        """Whether value and gradient come from a compiled pass; for several outputs, only over dense rows.

        If a derivative jumps, the last bit of a prediction decides, so such losses take the same pass at all sizes.
        """
        if (self._is_few and math.isfinite(loss.smoothness)) or loss.kernel is None:
            return False
        return loss.n_outputs == 1 or (not self.sparse and loss.n_outputs <= MOST_CLASSES)

    @property
    def _is_few(self) -> bool:
        """Whether NumPy alone is fast enough: few dense entries, judging by public sizes."""
        return not self.sparse and self.n_samples * self.n_columns < COMPILED_FROM

    def _wide_blocks(self, lane: slice) -> Iterator[tuple[slice, Any]]:
        """Yield the lane's rows in the form of the compiled kernels; rows of few columns are copied chunk by chunk."""
        for rows, block in self._blocks(lane, whole=self.n_columns >= WIDTH):
            yield rows, wide(block)

    def _fused_sums(self, kernel: Kernel, theta: Array, labels: Array) -> tuple[float, Array]:
        """Compute value and gradient by a compiled pass; several rows of ``labels`` are models of their own."""
        weights = by_class(theta, self.n_columns)
        sizes = groups(len(weights))

        def lane_sum(lane: slice) -> tuple[float, Array]:
            value, gradient = 0.0, np.zeros(weights.shape)
            for rows, block in self._wide_blocks(lane):
                labeled = block, np.ascontiguousarray(labels[:, rows]), self.scales[rows]
                ends = np.array([0, len(block)])
                value += passes.loss_and_gradient(
                    *kernel, *labeled, weights, sizes, self._height, ends, gradient
                )
            return value, gradient

        if self._helpers(len(self._lanes)) < 1 and self.n_columns >= WIDTH and all(self._usable.values()):
            # One thread and rows used in place: all lanes in one call.
            gradient = np.zeros(weights.shape)
            edges = np.array([lane.start for lane in self._lanes] + [self.n_samples])
            value = passes.loss_and_gradient(
                *kernel, self.matrix, labels, self.scales, weights, sizes, self._height, edges, gradient
            )
        else:
            value, gradient = _totals(self._map(lane_sum), weights.shape)
        return value, by_feature(gradient, self.n_columns, theta.shape)

    def _sparse_sums(self, kernel: Kernel, theta: Array) -> tuple[float, Array]:
        """Compute value and gradient by a compiled pass over the entries."""
        matrix = self.matrix.data, self.matrix.indices, self.matrix.indptr

        def lane_sum(lane: slice) -> tuple[float, Array]:
            value, parts = 0.0, []
            for rows, _ in self._blocks(lane):
                place, part = (self.n_columns, rows.start, rows.stop), np.zeros(theta.shape)
                value += sparse_loss_and_gradient(
                    *kernel, *matrix, *place, self.labels, self.scales, theta, part
                )
                parts.append(part)
            return value, add_up(parts, theta.shape)

        return _totals(self._map(lane_sum), theta.shape)

    def _weighted_product(self, weights: Array) -> Callable[[Array], Array]:
        """Return the map v -> sum_i weights_i <(x_i, 1), v> (x_i, 1)."""

        def product(direction: Array) -> Array:
            vector = np.ascontiguousarray(direction, dtype=np.float64)

            def sparse_sum(lane: slice) -> Array:
                total = np.zeros(self.n_features)
                for rows, block in self._blocks(lane):
                    self._combine(block, weights[rows] * self._dots(block, vector), total)
                return total

            if self.sparse:
                return add_up(self._map(sparse_sum), vector.shape)
            spread = by_class(vector, self.n_columns)

            def lane_sum(lane: slice) -> Array:
                total = np.zeros(spread.shape)
                for rows, block in self._wide_blocks(lane):
                    passes.weighted_product(block, weights[rows], spread, groups(1), self._height, total)
                return total

            return by_feature(add_up(self._map(lane_sum), spread.shape), self.n_columns, vector.shape)

        return product

    def _raw_predictions(
        self, rows: Any, block: Any, theta: Array, *, any_order: bool = False
    ) -> tuple[Array, Array]:
        """Return the scales and raw predictions of a block of rows."""
        scales = self.scales[rows]
        return scales, by_row(scales, self._dots(block, theta, any_order=any_order))

    def _dots(self, block: Any, theta: Array, *, any_order: bool = False) -> Array:
        """Return <(x, 1), theta> for the rows of a block; in any order of summation if the caller allows that."""
        if (
            self._is_few and theta.ndim == 1 and not any_order
        ):  # row by row, in an order independent of other rows
            dots = row_products(self._doubles(block), theta[: self.n_columns])
            return cast(Array, dots + theta[-1] if self.bounds.intercept else dots)
        if not (self.sparse or any_order) and theta.ndim == 1:
            dots = np.empty((1, block.shape[0]))
            passes.dot_products(wide(block), by_class(theta, self.n_columns), groups(1), self._height, dots)
            return cast(Array, dots[0])
        dots = self._doubles(block) @ theta[: self.n_columns]  # singles times doubles would bypass BLAS
        if self.bounds.intercept:
            dots += theta[-1]
        return cast(Array, dots)

    def _doubles(self, block: Any) -> Any:
        """Return a dense block in float64; a sparse one unchanged."""
        return block if self.sparse else np.asarray(block, dtype=np.float64)

    def _checked_weights(self, weights: ArrayLike) -> Array:
        """Return one finite weight per record, 0 for null records."""
        given = np.array(weights, dtype=np.float64)
        if given.shape != (self.n_samples,):
            raise ParameterError(
                "weights", f"must have one entry per row, shape ({self.n_samples},), got {given.shape}"
            )
        given[self._null] = 0.0
        if not np.isfinite(given).all():
            raise ParameterError("weights", "must be finite numbers")
        return given

    def _combine(self, block: Any, coefficients: Array, total: Array) -> None:
        """Add sum_i coefficients_i (x_i, 1) to the total."""
        total[: self.n_columns] += (_transposed(block) if self.sparse else block.T) @ coefficients
        if self.bounds.intercept:
            total[-1] += coefficients.sum(axis=0)

    def _dense_sum(self, add: Callable[[slice, Array, Array], None], size: int, every: int = 1) -> Array:
        """Sum matrices of ``size`` rows over every ``every``-th record, scaled up to all records."""
        # Many columns: use enough rows that adding a block's matrix to the sum is cheap compared to forming it.
        height = max(16, COPY_ENTRIES // max(1, self.n_columns), min(self.n_columns, 1024))
        chosen = range(0, self.n_samples, every)

        def part_sum(rows: range) -> Array:
            total = np.zeros((size, size))
            # One copy for all blocks: workers of Dask ask the system for every large array anew, page by page.
            copies = np.empty((0 if self.sparse else min(height, len(rows)), self.n_columns))
            for start in range(0, len(rows), height):
                some = rows[start : start + height]
                block_rows = slice(some.start, some.stop, every)
                add(block_rows, self.dense(block_rows, copies), total)
            return total

        with one_blas_thread:
            sums = np.sum(self._run(part_sum, _split_evenly(chosen, LANES // 2)), axis=0)
        return np.asarray(sums * (self.n_samples / max(1, len(chosen))))

    def _add_gram(self, block: Array, weights: Array, total: Array) -> None:
        """Add sum_i weights_i (x_i, 1) (x_i, 1)^T to the total for weights >= 0; overwrites the block."""
        d = self.n_columns
        if self.bounds.intercept:
            edge = weights @ block
            total[d, :d] += edge
            total[:d, d] += edge
            total[d, d] += weights.sum()
        block *= np.sqrt(weights)[:, None]
        total[:d, :d] += block.T @ block

    def _check(self, loss: Loss, theta: ArrayLike) -> Array:
        """Return theta as a contiguous array of the right shape, after checking the labels."""
        point = np.ascontiguousarray(theta, dtype=np.float64)
        shape = (self.n_features,) if loss.n_outputs == 1 else (self.n_features, loss.n_outputs)
        if point.shape != shape:
            raise ParameterError("theta", f"must have shape {shape}, got {point.shape}")
        self.check_labels(loss)
        return point

    # -- rows in lanes, blocks and threads -------------------------------------------------------------------

    def _set_labels(self, y: ArrayLike) -> None:
        self.labels = _check_length("y", np.array(y, dtype=np.float64), self.n_samples)
        self.labels[self._null] = 0.0
        self._checked_losses: set[Loss] = set()

    def _split(self) -> list[slice]:
        """Split the rows into lanes; a lane's chunks are summed one by one, then the lanes.

        Also sets the number of rows in a block (what the compiled kernels sum at a time) and in a chunk (what BLAS or
        SciPy sum or copy at a time), a whole number of blocks.
        """
        n, d = self.n_samples, self.n_columns
        # A block is about an eighth of a megabyte: a multiple of 4 between 16 and 128 rows.
        self._height = int(min(passes.MAX_BLOCK_ROWS, max(16, 2**14 // max(1, d) // ROWS * ROWS)))
        lanes = 1 if self._is_few else LANES
        if self.sparse:
            # A lane has one dense gradient to which each chunk adds; both must stay small compared to the data.
            per_row = max(1.0, self.matrix.nnz / max(1, n))
            lanes = int(np.clip(self.matrix.nnz // max(1, 16 * d), 2, LANES))
            self._chunk = int(np.clip(16 * d / per_row, 1024, MAX_CHUNK_ROWS))
        else:
            blocks = np.clip(COPY_ENTRIES // max(1, d), self._height, MAX_CHUNK_ROWS) // self._height
            self._chunk = int(blocks) * self._height
        edges = np.linspace(0, n, lanes + 1).astype(int).tolist()
        pieces = [slice(a, b) for a, b in itertools.pairwise(edges) if a < b]
        self._csr_chunks: dict[int, Any] = {}  # made by the first pass, and kept for the next ones
        return pieces

    def _blocks(self, lane: slice, *, whole: bool = False) -> Iterator[tuple[slice, Any]]:
        """Yield the lane's rows as CSR chunks or C-contiguous float64 or float32 chunks, views if possible.

        With ``whole``, yield the lane in one piece if it can be used in place; kernels split it themselves.
        """
        usable = self._usable[lane.start]
        if whole and usable:
            yield lane, self.matrix[lane]
            return
        copied = 0 if usable or self.sparse else min(self._chunk, lane.stop - lane.start)
        copies = np.empty(
            (copied, self.n_columns)
        )  # one for all chunks: each is used before the next one comes
        for rows in _cut(lane, self._chunk):
            if self.sparse:
                if rows.start not in self._csr_chunks:
                    self._csr_chunks[rows.start] = csr_view(self.matrix, rows)
                yield rows, self._csr_chunks[rows.start]
            else:
                yield rows, self.matrix[rows] if usable else self._copy_rows(rows, copies)

    def _copy_rows(self, rows: Any, out: Array | None = None) -> Array:
        """Return a float64 copy of some rows, with null rows zeroed, because 0 times nan is not 0."""
        chosen, null = self.matrix[rows], self._null[rows]
        block = np.empty(chosen.shape) if out is None else out[: len(chosen)]
        block[:] = chosen
        if null.any():
            block[null] = 0.0
        return block

    def _map(self, lane_task: Callable[[slice], Result]) -> list[Result]:
        with one_blas_thread:
            return self._run(lane_task, self._lanes)

    def _helpers(self, parts: int) -> int:
        """Number of threads that work beside this one on so many parts."""
        size = _SPARSE * self.matrix.nnz if self.sparse else self.n_samples * self.n_columns
        return 0 if size < _SMALL else min(self.n_threads, parts) - 1

    def _run(self, task: Callable[[Any], Result], parts: list[Any]) -> list[Result]:
        """Return results in the order of the parts. Threads live for one pass, so there is nothing to fork or pickle.

        This thread works too; each free thread takes the next part.
        """
        helpers = self._helpers(len(parts))
        if helpers < 1:
            return [task(part) for part in parts]
        results: dict[int, Result] = {}
        waiting = deque(enumerate(parts))

        def work() -> None:
            while True:
                try:
                    index, part = waiting.popleft()
                except IndexError:  # all are taken
                    return
                results[index] = task(part)

        with ThreadPoolExecutor(helpers) as pool:
            others = [pool.submit(silently, work) for _ in range(helpers)]
            work()
        for other in others:
            other.result()
        return [results[index] for index in range(len(parts))]


def of_predictions(records: ClippedRows, question: Callable[..., Array], theta: Array) -> Array:
    """Return ``question(raw predictions, labels, used)`` at theta, for ``sum_rows``; null records are not used."""
    return question(records.raw_predictions(theta), records.labels, records.scales > 0)


def _cut(rows: slice, height: int) -> list[slice]:
    """Split into consecutive pieces of at most ``height`` rows."""
    return [slice(i, min(i + height, rows.stop)) for i in range(rows.start, rows.stop, height)]


def _split_evenly(rows: range, parts: int) -> list[range]:
    """Split as `numpy.array_split` does: the first parts have one row more if the division leaves a rest."""
    short, rest = divmod(len(rows), parts)
    edges = [part * short + min(part, rest) for part in range(parts + 1)]
    return [rows[start:stop] for start, stop in itertools.pairwise(edges)]


def _check_length(name: str, values: NDArray[Any], n_samples: int) -> NDArray[Any]:
    if values.shape != (n_samples,):
        raise ParameterError(name, f"must have one entry per row, shape ({n_samples},), got {values.shape}")
    return values


def _check_threads(n_threads: int | None) -> int:
    if n_threads is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = os.environ.get("OMP_NUM_THREADS", "")  # what joblib sets for each of several processes
        return max(1, min(usable, int(asked)) if asked.isdecimal() else usable)
    if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 1:
        raise ParameterError("n_threads", f"must be a whole number of at least 1, got {n_threads!r}")
    return n_threads


def _usable_dense(X: Any) -> NDArray[Any]:
    matrix = np.asarray(X)
    if matrix.dtype.kind not in "biuf":
        matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise ParameterError("X", f"must have two dimensions (rows, columns), got shape {matrix.shape}")
    return matrix


def _is_native(X: NDArray[Any]) -> bool:
    usable = X.dtype in (np.float64, np.float32) and X.dtype.isnative
    return bool(usable and X.flags.c_contiguous and X.flags.aligned)


def _usable_sparse(X: Any) -> Any:
    """Return CSR with each entry stored at most once: duplicates would add up to more than the row's norm."""
    matrix = X if X.format == "csr" else X.tocsr()
    if matrix.ndim != 2:
        raise ParameterError("X", f"must have two dimensions (rows, columns), got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise ParameterError("X", f"must hold real numbers, got dtype {matrix.dtype}")
    matrix.check_format(full_check=True)
    usable = matrix.dtype.kind in "iu" or matrix.dtype in (np.float64, np.float32)
    if not (usable and matrix.dtype.isnative):
        matrix = matrix.astype(np.float64)
    return without_duplicates(matrix)


def _without_rows(X: Any, null: NDArray[np.bool_]) -> Any:
    """Return X with some rows emptied; the same object if there are none."""
    if not null.any():
        return X
    data = X.data.copy()
    data[np.repeat(null, np.diff(X.indptr))] = 0
    return type(X)((data, X.indices, X.indptr), shape=X.shape)


def _transposed(block: Any) -> Any:
    """Return the transpose of a `csr_view`, which shares its entries: SciPy's would copy them."""
    view = sp.csc_array(block.shape[::-1], dtype=block.dtype)
    view.data, view.indices, view.indptr = block.data, block.indices, block.indptr
    return view


def csr_view(X: Any, rows: slice) -> Any:
    """Return a block of CSR rows that shares the entries of X."""
    indptr = X.indptr[rows.start : rows.stop + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    view = sp.csr_array((len(indptr) - 1, X.shape[1]), dtype=X.dtype)
    # SciPy's constructor would copy parts of less than half of an array.
    view.data, view.indices, view.indptr = X.data[entries], X.indices[entries], indptr - indptr[0]
    return view


def add_up(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """Sum the parts from first to last, in the memory of the first; zeros if there are none."""
    if not parts:
        return np.zeros(shape)
    total, *others = parts
    for other in others:
        total += other
    return total


def _totals(parts: list[tuple[float, Array]], shape: tuple[int, ...]) -> tuple[float, Array]:
    """Sum the lanes' values and gradients."""
    return float(sum(value for value, _ in parts)), add_up([gradient for _, gradient in parts], shape)


def by_row(scales: Array, values: Array) -> Array:
    """Multiply row i of ``values`` by ``scales[i]``, in place."""
    values *= scales if values.ndim == 1 else scales[:, None]
    return values


class OneBlasThread:
    """Limit BLAS to one thread while any thread is inside, because our threads already use the processors.

    Entries are counted because the limit is global: the last thread to leave restores it, whichever it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._controller: Any = None
        self._modules = (
            0  # loaded when the controller was made: a later one may have brought a BLAS of its own
        )
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                if self._modules != len(sys.modules):
                    self._modules, self._controller = len(sys.modules), ThreadpoolController()
                found = [
                    (one, one.num_threads)
                    for one in self._controller.lib_controllers
                    if one.user_api == "blas"
                ]
                self._before = [(one, threads) for one, threads in found if threads != 1]
                self._set([(one, 1) for one, _ in self._before])
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._set(self._before)

    def _set(self, wanted: list[tuple[Any, int]]) -> None:
        """Set numbers of threads; most often there is nothing to do, which must take next to no time."""
        if wanted:
            with self._anybody():
                for library, threads in wanted:
                    library.set_num_threads(threads)

    @contextmanager
    def _anybody(self) -> Iterator[None]:
        """Let any thread set the limit. threadpoolctl obeys the first one that did, and ignores all others silently."""
        free = [
            library.clear_controlling_thread
            for library in self._controller.lib_controllers
            if hasattr(library, "clear_controlling_thread")
        ]
        for clear in free:
            clear(force=True)
        yield
        for clear in free:
            clear(force=True)


one_blas_thread = OneBlasThread()
