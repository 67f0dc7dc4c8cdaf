"""Frank-Wolfe on sparse rows with steps whose cost does not grow with the number of columns.

Every record contributes to the gradient through one integer, its derivative in public steps, which is updated only
when it is wrong by more than a public tolerance. Entries are integers too. So the gradient is a sum of integers,
maintained exactly by adding changes, and each record's part depends only on that record and the published choices.
The range of the scores is that of one record, with nothing to add for rounding. ``LeveledSelection`` draws choices
without visiting all columns. Proofs: docs/proofs/sparse-frank-wolfe.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._typing import Array, Integers
from discreet.losses.base import HINGE, LOGISTIC, hinge_slope, logistic_slope, residual_slope
from discreet.mechanisms.level_selection import (
    LARGEST_TOTAL,
    MOST_LEVELS,
    LeveledSelection,
    LeveledTotals,
    add_at,
    largest_range,
)
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.privacy.guarantee import SLACK, Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import BoxBounds, chunked_sum
from discreet.sets import L1Ball
from discreet.solvers.certificates import slope

_SHARE = 1 / 16  # of the error of a choice that outdated derivatives may add
_ENTRY_BITS = (12, 30)
_LEAST_BITS = 10  # of a derivative: the unused part of epsilon is below one step of 2^9
# shift, order, place and starts before there are levels
_NO_LEVELS: tuple[Any, ...] = (0, *np.empty((2, 0), dtype=np.int32), np.empty(0, dtype=np.int64))
_COARSEST, _FINEST = 2.0**-2, 2.0**-16  # tolerances, as fractions of the largest derivative


@dataclass(frozen=True)
class Grid:
    """The public steps of derivatives and entries, and the selection that uses them.

    Attributes
    ----------
    slope : bound on a derivative; ``steps`` steps of size slope / steps.
    tolerance : a derivative is updated when it is off by more; 0 for the first choice, when none is outdated.
    entry_bits : entries are multiples of 2^-entry_bits.
    largest : bound on a total.
    selection : the exponential mechanism on the totals.
    """

    slope: float
    steps: int
    tolerance: float
    entry_bits: int
    largest: int
    selection: LeveledSelection

    @property
    def step(self) -> float:
        """The size of one step of a derivative."""
        return self.slope / self.steps

    @property
    def derivative_error(self) -> float:
        """Bound on the difference between a record's stored derivative and the one at the current point."""
        return (self.tolerance + self.step) * SLACK


