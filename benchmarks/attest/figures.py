"""Figures of killed ledger writers and of hostile inputs, dated: benchmarks/results/faults.json and faults.md.

Run ``python -m benchmarks.attest.figures`` (ten thousand kills, a hundred thousand inputs; half an hour on one core).
Names of parts (kills, inputs) restrict it; the other part stays as it was.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.attest import build, faults, fuzz
from discreet._files import write_atomically

RESULTS = Path(__file__).parents[1] / "results" / "faults.json"


def stored() -> dict[str, Any]:
    """The figures that were measured last, by part."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


def as_text(figures: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    lines = [
        "# Faults and hostile inputs",
        "",
        "Written by `python -m benchmarks.attest.figures`. What is done is described in `benchmarks/attest/faults.py`",
        "and `benchmarks/attest/fuzz.py`.",
    ]
    if "kills" in figures:
        lines += _killed(figures["kills"])
    if "inputs" in figures:
        lines += _hostile(figures["inputs"])
    return "\n".join(lines) + "\n"


def _killed(found: Mapping[str, Any]) -> list[str]:
    left_out = [f"Left out: {found['left_out']}."] if found["left_out"] else []
    return [
        *("", "## Killed writers of a ledger", "", f"{found['when']}; {found['seconds']:.0f} s.", ""),
        f"{found['kills']} times a writer, or two at once, was killed: {found['acknowledged']} charges acknowledged, "
        f"{found['unacknowledged']} written and not acknowledged, {found['refused']} refused by the file system. Lost: "
        f"{found['lost']}. Ledgers damaged: {found['damaged']}.",
        f"Beyond the cap: {found['beyond_cap']}.",
        *left_out,
        *("", "| trouble | kills |", "|---|---|"),
        *(f"| {name} | {count} |" for name, count in sorted(found["kinds"].items())),
    ]


def _hostile(found: Mapping[str, Any]) -> list[str]:
    names = sorted({*found["refused"], *found["accepted"]})
    return [
        *("", "## Fuzzed inputs and hostile files", "", f"{found['when']}; {found['seconds']:.0f} s.", ""),
        f"{found['cases']} cases; met with neither a clear error nor a result: {found['n_surprises']}.",
        *("", "| input | refused | accepted |", "|---|---|---|"),
        *(
            f"| {name} | {found['refused'].get(name, 0)} | {found['accepted'].get(name, 0)} |"
            for name in names
        ),
        *(["", *(f"* {text}" for text in found["surprises"])] if found["surprises"] else ()),
    ]


def main() -> int:
    """Measure and write; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attest.figures", description="faults")
    parser.add_argument("parts", nargs="*", help="kills, inputs (default: both)")
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    figures = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    for part in arguments.parts or ("kills", "inputs"):
        load = os.getloadavg()[0]
        found = faults.kills(arguments.kills) if part == "kills" else fuzz.fuzz(arguments.inputs)
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        commit = (build.commit() or "unknown")[:12]
        when = f"{day}, commit {commit}, Python {platform.python_version()}, load {load:.0f} at the start"
        figures[part] = {"when": when, **found.to_dict()}
        write_atomically(arguments.output, json.dumps(figures, indent=1).encode())
        write_atomically(arguments.output.with_suffix(".md"), as_text(figures).encode())
    print(as_text(figures))
    return 0 if all(part["passed"] for part in figures.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
