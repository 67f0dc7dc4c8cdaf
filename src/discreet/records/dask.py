"""Rows on a Dask cluster: passes run where the partitions are, and only sums travel.

Needs the extra ``dask``. Noise is never drawn on a worker: what comes back from the partitions are exact questions
answered about private rows, added up and perturbed once, in the process that runs the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.bounds import Bounds
from discreet.records.arrays import ArrayRecords
from discreet.records.parts import PartitionedRecords


def is_dask(data: Any) -> bool:
    """Whether this is a Dask collection, without importing Dask."""
    return hasattr(data, "__dask_graph__") and hasattr(data, "__dask_keys__")


class DaskRows:
    """Rows of a Dask array or data frame, kept in the memory of the workers.

    Looks like a matrix as far as its shape. With a `distributed` client the partitions stay where they are computed;
    without one they are computed by Dask's threads in this process.
    """

    def __init__(self, X: Any) -> None:
        from dask import delayed, persist

        blocks = _row_blocks(X)
        self._client = _client()
        self._blocks = [delayed(_matrix)(block) for block in blocks]
        self._blocks = list(persist(*self._blocks))
        shapes = self._compute([delayed(_shape)(block) for block in self._blocks])
        self._sizes = [rows for rows, _, _ in shapes]
        self._width, self._sparse = shapes[0][1], shapes[0][2]
        names = getattr(X, "columns", None)
        self.feature_names = () if names is None else tuple(str(name) for name in names)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(self._sizes), self._width

    def valid(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Which rows are finite and not absurd."""
        from dask import delayed

        return np.concatenate(self._compute([delayed(bounds.valid_rows)(block) for block in self._blocks]))

    def records(
        self,
        labels: NDArray[Any],
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the workers once."""
        from dask import delayed, persist

        edges = np.cumsum(self._sizes)[:-1]
        nulls = [None] * len(self._sizes) if null_rows is None else np.split(null_rows, edges)
        parts = [
            delayed(_records)(clip, block, y, bounds, null)
            for block, y, null in zip(self._blocks, np.split(labels, edges), nulls, strict=True)
        ]
        parts = list(persist(*parts))
        self._compute(
            [delayed(_checked)(part) for part in parts]
        )  # errors in rows show before anything is charged
        return PartitionedRecords(
            DaskParts(parts, self._compute), self._sizes, self._width, self._sparse, bounds, labels
        )

    def _compute(self, tasks: Sequence[Any]) -> list[Any]:
        from dask import compute

        if self._client is None:
            return list(compute(*tasks, scheduler="threads"))
        # Futures are gathered in the order of the partitions; a partition that died with its worker is computed
        # again from its own source, and its answer still counts once.
        return list(self._client.gather(self._client.compute(list(tasks), retries=3)))


class DaskParts:
    """Parts on workers."""

    def __init__(self, parts: Sequence[Any], compute: Callable[[Sequence[Any]], list[Any]]) -> None:
        self._list = list(parts)
        self._compute = compute

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, on its worker."""
        from dask import delayed

        return self._compute([delayed(question, pure=False)(part, *arguments) for part in self._list])

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> DaskParts:
        """The same rows with other labels."""
        from dask import delayed, persist

        renamed = [
            delayed(ArrayRecords.with_labels)(part, y) for part, y in zip(self._list, labels, strict=True)
        ]
        return DaskParts(list(persist(*renamed)), self._compute)

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> DaskParts:
        """``make(part, *arguments)`` of every part, kept by its worker."""
        from dask import delayed, persist

        made = [delayed(make, pure=False)(part, *arguments) for part in self._list]
        return DaskParts(list(persist(*made)), self._compute)


def _row_blocks(X: Any) -> list[Any]:
    """One delayed block of whole rows per partition."""
    if hasattr(X, "to_delayed") and hasattr(X, "npartitions") and not hasattr(X, "chunks"):
        return list(X.to_delayed())
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions (rows, columns), got {X.ndim}")
    return [row[0] for row in X.rechunk({1: -1}).to_delayed()]


def _client() -> Any:
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def _matrix(block: Any) -> Any:
    if hasattr(block, "tocsr"):  # SciPy's sparse matrices
        return block.tocsr()
    values = np.asarray(block)
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"X must hold numbers, got {values.dtype}; transform the table with a discreet.Schema first"
        )
    kind = np.float32 if values.dtype == np.float32 else np.float64
    return np.ascontiguousarray(values, dtype=kind)


def _shape(block: Any) -> tuple[int, int, bool]:
    return (*block.shape, not isinstance(block, np.ndarray))


def _records(clip: Callable[[Any], Any], block: Any, y: Any, bounds: Bounds, null: Any) -> ArrayRecords:
    return ArrayRecords(clip(block), y, bounds, null, n_threads=1)


def _checked(part: ArrayRecords) -> int:
    return part.n_samples
