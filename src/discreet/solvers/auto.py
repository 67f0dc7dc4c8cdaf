"""Choosing a solver from public facts.

For classifiers the choice was measured on public data (``benchmarks/solvers.py``;
docs/decisions/0008-automatic-choice.md). In the order of how much can be seen through the noise:

* everything, because records are many: objective perturbation, which reaches the minimum without a copy of the data;
* the directions of the records, in a private second moment: descent in coordinates made from it;
* of wide sparse rows, the sums of the classes well: these sums, refocused on the columns that can be seen;
* of wide sparse rows, less than that: one release of the sums of the classes;
* no direction of wide rows: a choice of single columns;
* and where none of these applies while noise rules: plain noisy descent, which stops early and caps the pull of single
  records.

Inside a set (``benchmarks/sets.py``) noisy descent is ahead while noise rules, objective perturbation above, mirror
descent where a minimizer over the set cannot be verified. Frank-Wolfe is for entries that are bounded one by one.

For regressors second-order regression was best on nearly all public data; the exceptions follow from what it needs,
a second moment of not too many columns and no ridge but for squared losses
(docs/decisions/0017-second-order-regression.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.bounds import BoxBounds
from discreet.sets import Geometry, L1Ball, Polytope
from discreet.solvers import base
from discreet.solvers.class_sums.discriminant import NoisyDiscriminant
from discreet.solvers.class_sums.refocused import RefocusedSums, signal
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.minimizers.constrained import SETS as CERTIFIED_SETS
from discreet.solvers.perturbation.objective import ObjectivePerturbation
from discreet.solvers.sampling.exponential import ExponentialSampling
from discreet.solvers.second_order.newton import NoisyNewton, moment_visibility
from discreet.solvers.statistics import SufficientStatistics
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

# Signal over noise (see `signal_to_noise`) at which plain descent and objective perturbation are level.
_LEVEL = 200.0
# Beyond this noise hardly matters, and a fit without a copy of the records is the better one where the copy is large.
_AMPLE = 3000.0
# Beyond this no solver's accuracy is limited by noise, and the exact minimizer is the cheapest.
_NOISELESS = 30_000.0
# Numbers in a copy of the records from which on it counts as large: 512 MB.
_LARGE = 2**26
# The second moment is worth its price where all records together are this many times its noise.
_VISIBLE = 4.0
# The same for regressors, whose clipped gradients keep their lead for longer.
_AMPLE_FOR_TARGETS = 1e5
# A reshaped copy of the records is dense, and the release has a number for every pair of columns.
_MOST_COLUMNS = 1000
# Records against the noise in one direction: below this, no direction of wide rows is seen, but a column may be. For
# rows in a dense matrix, in a sparse one.
_BLIND = 70.0, 20.0
# Records against the noise in a class sum: from here on, sums of wide sparse rows are looked at twice.
_SEEN_TWICE = 240.0
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

    def plan(self, problem: Problem, guarantee: Guarantee) -> base.Plan:
        """The plan of the chosen solver, with the reason for the choice."""
        if problem.geometry is not None:
            solver, reason = _within(problem.geometry, problem, guarantee)
        else:
            solver, reason = _unconstrained(problem, guarantee)
            if isinstance(solver, FrankWolfe):
                problem = _by_columns(problem)
        return replace(solver.plan(problem, guarantee), reason=f"{solver.name}, because {reason}")


def _within(geometry: Geometry, problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """The solver for coefficients in a set, and why."""
    if not problem.loss.linear:
        return MirrorDescent(), "of the loss nothing but gradients is known, and the parameters lie in a set"
    if math.isinf(problem.loss.smoothness):
        if guarantee.delta == 0:
            return ExponentialSampling(), "delta = 0 leaves no Gaussian noise, and the loss has corners"
        return MirrorDescent(), "the coefficients must lie in a set, and the loss has corners"
    if isinstance(problem.bounds, BoxBounds) and isinstance(geometry, Polytope):
        return FrankWolfe(), "entries are bounded one by one, so that choosing a vertex costs little noise"
    verified = isinstance(geometry, CERTIFIED_SETS) and "convex" in problem.loss.proved_for
    if guarantee.delta == 0:
        if isinstance(geometry, Polytope) and not verified:
            return FrankWolfe(), "delta = 0 leaves no Gaussian noise, and the set has a list of vertices"
        return ObjectivePerturbation(), "delta = 0 leaves no Gaussian noise"
    ratio = signal_to_noise(problem, guarantee)
    if ratio < _LEVEL:
        return (
            NoisyGradientDescent(),
            f"in a set, signal over noise is {ratio:.3g}, below {_LEVEL:g}: noise rules",
        )
    if verified:
        return (
            ObjectivePerturbation(),
            f"in a set, signal over noise is {ratio:.3g}, at least {_LEVEL:g}: the minimum is worth reaching",
        )
    return (
        MirrorDescent(),
        "no minimizer can be verified in this set, and noise is small enough for many steps",
    )


def _unconstrained(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """The solver for coefficients in all of space, and why."""
    if guarantee.delta == 0 and math.isinf(problem.loss.smoothness):
        return ExponentialSampling(), "delta = 0 leaves no Gaussian noise, and the loss has corners"
    if guarantee.delta == 0:
        return (
            ObjectivePerturbation(),
            "delta = 0 leaves no Gaussian noise; its gamma-norm noise is pure, and it needs no bounded ball",
        )
    if math.isinf(problem.loss.smoothness):
        return NoisyGradientDescent(), "the loss has corners, where no minimizer is stable"
    if "convex" not in problem.loss.proved_for:
        return NoisyGradientDescent(), "the loss is not proved to be convex, so no minimizer can be verified"
    if problem.loss.aims_at is not None:
        return _regression(problem, guarantee)
    if "classes" not in problem.loss.proved_for or problem.l2 is not None:
        return (
            ObjectivePerturbation(),
            "this loss, or the ridge that was asked for, is best served by a minimizer",
        )
    ratio = signal_to_noise(problem, guarantee)
    wide = problem.n_features > _MOST_COLUMNS
    large = problem.n_samples * problem.n_features >= _LARGE
    ample = _AMPLE if large or wide else _NOISELESS
    if ratio >= ample:
        return (
            ObjectivePerturbation(),
            f"signal over noise is {ratio:.3g}, at least {ample:g}: noise hardly matters",
        )
    special = _wide(problem, guarantee, ratio) if wide else _narrow(problem, guarantee)
    if special is not None:
        return special
    if wide and problem.loss.family == "monotone" and problem.n_models == 1:
        return ObjectivePerturbation(), "rows are wide, and one Huber-SVM needs no large ridge"
    if ratio < _LEVEL:
        return NoisyGradientDescent(), f"signal over noise is {ratio:.3g}, below {_LEVEL:g}: noise rules"
    reason = f"signal over noise is {ratio:.3g}, at least {_LEVEL:g}: the minimum is worth reaching"
    return ObjectivePerturbation(), reason


def _regression(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """The solver for real targets and counts, and why."""
    squared = "quadratic" in problem.loss.proved_for
    if problem.n_features > _MOST_COLUMNS:
        reason = f"the second moment of more than {_MOST_COLUMNS} columns has too many entries"
        return NoisyGradientDescent(), reason
    if problem.l2 is not None and not squared:
        return ObjectivePerturbation(), "the ridge that was asked for is best served by a minimizer"
    ratio = signal_to_noise(problem, guarantee)
    if ratio >= _AMPLE_FOR_TARGETS:
        reason = f"signal over noise is {ratio:.3g}, at least {_AMPLE_FOR_TARGETS:g}: noise hardly matters"
        if problem.loss.aims_at == "quantile":  # its corner is sharp, and a minimizer needs much of a ridge
            return NoisyGradientDescent(), reason
        return (SufficientStatistics() if squared else ObjectivePerturbation()), reason
    return NoisyNewton(), "clipped gradients of reshaped records tell most about real targets"


def _narrow(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str] | None:
    """The solver for rows whose second moment can be afforded, if enough of it is seen."""
    seen = moment_visibility(problem, guarantee)
    if seen < _VISIBLE:
        return None
    return NoisyNewton(), f"the second moment is {seen:.3g} times its noise, at least {_VISIBLE:g}"


def _wide(problem: Problem, guarantee: Guarantee, ratio: float) -> tuple[base.Solver, str] | None:
    """The solver for rows of many columns, if single columns are all that is seen or the rows are sparse."""
    along, blind = ratio * math.sqrt(problem.n_coefficients), _BLIND[problem.sparse]
    if problem.loss.n_outputs == 1 and problem.n_models == 1 and along < blind:
        return (
            FrankWolfe(),
            f"the records are {along:.3g} times the noise in one direction, below {blind:g}: only a single column, of "
            "entries cut to 1, can be seen",
        )
    if not problem.sparse:
        return None
    if problem.n_models == 1 and ratio < _LEVEL:
        seen = signal(problem, guarantee)
        if seen >= _SEEN_TWICE:
            return (
                RefocusedSums(),
                f"rows are wide and sparse, and records are {seen:.3g} times the noise in a class sum, at least "
                f"{_SEEN_TWICE:g}: columns are worth a second look",
            )
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


base.register(AutomaticChoice.name, AutomaticChoice)
