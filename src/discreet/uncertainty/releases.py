"""Noisy gradients, curvatures and squared residuals of a linear model at a released point.

Everything is a sum over clipped records at coefficients that everybody knows; sensitivities include the rounding of
the sums. Proofs: docs/proofs/uncertainty.md, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.losses import Loss, Squared
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.privacy.guarantee import Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.kernels import UNIT_ROUNDOFF, gamma, worst_additions

Array = NDArray[np.float64]

_SLACK = 1 + 2.0**-40
_LOGISTIC_THIRD = 0.1  # sup of the third derivative of the logistic loss is 1 / (6 sqrt(3)) = 0.0962...


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
        return (self.loss.lipschitz**2 if self.squared_slope else self.loss.smoothness) * _SLACK

    @property
    def slope(self) -> float:
        """Lipschitz constant of w."""
        if self.squared_slope:
            return 2 * self.loss.lipschitz * self.loss.smoothness
        return 0.0 if isinstance(self.loss, Squared) else _LOGISTIC_THIRD

    @property
    def n_outputs(self) -> int:
        """One: this stands in for the curvature of a loss of one raw prediction."""
        return 1

    def valid_labels(self, y: Array) -> NDArray[np.bool_]:
        """As the loss."""
        return self.loss.valid_labels(y)

    def second_derivative(self, y: Array, raw_prediction: Array) -> Array:
        """w(y, t); the curvature of the squared loss is 1 wherever it is asked for."""
        if self.squared_slope:
            return np.square(self.loss.derivative(y, raw_prediction))
        if isinstance(self.loss, Squared):
            return np.ones_like(raw_prediction)
        return self.loss.second_derivative(y, raw_prediction)


def matrix_mechanism(
    weight: Weight, problem: Problem, radius: float, neighboring: Neighboring, noise_multiplier: float
) -> GaussianMechanism:
    """The release of sum w v v^T at any point of the ball: upper triangle, off-diagonal entries times sqrt(2).

    Two records' terms have a Frobenius product of at least 0, so exchanging one moves the sum by at most
    sqrt(2) W R^2, and not by 2 W R^2.
    """
    n, p, norm = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    exact = acute_sum_sensitivity(weight.largest * norm**2, neighboring).value
    evaluation = weight.slope * gamma(p + 3) * norm * radius
    evaluation += weight.largest * (2 * weight.loss.evaluation_error + 16) * UNIT_ROUNDOFF
    summation = weight.largest * gamma(worst_additions(n) + 16)
    rounding = 1.01 * n * norm**2 * (evaluation + summation)
    return GaussianMechanism(Sensitivity((exact + 2 * rounding) * _SLACK), noise_multiplier, p * (p + 1) // 2)


def release_matrix(
    mechanism: GaussianMechanism, records: ArrayRecords, weight: Weight, theta: Array, entropy: Entropy
) -> Array:
    """The noisy symmetric matrix; its noise has variance s^2 on the diagonal and s^2 / 2 beside it."""
    p = records.n_features
    if records.sparse:
        product = records.hessian_product(weight, theta)  # type: ignore[arg-type]
        matrix = np.column_stack([product(unit) for unit in np.eye(p)])
    else:
        matrix = records.hessian(weight, theta)  # type: ignore[arg-type]
    rows, columns = np.triu_indices(p)
    scales = np.where(rows == columns, 1.0, math.sqrt(2.0))
    noisy = np.zeros((p, p))
    noisy[rows, columns] = mechanism.release(matrix[rows, columns] * scales, entropy) / scales
    return np.asarray(noisy + np.triu(noisy, 1).T)


def residual_mechanism(
    problem: Problem, radius: float, neighboring: Neighboring, noise_multiplier: float
) -> GaussianMechanism:
    """The release of the sum of squared residuals, each clipped to [0, L^2], and of the number of records times L^2.

    One record moves the sum by at most L^2. The number is released where it is private; then a record moves it by L^2.
    """
    n, p, norm = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    slope, entries = problem.loss.lipschitz, 1 if neighboring.size_is_public else 2
    each = 2 * slope * gamma(p + 3) * norm * radius + slope**2 * gamma(n + 16)
    sensitivity = Sensitivity((math.sqrt(entries) * slope**2 + 2.02 * n * each) * _SLACK)
    return GaussianMechanism(sensitivity, noise_multiplier, entries)


def release_residuals(
    mechanism: GaussianMechanism, records: ArrayRecords, loss: Loss, theta: Array, entropy: Entropy
) -> tuple[float, float]:
    """The noisy sum of squared slopes of the loss, and the number of records, noisy where it is private."""
    # A null record has scale 0 and must add nothing.
    slopes = np.where(records._scales > 0, loss.derivative(records._y, records.raw_predictions(theta)), 0.0)
    squares, count = float(np.sum(np.square(slopes))), float(len(slopes))
    if mechanism.size == 1:
        return float(mechanism.release([squares], entropy)[0]), count
    unit = loss.lipschitz**2
    noisy = mechanism.release([squares, unit * count], entropy)
    return float(noisy[0]), float(noisy[1]) / unit
