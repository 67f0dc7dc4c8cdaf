"""Plan a transfer from public numbers: which aggregator, how many teachers, how many unstable answers.

`plan_transfer` chooses before any data is seen; `TransferPlan` holds the choice and its price, and runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _checks
from discreet._checks import ParameterError
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.mechanisms.voting import ConfidentPlurality, Counts, NoisyPlurality
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Composed, Discretized, Event, Gaussian, Repeated
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.page import ShowsPlan
from discreet.transfer import base
from discreet.transfer.aggregation import (
    Aggregator,
    PluralityVotes,
    SharedVotes,
    StableVotes,
    Streamed,
    VoteRun,
)

ASKED_FOR = "asked for"
BETA = 0.05  # probability that a stable question is refused, or a clear vote overturned, at the stated lead
_WASTED = 0.25  # share of the refusals that may be used up by questions with the stated lead


@dataclass(frozen=True)
class VoteRelease:
    """The output of a run: a class code per question (negative: no answer), and whether the noise was secret.

    shares : noisy share of the teachers for every class, minus 1 / K; None if only winners are released.
    """

    codes: NDArray[np.int64]
    secure: bool
    left: Mapping[str, int]
    shares: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class TransferPlan(ShowsPlan):
    """A calibrated transfer, frozen before any data is seen.

    Attributes
    ----------
    guarantee : the guarantee of all answers together.
    n_samples, n_classes, n_queries : public sizes; the first counts users if these are protected.
    n_teachers : models trained on disjoint chunks.
    aggregator : how votes become answers, with its noise.
    reason : why this aggregator, from public numbers.

    Privacy
    -------
    ``event`` covers every answer of the aggregator. Questions must be public, and each record may enter only its chunk
    of ``transfer.teachers``.
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
        return self.aggregator.event

    @property
    def mechanism(self) -> str:
        return _WORDS[self.aggregator.name][0]

    @property
    def theorem(self) -> str:
        return _WORDS[self.aggregator.name][1]

    @property
    def changed(self) -> int:
        """Votes that one protected unit can change."""
        return self.aggregator.changed

    @property
    def sizes(self) -> dict[str, float | str]:
        """The public sizes named in a privacy statement."""
        return {
            "teachers": float(self.n_teachers),
            "questions": float(self.n_queries),
            "classes": float(self.n_classes),
        }

    @property
    def max_unstable(self) -> int | None:
        """Unstable answers after which the stream halts; None if they are not counted."""
        return self.aggregator.vector.max_unstable if isinstance(self.aggregator, StableVotes) else None

    @property
    def gap_needed(self) -> float:
        """Lead of the winner, in votes.

        With sparse vector, the lead at which this many questions would use up a quarter of the refusals; with a
        plurality, the lead at which a question gets the true winner with probability 95%.
        """
        if self.max_unstable is None:
            return self.aggregator.gap_needed(1, BETA)
        return self.aggregator.gap_needed(questions_to_answer(self.n_queries, self.max_unstable), BETA)

    @property
    def consensus_needed(self) -> float:
        """The same lead as the share of teachers that agree; above 1 it cannot be reached."""
        return 0.5 + self.gap_needed / (2 * self.n_teachers)

    @property
    def noise(self) -> Mapping[str, float | str]:
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
        """Start a stream of questions, after the charge."""
        return self._streamed.start(entropy)

    def resume(self, state: dict[str, int], entropy: Entropy) -> VoteRun:
        """Continue a stream from its secret state."""
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
        promise, counted = self.guarantee, base.counted(self.guarantee)
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
        """Return what the teachers, or the student, must achieve for the plan to be useful."""
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
        "teachers on disjoint chunks, the sum of their vote shares with Gaussian noise",
        "Gaussian mechanism (Balle and Wang, 2018) on vectors of bounded norm, docs/proofs/vote-shares.md theorem 1",
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


def questions_to_answer(n_queries: int, max_unstable: int) -> int:
    """Return how many questions must all be answered, with probability 1 - BETA, so that few refusals are wasted.

    If each of n questions is refused with probability p, n p <= _WASTED max_unstable means p <= BETA / this number.
    """
    return max(1, math.ceil(n_queries * BETA / (_WASTED * max_unstable)))


AGGREGATORS = ("auto", "shares", "sparse-vector", "plurality", "confident")
_AGREEMENT = 0.95  # share of teachers assumed to agree
_LEAST_ROWS = 50  # records, or users, per teacher; more teachers are not proposed below this
_CHECK_SHARE = 0.25  # of the squared Gaussian-DP parameter, for the agreement checks of "confident"
_CHECK_AT = 0.6  # share of the votes asked for by that check
_WRONG_IN_STREAM = 0.005  # chance that noise overturns a question of a stream at that agreement
_EXPECTED_UNSTABLE = 0.0015  # of the questions, where the caller has no guess
# Noise on a lead, over the lead of unanimous teachers: what students are expected to average away.
_SHARE_NOISE = 1.25


