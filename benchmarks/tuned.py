"""Defaults against a rival that may look: plain noisy descent, its steps and rate chosen on the test rows themselves.

    python -m benchmarks.tuned [--data adult ...] [--epsilons 0.1 1] [--seeds 10]

It writes ``results/tuned.md``. The rival is the classical algorithm (Bassily, Smith and Thakurta, 2014, with exact
composition), neither capped nor averaged nor leveled; the best of its settings is chosen by the mean accuracy in the
table, which nobody can do in earnest. ``auto`` never looks. Both see the same splits, and so does the answer of the
larger class. Every fit is kept in ``results/tuned.json`` as soon as it is done, so that a run can be stopped and taken
up again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.solvers import BINARY, Fit, Summary, available, fit_missing, load, shown, summary
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent

RESULTS = Path(__file__).parent / "results" / "tuned.md"
RELATION = "replace-one"
_LAST = 1e-9  # of the iterates: only the last one
_FAR = 1e3  # a ball that no iterate leaves


def plain(steps: int, rate: float) -> NoisyGradientDescent:
    """Noisy descent without anything that this library adds to it."""
    return NoisyGradientDescent(
        n_iterations=steps, learning_rate=rate, momentum=0.0, radius=_FAR, cap=1.0, averaging=_LAST,
        level_rows=False, center_share=0.0,
    )  # fmt: skip


GRID = {
    f"{steps} steps of {rate:g}": plain(steps, rate)
    for steps in (1, 10, 50, 200)
    for rate in (0.1, 0.5, 2.0, 8.0, 32.0)
}


def majority(name: str, seeds: range) -> Summary:
    """The accuracy, in percent, of always giving the commonest label of the training rows."""
    scores = []
    for split in data.splits(name, seeds):
        labels, counts = np.unique(split.y_train, return_counts=True)
        scores.append(100 * float(np.mean(split.y_test == labels[counts.argmax()])))
    return summary(scores)


def best(fits: Sequence[Fit], score: str) -> tuple[str, Summary]:
    """The setting of the best mean, and that mean."""
    scores = {name: [getattr(fit, score) for fit in fits if fit.solver == name] for name in GRID}
    means = {name: summary(values) for name, values in scores.items() if values}
    name = max(means, key=lambda name: means[name].mean)
    return name, means[name]


def table(fits: Sequence[Fit], majorities: Mapping[str, Summary]) -> str:
    """One line per data set and epsilon: accuracy, then area under the curve, each with its own best setting."""
    lines = [
        "| data set, epsilon | auto | tuned | setting | larger class | auto, area | tuned, area | splits |",
        "|---" * 8 + "|",
    ]
    for name, epsilon in dict.fromkeys((fit.data, fit.epsilon) for fit in fits):
        row = [fit for fit in fits if (fit.data, fit.epsilon) == (name, epsilon)]
        auto = [fit for fit in row if fit.solver == "auto"]
        setting, accuracy = best(row, "accuracy")
        cells = [
            shown(summary([fit.accuracy for fit in auto])),
            shown(accuracy),
            setting,
            shown(majorities[name]),
            shown(summary([fit.auc for fit in auto])),
            shown(best(row, "auc")[1]),
            str(len(auto)),
        ]
        lines.append(f"| {name}, {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Fit what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=list(BINARY), choices=BINARY)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    kept = options.output.with_suffix(".json")
    for name in options.data:
        for split in available(name, data.splits(name, range(options.seeds))):
            fit_missing(kept, split, [RELATION], options.epsilons, {"auto": "auto", **GRID})
    fits = load(kept)
    last = {name: max(fit.seed for fit in fits if fit.data == name) for name in {fit.data for fit in fits}}
    majorities = {name: majority(name, range(seed + 1)) for name, seed in last.items()}
    options.output.write_text(
        "# Defaults against descent tuned on the test rows\n\nTest accuracy in percent and area under the ROC curve, "
        "mean and standard error over splits; replace-one, delta = 1/n^2, logistic regression. `tuned` is plain noisy "
        f"gradient descent with the best of {len(GRID)} settings, chosen by the very figure that is shown.\n\n"
        f"{table(fits, majorities)}\n"
    )
    print(options.output.read_text())


if __name__ == "__main__":
    main()
