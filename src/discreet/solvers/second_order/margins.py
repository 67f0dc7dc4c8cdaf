"""Calibration of probabilities: a noisy histogram of the predictions of all records, and what follows from it.

Capping derivatives makes fitted margins too large by a factor that depends on how noisy the labels are. With two
classes and an intercept, the predictions are counted for every class, together with the sizes of the classes: the
factor applies to the distance from the mean prediction, and the threshold follows from the sizes of the classes. Where
noise hides everything, the prediction is the released share of the class. Otherwise the margin of a record is the
log-odds that a model gives its true label, and one factor multiplies all coefficients: that changes probabilities, but
no predicted label. Proof: docs/proofs/gradient-methods.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import expit, log_expit, logsumexp

from discreet._typing import Array, Mask
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import gamma, summation_rounding
from discreet.records.clipped_rows import of_predictions
from discreet.solvers.second_order.coordinates import NoisyMoments

_POSITIVE = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0)
#: Margins at which records are counted; a record between two knots counts in part for both.
KNOTS = np.array([*(-knot for knot in reversed(_POSITIVE)), 0.0, *_POSITIVE])
#: How many numbers a histogram has; with classes apart (True), also their sizes.
MARGIN_SIZES = {False: len(KNOTS), True: 2 * len(KNOTS) + 2}
_ROWS = 4096  # records per block
_SCALES = np.geomspace(0.03, 1.5, 80)  # factors that are compared; neighbors differ by 5%
# With several classes descent ends early, long before coefficients have the size that probabilities ask for.
_SCALES_OF_CLASSES = np.geomspace(0.1, 12.0, 98)
# The same for distances from the mean prediction, and the least variance of predictions that is expected.
_FACTORS = np.geomspace(0.03, 4.0, 101)
_LEAST_SPREAD = 0.25
_UNSURE_ODDS = 0.6  # standard deviation of log-odds before the release
_LEAST_LEARNED = 0.1  # noise alone still ranks rows, so coefficients never become 0
_LEAST_LEFT = 0.25  # mean square of the constant of clipped records, over the largest that it can be
_ANGLES = 2000  # of the grid on which shares are integrated
_DOUBT = 3.0  # standard deviations by which the sizes of both classes may miss the declared number of records
_OTHERS = 0.4  # variance of the other classes over that of all, of which the true one stands out; measured on softmaxes
# The counts that are expected before the release: their standard deviation over their mean, and the least mean square
# of a margin.
_UNSURE, _LEAST_SQUARE = 0.5, 2.0
_STEEPEST = 100.0
# The share of a class below which its rows are expected to be unlike the mean row, fully so from half of it; and the
# standard deviation of products with the mean row, over its length.
_RARE, _ALONG_MEAN = 0.02, 0.07
_VAGUE = 0.05  # noise in a share, above which no class counts as rare
# The standard deviation of log-odds that this expectation is worth, and the noise that their mean may have.
_LEANING, _MISPLACED = 0.6, 0.6
# The default factor: measured on Adult, MAGIC and Electricity.
_SMALLEST_DEFAULT, _OVER_CAP, _BLURRED = 0.6, 1.28, 18.0


@dataclass(frozen=True)
class MarginMechanism:
    """Noisy histogram of the margins of all records under released coefficients.

    Every record adds nonnegative parts that sum to 1 to two neighboring knots; null records add nothing. With a
    ``count_weight``, predictions are counted instead, for both classes apart, and the sizes of the classes too.

    Parameters
    ----------
    n_samples, n_features, n_outputs : public sizes; one output for two classes, else one per class.
    feature_norm : bound on the norm of a record.
    theta_norm : norm of the released coefficients, all outputs together.
    neighboring : the relation.
    noise_multiplier : standard deviation of the noise over the sensitivity.
    count_weight : what a record adds to the size of its class, of few binary digits; 0: margins, not counted by class.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on ``size`` numbers.
    """

    n_samples: int
    n_features: int
    n_outputs: int
    feature_norm: float
    theta_norm: float
    neighboring: Neighboring
    noise_multiplier: float
    count_weight: float = 0.0

    @property
    def size(self) -> int:
        """Number of released values."""
        return MARGIN_SIZES[self.count_weight > 0]

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release; its sensitivity covers the rounding of margins and of the sum."""
        n, outputs, size = self.n_samples, self.n_outputs, self.size
        largest = self.feature_norm * self.theta_norm + math.log(outputs) + 1.0
        margin = 3 * gamma(self.n_features + outputs + 64) * largest
        parts = math.sqrt(2) * (margin / float(np.diff(KNOTS).min()) + gamma(8))
        rounding = n * parts + summation_rounding(n, 1.0)
        longest = math.hypot(1.0, self.count_weight)  # parts are not negative
        exact = acute_sum_sensitivity(longest, self.neighboring).value
        return GaussianMechanism(Sensitivity((exact + 2 * rounding) * SLACK), self.noise_multiplier, size)

    @property
    def event(self) -> Event:
        """What one release costs."""
        return self.gaussian.event

    def release(self, records: Records, theta: Array, entropy: Entropy) -> Array:
        """The noisy histogram of margins at theta, which has one column per output of a softmax."""
        exact = (
            records.sum_rows(of_predictions, partial(class_histogram, self.count_weight), theta)
            if self.count_weight > 0
            else records.sum_rows(of_predictions, histogram, theta)
        )
        return self.gaussian.release(exact, entropy)


