"""Which lemma proves which constant: the one table that code, statements, tests and attestations read.

Every sensitivity, event and calibration of this package is computed inside a class or function that is listed here
with the lemmas that prove it. A lemma is named by its file in ``docs/proofs`` and an anchor: ``theorem-4``,
``lemma-2``, ``section-9``. A test reads the sources and fails on a constant outside of the table, on a name that no
longer exists, on an anchor that points nowhere, and on a lemma that no test exercises.

The proofs travel with the package, so that a statement can name the very text that it relies on by its hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_ADAPTIVE = "composition.md#lemma-1"
_GRID = "discrete-noise.md#section-3.1"
_BALL = ("gradient-methods.md#theorem-1", "gradient-methods.md#theorem-2")
_DESCENT = (*_BALL, "gradient-methods.md#theorem-3", _ADAPTIVE)
_RANGE = ("frank-wolfe.md#lemma-1", "frank-wolfe.md#lemma-2", "frank-wolfe.md#lemma-3")
_WALK = (*_RANGE, "frank-wolfe.md#lemma-4")
_SLOPE = "frank-wolfe.md#theorem-4"
_PACED = (
    *_WALK,
    "frank-wolfe.md#theorem-2",
    "frank-wolfe.md#theorem-3",
    _SLOPE,
    "sparse-frank-wolfe.md#theorem-1",
)
_EXPONENTIAL = ("exponential-sampling.md#theorem-1", "exponential-sampling.md#theorem-2")
_OBJECTIVE = tuple(f"objective-perturbation.md#theorem-{number}" for number in range(1, 6))
_OVER_SETS = ("constrained-minimizers.md#theorem-1", "constrained-minimizers.md#theorem-3")
_MINIMIZER = ("gradient-methods.md#theorem-5", "rounding.md#theorem", "constrained-minimizers.md#theorem-4")
_SPARSE_VECTOR = ("sparse-vector.md#theorem-1", "sparse-vector.md#theorem-2", "sparse-vector.md#theorem-3")
_VOTES = ("sparse-vector.md#section-7", "sparse-vector.md#section-8")
_USERS = ("recommenders.md#section-1", "recommenders.md#theorem-1", "recommenders.md#theorem-2")
_TRIES = (
    "selection.md#lemma-3",
    "selection.md#theorem-4",
    "selection.md#corollary-5",
    "selection.md#corollary-6",
)
_TERMS = ("evaluation.md#lemma-1",)
_SECOND = ("second-order-regression.md#theorem-1", "second-order-regression.md#theorem-2")
_CURVES = "composition.md#section-4"
_COMPONENTS = ("principal-components.md#theorem-1", "principal-components.md#theorem-2", _ADAPTIVE)
_MEDIAN = ("geometric-median.md#theorem-1", "geometric-median.md#theorem-2", _ADAPTIVE)

#: Class, function or module below ``discreet``, and the lemmas that prove the constants inside it.
PROVED_BY: dict[str, tuple[str, ...]] = {
    # sensitivities that everything else is made of
    "privacy.guarantee.sum_sensitivity": ("gradient-methods.md#section-2",),
    "privacy.guarantee.acute_sum_sensitivity": ("discriminant.md#theorem-1",),
    "solvers.base.gradient_sensitivity": _BALL,
    "solvers.base.computed_gradient_sensitivity": (*_BALL, "rounding.md#section-4"),
    "solvers.base.gradient_mechanism": _BALL,
    "problem.Problem": ("gradient-methods.md#section-2",),
    # events, and the curves that price them
    "privacy.events.Gaussian": (_ADAPTIVE, _CURVES),
    "privacy.events.Laplace": (_CURVES,),
    "privacy.events.Pure": (_CURVES,),
    "privacy.events.Approximate": (_CURVES,),
    "privacy.events.BoundedRange": ("frank-wolfe.md#lemma-1", _CURVES),
    "privacy.events.ZeroConcentrated": ("composition.md#section-3",),
    "privacy.events.ObjectivePerturbation": _OBJECTIVE,
    "privacy.events.Approximated": ("composition.md#section-7",),
    "privacy.events.Discretized": (_GRID,),
    "privacy.events.Subsampled": (_CURVES,),
    "privacy.events.Repeated": (_ADAPTIVE,),
    "privacy.events.Composed": (_ADAPTIVE,),
    "privacy.events.OneOf": ("selection.md#lemma-1", "selection.md#lemma-2"),
    "privacy.events.RandomTries": _TRIES,
    "privacy.events.Grouped": ("groups.md#theorem-1", "groups.md#theorem-2"),
    "privacy.ledger.ledger.Ledger": ("composition.md#section-2",),
    "privacy.ledger.refusals": ("composition.md#section-2",),
    "privacy.ledger.rules": ("composition.md#section-2",),
    # budgets
    "solvers.base.PlannedRelease": (_CURVES, _ADAPTIVE),
    "privacy.accounting.calibration.calibrated_unit": (_ADAPTIVE,),
    "privacy.accounting.calibration.split_unit": (_ADAPTIVE,),
    "privacy.accounting.calibration.split_event": (_ADAPTIVE, _GRID),
    "privacy.accounting.calibration.share_event": (_GRID,),
    "mechanisms.noisy_vector.NoisyVectorPlan": (_GRID, _CURVES),
    # mechanisms
    "mechanisms.additive.GaussianMechanism": (
        "discrete-noise.md#section-1",
        _GRID,
        "discrete-noise.md#section-4",
    ),
    "mechanisms.additive.AdditiveMechanism": ("discrete-noise.md#section-4",),
    "mechanisms.additive.PureMechanism": ("discrete-noise.md#section-4", _CURVES),
    "mechanisms.gamma_norm.GammaNormMechanism": ("gamma-noise.md#theorem-1", "gamma-noise.md#theorem-2"),
    "mechanisms.additive.SymmetricGaussianMechanism": ("discrete-noise.md#section-4", _GRID),
    "mechanisms.selection.ExponentialMechanism": _RANGE,
    "mechanisms.selection.LaplaceNoisyMax": ("frank-wolfe.md#lemma-5",),
    "mechanisms.level_selection.LeveledSelection": ("sparse-frank-wolfe.md#lemma-1",),
    "mechanisms.gibbs.GibbsMechanism": (*_EXPONENTIAL, "exponential-sampling.md#lemma-2"),
    "mechanisms.sparse_vector.StableRelease": ("sparse-vector.md#section-5",),
    "mechanisms.sparse_vector.SparseVector": _SPARSE_VECTOR,
    "mechanisms.sparse_vector.SparseVectorRun": _SPARSE_VECTOR,
    "mechanisms.sparse_vector._candidates": _SPARSE_VECTOR,
    "mechanisms.tree.TreeMechanism": ("online.md#theorem-2",),
    "mechanisms.tree.TreeRun": ("online.md#theorem-2",),
    "mechanisms.voting.NoisyPlurality": _VOTES,
    "mechanisms.voting.ConfidentPlurality": _VOTES,
    "mechanisms.voting.PluralityRun": _VOTES,
    "mechanisms.repetition.draw_tries": ("selection.md#section-4",),
    # losses: bounds on derivatives, curvatures and their differences
    "losses.classification.Logistic": (
        "gradient-methods.md#theorem-1",
        "objective-perturbation.md#theorem-2",
    ),
    "losses.classification.CappedLogistic": ("gradient-methods.md#theorem-2",),
    "losses.classification.HuberHinge": (
        "gradient-methods.md#theorem-2",
        "objective-perturbation.md#theorem-1",
    ),
    "losses.classification.Hinge": ("gradient-methods.md#theorem-2",),
    "losses.multiclass.Softmax": (
        "gradient-methods.md#theorem-2",
        "objective-perturbation.md#theorem-3",
        "own-losses.md#theorem-2",
    ),
    "losses.weighted.ClassWeighted": ("class-weights.md#theorem-1",),
    "losses.multiclass.CappedSoftmax": ("gradient-methods.md#theorem-2",),
    "losses.regression.Squared": ("gradient-methods.md#theorem-2", "objective-perturbation.md#theorem-1"),
    "losses.regression.HuberRegression": (
        "gradient-methods.md#theorem-2",
        "objective-perturbation.md#theorem-1",
    ),
    "losses.regression.Absolute": ("gradient-methods.md#theorem-2", "own-losses.md#section-4"),
    "losses.row_gradients.GradientLoss": ("own-losses.md#theorem-1",),
    "losses.regression.Quantile": ("gradient-methods.md#theorem-2",),
    "losses.regression.Linear": ("gradient-methods.md#theorem-2",),
    "losses.regression.Poisson": ("gradient-methods.md#theorem-2", "objective-perturbation.md#theorem-1"),
    # sets: vertices bound the range of a score, projections stay within the radius
    "sets.balls.L2Ball": ("gradient-methods.md#theorem-2", "constrained-minimizers.md#theorem-1"),
    "sets.balls.L1Ball": ("frank-wolfe.md#lemma-4", "constrained-minimizers.md#theorem-1"),
    "sets.balls.Simplex": ("frank-wolfe.md#lemma-4", "simplex-sampling.md#theorem-1"),
    "sets.balls.Box": ("constrained-minimizers.md#theorem-1",),
    "sets.balls.BallIntersection": ("constrained-minimizers.md#theorem-1",),
    "sets.norms.GroupedL1Ball": ("frank-wolfe.md#section-5", "constrained-minimizers.md#theorem-1"),
    "sets.norms.InterpolationBall": ("frank-wolfe.md#section-5", "constrained-minimizers.md#theorem-1"),
    "sets.norms.NuclearBall": ("frank-wolfe.md#section-5", "constrained-minimizers.md#theorem-1"),
    "sets.norms.VertexPolytope": ("frank-wolfe.md#lemma-4", "constrained-minimizers.md#theorem-1"),
    # solvers and their plans
    "solvers.gradients.noisy_gd._event": _DESCENT,
    "solvers.gradients.noisy_gd.descent_multiplier": _DESCENT,
    "solvers.gradients.noisy_gd.NoisyGradientPlan": (
        *_DESCENT,
        _CURVES,
        "gradient-methods.md#theorem-8",
        "gradient-methods.md#theorem-9",
    ),
    "solvers.gradients.row_centering.leveled_mechanism": ("gradient-methods.md#theorem-8",),
    "solvers.second_order.newton.NoisyNewton": ("gradient-methods.md#theorem-7", _ADAPTIVE),
    "solvers.second_order.newton.NoisyNewtonPlan": (
        *_BALL,
        "gradient-methods.md#theorem-4",
        "gradient-methods.md#theorem-7",
        "gradient-methods.md#theorem-10",
        "gradient-methods.md#theorem-11",
    ),
    "solvers.second_order.coordinates.moment_sensitivity": ("gradient-methods.md#theorem-4",),
    "solvers.second_order.coordinates.MomentMechanism": ("gradient-methods.md#theorem-4",),
    "solvers.second_order.coordinates.SpectrumMechanism": ("gradient-methods.md#theorem-10",),
    "solvers.second_order.margins.MarginMechanism": ("gradient-methods.md#theorem-11",),
    "solvers.second_order.regression.plan_regression": ("second-order-regression.md#theorem-3",),
    "solvers.second_order.regression.NewtonRegressionPlan": (
        *_SECOND,
        "second-order-regression.md#theorem-3",
        "gradient-methods.md#theorem-4",
    ),
    "solvers.second_order.clipped_gradients.ClippedGradientMechanism": _SECOND,
    "solvers.class_sums.mechanism.ClassSumsMechanism": ("discriminant.md#theorem-1",),
    "solvers.class_sums.discriminant.NoisyDiscriminant": ("discriminant.md#theorem-2",),
    "solvers.class_sums.discriminant.NoisyDiscriminantPlan": (
        "discriminant.md#theorem-1",
        "discriminant.md#theorem-2",
        *_BALL,
    ),
    "solvers.gradients.mirror_descent.MirrorDescent": ("mirror-descent.md#section-1", _ADAPTIVE),
    "solvers.gradients.mirror_descent.MirrorDescentPlan": ("mirror-descent.md#section-1", *_BALL, _ADAPTIVE),
    "solvers.gradients.psgd.PermutationSGD": ("gradient-methods.md#theorem-6",),
    "solvers.gradients.psgd.PermutationSGDPlan": ("gradient-methods.md#theorem-6",),
    "solvers.statistics.SufficientStatistics": ("gradient-methods.md#theorem-4", _GRID),
    "solvers.statistics.SufficientStatisticsPlan": ("gradient-methods.md#theorem-4", _GRID),
    "solvers.components.NoisyComponents": _COMPONENTS,
    "solvers.components.ComponentsPlan": _COMPONENTS,
    "solvers.median.MedianDescent": _MEDIAN,
    "solvers.median.MedianPlan": _MEDIAN,
    "solvers.perturbation.objective.ObjectivePerturbation": _OBJECTIVE,
    "solvers.perturbation.objective._calibrated_stddev": _OBJECTIVE,
    "solvers.perturbation.objective._event": _OBJECTIVE,
    "solvers.perturbation.objective.ObjectivePerturbationPlan": (
        *_OBJECTIVE,
        *_OVER_SETS,
        "rounding.md#theorem",
    ),
    "solvers.auto._unconstrained": _OBJECTIVE,
    "solvers.auto._regression": _OBJECTIVE,
    "solvers.auto._within": (*_OBJECTIVE, *_OVER_SETS),
    "solvers.perturbation.pure_objective.plan_pure": ("gamma-noise.md#theorem-4",),
    "solvers.perturbation.pure_objective._event": ("gamma-noise.md#theorem-4",),
    "solvers.perturbation.pure_objective.PerturbedObjectivePlan": (
        "gamma-noise.md#theorem-5",
        "objective-perturbation.md#theorem-4",
    ),
    "solvers.perturbation.pure_objective.PureObjectivePlan": (
        "gamma-noise.md#theorem-4",
        "gamma-noise.md#theorem-5",
        "gamma-noise.md#lemma-6",
    ),
    "solvers.perturbation.output._noise_multiplier": (_GRID,),
    "solvers.perturbation.output.OutputPerturbationPlan": (*_MINIMIZER, "gamma-noise.md#theorem-3"),
    "solvers.vertices.frank_wolfe.FrankWolfe": (*_WALK, _ADAPTIVE),
    "solvers.vertices.frank_wolfe_vertices.VertexPlan": (
        *_WALK,
        "sparse-frank-wolfe.md#lemma-2",
        "sparse-frank-wolfe.md#theorem-1",
    ),
    "solvers.vertices.frank_wolfe_plan.GradientPlan": ("frank-wolfe.md#section-5", _ADAPTIVE, *_BALL),
    "solvers.vertices.frank_wolfe_plan.gradient_sensitivity_over": (
        "frank-wolfe.md#section-5",
        *_BALL,
        "rounding.md#section-4",
    ),
    "solvers.vertices.score_fit.ScoreFit": (_SLOPE,),
    "solvers.vertices.paced_walk._calibrated": _PACED,
    "solvers.vertices.paced_walk.paced_plan": _PACED,
    "solvers.vertices.paced_walk.PacedWalkPlan": _PACED,
    "solvers.vertices.simplex_sampling.SimplexSampling": ("simplex-sampling.md#theorem-1",),
    "solvers.vertices.simplex_sampling._one_draw": ("simplex-sampling.md#theorem-1",),
    "solvers.vertices.simplex_sampling.SimplexPlan": (
        "simplex-sampling.md#theorem-1",
        "simplex-sampling.md#lemma",
        *_RANGE,
    ),
    "solvers.papers.DissertationFrankWolfe": ("frank-wolfe.md#lemma-5", "frank-wolfe.md#lemma-4"),
    "solvers.papers.LaplacePlan": ("frank-wolfe.md#lemma-5", "frank-wolfe.md#lemma-4"),
    "solvers.sampling.exponential.epsilon_of_one": _EXPONENTIAL,
    "solvers.sampling.exponential.ExponentialPlan": (*_EXPONENTIAL, "exponential-sampling.md#lemma-4"),
    "solvers.sampling.localized.LocalizedPlan": ("exponential-sampling.md#theorem-7", *_EXPONENTIAL),
    "solvers.sampling.domains.Domain": ("exponential-sampling.md#theorem-10",),
    "solvers.sampling.grid_walk.GridWalk": ("exponential-sampling.md#theorem-9",),
    "solvers.class_sums.refocused.RefocusedSums": ("text.md#theorem-2",),
    "solvers.class_sums.refocused.RefocusedPlan": ("text.md#theorem-1", "text.md#theorem-2", *_BALL),
    # everything around a fit
    "estimators.groups.plan_for_groups": ("groups.md#theorem-1", "groups.md#theorem-2"),
    "additive.bins.HistogramMechanism": ("additive-models.md#theorem-1",),
    "additive.pairs.PairSelection": ("additive-models.md#theorem-4",),
    "additive.stages.ResidualMechanism": ("additive-models.md#theorem-3", "additive-models.md#lemma-2"),
    "additive.plan.AdditiveFit": ("additive-models.md#theorem-5",),
    "additive.plan.AdditivePlan": tuple(f"additive-models.md#theorem-{number}" for number in range(1, 6)),
    "description.plan.DescriptionPlan": ("describe.md#lemma-1", "describe.md#theorem-2"),
    "description.quantiles.QuantilePlan": ("quantiles.md#theorem-1", *_RANGE),
    "evaluation.plans.CountPlan": _TERMS,
    "evaluation.plans.SumPlan": _TERMS,
    "intervals.newton.matrix_mechanism": ("uncertainty.md#section-1",),
    "intervals.newton.residual_mechanism": ("uncertainty.md#section-1",),
    "intervals.newton.plan_intervals": ("uncertainty.md#section-1", _ADAPTIVE),
    "intervals.newton.IntervalPlan": ("uncertainty.md#section-1", _ADAPTIVE),
    "online.ftrl.SamplingPlan": ("online.md#theorem-1",),
    "online.ftrl.TreePlan": ("online.md#theorem-2",),
    "online.linear.OnlineLinearPlan": ("online.md#theorem-2",),
    "online.linear.PrivateOnlineLinearModel": ("online.md#theorem-2",),
    "recommend.plan.Release": _USERS,
    "recommend.plan.CompletionPlan": (*_USERS, "recommenders.md#theorem-3", "recommenders.md#theorem-4"),
    "search.plans.TriesPlan": _TRIES,
    "search.plans.plan_tries": _TRIES,
    "search.plans.OnePlan": ("selection.md#section-5",),
    "search.plans.SplitPlan": ("selection.md#lemma-2", "selection.md#section-5"),
    "transfer.aggregation.SharedVotes": ("vote-shares.md#theorem-1",),
    "transfer.error_rate.ErrorRatePlan": ("sparse-vector.md#section-10",),
    "transfer.plan._Sizes": (*_VOTES, *_SPARSE_VECTOR, "vote-shares.md#theorem-1"),
    "transfer.plan.TransferPlan": (*_VOTES, *_SPARSE_VECTOR, "vote-shares.md#theorem-1"),
    "transfer.labeler.QueryPlan": (
        "sparse-vector.md#theorem-11",
        *_SPARSE_VECTOR,
        "sparse-vector.md#section-8",
    ),
    "transfer.regressor.MeanPlan": ("sparse-vector.md#section-9", "sparse-vector.md#section-8"),
    "transfer.regressor.PrivateTransferRegressor": ("sparse-vector.md#section-9",),
    "transfer.subsample.SubsamplePlan": ("sparse-vector.md#section-5", "sparse-vector.md#section-6"),
}
_HEADING = re.compile(r"^#{2,4}\s+(?:(?P<section>\d+(?:\.\d+)*)\.?\s)?", re.MULTILINE)
_STATED = re.compile(
    r"^(?:#{2,4}\s+(?:\d+\.\s+)?|\*\*)(?P<kind>Theorem|Lemma|Proposition|Corollary)(?:\s+(?P<number>\d+))?\b",
    re.MULTILINE,
)


def home() -> Path | None:
    """Return the folder of the proofs: beside this file in a wheel, in ``docs`` of a checkout, or None."""
    here = Path(__file__).parent
    return next(
        (path for path in (here / "texts", here.parents[2] / "docs" / "proofs") if path.is_dir()), None
    )


@lru_cache(maxsize=64)
def digest(name: str) -> str:
    """Return the SHA-256 of the file that proves a lemma; empty where the proofs are not installed."""
    folder = home()
    path = None if folder is None else folder / name.partition("#")[0]
    return "" if path is None or not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest()


def anchors(text: str) -> Iterator[str]:
    """Yield all names under which a file of proofs can be cited, in order.

    >>> list(anchors("## 1. Sums" + chr(10) + "**Lemma 2.** A sum. **Lemma 3**" + chr(10) + "**Theorem.** So."))
    ['section-1', 'lemma-2', 'theorem']
    """
    found = [
        (match.start(), f"section-{match['section']}")
        for match in _HEADING.finditer(text)
        if match["section"]
    ]
    for match in _STATED.finditer(text):
        number = "" if match["number"] is None else f"-{match['number']}"
        found.append((match.start(), match["kind"].lower() + number))
    yield from (anchor for _, anchor in sorted(found, key=lambda pair: pair[0]))
