"""A calibrated transfer: what was chosen before any data is seen, what it costs, and the only thing that runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.voting import Counts, NoisyPlurality
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee
from discreet.transfer import partition
from discreet.transfer.aggregation import Aggregator, SharedVotes, StableVotes, Streamed, VoteRun

ASKED_FOR = "asked for"
BETA = 0.05  # chance that a stable question is refused, or a clear vote overturned, at the stated lead
_WASTED = 0.25  # share of the refusals that may fall on questions with the stated lead


@dataclass(frozen=True)
class VoteRelease:
    """What a run gives out: a class code per question (negative: no answer), and whether the noise was secret.

    shares : noisy share of the teachers for every class, less 1 / K; None where only winners are released.
    """

    codes: NDArray[np.int64]
    secure: bool
    left: Mapping[str, int]
    shares: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class TransferPlan:
    """A calibrated transfer, frozen before any data is seen.

    Attributes
    ----------
    guarantee : the promise.
    n_samples, n_classes, n_queries : public sizes; the first counts users where these are protected.
    n_teachers : models trained on disjoint chunks.
    aggregator : how votes become answers, with its noise.
    reason : why this aggregator, from public numbers.

    Privacy
    -------
    ``event`` covers every answer the aggregator gives. Questions must be public, and each record must reach the
    chunk of ``transfer.partition`` alone.
    """

    guarantee: Guarantee
    n_samples: int
    n_classes: int
    n_queries: int
    n_teachers: int
    aggregator: Aggregator
    reason: str = ASKED_FOR

    @property
    def event(self) -> Event:
        """What will be charged."""
        return self.aggregator.event

    @property
    def mechanism(self) -> str:
        """The mechanism in words."""
        return _WORDS[self.aggregator.name][0]

    @property
    def theorem(self) -> str:
        """Why the promise holds."""
        return _WORDS[self.aggregator.name][1]

    @property
    def changed(self) -> int:
        """Votes that one protected unit can move."""
        return self.aggregator.changed

    @property
    def sizes(self) -> dict[str, float | str]:
        """The public sizes that a statement of privacy names."""
        return {
            "teachers": float(self.n_teachers),
            "questions": float(self.n_queries),
            "classes": float(self.n_classes),
        }

    @property
    def max_unstable(self) -> int | None:
        """Unstable answers after which the stream halts; None where nothing is counted."""
        return self.aggregator.vector.max_unstable if isinstance(self.aggregator, StableVotes) else None

    @property
    def gap_needed(self) -> float:
        """Lead of the winner, in votes: with sparse vector the one at which so many questions would use up a
        quarter of the refusals, with a plurality the one at which a question gets the true winner with
        probability 95%.
        """
        if self.max_unstable is None:
            return self.aggregator.gap_needed(1, BETA)
        return self.aggregator.gap_needed(worth(self.n_queries, self.max_unstable), BETA)

    @property
    def consensus_needed(self) -> float:
        """The same lead as the share of teachers that agree; above 1 it is out of reach."""
        return 0.5 + self.gap_needed / (2 * self.n_teachers)

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        aggregator = self.aggregator
        shared: dict[str, float | str] = {"votes one unit can move": float(self.changed)}
        if isinstance(aggregator, StableVotes):
            vector = aggregator.vector
            return {
                "noise scale of the threshold": vector.threshold_scale,
                "noise scale of a question": vector.query_scale,
                "margin": float(vector.margin),
                "unstable answers": float(vector.max_unstable),
                "threshold": "renewed after every refusal" if vector.refresh else "one for the whole stream",
                **shared,
            }
        if isinstance(aggregator, SharedVotes):
            return {
                "noise standard deviation of a count": aggregator.stddev,
                "noise on a lead, of all teachers": self.share_noise,
                "teachers one unit can change": float(self.changed),
            }
        mechanism = aggregator.mechanism
        if isinstance(mechanism, NoisyPlurality):
            return {"noise standard deviation of a count": mechanism.stddev, **shared}
        return {
            "noise standard deviation of a check": mechanism.check_noise.stddev,
            "noise standard deviation of a count": mechanism.vote_noise.stddev,
            "votes asked for": float(mechanism.threshold),
            "answers": float(mechanism.max_answers),
            **shared,
        }

    @property
    def share_noise(self) -> float:
        """Standard deviation of the noise on the lead of a class over another, as a share of the teachers."""
        if not isinstance(self.aggregator, SharedVotes):
            raise AttributeError("only aggregator='shares' releases leads")
        return math.sqrt(2) * self.aggregator.stddev / self.n_teachers

    def start(self, entropy: Entropy) -> VoteRun:
        """Begin a stream of questions, after the charge."""
        return self._streamed.start(entropy)

    def resume(self, state: dict[str, int], entropy: Entropy) -> VoteRun:
        """Continue a stream where its secret state says."""
        return self._streamed.resumed(state, entropy)

    @property
    def _streamed(self) -> Streamed:
        if isinstance(self.aggregator, SharedVotes):
            raise TypeError(NO_STREAM)
        return self.aggregator

    def run(self, counts: Counts, entropy: Entropy) -> VoteRelease:
        """Answer all questions: the only place where votes meet noise."""
        if isinstance(self.aggregator, SharedVotes):
            shares = self.aggregator.release(counts, entropy) / self.n_teachers
            return VoteRelease(shares.argmax(axis=1), entropy.secure, {}, shares)
        stream = self.start(entropy)
        return VoteRelease(stream.answer(counts), entropy.secure, stream.left())

    def __str__(self) -> str:
        promise, counted = self.guarantee, partition.counted(self.guarantee)
        lines = [
            f"Plan: {self.mechanism}",
            f"  {'aggregator':<38}{self.aggregator.name}: {self.reason}",
            f"  {'guarantee':<38}({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}, "
            f"unit: {promise.unit}",
            f"  {counted + ', classes, questions':<38}{self.n_samples}, {self.n_classes}, {self.n_queries}",
            f"  {'teachers':<38}{self.n_teachers}  (about {self.n_samples / self.n_teachers:.0f} {counted} each)",
            *(
                f"  {name:<38}{v if isinstance(v, str) else format(v, '.6g')}"
                for name, v in self.noise.items()
            ),
            *(f"  {name:<38}{text}" for name, text in self._needs()),
        ]
        return "\n".join(lines)

    def _needs(self) -> list[tuple[str, str]]:
        """What the teachers, or the student, must achieve for the plan to be of use."""
        if isinstance(self.aggregator, SharedVotes):
            rows = max(1, math.ceil((2 * self.share_noise) ** 2))
            verdict = (
                "" if rows < self.n_queries / 20 else "  (out of reach: more records or a larger epsilon)"
            )
            return [
                ("the student must average over", f"about {rows} rows where teachers lead by half{verdict}")
            ]
        consensus = self.consensus_needed
        verdict = (
            "" if consensus <= 1 else "  (out of reach: more teachers, fewer questions or a larger epsilon)"
        )
        return [
            ("lead needed", f"{self.gap_needed:.0f} votes"),
            ("consensus needed", f"{consensus:.1%} of the teachers{verdict}"),
        ]


NO_STREAM = "aggregator='shares' answers all questions at once; for a stream choose another one"
_WORDS = {
    "shares": (
        "teachers on disjoint chunks, the sum of their opinions with Gaussian noise",
        "Gaussian mechanism (Balle and Wang, 2018) on opinions of bounded length, docs/proofs/vote-shares.md theorem 1",
    ),
    "sparse-vector": (
        "teachers on disjoint chunks, stable votes released by sparse vector with one-sided noise",
        "sparse vector with distance to instability: docs/proofs/sparse-vector.md, theorems 1 to 3 "
        "(after Dwork and Roth, 2014; Thakkar, 2019, chapter 5)",
    ),
    "plurality": (
        "teachers on disjoint chunks, plurality of votes with Gaussian noise",
        "GNMax (Papernot et al., 2018), data-independent, composed as Gaussian DP (Dong, Roth and Su, 2022)",
    ),
    "confident": (
        "teachers on disjoint chunks, plurality of votes with Gaussian noise after a noisy check of agreement",
        "Confident-GNMax (Papernot et al., 2018), data-independent with a fixed number of answers, composed as "
        "Gaussian DP (Dong, Roth and Su, 2022)",
    ),
}


def worth(n_queries: int, max_unstable: int) -> int:
    """How many questions must all be answered, up to probability BETA, for refusals to be wasted rarely.

    If n questions have a chance p of refusal each, n p <= _WASTED max_unstable is p <= BETA / this number.
    """
    return max(1, math.ceil(n_queries * BETA / (_WASTED * max_unstable)))
