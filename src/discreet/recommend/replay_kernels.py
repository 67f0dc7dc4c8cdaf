"""Rounds that every user repeats on their own row: Frank-Wolfe and projected gradient descent, compiled.

Contributions are integers of bounded norm and bitwise local, as in `discreet.recommend.kernels`.
"""

from __future__ import annotations

import math

import numpy as np

from discreet._typing import Array, Integers
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.recommend.kernels import Items, fit_in


@compiled()
def center_rows(starts: Integers, values: Array, means: Array, left: Array) -> None:
    """Subtract the mean of every row (0 for an empty one), summed in the order of the row."""
    for i in range(starts.shape[0] - 1):
        total = 0.0
        for a in range(starts[i], starts[i + 1]):
            total += values[a]
        means[i] = total / max(starts[i + 1] - starts[i], 1)
        for a in range(starts[i], starts[i + 1]):
            left[a] = values[a] - means[i]


@compiled()
def replay(
    items: Items,
    values: Array,
    directions: Array,
    shrinks: Array,
    lengths: Array,
    clip: float,
    search: bool,
    x: Array,
    residual: Array,
) -> None:
    """Frank-Wolfe on one row: coefficients x of the directions after all rounds, and the clipped residual.

    With ``search`` the user takes the part of each step, from none to all of it, that is best for their own ratings.
    """
    rounds = directions.shape[1]
    for t in range(rounds + 1):
        square = inner = 0.0
        for a in range(items.shape[0]):
            residual[a] = -values[a]
            for s in range(t):
                residual[a] += directions[items[a], s] * x[s]
            square += residual[a] * residual[a]
            if t < rounds:
                inner += residual[a] * directions[items[a], t]
        norm = math.sqrt(square)
        factor = 1.0 if norm <= clip else clip / norm
        if t == rounds:
            for a in range(items.shape[0]):
                residual[a] *= factor
            return
        step = -lengths[t] * factor * inner
        part = 1.0
        if search:
            along = length = 0.0
            for a in range(items.shape[0]):
                present = residual[a] + values[a]
                move = (shrinks[t] - 1.0) * present + step * directions[items[a], t]
                along -= residual[a] * move
                length += move * move
            part = min(1.0, max(0.0, along / length)) if length > 0.0 else 0.0
        for s in range(t):
            x[s] *= 1.0 - part * (1.0 - shrinks[t])
        x[t] = part * step


@compiled()
def replay_rows(
    starts: Integers,
    items: Items,
    values: Array,
    directions: Array,
    shrinks: Array,
    lengths: Array,
    clip: float,
    search: bool,
    bound: int,
    q: Integers,
    factors: Array,
) -> None:
    """Return residuals of all rows after all rounds, in integer steps of clip / bound, and the coefficients."""
    for i in range(starts.shape[0] - 1):
        begin, end = starts[i], starts[i + 1]
        residual = np.zeros(end - begin)
        row, own = items[begin:end], values[begin:end]
        replay(row, own, directions, shrinks, lengths, clip, search, factors[i], residual)
        out = q[begin:end]
        for a in range(end - begin):
            ratio = residual[a] / clip
            out[a] = int(ratio * bound) if math.isfinite(ratio) else 0
        fit_in(out, end - begin, bound)


@compiled()
def add_energy(
    starts: Integers, items: Items, q: Integers, direction: Integers, step: int, sums: Integers
) -> None:
    """sums[0] += p^2, p = (q . direction) / step rounded towards zero."""
    for i in range(starts.shape[0] - 1):
        inner = 0
        for a in range(starts[i], starts[i + 1]):
            inner += q[a] * direction[items[a]]
        inner = abs(inner) // step
        sums[0] += inner * inner


@compiled()
def descend_rows(
    starts: Integers,
    items: Items,
    values: Array,
    bases: Array,
    gains: Array,
    learning_rate: float,
    clip: float,
    factors: Array,
    rows: Array,
) -> None:
    """Projected gradient on full rows: rows[i] after the last step, before its projection, shrunk to ``clip``.

    bases[t], gains[t] describe the projection after step t: x = gains * (bases^T row), row = bases x.
    """
    rounds, n, k = bases.shape
    for i in range(starts.shape[0] - 1):
        row = rows[i]
        row[:] = 0.0
        for t in range(rounds + 1):
            for a in range(starts[i], starts[i + 1]):
                j = items[a]
                row[j] -= learning_rate * (row[j] - values[a])
            square = 0.0
            for j in range(n):
                square += row[j] * row[j]
            norm = math.sqrt(square)
            if norm > clip:
                for j in range(n):
                    row[j] *= clip / norm
            if t == rounds:
                break
            for c in range(k):
                inner = 0.0
                for j in range(n):
                    inner += bases[t, j, c] * row[j]
                factors[i, c] = gains[t, c] * inner
            for j in range(n):
                row[j] = 0.0
                for c in range(k):
                    row[j] += bases[t, j, c] * factors[i, c]
