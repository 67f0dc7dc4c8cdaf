"""One row of the table of audits: a subject replayed, attacked, and attacked again with half of its noise.

`pair_worth` is the epsilon that a program has on a pair of data sets, computed instead of sampled: nobody can see more
on this pair, however often the program is run. Where it falls short of the claim there is a worse pair, or the price
of the mechanisms is not that of the worst pair they have.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from discreet.audit.attack import (
    FEWEST,
    Attack,
    claimed,
    gathered,
    judged,
    minimizer_law_known,
    minimizers,
    noise_and_volume,
)
from discreet.audit.likelihoods import is_gaussian
from discreet.audit.replay import replay
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.subjects import DELTA, Subject
from discreet.audit.trace import PlannedRun
from discreet.audit.transcripts import pair_epsilon, questions_of_both
from discreet.card.attestation import digest
from discreet.privacy.accounting.gaussian import gaussian_epsilon

ATTAINED = 0.95  # part of a declared distance, or of a claim, that counts as all of it
_LISTED = 1000  # transcripts at most
_TRIED = 12  # runs whose questions are compared
_SAME = 1e-2
#: Parts of the time after which an attack's evidence is judged, and the part of the claim that is then enough.
LOOKS = ((1 / 8, 0.75), (1 / 2, 0.55), (1.0, 0.0))
#: The same for twins, which are looked at until they are caught.
TWIN_LOOKS = (1 / 64, 1 / 16, 1 / 4, 1.0)
#: Of every bound in the table, of which a row has three.
CONFIDENCE = 0.9999


@dataclass(frozen=True)
class Row:
    """One audited thing.

    Attributes
    ----------
    subject, relation : what was audited, under which relation.
    replay : "passed", or the checks that failed.
    ratio : largest observed over declared distance on the worst pair known.
    worst_case : "attained" where the pair that is attacked is the worst case of the claim: it is worth at least 0.95 of
        the claim where that is known, and otherwise theory knows no worse pair or all inputs of mechanisms are as far
        apart as declared.
    claimed : epsilon of the charged event at the delta of the audit.
    pair : the epsilon that the program has on this pair, where it can be computed: nobody can see more on it.
    sees : what the attacker saw of every run: the transcript of all answers of all mechanisms, which is what the
        promise of a composition is about, or the released model.
    empirical : lower bound by a threshold on the attacker's score; presumes nothing.
    exact : lower bound from exact likelihood ratios; presumes the stated law of the noise. For perturbed objectives the
        ratio is that of the exact minimizer.
    model : lower bound for an attacker who sees only what is released, by the best linear projection.
    runs : on each of the two neighbors; few where they soon showed most of the claim.
    half_noise : the alarm (confidence 1 - 1e-6) on the twin with half of the noise.
    twin_runs : on each of the two neighbors, until the twin was caught.
    caught : whether that alarm exceeds the claim.
    seconds : processor time of the row.
    date : when it was measured.
    event : digest of what was charged: a row that is charged otherwise is another row.
    note : what falls short: less than half of the claim seen or worth, distances not reached, a twin not caught.
    """

    subject: str
    relation: str
    replay: str
    ratio: float
    worst_case: str
    claimed: float
    pair: float | None
    sees: str
    empirical: float
    exact: float | None
    model: float
    runs: int
    half_noise: float
    twin_runs: int
    caught: bool
    seconds: float
    date: str
    event: str
    note: str

    @property
    def sound(self) -> bool:
        """Whether nothing contradicts the claim."""
        shown = max(self.empirical, self.model, self.exact or 0.0)
        return (
            self.replay == "passed" and self.claimed > 0 and self.ratio <= 1 + 1e-9 and shown <= self.claimed
        )


def row(
    subject: Subject, *, runs: int, seconds: float, twin_seconds: float | None = None, seed: int = 0
) -> Row:
    """Replay one subject, attack it and its half-noise twin.

    ``seconds`` limits the processor time of the attack, and of that on the twin unless ``twin_seconds`` does: where a
    run is slow, fewer are made.
    """
    begin = time.process_time()
    seen = replay(subject.program, *subject.strained)
    pair = pair_worth(subject, DELTA)

    def enough(now: Attack, part: float) -> bool:
        most = now.claimed if pair is None else min(now.claimed, pair)
        return _best(now) >= min(part * now.claimed, 0.9 * most)

    found = watched(subject, LOOKS, enough, runs=runs, seconds=seconds, seed=seed)
    twin = watched(
        subject,
        [(part, 0.0) for part in TWIN_LOOKS],
        lambda now, _: now.refuted,
        runs=runs,
        seconds=twin_seconds or seconds,
        seed=seed + 1,
        share=0.5,
    )
    return Row(
        subject=subject.name,
        relation=subject.relation.value,
        replay="passed" if seen.passed else ", ".join(sorted(seen.failed_checks)),
        ratio=seen.worst_ratio,
        worst_case="attained" if attained(subject, pair, found.claimed) else "",
        claimed=found.claimed,
        pair=pair,
        sees=found.sees,
        empirical=found.bound.epsilon,
        exact=None if found.exact is None else found.exact.epsilon,
        model=found.model.epsilon,
        runs=found.runs,
        half_noise=twin.alarm.epsilon,
        twin_runs=twin.runs,
        caught=twin.refuted,
        seconds=time.process_time() - begin,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        event=digest(subject.event.to_dict()),
        note=_note(found, twin, seen.worst_ratio, pair),
    )


def watched(
    subject: Subject,
    looks: Sequence[tuple[float, float]],
    enough: Callable[[Attack, float], bool],
    *,
    runs: int,
    seconds: float,
    seed: int = 0,
    share: float = 1.0,
) -> Attack:
    """Attack a subject until it is ``enough``, judging all evidence so far at each of the ``looks``.

    A look is a part of the time and what ``enough`` is told with it. Looks are planned: bounds by thresholds share
    their error among them, bounds by exact losses hold at any time.
    """
    delta, begin, evidence = DELTA, time.process_time(), None
    price = claimed(subject, delta)
    for part, goal in looks:
        have = 0 if evidence is None else len(evidence.shown[0])
        options: dict[str, Any] = {"start": have, "fewest": 1 if have else FEWEST}
        options["seconds"] = part * seconds - (time.process_time() - begin)
        if have < runs:
            later = gathered(subject, runs - have, seed=seed, share=share, **options)
            evidence = later if evidence is None else evidence.and_then(later)
        assert evidence is not None
        found = judged(evidence, price, delta=delta, confidence=CONFIDENCE, looks=len(looks))
        if enough(found, goal) or found.runs >= runs:
            break
    return found


def _best(found: Attack) -> float:
    """The larger of the two bounds."""
    return max(found.bound.epsilon, found.exact.epsilon if found.exact else 0.0)


def _note(found: Attack, twin: Attack, ratio: float, pair: float | None) -> str:
    best, notes = _best(found), []
    if best <= found.claimed / 2:
        notes.append(f"{found.runs} runs show {best / found.claimed:.0%} of the claim")
    if pair is not None and pair <= found.claimed / 2:
        notes.append(f"the pair is worth {pair / found.claimed:.0%} of the claim")
    if ratio < ATTAINED:
        notes.append(f"no pair was found that is farther apart than {ratio:.2f} of what is declared")
    if not twin.refuted:
        shown = twin.alarm.epsilon / found.claimed
        notes.append(f"{twin.runs} runs of the twin show {shown:.0%}: more runs or a worse pair are needed")
    return "; ".join(notes)


def as_text(rows: Sequence[Row]) -> str:
    """The table in Markdown."""
    names = [field.name.replace("_", " ") for field in fields(Row)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(value) for value in astuple(line)) + " |" for line in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)


def pair_worth(subject: Subject, delta: float, share: float = 1.0) -> float | None:
    """The epsilon at ``delta`` of a subject's pair, the larger of both directions; None where it is not known.

    It is known where there are few transcripts, which are listed (`pair_epsilon`), and where every call adds Gaussian
    noise and the distances of all calls together are the same in every run: then the privacy loss is a normal variable.
    For a perturbed objective that is so where the shift of its gradient is the same at every minimizer, and the
    volume of the Hessian.
    """
    if isinstance(subject.first, PlannedRun) and minimizer_law_known(subject.first.plan):
        if subject.first.plan.problem.geometry is not None:
            return None  # what its boundary shows is not known
        return _objective_worth(subject.first, subject.second, delta, share)
    if not subject.composed:
        return None
    listed = pair_epsilon(subject.run, subject.first, subject.second, delta, share=share, most=_LISTED)
    if listed is not None:
        return listed
    squares = []
    for place in range(_TRIED):
        asked = questions_of_both(subject.run, subject.first, subject.second, seed=place)
        if asked is None or not all(is_gaussian(call) for call, _ in asked):
            return None
        squares.append(
            sum(float(np.sum(np.square(call.value - other.value))) / call.scale**2 for call, other in asked)
        )
    return _of_squares(squares, delta, share)


def attained(subject: Subject, worth: float | None, claimed: float) -> bool:
    """Whether a subject's pair is the worst case of what is claimed.

    It is if it is worth about as much. Where its worth is not known, if theory knows no worse pair, or if the inputs of
    all mechanisms are about as far apart as declared; the noise of a perturbed objective has no input.
    """
    if worth is not None:
        return worth >= ATTAINED * claimed
    if subject.exact or (isinstance(subject.first, PlannedRun) and perturbs_objective(subject.first.plan)):
        return subject.exact
    seen = replay(subject.run, subject.first, subject.second)
    ratios = [distance.ratio for distance in seen.distances if distance.is_input]
    return bool(ratios) and min(ratios) >= ATTAINED


def _objective_worth(first: PlannedRun, second: PlannedRun, delta: float, share: float) -> float | None:
    """From the shift of the noise that leads to the same minimizer, over the noise's standard deviation."""
    stddev = getattr(first.plan.objective_noise, "effective_stddev", None)
    if stddev is None:
        return None
    squares = []
    for theta in minimizers(first, _TRIED, seed=0):
        parts = [
            [
                noise_and_volume(records, first.plan, point)
                for point, records in zip(theta, side.records, strict=True)
            ]
            for side in (first, second)
        ]
        if any(abs(a[1] - b[1]) > _SAME**2 for a, b in zip(*parts, strict=True)):
            return None
        squares.append(
            sum(float(np.sum(np.square(a[0] - b[0]))) for a, b in zip(*parts, strict=True)) / stddev**2
        )
    return _of_squares(squares, delta, share)


def _of_squares(squares: list[float], delta: float, share: float) -> float | None:
    """The epsilon of a normal loss, if its spread is the same in all runs."""
    if max(squares) > min(squares) * (1 + _SAME):
        return None
    return gaussian_epsilon(math.sqrt(min(squares)) / share, delta)
