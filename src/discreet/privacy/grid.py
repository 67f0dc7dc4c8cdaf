"""The price of drawing Gaussian noise on a grid instead of the reals.

A discrete Gaussian of at least 2^30 steps has, up to K standard deviations, the probabilities of a rounded continuous
Gaussian within a factor exp(+-(K^2 + 1) 2^-63); beyond lies a mass of at most 3 exp(-K^2 / 2). K is chosen so large
that e^epsilon times that mass is nothing. Proof: ``docs/proofs/discrete-noise.md``, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_INVERSE = 2.0**-63  # 1 / (8 sigma^2) for sigma = 2^30 steps
_REACH = 90.0  # how far, in nats, the neglected mass stays below e^-epsilon
TAIL = 1e-37  # at least 3 (e^a + e^-epsilon) e^-90 for every a below the limit
_LIMIT = 0.1  # beyond, the bound is not worth stating


def growth(variates: int, epsilon: float) -> float:
    """log of the largest ratio between the laws of ``variates`` discrete and rounded Gaussians, near epsilon."""
    reach_squared = 2 * (epsilon + _REACH + math.log(max(variates, 1)))
    return variates * (reach_squared + 1) * _INVERSE


def delta_on_grid(ideal: Callable[[float], float], variates: int, epsilon: float) -> float:
    """Delta at ``epsilon`` of a mechanism on the grid, from the profile of its continuous ideal.

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
    """(shift, delta'): meeting delta' at epsilon - shift in continuous noise meets delta at epsilon on the grid."""
    if variates == 0:
        return 0.0, delta
    ratio = growth(variates, epsilon)
    return (2 * ratio, (delta - TAIL) * math.exp(-ratio)) if ratio <= _LIMIT else (math.inf, 0.0)
