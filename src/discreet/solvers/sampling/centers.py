"""Choose where the parabolas of an envelope touch the losses, so that few tries are needed.

The center is near the mean of exp(-energy) within the limits, under a quadratic tilt that minimizes the
mass of the envelope. Nothing here is certified: a poor center costs tries, never exactness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.optimize

from discreet._typing import Array
from discreet.records.arrays import ArrayRecords
from discreet.records.clipped_rows import one_blas_thread
from discreet.solvers.sampling.envelopes import (
    Energy,
    Limit,
    best_tilts,
    intervals,
    parabolas,
    smallest_ball,
    symmetric_gram,
    tilt_of,
)

_STEPS = 12
_FACTORS = (4.0, 0.25, 2.0, 0.5)  # by which tilts are multiplied
_MOVES = 32  # with one factor; more than a few are never worth it
_WORTH_A_MOVE = 0.1  # nats by which a move must reduce the log mass of an envelope
_ITERATIONS, _TRIALS = 100, 20  # of L-BFGS and of one line search


def most_passes(n_features: int, n_limits: int) -> int:
    """Bound the passes over the records that `find_center` and the envelope at its answer take, from public sizes."""
    gradients = 2 * (1 + _ITERATIONS * (_TRIALS + 1))  # a hinge takes two passes
    one = gradients + n_features + n_limits + 8  # and curvature, averaging and an envelope
    return (2 + _STEPS + len(_FACTORS) * _MOVES) * one


def find_center(energy: Energy, limits: Sequence[Limit], tilt_floor: float) -> Array:
    """Return the point where the parabolas touch."""
    with one_blas_thread:
        return best_center(energy, limits, tilt_floor, *tilted_minimum(energy, limits, tilt_floor))[0]


def best_center(
    energy: Energy, limits: Sequence[Limit], tilt_floor: float, theta: Array, tilts: list[float]
) -> tuple[Array, float]:
    """Try the minima of the energy under several tilts; return the best, and the log mass of its envelope.

    The best tilt for the target need not be the best one for an envelope above it.
    """
    lowest = log_mass_above(energy, limits, theta, tilt_floor)
    reach = reach_of(energy, limits)
    bends = curvature(energy, theta, reach)
    reach = _averaging(energy, reach, bends, limits, tilts)
    for factor in _FACTORS:
        for _ in range(_MOVES):
            pulls = [max(tilt_floor, factor * tilt) for tilt in tilts]
            moved = _minimum(energy, limits, pulls, bends, theta, reach)
            found = log_mass_above(energy, limits, moved, tilt_floor)
            if not found < lowest - _WORTH_A_MOVE:
                break
            theta, tilts, lowest = moved, pulls, found
    return theta, lowest


def tilted_minimum(energy: Energy, limits: Sequence[Limit], tilt_floor: float) -> tuple[Array, list[float]]:
    """Approximate the mean of exp(-energy) within the limits: the minimum under the tilt of a quadratic model."""
    smallest = smallest_ball(limits)
    theta = np.array(smallest.center)
    reach = widest = reach_of(energy, limits)
    for _ in range(_STEPS):
        bends, gradient = curvature(energy, theta, widest), smooth_gradient(energy, theta, reach)[1]
        tilts = best_tilts(bends, gradient - bends @ theta, limits, tilt_floor)
        reach = _averaging(energy, widest, bends, limits, tilts)
        moved = _minimum(energy, limits, tilts, bends, theta, reach)
        step, theta = float(np.linalg.norm(moved - theta)), moved
        if step < 1e-3 * smallest.radius:
            break
    return theta, tilts


def _minimum(
    energy: Energy,
    limits: Sequence[Limit],
    tilts: Sequence[float],
    bends: Array,
    start: Array,
    reach: Array,
) -> Array:
    """Approximate the minimum of the energy plus the tilt to a tenth of a nat, in coordinates with unit curvature.

    A hinge is averaged over ``reach``: its minimum lies on corners, where descent would get stuck.
    """
    matrix, pull, _ = tilt_of(limits, tilts, len(start))
    factor = scipy.linalg.cholesky(bends + matrix, lower=True)

    def value(moved: Array) -> tuple[float, Array]:
        theta = scipy.linalg.solve_triangular(factor, moved, lower=True, trans=1)
        total, gradient = smooth_gradient(energy, theta, reach)
        tilt = matrix @ theta
        total += 0.5 * float(theta @ tilt) - float(pull @ theta)
        gradient = gradient + tilt - pull
        return total, scipy.linalg.solve_triangular(factor, gradient, lower=True)

    found = scipy.optimize.minimize(
        value,
        factor.T @ start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS, "maxls": _TRIALS, "gtol": 1e-2, "ftol": 1e-13},
    )
    return np.asarray(scipy.linalg.solve_triangular(factor, found.x, lower=True, trans=1))


def smooth_gradient(energy: Energy, theta: Array, reach: Array) -> tuple[float, Array]:
    """Return the energy and its gradient; a hinge is averaged over ``reach`` on either side of its prediction."""
    if math.isfinite(energy.loss.smoothness):
        return energy.gradient(theta)
    records, loss, y = energy.records, energy.loss, energy.records.labels
    raw, used = energy.raw(theta), records.scales > 0
    nodes, weights = np.polynomial.legendre.leggauss(8)
    means = sum(
        0.5 * weight * loss.value(y, raw + node * reach) for node, weight in zip(nodes, weights, strict=True)
    )
    slopes = (loss.value(y, raw + reach) - loss.value(y, raw - reach)) / (2 * reach)
    total = float(np.sum(np.where(used, means, 0.0))) + 0.5 * energy.l2 * float(theta @ theta)
    gradient = records.weighted_sum(np.where(used, slopes, 0.0)) + energy.l2 * theta
    return energy.rate * total, energy.rate * gradient


def _averaging(
    energy: Energy, widest: Array, bends: Array, limits: Sequence[Limit], tilts: Sequence[float]
) -> Array:
    """Return the distance over which a hinge is averaged around its prediction: the spread of the prediction."""
    if math.isfinite(energy.loss.smoothness):
        return widest
    return np.minimum(widest, spread_of(energy.records, bends + tilt_of(limits, tilts, len(bends))[0]))


def spread_of(records: ArrayRecords, precision: Array) -> Array:
    """Return the half-width of a uniform distribution with the spread of predictions under this precision."""
    factor = scipy.linalg.cholesky(precision, lower=True)
    columns = scipy.linalg.solve_triangular(factor, np.eye(len(precision)), lower=True)
    squares = np.zeros(records.n_samples)
    for column in columns:
        squares += np.square(records.raw_predictions(column))
    return np.maximum(np.sqrt(3 * squares), 1e-9)


def reach_of(energy: Energy, limits: Sequence[Limit]) -> Array:
    """Return how far around a prediction corners matter, at most what the limits allow."""
    low, high = intervals(energy, limits)
    return np.clip(0.5 * (high - low), 1e-9, 1.0)


def curvature(energy: Energy, theta: Array, reach: Array) -> Array:
    """Return the Hessian with f'' averaged over ``reach`` on either side of a prediction, which smooths corners."""
    records, y = energy.records, energy.records.labels
    raw = energy.raw(theta)
    rise = energy.loss.derivative(y, raw + reach) - energy.loss.derivative(y, raw - reach)
    bends = np.where(records.scales > 0, np.maximum(rise, 0.0) / (2 * reach), 0.0)
    hessian = energy.rate * symmetric_gram(records, bends)
    hessian[np.diag_indices(len(theta))] += energy.rate * energy.l2
    return hessian


def log_mass_above(energy: Energy, limits: Sequence[Limit], center: Array, tilt_floor: float) -> float:
    """Return the log mass of the envelope that touches at ``center``, up to a constant."""
    below = parabolas(energy, limits, center)
    tilts = best_tilts(below.precision, below.linear, limits, tilt_floor)
    matrix, pull, constant = tilt_of(limits, tilts, len(center))
    factor = scipy.linalg.cholesky(below.precision + matrix, lower=True)
    half = scipy.linalg.solve_triangular(factor, pull - below.linear, lower=True)
    return 0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum()) - below.constant - constant
