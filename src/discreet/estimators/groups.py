"""People with several rows: read their ids, keep at most a public number of rows of each, and plan for all of them.

Ids are compared by their text without surrounding blanks: 7 and "7" are one person, "7" and "07" are two. An id depends
only on its own cell and on the type of its column. Floating-point numbers are never ids: they cannot distinguish large
whole numbers, and in some containers a single missing cell turns a whole column into them. Columns of them are refused
by their type; a single one among objects is a missing id.

The relation is between sequences of groups, in order of first appearance: one group is replaced by another, blanked,
or absent. Proofs: ``docs/proofs/groups.md``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._checks import ParameterError, Setting
from discreet._typing import Mask
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants, calibration
from discreet.privacy.events import Approximate
from discreet.privacy.guarantee import Guarantee
from discreet.solvers import base
from discreet.tables.reading import NO_FLOATS, id_column

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class People:
    """The ids of all people in order of appearance, and for every row the index of its id; -1 without an id."""

    names: list[str]
    codes: Indices


def read_people(ids: Any, n_rows: int | None = None, *, strict: bool) -> People:
    """Return the people of these rows; if ``strict``, refuse rows without an id.

    Parameters
    ----------
    ids : one id per row: an array, a list, or a column of any table.
    n_rows : required number of ids.
    strict : whether a missing id is an error; otherwise its row belongs to nobody.
    """
    column = id_column(ids, "groups")
    if n_rows is not None and len(column) != n_rows:
        raise ParameterError("groups", f"must hold one id per row: {n_rows} rows, {len(column)} ids")
    if strict and column.null_count:
        raise ParameterError(
            "groups",
            f"has no id in {column.null_count} rows; {NO_FLOATS}",
            "add the ids",
            "leave such rows out",
            Setting("bad_rows", "null", purpose="to ignore such rows"),
        )
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return People([str(label) for label in encoded.dictionary.to_pylist()], np.asarray(codes, dtype=np.int64))


@dataclass(frozen=True)
class Slots:
    """Places for the rows of groups: the row in each place, and which places are empty."""

    rows: Indices
    empty: Mask


def bounded_rows(
    ids: Any, rows_per_group: int | None, n_rows: int, *, strict: bool, padded: bool
) -> Slots | None:
    """Choose at most ``rows_per_group`` rows of every group, from the group's own rows alone; None without groups.

    Parameters
    ----------
    ids : one id per row, or None.
    strict : whether a missing id is an error; otherwise the row is skipped.
    padded : give every group all its places, so that their number reveals only the number of groups.
    """
    if ids is None and rows_per_group is None:
        return None
    if ids is None:
        raise ParameterError(
            "groups",
            "must be given where max_rows_per_group is: privacy per group needs to know whose row each row is",
            "pass groups=..., one id per row",
            "leave max_rows_per_group=None to protect single rows",
        )
    if rows_per_group is None:
        raise ParameterError(
            "max_rows_per_group",
            "must be declared where groups are given: at most how many rows of one group to use. Choose it without "
            "looking at the private data; 1 to 3 is common, and more rows per group need more noise",
            Setting("max_rows_per_group"),
        )
    people = read_people(ids, n_rows, strict=strict)
    names, codes = people.names, people.codes
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
    sizes = np.bincount(codes[order], minlength=len(names))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    place = np.arange(len(order)) - starts[codes[order]]  # of each row within its group
    secret = fresh_entropy().words(4).tobytes()
    for group in np.flatnonzero(sizes > rows_per_group):
        chosen = _choice(secret, names[group], int(sizes[group]), rows_per_group)
        ranks = np.full(sizes[group], rows_per_group)
        ranks[chosen] = np.arange(rows_per_group)
        place[starts[group] : starts[group + 1]] = ranks
    kept = place < rows_per_group
    rows = np.full(len(names) * rows_per_group, -1, dtype=np.int64)
    rows[codes[order][kept] * rows_per_group + place[kept]] = order[kept]
    if not padded:
        rows = rows[rows >= 0]
    return Slots(np.maximum(rows, 0), rows < 0)


def _choice(secret: bytes, name: str, size: int, wanted: int) -> Indices:
    """Choose ``wanted`` of a group's rows by a keyed hash of its id, independently of other groups."""
    stream = hashlib.shake_256(secret + name.encode()).digest(8 * size)
    return np.sort(np.argsort(np.frombuffer(stream, dtype=np.uint64), kind="stable")[:wanted])


def plan_for_groups(solver: Any, problem: Any, guarantee: Guarantee, rows: int) -> base.Plan:
    """Return the solver's plan for records such that ``guarantee`` holds for groups of ``rows`` records.

    If the plan is Gaussian, the noise is exactly ``rows`` times that of one record; otherwise the general conversion of
    (epsilon, delta) is used, which costs slightly more. The event is that of a whole group, if one is known.
    """
    promise = dataclasses.replace(guarantee, unit="user")
    for of_one_record in _record_guarantees(guarantee, rows):
        plan: base.Plan = solver.plan(problem, of_one_record)
        event = plan.event if rows == 1 else calibration.group_event(plan.event, rows)
        if (
            event is not None
            and accountants.delta(event, guarantee.epsilon, guarantee.neighboring) <= guarantee.delta
        ):
            break
    else:
        event = Approximate(guarantee.epsilon, guarantee.delta)
    return plan.for_groups(base.GroupPromise(promise, rows, event))


def _record_guarantees(guarantee: Guarantee, rows: int) -> Iterator[Guarantee]:
    """Yield guarantees to try for one record, cheapest first; the last is enough for any mechanism."""
    if rows == 1:
        yield guarantee
        return
    if guarantee.delta > 0:
        yield calibration.gaussian_record_guarantee(guarantee, rows)
    yield calibration.record_guarantee(guarantee, rows)
