"""Public bounds on rows, the clipping that enforces them, and bounds on the rounding of sums over clipped rows.

`BoxBounds` bounds every entry of a record by 1, as selections over an L1 ball require. Proofs: docs/proofs/rounding.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import ParameterError
from discreet._typing import Array

if TYPE_CHECKING:
    from discreet.losses import Loss

#: A row with a larger entry is treated like a non-finite one. The limit keeps products of rows and models far from
#: overflow, and squares of row scales far from underflow, where they would round up to twice their size
#: (docs/proofs/rounding.md, section 1).
LARGEST_ENTRY = 2.0**300

UNIT_ROUNDOFF = 2.0**-53
#: Maximum number of rows that are summed in one unknown order (by BLAS or SciPy).
MAX_CHUNK_ROWS = 8192

_SMALLEST_NORM, _LARGEST_NORM = 2.0**-100, 2.0**100
_SAFE_SQUARE = LARGEST_ENTRY**2  # below this squared norm, all entries may be valid
_MAX_COLUMNS = 2**31
_BLOCK_ENTRIES = 1 << 18
_BUFFER = 8192  # terms that NumPy adds up without a break
_SPARSE = (sp.csr_array, sp.csr_matrix)


@dataclass(frozen=True)
class Bounds:
    """The public bound |v|_2 <= feature_norm on every record that enters a sum.

    A row x becomes the record v = s (x, 1), or s x without an intercept, with the row scale s = min(1, R' / |(x,
    1)|_2), where R' is ``feature_norm`` lowered by a few units in the last place. Clipping includes the intercept: a
    constant column added after clipping would make the true bound sqrt(R^2 + 1).

    Parameters
    ----------
    feature_norm : float
        R, the largest Euclidean norm of a record. Declare it; never use private data to choose it.
    intercept : bool
        Whether the record has a constant 1 after the row.

    Privacy
    -------
    The rule uses one row at a time, so it commutes with every neighboring relation. The exact real norm of s (x, 1),
    for the floating-point number s, is at most R: the reduction to R' covers every rounding in the computation of s
    (docs/proofs/rounding.md, section 1). A row that is not finite, or has an entry beyond 2**300, has s = 0: a null
    record, which contributes nothing to any sum.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.3, 0.4], [3.0, 4.0], [np.nan, 0.0]])
    >>> Bounds(feature_norm=1.0, intercept=False).row_scales(rows)
    array([1. , 0.2, 0. ])
    """

    feature_norm: float = 1.0
    intercept: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "feature_norm", _usable("feature_norm", self.feature_norm))
        object.__setattr__(self, "intercept", bool(self.intercept))

    def to_dict(self) -> dict[str, Any]:
        """Return the bounds as plain JSON-ready values, for model files."""
        return {"kind": _NAMES[type(self)], **asdict(self)}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Bounds:
        """Rebuild bounds of either kind; raise ``ValueError`` for malformed values.

        >>> Bounds.from_dict(BoxBounds.of(2, column_bound=10.0).to_dict()) == BoxBounds.of(2, column_bound=10.0)
        True
        """
        known = {name: kind for kind, name in _NAMES.items()}
        if fields.get("kind") not in known:
            raise ValueError(f"the kind of row bounds must be one of {sorted(known)}")
        kind = known[fields["kind"]]
        values = {name: value for name, value in fields.items() if name != "kind"}
        if values.keys() != {part.name for part in dataclasses.fields(kind)}:
            raise ValueError(
                f"row bounds of this kind have {[part.name for part in dataclasses.fields(kind)]}"
            )
        if type(values["intercept"]) is not bool:
            raise ParameterError("intercept", "must be true or false")
        return kind(**values)

    def n_features(self, n_columns: int) -> int:
        """Return the length of a record made from a row of ``n_columns`` entries."""
        return n_columns + int(self.intercept)

    def row_scales(self, X: Any) -> NDArray[np.float64]:
        """Return the scale s of every row of a dense or CSR matrix; 0 for rows with non-finite or huge entries."""
        if isinstance(X, _SPARSE):
            X = without_duplicates(X)
        scales = np.empty(X.shape[0])
        with np.errstate(all="ignore"):
            for rows, squares in squared_norms(X):
                scales[rows] = self._scales_from(X, rows, squares)
        return scales

    def _scales_from(self, X: Any, rows: slice, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scales of some rows with these squared norms."""
        n_columns = X.shape[1]
        if n_columns > _MAX_COLUMNS:
            raise ValueError(f"at most 2**31 columns are supported, got {n_columns}")
        radius = self.feature_norm * (1.0 - (n_columns + 8) * 2.0**-52)
        one = 1.0 if self.intercept else 0.0
        norms = np.sqrt(squares + one)
        scales = np.where(norms <= radius, 1.0, radius / norms)
        for offset in np.flatnonzero(~(squares <= _SAFE_SQUARE)):
            scales[offset] = _scale_of_large_row(_row(X, rows.start + int(offset)), radius, one)
        return scales

    def valid_rows(self, X: Any) -> NDArray[np.bool_]:
        """Return which rows are records; the others can only enter a sum as null records."""
        return self.row_scales(X) > 0


