"""Ratings on a Dask cluster: users' rows are brought together once, sums are made where the rows are.

Needs the extra ``dask``. Only sums of integers travel, one per pass; noise is drawn in the process that runs the fit.

A user's contribution is bounded row by row, so all ratings of a user must be in one partition. Data frames are
shuffled by a bucket, a fixed function of the user's label; afterwards every partition reports its buckets, and the fit
goes on only if no bucket is in two partitions. Then no user is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.recommend import ratings as reading
from discreet.recommend.ratings import ITEM, RATING, USER, Clicks, Ratings, Scale
from discreet.records.dask import DaskParts, row_blocks, workers
from discreet.records.storage import one_blas_thread

Integers = NDArray[np.int64]

_BUCKET = "bucket"
_BUCKETS_PER_PARTITION = 64


class DaskRatings:
    """All users' rows in the memory of workers, as `discreet.recommend.ratings.Users`."""

    def __init__(self, parts: DaskParts, n_users: int, n_items: int) -> None:
        self._parts = parts
        self.n_users, self.n_items = n_users, n_items

    def total(self, shape: tuple[int, ...], add: Callable[[Ratings, Integers], None]) -> Integers:
        """The exact sum over all users: one per thread of the workers, added up there."""
        return self._parts.total(_total, (shape, add))

    def as_clicks(self) -> DaskRatings:
        """The same rows, of which only the items count."""
        return DaskRatings(self._parts.derived(Ratings.as_clicks), self.n_users, self.n_items)


def opened(
    data: Any,
    scale: Scale | Clicks,
    catalogue: Any,
    *,
    out_of_bounds: str = "error",
    duplicates: str = "error",
) -> tuple[DaskRatings, NDArray[Any]]:
    """Checked ratings and the catalogue; as `ratings.read`.

    Parameters
    ----------
    data : Dask data frame with columns user, item, rating; or a Dask array of one block of columns or a bag, made of
        SciPy sparse matrices whose rows are users: a user is one row of one block.
    """
    asked = workers()
    rules = {"out_of_bounds": out_of_bounds, "duplicates": duplicates}
    if hasattr(data, "columns"):
        blocks, items = _by_user(data, isinstance(scale, Clicks), catalogue)
        form = partial(_from_frame, scale=scale, items=items, **rules)
    else:
        if getattr(data, "ndim", 2) != 2 or len(getattr(data, "chunks", ((), (1,)))[1]) != 1:
            raise ValueError("a Dask array of ratings must be cut into whole rows: one block of columns")
        blocks = row_blocks(data)
        form = partial(_from_matrix, scale=scale, catalogue=catalogue, **rules)
    parts = asked.opened(blocks, form)
    described = asked.answers(_described, parts)  # errors in ratings show before anything is charged
    _check_apart([buckets for _, _, buckets in described])
    if not hasattr(data, "columns"):
        items = _columns({width for _, width, _ in described}, catalogue)
    n_users = sum(size for size, _, _ in described)
    if n_users == 0:
        raise ValueError("user_items must have at least one user")
    return DaskRatings(DaskParts(asked.kept(_rows, parts), asked), n_users, len(items)), items


# -- in the process that runs the fit ----------------------------------------------------------------------------


def _by_user(frame: Any, clicks: bool, catalogue: Any) -> tuple[list[Any], NDArray[Any]]:
    """Partitions that hold whole users, not yet computed, and the catalogue."""
    reading.check_columns(frame.columns, clicks)
    needed = [USER, ITEM] if clicks else [USER, ITEM, RATING]
    found = frame[ITEM].dropna().unique().compute() if catalogue is None else np.empty(0)
    items = reading.catalogue_of(catalogue, np.asarray(found))
    n_buckets = _BUCKETS_PER_PARTITION * frame.npartitions
    marked = frame[needed].map_partitions(_with_buckets, n_buckets)
    # By tasks: every partition of the result can be computed again from its source when a worker dies.
    return list(marked.shuffle(_BUCKET, shuffle_method="tasks").to_delayed()), items


