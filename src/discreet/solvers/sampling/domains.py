"""The sets from which coefficients are drawn: an L2 ball, a box, an L1 ball or a simplex.

A draw is made in a ball around the set, and proposals outside of the set are rejected. Membership is decided by the
proposed numbers alone, so the candidates are the same for all data. A simplex has no interior: its points are drawn in
coordinates of its plane, theta = middle + basis x, where every record has an offset <v, middle>. Proofs:
docs/proofs/exponential-sampling.md, section 10.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet._checks import ParameterError, Setting
from discreet._typing import Array
from discreet.losses import Loss
from discreet.mechanisms.gibbs import Ball
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import Box, Geometry, L1Ball, L2Ball, Simplex
from discreet.solvers.certificates import record_bound
from discreet.solvers.sampling.envelopes import Energy, Limit, Slab

#: Sets whose points can be drawn exactly.
SETS = (L2Ball, Box, L1Ball, Simplex)
_THINNEST = 2.0**-12  # of the surrounding ball's radius: a set must contain a ball of many grid steps
_MOST_FACES = 8  # coefficients of an L1 ball whose 2^(p - 1) pairs of faces are used one by one
_MOST_STEPS = 2.0**50  # of the grid, from the origin to any center of a proposal: sums of both are exact
_ROOM = 1 + 2.0**-20  # a bound that no row in coordinates of a plane reaches, whatever is rounded


@dataclass(frozen=True)
class Domain:
    """A public set, in the coordinates in which its points are drawn."""

    geometry: L2Ball | Box | L1Ball | Simplex

    @property
    def flat(self) -> bool:
        """Whether the set lies in a plane, so that there is one coordinate less than coefficients."""
        return isinstance(self.geometry, Simplex)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.geometry.n_features - int(self.flat)

    @cached_property
    def ball(self) -> Ball:
        """A ball of coordinates that contains the set."""
        geometry = self.geometry
        if isinstance(geometry, Simplex):
            radius = geometry.size * math.sqrt(1 - 1 / geometry.n_features)
        else:
            radius = geometry.size if isinstance(geometry, L2Ball) else 0.5 * geometry.diameter(2.0)
        if isinstance(geometry, L2Ball):
            return Ball((0.0,) * self.size, radius)
        center = (0.0,) * self.size if self.flat else tuple(geometry.center().tolist())
        return Ball(center, radius * (1 + 2.0**-36))

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The ball, and slabs that contain the set: between opposite faces where there are not too many."""
        geometry, p = self.geometry, self.geometry.n_features
        if isinstance(geometry, Box):
            low, high, ways = np.array(geometry.lower), np.array(geometry.upper), np.eye(p)
        elif isinstance(geometry, L1Ball):
            ways = _faces(p) if p <= _MOST_FACES else np.eye(p)
            length = geometry.size * float(np.linalg.norm(ways[0], np.inf))
            low, high = np.full(len(ways), -length), np.full(len(ways), length)
        elif isinstance(geometry, Simplex):
            middle = geometry.size / p
            low, high, ways = np.full(p, -middle), np.full(p, geometry.size - middle), plane(p)
        else:
            return (self.ball,)
        middles = 0.5 * (low + high)
        radii = 0.5 * (high - low) * (1 + 2.0**-36) + 2.0**-50 * np.maximum(np.abs(low), np.abs(high))
        slabs = (
            Slab(tuple(way), float(middle), float(radius))
            for way, middle, radius in zip(ways.tolist(), middles, radii, strict=True)
        )
        return (self.ball, *slabs)

    @property
    def inner_radius(self) -> float:
        """Radius of a ball inside the set, around the center."""
        geometry, p = self.geometry, self.geometry.n_features
        if isinstance(geometry, Box):
            return 0.5 * float(np.min(np.array(geometry.upper) - np.array(geometry.lower)))
        if isinstance(geometry, L1Ball):
            return geometry.size / math.sqrt(p)
        if isinstance(geometry, Simplex):
            return geometry.size / math.sqrt(p * (p - 1))
        return geometry.size

    @property
    def region(self) -> Domain | None:
        """What else a point of the ball has to satisfy; None for an L2 ball."""
        return None if isinstance(self.geometry, L2Ball) else self

    def contains(self, points: Array) -> NDArray[np.bool_]:
        """Whether points, one per row, lie in the set: a function of their coordinates alone.

        Entries are multiples of the grid, so sums of absolute entries up to the size of an L1 ball are exact.
        """
        geometry = self.geometry
        if isinstance(geometry, Box):
            inside = (points >= np.array(geometry.lower)) & (points <= np.array(geometry.upper))
            return np.asarray(inside.all(axis=1))
        if isinstance(geometry, L1Ball):
            return np.asarray(np.abs(points).sum(axis=1) <= geometry.size)
        if isinstance(geometry, Simplex):
            return np.asarray((self.coefficients(points) >= 0).all(axis=1))
        return np.ones(len(points), dtype=bool)

    def coefficients(self, points: Array) -> Array:
        """Return the coefficients of points, one per row."""
        if not isinstance(self.geometry, Simplex):
            return points
        middle = self.geometry.size / self.geometry.n_features
        return _placed(np.ascontiguousarray(points), plane(self.geometry.n_features), middle)

    def coordinates(self, theta: Array) -> Array:
        """Return the coordinates of a point of the set, up to rounding."""
        if not self.flat:
            return theta
        return np.asarray((theta - self.geometry.center()) @ plane(self.geometry.n_features))

    def reach(self, problem: Problem) -> float:
        """Bound |<v, theta>| for every record v and every theta of the set."""
        bound, norm = record_bound(problem)
        one = problem.bounds.feature_norm * self.geometry.radius(2.0)
        if self.region is None:
            return one
        return min(one, bound * self.geometry.radius(norm)) * (1 + 2.0**-36)

    def roundings(self, n_features: int) -> int:
        """Roundings in a prediction: those of an inner product, or of products with the basis of the plane, too."""
        if not self.flat:
            return n_features
        return (math.isqrt(n_features) + 4) * (n_features + 4)

    def energy(self, records: ArrayRecords, loss: Loss, rate: float, l2: float) -> Energy:
        """Return the energy of the records in coordinates of the draw; a ridge on a simplex up to a constant."""
        if not self.flat:
            return Energy(records, loss, rate, l2)
        rows = _dense(records)
        used = records.scales > 0
        bounds = Bounds(records.bounds.feature_norm * _ROOM, intercept=False)
        moved = ArrayRecords(
            rows @ plane(rows.shape[1]), records.labels, bounds, null_rows=~used, n_threads=1
        )
        return Energy(moved, loss, rate, l2, rows @ self.geometry.center())


