"""Renyi divergences of single events, zero-concentrated DP, and their conversion to (epsilon, delta).

Every divergence is an upper bound over neighbors and directions at one order a > 1,
``log E_P (P / Q)^{a - 1} / (a - 1)``. Proofs: ``docs/proofs/composition.md``, sections 3 and 4.

Divergences of pure mechanisms avoid cancellation. A divergence of order a is log E_a / (a - 1), where E_a - 1 may be
far below the rounding of 1. So E_a - 1 is computed directly, as a sum of positive terms. Every loss L satisfies
E e^{-L} = 1, hence

    E_a - 1 = E [f((a - 1) L) + (a - 1) f(-L)],   f(x) = e^x - 1 - x >= 0.

If E_a is large its logarithm is taken directly. Proofs: ``docs/proofs/composition.md``, sections 3 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from discreet._typing import Array
from discreet.privacy.accounting.curves import Curve, Majorant, curve
from discreet.privacy.accounting.losses import LossDistribution, connect_the_dots
from discreet.privacy.events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    Pure,
    Subsampled,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import UP, Neighboring

Real = TypeVar("Real", float, Array)

_SMALL = 0.5  # below this, f is summed as a series
# x^2 (1/2! + x/3! + x^2/4! + ...): at 0.5 the omitted terms are below 2^-55 of the sum.
_SERIES = [1 / math.factorial(k) for k in range(2, 15)]


def excess(x: float) -> float:
    """Return e^x - 1 - x to full precision.

    >>> excess(1e-9) * 2e18
    1.000000000...
    """
    return _series(x) if abs(x) < _SMALL else math.expm1(x) - x


def excess_of_all(x: Array) -> Array:
    """Apply ``excess`` elementwise."""
    small = np.abs(x) < _SMALL
    return np.where(small, _series(np.where(small, x, 0.0)), np.expm1(x) - x)


def _series(x: Real) -> Real:
    total = 0.0 * x
    for coefficient in reversed(_SERIES):
        total = total * x + coefficient
    return total * x * x


def pure_divergence(epsilon: float, order: float) -> float:
    """Return the divergence of randomized response, the worst of all epsilon-DP pairs."""
    return _two_point_divergence(epsilon, -epsilon, order - 1)


def bounded_range_divergence(epsilon: float, order: float) -> float:
    """Return the worst divergence over the pairs with losses t and t - epsilon; the worst t has a closed form."""
    if order * epsilon > 1e9:
        return epsilon  # the largest loss; the divergence is within 3e-8 of it
    high = _worst_high_loss(epsilon, order)
    return _two_point_divergence(high, high - epsilon, order - 1)


def _worst_high_loss(epsilon: float, a: float) -> float:
    """Return the log of (a - 1) (1 - w^a) / (a w (1 - w^{a-1})), w = e^{-epsilon}.

    It is epsilon / 2 + S(a epsilon / 2) - S((a - 1) epsilon / 2) with S(x) = log(sinh(x) / x). For small epsilon the
    difference is a derivative. As t is a maximum, errors of t count by their squares.
    """
    if epsilon >= 0.01:
        return epsilon + math.log((a - 1) / a * math.expm1(-a * epsilon) / math.expm1(-(a - 1) * epsilon))
    middle = (2 * a - 1) * epsilon / 4
    slope = 1 / math.tanh(middle) - 1 / middle if middle > 0.01 else middle / 3 - middle**3 / 45
    return epsilon / 2 * (1 + slope)


def _two_point_divergence(high: float, low: float, b: float) -> float:
    """Return the divergence of order b + 1 for losses high > 0 > low."""
    up, down = -math.expm1(low), -math.expm1(-high) * math.exp(low)
    p, q = up / (up + down), down / (up + down)
    width = high - low
    if width >= 1 or b * width >= 1:
        return high + math.log1p(q * math.expm1(-b * width)) / b
    above = p * (excess(b * high) + b * excess(-high))
    below = q * (excess(b * low) + b * excess(-low))
    return math.log1p(above + below) / b


def laplace_divergence(width: float, order: float) -> float:
    """Return the divergence of Laplace noise whose scale is 1 / ``width`` of its sensitivity."""
    a, b = order, order - 1
    if b * width >= 1:
        lower = b / a * math.exp(-(a + b) * width)
        return width + (math.log1p(lower) - math.log1p(b / a)) / b
    return math.log1p((a * excess(b * width) + b * excess(-a * width)) / (a + b)) / b


_UP_OF_PROFILE = 1 + 1e-9  # covers the roundings of a sum over a grid of at most 100,000 points
_MOST_POINTS = 100_000  # of one integral
_LEAST = 1e-290  # lower limit of every price above 0, because closed forms may underflow below it


@lru_cache(maxsize=65536)
def renyi_divergence(leaf: Event, order: float, neighboring: Neighboring) -> float:
    """Return the divergence of one leaf at ``order``; infinite if none is proved.

    >>> renyi_divergence(Gaussian(2.0), 8.0, Neighboring.REPLACE_ONE)  # order mu^2 / 2
    1.000000000001
    """
    if isinstance(leaf, Gaussian) and math.isinf(leaf.noise_multiplier):
        return 0.0
    return max(_closed_form(leaf, order, neighboring), _LEAST)  # in this order, a NaN stays NaN


def _closed_form(leaf: Event, a: float, neighboring: Neighboring) -> float:
    if isinstance(leaf, Gaussian):
        return UP * a / 2 / leaf.noise_multiplier / leaf.noise_multiplier
    if isinstance(leaf, ZeroConcentrated):
        return UP * a * leaf.rho
    if isinstance(leaf, Pure):
        return UP * pure_divergence(leaf.epsilon, a)
    if isinstance(leaf, Laplace):
        return UP * laplace_divergence(1.0 / leaf.noise_multiplier, a)
    if isinstance(leaf, BoundedRange):
        return UP * bounded_range_divergence(leaf.epsilon, a)
    if isinstance(leaf, ObjectivePerturbation | Subsampled):
        profile = curve(leaf, neighboring)
        return math.inf if profile is None else _UP_OF_PROFILE * _profile_divergence(profile, a)
    return math.inf


def _profile_divergence(profile: Curve, a: float) -> float:
    """Return the divergence of a profile: chords on a grid, and a closed bound beyond it.

    E_a = 1 + a (a - 1) int_0^inf (e^{(a - 1) e} forward(e) + e^{-a e} backward(e)) de.
    """
    majorant = profile.majorant
    if majorant is None:
        return math.inf
    coarse = float(np.logaddexp(0.0, math.log(2) + _log_majorant_moment(majorant, a))) / (a - 1)
    grid = np.linspace(0.0, majorant.shift + (a - 0.5) * majorant.mu**2 + 9 * majorant.mu, 257)
    # The majorant must take over before the profile underflows.
    far = min(300.0, float(np.max(grid, where=profile.forward(grid) > 1e-290, initial=0.0)))
    if far == 0:
        return coarse
    # The total variation delta(0) is about 0.4 standard deviations of the loss.
    scale = min(majorant.mu, 2.5 * profile.delta(0.0))
    both = connect_the_dots(profile, max(scale / 32, far / _MOST_POINTS), farthest=far)
    return min(coarse, max(_log_moment(part, a, majorant) for part in both) / (a - 1))


def _log_moment(part: LossDistribution, a: float, majorant: Majorant) -> float:
    """Return log E_a, split at the last grid point ``end``.

    Up to ``end`` the integral is at most the moment of the finite masses plus a e^{(a - 1) end} times the mass at
    infinity; beyond, at most twice the moment of the majorant.
    """
    end = float(part.losses[-1])
    beyond = math.log(2) + _log_majorant_moment(majorant.beyond(end), a, beyond=end)
    if part.infinite > 0:
        beyond = float(np.logaddexp(beyond, math.log(a * part.infinite) + (a - 1) * end))
    log_moment, _ = part.tilted(a - 1)
    if log_moment > 0.1:
        return float(np.logaddexp(log_moment, beyond))
    # A moment near 1 has lost its digits; its excess over 1 has not (the integral (2) of the proof).
    some = part.probabilities > 0
    losses = part.losses[some]
    terms = excess_of_all((a - 1) * losses) + (a - 1) * excess_of_all(-losses)
    return math.log1p(float(part.probabilities[some] @ terms) + math.exp(min(beyond, 700.0)))


def _log_majorant_moment(majorant: Majorant, a: float, beyond: float = -math.inf) -> float:
    """Return the log of count E[e^{(a - 1) L}; L > beyond] for L ~ N(shift + mu^2 / 2, mu^2)."""
    mean = majorant.shift + (a - 0.5) * majorant.mu**2
    whole = math.log(majorant.count) + (a - 1) * majorant.shift + a * (a - 1) * majorant.mu**2 / 2
    return whole + float(log_ndtr((mean - beyond) / majorant.mu))


def concentration(leaf: Event) -> float:
    """Return the rho for which a leaf is rho-zCDP; infinite if none is proved.

    Pure: epsilon tanh(epsilon / 2) <= epsilon^2 / 2. Laplace: epsilon - 1 + e^{-epsilon}. Both are the
    divergences of order 1, and order-a divergences grow no faster than a. Bounded range: epsilon^2 / 8
    (Cesar and Rogers, 2021).
    """
    if isinstance(leaf, Gaussian):
        rho = UP / 2 / leaf.noise_multiplier / leaf.noise_multiplier
        return 0.0 if math.isinf(leaf.noise_multiplier) else max(rho, _LEAST)
    if isinstance(leaf, ZeroConcentrated):
        return leaf.rho
    if isinstance(leaf, Pure):
        return max(UP * leaf.epsilon * math.tanh(leaf.epsilon / 2), _LEAST)
    if isinstance(leaf, BoundedRange):
        return max(UP * leaf.epsilon * min(leaf.epsilon / 8, math.tanh(leaf.epsilon / 2)), _LEAST)
    if isinstance(leaf, Laplace):
        return max(UP * excess(-1.0 / leaf.noise_multiplier), _LEAST)
    return math.inf


def renyi_delta(divergence: float, order: float, epsilon: float) -> float:
    """Return delta at ``epsilon`` from a divergence at one order (Canonne, Kamath and Steinke, 2020)."""
    if not math.isfinite(divergence):
        return 1.0
    b = order - 1
    log_delta = b * (divergence - epsilon) + _log_constant(order)
    log_delta += 1e-15 * b * (divergence + epsilon)  # covers the rounding of the first product
    return min(1.0, math.exp(log_delta) * UP) if log_delta < 0 else 1.0


def _log_constant(a: float) -> float:
    """Return the log of (1 - 1/a)^a / (a - 1)."""
    return -a * math.log1p(1 / (a - 1)) - math.log(a - 1)


def renyi_epsilon(divergence: float, order: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 that meets ``delta``, the inverse of ``renyi_delta``."""
    if delta <= 0:
        return math.inf
    b = order - 1
    lost, surprise = math.log1p(1 / b), (math.log(delta) + math.log(order)) / b
    rounding = 1e-12 * (divergence + lost) + 1e-15 * (math.log(order) - math.log(delta)) / b
    found = max(divergence - lost - surprise + rounding, 0.0)
    return found if found >= 0 else math.inf  # NaN has no price


