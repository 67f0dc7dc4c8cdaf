"""Solvers inside a set of coefficients: excess risk of each, and of the automatic choice.

    python -m benchmarks.sets [--seeds 10] [--first-seed 20] [--only KIND ...] [--solvers NAME ...]

It writes ``results/sets.md``. Rows are generated, so that the least risk in the set is known: it is found by projected
descent without noise. The rule of ``auto`` was chosen on other seeds, and on problems drawn at random. Noise is a
function of the seed, so that ``auto`` has the cell of the solver that it takes. Lines of other problems, cells of
solvers that are not named, and the table of older seeds that the rule was set on stay as they are.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from discreet import PrivateLinearRegression, PrivateLogisticRegression
from discreet._typing import Array
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.sets import (
    Box,
    Geometry,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    Simplex,
    VertexPolytope,
)

RESULTS = Path(__file__).parent / "results" / "sets.md"
SOLVERS = "frank-wolfe", "mirror-descent", "noisy-gd", "objective"
EPSILONS = 0.05, 0.5, 2.0
FIRST_SEED = 20
DELTA = 1e-6
LEAST_STEPS = 3000
_SET_ON = "## Seeds that the rule was set on"


@dataclass(frozen=True)
class Case:
    """A loss, numbers of rows and columns, and a set."""

    loss: str
    n: int
    p: int
    kind: str

    @property
    def name(self) -> str:
        """As the table shows it."""
        return f"{self.loss}, {self.n:,} x {self.p}, {self.kind}"

    @property
    def geometry(self) -> Geometry:
        """The set."""
        p = self.p
        corners = np.vstack([3.0 * np.eye(p), -3.0 * np.eye(p), np.ones((1, p)), -np.ones((1, p))])
        made: dict[str, Geometry] = {
            "L2 ball of 5": L2Ball(5.0, p),
            "L2 ball of 1": L2Ball(1.0, p),
            "L1 ball of 5": L1Ball(5.0, p),
            "box of 2": Box((-2.0,) * p, (2.0,) * p),
            "simplex": Simplex(1.0, p),
            "groups": GroupedL1Ball(5.0, p, 5),
            "between L1 and L2": InterpolationBall(5.0, p, 0.5),
            "polytope": VertexPolytope(corners),
        }
        return made[self.kind]

    def rows(self, seed: int) -> tuple[Array, Array]:
        """Rows of norm at most 1 with targets that follow coefficients in the set."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(self.n, self.p)) / np.sqrt(self.p)
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
        truth = np.zeros(self.p)
        truth[: max(2, self.p // 4)] = [3.0 * (-1) ** j for j in range(max(2, self.p // 4))]
        truth = self.geometry.project(truth)
        score = X @ truth
        if self.loss == "logistic":
            return X, (rng.uniform(size=self.n) < 1 / (1 + np.exp(-score))).astype(int)
        return X, np.clip(score + 0.1 * rng.normal(size=self.n), -1.0, 1.0)


CASES = (
    Case("logistic", 5_000, 5, "L2 ball of 5"),
    Case("logistic", 5_000, 5, "box of 2"),
    Case("logistic", 5_000, 5, "L1 ball of 5"),
    Case("logistic", 5_000, 5, "groups"),
    Case("logistic", 20_000, 20, "L2 ball of 5"),
    Case("logistic", 20_000, 20, "box of 2"),
    Case("logistic", 20_000, 20, "L1 ball of 5"),
    Case("logistic", 20_000, 20, "polytope"),
    Case("logistic", 20_000, 20, "between L1 and L2"),
    Case("logistic", 2_000, 100, "L2 ball of 5"),
    Case("logistic", 2_000, 100, "L1 ball of 5"),
    Case("logistic", 2_000, 100, "groups"),
    Case("squared", 20_000, 20, "L1 ball of 5"),
    Case("squared", 20_000, 20, "L2 ball of 1"),
    Case("squared", 20_000, 20, "simplex"),
    Case("squared", 2_000, 100, "simplex"),
)


def risk(case: Case, theta: Array, X: Array, y: Array) -> float:
    """Mean loss."""
    score = X @ theta
    if case.loss == "logistic":
        return float(np.mean(np.logaddexp(0.0, -(2 * y - 1) * score)))
    return float(np.mean((score - y) ** 2) / 2)


def least_risk(case: Case, X: Array, y: Array) -> float:
    """The least mean loss in the set, by accelerated projected descent."""
    geometry = case.geometry
    theta = before = geometry.project(np.zeros(case.p))
    step = 1.0 / float(np.linalg.eigvalsh(X.T @ X / case.n)[-1])
    step *= 4.0 if case.loss == "logistic" else 1.0
    for t in range(1, LEAST_STEPS + 1):
        ahead = theta + (t - 1) / (t + 2) * (theta - before)
        score = X @ ahead
        slope = 1 / (1 + np.exp(-score)) - y if case.loss == "logistic" else score - y
        before, theta = theta, geometry.project(ahead - step * (X.T @ slope) / case.n)
        if t > 5 and np.abs(theta - before).max() < 1e-10:
            break
    return risk(case, theta, X, y)


def fitted(case: Case, solver: str, epsilon: float, X: Array, y: Array) -> Array | None:
    """Coefficients of a private fit in the set; None where the solver refuses."""
    shared: dict[str, Any] = {
        "solver": solver,
        "constraint": case.geometry,
        "fit_intercept": False,
        "feature_bound": 1.0,
    }
    try:
        if case.loss == "logistic":
            made = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], **shared).fit(X, y)
        else:
            made = PrivateLinearRegression(epsilon, DELTA, target_bounds=(-1.0, 1.0), **shared).fit(X, y)
    except ValueError:
        return None
    return np.asarray(made.coef_).ravel()


