"""Localization: a noisy minimizer first, then the exponential mechanism in a small ball around it. Pure epsilon.

For a strongly convex objective the noisy minimizer is close to the true one, within a radius given by a quantile of
the noise. In a ball of that radius one record moves the sum of losses only a little, so the exponential mechanism
concentrates more than on the whole set. Proof: docs/proofs/exponential-sampling.md, section 7.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import ClassVar, Literal

import numpy as np
from scipy.special import betaincinv, gammainccinv

from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.gibbs import Ball, GibbsMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.guarantee import SLACK, Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.sets import L2Ball
from discreet.solvers import base
from discreet.solvers.base import gradient_sensitivity
from discreet.solvers.certificates import label_bound, with_bounded_labels
from discreet.solvers.minimizers.minimizer import Objective, Optimizer, minimize, minimizer_norm
from discreet.solvers.perturbation.output import OutputPerturbation, OutputPerturbationPlan
from discreet.solvers.sampling import expected_tries
from discreet.solvers.sampling.envelopes import Energy, Shape, value_rounding
from discreet.solvers.sampling.exponential import envelope_of, refuse_problem, shape_of, wait_for_tick

# Noise in a raw prediction after the first stage; the second stage removes most of it.
_PREDICTION_NOISE = 0.5


@dataclass(frozen=True)
class Localized:
    """Output perturbation with half of epsilon, then the exponential mechanism around its result with the other half.

    Parameters
    ----------
    prediction_noise : standard deviation that the noise of the first stage may cause in the raw prediction of a row of
        the largest norm; it sets the regularization if the problem has none. None for the default.
    most_tries, clock : as for `ExponentialSampling`.
    optimizer : as for `ObjectivePerturbation`; privacy never depends on it.

    Privacy
    -------
    Pure epsilon, every relation, for every smooth convex loss of one linear prediction with bounded labels: adaptive
    composition of epsilon / 2 and epsilon / 2. What is minimized includes a ridge, which is public and costs nothing.

    References
    ----------
    Bassily, Smith and Thakurta (2014), Algorithms 3 and 4.
    """

    name: ClassVar[str] = "localized"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    prediction_noise: float | None = None
    most_tries: float = 2e4
    clock: bool = True
    optimizer: Optimizer = "auto"

    def plan(self, problem: Problem, guarantee: Guarantee) -> LocalizedPlan:
        """Calibrate both stages with half of epsilon each; refuse what would take too long."""
        refuse_problem(self.name, problem)
        half = Guarantee(guarantee.epsilon / 2, 0.0, guarantee.neighboring)
        wanted = _PREDICTION_NOISE if self.prediction_noise is None else self.prediction_noise
        first = OutputPerturbation(prediction_noise=wanted, optimizer=self.optimizer)
        plan = LocalizedPlan(problem, guarantee, first.plan(problem, half), self.clock)
        if plan.expected_tries > self.most_tries:
            raise ParameterError(
                "most_tries",
                f"is {self.most_tries:.3g}, but exact sampling around the noisy minimizer, within {plan.radius:.3g}, "
                f"would take about {plan.expected_tries:.2g} tries on a table of {problem.n_samples} x "
                f"{problem.n_features}",
                "choose a larger l2",
                Setting("solver", "objective", purpose="(pure as well)"),
            )
        return plan


@dataclass(frozen=True)
class LocalizedPlan(base.Plan):
    """A calibrated pair of stages."""

    start: OutputPerturbationPlan
    clock: bool = True

    def __post_init__(self) -> None:
        _ = self.gibbs(np.zeros(self.problem.n_features))

    @property
    def l2(self) -> float:
        """The regularization of both stages (sum scale)."""
        return self.start.total_l2

    @property
    def outer(self) -> float:
        """Radius of a public ball around the origin that contains every minimizer, or of the problem's own ball."""
        problem = self.problem
        everywhere = minimizer_norm(
            problem.loss, problem.n_samples, problem.bounds.feature_norm, self.l2, 0.0
        )
        own = problem.geometry.size if isinstance(problem.geometry, L2Ball) else math.inf
        return min(everywhere * SLACK, own)

    @cached_property
    def radius(self) -> float:
        """The noise of the first stage is shorter than this with probability 1 - 1 / n, for all models together."""
        noise = self.start.output
        assert isinstance(noise, GammaNormMechanism)
        size, models = self.problem.n_features, self.problem.n_models
        miss = 1.0 / self.problem.n_samples
        if models == 1:
            length = float(gammainccinv(size, miss))
        else:
            # One model's share of the squared norm has a beta distribution, independent of the norm.
            share = float(betaincinv(size / 2, (models - 1) * size / 2, 1 - miss / (2 * models)))
            length = float(gammainccinv(models * size, miss / 2)) * math.sqrt(share)
        rounding = noise.noise.grid * math.sqrt(size)
        return noise.noise.effective_scale * length + rounding + self.start.gradient_tolerance / self.l2

    @property
    def epsilon(self) -> float:
        """The epsilon of one model's second stage."""
        return self.record_guarantee.epsilon / 2 / self.problem.n_models * (1 - 2.0**-45)

    @property
    def energy_range(self) -> float:
        """How much more one record can move the sum of losses at one point of the small ball than at another."""
        problem, norm = self.problem, self.problem.bounds.feature_norm
        slope = gradient_sensitivity(problem.loss, norm, self.outer, self.record_guarantee.neighboring).value
        bound = label_bound(problem) or 0.0
        rounding = value_rounding(
            problem.loss, problem.n_samples, problem.n_features, norm * self.outer, bound
        )
        everywhere = self.record_guarantee.neighboring.contributions * problem.loss.value_range(
            norm * self.outer, bound
        )
        exact = min(slope * 2 * self.radius, everywhere)
        return (exact + 4 * rounding + 2.0**-48 * self.l2 * self.outer**2) * SLACK

    @property
    def rate(self) -> float:
        """The factor of the sum of losses in the exponent."""
        return self.epsilon / self.energy_range * (1 - 2.0**-40)

    @property
    def shape(self) -> Shape:
        """Public facts about the energy of the second stage."""
        return shape_of(self.problem, min(self.radius, self.outer), self.rate, self.l2)

    def gibbs(self, middle: Array) -> GibbsMechanism:
        """The second stage around a released point."""
        size = self.problem.n_features
        balls = (Ball((0.0,) * size, self.outer), Ball(tuple(middle.tolist()), self.radius))
        return GibbsMechanism(self.epsilon, balls, self.shape.grid)

    @cached_property
    def expected_tries(self) -> float:
        """Forecast for all models together."""
        return self.problem.n_models * localized_tries(self.shape, self.outer, self.radius)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        drawn = base.PlannedRelease(
            self.gibbs(np.zeros(self.problem.n_features)), "coefficients of one model"
        )
        return *self.start.releases, *[drawn] * self.problem.n_models

    @property
    def how(self) -> str:
        """A description of how the coefficients are drawn."""
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        return f"gamma-norm noise on the minimizer, then the exponential mechanism around it, sampled exactly{models}"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return "localization (Theorem 7) and exact sampling (Theorem 2); docs/proofs/exponential-sampling.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "epsilon of the first stage": self.start.guarantee.epsilon,
            "epsilon of the second stage": self.epsilon * self.problem.n_models,
            "radius of localization": self.radius,
            "radius of the whole set": self.outer,
            "temperature (sum scale)": 1 / self.rate,
            "total l2 (sum scale)": self.l2,
            "foretold tries": self.expected_tries,
            "sampler": f"exact, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release noisy minimizers, then draw every model near its own."""
        began = time.monotonic()
        whole = L2Ball(self.outer * (1 - 1e-12), self.problem.n_features)
        middles = self.start.run(records, entropy).theta
        theta = np.empty_like(middles)
        for model, part in enumerate(with_bounded_labels(records, self.problem)):
            gibbs = self.gibbs(whole.project(middles[model]))
            energy = Energy(part.in_memory(), self.problem.loss, self.rate, self.l2)
            build = partial(envelope_of, energy, gibbs, self.shape.tilt_floor)
            theta[model] = gibbs.release(energy, build, entropy)
            if progress is not None:
                progress(model + 1, self.expected_tries)
        if self.clock:
            wait_for_tick(began)
        return base.Release(theta, entropy.secure)

    @property
    def remarks(self) -> Mapping[str, str]:
        """Additional lines of the printed plan."""
        return {"pure": "delta = 0, even if a larger delta was requested"}


