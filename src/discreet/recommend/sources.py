"""Ratings that are not in memory: in files, folders or queries, or on a Dask cluster.

A user's contribution to a sum is bounded row by row, so rows must be whole before anything is summed.

A source is read twice: first to count the ratings of every user, then to put every rating into its place in a temporary
file, from which sums are computed. Memory holds the labels of users and one batch.

On a cluster (extra ``dask``) data frames are shuffled by a bucket, a fixed function of the user's label; afterwards
every partition reports its buckets, and the fit continues only if no bucket (and so no user) is in two partitions. Sums
are computed where the rows are. Only sums of integers travel; noise is drawn in the process that runs the fit.
"""

from __future__ import annotations

import dataclasses
import mmap
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import ParameterError
from discreet._typing import Integers
from discreet.estimators.groups import read_people
from discreet.recommend import ratings as reading
from discreet.recommend.ratings import ITEM, RATING, USER, Clicks, Ratings, Scale
from discreet.records.clipped_rows import one_blas_thread
from discreet.records.clusters.base import checksum
from discreet.records.clusters.dask import REPEATABLE, is_dask_frame, row_blocks
from discreet.records.clusters.workers import SummedParts, workers
from discreet.records.sources import Source, source_of
from discreet.tables.reading import as_column

_CHANGED = "{} gave other ratings when it was read a second time; write them to a file first"
_KEEP_BYTES = 1 << 28  # mapped pages that may stay before they are given back


@contextmanager
def opened_source(
    data: Any, scale: Scale | Clicks, catalog: Any, *, out_of_bounds: str = "error", duplicates: str = "error"
) -> Iterator[tuple[Ratings, NDArray[Any]]]:
    """Return the checked ratings of a source with columns user, item, rating, and the catalog; see `ratings.read`.

    The temporary files hold private ratings: only their owner can read them, they have no name, and they disappear
    after use or with the process.
    """
    source = source_of(data)
    if source is None:
        raise TypeError(f"cannot read ratings from {type(data).__name__}")
    if source.once:
        raise ValueError(
            f"{source.name} can be read only once, and ratings are read twice; write them to a file"
        )
    reading.check_columns(source.schema.names, isinstance(scale, Clicks))
    labels, counts, found = _counted(source, catalog is None)
    items = reading.catalog_of(catalog, found)
    starts = np.concatenate([[0], np.cumsum(counts)])
    held = _Held(int(starts[-1]), _value_type(source, scale, duplicates))
    _place(source, labels, starts, items, held, scale, out_of_bounds)
    starts = _sorted_rows(held, starts, len(items), duplicates)
    try:
        rows = held.items[: starts[-1]], held.values[: starts[-1]]
        told = source.assumptions
        yield Ratings(starts, *rows, len(items), scale, after=held.used, assumptions=told), items
    finally:
        held.close()


class _Held:
    """Items and values of all ratings in mapped files; clicks have no values."""

    def __init__(self, size: int, kind: np.dtype[Any] | None) -> None:
        self._maps: list[mmap.mmap] = []
        self._read = 0
        self.items: NDArray[np.int32] = self._mapped(size, np.dtype(np.int32))
        self.values: NDArray[Any] = (
            np.broadcast_to(np.float64(1.0), size) if kind is None else self._mapped(size, kind)
        )
        self.stores_values = kind is not None

    def _mapped(self, size: int, kind: np.dtype[Any]) -> NDArray[Any]:
        with tempfile.TemporaryFile(prefix="discreet-") as stream:
            stream.truncate(size * kind.itemsize)
            self._maps.append(mmap.mmap(stream.fileno(), 0))
        return np.frombuffer(self._maps[-1], dtype=kind)

    def put(self, places: Any, items: NDArray[Any], values: NDArray[Any]) -> None:
        """Write ratings into their places."""
        self.items[places] = items
        if self.stores_values:
            self.values[places] = values
        self.used(len(items))

    def used(self, entries: int) -> None:
        """Return mapped pages to the system from time to time, which keeps them while memory allows."""
        self._read += 12 * entries
        if self._read > _KEEP_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            for part in self._maps:
                part.madvise(mmap.MADV_DONTNEED)
            self._read = 0

    def close(self) -> None:
        """Release the maps, and with them the files."""
        self.items, self.values = np.empty(0, np.int32), np.empty(0)
        self._maps = []


