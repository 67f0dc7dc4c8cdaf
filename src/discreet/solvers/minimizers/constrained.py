"""Certified minimizers over a convex set: a point proved to lie within a public distance of the exact minimizer.

The objective J is that of `minimizers.minimizer`: strongly convex with constant l2, with curvature at most M. For a
step x = project(y - gradient(y) / M), the vector nu = M (y - x) - gradient(y) is nearly normal to the set at x and
nearly cancels the gradient there. The error is measured, including all rounding. The certificate trusts nothing else,
in particular no projection. Projections are computed to full precision so that a small enough measurement is found in
a bounded number of passes. Proof: docs/proofs/constrained-minimizers.md.

`find` returns a verified minimizer, with or without a constraint. The residual is measured as l2 x distance: without
a constraint it is a bound on the gradient, over a set it is the measurement above. Two verified minimizers of one
objective are at most 2 tolerance / l2 apart.
"""

from __future__ import annotations

import math

import numpy as np

from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF, gradient_rounding
from discreet.sets import Box, Geometry, GroupedL1Ball, L1Ball, L2Ball, Simplex
from discreet.solvers import base
from discreet.solvers.certificates import geometry_of
from discreet.solvers.minimizers.lbfgs_newton import steady, steady_passes
from discreet.solvers.minimizers.minimizer import (
    LARGEST_THETA,
    Objective,
    Optimizer,
    largest_curvature,
    minimize,
    most_passes,
    smallest_tolerance,
)

_U = UNIT_ROUNDOFF
_WORST_CONDITION = 2.0**47  # above this, every point of the set is within the tolerance
#: Sets whose support function and distance from a point are known to full precision.
SETS = (L2Ball, L1Ball, GroupedL1Ball, Simplex, Box)


def require_known(name: str, geometry: Geometry) -> None:
    """Raise for sets over which no minimizer can be certified."""
    if not 4 * geometry.radius(2.0) <= LARGEST_THETA:
        raise ValueError(
            f"solver {name!r} certifies minimizers in sets of radius {LARGEST_THETA / 4:.3g} or less, got "
            f"{geometry.radius(2.0):.3g}; use a smaller set"
        )
    if not isinstance(geometry, SETS):
        known = ", ".join(kind.__name__ for kind in SETS)
        raise ParameterError(
            "solver",
            f"{name!r} certifies minimizers over {known} only, whose support functions are known to the last digits, "
            f"not over {type(geometry).__name__}",
            Setting("solver", "mirror-descent", "frank-wolfe"),
        )


def support_bound(geometry: Geometry, direction: Array) -> float:
    """Bound <direction, s> from above over the points s of the set, including rounding.

    >>> round(support_bound(L1Ball(2.0, 3), np.array([0.5, -3.0, 1.0])), 12)
    6.0
    """
    if isinstance(geometry, Box):
        corner = geometry.linear_minimizer(-direction)
        products = direction * corner
        return math.fsum(products) + 2 * _U * math.fsum(np.abs(products)) + 2.0**-1000
    if isinstance(geometry, L2Ball):
        longest = _norm(direction)
    elif isinstance(geometry, GroupedL1Ball):
        longest = float(np.max(_group_norms(geometry, direction)))
    else:
        longest = float(np.max(direction if isinstance(geometry, Simplex) else np.abs(direction)))
    value = _size(geometry) * longest
    return value + 8 * _U * abs(value) + 2.0**-1000


def outside_bound(geometry: Geometry, theta: Array) -> float:
    """Bound the distance from theta to the set; rounding may leave theta just outside.

    A NaN is returned as NaN: ``max`` returns its first argument unless the second is larger.
    """
    if isinstance(geometry, Box):
        return _norm(theta - geometry.project(theta)) * (1 + 4 * _U)
    size = _size(geometry)
    if isinstance(geometry, L2Ball):
        return max(_norm(theta) * (1 + 4 * _U) - size, 0.0) * (1 + 4 * _U)
    grouped = isinstance(geometry, GroupedL1Ball)
    total = math.fsum(_group_norms(geometry, theta) if grouped else np.abs(theta))
    error = 4 * _U * (total + size)
    if isinstance(geometry, L1Ball | GroupedL1Ball):
        return max(total - size + error, 0.0)  # shrinking moves theta by no more than its excess
    negative = _norm(np.minimum(theta, 0.0)) * (1 + 4 * _U)
    positive = math.fsum(np.maximum(theta, 0.0))
    return negative + abs(positive - size) + error


