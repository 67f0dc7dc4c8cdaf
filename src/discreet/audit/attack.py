"""Attack a mechanism: run it many times on two neighboring data sets, and score the runs to distinguish the two.

The attacker knows both data sets, the plan and every public number, and sees one release per run. The resulting lower
bounds on epsilon hold for any score; a poor score only makes them small.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet._typing import Array
from discreet.audit import estimates
from discreet.audit.estimates import LowerBound
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.trace import PlannedRun, Weakener, fitting, trace
from discreet.audit.transcripts import Run, noise_seed, numbers, places, transcripts
from discreet.mechanisms.recording import recorded_by, releasing
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.accounting import accountants

if TYPE_CHECKING:
    from discreet.audit.subjects import Subject

ALARM = 1e-6  # probability that an alarm is false
PROJECTION = "best linear projection"
FEWEST = 20  # smallest number of runs
_SURE = 0.99  # above this confidence the joint region of two probabilities is smaller than the box


@dataclass(frozen=True)
class Attack:
    """The result of an attack on one plan and one pair of data sets.

    Attributes
    ----------
    claimed : epsilon of the charged event at ``delta``, which need not be the delta of the guarantee.
    sees : what the attacker saw of each run.
    score : name of the score.
    bound : lower bound from a threshold on the scores; valid for any score.
    alarm : lower bound with confidence 1 - 1e-6; above ``claimed`` it refutes the claim.
    exact : lower bound from exact likelihood ratios in both directions, if known; assumes the stated noise
        distribution.
    model : lower bound for an attacker who sees only the released numbers.
    scores : scores of all runs on each data set.
    """

    claimed: float
    delta: float
    runs: int
    sees: str
    score: str
    bound: LowerBound
    alarm: LowerBound
    exact: LowerBound | None
    model: LowerBound
    scores: tuple[Array, Array] = field(repr=False)

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; a true claim is refuted with probability at most 1e-6."""
        return self.alarm.epsilon > self.claimed


def prepared(estimator: Any, data: Any) -> PlannedRun:
    """Fit an estimator once, and return its plan and its records."""
    seen = trace(fitting(estimator), data)
    if seen.error is not None or len(seen.runs) != 1:
        raise ValueError(
            f"the estimator did not run one plan on the canary data: {seen.error or len(seen.runs)}"
        )
    return seen.runs[0]


@dataclass(frozen=True)
class Evidence:
    """The runs on two neighbors, in order.

    Attributes
    ----------
    sees, score : what the attacker saw of each run, and the name of the score.
    shown : released numbers, one row per run, for each data set.
    scores : one number per run; None for the best linear projection of the released numbers.
    losses : exact privacy losses log(p / q) under the data set of the run; None if unknown.
    """

    sees: str
    score: str
    shown: tuple[Array, Array]
    scores: tuple[Array, Array] | None
    losses: tuple[Array, Array] | None

    def and_then(self, later: Evidence) -> Evidence:
        """Append later runs of the same attack."""

        def joined(one: tuple[Array, Array] | None, two: tuple[Array, Array] | None) -> Any:
            if one is None or two is None:
                return None
            return tuple(np.concatenate(sides) for sides in zip(one, two, strict=True))

        return dataclasses.replace(
            self,
            shown=joined(self.shown, later.shown),
            scores=joined(self.scores, later.scores),
            losses=joined(self.losses, later.losses),
        )


def judged(
    evidence: Evidence, claimed: float, *, delta: float, confidence: float = 0.95, looks: int = 1
) -> Attack:
    """Compute lower bounds from the runs.

    ``looks`` is the number of times that growing evidence may be judged: threshold bounds divide their error among the
    looks, bounds from exact losses hold at any time (`estimates.loss_bound`).
    """
    projected = projections(*evidence.shown)
    scores, losses = evidence.scores or projected, evidence.losses
    each = 1 - (1 - confidence) / looks
    exact = None if losses is None else estimates.loss_bound(losses[0], delta, confidence, reverse=losses[1])

    def by_threshold(sides: tuple[Array, Array]) -> LowerBound:
        bound = estimates.threshold_bound(*sides, delta, each, joint=each > _SURE)
        return dataclasses.replace(bound, confidence=confidence)

    return Attack(
        claimed=claimed,
        delta=delta,
        runs=len(scores[0]),
        sees=evidence.sees,
        score=evidence.score,
        bound=by_threshold(scores),
        alarm=_alarm(scores, losses, delta, looks),
        exact=exact,
        model=by_threshold(projected),
        scores=scores,
    )


