"""A private discriminant: one release of all class sums gives the direction, a short descent the scale and threshold.

If rows have more columns than noise lets descent explore, the first gradient holds nearly all of the signal, and later
ones pay for the same noise again. Here the contrast of the classes is released once and reshaped by a ridge chosen
from the contrast itself. Descent only fits two numbers, the scale of the score and the threshold.
Proofs: docs/proofs/discriminant.md.

Directions are post-processing of the released sums. The contrast of a class is its sum minus its share of the sum of
all rows. A ridge discriminant divides the contrast, column by column, by the second moment plus a ridge; the mean
absolute value of a column serves as its second moment, as for words in texts. The best ridge can be estimated from
the contrast, because its noise is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.accounting.calibration import Part, multiplier, split_unit
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, class_signal
from discreet.records.base import Records
from discreet.records.bounds import Bounds, gamma
from discreet.solvers import base
from discreet.solvers.base import gradient_mechanism
from discreet.solvers.class_sums.mechanism import CONSTANT, ClassSumsMechanism, NoisyClassSums
from discreet.solvers.gradients.descent import (
    Descent,
    capped,
    centered,
    default_radius,
    flow_time,
    noisy_mean_gradient,
)
from discreet.solvers.second_order.coordinates import mapped
from discreet.solvers.second_order.margins import class_shares, rare_lean, rareness

_SEEN = 3.0  # standard deviations of noise that a column's size must exceed to be used
# Times the energy of its noise, up to which the mean row is not trusted; from twice that it is, in full.
_ROW_SEEN = 2.0
_LEAST_RIDGE = 1300.0  # over the noise variance of a mean; below this, the choice of ridge follows the noise
_RIDGES = 1e-12, 10.0  # moments sum to 1: the smallest ridge has no effect, the largest equalizes all columns
_RIDGES_PER_DECADE = 4
# Standard deviation of a class's share of the sum of all rows, about its share of the records.
_UNEQUAL = 0.05
# Of scores away from the mean row, towards a rare class; and the least gap that is expected of such scores.
_LEANING, _EXPECTED = 1.5, 0.4
_SHRUNK = 0.9  # if at most this fraction of the constants is left, rows are longer than the bound


@dataclass(frozen=True)
class Directions:
    """Directions of scores, computed from class sums.

    Attributes
    ----------
    matrix : its columns are directions along which rows of norm 1 score about 1.
    means : mean scores of all rows.
    length : length of a typical row before clipping to 1.
    gaps : how much higher a class scores than the others, minus one standard error.
    shares : share of all rows in every class.
    least_gap : the gap that is expected of two classes of which one is rare.
    """

    matrix: Array
    means: Array
    length: float
    gaps: Array
    shares: Array
    least_gap: float = 0.0


def directions(sums: NoisyClassSums, n_samples: int) -> Directions:
    """Return one direction for two classes (towards the second), otherwise one for every class."""
    n_classes = len(sums.counts)
    noisy, unsure = pooled_shares(sums, n_samples)
    shares = class_shares(noisy, unsure)
    means, seen = column_means(sums.sizes / n_samples, math.sqrt(n_classes * sums.variance) / n_samples)
    moments = means / means.sum()
    row = sums.features.sum(axis=0) / n_samples
    variance = sums.variance / n_samples**2
    told = row_told(row, n_classes * variance)
    found, gaps = [], []
    for k in [1] if n_classes == 2 else range(n_classes):
        share = shares[k]
        contrast = sums.features[k] / n_samples - share * row
        terms = (1 - share) ** 2 + (n_classes - 1) * share**2
        hidden = told * hidden_share(contrast, row, terms * variance + unsure * float(row @ row))
        contrast -= hidden * along(contrast, row)
        direction, covariance = ridge_direction(contrast, moments, terms * variance, _LEAST_RIDGE * variance)
        found.append(direction - hidden * along(direction, row))
        gaps.append(covariance / (share * (1 - share)))
    matrix = np.stack(found, axis=1)
    mean = np.where(seen, row, 0.0)
    rare = rareness(float(shares[1]), math.sqrt(unsure)) if n_classes == 2 else 0.0
    if rare > 0:
        matrix[:, 0] += _LEANING * rare_lean(float(shares[1]), mean)
        gaps[0] = max(gaps[0], _EXPECTED * rare)
    if n_classes == 2 and sums.left < _SHRUNK:
        # The constant of rows longer than the bound shrinks with their length, so the subtracted mean must too.
        matrix = matrix - told * np.outer(mean, mean @ matrix) / max(float(mean @ mean), 1e-300)
    return Directions(
        matrix, mean @ matrix, row_length(sums.left, sums.constant), np.array(gaps), shares, _EXPECTED * rare
    )


def along(vector: Array, row: Array) -> Array:
    """Return the component of a vector along a row."""
    return row * (float(row @ vector) / max(float(row @ row), 1e-300))


def row_told(row: Array, variance: float) -> float:
    """Return how much the mean row is to be trusted, whose columns have noise of this ``variance``: from 0 to 1.

    Where the row is noise, scores along it tell nothing about lengths: they are as good as any others.
    """
    energy = float(row @ row) / (len(row) * variance)
    return min(1.0, max(0.0, energy / _ROW_SEEN - 1))


def hidden_share(contrast: Array, row: Array, variance: float) -> float:
    """Return the share of the contrast along the mean row that noise of this ``variance`` may explain.

    Scores along the mean row mostly tell how long rows are, and an error in the share of a class adds a multiple of
    that row. Up to three standard deviations, all of it counts as noise.
    """
    square = float(row @ contrast) ** 2 / max(float(row @ row), 1e-300)
    return min(1.0, _SEEN**2 * variance / max(square, 1e-300))


def row_length(left: float, constant: float) -> float:
    """Return the length of rows that are clipped, with their constant, to this fraction."""
    return math.sqrt((1 + constant**2) / left**2 - constant**2)


def pooled_shares(sums: NoisyClassSums, n_samples: int) -> tuple[Array, float]:
    """Return noisy shares of the classes from their constants and from their sums of rows, and the variance of one.

    Where classes have rows of about the same length, they share the sum of all rows as they share the records, and long
    rows rise higher above the noise than constants.
    """
    n_classes, columns = sums.features.shape
    features, found = sums.features / n_samples, sums.counts / (sums.left * n_samples)
    variance, unsure = sums.variance / n_samples**2, sums.count_variance / (sums.left * n_samples) ** 2
    row = features.sum(axis=0)
    square = float(row @ row) - n_classes * columns * variance  # without what noise adds
    if square > 0:
        noise = variance / square
        doubt = noise + 2 * columns * noise**2 + _UNEQUAL**2
        found = found + unsure / (unsure + doubt) * ((features @ row - columns * variance) / square - found)
        unsure *= doubt / (unsure + doubt)
    total = max(float(found.sum()), math.sqrt(n_classes * unsure))
    return found / total, unsure / total**2


def column_means(noisy: Array, stddev: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return the mean sizes of the columns, and which rise above the noise.

    The rest of the sum, but at least what noise could hide, is spread evenly over the other columns.
    """
    seen = noisy > _SEEN * stddev
    left = max(float(noisy[~seen].sum()), stddev * math.sqrt(len(noisy)))
    return np.where(seen, noisy, left / max(1, int((~seen).sum()))), seen


