"""The promise that every entry of a record lies between -1 and 1: what selections over an L1 ball rely on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.bounds import LARGEST_ENTRY, Bounds, without_duplicates

_BLOCK_ENTRIES = 1 << 18


#: What a statement says of rows that were shrunk by their largest entry.
SHRUNK_BY_ENTRIES = "row norm as largest entry (intercept included)"


@dataclass(frozen=True)
class BoxBounds(Bounds):
    """The public promise |v_j| <= 1 about every entry of every record.

    ``clip`` divides a matrix by ``column_bound`` and cuts every entry to [-1, 1], on both sides: a cut on one side
    only would leave the other unbounded. Should rows arrive that were not cut, ``row_scales`` shrinks them as a whole
    into the box, so that the promise holds for whatever reaches a sum. The intercept's constant is 1.

    Make one with ``BoxBounds.of(n_columns, ...)``, which sets ``feature_norm`` to the L2 norm that follows.

    Privacy
    -------
    Cutting looks at one entry at a time and shrinking at one row at a time, so both commute with every neighboring
    relation; a row that is not finite is a null record.

    Examples
    --------
    >>> bounds = BoxBounds.of(2, column_bound=10.0, intercept=False)
    >>> bounds.clip(np.array([[5.0, -1e6]]))
    array([[ 0.5, -1. ]])
    >>> bounds.row_scales(np.array([[0.5, -1.0], [0.5, -4.0]]))
    array([1.  , 0.25])
    """

    column_bound: float = 1.0
    entry_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.column_bound, bool) or not 2.0**-100 <= self.column_bound <= 2.0**100:
            raise ValueError(
                f"the bound on features must lie between 2**-100 and 2**100, got {self.column_bound!r}"
            )
        object.__setattr__(self, "column_bound", float(self.column_bound))

    @classmethod
    def of(cls, n_columns: int, column_bound: float = 1.0, intercept: bool = True) -> BoxBounds:
        """The bounds of rows with this many columns."""
        norm = math.sqrt(n_columns + int(intercept)) * (1 + (n_columns + 16) * 2.0**-51)
        return cls(norm, intercept, column_bound)

    def clip(self, X: Any) -> Any:
        """X / column_bound with every entry cut to [-1, 1]; CSR stays CSR, and nothing is copied without need."""
        if bool(sp.issparse(X)):
            matrix = without_duplicates(X if X.format == "csr" else X.tocsr())
            entries = self._cut(matrix.data)
            if entries is matrix.data:
                return matrix
            return type(matrix)((entries, matrix.indices, matrix.indptr), shape=matrix.shape)
        return self._cut(np.asarray(X))

    def _cut(self, entries: NDArray[Any]) -> NDArray[Any]:
        if entries.dtype.kind != "f":
            entries = entries.astype(np.float64)
        with np.errstate(all="ignore"):
            if self.column_bound != 1:
                # In float64 whatever the type: one row that is stored out of order, or one cell that is no number,
                # decides the type of all, and a quotient in float32 would be another one in every row.
                entries = np.divide(entries, self.column_bound, dtype=np.float64)
            elif np.all(np.abs(entries) <= 1):
                return entries
            return np.asarray(np.clip(entries, -1.0, 1.0))

    def row_scales(self, X: Any) -> NDArray[np.float64]:
        """1 for rows inside the box, else the factor that shrinks a row into it; 0 for rows that are no numbers."""
        if isinstance(X, sp.csr_array | sp.csr_matrix):
            X = without_duplicates(X)
        largest = _largest_entries(X)
        scales = np.ones(len(largest))
        with np.errstate(all="ignore"):
            # Three units in the last place pay for the rounding of the quotient.
            outside = ~(largest <= 1.0)
            scales[outside] = (1.0 - 3 * 2.0**-53) / largest[outside]
            scales[~(largest <= LARGEST_ENTRY)] = 0.0
        return scales


def _largest_entries(X: Any) -> NDArray[np.float64]:
    """The largest absolute entry of every row, nan where an entry is."""
    n_rows, n_columns = X.shape
    largest = np.zeros(n_rows)
    if n_columns == 0:
        return largest
    if bool(sp.issparse(X)):
        indptr = np.asarray(X.indptr, dtype=np.int64)
        occupied = np.flatnonzero(np.diff(indptr))
        if len(occupied):
            entries = np.abs(np.asarray(X.data, dtype=np.float64))
            largest[occupied] = np.maximum.reduceat(entries, indptr[occupied])
        return largest
    height = max(1, _BLOCK_ENTRIES // n_columns)
    for start in range(0, n_rows, height):
        block = np.abs(np.asarray(X[start : start + height], dtype=np.float64))
        largest[start : start + height] = block.max(axis=1)
    return largest
