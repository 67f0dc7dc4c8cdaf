"""One call for users: replay an estimator on its worst neighbors, attack it, say what that shows and what not."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
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
SEEN = "the attacker knew both data sets, every public number and the noise law, chose the data sets, and saw the {}"
SIGHTS = {
    "transcript": "transcript of every run: all answers of all mechanisms, of which what is released is a function",
    "released model": "released coefficients of every run",
    "released numbers": "released numbers of every run",
}
INSIDE = (
    "exact likelihood ratios are those of the transcript (of the exact minimizer, where the objective is perturbed) "
    "under repeatable noise, and presume that the noise has the law that is stated"
)
NOT_SEEN = (
    "the attacker did not see how long a run took, how much memory it used, or the state of the random generator",
    "one pair of data sets was attacked: a worse pair, which the theory does not know, would not have been noticed",
    "only epsilon at the delta shown was measured; the tails behind a much smaller delta show in no number of runs",
    "a lower bound below the claim is no proof of the claim: that is in docs/proofs",
)


@dataclass(frozen=True)
class AuditReport:
    """What was promised, what an attack found, and what a replay saw inside.

    Attributes
    ----------
    subject : what was audited.
    mechanism : how the attacked runs added their noise, in the words of their plan; empty where there is no plan.
    guarantee : the promise.
    replayed : replay on the pair that strains the declared sensitivities most; None for a program of somebody else,
        whose mechanisms nobody hears.
    attacked : attack on the pair on which runs differ most.
    twin : the same attack on a copy with half of the noise, which it must see through; None if not asked for.
    """

    subject: str
    guarantee: Guarantee
    replayed: Replay | None
    attacked: Attack
    twin: Attack | None = None
    mechanism: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the promise."""
        return (self.replayed is None or self.replayed.passed) and not self.attacked.refuted

    def __str__(self) -> str:
        promise, found = self.guarantee, self.attacked
        lines = [
            f"Audit of {self.subject}: {'nothing contradicts the promise' if self.passed else 'THE PROMISE IS FALSE'}",
            *(_folded("attacked", self.mechanism) if self.mechanism else ()),
            f"  promised             ({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}",
            f"  claimed epsilon      {found.claimed:.4f} at delta {found.delta:g}, by "
            f"{'the charged event' if self.replayed else 'its own words'}",
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
            f"epsilon is {found.alarm.epsilon:.4f} or more, beyond 1e-6 of doubt"
        )
        if self.twin is not None:
            caught = "caught" if self.twin.refuted else "NOT caught: too few runs to see such an error"
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
        """Write the report as a page for people; needs the extra ``report``."""
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
    """Audit an estimator's configuration on invented worst-case data; its own training data is not needed.

    Parameters
    ----------
    estimator : unfitted or fitted private estimator; its parameters are used, its coefficients are not.
    runs : runs on each of the two data sets.
    delta, confidence : of the lower bound on epsilon.
    seed : for repeatable noise; None attacks the real noise. The replay and the twin are always seeded.
    with_twin : whether to attack the same configuration with half of the noise too, to show that it is noticed.
    others : how many records stand around the canary, where the loss needs them.
    share : part of the noise that is kept; less than 1 audits a broken copy, and needs a seed.

    Examples
    --------
    >>> from discreet import PrivateLinearSVC
    >>> report = audit(PrivateLinearSVC(epsilon=1.0, delta=1e-2), runs=200, seed=0)
    >>> report.passed, report.attacked.bound.epsilon <= report.attacked.claimed
    (True, True)
    """
    options: dict[str, Any] = {"delta": delta, "confidence": confidence, "seed": seed, "share": share}
    subject = subjects.of(estimator, others)
    named = dataclasses.replace(subject, name=f"{subject.name}, solver {_name(estimator)}")
    return audit_subject(named, runs=runs, with_twin=with_twin, **options)


def audit_subject(
    subject: subjects.Subject, *, runs: int = 2000, with_twin: bool = False, **options: Any
) -> AuditReport:
    """Audit a mechanism, stream, recommender or model on the neighbors that its subject names.

    ``options`` are delta, confidence, seed and share as for `audit`.
    """
    seed = options.pop("seed", None)
    twin = {**options, "share": 0.5, "seed": 0 if seed is None else seed}
    return AuditReport(
        subject=subject.name,
        guarantee=subject.guarantee,
        replayed=replay(subject.program, *subject.strained),
        attacked=attacked(subject, runs, seed=seed, **options),
        twin=attacked(subject, runs, **twin) if with_twin else None,
        mechanism=getattr(getattr(subject.first, "plan", None), "mechanism", ""),
    )


