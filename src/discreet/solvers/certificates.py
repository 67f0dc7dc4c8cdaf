"""Public numbers behind a certificate: how much of the excess risk is known before and after a run.

Proofs for perturbed minimizers, noisy descent and exact sampling: docs/proofs/constrained-minimizers.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainccinv

from discreet._typing import Array
from discreet.privacy.guarantee import SLACK
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import BoxBounds, gamma, gradient_rounding
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


def released(theta: Array, secure: bool, certificate: Certificate | None) -> base.Release:
    """A release, with its certificate if there is one."""
    return (
        base.Release(theta, secure) if certificate is None else CertifiedRelease(theta, secure, certificate)
    )


def stated(certificate: Certificate | None) -> dict[str, str]:
    """The line of a plan that prints a certificate; none without one."""
    return {} if certificate is None else {"excess risk at most": str(certificate)}


@dataclass(frozen=True)
class NoiseNorm:
    """The Euclidean norm of a noise vector of ``size`` entries: Gaussian of a deviation, or gamma-norm of a scale."""

    size: int
    unit: float
    pure: bool

    @property
    def mean(self) -> float:
        """Bound on the expected norm."""
        return self.unit * (self.size if self.pure else math.sqrt(self.size))

    @property
    def mean_square(self) -> float:
        """The expected square."""
        return self.unit**2 * self.size * (self.size + 1 if self.pure else 1)

    def quantile(self, tail: float) -> float:
        """The norm that is exceeded with probability ``tail``."""
        if self.pure:
            return self.unit * float(gammainccinv(self.size, tail))
        return self.unit * math.sqrt(2 * float(gammainccinv(self.size / 2, tail)))


CONFIDENCE = 0.95


def lipschitz(problem: Problem, geometry: Geometry) -> float:
    """Bound on the gradient of the mean loss, its ridge included, in the set."""
    ridge = (problem.l2 or 0.0) * geometry.radius(2.0)
    return problem.loss.lipschitz * problem.bounds.feature_norm + ridge


def perturbed_minimizer(
    problem: Problem, total_l2: float, linear: NoiseNorm | None, moved: NoiseNorm, tolerance: float
) -> Certificate | None:
    """Excess risk of a minimizer with a random linear term and ``moved`` by output noise; None in all of space.

    n F + ((total_l2 - n l2) / 2)|theta|^2 + <b, theta> is minimized up to a distance of tolerance / total_l2.
    """
    geometry, n = problem.geometry, problem.n_samples
    if geometry is None or "convex" not in problem.loss.proved_for:
        return None
    extra = max(0.0, total_l2 - n * (problem.l2 or 0.0))
    bias = extra * geometry.radius(2.0) ** 2 / 2
    diameter, tail = geometry.diameter(2.0), (1 - CONFIDENCE) / 2
    pull = likely = 0.0
    if linear is not None:
        norm = linear.quantile(tail)
        pulls = [linear.mean * diameter, linear.mean_square / (2 * total_l2)]
        likelies = [norm * diameter, norm**2 / (2 * total_l2)]
        if not linear.pure:
            width = 2 * linear.unit * geometry.gaussian_width()
            pulls.append(width)
            likelies.append(width + linear.unit * diameter * math.sqrt(2 * math.log(1 / tail)))
        pull, likely = min(pulls), min(likelies)
    steep, off = lipschitz(problem, geometry), tolerance / total_l2
    return Certificate(
        ((bias + pull) / n + steep * (off + moved.mean)) * SLACK,
        ((bias + likely) / n + steep * (off + moved.quantile(tail))) * SLACK,
        CONFIDENCE,
    )


def averaged_descent(problem: Problem, rate: float, averaged: int, noise: NoiseNorm) -> Certificate | None:
    """Excess risk of the mean of ``averaged`` iterates of projected descent, the likely one by Markov's inequality.

    D^2 / (2 rate m) + rate E|z|^2, for rates up to the inverse of the curvature; None beyond, and in all of space.
    """
    geometry = problem.geometry
    if geometry is None or "convex" not in problem.loss.proved_for:
        return None
    bound = problem.bounds.feature_norm
    if rate * (problem.loss.smoothness * bound**2 + (problem.l2 or 0.0)) > 1:
        return None
    expected = geometry.diameter(2.0) ** 2 / (2 * rate * averaged) + rate * noise.mean_square
    return Certificate(expected * SLACK, expected * SLACK / (1 - CONFIDENCE), CONFIDENCE)


def sampled_point(
    problem: Problem,
    rate: float,
    grid: float,
    *,
    size: int,
    norm: float,
    outer: float,
    inner: float,
    missed: float = 0.0,
) -> Certificate | None:
    """Excess risk, over a set, of a draw from exp(-rate n F) on a grid of that spacing: below a gamma variate.

    The set has ``size`` dimensions and points of norms up to ``norm``; around its center it contains a ball of radius
    ``inner`` and lies in one of radius ``outer``. With probability ``missed`` it does not hold the minimizer.
    """
    if "convex" not in problem.loss.proved_for:
        return None
    n, step = problem.n_samples, grid * math.sqrt(size)
    slope = problem.loss.lipschitz * problem.bounds.feature_norm + (problem.l2 or 0.0) * norm
    change = rate * n * slope * step * outer / inner
    lost = 2 * size * step / inner
    if change > 0.1 or lost > 0.1 or missed >= 1 - CONFIDENCE:
        return None
    factor = math.exp(6 * change) / (1 - lost)
    tail = (1 - CONFIDENCE - missed) / factor
    return Certificate(
        (factor * size + change) / (rate * n) * SLACK,
        (float(gammainccinv(size, tail)) + change) / (rate * n) * SLACK,
        CONFIDENCE,
    )


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
