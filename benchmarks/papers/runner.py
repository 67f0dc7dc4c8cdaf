"""Run tables, one row at a time, going on where an earlier run stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

from benchmarks.papers.results import Results, Row
from benchmarks.papers.runs import Effort
from benchmarks.papers.tables import TABLES

_TRY_AGAIN = ("no data", "could not be installed")


def _silently(row: Row) -> None:
    """Say nothing."""


def run(
    names: Iterable[str],
    folder: str | os.PathLike[str],
    *,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    tell: Callable[[Row], None] = _silently,
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
        begin = _processor_seconds()
        for planned in TABLES[name].runs(effort):
            if planned.row.key in done and not effort.again:
                continue
            row = planned.execute()
            now = _processor_seconds()
            row, begin = replace(row, seconds=round(now - begin, 3)), now
            results.append(row)
            tell(row)
            made.append(row)
    return made


def run_side_by_side(
    names: Iterable[str],
    folder: str | os.PathLike[str],
    jobs: int,
    *,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    tell: Callable[[Row], None] = _silently,
) -> list[Row]:
    """The same with ``jobs`` processes, each of which takes the next table; they append to one file."""
    made = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        work = partial(run, folder=os.fspath(folder), effort=effort, tell=tell)
        for table in as_completed([pool.submit(work, [name]) for name in names]):
            made += table.result()
    return made


def _processor_seconds() -> float:
    """Processor time of this process and of those it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
