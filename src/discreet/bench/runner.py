"""Run tables, one row at a time, going on where an earlier run stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from discreet.bench.results import Results, Row
from discreet.bench.runs import Effort
from discreet.bench.tables import TABLES

_TRY_AGAIN = ("no data", "could not be installed")


def run(
    names: Iterable[str],
    folder: str | os.PathLike[str],
    *,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Run what is missing of the named tables; returns the new rows.

    Parameters
    ----------
    names : tables of `TABLES`.
    folder : where ``results.jsonl`` is kept.
    effort : how much of them. Quick rows are marked and never mixed with the others.
    tell : called with every new row.
    """
    results = Results(folder)
    done = {row.key for row in results.rows() if not row.status.startswith(_TRY_AGAIN)}
    made = []
    for name in names:
        for planned in TABLES[name].runs(effort):
            if planned.row.key in done:
                continue
            row = planned.execute()
            results.append(row)
            tell(row)
            made.append(row)
    return made
