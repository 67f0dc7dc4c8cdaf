"""How matrices are held: what is used in place, what is converted, and who may use how many threads."""

from __future__ import annotations

import copy
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from discreet.bounds import Bounds, without_duplicates
from discreet.losses import Loss
from discreet.records import kernels

Array = NDArray[np.float64]
Result = TypeVar("Result")

LANES = 16  # parts of the data that are summed independently; fixed, so results ignore the thread count
COPY_ENTRIES = 1 << 16  # entries converted or multiplied at a time where rows cannot be used in place
_SMALL = 1 << 18  # below this many entries threads cost more than they give


class ClippedRows:
    """Rows with their scales and labels, cut into pieces that are always summed in the same way."""

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
        self._X: Any = _usable_sparse(X) if self.sparse else _usable_dense(X)
        self.n_samples, self.n_columns = (int(size) for size in self._X.shape)
        self.n_features = bounds.n_features(self.n_columns)
        self.n_threads = _check_threads(n_threads)
        scales = bounds.row_scales(self._X)
        null = np.zeros(self.n_samples, dtype=bool)
        if null_rows is not None:
            null = _check_length("null_rows", np.asarray(null_rows, dtype=bool), self.n_samples)
        if np.any(bad := (scales == 0) & ~null):
            raise ValueError(
                f"{int(bad.sum())} rows hold values that are not finite numbers (or beyond 2**300), the first is row "
                f"{int(np.argmax(bad))}; clean them, or enter them as null records: bad_rows='null' of an estimator, "
                "null_rows=~bounds.valid_rows(X) here"
            )
        scales[null] = 0.0
        self._scales, self._null = scales, null
        self._set_labels(y)
        if self.sparse:
            self._X = _without_rows(self._X, null)
        self._lanes = self._split()
        self._in_place = not self.sparse and _is_native(self._X)

    def with_labels(self, y: ArrayLike) -> Self:
        """The same rows with other labels; nothing is copied or computed again."""
        other = copy.copy(self)
        other._set_labels(y)
        return other

    def _set_labels(self, y: ArrayLike) -> None:
        self._y = _check_length("y", np.array(y, dtype=np.float64), self.n_samples)
        self._y[self._null] = 0.0
        self._checked_losses: set[Loss] = set()

    def _split(self) -> list[slice]:
        """Cut the rows into lanes; a lane's chunks are summed one by one, then the lanes.

        Fixes the rows of a block (what the compiled kernels sum at a time) and of a chunk (what BLAS or SciPy
        sum at a time, or what is copied at a time), a whole number of blocks.
        """
        n, d = self.n_samples, self.n_columns
        self._height = kernels.block_rows(d)
        lanes = LANES
        if self.sparse:
            # A lane holds one dense gradient to which each chunk adds: both must stay small beside the data.
            per_row = max(1.0, self._X.nnz / max(1, n))
            lanes = int(np.clip(self._X.nnz // max(1, 16 * d), 2, LANES))
            self._chunk = int(np.clip(16 * d / per_row, 1024, kernels.MAX_CHUNK_ROWS))
        else:
            blocks = np.clip(COPY_ENTRIES // max(1, d), self._height, kernels.MAX_CHUNK_ROWS) // self._height
            self._chunk = int(blocks) * self._height
        edges = np.linspace(0, n, lanes + 1).astype(int).tolist()
        pieces = [slice(a, b) for a, b in itertools.pairwise(edges) if a < b]
        if self.sparse:
            chunks = [rows for lane in pieces for rows in _cut(lane, self._chunk)]
            self._csr_chunks = {rows.start: _csr_view(self._X, rows) for rows in chunks}
        return pieces

    def _blocks(self, lane: slice, *, whole: bool = False) -> Iterator[tuple[slice, Any]]:
        """The lane's rows as CSR chunks or C-contiguous float64 or float32 chunks, views where possible.

        ``whole`` hands out the lane in one piece where it can be used in place; kernels cut it themselves.
        """
        usable = self._in_place and not self._null[lane].any()
        if whole and usable:
            yield lane, self._X[lane]
            return
        for rows in _cut(lane, self._chunk):
            if self.sparse:
                yield rows, self._csr_chunks[rows.start]
            else:
                yield rows, self._X[rows] if usable else self._copy_rows(rows)

    def _copy_rows(self, rows: Any) -> Array:
        """A float64 copy of some rows, with null rows zeroed: 0 times nan is not 0."""
        block = np.array(self._X[rows], dtype=np.float64, order="C")
        null = self._null[rows]
        if null.any():
            block[null] = 0.0
        return block

    def _map(self, lane_task: Callable[[slice], Result]) -> list[Result]:
        with one_blas_thread:
            return self._run(lane_task, self._lanes)

    def _run(self, task: Callable[[Any], Result], parts: list[Any]) -> list[Result]:
        """Results in the order of the parts. Threads live for one pass: nothing to fork or pickle.

        This thread works too; whoever is free takes the next part.
        """
        size = self._X.nnz if self.sparse else self.n_samples * self.n_columns
        helpers = min(self.n_threads, len(parts)) - 1
        if helpers < 1 or size < _SMALL:
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
            others = [pool.submit(work) for _ in range(helpers)]
            work()
        for other in others:
            other.result()
        return [results[index] for index in range(len(parts))]


def _cut(rows: slice, height: int) -> list[slice]:
    """Consecutive pieces of at most ``height`` rows."""
    return [slice(i, min(i + height, rows.stop)) for i in range(rows.start, rows.stop, height)]


def _check_length(name: str, values: NDArray[Any], n_samples: int) -> NDArray[Any]:
    if values.shape != (n_samples,):
        raise ValueError(f"{name} must have one entry per row, shape ({n_samples},), got {values.shape}")
    return values


def _check_threads(n_threads: int | None) -> int:
    if n_threads is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = os.environ.get("OMP_NUM_THREADS", "")  # what joblib sets for each of several processes
        return max(1, min(usable, int(asked)) if asked.isdecimal() else usable)
    if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 1:
        raise ValueError(f"n_threads must be a whole number of at least 1, got {n_threads!r}")
    return n_threads


def _usable_dense(X: Any) -> NDArray[Any]:
    matrix = np.asarray(X)
    if matrix.dtype.kind not in "biuf":
        matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"X must have two dimensions (rows, columns), got shape {matrix.shape}")
    return matrix


def _is_native(X: NDArray[Any]) -> bool:
    usable = X.dtype in (np.float64, np.float32) and X.dtype.isnative
    return bool(usable and X.flags.c_contiguous and X.flags.aligned)


def _usable_sparse(X: Any) -> Any:
    """CSR with each place stored at most once: two entries that add up would slip past the norm of a row."""
    matrix = X if X.format == "csr" else X.tocsr()
    if matrix.ndim != 2:
        raise ValueError(f"X must have two dimensions (rows, columns), got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"X must hold real numbers, got dtype {matrix.dtype}")
    matrix.check_format(full_check=True)
    usable = matrix.dtype.kind in "iu" or matrix.dtype in (np.float64, np.float32)
    if not (usable and matrix.dtype.isnative):
        matrix = matrix.astype(np.float64)
    return without_duplicates(matrix)


def _without_rows(X: Any, null: NDArray[np.bool_]) -> Any:
    """X with some rows emptied of values; the same object if there are none."""
    if not null.any():
        return X
    data = X.data.copy()
    data[np.repeat(null, np.diff(X.indptr))] = 0
    return type(X)((data, X.indices, X.indptr), shape=X.shape)


def _csr_view(X: Any, rows: slice) -> Any:
    """A block of CSR rows that shares the entries of X."""
    indptr = X.indptr[rows.start : rows.stop + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    return sp.csr_array(
        (X.data[entries], X.indices[entries], indptr - indptr[0]), shape=(rows.stop - rows.start, X.shape[1])
    )


class OneBlasThread:
    """While anyone is inside, BLAS uses one thread: ours already occupy the processors.

    Counted, because the limit is global: of several concurrent users the last to leave restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._controller: Any = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._controller = self._controller or ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


one_blas_thread = OneBlasThread()
