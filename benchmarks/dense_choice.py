"""The automatic choice on dense rows of two classes beside every solver it could have taken.

    python -m benchmarks.dense_choice [--splits 10] [--sets adult ...] [--solvers newton ...]

Cells are the sets of ``benchmarks.calibration`` and more, cut to a number of rows, and an epsilon. Sets on other splits
of which rules were compared are counted apart from those that nobody looked at. No log loss of class shares is private:
that of the best private constant is measured beside it, the posterior mean of a share that is released with the whole
budget. ``auto`` is one of the other solvers
and shares its fits. The best solver of a cell can be the one with the best mean on its test rows, which nobody could
choose so: where noise rules, most of such a shortfall is luck. So the best is also chosen on half of the splits and
compared with ``auto`` on the other half, both ways. Cells are kept in ``results/dense_choice.json``, and those of other
sets stay; writes ``results/dense_choice.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.metrics import roc_auc_score

from benchmarks import calibration
from benchmarks.calibration import Array
from benchmarks.data import VARIABLE
from discreet import PrivateLogisticRegression, __version__
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.solvers.second_order.margins import class_shares

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
#: Tables of numbers: the target, which is the column ``y`` of a file without columns, and the least value of label 1.
TARGETS: dict[str, tuple[str, float]] = {
    "nycflights": ("arr_delay", 30.0),
    "california_housing": ("y", 3.5),
    "wine_quality": ("y", 7.0),
    "bike_sharing_hour": ("y", 300.0),
    "diabetes130_raw": ("readmitted", 1.0),
}
_AFTERWARDS = "dep_delay", "air_time", "encounter_id", "patient_nbr"  # known only later, or names
#: Sets on which no rule was compared with another.
UNSEEN = tuple(TARGETS)
SETS = (*calibration.SETS, "skin", "letter", *TABLES, "covtype", "madelon", *UNSEEN)
COMMON = 30  # categories of a column that get a column of their own
SOLVERS = "newton", "noisy-gd", "discriminant", "objective"
DELTA = 1e-6
_ABOVE = 0.002  # log loss
_SCORES = 5  # of a split; kept cells with fewer are of an older command, and are measured again
# A row per split: area under the ROC curve, accuracy, log loss, that of the class shares and of a private constant.
Scores = NDArray[np.float64]


def load(name: str) -> tuple[Array, Array]:
    """Rows of norm at most 1, and labels of which 1 is the rarer."""
    folder = Path(os.environ[VARIABLE])
    if name in TABLES:
        label, ignored = TABLES[name]
        table = pd.read_parquet(folder / f"{name}.parquet")
        y = table.pop(label).astype(str)
        return _rows(table.drop(columns=list(ignored), errors="ignore")), _rarer(y == y.max())
    if name not in TARGETS:
        return calibration.load(name)
    target, least = TARGETS[name]
    if target == "y":
        with np.load(folder / f"{name}.npz") as file:
            return _rows(pd.DataFrame(file["X"])), _rarer(file["y"] >= least)
    table = pd.read_parquet(folder / f"{name}.parquet").drop(columns=list(_AFTERWARDS), errors="ignore")
    values = table.pop(target)
    return _rows(table), _rarer(values == "<30" if target == "readmitted" else values >= least)


def _rarer(positive: Any) -> Array:
    found = np.asarray(positive, dtype=float)
    return found if found.mean() <= 0.5 else 1.0 - found


def _rows(table: pd.DataFrame) -> Array:
    """Numbers, and a column per common category, over the largest absolute value of every column."""
    numbers = table.select_dtypes("number")
    parts = [numbers.fillna(0.0).to_numpy(float)]
    for column in table.columns.difference(numbers.columns):
        words = table[column].astype(str)
        common = words.value_counts().index[:COMMON]
        parts.append(pd.get_dummies(words.where(words.isin(common), "other")).to_numpy(float))
    X = np.hstack(parts)
    largest = np.abs(X).max(axis=0)
    X /= np.where(largest > 0, largest, 1.0)
    return np.asarray(X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None])


def private_share(share: float, n_rows: int, epsilon: float, seed: int) -> float:
    """The posterior mean of a class share that is released with the whole budget."""
    stddev = 1 / (gaussian_mu(epsilon, DELTA) * n_rows)
    noisy = share + stddev * np.random.default_rng([13, seed]).normal()
    return float(class_shares(np.array([1 - noisy, noisy]), 2 * stddev**2)[1])


def split(n_rows: int, seed: int) -> list[NDArray[np.int64]]:
    """Rows that are held out, and the others, in random order."""
    order = np.random.default_rng([11, seed]).permutation(n_rows)
    return np.split(order, [min(n_rows // 5, 8_000)])


def scores(X: Array, y: Array, n_rows: int, epsilon: float, solver: str, seeds: Iterable[int]) -> Scores:
    """Area under the ROC curve, accuracy and log loss of every split, and the log loss of constants."""
    found = []
    for seed in seeds:
        held, train = split(len(y), seed)
        model = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], solver=solver)
        model.fit(X[train[:n_rows]], y[train[:n_rows]])
        z = model.decision_function(X[held])
        share = float(np.clip(y[train[:n_rows]].mean(), 1e-9, 1 - 1e-9))
        paid = private_share(share, n_rows, epsilon, seed)
        sign = 2 * y[held] - 1
        found.append(
            (
                float(roc_auc_score(y[held], z)),
                float(np.mean((z > 0) == (y[held] > 0))),
                -float(np.mean(log_expit(sign * z))),
                *(-float(np.mean(log_expit(sign * math.log(c / (1 - c))))) for c in (share, paid)),
            )
        )
    return np.array(found)


def choice(n_columns: int, n_rows: int, epsilon: float) -> str:
    """The solver that `auto` takes."""
    return PrivateLogisticRegression(epsilon, DELTA).plan(n_rows, n_columns, 2).reason.split(",")[0]


def cells_of(
    name: str, splits: int, solvers: Sequence[str], before: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Measure all cells of a set: the scores of these solvers on every split; those of others are kept from before."""
    X, y = load(name)
    known = {(cell["rows"], cell["epsilon"]): cell["scores"] for cell in before}
    found = []
    for n_rows in (n for n in ROWS if n <= 0.8 * len(y)):
        for epsilon in EPSILONS:
            cell = {
                solver: scores(X, y, n_rows, epsilon, solver, range(splits))
                if solver in solvers
                else np.array(known[n_rows, epsilon][solver])
                for solver in SOLVERS
            }
            shown = {solver: one.round(5).tolist() for solver, one in cell.items()}
            found.append(
                {
                    "rows": n_rows,
                    "epsilon": epsilon,
                    "auto": choice(X.shape[1], n_rows, epsilon),
                    "scores": shown,
                }
            )
            areas = {solver: round(float(one[:, 0].mean()), 3) for solver, one in cell.items()}
            print(name, n_rows, epsilon, found[-1]["auto"], areas, flush=True)
    return found


