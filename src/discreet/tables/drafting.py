"""Draft a schema from a public sample, and check how a private table fits it.

A template is read off the sample, so the sample must be public: invented rows, a published extract, the example in a
code book. Never the private table, nor a part of it.

A check counts exactly, for the data holder only. A wrong bound or a misspelled category raises no error, since an error
would reveal something about the data; the fit is charged and learns little. The data holder may, and should, look at
the table before spending a budget.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet._typing import Mask
from discreet.tables.domains import (
    FALSE,
    MISSING_WORDS,
    TRUE,
    Boolean,
    Categorical,
    Domain,
    Numeric,
    SchemaError,
    Target,
    Text,
    category_codes,
    cell_text,
    read_numbers,
)
from discreet.tables.reading import TableLike, column, column_names, require_columns
from discreet.tables.schema import Schema

MOST_CATEGORIES = 50
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9.]*,[0-9]+|[+-]?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}\b|[0-9]{1,2}[./][0-9]{1,2}[./]([0-9]{4}|[0-9]{2})\b")


def template(
    public_sample: TableLike,
    *,
    target: str | None = None,
    group: str | None = None,
    max_categories: int = MOST_CATEGORIES,
) -> Schema:
    """Guess a schema from a public table.

    Numbers get bounds rounded outwards, true/false words become booleans, other columns become categories if they have
    at most ``max_categories`` and hashed text if more. Among words, "none" counts as a category, not as a missing cell.

    Parameters
    ----------
    public_sample : a table with the private table's columns and no private data.
    target, group : names of the column to predict and of the column of person ids.

    Privacy
    -------
    None, and none is needed for a public sample. A template from private data would publish its extremes and its rarest
    words.

    Examples
    --------
    >>> sample = {"age": [31, 64, 18], "ward": ["north", "south", "north"], "smoker": ["yes", "no", "no"]}
    >>> made = template(sample, target="smoker")
    >>> made.columns["age"], made.columns["ward"]
    (Numeric(lower=15.0, upper=65.0, ...), Categorical(categories=('north', 'south'), unknown='ignore'))
    >>> made.target.classes
    ('no', 'yes')
    """
    named = [name for name in (target, group) if name is not None]
    require_columns(public_sample, named)
    columns = {
        name: guessed
        for name in column_names(public_sample)
        if name not in named and (guessed := _domain(column(public_sample, name), max_categories)) is not None
    }
    aim = None if target is None else _target(target, column(public_sample, target), max_categories)
    if not columns:
        raise SchemaError("the sample has no column with values to learn from")
    return Schema(columns, aim, group)


def looks_like_ids(cells: Any) -> bool:
    """Whether a public column may number people: whole numbers, and most of them in few rows.

    >>> import pyarrow as pa
    >>> looks_like_ids(pa.chunked_array([range(100)])), looks_like_ids(pa.chunked_array([[1, 2] * 50]))
    (True, False)
    """
    values = _values(_texts(cells))
    if values is None or len(values) <= max(MOST_CATEGORIES, len(cells) / 4):
        return False
    return bool((values == np.round(values)).all())


def misread(cells: Any) -> str:
    """Say how a public column of words looks like numbers or dates; empty if it does not.

    >>> import pyarrow as pa
    >>> misread(pa.chunked_array([["18,5", "31,0", ""]]))
    'numbers with a decimal comma; write 1.5 for 1,5'
    >>> misread(pa.chunked_array([["2024-03-01", "2024-04-30"]]))[:5]
    'dates'
    """
    texts = _texts(cells)
    if texts and all(_DECIMAL_COMMA.fullmatch(text) for text in texts):
        return "numbers with a decimal comma; write 1.5 for 1,5"
    if texts and all(_DATE.match(text) for text in texts):
        return "dates; make numbers of them (a year, days since a fixed day), or leave the column out"
    return ""


def _domain(cells: Any, max_categories: int) -> Domain | None:
    """Return the domain that a sample's cells suggest; None if all are missing."""
    texts = _texts(cells)
    if not texts:
        return None
    if {text.casefold() for text in texts} <= TRUE | FALSE:
        return Boolean()
    values = _values(texts)
    if values is not None:
        return Numeric(*_rounded_out(float(values.min()), float(values.max())))
    words = _words(cells)
    return Categorical(tuple(sorted(words))) if len(words) <= max_categories else Text(square_roots=True)


def _target(name: str, cells: Any, max_categories: int) -> Target:
    texts = _texts(cells)
    values = _values(texts)
    if values is None:
        texts = _words(cells)
    if len(texts) < 2:
        raise SchemaError(
            f"the target {name!r} has fewer than two values in the sample; write its classes by hand"
        )
    if values is not None and len(texts) > max_categories:
        return Target(name, bounds=_rounded_out(float(values.min()), float(values.max())))
    if values is not None and all(value.is_integer() for value in values.tolist()):
        return Target(name, tuple(sorted(int(value) for value in values)))
    if len(texts) > max_categories:
        raise SchemaError(
            f"the target {name!r} has {len(texts)} different values that are not numbers; write its classes by hand"
        )
    return Target(name, tuple(sorted(texts)))


