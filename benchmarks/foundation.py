"""What the foundation claims about itself, measured: accuracy, speed, noise and the ledger.

    python -m benchmarks.foundation [accuracy] [speed] [noise] [ledger] [limits] [--seeds N] [--output FILE]

Without names it measures everything. With names and a file, the file's other tables stay as they are. Data sets come
from DISCREET_DATA; a row whose data set is missing says so. Each row has its target beside it; nothing here is typed in
by hand but the targets.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import data

RESULTS = Path(__file__).parent / "results" / "foundation.md"


@dataclass(frozen=True)
class Row:
    """One measured figure beside its target."""

    what: str
    measured: str
    target: str
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "yes", False: "NO", None: ""}[self.met]
        return f"| {self.what} | {self.measured} | {self.target} | {verdict} |"


@dataclass(frozen=True)
class Goal:
    """Accuracy to reach with default arguments."""

    name: str
    epsilon: float
    target: float
    dissertation: float | None = None


# Targets in percent; the dissertation's best figures were tuned on the private data itself.
GOALS = (
    Goal("adult", 0.1, 80.0, 79.1),
    Goal("adult", 1.0, 83.0),
    Goal("kddcup99", 0.1, 98.5, 98.1),
    Goal("kddcup99", 1.0, 99.0),
    Goal("mnist", 1.0, 87.0, 71.9),
    Goal("covtype", 1.0, 70.0, 65.0),
)


def accuracy(n_seeds: int) -> list[Row]:
    """Test accuracy of `PrivateLogisticRegression` with defaults, replace-one, delta = 1/n^2."""
    from discreet import PrivateLogisticRegression

    rows = []
    for goal in GOALS:
        what = f"{goal.name}, epsilon {goal.epsilon:g}"
        best = "" if goal.dissertation is None else f" (dissertation, tuned: {goal.dissertation})"
        target = f"at least {goal.target}{best}"
        try:
            scores = []
            for split in data.splits(goal.name, range(n_seeds)):
                model = PrivateLogisticRegression(goal.epsilon, classes=split.classes)
                model.fit(split.X_train, split.y_train)
                scores.append(100 * model.score(split.X_test, split.y_test))
                _progress(f"{what}: {len(scores)} of {n_seeds}")
            error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else float("nan")
            mean = float(np.mean(scores))
            rows.append(
                Row(what, f"{mean:.2f} ± {error:.2f} ({len(scores)} seeds)", target, mean >= goal.target)
            )
        except data.MissingData as missing:
            rows.append(Row(what, f"skipped: {missing}", target))
    return rows


def speed(_: int) -> list[Row]:
    """A dense 500,000 x 100 fit against scikit-learn at the same gradient norm, in one run."""
    from benchmarks import dense_fit

    found = dense_fit.measure()
    fit, memory = found["fit_over_scikit_learn"], found["peak_memory_over_input"]
    return [
        Row("fit over scikit-learn lbfgs, same gradient norm", f"{fit:.2f}", "at most 1", fit <= 1),
        Row("one clipped pass over one read of the matrix", f"{found['pass_over_read']:.2f}", ""),
        Row("peak memory over the input", f"{memory:.2f}", "at most 1.3", memory <= 1.3),
    ]


def noise(_: int) -> list[Row]:
    """One million noise coordinates against NumPy's (unsafe) normals."""
    from benchmarks import noise as noise_benchmark

    ratio = float(noise_benchmark.measure()["ratio"])
    return [Row("safe Gaussian noise, rate over NumPy normals", f"{ratio:.2f}", "at least 0.5", ratio >= 0.5)]


def ledger(_: int) -> list[Row]:
    """8 processes x 500 charges on one ledger, one of them killed."""
    from benchmarks import ledger as ledger_benchmark

    found = ledger_benchmark.measure()
    verdicts = {name.removeprefix("ok_"): ok for name, ok in found.items() if name.startswith("ok_")}
    rate = found["charges_per_second"]
    return [
        *(
            Row(f"ledger: {name.replace('_', ' ')}", str(value), "True", value)
            for name, value in verdicts.items()
        ),
        Row("ledger: charges per second, all processes", f"{rate:.0f}", ""),
    ]


def limits(_: int) -> list[Row]:
    """epsilon = 1e6 against scikit-learn's coefficients; noise shared by no two fits."""
    from joblib import Parallel, delayed
    from sklearn.linear_model import LogisticRegression

    from discreet import PrivateLogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 8)) / 3
    y = (X @ rng.normal(size=8) + 0.5 * rng.normal(size=10_000) > 0).astype(int)
    l2 = 1e-3
    private = PrivateLogisticRegression(
        1e6, feature_bound=5.0, l2=l2, classes=[0, 1], fit_intercept=False
    ).fit(X, y)
    reference = LogisticRegression(C=1 / (l2 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        X, y
    )
    gap = float(np.abs(private.coef_ - reference.coef_).max())

    def one_fit() -> list[float]:
        fitted = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0).fit(X[:500], y[:500])
        return list(fitted.coef_.ravel())

    values = [value for fit in Parallel(n_jobs=2)(delayed(one_fit)() for _ in range(6)) for value in fit]
    distinct = len(set(values)) == len(values)
    return [
        Row("largest coefficient gap to scikit-learn at epsilon 1e6", f"{gap:.1e}", "below 1e-3", gap < 1e-3),
        Row("no released number shared by 6 equal fits, n_jobs=2", str(distinct), "True", distinct),
    ]


TABLES: dict[str, Callable[[int], list[Row]]] = {
    "accuracy": accuracy,
    "speed": speed,
    "noise": noise,
    "ledger": ledger,
    "limits": limits,
}


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the results file; 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "tables",
        nargs="*",
        choices=[[], *TABLES],
        metavar="TABLE",
        help="what to measure (default: everything)",
    )
    parser.add_argument("--seeds", type=int, default=10, help="splits per data set (default: 10)")
    parser.add_argument("--output", type=Path, default=None, help="also write the tables to this file")
    options = parser.parse_args(arguments)
    chosen = options.tables or list(TABLES)
    measured = (
        f"Measured on {platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}."
    )
    output = options.output or (RESULTS if not options.tables else None)
    kept = sections(output) if output is not None and options.tables else {}
    missed = 0
    print(measured)
    for name in chosen:
        rows = TABLES[name](options.seeds)
        missed += sum(row.met is False for row in rows)
        table = [f"## {name.capitalize()}", "", (TABLES[name].__doc__ or "").strip(), ""]
        table += ["| what | measured | target | met |", "|---|---|---|---|", *map(str, rows)]
        kept[name] = "\n".join(table)
        print(f"\n{kept[name]}", flush=True)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        parts = ["# Foundation", measured, *(kept[name] for name in TABLES if name in kept)]
        output.write_text("\n\n".join(parts) + "\n")
    return int(missed > 0)


def sections(path: Path) -> dict[str, str]:
    """The tables of an earlier run by name."""
    parts = path.read_text().split("\n## ")[1:] if path.exists() else []
    return {part.split("\n")[0].lower(): f"## {part}".strip() for part in parts}


if __name__ == "__main__":
    raise SystemExit(main())
