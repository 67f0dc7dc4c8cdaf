"""Records in several parts, wherever the parts live: passes run on the parts, and only their sums come together.

A part is an `ArrayRecords`. The parts may be blocks of one memory-mapped file or partitions in the memory of other
processes; this module knows only how to ask all of them the same question and how to add up the answers. Every part is
asked once per pass and its answer is counted once, in the order of the parts, so that a partition that was lost and
computed again changes nothing.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, NDArray

from discreet._checks import contained
from discreet._typing import Array
from discreet.losses import Loss
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import MAX_CHUNK_ROWS, Bounds


class WorkersLost(RuntimeError):
    """Parts that live elsewhere could not be asked; the message is always the same.

    What a worker says is not repeated: after the charge no text may depend on private rows.
    """

    def __init__(self) -> None:
        super().__init__(
            "the workers did not finish: too many of them died or ran out of memory, or a partition failed or changed "
            "when it was computed again. Nothing was released; a charge that was made stays. Give workers more memory "
            "or partitions fewer rows, and read partitions from a source that does not change"
        )


@contextmanager
def one_ending() -> Iterator[None]:
    """Whatever a worker raises becomes `WorkersLost`, without the worker's text."""
    try:
        with contained():
            yield
    except Exception:
        raise WorkersLost from None


def checksum(block: Any) -> int:
    """A number by which a partition is recognized when it was lost and is made again."""
    if block.dtype == object:  # labels
        return zlib.crc32(repr(block.tolist()).encode(errors="replace"))
    arrays = [block] if isinstance(block, np.ndarray) else [block.data, block.indices, block.indptr]
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).data.cast("B"), found) if array.size else found
    return found


def small_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as bytes if these hold them exactly, as signs and codes of classes: an eighth of the message."""
    with np.errstate(all="ignore"):  # of numbers that bytes do not hold
        small = labels.astype(np.int8)
    return small if np.array_equal(small, labels) else labels


class Keepers(Protocol):
    """Whoever keeps one entry for every part, and can be asked about it."""

    def kept(self, function: Callable[..., Any], *columns: Any) -> Any:
        """``function`` of each tuple of entries; the results stay where they are computed."""

    def answers(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """``function`` of each tuple of entries; the results come here, in order."""


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


class Parts(Protocol):
    """A sequence of `ArrayRecords`, somewhere."""

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, in the order of the parts."""

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> Parts:
        """The same rows with other labels."""

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> Parts:
        """``make(part, *arguments)`` of every part, kept where the part is."""


