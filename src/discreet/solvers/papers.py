"""The Gaussian noise that papers printed for gradient methods, for comparison.

Talwar, Thakurta and Zhang (2014) add noise of standard deviation sqrt(32 T) L log(x / delta) / epsilon to each of T
summed gradients, L being the longest gradient of one record: with x = T in mirror descent (Algorithm 1) and x = n in
Frank-Wolfe over any set (Algorithm 5, where L was printed without its square). That is sound, and 13 to 18 times the
noise that the exact composition of Gaussian releases needs. The printed step 1 / (T + 2) of Frank-Wolfe does not
converge; the usual 2 / (t + 2) takes its place.

Frank-Wolfe with the Laplace noise of Thakkar's dissertation, to measure what the exponential mechanism gains.
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
        steps = _checks.count("n_iterations", self.n_iterations)
        none = problem.loss.lipschitz if "likelihood" in problem.loss.proved_for else None
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


@dataclass(frozen=True)
class DissertationFrankWolfe:
    """Vertices chosen by Laplace noise as printed in Thakkar's dissertation (2019, Algorithm 5), for comparison.

    Each of T choices has epsilon / sqrt(2 T log(1 / delta)). That is twice the noise that Talwar, Thakurta and Zhang
    (2015) print, which is too little by that factor under replace-one. Unlike in the dissertation, clipping is on both
    sides and the step is 2 / (t + 2). The guarantee is not taken from the formula: the run is priced like every other
    one, and the noise is raised should the formula fall short.

    Privacy
    -------
    (epsilon, delta) with delta > 0 under every relation, over polytopes.
    """

    name: ClassVar[str] = "frank-wolfe-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> LaplacePlan:
        """The steps of the other solver, the printed noise or more."""
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
    """The same run with Laplace noise, which has no incremental steps."""

    incremental: ClassVar[None] = None

    def _mechanism(self, range_: float) -> Selection:
        return LaplaceNoisyMax(range_, self.epsilon, self.polytope.n_vertices)

    @property
    def how(self) -> str:
        """How the noise is added, in words."""
        return (
            f"Frank-Wolfe with {self.n_iterations} vertices of {self.polytope.n_vertices} chosen under Laplace noise, "
            "as printed in the dissertation"
        )

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return "noisy maximum (Lemma 5), score range (Lemma 4), composition of pure steps; docs/proofs/frank-wolfe.md"

    def _certified(self, scales: list[float]) -> Certificate:
        """A choice loses scale (log vertices + 1) on average; Lemma 5."""
        log_size = math.log(self.polytope.n_vertices)
        tail = math.log(self.n_iterations / (1 - CONFIDENCE))
        step = self._mechanism(self._range(False)).grid
        return self._certificate(
            [scale * (log_size + 1) + step for scale in scales],
            [scale * (log_size + 2 * tail) + step for scale in scales],
        )


base.register(DissertationFrankWolfe.name, DissertationFrankWolfe)
