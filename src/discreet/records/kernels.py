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
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from discreet.losses import HuberHinge, HuberRegression, Logistic, Loss, Squared

Array = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
#: Largest number of rows in a block. The logistic kernel multiplies one factor in [1, 2] per row before it
#: takes a logarithm, so a block must stay well below 1023 rows.
MAX_BLOCK_ROWS = 256
#: Largest number of rows that are summed in one unknown order (by BLAS or SciPy).
MAX_CHUNK_ROWS = 8192

_LOGISTIC, _HUBER_HINGE = Logistic.kernel_id, HuberHinge.kernel_id
COMPILED_LOSSES = (Logistic, HuberHinge, HuberRegression, Squared)

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*fastmath: str) -> Callable[[F], F]:
    """A typed numba decorator: no interpreter lock, cached on disk, IEEE division."""
    flags = set(fastmath) if fastmath else False
    decorator: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)
    return cast(Callable[[F], F], decorator)


def block_rows(n_columns: int) -> int:
    """Rows per block: about half a megabyte, between 16 and 256 rows."""
    return int(min(MAX_BLOCK_ROWS, max(16, 2**16 // max(1, n_columns))))


def kernel_of(loss: Loss) -> tuple[int, float]:
    """The compiled formula of a loss of ``COMPILED_LOSSES`` and its parameter."""
    if isinstance(loss, Squared):  # the residual, held at its bound
        return HuberRegression.kernel_id, loss.lipschitz
    return loss.kernel_id, loss.kernel_parameter


@compiled("reassoc", "contract")
def _four_dots(a: Array, b: Array, c: Array, d: Array, theta: Array) -> tuple[float, float, float, float]:
    dot_a = dot_b = dot_c = dot_d = 0.0
    for j in range(theta.shape[0]):
        t = theta[j]
        dot_a += a[j] * t
        dot_b += b[j] * t
        dot_c += c[j] * t
        dot_d += d[j] * t
    return dot_a, dot_b, dot_c, dot_d


@compiled("reassoc", "contract")
def _dot(a: Array, theta: Array) -> float:
    dot = 0.0
    for j in range(theta.shape[0]):
        dot += a[j] * theta[j]
    return dot


@compiled()
def _offset(theta: Array, n_columns: int) -> float:
    """The intercept's coefficient, 0 if there is none."""
    if theta.shape[0] > n_columns:
        return float(theta[n_columns])
    return 0.0


@compiled()
def _block_dots(X: Array, start: int, stop: int, theta: Array, offset: float, out: Array) -> None:
    """out[k] = <x_{start + k}, theta> + offset, four rows at a time to reuse theta from registers."""
    d = X.shape[1]
    weights = theta[:d]
    i = start
    while i + 4 <= stop:
        k = i - start
        dots = _four_dots(X[i], X[i + 1], X[i + 2], X[i + 3], weights)
        out[k] = dots[0] + offset
        out[k + 1] = dots[1] + offset
        out[k + 2] = dots[2] + offset
        out[k + 3] = dots[3] + offset
        i += 4
    while i < stop:
        out[i - start] = _dot(X[i], weights) + offset
        i += 1


@compiled("contract")
def _block_combine(X: Array, start: int, stop: int, coefficients: Array, total: Array, sums: Array) -> None:
    """total += sum_k coefficients[k] (x_{start + k}, 1); the block is first summed on its own in sums."""
    d = X.shape[1]
    sums[:] = 0.0
    i = start
    while i + 4 <= stop:
        k = i - start
        ca, cb, cc, cd = coefficients[k], coefficients[k + 1], coefficients[k + 2], coefficients[k + 3]
        a, b, c, e = X[i], X[i + 1], X[i + 2], X[i + 3]
        for j in range(d):
            sums[j] += (ca * a[j] + cb * b[j]) + (cc * c[j] + cd * e[j])
        i += 4
    while i < stop:
        weight = coefficients[i - start]
        row = X[i]
        for j in range(d):
            sums[j] += weight * row[j]
        i += 1
    if total.shape[0] > d:
        for k in range(stop - start):
            sums[d] += coefficients[k]
    for j in range(total.shape[0]):
        total[j] += sums[j]


@compiled("contract")
def _losses_to_coefficients(
    loss_id: int, width: float, y: Array, scales: Array, t: Array, start: int, m: int
) -> float:
    """Replace dot products in t by s f'(y, s t); return the block's sum of losses."""
    value = 0.0
    product = 1.0
    for k in range(m):
        s = scales[start + k]
        if s == 0.0:
            t[k] = 0.0
            continue
        label = y[start + k]
        raw = s * t[k]
        if loss_id == _LOGISTIC:
            z = label * raw
            decay = math.exp(-abs(z))
            product *= 1.0 + decay
            value += max(0.0, -z)
            derivative = -label * ((decay if z >= 0.0 else 1.0) / (1.0 + decay))
        elif loss_id == _HUBER_HINGE:
            z = label * raw
            slope = min(1.0, max(0.0, ((1.0 + width) - z) / (2.0 * width)))
            value += width * slope * slope if slope < 1.0 else 1.0 - z
            derivative = -label * slope
        else:
            residual = raw - label
            derivative = min(width, max(-width, residual))
            value += derivative * (residual - 0.5 * derivative)
        t[k] = derivative * s
    return value + math.log(product)


@compiled()
def losses_to_coefficients(loss_id: int, width: float, y: Array, scales: Array, t: Array) -> float:
    """The same for any number of rows, whose dot products come from elsewhere."""
    value = 0.0
    for start in range(0, len(t), MAX_BLOCK_ROWS):
        stop = min(start + MAX_BLOCK_ROWS, len(t))
        value += _losses_to_coefficients(loss_id, width, y, scales, t[start:stop], start, stop - start)
    return value


@compiled()
def loss_and_gradient(
    loss_id: int, width: float, X: Array, y: Array, scales: Array, theta: Array, height: int, gradient: Array
) -> float:
    """Add the gradient of the rows' losses to ``gradient`` and return the sum of the losses."""
    n, d = X.shape
    offset = _offset(theta, d)
    t = np.empty(height)
    sums = np.empty(theta.shape[0])
    value = 0.0
    for start in range(0, n, height):
        stop = min(start + height, n)
        _block_dots(X, start, stop, theta, offset, t)
        value += _losses_to_coefficients(loss_id, width, y, scales, t, start, stop - start)
        _block_combine(X, start, stop, t, gradient, sums)
    return value


@compiled()
def dot_products(X: Array, theta: Array, height: int, out: Array) -> None:
    """out[i] = <(x_i, 1), theta>, before any scaling."""
    n, d = X.shape
    offset = _offset(theta, d)
    for start in range(0, n, height):
        stop = min(start + height, n)
        _block_dots(X, start, stop, theta, offset, out[start:stop])


@compiled()
def weighted_product(X: Array, weights: Array, direction: Array, height: int, total: Array) -> None:
    """total += sum_i weights_i <(x_i, 1), direction> (x_i, 1)."""
    n, d = X.shape
    offset = _offset(direction, d)
    t = np.empty(height)
    sums = np.empty(direction.shape[0])
    for start in range(0, n, height):
        stop = min(start + height, n)
        _block_dots(X, start, stop, direction, offset, t)
        for k in range(stop - start):
            t[k] *= weights[start + k]
        _block_combine(X, start, stop, t, total, sums)


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
