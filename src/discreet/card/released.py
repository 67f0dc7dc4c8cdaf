"""Name the released numbers of a model, with odds ratios against reference levels: post-processing, free."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet._typing import Array
from discreet.card.card import Card, family
from discreet.display.page import Bar, Page
from discreet.tables.domains import Binned, Boolean, Categorical, Domain, Numeric, Text
from discreet.tables.schema import Schema

_ENCODED = "Coefficients are of rows as the schema encodes them: numbers from -1 to 1, categories 0 or 1."
_COMPARED = (
    "of a category against the first of its column; of a number, from the lower to the upper end of its "
    "declared range; of a truth value, true against false. Noise is part of all of them."
)


@dataclass(frozen=True)
class Coefficients:
    """A table of released numbers.

    Attributes
    ----------
    title, header, remark : in words.
    rows : name, numbers.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str = ""

    def largest(self, count: int) -> list[tuple[str, ...]]:
        """Return the rows whose first numbers have the largest absolute values."""
        return sorted(self.rows, key=lambda row: -_size(row))[:count]


def coefficients(model: Any, schema: Schema | None = None) -> Coefficients:
    """Name the released numbers of a fitted model, each beside its effect: an odds ratio, or what it adds.

    Parameters
    ----------
    model : fitted estimator of this library.
    schema : through which it was fitted; ``model.schema_`` by default, if there is one.

    Notes
    -----
    Privacy: nothing but released numbers and public names; costs nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Categorical, PrivateLogisticRegression, Schema, card
    >>> ward = np.random.default_rng(0).choice(["north", "south"], size=20_000)
    >>> schema = Schema({"ward": Categorical(("north", "south"))})
    >>> rows = schema.transform({"ward": ward})
    >>> model = PrivateLogisticRegression(classes=[0, 1], feature_bound=1.5).fit(rows, (ward == "south").astype(int))
    >>> found = card.coefficients(model, schema)
    >>> [row[0] for row in found.rows], found.rows[0][2]
    (['ward=north', 'ward=south', 'intercept'], 'reference')
    """
    card = Card.of(model, schema)
    if hasattr(model, "importances_"):
        rows = tuple((name, f"{size:.4g}") for name, size in model.importances_.items())
        return Coefficients("Columns by the mean size of their shapes", ("column", "importance"), rows)
    if "median_" in card.arrays:
        return _median(card)
    if "components_" in card.arrays:
        return _components(card)
    if "coef_" not in card.arrays:
        rows = tuple((name, str(array.shape)) for name, array in card.arrays.items())
        return Coefficients("Released arrays", ("array", "shape"), rows)
    return _linear(card)


def _linear(card: Card) -> Coefficients:
    coef, intercept = np.atleast_2d(card.arrays["coef_"]), np.atleast_1d(card.arrays["intercept_"])
    names = columns_of(card)
    remark = "" if card.schema is None else _ENCODED
    if len(coef) > 1:
        labels = [str(label) for label in (range(len(coef)) if card.classes is None else card.classes)]
        rows = [(name, *(f"{value:.4g}" for value in coef[:, place])) for place, name in enumerate(names)]
        rows.append(("intercept", *(f"{value:.4g}" for value in intercept)))
        return Coefficients("Coefficients of each class", ("column", *labels), tuple(rows), remark)
    values = [(name, float(value)) for name, value in zip(names, coef[0], strict=True)]
    values.append(("intercept", float(intercept[0])))
    if card.schema is None:
        rows_of_one = tuple((name, f"{value:.4g}") for name, value in values)
        return Coefficients("Coefficients", ("column", "coefficient"), rows_of_one)
    text: Callable[[float], str]
    title, effect, text = "Coefficients", "effect", "{:+.4g}".format
    if family(card.estimator).probabilities:
        of = "" if card.classes is None else f" of {str(card.classes[1])!r}"
        title, effect, text = f"Coefficients of the log-odds{of}", "odds ratio", _ratio
    elif card.estimator in _RATES:
        title, effect, text = "Coefficients of the logarithm of the rate", "rate ratio", _ratio
    changes = [*_changes(card, coef[0], text), ""]
    listed = tuple((name, f"{value:.4g}", word) for (name, value), word in zip(values, changes, strict=True))
    adding = ", which add to the prediction" if effect == "effect" else ""
    meaning = f"{effect.capitalize()}s{adding}: {_COMPARED}"
    return Coefficients(title, ("column", "coefficient", effect), listed, f"{remark} {meaning}")


