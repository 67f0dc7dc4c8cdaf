"""Gaussian envelopes above exp(-energy) on balls, for energies that are sums of losses of a linear model.

Every record's loss is bounded from below by a parabola that touches it. The parabolas add up to a quadratic form,
the exponent of a Gaussian. For every ball a multiple of |theta - center|^2 - radius^2 <= 0 is added, which moves the
Gaussian's mass into the balls. The remaining constant is computed with bounds on all rounding errors, so the envelope
holds for the computed numbers. Proofs: docs/proofs/exponential-sampling.md, sections 4 and 5.

The price of the exponential mechanism depends on the range of the difference of two neighbors' energies, not on its
size: how much more one record can move the sum of losses at one theta than at another (section 1 of the proofs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize

from discreet._typing import Array
from discreet.losses import Loss
from discreet.mechanisms.gibbs import Ball, Envelope, LatticeGaussian, power_of_two_below
from discreet.privacy.guarantee import SLACK, Neighboring
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import UNIT_ROUNDOFF, gamma, squared_norms, worst_additions


def energy_range(
    loss: Loss,
    n_samples: int,
    n_features: int,
    reach: float,
    label_bound: float | None,
    neighboring: Neighboring,
) -> float:
    """Return max - min over a ball of the difference of two neighbors' sums of losses, as computed in float64."""
    exact = neighboring.contributions * loss.value_range(reach, label_bound)
    rounding = value_rounding(loss, n_samples, n_features, reach, label_bound or 0.0)
    return (exact + 4 * rounding) * SLACK


def value_rounding(loss: Loss, n_samples: int, n_features: int, reach: float, label_bound: float) -> float:
    """Bound |computed - exact| for a sum of n losses at any theta with raw predictions up to ``reach``.

    Uses public numbers only. Covers rounding of the raw predictions, of the loss (64 units) and of the sum.
    """
    roundings = n_features + worst_additions(n_samples) + 96
    return 1.02 * n_samples * loss.value_scale(reach, label_bound) * gamma(roundings) + 2.0**-400


@dataclass(frozen=True)
class Slab:
    """Points with |<direction, theta> - middle| <= radius, for a direction of norm at most 1.

    An envelope may use what is known of all candidates besides the balls they lie in.
    """

    direction: tuple[float, ...]
    middle: float
    radius: float


Limit = Ball | Slab


def balls_of(limits: Sequence[Limit]) -> list[Ball]:
    """Return the balls among the limits."""
    return [limit for limit in limits if isinstance(limit, Ball)]


def smallest_ball(limits: Sequence[Limit]) -> Ball:
    """Return the smallest of the balls."""
    return min(balls_of(limits), key=lambda ball: ball.radius)


def tilt_of(limits: Sequence[Limit], tilts: Sequence[float], size: int) -> tuple[Array, Array, float]:
    """Return (N, c, k) with theta^T N theta / 2 - <c, theta> + k = sum_b tilts_b (distance_b^2 - radius_b^2) / 2."""
    matrix, pull, constant = np.zeros((size, size)), np.zeros(size), 0.0
    for limit, tilt in zip(limits, tilts, strict=True):
        if isinstance(limit, Ball):
            center = np.array(limit.center)
            matrix[np.diag_indices(size)] += tilt
            pull += tilt * center
            constant += 0.5 * tilt * (float(center @ center) - limit.radius**2)
    ways, middles, radii = _slabs(limits, size)
    each = np.array([t for t, limit in zip(tilts, limits, strict=True) if isinstance(limit, Slab)])
    if len(each):
        product = (ways * each[:, None]).T @ ways
        matrix += 0.5 * (product + product.T)
        pull += (each * middles) @ ways
        constant += 0.5 * float(each @ (middles**2 - radii**2))
    return matrix, pull, constant


def _slabs(limits: Sequence[Limit], size: int) -> tuple[Array, Array, Array]:
    """Return the directions, middles and radii of the slabs among the limits."""
    slabs = [limit for limit in limits if isinstance(limit, Slab)]
    ways = np.array([slab.direction for slab in slabs]).reshape(len(slabs), size)
    return ways, np.array([slab.middle for slab in slabs]), np.array([slab.radius for slab in slabs])


_NEAR = 0.02  # this close to an end of its interval, a parabola takes its curvature from f''
_EXACT_STEPS = 2.0**50
_PARTS, _LEAST_ROWS = 32, 512  # how the records are split for early rejections


