"""Our own claims attacked: what an adversary proves about epsilon, beside what was promised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run

_DELTA = 1e-2
_RUNS, _SECONDS = 2000, 3.0  # of each attack; `make audit` takes longer


@dataclass(frozen=True)
class Audits:
    """Lower bounds on epsilon for everything that is shipped, and for its twins with half of the noise."""

    name: str = "audit"
    title: str = "Audits: epsilon proved by an attack, beside the claim (delta 0.01)"
    axis: str = ""
    quick: Sequence[str] = ("GaussianMechanism", "LaplaceMechanism")
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def runs(self, effort: Effort) -> Iterator[Run]:
        """All subjects of the audit; two mechanisms if it should be quick."""
        from benchmarks.audit_parts import parts
        from discreet.audit.catalog import named

        made: Iterator[Any] = map(named, self.quick) if effort.quick else _all(parts())
        for subject in made:
            row = Row(
                self.name,
                f"{subject.name}, {subject.relation.value}",
                "attack",
                1.0,
                0,
                "invented",
                metric="epsilon",
                quick=effort.quick,
            )
            yield Run(row, lambda r=row, s=subject: _run(r, s))  # type: ignore[misc]


def _all(parts: Mapping[str, Iterator[Any]]) -> Iterator[Any]:
    for subjects in parts.values():
        yield from subjects


def _run(row: Row, subject: Any) -> Row:
    from benchmarks.audit_rows import row as audited

    found = audited(subject, runs=300 if row.quick else _RUNS, seconds=_SECONDS)
    return replace(
        row,
        value=max(found.empirical, found.exact or 0.0),
        promise={"epsilon": found.claimed, "delta": _DELTA, "neighboring": found.relation},
        extra={
            "runs": found.runs,
            "sees": found.sees,
            "replay": found.replay,
            "distance over declared": found.ratio,
            "half noise": found.half_noise,
            "caught": found.caught,
            "sound": found.sound,
            "note": found.note,
        },
    )