def behind(cell: dict[str, Any], rule: str) -> tuple[float, float, float]:
    """How far the area of a rule is behind the best solver of the same splits, and of the other half of them.

    The last number is the first one in standard errors of the difference.
    """
    areas = {solver: np.array(found)[:, 0] for solver, found in cell["scores"].items()}
    taken = areas[cell["auto"] if rule == "auto" else rule]
    ahead = max(areas.values(), key=lambda found: float(found.mean())) - taken
    same = float(ahead.mean())
    errors = same / max(float(ahead.std(ddof=1)) / math.sqrt(len(ahead)), 1e-9)
    halves = np.arange(len(taken)) % 2
    apart = []
    for half in (0, 1):
        best = max(SOLVERS, key=lambda solver: float(areas[solver][halves == half].mean()))
        apart.append(float((areas[best] - taken)[halves != half].mean()))
    return same, float(np.mean(apart)), errors


def above(cell: dict[str, Any]) -> tuple[float, float]:
    """How far the log loss of ``auto`` and of the private constant are above that of the class shares."""
    found = np.array(cell["scores"][cell["auto"]])
    return float((found[:, 2] - found[:, 3]).mean()), float((found[:, 4] - found[:, 3]).mean())


def falls(cells: list[dict[str, Any]]) -> list[str]:
    """Name the steps of epsilon at which the accuracy of ``auto`` falls by more than one and by two standard errors."""
    found = []
    for before, after in pairwise(cells):
        if before["rows"] != after["rows"]:
            continue
        first, second = (np.array(one["scores"][one["auto"]])[:, 1] for one in (before, after))
        change, error = (second - first).mean(), (second - first).std(ddof=1) / math.sqrt(len(first))
        if change < -max(error, 1e-9):
            found.append(
                f"{before['rows']:,} rows, {before['epsilon']:g} to {after['epsilon']:g}: {change:.4f} ± {error:.4f}"
            )
    return found


