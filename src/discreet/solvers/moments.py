"""The noisy second moment of the records, alone or with their products with bounded targets.

One Gaussian release of the matrix sum_i v_i v_i^T (its upper triangle, off-diagonal entries times sqrt(2), so that the
Euclidean norm of the released vector is the Frobenius norm of the matrix) and of the vector sum_i y_i v_i, weighted.
Everything computed from it is post-processing. Proofs: docs/proofs/gradient-methods.md, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discreet.losses import Squared
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import Neighboring, Sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.records.kernels import gamma, gradient_rounding

Array = NDArray[np.float64]

_SLACK = 1 + 2.0**-40
MOST_FEATURES = 4000  # a matrix beyond this size is neither cheap nor, under its noise, informative


def moment_sensitivity(feature_norm: float, weighted_target: float, neighboring: Neighboring) -> Sensitivity:
    """L2 sensitivity of (sum v v^T, w sum y v) for |v| <= R and |w y| <= ``weighted_target``.

    One record contributes R sqrt(R^2 + B), B = weighted_target^2. Exchanging one for another moves the pair by
    sqrt(2) (R^2 + B / 2) while B <= 2 R^2, and by 2 R sqrt(B) beyond: the worst pair of rows is at an angle of
    cosine B / (2 R^2), with opposite targets.

    >>> round(moment_sensitivity(1.0, 0.0, Neighboring.ZERO_OUT).value, 4)
    1.0
    >>> round(moment_sensitivity(1.0, 1.0, Neighboring.REPLACE_ONE).value, 4)
    2.1213
    """
    square, target = feature_norm**2, weighted_target**2
    if neighboring.contributions == 1:
        value = feature_norm * math.sqrt(square + target)
    elif target <= 2 * square:
        value = math.sqrt(2.0) * (square + target / 2)
    else:
        value = 2 * feature_norm * weighted_target
    return Sensitivity(value * _SLACK)


def summation_rounding(n_samples: int, norm: float) -> float:
    """What adding up one term of at most this norm per record, block by block and part by part, can round.

    A record's term passes through one block of at most 2^17 rows, the blocks of its part, and the parts.
    """
    additions = min(n_samples, 2**17 + n_samples // 128 + 64)
    return 1.01 * gamma(additions + 16) * n_samples * norm


@dataclass(frozen=True)
class NoisyMoments:
    """What one release gives: a symmetric matrix, a vector (zero if none was asked for), and their noise."""

    second: Array
    cross: Array
    second_stddev: float
    cross_stddev: float

    @property
    def matrix_noise(self) -> float:
        """About the largest eigenvalue of the noise in ``second``: stddev sqrt(2 p)."""
        return self.second_stddev * math.sqrt(2 * len(self.second))


@dataclass(frozen=True)
class MomentMechanism:
    """Release of the second moment and, where ``label_bound`` > 0, of the products with the targets.

    Parameters
    ----------
    n_samples, n_features, feature_norm : public sizes and the bound on records.
    label_bound : bound on |y|, enforced by whoever makes the records; 0 to release the matrix alone.
    weight : how much the products count beside the matrix; their noise is 1 / weight of the matrix's.
    row_error : how far a record may be from what it would be without rounding, for records made of others.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on p (p + 1) / 2 or p (p + 3) / 2 numbers.
    """

    n_samples: int
    n_features: int
    feature_norm: float
    label_bound: float
    weight: float
    neighboring: Neighboring
    noise_multiplier: float
    row_error: float = 0.0

    def __post_init__(self) -> None:
        if self.n_features > MOST_FEATURES:
            raise ValueError(
                f"the second moment of {self.n_features} columns has too many entries to be released; at most "
                f"{MOST_FEATURES} columns are supported: choose fewer columns, or solver='noisy-gd'"
            )
        _ = self.gaussian

    @property
    def size(self) -> int:
        """How many numbers are released."""
        p = self.n_features
        return p * (p + 1) // 2 + (p if self.label_bound > 0 else 0)

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release; its sensitivity covers the rounding of both sums."""
        n, radius = self.n_samples, self.feature_norm
        weighted = self.weight * self.label_bound
        exact = moment_sensitivity(radius, weighted, self.neighboring).value
        matrix_rounding = summation_rounding(n, radius**2) + 2.01 * n * radius * self.row_error
        vector_rounding = 0.0
        if weighted > 0:
            loss = Squared(self.label_bound, self.label_bound)
            vector_rounding = self.weight * gradient_rounding(loss, n, self.n_features, radius, 0.0)
        total = (exact + 2 * (matrix_rounding + vector_rounding)) * _SLACK
        return GaussianMechanism(Sensitivity(total), self.noise_multiplier, self.size)

    @property
    def event(self) -> events.Event:
        """What one release costs."""
        return self.gaussian.event

    def release(self, records: ArrayRecords, entropy: Entropy) -> NoisyMoments:
        """The noisy moments of the records."""
        p = self.n_features
        rows, columns = np.triu_indices(p)
        scales = np.where(rows == columns, 1.0, math.sqrt(2.0))
        parts = [second_moment(records)[rows, columns] * scales]
        if self.label_bound > 0:
            loss = Squared(self.label_bound, self.label_bound)
            parts.append(-self.weight * records.value_and_gradient(loss, np.zeros(p))[1])
        noisy = self.gaussian.release(np.concatenate(parts), entropy)
        second = np.zeros((p, p))
        second[rows, columns] = noisy[: len(rows)] / scales
        second = second + np.triu(second, 1).T
        cross = noisy[len(rows) :] / self.weight if self.label_bound > 0 else np.zeros(p)
        stddev = self.gaussian.stddev
        return NoisyMoments(second, cross, stddev, stddev / self.weight)


def second_moment(records: ArrayRecords) -> Array:
    """sum_i v_i v_i^T in floating point."""
    p = records.n_features
    unlabelled = records.with_labels(np.zeros(records.n_samples))
    loss = Squared(1.0, 1.0)  # its curvature is 1 wherever |t - y| <= 2
    if not records.sparse:
        return unlabelled.hessian(loss, np.zeros(p))
    product = unlabelled.hessian_product(loss, np.zeros(p))
    return np.column_stack([product(unit) for unit in np.eye(p)])
