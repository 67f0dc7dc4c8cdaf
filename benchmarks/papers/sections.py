"""One part of the page for each table: its picture, its figures, its times, and what could not be run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.papers.audits import Audits
from benchmarks.papers.cells import Cell, cells, half_width
from benchmarks.papers.charts import bars, curves, dots, slopes
from benchmarks.papers.methods import METHODS
from benchmarks.papers.rates import Rates, current, predicted, slope
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Table
from discreet.display.charts import COLORS
from discreet.display.page import Page

_AXES = {"accuracy": "accuracy (%)"}
#: Fixed for the whole page, so that a method looks the same everywhere.
_COLORS = {
    METHODS["auto"].label: COLORS[0],
    METHODS["non-private"].label: COLORS[6],
    "non-private": COLORS[6],
    "automatic, almost no noise": COLORS[6],
    METHODS["objective"].label: COLORS[2],
    METHODS["noisy-gd"].label: COLORS[4],
    METHODS["objective-dissertation"].label: COLORS[1],
    METHODS["diffprivlib"].label: COLORS[3],
    METHODS["opacus"].label: COLORS[5],
}
#: Of several charts of a table, the one that documents show.
_PICTURED = ("adult", "jester")
#: Points by which private methods must differ for a column to tell anything.
_TELLING = 1.0
_BARS = ("auto", "objective", "noisy-gd", "objective-dissertation", "diffprivlib", "opacus")


def section(page: Page, table: Table, rows: Sequence[Row]) -> None:
    """Everything about one table."""
    page.heading(table.title)
    if isinstance(table, Rates):
        rows = current(rows)
    found = cells(rows)
    _stand_ins(page, found)
    if isinstance(table, Rates):
        _rates(page, rows)
    elif isinstance(table, Audits):
        _audits(page, rows)
    else:
        _outcomes(page, table, found)
    _ratios(page, table, rows)
    _protocols(page, rows)
    _unable(page, rows)


def _outcomes(page: Page, table: Table, found: Sequence[Cell]) -> None:
    """The picture or table that fits: against the table's own axis, against epsilon, or neither."""
    budgets = {
        cell.dataset: {c.epsilon for c in found if c.dataset == cell.dataset and c.epsilon} for cell in found
    }
    if table.axis or any(len(grid) > 2 for grid in budgets.values()):
        pictured = next((dataset for dataset in _PICTURED if dataset in budgets), next(iter(budgets)))
        with page.side_by_side():
            for dataset, grid in budgets.items():
                here = [cell for cell in found if cell.dataset == dataset]
                if table.axis:
                    points = [(cell.x, cell) for cell in here]
                else:
                    ends = (min(grid), max(grid))  # no privacy: a level line
                    points = [(x, cell) for cell in here for x in ((cell.epsilon,) if cell.epsilon else ends)]
                _curve(
                    page,
                    dataset,
                    points,
                    table.axis or "epsilon",
                    table.name if dataset == pictured else None,
                )
        return
    _costs(page, table, found)
    _comparison(page, table, found)


def _stand_ins(page: Page, found: Sequence[Cell]) -> None:
    others = ("generated", "invented", "none")
    pairs = [
        f"{used} stands in for {dataset}"
        for dataset, used in dict.fromkeys((cell.dataset, cell.used) for cell in found)
        if used and used != dataset and used not in others
    ]
    if pairs:
        page.text(
            f"Where the papers' data could not be downloaded, other data takes its place: {'; '.join(pairs)}. Their "
            "printed figures are about different data."
        )


def _curve(
    page: Page, dataset: str, points: Sequence[tuple[float, Cell]], axis: str, name: str | None
) -> None:
    metric = _AXES.get(points[0][1].metric, points[0][1].metric)
    most = 100.0 if metric == "accuracy (%)" else np.inf
    records = [
        {
            "method": cell.label,
            axis: x,
            metric: float(f"{cell.mean:.5g}"),
            "low": float(f"{max(0.0, cell.mean - cell.half_width):.5g}"),
            "high": float(f"{min(most, cell.mean + cell.half_width):.5g}"),
        }
        for x, cell in points
    ]
    spread = max(cell.mean for _, cell in points) / max(1e-9, min(cell.mean for _, cell in points))
    wide = metric == "RMSE" and spread > 5
    if wide:  # a band may reach below 0, where a logarithmic axis ends
        records = [{**record, "low": max(float(record["low"]), 1e-4)} for record in records]  # type: ignore[arg-type]
    spec = curves(
        records, x=axis, y=metric, band=("low", "high"), series="method", log_y=wide, colors=_COLORS
    )
    repeats = _repeats([cell for _, cell in points])
    page.chart(spec, f"{dataset}: {metric} against {axis}. {repeats}.", name)


