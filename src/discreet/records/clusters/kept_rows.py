"""Rows that stay with whoever keeps the partitions of a cluster: records are made of them there, and asked there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet._checks import ParameterError
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clusters.base import Keepers, one_ending
from discreet.records.clusters.columns import Column, Formula, small_labels
from discreet.records.open import Rows
from discreet.records.partitioned import PartitionedRecords


class Noted(NamedTuple):
    """Values of a partition with their checksum, taken whenever they are made: to compare it costs nothing."""

    values: Any
    checksum: int


Facts = tuple[tuple[int, int, bool], list[int], list[int]]


def facts_of(block: Noted, *cells: Noted) -> Facts:
    """Shape of a block and whether it is sparse; checksums and lengths of it and of its labels, if they are there."""
    noted = [block, *cells]
    shape = (*block.values.shape, not isinstance(block.values, np.ndarray))
    return shape, [one.checksum for one in noted], [one.values.shape[0] for one in noted]


class KeptRows(Rows):
    """Rows as matrices of one kind, kept where they were made; looks like a matrix as far as its shape.

    Parameters
    ----------
    keepers : who keeps them.
    opened : the entries of all parts, `Noted` matrices, and those of their labels if these are there.
    facts : of every part, as `facts_of` gives them.
    names : of the columns, if they have any.

    Attributes
    ----------
    labels : those that are there, one for every row; None if they are not.
    """

    def __init__(
        self, keepers: Keepers, opened: Sequence[Any], facts: Sequence[Facts], names: Sequence[str]
    ) -> None:
        self._keepers, (self._rows, *cells) = keepers, opened
        shapes, checksums, sizes = zip(*facts, strict=True)
        if len({(width, sparse) for _, width, sparse in shapes}) != 1:
            raise ValueError(
                "the partitions of X differ: all must have the same number of columns, and all be dense or all be "
                "SciPy sparse matrices"
            )
        self._sizes, self._checksums = [shape[0] for shape in shapes], [sums[0] for sums in checksums]
        _, self._width, self._sparse = shapes[0]
        if not (self._width and sum(self._sizes)):
            raise ParameterError("X", "has no rows or no columns", "a fit needs at least one of each")
        self.feature_names = tuple(names)
        self.labels: Column | None = None
        if cells and [size for (_, size) in sizes] == self._sizes:
            kept, sums = (
                Column.kept_as(keepers, self._sizes, entries)
                for entries in (*cells, [sums[1] for sums in checksums])
            )
            self.labels = kept.of(unchanged, sums)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(self._sizes), self._width

    def valid(self, bounds: Bounds) -> Any:
        """Which rows are finite and not absurd."""
        return Column.kept_as(self._keepers, self._sizes, self._rows).of(_valid, bounds)

    def records(
        self,
        labels: NDArray[Any] | Column,
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | Column | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the workers once unless they are there."""
        given = [
            values if values is None else Column.of_all(self._keepers, self._sizes, values)
            for values in (labels, null_rows)
        ]
        entries = {
            name: kept for column in given if column is not None for name, kept in column.entries.items()
        }
        formulas = [None if column is None else column.formula for column in given]
        told = [(clip, bounds, formulas, list(entries))] * len(self._sizes)
        parts = self._keepers.kept(_records, told, self._rows, self._checksums, *entries.values())
        self._keepers.answers(_checked, parts)  # errors in rows show before anything is charged
        kept = KeptParts(parts, self._keepers, len(self._sizes))
        return PartitionedRecords(kept, self._sizes, self._width, self._sparse, bounds, labels)


class KeptParts:
    """Parts on workers; whatever goes wrong there ends in `WorkersLost`, because it may be after the charge."""

    def __init__(self, parts: Any, keepers: Keepers, count: int) -> None:
        self._parts, self._keepers, self._count = parts, keepers, count

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, where it is."""
        with one_ending():
            return self._keepers.answers(_asked, self._parts, [(question, arguments)] * self._count)

    def with_labels(self, labels: Sequence[NDArray[Any]] | Column) -> KeptParts:
        """The same rows with other labels."""
        if isinstance(labels, Column):
            told = [(labels.formula, list(labels.entries))] * self._count
            return self._made(_relabeled, told, self._parts, *labels.entries.values())
        return self._made(ArrayRecords.with_labels, self._parts, [small_labels(part) for part in labels])

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> KeptParts:
        """``make(part, *arguments)`` of every part, kept by its worker."""
        return self._made(_asked, self._parts, [(make, arguments)] * self._count)

    def _made(self, make: Callable[..., ArrayRecords], *columns: Any) -> KeptParts:
        return KeptParts(self._keepers.kept(make, *columns), self._keepers, self._count)


def _asked(part: ArrayRecords, asked: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    question, arguments = asked
    return question(part, *arguments)


def _valid(block: Noted, bounds: Bounds) -> NDArray[np.bool_]:
    return bounds.valid_rows(block.values)


Told = tuple[
    Callable[[Any], Any], Bounds, list[Any], list[int]
]  # formulas of labels and of null rows, if any


def _records(told: Told, block: Noted, expected: int, *entries: Any) -> ArrayRecords:
    clip, bounds, formulas, names = told
    values = dict(zip(names, entries, strict=True))
    rows = unchanged(block, expected)
    labels, null = (formula and formula(values) for formula in formulas)
    return ArrayRecords(clip(rows), labels, bounds, None if null is None else null.astype(bool), n_threads=1)


def unchanged(noted: Noted, expected: int) -> Any:
    """The values of a partition; raises if it was made again and has others than before."""
    if noted.checksum != expected:
        raise ValueError("a partition has other rows than before")
    return noted.values


def _relabeled(told: tuple[Formula, list[int]], part: ArrayRecords, *entries: Any) -> ArrayRecords:
    formula, names = told
    return part.with_labels(formula(dict(zip(names, entries, strict=True))))


def _checked(part: ArrayRecords) -> int:
    return part.n_samples
