"""The part of a set that lies within a ball: what localization leaves of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.geometries.balls import L2Ball
from discreet.geometries.base import (
    Array,
    Geometry,
    binary_scale,
    check_norm,
    check_radius,
    decreasing_root,
    resized,
    scaled_norm,
)

_FAR = 2.0**60  # in sizes of the ball: from here, a projection minimizes a linear function to the last digit


@dataclass(frozen=True)
class BallIntersection:
    """Points of ``base`` within Euclidean distance ``size`` of ``middle``, a point of ``base``.

    Its projection is that of ``base`` after a pull towards the middle whose strength is a root in one dimension (the
    multiplier of the ball's constraint), and its linear minimizer is the projection of a point far away.

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
        # Projections bring points no further apart, so theta in the ball stays in it.
        if min(self._excess(nearest), self._excess(theta)) <= 0:
            return nearest
        middle, away = self.center(), theta - self.center()
        step = resized(away, self.size)

        def moved(shortening: float) -> Array:
            return self.base.project(middle + math.exp(-shortening) * step)

        longest = min(math.log(scaled_norm(away)) - math.log(self.size), 700.0)
        return moved(decreasing_root(lambda x: self._excess(moved(x)), -longest, 0.0))

    def linear_minimizer(self, direction: Array) -> Array:
        """That of base if it lies in the ball, else the projection of middle - t d for a large t.

        The projection x of middle - t d has <d, x> at most size^2 / (2 t) above the minimum, also where d is tied.
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
        # |unit / t - middle| <= 1 is quadratic in 1 / t; the root is written so that nothing cancels.
        along, square = float(unit @ middle), float(unit @ unit)
        root = math.sqrt(along**2 + slack * square)
        ball = square / (root + along) if along > 0 else (root - along) / slack
        return max(self.base.gauge(theta), ball * (scale / self.size))

    def radius(self, norm: float = 2.0) -> float:
        """The smaller of the two bounds."""
        check_norm(norm)
        reach = scaled_norm(self.center(), norm) + L2Ball(self.size, self.n_features).radius(norm)
        return min(self.base.radius(norm), reach * (1 + (self.n_features + 4) * 2.0**-52))

    def diameter(self, norm: float = 2.0) -> float:
        """The smaller of the two diameters."""
        return min(self.base.diameter(norm), L2Ball(self.size, self.n_features).diameter(norm))

    def gaussian_width(self) -> float:
        """The smaller of the two widths; a translation does not change a width."""
        return min(self.base.gaussian_width(), L2Ball(self.size, self.n_features).gaussian_width())