def _usable(name: str, bound: Any) -> float:
    """Return the bound as a float after checking that no product can over- or underflow."""
    if isinstance(bound, bool) or not isinstance(bound, int | float | np.integer | np.floating):
        raise ParameterError(name, f"must be a number, got {bound!r}")
    if not _SMALLEST_NORM <= bound <= _LARGEST_NORM:
        raise ParameterError(
            name,
            f"must lie between 2**-100 and 2**100, got {bound!r}",
            "scale the columns by public constants so that rows have a norm near 1",
        )
    return float(bound)


def without_duplicates(X: Any) -> Any:
    """Return a CSR matrix that stores each entry at most once: X itself if it is in order, otherwise a float64 copy.

    Duplicate entries add up, so the norm of the stored entries would understate the norm of the row. The matrix's own
    flags are not trusted. One row out of order changes the dtype of the whole copy, so computations on entries must use
    float64, where the entries of other rows do not change.
    """
    row_ends = np.asarray(X.indptr[1:-1], dtype=np.int64)
    for start in range(0, max(0, X.indices.size - 1), 1 << 20):
        stop = min(start + (1 << 20), X.indices.size - 1)
        unordered = X.indices[start + 1 : stop + 1] <= X.indices[start:stop]
        ends = row_ends[np.searchsorted(row_ends, start + 1) : np.searchsorted(row_ends, stop, side="right")]
        unordered[ends - start - 1] = False  # indices need not increase from one row to the next
        if unordered.any():
            ordered = X.astype(np.float64, copy=True)
            ordered.has_sorted_indices = ordered.has_canonical_format = False
            ordered.sum_duplicates()
            return ordered
    return X


def squared_norms(X: Any) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield squared row norms, block by block, without a copy of the matrix."""
    n_rows, n_columns = X.shape
    height = max(1, _BLOCK_ENTRIES // max(1, n_columns))
    if not isinstance(X, _SPARSE):
        # In C order: the last bit of a norm must not depend on the number of rows.
        X = np.asarray(X)
        in_place = X.dtype == np.float64 and X.flags.c_contiguous
        # One copy for all blocks: workers of Dask ask the system for every large array anew, page by page.
        copies = np.empty((0 if in_place else min(height, n_rows), n_columns))
        for start in range(0, n_rows, height):
            block = X[start : start + height]
            if not in_place:
                np.copyto(copies[: len(block)], block, casting="unsafe")
                block = copies[: len(block)]
            yield slice(start, start + len(block)), row_products(block)
        return
    for start in range(0, n_rows, 1 << 16):
        indptr = np.asarray(X.indptr[start : start + (1 << 16) + 1], dtype=np.int64)
        entries = np.asarray(X.data[indptr[0] : indptr[-1]], dtype=np.float64)
        squares = np.zeros(len(indptr) - 1)
        occupied = np.flatnonzero(np.diff(indptr))
        if len(occupied):
            squares[occupied] = np.add.reduceat(entries * entries, indptr[occupied] - indptr[0])
        yield slice(start, start + len(squares)), squares


def row_products(rows: NDArray[np.float64], other: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Multiply every row by another vector, by default by itself, in an order that no other row changes.

    NumPy splits sums of more terms than its buffer holds, and where depends on the number of rows.
    """
    total = np.zeros(len(rows))
    for first in range(0, rows.shape[1], _BUFFER):
        part = rows[:, first : first + _BUFFER]
        if other is None:
            found = np.einsum("ij,ij->i", part, part)
        else:
            found = np.einsum("ij,j->i", part, other[first : first + _BUFFER])
        total = found if first == 0 else total + found
    return total


def _row(X: Any, index: int) -> NDArray[np.float64]:
    """Return the stored entries of one row."""
    entries = X.data[X.indptr[index] : X.indptr[index + 1]] if isinstance(X, _SPARSE) else X[index]
    return np.asarray(entries, dtype=np.float64)


def _scale_of_large_row(row: NDArray[np.float64], radius: float, one: float) -> float:
    """Return the scale of a row with many large entries, without overflow; 0 if an entry is too large."""
    largest = float(np.max(np.abs(row)))
    if not largest <= LARGEST_ENTRY:  # also true of nan
        return 0.0
    unit = 2.0 ** math.frexp(largest)[1]
    norm = math.sqrt(float(np.sum(np.square(row / unit))) + (one / unit) ** 2)
    return radius / unit / norm