def _texts(cells: Any, missing: frozenset[str] = MISSING_WORDS) -> set[str]:
    """Return the distinct cells of a column as text, without missing ones."""
    texts = {cell_text(value) for value in cells.unique().to_pylist()}
    return {text for text in texts if text is not None and text.casefold() not in missing}


def _words(cells: Any) -> set[str]:
    """Return the distinct cells of a column of words, where "none" is an answer and not a missing cell."""
    return _texts(cells, MISSING_WORDS - {"none"})


def _values(texts: set[str]) -> Any:
    """Return the texts as numbers; None if one of them is not a finite number."""
    try:
        values = np.array([float(text) for text in sorted(texts)])
    except ValueError:
        return None
    return values if values.size and np.isfinite(values).all() else None


def _rounded_out(low: float, high: float) -> tuple[float, float]:
    """Return an interval around [low, high] with round ends: multiples of half the width's leading power of ten."""
    width = high - low or max(abs(low), 1.0)
    step = 10.0 ** math.floor(math.log10(width)) / 2
    ends = math.floor(low / step) * step, math.ceil(high / step) * step
    return (ends[0], ends[1]) if ends[0] < ends[1] else (ends[0] - step, ends[1] + step)


@dataclass(frozen=True)
class ColumnCheck:
    """How many cells of a column its domain does not describe.

    Attributes
    ----------
    column, kind : name and kind of the column.
    missing : cells without a value.
    unexpected : numbers out of bounds, or words that are not declared categories.
    meaningless : cells that the schema cannot read, such as words among numbers.
    """

    column: str
    kind: str
    missing: int
    unexpected: int
    meaningless: int


@dataclass(frozen=True)
class TableCheck:
    """The checks of all columns, the number of rows, and how many of them ``bad_rows="null"`` would skip."""

    columns: tuple[ColumnCheck, ...]
    n_rows: int
    n_left_out: int


def check(schema: Schema, table: TableLike) -> TableCheck:
    """Compare a table with its schema. Costs no budget, and is not private.

    Parameters
    ----------
    table : pyarrow Table, pandas or polars DataFrame, or dictionary of columns; with all columns of the schema.

    Privacy
    -------
    None: the counts are exact and describe single people. They are for the data holder, must not be published, and must
    not be copied into the schema: correct it from public sources, such as the code book.

    Examples
    --------
    >>> from discreet.tables.schema import Categorical, Numeric
    >>> schema = Schema({"age": Numeric(0, 1), "sex": Categorical(("F", "M"))})
    >>> for found in check(schema, {"age": [31, 64, None], "sex": ["female", "male", "F"]}).columns:
    ...     print(found)
    ColumnCheck(column='age', kind='numeric', missing=1, unexpected=2, meaningless=0)
    ColumnCheck(column='sex', kind='categorical', missing=0, unexpected=2, meaningless=0)
    """
    require_columns(table, schema.needed)
    found: list[ColumnCheck] = []
    left_out: Mask = np.zeros(0, dtype=bool)
    for name, domain in _domains(schema).items():
        missing, unexpected, meaningless = (
            _no_ids(schema, table) if domain is None else _masks(name, domain, column(table, name))
        )
        target = schema.target is not None and name == schema.target.column
        null = missing | meaningless | (unexpected if isinstance(domain, Categorical) else False)
        bad = null if target or name == schema.group else meaningless
        left_out = bad | left_out if found else bad
        found.append(
            ColumnCheck(
                name, _kind(name, schema), *(int(mask.sum()) for mask in (missing, unexpected, meaningless))
            )
        )
    return TableCheck(tuple(found), len(left_out), int(left_out.sum()))


def _domains(schema: Schema) -> dict[str, Domain | None]:
    """Return the domain of every needed column; a target's classes are categories, its bounds those of a number."""
    domains: dict[str, Domain | None] = dict(schema.columns)
    if schema.target is not None:
        bounds = schema.target.bounds
        domains[schema.target.column] = (
            Categorical(schema.target.classes) if bounds is None else Numeric(*bounds)
        )
    if schema.group is not None:
        domains[schema.group] = None
    return domains


def _kind(name: str, schema: Schema) -> str:
    if name in schema.columns:
        return schema.columns[name].kind
    return "group" if name == schema.group else "target"


def _masks(name: str, domain: Domain, cells: Any) -> tuple[Mask, Mask, Mask]:
    """Return which cells are missing, unexpected and meaningless; the three are disjoint."""
    nothing = np.zeros(len(cells), dtype=bool)
    if isinstance(domain, Categorical):
        codes = category_codes(cells, domain.categories, undeclared=len(domain.categories))
        return codes < 0, codes == len(domain.categories), nothing
    try:
        meaningless = domain.encode(cells)[1]
    except SchemaError as error:
        raise SchemaError(f"column {name!r}, declared {domain.kind}, {error}") from None
    if isinstance(domain, Numeric):
        values, _ = read_numbers(cells)
        return np.isnan(values) & ~meaningless, (values < domain.lower) | (values > domain.upper), meaningless
    return category_codes(cells, (), undeclared=0) < 0, nothing, meaningless


def _no_ids(schema: Schema, table: TableLike) -> tuple[Mask, Mask, Mask]:
    """Return which rows have no id; nothing else can be wrong with one."""
    missing = np.array([name is None for name in schema.groups(table)], dtype=bool)
    return missing, np.zeros_like(missing), np.zeros_like(missing)
