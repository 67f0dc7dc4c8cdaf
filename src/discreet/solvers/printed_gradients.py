"""The Gaussian noise that papers printed for gradient methods, for comparison.

Talwar, Thakurta and Zhang (2014) add noise of standard deviation sqrt(32 T) L log(x / delta) / epsilon to each of T
summed gradients, L being the longest gradient of one record: with x = T in mirror descent (Algorithm 1) and x = n in
Frank-Wolfe over any set (Algorithm 5, where L was printed without its square). That is sound, and 13 to 18 times the
noise that the exact composition of Gaussian releases needs. The printed step 1 / (T + 2) of Frank-Wolfe does not
converge; the usual 2 / (t + 2) takes its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet import _inputs
from discreet.geometries import Geometry
from discreet.losses import Logistic, Softmax
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.solvers import base
from discreet.solvers.frank_wolfe import FrankWolfe
from discreet.solvers.frank_wolfe_gradient import GradientPlan, gradient_sensitivity_over
from discreet.solvers.mirror_descent import MirrorDescent, MirrorDescentPlan
from discreet.solvers.noisy_gradient import NoisyGradientDescent, NoisyGradientPlan


@dataclass(frozen=True)
class DissertationDescent:
    """Full-batch descent with the noise printed in Thakkar's dissertation (2019, Algorithm 4), for comparison.

    Its variance 16 L^2 T log(1 / delta) / epsilon^2 (sum scale) is sound for full batches under replace-one, not
    for the small batches it was printed for; the accountant is asked all the same. Here it is the multiplier
    2 sqrt(T log(1 / delta)) / epsilon of the sensitivity, which is 2 L under replace-one and half of that otherwise.
    No cap, no momentum, last iterate.
    """

    name: ClassVar[str] = "noisy-gd-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int = 100

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """The plan of noisy descent without its refinements, with more noise."""
        steps = _inputs.count("n_iterations", self.n_iterations)
        none = math.sqrt(2) if isinstance(problem.loss, Logistic | Softmax) else None
        simple = NoisyGradientDescent(steps, momentum=0.0, cap=none, averaging=1 / steps, level_rows=False)
        tight = simple.plan(problem, guarantee)
        printed = 2 * math.sqrt(steps * math.log(1 / guarantee.delta)) / guarantee.epsilon
        return replace(tight, noise_multiplier=max(printed, tight.noise_multiplier))


def printed_stddev(
    problem: Problem, geometry: Geometry, guarantee: Guarantee, steps: int, inside: float
) -> float:
    """The printed noise on a sum of gradients, the same under every relation; ``inside`` is what delta divides."""
    longest = gradient_sensitivity_over(
        problem, geometry, replace(guarantee, neighboring=Neighboring.ZERO_OUT)
    )
    return math.sqrt(32 * steps) * longest * math.log(inside / guarantee.delta) / guarantee.epsilon


@dataclass(frozen=True)
class TalwarMirrorDescent:
    """Mirror descent with its printed noise; number of steps and step size as in `MirrorDescent`, for that noise."""

    name: ClassVar[str] = "mirror-descent-talwar"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> MirrorDescentPlan:
        """The plan of mirror descent with more noise."""
        tight = MirrorDescent(n_iterations=self.n_iterations).plan(problem, guarantee)
        steps = tight.n_iterations * problem.n_models
        printed = printed_stddev(problem, tight.geometry, guarantee, steps, steps)
        multiplier = printed / tight.release.sensitivity.value
        return replace(tight, noise_multiplier=max(multiplier, tight.noise_multiplier))


@dataclass(frozen=True)
class TalwarFrankWolfe:
    """Frank-Wolfe by noisy gradients with the printed noise, the usual steps, and the tight rule for their number."""

    name: ClassVar[str] = "frank-wolfe-talwar"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> GradientPlan:
        """The plan of Frank-Wolfe by gradients with more noise."""
        rule = FrankWolfe(self.n_iterations, choice="gradient", weights="rising")
        tight = rule.plan(problem, guarantee)
        assert isinstance(tight, GradientPlan)
        steps = tight.n_iterations * problem.n_models
        printed = printed_stddev(problem, tight.geometry, guarantee, steps, problem.n_samples)
        multiplier = printed / tight.release.sensitivity.value
        return replace(tight, noise_multiplier=max(multiplier, tight.noise_multiplier))


base.register(DissertationDescent.name, DissertationDescent)
base.register(TalwarMirrorDescent.name, TalwarMirrorDescent)
base.register(TalwarFrankWolfe.name, TalwarFrankWolfe)