def _alarm(
    scores: tuple[Array, Array], losses: tuple[Array, Array] | None, delta: float, looks: int
) -> LowerBound:
    """Return the larger of both lower bounds; together they are wrong with probability at most `ALARM`."""
    share = ALARM if losses is None else ALARM / 2
    bounds = [estimates.threshold_bound(*scores, delta, 1 - share / looks, joint=True)]
    if losses is not None:
        bounds.append(estimates.loss_bound(losses[0], delta, 1 - share, reverse=losses[1]))
    best = max(bounds, key=lambda bound: bound.epsilon)
    return dataclasses.replace(best, confidence=1 - ALARM)


def planned_runs(
    first: PlannedRun,
    second: PlannedRun,
    runs: int,
    *,
    seed: int | None,
    share: float = 1.0,
    likelihood: bool = True,
    start: int = 0,
    seconds: float = math.inf,
    fewest: int = FEWEST,
) -> Evidence:
    """Run a plan on each of two sets of records, in the order of `transcripts.places`.

    Parameters
    ----------
    first, second : prepared runs on neighboring data sets; see `prepared`.
    seed : seed for repeatable, insecure noise; None for real noise, without exact losses (the exact minimizer is not
        observable).
    share : fraction of the noise that is kept. Less than 1 makes a broken twin, which the attack should catch; needs a
        seed.
    likelihood : whether to score by likelihood ratios where they are known, instead of a projection.
    """
    _require_seed(seed, share)
    sides = (first, second), (second, first)
    known = likelihood and minimizer_law_known(first.plan)
    shown: tuple[list[Array], list[Array]] = ([], [])
    scores: tuple[list[float], list[float]] = ([], [])
    losses: tuple[list[float], list[float]] = ([], [])
    for place in places(start, runs, seconds, fewest):
        for side, (own, other) in enumerate(sides):
            number = None if seed is None else noise_seed(seed, place, side)
            theta, inside = _one_run(own, number, share)
            shown[side].append(theta.ravel())
            if known:
                scores[side].append(log_ratio(first, second, theta))
            if known and inside is not None:
                losses[side].append(_loss(own, other, inside, share))
    return Evidence(
        sees="released model",
        score="likelihood ratio of the perturbed objective" if known else PROJECTION,
        shown=(np.stack(shown[0]), np.stack(shown[1])),
        scores=(np.array(scores[0]), np.array(scores[1])) if known else None,
        losses=(np.array(losses[0]), np.array(losses[1])) if losses[0] else None,
    )


def _one_run(prepared: PlannedRun, seed: int | None, share: float) -> tuple[Array, Array | None]:
    """Return the released coefficients and, with seeded noise, the minimizer before the output stage."""
    plan = prepared.plan
    if seed is None:
        return np.asarray(plan.run(prepared.records, fresh_entropy()).theta), None
    recorder = Weakener(share)
    with insecure_noise(seed), recorded_by(recorder):
        theta = np.asarray(plan.run(prepared.records, fresh_entropy()).theta)
    if not minimizer_law_known(plan):
        return theta, None
    inside = next(call.value for call in recorder.calls if call.value is not None)
    return theta, inside.reshape(plan.problem.n_models, *plan.problem.shape)


def minimizer_law_known(plan: Any) -> bool:
    """Whether a plan releases the minimizer of a perturbed objective with a known density.

    In the interior of a set the density is that without a set; on the boundary it is unknown.
    """
    if not perturbs_objective(plan):
        return False
    geometry = plan.problem.geometry
    return geometry is None or _inside(plan, np.asarray(geometry.center()))


