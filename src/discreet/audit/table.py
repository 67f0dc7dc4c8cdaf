"""The table of everything audited: each subject replayed, attacked, and attacked again with half of its noise."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from discreet.audit import shipped, subjects
from discreet.audit.replay import replay
from discreet.audit.subjects import Subject, attacked, released
from discreet.privacy.guarantee import Neighboring

RELATIONS = (Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT)
_FEWEST = 60  # runs, below which nothing can be said


@dataclass(frozen=True)
class Row:
    """One audited thing.

    Attributes
    ----------
    subject, relation : what was audited, under which relation.
    replay : "passed", or the checks that failed.
    ratio : largest observed over declared distance on the worst pair known.
    claimed : epsilon of the charged event at the delta of the audit.
    empirical : lower bound from released numbers at 95% confidence.
    inside : lower bound from exact likelihood ratios, where they are known.
    worst_case : "known" where theory knows the worst pair.
    runs : on each of the two neighbors.
    half_noise : the alarm (confidence 1 - 1e-6) on the twin with half of the noise.
    twin_runs : on each of the two neighbors.
    caught : whether that alarm exceeds the claim.
    """

    subject: str
    relation: str
    replay: str
    ratio: float
    claimed: float
    empirical: float
    inside: float | None
    worst_case: str
    runs: int
    half_noise: float
    twin_runs: int
    caught: bool

    @property
    def sound(self) -> bool:
        """Whether nothing contradicts the claim."""
        return (
            self.replay == "passed"
            and self.claimed > 0
            and self.ratio <= 1 + 1e-9
            and self.empirical <= self.claimed
        )


def parts(solvers: Sequence[str] = (), others: int = 1000) -> dict[str, Iterator[Subject]]:
    """All subjects by part; ``solvers`` restricts the classifiers to some solvers."""
    from discreet import solvers as package
    from discreet.solvers import base

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"discreet.solvers.{module.name}")
    return {
        "mechanisms": shipped.mechanisms(),
        "streams": shipped.streams_and_users(),
        "regressors": subjects.regressors(RELATIONS),
        "classifiers": subjects.classifiers(RELATIONS, list(solvers) or base.names(), others),
    }


def named(name: str) -> Subject:
    """The subject whose name is, or begins with, ``name``; without regard to case."""
    wanted = name.lower()
    for kind in subjects.LINEAR_MODELS:
        if kind.lower() == wanted:
            return next(subject for subject in subjects.regressors(RELATIONS[:1], [kind]))
    for subject in (*shipped.mechanisms(), *shipped.streams_and_users()):
        if subject.name.lower().startswith(wanted):
            return subject
    raise ValueError(
        f"nothing named {name!r} is known to the audit: give a model file, logistic, svm, "
        f"{', '.join(subjects.LINEAR_MODELS)}, or a mechanism, stream or recommender of benchmarks/results/audit.md"
    )


def row(subject: Subject, *, runs: int, twin_runs: int, seconds: float, seed: int = 0) -> Row:
    """Replay one subject, attack it and its half-noise twin.

    ``seconds`` limits the time of each of the two attacks: where a run is slow, fewer are made.
    """
    seen = replay(subject.program, *subject.strained)
    most = _affordable(subject, seconds)
    runs, twin_runs = (max(_FEWEST, min(wanted, most)) for wanted in (runs, twin_runs))
    found = attacked(subject, runs, seed=seed)
    twin = attacked(subject, twin_runs, seed=seed + 2, share=0.5)
    return Row(
        subject=subject.name,
        relation=subject.relation.value,
        replay="passed" if seen.passed else ", ".join(sorted(seen.failed_checks)),
        ratio=seen.worst_ratio,
        claimed=found.claimed,
        empirical=found.bound.epsilon,
        inside=None if found.exact is None else found.exact.epsilon,
        worst_case="known" if subject.exact else "",
        runs=runs,
        half_noise=twin.alarm.epsilon,
        twin_runs=twin_runs,
        caught=twin.refuted,
    )


def as_text(rows: Sequence[Row]) -> str:
    """The table in Markdown."""
    names = [field.name.replace("_", " ") for field in fields(Row)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(value) for value in astuple(line)) + " |" for line in rows]
    return "\n".join(lines)


def _affordable(subject: Subject, seconds: float) -> int:
    """How many runs per data set fit into the time; the first run compiles and is not counted."""
    released(subject.run, subject.first, 2, seed=0)
    begin = time.process_time()
    released(subject.run, subject.first, 10, seed=0)
    return int(min(1e9, seconds / 2 / max(1e-6, (time.process_time() - begin) / 10)))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)
