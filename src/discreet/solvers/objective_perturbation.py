"""Objective perturbation, released through Approximate Minima Perturbation (AMP).

A random linear term is added to the objective, the perturbed objective is minimized by any optimizer until its
gradient is *verified* to be small, and a little noise on the result pays for what the optimizer left over. Privacy:
``docs/proofs/objective-perturbation.md``. Sum scale throughout: the objective is

    sum_i loss_i(theta) + (total_l2 / 2) |theta|^2 + <b, theta>,      b ~ N(0, stddev^2 I).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet.mechanisms.additive import GaussianMechanism, GaussianNoise
from discreet.mechanisms.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.nonprivate import Objective, Optimizer, minimize, smallest_tolerance

# The output stage takes this part of the whole Gaussian-DP budget, in quadrature: below 0.05% more objective noise.
_OUTPUT_SHARE = 1 / 40
# The output noise is kept this far below the noise that the perturbed objective leaves in the coefficients.
_OUTPUT_NOISE_RATIO = 0.1
# Noise worth having in a raw prediction, per root of signal-to-noise; measured on public data, see
# docs/decisions/0003-regularization-rule.md.
_PREDICTION_NOISE = 0.05


@dataclass(frozen=True)
class ObjectivePerturbation:
    """Objective perturbation with the tight profile of linear models; every default follows from public facts.

    Parameters
    ----------
    prediction_noise : standard deviation that the noise alone may have in the raw prediction of a row of the largest
        norm; the regularization follows from it. None for the default rule, which reads public numbers only.
    optimizer : "auto", "lbfgs", "newton", "newton-cg", or a callable (see `discreet.solvers.nonprivate.minimize`).
        Its answer is verified and, where it falls short, polished; privacy never depends on it.

    Privacy
    -------
    (epsilon, delta) with delta > 0, any relation, for losses of one linear prediction and for the softmax; every
    coefficient, the intercept included, is regularized and perturbed. The time to fit is not covered.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011); Kifer, Smith and Thakurta (2012); Iyengar et al. (2019) for AMP.
    """

    name: ClassVar[str] = "objective"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    prediction_noise: float | None = None
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> ObjectivePerturbationPlan:
        """Choose the regularization by public rule, then the smallest noise that meets the guarantee."""
        _refuse(self.name, problem, guarantee)
        total_l2 = self._total_l2(problem, guarantee)
        output_mu = gaussian_mu(guarantee.epsilon, guarantee.delta) * _OUTPUT_SHARE
        stddev = _calibrated_stddev(problem, guarantee, total_l2, output_mu)
        return ObjectivePerturbationPlan(problem, guarantee, stddev, total_l2, output_mu, self.optimizer)

    def _total_l2(self, problem: Problem, guarantee: Guarantee) -> float:
        """The l2 at which noise moves a raw prediction by ``prediction_noise``, not below the floor.

        A row of norm R turns the noise into R stddev / l2 at most, whatever the number of columns (Jain and
        Thakurta, 2014): regularization trades this for bias. The more records stand against the noise, the more
        of it a prediction can bear.
        """
        floor = _least_l2(problem, guarantee)
        if problem.l2 is not None:
            return max(floor, problem.l2 * problem.n_samples)
        # Without curvature the noise is that of the plain Gaussian mechanism: close enough to choose l2.
        sensitivity = problem.gradient_sensitivity(guarantee.neighboring).value
        stddev = sensitivity * math.sqrt(problem.n_models) / gaussian_mu(guarantee.epsilon, guarantee.delta)
        prediction_noise = self.prediction_noise
        if prediction_noise is None:
            per_class = problem.n_samples / (1 if problem.loss.n_outputs == 1 else problem.loss.n_outputs)
            prediction_noise = _PREDICTION_NOISE * math.sqrt(per_class * _record_scale(problem) / stddev)
        return max(floor, problem.bounds.feature_norm * stddev / prediction_noise)


@dataclass(frozen=True)
class DissertationRule:
    """AMP with the hyperparameter-free rule of Thakkar's dissertation (2019, chapter 4), for comparison.

    Noise, regularization and the split of epsilon are as printed, except that the output noise is doubled, as its
    proof requires. The guarantee is not taken from the printed formula: the run is priced by the same profile as
    every other objective perturbation, and the noise raised should the formula ever fall short.
    """

    name: ClassVar[str] = "objective-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> ObjectivePerturbationPlan:
        """Follow the printed rule, model by model with (epsilon / K, delta / K)."""
        _refuse(self.name, problem, guarantee)
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
class ObjectivePerturbationPlan:
    """A calibrated run of objective perturbation."""

    problem: Problem
    guarantee: Guarantee
    stddev: float
    total_l2: float
    output_mu: float
    optimizer: Optimizer = "auto"

    def __post_init__(self) -> None:
        _ = self.output  # everything that can fail does so now, before a charge

    @cached_property
    def objective_noise(self) -> GaussianNoise:
        """Noise of the linear term, on its public grid."""
        return GaussianNoise(self.stddev)

    @cached_property
    def gradient_tolerance(self) -> float:
        """Largest exact gradient norm at which a minimizer is accepted (sum scale, rounding included).

        Small enough for the output noise to stay below the noise of the objective, as far as the public bound on the
        trace of the Hessian tells, and large enough to be reached in double precision.
        """
        problem = self.problem
        loss, radius = problem.loss, problem.bounds.feature_norm
        hessian = problem.n_samples * loss.smoothness * radius**2 / problem.n_features
        wanted = _OUTPUT_NOISE_RATIO * self.stddev / (self.total_l2 + hessian)
        wanted *= self.output_mu * self.total_l2 / 2
        b_norm = self.objective_noise.effective_stddev * (math.sqrt(problem.n_features * loss.n_outputs) + 12)
        reachable = smallest_tolerance(
            loss, problem.n_samples, problem.n_features, radius, self.total_l2, b_norm
        )
        return max(wanted, reachable)

    @cached_property
    def output(self) -> GaussianMechanism:
        """Noise on the approximate minimizers, whose distance to the exact ones is all it has to hide.

        The linear term is drawn on a grid; relative to the continuous term of the proof that is an error of at most
        half a grid step per coordinate in the gradient, so it joins the optimizer's tolerance.
        """
        problem = self.problem
        grid_error = self.objective_noise.grid * math.sqrt(problem.n_features * problem.loss.n_outputs) / 2
        distance = (self.gradient_tolerance + grid_error) / self.total_l2 * math.sqrt(problem.n_models)
        return GaussianMechanism(Sensitivity(2 * distance), 1 / self.output_mu, problem.n_coefficients)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        return _event(self.problem, self.stddev, self.total_l2, self.output_mu)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        return f"objective perturbation with Gaussian noise and a noisy output stage (AMP){models}"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return {
            "logistic": "vertex profile with the joint gradient-curvature bound (Theorem 2)",
            "monotone": "vertex profile of losses with a derivative of fixed sign (Theorem 1)",
            "general": "vertex profile of general linear models (Theorem 1)",
            "softmax": "vertex profile of the softmax (Theorem 3)",
        }[self.problem.loss.family] + ", output stage (Theorem 4); docs/proofs/objective-perturbation.md"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "objective noise stddev (sum scale)": self.objective_noise.effective_stddev,
            "total l2 (sum scale)": self.total_l2,
            "verified gradient norm": self.gradient_tolerance,
            "output noise stddev": self.output.stddev,
            "output grid": self.output.noise.grid,
            "sampler": "exact discrete Gaussian, AES-256-CTR keyed by the operating system",
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Perturb, minimize until verified, add the output noise."""
        problem = self.problem
        minima = []
        for part in records:
            linear = self.objective_noise.draw(problem.shape, entropy)
            objective = Objective(part, problem.loss, self.total_l2, linear)
            found = minimize(objective, self.gradient_tolerance, optimizer=self.optimizer, progress=progress)
            minima.append(found.theta)
        exact = np.stack(minima)
        theta = self.output.release(exact.ravel(), entropy).reshape(exact.shape)
        if problem.loss.n_outputs > 1:
            # The mean over classes is pure noise and moves no prediction; removing it is post-processing.
            grid = self.output.noise.grid
            theta -= np.rint(theta.mean(axis=-1, keepdims=True) / grid) * grid
        return base.Release(theta, entropy.secure)

    def __str__(self) -> str:
        problem = self.problem
        spread = self.stddev * math.sqrt(problem.n_features * problem.loss.n_outputs)
        ratio = problem.n_samples * _record_scale(problem) / spread
        return base.printed(
            self, {"largest signal over noise": f"{ratio:.4g}  (below 10, expect little more than noise)"}
        )


