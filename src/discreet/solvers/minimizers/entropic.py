"""Minimize a loss plus an entropy over the vertices of a polytope, with a proved residual.

    Phi(w) = F(w) + lambda sum_k w_k log w_k,   w a probability vector over the vertices,   F(w) = sum of losses,

on the sum scale. An iterate is w = softmax(u), stored as its logits u. Its residual lambda u + grad F(w) is constant
exactly at the minimizer. The oscillation of the residual (largest minus smallest entry) is the certificate that a
private solver needs: the duality gap is at most osc^2 / (8 lambda), and the minimizer is at most osc / (2 lambda)
away in L1 (docs/proofs/simplex-sampling.md, section 2). A fixed number of Newton steps comes first, then mirror
descent, which is proved to terminate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.losses import Loss
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF
from discreet.sets import L1Ball, Polytope, Simplex, VertexPolytope

Operator = Callable[[Array], Array]

_ENOUGH = 0.9  # a step or phase must shrink the residual to at most this fraction
_DAMPINGS = (1.0, 0.3, 0.1)
_PRODUCTS = 50  # Hessian products per Newton step
_DECREASE = 10.0  # factor by which the entropy decreases from one stage to the next
_ROUNDS = 100  # per stage
_PHASE = 300  # mirror steps per round


@dataclass(frozen=True)
class Point:
    """Logits, with the computed gradient of F by vertex and the oscillation of the computed residual."""

    logits: Array
    weights: Array
    gradient: Array
    residual: Array

    @property
    def oscillation(self) -> float:
        """Largest minus smallest entry of the residual."""
        return float(self.residual.max() - self.residual.min())


@dataclass(frozen=True, eq=False)
class EntropicObjective:
    """Phi for given records.

    Parameters
    ----------
    records, loss : F(w) is the summed loss at the point of ``geometry`` with weights w on its vertices.
    geometry : polytope.
    entropy : lambda, sum scale, greater than 0.
    smoothness : public bound on the smoothness of F in the L1 norm of w.
    """

    records: Records
    loss: Loss
    geometry: Polytope
    entropy: float
    smoothness: float

    def at(self, logits: Array) -> Point:
        """Evaluate the objective in one pass over the records."""
        logits = logits - logits.max()
        with np.errstate(under="ignore"):
            weights = np.exp(logits)
            weights /= weights.sum()
        theta = combination(self.geometry, weights)
        gradient = self.geometry.vertex_scores(self.records.value_and_gradient(self.loss, theta)[1])
        return Point(logits, weights, gradient, gradient + self.entropy * logits)

    def curvature(self, weights: Array) -> Operator:
        """The map v -> (Hessian of F) v, one pass over the records per call."""
        product = self.records.hessian_product(self.loss, combination(self.geometry, weights))
        return lambda v: self.geometry.vertex_scores(product(combination(self.geometry, v)))


def minimize(objective: EntropicObjective, tolerance: float, rounding: float) -> Point:
    """Return a point whose exact residual oscillates by at most ``tolerance``, in at most ``most_passes`` passes.

    Each round takes a Newton step if it shrinks the residual, and otherwise mirror steps until they do. If rounding
    stops progress within the fixed number of rounds, mirror descent starts over. It is proved to reach every tolerance
    of at least ``reachable(objective.smoothness, objective.entropy, rounding, size)``.

    Parameters
    ----------
    objective : the objective.
    tolerance : at least four times ``rounding``; plan with ``reachable``.
    rounding : public bound on the error of the computed oscillation.

    Privacy
    -------
    Nothing here is private by itself. No abort depends on the data. The number of passes does; ``most_passes`` bounds
    it.
    """
    if not tolerance >= 4 * rounding:
        raise ParameterError(
            "tolerance",
            f"must be at least {4 * rounding:.3g}, four times the rounding error, got {tolerance!r}",
        )
    entropy = max(objective.smoothness, objective.entropy)
    point = objective.at(np.zeros(objective.geometry.n_vertices))
    while entropy > objective.entropy:  # start with a large entropy, where Newton steps converge at once
        stage = dataclasses.replace(objective, entropy=entropy)
        point = _shrunk(stage, stage.at(point.logits), max(tolerance, entropy), rounding)
        entropy = max(entropy / _DECREASE, objective.entropy)
    point = _shrunk(objective, objective.at(point.logits), tolerance, rounding)
    return (
        point if _bound(objective, point, rounding) <= tolerance else _mirror(objective, tolerance, rounding)
    )


def reachable(smoothness: float, entropy: float, rounding: float, size: float) -> float:
    """Return a tolerance proved to be reached (docs/proofs/simplex-sampling.md, section 2), from public numbers.

    ``size`` bounds the oscillation of gradients and hence of entropy times logits. Stored logits are rounded, which
    moves gradients by up to smoothness times that rounding.
    """
    stiffness = smoothness / entropy
    return (5 + 2.5 * math.sqrt(stiffness)) * (rounding + 4.2 * UNIT_ROUNDOFF * stiffness * size)


def most_passes(smoothness: float, entropy: float, rounding: float, n_vertices: int) -> int:
    """Bound the number of passes of ``minimize``."""
    stages = 2 + max(0, math.ceil(math.log(smoothness / entropy, _DECREASE)))
    search = 1 + stages * (1 + _ROUNDS * (1 + _PRODUCTS + 1 + len(_DAMPINGS) + _PHASE))
    return search + _mirror_steps(smoothness, entropy, rounding, n_vertices) + 1


def _mirror_steps(smoothness: float, entropy: float, rounding: float, n_vertices: int) -> int:
    """Number of steps after which mirror descent has reached every tolerance of at least ``reachable``."""
    stiffness = smoothness / entropy
    digits = 2 * max(0.0, math.log(entropy / rounding)) + math.log(4 * math.log(2 * n_vertices))
    return math.ceil((4 * stiffness + 3) * (digits + math.log1p(stiffness) + 100))


def _mirror(objective: EntropicObjective, tolerance: float, rounding: float) -> Point:
    """Run mirror descent from equal weights until the residual is small enough."""
    n_vertices = objective.geometry.n_vertices
    point = objective.at(np.zeros(n_vertices))
    for _ in range(_mirror_steps(objective.smoothness, objective.entropy, rounding, n_vertices)):
        if _bound(objective, point, rounding) <= tolerance:
            return point
        point = _mirror_step(objective, point)
    raise AssertionError(
        "mirror descent ends in time: docs/proofs/simplex-sampling.md, 2"
    )  # pragma: no cover


def _shrunk(objective: EntropicObjective, point: Point, tolerance: float, rounding: float) -> Point:
    """Run rounds from ``point`` until the residual is small enough, at most a fixed number."""
    for _ in range(_ROUNDS):
        if _bound(objective, point, rounding) <= tolerance:
            break
        point = _newton_step(objective, point) or _mirror_phase(objective, point)
    return point


def _bound(objective: EntropicObjective, point: Point, rounding: float) -> float:
    """Bound the exact oscillation by the computed one, the gradient's error and three roundings per entry."""
    size = objective.entropy * float(-point.logits.min()) + float(np.abs(point.gradient).max())
    return point.oscillation * (1 + 4 * UNIT_ROUNDOFF) + rounding + 8 * UNIT_ROUNDOFF * size


