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
from discreet.privacy.statement import Stated
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
    problem, promise = plan.problem, plan.guarantee
    values = {
        "guarantee": f"({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}",
        "records x coefficients of one output": f"{problem.n_samples} x {problem.n_features} (intercept included)",
        **{name: f"{value:.6g}" for name, value in plan.noise.items() if not isinstance(value, str)},
        **(more or {}),
    }
    return "\n".join([f"Plan: {plan.mechanism}", *(f"  {name:<40}{value}" for name, value in values.items())])


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
