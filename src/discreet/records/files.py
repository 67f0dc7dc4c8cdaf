"""Files as sources: Parquet, CSV and Arrow; one or several, folders, globs, addresses of `fsspec`, Hive partitions.

Several files are one table, in the order of their names. All must have the columns of the first, of the same types:
a type that differed would change the meaning of cells. Cells of CSV files, and the values of ``key=value`` folders, are
text; no reader guesses a type from them, because one row would then decide how others are read.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol
from urllib.parse import unquote

import pyarrow as pa

from discreet.records.sources import SUFFIXES, Source, batch_rows
from discreet.tables.csv_files import CsvFile
from discreet.tables.reading import TableError

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class _System(Protocol):
    """The methods needed of a file system; those of `fsspec` have them."""

    def isdir(self, path: str) -> bool: ...
    def exists(self, path: str) -> bool: ...
    def glob(self, path: str) -> list[str]: ...
    def find(self, path: str) -> list[str]: ...
    def open(self, path: str) -> Any: ...


class _Local:
    """The file system of this machine."""

    isdir, exists = staticmethod(os.path.isdir), staticmethod(os.path.exists)

    def glob(self, path: str) -> list[str]:
        return glob.glob(path, recursive=True)

    def find(self, path: str) -> list[str]:
        return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]

    def open(self, path: str) -> IO[bytes]:
        return open(path, "rb")


@dataclass(frozen=True)
class File:
    """One file: its path, the file system that opens it, and the values that its folders give to all of its rows."""

    path: str
    system: _System
    keys: dict[str, str | None]

    def stream(self) -> Any:
        """Open the file for reading bytes."""
        return self.system.open(self.path)

    def arrow(self) -> Any:
        """Return the source that Arrow reads: its path if Arrow can open it, otherwise an open file."""
        return (
            pa.OSFile(self.path)
            if isinstance(self.system, _Local)
            else pa.PythonFile(self.stream(), mode="r")
        )

    @contextmanager
    def errors(self, kind: str) -> Iterator[None]:
        """Turn read errors into errors that name the file and quote nothing of it."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            reason = (
                str(error).splitlines()[0] if isinstance(error, OSError) else "it is damaged or another file"
            )
            raise TableError(f"{self.path!r} is not a readable {kind} file: {reason}") from None


