"""How a description counts each column: public cells, and the numbers that one row adds to them.

The vector that a row adds to the released sums is a function of that row and the public schema. Its entries are
integers, or integer multiples of 2^-20 times a power of two: sums of up to 2^33 rows are exact in float64, and the
stated distances are exact too. Proofs:
docs/proofs/describe.md, section 1.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array, Mask
from discreet.tables.domains import (
    Binned,
    Boolean,
    Categorical,
    Domain,
    Numeric,
    category_codes,
    cell_text,
    read_numbers,
)
from discreet.tables.schema import Schema

Codes = NDArray[np.int64]

MISSING, OTHER = "(missing)", "(other)"
SPLITS = 16  # number of finer parts in which each bin of a numeric column is counted, for quantiles
_UNITS = 2**20  # steps in half the width of a numeric column
_SUM_WEIGHT = 0.5  # weight of the sum of cell centers relative to the counts: a power of two
_LARGEST_REMAINDER = (
    0.25  # largest weight of a number's distance from its cell center, relative to the counts
)


@dataclass(frozen=True, eq=False)
class Places:
    """The place of every row's cell, and the number of steps from the center of that place."""

    codes: Codes
    excess: Codes | None = None

    @staticmethod
    def joined(parts: Sequence[Places], n_places: int) -> Places:
        """Join the places of several batches of rows, in the smallest integer type that holds ``n_places``."""
        kind = np.min_scalar_type(n_places)
        steps = [part.excess.astype(np.int32) for part in parts if part.excess is not None]
        codes = np.concatenate([part.codes.astype(kind) for part in parts])
        return Places(codes, np.concatenate(steps) if steps else None)

    def take(self, rows: Codes) -> Places:
        """Return the places of some rows."""
        return Places(self.codes[rows], None if self.excess is None else self.excess[rows])


@dataclass(frozen=True, eq=False)
class Tally:
    """The number of rows in every place, and the sum of their steps from the centers."""

    counts: Codes
    excess: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.counts + other.counts, self.excess + other.excess)


@dataclass(frozen=True)
class Column(ABC):
    """How a column is counted; public facts only.

    Attributes
    ----------
    name, domain : as in the schema.
    """

    name: str
    domain: Domain

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the shown cells; missing comes last."""

    @property
    @abstractmethod
    def shown(self) -> Codes:
        """The cell that is shown for every place."""

    @property
    @abstractmethod
    def design(self) -> Array:
        """Matrix from the numbers of rows in all places to the released counts."""

    @property
    def size(self) -> int:
        """Number of released values."""
        return len(self.design)

    @abstractmethod
    def read(self, cells: Any) -> tuple[Places, Mask]:
        """The place of every cell, and which cells have no meaning here; they count as missing."""

    def tally(self, places: Places) -> Tally:
        """Count the rows in every place."""
        excess = 0 if places.excess is None else int(places.excess.sum(dtype=np.int64))
        return Tally(np.bincount(places.codes, minlength=len(self.shown)), excess)

    def sums(self, tally: Tally) -> Array:
        """The exact sums that noise is added to."""
        return np.asarray(self.design @ tally.counts.astype(np.float64))

    def apart(self, norm: float) -> float:
        """Return the largest distance between the vectors of two rows, to the power ``norm``."""
        return 2.0

    def length(self, norm: float) -> float:
        """Return the largest length of one row's vector, to the power ``norm``."""
        return 1.0


