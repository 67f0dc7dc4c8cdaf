"""The table of everything audited: each subject replayed, attacked, and attacked again with half of its noise."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from discreet.audit import programs, shipped, subjects
from discreet.audit.attack import Attack
from discreet.audit.replay import Replay, replay
from discreet.audit.subjects import Subject, attacked
from discreet.privacy.guarantee import Neighboring

RELATIONS = (Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT)
_KINDS = {  # beginnings of the names in every part: a part is not made to find out that a name is not in it
    "mechanisms": (
        *("gaussianmech", "laplace", "gammanorm", "symmetric", "exponentialmech", "leveled", "stable"),
        *("sparsevector", "noisyplurality", "confidentplurality", "treemech"),
    ),
    "streams": ("privateftrl", "privateonlinelinear"),
    "workflow": (
        *("private_quantiles", "private_norm_bound", "private_domains", "evaluate", "coefficient_intervals"),
        *("privatesearchcv", "privatemedian", "gridwalk"),
    ),
    "transfer": ("privatetransfer", "privatelabeler", "private_error_rate"),
    "recommenders": ("privatematrixcompletion",),
    "classifiers": ("privatelinearsvc", "privatelogisticregression"),
}
_ALIASES = {"privateselection": "privatesearchcv"}
#: Parts of the runs and of the time with which a twin is attacked until it is caught.
LOOKS = (1 / 12, 1 / 3, 1.0)


@dataclass(frozen=True)
class Row:
    """One audited thing.

    Attributes
    ----------
    subject, relation : what was audited, under which relation.
    replay : "passed", or the checks that failed.
    ratio : largest observed over declared distance on the worst pair known.
    worst_case : "attained" where all inputs of mechanisms are that far apart, or theory knows no worse pair.
    claimed : epsilon of the charged event at the delta of the audit.
    sees : what the attacker saw of every run: the transcript of all answers of all mechanisms, which is what the
        promise of a composition is about, or the released model.
    empirical : lower bound by a threshold on the attacker's score, at 95% confidence; presumes nothing.
    exact : lower bound from exact likelihood ratios, at 95% confidence; presumes the stated law of the noise. For
        perturbed objectives the ratio is that of the exact minimizer.
    model : lower bound for an attacker who sees only what is released, by the best linear projection.
    runs : on each of the two neighbors.
    half_noise : the alarm (confidence 1 - 1e-6) on the twin with half of the noise, attacked up to three times.
    twin_runs : on each of the two neighbors, in the last of these attacks.
    caught : whether that alarm exceeds the claim.
    seconds : processor time of the row.
    note : why the twin was not caught, or little of the claim was seen.
    """

    subject: str
    relation: str
    replay: str
    ratio: float
    worst_case: str
    claimed: float
    sees: str
    empirical: float
    exact: float | None
    model: float
    runs: int
    half_noise: float
    twin_runs: int
    caught: bool
    seconds: float
    note: str

    @property
    def sound(self) -> bool:
        """Whether nothing contradicts the claim."""
        shown = max(self.empirical, self.model, self.exact or 0.0)
        return (
            self.replay == "passed" and self.claimed > 0 and self.ratio <= 1 + 1e-9 and shown <= self.claimed
        )


def parts(solvers: Sequence[str] = (), others: int = 300, match: str = "") -> dict[str, Iterator[Subject]]:
    """All subjects by part; ``solvers`` restricts the classifiers to some solvers, ``match`` the regressors by name."""
    from discreet import solvers as package
    from discreet.solvers import base

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"discreet.solvers.{module.name}")
    kinds = [kind for kind in subjects.LINEAR_MODELS if match in kind]
    return {
        "mechanisms": shipped.mechanisms(),
        "streams": programs.streams(),
        "workflow": programs.workflow(),
        "transfer": programs.transfer(),
        "recommenders": programs.recommenders(),
        "regressors": subjects.regressors(RELATIONS, kinds),
        "classifiers": subjects.classifiers(RELATIONS, list(solvers) or base.names(), others),
    }


def named(name: str) -> Subject:
    """The subject whose name is, or begins with, ``name``; without regard to case."""
    wanted = name.lower()
    for kind in subjects.LINEAR_MODELS:
        if kind.lower() == wanted:
            return next(subject for subject in subjects.regressors(RELATIONS[:1], [kind]))
    wanted = _ALIASES.get(wanted, wanted)
    made = parts(["auto"])
    for part, kinds in _KINDS.items():
        if any(kind.startswith(wanted) or wanted.startswith(kind) for kind in kinds):
            for subject in made[part]:
                if subject.name.lower().startswith(wanted):
                    return subject
    raise ValueError(
        f"nothing named {name!r} is known to the audit: give a model file, logistic, svm, "
        f"{', '.join(subjects.LINEAR_MODELS)}, or anything else that benchmarks/results/audit.md names"
    )


def row(subject: Subject, *, runs: int, seconds: float, seed: int = 0) -> Row:
    """Replay one subject, attack it and its half-noise twin.

    ``seconds`` limits the processor time of the attack, and of the longest on the twin: where a run is slow, fewer are
    made.
    """
    begin = time.process_time()
    seen = replay(subject.program, *subject.strained)
    found = attacked(subject, runs, seed=seed, seconds=seconds)
    for look, part in enumerate(
        LOOKS
    ):  # each with runs of its own, so that each alarm is wrong once in a million
        share: dict[str, Any] = {"share": 0.5, "seconds": part * seconds, "seed": seed + 10 * (look + 1)}
        twin = attacked(subject, max(subjects.FEWEST, int(part * runs)), **share)
        if twin.refuted:
            break
    return Row(
        subject=subject.name,
        relation=subject.relation.value,
        replay="passed" if seen.passed else ", ".join(sorted(seen.failed_checks)),
        ratio=seen.worst_ratio,
        worst_case="attained" if subject.exact or _attained(seen) else "",
        claimed=found.claimed,
        sees=found.sees,
        empirical=found.bound.epsilon,
        exact=None if found.exact is None else found.exact.epsilon,
        model=found.model.epsilon,
        runs=found.runs,
        half_noise=twin.alarm.epsilon,
        twin_runs=twin.runs,
        caught=twin.refuted,
        seconds=time.process_time() - begin,
        note=_note(subject, found, twin, seen.worst_ratio),
    )


def _attained(seen: Replay) -> bool:
    """Whether every input of a mechanism was about as far from the neighbor's as declared."""
    ratios = [distance.ratio for distance in seen.distances if distance.where.startswith("call")]
    return bool(ratios) and min(ratios) >= 0.95


def _note(subject: Subject, found: Attack, twin: Attack, ratio: float) -> str:
    best = max(found.bound.epsilon, found.exact.epsilon if found.exact else 0.0)
    if twin.refuted and best > found.claimed / 2 and ratio >= 0.95:
        return ""
    if twin.refuted or subject.remark:
        return subject.remark
    if twin.exact is not None and twin.exact.epsilon > found.claimed:
        return f"{twin.exact.epsilon:.2f} of the twin is seen at 95% confidence; more than {twin.runs} runs are needed"
    return (
        f"{found.runs} runs show {best / found.claimed:.0%} of the claim, {twin.runs} of the twin "
        f"{twin.alarm.epsilon / found.claimed:.0%}: more runs or a worse pair are needed"
    )


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
