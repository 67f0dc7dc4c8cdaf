"""Output perturbation: noise on the minimizer of a strongly convex objective.

The objective is sum_i loss_i(theta) + (total_l2 / 2) |theta|^2; its minimizer moves by at most S / total_l2 when one
record changes, S being the gradient's sensitivity there. Nothing but strong convexity is needed. Proofs:
docs/proofs/gradient-methods.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.noisy_gradient import refuse_geometry
from discreet.solvers.nonprivate import Objective, Optimizer, minimize, minimizer_norm, smallest_tolerance
from discreet.solvers.sensitivity import gradient_sensitivity

_SLACK = 1 + 2.0**-40
# Noise worth having in a raw prediction; measured on public data, see benchmarks/solvers.py.
_PREDICTION_NOISE = 0.4


@dataclass(frozen=True)
class OutputPerturbation:
    """Minimize until verified, then add noise: Gaussian for delta > 0, Laplace for delta = 0.

    Parameters
    ----------
    prediction_noise : standard deviation that the noise may have in the raw prediction of a row of the largest norm;
        the regularization follows from it. None for the default rule, which reads public numbers only.
    optimizer : as for `ObjectivePerturbation`; privacy never depends on it.

    Privacy
    -------
    (epsilon, delta) or pure epsilon, every relation, every convex loss with bounded derivative. For delta = 0 the noise
    is Laplace in every coordinate, with the L1 sensitivity bounded by sqrt(size) times the L2 sensitivity: its norm is
    sqrt(2) times that of the gamma-norm noise of the literature, which no exact sampler on a grid is known for.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011); Bassily, Smith and Thakurta (2014), Algorithm 3; Jain and Thakurta (2014).
    """

    name: ClassVar[str] = "output"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    prediction_noise: float | None = None
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> OutputPerturbationPlan:
        """Choose the regularization by public rule, then the smallest noise that meets the guarantee."""
        refuse_geometry(self.name, problem)
        if not math.isfinite(problem.loss.smoothness):
            raise ValueError(
                f"solver {self.name!r} verifies its minimizer by the gradient, which {problem.loss} does not have "
                "everywhere; use HuberHinge instead of Hinge"
            )
        noise_multiplier = _noise_multiplier(problem, guarantee)
        return OutputPerturbationPlan(
            problem,
            guarantee,
            self._total_l2(problem, guarantee, noise_multiplier),
            noise_multiplier,
            self.optimizer,
        )

    def _total_l2(self, problem: Problem, guarantee: Guarantee, noise_multiplier: float) -> float:
        """The l2 at which the noise moves a raw prediction by ``prediction_noise``."""
        if problem.l2 is not None:
            return problem.l2 * problem.n_samples
        record = problem.loss.lipschitz * problem.bounds.feature_norm
        noise = noise_multiplier * guarantee.neighboring.contributions * record * math.sqrt(problem.n_models)
        if guarantee.delta == 0:
            noise *= math.sqrt(2 * problem.n_coefficients)  # Laplace, and the L1 sensitivity
        wanted = _PREDICTION_NOISE if self.prediction_noise is None else self.prediction_noise
        return problem.bounds.feature_norm * noise / wanted


@dataclass(frozen=True)
class JainThakurtaRule:
    """Output perturbation with the Gaussian noise printed by Jain and Thakurta (2014), for comparison.

    The multiplier 2 sqrt(log(1 / delta) + epsilon) / epsilon is sound for every epsilon; it is raised should the
    accountant ever ask for more. All the rest is as in `OutputPerturbation`.
    """

    name: ClassVar[str] = "output-jain-thakurta"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> OutputPerturbationPlan:
        """The plan of output perturbation with more noise."""
        if guarantee.delta == 0:
            raise ValueError(
                f"solver {self.name!r} is the Gaussian rule and needs delta > 0; use 'output' for delta = 0"
            )
        tight = OutputPerturbation(optimizer=self.optimizer).plan(problem, guarantee)
        printed = 2 * math.sqrt(math.log(1 / guarantee.delta) + guarantee.epsilon) / guarantee.epsilon
        return replace(tight, noise_multiplier=max(printed, tight.noise_multiplier))


@dataclass(frozen=True)
class OutputPerturbationPlan:
    """A calibrated run of output perturbation."""

    problem: Problem
    guarantee: Guarantee
    total_l2: float
    noise_multiplier: float
    optimizer: Optimizer = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.total_l2 < math.inf:
            raise ValueError(
                f"the regularization must be a finite number greater than 0, got {self.total_l2!r}"
            )
        _ = self.output

    @cached_property
    def gradient_tolerance(self) -> float:
        """Largest exact gradient norm at which a minimizer is accepted (sum scale, rounding included)."""
        problem, loss = self.problem, self.problem.loss
        radius = problem.bounds.feature_norm
        reachable = smallest_tolerance(
            loss, problem.n_samples, problem.n_features, radius, self.total_l2, 0.0
        )
        return max(1e-4 * loss.lipschitz * radius, reachable)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far the verified minimizers of neighbors can be apart: (S + 2 tolerance) / total_l2."""
        problem, loss = self.problem, self.problem.loss
        radius = problem.bounds.feature_norm
        # Minimizers, hence the points where gradients are compared, lie in a public ball.
        reach = minimizer_norm(loss, problem.n_samples, radius, self.total_l2, 0.0)
        shift = gradient_sensitivity(loss, radius, reach, self.guarantee.neighboring).value
        distance = (shift + 2 * self.gradient_tolerance) / self.total_l2
        return Sensitivity(distance * math.sqrt(problem.n_models) * _SLACK)

    @cached_property
    def output(self) -> GaussianMechanism | LaplaceMechanism:
        """The noise on the minimizers of all models together."""
        size = self.problem.n_coefficients
        if self.guarantee.delta > 0:
            return GaussianMechanism(self.sensitivity, self.noise_multiplier, size)
        in_l1 = Sensitivity(self.sensitivity.value * math.sqrt(size) * _SLACK, norm=1.0)
        return LaplaceMechanism(in_l1, self.noise_multiplier, size)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        return self.output.event

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        kind = "Gaussian" if self.guarantee.delta > 0 else "Laplace"
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        return f"{kind} noise on the regularized minimizer (output perturbation){models}"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return "stability of inexact strongly convex minimizers (Theorem 5); docs/proofs/gradient-methods.md"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        scale = self.output.stddev if isinstance(self.output, GaussianMechanism) else self.output.scale
        return {
            "output noise scale": scale,
            "sensitivity of the minimizer": self.sensitivity.value,
            "total l2 (sum scale)": self.total_l2,
            "verified gradient norm": self.gradient_tolerance,
            "sampler": "exact discrete noise, AES-256-CTR keyed by the operating system",
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Minimize until verified, add the noise."""
        problem = self.problem
        minima = [
            minimize(
                Objective(part, problem.loss, self.total_l2),
                self.gradient_tolerance,
                optimizer=self.optimizer,
                progress=progress,
            ).theta
            for part in records
        ]
        exact = np.stack(minima)
        theta = self.output.release(exact.ravel(), entropy).reshape(exact.shape)
        if problem.loss.n_outputs > 1:
            theta -= theta.mean(axis=-1, keepdims=True)  # pure noise that moves no prediction
        return base.Release(theta, entropy.secure)

    def __str__(self) -> str:
        return base.printed(self)


def _noise_multiplier(problem: Problem, guarantee: Guarantee) -> float:
    if guarantee.delta == 0:
        return 1 / guarantee.epsilon * _SLACK
    size = problem.n_coefficients
    low = 1 / gaussian_mu(guarantee.epsilon, guarantee.delta)
    return calibrate(
        lambda m: events.Discretized(events.Gaussian(m), size), guarantee, low=low / 2, high=2 * low
    )


base.register(OutputPerturbation.name, OutputPerturbation)
base.register(JainThakurtaRule.name, JainThakurtaRule)
