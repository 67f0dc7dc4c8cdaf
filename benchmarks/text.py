"""Wide sparse rows: classifiers of texts, two sums of classes, models of 30 columns, the LASSO, an intercept's time.

Run ``python -m benchmarks.text``, which writes ``results/text.md``; the texts need DISCREET_DATA. ``--splits`` says how
many random splits (80% for training) each figure is a mean of, ``--parts`` and ``--sets`` what is measured anew; other
rows stay as ``results/text.json`` has them. The settings are defaults throughout.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks import text_recipe
from benchmarks.papers.datasets import data_file
from discreet import (
    PrivateLasso,
    PrivateLogisticRegression,
    PrivateSparseLogisticRegression,
    __version__,
)
from discreet.estimators.pipelines import SquareRootRows
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.records.arrays import ArrayRecords
from discreet.solvers.class_sums import refocused
from discreet.solvers.vertices.frank_wolfe import FrankWolfe
from discreet.solvers.vertices.frank_wolfe_vertices import FullSteps

RESULTS = Path(__file__).parent / "results" / "text.md"
SETS = "pcmac", "clothing_reviews", "sector", "news20"
RELATIONS = {"replace-one": "RO", "add-remove-one": "AR"}
BORDERS = {"news20": 10, "sector": 52}  # labels from here on are the second class; else the largest label is


@lru_cache(maxsize=1)
def texts(name: str) -> tuple[Any, Any]:
    """Rows of norm 1 in CSR, and two classes."""
    path = data_file(f"{name}.npz")
    with np.load(path, allow_pickle=False) as file:
        labels = file["y"]
        X = sp.csr_matrix(file["X"]) if "X" in file.files else sp.csr_matrix(sp.load_npz(path))
    border = BORDERS.get(name, labels.max())
    return normalize(X.astype(np.float64)), (labels >= border).astype(int)


def labeled(name: str, n_splits: int) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Training and test rows with their labels."""
    X, y = texts(name)
    for seed in range(100, 100 + n_splits):
        train, test = np.split(np.random.default_rng(seed).permutation(len(y)), [int(0.8 * len(y))])
        yield X[train], y[train], X[test], y[test]


def accuracies(make: Callable[[int], Any], rows: Callable[[Any], Any], name: str, n_splits: int) -> str:
    """Mean accuracy and its standard error over the splits."""
    found = []
    for X, y, X_test, y_test in labeled(name, n_splits):
        found.append(100 * make(len(y)).fit(rows(X), y).score(rows(X_test), y_test))
    error = np.std(found, ddof=1) / len(found) ** 0.5 if len(found) > 1 else float("nan")
    return f"{np.mean(found):.1f} ± {error:.1f}"


def roots(X: Any) -> Any:
    """Square roots, norm 1."""
    return SquareRootRows().fit_transform(X)


def presence(X: Any) -> Any:
    """1 where there is an entry."""
    return (X != 0).astype(np.float64)


def classifiers(sets: list[str], epsilons: list[float], n_splits: int) -> Iterator[str]:
    """``auto`` on square-root rows beside one release of the sums of the classes on rows of norm 1."""
    for name in sets:
        for epsilon in epsilons:
            for relation, short in RELATIONS.items():

                def make(n: int, solver: str, epsilon: float = epsilon, relation: str = relation) -> Any:
                    return PrivateLogisticRegression(
                        epsilon, 1 / n**2, neighboring=relation, n_samples=n, classes=[0, 1], solver=solver
                    )

                ours = accuracies(lambda n: make(n, "auto"), roots, name, n_splits)
                other = accuracies(lambda n: make(n, "discriminant"), lambda X: X, name, n_splits)
                yield f"| {name} | {epsilon:g} | {short} | {n_splits} | {ours} | {other} |"


