"""Privacy loss distributions on a grid, and their composition with certified rounding.

Connecting the dots turns a dominating curve into a discrete distribution of the privacy loss (Doroshenko, Ghazi,
Kamath, Kumar and Manurangsi, 2022): between grid points the profile, convex in e^e, is replaced by its chord, which is
larger. Composition is convolution. It is done by fast Fourier transform *after exponential tilting*, which moves the
mass to the losses that determine delta at the requested epsilon. Rounding errors are then relative to (nearly) delta
itself instead of 1, so their proven bound can be added. ``docs/proofs/composition.md``, sections 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq

from discreet._typing import Array
from discreet.privacy.accounting.curves import Curve, Profile

_TAIL = 1e-30  # mass per distribution that is moved to an infinite loss
# Points of one distribution, depending on whether its curve is exact: bounds are slow to evaluate.
_MOST_POINTS = {True: 2**18, False: 2**14}
_FARTHEST = 600.0  # largest loss of a bound that needs its convex envelope, to avoid overflow of e^loss
_LARGEST_TRANSFORM = 2**22
_TOLERANCE = 1e-5  # fraction that a grid may add to the variance of the total loss
_UNIT = 2.0**-53


@dataclass(frozen=True)
class LossDistribution:
    """Distribution of the privacy loss under P on the grid ``interval * (lowest, lowest + 1, ...)``, plus infinity."""

    interval: float
    lowest: int
    probabilities: Array
    infinite: float

    @cached_property
    def losses(self) -> Array:
        """The finite losses."""
        return np.asarray(
            self.interval * (self.lowest + np.arange(len(self.probabilities))), dtype=np.float64
        )

    @cached_property
    def log_probabilities(self) -> Array:
        """Logarithms of the probabilities; -inf where there is no mass."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.probabilities))

    def tilted(self, theta: float) -> tuple[float, Array]:
        """Return (log E e^{theta L}, the distribution reweighted by e^{theta L}), over the finite losses."""
        exponents = self.log_probabilities + theta * self.losses
        peak = float(np.max(exponents))
        weights = np.exp(exponents - peak)
        total = float(np.sum(weights))
        return peak + math.log(total), weights / total


def connect_the_dots(
    curve: Curve, interval: float, farthest: float | None = None
) -> tuple[LossDistribution, LossDistribution]:
    """Return the privacy loss distributions that dominate the two directions of a curve.

    Losses above ``farthest`` (by default: above all but 1e-30 of the mass) count as infinite. The mass at a
    loss -l of one direction is e^{-l} times the mass at l of the other.

    >>> from discreet.privacy.accounting.curves import curve
    >>> from discreet.privacy.events import Pure
    >>> from discreet.privacy.guarantee import Neighboring
    >>> forward, _ = connect_the_dots(curve(Pure(1.0), Neighboring.REPLACE_ONE), 0.5)
    >>> forward.losses, forward.probabilities.round(4) + 0.0
    (array([-1. , -0.5,  0. ,  0.5,  1. ]), array([0.2689, 0.    , 0.    , 0.    , 0.7311]))
    """
    above, beyond = _positive_masses(curve.forward, interval, curve.exact, farthest)
    if curve.symmetric:
        both = _assemble(above, above, beyond, interval)
        return both, both
    other, other_beyond = _positive_masses(curve.backward, interval, curve.exact, farthest)
    return _assemble(above, other, beyond, interval), _assemble(other, above, other_beyond, interval)


def _assemble(above: Array, other: Array, infinite: float, interval: float) -> LossDistribution:
    """Assemble one direction from its masses at positive losses and those of the opposite direction."""
    n_below = len(other)
    below = other * np.exp(-interval * np.arange(1, n_below + 1))
    at_zero = 1.0 - infinite - math.fsum(above) - math.fsum(below)
    if not at_zero >= -1e-9 - 1e-14 / interval:
        raise AssertionError("a privacy profile is not convex at 0; this is a bug, please report the event")
    masses = np.concatenate([below[::-1], [max(at_zero, 0.0)], above])
    return LossDistribution(interval, -n_below, masses, infinite)


