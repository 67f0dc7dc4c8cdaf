"""Guarantees, neighboring relations and sensitivities."""

from __future__ import annotations

import enum
import math
import warnings
from dataclasses import dataclass
from typing import Any, Self

from discreet import _checks
from discreet._checks import ParameterError, Setting


class PrivacyWarning(UserWarning):
    """A warning about what is, or is not, protected."""


class NoLedgerWarning(PrivacyWarning):
    """A release was not charged to a ledger, so nothing adds up what is released about the same people."""


class Neighboring(enum.StrEnum):
    """The change of one record that a guarantee hides: which pairs of data sets must be hard to tell apart.

    ``REPLACE_ONE``: one record is replaced by another; the number of records is public.
    ``ADD_REMOVE_ONE``: one record is present or absent; the number of records is private.
    ``ZERO_OUT``: one record is replaced by a null record that contributes nothing; the number is public.

    Parameters
    ----------
    value : {"replace-one", "add-remove-one", "zero-out"}
        The name that estimators take as ``neighboring=``.

    Attributes
    ----------
    contributions : how many records' contributions to a sum differ between neighbors; the only factor of the relation.
    size_is_public : whether neighbors have the same number of records, so that it may be used freely.
    meaning : the relation in words.

    Notes
    -----
    Privacy: replacing a record is removing one and adding another. A promise of epsilon under "add-remove-one" or
    "zero-out" is therefore one of 2 epsilon, with a larger delta, under "replace-one".

    Examples
    --------
    >>> Neighboring("zero-out").meaning
    "one person's record is blanked out, so as to contribute nothing; the number of records is public"
    """

    contributions: int
    size_is_public: bool
    meaning: str

    def __new__(
        cls, name: str, contributions: int = 0, size_is_public: bool = False, meaning: str = ""
    ) -> Self:
        """Make a member from its line below; a call with a name alone looks the member up, as for every enum."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.contributions, made.size_is_public, made.meaning = contributions, size_is_public, meaning
        return made

    REPLACE_ONE = (
        "replace-one", 2, True,
        "one person's record is exchanged for any other; the number of records is public",
    )  # fmt: skip
    ADD_REMOVE_ONE = (
        "add-remove-one", 1, False,
        "one person's record is added or removed; the number of records is private",
    )  # fmt: skip
    ZERO_OUT = (
        "zero-out", 1, True,
        "one person's record is blanked out, so as to contribute nothing; the number of records is public",
    )  # fmt: skip


LABEL_UNITS = ("label of one record", "all labels of one user")
UNITS = ("record", "user", *LABEL_UNITS)
KINDS = ("dp", "joint-dp")

LARGE_DELTA = 1e-3
"""With a larger delta a guarantee means little, for any epsilon."""


LARGE_EPSILON = 20.0
"""With a larger epsilon a guarantee means next to nothing: odds may change by a factor of hundreds of millions."""


USUAL_EPSILON = "1.0 is a common choice, smaller is more private"


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy under one neighboring relation.

    Parameters
    ----------
    epsilon : float
        In nats, greater than 0.
    delta : float, default 0.0
        Probability that the bound by epsilon fails, at least 0 and less than 1.
    neighboring : Neighboring
        Which change of one record is hidden.
    unit : {"record", "user", "label of one record", "all labels of one user"}
        What differs between neighbors.
    kind : {"dp", "joint-dp"}
        "joint-dp": each user may see what was computed for them alone.

    Notes
    -----
    Privacy: a description of a guarantee. Estimators calibrate their noise to it.

    Examples
    --------
    >>> Guarantee(1.0, 1e-6)
    Guarantee(epsilon=1.0, delta=1e-06, neighboring=<Neighboring.REPLACE_ONE: 'replace-one'>, unit='record',
              kind='dp')
    >>> Guarantee(-1.0)
    Traceback (most recent call last):
        ...
    discreet._checks.ParameterError: epsilon must be a number greater than 0, got -1.0; ...
    """

    epsilon: float
    delta: float = 0.0
    neighboring: Neighboring = Neighboring.REPLACE_ONE
    unit: str = "record"
    kind: str = "dp"

    def __post_init__(self) -> None:
        for name, known in (("unit", UNITS), ("kind", KINDS)):
            if getattr(self, name) not in known:
                listed = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
                raise ParameterError(name, f"must be {listed}, got {getattr(self, name)!r}")
        if isinstance(self.epsilon, bool) or not self.epsilon > 0:
            raise ParameterError(
                "epsilon", f"must be a number greater than 0, got {self.epsilon!r}", USUAL_EPSILON
            )
        if isinstance(self.delta, bool) or not 0 <= self.delta < 1:
            raise ParameterError(
                "delta",
                f"must be at least 0 and less than 1, got {self.delta!r}",
                "choose well below 1 / (number of people), for instance 1 / n**2",
            )
        object.__setattr__(self, "neighboring", Neighboring(self.neighboring))
        for name in ("epsilon", "delta"):
            if not isinstance(value := getattr(self, name), int | float):  # NumPy's may have half the digits
                object.__setattr__(self, name, float(value))

    @property
    def doubt(self) -> str:
        """Why the promise means next to nothing; empty if it means something.

        >>> Guarantee(1000.0).doubt
        'epsilon 1000 promises next to nothing: odds may change by a factor of e^1000. 1.0 is a common choice, ...'
        """
        if self.epsilon <= LARGE_EPSILON:
            return ""
        return (
            f"epsilon {self.epsilon:g} promises next to nothing: odds may change by a factor of e^{self.epsilon:g}. "
            f"{USUAL_EPSILON}"
        )

    def covers(self, unit: str) -> bool:
        """Whether the same epsilon and delta hold for ``unit``.

        Replacing one row of a person is a special case of replacing all of that person's rows. Removing or blanking one
        row is not a special case of removing or blanking all: it takes two such steps.
        """
        return unit == self.unit or (
            (self.unit, unit) == ("user", "record") and self.neighboring is Neighboring.REPLACE_ONE
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain JSON-ready values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring.value,
            "unit": self.unit,
            "kind": self.kind,
        }


