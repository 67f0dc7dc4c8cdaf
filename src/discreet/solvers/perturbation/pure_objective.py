"""Objective perturbation: the base class of its plans, and the pure variant (delta = 0).

    sum_i loss_i(theta) + (total_l2 / 2) |theta|^2 + <b, theta>,      b drawn on a grid,

is minimized, without a constraint or over a closed convex set, until the minimizer is verified; then output noise is
added. A subclass of `PerturbedObjectivePlan` names the noises and their price; `objective` has the Gaussian one.

For delta = 0 the linear term is gamma-norm noise, with a density proportional to exp(-|b| / scale). A change of the
minimizer changes the norm of b by at most the gradient's sensitivity, in any direction, so the proof covers every
smooth convex loss, while the Gaussian proof needs a linear model. Proofs: docs/proofs/objective-perturbation.md
(Gaussian), docs/proofs/gamma-noise.md, sections 4 and 5 (pure).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet._typing import Array, Progress
from discreet.mechanisms.additive import GaussianMechanism, GaussianNoise
from discreet.mechanisms.gamma_norm import (
    GammaNormMechanism,
    GammaNormNoise,
    ending_exponent,
    norm_bound,
)
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.objective import TANGENT_POINTS, tangent_costs
from discreet.privacy.events import Event
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.solvers import base
from discreet.solvers.certificates import Certificate, NoiseNorm, perturbed_minimizer, released, stated
from discreet.solvers.minimizers import constrained
from discreet.solvers.minimizers.minimizer import Optimizer

# Acceptable noise in a raw prediction, per root of signal-to-noise; measured on public data
# (docs/decisions/0003-regularization-rule.md).
_PREDICTION_NOISE = 0.05
# Bound on the output noise relative to the noise that the perturbed objective causes in the coefficients.
_OUTPUT_NOISE_RATIO = 0.1
_LEAST_OUTPUT_NOISE = 2.0**-22  # in units of 1 / (row bound): keeps predictions up to 2^9 in range


@dataclass(frozen=True)
class PerturbedMinimizer:
    """Noise in the objective and on its minimizer, priced together by one event."""

    objective_noise: GaussianNoise | GammaNormNoise
    output: GaussianMechanism | GammaNormMechanism
    event: Event


class PerturbedObjectivePlan(base.Plan):
    """A calibrated run of objective perturbation with any noise."""

    total_l2: float
    optimizer: Optimizer

    sums_only = True

    def __post_init__(self) -> None:
        _ = self.output  # raise now, before any charge, if anything can fail

    @property
    def joint_event(self) -> Event:
        """The price of both noises together."""
        raise NotImplementedError

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        joint = PerturbedMinimizer(self.objective_noise, self.output, self.joint_event)
        return (base.PlannedRelease(joint, "minimizers of perturbed objectives"),)

    @property
    def objective_noise(self) -> GaussianNoise | GammaNormNoise:
        """Noise of the linear term of one model, on its public grid."""
        raise NotImplementedError

    @property
    def output(self) -> GaussianMechanism | GammaNormMechanism:
        """Noise on the approximate minimizers."""
        raise NotImplementedError

    @property
    def linear_norms(self) -> tuple[float, float]:
        """Standard deviation of an entry of the linear term, and half the norm above which nothing is minimized."""
        raise NotImplementedError

    @property
    def output_spread(self) -> float:
        """Standard deviation of one entry of the output noise, relative to its sensitivity."""
        raise NotImplementedError

    @cached_property
    def certificate(self) -> Certificate | None:
        """Bound on the excess risk in a set, from public numbers; None in all of space."""
        noise, output, problem = self.objective_noise, self.output, self.problem
        size = problem.n_features * problem.loss.n_outputs
        pure = isinstance(noise, GammaNormNoise)
        linear = NoiseNorm(size, noise.effective_scale, pure)
        moved = NoiseNorm(problem.n_coefficients, output.noise.effective_scale, pure)
        return perturbed_minimizer(problem, self.total_l2, linear, moved, self.gradient_tolerance)

    @property
    def remarks(self) -> Mapping[str, str]:
        return stated(self.certificate)

    @cached_property
    def gradient_tolerance(self) -> float:
        """Largest accepted l2 x distance to the exact minimizer; without a constraint, the norm of the gradient.

        Small enough to keep the output noise below the noise of the objective, judging by the public bound on the
        trace of the Hessian, and below the size of the set, and large enough to be reached in double precision.
        """
        problem = self.problem
        stddev, norm = self.linear_norms
        hessian = (
            problem.n_samples * problem.loss.smoothness * problem.bounds.feature_norm**2 / problem.n_features
        )
        spread = stddev / (self.total_l2 + hessian)
        if problem.geometry is not None:
            spread = min(spread, problem.geometry.radius(2.0) / math.sqrt(problem.geometry.n_features))
        wanted = _OUTPUT_NOISE_RATIO * spread * self.total_l2 / (2 * self.output_spread)
        return max(wanted, constrained.least_tolerance(problem, self.total_l2, norm))

    @property
    def passes_bound(self) -> int:
        """Bound on the passes over the records per model."""
        return constrained.passes_bound(self.problem, self.total_l2)

    @cached_property
    def output_sensitivity(self) -> Sensitivity:
        """Bound on the distance between two approximate minimizers of one objective, all models together.

        The linear term is drawn on a grid. Relative to the continuous term of the proof, this changes the gradient by
        at most half a grid step per coordinate, which is added to the optimizer's tolerance.

        A lower limit keeps large coefficients within the range of the mechanism (at least 2^31 standard deviations)
        when epsilon is huge.
        """
        problem = self.problem
        grid_error = self.objective_noise.grid * math.sqrt(problem.n_features * problem.loss.n_outputs) / 2
        distance = (self.gradient_tolerance + grid_error) / self.total_l2 * math.sqrt(problem.n_models)
        least = _LEAST_OUTPUT_NOISE / (problem.bounds.feature_norm * self.output_spread)
        return Sensitivity(max(2 * distance, least))

    @property
    def suffix(self) -> str:
        """Set and number of models, for the description."""
        over = "" if self.problem.geometry is None else f" over {type(self.problem.geometry).__name__}"
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        return over + models

    def _noisy(self, exact: Array | None, entropy: Entropy) -> Array:
        """Add the output noise; without minimizers, release something independent of the data."""
        raise NotImplementedError

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Perturb, minimize until verified, then add output noise.

        If the linear term is longer than any that will be drawn in practice, doubles cannot represent a minimizer.
        The release is then independent of the data, and the proofs cover how often this can happen.
        """
        problem = self.problem
        linear = [self.objective_noise.draw(problem.shape, entropy) for _ in records]
        exact = None
        if all(float(np.linalg.norm(term)) <= 2 * self.linear_norms[1] for term in linear):
            minima = [
                constrained.find(
                    problem,
                    part,
                    self.total_l2,
                    self.gradient_tolerance,
                    term,
                    optimizer=self.optimizer,
                    progress=progress,
                )
                for part, term in zip(records, linear, strict=True)
            ]
            exact = np.stack(minima).ravel()
        theta = self._noisy(exact, entropy).reshape(len(records), *problem.shape)
        published = constrained.published(problem, theta, self.output.noise.grid)
        return released(published, entropy.secure, self.certificate)


