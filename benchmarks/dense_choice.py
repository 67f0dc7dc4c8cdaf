"""The automatic choice on dense rows of two classes beside every solver it could have taken.

    python -m benchmarks.dense_choice [--splits 3] [--sets adult ...]

Cells are the sets of ``benchmarks.calibration``, cut to a number of rows, and an epsilon. ``auto`` is one of the other
solvers and shares its fits. The best solver of a cell is the one with the best mean on the test rows, which nobody
could choose so: with few splits and much noise, most of a shortfall is luck. Writes ``results/dense_choice.md``.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.metrics import roc_auc_score

from benchmarks.calibration import SETS, Array, load
from discreet import PrivateLogisticRegression

RESULTS = Path(__file__).parent / "results" / "dense_choice.md"
ROWS = 1_000, 4_000
EPSILONS = 0.1, 0.3, 1.0, 3.0, 10.0
SOLVERS = "newton", "noisy-gd", "discriminant", "objective"
DELTA = 1e-6
Scores = NDArray[np.float64]  # a row per split: area under the ROC curve, accuracy, log loss


def scores(X: Array, y: Array, n_rows: int, epsilon: float, solver: str, splits: int) -> Scores:
    """Area under the ROC curve, accuracy and log loss of every split."""
    found = []
    for seed in range(splits):
        order = np.random.default_rng([11, seed]).permutation(len(y))
        held, train = np.split(order, [min(len(y) // 5, 8_000)])
        model = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], solver=solver)
        model.fit(X[train[:n_rows]], y[train[:n_rows]])
        z = model.decision_function(X[held])
        found.append(
            (
                float(roc_auc_score(y[held], z)),
                float(np.mean((z > 0) == (y[held] > 0))),
                -float(np.mean(log_expit((2 * y[held] - 1) * z))),
            )
        )
    return np.array(found)


def main() -> None:
    """Fit all cells, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    options = parser.parse_args()
    splits = options.splits
    warnings.simplefilter("ignore")
    lines, shortfalls, drops = [], [], []
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
                shortfalls.append(max(areas.values()) - areas[taken])
                if before is not None:
                    change = accuracy - before
                    error = float(change.std(ddof=1)) / math.sqrt(splits) if splits > 1 else 0.0
                    drops.append(-float(change.mean()) > max(error, 1e-9))
                before = accuracy
                shown = " | ".join(f"{area:.3f}" for area in areas.values())
                lines.append(
                    f"| {name} | {n_rows:,} | {epsilon:g} | {taken} | {shown} | {means[taken][1]:.3f} | "
                    f"{means[taken][2]:.3f} |"
                )
                print(lines[-1], flush=True)
    header = ["data set", "records", "epsilon", "auto", *SOLVERS, "accuracy", "log loss"]
    text = [
        "# The automatic choice on dense rows",
        "",
        f"Area under the ROC curve of four solvers, and accuracy and log loss of the one that `auto` takes: means of "
        f"{splits} splits, replace-one, delta = {DELTA:g} (`python -m benchmarks.dense_choice`).",
        "",
        f"Over {len(shortfalls)} cells `auto` is {np.mean(shortfalls):.4f} of area behind the best solver of the cell "
        f"on average, {np.median(shortfalls):.4f} in the median, and more than 0.02 in "
        f"{sum(one > 0.02 for one in shortfalls)}; the worst by {max(shortfalls):.3f}. The best is chosen on the test "
        "rows, so that a part of it is luck. Accuracy falls by more than one standard error of the difference from one "
        f"epsilon to the next in {sum(drops)} of {len(drops)} steps.",
        "",
        "| " + " | ".join(header) + " |",
        "|---" * len(header) + "|",
        *lines,
        "",
    ]
    RESULTS.write_text("\n".join(text), encoding="utf-8")
    print("\n".join(text[:6]))


if __name__ == "__main__":
    main()
