"""The table of audits, row by row: claim, replay and attack.

Processes that are started afresh cannot see what `__main__` defines, so that their work has a module of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks import audit
from benchmarks.audit_rows import Row, row
from discreet.audit.subjects import DELTA, Subject
from discreet.card.attestation import claim


def audited(jobs: int, write: bool, **limits: Any) -> list[dict[str, Any]]:
    """Claim, replay and attack of every row of the table, by several processes; with ``write`` rows are kept in it."""
    units, lines = audit.units(), []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for found in pool.map(_unit, units, [limits] * len(units)):
            if write:
                audit.keep([row for _, row in found])
            lines += [line for line, _ in found]
    return lines


def _unit(unit: str, limits: Mapping[str, Any]) -> list[tuple[dict[str, Any], Row]]:
    warnings.simplefilter("ignore")
    return [_line(subject, **limits) for subject in audit.subjects([unit])]


def _line(subject: Subject, **limits: Any) -> tuple[dict[str, Any], Row]:
    found = row(subject, **limits)
    told = {"subject": subject.name, "relation": subject.relation.value}
    attack = {
        "claimed": found.claimed,
        "pair": found.pair,
        "shown": max(found.empirical, found.exact or 0.0),
        "half_noise": found.half_noise,
        "runs": found.runs,
        "sound": found.sound,
        "caught": found.caught,
        "note": found.note,
    }
    line = {
        "claims": claim(subject.name, subject.event, DELTA, subject.relation),
        "replays": {**told, "passed": found.replay == "passed", "ratio": float(found.ratio)},
        "attacks": {**told, **attack},
    }
    return line, found