def _costs(page: Page, table: Table, found: Sequence[Cell]) -> None:
    plain = {cell.dataset: cell.mean for cell in found if cell.method == "non-private"}
    records = [
        {
            "data set": f"{cell.dataset}, ε = {cell.epsilon:g}",
            "method": cell.label,
            "points lost to privacy": round(plain[cell.dataset] - cell.mean, 2),
        }
        for cell in found
        if cell.method in _BARS and cell.dataset in plain
    ]
    if records:
        spec = bars(
            records,
            category="data set",
            value="points lost to privacy",
            group="method",
            format=".1f",
            colors=_COLORS,
        )
        page.chart(
            spec,
            "Cost of privacy: accuracy of the same model without privacy, minus that of each method.",
            f"{table.name}-cost",
        )


def _comparison(page: Page, table: Table, found: Sequence[Cell]) -> None:
    """Methods down, data sets across, the paper's own figures below."""
    places = list(dict.fromkeys((cell.dataset, cell.epsilon) for cell in found if cell.epsilon))
    methods = list(dict.fromkeys(cell.method for cell in found))
    by_place = [
        {cell.method: cell for cell in found if cell.dataset == dataset and cell.epsilon in (0.0, epsilon)}
        for dataset, epsilon in places
    ]
    lines = [
        [
            METHODS[method].label if method in METHODS else method,
            *(here[method].shown if method in here else "not run" for here in by_place),
        ]
        for method in methods
    ]
    lines += [
        [f"printed: {column}", *(_number(table.printed.get((dataset, column))) for dataset, _ in places)]
        for column in dict.fromkeys(column for _, column in table.printed)
    ]
    best, mute = set(), []
    for number, here in enumerate(by_place):
        private = [cell for cell in here.values() if cell.epsilon and cell.metric == "accuracy"]
        if len(private) > 1:
            best.add((methods.index(max(private, key=lambda cell: cell.mean).method), number + 1))
            if np.ptp(sorted(cell.mean for cell in private)[1:]) < _TELLING:
                mute.append(places[number][0])
    if mute:
        page.text(
            f"On {' and '.join(mute)} all private methods but one at most are within {_TELLING:g} points: that "
            "column tells nothing."
        )
    with page.folded("All figures of this table"):
        page.table(["", *(f"{dataset}, ε = {epsilon:g}" for dataset, epsilon in places)], lines, best)
        if best:
            page.text(f"{_repeats(found)}; the best private method in bold.")


def _repeats(found: Sequence[Cell]) -> str:
    counts = sorted({len(cell.values) for cell in found})
    if counts == [1]:
        return "One repeat, so no intervals"
    return (
        f"Means over {counts[0]} repeats, with 95% intervals"
        if len(counts) == 1
        else f"Means over {counts[0]} to {counts[-1]} repeats, with 95% intervals"
    )


def _rates(page: Page, rows: Sequence[Row]) -> None:
    """Slopes on logarithmic axes, with theory's lines, and how far apart they are."""
    lines = []
    page.text(
        "Excess risk where noise rules, against rows, columns (an L1 ball has two vertices per column) and epsilon, "
        "one at a time. Dashed: the exponents of the papers' bounds, through the middle of the points. Bounds are "
        "about the worst data, so the instances are those of the lower bounds, and for strongly convex risks a ridge."
    )
    with page.side_by_side():
        for dataset in dict.fromkeys(row.dataset for row in rows):
            records = []
            here = [row for row in rows if row.dataset == dataset and row.value is not None and row.value > 0]
            for method in dict.fromkeys(row.method for row in here):
                of_method = [row for row in here if row.method == method]
                found = sorted(cells(of_method), key=lambda cell: cell.x)
                sizes, means = np.array([cell.x for cell in found]), np.array([cell.mean for cell in found])
                if len(sizes) < 2:
                    continue
                theory, exponent = predicted(dataset, sizes, means)
                records += [
                    {
                        "method": method,
                        "size": x,
                        "excess risk": float(f"{y:.4g}"),
                        "theory": float(f"{z:.4g}"),
                    }
                    for x, y, z in zip(sizes.tolist(), means.tolist(), theory.tolist(), strict=True)
                ]
                lines.append([dataset, method, *_slopes(of_method, slope(sizes, theory), exponent)])
            if records:
                axis = dataset.rpartition(": ")[2]
                named = [{**record, axis: record["size"]} for record in records]
                spec = slopes(named, x=axis, y="excess risk", series="method", theory="theory")
                page.chart(spec, f"{dataset}.", "rates" if dataset == "ridge logistic: rows" else None)
    with page.folded("All slopes"):
        page.table(("instance: varied", "method", "slope", "theory", "difference"), lines)


