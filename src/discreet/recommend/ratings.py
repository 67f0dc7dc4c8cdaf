"""User x item data: read, checked, scaled to [-1, 1], and summed in blocks of users.

Users add integers to a sum, so sums do not depend on blocks, threads or the order of users. The compiled kernels run
without the interpreter lock; BLAS uses one thread while several threads run.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import HintedError, ParameterError, ParameterTypeError, Setting, silently
from discreet._typing import Array, Integers
from discreet.recommend import kernels
from discreet.records.clipped_rows import one_blas_thread
from discreet.tables.domains import SchemaError, category_codes, read_numbers
from discreet.tables.reading import column, column_names, entries_to_numbers, id_column, is_frame, raw_column

Items = NDArray[np.int32]
Result = TypeVar("Result")

LANE_ENTRIES = 1 << 24  # size of the largest sum that every thread may copy
_BLOCK_ENTRIES = 1 << 20  # ratings in one block of users
USER, ITEM, RATING = "user", "item", "rating"


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(task: Callable[[int], Result], count: int) -> list[Result]:
    """Run ``task(0)``, ..., ``task(count - 1)``, each in its own thread."""
    if count <= 1:
        return [task(number) for number in range(count)]
    with one_blas_thread, ThreadPoolExecutor(count) as pool:
        return list(pool.map(partial(silently, task), range(count)))


@dataclass(frozen=True)
class Scale:
    """The public range of ratings; inside the library a rating is (rating - middle) / half, in [-1, 1]."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The public center."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half the range."""
        return (self.high - self.low) / 2

    def inside(self, ratings: NDArray[Any]) -> Array:
        """Return ratings as numbers in [-1, 1], clipped."""
        values = np.array(ratings, dtype=np.float64)
        values -= self.middle
        values /= self.half
        return np.clip(values, -1.0, 1.0, out=values)

    def outside(self, values: Array) -> Array:
        """Convert back to ratings within the range."""
        return np.asarray(np.clip(self.middle + self.half * values, self.low, self.high))


@dataclass(frozen=True)
class Clicks:
    """Implicit feedback: every stored entry counts as 1."""

    def inside(self, ratings: NDArray[Any]) -> Array:
        """Ones."""
        return np.ones(len(ratings))


class Users(Protocol):
    """All users' rows, in memory, in a mapped file or on a cluster; they can only be summed.

    Each user's row is whole and in one place, because a user's contribution to a sum is bounded row by row.
    """

    @property
    def n_users(self) -> int:
        """Number of rows."""

    @property
    def n_items(self) -> int:
        """Size of the catalog."""

    def total(self, shape: tuple[int, ...], add: Callable[[Ratings, Integers], None]) -> Integers:
        """Return the exact sum of ``add(block, sums)`` over blocks of users; it must not depend on the blocks."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee assumes about where the rows are."""

    def as_clicks(self) -> Self:
        """Return the same rows without their values: only the items count."""