def summary(title: str, cells: list[dict[str, Any]]) -> list[str]:
    """Describe how far ``auto`` and every solver alone are behind the best solver of each cell."""
    if not cells:
        return []
    told = []
    for rule in ("auto", *SOLVERS):
        same, apart, errors = np.array([behind(cell, rule) for cell in cells]).T
        told.append(
            f"`{rule}` {apart.mean():.4f} ({same.mean():.4f}), over 0.02 in {int((apart > 0.02).sum())} "
            f"({int((same > 0.02).sum())}, by two standard errors or more in "
            f"{int(((same > 0.02) & (errors >= 2)).sum())}), worst {apart.max():.3f} ({same.max():.3f})"
        )
    losses, paid = np.array([above(cell) for cell in cells]).T
    return [
        f"{title}, {len(cells)} cells. Area behind the solver that is best on the other half of the splits, in "
        f"brackets on the same splits, mean and worst: {'; '.join(told)}.",
        "",
        f"Log loss of `auto` is above that of the exact class shares by more than {_ABOVE} in "
        f"{int((losses > _ABOVE).sum())} of these cells, the worst by {losses.max():.3f}; on average it is "
        f"{-losses.mean():.3f} below. A private constant is above them by more than {_ABOVE} in "
        f"{int((paid > _ABOVE).sum())}, the worst by {paid.max():.3f}; `auto` is above that constant by more than "
        f"{_ABOVE} in {int((losses - paid > _ABOVE).sum())}, the worst by {(losses - paid).max():.3f}.",
        "",
    ]


def report(kept: dict[str, list[dict[str, Any]]]) -> str:
    """The page."""
    lines, fallen, steps = [], [], 0
    for name in (one for one in SETS if one in kept):
        fallen += [f"{name}, {one}" for one in falls(kept[name])]
        steps += len(kept[name]) - len({cell["rows"] for cell in kept[name]})
        for cell in kept[name]:
            means = {solver: np.mean(found, axis=0) for solver, found in cell["scores"].items()}
            taken = means[cell["auto"]]
            shown = " | ".join(f"{one[0]:.3f}" for one in means.values())
            lines.append(
                f"| {name} | {cell['rows']:,} | {cell['epsilon']:g} | {cell['auto']} | {shown} | {taken[1]:.3f} | "
                f"{taken[2]:.3f} | {taken[3]:.3f} | {taken[4]:.3f} |"
            )
    counts = sorted({len(cell["scores"]["newton"]) for cells in kept.values() for cell in cells})
    splits = f"{' or '.join(map(str, counts))} splits, replace-one, delta = {DELTA:g}, discreet {__version__}"
    header = [
        "data set",
        "records",
        "epsilon",
        "auto",
        *SOLVERS,
        "accuracy",
        "log loss",
        "class shares",
        "private constant",
    ]
    seen = [cell for name, cells in kept.items() if name not in UNSEEN for cell in cells]
    return "\n".join(
        [
            "# The automatic choice on dense rows",
            "",
            "Area under the ROC curve of four solvers, and accuracy and log loss of the one that `auto` takes: "
            f"means of {splits} (`python -m benchmarks.dense_choice`).",
            "",
            f"Accuracy falls by more than one standard error of the difference from one epsilon to the next in "
            f"{len(fallen)} of {steps} steps{': ' if fallen else ''}{'; '.join(fallen)}.",
            "",
            *summary("Sets on other splits of which rules were compared", seen),
            *summary("Other sets", [cell for name in UNSEEN for cell in kept.get(name, [])]),
            "",
            "| " + " | ".join(header) + " |",
            "|---" * len(header) + "|",
            *lines,
            "",
        ]
    )


def main() -> None:
    """Fit the cells of the sets that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument(
        "--again", action="store_true", help="ask auto again and keep the fits of all solvers"
    )
    parser.add_argument(
        "--solvers", nargs="*", default=list(SOLVERS), choices=SOLVERS, help="keep the others"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = RESULTS.with_suffix(".json")
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept = {name: cells for name, cells in kept.items() if len(cells[0]["scores"]["newton"][0]) == _SCORES}
    for name in options.sets:
        if options.again:
            n_columns = load(name)[0].shape[1]
            for cell in kept[name]:
                cell["auto"] = choice(n_columns, cell["rows"], cell["epsilon"])
        else:
            kept[name] = cells_of(name, options.splits, options.solvers, kept.get(name, []))
        path.write_text(json.dumps(kept) + "\n")
        RESULTS.write_text(report(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
