"""Tables in and out: CSV and Parquet files, Arrow tables, pandas frames, dictionaries of columns, ids of people.

CSV cells are always read as text and interpreted by the schema. If a reader guessed the type of a column, the treatment
of every row would depend on every other row, which no sensitivity bound covers.
"""

from __future__ import annotations

import copy
import csv
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet._files import write_atomically
from discreet._typing import Array
from discreet.tables.domains import MISSING_WORDS, cell_number, cell_text, distinct_texts

# A pyarrow.Table, anything that exports one (polars, DuckDB), a pandas DataFrame, or {name: array}.
TableLike: TypeAlias = Any
_FRAMES = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table", "RecordBatch"))


def is_from(value: object, library: str, *names: str) -> bool:
    """Check isinstance against classes of an optional library, without importing it."""
    loaded = sys.modules.get(library)
    return loaded is not None and isinstance(value, tuple(getattr(loaded, name) for name in names))


class TableError(ValueError):
    """A table could not be read. The message says which one and what to do, and never quotes a cell."""


@runtime_checkable
class _HasArray(Protocol):
    """Anything that converts to an array: NumPy arrays, frames, series, Arrow tables."""

    def __array__(self) -> NDArray[Any]: ...


def as_cells(values: Any) -> NDArray[Any]:
    """Return an array that keeps every cell as it was in its container.

    NumPy would turn numbers next to a word in a list into text, and round whole numbers next to a missing cell.
    """
    if is_from(values, "pandas", "Series", "Index") and not isinstance(values.dtype, np.dtype):
        values = values.array
    # Nullable columns, categories, Arrow's types.
    if is_from(values, "pandas.api.extensions", "ExtensionArray"):
        arrow = is_from(values.dtype, "pandas", "ArrowDtype")
        values = values.__arrow_array__() if arrow else values.astype(object)
    if is_from(values, "polars", "Series"):
        values = values.to_arrow()
    if is_from(values, "pyarrow", "Array", "ChunkedArray"):
        from pyarrow.types import is_primitive

        if values.null_count or not is_primitive(values.type):
            cells = values.to_pylist()
            values = [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in cells]
    try:
        return np.asarray(values) if isinstance(values, _HasArray) else np.asarray(values, dtype=object)
    except ValueError:
        raise ValueError("the data must have the same number of cells in every row") from None


def to_numbers(values: Any) -> Array:
    """Convert cells to numbers, NaN if a cell is not a number; no cell raises, and none is quoted.

    >>> to_numbers([[1, "2.5"], ["none", True]])
    array([[1. , 2.5],
           [nan, 1. ]])
    """
    array = as_cells(values)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    # One by one, even if NumPy could convert all at once: the result for a cell must not depend on the others.
    one_by_one = (cell_number(cell) for cell in array.ravel())
    return np.fromiter(one_by_one, np.float64, array.size).reshape(array.shape)


def entries_to_numbers(matrix: Any) -> Any:
    """Convert a SciPy sparse matrix of any dtype to float64 CSR, reading each stored cell as ``to_numbers`` does."""
    # SciPy's own conversions refuse some types and quote cells in errors.
    numbers = copy.copy(matrix.tocsr() if matrix.format in ("lil", "dok") else matrix)
    numbers.data = to_numbers(numbers.data)
    return numbers.tocsr()


# -- tables and their columns --------------------------------------------------------------------------------------