def concentrated_delta(rho: float, epsilon: float) -> float:
    """Return delta of rho-zCDP at ``epsilon``, over all real orders.

    >>> round(concentrated_delta(0.0143978, 1.0) * 45000**2, 3)
    1.0
    """
    return 0.0 if rho == 0 else best_renyi_delta(lambda a: a * rho, rho, epsilon)


def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon of rho-zCDP at ``delta``, over all real orders.

    >>> round(concentrated_epsilon(0.0143978, 1 / 45000**2), 5)
    1.0
    """
    if rho == 0:
        return 0.0
    if delta <= 0:
        return math.inf
    return best_renyi_epsilon(lambda a: a * rho, rho, delta)


def best_renyi_epsilon(divergence: Callable[[float], float], rho: float, delta: float) -> float:
    """Return epsilon at the best real order of a divergence that is at most ``order * rho``."""
    start = math.sqrt(max(1e-9, -math.log(delta)) / rho)
    best = _best_order(lambda a: renyi_epsilon(divergence(a), a, delta), start=start)
    return renyi_epsilon(divergence(best), best, delta)


def best_renyi_delta(divergence: Callable[[float], float], rho: float, epsilon: float) -> float:
    """Return delta at the best real order of a divergence that is at most ``order * rho``."""

    def log_delta(a: float) -> float:
        return (a - 1) * (divergence(a) - epsilon) + _log_constant(a)

    best = _best_order(log_delta, start=max(0.0, epsilon / (2 * rho) - 0.5))
    return renyi_delta(divergence(best), best, epsilon)


def _best_order(objective: Callable[[float], float], start: float) -> float:
    """Minimize over orders 1 + e^s near ``start``. Every order is valid, so the search needs no proof."""
    center = math.log(max(start, 1e-6))
    grid = center + np.linspace(-6.0, 10.0, 49)
    nearest = int(np.argmin([objective(1 + math.exp(s)) for s in grid]))
    found = minimize_scalar(
        lambda s: objective(1 + math.exp(s)),
        bounds=(grid[max(nearest - 1, 0)], grid[min(nearest + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return 1 + math.exp(float(found.x))
