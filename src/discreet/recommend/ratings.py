"""User x item data: read, checked, scaled to [-1, 1], walked through in blocks of users."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.recommend import kernels

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Items = NDArray[np.int32]

_BLOCK_ENTRIES = 1 << 20  # ratings in one block of users
USER, ITEM, RATING = "user", "item", "rating"


@dataclass(frozen=True)
class Scale:
    """The public range of ratings; inside the library a rating is (rating - middle) / half, in [-1, 1]."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The public centre."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half the range."""
        return (self.high - self.low) / 2

    def inside(self, ratings: NDArray[Any]) -> Array:
        """Ratings as numbers in [-1, 1]; what lies outside is clipped."""
        values = np.array(ratings, dtype=np.float64)
        values -= self.middle
        values /= self.half
        return np.clip(values, -1.0, 1.0, out=values)

    def outside(self, values: Array) -> Array:
        """Back to ratings within the range."""
        return np.asarray(np.clip(self.middle + self.half * values, self.low, self.high))


@dataclass(frozen=True)
class Clicks:
    """Implicit feedback: whatever was stored, it counts as one."""

    def inside(self, ratings: NDArray[Any]) -> Array:
        """Ones."""
        return np.ones(len(ratings))


@dataclass(frozen=True)
class Ratings:
    """Rows of users: ``items[starts[i]:starts[i + 1]]`` in increasing order, and their values.

    ``part`` hands out values in [-1, 1]. The whole may hold them as they came, with the ``scale`` that
    brings them there: a second copy of all ratings is never made.
    """

    starts: Integers
    items: Items
    values: NDArray[Any]
    n_items: int
    scale: Scale | Clicks | None = None

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def blocks(self) -> Iterator[tuple[int, int]]:
        """First and last-but-one user of consecutive parts of about a million ratings."""
        begin = 0
        while begin < self.n_users:
            limit = self.starts[begin] + _BLOCK_ENTRIES
            end = int(np.searchsorted(self.starts, limit, side="right")) - 1
            end = min(max(end, begin + 1), self.n_users)
            yield begin, end
            begin = end

    def part(self, begin: int, end: int) -> Ratings:
        """Users begin..end-1 with values in [-1, 1]; items are views."""
        entries = slice(int(self.starts[begin]), int(self.starts[end]))
        starts = self.starts[begin : end + 1] - self.starts[begin]
        values = self.values[entries] if self.scale is None else self.scale.inside(self.values[entries])
        return Ratings(starts, self.items[entries], values, self.n_items)

    def as_clicks(self) -> Ratings:
        """The same rows, of which only the items count."""
        return dataclasses.replace(self, scale=Clicks())

    def row(self, user: int) -> Items:
        """Items of one user."""
        return self.items[int(self.starts[user]) : int(self.starts[user + 1])]


def read(
    user_items: Any,
    scale: Scale | Clicks,
    catalogue: Any,
    *,
    out_of_bounds: str = "error",
    duplicates: str = "error",
) -> tuple[Ratings, NDArray[Any]]:
    """Checked ratings and the catalogue they refer to.

    Parameters
    ----------
    user_items : CSR (or any SciPy sparse) matrix, users x items, whose stored entries are the ratings, zeros included;
        or a data frame with columns user, item, rating (clicks need no rating).
    scale : public range of ratings, or clicks.
    catalogue : public item labels, or None: the columns of the matrix, or the items found in the frame.
    out_of_bounds : "error" or "clip".
    duplicates : "error" or "mean": what to do with two ratings of one item by one user.
    """
    if sp.issparse(user_items):
        matrix, items = _from_matrix(user_items, catalogue)
    elif all(hasattr(user_items, name) for name in ("columns", "__getitem__")):
        matrix, items = _from_frame(user_items, catalogue, isinstance(scale, Clicks))
    else:
        raise TypeError(
            "user_items must be a SciPy sparse matrix (users x items) or a data frame with columns "
            f"'user', 'item', 'rating'; got {type(user_items).__name__}. A dense array cannot say which entries are "
            "missing: build scipy.sparse.csr_array((ratings, (users, items)))"
        )
    _check_values(matrix.data, scale, out_of_bounds)
    order = kernels.row_order(matrix.indptr, matrix.indices)
    if order > 0:
        matrix = _without_duplicates(matrix, duplicates)
    starts, columns = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False)
    return Ratings(starts, columns, matrix.data, matrix.shape[1], scale), items


def _check_values(data: NDArray[Any], scale: Scale | Clicks, out_of_bounds: str) -> None:
    """Refuse ratings that are not finite or, if asked to, not within the range."""
    strange = outside = 0
    for begin in range(0, len(data), _BLOCK_ENTRIES):
        part = np.asarray(data[begin : begin + _BLOCK_ENTRIES], dtype=np.float64)
        strange += int((~np.isfinite(part)).sum())
        if isinstance(scale, Scale):
            outside += int(((part < scale.low) | (part > scale.high)).sum())
    if strange:
        raise ValueError(f"{strange} ratings are not finite; remove them")
    if isinstance(scale, Scale) and outside and out_of_bounds == "error":
        raise ValueError(
            f"{outside} ratings lie outside rating_bounds=({scale.low:g}, {scale.high:g}); correct them, declare the "
            "true public range, or pass out_of_bounds='clip'"
        )


def _from_matrix(user_items: Any, catalogue: Any) -> tuple[Any, NDArray[Any]]:
    check_memory(8 * user_items.shape[-1], "the catalogue", "declare a smaller public one")
    if user_items.shape[-1] >= 2**31:
        raise ValueError(f"a catalogue holds fewer than 2**31 items, got {user_items.shape[-1]}")
    matrix = user_items.tocsr() if user_items.format != "coo" else _csr_with_duplicates(user_items)
    if matrix.ndim != 2 or min(matrix.shape) < 1:
        raise ValueError(f"user_items must have at least one user and one item, got shape {matrix.shape}")
    matrix.check_format(full_check=True)
    items = np.arange(matrix.shape[1]) if catalogue is None else _labels(catalogue)
    if len(items) != matrix.shape[1]:
        raise ValueError(f"items lists {len(items)} items, user_items has {matrix.shape[1]} columns")
    return matrix, items


def _csr_with_duplicates(coo: Any) -> Any:
    """CSR that keeps repeated pairs apart: SciPy's own conversion would add their ratings up."""
    order = np.lexsort((coo.coords[1], coo.coords[0]))
    starts = np.concatenate([[0], np.cumsum(np.bincount(coo.coords[0], minlength=coo.shape[0]))])
    return sp.csr_matrix((coo.data[order], coo.coords[1][order], starts), shape=coo.shape)


