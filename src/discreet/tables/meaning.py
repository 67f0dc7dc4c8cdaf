"""The meaning of one cell: its text and its number.

A cell means the same in every container. 1, 1.0, True, ``Decimal(1)``, "1", "1.0" and "true" are one number, from a
file, a typed column or a list of objects, so that no row changes how others are read.
"""

from __future__ import annotations

import copy
import math
import re
from decimal import Decimal
from numbers import Complex, Integral, Rational
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet._checks import is_from
from discreet._typing import Array

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_TRUTH = {"true": 1.0, "false": 0.0}
_NUMBER = re.compile(
    r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)"
)


def cell_text(cell: object) -> str | None:
    """Return the text of a cell; None if it is missing.

    >>> cell_text(" north "), cell_text(3), cell_text(3.0), cell_text(True), cell_text(float("nan"))
    ('north', '3', '3', 'true', None)
    """
    if isinstance(cell, bytes):
        cell = cell.decode(errors="replace")
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):  # of pandas, which may not be installed
        return None
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return None if np.isnat(cell) else str(_python_time(cell))
    if isinstance(cell, np.generic) or (isinstance(cell, np.ndarray) and cell.ndim == 0):
        cell = cell.item()
    if isinstance(cell, bool):
        return str(cell).lower()
    try:
        if isinstance(cell, float):
            return _float_text(cell)
        if isinstance(cell, Complex) and not isinstance(cell, Rational | np.generic) and cell.imag == 0:
            return cell_text(cell.real)
        if isinstance(cell, Rational) and not isinstance(cell, Integral):
            return _float_text(float(cell))
        if isinstance(cell, Decimal):  # 1.50 is 1.5, because the type of a column sets the number of digits
            return re.sub(r"(\.[0-9]*?)0+$", r"\1", str(cell)).removesuffix(".")
        return str(cell)
    except Exception:  # whatever an object's own method raises
        if isinstance(cell, int):  # with thousands of digits, which Python does not print
            return "inf" if cell > 0 else "-inf"
        return f"<{type(cell).__name__}>"


def _float_text(number: float) -> str | None:
    if math.isnan(number):
        return None
    # pandas turns a column of whole numbers with a missing cell into floating point: 3.0 must still be "3".
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _python_time(cell: Any) -> object:
    """Convert a date, time or duration to Python's own type, as Arrow does for a typed column."""
    value = cell.item()
    if isinstance(value, int):  # of nanoseconds
        value = cell.astype(f"{cell.dtype.kind}8[us]").item()
    return f"<{cell.dtype}>" if isinstance(value, int) else value  # outside Python's range of years


def text_number(text: str) -> float:
    """Return the number that a text without surrounding blanks represents; NaN if none.

    >>> [text_number(text) for text in ("1", "1.50", "-1e400", "True", "1_000", "many")]
    [1.0, 1.5, -inf, 1.0, nan, nan]
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    return _TRUTH.get(text.casefold(), math.nan)


def cell_number(cell: object) -> float:
    """Return the number that a cell represents; NaN if it is missing or not a number.

    >>> [cell_number(cell) for cell in (True, "true", Decimal("1.00"), " 1.0 ", 10**400, None, "many")]
    [1.0, 1.0, 1.0, 1.0, inf, nan, nan]
    """
    if isinstance(cell, float | int):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
    text = cell_text(cell)
    return math.nan if text is None else text_number(text)


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
    if is_from(
        values, "pandas.api.extensions", "ExtensionArray"
    ):  # nullable columns, categories, Arrow's types
        arrow = is_from(values.dtype, "pandas", "ArrowDtype")
        values = values.__arrow_array__() if arrow else values.astype(object)
    if is_from(values, "polars", "Series"):
        values = values.to_arrow()
    if is_from(values, "pyarrow", "Array", "ChunkedArray"):
        from pyarrow.types import is_primitive

        if values.null_count or not is_primitive(values.type):
            decoded = (
                cell.decode(errors="replace") if isinstance(cell, bytes) else cell
                for cell in values.to_pylist()
            )
            values = list(decoded)
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