def read_table(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    bad_rows: str = "error",
    separator: str = ",",
) -> TableLike:
    """Read a ``.csv`` or ``.parquet`` file into a ``pyarrow.Table``.

    Parameters
    ----------
    path : file whose suffix names its format.
    columns : names of the columns to read, all by default.
    bad_rows : with "null", each line of a CSV file after the first is one row, of missing cells if it is blank or
        malformed, so that no line can raise an error or touch the rows of others.
    separator : the character between the fields of a CSV file.
    """
    path = Path(path)
    read_csv: Callable[..., Any] = partial(_read_csv, separator=separator)
    readers = {".csv": read_csv, ".parquet": _read_parquet, ".pq": _read_parquet}
    if path.suffix.lower() not in readers:
        raise TableError(f"{str(path)!r}: the name must end in one of {', '.join(readers)}")
    if not path.exists():
        raise TableError(f"there is no file {str(path)!r}")
    if not path.is_file():
        raise TableError(f"{str(path)!r} is not a file")
    if path.stat().st_size == 0:
        raise TableError(f"{str(path)!r} is empty")
    table = readers[path.suffix.lower()](path, columns, bad_rows)
    if table.num_rows == 0:
        raise TableError(f"{str(path)!r} has column names but no rows")
    return table


def is_frame(table: Any) -> bool:
    """Whether this is a table with named columns of pandas, polars or Arrow."""
    return any(is_from(table, *kind) for kind in _FRAMES)


def column_names(table: TableLike) -> list[str]:
    """Return the names of a table's columns, in order."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    if is_from(table, "pandas", "DataFrame") or is_from(table, "polars", "DataFrame"):
        return [str(name) for name in table.columns]
    return list(_arrow(table).column_names)


def _arrow(table: TableLike) -> Any:
    """Return an Arrow table of anything that exports one."""
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    try:
        return pa.table(table)
    except (TypeError, pa.ArrowException):
        kind = type(table).__name__
        known = "pass a pandas or polars DataFrame, a pyarrow Table or a dictionary of columns"
        if isinstance(table, str | os.PathLike):
            known = "read the file first, for instance by pandas.read_csv or pandas.read_parquet"
        elif isinstance(table, np.ndarray):
            known = "name its columns, for instance by pandas.DataFrame(array, columns=[...])"
        elif is_from(table, "polars", "LazyFrame"):
            known = "collect() it first"
        raise TableError(f"cannot use {kind} as a table; {known}") from None


def require_columns(table: TableLike, needed: Sequence[str]) -> None:
    """Raise unless each needed column occurs exactly once."""
    names = column_names(table)
    missing = [name for name in needed if name not in names]
    if missing:
        raise TableError(f"no such column: {_quoted(missing)}; the table has {_quoted(names)}")
    twice = [name for name in needed if names.count(name) > 1]
    if twice:
        raise TableError(f"more than one column is named {_quoted(twice)}; rename all but one")


def column(table: TableLike, name: str) -> Any:
    """Return one column as a ``pyarrow.Array``, read as by `as_column`."""
    return as_column(raw_column(table, name), name)


def raw_column(table: TableLike, name: str) -> Any:
    """Return one column as its table stores it."""
    require_columns(table, [name])
    if isinstance(table, Mapping) or is_from(table, "pandas", "DataFrame"):
        return table[name]
    return _arrow(table).column(name)


def as_column(values: Any, name: str, text: Callable[[Any], str | None] = cell_text) -> Any:
    """Return cells as a ``pyarrow.Array``; missing ones (None, NaN, NA) are null, and objects become their ``text``.

    No cell content raises an error; types that fit no domain, such as lists, do.
    """
    import pyarrow as pa

    if is_from(values, "polars", "Series"):
        values = values.to_arrow()
    if len(getattr(values, "shape", (0,))) != 1:
        raise TableError(f"column {name!r} must be one-dimensional")
    if is_from(values, "pandas", "Series", "Index") and is_from(values.dtype, "pandas", "CategoricalDtype"):
        values = values.array
    if is_from(values, "pandas", "Categorical"):
        # Level by level: Arrow refuses levels of different types, and one cell may add a level.
        codes = np.asarray(values.codes)
        return as_column(values.categories, name, text).take(pa.array(codes, mask=codes < 0))
    if isinstance(values, pa.Array | pa.ChunkedArray):
        cells = values
    elif np.dtype(object) == getattr(values, "dtype", np.dtype(object)):
        cells = _text_cells(values, text)
    else:
        try:
            cells = pa.array(values, from_pandas=True)
        except UnicodeError:
            cells = _text_cells(values, text)
        except (pa.ArrowException, TypeError, ValueError):
            raise TableError(f"column {name!r} holds values of a type that cannot be used") from None
    if pa.types.is_nested(cells.type) or isinstance(cells.type, pa.BaseExtensionType):
        raise TableError(
            f"column {name!r} holds values of type {cells.type}; a cell must be one number, text or date: give every "
            "part its own column"
        )
    if not isinstance(cells, pa.ChunkedArray):
        return legible(_plain(cells))
    return pa.concat_arrays([legible(_plain(part)) for part in cells.chunks or [pa.array([], cells.type)]])


def _text_cells(values: Any, text: Callable[[Any], str | None]) -> Any:
    """Return cells of any type as an array of text."""
    import pyarrow as pa

    texts = [text(value) for value in values]
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # an incomplete character, which no category contains; other text is unchanged
        return pa.array([text and text.encode(errors="replace").decode() for text in texts], pa.string())


def _plain(cells: Any) -> Any:
    """Return an array without a dictionary, of types that Arrow can compute with: no string views, no half floats."""
    import pyarrow as pa

    if pa.types.is_dictionary(cells.type):
        return _plain(cells.dictionary).take(cells.indices)
    if pa.types.is_string_view(cells.type):
        return cells.cast(pa.large_string())
    if pa.types.is_fixed_size_binary(cells.type) or pa.types.is_binary_view(cells.type):
        return cells.cast(pa.large_binary())
    return cells.cast(pa.float32()) if pa.types.is_float16(cells.type) else cells


def legible(cells: Any) -> Any:
    """Return an array with valid UTF-8 text; invalid bytes become characters that match no domain."""
    import pyarrow as pa

    if pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type):
        texts = [None if raw is None else raw.decode(errors="replace") for raw in cells.to_pylist()]
        return pa.array(texts, pa.large_string())
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return cells
    try:
        cells.validate(full=True)
        return cells
    except pa.ArrowInvalid:
        raw = cells.cast(pa.large_binary()).to_pylist()
        return pa.array([text and text.decode(errors="replace") for text in raw], cells.type)


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Write named columns of equal length as a CSV file that only its owner can read, completely or not at all."""
    import pyarrow as pa
    import pyarrow.csv as csv

    table = pa.table({name: pa.array(np.asarray(values)) for name, values in columns.items()})
    stream = io.BytesIO()
    csv.write_csv(table, stream)
    write_atomically(path, stream.getvalue(), private=True)  # predictions reveal something about the rows


