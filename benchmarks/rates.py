"""Slopes of excess risk with their errors, beside theory, and beside twins whose noise grows too fast.

    python -m benchmarks.rates [--repeats 4] [--only INSTANCE ...]

The instances of ``python -m benchmarks.papers rates`` and more: Newton's method, a loss that is no one's likelihood,
localization, and sets whose Gaussian width grows slowly (Talwar, Thakurta and Zhang 2014, Table 1). Theory must be met
within 0.15. Twins spend epsilon divided by the root of how much a size has grown since its smallest value, as a solver
with noise of the wrong order in rows, columns or epsilon would, and must miss. With ``--only`` the other lines of the
results stay as they are.

*Sets of small width*: copies of one extreme point of the set among rows that cancel in pairs, width / epsilon times a
constant of them, so that a fixed share of them is found. The loss is linear, or squared errors for smooth Frank-Wolfe,
which then makes as many steps as the worst curvature asks for: (n width^2 / epsilon^2)^(1/3) times a constant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.rates import FAMILIES, TOLERANCE, Family, Point, exponent_of, fits, ridge, slope
from discreet.losses import HuberRegression, Linear, Squared
from discreet.sets import Geometry, GroupedL1Ball, L1Ball, L2Ball, NuclearBall, VertexPolytope
from discreet.solvers import FrankWolfe
from discreet.solvers.second_order.newton import NoisyNewton

Array = NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "rates.md"
Made = Callable[[int, np.random.Generator], tuple[Geometry, Array]]
_ROWS_AND_COLUMNS = {"rows": -2.0, "columns": 1.0}

OTHERS = (
    Family(
        "ridge, rounded absolute loss",
        partial(ridge, loss=HuberRegression(1.0)),
        {"output perturbation": ("output", 1e-12)},
        Point(2000, 32),
        {"rows": (1000, 2000, 4000, 8000), "columns": (16, 32, 64, 128)},
        _ROWS_AND_COLUMNS,
        12,
    ),
    Family(
        "ridge logistic, many rows",  # so many, and looked at so well, that every direction stands far out of the noise
        ridge,
        {"newton, 40 steps, nothing clipped": (NoisyNewton(40, 0.4, cap=1.0, clip=1e6), 1e-6)},
        Point(32_000, 4),
        {"rows": (32_000, 64_000, 128_000), "columns": (4, 8, 16)},
        _ROWS_AND_COLUMNS,
        30,
    ),
)
LOCALIZED = (
    Family(
        "ridge logistic, delta = 0, localized",  # columns beyond a few make the sampler slow
        ridge,
        {"localization": ("localized", 0.0)},
        Point(2000, 8),
        {"rows": (1000, 2000, 4000), "columns": (4, 8, 16), "epsilon": (0.5, 1.0, 2.0)},
        {"rows": -2.0, "columns": 2.0, "epsilon": -2.0},
        12,
    ),
)


def pulled(
    make: Made, copies: float, smooth: bool, solver: Any, at: Point, delta: float, seed: int, count: int
) -> Array:
    """Excess risk where planted rows pull to an extreme point of the set."""
    rng = np.random.default_rng([seed, at.columns])
    inside, corner = make(at.columns, rng)
    width = inside.gaussian_width() / at.epsilon
    planted = round(copies * float(np.cbrt(at.rows * width**2) if smooth else width))
    other = rng.normal(size=len(corner))
    other -= (other @ corner) * corner
    other /= np.linalg.norm(other)
    pairs = (at.rows - planted) // 2
    X = np.vstack([np.tile(corner, (planted, 1)), np.tile(other, (pairs, 1)), np.tile(-other, (pairs, 1))])
    loss, labels = (Squared(1.0, 1.0), {}) if smooth else (Linear(1.0), {"label_bound": 1.0})
    found = fits(solver, loss, X, np.ones(len(X)), at.guarantee(delta), count, {"geometry": inside, **labels})
    missed, aside = np.array([(1 - theta @ corner, other @ theta) for theta in found]).T
    lost = planted * missed**2 / 2 + pairs * aside**2 if smooth else planted * missed
    return np.asarray(lost / at.rows)


def l2_ball(size: int, rng: np.random.Generator) -> tuple[Geometry, Array]:
    """The ball, and a point of its sphere."""
    return L2Ball(1.0, size), _unit(rng, size)


def cross(size: int, rng: np.random.Generator) -> tuple[Geometry, Array]:
    """The L1 ball, and a corner."""
    corner = np.zeros(size)
    corner[rng.integers(size)] = 1.0
    return L1Ball(1.0, size), corner


def polytope(corners: int, rng: np.random.Generator) -> tuple[Geometry, Array]:
    """Opposite random corners in 16 dimensions, and one of them."""
    half = np.stack([_unit(rng, 16) for _ in range(corners // 2)])
    return VertexPolytope(np.vstack([half, -half])), half[0]


def groups(size: int, rng: np.random.Generator) -> tuple[Geometry, Array]:
    """Sixteen groups, and a point in one of them."""
    each = size // 16
    return GroupedL1Ball(1.0, size, each), np.append(_unit(rng, each), np.zeros(size - each))


def nuclear(size: int, rng: np.random.Generator) -> tuple[Geometry, Array]:
    """Square matrices, and one of rank one."""
    side = round(size**0.5)
    return NuclearBall(1.0, (side, side)), np.outer(_unit(rng, side), _unit(rng, side)).ravel()


def _unit(rng: np.random.Generator, size: int) -> Array:
    found = rng.normal(size=size)
    return found / float(np.linalg.norm(found))


def _width(make: Made, sizes: Sequence[int], power: float, logs: float = 0.0) -> float:
    """The slope of width^power log(size)^logs over these sizes."""
    rng = np.random.default_rng(0)
    widths = np.array([make(size, rng)[0].gaussian_width() for size in sizes])
    given = np.array(sizes, dtype=np.float64)
    return slope(given, widths**power * np.log(given) ** logs)


def _over(
    name: str,
    make: Made,
    solvers: Mapping[str, Any],
    sizes: Sequence[int],
    copies: float,
    *,
    logs: float = 0.0,
    smooth: bool = False,
) -> Family:
    """Rows, sizes of the set and epsilon, one after the other."""
    order, power = (-2 / 3, 2 / 3) if smooth else (-1.0, 1.0)
    return Family(
        name,
        partial(pulled, make, copies, smooth),
        {label: (solver, 1e-12) for label, solver in solvers.items()},
        Point(4000, sizes[1]),
        {"rows": (2000, 4000, 8000, 16_000), "columns": sizes, "epsilon": (0.5, 1.0, 2.0)},
        {"rows": order, "columns": _width(make, sizes, power, logs), "epsilon": order},
        20,
    )


_MIRROR, _WALK = {"mirror descent": "mirror-descent"}, {"smooth Frank-Wolfe": FrankWolfe(choice="gradient")}
WIDTHS = (
    _over("linear on an L1 ball, by entropy", cross, _MIRROR, (64, 512, 4096), 24, logs=0.5),
    _over("linear on an L1 ball", cross, {"objective perturbation": "objective"}, (64, 512, 4096), 12),
    _over("linear on a polytope of as many corners", polytope, _MIRROR, (32, 256, 2048), 12, logs=0.5),
    _over("linear on sixteen groups", groups, _MIRROR, (64, 256, 1024), 24),
    _over(
        "linear on sixteen groups, minimized",
        groups,
        {"objective perturbation": "objective"},
        (64, 256, 1024),
        12,
    ),
    _over("linear on a nuclear ball", nuclear, _MIRROR, (64, 256, 1024), 12, logs=0.5),
    _over("linear on a nuclear ball, one step", nuclear, {"Frank-Wolfe": "frank-wolfe"}, (64, 256, 1024), 12),
    _over("smooth on a ball", l2_ball, _WALK, (16, 64, 256), 4, smooth=True),
    _over("smooth on an L1 ball", cross, _WALK, (64, 512, 4096), 4, smooth=True),
)
FAMILIES_HERE = (*FAMILIES, *OTHERS, *LOCALIZED, *WIDTHS)


def slopes(family: Family, axis: str, method: str, seeds: int, *, twin: bool = False) -> Array:
    """The slope in one size, once per seed."""
    solver, delta = family.solvers[method]
    sizes = np.array(family.sizes[axis], dtype=np.float64)
    found = []
    for seed in range(seeds):
        risks = []
        for size in sizes:
            at = family.point(axis, size)
            if twin:
                at = replace(at, louder=float(np.sqrt(size / sizes[0])))
            risks.append(family.excess(solver, at, delta, seed, family.fits).mean())
        found.append(slope(sizes, np.array(risks)))
    return np.array(found)


def line(family: Family, axis: str, method: str, repeats: int) -> str:
    """One line of the table."""
    theory = exponent_of(family, axis)
    own = slopes(family, axis, method, repeats)
    twin = slopes(family, axis, method, max(1, repeats // 2), twin=True).mean()
    error = f" ± {own.std(ddof=1) / np.sqrt(repeats):.2f}" if repeats > 1 else ""
    met = ["NO", "yes"][int(abs(own.mean() - theory) <= TOLERANCE)]
    missed = ["NO", "yes"][int(abs(twin - theory) > TOLERANCE)]
    told = f"{theory:.2f}" + (" (logarithm)" if family.theory[axis] is None else "")
    return f"{_key(family, axis, method)} {own.mean():.2f}{error} | {told} | {met} | {twin:.2f} | {missed} |"


def _key(family: Family, axis: str, method: str) -> str:
    return f"| {family.name} | {axis} | {method} |"


def measure(families: Sequence[Family], repeats: int) -> dict[str, str]:
    """The lines of the given families by instance, varied size and solver."""
    found = {}
    for family in families:
        for axis in family.sizes:
            for method in family.solvers:
                found[_key(family, axis, method)] = line(family, axis, method, repeats)
                print(found[_key(family, axis, method)], flush=True)
    return found


def table(lines: Mapping[str, str]) -> str:
    """All lines in the order of the families."""
    keys = [
        _key(family, axis, method)
        for family in FAMILIES_HERE
        for axis in family.sizes
        for method in family.solvers
    ]
    head = "| instance | varied | solver | slope | theory | within 0.15 | slope of the twin | is off |"
    return "\n".join([head, "|---" * 8 + "|", *(lines[key] for key in keys if key in lines)])


def read(path: Path) -> dict[str, str]:
    """The lines of an earlier run by instance, varied size and solver."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {"|".join(found.split("|")[:4]) + "|": found for found in lines if found.startswith("| ")}


def main() -> None:
    """Measure and write the table."""
    names = [family.name for family in FAMILIES_HERE]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=names, choices=names, metavar="INSTANCE")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options: Any = parser.parse_args()
    wanted = [family for family in FAMILIES_HERE if family.name in options.only]
    found = measure(wanted, options.repeats)
    text = table(read(options.output) | found)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        "# Rates\n\nLog-log slopes of excess risk where noise dominates, replace-one, mean and standard error over "
        f"{options.repeats} generated data sets; instances as described in `benchmarks.papers.rates`. Twins spend "
        "epsilon divided by the root of how much the varied size has grown, and must miss theory.\n\n"
        f"{text}\n"
    )


if __name__ == "__main__":
    main()
