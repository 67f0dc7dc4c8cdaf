"""Choosing a solver from public facts.

For classifiers the choice was measured on public data (``benchmarks/solvers.py``;
docs/decisions/0008-automatic-choice.md). In the order of how much can be seen through the noise:

* everything, because records are many: objective perturbation, which reaches the minimum without a copy of the data;
* the directions of the records, in a private second moment: descent in coordinates made from it;
* a glimpse of that moment, or less of wide sparse rows: one release of the sums of the classes;
* no direction of wide rows: a choice of single columns;
* and where none of these applies while noise rules: plain noisy descent, which stops early and caps the pull of single
  records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet.box_bounds import BoxBounds
from discreet.geometries import Geometry, L1Ball, Polytope
from discreet.losses import HuberHinge, Logistic, Softmax
from discreet.mechanisms.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.statement import plan_line
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.certificates import Certificate
from discreet.solvers.discriminant import NoisyDiscriminant
from discreet.solvers.frank_wolfe import FrankWolfe
from discreet.solvers.mirror_descent import MirrorDescent
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
    That of the chosen solver. The choice reads the public problem (sizes, loss, ridge, set, whether rows are stored as
    a sparse matrix) and the guarantee.
    """

    name: ClassVar[str] = "auto"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"

    def plan(self, problem: Problem, guarantee: Guarantee) -> ChosenPlan:
        """The plan of the chosen solver, with the reason for the choice."""
        if problem.geometry is not None:
            constrained, reason = _within(problem.geometry, problem, guarantee)
            return ChosenPlan(constrained.plan(problem, guarantee), f"{constrained.name}, because {reason}")
        solver, reason = _unconstrained(problem, guarantee)
        if isinstance(solver, FrankWolfe):
            problem = _by_columns(problem)
        return ChosenPlan(solver.plan(problem, guarantee), f"{solver.name}, because {reason}")


def _within(geometry: Geometry, problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """The solver for coefficients in a set, and why."""
    if math.isinf(problem.loss.smoothness):
        return MirrorDescent(), "the coefficients must lie in a set, and the loss has corners"
    if guarantee.delta == 0 and not isinstance(geometry, Polytope):
        return (
            ObjectivePerturbation(),
            "delta = 0 leaves no Gaussian noise, and the set has no list of vertices",
        )
    return FrankWolfe(), "the coefficients must lie in a set"


def _unconstrained(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """The solver for coefficients in all of space, and why."""
    if guarantee.delta == 0:
        return ObjectivePerturbation(), "delta = 0 leaves no Gaussian noise, and its gamma-norm noise is pure"
    if math.isinf(problem.loss.smoothness):
        return NoisyGradientDescent(), "the loss has corners, where no minimizer is stable"
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
    wide = problem.n_features > _MOST_COLUMNS
    special = _wide(problem, ratio) if wide else _narrow(problem, guarantee)
    if special is not None:
        return special
    if isinstance(problem.loss, HuberHinge) and problem.n_models == 1:
        return (
            ObjectivePerturbation(),
            "noise hides the second moment, and one Huber-SVM needs no large ridge",
        )
    if ratio < _LEVEL:
        return NoisyGradientDescent(), f"signal over noise is {ratio:.3g}, below {_LEVEL:g}: noise rules"
    reason = f"signal over noise is {ratio:.3g}, at least {_LEVEL:g}: the minimum is worth reaching"
    return ObjectivePerturbation(), reason


def _narrow(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str] | None:
    """The solver for rows whose second moment can be afforded, if enough of it is seen."""
    seen, visible = moment_visibility(problem, guarantee), _VISIBLE[problem.loss.n_outputs > 1]
    stands_out = f"the second moment stands out of its noise {seen:.3g} times"
    if seen >= visible:
        return NoisyNewton(), f"{stands_out}, at least {visible:g}"
    if seen >= _GLIMPSED and problem.n_models == 1:
        return (
            NoisyDiscriminant(),
            f"{stands_out}, below {visible:g}: what can be seen is the sums of the classes",
        )
    return None


def _wide(problem: Problem, ratio: float) -> tuple[base.Solver, str] | None:
    """The solver for rows of many columns, if single columns are all that is seen or the rows are sparse."""
    along, blind = ratio * math.sqrt(problem.n_coefficients), _BLIND[problem.sparse]
    if isinstance(problem.loss, Logistic) and problem.n_models == 1 and along < blind:
        return (
            FrankWolfe(),
            f"the records are {along:.3g} times the noise in one direction, below {blind:g}: only a single column, of "
            "entries cut to 1, can be seen",
        )
    if not problem.sparse:
        return None
    if problem.n_models == 1 and ratio < _LEVEL:
        return (
            NoisyDiscriminant(),
            f"rows are wide and sparse, and signal over noise is {ratio:.3g}, below {_LEVEL:g}: sums of the classes "
            "tell most",
        )
    return NoisyGradientDescent(), "rows are wide and sparse: stopping early is ahead of the minimum"


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
    def certificate(self) -> Certificate | None:
        """The bound on the excess risk, if the chosen solver has one."""
        return getattr(self.plan, "certificate", None)

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
        return f"{self.plan}\n{plan_line('chosen by solver=auto', self.reason)}"


base.register(AutomaticChoice.name, AutomaticChoice)