def _positive_masses(
    profile: Profile, interval: float, exact: bool, farthest: float | None
) -> tuple[Array, float]:
    """Return the masses at ``interval * (1, 2, ...)`` and at infinity."""
    end = reach(profile, exact) if farthest is None else farthest
    n_points = max(1, math.ceil(end / interval))
    grid: Array = interval * np.arange(n_points + 1, dtype=np.float64)
    deltas = np.minimum.accumulate(np.clip(profile(grid), 0.0, 1.0))
    if not exact:
        deltas = convex_envelope(grid, deltas)
    drops = _convex_drops(-np.diff(deltas), interval)
    masses = drops / -math.expm1(-interval)
    masses[:-1] -= drops[1:] / math.expm1(min(interval, 700.0))
    return np.maximum(masses, 0.0), float(deltas[-1])


def _convex_drops(drops: Array, interval: float) -> Array:
    """Raise the drops of a profile between grid points until the curve is convex.

    This only repairs rounding of a convex curve, before the division by the interval magnifies it: slopes are made
    monotone from the right, which can only raise the curve.
    """
    positions = interval * np.arange(len(drops))
    with np.errstate(divide="ignore"):
        slopes = np.log(drops) - positions
    steepest = np.maximum.accumulate(slopes[::-1])[::-1]
    repaired = np.where(slopes < steepest, np.exp(steepest + positions), drops)
    if not float(np.sum(repaired - drops)) <= 1e-9:
        raise AssertionError("a privacy profile is not convex; this is a bug, please report the event")
    return np.asarray(repaired)


def reach(profile: Profile, exact: bool = True) -> float:
    """Return a loss beyond which a profile exceeds its limit, the mass at infinity, by less than 1e-30."""
    limit = float(profile(np.array([1e9]))[0])
    settled = max(_TAIL, limit * (1 + 1e-12))
    low, high = 0.0, 1e6
    for points in (np.geomspace(1e-8, 1e6, 141), None):
        grid = np.linspace(low, high, 65) if points is None else points
        first = int(np.argmax(np.append(profile(grid), 0.0) <= settled))
        low, high = (float(grid[first - 1]) if first else low), float(grid[min(first, len(grid) - 1)])
    return high if exact else min(high, _FARTHEST)