@dataclass(frozen=True)
class BoxBounds(Bounds):
    """The public bound |v_j| <= 1 on every entry of every record.

    ``clip`` divides a matrix by ``column_bound`` and clips every entry to [-1, 1]. For rows that were not clipped,
    ``row_scales`` shrinks the whole row into the box, so the bound holds for everything that enters a sum. The
    intercept's constant is 1.

    Create one with ``BoxBounds.of(n_columns, ...)``, which sets ``feature_norm`` to the resulting L2 norm.

    Privacy
    -------
    Clipping uses one entry at a time and shrinking one row at a time, so both commute with every neighboring relation;
    a non-finite row is a null record.

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
        object.__setattr__(self, "column_bound", _usable("column_bound", self.column_bound))

    @classmethod
    def of(cls, n_columns: int, column_bound: float = 1.0, intercept: bool = True) -> BoxBounds:
        """Return the bounds of rows with this many columns."""
        norm = math.sqrt(n_columns + int(intercept)) * (1 + (n_columns + 16) * 2.0**-51)
        return cls(norm, intercept, column_bound)

    def clip(self, X: Any) -> Any:
        """Return X / column_bound with every entry clipped to [-1, 1]; CSR stays CSR, and copies are avoided."""
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
                # Always in float64: one row stored out of order, or one cell that is not a number, changes the dtype of
                # the whole matrix, and a quotient in float32 would differ in every row.
                entries = np.divide(entries, self.column_bound, dtype=np.float64)
            elif np.all(np.abs(entries) <= 1):
                return entries
            return np.asarray(np.clip(entries, -1.0, 1.0))

    def row_scales(self, X: Any) -> NDArray[np.float64]:
        """Return 1 for rows inside the box, otherwise the factor that shrinks a row into it; 0 for non-finite rows."""
        if isinstance(X, sp.csr_array | sp.csr_matrix):
            X = without_duplicates(X)
        largest = _largest_entries(X)
        scales = np.ones(len(largest))
        with np.errstate(all="ignore"):
            # Three units in the last place cover the rounding of the quotient.
            outside = ~(largest <= 1.0)
            scales[outside] = (1.0 - 3 * 2.0**-53) / largest[outside]
            scales[~(largest <= LARGEST_ENTRY)] = 0.0
        return scales


_NAMES: dict[type[Bounds], str] = {Bounds: "norm", BoxBounds: "box"}  # in files


def _largest_entries(X: Any) -> NDArray[np.float64]:
    """Return the largest absolute entry of every row; nan if an entry is nan."""
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


# -- rounding --------------------------------------------------------------------------------------------


def gamma(k: float) -> float:
    """Return Higham's gamma_k = k u / (1 - k u), which bounds the relative change of a sum by k roundings."""
    ku = k * UNIT_ROUNDOFF
    if not ku < 0.01:
        raise ValueError(f"a sum of {k:g} terms is too long for the rounding analysis; split the data")
    return ku / (1.0 - ku)


def worst_additions(n_samples: int) -> int:
    """Return the most additions any record's term passes through, for any storage and split of the rows."""
    return min(n_samples, MAX_CHUNK_ROWS + n_samples // 256 + 64)


def chunked_sum(terms: Array) -> Array:
    """Sum over the first axis, chunk by chunk: no term passes through more additions than `worst_additions` counts."""
    pieces = [
        terms[start : start + MAX_CHUNK_ROWS].sum(axis=0) for start in range(0, len(terms), MAX_CHUNK_ROWS)
    ]
    return np.asarray(np.sum(pieces, axis=0) if pieces else np.zeros(terms.shape[1:]))


def gradient_rounding(
    loss: Loss,
    n_samples: int,
    n_features: int,
    feature_norm: float,
    theta_norm: float,
    additions: int | None = None,
) -> float:
    """Bound |computed - exact| (L2) for a sum of n record gradients at a theta of the given norm.

        e = n R (beta gamma_{p+3} R |theta| + (kappa + 2) u L + gamma_{m+2} L) (1 + 1/100) + underflow,

    where p counts features with the intercept, m = ``additions`` is the largest number of additions any record's term
    passes through (by default the most for any storage), and kappa is the loss's evaluation error. Uses public numbers
    only. Proof: docs/proofs/rounding.md, sections 2 to 4.
    """
    if additions is None:
        additions = worst_additions(n_samples)
    margin = loss.smoothness * gamma(n_features + 3) * feature_norm * theta_norm
    evaluation = (loss.evaluation_error + 2.0) * UNIT_ROUNDOFF * loss.lipschitz
    summation = gamma(additions + 2) * loss.lipschitz
    underflow = 2.0**-140 * (1.0 + loss.smoothness) * (1.0 + loss.lipschitz) * n_features * loss.n_outputs
    return 1.01 * n_samples * feature_norm * (margin + evaluation + summation) + n_samples * underflow


def summation_rounding(n_samples: int, norm: float) -> float:
    """Bound the rounding error of a sum with one term of at most this norm per record, over blocks and parts.

    A record's term passes through one block of at most 2^17 rows, the blocks of its part, and the parts.
    """
    additions = min(n_samples, 2**17 + n_samples // 128 + 64)
    return 1.01 * gamma(additions + 16) * n_samples * norm


def row_rounding(n_features: int, feature_norm: float) -> float:
    """Bound the rounding error of a reshaped record (docs/proofs/gradient-methods.md, section 7)."""
    return 1.01 * gamma(n_features + 32) * (math.sqrt(n_features) + 1) * feature_norm
