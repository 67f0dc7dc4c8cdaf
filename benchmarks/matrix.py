"""Every solver on every loss, set and relation: what fits, what is refused and why; nothing may crash.

    python -m benchmarks.matrix            # writes results/matrix.md

Each cell plans and, where the plan is granted, runs on a tiny data set, dense and CSR under the same random words. Both
models must lie in the set, and they must agree unless the plan says that it takes other steps on CSR rows.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

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
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import (
    BallIntersection,
    Box,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexPolytope,
)
from discreet.solvers import base

RESULTS = Path(__file__).parent / "results" / "matrix.md"
N, P = 80, 4
LABEL_BOUND = 2.0
AGREEMENT = (
    1e-3  # of dense and CSR models: rounding differs, and minimizers stop 2 tolerance / l2 < 2e-4 apart
)
LEGEND = """\
Written by `python -m benchmarks.matrix`, which plans and runs every cell, dense and CSR under the same random words:
both models must lie in the set, and agree except where Frank-Wolfe takes other steps on CSR rows. The letters are the
relations that fit: replace-one (r), add-remove-one (a), zero-out (z). - is refused, for a reason counted below;
! crashed or disagreed; n.a. is not applicable: it has no meaning and was not tried (no cell, at present)."""
REAL_TARGETS = ("squared", "huber", "quantile", "poisson", "linear")


def losses() -> dict[str, Loss]:
    """One of each loss; noisy descent caps the slopes of two of them by itself."""
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


def geometries(n_outputs: int = 1) -> dict[str, Any]:
    """No set, and one of each kind of set for models of so many outputs."""
    p = P * n_outputs
    return {
        "none": None,
        "l2-ball": L2Ball(2.0, p),
        "l1-ball": L1Ball(2.0, p),
        "simplex": Simplex(2.0, p),
        "box": Box((-1.0,) * p, (1.0,) * p),
        "grouped-l1": GroupedL1Ball(2.0, p, 2),
        "interpolation": InterpolationBall(2.0, p, 0.5),
        "nuclear": NuclearBall(2.0, (P, n_outputs) if n_outputs > 1 else (2, P // 2)),
        "vertices": VertexPolytope(np.vstack([np.eye(p), -np.eye(p)])),
        "ball-part": BallIntersection(L1Ball(2.0, p), (0.3,) + (0.0,) * (p - 1), 1.0),
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


def cells(
    relations: tuple[Neighboring, ...] = tuple(Neighboring),
    delta: float = 1e-4,
    solvers: Sequence[str] | None = None,
    every: int = 1,
) -> Iterator[Cell]:
    """Try all of these solvers, or simply all; of the pairs of loss and set only each so many, if asked."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, P))
    pairs = itertools.count()
    for loss_name, loss in losses().items():
        y = labels(loss_name, loss, rng)
        bound = LABEL_BOUND if loss_name in REAL_TARGETS else None
        for set_name, geometry in geometries(loss.n_outputs).items():
            if next(pairs) % every:
                continue
            problem = Problem(loss, Bounds(1.0, False), N, P, 1, None, geometry, bound)
            for relation in relations:
                for solver in base.names() if solvers is None else solvers:
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
    seed = int(fresh_entropy().words(1)[0])
    models = []
    try:
        for X in (rows, sp.csr_array(rows)):
            with insecure_noise(seed):
                models.append(plan.run([ArrayRecords(X, y, problem.bounds)], fresh_entropy()).theta)
    except Exception as error:
        return Cell(*place, "CRASHED", f"run: {type(error).__name__}: {error}")
    faults = [fault for theta in models if (fault := _fault(theta, problem))]
    if getattr(plan, "incremental", None) is None:  # else the steps on CSR rows are others
        faults += _disagreement(*models)
    return Cell(*place, "CRASHED", f"run: {faults[0]}") if faults else Cell(*place, "fits")


def _fault(theta: Any, problem: Problem) -> str:
    """What is wrong with a released model; nothing as a rule."""
    if not np.all(np.isfinite(theta)) or theta.size != math.prod(problem.shape):
        return f"a release of shape {theta.shape} or not finite"
    if problem.geometry is not None:
        outside = float(np.linalg.norm(theta.ravel() - problem.geometry.project(theta.ravel())))
        if outside > 1e-6:
            return f"a model at distance {outside:.2g} from its set"
    return ""


def _disagreement(dense: Any, sparse: Any) -> list[str]:
    """Under the same random words, the order of sums is all in which dense and CSR rows may differ."""
    difference = float(np.abs(dense - sparse).max())
    if difference <= AGREEMENT * max(1.0, float(np.abs(dense).max())):
        return []
    return [f"dense and CSR rows give models that differ by {difference:.2g}"]


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
    return (fits + crashed) or ("-" if here else "n.a.")


def main() -> int:
    """Write the matrix for delta > 0 and delta = 0; 1 if a cell crashed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", default=RESULTS, type=Path, metavar="FILE")
    options = parser.parse_args()
    lines = [
        "# Solvers, losses, sets and relations",
        "",
        *LEGEND.splitlines(),
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
