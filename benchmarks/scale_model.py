"""What a fit on a cluster costs: messages counted on a simulated one, seconds from a model with measured constants.

The simulated cluster runs the library's own code for clusters against a client that has any number of workers in this
process and counts what a real one would send. The model multiplies these counts by measured times.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from discreet import PrivateLogisticRegression
from discreet.records.clusters import crew, dask
from discreet.records.clusters.workers import Cluster
from discreet.solvers import NoisyGradientDescent

_keys = itertools.count()


@dataclass
class Done:
    """A finished future."""

    value: Any
    key: str

    def result(self, timeout: float | None = None) -> Any:
        """Its value."""
        return self.value


class Actor:
    """An object on a worker: every call is one message there and one back."""

    def __init__(self, held: crew.Held, count: Counter[str]) -> None:
        self._held, self._count = held, count

    def ask(self, question: crew.Question) -> Done:
        """The answers, with the bytes of both messages counted."""
        from distributed.protocol.pickle import dumps

        self._count["messages to workers"] += 1
        self._count["bytes to workers"] += len(dumps(question))
        answers = self._held.ask(question)
        self._count["bytes back"] += len(pickle.dumps(answers))
        return Done(answers, "")


class Client:
    """Any number of workers in this process; partition k is on worker k modulo their number."""

    def __init__(self, workers: int, threads: int) -> None:
        self._names, self._threads = [f"worker {number}" for number in range(workers)], threads
        self._place: dict[str, str] = {}
        self.count: Counter[str] = Counter()

    def nthreads(self) -> dict[str, int]:
        """Threads of every worker."""
        self.count["questions to the scheduler"] += 1
        return dict.fromkeys(self._names, self._threads)

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        """What a scheduler knows of its workers; a client has it without asking."""
        return {"workers": {name: {"nthreads": self._threads} for name in self._names}}

    def nbytes(self, summary: bool) -> dict[str, int]:
        """Sizes of what is kept."""
        self.count["questions to the scheduler"] += 1
        return {}

    def who_has(self, futures: Sequence[Done]) -> dict[str, tuple[str, ...]]:
        """Who keeps what."""
        self.count["questions to the scheduler"] += 1
        return {future.key: (self._place[future.key],) for future in futures}

    def compute(self, blocks: Sequence[Any], retries: int) -> list[Done]:
        """Delayed blocks, computed."""
        from dask import compute

        values = compute(*blocks, scheduler="synchronous")
        return [self._kept(value, place) for place, value in enumerate(values)]

    def map(self, function: Callable[..., Any], *columns: Sequence[Any], **_: Any) -> list[Done]:
        """One task for each row of the columns."""
        rows = list(zip(*columns, strict=True))
        return [self._kept(function(*map(_value, row)), place) for place, row in enumerate(rows)]

    def submit(self, function: Callable[..., Any], *arguments: Any, actor: bool = False, **_: Any) -> Done:
        """One task, or one actor."""
        made = function(*map(_value, arguments))
        return self._kept(Actor(made, self.count) if actor else made, 0)

    def gather(self, futures: Sequence[Done]) -> list[Any]:
        """Values, here."""
        self.count["questions to the scheduler"] += 1
        self.count["bytes back"] += sum(len(pickle.dumps(future.value)) for future in futures)
        return [future.value for future in futures]

    def _kept(self, value: Any, place: int) -> Done:
        self.count["tasks"] += 1
        future = Done(value, f"{next(_keys)}")
        self._place[future.key] = self._names[place % len(self._names)]
        return future


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Done) else argument


class Simulated(Cluster):
    """The library's cluster, with nothing to wait for."""

    def _wait(self, futures: list[Any]) -> None:
        pass


def counted(
    workers: int, threads: int, partitions: int, passes: int, *, columns: int = 3, height: int = 2
) -> Counter[str]:
    """Messages of a whole fit by noisy gradient descent on so many partitions of ``height`` rows."""
    import dask.array as da

    rng = np.random.default_rng(0)
    X = da.from_array(rng.uniform(-1, 1, (height * partitions, columns)), chunks=(height, columns))
    y = da.from_array(rng.integers(0, 2, height * partitions), chunks=height)
    client = Client(workers, threads)
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, classes=[0, 1], solver=NoisyGradientDescent(n_iterations=passes)
    )
    with mock.patch.object(dask, "workers", return_value=Simulated(client)):
        model.fit(X, y)
    return client.count


def expected(workers: int, partitions: int, passes: int) -> dict[str, int]:
    """The same counts by the formulas of docs/scale.md."""
    return {
        "messages to workers": workers * (passes + 4),
        "tasks": 2 * partitions + workers,
        "questions to the scheduler": 3,
    }


# Seconds and rates that the model assumes; `python -m benchmarks.scale tasks` measures the first two on a machine.
PER_MESSAGE = 0.002  # to one worker and back, through the scheduler
PER_TASK = 0.002
PER_QUESTION = 0.005
BYTES_PER_SECOND = 5e9  # of rows that one thread reads in a pass
NETWORK = 1e9  # bytes per second of the driver


def seconds(
    rows: int, columns: int, outputs: int, partitions: int, workers: int, threads: int, passes: int
) -> float:
    """What a fit takes by the model of docs/scale.md, rows in float32 in the memory of the workers."""
    counts = expected(workers, partitions, passes)
    reading = passes * 4 * rows * columns * max(1, outputs / 2) / (workers * threads * BYTES_PER_SECOND)
    talking = (
        PER_MESSAGE * counts["messages to workers"]
        + PER_TASK * counts["tasks"]
        + PER_QUESTION * counts["questions to the scheduler"]
    )
    return reading + talking + through_driver(columns, outputs, partitions, workers, passes) / NETWORK


def through_driver(columns: int, outputs: int, partitions: int, workers: int, passes: int) -> float:
    """Bytes of points that go out and gradients that come back."""
    return 8.0 * (columns + 1) * outputs * passes * (workers + partitions)


CASES = (
    (500_000, 40, 1, 8, 2, 1, 100),
    (3_000_000, 40, 1, 12, 2, 1, 100),
    (1_000_000_000, 100, 1, 800, 100, 8, 30),
    (1_000_000_000, 100, 1, 800, 100, 8, 100),
    (1_000_000_000, 100, 10, 800, 100, 8, 100),
)


def measure_model() -> list[tuple[str, ...]]:
    """The model's answers; the counts of the large cases are checked by a simulation of one pass and of three."""
    found: list[tuple[str, ...]] = []
    for case in CASES:
        rows, columns, outputs, partitions, workers, threads, passes = case
        for few in (1, 3):
            seen = counted(workers, threads, partitions, few)
            assert all(seen[what] == count for what, count in expected(workers, partitions, few).items())
        counts = expected(workers, partitions, passes)
        moved = through_driver(columns, outputs, partitions, workers, passes)
        found.append(
            (
                f"{rows:,} x {columns} ({outputs} outputs), {partitions}, {workers} x {threads}, {passes}",
                f"{sum(counts.values()):,}",
                f"{moved / 2**20:.0f} MB",
                f"{seconds(*case):.1f}",
            )
        )
    return found
