"""Permutation SGD: passes over the data in one fixed order, noise once at the end.

Each gradient step on a smooth convex loss is non-expansive (contractive with regularization), so two runs that differ
in one record drift apart only when its batch is used. The drift is summed step by step, for every possible position
of the record, instead of relying on a closed form. Proofs: docs/proofs/gradient-methods.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.repetition import permutation
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import SLACK, Guarantee, Sensitivity
from discreet.problem import Problem, class_signal
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF, gradient_rounding
from discreet.solvers import base
from discreet.solvers.gradients.noisy_gd import consecutive
from discreet.solvers.minimizers import constrained

Schedule = Literal["constant", "decreasing", "square-root", "strongly-convex"]
SCHEDULES: tuple[Schedule, ...] = ("constant", "decreasing", "square-root", "strongly-convex")

_BATCH = 50
# Acceptable noise in a raw prediction; measured on public data (benchmarks/solvers.py).
_PREDICTION_NOISE = 0.5


def learning_rates(
    schedule: Schedule, n_passes: int, steps_per_pass: int, rate: float, l2: float, smoothness: float
) -> Array:
    """Return the rate of every STEP. ``smoothness`` is that of one record's loss, without regularization.

    constant: rate; decreasing: rate / (1 + t / m); square-root: rate / sqrt(1 + t / m), with m steps per pass;
    strongly-convex: min(1 / (smoothness + l2), 1 / (l2 t)), t = 1, 2, ...

    >>> learning_rates("decreasing", 2, 2, 1.0, 0.0, 0.25).round(3)
    array([1.   , 0.667, 0.5  , 0.4  ])
    """
    step = np.arange(n_passes * steps_per_pass, dtype=np.float64)
    if schedule == "constant":
        return np.full(len(step), float(rate))
    if schedule == "decreasing":
        return rate / (1.0 + step / steps_per_pass)
    if schedule == "square-root":
        return np.asarray(rate / np.sqrt(1.0 + step / steps_per_pass))
    if schedule == "strongly-convex":
        if not l2 > 0:
            raise ValueError("schedule 'strongly-convex' needs regularization: give l2 > 0")
        return np.minimum(1.0 / (smoothness + l2), 1.0 / (l2 * (step + 1.0)))
    raise ValueError(f"unknown schedule {schedule!r}; choose one of {SCHEDULES}")


def drift(rates: Array, steps_per_pass: int, jump: float, l2: float, smoothness: float) -> float:
    """Bound the distance between two runs that differ in one record, over all of its possible positions.

    ``jump`` is the distance, per unit of rate, that the record can cause in a step that uses it; between such steps
    distances shrink by max(|1 - rate l2|, |1 - rate (smoothness + l2)|).

    >>> round(drift(np.full(6, 0.5), 3, jump=2.0, l2=0.0, smoothness=0.25), 9)
    2.0
    """
    largest = 2.0 / (smoothness + l2)
    if not np.all((rates > 0) & (rates <= largest)):
        raise ValueError(
            f"the learning rate {float(rates.max()):g} is not between 0 and 2 / (smoothness + l2) = {largest:g}: "
            "larger steps let two runs diverge, so the sensitivity is unbounded; choose a smaller rate"
        )
    factors = np.maximum(np.abs(1.0 - rates * l2), np.abs(1.0 - rates * (smoothness + l2)))
    factors = np.minimum(1.0, factors * (1 + 4 * UNIT_ROUNDOFF))
    with np.errstate(divide="ignore"):
        log_later = np.concatenate([np.cumsum(np.log(factors)[::-1])[::-1][1:], [0.0]])
    kept = jump * rates * np.exp(log_later)
    by_place = kept.reshape(-1, steps_per_pass).sum(axis=0)
    return float(by_place.max()) * SLACK


@dataclass(frozen=True)
class PermutationSGD:
    """Permutation-based SGD with output noise; every default follows from public facts.

    Parameters
    ----------
    schedule : "constant", "decreasing", "square-root" or "strongly-convex"; None: strongly-convex if the problem has an
        l2, otherwise constant.
    n_passes, learning_rate : None for the public rule.
    batch_size : records per step.

    Privacy
    -------
    (epsilon, delta) with delta > 0 for smooth convex losses under replace-one and zero-out; refused under
    add-remove-one, where the number of batches would be private. Only the last iterate is released.

    References
    ----------
    Wu et al. (2017); Thakkar (2019), Algorithms 2 and 3, with their rate per pass, which is not private, replaced by a
    rate per step.
    """

    name: ClassVar[str] = "psgd"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    schedule: Schedule | None = None
    n_passes: int | None = None
    learning_rate: float | None = None
    batch_size: int = _BATCH

    def plan(self, problem: Problem, guarantee: Guarantee) -> PermutationSGDPlan:
        """Choose passes and rate by the public rule, then the least noise for the drift they allow."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        if not guarantee.neighboring.size_is_public:
            raise ParameterError(
                "solver",
                "'psgd' takes a public number of steps, which under add-remove-one would depend on the private number "
                "of rows",
                Setting("neighboring", "replace-one", "zero-out"),
                Setting("solver", "noisy-gd"),
            )
        if not math.isfinite(problem.loss.smoothness):
            raise ParameterError(
                "solver", f"'psgd' needs a smooth loss, and {problem.loss} has a corner", "use a rounded one"
            )
        constrained.refuse_field(self.name, problem)
        l2 = problem.l2 or 0.0
        batch_size = min(_checks.count("batch_size", self.batch_size), problem.n_samples)
        steps_per_pass = problem.n_samples // batch_size
        schedule = self.schedule or ("strongly-convex" if l2 > 0 else "constant")
        smoothness = problem.loss.smoothness * problem.bounds.feature_norm**2
        n_passes, rate = _checks.count_or_none("n_passes", self.n_passes), self.learning_rate
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        signal = class_signal(problem, guarantee, problem.loss, budget)
        time = _PREDICTION_NOISE * signal * max(1, problem.loss.n_outputs) / problem.bounds.feature_norm**2
        largest = 1.0 / (smoothness + l2)
        if n_passes is None:
            n_passes = (
                10 if schedule == "strongly-convex" else min(50, math.ceil(time / (steps_per_pass * largest)))
            )
        if rate is None:
            rate = min(largest, time / (n_passes * steps_per_pass))
        size = problem.n_coefficients
        noise_multiplier = calibrate(lambda m: events.Discretized(events.Gaussian(m), size), guarantee)
        return PermutationSGDPlan(problem, guarantee, schedule, n_passes, rate, batch_size, noise_multiplier)


