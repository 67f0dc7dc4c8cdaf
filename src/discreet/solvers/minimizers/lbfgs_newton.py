"""Minimize a smooth, strongly convex function: L-BFGS and Newton first, then steps of a fixed length.

This module knows nothing about privacy or data. A ``Landscape`` evaluates the function, decides when a point is good
enough, and provides curvature. Vectors are flat. Every method stops after a fixed number of passes. The fast methods
may stop short of the tolerance; fixed steps reach it (docs/proofs/rounding.md, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg

from discreet._typing import Array

Operator = Callable[[Array], Array]

_MEMORY = 12  # curvature pairs kept by L-BFGS
_REFRESH = 10  # steps between estimates of the Hessian
_LBFGS_STEPS = 400  # then Newton takes over
_NEWTON_STEPS = 100  # then steps of a fixed length take over
_TRIALS = 120  # per line search; bisection alone resolves a step to full precision in half as many
_PRODUCTS = 500  # Hessian products per Newton step
#: Bound on the passes of L-BFGS and Newton together. A Newton step makes two Hessians and one more evaluation.
FAST_PASSES = 1 + _LBFGS_STEPS * (_TRIALS + 1) + _NEWTON_STEPS * (_TRIALS + _PRODUCTS + 3)


@dataclass(frozen=True, eq=False)
class Point:
    """A theta with the results of one evaluation; ``bound`` bounds the exact gradient norm."""

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

    Stops when the point is good enough, when steps no longer help, or after a fixed number of steps; it never fails.
    The estimate uses a few percent of the rows, which saves passes over all rows. It is renewed as theta moves.
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
        if curvature > 0 and float(change @ change) > 0:
            pairs = [*pairs[1 - _MEMORY :], (step, change, curvature)]
        point = following
    return point


def newton(landscape: Landscape, point: Point, *, exact: bool) -> Point:
    """Run damped Newton until the point is good enough, for at most a fixed number of steps.

    Every step either halves the least gradient norm so far, or lowers the strongly convex function by at least a fixed
    multiple of |gradient|^2. If rounding hides the descent it takes a gradient step.
    """
    least = point.norm
    for _ in range(_NEWTON_STEPS):
        if landscape.done(point):
            break
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


def steady_passes(condition: float) -> tuple[int, int]:
    """Bound the steps of ``steady``, with momentum and without; ``condition`` is curvature / l2.

    Plain steps need at most 78 condition + 2 (docs/proofs/rounding.md, section 6). With momentum, a number proportional
    to the root of the condition was enough in all our tests; the proof does not use it.

    >>> steady_passes(100.0)
    (804, 8004)
    """
    return math.ceil(80 * math.sqrt(condition)) + 4, math.ceil(80 * condition) + 4


def steady(step: Callable[[Array], tuple[Array, bool]], fast: Array, sure: Array, condition: float) -> Array:
    """Take steps of a fixed length until one is good enough: from ``fast`` with momentum, then from ``sure`` without.

    ``step(y)`` returns the next point and whether it is good enough. Momentum steps are Nesterov's (2004, 2.2.4) for
    strongly convex functions. Plain steps are proved to terminate in floating point for every function of the stated
    condition, if the tolerance is not below the rounding error.
    """
    root = math.sqrt(1 / condition)
    momenta = (1 - root) / (1 + root), 0.0
    for start, momentum, n_steps in zip((fast, sure), momenta, steady_passes(condition), strict=True):
        theta = before = start
        for _ in range(n_steps):
            following, good = step(theta + momentum * (theta - before) if momentum else theta)
            if good:
                return following
            before, theta = theta, following
    raise AssertionError("plain steps end in time: docs/proofs/rounding.md, section 6")  # pragma: no cover


def line_search(landscape: Landscape, point: Point, direction: Array, least: float = 0.0) -> Point | None:
    """Find a better point along a descent direction of a convex function, using the sign of the slope.

    Slopes along a line increase with the step, so they bracket the minimum, and they stay accurate when differences of
    values are lost in rounding. A point is accepted if its gradient norm is at most half of ``least``, or its slope has
    shrunk by a tenth at no higher value, or it is good enough. Returns None if rounding hides the descent.
    """
    slope = float(point.gradient @ direction)
    if not slope < 0:
        return None
    noise = 1e-13 * abs(point.value)
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.inf
    step, width = 1.0, math.inf
    for _ in range(_TRIALS):
        trial = landscape.evaluate(point.theta + step * direction)
        finite = math.isfinite(trial.bound) and math.isfinite(trial.value)
        if finite and (trial.norm <= 0.5 * least or trial.bound <= landscape.tolerance):
            return trial
        trial_slope = float(trial.gradient @ direction) if finite else math.inf
        lower = finite and trial.value <= point.value + 1e-4 * step * slope + noise
        if trial_slope < 0.9 * slope:
            low, low_slope = step, trial_slope
        elif trial_slope <= 0 or (lower and trial_slope < -0.9 * slope):
            return trial
        else:
            high, high_slope = step, trial_slope
        # A chord makes slow progress where the slope jumps. If it did not halve the bracket, bisect next.
        width, last = high - low, width
        step = (
            low + 0.5 * width if last < 2 * width < math.inf else _next_step(low, low_slope, high, high_slope)
        )
        if not low < step < high:
            return None
    return None


def _next_step(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Return where the slope's chord crosses 0, kept well inside the bracket."""
    if math.isinf(high):
        return 4.0 * low
    width = high - low
    if math.isinf(high_slope):
        return low + 0.1 * width
    return low + min(0.9, max(0.1, low_slope / (low_slope - high_slope))) * width


def _conjugate_gradient(landscape: Landscape, point: Point, inverse: Operator | None) -> Array:
    """Solve for -H^{-1} gradient, to a relative residual that tightens near the tolerance (Dembo et al. 1982)."""
    product = landscape.hessian_product(point.theta)
    goal = min(0.1, max(0.3 * landscape.tolerance / point.norm, 1e-8)) * point.norm
    solution = np.zeros_like(point.theta)
    residual = -point.gradient
    ahead = residual if inverse is None else inverse(residual)
    direction, along = ahead, float(residual @ ahead)
    for _ in range(max(20, min(2 * solution.size, _PRODUCTS))):
        image = product(direction)
        curvature = float(direction @ image)
        if not curvature > 0:  # lost in underflow
            break
        length = along / curvature
        solution = solution + length * direction
        residual = residual - length * image
        if float(np.linalg.norm(residual)) <= goal:
            break
        ahead = residual if inverse is None else inverse(residual)
        along, previous = float(residual @ ahead), along
        if not previous > 0:
            break
        direction = ahead + (along / previous) * direction
    return solution


def _two_loop(gradient: Array, pairs: list[tuple[Array, Array, float]], inverse: Operator | None) -> Array:
    """Return the quasi-Newton estimate of H^{-1} gradient."""
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
    """Return v -> matrix^{-1} v for a positive definite matrix; None if the factorization fails.

    A vector longer than the matrix is a flattened (p, K) array, solved column by column.
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