def _slopes(rows: Sequence[Row], theory: float, exponent: float | None) -> tuple[str, str, str]:
    """The slope with its interval over repeats, beside theory's."""
    by_seed: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        by_seed[row.seed].append((row.x, row.value or 0.0))
    found = [slope(*np.array(sorted(points)).T) for points in by_seed.values() if len(points) > 1]
    mean = sum(found) / len(found)
    half = f" ± {half_width(found):.2f}" if len(found) > 1 else ""
    told = f"{theory:.2f}" + (" (logarithm)" if exponent is None else "")
    return f"{mean:.2f}{half}", told, f"{mean - theory:+.2f}"


def _audits(page: Page, rows: Sequence[Row]) -> None:
    """What attacks proved, between nothing and the claim; twins with half of the noise must pass the claim."""
    done = [row for row in rows if row.value is not None and row.promise]
    kinds = {"claimed": COLORS[0], "proved by attack": COLORS[4], "proved, half of the noise": COLORS[1]}
    records, lines = [], []
    for row in done:
        claimed = float((row.promise or {})["epsilon"])
        values = (claimed, float(row.value or 0.0), float(row.extra["half noise"]))
        records += [
            {"audited": row.dataset, "what": kind, "epsilon": round(value, 3)}
            for kind, value in zip(kinds, values, strict=True)
        ]
        lines.append(
            (
                row.dataset,
                str(row.extra["sees"]),
                str(row.extra["replay"]),
                f"{float(row.extra['distance over declared']):.2f}",
                *(f"{value:.2f}" for value in values),
                "yes" if row.extra["sound"] else "NO",
                "yes" if row.extra["caught"] else "no",
                str(row.extra["note"]),
            )
        )
    stands = sum(bool(row.extra["sound"]) for row in done)
    caught = sum(bool(row.extra["caught"]) for row in done)
    page.text(
        f"{stands} of {len(done)} claims stand; {caught} of their twins with half of the noise were caught."
    )
    header = (
        "audited",
        "attacker sees",
        "replay",
        "distance",
        *kinds,
        "claim stands",
        "half noise caught",
        "note",
    )
    with page.folded("All audits"):
        page.chart(
            dots(records, category="audited", value="epsilon", group="what", colors=kinds),
            "An honest claim lies above what an attack proves (95% confidence). The same program with half of the "
            "noise is caught when the attack proves more than the claim (confidence 1 - 1e-6).",
            "audit",
        )
        page.table(header, lines)
    page.text("`make audit` attacks for longer; its table is benchmarks/results/audit.md.")


def _ratios(page: Page, table: Table, rows: Sequence[Row]) -> None:
    """Median time and memory of a fit over those of the fit without privacy."""
    for what, field in (("time", "ratio"), ("memory", "memory")):
        ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
        for row in rows:
            value = getattr(row, field)
            if value is not None and row.method in _BARS:
                ratios[row.used or row.dataset, METHODS[row.method].label].append(value)
        records = [
            {"data set": dataset, "method": method, f"{what} ratio": float(f"{np.median(values):.3g}")}
            for (dataset, method), values in ratios.items()
        ]
        if not records or table.name.endswith("curves"):
            continue
        said = (
            f"{what.capitalize()} of a fit over that of scikit-learn's fit without privacy on the same split"
        )
        if len({record[f"{what} ratio"] for record in records}) == 1:
            page.text(f"{said}: {records[0][f'{what} ratio']:g}, whatever the data set and method.")
        else:
            spec = dots(
                records,
                category="data set",
                value=f"{what} ratio",
                group="method",
                log=True,
                colors=_COLORS,
            )
            page.chart(spec, f"{said}.", f"{table.name}-{what}")


def _protocols(page: Page, rows: Sequence[Row]) -> None:
    """Where everybody's settings came from."""
    by_protocol: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        label = METHODS[row.method].label if row.method in METHODS else row.method
        if row.value is not None and label not in by_protocol[row.protocol]:
            by_protocol[row.protocol].append(label)
    lines = [f"{protocol}: {'; '.join(labels)}." for protocol, labels in by_protocol.items() if labels]
    page.notes("Where the settings come from", lines)


def _unable(page: Page, rows: Sequence[Row]) -> None:
    """What could not be run, and why, each reason once."""
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row.status != "ok" and row.dataset not in reasons[row.method, row.status]:
            reasons[row.method, row.status].append(row.dataset)
    if reasons:
        page.notes(
            "What could not be run, and why",
            [f"{method} on {', '.join(where)}: {why}" for (method, why), where in reasons.items()],
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
