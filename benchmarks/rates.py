"""Slopes of excess risk with their errors, beside theory, and beside twins whose noise grows too fast.

    python -m benchmarks.rates [--repeats 4] [--only INSTANCE ...]

The instances of ``python -m benchmarks.papers rates`` and three more: Newton's method, a loss that is no one's
likelihood, and localization. Theory must be met within 0.15. Twins spend epsilon divided by the root of how much a size
has grown since its smallest value, as a solver with noise of the wrong order in rows, columns or epsilon would, and
must miss. With ``--only`` the other lines of the results stay as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.rates import FAMILIES, TOLERANCE, Family, Point, exponent_of, ridge, slope
from discreet.losses import HuberRegression
from discreet.solvers.second_order.newton import NoisyNewton

Array = NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "rates.md"
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
FAMILIES_HERE = (*FAMILIES, *OTHERS, *LOCALIZED)


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
        "# Rates\n\nLog-log slopes of excess risk where noise rules, replace-one, mean and standard error over "
        f"{options.repeats} generated data sets; instances as described in `benchmarks.papers.rates`. Twins spend "
        "epsilon divided by the root of how much the varied size has grown, and must miss theory.\n\n"
        f"{text}\n"
    )


if __name__ == "__main__":
    main()
