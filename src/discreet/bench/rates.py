"""How excess risk falls with rows and epsilon and grows with columns, where noise rules, beside what theory says.

Table I of Bassily, Smith and Thakurta (2014) and Table 1 of Talwar, Thakurta and Zhang (2014, full version), as slopes
on logarithmic axes. Three kinds of instances. *Lipschitz*: the lower-bound instance itself, as many copies of one sign
vector as noise can hide, the other rows cancelling in pairs; what is measured there is a floor for every method.
*Strongly convex*: random signs, logistic labels, a ridge of 1/2. *Polytope*: least squares over an L1 ball.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.bench.methods import fit_quietly
from discreet.bench.results import Row
from discreet.bench.runs import Effort, Run

Array = NDArray[np.float64]
_DELTA = 1e-6
_RUNS = 30  # fits with fresh noise behind one row
_RIDGE = 0.5


@dataclass(frozen=True)
class Point:
    """One size: rows, columns, epsilon."""

    rows: int
    columns: int
    epsilon: float = 1.0


@dataclass(frozen=True)
class Family:
    """Instances of one kind.

    Attributes
    ----------
    excess : excess risks of several fits with (solver, point, delta, seed, how many fits).
    solvers : solver and delta by label.
    base : the sizes from which one at a time is varied.
    sizes : the values of each varied size.
    theory : the exponents of the bounds; None stands for a factor log(2 columns).
    """

    name: str
    excess: Callable[[Any, Point, float, int, int], Array]
    solvers: Mapping[str, tuple[Any, float]]
    base: Point
    sizes: Mapping[str, Sequence[float]]
    theory: Mapping[str, float | None]

    def point(self, axis: str, size: float) -> Point:
        """The base with one of its sizes changed."""
        changed: dict[str, Any] = {axis: size if axis == "epsilon" else int(size)}
        return replace(self.base, **changed)


def lipschitz(solver: Any, at: Point, delta: float, seed: int, count: int) -> Array:
    """Excess |planted| (1 - <theta, sign>) / n on the unit ball, where the hinge is linear."""
    from discreet.geometries import L2Ball
    from discreet.losses import Hinge, Linear

    rng = np.random.default_rng([seed, at.columns])
    weight = at.columns if delta == 0 else np.sqrt(at.columns)
    planted = max(1, round(weight / at.epsilon))
    sign, other = rng.choice([-1.0, 1.0], size=(2, at.columns)) / np.sqrt(at.columns)
    pairs = (at.rows - planted) // 2
    X = np.vstack([np.tile(sign, (planted, 1)), np.tile(other, (pairs, 1)), np.tile(-other, (pairs, 1))])
    loss = Hinge() if delta == 0 else Linear(1.0)
    found = _fits(
        solver, loss, X, np.ones(len(X)), at.epsilon, delta, count, geometry=L2Ball(1.0, at.columns)
    )
    return np.array([planted * (1 - theta @ sign) / at.rows for theta in found])


def strongly_convex(solver: Any, at: Point, delta: float, seed: int, count: int) -> Array:
    """Excess of the regularized logistic risk over its minimum."""
    from discreet.losses import Logistic
    from discreet.records.arrays import ArrayRecords
    from discreet.solvers.nonprivate import Objective, minimize

    rng = np.random.default_rng([seed, at.columns])
    X = rng.choice([-1.0, 1.0], size=(at.rows, at.columns)) / np.sqrt(at.columns)
    chances = 1 / (1 + np.exp(-3 * X @ rng.choice([-1.0, 1.0], size=at.columns)))
    y = np.where(rng.random(at.rows) < chances, 1.0, -1.0)
    found = _fits(solver, Logistic(), X, y, at.epsilon, delta, count, l2=_RIDGE)
    objective = Objective(ArrayRecords(X, y, _bounds()), Logistic(), _RIDGE * at.rows)
    lowest = objective.value_and_gradient(minimize(objective, 1e-6).theta)[0]
    return np.array([objective.value_and_gradient(theta)[0] - lowest for theta in found]) / at.rows


def polytope(solver: Any, at: Point, delta: float, seed: int, count: int) -> Array:
    """Risk of least squares over the unit L1 ball, whose minimum is 0; columns past the first hundred are zero."""
    from discreet import PrivateLasso

    rng = np.random.default_rng([seed, at.rows])
    X = rng.choice([-1.0, 1.0], size=(at.rows, 100))
    y = X[:, :3] @ np.array([0.5, -0.3, 0.2])
    starts = np.arange(0, X.size + 1, 100)
    rows = sp.csr_array((X.ravel(), np.tile(np.arange(100), at.rows), starts), shape=(at.rows, at.columns))
    given: Any = X if at.columns == 100 else rows
    risks = []
    for _ in range(max(1, count // 3)):  # whole fits: slower than the others
        model = PrivateLasso(at.epsilon, delta, target_bounds=(-1, 1), fit_intercept=False, solver=solver)
        fit_quietly(model, given, y)
        risks.append(float(np.mean((X @ model.coef_[:100] - y) ** 2)) / 2)
    return np.array(risks)


def _bounds() -> Any:
    from discreet.bounds import Bounds

    return Bounds(1.0, intercept=False)


def _fits(
    solver: Any, loss: Any, X: Array, y: Array, epsilon: float, delta: float, count: int, **problem: Any
) -> list[Array]:
    """Several releases on the same rows."""
    from discreet.mechanisms.entropy import fresh_entropy
    from discreet.privacy.guarantee import Guarantee
    from discreet.problem import Problem
    from discreet.records.arrays import ArrayRecords
    from discreet.solvers import base

    label_bound = 1.0 if "geometry" in problem else None
    facts = Problem(loss, _bounds(), len(y), X.shape[1], label_bound=label_bound, **problem)
    plan = base.resolve(solver() if callable(solver) else solver).plan(facts, Guarantee(epsilon, delta))
    records = ArrayRecords(X, y, _bounds())
    return [plan.run([records], fresh_entropy()).theta[0] for _ in range(count)]


def _steps() -> Any:
    """Plain noisy gradient descent, with as many steps and as large as theory has them."""
    from discreet.solvers.noisy_gradient import NoisyGradientDescent

    return NoisyGradientDescent(25, learning_rate=1.0, momentum=0.0, cap=1.0)


_ROWS = (1000, 2000, 4000, 8000)
_EPSILONS = (0.25, 0.5, 1.0, 2.0)

FAMILIES = (
    Family(
        "Lipschitz",
        lipschitz,
        {"mirror descent": ("mirror-descent", _DELTA), "Frank-Wolfe": ("frank-wolfe", _DELTA)},
        Point(4000, 16),
        {"rows": _ROWS, "columns": (16, 64, 256), "epsilon": _EPSILONS},
        {"rows": -1.0, "columns": 0.5, "epsilon": -1.0},
    ),
    Family(
        "Lipschitz, delta = 0",
        lipschitz,
        {"exponential sampling": ("exponential", 0.0)},
        Point(1000, 4),
        {"rows": (500, 1000, 2000), "columns": (2, 4, 8), "epsilon": (0.5, 1.0, 2.0)},
        {"rows": -1.0, "columns": 1.0, "epsilon": -1.0},
    ),
    Family(
        "strongly convex",
        strongly_convex,
        {
            "output perturbation": ("output", _DELTA),
            "objective perturbation": ("objective", _DELTA),
            "noisy gradient descent": (_steps, _DELTA),
            "permutation SGD": ("psgd", _DELTA),
        },
        Point(4000, 8),
        {"rows": _ROWS, "columns": (8, 16, 32, 64), "epsilon": _EPSILONS},
        {"rows": -2.0, "columns": 1.0, "epsilon": -2.0},
    ),
    Family(
        "strongly convex, delta = 0",
        strongly_convex,
        {"output perturbation": ("output", 0.0), "objective perturbation": ("objective", 0.0)},
        Point(16_000, 4),
        {"rows": (4000, 8000, 16_000), "columns": (4, 8, 16), "epsilon": (0.5, 1.0, 2.0)},
        {"rows": -2.0, "columns": 2.0, "epsilon": -2.0},
    ),
    Family(
        "polytope",
        polytope,
        {"Frank-Wolfe": ("frank-wolfe", _DELTA)},
        Point(8000, 100),
        {"rows": (2000, 8000, 32_000), "columns": (100, 1000, 10_000, 100_000), "epsilon": (0.5, 1.0, 2.0)},
        {"rows": -2 / 3, "columns": None, "epsilon": -2 / 3},
    ),
)
_BY_NAME = {family.name: family for family in FAMILIES}


@dataclass(frozen=True)
class Rates:
    """Excess risk against rows, columns (so vertices) and epsilon, one after the other."""

    name: str = "rates"
    title: str = (
        "Excess risk against theory (Bassily et al. 2014, Table I; Talwar, Thakurta and Zhang 2014, Table 1)"
    )
    axis: str = "size"
    repeats: int = 4
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Every family, varied size and solver."""
        for family in FAMILIES:
            for axis, sizes in family.sizes.items():
                if effort.quick and axis != "rows":
                    continue
                for seed in effort.seeds(self.repeats):
                    for size in sizes[:2] if effort.quick else sizes:
                        for method in family.solvers:
                            yield self._planned(family, axis, size, method, seed, effort.quick)

    def _planned(self, family: Family, axis: str, size: float, method: str, seed: int, quick: bool) -> Run:
        at = family.point(axis, size)
        row = Row(
            self.name,
            f"{family.name}: {axis}",
            method,
            at.epsilon,
            seed,
            "generated",
            x=float(size),
            metric="excess risk",
            protocol="fixed in advance" if callable(family.solvers[method][0]) else "defaults",
            quick=quick,
        )
        return Run(row, lambda: self._run(row, family, at))

    def _run(self, row: Row, family: Family, at: Point) -> Row:
        solver, delta = family.solvers[row.method]
        promise = {"epsilon": at.epsilon, "delta": delta, "neighboring": "replace-one"}
        try:
            found = family.excess(solver, at, delta, row.seed, 3 if row.quick else _RUNS)
        except ValueError as error:
            return replace(row, status=f"refused: {error}")
        return replace(row, value=float(found.mean()), promise=promise, extra={"fits": len(found)})


def predicted(dataset: str, sizes: Array, values: Array) -> tuple[Array, float | None]:
    """The curve that theory predicts, laid through the middle of the measured points, and its exponent."""
    name, _, axis = dataset.rpartition(": ")
    exponent = _BY_NAME[name].theory[axis]
    shape = np.log(2 * sizes) if exponent is None else sizes**exponent
    return shape * float(np.exp(np.mean(np.log(values / shape)))), exponent


def slope(sizes: Array, values: Array) -> float:
    """The least-squares slope of log(values) in log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
