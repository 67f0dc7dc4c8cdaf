"""A private discriminant: one release of the sums of all classes gives the direction, a short descent the rest.

Where rows have more columns than noise lets descent explore, the first gradient tells nearly everything that can be
known, and later ones pay for the same noise again. Here the contrast of the classes is released once and reshaped by
what it says about itself; descent is left with two numbers, the scale of the score and the threshold.
Proofs: docs/proofs/discriminant.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.bounds import Bounds
from discreet.losses import HuberHinge, Logistic, Loss, Softmax
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.kernels import gamma
from discreet.solvers import base
from discreet.solvers.batches import mapped
from discreet.solvers.class_sums import ClassSumsMechanism
from discreet.solvers.descent_loop import Descent, centered
from discreet.solvers.descent_rules import (
    capped,
    default_radius,
    flow_time,
    signal_over_noise,
    typical_curvature,
)
from discreet.solvers.discriminant_rule import Directions, directions
from discreet.solvers.gradient_sums import noisy_sum
from discreet.solvers.sensitivity import gradient_mechanism
from discreet.solvers.shares import calibrated_unit, multiplier, share_event

Array = NDArray[np.float64]

_MOST_COLUMNS = 2**30  # a row is split by sign
_SUMS_SHARES = 0.9, 0.7  # of the squared Gaussian-DP parameter: for two classes, for more
_STEPS = 50
_AVERAGED = 0.3
_LONGEST = 2.0, 1.0  # a score, times the root of how many there are, for one and for more; scores are about 1
_STEEPEST = 1.0  # slope to start with
_LEAST_SLOPE = 0.05  # the direction was made to point from the first class to the second


@dataclass(frozen=True)
class NoisyDiscriminant:
    """A ridge discriminant from noisy sums of the classes, with its scale and threshold from noisy descent.

    Parameters
    ----------
    n_iterations : number of noisy gradients for scale and threshold.
    sums_share : part of the budget (squared Gaussian-DP parameter) for the sums; None: 0.9 for two classes, 0.7 for
        more, which have more thresholds to descend to.
    cap : as for `NoisyGradientDescent`.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, logistic, softmax and Huber-SVM losses. The sums and all iterates
    may be published. Fitting makes a copy of the rows, sparse if they are, else twice as wide.

    References
    ----------
    Fisher (1936) for the discriminant; Stein (1981) for choosing a ridge by an estimate without bias.
    """

    name: ClassVar[str] = "discriminant"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    n_iterations: int = _STEPS
    sums_share: float | None = None
    cap: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyDiscriminantPlan:
        """Split the budget, calibrate all releases together."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        loss = problem.loss
        if not isinstance(loss, Logistic | Softmax | HuberHinge):
            raise ValueError(
                f"solver 'discriminant' tells classes apart by logistic, softmax or Huber-SVM loss; for {loss} use "
                "'objective'"
            )
        if problem.n_models > 1:
            raise ValueError(
                "solver 'discriminant' fits all classes together: use multi_class='softmax', or 'noisy-gd'"
            )
        if problem.l2 is not None:
            raise ValueError(
                "solver 'discriminant' chooses its own ridge from what it releases; leave l2 at None"
            )
        if problem.n_features > _MOST_COLUMNS:
            raise ValueError(f"solver 'discriminant' takes at most 2**30 columns, got {problem.n_features}")
        steps = _inputs.count("n_iterations", self.n_iterations)
        share = _SUMS_SHARES[_n_classes(problem) > 2] if self.sums_share is None else self.sums_share
        if not 0 < share < 1:
            raise ValueError(f"sums_share must lie between 0 and 1, got {share!r}")
        unit = calibrated_unit(lambda m: _event(problem, m, steps, share), guarantee)
        scores = _scores(problem)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(1 - share)
        field = capped(scores, guarantee, budget, self.cap)
        signal = signal_over_noise(scores, guarantee, field, budget)
        return NoisyDiscriminantPlan(problem, guarantee, field, steps, signal, unit, share)


