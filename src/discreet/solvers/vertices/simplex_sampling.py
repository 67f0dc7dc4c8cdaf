"""Sample vertices from an entropy-regularized minimizer, over the simplex and other polytopes.

    w = argmin over probability vectors of F(w) + lambda sum_k w_k log w_k,   theta = average of m vertices drawn by w.

The logarithm of w is a gradient, and one record moves it by little. So a single draw is an exponential mechanism with
the gradient at the minimizer as scores, and m draws are the release. lambda and m minimize the proved bound on the
excess risk, from public numbers only. Gradients, scores and lambda are on the sum scale, certificates on the mean
scale. Proofs: docs/proofs/simplex-sampling.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, cast

import numpy as np

from discreet import _checks
from discreet._typing import Array, Progress
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy import events
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import SLACK, Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF, gamma
from discreet.sets import L1Ball, Polytope, Simplex, VertexPolytope
from discreet.solvers import base
from discreet.solvers.certificates import (
    Certificate,
    CertifiedRelease,
    geometry_of,
    record_bound,
    score_rounding,
    slope,
    with_bounded_labels,
)
from discreet.solvers.minimizers.entropic import (
    EntropicObjective,
    combination,
    minimize,
    most_passes,
    reachable,
)

_MOST = 10_000  # maximum number of draws that the rule may choose
_CONFIDENCE = 0.95
_INEXACT = 1e-3  # fraction of the score range that an inexact minimizer may add
_LARGEST = 1e18  # largest lambda to search, in units of a record's largest gradient
_STIFFEST = 1e5  # curvature of the loss over lambda; less entropy is slow and does not reduce the risk


@dataclass(frozen=True)
class SimplexSampling:
    """Average of vertices sampled from the entropy-regularized minimizer; every default follows from public facts.

    Parameters
    ----------
    n_draws : number of vertices to draw, m; None minimizes the certificate.
    entropy_weight : coefficient of the entropy relative to the mean loss, lambda / n; None for the smallest that the
        guarantee allows with ``n_draws`` draws. If given, makes as many draws as the guarantee allows.

    Privacy
    -------
    (epsilon, delta), delta = 0 included, under every relation. All draws may be published. Needs a loss with a
    Lipschitz derivative and a polytope: Simplex, L1Ball or VertexPolytope.

    References
    ----------
    Jain and Thakurta (2014), section 5, with the tight range of the log-likelihood ratio; bounded range: Durfee and
    Rogers (2019).
    """

    name: ClassVar[str] = "simplex-sampling"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_draws: int | None = None
    entropy_weight: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> SimplexPlan:
        """Choose the number of draws by the certificate, then the least entropy that meets the guarantee."""
        constants = Constants.of(problem, guarantee)
        draws = _checks.count_or_none("n_draws", self.n_draws)
        if self.entropy_weight is not None:
            weight = _checks.real("entropy_weight", self.entropy_weight, above=0)
            if draws is not None:
                raise ValueError(
                    "give n_draws or entropy_weight, not both: each follows from the other and the guarantee"
                )
            return self._with_entropy(problem, guarantee, constants, weight * problem.n_samples)
        if draws is None:
            draws = self._best(problem, guarantee, constants)
        epsilon = _one_draw(guarantee, draws * problem.n_models)
        return SimplexPlan(problem, guarantee, draws, epsilon, constants.entropy(epsilon))

    def _with_entropy(
        self, problem: Problem, guarantee: Guarantee, constants: Constants, entropy: float
    ) -> SimplexPlan:
        needed = constants.range(entropy) / entropy
        low, high = 0, _MOST + 1  # low draws are affordable, high are not
        while high - low > 1:
            middle = (low + high) // 2
            event = events.Repeated(events.BoundedRange(needed), middle * problem.n_models)
            low, high = (middle, high) if _within(event, guarantee) else (low, middle)
        if low == 0:
            least = constants.entropy(_one_draw(guarantee, problem.n_models)) / problem.n_samples
            raise ValueError(
                f"entropy_weight={self.entropy_weight!r} is too small: even one draw would cost more than the "
                f"guarantee allows; use at least {least:.4g}, or None"
            )
        return SimplexPlan(problem, guarantee, low, needed, entropy)

    def _best(self, problem: Problem, guarantee: Guarantee, constants: Constants) -> int:
        """Return the m with the smallest bound; bounded range composes at least as well as each of two simple rules."""
        candidates = np.unique(np.geomspace(1, _MOST, 400).astype(int))
        releases = candidates * problem.n_models
        epsilons = guarantee.epsilon / releases
        if guarantee.delta > 0:
            rho = 1 / calibrate(lambda x: events.ZeroConcentrated(1 / x), guarantee)
            epsilons = np.maximum(epsilons, np.sqrt(8 * rho / releases))
        bounds = [
            constants.expected(constants.entropy(float(epsilon)), int(m))
            for epsilon, m in zip(epsilons, candidates, strict=True)
        ]
        return int(candidates[int(np.argmin(bounds))])


def _one_draw(guarantee: Guarantee, releases: int) -> float:
    """Return the allowed range of the log-likelihood ratio of each of this many draws."""
    return 1 / calibrate(lambda x: events.Repeated(events.BoundedRange(1 / x), releases), guarantee)


def _within(event: events.Event, guarantee: Guarantee) -> bool:
    """Whether an event costs no more than the guarantee."""
    epsilon, delta, relation = guarantee.epsilon, guarantee.delta, guarantee.neighboring
    if delta == 0:
        return accountants.epsilon(event, 0.0, relation) <= epsilon
    return accountants.delta(event, epsilon, relation) <= delta


@dataclass(frozen=True)
class Constants:
    """The public numbers of a problem over a polytope, sum scale.

    slope, smoothness : bounds on |f'| and f'' of one record's loss.
    reach : bound on |<v, vertex>| for any record v.
    half_range : half the range of <v, vertex> over the vertices, for any record v.
    changed : bound on the range of the changed records' gradients: contributions x slope x 2 half_range.
    common : number of records that neighbors share.
    rounding : bound on the error of a computed gradient by vertex.
    """

    n_samples: int
    n_vertices: int
    slope: float
    smoothness: float
    reach: float
    half_range: float
    changed: float
    common: int
    rounding: float

    @classmethod
    def of(cls, problem: Problem, guarantee: Guarantee) -> Constants:
        """Compute the constants of a problem, or raise if the method does not apply."""
        geometry = geometry_of(problem, SimplexSampling.name)
        if not isinstance(geometry, Simplex | L1Ball | VertexPolytope) or geometry.n_vertices < 2:
            raise ValueError(
                f"solver {SimplexSampling.name!r} samples vertices and needs a polytope with at least two: Simplex, "
                f"L1Ball or VertexPolytope, got {geometry!r}"
            )
        if problem.loss.n_outputs != 1 or problem.l2:
            raise ValueError(
                f"solver {SimplexSampling.name!r} fits one output at a time and regularizes by entropy alone: use a "
                "loss with one output (one-vs-rest for several classes) and no l2"
            )
        bound, norm = record_bound(problem)
        n, loss = problem.n_samples, problem.loss
        reach = bound * geometry.radius(norm) * SLACK
        steepness = slope(problem, reach)
        half_range = bound * geometry.diameter(norm) / 2 * SLACK
        # Weights from computed exponentials, and their combination (docs/proofs/simplex-sampling.md, 4).
        weights = 2 * gamma(geometry.n_vertices + 1000) + geometry.n_vertices * 2.0**-1000
        moved = n * loss.smoothness * reach**2 * weights
        return cls(
            n_samples=n,
            n_vertices=geometry.n_vertices,
            slope=steepness,
            smoothness=loss.smoothness,
            reach=reach,
            half_range=half_range,
            changed=guarantee.neighboring.contributions * steepness * 2 * half_range,
            common=n - 1 if guarantee.neighboring.size_is_public else n,
            rounding=(score_rounding(problem, geometry) + moved) * SLACK,
        )

    def response(self, entropy: float, records: int) -> float:
        """Return phi(kappa), the response of the common records' gradients to a change (Theorem 1)."""
        kappa = records * self.smoothness * self.half_range**2 / entropy
        return 4 * kappa / (1 + kappa) if kappa <= 1 else 2 * math.sqrt(kappa)

    @property
    def residual_rounding(self) -> float:
        """Bound on the error of the oscillation of a computed residual, except for terms of its own size."""
        size = self.n_samples * self.slope * (self.reach + 2 * self.half_range)
        return 2 * self.rounding + 32 * UNIT_ROUNDOFF * size

    @property
    def total_smoothness(self) -> float:
        """Smoothness of the summed loss in the L1 norm of the weights."""
        return self.n_samples * self.smoothness * self.half_range**2

    def tolerance(self, entropy: float) -> float:
        """Return the residual at which a minimizer is accepted: a thousandth of the range, or what rounding needs."""
        phi = self.response(entropy, self.common)
        share = min(10 * _INEXACT, 2 * _INEXACT * (1 + phi / 4) / phi) if phi > 0 else 10 * _INEXACT
        span = 2 * self.n_samples * self.slope * self.half_range  # of a gradient over the vertices
        least = reachable(self.total_smoothness, entropy, self.residual_rounding, span)
        return max(share * self.changed, 8 * self.residual_rounding, least)

    def range(self, entropy: float) -> float:
        """Bound the range of the difference of neighbors' scores, with inexact minimizers and rounding (Theorem 1)."""
        phi = self.response(entropy, self.common)
        exact = self.changed + (self.changed + 2 * self.tolerance(entropy)) * phi / 4
        return (exact + 4 * self.rounding) * SLACK

    def entropy(self, epsilon: float) -> float:
        """Return the smallest lambda with range <= lambda epsilon, so that one draw costs at most ``epsilon``."""
        low, high = math.log(self.total_smoothness / _STIFFEST), math.log(_LARGEST * self.changed)
        if self.range(math.exp(low)) <= math.exp(low) * epsilon:
            return math.exp(low)
        if not self.range(math.exp(high)) <= math.exp(high) * epsilon:
            raise ValueError("no amount of entropy meets the guarantee for data of this shape; raise epsilon")
        while high - low > 1e-9:
            middle = (low + high) / 2
            if self.range(math.exp(middle)) <= math.exp(middle) * epsilon:
                high = middle
            else:
                low = middle
        return math.exp(high)

    def expected(self, entropy: float, draws: int) -> float:
        """Return the bound of Theorem 2 without rounding: bias of the entropy plus variance of the draws."""
        return entropy * math.log(self.n_vertices) / self.n_samples + self.smoothness * self.half_range**2 / (
            2 * draws
        )


