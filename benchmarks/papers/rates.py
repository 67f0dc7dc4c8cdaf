"""How excess risk falls with rows and epsilon and grows with columns, where noise rules, beside what theory says.

Table I of Bassily, Smith and Thakurta (2014) and Table 1 of Talwar, Thakurta and Zhang (2014, full version), as slopes
on logarithmic axes. A bound is about the worst data, so each is measured on data that attains it, at sizes where noise
and nothing else decides:

*Linear on a ball*: the lower-bound instance, copies of one sign vector among rows that cancel in pairs; so many copies
that three quarters of their direction are found, sqrt(p) / epsilon times 16 (p / epsilon times 8 for delta = 0). The
excess is then a fixed share of what is planted, which noise of another order would change. With few copies every
solver returns noise and has the trivial excess, which tests nothing.

*Ridge logistic*: random signs, logistic labels, a ridge of 1/2. So close to the minimum the risk is quadratic, and
noise b in the coefficients costs tr(H E[b b']) / 2 on average: Gaussian noise a multiple of p sigma^2, gamma-norm
noise, for which E|b|^2 = p (p + 1) scale^2, one of p^2 once p is no longer small.

*L1 ball*: least squares as in the lower bound for the LASSO, rows of an orthogonal matrix with target 0 and equal rows
with target 1, n^(1/3) epsilon^(-2/3) times 100 of them. The best coefficients are all equal, so whoever chooses T
vertices is 1 / T away, and choosing well takes noise below their size: the two errors that n^(-2/3) balances. Columns
beyond these 512 are zero.

Delta is 1e-12 for Gaussian noise: exact calibration makes its variance fall like epsilon^-1.94 then, over these sizes,
the logarithm of delta being no constant; at 1e-6 it would be epsilon^-1.86.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.papers.methods import fit_quietly
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run

Array = NDArray[np.float64]
_DELTA, _SMALL_DELTA = 1e-6, 1e-12
_RIDGE = 0.5
_COPIES = {False: 16, True: 8}  # of sqrt(p) / epsilon; of p / epsilon for delta = 0
_EQUAL_ROWS = 100
#: Columns of the instance over an L1 ball that are not zero.
VERTICES = 512
#: How far a slope may be from that of theory.
TOLERANCE = 0.15


@dataclass(frozen=True)
class Point:
    """One size: rows, columns, epsilon; ``louder`` makes twins that spend only epsilon / louder."""

    rows: int
    columns: int
    epsilon: float = 1.0
    louder: float = 1.0

    def guarantee(self, delta: float) -> Any:
        """What a fit may spend."""
        from discreet.privacy.guarantee import Guarantee

        return Guarantee(self.epsilon / self.louder, delta)


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
    fits : how many, with fresh noise, one row is the mean of.
    """

    name: str
    excess: Callable[[Any, Point, float, int, int], Array]
    solvers: Mapping[str, tuple[Any, float]]
    base: Point
    sizes: Mapping[str, Sequence[float]]
    theory: Mapping[str, float | None]
    fits: int

    def point(self, axis: str, size: float) -> Point:
        """The base with one of its sizes changed."""
        changed: dict[str, Any] = {axis: size if axis == "epsilon" else int(size)}
        return replace(self.base, **changed)


def linear(solver: Any, at: Point, delta: float, seed: int, count: int) -> Array:
    """Excess |planted| (1 - <theta, sign>) / n on the unit ball, where the hinge is linear."""
    from discreet.losses import Hinge, Linear
    from discreet.sets import L2Ball

    rng = np.random.default_rng([seed, at.columns])
    weight = at.columns if delta == 0 else np.sqrt(at.columns)
    planted = round(_COPIES[delta == 0] * weight / at.epsilon)
    sign, other = rng.choice([-1.0, 1.0], size=(2, at.columns)) / np.sqrt(at.columns)
    pairs = (at.rows - planted) // 2
    X = np.vstack([np.tile(sign, (planted, 1)), np.tile(other, (pairs, 1)), np.tile(-other, (pairs, 1))])
    loss = Hinge() if delta == 0 else Linear(1.0)
    ball = {"geometry": L2Ball(1.0, at.columns), "label_bound": 1.0}
    found = fits(solver, loss, X, np.ones(len(X)), at.guarantee(delta), count, ball)
    return np.array([planted * (1 - theta @ sign) / at.rows for theta in found])