def symmetric_gram(records: ArrayRecords, weights: Array) -> Array:
    """Return sum_i weights_i v_i v_i^T for weights >= 0, symmetric to the last bit."""
    gram = records.gram(weights)
    return np.asarray(0.5 * (gram + gram.T))


@dataclass(frozen=True)
class Energy:
    """energy(theta) = rate (sum of losses + l2 |theta|^2 / 2), a float64 function of theta and the data.

    Record i predicts <v_i, theta> + offsets_i; without offsets, <v_i, theta>.
    """

    records: ArrayRecords
    loss: Loss
    rate: float
    l2: float = 0.0
    offsets: Array | None = None

    def __call__(self, theta: Array) -> float:
        """Return the energy, in one pass over the records."""
        if self.offsets is None:
            value, _ = self.records.value_and_gradient(self.loss, theta)
        else:
            value = math.fsum(self._losses(self.raw(theta)).tolist())
        return self.rate * value + 0.5 * self.rate * self.l2 * float(theta @ theta)

    def raw(self, theta: Array) -> Array:
        """Return the predictions of all records."""
        linear = self.records.raw_predictions(theta)
        return linear if self.offsets is None else np.asarray(linear + self.offsets)

    def reach(self, radius: float) -> float:
        """Bound the predictions at every theta of norm at most ``radius``."""
        farthest = 0.0 if self.offsets is None else float(np.max(np.abs(self.offsets), initial=0.0))
        return self.records.bounds.feature_norm * radius + farthest

    def _losses(self, raw: Array) -> Array:
        values = self.loss.value(self.records.labels, raw)
        return np.asarray(np.where(self.records.scales > 0, values, 0.0))

    def at(self, points: Array) -> Array:
        """Return the energies at several points, one per row; dense tables only, up to rounding, not for samplers."""
        records = self.records
        dots = np.asarray(records.matrix @ points[:, : records.n_columns].T)
        if records.bounds.intercept:
            dots = dots + points[:, -1]
        used = records.scales > 0
        raw = dots[used] * records.scales[used, None]
        if self.offsets is not None:
            raw = raw + self.offsets[used, None]
        labels = np.broadcast_to(records.labels[used, None], raw.shape)
        total = self.loss.value(labels, raw).sum(axis=0)
        return np.asarray(self.rate * (total + 0.5 * self.l2 * np.square(points).sum(axis=1)))

    def gradient(self, theta: Array) -> tuple[float, Array]:
        """Return the energy and its gradient."""
        if self.offsets is None:
            value, gradient = self.records.value_and_gradient(self.loss, theta)
        else:
            raw = self.raw(theta)
            value = float(self._losses(raw).sum())
            slopes = self.loss.derivative(self.records.labels, raw)
            gradient = self.records.weighted_sum(np.where(self.records.scales > 0, slopes, 0.0))
        total = value + 0.5 * self.l2 * float(theta @ theta)
        return self.rate * total, self.rate * (gradient + self.l2 * theta)


def record_norms(records: ArrayRecords) -> Array:
    """Return upper bounds on the norms |v_i|, 0 for null records."""
    one = 1.0 if records.bounds.intercept else 0.0
    norms = np.zeros(records.n_samples)
    with np.errstate(all="ignore"):
        for rows, squares in squared_norms(records.matrix):
            norms[rows] = records.scales[rows] * np.sqrt(squares + one) * SLACK
    usable = np.isfinite(norms) & (records.scales > 0)
    norms = np.where(usable, norms, np.where(records.scales > 0, records.bounds.feature_norm, 0.0))
    return np.asarray(np.minimum(norms, records.bounds.feature_norm))


def intervals(energy: Energy, limits: Sequence[Limit]) -> tuple[Array, Array]:
    """Return, for every record, an interval that contains its raw prediction at every theta in all balls."""
    records = energy.records
    norms = record_norms(records)
    low, high = np.full(records.n_samples, -math.inf), np.full(records.n_samples, math.inf)
    for ball in balls_of(limits):
        center = np.array(ball.center)
        middle = records.raw_predictions(center) if np.any(center) else np.zeros(records.n_samples)
        reach = norms * ball.radius * SLACK + 2.0**-36 * norms * float(np.linalg.norm(center)) + 2.0**-500
        if energy.offsets is not None:
            middle = middle + energy.offsets
            reach = reach + 2.0**-36 * np.abs(energy.offsets)
        low, high = np.maximum(low, middle - reach), np.minimum(high, middle + reach)
    return low, high


