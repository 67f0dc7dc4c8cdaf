"""Rows of a Spark data frame: passes run on its partitions, and only sums travel.

Needs the extra ``spark``, on the executors as well. Partitions become matrices in Python through Arrow and are kept by
Spark, in memory only: a part that is lost or does not fit is made again from the frame, and recognized by its checksum.
Noise is never drawn on an executor. Answers come with the number of their part, and count only if every part answered
once, so that tasks that Spark runs twice change nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet._checks import silence
from discreet.records.arrays import ArrayRecords
from discreet.records.arrow import as_labels
from discreet.records.batches import Encoded, Numbers, Reading
from discreet.records.bounds import Bounds
from discreet.records.open import Rows
from discreet.records.partitioned import (
    PartitionedRecords,
    WorkersLost,
    checksum,
    one_ending,
    small_labels,
)
from discreet.records.sources import OWN_ROWS, Source, rebatched
from discreet.tables.reading import TableError

REPEATABLE = (
    "the Spark frame gives the same rows in the same partitions whenever it is computed again: no random sampling "
    "without a seed, no source that changes meanwhile (given by the user; a partition that changes ends the fit)"
)
_PART = "place long, number long, part binary, facts binary"
Key = tuple[int, int]


class SparkTable(Source):
    """A Spark data frame as a table: for what needs single rows, its partitions come here one after the other."""

    assumptions = (OWN_ROWS, REPEATABLE)

    def __init__(self, frame: Any) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.name, self.frame = "the Spark frame", frame
        self.schema = to_arrow_schema(frame.schema)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches of one partition after the other."""
        packed = self.chosen(columns).mapInArrow(_packed, _PART)
        for row in packed.toLocalIterator():
            with pa.ipc.open_stream(row.part) as reader:
                yield from reader

    def chosen(self, columns: Sequence[str]) -> Any:
        """Some columns of the frame, of any names."""
        return self.frame.select(*("`" + name.replace("`", "``") + "`" for name in columns))


