"""The compiled pass for several classes: four rows meet four classes at a time, exponentials are taken in bulk."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.records.kernels import MAX_BLOCK_ROWS, compiled

Array = NDArray[np.float64]

MOST_CLASSES = 32  # with more, BLAS on small blocks is faster
_GROUP = 4
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_ROUNDER = (
    6755399441055744.0  # 1.5 x 2^52: adding it rounds to a whole number, which is then in the lowest bits
)
_LEAST = -700.0


def softmax_block_rows(n_columns: int) -> int:
    """Rows per block that is used once per four classes: about 64 kilobytes, a multiple of 4 between 16 and 256."""
    return int(min(MAX_BLOCK_ROWS, max(16, 2**13 // max(1, n_columns) // _GROUP * _GROUP)))


def by_class(theta: Array) -> Array:
    """One row of theta per class, with rows of zeros up to a multiple of four."""
    n_features, n_classes = theta.shape
    padded = np.zeros((-(-n_classes // _GROUP) * _GROUP, n_features))
    padded[:n_classes] = theta.T
    return padded


@compiled("reassoc", "contract")
def _dots(X: Any, i: int, theta: Array, c: int, d: int, out: Array, k: int) -> None:
    """out[c + b, k + a] = <x_{i + a}, theta_{c + b}> for a, b = 0 .. 3."""
    x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
    t0, t1, t2, t3 = theta[c], theta[c + 1], theta[c + 2], theta[c + 3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
    for j in range(d):
        u, v, w, z = t0[j], t1[j], t2[j], t3[j]
        a, b, e, f = x0[j], x1[j], x2[j], x3[j]
        s00 += a * u
        s01 += a * v
        s02 += a * w
        s03 += a * z
        s10 += b * u
        s11 += b * v
        s12 += b * w
        s13 += b * z
        s20 += e * u
        s21 += e * v
        s22 += e * w
        s23 += e * z
        s30 += f * u
        s31 += f * v
        s32 += f * w
        s33 += f * z
    out[c, k], out[c + 1, k], out[c + 2, k], out[c + 3, k] = s00, s01, s02, s03
    out[c, k + 1], out[c + 1, k + 1], out[c + 2, k + 1], out[c + 3, k + 1] = s10, s11, s12, s13
    out[c, k + 2], out[c + 1, k + 2], out[c + 2, k + 2], out[c + 3, k + 2] = s20, s21, s22, s23
    out[c, k + 3], out[c + 1, k + 3], out[c + 2, k + 3], out[c + 3, k + 3] = s30, s31, s32, s33


@compiled("contract")
def _combine(X: Any, i: int, t: Array, c: int, k: int, d: int, sums: Array) -> None:
    """sums_{c + b} += sum over a = 0 .. 3 of t[c + b, k + a] x_{i + a} for b = 0 .. 3."""
    x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
    for b in range(
        c, c + _GROUP
    ):  # one target at a time: with more, compilers cannot rule out that they overlap
        p0, p1, p2, p3 = t[b, k], t[b, k + 1], t[b, k + 2], t[b, k + 3]
        row = sums[b]
        for j in range(d):
            row[j] += (p0 * x0[j] + p1 * x1[j]) + (p2 * x2[j] + p3 * x3[j])


@compiled()
def exponentials(values: Array, powers: Array, bits: NDArray[np.int64]) -> None:
    """values = exp(values) for values <= 0, within 4 units of roundoff; values below -700 count as -700.

    exp(x) = 2^n exp(r), n the whole number nearest x / log 2: no branch and no call, so that it runs in vectors. Error:
    n LN2_HIGH is exact, so r is off by less than u / 2 in all, the series is cut at r^14 / 14! < u / 20 and rounded by
    less than 2 u, since its terms after 1 + r are small.
    ``powers`` is scratch of the same length, and ``bits`` the same memory as integers.
    """
    for k in range(len(values)):
        x = max(values[k], _LEAST)
        shifted = x * _LOG2_E + _ROUNDER
        powers[k] = shifted
        n = shifted - _ROUNDER
        r = (x - n * _LN2_HIGH) - n * _LN2_LOW
        total = 1.0 / 6227020800.0
        total = total * r + 1.0 / 479001600.0
        total = total * r + 1.0 / 39916800.0
        total = total * r + 1.0 / 3628800.0
        total = total * r + 1.0 / 362880.0
        total = total * r + 1.0 / 40320.0
        total = total * r + 1.0 / 5040.0
        total = total * r + 1.0 / 720.0
        total = total * r + 1.0 / 120.0
        total = total * r + 1.0 / 24.0
        total = total * r + 1.0 / 6.0
        total = total * r + 0.5
        values[k] = 1.0 + (r + r * r * total)
    for k in range(len(values)):
        bits[k] = (bits[k] + 1023) << 52
    for k in range(len(values)):
        values[k] *= powers[k]


@compiled()
def _to_coefficients(
    y: Array,
    scales: Array,
    t: Array,
    n_classes: int,
    start: int,
    m: int,
    work: Array,
    bits: NDArray[np.int64],
) -> float:
    """Replace dot products in t, one row per class, by s (q - e_y); return the block's sum of losses."""
    largest, total, powers = work[0, :m], work[1, :m], work[2, :m]
    s = scales[start : start + m]
    value = 0.0
    largest[:] = -np.inf
    for c in range(n_classes):
        row = t[c]
        for k in range(m):
            row[k] *= s[k]
            largest[k] = max(largest[k], row[k])
    for k in range(m):
        if s[k] > 0.0:
            value += largest[k] - t[int(y[start + k]), k]
    total[:] = 0.0
    for c in range(n_classes):
        row = t[c]
        for k in range(m):
            row[k] -= largest[k]
        exponentials(row[:m], powers, bits[:m])
        for k in range(m):
            total[k] += row[k]
    for c in range(n_classes):
        row = t[c]
        for k in range(m):
            row[k] /= total[k]
    for k in range(m):
        if s[k] > 0.0:
            value += math.log(total[k])
            t[int(y[start + k]), k] -= 1.0
    for c in range(n_classes):
        row = t[c]
        for k in range(m):
            row[k] *= s[k]
    return value


