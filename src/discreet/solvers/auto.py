"""Automatic choice of a solver from public facts.

For classifiers the choice was measured on public data (``benchmarks/solvers.py``;
docs/decisions/0008-automatic-choice.md). From most to least signal relative to the noise:

* many records, noise hardly matters: objective perturbation, which reaches the minimum without copying the data;
* the second moment of the records rises above its noise: Newton's method in coordinates made from it;
* it does not: one release of the class sums, whose contrast is all that can be seen;
* wide sparse rows with clear class sums: class sums, released again on the columns that rise above the noise;
* wide sparse rows with less signal: one release of the class sums;
* wide rows where no direction is visible: private selection of single columns;
* wide rows otherwise, while noise dominates: noisy gradient descent, which stops early and caps each record's gradient.

With a constraint (``benchmarks/sets.py``), noisy gradient descent is best while noise dominates and objective
perturbation above that, sooner in sets of small Gaussian width; mirror descent is used if no minimizer over the set can
be verified. Frank-Wolfe is used when entries are bounded one by one.

For regressors, second-order regression was best on nearly all public data. Where records are so few that it loses to
the middle of the declared range, objective perturbation with pure noise takes its place (``benchmarks/pure.py``). The
other exceptions follow from its requirements: not too many columns for a second moment, and a ridge only with squared
losses (docs/decisions/0017-second-order-regression.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet.losses import HuberRegression
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, gradient_signal, moment_signal, noise_over_signal, sum_signal
from discreet.records.bounds import BoxBounds
from discreet.sets import Geometry, L1Ball, Polytope
from discreet.solvers import base
from discreet.solvers.class_sums.discriminant import NoisyDiscriminant
from discreet.solvers.class_sums.refocused import RefocusedSums
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.minimizers.constrained import SETS as CERTIFIED_SETS
from discreet.solvers.perturbation.objective import ObjectivePerturbation
from discreet.solvers.sampling.exponential import ExponentialSampling
from discreet.solvers.second_order.newton import MOMENT_SHARE, NoisyNewton
from discreet.solvers.statistics import SufficientStatistics
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

# Signal-to-noise ratio (see `gradient_signal`) at which plain descent and objective perturbation perform equally.
_LEVEL = 200.0
# The same in a set as wide as a ball, unless errors are squared; and, in narrower sets, the records over the noise in
# one direction: few of all directions of the noise lead out of a corner.
_LEVEL_IN_BALLS, _LEVEL_ALONG = 1000.0, 450.0
_AS_WIDE = 0.9  # Gaussian width over that of the ball around the set
# Above this ratio noise hardly matters; if a copy of the records would be large, prefer a fit that needs none.
_AMPLE = 3000.0
# Above this ratio noise limits no solver, and the exact minimizer is the cheapest.
_NOISELESS = 30_000.0
# A copy of the records with at least this many numbers (512 MB) counts as large.
_LARGE = 2**26
# The second moment is released if the records exceed its noise by this factor: with several classes, and with two.
_VISIBLE = 4.0, 3.5
# Two classes also need so many records over the noise in a class sum, per column, that columns can be evened out.
_EVEN = 3.0
# The same for regressors, for which clipped gradients stay ahead longer.
_AMPLE_FOR_TARGETS = 1e5
# The reshaped copy of the records is dense, and the second moment has one number per pair of columns.
_MOST_COLUMNS = 1000
# Records over the noise in one direction, for dense and for sparse rows. Below this no direction of wide rows is
# visible, but a single column may be.
_BLIND = 70.0, 20.0
# Records over the noise in a class sum, above which sums of wide sparse rows are released twice.
_SEEN_TWICE = 240.0
# Below this ratio, regressors release one minimizer with noise for delta = 0 if that noise is smaller.
_FEW = 6.0
# Clip of residuals for squared errors with delta = 0, in half ranges of the targets, while signal over noise is at most
# the second number.
_NARROW_CLIP, _CLIPPED_MOST = 0.2, 5.0
# Radius of the L1 ball for selecting single columns, with probabilities and without. The first is so short that a
# wrong column costs little log loss, and no budget goes into evidence for a longer step. In it a hinge is a line,
# which tells no threshold.
_L1_SIZE, _L1_SIZE_OF_HINGES = 0.5, 2.0


@dataclass(frozen=True)
class AutomaticChoice:
    """Choose the solver from public facts; ``print`` the plan to see the choice and its reason.

    Privacy
    -------
    The guarantee of the chosen solver, with delta = 0 where noise for that is the smaller one. The choice depends only
    on the public problem (sizes, loss, ridge, set, whether rows are stored as a sparse matrix) and the guarantee.
    """

    name: ClassVar[str] = "auto"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"

    def plan(self, problem: Problem, guarantee: Guarantee) -> base.Plan:
        """Return the plan of the chosen solver, with the reason for the choice."""
        if problem.geometry is not None:
            solver, reason = _within(problem.geometry, problem, guarantee)
        else:
            pure = replace(guarantee, delta=0.0)
            quieter = _few_targets(problem, guarantee, pure)
            guarantee = pure if quieter else guarantee
            solver, reason = _unconstrained(problem, guarantee)
            if quieter:
                reason = (
                    f"records are so few that noise for delta = 0 is smaller than Gaussian noise; {reason}"
                )
            if isinstance(solver, FrankWolfe):
                problem = _by_columns(problem)
            elif guarantee.delta == 0 and "quadratic" in problem.loss.proved_for:
                problem = _clipped(problem, guarantee)
                reason += f"; residuals are clipped at {problem.loss.lipschitz:.3g} of half the range of the targets"
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
        return FrankWolfe(), "entries are bounded one by one, so choosing a vertex needs little noise"
    verified = (
        isinstance(geometry, CERTIFIED_SETS)
        and "convex" in problem.loss.proved_for
        and problem.loss.known_hessian
    )
    if guarantee.delta == 0:
        if isinstance(geometry, Polytope) and not verified:
            return FrankWolfe(), "delta = 0 rules out Gaussian noise, and the set has a list of vertices"
        return ObjectivePerturbation(), "delta = 0 rules out Gaussian noise"
    ratio = gradient_signal(problem, guarantee)
    if not verified and ratio >= _LEVEL:
        return (
            MirrorDescent(),
            "no minimizer can be verified in this set, and noise is small enough for many steps",
        )
    told, seen, level = "signal over noise is", ratio, _LEVEL
    if verified and geometry.gaussian_width() < _AS_WIDE * geometry.radius(2.0) * math.sqrt(
        geometry.n_features
    ):
        told, level = "records over the noise in one direction are", _LEVEL_ALONG
        seen = ratio * math.sqrt(geometry.n_features)
    elif verified and "quadratic" not in problem.loss.proved_for:
        level = _LEVEL_IN_BALLS
    if seen < level:
        return NoisyGradientDescent(), f"in a set, {told} {seen:.3g}, below {level:g}: noise dominates"
    return (
        ObjectivePerturbation(),
        f"in a set, {told} {seen:.3g}, at least {level:g}: little noise, so minimize fully",
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
        return NoisyGradientDescent(), "the loss has corners, so its minimizer is not stable"
    if "convex" not in problem.loss.proved_for:
        return NoisyGradientDescent(), "the loss is not proved to be convex, so no minimizer can be verified"
    if problem.loss.aims_at is not None:
        return _regression(problem, guarantee)
    with_ridge = "second-order" not in problem.loss.proved_for or problem.l2 is not None
    if with_ridge and problem.loss.known_hessian:
        return (
            ObjectivePerturbation(),
            "this loss, or the requested ridge, works best with a minimizer",
        )
    ratio = gradient_signal(problem, guarantee)
    wide = problem.n_features > _MOST_COLUMNS
    large = problem.n_samples * problem.n_features >= _LARGE
    ample = _AMPLE if large or wide else _NOISELESS
    if ratio >= ample and problem.loss.known_hessian:
        return (
            ObjectivePerturbation(),
            f"signal over noise is {ratio:.3g}, at least {ample:g}: noise hardly matters",
        )
    if not wide:
        seen = moment_signal(problem, guarantee, MOMENT_SHARE)
        fits = "classes" in problem.loss.proved_for and problem.n_models == 1 and not large
        two = fits and problem.loss.n_outputs == 1
        visible, per_column = _VISIBLE[two], sum_signal(problem, guarantee) / problem.n_features
        if seen >= visible and (per_column >= _EVEN or not two):
            reason = f"the second moment is {seen:.3g} times its noise, at least {visible:g}"
            if two:
                reason += f", and records are {per_column:.3g} times the noise per column, at least {_EVEN:g}"
            return NoisyNewton(), reason
        if fits:
            reason = (
                f"the second moment is {seen:.3g} times its noise, below {visible:g}"
                if seen < visible
                else f"records are {per_column:.3g} times the noise per column, below {_EVEN:g}"
            )
            return NoisyDiscriminant(), f"{reason}: release the sums of the classes once"
    elif "classes" in problem.loss.proved_for and (special := _wide(problem, guarantee, ratio)) is not None:
        return special
    if wide and problem.loss.family == "monotone" and problem.n_models == 1:
        return ObjectivePerturbation(), "rows are wide, and one Huber-SVM needs no large ridge"
    if not problem.loss.known_hessian:
        return NoisyGradientDescent(), "several classes with weights are proved for noisy gradients"
    if ratio < _LEVEL:
        return NoisyGradientDescent(), f"signal over noise is {ratio:.3g}, below {_LEVEL:g}: noise dominates"
    reason = f"signal over noise is {ratio:.3g}, at least {_LEVEL:g}: little noise, so minimize fully"
    return ObjectivePerturbation(), reason


def _regression(problem: Problem, guarantee: Guarantee) -> tuple[base.Solver, str]:
    """Choose the solver for real targets and counts, with the reason."""
    squared = "quadratic" in problem.loss.proved_for
    if problem.n_features > _MOST_COLUMNS:
        reason = f"the second moment of more than {_MOST_COLUMNS} columns has too many entries"
        return NoisyGradientDescent(), reason
    if problem.l2 is not None and not squared:
        return ObjectivePerturbation(), "the requested ridge works best with a minimizer"
    ratio = gradient_signal(problem, guarantee)
    if ratio >= _AMPLE_FOR_TARGETS:
        reason = f"signal over noise is {ratio:.3g}, at least {_AMPLE_FOR_TARGETS:g}: noise hardly matters"
        if problem.loss.aims_at == "quantile":  # its corner is sharp, and a minimizer needs much of a ridge
            return NoisyGradientDescent(), reason
        return (SufficientStatistics() if squared else ObjectivePerturbation()), reason
    return NoisyNewton(), "second-order regression is the most accurate for real targets"


def _wide(problem: Problem, guarantee: Guarantee, ratio: float) -> tuple[base.Solver, str] | None:
    """Choose a solver for wide rows that are sparse or where only single columns are visible; otherwise None."""
    along, blind = ratio * math.sqrt(problem.n_coefficients), _BLIND[problem.sparse]
    if problem.loss.n_outputs == 1 and problem.n_models == 1 and along < blind:
        return (
            FrankWolfe(evidence_share=0.0),
            f"the records are {along:.3g} times the noise in one direction, below {blind:g}: only single columns, "
            "with entries clipped to 1, rise above it",
        )
    if not problem.sparse:
        return None
    if problem.n_models == 1 and ratio < _LEVEL:
        seen = sum_signal(problem, guarantee)
        if seen >= _SEEN_TWICE:
            return (
                RefocusedSums(),
                f"rows are wide and sparse, and records are {seen:.3g} times the noise in a class sum, at least "
                f"{_SEEN_TWICE:g}: release class sums twice",
            )
        return (
            NoisyDiscriminant(),
            f"rows are wide and sparse, and signal over noise is {ratio:.3g}, below {_LEVEL:g}: release "
            "class sums once",
        )
    return NoisyGradientDescent(), "rows are wide and sparse: stopping early beats minimizing fully"


def _few_targets(problem: Problem, guarantee: Guarantee, pure: Guarantee) -> bool:
    """Whether a regression has so few records that one release for delta = 0 is less noisy, and the better fit."""
    if problem.loss.aims_at is None or guarantee.delta == 0:
        return False
    noise = noise_over_signal(problem, guarantee)
    return noise > 1 / _FEW and noise_over_signal(problem, pure) < noise


def _clipped(problem: Problem, guarantee: Guarantee) -> Problem:
    """Return the problem with residuals clipped, less the more records there are relative to pure noise.

    The largest possible residual is the whole range of the targets, and pure noise must hide it. While noise dominates,
    that costs more than the bias of a clip (``benchmarks/pure.py``).
    """
    signal = 1 / noise_over_signal(problem, guarantee)
    width = _NARROW_CLIP * max(1.0, signal / _CLIPPED_MOST) ** 0.4
    if width >= problem.loss.lipschitz:
        return problem
    return replace(problem, loss=HuberRegression(width))


def _by_columns(problem: Problem) -> Problem:
    """Return the problem with bounded entries instead of bounded norms, and coefficients in an L1 ball."""
    intercept = problem.bounds.intercept
    bounds = BoxBounds.of(problem.n_features - int(intercept), intercept=intercept)
    size = _L1_SIZE if "likelihood" in problem.loss.proved_for else _L1_SIZE_OF_HINGES
    return replace(problem, bounds=bounds, geometry=L1Ball(size, problem.n_features))


base.register(AutomaticChoice.name, AutomaticChoice)
