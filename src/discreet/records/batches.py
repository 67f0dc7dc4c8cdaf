"""Turn batches of raw cells into matrices with labels; each row is a function of its own cells.

A reading is made once, from the types of a table's columns and public declarations, and holds nothing else: it travels
to the workers of a cluster and gives the same rows there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet._checks import ParameterError, Setting
from discreet.records.sources import Source, list_length
from discreet.tables.domains import category_codes, read_numbers
from discreet.tables.reading import as_cells, as_column, id_column

PART_BYTES = 1 << 26


class Reading(ABC):
    """Makes rows and labels of a batch.

    Attributes
    ----------
    columns : the columns that a batch must have.
    names : of the features.
    dtype : of the matrices.
    label_type : Arrow's type of the labels.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    label_type: Any

    @abstractmethod
    def __call__(self, batch: Any) -> tuple[NDArray[Any], Any]:
        """Return a matrix with one row per row of the batch, and an Arrow array of labels."""

    @property
    def height(self) -> int:
        """Return the rows of one part."""
        return max(1024, PART_BYTES // (self.dtype.itemsize * len(self.names)))


class WithIds(Reading):
    """A reading that also collects the person of each row, so that ids and rows come from one pass over a source.

    Parameters
    ----------
    reading : makes rows and labels.
    column : the ids of people.
    """

    def __init__(self, table: Source, reading: Reading, column: str) -> None:
        table.require([column])
        self._reading, self._column, self._found = reading, column, list[Any]()
        self.names, self.dtype, self.label_type = reading.names, reading.dtype, reading.label_type
        self.columns = tuple(dict.fromkeys([*reading.columns, column]))

    def __call__(self, batch: Any) -> tuple[NDArray[Any], Any]:
        """Return rows and labels, and note the ids."""
        self._found.append(id_column(batch.column(self._column), f"column {self._column!r}"))
        return self._reading(batch)

    @property
    def ids(self) -> Any:
        """Return all collected ids as one Arrow array."""
        return pa.concat_arrays(self._found)


@dataclass(frozen=True)
class Numbers(Reading):
    """Read columns of numbers; parse cells of CSV files as numbers and classes.

    A column of vectors of one length, such as embeddings, gives that many features; ``lengths`` has 0 for all others.
    """

    features: tuple[str, ...]
    lengths: tuple[int, ...]
    target: str | None
    dtype: np.dtype[Any]
    label_type: Any
    classes: tuple[Any, ...] | None
    bad_rows: str

    @staticmethod
    def of(
        table: Source, target: str | None, columns: Sequence[str] | None, classes: Any, bad_rows: str
    ) -> Numbers:
        """Return the reading of a table; raise if the types of its columns do not allow one.

        Without a target all labels are 0.
        """
        own = [name for name in table.schema.names if name != target and name not in table.keys]
        features = own if columns is None else list(columns)
        _check_columns(table, features, target)
        kinds = [np.float64 if name in table.untyped else _numpy_type(table, name) for name in features]
        dtype = np.dtype(np.result_type(np.float32, *kinds))
        lengths = tuple(list_length(table.schema.field(name).type) for name in features)
        if target is None:
            return Numbers(tuple(features), lengths, None, dtype, pa.int64(), None, bad_rows)
        if target not in table.untyped or classes is None:
            kind = _label_type(table.schema.field(target).type)
            return Numbers(tuple(features), lengths, target, dtype, kind, None, bad_rows)
        known = as_cells(classes).ravel().tolist()
        return Numbers(
            tuple(features), lengths, target, dtype, _label_type(pa.array(known).type), tuple(known), bad_rows
        )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Features and target."""
        return self.features if self.target is None else (*self.features, self.target)

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the features, numbered for vectors."""
        return tuple(
            one
            for name, length in zip(self.features, self.lengths, strict=True)
            for one in ([f"{name}[{place}]" for place in range(length)] if length else [name])
        )

    def __call__(self, batch: Any) -> tuple[NDArray[Any], Any]:
        """Return the numbers of every column."""
        matrix = np.empty((batch.num_rows, len(self.names)), dtype=self.dtype)
        start = 0
        for name, length in zip(self.features, self.lengths, strict=True):
            cells = batch.column(name)
            if length:
                matrix[:, start : start + length] = _vectors(cells, length, self.dtype)
            else:
                matrix[:, start] = read_numbers(as_column(cells, name))[0]
            start += max(length, 1)
        if self.target is None:
            return matrix, pa.array(np.zeros(batch.num_rows, dtype=np.int64))
        return matrix, self._labels(batch.column(self.target), self.target)

    def _labels(self, cells: Any, target: str) -> Any:
        if self.classes is None:
            # Unsafe: types only grow, and text that is not UTF-8 is no reason to stop at somebody's label.
            return cells.cast(self.label_type, safe=False)
        codes = category_codes(as_column(cells, target), self.classes)
        if self.bad_rows == "error" and (codes < 0).any():
            raise ParameterError(
                "y",
                f"holds labels that are missing or outside classes, in column {target!r}",
                "correct them",
                Setting("bad_rows", "null", purpose="to ignore such rows"),
            )
        return pa.array(self.classes).cast(self.label_type).take(pa.array(codes, mask=codes < 0))


@dataclass(frozen=True)
class Encoded(Reading):
    """Encode raw cells by a `Schema`."""

    schema: Any
    label_type: Any
    bad_rows: str
    dtype = np.dtype(np.float64)

    @staticmethod
    def of(table: Source, schema: Any, bad_rows: str) -> Encoded:
        """Return the reading of a table, which must have the columns of the schema."""
        table.require(schema.needed)
        numeric = schema.target is not None and schema.target.bounds is not None
        kind = pa.float64() if numeric else _label_type(pa.array(schema.classes).type)
        return Encoded(schema, kind, bad_rows)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of the schema."""
        return tuple(self.schema.needed)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The features of the schema."""
        return tuple(self.schema.feature_names)

    def __call__(self, batch: Any) -> tuple[NDArray[Any], Any]:
        """Return encoded rows, and labels as members of the classes or numbers."""
        rows, labels = self.schema.encode(pa.Table.from_batches([batch]), bad_rows=self.bad_rows)
        return rows, pa.array(labels.tolist()).cast(self.label_type)


@dataclass(frozen=True)
class Chosen(Reading):
    """A reading of rows that were read before."""

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    columns = ()
    label_type = pa.int64()

    def __call__(self, batch: Any) -> tuple[NDArray[Any], Any]:
        """Never called: the rows are there."""
        raise NotImplementedError


def _check_columns(table: Source, features: Sequence[str], target: str | None) -> None:
    table.require(features if target is None else [*features, target])
    if not features:
        raise ValueError(f"{table.name!r} has no column but the target")
    for name in features:
        kind = table.schema.field(name).type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            raise ValueError(
                f"column {name!r} holds lists of any length, {kind}; store vectors of one length, for example "
                f"cast to pyarrow.list_({kind.value_type}, length)"
            )
        if list_length(kind):
            kind = kind.value_type
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if not (number or name in table.untyped):
            raise ValueError(
                f"column {name!r} holds {kind}, not numbers; declare its domain in a discreet.Schema and pass "
                "schema=..., or leave it out"
            )
    if target is not None and pa.types.is_nested(table.schema.field(target).type):
        raise ValueError(
            f"column {target!r} holds {table.schema.field(target).type}, which is no label: labels are numbers, text "
            "or true/false"
        )


def _numpy_type(table: Source, name: str) -> Any:
    """Return float32 if it holds every value of a column's type exactly, otherwise float64."""
    kind = table.schema.field(name).type
    if list_length(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind) or kind in (
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint16(),
        pa.float16(),
        pa.float32(),
    ):
        return np.float32
    return np.float64


def _vectors(cells: Any, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the vectors of a column as a matrix; a missing vector is a row of NaN, a missing entry is NaN."""
    kind = pa.from_numpy_dtype(dtype)
    there = cells.is_valid().to_numpy(zero_copy_only=False)
    entries = (
        cells.flatten().cast(kind, safe=False).to_numpy(zero_copy_only=False)
    )  # of vectors that are there
    if there.all():
        return np.asarray(entries).reshape(-1, length)
    matrix = np.full((len(cells), length), np.nan, dtype=dtype)
    matrix[there] = entries.reshape(-1, length)
    return matrix


LABEL_TYPES = (pa.int64(), pa.uint64(), pa.float64(), pa.string())


def _label_type(kind: Any) -> Any:
    """Return the type of ``LABEL_TYPES`` that holds every value of a type."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else pa.string()