def _read_csv(path: Path, columns: Sequence[str] | None, bad_rows: str, separator: str) -> Any:
    """Read text cells; malformed lines are an error, or each is one row of missing cells."""
    import pyarrow as pa
    import pyarrow.csv as csv

    file = CsvFile(str(path), lambda: path.open("rb"), columns, bad_rows=bad_rows, separator=separator)
    if bad_rows == "null":
        return pa.Table.from_batches(file.batches(), schema=file.schema)
    with file.errors():  # all at once, which is faster than batch by batch
        return csv.read_csv(path, **file.options())


class CsvFile:
    """A CSV file whose cells are read as text, in batches; its first line is read and checked at once.

    Parameters
    ----------
    name : for errors.
    stream : opens the file for reading bytes.
    columns : names of the columns to read, all by default.
    bad_rows : with "null" no line raises an error, as in `read_table`.
    separator : the character between fields.
    """

    def __init__(
        self,
        name: str,
        stream: Callable[[], IO[bytes]],
        columns: Sequence[str] | None = None,
        *,
        bad_rows: str = "error",
        separator: str = ",",
    ) -> None:
        import pyarrow as pa

        self.name, self._stream, self._by_lines = name, stream, bad_rows == "null"
        self._separator = separator
        self._refuse_other_formats()
        self._names = self._header()
        _require_in_header(name, self._names, columns)
        self._wanted = list(columns) if columns is not None else self._names
        self.schema = pa.schema([(name, pa.string()) for name in self._wanted])

    def batches(self) -> Iterator[Any]:
        """Yield batches of rows."""
        import pyarrow.csv as csv

        if self._by_lines:
            yield from self._lines()
            return
        with self.errors(), self._stream() as opened, csv.open_csv(opened, **self.options()) as reader:
            yield from reader

    def _header(self) -> list[str]:
        import pyarrow.csv as csv

        with self._stream() as stream:
            if not self._by_lines:
                parse = csv.ParseOptions(delimiter=self._separator)
                with self.errors(), csv.open_csv(stream, parse_options=parse) as reader:
                    return list(reader.schema.names)
            names = _fields(next(stream, b""), self._separator)
        if names is None or len(set(names)) != len(names):
            raise TableError(f"{self.name!r} does not begin with a line of different column names in UTF-8")
        return names

    def _lines(self) -> Iterator[Any]:
        """Read one line as one row, whatever it holds: no line may swallow, split or delete the rows of others.

        Quotes must therefore close within their line, and a blank or malformed line is a row of missing cells.
        """
        import pyarrow as pa

        places, width = [self._names.index(name) for name in self._wanted], len(self._names)
        nothing: list[str | None] = [None] * width
        with self._stream() as stream:
            next(stream)
            while lines := list(itertools.islice(stream, _LINES)):
                rows = [
                    fields if len(fields := _fields(line, self._separator) or []) == width else nothing
                    for line in lines
                ]
                cells = [pa.array([row[place] or None for row in rows], pa.string()) for place in places]
                yield pa.record_batch(cells, schema=self.schema)

    def options(self) -> dict[str, Any]:
        """Return how Arrow reads the file: every cell as text, an empty one as missing."""
        import pyarrow as pa
        import pyarrow.csv as csv

        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            include_columns=self._wanted,
            strings_can_be_null=True,
            null_values=[""],
        )
        # A blank line is no row of several columns, but the missing cell of a single one.
        parse = csv.ParseOptions(delimiter=self._separator, ignore_empty_lines=len(self._names) > 1)
        return {"parse_options": parse, "convert_options": convert}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Replace errors of Arrow, which quote somebody's record, by errors that name only the kind of problem."""
        import pyarrow as pa

        try:
            yield
        except UnicodeDecodeError:
            raise TableError(f"{self.name!r} is not UTF-8 text; {_SAVE_AS_UTF8}") from None
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            if "UTF8" in str(error):
                raise TableError(f"{self.name!r} is not UTF-8 text; {_SAVE_AS_UTF8}") from None
            if "straddling" in str(error):
                raise TableError(
                    f"{self.name!r} has a line of more than {_LONGEST_LINE >> 20} MB; is a quotation mark left open?"
                ) from None
            raise TableError(
                f"{self.name!r} is not a readable CSV file (lines with different numbers of fields); "
                "it needs a line of column names and then as many comma-separated fields in each line"
            ) from None

    def _refuse_other_formats(self) -> None:
        """Raise if the first line, the only one that may be described, shows another kind of file."""
        with self._stream() as stream:
            line = stream.readline(_LONGEST_LINE)
        for mark, kind in _OTHER_FORMATS.items():
            if line.startswith(mark):
                raise TableError(f"{self.name!r} is not a CSV file: {kind}")
        if b"\0" in line:
            raise TableError(
                f"{self.name!r} is not a CSV file: its first line holds zero bytes, as UTF-16 and what is not text do"
            )