def _from_frame(frame: Any, catalogue: Any, clicks: bool) -> tuple[Any, NDArray[Any]]:
    needed = (USER, ITEM) if clicks else (USER, ITEM, RATING)
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise ValueError(
            f"the data frame lacks the columns {missing}; it must hold 'user', 'item' and, but for implicit feedback, "
            "'rating'"
        )
    if len(frame) == 0:
        raise ValueError("the data frame holds no ratings")
    for name in (USER, ITEM):
        if missing_ids := _missing(np.asarray(frame[name])):
            raise ValueError(
                f"{missing_ids} rows have no {name}; remove them, or give every person an own label"
            )
    users, rows = np.unique(np.asarray(frame[USER]), return_inverse=True)
    named = np.asarray(frame[ITEM])
    if catalogue is None:
        from discreet.estimators._fit import PrivacyWarning

        items = np.unique(named)
        warnings.warn(
            "the catalogue was read from the private ratings and is treated as public; pass items=[...] to declare it",
            PrivacyWarning,
            stacklevel=4,
        )
    else:
        items = _labels(catalogue)
    columns = find_items(named, items)
    ratings = np.ones(len(frame)) if clicks else np.asarray(frame[RATING], dtype=np.float64)
    coo = sp.coo_array((ratings, (rows, columns)), shape=(len(users), len(items)))
    return _csr_with_duplicates(coo), items


def check_memory(n_bytes: float, what: str, advice: str) -> None:
    """Refuse what would fill more than half of this machine's memory, before it is tried."""
    if hasattr(os, "sysconf"):
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if n_bytes > present / 2:
            raise ValueError(
                f"{what} would take {n_bytes / 2**30:.0f} GB, more than half of this machine's "
                f"{present / 2**30:.0f} GB; {advice}"
            )


def _missing(labels: NDArray[Any]) -> int:
    """Number of labels that are None or not a number: as one label they would make one user of many people."""
    unequal = np.asarray(labels != labels, dtype=bool)
    nothing = (
        np.asarray([label is None for label in labels]) if labels.dtype == object else np.zeros(1, dtype=bool)
    )
    return int(unequal.sum()) + int(nothing.sum())


def find_items(named: NDArray[Any], items: NDArray[Any]) -> Integers:
    """Columns of the named items; an item that is not in the catalogue is an error that names it."""
    order = np.argsort(items, kind="stable")
    places = np.minimum(np.searchsorted(items[order], named), len(items) - 1)
    columns = order[places]
    unknown = items[columns] != named
    if unknown.any():
        strange = np.unique(np.asarray(named)[unknown].astype(str))[:5].tolist()
        raise ValueError(
            f"items outside the catalogue: {strange}; leave them out or declare them with items=[...]"
        )
    return np.asarray(columns, dtype=np.int64)


def _labels(catalogue: Any) -> NDArray[Any]:
    items = np.asarray(catalogue)
    if items.ndim != 1 or len(items) < 1 or len(np.unique(items)) != len(items):
        raise ValueError("items must list the catalogue once, each item a different label")
    return items


def _without_duplicates(matrix: Any, duplicates: str) -> Any:
    """Sorted columns, each at most once per user."""
    matrix = matrix.copy()
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    repeated = (rows[1:] == rows[:-1]) & (matrix.indices[1:] == matrix.indices[:-1])
    if not repeated.any():
        return matrix
    if duplicates == "error":
        raise ValueError(
            f"{int(repeated.sum())} (user, item) pairs are rated more than once; keep one rating of each, or pass "
            "duplicates='mean'"
        )
    first = np.concatenate([[True], ~repeated])
    group = np.cumsum(first) - 1
    means = np.bincount(group, weights=matrix.data) / np.bincount(group)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=matrix.shape[0]))])
    return sp.csr_matrix((means, matrix.indices[first], starts), shape=matrix.shape)
