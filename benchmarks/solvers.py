"""All solvers with their default settings, on equal terms: data sets x epsilons x relations.

Run ``python -m benchmarks.solvers [--data adult mnist ...] [--seeds 3] [--epsilons 0.1 1] [--minutes 5]``. Every fit
is kept in ``results/solvers.json`` as soon as it is done, so that a run can be stopped and taken up again; the table
in ``results/solvers.md`` is made of all fits so far. ``auto`` is one of the other solvers, chosen by public facts, and
shares its fits. A solver that refuses a problem is shown as such.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.metrics import roc_auc_score

from benchmarks import data
from discreet import PrivateLogisticRegression, PrivateSparseLogisticRegression, __version__
from discreet.solvers import base

BINARY = ("adult", "kddcup99", "gisette_valid1k", "reuters_moneyfx", "clothing_reviews", "news20")
DATA = (*BINARY, "covtype", "mnist")
SOLVERS = ("newton", "discriminant", "noisy-gd", "objective", "noisy-sgd", "output", "psgd")
IN_A_BALL = ("frank-wolfe", "mirror-descent")  # coefficients in an L1 ball: PrivateSparseLogisticRegression
PRINTED_IN_A_BALL = ("frank-wolfe-dissertation", "frank-wolfe-talwar", "mirror-descent-talwar")
PRINTED = (
    "objective-dissertation",
    "noisy-gd-dissertation",
    "output-jain-thakurta",
    "psgd-dissertation",
    *PRINTED_IN_A_BALL,
)
RELATIONS = ("replace-one", "add-remove-one")
RESULTS = Path(__file__).parent / "results" / "solvers.md"


@dataclass(frozen=True)
class Fit:
    """One solver on one split; accuracy and area under the ROC curve in percent."""

    data: str
    relation: str
    epsilon: float
    solver: str
    seed: int
    accuracy: float = float("nan")
    auc: float = float("nan")
    seconds: float = 0.0
    refused: str = ""
    version: str = "0.1.0"  # fits that were kept before this was noted

    @property
    def row(self) -> tuple[str, str, float]:
        """The line of the table."""
        return self.data, self.relation, self.epsilon


@dataclass(frozen=True)
class Summary:
    """Mean and standard error over splits."""

    mean: float
    error: float
    n: int


def summary(values: Sequence[float]) -> Summary:
    """Mean and standard error; nan where there are too few."""
    n = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Summary(float(np.mean(values)) if n else float("nan"), error, n)


def estimator(split: data.Split, relation: str, epsilon: float, solver: Any) -> Any:
    """The estimator that runs this solver: with its defaults, if it is given by name."""
    kind: Callable[..., Any] = (
        PrivateSparseLogisticRegression
        if solver in (*IN_A_BALL, *PRINTED_IN_A_BALL)
        else PrivateLogisticRegression
    )
    return kind(
        epsilon,
        split.delta,
        neighboring=relation,
        classes=split.classes,
        n_samples=len(split.y_train),
        solver=solver,
    )


def measure(split: data.Split, relation: str, epsilon: float, name: str, solver: Any) -> Fit:
    """Fit once, under this name."""
    where = split.name, relation, epsilon, name, split.seed
    begin = time.perf_counter()
    try:
        model = estimator(split, relation, epsilon, solver).fit(split.X_train, split.y_train)
    except ValueError as error:
        return Fit(*where, refused=str(error), version=__version__)
    seconds = time.perf_counter() - begin
    raw = model.decision_function(split.X_test)
    area = 100 * float(roc_auc_score(split.y_test, raw)) if raw.ndim == 1 else float("nan")
    reached = 100 * float(model.score(split.X_test, split.y_test))
    return Fit(*where, reached, area, seconds, version=__version__)


def measured_with(fits: Sequence[Fit]) -> str:
    """Which version of the library kept fits are of."""
    return f"Measured with discreet {', '.join(sorted({fit.version for fit in fits}))}."


def chosen(split: data.Split, relation: str, epsilon: float) -> str:
    """The solver behind ``auto``; public facts of the split are enough."""
    plan = PrivateLogisticRegression(epsilon, split.delta, neighboring=relation).plan(
        len(split.y_train), split.X_train.shape[1], len(split.classes), sparse=bool(issparse(split.X_train))
    )
    return plan.reason.split(",")[0]


def table(fits: Sequence[Fit], choices: dict[tuple[str, str, float], str], score: str) -> str:
    """One line per data set, relation and epsilon; the best in bold, the automatic choice in its own column."""
    solvers = [name for name in (*SOLVERS, *IN_A_BALL, *PRINTED) if any(fit.solver == name for fit in fits)]
    lines = [
        "| data set, relation, epsilon | auto | " + " | ".join(solvers) + " | splits |",
        "|---" * (len(solvers) + 3) + "|",
    ]
    for key in sorted({fit.row for fit in fits}, key=_order):
        cells = {name: _summary(fits, key, name, score) for name in solvers}
        if all(cell.n == 0 or np.isnan(cell.mean) for cell in cells.values()):
            continue
        best = max(cell.mean for cell in cells.values() if cell.n and not np.isnan(cell.mean))
        refused = {fit.solver for fit in fits if fit.row == key and fit.refused}
        choice = choices[key]
        columns = [f"{choice}: {shown(cells[choice])}"] if choice in cells else [choice]
        for name, cell in cells.items():
            text = "refused" if name in refused else shown(cell)
            columns.append(f"**{text}**" if cell.n and cell.mean == best else text)
        n_splits = sorted({cell.n for cell in cells.values() if cell.n})
        span = f"{n_splits[0]} to {n_splits[-1]}" if len(n_splits) > 1 else str(n_splits[0])
        lines.append(f"| {key[0]}, {key[1]}, {key[2]:g} | " + " | ".join(columns) + f" | {span} |")
    return "\n".join(lines)


def within_one_error(
    fits: Sequence[Fit], choices: dict[tuple[str, str, float], str]
) -> tuple[list[str], int]:
    """Rows of two splits or more in which auto is over a standard error (of the difference) behind; number of rows."""
    behind, n_rows = [], 0
    for key in sorted({fit.row for fit in fits}, key=_order):
        cells = {name: _summary(fits, key, name, "accuracy") for name in (*SOLVERS, *IN_A_BALL)}
        measured = {name: cell for name, cell in cells.items() if cell.n > 1}
        if len(measured) < 2 or choices[key] not in measured:
            continue
        n_rows += 1
        mine, best = measured[choices[key]], max(measured.values(), key=lambda cell: cell.mean)
        if best.mean - mine.mean > np.nan_to_num(np.hypot(mine.error, best.error)):
            behind.append(f"{key[0]}, {key[1]}, {key[2]:g}: {best.mean - mine.mean:.2f} points")
    return behind, n_rows


def _order(key: tuple[str, str, float]) -> tuple[int, int, float]:
    return DATA.index(key[0]), RELATIONS.index(key[1]), key[2]


def _summary(fits: Sequence[Fit], key: tuple[str, str, float], solver: str, score: str) -> Summary:
    return summary(
        [getattr(fit, score) for fit in fits if fit.row == key and fit.solver == solver and not fit.refused]
    )


def shown(cell: Summary) -> str:
    """Mean and standard error, as far as there are any."""
    if not cell.n:
        return "-"
    return f"{cell.mean:.2f}" + ("" if np.isnan(cell.error) else f" ± {cell.error:.2f}")


def load(path: Path) -> list[Fit]:
    """The fits of earlier runs."""
    text = path.read_text() if path.exists() else ""
    return [Fit(**row) for row in json.loads(text)] if text else []


def update(path: Path, change: Callable[[list[Fit]], list[Fit]]) -> list[Fit]:
    """Change the kept fits, written one per line; runs side by side wait for each other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fits = change(load(path))
        file.truncate(0)
        file.write("[\n" + ",\n".join(json.dumps(asdict(fit)) for fit in fits) + "\n]\n")
    return fits


