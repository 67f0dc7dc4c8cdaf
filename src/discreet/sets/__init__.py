"""Constraint sets for the coefficients of a model.

Every set acts on flat vectors of ``n_features`` numbers and provides its projection, linear minimizer, gauge,
diameters and Gaussian width, so that certificates can be computed from public numbers before any data is seen.
"""

from discreet._typing import Array
from discreet.sets.balls import BallIntersection, Box, L1Ball, L2Ball, Simplex
from discreet.sets.base import Geometry, Polytope
from discreet.sets.norms import GroupedL1Ball, InterpolationBall, NuclearBall, VertexPolytope

__all__ = [
    "Array",
    "BallIntersection",
    "Box",
    "Geometry",
    "GroupedL1Ball",
    "InterpolationBall",
    "L1Ball",
    "L2Ball",
    "NuclearBall",
    "Polytope",
    "Simplex",
    "VertexPolytope",
]
