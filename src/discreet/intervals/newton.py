"""Noisy Newton steps from a released model, and the error of the point where they land.

The last curvature is taken halfway along the last step, where it equals the mean curvature along it up to third order.
Gradients, curvatures and squared residuals are sums over clipped records at public coefficients; their sensitivities
include rounding. Proofs: docs/proofs/uncertainty.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import chi2

from discreet._typing import Array
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism, half_vector, symmetric_matrix
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Composed, Event, Repeated
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import UNIT_ROUNDOFF, gamma, worst_additions
from discreet.solvers.base import gradient_mechanism


@dataclass(frozen=True)
class Weight:
    """The weight w(y, t) of a matrix sum_i w_i v_i v_i^T: curvature or squared slope of a loss.

    largest : sup of w, which is never negative.
    slope : Lipschitz constant of w in the raw prediction t.
    """

    loss: Loss
    squared_slope: bool

    @property
    def largest(self) -> float:
        """sup of w."""
        return (self.loss.lipschitz**2 if self.squared_slope else self.loss.smoothness) * SLACK

    @property
    def slope(self) -> float:
        """Lipschitz constant of w."""
        if self.squared_slope:
            return 2 * self.loss.lipschitz * self.loss.smoothness
        return 0.0 if "quadratic" in self.loss.proved_for else self.loss.curvature_slope

    def __call__(self, y: Array, raw_prediction: Array) -> Array:
        """Return w(y, t); the curvature of the squared loss is always 1."""
        if self.squared_slope:
            return np.square(self.loss.derivative(y, raw_prediction))
        if "quadratic" in self.loss.proved_for:
            return np.ones_like(raw_prediction)
        return self.loss.second_derivative(y, raw_prediction)


def matrix_mechanism(
    weight: Weight, problem: Problem, radius: float, neighboring: Neighboring, noise_multiplier: float
) -> GaussianMechanism:
    """Return the mechanism for sum w v v^T in the ball: upper triangle, off-diagonal entries times sqrt(2).

    Two records' terms have a nonnegative Frobenius product, so replacing one moves the sum by at most sqrt(2) W R^2
    instead of 2 W R^2.
    """
    n, p, norm = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    exact = acute_sum_sensitivity(weight.largest * norm**2, neighboring).value
    evaluation = weight.slope * gamma(p + 3) * norm * radius
    evaluation += weight.largest * (2 * weight.loss.evaluation_error + 16) * UNIT_ROUNDOFF
    summation = weight.largest * gamma(worst_additions(n) + 16)
    rounding = 1.01 * n * norm**2 * (evaluation + summation)
    return GaussianMechanism(Sensitivity((exact + 2 * rounding) * SLACK), noise_multiplier, p * (p + 1) // 2)


def release_matrix(
    mechanism: GaussianMechanism, records: ArrayRecords, weight: Weight, theta: Array, entropy: Entropy
) -> Array:
    """Release the noisy symmetric matrix; its noise has variance s^2 on the diagonal and s^2 / 2 elsewhere."""
    records.check_labels(weight.loss)
    matrix = records.gram(weight(records.labels, records.raw_predictions(theta)))
    return symmetric_matrix(mechanism.release(half_vector(matrix), entropy), records.n_features)


def residual_mechanism(
    problem: Problem, radius: float, noise_multiplier: float, counted: bool
) -> GaussianMechanism:
    """Return the mechanism for the sum of squared residuals, clipped to [0, L^2], and the record count times L^2.

    One record moves the sum by at most L^2. The number is ``counted`` if it is private; a record moves it by L^2.
    """
    n, p, norm = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    slope, entries = problem.loss.lipschitz, 2 if counted else 1
    each = 2 * slope * gamma(p + 3) * norm * radius + slope**2 * gamma(n + 16)
    sensitivity = Sensitivity((math.sqrt(entries) * slope**2 + 2.02 * n * each) * SLACK)
    return GaussianMechanism(sensitivity, noise_multiplier, entries)


def release_residuals(
    mechanism: GaussianMechanism, records: ArrayRecords, loss: Loss, theta: Array, entropy: Entropy
) -> tuple[float, float]:
    """Release the noisy sum of squared slopes of the loss, and the number of records, noisy if it is private."""
    # A null record has scale 0 and must add nothing.
    present = records.scales > 0
    slopes = np.where(present, loss.derivative(records.labels, records.raw_predictions(theta)), 0.0)
    squares, count = float(np.sum(np.square(slopes))), float(np.count_nonzero(present))
    if mechanism.size == 1:
        return float(mechanism.release([squares], entropy)[0]), float(len(slopes))
    unit = loss.lipschitz**2
    noisy = mechanism.release([squares, unit * count], entropy)
    return float(noisy[0]), float(noisy[1]) / unit


# Shares of the squared Gaussian-DP parameter: the last step's gradient determines the width of the intervals.
_SHARES = {"gradient": 0.5, "curvature": 0.3, "spread": 0.1}
_APPROACH = {"gradient": 0.2, "curvature": 0.1}  # for each step before the last, in the same unit
_LEAST_CURVATURE = 1.5  # smallest eigenvalue of the curvature in units of the largest of its noise
_FIXED_POINT = 40  # iterations; each reduces the error to at most a third
# Largest raw prediction of a start: the largest accepted, and the value that others are shrunk to.
_LONG_START, _SHORT_START = 12.0, 2.0
_LONGEST_WAY = 4.0  # largest change of a raw prediction on the way to the minimizer whose error is stated

FAINT = (
    "the released curvature is not distinguishable from its noise: there are too few records (or, with unbalanced "
    "labels, too few of the rare class) for this many columns at this epsilon, and the intervals are infinite"
)
NEAR = (
    "the released curvature is near its noise: standard errors are unknown, and the intervals come from a test of all "
    "coefficients together, which makes them longer; more records, fewer columns or a larger epsilon make them shorter"
)
FAR = (
    "the starting model was too far off: the last step is still so long that its error is not known, and the intervals "
    "are infinite; start from a better model (larger epsilon, less regularization), or pass more steps"
)


@dataclass(frozen=True)
class Landing:
    """The point where the last step lands, and its error.

    Attributes
    ----------
    theta : the point.
    covariance : covariance from noise and sampling.
    noise : the part of it due to noise.
    remainder : bound, for each coefficient, on the error of the expansion.
    doubt : why the error is unknown; empty otherwise.
    joint : a test that may still bound the coefficients of a squared loss, where the curvature is near its noise.
    """

    theta: Array
    covariance: Array
    noise: Array
    remainder: Array
    doubt: str = ""
    joint: JointTest | None = None


@dataclass(frozen=True)
class JointTest:
    """A test of all coefficients of a squared loss together, which needs no inverse of the curvature.

    At the population's coefficients theta, with d = start - theta, the vector gradient - curvature d has mean 0 and a
    covariance of at most (variance + curvature_noise^2 |d|^2) I (docs/proofs/uncertainty.md, section 4).

    Attributes
    ----------
    start : where the step began.
    gradient, curvature : as released there.
    curvature_noise : standard deviation of an entry of the curvature's noise.
    variance : largest variance of the gradient along a direction, from noise and sampling.
    """

    start: Array
    gradient: Array
    curvature: Array
    curvature_noise: float
    variance: float

    def ends(self, level: float) -> tuple[Array, Array] | None:
        """Return the ends of all coefficients that pass the test; None if they are not bounded."""
        values, vectors = np.linalg.eigh(self.curvature)
        most = float(chi2.ppf(level, len(values)))
        left = np.square(values) - most * self.curvature_noise**2
        if left.min() <= 0:
            return None
        along = vectors.T @ self.gradient
        size = most * (self.variance + self.curvature_noise**2 * float((np.square(along) / left).sum()))
        center = self.start - vectors @ (values * along / left)
        half = np.sqrt(size * (np.square(vectors) / left).sum(axis=1))
        return center - half, center + half


def _unknown(theta: Array, doubt: str, joint: JointTest | None = None) -> Landing:
    infinite = np.full((len(theta), len(theta)), np.inf)
    return Landing(theta, infinite, infinite, np.zeros_like(theta), doubt, joint)


@dataclass(frozen=True)
class IntervalPlan:
    """Calibrated Newton steps from public coefficients.

    Attributes
    ----------
    problem, guarantee : as for a solver.
    radius : radius of the ball that contains all points.
    steps : number of Newton steps; one is exact for the squared loss, from a point where no slope is at its bound.
    robust : whether the spread of gradients is released as a matrix, or follows from the model.
    unit : noise multiplier of a single release with the whole budget.
    max_rows : maximum number of rows per person; 1 if records are protected.
    """

    problem: Problem
    guarantee: Guarantee
    radius: float
    steps: int
    robust: bool
    unit: float
    max_rows: int = 1

    theorem = "sensitivities of docs/proofs/uncertainty.md, section 1; exact composition of Gaussian releases"

    def _multiplier(self, part: str, last: bool = True) -> float:
        """Return the noise multiplier of one release, from its share of the budget."""
        whole = sum(_SHARES.values()) + (self.steps - 1) * sum(_APPROACH.values())
        if not self._releases_spread:
            whole -= _SHARES["spread"]
        return self.unit * math.sqrt(whole / (_SHARES if last else _APPROACH)[part])

    @property
    def _quadratic(self) -> bool:
        """Whether one Newton step is exact."""
        return "quadratic" in self.problem.loss.proved_for

    @property
    def _releases_spread(self) -> bool:
        """Whether the spread is released. A logistic model's spread is its curvature and needs no release."""
        return self.robust or self._quadratic

    def gradient(self, last: bool) -> GaussianMechanism:
        """The noisy gradient of one step."""
        loss, relation = self.problem.loss, self.guarantee.neighboring
        return self._for_all_rows(
            gradient_mechanism(self.problem, loss, self.radius, relation, self._multiplier("gradient", last))
        )

    def curvature(self, last: bool) -> GaussianMechanism:
        """The noisy Hessian of one step."""
        weight, multiplier = Weight(self.problem.loss, False), self._multiplier("curvature", last)
        return self._for_all_rows(
            matrix_mechanism(weight, self.problem, self.radius, self.guarantee.neighboring, multiplier)
        )

    def _for_all_rows(self, mechanism: GaussianMechanism) -> GaussianMechanism:
        """Scale the sensitivity from one row to all rows of a person."""
        value = mechanism.sensitivity.value * self.max_rows
        return replace(mechanism, sensitivity=replace(mechanism.sensitivity, value=value))

    @cached_property
    def spread(self) -> GaussianMechanism | None:
        """The noisy sum of g g^T over the records' gradients, or of squared residuals."""
        if not self._releases_spread:
            return None
        multiplier, relation = self._multiplier("spread"), self.guarantee.neighboring
        if not self.robust:
            counted = not relation.size_is_public or self.guarantee.unit == "user"
            return self._for_all_rows(residual_mechanism(self.problem, self.radius, multiplier, counted))
        weight = Weight(self.problem.loss, True)
        return self._for_all_rows(matrix_mechanism(weight, self.problem, self.radius, relation, multiplier))

    @property
    def event(self) -> Event:
        parts: list[Event] = [self.gradient(True).event, self.curvature(True).event]
        if self.steps > 1:
            approach = Composed((self.gradient(False).event, self.curvature(False).event))
            parts.append(Repeated(approach, self.steps - 1))
        return Composed(tuple(parts if self.spread is None else [*parts, self.spread.event]))

    @property
    def mechanism(self) -> str:
        made = f"Gaussian noise on curvature and gradients of {self.steps} Newton steps from a released model"
        user = self.guarantee.unit == "user"
        return f"{made}; at most {self.max_rows} rows of every group" if user else made

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "gradient noise stddev (sum scale)": self.gradient(True).stddev,
            "curvature noise stddev (sum scale)": self.curvature(True).stddev,
            "steps": float(self.steps),
            "radius": self.radius,
        }

    @property
    def _reach(self) -> float:
        """Norm of the points where gradients are computed: no slope of the squared loss is at its bound there."""
        return min(self.radius, self.problem.loss.prediction_bound / self.problem.bounds.feature_norm)

    def run(self, data: tuple[ArrayRecords, Array], entropy: Entropy) -> Landing:
        """Take noisy steps from the public starting point; decisions depend only on released numbers."""
        records, start = data
        theta, move = _inside(self._believable(start), self._reach), np.zeros_like(start)
        curvature: Array | None = None
        for _ in range(self.steps - 1):
            gradient = self._gradient_at(records, theta, False, entropy)
            curvature = self._curvature_at(records, theta, False, entropy)
            theta = _inside(theta + self._cautious_move(curvature, gradient), self._reach)
        gradient = self._gradient_at(records, theta, True, entropy)
        if curvature is not None:
            move = self._cautious_move(curvature, gradient)
        halfway = _inside(theta + move / 2, self.radius)
        curvature = self._curvature_at(records, halfway, True, entropy)
        return self._landing(records, theta, halfway, gradient, curvature, entropy)

    def _believable(self, start: Array) -> Array:
        """Return the starting point; a long one of a logistic loss is shrunk, because such a model is mostly noise."""
        longest = self._largest_change(start)
        return start if self._quadratic or longest <= _LONG_START else start * (_SHORT_START / longest)

    def _largest_change(self, step: Array) -> float:
        """Return the largest |v . step| over all records v there can be; the last entry of v is at most 1."""
        largest, bounds = self.problem.bounds.feature_norm, self.problem.bounds
        whole = float(np.linalg.norm(step))
        if not bounds.intercept or largest * abs(float(step[-1])) <= whole:
            return largest * whole
        return abs(float(step[-1])) + math.sqrt(max(0.0, largest**2 - 1)) * float(np.linalg.norm(step[:-1]))

    def _landing(
        self,
        records: ArrayRecords,
        theta: Array,
        halfway: Array,
        gradient: Array,
        curvature: Array,
        entropy: Entropy,
    ) -> Landing:
        """Take the last step from theta, with the curvature halfway."""
        stddev, curvature_noise = self.gradient(True).stddev, self.curvature(True).stddev
        inverse = _inverse(curvature, curvature_noise)
        if inverse is None:
            return self._faint(records, theta, gradient, curvature, entropy)
        move = -inverse @ gradient
        landed = theta + move
        relative = self._relative_remainder(move, halfway - theta - move / 2)
        if relative is None or float(np.linalg.norm(landed)) > self.radius:
            return _unknown(landed, FAR)
        # First without sampling: released residuals are corrected by it.
        noise = _with_curvature_noise(stddev**2 * np.eye(len(move)), move, inverse, curvature_noise)
        # Rows of a person may be similar: their sum varies at most ``max_rows`` times as much as independent rows.
        middle = self.max_rows * self._spread_at(records, landed, curvature, noise, entropy)
        whole = _with_curvature_noise(stddev**2 * np.eye(len(move)) + middle, move, inverse, curvature_noise)
        remainder = relative * math.sqrt(move @ curvature @ move) * np.sqrt(np.diag(inverse))
        return Landing(landed, whole, whole - inverse @ middle @ inverse, remainder)

    def _faint(
        self, records: ArrayRecords, theta: Array, gradient: Array, curvature: Array, entropy: Entropy
    ) -> Landing:
        """Return what is known where the curvature is near its noise: for the squared loss, a test."""
        if not self._quadratic:
            return _unknown(theta, FAINT)
        landed = _inside(theta - np.linalg.pinv(curvature) @ gradient, self.radius)
        # Residuals are not smaller there than at the population's coefficients, so that the spread errs upwards.
        spread = self._spread_at(records, landed, curvature, np.zeros_like(curvature), entropy)
        sampling = self.max_rows * float(np.linalg.norm(spread, 2))
        curvature_noise, variance = self.curvature(True).stddev, self.gradient(True).stddev ** 2 + sampling
        return _unknown(landed, FAINT, JointTest(theta, gradient, curvature, curvature_noise, variance))

    def _relative_remainder(self, move: Array, offset: Array) -> float | None:
        """Bound the error of the expansion, relative to the step in the norm of the curvature; None if unknown.

        ``offset`` leads from the middle of the step to where the curvature was taken. The minimizer may be farther
        away than the step is long, and then the curvature was taken before the middle of the way.
        """
        if self._quadratic:
            return 0.0
        length, off = self._largest_change(move), self._largest_change(offset)
        if max(length, off) > _LONGEST_WAY:  # also keeps exponentials finite
            return None
        times = _farthest(length, off)
        if times * length > _LONGEST_WAY:
            return None
        return times * _relative_error(times * length, off + (times - 1) * length / 2)

    def _cautious_move(self, curvature: Array, gradient: Array) -> Array:
        """Return a Newton step of the approach, shortened to avoid overshooting.

        The step is short where the curvature does not rise above the noise. For the logistic loss it is scaled by
        log(1 + x) / x, where x bounds the curvature-weighted root mean square change of the raw predictions: curvature
        falls off exponentially in the tails, so a step with constant curvature overshoots by that factor.
        """
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(values, self.curvature(False).stddev * math.sqrt(2 * len(values)))
        along = (vectors.T @ gradient) / values
        move = np.asarray(-vectors @ along)
        if self._quadratic:
            return move
        x = self.problem.bounds.feature_norm * math.sqrt(values @ np.square(along) / values.sum())
        return move * (math.log1p(x) / x if x > 0 else 1.0)

    def _gradient_at(self, records: ArrayRecords, theta: Array, last: bool, entropy: Entropy) -> Array:
        exact = records.value_and_gradient(self.problem.loss, theta)[1]
        return self.gradient(last).release(exact, entropy)

    def _curvature_at(self, records: ArrayRecords, theta: Array, last: bool, entropy: Entropy) -> Array:
        return release_matrix(self.curvature(last), records, Weight(self.problem.loss, False), theta, entropy)

    def _spread_at(
        self, records: ArrayRecords, theta: Array, curvature: Array, noise: Array, entropy: Entropy
    ) -> Array:
        """Estimate the sum of g g^T over records, where g are their gradients at the population's minimizer."""
        if self.spread is None:
            return _positive(curvature)
        loss = self.problem.loss
        if self.robust:
            return _positive(release_matrix(self.spread, records, Weight(loss, True), theta, entropy))
        squares, count = release_residuals(self.spread, records, loss, theta, entropy)
        squares -= float(np.trace(noise @ curvature))  # residuals caused by noise in theta
        return max(0.0, squares) / max(1.0, count - len(theta)) * _positive(curvature)


