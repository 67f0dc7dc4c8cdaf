"""Columns of values that stay with the rows, and are used like arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from discreet.records.clusters.base import Keepers


def small_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as bytes if these hold them exactly, as signs and codes of classes: an eighth of the message."""
    with np.errstate(all="ignore"):  # of numbers that bytes do not hold
        small = labels.astype(np.int8)
    return small if np.array_equal(small, labels) else labels


@dataclass(frozen=True)
class Formula:
    """A function of single values, applied to the entries of a part; ``function`` None is entry ``arguments[0]``."""

    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]

    def __call__(self, entries: Mapping[int, Any]) -> Any:
        """The values of one part."""
        if self.function is None:
            return entries[self.arguments[0]]
        return self.function(
            *(value(entries) if isinstance(value, Formula) else value for value in self.arguments)
        )


_numbers = itertools.count()


class Column(NDArrayOperatorsMixin):
    """One value per row, kept where the rows are; used like an array.

    NumPy's functions of single values are noted, and computed there when values are needed. Answers of few bytes come
    here: whether any is true, the first that is, the set of all. Anything else brings the values themselves.

    Parameters
    ----------
    keepers : who has the entries.
    sizes : number of values of every part.
    entries : one entry for every part, under any number of names.
    formula : makes values of entries.
    """

    ndim = 1

    def __init__(
        self,
        keepers: Keepers,
        sizes: Sequence[int],
        entries: Mapping[int, Any],
        formula: Formula,
    ) -> None:
        self._keepers, self._sizes = keepers, list(sizes)
        self.entries, self.formula = dict(entries), formula

    @classmethod
    def kept_as(cls, keepers: Keepers, sizes: Sequence[int], entries: Any) -> Column:
        """The column whose values are these entries."""
        name = next(_numbers)
        return cls(keepers, sizes, {name: entries}, Formula(None, (name,)))

    @classmethod
    def of_all(cls, keepers: Keepers, sizes: Sequence[int], values: Column | NDArray[Any]) -> Column:
        """Values that are there already, or are sent there with the question: as bytes if these hold them."""
        if isinstance(values, Column):
            return values
        parts = np.split(values, np.cumsum(sizes)[:-1])
        return cls.kept_as(keepers, sizes, [small_labels(part) for part in parts])

    def of(self, function: Callable[..., Any], *arguments: Any) -> Column:
        """The column of ``function(values, *arguments)``, one value for each; not computed yet."""
        return _combined(function, (self, *arguments))

    def computed(self) -> Column:
        """The same values, computed now and kept."""
        return Column.kept_as(self._keepers, self._sizes, self._keepers.kept(_made, *self._asked()))

    def answers(self, question: Callable[[NDArray[Any]], Any]) -> list[Any]:
        """``question(values)`` of every part."""
        columns = self._asked()
        return self._keepers.answers(
            _answered, *columns[:-1], [(columns[-1][0], question)] * len(self._sizes)
        )

    def _asked(self) -> list[Any]:
        """The entries, and what to make of them."""
        return [*self.entries.values(), [(tuple(self.entries), self.formula)] * len(self._sizes)]

    # -- as an array -----------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int]:
        """Number of values."""
        return (len(self),)

    def __len__(self) -> int:
        return sum(self._sizes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(joined(self.answers(_same)), dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options and _elementwise(inputs):
            return _combined(ufunc, inputs)
        return getattr(ufunc, method)(*_here(inputs), **options)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        if function in (np.where, np.clip) and not options and _elementwise(inputs):
            return _combined(function, inputs)
        if function in _SMALL_ANSWERS and len(inputs) == 1 and not options:
            return _SMALL_ANSWERS[function](self)
        return function(*_here(inputs), **options)

    def __getitem__(self, chosen: Any) -> NDArray[Any]:
        if isinstance(chosen, Column):
            return joined(_combined(np.ndarray.__getitem__, (self, chosen)).answers(_same))
        values: NDArray[Any] = np.asarray(self)[chosen]
        return values

    def astype(self, dtype: Any) -> Column:
        """The values in another type."""
        return self.of(np.asarray, dtype)

    def first(self, place: Callable[[NDArray[Any]], int | None]) -> int | None:
        """The first place that ``place`` finds in a part, counted from the first part."""
        found = self.answers(place)
        starts = itertools.accumulate(self._sizes, initial=0)
        return next((start + one for start, one in zip(starts, found, strict=False) if one is not None), None)

    def any(self) -> bool:
        """Whether any value is true."""
        return any(self.answers(np.any))

    def sum(self) -> Any:
        """The sum of whole numbers or truths."""
        return sum(self.answers(np.sum))


def _combined(function: Callable[..., Any], inputs: Sequence[Any]) -> Column:
    columns = [value for value in inputs if isinstance(value, Column)]
    entries = {name: kept for column in columns for name, kept in column.entries.items()}
    given = tuple(value.formula if isinstance(value, Column) else value for value in inputs)
    return Column(columns[0]._keepers, columns[0]._sizes, entries, Formula(function, given))


def _elementwise(inputs: Sequence[Any]) -> bool:
    return all(isinstance(value, Column) or np.ndim(value) == 0 for value in inputs)


def _here(inputs: Sequence[Any]) -> list[Any]:
    return [np.asarray(value) if isinstance(value, Column) else value for value in inputs]


_SMALL_ANSWERS: dict[Callable[..., Any], Callable[[Column], Any]] = {
    np.any: Column.any,
    np.all: lambda column: all(column.answers(np.all)),
    np.argmax: lambda column: column.first(_place) or 0,
    np.argmin: lambda column: (~column).first(_place) or 0,
    np.unique: lambda column: np.unique(joined(column.answers(np.unique))),
}


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Values of all parts, each as its part holds it: joined by NumPy, one could decide the type of all."""
    if len({part.dtype for part in parts}) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


def _made(*given: Any) -> NDArray[Any]:
    *entries, (names, formula) = given
    return np.asarray(formula(dict(zip(names, entries, strict=True))))


def _answered(*given: Any) -> Any:
    *entries, (told, question) = given
    return question(_made(*entries, told))


def _same(values: NDArray[Any]) -> NDArray[Any]:
    return values


def _place(values: NDArray[Any]) -> int | None:
    return int(np.argmax(values)) if len(values) and values.any() else None
