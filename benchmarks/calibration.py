"""Log loss of default classifiers: as released, with the best rescaling of their margins, and of the class shares.

    python -m benchmarks.calibration [--splits 4]

Data are found through DISCREET_DATA. The rules of `discreet.solvers.second_order.newton` for caps and factors were set
on the first six sets, on other splits; the others were not used. Writes results/calibration.md.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_expit

from benchmarks.data import VARIABLE
from discreet import PrivateLogisticRegression

Array = NDArray[np.float64]
SETS = ("adult", "magic", "electricity", "shuttle_anomaly", "higgs_small", "spambase", "kddcup99", "w8a")
USED = SETS[:6]
ROWS = (1_000, 4_000, 15_000)
EPSILONS = (0.1, 0.3, 1.0, 3.0)


def load(name: str) -> tuple[Array, Array]:
    """Rows scaled by the largest absolute value of every column and clipped to norm 1; the rarer class is 1."""
    path = Path(os.environ[VARIABLE]) / f"{name}.npz"
    file = np.load(path, allow_pickle=True)
    X = np.asarray(file["X"] if "X" in file else sp.load_npz(path).toarray(), dtype=float)
    classes, counts = np.unique(file["y"], return_counts=True)
    largest = np.abs(X).max(axis=0)
    X = X / np.where(largest > 0, largest, 1.0)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return X, (file["y"] == classes[np.argmin(counts)]).astype(float)


def log_loss(margins: Array) -> float:
    """Mean log loss for log-odds of the true labels."""
    return -float(np.mean(log_expit(margins)))


def measure(X: Array, y: Array, n_rows: int, epsilon: float, seed: int) -> tuple[float, float, float]:
    """Log loss as released, best rescaled, and of the class shares, on rows that were held out."""
    order = np.random.default_rng([7, seed]).permutation(len(y))
    held, train = np.split(order, [min(len(y) // 5, 8_000)])
    train = train[:n_rows]
    with warnings.catch_warnings(action="ignore"):
        model = PrivateLogisticRegression(epsilon, 1e-6, classes=[0, 1]).fit(X[train], y[train])
    sign = 2 * y[held] - 1
    margins = sign * model.decision_function(X[held])
    best = minimize_scalar(lambda a: log_loss(a * margins), bounds=(0.0, 3.0), method="bounded")
    share = float(np.clip(y[train].mean(), 1e-9, 1 - 1e-9))
    return log_loss(margins), float(best.fun), log_loss(sign * np.log(share / (1 - share)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=4)
    splits = parser.parse_args().splits
    lines = [
        "| set | records | epsilon | released | best rescaling | class shares |",
        "|---|---|---|---|---|---|",
    ]
    excess = []
    for name in SETS:
        X, y = load(name)
        for n_rows in (n for n in ROWS if n <= 0.8 * len(y)):
            for epsilon in EPSILONS:
                found = np.mean([measure(X, y, n_rows, epsilon, seed) for seed in range(splits)], axis=0)
                excess.append(float(found[0] - found[2]))
                numbers = " | ".join(f"{value:.3f}" for value in found)
                label = name if name in USED else f"{name} (not used)"
                lines.append(f"| {label} | {n_rows:,} | {epsilon} | {numbers} |")
                print(lines[-1], flush=True)
    above = sum(one > 0.002 for one in excess)
    title = (
        f"# Log loss of default classifiers\n\n`python -m benchmarks.calibration`, delta 1e-6, {splits} splits. The "
        f"class shares are those of the training rows, exact and unpaid. {above} of {len(excess)} cells are above them "
        f"by more than 0.002, the worst by {max(excess):.3f}.\n\n"
    )
    results = Path(__file__).parent / "results" / "calibration.md"
    results.write_text(title + "\n".join(lines) + "\n", encoding="utf-8")
