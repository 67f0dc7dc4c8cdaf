"""The automatic choice on dense rows of two classes beside every solver it could have taken.

    python -m benchmarks.dense_choice [--splits 5] [--sets adult ...]

Cells are the sets of ``benchmarks.calibration`` and six more, cut to a number of rows, and an epsilon. The rules were
set on the sets that ``benchmarks.calibration`` names as used; the others are counted apart. ``auto`` is one of the
other solvers and shares its fits. The best solver of a cell is the one with the best mean on the test rows, which
nobody could choose so: with few splits and much noise, most of a shortfall is luck. Writes
``results/dense_choice.md``.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.metrics import roc_auc_score

from benchmarks import calibration
from benchmarks.calibration import USED, Array
from benchmarks.data import VARIABLE
from discreet import PrivateLogisticRegression

RESULTS = Path(__file__).parent / "results" / "dense_choice.md"
ROWS = 1_000, 4_000
EPSILONS = 0.1, 0.3, 1.0, 3.0
#: Tables: the label, and the columns that are no features.
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "bank_marketing": ("y", ()),
    "telco_churn": ("Churn", ()),
    "compas": ("two_year_recid", ("is_recid", "decile_score", "score_text")),
    "fertility_census1980": ("morekids", ()),
}
SETS = (*calibration.SETS, "skin", "letter", *TABLES)
COMMON = 30  # categories of a column that get a column of their own
SOLVERS = "newton", "noisy-gd", "discriminant", "objective"
DELTA = 1e-6
#: Whether rules were set on the data, the choice, areas of all solvers, log loss beyond that of the class shares.
Cell = tuple[bool, str, dict[str, float], float]
Scores = NDArray[
    np.float64
]  # a row per split: area under the ROC curve, accuracy, log loss, that of the class shares


def load(name: str) -> tuple[Array, Array]:
    """Rows of norm at most 1, and labels of which 1 is the rarer."""
    if name not in TABLES:
        return calibration.load(name)
    label, ignored = TABLES[name]
    table = pd.read_parquet(Path(os.environ[VARIABLE]) / f"{name}.parquet")
    y = table.pop(label).astype(str)
    table = table.drop(columns=list(ignored), errors="ignore")
    numbers = table.select_dtypes("number")
    parts = [numbers.fillna(0.0).to_numpy(float)]
    for column in table.columns.difference(numbers.columns):
        words = table[column].astype(str)
        common = words.value_counts().index[:COMMON]
        parts.append(pd.get_dummies(words.where(words.isin(common), "other")).to_numpy(float))
    X = np.hstack(parts)
    largest = np.abs(X).max(axis=0)
    X /= np.where(largest > 0, largest, 1.0)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return X, (y == y.value_counts().index[-1]).to_numpy(float)


def scores(X: Array, y: Array, n_rows: int, epsilon: float, solver: str, splits: int) -> Scores:
    """Area under the ROC curve, accuracy and log loss of every split, and the log loss of the class shares."""
    found = []
    for seed in range(splits):
        order = np.random.default_rng([11, seed]).permutation(len(y))
        held, train = np.split(order, [min(len(y) // 5, 8_000)])
        model = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], solver=solver)
        model.fit(X[train[:n_rows]], y[train[:n_rows]])
        z = model.decision_function(X[held])
        share = float(np.clip(y[train[:n_rows]].mean(), 1e-9, 1 - 1e-9))
        sign = 2 * y[held] - 1
        found.append(
            (
                float(roc_auc_score(y[held], z)),
                float(np.mean((z > 0) == (y[held] > 0))),
                -float(np.mean(log_expit(sign * z))),
                -float(np.mean(log_expit(sign * math.log(share / (1 - share))))),
            )
        )
    return np.array(found)


def summary(title: str, cells: list[Cell]) -> list[str]:
    """Describe how far ``auto`` and every solver alone are behind the best solver of each cell."""
    if not cells:
        return []
    behind = {
        rule: np.array(
            [max(areas.values()) - areas[taken if rule == "auto" else rule] for _, taken, areas, _ in cells]
        )
        for rule in ("auto", *SOLVERS)
    }
    shown = "; ".join(
        f"`{rule}` {gaps.mean():.4f}, over 0.02 in {int((gaps > 0.02).sum())}, worst {gaps.max():.3f}"
        for rule, gaps in behind.items()
    )
    above = [one[3] for one in cells]
    return [
        f"{title}, {len(cells)} cells. Area behind the best solver of the cell, mean and worst: {shown}. Log loss of "
        f"`auto` is above that of the exact class shares by more than 0.002 in {sum(one > 0.002 for one in above)} "
        f"cells, the worst by {max(above):.3f}.",
        "",
    ]


def main() -> None:
    """Fit all cells, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    options = parser.parse_args()
    splits = options.splits
    warnings.simplefilter("ignore")
    lines, cells, drops = [], [], []
    for name in options.sets:
        X, y = load(name)
        for n_rows in (n for n in ROWS if n <= 0.8 * len(y)):
            before: Array | None = None
            for epsilon in EPSILONS:
                plan = PrivateLogisticRegression(epsilon, DELTA).plan(n_rows, X.shape[1], 2)
                taken = plan.reason.split(",")[0]
                cell = {solver: scores(X, y, n_rows, epsilon, solver, splits) for solver in SOLVERS}
                means = {solver: one.mean(axis=0) for solver, one in cell.items()}
                areas = {solver: float(one[0]) for solver, one in means.items()}
                accuracy = cell[taken][:, 1]
                cells.append((name in USED, taken, areas, float(means[taken][2] - means[taken][3])))
                if before is not None:
                    change = accuracy - before
                    error = float(change.std(ddof=1)) / math.sqrt(splits) if splits > 1 else 0.0
                    drops.append(-float(change.mean()) > max(error, 1e-9))
                before = accuracy
                shown = " | ".join(f"{area:.3f}" for area in areas.values())
                lines.append(
                    f"| {name} | {n_rows:,} | {epsilon:g} | {taken} | {shown} | {means[taken][1]:.3f} | "
                    f"{means[taken][2]:.3f} | {means[taken][3]:.3f} |"
                )
                print(lines[-1], flush=True)
    header = ["data set", "records", "epsilon", "auto", *SOLVERS, "accuracy", "log loss", "class shares"]
    text = [
        "# The automatic choice on dense rows",
        "",
        f"Area under the ROC curve of four solvers, and accuracy and log loss of the one that `auto` takes: means of "
        f"{splits} splits, replace-one, delta = {DELTA:g} (`python -m benchmarks.dense_choice`).",
        "",
        "The best solver of a cell is chosen on the test rows, so that a part of every shortfall is luck. Accuracy "
        "falls by more than one standard error of the difference from one epsilon to the next in "
        f"{sum(drops)} of {len(drops)} steps.",
        "",
        *summary("Sets on which rules were set", [cell for cell in cells if cell[0]]),
        *summary("Other sets", [cell for cell in cells if not cell[0]]),
        "",
        "| " + " | ".join(header) + " |",
        "|---" * len(header) + "|",
        *lines,
        "",
    ]
    RESULTS.write_text("\n".join(text), encoding="utf-8")
    print("\n".join(text[:10]))


if __name__ == "__main__":
    main()
