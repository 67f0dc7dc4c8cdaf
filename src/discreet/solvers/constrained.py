"""Certified minimizers over a convex set: a point proved to lie within a public distance of the exact minimizer.

The objective J is that of `discreet.solvers.nonprivate`, strongly convex with constant l2 and with curvature of at most
M. For a step x = project(y - gradient(y) / M) the vector nu = M (y - x) - gradient(y) is nearly normal to the set at x
and nearly cancels the gradient there. How nearly is measured, with all rounding errors; nothing else is trusted, in
particular no projection. Proof: docs/proofs/constrained-minimizers.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from discreet.geometries import Box, Geometry, L1Ball, L2Ball, Simplex
from discreet.losses import Loss
from discreet.records import kernels
from discreet.solvers.nonprivate import Objective

Array = NDArray[np.float64]
Progress = Callable[[int, float], None]

_U = kernels.UNIT_ROUNDOFF
#: Sets whose support function and whose distance from a point are known to the last digits.
SETS = (L2Ball, L1Ball, Simplex, Box)


def require_known(name: str, geometry: Geometry) -> None:
    """Refuse sets over which no minimizer can be certified."""
    if not isinstance(geometry, SETS):
        known = ", ".join(kind.__name__ for kind in SETS)
        raise ValueError(
            f"solver {name!r} certifies minimizers over {known} only, where the support function is known to the last "
            f"digits, not over {type(geometry).__name__}; use solver='mirror-descent' or 'frank-wolfe'"
        )


def support_bound(geometry: Geometry, direction: Array) -> float:
    """An upper bound on <direction, s> over the points s of the set, rounding included.

    >>> round(support_bound(L1Ball(2.0, 3), np.array([0.5, -3.0, 1.0])), 12)
    6.0
    """
    if isinstance(geometry, Box):
        corner = geometry.linear_minimizer(-direction)
        products = direction * corner
        return math.fsum(products) + 2 * _U * math.fsum(np.abs(products)) + 2.0**-1000
    if isinstance(geometry, L2Ball):
        longest = _norm(direction)
    else:
        longest = float(np.max(direction if isinstance(geometry, Simplex) else np.abs(direction)))
    value = _size(geometry) * longest
    return value + 8 * _U * abs(value) + 2.0**-1000


def outside_bound(geometry: Geometry, theta: Array) -> float:
    """An upper bound on the distance from theta to the set; rounding may leave theta just outside."""
    if isinstance(geometry, Box):
        return _norm(theta - geometry.project(theta)) * (1 + 4 * _U)
    size = _size(geometry)
    if isinstance(geometry, L2Ball):
        return max(0.0, _norm(theta) * (1 + 4 * _U) - size) * (1 + 4 * _U)
    total = math.fsum(np.abs(theta))
    error = 4 * _U * (total + size)
    if isinstance(geometry, L1Ball):
        return max(0.0, total - size + error)  # shrinking moves theta by no more than its excess
    negative = _norm(np.minimum(theta, 0.0)) * (1 + 4 * _U)
    positive = math.fsum(np.maximum(theta, 0.0))
    return negative + abs(positive - size) + error


def _size(geometry: Geometry) -> float:
    assert isinstance(geometry, L2Ball | L1Ball | Simplex)
    return geometry.size


def _norm(vector: Array) -> float:
    """The Euclidean norm, off by at most three units in the last place whatever the length."""
    return math.sqrt(math.fsum(vector * vector))


def distance_bound(
    objective: Objective, geometry: Geometry, before: Array, gradient: Array, after: Array, curvature: float
) -> float:
    """An upper bound on |after - exact minimizer over the set|; ``gradient`` is the computed one at ``before``.

    ``curvature`` bounds the largest curvature of the objective from above.
    """
    step = before - after
    normal = curvature * step - gradient
    moved, pull = _norm(step), _norm(gradient)
    size, length = _norm(normal), _norm(after)
    left = curvature * moved + objective.rounding(_norm(before)) + 16 * _U * (curvature * moved + pull)
    inner = math.fsum(normal * after) - 2 * _U * size * length
    slope = max(0.0, support_bound(geometry, normal) - inner)
    outside = outside_bound(geometry, after)
    linear = (left + curvature * outside) / objective.l2
    bound = outside + linear + math.sqrt((slope + size * outside) / objective.l2)
    # The last term pays for squares that underflow.
    return bound * (1 + 16 * _U) + 2.0**-400 if math.isfinite(bound) else math.inf


def minimize_over(
    objective: Objective, geometry: Geometry, tolerance: float, progress: Progress | None = None
) -> Array:
    """A point proved to be within ``tolerance`` of the minimizer over the set. It always finds one.

    Accelerated projected gradients with the momentum of strongly convex functions (Nesterov 2004, 2.2.4); plan with
    ``smallest_distance``.
    """
    curvature = largest_curvature(objective)
    root = math.sqrt(objective.l2 / curvature)
    momentum = (1 - root) / (1 + root)
    theta = geometry.project(geometry.center())
    before, n_passes = theta, 0
    while True:
        ahead = theta + momentum * (theta - before)
        gradient = objective.value_and_gradient(ahead.reshape(objective.shape))[1].ravel()
        following = geometry.project(ahead - gradient / curvature)
        n_passes += 1
        distance = distance_bound(objective, geometry, ahead, gradient, following, curvature)
        if progress is not None:
            progress(n_passes, distance)
        if distance <= tolerance:
            return following.reshape(objective.shape)
        before, theta = theta, following


def largest_curvature(objective: Objective) -> float:
    """A bound on the curvature of the objective, rounded up."""
    data = objective.records.n_samples * objective.loss.smoothness * objective.records.bounds.feature_norm**2
    return float(data + objective.l2) * (1 + 8 * _U)


def smallest_distance(
    loss: Loss,
    n_samples: int,
    n_features: int,
    feature_norm: float,
    l2: float,
    linear_norm: float,
    geometry: Geometry,
) -> float:
    """The least tolerance to ask ``minimize_over`` for, from public sizes alone; a small multiple of what rounds."""
    radius = geometry.radius(2.0)
    curvature = n_samples * loss.smoothness * feature_norm**2 + l2
    rounding = kernels.gradient_rounding(loss, n_samples, n_features, feature_norm, 1.01 * radius)
    pull = n_samples * loss.lipschitz * feature_norm + l2 * radius + linear_norm
    outside = (8 + 2 * math.sqrt(geometry.n_features)) * _U * radius
    linear = (rounding + 16 * _U * pull + curvature * outside) / l2
    return 4 * (outside + linear) + 2 * math.sqrt((16 * _U * radius + outside) * pull / l2)