def _inside(plan: Any, theta: Array) -> bool:
    """Whether the exact minimizer near ``theta`` lies in the interior of the plan's set."""
    geometry, point = plan.problem.geometry, theta.ravel()
    if geometry is None:
        return True
    room = 2 * math.sqrt(point.size) * plan.gradient_tolerance / plan.total_l2
    steps = room * np.vstack([np.eye(point.size), -np.eye(point.size)])
    return all(bool(np.all(geometry.project(point + step) == point + step)) for step in steps)


def _loss(own: PlannedRun, other: PlannedRun, theta: Array, share: float) -> float:
    """Return the privacy loss at minimizers in the interior of the set, and minus infinity on its boundary.

    The hockey-stick divergence is an integral over all outputs; leaving out some of them can only lower it.
    """
    inside = all(_inside(own.plan, point) for point in theta)
    return log_ratio(own, other, theta, share) if inside else -math.inf


def exact_losses(first: PlannedRun, second: PlannedRun, runs: int, *, seed: int, share: float = 1.0) -> Array:
    """Return privacy losses of the exact minimizer of a perturbed objective, under the first data set.

    As in docs/proofs/objective-perturbation.md, section 1, up to the optimizer's tolerance.
    """
    if not minimizer_law_known(first.plan):
        raise ValueError(
            f"exact likelihood ratios are known for perturbed objectives, not for {first.plan.mechanism}"
        )
    return np.array([_loss(first, second, inside, share) for inside in minimizers(first, runs, seed, share)])


def minimizers(prepared: PlannedRun, runs: int, seed: int, share: float = 1.0) -> Iterator[Array]:
    """Yield the minimizers of a perturbed objective before the output stage, one array of all models per run."""
    for place in range(runs):
        inside = _one_run(prepared, (seed << 40) + place, share)[1]
        assert inside is not None
        yield inside


def log_ratio(first: PlannedRun, second: PlannedRun, theta: Array, share: float = 1.0) -> float:
    """Return the log ratio of the densities of minimizers ``theta`` (one per model) on the two data sets."""
    return sum(
        _log_density(a, first.plan, point, share) - _log_density(b, first.plan, point, share)
        for point, a, b in zip(theta, first.records, second.records, strict=True)
    )


def _log_density(records: Any, plan: Any, theta: Array, share: float) -> float:
    """Return the log of (density of the noise b(theta)) det(Hessian), up to a constant."""
    noise, volume = noise_and_volume(records, plan, theta)
    law = plan.objective_noise
    if hasattr(law, "effective_stddev"):
        return volume - float(np.vdot(noise, noise)) / (2 * (share * float(law.effective_stddev)) ** 2)
    return volume - float(np.linalg.norm(noise)) / (share * float(law.effective_scale))


def noise_and_volume(records: Any, plan: Any, theta: Array) -> tuple[Array, float]:
    """Return minus the noise that makes ``theta`` the minimizer, and the log-determinant of the Hessian there."""
    loss = plan.problem.loss
    noise = records.value_and_gradient(loss, theta)[1] + plan.total_l2 * theta
    product = records.hessian_product(loss, theta)
    columns = [product(basis.reshape(theta.shape)).ravel() for basis in np.eye(theta.size)]
    hessian = np.stack(columns) + plan.total_l2 * np.eye(theta.size)
    return noise, float(np.linalg.slogdet(hessian)[1])


def projections(a: Array, b: Array) -> tuple[Array, Array]:
    """Return scores along Fisher's discriminant, fitted only to the runs that choose the threshold."""
    share = max(2, int(0.3 * len(a)))
    first, second = a[:share], b[:share]
    spread = np.atleast_2d(np.cov(first.T) + np.cov(second.T))
    size = float(np.trace(spread)) or 1.0  # without noise, two constants differ
    spread = spread + 1e-12 * size * np.eye(a.shape[1])
    direction = np.linalg.lstsq(spread, first.mean(axis=0) - second.mean(axis=0), rcond=None)[0]
    return a @ direction, b @ direction