@dataclass(frozen=True)
class SimplexPlan(base.Plan):
    """A calibrated run: ``n_draws`` draws, each of bounded range ``epsilon``, at entropy lambda = ``entropy``."""

    n_draws: int
    epsilon: float
    entropy: float

    def __post_init__(self) -> None:
        # Raise now, before any charge, if anything can fail.
        c = self.constants
        if not 2 * c.n_samples * c.slope * c.reach <= self.draw.largest_score:
            raise ValueError(
                "the set is too far from the origin for its size; move it so that it holds the origin"
            )

    @cached_property
    def constants(self) -> Constants:
        """The public numbers of the problem."""
        return Constants.of(self.problem, self.record_guarantee)

    @property
    def geometry(self) -> Polytope:
        """The constraint set, as a polytope."""
        return cast(Polytope, self.problem.geometry)

    @cached_property
    def draw(self) -> ExponentialMechanism:
        """One draw: scores are minus the gradient at the minimizer; the scale is slightly above lambda."""
        range_ = max(self.constants.range(self.entropy), self.entropy * self.epsilon / SLACK)
        return ExponentialMechanism(range_, self.epsilon, self.geometry.n_vertices)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.draw, "draws of a vertex", self.n_draws * self.problem.n_models),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return (
            f"average of {self.n_draws} vertices of {self.geometry.n_vertices}, sampled from the entropy-regularized "
            "minimizer"
        )

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "range of the minimizer's log-likelihood ratio (docs/proofs/simplex-sampling.md, Theorem 1); bounded-range "
            "composition and exact selection (docs/proofs/frank-wolfe.md, Lemmas 1 to 3)"
        )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "draws": float(self.n_draws),
            "epsilon of one draw": self.epsilon,
            "entropy weight (mean scale)": self.entropy / self.problem.n_samples,
            "score range (sum scale)": self.draw.score_range,
            "residual of the minimizer (sum scale)": self.constants.tolerance(self.entropy),
            "score grid": self.draw.grid,
            "sampler": f"exact selection, {SOURCE}",
        }

    @cached_property
    def certificate(self) -> Certificate:
        """Certificate from Theorem 2; the likely bound is by bounded differences."""
        c, m = self.constants, self.n_draws
        phi = c.response(self.entropy, c.n_samples)
        drift = abs(1 - self.entropy / self.draw.scale) * 2 * c.n_samples * c.slope * c.half_range
        misfit = c.tolerance(self.entropy) * phi / 4 + 2 * c.rounding + self.draw.grid + drift
        bias = self.entropy * math.log(c.n_vertices) / c.n_samples
        bias += c.slope * c.half_range * misfit / (2 * self.entropy)
        spread = c.smoothness * c.half_range**2 / (2 * m)
        tail = math.log(2 / (1 - _CONFIDENCE))
        likely = c.slope * c.half_range * math.sqrt(2 * tail / m) + spread * (1 + math.sqrt(2 * tail)) ** 2
        return Certificate(bias + spread, bias + likely, _CONFIDENCE)

    @property
    def passes_bound(self) -> int:
        """Bound on the passes over the records per model."""
        c = self.constants
        return most_passes(c.total_smoothness, self.entropy, c.residual_rounding, c.n_vertices)

    def run(
        self, records: list[Records], entropy: Entropy, progress: Progress | None = None
    ) -> CertifiedRelease:
        """Minimize, draw vertices and average them; the minimizer is discarded."""
        theta = np.stack(
            [self._run_one(part, entropy) for part in with_bounded_labels(records, self.problem)]
        )
        return CertifiedRelease(theta, entropy.secure, self.certificate)

    def _run_one(self, records: Records, entropy: Entropy) -> Array:
        c = self.constants
        objective = EntropicObjective(
            records, self.problem.loss, self.geometry, self.entropy, c.total_smoothness
        )
        point = minimize(objective, c.tolerance(self.entropy), c.residual_rounding)
        counts = np.zeros(self.geometry.n_vertices)
        for _ in range(self.n_draws):
            counts[self.draw.select(-point.gradient, entropy)] += 1
        return combination(self.geometry, counts / self.n_draws)

    @property
    def remarks(self) -> Mapping[str, str]:
        """Additional lines of the printed plan."""
        return {"excess risk at most": str(self.certificate)}


base.register(SimplexSampling.name, SimplexSampling)
