"""Tables and their columns: files, Arrow tables, pandas and polars frames, dictionaries of columns, ids of people."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

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
    from discreet.tables.csv_files import read_csv  # which raises errors of this module

    path = Path(path)
    readers: dict[str, Callable[..., Any]]
    readers = {
        ".csv": partial(read_csv, separator=separator),
        ".parquet": _read_parquet,
        ".pq": _read_parquet,
    }
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
    require_names(column_names(table), needed, "the table")


def require_names(names: Sequence[str], needed: Sequence[str], place: str) -> None:
    """Raise unless each needed name occurs exactly once among those of the columns of ``place``."""
    missing = [name for name in needed if name not in names]
    if missing:
        raise TableError(f"no such column: {quoted(missing)}; {place} has {quoted(names)}")
    twice = [name for name in dict.fromkeys(needed) if list(names).count(name) > 1]
    if twice:
        raise TableError(f"more than one column is named {quoted(twice)} in {place}; rename all but one")


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


def _require_in_file(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> None:
    try:
        require_columns(dict.fromkeys(names), columns or [])
    except TableError as error:
        raise TableError(f"{str(path)!r}: {error}") from None
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise TableError(f"{str(path)!r}: more than one column is named {quoted(twice)}; rename all but one")


def quoted(names: Sequence[str]) -> str:
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
