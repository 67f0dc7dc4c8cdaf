"""What useless columns cost: output and objective perturbation with Gaussian noise, and with pure noise.

    python -m benchmarks.dimension [--repeats 10] [--rows 5000]

It writes ``results/dimension.md``. Ten columns carry the signal; zero columns are appended until there are a thousand
times as many. A prediction meets Gaussian noise in the direction of its row only, whatever the number of columns, while
the norm of the noise that gives delta = 0 grows with it (Jain and Thakurta, 2014).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.rates import padded
from discreet import PrivateLogisticRegression

Array = NDArray[np.float64]

SIGNAL = 10  # columns that are not padding
COLUMNS = (10, 100, 1_000, 10_000)
DELTA = 1e-6
RESULTS = Path(__file__).parent / "results" / "dimension.md"
METHODS = {
    "output, Gaussian": ("output", DELTA),
    "objective, Gaussian": ("objective", DELTA),
    "output, gamma-norm (pure)": ("output", 0.0),
    "objective, gamma-norm (pure)": ("objective", 0.0),
}


def generated(n_samples: int, seed: int) -> tuple[Array, Array]:
    """Rows of norm at most 1 and labels from a logistic model that no other model can beat by much."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, SIGNAL))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    direction = rng.normal(size=SIGNAL)
    chances = 1 / (1 + np.exp(-20 * X @ direction / np.linalg.norm(direction)))
    return X, (rng.random(n_samples) < chances).astype(int)


def accuracy(method: str, n_samples: int, n_columns: int, epsilon: float, seed: int) -> float:
    """Share of new rows that a model gets right; train and test rows padded with the same zero columns."""
    solver, delta = METHODS[method]
    X, y = generated(2 * n_samples, seed)
    rows = X if n_columns == SIGNAL else padded(X, n_columns)
    model = PrivateLogisticRegression(
        epsilon, delta, classes=[0, 1], fit_intercept=False, solver=solver, neighboring="zero-out"
    )
    return float(model.fit(rows[:n_samples], y[:n_samples]).score(rows[n_samples:], y[n_samples:]))


def measure(
    repeats: int = 10, n_samples: int = 5_000, epsilon: float = 0.5, columns: tuple[int, ...] = COLUMNS
) -> dict[str, dict[int, tuple[float, float]]]:
    """Mean accuracy and its standard error, by method and number of columns; the same data for all."""
    table: dict[str, dict[int, tuple[float, float]]] = {}
    for method in METHODS:
        table[method] = {}
        for p in columns:
            scores = np.array([accuracy(method, n_samples, p, epsilon, seed) for seed in range(repeats)])
            spread = float(scores.std(ddof=1)) if repeats > 1 else 0.0
            table[method][p] = float(scores.mean()), spread / np.sqrt(repeats)
    return table


def printed(table: dict[str, dict[int, tuple[float, float]]]) -> str:
    """The table, accuracies in percent."""
    columns = list(next(iter(table.values())))
    lines = ["| accuracy (%) | " + " | ".join(f"{p} columns" for p in columns) + " | lost |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for method, cells in table.items():
        values = [f"{100 * mean:.1f} ± {100 * error:.1f}" for mean, error in cells.values()]
        lost = 100 * (cells[columns[0]][0] - cells[columns[-1]][0])
        lines.append(f"| {method} | " + " | ".join(values) + f" | {lost:.1f} |")
    return "\n".join(lines)


def verdict(table: dict[str, dict[int, tuple[float, float]]]) -> str:
    """Whether each kind of noise does what theory says, by twice the standard error of a difference."""
    lines = []
    for method, cells in table.items():
        (few, few_error), *_, (many, many_error) = cells.values()
        error = 2 * float(np.hypot(few_error, many_error))
        pure = METHODS[method][1] == 0
        as_said = few - many > error if pure else abs(few - many) <= max(error, 0.01)
        lines.append(f"- {method} {'loses' if pure else 'keeps'} its accuracy: {'yes' if as_said else 'NO'}")
    return "\n".join(lines)


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options: Any = parser.parse_args()
    found = measure(options.repeats, options.rows, options.epsilon)
    text = (
        "# Useless columns\n\n"
        f"{options.rows} rows, {SIGNAL} useful columns, the others zero, epsilon {options.epsilon:g}, zero-out; mean "
        f"and standard error of {options.repeats} data sets.\n\n{printed(found)}\n\n{verdict(found)}\n"
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