class SparkRows(Rows):
    """Rows of a Spark frame as matrices, kept by its executors, with their labels; looks like a matrix by its shape.

    Use as a context manager: what Spark keeps for the fit is given back at the end.
    """

    assumptions = SparkTable.assumptions

    def __init__(
        self, frame: Any, target: str | None, *, schema: Any = None, classes: Any = None, bad_rows: str
    ) -> None:
        table = SparkTable(frame)
        if schema is None and target is None:
            raise ValueError("name the column of labels: fit(frame, target='y')")
        if schema is None:
            reading: Reading = Numbers.of(table, target or "", None, classes, bad_rows)
        else:
            reading = Encoded.of(table, schema, bad_rows)
        self.feature_names = reading.names
        self._kept: list[Callable[[], object]] = []
        blocks = table.chosen(reading.columns).mapInArrow(partial(_blocks, reading), _PART)
        self._blocks = SparkParts(blocks, (), self._kept).persisted()
        facts = self._blocks.facts()
        self._keys = sorted(facts)
        self._sizes = [facts[key][0] for key in self._keys]
        self._checksums = {key: facts[key][1] for key in self._keys}
        self._blocks = SparkParts(self._blocks.frame, self._keys, self._kept)
        if not sum(self._sizes):
            self.close()
            raise TableError("the Spark frame has columns but no rows; a fit needs at least one")
        labels = [as_labels(facts[key][2]) for key in self._keys]
        if len({part.dtype for part in labels}) > 1:
            labels = [part.astype(object) for part in labels]
        self.labels = np.concatenate(labels)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(self._sizes), len(self.feature_names)

    def valid(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Which rows are finite and not absurd."""
        return np.concatenate(self._blocks.ask(_valid, bounds))

    def records(
        self,
        labels: NDArray[Any],
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the executors once; errors in rows show before any charge."""
        nulls = None if null_rows is None else self._blocks.sent(self._split(null_rows))
        sent = self._blocks.sent(self._split(labels))
        parts = self._blocks.changed(_records, clip, bounds, self._checksums, sent, nulls).persisted()
        parts.facts()
        return PartitionedRecords(parts, self._sizes, self.shape[1], False, bounds, labels)

    def _split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        return np.split(values, np.cumsum(self._sizes)[:-1])

    def close(self) -> None:
        """Give back what Spark keeps."""
        while self._kept:
            self._kept.pop()()

    def __enter__(self) -> SparkRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SparkParts:
    """Parts in a Spark frame of two numbers, that of the partition and that within it, and one pickled part.

    Parameters
    ----------
    frame : the parts.
    keys : their numbers, in order.
    kept : what gives back memory in the end; shared by all parts of a fit.
    """

    def __init__(self, frame: Any, keys: Sequence[Key], kept: list[Callable[[], object]]) -> None:
        self.frame, self._keys, self._kept = frame, list(keys), kept

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, in their order; each counts once, or none does."""
        with one_ending():
            answers = self.told(question, *arguments)
            if sorted(answers) != self._keys:
                raise WorkersLost
            return [answers[key] for key in self._keys]

    def told(self, question: Callable[..., Any], *arguments: Any) -> dict[Key, Any]:
        """The answers by the numbers of the parts; what an executor raises is raised here."""
        return SparkParts(self.frame.mapInArrow(partial(_asked, question, arguments), _PART), (), []).facts()

    def facts(self) -> dict[Key, Any]:
        """What was noted of every part when it was made; the parts themselves stay where they are."""
        rows = self.frame.select("place", "number", "facts").collect()
        found = [((row.place, row.number), bytes(row.facts)) for row in rows]
        if len({key for key, _ in found}) != len(found):
            raise WorkersLost
        return {key: pickle.loads(noted) for key, noted in found}

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> SparkParts:
        """The same rows with other labels, which every pass puts in place."""
        return self.changed(_relabeled, self.sent(labels))

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> SparkParts:
        """``make(part, *arguments)`` of every part, kept by the executors."""
        return self.changed(_made, make, arguments).persisted()

    def changed(self, make: Callable[..., Any], *arguments: Any) -> SparkParts:
        """``make(key, part, *arguments)`` of every part, made whenever it is asked."""
        return SparkParts(
            self.frame.mapInArrow(partial(_changed, make, arguments), _PART), self._keys, self._kept
        )

    def persisted(self) -> SparkParts:
        """The same parts, kept in the memory of the executors from the first question on."""
        from pyspark import StorageLevel

        frame = self.frame.persist(StorageLevel.MEMORY_ONLY)
        self._kept.append(frame.unpersist)
        return SparkParts(frame, self._keys, self._kept)

    def sent(self, values: Sequence[NDArray[Any]]) -> Any:
        """One array for every part, by its numbers, sent to the executors until the end of the fit."""
        arrays = {key: small_labels(part) for key, part in zip(self._keys, values, strict=True)}
        message = self.frame.sparkSession.sparkContext.broadcast(arrays)
        self._kept.append(message.destroy)
        return message


# -- on the executors ------------------------------------------------------------------------------------------------


def _row(place: int, number: int, part: Any, facts: Any = None) -> Any:
    """A part with its numbers and what is noted of it. Its bytes are used in place."""
    ends = pa.py_buffer(np.array([0, len(part)], dtype=np.int32))
    return pa.record_batch(
        [
            pa.array([place], pa.int64()),
            pa.array([number], pa.int64()),
            pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(part)]),
            pa.array([_bytes(facts)], pa.binary()),
        ],
        names=["place", "number", "part", "facts"],
    )


def _bytes(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


def _here() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _packed(batches: Iterator[Any]) -> Iterator[Any]:
    """Batches as they are, in bytes."""
    for number, batch in enumerate(batches):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield _row(_here(), number, sink.getvalue().to_pybytes())


def _blocks(reading: Reading, batches: Iterator[Any]) -> Iterator[Any]:
    """The parts of one partition: matrices with their labels."""
    with silence():
        for number, batch in enumerate(rebatched(batches, reading.height)):
            rows, labels = reading(batch)
            noted = checksum(rows)
            yield _row(_here(), number, _bytes((rows, noted)), (len(rows), noted, labels))


def _rows_of(batches: Iterator[Any]) -> Iterator[tuple[Key, Any]]:
    for batch in batches:
        places, numbers = (column.to_pylist() for column in batch.columns[:2])
        for key, part in zip(zip(places, numbers, strict=True), batch.columns[2], strict=True):
            yield key, pickle.loads(part.as_buffer())


def _asked(question: Callable[..., Any], arguments: tuple[Any, ...], batches: Iterator[Any]) -> Iterator[Any]:
    with silence():
        for key, part in _rows_of(batches):
            yield _row(*key, b"", question(part, *arguments))


def _changed(make: Callable[..., Any], arguments: tuple[Any, ...], batches: Iterator[Any]) -> Iterator[Any]:
    with silence():
        for key, part in _rows_of(batches):
            yield _row(*key, _bytes(make(key, part, *arguments)))


def _valid(block: tuple[NDArray[Any], int], bounds: Bounds) -> NDArray[np.bool_]:
    return bounds.valid_rows(block[0])


def _records(
    key: Key,
    block: tuple[NDArray[Any], int],
    clip: Callable[[Any], Any],
    bounds: Bounds,
    checksums: dict[Key, int],
    labels: Any,
    nulls: Any,
) -> ArrayRecords:
    rows, noted = block  # the checksum of these rows, taken when they were made
    if noted != checksums[key]:
        raise ValueError("a partition has other rows than before")
    null = None if nulls is None else nulls.value[key].astype(bool)
    return ArrayRecords(clip(rows), labels.value[key], bounds, null, n_threads=1)


def _relabeled(key: Key, part: ArrayRecords, labels: Any) -> ArrayRecords:
    return part.with_labels(labels.value[key])


def _made(
    key: Key, part: ArrayRecords, make: Callable[..., ArrayRecords], arguments: tuple[Any, ...]
) -> ArrayRecords:
    return make(part, *arguments)