def histogram(raw: Array, labels: Array, used: Mask) -> Array:
    """The parts that the used records add to the knots, from their raw predictions and labels."""
    counts = np.zeros(len(KNOTS))
    for first in range(0, len(raw), _ROWS):
        rows = slice(first, first + _ROWS)
        counts += _parts(_margins(raw[rows][used[rows]], labels[rows][used[rows]]))
    return counts


def class_histogram(count_weight: float, raw: Array, labels: Array, used: Mask) -> Array:
    """The parts of the predictions of the first class, of the second, and the weighted sizes of both."""
    counts = np.zeros((2, len(KNOTS)))
    sizes = np.zeros(2)
    for first in range(0, len(raw), _ROWS):
        rows = slice(first, first + _ROWS)
        predicted, second = raw[rows][used[rows]], labels[rows][used[rows]] > 0
        for k, of_class in enumerate((~second, second)):
            counts[k] += _parts(predicted[of_class])
            sizes[k] += np.count_nonzero(of_class)
    return np.concatenate([counts.ravel(), count_weight * sizes])


def _parts(values: Array) -> Array:
    """What these values add to the knots: each in part to the two next to it."""
    above = np.clip(np.searchsorted(KNOTS, values, side="right"), 1, len(KNOTS) - 1)
    share = np.clip((values - KNOTS[above - 1]) / (KNOTS[above] - KNOTS[above - 1]), 0.0, 1.0)
    lower = np.bincount(above - 1, 1.0 - share, minlength=len(KNOTS))
    return np.asarray(lower + np.bincount(above, share, minlength=len(KNOTS)))


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
    noisy: Array, stddev: float, default: float, n_samples: int, n_outputs: int = 1, spread: float = 0.0
) -> float:
    """Return the factor with the smallest expected log loss, given a noisy histogram of margins.

    Before the release the counts at the knots have a mean, with which ``default`` is the best factor, and a variance
    (`_expected_counts`). Noise hides most of what a histogram tells about knots that few records can reach; the
    posterior mean of the counts ignores it there. ``spread`` is the mean variance of a record's raw predictions over
    the classes, for two classes the mean square of its margin.

    >>> exact = np.zeros(len(KNOTS))
    >>> exact[np.searchsorted(KNOTS, [-2.0, 2.0])] = 2000.0, 6000.0  # log-odds of 2 that are right in 3 cases of 4
    >>> abs(calibrated_scale(exact, 1.0, 0.7, 8000) / (math.log(3) / 2) - 1) < 0.05
    True
    >>> abs(calibrated_scale(exact, 1e6, 0.7, 8000) / 0.7 - 1) < 0.05
    True
    """
    scales = _SCALES if n_outputs == 1 else _SCALES_OF_CLASSES
    means, stddevs = _expected_counts(default, n_samples, n_outputs, spread)
    trusted = np.square(stddevs) / (np.square(stddevs) + stddev**2)
    counts = means + trusted * (noisy - means)
    return float(scales[int(np.argmax(_log_chances(scales, n_outputs, spread) @ counts))])


