"""Frank-Wolfe over the columns alone, with a separate intercept and a length chosen from noisy evidence.

The constant of an intercept is 1 in every record. Inside the ball it would win most choices and overshoot. Here it is
a separate number, corrected by noisy sums of derivatives before the first step, before steps 1, 2, 4, 8, ... and
after the last. After the walk, noisy sums along its direction determine how far to go: all the way, part of it, or
nowhere if noise chose the direction. Or the walk covers the inner half of the ball, and a noisy descent fits the slope
along it and the intercept. Proofs: docs/proofs/frank-wolfe.md, sections 8 to 10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import SLACK, Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import BoxBounds, chunked_sum, gamma, gradient_rounding, summation_rounding
from discreet.sets import L1Ball
from discreet.solvers import base
from discreet.solvers.certificates import (
    Certificate,
    CertifiedRelease,
    label_bound,
    slope,
    with_bounded_labels,
)
from discreet.solvers.vertices import score_fit
from discreet.solvers.vertices.frank_wolfe_vertices import FullSteps, VertexPlan, WalkGroup
from discreet.solvers.vertices.score_fit import ScoreFit, valid_labels
from discreet.solvers.vertices.sparse_frank_wolfe import IncrementalSteps

START_SHARE, CORRECTION_SHARE, EVIDENCE_SHARE = 0.03, 0.03, 0.1  # of the budget
INNER = 0.5  # part of the ball that the walk covers if a slope is fitted afterwards
_LARGEST_LOG_ODDS = 10.0
_LONGEST_STEP = 2.0  # of the intercept
_TYPICAL = 0.25  # typical squared correction of an intercept; noisier corrections are shrunk more
_LEAST_CURVATURE = 0.02
_ASIDE = 0.25  # weights of sums that need less precision than the slope along the walk
_DOUBT = 1.5  # standard deviations that the slope must exceed
_BESIDE = 2.0  # standard deviations added to the curvature
_USUAL = 0.25  # standard deviation of slopes over the largest possible one; slopes that noise exceeds are shrunk more


def applies(problem: Problem) -> bool:
    """Whether the problem is over an L1 ball of bounded entries, with a loss whose derivatives can be counted."""
    return (
        isinstance(problem.geometry, L1Ball)
        and isinstance(problem.bounds, BoxBounds)
        and "counted" in problem.loss.proved_for
        and problem.loss.n_outputs == 1
        and not problem.l2
    )


def fits(problem: Problem, guarantee: Guarantee) -> bool:
    """Whether a slope and an intercept can be fitted after a walk."""
    return problem.loss.family != "general" and problem.bounds.intercept and guarantee.delta > 0


def columns_alone(problem: Problem, part: float = 1.0) -> Problem:
    """Return the problem without its intercept, over a part of its ball."""
    assert isinstance(problem.geometry, L1Ball)
    n_columns = problem.n_features - int(problem.bounds.intercept)
    bounds = BoxBounds.of(n_columns, intercept=False)
    ball = L1Ball(part * problem.geometry.size, n_columns)
    return replace(problem, bounds=bounds, n_features=n_columns, geometry=ball)


def offset_limit(problem: Problem) -> float:
    """Return the bound on the intercept: the largest target, or a large log-odds."""
    if not problem.bounds.intercept:
        return 0.0
    largest = label_bound(problem)
    return _LARGEST_LOG_ODDS if largest is None or problem.loss.family != "general" else largest


def correction_times(n_iterations: int) -> tuple[int, ...]:
    """Return the steps before which the intercept is corrected.

    >>> correction_times(10), correction_times(1)
    ((1, 2, 4, 8), ())
    """
    return tuple(2**k for k in range(n_iterations.bit_length()) if 2**k < n_iterations)


def n_corrections(n_iterations: int) -> int:
    """Return the number of corrections of the intercept, including the one after the last step."""
    return len(correction_times(n_iterations)) + 1


def paced_plan(
    walk: VertexPlan, problem: Problem, guarantee: Guarantee, evidence_share: float, slope_share: float = 0.0
) -> PacedWalkPlan:
    """Plan the walk with a separate intercept and a length from evidence or from a fit, calibrated together.

    With few choices, epsilon divided among them exceeds what Gaussian accounting leaves each. Then delta = 0 is better,
    unless the length is paid for, for which Laplace noise is the larger one.
    """
    found = _calibrated(walk, problem, guarantee, evidence_share, slope_share)
    if evidence_share or slope_share or guarantee.delta == 0:
        return found
    pure = _calibrated(walk, problem, replace(guarantee, delta=0.0), 0.0, 0.0)
    return pure if pure.epsilon > found.epsilon else found


def _calibrated(
    walk: VertexPlan, problem: Problem, guarantee: Guarantee, evidence_share: float, slope_share: float
) -> PacedWalkPlan:
    steps, models, pure = walk.n_iterations, problem.n_models, guarantee.delta == 0
    side = [(evidence_share, 1, 3)] if evidence_share else []
    side += [(share, times, 2) for share, times in _slope_shares(slope_share)] if slope_share else []
    if problem.bounds.intercept:
        side += [(START_SHARE, 1, 1), (_correction_share(slope_share), n_corrections(steps), 1)]
    left = 1 - sum(share for share, _, _ in side)

    def epsilon(unit: float) -> float:
        return left / (steps * models * unit) if pure else 2 * math.sqrt(left / (steps * models)) / unit

    def event(unit: float) -> events.Event:
        made: list[events.Event] = [events.Repeated(events.BoundedRange(epsilon(unit)), steps * models)]
        for share, times, size in side:
            noise = _multiplier(unit, share, times * models, pure)
            one = events.Pure(1 / noise) if pure else events.Discretized(events.Gaussian(noise), size)
            made.append(events.Repeated(one, times * models))
        return events.Composed(tuple(made))

    unit = calibrate(event, guarantee)
    inner = replace(walk, epsilon=epsilon(unit), offset_limit=offset_limit(problem))
    return PacedWalkPlan(problem, guarantee, inner, unit, evidence_share, slope_share)


def _correction_share(slope_share: float) -> float:
    """Return the share of the corrections, larger for the long walks before a fit."""
    return 2 * CORRECTION_SHARE if slope_share else CORRECTION_SHARE


def _slope_shares(share: float) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return the shares of the moments and of the gradients, and how often each is released."""
    moments = score_fit.MOMENTS_SHARE * share
    return (moments, 1), (share - moments, score_fit.STEPS)


