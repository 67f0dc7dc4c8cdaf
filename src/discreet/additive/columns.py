"""Columns of an additive model: their public domains, and the cells that a table holds in them.

A cell is a number for ranges, and the place of a category or of a public interval for all others. It depends on its own
cell of the table and on the public domain alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet._checks import Setting
from discreet._typing import Array, Mask
from discreet.records.arrow import FileRows, mapped_rows
from discreet.records.batches import Encoded, Reading, WithIds
from discreet.records.sources import Source
from discreet.tables.domains import (
    Binned,
    Boolean,
    Categorical,
    Domain,
    Numeric,
    SchemaError,
    category_codes,
    cell_text,
    read_numbers,
)
from discreet.tables.reading import TableError, TableLike, column, require_columns
from discreet.tables.schema import Schema

HEIGHT = 1 << 14  # rows at a time
_FEW = 4  # categories; a column with no more of them is used as it is


@dataclass(frozen=True)
class Column:
    """A column with a public domain.

    Attributes
    ----------
    name : as in the table.
    domain : ``Numeric``, ``Binned``, ``Categorical`` or ``Boolean``.
    """

    name: str
    domain: Domain

    @property
    def is_range(self) -> bool:
        """Whether cells are numbers whose bins the fit must choose."""
        return isinstance(self.domain, Numeric)

    @property
    def ordered(self) -> bool:
        """Whether bins have an order, so that neighbors are alike."""
        return isinstance(self.domain, Numeric | Binned)

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories of a nominal column as text, the bucket of undeclared ones last."""
        if isinstance(self.domain, Boolean):
            return ("false", "true")
        if not isinstance(self.domain, Categorical):
            return ()
        names = tuple(str(cell_text(category)) for category in self.domain.categories)
        return (*names, "*") if self.domain.unknown == "bucket" else names

    @property
    def n_levels(self) -> int:
        """Number of different cells of a column that is not a range."""
        return len(self.domain.edges) + 1 if isinstance(self.domain, Binned) else len(self.labels)

    @property
    def is_coarse(self) -> bool:
        """Whether the bins are public already: few categories, or declared intervals."""
        return not self.is_range and (self.ordered or self.n_levels <= _FEW)

    @property
    def marks_missing(self) -> bool:
        """Whether missing cells have a bin of their own."""
        return isinstance(self.domain, Numeric) and self.domain.missing_feature

    def grid(self, n_cells: int) -> Array:
        """The inner edges of ``n_cells`` equal cells of a range, in the units of the column.

        Equal in the logarithm of 1 + value - lower where the domain is logarithmic.
        """
        domain = self.domain
        assert isinstance(domain, Numeric)
        shares = np.arange(1, n_cells) / n_cells
        if domain.logarithmic:
            width = 2 * (domain.upper / 2 - domain.lower / 2)
            return np.asarray(domain.lower + np.expm1(shares * np.log1p(width)))
        return np.asarray(domain.lower * (1 - shares) + domain.upper * shares)

    def read(self, cells: Any) -> tuple[NDArray[Any], Mask]:
        """The cells of an Arrow column, and which of them have no meaning.

        Ranges give numbers, NaN where one is missing; other columns give places, -1 where a cell is missing.
        """
        domain = self.domain
        if isinstance(domain, Numeric):
            values, malformed = read_numbers(cells)
            if domain.default is not None and not domain.missing_feature:
                values = np.where(np.isnan(values) & ~malformed, domain.default, values)
            return values, malformed
        if isinstance(domain, Categorical):
            undeclared = len(domain.categories) if domain.unknown == "bucket" else -1
            codes = category_codes(cells, domain.categories, undeclared)
            return codes, np.zeros(len(codes), dtype=bool)
        if isinstance(domain, Boolean):
            signs, malformed = domain.encode(cells)
            return np.where(signs[:, 0] > 0, 1, np.where(signs[:, 0] < 0, 0, -1)), malformed
        block, malformed = domain.encode(cells)
        return np.where(block.any(axis=1), np.argmax(block, axis=1), -1), malformed