def ridge(solver: Any, at: Point, delta: float, seed: int, count: int, loss: Any = None) -> Array:
    """Excess of the regularized risk, logistic if no other loss is given, over its minimum."""
    from discreet.losses import Logistic
    from discreet.records.arrays import ArrayRecords
    from discreet.solvers.minimizers.minimizer import Objective, minimize

    loss = loss or Logistic()
    rng = np.random.default_rng([seed, at.columns])
    X = rng.choice([-1.0, 1.0], size=(at.rows, at.columns)) / np.sqrt(at.columns)
    chances = 1 / (1 + np.exp(-3 * X @ rng.choice([-1.0, 1.0], size=at.columns)))
    y = np.where(rng.random(at.rows) < chances, 1.0, -1.0)
    found = fits(solver, loss, X, y, at.guarantee(delta), count, {"l2": _RIDGE})
    objective = Objective(ArrayRecords(X, y, _bounds()), loss, _RIDGE * at.rows)
    lowest = objective.value_and_gradient(minimize(objective, 1e-6).theta)[0]
    return np.array([objective.value_and_gradient(theta)[0] - lowest for theta in found]) / at.rows


def l1_ball(solver: Any, at: Point, delta: float, seed: int, count: int) -> Array:
    """Excess risk of least squares over the unit L1 ball; the minimum is at equal coefficients, in closed form."""
    from scipy.linalg import hadamard

    from discreet import PrivateLasso

    rng = np.random.default_rng([seed, at.rows])
    wanted = _EQUAL_ROWS * float(np.cbrt(at.rows / at.epsilon**2))
    blocks = round((at.rows - wanted) / VERTICES)  # whole ones, which are orthogonal
    equal = at.rows - blocks * VERTICES
    X = np.resize(hadamard(VERTICES).astype(np.float64), (at.rows, VERTICES))
    X[:equal] = 1.0
    X *= rng.choice([-1.0, 1.0], size=VERTICES)  # so that equal coefficients have different signs
    y = np.where(np.arange(at.rows) < equal, 1.0, 0.0)
    size = equal / (equal + blocks)
    lowest = (blocks * size**2 + equal * (1 - size) ** 2) / (2 * at.rows)
    given = X if at.columns == VERTICES else padded(X, at.columns)
    promise = at.guarantee(delta)
    risks = []
    for _ in range(count):
        model = PrivateLasso(
            promise.epsilon, delta, target_bounds=(-1, 1), fit_intercept=False, solver=solver
        )
        fit_quietly(model, given, y)
        risks.append(float(np.mean((X @ model.coef_[:VERTICES] - y) ** 2)) / 2)
    return np.array(risks) - lowest


def padded(X: Array, n_columns: int) -> Any:
    """The same rows with zero columns appended, as CSR."""
    n, kept = X.shape
    indices = np.tile(np.arange(kept), n)
    return sp.csr_array((X.ravel(), indices, np.arange(0, n * kept + 1, kept)), shape=(n, n_columns))


def _bounds() -> Any:
    from discreet.records.bounds import Bounds

    return Bounds(1.0, intercept=False)


def fits(
    solver: Any, loss: Any, X: Array, y: Array, promise: Any, count: int, problem: dict[str, Any]
) -> list[Array]:
    """Several releases on the same rows."""
    from discreet.mechanisms.samplers.entropy import fresh_entropy
    from discreet.problem import Problem
    from discreet.records.arrays import ArrayRecords
    from discreet.solvers import base

    facts = Problem(loss, _bounds(), len(y), X.shape[1], **problem)
    plan = base.resolve(solver() if callable(solver) else solver).plan(facts, promise)
    records = ArrayRecords(X, y, _bounds())
    return [plan.run([records], fresh_entropy()).theta[0] for _ in range(count)]


def _steps() -> Any:
    """Plain noisy gradient descent, with as many steps and as large as theory has them."""
    from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent

    return NoisyGradientDescent(25, learning_rate=1.0, momentum=0.0, cap=1.0)


