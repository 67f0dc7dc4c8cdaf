"""Coordinates of records: each column contributes a vector of its bin, and no record is longer than 1.

Bins of ordered columns get rows of the root of a kernel, so that neighbors are alike, beside a straight line;
categories get unit vectors. Proofs: docs/proofs/additive-models.md, section 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet._typing import Array
from discreet.additive.bins import Bins

_RANGE = 0.1  # over which bins of a column are alike, in units of their number
_LINEAR = 0.5  # of an ordered column's squared norm, for a straight line
_CONSTANT = 0.15  # of a record's squared norm, for the constant
_LEAST = 1e-9  # of a kernel's eigenvalues
_ROUNDED = 1 - 2.0**-44  # keeps norms that were computed in floating point below their bound


@dataclass(frozen=True)
class Coordinates:
    """Tables of vectors, one per column: a record is the concatenation of those of its bins, and a constant.

    Attributes
    ----------
    tables : per column, one row per bin.
    constant : the last coordinate of every record; 0 for none.
    """

    tables: tuple[Array, ...]
    constant: float

    @property
    def width(self) -> int:
        """Length of a record."""
        return sum(int(table.shape[1]) for table in self.tables) + int(self.constant > 0)

    @property
    def norm(self) -> float:
        """The largest norm of a record, as computed."""
        longest = [float(np.square(table).sum(axis=1).max()) for table in self.tables]
        return math.sqrt(math.fsum(longest) + self.constant**2)

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where each column's coordinates lie."""
        ends = np.cumsum([0, *(table.shape[1] for table in self.tables)])
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends.tolist()))

    def mean(self, bins: Sequence[Bins]) -> Array:
        """The mean record, by the noisy counts of bins."""
        row = np.zeros(self.width)
        for table, part, one in zip(self.tables, self.parts, bins, strict=True):
            mass = np.maximum(one.counts, 0.0)
            row[part] = mass @ table / max(float(mass.sum()), 1.0)
        if self.constant > 0:
            row[-1] = self.constant
        return row

    def shapes(self, theta: Array) -> tuple[list[Array], Array]:
        """What coefficients give each bin of each column, and the constant they add; outputs are the last axis."""
        shapes = [table @ theta[part] for table, part in zip(self.tables, self.parts, strict=True)]
        last = self.constant * theta[-1] if self.constant > 0 else np.zeros(theta.shape[1:])
        return shapes, np.asarray(last)


def coordinates(bins: Sequence[Bins], ordered: Sequence[bool]) -> Coordinates:
    """The coordinates of columns with these bins; every record has norm at most 1, in floating point too."""
    tables, weights = [], []
    for one, smooth in zip(bins, ordered, strict=True):
        table, effective = with_line(one.n_bins) if smooth else (np.eye(one.n_bins), float(one.n_bins))
        if one.missing:
            table = np.block(
                [[table, np.zeros((len(table), 1))], [np.zeros((1, table.shape[1])), np.ones((1, 1))]]
            )
        tables.append(table)
        weights.append(math.sqrt(max(effective, 2.0) - 1))
    shares = (1 - _CONSTANT) * np.array(weights) / math.fsum(weights)
    scaled = tuple(table * math.sqrt(share) * _ROUNDED for table, share in zip(tables, shares, strict=True))
    return Coordinates(scaled, math.sqrt(_CONSTANT) * _ROUNDED)


def kernel_root(n_bins: int) -> tuple[Array, float]:
    """Rows of norm 1 whose products are exp(-distance / range), one per bin, and their effective number."""
    places = np.arange(n_bins)
    distances = np.abs(places[:, None] - places[None, :]) / (_RANGE * n_bins)
    eigenvalues, vectors = np.linalg.eigh(np.exp(-distances))
    eigenvalues = np.maximum(eigenvalues, _LEAST)
    effective = eigenvalues.sum() ** 2 / np.square(eigenvalues).sum()
    return unit_rows(vectors * np.sqrt(eigenvalues)), float(effective)


def with_line(n_bins: int) -> tuple[Array, float]:
    """The same, half of the squared norm, beside a straight line of the other half: rows of norm at most 1."""
    root, effective = kernel_root(n_bins)
    line = np.linspace(-1.0, 1.0, n_bins) if n_bins > 1 else np.zeros(1)
    return np.column_stack([root * math.sqrt(1 - _LINEAR), line * math.sqrt(_LINEAR)]), effective


def unit_rows(table: Array) -> Array:
    """The rows scaled to norm 1."""
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))
