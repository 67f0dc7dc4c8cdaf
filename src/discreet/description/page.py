"""A description for people: each column's cells with their intervals, and two-way tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.display.page import Bar, Page
from discreet.privacy.page import add_details, add_promise, add_verdict

if TYPE_CHECKING:
    from discreet.description.estimates import Estimate
    from discreet.description.report import ColumnDescription, Description


def description_page(found: Description, brief: bool = False) -> Page:
    """The page of a description; ``brief``: columns and tables are folded."""
    page = Page("A private table in numbers", "Description")
    add_verdict(page, found.privacy_, what="description")
    page.text(
        f"{_count(found.rows)} rows, {len(found.columns)} columns. {found.meaning[0].upper()}{found.meaning[1:]}."
    )
    for name, column in found.columns.items():
        with page.section(f"{name} ({column.kind})", folded=brief):
            _add_column(page, column)
    for (first, second), table in found.tables.items():
        rows = [
            (label, *(_count(one) for one in row))
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


def _count(one: Estimate) -> str:
    if one.noise == 0:
        return f"{one.value:,.0f}"
    return f"{max(one.value, 0.0):,.0f} ({one.lower:,.0f} to {one.upper:,.0f})"


def _number(one: Estimate) -> str:
    return f"{one.value:.4g} ({one.lower:.4g} to {one.upper:.4g})"
