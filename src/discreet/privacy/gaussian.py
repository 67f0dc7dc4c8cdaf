"""The exact privacy profile of Gaussian noise, in log space.

``gaussian_delta(eps, mu)`` is the hockey-stick divergence between N(0, 1) and N(mu, 1) (Balle and Wang, 2018,
Theorem 8): the smallest delta for which a mu-Gaussian-DP mechanism is (eps, delta)-DP.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

Array = NDArray[np.float64]


def hockey_stick(threshold: ArrayLike, mean: ArrayLike, stddev: ArrayLike) -> Array:
    """E (1 - exp(threshold - X))_+ for X ~ N(mean, stddev^2), elementwise; stddev may be zero.

    The workhorse of every profile here: X is a privacy loss, threshold is epsilon.
    """
    e, m, s = np.broadcast_arrays(*(np.asarray(part, dtype=np.float64) for part in (threshold, mean, stddev)))
    out = np.array(-np.expm1(np.minimum(e - m, 0.0)))  # the limit of no spread
    spread = s > 0
    e, m, s = e[spread], m[spread], s[spread]
    z = (m - e) / s
    log_a = log_ndtr(z)
    log_b = (e - m + s * s / 2) + log_ndtr(z - s)
    # Both terms underflow together far in the tail, where the answer is below every float.
    gap = np.where(np.isneginf(log_a), -np.inf, log_b - np.where(np.isneginf(log_a), 0.0, log_a))
    out[spread] = np.exp(log_a) * -np.expm1(np.minimum(gap, 0.0))
    return out


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    """Exact delta of a mu-Gaussian-DP mechanism at any real epsilon; mu = 0 is perfect privacy.

    >>> float(gaussian_delta(1.0, 1 / 5.61163)) * 45000**2
    1.0000...
    """
    shift = np.asarray(mu, dtype=np.float64)
    return hockey_stick(epsilon, shift * shift / 2, shift)


def _scalar_delta(epsilon: float, mu: float) -> float:
    """``gaussian_delta`` of plain floats, without the cost of arrays."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    z = mu / 2 - epsilon / mu
    log_a = float(log_ndtr(z))
    gap = epsilon + float(log_ndtr(z - mu)) - log_a
    return math.exp(log_a) * -math.expm1(min(gap, 0.0)) if math.isfinite(gap) else 0.0


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu whose Gaussian profile meets (epsilon, delta), rounded to the private side.

    >>> round(1 / gaussian_mu(1.0, 1 / 45000**2), 5)
    5.61163
    """
    if delta <= 0:
        return 0.0
    if delta >= 1:
        return math.inf
    target = math.log(delta)

    def excess(log_mu: float) -> float:
        value = _scalar_delta(epsilon, math.exp(log_mu))
        return math.log(value) - target if value > 0 else -1e3

    low, high = math.log(1e-12), math.log(max(1e4, 4 * math.sqrt(epsilon)))
    if excess(low) > 0:
        return 0.0
    root = math.exp(float(brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16)))
    while float(gaussian_delta(epsilon, root)) > delta:
        root *= 1 - 1e-12
    return root


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 at which a mu-Gaussian-DP mechanism meets delta, rounded to the private side."""
    if mu == 0 or _scalar_delta(0.0, mu) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    high = 1.0
    while _scalar_delta(high, mu) > delta:
        high *= 2
    root = float(brentq(lambda e: _scalar_delta(e, mu) - delta, 0.0, high, xtol=1e-15, rtol=8.9e-16))
    while float(gaussian_delta(root, mu)) > delta:
        root = root * (1 + 1e-12) + 1e-15
    return root
