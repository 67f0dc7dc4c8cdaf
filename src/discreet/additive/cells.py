"""The private side of an additive model: cells and labels, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet._typing import Array, Mask
from discreet.additive.columns import Column, read_columns
from discreet.additive.records import HEIGHT
from discreet.records.arrow import FileRows, mapped_rows
from discreet.records.batches import Encoded, Reading, WithIds
from discreet.records.sources import Source
from discreet.tables.schema import Schema

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
