"""Rating data for the recommenders' benchmark: synthetic and real, with a part held out, and how predictions score."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import data
from discreet.recommend import kernels
from discreet.recommend.metrics import Ranking, ranking_at, rmse
from discreet.recommend.ratings import Scale, read

Array = NDArray[np.float64]
RANGES = {
    "movielens1m": (1.0, 5.0),
    "movielens100k": (1.0, 5.0),
    "jester1": (-10.0, 10.0),
    "filmtrust": (0.5, 4.0),
    "flixster3k": (0.5, 5.0),
}
_BLOCK = 2000  # users predicted at a time
_TESTED = 100_000  # users of synthetic data whose ratings are predicted
_RANKED = 2000  # users whose recommendations are scored


@dataclass(frozen=True)
class Task:
    """Ratings to learn from and (user, item, rating) triples to predict, sorted by user.

    per_user : how many ratings a user has, where that is declared.
    """

    name: str
    train: Any
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    ratings: Array
    bounds: tuple[float, float]
    clicks: bool = False
    per_user: int | None = None


@dataclass(frozen=True)
class Score:
    """Error of held-out ratings, and rankings of held-out liked items among all that are not in training."""

    rmse: float
    ranking: Ranking | None


def low_rank(
    n_users: int = 500_000, n_items: int = 400, per_user: int = 80, rank: int = 1, seed: int = 0
) -> Task:
    """Low-rank ratings scaled into [-1, 1]; two further items of each of the first 100,000 users are held out."""
    rng = np.random.default_rng(seed)
    left = rng.uniform(-1, 1, size=(n_users, rank))
    right = rng.uniform(-1, 1, size=(n_items, rank)) / rank
    chosen = np.empty((n_users, per_user + 2), dtype=np.int32)
    values = np.empty(chosen.shape)
    for start in range(0, n_users, 20_000):
        rows = slice(start, min(start + 20_000, n_users))
        keys = rng.random((rows.stop - rows.start, n_items), dtype=np.float32)
        chosen[rows] = np.argpartition(keys, per_user + 2, axis=1)[:, : per_user + 2]
        values[rows] = np.einsum("ir,ijr->ij", left[rows], right[chosen[rows]])
    starts = np.arange(0, n_users * per_user + 1, per_user)
    train = sp.csr_array(
        (values[:, :per_user].ravel(), chosen[:, :per_user].ravel(), starts), shape=(n_users, n_items)
    )
    train.sort_indices()
    tested = min(n_users, _TESTED)
    users, held = np.repeat(np.arange(tested), 2), chosen[:tested, per_user:].ravel().astype(np.int64)
    name, true = f"rank {rank}, {n_items} items", values[:tested, per_user:].ravel()
    return Task(name, train, users, held, true, (-1.0, 1.0))


def dense_block(n_users: int, n_items: int, density: float, seed: int = 0) -> Task:
    """Ratings from 1 to 5 of most items by most users: effects of both, four latent directions, noise; 5% held out."""
    rng = np.random.default_rng([seed, n_users, n_items])
    taste = rng.normal(size=(n_users, 4)) @ rng.normal(size=(4, n_items)) / 2
    effects = 0.35 * rng.normal(size=n_items) + 0.35 * rng.normal(size=(n_users, 1))
    ratings = 3.4 + effects + 0.4 * taste + 0.7 * rng.normal(size=taste.shape)
    ratings = np.clip(np.round(ratings), 1.0, 5.0)
    seen = rng.random(taste.shape) < density
    held = seen & (rng.random(taste.shape) < 0.05)
    train = sp.csr_array(np.where(seen & ~held, ratings, 0.0))
    users, items = np.nonzero(held)
    declared = int(density * n_items)
    return Task("block", train, users, items, ratings[held], (1.0, 5.0), per_user=declared)


def own_means(train: Any, first: int, last: int, middle: float) -> Array:
    """What users can predict without any release: the mean of their own ratings, the middle without one."""
    rows = train[first:last]
    counts = np.diff(rows.indptr)
    means = np.where(counts > 0, np.asarray(rows.sum(axis=1)).ravel() / np.maximum(counts, 1), middle)
    return np.repeat(means[:, None], train.shape[1], axis=1)


def real(name: str, holdout: float, seed: int = 0) -> Task:
    """A real set, a random part of its ratings held out."""
    with np.load(Path(_folder()) / f"{name}.npz", allow_pickle=False) as file:
        user, item = file["user"].astype(np.int64), file["item"].astype(np.int64)
        rating = file["rating"].astype(np.float64)
        shape = int(file["n_users"]), int(file["n_items"])
    order = np.random.default_rng(seed).permutation(len(rating))
    test, train = np.split(order, [round(holdout * len(rating))])
    train = train[np.lexsort((item[train], user[train]))]
    test = test[np.argsort(user[test], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(user[train], minlength=shape[0]))])
    matrix = sp.csr_array((rating[train], item[train], starts), shape=shape)
    return Task(name, matrix, user[test], item[test], rating[test], RANGES[name])


def _folder() -> str:
    folder = os.environ.get(data.VARIABLE)
    if not folder:
        raise data.MissingData(f"set {data.VARIABLE} to the folder that holds the rating files")
    return folder


def most_rated(task: Task, n_items: int = 400) -> Task:
    """The task restricted to its most-rated items, a choice that is declared public."""
    chosen = np.sort(np.argsort(-np.bincount(task.train.indices, minlength=task.train.shape[1]))[:n_items])
    place = np.full(task.train.shape[1], -1)
    place[chosen] = np.arange(n_items)
    kept = place[task.items] >= 0
    train = sp.csr_array(task.train[:, chosen])
    train.sort_indices()
    name = f"{task.name}, {n_items} items"
    return Task(name, train, task.users[kept], place[task.items[kept]], task.ratings[kept], task.bounds)


def as_clicks(task: Task) -> Task:
    """Ratings above the middle of the range, as clicks."""
    middle = sum(task.bounds) / 2
    train = task.train.tocoo()
    kept, liked = train.data > middle, task.ratings > middle
    rows, columns = (part[kept] for part in train.coords)
    matrix = sp.csr_array((np.ones(int(kept.sum())), (rows, columns)), shape=train.shape)
    return replace(
        task,
        name=f"{task.name}, clicks",
        train=matrix,
        users=task.users[liked],
        items=task.items[liked],
        ratings=task.ratings[liked],
        clicks=True,
    )


def score(task: Task, predict: Callable[[int, int], Array], *, ranked: bool = True) -> Score:
    """Score ``predict(first, last)``, the dense predictions of users first..last-1, block by block."""
    predicted, rankings = np.empty(len(task.ratings)), []
    liked = task.ratings > sum(task.bounds) / 2
    order = np.random.default_rng(0).permutation(np.unique(task.users[liked]))
    chosen = set(order[: _RANKED if ranked else 0].tolist())
    for start in range(0, task.train.shape[0], _BLOCK):
        stop = min(start + _BLOCK, task.train.shape[0])
        begin, end = np.searchsorted(task.users, [start, stop])
        if begin == end:
            continue
        block = predict(start, stop)
        predicted[begin:end] = block[task.users[begin:end] - start, task.items[begin:end]]
        for user in sorted(chosen.intersection(range(start, stop))):
            scores = block[user - start]
            scores[task.train.indices[task.train.indptr[user] : task.train.indptr[user + 1]]] = -np.inf
            own = slice(*np.searchsorted(task.users, [user, user + 1]))
            rankings.append(ranking_at(scores, task.items[own][liked[own]]))
    mean = Ranking(*(float(np.mean(part)) for part in zip(*rankings, strict=True))) if rankings else None
    return Score(float("nan") if task.clicks else rmse(task.ratings, predicted), mean)


@dataclass(frozen=True)
class Reference:
    """Biases and, with a rank, alternating least squares without privacy."""

    mean: float
    user_bias: Array
    item_bias: Array
    left: Array
    right: Array
    scale: Scale

    def predict(self, first: int, last: int) -> Array:
        """Dense predictions of users first..last-1."""
        raw = self.mean + self.user_bias[first:last, None] + self.item_bias
        return self.scale.outside(raw + self.left[first:last] @ self.right.T)


def without_privacy(task: Task, rank: int, penalty: float, sweeps: int = 10) -> Reference:
    """Alternate ridge regressions of users and items, biases first, from a random start."""
    scale = Scale(*task.bounds)
    rows = read(task.train, scale, None)[0].part(0, task.train.shape[0])
    columns = read(task.train.T.tocsr(), scale, None)[0].part(0, task.train.shape[1])
    n_users, n_items = task.train.shape
    item_bias, user_bias = np.zeros((n_items, 1)), np.zeros((n_users, 1))
    one, five = np.ones((max(n_users, n_items), 1)), np.array([5.0])
    mean = float(rows.values.mean())
    for _ in range(5):
        base = mean + item_bias[:, 0]
        kernels.coefficients(rows.starts, rows.items, rows.values, base, one, five, user_bias)
        base = mean + user_bias[:, 0]
        kernels.coefficients(columns.starts, columns.items, columns.values, base, one, five, item_bias)
    own = user_bias[np.repeat(np.arange(n_users), np.diff(rows.starts)), 0]
    other = item_bias[np.repeat(np.arange(n_items), np.diff(columns.starts)), 0]
    by_user = rows.values - mean - own - item_bias[rows.items, 0]
    by_item = columns.values - mean - other - user_bias[columns.items, 0]
    right = 0.1 * np.random.default_rng(0).normal(size=(n_items, max(rank, 1)))
    left = np.zeros((n_users, max(rank, 1)))
    ridge = np.full(max(rank, 1), penalty)
    for _ in range(sweeps if rank else 0):
        right *= 0.3 / (np.sqrt((right**2).mean()) + 1e-12)
        kernels.coefficients(rows.starts, rows.items, by_user, np.zeros(n_items), right, ridge, left)
        kernels.coefficients(columns.starts, columns.items, by_item, np.zeros(n_users), left, ridge, right)
    return Reference(mean, user_bias[:, 0], item_bias[:, 0], left, right, scale)
