"""How excess risk falls with the rows and grows with the columns, where noise rules, beside what theory says.

    python -m benchmarks.rates

Two kinds of instances. *Ridge*: rows of random signs and logistic labels, with a ridge of 1/2, so that the risk is
strongly convex: theory says n^-2 and p^1. *Marginals* (the lower-bound instance for linear losses on the unit ball): as
many copies of one sign vector as noise can hide, sqrt(p) / epsilon of them, while the other rows cancel in pairs: n^-1
and p^1/2. Each slope must come within 0.15 of the theory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from discreet.bounds import Bounds
from discreet.geometries import L2Ball
from discreet.losses import HuberRegression, Linear, Logistic, Loss
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.frank_wolfe import FrankWolfe
from discreet.solvers.mirror_descent import MirrorDescent
from discreet.solvers.newton import NoisyNewton
from discreet.solvers.noisy_gradient import NoisyGradientDescent
from discreet.solvers.nonprivate import Objective, minimize
from discreet.solvers.objective_perturbation import ObjectivePerturbation
from discreet.solvers.output_perturbation import OutputPerturbation
from discreet.solvers.permutation_sgd import PermutationSGD

Array = NDArray[np.float64]
BOUNDS = Bounds(1.0, intercept=False)
PROMISE = Guarantee(1.0, 1e-6)
TOLERANCE = 0.15
RESULTS = Path(__file__).parent / "results" / "rates.md"
_RIDGE = 0.5


@dataclass(frozen=True)
class Rate:
    """A solver on an instance, with the sizes at which noise rules and the slopes of theory."""

    name: str
    solver: base.Solver
    excess: Callable[[base.Solver, int, int, int], float]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    slope_in_n: float
    slope_in_p: float

    def measured(self, repeats: int) -> tuple[float, float]:
        """Slopes in rows (at the fewest columns) and in columns (at the fewest rows)."""
        n, p = self.rows[0], self.columns[0]
        in_n = slope(self.rows, [self.excess(self.solver, size, p, repeats) for size in self.rows])
        in_p = slope(self.columns, [self.excess(self.solver, n, size, repeats) for size in self.columns])
        return in_n, in_p


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The least-squares slope of log(values) in log(sizes)."""
    return float(np.polyfit(np.log(np.array(sizes, dtype=float)), np.log(values), 1)[0])


def ridge_excess(solver: base.Solver, n: int, p: int, repeats: int, loss: Loss | None = None) -> float:
    """Mean excess of the regularized risk over its minimum."""
    loss = loss or Logistic()
    rng = np.random.default_rng(p)
    X = rng.choice([-1.0, 1.0], size=(n, p)) / np.sqrt(p)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-3 * X @ rng.choice([-1.0, 1.0], size=p))), 1.0, -1.0)
    records = ArrayRecords(X, y, BOUNDS)
    plan = solver.plan(Problem(loss, BOUNDS, n, p, l2=_RIDGE), PROMISE)
    objective = Objective(records, loss, _RIDGE * n)
    lowest = objective.value_and_gradient(minimize(objective, 1e-6).theta)[0]
    found = [plan.run([records], fresh_entropy()).theta[0] for _ in range(repeats)]
    return float(np.mean([objective.value_and_gradient(theta)[0] - lowest for theta in found])) / n


def huber_excess(solver: base.Solver, n: int, p: int, repeats: int) -> float:
    """The same with the rounded absolute loss."""
    return ridge_excess(solver, n, p, repeats, HuberRegression(1.0))


def marginals_excess(solver: base.Solver, n: int, p: int, repeats: int) -> float:
    """Mean excess |sum d| (1 - <theta, theta*>) / n of the linear loss -<theta, d> on the unit ball."""
    rng = np.random.default_rng(p)
    planted = round(np.sqrt(p) / PROMISE.epsilon)
    sign, other = rng.choice([-1.0, 1.0], size=(2, p)) / np.sqrt(p)
    n_pairs = (n - planted) // 2
    X = np.vstack([np.tile(sign, (planted, 1)), np.tile(other, (n_pairs, 1)), np.tile(-other, (n_pairs, 1))])
    records = ArrayRecords(X, np.ones(len(X)), BOUNDS)
    problem = Problem(Linear(1.0), BOUNDS, len(X), p, geometry=L2Ball(1.0, p), label_bound=1.0)
    plan = solver.plan(problem, PROMISE)
    found = [plan.run([records], fresh_entropy()).theta[0] for _ in range(repeats)]
    return float(np.mean([planted * (1 - theta @ sign) / n for theta in found]))


_ROWS, _COLUMNS = (1000, 2000, 4000, 8000), (8, 16, 32, 64)

RATES = (
    Rate("output", OutputPerturbation(), ridge_excess, _ROWS, _COLUMNS, -2, 1),
    Rate("output, rounded absolute loss", OutputPerturbation(), huber_excess, _ROWS, _COLUMNS, -2, 1),
    Rate("objective", ObjectivePerturbation(), ridge_excess, _ROWS, _COLUMNS, -2, 1),
    Rate(
        "noisy-gd, 25 steps",
        NoisyGradientDescent(25, learning_rate=1.0, momentum=0.0, cap=1.0),
        ridge_excess,
        _ROWS,
        _COLUMNS,
        -2,
        1,
    ),
    Rate(
        "newton, 40 steps, nothing clipped",
        NoisyNewton(40, cap=1.0, clip=1e6),
        ridge_excess,
        (32_000, 64_000, 128_000),  # so many that every direction stands far out of the noise
        (4, 8, 16),
        -2,
        1,
    ),
    Rate("psgd", PermutationSGD(), ridge_excess, _ROWS, _COLUMNS, -2, 1),
    Rate("mirror-descent, marginals", MirrorDescent(), marginals_excess, _ROWS, (16, 64, 256), -1, 0.5),
    Rate("frank-wolfe, marginals", FrankWolfe(), marginals_excess, _ROWS, (16, 64, 256), -1, 0.5),
)


def table(rates: Sequence[Rate], repeats: int) -> str:
    """Measured and predicted slopes."""
    lines = [
        "| solver, instance | slope in rows | theory | slope in columns | theory | within 0.15 |",
        "|---|---|---|---|---|---|",
    ]
    for rate in rates:
        in_n, in_p = rate.measured(repeats)
        good = abs(in_n - rate.slope_in_n) <= TOLERANCE and abs(in_p - rate.slope_in_p) <= TOLERANCE
        lines.append(
            f"| {rate.name} | {in_n:.2f} | {rate.slope_in_n:g} | {in_p:.2f} | {rate.slope_in_p:g} | "
            f"{'yes' if good else 'NO'} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Measure all rates and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    text = table(RATES, options.repeats)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        "# Rates\n\nLog-log slopes of excess risk at epsilon 1, delta 1e-6, replace-one; "
        f"{options.repeats} runs per size.\n\n"
        f"{text}\n"
    )


if __name__ == "__main__":
    main()
