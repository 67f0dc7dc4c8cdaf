"""From votes to answers: the three aggregators behind one interface, and the plan that fixes one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms import sparse_vector
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
        """What is needed to continue; as private as the data."""
        return self._run.secret_state()


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


Aggregator = StableVotes | PluralityVotes


def labels_of(codes: Codes, classes: NDArray[Any]) -> NDArray[Any]:
    """Labels of the answered questions as an object array; None where there is no answer."""
    labels = np.full(len(codes), None, dtype=object)
    labels[codes >= 0] = classes[codes[codes >= 0]]
    return labels
