"""Rows on a Dask cluster: passes run where the partitions are, and only sums travel.

Needs the extra ``dask``. Noise is never drawn on a worker: what comes back from the partitions are exact questions
answered about private rows, added up and perturbed once, in the process that runs the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import ParameterError
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.open import Rows, as_numbers, is_dask
from discreet.records.partitioned import (
    Column,
    Formula,
    PartitionedRecords,
    checksum,
    joined,
    one_ending,
    small_labels,
)
from discreet.records.workers import Crew, Kept, workers
from discreet.tables.reading import as_cells, is_from

REPEATABLE = (
    "computing a partition of the Dask collection again gives the same rows in the same order, as it happens when a "
    "worker is lost: no random sampling without a seed, no source that changes meanwhile (given by the user)"
)


def is_dask_frame(data: Any) -> bool:
    """Whether this is a Dask data frame, without importing Dask."""
    return is_dask(data) and is_from(data, "dask.dataframe", "DataFrame")


class Noted(NamedTuple):
    """Values of a partition with their checksum, taken whenever they are made: to compare it costs nothing."""

    values: Any
    checksum: int


class DaskRows(Rows):
    """Rows of a Dask array or data frame as matrices of one kind, kept in the memory of the workers.

    Looks like a matrix as far as its shape. With a `distributed` client the partitions stay where they are computed;
    without one they are computed by Dask's threads in this process. Cells that are no numbers are NaN.

    Parameters
    ----------
    X : a Dask array, data frame or bag.
    y : a Dask collection of labels, one for every row.

    Attributes
    ----------
    labels : those of ``y``, left with the workers; None if its partitions are not those of X.
    """

    assumptions = (REPEATABLE,)

    def __init__(self, X: Any, y: Any = None) -> None:
        self._workers = workers()
        self._blocks = self._workers.opened(row_blocks(X), partial(_matrix, dtype=_one_type(X)))
        blocks: Any = np.ravel(y.to_delayed()) if y is not None and getattr(y, "ndim", 1) == 1 else []
        cells = self._workers.opened(list(blocks), _cells) if len(blocks) == len(self._blocks) else None
        self._crew = Crew(self._workers, self._blocks, *([] if cells is None else [cells]))
        self._rows, *cells_there = self._crew.opened
        shapes, checksums, sizes = zip(*self._crew.answers(_facts, *self._crew.opened), strict=True)
        if len({(width, sparse) for _, width, sparse in shapes}) != 1:
            raise ValueError(
                "the partitions of X differ: all must have the same number of columns, and all be dense or all be "
                "SciPy sparse matrices"
            )
        self._sizes, self._checksums = [shape[0] for shape in shapes], [sums[0] for sums in checksums]
        _, self._width, self._sparse = shapes[0]
        if not (self._width and sum(self._sizes)):
            raise ParameterError(
                "X",
                "has no rows or no columns",
                "a fit needs at least one of each",
            )
        self.feature_names = tuple(str(name) for name in X.columns) if is_dask_frame(X) else ()
        self.labels: Column | None = None
        if cells_there and [size for (_, size) in sizes] == self._sizes:
            kept, sums = (
                Column.kept_as(self._crew, self._sizes, entries)
                for entries in (*cells_there, [sums[1] for sums in checksums])
            )
            self.labels = kept.of(unchanged, sums)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(self._sizes), self._width

    def valid(self, bounds: Bounds) -> Any:
        """Which rows are finite and not absurd."""
        return Column.kept_as(self._crew, self._sizes, self._rows).of(_valid, bounds)

    def records(
        self,
        labels: NDArray[Any] | Column,
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | Column | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the workers once unless they are there."""
        given = [
            values if values is None else Column.of_all(self._crew, self._sizes, values)
            for values in (labels, null_rows)
        ]
        entries = {
            name: kept for column in given if column is not None for name, kept in column.entries.items()
        }
        formulas = [None if column is None else column.formula for column in given]
        told = [(clip, bounds, formulas, list(entries))] * len(self._sizes)
        parts = self._crew.kept(_records, told, self._rows, self._checksums, *entries.values())
        self._crew.answers(_checked, parts)  # errors in rows show before anything is charged
        kept = DaskParts(parts, self._crew, len(self._sizes))
        return PartitionedRecords(kept, self._sizes, self._width, self._sparse, bounds, labels)


