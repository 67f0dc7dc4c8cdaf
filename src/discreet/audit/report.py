"""Audit an estimator in one call: replay it on worst-case neighbors, attack it, and report both."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from discreet.audit import subjects
from discreet.audit.attack import FEWEST, PROJECTION, Attack, Evidence, attacked, judged
from discreet.audit.replay import Replay, replay
from discreet.display.console import printable
from discreet.display.page import Bar, Page
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.privacy.page import ONE, in_short

_WIDTH = 96
_COLUMNS = 48  # of bars and histograms on a terminal
SEEN = "the attacker chose and knew both data sets, knew every public number and the noise distribution, and saw the {}"
SIGHTS = {
    "transcript": "transcript of every run: all answers of all mechanisms, which determine the release",
    "released model": "released coefficients of every run",
    "released numbers": "released numbers of every run",
}
INSIDE = (
    "exact likelihood ratios are those of the transcript (of the exact minimizer, if the objective is perturbed) under "
    "repeatable noise, and assume that the noise has the stated distribution"
)
_MISSED = "NOT caught: too few runs to detect this error"
NOT_SEEN = (
    "the attacker did not see running times, memory use, or the state of the random generator",
    "only one pair of data sets was attacked: a worse pair, unknown to theory, would have gone unnoticed",
    "only epsilon at the delta shown was measured; a much smaller delta would take too many runs",
    "a lower bound below the claim does not prove the claim: the proof is in docs/proofs",
)


@dataclass(frozen=True)
class AuditReport:
    """The guarantee of a subject, and the results of a replay and an attack.

    Attributes
    ----------
    subject : what was audited.
    guarantee : the claimed guarantee.
    replayed : replay on the pair that comes closest to the declared sensitivities; None for external programs, whose
        mechanisms cannot be recorded.
    attacked : attack on the pair whose runs differ most.
    twin : the same attack on a copy with half the noise, which it should catch; None if not requested.
    mechanism : how the attacked runs added noise, from their plan; empty without a plan.
    """

    subject: str
    guarantee: Guarantee
    replayed: Replay | None
    attacked: Attack
    twin: Attack | None = None
    mechanism: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the guarantee."""
        return (self.replayed is None or self.replayed.passed) and not self.attacked.refuted

    def __str__(self) -> str:
        promise, found = self.guarantee, self.attacked
        lines = [
            f"Audit of {self.subject}: "
            f"{'nothing contradicts the guarantee' if self.passed else 'THE GUARANTEE IS FALSE'}",
            *(_folded("attacked", self.mechanism) if self.mechanism else ()),
            f"  promised             ({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}",
            f"  claimed epsilon      {found.claimed:.4f} at delta {found.delta:g}, by "
            f"{'the charged event' if self.replayed else 'the program itself'}",
            f"  empirical epsilon    {found.bound.epsilon:.4f} or more, with confidence {found.bound.confidence:g}",
            f"                       ({found.runs} runs on each of two neighbors, {found.score})",
        ]
        if found.exact is not None:
            lines.append(
                f"  exact ratios         {found.exact.epsilon:.4f} or more, with confidence {found.exact.confidence:g}"
            )
        if found.sees == "transcript":
            lines.append(
                f"  released alone       {found.model.epsilon:.4f} or more, by a linear projection of it"
            )
        lines.append(
            f"  alarm                {'RAISED' if found.refuted else 'not raised'}: "
            f"epsilon is {found.alarm.epsilon:.4f} or more, with confidence 1 - 1e-6"
        )
        if self.twin is not None:
            caught = "caught" if self.twin.refuted else _MISSED
            lines.append(f"  half-noise twin      {caught} (epsilon {self.twin.alarm.epsilon:.4f} or more)")
        if self.replayed is not None:
            lines.append(
                f"  replay               {'passed' if self.replayed.passed else 'FAILED'}, largest distance "
                f"{self.replayed.worst_ratio:.4f} of the declared one"
            )
            lines += [f"    {finding}" for finding in self.replayed.findings]
        lines += _folded("could see", SEEN.format(SIGHTS[found.sees]))
        if found.exact is not None:
            lines += _folded("exact ratios", INSIDE)
        for text in NOT_SEEN:
            lines += _folded("could not see", text)
        return "\n".join(lines)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one HTML page that loads nothing; needs the extra ``report``."""
        _page(self).write(path)


def audit(
    estimator: Any,
    *,
    runs: int = 2000,
    delta: float = 1e-2,
    confidence: float = 0.95,
    seed: int | None = None,
    with_twin: bool = False,
    others: int = 1000,
    share: float = 1.0,
) -> AuditReport:
    """Audit an estimator's configuration on synthetic worst-case data; its own training data is not needed.

    Parameters
    ----------
    estimator : unfitted or fitted private estimator; its parameters are used, its coefficients are not.
    runs : runs on each of the two data sets.
    delta, confidence : of the lower bound on epsilon.
    seed : seed for repeatable noise; None attacks the real noise. The replay and the twin are always seeded.
    with_twin : whether to also attack a copy with half the noise, which the attack should catch.
    others : number of records besides the canary, for losses that need them.
    share : fraction of the noise that is kept; less than 1 audits a broken copy and needs a seed.

    Examples
    --------
    >>> from discreet import PrivateLinearSVC
    >>> report = audit(PrivateLinearSVC(epsilon=1.0, delta=1e-2), runs=200, seed=0)
    >>> report.passed, report.attacked.bound.epsilon <= report.attacked.claimed
    (True, True)
    """
    subject, solver = subjects.of(estimator, others), getattr(estimator, "solver", "")
    solver = solver if isinstance(solver, str) else getattr(solver, "name", type(solver).__name__)
    return audit_subject(
        dataclasses.replace(subject, name=f"{subject.name}, solver {solver!r}"),
        runs=runs,
        delta=delta,
        confidence=confidence,
        seed=seed,
        with_twin=with_twin,
        share=share,
    )


def audit_subject(
    subject: subjects.Subject,
    *,
    runs: int = 2000,
    delta: float = 1e-2,
    confidence: float = 0.95,
    seed: int | None = None,
    with_twin: bool = False,
    share: float = 1.0,
) -> AuditReport:
    """Audit a mechanism, stream, recommender or model on the neighbors that its subject names; as `audit`."""
    attack = partial(attacked, subject, runs, delta=delta, confidence=confidence)
    return AuditReport(
        subject=subject.name,
        guarantee=subject.guarantee,
        replayed=replay(subject.program, *subject.strained),
        attacked=attack(seed=seed, share=share),
        twin=attack(seed=seed or 0, share=0.5) if with_twin else None,
        mechanism=getattr(getattr(subject.first, "plan", None), "mechanism", ""),
    )


def audit_program(command: Sequence[str], *, runs: int = 2000, confidence: float = 0.95) -> AuditReport:
    """Audit an external program, in any language, from what it releases.

    The command is called once, with the number of runs as its last argument. It prints one line of JSON with its claim,
    ``{"name": ..., "epsilon": ..., "delta": ..., "relation": "replace-one"}``, and then one line per run,
    ``[side, [numbers]]``: what it released on the first (0) or the second (1) of two neighbors, equally often. The
    program chooses the neighbors and the numbers.

    Parameters
    ----------
    command : words of the command; it is executed, so it must be trusted.
    runs : runs on each of the two data sets.
    confidence : of the lower bound on epsilon at the claimed delta.

    Raises
    ------
    ValueError
        The command failed, or its output has another form.
    """
    try:
        done = subprocess.run([*command, str(runs)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"the program cannot be run: {error}") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        last = printable(words[-1]) if words else f"exit code {done.returncode}"
        raise ValueError(f"the program failed: {last}")
    try:
        claim, *lines = (json.loads(line) for line in done.stdout.splitlines() if line.strip())
        promise = Guarantee(float(claim["epsilon"]), float(claim["delta"]), Neighboring(claim["relation"]))
        sides = [np.array([numbers for side, numbers in lines if side == place], float) for place in (0, 1)]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"the program must print its claim and then one line of JSON for every run: {error}"
        ) from None
    if min(map(len, sides)) < FEWEST or any(side.ndim != 2 or not np.isfinite(side).all() for side in sides):
        raise ValueError(f"the program must print finite numbers, {FEWEST} runs or more on either side")
    seen = Evidence("released numbers", PROJECTION, (sides[0], sides[1]), None, None)
    found = judged(seen, promise.epsilon, delta=promise.delta, confidence=confidence)
    return AuditReport(printable(claim.get("name", command[0])), promise, None, found)


def _page(report: AuditReport) -> Page:
    """Make the page: the verdict, what was tried, what was not, and the printed report."""
    from discreet.display import charts

    out, found, one = Page(report.subject, "Audit"), report.attacked, ONE[report.guarantee.unit]
    best = max(found.bound.epsilon, 0.0 if found.exact is None else found.exact.epsilon)
    if report.passed:
        out.verdict(
            "Nothing contradicts the guarantee.",
            f"{found.runs} runs on each of two data sets that differ in {one} were attacked. They show an epsilon of "
            f"at least {best:.3g} at delta {found.delta:g}; the guarantee allows {found.claimed:.3g}. A failed attack "
            "proves nothing: the guarantee has a mathematical proof.",
            "good",
        )
    else:
        out.verdict("THE GUARANTEE IS FALSE.", "Do not release what this configuration computes.", "bad")
    promise = report.guarantee
    out.facts(
        {
            "Promised": in_short(promise),
            "Attacker saw": found.sees,
            "Confidence": f"{found.bound.confidence:.0%}; a false alarm has probability at most 1e-6",
            "Data": f"synthetic: the worst pair of data sets known, which differ in {one}",
            **({"Mechanism": report.mechanism} if report.mechanism else {}),
        }
    )
    out.heading("What was tried")
    out.bars({"": _shown(report)}, ("", "epsilon", f"at delta {found.delta:g}"))
    out.table(("check", "what it does", "result"), _tried(report), wrapped=True)
    if report.replayed is not None and report.replayed.findings:
        out.items(str(finding) for finding in report.replayed.findings)
    low, counts = _binned(found, 40)
    shares = [
        {"score of a run": float(place), "share of runs": int(count) / found.runs, "data": name}
        for name, part in zip(("first data set", "second data set"), counts, strict=True)
        for place, count in zip((*low, low[-1] + low[1] - low[0]), (*part, part[-1]), strict=True)
    ]
    out.chart(
        charts.steps(shares, x="score of a run", y="share of runs", series="data"),
        "What the attacker saw on the two data sets: the more they overlap, the less it reveals.",
    )
    out.heading("What was not tried")
    out.items(map(_sentence, NOT_SEEN))
    with out.folded("The printed report"):
        out.preformatted(str(report))
    return out


def _shown(report: AuditReport) -> list[Bar]:
    """Return bars of epsilon at the delta of the attack: claimed, and lower bounds."""
    found = report.attacked
    numbers = [("promised", found.claimed, "at most"), ("shown by guessing", found.bound.epsilon, "at least")]
    if found.exact is not None:
        numbers.append(("shown by exact likelihoods", found.exact.epsilon, "at least"))
    if report.twin is not None:
        numbers.append(("half-noise twin", report.twin.alarm.epsilon, "at least; must exceed the promise"))
    return [Bar(name, value, f"{value:.3f}", note=note) for name, value, note in numbers]


def _tried(report: AuditReport) -> list[tuple[str, str, str]]:
    """Describe every check, with its result."""
    found, replayed = report.attacked, report.replayed
    lines = [
        (
            "attack",
            f"{_sentence(SEEN.format(SIGHTS[found.sees]))} Runs are scored by {found.score}.",
            "alarm RAISED" if found.refuted else "no alarm",
        )
    ]
    if replayed is not None:
        lines.append(
            (
                "replay",
                "The mechanisms ran on two data sets that differ as much as possible. Their inputs must not differ by "
                "more than the proof declares.",
                f"{'passed' if replayed.passed else 'FAILED'}, {replayed.worst_ratio:.1%} of the limit",
            )
        )
    if report.twin is not None:
        lines.append(
            (
                "half-noise twin",
                "Would an error have been detected? The same attack on a copy with half the noise.",
                "caught" if report.twin.refuted else _MISSED,
            )
        )
    return lines


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _binned(found: Attack, bins: int) -> tuple[Any, list[Any]]:
    """Return left edges and counts of the scores on each data set; outliers are in the outermost bins."""
    low, high = np.quantile(np.concatenate(found.scores), [0.002, 0.998])
    counts = [
        np.histogram(np.clip(part, low, high), bins=bins, range=(low, high))[0] for part in found.scores
    ]
    return np.linspace(low, high, bins, endpoint=False).round(6), counts


def histogram(found: Attack) -> str:
    """Draw the scores on each data set as two rows of bars, which the attacker must distinguish."""
    counts = _binned(found, _COLUMNS)[1]
    tallest = max(1, max(int(part.max()) for part in counts))
    bars = " ▁▂▃▄▅▆▇█"
    rows = ["".join(bars[int(np.ceil(8 * count / tallest))] for count in part) for part in counts]
    return f"  scores, with record  |{rows[0]}|\n  scores, neighbor     |{rows[1]}|"


def bars(report: AuditReport) -> str:
    """Draw claimed and shown epsilon as bars."""
    found = report.attacked
    numbers = {"claimed": found.claimed, "shown to be at least": found.bound.epsilon}
    if report.twin is not None:
        numbers["twin, at least"] = report.twin.alarm.epsilon
    longest = max(*numbers.values(), 1e-12)
    return "\n".join(
        f"  {name:<21}|{'█' * round(_COLUMNS * value / longest):<{_COLUMNS}}| {value:.3f}"
        for name, value in numbers.items()
    )


def _folded(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"  {name + ':':<21}{text}", _WIDTH, subsequent_indent=" " * 23)