def read_columns(
    columns: Sequence[Column], table: TableLike, *, strict: bool
) -> tuple[list[NDArray[Any]], Mask]:
    """The cells of every column of a table, and which rows have a cell without a meaning.

    ``strict`` refuses such rows; the error names the column and quotes nothing.
    """
    require_columns(table, [one.name for one in columns])
    found: list[NDArray[Any]] = []
    malformed = np.zeros(0, dtype=bool)
    for one in columns:
        try:
            cells, bad = one.read(column(table, one.name))
        except SchemaError as error:
            raise SchemaError(f"column {one.name!r}, declared {one.domain.kind}, {error}") from None
        if found and len(cells) != len(malformed):
            raise TableError(
                f"column {one.name!r} has {len(cells)} rows, the ones before it {len(malformed)}"
            )
        if strict and bad.any():
            raise SchemaError(
                f"column {one.name!r} is declared {one.domain.kind}, but has cells that cannot be read as such",
                "correct them",
                "leave them empty",
                Setting("bad_rows", "null", purpose="to ignore such rows"),
            )
        malformed = bad | malformed if found else bad
        found.append(cells)
    return found, malformed


Columns = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Cells:
    """Cells of every column, labels, and which records are null.

    Attributes
    ----------
    parts : gives the columns of some rows after the other, whenever it is called.
    labels : class codes, targets between -1 and 1, or counts in units of the mean at raw prediction 0.
    null : records that count for nothing.
    stored : whether cells are in a file, so that what is made of them should be as well.
    """

    parts: Callable[[], Iterator[Columns]]
    labels: Array
    null: Mask
    stored: bool = False

    def blocks(self) -> Iterator[tuple[Columns, Mask]]:
        """Columns of some rows, and which of these are null."""
        start = 0
        for columns in self.parts():
            stop = start + len(columns[0])
            yield columns, self.null[start:stop]
            start = stop


def in_blocks(columns: Columns) -> Iterator[Columns]:
    """Columns in memory, some rows at a time: what is made of them on the way is never there for all rows."""
    for start in range(0, max(1, len(columns[0])), HEIGHT):
        yield [cells[start : start + HEIGHT] for cells in columns]


class CellReading(Reading):
    """Cells of a raw table as numbers; behind them, whether one of the row's has no meaning."""

    dtype = np.dtype(np.float64)

    def __init__(self, table: Source, columns: Sequence[Column], schema: Schema, bad_rows: str) -> None:
        encoded = Encoded.of(table, schema, bad_rows)
        self._columns, self._schema, self._bad_rows = columns, schema, bad_rows
        self.columns, self.label_type = encoded.columns, encoded.label_type
        self.names = (*(one.name for one in columns), "")

    def __call__(self, batch: Any) -> tuple[NDArray[Any], Any]:
        """Return cells and labels."""
        table = pa.Table.from_batches([batch])
        cells, bad = read_columns(self._columns, table, strict=self._bad_rows == "error")
        labels = self._schema.target_values(table, bad_rows=self._bad_rows)  # type: ignore[arg-type]
        return np.column_stack([*cells, bad]), pa.array(labels.tolist()).cast(self.label_type)


class StoredCells:
    """The cells of a source, read once into a mapped file; ``ids`` says whose rows they are, if that was asked for."""

    def __init__(self, file: FileRows, columns: Sequence[Column], ids: Any = None) -> None:
        self._file, self._columns, self.ids = file, columns, ids

    @property
    def labels(self) -> NDArray[Any]:
        """All labels."""
        return self._file.labels

    @property
    def bad(self) -> Mask:
        """Which rows have a cell without a meaning."""
        return np.concatenate([block[:, -1] > 0 for block in self._file.blocks()])

    def regrouped(self, places: NDArray[np.int64]) -> StoredCells:
        """Some rows, perhaps more than once, in another file."""
        return StoredCells(self._file.regrouped(places), self._columns)

    def parts(self) -> Iterator[Columns]:
        """The columns of some rows after the other."""
        for block in self._file.blocks():
            yield [
                cells if one.is_range else cells.astype(np.int64)
                for one, cells in zip(self._columns, block.T, strict=False)
            ]


@contextmanager
def stored_cells(
    table: Source, columns: Sequence[Column], schema: Schema, bad_rows: str, ids: str | None
) -> Iterator[StoredCells]:
    """Read a source into a file for this once."""
    reading: Reading = CellReading(table, columns, schema, bad_rows)
    if ids is not None:
        reading = WithIds(table, reading, ids)
    with mapped_rows(table, reading) as file:
        yield StoredCells(file, columns, reading.ids if isinstance(reading, WithIds) else None)