@compiled()
def softmax_loss_and_gradient(
    X: Any, y: Array, scales: Array, theta: Array, n_classes: int, height: int, gradient: Array
) -> float:
    """Add the gradient of the rows' losses to ``gradient`` and return their sum; theta and gradient ``by_class``."""
    n, d = X.shape
    t = np.empty((theta.shape[0], height))
    work = np.empty((3, height))
    bits = work[2].view(np.int64)
    sums = np.empty(theta.shape)
    tail = np.zeros((_GROUP, d), X.dtype)
    value = 0.0
    for start in range(0, n, height):
        m = min(height, n - start)
        whole = m - m % _GROUP
        for i in range(m - whole):
            tail[i] = X[start + whole + i]
        for c in range(0, theta.shape[0], _GROUP):
            for k in range(0, whole, _GROUP):
                _dots(X, start + k, theta, c, d, t, k)
            if whole < m:
                _dots(tail, 0, theta, c, d, t, whole)
        if theta.shape[1] > d:
            for c in range(theta.shape[0]):
                for k in range(m):
                    t[c, k] += theta[c, d]
        value += _to_coefficients(y, scales, t, n_classes, start, m, work, bits)
        t[n_classes:] = 0.0
        if whole < m:
            t[:, m : whole + _GROUP] = 0.0
        sums[:] = 0.0
        for k in range(0, whole, _GROUP):
            for c in range(0, theta.shape[0], _GROUP):
                _combine(X, start + k, t, c, k, d, sums)
        if whole < m:
            for c in range(0, theta.shape[0], _GROUP):
                _combine(tail, 0, t, c, whole, d, sums)
        if theta.shape[1] > d:
            for c in range(n_classes):
                for k in range(m):
                    sums[c, d] += t[c, k]
        for c in range(n_classes):
            for j in range(theta.shape[1]):
                gradient[c, j] += sums[c, j]
    return value