def chosen_l2(problem: Problem, guarantee: Guarantee, stddev: float, prediction_noise: float | None) -> float:
    """Return the l2 at which noise moves a raw prediction by ``prediction_noise``, or the floor if that is larger.

    For a row of norm R, noise of standard deviation ``stddev`` per entry moves the prediction by at most R stddev /
    l2 for any number of columns (Jain and Thakurta, 2014). Regularization trades this for bias. The more records
    there are relative to the noise, the more noise is acceptable in a prediction.
    """
    floor = least_l2(problem, guarantee)
    if problem.l2 is not None:
        return max(floor, problem.l2 * problem.n_samples)
    if prediction_noise is None:
        per_class = problem.n_samples / problem.loss.n_outputs
        prediction_noise = _PREDICTION_NOISE * math.sqrt(per_class * record_scale(problem) / stddev)
    return max(floor, problem.bounds.feature_norm * stddev / prediction_noise)


def least_l2(problem: Problem, guarantee: Guarantee) -> float:
    """Return the regularization below which the determinant would dominate the price."""
    replace = guarantee.neighboring is Neighboring.REPLACE_ONE
    factor = {
        "logistic": 2.5 if replace else 1.0,
        "softmax": 6.0 if replace else 4.0,
    }.get(problem.loss.family, 10 * problem.loss.smoothness)
    return factor * problem.n_models * problem.bounds.feature_norm**2 / guarantee.epsilon