# -- runs of any subject ------------------------------------------------------------------------------------------


def attacked(
    subject: Subject,
    runs: int,
    *,
    delta: float = 1e-2,
    confidence: float = 0.95,
    seed: int | None = 0,
    share: float = 1.0,
    seconds: float = math.inf,
) -> Attack:
    """Run a subject, or its twin with ``share`` of the noise, ``runs`` times per data set, and bound epsilon.

    Epsilon is bounded at ``delta``: the small deltas of real guarantees cannot be measured with feasible numbers of
    runs, and the charged event makes a claim at every delta. Without a seed, only what is released is scored;
    likelihoods of transcripts, and twins, need a seed.
    """
    if runs < FEWEST:
        raise ValueError(f"runs must be at least {FEWEST}, got {runs}")
    found = gathered(subject, runs, seed=seed, share=share, seconds=seconds)
    return judged(found, claimed(subject, delta), delta=delta, confidence=confidence)


def claimed(subject: Subject, delta: float) -> float:
    """Return the epsilon charged for one run, at ``delta``."""
    return accountants.epsilon(subject.event, delta, subject.relation)


def gathered(
    subject: Subject,
    runs: int,
    *,
    seed: int | None,
    share: float = 1.0,
    start: int = 0,
    seconds: float = math.inf,
    fewest: int = FEWEST,
) -> Evidence:
    """Run a subject on each data set, in the order of `transcripts.places`, and collect what an attacker may see."""
    options: dict[str, Any] = {"share": share, "start": start, "seconds": seconds, "fewest": fewest}
    if isinstance(subject.first, PlannedRun) and perturbs_objective(subject.first.plan):
        return planned_runs(subject.first, subject.second, runs, seed=seed, **options)
    if subject.composed and seed is not None:
        transcript = transcripts(subject.run, subject.first, subject.second, runs, seed=seed, **options)
        return Evidence(
            sees="transcript",
            score="likelihood ratio of all answers of all mechanisms",
            shown=transcript.released,
            scores=(transcript.first, transcript.second),
            losses=(transcript.first, -transcript.second),
        )
    return _shown(subject, runs, seed=seed, **options)


def _shown(
    subject: Subject, runs: int, *, seed: int | None, share: float, start: int, seconds: float, fewest: int
) -> Evidence:
    """Collect only what is released, alternating between the data sets."""
    shown: tuple[list[Array], list[Array]] = ([], [])
    for place in places(start, runs, seconds, fewest):
        for side, data in enumerate((subject.first, subject.second)):
            number = None if seed is None else noise_seed(seed, place, side)
            shown[side].append(released(subject.run, data, 1, seed=number, share=share)[0])
    rows = np.stack(shown[0]), np.stack(shown[1])
    density = subject.log_density
    if density is None:
        return Evidence("released numbers", PROJECTION, rows, None, None)
    ratios = [
        np.array([density(subject.first, row, share) - density(subject.second, row, share) for row in side])
        for side in rows
    ]
    scores, losses = (ratios[0], ratios[1]), (ratios[0], -ratios[1])
    return Evidence("released numbers", "their likelihood ratio", rows, scores, losses)


def released(run: Run, data: Any, runs: int, *, seed: int | None, share: float = 1.0) -> Array:
    """Return the numbers released in ``runs`` runs, one row each; with real noise if ``seed`` is None."""
    _require_seed(seed, share)
    if seed is None:
        with releasing("audit"):
            return np.stack([numbers(run(data)) for _ in range(runs)])
    rows = []
    with insecure_noise(seed), releasing("audit"):  # of synthetic people, without a ledger
        for _ in range(runs):
            with recorded_by(Weakener(share)):
                rows.append(numbers(run(data)))
    return np.stack(rows)


def _require_seed(seed: int | None, share: float) -> None:
    if share != 1.0 and seed is None:
        raise ValueError("weakened noise is never secure: pass a seed")
