"""Output perturbation: noise on the minimizer of a strongly convex objective.

The objective is sum_i loss_i(theta) + (total_l2 / 2) |theta|^2. If one record changes, its minimizer moves by at most
S / total_l2, where S is the gradient's sensitivity there, without a constraint or over any closed convex set. Only
strong convexity is needed. Proofs: docs/proofs/gradient-methods.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet._typing import Progress
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import SLACK, Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.solvers import base
from discreet.solvers.base import gradient_sensitivity
from discreet.solvers.certificates import Certificate, NoiseNorm, perturbed_minimizer, released, stated
from discreet.solvers.minimizers import constrained
from discreet.solvers.minimizers.minimizer import Optimizer, minimizer_norm

# Acceptable noise in a raw prediction; measured on public data (benchmarks/solvers.py).
_PREDICTION_NOISE = 0.4


@dataclass(frozen=True)
class OutputPerturbation:
    """Minimize until verified, then add noise: Gaussian for delta > 0, gamma-norm for delta = 0.

    Parameters
    ----------
    prediction_noise : standard deviation that the noise may cause in the raw prediction of a row of the largest norm;
        it sets the regularization. None for the default rule, which uses public numbers only.
    optimizer : as for `ObjectivePerturbation`; privacy never depends on it.

    Privacy
    -------
    (epsilon, delta) or pure epsilon, every relation, every convex loss with a bounded and Lipschitz derivative; without
    a constraint, or over an L2, L1 or grouped ball, a simplex or a box. For delta = 0 the noise has a density
    proportional to exp(-|b| / scale), whose norm grows with the number of coefficients, so zero columns cost accuracy
    in that case.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011); Bassily, Smith and Thakurta (2014), Algorithm 3; Jain and Thakurta (2014).
    """

    name: ClassVar[str] = "output"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    prediction_noise: float | None = None
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> OutputPerturbationPlan:
        """Choose the regularization by the public rule, then the least noise that meets the guarantee."""
        constrained.check(self.name, problem)
        noise_multiplier = _noise_multiplier(problem, guarantee)
        return OutputPerturbationPlan(
            problem,
            guarantee,
            self._total_l2(problem, guarantee, noise_multiplier),
            noise_multiplier,
            self.optimizer,
        )

    def _total_l2(self, problem: Problem, guarantee: Guarantee, noise_multiplier: float) -> float:
        """Return the l2 at which the noise moves a raw prediction by ``prediction_noise``."""
        if problem.l2 is not None:
            return problem.l2 * problem.n_samples
        record = problem.loss.lipschitz * problem.bounds.feature_norm
        noise = noise_multiplier * guarantee.neighboring.contributions * record * math.sqrt(problem.n_models)
        if guarantee.delta == 0:
            noise *= math.sqrt(problem.n_coefficients + 1)  # standard deviation of one coordinate, in scales
        wanted = _PREDICTION_NOISE if self.prediction_noise is None else self.prediction_noise
        return problem.bounds.feature_norm * noise / wanted


@dataclass(frozen=True)
class JainThakurtaRule:
    """Output perturbation with the Gaussian noise printed by Jain and Thakurta (2014), for comparison.

    The multiplier 2 sqrt(log(1 / delta) + epsilon) / epsilon is sound for every epsilon; it is increased if the
    accountant requires more. Everything else is as in `OutputPerturbation`, including the sensitivity, which is at most
    the printed one: slightly less under replace-one, half of it under the other relations.
    """

    name: ClassVar[str] = "output-jain-thakurta"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> OutputPerturbationPlan:
        """Plan output perturbation with the printed noise."""
        if guarantee.delta == 0:
            raise ValueError(
                f"solver {self.name!r} is the Gaussian rule and needs delta > 0; use 'output' for delta = 0"
            )
        tight = OutputPerturbation(optimizer=self.optimizer).plan(problem, guarantee)
        printed = 2 * math.sqrt(math.log(1 / guarantee.delta) + guarantee.epsilon) / guarantee.epsilon
        return replace(tight, noise_multiplier=max(printed, tight.noise_multiplier))


@dataclass(frozen=True)
class OutputPerturbationPlan(base.Plan):
    """A calibrated run of output perturbation."""

    total_l2: float
    noise_multiplier: float
    optimizer: Optimizer = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.total_l2 < math.inf:
            raise ValueError(
                f"the regularization must be a finite number greater than 0, got {self.total_l2!r}"
            )
        _ = self.output

    sums_only = True

    @cached_property
    def gradient_tolerance(self) -> float:
        """Largest accepted l2 x distance to the exact minimizer; without a constraint, the norm of the gradient."""
        reachable = constrained.least_tolerance(self.problem, self.total_l2, 0.0)
        return max(1e-4 * self.problem.loss.lipschitz * self.problem.bounds.feature_norm, reachable)

    @property
    def passes_bound(self) -> int:
        """Bound on the passes over the records per model."""
        return constrained.passes_bound(self.problem, self.total_l2)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Bound on the distance between verified minimizers of neighbors: (S + 2 tolerance) / total_l2."""
        problem, loss = self.problem, self.problem.loss
        radius = problem.bounds.feature_norm
        # Minimizers, and so the points where gradients are compared, lie in a public ball.
        reach = (
            minimizer_norm(loss, problem.n_samples, radius, self.total_l2, 0.0)
            if problem.geometry is None
            else problem.geometry.radius(2.0)
        )
        shift = gradient_sensitivity(loss, radius, reach, self.record_guarantee.neighboring).value
        distance = (shift + 2 * self.gradient_tolerance) / self.total_l2
        return Sensitivity(distance * math.sqrt(problem.n_models) * SLACK)

    @cached_property
    def output(self) -> GaussianMechanism | GammaNormMechanism:
        """The noise on the minimizers of all models together."""
        kind = GaussianMechanism if self.record_guarantee.delta > 0 else GammaNormMechanism
        return kind(self.sensitivity, self.noise_multiplier, self.problem.n_coefficients)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        return (base.PlannedRelease(self.output, "minimizers"),)

    @property
    def how(self) -> str:
        kind = "Gaussian" if self.record_guarantee.delta > 0 else "gamma-norm"
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        over = "" if self.problem.geometry is None else f" over {type(self.problem.geometry).__name__}"
        return f"{kind} noise on the regularized minimizer{over} (output perturbation){models}"

    proof = "stability of inexact strongly convex minimizers (Theorem 5); docs/proofs/gradient-methods.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        return {
            "output noise scale": self.output.scale,
            "sensitivity of the minimizer": self.sensitivity.value,
            "total l2 (sum scale)": self.total_l2,
            "verified gradient norm": self.gradient_tolerance,
            "sampler": f"exact noise on a grid, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Minimize until verified, then add noise."""
        problem = self.problem
        minima = [
            constrained.find(
                problem,
                part,
                self.total_l2,
                self.gradient_tolerance,
                optimizer=self.optimizer,
                progress=progress,
            )
            for part in records
        ]
        exact = np.stack(minima)
        theta = self.output.release(exact.ravel(), entropy).reshape(exact.shape)
        published = constrained.published(problem, theta, self.output.noise.grid)
        return released(published, entropy.secure, self.certificate)

    @cached_property
    def certificate(self) -> Certificate | None:
        output, problem = self.output, self.problem
        pure = isinstance(output, GammaNormMechanism)
        moved = NoiseNorm(problem.n_coefficients, output.noise.effective_scale, pure)
        return perturbed_minimizer(problem, self.total_l2, None, moved, self.gradient_tolerance)

    @property
    def remarks(self) -> Mapping[str, str]:
        return stated(self.certificate)


def _noise_multiplier(problem: Problem, guarantee: Guarantee) -> float:
    if guarantee.delta == 0:
        return 1 / guarantee.epsilon * SLACK
    size = problem.n_coefficients
    low = 1 / gaussian_mu(guarantee.epsilon, guarantee.delta)
    return calibrate(
        lambda m: events.Discretized(events.Gaussian(m), size), guarantee, low=low / 2, high=2 * low
    )


base.register(OutputPerturbation.name, OutputPerturbation)
base.register(JainThakurtaRule.name, JainThakurtaRule)