def plan_votes(
    model: Any, chosen: base.Settings, n_classes: int, n_queries: int, *, stream: bool = False
) -> TransferPlan:
    """Return the plan of a classifier or labeler, from its parameters and public sizes."""
    return plan_transfer(
        chosen.guarantee,
        chosen.size,
        n_classes,
        n_queries,
        n_teachers=model.n_teachers,
        aggregator=model.aggregator,
        max_unstable=model.max_unstable,
        expected_unstable=model.expected_unstable,
        changed=chosen.changed,
        stream=stream,
    )


def plan_transfer(
    guarantee: Guarantee,
    n_samples: int,
    n_classes: int,
    n_queries: int,
    *,
    n_teachers: int | str = "auto",
    aggregator: str = "auto",
    max_unstable: int | str = "auto",
    expected_unstable: float | None = None,
    changed: int = 1,
    stream: bool = False,
) -> TransferPlan:
    """Choose what the public numbers allow.

    Parameters
    ----------
    guarantee : the promise to keep.
    n_samples, n_classes, n_queries : public sizes; the number of records, of users where these are protected, or a
        public bound on it.
    n_teachers : how many; "auto" takes as many as the aggregator needs at 95% agreement (for a stream, to answer a
        question with 99.5% probability), or as make the noise on a lead 1.25 times a unanimous lead ("shares"), with
        at least 50 records each.
    aggregator : "shares" (noisy votes of all classes, for a student to average), "sparse-vector" (pays for unstable
        questions only), "plurality" (answers everything, with noise that grows with the square root of the number of
        questions), "confident" (plurality that may abstain), or "auto".
    max_unstable : refusals that sparse vector can afford; "auto" takes the most for which 95% agreement is still
        enough, so more teachers allow more of them.
    expected_unstable : public guess of the share of questions on which teachers disagree. With None, "auto" takes
        shares, which need no agreement, for a student, and a plurality, which answers every question, for a stream if
        its noise allows that many questions.
    changed : votes that one protected unit can change.
    stream : whether questions come one by one; then shares are not available.

    Examples
    --------
    >>> print(plan_transfer(Guarantee(1.0, 1e-6), 494_000, 2, 5_000))
    Plan: teachers on disjoint chunks, the sum of their vote shares with Gaussian noise
      aggregator                            shares: nothing is known about how well teachers agree, ...
      guarantee                             (1, 1e-06), replace-one, unit: record
      records, classes, questions           494000, 2, 5000
      teachers                              ...
    """
    n_samples = _checks.count("n_samples", n_samples)
    n_classes = _checks.count("n_classes", n_classes, at_least=2)
    n_queries = _checks.count("n_queries", n_queries)
    name = _checks.choice("aggregator", aggregator, AGGREGATORS)
    teachers = _count_or_auto("n_teachers", n_teachers, at_least=2)
    unstable = _count_or_auto("max_unstable", max_unstable, at_least=1)
    if expected_unstable is not None and not 0 <= expected_unstable <= 1:
        raise ParameterError("expected_unstable", f"must lie between 0 and 1, got {expected_unstable!r}")
    if guarantee.delta == 0:
        raise ValueError("private votes need delta > 0; choose for instance delta = 1 / n_samples**2")
    if teachers is not None and teachers > n_samples:
        raise ValueError(
            f"n_teachers={teachers} is more than the {n_samples} {base.counted(guarantee)}: some teachers would "
            f"never see one; use at most {n_samples}, better n_samples // {_LEAST_ROWS} = "
            f"{max(2, n_samples // _LEAST_ROWS)}"
        )
    if n_samples < 2:
        raise ValueError("a transfer needs at least two teachers, and so at least two records")
    sizes = _Sizes(guarantee, n_samples, n_classes, n_queries, changed)
    share = _EXPECTED_UNSTABLE if expected_unstable is None else expected_unstable
    expected = max(1, math.ceil(share * n_queries)) if unstable is None else unstable
    reason = ASKED_FOR
    if name == "auto" and unstable is not None:
        name, reason = "sparse-vector", "refusals are counted"
    elif name == "auto" and expected_unstable is None and not stream:
        name, reason = (
            "shares",
            "nothing is known about how well teachers agree, and a student averages out noise",
        )
    elif name == "auto":
        name, reason = _chosen(sizes, teachers, expected, guessed=expected_unstable is not None)
    if name == "shares":
        if stream:
            raise ValueError(NO_STREAM)
        shared = sizes.shares()
        count = teachers or min(sizes.most_teachers, sizes.teachers_for_shares(shared))
        return sizes.plan(count, shared, reason)
    if name != "sparse-vector":
        plurality = sizes.plurality()
        # A wrong label now and then does not spoil a student; the answers of a stream are used as they are.
        wrong = _WRONG_IN_STREAM if stream else BETA
        count = teachers or sizes.teachers_for(plurality.gap_needed(1, wrong))
        return sizes.plan(count, plurality if name == "plurality" else sizes.confident(count), reason)
    count = teachers or sizes.teachers_for(sizes.stable_gap(expected))
    refusals = _largest_fitting(sizes, count) if unstable is None else unstable
    return sizes.plan(count, sizes.stable(refusals), reason)


