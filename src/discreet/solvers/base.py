"""What every solver is: a frozen set of public choices that plans, and a plan that runs.

``plan`` sees public facts only and fixes everything: noise, regularization, number of noisy steps, the event to be
charged. ``run`` is the only place where data meets noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.entropy import Entropy
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.statement import Stated, plan_text
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords

Array = NDArray[np.float64]
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Release:
    """What a run gives out: coefficients of every model, and whether their noise was secret."""

    theta: Array
    secure: bool


class Plan(Stated, Protocol):
    """A calibrated run, frozen before any data is seen; printable."""

    @property
    def problem(self) -> Problem: ...

    def run(self, records: list[ArrayRecords], entropy: Entropy, progress: Progress | None = None) -> Release:
        """Fit the models, one per element of ``records``; afterwards only the release may be looked at."""
        ...


class Solver(Protocol):
    """Public hyper-parameters of one algorithm."""

    name: ClassVar[str]
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]]  # how more than two classes are fitted by default

    def plan(self, problem: Problem, guarantee: Guarantee) -> Plan:
        """Calibrate against public facts; raise ``ValueError`` where the algorithm is not proved to apply."""
        ...


def printed(plan: Plan, more: Mapping[str, str] | None = None) -> str:
    """A plan in words and numbers; what every plan's ``str`` is made of."""
    sizes = f"{plan.problem.n_samples} x {plan.problem.n_features} (intercept included)"
    return plan_text(plan, {"records x coefficients of one output": sizes}, more)


def refuse_pure(name: str, guarantee: Guarantee) -> None:
    """Gaussian noise needs delta > 0."""
    if guarantee.delta == 0:
        raise ValueError(
            f"solver {name!r} adds Gaussian noise, which cannot give delta = 0; choose a delta greater than 0, for "
            "instance 1 / n**2, or solver='output' for pure differential privacy"
        )


def refuse_geometry(name: str, problem: Problem) -> None:
    """For solvers that know all of space only."""
    if problem.geometry is not None:
        raise ValueError(
            f"solver {name!r} works in all of space, not in a set such as {type(problem.geometry).__name__}; use "
            "solver='frank-wolfe', 'mirror-descent' or 'noisy-gd'"
        )


_SOLVERS: dict[str, Callable[[], Solver]] = {}


def register(name: str, make: Callable[[], Solver]) -> None:
    """Make a solver selectable by name."""
    _SOLVERS[name] = make


def resolve(solver: str | Solver) -> Solver:
    """The solver behind a name, or the solver itself."""
    if not isinstance(solver, str):
        if not hasattr(solver, "plan"):
            raise TypeError(
                f"solver must be a name or a discreet solver, got {solver!r}; known names: {names()}"
            )
        return solver
    if solver not in _SOLVERS:
        raise ValueError(f"unknown solver {solver!r}; choose one of {names()}")
    return _SOLVERS[solver]()


def names() -> list[str]:
    """Names of all solvers."""
    return sorted(_SOLVERS)
