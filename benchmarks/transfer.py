"""Model-agnostic private learning: stability needed, speed of long streams, and students on real data.

``python -m benchmarks.transfer stability`` compares the stability that sparse vector needs with the constants
printed in the dissertation; ``stream`` answers a million questions; ``teachers`` trains a thousand of them;
``kddcup99``, ``covtype`` and ``fertility`` train students at epsilon 1, delta 1e-6; ``all`` does everything
(some minutes). ``measure(part)`` returns the same numbers for other reports. Data are found through
DISCREET_DATA.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.data import VARIABLE, MissingData
from discreet import PrivateLogisticRegression, PrivateTransferClassifier
from discreet._console import note, table
from discreet.mechanisms.entropy import fresh_entropy
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.transfer.aggregation import StableVotes

EPSILON, DELTA, BETA = 1.0, 1e-6, 0.05
SETTINGS = ((1, 100, 1.0), (10, 1_000, 1.0), (20, 1_000, 0.5), (50, 2_000, 3.0), (100, 10_000, 1.0))
N_TEST = 20_000

Row = dict[str, Any]
Data = tuple[NDArray[np.float32], NDArray[np.int64]]


def printed_stability(times: int, queries: int, epsilon: float) -> float:
    """What the dissertation's constants need: 8 lambda log(4 m T / min(delta, beta / 2)), chapter 5."""
    scale = math.sqrt(32 * times * math.log(2 / DELTA)) / epsilon
    return 8 * scale * math.log(4 * queries * times / min(DELTA, BETA / 2))


def stability_table() -> list[Row]:
    """Distance at which all stable questions are answered with probability 95%, printed and ours."""
    rows = []
    for times, queries, epsilon in SETTINGS:
        vector = SparseVector.calibrated(epsilon, DELTA, times, queries, BETA)
        needed = vector.distance_needed(queries, BETA)
        printed = printed_stability(times, queries, epsilon)
        rows.append(
            {
                "T": times,
                "questions": queries,
                "epsilon": epsilon,
                "printed": round(printed),
                "ours": needed,
                "factor": round(printed / needed, 1),
                "threshold": "renewed" if vector.refresh else "kept",
            }
        )
    return rows


