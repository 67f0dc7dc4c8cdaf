"""Frank-Wolfe over a polytope: every step moves towards one vertex, chosen by the exponential mechanism.

CSR rows take the steps of ``sparse_frank_wolfe`` if these apply, with the same event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from discreet._typing import Array, Progress
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.mechanisms.selection import ExponentialMechanism, Selection
from discreet.privacy.guarantee import SLACK, Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import gamma
from discreet.sets import Polytope
from discreet.solvers import base
from discreet.solvers.certificates import (
    Certificate,
    CertifiedRelease,
    record_bound,
    score_rounding,
    slope,
    with_bounded_labels,
)
from discreet.solvers.vertices.frank_wolfe_plan import CONFIDENCE, FrankWolfePlan, center_error, steps
from discreet.solvers.vertices.sparse_frank_wolfe import Grid, IncrementalSteps, WholeRows, grid_of


@dataclass(frozen=True)
class VertexPlan(FrankWolfePlan):
    """Frank-Wolfe over a polytope by the exponential mechanism, with the same ``epsilon`` for each choice."""

    epsilon: float
    offset_limit: float = 0.0  # bound on an intercept that is not part of the polytope

    def __post_init__(self) -> None:
        for first in (True, False):  # raise now, before any charge, if anything can fail
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
        """The constraint set, as a polytope."""
        return cast(Polytope, self.geometry)

    @cached_property
    def _ranges(self) -> tuple[float, float]:
        public = self.problem, self.polytope, self.record_guarantee
        return score_range(*public, True, self.offset_limit), score_range(*public, False, self.offset_limit)

    def _range(self, first: bool) -> float:
        return self._ranges[0 if first else 1]

    def _mechanism(self, range_: float) -> Selection:
        return ExponentialMechanism(range_, self.epsilon, self.polytope.n_vertices)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        times = self.n_iterations * self.problem.n_models
        return (base.PlannedRelease(self._mechanism(self._range(False)), "choices of a vertex", times),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return (
            f"Frank-Wolfe with {self.n_iterations} vertices of {self.polytope.n_vertices} chosen by the exponential "
            "mechanism"
        )

    proof = (
        "bounded-range composition (Lemmas 1 and 2), exact selection (Lemma 3), score range (Lemma 4); "
        "docs/proofs/frank-wolfe.md; on CSR rows docs/proofs/sparse-frank-wolfe.md"
    )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        mechanism = self._mechanism(self._range(False))
        return {
            "iterations": float(self.n_iterations),
            "epsilon of one selection": self.epsilon,
            "score range (sum scale)": mechanism.score_range,
            "noise scale (sum scale)": mechanism.scale,
            "score grid": mechanism.grid,
            "sampler": f"exact selection, {SOURCE}",
        }

    @cached_property
    def center_error(self) -> float:
        """Bound on the excess risk of the center, for any intercept."""
        return center_error(self.problem, self.geometry, self.offset_limit)

    @cached_property
    def certificate(self) -> Certificate:
        """Certificate before the fit, from the worst iterates, for any storage of the rows."""
        scales = [self._mechanism(self._range(t == 0)).scale for t in (0, 1)]
        full = self._certified([scales[0]] + [scales[1]] * (self.n_iterations - 1))
        if self.incremental is None:
            return full
        other = self._incremental_certificate(self.incremental)
        return Certificate(max(full.expected, other.expected), max(full.likely, other.likely), CONFIDENCE)

    def _certified(self, scales: list[float]) -> Certificate:
        """Certificate: a choice loses scale x log(vertices) on average, with an exponential tail, plus rounding."""
        return self._certified_choices(scales, [self._mechanism(self._range(False)).grid] * len(scales))

    def _certified_choices(self, scales: list[float], errors: list[float]) -> Certificate:
        """Certificate from the scale of every choice and a bound on the loss from errors of its scores."""
        log_size = math.log(self.polytope.n_vertices)
        tail = math.log(self.n_iterations / (1 - CONFIDENCE))
        return self._certificate(
            [scale * log_size + error for scale, error in zip(scales, errors, strict=True)],
            [scale * (log_size + tail) + error for scale, error in zip(scales, errors, strict=True)],
        )

    @cached_property
    def incremental(self) -> tuple[Grid, Grid] | None:
        """The public grids of steps on CSR rows, for the first choice and for later ones; None if they do not apply."""
        public = self.problem, self.record_guarantee, self.epsilon, self.parts
        first, later = self._first_grid(self.offset_limit), grid_of(*public, False, self.offset_limit)
        return None if first is None or later is None else (first, later)

    def _first_grid(self, offset: float) -> Grid | None:
        """Return the grid of the first choice for an intercept of at most this size."""
        return grid_of(self.problem, self.record_guarantee, self.epsilon, self.parts, True, offset)

    def _incremental_certificate(self, grids: tuple[Grid, Grid]) -> Certificate:
        """Add the effects of old derivatives and of rounded entries (docs/proofs/sparse-frank-wolfe.md, 3)."""
        n, size, later = self.problem.n_samples, self.geometry.radius(1.0), self.n_iterations - 1
        scales = [grids[0].selection.scale] + [grids[1].selection.scale] * later
        shares = [grids[0].derivative_error] + [grids[1].derivative_error] * later
        found = self._certified_choices(scales, [2 * n * size * share for share in shares])
        shift = 2 * self.problem.loss.lipschitz * size * 2.0 ** -grids[1].entry_bits
        return replace(found, expected=found.expected + shift, likely=found.likely + shift)

    def run(
        self, records: list[Records], entropy: Entropy, progress: Progress | None = None
    ) -> CertifiedRelease:
        """Run Frank-Wolfe for every model; on CSR rows, by incremental steps."""
        points, certificates = [], []
        for group in self.side_by_side(records):
            for _ in range(self.n_iterations):
                group.choose([0.0] * len(group.walks), entropy)
            for walk in group.walks:
                points.append(walk.theta.reshape(self.problem.shape))
                certificates.append(self.certified(walk))
        worst = max(certificates, key=lambda one: one.expected)
        return CertifiedRelease(np.stack(points), entropy.secure, worst)

    def side_by_side(self, records: list[Records]) -> Iterator[WalkGroup]:
        """Yield walks at their start, one for every model, in groups that read the rows together."""
        grids = self.incremental
        if grids is None or not records or not all(part.sparse and part.whole for part in records):
            yield from self._full_groups(with_bounded_labels(records, self.problem))
            return
        rows, before = None, None
        for part in (part.in_memory() for part in with_bounded_labels(records, self.problem)):
            if part.n_samples > self.problem.n_samples:
                raise ValueError(
                    f"the plan is for at most {self.problem.n_samples} records, got {part.n_samples}"
                )
            part.check_labels(self.problem.loss)
            if rows is None or before is None or part.matrix is not before.matrix:
                rows = WholeRows.of(part, grids[1].entry_bits)
            before = part
            walk = IncrementalSteps(self.problem, grids, self._first_grid, self.parts, rows, part.labels)
            yield WalkGroup([walk])

    def _full_groups(self, records: list[Records]) -> Iterator[WalkGroup]:
        walks = [FullSteps(self, part) for part in records]
        together = None
        if len(walks) > 1:
            together = records[0].gradients_together(records, self.problem.loss)
        if together is not None:
            yield WalkGroup(walks, together)
        else:
            yield from (WalkGroup([walk]) for walk in walks)

    def certified(self, walk: FullSteps | IncrementalSteps) -> Certificate:
        """Return the certificate of a finished walk."""
        if isinstance(walk, FullSteps):
            return self._certified(walk.scales)
        return self._incremental_certificate(walk.grids)


class FullSteps:
    """A walk over a polytope that computes the whole gradient at every step."""

    def __init__(self, plan: VertexPlan, records: Records) -> None:
        self.plan, self.records = plan, records
        self.theta = plan.polytope.center()
        self.scales: list[float] = []
        self._rates = steps(plan.parts)

    def choose(self, offset: float, entropy: Entropy) -> None:
        """Move towards the vertex chosen at the current point, with the intercept ``offset`` if there is one."""
        point = self.at(offset)
        self.move(self.records.value_and_gradient(self.plan.problem.loss, point)[1], offset, entropy)

    def at(self, offset: float) -> Array:
        """Return the current point, with the intercept if there is one."""
        if self.records.n_features > self.plan.problem.n_features:
            return np.append(self.theta, offset)
        return self.theta.reshape(self.plan.problem.shape)

    def move(self, gradient: Array, offset: float, entropy: Entropy) -> None:
        """Move towards the vertex chosen by the summed gradient at the current point."""
        plan, theta = self.plan, self.theta
        _, norm = record_bound(plan.problem)
        # The point is public, so its norm may tighten the range of the scores.
        length = float(np.linalg.norm(theta, norm))
        mechanism = plan._mechanism(
            range_at(plan.problem, plan.polytope, plan.record_guarantee, length, abs(offset))
        )
        scores = plan.polytope.vertex_scores(plan._with_ridge(gradient.ravel()[: theta.size], theta))
        plan.polytope.move_towards(
            theta, mechanism.select(-scores, entropy), float(self._rates[len(self.scales)])
        )
        self.scales.append(mechanism.scale)


@dataclass(frozen=True)
class WalkGroup:
    """Walks that move side by side: one, or several whose gradients come from one pass over their rows."""

    walks: Sequence[FullSteps | IncrementalSteps]
    gradients: Callable[[Array], Array] | None = None

    def choose(self, offsets: Sequence[float], entropy: Entropy) -> None:
        """Move every walk towards the vertex that is chosen at its current point and intercept."""
        if self.gradients is None:
            for walk, offset in zip(self.walks, offsets, strict=True):
                walk.choose(offset, entropy)
            return
        walks = cast(Sequence[FullSteps], self.walks)
        found = self.gradients(np.stack([w.at(offset) for w, offset in zip(walks, offsets, strict=True)]))
        for walk, gradient, offset in zip(walks, found, offsets, strict=True):
            walk.move(gradient, offset, entropy)


def score_range(
    problem: Problem, geometry: Polytope, guarantee: Guarantee, first: bool, offset: float = 0.0
) -> float:
    """Bound the range of the difference of neighbors' computed scores, at the center or at any point of the set."""
    _, norm = record_bound(problem)
    theta_norm = float(np.linalg.norm(geometry.center(), norm)) if first else geometry.radius(norm)
    return range_at(problem, geometry, guarantee, theta_norm, offset)


def range_at(
    problem: Problem, geometry: Polytope, guarantee: Guarantee, theta_norm: float, offset: float = 0.0
) -> float:
    """Return contributions x slope x record bound x diameter (Lemma 4), plus four rounding errors."""
    bound, norm = record_bound(problem)
    rounded_up = theta_norm * (1 + gamma(geometry.n_features + 4))
    reach = (bound * min(rounded_up, geometry.radius(norm)) + offset) * SLACK
    exact = guarantee.neighboring.contributions * slope(problem, reach) * bound * geometry.diameter(norm)
    return (exact + 4 * score_rounding(problem, geometry, offset)) * SLACK