def measured(
    seeds: Sequence[int],
    cases: Sequence[Case] = CASES,
    epsilons: Sequence[float] = EPSILONS,
    solvers: Sequence[str] = SOLVERS,
    before: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The lines of the table by problem and epsilon; cells of other solvers are those of the lines ``before``."""
    lines = {}
    for case in cases:
        excess: dict[tuple[float, str], list[float]] = {}
        for seed in seeds:
            X, y = case.rows(seed)
            least = least_risk(case, X, y)
            for epsilon, solver in product(epsilons, solvers):
                with insecure_noise(seed):
                    theta = fitted(case, solver, epsilon, X, y)
                if theta is not None:
                    excess.setdefault((epsilon, solver), []).append(risk(case, theta, X, y) - least)
        for epsilon in epsilons:
            key, said = _key(case, epsilon), f"{seeds[0]} to {seeds[-1]}"
            older = [cell.strip() for cell in (before or {}).get(key, "").split("|")[-len(SOLVERS) - 1 : -1]]
            cells = dict(zip(SOLVERS, older or [""] * len(SOLVERS), strict=True))
            cells |= {solver: _cell(excess.get((epsilon, solver), [])) for solver in solvers}
            chosen = _chosen(case, epsilon)
            shown = [chosen, cells[chosen], _verdict(cells[chosen], list(cells.values())), *cells.values()]
            lines[key] = f"{key} {said} | " + " | ".join(shown) + " |"
            print(lines[key], f"{time.process_time():.0f}", flush=True)
    return lines


def _verdict(chosen: str, cells: Sequence[str]) -> str:
    """Whether the best mean is lower by more than one standard error of a difference."""
    if "±" not in chosen:
        return ""
    mean, error = _numbers(chosen)
    least, other = min(_numbers(cell) for cell in cells if "±" in cell)
    return "behind" if mean - least > math.hypot(error, other) else "level"


def _numbers(cell: str) -> tuple[float, float]:
    """The mean and the error of a cell."""
    mean, _, error = cell.partition(" ± ")
    return float(mean), float(error) if error != "nan" else 0.0


def _key(case: Case, epsilon: float) -> str:
    return f"| {case.name} | {epsilon:g} |"


def table(lines: Mapping[str, str]) -> str:
    """All lines in the order of the problems."""
    keys = [_key(case, epsilon) for case in CASES for epsilon in EPSILONS]
    head = "| problem | epsilon | seeds | chosen | auto | beside the best | " + " | ".join(SOLVERS) + " |"
    return "\n".join([head, "|---" * (len(SOLVERS) + 6) + "|", *(lines[key] for key in keys if key in lines)])


def read(path: Path) -> tuple[dict[str, str], str]:
    """The lines of an earlier run by problem and epsilon, and what follows them."""
    fresh, mark, after = (path.read_text() if path.exists() else "").partition(_SET_ON)
    lines = [line for line in fresh.splitlines() if line.startswith("| ")]
    return {"|".join(line.split("|")[:3]) + "|": line for line in lines}, mark + after


def _chosen(case: Case, epsilon: float) -> str:
    """The name of the solver that ``auto`` takes."""
    if case.loss == "logistic":
        model = PrivateLogisticRegression(
            epsilon, DELTA, classes=[0, 1], constraint=case.geometry, fit_intercept=False
        )
    else:
        model = PrivateLinearRegression(
            epsilon,
            DELTA,
            target_bounds=(-1.0, 1.0),
            solver="auto",
            constraint=case.geometry,
            fit_intercept=False,
        )
    return str(model.plan(case.n, case.p).reason.partition(",")[0])


def _cell(values: list[float]) -> str:
    if not values:
        return "refused"
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.5f} ± {error:.5f}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the table."""
    kinds = sorted({case.kind for case in CASES})
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--only", nargs="+", default=kinds, choices=kinds, metavar="KIND")
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS), choices=SOLVERS, metavar="NAME")
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for case in CASES:
        if case.kind in options.only:
            before, _ = read(options.output)
            found = measured(seeds, [case], options.epsilons, options.solvers, before)
            write(options.output, found)


def write(path: Path, found: dict[str, str]) -> None:
    """Write new lines into the table; the others stay."""
    before, after = read(path)
    path.write_text(
        "# Solvers inside a set\n\nExcess risk over the least risk in the set, mean and standard error over generated "
        f"data sets; replace-one, delta = {DELTA:g}, rows clipped to norm 1, no intercept (`python -m "
        f"benchmarks.sets`).\n\n## Seeds that the rule of auto was not set on\n\n{table(before | found)}\n"
        + (f"\n{after}" if after else "")
    )


if __name__ == "__main__":
    main()
