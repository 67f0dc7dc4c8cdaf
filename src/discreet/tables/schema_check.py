"""Check how a private table fits its schema, with exact counts for the data holder only.

A wrong bound or a misspelled category raises no error, since an error would reveal something about the data; the fit
is charged and learns little. The data holder may, and should, look at the table before spending a budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet._typing import Mask
from discreet.tables.domains import Categorical, Domain, Numeric, SchemaError, category_codes, read_numbers
from discreet.tables.reading import TableLike, column, require_columns
from discreet.tables.schema import Schema


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