@dataclass(frozen=True)
class _Sizes:
    """The public facts every choice is made from."""

    guarantee: Guarantee
    n_samples: int
    n_classes: int
    n_queries: int
    changed: int

    @property
    def most_teachers(self) -> int:
        return max(2, self.n_samples // _LEAST_ROWS)

    def teachers_for(self, gap: float) -> int:
        return min(self.most_teachers, max(2, math.ceil(gap / (2 * _AGREEMENT - 1))))

    def teachers_for_shares(self, shared: SharedVotes) -> int:
        return max(2, math.ceil(math.sqrt(2) * shared.stddev / _SHARE_NOISE))

    def lead(self, n_teachers: int) -> float:
        """The lead that agreement as assumed gives."""
        return (2 * _AGREEMENT - 1) * n_teachers

    def stable(self, max_unstable: int) -> StableVotes:
        promise = self.guarantee
        most = questions_to_answer(self.n_queries, max_unstable)
        vector = SparseVector.calibrated(promise.epsilon, promise.delta, max_unstable, most, BETA)
        return StableVotes(vector, self.changed)

    def stable_gap(self, max_unstable: int) -> float:
        return self.stable(max_unstable).gap_needed(questions_to_answer(self.n_queries, max_unstable), BETA)

    def plurality(self) -> PluralityVotes:
        def event(multiplier: float) -> Event:
            return Repeated(Discretized(Gaussian(multiplier), self.n_classes), self.n_queries)

        multiplier = calibrate(event, self.guarantee)
        return PluralityVotes(NoisyPlurality(multiplier, self.n_classes, self.n_queries, self.changed))

    def shares(self) -> SharedVotes:
        size = self.n_queries * self.n_classes
        multiplier = calibrate(lambda x: Discretized(Gaussian(x), size), self.guarantee)
        return SharedVotes(multiplier, self.n_classes, self.n_queries, self.changed)

    def confident(self, n_teachers: int) -> PluralityVotes:
        check, vote = 1 / math.sqrt(_CHECK_SHARE), 1 / math.sqrt(1 - _CHECK_SHARE)

        def event(multiplier: float) -> Event:
            checks = Repeated(Discretized(Gaussian(check * multiplier), 1), self.n_queries)
            votes = Repeated(Discretized(Gaussian(vote * multiplier), self.n_classes), self.n_queries)
            return Composed((checks, votes))

        multiplier = calibrate(event, self.guarantee)
        return PluralityVotes(
            ConfidentPlurality(
                threshold=math.ceil(_CHECK_AT * n_teachers),
                check_multiplier=check * multiplier,
                vote_multiplier=vote * multiplier,
                n_classes=self.n_classes,
                n_queries=self.n_queries,
                max_answers=self.n_queries,
                changed=self.changed,
            )
        )

    def plan(self, n_teachers: int, aggregator: Aggregator, reason: str) -> TransferPlan:
        return TransferPlan(
            self.guarantee, self.n_samples, self.n_classes, self.n_queries, n_teachers, aggregator, reason
        )


def _chosen(sizes: _Sizes, teachers: int | None, expected: int, *, guessed: bool) -> tuple[str, str]:
    """The aggregator of a stream, or of a student with a guess of the disagreement, by public rule, and why.

    Without a guess, a plurality wherever its noise on a lead is no more than the lead that agreement gives: it answers
    every question, and sparse vector halts early if there are more unstable questions than expected. Otherwise the one
    that needs the smaller lead, and sparse vector also where it fits anyway.
    """
    lead = sizes.lead(sizes.most_teachers if teachers is None else teachers)
    plurality = sizes.plurality()
    if not guessed and plurality.lead_stddev <= lead:
        return (
            "plurality",
            "nothing is known about how well teachers agree, and a plurality answers every question",
        )
    stable, plural = sizes.stable_gap(expected), plurality.gap_needed(sizes.n_queries, BETA)
    if stable <= max(plural, lead):
        return (
            "sparse-vector",
            f"{expected} unstable answers expected, for which it needs a lead of {stable:.0f}",
        )
    return "plurality", f"a lead of {plural:.0f} where sparse vector needs {stable:.0f}"


def _largest_fitting(sizes: _Sizes, n_teachers: int) -> int:
    """Return the most unstable answers, from 1 to the number of questions, whose lead the teachers can reach."""

    def fits(count: int) -> bool:
        return sizes.stable_gap(count) <= sizes.lead(n_teachers)

    if not fits(1):
        return 1
    low, high = 1, sizes.n_queries + 1  # fits(low); the answer is below high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _count_or_auto(name: str, value: Any, *, at_least: int) -> int | None:
    if isinstance(value, str):
        if value != "auto":
            raise ParameterError(name, f"must be a whole number or 'auto', got {value!r}")
        return None
    hint = (
        "with 0 nothing could ever be asked"
        if name == "max_unstable"
        else "one teacher alone has no majority"
    )
    return _checks.count(name, value, at_least=at_least, hint=hint)
