"""A model's card as one HTML page: a summary for people, with the internals folded below."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from discreet.card.card import About, Card, family
from discreet.card.files import read
from discreet.card.released import add_coefficients, columns_of
from discreet.display.page import Bar, Page
from discreet.privacy.ledger.ledger import Ledger
from discreet.privacy.page import add_budget, add_details, add_promise, add_verdict
from discreet.tables.schema import Schema

_MOST = 40  # coordinates of a point that are shown
_SHAPES = 12  # shapes of an additive model that are drawn, the most important ones


def to_html(
    model: Any,
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    about: About | None = None,
    evaluation: Any = None,
    intervals: Any = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> None:
    """Write the page of a fitted private model; everything on it is released, public or declared by you.

    The page is one file that runs no script and loads nothing. The shapes of an additive model need the extra
    ``report``.

    Parameters
    ----------
    model : fitted private model, or the path of its file.
    path : the page to write.
    schema : public domains through which the model was fitted; those of the model by default.
    about : purpose, data, owner and so on; what the model file says by default.
    evaluation : result of `evaluate` for the model, which was charged separately.
    intervals : result of `coefficient_intervals`, which were charged separately.
    ledger : the ledger that was charged, to show how much of the budget is spent.
    """
    if isinstance(model, str | os.PathLike):
        card = read(model)
    elif isinstance(model, Card):
        card = model
    else:
        card = Card.of(model, schema, about)
    account = ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)
    card_page(card, about or card.about, evaluation, intervals, account).write(path)


def card_page(card: Card, about: About, evaluation: Any, intervals: Any, ledger: Ledger | None) -> Page:
    """Make the page of a card."""
    target = None if card.schema is None else card.schema.target
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", card.estimator).capitalize()
    kind = kind.replace("svc", "SVC")
    page = Page(about.title or (f"{kind} of {target.column}" if target else kind), "Model card")
    add_verdict(page, card.privacy, what="model")
    if card.original:
        page.verdict(
            f"EDITED after the release: {', '.join(card.original)}.",
            "Predictions and numbers on this page are as edited; the file also holds the release.",
            "bad",
        )
    page.text(_summary(card, kind))
    page.facts(
        {
            "Purpose": about.purpose,
            "Data": about.data,
            **({"Encoder": about.encoder} if about.encoder else {}),
            "Period": about.period,
            "Released": about.date or _charged(card, ledger),
            "Owner": about.owner,
            "Approval": about.approval,
        }
    )
    page.heading("Whom it protects, and how much")
    add_promise(page, card.privacy)
    page.heading("How well it predicts")
    if evaluation is None:
        page.text("Not recorded: no evaluation was attached to this page.")
    else:
        from discreet.evaluation.report import add_metrics

        add_metrics(page, evaluation)
    page.heading("How much of the budget is spent")
    _add_ledger(page, card, ledger)
    page.heading("What it has learned")
    _add_numbers(page, card, intervals)
    page.heading("Assumptions to sign")
    page.text(
        "The guarantee holds if all of these are true. Only the holder of the data can know some of them."
    )
    page.to_sign(card.privacy.assumptions or ("none",))
    page.heading("Not covered")
    page.items(card.privacy.not_covered or ("nothing was named",))
    _add_internals(page, card)
    return page


def _summary(card: Card, kind: str) -> str:
    """Describe the model in two sentences."""
    columns = card.n_features if card.schema is None else len(card.schema.columns)
    target = None if card.schema is None else card.schema.target
    answer = repr(target.column) if target else "a number"
    if card.classes is not None:
        choices = ", ".join(str(label) for label in card.classes)
        answer = f"{answer} (one of {choices})" if target else f"one of {choices}"
    what = f"{kind}: predicts {answer} from {columns} columns."
    if card.estimator == "PrivateMedian":
        what = f"{kind}: the center of {columns} columns."
    elif card.estimator == "PrivateMatrixCompletion":
        what = f"{kind}: predicts ratings of {columns} items."
    rows = card.privacy.bounds.get("records")
    trained = f" Trained on {rows:,.0f} records." if isinstance(rows, float | int) else ""
    return f"{what}{trained} Written by discreet {card.library}."


def _charged(card: Card, ledger: Ledger | None) -> str:
    """Return the day of the model's charge, if it is in this ledger."""
    paid = card.privacy.paid
    if ledger is None or paid is None or paid.ledger != ledger.identity:
        return ""
    return next((one.time[:10] for one in ledger.history() if one.digest == paid.digest), "")


