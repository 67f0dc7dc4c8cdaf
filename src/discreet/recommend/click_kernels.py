"""What each user adds to the sums of implicit feedback: compiled, in exact integers, as in `recommend.kernels`."""

from __future__ import annotations

import math

import numpy as np

from discreet.recommend.kernels import Array, Integers, Items, fit_in, ridge, row_weights
from discreet.records.kernels import compiled


@compiled()
def click_factors(
    starts: Integers, items: Items, features: Array, penalty: Array, first: int, last: int, out: Array
) -> None:
    """Users first..last-1: x minimizes the mean over the user's items of (1 - x . v)^2, plus sum_c penalty_c x_c^2."""
    k = features.shape[1]
    gram, own = np.empty((k, k)), np.empty(k)
    for i in range(first, last):
        size = starts[i + 1] - starts[i]
        for c in range(k):
            own[c] = max(size, 1) * penalty[c]
        ridge(items[starts[i] : starts[i + 1]], np.ones(size), features, own, gram, out[i - first])


@compiled()
def projections(starts: Integers, items: Items, directions: Array, gains: Array, out: Array) -> None:
    """out_i = gains times the sum of the directions of user i's items over the root of their number; 0 if none."""
    for i in range(starts.shape[0] - 1):
        size = starts[i + 1] - starts[i]
        for c in range(gains.shape[0]):
            total = 0.0
            for a in range(starts[i], starts[i + 1]):
                total += directions[items[a], c]
            out[i, c] = gains[c] * total / math.sqrt(max(size, 1))


@compiled()
def add_click_equations(
    starts: Integers,
    items: Items,
    features: Array,
    penalty: Array,
    importance: Array,
    per_user: float,
    factor_bound: float,
    bound: int,
    weight_bound: int,
    sums: Integers,
) -> None:
    """Lower triangles of sums[j] += w z z^T, z = (u / factor_bound, 1) in integers up to ``bound``; sums[n] += u u^T.

    The last matrix is the sum over all users, once each, for the items they did not click.
    """
    n, r = features.shape
    x, z = np.empty((1, r)), np.empty(r + 1, dtype=np.int64)
    longest = 1
    for i in range(starts.shape[0] - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    w = np.empty(longest, dtype=np.int64)
    for i in range(starts.shape[0] - 1):
        row = items[starts[i] : starts[i + 1]]
        if row.shape[0] == 0:
            continue
        click_factors(starts, items, features, penalty, i, i + 1, x)
        norm = 0.0
        for c in range(r):
            norm += x[0, c] * x[0, c]
        norm = math.sqrt(norm)
        if not math.isfinite(norm):
            continue
        for c in range(r):
            z[c] = int(x[0, c] * (bound / max(factor_bound, norm)))
        fit_in(z, r, bound)
        z[r] = bound
        row_weights(row, importance, per_user, weight_bound, w)
        for c in range(r):
            for d in range(c + 1):
                sums[n, c, d] += z[c] * z[d]
        for a in range(row.shape[0]):
            for c in range(r + 1):
                for d in range(c + 1):
                    sums[row[a], c, d] += w[a] * z[c] * z[d]
