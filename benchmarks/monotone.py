"""Whether a default gets worse as epsilon grows: every default on every set, at increasing epsilon.

    python -m benchmarks.monotone [--sets adult ...] [--splits 3] [--first 200] [--rows 4000]

Scores are test accuracy of classifiers and R^2 of regressors, in percent. All epsilons share their splits, so a change
is a mean of differences with its standard error. A step is a violation if the score falls by more than two of these
errors and by more than a tenth of a point. Lines of other sets in ``results/monotone.md`` stay as they are.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import regression
from benchmarks.data import Split, splits
from discreet import (
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from discreet._typing import Array

RESULTS = Path(__file__).parent / "results" / "monotone.md"
EPSILONS = 0.03, 0.1, 0.3, 1.0, 3.0, 10.0
CLASSIFIERS = PrivateLogisticRegression, PrivateLinearSVC
REGRESSORS = PrivateLinearRegression, PrivateRidge, PrivateHuberRegressor
LABELED = (
    "synthetic-L",
    "adult",
    "kddcup99",
    "covtype",
    "mnist",
    "gisette_valid1k",
    "magic",
    "news20",
    "reuters_moneyfx",
    "synthetic-H",
)
SETS = (*LABELED, *regression.SOURCES)
_LEAST = 0.1  # points
_HEAD = "| set | default | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " | falls |"


def regressed(name: str, seeds: range) -> Iterator[Split]:
    """Splits of a data set with real targets, clipped to their declared bounds."""
    X, targets = regression.load(name)
    y: Any = np.clip(targets, *regression.SOURCES[name].target_bounds)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.8 * len(y))])
        yield Split(name, seed, X[train], y[train], X[test], y[test])


def score(kind: type, split: Split, epsilon: float, rows: int) -> float:
    """Test accuracy or R^2 in percent of a default that is fitted on at most so many rows."""
    y = split.y_train[:rows]
    declared: dict[str, Any] = (
        {"classes": split.classes}
        if split.name in LABELED
        else {"target_bounds": regression.SOURCES[split.name].target_bounds}
    )
    model: Any = kind(epsilon, 1.0 / len(y) ** 2, **declared).fit(split.X_train[:rows], y)
    return 100 * float(model.score(split.X_test, split.y_test))


def lines_of(name: str, seeds: range, rows: int) -> dict[str, str]:
    """One line per default of this kind of set, by set and default."""
    found = list((splits if name in LABELED else regressed)(name, seeds))
    made = {}
    for kind in CLASSIFIERS if name in LABELED else REGRESSORS:
        scores = np.array([[score(kind, split, epsilon, rows) for epsilon in EPSILONS] for split in found])
        key = f"| {name} | {kind.__name__} |"
        means = " | ".join(f"{mean:.1f}" for mean in scores.mean(axis=0))
        made[key] = f"{key} {means} | {', '.join(falls(scores)) or 'none'} |"
        print(made[key], flush=True)
    return made


def falls(scores: Array) -> list[str]:
    """The steps at which scores (splits, epsilons) fall by more than two standard errors, in words."""
    changes = np.diff(scores, axis=1)
    means, errors = changes.mean(axis=0), changes.std(axis=0, ddof=1) / np.sqrt(len(changes))
    return [
        f"{EPSILONS[k]:g} to {EPSILONS[k + 1]:g}: {means[k]:.1f} ± {errors[k]:.1f}"
        for k in np.flatnonzero((means < -_LEAST) & (means < -2 * errors))
    ]


def read(path: Path) -> dict[str, str]:
    """The lines of an earlier run by set and default."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {"|".join(line.split("|")[:3]) + "|": line for line in lines if line.startswith("| ")}


def write(path: Path, found: dict[str, str], said: str) -> None:
    """Write new lines into the table; the others stay."""
    lines = read(path) | found
    kept = [line for name in SETS for key, line in lines.items() if key.startswith(f"| {name} |")]
    path.write_text(
        f"# Scores as epsilon grows\n\nAccuracy or R² of defaults in percent, replace-one, delta = 1 / n² ({said}; "
        "`python -m benchmarks.monotone`). A fall is listed if it exceeds two standard errors of the difference and a "
        "tenth of a point.\n\n" + "\n".join([_HEAD, "|---" * (len(EPSILONS) + 3) + "|", *kept]) + "\n"
    )


def main() -> None:
    """Measure, and write the table set by set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first", type=int, default=200, help="the first seed; rules were set on others")
    parser.add_argument("--rows", type=int, default=4_000, help="at most so many rows")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(options.first, options.first + options.splits)
    said = f"{options.splits} splits from seed {options.first}, at most {options.rows:,} training rows"
    for name in options.sets:
        write(RESULTS, lines_of(name, seeds, options.rows), said)


if __name__ == "__main__":
    main()
