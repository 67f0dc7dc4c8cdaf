"""The one release behind a description: all counts and sums of all columns and tables, with noise.

Proofs: docs/proofs/describe.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet._typing import Array
from discreet.description.columns import Categories, Codes, Column, Places, Scale, Tally
from discreet.mechanisms.noisy_vector import NoisyVectorPlan
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity


@dataclass(frozen=True, eq=False)
class Counted:
    """Exact counts of a table: rows per place of each column, and per cell of each two-way table."""

    columns: tuple[Tally, ...]
    tables: tuple[Codes, ...]

    @staticmethod
    def of(columns: Sequence[Column], pairs: Sequence[tuple[int, int]], places: Sequence[Places]) -> Counted:
        """Count some rows, given the places of each column."""
        shown = [column.shown[of.codes] for column, of in zip(columns, places, strict=True)]
        sizes = [len(column.labels) for column in columns]
        return Counted(
            tuple(column.tally(of) for column, of in zip(columns, places, strict=True)),
            tuple(
                np.bincount(
                    shown[first] * sizes[second] + shown[second], minlength=sizes[first] * sizes[second]
                )
                for first, second in pairs
            ),
        )

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            tuple(one + another for one, another in zip(self.columns, other.columns, strict=True)),
            tuple(one + another for one, another in zip(self.tables, other.tables, strict=True)),
        )


@dataclass(frozen=True)
class DescriptionPlan(NoisyVectorPlan):
    """A calibrated release of the counts and sums of every column, and of two-way tables; printable.

    Attributes
    ----------
    columns : all columns, as they are counted.
    pairs : indices of the two columns of each two-way table.
    max_rows : maximum number of rows per person; 1 if records are protected.

    Notes
    -----
    Privacy: two rows can be farthest apart in all columns and tables at once. So powers of distances add up, and the
    sensitivity is exact; for a person it is ``max_rows`` times as large.
    """

    columns: tuple[Column, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    max_rows: int = 1

    theorem = "sensitivity of stacked counts and sums: docs/proofs/describe.md, section 1"

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the two-way tables."""
        cells = [len(column.labels) for column in self.columns]
        return tuple((cells[first], cells[second]) for first, second in self.pairs)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of released values for every column, then for every table."""
        return (
            *(column.size for column in self.columns),
            *(rows * columns for rows, columns in self.shapes),
        )

    @property
    def size(self) -> int:
        """Number of released values."""
        return sum(self.sizes)

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of all released numbers together."""
        norm = 1.0 if self.guarantee.delta == 0 else 2.0
        relation = self.guarantee.neighboring
        exchanged = relation is Neighboring.REPLACE_ONE
        moved = sum(column.apart(norm) if exchanged else column.length(norm) for column in self.columns)
        moved += len(self.pairs) * (1 if relation is Neighboring.ADD_REMOVE_ONE else 2)
        if relation is Neighboring.ZERO_OUT:  # a null row counts as missing in every column
            moved += len(self.columns)
        return Sensitivity(self.max_rows * moved ** (1 / norm) * SLACK, norm)

    @property
    def mechanism(self) -> str:
        bounded = f"; at most {self.max_rows} rows of every group" if self.guarantee.unit == "user" else ""
        return f"discrete {self.kind} noise on counts and sums: {'; '.join(self.listed())}{bounded}"

    def listed(self) -> list[str]:
        """List the released numbers, in words."""
        names = [column.name for column in self.columns]
        counted = [column.name for column in self.columns if isinstance(column, Categories)]
        summed = [column.name for column in self.columns if isinstance(column, Scale)]
        tables = [f"{names[first]} x {names[second]}" for first, second in self.pairs]
        return [
            f"{what} of {', '.join(of)}"
            for what, of in (("counts", counted), ("counts and sums", summed), ("two-way tables", tables))
            if of
        ]

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "released numbers": float(self.size),
            "noise stddev of one of them": self.stddev,
        }

    def run(self, counted: Counted, entropy: Entropy) -> Array:
        """Return the noisy numbers of all columns and tables, concatenated."""
        sums = [column.sums(of) for column, of in zip(self.columns, counted.columns, strict=True)]
        return self.release.release(np.concatenate([*sums, *counted.tables]).astype(np.float64), entropy)

    def split(self, released: Array) -> list[Array]:
        """Split released numbers by column, then by table."""
        return np.split(released, np.cumsum(self.sizes)[:-1])