@dataclass(frozen=True)
class NoisyDiscriminantPlan:
    """A calibrated run of the discriminant."""

    problem: Problem
    guarantee: Guarantee
    field: Loss
    n_iterations: int
    signal: float
    unit: float
    sums_share: float

    def __post_init__(self) -> None:
        _ = self.sums.gaussian, self.release(1.0), self.descent  # what can fail does so now, before a charge

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return True

    @property
    def scores(self) -> Problem:
        """The problem that is left once directions are known: few columns."""
        return _scores(self.problem)

    @cached_property
    def sums(self) -> ClassSumsMechanism:
        """The release of the sums of the classes."""
        problem = self.problem
        return ClassSumsMechanism(
            problem.n_samples,
            problem.n_features - int(problem.bounds.intercept),
            _n_classes(problem),
            problem.bounds.feature_norm,
            self.guarantee.neighboring,
            multiplier(self.unit, self.sums_share),
        )

    @property
    def radius(self) -> float:
        """Of the ball in which scales and thresholds stay."""
        return default_radius(self.scores, self.signal)

    def release(self, size: float) -> GaussianMechanism:
        """The noisy sum of gradients along directions that are the columns of a matrix of Frobenius norm ``size``."""
        problem, scores = self.problem, self.scores
        noise = multiplier(self.unit, (1 - self.sums_share) / self.n_iterations)
        width = problem.n_features + scores.n_features
        longest = size * problem.bounds.feature_norm + scores.bounds.feature_norm
        row_error = 1.01 * gamma(width + 32) * longest
        return gradient_mechanism(
            scores, self.field, self.radius, self.guarantee.neighboring, noise, row_error
        )

    @property
    def descent(self) -> Descent:
        """The walk to scale and threshold."""
        curvature = typical_curvature(self.field) * self.scores.bounds.feature_norm**2
        time = flow_time(self.scores, self.signal)
        return Descent.lasting(time, curvature, self.n_iterations, _AVERAGED, self.radius)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        return _event(self.problem, self.unit, self.n_iterations, self.sums_share)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        classes = _n_classes(self.problem)
        return (
            f"Gaussian noise on the sums of {classes} classes and on {self.n_iterations} gradients of scores"
        )

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sums of nonnegative rows by class (Theorem 1 of docs/proofs/discriminant.md), gradient sensitivity on a "
            "ball (Theorems 1 and 2 of docs/proofs/gradient-methods.md), exact composition of Gaussian releases"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        release = self.release(1.0)
        return {
            "noise stddev in the sums of classes": self.sums.gaussian.stddev,
            "sensitivity of the sums": self.sums.gaussian.sensitivity.value,
            "gradient noise stddev (sum scale)": release.stddev,
            "gradient sensitivity": release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "derivative bound": self.field.lipschitz,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Release the sums, make directions of them, then descend along these."""
        problem = self.problem
        (rows,) = records
        codes = rows.labels if _n_classes(problem) > 2 else (rows.labels > 0).astype(np.int64)
        found = directions(self.sums.release(rows, codes, entropy), problem.n_samples)
        matrix = self.matrix(found)
        along = mapped(rows, matrix, self.scores.bounds.feature_norm)
        release = self.release(float(np.linalg.norm(matrix)))

        def noisy_gradient(point: Array) -> Array:
            return noisy_sum([along], self.field, point, release, entropy) / problem.n_samples

        reached = self.descent.run(self.start(found)[None], noisy_gradient, progress)[0]
        if problem.loss.n_outputs == 1:
            reached[0] = max(reached[0], _LEAST_SLOPE)
        theta = (matrix @ reached)[None]
        return base.Release(centered(theta, problem.loss.n_outputs), entropy.secure)

    def matrix(self, found: Directions) -> Array:
        """The matrix whose columns are directions of scores, less their means, and the constant."""
        norm = self.problem.bounds.feature_norm
        if not self.problem.bounds.intercept:
            return found.matrix / norm
        length = norm * found.length
        scale = math.hypot(length, 1.0) / norm  # what clipping takes off a typical row and its constant
        constant = np.zeros((len(found.matrix) + 1, 1))
        constant[-1] = scale
        return np.hstack([np.vstack([scale / length * found.matrix, -scale * found.means]), constant])

    def start(self, found: Directions) -> Array:
        """Slopes as large as the gaps that are certain, and the constants of the classes' shares."""
        start = np.zeros(self.scores.shape)
        slopes = np.minimum(found.gaps, _STEEPEST)
        if start.ndim == 1:
            start[0] = slopes[0]
        elif len(slopes) == 1:  # a softmax of two classes
            start[0] = slopes[0] * np.array([-0.5, 0.5])
        else:
            start[: len(slopes)] = np.diag(slopes)
        if self.problem.bounds.intercept:
            shares = np.log(found.shares)
            start[-1] = shares - shares.mean() if start.ndim == 2 else shares[1] - shares[0]
        return start

    def __str__(self) -> str:
        return base.printed(self)


def _n_classes(problem: Problem) -> int:
    return max(2, problem.loss.n_outputs)


def _scores(problem: Problem) -> Problem:
    """The problem for scores along the directions of all classes, and the constant."""
    n_scores = 1 if _n_classes(problem) == 2 else problem.loss.n_outputs
    constant = int(problem.bounds.intercept)
    longest = _LONGEST[n_scores > 1]
    bounds = Bounds(math.sqrt(longest**2 * n_scores + constant), intercept=False)
    return replace(problem, bounds=bounds, n_features=n_scores + constant)


def _event(problem: Problem, unit: float, steps: int, sums_share: float) -> events.Event:
    """All releases, in units of one that costs as much."""
    columns = problem.n_features - int(problem.bounds.intercept)
    sums = share_event(unit, sums_share, _n_classes(problem) * (2 * columns + 1))
    gradient = share_event(unit, (1 - sums_share) / steps, _scores(problem).n_coefficients)
    return events.Composed((sums, events.Repeated(gradient, steps)))


base.register(NoisyDiscriminant.name, NoisyDiscriminant)
