"""The one path of a private fit: validate, bound, plan, charge, run, state.

A reader of this file sees the whole privacy argument. Nothing before `charge` is released except errors to the
person who holds the data; nothing after `run` looks at the data again.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.box_bounds import SHRUNK_BY_ENTRIES, BoxBounds
from discreet.estimators import _cells
from discreet.mechanisms.entropy import fresh_entropy, noise_is_secret
from discreet.mechanisms.recording import charged
from discreet.privacy import statement
from discreet.privacy.events import Event
from discreet.privacy.guarantee import LARGE_DELTA, Guarantee, Neighboring
from discreet.privacy.statement import PrivacyStatement
from discreet.records.arrays import ArrayRecords
from discreet.solvers.base import Plan, Progress, Release

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.receipt import Receipt

Array = NDArray[np.float64]
Model = TypeVar("Model")


class PrivacyWarning(UserWarning):
    """Something the user should know about what is, or is not, protected."""


@dataclass(frozen=True)
class Labels:
    """Labels as codes into a public label set; -1 marks a null record."""

    classes: NDArray[Any]
    codes: NDArray[np.int64]
    declared: bool

    @property
    def assumption(self) -> str:
        """What a promise assumes about the label set."""
        if self.declared:
            return "the label set was declared by the user"
        return (
            "THE LABEL SET WAS READ FROM THE PRIVATE DATA and is treated as public: a label that only one person has "
            "would be revealed"
        )


def unfitted(model: Model) -> Model:
    """A twin of an estimator with its parameters and nothing that a fit has set.

    A fit works on the twin, and the model takes over the twin's attributes in the end: what is refused or interrupted
    leaves the model as it was, and no fact about an earlier fit stays beside a new one.
    """
    return _twin(model, {name: value for name, value in vars(model).items() if not name.endswith("_")})


def as_fitted(model: Model) -> Model:
    """A twin with the parameters of the last fit: those that were set since then are for the next one."""
    return _twin(model, vars(model) | getattr(model, "fitted_parameters_", {}))


def parameters(model: Any) -> dict[str, Any]:
    """What a fitted model keeps as ``fitted_parameters_``: everything it was told but where the budget lies."""
    return {name: value for name, value in model.get_params(deep=False).items() if name != "ledger"}


def _twin(model: Model, attributes: dict[str, Any]) -> Model:
    twin = object.__new__(type(model))
    vars(twin).update(attributes)
    return twin


def relation_of(neighboring: Any) -> Neighboring:
    """The relation with this name."""
    return Neighboring(_inputs.choice("neighboring", neighboring, [member.value for member in Neighboring]))


def guarantee_of(
    epsilon: Any,
    delta: Any,
    neighboring: Any,
    n_rows: int | None,
    n_samples: int | None,
    counted: str = "rows",
) -> tuple[Guarantee, int]:
    """The promise asked for, and the public number of records it may rely on; errors call them as ``counted`` says.

    Where the relation makes the number of rows public it is used as it is; otherwise the user declares an upper
    bound, which must not have been read off the data. Where there are rows, a run is near, and a delta that promises
    little is warned about.
    """
    relation = relation_of(neighboring)
    epsilon = _inputs.real(
        "epsilon", epsilon, above=0, hint="1.0 is a common choice, smaller is more private"
    )
    if n_samples is not None:
        n_samples = _inputs.count("n_samples", n_samples)
    known = n_rows if relation.size_is_public else None
    size = n_samples if known is None else known
    if size is None:
        raise ValueError(
            f"under add-remove-one the number of {counted} is private: declare a public upper bound with "
            "n_samples=..., or use neighboring='replace-one'"
        )
    if n_rows is not None and n_rows > size:
        raise ValueError(
            f"the data has more {counted} than the declared n_samples={size}; declare a larger public bound. Nothing "
            "was charged."
        )
    if delta is None:
        if size < 2:
            raise ValueError(
                f"delta defaults to 1 / n_samples**2, which needs at least 2 {counted}; n_samples = {size}"
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
        known = _declared(classes)
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


def _declared(classes: Any) -> NDArray[Any]:
    """The declared labels in order; a mixture is refused, of which NumPy would make texts that no label equals."""
    given = _inputs.cells(classes).ravel()
    kinds = {np.asarray(label).dtype.kind for label in given}
    if len({"number" if kind in "iuf" else kind for kind in kinds}) > 1:
        raise ValueError(
            "classes must be all text, all numbers or all true/false, not a mixture, got "
            f"{_cells.described(given, most=20)}"
        )
    known = np.unique(np.asarray(classes))
    if len(known) < 2 or len(known) != len(given):
        raise ValueError(f"classes must list at least two different labels, got {classes!r}")
    return known


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


def size_facts(relation: Neighboring, size: int, per_group: int | None, delta: Any) -> tuple[str, ...]:
    """What the promise assumes about numbers of rows; ``size`` counts all places of groups, ``delta`` is as given."""
    if not relation.size_is_public:
        rows = f"{size} is a public upper bound on the number of rows (given by the user)"
    elif per_group is None:
        rows = f"the number of rows, {size}, is public"
    else:
        rows = f"the number of groups, {size // per_group}, is public; that of rows is not"
    return (rows,) if delta is not None else (rows, "delta was set to 1 / n_samples**2 by default")


def unit_assumption(guarantee: Guarantee) -> str:
    """What must be true of the unit for the promise to be one about people."""
    if guarantee.unit == "user":
        return "all rows of one person carry the same id in groups (given by the user)"
    return "each person is one row (given by the user): somebody with k rows is protected only at k times epsilon"


PLATFORM_ASSUMPTIONS = (
    statement.UNPREDICTABLE,
    "arithmetic follows IEEE 754 double precision, with exp and log accurate to a few units in the last place",
)
NOT_COVERED = (
    statement.TIME_AND_MEMORY,
    "scores and predictions computed on private rows and published afterwards",
    statement.POPULATION,
    statement.OTHER_RELEASES,
)
