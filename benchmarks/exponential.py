"""Pure epsilon by exact sampling: accuracy on Adult, tries and seconds, the worst pair, and what localization gains.

Run ``python -m benchmarks.exponential [--part adult speed pair localization] [--seeds 5]``, which writes
``results/exponential.md``; ``measure()`` returns the same rows. Only the first part needs DISCREET_DATA.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks import data, kept
from discreet import PrivateLogisticRegression
from discreet.losses import Logistic
from discreet.mechanisms.gibbs import Ball
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.sampling import envelopes
from discreet.solvers.sampling.envelopes import Energy
from discreet.solvers.sampling.expected_tries import find_center
from discreet.solvers.sampling.exponential import ExponentialPlan, ExponentialSampling
from discreet.solvers.sampling.localized import Localized, LocalizedPlan

Array = NDArray[np.float64]
Row = tuple[str, ...]

PARTS = ("adult", "speed", "pair", "localization")


def adult(seeds: int, epsilons: Sequence[float] = (1.0,)) -> list[Row]:
    """Test accuracy in percent: the (epsilon, 1/n^2) default against pure solvers."""
    rows: list[Row] = []
    for epsilon in epsilons:
        for name, solver, delta in (
            ("auto", "auto", None),
            ("auto", "auto", 0.0),
            ("exponential, ball of 1", ExponentialSampling(radius=1.0), 0.0),
            ("exponential, structured rows", ExponentialSampling(structured=True, most_tries=1e6), 0.0),
            ("output", "output", 0.0),
        ):
            scores, seconds = [], []
            for split in data.splits("adult", range(seeds)):
                began = time.perf_counter()
                model = PrivateLogisticRegression(epsilon, delta, classes=split.classes, solver=solver)
                model.fit(split.X_train, split.y_train)
                seconds.append(time.perf_counter() - began)
                scores.append(100 * model.score(split.X_test, split.y_test))
            error = np.std(scores, ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
            kind = "1/n^2" if delta is None else "0"
            rows.append(
                (
                    f"{epsilon:g}",
                    kind,
                    name,
                    f"{np.mean(scores):.2f} +- {error:.2f}",
                    f"{np.median(seconds):.1f}",
                )
            )
    return rows


def sphere(n_samples: int, n_features: int, seed: int, strength: float = 4.0) -> ArrayRecords:
    """Rows on the unit sphere and labels that a linear model explains."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_samples, n_features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    truth = rng.normal(size=n_features)
    raw = rows @ truth * strength / float(np.std(rows @ truth)) / 2
    y = np.where(rng.random(n_samples) < 1 / (1 + np.exp(-raw)), 1.0, -1.0)
    return ArrayRecords(rows, y, Bounds(1.0, intercept=False))


def _problem(records: ArrayRecords, l2: float | None = None) -> Problem:
    return Problem(Logistic(), records.bounds, records.n_samples, records.n_features, l2=l2)


def speed(
    shapes: Sequence[tuple[int, int, float, float]] = (
        (2_000, 50, 1.0, 1.0),
        (45_000, 20, 2.0, 1.0),
        (45_000, 50, 2.0, 1.0),
        (45_000, 100, 1.0, 0.1),
        (45_000, 100, 1.0, 1.0),
        (45_000, 100, 2.0, 1.0),
    ),
    repeats: int = 5,
) -> list[Row]:
    """Seconds per fit and acceptance on rows without any structure."""
    rows: list[Row] = []
    for n, p, radius, epsilon in shapes:
        records = sphere(n, p, 0)
        plan = ExponentialSampling(radius=radius, clock=False).plan(_problem(records), Guarantee(epsilon))
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            plan.run([records], fresh_entropy())
            seconds.append(time.perf_counter() - began)
        rate = acceptance(plan, records)
        foretold = 1 / plan.expected_tries
        rows.append(
            (
                str(n),
                str(p),
                f"{radius:g}",
                f"{epsilon:g}",
                f"{rate:.3g}",
                f"{foretold:.3g}",
                f"{np.median(seconds):.2f}",
            )
        )
    return rows


def acceptance(plan: ExponentialPlan, records: ArrayRecords, tries: int = 20_000) -> float:
    """The share of accepted proposals; a fact about the data, so for invented data only."""
    energy = Energy(records, plan.problem.loss, plan.rate, plan.l2)
    floor, balls = plan.shape.tilt_floor, plan.gibbs.balls
    center = find_center(energy, balls, floor)
    envelope = envelopes.build(energy, balls, plan.gibbs.grid, center, floor)
    return sum(ok for *_, ok in plan.gibbs.tries(energy, envelope, fresh_entropy(), tries)) / tries