def record_scale(problem: Problem) -> float:
    """Return the unit of the noise multiplier: the row bound times the bound on one derivative."""
    loss = problem.loss
    return problem.bounds.feature_norm * (1.0 if loss.family == "softmax" else loss.lipschitz)


_OUTPUT_SHARE = 0.01  # of epsilon; a verified minimizer leaves little to hide


def objective_epsilon(problem: Problem, neighboring: Neighboring, scale: float, total_l2: float) -> float:
    """Return the epsilon of all exact minimizers: noise and determinant (Theorems 4 and 5).

    >>> from discreet.records.bounds import Bounds
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
    return problem.n_models * cost * SLACK


def plan_pure(
    problem: Problem, guarantee: Guarantee, prediction_noise: float | None, optimizer: Optimizer
) -> PureObjectivePlan:
    """Choose the regularization by the public rule, then the least noise that meets the guarantee."""
    output_epsilon = _OUTPUT_SHARE * guarantee.epsilon
    # Without curvature the noise is that of releasing one gradient: accurate enough to choose l2.
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

    scale: float
    total_l2: float
    output_epsilon: float
    optimizer: Optimizer = "auto"

    @cached_property
    def objective_noise(self) -> GammaNormNoise:
        return GammaNormNoise(self.scale)

    @property
    def linear_norms(self) -> tuple[float, float]:
        """Standard deviation of one entry, and half a bound on the norm, which has a gamma distribution.

        A model exceeds the bound only with the probability that the output stage allows for ending without
        minimizers.
        """
        problem, scale = self.problem, self.objective_noise.effective_scale
        size = problem.n_features * problem.loss.n_outputs
        rarely = ending_exponent(problem.n_coefficients, self.output_epsilon) + math.log(problem.n_models)
        longest = max(norm_bound(size, 72.0) + 8, norm_bound(size, rarely) * (1 + 2.0**-20) / 2)
        return scale * _entry_stddev(problem), scale * longest

    @property
    def output_spread(self) -> float:
        """sqrt(size + 1) / epsilon of the output stage."""
        return math.sqrt(self.problem.n_coefficients + 1) / self.output_epsilon

    @cached_property
    def output(self) -> GammaNormMechanism:
        """Noise on the approximate minimizers, which hides their distance to the exact ones."""
        multiplier = 1 / self.output_epsilon * SLACK
        return GammaNormMechanism(self.output_sensitivity, multiplier, self.problem.n_coefficients)

    def _noisy(self, exact: Array | None, entropy: Entropy) -> Array:
        """Add the output noise, or release a uniform point: delta stays 0 (docs/proofs/gamma-noise.md, section 6)."""
        return self.output.release_or_uniform(exact, entropy)

    @property
    def joint_event(self) -> Event:
        relation = self.record_guarantee.neighboring
        return _event(self.problem, relation, self.scale, self.total_l2, self.output_epsilon)

    @property
    def how(self) -> str:
        return f"objective perturbation with gamma-norm noise and a noisy output stage{self.suffix}"

    proof = "triangle inequality and determinant (Theorem 4), output stage (Theorem 5); docs/proofs/gamma-noise.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        return {
            "objective noise scale (sum scale)": self.objective_noise.effective_scale,
            "total l2 (sum scale)": self.total_l2,
            "verified gradient norm": self.gradient_tolerance,
            "output noise scale": self.output.scale,
            "output grid": self.output.noise.grid,
            "sampler": f"exactly rounded gamma-norm noise, {SOURCE}",
        }
