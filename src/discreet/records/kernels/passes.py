"""Compiled passes over dense and CSR rows.

Every dense kernel reads a C-contiguous matrix of doubles or singles once, block by block. A block fits into the cache,
so its rows are read from memory once although they are used twice (raw predictions, then the weighted sum) or twice
per class. Singles are widened entry by entry, which is exact. CSR rows are taken a few at a time, for the same reason.
Rows are never modified; clipping enters as the row scale s, and rows with s = 0 contribute nothing.

Reassociation and fused multiply-add are allowed inside dot products, because the bound on rounding errors
(`discreet.records.bounds.gradient_rounding`) holds for every order of summation. Flags that assume finite numbers or
replace divisions are not.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.losses.base import (
    HINGE,
    LOGISTIC,
    SOFTMAX,
    hinge_slope,
    hinge_value,
    logistic_slope,
    residual_slope,
    residual_value,
)
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.records.kernels.numba_tools import WIDTH
from discreet.records.kernels.softmax import exponentials, softmax_coefficients
from discreet.records.kernels.tiles import SIZES, block_dots, block_sums

#: Maximum number of rows in a block. Kernels multiply one factor per row, in [1, 2] or with up to 32 classes in
#: [1, 32], before they take a logarithm, so a block must have fewer than 1023 / 5 rows.
MAX_BLOCK_ROWS = 128


@compiled("reassoc")
def _log_product(factors: Array, m: int) -> float:
    """Return the sum of logarithms of factors in [1, 2], at most ``MAX_BLOCK_ROWS`` of them."""
    product = 1.0
    for k in range(m):
        product *= factors[k]
    return math.log(product)


@compiled("reassoc")
def _total(values: Array, m: int) -> float:
    total = 0.0
    for k in range(m):
        total += values[k]
    return total


@compiled("contract")
def block_coefficients(
    formula: int, parameter: float, y: Array, scales: Array, t: Array, start: int, m: int, work: Array
) -> float:
    """Replace dot products in t by s f'(y, s t), 0 where s = 0; return the block's sum of losses.

    The sum of log(1 + exp(-|z|)) is computed as the logarithm of a product.
    """
    values, factors = work[0], work[1]
    s, label = scales[start : start + m], y[start : start + m]
    if formula == LOGISTIC:
        cap = parameter
        # Before the corner the loss is a line of slope -cap.
        corner, at_corner = -np.inf, 0.0
        if cap < 1.0:
            corner, at_corner = math.log((1.0 - cap) / cap), -math.log(1.0 - cap)
        for k in range(m):
            t[k] *= label[k] * s[k]
            factors[k] = -abs(t[k])
        exponentials(factors, m)
        for k in range(m):
            z, decay = t[k], factors[k]
            value = max(0.0, -z) if z >= corner else at_corner + cap * (corner - z)
            values[k] = value if s[k] > 0.0 else 0.0
            t[k] = -label[k] * logistic_slope(z, decay, cap) * s[k]
            factors[k] = 1.0 + decay if z >= corner and s[k] > 0.0 else 1.0
        return _total(values, m) + _log_product(factors, m)
    width = parameter
    if formula == HINGE:
        for k in range(m):
            z = label[k] * (s[k] * t[k])
            slope = hinge_slope(z, width)
            values[k] = hinge_value(z, slope, width) if s[k] > 0.0 else 0.0
            t[k] = -label[k] * slope * s[k]
        return _total(values, m)
    for k in range(m):
        residual = s[k] * t[k] - label[k]
        slope = residual_slope(residual, width)
        values[k] = residual_value(residual, slope) if s[k] > 0.0 else 0.0
        t[k] = slope * s[k]
    return _total(values, m)


@compiled()
def loss_and_gradient(
    formula: int,
    parameter: float,
    X: Any,
    labels: Array,
    scales: Array,
    theta: Array,
    sizes: NDArray[np.int64],
    height: int,
    edges: NDArray[np.int64],
    gradient: Array,
) -> float:
    """Add the gradient of the rows' losses to ``gradient`` and return their sum; theta and gradient ``by_class``.

    Every row of ``labels`` is a model of its own, with one row of theta, or a softmax with all of them. Rows of X
    between two ``edges`` are a lane. Several lanes are summed one by one, then added.
    """
    t, work = np.empty((len(theta), height)), np.empty((2, height))
    several = len(edges) > 2
    lane_gradient = np.empty(gradient.shape) if several else gradient
    total = 0.0
    for lane in range(len(edges) - 1):
        if several:
            lane_gradient[:] = 0.0
        value = 0.0
        for start in range(edges[lane], edges[lane + 1], height):
            m = min(height, edges[lane + 1] - start)
            fetched = block_dots(X, start, m, theta, sizes, t)
            if formula == SOFTMAX:
                value += softmax_coefficients(parameter, labels[0], scales, t, start, m, work)
            else:
                for c in range(len(labels)):
                    value += block_coefficients(formula, parameter, labels[c], scales, t[c], start, m, work)
            block_sums(X, start, m, t, sizes, lane_gradient, fetched)
        total += value
        if several:
            gradient += lane_gradient
    return total


def is_compiled() -> bool:
    """Whether the pass over dense rows was compiled before, by this process or by one that kept the result."""
    folder = kernel_folder()
    return bool(loss_and_gradient.signatures) or (  # type: ignore[attr-defined]
        folder is not None and any(folder.glob(f"*{loss_and_gradient.__name__}-*.nbi"))
    )


def kernel_folder() -> Path | None:
    """The folder in which compiled code is kept; None if none can be written."""
    folder: str | None = loss_and_gradient.stats.cache_path  # type: ignore[attr-defined]
    return None if folder is None else Path(folder)


@compiled()
def dot_products(X: Any, theta: Array, sizes: NDArray[np.int64], height: int, out: Array) -> None:
    """Set out[c, i] = <(x_i, 1), theta_c>, before any scaling."""
    n = X.shape[0]
    t = np.empty((len(theta), height))
    for start in range(0, n, height):
        stop = min(start + height, n)
        block_dots(X, start, stop - start, theta, sizes, t)
        for c in range(len(theta)):
            for i in range(start, stop):
                out[c, i] = t[c, i - start]


@compiled()
def weighted_product(
    X: Any, weights: Array, direction: Array, sizes: NDArray[np.int64], height: int, total: Array
) -> None:
    """Add sum_i weights_i <(x_i, 1), direction> (x_i, 1) to the total; direction and total ``by_class``."""
    n = X.shape[0]
    t = np.empty((1, height))
    for start in range(0, n, height):
        m = min(height, n - start)
        fetched = block_dots(X, start, m, direction, sizes, t)
        for k in range(m):
            t[0, k] *= weights[start + k]
        block_sums(X, start, m, t, sizes, total, fetched)


@cache
def groups(n_classes: int) -> NDArray[np.int64]:
    """Split classes into groups that share a tile, without a single one left over; not to be modified."""
    sizes: list[int] = []
    while (left := n_classes - sum(sizes)) > 0:
        sizes.append(next(size for size in SIZES if size <= left and left - size != 1))
    return np.array(sizes, dtype=np.int64)


def wide(X: NDArray[Any]) -> NDArray[Any]:
    """Return a block of at least ``WIDTH`` columns: X, or a copy padded with columns of zeros."""
    if X.shape[1] >= WIDTH:
        return X
    padded = np.zeros((len(X), WIDTH), X.dtype)
    padded[:, : X.shape[1]] = X
    return padded


def by_class(theta: Array, n_columns: int) -> Array:
    """Return one row of theta per class, with the intercept (0 if there is none) after the columns of ``wide`` blocks.

    Rows start at multiples of ``WIDTH`` doubles, so that vectors are aligned.
    """
    columns = theta.reshape(len(theta), -1)
    place = max(n_columns, WIDTH)
    width = (place // WIDTH + 1) * WIDTH
    memory = np.zeros(columns.shape[1] * width + WIDTH)
    begin = -(memory.ctypes.data // memory.itemsize) % WIDTH
    rows = memory[begin : begin + columns.shape[1] * width].reshape(-1, width)
    rows[:, :n_columns] = columns[:n_columns].T
    if len(theta) > n_columns:
        rows[:, place] = columns[n_columns]
    return rows


def by_feature(rows: Array, n_columns: int, shape: tuple[int, ...]) -> Array:
    """Undo ``by_class``: return an array of the shape of theta."""
    theta = np.empty(shape)
    columns = theta.reshape(len(theta), -1)
    columns[:n_columns] = rows[:, :n_columns].T
    if len(theta) > n_columns:
        columns[n_columns] = rows[:, max(n_columns, WIDTH)]
    return theta


@compiled("contract")
def _dot(data: Any, columns: Any, begin: int, end: int, theta: Array) -> float:
    """Multiply a row by theta, in four independent sums."""
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
    formula: int,
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

    Column indices are read as unsigned numbers, which avoids a test for negative ones; they were checked before.
    """
    t, work = np.empty(MAX_BLOCK_ROWS), np.empty((2, MAX_BLOCK_ROWS))
    intercept = len(theta) > n_columns
    offset = theta[n_columns] if intercept else 0.0
    value = 0.0
    for start in range(first, stop, MAX_BLOCK_ROWS):
        m = min(MAX_BLOCK_ROWS, stop - start)
        for k in range(m):
            t[k] = _dot(data, columns, row_starts[start + k], row_starts[start + k + 1], theta) + offset
        value += block_coefficients(formula, parameter, y, scales, t, start, m, work)
        for k in range(m):
            weight = t[k]
            for j in range(row_starts[start + k], row_starts[start + k + 1]):
                gradient[np.uint64(columns[j])] += weight * data[j]
            if intercept:
                gradient[n_columns] += weight
    return value
