"""How passes grow with rows and shrink with workers: gradients, sums of the recommender, votes of teachers.

Workers are processes of a local cluster with one thread each; teachers are trained by as many jobs. A power law is
fitted to the seconds of a pass in rows and, at the largest size, in workers (-1 would be perfect).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.scale import COLUMNS, best_time, invented
from benchmarks.speed import exponent
from discreet import PrivateLogisticRegression
from discreet.losses import Logistic, Softmax
from discreet.recommend import sources
from discreet.recommend.completion import PrivateMatrixCompletion
from discreet.recommend.item_models import RidgeModel
from discreet.recommend.methods import profile, subspace
from discreet.recommend.plan import Facts
from discreet.recommend.ratings import Scale, Users, read
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clusters.dask import DaskRows
from discreet.solvers import NoisyGradientDescent
from discreet.transfer.teachers import Poll, collect_votes

WORKERS = (1, 2)
_PARTS = 8
_ITEMS, _PER_USER = 400, 80
_TEACHERS = 32
Work = Callable[[], object]


@contextlib.contextmanager
def processes(workers: int) -> Iterator[None]:
    """A local cluster of so many processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as local,
        Client(local),
    ):
        yield


def gradient(rows: int, parts: int = _PARTS) -> Work:
    """A pass of a full-batch solver over rows that are invented on the workers."""
    import dask.array as da
    from dask import delayed

    size, shape = -(-rows // parts), (-(-rows // parts), COLUMNS)
    blocks = [da.from_delayed(delayed(_rows)(size, seed), shape, dtype=np.float32) for seed in range(parts)]
    theta, labels = np.linspace(-0.1, 0.1, COLUMNS + 1), np.resize([-1.0, 1.0], size * parts)
    records = DaskRows(da.concatenate(blocks)).records(labels, Bounds(5.0), None)
    return lambda: records.value_and_gradient(Logistic(), theta)


def _rows(size: int, seed: int) -> Any:
    return invented(size, seed)[0]


def ratings(n_users: int, parts: int = _PARTS) -> tuple[Facts, sources.DaskRatings]:
    """Blocks of users who are invented on the workers, with public facts about them."""
    import dask.bag as db
    from dask import delayed

    blocks = [delayed(_users)(-(-n_users // parts), seed) for seed in range(parts)]
    users, _ = sources.opened_collection(db.from_delayed(blocks), Scale(-1.0, 1.0), None)
    model = PrivateMatrixCompletion("subspace", 1.0, 1e-6, rating_bounds=(-1, 1))
    return model.plan(users.n_users, _ITEMS).facts, users


def _users(size: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    width = _ITEMS // _PER_USER
    items = rng.integers(0, width, (size, _PER_USER)) + width * np.arange(_PER_USER)
    starts = np.arange(0, size * _PER_USER + 1, _PER_USER)
    return [sp.csr_matrix((rng.uniform(-1, 1, items.size), items.ravel(), starts), shape=(size, _ITEMS))]


def item_sums(n_users: int, parts: int = _PARTS) -> Work:
    """The first global step of the recommender."""
    facts, users = ratings(n_users, parts)
    ones, flat = np.ones(_ITEMS), np.zeros(_ITEMS)
    return lambda: profile.weighted_sums(facts, users, ones, flat)


def covariance(n_users: int, parts: int = _PARTS) -> Work:
    """The last global step of the recommender."""
    return partial(_covariance, *ratings(n_users, parts))


def covariance_in_threads(n_users: int, threads: int) -> Work:
    """The same in this process."""
    rows = read(_users(n_users, 0)[0], Scale(-1.0, 1.0), None)[0]
    model = PrivateMatrixCompletion("subspace", 1.0, 1e-6, rating_bounds=(-1, 1))
    users = dataclasses.replace(rows, n_threads=threads)
    return partial(_covariance, model.plan(n_users, _ITEMS).facts, users)


def _covariance(facts: Facts, users: Users) -> object:
    ones = np.ones(_ITEMS)
    model = RidgeModel(np.zeros(_ITEMS), ones[:, None], np.array([0.05]), 0.2)
    return subspace.covariance(facts, users, model, ones)


def teachers(rows: int, jobs: int) -> Work:
    """Training of all teachers and their votes."""
    from sklearn.tree import DecisionTreeClassifier

    X, y = invented(rows, 0)
    chunks, queries = np.arange(rows) % _TEACHERS, invented(1000, 1)[0]
    seed, codes = np.random.SeedSequence(0), y.astype(np.int64)
    poll = Poll(DecisionTreeClassifier(max_depth=6), queries, np.array([0, 1]), _TEACHERS, seed)
    return lambda: collect_votes(poll, X, codes, chunks, jobs)


# What is measured, and the largest number of rows, users or records: on a cluster, and by threads or jobs from here.
PASSES: dict[str, tuple[Callable[[int], Work], int]] = {
    "gradient, 70 columns": (gradient, 2_000_000),
    "item sums, 80 ratings per user": (item_sums, 400_000),
    "covariance of 400 items": (covariance, 200_000),
}
LOCAL: dict[str, tuple[Callable[[int, int], Work], int]] = {
    "covariance of 400 items, threads": (covariance_in_threads, 200_000),
    f"{_TEACHERS} teachers (trees), jobs": (teachers, 160_000),
}


def measure_workers(scale: float = 1.0) -> list[tuple[str, ...]]:
    """Seconds by size and workers, with exponents; the last column is the largest size on two workers over one."""
    seconds: dict[tuple[str, int], list[float]] = {}
    most = {name: largest for name, (_, largest) in (*PASSES.items(), *LOCAL.items())}
    sizes = {name: [int(scale * largest / part) for part in (8, 4, 2, 1)] for name, largest in most.items()}
    for workers in WORKERS:
        with processes(workers):
            for name, (work, _) in PASSES.items():
                seconds[name, workers] = [_timed(work(size)) for size in sizes[name]]
        for name, (local, _) in LOCAL.items():
            seconds[name, workers] = [_timed(local(size, workers), repeats=2) for size in sizes[name]]
    rows: list[tuple[str, ...]] = []
    for name, own in sizes.items():
        alone, together = (seconds[name, workers] for workers in WORKERS)
        rows.append(
            (
                name,
                f"{own[0]:,} to {own[-1]:,}",
                f"{exponent(own, alone):.2f}",
                f"{exponent(own, together):.2f}",
                f"{exponent(WORKERS, (alone[-1], together[-1])):.2f}",
                f"{alone[-1]:.3f} / {together[-1]:.3f} s",
            )
        )
    return rows


def _timed(work: Work, repeats: int = 5) -> float:
    work()  # compiles on the workers
    return best_time(work, repeats)


def measure_growth() -> list[tuple[str, ...]]:
    """Exponents of one pass of one thread in memory, in processor time: rows, columns, classes."""
    rows, columns, classes = (25_000, 50_000, 100_000, 200_000), (16, 32, 64, 128), (3, 6, 12, 24)
    cases: dict[str, list[tuple[int, int, int]]] = {
        "rows (64 columns, 2 classes)": [(size, 64, 2) for size in rows],
        "columns (100,000 rows, 2 classes)": [(100_000, width, 2) for width in columns],
        "classes, softmax (50,000 rows, 32 columns)": [(50_000, 32, count) for count in classes],
    }
    found: list[tuple[str, ...]] = []
    for (name, shapes), sizes in zip(cases.items(), (rows, columns, classes), strict=True):
        times = [_pass_time(*shape) for shape in shapes]
        shown = " / ".join(f"{1000 * value:.1f}" for value in times)
        found.append((name, f"{sizes[0]:,} to {sizes[-1]:,}", shown, f"{exponent(sizes, times):.2f}"))
    return found


def _pass_time(rows: int, columns: int, classes: int) -> float:
    """Processor time of the fastest of seven passes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(rows, columns)).astype(np.float32)
    codes = rng.integers(0, classes, rows)
    loss: Any = Logistic() if classes == 2 else Softmax(classes)
    labels = np.where(codes > 0, 1.0, -1.0) if classes == 2 else codes.astype(np.float64)
    records = ArrayRecords(X, labels, Bounds(5.0), n_threads=1)
    theta = np.zeros((columns + 1,) if classes == 2 else (columns + 1, classes))
    times = []
    for _ in range(8):
        begin = time.process_time()
        records.value_and_gradient(loss, theta)
        times.append(time.process_time() - begin)
    return min(times[1:])


def measure_fits(
    sizes: tuple[tuple[int, int], ...] = ((500_000, 8), (3_000_000, 12)),
) -> list[tuple[str, ...]]:
    """Whole fits of 40 columns: two processes of one thread over one process of two, best of three, taken in turn.

    Each size is fitted as the library chooses, and by ten noisy gradients: the fewer passes, the more the fixed costs
    of a cluster show. Both processes hold as many partitions. Processor time, of all processes, is less disturbed by
    other work than seconds are.
    """
    import dask.array as da
    from distributed import get_client, wait

    found: list[tuple[str, ...]] = []
    for rows, parts in sizes:
        size = rows // parts
        blocks = [_block(size, seed) for seed in range(parts)]
        X, y = (np.concatenate(side) for side in zip(*blocks, strict=True))
        del blocks
        with processes(2):
            client = get_client()
            names = list(client.nthreads())
            made = [
                [client.submit(_side, size, seed, side, workers=[names[seed % 2]]) for seed in range(parts)]
                for side in (0, 1)
            ]
            wait(made)
            there = [
                da.concatenate([da.from_delayed(block, shape, dtype) for block in blocks])
                for blocks, shape, dtype in zip(
                    made, ((size, _FIT_COLUMNS), (size,)), (np.float32, np.int64), strict=True
                )
            ]
            for solver in ("auto", NoisyGradientDescent(n_iterations=10)):
                steps = _fitted(solver, X, y).privacy_.noise.get("noisy steps", 0)
                first = best_time(partial(_fitted, solver, *there), repeats=1)
                here, away, busy_here, busy_away = [], [], [], []
                for _ in range(3):
                    clocks = time.process_time(), sum(client.run(time.process_time).values())
                    here.append(best_time(partial(_fitted, solver, X, y), repeats=1))
                    middle = time.process_time()
                    away.append(best_time(partial(_fitted, solver, *there), repeats=1))
                    ends = time.process_time(), sum(client.run(time.process_time).values())
                    busy_here.append(middle - clocks[0])
                    busy_away.append(ends[0] - middle + ends[1] - clocks[1])
                found.append(
                    (
                        f"{rows:,} x {_FIT_COLUMNS}, {parts}",
                        f"{'automatic' if solver == 'auto' else 'noisy-gd'}, {steps:.0f}",
                        f"{min(here):.2f} s",
                        f"{min(away):.2f} s",
                        f"{min(away) / min(here):.2f}",
                        f"{min(busy_away) / min(busy_here):.2f}",
                        f"{first - min(away):.1f} s",
                    )
                )
    return found


_FIT_COLUMNS = 40


def _block(rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(rows, _FIT_COLUMNS)).astype(np.float32)
    rule = np.linspace(-1, 1, _FIT_COLUMNS)
    return X, (X @ rule + rng.normal(size=rows) > 0).astype(np.int64)


def _side(rows: int, seed: int, side: int) -> Any:
    return _block(rows, seed)[side]


def _fitted(solver: Any, X: Any, y: Any) -> PrivateLogisticRegression:
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-8, classes=[0, 1], feature_bound=4.0, solver=solver
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def measure_tasks(parts: tuple[int, ...] = (8, 32, 128)) -> list[tuple[str, ...]]:
    """What a pass costs beside reading: a round trip, and so much for every partition, on tiny partitions."""
    rows: list[tuple[str, ...]] = []
    with processes(2):
        kinds: dict[str, Callable[[int], Any]] = {
            "gradient": lambda count: gradient(256 * count, count),
            "item sums": lambda count: item_sums(10 * count, count),
        }
        for name, work in kinds.items():
            times = [_timed(work(count)) for count in parts]
            slope, fixed = np.polyfit(parts, times, 1)
            shown = " / ".join(f"{1000 * value:.1f}" for value in times)
            rows.append((name, shown, f"{1000 * fixed:.1f} ms", f"{1000 * slope:.2f} ms"))
    return rows
