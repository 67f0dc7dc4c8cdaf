"""Privacy profiles of Gaussian objective perturbation for linear models.

The minimizer of ``sum_i loss_i + (Lam / 2)|theta|^2 + <b, theta>`` with b ~ N(0, sigma^2 I) has the privacy loss

    log det ratio  +  (2 <b, c> + |c|^2) / (2 sigma^2),

where c, the difference of the neighbors' gradients at the minimizer, depends on b. For linear models c is a convex
combination of finitely many *fixed* vectors (vertices) and the loss is convex in the weights, so its expectation is
at most a sum over vertices, each an exact Gaussian profile raised by a log determinant. Proofs:
``docs/proofs/objective-perturbation.md``. The output stage, which covers an inexact minimizer, adds its squared
Gaussian-DP parameter to that of every vertex.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from discreet._typing import Array
from discreet.privacy.accounting.gaussian import gaussian_delta, hockey_stick
from discreet.privacy.events import ObjectivePerturbation
from discreet.privacy.guarantee import Neighboring

Vertices = list[tuple[int, float, float]]  # (how many, log-determinant cost, Gaussian-DP shift)

# Any tangent point gives a valid bound; dense near 1, where the gradient is extreme and the curvature vanishes.
TANGENT_POINTS = 1.0 - 0.5 * np.linspace(0.0, 1.0, 129) ** 2
# Any weight gives a valid bound: the share of the softmax curvature charged at its global maximum.
_CURVATURE_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Cells of the angle between two records of a general linear model; each is bounded by its corners.
ANGLE_CELLS = 256


def objective_delta(event: ObjectivePerturbation, epsilon: ArrayLike, neighboring: Neighboring) -> Array:
    """Return an upper bound on delta at every epsilon >= 0, in both directions.

    >>> event = ObjectivePerturbation("logistic", 11.95, leverage=1.0, smoothness=0.25, output_mu=0.0)
    >>> bool(objective_delta(event, 1.0, Neighboring.REPLACE_ONE) <= 1 / 45000**2)
    True
    """
    eps = np.asarray(epsilon, dtype=np.float64)
    if np.any(eps < 0):
        raise ValueError("the profile is stated for epsilon >= 0")
    if event.family == "softmax":
        bound = _softmax_delta(event, eps, neighboring)
    else:
        worst_of = np.maximum if event.family == "general" else np.minimum
        bound = worst_of.reduce(list(_vertex_sums(*_tables(event, neighboring), eps)))
    return np.minimum(1.0, bound)


def _vertex_sets(event: ObjectivePerturbation, neighboring: Neighboring) -> Iterator[Vertices]:
    """Yield the vertices of one model. Each set is a bound; for a general loss only all sets together are."""
    shift = 1.0 / event.noise_multiplier
    replace = neighboring is Neighboring.REPLACE_ONE
    if event.family == "logistic":
        for a in TANGENT_POINTS:
            extreme, flat = tangent_costs(float(a), event.leverage)
            if replace:
                yield [(1, extreme, 2 * shift), (1, extreme, shift), (1, flat, shift), (1, flat, 0.0)]
            else:
                yield [(1, extreme, shift), (1, flat, 0.0)]
        return
    cost = math.log1p(event.smoothness * event.leverage)
    if event.family == "monotone":
        yield (
            [(1, cost, 2 * shift), (2, cost, shift), (1, cost, 0.0)]
            if replace
            else [(1, cost, shift), (1, cost, 0.0)]
        )
    elif not replace:
        yield [(2, cost, shift)]
    else:
        # |v - v'|^2 + |v + v'|^2 <= 4: the two shifts are 2 cos(t) and 2 sin(t) for an unknown angle t.
        corners = np.linspace(0.0, math.pi / 2, ANGLE_CELLS + 1)
        for low, high in itertools.pairwise(corners):
            yield [(2, cost, 2 * math.cos(low) * shift), (2, cost, 2 * math.sin(high) * shift)]


def tangent_costs(a: float, leverage: float) -> tuple[float, float]:
    """Return the log determinant charged at derivative 1 and at derivative 0.

    At derivative magnitude x the curvature is x(1 - x), so the cost log(1 + x(1 - x) leverage) is concave in x and
    lies below its tangent at ``a``, which is affine and so preserves the vertex argument.
    """
    value = math.log1p(a * (1 - a) * leverage)
    slope = (1 - 2 * a) * leverage / (1 + a * (1 - a) * leverage)
    return value + slope * (1 - a), value - slope * a


@lru_cache(maxsize=256)
def _tables(event: ObjectivePerturbation, neighboring: Neighboring) -> tuple[Array, Array, Array]:
    """Return counts, costs and shifts of the vertices of ``n_outputs`` independent models, one row per set."""
    sets = [list(_products(vertices, event.n_outputs)) for vertices in _vertex_sets(event, neighboring)]
    counts, costs, squares = np.moveaxis(np.array(sets), -1, 0)
    return counts, costs, np.sqrt(squares + event.output_mu**2)


def _vertex_sums(counts: Array, costs: Array, shifts: Array, eps: Array) -> Iterator[Array]:
    """Yield sums of Gaussian profiles over the vertices of every set, vectorized over sets or over epsilons."""
    if eps.size == 1:
        yield from (gaussian_delta(eps.ravel() - costs, shifts)[:, None] @ counts[:, :, None]).reshape(
            -1, *eps.shape
        )
        return
    for row in range(len(costs)):
        yield np.asarray(gaussian_delta(eps[..., None] - costs[row], shifts[row]) @ counts[row])


def _products(vertices: Vertices, copies: int) -> Iterator[tuple[float, float, float]]:
    """Yield the vertices of ``copies`` models together: costs and squared shifts add, counts multiply."""
    if copies == 1:
        return ((float(count), cost, shift**2) for count, cost, shift in reversed(vertices))

    def spread(index: int, left: int) -> Iterator[tuple[float, float, float]]:
        count, cost, shift = vertices[index]
        last = index == len(vertices) - 1
        for used in (left,) if last else range(left + 1):
            ways = math.comb(left, used) * float(count) ** used
            if last:
                yield ways, used * cost, used * shift**2
            else:
                for more, costs, squares in spread(index + 1, left - used):
                    yield ways * more, used * cost + costs, used * shift**2 + squares

    return spread(0, copies)


def _softmax_delta(event: ObjectivePerturbation, eps: Array, neighboring: Neighboring) -> Array:
    """Bound delta of a softmax: simplex vertices, plus pairs of vertices if the curvature is not free."""
    n_classes, r, leverage = event.n_outputs, 1.0 / event.noise_multiplier, event.leverage
    if n_classes < 2:
        raise ValueError("a softmax needs n_outputs, its number of classes, to be at least 2")
    most_curvature = (n_classes - 1) * math.log1p(leverage / n_classes)
    bounds = []
    for weight in _CURVATURE_WEIGHTS:
        e = eps - weight * most_curvature
        lift = (1 - weight) * leverage - r * r / 2
        at_vertices = _softmax_vertices(np.maximum(e, 0.0), n_classes, r, event.output_mu, neighboring)
        # Below zero, E(1 - e^{e - X})_+ <= 1 - e^e + e^e E(1 - e^{-X})_+.
        at_vertices = np.where(
            e < 0, 1 - np.exp(np.minimum(e, 0)) * (1 - np.minimum(1, at_vertices)), at_vertices
        )
        at_pairs = 0.0 if lift <= 0 else _softmax_pairs(e - lift, n_classes, r, event.output_mu, neighboring)
        bounds.append(at_vertices + at_pairs)
    return np.asarray(np.minimum.reduce(bounds))


def _softmax_vertices(
    e: Array, n_classes: int, r: float, output_mu: float, neighboring: Neighboring
) -> Array:
    """Return the expected excess when both softmax outputs are certain."""

    def profile(squared_shift: float) -> Array:
        return gaussian_delta(e, math.sqrt(squared_shift * r * r + output_mu**2))

    others = n_classes - 1
    one_record = others * profile(2)
    if neighboring is not Neighboring.REPLACE_ONE:
        return one_record + profile(0)
    same_label = others * profile(8) + others * (others - 1) * profile(6)
    other_label = profile(8) + 3 * (others - 1) * profile(6) + (others - 1) * (others - 2) * profile(4)
    return np.maximum(same_label, other_label) + 2 * one_record + profile(0)


def _softmax_pairs(e: Array, n_classes: int, r: float, output_mu: float, neighboring: Neighboring) -> Array:
    """Return the expected excess when the softmax of the charged record is split between two classes."""
    others, extra = n_classes - 1, output_mu**2
    if neighboring is not Neighboring.REPLACE_ONE:
        both_wrong = hockey_stick(e, r * r + extra / 2, math.sqrt(1.5 * r * r + extra))
        half_right = hockey_stick(e, r * r / 2 + extra / 2, math.sqrt(0.5 * r * r + extra))
        # If e is below a mean, the variance bound of these terms is not monotone: claim nothing.
        pairs = math.comb(others, 2) * both_wrong + others * half_right
        return np.where(e < r * r + extra / 2, 1.0, pairs)
    totals = []
    for same_label in (True, False):
        total, highest_mean = np.zeros_like(e), 0.0
        for count, mean, variance in _replace_pairs(n_classes, same_label):
            center = mean * r * r + extra / 2
            highest_mean = max(highest_mean, center)
            total = total + count * hockey_stick(e, center, math.sqrt(variance * r * r + extra))
        totals.append(np.where(e < highest_mean, 1.0, total))
    return np.maximum(*totals)


@lru_cache(maxsize=256)
def _replace_pairs(n_classes: int, same_label: bool) -> tuple[tuple[int, float, float], ...]:
    """Return (count, mean, variance), in units of r^2, over the new record's class j' and pairs of classes j < k.

    Other classes are interchangeable, so two of them represent all.
    """
    y, y_new = 0, 0 if same_label else 1
    named = {y, y_new}
    terms: dict[tuple[float, float], int] = {}
    for certain in [*sorted(named), len(named)]:  # the class j': a named one, or any other
        special = sorted(named | {certain})
        repeats = 1 if certain in named else n_classes - len(named)
        generic = n_classes - len(special)
        if repeats <= 0 or generic < 0:
            continue
        size = len(special) + 2
        unit = np.eye(size)
        move = unit[certain] - unit[y_new]

        def norm(u: Array, w: Array = move) -> float:
            return float(u @ u + w @ w + 2 * abs(u @ w))

        for j in range(size):
            for k in range(j + 1, size):
                n_generic = (j >= len(special)) + (k >= len(special))
                if n_generic == 1 and len(special) + 1 in (j, k):
                    continue  # the second representative is only for pairs of two other classes
                ways = (1, generic, math.comb(generic, 2))[n_generic]
                first, second = unit[j] - unit[y], unit[k] - unit[y]
                key = ((norm(first) + norm(second)) / 4, norm((first + second) / 2))
                terms[key] = terms.get(key, 0) + repeats * ways
    return tuple((count, mean, variance) for (mean, variance), count in terms.items() if count)