def _multiplier(unit: float, share: float, times: int, pure: bool) -> float:
    """Return the noise multiplier of each of several releases that share a part of the budget."""
    return unit * times / share if pure else unit * math.sqrt(times / share)


@dataclass(frozen=True)
class PacedWalkPlan(base.Plan):
    """A calibrated walk over the columns, with its intercept and its length.

    Attributes
    ----------
    walk : the walk over the columns alone.
    unit : noise multiplier of a single release with the whole budget.
    evidence_share : part of the budget for the length; with 0 the full walk is taken.
    slope_share : part of the budget for the slope along the walk and the intercept; with 0 they are not fitted.
    """

    walk: VertexPlan
    unit: float
    evidence_share: float
    slope_share: float = 0.0

    sums_only = True

    def __post_init__(self) -> None:
        _ = self.releases, self.certificate  # raise now, before any charge, if anything can fail

    # -- public numbers ------------------------------------------------------------------------------------

    @property
    def n_iterations(self) -> int:
        """The number of choices."""
        return self.walk.n_iterations

    @property
    def epsilon(self) -> float:
        """The epsilon of one choice."""
        return self.walk.epsilon

    @property
    def incremental(self) -> object:
        """The grids of steps on CSR rows; None if they do not apply."""
        return self.walk.incremental

    @property
    def has_intercept(self) -> bool:
        """Whether there is an intercept."""
        return self.problem.bounds.intercept

    @property
    def size(self) -> float:
        """Radius of the ball of the walk."""
        return self.walk.geometry.radius(1.0)

    @property
    def least_seen(self) -> float:
        """Mean absolute entry, in units of its bound, at which a column rises above the noise of a choice."""
        noise = self.walk.numbers["noise scale (sum scale)"]
        steep = slope(self.problem, 0.0)
        return (
            float(noise)
            * math.log(self.walk.polytope.n_vertices)
            / (self.problem.n_samples * steep * self.size)
        )

    @property
    def longest_score(self) -> float:
        """Scores along the direction of the walk are clipped to this before their squares are summed."""
        if self.problem.loss.family == "general":
            return 0.5 * self.size
        return self.size * min(1.0, max(8 / self.n_iterations, 0.1))

    def _noisy(self, sensitivity: float, each: float, share: float, times: int, size: int) -> Noisy:
        """Release ``size`` numbers with L2 sensitivity ``sensitivity`` or, if pure, L1 sensitivity ``each``."""
        pure = self.record_guarantee.delta == 0
        noise = _multiplier(self.unit, share, times * self.problem.n_models, pure)
        if pure:
            return LaplaceMechanism(Sensitivity(each, 1.0), noise, size)
        return GaussianMechanism(Sensitivity(sensitivity), noise, size)

    @property
    def start(self) -> Noisy:
        """The noisy sum of derivatives at predictions of 0."""
        return self._derivative_sum(0.0, START_SHARE, 1)

    @property
    def correction(self) -> Noisy:
        """The noisy sum of derivatives at any point of the walk."""
        reach = self.size + self.walk.offset_limit
        share = _correction_share(self.slope_share)
        return self._derivative_sum(reach, share, n_corrections(self.n_iterations))

    def _derivative_sum(self, reach: float, share: float, times: int) -> Noisy:
        problem = replace(self.problem, loss=self.walk.problem.loss)
        rounding = gradient_rounding(problem.loss, problem.n_samples, problem.n_features, 1.0, reach)
        contributions = self.record_guarantee.neighboring.contributions
        value = (contributions * slope(problem, reach * SLACK) + 2 * rounding) * SLACK
        return self._noisy(value, value, share, times, 1)

    @cached_property
    def evidence(self) -> Noisy:
        """The release of the weighted sums along the walk."""
        problem, c = self.problem, self.longest_score
        row = gamma(problem.n_features + 64) * (self.size + c)
        rounding = 2 * problem.n_samples * row + summation_rounding(problem.n_samples, 1.1 * c)
        linear = self.record_guarantee.neighboring.contributions * c  # scores times derivatives, and scores
        parts = linear, _ASIDE * linear, _ASIDE * c  # a square lies between 0 and c^2
        lengths = (math.hypot(*parts) + 2 * rounding) * SLACK, (sum(parts) + 4 * rounding) * SLACK
        return self._noisy(*lengths, self.evidence_share, 1, 3)

    @cached_property
    def fit(self) -> ScoreFit:
        """The slope and the intercept that are fitted after the walk."""
        models, contributions = self.problem.n_models, self.record_guarantee.neighboring.contributions
        noises = [
            _multiplier(self.unit, share, times * models, False)
            for share, times in _slope_shares(self.slope_share)
        ]
        return ScoreFit(self.problem, self.size, contributions, *noises)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        models, (choices,) = self.problem.n_models, self.walk.releases
        made = [choices]
        if self.has_intercept:
            times = n_corrections(self.n_iterations) * models
            made.append(base.PlannedRelease(self.start, "the intercept to begin with", models))
            made.append(base.PlannedRelease(self.correction, "corrections of the intercept", times))
        if self.evidence_share:
            made.append(base.PlannedRelease(self.evidence, "sums along the walk, for its length", models))
        if self.slope_share:
            made.append(base.PlannedRelease(self.fit.moments, "spread of the scores", models))
            times = score_fit.STEPS * models
            made.append(base.PlannedRelease(self.fit.gradients, "gradients along the scores", times))
        return tuple(made)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        law = "Laplace" if self.record_guarantee.delta == 0 else "Gaussian"
        extra = ["the intercept"] * self.has_intercept + ["the length of the walk"] * (
            self.evidence_share > 0
        )
        extra += ["the slope along the walk"] * (self.slope_share > 0)
        return f"{self.walk.how}; {law} noise on sums for {' and '.join(extra)}" if extra else self.walk.how

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return (
            f"{self.walk.proof}; intercept, length and slope: sections 8 to 10 of docs/proofs/frank-wolfe.md"
        )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        noise = {line.name: line.mechanism.noise_multiplier for line in self.releases[1:]}  # type: ignore[attr-defined]
        return {
            **self.walk.numbers,
            **{f"noise multiplier, {name}": value for name, value in noise.items()},
        }

    @property
    def certificate(self) -> Certificate:
        """Certificate of the full walk before the fit, relative to the best point for the same intercept."""
        found = self._over_the_ball(self.walk.certificate)
        rest = self._uncapped * (self.size + self.walk.offset_limit)
        return replace(found, expected=found.expected + rest, likely=found.likely + rest)

    @property
    def remarks(self) -> Mapping[str, str]:
        """Additional lines of the printed plan."""
        return self.walk.remarks

    # -- the run -------------------------------------------------------------------------------------------

    def run(
        self, records: list[Records], entropy: Entropy, progress: Progress | None = None
    ) -> CertifiedRelease:
        """Walk, correct the intercept on the way, and choose the length."""
        labeled, found = iter(with_bounded_labels(records, self.problem)), []
        for group in self.walk.side_by_side(records):
            found += self._run_group([next(labeled) for _ in group.walks], group, entropy)
        worst = max((certificate for _, certificate in found), key=lambda one: one.expected)
        return CertifiedRelease(np.stack([theta for theta, _ in found]), entropy.secure, worst)

    def _run_group(
        self, records: list[Records], group: WalkGroup, entropy: Entropy
    ) -> list[tuple[Array, Certificate]]:
        walks, totals = group.walks, np.cumsum(self.walk.parts)
        starts = [self._start(part, walk, entropy) for part, walk in zip(records, walks, strict=True)]
        offsets, moved = [start for start, _ in starts], [0.0] * len(records)
        times = correction_times(self.n_iterations) if self.has_intercept else ()
        for t in range(self.n_iterations):
            for k, walk in enumerate(walks if t in times else ()):
                exact = self._derivatives(records[k], walk, offsets[k])
                step = self._correction(exact, offsets[k], starts[k][1], entropy)
                moved[k] += abs(step) * float(totals[t] / totals[-1])
                offsets[k] += step
            group.choose(offsets, entropy)
        walked = zip(records, walks, starts, offsets, moved, strict=True)
        return [self._end(*model, entropy) for model in walked]

    def _end(
        self,
        records: Records,
        walk: FullSteps | IncrementalSteps,
        begin: tuple[float, float],
        offset: float,
        moved: float,
        entropy: Entropy,
    ) -> tuple[Array, Certificate]:
        """Return coefficients and certificate after the length, the last correction and the slope."""
        start, curvature = begin
        theta, length, last = walk.theta, 1.0, offset
        if self.evidence_share:
            length = self._length(records, theta, start, curvature, entropy)
            theta *= length
            offset = start + length * (offset - start)
        if self.has_intercept:
            exact = self._derivatives(records, walk if length == 1.0 else theta, offset)
            step = self._correction(exact, offset, curvature, entropy)
            offset += step * (length > 0)  # the constant model already has its intercept
        after = 0.0
        if self.slope_share:
            slope, offset = self.fit.run(records, theta, offset, curvature, entropy)
            after = self.problem.loss.lipschitz * abs(slope - 1) * float(np.abs(theta).sum())
            theta *= slope
        after += self._uncapped * (float(np.abs(theta).sum()) + abs(offset))
        found = self._certified(
            self._over_the_ball(self.walk.certified(walk)), length, moved, abs(offset - last)
        )
        found = replace(found, expected=found.expected + after, likely=found.likely + after)
        return np.append(theta, offset) if self.has_intercept else theta, found

    @property
    def _uncapped(self) -> float:
        """How much steeper the loss is than that of the walk, whose derivative may be capped."""
        return self.problem.loss.lipschitz - self.walk.problem.loss.lipschitz

    def _over_the_ball(self, walked: Certificate) -> Certificate:
        """Certificate of the walk over the whole ball, which may be larger than that of the walk."""
        rest = (1 / INNER - 1) * self.walk.center_error if self.slope_share else 0.0
        return replace(walked, expected=walked.expected + rest, likely=walked.likely + rest)

    def _certified(self, whole: Certificate, length: float, moved: float, ended: float) -> Certificate:
        """Certificate by convexity between center and end of the walk, plus the cost of the intercept's moves."""
        steep = 2 * self.problem.loss.lipschitz
        rest = (1 - length) * self.walk.center_error + steep * ended

        def of(bound: float) -> float:
            return length * (bound + steep * moved) + rest

        return replace(whole, expected=of(whole.expected), likely=of(whole.likely))

    def _start(
        self, records: Records, walk: FullSteps | IncrementalSteps, entropy: Entropy
    ) -> tuple[float, float]:
        """Return the intercept of the constant model, and the curvature of the loss there."""
        loss, n = self.problem.loss, self.problem.n_samples
        if not self.has_intercept:
            return 0.0, loss.smoothness
        release = self.start
        exact = self._derivatives(records, walk, 0.0)
        mean = -float(release.release(exact, entropy)[0]) / n
        mean = _drawn_to_zero(mean, _stddev(release) / n)
        limit = self.walk.offset_limit
        if loss.family != "logistic":
            return float(np.clip(mean / loss.smoothness, -limit, limit)), loss.smoothness
        share = float(np.clip(0.5 + mean, 1 / (n + 2), 1 - 1 / (n + 2)))
        odds = float(np.clip(math.log(share / (1 - share)), -limit, limit))
        return odds, max(share * (1 - share), _LEAST_CURVATURE)

    def _correction(self, exact: Array, offset: float, curvature: float, entropy: Entropy) -> float:
        """Return a noisy Newton step of the intercept."""
        limit = self.walk.offset_limit
        release = self.correction
        scale = self.problem.n_samples * curvature
        step = -float(release.release(exact, entropy)[0]) / scale
        step = _drawn_to_zero(step, _stddev(release) / scale)
        step = float(np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))
        return float(np.clip(offset + step, -limit, limit)) - offset

    def _derivatives(
        self, records: Records, at: FullSteps | IncrementalSteps | Array, offset: float
    ) -> Array:
        """Sum the derivatives at a point, or where a walk is: incremental steps know the margins there."""
        if isinstance(at, IncrementalSteps):
            return at.derivative_sum(offset)
        theta = at.theta if isinstance(at, FullSteps) else at
        return records.sum_rows(derivatives, self.walk.problem.loss, np.append(theta, offset))

    def _length(
        self, records: Records, theta: Array, start: float, curvature: float, entropy: Entropy
    ) -> float:
        """Return the fraction of the walk that the evidence supports."""
        n, c, release = self.problem.n_samples, self.longest_score, self.evidence
        steepest = slope(self.problem, abs(start) * SLACK)
        point = np.append(theta, 0.0) if self.has_intercept else theta
        exact = records.sum_rows(along, self.problem.loss, point, start, c)
        weights = np.array([1 / steepest, _ASIDE, _ASIDE / c])
        noisy = release.release(exact * weights, entropy) / weights
        doubts = _stddev(release) / weights
        squares = max(0.0, noisy[2] - noisy[1] ** 2 / n if self.has_intercept else noisy[2])
        usual = _USUAL * n * steepest * c
        down = (noisy[0] - _DOUBT * doubts[0]) * usual**2 / (usual**2 + doubts[0] ** 2)
        return float(np.clip(down / (curvature * (squares + _BESIDE * doubts[2])), 0.0, 1.0))


