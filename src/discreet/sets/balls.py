"""Common sets: Euclidean ball, L1 ball, simplex, box, and intersections with a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from discreet._checks import use_python_numbers
from discreet._typing import Array
from discreet.sets.base import (
    Geometry,
    binary_scale,
    check_features,
    check_norm,
    check_radius,
    decreasing_root,
    euclidean_width,
    mean_of_maximum,
    project_magnitudes,
    project_to_simplex,
    resized,
    scaled_norm,
)


@dataclass(frozen=True)
class Ball:
    """Vectors whose norm, given by a subclass, is at most ``size``."""

    size: float
    n_features: int

    def __post_init__(self) -> None:
        use_python_numbers(self)
        check_radius(self.size)
        check_features(self.n_features)

    def center(self) -> Array:
        """The origin."""
        return np.zeros(self.n_features)

    def radius(self, norm: float = 2.0) -> float:
        """The largest norm of a point."""
        raise NotImplementedError

    def diameter(self, norm: float = 2.0) -> float:
        """Twice the radius."""
        return 2 * self.radius(norm)


@dataclass(frozen=True)
class L2Ball(Ball):
    """Vectors of Euclidean norm at most ``size``.

    >>> L2Ball(2.0, 2).project(np.array([3.0, 4.0]))
    array([1.2, 1.6])
    """

    def project(self, theta: Array) -> Array:
        """Scale onto the ball."""
        return theta if scaled_norm(theta) <= self.size else resized(theta, self.size)

    def linear_minimizer(self, direction: Array) -> Array:
        """-size d / |d|; the center for d = 0."""
        return -resized(direction, self.size) if np.any(direction) else self.center()

    def gauge(self, theta: Array) -> float:
        """|theta|_2 / size."""
        return scaled_norm(theta) / self.size

    def radius(self, norm: float = 2.0) -> float:
        """size sqrt(p) in L1, size otherwise."""
        check_norm(norm)
        return self.size * (math.sqrt(self.n_features) * (1 + 1e-15) if norm == 1 else 1.0)

    def gaussian_width(self) -> float:
        """size E |g|_2, exactly."""
        return self.size * euclidean_width(self.n_features)


@dataclass(frozen=True)
class L1Ball(Ball):
    """Vectors whose absolute entries sum to at most ``size``; 2p vertices +-size e_j, never stored.

    Vertices 0 .. p-1 are +size e_j, vertices p .. 2p-1 are -size e_j.

    >>> L1Ball(1.0, 3).project(np.array([2.0, -0.5, 0.0]))
    array([ 1., -0.,  0.])
    """

    @property
    def n_vertices(self) -> int:
        """2p."""
        return 2 * self.n_features

    def vertex_scores(self, direction: Array) -> Array:
        """size d, then -size d."""
        scaled = self.size * direction
        return np.concatenate([scaled, -scaled])

    def vertex(self, index: int) -> Array:
        """+-size e_j."""
        vector = np.zeros(self.n_features)
        self.move_towards(vector, index, 1.0)
        return vector

    def move_towards(self, theta: Array, index: int, rate: float) -> None:
        """Shrink theta and change one entry."""
        theta *= 1 - rate
        sign = 1.0 if index < self.n_features else -1.0
        theta[index % self.n_features] += sign * rate * self.size

    def magnitudes(self, theta: Array) -> Array:
        """|theta_j|, whose sum the ball bounds."""
        return np.abs(theta)

    def with_magnitudes(self, theta: Array, magnitudes: Array) -> Array:
        """The vector with the signs of theta and the given magnitudes."""
        return np.asarray(np.sign(theta) * magnitudes)

    def project(self, theta: Array) -> Array:
        """Soft thresholding (Duchi et al., 2008)."""
        magnitudes = np.abs(theta)
        if magnitudes.sum() <= self.size:
            return theta
        return self.with_magnitudes(theta, project_magnitudes(magnitudes, self.size))

    def linear_minimizer(self, direction: Array) -> Array:
        """The vertex opposite to the largest entry of d."""
        best = int(np.argmax(np.abs(direction)))
        return self.vertex(best if direction[best] < 0 else best + self.n_features)

    def gauge(self, theta: Array) -> float:
        """|theta|_1 / size."""
        return float(np.abs(theta).sum()) / self.size

    def radius(self, norm: float = 2.0) -> float:
        """The size, in every norm."""
        check_norm(norm)
        return self.size

    def gaussian_width(self) -> float:
        """size E max |g_j|, by a Riemann sum that is too large by less than 0.001 size."""
        p = self.n_features
        with np.errstate(divide="ignore"):
            return self.size * mean_of_maximum(lambda x: p * np.log1p(-2 * ndtr(-x)))


@dataclass(frozen=True)
class Simplex:
    """Vectors of entries >= 0 that sum to ``size``; p vertices size e_j, never stored.

    >>> Simplex(1.0, 3).project(np.array([0.2, 0.4, 0.1])).round(6)
    array([0.3, 0.5, 0.2])
    """

    size: float
    n_features: int

    def __post_init__(self) -> None:
        use_python_numbers(self)
        check_radius(self.size)
        check_features(self.n_features)

    @property
    def n_vertices(self) -> int:
        """p."""
        return self.n_features

    def center(self) -> Array:
        """All entries equal."""
        return np.full(self.n_features, self.size / self.n_features)

    def vertex_scores(self, direction: Array) -> Array:
        """size d."""
        return self.size * direction

    def vertex(self, index: int) -> Array:
        """size e_j."""
        vector = np.zeros(self.n_features)
        vector[index] = self.size
        return vector

    def move_towards(self, theta: Array, index: int, rate: float) -> None:
        """Shrink theta and increase one entry."""
        theta *= 1 - rate
        theta[index] += rate * self.size

    def combination(self, weights: Array) -> Array:
        """The point with the given weights on the vertices."""
        return self.size * weights

    def project(self, theta: Array) -> Array:
        """Shift and clip at 0."""
        return project_to_simplex(theta, self.size)

    def linear_minimizer(self, direction: Array) -> Array:
        """The vertex at the smallest entry of d."""
        return self.vertex(int(np.argmin(direction)))

    def gauge(self, theta: Array) -> float:
        """sum theta / size, infinite if an entry is negative."""
        return float(theta.sum()) / self.size if np.all(theta >= 0) else math.inf

    def radius(self, norm: float = 2.0) -> float:
        """The size, in every norm."""
        check_norm(norm)
        return self.size

    def diameter(self, norm: float = 2.0) -> float:
        """From vertex to vertex: 2, sqrt(2) or 1 times the size."""
        check_norm(norm)
        if self.n_features == 1:
            return 0.0
        return self.size * {1.0: 2.0, 2.0: math.sqrt(2.0) * (1 + 1e-15)}.get(norm, 1.0)

    def gaussian_width(self) -> float:
        """size E max g_j, by a Riemann sum that is too large by less than 0.002 size."""
        p = self.n_features
        if p == 1:
            return 0.0
        return self.size * mean_of_maximum(lambda x: p * log_ndtr(x), negative=True)


@dataclass(frozen=True)
class Box:
    """Vectors with lower_j <= theta_j <= upper_j.

    >>> Box((0.0, 0.0), (1.0, 2.0)).linear_minimizer(np.array([1.0, -1.0]))
    array([0., 2.])
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        check_features(len(self.lower))
        if len(self.lower) != len(self.upper):
            raise ValueError(
                f"a box needs as many lower as upper bounds: {len(self.lower)}, {len(self.upper)}"
            )
        if not all(low <= high and math.isfinite(high - low) for low, high in zip(*self._pair, strict=True)):
            raise ValueError("every lower bound of a box must be finite and at most its upper bound")

    @property
    def _pair(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.lower, self.upper

    @property
    def n_features(self) -> int:
        """Number of coordinates."""
        return len(self.lower)

    def center(self) -> Array:
        """The middle."""
        low, high = np.array(self._pair)
        return np.asarray((low + high) / 2)

    def project(self, theta: Array) -> Array:
        """Clip every entry."""
        return np.asarray(np.clip(theta, *np.array(self._pair)))

    def linear_minimizer(self, direction: Array) -> Array:
        """The lower bound where d > 0, the upper bound elsewhere."""
        low, high = np.array(self._pair)
        return np.asarray(np.where(direction > 0, low, high))

    def gauge(self, theta: Array) -> float:
        """The largest of theta_j / upper_j and theta_j / lower_j; the box must contain the origin."""
        low, high = np.array(self._pair)
        if np.any(low > 0) or np.any(high < 0):
            raise ValueError("the gauge of a box needs the origin inside it")
        side = np.where(theta >= 0, high, low)
        ratios = np.where(
            theta == 0, 0.0, np.divide(theta, side, out=np.full_like(side, np.inf), where=side != 0)
        )
        return float(ratios.max())

    def radius(self, norm: float = 2.0) -> float:
        """Norm of the farthest corner."""
        check_norm(norm)
        return _norm(np.abs(np.array(self._pair)).max(axis=0), norm)

    def diameter(self, norm: float = 2.0) -> float:
        """Norm of upper - lower."""
        check_norm(norm)
        low, high = np.array(self._pair)
        return _norm(high - low, norm)

    def gaussian_width(self) -> float:
        """sum (upper - lower) E max(0, g) = |upper - lower|_1 / sqrt(2 pi), exactly."""
        return self.diameter(1.0) / math.sqrt(2 * math.pi)


def _norm(vector: Array, norm: float) -> float:
    """A norm, rounded up."""
    return scaled_norm(vector, norm) * (1 + (len(vector) + 2) * 2.0**-52)


_FAR = 2.0**60  # in sizes of the ball: projections from here minimize a linear function to full precision


@dataclass(frozen=True)
class BallIntersection:
    """Points of ``base`` within Euclidean distance ``size`` of ``middle``, a point of ``base``.

    Its projection is that of ``base`` after a move towards the middle, whose size is a root in one dimension (the
    multiplier of the ball's constraint). Its linear minimizer is the projection of a point far away.

    >>> from discreet.sets import L1Ball
    >>> part = BallIntersection(L1Ball(1.0, 2), (0.5, 0.0), 0.25)
    >>> part.linear_minimizer(np.array([-1.0, 0.0])).round(6)
    array([0.75, 0.  ])
    """

    base: Geometry
    middle: tuple[float, ...]
    size: float

    def __post_init__(self) -> None:
        use_python_numbers(self)
        check_radius(self.size)
        object.__setattr__(self, "middle", tuple(float(value) for value in self.middle))
        point = self.center()
        if point.shape != (self.base.n_features,):
            raise ValueError(f"the middle must have {self.base.n_features} entries, got {len(self.middle)}")
        if not scaled_norm(self.base.project(point) - point) <= 1e-9 * (self.size + scaled_norm(point)):
            raise ValueError(
                "the middle of the ball must lie in the set it is intersected with; project it first"
            )

    @property
    def n_features(self) -> int:
        """Length of the vectors."""
        return self.base.n_features

    def center(self) -> Array:
        """The middle of the ball."""
        return np.array(self.middle)

    def _excess(self, theta: Array) -> float:
        return scaled_norm(theta - self.center()) - self.size

    def project(self, theta: Array) -> Array:
        """base.project(middle + t (theta - middle)) with the largest t <= 1 that stays in the ball."""
        nearest = self.base.project(theta)
        # Projections never increase distances, so theta in the ball stays in it.
        if min(self._excess(nearest), self._excess(theta)) <= 0:
            return nearest
        middle, away = self.center(), theta - self.center()
        step = resized(away, self.size)

        def moved(shortening: float) -> Array:
            return self.base.project(middle + math.exp(-shortening) * step)

        longest = min(math.log(scaled_norm(away)) - math.log(self.size), 700.0)
        return moved(decreasing_root(lambda x: self._excess(moved(x)), -longest, 0.0))

    def linear_minimizer(self, direction: Array) -> Array:
        """That of base if it lies in the ball, otherwise the projection of middle - t d for a large t.

        The projection x of middle - t d has <d, x> at most size^2 / (2 t) above the minimum, even with ties.
        """
        best = self.base.linear_minimizer(direction)
        if self._excess(best) <= 0:
            return best
        return self.project(self.center() - resized(direction, _FAR * self.size))

    def gauge(self, theta: Array) -> float:
        """The larger of the two gauges; the ball must contain the origin in its interior."""
        scale, middle = binary_scale(theta), self.center() / self.size
        unit, distance = theta / scale, scaled_norm(middle)
        slack = (1 - distance) * (1 + distance)
        if slack <= 0:
            raise ValueError("the gauge needs the origin inside the ball")
        # |unit / t - middle| <= 1 is quadratic in 1 / t; the root is written without cancellation.
        along, square = float(unit @ middle), float(unit @ unit)
        root = math.sqrt(along**2 + slack * square)
        ball = square / (root + along) if along > 0 else (root - along) / slack
        return max(self.base.gauge(theta), ball * (scale / self.size))

    def radius(self, norm: float = 2.0) -> float:
        """The smaller of the two radii."""
        check_norm(norm)
        reach = scaled_norm(self.center(), norm) + L2Ball(self.size, self.n_features).radius(norm)
        return min(self.base.radius(norm), reach * (1 + (self.n_features + 4) * 2.0**-52))

    def diameter(self, norm: float = 2.0) -> float:
        """The smaller of the two diameters."""
        return min(self.base.diameter(norm), L2Ball(self.size, self.n_features).diameter(norm))

    def gaussian_width(self) -> float:
        """The smaller of the two widths, which are invariant under translation."""
        return min(self.base.gaussian_width(), L2Ball(self.size, self.n_features).gaussian_width())
