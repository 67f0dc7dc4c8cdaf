"""Rows on a Dask cluster: passes run where the partitions are, and only sums travel.

Needs the extra ``dask``. Noise is never drawn on a worker: what comes back from the partitions are exact questions
answered about private rows, added up and perturbed once, in the process that runs the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.bounds import Bounds
from discreet.records.arrays import ArrayRecords
from discreet.records.parts import PartitionedRecords

_RETRIES = 3  # of a partition whose worker died


def is_dask(data: Any) -> bool:
    """Whether this is a Dask collection, without importing Dask."""
    return hasattr(data, "__dask_graph__") and hasattr(data, "__dask_keys__")


class Workers(Protocol):
    """Who computes: threads of this process, or a cluster."""

    def opened(self, blocks: Sequence[Any]) -> list[Any]:
        """Blocks of rows as matrices, kept by whoever computes them."""

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """``function`` of each tuple of entries; the results stay where they are computed."""

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """``function`` of each tuple of entries; the results come here, in order."""


class Threads:
    """Dask's threads in this process."""

    def opened(self, blocks: Sequence[Any]) -> list[Any]:
        """Blocks of rows as matrices."""
        return self.kept(_matrix, blocks)

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in this process."""
        from dask import persist

        return list(persist(*self._tasks(function, columns), scheduler="threads"))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in order."""
        from dask import compute

        return list(compute(*self._tasks(function, columns), scheduler="threads"))

    @staticmethod
    def _tasks(function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
        from dask import delayed

        return [delayed(function, pure=False)(*row) for row in zip(*columns, strict=True)]


class Cluster:
    """The workers of a `distributed` client.

    Answers are gathered in the order of the partitions; a partition that died with its worker is computed again from
    its own source, and its answer still counts once.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def opened(self, blocks: Sequence[Any]) -> list[Any]:
        """Blocks of rows as matrices, in the memory of the workers."""
        return self.kept(_matrix, self._client.compute(list(blocks), retries=_RETRIES))

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in the memory of the workers."""
        return list(self._client.map(function, *columns, pure=False, retries=_RETRIES))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in order."""
        return list(self._client.gather(self.kept(function, *columns)))


class DaskRows:
    """Rows of a Dask array or data frame, kept in the memory of the workers.

    Looks like a matrix as far as its shape. With a `distributed` client the partitions stay where they are computed;
    without one they are computed by Dask's threads in this process.
    """

    def __init__(self, X: Any) -> None:
        client = _client()
        self._workers: Workers = Threads() if client is None else Cluster(client)
        self._blocks = self._workers.opened(_row_blocks(X))
        shapes = self._workers.answers(_shape, self._blocks)
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
        return np.concatenate(self._workers.answers(bounds.valid_rows, self._blocks))

    def records(
        self,
        labels: NDArray[Any],
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the workers once."""
        edges, count = np.cumsum(self._sizes)[:-1], len(self._sizes)
        nulls = [None] * count if null_rows is None else np.split(null_rows, edges)
        columns = [clip] * count, self._blocks, np.split(labels, edges), [bounds] * count, nulls
        parts = self._workers.kept(_records, *columns)
        self._workers.answers(_checked, parts)  # errors in rows show before anything is charged
        kept = DaskParts(parts, self._workers)
        return PartitionedRecords(kept, self._sizes, self._width, self._sparse, bounds, labels)


class DaskParts:
    """Parts on workers."""

    def __init__(self, parts: Sequence[Any], workers: Workers) -> None:
        self._list = list(parts)
        self._workers = workers

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, on its worker."""
        return self._workers.answers(question, self._list, *self._columns(arguments))

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> DaskParts:
        """The same rows with other labels."""
        return DaskParts(self._workers.kept(ArrayRecords.with_labels, self._list, labels), self._workers)

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> DaskParts:
        """``make(part, *arguments)`` of every part, kept by its worker."""
        made = self._workers.kept(make, self._list, *self._columns(arguments))
        return DaskParts(made, self._workers)

    def _columns(self, arguments: Sequence[Any]) -> list[list[Any]]:
        return [[argument] * len(self._list) for argument in arguments]


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
    # What came over a network may lie at any address; kernels use aligned rows in place.
    return np.require(values, dtype=kind, requirements=["C", "A"])


def _shape(block: Any) -> tuple[int, int, bool]:
    return (*block.shape, not isinstance(block, np.ndarray))


def _records(clip: Callable[[Any], Any], block: Any, y: Any, bounds: Bounds, null: Any) -> ArrayRecords:
    return ArrayRecords(clip(block), y, bounds, null, n_threads=1)


def _checked(part: ArrayRecords) -> int:
    return part.n_samples