@dataclass(frozen=True)
class Categories(Column):
    """A column whose cells are counted directly: categories, truth values, given intervals, presence of text."""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the cells; all undeclared categories count as one."""
        domain = self.domain
        if isinstance(domain, Categorical):
            return (*(str(cell_text(label)) for label in domain.categories), OTHER, MISSING)
        if isinstance(domain, Binned):
            edges = [f"{edge:g}" for edge in domain.edges]
            middle = (f"{low} to {high}" for low, high in itertools.pairwise(edges))
            return f"below {edges[0]}", *middle, f"{edges[-1]} or more", MISSING
        return ("false", "true", MISSING) if isinstance(domain, Boolean) else ("text", MISSING)

    @property
    def shown(self) -> Codes:
        """Every place is shown."""
        return np.arange(len(self.labels))

    @property
    def design(self) -> Array:
        """One count for every place."""
        return np.eye(len(self.labels))

    def read(self, cells: Any) -> tuple[Places, Mask]:
        """The place of every cell, and which cells have no meaning here; they count as missing."""
        domain, malformed = self.domain, np.zeros(len(cells), dtype=bool)
        if isinstance(domain, Boolean):
            truth, malformed = domain.encode(cells)
            codes = np.select([truth[:, 0] < 0, truth[:, 0] > 0], [0, 1], -1)
        elif isinstance(domain, Binned):
            values, malformed = read_numbers(cells)
            codes = np.where(np.isnan(values), -1, np.searchsorted(domain.edges, values, side="right"))
        else:
            known = domain.categories if isinstance(domain, Categorical) else ()
            codes = category_codes(cells, known, undeclared=len(known))
        return Places(np.where(codes < 0, len(self.labels) - 1, codes).astype(np.int64)), malformed


@dataclass(frozen=True)
class Scale(Column):
    """A number with public bounds, counted in bins and their parts, and summed.

    A row adds 1 to a bin and to one of its parts, the center of that part to one sum, and the distance from that center
    to another. A missing cell adds 1 to a separate count. Numbers are scaled so that the bounds are -1 and 1.

    Attributes
    ----------
    bins : number of bins of equal width on the domain's scale, which may be logarithmic.
    """

    domain: Numeric
    bins: int

    @property
    def _parts(self) -> int:
        return self.bins * SPLITS

    @cached_property
    def edges(self) -> Array:
        """Ends of all parts, in units of the column."""
        low, high, share = self.domain.lower, self.domain.upper, np.linspace(0, 1, self._parts + 1)
        if self.domain.logarithmic:
            inside = np.expm1(share * math.log1p(2 * (high / 2 - low / 2)))
            share = inside / inside[-1]
        edges = low * (1 - share) + high * share
        edges[[0, -1]] = low, high
        return np.asarray(edges)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the bins."""
        ends = [f"{edge:.6g}" for edge in self.edges[::SPLITS]]
        return (*(f"{low} to {high}" for low, high in itertools.pairwise(ends)), MISSING)

    @property
    def shown(self) -> Codes:
        """The bin of every part."""
        return np.append(np.arange(self._parts) // SPLITS, self.bins)

    @cached_property
    def _steps(self) -> tuple[Codes, Codes]:
        """Center of every part, and the largest distance of a number in it, in steps."""
        ends = self._linear(self.edges) * _UNITS
        return np.rint((ends[:-1] + ends[1:]) / 2).astype(np.int64), np.ceil(np.diff(ends) / 2).astype(
            np.int64
        ) + 1

    @cached_property
    def centers(self) -> Array:
        """Center of every part, between -1 and 1."""
        return np.asarray(self._steps[0] / _UNITS)

    @property
    def half_step(self) -> float:
        """Mean loss from rounding down to steps, on the scale of the bounds."""
        return 0.5 / _UNITS

    @cached_property
    def remainder_weight(self) -> float:
        """Weight of the sum of distances from centers: a power of two that keeps each of them small."""
        largest = float(self._steps[1].max()) / _UNITS
        return min(4.0, 2.0 ** math.floor(math.log2(_LARGEST_REMAINDER / largest)))

    @cached_property
    def design(self) -> Array:
        """Counts of parts, of bins and of missing cells, and the weighted sum of centers."""
        parts = self._parts
        bins = np.kron(np.eye(self.bins), np.ones(SPLITS))
        counted = np.vstack([np.eye(parts), bins, np.zeros(parts), _SUM_WEIGHT * self.centers])
        missing = np.zeros((len(counted), 1))
        missing[parts + self.bins] = 1.0
        return np.hstack([counted, missing])

    @property
    def size(self) -> int:
        """Counts, the sum of centers and that of remainders."""
        return self._parts + self.bins + 3

    def read(self, cells: Any) -> tuple[Places, Mask]:
        """The place of every cell, and which cells have no meaning here; they count as missing."""
        values, malformed = read_numbers(cells)
        missing = np.isnan(values)
        values = np.where(missing, self.domain.lower, values)
        scaled, parts = self.domain.scaled(values), self._parts
        codes = np.clip(np.floor((scaled + 1) / 2 * parts), 0, parts - 1).astype(np.int64)
        center, farthest = (part[codes] for part in self._steps)
        excess = np.floor(self._linear(values) * _UNITS).astype(np.int64) - center
        excess = np.where(missing, 0, np.clip(excess, -farthest, farthest))
        return Places(np.where(missing, parts, codes), excess), malformed

    def sums(self, tally: Tally) -> Array:
        """The exact sums that noise is added to."""
        parts, missing = tally.counts[:-1], tally.counts[-1:]
        bins = parts.reshape(self.bins, SPLITS).sum(axis=1)
        steps = np.array([parts @ self._steps[0], tally.excess])
        weighted = steps / _UNITS * [_SUM_WEIGHT, self.remainder_weight]
        return np.concatenate([parts, bins, missing, weighted]).astype(np.float64)

    def apart(self, norm: float) -> float:
        """Attained by parts of different bins at both ends of the scale, with remainders of opposite signs."""
        centers, farthest = self.centers, float(self._steps[1].max()) / _UNITS
        spread = float(centers[-1] - centers[0])
        return float(4 + (_SUM_WEIGHT * spread) ** norm + (2 * self.remainder_weight * farthest) ** norm)

    def length(self, norm: float) -> float:
        """Attained by a part at an end of the scale."""
        farthest = float(self._steps[1].max()) / _UNITS
        largest = float(np.abs(self.centers).max())
        return float(2 + (_SUM_WEIGHT * largest) ** norm + (self.remainder_weight * farthest) ** norm)

    def _linear(self, values: Array) -> Array:
        """Scale numbers linearly so that the bounds are -1 and 1, whatever the scale of the bins."""
        return Numeric(self.domain.lower, self.domain.upper).scaled(values)


def columns_of(schema: Schema, bins: dict[str, int]) -> tuple[Column, ...]:
    """Return how all columns of a schema are counted; its target comes last."""
    domains = dict(schema.columns)
    if schema.target is not None:
        target = schema.target
        domains[target.column] = Numeric(*target.bounds) if target.bounds else Categorical(target.classes)
    return tuple(
        Scale(name, domain, bins[name]) if isinstance(domain, Numeric) else Categories(name, domain)
        for name, domain in domains.items()
    )