def _counted(source: Source, with_items: bool) -> tuple[Any, Integers, Any]:
    """Return users' labels in order of appearance, their numbers of ratings, and all items if requested."""
    labels = reading.read_users(pa.array([], source.schema.field(USER).type))
    counts, seen = np.zeros(0, dtype=np.int64), []
    for batch in source.batches([USER, ITEM] if with_items else [USER]):
        own = reading.read_users(batch.column(USER))
        new = own.unique()
        labels = pa.concat_arrays([labels, new.filter(pc.invert(pc.is_in(new, value_set=labels)))])
        codes = pc.index_in(own, value_set=labels).to_numpy()
        counts = np.pad(counts, (0, len(labels) - len(counts))) + np.bincount(codes, minlength=len(labels))
        if with_items:
            seen.append(as_column(batch.column(ITEM), ITEM).unique())
    if not len(labels):
        raise ValueError("the data frame holds no ratings")
    return labels, counts, pa.concat_arrays(seen).unique() if seen else pa.array([])


def _value_type(source: Source, scale: Scale | Clicks, duplicates: str) -> np.dtype[Any] | None:
    """Return a type that holds ratings without loss; None for clicks, float64 if ratings may be averaged."""
    if isinstance(scale, Clicks):
        return None
    if RATING in source.untyped:
        return np.dtype(np.float64)
    kind = np.dtype(source.schema.field(RATING).type.to_pandas_dtype())
    small = kind.kind in "iuf" and kind.itemsize <= 4 and duplicates == "error"
    return kind if small else np.dtype(np.float64)


def _place(
    source: Source,
    labels: Any,
    starts: Integers,
    items: NDArray[Any],
    held: _Held,
    scale: Scale | Clicks,
    out_of_bounds: str,
) -> None:
    """Put every rating into the next free place of its user's row; raises if the source now gives other rows."""
    free, end = starts[:-1].copy(), starts[1:]
    for batch in source.batches([USER, ITEM, RATING] if held.stores_values else [USER, ITEM]):
        users = pc.index_in(reading.read_users(batch.column(USER)), value_set=labels)
        if users.null_count:
            raise ValueError(_CHANGED.format(source.name))
        codes = users.to_numpy()
        columns = reading.find_items(as_column(batch.column(ITEM), ITEM), items)
        values = np.ones(0)
        if held.stores_values:
            values = reading.read_ratings(as_column(batch.column(RATING), RATING))
            reading.check_values(values, scale, out_of_bounds)
        order = np.argsort(codes, kind="stable")
        own = codes[order]
        first = np.flatnonzero(np.diff(own, prepend=-1))
        sizes = np.diff(np.append(first, len(own)))
        places = free[own] + np.arange(len(own)) - np.repeat(first, sizes)
        free[own[first]] += sizes
        if (free > end).any():
            raise ValueError(_CHANGED.format(source.name))
        held.put(places, columns[order], values[order] if held.stores_values else values)
    if (free < end).any():
        raise ValueError(_CHANGED.format(source.name))


def _sorted_rows(held: _Held, starts: Integers, n_items: int, duplicates: str) -> Integers:
    """Sort every row by item, each at most once, block by block; rows move up where duplicates were averaged."""
    sizes, end = np.zeros(len(starts) - 1, dtype=np.int64), 0
    whole = Ratings(starts, held.items, held.values, n_items)
    for first, last in list(whole.blocks()):
        entries = slice(int(starts[first]), int(starts[last]))
        block = sp.csr_matrix(
            (held.values[entries], held.items[entries], starts[first : last + 1] - starts[first]),
            shape=(last - first, n_items),
        )
        ordered = reading.in_order(block, duplicates)
        sizes[first:last] = np.diff(ordered.indptr)
        if ordered is not block or end < entries.start:
            held.put(slice(end, end + ordered.nnz), ordered.indices, ordered.data)
        end += ordered.nnz
    return np.concatenate([[0], np.cumsum(sizes)])


