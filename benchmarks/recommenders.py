"""Private matrix completion on synthetic and real ratings: RMSE, ranking, memory and time.

    python -m benchmarks.recommenders PIECE [--minutes M]     measure a piece; what is measured already is skipped
    python -m benchmarks.recommenders report                  write results/recommenders.md from all rows so far
    python -m benchmarks.recommenders                         the targets only, few runs, nothing written

Pieces: see `PIECES`, and scale-profile, scale-power, scale-subspace, each of which wants a process of its own because
it reports peak memory. Every measured cell is one line of results/recommenders.jsonl, which is only ever appended to.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import data, recommender_report
from benchmarks.recommender_tasks import (
    Score,
    Task,
    as_clicks,
    dense_block,
    low_rank,
    most_rated,
    own_means,
    real,
    score,
    without_privacy,
)
from discreet import PrivateMatrixCompletion
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.recommend.methods import power, profile, subspace
from discreet.recommend.metrics import rmse
from discreet.recommend.ratings import read
from discreet.solvers import components

Array = NDArray[np.float64]
Row = dict[str, Any]
DELTA = 1e-6
ROWS = Path(__file__).parent / "results" / "recommenders.jsonl"
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
METHODS = (
    "auto",
    "bias",
    "profile",
    "subspace",
    "svd",
    "power",
    "oja",
    "als",
    "cleansing",
    "frank-wolfe",
    "frank-wolfe-printed",
    "pgd",
)
SYNTHETIC = ("rank 1, 900 items", "rank 5, 400 items", "rank 20, 400 items", "rank 1, 400 items")
FEWER_USERS = tuple(f"{name}, 100000 users" for name in SYNTHETIC)  # for all rivals: some take ten passes
CLICKS = ("movielens1m, clicks", "jester1, clicks")
CLICK_METHODS = ("auto", "bias", "subspace", "power", "als")
COMPARED = ("auto", "bias")
# Thakkar (2019), chapter 6, with MovieLens 1M for 10M and Jester 1 for Jester; a split per run.
CHAPTER = "movielens1m, 400 items, 1%", "movielens100k, 400 items, 1%", "jester1, 100 items, 1%"
PRINTED = ("cleansing", "frank-wolfe", "frank-wolfe-printed", "pgd")
OWN_MEAN = "no release: each user's own mean"
BLOCKS = ("block, 1200 x 1200, 77%", "block, 3000 x 400, 60%")  # of which the density is declared
# Held-out part: targets are stated for 10% of MovieLens and 1% of Jester.
HOLDOUT = {"movielens1m": 0.1, "movielens100k": 0.1, "jester1": 0.01, "filmtrust": 0.1, "flixster3k": 0.1}


@dataclass(frozen=True)
class Cell:
    """One fit to measure."""

    data: str
    method: str
    epsilon: float
    run: int

    @property
    def key(self) -> tuple[str, str, float, int]:
        """What tells it from other cells."""
        return self.data, self.method, self.epsilon, self.run


def cells(names: Sequence[str], methods: Sequence[str], epsilons: Sequence[float], runs: int) -> list[Cell]:
    """All combinations, first runs first."""
    return [
        Cell(name, method, epsilon, run)
        for run in range(runs)
        for name in names
        for method in methods
        for epsilon in epsilons
    ]


PIECES: dict[str, list[Cell]] = {
    "rank-one": cells(("rank 1, 400 items",), ("auto",), (0.1, 1.0, 5.0), 10),
    "synthetic": cells(SYNTHETIC, ("auto",), (0.1, 1.0, 5.0), 1)
    + cells(SYNTHETIC, ("bias", "svd"), (0.1, 1.0, 5.0), 1),
    "fewer-users": cells(
        FEWER_USERS, ("auto", "bias", "svd", "als", "frank-wolfe", "frank-wolfe-printed"), (0.1, 1.0, 5.0), 1
    ),
    "movielens1m": cells(("movielens1m",), COMPARED, EPSILONS, 3)
    + cells(("movielens1m",), METHODS, EPSILONS, 1),
    "movielens100k": cells(("movielens100k",), COMPARED, EPSILONS, 10)
    + cells(("movielens100k",), METHODS, EPSILONS, 1),
    "jester": cells(("jester1",), COMPARED, EPSILONS, 3) + cells(("jester1",), METHODS, EPSILONS, 1),
    "top-400": cells(("movielens1m, 400 items",), COMPARED, EPSILONS, 3)
    + cells(("movielens1m, 400 items",), METHODS, EPSILONS, 1),
    "chapter-6": cells(CHAPTER, ("auto", OWN_MEAN, *PRINTED), (1.0, 5.0), 3),
    "blocks": cells(BLOCKS, ("auto", "profile", "subspace", "svd"), (1.0, 3.0, 5.0, 10.0), 3),
    "unseen": cells(("filmtrust", "flixster3k"), COMPARED, EPSILONS, 40),
    "clicks": cells(CLICKS, CLICK_METHODS, EPSILONS, 1) + cells(CLICKS, COMPARED, EPSILONS, 3),
    "references": [
        Cell(name, f"no privacy: {method}", float("inf"), 0)
        for name in ("movielens100k", "jester1", "movielens1m, 400 items", "movielens1m")
        for method in ("bias", *(f"als {rank} {penalty:g}" for rank in (10, 20) for penalty in (12.0, 30.0)))
    ],
}
SCALES = ("profile", "power", "subspace")


@lru_cache(maxsize=1)
def task_of(name: str, run: int) -> Task:
    """The data of a cell; synthetic data are drawn anew for every run, real sets are split once."""
    if name in BLOCKS:
        n_users, n_items, percent = (int(number) for number in re.findall(r"\d+", name))
        return dense_block(n_users, n_items, percent / 100, seed=run)
    plain, _, kind = name.partition(", ")
    if name in CHAPTER:
        return most_rated(real(plain, 0.01, seed=run), int(kind.split()[0]))
    if plain.startswith("rank"):
        items, *users = (int(part.split()[0]) for part in kind.split(", "))
        return low_rank(users[0] if users else 500_000, items, rank=int(plain.split()[1]), seed=run)
    task = real(plain, HOLDOUT[plain])
    if kind == "clicks":
        return as_clicks(task)
    return most_rated(task, int(kind.split()[0])) if kind else task


def measure(task: Task, cell: Cell) -> Row:
    """Fit and score one cell."""
    begin = time.perf_counter()
    predict: Callable[[int, int], Array]
    if cell.method.startswith("no privacy"):
        _, _, how = cell.method.partition(": ")
        rank, penalty = (float(part) for part in how.split()[1:]) if how != "bias" else (0.0, 1.0)
        predict, ran = without_privacy(task, int(rank), penalty).predict, how
    elif cell.method == OWN_MEAN:
        predict, ran = partial(own_means, task.train, middle=float(np.mean(task.bounds))), "none"
    else:
        model = PrivateMatrixCompletion(
            cell.method,
            cell.epsilon,
            DELTA,
            rating_bounds=task.bounds,
            feedback="implicit" if task.clicks else "explicit",
            ratings_per_user=task.per_user,
        ).fit(task.train)
        predict, ran = lambda first, last: model.predict(task.train[first:last]), model.method_
    seconds = time.perf_counter() - begin
    result: Score = score(task, predict, ranked=cell.run < 3 and not task.name.startswith("rank"))
    row: Row = {
        "data": cell.data,
        "method": cell.method,
        "epsilon": cell.epsilon,
        "run": cell.run,
        "ran": ran,
        "seconds": round(seconds, 2),
    }
    if not task.clicks:
        row["rmse"] = result.rmse
    if result.ranking is not None:
        row |= result.ranking._asdict()
    return row


def read_rows() -> list[Row]:
    """Everything measured so far."""
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text().splitlines() if line.strip()]


def append(row: Row) -> None:
    """Add one measured row and print it."""
    ROWS.parent.mkdir(exist_ok=True)
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def measure_piece(name: str, minutes: float) -> bool:
    """Measure the cells of a piece that are missing until time is up; returns whether all are there now."""
    done = {(row["data"], row["method"], row["epsilon"], row["run"]) for row in read_rows() if "run" in row}
    deadline = time.monotonic() + 60 * minutes
    for cell in PIECES[name]:
        if cell.key in done:
            continue
        if time.monotonic() > deadline:
            return False
        done.add(cell.key)
        append(measure(task_of(cell.data, cell.run), cell))
    return True


def peak_gigabytes() -> float:
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def at_scale(method: str, n_users: int = 1_000_000, n_items: int = 10_000, per_user: int = 80) -> Row:
    """Seconds and memory of one fit, and seconds of its global steps beside one pass over the ratings."""
    rng = np.random.default_rng(0)
    width = n_items // per_user  # one item out of each of per_user groups: distinct and in order
    items = rng.integers(0, width, size=(n_users, per_user), dtype=np.int32)
    items += np.arange(per_user, dtype=np.int32) * width
    left, right = rng.uniform(-1, 1, n_users), rng.uniform(-1, 1, n_items)
    values = right[items]
    values *= left[:, None]
    starts = np.arange(0, n_users * per_user + 1, per_user, dtype=np.int32)
    train = sp.csr_array((values.ravel(), items.ravel(), starts), shape=(n_users, n_items))
    before = peak_gigabytes()
    model = PrivateMatrixCompletion(method, 1.0, DELTA, rank=4, rating_bounds=(-1, 1))
    begin = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - begin
    gigabytes = peak_gigabytes()
    return {
        "scale": method,
        "users": n_users,
        "items": n_items,
        "ratings": n_users * per_user,
        "rmse": rmse(left[:500, None] * right, model.predict(train[:500])),
        "seconds": round(seconds, 1),
        "gigabytes": round(gigabytes, 2),
        "gigabytes of data": round(before, 2),
        "steps": dict(_steps(model, train, method)),
    }


def _steps(model: PrivateMatrixCompletion, train: Any, method: str) -> Iterator[tuple[str, float]]:
    """Seconds of the global steps of a method, one by one, and of one pass over the ratings."""
    plan = model.plan(*train.shape)
    facts, ratings = plan.facts, read(train, model._reading()[0], None)[0]
    flat, ones = np.zeros(facts.n_items), np.ones(facts.n_items)

    def timed(step: Callable[[], Any]) -> tuple[float, Any]:
        begin = time.perf_counter()
        result = step()
        return round(time.perf_counter() - begin, 4), result

    def one_pass() -> Array:
        sums = np.zeros(facts.n_items)
        for begin, end in ratings.blocks():
            part = ratings.part(begin, end)
            sums += np.bincount(part.items, weights=part.values, minlength=facts.n_items)
        return sums

    yield "one pass over the ratings (item sums)", timed(one_pass)[0]
    yield "weighted item sums", timed(lambda: profile.weighted_sums(facts, ratings, ones, flat))[0]
    own = model.model_
    if method == "power":
        block = power.quantized_block(
            facts, np.linalg.qr(np.random.default_rng(0).normal(size=(len(flat), 4)))[0]
        )
        yield "product with 4 directions", timed(lambda: power.product(facts, ratings, own, ones, block))[0]  # type: ignore[arg-type]
    if method == "subspace":
        seconds, exact = timed(lambda: subspace.covariance(facts, ratings, own, ones))  # type: ignore[arg-type]
        yield "covariance", seconds
        mechanism = plan.mechanisms[f"{subspace.COVARIANCE} 0"]
        seconds, noisy = timed(lambda: mechanism.release(exact, fresh_entropy(), in_place=True))  # type: ignore[call-arg]
        yield "its noise", seconds
        yield "its directions", timed(lambda: components.spikes(noisy, mechanism.stddev, 4))[0]


def main(arguments: Sequence[str] = ()) -> int:
    """Measure or report; the exit code of a report says whether every target was reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.recommenders", description=__doc__)
    names = [*PIECES, *(f"scale-{name}" for name in SCALES), "report"]
    parser.add_argument("piece", nargs="?", choices=names)
    parser.add_argument("--minutes", type=float, default=8.0)
    given = parser.parse_args(arguments)
    if given.piece == "report":
        return recommender_report.write(read_rows())
    if given.piece is None:
        rows = [
            measure(task_of(name, run), Cell(name, "auto", epsilon, run))
            for (name, epsilon) in recommender_report.TARGETS
            for run in range(2)
        ]
        return recommender_report.print_targets(rows)
    try:
        if given.piece.startswith("scale-"):
            append(at_scale(given.piece.removeprefix("scale-")))
        elif not measure_piece(given.piece, given.minutes):
            print(f"time is up: run {given.piece} again to go on")
    except (data.MissingData, FileNotFoundError) as error:
        print(f"skipped {given.piece}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
