"""Who computes on Dask collections: threads of this process, or the workers of a cluster.

Tasks go through Dask's queue, which makes what was lost again; `discreet.records.clusters.crew` asks past it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet._checks import silently
from discreet.records.clusters.base import Keepers, WorkersLost, one_ending
from discreet.records.clusters.held import Held, in_order, rows_of

_RETRIES = 3  # of a partition whose worker died
_MOST_LOST = 4  # workers that may die during one fit before it ends
_LONGEST_PAUSE = 120  # seconds without any worker that is not out of memory before it ends
_FAN_IN = 8  # sums that one worker adds up at a time
_HELD = 0.4  # share of a worker's memory that opened partitions may fill and still be held: clipping may copy them once


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

    def places(self, entries: Sequence[Any]) -> Mapping[str, list[int]]:
        """Places of entries by the worker that holds them."""

    def holders(
        self, entries: Mapping[str, Sequence[Sequence[Any]]], numbers: Sequence[int]
    ) -> dict[str, Any]:
        """What becomes a `Held` of these columns on every worker that has room for it."""

    def finished(self, work: Any, worker: str) -> Any:
        """What such a holder answers, or is when it is ready; raises if its worker is lost meanwhile."""


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

    def places(self, entries: Sequence[Any]) -> dict[str, list[int]]:
        """All are here."""
        return {"": list(range(len(entries)))}

    def holders(
        self, entries: Mapping[str, Sequence[Sequence[Any]]], numbers: Sequence[int]
    ) -> dict[str, Any]:
        """One, with a thread for every processor."""
        from dask.system import CPU_COUNT

        (columns,) = entries.values()
        return {
            "": Held(CPU_COUNT, numbers, *self.gathered([entry for column in columns for entry in column]))
        }

    def finished(self, work: Any, worker: str) -> Any:
        """The same: nothing is waited for here."""
        return work

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
            tasks.append(
                self.combined(partial(rows_of, function, [None] * len(columns), len(share)), *entries)
            )
        return in_order(shares, self.gathered(tasks))

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """Results, in order; raises if workers keep dying meanwhile."""
        from distributed import KilledWorker

        futures = list(entries)
        try:
            self._wait(futures)
            return list(self._client.gather(futures))
        except (KilledWorker, MemoryError):
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

    def holders(
        self, entries: Mapping[str, Sequence[Sequence[Any]]], numbers: Sequence[int]
    ) -> dict[str, Any]:
        """Futures of actors, but where the entries fill too much of a worker's memory."""
        known, sizes = self._info(), self._client.nbytes(summary=False)
        started = {}
        for worker, columns in entries.items():
            facts = known.get(worker, {"memory_limit": -1})
            most = facts.get("memory_limit") or float("inf")
            own = [entry for column in columns for entry in column]
            if sum(sizes.get(entry.key, 0) for entry in own) <= _HELD * most:
                where = {"workers": [worker], "actor": True, "pure": False}
                started[worker] = self._client.submit(Held, facts.get("nthreads", 1), numbers, *own, **where)
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


def workers() -> Workers:
    """The cluster of the present `distributed` client, or else threads of this process."""
    try:
        from distributed import get_client

        return Cluster(get_client())
    except (ImportError, ValueError):
        return Threads()


# -- sums of integers, added up on the workers -------------------------------------------------------------------


class SummedParts:
    """Parts on workers, asked by tasks and added up there; for integers, whose sum does not depend on the order.

    Whatever goes wrong on a worker ends in `WorkersLost`, because it may be after the charge.
    """

    def __init__(self, parts: Sequence[Any], asked: Workers) -> None:
        self._list, self._workers = list(parts), asked

    @cached_property
    def _shares(self) -> list[list[int]]:
        """Who adds up which parts."""
        return self._workers.shares(self._list)

    def derived(self, make: Callable[[Any], Any]) -> SummedParts:
        """``make`` of every part, kept by its worker."""
        return SummedParts(self._workers.kept(make, self._list), self._workers)

    def total(self, question: Callable[..., Any], asked: Any) -> NDArray[np.int64]:
        """The sum of ``question(asked, *parts)`` over the shares of the workers.

        ``asked`` travels to one worker, and from there to the others; back comes one sum.
        """
        with one_ending():
            (once,) = self._workers.kept(_same, [asked])
            sums = [
                self._workers.combined(question, once, *(self._list[place] for place in share))
                for share in self._shares
            ]
            while len(sums) > 1:
                groups = [sums[start : start + _FAN_IN] for start in range(0, len(sums), _FAN_IN)]
                sums = [self._workers.combined(_added, *group) for group in groups]
            return np.asarray(self._workers.gathered(sums)[0])


def _same(value: Any) -> Any:
    return value


def _added(first: NDArray[np.int64], *others: NDArray[np.int64]) -> NDArray[np.int64]:
    total = first.copy()  # a kept answer is not to be changed
    for other in others:
        total += other
    return total
