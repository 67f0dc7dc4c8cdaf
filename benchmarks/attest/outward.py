"""The audit turned outward: violations that are public, found again from outside, and controls that stay quiet.

Run ``python -m benchmarks.attest.outward --write`` (a few minutes; peers are installed once, see
`benchmarks.papers.peers`). Names of cases restrict it. Exits with 1 if a reported violation is not found, or a control
is refuted. Reports are those of the libraries' own trackers.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attest.peer_programs import CASES
from benchmarks.papers import peers
from discreet._files import write_atomically
from discreet.audit.report import audit_program

RESULTS = Path(__file__).parents[1] / "results" / "outward.md"
_WORKER = Path(__file__).with_name("peer_programs.py")


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
    """Run a case in its peer's environment and attack what it prints."""
    _, environment, report = CASES[case]
    try:
        python = peers.interpreter(environment, peers.ENVIRONMENTS[environment])
        found = audit_program([str(python), str(_WORKER), case], runs=runs)
    except (peers.PeerFailed, ValueError) as error:
        return Found(case, environment, 0.0, 0.0, 0.0, 0, report, str(error))
    attacked = found.attacked
    return Found(
        case, found.subject, attacked.claimed, attacked.delta, attacked.alarm.epsilon, attacked.runs, report
    )


def as_text(rows: Sequence[Found], when: str) -> str:
    """The page in Markdown."""
    lines = [
        "# The audit turned outward",
        "",
        f"Written by `python -m benchmarks.attest.outward --write`, {when}. What each program does, and why its",
        "neighbors strain it, is in `benchmarks/attest/peer_programs.py`. Shown: epsilon is at least this, beyond 1e-6",
        "of doubt. Public: issues in the library's own tracker; controls have none.",
        "",
        "| program | case | claimed | delta | shown | runs | verdict | public |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = row.trouble or ("FALSE" if row.refuted else "not refuted")
        cells = [
            row.program,
            row.case,
            f"{row.claimed:.3f}",
            f"{row.delta:g}",
            f"{row.shown:.3f}",
            str(row.runs),
        ]
        lines.append("| " + " | ".join([*cells, verdict, row.report or "control"]) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attest.outward", description="audit peers")
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = [audited(case, arguments.runs) for case in arguments.cases or CASES]
    text = as_text(rows, datetime.datetime.now(datetime.UTC).date().isoformat())
    if arguments.write:
        write_atomically(RESULTS, text.encode())
    print(text)
    return 0 if all(row.expected for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