class PartitionedRecords(Records):
    """Sums over records that are kept in parts; the answers are those of `ArrayRecords`, up to rounding.

    Parameters
    ----------
    parts : where the records are.
    sizes : number of records of every part.
    n_columns, sparse, bounds, labels : as of `ArrayRecords`; the parts have their labels already.

    Privacy
    -------
    As for `ArrayRecords`: a record's term passes through the additions of its part and then through one addition per
    part. Their number stays below what sensitivities were declared for, because too many tiny parts are refused
    (docs/proofs/rounding.md, section 7).
    """

    whole = False

    def __init__(
        self,
        parts: Parts,
        sizes: Sequence[int],
        n_columns: int,
        sparse: bool,
        bounds: Bounds,
        labels: NDArray[Any] | Column,
    ) -> None:
        self._parts = parts
        self._sizes = list(sizes)
        self.bounds, self.sparse, self.n_columns = bounds, sparse, n_columns
        #: All labels, in the order of the parts: an array, or a `Column` of those that stay with the rows.
        self.labels: Any = labels
        self.n_samples = sum(self._sizes)
        _check_parts(self._sizes)
        self.n_features = bounds.n_features(n_columns)

    def with_labels(self, y: ArrayLike) -> Self:
        """The same rows with other labels, which travel to the parts once."""
        other = copy.copy(self)
        if isinstance(y, Column):
            other.labels, other._parts = y, self._parts.with_labels(y)  # type: ignore[arg-type]  # those of Dask
            return other
        other.labels = np.asarray(y, dtype=np.float64)
        other._parts = self._parts.with_labels(np.split(other.labels, np.cumsum(self._sizes)[:-1]))
        return other

    def map_rows(
        self, make: Callable[..., ArrayRecords], *arguments: Any, width: int, bounds: Bounds, sparse: bool
    ) -> PartitionedRecords:
        """``make(part, *arguments)`` of every part, kept where the part is."""
        parts = self._parts.derived(make, *arguments)
        return PartitionedRecords(parts, self._sizes, width, sparse, bounds, self.labels)

    def sum_rows(self, question: Callable[..., Array], *arguments: Any) -> Array:
        """The sum of ``question(part, *arguments)`` over the parts."""
        return _sum(self._parts.ask(question, *arguments))

    def in_memory(self) -> ArrayRecords:
        """Refuse: only sums of these records come together."""
        raise ValueError("these records are kept in parts, and single rows are not read; load the rows")

    def value_and_gradient(self, loss: Loss, theta: ArrayLike) -> tuple[float, Array]:
        """The sum of losses and the sum of their gradients."""
        answers = self._parts.ask(ArrayRecords.value_and_gradient, loss, np.asarray(theta))
        return float(sum(value for value, _ in answers)), _sum([gradient for _, gradient in answers])

    def hessian_product(self, loss: Loss, theta: ArrayLike) -> Callable[[Array], Array]:
        """The map v -> H v for the Hessian of the summed loss at theta; two passes over the data per call."""
        point = np.asarray(theta)
        return lambda direction: _sum(self._parts.ask(_hessian_product, loss, point, direction))

    def hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1, smoothing: float = 0.0) -> Array:
        """The Hessian of the summed loss as a matrix, possibly estimated from some of the records."""
        return _sum(self._parts.ask(_hessian, loss, np.asarray(theta), every, smoothing))

    def mean_class_hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1) -> Array:
        """A softmax's Hessian averaged over its outputs."""
        return _sum(self._parts.ask(_mean_class_hessian, loss, np.asarray(theta), every))

    def weighted_sum(self, weights: ArrayLike) -> Array:
        """sum_i w_i v_i; the weights travel to the parts in place of the labels, unless all are the same."""
        if (
            isinstance(weights, np.ndarray)
            and len(weights) == self.n_samples
            and np.all(weights == weights[0])
        ):
            return self.sum_rows(_even_sum, float(weights[0]))
        return self.with_labels(weights).sum_rows(_label_sum)

    def gram(self, weights: ArrayLike | None = None) -> Array:
        """sum_i w_i v_i v_i^T; weights travel to the parts in place of the labels."""
        if weights is None:
            return self.sum_rows(ArrayRecords.gram)
        return self.with_labels(weights).sum_rows(_label_gram)

    def additions(self, loss: Loss) -> int:
        """Additions a record's term can pass through: those of its part, and one for every part."""
        within = max(self._parts.ask(ArrayRecords.additions, loss), default=0)
        return min(self.n_samples, within + len(self._sizes))


class LocalParts:
    """Parts in this process, asked one after the other; each uses all threads for itself."""

    def __init__(self, parts: Sequence[ArrayRecords], after: Callable[[], None] = lambda: None) -> None:
        self._list = list(parts)
        self._after = after

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part; ``after`` is called behind each."""
        answers = []
        for part in self._list:
            answers.append(question(part, *arguments))
            self._after()
        return answers

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> LocalParts:
        """The same rows with other labels."""
        renamed = [part.with_labels(y) for part, y in zip(self._list, labels, strict=True)]
        return LocalParts(renamed, self._after)

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> LocalParts:
        """``make(part, *arguments)`` of every part."""
        return LocalParts(self.ask(make, *arguments), self._after)


def _check_parts(sizes: Sequence[int]) -> None:
    """Refuse parts so many and so small that adding them up would round more than `worst_additions` allows."""
    total, largest = sum(sizes), max(sizes, default=0)
    if total > MAX_CHUNK_ROWS and len(sizes) > 47 + (total - largest) // 256:
        raise ValueError(
            "there are too many small partitions to add up with a proved rounding error; use partitions of at least "
            "256 rows"
        )


def _sum(terms: Sequence[Array]) -> Array:
    total = np.zeros(terms[0].shape)
    for term in terms:
        total += term
    return total


def _hessian_product(part: ArrayRecords, loss: Loss, theta: Array, direction: Array) -> Array:
    return part.hessian_product(loss, theta)(direction)


def _hessian(part: ArrayRecords, loss: Loss, theta: Array, every: int, smoothing: float) -> Array:
    return part.hessian(loss, theta, every=every, smoothing=smoothing)


def _mean_class_hessian(part: ArrayRecords, loss: Loss, theta: Array, every: int) -> Array:
    return part.mean_class_hessian(loss, theta, every=every)


def _label_sum(part: ArrayRecords) -> Array:
    return part.weighted_sum(part.labels)


def _even_sum(part: ArrayRecords, weight: float) -> Array:
    return part.weighted_sum(np.full(part.n_samples, weight))


def _label_gram(part: ArrayRecords) -> Array:
    return part.gram(part.labels)
