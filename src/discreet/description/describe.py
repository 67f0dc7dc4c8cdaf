"""Describe a private table: validate, plan, charge, run, state."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, Setting
from discreet.description.columns import Column, Places, Scale, columns_of
from discreet.description.estimates import Law
from discreet.description.plan import Counted, DescriptionPlan
from discreet.description.report import Description, described, released_numbers
from discreet.estimators.groups import bounded_rows
from discreet.privacy.guarantee import Guarantee, guarantee_of, refuse_large_default, relation_of
from discreet.privacy.statement import OTHER_RELEASES, POPULATION
from discreet.records.sources import Source, source_of
from discreet.release import PLATFORM_ASSUMPTIONS, carry_out, size_facts, unit_assumption
from discreet.tables.domains import SchemaError
from discreet.tables.reading import TableError, TableLike, column, require_columns
from discreet.tables.schema import Schema

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger

BINS, MOST_BINS = 16, 64
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def describe(
    table: TableLike,
    schema: Schema | None = None,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    neighboring: str = "replace-one",
    pairs: Iterable[tuple[str, str]] = (),
    quantiles: Sequence[float] = LEVELS,
    bins: int | Mapping[str, int] = 16,
    intervals: str = "table",
    confidence: float = 0.95,
    groups: Any = None,
    max_rows_per_group: int | None = None,
    n_samples: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    bad_rows: str = "error",
) -> Description:
    """Release counts, means, histograms, quantiles and two-way tables of a private table, all at once.

    Parameters
    ----------
    table : pyarrow Table, pandas or polars DataFrame, or dictionary of columns; or a source, such as a file, a folder
        or a query (docs/scale.md), which is read in batches.
    schema : public domains of the columns. All are described, including the target: bounded numbers by counts, mean and
        quantiles; categories, truth values and given intervals by counts; text by how many cells have any.
    epsilon, delta, neighboring : privacy budget and relation of the whole description. None for delta is 1 /
        n_samples**2, which needs 32 rows; 0 gives Laplace noise. More columns and tables need more noise; more
        categories do not.
    pairs : pairs of column names, for two-way tables of their histograms.
    quantiles : levels between 0 and 1.
    bins : number of bins of a number's histogram, from 2 to 64; or a dictionary by column name (16 for the others). The
        resolution of quantiles is a sixteenth of a bin.
    intervals : {"table", "population"}
        What intervals cover: the numbers of this table without noise, or those of the population from which its rows
        were drawn independently. The release is the same.
    confidence : of each interval.
    groups : ids of people, one per row; the guarantee then covers all rows of a person. None uses the group column of
        the schema, or protects single rows if there is none.
    max_rows_per_group : maximum number of rows per person, required with ``groups``; chosen without looking at the
        data, and a factor of the noise. The rows that count are drawn separately for each person.
    n_samples : public upper bound on the number of rows, under "add-remove-one".
    ledger : budget to charge after all inputs were checked, before anything is released.
    bad_rows : {"error", "null"}
        What to do with invalid cells, such as text among numbers, and with rows without an id. "null" silently counts
        such cells as missing and leaves such rows out.

    Returns
    -------
    Description
        Estimates with intervals by column (``found["age"]``) and by pair; the statement is ``privacy_``;
        ``to_html`` writes a page.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of the whole description; proofs: docs/proofs/describe.md. Unit: one row or, with
    ``groups``, all rows of a person. Missing cells are counted with noise, too.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Categorical, Numeric, Schema, describe
    >>> rng = np.random.default_rng(0)
    >>> table = {"age": rng.normal(50, 15, size=20_000), "ward": rng.choice(["north", "south"], size=20_000)}
    >>> schema = Schema({"age": Numeric(0, 100), "ward": Categorical(("north", "south"))})
    >>> found = describe(table, schema, epsilon=1.0, pairs=[("age", "ward")])
    >>> abs(found.columns["age"].mean.value - 50) < 1
    True
    >>> abs(found["age"].quantiles[0.5].value - 50) < 2, abs(found["ward"].histogram["north"].value - 10_000) < 500
    (True, True)
    """
    strict = _checks.choice("bad_rows", bad_rows, ("error", "null")) == "error"
    schema = _declared(schema)
    columns = columns_of(schema, _bins(schema, bins))
    crossed = _pairs(columns, pairs)
    levels = [_share("quantiles", level) for level in quantiles]
    source = source_of(table, bad_rows=bad_rows)
    of_schema = groups is None and schema.group is not None
    batches = _batches(columns, schema, source or table, strict, with_ids=of_schema)
    relation = relation_of(neighboring)
    rows = _checks.count_or_none("max_rows_per_group", max_rows_per_group)
    slots = None
    if groups is None and rows is None and not of_schema:
        n_rows, counted = _counted(columns, crossed, batches)
    else:
        n_rows, places, own_ids = _held(columns, batches)
        ids = own_ids if of_schema else groups
        # If the number of people is public, each has the same number of places: this reveals nothing more.
        slots = bounded_rows(ids, rows, n_rows, strict=strict, padded=relation.size_is_public)
        if slots is not None:
            places = [part.take(slots.rows[~slots.empty]) for part in places]
        counted = Counted.of(columns, crossed, places)
    n_places = n_rows if slots is None else len(slots.rows)
    guarantee, size = guarantee_of(epsilon, delta, neighboring, n_places, n_samples)
    plan = _plan(guarantee, columns, crossed, rows, delta, size)
    law = Law(
        plan.variance,
        _share("confidence", confidence),
        plan.guarantee.delta > 0,
        _checks.choice("intervals", intervals, ("table", "population")) == "population",
        plan.max_rows,
    )
    total = float(n_rows) if relation.size_is_public and slots is None else None
    carried = carry_out(plan, counted, ledger, "describe", published=released_numbers)
    statement = carried.state(
        bounds={"rows per unit": float(plan.max_rows)},
        assumptions=(
            *size_facts(relation, size, rows, delta),
            *(source.assumptions if source else ()),
            unit_assumption(plan.guarantee),
            "the schema, the pairs and the bins were chosen without looking at the private data (given by the user)",
            *PLATFORM_ASSUMPTIONS,
        ),
        not_covered=("how long the description took and how much memory it used", POPULATION, OTHER_RELEASES),
    )
    return described(plan, carried.release, levels, law, total, statement)


def plan_description(
    schema: Schema,
    n_rows: int,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    neighboring: str = "replace-one",
    pairs: Iterable[tuple[str, str]] = (),
    bins: int | Mapping[str, int] = 16,
    max_rows_per_group: int | None = None,
) -> DescriptionPlan:
    """Return what `describe` would release for this number of rows, and its noise; no table is read.

    Parameters
    ----------
    n_rows : number of rows, or a public bound on it; with groups, the number of people times ``max_rows_per_group``.
    schema, epsilon, delta, neighboring, pairs, bins, max_rows_per_group : as for `describe`.

    Examples
    --------
    >>> from discreet import Boolean
    >>> plan = plan_description(Schema({"smoker": Boolean()}), 10_000, epsilon=1.0, delta=1e-6)
    >>> plan.sensitivity.value, round(plan.noise["noise stddev of one of them"], 1)
    (1.41..., 6.0)
    """
    rows = _checks.count_or_none("max_rows_per_group", max_rows_per_group)
    bounded_rows(None if schema.group is None else [], rows, 0, strict=True, padded=True)  # both, or neither
    columns = columns_of(schema, _bins(schema, bins))
    guarantee, size = guarantee_of(epsilon, delta, neighboring, None, n_rows, declared="n_rows")
    return _plan(guarantee, columns, _pairs(columns, pairs), rows, delta, size)


def _plan(
    guarantee: Guarantee,
    columns: tuple[Column, ...],
    pairs: tuple[tuple[int, int], ...],
    rows: int | None,
    delta: float | None,
    size: int,
) -> DescriptionPlan:
    refuse_large_default(delta, size)
    if rows is not None:
        guarantee = replace(guarantee, unit="user")
    return DescriptionPlan(guarantee, columns, pairs, rows or 1)


def _declared(schema: object) -> Schema:
    """Return the schema; raise an error that says how to make one."""
    if isinstance(schema, Schema):
        return schema
    raise ParameterTypeError(
        "schema",
        f"must be a discreet.Schema with the public domains of the columns, got {type(schema).__name__}",
        "for example Schema({'age': Numeric(0, 100), 'ward': Categorical(('north', 'south'))})",
        "Schema.from_file(path) reads one, and `discreet schema template` starts one from a public sample",
    )


def _bins(schema: Schema, bins: int | Mapping[str, int]) -> dict[str, int]:
    """Return the number of bins of every numeric column."""
    given = dict(bins) if isinstance(bins, Mapping) else {}
    names = [part.name for part in columns_of(schema, defaultdict(lambda: BINS)) if isinstance(part, Scale)]
    if unknown := [name for name in given if name not in names]:
        raise ParameterError("bins", f"names {unknown[0]!r}, which is no numeric column of the schema")
    found = {name: given.get(name, BINS) if isinstance(bins, Mapping) else bins for name in names}
    for value in found.values():
        if _checks.count("bins", value, at_least=2) > MOST_BINS:
            raise ParameterError("bins", f"must be at most {MOST_BINS}, got {value}")
    return found


def _pairs(columns: Sequence[Column], pairs: Iterable[tuple[str, str]]) -> tuple[tuple[int, int], ...]:
    """Return the indices of both columns of every two-way table."""
    names, given = [part.name for part in columns], [tuple(pair) for pair in pairs]
    for pair in given:
        if len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(names) or given.count(pair) > 1:
            raise ParameterError(
                "pairs",
                f"must each name two different columns of the schema, no pair twice, got {pair!r}",
                f"the columns are {', '.join(map(repr, names))}",
            )
    return tuple((names.index(first), names.index(second)) for first, second in given)


def _share(name: str, value: Any) -> float:
    found = _checks.real(name, value, above=0)
    if not found < 1:
        raise ParameterError(name, f"must lie strictly between 0 and 1, got {value!r}")
    return found


Batch = tuple[
    int, list[Places], NDArray[Any]
]  # number of rows, their places by column, and ids of people if requested


def _batches(
    columns: Sequence[Column], schema: Schema, table: TableLike | Source, strict: bool, *, with_ids: bool
) -> Iterator[Batch]:
    """Yield the rows of a table in memory all at once, or those of a source in batches; each cell is read alone."""
    start = 0
    for batch in _tables(table, schema.needed):
        own = [_read(part, batch, strict, start) for part in columns]
        n_rows = _same_length(columns, own)
        start += n_rows
        yield n_rows, own, schema.groups(batch) if with_ids else np.empty(0, dtype=object)
    if not start:
        raise TableError("the table has no rows")


def _counted(
    columns: Sequence[Column], pairs: Sequence[tuple[int, int]], batches: Iterable[Batch]
) -> tuple[int, Counted]:
    """Return the number of rows and their counts, without keeping a batch."""
    total, parts = 0, None
    for n_rows, places, _ in batches:
        total += n_rows
        own = Counted.of(columns, pairs, places)
        parts = own if parts is None else parts + own
    assert parts is not None  # a table without rows was refused
    return total, parts


def _held(columns: Sequence[Column], batches: Iterable[Batch]) -> tuple[int, list[Places], NDArray[Any]]:
    """Return the number of rows, their places and ids; which rows of a person count is known only at the end."""
    sizes, found, ids = zip(*batches, strict=True)
    joined = [
        Places.joined(parts, len(column.shown))
        for column, parts in zip(columns, zip(*found, strict=True), strict=True)
    ]
    return sum(sizes), joined, np.concatenate(ids)


def _tables(table: TableLike | Source, needed: Sequence[str]) -> Iterator[TableLike]:
    """Yield a table in memory as one batch, or the batches of a source."""
    if not isinstance(table, Source):
        require_columns(table, needed)
        yield table
        return
    table.require(needed)
    for batch in table.batches(needed):
        yield pa.Table.from_batches([batch])


def _read(part: Column, table: TableLike, strict: bool, start: int) -> Places:
    """Return the places of a column's cells; invalid cells raise an error or count as missing."""
    try:
        places, malformed = part.read(column(table, part.name))
    except SchemaError as error:
        raise SchemaError(f"column {part.name!r}, declared {part.domain.kind}, {error}") from None
    if strict and malformed.any():
        raise SchemaError(
            f"column {part.name!r} is declared {part.domain.kind}, but has cells that are not valid there, the first "
            f"in row {start + int(np.argmax(malformed))} (counted from 0)",
            "correct them",
            "leave them empty",
            Setting("bad_rows", "null", purpose="to count such cells as missing"),
        )
    return places


def _same_length(columns: Sequence[Column], places: Sequence[Places]) -> int:
    """Return the number of rows; raise if columns have different numbers of cells."""
    lengths = [len(part.codes) for part in places]
    for part, length in zip(columns, lengths, strict=True):
        if length != lengths[0]:
            raise TableError(f"column {part.name!r} has {length} rows, the first one {lengths[0]}")
    return lengths[0]
