"""Calibrate probabilities: release a histogram of margins, and rescale the coefficients so that they fit it.

The margin of a record is the log-odds that a model gives its true label; with more than two classes, beyond those of a
model that knows nothing, so that margins are about proportional to the coefficients. Capping derivatives makes fitted
margins too large by a factor that depends on how noisy the labels are. The factor is one number, so a histogram of the
margins with a fiftieth of the budget is enough to estimate it. Rescaling changes probabilities; it changes no predicted
label.
Proof: docs/proofs/gradient-methods.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_expit, logsumexp

from discreet._typing import Array
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.kernels.passes import gamma
from discreet.solvers.statistics import summation_rounding

_POSITIVE = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0)
#: Margins at which records are counted; a record between two knots counts in part for both.
KNOTS = np.array([*(-knot for knot in reversed(_POSITIVE)), 0.0, *_POSITIVE])
_ROWS = 4096  # records looked at together
_SCALES = np.geomspace(0.1, 1.5, 56)  # factors that are compared; neighbors differ by 5%
# With several classes descent ends early, long before coefficients have the size that probabilities ask for.
_SCALES_OF_CLASSES = np.geomspace(0.1, 12.0, 98)
_OTHERS = 0.4  # variance of the other classes over that of all, of which the true one stands out; measured on softmaxes
_DOUBT = 1.5  # standard deviations by which the noisy gain of a factor must exceed that of the default
# The default factor: measured on Adult, MAGIC and Electricity.
_SMALLEST_DEFAULT, _OVER_CAP, _BLURRED = 0.6, 1.28, 18.0


@dataclass(frozen=True)
class MarginMechanism:
    """Noisy histogram of the margins of all records under released coefficients.

    Every record adds nonnegative parts that sum to 1 to two neighboring knots; null records add nothing.

    Parameters
    ----------
    n_samples, n_features, n_outputs : public sizes; one output for two classes, else one per class.
    feature_norm : bound on the norm of a record.
    theta_norm : norm of the released coefficients, all outputs together.
    neighboring : the relation.
    noise_multiplier : standard deviation of the noise over the sensitivity.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on ``len(KNOTS)`` numbers.
    """

    n_samples: int
    n_features: int
    n_outputs: int
    feature_norm: float
    theta_norm: float
    neighboring: Neighboring
    noise_multiplier: float

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release; its sensitivity covers the rounding of margins and of the sum."""
        n, outputs = self.n_samples, self.n_outputs
        largest = self.feature_norm * self.theta_norm + math.log(outputs) + 1.0
        margin = 3 * gamma(self.n_features + outputs + 64) * largest
        parts = math.sqrt(2) * (margin / float(np.diff(KNOTS).min()) + gamma(8))
        rounding = n * parts + summation_rounding(n, 1.0)
        exact = acute_sum_sensitivity(1.0, self.neighboring).value  # parts are not negative
        return GaussianMechanism(
            Sensitivity((exact + 2 * rounding) * SLACK), self.noise_multiplier, len(KNOTS)
        )

    @property
    def event(self) -> Event:
        """What one release costs."""
        return self.gaussian.event

    def release(self, records: Records, theta: Array, entropy: Entropy) -> Array:
        """The noisy histogram of margins at theta, which has one column per output of a softmax."""
        return self.gaussian.release(records.sum_rows(histogram, theta), entropy)


def histogram(records: ArrayRecords, theta: Array) -> Array:
    """The parts that all records add to the knots."""
    raw = records.raw_predictions(theta)
    counts = np.zeros(len(KNOTS))
    for first in range(0, records.n_samples, _ROWS):
        rows = slice(first, first + _ROWS)
        used = records.scales[rows] > 0
        margins = _margins(raw[rows][used], records.labels[rows][used])
        above = np.clip(np.searchsorted(KNOTS, margins, side="right"), 1, len(KNOTS) - 1)
        share = np.clip((margins - KNOTS[above - 1]) / (KNOTS[above] - KNOTS[above - 1]), 0.0, 1.0)
        counts += np.bincount(above - 1, 1.0 - share, minlength=len(KNOTS))
        counts += np.bincount(above, share, minlength=len(KNOTS))
    return counts


def _margins(raw: Array, labels: Array) -> Array:
    """The log-odds of the true label, for labels -1 and 1; for codes of a softmax, beyond those of equal chances."""
    if raw.ndim == 1:
        return np.asarray(labels * raw)
    rows = np.arange(len(raw))
    codes = labels.astype(np.int64)
    others = raw.copy()
    others[rows, codes] = -np.inf
    return np.asarray(raw[rows, codes] - logsumexp(others, axis=1) + _equal_odds(raw.shape[1]))


def _equal_odds(n_outputs: int) -> float:
    """The log-odds against a class if all of them are equally likely; one output is for two classes."""
    return math.log(max(n_outputs - 1, 1))


def default_scale(field: Loss, signal: float) -> float:
    """The factor to use where the histogram is mostly noise.

    The smaller the cap on derivatives, the larger the margins of noisy labels. Noise in the coefficients of two classes
    makes margins larger still; ``signal`` is that over noise, in units of the cap.
    """
    capped = min(1.0, max(_SMALLEST_DEFAULT, _OVER_CAP * field.lipschitz))
    records = signal * field.lipschitz
    return float(capped * records / (records + _BLURRED)) if field.n_outputs == 1 else float(capped)


def calibrated_scale(
    noisy: Array, stddev: float, default: float, n_outputs: int = 1, spread: float = 0.0
) -> float:
    """The factor with the smallest mean log loss according to a noisy histogram of margins.

    Another factor than ``default`` is taken only where its gain exceeds 1.5 standard deviations of the noise in it.
    ``spread`` is the mean variance of a record's raw predictions over the classes.

    >>> exact = np.zeros(len(KNOTS))
    >>> exact[np.searchsorted(KNOTS, [-2.0, 2.0])] = 2000.0, 6000.0  # log-odds of 2 that are right in 3 cases of 4
    >>> abs(calibrated_scale(exact, 1.0, 0.7) / (math.log(3) / 2) - 1) < 0.05
    True
    >>> calibrated_scale(exact, 1e5, 0.7)
    0.7
    """
    scales = _SCALES if n_outputs == 1 else _SCALES_OF_CLASSES
    gains = _log_chances(scales, n_outputs, spread) - _log_chances(np.array([default]), n_outputs, spread)
    sure = gains @ noisy - _DOUBT * stddev * np.sqrt(np.square(gains).sum(axis=1))
    best = int(np.argmax(sure))
    return float(scales[best]) if sure[best] > 0 else default


def _log_chances(scales: Array, n_outputs: int, spread: float) -> Array:
    """Log-probabilities of true labels at the knots, after the coefficients were multiplied by each of the scales.

    The logarithm of the mean of exp(s z) over K other classes is s^2 v / 2 for normal z of variance v, until the
    largest z takes over at s^2 = 2 log K / v: then it is s sqrt(2 v log K) - log K.
    """
    level, spread = _equal_odds(n_outputs), _OTHERS * spread

    def crowd(scale: Array) -> Array:
        taken_over = scale * math.sqrt(2 * spread * level) - level
        return np.asarray(np.where(scale**2 * spread < 2 * level, scale**2 * spread / 2, taken_over))

    alone = KNOTS + crowd(np.ones(1))  # of the true label above the mean of the others
    return np.asarray(log_expit(scales[:, None] * alone - crowd(scales[:, None]) - level))
