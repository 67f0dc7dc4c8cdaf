"""Tables in and out: CSV and Parquet files, Arrow tables, pandas frames and plain dictionaries of columns.

CSV cells are always read as text and interpreted by the schema. If a reader guessed the type of a column, the treatment
of every row would depend on every other row, which no sensitivity bound covers.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from discreet._checks import is_from
from discreet._files import write_atomically
from discreet.tables.meaning import cell_text

# A pyarrow.Table, anything that exports one (polars, DuckDB), a pandas DataFrame, or {name: array}.
TableLike: TypeAlias = Any
_FRAMES = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table", "RecordBatch"))


class TableError(ValueError):
    """A table could not be read. The message says which one and what to do, and never quotes a cell."""


def read_table(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, *, bad_rows: str = "error"
) -> TableLike:
    """Read a ``.csv`` or ``.parquet`` file into a ``pyarrow.Table``.

    Parameters
    ----------
    path : file whose suffix names its format.
    columns : names of the columns to read, all by default.
    bad_rows : with "null", each line of a CSV file after the first is one row, with missing cells if it is blank or
        malformed, so that no line can raise an error or affect other rows.
    """
    path = Path(path)
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".pq": _read_parquet}
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
        raise TableError(
            f"cannot use {type(table).__name__} as a table; pass a pyarrow Table, a pandas DataFrame "
            "or a dictionary of columns"
        ) from None


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
    import numpy as np
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
        return pa.array(
            [None if raw is None else raw.decode(errors="replace") for raw in cells.to_pylist()],
            pa.large_string(),
        )
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
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as csv

    table = pa.table({name: pa.array(np.asarray(values)) for name, values in columns.items()})
    stream = io.BytesIO()
    csv.write_csv(table, stream)
    write_atomically(path, stream.getvalue(), private=True)  # predictions reveal something about the rows


def _read_csv(path: Path, columns: Sequence[str] | None, bad_rows: str) -> Any:
    """Read text cells; malformed lines are an error, or each is one row of missing cells."""
    _refuse_other_formats(path)
    return _read_csv_by_lines(path, columns) if bad_rows == "null" else _read_csv_strictly(path, columns)


def _refuse_other_formats(path: Path) -> None:
    """Raise if the first line, the only one that may be mentioned, shows another kind of file."""
    with path.open("rb") as stream:
        line = stream.readline(_LONGEST_LINE)
    for mark, kind in _OTHER_FORMATS.items():
        if line.startswith(mark):
            raise TableError(f"{str(path)!r} is not a CSV file: {kind}")
    if b"\0" in line:
        raise TableError(
            f"{str(path)!r} is not a CSV file: its first line holds zero bytes, as UTF-16 and what is not text do"
        )


def _read_csv_strictly(path: Path, columns: Sequence[str] | None) -> Any:
    import pyarrow as pa
    import pyarrow.csv as csv

    try:
        with csv.open_csv(path) as opened:
            names = opened.schema.names
        _require_in_header(path, names, columns)
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=list(columns) if columns is not None else names,
            strings_can_be_null=True,
            null_values=[""],
        )
        # A blank line is not a row of several columns, but it is the missing cell of a single column.
        parse = csv.ParseOptions(ignore_empty_lines=len(names) > 1)
        return csv.read_csv(path, parse_options=parse, convert_options=convert)
    except UnicodeDecodeError:
        raise TableError(f"{str(path)!r} is not UTF-8 text; {_SAVE_AS_UTF8}") from None
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        # Arrow quotes the offending line, which is a person's record; keep only its kind.
        if "UTF8" in str(error):
            raise TableError(f"{str(path)!r} is not UTF-8 text; {_SAVE_AS_UTF8}") from None
        if "straddling" in str(error):
            raise TableError(
                f"{str(path)!r} has a line of more than {_LONGEST_LINE >> 20} MB; is a quotation mark left open?"
            ) from None
        raise TableError(
            f"{str(path)!r} is not a readable CSV file (lines with different numbers of fields); "
            "it needs a line of column names and then as many comma-separated fields in each line"
        ) from None


def _read_csv_by_lines(path: Path, columns: Sequence[str] | None) -> Any:
    """Read one line as one row, whatever it contains: no line may swallow, split or delete other rows.

    So quotes must close within their line, and a blank or malformed line is a row of missing cells.
    """
    import pyarrow as pa

    with path.open("rb") as stream:
        names = _fields(next(stream))
        if names is None or len(set(names)) != len(names):
            raise TableError(f"{str(path)!r} does not begin with a line of different column names in UTF-8")
        _require_in_header(path, names, columns)
        wanted = list(columns) if columns is not None else names
        places = [names.index(name) for name in wanted]
        cells: list[list[str | None]] = [[] for _ in wanted]
        for line in stream:
            fields = _fields(line)
            whole = fields is not None and len(fields) == len(names)
            for place, kept in zip(places, cells, strict=True):
                kept.append((fields[place] or None) if whole and fields is not None else None)
    return pa.table({name: pa.array(kept, pa.string()) for name, kept in zip(wanted, cells, strict=True)})


def _fields(line: bytes) -> list[str] | None:
    """Return the fields of one line; None if it is not one well-formed line of text."""
    # Bytes that are not UTF-8 become characters that match no domain.
    text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig", errors="replace")
    if "\r" in text or "\0" in text:
        return None
    try:
        rows = list(csv.reader([text], strict=True))
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


def _require_in_header(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> None:
    """Raise unless the first line of a CSV file names the columns; it may be a record, so it is not quoted."""
    if len(set(names)) < len(names):
        twice = [name for name in columns or [] if list(names).count(name) > 1]
        which = (
            f"more than one column is named {_quoted(twice)}" if twice else "two columns have the same name"
        )
        raise TableError(f"{str(path)!r}: {which} in its first line; rename all but one")
    missing = [name for name in columns or [] if name not in names]
    if not missing:
        return
    wanted = {name.casefold() for name in missing}
    alike = [name for name in names if name.strip().casefold() in wanted]
    separators = [mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]]
    if alike:
        hint = f"it has {_quoted(alike)}, and names must agree in every letter"
    elif separators:
        hint = f"its fields are separated by {separators[0]!r}: save it with commas"
    elif any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        hint = f"its first line is not UTF-8 text; {_SAVE_AS_UTF8}"
    elif len(missing) == len(columns or []):
        hint = (
            f"its first line, which must hold the names of the columns, has none of them among {len(names)} fields; "
            "if the names are missing, add them (the line is not shown here: it may be somebody's record)"
        )
    else:
        hint = f"its first line names {len(names)} columns, but not these"
    raise TableError(f"{str(path)!r}: no such column: {_quoted(missing)}; {hint}")


def _require_in_file(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> None:
    try:
        require_columns(dict.fromkeys(names), columns or [])
    except TableError as error:
        raise TableError(f"{str(path)!r}: {error}") from None
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise TableError(f"{str(path)!r}: more than one column is named {_quoted(twice)}; rename all but one")


_LONGEST_LINE = 1 << 20  # Arrow reads blocks of this size, and no line may be longer
_OTHER_FORMATS = {
    b"PAR1": "it is a Parquet file, whose name must end in .parquet",
    b"\xff\xfe": "it is UTF-16 text; save it as UTF-8, for instance by `iconv -f utf-16 -t utf-8 OLD > NEW`",
    b"\xfe\xff": "it is UTF-16 text; save it as UTF-8, for instance by `iconv -f utf-16 -t utf-8 OLD > NEW`",
    b"PK\x03\x04": "it is an archive or a spreadsheet; save the table in it as CSV",
    b"\x1f\x8b": "it is compressed; unpack it first",
    b"\x89PNG": "it is a picture",
}
_SAVE_AS_UTF8 = "save it as UTF-8, for instance by `iconv -f latin1 -t utf-8 OLD > NEW`"


def _quoted(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:20]]
    return ", ".join(shown) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
