"""Rows on a Dask cluster: passes run where the partitions are, and only sums travel.

Needs the extra ``dask``. Noise is never drawn on a worker: what comes back from the partitions are exact questions
answered about private rows, added up and perturbed once, in the process that runs the fit.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._checks import ParameterError, is_from, silently
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.open import Rows, as_numbers
from discreet.records.partitioned import (
    PartitionedRecords,
    WorkersLost,
    checksum,
    one_ending,
    small_labels,
)
from discreet.tables.meaning import as_cells

_RETRIES = 3  # of a partition whose worker died
_MOST_LOST = 4  # workers that may die during one fit before it ends
_LONGEST_PAUSE = 120  # seconds without any worker that is not out of memory before it ends
_FAN_IN = 8  # sums that one worker adds up at a time


REPEATABLE = (
    "computing a partition of the Dask collection again gives the same rows in the same order, as it happens when a "
    "worker is lost: no random sampling without a seed, no source that changes meanwhile (given by the user)"
)


def is_dask(data: Any) -> bool:
    """Whether this is a Dask collection, without importing Dask."""
    base = sys.modules.get("dask.base")
    return base is not None and bool(base.is_dask_collection(data))


def is_dask_frame(data: Any) -> bool:
    """Whether this is a Dask data frame, without importing Dask."""
    return is_dask(data) and is_from(data, "dask.dataframe", "DataFrame")


class Workers(Protocol):
    """Who computes: threads of this process, or a cluster."""

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """``form`` of delayed blocks, kept by whoever computes them."""

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """``function`` of each tuple of entries; the results stay where they are computed."""

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """``function`` of each tuple of entries; the results come here, in order."""

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """``function`` of entries that were kept, computed near them and kept there."""

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """What was kept or combined, here and in order."""

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """Places of what was kept, by the threads that are nearest to it."""


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
        return self.kept(form, self._client.compute(list(blocks), retries=_RETRIES))

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in the memory of the workers."""
        return list(self._client.map(partial(silently, function), *columns, pure=False, retries=_RETRIES))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Results, in order."""
        return self.gathered(self.kept(function, *columns))

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
        try:
            known = self._client.scheduler_info(n_workers=-1)["workers"]
        except TypeError:  # older versions give all without being asked to
            known = self._client.scheduler_info()["workers"]
        self._lost += len(self._alive - set(known))
        self._alive = set(known)
        stuck = all(worker.get("status") == "paused" for worker in known.values())  # or there is none
        self._paused = self._paused + 1 if stuck else 0
        if self._lost > _MOST_LOST or self._paused > _LONGEST_PAUSE:
            raise WorkersLost

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """One result, in the memory of a worker."""
        return self._client.submit(partial(silently, function), *entries, pure=False, retries=_RETRIES)

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """One share per thread of the worker that holds the entries; the one who is to compute lost ones is open.

        Entries that nobody holds yet would all be one share, and one worker would be sent everything: so wait.
        """
        self._wait(list(entries))
        threads, by_worker = self._client.nthreads(), defaultdict(list)
        where = self._client.who_has(list(entries))
        for place, entry in enumerate(entries):
            by_worker[next(iter(where.get(entry.key, ())), "")].append(place)
        return [
            share
            for worker, own in by_worker.items()
            for number in range(threads.get(worker, 1))
            if (share := own[number :: threads.get(worker, 1)])
        ]


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

    def valid(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Which rows are finite and not absurd."""
        return np.concatenate(self._workers.answers(bounds.valid_rows, self._blocks))

    def records(
        self,
        labels: NDArray[Any],
        bounds: Bounds,
        null_rows: NDArray[np.bool_] | None,
        clip: Callable[[Any], Any] = lambda rows: rows,
    ) -> PartitionedRecords:
        """Records with these labels, which travel to the workers once."""
        edges, count = np.cumsum(self._sizes)[:-1], len(self._sizes)
        nulls = [None] * count if null_rows is None else np.split(null_rows, edges)
        sent = [small_labels(part) for part in np.split(labels, edges)]
        columns = [clip] * count, self._blocks, sent, [bounds] * count, nulls, self._checksums
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
        """``question(part, *arguments)`` of every part, on its worker: one task for each thread of the workers."""
        with one_ending():
            tasks = [self._asked(_each, (arguments, question), share) for share in self._shares]
            places = [place for share in self._shares for place in share]
            answers = [answer for share in self._workers.gathered(tasks) for answer in share]
            return [answer for _, answer in sorted(zip(places, answers, strict=True), key=itemgetter(0))]

    @cached_property
    def _shares(self) -> list[list[int]]:
        """Who adds up which parts: asked once, because it takes two messages to the scheduler and back."""
        return self._workers.shares(self._list)

    def with_labels(self, labels: Sequence[NDArray[Any]]) -> DaskParts:
        """The same rows with other labels."""
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
    parts = [as_cells(block) for block in compute(*blocks)]
    if len({part.dtype for part in parts}) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


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


def _matrix(block: Any, dtype: type[np.floating[Any]]) -> Any:
    """A partition as a matrix of numbers, NaN where a cell is none."""
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


def _each(asked: tuple[tuple[Any, ...], Callable[..., Any]], *parts: Any) -> list[Any]:
    """The answers of one thread's share of the parts. (Dask may run a tuple that begins with a function.)"""
    arguments, question = asked
    return [question(part, *arguments) for part in parts]


def _added(first: NDArray[np.int64], *others: NDArray[np.int64]) -> NDArray[np.int64]:
    total = first.copy()  # a kept answer is not to be changed
    for other in others:
        total += other
    return total


def _shape(block: Any) -> tuple[int, int, bool, int]:
    return (*block.shape, not isinstance(block, np.ndarray), checksum(block))


def _records(
    clip: Callable[[Any], Any], block: Any, y: Any, bounds: Bounds, null: Any, expected: int
) -> ArrayRecords:
    if checksum(block) != expected:
        raise ValueError("a partition has other rows than before")
    return ArrayRecords(clip(block), y, bounds, null, n_threads=1)


def _checked(part: ArrayRecords) -> int:
    return part.n_samples
