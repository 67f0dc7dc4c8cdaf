"""Aggregators of votes: some answer question by question with a winner, and one releases the votes of all questions.

`data_dependent_epsilon` computes what noisy votes cost on the actual votes. If teachers agree, a noisy plurality
reveals almost nothing, and a bound that uses the votes shows it (Papernot et al., 2018, theorem 6). The bound depends
on the private votes: publishing it would be another release that was not paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, ndtri

from discreet._typing import Array
from discreet.mechanisms import sparse_vector
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.sparse_vector import SparseVector, SparseVectorRun
from discreet.mechanisms.voting import (
    ABSTAINED,
    HALTED,
    ConfidentPlurality,
    Counts,
    NoisyPlurality,
    PluralityRun,
    stability,
)
from discreet.privacy.accounting.renyi import renyi_epsilon
from discreet.privacy.events import Event
from discreet.privacy.guarantee import SLACK, Sensitivity
from discreet.transfer.teachers import STEPS, Codes


class VoteRun(Protocol):
    """A stream of questions in progress."""

    @property
    def halted(self) -> bool: ...
    def answer(self, counts: Counts) -> Codes:
        """Return class codes, ``ABSTAINED`` or ``HALTED``."""
        ...

    def left(self) -> dict[str, int]:
        """Return what remains, by name; public."""
        ...

    def secret_state(self) -> dict[str, int]: ...


@dataclass(frozen=True)
class StableVotes:
    """Release the winner of a vote if it is stable, by sparse vector on the distance to instability."""

    vector: SparseVector
    changed: int = 1
    name: ClassVar[str] = "sparse-vector"

    @property
    def event(self) -> Event:
        return self.vector.event

    def start(self, entropy: Entropy) -> StableVotesRun:
        """Start a stream."""
        return StableVotesRun(self, self.vector.start(entropy))

    def resumed(self, state: dict[str, int], entropy: Entropy) -> StableVotesRun:
        """Continue a stream."""
        return StableVotesRun(self, SparseVectorRun.resumed(self.vector, state, entropy))

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """Return the lead needed: twice the distance, times the votes that a record can change, plus 1."""
        return 2.0 * self.changed * self.vector.distance_needed(n_queries, beta) + 1


class StableVotesRun:
    """A stream of stable votes."""

    def __init__(self, aggregator: StableVotes, run: SparseVectorRun) -> None:
        self._aggregator, self._run = aggregator, run

    @property
    def halted(self) -> bool:
        """Whether the unstable answers are used up."""
        return self._run.halted

    def answer(self, counts: Counts) -> Codes:
        """Return class codes, ``ABSTAINED`` or ``HALTED``."""
        winners, distances = stability(counts, self._aggregator.changed)
        outcomes = self._run.ask_many(distances)
        refused = np.where(outcomes == sparse_vector.UNSTABLE, ABSTAINED, HALTED)
        return np.where(outcomes == sparse_vector.RELEASED, winners, refused)

    def left(self) -> dict[str, int]:
        """Return the number of unstable answers that remain; stable ones are free."""
        return {"unstable answers": self._run.unstable_left}

    def secret_state(self) -> dict[str, int]:
        """Return the state needed to continue; as private as the data, unless the stream has halted.

        A halted stream drops its last threshold: together with the answers it would reveal more than was paid for.
        """
        state = self._run.secret_state()
        return {**state, "threshold": self._aggregator.vector.margin} if self.halted else state


@dataclass(frozen=True)
class PluralityVotes:
    """Gaussian noise on every count, plain or after a check of agreement."""

    mechanism: NoisyPlurality | ConfidentPlurality

    @property
    def changed(self) -> int:
        """Votes that one protected unit can change."""
        return self.mechanism.changed

    @property
    def name(self) -> str:
        """Name of the aggregator in the planner."""
        return "plurality" if isinstance(self.mechanism, NoisyPlurality) else "confident"

    @property
    def event(self) -> Event:
        """The event of all questions together."""
        return self.mechanism.event

    def start(self, entropy: Entropy) -> PluralityRun:
        """Start a stream."""
        return self.mechanism.start(entropy)

    def resumed(self, state: dict[str, int], entropy: Entropy) -> PluralityRun:
        """Continue a stream."""
        return PluralityRun.resumed(self.mechanism, state, entropy)

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """Return the lead that noise does not overturn and that passes the check."""
        mechanism = self.mechanism
        if isinstance(mechanism, NoisyPlurality):
            return mechanism.gap_needed(n_queries, beta)
        votes = NoisyPlurality(
            mechanism.vote_multiplier, mechanism.n_classes, mechanism.n_queries, mechanism.changed
        )
        return votes.gap_needed(n_queries, beta)

    @property
    def lead_stddev(self) -> float:
        """Standard deviation of the noise on the lead of a class over another, in votes."""
        mechanism = self.mechanism
        noise = mechanism.noise if isinstance(mechanism, NoisyPlurality) else mechanism.vote_noise
        return math.sqrt(2) * noise.stddev


@dataclass(frozen=True)
class SharedVotes:
    """Add Gaussian noise to the sum of all opinions, for all questions at once, and release the noisy sums.

    A student that averages over similar rows also averages the noise, which is impossible if only winners are known.

    Parameters
    ----------
    noise_multiplier : float
        Noise over the L2 sensitivity of the sum.
    n_classes, n_queries, changed : int
        Public sizes.

    Privacy
    -------
    The norm of an opinion is at most sqrt(n_queries (1 - 1 / n_classes)), so one record moves the sum by at most
    ``changed`` times twice that: one Gaussian mechanism of ``noise_multiplier`` (docs/proofs/vote-shares.md). Anything
    computed from the noisy sums alone, such as winners and students, costs nothing more.
    """

    noise_multiplier: float
    n_classes: int
    n_queries: int
    changed: int = 1
    name: ClassVar[str] = "shares"

    @cached_property
    def mechanism(self) -> GaussianMechanism:
        """The mechanism, in steps of a vote."""
        distance = 2 * self.changed * STEPS * math.sqrt(self.n_queries * (1 - 1 / self.n_classes))
        size = self.n_queries * self.n_classes
        return GaussianMechanism(Sensitivity(distance * SLACK), self.noise_multiplier, size)

    @property
    def event(self) -> Event:
        """The event of all questions together."""
        return self.mechanism.event

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on the votes of one class, in votes."""
        return self.mechanism.stddev / STEPS

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """Return the lead that noise does not overturn, in votes; a student needs less."""
        return -self.stddev * math.sqrt(2) * float(ndtri(beta / (n_queries * (self.n_classes - 1))))

    def release(self, sums: Counts, entropy: Entropy) -> Array:
        """Release noisy votes of every question and class, minus those of a tie, from sums in steps.

        Votes sum to zero over the classes, so the release is centered, which removes some of the noise.
        """
        noisy = self.mechanism.release(sums, entropy)
        return np.asarray((noisy - noisy.mean(axis=1, keepdims=True)) / STEPS)