class Files(Source):
    """Files of one format as one table."""

    def __init__(self, name: str, found: Sequence[File], bad_rows: str) -> None:
        self.name, self._files = name, list(found)
        self._format = _format_of(self._files)(bad_rows)
        first = self._files[0]
        stored = self._format.schema(first)
        keys = [key for key in first.keys if key not in stored.names]
        self.keys = frozenset(keys)
        self.schema = pa.schema([*stored, *(pa.field(key, pa.string()) for key in keys)])
        self.untyped = self.keys | (frozenset(stored.names) if self._format.untyped else frozenset())
        self.n_rows = self._format.count(self._files)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the batches of one file after another."""
        wanted = pa.schema([self.schema.field(name) for name in columns])
        own = [name for name in columns if name not in self.keys]
        for file in self._files:
            self._check(file, own)
            for batch in self._format.batches(file, own):
                yield _with_keys(batch, file, wanted)

    def _check(self, file: File, own: Sequence[str]) -> None:
        """Raise if a file lacks columns, or has columns of other types."""
        schema = self._format.schema(file)
        for name in own:
            if name not in schema.names or schema.field(name).type != self.schema.field(name).type:
                raise TableError(
                    f"{file.path!r} has no column {name!r} of type {self.schema.field(name).type}, as "
                    f"{self._files[0].path!r} has: files that are one table have the same columns, of the same types"
                )
        missing = self.keys - file.keys.keys()
        if missing:
            raise TableError(
                f"{file.path!r} is in no folder {min(missing)}=..., as {self._files[0].path!r} is"
            )


def _with_keys(batch: Any, file: File, wanted: Any) -> Any:
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.repeat(pa.scalar(file.keys[field.name], pa.string()), batch.num_rows)
        for field in wanted
    ]
    return pa.record_batch(columns, schema=wanted) if columns else batch


# -- formats ---------------------------------------------------------------------------------------------------------


class _Parquet:
    untyped = False

    def __init__(self, bad_rows: str) -> None:
        pass

    def schema(self, file: File) -> Any:
        with self._opened(file) as opened:
            return opened.schema_arrow.remove_metadata()

    def count(self, files: Sequence[File]) -> int:
        total = 0
        for file in files:
            with self._opened(file) as opened:
                total += opened.metadata.num_rows
        return total

    def batches(self, file: File, columns: Sequence[str]) -> Iterator[Any]:
        """Yield one row group after another; asked for all at once, Arrow reads far ahead."""
        with self._opened(file) as opened:
            rows = batch_rows(opened.schema_arrow, columns)
            for group in range(opened.metadata.num_row_groups):
                yield from opened.iter_batches(rows, row_groups=[group], columns=list(columns))
                pa.default_memory_pool().release_unused()

    @contextmanager
    def _opened(self, file: File) -> Iterator[Any]:
        import pyarrow.parquet as pq

        with file.errors("Parquet"), pq.ParquetFile(file.arrow()) as opened:
            yield opened


class _Arrow:
    untyped = False

    def __init__(self, bad_rows: str) -> None:
        pass

    def schema(self, file: File) -> Any:
        with file.errors("Arrow"), file.arrow() as stream:
            return pa.ipc.open_file(stream).schema.remove_metadata()

    def count(self, files: Sequence[File]) -> None:
        return None

    def batches(self, file: File, columns: Sequence[str]) -> Iterator[Any]:
        with file.errors("Arrow"), file.arrow() as stream:
            reader = pa.ipc.open_file(stream)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(list(columns))


class _Csv:
    untyped = True

    def __init__(self, bad_rows: str) -> None:
        self._bad_rows = bad_rows

    def schema(self, file: File) -> Any:
        return self._opened(file).schema

    def count(self, files: Sequence[File]) -> None:
        return None

    def batches(self, file: File, columns: Sequence[str]) -> Iterator[Any]:
        yield from self._opened(file, columns).batches()

    def _opened(self, file: File, columns: Sequence[str] | None = None) -> CsvFile:
        return CsvFile(file.path, file.stream, columns, bad_rows=self._bad_rows)


_FORMATS: dict[str, Callable[[str], Any]] = dict(
    zip(SUFFIXES, (_Parquet, _Parquet, _Csv, _Arrow, _Arrow), strict=True)
)


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _format_of(files: Sequence[File]) -> Callable[[str], Any]:
    formats = {_FORMATS.get(_suffix(file.path)) for file in files}
    if len(formats) != 1 or None in formats:
        odd = next((file.path for file in files if _suffix(file.path) not in _FORMATS), files[-1].path)
        raise TableError(
            f"a fit reads files of one kind, whose names end in one of {', '.join(_FORMATS)}; got {odd!r}"
        )
    return _FORMATS[_suffix(files[0].path)]


# -- where they are --------------------------------------------------------------------------------------------------


def files(source: Any, bad_rows: str) -> Files:
    """Return the table that paths, folders, globs or addresses name; raise if there is none."""
    given = [os.fspath(one) for one in (source if isinstance(source, list | tuple) else [source])]
    found = [file for path in given for file in _found(path)]
    name = given[0] if len(given) == 1 else f"{given[0]} and {len(given) - 1} more"
    return Files(name, found, bad_rows)


def _found(path: str) -> list[File]:
    system, root = _system(path)
    if system.isdir(root):
        # Files and folders with such names hold no rows: _SUCCESS, .part-0.crc, _delta_log.
        inside = [one for one in system.find(root) if not _hidden(one, root)]
        paths = [one for one in inside if _suffix(one) in _FORMATS]
        if not paths:
            raise FileNotFoundError(
                f"there is no file in {path!r} whose name ends in one of {', '.join(_FORMATS)}"
            )
    elif not system.exists(root) and glob.has_magic(root):
        paths = [one for one in system.glob(root) if not system.isdir(one)]
        if not paths:
            raise FileNotFoundError(f"there is no file {path!r}")
    elif system.exists(root):
        paths = [root]
    else:
        raise FileNotFoundError(f"there is no file {path!r}")
    return [File(one, system, _keys(one)) for one in sorted(paths)]


def _system(path: str) -> tuple[_System, str]:
    """Return the file system of a path, and the path in it."""
    if "://" not in path:
        return _Local(), path
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(
            f"{path!r} is an address: install discreet[remote], which reads it by fsspec"
        ) from None
    system, root = url_to_fs(path)
    return system, root


def _hidden(path: str, root: str) -> bool:
    inner = path.removeprefix(root.rstrip("/")).replace(os.sep, "/").split("/")
    return any(part.startswith(("_", ".")) for part in inner if "=" not in part)


def _keys(path: str) -> dict[str, str | None]:
    """Return the values of folders named ``key=value``, as text."""
    folders = path.replace(os.sep, "/").split("/")[:-1]
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return {unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in pairs if key}
