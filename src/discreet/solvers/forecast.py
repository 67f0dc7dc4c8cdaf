"""How many tries exact sampling will take, foretold from invented rows: whether to begin must not depend on the data.

The invented table has the shape of the problem, rows of the largest norm, a constant part, columns of falling weight as
tables of categories and measurements have them, and labels that a linear model explains. The forecast is the ratio of
two Gaussian integrals and a correction for the sphere; nothing is sampled. Rows without any structure (all directions
alike) need many more tries; the second forecast is for those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import log_ndtr

from discreet.bounds import Bounds
from discreet.mechanisms.gibbs import Ball
from discreet.records.arrays import ArrayRecords
from discreet.solvers import envelopes
from discreet.solvers.envelopes import Energy, Shape

Array = NDArray[np.float64]

_ROWS, _ENTRIES = 40, 1_000_000  # invented rows per column, and the most entries of the table
_FALL = 1.4  # eigenvalues of the invented second moments fall like j^-1.4; tables of categories fall faster


def invented_energy(shape: Shape, structured: bool = True) -> Energy:
    """The energy of public synthetic records; fewer rows at a higher rate stand for all."""
    records = _invented(shape, structured)
    share = records.n_samples / shape.n_samples
    return Energy(records, shape.loss, shape.rate / share, shape.l2 * share)


def _invented(shape: Shape, structured: bool) -> ArrayRecords:
    """Public synthetic records; the same for the same arguments."""
    loss, n_features, feature_norm, label_bound = (
        shape.loss,
        shape.n_features,
        shape.feature_norm,
        shape.label_bound,
    )
    rng = np.random.default_rng(0)
    n = max(400, min(_ROWS * n_features, _ENTRIES // n_features))
    weights = np.arange(1, n_features + 1) ** (-_FALL / 2) if structured else np.ones(n_features)
    rows = rng.normal(size=(n, n_features)) * weights
    if structured:
        rows[:, -1] = math.sqrt(float(np.square(weights).sum()))
    rows *= feature_norm * (1 - 1e-12) / np.linalg.norm(rows, axis=1, keepdims=True)
    truth = rng.normal(size=n_features)
    raw = rows @ truth
    raw = np.clip(raw * (2.0 / max(float(np.std(raw)), 1e-9 * feature_norm)), -30.0, 30.0)
    if loss.family in ("logistic", "monotone"):
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-raw)), 1.0, -1.0)
    else:
        y = np.clip(raw * label_bound / 4, -label_bound, label_bound)
    return ArrayRecords(rows, y, Bounds(feature_norm, intercept=False), n_threads=1)


def log_tries(energy: Energy, balls: Sequence[Ball], tilt_floor: float) -> float:
    """log of the expected number of tries per sample, by Laplace's method."""
    records, p = energy.records, energy.records.n_features
    center = envelopes.find_center(energy, balls, tilt_floor)
    value, gradient = energy.gradient(center)
    hessian = envelopes.weighted_gram(
        records, energy.loss.second_derivative(records.labels, records.raw_predictions(center))
    )
    hessian = energy.rate * (hessian + energy.l2 * np.eye(p))
    linear = gradient - hessian @ center
    tilts = envelopes.best_tilts(hessian, linear, balls, tilt_floor)
    target = _log_integral(hessian, linear, balls, tilts)
    constant = value - float(gradient @ center) + 0.5 * float(center @ hessian @ center)
    parabolas = envelopes.parabolas(energy, balls, center)
    above_tilts = envelopes.best_tilts(parabolas.precision, parabolas.linear, balls, tilt_floor)
    above = _log_integral(parabolas.precision, parabolas.linear, balls, above_tilts) - parabolas.constant
    covariance = np.linalg.inv(hessian + sum(tilts) * np.eye(p))
    log_inside = 0.0
    for ball, tilt in zip(balls, tilts, strict=True):
        # The squared distance from the center is about normal, with its mean on the sphere where the tilt is felt.
        away = covariance @ (-linear + sum(t * np.array(b.center) for t, b in zip(tilts, balls, strict=True)))
        away -= np.array(ball.center)
        spread = math.sqrt(2 * float(np.sum(covariance**2)) + 4 * float(away @ covariance @ away))
        mean = ball.radius**2 - float(np.trace(covariance)) - float(away @ away)
        log_inside += 0.5 * (tilt * spread / 2) ** 2 - tilt * mean / 2
        log_inside += float(log_ndtr(mean / spread - tilt * spread / 2))
    return max(0.0, above - (target - constant) - log_inside)


def _log_integral(precision: Array, linear: Array, balls: Sequence[Ball], tilts: Sequence[float]) -> float:
    """log of the integral of exp(-quadratic + tilts), up to a constant that depends on the dimension only."""
    p = len(linear)
    pulled = -linear + sum(t * np.array(b.center) for t, b in zip(tilts, balls, strict=True))
    factor = scipy.linalg.cholesky(precision + sum(tilts) * np.eye(p), lower=True)
    half = scipy.linalg.solve_triangular(factor, pulled, lower=True)
    value = 0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
    for tilt, ball in zip(tilts, balls, strict=True):
        value += 0.5 * tilt * (ball.radius**2 - float(np.dot(ball.center, ball.center)))
    return value


@lru_cache(maxsize=256)
def ball_tries(shape: Shape, structured: bool = True) -> float:
    """Expected tries on a ball around the origin, for invented records of this shape."""
    energy = invented_energy(shape, structured)
    balls = [Ball((0.0,) * shape.n_features, shape.radius)]
    return math.exp(min(700.0, log_tries(energy, balls, shape.tilt_floor)))
