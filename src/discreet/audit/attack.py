"""Many runs on two neighboring data sets, and scores that tell them apart.

The attacker knows both data sets, the plan and every public number, and sees one released set of coefficients per
run. Scores need not be good for the bounds drawn from them to be true.
"""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit import estimates
from discreet.audit.estimates import LowerBound
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.witness import PlannedRun, Trace, Weakener, fitting, trace
from discreet.mechanisms.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.privacy import accountants

Array = NDArray[np.float64]


ALARM = 1e-6  # the chance that an alarm is false


@dataclass(frozen=True)
class Attack:
    """What an attack on one plan and one pair of data sets showed.

    Attributes
    ----------
    claimed : epsilon of the charged event at ``delta``, which need not be the delta of the guarantee.
    sees : what the attacker saw of a run.
    score : what told the data sets apart.
    bound : lower bound by a threshold on the scores (Clopper-Pearson); true whatever the scores are.
    alarm : lower bound at a confidence of 1 - 1e-6: above ``claimed`` it means that the claim is false.
    exact : lower bound from exact likelihood ratios, where they are known; the larger of both directions, each with
        half of the error. It presumes the stated law of the noise.
    model : lower bound for an attacker who sees the released numbers alone.
    scores : the scores of all runs, on either data set.
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
        """Whether the claim is false, with a chance of less than one in a million of saying so wrongly."""
        return self.alarm.epsilon > self.claimed


def prepared(estimator: Any, data: Any) -> PlannedRun:
    """The plan and the records with which an estimator would fit ``data``, by fitting it once."""
    seen: Trace = trace(fitting(estimator), data)
    if seen.error is not None or len(seen.runs) != 1:
        raise ValueError(
            f"the estimator did not run one plan on the canary data: {seen.error or len(seen.runs)}"
        )
    return seen.runs[0]


def attack(
    first: PlannedRun,
    second: PlannedRun,
    *,
    runs: int,
    delta: float = 1e-2,
    confidence: float = 0.95,
    seed: int | None = None,
    share: float = 1.0,
    likelihood: bool = True,
    exact_runs: int = 0,
) -> Attack:
    """Run the first run's plan ``runs`` times on each of the two sets of records, and bound epsilon from below.

    Parameters
    ----------
    first, second : prepared runs on neighboring data sets; see `prepared`.
    runs : number of runs on each data set.
    delta : at which epsilon is bounded; the small deltas of real guarantees lie in tails that no number of runs shows,
        and the charged event promises something at every delta.
    seed : seed for repeatable, insecure noise; None for the real noise.
    share : part of the noise that is kept. Less than 1 makes the broken twin on which the attack shows its power, and
        needs a seed.
    likelihood : whether to score by likelihood ratios where they are known, and not by a projection.
    exact_runs : number of runs from which exact losses are taken, 0 for none; also needs a seed.
    """
    plan = first.plan
    if runs < 20:
        raise ValueError(f"runs must be at least 20 to say anything, got {runs}")
    if share != 1.0 and seed is None:
        raise ValueError("weakened noise is never secure: pass a seed")
    a = released(plan, first.records, runs, seed=seed, share=share)
    b = released(plan, second.records, runs, seed=None if seed is None else seed + 1, share=share)
    projected = projections(a.reshape(runs, -1), b.reshape(runs, -1))
    model = estimates.threshold_bound(*projected, delta, confidence)
    losses = None
    if likelihood and minimizer_law_known(plan):
        score = "likelihood ratio of the perturbed objective"
        scores = tuple(np.array([log_ratio(first, second, theta) for theta in thetas]) for thetas in (a, b))
        if exact_runs and seed is not None:
            losses = (
                exact_losses(first, second, exact_runs, seed=seed + 2, share=share),
                exact_losses(second, first, exact_runs, seed=seed + 3, share=share),
            )
    else:
        score, scores = "best linear projection", projected
    return Attack(
        claimed=accountants.epsilon(plan.event, delta, plan.guarantee.neighboring),
        delta=delta,
        runs=runs,
        sees="released model",
        score=score,
        bound=estimates.threshold_bound(scores[0], scores[1], delta, confidence),
        alarm=alarm_of((scores[0], scores[1]), losses, delta),
        exact=None if losses is None else exact_bound(losses, delta, confidence),
        model=model,
        scores=(scores[0], scores[1]),
    )


def exact_bound(losses: tuple[Array, Array], delta: float, confidence: float) -> LowerBound:
    """The bound from exact losses, the larger of both directions, each with half of the error."""
    each = 1 - (1 - confidence) / 2
    best = max((estimates.loss_bound(part, delta, each) for part in losses), key=lambda bound: bound.epsilon)
    return dataclasses.replace(best, confidence=confidence)


def alarm_of(scores: tuple[Array, Array], losses: tuple[Array, Array] | None, delta: float) -> LowerBound:
    """The largest lower bound that is wrong with a chance of at most `ALARM`, shared by thresholds and exact losses."""
    share = ALARM if losses is None else ALARM / 2
    bounds = [estimates.threshold_bound(*scores, delta, 1 - share, joint=True)]
    if losses is not None:
        bounds.append(exact_bound(losses, delta, 1 - share))
    best = max(bounds, key=lambda bound: bound.epsilon)
    return dataclasses.replace(best, confidence=1 - ALARM)


def minimizer_law_known(plan: Any) -> bool:
    """Whether a plan releases the minimizer of a perturbed objective in all of space, whose density is known."""
    return perturbs_objective(plan) and plan.problem.geometry is None


def released(plan: Any, records: Any, runs: int, *, seed: int | None, share: float = 1.0) -> Array:
    """Coefficients released by ``runs`` independent runs of a plan."""
    with contextlib.ExitStack() as stack:
        if seed is not None:
            stack.enter_context(insecure_noise(seed))
        results = []
        for _ in range(runs):
            with recorded_by(Weakener(share)) if share != 1.0 else contextlib.nullcontext():
                results.append(np.asarray(plan.run(records, fresh_entropy()).theta))
        return np.stack(results)


def exact_losses(first: PlannedRun, second: PlannedRun, runs: int, *, seed: int, share: float = 1.0) -> Array:
    """Privacy losses of the exact minimizer of a perturbed objective, under the first data set.

    The minimizer is read from inside, before the output stage hides how far it is from the one found; the loss is
    that of docs/proofs/objective-perturbation.md, section 1, up to the optimizer's tolerance.
    """
    plan, losses = first.plan, []
    if not minimizer_law_known(plan):
        raise ValueError(
            f"exact likelihood ratios are known for perturbed objectives, not for {plan.mechanism}"
        )
    with insecure_noise(seed):
        for _ in range(runs):
            recorder: Recorder = Weakener(share)
            with recorded_by(recorder):
                plan.run(first.records, fresh_entropy())
            inside = next(call.value for call in recorder.calls if call.value is not None)
            theta = inside.reshape(plan.problem.n_models, *plan.problem.shape)
            losses.append(log_ratio(first, second, theta, share))
    return np.array(losses)


def log_ratio(first: PlannedRun, second: PlannedRun, theta: Array, share: float = 1.0) -> float:
    """log density of minimizers ``theta`` (one per model) under the first data set, minus that under the second."""
    plan = first.plan
    total = 0.0
    for point, a, b in zip(theta, first.records, second.records, strict=True):
        parts = [_log_density(records, plan, point, share) for records in (a, b)]
        total += parts[0] - parts[1]
    return total


def _log_density(records: Any, plan: Any, theta: Array, share: float) -> float:
    """log of (density of the noise b(theta)) det(Hessian), up to a constant."""
    loss, law = plan.problem.loss, plan.objective_noise
    noise = records.value_and_gradient(loss, theta)[1] + plan.total_l2 * theta
    product = records.hessian_product(loss, theta)
    columns = [product(basis.reshape(theta.shape)).ravel() for basis in np.eye(theta.size)]
    hessian = np.stack(columns) + plan.total_l2 * np.eye(theta.size)
    volume = float(np.linalg.slogdet(hessian)[1])
    if hasattr(law, "effective_stddev"):
        return volume - float(np.vdot(noise, noise)) / (2 * (share * float(law.effective_stddev)) ** 2)
    return volume - float(np.linalg.norm(noise)) / (share * float(law.effective_scale))


def projections(a: Array, b: Array) -> tuple[Array, Array]:
    """Scores along Fisher's discriminant, fitted to the runs that choose the threshold and to no others."""
    share = max(2, int(0.3 * len(a)))
    first, second = a[:share], b[:share]
    spread = np.cov(first.T) + np.cov(second.T)
    spread = np.atleast_2d(spread) + 1e-12 * np.trace(np.atleast_2d(spread)) * np.eye(a.shape[1])
    direction = np.linalg.lstsq(spread, first.mean(axis=0) - second.mean(axis=0), rcond=None)[0]
    return a @ direction, b @ direction
