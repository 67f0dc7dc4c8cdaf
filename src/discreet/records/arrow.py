"""Rows on disk: a table is read once from its source into an Arrow file, which is then mapped and read in place.

The Arrow file has one column of rows (lists of fixed length, so that a batch is a matrix in memory) and one of labels.
Passes read it through the page cache and release what they have read, so the process stays small for files of any
size.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.records.arrays import ArrayRecords
from discreet.records.batches import LABEL_TYPES, Chosen, Encoded, Numbers, Reading, WithIds
from discreet.records.bounds import Bounds
from discreet.records.open import Rows
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.records.sources import Source, source_of
from discreet.tables.reading import TableError, legible

ROWS, LABEL, FEATURES = "row", "label", b"feature names"
_KEEP_BYTES = 1 << 28  # bytes of mapped pages that are kept before they are released
Progress = Callable[[int, int], None]


class FileRows(Rows):
    """Rows of a mapped Arrow file, with their labels; it has the shape of a matrix.

    Use it as a context manager or ``close`` it, which removes a file that was converted for one fit.
    """

    def __init__(self, stream: IO[bytes], assumptions: tuple[str, ...] = ()) -> None:
        self.assumptions = assumptions
        self.ids: Any = None  # ids of people, if requested
        self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._map)))
            self.feature_names = _names_in(reader.schema)
            self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            _check_whole(self._batches)
        except (pa.ArrowException, OSError, ValueError) as error:
            self.close()
            raise ValueError(
                f"{stream.name} is not an Arrow file made by this version of `convert`: {error}; convert again"
            ) from None
        self._width = len(self.feature_names)
        self._read = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(batch.num_rows for batch in self._batches), self._width

    @property
    def labels(self) -> NDArray[Any]:
        """All labels as one array; of objects if whole numbers are missing, so that the others stay exact."""
        return np.concatenate([as_labels(batch.column(LABEL)) for batch in self._batches])

    def take(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Return some rows as a matrix in memory; ``places`` must be ascending."""
        found, start = [], 0
        for block in self.blocks():
            low, high = np.searchsorted(places, [start, start + len(block)])
            found.append(block[places[low:high] - start])
            start += len(block)
        return np.concatenate(found)

    def regrouped(self, places: NDArray[np.int64]) -> FileRows:
        """Return some rows, in any order and possibly repeated, in another temporary file; labels are not copied."""
        kept = Chosen(self.feature_names, next(self.blocks()).dtype)

        def parts() -> Iterator[tuple[NDArray[Any], Any]]:
            for start in range(0, len(places), kept.height):
                wanted, back = np.unique(places[start : start + kept.height], return_inverse=True)
                yield self.take(wanted)[back], pa.array(np.zeros(len(back), dtype=np.int64))

        return _temporary(lambda made: _write(made, parts(), kept), self.assumptions)

    def matrix(self, dtype: Any = None) -> NDArray[Any]:
        """Return all rows as a matrix in memory, of their own type or another."""
        return np.concatenate(list(self.blocks()), dtype=dtype)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows, one matrix per batch, without a copy."""
        for batch in self._batches:
            yield batch.column(ROWS).flatten().to_numpy(zero_copy_only=True).reshape(-1, self._width)
            self._give_back(batch.nbytes)

    def valid(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Return which rows are finite and within 2**300."""
        return np.concatenate([bounds.valid_rows(block) for block in self.blocks()])

    def records(
        self,
        labels: NDArray[Any],
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Return records with these labels; reads every row once, for its norm."""
        parts, start = [], 0
        for block in self.blocks():
            rows = slice(start, start + len(block))
            null = None if null_rows is None else null_rows[rows]
            parts.append(ArrayRecords(clip(block), labels[rows], bounds, null))
            start = rows.stop
        largest = max((batch.nbytes for batch in self._batches), default=0)
        sizes = [batch.num_rows for batch in self._batches]
        local = LocalParts(parts, lambda: self._give_back(largest))
        return PartitionedRecords(local, sizes, self._width, False, bounds, labels)

    def _give_back(self, size: int) -> None:
        """Release mapped pages from time to time; they stay in the system's cache while memory allows."""
        self._read += size
        if self._read > _KEEP_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0

    def close(self) -> None:
        """Release the file."""
        self._batches = []
        with contextlib.suppress(BufferError):  # a matrix still uses the map
            self._map.close()

    def __enter__(self) -> FileRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def convert(
    source: Any,
    destination: str | os.PathLike[str] | IO[bytes],
    *,
    target: str,
    columns: Sequence[str] | None = None,
    classes: Any = None,
    bad_rows: str = "error",
    progress: Progress | None = None,
) -> None:
    """Write the numeric columns of a table as an Arrow file that fits can map.

    How a cell or a label is converted depends only on it and on the types of columns; in a typed column none raises an
    error.

    Parameters
    ----------
    source : a path, a folder, a query: anything that `discreet.records.sources.source_of` takes, or a `Source`.
    destination : path of a new Arrow file, or an open one; it holds the same private rows, so guard it as carefully.
    target : column of labels, numeric or text.
    columns : features, by default all columns but the target; all must be numeric or boolean, or cells of a CSV file.
    classes : the public labels; cells of a CSV file are read as the class with this text.
    bad_rows : with "null", no line or label of a CSV file raises an error.
    progress : called with the number of rows done and, if known, of all rows.

    Rows are float32 if every feature is of that type or smaller, else float64. Missing cells become NaN.
    """
    table = _sourced(source, bad_rows)
    _convert(table, Numbers.of(table, target, columns, classes, bad_rows), destination, progress)


def _convert(
    table: Source,
    reading: Reading,
    destination: str | os.PathLike[str] | IO[bytes],
    progress: Progress | None,
) -> None:
    batches = _counted(table, reading.columns, reading.height, progress)
    _write(destination, map(reading, batches), reading)


def encoded(
    source: Any, schema: Any, *, bad_rows: str = "error", progress: Progress | None = None
) -> FileRows:
    """Encode a table by a `Schema`, batch by batch, into a temporary file."""
    table = _sourced(source, bad_rows)
    return mapped_rows(table, Encoded.of(table, schema, bad_rows), progress)


def _sourced(source: Any, bad_rows: str) -> Source:
    table = source if isinstance(source, Source) else source_of(source, bad_rows=bad_rows)
    if table is None:
        raise TypeError(f"cannot read rows from {type(source).__name__}")
    return table


def _counted(table: Source, columns: Sequence[str], height: int, progress: Progress | None) -> Iterator[Any]:
    """Yield the parts of a table; raise if it has no rows."""
    done = 0
    for batch in table.parts(columns, height):
        yield batch
        done += batch.num_rows
        if progress is not None and table.n_rows is not None:
            progress(done, table.n_rows)
    if not done:
        raise TableError(f"{table.name!r} has columns but no rows; a fit needs at least one")


def _write(
    destination: str | os.PathLike[str] | IO[bytes],
    batches: Iterator[tuple[NDArray[Any], Any]],
    reading: Reading,
) -> None:
    """Write an Arrow file of rows and labels."""
    dtype, width = reading.dtype, len(reading.names)
    layout = pa.schema(
        [(ROWS, pa.list_(pa.from_numpy_dtype(dtype), width)), (LABEL, reading.label_type)],
        metadata={FEATURES: json.dumps(list(reading.names))},
    )
    with contextlib.ExitStack() as stack:
        if isinstance(destination, str | os.PathLike):
            destination = stack.enter_context(Path(destination).open("wb"))
        writer = stack.enter_context(pa.ipc.new_file(destination, layout))
        for matrix, labels in batches:
            flat = np.ascontiguousarray(matrix, dtype=dtype).ravel()
            rows = pa.FixedSizeListArray.from_arrays(pa.array(flat), width)
            writer.write_batch(pa.record_batch([rows, labels], schema=layout))
            del matrix, flat, rows  # before the next batch is made


def opened(
    source: Any,
    *,
    target: str | None,
    schema: Any = None,
    classes: Any = None,
    bad_rows: str = "error",
    ids: str | None = None,
    labeled: bool = True,
    progress: Progress | None = None,
) -> FileRows:
    """Open the rows of a source, converted or encoded into a temporary file, or of an Arrow file from ``convert``.

    ``ids`` names the column of people's ids, which are collected in the same pass.
    """
    if (
        isinstance(source, str | os.PathLike)
        and schema is None
        and ids is None
        and _is_converted(source, target if labeled else "")
    ):
        with Path(source).open("rb") as stream:
            return FileRows(stream)
    table = _sourced(source, bad_rows)
    if schema is not None:
        reading: Reading = Encoded.of(table, schema, bad_rows)
    elif target is None and labeled:
        raise ValueError("name the column of labels: fit('data.parquet', target='y')")
    else:
        features = [name for name in table.schema.names if name not in (*table.keys, target, ids)]
        reading = Numbers.of(table, target, None if ids is None else features, classes, bad_rows)
    if ids is not None:
        reading = WithIds(table, reading, ids)
    made = mapped_rows(table, reading, progress)
    made.ids = reading.ids if isinstance(reading, WithIds) else None
    return made


def mapped_rows(table: Source, reading: Reading, progress: Progress | None = None) -> FileRows:
    """Write what a reading makes of a table into a temporary file."""
    return _temporary(lambda made: _convert(table, reading, made, progress), table.assumptions)


def _is_converted(source: str | os.PathLike[str], target: str | None) -> bool:
    """Whether this is a file to map directly; without a target it can be nothing else."""
    path = Path(source)
    if path.suffix not in (".arrow", ".feather") or not path.is_file():
        return False
    if target is None:
        return True
    try:
        with pa.OSFile(str(path)) as stream:
            return FEATURES in (pa.ipc.open_file(stream).schema.metadata or {})
    except pa.ArrowException:
        return False


def _temporary(make: Callable[[IO[bytes]], None], assumptions: tuple[str, ...]) -> FileRows:
    """Make a file that only its owner can read and that has no name: it disappears with the process.

    Systems that cannot remove the name of an open file remove the file when it is closed.
    """
    with tempfile.TemporaryFile(prefix="discreet-", suffix=".arrow") as stream:
        make(stream)
        stream.flush()
        return FileRows(stream, assumptions)


def _names_in(schema: Any) -> tuple[str, ...]:
    """Return the names of the features in a file of this layout; raise ``ValueError`` for another layout."""
    if schema.names != [ROWS, LABEL] or FEATURES not in (schema.metadata or {}):
        raise ValueError("its columns are not a row and a label with the names of features beside them")
    names = tuple(json.loads(schema.metadata[FEATURES]))
    row, label = (schema.field(name).type for name in (ROWS, LABEL))
    if row not in (pa.list_(kind, len(names)) for kind in (pa.float32(), pa.float64())):
        raise ValueError(f"its rows are {row}, and {len(names)} features are named")
    if label not in LABEL_TYPES:
        raise ValueError(f"its labels are {label}")
    return names


def _check_whole(batches: Sequence[Any]) -> None:
    """Raise for null rows or cells, which `convert` never writes: later values would be read in their place."""
    for batch in batches:
        batch.validate()
        rows = batch.column(ROWS)
        if rows.null_count or rows.flatten().null_count:
            raise ValueError("some of its rows or cells are null")
    if not sum(batch.num_rows for batch in batches):
        raise ValueError("it has no rows")


def as_labels(column: Any) -> NDArray[Any]:
    """Return labels, each a function of its own cell: NumPy would round whole numbers next to a missing one."""
    if column.null_count and pa.types.is_integer(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(legible(column))