def available(name: str, splits: Iterable[data.Split]) -> list[data.Split]:
    """The splits of a data set; none, and a word about it, where it is not on this machine."""
    try:
        return list(splits)
    except data.MissingData as missing:
        print(f"skipped {name}: {missing}")
        return []


def fit_missing(
    kept: Path,
    split: data.Split,
    relations: Sequence[str],
    epsilons: Sequence[float],
    solvers: Sequence[str] | Mapping[str, Any],
    end: float = math.inf,
) -> None:
    """Fit on a split what is not among the kept fits, each kept as soon as it is done; none after the time ``end``.

    Solvers are names, or names of settings.
    """
    done = {(*fit.row, fit.solver, fit.seed) for fit in load(kept)}
    for relation, epsilon, name in itertools.product(relations, epsilons, solvers):
        if (split.name, relation, epsilon, name, split.seed) in done or time.monotonic() > end:
            continue
        solver = solvers[name] if isinstance(solvers, Mapping) else name
        fit = measure(split, relation, epsilon, name, solver)
        update(kept, lambda old, new=fit: [*old, new])  # type: ignore[misc]
        print(fit, flush=True)


def report(path: Path, fits: Sequence[Fit]) -> None:
    """Write the tables."""
    rows = sorted({fit.row for fit in fits}, key=_order)
    first = {name: next(data.splits(name, range(1))) for name in {row[0] for row in rows}}
    choices = {row: chosen(first[row[0]], *row[1:]) for row in rows}
    behind, n_rows = within_one_error(fits, choices)
    text = [
        "# Solvers with default settings",
        "",
        "Test accuracy in percent, mean and standard error over splits, delta = 1/n^2. `auto` names the solver "
        "that the library beside this page chooses. Names ending in -dissertation, -jain-thakurta or -talwar are "
        "printed calibrations. " + measured_with(fits),
        "",
        table(fits, choices, "accuracy"),
        "",
        f"`auto` is within one standard error of the best default in {n_rows - len(behind)} of {n_rows} rows "
        "measured on two splits or more." + (" Behind: " + "; ".join(behind) + "." if behind else ""),
        "",
        "## Area under the ROC curve, in percent",
        "",
        table([fit for fit in fits if fit.data in BINARY], choices, "auc"),
    ]
    path.write_text("\n".join(text) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Fit what is missing, within the time that is given, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--relations", nargs="+", default=["replace-one"], choices=RELATIONS)
    parser.add_argument(
        "--solvers", nargs="+", default=[*SOLVERS, *IN_A_BALL, *PRINTED], choices=base.names()
    )
    parser.add_argument(
        "--again",
        nargs="+",
        default=[],
        choices=base.names(),
        help="forget earlier fits of solvers that changed, on the named data sets",
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    kept = options.output.with_suffix(".json")
    update(
        kept,
        lambda old: [fit for fit in old if fit.solver not in options.again or fit.data not in options.data],
    )
    end = time.monotonic() + 60 * options.minutes
    for name in options.data:
        for split in available(name, data.splits(name, range(options.seeds))):
            fit_missing(kept, split, options.relations, options.epsilons, options.solvers, end)
    report(options.output, load(kept))
    print(options.output.read_text())


if __name__ == "__main__":
    main()