def _newton_step(objective: EntropicObjective, point: Point) -> Point | None:
    """Take one damped Newton step in the logits; None if no damped step shrinks the residual enough.

    The step d of w solves (H + lambda / w) d = -residual on vectors that sum to 0. In the logits it is
    -(residual + H d) / lambda, which stays accurate for vertices of any weight.
    """
    product, root = objective.curvature(point.weights), np.sqrt(point.weights)
    with np.errstate(under="ignore"):
        d = root * _solve(
            lambda s: objective.entropy * s + root * product(root * s), root, -root * point.residual
        )
        step = -(point.residual + product(d)) / objective.entropy
        if not np.all(np.isfinite(step)):
            return None
        for damping in _DAMPINGS:
            candidate = objective.at(point.logits + damping * step)
            if candidate.oscillation <= max(_ENOUGH, 1 - damping / 4) * point.oscillation:
                return candidate
    return None


def _solve(matrix: Operator, normal: Array, right: Array) -> Array:
    """Solve by conjugate gradients on the vectors orthogonal to ``normal``, which has length 1."""

    def projected(v: Array) -> Array:
        return v - normal * float(normal @ v)

    x = np.zeros_like(right)
    residual = projected(right)
    direction, square = residual.copy(), float(residual @ residual)
    goal = max(1e-6 * square, 1e-280)
    for _ in range(_PRODUCTS):
        if square <= goal:
            break
        image = projected(matrix(direction))
        curvature = float(direction @ image)
        if not curvature > 0:  # lost in underflow
            break
        rate = square / curvature
        x += rate * direction
        residual -= rate * image
        following = float(residual @ residual)
        direction = residual + following / square * direction
        square = following
    return x


def _mirror_phase(objective: EntropicObjective, start: Point) -> Point:
    """Run mirror descent until the residual is smaller, or for a fixed number of steps."""
    point = start
    for _ in range(_PHASE):
        if point.oscillation <= _ENOUGH * start.oscillation:
            break
        point = _mirror_step(objective, point)
    return point


def _mirror_step(objective: EntropicObjective, point: Point) -> Point:
    """Minimize a linear F plus entropy plus smoothness times the divergence from ``point``. Phi contracts."""
    return objective.at(point.logits - point.residual / (objective.smoothness + objective.entropy))


def combination(geometry: Polytope, weights: Array) -> Array:
    """Return the point with the given weights on the vertices; linear in the weights."""
    if isinstance(geometry, L1Ball):
        half = geometry.n_features
        return geometry.size * (weights[:half] - weights[half:])
    return cast(Simplex | VertexPolytope, geometry).combination(weights)
