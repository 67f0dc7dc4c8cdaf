"""An evaluation for people: every metric with its interval, by group, and where predictions go wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from discreet.display.page import Bar, Page
from discreet.evaluation.estimates import Estimate
from discreet.privacy.page import add_details, add_promise, add_verdict, in_short

if TYPE_CHECKING:
    from discreet.evaluation.report import Evaluation

_BASELINE = "majority baseline"
_NOTES = {
    _BASELINE: "always answering with the most frequent class",
    "AUC": "0.5 is a guess, 1 sorts perfectly",
    "AUC (mean of classes)": "each class against the rest; 0.5 is a guess",
    "R^2": "1 is perfect, 0 is the mean of the target",
    "mean predicted - observed": "0 if predictions are right on average",
}


def evaluation_page(found: Evaluation) -> Page:
    """The page of an evaluation."""
    page = Page("How well a model predicts", "Evaluation")
    page.verdict(*_headline(found.metrics))
    add_metrics(page, found)
    for group, part in found.by_group.items():
        page.heading(f"Group {group!s}")
        _add_bars(page, part)
    if found.confusion is not None and found.classes is not None:
        page.heading("Where predictions go wrong")
        labels = [str(label) for label in found.classes]
        rows = [
            (f"is {label}", *(f"{max(count, 0):,.0f}" for count in row))
            for label, row in zip(labels, found.confusion, strict=True)
        ]
        page.table(("noisy counts", *(f"predicted {label}" for label in labels)), rows)
    if found.calibration:
        page.heading("Do probabilities mean what they say?")
        known = [band for band in found.calibration if not math.isnan(band[2].value)]
        lines = [_bar(f"{low:.0%} to {high:.0%}", one, "") for low, high, one in known]
        page.bars({"": lines}, ("predicted", "observed", "from 0% to 100%"), ends=(0.0, 1.0))
        if len(known) < len(found.calibration):
            page.text(
                f"In the other {len(found.calibration) - len(known)} of {len(found.calibration)} ranges the noise is "
                "too large to tell."
            )
    page.heading("What the evaluation itself protects")
    add_verdict(page, found.privacy_, what="evaluation")
    add_promise(page, found.privacy_)
    add_details(page, found.privacy_)
    return page


def add_metrics(page: Page, found: Evaluation) -> None:
    """The metrics for all records, with intervals, and what they cost."""
    _add_bars(page, found.metrics)
    page.text(
        f"With {100 * found.confidence:g}% intervals for noise and sampling together; the thick part is noise. "
        f"Measured on held-out records under {in_short(found.privacy_.guarantee)}, which was paid for separately."
    )


def _headline(metrics: Mapping[str, Estimate]) -> tuple[str, str]:
    """The first metric, and whether it beats the trivial answer."""
    name, one = next(iter(metrics.items()))
    if math.isnan(one.value):
        return f"{name}: unknown.", "The noise is too large for these few records."
    low, high = _number(name, one.lower), _number(name, one.upper)
    headline = f"{name.capitalize()} {_number(name, one.value)}, between {low} and {high}."
    base = metrics.get(_BASELINE)
    if base is None or math.isnan(base.value):
        return headline, ""
    beats = "More than" if one.lower > base.upper else "Not shown to be more than"
    return headline, f"{beats} always answering with the most frequent class ({_number(name, base.value)})."


def _add_bars(page: Page, metrics: Mapping[str, Estimate]) -> None:
    """Shares on a scale from 0 to 1, other numbers each in words."""
    shares = {name: one for name, one in metrics.items() if _is_share(name)}
    others = {name: one for name, one in metrics.items() if name not in shares}
    if shares:
        lines = [_bar(name, one, _NOTES.get(name, "")) for name, one in shares.items()]
        page.bars({"": lines}, ("metric", "value", "from 0 to 1"), ends=(0.0, 1.0))
    if others:
        rows = [
            (
                f"{name} ({_NOTES[name]})" if name in _NOTES else name,
                f"{one.value:.3g}",
                f"{one.lower:.3g} to {one.upper:.3g}",
            )
            for name, one in others.items()
        ]
        page.table(("", "value", "interval"), rows)


def _is_share(name: str) -> bool:
    return name in {"accuracy", _BASELINE} or name.startswith(("AUC", "recall of", "precision of"))


def _bar(name: str, one: Estimate, note: str) -> Bar:
    if math.isnan(one.value):
        return Bar(name, math.nan, "unknown", note=note)
    number, low, high = (_number(name, value) for value in (one.value, one.lower, one.upper))
    band = 1.96 * one.noise
    return Bar(name, one.value, number, f"{low} to {high}", one.lower, one.upper, band=band, note=note)


def _number(name: str, value: float) -> str:
    if name.startswith(("R^2", "AUC")):
        return f"{value:.3f}"
    return f"{value:.3g}" if name.startswith("mean squared error") else f"{value:.1%}"
