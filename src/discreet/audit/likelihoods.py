"""Likelihoods of the answers of every mechanism, with all or a fraction of its noise.

Logarithms are up to a constant that is the same for all inputs. Rounding to grids, less than 2^-30 of a scale, is
ignored. Mechanisms without an entry here are attacked through what is released.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from scipy.special import log_ndtr, logsumexp

from discreet._typing import Array
from discreet.mechanisms.recording import Call
from discreet.mechanisms.sparse_vector import HALTED, RELEASED, UNSTABLE, StableRelease

LogLaw = Callable[[Call, Any, float], float]
Entry = TypeVar("Entry")
Draw = Callable[[Call, float, np.random.Generator], Any]

_NODES = 401  # of an integral over one variable
_REACH = 12.0  # its range beyond the inputs, in scales


@dataclass(frozen=True)
class Law:
    """``log(call, answer, share)`` and ``draw(call, share, rng)``, for a mechanism with ``share`` of its noise.

    Without ``draw`` the noise is additive, and is scaled down.
    """

    log: LogLaw
    draw: Draw | None = None


def log_likelihood(calls: Sequence[Call], share: float = 1.0) -> float:
    """Return the log-likelihood of the answers in ``calls`` given their inputs.

    Noise drawn without an input reveals nothing about the data. The calls of one sparse vector share a threshold and
    are evaluated together.
    """
    total, streams = 0.0, dict[int, list[Call]]()
    for call in calls:
        if call.value is None:
            continue
        if call.mechanism == "SparseVector":
            streams.setdefault(id(call.law), []).append(call)
        else:
            total += law_of(call).log(call, call.output, share)
    return total + sum(_log_stream(stream, share) for stream in streams.values())


def by_kind(table: Mapping[str, Entry], call: Call) -> Entry | None:
    """Return the entry of a call's mechanism, or of its nearest parent class; None without one."""
    return next((table[kind.__name__] for kind in type(call.law).__mro__ if kind.__name__ in table), None)


def law_of(call: Call) -> Law:
    """Return the distribution of a call's mechanism."""
    law = by_kind(LAWS, call)
    if law is None:
        raise ValueError(f"no likelihood is known for {call.mechanism}")
    return law


def known(calls: Sequence[Call]) -> bool:
    """Whether the likelihood of every answer is known."""
    return all(
        call.value is None or call.mechanism == "SparseVector" or by_kind(LAWS, call) for call in calls
    )


def is_gaussian(call: Call) -> bool:
    """Whether a call adds Gaussian noise to an input."""
    law = by_kind(LAWS, call)
    return call.value is not None and law is not None and law.log is _log_gaussian


# -- additive noise -----------------------------------------------------------------------------------------------


def _gap(call: Call, answer: Any) -> Array:
    return np.asarray(answer, dtype=np.float64).ravel() - np.asarray(call.value, dtype=np.float64).ravel()


def _log_gaussian(call: Call, answer: Any, share: float) -> float:
    # In a symmetric matrix every off-diagonal entry appears twice, with half the variance.
    gap = _gap(call, answer)
    return -float(gap @ gap) / (2 * (share * call.scale) ** 2)


def _log_laplace(call: Call, answer: Any, share: float) -> float:
    return -float(np.abs(_gap(call, answer)).sum()) / (share * call.scale)


def _log_gamma_norm(call: Call, answer: Any, share: float) -> float:
    return -float(np.linalg.norm(_gap(call, answer))) / (share * call.scale)


def less_noise(call: Call, share: float) -> Any:
    """Return the given answer with a fraction of its noise."""
    value = np.reshape(np.asarray(call.value, dtype=np.float64), np.shape(call.output))
    return value + share * (np.asarray(call.output) - value)


# -- choices --------------------------------------------------------------------------------------------------------


def _log_choice(call: Call, answer: Any, share: float) -> float:
    weights = np.asarray(call.value, dtype=np.float64) / (share * call.scale)
    return float(weights[int(answer)] - logsumexp(weights))


def _draw_choice(call: Call, share: float, rng: np.random.Generator) -> int:
    return int(np.argmax(call.value + share * call.scale * rng.gumbel(size=np.shape(call.value))))


