"""What useless columns cost: output and objective perturbation with Gaussian noise, and with pure noise.

    python -m benchmarks.dimension [--repeats 10] [--rows 5000]

Ten columns carry the signal; zero columns are appended until there are a thousand times as many. A prediction meets
Gaussian noise in the direction of its row only, whatever the number of columns, while the norm of the noise that gives
delta = 0 grows with it (Jain and Thakurta, 2014).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.lasso import padded
from discreet import PrivateLogisticRegression

Array = NDArray[np.float64]

SIGNAL = 10  # columns that are not padding
COLUMNS = (10, 100, 1_000, 10_000)
DELTA = 1e-6
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--epsilon", type=float, default=0.5)
    options: Any = parser.parse_args()
    print(f"{options.rows} rows, {SIGNAL} useful columns, epsilon {options.epsilon:g}, zero-out")
    print(printed(measure(options.repeats, options.rows, options.epsilon)))


if __name__ == "__main__":
    main()
