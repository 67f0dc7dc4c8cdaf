"""Everything that is shipped, replayed and attacked at epsilon 1, delta 0.01, and attacked again with half its noise.

Run ``python -m benchmarks.audit`` (or ``make audit``): under an hour on two cores. ``--quick`` takes a few minutes and
is too short to catch every twin. Names of parts (mechanisms, streams, workflow, transfer, recommenders, regressors,
classifiers, variants) or of solvers restrict it, ``--seconds S`` bounds the processor time of a row's attack,
``--write`` keeps the rows in benchmarks/results/audit.md, where rows about other things stay. Exits with 1 if a claim
was contradicted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.audit_parts import parts
from benchmarks.audit_relations import REFUSED
from benchmarks.audit_rows import ATTAINED, CONFIDENCE, Row, as_text, row
from benchmarks.audit_variants import variants
from discreet._files import write_atomically
from discreet.audit.subjects import Subject
from discreet.solvers import base

RESULTS = Path(__file__).parent / "results" / "audit.md"
_HEAD = """# Audit

Written by `python -m benchmarks.audit --write`. Claims are epsilons of the charged events at delta 0.01; columns are
explained in `benchmarks/audit_rows.py`, the attack on transcripts in `docs/audit.md`. Bounds have a confidence of
99.99% each. "pair" is the epsilon of the program on the pair that was attacked, where it can be computed. Where "worst
case" is blank it is less than the claim, or the pair was searched for: there a small number says nothing, neither for
the mechanism nor against it.
"""
_TAIL = """
## Without a row

Solvers refuse some relations, for reasons that `matrix.md` counts. A logistic loss, whose pairs only come close, is
tried under the first relation that its solver plans for, and most sets under one: what a relation changes is not the
set. Mechanisms know no relation.
"""


def measure(
    runs: int = 6000,
    others: int = 300,
    *,
    seconds: float = 40.0,
    only: Sequence[str] = (),
    match: str = "",
    progress: bool = False,
    write: bool = False,
) -> list[Row]:
    """One row for each subject; ``only`` names parts, or solvers of the classifiers, ``match`` a part of the name.

    With ``write`` rows are kept as they come.
    """
    rows = []
    begin = time.process_time()
    for subject in subjects(only, others, match):
        made = time.process_time() - begin  # the search for its pair
        line = row(subject, runs=runs, seconds=seconds)
        rows.append(replace(line, seconds=line.seconds + made))
        if write:
            keep(rows[-1:])
        if progress:
            last = rows[-1]
            print(f"{last.subject}, {last.relation}: {last.seconds:.0f} s", file=sys.stderr, flush=True)
        begin = time.process_time()
    return rows


def subjects(only: Sequence[str] = (), others: int = 300, match: str = "") -> Iterator[Subject]:
    """The subjects of all parts, or of those that ``only`` names; see `measure`."""
    known = {*parts(others=others), "variants"}
    solvers = [name for name in only if name not in known]
    chosen = [name for name in known if name in only] + (["classifiers"] if solvers else [])
    for part, made in {**parts(solvers, others, match), "variants": variants(match)}.items():
        if not only or part in chosen:
            yield from (subject for subject in made if match in subject.name)


def units() -> list[str]:
    """What processes take one after the other: the next part, of the classifiers the next solver."""
    named = parts()  # registers every solver
    return ["variants", *(name for name in named if name != "classifiers"), *reversed(base.names())]


def stored_rows() -> dict[tuple[str, str], dict[str, str]]:
    """Cells of the stored rows, by subject and relation."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    cells = [_cells(line) for line in lines if line.startswith("| ") and _key(line)[0] not in _TOP]
    return {(row["subject"], row["relation"]): row for row in cells}


def _cells(line: str) -> dict[str, str]:
    names = [field.name for field in fields(Row)]
    return dict(zip(names, (cell.strip() for cell in line.split("|")[1:-1]), strict=True))