def minorant_curvatures(loss: Loss, y: Array, z: Array, low: Array, high: Array, scale: float) -> Array:
    """Return the curvature a with f(t) >= f(z) + f'(z)(t - z) + a (t - z)^2 / 2 on [low, high].

    If f'' rises and then falls, the best a is found at an end of the interval (Lemma 4). Close to z the formula
    cancels, and the smaller of two second derivatives is used instead. Rounding errors are subtracted from a.
    """
    value, slope, bend = loss.value(y, z), loss.derivative(y, z), loss.second_derivative(y, z)
    slope_error = slope_rounding(loss)
    best = np.full(len(z), 4.0 * loss.lipschitz / _NEAR)
    for end in (low, high):
        gap = end - z
        near = np.abs(gap) < _NEAR
        wide = np.where(near, 1.0, gap)
        error = 2.0**-44 * scale + slope_error * np.abs(wide)
        parabola = 2.0 * (loss.value(y, end) - value - slope * wide - error) / wide**2
        best = np.minimum(best, np.where(near, np.minimum(bend, loss.second_derivative(y, end)), parabola))
    return np.asarray(np.maximum(best * (1 - 2.0**-36), 0.0))


@dataclass(frozen=True, eq=False)
class Parabolas:
    """constant + <linear, theta> + theta^T precision theta / 2 <= energy(theta) on the balls, up to rounding."""

    precision: Array
    linear: Array
    constant: float
    z: Array
    bends: Array
    rounding: float


def parabolas(energy: Energy, limits: Sequence[Limit], center: Array) -> Parabolas:
    """Sum the parabolas of all records that touch at ``center``, with a bound on all rounding errors."""
    records, loss, rate = energy.records, energy.loss, energy.rate
    y, n, p = records.labels, records.n_samples, records.n_features
    low, high = intervals(energy, limits)
    z = np.clip(energy.raw(center), low, high)
    radius = outer_radius(limits)
    reach = energy.reach(radius)
    label_bound = float(np.max(np.abs(y), initial=0.0))
    scale = loss.value_scale(reach, label_bound)
    bends = minorant_curvatures(loss, y, z, low, high, scale)
    bends[records.scales == 0] = 0.0
    slopes = loss.derivative(y, z)
    along = (
        z if energy.offsets is None else z - energy.offsets
    )  # what <v, theta> is where the parabola touches
    linear = rate * records.weighted_sum(slopes - bends * along)
    precision = rate * symmetric_gram(records, bends)
    precision[np.diag_indices(p)] += rate * energy.l2
    constants = np.where(
        records.scales > 0, loss.value(y, z) - slopes * along + 0.5 * bends * along * along, 0.0
    )
    terms = n * (scale + loss.lipschitz * reach + float(np.max(bends, initial=0.0)) * reach**2)
    rounding = 4 * terms * gamma(n + p + 128) + 2 * n * reach * slope_rounding(loss)
    if math.isfinite(loss.smoothness):  # a rounded z may be on the wrong side of a jump of f''
        rounding += n * loss.smoothness * scale * 2.0**-52
    rounding += value_rounding(loss, n, p, reach, label_bound) + energy.l2 * radius**2 * 2.0**-48
    return Parabolas(precision, linear, rate * float(constants.sum()), z, bends, rate * rounding)


def slope_rounding(loss: Loss) -> float:
    """Bound the rounding of a computed f'; a derivative that jumps, like the hinge's, is computed exactly."""
    units = loss.evaluation_error if math.isfinite(loss.evaluation_error) else 0.0
    return (units + 2) * UNIT_ROUNDOFF * loss.lipschitz