def plan_intervals(
    problem: Problem, guarantee: Guarantee, radius: float, steps: int, robust: bool, max_rows: int = 1
) -> IntervalPlan:
    """Return the plan with the least noise that meets the guarantee."""
    if guarantee.delta == 0:
        raise ValueError("intervals are made with Gaussian noise, which needs delta > 0")

    def planned(unit: float) -> IntervalPlan:
        return IntervalPlan(problem, guarantee, radius, steps, robust, unit, max_rows)

    return planned(calibrate(lambda unit: planned(unit).event, guarantee))


def _inside(theta: Array, radius: float) -> Array:
    norm = float(np.linalg.norm(theta))
    return theta if norm <= radius else theta * (radius / norm)


def _inverse(matrix: Array, stddev: float) -> Array | None:
    """Return the inverse, or None if an eigenvalue does not rise above the noise."""
    least = _LEAST_CURVATURE * stddev * math.sqrt(2 * len(matrix))
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= least:
        return None
    return np.asarray((vectors / values) @ vectors.T)


def _with_curvature_noise(middle: Array, move: Array, inverse: Array, curvature_noise: float) -> Array:
    """Return the covariance C of the landing point: C = H^-1 (middle + (t^2 / 2) (trace(D) I + D)) H^-1, D = m m^T + C.

    The noise of the curvature, of standard deviation t, acts on the vector from the start to the population's
    minimizer, which is the negative move up to an error of covariance C. The fixed point is found from below.
    """
    step, found = np.outer(move, move), np.zeros_like(middle)
    for _ in range(_FIXED_POINT):
        second = step + found
        spread = np.trace(second) * np.eye(len(move)) + second
        found = inverse @ (middle + curvature_noise**2 / 2 * spread) @ inverse
    return np.asarray(found)


def _farthest(length: float, off: float) -> float:
    """Return how many times the step the minimizer along it can be away; infinite if nothing bounds it.

    ``length`` and ``off`` are the largest changes of a raw prediction along the step, and from its middle to where the
    curvature was taken, at most `_LONGEST_WAY` both. Curvature may fall off exponentially on the way:
    docs/proofs/uncertainty.md, Lemma 2.
    """
    if length == 0:
        return 1.0
    # The curvature in the middle, times known / length, is at most its mean over the step.
    known = max(2 - 2 * math.exp(-length / 2), math.sqrt(8) * math.sin(length / math.sqrt(8)))
    left = known + math.exp(-length / 2) - length * math.exp(off)
    return max(1.0, 0.5 - math.log(left) / length) if left > 0 else math.inf


def _relative_error(length: float, off: float) -> float:
    """Bound the relative error of the curvature taken ``off`` the middle of a way of this ``length``."""
    half = length / 2
    return math.exp(off) * (math.sinh(half) / half if half > 0 else 1.0) - 1


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
