"""Rows on disk: a Parquet table is converted once to an Arrow file, which is then mapped and read in place.

The Arrow file has one column of rows (lists of fixed length, so that a batch is a matrix in memory) and one of labels.
Passes read it through the page cache; what has been read is given back, so that the process stays small however large
the file is.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.bounds import Bounds
from discreet.records.arrays import ArrayRecords
from discreet.records.parts import LocalParts, PartitionedRecords

ROWS, LABEL = "row", "label"
_BATCH_BYTES = 1 << 26
_KEEP_BYTES = 1 << 28  # mapped pages that may stay before they are given back
Progress = Callable[[int, int], None]


class FileRows:
    """Rows of a mapped Arrow file, with their labels; looks like a matrix as far as its shape.

    Use as a context manager, or ``close`` it: a file that was converted only for one fit is removed then.
    """

    def __init__(self, path: str | os.PathLike[str], *, temporary: bool = False) -> None:
        self.path = Path(path)
        self._temporary = temporary
        with self.path.open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._map)))
            if reader.schema.names != [ROWS, LABEL]:
                raise ValueError("its columns are not a row and a label")
            names = (reader.schema.metadata or {}).get(b"features", b"")
        except (pa.ArrowInvalid, ValueError) as error:
            self.close()
            raise ValueError(f"{self.path} is not an Arrow file made by `convert`: {error}") from None
        self.feature_names: tuple[str, ...] = tuple(names.decode().split("\n")) if names else ()
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._width = reader.schema.field(ROWS).type.list_size
        self._read = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(batch.num_rows for batch in self._batches), self._width

    @property
    def labels(self) -> NDArray[Any]:
        """All labels, as one array."""
        return np.concatenate([np.asarray(batch.column(LABEL)) for batch in self._batches])

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
        """Forget the file; remove it if it was made for one fit."""
        self._batches = []
        with contextlib.suppress(BufferError):  # a matrix somewhere still looks into the map
            self._map.close()
        if self._temporary:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> FileRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def convert(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    target: str,
    columns: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the numeric columns of a Parquet file as an Arrow file that fits can map.

    Parameters
    ----------
    source, destination : a Parquet file; an Arrow file to make, which holds the same private rows: guard it likewise.
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
        if n_rows == 0:
            raise ValueError(f"{str(source)!r} has columns but no rows; a fit needs at least one")
        dtype = np.result_type(np.float32, *(_numpy_type(schema.field(name).type) for name in features))
        dtype = np.dtype(np.float32 if dtype == np.float32 else np.float64)
        height = max(1024, _BATCH_BYTES // (dtype.itemsize * len(features)))
        batches = _batches(file, height, [*features, target])
        kind = _label_type(schema.field(target).type)
        read = (
            (_matrix(batch, features, dtype), batch.column(target).cast(kind))
            for batch in _counted(batches, n_rows, progress)
        )
        _write(destination, read, features, dtype, kind)


def encoded(
    source: str | os.PathLike[str], schema: Any, *, bad_rows: str = "error", progress: Progress | None = None
) -> FileRows:
    """The rows that a `Schema` makes of a Parquet table, batch by batch, in a file for this once."""
    import pyarrow.parquet as pq

    def convert_to(name: str) -> None:
        with pq.ParquetFile(source) as file:
            height = max(1024, _BATCH_BYTES // (8 * schema.n_features))
            batches = _batches(file, height, list(schema.needed))
            read = (
                _encoded(schema, batch, bad_rows)
                for batch in _counted(batches, file.metadata.num_rows, progress)
            )
            kind = _label_type(pa.array(schema.classes).type)
            _write(name, read, schema.feature_names, np.dtype(np.float64), kind)

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
        matrix[:, number] = _numbers(batch.column(name))
    return matrix


def _write(
    destination: str | os.PathLike[str],
    batches: Iterator[tuple[NDArray[Any], Any]],
    features: Sequence[str],
    dtype: np.dtype[Any],
    label_type: Any,
) -> None:
    """An Arrow file of rows and labels."""
    layout = pa.schema(
        [(ROWS, pa.list_(pa.from_numpy_dtype(dtype), len(features))), (LABEL, label_type)],
        metadata={"features": "\n".join(features)},
    )
    with pa.OSFile(str(destination), "wb") as sink, pa.ipc.new_file(sink, layout) as writer:
        for matrix, labels in batches:
            flat = np.ascontiguousarray(matrix, dtype=dtype).ravel()
            rows = pa.FixedSizeListArray.from_arrays(pa.array(flat), len(features))
            writer.write_batch(pa.record_batch([rows, labels.cast(label_type)], schema=layout))


def opened(
    source: str | os.PathLike[str], *, target: str | None, progress: Progress | None = None
) -> FileRows:
    """The rows of a Parquet file, converted for this once, or of an Arrow file that ``convert`` made."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.suffix in (".arrow", ".feather"):
        return FileRows(path)
    if path.suffix != ".parquet":
        raise ValueError(f"a fit reads .parquet files, or .arrow files made by `convert`; got {str(path)!r}")
    if target is None:
        raise ValueError("name the column of labels: fit('data.parquet', target='y')")
    return _temporary(lambda name: convert(path, name, target=target, progress=progress))


def _temporary(make: Callable[[str], None]) -> FileRows:
    """A file that only its owner can read and that is gone after its use, or at once if making it fails."""
    descriptor, name = tempfile.mkstemp(prefix="discreet-", suffix=".arrow")
    os.close(descriptor)
    try:
        make(name)
        return FileRows(name, temporary=True)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _check_columns(schema: Any, features: Sequence[str], target: str, source: Any) -> None:
    missing = [name for name in (*features, target) if name not in schema.names]
    if missing:
        raise ValueError(f"{str(source)!r} has no column {missing[0]!r}; it has {', '.join(schema.names)}")
    if not features:
        raise ValueError(f"{str(source)!r} has no column but the target")
    for name in features:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise ValueError(
                f"column {name!r} holds {kind}, not numbers; declare its domain in a discreet.Schema and transform the "
                "table first, or leave it out"
            )


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


def _label_type(kind: Any) -> Any:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else pa.string()


def _numbers(column: Any) -> NDArray[Any]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return np.asarray(column.to_numpy(zero_copy_only=False))
