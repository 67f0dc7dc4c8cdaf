"""Frank-Wolfe on sparse rows with steps whose cost does not grow with the number of columns.

Every record enters the gradient through one whole number, its derivative in public steps, which is renewed only when
it is wrong by more than a public tolerance; entries are whole numbers too. So the gradient is a sum of integers, kept
exactly by adding what changed, and each record's part depends on that record and on the published choices alone:
the range of the scores is that of one record, with nothing to add for rounding. Choices are drawn by
``LeveledSelection`` without looking at all columns. Proofs: docs/proofs/sparse-frank-wolfe.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet.box_bounds import BoxBounds
from discreet.geometries import L1Ball
from discreet.losses import HuberHinge, HuberRegression, Logistic, Squared
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.leveled import (
    LARGEST_TOTAL,
    MOST_LEVELS,
    LeveledSelection,
    LeveledTotals,
    add_at,
    largest_range,
)
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.kernels import compiled
from discreet.solvers.certificates import SLACK, slope

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_LOSSES = (Logistic, Squared, HuberRegression, HuberHinge)
_LOGISTIC, _HUBER_HINGE = Logistic.kernel_id, HuberHinge.kernel_id
_SHARE = 1 / 16  # of the error of a choice that old derivatives may add
_ENTRY_BITS = (12, 30)
_LEAST_BITS = 10  # of a derivative: what epsilon leaves over is below one step of 2^9
# shift, order, place and starts before there are levels
_NO_LEVELS: tuple[Any, ...] = (0, *np.empty((2, 0), dtype=np.int32), np.empty(0, dtype=np.int64))
_COARSEST, _FINEST = 2.0**-2, 2.0**-16  # tolerances, as parts of the largest derivative


@dataclass(frozen=True)
class Grid:
    """The public steps in which derivatives and entries are counted, and the selection that fits them.

    Attributes
    ----------
    slope : bound on a derivative; ``steps`` steps of size slope / steps.
    tolerance : a derivative is renewed when it is off by more; 0 for the first choice, when none is old.
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
        """How far a record's derivative may be from the one at the current point."""
        return (self.tolerance + self.step) * SLACK


