"""All solvers with their default settings, on equal terms: data sets x epsilons x relations.

Run ``python -m benchmarks.solvers [--data adult mnist ...] [--seeds 3] [--epsilons 0.1 1]``; ``measure()`` returns the
same rows for other reports. A solver that refuses a problem is shown with its reason.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import data
from discreet import PrivateLogisticRegression
from discreet.solvers import base

DATA = (
    "adult",
    "kddcup99",
    "gisette_valid1k",
    "reuters_moneyfx",
    "clothing_reviews",
    "news20",
    "covtype",
    "mnist",
)
SOLVERS = ("objective", "noisy-gd", "noisy-sgd", "newton", "output", "psgd")
PRINTED = ("objective-dissertation", "noisy-gd-dissertation", "output-jain-thakurta", "psgd-dissertation")
RELATIONS = ("replace-one", "add-remove-one")


@dataclass(frozen=True)
class Row:
    """One solver on one data set at one epsilon."""

    data: str
    relation: str
    epsilon: float
    solver: str
    accuracies: tuple[float, ...]
    seconds: float
    refused: str = ""

    @property
    def mean(self) -> float:
        """Mean test accuracy in percent."""
        return float(np.mean(self.accuracies)) if self.accuracies else float("nan")

    @property
    def standard_error(self) -> float:
        """Standard error over splits; nan for one."""
        if len(self.accuracies) < 2:
            return float("nan")
        return float(np.std(self.accuracies, ddof=1) / np.sqrt(len(self.accuracies)))


def measure(
    names: Iterable[str] = ("adult", "kddcup99"),
    epsilons: Sequence[float] = (0.1, 1.0),
    seeds: int = 3,
    solvers: Sequence[str] = (*SOLVERS, *PRINTED),
    relations: Sequence[str] = RELATIONS,
) -> list[Row]:
    """Fit everything; data sets that are not on this machine are skipped with a message."""
    rows = []
    for name in names:
        try:
            splits = list(data.splits(name, range(seeds)))
        except data.MissingData as error:
            print(f"skipped {name}: {error}")
            continue
        for relation in relations:
            for epsilon in epsilons:
                rows += [_row(name, relation, epsilon, solver, splits) for solver in solvers]
    return rows


def _row(name: str, relation: str, epsilon: float, solver: str, splits: list[data.Split]) -> Row:
    accuracies, seconds = [], 0.0
    for split in splits:
        model = PrivateLogisticRegression(
            epsilon=epsilon,
            delta=split.delta,
            neighboring=relation,
            classes=split.classes,
            n_samples=len(split.y_train),
            solver=solver,
        )
        begin = time.perf_counter()
        try:
            model.fit(split.X_train, split.y_train)
        except ValueError as error:
            return Row(name, relation, epsilon, solver, (), 0.0, str(error))
        seconds += time.perf_counter() - begin
        accuracies.append(100 * model.score(split.X_test, split.y_test))
    return Row(name, relation, epsilon, solver, tuple(accuracies), seconds / len(splits))


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table: one line per data set, relation and epsilon; the best in bold."""
    solvers = list(dict.fromkeys(row.solver for row in rows))
    lines = [
        "| data set, relation, epsilon | " + " | ".join(solvers) + " |",
        "|---" * (len(solvers) + 1) + "|",
    ]
    for key in dict.fromkeys((row.data, row.relation, row.epsilon) for row in rows):
        found = {row.solver: row for row in rows if (row.data, row.relation, row.epsilon) == key}
        best = max((row.mean for row in found.values() if row.accuracies), default=float("nan"))
        cells = [_cell(found.get(solver), best) for solver in solvers]
        lines.append(f"| {key[0]}, {key[1]}, {key[2]:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row | None, best: float) -> str:
    if row is None or row.refused:
        return "refused" if row else "-"
    error = "" if np.isnan(row.standard_error) else f" ± {row.standard_error:.1f}"
    text = f"{row.mean:.1f}{error}"
    return f"**{text}**" if row.mean == best else text


def main() -> None:
    """Print the table and the reasons of refusals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["adult", "kddcup99"], choices=DATA)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--relations", nargs="+", default=list(RELATIONS))
    parser.add_argument("--solvers", nargs="+", default=[*SOLVERS, *PRINTED], choices=base.names())
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = measure(options.data, options.epsilons, options.seeds, options.solvers, options.relations)
    print(table(rows))
    for reason in dict.fromkeys(
        f"{row.solver}, {row.relation}: {row.refused}" for row in rows if row.refused
    ):
        print(f"refused: {reason}")


if __name__ == "__main__":
    main()
