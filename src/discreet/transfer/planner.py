"""The plan of a transfer: which aggregator, how many teachers, how many unstable answers, from public numbers.

Nothing here sees data. ``plan_transfer`` chooses, ``TransferPlan`` is the choice: printable, priced, and the
only thing that knows how to run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.mechanisms.voting import ConfidentPlurality, Counts, NoisyPlurality
from discreet.privacy.calibration import calibrate
from discreet.privacy.events import Composed, Discretized, Event, Gaussian, Repeated
from discreet.privacy.guarantee import Guarantee
from discreet.transfer.aggregation import Aggregator, PluralityVotes, StableVotes, VoteRun

AGGREGATORS = ("auto", "sparse-vector", "plurality", "confident")
BETA = 0.05  # chance that a stable question is refused, or a clear vote overturned, at the stated lead
_AGREEMENT = 0.95  # the share of teachers assumed to agree where agreement is to be had
_WASTED = 0.25  # share of the refusals that may fall on questions with the stated lead
_LEAST_ROWS = 50  # records per teacher below which more teachers are not proposed
_CHECK_SHARE = 0.25  # of the squared Gaussian-DP parameter, for the agreement checks of "confident"
_CHECK_AT = 0.6  # share of the votes asked for by that check


@dataclass(frozen=True)
class VoteRelease:
    """What a run gives out: a class code per question (negative: no answer), and whether the noise was secret."""

    codes: NDArray[np.int64]
    secure: bool
    left: Mapping[str, int]


@dataclass(frozen=True)
class TransferPlan:
    """A calibrated transfer, frozen before any data is seen.

    Attributes
    ----------
    guarantee : the promise.
    n_samples, n_classes, n_queries : public sizes.
    n_teachers : models trained on disjoint chunks.
    aggregator : how votes become answers, with its noise.

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
        return self.aggregator.gap_needed(_worth(self.n_queries, self.max_unstable), BETA)

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

    def start(self, entropy: Entropy) -> VoteRun:
        """Begin a stream of questions, after the charge."""
        return self.aggregator.start(entropy)

    def run(self, counts: Counts, entropy: Entropy) -> VoteRelease:
        """Answer all questions: the only place where votes meet noise."""
        stream = self.start(entropy)
        return VoteRelease(stream.answer(counts), entropy.secure, stream.left())

    def __str__(self) -> str:
        promise, consensus = self.guarantee, self.consensus_needed
        verdict = (
            "" if consensus <= 1 else "  (out of reach: more teachers, fewer questions or a larger epsilon)"
        )
        lines = [
            f"Plan: {self.mechanism}",
            f"  {'guarantee':<38}({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}, "
            f"unit: {promise.unit}",
            f"  {'records, classes, questions':<38}{self.n_samples}, {self.n_classes}, {self.n_queries}",
            f"  {'teachers':<38}{self.n_teachers}  (about {self.n_samples / self.n_teachers:.0f} records each)",
            *(
                f"  {name:<38}{v if isinstance(v, str) else format(v, '.6g')}"
                for name, v in self.noise.items()
            ),
            f"  {'lead needed':<38}{self.gap_needed:.0f} votes",
            f"  {'consensus needed':<38}{consensus:.1%} of the teachers{verdict}",
        ]
        return "\n".join(lines)


