"""The table of everything audited: each subject replayed, attacked, and attacked again with half of its noise."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from discreet.audit import programs, shipped, subjects, voters, workflow
from discreet.audit.attack import FEWEST, Attack, judged
from discreet.audit.evidence import claimed, gathered
from discreet.audit.replay import replay
from discreet.audit.subjects import Subject
from discreet.audit.worth import ATTAINED, attained, pair_worth
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
#: Parts of the time after which an attack's evidence is judged, and the part of the claim that is then enough.
LOOKS = ((1 / 8, 0.75), (1 / 2, 0.55), (1.0, 0.0))
#: The same for twins, which are looked at until they are caught.
TWIN_LOOKS = (1 / 64, 1 / 16, 1 / 4, 1.0)
#: Of every bound in the table, so that all of them, three in each of a hundred rows, hold together with more than 95%.
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
        "workflow": workflow.workflow(),
        "transfer": voters.transfer(),
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

    ``seconds`` limits the processor time of the attack, and of that on the twin: where a run is slow, fewer are made.
    """
    begin = time.process_time()
    seen = replay(subject.program, *subject.strained)
    pair = pair_worth(subject, subjects.DELTA)
    limits: dict[str, Any] = {"runs": runs, "seconds": seconds}

    def enough(now: Attack, part: float) -> bool:
        most = now.claimed if pair is None else min(now.claimed, pair)
        return _best(now) >= min(part * now.claimed, 0.9 * most)

    found = watched(subject, LOOKS, enough, seed=seed, **limits)
    looks = [(part, 0.0) for part in TWIN_LOOKS]
    twin = watched(subject, looks, lambda now, _: now.refuted, seed=seed + 1, share=0.5, **limits)
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
    delta, begin, evidence = subjects.DELTA, time.process_time(), None
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
