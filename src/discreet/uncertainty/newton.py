"""Noisy Newton steps from a released model, and how well the point where they land is known.

The last curvature is taken halfway along the last step, where it is the mean curvature of the way up to third order.
Proofs: docs/proofs/uncertainty.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discreet.losses import Squared
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.privacy.calibration import calibrate
from discreet.privacy.events import Composed, Event, Repeated
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers.sensitivity import gradient_mechanism
from discreet.uncertainty.releases import (
    Weight,
    matrix_mechanism,
    release_matrix,
    release_residuals,
    residual_mechanism,
)

Array = NDArray[np.float64]

# Parts of the squared Gaussian-DP parameter: the last step's gradient decides the width of the intervals.
_SHARES = {"gradient": 0.6, "curvature": 0.2, "spread": 0.15}
_APPROACH = {"gradient": 0.15, "curvature": 0.1}  # of each step before the last, in the same unit
_LEAST_CURVATURE = 3.0  # smallest eigenvalue of the curvature in units of the largest of its noise
_LONGEST_STEP = 2.0  # the last one times the bound of rows; what is beyond no longer follows from the step

FAINT = (
    "the released curvature is not distinguishable from its noise: there are too few records (or, with unbalanced "
    "labels, too few of the rare class) for this many columns at this epsilon, and the intervals are infinite"
)
FAR = (
    "the starting model was too far off: the last step is still so long that its error is not known, and the intervals "
    "are infinite; start from a better model (larger epsilon, less regularization), or pass more steps"
)


@dataclass(frozen=True)
class Landing:
    """Where the last step lands, and how well that is known.

    Attributes
    ----------
    theta : the point.
    covariance : of noise and sampling.
    noise : the part of it that is noise.
    remainder : bound, for each coefficient, on what the expansion leaves out.
    doubt : why nothing is known of the error, or nothing.
    """

    theta: Array
    covariance: Array
    noise: Array
    remainder: Array
    doubt: str = ""


def _unknown(theta: Array, doubt: str) -> Landing:
    infinite = np.full((len(theta), len(theta)), np.inf)
    return Landing(theta, infinite, infinite, np.zeros_like(theta), doubt)


@dataclass(frozen=True)
class IntervalPlan:
    """Calibrated Newton steps from public coefficients.

    Attributes
    ----------
    problem, guarantee : as for a solver.
    radius : of the ball in which all points stay.
    steps : number of Newton steps; one is exact for the squared loss, from a point where no slope is at its bound.
    robust : whether the spread of gradients is released as a matrix, or follows from the model.
    unit : multiplier of one Gaussian release that costs as much as everything.
    """

    problem: Problem
    guarantee: Guarantee
    radius: float
    steps: int
    robust: bool
    unit: float

    def _multiplier(self, part: str, last: bool = True) -> float:
        """Of one release, whose part of the budget is its share of all shares."""
        whole = sum(_SHARES.values()) + (self.steps - 1) * sum(_APPROACH.values())
        if not self._releases_spread:
            whole -= _SHARES["spread"]
        return self.unit * math.sqrt(whole / (_SHARES if last else _APPROACH)[part])

    @property
    def _releases_spread(self) -> bool:
        """The spread that a logistic model itself implies is its curvature, and needs no release."""
        return self.robust or isinstance(self.problem.loss, Squared)

    def gradient(self, last: bool) -> GaussianMechanism:
        """The noisy gradient of one step."""
        loss, relation = self.problem.loss, self.guarantee.neighboring
        return gradient_mechanism(
            self.problem, loss, self.radius, relation, self._multiplier("gradient", last)
        )

    def curvature(self, last: bool) -> GaussianMechanism:
        """The noisy Hessian of one step."""
        weight, multiplier = Weight(self.problem.loss, False), self._multiplier("curvature", last)
        return matrix_mechanism(weight, self.problem, self.radius, self.guarantee.neighboring, multiplier)

    @cached_property
    def spread(self) -> GaussianMechanism | None:
        """The noisy sum of g g^T over the records' gradients, or of squared residuals."""
        if not self._releases_spread:
            return None
        multiplier = self._multiplier("spread")
        if not self.robust:
            return residual_mechanism(self.problem, self.radius, self.guarantee.neighboring, multiplier)
        weight = Weight(self.problem.loss, True)
        return matrix_mechanism(weight, self.problem, self.radius, self.guarantee.neighboring, multiplier)

    @property
    def event(self) -> Event:
        """What is charged: every release of every step."""
        parts: list[Event] = [self.gradient(True).event, self.curvature(True).event]
        if self.steps > 1:
            approach = Composed((self.gradient(False).event, self.curvature(False).event))
            parts.append(Repeated(approach, self.steps - 1))
        return Composed(tuple(parts if self.spread is None else [*parts, self.spread.event]))

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"Gaussian noise on curvature and gradients of {self.steps} Newton steps from a released model"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sensitivities of docs/proofs/uncertainty.md, section 1; exact composition of Gaussian releases"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "gradient noise stddev (sum scale)": self.gradient(True).stddev,
            "curvature noise stddev (sum scale)": self.curvature(True).stddev,
            "steps": float(self.steps),
            "radius": self.radius,
        }

    @property
    def _reach(self) -> float:
        """Norm of the points whose gradients are asked for: no slope of the squared loss is at its bound there."""
        loss = self.problem.loss
        if isinstance(loss, Squared):
            return min(self.radius, loss.prediction_bound / self.problem.bounds.feature_norm)
        return self.radius

    def run(self, records: ArrayRecords, start: Array, entropy: Entropy) -> Landing:
        """Where the steps lead; all decisions are functions of what was released."""
        theta, move = _inside(start, self._reach), np.zeros_like(start)
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

    def _landing(
        self,
        records: ArrayRecords,
        theta: Array,
        halfway: Array,
        gradient: Array,
        curvature: Array,
        entropy: Entropy,
    ) -> Landing:
        """The last step from theta, with the curvature halfway."""
        stddev, blur = self.gradient(True).stddev, self.curvature(True).stddev
        inverse = _inverse(curvature, blur)
        if inverse is None:
            return _unknown(theta, FAINT)
        move = -inverse @ gradient
        landed = theta + move
        relative = self._relative_remainder(move, halfway - theta - move / 2)
        if relative is None or float(np.linalg.norm(landed)) > self.radius:
            return _unknown(landed, FAR)
        blurred = blur**2 / 2 * (move @ move * np.eye(len(move)) + np.outer(move, move))
        noise = inverse @ (stddev**2 * np.eye(len(move)) + blurred) @ inverse
        middle = self._spread_at(records, landed, curvature, noise, entropy)
        remainder = relative * math.sqrt(move @ curvature @ move) * np.sqrt(np.diag(inverse))
        return Landing(landed, noise + inverse @ middle @ inverse, noise, remainder)

    def _relative_remainder(self, move: Array, astray: Array) -> float | None:
        """What the expansion may leave out, relative to the step in the norm of the curvature; None if unknown.

        ``astray`` leads from the middle of the step to where the curvature was taken.
        """
        if isinstance(self.problem.loss, Squared):
            return 0.0
        largest = self.problem.bounds.feature_norm
        half, off = (largest * float(np.linalg.norm(part)) for part in (move / 2, astray))
        if 2 * half > _LONGEST_STEP or 2 * off > _LONGEST_STEP:
            return None
        return math.exp(off) * (math.sinh(half) / half if half > 0 else 1.0) - 1

    def _cautious_move(self, curvature: Array, gradient: Array) -> Array:
        """A Newton step of an approach, shortened so as not to overshoot.

        Slowly where the curvature is not clear of the noise. For the logistic loss log(1 + x) / x of it, where x is
        by how much the raw predictions would move (root of a mean weighted by curvature, from above): curvature
        falls off exponentially in the tails, and a step that believes in a constant one overshoots by that much.
        """
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(values, self.curvature(False).stddev * math.sqrt(2 * len(values)))
        along = (vectors.T @ gradient) / values
        move = np.asarray(-vectors @ along)
        if isinstance(self.problem.loss, Squared):
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
        """An estimate of the sum of g g^T over records, g their gradients at the population's minimizer."""
        if self.spread is None:
            return _positive(curvature)
        loss = self.problem.loss
        if self.robust:
            return _positive(release_matrix(self.spread, records, Weight(loss, True), theta, entropy))
        squares, count = release_residuals(self.spread, records, loss, theta, entropy)
        squares -= float(np.trace(noise @ curvature))  # residuals that are there because noise moved theta
        return max(0.0, squares) / max(1.0, count - len(theta)) * _positive(curvature)


def plan_intervals(
    problem: Problem, guarantee: Guarantee, radius: float, steps: int, robust: bool
) -> IntervalPlan:
    """The smallest noise that meets the guarantee."""
    if guarantee.delta == 0:
        raise ValueError("intervals are made with Gaussian noise, which needs delta > 0")

    def event(unit: float) -> Event:
        return IntervalPlan(problem, guarantee, radius, steps, robust, unit).event

    return IntervalPlan(problem, guarantee, radius, steps, robust, calibrate(event, guarantee))


def _inside(theta: Array, radius: float) -> Array:
    norm = float(np.linalg.norm(theta))
    return theta if norm <= radius else theta * (radius / norm)


def _inverse(matrix: Array, stddev: float) -> Array | None:
    """The inverse, or None where an eigenvalue is not clear of the noise."""
    least = _LEAST_CURVATURE * stddev * math.sqrt(2 * len(matrix))
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= least:
        return None
    return np.asarray((vectors / values) @ vectors.T)


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