def _size(geometry: Geometry) -> float:
    assert isinstance(geometry, L2Ball | L1Ball | GroupedL1Ball | Simplex)
    return geometry.size


def _group_norms(geometry: Geometry, vector: Array) -> Array:
    """Return the Euclidean norms of all groups of a grouped ball."""
    assert isinstance(geometry, GroupedL1Ball)
    starts = range(0, geometry.n_features, geometry.group_size)
    return np.array([_norm(vector[start : start + geometry.group_size]) for start in starts])


def _resized_groups(geometry: GroupedL1Ball, vector: Array, factors: Array) -> Array:
    """Return the vector with its groups multiplied by factors."""
    return np.asarray(vector * np.repeat(factors, geometry.group_size)[: geometry.n_features])


def _norm(vector: Array) -> float:
    """Return the Euclidean norm, off by at most three units in the last place at any length."""
    return math.sqrt(math.fsum(vector * vector))


def distance_bound(
    objective: Objective, geometry: Geometry, before: Array, gradient: Array, after: Array, curvature: float
) -> float:
    """Bound |after - exact minimizer over the set|; ``gradient`` is the gradient computed at ``before``.

    ``curvature`` is an upper bound on the curvature of the objective. The bound holds for any vector used as the normal
    at ``after``. Two are tried: the residual of the step, and that residual rounded to an exact normal, which avoids an
    error proportional to the size of the set. Return the smaller bound, or the diameter of the set if rounding
    dominates.
    """
    step = before - after
    left = curvature * step - gradient
    moved, pull, outside = _norm(step), _norm(gradient), outside_bound(geometry, after)
    error = objective.rounding(_norm(before)) + 16 * _U * (curvature * moved + pull) + curvature * outside

    def bound(normal: Array) -> float:
        size = _norm(normal)
        inner = math.fsum(normal * after) - 2 * _U * size * _norm(after)
        slope = max(support_bound(geometry, normal) - inner, 0.0)
        rounded = _norm(normal - left) * (1 + 4 * _U)
        linear = (curvature * moved + rounded + error) / objective.l2
        total = outside + linear + math.sqrt((slope + size * outside) / objective.l2)
        # The last term covers squares that underflow.
        return total * (1 + 16 * _U) + 2.0**-400 if math.isfinite(total) else math.inf

    widest = geometry.diameter(2.0) * (1 + 4 * _U) + outside
    known = min(bound(left), bound(rounded_normal(geometry, after, left)))
    return known if not widest < known else widest


def rounded_normal(geometry: Geometry, point: Array, vector: Array) -> Array:
    """Return a normal to the set at ``point`` close to ``vector``, if ``vector`` is nearly normal; 0 in the interior.

    >>> rounded_normal(Box((0.0, 0.0), (1.0, 2.0)), np.array([1.0, 0.5]), np.array([3.0, 1e-9]))
    array([3., 0.])
    """
    if isinstance(geometry, Box):
        low, high = np.array(geometry.lower), np.array(geometry.upper)
        kept = ((point >= high) & (vector > 0)) | ((point <= low) & (vector < 0))
        return np.where(kept, vector, 0.0)
    edge = _size(geometry) * (1 - 16 * _U)
    if isinstance(geometry, L2Ball):
        square = math.fsum(point * point)
        along = max(math.fsum(vector * point), 0.0) / square if math.sqrt(square) >= edge else 0.0
        return along * point
    if isinstance(geometry, L1Ball):
        if not math.fsum(np.abs(point)) >= edge:
            return np.zeros_like(vector)
        return np.where(point == 0, vector, np.sign(point) * np.max(np.abs(vector)))
    if isinstance(geometry, GroupedL1Ball):
        norms = _group_norms(geometry, point)
        if not math.fsum(norms) >= edge:
            return np.zeros_like(vector)
        used = norms > 0
        longest = np.max(_group_norms(geometry, vector))
        factors = np.divide(longest, norms, out=np.zeros_like(norms), where=used)
        inside = _resized_groups(geometry, np.ones_like(vector), used.astype(float)) > 0
        return np.where(inside, _resized_groups(geometry, point, factors), vector)
    return np.where(point == 0, vector, np.max(vector))


