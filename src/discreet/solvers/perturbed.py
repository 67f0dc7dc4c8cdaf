"""What both kinds of objective perturbation share: perturb, minimize until verified, add the output noise.

    sum_i loss_i(theta) + (total_l2 / 2) |theta|^2 + <b, theta>,      b drawn on a grid,

over all of space or over a closed convex set. A subclass names the noises and their price. Proofs:
docs/proofs/objective-perturbation.md (Gaussian), docs/proofs/gamma-noise.md (pure).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from discreet.mechanisms.additive import GaussianMechanism, GaussianNoise
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.gamma_norm import GammaNormMechanism, GammaNormNoise
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base, verified

if TYPE_CHECKING:
    from discreet.solvers.nonprivate import Optimizer

# Noise worth having in a raw prediction, per root of signal-to-noise; measured on public data, see
# docs/decisions/0003-regularization-rule.md.
_PREDICTION_NOISE = 0.05
# The output noise is kept this far below the noise that the perturbed objective leaves in the coefficients.
_OUTPUT_NOISE_RATIO = 0.1
_LEAST_OUTPUT_NOISE = 2.0**-22  # in units of 1 / (bound of rows): predictions up to 2^9 are in range


class PerturbedObjectivePlan:
    """A calibrated run of objective perturbation, whatever its noise."""

    problem: Problem
    guarantee: Guarantee
    total_l2: float
    optimizer: Optimizer

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return True

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
        """Standard deviation of one entry of the linear term; a norm that it never exceeds in practice."""
        raise NotImplementedError

    @property
    def output_spread(self) -> float:
        """Standard deviation of one entry of the output noise, over what it has to hide."""
        raise NotImplementedError

    @cached_property
    def gradient_tolerance(self) -> float:
        """Largest l2 x distance to the exact minimizer that is accepted: in all of space, the norm of the gradient.

        Small enough for the output noise to stay below the noise of the objective, as far as the public bound on the
        trace of the Hessian tells, and large enough to be reached in double precision.
        """
        problem = self.problem
        stddev, norm = self.linear_norms
        hessian = (
            problem.n_samples * problem.loss.smoothness * problem.bounds.feature_norm**2 / problem.n_features
        )
        wanted = _OUTPUT_NOISE_RATIO * stddev / (self.total_l2 + hessian)
        wanted *= self.total_l2 / (2 * self.output_spread)
        return max(wanted, verified.least_tolerance(problem, self.total_l2, norm))

    @cached_property
    def output_sensitivity(self) -> Sensitivity:
        """How far two approximate minimizers of the same exact one can be apart, all models together.

        The linear term is drawn on a grid; relative to the continuous term of the proof that is an error of at most
        half a grid step per coordinate in the gradient, so it joins the optimizer's tolerance.

        Never so small that large coefficients would leave the range of the mechanism, 2^31 standard deviations at
        least, as they would where epsilon is huge.
        """
        problem = self.problem
        grid_error = self.objective_noise.grid * math.sqrt(problem.n_features * problem.loss.n_outputs) / 2
        distance = (self.gradient_tolerance + grid_error) / self.total_l2 * math.sqrt(problem.n_models)
        least = _LEAST_OUTPUT_NOISE / (problem.bounds.feature_norm * self.output_spread)
        return Sensitivity(max(2 * distance, least))

    @property
    def suffix(self) -> str:
        """Set and models, in words."""
        over = "" if self.problem.geometry is None else f" over {type(self.problem.geometry).__name__}"
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        return over + models

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Perturb, minimize until verified, add the output noise."""
        problem = self.problem
        minima = []
        for part in records:
            linear = self.objective_noise.draw(problem.shape, entropy)
            found = verified.find(
                problem,
                part,
                self.total_l2,
                self.gradient_tolerance,
                linear,
                optimizer=self.optimizer,
                progress=progress,
            )
            minima.append(found)
        exact = np.stack(minima)
        theta = self.output.release(exact.ravel(), entropy).reshape(exact.shape)
        return base.Release(verified.published(problem, theta, self.output.noise.grid), entropy.secure)


def chosen_l2(problem: Problem, guarantee: Guarantee, stddev: float, prediction_noise: float | None) -> float:
    """The l2 at which noise moves a raw prediction by ``prediction_noise``, not below the floor.

    A row of norm R turns noise of standard deviation ``stddev`` per entry into R stddev / l2 at most, whatever the
    number of columns (Jain and Thakurta, 2014): regularization trades this for bias. The more records stand against
    the noise, the more of it a prediction can bear.
    """
    floor = least_l2(problem, guarantee)
    if problem.l2 is not None:
        return max(floor, problem.l2 * problem.n_samples)
    if prediction_noise is None:
        per_class = problem.n_samples / problem.loss.n_outputs
        prediction_noise = _PREDICTION_NOISE * math.sqrt(per_class * record_scale(problem) / stddev)
    return max(floor, problem.bounds.feature_norm * stddev / prediction_noise)


def least_l2(problem: Problem, guarantee: Guarantee) -> float:
    """Regularization below which the determinant would dominate the price of the noise."""
    replace = guarantee.neighboring is Neighboring.REPLACE_ONE
    factor = {
        "logistic": 2.5 if replace else 1.0,
        "softmax": 6.0 if replace else 4.0,
    }.get(problem.loss.family, 10 * problem.loss.smoothness)
    return factor * problem.n_models * problem.bounds.feature_norm**2 / guarantee.epsilon


def record_scale(problem: Problem) -> float:
    """The unit of the noise multiplier: one record's largest gradient entry times its row."""
    loss = problem.loss
    return problem.bounds.feature_norm * (1.0 if loss.family == "softmax" else loss.lipschitz)
