"""The privacy profile of one event: a dominating hockey-stick curve in both directions.

For neighbors D and D' write P and Q for the distributions of the output, and

    forward(e) = sup over events A of P(A) - e^e Q(A),      backward(e) = the same with P and Q exchanged,

for e >= 0. The two curves bound the mechanism's privacy loss distribution from above, which is all that adaptive
composition needs (Dong, Roth and Su, 2022; Zhu, Dong and Wang, 2022). Proofs: ``docs/proofs/composition.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from discreet._typing import Array
from discreet.privacy.accounting import objective
from discreet.privacy.accounting.gaussian import gaussian_delta
from discreet.privacy.events import (
    Approximate,
    BoundedRange,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    ObjectivePerturbation,
    Pure,
    Subsampled,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import Neighboring

Profile = Callable[[Array], Array]

_LEAST_MU = 1e-7  # weaker Gaussian shifts are rounded up to this, which limits how fine grids must be
_UP = 1 + 2.0**-50  # covers the four or five roundings of a closed form


@dataclass(frozen=True)
class Majorant:
    """A bound on tails: delta(e) <= count H(e - shift, mu) for every e >= 0, where H is the Gaussian profile.

    rate : sampling rate; in the tail a sampled mechanism is better, as if shifted by the log of the rate.
    """

    count: float
    shift: float
    mu: float
    rate: float = 1.0

    def beyond(self, e: float) -> Majorant:
        """Return a majorant for x >= e only, where log(1 + (e^x - 1) / rate) is at least x minus the gain."""
        if self.rate == 1:
            return self
        gain = math.log(self.rate) - math.log1p(-(1 - self.rate) * math.exp(-e))
        return Majorant(self.count, self.shift + gain, self.mu)


@dataclass(frozen=True)
class Curve:
    """Profiles of one event for e >= 0.

    symmetric : both directions share one profile.
    exact : the profile belongs to a pair of distributions, so it is convex in e^e; otherwise it is only a bound.
    """

    forward: Profile
    backward: Profile
    symmetric: bool = True
    exact: bool = True
    majorant: Majorant | None = None

    def delta(self, epsilon: float) -> float:
        """Return delta in the worse direction."""
        point = np.array([epsilon])
        worse = max(float(self.forward(point)[0]), 0.0 if self.symmetric else float(self.backward(point)[0]))
        return min(1.0, worse) + 0.0  # never -0.0


def curve(leaf: Event, neighboring: Neighboring) -> Curve | None:
    """Return the dominating curve of a leaf, or None if none is proved."""
    if isinstance(leaf, Gaussian):
        mu = max(1.0 / leaf.noise_multiplier, _LEAST_MU)
        return _both_ways(lambda e: gaussian_delta(e, mu), majorant=Majorant(1.0, 0.0, mu))
    if isinstance(leaf, Laplace):
        width = 1.0 / leaf.noise_multiplier
        return _both_ways(lambda e: -_UP * np.expm1(np.minimum(e - width, 0.0) / 2))
    if isinstance(leaf, Pure):
        return _both_ways(lambda e: _randomized_response(e, leaf.epsilon))
    if isinstance(leaf, Approximate):
        return _both_ways(lambda e: leaf.delta + (1 - leaf.delta) * _randomized_response(e, leaf.epsilon))
    if isinstance(leaf, BoundedRange):
        return _both_ways(lambda e: _bounded_range(e, leaf.epsilon))
    if isinstance(leaf, ZeroConcentrated):
        return _both_ways(lambda e: concentrated_profile(e, leaf.rho), exact=False)
    if isinstance(leaf, ObjectivePerturbation):
        return _objective(leaf, neighboring)
    if isinstance(leaf, Grouped):
        return _grouped(curve(leaf.event, neighboring), leaf.size)
    if isinstance(leaf, Subsampled) and isinstance(leaf.event, Gaussian):
        # The dominating pair is proved only if the other record is absent (Zhu, Dong and Wang, 2022).
        if neighboring is Neighboring.REPLACE_ONE:
            return None
        return _poisson_gaussian(leaf.rate, 1.0 / leaf.event.noise_multiplier)
    return None


def _grouped(one: Curve | None, size: int) -> Curve | None:
    """Apply group privacy at every epsilon: docs/proofs/groups.md, Theorem 1."""
    if one is None:
        return None

    def profile(e: Array) -> Array:
        step = np.asarray(e, dtype=np.float64) / size
        worse = one.forward(step) if one.symmetric else np.maximum(one.forward(step), one.backward(step))
        terms = np.exp(np.minimum(np.multiply.outer(step, np.arange(size)), 700.0)).sum(axis=-1)
        return np.asarray(np.minimum(1.0, worse * terms))

    return _both_ways(profile, exact=False)


def _both_ways(profile: Profile, *, exact: bool = True, majorant: Majorant | None = None) -> Curve:
    return Curve(profile, profile, exact=exact, majorant=majorant)


def _randomized_response(e: Array, epsilon: float) -> Array:
    """Take the worst epsilon-DP pair, which has two outcomes (Kairouz, Oh and Viswanath, 2015)."""
    return -_UP * np.expm1(np.minimum(e - epsilon, 0.0)) / (1 + math.exp(-epsilon))


def _bounded_range(e: Array, epsilon: float) -> Array:
    """Take the worst two-point pair with losses t and t - epsilon; the maximum is at t = (e + epsilon) / 2."""
    return _UP * np.square(np.expm1(np.minimum(e - epsilon, 0.0) / 2)) / -math.expm1(-epsilon)


def concentrated_profile(e: Array, rho: float) -> Array:
    """Return delta of rho-zCDP as the minimum over a fixed grid of orders, each of which is valid."""
    less_one = np.geomspace(1e-3, 1e6, 2000)
    order = 1 + less_one
    constant = less_one * order * rho - order * np.log1p(1 / less_one) - np.log(less_one)
    bounds = [np.min(constant - less_one * point) for point in np.ravel(e)]
    # Unless the bound underflows, its terms are at most a few thousand and round by less than 1e-11.
    return np.minimum(np.exp(np.minimum(np.reshape(bounds, np.shape(e)), 0.0)) * (1 + 1e-11), 1.0)


def _poisson_gaussian(rate: float, mu: float) -> Curve:
    """Return the exact curves of (1 - rate) N(0, 1) + rate N(mu, 1) against N(0, 1).

    One way, the difference of densities is rate (p_mu - e^{e'} p_0) with e' = log(1 + (e^e - 1) / rate). The other way
    it is c (p_0 - (rate e^e / c) p_mu) with c = 1 - (1 - rate) e^e = rate e^e (1 - (1 - e^-e) / rate), if positive.
    Both grow when the quotient by the rate is rounded down.
    """

    def with_record(e: Array) -> Array:
        near = np.minimum(e, 100.0)  # above this the logarithm is linear, and e^e might overflow
        ratio = np.minimum(np.expm1(near) / rate * (2 - _UP), 1e300)
        return _UP * rate * gaussian_delta(np.log1p(ratio) + (e - near), mu)

    def without_record(e: Array) -> Array:
        ratio = -np.expm1(-e) / rate * (2 - _UP)
        some = ratio < 1
        e, ratio = e[some], ratio[some]
        out = np.zeros(some.shape)
        out[some] = _UP * rate * np.exp(e) * (1 - ratio) * gaussian_delta(-np.log1p(-ratio), mu)
        return out

    # Hockey sticks are jointly convex: mixing in a common part scales them by at most the rate.
    return Curve(with_record, without_record, symmetric=False, majorant=Majorant(rate, 0.0, mu, rate))


def _objective(leaf: ObjectivePerturbation, neighboring: Neighboring) -> Curve:
    return _both_ways(
        lambda e: objective.objective_delta(leaf, e, neighboring),
        exact=False,
        majorant=objective_majorant(leaf, neighboring),
    )


def objective_majorant(leaf: ObjectivePerturbation, neighboring: Neighboring) -> Majorant:
    """Bound all vertices of objective perturbation by the largest shift and the largest cost of curvature."""
    records, copies, shift = neighboring.contributions, leaf.n_outputs, 1.0 / leaf.noise_multiplier
    if leaf.family == "softmax":
        squared = (8.0 if records == 2 else 2.0) * shift**2
        cost = (copies - 1) * math.log1p(leaf.leverage / copies)
        return Majorant(float(copies) ** records, cost, math.sqrt(squared + leaf.output_mu**2))
    curvature = 0.25 if leaf.family == "logistic" else leaf.smoothness
    cost = copies * math.log1p(curvature * leaf.leverage)
    mu = math.sqrt(copies * (records * shift) ** 2 + leaf.output_mu**2)
    return Majorant(float(2**records) ** copies, cost, mu)


def smallest_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """Return the smallest epsilon >= 0 with ``delta_at(epsilon) <= delta``, rounded up; ``delta_at`` must not rise."""
    if delta_at(0.0) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    high = 1.0
    while delta_at(high) > delta:
        high *= 2
        if high > 1e7:
            return math.inf

    def excess(epsilon: float) -> float:
        value = math.log(max(delta_at(epsilon), 1e-300) / delta)
        # If the curve is flat, take its first point.
        return value if value > 0 else min(value, -1e-12)

    root = float(brentq(excess, high / 2 if high > 1 else 0.0, high, xtol=1e-13, rtol=1e-11))
    step = 1e-12
    while delta_at(root) > delta:
        root, step = root * (1 + step) + 1e-15, 2 * step
    return root