def nearest(geometry: Geometry, point: Array) -> Array:
    """Project ``point``, to full precision at any length of ``point``.

    >>> nearest(Simplex(1.0, 3), np.array([0.2, 0.4, 0.1])).round(6)
    array([0.3, 0.5, 0.2])
    """
    if isinstance(geometry, Box):
        return geometry.project(point)
    size = _size(geometry)
    if isinstance(geometry, L2Ball):
        norm = _norm(point)
        return point if norm <= size else point * (size / norm)
    if isinstance(geometry, Simplex):
        return _on_simplex(point, size)
    if isinstance(geometry, GroupedL1Ball):
        norms = _group_norms(geometry, point)
        if math.fsum(norms) <= size:
            return point
        kept = _on_simplex(norms, size)
        return _resized_groups(
            geometry, point, np.divide(kept, norms, out=np.zeros_like(norms), where=norms > 0)
        )
    magnitudes = np.abs(point)
    return point if math.fsum(magnitudes) <= size else np.sign(point) * _on_simplex(magnitudes, size)


def _on_simplex(values: Array, total: float) -> Array:
    """Return the nearest point with entries >= 0 that sum to ``total`` (Michelot, 1986)."""
    below = np.maximum(
        values - values.max(), -total
    )  # an entry that is ``total`` below the largest is cut in any case
    kept, n_kept = np.ones(len(below), dtype=bool), len(below) + 1
    while np.count_nonzero(kept) < n_kept:
        n_kept = int(np.count_nonzero(kept))
        cut = (math.fsum(below[kept]) - total) / n_kept  # below 0, the largest entry: it stays
        kept &= below > cut
    found = np.where(kept, below - cut, 0.0)
    return np.asarray(found * (total / math.fsum(found)))


def minimize_over(
    objective: Objective, geometry: Geometry, tolerance: float, progress: Progress | None = None
) -> Array:
    """Return a point proved to be within ``tolerance`` of the minimizer over the set, in at most ``most_passes_over``.

    Uses accelerated projected gradient steps, then plain ones. Plan with ``smallest_distance``: a tolerance that
    rounding might prevent for a linear term of this norm is refused, for all data alike.
    """
    least = reachable_distance(*objective.sizes, geometry)
    if not least <= tolerance:
        raise ParameterError(
            "tolerance",
            f"must be at least {least:.3g} for an objective of this size over this set, got {tolerance!r}",
            "below that, rounding errors hide the distance (a larger l2 lowers the limit)",
        )
    curvature, n_passes = objective.curvature, 0

    def step(ahead: Array) -> tuple[Array, bool]:
        nonlocal n_passes
        gradient = objective.value_and_gradient(ahead.reshape(objective.shape))[1].ravel()
        following = nearest(geometry, ahead - gradient / curvature)
        n_passes += 1
        distance = distance_bound(objective, geometry, ahead, gradient, following, curvature)
        if progress is not None:
            progress(n_passes, distance)
        return following, distance <= tolerance

    start = nearest(geometry, geometry.center())
    return steady(step, start, start, curvature / objective.l2).reshape(objective.shape)


def most_passes_over(loss: Loss, n_samples: int, feature_norm: float, l2: float) -> int:
    """Bound the number of passes of ``minimize_over``, for any set."""
    condition = largest_curvature(loss, n_samples, feature_norm, l2) / l2
    return sum(steady_passes(min(condition, _WORST_CONDITION)))


def smallest_distance(
    loss: Loss,
    n_samples: int,
    n_features: int,
    feature_norm: float,
    l2: float,
    linear_norm: float,
    geometry: Geometry,
) -> float:
    """Return the least tolerance to plan ``minimize_over`` with, from public sizes: a small multiple of the rounding.

    It leaves room for a linear term of twice the norm ``linear_norm``.
    """
    radius = geometry.radius(2.0)
    curvature = n_samples * loss.smoothness * feature_norm**2 + l2
    rounding = gradient_rounding(loss, n_samples, n_features, feature_norm, 1.01 * radius)
    pull = n_samples * loss.lipschitz * feature_norm + l2 * radius + linear_norm
    outside = (8 + 2 * math.sqrt(geometry.n_features)) * _U * radius
    linear = (rounding + 16 * _U * pull + curvature * outside) / l2
    usual = 4 * (outside + linear) + 2 * math.sqrt((16 * _U * radius + outside) * pull / l2)
    # Steep losses and long vectors need a larger tolerance.
    return max(
        usual, reachable_distance(loss, n_samples, n_features, feature_norm, l2, 2 * linear_norm, geometry)
    )


