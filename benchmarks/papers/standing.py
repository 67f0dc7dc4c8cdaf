"""Where `auto`, with its defaults, stands against the best figure that the dissertation printed after tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.cells import Cell, cells
from benchmarks.papers.charts import dots
from benchmarks.papers.datasets import GENERATED
from benchmarks.papers.results import Row
from benchmarks.papers.tables import TABLES
from discreet.display.charts import COLORS
from discreet.display.page import Page

_NOT_PRIVATE = "NP baseline"
_KINDS = {
    "best printed, tuned on the data": COLORS[1],
    "discreet, automatic": COLORS[0],
    "no privacy": COLORS[6],
}


@dataclass(frozen=True)
class Comparison:
    """One data set of one table: our mean, the best printed private figure, and ours without privacy."""

    what: str
    used: str
    ours: Cell
    column: str
    printed: float
    plain: float | None

    @property
    def verdict(self) -> str:
        """Ahead, behind, or too close to tell with so few repeats."""
        difference = self.ours.mean - self.printed
        if len(self.ours.values) > 1 and abs(difference) <= self.ours.half_width:
            return "too close to tell"
        return "ahead" if difference > 0 else "BEHIND"


def comparisons(rows: Sequence[Row]) -> list[Comparison]:
    """Every data set with a printed figure that was really used, or generated like the paper's.

    Tables of industrial shapes are left out: how well their generated labels can be predicted is our own choice.
    """
    found = []
    for table in TABLES.values():
        if table.name.endswith("industrial"):
            continue
        here = {
            (cell.dataset, cell.method): cell
            for cell in cells(row for row in rows if row.table == table.name)
        }
        best = _best(table.printed)
        for dataset, (column, printed) in best.items():
            ours = here.get((dataset, "auto"))
            if ours is None or ours.used != dataset:
                continue
            plain = here.get((dataset, "non-private"))
            model = "SVM" if table.name.startswith("svm") else "logistic"
            what = f"{dataset}, {model}, ε = {ours.epsilon:g}"
            found.append(Comparison(what, ours.used, ours, column, printed, plain.mean if plain else None))
    return found


def _best(printed: Mapping[tuple[str, str], float]) -> dict[str, tuple[str, float]]:
    best: dict[str, tuple[str, float]] = {}
    for (dataset, column), value in printed.items():
        if column not in (_NOT_PRIVATE, "stability") and value > best.get(dataset, ("", 0.0))[1]:
            best[dataset] = column, value
    return best


def standing(page: Page, rows: Sequence[Row]) -> None:
    """The first part of the page."""
    found = comparisons(rows)
    if not found:
        return
    page.heading("Where we stand")
    records = []
    for one in found:
        values = dict(zip(_KINDS, (one.printed, one.ours.mean, one.plain), strict=True))
        records += [
            {"data set": one.what, "who": kind, "accuracy (%)": round(value, 2)}
            for kind, value in values.items()
            if value is not None
        ]
    page.chart(
        dots(records, category="data set", value="accuracy (%)", group="who", colors=_KINDS),
        "Test accuracy: ours with defaults, beside the best of the seven methods that the dissertation printed.",
        name="standing",
    )
    page.table(
        ("data set", "ours", "best printed", "difference", "verdict"),
        [
            (
                one.what,
                one.ours.shown,
                f"{one.printed:.1f} ({one.column})",
                f"{one.ours.mean - one.printed:+.1f}",
                one.verdict,
            )
            for one in found
        ],
    )
    ahead = [one for one in found if one.verdict == "ahead"]
    page.text(f"Ahead on {len(ahead)} of {len(found)}.")
    for one in found:
        if one.verdict != "ahead":
            ours = f"{one.ours.shown} over {len(one.ours.values)} repeats"
            page.text(f"Not ahead: {one.what}: {ours}, printed {one.printed:.1f} ({one.column}).")
    made = sorted({one.used for one in found if one.used in GENERATED})
    if made:
        page.text(
            f"{', '.join(made)}: drawn with the settings of the code that was released with the dissertation; without "
            "privacy they give its accuracy up to two points."
        )
