"""Base class of Frank-Wolfe plans, and Frank-Wolfe over any bounded set.

Over any bounded set, every step minimizes <., gradient + Gaussian noise>.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet._typing import Array, Integers, Progress
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.sets import Geometry
from discreet.solvers import base
from discreet.solvers.base import computed_gradient_sensitivity
from discreet.solvers.certificates import (
    Certificate,
    CertifiedRelease,
    curvature,
    geometry_of,
    record_bound,
    slope,
    with_bounded_labels,
)
from discreet.solvers.gradients.descent import project

NAME = "frank-wolfe"
CONFIDENCE = 0.95
WEIGHTS = "even", "rising"
_FIRST = 64  # even weight of the center and of the first choice; each later choice weighs one more


@dataclass(frozen=True)
class FrankWolfePlan(base.Plan):
    """Shared parts of both kinds of plans: the steps, the certificate and its printed line."""

    n_iterations: int
    weights: str

    sums_only = True

    @cached_property
    def geometry(self) -> Geometry:
        """The set of the problem."""
        return geometry_of(self.problem, NAME)

    @cached_property
    def parts(self) -> Integers:
        """The weights of the center and of every choice."""
        return choice_weights(self.n_iterations, self.weights)

    @cached_property
    def center_error(self) -> float:
        """Bound on the excess risk of the center."""
        return center_error(self.problem, self.geometry)

    @property
    def certificate(self) -> Certificate:
        """Bound on the excess risk before any data is seen, for each model."""
        raise NotImplementedError

    def run(
        self, records: list[Records], entropy: Entropy, progress: Progress | None = None
    ) -> CertifiedRelease:
        """Run Frank-Wolfe for every model."""
        found = [self._run_one(part, entropy) for part in with_bounded_labels(records, self.problem)]
        theta = np.stack([theta.reshape(self.problem.shape) for theta, _ in found])
        certificate = max((one for _, one in found), key=lambda one: one.expected)
        return CertifiedRelease(theta, entropy.secure, certificate)

    def _run_one(self, records: Records, entropy: Entropy) -> tuple[Array, Certificate]:
        raise NotImplementedError

    def _gradient(self, records: Records, theta: Array) -> Array:
        """The summed gradient with the ridge term."""
        point = theta.reshape(self.problem.shape)
        return self._with_ridge(records.value_and_gradient(self.problem.loss, point)[1].ravel(), theta)

    def _with_ridge(self, gradient: Array, theta: Array) -> Array:
        l2 = self.problem.l2
        return gradient + self.problem.n_samples * l2 * theta if l2 else gradient

    def _certificate(self, errors: Sequence[float], likely_errors: Sequence[float]) -> Certificate:
        """Certificate from bounds on the loss of each choice (sum scale): expected, and with probability 0.95."""
        constants = curvature(self.problem, self.geometry), self.center_error
        optimization = float(optimization_error(*constants, self.n_iterations, self.weights)[-1])
        share = self.parts[1:] / (self.parts.sum() * self.problem.n_samples)
        return Certificate(
            optimization + float(share @ np.array(errors)),
            optimization + float(share @ np.array(likely_errors)),
            CONFIDENCE,
        )

    @property
    def remarks(self) -> Mapping[str, str]:
        """Additional lines of the printed plan."""
        return {"excess risk at most": str(self.certificate)}


def choice_weights(n_choices: int, kind: str) -> Integers:
    """Return the weights of the center and of every choice in the final point; a single choice has all the weight.

    Even weights suit a few choices and forget the first of hundreds; rising ones are 1, 2, 3, ... with 0 for the
    center.
    """
    rising = np.arange(n_choices)
    if kind == "rising":
        return np.append(0, 1 + rising)
    return np.append(_FIRST if n_choices > 1 else 0, _FIRST + rising)


def steps(parts: Integers) -> Array:
    """Return a_0, ..., a_{T - 1}: the weight of each choice over the total weight so far."""
    return np.asarray(parts[1:] / np.cumsum(parts)[1:])


def optimization_error(worst: float, start: float, most: int, kind: str) -> Array:
    """Return H_T of the noiseless recursion h <- (1 - a) h + a^2 worst / 2 from h = start, for T = 1, ..., most."""
    parts = choice_weights(most, kind)
    totals = np.cumsum(parts)[1:]
    errors = (parts[0] * start + worst / 2 * np.cumsum(parts[1:] ** 2 / totals)) / totals
    errors[0] = worst / 2
    return np.asarray(errors)


def center_error(problem: Problem, geometry: Geometry, offset: float = 0.0) -> float:
    """Bound the excess risk of the center: slope times distance, or the loss there.

    ``offset`` bounds an intercept that is added to predictions and is not part of the set.
    """
    center = geometry.center()
    bound, norm = record_bound(problem)
    size, size_2 = float(np.linalg.norm(center, norm)), float(np.linalg.norm(center))
    far = min(geometry.diameter(norm), geometry.radius(norm) + size)
    far_2 = min(geometry.diameter(2.0), geometry.radius(2.0) + size_2)
    linear = slope(problem, bound * size + offset) * bound * far + (problem.l2 or 0.0) * size_2 * far_2
    return linear if size > 0 else min(linear, problem.loss.value_at_zero + problem.loss.lipschitz * offset)


@dataclass(frozen=True)
class GradientPlan(FrankWolfePlan):
    """Frank-Wolfe over any set with Gaussian noise on the gradient."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.release  # raise now, before any charge, if anything can fail

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy gradient of one model."""
        sensitivity = gradient_sensitivity_over(self.problem, self.geometry, self.record_guarantee)
        return GaussianMechanism(Sensitivity(sensitivity), self.noise_multiplier, self.geometry.n_features)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.release, "gradients", self.n_iterations * self.problem.n_models),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return f"Frank-Wolfe with {self.n_iterations} gradients under Gaussian noise"

    proof = "composition of Gaussian mechanisms (docs/proofs/composition.md); docs/proofs/frank-wolfe.md, section 5"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "iterations": float(self.n_iterations),
            "noise stddev (sum scale)": self.release.stddev,
            "noise grid": self.release.noise.grid,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    @cached_property
    def certificate(self) -> Certificate:
        """Certificate: a choice loses stddev x width on average; both terms of the loss are Lipschitz in the noise."""
        stddev = self.release.noise.effective_stddev
        tail = (
            2 * self.geometry.radius(2.0) * math.sqrt(2 * math.log(2 * self.n_iterations / (1 - CONFIDENCE)))
        )
        width = self.geometry.gaussian_width()
        return self._certificate(
            [stddev * width] * self.n_iterations, [stddev * (width + tail)] * self.n_iterations
        )

    def _run_one(self, records: Records, entropy: Entropy) -> tuple[Array, Certificate]:
        theta = self.geometry.center()
        for rate in steps(self.parts):
            noisy = self.release.release(self._gradient(records, theta), entropy)
            theta = (1 - rate) * theta + rate * self.geometry.linear_minimizer(noisy)
            # The sensitivity holds in this ball, and rounding may move a minimizer out of the set.
            theta = project(theta[None], self.geometry.radius(2.0))[0]
        return theta, self.certificate


def gradient_sensitivity_over(problem: Problem, geometry: Geometry, guarantee: Guarantee) -> float:
    """Return the L2 sensitivity of one computed gradient at any point of the set.

    The ridge term is the same for neighbors but adds one rounding.
    """
    base_value = computed_gradient_sensitivity(
        problem.loss,
        problem.n_samples,
        problem.n_features,
        problem.bounds.feature_norm,
        geometry.radius(2.0),
        guarantee.neighboring,
    ).value
    if not problem.l2:
        return base_value
    n, radius = problem.n_samples, geometry.radius(2.0)
    size = n * (problem.loss.lipschitz * problem.bounds.feature_norm + problem.l2 * radius)
    return base_value + 8 * 2.0**-53 * size