def recipes(sets: list[str], n_splits: int, draws: int = 4) -> Iterator[str]:
    """``auto`` beside the same two looks in floating point, both several times on every split, at epsilon 1."""
    for name in (one for one in sets if one in ("pcmac", "sector")):
        for relation, short in RELATIONS.items():
            found = []
            for number, (X, y, X_test, y_test) in enumerate(labeled(name, n_splits)):
                rows, n, asked = roots(X), len(y), roots(X_test)
                model = PrivateLogisticRegression(
                    1.0, 1 / n**2, neighboring=relation, n_samples=n, classes=[0, 1]
                )
                for draw in range(draws):
                    rng = np.random.default_rng([number, draw])
                    scores = text_recipe.fitted(rows, y, 1.0, 1 / n**2, short == "AR", rng)(asked)
                    right = float(np.mean((scores > 0) == (y_test > 0)))
                    found.append((model.fit(rows, y).score(asked, y_test), right))
            by_split = 100 * np.array(found).reshape(n_splits, draws, 2).mean(axis=1)
            ahead = by_split[:, 0] - by_split[:, 1]
            ours, other = by_split.mean(axis=0)
            error = np.std(ahead, ddof=1) / n_splits**0.5 if n_splits > 1 else float("nan")
            told = f"{ours:.1f} | {other:.1f} | {ahead.mean():.1f} ± {error:.1f}"
            yield f"| {name} | {short} | {n_splits} | {draws} | {told} |"


def second_sums(sets: list[str], epsilons: list[float], n_splits: int) -> Iterator[str]:
    """`refocused-sums` under add-remove-one with a total and a difference second, or with the sums of the classes."""
    for name in sets:
        for epsilon in epsilons:

            def make(n: int, epsilon: float = epsilon) -> Any:
                return PrivateLogisticRegression(
                    *(epsilon, 1 / n**2),
                    neighboring="add-remove-one",
                    n_samples=n,
                    classes=[0, 1],
                    solver="refocused-sums",
                )

            ours = accuracies(make, roots, name, n_splits)
            with mock.patch.object(refocused, "total_and_difference", return_value=False):
                other = accuracies(make, roots, name, n_splits)
            yield f"| {name} | {epsilon:g} | {n_splits} | {ours} | {other} |"


def sparse_models(sets: list[str], n_splits: int) -> Iterator[str]:
    """30 columns: select and refit beside Frank-Wolfe."""
    for name in (one for one in sets if one in ("pcmac", "news20")):
        refit = accuracies(
            lambda n: PrivateSparseLogisticRegression(1.0, 1 / n**2, classes=[0, 1], max_columns=30),
            roots,
            name,
            n_splits,
        )
        walk = accuracies(
            lambda n: PrivateSparseLogisticRegression(1.0, 1 / n**2, classes=[0, 1]), presence, name, n_splits
        )
        yield f"| {name} | {n_splits} | {refit} | {walk} |"


def lasso(n: int, epsilon: float, seed: int) -> tuple[float, float, bool]:
    """Mean squared errors of a fit and of no coefficient, one of 50 being 0.3, and whether the fit has any."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, 50))
    y = np.clip(0.3 * X[:, 0] + 0.15 * rng.normal(size=n), -1, 1)
    model = PrivateLasso(epsilon, 1e-6, target_bounds=(-1, 1)).fit(X, y)
    error = float(np.mean((X @ model.coef_ + model.intercept_ - y) ** 2))
    return error, float(np.mean(y**2)), bool(np.any(model.coef_))


#: Rows and epsilons at which noise rules over 50 columns, and one at which it does not.
NOISY = (300, 0.1), (1000, 0.1), (300, 1.0), (3000, 0.1), (10_000, 1.0)


def where_noise_rules(repeats: int = 10) -> Iterator[str]:
    """The LASSO beside no coefficient."""
    for n, epsilon in NOISY:
        errors, centers, used = zip(*(lasso(n, epsilon, seed) for seed in range(repeats)), strict=True)
        spread, empty = np.std(errors, ddof=1) / repeats**0.5, repeats - sum(used)
        yield f"| {n} | {epsilon:g} | {np.mean(errors):.4f} ± {spread:.4f} | {np.mean(centers):.4f} | {empty} |"


def generated(n: int, p: int, entries: int = 50) -> tuple[Any, Any]:
    """Rows of Zipf's law with 50 entries of 1; uneven classes."""
    rng = np.random.default_rng(0)
    law = 1 / (np.arange(p) + 20.0)
    places = np.searchsorted(np.cumsum(law / law.sum()), rng.random((n, entries))).clip(0, p - 1)
    X = sp.csr_matrix((np.ones(n * entries), places.ravel(), np.arange(0, n * entries + 1, entries)), (n, p))
    X.sum_duplicates()
    X.data[:] = 1.0
    raw = X @ (0.4 * rng.normal(size=p))
    return X, (raw + 0.5 * np.std(raw) + rng.logistic(size=n) > 0).astype(int)