_WORDS = {
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


def plan_transfer(
    guarantee: Guarantee,
    n_samples: int,
    n_classes: int,
    n_queries: int,
    *,
    n_teachers: int | str = "auto",
    aggregator: str = "auto",
    max_unstable: int | str = "auto",
    expected_unstable: float = 0.0015,
    changed: int = 1,
) -> TransferPlan:
    """Choose what the public numbers allow.

    Parameters
    ----------
    guarantee : the promise to keep.
    n_samples, n_classes, n_queries : public sizes; the number of records or a public bound on it.
    n_teachers : how many; "auto" takes as many as the aggregator needs at 95% agreement, with at least 50
        records each.
    aggregator : "sparse-vector" (pays for unstable questions only), "plurality" (answers everything, at a noise
        that grows with the square root of the questions), "confident" (plurality that may abstain), or "auto".
    max_unstable : refusals that sparse vector can afford; "auto" takes the most at which 95% agreement is
        still enough, so that more teachers afford more of them.
    expected_unstable : share of the questions on which teachers are expected to disagree: a public guess.
    changed : votes that one protected unit can move.

    Examples
    --------
    >>> print(plan_transfer(Guarantee(1.0, 1e-6), 494_000, 2, 5_000))
    Plan: teachers on disjoint chunks, stable votes released by sparse vector with one-sided noise
      guarantee                             (1, 1e-06), replace-one, unit: record
      records, classes, questions           494000, 2, 5000
      teachers                              ...
    """
    n_samples = _inputs.count("n_samples", n_samples)
    n_classes = _inputs.count("n_classes", n_classes, at_least=2)
    n_queries = _inputs.count("n_queries", n_queries)
    name = _inputs.choice("aggregator", aggregator, AGGREGATORS)
    teachers = _wanted("n_teachers", n_teachers, at_least=2)
    unstable = _wanted("max_unstable", max_unstable, at_least=1)
    if not 0 <= expected_unstable <= 1:
        raise ValueError(f"expected_unstable must lie between 0 and 1, got {expected_unstable!r}")
    if guarantee.delta == 0:
        raise ValueError("private votes need delta > 0; choose for instance delta = 1 / n_samples**2")
    if teachers is not None and teachers > n_samples:
        raise ValueError(
            f"n_teachers={teachers} is more than the {n_samples} records: some teachers would never see one; "
            f"use at most {n_samples}, better n_samples // {_LEAST_ROWS} = {max(2, n_samples // _LEAST_ROWS)}"
        )
    if n_samples < 2:
        raise ValueError("two teachers at least are needed, and so are two records")
    sizes = _Sizes(guarantee, n_samples, n_classes, n_queries, changed)
    expected = max(1, math.ceil(expected_unstable * n_queries)) if unstable is None else unstable
    if name == "auto":
        name = "sparse-vector" if unstable is not None else _better(sizes, teachers, expected)
    if name != "sparse-vector":
        gaussian = sizes.plurality() if name == "plurality" else None
        # A wrong label now and then does not spoil a student: here one question at a time must come out right.
        count = teachers or sizes.teachers_for((gaussian or sizes.plurality()).gap_needed(1, BETA))
        return sizes.plan(count, gaussian or sizes.confident(count))
    count = teachers or sizes.teachers_for(sizes.stable_gap(expected))
    return sizes.plan(count, sizes.stable(_largest_fitting(sizes, count) if unstable is None else unstable))


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

    def lead(self, n_teachers: int) -> float:
        """The lead that agreement as assumed gives."""
        return (2 * _AGREEMENT - 1) * n_teachers

    def stable(self, max_unstable: int) -> StableVotes:
        promise = self.guarantee
        worth = _worth(self.n_queries, max_unstable)
        vector = SparseVector.calibrated(promise.epsilon, promise.delta, max_unstable, worth, BETA)
        return StableVotes(vector, self.changed)

    def stable_gap(self, max_unstable: int) -> float:
        return self.stable(max_unstable).gap_needed(_worth(self.n_queries, max_unstable), BETA)

    def plurality(self) -> PluralityVotes:
        def event(multiplier: float) -> Event:
            return Repeated(Discretized(Gaussian(multiplier), self.n_classes), self.n_queries)

        multiplier = calibrate(event, self.guarantee)
        return PluralityVotes(NoisyPlurality(multiplier, self.n_classes, self.n_queries, self.changed))

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

    def plan(self, n_teachers: int, aggregator: Aggregator) -> TransferPlan:
        return TransferPlan(
            self.guarantee, self.n_samples, self.n_classes, self.n_queries, n_teachers, aggregator
        )


def _worth(n_queries: int, max_unstable: int) -> int:
    """How many questions must all be answered, up to probability BETA, for refusals to be wasted rarely.

    If n questions have a chance p of refusal each, n p <= _WASTED max_unstable is p <= BETA / this number.
    """
    return max(1, math.ceil(n_queries * BETA / (_WASTED * max_unstable)))


def _better(sizes: _Sizes, teachers: int | None, expected: int) -> str:
    """The aggregator that needs the smaller lead; sparse vector also where it fits anyway."""
    stable, plural = sizes.stable_gap(expected), sizes.plurality().gap_needed(sizes.n_queries, BETA)
    most = sizes.most_teachers if teachers is None else teachers
    return "sparse-vector" if stable <= max(plural, sizes.lead(most)) else "plurality"


def _largest_fitting(sizes: _Sizes, n_teachers: int) -> int:
    """The most unstable answers whose lead the teachers can reach, at most the number of questions; or 1."""

    def fits(count: int) -> bool:
        return sizes.stable_gap(count) <= sizes.lead(n_teachers)

    if not fits(1):
        return 1
    low, high = 1, sizes.n_queries + 1  # fits(low); the answer is below high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _wanted(name: str, value: Any, *, at_least: int) -> int | None:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be a whole number or 'auto', got {value!r}")
        return None
    hint = (
        "with 0 nothing could ever be asked"
        if name == "max_unstable"
        else "one teacher alone has no majority"
    )
    return _inputs.count(name, value, at_least=at_least, hint=hint)
