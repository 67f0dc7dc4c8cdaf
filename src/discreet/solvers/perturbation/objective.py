"""Objective perturbation, released through Approximate Minima Perturbation (AMP).

A random linear term is added to the objective. Any optimizer minimizes the perturbed objective until its gradient is
*verified* to be small. A little noise on the result hides the remaining optimization error. Proofs:
``docs/proofs/objective-perturbation.md``. On the sum scale, the objective is

    sum_i loss_i(theta) + (total_l2 / 2) |theta|^2 + <b, theta>,      b ~ N(0, stddev^2 I),

without a constraint or over a closed convex set. For delta = 0 see `discreet.solvers.perturbation.pure_objective`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.mechanisms.additive import GaussianMechanism, GaussianNoise
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.solvers import base
from discreet.solvers.minimizers import constrained
from discreet.solvers.minimizers.minimizer import Optimizer
from discreet.solvers.perturbation.pure_objective import (
    PerturbedObjectivePlan,
    PureObjectivePlan,
    chosen_l2,
    plan_pure,
    record_scale,
)

# Share of the output stage in the Gaussian-DP budget, in quadrature: less than 0.05% more objective noise.
_OUTPUT_SHARE = 1 / 40


@dataclass(frozen=True)
class ObjectivePerturbation:
    """Objective perturbation with the tight profile of linear models; every default follows from public facts.

    Parameters
    ----------
    prediction_noise : standard deviation that the noise alone may cause in the raw prediction of a row of the largest
        norm; it sets the regularization. None for the default rule, which uses public numbers only.
    optimizer : "auto", "lbfgs", "newton", "newton-cg", or a callable (see `minimizers.minimizer.minimize`).
        Its answer is verified and, where it falls short, polished; privacy never depends on it.
    gradient_tolerance : how long the gradient (sum scale) may be at a minimizer that is accepted, the gamma of AMP: a
        larger one saves passes over the rows and costs output noise. None for one whose noise hardly matters. Raised
        where double precision needs more. Only for delta > 0.
    output_share : part of the Gaussian-DP parameter, in quadrature, for the output stage. Only for delta > 0.

    Privacy
    -------
    (epsilon, delta), any relation, for losses of one linear prediction and for the softmax, without a constraint or
    over an L2, L1 or grouped ball, a simplex or a box. Every coefficient, including the intercept, is regularized and
    perturbed. For delta = 0 the noise is gamma-norm noise, whose norm grows with the number of coefficients. The time
    to fit is not covered.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011); Kifer, Smith and Thakurta (2012); Iyengar et al. (2019) for AMP.
    """

    name: ClassVar[str] = "objective"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    prediction_noise: float | None = None
    optimizer: Optimizer = "auto"
    gradient_tolerance: float | None = None
    output_share: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> ObjectivePerturbationPlan | PureObjectivePlan:
        """Choose the regularization by the public rule, then the least noise that meets the guarantee."""
        constrained.check(self.name, problem)
        tolerance, share = self._output_stage(guarantee)
        if guarantee.delta == 0:
            return plan_pure(problem, guarantee, self.prediction_noise, self.optimizer)
        # Without curvature the noise is that of the plain Gaussian mechanism: accurate enough to choose l2.
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        plain = (
            problem.gradient_sensitivity(guarantee.neighboring).value * math.sqrt(problem.n_models) / budget
        )
        total_l2 = chosen_l2(problem, guarantee, plain, self.prediction_noise)
        output_mu = budget * share
        stddev = _calibrated_stddev(problem, guarantee, total_l2, output_mu)
        return ObjectivePerturbationPlan(
            problem, guarantee, stddev, total_l2, output_mu, self.optimizer, tolerance
        )

    def _output_stage(self, guarantee: Guarantee) -> tuple[float | None, float]:
        """The tolerance that was asked for, and the share of the output stage."""
        settings = {"gradient_tolerance": self.gradient_tolerance, "output_share": self.output_share}
        for name, value in settings.items():
            if value is None:
                continue
            _checks.real(name, value, above=0)
            if guarantee.delta == 0:
                raise ParameterError(name, "is for Gaussian noise; leave it at None where delta = 0")
        if self.output_share is not None and not self.output_share < 1:
            raise ParameterError("output_share", f"must lie between 0 and 1, got {self.output_share!r}")
        share = _OUTPUT_SHARE if self.output_share is None else float(self.output_share)
        return None if self.gradient_tolerance is None else float(self.gradient_tolerance), share


@dataclass(frozen=True)
class DissertationRule:
    """AMP with the hyperparameter-free rule of Thakkar's dissertation (2019, chapter 4), for comparison.

    Noise, regularization and the split of epsilon are as printed, except that the output noise is doubled, as its
    proof requires. The guarantee does not rely on the printed formula: the run is priced like every other objective
    perturbation, and the noise is increased if the formula falls short.
    """

    name: ClassVar[str] = "objective-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> ObjectivePerturbationPlan:
        """Follow the printed rule for each model, with (epsilon / K, delta / K)."""
        constrained.check(self.name, problem)
        if guarantee.delta == 0:
            raise ValueError(
                f"solver {self.name!r} is the Gaussian rule and needs delta > 0; use 'objective' for delta = 0"
            )
        loss, radius = problem.loss, problem.bounds.feature_norm
        if loss.n_outputs > 1:
            raise ValueError(
                f"solver {self.name!r} fits one-vs-rest models, not a softmax; use multi_class='ovr'"
            )
        epsilon, delta = guarantee.epsilon / problem.n_models, guarantee.delta / problem.n_models
        first_epsilon, first_delta = 0.99 * epsilon, 0.99 * delta
        narrow = min(0.887 + 0.019 / first_epsilon**0.373, 0.99)
        share = narrow if problem.n_features < problem.n_samples else 0.97
        noise_epsilon = first_epsilon * max(share, 1 - 0.99 / first_epsilon)
        # The dissertation bounds the logistic curvature by R^2 (it is R^2 / 4) and charges rank two (it is one).
        curvature = radius**2 * (1.0 if loss.family == "logistic" else loss.smoothness)
        total_l2 = 2 * curvature / (first_epsilon - noise_epsilon)
        printed = (1 + math.sqrt(2 * math.log(1 / first_delta))) / noise_epsilon * 2 * loss.lipschitz * radius
        output_mu = gaussian_mu(0.01 * epsilon, 0.01 * delta) * math.sqrt(problem.n_models)
        stddev = max(printed, _calibrated_stddev(problem, guarantee, total_l2, output_mu))
        return ObjectivePerturbationPlan(problem, guarantee, stddev, total_l2, output_mu, self.optimizer)


@dataclass(frozen=True)
class ObjectivePerturbationPlan(PerturbedObjectivePlan):
    """A calibrated run of objective perturbation."""

    stddev: float
    total_l2: float
    output_mu: float
    optimizer: Optimizer = "auto"
    tolerance: float | None = None

    @cached_property
    def gradient_tolerance(self) -> float:
        """That of the rule, or the one that was asked for, if it can be verified."""
        if self.tolerance is None:
            return super().gradient_tolerance
        return max(
            self.tolerance, constrained.least_tolerance(self.problem, self.total_l2, self.linear_norms[1])
        )

    @cached_property
    def objective_noise(self) -> GaussianNoise:
        """Noise of the linear term, on its public grid."""
        return GaussianNoise(self.stddev)

    @property
    def linear_norms(self) -> tuple[float, float]:
        """Standard deviation of one entry, and the typical norm plus twelve standard deviations."""
        size = self.problem.n_features * self.problem.loss.n_outputs
        return self.stddev, self.objective_noise.effective_stddev * (math.sqrt(size) + 12)

    @property
    def output_spread(self) -> float:
        """1 / mu of the output stage."""
        return 1 / self.output_mu

    @cached_property
    def output(self) -> GaussianMechanism:
        """Noise on the approximate minimizers, which hides their distance to the exact ones."""
        return GaussianMechanism(self.output_sensitivity, 1 / self.output_mu, self.problem.n_coefficients)

    def _noisy(self, exact: Array | None, entropy: Entropy) -> Array:
        """Add the output noise; without minimizers, add it to zeros (docs/proofs/rounding.md, section 6)."""
        return self.output.release(np.zeros(self.problem.n_coefficients) if exact is None else exact, entropy)

    @property
    def joint_event(self) -> events.Event:
        return _event(self.problem, self.stddev, self.total_l2, self.output_mu)

    @property
    def how(self) -> str:
        return f"objective perturbation with Gaussian noise and a noisy output stage (AMP){self.suffix}"

    @property
    def proof(self) -> str:
        return {
            "logistic": "vertex profile with the joint gradient-curvature bound (Theorem 2)",
            "monotone": "vertex profile of losses with a derivative of fixed sign (Theorem 1)",
            "general": "vertex profile of general linear models (Theorem 1)",
            "softmax": "vertex profile of the softmax (Theorem 3)",
        }[self.problem.loss.family] + ", output stage (Theorem 4); docs/proofs/objective-perturbation.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        return {
            "objective noise stddev (sum scale)": self.objective_noise.effective_stddev,
            "total l2 (sum scale)": self.total_l2,
            "verified gradient norm": self.gradient_tolerance,
            "output noise stddev": self.output.stddev,
            "output grid": self.output.noise.grid,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    @property
    def remarks(self) -> Mapping[str, str]:
        problem = self.problem
        spread = self.stddev * math.sqrt(problem.n_features * problem.loss.n_outputs)
        ratio = problem.n_samples * record_scale(problem) / spread
        signal = f"{ratio:.4g}  (below 10, expect little more than noise)"
        return {"largest signal over noise": signal, **super().remarks}


def _event(problem: Problem, stddev: float, total_l2: float, output_mu: float) -> events.Event:
    loss, radius = problem.loss, problem.bounds.feature_norm
    ideal = events.ObjectivePerturbation(
        family=loss.family,
        noise_multiplier=stddev / record_scale(problem),
        leverage=radius**2 / total_l2,
        smoothness=loss.smoothness,
        output_mu=output_mu,
        n_outputs=loss.n_outputs if loss.n_outputs > 1 else problem.n_models,
    )
    return events.Discretized(ideal, variates=2 * problem.n_coefficients)  # objective and output noise


def _calibrated_stddev(problem: Problem, guarantee: Guarantee, total_l2: float, output_mu: float) -> float:
    scale = record_scale(problem)
    return scale * calibrate(lambda m: _event(problem, m * scale, total_l2, output_mu), guarantee)


base.register(ObjectivePerturbation.name, ObjectivePerturbation)
base.register(DissertationRule.name, DissertationRule)