def _check_apart(buckets: list[NDArray[np.int64]]) -> None:
    """Refuse partitions that share a bucket, and with it maybe a user."""
    together = np.concatenate(buckets)
    if len(np.unique(together)) != len(together):
        raise RuntimeError("the shuffle left ratings of one bucket of users in two partitions")


def _columns(widths: set[int], catalogue: Any) -> NDArray[Any]:
    """The catalogue of blocks of so many columns."""
    if len(widths) != 1:
        raise ValueError(f"blocks of users have different numbers of columns: {sorted(widths)}")
    return np.arange(widths.pop()) if catalogue is None else np.asarray(catalogue)


# -- on the workers ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Read:
    """A partition's rows, and the buckets of its users if it came out of a shuffle."""

    rows: Ratings
    buckets: NDArray[np.int64]


def _with_buckets(frame: Any, n_buckets: int) -> Any:
    return frame.assign(**{_BUCKET: _buckets(frame[USER], n_buckets)})


def _buckets(users: Any, n_buckets: int) -> NDArray[np.int64]:
    """A fixed function of a label: equal labels, equal buckets, in every process."""
    from pandas.util import hash_array

    labels = np.asarray(users)
    reading.check_labels(USER, labels)
    if labels.dtype.kind in "iu":
        labels = labels.astype(np.int64)  # as many bits in every partition
    elif not all(isinstance(label, str) for label in labels):
        raise ValueError("users of a Dask data frame must be labelled by whole numbers or texts")
    return np.asarray(hash_array(labels) % np.uint64(n_buckets)).astype(np.int64)


def _from_frame(
    frame: Any, scale: Scale | Clicks, items: NDArray[Any], out_of_bounds: str, duplicates: str
) -> _Read:
    buckets = np.unique(np.asarray(frame[_BUCKET], dtype=np.int64))
    if len(frame) == 0:
        return _Read(_nobody(len(items), scale), buckets)
    rows, _ = reading.read(frame, scale, items, out_of_bounds=out_of_bounds, duplicates=duplicates)
    return _Read(rows, buckets)


def _from_matrix(
    given: Any, scale: Scale | Clicks, catalogue: Any, out_of_bounds: str, duplicates: str
) -> _Read:
    in_bag = isinstance(given, list | tuple)
    block: Any = sp.vstack(given, format="csr") if in_bag else given
    if not hasattr(block, "tocsr"):
        raise TypeError(
            f"blocks of ratings must be SciPy sparse matrices, users x items, got {type(block).__name__}: a dense "
            "array cannot say which entries are missing"
        )
    nobody = block.shape[0] == 0
    if nobody:
        block = sp.csr_matrix((1, block.shape[1]))  # whose columns are checked like those of others
    rows, _ = reading.read(block, scale, catalogue, out_of_bounds=out_of_bounds, duplicates=duplicates)
    return _Read(_nobody(rows.n_items, scale) if nobody else rows, np.empty(0, np.int64))


def _nobody(n_items: int, scale: Scale | Clicks) -> Ratings:
    return Ratings(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), n_items, scale)


def _described(part: _Read) -> tuple[int, int, NDArray[np.int64]]:
    return part.rows.n_users, part.rows.n_items, part.buckets


def _rows(part: _Read) -> Ratings:
    """Rows for one thread: the cluster gives every thread of a worker a share of its own."""
    # What came over a network may lie anywhere in memory.
    items = np.require(part.rows.items, requirements=["C", "A", "W"])
    return dataclasses.replace(part.rows, items=items, n_threads=1)


def _total(asked: tuple[tuple[int, ...], Callable[[Ratings, Integers], None]], *parts: Ratings) -> Integers:
    """One thread's share of a sum."""
    shape, add = asked
    sums = np.zeros(shape, dtype=np.int64)
    with one_blas_thread:
        for part in parts:
            part.add_to(sums, add)
    return sums
