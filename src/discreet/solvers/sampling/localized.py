"""Localization: a noisy minimizer first, then the exponential mechanism in a small ball around it. Pure epsilon.

For a strongly convex objective the noisy minimizer is close to the true one, within a radius given by a quantile of
the noise. In a ball of that radius one record moves the sum of losses only a little, so the exponential mechanism
concentrates more than on the whole set. Proof: docs/proofs/exponential-sampling.md, section 7.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import ClassVar, Literal

import numpy as np
from scipy.special import betaincinv, gammainccinv

from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.gibbs import Ball, GibbsMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.guarantee import SHRINK, SLACK, Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.sets import Geometry, L2Ball
from discreet.solvers import base
from discreet.solvers.base import gradient_sensitivity
from discreet.solvers.certificates import (
    Certificate,
    label_bound,
    released,
    sampled_point,
    stated,
    with_bounded_labels,
)
from discreet.solvers.minimizers.minimizer import Objective, Optimizer, minimize, minimizer_norm
from discreet.solvers.perturbation.output import OutputPerturbation, OutputPerturbationPlan
from discreet.solvers.sampling import expected_tries
from discreet.solvers.sampling.domains import Domain, check_exact, domain_of
from discreet.solvers.sampling.envelopes import Shape, value_rounding
from discreet.solvers.sampling.expected_tries import most_passes, tilted_minimum
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
    Pure epsilon, every relation, for every smooth convex loss of one linear prediction with bounded labels, without a
    constraint or over an L2 ball, a box, an L1 ball or a simplex: adaptive composition of epsilon / 2 and epsilon / 2.
    What is minimized includes a ridge, which is public and costs nothing.

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
        if problem.geometry is not None:
            domain_of(self.name, problem.geometry)
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
        gibbs = self.gibbs(np.array(self.domain.ball.center))  # raise now, before any charge
        check_exact(Localized.name, self.domain, gibbs.grid)

    @property
    def l2(self) -> float:
        """The regularization of both stages (sum scale)."""
        return self.start.total_l2

    @property
    def outer(self) -> float:
        """Bound on the norm of every minimizer, and of every point of the set from which is drawn."""
        problem = self.problem
        everywhere = minimizer_norm(
            problem.loss, problem.n_samples, problem.bounds.feature_norm, self.l2, 0.0
        )
        if problem.geometry is None:
            return everywhere * SLACK
        own = problem.geometry.radius(2.0)
        return min(everywhere * SLACK, own) if isinstance(problem.geometry, L2Ball) else own

    @cached_property
    def domain(self) -> Domain:
        """The set from which is drawn: the problem's own, or a public ball that contains every minimizer."""
        geometry = self.problem.geometry
        if geometry is None or isinstance(geometry, L2Ball):
            return Domain(L2Ball(self.outer, self.problem.n_features))
        return domain_of(Localized.name, geometry)

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
        bound, reach = label_bound(problem) or 0.0, self.domain.reach(problem)
        roundings = self.domain.roundings(problem.n_features)
        rounding = value_rounding(problem.loss, problem.n_samples, roundings, reach, bound)
        everywhere = self.record_guarantee.neighboring.contributions * problem.loss.value_range(reach, bound)
        exact = min(slope * 2 * self.radius, everywhere)
        return (exact + 4 * rounding + 2.0**-48 * self.l2 * self.outer**2) * SLACK

    @property
    def rate(self) -> float:
        """The factor of the sum of losses in the exponent."""
        return self.epsilon / self.energy_range * SHRINK

    @property
    def shape(self) -> Shape:
        """Public facts about the energy of the second stage."""
        return shape_of(self.problem, min(self.radius, self.domain.ball.radius), self.rate, self.l2)

    def gibbs(self, middle: Array) -> GibbsMechanism:
        """The second stage around a released point, in coordinates of the draw."""
        balls = self.domain.ball, Ball(tuple(middle.tolist()), self.radius)
        return GibbsMechanism(self.epsilon, balls, self.shape.grid, self.domain.region)

    @cached_property
    def expected_tries(self) -> float:
        """Forecast for all models together."""
        return self.problem.n_models * localized_tries(self.shape, self.domain, self.radius)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        drawn = base.PlannedRelease(
            self.gibbs(np.array(self.domain.ball.center)), "coefficients of one model"
        )
        return *self.start.releases, *[drawn] * self.problem.n_models

    @property
    def how(self) -> str:
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        return f"gamma-norm noise on the minimizer, then the exponential mechanism around it, sampled exactly{models}"

    @property
    def proof(self) -> str:
        return "localization (Theorem 7) and exact sampling (Theorem 2); docs/proofs/exponential-sampling.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        return {
            "epsilon of the first stage": self.start.guarantee.epsilon,
            "epsilon of the second stage": self.epsilon * self.problem.n_models,
            "radius of localization": self.radius,
            "radius of the whole set": self.outer,
            "temperature (sum scale)": 1 / self.rate,
            "total l2 (sum scale)": self.l2,
            "expected tries": self.expected_tries,
            "sampler": f"exact, {SOURCE}",
        }

    @property
    def passes_bound(self) -> int:
        """Bound on the passes over the records per model before the first try; tries are exact and never capped."""
        return self.start.passes_bound + most_passes(self.domain.size, 1 + len(self.domain.limits))

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release noisy minimizers, then draw every model near its own."""
        began = time.monotonic()
        domain = self.domain
        middles = self.start.run(records, entropy).theta
        theta = np.empty_like(middles)
        for model, part in enumerate(with_bounded_labels(records, self.problem)):
            gibbs = self.gibbs(domain.coordinates(_inner(domain).project(middles[model])))
            energy = domain.energy(part.in_memory(), self.problem.loss, self.rate, self.l2)
            limits = *gibbs.balls, *domain.limits[1:]
            build = partial(envelope_of, energy, limits, gibbs.grid, self.shape.tilt_floor)
            theta[model] = domain.coefficients(gibbs.release(energy, build, entropy)[None])[0]
            if progress is not None:
                progress(model + 1, self.expected_tries)
        if self.clock:
            wait_for_tick(began)
        return released(theta, entropy.secure, self.certificate)

    @cached_property
    def certificate(self) -> Certificate | None:
        problem, domain = self.problem, self.domain
        if problem.geometry is None:
            return None
        # A piece of the set around a point of it contains a ball, scaled down from the one in the set.
        share = min(1.0, self.radius / (4 * domain.ball.radius))
        total = replace(problem, l2=self.l2 / problem.n_samples)
        drawn = sampled_point(
            total,
            self.rate,
            self.shape.grid,
            size=domain.size,
            norm=self.outer,
            outer=2 * min(self.radius, domain.ball.radius),
            inner=share * domain.inner_radius,
            missed=1.0 / problem.n_samples,
        )
        if drawn is None:
            return None
        own = 0.0 if problem.l2 is None else problem.l2 * problem.n_samples
        added = max(0.0, self.l2 - own) * self.outer**2 / (2 * problem.n_samples)
        slope = (
            problem.loss.lipschitz * problem.bounds.feature_norm + self.l2 / problem.n_samples * self.outer
        )
        farther = slope * problem.geometry.diameter(2.0) / problem.n_samples
        return Certificate(drawn.expected + added + farther, drawn.likely + added, drawn.confidence)

    @property
    def remarks(self) -> Mapping[str, str]:
        return {"pure": "delta = 0, even if a larger delta was requested", **stated(self.certificate)}


def _inner(domain: Domain) -> Geometry:
    """Return the set, with a margin for rounding where it is a ball, so that a projected point is a candidate."""
    if isinstance(domain.geometry, L2Ball):
        return L2Ball(domain.geometry.size * (1 - 1e-12), domain.geometry.n_features)
    return domain.geometry


@lru_cache(maxsize=256)
def localized_tries(shape: Shape, domain: Domain, radius: float) -> float:
    """Return the expected tries in the small ball, for the hardest synthetic table of this shape."""
    found = [_log_tries(shape, table, domain, radius) for table in expected_tries.tables()]
    return math.exp(min(700.0, max(found)))


def _log_tries(shape: Shape, table: expected_tries.Table, domain: Domain, radius: float) -> float:
    """Forecast around a synthetic minimizer that was moved by noise of 3/4 of the ball's radius."""
    energy = expected_tries.invented_energy(shape, table, domain)
    size = domain.size
    if domain.region is None:
        objective = Objective(energy.records, shape.loss, max(energy.l2, 1e-12))
        easy = 1e-3 * energy.records.n_samples * shape.feature_norm * shape.loss.lipschitz
        exact = minimize(objective, max(easy, objective.smallest_tolerance())).theta
    else:
        exact = tilted_minimum(energy, domain.limits, shape.tilt_floor)[0]
    away = np.where(np.arange(size) % 2, 1.0, -1.0) * (0.75 * radius / math.sqrt(size))
    near = _inner(domain).project(domain.coefficients((exact + away)[None])[0])
    balls = domain.ball, Ball(tuple(domain.coordinates(near).tolist()), radius)
    limits = *balls, *domain.limits[1:]
    return expected_tries.log_tries(energy, limits, shape.tilt_floor, domain.region)


base.register(Localized.name, Localized)