Streamed = StableVotes | PluralityVotes
Aggregator = Streamed | SharedVotes


def labels_of(codes: Codes, classes: NDArray[Any]) -> NDArray[Any]:
    """Return labels of the answered questions as an object array; None without an answer."""
    labels = np.full(len(codes), None, dtype=object)
    labels[codes >= 0] = classes[codes[codes >= 0]]
    return labels


_ORDERS = (1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 25.0, 35.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0)


@dataclass(frozen=True)
class UnpublishableEpsilon:
    """An epsilon computed from private votes. Only the data holder may see it.

    value : the data-dependent epsilon at ``delta``.
    publishable : always False.
    """

    value: float
    delta: float
    publishable: bool = False

    def __str__(self) -> str:
        return (
            f"epsilon {self.value:.4g} at delta {self.delta:.3g} ON THESE VOTES. NOT PUBLISHABLE: this number depends "
            "on the private data, and showing it is a release that nobody paid for. The promise is the plan's."
        )


def data_dependent_epsilon(counts: Counts, stddev: float, delta: float) -> UnpublishableEpsilon:
    """Return the Renyi cost of a noisy plurality on given votes, in both directions, for one changed vote per record.

    The published theorem bounds D(votes || neighbor) only; the maximum over the votes and all vectors one change away
    covers the other direction as well.

    Parameters
    ----------
    counts : private votes (n_queries, n_classes).
    stddev : noise on every count.
    delta : the delta of the conversion.
    """
    cast: NDArray[np.int64] = np.asarray(counts).astype(np.int64)
    around = [cast, *_moved(cast)]
    best = math.inf
    for order in _ORDERS:
        worst = np.zeros(len(counts))
        for votes in around:
            worst = np.maximum(worst, divergence(votes, stddev, order))
        best = min(best, renyi_epsilon(float(worst.sum()), order, delta))
    return UnpublishableEpsilon(best, delta)


def divergence(counts: Counts, stddev: float, order: float) -> Array:
    """Bound the Renyi divergence from each vote vector to any neighbor (one direction)."""
    independent = order / stddev**2
    q = _error(np.asarray(counts, dtype=np.float64), stddev)
    bound = np.full(len(q), independent)
    with np.errstate(all="ignore"):  # conditions of the theorem are checked below
        higher = stddev * np.sqrt(-np.log(q))
        lower = higher + 1
        e_high, e_low = higher / stddev**2, lower / stddev**2
        limit = np.exp((higher - 1) * e_high) / (lower / (lower - 1) * higher / (higher - 1)) ** higher
        valid = (q > 0) & (higher > 1) & (order <= lower) & (q * np.exp(e_high) < 1) & (q <= limit)
        right = (1 - q) / (1 - (q * np.exp(e_high)) ** ((higher - 1) / higher))
        wrong = np.exp(e_low) / q ** (1 / (lower - 1))
        value = np.log((1 - q) * right ** (order - 1) + q * wrong ** (order - 1)) / (order - 1)
    use = valid & np.isfinite(value)
    rounding = 1e-15  # of a logarithm near 1
    bound[use] = np.minimum(bound[use], np.maximum(value[use], 0.0) + rounding)
    return bound


def _error(counts: Array, stddev: float) -> Array:
    """Bound the probability that the noisy winner is not the true one; never below the smallest float."""
    lead = counts.max(axis=1, keepdims=True) - counts
    chances = 0.5 * erfc(lead / (2 * stddev))
    chances[np.arange(len(counts)), counts.argmax(axis=1)] = 0.0
    return np.asarray(np.clip(chances.sum(axis=1), 1e-300, 1.0))


def _moved(counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return all vote vectors one changed vote away; if a class has no vote to lose, the vector itself."""
    found = []
    for giver in range(counts.shape[1]):
        for taker in range(counts.shape[1]):
            if giver != taker:
                step = (counts[:, giver] > 0).astype(np.int64)
                other = counts.copy()
                other[:, giver] -= step
                other[:, taker] += step
                found.append(other)
    return found
