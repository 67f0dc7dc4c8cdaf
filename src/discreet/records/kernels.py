"""Compiled passes over dense rows, and the proved bound on their rounding errors.

Every kernel walks a C-contiguous matrix of doubles or singles once, block by block: a block is small enough to stay
in cache, so its rows are read from memory once although they are used twice (raw predictions, then the weighted sum)
or twice per class. Singles are widened entry by entry, which is exact. Rows are never modified; the clip enters as
the row scale s, and rows with s = 0 contribute nothing.

Reassociation and fused multiply-add are allowed inside dot products, because the bound holds for every order
of summation; flags that assume finite numbers or replace divisions are not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.losses import (
    CappedLogistic,
    CappedSoftmax,
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)
from discreet.records.compiling import compiled as compiled
from discreet.records.exponentials import exponentials
from discreet.records.softmax_kernel import softmax_coefficients
from discreet.records.tiles import ROWS, block_dots, block_sums

Array = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
#: Largest number of rows in a block. Kernels multiply one factor per row, in [1, 2] or with up to 32 classes in
#: [1, 32], before they take a logarithm, so a block must stay well below 1023 / 5 rows.
MAX_BLOCK_ROWS = 128
#: Largest number of rows that are summed in one unknown order (by BLAS or SciPy).
MAX_CHUNK_ROWS = 8192

_LOGISTIC, _CAPPED, _HUBER_HINGE = Logistic.kernel_id, CappedLogistic.kernel_id, HuberHinge.kernel_id
_SOFTMAX, _CAPPED_SOFTMAX = Softmax.kernel_id, CappedSoftmax.kernel_id
COMPILED_LOSSES = (Logistic, CappedLogistic, HuberHinge, HuberRegression, Squared)
COMPILED_SOFTMAXES = (Softmax, CappedSoftmax)  # over dense rows


def block_rows(n_columns: int) -> int:
    """Rows per block: about an eighth of a megabyte, a multiple of 4 between 16 and 128 rows."""
    return int(min(MAX_BLOCK_ROWS, max(16, 2**14 // max(1, n_columns) // ROWS * ROWS)))


def kernel_of(loss: Loss) -> tuple[int, float]:
    """The compiled formula of a compiled loss and its parameter."""
    if isinstance(loss, Squared):  # the residual, held at its bound
        return HuberRegression.kernel_id, loss.lipschitz
    return loss.kernel_id, loss.kernel_parameter


@compiled("reassoc")
def _log_product(factors: Array, m: int) -> float:
    """The sum of logarithms of factors in [1, 2], at most ``MAX_BLOCK_ROWS`` of them."""
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
    loss_id: int, parameter: float, y: Array, scales: Array, t: Array, start: int, m: int, work: Array
) -> float:
    """Replace dot products in t by s f'(y, s t), 0 where s = 0; return the block's sum of losses."""
    values, factors = work[0], work[1]
    s, label = scales[start : start + m], y[start : start + m]
    if loss_id in (_LOGISTIC, _CAPPED):
        cap = parameter if loss_id == _CAPPED else 1.0
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
            t[k] = -label[k] * min((decay if z >= 0.0 else 1.0) / (1.0 + decay), cap) * s[k]
            factors[k] = 1.0 + decay if z >= corner and s[k] > 0.0 else 1.0
        return _total(values, m) + _log_product(factors, m)
    width = parameter
    if loss_id == _HUBER_HINGE:
        for k in range(m):
            z = label[k] * (s[k] * t[k])
            slope = min(1.0, max(0.0, ((1.0 + width) - z) / (2.0 * width)))
            value = width * slope * slope if slope < 1.0 else 1.0 - z
            values[k] = value if s[k] > 0.0 else 0.0
            t[k] = -label[k] * slope * s[k]
        return _total(values, m)
    for k in range(m):
        residual = s[k] * t[k] - label[k]
        derivative = min(width, max(-width, residual))
        values[k] = derivative * (residual - 0.5 * derivative) if s[k] > 0.0 else 0.0
        t[k] = derivative * s[k]
    return _total(values, m)


@compiled()
def loss_and_gradient(
    loss_id: int,
    parameter: float,
    X: Any,
    y: Array,
    scales: Array,
    theta: Array,
    sizes: NDArray[np.int64],
    height: int,
    gradient: Array,
) -> float:
    """Add the gradient of the rows' losses to ``gradient`` and return their sum; theta and gradient ``by_class``."""
    n = X.shape[0]
    t, work = np.empty((len(theta), height)), np.empty((2, height))
    value = 0.0
    for start in range(0, n, height):
        m = min(height, n - start)
        fetched = block_dots(X, start, m, theta, sizes, t)
        if loss_id in (_SOFTMAX, _CAPPED_SOFTMAX):
            value += softmax_coefficients(parameter, y, scales, t, start, m, work)
        else:
            value += block_coefficients(loss_id, parameter, y, scales, t[0], start, m, work)
        block_sums(X, start, m, t, sizes, gradient, fetched)
    return value


@compiled()
def dot_products(X: Any, theta: Array, sizes: NDArray[np.int64], height: int, out: Array) -> None:
    """out[c, i] = <(x_i, 1), theta_c>, before any scaling."""
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
    """total += sum_i weights_i <(x_i, 1), direction> (x_i, 1); direction and total ``by_class``."""
    n = X.shape[0]
    t = np.empty((1, height))
    for start in range(0, n, height):
        m = min(height, n - start)
        fetched = block_dots(X, start, m, direction, sizes, t)
        for k in range(m):
            t[0, k] *= weights[start + k]
        block_sums(X, start, m, t, sizes, total, fetched)


def gamma(k: float) -> float:
    """Higham's gamma_k = k u / (1 - k u): k roundings change a sum of products by at most this factor."""
    ku = k * UNIT_ROUNDOFF
    if not ku < 0.01:
        raise ValueError(f"a sum of {k:g} terms is too long for the rounding analysis; split the data")
    return ku / (1.0 - ku)


def worst_additions(n_samples: int) -> int:
    """The most additions any record's term passes through, however the rows are stored and split."""
    return min(n_samples, MAX_CHUNK_ROWS + n_samples // 256 + 64)


def gradient_rounding(
    loss: Loss,
    n_samples: int,
    n_features: int,
    feature_norm: float,
    theta_norm: float,
    additions: int | None = None,
) -> float:
    """A proved bound on |computed - exact| (L2) for a sum of n record gradients at a theta of the given norm.

        e = n R (beta gamma_{p+3} R |theta| + (kappa + 2) u L + gamma_{m+2} L) (1 + 1/100) + underflow,

    where p counts features with the intercept, m = ``additions`` is the largest number of additions any
    record's term passes through (by default the most that any storage needs), and kappa is the loss's own
    evaluation error. Reads public numbers only. Proof: docs/proofs/rounding.md, sections 2 to 4.
    """
    if additions is None:
        additions = worst_additions(n_samples)
    margin = loss.smoothness * gamma(n_features + 3) * feature_norm * theta_norm
    evaluation = (loss.evaluation_error + 2.0) * UNIT_ROUNDOFF * loss.lipschitz
    summation = gamma(additions + 2) * loss.lipschitz
    underflow = 2.0**-140 * (1.0 + loss.smoothness) * (1.0 + loss.lipschitz) * n_features * loss.n_outputs
    return 1.01 * n_samples * feature_norm * (margin + evaluation + summation) + n_samples * underflow
