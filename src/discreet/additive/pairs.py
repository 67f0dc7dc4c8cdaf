"""Pairs of columns: which of them still explain residuals, chosen by the exponential mechanism.

The score of a pair is the Euclidean norm of its table of clipped residuals, which one record moves by no more than the
clip. Proofs: docs/proofs/additive-models.md, section 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet._typing import Array, Integers
from discreet.additive.bins import Bins
from discreet.additive.records import ROUNDED, Coordinates, kernel_root, steps, unit_rows
from discreet.additive.shapes import pair_cells
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy.events import BoundedRange, Event
from discreet.privacy.guarantee import SLACK, Neighboring, sum_sensitivity
from discreet.records.bounds import UNIT_ROUNDOFF

COARSE = 12  # bins of an ordered column in a pair
MOST_CATEGORIES = 2 * COARSE  # of a nominal one; a column with more is in no pair

Blocks = Iterable[tuple[Sequence[Integers], Array]]


@dataclass(frozen=True)
class PairTable:
    """Two columns and the coarse bins of each."""

    columns: tuple[int, int]
    coarse: tuple[Integers, Integers]
    ordered: tuple[bool, bool]

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of coarse bins of each."""
        first, second = (int(table.max()) + 1 for table in self.coarse)
        return first, second

    def cells(self, codes: Sequence[Integers]) -> Integers:
        """The place of every record in the table, row by row; -1 where a cell is missing."""
        return pair_cells(self.coarse, [codes[place] for place in self.columns])

    def vectors(self) -> Array:
        """Vectors of norm 1, one per cell of the table: products of those of the two columns."""
        first, second = (
            kernel_root(size)[0] if smooth else np.eye(size)
            for size, smooth in zip(self.sizes, self.ordered, strict=True)
        )
        return unit_rows(np.einsum("ai,bj->abij", first, second).reshape(math.prod(self.sizes), -1))


def candidates(bins: Sequence[Bins], ordered: Sequence[bool], filled: int = 0) -> list[PairTable]:
    """All pairs of columns with few enough bins, in order.

    Ordered columns get at most ``COARSE`` bins, or as many more as fill ``filled`` cells of the table.
    """
    sizes = {
        place: min(one.n_bins, COARSE) if smooth else one.n_bins
        for place, (one, smooth) in enumerate(zip(bins, ordered, strict=True))
        if smooth or one.n_bins <= MOST_CATEGORIES
    }

    def coarse(place: int, other: int) -> Integers:
        one = bins[place]
        finest = max(COARSE, filled // sizes[other]) if ordered[place] else one.n_bins
        codes = np.arange(one.size) * min(one.n_bins, finest) // one.n_bins
        codes[one.n_bins :] = -1  # missing cells are in no pair
        return codes

    return [
        PairTable((a, b), (coarse(a, b), coarse(b, a)), (ordered[a], ordered[b]))
        for a, b in itertools.combinations(sizes, 2)
    ]


@dataclass(frozen=True)
class PairSelection:
    """The choice of ``times`` pairs, one after the other, each by an exponential mechanism.

    Parameters
    ----------
    times : how many pairs to choose.
    n_samples : public number of records, or an upper bound.
    clip : largest absolute residual (of several outputs: largest norm).
    epsilon : of one choice.

    Privacy
    -------
    Event: ``BoundedRange(epsilon)`` for every choice.
    """

    times: int
    n_samples: int
    clip: float
    neighboring: Neighboring
    epsilon: float

    @property
    def event(self) -> Event:
        """What one choice costs."""
        return BoundedRange(self.epsilon)

    @property
    def score_range(self) -> float:
        """Every score moves by at most the sensitivity of the table, up or down; norms of exact sums are rounded."""
        one = sum_sensitivity(self.clip, self.neighboring).value
        rounding = 10 * UNIT_ROUNDOFF * self.n_samples * self.clip
        return 2 * (one + rounding) * SLACK

    def scores(self, tables: Sequence[PairTable], blocks: Blocks) -> Array:
        """The norm of every pair's table of residuals, cut to whole numbers of small steps whose sums are exact."""
        sums: list[Any] = [0.0] * len(tables)
        whole = steps(self.n_samples)
        for codes, residuals in blocks:
            cut = np.trunc(residuals / self.clip * whole)
            for place, table in enumerate(tables):
                sums[place] += _sums(table, codes, cut)
        # No rounding that grows with the table.
        norms = [math.sqrt(math.fsum(np.square(found).ravel())) for found in sums]
        return self.clip / whole * np.array(norms)

    def choose(self, tables: Sequence[PairTable], blocks: Blocks, entropy: Entropy) -> list[PairTable]:
        """The chosen pairs; fewer than ``times`` only if there are no more.

        ``blocks`` are the bins of some rows, column by column, and their residuals, of shape (rows, outputs).
        """
        scores = self.scores(tables, blocks)
        left = list(range(len(tables)))
        chosen = []
        for _ in range(min(self.times, len(tables))):
            mechanism = ExponentialMechanism(self.score_range, self.epsilon, len(left))
            chosen.append(tables[left.pop(mechanism.select(scores[left], entropy))])
        return chosen


def _sums(table: PairTable, codes: Sequence[Integers], residuals: Array) -> Array:
    """The residuals in every cell of a table, added up."""
    cells = table.cells(codes)
    inside = cells >= 0
    size = math.prod(table.sizes)
    return np.array([np.bincount(cells[inside], output[inside], size) for output in residuals.T])


def pair_coordinates(tables: Sequence[PairTable]) -> Coordinates:
    """Coordinates of records in chosen pairs, each pair an equal part of a squared norm of at most 1."""
    share = math.sqrt(1 / len(tables)) * ROUNDED
    return Coordinates(tuple(table.vectors() * share for table in tables), 0.0)
