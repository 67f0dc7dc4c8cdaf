"""A private discriminant: one release of the sums of all classes gives the direction, a short descent the rest.

Where rows have more columns than noise lets descent explore, the first gradient tells nearly everything that can be
known, and later ones pay for the same noise again. Here the contrast of the classes is released once and reshaped by
what it says about itself; descent is left with two numbers, the scale of the score and the threshold.
Proofs: docs/proofs/discriminant.md.

Directions that tell classes apart, from noisy sums of their rows.

Everything here is post-processing of released numbers. The contrast of a class is its sum without what its share of all
rows would bring. A ridge discriminant divides it, column by column, by the second moment and a ridge: the sizes of a
column's entries stand for its second moment, as for words in texts. Which ridge is best shows in the contrast itself,
because the noise in it is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import Bounds
from discreet.records.kernels.passes import gamma
from discreet.solvers import base
from discreet.solvers.base import calibrated_unit, gradient_mechanism, multiplier, share_event
from discreet.solvers.class_sums.mechanism import CONSTANT, ClassSumsMechanism, NoisyClassSums
from discreet.solvers.gradients.descent import (
    Descent,
    capped,
    centered,
    default_radius,
    flow_time,
    noisy_sum,
    signal_over_noise,
)
from discreet.solvers.second_order.coordinates import mapped

_SEEN = 3.0  # standard deviations above its noise at which the size of a column is believed
_LEAST_RIDGE = 1300.0  # over the variance of the noise in a mean: below, the choice itself follows the noise
_RIDGES = 1e-12, 10.0  # the moments add up to 1: here none matters, and here all columns count alike
_RIDGES_PER_DECADE = 4
_SHRUNK = 0.9  # of the constants is left, or less, where rows are longer than the bound


@dataclass(frozen=True)
class Directions:
    """What the sums say about scores.

    Attributes
    ----------
    matrix : its columns are directions along which rows of norm 1 score about 1.
    means : mean scores of all rows.
    length : of a typical row, before it was shrunk to 1 at most.
    gaps : how much higher a class scores than the others do, less the doubt about it.
    shares : of all rows, for every class.
    """

    matrix: Array
    means: Array
    length: float
    gaps: Array
    shares: Array


def directions(sums: NoisyClassSums, n_samples: int) -> Directions:
    """One direction for two classes (towards the second), else one for every class."""
    n_classes = len(sums.counts)
    shares = class_shares(sums.counts, sums.count_variance)
    means, seen = column_means(sums.sizes / n_samples, math.sqrt(n_classes * sums.variance) / n_samples)
    moments = means / means.sum()
    total = sums.features.sum(axis=0)
    variance = sums.variance / n_samples**2
    found, gaps = [], []
    for k in [1] if n_classes == 2 else range(n_classes):
        share = shares[k]
        contrast = (sums.features[k] - share * total) / n_samples
        noise = variance * ((1 - share) ** 2 + (n_classes - 1) * share**2)
        direction, covariance = ridge_direction(contrast, moments, noise, _LEAST_RIDGE * variance)
        found.append(direction)
        gaps.append(covariance / (share * (1 - share)))
    matrix = np.stack(found, axis=1)
    mean = np.where(seen, total / n_samples, 0.0)
    if n_classes == 2 and sums.left < _SHRUNK:
        # Of rows longer than the bound, the constant shrinks with their length: what is taken off must too.
        matrix = matrix - np.outer(mean, mean @ matrix) / max(float(mean @ mean), 1e-300)
    return Directions(matrix, mean @ matrix, row_length(sums.left), np.array(gaps), shares)


def row_length(left: float) -> float:
    """How long rows are of which, with their constant, this fraction is left."""
    return math.sqrt((1 + CONSTANT**2) / left**2 - CONSTANT**2)


def class_shares(counts: Array, variance: float) -> Array:
    """Shares of the classes, drawn towards equal ones as far as noise alone would tell them apart (James and Stein)."""
    believed = np.maximum(counts, 0.0) + 1.0
    even = believed.mean()
    differences = believed - even
    noise = (len(counts) - 1) * variance
    kept = max(0.0, 1.0 - noise / max(float(differences @ differences), noise))
    return np.asarray((even + kept * differences) / believed.sum())


def column_means(noisy: Array, stddev: float) -> tuple[Array, NDArray[np.bool_]]:
    """Mean sizes of the columns, and which stand out of the noise.

    What is left of the sum, and at least what noise could hide of it, is spread evenly over the others.
    """
    seen = noisy > _SEEN * stddev
    left = max(float(noisy[~seen].sum()), stddev * math.sqrt(len(noisy)))
    return np.where(seen, noisy, left / max(1, int((~seen).sum()))), seen


def ridge_direction(contrast: Array, moments: Array, variance: float, least: float) -> tuple[Array, float]:
    """contrast / (moments + ridge), scaled so that scores are about 1, for the ridge that seems best; its covariance.

    The covariance of score and class is estimated without bias: the noise in the contrast, of known ``variance``, adds
    its square times the weights. The best ridge has the largest covariance over the score's standard deviation, or is
    the largest where none is positive. What is given back is less by one standard deviation of the estimate.
    """
    smallest, largest = _RIDGES
    least = min(max(least, smallest), largest)
    decades = math.log10(largest / least)
    grid = np.geomspace(largest, least, 1 + math.ceil(_RIDGES_PER_DECADE * decades))
    squares = contrast**2 - variance
    weights = max(
        (1.0 / (moments + ridge) for ridge in grid),
        key=lambda w: max(0.0, float(w @ squares)) / _spread(w * contrast, moments),
    )
    direction = weights * contrast
    doubt = variance * (4 * np.maximum(squares, 0.0) + 2 * variance)
    covariance = float(weights @ squares) - math.sqrt(float(weights**2 @ doubt))
    spread = _spread(direction, moments)
    return np.asarray(direction / spread), max(0.0, covariance / spread)


def _spread(direction: Array, moments: Array) -> float:
    """About the standard deviation of scores along a direction."""
    return max(math.sqrt(float(moments @ direction**2)), 1e-300)


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
        base.require(self.name, problem, "classes", Setting("solver", "objective"))
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
        steps = _checks.count("n_iterations", self.n_iterations)
        share = _SUMS_SHARES[_n_classes(problem) > 2] if self.sums_share is None else self.sums_share
        if not 0 < share < 1:
            raise ParameterError("sums_share", f"must lie between 0 and 1, got {share!r}")
        unit = calibrated_unit(lambda m: _event(problem, m, steps, share), guarantee)
        scores = _scores(problem)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(1 - share)
        field = capped(scores, guarantee, budget, self.cap)
        signal = signal_over_noise(scores, guarantee, field, budget)
        return NoisyDiscriminantPlan(problem, guarantee, field, steps, signal, unit, share)


@dataclass(frozen=True)
class NoisyDiscriminantPlan(base.Plan):
    """A calibrated run of the discriminant."""

    field: Loss
    n_iterations: int
    signal: float
    unit: float
    sums_share: float

    def __post_init__(self) -> None:
        _ = self.sums.gaussian, self.release(1.0), self.descent  # what can fail does so now, before a charge

    sums_only = True

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
            self.record_guarantee.neighboring,
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
            scores, self.field, self.radius, self.record_guarantee.neighboring, noise, row_error
        )

    @property
    def descent(self) -> Descent:
        """The walk to scale and threshold."""
        curvature = self.field.typical_curvature * self.scores.bounds.feature_norm**2
        time = flow_time(self.scores, self.signal)
        return Descent.lasting(time, curvature, self.n_iterations, _AVERAGED, self.radius)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """Everything that a run releases, in order."""
        sums = base.PlannedRelease(self.sums.gaussian, "sums of the classes")
        return sums, base.PlannedRelease(self.release(1.0), "gradients", self.n_iterations)

    @property
    def how(self) -> str:
        """How the noise is added, in words."""
        classes = _n_classes(self.problem)
        return (
            f"Gaussian noise on the sums of {classes} classes and on {self.n_iterations} gradients of scores"
        )

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sums of nonnegative rows by class (Theorem 1 of docs/proofs/discriminant.md), gradient sensitivity on a "
            "ball (Theorems 1 and 2 of docs/proofs/gradient-methods.md), exact composition of Gaussian releases"
        )

    @property
    def numbers(self) -> Mapping[str, float | str]:
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

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
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
