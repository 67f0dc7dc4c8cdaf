"""Private matrix completion on synthetic and real ratings: RMSE, ranking, memory and time.

``python -m benchmarks.recommenders`` checks the targets within minutes; ``full`` and ``scale`` do more.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import data
from discreet import PrivateMatrixCompletion
from discreet.recommend import kernels
from discreet.recommend.metrics import ndcg_at, rmse
from discreet.recommend.ratings import Scale, read

Array = NDArray[np.float64]
DELTA = 1e-6
RANGES = {"movielens1m": (1.0, 5.0), "movielens100k": (1.0, 5.0), "jester1": (-10.0, 10.0)}
# RMSE that must be reached: (data set, part held out) -> epsilon -> bound.
TARGETS = {
    ("rank one", 0.0): {0.1: 0.05, 1.0: 0.033, 5.0: 0.031},
    ("movielens1m", 0.1): {1.0: 0.960, 5.0: 0.915},
    ("jester1", 0.01): {1.0: 4.30, 5.0: 4.18},
}


@dataclass(frozen=True)
class Task:
    """Ratings to learn from and (user, item, rating) triples to predict."""

    name: str
    train: Any
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    ratings: Array
    bounds: tuple[float, float]


def rank_one(
    n_users: int = 500_000, n_items: int = 400, per_user: int = 80, rank: int = 1, seed: int = 0
) -> Task:
    """Low-rank ratings scaled into [-1, 1]; two further items of every user are held out."""
    rng = np.random.default_rng(seed)
    left = rng.uniform(-1, 1, size=(n_users, rank))
    right = rng.uniform(-1, 1, size=(n_items, rank)) / rank
    chosen = np.empty((n_users, per_user + 2), dtype=np.int32)
    for start in range(0, n_users, 20_000):
        rows = slice(start, min(start + 20_000, n_users))
        keys = rng.random((rows.stop - rows.start, n_items), dtype=np.float32)
        chosen[rows] = np.argpartition(keys, per_user + 2, axis=1)[:, : per_user + 2]
    values = np.empty(chosen.shape)
    for start in range(0, n_users, 20_000):
        rows = slice(start, start + 20_000)
        values[rows] = np.einsum("ir,ijr->ij", left[rows], right[chosen[rows]])
    starts = np.arange(0, n_users * per_user + 1, per_user)
    train = sp.csr_array(
        (values[:, :per_user].ravel(), chosen[:, :per_user].ravel(), starts), shape=(n_users, n_items)
    )
    users = np.repeat(np.arange(n_users), 2)
    return Task(
        f"rank {rank}",
        train,
        users,
        chosen[:, per_user:].ravel().astype(np.int64),
        values[:, per_user:].ravel(),
        (-1.0, 1.0),
    )


def real(name: str, holdout: float, seed: int = 0) -> Task:
    """A real set, a random part of its ratings held out."""
    with np.load(Path(_folder()) / f"{name}.npz", allow_pickle=False) as file:
        user, item = file["user"].astype(np.int64), file["item"].astype(np.int64)
        rating = file["rating"].astype(np.float64)
        shape = int(file["n_users"]), int(file["n_items"])
    order = np.random.default_rng(seed).permutation(len(rating))
    test, train = np.split(order, [round(holdout * len(rating))])
    train = train[np.argsort(user[train], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(user[train], minlength=shape[0]))])
    matrix = sp.csr_array((rating[train], item[train], starts), shape=shape)
    return Task(name, matrix, user[test], item[test], rating[test], RANGES[name])


def _folder() -> str:
    folder = os.environ.get(data.VARIABLE)
    if not folder:
        raise data.MissingData(f"set {data.VARIABLE} to the folder that holds the rating files")
    return folder


def score(task: Task, model: PrivateMatrixCompletion) -> float:
    """RMSE on the held-out triples, users in blocks."""
    predicted = np.empty(len(task.ratings))
    order = np.argsort(task.users, kind="stable")
    for start in range(0, task.train.shape[0], 20_000):
        stop = min(start + 20_000, task.train.shape[0])
        where = order[np.searchsorted(task.users[order], start) : np.searchsorted(task.users[order], stop)]
        if len(where):
            predicted[where] = model.predict(task.train[start:stop])[
                task.users[where] - start, task.items[where]
            ]
    return rmse(task.ratings, predicted)


def ranking(task: Task, model: PrivateMatrixCompletion, k: int = 10, n_users: int = 2000) -> float:
    """NDCG@k of held-out ratings above the middle among all items not rated in training."""
    middle = sum(task.bounds) / 2
    liked = task.ratings > middle
    values = []
    for user in np.unique(task.users[liked])[:n_users]:
        row = task.train[[user]]
        scores = model.predict(row)[0]
        scores[row.indices] = -np.inf
        values.append(ndcg_at(scores, task.items[liked & (task.users == user)], k))
    return float(np.mean(values))


def measure(
    task: Task,
    methods: Sequence[str] = ("auto", "bias"),
    epsilons: Sequence[float] = (1.0, 5.0),
    runs: int = 1,
    **parameters: Any,
) -> Iterator[dict[str, Any]]:
    """One row per method and epsilon: mean and largest RMSE over runs, seconds per fit."""
    for method in methods:
        for epsilon in epsilons:
            errors, seconds = [], []
            for _ in range(runs):
                begin = time.perf_counter()
                model = PrivateMatrixCompletion(
                    method, epsilon, DELTA, rating_bounds=task.bounds, **parameters
                ).fit(task.train)
                seconds.append(time.perf_counter() - begin)
                errors.append(score(task, model))
            yield {
                "data": task.name,
                "method": method,
                "ran": model.method_,
                "epsilon": epsilon,
                "rmse": float(np.mean(errors)),
                "largest": max(errors),
                "seconds": float(np.mean(seconds)),
            }


def without_privacy(task: Task, rank: int = 10, sweeps: int = 8, penalty: float = 200.0) -> float:
    """RMSE of biases and alternating least squares without privacy: alternating from a random start."""
    scale = Scale(*task.bounds)
    rows, _ = read(task.train, scale, None)
    columns, _ = read(task.train.T.tocsr(), scale, None)
    n_users, n_items = task.train.shape
    item_bias, user_bias = np.zeros((n_items, 1)), np.zeros((n_users, 1))
    one = np.ones((max(n_users, n_items), 1))
    mean = float(rows.values.mean())
    for _ in range(5):
        base = mean + item_bias[:, 0]
        kernels.coefficients(rows.starts, rows.items, rows.values, base, one, np.array([5.0]), user_bias)
        base = mean + user_bias[:, 0]
        kernels.coefficients(
            columns.starts, columns.items, columns.values, base, one, np.array([5.0]), item_bias
        )
    own = user_bias[np.repeat(np.arange(n_users), np.diff(rows.starts)), 0]
    other = item_bias[np.repeat(np.arange(n_items), np.diff(columns.starts)), 0]
    by_user = rows.values - mean - own - item_bias[rows.items, 0]
    by_item = columns.values - mean - other - user_bias[columns.items, 0]
    V = 0.1 * np.random.default_rng(0).normal(size=(n_items, rank))
    U = np.zeros((n_users, rank))
    ridge = np.full(rank, penalty * 0.05)
    for _ in range(sweeps):
        spread = np.sqrt((V**2).mean()) + 1e-12
        V *= 0.3 / spread
        kernels.coefficients(rows.starts, rows.items, by_user, np.zeros(n_items), V, ridge, U)
        kernels.coefficients(columns.starts, columns.items, by_item, np.zeros(n_users), U, ridge, V)
    raw = mean + user_bias[task.users, 0] + item_bias[task.items, 0]
    raw += np.einsum("ir,ir->i", U[task.users], V[task.items])
    return rmse(task.ratings, scale.outside(raw))


def reference(task: Task) -> float:
    """The best of a few penalties, chosen on the held-out ratings: no private method may do so."""
    return min(without_privacy(task, penalty=penalty) for penalty in (64.0, 200.0, 600.0))


def most_rated(task: Task, n_items: int = 400) -> Task:
    """The task restricted to its most-rated items, a choice that is declared public."""
    chosen = np.sort(np.argsort(-np.bincount(task.train.indices, minlength=task.train.shape[1]))[:n_items])
    place = np.full(task.train.shape[1], -1)
    place[chosen] = np.arange(n_items)
    kept = place[task.items] >= 0
    train = sp.csr_array(task.train[:, chosen])
    name = f"{task.name}, {n_items} items"
    return Task(name, train, task.users[kept], place[task.items[kept]], task.ratings[kept], task.bounds)


def peak_gigabytes() -> float:
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def at_scale(n_users: int = 1_000_000, n_items: int = 10_000, per_user: int = 80) -> Iterator[dict[str, Any]]:
    """Seconds and memory of one fit against one pass over the ratings."""
    rng = np.random.default_rng(0)
    width = n_items // per_user  # one item out of each of per_user groups: distinct and in order
    items = rng.integers(0, width, size=(n_users, per_user), dtype=np.int32)
    items += np.arange(per_user, dtype=np.int32) * width
    left, right = rng.uniform(-1, 1, n_users), rng.uniform(-1, 1, n_items)
    values = right[items]
    values *= left[:, None]
    starts = np.arange(0, n_users * per_user + 1, per_user, dtype=np.int32)
    train = sp.csr_array((values.ravel(), items.ravel(), starts), shape=(n_users, n_items))
    begin = time.perf_counter()
    train.sum()
    one_pass = time.perf_counter() - begin
    for method in ("profile", "power", "subspace"):
        begin = time.perf_counter()
        model = PrivateMatrixCompletion(method, 1.0, DELTA, rank=4, rating_bounds=(-1, 1)).fit(train)
        seconds = time.perf_counter() - begin
        error = rmse(left[:500, None] * right, model.predict(train[:500]))
        yield {
            "method": method,
            "rmse": error,
            "seconds": seconds,
            "passes": seconds / one_pass,
            "gigabytes": peak_gigabytes(),
        }


METHODS = (
    "auto",
    "bias",
    "subspace",
    "svd",
    "power",
    "als",
    "cleansing",
    "frank-wolfe",
    "frank-wolfe-printed",
)


def _print(rows: Iterator[dict[str, Any]], targets: dict[float, float]) -> int:
    missed = 0
    for row in rows:
        bound = targets.get(row["epsilon"]) if row["method"] == "auto" else None
        verdict = "" if bound is None else f"target {bound:g} {'ok' if row['rmse'] <= bound else 'MISSED'}"
        missed += verdict.endswith("MISSED")
        print(
            f"{row['data']:22s} {row['method']:19s} ({row['ran']:8s}) epsilon {row['epsilon']:<4g} "
            f"rmse {row['rmse']:.4f} (largest {row['largest']:.4f}) {row['seconds']:6.1f} s  {verdict}",
            flush=True,
        )
    return missed


def main(arguments: Sequence[str] = ()) -> int:
    """Print tables; the exit code says whether every target was reached.

    Without arguments: targets and curves of ``auto`` and ``bias``, in minutes. ``full``: all methods, 400 items,
    references without privacy, higher ranks. ``scale``: a million users and ten thousand items.
    """
    if "scale" in arguments:
        for row in at_scale():
            print(
                "  ".join(f"{key} {value:.4g}" if key != "method" else value for key, value in row.items()),
                flush=True,
            )
        return 0
    full = "full" in arguments
    missed = _print(
        measure(rank_one(), ("auto",), (0.1, 1.0, 5.0), 10 if full else 2), TARGETS["rank one", 0.0]
    )
    for n_items, rank in ((900, 1), (400, 5), (400, 20)) if full else ():
        _print(measure(rank_one(n_items=n_items, rank=rank), ("auto", "svd", "bias"), (0.1, 1.0, 5.0)), {})
    for name, holdout in (("movielens1m", 0.1), ("jester1", 0.01), ("movielens100k", 0.1)):
        try:
            task = real(name, holdout)
        except (data.MissingData, FileNotFoundError) as error:
            print(f"skipped {name}: {error}")
            continue
        targets = TARGETS.get((name, holdout), {})
        epsilons = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
        missed += _print(
            measure(task, METHODS if full else ("auto", "bias"), epsilons, 1 if full else 3), targets
        )
        print(f"{name:22s} without privacy rmse {reference(task):.4f}")
        if name == "movielens1m":
            for method in ("auto", "bias"):
                model = PrivateMatrixCompletion(method, 1.0, DELTA, rating_bounds=task.bounds).fit(task.train)
                print(f"{name:22s} {method:19s} epsilon 1 NDCG@10 {ranking(task, model, n_users=300):.4f}")
            if full:
                _print(measure(most_rated(task), METHODS, epsilons), {})
    print(f"peak memory {peak_gigabytes():.1f} GB")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
