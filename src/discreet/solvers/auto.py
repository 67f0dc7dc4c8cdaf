"""Choosing a solver from public facts.

Two regimes were measured on public data (``benchmarks/solvers.py``; docs/decisions/0008-automatic-choice.md). While
noise rules, noisy gradient descent is ahead: it stops early, which regularizes better than a ridge, and it can cap the
pull of single records. Once records are many compared to the noise, objective perturbation is: it reaches the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from discreet.mechanisms.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.frank_wolfe import FrankWolfe
from discreet.solvers.noisy_gradient import NoisyGradientDescent
from discreet.solvers.objective_perturbation import ObjectivePerturbation

# Records over the norm of the noise that hides one of them, where the two solvers are level.
_LEVEL = 200.0


@dataclass(frozen=True)
class AutomaticChoice:
    """The solver that public facts speak for; ``print`` the plan to see which, and why.

    Privacy
    -------
    That of the chosen solver. The choice reads the number of records and coefficients, the loss and the guarantee.
    """

    name: ClassVar[str] = "auto"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"

    def plan(self, problem: Problem, guarantee: Guarantee) -> ChosenPlan:
        """The plan of the chosen solver, with the reason for the choice."""
        if problem.geometry is not None:
            constrained = FrankWolfe()
            reason = "the coefficients must lie in a set"
            return ChosenPlan(constrained.plan(problem, guarantee), f"{constrained.name}, because {reason}")
        ratio = signal_to_noise(problem, guarantee)
        noisy = ratio < _LEVEL and problem.loss.family in ("logistic", "softmax") and problem.l2 is None
        solver: base.Solver = NoisyGradientDescent() if noisy else ObjectivePerturbation()
        if noisy:
            reason = f"signal over noise is {ratio:.3g}, below {_LEVEL:g}: noise rules"
        elif ratio < _LEVEL:
            reason = "this loss, or the ridge that was asked for, is best served by a minimizer"
        else:
            reason = f"signal over noise is {ratio:.3g}, at least {_LEVEL:g}: the minimum is worth reaching"
        return ChosenPlan(solver.plan(problem, guarantee), f"{solver.name}, because {reason}")


def signal_to_noise(problem: Problem, guarantee: Guarantee) -> float:
    """Records over the norm of the Gaussian noise that hides one record's gradient, in its own units."""
    if guarantee.delta == 0:
        return math.inf
    multiplier = guarantee.neighboring.contributions / gaussian_mu(guarantee.epsilon, guarantee.delta)
    return problem.n_samples / (multiplier * math.sqrt(problem.n_coefficients))


@dataclass(frozen=True)
class ChosenPlan:
    """A plan and why it was chosen."""

    plan: base.Plan
    reason: str

    @property
    def problem(self) -> Problem:
        """The problem of the chosen plan."""
        return self.plan.problem

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the chosen plan."""
        return self.plan.guarantee

    @property
    def event(self) -> Event:
        """What is charged."""
        return self.plan.event

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return self.plan.mechanism

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return self.plan.theorem

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return self.plan.noise

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Run the chosen plan."""
        return self.plan.run(records, entropy, progress)

    def __str__(self) -> str:
        return f"{self.plan}\n  {'chosen by solver=auto':<40}{self.reason}"


base.register(AutomaticChoice.name, AutomaticChoice)
