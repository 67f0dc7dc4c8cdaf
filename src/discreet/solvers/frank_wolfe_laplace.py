"""Frank-Wolfe with the Laplace noise of Thakkar's dissertation, to measure what the exponential mechanism gains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from discreet.geometries import Polytope
from discreet.mechanisms.selection import LaplaceNoisyMax, Selection
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.solvers import base
from discreet.solvers.certificates import Certificate, geometry_of
from discreet.solvers.frank_wolfe import CONFIDENCE, FrankWolfe, VertexPlan


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
            raise ValueError(f"{type(geometry).__name__} has no list of vertices; use solver='frank-wolfe'")
        if guarantee.delta == 0:
            raise ValueError("the printed noise needs delta > 0; use solver='frank-wolfe'")
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
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return (
            f"Frank-Wolfe with {self.n_iterations} vertices of {self.polytope.n_vertices} chosen under Laplace noise, "
            "as printed in the dissertation"
        )

    @property
    def theorem(self) -> str:
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
