"""The audit turned outward: violations that are public, found again from outside, and controls that stay quiet.

Run ``python -m benchmarks.attest.outward --write`` (a few minutes; peers are installed once, see
`benchmarks.papers.peers`). Names of cases restrict it; with them, ``--write`` keeps the other rows. Exits with 1 if a
reported violation is not found, or a control is refuted. Reports are those of the libraries' own trackers; what papers
print is in `docs/errata.md`.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attest import paper_programs
from benchmarks.attest.peer_programs import CASES
from benchmarks.papers import peers
from discreet._files import write_atomically
from discreet.audit.report import audit_program

RESULTS = Path(__file__).parents[1] / "results" / "outward.md"
_WORKER = Path(__file__).with_name("peer_programs.py")
_CHEAP = 50  # times as many runs of what papers print, each of which takes microseconds


@dataclass(frozen=True)
class Found:
    """One case: what was claimed, what the alarm shows (confidence 1 - 1e-6), and what is public."""

    case: str
    program: str
    claimed: float
    delta: float
    shown: float
    runs: int
    report: str
    trouble: str = ""

    @property
    def refuted(self) -> bool:
        """Whether the claim is false."""
        return self.shown > self.claimed

    @property
    def expected(self) -> bool:
        """Whether it was found if and only if it is public; where a peer could not be run, nothing is said."""
        return bool(self.trouble) or self.refuted == bool(self.report)


def audited(case: str, runs: int) -> Found:
    """Run a case, of a library in its own environment, and attack what it prints."""
    if case in paper_programs.CASES:
        report = "docs/errata.md" if paper_programs.CASES[case][1] else ""
        return _attacked(case, [sys.executable, paper_programs.__file__, case], _CHEAP * runs, report)
    _, environment, report = CASES[case]
    try:
        python = peers.interpreter(environment, peers.ENVIRONMENTS[environment])
        return _attacked(case, [str(python), str(_WORKER), case], runs, report)
    except (peers.PeerFailed, ValueError) as error:
        return Found(case, environment, 0.0, 0.0, 0.0, 0, report, str(error))


def _attacked(case: str, command: Sequence[str], runs: int, report: str) -> Found:
    found = audit_program(command, runs=runs)
    seen = found.attacked
    return Found(case, found.subject, seen.claimed, seen.delta, seen.alarm.epsilon, seen.runs, report)


HEAD = """# Attacks on other libraries

Written by `python -m benchmarks.attest.outward --write`. What each program does, and why its two data sets are a hard
case, is in `benchmarks/attest/peer_programs.py` and, for what papers print, `benchmarks/attest/paper_programs.py`.
Shown: epsilon is at least this large, with a probability of error of 1e-6. Public: issues in the library's own tracker,
or our list of errata; controls have none.

| program | case | claimed | delta | shown | runs | verdict | public | date |
|---|---|---|---|---|---|---|---|---|
"""


def as_text(rows: Sequence[Found], when: str, kept: Sequence[str] = ()) -> str:
    """The page in Markdown: these rows in place of earlier ones of the same cases, which are ``kept`` otherwise."""
    lines = {line.split(" | ")[1]: line for line in kept}
    for row in rows:
        verdict = row.trouble or ("FALSE" if row.refuted else "not refuted")
        numbers = [f"{row.claimed:.3f}", f"{row.delta:g}", f"{row.shown:.3f}", str(row.runs)]
        cells = [row.program, row.case, *numbers, verdict, row.report or "control", when]
        lines[row.case] = "| " + " | ".join(cells) + " |"
    return HEAD + "\n".join(lines.values()) + "\n"


def stored() -> list[str]:
    """The rows of the page, as they are."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    return [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| program |")
    ]


ALL = (*CASES, *paper_programs.CASES)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attest.outward", description="audit peers")
    parser.add_argument("cases", nargs="*", help=", ".join(ALL))
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = [audited(case, arguments.runs) for case in arguments.cases or ALL]
    kept = stored() if arguments.cases else ()
    text = as_text(rows, datetime.datetime.now(datetime.UTC).date().isoformat(), kept)
    if arguments.write:
        write_atomically(RESULTS, text.encode())
    print(text)
    return 0 if all(row.expected for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
