"""The part of a set that lies within a ball: what localization leaves of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.geometries.balls import L2Ball
from discreet.geometries.base import Array, Geometry, check_norm, check_radius, decreasing_root


@dataclass(frozen=True)
class BallIntersection:
    """Points of ``base`` within Euclidean distance ``size`` of ``middle``, a point of ``base``.

    Projection and linear minimizer are those of ``base`` after a quadratic pull towards the middle whose strength
    is a root in one dimension (the multiplier of the ball's constraint).

    >>> from discreet.geometries import L1Ball
    >>> part = BallIntersection(L1Ball(1.0, 2), (0.5, 0.0), 0.25)
    >>> part.linear_minimizer(np.array([-1.0, 0.0])).round(6)
    array([0.75, 0.  ])
    """

    base: Geometry
    middle: tuple[float, ...]
    size: float

    def __post_init__(self) -> None:
        check_radius(self.size)
        object.__setattr__(self, "middle", tuple(float(value) for value in self.middle))
        point = self.center()
        if point.shape != (self.base.n_features,):
            raise ValueError(f"the middle must have {self.base.n_features} entries, got {len(self.middle)}")
        if not np.linalg.norm(self.base.project(point) - point) <= 1e-9 * (self.size + np.linalg.norm(point)):
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
        return float(np.linalg.norm(theta - self.center())) - self.size

    def project(self, theta: Array) -> Array:
        """base.project((1 - t) theta + t middle) with the smallest t that reaches the ball."""
        nearest = self.base.project(theta)
        if self._excess(nearest) <= 0:
            return nearest
        middle = self.center()

        def pulled(t: float) -> Array:
            return self.base.project((1 - t) * theta + t * middle)

        return pulled(decreasing_root(lambda t: self._excess(pulled(t)), 0.0, 1.0))

    def linear_minimizer(self, direction: Array) -> Array:
        """base.project(middle - t d) with the largest t that stays in the ball."""
        best = self.base.linear_minimizer(direction)
        if self._excess(best) <= 0:
            return best
        if not np.any(direction):
            return self.center()
        middle, norm = self.center(), float(np.linalg.norm(direction))

        def pushed(log_t: float) -> Array:
            return self.base.project(middle - math.exp(-log_t) / norm * direction)

        scale = math.log(self.size)
        return pushed(decreasing_root(lambda x: self._excess(pushed(x)), -scale - 40.0, -scale + 40.0))

    def gauge(self, theta: Array) -> float:
        """The larger of the two gauges; the ball must contain the origin in its interior."""
        middle = self.center()
        slack = self.size**2 - float(middle @ middle)
        if slack <= 0:
            raise ValueError("the gauge needs the origin inside the ball")
        # |theta / t - middle| <= size is quadratic in 1 / t.
        along = float(theta @ middle)
        ball = (math.sqrt(along**2 + slack * float(theta @ theta)) - along) / slack
        return max(self.base.gauge(theta), ball)

    def radius(self, norm: float = 2.0) -> float:
        """The smaller of the two bounds."""
        check_norm(norm)
        reach = float(np.linalg.norm(self.center(), norm)) + L2Ball(self.size, self.n_features).radius(norm)
        return min(self.base.radius(norm), reach * (1 + (self.n_features + 4) * 2.0**-52))

    def diameter(self, norm: float = 2.0) -> float:
        """The smaller of the two diameters."""
        return min(self.base.diameter(norm), L2Ball(self.size, self.n_features).diameter(norm))

    def gaussian_width(self) -> float:
        """The smaller of the two widths; a translation does not change a width."""
        return min(self.base.gaussian_width(), L2Ball(self.size, self.n_features).gaussian_width())