def learned(theta: Array, variance: float) -> float:
    """Return the share of coefficients that noise of this ``variance`` does not explain, at least `_LEAST_LEARNED`.

    The positive part of the factor of James and Stein. Curvature pulls noise back, so ``variance`` is an upper bound.

    >>> learned(np.full(12, 10.0), 1.0)
    0.9916666666666667
    >>> learned(np.full(12, 0.5), 1.0)
    0.1
    """
    noise = max(0, theta.size - 2) * variance
    return float(max(_LEAST_LEARNED, 1.0 - noise / max(float(np.square(theta).sum()), 1e-300)))


def across(vector: Array, row: Array) -> Array:
    """Return the vector without its component along a row."""
    return np.asarray(vector - row * (float(row @ vector) / max(float(row @ row), 1e-300)))


def sum_of_rows(second: Array, matrix: Array) -> Array:
    """Return the sum of all records, from a noisy second moment of reshaped ones; see `mean_prediction`."""
    return np.asarray(_solved(matrix.T, second @ _solved(matrix, np.eye(len(second))[-1])))


def mean_prediction(second: Array, matrix: Array, theta: Array) -> tuple[float, float]:
    """Return mean and variance of the predictions of all records, from a noisy second moment of reshaped records.

    The last column of a record is constant. Reshaped records are w = ``matrix``^T v, so that <w, matrix^-1 a> is
    <v, a>. Clipped records count less; the second moment of the constant tells how much.
    """
    along, ones = _solved(matrix, np.stack([theta, np.eye(len(theta))[-1]], axis=1)).T
    left = float(ones @ second @ ones)
    length = 2 * float(np.linalg.norm(theta))
    if not left > 0:
        return float(theta[-1]), length**2
    mean = float(np.clip(along @ second @ ones / left, -length, length))
    return mean, float(np.clip(along @ second @ along / left - mean**2, 0.0, length**2))


def _solved(matrix: Array, right: Array) -> Array:
    """The solution of linear equations; 0 if there is none, because a fit must not fail where it met the data."""
    try:
        return np.asarray(np.nan_to_num(np.linalg.solve(matrix, right)))
    except np.linalg.LinAlgError:
        return np.zeros_like(right)


def calibrated(
    problem: Problem,
    mechanism: Callable[[float], MarginMechanism],
    records: Records,
    theta: Array,
    default: float,
    first: NoisyMoments,
    look: tuple[Array, Array],
    entropy: Entropy,
) -> Array:
    """Release a histogram of margins at theta and return the coefficients with calibrated probabilities.

    Parameters
    ----------
    problem, records, theta : public facts, the rows and their released coefficients.
    mechanism : the histogram, by the norm of the coefficients.
    default : the factor to use where noise hides the histogram.
    first : the first released second moment, of the records as they are.
    look : the last released second moment, of records reshaped by a matrix, and that matrix.
    entropy : the source of the noise.
    """
    n, outputs, second = problem.n_samples, problem.loss.n_outputs, first.second
    longest = min(1.0, problem.bounds.feature_norm)
    left = float(np.clip(second[-1, -1] / n, _LEAST_LEFT * longest**2, longest**2))
    plain = mechanism(float(np.linalg.norm(theta)))
    if plain.count_weight == 0:
        counts = plain.release(records, theta, entropy)
        spread = float(np.sum(theta * (second @ theta))) / (n * outputs)
        scale = calibrated_scale(counts, plain.gaussian.stddev, default, n, outputs, max(spread, 0.0))
        theta = theta * scale
        if outputs > 1 or not problem.bounds.intercept:
            return np.asarray(theta)
        mean, spread = mean_prediction(*look, theta)
        share = float(
            expit(mean / math.sqrt(1 + math.pi / 8 * spread))
        )  # of a class, as predicted on average
        return leaning(theta, share, n, left, first, look)
    mean, spread = mean_prediction(*look, theta)
    theta = theta.copy()
    theta[-1] -= mean
    by_class = mechanism(float(np.linalg.norm(theta)))
    noisy = by_class.release(records, theta, entropy)
    stddev, weight = by_class.gaussian.stddev, by_class.count_weight
    factor, constant = calibrated_line(noisy, stddev, weight, default, n, left * spread)
    theta = factor * theta
    theta[-1] += constant / math.sqrt(left)  # clipping shrinks it
    share = second_share(noisy, stddev, weight, n)
    if rareness(share, stddev / (weight * n)) == 0:
        return theta
    return leaning(theta, share, n, left, first, look)


