"""Bins of columns, chosen from one noisy release of all histograms.

Ranges are cut into fine public cells, whose noisy counts are merged to bins of about equal mass; categories that are
rare under the noise share one bin. Both are post-processing. Proofs: docs/proofs/additive-models.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from discreet._typing import Array, Integers, Mask
from discreet.additive.columns import Column
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity

_BIN_LIMITS = 6, 32
_CELL_LIMITS = 12, 200
_SURE = 3.0  # a full bin has this many standard deviations of the noise in its cells, or cells are fewer
_COARSE_WEIGHT = 0.25  # of a histogram that chooses no bins, beside 1 for the others
_RARE = 3.0  # a category below this many standard deviations of its noise shares a bin
_RARE_SHARE = 1e-3  # and so does one that is rarer than this
_FINEST = 4.0  # a bin may have this many times less than an equal part of all records
_CLEAR = 6.0  # but at least this many standard deviations of the noise in a cell
_SPARE = 0.3  # part of a full bin that gets a bin of its own next to a heavy cell


@dataclass(frozen=True)
class Bins:
    """The bins of one column, as released.

    Attributes
    ----------
    edges : inner edges between the bins of a range, in the units of the column; a number on an edge is above it.
    places : the bin of every category or declared interval of other columns.
    counts : noisy number of records in every bin.
    n_bins : their number, without the one for missing cells.
    missing : whether missing cells have one more bin, the last; elsewhere they have none.
    """

    edges: Array
    places: Integers
    counts: Array
    n_bins: int
    missing: bool = False

    @property
    def size(self) -> int:
        """Number of bins, that of missing cells included."""
        return self.n_bins + int(self.missing)

    def codes(self, cells: NDArray[Any]) -> Integers:
        """The bin of every cell; -1 where a missing cell has none."""
        none = self.n_bins if self.missing else -1
        if len(self.places):
            return np.where(cells >= 0, self.places[np.maximum(cells, 0)], none)
        return np.where(np.isnan(cells), none, np.searchsorted(self.edges, cells, side="right"))


def default_bins(signal: float) -> int:
    """Number of bins of a range: more with more signal (records times the Gaussian-DP parameter)."""
    least, most = _BIN_LIMITS
    return int(min(most, max(least, 2 * signal**0.3)))


def most_cells(columns: Sequence[Column]) -> int:
    """The largest number of cells that the histograms of these columns can have, however little noise they get."""
    return sum(
        (_CELL_LIMITS[1] if one.is_range else one.n_levels) + int(one.marks_missing) for one in columns
    )


def most_bins(n_bins: int) -> int:
    """The largest number of bins that merging to ``n_bins`` of equal mass can give.

    A cut leaves a full bin behind, or at least ``_SPARE`` of one followed by a heavy cell, which is a full one.
    """
    return 2 * math.ceil(n_bins / (1 + _SPARE)) + 1


@dataclass(frozen=True)
class HistogramMechanism:
    """One Gaussian release of the histograms of all columns.

    Parameters
    ----------
    columns : all columns of the model.
    n_samples : public number of records, or an upper bound.
    n_bins : how many bins ranges are merged to, about.

    Privacy
    -------
    A record counts in at most one cell of each histogram, so that one record has the norm of the weights, and two have
    sqrt(2) times that distance at most. Event: one ``Gaussian(noise_multiplier)``.
    """

    columns: tuple[Column, ...]
    n_samples: int
    n_bins: int
    neighboring: Neighboring
    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.gaussian

    @cached_property
    def weights(self) -> Array:
        """How much each histogram counts: those that choose bins more than those that only show the support."""
        return np.array([_COARSE_WEIGHT if one.is_coarse else 1.0 for one in self.columns])

    @property
    def sensitivity(self) -> Sensitivity:
        """L2 sensitivity of all weighted histograms together; counts are whole numbers and sums of them exact."""
        one = float(np.sqrt(np.square(self.weights).sum()))
        return Sensitivity(acute_sum_sensitivity(one, self.neighboring).value * SLACK)

    @cached_property
    def n_cells(self) -> int:
        """Number of fine cells of a range: as many as leave full bins clear of the noise in their own cells."""
        stddev = self.sensitivity.value * self.noise_multiplier
        least, most = _CELL_LIMITS
        per_bin = (self.n_samples / (_SURE * self.n_bins * stddev)) ** 2
        return int(min(most, max(least, self.n_bins * per_bin)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each histogram, missing ones last where they are marked."""
        return tuple(
            (self.n_cells if one.is_range else one.n_levels) + int(one.marks_missing) for one in self.columns
        )

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release."""
        return GaussianMechanism(self.sensitivity, self.noise_multiplier, sum(self.sizes))

    @property
    def event(self) -> Event:
        """What the release costs."""
        return self.gaussian.event

    def histograms(self, cells: Sequence[NDArray[Any]], null: Mask) -> Array:
        """The exact weighted histograms of all columns, end to end."""
        parts = []
        for one, weight, size, values in zip(self.columns, self.weights, self.sizes, cells, strict=True):
            fine = self._fine(one).codes(values)[~null]
            parts.append(weight * np.bincount(fine[fine >= 0], minlength=size))
        return np.concatenate(parts)

    def release(
        self, blocks: Iterable[tuple[Sequence[NDArray[Any]], Mask]], entropy: Entropy
    ) -> tuple[Bins, ...]:
        """The bins of every column; ``blocks`` are cells of some rows, and which of these are null."""
        counts = np.zeros(sum(self.sizes))
        for cells, null in blocks:
            counts += self.histograms(cells, null)
        noisy = self.gaussian.release(counts, entropy)
        parts = np.split(noisy, np.cumsum(self.sizes)[:-1])
        return tuple(
            self._chosen(one, part / weight, self.gaussian.stddev / weight)
            for one, part, weight in zip(self.columns, parts, self.weights, strict=True)
        )

    def _fine(self, one: Column) -> Bins:
        """The public cells of a column."""
        edges = one.grid(self.n_cells) if one.is_range else np.empty(0)
        places = np.arange(0 if one.is_range else one.n_levels)
        n_bins = self.n_cells if one.is_range else one.n_levels
        return Bins(edges, places, np.zeros(0), n_bins, one.marks_missing)

    def _chosen(self, one: Column, counts: Array, stddev: float) -> Bins:
        """Bins of about equal mass, or of categories that are not rare."""
        fine = self._fine(one)
        if one.is_coarse:
            return Bins(fine.edges, fine.places, counts, fine.n_bins)
        if one.is_range:
            cuts = merged(nearest_masses(counts[: fine.n_bins]), self.n_bins, stddev)
            bin_of = np.searchsorted(cuts, np.arange(fine.n_bins), side="right")
            edges, places = fine.edges[cuts - 1], fine.places
        else:
            kept = counts >= max(_RARE * stddev, _RARE_SHARE * self.n_samples)
            bin_of = places = np.where(kept, np.cumsum(kept) - 1, kept.sum())
            edges = fine.edges
        n_bins = int(bin_of.max()) + 1
        merged_counts = np.bincount(bin_of, counts[: fine.n_bins], n_bins)
        total = np.concatenate([merged_counts, counts[fine.n_bins :]])
        return Bins(edges, places, total, n_bins, fine.missing)


def nearest_masses(counts: Array) -> Array:
    """Masses >= 0 whose running sums are nearest to those of noisy counts: noise in empty cells cancels.

    >>> nearest_masses(np.array([5.0, -1.0, 1.0, -1.0, 1.0, 3.0])).round(2).tolist()
    [4.5, 0.0, 0.0, 0.0, 0.5, 3.0]
    """
    running = np.maximum(isotonic_regression(np.cumsum(counts)), 0.0)
    return np.asarray(np.diff(running, prepend=0.0))


def merged(counts: Array, n_bins: int, stddev: float = 0.0) -> Integers:
    """Where to cut noisy counts, from left to right, into about ``n_bins`` parts of equal mass; at least one cut.

    A cut before cell i is the number i. Cells that alone fill a bin are kept apart from their left neighbors.
    """
    mass = np.maximum(counts, 0.0)
    full = _full_bin(mass, n_bins, _CLEAR * stddev)
    cuts: list[int] = []
    inside = 0.0
    for cell in range(len(mass) - 1):
        inside += mass[cell]
        heavy_next = mass[cell + 1] >= full and inside >= _SPARE * full
        if (inside >= full or heavy_next) and len(cuts) < most_bins(n_bins) - 1:
            cuts.append(cell + 1)
            inside = 0.0
    return np.array(cuts or [len(mass) // 2], dtype=np.int64)


def _full_bin(mass: Array, n_bins: int, clear: float) -> float:
    """The mass of a bin: an equal part of what heavy cells leave, but no less than a small part of everything.

    Most people have no capital gain. What is known about the others should not depend on how many have none.
    """
    total = max(float(mass.sum()), 1.0)
    full = total / n_bins
    for _ in range(n_bins - 1):
        heavy = mass >= full
        light = float(mass[~heavy].sum()) / max(n_bins - int(heavy.sum()), 1)
        if light >= full:
            break
        full = light
    return max(full, min(total / n_bins, max(clear, total / (_FINEST * n_bins))))
