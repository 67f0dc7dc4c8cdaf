"""A polytope given by the list of its vertices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linprog

from discreet._typing import Array
from discreet.sets.base import binary_scale, check_norm, resized, scaled_norm

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
