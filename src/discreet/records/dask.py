"""Rows on a Dask cluster: passes run where the partitions are, and only sums travel.

Needs the extra ``dask``. Noise is never drawn on a worker: what comes back from the partitions are exact questions
answered about private rows, added up and perturbed once, in the process that runs the fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import ParameterError, silently
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.open import Rows, as_numbers, is_dask
from discreet.records.partitioned import (
    Column,
    Formula,
    Keepers,
    PartitionedRecords,
    WorkersLost,
    checksum,
    joined,
    one_ending,
    small_labels,
)
from discreet.tables.reading import as_cells, is_from

_RETRIES = 3  # of a partition whose worker died
_MOST_LOST = 4  # workers that may die during one fit before it ends
_LONGEST_PAUSE = 120  # seconds without any worker that is not out of memory before it ends
_FAN_IN = 8  # sums that one worker adds up at a time
_HELD = 0.5  # share of a worker's memory that parts may fill and still be held for all passes


REPEATABLE = (
    "computing a partition of the Dask collection again gives the same rows in the same order, as it happens when a "
    "worker is lost: no random sampling without a seed, no source that changes meanwhile (given by the user)"
)


def is_dask_frame(data: Any) -> bool:
    """Whether this is a Dask data frame, without importing Dask."""
    return is_dask(data) and is_from(data, "dask.dataframe", "DataFrame")


class Noted(NamedTuple):
    """Values of a partition with their checksum, taken whenever they are made: to compare it costs nothing."""

    values: Any
    checksum: int


class Workers(Keepers, Protocol):
    """Who computes: threads of this process, or a cluster."""

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """``form`` of delayed blocks, kept by whoever computes them."""

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """``function`` of entries that were kept, computed near them and kept there."""

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """What was kept or combined, here and in order."""

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """Places of what was kept, by the threads that are nearest to it."""

    def crew(self, entries: Sequence[Any]) -> Crew:
        """Who answers questions about what was kept."""


class Crew(Protocol):
    """Answers one question after the other about the same entries."""

    def ask(self, question: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """``question(entry, *arguments)`` of every entry, in their order."""


class Held:
    """Parts in the memory of one process, and as many threads as may ask them."""

    def __init__(self, threads: int, *parts: Any) -> None:
        self._threads, self._parts = min(threads, len(parts)), parts

    def ask(self, question: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """The answers of all parts, in their order."""
        if self._threads == 1:
            return [silently(question, part, *arguments) for part in self._parts]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda part: silently(question, part, *arguments), self._parts))


class Threads:
    """Dask's threads in this process."""

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """Blocks in this process."""
        return self.kept(form, blocks)

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in this process."""
        from dask import persist

        return list(persist(*self._tasks(function, columns), scheduler="threads"))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in order."""
        return self.gathered(self._tasks(function, columns))

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """Computed now."""
        from dask import compute

        return list(compute(*entries, scheduler="threads"))

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """Computed when it is asked for."""
        return self._tasks(function, [[entry] for entry in entries])[0]

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """One share per processor."""
        from dask.system import CPU_COUNT

        count = min(CPU_COUNT, len(entries))
        return [list(range(number, len(entries), count)) for number in range(count)]

    def crew(self, entries: Sequence[Any]) -> Crew:
        """This process."""
        from dask.system import CPU_COUNT

        return Held(CPU_COUNT, *self.gathered(entries))

    @staticmethod
    def _tasks(function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
        from dask import delayed

        task = delayed(partial(silently, function), pure=False)
        return [task(*row) for row in zip(*columns, strict=True)]


class Cluster:
    """The workers of a `distributed` client.

    Answers are gathered in the order of the partitions; a partition that died with its worker is computed again from
    its own source, and its answer still counts once. Workers that keep dying end the fit instead of being awaited for
    ever: one that is killed because its partitions are too large is started again, and killed again.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._alive = set(client.nthreads())
        self._lost = self._paused = 0

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """Blocks in the memory of the workers."""
        from dask import delayed

        task = delayed(partial(silently, form), pure=False)
        return list(self._client.compute([task(block) for block in blocks], retries=_RETRIES))

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in the memory of the workers."""
        return list(self._client.map(partial(silently, function), *columns, pure=False, retries=_RETRIES))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in order: one task for all that a worker has of the first column."""
        if not (columns and columns[0]):
            return []
        shares = list(self.places(columns[0]).values())
        tasks = []
        for share in shares:
            entries = [column[place] for column in columns for place in share]
            tasks.append(self.combined(_rows, (len(share), function), *entries))
        return _in_order(shares, self.gathered(tasks))

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """Results, in order; raises if workers keep dying meanwhile."""
        from distributed import KilledWorker

        futures = list(entries)
        try:
            self._wait(futures)
            return list(self._client.gather(futures))
        except KilledWorker:
            raise WorkersLost from None

    def _wait(self, futures: list[Any]) -> None:
        from distributed import wait

        while True:
            try:
                wait(futures, timeout=1)
                return
            except TimeoutError:
                self._check_workers()

    def _check_workers(self) -> None:
        """Count workers that were lost, and seconds in which all are paused because their memory is full."""
        known = self._info()
        self._lost += len(self._alive - set(known))
        self._alive = set(known)
        stuck = all(worker.get("status") == "paused" for worker in known.values())  # or there is none
        self._paused = self._paused + 1 if stuck else 0
        if self._lost > _MOST_LOST or self._paused > _LONGEST_PAUSE:
            raise WorkersLost from None

    def _info(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of every worker."""
        try:
            return dict(self._client.scheduler_info(n_workers=-1)["workers"])
        except TypeError:  # older versions give all without being asked to
            return dict(self._client.scheduler_info()["workers"])

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """One result, in the memory of a worker."""
        return self._client.submit(partial(silently, function), *entries, pure=False, retries=_RETRIES)

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """One share per thread of the worker that holds the entries; the one who is to compute lost ones is open.

        Entries that nobody holds yet would all be one share, and one worker would be sent everything: so wait.
        """
        threads = self._client.nthreads()
        return [
            share
            for worker, own in self.places(entries).items()
            for number in range(threads.get(worker, 1))
            if (share := own[number :: threads.get(worker, 1)])
        ]

    def places(self, entries: Sequence[Any]) -> dict[str, list[int]]:
        """Places of entries by the worker that holds them, of lost ones by none."""
        self._wait(list(entries))
        by_worker, where = defaultdict(list), self._client.who_has(list(entries))
        for place, entry in enumerate(entries):
            by_worker[next(iter(where.get(entry.key, ())), "")].append(place)
        return by_worker

    def crew(self, entries: Sequence[Any]) -> Crew:
        """One actor on every worker that holds entries."""
        return ClusterCrew(self, entries)

    def actors(self, entries: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Futures of `Held` on the workers that have these entries, but where they fill too much of the memory."""
        known, sizes = self._info(), self._client.nbytes(summary=False)
        started = {}
        for worker, own in entries.items():
            facts = known.get(worker, {"memory_limit": -1})
            most = facts.get("memory_limit") or float("inf")
            if sum(sizes.get(entry.key, 0) for entry in own) <= _HELD * most:
                where = {"workers": [worker], "actor": True, "pure": False}
                started[worker] = self._client.submit(Held, facts.get("nthreads", 1), *own, **where)
        return started

    def finished(self, work: Any, worker: str) -> Any:
        """What an actor answers or its future gives; raises if its worker is lost meanwhile."""
        while True:
            try:
                return work.result(timeout=1)
            except TimeoutError:
                self._check_workers()
                if worker not in self._alive:
                    raise


@dataclass
class _Member:
    """What one worker holds: places of entries, and the actor that answers for them, if there is one."""

    worker: str
    places: list[int]
    actor: Any


class ClusterCrew:
    """Actors: each holds all entries of its worker and is told every question in one message, past the task queue.

    An actor dies with its worker, and may fail. Its entries are then asked as tasks, which Dask makes again from their
    sources, so that every entry still answers once; before the next question a new crew is found.
    """

    def __init__(self, cluster: Cluster, entries: Sequence[Any]) -> None:
        self._cluster, self._entries = cluster, list(entries)
        self._members: list[_Member] = []

    def ask(self, question: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """The answers of all entries, in their order."""
        members = self._members or self._found()
        told = [_told(member.actor, question, arguments) for member in members]
        answers = [self._result(member, message) for member, message in zip(members, told, strict=True)]
        late = [number for number, found in enumerate(answers) if found is None]
        if late:
            asked = arguments, question
            tasks = [self._cluster.combined(_each, asked, *self._of(members[number])) for number in late]
            for number, found in zip(late, self._cluster.gathered(tasks), strict=True):
                answers[number] = found
        lost = any(members[number].actor is not None for number in late)
        self._members = [] if lost else members
        return _in_order([member.places for member in members], answers)

    def _of(self, member: _Member) -> list[Any]:
        return [self._entries[place] for place in member.places]

    def _found(self) -> list[_Member]:
        """A new crew: who has which entries now."""
        found = self._cluster.places(self._entries)
        members = [_Member(worker, places, None) for worker, places in found.items()]
        started = self._cluster.actors({member.worker: self._of(member) for member in members})
        for member in members:
            member.actor = self._result(member, started.get(member.worker))
        return members

    def _result(self, member: _Member, work: Any) -> Any:
        """What an actor gives, None if it does not."""
        try:
            return None if work is None else self._cluster.finished(work, member.worker)
        except WorkersLost:
            raise
        except Exception:  # of the question, or because the worker is gone: tasks tell
            return None


def _told(actor: Any, question: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The answers of an actor, yet to come; None where there is none or its worker is known to be lost."""
    try:
        return None if actor is None else actor.ask(question, arguments)
    except Exception:  # RuntimeError of Dask's
        return None


class DaskRows(Rows):
    """Rows of a Dask array or data frame as matrices of one kind, kept in the memory of the workers.

    Looks like a matrix as far as its shape. With a `distributed` client the partitions stay where they are computed;
    without one they are computed by Dask's threads in this process. Cells that are no numbers are NaN.
    """

    assumptions = (REPEATABLE,)

    def __init__(self, X: Any) -> None:
        self._workers = workers()
        self._blocks = self._workers.opened(row_blocks(X), partial(_matrix, dtype=_one_type(X)))
        shapes = self._workers.answers(_shape, self._blocks)
        if len({(width, sparse) for _, width, sparse, _ in shapes}) != 1:
            raise ValueError(
                "the partitions of X differ: all must have the same number of columns, and all be dense or all be "
                "SciPy sparse matrices"
            )
        self._sizes, self._checksums = [shape[0] for shape in shapes], [shape[3] for shape in shapes]
        _, self._width, self._sparse, _ = shapes[0]
        if not (self._width and sum(self._sizes)):
            raise ParameterError(
                "X",
                "has no rows or no columns",
                "a fit needs at least one of each",
            )
        self.feature_names = tuple(str(name) for name in X.columns) if is_dask_frame(X) else ()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return sum(self._sizes), self._width

    def labels(self, y: Any) -> Any:
        """Labels of a Dask collection, one for every row: left with the workers if its partitions are those of X."""
        blocks: Any = np.ravel(y.to_delayed()) if getattr(y, "ndim", 1) == 1 else []
        if len(blocks) != len(self._blocks):
            return labels_of(y)
        cells = self._workers.opened(list(blocks), _cells)
        facts = self._workers.answers(_label_facts, cells)
        if [size for size, _ in facts] != self._sizes:
            return labels_of(y)
        kept, sums = (
            Column.kept_as(self._workers, self._sizes, entries)
            for entries in (cells, [found for _, found in facts])
        )
        return kept.of(_unchanged, sums)

    def valid(self, bounds: Bounds) -> Any:
        """Which rows are finite and not absurd."""
        return Column.kept_as(self._workers, self._sizes, self._blocks).of(_valid, bounds)

    def records(
        self,
        labels: NDArray[Any] | Column,
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | Column | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the workers once unless they are there."""
        given = [
            values if values is None else Column.of_all(self._workers, self._sizes, values)
            for values in (labels, null_rows)
        ]
        entries = {
            name: kept for column in given if column is not None for name, kept in column.entries.items()
        }
        formulas = [None if column is None else column.formula for column in given]
        told = [(clip, bounds, formulas, list(entries))] * len(self._sizes)
        columns = told, self._blocks, self._checksums, *entries.values()
        parts = self._workers.kept(_records, *columns)
        self._workers.answers(_checked, parts)  # errors in rows show before anything is charged
        kept = DaskParts(parts, self._workers)
        return PartitionedRecords(kept, self._sizes, self._width, self._sparse, bounds, labels)


class DaskParts:
    """Parts on workers; whatever goes wrong there ends in `WorkersLost`, because it may be after the charge."""

    def __init__(self, parts: Sequence[Any], workers: Workers) -> None:
        self._list = list(parts)
        self._workers = workers

    def ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``question(part, *arguments)`` of every part, on its worker: one message to each worker, and one back."""
        with one_ending():
            return self._crew.ask(question, arguments)

    @cached_property
    def _crew(self) -> Crew:
        """Who has which parts: asked once, because it takes several messages to the scheduler and back."""
        return self._workers.crew(self._list)

    @cached_property
    def _shares(self) -> list[list[int]]:
        """Who adds up which parts."""
        return self._workers.shares(self._list)

    def with_labels(self, labels: Sequence[NDArray[Any]] | Column) -> DaskParts:
        """The same rows with other labels."""
        if isinstance(labels, Column):
            told = [(labels.formula, list(labels.entries))] * len(self._list)
            made = self._workers.kept(_relabeled, told, self._list, *labels.entries.values())
            return DaskParts(made, self._workers)
        sent = [small_labels(part) for part in labels]
        return DaskParts(self._workers.kept(ArrayRecords.with_labels, self._list, sent), self._workers)

    def derived(self, make: Callable[..., ArrayRecords], *arguments: Any) -> DaskParts:
        """``make(part, *arguments)`` of every part, kept by its worker."""
        made = self._workers.kept(make, self._list, *self._columns(arguments))
        return DaskParts(made, self._workers)

    def total(self, question: Callable[..., Any], asked: Any) -> NDArray[np.int64]:
        """The sum of ``question(asked, *parts)`` over the shares of the workers, added up on the workers.

        For integers, whose sum does not depend on the order. ``asked`` travels to one worker, and from there to the
        others; back comes one sum.
        """
        with one_ending():
            (once,) = self._workers.kept(_same, [asked])
            sums = [self._asked(question, once, share) for share in self._shares]
            while len(sums) > 1:
                groups = [sums[start : start + _FAN_IN] for start in range(0, len(sums), _FAN_IN)]
                sums = [self._workers.combined(_added, *group) for group in groups]
            return np.asarray(self._workers.gathered(sums)[0])

    def _asked(self, question: Callable[..., Any], asked: Any, share: Sequence[int]) -> Any:
        return self._workers.combined(question, asked, *(self._list[place] for place in share))

    def _columns(self, arguments: Sequence[Any]) -> list[list[Any]]:
        return [[argument] * len(self._list) for argument in arguments]


def row_blocks(X: Any) -> list[Any]:
    """One delayed block of whole rows per partition."""
    if not is_from(X, "dask.array", "Array"):
        return list(X.to_delayed())
    if X.ndim != 2:
        raise ParameterError("X", f"must have two dimensions (rows, columns), got {X.ndim}")
    return [row[0] for row in X.rechunk({1: -1}).to_delayed()]


def labels_of(y: Any) -> NDArray[Any]:
    """All labels in this process, each as its partition holds it: joined by Dask, one could decide the type of all."""
    from dask import compute

    blocks = row_blocks(y) if getattr(y, "ndim", 1) == 2 else np.ravel(y.to_delayed())
    return joined([as_cells(block) for block in compute(*blocks)])


def workers() -> Workers:
    """The cluster of the present `distributed` client, or else threads of this process."""
    client = _client()
    return Threads() if client is None else Cluster(client)


def _client() -> Any:
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def declared_types(X: Any) -> list[Any]:
    """The types that a Dask collection says it has, column by column if it is a frame; bags say nothing."""
    if is_dask_frame(X):
        return list(X.dtypes)
    return [X.dtype] if is_from(X, "dask.array", "Array") else []


def _one_type(X: Any) -> type[np.floating[Any]]:
    """The type of all matrices: by what the collection declares, not by what one row of one partition makes of it."""
    declared = declared_types(X)
    return np.float32 if declared and all(kind == np.float32 for kind in declared) else np.float64


def _matrix(block: Any, dtype: type[np.floating[Any]]) -> Noted:
    """A partition as a matrix of numbers, NaN where a cell is none."""
    matrix = _numbers(block, dtype)
    return Noted(matrix, checksum(matrix))


def _numbers(block: Any, dtype: type[np.floating[Any]]) -> Any:
    with np.errstate(all="ignore"):  # of numbers that the type does not hold
        values = as_numbers(block)
        if bool(sp.issparse(values)):
            return values.tocsr().astype(dtype, copy=False)
        if values.ndim != 2:
            raise ParameterError("X", f"must have two dimensions (rows, columns), got {values.ndim}")
        # What came over a network may lie at any address; kernels use aligned rows in place.
        return np.require(values, dtype=dtype, requirements=["C", "A"])


def _same(value: Any) -> Any:
    return value


def _in_order(shares: Sequence[Sequence[int]], answers: Sequence[Sequence[Any]]) -> list[Any]:
    """Answers of shares in the order of the places that these name."""
    found = {
        place: one
        for share, own in zip(shares, answers, strict=True)
        for place, one in zip(share, own, strict=True)
    }
    return [found[place] for place in range(len(found))]


def _rows(told: tuple[int, Callable[..., Any]], *entries: Any) -> list[Any]:
    """``function`` of each row of columns that follow each other; a tuple that begins with a function Dask may run."""
    height, function = told
    columns = [entries[start : start + height] for start in range(0, len(entries), height)]
    return [function(*row) for row in zip(*columns, strict=True)]


def _each(asked: tuple[tuple[Any, ...], Callable[..., Any]], *parts: Any) -> list[Any]:
    """The answers of one thread's share of the parts. (Dask may run a tuple that begins with a function.)"""
    arguments, question = asked
    return [question(part, *arguments) for part in parts]


def _added(first: NDArray[np.int64], *others: NDArray[np.int64]) -> NDArray[np.int64]:
    total = first.copy()  # a kept answer is not to be changed
    for other in others:
        total += other
    return total


def _cells(block: Any) -> Noted:
    cells = as_cells(block)
    return Noted(cells, checksum(cells))


def _label_facts(cells: Noted) -> tuple[int, int]:
    return len(cells.values), cells.checksum


def _shape(block: Noted) -> tuple[int, int, bool, int]:
    return (*block.values.shape, not isinstance(block.values, np.ndarray), block.checksum)


def _valid(block: Noted, bounds: Bounds) -> NDArray[np.bool_]:
    return bounds.valid_rows(block.values)


Told = tuple[
    Callable[[Any], Any], Bounds, list[Any], list[int]
]  # formulas of labels and of null rows, if any


def _records(told: Told, block: Noted, expected: int, *entries: Any) -> ArrayRecords:
    clip, bounds, formulas, names = told
    values = dict(zip(names, entries, strict=True))
    rows = _unchanged(block, expected)
    labels, null = (formula and formula(values) for formula in formulas)
    return ArrayRecords(clip(rows), labels, bounds, None if null is None else null.astype(bool), n_threads=1)


def _unchanged(noted: Noted, expected: int) -> Any:
    if noted.checksum != expected:
        raise ValueError("a partition has other rows than before")
    return noted.values


def _relabeled(told: tuple[Formula, list[int]], part: ArrayRecords, *entries: Any) -> ArrayRecords:
    formula, names = told
    return part.with_labels(formula(dict(zip(names, entries, strict=True))))


def _checked(part: ArrayRecords) -> int:
    return part.n_samples