def build(energy: Energy, limits: Sequence[Limit], grid: float, center: Array, tilt_floor: float) -> Envelope:
    """Build an envelope of exp(-energy) on the points within all limits, from parabolas that touch at ``center``.

    Any ``center`` is valid: a poor one costs tries, never exactness. `centers` finds good ones. The search for tilts
    ends if the set passes `domains.check_exact`.
    """
    p, radius = energy.records.n_features, outer_radius(limits)
    below = parabolas(energy, limits, center)
    tilts = best_tilts(below.precision, below.linear, limits, tilt_floor)
    while True:
        matrix, pull, constant = tilt_of(limits, tilts, p)
        tilted, pulled = below.precision + matrix, pull - below.linear
        factor = scipy.linalg.cholesky(tilted, lower=True)
        mean = scipy.linalg.cho_solve((factor, True), pulled)
        proposal = LatticeGaussian(mean, factor, grid)
        if proposal.farthest_center(radius) < _EXACT_STEPS * grid:
            break
        # Sums of centers and noise must be exact in float64. Balls round the proposal; slabs would flatten it.
        tilts = [
            4 * tilt if isinstance(limit, Ball) else tilt for tilt, limit in zip(tilts, limits, strict=True)
        ]

    # Measure the residual of the factor and the mean, with a bound on the rounding of the measurement.
    norm = float(np.linalg.norm(mean))
    weight = float(np.linalg.norm(factor)) ** 2 + float(np.linalg.norm(tilted))
    rounded = 4 * gamma(p + len(limits) + 8)
    residual = float(np.linalg.norm(factor @ factor.T - tilted)) + rounded * (weight + p * sum(tilts))
    away = sum(tilt * _distance(limit) for tilt, limit in zip(tilts, limits, strict=True))
    left = float(np.linalg.norm(tilted @ mean - pulled))
    left += rounded * (weight * norm + float(np.linalg.norm(pulled)) + away)
    slack = below.rounding + 0.5 * residual * (radius + norm) ** 2 + radius * left + proposal.excess(radius)
    log_bound = 0.5 * float(mean @ tilted @ mean) - below.constant - constant
    widest = sum(limit.radius + _distance(limit) for limit in limits)
    size = weight * norm**2 + abs(below.constant) + sum(tilts) * widest**2
    log_bound += slack * SLACK + 2.0**-44 * (p + len(limits) + 8) * size
    refine = Remainders(energy, below.z, below.bends, below.rounding + 2.0**-20)
    kept = tuple(tilt for tilt, limit in zip(tilts, limits, strict=True) if isinstance(limit, Ball))
    return Envelope(proposal, kept, log_bound, refine)


def _distance(limit: Limit) -> float:
    """Return how far the middle of a limit is from the origin."""
    return float(np.linalg.norm(limit.center)) if isinstance(limit, Ball) else abs(limit.middle)


@dataclass(frozen=True)
class Shape:
    """Public facts about an energy on a set of the given radius, enough to choose a grid and forecast tries."""

    loss: Loss
    n_samples: int
    n_features: int
    feature_norm: float
    label_bound: float
    radius: float
    rate: float
    l2: float

    @property
    def largest_precision(self) -> float:
        """Bound on the precision of a useful envelope in any direction."""
        bend = min(self.loss.smoothness, 4.0 * self.loss.lipschitz / _NEAR)
        pull = self.rate * self.n_samples * self.loss.lipschitz * self.feature_norm / self.radius
        own = self.rate * (self.n_samples * bend * self.feature_norm**2 + self.l2)
        return own + pull + 1000.0 / self.radius**2

    @property
    def tilt_floor(self) -> float:
        """The least multiple of a ball's constraint; it bounds the ratio of scales on the grid."""
        return self.largest_precision * 2.0**-26

    @property
    def grid(self) -> float:
        """A power of two, at most 2^-18 of the smallest scale of a useful envelope."""
        return power_of_two_below(2.0**-18 / math.sqrt(self.largest_precision))


