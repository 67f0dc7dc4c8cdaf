"""Figures of killed ledger writers and of hostile inputs, dated, in benchmarks/results/faults.md.

Run ``python -m benchmarks.attest.figures`` (ten thousand kills, a hundred thousand inputs; half an hour on one core).
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from pathlib import Path

from benchmarks.attest import build, faults, fuzz
from discreet._files import write_atomically

RESULTS = Path(__file__).parents[1] / "results" / "faults.md"


def as_text(killed: faults.Kills, hostile: fuzz.Fuzzed, when: str) -> str:
    """The page in Markdown."""
    kinds = "\n".join(f"| {name} | {count} |" for name, count in sorted(killed.kinds.items()))
    names = sorted({*hostile.refused, *hostile.accepted})
    inputs = "\n".join(
        f"| {name} | {hostile.refused.get(name, 0)} | {hostile.accepted.get(name, 0)} |" for name in names
    )
    surprises = "\n".join(f"* {text}" for text in hostile.surprises)
    return (
        f"""# Faults and hostile inputs

Written by `python -m benchmarks.attest.figures`, {when}. What is done is described in `benchmarks/attest/faults.py`
and `benchmarks/attest/fuzz.py`.

## Killed writers of a ledger

{killed.kills} times a writer, or two at once, was killed: {killed.acknowledged} charges were acknowledged,
{killed.unacknowledged} written and not acknowledged, {killed.refused} refused by the file system.
Lost: {killed.lost}. Ledgers damaged: {killed.damaged}. Beyond the cap: {killed.beyond_cap}.
Time: {killed.seconds:.0f} s.{" Left out: " + killed.left_out + "." if killed.left_out else ""}

| trouble | kills |
|---|---|
{kinds}

## Fuzzed inputs and hostile files

{hostile.cases} cases; met with neither a clear error nor a result: {hostile.n_surprises}.
Time: {hostile.seconds:.0f} s.

| input | refused | accepted |
|---|---|---|
{inputs}

{surprises}""".rstrip()
        + "\n"
    )


def main() -> int:
    """Measure and write; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attest.figures", description="faults")
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    killed, hostile = faults.kills(arguments.kills), fuzz.fuzz(arguments.inputs)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    when = f"{day}, commit {(build.commit() or 'unknown')[:12]}, Python {platform.python_version()}, load {load:.0f}"
    write_atomically(arguments.output, as_text(killed, hostile, when).encode())
    print(as_text(killed, hostile, when))
    return 0 if killed.passed and hostile.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