def leaning(
    theta: Array, share: float, n_samples: int, left: float, first: NoisyMoments, look: tuple[Array, Array]
) -> Array:
    """Return coefficients that also lean towards a rare class (`rare_lean`), with the same mean of all predictions.

    ``share`` is that of the second class and ``left`` the mean square of the constant of a clipped record. The mean row
    is that of the last look, and the mean of the products with it that of the first: their noise is independent.
    """
    if look[0] is first.second:
        return theta
    away = _LEANING / math.sqrt(left) * rare_lean(share, sum_of_rows(*look)[:-1])
    unsure = first.second_stddev / (n_samples * left) * float(np.linalg.norm(away))
    away *= min(1.0, _MISPLACED / max(unsure, 1e-300)) ** 2
    center = float(away @ first.second[:-1, -1]) / (n_samples * left)
    return np.asarray(theta + np.append(away, -center))


def second_share(noisy: Array, stddev: float, count_weight: float, n_samples: int) -> float:
    """Return the posterior mean of the second class's share, given a noisy histogram by class with its sizes."""
    sizes, unsure = noisy[-2:] / (count_weight * n_samples), stddev / (count_weight * n_samples)
    missing = 1 - float(sizes.sum())
    if abs(missing) > _DOUBT * math.sqrt(2) * unsure:  # the number of records is private
        total = max(1 - missing, math.sqrt(2) * unsure)
        sizes, unsure, missing = sizes / total, unsure / total, 0.0
    return float(class_shares(sizes + missing / 2, unsure**2)[1])


def rare_lean(share: float, row: Array) -> Array:
    """Return coefficients that move scores away from the mean row towards a rare class, by about 1; 0 if none is rare.

    Noise hides the mean of a class of which there are hardly any records. Before anything is seen it is as far from the
    origin as that of the other class and in another direction, so its rows are less like the mean row, which is that of
    the other class.

    >>> rare_lean(0.01, np.array([0.0, 1.0])).round(2), rare_lean(0.985, np.array([0.0, 1.0])).round(2)
    (array([ -0.  , -14.29]), array([0.  , 7.14]))
    """
    length = max(float(np.linalg.norm(row)), 1e-300)
    return np.asarray(row * (math.copysign(rareness(share), share - 0.5) / (_ALONG_MEAN * length)))


def rareness(share: float, stddev: float = 0.0) -> float:
    """Return 1 if one of two classes is rare, 0 if none is or the share is mostly noise, else a number between."""
    if stddev > _VAGUE:
        return 0.0
    return min(1.0, max(0.0, 2 - 2 * min(share, 1 - share) / _RARE))