def intercept_times(n: int = 20_000, p: int = 100_000) -> Iterator[str]:
    """CPU seconds of runs with and without an intercept, planning aside, and of the same steps over whole gradients."""
    X, y = generated(n, p)
    for steps in (200, 1000):
        seconds = {}
        for intercept in (False, True):
            model = PrivateSparseLogisticRegression(
                1.0, 1e-6, fit_intercept=intercept, solver=FrankWolfe(steps)
            )
            plan = model.plan(n, p, sparse=True)
            records = ArrayRecords(X, 2.0 * y - 1, plan.problem.bounds)
            plan.run([records], fresh_entropy())  # compiles
            seconds[intercept] = min(_cpu(lambda: plan.run([records], fresh_entropy())) for _ in range(3))  # noqa: B023
        naive = FullSteps(plan.walk, records)  # type: ignore[attr-defined]
        each = min(_cpu(lambda: naive.choose(0.1, fresh_entropy())) for _ in range(5))  # noqa: B023
        yield (
            f"| {n} x {p} | {steps} | {seconds[False]:.3f} s | {seconds[True]:.3f} s | "
            f"{seconds[True] / seconds[False]:.2f} | {each * steps:.1f} s | {each * steps / seconds[True]:.0f} |"
        )


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


#: Titles and columns of the parts of the page; the first columns name a row.
PARTS = {
    "classifiers": (
        "Classifiers",
        ("set", "epsilon", "relation", "splits", "auto, square-root rows", "discriminant, rows of norm 1"),
        3,
    ),
    "recipe": (
        "The same two looks in floating point, without any bound on rounding: square-root rows, epsilon 1",
        ("set", "relation", "splits", "fits of each", "auto", "in floating point", "auto is ahead by"),
        2,
    ),
    "second": (
        "What is summed in weighted columns: `refocused-sums` on square-root rows, add-remove-one",
        ("set", "epsilon", "splits", "a total and a difference", "the sums of the classes"),
        2,
    ),
    "sparse": (
        "Sparse models, epsilon 1, replace-one",
        ("set", "splits", "select and refit, 30 columns, square-root rows", "Frank-Wolfe, presence rows"),
        1,
    ),
    "lasso": (
        "The LASSO where noise dominates: 50 columns, 10 fits",
        ("rows", "epsilon", "MSE", "MSE of coefficients 0", "fits without a coefficient"),
        2,
    ),
    "intercept": (
        "An intercept outside the ball: CPU seconds of a run of Frank-Wolfe on CSR rows",
        (
            "rows x columns",
            "steps",
            "without an intercept",
            "with one",
            "ratio",
            "naive loop, from 5 steps",
            "gain",
        ),
        2,
    ),
}


def report(kept: dict[str, dict[str, str]]) -> str:
    """The page."""
    lines = [
        "# Wide sparse rows",
        "",
        f"`python -m benchmarks.text`, discreet {__version__}. Accuracies in percent, mean and standard error over "
        "random splits of 80% and 20%, delta = 1 / n^2, all settings defaults. Two classes: news20 by labels from 10 "
        "on, sector by labels from 52 on, else the largest label against the others. The border of `auto` between "
        "news20 at epsilon 0.1 and pcmac at epsilon 1 was set on these sets, on the first three of these splits.",
    ]
    for part, (title, columns, _) in PARTS.items():
        lines += ["", f"## {title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        lines += kept.get(part, {}).values()
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page row by row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = RESULTS.with_suffix(".json")
    kept = json.loads(path.read_text()) if path.exists() else {}
    measured: dict[str, Callable[[], Iterator[str]]] = {
        "classifiers": lambda: classifiers(options.sets, options.epsilons, options.splits),
        "recipe": lambda: recipes(options.sets, options.splits),
        "second": lambda: second_sums(options.sets, options.epsilons, options.splits),
        "sparse": lambda: sparse_models(options.sets, options.splits),
        "lasso": where_noise_rules,
        "intercept": intercept_times,
    }
    for part in options.parts:
        for line in measured[part]():
            print(line, flush=True)
            name = "|".join(line.split("|")[1 : 1 + PARTS[part][2]])
            kept.setdefault(part, {})[name] = line
            path.write_text(json.dumps(kept, indent=1) + "\n")
            RESULTS.write_text(report(kept))


if __name__ == "__main__":
    main()
