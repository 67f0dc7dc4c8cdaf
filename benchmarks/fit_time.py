"""How long a private fit takes over scikit-learn's non-private one, on the data sets of the papers.

    python -m benchmarks.fit_time [--sets adult mnist ...] [--repeats 3] [--output FILE]

Both fit logistic regression with their defaults to the same rows, warm and in turns, so that they meet the same load.
They have the same number of threads: one, compared by processor seconds, and all that the machine has, compared
by elapsed seconds, which need a quiet machine. The ratio is that of the least seconds of each.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.papers.datasets import MissingData, splits
from discreet import PrivateLogisticRegression, PrivateSearchCV

SETS = (
    "adult",
    "kddcup99",
    "reuters_moneyfx",
    "clothing_reviews",
    "covtype",
    "mnist",
    "synthetic-L",
    "synthetic-H",
)


Clock = Callable[[], float]
_LONG = 20.0  # seconds of both fits; beyond, once is enough
_USABLE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
WAYS: tuple[tuple[int, Clock, str], ...] = (
    (1, time.process_time, "Processor seconds, one thread:"),
    (_USABLE, time.perf_counter, f"Elapsed seconds, {_USABLE} threads:"),
)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Give both libraries this many threads: BLAS and OpenMP by their limit, our own by the variable they read."""
    with mock.patch.dict(os.environ, OMP_NUM_THREADS=str(number)), threadpool_limits(number):
        yield


def seconds(fit: Callable[[], Any], clock: Clock = time.process_time) -> float:
    """Processor seconds of one fit, or those of another clock."""
    began = clock()
    fit()
    return clock() - began


def compared(name: str, repeats: int, epsilon: float = 1.0) -> tuple[str, list[tuple[float, float]]]:
    """The data and the solver, and the least seconds of the private and of the other fit by each of the `WAYS`."""
    split = next(splits(name, range(1)))
    private = PrivateLogisticRegression(epsilon, split.delta, classes=split.classes)
    other = LogisticRegression(max_iter=200)
    X, y = split.X_train, split.y_train
    rows, columns = X.shape
    plan = private.plan(rows, columns, len(split.classes), sparse=sp.issparse(X))
    solver = plan.reason.partition(",")[0]
    private.fit(X[:2000], y[:2000])  # compiles what is compiled
    private.fit(X, y)
    found = []
    for number, clock, _ in WAYS:
        ours, theirs = [], []
        with threads(number):
            for _ in range(repeats):
                ours.append(seconds(lambda: private.fit(X, y), clock))
                theirs.append(seconds(lambda: other.fit(X, y), clock))
                if ours[-1] + theirs[-1] > _LONG:
                    break
        found.append((min(ours), min(theirs)))
    return f"| {name} | {rows} | {columns} | {solver} |", found


def searched(method: str, repeats: int) -> tuple[float, float]:
    """The median seconds of a search of two candidates, whose number of tries is random, and the least of one fit."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (7043, 2))
    y = (X[:, 0] + rng.normal(size=len(X)) > 0).astype(int)
    model = PrivateLogisticRegression(1.0, classes=[0, 1])
    search = PrivateSearchCV(model, {"feature_bound": [1.0, 2.0]}, method=method)
    for one in (model, search):
        one.fit(X, y)
    fits = [seconds(lambda: model.fit(X, y)) for _ in range(repeats)]
    return float(np.median([seconds(lambda: search.fit(X, y)) for _ in range(4 * repeats)])), min(fits)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--output", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for name in arguments.sets:
        try:
            results.append(compared(name, arguments.repeats))
        except MissingData as missing:
            results.append((f"| {name} | | | {missing} |", []))
        print(*results[-1], flush=True)
    heads = [
        "| data | rows | columns | solver | private | scikit-learn | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    lines = [
        "# Time of private fits",
        "",
        f"Written by `python -m benchmarks.fit_time`: warm fits at epsilon 1, the least of {arguments.repeats} in "
        f"turns (one if both take more than {_LONG:g} s together), both with the same number of threads.",
    ]
    for way, (_, _, title) in enumerate(WAYS):
        lines += ["", title, "", *heads]
        for data, found in results:
            ours, theirs = found[way] if found else (math.nan, math.nan)
            lines.append(f"{data} {ours:.3g} s | {theirs:.3g} s | {ours / theirs:.2f} |")
    lines += [
        "",
        "A search among two candidates, 7,043 rows of 2 columns, against one fit of the same model:",
        "",
        "| method | search | fit | ratio |",
        "|---|---|---|---|",
    ]
    for method in ("split", "tries"):
        with threads(1):
            search, fit = searched(method, arguments.repeats)
        lines.append(f"| {method} | {search:.3g} s | {fit:.3g} s | {search / fit:.1f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
