"""Private Frank-Wolfe: every step moves towards one noisily chosen point of the set.

    theta_{t+1} = (1 - a_t) theta_t + a_t s_t,   a_t = 2 / (t + 2),   t = 0, ..., T - 1.

Over a polytope s_t is a vertex, drawn by the exponential mechanism; over any other set s_t minimizes <., gradient +
Gaussian noise>. All s_t together are the release; theta only processes them. The excess risk is certified from public
numbers, which is also how T is chosen. Sum scale for gradients and scores, mean scale for certificates. Proofs:
docs/proofs/frank-wolfe.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.geometries import Geometry, Polytope
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.selection import ExponentialMechanism, Selection
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.kernels import gamma
from discreet.solvers import base
from discreet.solvers.certificates import (
    SLACK,
    Certificate,
    CertifiedRelease,
    curvature,
    geometry_of,
    record_bound,
    score_rounding,
    slope,
)
from discreet.solvers.sensitivity import computed_gradient_sensitivity

Array = NDArray[np.float64]

_MOST = 2_000  # iterations that the rule may choose: each is a pass over the data
CONFIDENCE = 0.95


@dataclass(frozen=True)
class FrankWolfe:
    """Frank-Wolfe over the geometry of the problem; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy choices; None for the one that minimizes the certificate with a typical curvature.
    expected_curvature : the share of the worst curvature that the data is expected to have, which only matters for the
        number of choices; 1 minimizes the certificate itself. Worst cases are rare: an eighth makes a quarter of the
        choices, and did better on most generated data (benchmarks/lasso.py).
    choice : "vertices" (exponential mechanism over the vertices of a polytope), "gradient" (Gaussian noise on the
        gradient, any set), or "auto": whichever has the smaller certificate.

    Privacy
    -------
    (epsilon, delta) under every relation; delta = 0 is possible over vertices. All choices may be published. Needs
    losses with a Lipschitz derivative and a bounded set.

    References
    ----------
    Talwar, Thakurta and Zhang (2015), Algorithm 2; step and curvature as in Jaggi (2013); bounded range: Durfee and
    Rogers (2019), Cesar and Rogers (2021).
    """

    name: ClassVar[str] = "frank-wolfe"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int | None = None
    choice: str = "auto"
    expected_curvature: float = 0.125

    def plan(self, problem: Problem, guarantee: Guarantee) -> FrankWolfePlan:
        """The number of steps from the certificate, then the least noise that meets the guarantee."""
        geometry = geometry_of(problem, self.name)
        choice = _inputs.choice("choice", self.choice, ("auto", "vertices", "gradient"))
        if self.n_iterations is not None:
            _inputs.count("n_iterations", self.n_iterations)
        if not 0 < _inputs.real("expected_curvature", self.expected_curvature, above=0) <= 1:
            raise ValueError(f"expected_curvature must be at most 1, got {self.expected_curvature!r}")
        plans: list[FrankWolfePlan] = []
        if choice != "gradient" and isinstance(geometry, Polytope):
            plans.append(self._vertex_plan(problem, guarantee, geometry))
        elif choice == "vertices":
            raise ValueError(f"{type(geometry).__name__} has no list of vertices; use choice='gradient'")
        if choice != "vertices" and guarantee.delta > 0:
            plans.append(self._gradient_plan(problem, guarantee, geometry))
        if not plans:
            raise ValueError(
                "Gaussian noise on the gradient cannot give delta = 0; choose delta > 0, for instance 1 / n**2, or a "
                "polytope (L1Ball, Simplex, VertexPolytope)"
            )
        return min(plans, key=lambda plan: plan.certificate.expected)

    def _vertex_plan(self, problem: Problem, guarantee: Guarantee, geometry: Polytope) -> VertexPlan:
        steps = np.arange(1, _MOST + 1)
        if guarantee.delta > 0:
            rho = 1 / calibrate(lambda x: events.ZeroConcentrated(1 / x), guarantee)
            epsilons = np.sqrt(8 * rho / (steps * problem.n_models))
        else:
            epsilons = guarantee.epsilon / (steps * problem.n_models)
        ranges = [score_range(problem, geometry, guarantee, first) for first in (True, False)]
        per_step = [r / epsilons * math.log(geometry.n_vertices) for r in ranges]
        chosen = self.n_iterations or self._best(problem, geometry, per_step[0], per_step[1])
        releases = chosen * problem.n_models
        epsilon = 1 / calibrate(lambda x: events.Repeated(events.BoundedRange(1 / x), releases), guarantee)
        return VertexPlan(problem, guarantee, chosen, epsilon)

    def _gradient_plan(self, problem: Problem, guarantee: Guarantee, geometry: Geometry) -> GradientPlan:
        steps = np.arange(1, _MOST + 1)
        sensitivity = gradient_sensitivity_over(problem, geometry, guarantee)
        mu = gaussian_mu(guarantee.epsilon, guarantee.delta)
        stddevs = sensitivity * np.sqrt(steps * problem.n_models) / mu
        error = stddevs * geometry.gaussian_width()
        chosen = self.n_iterations or self._best(problem, geometry, error, error)
        releases = chosen * problem.n_models

        def event(multiplier: float) -> events.Event:
            one = events.Discretized(events.Gaussian(multiplier), geometry.n_features)
            return events.Repeated(one, releases)

        return GradientPlan(problem, guarantee, chosen, calibrate(event, guarantee))

    def _best(self, problem: Problem, geometry: Geometry, first: Array, later: Array) -> int:
        """The T whose certificate is smallest, from the error of a choice (first, later) at each T."""
        steps = np.arange(1, _MOST + 1)
        share = 2 / (steps * (steps + 1.0))
        errors = (share * first + (1 - share) * later) / problem.n_samples
        optimization = self.expected_curvature * _optimization_error(problem, geometry, _MOST)
        return int(np.argmin(optimization + errors)) + 1


@dataclass(frozen=True)
class FrankWolfePlan:
    """What both kinds of run share: the steps, the certificate, the words."""

    problem: Problem
    guarantee: Guarantee
    n_iterations: int

    @cached_property
    def geometry(self) -> Geometry:
        """The set of the problem."""
        return geometry_of(self.problem, FrankWolfe.name)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        raise NotImplementedError

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        raise NotImplementedError

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        raise NotImplementedError

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        raise NotImplementedError

    @property
    def certificate(self) -> Certificate:
        """What is known about the excess risk before any data is seen; of each model where there are several."""
        raise NotImplementedError

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> CertifiedRelease:
        """Choose, move, repeat."""
        found = [self._run_one(part, entropy) for part in records]
        theta = np.stack([theta.reshape(self.problem.shape) for theta, _ in found])
        certificate = max((one for _, one in found), key=lambda one: one.expected)
        return CertifiedRelease(theta, entropy.secure, certificate)

    def _run_one(self, records: ArrayRecords, entropy: Entropy) -> tuple[Array, Certificate]:
        raise NotImplementedError

    def _gradient(self, records: ArrayRecords, theta: Array) -> Array:
        """The summed gradient with the ridge term."""
        problem = self.problem
        gradient = records.value_and_gradient(problem.loss, theta.reshape(problem.shape))[1].ravel()
        if problem.l2:
            gradient += problem.n_samples * problem.l2 * theta
        return gradient

    def _certificate(self, errors: Sequence[float], likely_errors: Sequence[float]) -> Certificate:
        """From bounds on what each choice loses (sum scale), on average and with probability 0.95 together."""
        optimization = _optimization_error(self.problem, self.geometry, self.n_iterations)[-1]
        weights = 2.0 * np.arange(1, self.n_iterations + 1) / (self.n_iterations * (self.n_iterations + 1.0))
        n = self.problem.n_samples
        return Certificate(
            float(optimization + weights @ np.array(errors) / n),
            float(optimization + weights @ np.array(likely_errors) / n),
            CONFIDENCE,
        )

    def __str__(self) -> str:
        return base.printed(self, {"excess risk at most": str(self.certificate)})


@dataclass(frozen=True)
class VertexPlan(FrankWolfePlan):
    """Frank-Wolfe over a polytope by the exponential mechanism, each choice with the same ``epsilon``."""

    epsilon: float

    def __post_init__(self) -> None:
        for first in (True, False):  # everything that can fail does so now, before a charge
            mechanism = self._mechanism(self._range(first))
            bound, norm = record_bound(self.problem)
            largest = self.geometry.radius(norm) * bound * self.problem.loss.lipschitz + (
                self.problem.l2 or 0.0
            ) * (self.geometry.radius(2.0) ** 2)
            if not 2 * self.problem.n_samples * largest <= mechanism.largest_score:
                raise ValueError(
                    "the set is too far from the origin for its size; move it so that it holds the origin"
                )

    @property
    def polytope(self) -> Polytope:
        """The set, which has vertices."""
        return cast(Polytope, self.geometry)

    def _range(self, first: bool) -> float:
        return score_range(self.problem, self.polytope, self.guarantee, first)

    def _mechanism(self, range_: float) -> Selection:
        return ExponentialMechanism(range_, self.epsilon, self.polytope.n_vertices)

    @property
    def event(self) -> events.Event:
        """T selections per model, all with the same event."""
        return events.Repeated(
            self._mechanism(self._range(False)).event, self.n_iterations * self.problem.n_models
        )

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return (
            f"Frank-Wolfe with {self.n_iterations} vertices of {self.polytope.n_vertices} chosen by the exponential "
            "mechanism"
        )

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "bounded-range composition (Lemmas 1 and 2), exact selection (Lemma 3), score range (Lemma 4); "
            "docs/proofs/frank-wolfe.md"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        mechanism = self._mechanism(self._range(False))
        return {
            "iterations": float(self.n_iterations),
            "epsilon of one selection": self.epsilon,
            "score range (sum scale)": mechanism.score_range,
            "noise scale (sum scale)": mechanism.scale,
            "score grid": mechanism.grid,
            "sampler": "exact selection, AES-256-CTR keyed by the operating system",
        }

    @cached_property
    def certificate(self) -> Certificate:
        """Before the fit, from the worst iterates."""
        scales = [self._mechanism(self._range(t == 0)).scale for t in (0, 1)]
        return self._certified([scales[0]] + [scales[1]] * (self.n_iterations - 1))

    def _certified(self, scales: list[float]) -> Certificate:
        """A choice loses scale x log(vertices) on average, x scales more with probability e^-x, a step by rounding."""
        log_size = math.log(self.polytope.n_vertices)
        tail = math.log(self.n_iterations / (1 - CONFIDENCE))
        step = self._mechanism(self._range(False)).grid
        return self._certificate(
            [scale * log_size + step for scale in scales],
            [scale * (log_size + tail) + step for scale in scales],
        )

    def _run_one(self, records: ArrayRecords, entropy: Entropy) -> tuple[Array, Certificate]:
        polytope, problem = self.polytope, self.problem
        _, norm = record_bound(problem)
        theta, scales = polytope.center(), []
        for t in range(self.n_iterations):
            # The iterate is public, so its norm may sharpen the range of the scores.
            range_ = _range_at(problem, polytope, self.guarantee, float(np.linalg.norm(theta, norm)))
            mechanism = self._mechanism(range_)
            scores = polytope.vertex_scores(self._gradient(records, theta))
            polytope.move_towards(theta, mechanism.select(-scores, entropy), 2 / (t + 2))
            scales.append(mechanism.scale)
        return theta, self._certified(scales)


@dataclass(frozen=True)
class GradientPlan(FrankWolfePlan):
    """Frank-Wolfe over any set by Gaussian noise on the gradient."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.release  # everything that can fail does so now, before a charge

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy gradient of one model."""
        sensitivity = gradient_sensitivity_over(self.problem, self.geometry, self.guarantee)
        return GaussianMechanism(Sensitivity(sensitivity), self.noise_multiplier, self.geometry.n_features)

    @property
    def event(self) -> events.Event:
        """T Gaussian releases per model."""
        return events.Repeated(self.release.event, self.n_iterations * self.problem.n_models)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"Frank-Wolfe with {self.n_iterations} gradients under Gaussian noise"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return "composition of Gaussian mechanisms (docs/proofs/composition.md); docs/proofs/frank-wolfe.md, section 5"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "iterations": float(self.n_iterations),
            "noise stddev (sum scale)": self.release.stddev,
            "noise grid": self.release.noise.grid,
            "sampler": "exact discrete Gaussian, AES-256-CTR keyed by the operating system",
        }

    @cached_property
    def certificate(self) -> Certificate:
        """A choice loses stddev x width on average; both terms of the loss are Lipschitz in the noise."""
        stddev = self.release.noise.effective_stddev
        tail = (
            2 * self.geometry.radius(2.0) * math.sqrt(2 * math.log(2 * self.n_iterations / (1 - CONFIDENCE)))
        )
        width = self.geometry.gaussian_width()
        return self._certificate(
            [stddev * width] * self.n_iterations, [stddev * (width + tail)] * self.n_iterations
        )

    def _run_one(self, records: ArrayRecords, entropy: Entropy) -> tuple[Array, Certificate]:
        theta = self.geometry.center()
        for t in range(self.n_iterations):
            noisy = self.release.release(self._gradient(records, theta), entropy)
            rate = 2 / (t + 2)
            theta = (1 - rate) * theta + rate * self.geometry.linear_minimizer(noisy)
        return theta, self.certificate


def score_range(problem: Problem, geometry: Polytope, guarantee: Guarantee, first: bool) -> float:
    """How unevenly the computed scores of neighbors can differ, at the center or at any point of the set."""
    _, norm = record_bound(problem)
    theta_norm = float(np.linalg.norm(geometry.center(), norm)) if first else geometry.radius(norm)
    return _range_at(problem, geometry, guarantee, theta_norm)


def _range_at(problem: Problem, geometry: Polytope, guarantee: Guarantee, theta_norm: float) -> float:
    """contributions x slope x record bound x diameter: Lemma 4; and four rounding errors."""
    bound, norm = record_bound(problem)
    rounded_up = theta_norm * (1 + gamma(geometry.n_features + 4))
    reach = bound * min(rounded_up, geometry.radius(norm)) * SLACK
    exact = guarantee.neighboring.contributions * slope(problem, reach) * bound * geometry.diameter(norm)
    return (exact + 4 * score_rounding(problem, geometry)) * SLACK


def gradient_sensitivity_over(problem: Problem, geometry: Geometry, guarantee: Guarantee) -> float:
    """L2 sensitivity of one computed gradient at any point of the set.

    The ridge term is the same for neighbors, but it rounds once more.
    """
    base_value = computed_gradient_sensitivity(
        problem.loss,
        problem.n_samples,
        problem.n_features,
        problem.bounds.feature_norm,
        geometry.radius(2.0),
        guarantee.neighboring,
    ).value
    if not problem.l2:
        return base_value
    n, radius = problem.n_samples, geometry.radius(2.0)
    size = n * (problem.loss.lipschitz * problem.bounds.feature_norm + problem.l2 * radius)
    return base_value + 8 * 2.0**-53 * size


def _optimization_error(problem: Problem, geometry: Geometry, most: int) -> Array:
    """h_T of the noiseless recursion h <- (1 - a) h + a^2 curvature / 2 for T = 1, ..., most."""
    constant = curvature(problem, geometry)
    errors, h = np.empty(most), 0.0
    for t in range(most):
        rate = 2 / (t + 2)
        h = (1 - rate) * h + rate * rate * constant / 2
        errors[t] = h
    return errors


base.register(FrankWolfe.name, FrankWolfe)
