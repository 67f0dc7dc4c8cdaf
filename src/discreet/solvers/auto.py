"""Choosing a solver from public facts.

Measured on public data (``benchmarks/solvers.py``; docs/decisions/0008-automatic-choice.md): where a private second
moment can tell the directions of the records apart, descent in coordinates made from it is ahead; where noise hides
them, plain noisy descent, which stops early and caps the pull of single records; where it hides every direction of
wide rows, a choice of single columns; of sparse wide rows, and of any while noise rules, one release of the sums of the
classes; and where records are so many that any solver would do, objective perturbation, which reaches the minimum
without a copy of the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet.box_bounds import BoxBounds
from discreet.geometries import L1Ball
from discreet.losses import HuberHinge, Logistic, Softmax
from discreet.mechanisms.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.discriminant import NoisyDiscriminant
from discreet.solvers.frank_wolfe import FrankWolfe
from discreet.solvers.newton import NoisyNewton, moment_visibility
from discreet.solvers.noisy_gradient import NoisyGradientDescent
from discreet.solvers.objective_perturbation import ObjectivePerturbation

# Signal over noise (see `signal_to_noise`) at which plain descent and objective perturbation are level.
_LEVEL = 200.0
# Beyond this the noise no longer matters, and the cheapest fit is the best.
_AMPLE = 3000.0
# The second moment is worth its price where all records together stand out of its noise this much: for two classes, for
# more, of which each has fewer.
_VISIBLE = 4.0, 8.0
# Below this not even the sums of the classes are seen.
_GLIMPSED = 1.0
# A reshaped copy of the records is dense, and the release has a number for every pair of columns.
_MOST_COLUMNS = 1000
# Records against the noise in one direction: below this, no direction of wide rows is seen, but a column may be. For
# rows in a dense matrix, in a sparse one.
_BLIND = 70.0, 20.0
# Size of the ball in which single columns are then looked for, as of PrivateSparseLogisticRegression.
_L1_SIZE = 5.0


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
        solver, reason = _unconstrained(problem, guarantee)
        if isinstance(solver, FrankWolfe):
            problem = _by_columns(problem)
        return ChosenPlan(solver.plan(problem, guarantee), f"{solver.name}, because {reason}")


def _unconstrained(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """The solver for coefficients in all of space, and why."""
    if guarantee.delta == 0:
        return ObjectivePerturbation(), "delta = 0 leaves no Gaussian noise, and its gamma-norm noise is pure"
    if not isinstance(problem.loss, Logistic | Softmax | HuberHinge) or problem.l2 is not None:
        return (
            ObjectivePerturbation(),
            "this loss, or the ridge that was asked for, is best served by a minimizer",
        )
    ratio = signal_to_noise(problem, guarantee)
    if ratio >= _AMPLE:
        return (
            ObjectivePerturbation(),
            f"signal over noise is {ratio:.3g}, at least {_AMPLE:g}: noise hardly matters",
        )
    if problem.n_features <= _MOST_COLUMNS:
        seen, several = moment_visibility(problem, guarantee), problem.loss.n_outputs > 1
        visible = _VISIBLE[several]
        if seen >= visible:
            return (
                NoisyNewton(),
                f"the second moment stands out of its noise {seen:.3g} times, at least {visible:g}",
            )
        if seen >= _GLIMPSED and problem.n_models == 1:
            return (
                NoisyDiscriminant(),
                f"the second moment stands out of its noise {seen:.3g} times, below {visible:g}: what can be seen is "
                "the sums of the classes",
            )
    elif isinstance(problem.loss, Logistic) and problem.n_models == 1:
        along = ratio * math.sqrt(problem.n_coefficients)
        blind = _BLIND[problem.sparse]
        if along < blind:
            return (
                FrankWolfe(),
                f"the records are {along:.3g} times the noise in one direction, below {blind:g}: only a single "
                "column, of entries cut to 1, can be seen",
            )
    wide = problem.sparse and problem.n_features > _MOST_COLUMNS
    if wide and problem.n_models == 1 and ratio < _LEVEL:
        return (
            NoisyDiscriminant(),
            f"rows are wide and sparse, and signal over noise is {ratio:.3g}, below {_LEVEL:g}: sums of the classes "
            "tell most",
        )
    if wide:
        return NoisyGradientDescent(), "rows are wide and sparse: stopping early is ahead of the minimum"
    if isinstance(problem.loss, HuberHinge) and problem.n_models == 1:
        return (
            ObjectivePerturbation(),
            "noise hides the second moment, and one Huber-SVM needs no large ridge",
        )
    if ratio < _LEVEL:
        return NoisyGradientDescent(), f"signal over noise is {ratio:.3g}, below {_LEVEL:g}: noise rules"
    reason = f"signal over noise is {ratio:.3g}, at least {_LEVEL:g}: the minimum is worth reaching"
    return ObjectivePerturbation(), reason


def _by_columns(problem: Problem) -> Problem:
    """The problem with bounded entries instead of bounded norms, and coefficients in an L1 ball."""
    intercept = problem.bounds.intercept
    bounds = BoxBounds.of(problem.n_features - int(intercept), intercept=intercept)
    return replace(problem, bounds=bounds, geometry=L1Ball(_L1_SIZE, problem.n_features))


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
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return bool(getattr(self.plan, "sums_only", False))

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
