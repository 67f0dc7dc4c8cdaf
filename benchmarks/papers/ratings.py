"""Recommenders: RMSE of held-out ratings against epsilon (dissertation, Figures 6.2 and 6.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.papers.datasets import MissingData, data_file
from benchmarks.papers.methods import fit_quietly
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run, promise_of, without_data

Array = NDArray[np.float64]
_DELTA = 1e-6
_BLOCK = 5_000  # users predicted at a time
_TESTED = 50_000  # users whose held-out ratings are predicted, of generated data
_ALMOST_NONE = 1e4  # the epsilon of "almost no noise"


@dataclass(frozen=True)
class Ratings:
    """Ratings to learn from, and (user, item, rating) triples to predict, sorted by user."""

    name: str
    train: Any
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    values: Array
    bounds: tuple[float, float]

    def rmse(self, model: Any) -> float:
        """Root of the mean squared error of the held-out ratings, each user's row given."""
        squares = 0.0
        for first in range(0, int(self.users[-1]) + 1, _BLOCK):
            begin, end = np.searchsorted(self.users, [first, first + _BLOCK])
            if begin < end:
                block = model.predict(self.train[first : first + _BLOCK])
                own = block[self.users[begin:end] - first, self.items[begin:end]]
                squares += float(np.sum((own - self.values[begin:end]) ** 2))
        return float(np.sqrt(squares / len(self.values)))


def rank_one(n_users: int, n_items: int, seed: int, per_user: int = 80) -> Ratings:
    """Outer products of uniform numbers; a user rates one item of each of about ``per_user`` groups of items."""
    rng = np.random.default_rng(seed)
    width = -(-n_items // per_user)
    groups = n_items // width
    left, right = rng.uniform(-1, 1, n_users), rng.uniform(-1, 1, n_items)
    begins = np.arange(groups, dtype=np.int32) * width
    chosen = rng.integers(0, width, size=(n_users, groups), dtype=np.int32)
    items = chosen + begins
    train = sp.csr_array(
        ((left[:, None] * right[items]).ravel(), items.ravel(), np.arange(0, items.size + 1, groups)),
        shape=(n_users, n_items),
    )
    tested = min(n_users, _TESTED)
    held = ((chosen[:tested, :2] + 1) % width + begins[:2]).astype(np.int64)  # items that were not rated
    users = np.repeat(np.arange(tested), 2)
    return Ratings(
        f"rank one, {n_items} items",
        train,
        users,
        held.ravel(),
        left[users] * right[held.ravel()],
        (-1.0, 1.0),
    )


def real(
    name: str, bounds: tuple[float, float], held_out: float, most_rated: int | None, seed: int
) -> Ratings:
    """A real set, a random part of its ratings held out; optionally its most-rated items only, declared public."""
    with np.load(data_file(f"{name}.npz"), allow_pickle=False) as file:
        user, item, rating = (file[key] for key in ("user", "item", "rating"))
        n_users, n_items = int(file["n_users"]), int(file["n_items"])
    if most_rated is not None and most_rated < n_items:
        kept = np.sort(np.argsort(-np.bincount(item, minlength=n_items), kind="stable")[:most_rated])
        inside = np.isin(item, kept)
        user, rating, n_items = user[inside], rating[inside], most_rated
        item = np.searchsorted(kept, item[inside])
    rng = np.random.default_rng(seed)
    held = rng.random(len(rating)) < held_out
    train = sp.csr_array(
        sp.coo_array((rating[~held].astype(float), (user[~held], item[~held])), shape=(n_users, n_items))
    )
    order = np.argsort(user[held], kind="stable")
    users, items = (part[held][order].astype(np.int64) for part in (user, item))
    return Ratings(name, train, users, items, rating[held][order].astype(float), bounds)


@dataclass(frozen=True)
class Source:
    """Where the ratings of one plot come from: a generator, or a file that may be a stand-in."""

    used: str
    items: int | None
    bounds: tuple[float, float] = (1.0, 5.0)
    repeats: int = 3

    def load(self, seed: int, quick: bool) -> Ratings:
        """The ratings of one repeat."""
        if self.used == "generated":
            return rank_one(3_000 if quick else 500_000, 40 if quick else self.items or 400, seed)
        return real(self.used, self.bounds, 0.01, self.items, seed)


_LABELS = {
    "auto": "discreet, automatic",
    "frank-wolfe": "Frank-Wolfe, corrected",
    "frank-wolfe-printed": "Frank-Wolfe as printed (Algorithm 13)",
    "pgd": "projected gradient (Algorithm 16)",
    "cleansing": "SVD after cleansing (McSherry and Mironov)",
    "almost no noise": "automatic, almost no noise",
}
SOURCES = {
    "synthetic, 400 items": Source("generated", 400, repeats=1),
    "synthetic, 900 items": Source("generated", 900, repeats=1),
    "jester": Source("jester1", None, (-10.0, 10.0)),
    "movielens10m, 400 items": Source("movielens1m", 400),
    "movielens10m, 900 items": Source("movielens1m", 900),
    "movielens100k": Source("movielens100k", 400),
    "netflix, 400 items": Source("netflix", 400),
    "yahoo music, 400 items": Source("yahoo", 400, (0.0, 5.0)),
}


@dataclass(frozen=True)
class Recommenders:
    """RMSE of private matrix completion against epsilon."""

    name: str = "recommenders"
    title: str = (
        "Recommenders: RMSE against epsilon, user level, delta 1e-6 (dissertation, Figures 6.2 and 6.3)"
    )
    axis: str = ""
    epsilons: Sequence[float] = (0.1, 0.5, 1.0, 5.0)
    methods: Sequence[str] = tuple(_LABELS)
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Everything to run, data set by data set."""
        for dataset, source in SOURCES.items():
            if not effort.wants(dataset) or (effort.quick and dataset != "synthetic, 400 items"):
                continue
            used = dataset if source.used == "generated" else source.used
            for seed in effort.seeds(source.repeats):
                try:
                    _ratings(dataset, seed, effort.quick)
                except MissingData as error:
                    row = Row(self.name, dataset, "", 0.0, 0, used, metric="RMSE", quick=effort.quick)
                    yield without_data(row, error)
                    break
                for method in self.methods:
                    none = method == "almost no noise"
                    for epsilon in (0.0,) if none else self.epsilons:
                        row = Row(
                            self.name,
                            dataset,
                            _LABELS[method],
                            epsilon,
                            seed,
                            used,
                            metric="RMSE",
                            protocol="non-private" if none else "defaults",
                            quick=effort.quick,
                        )
                        yield Run(row, lambda r=row, m=method: self._run(r, m))  # type: ignore[misc]

    def _run(self, row: Row, method: str) -> Row:
        from discreet import PrivateMatrixCompletion

        ratings = _ratings(row.dataset, row.seed, row.quick)
        none = row.epsilon == 0
        model = PrivateMatrixCompletion(
            "auto" if none else method,
            _ALMOST_NONE if none else row.epsilon,
            _DELTA,
            rating_bounds=ratings.bounds,
        )
        begin = time.perf_counter()
        try:
            fit_quietly(model, ratings.train)
        except ValueError as error:
            return replace(row, status=f"refused: {error}")
        seconds = time.perf_counter() - begin
        return replace(
            row,
            value=ratings.rmse(model),
            promise=None if none else promise_of(model),
            extra={"seconds": round(seconds, 2)},
        )


@lru_cache(maxsize=1)
def _ratings(dataset: str, seed: int, quick: bool) -> Ratings:
    return SOURCES[dataset].load(seed, quick)
