"""Frank-Wolfe over any bounded set: every step minimizes <., gradient + Gaussian noise>."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discreet.geometries import Geometry
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers.certificates import Certificate
from discreet.solvers.descent_loop import project
from discreet.solvers.frank_wolfe_plan import CONFIDENCE, FrankWolfePlan, steps
from discreet.solvers.sensitivity import computed_gradient_sensitivity

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GradientPlan(FrankWolfePlan):
    """Frank-Wolfe over any set by Gaussian noise on the gradient."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.release  # everything that can fail does so now, before a charge

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy gradient of one model."""
        sensitivity = gradient_sensitivity_over(self.problem, self.geometry, self.guarantee)
        return GaussianMechanism(Sensitivity(sensitivity), self.noise_multiplier, self.geometry.n_features)

    @property
    def event(self) -> events.Event:
        """T Gaussian releases per model."""
        return events.Repeated(self.release.event, self.n_iterations * self.problem.n_models)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"Frank-Wolfe with {self.n_iterations} gradients under Gaussian noise"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return "composition of Gaussian mechanisms (docs/proofs/composition.md); docs/proofs/frank-wolfe.md, section 5"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "iterations": float(self.n_iterations),
            "noise stddev (sum scale)": self.release.stddev,
            "noise grid": self.release.noise.grid,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    @cached_property
    def certificate(self) -> Certificate:
        """A choice loses stddev x width on average; both terms of the loss are Lipschitz in the noise."""
        stddev = self.release.noise.effective_stddev
        tail = (
            2 * self.geometry.radius(2.0) * math.sqrt(2 * math.log(2 * self.n_iterations / (1 - CONFIDENCE)))
        )
        width = self.geometry.gaussian_width()
        return self._certificate(
            [stddev * width] * self.n_iterations, [stddev * (width + tail)] * self.n_iterations
        )

    def _run_one(self, records: ArrayRecords, entropy: Entropy) -> tuple[Array, Certificate]:
        theta = self.geometry.center()
        for rate in steps(self.parts):
            noisy = self.release.release(self._gradient(records, theta), entropy)
            theta = (1 - rate) * theta + rate * self.geometry.linear_minimizer(noisy)
            # The sensitivity holds in this ball, and a minimizer may round out of the set.
            theta = project(theta[None], self.geometry.radius(2.0))[0]
        return theta, self.certificate


def gradient_sensitivity_over(problem: Problem, geometry: Geometry, guarantee: Guarantee) -> float:
    """L2 sensitivity of one computed gradient at any point of the set.

    The ridge term is the same for neighbors, but it rounds once more.
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
