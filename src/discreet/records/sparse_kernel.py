"""The compiled pass over CSR rows: a few rows at a time, their entries are used twice while they are in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.records.compiling import compiled
from discreet.records.kernels import MAX_BLOCK_ROWS, block_coefficients

Array = NDArray[np.float64]


@compiled("contract")
def _dot(data: Any, columns: Any, begin: int, end: int, theta: Array) -> float:
    """A row times theta, in four sums that do not wait for each other."""
    a = b = c = d = 0.0
    whole = end - (end - begin) % 4
    for j in range(begin, whole, 4):
        a += data[j] * theta[np.uint64(columns[j])]
        b += data[j + 1] * theta[np.uint64(columns[j + 1])]
        c += data[j + 2] * theta[np.uint64(columns[j + 2])]
        d += data[j + 3] * theta[np.uint64(columns[j + 3])]
    for j in range(whole, end):
        a += data[j] * theta[np.uint64(columns[j])]
    return (a + b) + (c + d)


@compiled("contract")
def sparse_loss_and_gradient(
    loss_id: int,
    parameter: float,
    data: Any,
    columns: Any,
    row_starts: Any,
    n_columns: int,
    first: int,
    stop: int,
    y: Array,
    scales: Array,
    theta: Array,
    gradient: Array,
) -> float:
    """Add the gradient of the losses of rows ``first`` .. ``stop`` to ``gradient`` and return their sum.

    Places of entries are taken as unsigned numbers, which spares a test for negative ones: they were checked before.
    """
    t, work = np.empty(MAX_BLOCK_ROWS), np.empty((2, MAX_BLOCK_ROWS))
    intercept = len(theta) > n_columns
    offset = theta[n_columns] if intercept else 0.0
    value = 0.0
    for start in range(first, stop, MAX_BLOCK_ROWS):
        m = min(MAX_BLOCK_ROWS, stop - start)
        for k in range(m):
            t[k] = _dot(data, columns, row_starts[start + k], row_starts[start + k + 1], theta) + offset
        value += block_coefficients(loss_id, parameter, y, scales, t, start, m, work)
        for k in range(m):
            weight = t[k]
            for j in range(row_starts[start + k], row_starts[start + k + 1]):
                gradient[np.uint64(columns[j])] += weight * data[j]
            if intercept:
                gradient[n_columns] += weight
    return value
