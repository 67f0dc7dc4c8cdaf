"""The one path of a private fit: validate, bound, plan, charge, run, state.

A reader of this file sees the whole privacy argument. Nothing before `charge` is released except errors to the
person who holds the data; nothing after `run` looks at the data again.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.box_bounds import SHRUNK_BY_ENTRIES, BoxBounds
from discreet.estimators import _cells
from discreet.mechanisms.entropy import fresh_entropy, noise_is_secret
from discreet.mechanisms.recording import charged
from discreet.privacy.events import Event
from discreet.privacy.guarantee import LARGE_DELTA, Guarantee, Neighboring
from discreet.privacy.statement import PrivacyStatement
from discreet.records.arrays import ArrayRecords
from discreet.solvers.base import Plan, Progress, Release

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.receipt import Receipt

Array = NDArray[np.float64]


class PrivacyWarning(UserWarning):
    """Something the user should know about what is, or is not, protected."""


@dataclass(frozen=True)
class Labels:
    """Labels as codes into a public label set; -1 marks a null record."""

    classes: NDArray[Any]
    codes: NDArray[np.int64]
    declared: bool


def guarantee_of(
    epsilon: Any, delta: Any, neighboring: Any, n_rows: int | None, n_samples: int | None
) -> tuple[Guarantee, int]:
    """The promise asked for, and the public number of records it may rely on.

    Where the relation makes the number of rows public it is used as it is; otherwise the user declares an upper
    bound, which must not have been read off the data. Where there are rows, a run is near, and a delta that promises
    little is warned about.
    """
    relation = Neighboring(
        _inputs.choice("neighboring", neighboring, [member.value for member in Neighboring])
    )
    epsilon = _inputs.real(
        "epsilon", epsilon, above=0, hint="1.0 is a common choice, smaller is more private"
    )
    if n_samples is not None:
        n_samples = _inputs.count("n_samples", n_samples)
    known = n_rows if relation.size_is_public else None
    size = n_samples if known is None else known
    if size is None:
        raise ValueError(
            "under add-remove-one the number of rows is private: declare a public upper bound with n_samples=..., "
            "or use neighboring='replace-one'"
        )
    if n_rows is not None and n_rows > size:
        raise ValueError(
            f"the data has more rows than the declared n_samples={size}; declare a larger public bound"
        )
    if delta is None:
        if size < 2:
            raise ValueError(
                f"delta defaults to 1 / n_samples**2, which needs at least 2 rows; n_samples = {size}"
            )
        delta = 1.0 / size**2
    promise = Guarantee(epsilon, _inputs.real("delta", delta), relation)
    if n_rows is not None and promise.delta > min(LARGE_DELTA, 1.0 / size):
        warnings.warn(
            f"delta = {promise.delta:g} promises little: with that probability a release may give a person away "
            f"altogether. It should be well below 1 / n = {1.0 / size:.2g} for {size} records; usual is 1 / n**2, "
            f"or less where records are few: {min(1.0 / size**2, 1e-6):.2g}",
            PrivacyWarning,
            stacklevel=4,
        )
    return promise, size


def read_labels(y: NDArray[Any], classes: Any, bad_rows: str, *, droppable: bool = True) -> Labels:
    """Codes of the labels; the label set is the declared one, or read from the data with a warning.

    ``droppable`` says whether the caller could leave bad rows out, which is advised then.
    """
    if classes is not None:
        known = np.unique(np.asarray(classes))
        if known.ndim != 1 or len(known) < 2 or len(known) != len(np.asarray(classes).ravel()):
            raise ValueError(f"classes must list at least two different labels, got {classes!r}")
    else:
        if bad_rows == "null":
            raise ValueError("bad_rows='null' needs the public label set: pass classes=[...]")
        known = np.unique(y)
        if len(known) < 2:
            raise ValueError(
                f"the labels hold {len(known)} class; a classifier needs at least two. If only one class occurs in "
                "this data, declare the public label set with classes=[...]"
            )
        warnings.warn(
            "the label set was read from the private data and is treated as public; pass classes=[...] to declare it",
            PrivacyWarning,
            stacklevel=4,
        )
    codes = _cells.codes(y, known)
    if bad_rows == "error" and np.any(codes < 0):
        raise ValueError(
            f"y holds labels outside classes: {_cells.described(y[codes < 0])}; declared are "
            f"{_cells.described(known, most=20)}. Correct the labels or classes"
            + (", or pass bad_rows='null' to leave such rows out" if droppable else "; nothing was charged")
        )
    return Labels(known, codes, classes is not None)


class Priced(Protocol):
    """What a ledger needs to know of a plan."""

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def event(self) -> Event: ...


def charge(ledger: Ledger | str | os.PathLike[str] | None, plan: Priced, label: str) -> Receipt | None:
    """Take the price of the plan from the ledger, before anything private runs; other units than rows are noted.

    Returns what names the charge, for those who will hold what it paid for; None if there is no ledger. Insecure
    noise is noted, too: what it hides is charged for, and not private.
    """
    charged(plan)  # audits compare what was run with what was paid for
    if ledger is None:
        return None
    from discreet.privacy.ledger import Ledger

    account = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    unit = plan.guarantee.unit
    named = label if unit == "record" else f"{label}, per {unit}"
    if not noise_is_secret():
        named += ", insecure noise"
    made = account.charge(plan.event, label=named, neighboring=plan.guarantee.neighboring, unit=unit)
    return account.receipt(made)


def run(plan: Plan, records: list[ArrayRecords], progress: Progress | None = None) -> Release:
    """The only place where data meets noise; the noise source is made here and dies here."""
    return plan.run(records, fresh_entropy(), progress)


def state(plan: Plan, release: Release, assumptions: tuple[str, ...]) -> PrivacyStatement:
    """The promise that travels with the released numbers."""
    bounds = plan.problem.bounds
    rows = (
        {SHRUNK_BY_ENTRIES: bounds.entry_bound}
        if isinstance(bounds, BoxBounds)
        else {"row norm (intercept included)": bounds.feature_norm}
    )
    return PrivacyStatement.of(
        plan,
        bounds={
            **rows,
            "records": float(plan.problem.n_samples),
            "coefficients": float(plan.problem.n_coefficients),
        },
        assumptions=(
            *assumptions,
            unit_assumption(plan.guarantee),
            "columns were scaled and chosen without looking at the private data (given by the user)",
            *PLATFORM_ASSUMPTIONS,
        ),
        not_covered=NOT_COVERED,
        secure=release.secure,
    )


def unit_assumption(guarantee: Guarantee) -> str:
    """What must be true of the unit for the promise to be one about people."""
    if guarantee.unit == "user":
        return "all rows of one person carry the same id in groups (given by the user)"
    return "each person is one row (given by the user): who has k rows is protected by k times epsilon only"


PLATFORM_ASSUMPTIONS = (
    "the operating system's random numbers and AES-256 are unpredictable",
    "arithmetic follows IEEE 754 double precision, with exp and log accurate to a few units in the last place",
)
NOT_COVERED = (
    "how long the fit took and how much memory it used",
    "scores and predictions computed on private rows and published afterwards",
    "facts about the population that would be learned without any one person's row",
    "other releases from the same data: their costs add up, which is what a ledger is for",
)
