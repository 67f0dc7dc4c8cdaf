"""Posterior mean of the coefficients, updated with each noisy gradient.

Everything here is post-processing of released numbers; it never sees a record. `Aim` sets the next cap on a record's
derivative and the resulting mean slope, ``factor``. Near the solution a sum of gradients is ``factor`` times the
curvature times the distance to it, plus Gaussian noise of known size. With a Gaussian prior, the posterior mean is a
ridge solution over all gradients so far, weighted by their precision. The scale of the prior maximizes the likelihood
of the released numbers. Accuracy: docs/proofs/second-order-regression.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri

from discreet._typing import Array
from discreet.losses import HuberRegression, Loss
from discreet.solvers.gradients.descent import project
from discreet.solvers.second_order.coordinates import NoisyMoments

_WEAK = 0.2  # in units of the matrix noise, added to the mean of the eigenvalues hidden by noise
_LARGEST_PRIOR, _PRIORS = 3.0, 14  # largest multiple of the declared prior to try, and how many to try
_SMALLEST_SHARE = 0.2  # of derivatives that are not clipped; a smaller one would make steps too long
_MEDIAN = 0.6  # the cap of a median, over that of a mean
_SURENESS = 1.6  # standard deviation of the logarithm of the prior's multiple


@dataclass(frozen=True)
class Curvature:
    """A positive matrix computed from a noisy second moment, and the standard deviation of an entry of its noise."""

    matrix: Array
    error: float

    @classmethod
    def from_moments(cls, noisy: NoisyMoments, shape: Array) -> Curvature:
        """Return the second moment of the records shape^T v, from the noisy one of the records v.

        Eigenvalues hidden by noise are not known individually, but their sum is: each is replaced by their mean plus a
        fifth of the noise. Setting them to 0 would forbid any step along them.
        """
        eigenvalues, vectors = np.linalg.eigh(shape.T @ noisy.second @ shape)
        hidden = eigenvalues < noisy.matrix_noise
        if hidden.any():
            eigenvalues[hidden] = max(float(eigenvalues[hidden].mean()), 0.0) + _WEAK * noisy.matrix_noise
        shrunk = float(np.square(shape).sum()) / len(shape)  # the mean square of its singular values
        return cls((vectors * eigenvalues) @ vectors.T, noisy.second_stddev * shrunk)


def prior_root(matrix: Array, variances: Array) -> Array:
    """Return C with C C^T the prior covariance of theta', where theta = matrix theta' has independent entries."""
    return np.asarray(np.linalg.solve(matrix, np.diag(np.sqrt(variances))))


@dataclass(frozen=True)
class _Seen:
    """One gradient: its mean square, the curvature times the point it implies, its precision, and its noise."""

    steepness: float
    pull: Array
    factor: float
    variance: float
    doubt: float
    stddev: float


class PosteriorMean:
    """Posterior mean of the coefficients given all gradients so far.

    Parameters
    ----------
    curvature : curvature of the summed loss for a derivative of slope 1.
    root : C of the prior covariance C C^T (`prior_root`).
    start : mean of the prior; None for 0.
    radius : every ``theta`` lies in the ball of this radius.
    least_prior : the smallest multiple of the prior covariance that is considered.
    curvature_weight : fraction of the curvature's own noise that counts as gradient noise.
    """

    def __init__(
        self,
        curvature: Curvature,
        root: Array,
        start: Array | None = None,
        *,
        radius: float = math.inf,
        least_prior: float = 0.01,
        curvature_weight: float = 0.25,
    ) -> None:
        self.curvature = curvature
        self._start = np.zeros(len(root)) if start is None else start
        # Diagonalize both: basis^T P^-1 basis = 1 for the prior P, basis^T H^2 basis = diag(strengths).
        pulled, strengths, rotation = np.linalg.svd(curvature.matrix @ root)
        self._strengths, self._pulled = np.square(strengths), pulled * strengths  # H basis
        self._basis = root @ rotation.T
        self._priors = np.geomspace(least_prior, _LARGEST_PRIOR, _PRIORS)
        self._weight, self._radius = curvature_weight, radius
        self._seen: list[_Seen] = []
        self._gains: list[Array] = []  # after each gradient: theta, of what all of them pull, in the basis
        self._sureness, self.prior = 0.0, 1.0
        self.theta: Array = project(self._start[None], radius)[0]

    @property
    def variance(self) -> float:
        """Remaining mean squared distance from the truth, summed over coordinates."""
        left = self.prior / (1 + self.prior * self._sureness * self._strengths)
        return float(np.square(self._basis).sum(axis=0) @ left)

    def update(self, gradient: Array, stddev: float, factor: float, doubt: float = 0.0) -> Array:
        """Add a noisy sum of gradients of the loss at ``theta`` and return the new ``theta``.

        Parameters
        ----------
        gradient, stddev : the release, and the noise in each entry.
        factor : mean slope of the derivatives, which multiplies the curvature.
        doubt : relative error of the factor, as a share of the gradient. Gradients more than twice as long as this one
            count less, because they were taken too far from the solution.
        """
        unsure = self._weight * (factor * self.curvature.error) ** 2 * self.variance
        pull = factor * (self.curvature.matrix @ (self.theta - self._start)) - gradient
        steepness = float(np.mean(np.square(gradient)))
        self._seen.append(_Seen(steepness, pull, factor, stddev**2 + unsure, doubt, stddev))
        total = np.zeros(len(self._start))
        self._sureness = 0.0
        for one in self._seen:
            variance = one.variance + one.doubt**2 * max(0.0, one.steepness - 4 * steepness)
            total += one.factor / variance * one.pull
            self._sureness += one.factor**2 / variance
        along = self._pulled.T @ total
        known = self._sureness * self._strengths
        self.prior = self._likeliest(along, known)
        self._gains.append(self.prior / (1 + self.prior * known))
        found = self._start + self._basis @ (self._gains[-1] * along)
        self.theta = np.asarray(project(found[None], self._radius)[0])
        return self.theta

    def noise_covariance(self, slope: Array) -> Array:
        """Covariance that the noise of all gradients leaves in ``theta``, to first order, at the priors that were used.

        ``slope`` is the matrix by which sums of gradients change with the coefficients. Noise of an early gradient
        moves all later points, and sums taken there answer by it, not by the curvature that was assumed.
        """
        answer, covariance = self._pulled.T @ slope @ self._basis, np.zeros_like(slope)
        gains = np.zeros(len(slope))
        for one, after in zip(self._seen, self._gains, strict=True):
            weight = one.factor / one.variance
            moved = np.diag(1 + weight * one.factor * self._strengths * gains) - weight * answer * gains
            covariance = moved @ covariance @ moved.T + np.diag((weight * one.stddev) ** 2 * self._strengths)
            gains = after
        half = self._basis * gains
        return np.asarray(half @ covariance @ half.T)

    def _likeliest(self, along: Array, known: Array) -> float:
        """Return the multiple of the prior, among those tried, that maximizes the likelihood."""
        scores = np.square(along) / np.maximum(known, 1e-12)
        spread = 1 + self._priors[:, None] * known
        evidence = -0.5 * (np.log(spread) + scores / spread).sum(axis=1)
        evidence -= 0.5 * np.square(np.log(self._priors) / _SURENESS)
        return float(self._priors[int(np.argmax(evidence))])


class ResidualScale:
    """The standard deviation of residuals, tracked through the companions of clipped gradients.

    Each update is an extended Kalman filter step on its logarithm, for normal residuals.

    Parameters
    ----------
    scale : initial value; its logarithm has a standard deviation of one half.
    """

    def __init__(self, scale: float) -> None:
        self._log, self._variance = math.log(scale), 0.25

    @property
    def scale(self) -> float:
        """The standard deviation."""
        return math.exp(self._log)

    def update(self, mean_square: float, stddev: float, cap: float) -> None:
        """Add a noisy mean of min(1, r^2 / cap^2) over the records."""
        ratio = cap / self.scale
        expected = clipped_square(ratio)
        slope = (clipped_square(ratio * math.exp(-0.05)) - clipped_square(ratio * math.exp(0.05))) / 0.1
        noise = stddev**2 + (0.04 * expected) ** 2  # residuals are not quite normal
        gain = self._variance * slope / (slope**2 * self._variance + noise)
        self._log += min(0.7, max(-0.7, gain * (mean_square - expected)))
        self._variance = (1 - gain * slope) * self._variance + 0.01


def clipped_square(ratio: float) -> float:
    """Return the mean of min(1, r^2 / cap^2) for a normal r, with cap = ratio standard deviations.

    >>> round(clipped_square(1.0), 4), round(clipped_square(10.0), 6)
    (0.5161, 0.01)
    """
    ratio = max(ratio, 0.01)
    beyond = 2 * float(ndtr(-ratio))
    density = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return (1 - beyond - 2 * ratio * density) / ratio**2 + beyond


def unclipped_share(ratio: float) -> float:
    """Return the share of normal residuals within ``ratio`` standard deviations: the mean slope of a clipped residual.

    >>> round(unclipped_share(1.0), 4)
    0.6827
    """
    return 1 - 2 * float(ndtr(-ratio))


@dataclass(frozen=True)
class Aim:
    """The target of a series of gradients.

    Attributes
    ----------
    loss : the loss whose derivatives are summed.
    n_steps : number of gradients.
    widest : the largest cap.
    multiple : the cap, in standard deviations of residuals.
    shape : how the slope of derivatives follows from the residuals: "residual" (that of a clipped residual), "mean"
        (the predicted mean of counts, clipped) or "density" (of residuals at their quantile ``at``).
    reach : allowed distance of the coefficients from the start, in units of the prior.
    shift : initial shift of the predictions.
    """

    loss: Loss
    n_steps: int
    scale: ResidualScale
    widest: float
    multiple: float = math.inf
    shape: Literal["residual", "mean", "density"] = "residual"
    at: float = field(default=0.0, kw_only=True)
    reach: float = field(default=1.0, kw_only=True)
    shift: float = field(default=0.0, kw_only=True)

    @property
    def cap(self) -> float:
        """The cap for the current estimate of the residual scale."""
        return min(self.widest, self.multiple * self.scale.scale)

    def felt(self, cap: float, mean: float, variance: float) -> tuple[float, float]:
        """Return the mean slope of derivatives, for predictions of this mean and variance, and its relative error."""
        if self.shape == "density":
            return math.exp(-(self.at**2) / 2) / math.sqrt(2 * math.pi) / self.scale.scale, 0.5
        share = max(_SMALLEST_SHARE, unclipped_share(cap / self.scale.scale))
        if self.shape == "residual":
            return share, 1 - share
        bound = self.loss.prediction_bound
        return share * math.exp(min(bound, max(-bound, mean + variance / 2))), 0.5


def clip_multiple(per_column: float) -> float:
    """Return the cap in standard deviations: small caps need little noise but are biased if targets are skewed.

    ``per_column`` is the signal over noise, divided by the number of columns.
    """
    return float(max(0.8, 0.6 * per_column**0.3))


def aims_of(loss: Loss, per_column: float, n_steps: int, cap: float | None) -> Iterator[Aim]:
    """Yield the targets of a fit, one series of gradients after the other."""
    multiple = clip_multiple(per_column)
    most = loss.lipschitz if cap is None else cap
    if loss.aims_at == "count":
        middle = (loss.label_bound or 1.0) / 2
        widest = min(most, middle * max(1.0, multiple / 4))
        reach = loss.prediction_bound
        yield Aim(loss, n_steps, ResidualScale(middle / 2), widest, multiple, "mean", reach=reach)
        return
    scale, widest = ResidualScale(0.5), min(2.0, max(1.0, multiple / 4))
    if loss.aims_at == "mean":
        yield Aim(loss, n_steps, scale, min(most, widest), multiple)
        return
    # First the median residual and the residual scale; then the quantile, which is near, most of all to a median.
    centering, at = (n_steps + 1) // 2, float(ndtri(loss.quantile))
    yield Aim(HuberRegression(widest), centering, scale, widest, _MEDIAN * multiple)
    if n_steps > centering:
        reach = min(1.0, (2.0 - min(1.0, abs(at))) * scale.scale)
        yield Aim(
            loss, n_steps - centering, scale, most, shape="density", at=at, reach=reach, shift=at * scale.scale
        )  # fmt: skip