_BUCKET = "bucket"
_BUCKETS_PER_PARTITION = 64


class DaskRatings:
    """All users' rows in the memory of workers, as `discreet.recommend.ratings.Users`."""

    assumptions = (REPEATABLE,)

    def __init__(self, parts: SummedParts, n_users: int, n_items: int) -> None:
        self._parts = parts
        self.n_users, self.n_items = n_users, n_items

    def total(self, shape: tuple[int, ...], add: Callable[[Ratings, Integers], None]) -> Integers:
        """Return the exact sum over all users, computed by the threads of the workers."""
        return self._parts.total(_total, (shape, add))

    def as_clicks(self) -> DaskRatings:
        """Return the same rows without their values: only the items count."""
        return DaskRatings(self._parts.derived(Ratings.as_clicks), self.n_users, self.n_items)


def opened_collection(
    data: Any, scale: Scale | Clicks, catalog: Any, *, out_of_bounds: str = "error", duplicates: str = "error"
) -> tuple[DaskRatings, NDArray[Any]]:
    """Return checked ratings and the catalog; see `ratings.read`.

    Parameters
    ----------
    data : Dask data frame with columns user, item, rating; or a Dask array of one block of columns or a bag, made of
        SciPy sparse matrices whose rows are users; each user is one row of one block.
    """
    asked = workers()
    rules = {"out_of_bounds": out_of_bounds, "duplicates": duplicates}
    if is_dask_frame(data):
        blocks, items = _by_user(data, isinstance(scale, Clicks), catalog)
        form = partial(_from_frame, scale=scale, items=items, **rules)
    else:
        if getattr(data, "ndim", 2) != 2 or len(getattr(data, "chunks", ((), (1,)))[1]) != 1:
            raise ValueError("a Dask array of ratings must be cut into whole rows: one block of columns")
        blocks = row_blocks(data)
        form = partial(_from_matrix, scale=scale, catalog=catalog, **rules)
    parts = asked.opened(blocks, form)
    described = asked.answers(_described, parts)  # errors in ratings show before anything is charged
    sizes, widths, buckets, checksums = (list(facts) for facts in zip(*described, strict=True))
    _check_apart(buckets)
    if not is_dask_frame(data):
        items = _columns(set(widths), catalog)
    n_users = sum(sizes)
    if n_users == 0:
        raise ParameterError("user_items", "must have at least one user")
    return DaskRatings(SummedParts(asked.kept(_rows, parts, checksums), asked), n_users, len(items)), items


# -- in the process that runs the fit ----------------------------------------------------------------------------


def _by_user(frame: Any, clicks: bool, catalog: Any) -> tuple[list[Any], NDArray[Any]]:
    """Return partitions that hold whole users, not yet computed, and the catalog."""
    reading.check_columns(frame.columns, clicks)
    needed = [USER, ITEM] if clicks else [USER, ITEM, RATING]
    found = frame[ITEM].unique().compute() if catalog is None else []
    items = reading.catalog_of(catalog, as_column(found, ITEM))
    n_buckets = _BUCKETS_PER_PARTITION * frame.npartitions
    marked = frame[needed].map_partitions(_with_buckets, n_buckets)
    # By tasks: every partition of the result can be computed again from its source when a worker dies.
    return list(marked.shuffle(_BUCKET, shuffle_method="tasks").to_delayed()), items


