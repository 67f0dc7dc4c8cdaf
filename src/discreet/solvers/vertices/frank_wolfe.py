"""Private Frank-Wolfe: every step moves towards one noisily chosen point of the set.

    theta_{t+1} = (1 - a_t) theta_t + a_t s_t,   a_t = w_t / (64 + w_0 + ... + w_t),   w_t = 64 + t,   t < T.

So theta is the weighted mean of the center, where it starts, and of all choices; with T = 1 it is the only choice.
Weights are nearly even for a few choices and increase over hundreds. The usual steps 2 / (t + 2), with weights
1, 2, 3, ..., jump to a vertex first, have to come back from it, and end with a step twice as long, so the result of a
few steps varies widely (docs/decisions/0011-frank-wolfe-steps.md). Select them with ``weights="rising"``.

Over a polytope s_t is a vertex drawn by the exponential mechanism; over any other set s_t minimizes <., gradient +
Gaussian noise>. All s_t together are the release; theta is post-processing. Public numbers certify the excess risk
and determine T. Gradients and scores are on the sum scale, certificates on the mean scale. Proofs:
docs/proofs/frank-wolfe.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, choice_signal
from discreet.sets import Geometry, Polytope
from discreet.solvers import base
from discreet.solvers.certificates import curvature, geometry_of
from discreet.solvers.vertices import paced_walk
from discreet.solvers.vertices.frank_wolfe_plan import (
    CONFIDENCE,
    NAME,
    WEIGHTS,
    FrankWolfePlan,
    GradientPlan,
    center_error,
    choice_weights,
    gradient_sensitivity_over,
    optimization_error,
)
from discreet.solvers.vertices.frank_wolfe_vertices import VertexPlan, score_range
from discreet.solvers.vertices.paced_walk import PacedWalkPlan

__all__ = [
    "CONFIDENCE",
    "FrankWolfe",
    "GradientPlan",
    "VertexPlan",
    "gradient_sensitivity_over",
    "score_range",
]


_MOST = 2_000  # maximum number of iterations that the rule may choose; each is a pass over the data
#: The fewest choices that the rule makes, if more than one: means of fewer points did worse on generated data, even
#: if the certificate is smaller.
_FEWEST = 4
#: Signal of a single choice (see `choice_signal`) above which the walk over margins needs no evidence for its length.
CLEAR = 15.0
_MORE = 2  # times as many choices before a slope is fitted, ...
_ENOUGH = 400  # ... but no more than these: their mean hardly improves, and each is a pass over the data


@dataclass(frozen=True)
class FrankWolfe:
    """Frank-Wolfe over the geometry of the problem; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy choices; None minimizes the certificate with a typical curvature: at least 4, or one
        if the certificate is no better than for the center; over vertices, no more than the signal of a single choice
        (`discreet.problem.choice_signal`), and twice as many, up to 400, with a ``slope_share``.
    expected_curvature : expected curvature of the data as a fraction of the worst case; it only affects the number of
        choices, and 1 nearly minimizes the certificate itself. Worst cases are rare: 0.07 makes a sixth of the choices
        and did better on most generated data (benchmarks/lasso.py).
    choice : "vertices" (exponential mechanism over the vertices of a polytope), "gradient" (Gaussian noise on the
        gradient, any set), or "auto": the one with the smaller certificate, and vertices over an L1 ball of bounded
        entries.
    weights : "even" (nearly), or "rising" for the usual steps 2 / (t + 2), which favor the last choices and forget the
        center.
    evidence_share : part of the budget (squared Gaussian-DP parameter, or epsilon if delta = 0) for the length of the
        walk over an L1 ball of bounded entries; with 0 the full walk is taken. None is 0.1, or 0 if ``choice`` is
        given, and for margin losses where a single choice is clear of the noise.
    slope_share : part of the budget for the slope along the walk and the intercept, of margin losses over an L1 ball of
        bounded entries with delta > 0; it takes the place of evidence. The walk then covers the inner half of the ball,
        and is ``capped``.
    capped : whether derivatives of a logistic loss are capped during a walk over an L1 ball of bounded entries while
        noise counts. CSR rows then take whole steps.

    Over an L1 ball of bounded entries the intercept is not part of the ball; it has its own noisy corrections.

    Privacy
    -------
    (epsilon, delta) under every relation; delta = 0 is possible over vertices. All choices may be published. Needs
    losses with a Lipschitz derivative and a bounded set. Over an L1 ball with bounded entries CSR rows take
    incremental steps, whose cost does not grow with the number of columns; their event is the same.

    References
    ----------
    Talwar, Thakurta and Zhang (2015), Algorithm 2; curvature as in Jaggi (2013); bounded range: Durfee and
    Rogers (2019), Cesar and Rogers (2021).
    """

    name: ClassVar[str] = NAME
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None
    choice: str = "auto"
    expected_curvature: float = 0.07
    weights: str = "even"
    evidence_share: float | None = None
    slope_share: float = 0.0
    capped: bool = False

    def plan(self, problem: Problem, guarantee: Guarantee) -> FrankWolfePlan | PacedWalkPlan:
        """Choose the number of steps by the certificate, then the least noise that meets the guarantee."""
        geometry_of(problem, self.name)
        paced = paced_walk.applies(problem) and self.choice != "gradient"
        whole, fits = problem, self._fits(problem, guarantee, paced)
        if paced:
            problem = paced_walk.columns_alone(problem, paced_walk.INNER if fits else 1.0)
        if paced and (fits or self.capped) and problem.loss.family == "logistic":
            problem = replace(problem, loss=problem.loss.capped(_cap(_signal(problem, guarantee))))
        geometry = geometry_of(problem, self.name)
        choice = _checks.choice("choice", self.choice, ("auto", "vertices", "gradient"))
        _checks.choice("weights", self.weights, WEIGHTS)
        wanted = _checks.count_or_none("n_iterations", self.n_iterations)
        if not 0 < _checks.real("expected_curvature", self.expected_curvature, above=0) <= 1:
            raise ParameterError("expected_curvature", f"must be at most 1, got {self.expected_curvature!r}")
        plans: list[FrankWolfePlan] = []
        if choice != "gradient" and isinstance(geometry, Polytope):
            plans.append(self._vertex_plan(problem, guarantee, geometry, wanted, fits))
        elif choice == "vertices":
            raise ValueError(
                f"solver {self.name!r} with choice='vertices' needs a list of vertices, which "
                f"{type(geometry).__name__} does not have; use choice='gradient'"
            )
        if choice != "vertices" and guarantee.delta > 0 and not paced:
            plans.append(self._gradient_plan(problem, guarantee, geometry, wanted))
        if not plans:
            raise ValueError(
                f"solver {self.name!r} adds Gaussian noise to gradients over {type(geometry).__name__}, which cannot "
                "give delta = 0; choose a delta greater than 0, for instance 1 / n**2, or a polytope (L1Ball, Simplex, "
                "VertexPolytope)"
            )
        best = min(plans, key=lambda plan: plan.certificate.expected)
        share = self._evidence_share(choice, problem, guarantee)
        if paced and isinstance(best, VertexPlan) and (whole.bounds.intercept or share):
            return paced_walk.paced_plan(best, whole, guarantee, share, self.slope_share)
        return best

    def _fits(self, problem: Problem, guarantee: Guarantee, paced: bool) -> bool:
        """Whether a slope is fitted after the walk."""
        if not _share("slope_share", self.slope_share):
            return False
        if self.evidence_share:
            raise ParameterError("slope_share", "takes the place of evidence_share: choose one of them")
        if not (paced and paced_walk.fits(problem, guarantee)):
            raise ParameterError(
                "slope_share",
                "needs a margin loss with an intercept over an L1 ball of bounded entries, and delta > 0",
                Setting("slope_share", 0.0),
            )
        return True

    def _evidence_share(self, choice: str, problem: Problem, guarantee: Guarantee) -> float:
        if self.slope_share:
            return 0.0
        if self.evidence_share is None:
            margins = problem.loss.family != "general"
            clear = margins and _signal(problem, guarantee) >= CLEAR
            return paced_walk.EVIDENCE_SHARE if choice == "auto" and not clear else 0.0
        return _share("evidence_share", self.evidence_share)

    def _vertex_plan(
        self, problem: Problem, guarantee: Guarantee, geometry: Polytope, wanted: int | None, fits: bool
    ) -> VertexPlan:
        steps = np.arange(1, _MOST + 1)
        if guarantee.delta > 0:
            rho = 1 / calibrate(lambda x: events.ZeroConcentrated(1 / x), guarantee)
            epsilons = np.sqrt(8 * rho / (steps * problem.n_models))
        else:
            epsilons = guarantee.epsilon / (steps * problem.n_models)
        ranges = [score_range(problem, geometry, guarantee, first) for first in (True, False)]
        per_step = [r / epsilons * math.log(geometry.n_vertices) for r in ranges]
        chosen = wanted or self._best(problem, geometry, per_step[0], per_step[1])
        if wanted is None:
            chosen = min(chosen, max(1, int(_signal(problem, guarantee))))
            chosen = min(_MORE * chosen, _ENOUGH) if fits else chosen
        releases = chosen * problem.n_models
        epsilon = 1 / calibrate(lambda x: events.Repeated(events.BoundedRange(1 / x), releases), guarantee)
        return VertexPlan(problem, guarantee, chosen, self.weights, epsilon)

    def _gradient_plan(
        self, problem: Problem, guarantee: Guarantee, geometry: Geometry, wanted: int | None
    ) -> GradientPlan:
        steps = np.arange(1, _MOST + 1)
        sensitivity = gradient_sensitivity_over(problem, geometry, guarantee)
        mu = gaussian_mu(guarantee.epsilon, guarantee.delta)
        stddevs = sensitivity * np.sqrt(steps * problem.n_models) / mu
        error = stddevs * geometry.gaussian_width()
        chosen = wanted or self._best(problem, geometry, error, error)
        releases = chosen * problem.n_models

        def event(multiplier: float) -> events.Event:
            one = events.Discretized(events.Gaussian(multiplier), geometry.n_features)
            return events.Repeated(one, releases)

        return GradientPlan(problem, guarantee, chosen, self.weights, calibrate(event, guarantee))

    def _best(self, problem: Problem, geometry: Geometry, first: Array, later: Array) -> int:
        """Return the T with the smallest certificate, from the error of a choice (first, later) at each T.

        H_T is taken as 2 / (T + 2) times the expected curvature. If that gives fewer than 4 choices, use 4 if the whole
        certificate is smaller than for one choice and the expected one is below the excess risk of the center;
        otherwise use one.
        """
        parts = choice_weights(_MOST, self.weights)
        totals = np.cumsum(parts)[1:]
        errors = (parts[1] * first + (totals - parts[0] - parts[1]) * later) / totals / problem.n_samples
        errors[0] = first[0] / problem.n_samples
        worst, center = curvature(problem, geometry), center_error(problem, geometry)
        whole = optimization_error(worst, center, _MOST, self.weights) + errors
        expected = self.expected_curvature * 2 * worst / np.arange(3, _MOST + 3) + errors
        best = int(np.argmin(expected)) + 1
        if best >= _FEWEST:
            return best
        return _FEWEST if whole[_FEWEST - 1] < whole[0] and expected[_FEWEST - 1] < center else 1


def _cap(signal: float) -> float:
    """Return the cap on a record's derivative during a walk: at least that at an even guess."""
    return float(np.clip(0.6 * np.cbrt(signal / 100), 0.5, 1.0))


def _share(name: str, value: float) -> float:
    """Return a part of the budget after checks."""
    share = _checks.real(name, value)
    if not 0 <= share <= 0.9:
        raise ParameterError(name, f"must lie between 0 and 0.9, got {share!r}")
    return share


def _signal(problem: Problem, guarantee: Guarantee) -> float:
    """The signal of a single choice among the vertices; none where the set has no list of them."""
    geometry = problem.geometry
    return choice_signal(problem, guarantee, geometry.n_vertices) if isinstance(geometry, Polytope) else 0.0


base.register(FrankWolfe.name, FrankWolfe)
