"""What is promised: the guarantee, the neighboring relation, and sensitivities."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any


class Neighboring(enum.StrEnum):
    """Which two data sets must be indistinguishable.

    ``REPLACE_ONE``: one record is exchanged for another; the number of records is public.
    ``ADD_REMOVE_ONE``: one record is present or absent; the number of records is private.
    ``ZERO_OUT``: one record is exchanged for a null record that contributes nothing; the number is public.
    """

    REPLACE_ONE = "replace-one"
    ADD_REMOVE_ONE = "add-remove-one"
    ZERO_OUT = "zero-out"

    @property
    def contributions(self) -> int:
        """How many records' contributions to a sum differ between neighbors: the only relation factor."""
        return 2 if self is Neighboring.REPLACE_ONE else 1

    @property
    def size_is_public(self) -> bool:
        """Whether neighbors have the same number of records, so that the number may be used freely."""
        return self is not Neighboring.ADD_REMOVE_ONE

    @property
    def meaning(self) -> str:
        """The relation in words."""
        return {
            Neighboring.REPLACE_ONE: "one person's record is exchanged for any other; the number of records is public",
            Neighboring.ADD_REMOVE_ONE: "one person's record is added or removed; the number of records is private",
            Neighboring.ZERO_OUT: "one person's record is blanked out; the number of records is public",
        }[self]


LARGE_DELTA = 1e-3
"""With a larger delta a promise means little, whatever its epsilon."""


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy under one neighboring relation.

    Examples
    --------
    >>> Guarantee(1.0, 1e-6)
    Guarantee(epsilon=1.0, delta=1e-06, neighboring=<Neighboring.REPLACE_ONE: 'replace-one'>, unit='record',
              kind='dp')
    >>> Guarantee(-1.0)
    Traceback (most recent call last):
        ...
    ValueError: epsilon must be a number greater than 0, got -1.0; ...
    """

    epsilon: float
    delta: float = 0.0
    neighboring: Neighboring = Neighboring.REPLACE_ONE
    unit: str = "record"
    kind: str = "dp"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(
                f"epsilon must be a number greater than 0, got {self.epsilon!r}; "
                "1.0 is a common choice, smaller is more private"
            )
        if not 0 <= self.delta < 1:
            raise ValueError(
                f"delta must be at least 0 and less than 1, got {self.delta!r}; "
                "choose well below 1 / (number of people), for instance 1 / n**2"
            )
        object.__setattr__(self, "neighboring", Neighboring(self.neighboring))

    @property
    def meaning(self) -> str:
        """The relation in words, for the unit that is protected."""
        text = self.neighboring.meaning
        if self.unit != "user":
            return text
        text = text.replace("one person's record is", "all rows of one person are").replace(
            "other;", "others;"
        )
        return text.replace("number of records", "number of people")

    def covers(self, unit: str) -> bool:
        """Whether the same epsilon and delta hold for ``unit``.

        Replacing one row of a person is one way of replacing all of that person's rows. Removing or blanking one row
        is not one way of removing or blanking all: it takes two such steps.
        """
        return unit == self.unit or (
            (self.unit, unit) == ("user", "record") and self.neighboring is Neighboring.REPLACE_ONE
        )

    def to_dict(self) -> dict[str, Any]:
        """The guarantee as plain JSON-ready values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring.value,
            "unit": self.unit,
            "kind": self.kind,
        }


def refuse_large_default(delta: float | None, n_samples: int) -> None:
    """Raise if nobody chose a delta, and 1 / n_samples**2, which stands in for it, is too large to promise anything.

    >>> refuse_large_default(None, 2)
    Traceback (most recent call last):
        ...
    ValueError: delta defaults to 1 / n_samples**2, which is 0.25 for 2 records: ...
    """
    if delta is None and 1.0 / n_samples**2 > LARGE_DELTA:
        raise ValueError(
            f"delta defaults to 1 / n_samples**2, which is {1.0 / n_samples**2:.3g} for {n_samples} records: one of "
            "them could be published with that probability. So few records give little but noise; if it has to be, "
            f"pass a delta of at most {LARGE_DELTA:g}, such as delta=1e-6"
        )


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
    """L2 sensitivity of a sum of vectors whose norm is at most ``record_bound``.

    >>> sum_sensitivity(1.5, Neighboring.REPLACE_ONE).value
    3.0
    >>> sum_sensitivity(1.5, Neighboring.ZERO_OUT).value
    1.5
    """
    return Sensitivity(neighboring.contributions * record_bound)


def acute_sum_sensitivity(record_bound: float, neighboring: Neighboring) -> Sensitivity:
    """L2 sensitivity of a sum of vectors of norm at most ``record_bound``, no two of them at an obtuse angle.

    Such vectors, without negative entries for instance, are sqrt(2) times the bound apart at most (Pythagoras).

    >>> acute_sum_sensitivity(1.0, Neighboring.REPLACE_ONE).value
    1.4142135623730951
    >>> acute_sum_sensitivity(1.5, Neighboring.ZERO_OUT).value
    1.5
    """
    return Sensitivity(math.sqrt(neighboring.contributions) * record_bound)