def stream_speed() -> list[Row]:
    """Seconds to answer a stream of votes of 2,000 teachers on 10 classes, and the largest memory so far."""
    rows = []
    generator = np.random.default_rng(0)
    StableVotes(SparseVector.calibrated(EPSILON, DELTA, 1, 1)).start(fresh_entropy())  # compile
    for queries in (100_000, 1_000_000):
        counts = np.zeros((queries, 10), dtype=np.uint16)
        agreeing = generator.integers(1_700, 2_000, size=queries)
        counts[:, 0], counts[:, 1] = agreeing, 2_000 - agreeing
        aggregator = StableVotes(SparseVector.calibrated(EPSILON, DELTA, 20, queries, BETA))
        begin = time.perf_counter()
        codes = aggregator.start(fresh_entropy()).answer(counts)
        seconds = time.perf_counter() - begin
        rows.append(
            {
                "questions": queries,
                "answered": int((codes >= 0).sum()),
                "seconds": round(seconds, 2),
                "microseconds each": round(1e6 * seconds / queries, 2),
                "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    return rows


def many_teachers() -> list[Row]:
    """A thousand teachers: seconds, and how much the largest memory grew."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200_000, 20)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
    public = generator.normal(size=(2_000, 20)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    tree = DecisionTreeClassifier(max_depth=5)
    model = PrivateTransferClassifier(
        tree, n_teachers=1000, delta=DELTA, classes=[0, 1], aggregator="plurality"
    )
    model.fit(X, y, public)
    seconds = time.perf_counter() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return [{"teachers": 1000, "records": 200_000, "seconds": round(seconds, 1), "grown MB": grown}]


@dataclass(frozen=True)
class Study:
    """One data set: how it is read and the public choices made for it before any run."""

    load: Callable[[Path], Data]
    parameters: dict[str, Any]
    n_queries: int = 5_000


def _kddcup99(folder: Path) -> Data:
    path = folder / "kddcup99.npz"
    return sp.load_npz(path).toarray().astype(np.float32), (np.load(path)["y"] == 1).astype(np.int64)


def _covtype(folder: Path) -> Data:
    with np.load(folder / "covtype.npz") as file:
        return file["X"].astype(np.float32), (file["y"] == 2).astype(np.int64)


def _fertility(folder: Path) -> Data:
    import pandas as pd

    frame = pd.read_parquet(folder / "fertility_census1980.parquet")
    y = (frame.pop("morekids") == "yes").to_numpy().astype(np.int64)
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype("category").cat.codes
    return frame.to_numpy().astype(np.float32), y


STUDIES = {
    "kddcup99": Study(_kddcup99, {}),
    "covtype": Study(_covtype, {"aggregator": "plurality"}),
    "fertility": Study(_fertility, {"aggregator": "plurality"}, 2_000),
}
TEACHERS = {
    "boosting": HistGradientBoostingClassifier(
        max_iter=30,
        learning_rate=0.2,
        max_leaf_nodes=8,
        min_samples_leaf=5,
        max_features=0.2,
        early_stopping=False,
    ),
    "forest": RandomForestClassifier(20),
}
STUDENTS = {
    "boosting": HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=16, l2_regularization=10.0, early_stopping=False
    ),
    "forest": RandomForestClassifier(200, min_samples_leaf=5, max_features=0.4),
}
FULL = {"boosting": HistGradientBoostingClassifier(), "forest": RandomForestClassifier(50, max_samples=0.2)}


def student(name: str, kind: str, seed: int = 0, full: bool = True) -> Row:
    """Accuracy, in percent, of one student and of what it is compared with."""
    X, y = _load(name)
    order = np.random.default_rng(seed).permutation(len(y))
    test, public, private = np.split(order, [N_TEST, N_TEST + STUDIES[name].n_queries])
    learner = FULL[kind] if name == "kddcup99" else STUDENTS[kind]  # an easy task, and two noisy ones
    begin = time.perf_counter()
    model = PrivateTransferClassifier(
        TEACHERS[kind],
        student=learner,
        epsilon=EPSILON,
        delta=DELTA,
        classes=[0, 1],
        random_state=seed,
        **STUDIES[name].parameters,
    ).fit(X[private], y[private], X[public])
    seconds = time.perf_counter() - begin
    answered = np.array([label is not None for label in model.labels_])
    right = model.labels_[answered].astype(int) == y[public][answered]
    row: Row = {
        "data": name,
        "model": kind,
        "aggregator": model.plan_.aggregator.name,
        "teachers": model.plan_.n_teachers,
        "answered": f"{answered.sum()}/{len(public)}",
        "labels right": _percent(right.mean()) if len(right) else "-",
        "student": _percent(model.score(X[test], y[test])),
        "on true labels": _percent(_score(learner, X, y, public, test)),
        "seconds": round(seconds),
    }
    if full:
        row["all records, not private"] = _percent(_score(FULL[kind], X, y, private, test))
        row["private logistic"] = _percent(_convex(X, y, private, test))
        row["majority"] = _percent(max(y[test].mean(), 1 - y[test].mean()))
    return row


@lru_cache(maxsize=1)
def _load(name: str) -> Data:
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise MissingData(f"set {VARIABLE} to the folder that holds {name}")
    return STUDIES[name].load(Path(folder))


def _convex(X: Any, y: Any, train: Any, test: Any) -> float:
    """The private logistic regression at the same budget, columns divided by constants treated as public."""
    scale = np.abs(X).max(axis=0)
    scale[scale == 0] = 1.0
    model = PrivateLogisticRegression(EPSILON, DELTA, classes=[0, 1]).fit(X[train] / scale, y[train])
    return float(model.score(X[test] / scale, y[test]))


def _score(model: Any, X: Any, y: Any, train: Any, test: Any) -> float:
    return float(clone(model).fit(X[train], y[train]).score(X[test], y[test]))


def _percent(value: float) -> float:
    return round(100 * float(value), 2)


PARTS: dict[str, Callable[[], list[Row]]] = {
    "stability": stability_table,
    "stream": stream_speed,
    "teachers": many_teachers,
}


def measure(part: str) -> list[Row]:
    """The rows of one table."""
    return [student(part, kind) for kind in TEACHERS] if part in STUDIES else PARTS[part]()


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description="Measure model-agnostic private learning.")
    parser.add_argument(
        "parts", nargs="*", default=["stability", "stream"], choices=[*PARTS, *STUDIES, "all"]
    )
    parser.add_argument("--model", choices=tuple(TEACHERS), help="one kind of model only")
    parser.add_argument("--no-full", action="store_true", help="skip the non-private model on all records")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default 0)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    for part in [*PARTS, *STUDIES] if "all" in arguments.parts else arguments.parts:
        try:
            if part not in STUDIES:
                _print(part, measure(part))
                continue
            for kind in (arguments.model,) if arguments.model else tuple(TEACHERS):
                _print(part, [student(part, kind, arguments.seed, not arguments.no_full)])
        except (MissingData, FileNotFoundError) as missing:
            note(f"{part} skipped: {missing}")


def _print(title: str, rows: list[Row]) -> None:
    table(title, list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
