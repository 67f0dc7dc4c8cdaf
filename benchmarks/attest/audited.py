"""The table of audits, row by row: claim, replay and, where asked for, attack.

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
from discreet.audit.replay import replay
from discreet.audit.subjects import DELTA, Subject
from discreet.card.attestation import claim


def audited(jobs: int, write: bool, **limits: Any) -> list[dict[str, Any]]:
    """Claim, replay and, where asked for, attack of every row of the table, by several processes.

    With ``write`` rows that were attacked are kept in the table.
    """
    units, lines = audit.units(), []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for found in pool.map(_unit, units, [limits] * len(units)):
            rows = [row for _, row in found if row is not None]
            if write and rows:
                audit.keep(rows)
            lines += [line for line, _ in found]
    return lines


def _unit(unit: str, limits: Mapping[str, Any]) -> list[tuple[dict[str, Any], Row | None]]:
    warnings.simplefilter("ignore")
    stored = audit.stored_rows()
    return [_line(subject, stored, **limits) for subject in audit.subjects([unit])]


def _line(
    subject: Subject,
    stored: Mapping[tuple[str, str], Mapping[str, str]],
    *,
    runs: int,
    seconds: float,
    every: bool,
) -> tuple[dict[str, Any], Row | None]:
    line: dict[str, Any] = {"claims": claim(subject.name, subject.event, DELTA, subject.relation)}
    seen = replay(subject.program, *subject.strained)
    line["replays"] = {
        "subject": subject.name,
        "relation": subject.relation.value,
        "passed": bool(seen.passed),
        "ratio": float(seen.worst_ratio),
    }
    if not every and audit.is_stored(subject, stored):
        return line, None
    found = row(subject, runs=runs, seconds=seconds)
    return {**line, "attacks": _attacked(found)}, found


def _attacked(found: Row) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "relation": found.relation,
        "claimed": found.claimed,
        "pair": found.pair,
        "shown": max(found.empirical, found.exact or 0.0),
        "half_noise": found.half_noise,
        "runs": found.runs,
        "sound": found.sound,
        "caught": found.caught,
        "note": found.note,
    }
