"""A slope and an intercept along a released direction, from a short noisy descent in these two numbers.

Where noise rules the steps of a walk, its direction is worth more than its length: scores along it rank records, but
they are too short and their intercept is off. Scores are measured in units of their released spread, and the mean of
noisy gradients' iterates replaces length and intercept. Proof: docs/proofs/frank-wolfe.md, section 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import SLACK, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF, chunked_sum, gamma, summation_rounding

STEPS = 20
MOMENTS_SHARE = 0.2  # of the fit's budget, for the spread of the scores
_LONGEST = 0.25  # scores are clipped to this part of the largest possible one before they are squared
_LEAST = 2.0**-10  # standard deviation of the scores, relative to their clipping
_SPREAD = 2.0  # standard deviations of a score that count as 1 in the descent
_STEEP = 4.0  # initial slope
_FLAT = 0.12  # curvature along the scores, relative to that along the constant
_RATE = 0.4
_FARTHEST = 50.0  # bound on slope and intercept


@dataclass(frozen=True)
class ScoreFit:
    """Two numbers to fit: how long a direction is, and the intercept.

    Attributes
    ----------
    problem : the problem with its intercept.
    size : bound on the L1 norm of the direction.
    contributions : how many records' terms may differ between neighbors.
    moments_noise, gradients_noise : noise multipliers of the releases.
    """

    problem: Problem
    size: float
    contributions: int
    moments_noise: float
    gradients_noise: float

    @property
    def longest(self) -> float:
        """Scores are clipped to this before they are squared and summed."""
        return _LONGEST * self.size

    @property
    def _row_error(self) -> float:
        return gamma(self.problem.n_features + 64) * (self.size + self.longest)

    @property
    def moments(self) -> GaussianMechanism:
        """The sums of clipped scores and of their squares, in units of the longest."""
        n = self.problem.n_samples
        rounding = 3 * n * self._row_error / self.longest + 2 * summation_rounding(n, 1.1)
        exact = 2.0 if self.contributions == 2 else math.sqrt(2)
        value = (exact + 2 * rounding) * SLACK
        return GaussianMechanism(Sensitivity(value), self.moments_noise, 2)

    @property
    def gradients(self) -> GaussianMechanism:
        """The sums of derivatives times scores, and of derivatives."""
        loss, n = self.problem.loss, self.problem.n_samples
        score = 2.1 * self._row_error / (_SPREAD * _LEAST * self.longest)
        margin = _FARTHEST * (score + 2 * gamma(8))
        derivative = loss.smoothness * margin + (loss.evaluation_error + 2.0) * UNIT_ROUNDOFF * loss.lipschitz
        rounding = 1.01 * n * (2 * derivative + loss.lipschitz * (score + 4 * UNIT_ROUNDOFF))
        rounding += 2 * summation_rounding(n, 1.1 * loss.lipschitz)
        value = (self.contributions * loss.lipschitz * math.sqrt(2) + 2 * rounding) * SLACK
        return GaussianMechanism(Sensitivity(value), self.gradients_noise, 2)

    def run(
        self, records: Records, theta: Array, offset: float, curvature: float, entropy: Entropy
    ) -> tuple[float, float]:
        """Return the length of the direction, which starts at 1, and the intercept, which starts at ``offset``."""
        n, release, point = self.problem.n_samples, self.gradients, np.append(theta, 0.0)
        mean, unit = self._spread(records, point, entropy)
        steepest = n * curvature * (1.0 if self.problem.loss.family == "logistic" else 0.5)
        curved = np.maximum([_FLAT * steepest, steepest], 6 * release.stddev / math.sqrt(STEPS))
        at, total = np.array([_STEEP, offset + mean]), np.zeros(2)
        for step in range(STEPS):
            at = np.clip(at, (0.0, -_FARTHEST), _FARTHEST)
            exact = records.sum_rows(gradients, self.problem.loss, point, mean, unit, at)
            at = at - _RATE * release.release(exact, entropy) / curved
            total += at * (step >= STEPS // 4)
        slope, constant = total / (STEPS - STEPS // 4)
        length = max(slope, 0.0) / unit
        largest = self.problem.geometry.radius(1.0) if self.problem.geometry else math.inf
        length = float(min(length, largest / max(float(np.abs(theta).sum()), 1e-12)))
        return length, float(constant - length * mean)

    def _spread(self, records: Records, point: Array, entropy: Entropy) -> tuple[float, float]:
        """Return the mean of the scores and the score that counts as 1."""
        n, c, release = self.problem.n_samples, self.longest, self.moments
        noisy = release.release(records.sum_rows(moments, point, c), entropy) / n
        mean = float(np.clip(noisy[0], -1.0, 1.0))
        variance = max(float(noisy[1]) - mean**2, release.stddev / n, _LEAST**2)
        return c * mean, _SPREAD * c * math.sqrt(variance)


def moments(records: ArrayRecords, point: Array, longest: float) -> Array:
    """Sum scores, clipped to their longest and in units of it, and their squares over the records."""
    scores = np.clip(records.raw_predictions(point) / longest, -1.0, 1.0)
    return chunked_sum(np.column_stack([scores, np.square(scores)]))


def gradients(records: ArrayRecords, loss: Loss, point: Array, mean: float, unit: float, at: Array) -> Array:
    """Sum the derivatives of the loss by the slope and the intercept ``at`` over the records."""
    constants = np.minimum(records.scales, 1.0)
    scores = np.clip((records.raw_predictions(point) - mean * constants) / unit, -1.0, 1.0)
    steep = loss.derivative(valid_labels(records), at[0] * scores + at[1] * constants)
    return chunked_sum(np.column_stack([steep * scores, steep * constants]))


def valid_labels(records: ArrayRecords) -> Array:
    """Return the labels, with a valid one for null records, whose scale is 0."""
    return np.where(records.scales > 0, records.labels, 1.0)