@lru_cache(maxsize=256)
def localized_tries(shape: Shape, outer: float, radius: float) -> float:
    """Return the expected tries in the small ball, for the hardest synthetic table of this shape."""
    energies = (expected_tries.invented_energy(shape, table) for table in expected_tries.tables())
    return math.exp(min(700.0, max(_log_tries(energy, shape, outer, radius) for energy in energies)))


def _log_tries(energy: Energy, shape: Shape, outer: float, radius: float) -> float:
    """Forecast around a synthetic minimizer that was moved by noise of 3/4 of the ball's radius."""
    size = shape.n_features
    objective = Objective(energy.records, shape.loss, max(energy.l2, 1e-12))
    easy = 1e-3 * energy.records.n_samples * shape.feature_norm * shape.loss.lipschitz
    exact = minimize(objective, max(easy, objective.smallest_tolerance())).theta
    away = np.where(np.arange(size) % 2, 1.0, -1.0) * (0.75 * radius / math.sqrt(size))
    middle = L2Ball(outer * (1 - 1e-12), size).project(exact + away)
    balls = [Ball((0.0,) * size, outer), Ball(tuple(middle.tolist()), radius)]
    return expected_tries.log_tries(energy, balls, shape.tilt_floor)


base.register(Localized.name, Localized)
