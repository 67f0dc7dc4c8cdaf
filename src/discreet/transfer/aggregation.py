"""From votes to answers: aggregators that name a winner, question by question, and one that releases the votes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.mechanisms import sparse_vector
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
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
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Sensitivity
from discreet.transfer.teachers import STEPS

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


class VoteRun(Protocol):
    """A stream of questions in progress."""

    @property
    def halted(self) -> bool: ...
    def answer(self, counts: Counts) -> Codes:
        """Class codes, ``ABSTAINED`` or ``HALTED``."""
        ...

    def left(self) -> dict[str, int]:
        """What remains, in words and numbers; public."""
        ...

    def secret_state(self) -> dict[str, int]: ...


@dataclass(frozen=True)
class StableVotes:
    """Release the winner of a vote if it is stable: sparse vector on the distance to instability."""

    vector: SparseVector
    changed: int = 1
    name: ClassVar[str] = "sparse-vector"

    @property
    def event(self) -> Event:
        """What the whole stream does to privacy."""
        return self.vector.event

    def start(self, entropy: Entropy) -> StableVotesRun:
        """Begin a stream."""
        return StableVotesRun(self, self.vector.start(entropy))

    def resumed(self, state: dict[str, int], entropy: Entropy) -> StableVotesRun:
        """Continue a stream."""
        return StableVotesRun(self, SparseVectorRun.resumed(self.vector, state, entropy))

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """Twice the distance, per vote that a record can move."""
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
        """Class codes, ``ABSTAINED`` or ``HALTED``."""
        winners, distances = stability(counts, self._aggregator.changed)
        outcomes = self._run.ask_many(distances)
        refused = np.where(outcomes == sparse_vector.UNSTABLE, ABSTAINED, HALTED)
        return np.where(outcomes == sparse_vector.RELEASED, winners, refused)

    def left(self) -> dict[str, int]:
        """Unstable answers that remain; stable ones are free."""
        return {"unstable answers": self._run.unstable_left}

    def secret_state(self) -> dict[str, int]:
        """What is needed to continue; as private as the data, unless the stream has halted.

        The last threshold is not kept then: beside the answers, which hold against those who do not know it, it would
        tell more than was paid for.
        """
        state = self._run.secret_state()
        return {**state, "threshold": self._aggregator.vector.margin} if self.halted else state


@dataclass(frozen=True)
class PluralityVotes:
    """Gaussian noise on every count, plain or after a check of agreement."""

    mechanism: NoisyPlurality | ConfidentPlurality

    @property
    def changed(self) -> int:
        """Votes that one protected unit can move."""
        return self.mechanism.changed

    @property
    def name(self) -> str:
        """Under which the planner knows it."""
        return "plurality" if isinstance(self.mechanism, NoisyPlurality) else "confident"

    @property
    def event(self) -> Event:
        """What all questions together do to privacy."""
        return self.mechanism.event

    def start(self, entropy: Entropy) -> PluralityVotesRun:
        """Begin a stream."""
        return PluralityVotesRun(self.mechanism.start(entropy))

    def resumed(self, state: dict[str, int], entropy: Entropy) -> PluralityVotesRun:
        """Continue a stream."""
        return PluralityVotesRun(PluralityRun.resumed(self.mechanism, state, entropy))

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """The lead that noise does not overturn, and that the check lets pass."""
        mechanism = self.mechanism
        if isinstance(mechanism, NoisyPlurality):
            return mechanism.gap_needed(n_queries, beta)
        votes = NoisyPlurality(
            mechanism.vote_multiplier, mechanism.n_classes, mechanism.n_queries, mechanism.changed
        )
        return votes.gap_needed(n_queries, beta)


class PluralityVotesRun:
    """A stream of noisy votes."""

    def __init__(self, run: PluralityRun) -> None:
        self._run = run

    @property
    def halted(self) -> bool:
        """Whether the budget is used up."""
        return self._run.halted

    def answer(self, counts: Counts) -> Codes:
        """Class codes, ``ABSTAINED`` or ``HALTED``."""
        return self._run.answer(counts)

    def left(self) -> dict[str, int]:
        """Questions and answers that remain."""
        mechanism = self._run.mechanism
        return {"questions": mechanism.n_queries - self._run.n_asked, "answers": self._run.answers_left}

    def secret_state(self) -> dict[str, int]:
        """What is needed to continue."""
        return self._run.secret_state()


@dataclass(frozen=True)
class SharedVotes:
    """Gaussian noise on the sum of all opinions, for all questions at once; the noisy sums themselves are released.

    A student that averages over similar rows also averages the noise, which is lost once only winners are known.

    Parameters
    ----------
    noise_multiplier : float
        Noise over the L2 sensitivity of the sum.
    n_classes, n_queries, changed : int
        Public sizes.

    Privacy
    -------
    Opinions have length sqrt(n_queries (1 - 1 / n_classes)) at most, so that one record moves their sum by
    ``changed`` times twice that: one Gaussian mechanism of ``noise_multiplier`` (docs/proofs/vote-shares.md). What is
    computed from the noisy sums alone, winners and students included, costs nothing more.
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
        return GaussianMechanism(Sensitivity(distance * (1 + 2.0**-40)), self.noise_multiplier, size)

    @property
    def event(self) -> Event:
        """What all questions together do to privacy."""
        return self.mechanism.event

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on the votes of one class, in votes."""
        return self.mechanism.stddev / STEPS

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """The lead that noise does not overturn, in votes; a student needs less."""
        return -self.stddev * math.sqrt(2) * float(ndtri(beta / (n_queries * (self.n_classes - 1))))

    def release(self, sums: Counts, entropy: Entropy) -> Array:
        """Noisy votes of every question and class, less what a tie would have, from sums in steps.

        Votes add up to nothing over the classes; so does what is released, which takes off some of the noise.
        """
        noisy = self.mechanism.release(sums, entropy)
        return np.asarray((noisy - noisy.mean(axis=1, keepdims=True)) / STEPS)


Streamed = StableVotes | PluralityVotes
Aggregator = Streamed | SharedVotes


def labels_of(codes: Codes, classes: NDArray[Any]) -> NDArray[Any]:
    """Labels of the answered questions as an object array; None where there is no answer."""
    labels = np.full(len(codes), None, dtype=object)
    labels[codes >= 0] = classes[codes[codes >= 0]]
    return labels