@dataclass(frozen=True)
class Ratings:
    """Rows of users: ``items[starts[i]:starts[i + 1]]`` in increasing order, and their values.

    ``part`` returns values in [-1, 1]. The object itself may store them unscaled, with their ``scale``, to avoid a
    second copy of all ratings. Sums use ``n_threads`` threads. ``after`` is called after every block with the number of
    its ratings.
    """

    starts: Integers
    items: Items
    values: NDArray[Any]
    n_items: int
    scale: Scale | Clicks | None = None
    n_threads: int = field(default_factory=processors)
    after: Callable[[int], None] | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def blocks(self, size: int | None = None) -> Iterator[tuple[int, int]]:
        """Return first and end of consecutive blocks of users with this many ratings, about a million by default."""
        begin = 0
        while begin < self.n_users:
            limit = self.starts[begin] + (size or _BLOCK_ENTRIES)
            end = int(np.searchsorted(self.starts, limit, side="right")) - 1
            end = min(max(end, begin + 1), self.n_users)
            yield begin, end
            begin = end

    def part(self, begin: int, end: int) -> Ratings:
        """Return users begin..end-1 with values in [-1, 1]; items are views."""
        entries = slice(int(self.starts[begin]), int(self.starts[end]))
        starts = self.starts[begin : end + 1] - self.starts[begin]
        values = self.values[entries] if self.scale is None else self.scale.inside(self.values[entries])
        return Ratings(starts, self.items[entries], values, self.n_items, n_threads=self.n_threads)

    def add_to(
        self,
        sums: Integers,
        add: Callable[[Ratings, Integers], None],
        blocks: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        """Add some blocks of users, by default all, to ``sums``."""
        for begin, end in self.blocks() if blocks is None else blocks:
            add(self.part(begin, end), sums)
            if self.after is not None:
                self.after(int(self.starts[end] - self.starts[begin]))

    def total(self, shape: tuple[int, ...], add: Callable[[Ratings, Integers], None]) -> Integers:
        """Return the exact sum over all blocks of users; threads hold their own sums if memory allows."""
        blocks = list(self.blocks())  # where they begin and end: values are scaled one block at a time
        lanes = min(self.n_threads if math.prod(shape) <= LANE_ENTRIES else 1, len(blocks))

        def one_lane(lane: int) -> Integers:
            sums = np.zeros(shape, dtype=np.int64)
            self.add_to(sums, add, blocks[lane::lanes])
            return sums

        sums = in_threads(one_lane, lanes) or [np.zeros(shape, dtype=np.int64)]
        for other in sums[1:]:
            np.add(sums[0], other, out=sums[0])
        return sums[0]

    def as_clicks(self) -> Self:
        """Return the same rows without their values: only the items count."""
        return dataclasses.replace(self, scale=Clicks())


@contextmanager
def opened(
    user_items: Any, scale: Scale | Clicks, catalog: Any, *, out_of_bounds: str, duplicates: str
) -> Iterator[tuple[Users, NDArray[Any]]]:
    """Open all users and the catalog: a matrix or data frame in memory, a source of rows, a Dask collection."""
    rules = {"out_of_bounds": out_of_bounds, "duplicates": duplicates}
    if sp.issparse(user_items) or is_frame(user_items):
        yield read(user_items, scale, catalog, **rules)
        return
    from discreet.recommend import sources
    from discreet.records.open import is_dask
    from discreet.records.sources import is_source

    if is_dask(user_items):
        yield sources.opened_collection(user_items, scale, catalog, **rules)
    elif is_source(user_items):
        with sources.opened_source(user_items, scale, catalog, **rules) as ready:
            yield ready
    else:
        yield read(user_items, scale, catalog, **rules)


def read(
    user_items: Any,
    scale: Scale | Clicks,
    catalog: Any,
    *,
    out_of_bounds: str = "error",
    duplicates: str = "error",
) -> tuple[Ratings, NDArray[Any]]:
    """Check ratings, and return them with their catalog.

    Parameters
    ----------
    user_items : CSR (or any SciPy sparse) matrix, users x items, whose stored entries are the ratings, zeros included;
        or a data frame with columns user, item, rating (clicks need no rating).
    scale : public range of ratings, or clicks.
    catalog : public item labels, or None: the columns of the matrix, or the items found in the frame.
    out_of_bounds : "error" or "clip".
    duplicates : "error" or "mean": what to do with two ratings of one item by one user.
    """
    if sp.issparse(user_items):
        matrix, items = _from_matrix(user_items, catalog)
    elif is_frame(user_items):
        matrix, items = _from_frame(user_items, catalog, isinstance(scale, Clicks))
    else:
        raise ParameterTypeError(
            "user_items",
            "must be a SciPy sparse matrix (users x items) or a data frame with columns 'user', "
            "'item', 'rating'",
            f"got {type(user_items).__name__}. A dense array cannot say which entries are missing: "
            "build scipy.sparse.csr_array((ratings, (users, items)))",
        )
    check_values(matrix.data, scale, out_of_bounds)
    matrix = in_order(matrix, duplicates)
    starts, columns = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False)
    return Ratings(starts, columns, matrix.data, matrix.shape[1], scale), items


class RatingError(HintedError, ValueError):
    """Ratings that do not fit what was declared."""


def check_values(data: NDArray[Any], scale: Scale | Clicks, out_of_bounds: str) -> None:
    """Raise for ratings that are not finite or, if requested, not within the range."""
    strange = outside = 0
    for begin in range(0, len(data), _BLOCK_ENTRIES):
        part = np.asarray(data[begin : begin + _BLOCK_ENTRIES], dtype=np.float64)
        strange += int((~np.isfinite(part)).sum())
        if isinstance(scale, Scale):
            outside += int(((part < scale.low) | (part > scale.high)).sum())
    if strange:
        raise ValueError(f"{strange} ratings are not finite; remove them")
    if isinstance(scale, Scale) and outside and out_of_bounds == "error":
        raise RatingError(
            f"{outside} ratings lie outside the declared range, {scale.low:g} to {scale.high:g}",
            "correct them",
            Setting("rating_bounds", purpose="for the true public range"),
            Setting("out_of_bounds", "clip"),
        )


def _from_matrix(user_items: Any, catalog: Any) -> tuple[Any, NDArray[Any]]:
    check_memory(8 * user_items.shape[-1], "the catalog", "declare a smaller public one")
    if user_items.shape[-1] >= 2**31:
        raise ValueError(f"a catalog holds fewer than 2**31 items, got {user_items.shape[-1]}")
    matrix = user_items.tocsr() if user_items.format != "coo" else _csr_with_duplicates(user_items)
    if matrix.ndim != 2 or min(matrix.shape) < 1:
        raise ParameterError(
            "user_items", f"must have at least one user and one item, got shape {matrix.shape}"
        )
    matrix.check_format(full_check=True)
    if matrix.dtype.kind not in "fiub":
        matrix = entries_to_numbers(matrix)
    items = np.arange(matrix.shape[1]) if catalog is None else _labels(catalog)
    if len(items) != matrix.shape[1]:
        raise ParameterError("items", f"lists {len(items)} items, user_items has {matrix.shape[1]} columns")
    return matrix, items


