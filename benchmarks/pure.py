"""Pure differential privacy: the default of every regressor and of the median at delta = 0, beside doing nothing.

``python -m benchmarks.pure`` measures the mean loss of each default on fresh rows against that of the prediction which
needs no data, the middle of the declared range (for the median: the center of the ball), and against the same estimator
with delta = 1e-6. Rules were set on seeds from 100 on; reported are seeds 0 to 4. Writes results/pure.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import discreet
from discreet.display.console import table

RESULTS = Path(__file__).parent / "results" / "pure.md"
SIZES = ((300, 0.1), (300, 1.0), (3_000, 0.1), (3_000, 1.0), (30_000, 1.0))
N_COLUMNS = 5
Row = dict[str, Any]
Loss = Callable[[NDArray[np.float64]], float]


def _squared(errors: NDArray[np.float64]) -> float:
    return float(np.mean(errors**2))


def _absolute(errors: NDArray[np.float64]) -> float:
    return float(np.mean(np.abs(errors)))


REGRESSORS: dict[str, tuple[tuple[float, float], Loss]] = {
    "PrivateRidge": ((-3.0, 3.0), _squared),
    "PrivateLinearRegression": ((-3.0, 3.0), _squared),
    "PrivateHuberRegressor": ((-3.0, 3.0), _squared),
    "PrivateQuantileRegressor": ((-3.0, 3.0), _absolute),
    "PrivatePoissonRegressor": ((0.0, 12.0), _squared),
}


def _rows(seed: int, n_rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Uniform rows and a linear target with Gaussian errors, in the middle of the range on average."""
    generator = np.random.default_rng([seed, n_rows])
    X = generator.uniform(-0.5, 0.5, size=(n_rows, N_COLUMNS))
    return X, X @ [2.0, -1.0, 0.5, 0.0, 0.0] + 0.3 * generator.normal(size=n_rows)


def regressor(name: str, n_rows: int, epsilon: float, delta: float, seed: int) -> tuple[float, float]:
    """Loss of one fit on fresh rows, and of the prediction without data."""
    bounds, loss = REGRESSORS[name]
    (X, y), (fresh, truth) = _rows(seed, n_rows), _rows(seed + 50, 5_000)
    if name == "PrivatePoissonRegressor":
        y, truth = (
            np.random.default_rng(seed).poisson(np.exp(1 + target)).astype(float) for target in (y, truth)
        )
    model = getattr(discreet, name)(epsilon, delta, feature_bound=1.5, target_bounds=bounds)
    errors = model.fit(X, y).predict(fresh) - truth
    # Counts are predicted on a logarithmic scale, whose middle is the geometric one.
    nothing = np.mean(bounds) if bounds[0] < 0 else bounds[1] / np.sqrt(50.0)
    return loss(errors), loss(nothing - truth)


def median(n_rows: int, epsilon: float, delta: float, seed: int) -> tuple[float, float]:
    """Mean distance to the private median, and to the center of its ball."""
    generator = np.random.default_rng([seed, n_rows, 1])
    X = generator.normal([1.0, -1.0, 0.5, 0.0, 0.0], 0.5, size=(n_rows, N_COLUMNS))
    theta = discreet.PrivateMedian(epsilon, delta, radius=5.0).fit(X).median_
    return float(np.linalg.norm(X - theta, axis=1).mean()), float(np.linalg.norm(X, axis=1).mean())


def measured(seeds: Iterable[int] = range(5)) -> list[Row]:
    """One row per estimator and size: losses as a share of the loss without data, below 1 where a fit is of use."""
    rows = []
    for name in (*REGRESSORS, "PrivateMedian"):
        for n_rows, epsilon in SIZES:
            shares = {}
            for delta in (0.0, 1e-6):
                found = [
                    median(n_rows, epsilon, delta, seed)
                    if name == "PrivateMedian"
                    else regressor(name, n_rows, epsilon, delta, seed)
                    for seed in seeds
                ]
                shares[delta] = [fitted / nothing for fitted, nothing in found]
            pure = shares[0.0]
            rows.append(
                {
                    "estimator": name,
                    "records": n_rows,
                    "epsilon": epsilon,
                    "delta 0": round(float(np.mean(pure)), 3),
                    "standard error": round(float(np.std(pure, ddof=1) / np.sqrt(len(pure))), 3),
                    "delta 1e-6": round(float(np.mean(shares[1e-6])), 3),
                }
            )
    return rows


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description="Measure the defaults at delta = 0.")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    rows = measured(seeds)
    table("pure", list(rows[0]), [list(row.values()) for row in rows])
    if min(seeds) >= 100:  # seeds on which rules were set are not reported
        return
    lines = [
        "# Defaults without delta",
        "",
        "Written by `python -m benchmarks.pure`. Loss on fresh rows over the loss of the prediction that needs no data",
        "(the middle of the declared range, the center of the ball): below 1 a fit is of use. Five columns, means of "
        f"{len(seeds)} fits.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
        *("| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows),
        "",
    ]
    RESULTS.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
