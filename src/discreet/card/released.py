"""The released numbers of a model by name, with odds ratios against reference levels: post-processing, free."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet._typing import Array
from discreet.card.card import Card, family
from discreet.card.coefficients import columns_of, effects
from discreet.tables.domains import Numeric, Text
from discreet.tables.schema import Schema

_ENCODED = "Coefficients are of rows as the schema encodes them: numbers from -1 to 1, categories 0 or 1."
_RATIOS = (
    "Odds ratios: of a category against the first of its column; of a number, from the lower to the upper end of its "
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
        """The rows with the largest first numbers, signs aside."""
        return sorted(self.rows, key=lambda row: -_size(row))[:count]


def coefficients(model: Any, schema: Schema | None = None) -> Coefficients:
    """Name the released numbers of a fitted model; for logistic models with odds ratios.

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
    if not family(card.estimator).probabilities or card.schema is None:
        rows_of_one = tuple((name, f"{value:.4g}") for name, value in values)
        return Coefficients("Coefficients", ("column", "coefficient"), rows_of_one, remark)
    ratios = [*_odds_ratios(card, coef[0]), ""]
    listed = tuple((name, f"{value:.4g}", ratio) for (name, value), ratio in zip(values, ratios, strict=True))
    of = "" if card.classes is None else f" of {str(card.classes[1])!r}"
    return Coefficients(
        f"Coefficients of the log-odds{of}",
        ("column", "coefficient", "odds ratio"),
        listed,
        f"{remark} {_RATIOS}",
    )


def _odds_ratios(card: Card, coef: Array) -> Iterator[str]:
    """One word for each feature, in order; reference levels have none of their own."""
    found = {max(effect.weights): effect.of(coef) for effect in effects(card)}
    names, columns = columns_of(card), card.schema.columns if card.schema else {}
    words = {
        name
        for key, domain in columns.items()
        if isinstance(domain, Text)
        for name in domain.feature_names(key)
    }
    for place, name in enumerate(names):
        if place in found or name in words:
            yield _ratio(found.get(place, float(coef[place])))
        else:
            yield "reference"


def _ratio(log_odds: float) -> str:
    return f"{math.exp(min(max(float(log_odds), -700.0), 700.0)):.4g}"


def _median(card: Card) -> Coefficients:
    """The median in the units of the columns, where these are numbers on a linear scale."""
    names, values = columns_of(card), card.arrays["median_"]
    units = dict(zip(names, values, strict=True))
    if card.schema is not None:
        for name, domain in card.schema.columns.items():
            if isinstance(domain, Numeric) and not domain.logarithmic:
                middle, half = domain.lower / 2 + domain.upper / 2, domain.upper / 2 - domain.lower / 2
                units[name] = middle + half * units[name]
    rows = tuple(
        (name, f"{value:.4g}", f"{units[name]:.4g}") for name, value in zip(names, values, strict=True)
    )
    return Coefficients(
        "The geometric median",
        ("column", "as encoded", "in its unit"),
        rows,
        "" if card.schema is None else _ENCODED,
    )


def _components(card: Card) -> Coefficients:
    """The directions, one column each, and the variance along each below its columns."""
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
        return max(abs(float(cell)) for cell in row[1:2])
    except ValueError:
        return 0.0
