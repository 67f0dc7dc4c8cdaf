"""Balls of structured norms: groups of coordinates, a mixture of L1 and L2, the nuclear norm of a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi

from discreet._checks import use_python_numbers
from discreet._typing import Array
from discreet.sets.balls import Ball, L1Ball
from discreet.sets.base import (
    binary_scale,
    check_features,
    check_norm,
    check_radius,
    decreasing_root,
    euclidean_width,
    mean_of_maximum,
    project_magnitudes,
    scaled_norm,
)


@dataclass(frozen=True)
class GroupedL1Ball(Ball):
    """Vectors whose groups of ``group_size`` consecutive entries have L2 norms that sum to at most ``size``.

    The last group is shorter if ``group_size`` does not divide ``n_features``.

    >>> GroupedL1Ball(1.0, 4, group_size=2).linear_minimizer(np.array([3.0, 4.0, 0.0, 1.0]))
    array([-0.6, -0.8, -0. , -0. ])
    """

    group_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_features(self.group_size)

    @property
    def _starts(self) -> list[int]:
        return list(range(0, self.n_features, self.group_size))

    def _spread(self, per_group: Array) -> Array:
        return np.repeat(per_group, self.group_size)[: self.n_features]

    def magnitudes(self, theta: Array) -> Array:
        """The L2 norm of every group."""
        scale = binary_scale(theta)
        return np.asarray(scale * np.sqrt(np.add.reduceat(np.square(theta / scale), self._starts)))

    def with_magnitudes(self, theta: Array, magnitudes: Array) -> Array:
        """The vector whose groups have the directions of theta's and the given norms."""
        unit = theta / binary_scale(theta)
        norms = self.magnitudes(unit)
        return unit * self._spread(np.divide(magnitudes, norms, out=np.zeros_like(norms), where=norms > 0))

    def project(self, theta: Array) -> Array:
        """Project the norms of the groups onto the L1 ball."""
        norms = self.magnitudes(theta)
        if norms.sum() <= self.size:
            return theta
        return self.with_magnitudes(theta, project_magnitudes(norms, self.size))

    def linear_minimizer(self, direction: Array) -> Array:
        """All weight on the group with the largest norm."""
        norms = self.magnitudes(direction)
        chosen = np.zeros_like(norms)
        best = int(np.argmax(norms))
        if norms[best] == 0:
            return self.center()
        chosen[best] = self.size
        return -self.with_magnitudes(direction, chosen)

    def gauge(self, theta: Array) -> float:
        """The sum of the groups' norms over the size."""
        return float(self.magnitudes(theta).sum()) / self.size

    def radius(self, norm: float = 2.0) -> float:
        """size sqrt(group size) in L1, size otherwise."""
        check_norm(norm)
        return self.size * (
            math.sqrt(min(self.group_size, self.n_features)) * (1 + 1e-15) if norm == 1 else 1.0
        )

    def gaussian_width(self) -> float:
        """size E max of the groups' chi variables, centered at sqrt(k); a Riemann sum from the upper side."""
        full, rest = divmod(self.n_features, self.group_size)
        shift = math.sqrt(self.group_size) if full else 0.0
        degrees = [(full, self.group_size), (1 if rest else 0, rest)]

        def log_cdf(x: Array) -> Array:
            total = np.zeros_like(x)
            for count, degree in degrees:
                if count:
                    with np.errstate(divide="ignore"):
                        total += count * np.asarray(chi.logcdf(x + shift, degree))
            return total

        return self.size * (shift + mean_of_maximum(log_cdf, negative=True))


