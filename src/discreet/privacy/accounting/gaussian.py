"""The exact privacy profile of Gaussian noise, rounded to the private side, and the price of drawing it on a grid.

``gaussian_delta(eps, mu)`` is the hockey-stick divergence between N(0, 1) and N(mu, 1) (Balle and Wang, 2018,
Theorem 8): the smallest delta for which a mu-Gaussian-DP mechanism is (eps, delta)-DP.

Up to K standard deviations, a discrete Gaussian of at least 2^30 steps has the probabilities of a rounded continuous
Gaussian within a factor exp(+-(K^2 + 1) 2^-63); the mass beyond is at most 3 exp(-K^2 / 2). K is chosen large enough
that e^epsilon times that mass is negligible. Proof: ``docs/proofs/discrete-noise.md``, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import erfcx

from discreet._typing import Array

_NARROW = 0.25  # smaller spreads are integrated, larger ones subtracted
_FAR = 40.0  # standard deviations at which the density of a normal underflows
_SURE = 37.0  # standard deviations that contain all but 1e-299 of a normal
_MILLS = math.sqrt(math.pi / 2)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_points, _weights = np.polynomial.legendre.leggauss(5)
_NODES, _SHARES = (1 + _points) / 2, _weights / 2  # of [0, 1]
_RULE = tuple(zip(_NODES.tolist(), _SHARES.tolist(), strict=True))
# Allowance for rounding, with room to spare: docs/proofs/composition.md, section 8.
_ALLOWANCE, _ALLOWANCE_OF_SPREAD = 4e-12, 1e-14


def hockey_stick(threshold: ArrayLike, mean: ArrayLike, stddev: ArrayLike) -> Array:
    """Return E (1 - exp(threshold - X))_+ for X ~ N(mean, stddev^2), elementwise and rounded up; stddev may be zero.

    Every profile here uses it: X is a privacy loss, threshold is epsilon.
    """
    e, m, s = np.broadcast_arrays(*(np.asarray(part, dtype=np.float64) for part in (threshold, mean, stddev)))
    out: Array = np.array(-(1 + _ALLOWANCE) * np.expm1(np.minimum(e - m, 0.0)))  # the limit of no spread
    spread = s > 0
    e, m, s = e[spread], m[spread], s[spread]
    z = (m - e) / s
    # Above its middle the profile is 1 - exp(shift) plus its mirror image: a sum avoids cancellation.
    shift = np.minimum(e - m + s * s / 2, 0.0)
    above = z > s / 2
    below = _below_the_middle(np.where(above, s - z, z), s)
    out[spread] = np.where(above, -np.expm1(shift) + np.exp(shift) * below, below)
    out[spread] *= 1 + _ALLOWANCE + _ALLOWANCE_OF_SPREAD * s
    return np.minimum(out, 1.0, out=out)


def _below_the_middle(z: Array, s: Array) -> Array:
    """Return density(z) (R(z) - R(z - s)) for z <= s / 2, with R the Mills ratio ndtr / density.

    For a small spread the difference cancels; then it is the integral of R' = 1 + x R, whose terms are all positive.
    """
    z = np.clip(z, -_FAR, _SURE)
    gap = np.empty_like(z)
    narrow = s < _NARROW
    x = z[narrow] - s[narrow] * _NODES[:, None]
    gap[narrow] = s[narrow] * np.sum(_SHARES[:, None] * (1 + x * _mills(x)), axis=0)
    wide = ~narrow
    gap[wide] = _mills(z[wide]) - _mills(z[wide] - s[wide])
    return np.asarray(_DENSITY * np.exp(-z * z / 2) * gap)


def _mills(x: Array) -> Array:
    return np.asarray(_MILLS * erfcx(-_ROOT_HALF * x))


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    """Return the exact delta of a mu-Gaussian-DP mechanism at any real epsilon, rounded up; mu = 0 is perfect privacy.

    >>> float(gaussian_delta(1.0, 1 / 5.61163)) * 45000**2
    1.0000...
    """
    if {type(epsilon), type(mu)} == {float} and epsilon >= 0 and mu > 0:  # type: ignore[operator]
        return np.asarray(_scalar_delta(epsilon, mu))  # type: ignore[arg-type]
    shift = np.asarray(mu, dtype=np.float64)
    return hockey_stick(epsilon, shift * shift / 2, shift)


def _scalar_delta(epsilon: float, mu: float) -> float:
    """Compute ``gaussian_delta`` of plain floats, epsilon >= 0 and mu > 0, without the cost of arrays."""
    z = mu / 2 - epsilon / mu
    if z < -_FAR:
        return 0.0
    if z > _SURE:
        return 1.0
    if mu < _NARROW:
        gap = 0.0
        for node, share in _RULE:
            x = z - mu * node
            gap += share * (1 + x * _MILLS * erfcx(-_ROOT_HALF * x))
        gap *= mu
    else:
        gap = _MILLS * (erfcx(-_ROOT_HALF * z) - erfcx(-_ROOT_HALF * (z - mu)))
    up = 1 + _ALLOWANCE + _ALLOWANCE_OF_SPREAD * mu
    return min(1.0, float(_DENSITY * math.exp(-z * z / 2) * gap * up))


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian profile meets (epsilon, delta), rounded to the private side.

    >>> round(1 / gaussian_mu(1.0, 1 / 45000**2), 5)
    5.61163
    """
    if delta <= 0:
        return 0.0
    if delta >= 1:
        return math.inf
    # Delta is at most e^(-z^2 / 2) for z <= 0 and at most mu, so Newton's method on logarithms starts below the root.
    z = -math.sqrt(-2 * math.log(delta))
    root = max(delta / 2, 2 * epsilon / (math.sqrt(z * z + 2 * epsilon) - z))
    for _ in range(100):
        value = _scalar_delta(epsilon, root)
        if value == 0:
            break
        slope = root * _DENSITY * math.exp(-((root / 2 - epsilon / root) ** 2) / 2) / value
        move = math.log(delta / value) / slope
        root *= math.exp(min(move, 1.0))
        if abs(move) < 1e-14:
            break
    step = 1e-15
    while float(gaussian_delta(epsilon, root)) > delta:
        root, step = root * (1 - step), 2 * step
    return root


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which a mu-Gaussian-DP mechanism meets delta, rounded to the private side."""
    if mu == 0 or float(gaussian_delta(0.0, mu)) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    if mu > 1e100:
        return math.inf
    low, high = 0.0, 1.0
    while _scalar_delta(high, mu) > delta:
        low, high = high, 2 * high
    root = float(brentq(lambda e: _scalar_delta(e, mu) - delta, low, high, xtol=1e-15, rtol=8.9e-16))
    step = 1e-15
    while float(gaussian_delta(root, mu)) > delta:
        root, step = root * (1 + step) + step, 2 * step
    return root


_INVERSE = 2.0**-63  # 1 / (8 sigma^2) for sigma = 2^30 steps
_REACH = 90.0  # nats by which the neglected mass stays below e^-epsilon
TAIL = 1e-37  # at least 3 (e^a + e^-epsilon) e^-90 for every a below the limit
_LIMIT = 0.1  # above this the bound is useless


def growth(variates: int, epsilon: float) -> float:
    """Return the log of the largest ratio between ``variates`` discrete and rounded Gaussians, near epsilon."""
    reach_squared = 2 * (epsilon + _REACH + math.log(max(variates, 1)))
    return variates * (reach_squared + 1) * _INVERSE


def delta_on_grid(ideal: Callable[[float], float], variates: int, epsilon: float) -> float:
    """Return delta at ``epsilon`` of a mechanism on the grid, from the profile of its continuous ideal.

    >>> delta_on_grid(lambda epsilon: math.exp(-epsilon), 1000, 2.0) / math.exp(-2.0) - 1 < 1e-12
    True
    """
    if variates == 0:
        return ideal(epsilon)
    ratio = growth(variates, epsilon)
    if ratio > _LIMIT:
        return 1.0
    if epsilon >= 2 * ratio:
        return min(1.0, math.exp(ratio) * ideal(epsilon - 2 * ratio) + TAIL)
    # Too close to zero to shift: the total variation is at most e^ratio - 1, and counts twice at epsilon = 0.
    return min(1.0, ideal(0.0) + 2 * math.expm1(ratio) + TAIL)


def ideal_target(delta: float, variates: int, epsilon: float) -> tuple[float, float]:
    """Return (shift, delta'): meeting delta' at epsilon - shift on the reals meets delta at epsilon on the grid."""
    if variates == 0:
        return 0.0, delta
    ratio = growth(variates, epsilon)
    return (2 * ratio, (delta - TAIL) * math.exp(-ratio)) if ratio <= _LIMIT else (math.inf, 0.0)