def _dense(records: ArrayRecords) -> Array:
    """Return the clipped records as a matrix, with zeros for null records."""
    matrix = records.matrix
    rows = np.ones((records.n_samples, records.n_features))
    rows[:, : records.n_columns] = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    used = records.scales > 0
    rows[~used] = 0.0
    rows[used] *= records.scales[used, None]
    return rows


@lru_cache(maxsize=8)
def plane(n_features: int) -> Array:
    """Return orthonormal columns whose entries sum to 0 (Helmert): coordinates of the plane of a simplex.

    >>> (plane(3).T @ plane(3)).round(12)
    array([[1., 0.],
           [0., 1.]])
    """
    basis = np.zeros((n_features, n_features - 1))
    for j in range(1, n_features):
        basis[:j, j - 1] = 1.0 / math.sqrt(j * (j + 1))
        basis[j, j - 1] = -j / math.sqrt(j * (j + 1))
    basis.setflags(write=False)
    return basis


def _faces(n_features: int) -> Array:
    """Return the normals of the faces of an L1 ball, one of each pair."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=n_features - 1)), dtype=np.float64)
    return np.column_stack([np.ones(len(signs)), signs]) / math.sqrt(n_features)


def _placed_python(points: Array, basis: Array, middle: float) -> Array:
    """Sum in one fixed order, so that membership depends on the point only."""
    theta = np.empty((len(points), len(basis)))
    for row in range(len(points)):
        for i in range(len(basis)):
            total = middle
            for j in range(basis.shape[1]):
                total += basis[i, j] * points[row, j]
            theta[row, i] = total
    return theta


_placed: Callable[[Array, Array, float], Array] = compiled()(_placed_python)


def domain_of(name: str, geometry: Geometry) -> Domain:
    """Return the domain of a set, or raise if nothing can be drawn from it exactly."""
    if not isinstance(geometry, SETS):
        known = ", ".join(kind.__name__ for kind in SETS)
        raise ParameterError(
            "solver",
            f"{name!r} draws from {known} only, not from {type(geometry).__name__}",
            Setting("solver", "frank-wolfe", "mirror-descent", purpose="for other sets"),
        )
    if isinstance(geometry, Simplex) and geometry.n_features == 1:
        raise ParameterError("constraint", "is a simplex of one coefficient, which is a single point")
    found = Domain(geometry)
    if found.inner_radius < _THINNEST * found.ball.radius:
        raise ParameterError(
            "constraint",
            f"is too thin for {name!r}: it must contain a ball of at least {_THINNEST:.2g} of its own radius",
            "drop the columns whose coefficient is known",
            Setting("solver", "mirror-descent", "noisy-gd"),
        )
    return found


def check_exact(name: str, domain: Domain, grid: float) -> None:
    """Raise if float64 numbers cannot hold points of the set on the grid, or the centers of proposals around it."""
    farthest = float(np.linalg.norm(domain.ball.center)) + domain.ball.radius
    if not 8 * math.sqrt(domain.size) * farthest < _MOST_STEPS * grid:
        raise ParameterError(
            "constraint",
            f"reaches as far as {farthest:.3g} from the origin, too far for {name!r} beside the fine grid that this "
            "problem needs",
            "choose a smaller set, nearer to the origin",
            Setting("solver", "mirror-descent", "noisy-gd"),
        )
