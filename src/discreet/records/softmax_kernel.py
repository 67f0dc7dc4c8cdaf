"""What the compiled pass over dense rows does with the predictions of several classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.records.compiling import compiled
from discreet.records.exponentials import exponentials

Array = NDArray[np.float64]

MOST_CLASSES = (
    32  # a block's product of the sums of so many exponentials cannot overflow; with more, BLAS is used
)


@compiled("contract")
def softmax_coefficients(
    cap: float, y: Array, scales: Array, t: Array, start: int, m: int, work: Array
) -> float:
    """Replace dot products in t, one row per class, by s (q - e_y); return the block's sum of losses.

    s q is the exponential times the quotient of s and the sum of exponentials. With a cap > 0, q - e_y is shrunk
    to at most that length before it is multiplied by s.
    """
    largest, total = work[0, :m], work[1, :m]
    s = scales[start : start + m]
    largest[:] = -np.inf
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] *= s[k]
            largest[k] = max(largest[k], row[k])
    value = 0.0
    for k in range(m):
        if s[k] > 0.0:
            value += largest[k] - t[int(y[start + k]), k]
    total[:] = 0.0
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] -= largest[k]
        exponentials(row, m)
        for k in range(m):
            total[k] += row[k]
    product = 1.0
    for k in range(m):
        if s[k] > 0.0:
            product *= total[k]
        total[k] = (s[k] if cap == 0.0 else 1.0) / total[k]
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] *= total[k]
    for k in range(m):
        t[int(y[start + k]), k] -= s[k] if cap == 0.0 else 1.0
    if cap > 0.0:
        _shrink(cap, s, t, m, total)
    return value + math.log(product)


@compiled("contract")
def _shrink(cap: float, s: Array, t: Array, m: int, work: Array) -> None:
    """Shrink columns of t to at most the length ``cap``, then multiply them by s."""
    work[:] = 0.0
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            work[k] += row[k] * row[k]
    for k in range(m):
        work[k] = s[k] * (cap / max(math.sqrt(work[k]), cap))
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] *= work[k]