@dataclass(frozen=True)
class DissertationPSGD:
    """Permutation SGD with the noise printed in Thakkar's dissertation (2019, Algorithm 2), for comparison.

    sqrt(2 log(2 / delta)) / epsilon times the sensitivity is sound up to an epsilon of about 8; above that, the noise
    is raised to what the accountant requires. The sensitivity is ours, for the given relation: at most the printed one.
    The printed algorithm omits the condition on the rate, which is enforced here.
    """

    name: ClassVar[str] = "psgd-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"

    def plan(self, problem: Problem, guarantee: Guarantee) -> PermutationSGDPlan:
        """Plan permutation SGD with the printed noise, or more if the accountant requires it."""
        tight = PermutationSGD().plan(problem, guarantee)
        printed = math.sqrt(2 * math.log(2 / guarantee.delta)) / guarantee.epsilon
        return replace(tight, noise_multiplier=max(printed, tight.noise_multiplier))


@dataclass(frozen=True)
class PermutationSGDPlan(base.Plan):
    """A calibrated run of permutation SGD."""

    schedule: Schedule
    n_passes: int
    learning_rate: float
    batch_size: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.output  # raise now, before any charge, if anything can fail

    @property
    def steps_per_pass(self) -> int:
        """Number of full batches in one pass."""
        return self.problem.n_samples // self.batch_size

    @property
    def l2(self) -> float:
        """Regularization on the mean scale."""
        return self.problem.l2 or 0.0

    @cached_property
    def rates(self) -> Array:
        """The rate of every step."""
        problem = self.problem
        smoothness = problem.loss.smoothness * problem.bounds.feature_norm**2
        return learning_rates(
            self.schedule, self.n_passes, self.steps_per_pass, self.learning_rate, self.l2, smoothness
        )

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Bound on the distance between computed runs on neighbors, all models together."""
        problem, loss = self.problem, self.problem.loss
        radius = problem.bounds.feature_norm
        record = loss.lipschitz * radius
        jump = self.record_guarantee.neighboring.contributions * record / self.batch_size
        exact = drift(self.rates, self.steps_per_pass, jump, self.l2, loss.smoothness * radius**2)
        # In either run, every step may be off by the rounding of its gradient and of its update.
        reach = float(self.rates.sum()) * record
        gradient = (
            gradient_rounding(loss, self.batch_size, problem.n_features, radius, reach) / self.batch_size
        )
        update = 8 * UNIT_ROUNDOFF * (reach + self.rates * (record + self.l2 * reach))
        rounding = float(np.sum(self.rates * gradient + update))
        return Sensitivity((exact + 2 * rounding) * math.sqrt(problem.n_models) * SLACK)

    @cached_property
    def output(self) -> GaussianMechanism:
        """The noise on the last iterates."""
        return GaussianMechanism(self.sensitivity, self.noise_multiplier, self.problem.n_coefficients)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.output, "coefficients after the last pass"),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return f"Gaussian noise on the last iterate of {self.n_passes} passes of SGD in one fixed order"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return "drift of non-expansive steps, summed over batch positions (Theorem 6); docs/proofs/gradient-methods.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "output noise stddev": self.output.stddev,
            "sensitivity of the last iterate": self.sensitivity.value,
            "passes": float(self.n_passes),
            "steps per pass": float(self.steps_per_pass),
            "first learning rate": float(self.rates[0]),
            "schedule": self.schedule,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Pass over the data, then add noise once."""
        problem = self.problem
        order = permutation(records[0].n_samples, entropy)
        last = []
        for part in records:
            batches = consecutive(part.in_memory(), order, self.batch_size)
            theta = np.zeros(problem.shape)
            for step, rate in enumerate(self.rates):
                batch = batches[step % self.steps_per_pass]
                gradient = batch.value_and_gradient(problem.loss, theta)[1] / self.batch_size
                theta = theta - rate * (gradient + self.l2 * theta)
                if progress is not None and (step + 1) % self.steps_per_pass == 0:
                    progress(step + 1, float(np.linalg.norm(gradient)))
            last.append(theta)
        exact = np.stack(last)
        theta = self.output.release(exact.ravel(), entropy).reshape(exact.shape)
        return base.Release(theta, entropy.secure)


base.register(PermutationSGD.name, PermutationSGD)
base.register(DissertationPSGD.name, DissertationPSGD)
