"""Known-bad twins of printed calibrations, votes, streams, choices and groups. Fixtures only, never shipped."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.mechanisms.tree import TreeMechanism, TreeRun
from discreet.online.ftrl import PrivateFTRL
from discreet.privacy.guarantee import Neighboring, Sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.class_sums.mechanism import ClassSumsMechanism
from discreet.solvers.gradients.noisy_gd import NoisyGradientPlan, NoisySGD
from discreet.solvers.gradients.psgd import PermutationSGD, PermutationSGDPlan
from discreet.solvers.papers import DissertationFrankWolfe, LaplacePlan

# -- calibrations as printed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrintedSGD(NoisySGD):
    """Thakkar (2019), Algorithm 4: multiplier 4 q sqrt(T log(1 / delta)) / epsilon, a rate taken literally."""

    name: ClassVar[str] = "printed-sgd"

    def plan(self, problem, guarantee):
        honest = super().plan(problem, guarantee)
        printed = 4 * honest.sampling_rate * math.sqrt(honest.n_iterations * math.log(1 / guarantee.delta))
        return dataclasses.replace(honest, noise_multiplier=printed / guarantee.epsilon)


@dataclass(frozen=True)
class Undercharged(NoisySGD):
    """Runs one plan and charges for another, whose fields ``charged`` names."""

    name: ClassVar[str] = "undercharged"
    charged: tuple[tuple[str, float], ...] = ()

    def plan(self, problem, guarantee):
        return OtherBill(**_fields(super().plan(problem, guarantee)), charged=self.charged)


@dataclass(frozen=True)
class OtherBill(NoisyGradientPlan):
    """The plan of `Undercharged`."""

    charged: tuple[tuple[str, float], ...] = ()

    @property
    def event(self):
        return NoisyGradientPlan(**_fields(self) | dict(self.charged)).event


def _fields(plan):
    return {field.name: getattr(plan, field.name) for field in dataclasses.fields(NoisyGradientPlan)}


class RatePerPass(PermutationSGDPlan):
    """Thakkar (2019), Algorithm 3: the rate falls once per pass, the sensitivity is that of a rate per step."""

    @cached_property
    def rates(self):
        smoothness = self.problem.loss.smoothness * self.problem.bounds.feature_norm**2
        passes = 1.0 + np.repeat(np.arange(self.n_passes), self.steps_per_pass)
        return np.minimum(1 / (smoothness + self.l2), 1 / (self.l2 * passes))

    @cached_property
    def sensitivity(self):
        record = self.problem.loss.lipschitz * self.problem.bounds.feature_norm
        return Sensitivity(2 * record / (self.l2 * self.problem.n_samples))


@dataclass(frozen=True)
class PrintedPermutationSGD(PermutationSGD):
    """The solver whose plans are `RatePerPass`."""

    name: ClassVar[str] = "printed-psgd"

    def plan(self, problem, guarantee):
        honest = dataclasses.replace(super().plan(problem, guarantee), schedule="strongly-convex")
        return RatePerPass(**{f.name: getattr(honest, f.name) for f in dataclasses.fields(honest)})


@dataclass(frozen=True)
class PrintedFrankWolfe(DissertationFrankWolfe):
    """Talwar, Thakurta and Zhang (2015), Algorithm 2: half of the Laplace noise that replacing a record needs."""

    name: ClassVar[str] = "printed-frank-wolfe"

    def plan(self, problem, guarantee):
        honest = super().plan(problem, guarantee)
        releases = honest.n_iterations * problem.n_models
        printed = 2 * guarantee.epsilon / math.sqrt(2 * releases * math.log(1 / guarantee.delta))
        return LaplacePlan(problem, guarantee, honest.n_iterations, honest.weights, printed)


# -- sums by class --------------------------------------------------------------------------------------------------


class OneClassMoves(ClassSumsMechanism):
    """Calibrated as if a record that is replaced changed the sum of one class by itself: R instead of sqrt(2) R."""

    @cached_property
    def gaussian(self):
        return ClassSumsMechanism(
            **(dataclasses.asdict(self) | {"neighboring": Neighboring.ZERO_OUT})
        ).gaussian


def unsplit(records, constant, bounds):
    """Rows with their signs, as wide as split ones: in a class, a row and its opposite are 2 R apart."""
    X = np.where((records.scales == 0)[:, None], 0.0, records.matrix)
    wide = np.hstack([X, np.zeros_like(X), np.full((len(X), 1), constant)])
    return ArrayRecords(wide, records.labels, bounds, records.scales == 0)


# -- votes and choices ----------------------------------------------------------------------------------------------


def unhalved_margin(counts, changed=1):
    """The lead itself as the distance to instability: one moved vote changes it by two."""
    counts = np.asarray(counts)
    highest = np.sort(counts, axis=1)[:, -2:]
    return counts.argmax(axis=1), np.maximum(0, highest[:, 1] - highest[:, 0] - 1)


class DoubledExponent(ExponentialMechanism):
    """Samples exp(2 score / scale) and charges for exp(score / scale)."""

    def _index(self, steps, entropy):
        return super()._index(2 * steps, entropy)


# -- streams ----------------------------------------------------------------------------------------------------------


class ReusingTree(TreeMechanism):
    """Tree aggregation whose nodes all get the first node's noise."""

    def start(self):
        run = super().start()
        return _SameNoise(self, run.step, run.exact, run.noisy)


class _SameNoise(TreeRun):
    def add(self, vector, entropy):
        with insecure_noise(99):
            super().add(vector, fresh_entropy())


class StaleFTRL(PrivateFTRL):
    """Follow the leader with one source that is restarted in every step: noise is never refreshed."""

    def _source(self):
        with insecure_noise(99):
            return fresh_entropy()


# -- groups -----------------------------------------------------------------------------------------------------------


def without_the_factor(solver, problem, guarantee, rows):
    """Calls the promise about one row a promise about a person with ``rows`` of them."""
    promise = dataclasses.replace(guarantee, unit="user")
    plan = solver.plan(problem, guarantee)
    return dataclasses.replace(plan, groups=base.GroupPromise(promise, rows, plan.event))


# -- randomness -------------------------------------------------------------------------------------------------------


class SharedAcrossProcesses(Entropy):
    """A source whose key is drawn once, before workers are forked, and never again."""

    def __init__(self):
        self._shared = os.urandom(48)
        super().__init__()

    def _key(self):
        return self._shared
