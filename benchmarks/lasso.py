"""The private LASSO: what a thousandfold of useless columns costs, how the excess risk falls, and real data.

Run ``python -m benchmarks.lasso``; ``measure()`` returns the same numbers for other reports. Rows and columns are
generated, except the last table, which needs DISCREET_DATA.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import data
from discreet import PrivateLasso, PrivateSparseLogisticRegression
from discreet.solvers.frank_wolfe import FrankWolfe

Array = NDArray[np.float64]

_SIGNAL = 100  # columns that are not padding


def generated(n_samples: int, seed: int) -> tuple[Array, Array]:
    """Random signs; a target with three active columns, inside [-1, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n_samples, _SIGNAL))
    return X, X[:, :3] @ np.array([0.5, -0.3, 0.2])


def padded(X: Array, n_columns: int) -> Any:
    """The same rows with zero columns appended, as CSR."""
    n, kept = X.shape
    indices = np.tile(np.arange(kept), n)
    return sp.csr_array((X.ravel(), indices, np.arange(0, n * kept + 1, kept)), shape=(n, n_columns))


def excess_risk(
    n_samples: int, n_columns: int, epsilon: float, solver: Any, repeats: int
) -> tuple[float, float]:
    """Mean excess risk over the ball (the optimum is 0) and the certificate."""
    risks, certificate = [], math.nan
    for seed in range(repeats):
        X, y = generated(n_samples, seed)
        rows = X if n_columns == _SIGNAL else padded(X, n_columns)
        model = PrivateLasso(epsilon, target_bounds=(-1, 1), fit_intercept=False, solver=solver).fit(rows, y)
        risks.append(float(np.mean((X @ model.coef_[:_SIGNAL] - y) ** 2)) / 2)
        certificate = model.plan(n_samples, n_columns).certificate.expected  # type: ignore[attr-defined]
    return float(np.mean(risks)), certificate


def measure(repeats: int = 5, largest: int = 32_000, epsilon: float = 1.0) -> dict[str, Any]:
    """Excess risk against columns and rows, with the log-log slope in the rows."""
    columns = {
        p: excess_risk(8_000, p, epsilon, "frank-wolfe", repeats) for p in (100, 1_000, 10_000, 100_000)
    }
    sizes = [n for n in (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000) if n <= largest]
    rows = {n: excess_risk(n, _SIGNAL, epsilon, "frank-wolfe", repeats) for n in sizes}
    logs = np.log(np.array(sizes, dtype=float))
    slopes = {
        name: float(np.polyfit(logs, np.log([rows[n][k] for n in sizes]), 1)[0])
        for k, name in enumerate(("measured", "certified"))
    }
    kinds = {
        "frank-wolfe, vertices": FrankWolfe(choice="vertices"),
        "frank-wolfe, least certificate": FrankWolfe(choice="vertices", expected_curvature=1.0),
        "frank-wolfe, gradient": FrankWolfe(choice="gradient"),
        "frank-wolfe-dissertation": "frank-wolfe-dissertation",
        "mirror-descent": "mirror-descent",
    }
    solvers = {name: excess_risk(8_000, _SIGNAL, epsilon, kind, repeats) for name, kind in kinds.items()}
    return {"columns": columns, "rows": rows, "slopes": slopes, "solvers": solvers}


def real_data(repeats: int = 3) -> dict[str, tuple[float, float]]:
    """Accuracy of sparse logistic regression at epsilon 1, beside the share of the larger class."""
    found = {}
    for name in ("adult", "kddcup99", "clothing_reviews"):
        try:
            splits = list(data.splits(name, range(repeats)))
        except data.MissingData as missing:
            print(f"{name}: skipped, {missing}")
            continue
        scores = []
        for split in splits:
            model = PrivateSparseLogisticRegression(1.0, split.delta, classes=split.classes)
            scores.append(model.fit(split.X_train, split.y_train).score(split.X_test, split.y_test))
        share = float(np.mean(splits[0].y_test == 1))
        found[name] = float(np.mean(scores)), max(share, 1 - share)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=32_000, help="largest number of rows")
    arguments = parser.parse_args()
    result = measure(arguments.repeats, arguments.largest)
    print("columns (8000 rows, 100 useful)    excess risk   certificate")
    for p, (risk, certificate) in result["columns"].items():
        print(f"{p:10d} {risk:34.5f} {certificate:13.4f}")
    first, last = result["columns"][100], result["columns"][100_000]
    ratio = math.log(200_000) / math.log(200)
    print(f"growth {last[0] / first[0]:.2f}, ratio of the logarithms {ratio:.2f}, its square {ratio**2:.2f}")
    print("rows (100 columns)                 excess risk   certificate")
    for n, (risk, certificate) in result["rows"].items():
        print(f"{n:10d} {risk:34.5f} {certificate:13.4f}")
    print(
        ", ".join(f"{name} slope {slope:.2f}" for name, slope in result["slopes"].items()), "(theory -0.67)"
    )
    for name, (risk, certificate) in result["solvers"].items():
        print(f"{name:30s} excess {risk:.5f}, certified {certificate:.4f}")
    for name, (score, share) in real_data().items():
        print(f"{name:30s} accuracy at epsilon 1: {score:.4f} (larger class: {share:.4f})")


if __name__ == "__main__":
    main()