def ridge_direction(contrast: Array, moments: Array, variance: float, least: float) -> tuple[Array, float]:
    """Return contrast / (moments + ridge) for the best ridge, scaled to scores of about 1, and its covariance.

    The covariance of score and class is estimated without bias: the noise in the contrast, of known ``variance``, adds
    its square times the weights, which is subtracted. The best ridge maximizes the covariance over the score's standard
    deviation; if no covariance is positive it is the largest ridge. The returned covariance is one standard error
    lower.
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
    """Return the approximate standard deviation of scores along a direction."""
    return max(math.sqrt(float(moments @ direction**2)), 1e-300)


_MOST_COLUMNS = 2**30  # a row is split by sign
_SUMS_SHARES = 0.9, 0.7  # of the squared Gaussian-DP parameter: for two classes, for more
_STEPS = 50
_AVERAGED = 0.3
_LONGEST = 1.0, 2.0  # bound on scores, times the root of their number
_SIGNAL = 20.0  # up to which the first one holds, for several classes always
_CONSTANTS = CONSTANT, 2 * CONSTANT, 4 * CONSTANT
_BLURRED = 0.1  # largest noise in a class share, unless the constant is the largest
_STEEPEST = 1.0  # largest initial slope
_SMALL = 0.5  # from such slopes on, nothing is known of what the cap adds to the gradient
_LEAST_SLOPE = 0.05  # the direction points from the first class to the second


@dataclass(frozen=True)
class NoisyDiscriminant:
    """A ridge discriminant from noisy class sums, with its scale and threshold from noisy descent.

    Parameters
    ----------
    n_iterations : number of noisy gradients for scale and threshold.
    sums_share : part of the budget (squared Gaussian-DP parameter) for the sums; None: 0.9 for two classes, 0.7 for
        more, which have more thresholds to fit.
    cap : as for `NoisyGradientDescent`.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, logistic, softmax and Huber-SVM losses. The sums and all iterates
    may be published. Fitting makes a copy of the rows: sparse if they are sparse, otherwise dense and twice as wide.

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
        """Split the budget and calibrate all releases together."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        base.require(self.name, problem, "classes", "objective")
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
        scores = _scores(problem, math.inf)  # bounds do not matter yet
        columns = problem.n_features - int(problem.bounds.intercept)
        sums = Part(share, _n_classes(problem) * (2 * columns + 1))
        unit = split_unit([sums, Part(1 - share, scores.n_coefficients, steps)], guarantee)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(1 - share)
        field = capped(scores, guarantee, budget, self.cap)
        signal = class_signal(scores, guarantee, field, budget)
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
        _ = self.sums.gaussian, self.release(1.0), self.descent  # raise now if anything can fail

    sums_only = True

    @property
    def scores(self) -> Problem:
        """The remaining problem with known directions, which has few columns."""
        return _scores(self.problem, self.signal)

    @cached_property
    def sums(self) -> ClassSumsMechanism:
        """The release of the class sums."""
        problem = self.problem
        return ClassSumsMechanism(
            problem.n_samples,
            problem.n_features - int(problem.bounds.intercept),
            _n_classes(problem),
            problem.bounds.feature_norm,
            self.record_guarantee.neighboring,
            multiplier(self.unit, self.sums_share),
            constant=self.constant,
        )

    @property
    def constant(self) -> float:
        """The constant next to a row of norm 1: the least one with which class shares rise above the noise."""
        relation = self.record_guarantee.neighboring
        noise = multiplier(self.unit, self.sums_share) * math.sqrt(relation.contributions)
        seen = (c for c in _CONSTANTS if noise * math.hypot(1.0, c) <= _BLURRED * c * self.problem.n_samples)
        return next(seen, _CONSTANTS[-1])

    @property
    def radius(self) -> float:
        """Radius of the ball that contains scales and thresholds."""
        return default_radius(self.scores, self.signal)

    def release(self, size: float) -> GaussianMechanism:
        """The noisy gradient sum along directions, given as columns of a matrix of Frobenius norm ``size``."""
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
        """The descent for scale and threshold."""
        curvature = self.field.typical_curvature * self.scores.bounds.feature_norm**2
        time = flow_time(self.scores, self.signal)
        return Descent.lasting(time, curvature, self.n_iterations, _AVERAGED, self.radius)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        sums = base.PlannedRelease(self.sums.gaussian, "sums of the classes")
        return sums, base.PlannedRelease(self.release(1.0), "gradients", self.n_iterations)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        classes = _n_classes(self.problem)
        return (
            f"Gaussian noise on the sums of {classes} classes and on {self.n_iterations} gradients of scores"
        )

    proof = (
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
        """Release the sums, compute directions, then descend along these."""
        problem = self.problem
        (rows,) = records
        codes = rows.labels if _n_classes(problem) > 2 else (rows.labels > 0).astype(np.int64)
        found = directions(self.sums.release(rows, codes, entropy), problem.n_samples)
        matrix = self.matrix(found)
        along = mapped(rows, matrix, self.scores.bounds.feature_norm)
        release = self.release(float(np.linalg.norm(matrix)))
        noisy_gradient = noisy_mean_gradient([along], self.field, release, entropy, problem.n_samples)
        start = self.start(found)
        likely = problem.loss.n_outputs == 1 and len(start) == 2 and "likelihood" in problem.loss.proved_for
        gradient = partial(self.even, noisy_gradient) if likely else noisy_gradient
        reached = self.descent.run(start[None], gradient, progress)[0]
        if likely:
            stddev = (
                release.noise.effective_stddev / problem.n_samples * math.sqrt(self.descent.accumulated())
            )
            reached = trusted(reached, start, stddev)
        if problem.loss.n_outputs == 1:
            reached[0] = max(reached[0], self.least_slope(reached), found.least_gap)
        theta = (matrix @ reached)[None]
        joint = problem.loss.n_outputs > 1
        return base.Release(centered(theta) if joint else theta, entropy.secure)

    @staticmethod
    def least_slope(reached: Array) -> float:
        """The least slope: clipping shrinks the constants of long rows, whose length must not rank them."""
        return _LEAST_SLOPE * (1 + float(np.abs(reached[1:]).sum()))

    def even(self, noisy_gradient: Callable[[Array], Array], point: Array) -> Array:
        """Return the noisy gradient at a point, without what the cap adds to that of the constant if chances are right.

        A rare class loses more to the cap than the other one. It is known how much if the slope is 0.
        """
        slope, constant = point[0]
        cap, chance = self.field.lipschitz, float(expit(constant))
        pull = (1 - chance) * min(chance, cap) - chance * min(1 - chance, cap)
        gradient = noisy_gradient(point)
        gradient[0, -1] -= pull * max(0.0, 1 - abs(slope) / _SMALL)
        return gradient

    def matrix(self, found: Directions) -> Array:
        """Return the matrix whose columns are directions of centered scores, and the constant."""
        norm = self.problem.bounds.feature_norm
        if not self.problem.bounds.intercept:
            return found.matrix / norm
        length = norm * found.length
        scale = math.hypot(length, 1.0) / norm  # undoes the clipping of a typical row and its constant
        constant = np.zeros((len(found.matrix) + 1, 1))
        constant[-1] = scale
        return np.hstack([np.vstack([scale / length * found.matrix, -scale * found.means]), constant])

    def start(self, found: Directions) -> Array:
        """Return the initial coefficients: slopes as large as the certain gaps, and constants from the class shares."""
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


def trusted(reached: Array, start: Array, stddev: float) -> Array:
    """Return slope and constant without what noise of this ``stddev`` may explain.

    A slope counts by how far it is above one standard deviation, in full from two. Where it does not count the constant
    goes half of its way from the class shares.

    >>> start = np.array([0.0, -2.0])
    >>> trusted(np.array([0.1, -2.2]), start, 0.1), trusted(np.array([0.3, -2.2]), start, 0.1)
    (array([ 0. , -2.1]), array([ 0.3, -2.2]))
    """
    share = min(1.0, max(0.0, float(reached[0]) / max(stddev, 1e-300) - 1))
    constant = start[1] + (0.5 + 0.5 * share) * (reached[1] - start[1])
    return np.array([share * reached[0], constant])


def _n_classes(problem: Problem) -> int:
    return max(2, problem.loss.n_outputs)


def _scores(problem: Problem, signal: float) -> Problem:
    """Return the problem for scores along the directions of all classes, and the constant.

    While noise dominates, scores are clipped to their typical size: the threshold then needs less noise.
    """
    n_scores = 1 if _n_classes(problem) == 2 else problem.loss.n_outputs
    constant = int(problem.bounds.intercept)
    shortest, longest = _LONGEST
    longest = shortest if n_scores > 1 else min(longest, max(shortest, math.sqrt(signal / _SIGNAL)))
    bounds = Bounds(math.sqrt(longest**2 * n_scores + constant), intercept=False)
    return replace(problem, bounds=bounds, n_features=n_scores + constant)


base.register(NoisyDiscriminant.name, NoisyDiscriminant)