def _csr_with_duplicates(coo: Any) -> Any:
    """Convert to CSR without adding up the ratings of repeated pairs, as SciPy's own conversion does."""
    order = np.lexsort((coo.coords[1], coo.coords[0]))
    starts = np.concatenate([[0], np.cumsum(np.bincount(coo.coords[0], minlength=coo.shape[0]))])
    return sp.csr_matrix((coo.data[order], coo.coords[1][order], starts), shape=coo.shape)


def _from_frame(frame: Any, catalog: Any, clicks: bool) -> tuple[Any, NDArray[Any]]:
    check_columns(column_names(frame), clicks)
    if len(frame) == 0:
        raise ValueError("the data frame holds no ratings")
    users, rows = np.unique(np.asarray(read_users(raw_column(frame, USER))), return_inverse=True)
    named = column(frame, ITEM)
    items = catalog_of(catalog, named)
    columns = find_items(named, items)
    ratings = np.ones(len(frame)) if clicks else read_ratings(column(frame, RATING))
    coo = sp.coo_array((ratings, (rows, columns)), shape=(len(users), len(items)))
    return _csr_with_duplicates(coo), items


def read_users(ids: Any) -> Any:
    """Return the users of ratings as an Arrow array of whole numbers or texts; raise for missing users."""
    users = id_column(ids, USER)
    if users.null_count:
        raise ValueError(f"{users.null_count} rows have no user; remove them, or give every person a label")
    return users


def read_ratings(cells: Any) -> Array:
    """Return ratings as numbers, NaN for cells that are not numbers."""
    try:
        return read_numbers(cells)[0]
    except SchemaError as error:
        raise ValueError(f"the column 'rating' {error}") from None


def check_columns(names: Iterable[str], clicks: bool) -> None:
    """Raise if a column is missing."""
    needed = (USER, ITEM) if clicks else (USER, ITEM, RATING)
    missing = [name for name in needed if name not in names]
    if missing:
        raise ValueError(
            f"the table lacks the columns {missing}; it must hold 'user', 'item' and, but for implicit feedback, "
            "'rating'"
        )


def catalog_of(declared: Any, found: Any) -> NDArray[Any]:
    """Return the declared public catalog; without one, the items in the Arrow array ``found``, with a warning."""
    if declared is not None:
        return _labels(declared)
    from discreet.privacy.guarantee import PrivacyWarning

    warnings.warn(
        "the catalog was read from the private ratings and is treated as public; pass items=[...] (in the shell: "
        "--catalog FILE) to declare it",
        PrivacyWarning,
        stacklevel=7,
    )
    return np.unique(np.asarray(found.drop_null()))


def check_memory(n_bytes: float, what: str, advice: str) -> None:
    """Raise if something would fill more than half of this machine's memory."""
    if hasattr(os, "sysconf"):
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if n_bytes > present / 2:
            raise ValueError(
                f"{what} would take {n_bytes / 2**30:.0f} GB, more than half of this machine's "
                f"{present / 2**30:.0f} GB; {advice}"
            )


def find_items(named: Any, items: NDArray[Any]) -> Integers:
    """Return the columns of the items in an Arrow array; raise for items that are not in the catalog."""
    columns = category_codes(named, items.tolist(), undeclared=len(items))
    if missing := int((columns < 0).sum()):
        raise ValueError(f"{missing} rows have no item; remove them")
    if len(unknown := np.flatnonzero(columns == len(items))):
        strange = sorted({str(name) for name in named.take(unknown).unique().to_pylist()})[:5]
        raise ValueError(
            f"items outside the catalog: {strange}; leave them out or declare them with items=[...] (in the shell: "
            "--catalog FILE)"
        )
    return columns


def _labels(catalog: Any) -> NDArray[Any]:
    items = np.asarray(catalog)
    if items.ndim != 1 or len(items) < 1 or len(np.unique(items)) != len(items):
        raise ParameterError("items", "must list the catalog once, each item a different label")
    return items


def in_order(matrix: Any, duplicates: str) -> Any:
    """Return a CSR matrix with sorted columns, each at most once per user; the same object if possible."""
    if not kernels.row_order(matrix.indptr, matrix.indices):
        return matrix
    matrix = matrix.copy()
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    repeated = (rows[1:] == rows[:-1]) & (matrix.indices[1:] == matrix.indices[:-1])
    if not repeated.any():
        return matrix
    if duplicates == "error":
        raise RatingError(
            f"{int(repeated.sum())} (user, item) pairs are rated more than once",
            "keep one rating of each",
            Setting("duplicates", "mean"),
        )
    first = np.concatenate([[True], ~repeated])
    group = np.cumsum(first) - 1
    means = np.bincount(group, weights=matrix.data) / np.bincount(group)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=matrix.shape[0]))])
    return sp.csr_matrix((means, matrix.indices[first], starts), shape=matrix.shape)
