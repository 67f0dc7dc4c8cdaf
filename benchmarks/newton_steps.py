"""Fewer steps of ``newton`` beside 100 of them: the public rule and 50 steps, on shared and on generated sets.

    python -m benchmarks.newton_steps [--splits 10] [--sets adult ...]

The rule was set on shared sets, on other splits; which of them was not noted, so all of them count as used. The
generated sets were written after the rule and set nothing. Cells are a set, a number of rows and an epsilon. Every
split is fitted with each number of steps, and with noise of its own. Writes ``results/newton_steps.md`` after each set.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from sklearn.metrics import roc_auc_score

from benchmarks import dense_choice
from benchmarks.calibration import Array
from discreet import PrivateLogisticRegression, __version__
from discreet.solvers.second_order.newton import NoisyNewton, NoisyNewtonPlan

RESULTS = Path(__file__).parent / "results" / "newton_steps.md"
ROWS = 2_000, 16_000
EPSILONS = 0.3, 1.0, 4.0
DELTA = 1e-6
MANY, FEW = 100, 50
SHARED = tuple(
    name for name in dense_choice.SETS if name != "madelon"
)  # where it has signal, it has too few rows
SCORES = "area", "accuracy", "log loss"
_GENERATED_ROWS = 22_000
_HELD = 5_000


def _normal(rng: np.random.Generator, columns: int, decay: float) -> Array:
    """Normal rows, with eigenvalues that fall with a power of their rank, in random directions."""
    spread = np.arange(1, columns + 1) ** (-decay / 2)
    turned = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    return np.asarray((rng.normal(size=(_GENERATED_ROWS, columns)) * spread) @ turned)


def _categories(rng: np.random.Generator, columns: int, levels: int) -> Array:
    """A one-hot column per level, some levels much rarer than others."""
    chances = rng.dirichlet(np.full(levels, 0.5), size=columns)
    return np.hstack([np.eye(levels)[rng.choice(levels, _GENERATED_ROWS, p=one)] for one in chances])


def _heavy(rng: np.random.Generator, columns: int) -> Array:
    """Rows of which a few are far longer than the others, off center."""
    return np.asarray(1.0 + rng.standard_t(3, size=(_GENERATED_ROWS, columns)))


def _waves(rng: np.random.Generator, columns: int) -> Array:
    """Rows in which neighboring columns are alike, with positive entries."""
    steps = rng.normal(size=(_GENERATED_ROWS, columns)).cumsum(axis=1) / math.sqrt(columns)
    return np.asarray(expit(steps))


#: How rows are drawn, the size of the log-odds, and the share of the rarer class.
GENERATED: dict[str, tuple[Callable[[np.random.Generator], Array], float, float]] = {
    "four columns": (lambda rng: _normal(rng, 4, 0.0), 1.5, 0.4),
    "round": (lambda rng: _normal(rng, 30, 0.0), 2.0, 0.5),
    "decaying": (lambda rng: _normal(rng, 60, 1.5), 3.0, 0.3),
    "steep": (lambda rng: _normal(rng, 150, 3.0), 2.0, 0.2),
    "categories": (lambda rng: _categories(rng, 15, 6), 2.0, 0.1),
    "heavy tails": (lambda rng: _heavy(rng, 20), 2.0, 0.35),
    "waves": (lambda rng: _waves(rng, 250), 3.0, 0.5),
    "no signal": (lambda rng: _normal(rng, 40, 1.0), 0.0, 0.25),
}


@dataclass(frozen=True)
class Cell:
    """The scores of one cell by number of steps, a row per split."""

    name: str
    rows: int
    epsilon: float
    default: int
    scores: dict[int, NDArray[np.float64]]

    def difference(self, steps: int) -> NDArray[np.float64]:
        """The scores with so many steps minus those with many, per split."""
        return np.asarray(self.scores[steps] - self.scores[MANY])


def generate(name: str) -> tuple[Array, Array]:
    """Rows of norm at most 1, and labels whose log-odds are a linear function of the standardized rows."""
    drawn, size, share = GENERATED[name]
    rng = np.random.default_rng([19, list(GENERATED).index(name)])
    X = drawn(rng)
    odds = X @ rng.normal(size=X.shape[1])
    odds = size * (odds - odds.mean()) / odds.std()
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if expit(odds + middle).mean() > share else (middle, high)
    y = (rng.random(len(odds)) < expit(odds + low)).astype(float)
    norms = np.linalg.norm(X, axis=1)
    return np.asarray(X / np.maximum(np.quantile(norms, 0.9), norms)[:, None]), y


def fitted(X: Array, y: Array, rows: int, epsilon: float, steps: int, seed: int) -> tuple[float, ...]:
    """Area under the ROC curve, accuracy and log loss on the rows that are held out."""
    order = np.random.default_rng([17, seed]).permutation(len(y))
    held, train = np.split(order, [min(len(y) // 5, _HELD)])
    solver = NoisyNewton(n_iterations=steps)
    model = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], solver=solver)
    model.fit(X[train[:rows]], y[train[:rows]])
    z = model.decision_function(X[held])
    loss = -float(np.mean(log_expit((2 * y[held] - 1) * z)))
    return float(roc_auc_score(y[held], z)), float(np.mean((z > 0) == (y[held] > 0))), loss


def cells_of(name: str, splits: int) -> list[Cell]:
    """Measure all cells of a set."""
    X, y = generate(name) if name in GENERATED else dense_choice.load(name)
    found = []
    for rows in (n for n in ROWS if n <= 0.8 * len(y)):
        for epsilon in EPSILONS:
            plan = PrivateLogisticRegression(epsilon, DELTA, solver="newton").plan(rows, X.shape[1], 2)
            default = cast(NoisyNewtonPlan, plan).n_iterations
            scores = {
                steps: np.array([fitted(X, y, rows, epsilon, steps, seed) for seed in range(splits)])
                for steps in sorted({FEW, default, MANY})
            }
            found.append(Cell(name, rows, epsilon, default, scores))
            print(
                name, rows, epsilon, default, found[-1].difference(default).mean(axis=0).round(4), flush=True
            )
    return found


def told(difference: Array, digits: int = 4) -> str:
    """Mean and standard error."""
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return f"{difference.mean():+.{digits}f} ± {error:.{digits}f}"


def summary(title: str, cells: list[Cell]) -> list[str]:
    """Describe differences over sets, whose means are independent, and count the cells that are clear of noise."""
    if not cells:
        return []
    names = sorted({cell.name for cell in cells})
    lines = [f"{title}: {len(names)} sets, {len(cells)} cells.", ""]
    for label in ("the rule", f"{FEW} steps"):
        parts = []
        for k, score in enumerate(SCORES):
            gains = [
                (cell.name, cell.difference(cell.default if label == "the rule" else FEW)[:, k] * _better(k))
                for cell in cells
            ]
            means = np.array([np.mean([gain.mean() for name, gain in gains if name == one]) for one in names])
            errors = [gain.mean() / max(gain.std(ddof=1) / math.sqrt(len(gain)), 1e-9) for _, gain in gains]
            over, under = sum(one >= 2 for one in errors), sum(one <= -2 for one in errors)
            worst = min(float(gain.mean()) for _, gain in gains)
            mean = told(means * _better(k)) if len(names) > 1 else f"{means[0] * _better(k):+.4f}"
            parts.append(
                f"{score} {mean} (better by two standard errors in {over} cells, worse in {under}; "
                f"worst cell {worst * _better(k):+.4f})"
            )
        lines += [f"* {label} minus {MANY} steps, mean and standard error over sets: {'; '.join(parts)}"]
    return [*lines, ""]


def _better(score: int) -> int:
    """1 if more of a score is better, else -1."""
    return -1 if SCORES[score] == "log loss" else 1


def report(cells: list[Cell], splits: int) -> str:
    """The page."""
    header = ["data set", "records", "epsilon", "steps of the rule", f"area, {MANY} steps"]
    header += [f"{score}, {one} minus {MANY}" for one in ("rule", str(FEW)) for score in SCORES]
    lines = []
    for cell in cells:
        columns = [told(cell.difference(steps)[:, k]) for steps in (cell.default, FEW) for k in range(3)]
        if cell.default == MANY:
            columns[:3] = ["the same"] * 3
        elif cell.default == FEW:
            columns[3:] = ["the same"] * 3
        area = f"{cell.scores[MANY][:, 0].mean():.3f}"
        lines.append(
            f"| {cell.name} | {cell.rows:,} | {cell.epsilon:g} | {cell.default} | {area} | "
            + " | ".join(columns)
            + " |"
        )
    return "\n".join(
        [
            "# Steps of newton",
            "",
            "Area under the ROC curve, accuracy and log loss of `newton` with fewer steps minus those with "
            f"{MANY}: mean and standard error over {splits} splits, replace-one, delta = {DELTA:g}, discreet "
            f"{__version__} (`python -m benchmarks.newton_steps`). Where the rule asks for {FEW} or {MANY}, the "
            "fits are shared.",
            "",
            *summary("Shared sets, on other splits of which the rule was set", _of(cells, SHARED)),
            *summary("Generated sets, written after the rule", _of(cells, GENERATED)),
            "| " + " | ".join(header) + " |",
            "|---" * len(header) + "|",
            *lines,
            "",
        ]
    )


def _of(cells: list[Cell], names: Iterable[str]) -> list[Cell]:
    return [cell for cell in cells if cell.name in set(names)]


def main() -> None:
    """Measure the sets that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--splits", type=int, default=10)
    names = (*GENERATED, *SHARED)
    parser.add_argument("--sets", nargs="*", default=list(names), choices=names)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells: list[Cell] = []
    for name in options.sets:
        cells += cells_of(name, options.splits)
        RESULTS.write_text(report(cells, options.splits), encoding="utf-8")


if __name__ == "__main__":
    main()
