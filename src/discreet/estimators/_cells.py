"""Cells that should be numbers: what becomes of each of them, and errors that name a place and quote nothing.

With ``bad_rows="null"`` what becomes of a cell depends on that cell alone: a word in one person's row neither raises an
error nor changes how the rows of others are read.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet import _inputs
from discreet.tables import cell_text

Mask = NDArray[np.bool_]


def as_numbers(values: Any) -> Any:
    """Numbers, NaN where a cell is none; arrays and sparse matrices of numbers as they are, all else as float64."""
    if hasattr(values, "iloc") and values.ndim == 2 and hasattr(values, "sparse"):
        values = values.sparse.to_coo()  # a frame of sparse columns
    sparse = sp.issparse(values)
    if (sparse or isinstance(values, np.ndarray)) and values.dtype.kind in "fiub":
        return values
    return _inputs.entries_to_numbers(values) if sparse else _inputs.to_numbers(values)


def missing(labels: NDArray[Any]) -> Mask:
    """Which labels are none: NaN, infinite, None, NA."""
    if labels.dtype.kind == "f":
        return np.asarray(~np.isfinite(labels))
    if labels.dtype.kind != "O":
        return np.zeros(labels.shape, dtype=bool)
    none = [not isinstance(label, str) and cell_text(label) is None for label in labels]
    return np.array(none, dtype=bool)


def codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of every label among the classes, -1 where it is none of them, whatever else it is."""
    found = np.full(len(labels), -1, dtype=np.int64)
    huge = labels.dtype.kind in "iuf" and any(_is_huge(label) for label in classes.tolist())
    if labels.dtype.kind not in "OU" and not huge:
        for code, label in enumerate(classes):
            found[np.asarray(labels == label, dtype=bool)] = code
        return found
    places = {label: code for code, label in enumerate(classes)}
    try:
        return np.array([places.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    except TypeError:  # among them is a list, say, which can be no class
        for row, label in enumerate(labels):
            with contextlib.suppress(TypeError):
                found[row] = places.get(label, -1)
        return found


def _is_huge(label: object) -> bool:
    """Whether NumPy, which compares whole numbers with others in floating point, may take this one for another."""
    return isinstance(label, int | float) and abs(label) >= 2.0**53


def described(labels: NDArray[Any], most: int = 5) -> str:
    """Labels with their kinds, each once: "0" as text and 0 as a number are different labels.

    >>> described(np.array(["0", 0, True, 0], dtype=object))
    "'0' (text), 0 (number), True (true/false)"
    """
    kinds = {str: "text", bool: "true/false", int: "number", float: "number"}
    shown = dict.fromkeys(
        f"{label!r} ({kinds.get(type(label), type(label).__name__)})" for label in labels.tolist()
    )
    return ", ".join(list(shown)[:most]) + (" and others" if len(shown) > most else "")


def refuse_words(X: Any, *, fitting: bool) -> None:
    """Raise for the first cell that is no number; pass in silence where the fault of X is another one."""
    if np.iscomplexobj(X):
        raise ValueError("Complex data not supported: every cell of X must be a real number") from None
    values = as_numbers(X)
    if values.ndim != 2 or not len(places := _nan_places(values)):
        return
    row, column = (int(place) for place in places[0])
    kind: type[Exception] = ValueError
    if not sp.issparse(X):
        cell = X.iloc[row, column] if hasattr(X, "iloc") else _inputs.cells(X)[row, column]
        kind = ValueError if isinstance(cell, str | float) else TypeError
    schema = (
        "; a column of words or dates needs its public domain: declare it in a discreet.Schema and put a SchemaEncoder "
        "before the model"
    )
    raise kind(
        f"{_place(X, row, column)} holds no number: every cell of this argument must be a number, or a string that "
        f"spells a number; {_advice(fitting)}{schema if fitting else ''}"
    ) from None


def _nan_places(values: Any) -> NDArray[Any]:
    """Row and column of every cell of a matrix that is NaN."""
    if not bool(sp.issparse(values)):
        return np.argwhere(np.isnan(values))
    entries = values.tocoo()
    return np.asarray(np.column_stack(entries.coords)[np.isnan(entries.data)])


def refuse_infinite(X: Any, rows: Any, largest: float, *, fitting: bool) -> None:
    """Raise for the first cell of the matrix ``rows``, made of X, that is NaN or beyond ``largest``."""
    sparse = sp.issparse(rows)
    entries = rows.data if sparse else rows
    with np.errstate(invalid="ignore"):
        if entries.size == 0 or max(-float(entries.min()), float(entries.max())) <= largest:
            return  # NaN would be both the smallest and the largest
    bad = np.argwhere(~(np.abs(entries) <= largest))[0]
    if sparse:
        row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        bad = np.array([row, rows.indices[bad[0]]])
    raise ValueError(
        f"{_place(X, int(bad[0]), int(bad[1]))} is not finite (NaN where it is missing, or infinity) or beyond 2**300; "
        f"{_advice(fitting)}. Means or medians of private data must not fill the gaps: take a public default"
    )


def refuse_label(row: int) -> NoReturn:
    """Raise for a label that is missing."""
    raise ValueError(
        f"y holds no label (NaN, infinity or a missing value) in row {row} (counted from 0); {_advice(True)}"
    )


def refuse_target(row: int) -> NoReturn:
    """Raise for a target that is no finite number."""
    raise ValueError(
        f"y holds targets that are not finite numbers, the first in row {row} (counted from 0); {_advice(True)}"
    )


def _advice(fitting: bool) -> str:
    if fitting:
        return "correct it, or pass bad_rows='null' to make such rows count for nothing"
    return "correct it, or leave such rows out"


def _place(X: Any, row: int, column: int) -> str:
    names = getattr(X, "columns", None)
    name = column if names is None or callable(names) else repr(str(names[column]))
    return f"X, column {name}, row {row} (counted from 0),"