Noisy = GaussianMechanism | LaplaceMechanism


def _drawn_to_zero(value: float, stddev: float) -> float:
    """Shrink a noisy number by what noise alone explains (James and Stein), and further if noise is large."""
    noise = 4 * stddev**2
    kept = max(0.0, 1 - noise / max(value**2, noise)) if noise > 0 else 1.0
    return value * kept * _TYPICAL / (_TYPICAL + stddev**2)


def _stddev(release: Noisy) -> float:
    return release.stddev if isinstance(release, GaussianMechanism) else math.sqrt(2) * release.scale


def derivatives(records: ArrayRecords, loss: Loss, point: Array) -> Array:
    """Sum the derivative of the loss times the constant over the records."""
    raw = records.raw_predictions(point)
    return chunked_sum((records.scales * loss.derivative(valid_labels(records), raw))[:, None])


def along(records: ArrayRecords, loss: Loss, point: Array, offset: float, longest: float) -> Array:
    """Sum over the records: scores times the negative derivative at the center, scores, and squared scores."""
    scores = np.clip(records.raw_predictions(point), -longest, longest)
    fall = -loss.derivative(valid_labels(records), offset * np.minimum(records.scales, 1.0))
    return chunked_sum(np.column_stack([fall * scores, scores, np.square(scores)]))
