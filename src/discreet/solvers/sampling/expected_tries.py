"""Where the parabolas of an envelope touch the losses, so that few tries are needed, and how many it takes.

The center is near the mean of exp(-energy) within the limits, under a quadratic tilt that minimizes the mass of the
envelope. Nothing here is certified: a poor center costs tries, never exactness.

The number of tries is forecast from synthetic rows, so that starting does not depend on the data. Synthetic tables have
the shape of the problem and rows of the largest norm. By default several hard tables are tried and the hardest counts:
rows spread evenly in all directions, rows that are levels of one category, and rows half of which are identical, with
labels that a linear model explains well or not at all, in various proportions. A table may also be assumed to be
structured, with a constant part and columns of decreasing weight, like many tables of categories and measurements;
these need fewer tries. The forecast is the mass of the envelope over that of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import logsumexp

from discreet._typing import Array
from discreet.mechanisms.gibbs import Region
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import one_blas_thread
from discreet.solvers.sampling.domains import Domain
from discreet.solvers.sampling.envelopes import (
    Energy,
    Limit,
    Shape,
    balls_of,
    best_tilts,
    intervals,
    parabolas,
    smallest_ball,
    symmetric_gram,
    tilt_of,
)

_ROWS, _ENTRIES = 40, 1_000_000  # synthetic rows per column, and the maximum number of entries of the table
_POINTS = 300  # samples used to estimate the mass of a target in balls
_REGION_POINTS = 2000  # the same where a region is a small part of its ball
_FALL = 1.4  # eigenvalues of the synthetic second moments decrease like j^-1.4; categorical tables decrease faster
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


Table = Callable[[Shape, np.random.Generator], ArrayRecords]

# -- the forecast ---------------------------------------------------------------------------------------------------


def tables(structured: bool = False) -> tuple[Table, ...]:
    """Return the synthetic tables."""
    return (_falling,) if structured else _HARD


def invented_energy(shape: Shape, table: Table, domain: Domain) -> Energy:
    """Return the energy of synthetic records in a set; fewer rows at a higher rate represent all."""
    records = table(shape, np.random.default_rng(0))
    share = records.n_samples / shape.n_samples
    return domain.energy(records, shape.loss, shape.rate / share, shape.l2 * share)


def _falling(shape: Shape, rng: np.random.Generator) -> ArrayRecords:
    """Columns of decreasing weight, the last one constant; labels that a linear model explains."""
    p = shape.n_features
    weights = np.arange(1, p + 1) ** (-_FALL / 2)
    rows = rng.normal(size=(_n_rows(p), p)) * weights
    rows[:, -1] = math.sqrt(float(np.square(weights).sum()))
    return _explained(shape, rows, 2.0, rng)


def _even(steepness: float, shape: Shape, rng: np.random.Generator) -> ArrayRecords:
    """Rows spread evenly; labels explained by a linear model of the given steepness (0: not explained)."""
    return _explained(shape, rng.normal(size=(_n_rows(shape.n_features), shape.n_features)), steepness, rng)


def _levels(ones: int, of: int, shape: Shape, rng: np.random.Generator) -> ArrayRecords:
    """One category, with as many levels as columns; every level has the same share of positive labels."""
    places, labels = np.divmod(np.arange(shape.n_features * of), of)
    return _records(shape, np.eye(shape.n_features)[places], np.where(labels < ones, 1.0, -1.0))


def _repeated(shape: Shape, rng: np.random.Generator) -> ArrayRecords:
    """Half of the rows are identical, the others spread evenly; one label in twenty is negative."""
    n, p = _n_rows(shape.n_features), shape.n_features
    rows = rng.normal(size=(n, p))
    rows[::2] = np.eye(p)[0]
    return _records(shape, rows, np.where(rng.random(n) < 0.95, 1.0, -1.0))


_HARD: tuple[Table, ...] = (
    *(partial(_even, steepness) for steepness in (0.0, 2.0, math.inf)),
    *(partial(_levels, ones, of) for ones, of in ((1, 2), (3, 4), (9, 10), (1, 1))),
    _repeated,
)


def _n_rows(n_features: int) -> int:
    return max(400, min(_ROWS * n_features, _ENTRIES // n_features))


def _explained(shape: Shape, rows: Array, steepness: float, rng: np.random.Generator) -> ArrayRecords:
    raw = rows @ rng.normal(size=shape.n_features) / np.linalg.norm(rows, axis=1)
    with np.errstate(invalid="ignore"):
        raw = np.clip(np.nan_to_num(raw * (steepness / max(float(np.std(raw)), 1e-9))), -30.0, 30.0)
    if shape.loss.family in ("logistic", "monotone"):
        return _records(shape, rows, np.where(rng.random(len(rows)) < 1 / (1 + np.exp(-raw)), 1.0, -1.0))
    if steepness == 0:
        raw = rng.choice([-4.0, 4.0], len(rows))
    return _records(shape, rows, np.clip(raw / 4, -1.0, 1.0))


def _records(shape: Shape, rows: Array, labels: Array) -> ArrayRecords:
    """Scale rows to the largest norm, and labels in [-1, 1] to their bound."""
    scales = shape.feature_norm * (1 - 1e-12) / np.linalg.norm(rows, axis=1, keepdims=True)
    bound = 1.0 if shape.loss.family in ("logistic", "monotone") else shape.label_bound
    return ArrayRecords(
        rows * scales, labels * bound, Bounds(shape.feature_norm, intercept=False), n_threads=1
    )


def log_tries(
    energy: Energy, limits: Sequence[Limit], tilt_floor: float, region: Region | None = None
) -> float:
    """Return the log of the expected number of tries per sample: the mass of the envelope over that of the target."""
    with one_blas_thread:  # matrices are small; a team of threads takes five times as long
        theta, tilts = tilted_minimum(energy, limits, tilt_floor)
        _, above = best_center(energy, limits, tilt_floor, theta, tilts)
        return max(0.0, above - _log_mass(energy, limits, tilt_floor, theta, region))


def _log_mass(
    energy: Energy, limits: Sequence[Limit], tilt_floor: float, theta: Array, region: Region | None
) -> float:
    """Estimate the log of the integral of exp(-energy) over the balls, by importance sampling from similar Gaussians.

    Up to the same constant as for the envelope. A Gaussian that fits badly underestimates, so the largest estimate
    counts.
    """
    records = energy.records
    invented = np.random.default_rng(1)
    count = _POINTS if region is None else _REGION_POINTS
    normal = invented.normal(size=(count, len(theta)))
    reach = reach_of(energy, limits)
    best = -math.inf
    for _ in range(3):
        bends = curvature(energy, theta, reach)
        linear = smooth_gradient(energy, theta, reach)[1] - bends @ theta
        tilts = best_tilts(bends, linear, limits, tilt_floor)
        matrix, pull, _ = tilt_of(limits, tilts, len(theta))
        factor = scipy.linalg.cholesky(bends + matrix, lower=True)
        mean = scipy.linalg.cho_solve((factor, True), pull - linear)
        points = mean + scipy.linalg.solve_triangular(factor, normal.T, lower=True, trans=1).T
        inside = np.ones(count, dtype=bool) if region is None else region.contains(points)
        for ball in balls_of(limits):
            inside &= np.square(points - np.array(ball.center)).sum(axis=1) <= ball.radius**2
        logs = 0.5 * np.square(normal[inside]).sum(axis=1) - energy.at(points[inside])
        total = float(logsumexp(logs)) if len(logs) else -math.inf
        found = total - math.log(count) - float(np.log(np.diag(factor)).sum())
        best = max(best, found)
        reach = spread_of(records, bends + matrix)  # then average corners over this spread
    return best


def set_tries(shape: Shape, domain: Domain, structured: bool = False, enough: float = math.inf) -> float:
    """Return the expected tries in a set, for the hardest synthetic table of this shape.

    Stops at the first table that needs more than ``enough`` tries.
    """
    most = 0.0
    for table in tables(structured):
        most = max(most, _set_tries(shape, domain, table))
        if most > enough:
            break
    return most


@lru_cache(maxsize=2048)
def _set_tries(shape: Shape, domain: Domain, table: Table) -> float:
    energy = invented_energy(shape, table, domain)
    return math.exp(min(700.0, log_tries(energy, domain.limits, shape.tilt_floor, domain.region)))
