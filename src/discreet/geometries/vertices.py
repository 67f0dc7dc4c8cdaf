"""A polytope given by the list of its vertices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linprog

from discreet.geometries.base import Array, check_norm

_ROUNDS = 10_000


@dataclass(frozen=True, eq=False)
class VertexPolytope:
    """The convex hull of the rows of ``vertices``, a public matrix of shape (n_vertices, n_features).

    Rows that are not vertices of the hull do no harm, but they cost a selection its accuracy.

    >>> square = VertexPolytope([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    >>> square.project(np.array([3.0, 0.5])).round(9)
    array([1. , 0.5])
    >>> square.gauge(np.array([0.0, 2.0]))
    2.0
    """

    vertices: Any
    _rows: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = np.array(self.vertices, dtype=np.float64, ndmin=2)
        if rows.ndim != 2 or rows.size == 0 or not np.all(np.abs(rows) <= 1e100):
            raise ValueError(
                f"vertices must be a finite matrix with one vertex per row, got shape {rows.shape}"
            )
        rows.setflags(write=False)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "vertices", rows)

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
        """A step of the given share towards one row."""
        theta *= 1 - rate
        theta += rate * self._rows[index]

    def combination(self, weights: Array) -> Array:
        """The point with the given weights on the vertices."""
        return np.asarray(weights @ self._rows)

    def linear_minimizer(self, direction: Array) -> Array:
        """The row with the smallest inner product."""
        return self.vertex(int(np.argmin(self._rows @ direction)))

    def project(self, theta: Array) -> Array:
        """The nearest point, by Wolfe's (1976) algorithm: finitely many affine projections."""
        points = self._rows - theta
        scale = float(np.abs(points).max()) ** 2 + 1e-300
        active = [int(np.argmin(np.einsum("ij,ij->i", points, points)))]
        weights = np.ones(1)
        nearest = points[active[0]]
        for _ in range(_ROUNDS):
            scores = points @ nearest
            best = int(np.argmin(scores))
            if scores[best] >= nearest @ nearest - 1e-14 * scale or best in active:
                break
            active.append(best)
            weights = np.append(weights, 0.0)
            active, weights = _to_affine_minimum(points, active, weights)
            nearest = weights @ points[active]
        return np.asarray(nearest + theta)

    def gauge(self, theta: Array) -> float:
        """The smallest sum of weights >= 0 with which vertices combine to theta: a linear program."""
        found = linprog(
            np.ones(self.n_vertices), A_eq=self._rows.T, b_eq=theta, bounds=(0, None), method="highs"
        )
        return math.inf if found.fun is None or found.status != 0 else float(found.fun)

    def radius(self, norm: float = 2.0) -> float:
        """The largest norm of a vertex, rounded up."""
        check_norm(norm)
        return float(np.linalg.norm(self._rows, norm, axis=1).max()) * self._slack

    def diameter(self, norm: float = 2.0) -> float:
        """The largest distance of two vertices, rounded up."""
        check_norm(norm)
        return (
            max(
                float(np.linalg.norm(self._rows[i:] - row, norm, axis=1).max())
                for i, row in enumerate(self._rows)
            )
            * self._slack
        )

    @property
    def _slack(self) -> float:
        return 1 + (self.n_features + 4) * 2.0**-52

    @cached_property
    def _spread(self) -> float:
        return float(np.linalg.norm(self._rows - self.center(), axis=1).max()) * self._slack

    def gaussian_width(self) -> float:
        """At most sqrt(2 log n_vertices) times the largest distance from the mean vertex (maximal inequality)."""
        return self._spread * math.sqrt(2 * math.log(self.n_vertices))


def _to_affine_minimum(points: Array, active: list[int], weights: Array) -> tuple[list[int], Array]:
    """Move the weights to the nearest point of the affine hull, dropping vertices whose weight would turn negative."""
    while True:
        corner = points[active]
        system = np.block(
            [[corner @ corner.T, np.ones((len(active), 1))], [np.ones((1, len(active))), np.zeros((1, 1))]]
        )
        target = np.zeros(len(active) + 1)
        target[-1] = 1.0
        wanted = np.linalg.lstsq(system, target, rcond=None)[0][:-1]
        if np.all(wanted > 1e-13):
            return active, wanted / wanted.sum()
        falling = wanted <= 1e-13
        rates = np.where(falling, weights / np.maximum(weights - wanted, 1e-300), np.inf)
        weights = weights + min(1.0, float(rates.min())) * (wanted - weights)
        weights[int(np.argmin(rates))] = 0.0
        keep = np.flatnonzero(weights > 1e-15)
        active, weights = [active[k] for k in keep], weights[keep] / weights[keep].sum()
        if len(active) == 1:
            return active, np.ones(1)