def _refuse(name: str, problem: Problem, guarantee: Guarantee) -> None:
    """Raise where nothing is proved, or where what was asked for would be ignored."""
    if problem.geometry is not None:
        raise ValueError(
            f"solver {name!r} fits without constraints; for coefficients in a set use 'frank-wolfe' or 'mirror-descent'"
        )
    if guarantee.delta == 0:
        raise ValueError(
            "objective perturbation adds Gaussian noise, which cannot give delta = 0; "
            "choose a delta greater than 0, for instance 1 / n**2, or solver='output', whose Laplace noise is pure"
        )


def _least_l2(problem: Problem, guarantee: Guarantee) -> float:
    """Regularization below which the determinant would dominate the price of the noise."""
    replace = guarantee.neighboring is Neighboring.REPLACE_ONE
    factor = {
        "logistic": 2.5 if replace else 1.0,
        "softmax": 6.0 if replace else 4.0,
    }.get(problem.loss.family, 10 * problem.loss.smoothness)
    return factor * problem.n_models * problem.bounds.feature_norm**2 / guarantee.epsilon


def _record_scale(problem: Problem) -> float:
    """The unit of the noise multiplier: one record's largest gradient entry times its row."""
    loss = problem.loss
    return problem.bounds.feature_norm * (1.0 if loss.family == "softmax" else loss.lipschitz)


def _event(problem: Problem, stddev: float, total_l2: float, output_mu: float) -> events.Event:
    loss, radius = problem.loss, problem.bounds.feature_norm
    ideal = events.ObjectivePerturbation(
        family=loss.family,
        noise_multiplier=stddev / _record_scale(problem),
        leverage=radius**2 / total_l2,
        smoothness=loss.smoothness,
        output_mu=output_mu,
        n_outputs=loss.n_outputs if loss.n_outputs > 1 else problem.n_models,
    )
    return events.Discretized(ideal, variates=2 * problem.n_coefficients)  # objective and output noise


def _calibrated_stddev(problem: Problem, guarantee: Guarantee, total_l2: float, output_mu: float) -> float:
    scale = _record_scale(problem)
    return scale * calibrate(lambda m: _event(problem, m * scale, total_l2, output_mu), guarantee)


base.register(ObjectivePerturbation.name, ObjectivePerturbation)
base.register(DissertationRule.name, DissertationRule)