def grid_of(
    problem: Problem, guarantee: Guarantee, epsilon: float, parts: Integers, first: bool, offset: float = 0.0
) -> Grid | None:
    """Return the grid of the first choice or of all later ones; None if incremental steps are not proved to apply.

    ``offset`` bounds the absolute value of what is added to every margin.
    """
    ball, loss, n = problem.geometry, problem.loss, problem.n_samples
    if (
        not isinstance(ball, L1Ball)
        or not isinstance(problem.bounds, BoxBounds)
        or "counted" not in loss.proved_for
        or problem.l2
        or not 2.0**-60 <= epsilon <= 2.0**60
        or not problem.n_features < 2**31
    ):
        return None
    contributions = guarantee.neighboring.contributions
    bound = slope(problem, (0.0 if first else ball.size * SLACK) + offset)
    share = _SHARE * contributions * math.log(ball.n_vertices) / (epsilon * n)
    share = min(_COARSEST, max(_FINEST, share))
    tolerance = bound * share
    # Depends on the share alone, so that the first choice and the later ones use the same grid of entries.
    bits = max(_LEAST_BITS, math.ceil(math.log2(8 / share)) + 1)
    # 64 bits hold totals (n steps 2^entry_bits), shifts (for 2 contributions steps 2^entry_bits), and margins.
    room = [
        LARGEST_TOTAL.bit_length() - 2 - bits - n.bit_length(),
        58 - bits + math.floor(math.log2(epsilon / contributions)),
        62 - int(parts.sum()).bit_length(),
    ]
    entry_bits = min(_ENTRY_BITS[1], *room)
    if entry_bits < _ENTRY_BITS[0]:
        return None
    pair = 2 * contributions << entry_bits
    shift = LeveledSelection(pair << (bits - 1), epsilon, ball.n_features).shift
    steps = min(1 << bits, largest_range(epsilon, shift) // pair)  # the most that this shift allows
    largest = n * steps << entry_bits
    if (largest >> shift) + 1 > MOST_LEVELS:
        return None
    unit = ball.size * bound / steps / 2**entry_bits
    selection = LeveledSelection(pair * steps, epsilon, ball.n_features, unit)
    return Grid(bound, steps, 0.0 if first else tolerance, entry_bits, largest, selection)


@dataclass(frozen=True)
class WholeRows:
    """Rows and columns of clipped records as integers; built once for all models that share the rows."""

    by_row: tuple[Integers, NDArray[np.int32], NDArray[np.int32]]  # starts, columns, entries
    by_column: tuple[Integers, NDArray[np.int32], NDArray[np.int32]]  # starts, rows, entries
    constants: Array  # the intercept's contribution to a margin, empty without one
    shape: tuple[int, int]  # records and columns

    @classmethod
    def of(cls, records: ArrayRecords, entry_bits: int) -> WholeRows:
        """Convert entries s_i x_ij to multiples of 2^-entry_bits, rounded towards 0."""
        X, scales = records.matrix, records.scales
        starts = X.indptr.astype(np.int64)
        entries = np.empty(len(X.data), dtype=np.int32)
        _whole_entries(X.data, starts, scales, 1 << entry_bits, entries)
        columns = sp.csr_array((entries, X.indices, X.indptr), shape=X.shape).tocsc()
        constants = np.minimum(scales, 1.0) if records.bounds.intercept else np.empty(0)
        return cls(
            (starts, X.indices.astype(np.int32, copy=False), entries),
            (columns.indptr.astype(np.int64), columns.indices.astype(np.int32, copy=False), columns.data),
            constants,
            (X.shape[0], X.shape[1]),
        )


class _Gradient:
    """The summed gradient as integers at the current margins, and the derivatives it is made of."""

    def __init__(
        self,
        rows: WholeRows,
        labels: Array,
        problem: Problem,
        grid: Grid,
        margins: Integers,
        factor: float,
        offset: float = 0.0,
    ) -> None:
        n, p = rows.shape
        loss = problem.loss
        assert loss.kernel is not None
        values = np.zeros(p, dtype=np.int64)
        # In the order of _renew's arguments. No margin lies in [1, -1], so every record is visited now.
        self._state: tuple[Any, ...] = (
            *(*loss.kernel, labels),
            *(grid.step, grid.tolerance, float(loss.smoothness), grid.steps),
            *(margins, np.zeros(n, dtype=np.int64), np.ones(n), -np.ones(n)),
            *(*rows.by_row, rows.constants, values),
        )
        _renew(factor, offset, *self._state, *_NO_LEVELS)
        self.totals = totals = LeveledTotals(values, grid.selection.shift, grid.largest)
        self._levels: tuple[Any, ...] = (totals.shift, totals.order, totals.place, totals.starts)

    def renew(self, factor: float, offset: float = 0.0) -> None:
        """Update the derivatives that are off by more than the tolerance at offset + factor x margins."""
        _renew(factor, offset, *self._state, *self._levels)


class IncrementalSteps:
    """A walk over the ball whose steps cost only what changes."""

    def __init__(
        self,
        problem: Problem,
        grids: tuple[Grid, Grid],
        first_grid: Callable[[float], Grid | None],
        parts: Integers,
        rows: WholeRows,
        labels: Array,
    ) -> None:
        assert isinstance(problem.geometry, L1Ball)
        self.problem, self.ball, self.grids, self.parts = problem, problem.geometry, grids, parts
        self.rows, self.labels, self._first_grid = rows, labels, first_grid
        self._totals = np.cumsum(parts)
        self._margins = np.zeros(rows.shape[0], dtype=np.int64)
        self._gradient: _Gradient | None = None
        self._offset = 0.0
        self._chosen: list[int] = []

    def choose(self, offset: float, entropy: Entropy) -> None:
        """Move towards the vertex chosen at the current margins plus ``offset``, which the grids allow for."""
        t, p = len(self._chosen), self.ball.n_features
        # theta is the sum of w_r s_r over r < t divided by the total weight; margins hold the sum of +-w_r entries.
        factor = self.ball.size / self._totals[t] / 2 ** self.grids[1].entry_bits if t > 0 else 0.0
        if t == 0:  # the intercept is known, and smaller than the plan allows for
            self.grids = self._first_grid(abs(offset)) or self.grids[0], self.grids[1]
        grid = self.grids[min(t, 1)]
        # An intercept that moves far moves nearly all derivatives, which is cheaper all at once than one by one.
        far = abs(offset - self._offset) * self.problem.loss.smoothness > grid.tolerance
        if self._gradient is None or t == 1 or far:
            self._gradient = _Gradient(
                self.rows, self.labels, self.problem, grid, self._margins, factor, offset
            )
        else:
            self._gradient.renew(factor, offset)
        self._offset = offset
        vertex = int(grid.selection.select(self._gradient.totals, entropy))
        self._chosen.append(vertex)
        weight = int(self.parts[t + 1])
        _move(vertex % p, weight if vertex < p else -weight, *self.rows.by_column, self._margins)

    def derivative_sum(self, offset: float) -> Array:
        """Return the sum of derivatives at the current margins plus ``offset``, each times its record's constant."""
        constants = self.rows.constants
        total = max(1, self._totals[len(self._chosen)])  # 0 before a single choice
        factor = self.ball.size / total / 2 ** self.grids[1].entry_bits
        labels = np.where(constants > 0, self.labels, 1.0)
        slopes = self.problem.loss.derivative(labels, factor * self._margins + offset * constants)
        return chunked_sum((constants * slopes)[:, None])

    @property
    def theta(self) -> Array:
        """The current point."""
        chosen = np.array(self._chosen, dtype=np.int64)
        return combined(chosen, self.parts[: len(chosen) + 1], self.ball)


def combined(chosen: Integers, parts: Integers, ball: L1Ball) -> Array:
    """Return the point after all steps: the weighted mean of the origin and all s_t."""
    p = ball.n_features
    shares = parts[1:] * (ball.size / parts.sum())
    theta = np.zeros(p)
    np.add.at(theta, chosen % p, np.where(chosen < p, shares, -shares))
    return theta


@compiled()
def _whole_entries(data: Any, starts: Integers, scales: Array, unit: int, entries: NDArray[np.int32]) -> None:
    """Set entries = s_i x_ij, clipped to [-1, 1], in multiples of 1 / unit, rounded towards 0."""
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            value = min(1.0, max(-1.0, scales[i] * np.float64(data[k])))
            entries[k] = np.int32(np.int64(value * unit))


@compiled()
def _move(
    column: int,
    weight: int,
    starts: Integers,
    rows: NDArray[np.int32],
    entries: NDArray[np.int32],
    margins: Integers,
) -> None:
    """Add weight x column to the margins."""
    for k in range(starts[column], starts[column + 1]):
        margins[rows[k]] += weight * np.int64(entries[k])


@compiled()
def _exp(x: float) -> float:
    """Compute exp(x) for x <= 0 to 2^-45, with +, -, * and / only: the same bits for any storage of a record."""
    if x < -700.0:
        return 0.0
    k = math.floor(x * 1.4426950408889634 + 0.5)
    r = x - k * 0.6931471805599453
    term, total = 1.0, 1.0
    for i in range(1, 15):
        term = term * r / i
        total += term
    return math.ldexp(total, int(k))


@compiled()
def _derivative(formula: int, parameter: float, label: float, raw: float) -> float:
    """Return f'(label, raw)."""
    if formula == LOGISTIC:
        return float(-label * logistic_slope(label * raw, _exp(-abs(label * raw)), parameter))
    if formula == HINGE:
        return float(-label * hinge_slope(label * raw, parameter))
    return float(residual_slope(raw - label, parameter))


@compiled()
def _renew(
    factor: float,
    offset: float,
    formula: int,
    parameter: float,
    labels: Array,
    step: float,
    tolerance: float,
    smoothness: float,
    most: int,
    margins: Integers,
    derivatives: Integers,
    low: Array,
    high: Array,
    starts: Integers,
    columns: NDArray[np.int32],
    entries: NDArray[np.int32],
    constants: Array,
    values: Integers,
    shift: int,
    order: NDArray[np.int32],
    place: NDArray[np.int32],
    level_starts: Integers,
) -> None:
    """Bring derivatives within the tolerance and update the totals; without levels if there are none.

    A record is visited when its margin leaves [low, high], where its derivative cannot have moved too far.
    """
    leveled = len(level_starts) > 0
    for i in range(len(margins)):
        raw = factor * margins[i]
        if len(constants) > 0:
            raw += offset * constants[i]
        if low[i] <= raw <= high[i]:
            continue
        exact = _derivative(formula, parameter, labels[i], raw)
        miss = abs(exact - derivatives[i] * step)
        if miss > tolerance or not leveled:
            renewed = min(most, max(-most, int(exact / step)))
            change = renewed - derivatives[i]
            derivatives[i] = renewed
            miss = abs(exact - renewed * step)
            for k in range(starts[i], starts[i + 1]):
                part = change * np.int64(entries[k])
                if leveled:
                    add_at(columns[k], part, values, shift, order, place, level_starts)
                else:
                    values[columns[k]] += part
        reach = max(0.0, tolerance - miss) / smoothness
        low[i], high[i] = raw - reach, raw + reach
