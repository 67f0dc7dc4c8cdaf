"""What the automatic choice of a solver rests on: candidates side by side, where the rule goes from one to the next.

    python -m benchmarks.choices [--data adult ...] [--seeds 4] [--again newton ...]

It writes ``results/choices.md``. All splits are of seeds 100 and up, which no other table uses. A number behind the
name of a data set says how many rows of the training part are taken. Every fit is kept in ``results/choices.json`` as
soon as it is done; a run can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.solvers import Fit, available, chosen, fit_missing, load, shown, summary, update
from discreet.solvers import base

RESULTS = Path(__file__).parent / "results" / "choices.md"
FIRST_SEED = 100
RELATION = "replace-one"


@dataclass(frozen=True)
class Case:
    """Candidates on a data set, or on its first ``rows`` training rows."""

    source: str
    epsilons: tuple[float, ...]
    solvers: tuple[str, ...]
    rows: int | None = None

    @property
    def name(self) -> str:
        """As the table shows it."""
        return self.source if self.rows is None else f"{self.source} {self.rows}"

    def splits(self, n_seeds: int) -> Iterator[data.Split]:
        """The splits, under the name of the case."""
        for split in data.splits(self.source, range(FIRST_SEED, FIRST_SEED + n_seeds)):
            few = slice(self.rows)
            yield replace(split, name=self.name, X_train=split.X_train[few], y_train=split.y_train[few])


_NARROW = "newton", "discriminant", "noisy-gd"
_WIDE = "discriminant", "noisy-gd"
CASES = (
    Case("adult", (0.3, 1.0), _NARROW, 1_000),
    Case("adult", (0.1, 0.3, 1.0), _NARROW, 3_000),
    Case("adult", (0.01, 0.03, 0.1), _NARROW),
    Case("kddcup99", (0.3, 1.0), _NARROW, 1_000),
    Case("kddcup99", (0.1, 0.3, 1.0), _NARROW, 3_000),
    Case("kddcup99", (0.005, 0.01, 0.1, 0.3), _NARROW),
    Case("covtype", (0.001, 0.003, 0.01), _NARROW),
    Case("mnist", (0.03, 0.05, 0.1, 0.15), _NARROW),
    Case("gisette_valid1k", (0.1, 0.3, 0.5, 1.0, 2.0, 4.0), ("frank-wolfe", *_WIDE)),
    Case("reuters_moneyfx", (0.1, 1.0, 10.0, 30.0), _WIDE),
    Case("clothing_reviews", (0.1, 1.0, 10.0, 30.0), _WIDE),
    Case("news20", (0.1, 1.0, 10.0, 30.0), _WIDE),
)


def table(fits: Sequence[Fit], choices: dict[tuple[str, float], str]) -> str:
    """One line per case and epsilon: accuracy, and the area under the curve where there are two classes."""
    names = sorted({fit.solver for fit in fits})
    lines = [
        "| data set, epsilon | auto | " + " | ".join(names) + " | splits | version |",
        "|---" * (len(names) + 4) + "|",
    ]
    for (name, epsilon), choice in choices.items():
        row = [fit for fit in fits if (fit.data, fit.epsilon) == (name, epsilon)]
        cells = [_cell([fit for fit in row if fit.solver == solver]) for solver in names]
        n_splits = len({fit.seed for fit in row})
        version = ", ".join(sorted({fit.version for fit in row}))
        lines.append(
            f"| {name}, {epsilon:g} | {choice} | " + " | ".join(cells) + f" | {n_splits} | {version} |"
        )
    return "\n".join(lines)


def _cell(fits: Sequence[Fit]) -> str:
    if not fits:
        return "-"
    if any(fit.refused for fit in fits):
        return "refused"
    area = summary([fit.auc for fit in fits])
    text = shown(summary([fit.accuracy for fit in fits]))
    return text if np.isnan(area.mean) else f"{text} ({area.mean:.1f})"


def main(arguments: list[str] | None = None) -> None:
    """Fit what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = sorted({case.source for case in CASES})
    parser.add_argument("--data", nargs="+", default=names, choices=names)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--again",
        nargs="+",
        default=[],
        choices=base.names(),
        help="forget earlier fits of solvers that changed",
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    kept = options.output.with_suffix(".json")
    named = {case.name for case in CASES if case.source in options.data}
    if options.again:
        update(
            kept, lambda old: [fit for fit in old if fit.solver not in options.again or fit.data not in named]
        )
    for case in CASES:
        if case.source not in options.data:
            continue
        for split in available(case.name, case.splits(options.seeds)):
            fit_missing(kept, split, [RELATION], case.epsilons, case.solvers)
    fits = load(kept)
    measured = {fit.data for fit in fits}
    first = {case: next(case.splits(1)) for case in CASES if case.name in measured}
    choices = {
        (case.name, epsilon): chosen(split, RELATION, epsilon)
        for case, split in first.items()
        for epsilon in case.epsilons
    }
    options.output.write_text(
        "# Where the automatic choice switches between solvers\n\nTest accuracy in percent, mean and standard "
        "error over splits of seeds 100 and up, and in brackets the area under the ROC curve; replace-one, "
        "delta = 1/n^2. `auto` is what the library beside this page chooses; the last column is the version of the "
        "library whose solvers were measured.\n\n"
        f"{table(fits, choices)}\n"
    )
    print(options.output.read_text())


if __name__ == "__main__":
    main()
