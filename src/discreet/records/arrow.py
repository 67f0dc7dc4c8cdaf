"""Rows on disk: a Parquet table is converted once to an Arrow file, which is then mapped and read in place.

The Arrow file has one column of rows (lists of fixed length, so that a batch is a matrix in memory) and one of labels.
Passes read it through the page cache; what has been read is given back, so that the process stays small however large
the file is.
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
from discreet.records.bounds import Bounds
from discreet.records.open import Rows
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.tables.domains import read_numbers
from discreet.tables.reading import legible

ROWS, LABEL, FEATURES = "row", "label", b"feature names"
_BATCH_BYTES = 1 << 26
_KEEP_BYTES = 1 << 28  # mapped pages that may stay before they are given back
Progress = Callable[[int, int], None]


class FileRows(Rows):
    """Rows of a mapped Arrow file, with their labels; looks like a matrix as far as its shape.

    Use as a context manager, or ``close`` it: a file that was converted only for one fit is gone then.
    """

    def __init__(self, stream: IO[bytes]) -> None:
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
        """All labels, as one array: of objects if whole numbers are missing some, so that the others stay exact."""
        return np.concatenate([_labels(batch.column(LABEL)) for batch in self._batches])

    def take(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows as a matrix in memory; ``places`` must ascend."""
        found, start = [], 0
        for block in self.blocks():
            low, high = np.searchsorted(places, [start, start + len(block)])
            found.append(block[places[low:high] - start])
            start += len(block)
        return np.concatenate(found)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """The rows, one matrix per batch, without a copy."""
        for batch in self._batches:
            yield batch.column(ROWS).flatten().to_numpy(zero_copy_only=True).reshape(-1, self._width)

    def valid(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Which rows are finite and not absurd."""
        return np.concatenate([bounds.valid_rows(block) for block in self.blocks()])

    def records(
        self,
        labels: NDArray[Any],
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels; reads every row once, for its norm."""
        parts, start = [], 0
        for block in self.blocks():
            rows = slice(start, start + len(block))
            null = None if null_rows is None else null_rows[rows]
            parts.append(ArrayRecords(clip(block), labels[rows], bounds, null))
            start = rows.stop
            self._give_back(block.nbytes)
        largest = max((batch.nbytes for batch in self._batches), default=0)
        sizes = [batch.num_rows for batch in self._batches]
        local = LocalParts(parts, lambda: self._give_back(largest))
        return PartitionedRecords(local, sizes, self._width, False, bounds, labels)

    def _give_back(self, size: int) -> None:
        """Let go of mapped pages now and then; they stay in the system's cache while there is room."""
        self._read += size
        if self._read > _KEEP_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0

    def close(self) -> None:
        """Forget the file."""
        self._batches = []
        with contextlib.suppress(BufferError):  # a matrix somewhere still looks into the map
            self._map.close()

    def __enter__(self) -> FileRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def convert(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str] | IO[bytes],
    *,
    target: str,
    columns: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the numeric columns of a Parquet file as an Arrow file that fits can map.

    What becomes of a cell or a label depends on it and on the types of columns alone; none raises an error.

    Parameters
    ----------
    source, destination : a Parquet file; an Arrow file to make, or an open one to write, which holds the same private
        rows: guard it likewise.
    target : column of labels, numeric or text.
    columns : features, by default all columns but the target; all must be numeric or boolean.
    progress : called with rows done and rows in all.

    Rows are float32 if every feature is of that type or smaller, else float64. Missing cells become NaN.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        features = [name for name in schema.names if name != target] if columns is None else list(columns)
        _check_columns(schema, features, target, source)
        _check_rows(file, source)
        dtype = np.result_type(np.float32, *(_numpy_type(schema.field(name).type) for name in features))
        dtype = np.dtype(np.float32 if dtype == np.float32 else np.float64)
        height = max(1024, _BATCH_BYTES // (dtype.itemsize * len(features)))
        batches = _batches(file, height, [*features, target])
        kind = _label_type(schema.field(target).type)
        read = (
            (_matrix(batch, features, dtype), batch.column(target))
            for batch in _counted(batches, n_rows, progress)
        )
        _write(destination, read, features, dtype, kind)


def encoded(
    source: str | os.PathLike[str], schema: Any, *, bad_rows: str = "error", progress: Progress | None = None
) -> FileRows:
    """The rows that a `Schema` makes of a Parquet table, batch by batch, in a file for this once."""
    import pyarrow.parquet as pq

    def convert_to(stream: IO[bytes]) -> None:
        with pq.ParquetFile(source) as file:
            _check_rows(file, source)
            height = max(1024, _BATCH_BYTES // (8 * schema.n_features))
            batches = _batches(file, height, list(schema.needed))
            read = (
                _encoded(schema, batch, bad_rows)
                for batch in _counted(batches, file.metadata.num_rows, progress)
            )
            kind = _label_type(pa.array(schema.classes).type)
            _write(stream, read, schema.feature_names, np.dtype(np.float64), kind)

    return _temporary(convert_to)


def _encoded(schema: Any, batch: Any, bad_rows: str) -> tuple[NDArray[Any], Any]:
    rows, labels = schema.encode(pa.Table.from_batches([batch]), bad_rows=bad_rows)
    return rows, pa.array(labels.tolist())


def _batches(file: Any, height: int, columns: list[str]) -> Iterator[Any]:
    """Batches of about ``height`` rows, one row group after the other: asked for all at once, Arrow reads far ahead."""
    waiting: list[Any] = []
    for group in range(file.metadata.num_row_groups):
        for batch in file.iter_batches(height, row_groups=[group], columns=columns):
            waiting.append(batch)
            if sum(part.num_rows for part in waiting) >= height:
                yield _joined(waiting)
                waiting = []
        pa.default_memory_pool().release_unused()
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    """Several batches as one, so that small row groups do not become small parts."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if len(batches) > 1 else batches[0]


def _counted(batches: Any, n_rows: int, progress: Progress | None) -> Iterator[Any]:
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        if progress is not None:
            progress(done, n_rows)


def _matrix(batch: Any, features: Sequence[str], dtype: np.dtype[Any]) -> NDArray[Any]:
    matrix = np.empty((batch.num_rows, len(features)), dtype=dtype)
    for number, name in enumerate(features):
        matrix[:, number] = read_numbers(batch.column(name))[0]
    return matrix


def _write(
    destination: str | os.PathLike[str] | IO[bytes],
    batches: Iterator[tuple[NDArray[Any], Any]],
    features: Sequence[str],
    dtype: np.dtype[Any],
    label_type: Any,
) -> None:
    """An Arrow file of rows and labels."""
    layout = pa.schema(
        [(ROWS, pa.list_(pa.from_numpy_dtype(dtype), len(features))), (LABEL, label_type)],
        metadata={FEATURES: json.dumps(list(features))},
    )
    with contextlib.ExitStack() as stack:
        if isinstance(destination, str | os.PathLike):
            destination = stack.enter_context(Path(destination).open("wb"))
        writer = stack.enter_context(pa.ipc.new_file(destination, layout))
        for matrix, labels in batches:
            flat = np.ascontiguousarray(matrix, dtype=dtype).ravel()
            rows = pa.FixedSizeListArray.from_arrays(pa.array(flat), len(features))
            # Unsafe: types only grow, and text that is not UTF-8 is no reason to stop at somebody's label.
            cast = labels.cast(label_type, safe=False)
            writer.write_batch(pa.record_batch([rows, cast], schema=layout))


def opened(
    source: str | os.PathLike[str], *, target: str | None, progress: Progress | None = None
) -> FileRows:
    """The rows of a Parquet file, converted for this once, or of an Arrow file that ``convert`` made."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.suffix in (".arrow", ".feather"):
        with path.open("rb") as stream:
            return FileRows(stream)
    if path.suffix != ".parquet":
        raise ValueError(f"a fit reads .parquet files, or .arrow files made by `convert`; got {str(path)!r}")
    if target is None:
        raise ValueError("name the column of labels: fit('data.parquet', target='y')")
    return _temporary(lambda made: convert(path, made, target=target, progress=progress))


def _temporary(make: Callable[[IO[bytes]], None]) -> FileRows:
    """A file that only its owner can read and that no folder names: it ends with the process, however that ends.

    Systems that cannot take the name from an open file remove it when it is closed.
    """
    with tempfile.TemporaryFile(prefix="discreet-", suffix=".arrow") as stream:
        make(stream)
        stream.flush()
        return FileRows(stream)


def _check_columns(schema: Any, features: Sequence[str], target: str, source: Any) -> None:
    missing = [name for name in (*features, target) if name not in schema.names]
    if missing:
        raise ValueError(f"{str(source)!r} has no column {missing[0]!r}; it has {', '.join(schema.names)}")
    twice = [name for name in (*features, target) if schema.names.count(name) > 1]
    if twice:
        raise ValueError(f"{str(source)!r} has more than one column {twice[0]!r}; rename all but one")
    if not features:
        raise ValueError(f"{str(source)!r} has no column but the target")
    for name in features:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise ValueError(
                f"column {name!r} holds {kind}, not numbers; declare its domain in a discreet.Schema and transform the "
                "table first, or leave it out"
            )
    if pa.types.is_nested(schema.field(target).type):
        raise ValueError(
            f"column {target!r} holds {schema.field(target).type}, which is no label: labels are numbers, text or "
            "true/false"
        )


def _check_rows(file: Any, source: Any) -> None:
    if file.metadata.num_rows == 0:
        raise ValueError(f"{str(source)!r} has columns but no rows; a fit needs at least one")


def _names_in(schema: Any) -> tuple[str, ...]:
    """The names of the features in a file of this layout; ValueError if it is another one."""
    if schema.names != [ROWS, LABEL] or FEATURES not in (schema.metadata or {}):
        raise ValueError("its columns are not a row and a label with the names of features beside them")
    names = tuple(json.loads(schema.metadata[FEATURES]))
    row, label = (schema.field(name).type for name in (ROWS, LABEL))
    if row not in (pa.list_(kind, len(names)) for kind in (pa.float32(), pa.float64())):
        raise ValueError(f"its rows are {row}, and {len(names)} features are named")
    if label not in _LABEL_TYPES:
        raise ValueError(f"its labels are {label}")
    return names


def _check_whole(batches: Sequence[Any]) -> None:
    """Refuse null rows or cells, which `convert` never writes: what comes after would be read in their place."""
    for batch in batches:
        batch.validate()
        rows = batch.column(ROWS)
        if rows.null_count or rows.flatten().null_count:
            raise ValueError("some of its rows or cells are null")
    if not sum(batch.num_rows for batch in batches):
        raise ValueError("it has no rows")


def _numpy_type(kind: Any) -> np.dtype[Any]:
    """The smallest floating type that holds every value of an Arrow type."""
    if pa.types.is_boolean(kind) or kind in (
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint16(),
        pa.float16(),
        pa.float32(),
    ):
        return np.dtype(np.float32)
    return np.dtype(np.float64)


_LABEL_TYPES = (pa.int64(), pa.uint64(), pa.float64(), pa.string())


def _label_type(kind: Any) -> Any:
    """The one of ``_LABEL_TYPES`` that holds every value of a type."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else pa.string()


def _labels(column: Any) -> NDArray[Any]:
    """Labels, each a function of its own cell: NumPy would round all whole numbers beside a missing one."""
    if column.null_count and pa.types.is_integer(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(legible(column))
