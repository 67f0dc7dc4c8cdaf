"""Objective perturbation with gamma-norm noise: pure differential privacy, delta = 0.

The linear term has a density proportional to exp(-|b| / scale). However the minimizer moves with b, the norm of b
changes by at most the gradient's sensitivity, so that no direction needs to be fixed: the proof covers every smooth
convex loss, where the Gaussian one needs a linear model. Proofs: docs/proofs/gamma-noise.md, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from discreet.mechanisms.entropy import SOURCE
from discreet.mechanisms.gamma_norm import GammaNormMechanism, GammaNormNoise
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.privacy.profiles import TANGENT_POINTS, tangent_costs
from discreet.problem import Problem
from discreet.solvers import base
from discreet.solvers.nonprivate import Optimizer
from discreet.solvers.perturbed import PerturbedObjectivePlan, chosen_l2

_OUTPUT_SHARE = 0.01  # of epsilon; a verified minimizer leaves little to hide
_SLACK = 1 + 2.0**-40


def objective_epsilon(problem: Problem, neighboring: Neighboring, scale: float, total_l2: float) -> float:
    """What the exact minimizers of all perturbed objectives cost: noise and determinant (Theorems 4 and 5).

    >>> from discreet.bounds import Bounds
    >>> from discreet.losses import Logistic
    >>> problem = Problem(Logistic(), Bounds(1.0), n_samples=100, n_features=3)
    >>> round(objective_epsilon(problem, Neighboring.REPLACE_ONE, scale=2.0, total_l2=2.0), 6)  # l2 costs nothing
    1.0
    """
    loss, radius = problem.loss, problem.bounds.feature_norm
    shift, leverage = loss.lipschitz * radius / scale, radius**2 / total_l2
    others = neighboring.contributions - 1
    if loss.family == "logistic":
        cost = min(
            max((others + 1) * shift + extreme, others * shift + flat)
            for extreme, flat in (tangent_costs(float(a), leverage) for a in TANGENT_POINTS)
        )
    elif loss.family == "softmax":
        classes = loss.n_outputs
        cost = (others + 1) * shift + (classes - 1) * math.log1p(leverage / classes)
    else:
        cost = (others + 1) * shift + math.log1p(loss.smoothness * leverage)
    return problem.n_models * cost * _SLACK


def plan_pure(
    problem: Problem, guarantee: Guarantee, prediction_noise: float | None, optimizer: Optimizer
) -> PureObjectivePlan:
    """Regularization by public rule, then the smallest noise that meets the guarantee."""
    output_epsilon = _OUTPUT_SHARE * guarantee.epsilon
    # Without curvature the noise is that of releasing one gradient: close enough to choose l2.
    sensitivity = problem.gradient_sensitivity(guarantee.neighboring).value
    stddev = sensitivity * problem.n_models / guarantee.epsilon * _entry_stddev(problem)
    total_l2 = chosen_l2(problem, guarantee, stddev, prediction_noise)

    def event(scale: float) -> events.Event:
        return _event(problem, guarantee.neighboring, scale, total_l2, output_epsilon)

    near = sensitivity * problem.n_models / guarantee.epsilon
    scale = calibrate(event, guarantee, low=near / 2, high=2 * near)
    return PureObjectivePlan(problem, guarantee, scale, total_l2, output_epsilon, optimizer)


def _entry_stddev(problem: Problem) -> float:
    """Standard deviation of one entry of a model's gamma-norm vector, in scales: sqrt(size + 1)."""
    return math.sqrt(problem.n_features * problem.loss.n_outputs + 1)


def _event(
    problem: Problem, neighboring: Neighboring, scale: float, total_l2: float, output_epsilon: float
) -> events.Event:
    return events.Pure(objective_epsilon(problem, neighboring, scale, total_l2) + output_epsilon)


@dataclass(frozen=True)
class PureObjectivePlan(PerturbedObjectivePlan):
    """A calibrated run of pure objective perturbation."""

    problem: Problem
    guarantee: Guarantee
    scale: float
    total_l2: float
    output_epsilon: float
    optimizer: Optimizer = "auto"

    def __post_init__(self) -> None:
        _ = self.output  # everything that can fail does so now, before a charge

    @cached_property
    def objective_noise(self) -> GammaNormNoise:
        """Noise of the linear term of one model, on its public grid."""
        return GammaNormNoise(self.scale)

    @property
    def linear_norms(self) -> tuple[float, float]:
        """Of one entry, and of the whole vector, whose norm has a gamma law."""
        size, scale = (
            self.problem.n_features * self.problem.loss.n_outputs,
            self.objective_noise.effective_scale,
        )
        return scale * _entry_stddev(self.problem), scale * (size + 12 * math.sqrt(size) + 80)

    @property
    def output_spread(self) -> float:
        """sqrt(size + 1) / epsilon of the output stage."""
        return math.sqrt(self.problem.n_coefficients + 1) / self.output_epsilon

    @cached_property
    def output(self) -> GammaNormMechanism:
        """Noise on the approximate minimizers, whose distance to the exact ones is all it has to hide."""
        multiplier = 1 / self.output_epsilon * _SLACK
        return GammaNormMechanism(self.output_sensitivity, multiplier, self.problem.n_coefficients)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        return _event(
            self.problem, self.guarantee.neighboring, self.scale, self.total_l2, self.output_epsilon
        )

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"objective perturbation with gamma-norm noise and a noisy output stage{self.suffix}"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return "triangle inequality and determinant (Theorem 4), output stage (Theorem 5); docs/proofs/gamma-noise.md"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "objective noise scale (sum scale)": self.objective_noise.effective_scale,
            "total l2 (sum scale)": self.total_l2,
            "verified gradient norm": self.gradient_tolerance,
            "output noise scale": self.output.scale,
            "output grid": self.output.noise.grid,
            "sampler": f"exactly rounded gamma-norm noise, {SOURCE}",
        }

    def __str__(self) -> str:
        return base.printed(self)
