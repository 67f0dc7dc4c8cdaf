"""Balls of structured norms (groups of coordinates, L1 mixed with L2, nuclear) and polytopes with listed vertices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linprog
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
    resized,
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


_FAR = 2.0**52  # in sizes of the polytope: beyond this, only the direction determines the nearest point
_ROUNDING = 2.0**-50  # relative errors of inner products, per coordinate


@dataclass(frozen=True, eq=False, repr=False)
class VertexPolytope:
    """The convex hull of the rows of ``vertices``, a public matrix of shape (n_vertices, n_features).

    Rows that are not vertices of the hull are allowed, but reduce the accuracy of a selection.

    >>> square = VertexPolytope([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    >>> square.project(np.array([3.0, 0.5])).round(9)
    array([1. , 0.5])
    >>> square.gauge(np.array([0.0, 2.0]))
    2.0
    """

    vertices: Any
    _rows: Array = field(init=False)

    def __post_init__(self) -> None:
        rows = np.array(self.vertices, dtype=np.float64, ndmin=2)
        if rows.ndim != 2 or rows.size == 0 or not np.all(np.abs(rows) <= 1e100):
            raise ValueError(
                f"vertices must be a finite matrix with one vertex per row, got shape {rows.shape}"
            )
        rows.setflags(write=False)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "vertices", rows)

    def __repr__(self) -> str:
        return f"VertexPolytope({self.n_vertices} vertices of {self.n_features} numbers)"

    @property
    def n_vertices(self) -> int:
        """Number of rows."""
        return int(self._rows.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self._rows.shape[1])

    def center(self) -> Array:
        """The mean of the vertices."""
        return np.asarray(self._rows.mean(axis=0))

    def vertex_scores(self, direction: Array) -> Array:
        """All inner products."""
        return np.asarray(self._rows @ direction)

    def vertex(self, index: int) -> Array:
        """One row."""
        return np.array(self._rows[index])

    def move_towards(self, theta: Array, index: int, rate: float) -> None:
        """Move by the given fraction towards one row."""
        theta *= 1 - rate
        theta += rate * self._rows[index]

    def combination(self, weights: Array) -> Array:
        """The point with the given weights on the vertices."""
        return np.asarray(weights @ self._rows)

    def linear_minimizer(self, direction: Array) -> Array:
        """The row with the smallest inner product."""
        return self.vertex(int(np.argmin(self._rows @ (direction / binary_scale(direction)))))

    @cached_property
    def _unit(self) -> tuple[Array, float, Array]:
        """The mean vertex, a scale, and the rows relative to the mean in units of the scale."""
        middle = self.center()
        scale = binary_scale(self._rows - middle)
        return middle, scale, (self._rows - middle) / scale

    def project(self, theta: Array) -> Array:
        """The nearest point, by Wolfe's (1976) algorithm: finitely many affine projections."""
        middle, scale, points = self._unit
        away = theta - middle
        if scaled_norm(away) > _FAR * scale:
            away = resized(away, _FAR * scale)
        active, weights = _nearest_combination(points, away / scale)
        return np.asarray(weights @ self._rows[active])

    def gauge(self, theta: Array) -> float:
        """Return the smallest sum of weights >= 0 with which vertices combine to theta, by a linear program.

        Every coordinate and theta are scaled to size 1 first, because the program's tolerances are absolute.
        """
        scales = np.array([binary_scale(column) for column in self._rows.T])
        scaled = theta / scales
        scale = binary_scale(scaled)
        found = linprog(
            np.ones(self.n_vertices), A_eq=(self._rows / scales).T, b_eq=scaled / scale, bounds=(0, None),
            method="highs", options={"primal_feasibility_tolerance": 1e-10},
        )  # fmt: skip
        return math.inf if found.fun is None or found.status != 0 else scale * float(found.fun)

    def radius(self, norm: float = 2.0) -> float:
        """The largest norm of a vertex, rounded up."""
        check_norm(norm)
        return _largest_norm(self._rows, norm) * self._slack

    def diameter(self, norm: float = 2.0) -> float:
        """The largest distance of two vertices, rounded up."""
        check_norm(norm)
        rows = self._rows
        return max(_largest_norm(rows[i:] - row, norm) for i, row in enumerate(rows)) * self._slack

    @property
    def _slack(self) -> float:
        return 1 + (self.n_features + 4) * 2.0**-52

    @cached_property
    def _spread(self) -> float:
        return _largest_norm(self._rows - self.center(), 2.0) * self._slack

    def gaussian_width(self) -> float:
        """At most sqrt(2 log n_vertices) times the largest distance from the mean vertex (maximal inequality)."""
        return self._spread * math.sqrt(2 * math.log(self.n_vertices))


def _largest_norm(rows: Array, norm: float) -> float:
    scale = binary_scale(rows)
    return scale * float(np.linalg.norm(rows / scale, norm, axis=1).max())


def _nearest_combination(points: Array, target: Array) -> tuple[list[int], Array]:
    """Return rows of ``points`` (of size about 1) and weights > 0 at the point of the hull nearest to ``target``.

    The algorithm keeps the nearest point of an active set of rows. A row joins if it lies beyond the plane through that
    point by more than rounding explains.
    """
    active = [int(np.argmin(0.5 * np.einsum("ij,ij->i", points, points) - points @ target))]
    weights = np.ones(1)
    seen: set[frozenset[int]] = set()
    while frozenset(active) not in seen:  # only rounding can bring back an earlier set
        seen.add(frozenset(active))
        nearest = weights @ points[active]
        gains = (points - nearest) @ (target - nearest)
        best = int(np.argmax(gains))
        noise = _ROUNDING * points.shape[1] * (1 + float(np.linalg.norm(target - nearest)))
        if gains[best] <= noise or best in active:
            break
        active, weights = _to_affine_minimum(points, target, [*active, best], np.append(weights, 0.0))
    return active, weights


def _to_affine_minimum(
    points: Array, target: Array, active: list[int], weights: Array
) -> tuple[list[int], Array]:
    """Move the weights to the nearest point of the affine hull, dropping rows whose weight would become negative."""
    while len(active) > 1:
        first, others = points[active[0]], points[active[1:]]
        tail = np.linalg.lstsq((others - first).T, target - first, rcond=None)[0]
        wanted = np.append(1 - tail.sum(), tail)
        if np.all(wanted > 0):
            return active, wanted
        rates = np.where(wanted > 0, np.inf, weights / np.maximum(weights - wanted, 1e-300))
        weights = weights + min(1.0, float(rates.min())) * (wanted - weights)
        weights[int(np.argmin(rates))] = 0.0
        keep = np.flatnonzero(weights > 1e-15)
        active, weights = [active[k] for k in keep], weights[keep] / weights[keep].sum()
    return active, np.ones(1)
