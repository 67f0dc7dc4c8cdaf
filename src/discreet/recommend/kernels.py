"""Compiled loops over one user's row at a time, which add to global sums in exact integers.

Every kernel turns a user's own row into integers whose Euclidean norm is at most a public bound, checked on the
integers themselves, and adds them in int64. A contribution is computed from the row and released numbers by a fixed
sequence of IEEE operations (no reassociation, no batched products), so another user's presence cannot change its last
bit. Integer sums do not depend on their order. Proof: docs/proofs/recommenders.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array, Integers
from discreet.mechanisms.samplers.numba_decorator import compiled

Items = NDArray[np.int32]


@compiled()
def fit_in(q: Integers, size: int, bound: int) -> None:
    """Shrink integers until the sum of squares is at most bound^2; needed only if rounding exceeded it."""
    step = 2.0**-40
    while True:
        total = 0
        for a in range(size):
            total += q[a] * q[a]
        if total <= bound * bound:
            return
        for a in range(size):
            q[a] = int(q[a] * (1.0 - step))
        step = min(2.0 * step, 0.5)


@compiled()
def row_order(starts: Integers, items: Items) -> int:
    """Return 0 if every row lists its items in strictly increasing order, otherwise 1."""
    for i in range(starts.shape[0] - 1):
        for a in range(starts[i] + 1, starts[i + 1]):
            if items[a - 1] >= items[a]:
                return 1
    return 0


@compiled()
def row_weights(items: Items, importance: Array, per_user: float, bound: int, q: Integers) -> None:
    """q_j = trunc(bound f_j / |f|) over a user's items, shorter for users with fewer than per_user ratings."""
    size = items.shape[0]
    square = 0.0
    for a in range(size):
        square += importance[items[a]] * importance[items[a]]
    if not square > 0.0:
        for a in range(size):
            q[a] = 0
        return
    length = bound * min(1.0, math.sqrt(size / per_user)) / math.sqrt(square)
    for a in range(size):
        q[a] = int(length * importance[items[a]])
    fit_in(q, size, bound)


@compiled()
def offset(items: Items, values: Array, effects: Array) -> float:
    """Return a user's own mean after item effects."""
    total = 0.0
    for a in range(items.shape[0]):
        total += values[a] - effects[items[a]]
    return float(total / items.shape[0])


