"""The content of a description: counts, means, quantiles and two-way tables, with intervals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet._typing import Array
from discreet.description.columns import SPLITS, Column, Scale
from discreet.description.estimates import Counts, Estimate, Law, count, quantile, ratio
from discreet.description.plan import DescriptionPlan
from discreet.display.console import printable, table_lines
from discreet.display.page import Bar, Page
from discreet.privacy.page import add_details, add_promise, add_verdict
from discreet.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    from discreet.description.estimates import Estimate


@dataclass(frozen=True)
class Histogram:
    """Numbers of rows per cell of the public domain, including missing cells.

    Attributes
    ----------
    labels : names of the cells (categories or intervals); missing comes last.
    counts : number of rows in each cell.
    edges : ends of the intervals of a bounded number; empty for other columns.
    """

    labels: tuple[str, ...]
    counts: tuple[Estimate, ...]
    edges: tuple[float, ...] = ()

    def __getitem__(self, label: str) -> Estimate:
        return dict(zip(reversed(self.labels), reversed(self.counts), strict=True))[label]

    def __len__(self) -> int:
        return len(self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return the histogram as plain JSON-ready values."""
        counts = [
            {"cell": label, **one.to_dict()} for label, one in zip(self.labels, self.counts, strict=True)
        ]
        return {"edges": list(self.edges), "counts": counts}


