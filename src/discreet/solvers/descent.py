"""Minimizing a smooth, strongly convex function: L-BFGS, Newton, and a line search that trusts slopes.

Nothing here knows about privacy or data. The function is a ``Landscape``: it can be evaluated, it says when a
point is good enough, and it offers curvature. Vectors are flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]
Operator = Callable[[Array], Array]

_MEMORY = 12  # curvature pairs kept by L-BFGS
_REFRESH = 10  # steps between estimates of the Hessian
_LBFGS_STEPS = 400  # then Newton takes over


@dataclass(frozen=True, eq=False)
class Point:
    """A theta with everything that one evaluation says about it; ``bound`` limits the exact gradient norm."""

    theta: Array
    value: float
    gradient: Array
    bound: float

    @property
    def norm(self) -> float:
        """The computed gradient norm."""
        return float(np.linalg.norm(self.gradient))


class Landscape(Protocol):
    """A function to minimize."""

    @property
    def tolerance(self) -> float: ...
    @property
    def largest_curvature(self) -> float: ...
    def evaluate(self, theta: Array) -> Point: ...
    def done(self, point: Point) -> bool: ...
    def hessian_product(self, theta: Array) -> Operator: ...
    def exact_inverse(self, theta: Array) -> Operator | None: ...
    def estimated_inverse(self, theta: Array) -> Operator | None: ...


def lbfgs(landscape: Landscape, point: Point, *, precondition: bool) -> Point:
    """Limited-memory BFGS (Nocedal and Wright 2006, Algorithm 7.4) around an estimate of the Hessian.

    Ends when the point is good enough, when steps no longer help, or after a fixed number of steps; it never
    fails. A few percent of the rows give a Hessian that makes each pass over all of them go far; as theta
    moves away the estimate is renewed.
    """
    pairs: list[tuple[Array, Array, float]] = []
    inverse: Operator | None = None
    for step_number in range(_LBFGS_STEPS):
        if landscape.done(point):
            break
        if precondition and step_number % _REFRESH == 0:
            inverse = landscape.estimated_inverse(point.theta)
        direction = -_two_loop(point.gradient, pairs, inverse)
        if inverse is None and not pairs:
            direction /= max(1.0, point.norm)
        following = line_search(landscape, point, direction)
        if following is None:
            break
        step, change = following.theta - point.theta, following.gradient - point.gradient
        curvature = float(step @ change)
        if curvature > 0:
            pairs = [*pairs[1 - _MEMORY :], (step, change, curvature)]
        point = following
    return point


def newton(landscape: Landscape, point: Point, *, exact: bool) -> Point:
    """Damped Newton until the point is good enough; the only way out.

    Every step either brings the gradient norm below half of the least seen so far, which can happen only
    finitely often before the goal, or lowers the strongly convex function by at least a fixed multiple of
    |gradient|^2. So in exact arithmetic the loop ends; the caller keeps the goal away from rounding errors.
    The last resort, a gradient step over the largest curvature, shrinks the gradient by itself.
    """
    least = point.norm
    while not landscape.done(point):
        inverse = landscape.exact_inverse(point.theta) if exact else None
        if inverse is not None:
            direction = -inverse(point.gradient)
        else:
            direction = _conjugate_gradient(landscape, point, landscape.estimated_inverse(point.theta))
        following = line_search(landscape, point, direction, least)
        if following is None:
            following = landscape.evaluate(point.theta - point.gradient / landscape.largest_curvature)
        point = following
        least = min(least, point.norm)
    return point


def line_search(landscape: Landscape, point: Point, direction: Array, least: float = 0.0) -> Point | None:
    """A better point along a descent direction of a convex function, found by the sign of the slope.

    Slopes along a line increase with the step, so they bracket the minimum, and they stay accurate where
    differences of values have drowned in rounding. Accepted: a gradient norm of at most half ``least``; or a
    slope that has lost a tenth of its size, at a value that is no higher. None if rounding hides the descent.
    """
    slope = float(point.gradient @ direction)
    if not slope < 0:
        return None
    noise = 1e-13 * abs(point.value)
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.inf
    step = 1.0
    for _ in range(60):
        trial = landscape.evaluate(point.theta + step * direction)
        finite = math.isfinite(trial.bound) and math.isfinite(trial.value)
        if finite and trial.norm <= 0.5 * least:
            return trial
        trial_slope = float(trial.gradient @ direction) if finite else math.inf
        lower = finite and trial.value <= point.value + 1e-4 * step * slope + noise
        if trial_slope < 0.9 * slope:
            low, low_slope = step, trial_slope
        elif trial_slope <= 0 or (lower and trial_slope < -0.9 * slope):
            return trial
        else:
            high, high_slope = step, trial_slope
        step = _next_step(low, low_slope, high, high_slope)
    return None


def _next_step(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Where the slope's chord crosses 0, kept well inside the bracket."""
    if math.isinf(high):
        return 4.0 * low
    width = high - low
    if math.isinf(high_slope):
        return low + 0.1 * width
    return low + min(0.9, max(0.1, low_slope / (low_slope - high_slope))) * width


def _conjugate_gradient(landscape: Landscape, point: Point, inverse: Operator | None) -> Array:
    """-H^{-1} gradient, to a relative residual that tightens near the goal (Dembo et al. 1982)."""
    product = landscape.hessian_product(point.theta)
    goal = min(0.1, max(0.3 * landscape.tolerance / point.norm, 1e-8)) * point.norm
    solution = np.zeros_like(point.theta)
    residual = -point.gradient
    ahead = residual if inverse is None else inverse(residual)
    direction, along = ahead, float(residual @ ahead)
    for _ in range(max(20, min(2 * solution.size, 500))):
        image = product(direction)
        length = along / float(direction @ image)
        solution = solution + length * direction
        residual = residual - length * image
        if float(np.linalg.norm(residual)) <= goal:
            break
        ahead = residual if inverse is None else inverse(residual)
        along, previous = float(residual @ ahead), along
        direction = ahead + (along / previous) * direction
    return solution


def _two_loop(gradient: Array, pairs: list[tuple[Array, Array, float]], inverse: Operator | None) -> Array:
    """The quasi-Newton estimate of H^{-1} gradient."""
    vector = gradient.copy()
    shares = []
    for step, change, curvature in reversed(pairs):
        share = float(step @ vector) / curvature
        vector -= share * change
        shares.append(share)
    if inverse is not None:
        vector = inverse(vector)
    elif pairs:
        _, change, curvature = pairs[-1]
        vector *= curvature / float(change @ change)
    for (step, change, curvature), share in zip(pairs, reversed(shares), strict=True):
        vector += (share - float(change @ vector) / curvature) * step
    return vector


def inverse_of(matrix: Array) -> Operator | None:
    """v -> matrix^{-1} v for a positive definite matrix, None if rounding spoils it.

    A vector longer than the matrix is taken for a flattened (p, K) array, solved column by column.
    """
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    size = len(matrix)

    def solve(vector: Array) -> Array:
        columns = vector.reshape(size, -1)
        return np.asarray(scipy.linalg.cho_solve(factor, columns, check_finite=False)).ravel()

    return solve