class DaskParts:
    """Parts on workers; whatever goes wrong there ends in `WorkersLost`, because it may be after the charge."""

    def __init__(self, parts: Kept, crew: Crew, count: int) -> None:
        self._parts, self._crew, self._count = parts, crew, count

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, on its worker: one message to each worker, and one back."""
        with one_ending():
            return self._crew.answers(_asked, self._parts, [(question, arguments)] * self._count)

    def with_labels(self, labels: Sequence[NDArray[Any]] | Column) -> DaskParts:
        """The same rows with other labels."""
        if isinstance(labels, Column):
            told = [(labels.formula, list(labels.entries))] * self._count
            return self._made(_relabeled, told, self._parts, *labels.entries.values())
        return self._made(ArrayRecords.with_labels, self._parts, [small_labels(part) for part in labels])

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> DaskParts:
        """``make(part, *arguments)`` of every part, kept by its worker."""
        return self._made(_asked, self._parts, [(make, arguments)] * self._count)

    def _made(self, make: Callable[..., ArrayRecords], *columns: Any) -> DaskParts:
        return DaskParts(self._crew.kept(make, *columns), self._crew, self._count)


def row_blocks(X: Any) -> list[Any]:
    """One delayed block of whole rows per partition."""
    if not is_from(X, "dask.array", "Array"):
        return list(X.to_delayed())
    if X.ndim != 2:
        raise ParameterError("X", f"must have two dimensions (rows, columns), got {X.ndim}")
    return [row[0] for row in X.rechunk({1: -1}).to_delayed()]


def labels_of(y: Any) -> NDArray[Any]:
    """All labels in this process, each as its partition holds it: joined by Dask, one could decide the type of all."""
    from dask import compute

    blocks = row_blocks(y) if getattr(y, "ndim", 1) == 2 else np.ravel(y.to_delayed())
    return joined([as_cells(block) for block in compute(*blocks)])


def declared_types(X: Any) -> list[Any]:
    """The types that a Dask collection says it has, column by column if it is a frame; bags say nothing."""
    if is_dask_frame(X):
        return list(X.dtypes)
    return [X.dtype] if is_from(X, "dask.array", "Array") else []


def _one_type(X: Any) -> type[np.floating[Any]]:
    """The type of all matrices: by what the collection declares, not by what one row of one partition makes of it."""
    declared = declared_types(X)
    return np.float32 if declared and all(kind == np.float32 for kind in declared) else np.float64


def _matrix(block: Any, dtype: type[np.floating[Any]]) -> Noted:
    """A partition as a matrix of numbers, NaN where a cell is none."""
    matrix = _numbers(block, dtype)
    return Noted(matrix, checksum(matrix))


def _numbers(block: Any, dtype: type[np.floating[Any]]) -> Any:
    with np.errstate(all="ignore"):  # of numbers that the type does not hold
        values = as_numbers(block)
        if bool(sp.issparse(values)):
            return values.tocsr().astype(dtype, copy=False)
        if values.ndim != 2:
            raise ParameterError("X", f"must have two dimensions (rows, columns), got {values.ndim}")
        # What came over a network may lie at any address; kernels use aligned rows in place.
        return np.require(values, dtype=dtype, requirements=["C", "A"])


def _asked(part: ArrayRecords, asked: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    question, arguments = asked
    return question(part, *arguments)


def _cells(block: Any) -> Noted:
    cells = as_cells(block)
    return Noted(cells, checksum(cells))


def _facts(block: Noted, *cells: Noted) -> tuple[tuple[int, int, bool], list[int], list[int]]:
    """Shape of a block and whether it is sparse; checksums and lengths of it and of its labels, if they are there."""
    noted = [block, *cells]
    shape = (*block.values.shape, not isinstance(block.values, np.ndarray))
    return shape, [one.checksum for one in noted], [one.values.shape[0] for one in noted]


def _valid(block: Noted, bounds: Bounds) -> NDArray[np.bool_]:
    return bounds.valid_rows(block.values)


Told = tuple[
    Callable[[Any], Any], Bounds, list[Any], list[int]
]  # formulas of labels and of null rows, if any


def _records(told: Told, block: Noted, expected: int, *entries: Any) -> ArrayRecords:
    clip, bounds, formulas, names = told
    values = dict(zip(names, entries, strict=True))
    rows = unchanged(block, expected)
    labels, null = (formula and formula(values) for formula in formulas)
    return ArrayRecords(clip(rows), labels, bounds, None if null is None else null.astype(bool), n_threads=1)


def unchanged(noted: Noted, expected: int) -> Any:
    """The values of a partition; raises if it was made again and has others than before."""
    if noted.checksum != expected:
        raise ValueError("a partition has other rows than before")
    return noted.values


def _relabeled(told: tuple[Formula, list[int]], part: ArrayRecords, *entries: Any) -> ArrayRecords:
    formula, names = told
    return part.with_labels(formula(dict(zip(names, entries, strict=True))))


def _checked(part: ArrayRecords) -> int:
    return part.n_samples
