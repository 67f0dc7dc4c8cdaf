"""Rows of a Spark data frame: passes run on its partitions, and only sums travel.

Needs the extra ``spark``, on the executors as well. Python processes of the executors make matrices of the partitions
and hold them in sheets (`discreet.records.clusters.sheets`), which the other processes of the executor read in place.
Spark keeps only where they are: so it asks a partition on the executor that has it, and makes it again when that
executor is lost. A part whose process died is made again from the frame and recognized by its checksum. Answers come
with the number of their part and count once. Noise is never drawn on an executor.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from discreet._checks import silence
from discreet.records.arrow import as_labels
from discreet.records.batches import Encoded, Numbers, Reading
from discreet.records.clusters import sheets
from discreet.records.clusters.base import WorkersLost, checksum
from discreet.records.clusters.crew import Kept
from discreet.records.clusters.kept_rows import KeptRows, Noted, facts_of
from discreet.records.clusters.lines import Call, Lines, answer_calls, me
from discreet.records.clusters.sheets import Address, Entry, Gone
from discreet.records.sources import OWN_ROWS, Source, rebatched
from discreet.tables.reading import TableError

REPEATABLE = (
    "the Spark frame gives the same rows in the same partitions whenever it is computed again: no random sampling "
    "without a seed, no source that changes meanwhile (given by the user; a partition that changes ends the fit)"
)
_TRIES = 3  # to make lost parts again in one pass
_HANDED_OVER = 60.0  # seconds after which somebody else holds what was opened
_FORGOTTEN = 600.0  # seconds without a question after which a fit is taken to be over
_AWAKE = 20.0  # seconds without a job after which Spark is given one
_ROWS, _LABELS = -1, -2  # numbers of what was opened
Key = tuple[int, int]  # of a part: its partition, and its number there
Places = dict[int, tuple[Address, ...] | bytes]  # where entries of a part are, by their numbers
Answer = tuple[Key, Places, tuple[Any, ...], bytes]  # part, what was made for it, what is known, who says so


class SparkTable(Source):
    """A Spark data frame as a table: for what needs single rows, its partitions come here one after the other."""

    assumptions = (OWN_ROWS, REPEATABLE)

    def __init__(self, frame: Any) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.name, self.frame = "the Spark frame", frame
        self.schema = to_arrow_schema(frame.schema)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches of one partition after the other."""
        for row in self.chosen(columns).mapInArrow(_packed, "part binary").toLocalIterator():
            with pa.ipc.open_stream(row.part) as reader:
                yield from reader

    def chosen(self, columns: Sequence[str]) -> Any:
        """Some columns of the frame, of any names."""
        return self.frame.select(*map(_quoted, columns))

    def packed(self, numbers: Numbers) -> tuple[Any, Numbers]:
        """All features of a reading in one column of vectors, which cost Spark less, and a reading of that."""
        kind = "float" if numbers.dtype == np.float32 else "double"
        cells = ", ".join(f"CAST({_quoted(name)} AS {kind})" for name in numbers.features)
        target = [] if numbers.target is None else [numbers.target]
        name = "".join(["x", *target])  # another than the target's
        frame = self.frame.selectExpr(f"array({cells}) AS {_quoted(name)}", *map(_quoted, target))
        return frame, replace(numbers, features=(name,), lengths=(len(numbers.features),))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class SparkRows(KeptRows):
    """Rows of a Spark frame and their labels, held by its executors.

    Use as a context manager: executors forget them at the end.
    """

    assumptions = SparkTable.assumptions

    def __init__(
        self,
        frame: Any,
        target: str | None,
        *,
        schema: Any = None,
        classes: Any = None,
        bad_rows: str,
        labeled: bool = True,
    ) -> None:
        table = SparkTable(frame)
        if schema is None and target is None and labeled:
            raise ValueError("name the column of labels: fit(frame, target='y')")
        reading: Reading
        if schema is None:
            numbers = Numbers.of(table, target, None, classes, bad_rows)
            names, (chosen, reading) = numbers.names, table.packed(numbers)
        else:
            reading = Encoded.of(table, schema, bad_rows)
            names, chosen = reading.names, table.chosen(reading.columns)
        self._crew = SparkCrew(chosen.mapInArrow(partial(_opened, reading), "part binary").rdd)
        if not self._crew.facts:
            self.close()
            raise TableError("the Spark frame has columns but no rows; a fit needs at least one")
        super().__init__(self._crew, self._crew.opened, self._crew.facts, names)

    def close(self) -> None:
        """Tell the executors to forget the rows."""
        self._crew.close()

    def __enter__(self) -> SparkRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SparkCrew:
    """Asks all parts of a fit: by a Spark job, of one task per partition, and then the processes that did its tasks.

    Parameters
    ----------
    made : an RDD of what `_opened` gives.

    Attributes
    ----------
    facts : of every part, in their order.
    opened : the columns of rows and of labels.
    """

    def __init__(self, made: Any) -> None:
        from pyspark import StorageLevel

        self._name = os.urandom(16)
        self._context = made.context
        self._lines = Lines.of(made.context.getConf())
        self._keys: list[Key] = []
        self._worked = time.monotonic()
        task = partial(_taken, self._name, self._call)
        self._fresh, self._there = made.mapPartitions(task), made.mapPartitions(task)
        try:
            found = self._there.persist(StorageLevel.MEMORY_ONLY).collect()
            facts, places, self._processes = ({key: of[place] for key, *of in found} for place in range(3))
            if len(facts) != len(found):
                raise WorkersLost
        except BaseException:
            self._end()
            raise
        self._keys = sorted(facts)
        self.facts = [facts[key] for key in self._keys]
        self.opened = [Kept(None, [], number) for number in (_ROWS, _LABELS)]
        self._alive = WeakValueDictionary({column.number: column for column in self.opened})
        self._places: dict[int, dict[Key, Any]] = {_ROWS: {}, _LABELS: {}}
        self._note(places)

    def kept(self, function: Callable[..., Any], *columns: Any) -> Kept:
        """``function`` of each tuple of entries, made when it is first asked for and held."""
        made = Kept(function, columns)
        self._alive[made.number] = made
        return made

    def answers(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """``function`` of each tuple of entries, in the order of the parts; each counts once, or none does."""
        found = self._by_lines(self._question(function, columns, brief=True))
        found = found or self._asked(self._there, None, function, columns)
        for _ in range(_TRIES):
            lost = [key for key in self._keys if key not in found]
            if not lost:
                return [found[key] for key in self._keys]
            again = self._asked(self._fresh, sorted({place for place, _ in lost}), function, columns)
            found = again | found
        raise WorkersLost

    def _asked(
        self, rows: Any, partitions: list[int] | None, function: Callable[..., Any], columns: Sequence[Any]
    ) -> dict[Key, Any]:
        """Answers by their parts, without those whose entries nobody has; of all partitions or of some."""
        task = partial(_answers, self._question(function, columns, partitions is None), self._call)
        self._worked = time.monotonic()
        given = (
            rows.mapPartitions(task).collect()
            if partitions is None
            else self._context.runJob(rows, task, partitions)
        )
        return self._found(given)

    def _by_lines(self, question: Question) -> dict[Key, Any]:
        """Answers of all parts without a job; none if a part cannot be reached so."""
        if self._lines is None:
            return {}
        if time.monotonic() - self._worked > _AWAKE:
            self._keep_awake()
        asked: dict[bytes, list[Key]] = {}
        for key in self._keys:
            asked.setdefault(self._processes[key], []).append(key)
        given = self._lines.asked(asked, question, self._keep_awake, _AWAKE)
        found = self._found(given)
        return found if len(found) == len(self._keys) else {}

    def _keep_awake(self) -> None:
        """Give Spark a job: it ends processes that have none for a minute."""
        self._there.mapPartitions(_nothing).collect()
        self._worked = time.monotonic()

    @property
    def _call(self) -> Call | None:
        return None if self._lines is None else self._lines.call

    def _question(self, function: Callable[..., Any], columns: Sequence[Any], brief: bool) -> Question:
        """What tasks are told; ``brief`` leaves out how to make what all parts have."""
        question = Question(self._name, tuple(self._alive), {}, {}, function, [])
        question.columns.extend(self._told(question, column, brief) for column in columns)
        return question

    def _found(self, given: Sequence[Answer]) -> dict[Key, Any]:
        """Answers by their parts; whoever gave one is noted, and where entries are."""
        if len({key for key, *_ in given} & set(self._keys)) != len(given):
            raise WorkersLost
        self._note({key: places for key, places, *_ in given})
        self._processes |= {key: process for key, _, _, process in given}
        return {key: answer[0] for key, _, answer, _ in given if answer}

    def _told(self, question: Question, column: Any, brief: bool) -> Any:
        """A column as tasks know it."""
        if not isinstance(column, Kept):
            return dict(zip(self._keys, column, strict=True))
        places = question.places[column.number] = self._places.get(column.number, {})
        if column.function is not None and not (brief and len(places) == len(self._keys)):
            made_of = [self._told(question, other, brief) for other in column.columns]
            question.recipes[column.number] = column.function, made_of
        return column.number

    def _note(self, given: dict[Key, Places]) -> None:
        """Remember where entries are."""
        for key, places in given.items():
            for number, place in places.items():
                self._places.setdefault(number, {})[key] = place
        for number in self._places.keys() - self._alive.keys():
            del self._places[number]

    def close(self) -> None:
        """Tell whoever has parts of this fit to forget them; who is not reached does so by himself."""
        nothing = Question(self._name, (), {}, {}, tuple, [])
        with contextlib.suppress(Exception):  # the session may be over
            if self._lines is None or not self._lines.known.issuperset(self._processes.values()):
                self._there.mapPartitions(partial(_answers, nothing, None)).collect()
            else:
                self._lines.asked({process: [] for process in self._lines.processes}, nothing)
        self._end()

    def _end(self) -> None:
        """Hang up, and let Spark forget where the parts are."""
        with contextlib.suppress(Exception):
            self._there.unpersist()
        if self._lines is not None:
            self._lines.close()


@dataclass(frozen=True)
class Question:
    """What a task is told.

    Attributes
    ----------
    fit : the name of the fit.
    alive : numbers of entries that may be asked for again.
    places : where entries are, by their numbers and parts.
    recipes : functions and columns of entries that may have to be made; columns are numbers, or values by parts.
    function, columns : what is asked of every part.
    """

    fit: bytes
    alive: tuple[int, ...]
    places: dict[int, dict[Key, Any]]
    recipes: dict[int, tuple[Callable[..., Any], Sequence[Any]]]
    function: Callable[..., Any]
    columns: list[Any]


# -- on the executors ------------------------------------------------------------------------------------------------


_held: dict[bytes, dict[tuple[int, Key], Entry]] = {}  # by fits
_asked_at: dict[bytes, float] = {}
_handed: collections.deque[tuple[float, list[Entry]]] = collections.deque()
_settled = False
_working = threading.Lock()  # tasks and calls take turns


def _packed(batches: Iterator[Any]) -> Iterator[Any]:
    """Batches as they are, in bytes."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield _binary(sink.getvalue().to_pybytes())


def _binary(part: bytes) -> Any:
    return pa.record_batch([pa.array([part], pa.binary())], names=["part"])


def _here() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _opened(reading: Reading, batches: Iterator[Any]) -> Iterator[Any]:
    """Keys, facts and places of the parts of one partition; another process takes them over at once."""
    while _handed and _handed[0][0] < time.monotonic() - _HANDED_OVER:
        _handed.popleft()
    with silence():
        for number, batch in enumerate(rebatched(batches, reading.height)):
            matrix, cells = reading(batch)
            labels = as_labels(cells)
            opened = Noted(matrix, checksum(matrix)), Noted(labels, checksum(labels))
            facts = facts_of(*opened)
            del matrix, labels
            if sheets.SHARED:
                entries = [sheets.kept(noted) for noted in opened]
                places: list[Any] = [entry.addresses for entry in entries]
                _handed.append((time.monotonic(), entries))
            else:
                places = [pickle.dumps(noted, protocol=5) for noted in opened]
            part = ((_here(), number), facts, dict(zip((_ROWS, _LABELS), places, strict=True)))
            yield _binary(pickle.dumps(part))
    _settle()


def _settle() -> None:
    """Leave what this process has loaded out of the search for garbage that Spark makes after every task."""
    global _settled
    if not _settled and "SPARK_REUSE_WORKER" in os.environ:
        gc.freeze()
        _settled = True


def _taken(fit: bytes, call: Call | None, rows: Iterator[Any]) -> Iterator[tuple[Key, Any, Places, bytes]]:
    """Parts that were opened, held from now on by this process, which calls the driver."""
    if call is not None:
        answer_calls(call, _answered)
    for row in rows:
        key, facts, places = pickle.loads(row.part)
        held: Places = {}
        for number, place in places.items():
            with contextlib.suppress(Gone):
                inside = isinstance(place, bytes)
                entry = sheets.kept(pickle.loads(place)) if inside else sheets.found(place, stay_open=True)
                held[number] = _hold(fit, number, key, entry).addresses
        yield key, facts, held, me()


def _hold(fit: bytes, number: int, key: Key, entry: Entry) -> Entry:
    _asked_at[fit] = time.monotonic()
    _held.setdefault(fit, {})[number, key] = entry
    return entry


def _answers(question: Question, call: Call | None, rows: Iterator[Any]) -> Iterator[Answer]:
    """Answers about the parts of one partition; from now on also without a task."""
    if call is not None:
        answer_calls(call, _answered)
    for key, _, places, _ in rows:
        yield from _answered(question, [key], places)


def _answered(question: Question, keys: Sequence[Key], places: Places | None = None) -> list[Answer]:
    """Keys, where entries are that were made, answers, and who gives them; none where an entry is lost."""
    given: list[Answer] = []
    with _working, silence():
        _forget(question)
        for key in keys:
            made: Places = {}
            answer: tuple[Any, ...] = ()
            with contextlib.suppress(Gone):
                entries = [_entry(question, column, key, places or {}, made) for column in question.columns]
                answer = (question.function(*(_value(one) for one in entries)),)
            given.append((key, made, answer, me()))
    _settle()
    return given


def _value(entry: Any) -> Any:
    return entry.value if isinstance(entry, Entry) else entry


def _nothing(rows: Iterator[Any]) -> Iterator[Any]:
    """A task of a job that does nothing but read: Spark ends a process that leaves rows unread."""
    for _ in rows:
        pass
    return iter(())


def _entry(question: Question, column: Any, key: Key, places: Places, made: Places) -> Any:
    """A value that came with the question, or an entry: held here or by another process, or made."""
    if isinstance(column, dict):
        return column[key]
    if (entry := _held.get(question.fit, {}).get((column, key))) is not None:
        if column in places and entry.sheets[0].stream is not None:
            made[column] = entry.addresses
        return entry
    told: Any = question.places.get(column, {}).get(key)
    for place in (told, cast(Any, places.get(column))):
        with contextlib.suppress(Gone):
            if place is not None:
                made[column] = place
                return _hold(question.fit, column, key, sheets.found(place))
    if column not in question.recipes:
        raise Gone
    function, columns = question.recipes[column]
    entries = [_entry(question, one, key, places, made) for one in columns]
    value = function(*(_value(one) for one in entries))
    entry = sheets.kept(value, [one for one in entries if isinstance(one, Entry)])
    made[column] = entry.addresses
    return _hold(question.fit, column, key, entry)


def _forget(question: Question) -> None:
    """Let go of what nobody will ask for again."""
    now = _asked_at[question.fit] = time.monotonic()
    alive = set(question.alive)
    held = _held.get(question.fit, {})
    for place in [place for place in held if place[0] not in alive]:
        del held[place]
    for fit in [fit for fit, last in _asked_at.items() if last < now - _FORGOTTEN]:
        del _asked_at[fit]
        _held.pop(fit, None)