@dataclass(frozen=True)
class ColumnDescription:
    """The description of one column.

    Attributes
    ----------
    name, kind : as in the schema.
    histogram : number of rows per cell.
    missing : number of rows with a missing cell.
    mean : mean of the values that are not missing, clipped to the bounds; None for a column without bounds.
    quantiles : quantiles of the same values, by level; empty for a column without bounds.
    """

    name: str
    kind: str
    histogram: Histogram
    missing: Estimate
    mean: Estimate | None = None
    quantiles: Mapping[float, Estimate] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain JSON-ready values."""
        return {
            "kind": self.kind,
            "histogram": self.histogram.to_dict(),
            "missing": self.missing.to_dict(),
            "mean": None if self.mean is None else self.mean.to_dict(),
            "quantiles": [{"level": level, **one.to_dict()} for level, one in self.quantiles.items()],
        }


@dataclass(frozen=True)
class TwoWayTable:
    """Numbers of rows per pair of cells of two columns.

    Attributes
    ----------
    rows, columns : names of the cells of the first and the second column.
    counts : one tuple per row of the table.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: tuple[tuple[Estimate, ...], ...]

    def __getitem__(self, labels: tuple[str, str]) -> Estimate:
        return self.counts[self.rows.index(labels[0])][self.columns.index(labels[1])]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain JSON-ready values."""
        counts = [[one.to_dict() for one in row] for row in self.counts]
        return {"rows": list(self.rows), "columns": list(self.columns), "counts": counts}


@dataclass(frozen=True)
class Description:
    """A private table in numbers, with their guarantee.

    Attributes
    ----------
    rows : number of rows; exact if it is public. If people are protected, only rows that count.
    columns : all columns of the schema by name, including its target.
    tables : two-way tables by the names of their columns.
    confidence : probability that one interval covers.
    intervals : what intervals cover: "table", the same numbers of the private table without noise, or "population",
        those of the population from which its rows, or people, were drawn independently.
    released : the released noisy counts and sums; everything else is computed from them.
    privacy_ : the `PrivacyStatement`; print it.
    """

    rows: Estimate
    columns: Mapping[str, ColumnDescription]
    tables: Mapping[tuple[str, str], TwoWayTable]
    confidence: float
    intervals: str
    released: Array = field(repr=False)
    privacy_: PrivacyStatement = field(repr=False)

    @property
    def released_(self) -> dict[str, Any]:
        """The released numbers; the ledger stores their digest (`release_digest`)."""
        return released_numbers(self.released)

    def __getitem__(self, name: str) -> ColumnDescription:
        return self.columns[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain JSON-ready values."""
        return {
            "rows": self.rows.to_dict(),
            "columns": {name: column.to_dict() for name, column in self.columns.items()},
            "tables": [{"of": list(names), **table.to_dict()} for names, table in self.tables.items()],
            "confidence": self.confidence,
            "intervals": self.intervals,
            "privacy": self.privacy_.to_dict(),
        }

    @property
    def meaning(self) -> str:
        """Describe in a sentence what the intervals cover."""
        level = f"{100 * self.confidence:g}% intervals"
        if self.intervals == "table":
            return f"{level} for the numbers of this table without noise; they say nothing about sampling"
        return f"{level} for the population behind this table: noise and sampling together"

    def __str__(self) -> str:
        lines = [f"Description of {_count(self.rows)} rows, with {self.meaning}"]
        for title, header, rows in self._parts():
            lines += [printable(title), *table_lines(header, rows)]
        promise = self.privacy_
        price = f"price: ({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}"
        lines.append(f"{price}, unit: {promise.guarantee.unit}")
        return "\n".join(lines)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the description as a page for people."""
        description_page(self).write(path)

    def _repr_html_(self) -> str:
        return description_page(self, brief=True).fragment()

    def _parts(self) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
        """Return title, header and rows of every part that is shown."""
        parts: list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]] = []
        for name, column in self.columns.items():
            rows: list[tuple[object, ...]] = [
                (label, f"{one.value:.0f}", _interval(one, ".0f"))
                for label, one in zip(column.histogram.labels, column.histogram.counts, strict=True)
            ]
            if column.mean is not None:
                rows.append(("mean", f"{column.mean.value:.6g}", _interval(column.mean)))
            rows += [
                (f"quantile {level:g}", f"{one.value:.6g}", _interval(one))
                for level, one in column.quantiles.items()
            ]
            parts.append((f"{name} ({column.kind})", ("", "value", "interval"), rows))
        for (first, second), table in self.tables.items():
            cells: list[tuple[object, ...]] = [
                (label, *(_count(one) for one in row))
                for label, row in zip(table.rows, table.counts, strict=True)
            ]
            parts.append((f"{first} x {second}", (first, *table.columns), cells))
        return parts


def released_numbers(released: Array) -> dict[str, Any]:
    """Return the numbers of a description to which its charge is bound."""
    return {"released": released}


def described(
    plan: DescriptionPlan,
    released: Array,
    levels: Sequence[float],
    law: Law,
    total: float | None,
    privacy: PrivacyStatement,
) -> Description:
    """Compute everything that follows from the released numbers.

    total : public number of rows; None if it is private.
    """
    parts = plan.split(released)
    columns = parts[: len(plan.columns)]
    counts = [
        Counts.fitted(column.design, part[: len(column.design)], total)
        for column, part in zip(plan.columns, columns, strict=True)
    ]
    rows = _rows(counts, law, total)
    return Description(
        rows,
        {
            column.name: _column(column, part, of, levels, law, rows.value)
            for column, part, of in zip(plan.columns, columns, counts, strict=True)
        },
        {
            (plan.columns[first].name, plan.columns[second].name): _table(
                plan.columns[first], plan.columns[second], part, law, rows.value, total
            )
            for (first, second), part in zip(plan.pairs, parts[len(plan.columns) :], strict=True)
        },
        law.confidence,
        "population" if law.population else "table",
        released,
        privacy,
    )


def _rows(counts: Sequence[Counts], law: Law, total: float | None) -> Estimate:
    """Return the number of all rows: the public one, or the precision-weighted mean of the columns' estimates."""
    if total is not None:
        return Estimate(total, total, total, 0.0)
    found = [of.sums(np.ones(len(of.values))) for of in counts]
    precision = sum(1 / float(variance) for _, variance in found)
    value = sum(float(value) / float(variance) for value, variance in found) / precision
    return count(
        value, law.variance / precision, Law(law.variance, law.confidence, law.gaussian), value, None
    )


def _column(
    column: Column, part: Array, counts: Counts, levels: Sequence[float], law: Law, rows: float
) -> ColumnDescription:
    shown = np.equal.outer(np.arange(len(column.labels)), column.shown).astype(np.float64)
    cells = tuple(counts.counted(shown, law, rows))
    missing = cells[-1]
    if not isinstance(column, Scale):
        return ColumnDescription(column.name, column.domain.kind, Histogram(column.labels, cells), missing)
    ends = tuple(column.edges[::SPLITS].tolist())
    return ColumnDescription(
        column.name,
        column.domain.kind,
        Histogram(column.labels, cells, ends),
        missing,
        _mean(column, float(part[-1]), counts, law),
        {level: quantile(counts, column.edges, level, law) for level in levels},
    )