def _changes(card: Card, coef: Array, text: Callable[[float], str]) -> Iterator[str]:
    """Yield one word for each feature, in order; reference levels have none of their own."""
    found = {max(effect.weights): effect.of(coef) for effect in effects(card)}
    columns = card.schema.columns if card.schema else {}
    texts = [(key, domain) for key, domain in columns.items() if isinstance(domain, Text)]
    words = {name for key, domain in texts for name in domain.feature_names(key)}
    for place, name in enumerate(columns_of(card)):
        known = place in found or name in words
        yield text(found.get(place, float(coef[place]))) if known else "reference"


def _ratio(log_odds: float) -> str:
    return f"{math.exp(min(max(float(log_odds), -700.0), 700.0)):.4g}"


def _median(card: Card) -> Coefficients:
    """Give the median in the units of the columns, where these are numbers on a linear scale."""
    names, values = columns_of(card), card.arrays["median_"]
    units = dict(zip(names, values, strict=True))
    if card.schema is not None:
        for name, domain in card.schema.columns.items():
            if isinstance(domain, Numeric) and not domain.logarithmic:
                units[name] = domain.middle + domain.half_width * units[name]
    rows = tuple(
        (name, f"{value:.4g}", f"{units[name]:.4g}") for name, value in zip(names, values, strict=True)
    )
    header, remark = ("column", "as encoded", "in its unit"), "" if card.schema is None else _ENCODED
    return Coefficients("The geometric median", header, rows, remark)


def _components(card: Card) -> Coefficients:
    """List the directions, one column each, with the variances along them below."""
    components = card.arrays["components_"]
    rows = [
        (name, *(f"{value:.4g}" for value in components[:, place]))
        for place, name in enumerate(columns_of(card))
    ]
    header = ("column", *(f"component {number}" for number in range(1, len(components) + 1)))
    variances = ", ".join(f"{value:.4g}" for value in card.arrays["explained_variance_"])
    return Coefficients("Principal components", header, tuple(rows), f"Variances along them: {variances}.")


def _size(row: tuple[str, ...]) -> float:
    try:
        return abs(float(row[1]))
    except ValueError:  # a shape, not a number
        return 0.0


# -- Coefficients as people read them: by column of the table, each level beside a reference level -------------------


_MOST = 40  # rows shown; the file has them all
_ORDERED = "Numbers, lowest to highest declared value; yes compared with no"
_RATES = ("PrivatePoissonRegressor",)


@dataclass(frozen=True)
class Effect:
    """A change of a row and what it adds to the prediction: weights of the coefficients of one column."""

    group: str
    name: str
    note: str
    weights: dict[int, float]

    def of(self, coefficients: Array) -> float:
        """Return what it adds, for one output."""
        return float(sum(weight * coefficients[place] for place, weight in self.weights.items()))


def add_coefficients(page: Page, card: Card, intervals: Any = None) -> None:
    """Show the coefficients of a linear model, or their intervals, which were paid for separately."""
    coef = np.atleast_2d(card.arrays["coef_"])
    if intervals is not None:
        _add_intervals(page, card, intervals)
        return
    found = list(effects(card))
    if card.schema is None and len(found) > _MOST:
        found.sort(key=lambda effect: -max(abs(effect.of(row)) for row in coef))
    columns = {} if card.schema is None else card.schema.columns
    shown = found[:_MOST] if card.schema is None else found
    labels = [] if card.classes is None else [str(label) for label in card.classes]
    if len(coef) == 1:
        _add_bars(page, card, shown, coef[0], labels)
    else:
        page.text("What each change adds to the score of every class, as released, noise included.")
        page.table(
            ("", *(labels or map(str, range(len(coef))))),
            [(_title(effect), *(f"{effect.of(row):+.2f}" for row in coef)) for effect in shown],
        )
    if len(found) > len(shown):
        page.text(f"The {len(shown)} largest of {len(found)}; the model file has them all.")
    for name, domain in columns.items():
        if isinstance(domain, Text):
            count = domain.n_features
            page.text(f"Left out: {count} hashed words of {name!r}: several words share each of them.")
    if card.schema is not None and card.schema.normalize:
        page.text(
            "Rows are scaled to length 1 before they are multiplied, so effects in one row are smaller."
        )


