"""Compute on Dask collections, in threads of this process or on the workers of a cluster.

Tasks go through Dask's queue, which recomputes what was lost. `discreet.records.clusters.crew` sends each worker one
message per pass, without the queue.
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
from discreet.records.clusters.crew import Held, in_order, rows_of

_RETRIES = 3  # of a partition whose worker died
_MOST_LOST = 4  # a fit ends if more workers die
_LONGEST_PAUSE = 120  # a fit ends after this many seconds with all workers paused
_FAN_IN = 8  # sums that one worker adds at a time
_HELD = 0.4  # largest share of a worker's memory for opened partitions, because clipping may copy them once


class Workers(Keepers, Protocol):
    """Threads of this process, or a cluster. ``entries`` are values that were kept, one per partition."""

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """Compute ``form`` of delayed blocks and keep the results where they are computed."""

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """Compute ``function`` of entries near them and keep the result there."""

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """Return entries to this process, in order."""

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """Divide the indices of entries over the threads nearest to them."""

    def places(self, entries: Sequence[Any]) -> Mapping[str, list[int]]:
        """Return the indices of entries by the worker that holds them."""

    def holders(
        self, entries: Mapping[str, Sequence[Sequence[Any]]], numbers: Sequence[int]
    ) -> dict[str, Any]:
        """Start a `Held` of these columns on every worker that has enough memory."""

    def finished(self, work: Any, worker: str) -> Any:
        """Wait for a holder, or for its answer; raise if its worker is lost."""


class Threads:
    """Dask's threads in this process."""

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """Compute blocks in this process."""
        return self.kept(form, blocks)

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Return results kept in this process."""
        from dask import persist

        return list(persist(*self._tasks(function, columns), scheduler="threads"))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Return results in order."""
        return self.gathered(self._tasks(function, columns))

    def gathered(self, entries: Sequence[Any]) -> list[Any]:
        """Compute entries now."""
        from dask import compute

        return list(compute(*entries, scheduler="threads"))

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """Return a task, computed when it is gathered."""
        return self._tasks(function, [[entry] for entry in entries])[0]

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """Return one share per processor."""
        from dask.system import CPU_COUNT

        count = min(CPU_COUNT, len(entries))
        return [list(range(number, len(entries), count)) for number in range(count)]

    def places(self, entries: Sequence[Any]) -> dict[str, list[int]]:
        """Return all indices, under no name."""
        return {"": list(range(len(entries)))}

    def holders(
        self, entries: Mapping[str, Sequence[Sequence[Any]]], numbers: Sequence[int]
    ) -> dict[str, Any]:
        """Return one holder, with a thread for every processor."""
        from dask.system import CPU_COUNT

        (columns,) = entries.values()
        return {
            "": Held(CPU_COUNT, numbers, *self.gathered([entry for column in columns for entry in column]))
        }

    def finished(self, work: Any, worker: str) -> Any:
        """Return the work: there is nothing to wait for."""
        return work

    @staticmethod
    def _tasks(function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
        from dask import delayed

        task = delayed(partial(silently, function), pure=False)
        return [task(*row) for row in zip(*columns, strict=True)]


class Cluster:
    """The workers of a `distributed` client.

    Answers are gathered in the order of the partitions. A partition lost with its worker is computed again from its
    source, and its answer still counts once. If workers keep dying, the fit ends: a worker that is killed because its
    partitions are too large would be restarted and killed forever.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._alive = set(client.nthreads())
        self._lost = self._paused = 0

    def opened(self, blocks: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
        """Compute blocks in the memory of the workers."""
        from dask import delayed

        task = delayed(partial(silently, form), pure=False)
        return list(self._client.compute([task(block) for block in blocks], retries=_RETRIES))

    def kept(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Return results kept in the memory of the workers."""
        return list(self._client.map(partial(silently, function), *columns, pure=False, retries=_RETRIES))

    def answers(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Return results in order, by one task per worker that holds entries of the first column."""
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
        """Return results in order; raise `WorkersLost` if workers keep dying."""
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
        """Count lost workers, and seconds during which all workers are paused because their memory is full."""
        known = self._info()
        self._lost += len(self._alive - set(known))
        self._alive = set(known)
        stuck = all(worker.get("status") == "paused" for worker in known.values())  # or there is none
        self._paused = self._paused + 1 if stuck else 0
        if self._lost > _MOST_LOST or self._paused > _LONGEST_PAUSE:
            raise WorkersLost from None

    def _info(self) -> dict[str, dict[str, Any]]:
        """Return the scheduler's facts about every worker."""
        try:
            return dict(self._client.scheduler_info(n_workers=-1)["workers"])
        except TypeError:  # older versions always return all workers
            return dict(self._client.scheduler_info()["workers"])

    def combined(self, function: Callable[..., Any], *entries: Any) -> Any:
        """Compute one result in the memory of a worker."""
        return self._client.submit(partial(silently, function), *entries, pure=False, retries=_RETRIES)

    def shares(self, entries: Sequence[Any]) -> list[list[int]]:
        """Return one share per thread of the workers that hold the entries.

        Waits for all entries: those not computed yet would form one share, and go to one worker.
        """
        threads = self._client.nthreads()
        return [
            share
            for worker, own in self.places(entries).items()
            for number in range(threads.get(worker, 1))
            if (share := own[number :: threads.get(worker, 1)])
        ]

    def places(self, entries: Sequence[Any]) -> dict[str, list[int]]:
        """Return the indices of entries by the worker that holds them; "" for lost ones."""
        self._wait(list(entries))
        by_worker, where = defaultdict(list), self._client.who_has(list(entries))
        for place, entry in enumerate(entries):
            by_worker[next(iter(where.get(entry.key, ())), "")].append(place)
        return by_worker

    def holders(
        self, entries: Mapping[str, Sequence[Sequence[Any]]], numbers: Sequence[int]
    ) -> dict[str, Any]:
        """Return futures of actors, on workers where the entries leave enough memory."""
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
        """Wait for an actor or its answer; raise if its worker is lost."""
        while True:
            try:
                return work.result(timeout=1)
            except TimeoutError:
                self._check_workers()
                if worker not in self._alive:
                    raise


def workers() -> Workers:
    """Return the cluster of the current `distributed` client, or threads of this process."""
    try:
        from distributed import get_client

        return Cluster(get_client())
    except (ImportError, ValueError):
        return Threads()


# -- sums of integers, added up on the workers -------------------------------------------------------------------


class SummedParts:
    """Parts on workers, summed there by tasks; for integers, whose sum does not depend on the order.

    Any failure on a worker raises `WorkersLost`, because it may be after the charge.
    """

    def __init__(self, parts: Sequence[Any], asked: Workers) -> None:
        self._list, self._workers = list(parts), asked

    @cached_property
    def _shares(self) -> list[list[int]]:
        """The parts that each thread adds."""
        return self._workers.shares(self._list)

    def derived(self, make: Callable[[Any], Any]) -> SummedParts:
        """Return ``make`` of every part, kept by its worker."""
        return SummedParts(self._workers.kept(make, self._list), self._workers)

    def total(self, question: Callable[..., Any], asked: Any) -> NDArray[np.int64]:
        """Return the sum of ``question(asked, *parts)`` over the shares of the workers.

        ``asked`` is sent to one worker, and from there to the others; one sum is returned.
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