def _mean(column: Scale, remainder: float, counts: Counts, law: Law) -> Estimate:
    """Return the mean: the sums of centers and remainders over the number of rows that are not missing."""
    centers = column.centers
    linear = np.vstack([np.append(centers, 0.0), np.append(np.ones(len(centers)), 0.0)])
    (centered, present), _ = counts.sums(linear)
    numerator = float(centered) + remainder / column.remainder_weight + float(present) * column.half_step
    noise = law.variance * (linear @ counts.weights) @ (linear @ counts.weights).T
    noise[0, 0] += law.variance / column.remainder_weight**2
    squares = max(float(np.square(centers) @ counts.values[:-1]), 0.0)
    sampling = law.sampled * np.array([squares, numerator, max(float(present), 0.0)])
    first, mixed, last = np.array([noise[0, 0], noise[0, 1], noise[1, 1]]) + sampling
    found = ratio((numerator, float(present)), (float(first), float(mixed), float(last)), law)
    low, high = column.domain.lower, column.domain.upper
    value, lower, upper = (low * (1 - part) / 2 + high * (1 + part) / 2 for part in found)
    rounding = column.half_step * (high / 2 - low / 2)
    spread = noise[0, 0] - 2 * found[0] * noise[0, 1] + found[0] ** 2 * noise[1, 1]
    scale = (high / 2 - low / 2) / float(present) if present > 0 else np.nan
    return Estimate(
        value,
        max(low, lower - rounding),
        min(high, upper + rounding),
        float(np.sqrt(spread) * scale),
    )


def _table(
    first: Column, second: Column, part: Array, law: Law, rows: float, total: float | None
) -> TwoWayTable:
    """Return one table; a difference from the public number of rows is spread over all cells."""
    shape, size = (len(first.labels), len(second.labels)), len(part)
    variance = law.variance
    if total is not None:
        part, variance = part - (part.sum() - total) / size, variance * (1 - 1 / size)
    cells = [
        [count(float(value), variance, law, rows, total) for value in row] for row in part.reshape(shape)
    ]
    return TwoWayTable(first.labels, second.labels, tuple(tuple(row) for row in cells))


def _count(one: Estimate) -> str:
    return f"{one.value:.0f}" if one.noise == 0 else f"{one.value:.0f} ({one.lower:.0f}..{one.upper:.0f})"


def _interval(one: Estimate, digits: str = ".6g") -> str:
    return f"{one.lower:{digits}} to {one.upper:{digits}}"


# -- A description for people: each column's cells with their intervals, and two-way tables --------------------------


def description_page(found: Description, brief: bool = False) -> Page:
    """Return the page of a description; with ``brief``, columns and tables are folded."""
    page = Page("A private table in numbers", "Description")
    add_verdict(page, found.privacy_, what="description")
    page.text(
        f"{_counted(found.rows)} rows, {len(found.columns)} columns. {found.meaning[0].upper()}{found.meaning[1:]}."
    )
    for name, column in found.columns.items():
        with page.section(f"{name} ({column.kind})", folded=brief):
            _add_column(page, column)
    for (first, second), table in found.tables.items():
        rows = [
            (label, *(_counted(one) for one in row))
            for label, row in zip(table.rows, table.counts, strict=True)
        ]
        with page.section(f"{first} and {second}", folded=brief):
            page.table((first, *table.columns), rows)
    with page.section("Whom it protects, and how much", folded=brief):
        add_promise(page, found.privacy_)
    add_details(page, found.privacy_)
    return page


def _add_column(page: Page, column: ColumnDescription) -> None:
    if column.mean is not None:
        facts = {"mean": _number(column.mean)}
        facts |= {_level(level): _number(one) for level, one in column.quantiles.items()}
        page.facts(facts)
    lines = [
        Bar(
            label,
            one.value,
            f"{max(one.value, 0.0):,.0f}",
            f"{one.lower:,.0f} to {one.upper:,.0f}",
            one.lower,
            one.upper,
            filled=True,
        )
        for label, one in zip(column.histogram.labels, column.histogram.counts, strict=True)
    ]
    page.bars({"": lines}, ("", "rows", "with intervals"))


def _level(level: float) -> str:
    return "median" if level == 0.5 else f"{100 * level:g}% quantile"


def _counted(one: Estimate) -> str:
    if one.noise == 0:
        return f"{one.value:,.0f}"
    return f"{max(one.value, 0.0):,.0f} ({one.lower:,.0f} to {one.upper:,.0f})"


def _number(one: Estimate) -> str:
    return f"{one.value:.4g} ({one.lower:.4g} to {one.upper:.4g})"