def grid_of(
    problem: Problem, guarantee: Guarantee, epsilon: float, parts: Integers, first: bool
) -> Grid | None:
    """The grid of the first choice or of all later ones; None where the incremental steps are not proved to apply."""
    ball, loss, n = problem.geometry, problem.loss, problem.n_samples
    if (
        not isinstance(ball, L1Ball)
        or not isinstance(problem.bounds, BoxBounds)
        or type(loss) not in _LOSSES
        or problem.l2
        or not 2.0**-60 <= epsilon <= 2.0**60
        or not problem.n_features < 2**31
    ):
        return None
    contributions = guarantee.neighboring.contributions
    bound = slope(problem, 0.0 if first else ball.size * SLACK)
    share = _SHARE * contributions * math.log(ball.n_vertices) / (epsilon * n)
    share = min(_COARSEST, max(_FINEST, share))
    tolerance = bound * share
    # By the share alone, so that the first choice and the later ones have entries of the same grid.
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
    steps = min(1 << bits, largest_range(epsilon, shift) // pair)  # as many as this shift carries
    largest = n * steps << entry_bits
    if (largest >> shift) + 1 > MOST_LEVELS:
        return None
    unit = ball.size * bound / steps / 2**entry_bits
    selection = LeveledSelection(pair * steps, epsilon, ball.n_features, unit)
    return Grid(bound, steps, 0.0 if first else tolerance, entry_bits, largest, selection)


@dataclass(frozen=True)
class WholeRows:
    """Rows and columns of clipped records in whole numbers; made once for all models that share the rows."""

    by_row: tuple[Integers, NDArray[np.int32], NDArray[np.int32]]  # starts, columns, entries
    by_column: tuple[Integers, NDArray[np.int32], NDArray[np.int32]]  # starts, rows, entries
    constants: NDArray[np.int32]  # the intercept's entries, empty without one
    shape: tuple[int, int]

    @classmethod
    def of(cls, records: ArrayRecords, entry_bits: int) -> WholeRows:
        """Entries s_i x_ij in multiples of 2^-entry_bits, rounded towards 0."""
        X, scales = records.matrix, records.scales
        starts = X.indptr.astype(np.int64)
        entries = np.empty(len(X.data), dtype=np.int32)
        _whole_entries(X.data, starts, scales, 1 << entry_bits, entries)
        columns = sp.csr_array((entries, X.indices, X.indptr), shape=X.shape).tocsc()
        constants = np.empty(0, dtype=np.int32)
        if records.bounds.intercept:
            constants = np.trunc(np.minimum(scales, 1.0) * 2.0**entry_bits).astype(np.int32)
        return cls(
            (starts, X.indices.astype(np.int32, copy=False), entries),
            (columns.indptr.astype(np.int64), columns.indices.astype(np.int32, copy=False), columns.data),
            constants,
            (X.shape[0], records.n_features),
        )


class _Gradient:
    """The summed gradient in whole numbers at the margins reached, and the derivatives it is made of."""

    def __init__(
        self, rows: WholeRows, labels: Array, problem: Problem, grid: Grid, margins: Integers, factor: float
    ) -> None:
        n, p = rows.shape
        loss = problem.loss
        width = loss.lipschitz if isinstance(loss, Squared) else loss.kernel_parameter
        values = np.zeros(p, dtype=np.int64)
        # In the order of _renew's arguments. No margin lies in [1, -1], so every record is looked at now.
        self._state: tuple[Any, ...] = (
            *(loss.kernel_id, float(width), labels),
            *(grid.step, grid.tolerance, float(loss.smoothness), grid.steps),
            *(margins, np.zeros(n, dtype=np.int64), np.ones(n), -np.ones(n)),
            *(*rows.by_row, rows.constants, values),
        )
        _renew(factor, *self._state, *_NO_LEVELS)
        self.totals = totals = LeveledTotals(values, grid.selection.shift, grid.largest)
        self._levels: tuple[Any, ...] = (totals.shift, totals.order, totals.place, totals.starts)

    def renew(self, factor: float) -> None:
        """Renew the derivatives that are off by more than the tolerance at the margins times ``factor``."""
        _renew(factor, *self._state, *self._levels)


def choices(
    problem: Problem,
    grids: tuple[Grid, Grid],
    parts: Integers,
    rows: WholeRows,
    labels: Array,
    entropy: Entropy,
) -> Integers:
    """The vertices chosen in a run with these weights; the coefficients follow by ``combined``."""
    ball = problem.geometry
    assert isinstance(ball, L1Ball)
    p, n_iterations = ball.n_features, len(parts) - 1
    chosen = np.empty(n_iterations, dtype=np.int64)
    margins = np.zeros(rows.shape[0], dtype=np.int64)
    gradient = _Gradient(rows, labels, problem, grids[0], margins, 0.0)
    totals = np.cumsum(parts)
    for t in range(n_iterations):
        if t > 0:
            # theta = sum of w_r s_r over r < t, over all weights so far, and margins hold the sum of +-w_r entries.
            factor = ball.size / totals[t] / 2 ** grids[1].entry_bits
            if t == 1:
                gradient = _Gradient(rows, labels, problem, grids[1], margins, factor)
            else:
                gradient.renew(factor)
        grid = grids[min(t, 1)]
        vertex = int(grid.selection.select(gradient.totals, entropy))
        chosen[t] = vertex
        _move(
            vertex % p,
            parts[t + 1] if vertex < p else -parts[t + 1],
            *rows.by_column,
            rows.constants,
            margins,
        )
    return chosen


def combined(chosen: Integers, parts: Integers, ball: L1Ball) -> Array:
    """The point after all steps: the weighted mean of the origin and all s_t."""
    p = ball.n_features
    shares = parts[1:] * (ball.size / parts.sum())
    theta = np.zeros(p)
    np.add.at(theta, chosen % p, np.where(chosen < p, shares, -shares))
    return theta


@compiled()
def _whole_entries(data: Any, starts: Integers, scales: Array, unit: int, entries: NDArray[np.int32]) -> None:
    """entries = s_i x_ij, held within [-1, 1], in multiples of 1 / unit, rounded towards 0."""
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
    constants: NDArray[np.int32],
    margins: Integers,
) -> None:
    """margins += weight x column."""
    if column == len(starts) - 1:
        for i in range(len(constants)):
            margins[i] += weight * np.int64(constants[i])
        return
    for k in range(starts[column], starts[column + 1]):
        margins[rows[k]] += weight * np.int64(entries[k])


@compiled()
def _exp(x: float) -> float:
    """exp(x) for x <= 0, good to 2^-45, by +, -, * and / alone: the same bits wherever a record is stored."""
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
def _derivative(loss_id: int, width: float, label: float, raw: float) -> float:
    """f'(label, raw)."""
    if loss_id == _LOGISTIC:
        z = label * raw
        decay = _exp(-abs(z))
        return -label * ((decay if z >= 0.0 else 1.0) / (1.0 + decay))
    if loss_id == _HUBER_HINGE:
        return -label * min(1.0, max(0.0, ((1.0 + width) - label * raw) / (2.0 * width)))
    return min(width, max(-width, raw - label))


@compiled()
def _renew(
    factor: float,
    loss_id: int,
    width: float,
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
    constants: NDArray[np.int32],
    values: Integers,
    shift: int,
    order: NDArray[np.int32],
    place: NDArray[np.int32],
    level_starts: Integers,
) -> None:
    """Bring derivatives within the tolerance and the totals in line with them; without levels if there are none.

    A record is looked at when its margin leaves [low, high], within which its derivative cannot have moved too far.
    """
    leveled = len(level_starts) > 0
    for i in range(len(margins)):
        raw = factor * margins[i]
        if low[i] <= raw <= high[i]:
            continue
        exact = _derivative(loss_id, width, labels[i], raw)
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
            if len(constants) > 0:
                part = change * np.int64(constants[i])
                if leveled:
                    add_at(len(values) - 1, part, values, shift, order, place, level_starts)
                else:
                    values[-1] += part
        reach = max(0.0, tolerance - miss) / smoothness
        low[i], high[i] = raw - reach, raw + reach