def _log_laplace_max(call: Call, answer: Any, share: float) -> float:
    """Integrate the probability that all others are below, over the winner's noisy score."""
    scores = np.asarray(call.value, dtype=np.float64) / (share * call.scale)
    winner = scores[int(answer)]
    others = np.delete(scores, int(answer))
    # The integrand is smooth between its kinks at the scores.
    ends = np.unique([*scores, scores.min() - 40.0, scores.max() + 40.0])
    places, weights = _legendre(48)
    at = ends[:-1, None] + np.diff(ends)[:, None] * (places + 1) / 2
    above = at[..., None] - others
    below = np.where(above < 0, np.exp(np.minimum(above, 0)) / 2, 1 - np.exp(-np.abs(above)) / 2)
    density = np.exp(-np.abs(at - winner)) / 2 * np.prod(below, axis=-1)
    return math.log(float(np.diff(ends) / 2 @ (density @ weights)))


@lru_cache(maxsize=4)
def _legendre(count: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return nodes, weights


def _draw_laplace_max(call: Call, share: float, rng: np.random.Generator) -> int:
    return int(np.argmax(call.value + share * call.scale * rng.laplace(size=np.shape(call.value))))


# -- a density over one or two balls -----------------------------------------------------------------------------------


def _log_gibbs(call: Call, answer: Any, share: float) -> float:
    _, logs = _gibbs_logs(call, share)
    level = float(call.asked.energies(np.asarray(answer, dtype=np.float64)[None])[0])
    return -level / share - float(logsumexp(logs))


def _draw_gibbs(call: Call, share: float, rng: np.random.Generator) -> Array:
    """Draw from the distribution restricted to the quadrature nodes."""
    nodes, logs = _gibbs_logs(call, share)
    return np.asarray(nodes[int(np.argmax(logs + rng.gumbel(size=len(logs))))])


def gibbs_nodes(call: Call) -> tuple[Array, Array]:
    """Return quadrature nodes in the smallest ball and the logs of their weights, in one or two dimensions."""
    balls = call.law.balls
    smallest = min(balls, key=lambda ball: ball.radius)
    center = np.array(smallest.center)
    if len(center) > 2:
        raise ValueError(
            "the likelihood of an exactly sampled vector is known in one and two dimensions, "
            f"got {len(center)}"
        )
    grid, weights = _ball_nodes(len(center))
    nodes = center + smallest.radius * grid
    inside = call.law.candidates(nodes)
    return nodes[inside], np.log(weights[inside])


def _gibbs_logs(call: Call, share: float) -> tuple[Array, Array]:
    """Return nodes, and the logs of weight times density there."""
    nodes, log_weights = gibbs_nodes(call)
    # Equal energies at the probes mean equal energies, so those at the nodes are computed once per data set.
    key = (call.value.tobytes(), call.law.balls, call.law.region)
    if key not in _LEVELS:
        while len(_LEVELS) >= _KEPT:
            _LEVELS.pop(next(iter(_LEVELS)))
        _LEVELS[key] = call.asked.energies(nodes)
    return nodes, log_weights - _LEVELS[key] / share


_LEVELS: dict[tuple[bytes, Any, Any], Array] = {}
_KEPT = 8


@lru_cache(maxsize=2)
def _ball_nodes(dimension: int) -> tuple[Array, Array]:
    """Return nodes and weights of an integral over the unit ball."""
    if dimension == 1:
        nodes, weights = _legendre(96)
        return nodes[:, None], weights
    radii, weights = _legendre(8)
    radii, weights = (radii + 1) / 2, weights / 2
    angles = 2 * np.pi * np.arange(16) / 16
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = radii[:, None, None] * ways[None]
    return points.reshape(-1, 2), np.repeat(weights * radii, len(angles))


def _log_walk(call: Call, answer: Any, share: float) -> float:
    """Use the exact distribution of a walk after its steps, not the limit."""
    place = np.flatnonzero(np.all(call.law.places == np.asarray(answer), axis=1))[0]
    return math.log(float(_walk_law(call.law, call.value.tobytes(), share)[place]))


def _draw_walk(call: Call, share: float, rng: np.random.Generator) -> Any:
    law = _walk_law(call.law, call.value.tobytes(), share)
    return call.law.places[int(rng.choice(len(law), p=law / law.sum()))]


@lru_cache(maxsize=8)
def _walk_law(end: Any, exponents: bytes, share: float) -> Array:
    return np.asarray(end.law(np.frombuffer(exponents) / share))


# -- votes ------------------------------------------------------------------------------------------------------------


def _log_votes(call: Call, answer: Any, share: float) -> float:
    """Evaluate pluralities of noisy counts, or checks whether a noisy count reaches a threshold."""
    scale, votes = share * call.scale, np.asarray(call.value, dtype=np.float64)
    if votes.ndim == 1:
        reached = (votes - call.law.threshold) / scale
        return float(np.sum(log_ndtr(np.where(np.asarray(answer, dtype=bool), reached, -reached))))
    total = 0.0
    at = np.linspace(-_REACH, _REACH, _NODES)
    for counts, winner in zip(votes, np.asarray(answer), strict=True):
        others = np.delete(counts, int(winner))
        density = -at * at / 2 + sum(log_ndtr(at + (counts[int(winner)] - other) / scale) for other in others)
        total += float(logsumexp(density)) + math.log(at[1] - at[0]) - math.log(2 * math.pi) / 2
    return total


def _draw_votes(call: Call, share: float, rng: np.random.Generator) -> Any:
    noisy = call.value + share * call.scale * rng.normal(size=np.shape(call.value))
    if np.ndim(call.value) == 1:
        return noisy >= call.law.threshold
    return np.argmax(noisy, axis=1).astype(np.int64)


# -- stability ------------------------------------------------------------------------------------------------------


def _weaker_test(call: Call, share: float) -> StableRelease:
    law: StableRelease = call.law
    return dataclasses.replace(law, epsilon=law.epsilon / share, delta=min(0.5, law.delta / share))


def _log_stable(call: Call, answer: Any, share: float) -> float:
    chance = _weaker_test(call, share).probability(int(call.value))
    chance = chance if answer else 1 - chance
    return math.log(chance) if chance > 0 else -math.inf


def _draw_stable(call: Call, share: float, rng: np.random.Generator) -> bool:
    return bool(rng.random() < _weaker_test(call, share).probability(int(call.value)))


def _log_stream(calls: Sequence[Call], share: float) -> float:
    """Sum the probability of a sparse vector's outcomes over the threshold's noise.

    With threshold noise k, a question at distance d is refused with probability a^max(0, d - margin + k).
    """
    vector = calls[0].law
    first, each = share * vector.threshold_scale, share * vector.query_scale
    height = np.arange(int(40 * first) + 2)
    prior = -height / first + math.log(-math.expm1(-1 / first))
    total, logs = 0.0, prior.copy()
    for call in calls:
        for distance, outcome in zip(np.asarray(call.value), np.asarray(call.output), strict=True):
            if outcome == HALTED:
                continue
            refused = -np.maximum(0, int(distance) - vector.margin + height) / each
            if outcome == UNSTABLE:
                logs = logs + refused
                if vector.refresh:
                    total, logs = total + float(logsumexp(logs)), prior.copy()
            else:
                with np.errstate(divide="ignore"):
                    logs = logs + np.log(-np.expm1(refused))
    return total + float(logsumexp(logs))


class WeakStream:
    """A sparse vector's stream with a fraction of its noise."""

    def __init__(self, vector: Any, share: float, rng: np.random.Generator) -> None:
        self._vector, self._share, self._rng = vector, share, rng
        self._refusals, self._threshold = 0, 0
        self._renew()

    def _renew(self) -> None:
        self._threshold = self._vector.margin - self._noise(self._vector.threshold_scale)

    def _noise(self, scale: float) -> int:
        return int(self._rng.geometric(-math.expm1(-1 / (self._share * scale)))) - 1

    def answer(self, call: Call) -> Any:
        """Return outcomes of the call's questions."""
        outcomes = np.full(len(call.value), HALTED, dtype=np.int8)
        for place, distance in enumerate(call.value):
            if self._refusals >= self._vector.max_unstable:
                break
            low = int(distance) - self._noise(self._vector.query_scale) <= self._threshold
            outcomes[place] = UNSTABLE if low else RELEASED
            self._refusals += low
            if low and self._vector.refresh:
                self._renew()
        return outcomes


LAWS: dict[str, Law] = {
    "GaussianMechanism": Law(_log_gaussian),
    "SymmetricGaussianMechanism": Law(_log_gaussian),
    "TreeMechanism": Law(_log_gaussian),
    "LaplaceMechanism": Law(_log_laplace),
    "GammaNormMechanism": Law(_log_gamma_norm),
    "ExponentialMechanism": Law(_log_choice, _draw_choice),
    "LeveledSelection": Law(_log_choice, _draw_choice),
    "LaplaceNoisyMax": Law(_log_laplace_max, _draw_laplace_max),
    "GibbsMechanism": Law(_log_gibbs, _draw_gibbs),
    "WalkEnd": Law(_log_walk, _draw_walk),
    "NoisyPlurality": Law(_log_votes, _draw_votes),
    "ConfidentPlurality": Law(_log_votes, _draw_votes),
    "StableRelease": Law(_log_stable, _draw_stable),
}
