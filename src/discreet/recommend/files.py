"""Ratings in a Parquet file, brought together by user in a temporary file that sums then read in place.

A user's ratings may lie anywhere in the file, and what a user adds to a sum is bounded row by row, so rows must be
whole before anything is summed: the file is read twice, once to count the ratings of every user, once to put every
rating in its place. Memory holds the labels of users and one batch.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.recommend import ratings as reading
from discreet.recommend.ratings import ITEM, RATING, USER, Clicks, Ratings, Scale

Integers = NDArray[np.int64]

_BATCH_ROWS = 1 << 20
_KEEP_BYTES = 1 << 28  # mapped pages that may stay before they are given back


@contextmanager
def opened(
    source: str | os.PathLike[str],
    scale: Scale | Clicks,
    catalogue: Any,
    *,
    out_of_bounds: str = "error",
    duplicates: str = "error",
) -> Iterator[tuple[Ratings, NDArray[Any]]]:
    """The checked ratings of a Parquet file with columns user, item, rating, and the catalogue; as `ratings.read`.

    The temporary files hold private ratings: only their owner can read them, no folder names them, and they end with
    their use or with the process, however that ends.
    """
    import pyarrow.parquet as pq

    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.suffix not in (".parquet", ".pq"):
        raise ValueError(f"a fit reads .parquet files with columns user, item, rating; got {str(path)!r}")
    with pq.ParquetFile(path) as file:
        reading.check_columns(file.schema_arrow.names, isinstance(scale, Clicks))
        labels, counts, found = _counted(file, catalogue is None)
        items = reading.catalogue_of(catalogue, found)
        starts = np.concatenate([[0], np.cumsum(counts)])
        held = _Held(int(starts[-1]), _value_type(file, scale, duplicates))
        _place(file, labels, starts, items, held, scale, out_of_bounds)
        starts = _sorted_rows(held, starts, len(items), duplicates)
        try:
            rows = held.items[: starts[-1]], held.values[: starts[-1]]
            yield Ratings(starts, *rows, len(items), scale, after=held.used), items
        finally:
            held.close()


class _Held:
    """Items and values of all ratings in mapped files; clicks have no values to hold."""

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
        """Write ratings to their places."""
        self.items[places] = items
        if self.stores_values:
            self.values[places] = values
        self.used(len(items))

    def used(self, entries: int) -> None:
        """Give mapped pages back now and then; the system keeps them while there is room."""
        self._read += 12 * entries
        if self._read > _KEEP_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            for part in self._maps:
                part.madvise(mmap.MADV_DONTNEED)
            self._read = 0

    def close(self) -> None:
        """Forget the ratings, and with their maps the files."""
        self.items, self.values = np.empty(0, np.int32), np.empty(0)
        self._maps = []


def _batches(file: Any, columns: list[str]) -> Iterator[Any]:
    """Batches of one row group after the other: asked for all at once, Arrow reads far ahead."""
    for group in range(file.metadata.num_row_groups):
        yield from file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns)


def _counted(file: Any, with_items: bool) -> tuple[Any, Integers, NDArray[Any]]:
    """Labels of users in order of appearance, their numbers of ratings, and all items if asked for."""
    kind = file.schema_arrow.field(USER).type
    labels = pa.array([], kind.value_type if pa.types.is_dictionary(kind) else kind)
    counts, found = np.zeros(0, dtype=np.int64), np.empty(0, dtype=object)
    for batch in _batches(file, [USER, ITEM]):
        for name in (USER, ITEM):
            reading.check_labels(name, np.asarray(_plain(batch, name)))
        own = _plain(batch, USER)
        new = pc.unique(own)
        labels = pa.concat_arrays([labels, new.filter(pc.invert(pc.is_in(new, value_set=labels)))])
        codes = pc.index_in(own, value_set=labels).to_numpy()
        counts = np.pad(counts, (0, len(labels) - len(counts))) + np.bincount(codes, minlength=len(labels))
        if with_items:
            seen = np.unique(np.asarray(_plain(batch, ITEM)))
            found = np.union1d(found, seen) if len(found) else seen
    if not len(labels):
        raise ValueError("the data frame holds no ratings")
    return labels, counts, found


def _plain(batch: Any, name: str) -> Any:
    """Labels themselves, where a file stores numbers of labels."""
    column = batch.column(name)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _value_type(file: Any, scale: Scale | Clicks, duplicates: str) -> np.dtype[Any] | None:
    """What holds a rating without loss; None for clicks, float64 where ratings may be averaged."""
    if isinstance(scale, Clicks):
        return None
    kind = np.dtype(file.schema_arrow.field(RATING).type.to_pandas_dtype())
    small = kind.kind in "iuf" and kind.itemsize <= 4 and duplicates == "error"
    return kind if small else np.dtype(np.float64)


def _place(
    file: Any,
    labels: Any,
    starts: Integers,
    items: NDArray[Any],
    held: _Held,
    scale: Scale | Clicks,
    out_of_bounds: str,
) -> None:
    """Put every rating into the next free place of its user's row."""
    free = starts[:-1].copy()
    for batch in _batches(file, [USER, ITEM, RATING] if held.stores_values else [USER, ITEM]):
        codes = pc.index_in(_plain(batch, USER), value_set=labels).to_numpy()
        columns = reading.find_items(np.asarray(_plain(batch, ITEM)), items)
        values = np.ones(0)
        if held.stores_values:
            values = np.asarray(batch.column(RATING).to_numpy(zero_copy_only=False))
            reading.check_values(values, scale, out_of_bounds)
        order = np.argsort(codes, kind="stable")
        own = codes[order]
        first = np.flatnonzero(np.diff(own, prepend=-1))
        sizes = np.diff(np.append(first, len(own)))
        places = free[own] + np.arange(len(own)) - np.repeat(first, sizes)
        free[own[first]] += sizes
        held.put(places, columns[order], values[order] if held.stores_values else values)


def _sorted_rows(held: _Held, starts: Integers, n_items: int, duplicates: str) -> Integers:
    """Sort every row by item, each at most once, block by block; rows move up where ratings were joined."""
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
