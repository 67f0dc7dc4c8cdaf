"""Noise calibrations as printed in papers, for comparison.

Talwar, Thakurta and Zhang (2014) add noise of standard deviation sqrt(32 T) L log(x / delta) / epsilon to each of T
summed gradients, where L bounds the gradient of one record: with x = T in mirror descent (Algorithm 1) and x = n in
Frank-Wolfe over any set (Algorithm 5, where L was printed without its square). This is sound, but 13 to 18 times the
noise that the exact composition of Gaussian releases needs. The printed Frank-Wolfe step 1 / (T + 2) does not
converge; the usual 2 / (t + 2) is used instead.

`DissertationFrankWolfe` uses the Laplace noise of Thakkar's dissertation, to measure the gain of the exponential
mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet.mechanisms.selection import LaplaceNoisyMax, Selection
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.sets import Geometry, Polytope
from discreet.solvers import base
from discreet.solvers.certificates import Certificate, geometry_of
from discreet.solvers.gradients.mirror_descent import MirrorDescent, MirrorDescentPlan
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent, NoisyGradientPlan
from discreet.solvers.vertices.frank_wolfe import CONFIDENCE, FrankWolfe, VertexPlan
from discreet.solvers.vertices.frank_wolfe_plan import GradientPlan, gradient_sensitivity_over


@dataclass(frozen=True)
class DissertationDescent:
    """Full-batch descent with the noise printed in Thakkar's dissertation (2019, Algorithm 4), for comparison.

    Its variance 16 L^2 T log(1 / delta) / epsilon^2 (sum scale) is sound for full batches under replace-one, but not
    for the small batches it was printed for; the accountant checks it in any case. Here it is a multiplier
    2 sqrt(T log(1 / delta)) / epsilon of the sensitivity, which is 2 L under replace-one and L otherwise.
    No cap, no momentum, last iterate.
    """

    name: ClassVar[str] = "noisy-gd-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int = 100

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """Plan noisy descent without its refinements, with the printed noise."""
        steps = _checks.count("n_iterations", self.n_iterations)
        none = problem.loss.lipschitz if "likelihood" in problem.loss.proved_for else None
        simple = NoisyGradientDescent(
            steps, momentum=0.0, cap=none, averaging=1 / steps, level_rows=False, schedule="constant"
        )
        tight = simple.plan(problem, guarantee)
        printed = 2 * math.sqrt(steps * math.log(1 / guarantee.delta)) / guarantee.epsilon
        return replace(tight, noise_multiplier=max(printed, tight.noise_multiplier))


def printed_stddev(
    problem: Problem, geometry: Geometry, guarantee: Guarantee, steps: int, inside: float
) -> float:
    """Return the printed noise on a sum of gradients, the same under every relation; ``inside`` is x above."""
    longest = gradient_sensitivity_over(
        problem, geometry, replace(guarantee, neighboring=Neighboring.ZERO_OUT)
    )
    return math.sqrt(32 * steps) * longest * math.log(inside / guarantee.delta) / guarantee.epsilon


@dataclass(frozen=True)
class TalwarMirrorDescent:
    """Mirror descent with its printed noise; the number of steps and the step size follow `MirrorDescent`."""

    name: ClassVar[str] = "mirror-descent-talwar"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> MirrorDescentPlan:
        """Plan mirror descent with the printed noise."""
        tight = MirrorDescent(n_iterations=self.n_iterations).plan(problem, guarantee)
        steps = tight.n_iterations * problem.n_models
        printed = printed_stddev(problem, tight.geometry, guarantee, steps, steps)
        multiplier = printed / tight.release.sensitivity.value
        return replace(tight, noise_multiplier=max(multiplier, tight.noise_multiplier))


@dataclass(frozen=True)
class TalwarFrankWolfe:
    """Frank-Wolfe on noisy gradients with the printed noise, the usual steps, and the tight rule for their number."""

    name: ClassVar[str] = "frank-wolfe-talwar"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> GradientPlan:
        """Plan gradient Frank-Wolfe with the printed noise."""
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


@dataclass(frozen=True)
class DissertationFrankWolfe:
    """Vertex selection with Laplace noise as printed in Thakkar's dissertation (2019, Algorithm 5), for comparison.

    Each of T choices gets epsilon / sqrt(2 T log(1 / delta)). That is twice the noise that Talwar, Thakurta and Zhang
    (2015) print, which is too small by that factor under replace-one. Unlike the dissertation, scores are clipped on
    both sides and the step is 2 / (t + 2). The guarantee does not rely on the formula: the accountant prices the run,
    and the noise is increased if the formula falls short.

    Privacy
    -------
    (epsilon, delta) with delta > 0 under every relation, over polytopes.
    """

    name: ClassVar[str] = "frank-wolfe-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> LaplacePlan:
        """Plan Frank-Wolfe with the printed noise, or more if the accountant requires it."""
        geometry = geometry_of(problem, self.name)
        if not isinstance(geometry, Polytope):
            raise ParameterError(
                "constraint",
                f"solver {self.name!r} needs a list of vertices, which {type(geometry).__name__} does not have",
                Setting("solver", "frank-wolfe"),
            )
        if guarantee.delta == 0:
            raise ParameterError(
                "delta", f"solver {self.name!r} needs delta > 0", Setting("solver", "frank-wolfe")
            )
        steps = (
            FrankWolfe(self.n_iterations, "vertices", weights="rising").plan(problem, guarantee).n_iterations
        )
        releases = steps * problem.n_models
        printed = guarantee.epsilon / math.sqrt(2 * releases * math.log(1 / guarantee.delta))
        needed = 1 / calibrate(lambda x: events.Repeated(events.Pure(1 / x), releases), guarantee)
        return LaplacePlan(problem, guarantee, steps, "rising", min(printed, needed))


@dataclass(frozen=True)
class LaplacePlan(VertexPlan):
    """Frank-Wolfe with Laplace noise, without incremental steps."""

    incremental: ClassVar[None] = None

    def _mechanism(self, range_: float) -> Selection:
        return LaplaceNoisyMax(range_, self.epsilon, self.polytope.n_vertices)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return (
            f"Frank-Wolfe with {self.n_iterations} vertices of {self.polytope.n_vertices} chosen under Laplace noise, "
            "as printed in the dissertation"
        )

    proof = "noisy maximum (Lemma 5), score range (Lemma 4), composition of pure steps; docs/proofs/frank-wolfe.md"

    def _certified(self, scales: list[float]) -> Certificate:
        """Certificate from Lemma 5: a choice loses scale (log vertices + 1) on average."""
        log_size = math.log(self.polytope.n_vertices)
        tail = math.log(self.n_iterations / (1 - CONFIDENCE))
        step = self._mechanism(self._range(False)).grid
        return self._certificate(
            [scale * (log_size + 1) + step for scale in scales],
            [scale * (log_size + 2 * tail) + step for scale in scales],
        )


base.register(DissertationFrankWolfe.name, DissertationFrankWolfe)