def reachable_distance(
    loss: Loss,
    n_samples: int,
    n_features: int,
    feature_norm: float,
    l2: float,
    linear_norm: float,
    geometry: Geometry,
) -> float:
    """Return a tolerance proved to be reached in ``most_passes_over`` (docs/proofs/constrained-minimizers.md, 2)."""
    radius, p = geometry.radius(2.0), geometry.n_features
    sums, grouped = isinstance(geometry, L1Ball | Simplex), isinstance(geometry, GroupedL1Ball)
    slip, turn = (24 * p + 32, 4 * math.sqrt(p)) if sums or grouped else (24, 1.0)
    corner = 80 if grouped else 45
    rounding = gradient_rounding(loss, n_samples, n_features, feature_norm, 1.01 * radius)
    pull = n_samples * loss.lipschitz * feature_norm + l2 * radius + linear_norm
    curvature = largest_curvature(loss, n_samples, feature_norm, l2)
    error = rounding + slip * _U * curvature * radius + 40 * _U * pull + 2.0**-500
    normal = 1.02 * pull + (6 + turn) * error
    steep = 1.001 * ((8 + turn) * error / l2 + math.sqrt(corner * _U * radius * normal / l2)) + 2.0**-390
    return min(steep, geometry.diameter(2.0) * (1 + 8 * _U) + 32 * _U * radius)


def check(name: str, problem: Problem) -> None:
    """Raise if no minimizer can be verified for this problem."""
    if not math.isfinite(problem.loss.smoothness):
        raise ParameterError(
            "solver",
            f"{name!r} verifies its minimizer by the gradient, which {problem.loss} does not have everywhere",
            "use HuberHinge instead of Hinge",
            Setting("solver", "noisy-gd"),
        )
    refuse_field(name, problem)
    if not problem.loss.known_hessian:
        raise ParameterError(
            "solver",
            f"{name!r} is proved for the softmax with equal weights, and for two classes with any",
            Setting("solver", "noisy-gd", "newton", purpose="which pay for every step"),
        )
    if problem.geometry is not None:
        require_known(name, geometry_of(problem, name))


def refuse_field(name: str, problem: Problem) -> None:
    """Refuse losses that are not convex. A softmax with capped derivatives is not a gradient and has no minimizer."""
    base.require(name, problem, "convex", "noisy-gd", hint="use Softmax")


def least_tolerance(problem: Problem, total_l2: float, linear_norm: float) -> float:
    """Return the least l2 x distance that can be verified in double precision, from public sizes."""
    sizes = problem.loss, problem.n_samples, problem.n_features, problem.bounds.feature_norm
    if problem.geometry is None:
        return smallest_tolerance(*sizes, total_l2, linear_norm)
    return total_l2 * smallest_distance(*sizes, total_l2, linear_norm, problem.geometry)


def passes_bound(problem: Problem, total_l2: float) -> int:
    """Bound the number of passes of ``find`` over the records, from public sizes.

    Passes of a callable ``optimizer`` are not included.
    """
    sizes = problem.loss, problem.n_samples, problem.bounds.feature_norm, total_l2
    return most_passes(*sizes) if problem.geometry is None else most_passes_over(*sizes)


def find(
    problem: Problem,
    records: Records,
    total_l2: float,
    tolerance: float,
    linear: Array | None = None,
    *,
    optimizer: Optimizer = "auto",
    progress: Progress | None = None,
) -> Array:
    """Return a point proved to be within tolerance / total_l2 of the exact minimizer."""
    objective = Objective(records, problem.loss, total_l2, linear)
    if problem.geometry is None:
        return minimize(objective, tolerance, optimizer=optimizer, progress=progress).theta
    return minimize_over(objective, problem.geometry, tolerance / total_l2, progress)


def published(problem: Problem, theta: Array, grid: float) -> Array:
    """Project noisy models onto their set, or subtract the softmax mean over classes, which changes no prediction.

    This is post-processing. The mean is rounded to the ``grid`` of the noise, so released numbers stay multiples of it.
    """
    if problem.geometry is not None:
        return np.stack([problem.geometry.project(model.ravel()).reshape(model.shape) for model in theta])
    if problem.loss.n_outputs > 1:
        return np.asarray(theta - np.rint(theta.mean(axis=-1, keepdims=True) / grid) * grid)
    return theta
