"""Mechanisms and classifiers replayed and attacked at epsilon 1, delta 0.01, and attacked again with half their noise.

Run ``python -m benchmarks.audit`` (or ``make audit``): under an hour on two cores. ``--quick`` takes a few minutes and
is too short to catch every twin; solver names, as in ``python -m benchmarks.audit objective``, restrict the table.
Exits with 1 if a claim was contradicted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from discreet.audit.table import Row, as_text, estimator_row, estimators, mechanism_rows


def measure(
    runs: int = 4000,
    twin_runs: int = 6000,
    others: int = 300,
    *,
    seconds: float = 120.0,
    solvers: Sequence[str] = (),
    progress: bool = False,
) -> list[Row]:
    """One row for each mechanism and for each pair of classifier and solver, under two relations."""
    rows = mechanism_rows(max(1000, 5 * runs))
    for estimator in estimators(only=solvers):
        begin = time.perf_counter()
        rows.append(estimator_row(estimator, runs=runs, twin_runs=twin_runs, others=others, seconds=seconds))
        if progress:
            print(
                f"{rows[-1].subject}, {rows[-1].relation}: {time.perf_counter() - begin:.0f} s",
                file=sys.stderr,
            )
    return rows


def main() -> int:
    """Print the table."""
    solvers = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    quick = {"runs": 300, "twin_runs": 600, "others": 60} if "--quick" in sys.argv[1:] else {}
    rows = measure(**quick, seconds=20.0 if quick else 120.0, solvers=solvers, progress=True)
    print(as_text(rows))
    unsound = [row.subject for row in rows if not row.sound]
    missed = [row.subject for row in rows if not row.caught]
    print(f"\n{len(rows) - len(unsound)} of {len(rows)} claims uncontradicted", *unsound, sep="\n  NOT: ")
    print(f"{len(rows) - len(missed)} of {len(rows)} half-noise twins caught", *missed, sep="\n  not: ")
    return 1 if unsound else 0


if __name__ == "__main__":
    raise SystemExit(main())
