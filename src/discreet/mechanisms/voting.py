"""Votes: how many of them one record can change, how stable a majority is, and noisy pluralities.

A vote vector counts, for one question, the models that answered each class. One record changes the votes of at most
``changed`` models; all guarantees here are stated for that number. Proofs: docs/proofs/sparse-vector.md, sections 6
and 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet._typing import Integers
from discreet.mechanisms.additive import GaussianNoise
from discreet.mechanisms.recording import observed
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Composed, Discretized, Event, Gaussian, Repeated
from discreet.privacy.guarantee import SLACK, Sensitivity

Counts = NDArray[np.integer[Any]]

ABSTAINED, HALTED = -1, -2  # codes of questions without an answer
_BLOCK = 1 << 15
_LARGEST_STDDEV = 2.0**30  # the noise's grid must contain the integers


def stability(counts: Counts, changed: int = 1) -> tuple[Integers, Integers]:
    """Return the winner of every vote and its distance to instability, max(0, (gap - 1) // (2 changed)).

    Parameters
    ----------
    counts : array (n_queries, n_classes) of votes, with every class included.
    changed : how many votes one record can change.

    Privacy
    -------
    The distance has sensitivity 1, and whenever the winners of neighbors differ it is 0 on both sides (ties go
    to the first class). Both are private: use them as inputs of a mechanism, not as results.

    Examples
    --------
    >>> stability(np.array([[7, 2, 1], [3, 4, 3], [5, 5, 0]]))
    (array([0, 1, 0]), array([2, 0, 0]))
    """
    counts = _checked(counts)
    winners = np.empty(len(counts), dtype=np.int64)
    distances = np.empty(len(counts), dtype=np.int64)
    for begin in range(0, len(counts), _BLOCK):
        block = counts[begin : begin + _BLOCK].astype(np.int64)
        winners[begin : begin + _BLOCK] = block.argmax(axis=1)
        highest = np.partition(block, -2, axis=1)[:, -2:]
        gap = highest[:, 1] - highest[:, 0]
        distances[begin : begin + _BLOCK] = np.maximum(0, (gap - 1) // (2 * changed))
    return winners, distances


@dataclass(frozen=True)
class NoisyPlurality:
    """The class with the most votes after Gaussian noise (GNMax): every question is answered.

    Parameters
    ----------
    noise_multiplier : float
        Noise over the L2 sensitivity sqrt(2) ``changed`` of one vote vector.
    n_classes, n_queries, changed : int
        Public sizes; the budget is for ``n_queries`` questions, with no answers after them.

    Privacy
    -------
    ``n_queries`` Gaussian mechanisms of ``noise_multiplier``; the noise is discrete Gaussian on a grid finer
    than 2^-30 of its scale, added to integers. The guarantee does not depend on the votes.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson (2018), GNMax.
    """

    noise_multiplier: float
    n_classes: int
    n_queries: int
    changed: int = 1

    def __post_init__(self) -> None:
        _check_sizes(n_queries=self.n_queries, changed=self.changed, n_classes=self.n_classes)
        self.noise  # noqa: B018 - a scale out of range is refused here

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on every count."""
        return self.noise_multiplier * self.changed * math.sqrt(2) * SLACK

    @cached_property
    def noise(self) -> GaussianNoise:
        """The noise on every count."""
        return _vote_noise(self.stddev)

    @property
    def event(self) -> Event:
        """The event of all questions together."""
        return Repeated(Discretized(Gaussian(self.noise_multiplier), self.n_classes), self.n_queries)

    def gap_needed(self, n_queries: int, beta: float) -> float:
        """Return the lead at which ``n_queries`` questions all get the true winner with probability 1 - beta."""
        return -self.stddev * math.sqrt(2) * float(ndtri(beta / (n_queries * (self.n_classes - 1))))

    def start(self, entropy: Entropy) -> PluralityRun:
        """Start answering."""
        return PluralityRun(self, entropy)


@dataclass(frozen=True)
class ConfidentPlurality:
    """A noisy plurality that first checks, with separate noise, whether enough models agree.

    Parameters
    ----------
    threshold : int
        Votes that the winner should have.
    check_multiplier, vote_multiplier : float
        Noise over sensitivity of the check (sensitivity ``changed``) and of the vote (sqrt(2) ``changed``).
    max_answers : int
        Answers after which the mechanism halts. The number of answers depends on the data, so all of them are paid
        for in advance.

    Privacy
    -------
    ``n_queries`` checks and ``max_answers`` votes, all of them Gaussian, composed exactly.

    References
    ----------
    Papernot et al. (2018), Confident-GNMax.
    """

    threshold: int
    check_multiplier: float
    vote_multiplier: float
    n_classes: int
    n_queries: int
    max_answers: int
    changed: int = 1

    def __post_init__(self) -> None:
        _check_sizes(
            n_queries=self.n_queries,
            changed=self.changed,
            n_classes=self.n_classes,
            max_answers=self.max_answers,
        )
        self.check_noise, self.vote_noise  # noqa: B018 - scales out of range are refused here

    @cached_property
    def check_noise(self) -> GaussianNoise:
        """The noise of the check."""
        return _vote_noise(self.check_multiplier * self.changed * SLACK)

    @cached_property
    def vote_noise(self) -> GaussianNoise:
        """The noise on every count."""
        return _vote_noise(self.vote_multiplier * self.changed * math.sqrt(2) * SLACK)

    @property
    def event(self) -> Event:
        """The event of all questions together."""
        checks = Repeated(Discretized(Gaussian(self.check_multiplier), 1), self.n_queries)
        votes = Repeated(Discretized(Gaussian(self.vote_multiplier), self.n_classes), self.max_answers)
        return Composed((checks, votes))

    def start(self, entropy: Entropy) -> PluralityRun:
        """Start answering."""
        return PluralityRun(self, entropy)


class PluralityRun:
    """Questions asked and answered so far by a plain or confident noisy plurality."""

    def __init__(self, mechanism: NoisyPlurality | ConfidentPlurality, entropy: Entropy) -> None:
        self.mechanism = mechanism
        self.n_asked = 0
        self.n_answered = 0
        self._entropy = entropy
        if isinstance(mechanism, NoisyPlurality):
            self._most, self._noise = mechanism.n_queries, mechanism.noise
            self._multiplier = mechanism.noise_multiplier
        else:
            self._most, self._noise = mechanism.max_answers, mechanism.vote_noise
            self._multiplier = mechanism.vote_multiplier

    @property
    def answers_left(self) -> int:
        """Answers that remain."""
        return min(self._most - self.n_answered, self.mechanism.n_queries - self.n_asked)

    def left(self) -> dict[str, int]:
        """Return the numbers of questions and answers that remain."""
        return {"questions": self.mechanism.n_queries - self.n_asked, "answers": self.answers_left}

    @property
    def halted(self) -> bool:
        """Whether the budget is used up."""
        return self.answers_left <= 0

    def answer(self, counts: Counts) -> Integers:
        """Return class codes of a sequence of questions, in order; ``ABSTAINED`` or ``HALTED`` without an answer."""
        counts = _checked(counts, self.mechanism.n_classes)
        codes = np.full(len(counts), HALTED, dtype=np.int64)
        for begin in range(0, len(counts), _BLOCK):
            room = self.mechanism.n_queries - self.n_asked
            block = counts[begin : min(begin + _BLOCK, begin + room)].astype(np.int64)
            if self.halted or not len(block):
                break
            passed, asked = self._passed(block)
            block, passed = block[:asked], passed[:asked]
            found = np.full(asked, ABSTAINED, dtype=np.int64)
            found[passed] = self._winners(block[passed])
            codes[begin : begin + asked] = found
            self.n_asked += asked
            self.n_answered += int(passed.sum())
        return codes

    def _passed(self, block: Integers) -> tuple[NDArray[np.bool_], int]:
        """Return which questions have enough agreement, and how many are asked before the answers run out."""
        mechanism = self.mechanism
        if isinstance(mechanism, NoisyPlurality):
            return np.ones(len(block), dtype=bool), len(block)
        noise = mechanism.check_noise
        unit = round(1 / noise.grid)
        highest = block.max(axis=1)
        noisy = highest * unit + noise.draw_integers(len(block), self._entropy)
        passed = self._recorded(
            noisy >= mechanism.threshold * unit, highest, noise, mechanism.changed, mechanism.check_multiplier
        )
        last = np.flatnonzero(passed)[self.answers_left - 1 : self.answers_left]
        return passed, int(last[0]) + 1 if len(last) else len(block)

    def _winners(self, counts: Integers) -> Integers:
        """Return the noisy pluralities of some votes."""
        noise, distance = self._noise, self.mechanism.changed * math.sqrt(2)
        noisy = counts * round(1 / noise.grid) + noise.draw_integers(counts.shape, self._entropy)
        winners = np.asarray(noisy.argmax(axis=1), dtype=np.int64)
        return self._recorded(winners, counts, noise, distance, self._multiplier)

    def _recorded(
        self, answers: NDArray[Any], votes: Integers, noise: GaussianNoise, distance: float, multiplier: float
    ) -> NDArray[Any]:
        """Record answers to k questions: k Gaussian mechanisms, whose inputs together move by sqrt(k) ``distance``."""
        asked = len(votes)
        if not asked:
            return answers
        return observed(
            self.mechanism,
            self._entropy,
            answers,
            scale=noise.effective_stddev,
            value=votes,
            sensitivity=Sensitivity(distance * math.sqrt(asked) * SLACK),
            event=Repeated(Discretized(Gaussian(multiplier), votes[0].size), asked),
            additive=False,
        )

    def secret_state(self) -> dict[str, int]:
        """Return the state needed to continue in another process."""
        return {"n_asked": self.n_asked, "n_answered": self.n_answered}

    @staticmethod
    def resumed(
        mechanism: NoisyPlurality | ConfidentPlurality, state: dict[str, int], entropy: Entropy
    ) -> PluralityRun:
        """Continue the run saved by ``secret_state``."""
        run = PluralityRun(mechanism, entropy)
        run.n_asked, run.n_answered = int(state["n_asked"]), int(state["n_answered"])
        return run


def _vote_noise(stddev: float) -> GaussianNoise:
    if not 2.0**-10 <= stddev <= _LARGEST_STDDEV:
        raise ValueError(
            f"the noise on a vote count must have a scale between 2^-10 and 2^30, got {stddev!r}"
        )
    return GaussianNoise(stddev)


def _checked(counts: Counts, n_classes: int | None = None) -> Counts:
    counts = np.asarray(counts)
    if counts.ndim != 2 or counts.shape[1] < 2 or not np.issubdtype(counts.dtype, np.integer):
        raise TypeError(
            "votes must be an array (n_queries, n_classes) of whole numbers, with at least two classes"
        )
    if n_classes is not None and counts.shape[1] != n_classes:
        raise ValueError(f"this mechanism was planned for {n_classes} classes, got {counts.shape[1]}")
    return counts


def _check_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        least = 2 if name == "n_classes" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
