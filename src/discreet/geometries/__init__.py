"""Constraint sets: what a solver may ask of the set its coefficients must lie in.

Every set acts on flat vectors of ``n_features`` numbers and knows its projection, linear minimizer, gauge,
diameters and Gaussian width, so that a certificate can be computed from public numbers before any data is seen.
"""

from discreet.geometries.balls import Box, L1Ball, L2Ball, Simplex
from discreet.geometries.base import Array, Geometry, Polytope
from discreet.geometries.intersection import BallIntersection
from discreet.geometries.norms import GroupedL1Ball, InterpolationBall, NuclearBall
from discreet.geometries.vertices import VertexPolytope

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
