"""User-level privacy: at most a public number of rows of every group, and a promise about all of them at once.

The relation is between sequences of groups, in the order in which they first appear: one group is exchanged for
another, blanked, or absent. Proofs: ``docs/proofs/groups.md``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.mechanisms.entropy import Entropy, fresh_entropy
from discreet.privacy import accountants, groups
from discreet.privacy.events import Approximate, Event
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.tables import cell_text

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Slots:
    """Places for the rows of groups: the row in each place, and which places are empty."""

    rows: Indices
    empty: NDArray[np.bool_]


def bounded_rows(
    ids: Any, rows_per_group: int | None, n_rows: int, *, strict: bool, padded: bool
) -> Slots | None:
    """At most ``rows_per_group`` rows of every group, chosen from the group's own rows alone; None without groups.

    Parameters
    ----------
    ids : one id per row, or None.
    strict : whether a missing id is an error; otherwise the row is left out.
    padded : give every group all its places, so that their number tells the number of groups and no more.
    """
    if ids is None and rows_per_group is None:
        return None
    if ids is None:
        raise ValueError(
            "max_rows_per_group promises privacy per group, so fit needs to know who is who: pass groups=..., one id "
            "per row, or leave max_rows_per_group=None to protect single rows"
        )
    if rows_per_group is None:
        raise ValueError(
            "groups were given: declare with max_rows_per_group=... how many rows of one group may be used, without "
            "looking at the private data; 1 to 3 is common, more rows per group cost more noise"
        )
    names, codes = _codes(*read_ids(ids, n_rows, strict=strict))
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


def read_ids(ids: Any, n_rows: int, *, strict: bool) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The id of every row, and where there is none; ``strict`` refuses that."""
    values = _inputs.cells(ids)
    if values.shape != (n_rows,):
        raise ValueError(f"groups must hold one id per row: {n_rows} rows, groups of shape {values.shape}")
    if values.dtype.kind not in "iubfUSO":
        raise TypeError(
            f"ids must be numbers or strings, got dtype {values.dtype}; convert them, for instance to str"
        )
    if values.dtype.kind in "OUS":
        # An array of texts would drop zero characters at their ends, and make one group of two.
        values = np.array([cell_text(value) for value in values], dtype=object)
        missing = np.array([text is None for text in values], dtype=bool)
    else:
        missing = values != values
    if strict and missing.any():
        raise ValueError(
            "some rows have no id in groups; add it, or pass bad_rows='null' to leave such rows out"
        )
    return values, missing


def _codes(values: NDArray[Any], missing: NDArray[np.bool_]) -> tuple[NDArray[Any], Indices]:
    """Names of the groups in order of appearance, and every row's group; -1 where there is none."""
    present = np.flatnonzero(~missing)
    names, first, codes = np.unique(values[present], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    all_codes = np.full(len(values), -1, dtype=np.int64)
    all_codes[present] = rank[codes.ravel()]
    return names[order], all_codes


def _choice(secret: bytes, name: Any, size: int, wanted: int) -> Indices:
    """``wanted`` of a group's rows, by a keyed hash of its id: nothing about other groups can change it."""
    text = str(name).encode(errors="surrogatepass")  # whatever an id holds, it raises nothing
    stream = hashlib.shake_256(secret + text).digest(8 * size)
    return np.sort(np.argsort(np.frombuffer(stream, dtype=np.uint64), kind="stable")[:wanted])


@dataclass(frozen=True)
class GroupPlan:
    """A plan for single records, with the promise that it keeps for groups of at most ``rows_per_group`` of them."""

    plan: base.Plan
    guarantee: Guarantee
    rows_per_group: int
    event: Event

    @property
    def problem(self) -> Problem:
        """The problem of the inner plan: its records are rows."""
        return self.plan.problem

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"{self.plan.mechanism}; at most {self.rows_per_group} rows of every group"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return f"{self.plan.theorem}; group privacy (docs/proofs/groups.md)"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        record = self.plan.guarantee
        return {
            **self.plan.noise,
            "rows of one group": float(self.rows_per_group),
            "epsilon of one row": record.epsilon,
            "delta of one row": record.delta,
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Run the inner plan."""
        return self.plan.run(records, entropy, progress)

    def __str__(self) -> str:
        return base.printed(self)


def record_promise(plan: base.Plan) -> Guarantee:
    """What the plan promises about a single record, which is what its noise is made for."""
    return plan.plan.guarantee if isinstance(plan, GroupPlan) else plan.guarantee


def plan_for_groups(solver: base.Solver, problem: Problem, guarantee: Guarantee, rows: int) -> GroupPlan:
    """The solver's plan for records such that ``guarantee`` holds for groups of ``rows`` records.

    Where the plan is Gaussian the noise is ``rows`` times that of one record, exactly; elsewhere the general conversion
    of (epsilon, delta) is used, which costs a little more. The event is that of a whole group, where one is known.
    """
    promise = dataclasses.replace(guarantee, unit="user")
    for of_one_record in _record_guarantees(guarantee, rows):
        plan = solver.plan(problem, of_one_record)
        event = plan.event if rows == 1 else groups.group_event(plan.event, rows)
        if event is not None and _meets(event, guarantee):
            return GroupPlan(plan, promise, rows, event)
    return GroupPlan(plan, promise, rows, Approximate(guarantee.epsilon, guarantee.delta))


def _record_guarantees(guarantee: Guarantee, rows: int) -> Iterator[Guarantee]:
    """What may be asked for one record, the cheapest first; the last is enough whatever the mechanism."""
    if rows == 1:
        yield guarantee
        return
    if guarantee.delta > 0:
        yield groups.gaussian_record_guarantee(guarantee, rows)
    yield groups.record_guarantee(guarantee, rows)


def _meets(event: Event, guarantee: Guarantee) -> bool:
    return accountants.delta(event, guarantee.epsilon, guarantee.neighboring) <= guarantee.delta