def _check_apart(buckets: list[NDArray[np.int64]]) -> None:
    """Raise if two partitions share a bucket, and thus possibly a user."""
    together = np.concatenate(buckets)
    if len(np.unique(together)) != len(together):
        raise RuntimeError("the shuffle left ratings of one bucket of users in two partitions")


def _columns(widths: set[int], catalog: Any) -> NDArray[Any]:
    """Return the catalog of blocks with this many columns."""
    if len(widths) != 1:
        raise ValueError(f"blocks of users have different numbers of columns: {sorted(widths)}")
    return np.arange(widths.pop()) if catalog is None else np.asarray(catalog)


# -- on the workers ----------------------------------------------------------------------------------------------


class _Read:
    """A partition's rows, the buckets of its users after a shuffle, and a checksum of its content."""

    def __init__(self, rows: Ratings, buckets: NDArray[np.int64]) -> None:
        self.rows, self.buckets = rows, buckets
        self.checksum = [checksum(part) for part in (rows.starts, rows.items, rows.values)]


def _with_buckets(frame: Any, n_buckets: int) -> Any:
    return frame.assign(**{_BUCKET: _buckets(frame[USER], n_buckets)})


def _buckets(users: Any, n_buckets: int) -> NDArray[np.int64]:
    """Return a fixed function of a user's id: equal ids have equal buckets, in every process and for every type."""
    from pandas.util import hash_array

    people = read_people(reading.read_users(users), strict=True)
    hashes = hash_array(np.array(people.names, dtype=object)) % np.uint64(n_buckets)
    return np.asarray(hashes[people.codes], dtype=np.int64)


def _from_frame(
    frame: Any, scale: Scale | Clicks, items: NDArray[Any], out_of_bounds: str, duplicates: str
) -> _Read:
    buckets = np.unique(np.asarray(frame[_BUCKET], dtype=np.int64))
    if len(frame) == 0:
        return _Read(_nobody(len(items), scale), buckets)
    rows, _ = reading.read(frame, scale, items, out_of_bounds=out_of_bounds, duplicates=duplicates)
    return _Read(rows, buckets)


def _from_matrix(
    given: Any, scale: Scale | Clicks, catalog: Any, out_of_bounds: str, duplicates: str
) -> _Read:
    in_bag = isinstance(given, list | tuple)
    block: Any = sp.vstack(given, format="csr") if in_bag else given
    if not bool(sp.issparse(block)):
        raise TypeError(
            f"blocks of ratings must be SciPy sparse matrices, users x items, got {type(block).__name__}: a dense "
            "array cannot say which entries are missing"
        )
    nobody = block.shape[0] == 0
    if nobody:
        block = sp.csr_matrix((1, block.shape[1]))  # whose columns are checked like those of others
    rows, _ = reading.read(block, scale, catalog, out_of_bounds=out_of_bounds, duplicates=duplicates)
    return _Read(_nobody(rows.n_items, scale) if nobody else rows, np.empty(0, np.int64))


def _nobody(n_items: int, scale: Scale | Clicks) -> Ratings:
    return Ratings(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), n_items, scale)


def _described(part: _Read) -> tuple[int, int, NDArray[np.int64], list[int]]:
    return part.rows.n_users, part.rows.n_items, part.buckets, part.checksum


def _rows(part: _Read, expected: list[int]) -> Ratings:
    """Return the rows for one thread; the cluster gives every thread of a worker its own share."""
    if part.checksum != expected:
        raise ValueError("a partition has other ratings than before")
    # Arrays from the network may be unaligned.
    items = np.require(part.rows.items, requirements=["C", "A", "W"])
    return dataclasses.replace(part.rows, items=items, n_threads=1)


def _total(asked: tuple[tuple[int, ...], Callable[[Ratings, Integers], None]], *parts: Ratings) -> Integers:
    """Return one thread's share of a sum."""
    shape, add = asked
    sums = np.zeros(shape, dtype=np.int64)
    with one_blas_thread:
        for part in parts:
            part.add_to(sums, add)
    return sums