def audit_program(command: Sequence[str], *, runs: int = 2000, confidence: float = 0.95) -> AuditReport:
    """Audit a program of somebody else, in any language, from outside: only what it releases is seen.

    The command is called once, with the number of runs as its last argument. It prints one line of JSON with what it
    claims, ``{"name": ..., "epsilon": ..., "delta": ..., "relation": "replace-one"}``, and then one line for every run,
    ``[side, [numbers]]``: what it released on the first (0) or the second (1) of two neighbors that it chose itself,
    as often on both. Which neighbors strain it, and which numbers show that, is for whoever writes those lines to know.

    Parameters
    ----------
    command : words of the command; it is run, so it must be trusted.
    runs : runs on each of the two data sets.
    confidence : of the lower bound on epsilon, at the delta that is claimed.

    Raises
    ------
    ValueError
        The command failed, or printed something else.
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
        told, *lines = (json.loads(line) for line in done.stdout.splitlines() if line.strip())
        promise = Guarantee(float(told["epsilon"]), float(told["delta"]), Neighboring(told["relation"]))
        sides = [np.array([numbers for side, numbers in lines if side == place], float) for place in (0, 1)]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"the program must print its claim and then one line of JSON for every run: {error}"
        ) from None
    if min(map(len, sides)) < FEWEST or any(side.ndim != 2 or not np.isfinite(side).all() for side in sides):
        raise ValueError(f"the program must print finite numbers, {FEWEST} runs or more on either side")
    seen = Evidence("released numbers", PROJECTION, (sides[0], sides[1]), None, None)
    found = judged(seen, promise.epsilon, delta=promise.delta, confidence=confidence)
    return AuditReport(printable(told.get("name", command[0])), promise, None, found)


def page(report: AuditReport) -> str:
    """The report as an HTML page with its picture, which needs no network; needs the extra ``report``."""
    return _page(report).html()


def _page(report: AuditReport) -> Page:
    """One verdict, what was tried, what was not; the printed report is folded below."""
    from discreet.display import charts

    out, found, one = Page(report.subject, "Audit"), report.attacked, ONE[report.guarantee.unit]
    best = max(found.bound.epsilon, 0.0 if found.exact is None else found.exact.epsilon)
    if report.passed:
        out.verdict(
            "Nothing contradicts the promise.",
            f"{found.runs} runs on each of two data sets that differ in {one} were attacked. They show an epsilon of "
            f"at least {best:.3g} at delta {found.delta:g}, where the promise allows {found.claimed:.3g}. An attack "
            "that fails proves nothing: the proof of the promise is mathematical.",
            "good",
        )
    else:
        out.verdict("THE PROMISE IS FALSE.", "Do not release what this configuration computes.", "bad")
    promise = report.guarantee
    out.facts(
        {
            "Promised": in_short(promise),
            "Attacker saw": found.sees,
            "Confidence": f"{found.bound.confidence:.0%}; a false alarm has probability 1e-6 at most",
            "Data": f"invented: the worst two data sets that theory knows, which differ in {one}",
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
        "What the attacker saw on the two data sets: the more they overlap, the less can be told.",
    )
    out.heading("What was not tried")
    out.items(f"{text[0].upper()}{text[1:]}." for text in NOT_SEEN)
    with out.folded("The printed report"):
        out.preformatted(str(report))
    return out


def _shown(report: AuditReport) -> list[Bar]:
    """Epsilon at the delta of the attack: claimed, and shown to be at least."""
    found = report.attacked
    numbers = [("promised", found.claimed, "at most"), ("shown by guessing", found.bound.epsilon, "at least")]
    if found.exact is not None:
        numbers.append(("shown by exact likelihoods", found.exact.epsilon, "at least"))
    if report.twin is not None:
        numbers.append(("half-noise twin", report.twin.alarm.epsilon, "at least; must exceed the promise"))
    return [Bar(name, value, f"{value:.3f}", note=note) for name, value, note in numbers]


def _tried(report: AuditReport) -> list[tuple[str, str, str]]:
    """Every check, in words, with its result."""
    found, replayed = report.attacked, report.replayed
    lines = [
        (
            "attack",
            f"{SEEN.format(SIGHTS[found.sees])[0].upper()}{SEEN.format(SIGHTS[found.sees])[1:]}. Runs are told apart "
            f"by {found.score}.",
            "alarm RAISED" if found.refuted else "no alarm",
        )
    ]
    if replayed is not None:
        lines.append(
            (
                "replay",
                "The mechanisms ran on two data sets that differ as much as they can. What differed must not exceed "
                "what the proof declares.",
                f"{'passed' if replayed.passed else 'FAILED'}, {replayed.worst_ratio:.1%} of the limit",
            )
        )
    if report.twin is not None:
        lines.append(
            (
                "half-noise twin",
                "Would a mistake have been noticed? The same attack on a copy that adds half of the noise.",
                "caught" if report.twin.refuted else "NOT caught: too few runs to see such an error",
            )
        )
    return lines


def _binned(found: Attack, bins: int) -> tuple[Any, list[Any]]:
    """Left edges, and counts of the scores on either data set; the outermost bins hold what lies beyond."""
    low, high = np.quantile(np.concatenate(found.scores), [0.002, 0.998])
    counts = [
        np.histogram(np.clip(part, low, high), bins=bins, range=(low, high))[0] for part in found.scores
    ]
    return np.linspace(low, high, bins, endpoint=False).round(6), counts


def histogram(found: Attack) -> str:
    """The scores on either data set as two rows of bars: what the attacker has to tell apart."""
    counts = _binned(found, _COLUMNS)[1]
    tallest = max(1, max(int(part.max()) for part in counts))
    bars = " ▁▂▃▄▅▆▇█"
    rows = ["".join(bars[int(np.ceil(8 * count / tallest))] for count in part) for part in counts]
    return f"  scores, with record  |{rows[0]}|\n  scores, neighbor     |{rows[1]}|"


def bars(report: AuditReport) -> str:
    """Claimed and shown epsilon as two rows of bars."""
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


def _name(estimator: Any) -> str:
    solver = getattr(estimator, "solver", "")
    return repr(solver) if isinstance(solver, str) else repr(getattr(solver, "name", type(solver).__name__))
