"""Bounds on the excess risk of a release, from public and released numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.privacy.guarantee import SLACK
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import BoxBounds
from discreet.records.kernels.passes import gamma, gradient_rounding
from discreet.sets import Geometry
from discreet.solvers import base


@dataclass(frozen=True)
class Certificate:
    """An upper bound on the excess empirical risk, mean scale: L(theta) - min of L over the set.

    expected : bound on its expectation over the noise.
    likely : bound that holds with probability ``confidence`` over the noise.
    """

    expected: float
    likely: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.expected:.4g} on average, {self.likely:.4g} with probability {self.confidence:g}"


@dataclass(frozen=True)
class CertifiedRelease(base.Release):
    """A release with a certificate computed from released numbers."""

    certificate: Certificate


def geometry_of(problem: Problem, solver: str, *, corners: bool = False) -> Geometry:
    """Return the problem's set after checks; a loss with corners is refused unless ``corners``."""
    geometry = problem.geometry
    if geometry is None:
        raise ValueError(
            f"solver {solver!r} keeps the coefficients in a bounded set and needs one: pass constraint=, for instance "
            "L2Ball(5.0, n_features + 1) of discreet.sets, or an estimator with a radius (PrivateLasso, "
            "PrivateSparseLogisticRegression)"
        )
    size = problem.n_features * problem.loss.n_outputs
    if geometry.n_features != size:
        raise ValueError(
            f"the geometry is made for {geometry.n_features} coefficients, the problem has {size}"
        )
    if not (corners or math.isfinite(problem.loss.smoothness)):
        raise ValueError(
            f"solver {solver!r} needs a loss with a continuous derivative, and {type(problem.loss).__name__} has "
            "corners; use a rounded one, for instance HuberHinge or Quantile"
        )
    return geometry


def record_bound(problem: Problem) -> tuple[float, float]:
    """Return (bound, norm) with |<v, theta>| <= bound |theta|_norm for every record v."""
    if isinstance(problem.bounds, BoxBounds):
        return problem.bounds.entry_bound, 1.0
    return problem.bounds.feature_norm, 2.0


def slope(problem: Problem, reach: float) -> float:
    """Bound |f'(y, t)| for |t| <= reach and every valid label."""
    own = problem.loss.label_bound
    return problem.loss.derivative_bound(reach, problem.label_bound if own is None else own)


def curvature(problem: Problem, geometry: Geometry) -> float:
    """sup (s - theta)^T H (s - theta) over the set, H the Hessian of the mean loss plus (l2 / 2)|theta|^2."""
    bound, norm = record_bound(problem)
    ridge = (problem.l2 or 0.0) * geometry.diameter(2.0) ** 2
    return problem.loss.smoothness * (bound * geometry.diameter(norm)) ** 2 + ridge


def score_rounding(problem: Problem, geometry: Geometry, offset: float = 0.0) -> float:
    """Bound the error of a computed score <s, gradient> of a point s of the set (sum scale).

    ``offset`` bounds an intercept that is added to predictions and is not part of the set.

    The gradient is off by at most ``gradient_rounding`` in the norm dual to that of s; the ridge term and the inner
    product round once per term (docs/proofs/frank-wolfe.md, section 3).
    """
    loss, n, p = problem.loss, problem.n_samples, geometry.n_features
    bound, norm = record_bound(problem)
    radius = geometry.radius(norm) * SLACK
    gradient_error = gradient_rounding(loss, n, problem.n_features + 1, bound, radius + offset)
    size = n * loss.lipschitz * bound + gradient_error + n * (problem.l2 or 0.0) * geometry.radius(2.0)
    return radius * (gradient_error + gamma(p + 4) * size) * SLACK


def label_bound(problem: Problem) -> float | None:
    """Return the largest absolute label: the smaller of the problem's and the loss's bound."""
    known = [bound for bound in (problem.label_bound, problem.loss.label_bound) if bound is not None]
    return min(known) if known else None


def with_bounded_labels(records: list[Records], problem: Problem) -> list[Records]:
    """Return the records with targets clipped to the bound used in the sensitivity."""
    bound = label_bound(problem)
    labeled = (
        problem.loss.family != "general" and bound == problem.loss.label_bound
    )  # valid labels are within it
    if bound is None or labeled:
        return records
    return [part.with_labels(np.clip(part.labels, -bound, bound)) for part in records]
