"""The interface of a constraint set, and numerical functions shared by several sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.special import poch

from discreet._typing import Array

_WIDTH_STEP = 1e-3  # of the Riemann sums below; also bounds their overestimate


@runtime_checkable
class Geometry(Protocol):
    """A bounded closed convex set of vectors with ``n_features`` entries."""

    @property
    def n_features(self) -> int:
        """Length of the vectors."""
        ...

    def center(self) -> Array:
        """Return a fixed point of the set, where iterations start."""
        ...

    def project(self, theta: Array) -> Array:
        """Return the nearest point of the set, in Euclidean distance."""
        ...

    def linear_minimizer(self, direction: Array) -> Array:
        """Return a point of the set that minimizes <direction, .>."""
        ...

    def gauge(self, theta: Array) -> float:
        """Return the smallest t >= 0 with theta in t times the set; infinite if there is none."""
        ...

    def diameter(self, norm: float = 2.0) -> float:
        """Return the largest distance of two points of the set, in the given norm (1, 2 or infinity), rounded up."""
        ...

    def radius(self, norm: float = 2.0) -> float:
        """Return the largest norm of a point of the set, rounded up."""
        ...

    def gaussian_width(self) -> float:
        """Return E max <g, theta> over the set for a standard Gaussian g: exact, or a proved upper bound."""
        ...


@runtime_checkable
class Polytope(Geometry, Protocol):
    """The convex hull of finitely many vertices, which need not be stored."""

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        ...

    def vertex_scores(self, direction: Array) -> Array:
        """Return <direction, s> for every vertex s."""
        ...

    def vertex(self, index: int) -> Array:
        """Return one vertex as a vector."""
        ...

    def move_towards(self, theta: Array, index: int, rate: float) -> None:
        """Set theta <- (1 - rate) theta + rate (vertex number ``index``), in place."""
        ...


def check_radius(radius: float) -> None:
    """Raise for an unusable radius."""
    if isinstance(radius, bool) or not 1e-100 <= radius <= 1e100:
        raise ValueError(f"the radius must be a number between 1e-100 and 1e100, got {radius!r}")


def check_features(n_features: int) -> None:
    """Raise unless the dimension is a positive whole number."""
    if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer) or n_features < 1:
        raise ValueError(f"n_features must be a whole number of at least 1, got {n_features!r}")


def check_norm(norm: float) -> None:
    """Raise unless the norm is 1, 2 or infinity."""
    if norm not in (1.0, 2.0, math.inf):
        raise ValueError(f"norm must be 1, 2 or infinity, got {norm!r}")


def project_to_simplex(values: Array, total: float) -> Array:
    """Return the nearest point with entries >= 0 that sum to ``total`` (sorting; Held, Wolfe and Crowder, 1974).

    >>> project_to_simplex(np.array([0.5, 2.0, 1.0]), 1.0)
    array([0., 1., 0.])
    """
    # Shifting all entries changes nothing, and an entry that is total below the largest is cut to 0 in any case. So no
    # number exceeds p times the total from here on, for any values.
    below = np.maximum(values - values.max(), -total)
    ordered = np.sort(below)[::-1]
    excess = np.cumsum(ordered) - total
    last = int(np.flatnonzero(ordered * np.arange(1, len(values) + 1) >= excess)[-1])
    return np.asarray(np.maximum(below - excess[last] / (last + 1), 0.0))


def project_magnitudes(magnitudes: Array, radius: float) -> Array:
    """Project a vector of numbers >= 0 onto those with a sum of at most ``radius``."""
    if magnitudes.sum() <= radius:
        return magnitudes
    return project_to_simplex(magnitudes, radius)


def binary_scale(values: Array) -> float:
    """Return a power of two next to the largest absolute entry; 1 for zeros.

    Dividing by it is exact, apart from underflow, and squares of the quotients neither overflow nor vanish.
    """
    largest = float(np.abs(values).max())
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1023)) if largest > 0 else 1.0


def scaled_norm(vector: Array, norm: float = 2.0) -> float:
    """Return a norm of a vector without overflow or underflow of squares.

    >>> scaled_norm(np.array([1e200, 0.0])), scaled_norm(np.array([3e-200, 4e-200]))
    (1e+200, 5e-200)
    """
    scale = binary_scale(vector)
    return scale * float(np.linalg.norm(vector / scale, norm))


def resized(vector: Array, length: float) -> Array:
    """Return the vector of this Euclidean norm in the same direction; zeros stay zeros."""
    unit = vector / binary_scale(vector)
    norm = float(np.linalg.norm(unit))
    return unit * (length / norm) if norm > 0 else unit


def decreasing_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Find the root of a continuous decreasing function between ``low`` and ``high``, by bisection to the last bit."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if function(middle) > 0:
            low = middle
        else:
            high = middle
    return high


def euclidean_width(n_features: int) -> float:
    """Return E |g|_2 = sqrt(2) Gamma((p + 1) / 2) / Gamma(p / 2).

    >>> round(euclidean_width(1), 6)  # sqrt(2 / pi)
    0.797885
    """
    return math.sqrt(2.0) * float(poch(n_features / 2, 0.5))  # a difference of logarithms would cancel


def mean_of_maximum(log_cdf: Callable[[Array], Array], negative: bool = False) -> float:
    """Return E max of independent variables, from the log of the product of their distribution functions F.

    E M = int_0^inf (1 - F) - int_{-inf}^0 F. Both integrands are monotone, so a Riemann sum from the upper side is a
    proved upper bound, at most two steps of 1e-3 too large. The variables' tails beyond 40 must be negligible (standard
    Gaussian and chi variables of moderate degree are shifted by the caller).
    """
    grid = np.arange(0.0, 40.0, _WIDTH_STEP)
    value = float(-np.expm1(log_cdf(grid)).sum()) * _WIDTH_STEP
    if negative:
        value -= float(np.exp(log_cdf(-grid[1:])).sum()) * _WIDTH_STEP
    return value