@dataclass(frozen=True)
class InterpolationBall(Ball):
    """Vectors with (1 - mix) |theta|_1 + mix |theta|_2 <= size, for 0 < mix <= 1 (mix = 1 is the L2 ball).

    >>> round(InterpolationBall(1.0, 4, mix=0.5).gauge(np.array([1.0, 0.0, 0.0, 0.0])), 6)
    1.0
    """

    mix: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mix <= 1:
            raise ValueError(f"mix must be greater than 0 and at most 1, got {self.mix!r}; for 0 use L1Ball")

    def gauge(self, theta: Array) -> float:
        """The norm over the size."""
        return ((1 - self.mix) * float(np.abs(theta).sum()) + self.mix * scaled_norm(theta)) / self.size

    def _touching(self, theta: Array, share: float) -> Array:
        """Return the point of the ball nearest to theta (share 1), or to t theta as t grows (share 0).

        The nearest point x is the proximal point of a penalty times the norm: u, which is theta soft-thresholded at
        penalty (1 - mix), shortened by penalty mix. So x = u / gauge(u), and penalty mix = |u|_2 - |x|_2. The search is
        over the gap between the threshold and the largest entry, because far away the penalty itself loses precision.
        """
        scale = binary_scale(theta)
        entries = np.abs(theta) / scale
        top = float(entries.max())

        def thresholded(room: float) -> Array:
            return np.maximum(entries - top + room, 0.0)

        def excess(room: float) -> float:
            u = thresholded(room)
            kept = 1 - share / scale / self.gauge(u)
            return self.mix * (top - room) - (1 - self.mix) * kept * float(np.linalg.norm(u))

        u = np.sign(theta) * thresholded(decreasing_root(excess, 0.0, top))
        return u / self.gauge(u)

    def project(self, theta: Array) -> Array:
        """Soft threshold, then shrink; finds one root in one dimension."""
        return theta if self.gauge(theta) <= 1 else self._touching(theta, 1.0)

    def linear_minimizer(self, direction: Array) -> Array:
        """The limit of projections of -t d."""
        return -self._touching(direction, 0.0) if np.any(direction) else self.center()

    def radius(self, norm: float = 2.0) -> float:
        """size / (1 - mix + mix / sqrt(p)) in L1, where all entries are equal; size otherwise."""
        check_norm(norm)
        share = 1 - self.mix + self.mix / math.sqrt(self.n_features)
        return self.size * ((1 + 1e-15) / share if norm == 1 else 1.0)

    def gaussian_width(self) -> float:
        """At most size / ((1 - mix) / E|g|_inf + mix / E|g|_2).

        Splitting g = t g + (1 - t) g shows that the dual norm is at most the weighted harmonic mean of |g|_inf and
        |g|_2, which is concave in the pair; Jensen's inequality gives the bound.
        """
        ones = L1Ball(1.0, self.n_features).gaussian_width()
        return self.size / ((1 - self.mix) / ones + self.mix / euclidean_width(self.n_features))


@dataclass(frozen=True)
class NuclearBall:
    """Matrices of ``shape``, flattened row by row, whose singular values sum to at most ``size``.

    >>> NuclearBall(1.0, (2, 2)).linear_minimizer(np.array([2.0, 0.0, 0.0, 1.0]))
    array([-1.,  0.,  0.,  0.])
    """

    size: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        use_python_numbers(self)
        check_radius(self.size)
        rows, columns = self.shape
        check_features(rows)
        check_features(columns)
        object.__setattr__(self, "shape", (int(rows), int(columns)))

    @property
    def n_features(self) -> int:
        """Number of entries of a matrix."""
        return self.shape[0] * self.shape[1]

    def center(self) -> Array:
        """The zero matrix."""
        return np.zeros(self.n_features)

    def _svd(self, theta: Array) -> tuple[Array, Array, Array]:
        left, values, right = np.linalg.svd(theta.reshape(self.shape), full_matrices=False)
        return left, values, right

    def magnitudes(self, theta: Array) -> Array:
        """The singular values."""
        return self._svd(theta)[1]

    def with_magnitudes(self, theta: Array, magnitudes: Array) -> Array:
        """The matrix with the singular vectors of theta and the given singular values."""
        left, _, right = self._svd(theta)
        return np.asarray((left * magnitudes) @ right).ravel()

    def project(self, theta: Array) -> Array:
        """Project the singular values onto the L1 ball."""
        left, values, right = self._svd(theta)
        if values.sum() <= self.size:
            return theta
        return np.asarray((left * project_magnitudes(values, self.size)) @ right).ravel()

    def linear_minimizer(self, direction: Array) -> Array:
        """-size u v^T for the largest singular value of d."""
        left, _, right = self._svd(direction)
        return np.asarray(-self.size * np.outer(left[:, 0], right[0])).ravel() + 0.0

    def gauge(self, theta: Array) -> float:
        """The sum of the singular values over the size."""
        return float(self.magnitudes(theta).sum()) / self.size

    def radius(self, norm: float = 2.0) -> float:
        """size sqrt(entries) in L1 (a rank-one matrix of equal entries), size otherwise."""
        check_norm(norm)
        return self.size * (math.sqrt(self.n_features) * (1 + 1e-15) if norm == 1 else 1.0)

    def diameter(self, norm: float = 2.0) -> float:
        """Twice the radius."""
        return 2 * self.radius(norm)

    def gaussian_width(self) -> float:
        """At most size (sqrt(rows) + sqrt(columns)) (Gordon, 1985; also Davidson and Szarek, 2001)."""
        return self.size * (math.sqrt(self.shape[0]) + math.sqrt(self.shape[1]))