def pair(epsilons: Sequence[float] = (0.1, 1.0, 4.0)) -> list[Row]:
    """The largest log-ratio of the two densities at the worst pair, by quadrature in one dimension."""
    rows: list[Row] = []
    n, radius = 20_000, 2.0
    ones, y = np.ones((n, 1)), np.ones(n)
    other = y.copy()
    other[0] = -1.0
    points = np.linspace(-radius, radius, 2001)
    for epsilon in epsilons:
        parts = [ArrayRecords(ones, labels, Bounds(1.0, intercept=False)) for labels in (y, other)]
        plan = ExponentialSampling(radius=radius).plan(_problem(parts[0]), Guarantee(epsilon))
        logs = []
        for part in parts:
            energy = Energy(part, Logistic(), plan.rate)
            drops = np.array([energy(np.array([point])) for point in points])
            logs.append(drops.min() - drops - np.log(np.trapezoid(np.exp(drops.min() - drops), points)))
        gap = logs[0] - logs[1]
        rows.append((f"{epsilon:g}", f"{np.abs(gap).max():.6f}", f"{np.abs(gap).max() / epsilon:.4f}"))
    return rows


def excess(plan: ExponentialPlan | LocalizedPlan, records: ArrayRecords, repeats: int) -> float:
    """Mean of the regularized SUM of losses above its minimum."""
    objective = Energy(records, plan.problem.loss, 1.0, plan.l2)
    cold = Energy(records, plan.problem.loss, 1e4, plan.l2)
    whole = [Ball((0.0,) * records.n_features, 2 * plan_radius(plan))]
    least = objective(find_center(cold, whole, 1e-6))
    runs = [objective(plan.run([records], fresh_entropy()).theta[0]) - least for _ in range(repeats)]
    return float(np.mean(runs))


def plan_radius(plan: ExponentialPlan | LocalizedPlan) -> float:
    """Radius of the whole set."""
    return plan.radius if isinstance(plan, ExponentialPlan) else plan.outer


def localization(
    sizes: Sequence[tuple[int, int]] = (
        (2_000, 8),
        (8_000, 8),
        (32_000, 8),
        (2_000, 64),
        (8_000, 64),
        (32_000, 64),
        (8_000, 128),
        (8_000, 256),
    ),
    repeats: int = 12,
    l2: float = 0.2,
) -> list[Row]:
    """Excess of the sum of losses, strongly convex: plain, localized, their ratio and the foretold ratio of rates."""
    rows: list[Row] = []
    for n, p in sizes:
        records = sphere(n, p, 1)
        local = Localized(clock=False).plan(_problem(records, l2), Guarantee(1.0))
        plain = ExponentialSampling(radius=local.outer, clock=False).plan(
            _problem(records, l2), Guarantee(1.0)
        )
        one, two = excess(plain, records, repeats), excess(local, records, repeats)
        rows.append(
            (
                str(n),
                str(p),
                f"{local.outer:.3g}",
                f"{local.radius:.3g}",
                f"{one:.4g}",
                f"{two:.4g}",
                f"{one / two:.2f}",
                f"{local.rate / plain.rate:.2f}",
                f"{p / local.rate:.4g}",
            )
        )
    return rows


HEADERS: dict[str, Row] = {
    "adult": ("epsilon", "delta", "solver", "accuracy", "seconds"),
    "speed": ("n", "p", "radius", "epsilon", "accepted", "foretold", "seconds per fit"),
    "pair": ("epsilon", "largest log-ratio", "over epsilon"),
    "localization": (
        "n",
        "p",
        "ball",
        "localized",
        "plain excess",
        "localized excess",
        "gain",
        "foretold gain",
        "p / rate",
    ),
}

TITLES = {
    "adult": "Adult: test accuracy in percent",
    "speed": "Acceptance and seconds on rows without any structure",
    "pair": "The largest log-ratio of densities at the worst pair, by quadrature",
    "localization": "What localization gains: excess of the sum of losses, strongly convex",
}


def measure(parts: Sequence[str] = PARTS, seeds: int = 5) -> dict[str, list[Row]]:
    """All tables by name; what is not on this machine is skipped with a message."""
    tables: dict[str, list[Row]] = {}
    for part in parts:
        try:
            tables[part] = {
                "adult": lambda: adult(seeds),
                "speed": speed,
                "pair": pair,
                "localization": localization,
            }[part]()
        except data.MissingData as error:
            print(f"skipped {part}: {error}")
    return tables


def main() -> None:
    """Measure, print and keep the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for part in options.part:
        for name, rows in measure([part], options.seeds).items():
            text = kept.table(HEADERS[name], rows)
            if name == "localization":
                n, p = _slope(rows, 0, 64), _slope(rows, 1, 8_000, 64)
                text += f"\n\nSlope of the localized excess in n: {n:.2f}; in p, from 64 on: {p:.2f}."
            kept.keep("exponential", "Pure epsilon by exact sampling", {TITLES[name]: text})


def _slope(rows: list[Row], column: int, fixed: int, least: int = 0) -> float:
    """Log-log slope of the localized excess in one size, the other one fixed."""
    chosen = [row for row in rows if int(row[1 - column]) == fixed and int(row[column]) >= least]
    sizes = np.log([float(row[column]) for row in chosen])
    return float(np.polyfit(sizes, np.log([float(row[5]) for row in chosen]), 1)[0])


if __name__ == "__main__":
    main()
