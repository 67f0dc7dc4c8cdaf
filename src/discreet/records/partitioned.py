"""Records in several parts, wherever these are stored: passes run on the parts, and only sums are combined.

A part is an `ArrayRecords`. The parts may be blocks of one memory-mapped file or partitions in the memory of other
processes; this module sends the same question to all of them and adds up the answers. Every part is asked once
per pass, and its answer counts once, in the order of the parts: a partition that was lost and computed again changes
nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array
from discreet.losses import Loss
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import MAX_CHUNK_ROWS, Bounds
from discreet.records.clusters.columns import Column


class Parts(Protocol):
    """A sequence of `ArrayRecords`, stored anywhere."""

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``question(part, *arguments)`` for every part, in order."""

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> Parts:
        """Return the same rows with other labels."""

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> Parts:
        """Return ``make(part, *arguments)`` for every part; the results stay where the parts are."""


class PartitionedRecords(Records):
    """Sums over records in several parts, equal to those of `ArrayRecords` up to rounding.

    Parameters
    ----------
    parts : where the records are.
    sizes : number of records of every part.
    n_columns, sparse, bounds, labels : as for `ArrayRecords`; the parts have their labels already.

    Privacy
    -------
    That of `ArrayRecords`: a record's term passes through the additions of its part and then one addition per part. Too
    many tiny parts are refused, so the number of additions stays below what sensitivities account for
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
        """Return the same rows with other labels, which are sent to the parts once."""
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
        """Return ``make(part, *arguments)`` for every part; the results stay where the parts are."""
        parts = self._parts.derived(make, *arguments)
        return PartitionedRecords(parts, self._sizes, width, sparse, bounds, self.labels)

    def sum_rows(self, question: Callable[..., Array], *arguments: Any) -> Array:
        """Return the sum of ``question(part, *arguments)`` over the parts."""
        return _sum(self._parts.ask(question, *arguments))

    def in_memory(self) -> ArrayRecords:
        """Raise: only sums of these records are available."""
        raise ValueError("these records are kept in parts, and single rows are not read; load the rows")

    def value_and_gradient(self, loss: Loss, theta: ArrayLike) -> tuple[float, Array]:
        """Return the sum of losses and the sum of their gradients."""
        answers = self._parts.ask(ArrayRecords.value_and_gradient, loss, np.asarray(theta))
        return float(sum(value for value, _ in answers)), _sum([gradient for _, gradient in answers])

    def hessian_product(self, loss: Loss, theta: ArrayLike) -> Callable[[Array], Array]:
        """Return the map v -> H v for the Hessian of the summed loss at theta; two passes over the data per call."""
        point = np.asarray(theta)
        return lambda direction: _sum(self._parts.ask(_hessian_product, loss, point, direction))

    def hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1, smoothing: float = 0.0) -> Array:
        """Return the Hessian of the summed loss as a matrix, possibly estimated from some of the records."""
        return _sum(self._parts.ask(_hessian, loss, np.asarray(theta), every, smoothing))

    def mean_class_hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1) -> Array:
        """Return a softmax's Hessian averaged over its outputs."""
        return _sum(self._parts.ask(_mean_class_hessian, loss, np.asarray(theta), every))

    def weighted_sum(self, weights: ArrayLike) -> Array:
        """Return sum_i w_i v_i; weights are sent to the parts in place of the labels, unless all are equal."""
        if (
            isinstance(weights, np.ndarray)
            and len(weights) == self.n_samples
            and np.all(weights == weights[0])
        ):
            return self.sum_rows(_even_sum, float(weights[0]))
        return self.with_labels(weights).sum_rows(_label_sum)

    def gram(self, weights: ArrayLike | None = None) -> Array:
        """Return sum_i w_i v_i v_i^T; weights are sent to the parts in place of the labels."""
        if weights is None:
            return self.sum_rows(ArrayRecords.gram)
        return self.with_labels(weights).sum_rows(_label_gram)

    def additions(self, loss: Loss) -> int:
        """Return the most additions that a record's term passes through: those of its part, and one per part."""
        within = max(self._parts.ask(ArrayRecords.additions, loss), default=0)
        return min(self.n_samples, within + len(self._sizes))


class LocalParts:
    """Parts in this process, asked one after the other; each uses all threads."""

    def __init__(self, parts: Sequence[ArrayRecords], after: Callable[[], None] = lambda: None) -> None:
        self._list = list(parts)
        self._after = after

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``question(part, *arguments)`` for every part; ``after`` is called after each."""
        answers = []
        for part in self._list:
            answers.append(question(part, *arguments))
            self._after()
        return answers

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> LocalParts:
        """Return the same rows with other labels."""
        renamed = [part.with_labels(y) for part, y in zip(self._list, labels, strict=True)]
        return LocalParts(renamed, self._after)

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> LocalParts:
        """Return ``make(part, *arguments)`` for every part."""
        return LocalParts(self.ask(make, *arguments), self._after)


def _check_parts(sizes: Sequence[int]) -> None:
    """Raise for so many small parts that summing them would round more than `worst_additions` allows."""
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