def convex_envelope(grid: Array, deltas: Array) -> Array:
    """Return the largest curve below ``deltas`` that is convex in e^grid, also after reflection to negative epsilon.

    The true profile is convex, symmetric and below ``deltas``, hence below the result. Being (e, d)-DP in both
    directions bounds delta(0) by d + (1 - d) tanh(e / 2); with that value at 0 the reflected curve has no kink.
    """
    values = deltas.copy()
    values[0] = np.min(deltas + (1 - deltas) * np.tanh(grid / 2))
    x = np.exp(grid)
    hull = [0]
    for i in range(1, len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (values[b] - values[a]) * (x[i] - x[a]) < (values[i] - values[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.asarray(np.interp(x, x[hull], values[hull]))


Parts = Sequence[tuple[LossDistribution, int]]


def composed_delta(parts: Parts, epsilon: float) -> float:
    """Bound delta at ``epsilon`` after running every distribution its number of times, including rounding."""
    infinite = -math.expm1(sum(times * math.log1p(-min(part.infinite, 1 - 1e-16)) for part, times in parts))
    highest = sum(times * float(part.losses[-1]) for part, times in parts)
    if epsilon >= highest:
        return min(1.0, infinite * (1 + 1e-9))
    if _hopeless(parts, epsilon):
        return 1.0
    interval = parts[0][0].interval
    theta = _tilt_towards(parts, epsilon)
    cumulant, laws = _tilted(parts, theta)
    spread = math.sqrt(_variance(parts, laws))
    n_runs = sum(times for _, times in parts)
    support = sum(times * (len(part.probabilities) - 1) for part, times in parts) + 1
    start = sum(times * part.lowest for part, times in parts)
    first = math.floor(epsilon / interval) + 1
    width = 16 * math.ceil(spread / interval) + 64
    while True:
        size = next_fast_len(min(width, support), real=True)
        top = start + support if size >= support else first + size // 2
        beyond = _log_chance_above(parts, top * interval) if size < support else -math.inf
        total = _circular_convolution(laws, parts, size)
        window = np.arange(first, top)
        excess = interval * window - epsilon
        weights = np.exp(-theta * excess) * -np.expm1(-excess)
        inside = float(weights @ total[(window - start) % size])
        # |rounding of the FFTs|_2 <= 16 u log2(size) (n_runs + 1), since all laws have norm at most 1.
        rounding = 16 * _UNIT * math.log2(size + 1) * (n_runs + 1) * float(np.linalg.norm(weights))
        scale = math.exp(min(cumulant - theta * epsilon, 1.0))  # exceeds 1 by rounding only
        finite = scale * (inside + rounding)
        tail = math.exp(min(beyond, 0.0))
        if size >= min(support, _LARGEST_TRANSFORM) or tail <= 1e-6 * (finite + infinite):
            return min(
                1.0, (infinite + finite + tail) * (1 + 1e-9 + 1e-13 * n_runs + 4 * _UNIT * theta * epsilon)
            )
        width *= 2


def _hopeless(parts: Parts, epsilon: float) -> bool:
    """Whether losses below epsilon + 14 are so rare (Chernoff) that delta is 1 up to a few millionths."""
    tilts = -np.geomspace(1e-4, 10.0, 11)
    return any(_tilted(parts, theta)[0] - theta * (epsilon + 14.0) < -14.0 for theta in tilts)


def composed_spread(parts: Parts, epsilon: float) -> float:
    """Return the standard deviation of the total loss after tilting towards ``epsilon``, which a grid must resolve."""
    tilts = (0.0, _tilt_towards(parts, epsilon))
    return math.sqrt(max(_variance(parts, _tilted(parts, theta)[1]) for theta in tilts))


def _tilted(parts: Parts, theta: float) -> tuple[float, list[Array]]:
    cumulant, laws = 0.0, []
    for part, times in parts:
        log_moment, law = part.tilted(theta)
        cumulant += times * log_moment
        laws.append(law)
    return cumulant, laws


def _mean(parts: Parts, laws: Sequence[Array]) -> float:
    return sum(times * float(law @ part.losses) for (part, times), law in zip(parts, laws, strict=True))


def _variance(parts: Parts, laws: Sequence[Array]) -> float:
    total = 0.0
    for (part, times), law in zip(parts, laws, strict=True):
        mean = float(law @ part.losses)
        total += times * float(law @ np.square(part.losses - mean))
    return total


def _tilt_towards(parts: Parts, loss: float) -> float:
    """Return the tilt theta >= 0 at which the mean total loss is ``loss`` (0 if it is already larger)."""

    def gap(theta: float) -> float:
        return _mean(parts, _tilted(parts, theta)[1]) - loss

    if gap(0.0) >= 0:
        return 0.0
    low, high, ceiling = 0.0, 1.0, 30.0 / parts[0][0].interval
    while gap(high) < 0:
        low, high = high, 2 * high
        if high > ceiling:  # the loss is at the very top of the support
            return ceiling
    return float(brentq(gap, low, high, xtol=1e-3, rtol=1e-3))


def _log_chance_above(parts: Parts, loss: float) -> float:
    """Return Chernoff's bound on the log probability of a finite total loss of at least ``loss``."""
    theta = _tilt_towards(parts, loss)
    return _tilted(parts, theta)[0] - theta * loss


def _circular_convolution(laws: Sequence[Array], parts: Parts, size: int) -> Array:
    """Multiply the powers of the distributions modulo ``size``; wrapped mass only adds to entries."""
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for (_, times), law in zip(parts, laws, strict=True):
        folded = np.zeros(size)
        for offset in range(0, len(law), size):
            piece = law[offset : offset + size]
            folded[: len(piece)] += piece
        spectrum *= rfft(folded) ** times
    return np.maximum(irfft(spectrum, size), 0.0)


def choose_interval(curves: Sequence[tuple[Curve, int]], epsilon: float) -> float:
    """Return a grid on which connecting the dots adds at most ``_TOLERANCE`` of the variance of the total loss.

    A loss between two grid points is split between them, which adds at most interval^2 / 6 on average to its
    variance. The interval is a power of the square root of two, so that distributions can be reused.
    """
    ends = [max(reach(c.forward, c.exact), reach(c.backward, c.exact)) for c, _ in curves]
    finest = max(ends) / _MOST_POINTS[all(c.exact for c, _ in curves)]
    n_runs = sum(times for _, times in curves)
    interval = max(ends) / 128
    for _ in range(40):
        pairs = [connect_the_dots(c, interval, end) for (c, _), end in zip(curves, ends, strict=True)]
        spread = 0.0
        for way in (0, 1):
            parts = [(pair[way], times) for pair, (_, times) in zip(pairs, curves, strict=True)]
            spread = max(spread, composed_spread(parts, epsilon))
        wanted = math.sqrt(6 * _TOLERANCE / n_runs) * spread
        if interval <= 1.5 * wanted or interval <= finest:
            break
        interval = max(wanted, interval / 4, finest)
    return float(2.0 ** (math.floor(2 * math.log2(interval)) / 2))
