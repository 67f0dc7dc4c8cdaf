"""Two looks at the sums of two classes, with floating-point noise: a yardstick for `refocused-sums`, no release.

Shares of the squared Gaussian-DP parameter: 0.1 for sums of both classes, 0.83 for sums of rows that are weighted by
what the first ones showed, 0.07 for a center, a slope and a threshold. Columns are shrunk by empirical Bayes. The rows
have norm 1 and no negative entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.preprocessing import normalize

from discreet._typing import Array
from discreet.privacy.accounting.gaussian import gaussian_mu

LOOK, SUMS, ENDING = 0.1, 0.83, 0.07
_LARGEST, _STEPS, _WIDEST = 8.0, 40, 3.0  # score at the center; gradients; score of the slope


def fitted(
    X: Any, y: Array, epsilon: float, delta: float, added: bool, rng: np.random.Generator
) -> Callable[[Any], Array]:
    """Fit labels 0 and 1, and return the scores of other rows; ``added``: add-remove-one, else replace-one."""
    n, p = X.shape
    mu, k = gaussian_mu(epsilon, delta), 1.0 if added else math.sqrt(2)
    stddev = k * math.sqrt(1 + 1 / 16) / (mu * math.sqrt(LOOK))  # with a constant 1/4 in every row
    share = float(np.mean(y) + rng.normal() * stddev / n * 4 / math.sqrt(2))
    share = min(max(share, 0.5 / n), 1 - 0.5 / n)
    both = (1 - share) ** 2 + share**2
    looked = _class_sums(X, y, stddev, rng)
    means = _means(looked.sum(axis=0) / n, np.full(p, 2 * (stddev / n) ** 2))
    contrasts = [((looked[1] - share * looked.sum(axis=0)) / n, both * (stddev / n) ** 2, np.ones(p))]
    square = _leans(contrasts, means)[1]

    stddev, scale = k / (mu * math.sqrt(SUMS)), 1 / means.sum()
    one = added and max(share, 1 - share) < 0.85 * math.sqrt(both)  # one vector is less noisy than two sums
    noise = max(share, 1 - share) / (mu * math.sqrt(SUMS)) if one else math.sqrt(both) * stddev
    frequency = means * scale
    weights = np.sqrt(_filled(square * frequency, (n / noise / scale) ** 2) / frequency)
    rows = normalize(X @ sp.diags_array(weights))
    if one:
        found = (rows.T @ (y - share) + noise * rng.normal(size=p)) / n
        size = 1 / math.sqrt(float(weights**2 @ means) * scale)
    else:
        sums = _class_sums(rows, y, stddev, rng)
        found, total = (sums[1] - share * sums.sum(axis=0)) / n, sums.sum(axis=0) / n
        kept, expected = weights > 0, weights * means
        size = float(total[kept] @ expected[kept] / (expected[kept] @ expected[kept]))
        precise, spread = size * weights, 2 * (stddev / n) ** 2
        before = 2 * (k * math.sqrt(1 + 1 / 16) / (mu * math.sqrt(LOOK)) / n) ** 2
        precision = 1 / before + precise**2 / spread
        means = _means(
            (looked.sum(axis=0) / n / before + precise * total / spread) / precision, 1 / precision
        )
        frequency = means / means.sum()
    lean = _leans([*contrasts, (found, (noise / n) ** 2, size * weights)], means)[0]
    coef = np.where(weights > 0, lean / np.where(weights > 0, weights * size, 1.0), 0.0)
    unit = math.sqrt(float(coef**2 @ ((weights * size) ** 2 * frequency))) + 1e-12
    middle = float(coef @ (size * weights * means))
    middle += unit * _center((rows @ coef - middle) / unit, mu * math.sqrt(0.2 * ENDING), added, rng)
    slope, threshold = _slope(
        (rows @ coef - middle) / unit, 2 * y - 1, mu * math.sqrt(0.8 * ENDING), added, share, rng
    )

    def scores(other: Any) -> Array:
        z = (normalize(other @ sp.diags_array(weights)) @ coef - middle) / unit
        return np.asarray(np.clip(z, -_WIDEST, _WIDEST) / _WIDEST * slope + threshold)

    return scores


def _class_sums(X: Any, y: Array, stddev: float, rng: np.random.Generator) -> Array:
    return np.stack([X.T @ (y == code) + stddev * rng.normal(size=X.shape[1]) for code in (0, 1)])


def _means(seen: Array, variance: Array) -> Array:
    """Posterior means of column means, which are not negative; the prior on a grid by EM."""
    stddev = np.sqrt(variance)
    least = float(stddev.min())
    grid = np.append(0.0, np.geomspace(0.02 * least, max(float(seen.max()), 4 * least), 40))
    found, unsure = seen.copy(), np.flatnonzero(seen <= 12 * stddev)
    likely = np.exp(-0.5 * ((seen[unsure, None] - grid) / stddev[unsure, None]) ** 2) + 1e-300
    weights = _mixture(likely[:: max(1, len(unsure) // 20_000)], 0.5)
    found[unsure] = _posterior(likely, weights) @ grid
    return np.maximum(found, 1e-3 * least)


def _leans(contrasts: list[tuple[Array, float, Array]], means: Array) -> tuple[Array, Array]:
    """Posterior means and second moments of contrasts over means: normals of many widths, wider for rare columns."""
    precision = np.sum([(g * means) ** 2 / v for _, v, g in contrasts], axis=0)
    seen = np.sum([g * means * c / v for c, v, g in contrasts], axis=0) / precision
    variance = 1 / precision
    rare = np.minimum((means / np.average(means, weights=means)) ** -0.5, 1e5)
    prior = np.minimum(np.append(0.0, np.geomspace(1e-5, 1.0, 24)) * rare[:, None], 1.0)
    total = prior + variance[:, None]
    logs = -0.5 * (np.log(total) + seen[:, None] ** 2 / total)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances, kept = _posterior(likely, _mixture(likely, 1.0)), prior / total
    mean = (chances * kept).sum(axis=1) * seen
    return mean, (chances * (kept * variance[:, None] + (kept * seen[:, None]) ** 2)).sum(axis=1)


def _mixture(likely: Array, prior: float) -> Array:
    weights = np.full(likely.shape[1], 1 / likely.shape[1])
    for _ in range(40):
        weights = (_posterior(likely, weights).sum(axis=0) + prior) / (len(likely) + prior * len(weights))
    return weights


def _posterior(likely: Array, weights: Array) -> Array:
    chances = likely * weights
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _filled(worth: Array, precision: float) -> Array:
    """max(0, level - 1 / (precision worth)), where the level makes them add up to 1."""
    depth = 1 / (precision * np.maximum(worth, 1e-300))
    ordered = np.sort(depth)
    levels = (1 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    return np.asarray(np.maximum(0.0, levels[np.flatnonzero(levels > ordered)[-1]] - depth))


def _center(scores: Array, mu: float, added: bool, rng: np.random.Generator) -> float:
    """The mean score, drawn to 0 as far as noise alone would explain it."""
    stddev = (1 if added else 2) * _LARGEST / mu / len(scores)
    mean = float(np.clip(scores, -_LARGEST, _LARGEST).mean() + rng.normal() * stddev)
    return mean**3 / (mean**2 + stddev**2)


def _slope(
    scores: Array, sign: Array, mu: float, added: bool, share: float, rng: np.random.Generator
) -> Array:
    """Slope and threshold by noisy gradients of the logistic loss, averaged over the second half."""
    rows = np.column_stack([np.clip(scores, -_WIDEST, _WIDEST) / _WIDEST, np.ones(len(scores))])
    stddev = (1 if added else 2) * math.sqrt(2 * _STEPS) / mu
    steep = np.array([0.12, 1.0]) * len(scores) * max(share * (1 - share), 0.04)
    steep = np.maximum(steep, 6 * stddev / math.sqrt(_STEPS))
    at, total = np.array([0.5 * _WIDEST, math.log(share / (1 - share))]), np.zeros(2)
    for step in range(_STEPS):
        down = rows.T @ (sign * expit(-sign * (rows @ at))) + stddev * rng.normal(size=2)
        at = np.clip(at + 0.5 * down / steep, [0.1, -10.0], [20.0, 10.0])
        total += at * (step >= _STEPS // 2)
    return total / (_STEPS // 2)