def side_by_side(jobs: int, only: Sequence[str], write: bool, **limits: Any) -> list[Row]:
    """The same with several processes; each takes the next of the `units`."""
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        work = [pool.submit(measure, only=[unit], progress=True, **limits) for unit in only or units()]
        for done in as_completed(work):
            rows += done.result()
            if write:
                keep(done.result())
    return rows


def keep(rows: Sequence[Row]) -> None:
    """Write the rows in place of earlier ones about the same things, under what all of them show and took together."""
    lines = as_text(rows).splitlines()
    old = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    body = {
        _key(line): line
        for line in old
        if line.count("|") == lines[0].count("|") and _key(line)[0] not in _TOP
    }
    body |= {_key(line): line for line in lines[2:]}
    text = (
        "\n".join(
            [
                *(_HEAD, _summary(list(body.values())), "", *lines[:2], *(body[key] for key in sorted(body))),
                *(
                    _TAIL,
                    *(f"* {name}, {relation.value}: {why}." for (name, relation), why in REFUSED.items()),
                ),
            ]
        )
        + "\n"
    )
    write_atomically(RESULTS, text.encode())


_TOP = ("subject", "---")


def _summary(lines: Sequence[str]) -> str:
    """What the rows show together, and how long they took: each was timed by itself, the sum is that of one core."""
    cells = [_cells(line) for line in lines]
    total = sum(float(cell["seconds"]) for cell in cells)
    caught = sum(cell["caught"] == "yes" for cell in cells)
    passed = sum(cell["replay"] == "passed" for cell in cells)
    near = sum(float(cell["ratio"]) >= ATTAINED for cell in cells)
    shown = [_seen(cell) / float(cell["claimed"]) for cell in cells]
    worst = [part for part, cell in zip(shown, cells, strict=True) if cell["worst_case"]]
    others = [part for part, cell in zip(shown, cells, strict=True) if not cell["worst_case"]]
    return (
        f"{len(cells)} rows: {passed} replays passed, {near} reach {ATTAINED} of the declared distance, {caught} "
        f"half-noise twins were caught.\nMore than the claim is shown by {_more(shown, 1.0)}, more than half of it by "
        f"{_more(worst, 0.5)} of {len(worst)} rows whose worst case is attained and by {_more(others, 0.5)} of "
        f"{len(others)} others.\nAll bounds hold together with a confidence of at least "
        f"{1 - 3 * len(cells) * (1 - CONFIDENCE):.0%}.\n"
        f"Processor time: {total / 60:.0f} minutes, on two cores {total / 120:.0f} minutes."
    )


def _more(parts: Sequence[float], least: float) -> int:
    return sum(part > least for part in parts)


def _seen(cell: dict[str, str]) -> float:
    return max(float(cell["empirical"]), float(cell["exact"] or 0.0))


def _key(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.split("|")[1:3])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="attack and replay what is shipped")
    parser.add_argument("only", nargs="*", help="parts or solvers")
    parser.add_argument("--match", default="", help="a part of the subject's name")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    limits: dict[str, Any] = {
        "runs": 600 if arguments.quick else 6000,
        "seconds": arguments.seconds or (1.0 if arguments.quick else 40.0),
        "match": arguments.match,
    }
    if arguments.jobs > 1:
        rows = side_by_side(arguments.jobs, arguments.only, arguments.write, **limits)
    else:
        rows = measure(only=arguments.only, write=arguments.write, progress=True, **limits)
    print(as_text(rows))
    unsound = [f"{line.subject}, {line.relation}" for line in rows if not line.sound]
    missed = [f"{line.subject}, {line.relation}" for line in rows if not line.caught]
    print(f"\n{len(rows) - len(unsound)} of {len(rows)} claims uncontradicted", *unsound, sep="\n  NOT: ")
    print(f"{len(rows) - len(missed)} of {len(rows)} half-noise twins caught", *missed, sep="\n  not: ")
    return 1 if unsound else 0


if __name__ == "__main__":
    raise SystemExit(main())