def _fields(line: bytes, separator: str) -> list[str] | None:
    """Return the fields of one line; None if it is not one well-formed line of text."""
    # What is not UTF-8 becomes characters that match no domain.
    text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig", errors="replace")
    if "\r" in text or "\0" in text:
        return None
    try:
        rows = list(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _read_parquet(path: Path, columns: Sequence[str] | None, bad_rows: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as opened:
            _require_in_file(path, opened.schema_arrow.names, columns)
            return opened.read(columns=None if columns is None else list(columns))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TableError(f"{str(path)!r} is not a readable Parquet file: {reason}") from None


def _require_in_header(file: str, names: Sequence[str], columns: Sequence[str] | None) -> None:
    """Raise unless the first line of a CSV file names the columns; the line is not quoted, it may be a record."""
    if len(set(names)) < len(names):
        twice = [name for name in columns or [] if list(names).count(name) > 1]
        named = f"more than one column is named {_quoted(twice)}"
        which = named if twice else "two columns have the same name"
        raise TableError(f"{file!r}: {which} in its first line; rename all but one")
    missing = [name for name in columns or [] if name not in names]
    if not missing:
        return
    wanted = {name.casefold() for name in missing}
    alike = [name for name in names if name.strip().casefold() in wanted]
    separators = [mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]]
    if alike:
        hint = f"it has {_quoted(alike)}, and names must agree in every letter"
    elif separators:
        mark = repr(separators[0])
        hint = (
            f"its fields are separated by {mark}: save it with commas, or read it with separator={mark} (in the "
            f"shell: --separator {'tab' if separators[0] == chr(9) else mark})"
        )
    elif any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        hint = f"its first line is not UTF-8 text; {_SAVE_AS_UTF8}"
    elif len(missing) == len(columns or []):
        hint = (
            f"its first line, which must hold the names of the columns, has none of them among {len(names)} fields; "
            "if the names are missing, add them (the line is not shown here: it may be somebody's record)"
        )
    else:
        hint = f"its first line names {len(names)} columns, but not these"
    raise TableError(f"{file!r}: no such column: {_quoted(missing)}; {hint}")


def _require_in_file(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> None:
    try:
        require_columns(dict.fromkeys(names), columns or [])
    except TableError as error:
        raise TableError(f"{str(path)!r}: {error}") from None
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise TableError(f"{str(path)!r}: more than one column is named {_quoted(twice)}; rename all but one")


_LINES = 1 << 14  # of one batch
_LONGEST_LINE = 1 << 20  # Arrow reads blocks of this size, and no line may be longer
_UTF16 = "it is UTF-16 text; save it as UTF-8, for instance by `iconv -f utf-16 -t utf-8 OLD > NEW`"
_OTHER_FORMATS = {
    b"PAR1": "it is a Parquet file, whose name must end in .parquet",
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"PK\x03\x04": "it is an archive or a spreadsheet; save the table in it as CSV",
    b"\x1f\x8b": "it is compressed; unpack it first",
    b"\x89PNG": "it is a picture",
}
_SAVE_AS_UTF8 = "save it as UTF-8, for instance by `iconv -f latin1 -t utf-8 OLD > NEW`"


def _quoted(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:20]]
    return ", ".join(shown) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


NO_FLOATS = (
    "ids must be whole numbers or strings, not floating-point numbers, which cannot tell large ids apart: read them as "
    "text, or as pandas' nullable Int64, which keeps whole numbers beside missing cells"
)


def id_column(ids: Any, name: str) -> Any:
    """Return people's ids as an Arrow array of whole numbers or texts, null if there is none.

    Ids are compared by their text without surrounding blanks: 7 and "7" are one person, "7" and "07" are two.
    Unsuitable columns are refused by their type alone; a floating-point number among objects is a missing id.
    """
    import pyarrow as pa

    column = as_column(ids, name, _object_id)
    if pa.types.is_floating(column.type):
        raise TypeError(f"{name} holds numbers of type {column.type}; {NO_FLOATS}")
    if pa.types.is_temporal(column.type):
        raise TypeError(
            f"{name} holds values of type {column.type}; ids must be whole numbers or strings: convert them to text"
        )
    if pa.types.is_integer(column.type):
        return column
    texts, places = distinct_texts(column)
    known = [None if text is None or text.casefold() in MISSING_WORDS else text for text in texts]
    return pa.array(known, pa.string()).take(pa.array(places))


def _object_id(cell: object) -> str | None:
    return None if isinstance(cell, float | np.floating) else cell_text(cell)
