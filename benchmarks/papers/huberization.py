"""Why corners are worth an algorithm of their own: smoothing the hinge costs a share of the rows, however many.

Bassily, Smith and Thakurta (2014) show that objective perturbation of a smoothed ("Huberized") loss can be off by a
constant times the number of rows. One column is enough: every row has the feature 1, and four rows in five have the
label 1. The hinge is smallest at coefficient 1. Its smoothing of width h is smallest at 1 + h / 2, where the mean hinge
is larger by h / 10, whatever the number of rows. Descent on the hinge itself comes as close as the noise permits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.papers.methods import fit_quietly
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run, promise_of

_DELTA, _FITS = 1e-6, 5
_SIZES = (1_000, 4_000, 16_000, 64_000)
_METHODS = {  # solver and width of the smoothed corner
    "smoothed over 0.5, objective perturbation": ("objective", 0.5),
    "smoothed over 0.1, objective perturbation": ("objective", 0.1),
    "the hinge, mirror descent": ("mirror-descent", 0.0),
}


@dataclass(frozen=True)
class Huberization:
    """Excess hinge risk against the number of rows, with and without smoothing."""

    name: str = "huberization"
    title: str = (
        "Smoothing the hinge against descent on it (Bassily et al. 2014, lower bound for Huberization)"
    )
    axis: str = "rows"
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Every number of rows and method."""
        for seed in effort.seeds(_FITS):
            for n_rows in _SIZES[:2] if effort.quick else _SIZES:
                for method in _METHODS:
                    row = Row(
                        self.name,
                        "one column",
                        method,
                        1.0,
                        seed,
                        "generated",
                        x=float(n_rows),
                        metric="excess risk",
                        protocol="defaults",
                        quick=effort.quick,
                    )
                    yield Run(row, lambda r=row: self._run(r))  # type: ignore[misc]

    def _run(self, row: Row) -> Row:
        from discreet import PrivateLinearSVC
        from discreet.sets import L2Ball

        solver, width = _METHODS[row.method]
        model = PrivateLinearSVC(
            row.epsilon,
            _DELTA,
            huber_width=width,
            solver=solver,
            constraint=L2Ball(2.0, 1),
            fit_intercept=False,
            classes=[0, 1],
        )
        n_rows = int(row.x)
        fit_quietly(model, np.ones((n_rows, 1)), (np.arange(n_rows) < 0.8 * n_rows).astype(int))
        return replace(row, value=excess(float(model.coef_[0, 0])), promise=promise_of(model))


def excess(coefficient: float) -> float:
    """Mean hinge loss over its minimum, which is 0.4 at coefficient 1."""
    return 0.8 * max(0.0, 1 - coefficient) + 0.2 * max(0.0, 1 + coefficient) - 0.4