@compiled()
def add_profile(
    starts: Integers,
    items: Items,
    values: Array,
    importance: Array,
    effects: Array,
    clip: float,
    per_user: float,
    bound: int,
    sums: Integers,
) -> None:
    """sums[0, j] += weight, sums[1, j] += weight times the clipped centered rating, |second| <= first."""
    longest = 1
    for i in range(starts.shape[0] - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    q = np.empty(longest, dtype=np.int64)
    for i in range(starts.shape[0] - 1):
        begin, end = starts[i], starts[i + 1]
        if begin == end:
            continue
        row, own = items[begin:end], values[begin:end]
        row_weights(row, importance, per_user, bound, q)
        center = offset(row, own, effects)
        for a in range(end - begin):
            ratio = (own[a] - effects[row[a]] - center) / clip
            ratio = min(1.0, max(-1.0, ratio))
            sums[0, row[a]] += q[a]
            sums[1, row[a]] += int(q[a] * ratio)


@compiled()
def add_offsets(
    starts: Integers, items: Items, values: Array, effects: Array, bound: int, sums: Integers
) -> None:
    """sums[0] += own mean after item effects, clipped to [-1, 1]; sums[1] += 1 for every user with ratings."""
    for i in range(starts.shape[0] - 1):
        begin, end = starts[i], starts[i + 1]
        if begin == end:
            continue
        center = offset(items[begin:end], values[begin:end], effects)
        sums[0] += int(min(1.0, max(-1.0, center)) * bound)
        sums[1] += bound


@compiled()
def ridge(items: Items, target: Array, features: Array, penalty: Array, gram: Array, out: Array) -> None:
    """out = argmin sum_j (target_j - features_j . x)^2 + sum_k penalty_k x_k^2, by Cholesky; gram is scratch."""
    k = features.shape[1]
    for a in range(k):
        out[a] = 0.0
        for b in range(k):
            gram[a, b] = 0.0
        gram[a, a] = penalty[a]
    for t in range(items.shape[0]):
        j = items[t]
        for a in range(k):
            value = features[j, a]
            out[a] += value * target[t]
            for b in range(a + 1):
                gram[a, b] += value * features[j, b]
    for a in range(k):
        for b in range(a + 1):
            value = gram[a, b]
            for c in range(b):
                value -= gram[a, c] * gram[b, c]
            if a == b:
                gram[a, a] = math.sqrt(max(value, 1e-12 * penalty[a]))
            else:
                gram[a, b] = value / gram[b, b]
    for a in range(k):
        value = out[a]
        for c in range(a):
            value -= gram[a, c] * out[c]
        out[a] = value / gram[a, a]
    for a in range(k - 1, -1, -1):
        value = out[a]
        for c in range(a + 1, k):
            value -= gram[c, a] * out[c]
        out[a] = value / gram[a, a]


@compiled()
def coefficients(
    starts: Integers, items: Items, values: Array, base: Array, features: Array, penalty: Array, out: Array
) -> None:
    """The local step of every given row: ridge of (values - base) on the features."""
    k = features.shape[1]
    gram = np.empty((k, k))
    for i in range(starts.shape[0] - 1):
        begin, end = starts[i], starts[i + 1]
        target = np.empty(end - begin)
        for a in range(end - begin):
            target[a] = values[begin + a] - base[items[begin + a]]
        ridge(items[begin:end], target, features, penalty, gram, out[i])


@compiled()
def row_scores(base: Array, features: Array, factors: Array, out: Array) -> None:
    """out[i, j] = base_j + factors_i . features_j, row by row: other rows of the batch do not change a bit."""
    for i in range(factors.shape[0]):
        for j in range(features.shape[0]):
            value = base[j]
            for c in range(features.shape[1]):
                value += factors[i, c] * features[j, c]
            out[i, j] = value


@compiled()
def residual_rows(
    starts: Integers,
    items: Items,
    values: Array,
    base: Array,
    features: Array,
    penalty: Array,
    importance: Array,
    per_user: float,
    clip: float,
    bound: int,
    q: Integers,
) -> None:
    """q = trunc(bound a / clip), a = weighted residual of the local ridge, shrunk to norm ``clip``."""
    k = features.shape[1]
    gram, x = np.empty((k, k)), np.empty(k)
    for i in range(starts.shape[0] - 1):
        begin, end = starts[i], starts[i + 1]
        size = end - begin
        if size == 0:
            continue
        row, out = items[begin:end], q[begin:end]
        residual = np.empty(size)
        for a in range(size):
            residual[a] = values[begin + a] - base[row[a]]
        ridge(row, residual, features, penalty, gram, x)
        square = 0.0
        for a in range(size):
            for c in range(k):
                residual[a] -= features[row[a], c] * x[c]
            square += importance[row[a]] * importance[row[a]]
        if not square > 0.0:
            for a in range(size):
                out[a] = 0
            continue
        weight = min(1.0, math.sqrt(size / per_user)) / math.sqrt(square)
        norm = 0.0
        for a in range(size):
            residual[a] *= weight * importance[row[a]]
            norm += residual[a] * residual[a]
        norm = math.sqrt(norm)
        if not math.isfinite(norm):
            for a in range(size):
                out[a] = 0
            continue
        scale = bound / max(clip, norm)
        for a in range(size):
            out[a] = int(residual[a] * scale)
        fit_in(out, size, bound)


@compiled()
def spread(starts: Integers, items: Items, q: Integers, rows: Array) -> None:
    """rows[i, item] = q of the user's entry; other entries are unchanged."""
    for i in range(starts.shape[0] - 1):
        for a in range(starts[i], starts[i + 1]):
            rows[i, items[a]] = q[a]


@compiled()
def by_item(starts: Integers, items: Items, heads: Integers, order: Items, begins: Items) -> None:
    """Sort entries by item: those of item j are order[heads[j]:heads[j + 1]]; begins[a] is the start of a's row."""
    heads[:] = 0
    for a in range(items.shape[0]):
        heads[items[a] + 1] += 1
    for j in range(heads.shape[0] - 1):
        heads[j + 1] += heads[j]
    place = heads[:-1].copy()
    for i in range(starts.shape[0] - 1):
        for a in range(starts[i], starts[i + 1]):
            begins[a] = starts[i]
            order[place[items[a]]] = a
            place[items[a]] += 1


@compiled()
def add_covariance(
    items: Items,
    q: Integers,
    heads: Integers,
    order: Items,
    begins: Items,
    first: int,
    last: int,
    total: Integers,
) -> None:
    """Lower triangle of total += q_i q_i^T, in the lines of items first..last-1; a row's items are in order.

    Item by item, so that a line of a matrix that exceeds the cache is fetched once per block of users.
    """
    for j in range(first, last):
        line = total[j]
        for s in range(heads[j], heads[j + 1]):
            a = order[s]
            value = q[a]
            if value != 0:
                for b in range(begins[a], a + 1):
                    line[items[b]] += value * q[b]


@compiled()
def add_product(starts: Integers, items: Items, q: Integers, block: Integers, total: Integers) -> None:
    """total += q_i (q_i^T block), in integers."""
    k = block.shape[1]
    inner = np.empty(k, dtype=np.int64)
    for i in range(starts.shape[0] - 1):
        inner[:] = 0
        for a in range(starts[i], starts[i + 1]):
            for c in range(k):
                inner[c] += q[a] * block[items[a], c]
        for a in range(starts[i], starts[i + 1]):
            for c in range(k):
                total[items[a], c] += q[a] * inner[c]


@compiled()
def add_normal_equations(
    starts: Integers,
    items: Items,
    values: Array,
    base: Array,
    features: Array,
    n_own: int,
    penalty: Array,
    importance: Array,
    per_user: float,
    factor_bound: float,
    rating_clip: float,
    bound: int,
    weight_bound: int,
    sums: Integers,
) -> None:
    """Lower triangles of sums[j] += w z z^T, z = (u / factor_bound, y / rating_clip) in integers up to ``bound``.

    The first ``n_own`` features are not learned: what they explain is subtracted from y, their coefficients are
    not part of u.
    """
    k = features.shape[1]
    r = k - n_own
    gram, x = np.empty((k, k)), np.empty(k)
    z = np.empty(r + 1, dtype=np.int64)
    longest = 1
    for i in range(starts.shape[0] - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    w = np.empty(longest, dtype=np.int64)
    for i in range(starts.shape[0] - 1):
        begin, end = starts[i], starts[i + 1]
        size = end - begin
        if size == 0:
            continue
        row = items[begin:end]
        residual = np.empty(size)
        for a in range(size):
            residual[a] = values[begin + a] - base[row[a]]
        ridge(row, residual, features, penalty, gram, x)
        norm = 0.0
        for c in range(n_own, k):
            norm += x[c] * x[c]
        norm = math.sqrt(norm)
        if not math.isfinite(norm):
            continue
        scale = bound / max(factor_bound, norm)
        for c in range(r):
            z[c] = int(x[n_own + c] * scale)
        fit_in(z, r, bound)
        row_weights(row, importance, per_user, weight_bound, w)
        for a in range(size):
            own = 0.0
            for c in range(n_own):
                own += features[row[a], c] * x[c]
            z[r] = int(min(1.0, max(-1.0, (residual[a] - own) / rating_clip)) * bound)
            for c in range(r + 1):
                for d in range(c + 1):
                    sums[row[a], c, d] += w[a] * z[c] * z[d]


# -- implicit feedback: sets of items -----------------------------------------------------------------------------


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