def calibrated_line(
    noisy: Array, stddev: float, count_weight: float, default: float, n_samples: int, spread: float
) -> tuple[float, float]:
    """Return the factor and the constant with the smallest expected log loss, given a noisy histogram by class.

    Predictions were counted from their mean on; ``spread`` is their variance. For every factor the constant makes the
    mean chance of the second class its share, the posterior mean given the released sizes of the classes. As in
    `calibrated_scale`, counts have a mean before the release, with which ``default`` is the best factor.

    >>> exact = np.zeros(MARGIN_SIZES[True])
    >>> exact[[len(KNOTS) // 2 - 4, len(KNOTS) // 2 + 4]] = 1500.0, 500.0  # log-odds of 2 that are right in 3 of 4
    >>> exact[len(KNOTS) + np.array([len(KNOTS) // 2 - 4, len(KNOTS) // 2 + 4])] = 500.0, 1500.0
    >>> exact[-2:] = 2000.0
    >>> factor, constant = calibrated_line(exact, 1.0, 1.0, 0.7, 4000, 4.0)
    >>> abs(factor / (math.log(3) / 2) - 1) < 0.05, abs(constant) < 0.01
    (True, True)
    """
    share = second_share(noisy, stddev, count_weight, n_samples)
    first, second = noisy[:-2].reshape(2, -1)
    masses = np.gradient(KNOTS) / (1 + np.square(KNOTS) / max(spread, _LEAST_SPREAD)) ** 2
    masses *= n_samples / masses.sum()
    certain = np.square(_UNSURE * masses) / (np.square(_UNSURE * masses) + 2 * stddev**2)
    masses = np.maximum(masses + certain * (first + second - masses), 0.0)
    masses /= max(float(masses.sum()), 1e-300)
    chances = expit(_constants(np.array([default]), masses, share)[0] + default * KNOTS)
    unknown = np.square(_UNSURE_ODDS * n_samples * masses * chances * (1 - chances))
    certain = unknown / (unknown + stddev**2 * (np.square(chances) + np.square(1 - chances)) + 1e-300)
    expected = n_samples * masses * chances
    more = certain * ((1 - chances) * second - chances * first)  # 0 on average if the chances are right
    of_second = np.clip(expected + more, 0.0, n_samples * masses)
    constants = _constants(_FACTORS, masses, share)
    odds = constants[:, None] + _FACTORS[:, None] * KNOTS
    best = int(np.argmax(log_expit(odds) @ of_second + log_expit(-odds) @ (n_samples * masses - of_second)))
    return float(_FACTORS[best]), float(constants[best])


def class_shares(noisy: Array, variance: float) -> Array:
    """Return the posterior means of class shares that add up to 1, given noisy ones with this ``variance`` each.

    The prior is that of Jeffreys, under which rare classes are as likely as common ones: no share is 0, and a share
    that vanishes in the noise is a fraction of it. An even share would cost much log loss there.
    """
    n_classes = len(noisy)
    angles = (np.arange(_ANGLES) + 0.5) * (math.pi / 2 / _ANGLES)
    shares, prior = np.sin(angles) ** 2, np.cos(angles) ** (n_classes - 2)
    centers = np.clip(noisy, shares[0], shares[-1])
    # Errors that add up to 0 are smaller. The grid is not finer than the last number.
    least = 2 * angles[0] * np.sqrt(centers * (1 - centers))
    stddev = np.maximum(math.sqrt(variance * (1 - 1 / n_classes)), 2 * least)
    exponents = -np.square((noisy[:, None] - shares) / stddev[:, None]) / 2
    weights = prior * np.exp(exponents - exponents.max(axis=1, keepdims=True))
    found = (weights @ shares) / weights.sum(axis=1)
    return np.asarray(found / found.sum())


def _constants(factors: Array, masses: Array, share: float) -> Array:
    """For every factor, the constant with which the mean chance over these masses at the knots is ``share``."""
    center = math.log(share / (1 - share))
    reach = factors * KNOTS[-1]
    low, high = center - reach, center + reach
    for _ in range(50):  # the mean chance grows with the constant
        middle = (low + high) / 2
        over = expit(middle[:, None] + factors[:, None] * KNOTS) @ masses > share
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.asarray((low + high) / 2)


def _expected_counts(default: float, n_samples: int, n_outputs: int, spread: float) -> tuple[Array, Array]:
    """Return mean and standard deviation of the counts before they are released.

    Margins are spread like a heavy-tailed law around 0. Exponential tilting moves its mass to where the log loss is
    smallest at the factor ``default``: among all laws with that property this one is closest to the first.
    """
    tau = math.sqrt(max(spread, _LEAST_SQUARE))
    masses = np.gradient(KNOTS) / (1 + np.square(KNOTS / tau)) ** 2
    masses /= masses.sum()
    step = 1e-4 * default
    near = _log_chances(np.array([default - step, default + step]), n_outputs, spread)
    slopes = near[1] - near[0]
    slopes /= max(float(np.abs(slopes).max()), 1e-300)
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(60):  # the mean slope grows with the tilt
        tilt = (low + high) / 2
        tilted = masses * np.exp(tilt * slopes)
        low, high = (low, tilt) if tilted @ slopes > 0 else (tilt, high)
    return n_samples * tilted / tilted.sum(), _UNSURE * n_samples * masses


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