def _add_ledger(page: Page, card: Card, ledger: Ledger | None) -> None:
    paid = card.privacy.paid
    if ledger is not None:
        add_budget(page, ledger)
        if paid is not None and paid.ledger == ledger.identity:
            page.text(f"The model was paid for by charge {paid.charge} of this ledger.")
        else:
            page.text("The model does not name a charge of this ledger.")
    elif paid is not None:
        page.text(
            f"Not recorded on this page. The model was paid for by charge {paid.charge} of the ledger "
            f"{paid.ledger[:12]}; that ledger shows the total of all charges."
        )
    else:
        page.text(
            "The model was fitted without a ledger. Other releases from the same data add to its cost, but nothing "
            "counts them."
        )


def _add_numbers(page: Page, card: Card, intervals: Any) -> None:
    arrays = card.arrays
    if "coef_" in arrays:
        add_coefficients(page, card, intervals)
    elif card.estimator.startswith("PrivateAdditive"):
        _add_shapes(page, card)
    elif "median_" in arrays:
        places = zip(columns_of(card), arrays["median_"][:_MOST], strict=False)
        page.bars({"": [Bar(name, float(value), f"{value:.4g}") for name, value in places]})
    else:
        page.table(
            ("released numbers", "shape"), [(name, str(array.shape)) for name, array in arrays.items()]
        )


def _add_shapes(page: Page, card: Card) -> None:
    """Show what each column adds, the most important columns first."""
    from discreet.additive.shapes import BANDS, AdditiveModel, shape_spec

    model = AdditiveModel.from_arrays(card.arrays)
    labels = [] if card.classes is None or len(card.classes) == 2 else [str(one) for one in card.classes]
    order = sorted(model.shapes, key=lambda shape: -shape.importance)
    page.bars(
        {"": [Bar(shape.name, shape.importance, f"{shape.importance:.3g}") for shape in order]},
        ("column", "importance", "mean size of what the column adds"),
    )
    with page.side_by_side():
        for shape in order[:_SHAPES]:
            page.chart(
                shape_spec(shape, labels),
                f"What {shape.name} adds to the prediction. Gray: noisy counts of rows."
                + ("" if shape.margin is None else " Shaded: its noise band."),
            )
    if any(shape.margin is not None for shape in order[:_SHAPES]):
        page.text(BANDS)
    if len(order) > _SHAPES:
        page.text(f"The {_SHAPES} most important of {len(order)} shapes are drawn.")
    if model.pairs:
        names = (" and ".join(model.shapes[place].name for place in pair.columns) for pair in model.pairs)
        page.text(f"Pairs of columns that add something together: {'; '.join(names)}.")


def _add_internals(page: Page, card: Card) -> None:
    add_details(page, card.privacy)
    if card.schema is not None:
        with page.folded("The public schema"):
            declared = card.schema.to_dict()["columns"].items()
            page.table(("column", "declared domain"), [(name, _in_words(one)) for name, one in declared])
    with page.folded("Settings and released numbers"):
        settings = {**card.parameters, **card.described}.items()
        page.table(("parameter", "value"), [(name, str(one)) for name, one in settings if one is not None])
        if not family(card.estimator).packed:
            for name, array in card.arrays.items():
                page.preformatted(f"{name} = {np.array2string(array, threshold=200, max_line_width=100)}")


def _in_words(domain: Mapping[str, Any]) -> str:
    """Describe a domain in words."""
    (_, kind), *rest = domain.items()
    parts = [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in rest
    ]
    return f"{kind}: {'; '.join(parts)}" if parts else str(kind)
