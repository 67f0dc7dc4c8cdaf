"""Rows on a Dask cluster: passes run where the partitions are, and only sums travel.

Needs the extra ``dask``. Noise is never drawn on a worker: what comes back from the partitions are exact questions
answered about private rows, added up and perturbed once, in the process that runs the fit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import ParameterError
from discreet.records.clusters.base import checksum
from discreet.records.clusters.columns import joined
from discreet.records.clusters.crew import Crew
from discreet.records.clusters.kept_rows import KeptRows, Noted, facts_of
from discreet.records.clusters.workers import workers
from discreet.records.open import as_numbers, is_dask
from discreet.tables.reading import as_cells, is_from

REPEATABLE = (
    "computing a partition of the Dask collection again gives the same rows in the same order, as it happens when a "
    "worker is lost: no random sampling without a seed, no source that changes meanwhile (given by the user)"
)


def is_dask_frame(data: Any) -> bool:
    """Whether this is a Dask data frame, without importing Dask."""
    return is_dask(data) and is_from(data, "dask.dataframe", "DataFrame")


class DaskRows(KeptRows):
    """Rows of a Dask array or data frame as matrices of one kind, kept in the memory of the workers.

    With a `distributed` client the partitions stay where they are computed;
    without one they are computed by Dask's threads in this process. Cells that are no numbers are NaN.

    Parameters
    ----------
    X : a Dask array, data frame or bag.
    y : a Dask collection of labels, one for every row.
    """

    assumptions = (REPEATABLE,)

    def __init__(self, X: Any, y: Any = None) -> None:
        self._workers = workers()
        self._blocks = self._workers.opened(row_blocks(X), partial(_matrix, dtype=_one_type(X)))
        blocks: Any = np.ravel(y.to_delayed()) if y is not None and getattr(y, "ndim", 1) == 1 else []
        cells = self._workers.opened(list(blocks), _cells) if len(blocks) == len(self._blocks) else None
        self._crew = Crew(self._workers, self._blocks, *([] if cells is None else [cells]))
        opened = self._crew.opened
        names = [str(name) for name in X.columns] if is_dask_frame(X) else []
        super().__init__(self._crew, opened, self._crew.answers(facts_of, *opened), names)


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


def _cells(block: Any) -> Noted:
    cells = as_cells(block)
    return Noted(cells, checksum(cells))
