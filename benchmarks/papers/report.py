"""Results into one page: where we stand, every table and figure, times, and how it was measured."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.peer_worker import SETTINGS
from benchmarks.papers.results import Results, Row
from benchmarks.papers.sections import section
from benchmarks.papers.standing import standing
from benchmarks.papers.tables import TABLES
from discreet._files import write_atomically
from discreet.display.page import Page


def write(folder: str | os.PathLike[str], page_folder: str | os.PathLike[str] | None = None) -> Path:
    """Write ``index.html`` and pictures from the results in ``folder``, beside them or in a folder of their own.

    Raises ``ValueError`` if there are no results.
    """
    rows = Results(folder).rows()
    if not rows:
        raise ValueError(
            f"there are no results in {str(folder)!r}; run `python -m benchmarks.papers --output {folder}` first"
        )
    path = Path(page_folder or folder) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    made = page(rows)
    write_atomically(path, made.html().encode())
    for name, picture in made.pictures().items():
        write_atomically(path.parent / f"{name}.svg", picture.encode())
    return path


def page(rows: Sequence[Row]) -> Page:
    """The whole report."""
    page = Page("What privacy costs", "Benchmark")
    full = [row for row in rows if not row.quick]
    if not full:
        page.text(
            "This page shows a quick run on a few thousand rows. It proves that everything runs, and nothing else."
        )
    page.text(
        "Every figure was measured by python -m benchmarks.papers; none was typed in, except the papers' own, "
        "which are marked as printed. Our settings are defaults that do not look at the data. The dissertation's "
        "were tuned on the data without paying for it. Intervals are 95% confidence intervals of the mean over "
        "repeats."
    )
    standing(page, full)
    full = full or list(rows)
    for name, table in TABLES.items():
        of_table = [row for row in full if row.table == name]
        if of_table:
            section(page, table, of_table)
    _measured(page, full)
    return page


def _measured(page: Page, rows: Sequence[Row]) -> None:
    page.heading("How this was measured")
    own = {row.promise["neighboring"] for row in rows if row.promise and "accounted by" not in row.promise}
    page.text(
        f"{len(rows)} runs. Our relations: {', '.join(sorted(own - {'any'}))}. Delta is 1 / n² of the training rows "
        "unless the title says otherwise. The guarantee that was accounted is in every line of the results file, with "
        "the versions, the repeat, where the settings came from and the time over that of the fit without privacy."
    )
    spent: dict[str, float] = defaultdict(float)
    for row in rows:
        spent[row.table] += row.seconds / 60
    page.text(
        f"All of it took {sum(spent.values()):.0f} minutes of one core: "
        + ", ".join(f"{name} {minutes:.1f}" for name, minutes in spent.items())
        + "."
    )
    untimed = sum(row.seconds == 0 and row.value is not None for row in rows)
    if untimed:
        page.text(f"Not counted: {untimed} rows from before times were kept.")
    peers = sorted(
        {
            (str(row.promise["accounted by"]), str(row.promise["neighboring"]), row.promise["delta"] == 0)
            for row in rows
            if row.promise and "accounted by" in row.promise
        }
    )
    for name, relation, pure in peers:
        page.text(
            f"{name} promises {'delta = 0' if pure else 'the same delta'} under the relation {relation}, by its own "
            "accountant; it was given the same splits, rows clipped to the same norm, and the same epsilon. It ran "
            f"with {SETTINGS[name]}."
        )
    for versions in dict.fromkeys(tuple(sorted(row.versions.items())) for row in rows):
        page.text("Versions: " + ", ".join(f"{name} {version}" for name, version in versions) + ".")
