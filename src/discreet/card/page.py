"""A model's card as one HTML page: what is promised, the whole curve behind it, and the released numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from discreet._files import write_atomically
from discreet.card.card import Card
from discreet.tables.schema import Schema

_POINTS = 13
_MOST = 40  # coefficients shown; the file has them all


def to_html(
    model: Any,
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    intervals: Any = None,
) -> None:
    """Write the page of a fitted private model; everything on it is released or public.

    Needs the extra ``report``. The page is one file and loads nothing from a network. ``intervals`` are those of
    `coefficient_intervals`, which were paid for on their own.
    """
    from discreet.display.charts import Page, require

    require()
    card = Card.of(model, schema)
    page = Page(f"{card.estimator}: a private model")
    promise = card.privacy.guarantee
    if card.privacy.secure:
        page.text(
            f"Trained under ({promise.epsilon:g}, {promise.delta:.3g})-differential privacy, "
            f"{promise.neighboring.value}, unit: {promise.unit}. Written by discreet {card.library}."
        )
    else:
        page.text("NOT PRIVATE: the noise of this model was seeded for a test.")
    page.heading("The promise")
    page.preformatted(str(card.privacy))
    if card.privacy.secure and promise.delta > 0:
        page.chart(
            _promise(card), "The promise is a whole curve: the smallest proved delta at every epsilon."
        )
    page.heading("The released numbers")
    if card.original:
        page.text(f"EDITED after the release: {', '.join(card.original)}. What follows is as edited.")
    _numbers(page, card)
    if intervals is not None:
        _intervals(page, card, intervals)
    if card.schema is not None:
        page.heading("The public schema")
        rows = [(name, str(domain)) for name, domain in card.schema.columns.items()]
        page.table(("column", "declared domain"), rows)
    page.heading("Settings")
    settings = {**card.parameters, **card.described}
    page.table(("parameter", "value"), [(name, str(value)) for name, value in settings.items()])
    write_atomically(path, page.html().encode())


def _promise(card: Card) -> dict[str, Any]:
    from discreet.display.charts import curves

    statement = card.privacy
    records = []
    for epsilon in np.geomspace(0.25, 2.0, _POINTS) * statement.epsilon:
        delta = statement.delta_at(float(epsilon))
        if delta > 0:  # a logarithmic axis has no zero
            records.append({"epsilon": float(epsilon), "delta": delta, "run": "this model"})
    return curves(records, x="epsilon", y="delta", band=("delta", "delta"), series="run", log_y=True)


def _numbers(page: Any, card: Card) -> None:
    from discreet.display.charts import bars

    if "coef_" not in card.arrays:
        page.table(("array", "shape"), [(name, str(array.shape)) for name, array in card.arrays.items()])
        return
    coef = np.atleast_2d(card.arrays["coef_"])
    columns = _columns(card)
    largest = np.argsort(-np.abs(coef).max(axis=0), kind="stable")[:_MOST]
    labels = [] if card.classes is None else card.classes.tolist()
    outputs = ["coefficient"] if len(coef) == 1 else [str(label) for label in labels]
    records = [
        {"feature": columns[column], "of": output, "coefficient": float(coef[row, column])}
        for column in largest
        for row, output in enumerate(outputs)
    ]
    shown = "All" if coef.shape[1] <= _MOST else f"The {_MOST} largest of {coef.shape[1]}"
    page.chart(
        bars(records, category="feature", value="coefficient", group="of"),
        f"{shown} coefficients, as released: noise included, of rows clipped as in training.",
    )


def _columns(card: Card) -> tuple[str, ...]:
    names = card.feature_names or (card.schema.feature_names if card.schema else None)
    return tuple(names or (f"column {number}" for number in range(card.n_features)))


def _intervals(page: Any, card: Card, found: Any) -> None:
    """Estimates with their intervals, of which the noise is a part."""
    from discreet.display.charts import intervals

    names = (*_columns(card), "intercept")[: len(found.estimate)]
    shown = [number for number in range(len(names)) if np.isfinite(found.lower[number])][:_MOST]
    records = [
        {
            "name": names[number],
            "coefficient": float(found.estimate[number]),
            "low": float(found.lower[number]),
            "high": float(found.upper[number]),
        }
        for number in shown
    ]
    if records:
        page.chart(
            intervals(records, name="name", value="coefficient", low="low", high="high"),
            f"{100 * found.level:g}% intervals for the population's coefficients, noise and sampling together.",
        )
    page.preformatted(str(found.privacy_))
