"""Validation of scalars and choices, with errors that say what was wrong, what is allowed and what to do."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from numbers import Complex, Integral, Real
from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import NDArray


def real(name: str, value: Any, *, above: float | None = None, hint: str = "") -> float:
    """A finite real number, greater than ``above`` if given; booleans and strings are refused."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}{_hint(hint)}")
    number = float(cast(SupportsFloat, value))
    if not math.isfinite(number) or (above is not None and not number > above):
        wanted = "a finite number" if above is None else f"a finite number greater than {above:g}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}{_hint(hint)}")
    return number


def count(name: str, value: Any, *, at_least: int = 1, hint: str = "") -> int:
    """A whole number of at least ``at_least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}{_hint(hint)}")
    if int(value) < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}{_hint(hint)}")
    return int(value)


def count_or_none(name: str, value: Any) -> int | None:
    """A whole number of at least 1; or None, for a public rule to choose."""
    return None if value is None else count(name, value)


def interval(name: str, value: Any) -> tuple[float, float]:
    """Two finite numbers, the lower one first."""
    ends = tuple(value) if np.iterable(value) else ()
    if len(ends) != 2:
        raise ValueError(f"{name} must be two numbers (lowest, highest), got {value!r}")
    low, high = (real(name, end) for end in ends)
    if not low < high:
        raise ValueError(f"{name} must be (lowest, highest) with lowest < highest, got {(low, high)}")
    return low, high


def choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """One of a few names."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {sorted(allowed)}, got {value!r}")
    return str(value)


def cells(values: Any) -> NDArray[Any]:
    """An array in which every cell of a list is what it was: NumPy would make text of the numbers beside one word."""
    try:
        return np.asarray(values) if hasattr(values, "__array__") else np.asarray(values, dtype=object)
    except ValueError:
        raise ValueError("the data must have the same number of cells in every row") from None


def to_numbers(values: Any) -> NDArray[np.float64]:
    """Finite numbers, infinities and NaN, the last wherever a cell is no number; no cell raises, and none is quoted.

    >>> to_numbers([[1, "2.5"], ["none", 10**400]])
    array([[1. , 2.5],
           [nan, nan]])
    """
    array = cells(values)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    # One by one even where NumPy could convert all at once: what becomes of a cell must not depend on the others.
    one_by_one = (_number(cell) for cell in array.ravel())
    return np.fromiter(one_by_one, np.float64, array.size).reshape(array.shape)


def entries_to_numbers(matrix: Any) -> Any:
    """A SciPy sparse matrix of any type as one of float64 in CSR, each stored cell read as by ``to_numbers``."""
    # Not by SciPy's own conversions: they refuse some types, and quote cells as they do so.
    numbers = copy.copy(matrix.tocsr() if matrix.format in ("lil", "dok") else matrix)
    numbers.data = to_numbers(numbers.data)
    return numbers.tocsr()


def seed(random_state: Any) -> np.random.SeedSequence:
    """Seed of splits and optimizers (never of privacy noise): None, a whole number, or a SeedSequence.

    Generators are refused: scikit-learn copies constructor arguments, and a copied generator repeats itself.
    """
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return np.random.SeedSequence(int(random_state))
    raise TypeError(
        f"random_state must be None, a whole number or a numpy SeedSequence, got {random_state!r}"
    )


def _number(cell: object) -> float:
    if not isinstance(cell, Real | Decimal | np.bool_ | str):
        # One cell with an imaginary part makes the whole array complex: the others are real numbers still.
        if not isinstance(cell, Complex) or cell.imag != 0:
            return math.nan
        cell = cell.real
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _hint(text: str) -> str:
    return f"; {text}" if text else ""


def refuse_arguments(method: str, given: Mapping[str, Any]) -> None:
    """Raise for arguments that a method does not take, and say why where people would expect it to."""
    for name in given:
        reason = ""
        if name in ("sample_weight", "class_weight"):
            reason = (
                ": a weight lets a record change the model that many times as much, which the promise does not cover. "
                "Leave it out; a rare class is given more room by moving the threshold of the released scores"
            )
        raise TypeError(f"{method}() takes no {name!r}{reason}")