_EPSILONS = (0.25, 0.5, 1.0, 2.0)

FAMILIES = (
    Family(
        "linear on a ball",
        linear,
        {"mirror descent": ("mirror-descent", _SMALL_DELTA), "Frank-Wolfe": ("frank-wolfe", _SMALL_DELTA)},
        Point(2000, 16),
        # Rows and epsilons at which mirror descent chooses one step, so that its number does not change in between.
        {"rows": (500, 1000, 2000, 4000), "columns": (16, 64, 256), "epsilon": _EPSILONS},
        {"rows": -1.0, "columns": 0.5, "epsilon": -1.0},
        30,
    ),
    Family(
        "linear on a ball, delta = 0",
        linear,
        {"exponential sampling": ("exponential", 0.0)},
        Point(1000, 8),
        {"rows": (500, 1000, 2000), "columns": (8, 16, 32), "epsilon": (0.5, 1.0, 2.0)},
        {"rows": -1.0, "columns": 1.0, "epsilon": -1.0},
        30,
    ),
    Family(
        "ridge logistic",
        ridge,
        {
            "output perturbation": ("output", _SMALL_DELTA),
            "objective perturbation": ("objective", _SMALL_DELTA),
            "noisy gradient descent": (_steps, _SMALL_DELTA),
            "permutation SGD": ("psgd", _SMALL_DELTA),
        },
        Point(4000, 32),
        {"rows": (1000, 2000, 4000, 8000), "columns": (16, 32, 64, 128), "epsilon": _EPSILONS},
        {"rows": -2.0, "columns": 1.0, "epsilon": -2.0},
        12,
    ),
    Family(
        "ridge logistic, delta = 0",
        ridge,
        {"output perturbation": ("output", 0.0), "objective perturbation": ("objective", 0.0)},
        Point(16_000, 16),
        {"rows": (2000, 4000, 8000, 16_000), "columns": (16, 32, 64, 128), "epsilon": _EPSILONS},
        {"rows": -2.0, "columns": 2.0, "epsilon": -2.0},
        30,
    ),
    Family(
        "L1 ball",
        l1_ball,
        {"Frank-Wolfe": ("frank-wolfe", _DELTA)},
        Point(16_000, VERTICES),
        {"rows": (8000, 16_000, 32_000), "columns": (512, 5120, 51_200), "epsilon": (0.5, 1.0, 2.0)},
        {"rows": -2 / 3, "columns": None, "epsilon": -2 / 3},
        2,
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
            found = family.excess(
                solver, at, delta, row.seed, min(3, family.fits) if row.quick else family.fits
            )
        except ValueError as error:
            return replace(row, status=f"refused: {error}")
        return replace(row, value=float(found.mean()), promise=promise, extra={"fits": len(found)})


def current(rows: Iterable[Row]) -> list[Row]:
    """Rows of the sizes that are measured now; results may hold others from before."""
    wanted = {
        (f"{family.name}: {axis}", float(size))
        for family in FAMILIES
        for axis, sizes in family.sizes.items()
        for size in sizes
    }
    return [row for row in rows if (row.dataset, row.x) in wanted]


def predicted(dataset: str, sizes: Array, values: Array) -> tuple[Array, float | None]:
    """The curve that theory predicts, laid through the middle of the measured points, and its exponent."""
    name, _, axis = dataset.rpartition(": ")
    exponent = _BY_NAME[name].theory[axis]
    shape = _shape(sizes, exponent)
    return shape * float(np.exp(np.mean(np.log(values / shape)))), exponent


def exponent_of(family: Family, axis: str) -> float:
    """The slope of theory's curve over the sizes of a family."""
    sizes = np.array(family.sizes[axis], dtype=np.float64)
    return slope(sizes, _shape(sizes, family.theory[axis]))


def _shape(sizes: Array, exponent: float | None) -> Array:
    return np.asarray(np.log(2 * sizes) if exponent is None else sizes**exponent)


def slope(sizes: Array, values: Array) -> float:
    """The least-squares slope of log(values) in log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
