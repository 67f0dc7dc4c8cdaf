"""A noisy sum of gradients with clipped derivatives, together with the amount of clipping at no extra price.

A record contributes psi w, where psi is the derivative of its loss clipped to [-cap, cap]. The mean of (psi / cap)^2,
the companion, shows whether the cap suits the residuals. A record with psi at the cap moves the gradient most and the
companion least, so both are released with the noise of the gradient alone. Proofs:
docs/proofs/second-order-regression.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet._typing import Array
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, sum_sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF, chunked_sum, gamma, summation_rounding, worst_additions


def companion_weight(neighboring: Neighboring) -> float:
    """Return the largest weight of the companion, in units of cap times feature norm, that adds no sensitivity.

    1 if one record is added, removed or zeroed out. If one is replaced, the root of (11 + 5 sqrt(5)) / 8, rounded down.

    >>> companion_weight(Neighboring.ZERO_OUT), companion_weight(Neighboring.REPLACE_ONE)
    (1.0, 1.665)
    """
    return 1.0 if neighboring.contributions == 1 else 1.665


@dataclass(frozen=True)
class ClippedGradient:
    """The numbers of one release.

    Attributes
    ----------
    gradient, stddev : the noisy sum of psi w, and the noise in each entry.
    mean_square, mean_square_stddev : the noisy mean of (psi / cap)^2 over the declared number of records, and its
        noise.
    """

    gradient: Array
    stddev: float
    mean_square: float
    mean_square_stddev: float


class WithCompanion(ABC):
    """A clipped gradient and its companion, released by one Gaussian mechanism."""

    cap: float
    n_samples: int
    feature_norm: float
    neighboring: Neighboring

    @property
    @abstractmethod
    def gaussian(self) -> GaussianMechanism:
        """The mechanism of the release."""

    @property
    def weight(self) -> float:
        """Weight of the companion relative to the gradient."""
        return companion_weight(self.neighboring) * self.cap * self.feature_norm

    @property
    def event(self) -> events.Event:
        """The event of one release."""
        return self.gaussian.event

    def noisy(self, sums: Array, entropy: Entropy) -> ClippedGradient:
        """Add noise to a gradient and, last, its weighted companion: of (psi / cap)^2, or of 1 minus it if alone."""
        noisy, stddev, unit = (
            self.gaussian.release(sums, entropy),
            self.gaussian.stddev,
            self.weight * self.n_samples,
        )
        companion = float(noisy[-1]) / unit
        exchanged = self.neighboring.contributions == 2
        return ClippedGradient(noisy[:-1], stddev, companion if exchanged else 1 - companion, stddev / unit)


@dataclass(frozen=True)
class ClippedGradientMechanism(WithCompanion):
    """Release a sum of gradients with derivatives clipped to [-cap, cap], together with its companion.

    Parameters
    ----------
    loss : the loss whose derivative is clipped.
    cap : bound on the derivative of one record.
    n_samples, n_features, feature_norm : public sizes and the bound on records.
    radius : gradients are computed at points in the ball of this radius.
    row_error : bound on the rounding error of a record that was computed from others.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on n_features + 1 numbers.
    """

    loss: Loss
    cap: float
    n_samples: int
    n_features: int
    feature_norm: float
    radius: float
    neighboring: Neighboring
    noise_multiplier: float
    row_error: float = 0.0

    def __post_init__(self) -> None:
        _ = self.gaussian  # raise now if anything can fail

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism of the release; its sensitivity covers the rounding of both sums."""
        exact = sum_sensitivity(self.cap * self.feature_norm, self.neighboring).value
        value = (exact + 2 * (self._gradient_rounding + self._companion_rounding)) * SLACK
        return GaussianMechanism(Sensitivity(value), self.noise_multiplier, self.n_features + 1)

    @property
    def _slope_error(self) -> float:
        """Bound on the error of a computed derivative."""
        loss, radius = self.loss, self.radius * SLACK
        margin = loss.smoothness * gamma(self.n_features + 3) * self.feature_norm * radius
        return (
            margin
            + loss.evaluation_error * UNIT_ROUNDOFF * loss.lipschitz
            + loss.smoothness * radius * self.row_error
        )

    @property
    def _gradient_rounding(self) -> float:
        n, cap = self.n_samples, self.cap
        summation = (gamma(worst_additions(n) + 2) + 2 * UNIT_ROUNDOFF) * cap
        underflow = 2.0**-140 * (1.0 + self.loss.smoothness) * (1.0 + self.loss.lipschitz) * self.n_features
        each = self.feature_norm * (self._slope_error + summation) + cap * self.row_error
        return 1.01 * n * (each + underflow)

    @property
    def _companion_rounding(self) -> float:
        n = self.n_samples
        return self.weight * (2.02 * n * self._slope_error / self.cap + summation_rounding(n, 1.0))

    def release(self, records: Records, theta: Array, entropy: Entropy) -> ClippedGradient:
        """Release the noisy sums over the records at ``theta``, a point of the ball."""
        exchanged = self.neighboring.contributions == 2
        sums = records.sum_rows(clipped_sums, self.loss, self.cap, theta, exchanged)
        sums[-1] *= self.weight
        return self.noisy(sums, entropy)


def clipped_sums(records: ArrayRecords, loss: Loss, cap: float, theta: Array, squares: bool) -> Array:
    """Return the sum of psi w over the records, then the sum of (psi / cap)^2 or, unless ``squares``, of 1 minus it.

    Null records add 0 to all entries.
    """
    records.check_labels(loss)
    slopes = np.clip(loss.derivative(records.labels, records.raw_predictions(theta)), -cap, cap)
    terms = np.square(slopes / cap)
    if not squares:
        terms = 1 - terms
    terms[records.scales == 0] = 0.0
    return np.append(records.weighted_sum(slopes), chunked_sum(terms))