class Remainders:
    """The losses minus their parabolas, summed over the records until the sum is large enough to reject."""

    def __init__(self, energy: Energy, z: Array, bends: Array, slack: float) -> None:
        self._energy, self._z, self._bends, self._slack = energy, z, bends, slack
        y, loss = energy.records.labels, energy.loss
        self._values, self._slopes = loss.value(y, z), loss.derivative(y, z)
        n = energy.records.n_samples
        self._height = max(_LEAST_ROWS, -(-n // _PARTS))

    def __call__(self, theta: Array, gap: float) -> bool:
        """Whether the remainders at theta surely exceed ``gap``; each is nonnegative."""
        records, loss = self._energy.records, self._energy.loss
        total = -self._slack
        for start in range(0, records.n_samples, self._height):
            rows = slice(start, min(start + self._height, records.n_samples))
            scales = records.scales[rows]
            with np.errstate(all="ignore"):  # the content of null rows must not cause a warning
                dots = np.asarray(records.matrix[rows] @ theta[: records.n_columns])
                if records.bounds.intercept:
                    dots = dots + theta[-1]
                raw = np.where(scales > 0, dots * scales, 0.0)
                if self._energy.offsets is not None:
                    raw = raw + self._energy.offsets[rows]
            away = raw - self._z[rows]
            above = loss.value(records.labels[rows], raw) - self._values[rows]
            rest = above - away * (self._slopes[rows] + 0.5 * self._bends[rows] * away)
            total += self._energy.rate * float(rest.sum()) * (1 - 2.0**-30)
            if total > gap:
                return True
        return False


def outer_radius(limits: Sequence[Limit]) -> float:
    """Bound the norm of every point in the intersection of the balls."""
    return min(ball.radius + _distance(ball) for ball in balls_of(limits)) * SLACK


def best_tilts(precision: Array, linear: Array, limits: Sequence[Limit], floor: float) -> list[float]:
    """Return the multiples of the limits that maximize acceptance, by minimizing a convex function."""
    only_balls = len(balls_of(limits)) == len(limits)
    objective = (
        _ball_objective(precision, linear, balls_of(limits))
        if only_balls
        else _objective(precision, linear, limits)
    )
    ceilings = [math.log(floor * most) for most in _most_tilts(limits, len(linear))]
    guess = math.log(max(len(linear) / smallest_ball(limits).radius ** 2, 2 * floor))
    found = scipy.optimize.minimize(
        objective,
        np.full(len(limits), guess),
        jac=True,
        method="L-BFGS-B",
        bounds=[(math.log(floor), ceiling) for ceiling in ceilings],
    )
    return [max(floor, float(tilt)) for tilt in np.exp(found.x)]


def _most_tilts(limits: Sequence[Limit], size: int) -> list[float]:
    """Bound the tilts, in units of the floor. A ball's is isotropic; slabs must leave the matrix positive definite.

    A factorization that fails would be an output. Below these bounds none does (section 10 of the proofs).
    """
    flattest = 2.0**48 / (4 * len(limits) * ((size + 2) ** 2 + len(limits)))
    return [2.0**60 if isinstance(limit, Ball) else max(2.0, flattest) for limit in limits]


def _ball_objective(
    precision: Array, linear: Array, balls: Sequence[Ball]
) -> Callable[[Array], tuple[float, Array]]:
    """Return log mass and slopes as a function of the logs of the tilts; all tilts are isotropic."""
    eigenvalues, vectors = scipy.linalg.eigh(precision)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    centers = np.array([ball.center for ball in balls]) @ vectors
    slacks = np.array([ball.radius**2 - float(np.dot(ball.center, ball.center)) for ball in balls])
    start = -linear @ vectors

    def objective(logs: Array) -> tuple[float, Array]:
        tilts = np.exp(logs)
        moved = eigenvalues + tilts.sum()
        pulled = start + tilts @ centers
        mean = pulled / moved
        value = -0.5 * np.log(moved).sum() + 0.5 * float(pulled @ mean) + 0.5 * float(tilts @ slacks)
        spread = (1.0 / moved).sum() + float(mean @ mean)
        slopes = 0.5 * (slacks - spread) + centers @ mean
        return float(value), slopes * tilts

    return objective


def _objective(
    precision: Array, linear: Array, limits: Sequence[Limit]
) -> Callable[[Array], tuple[float, Array]]:
    """Return the same for any limits: one factorization per call."""
    size = len(linear)
    ways, middles, radii = _slabs(limits, size)
    flat = np.array([isinstance(limit, Slab) for limit in limits])
    centers = np.array([ball.center for ball in balls_of(limits)])
    squares = np.array([ball.radius**2 for ball in balls_of(limits)])

    def objective(logs: Array) -> tuple[float, Array]:
        tilts = np.exp(logs)
        matrix, pull, constant = tilt_of(limits, tilts.tolist(), size)
        factor = scipy.linalg.cho_factor(precision + matrix, lower=True)
        pulled = pull - linear
        mean = scipy.linalg.cho_solve(factor, pulled)
        spread = scipy.linalg.cho_solve(factor, np.eye(size))
        value = -float(np.log(np.diag(factor[0])).sum()) + 0.5 * float(pulled @ mean) - constant
        slopes = np.empty(len(limits))
        slopes[flat] = radii**2 - np.einsum("ij,jk,ik->i", ways, spread, ways) - (ways @ mean - middles) ** 2
        slopes[~flat] = squares - np.trace(spread) - np.square(mean - centers).sum(axis=1)
        return value, 0.5 * slopes * tilts

    return objective
