"""Sampled vertices over the simplex: risk against rows and columns, beside the certificate, and the worst neighbors.

Run ``python -m benchmarks.simplex``, which writes ``results/simplex.md``; ``measure()`` returns the same numbers for
other reports. All data is generated.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import kept
from benchmarks.papers.rates import padded
from discreet import PrivateSimplexRegressor
from discreet.losses import HuberRegression
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import BoxBounds
from discreet.sets import Simplex
from discreet.solvers.minimizers.entropic import EntropicObjective, minimize
from discreet.solvers.vertices.simplex_sampling import Constants

Array = NDArray[np.float64]

_SIGNAL = 50  # columns that are not padding


def generated(n_samples: int, seed: int) -> tuple[Array, Array]:
    """Random signs; a target that is a mixture of three columns, so that the least risk is 0."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n_samples, _SIGNAL))
    return X, X[:, :3] @ np.array([0.5, 0.3, 0.2])


def excess_risk(
    n_samples: int, n_columns: int, epsilon: float, delta: float | None, solver: Any, repeats: int
) -> tuple[float, float]:
    """Mean excess risk over all mixtures and the certificate."""
    model = PrivateSimplexRegressor(epsilon, delta, target_bounds=(-1, 1), solver=solver)
    certificate = model.plan(n_samples, n_columns).certificate.expected  # type: ignore[attr-defined]
    risks = []
    for seed in range(repeats):
        X, y = generated(n_samples, seed)
        model.fit(X if n_columns == _SIGNAL else padded(X, n_columns), y)
        risks.append(float(np.mean((X @ model.coef_[:_SIGNAL] - y) ** 2)) / 2)
    return float(np.mean(risks)), certificate


def planted_range(kappa: float) -> tuple[float, float]:
    """Observed and proved range of the scores of the worst neighbors, in units of a record's largest gradient."""
    common, slope = 40, 1e-3
    tau, copies = min(1.0, 1 / math.sqrt(kappa)), 120 * math.ceil(max(kappa, 5.0))
    row = np.concatenate([np.full(copies, tau), np.full(copies, -tau), [1.0, -1.0]])
    changed = np.concatenate([np.full(copies, -1.0), np.full(copies, 1.0), [1.0, -1.0]])
    X, labels = np.vstack([np.tile(row, (common, 1)), changed]), np.zeros(common + 1)
    bounds, loss = BoxBounds.of(X.shape[1], intercept=False), HuberRegression(slope)
    geometry = Simplex(1.0, X.shape[1])
    scores = []
    for last in (-1e6, 1e6):
        labels[-1] = last
        records = ArrayRecords(X, labels.copy(), bounds)
        objective = EntropicObjective(records, loss, geometry, common / kappa, float(common + 1))
        scores.append(minimize(objective, 1e-9, 1e-12).gradient)
    problem = Problem(loss, bounds, common + 1, X.shape[1], geometry=geometry)
    constants = Constants.of(problem, Guarantee(1.0, 1e-6))
    proved = constants.changed * (1 + constants.response(common / kappa, common) / 4)
    return float(np.ptp(scores[0] - scores[1])) / slope, proved / slope


def measure(repeats: int = 5, largest: int = 256_000, epsilon: float = 1.0) -> dict[str, Any]:
    """Risk against columns and rows with the log-log slope in the rows, other solvers, and the worst neighbors."""
    default = "simplex-sampling"
    sizes = [n for n in (4_000, 16_000, 64_000, 256_000) if n <= largest]
    rows = {n: excess_risk(n, _SIGNAL, epsilon, 1e-6, default, repeats) for n in sizes}
    columns = {
        p: excess_risk(min(largest, 64_000), p, epsilon, 1e-6, default, repeats)
        for p in (_SIGNAL, 1_000, 10_000, 100_000)
    }
    logs = np.log(np.array(sizes, dtype=float))
    slopes = {
        name: float(np.polyfit(logs, np.log([rows[n][k] for n in sizes]), 1)[0])
        for k, name in enumerate(("measured", "certified"))
    }
    solvers = {
        "simplex-sampling": rows[sizes[-1]],
        "simplex-sampling, delta = 0": excess_risk(sizes[-1], _SIGNAL, epsilon, 0.0, default, repeats),
        "frank-wolfe": excess_risk(sizes[-1], _SIGNAL, epsilon, 1e-6, "frank-wolfe", repeats),
        "mirror-descent": excess_risk(sizes[-1], _SIGNAL, epsilon, 1e-6, "mirror-descent", repeats),
    }
    ranges = {kappa: planted_range(kappa) for kappa in (0.41, 1.0, 4.0, 25.0, 100.0)}
    return {"columns": columns, "rows": rows, "slopes": slopes, "solvers": solvers, "ranges": ranges}


def main() -> None:
    """Measure, print and keep everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=256_000)
    options = parser.parse_args()
    found = measure(options.repeats, options.largest)
    sections = {
        title: f"Means of {options.repeats} fits.\n\n"
        + kept.table(
            (head, "excess risk", "certified"),
            [
                (size, f"{risk:.4f}", f"{certificate:.4f}")
                for size, (risk, certificate) in found[part].items()
            ],
        )
        for part, head, title in (
            ("rows", "rows", f"Rows, with {_SIGNAL} columns"),
            ("columns", "columns", f"Columns, with {min(options.largest, 64_000):,} rows"),
            ("solvers", "solver", f"Solvers, with {max(found['rows']):,} rows"),
        )
    }
    measured, certified = found["slopes"]["measured"], found["slopes"]["certified"]
    slopes = f"Slope of log risk in log rows: measured {measured:.2f}, certified {certified:.2f}."
    sections[f"Rows, with {_SIGNAL} columns"] += f"\n\n{slopes}"
    sections["The worst neighbors"] = kept.table(
        ("kappa", "range of their scores", "proved"),
        [
            (f"{kappa:g}", f"{observed:.3f}", f"{proved:.3f}")
            for kappa, (observed, proved) in found["ranges"].items()
        ],
    )
    kept.keep("simplex", "Sampled vertices over the simplex", sections)


if __name__ == "__main__":
    main()
