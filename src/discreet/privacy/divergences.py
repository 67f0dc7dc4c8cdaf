"""Renyi divergences of pure mechanisms, without cancellation.

A divergence of order a is log E_a / (a - 1), where E_a - 1 may be far below the rounding of 1. So E_a - 1 is what is
computed, as a sum of positive terms. Every loss L satisfies E e^{-L} = 1, whence

    E_a - 1 = E [f((a - 1) L) + (a - 1) f(-L)],   f(x) = e^x - 1 - x >= 0.

Where E_a is large its logarithm is taken directly. Proofs: ``docs/proofs/composition.md``, sections 3 and 8.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from discreet.privacy.gaussian import Array

Real = TypeVar("Real", float, Array)

_SMALL = 0.5  # below, f is summed as a series
# x^2 (1/2! + x/3! + x^2/4! + ...): at 0.5 what is left out is below 2^-55 of the whole.
_SERIES = [1 / math.factorial(k) for k in range(2, 15)]


def excess(x: float) -> float:
    """e^x - 1 - x, with all its digits.

    >>> excess(1e-9) * 2e18
    1.000000000...
    """
    return _series(x) if abs(x) < _SMALL else math.expm1(x) - x


def excess_of_all(x: Array) -> Array:
    """``excess`` of every element."""
    small = np.abs(x) < _SMALL
    return np.where(small, _series(np.where(small, x, 0.0)), np.expm1(x) - x)


def _series(x: Real) -> Real:
    total = 0.0 * x
    for coefficient in reversed(_SERIES):
        total = total * x + coefficient
    return total * x * x


def pure_divergence(epsilon: float, order: float) -> float:
    """Of randomized response, the worst of all epsilon-DP pairs."""
    return _two_point_divergence(epsilon, -epsilon, order - 1)


def bounded_range_divergence(epsilon: float, order: float) -> float:
    """Worst over the pairs with losses t and t - epsilon; the best t has a closed form."""
    if order * epsilon > 1e9:
        return epsilon  # no loss is larger, and the divergence is within 3e-8 of it
    high = _worst_high_loss(epsilon, order)
    return _two_point_divergence(high, high - epsilon, order - 1)


def _worst_high_loss(epsilon: float, a: float) -> float:
    """log of (a - 1) (1 - w^a) / (a w (1 - w^{a-1})), w = e^{-epsilon}.

    It is epsilon / 2 + S(a epsilon / 2) - S((a - 1) epsilon / 2) with S(x) = log(sinh(x) / x), whose difference is, for
    small epsilon, a derivative. As t is a maximum, errors of t count by their squares.
    """
    if epsilon >= 0.01:
        return epsilon + math.log((a - 1) / a * math.expm1(-a * epsilon) / math.expm1(-(a - 1) * epsilon))
    middle = (2 * a - 1) * epsilon / 4
    slope = 1 / math.tanh(middle) - 1 / middle if middle > 0.01 else middle / 3 - middle**3 / 45
    return epsilon / 2 * (1 + slope)


def _two_point_divergence(high: float, low: float, b: float) -> float:
    """Of order b + 1, for losses high > 0 > low."""
    up, down = -math.expm1(low), -math.expm1(-high) * math.exp(low)
    p, q = up / (up + down), down / (up + down)
    width = high - low
    if width >= 1 or b * width >= 1:
        return high + math.log1p(q * math.expm1(-b * width)) / b
    above = p * (excess(b * high) + b * excess(-high))
    below = q * (excess(b * low) + b * excess(-low))
    return math.log1p(above + below) / b


def laplace_divergence(width: float, order: float) -> float:
    """Of Laplace noise whose scale is 1 / ``width`` of its sensitivity."""
    a, b = order, order - 1
    if b * width >= 1:
        lower = b / a * math.exp(-(a + b) * width)
        return width + (math.log1p(lower) - math.log1p(b / a)) / b
    return math.log1p((a * excess(b * width) + b * excess(-a * width)) / (a + b)) / b