def relation_of(neighboring: Any) -> Neighboring:
    """Return the relation with this name."""
    return Neighboring(_checks.choice("neighboring", neighboring, [member.value for member in Neighboring]))


def guarantee_of(
    epsilon: Any,
    delta: Any,
    neighboring: Any,
    n_rows: int | None,
    n_samples: int | None,
    counted: str = "rows",
    declared: str = "n_samples",
) -> tuple[Guarantee, int]:
    """Return the requested guarantee and the public number of records it may rely on.

    If the relation makes the number of rows public, it is used; otherwise the user declares an upper bound, which must
    not be read off the data. If rows are given, warn about an epsilon or a delta that is too large. ``counted`` and
    ``declared`` name the records and the parameter that bounds them in errors.
    """
    relation = relation_of(neighboring)
    epsilon = _checks.real("epsilon", epsilon, above=0, hint=USUAL_EPSILON)
    if n_samples is not None:
        n_samples = _checks.count(declared, n_samples)
    known = n_rows if relation.size_is_public else None
    size = n_samples if known is None else known
    if size is None:
        raise ParameterError(
            declared,
            f"is required under add-remove-one, where the number of {counted} is private",
            Setting(declared, purpose="as a public upper bound"),
            Setting("neighboring", "replace-one"),
        )
    if n_rows is not None and n_rows > size:
        raise ParameterError(
            declared,
            f"must be at least the number of {counted}, got {size}",
            "declare a larger public bound. Nothing was charged.",
        )
    if delta is None:
        if size < 2:
            raise ParameterError(
                "delta",
                f"defaults to 1 / n**2, which needs at least 2 {counted}, got {size}",
                Setting("delta", purpose="explicitly"),
            )
        delta = 1.0 / size**2
    promise = Guarantee(epsilon, _checks.real("delta", delta), relation)
    if n_rows is not None and promise.delta > min(LARGE_DELTA, 1.0 / size):
        warnings.warn(
            f"delta = {promise.delta:g} is too large to protect anyone: with that probability a release may reveal a "
            f"person's record. Choose it well below 1 / n = {1.0 / size:.2g} for {size} records, for example "
            f"{min(1.0 / size**2, 1e-6):.2g}",
            PrivacyWarning,
            stacklevel=4,
        )
    if n_rows is not None and promise.doubt:
        warnings.warn(promise.doubt, PrivacyWarning, stacklevel=4)
    return promise, size


def refuse_large_default(delta: float | None, n_samples: int) -> None:
    """Raise if delta was left at its default, 1 / n_samples**2, and that is too large to protect anyone.

    >>> refuse_large_default(None, 2)
    Traceback (most recent call last):
        ...
    discreet._checks.ParameterError: delta defaults to 1 / n**2, which is 0.25 for 2 records: ...
    """
    if delta is None and 1.0 / n_samples**2 > LARGE_DELTA:
        raise ParameterError(
            "delta",
            f"defaults to 1 / n**2, which is {1.0 / n_samples**2:.3g} for {n_samples} records: each of them could be "
            "revealed with that probability. With this few records the result will be mostly noise",
            Setting("delta", 1e-6, purpose=f"(at most {LARGE_DELTA:g}) to proceed anyway"),
        )


#: Factor that makes a bound computed in floating point at least its exact value: covers a formula with fewer than
#: 2**12 roundings, at points that a projection left outside their set by a few units in the last place.
SLACK = 1 + 2.0**-40
#: The same for values that must not be too large.
SHRINK = 1 - 2.0**-40
#: The same for closed forms of a few operations.
UP = 1 + 1e-12


@dataclass(frozen=True)
class Sensitivity:
    """How far a statistic can move between neighbors, in a stated norm (1, 2 or infinity)."""

    value: float
    norm: float = 2.0

    def __post_init__(self) -> None:
        if not (self.value >= 0 and math.isfinite(self.value)):
            raise ValueError(f"a sensitivity must be a finite number >= 0, got {self.value!r}")
        if self.norm not in (1.0, 2.0, math.inf):
            raise ValueError(f"a sensitivity's norm must be 1, 2 or infinity, got {self.norm!r}")


def sum_sensitivity(record_bound: float, neighboring: Neighboring) -> Sensitivity:
    """Return the L2 sensitivity of a sum of vectors with norm at most ``record_bound``.

    >>> sum_sensitivity(1.5, Neighboring.REPLACE_ONE).value
    3.0
    >>> sum_sensitivity(1.5, Neighboring.ZERO_OUT).value
    1.5
    """
    return Sensitivity(neighboring.contributions * record_bound)


def acute_sum_sensitivity(record_bound: float, neighboring: Neighboring) -> Sensitivity:
    """Return the L2 sensitivity of a sum of vectors with norm at most ``record_bound``, no two at an obtuse angle.

    Such vectors, for example without negative entries, are at most sqrt(2) times the bound apart (Pythagoras).

    >>> acute_sum_sensitivity(1.0, Neighboring.REPLACE_ONE).value
    1.4142135623730951
    >>> acute_sum_sensitivity(1.5, Neighboring.ZERO_OUT).value
    1.5
    """
    return Sensitivity(math.sqrt(neighboring.contributions) * record_bound)