def _add_bars(page: Page, card: Card, shown: Sequence[Effect], coef: Array, labels: Sequence[str]) -> None:
    of = f" of {labels[1]!r}" if len(labels) == 2 else ""
    text: Callable[[float], str] = _factor
    if family(card.estimator).probabilities:
        what = f"multiplies the odds{of}"
    elif card.estimator in _RATES:
        what = "multiplies the predicted rate"
    else:
        what, text = f"adds to the {'score' if labels else 'prediction'}{of}", "{:+.3g}".format
    groups: dict[str, list[Bar]] = {}
    for effect in shown:
        value = effect.of(coef)
        groups.setdefault(effect.group, []).append(Bar(effect.name, value, text(value), note=effect.note))
    page.text(
        f"By how much each change {what}; a bar to the right raises {'them' if 'odds' in what else 'it'}. The numbers "
        "include the noise, and the model alone does not show how much of a bar is noise: "
        "discreet.coefficient_intervals measures that, for an epsilon of its own."
    )
    page.bars(groups)


def _factor(value: float) -> str:
    """Format the factor by which odds or rates change.

    >>> [_factor(value) for value in (-0.1, 3.0, 5.0, 8.0, 20.0)]
    ['×0.905', '×20.1', '×148', '×2,981', '×millions']
    """
    if value > 13.8:
        return "×millions"
    return f"×{math.exp(value):,.0f}" if value > 4.6 else f"×{math.exp(value):#.3g}"


def _title(effect: Effect) -> str:
    """Name the effect on one line, for tables without groups."""
    if effect.note:
        return f"{effect.name} ({effect.note})"
    column, beside, reference = effect.group.partition(", compared with ")
    return f"{column}: {effect.name} (not {reference})" if beside else effect.name


def _add_intervals(page: Page, card: Card, found: Any) -> None:
    """Show estimates with their intervals, and the part of these that is noise."""
    names = (*columns_of(card), "intercept")[: len(found.estimate)]
    place = [number for number in range(len(names)) if np.isfinite(found.lower[number])][:_MOST]
    page.bars(
        {
            "": [
                Bar(
                    names[number],
                    float(found.estimate[number]),
                    f"{found.estimate[number]:+.3g}",
                    f"{found.lower[number]:+.3g} to {found.upper[number]:+.3g}",
                    float(found.lower[number]),
                    float(found.upper[number]),
                    band=1.96 * float(found.noise[number]),
                )
                for number in place
            ]
        },
        ("", "estimate", "interval; the thick part is privacy noise"),
    )
    promise = found.privacy_
    page.text(
        f"{100 * found.level:g}% intervals for the population's coefficients without regularization, noise and "
        f"sampling together; their own cost is ({promise.epsilon:g}, {promise.delta:.3g}). {found.doubt}"
    )
    if len(place) < len(names):
        page.text(f"Not shown: {len(names) - len(place)} of {len(names)} coefficients.")


def columns_of(card: Card) -> tuple[str, ...]:
    """Return the names of the columns that the model multiplies."""
    names = card.feature_names or (card.schema.feature_names if card.schema else None)
    return tuple(names or (f"column {number}" for number in range(card.n_features)))


def effects(card: Card) -> Iterator[Effect]:
    """Yield all changes that are shown, in the order of the schema; without one, of each column by 1."""
    if card.schema is None:
        for place, name in enumerate(columns_of(card)):
            yield Effect("", name, "", {place: 1.0})
        return
    single: list[Effect] = []
    levels: list[Effect] = []
    start = 0
    for name, domain in card.schema.columns.items():
        found = list(_of_column(name, domain, start))
        (single if isinstance(domain, Numeric | Boolean) else levels).extend(found)
        start += len(domain.feature_names(name))
    yield from single
    yield from levels


def _of_column(name: str, domain: Domain, start: int) -> Iterator[Effect]:
    match domain:
        case Numeric(lower=low, upper=high, missing_feature=marked):
            yield Effect(_ORDERED, name, f"{low:g} to {high:g}", {start: 2.0})
            if marked:
                yield Effect(_ORDERED, name, "missing, compared with the middle", {start + 1: 1.0})
        case Boolean():
            yield Effect(_ORDERED, name, "yes, compared with no", {start: 2.0})
        case Categorical() | Binned():
            first, *others = domain.feature_names(name)
            group = f"{name}, compared with {first.removeprefix(f'{name}=')}"
            for place, feature in enumerate(others, 1):
                weights = {start + place: 1.0, start: -1.0}
                yield Effect(group, feature.removeprefix(f"{name}="), "", weights)
