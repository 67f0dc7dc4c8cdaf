"""Every solver on every loss, set and relation: what fits, what is refused and why; nothing may crash.

    python -m benchmarks.matrix            # writes results/matrix.md

Each cell plans and, where the plan is granted, runs on a tiny data set, dense and CSR; the model must lie in the set.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from discreet.bounds import Bounds
from discreet.geometries import Box, GroupedL1Ball, InterpolationBall, L1Ball, L2Ball, Simplex, VertexPolytope
from discreet.losses import (
    Hinge,
    HuberHinge,
    HuberRegression,
    Linear,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
)
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base

RESULTS = Path(__file__).parent / "results" / "matrix.md"
N, P = 80, 4
LABEL_BOUND = 2.0
REAL_TARGETS = ("squared", "huber", "quantile", "poisson", "linear")


def losses() -> dict[str, Loss]:
    """One of each loss."""
    return {
        "logistic": Logistic(),
        "softmax": Softmax(3),
        "huber-hinge": HuberHinge(0.5),
        "hinge": Hinge(),
        "squared": Squared(LABEL_BOUND, 5.0),
        "huber": HuberRegression(1.0),
        "quantile": Quantile(0.5, 0.1),
        "poisson": Poisson(1.0, LABEL_BOUND),
        "linear": Linear(LABEL_BOUND),
    }


def geometries() -> dict[str, Any]:
    """No set, and one of each kind of set for a single output."""
    return {
        "none": None,
        "l2-ball": L2Ball(2.0, P),
        "l1-ball": L1Ball(2.0, P),
        "simplex": Simplex(2.0, P),
        "box": Box((-1.0,) * P, (1.0,) * P),
        "grouped-l1": GroupedL1Ball(2.0, P, 2),
        "interpolation": InterpolationBall(2.0, P, 0.5),
        "vertices": VertexPolytope(np.vstack([np.eye(P), -np.eye(P)])),
    }


@dataclass(frozen=True)
class Cell:
    """One combination and what became of it."""

    solver: str
    loss: str
    geometry: str
    relation: str
    outcome: str  # "fits", "refused" or "CRASHED"
    reason: str = ""


def labels(name: str, loss: Loss, rng: np.random.Generator) -> Any:
    """Labels that the loss accepts."""
    if name == "softmax":
        return rng.integers(0, loss.n_outputs, N)
    if name in ("logistic", "huber-hinge", "hinge"):
        return np.where(rng.random(N) < 0.5, 1.0, -1.0)
    return rng.uniform(0.0 if name == "poisson" else -LABEL_BOUND, LABEL_BOUND, N)


def cells(relations: tuple[Neighboring, ...] = tuple(Neighboring), delta: float = 1e-4) -> Iterator[Cell]:
    """Try them all."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, P))
    for loss_name, loss in losses().items():
        y = labels(loss_name, loss, rng)
        bound = LABEL_BOUND if loss_name in REAL_TARGETS else None
        for set_name, geometry in geometries().items():
            if geometry is not None and loss.n_outputs > 1:
                continue  # the sets here are for one output
            problem = Problem(loss, Bounds(1.0, False), N, P, 1, None, geometry, bound)
            for relation in relations:
                for solver in base.names():
                    place = (solver, loss_name, set_name, relation.value)
                    yield _attempt(place, problem, Guarantee(1.0, delta, relation), rows, y)


def _attempt(
    place: tuple[str, str, str, str], problem: Problem, guarantee: Guarantee, rows: Any, y: Any
) -> Cell:
    try:
        plan = base.resolve(place[0]).plan(problem, guarantee)
    except ValueError as refusal:
        return Cell(*place, "refused", str(refusal))
    except Exception as error:
        return Cell(*place, "CRASHED", f"plan: {type(error).__name__}: {error}")
    try:
        for X in (rows, sp.csr_array(rows)):
            theta = plan.run([ArrayRecords(X, y, problem.bounds)], fresh_entropy()).theta
            if not np.all(np.isfinite(theta)) or theta.size != math.prod(problem.shape):
                return Cell(*place, "CRASHED", f"run: a release of shape {theta.shape} or not finite")
            if problem.geometry is not None:
                outside = float(np.linalg.norm(theta.ravel() - problem.geometry.project(theta.ravel())))
                if outside > 1e-6:
                    return Cell(*place, "CRASHED", f"run: a model at distance {outside:.2g} from its set")
    except Exception as error:
        return Cell(*place, "CRASHED", f"run: {type(error).__name__}: {error}")
    return Cell(*place, "fits")


def report(found: list[Cell]) -> list[str]:
    """One line per solver and loss, then every reason for a refusal with the number of cells it was given for."""
    sets = list(geometries())
    lines = ["| solver | loss | " + " | ".join(sets) + " |", "|---" * (len(sets) + 2) + "|"]
    by_place: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in found:
        by_place.setdefault((cell.solver, cell.loss, cell.geometry), []).append(cell)
    for solver in base.names():
        for loss in losses():
            marks = [_marks(by_place.get((solver, loss, name), [])) for name in sets]
            lines.append(f"| {solver} | {loss} | " + " | ".join(marks) + " |")
    counts = Counter(cell.outcome for cell in found)
    lines += ["", ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + ".", ""]
    lines += ["| cells | refused because |", "|---|---|"]
    reasons = Counter(cell.reason for cell in found if cell.outcome == "refused")
    return lines + [f"| {count} | {reason} |" for reason, count in reasons.most_common()]


def _marks(here: list[Cell]) -> str:
    fits = "".join(cell.relation[0] for cell in here if cell.outcome == "fits")
    crashed = "!" * sum(cell.outcome == "CRASHED" for cell in here)
    return (fits + crashed) or ("-" if here else "")


def main() -> int:
    """Write the matrix for delta > 0 and delta = 0; 1 if a cell crashed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", default=RESULTS, type=Path, metavar="FILE")
    options = parser.parse_args()
    lines = [
        "# Solvers, losses, sets and relations",
        "",
        "Written by `python -m benchmarks.matrix`, which plans and runs every cell, dense and CSR. The letters are the "
        "relations",
        "that fit: replace-one (r), add-remove-one (a), zero-out (z); - is refused, ! crashed.",
    ]
    crashed = []
    for title, delta in (("delta = 1e-4", 1e-4), ("delta = 0", 0.0)):
        found = list(cells(delta=delta))
        crashed += [cell for cell in found if cell.outcome == "CRASHED"]
        lines += ["", f"## {title}", "", *report(found)]
    options.output.write_text("\n".join(lines) + "\n")
    for cell in crashed:
        print(cell)
    return int(bool(crashed))


if __name__ == "__main__":
    raise SystemExit(main())
