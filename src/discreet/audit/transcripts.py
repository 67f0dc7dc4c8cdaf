"""Transcripts: all answers of all mechanisms of a program, and what they tell about the data.

A program is run on one data set and its answers are taken down; then on the neighbor, where the mechanisms are made to
give the same answers, so that every later question is the one that the neighbor would have asked. The log-likelihood
ratio of the transcript is the sum over the calls of log p(answer | question) - log p(answer | neighbor's question).
By Neyman and Pearson no test tells the two data sets apart better than a threshold on it, and whatever is published is
a function of the transcript and of public randomness. Programs need no code of their own for this.

Where every answer is one of a few (choices, votes, tests, ends of walks), or a number in an interval over which an
integral is a sum (an exactly sampled coefficient), `pair_epsilon` lists all transcripts with their probabilities on
both data sets: delta(epsilon) of the pair is then a finite sum, and nobody can see a larger epsilon on this pair.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet._typing import Array
from discreet.audit.likelihoods import gibbs_nodes, log_likelihood
from discreet.audit.trace import Replayer, Weakener
from discreet.mechanisms.gibbs import GibbsMechanism
from discreet.mechanisms.recording import Call, Recorder, Sample, recorded_by
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.mechanisms.sparse_vector import HALTED, RELEASED, UNSTABLE

Run = Callable[[Any], ArrayLike]
Answers = list[tuple[Any, float]]  # with the logarithms of their weights in a sum that is an integral
MOST = 3000  # transcripts beyond which nothing is listed
_ROUNDING = 1e-9  # relative; what is computed is rounded down
_LARGEST = 50.0  # log-likelihood ratios and epsilons beyond this, infinite ones among them, are cut off


@dataclass(frozen=True)
class Transcripts:
    """Log-likelihood ratios of first over second data set, and what was released, run by run on either one."""

    first: Array
    second: Array
    released: tuple[Array, Array] = field(repr=False)


class _Forced(Replayer):
    """Gives the answers of an earlier run and samples the same people; the first record always, or never.

    Where records are added and removed, only the larger data set has it. ``lacking`` tells that the earlier run was on
    the smaller one; of a run on the larger one it is found out.
    """

    def __init__(
        self, answers: Sequence[Call], samples: Sequence[Sample], included: bool, lacking: bool
    ) -> None:
        super().__init__(answers, samples)
        self._included, self.lacking = included, lacking

    def next_answer(self) -> Any:
        place = len(self.calls)
        return self._answers[place].output if place < len(self._answers) else None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        earlier = next(self._drawn)
        self.lacking |= size > earlier.size
        people = earlier.indices + int(self.lacking)  # by their places in the larger data set
        others = people[people != 0]
        if size < earlier.size or (self.lacking and size == earlier.size):
            return others - 1
        return np.concatenate([[0], others]).astype(others.dtype) if self._included else others


def transcripts(
    run: Run,
    first: Any,
    second: Any,
    runs: int,
    *,
    seed: int,
    share: float = 1.0,
    start: int = 0,
    seconds: float = float("inf"),
    fewest: int = 20,
) -> Transcripts:
    """Attack ``run`` on two neighbors that differ in their first record, ``runs`` times on each.

    Parameters
    ----------
    run : the program; what it returns is what it publishes, as numbers.
    first, second : neighboring data sets.
    runs : on each of the two data sets, fewer (but at least ``fewest``) if ``seconds`` of processor time are over.
    seed : the noise is repeatable: an attacker who hears the mechanisms may not listen to secret noise.
    share : part of the noise that is kept; less than 1 is the broken twin.
    start : number of earlier runs with the same seed, whose noise is not used again.
    """
    ratios: tuple[list[float], list[float]] = ([], [])
    shown: tuple[list[Array], list[Array]] = ([], [])
    begin = time.process_time()
    for place in range(start, start + runs):
        for side, (data, other) in enumerate(((first, second), (second, first))):
            ratio, published = _log_ratio(run, data, other, (seed, place, side), share)
            ratios[side].append(-ratio if side else ratio)
            shown[side].append(np.nan_to_num(np.ravel(np.asarray(published, dtype=np.float64))))
        if place + 1 >= start + fewest and time.process_time() - begin > seconds:
            break
    a, b = (np.clip(part, -_LARGEST, _LARGEST) for part in ratios)
    return Transcripts(a, b, (np.stack(shown[0]), np.stack(shown[1])))


def questions_of_both(run: Run, first: Any, second: Any, *, seed: int) -> list[tuple[Call, Call]] | None:
    """The calls of one run, and what the neighbor would have asked instead; None if a secret sample was drawn."""
    listened = _Listened(run, first, (seed, 0, 0), 1.0)
    if listened.samples:
        return None
    return list(zip(listened.answers, listened.asked_of(second), strict=True))


class _Listened:
    """One run, and the questions that others would have asked in its place."""

    def __init__(self, run: Run, data: Any, seed: tuple[int, int, int], share: float) -> None:
        self._run, self._seed = run, seed
        noted = Weakener(share, seed)
        self.published = self._listen(data, noted)
        self.answers, self.samples = noted.calls, noted.samples
        self._lacking = False

    def asked_of(self, data: Any, included: bool = False) -> list[Call]:
        """The questions of another data set, with the answers that were given; then also those of its own."""
        forced = _Forced(self.answers, self.samples, included, self._lacking)
        self._listen(data, forced)
        self._lacking = forced.lacking
        return [_answered(*both) for both in zip(forced.calls, self.answers, strict=True)]

    def _listen(self, data: Any, recorder: Recorder) -> ArrayLike:
        number = (self._seed[0] << 40) + (self._seed[1] << 1) + self._seed[2]
        with insecure_noise(number), recorded_by(recorder):
            return self._run(data)


def _log_ratio(
    run: Run, data: Any, other: Any, seed: tuple[int, int, int], share: float
) -> tuple[float, ArrayLike]:
    """Of one run on ``data``: the ratio to ``other``, and what was published."""
    listened = _Listened(run, data, seed, share)
    if not listened.samples:
        ratio = log_likelihood(listened.answers, share) - log_likelihood(listened.asked_of(other), share)
        return ratio, listened.published
    # Nobody sees whether the record was sampled: each step's answer is a mixture of both cases.
    sides = [listened.asked_of(side, included) for side in (other, data) for included in (True, False)]
    total = 0.0
    ends = [sample.before for sample in listened.samples[1:]] + [len(listened.answers)]
    for sample, end in zip(listened.samples, ends, strict=True):
        step = slice(sample.before, end)
        logs = [log_likelihood(side[step], share) for side in sides]
        total += _mixed(logs[2], logs[3], sample.rate) - _mixed(logs[0], logs[1], sample.rate)
    return total, listened.published


def _mixed(included: float, left_out: float, rate: float) -> float:
    return float(np.logaddexp(np.log(rate) + included, np.log1p(-rate) + left_out))


def _answered(call: Call, answer: Call) -> Call:
    """The neighbor's question with the answer that was given."""
    if call.public != answer.public:
        raise ValueError(
            f"the neighbor asked {call.public} where {answer.public} was asked: replay finds out why"
        )
    vars(call)["output"] = answer.output  # the call was made for this comparison and belongs to nobody else
    return call


# -- all transcripts, listed --------------------------------------------------------------------------------------


def pair_epsilon(
    run: Callable[[Any], Any],
    first: Any,
    second: Any,
    delta: float,
    *,
    share: float = 1.0,
    most: int = MOST,
) -> float | None:
    """The epsilon that ``run`` has on this pair at ``delta``, the larger of both directions.

    None where an answer is not one of a few, where a secret sample is drawn, or where there are more than ``most``
    transcripts. ``share`` of the noise is kept, as in `likelihoods`.
    """
    laws = transcript_laws(run, first, second, share=share, most=most)
    if laws is None:
        return None
    return max(exact_epsilon(*laws, delta), exact_epsilon(*laws[::-1], delta)) * (1 - _ROUNDING)


def exact_epsilon(p: Array, q: Array, delta: float) -> float:
    """The smallest epsilon >= 0 with P(S) <= e^epsilon Q(S) + delta for all events S: those of largest p / q decide.

    >>> bool(np.isclose(exact_epsilon(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 0.0), np.log(3)))
    True
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.nan_to_num(p / q, nan=0.0, posinf=np.inf), kind="stable")
        hits, alarms = np.cumsum(p[order]), np.cumsum(q[order])
        shown = np.where(hits > delta, np.log(np.maximum(hits - delta, 0.0) / alarms), 0.0)
    return float(np.clip(shown.max(), 0.0, _LARGEST))


def exact_delta(p: Array, q: Array, epsilon: float) -> float:
    """The smallest delta with P(S) <= e^epsilon Q(S) + delta for all events S."""
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0)))


def transcript_laws(
    run: Callable[[Any], Any], first: Any, second: Any, *, share: float = 1.0, most: int = MOST
) -> tuple[Array, Array] | None:
    """The probabilities of all transcripts on either data set, or None; see `pair_epsilon`."""
    try:
        logs = list(_leaves(run, (first, second), share, [], most))
    except _Unlisted:
        return None
    p, q = np.exp(np.array(logs)).T
    return p, q


def _leaves(
    run: Callable[[Any], Any], sides: tuple[Any, Any], share: float, given: Answers, most: float
) -> Iterator[tuple[float, float]]:
    """Log-probabilities on both sides of all transcripts that begin with the ``given`` answers, if at most ``most``."""
    listened = [_replayed(run, side, [answer for answer, _ in given]) for side in sides]
    questions = [part.question for part in listened]
    if (questions[0] is None) != (questions[1] is None):
        raise ValueError("one data set led to a further question, its neighbor did not: replay finds out why")
    if questions[0] is None:
        weight = sum(log for _, log in given)
        yield tuple(log_likelihood(part.calls, share) + weight for part in listened)  # type: ignore[misc]
        return
    answers = answers_to(questions[0], share)
    if len(answers) > most:
        raise _Unlisted
    if isinstance(questions[0].law, GibbsMechanism):
        yield from _last(run, sides, share, given, answers)
        return
    for answer in answers:
        yield from _leaves(run, sides, share, [*given, answer], most / len(answers))


def _last(
    run: Callable[[Any], Any], sides: tuple[Any, Any], share: float, given: Answers, answers: Answers
) -> Iterator[tuple[float, float]]:
    """The same where the last question is about a vector: the run is made once, for one of its many answers."""
    listened = [_replayed(run, side, [answer for answer, _ in [*given, answers[0]]]) for side in sides]
    if any(part.question is not None for part in listened):
        raise _Unlisted
    weight = sum(log for _, log in given)
    for answer, log in answers:
        for part in listened:
            vars(part.calls[-1])["output"] = answer
        yield tuple(log_likelihood(part.calls, share) + weight + log for part in listened)  # type: ignore[misc]


def answers_to(call: Call, share: float = 1.0) -> Answers:
    """All answers that a call could have got."""
    for kind in type(call.law).__mro__:
        if kind.__name__ in _ANSWERS and call.value is not None:
            return _ANSWERS[kind.__name__](call, share)
    raise _Unlisted


@dataclass
class _Replayed:
    calls: list[Call]
    question: Call | None


class _Unlisted(BaseException):
    """An answer that is not one of a few; not an `Exception`, which programs may handle."""


class _Question(BaseException):
    """A call to which no answer is given yet: the run ends here."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


class _Told(Recorder):
    """Gives the answers it was told and stops the run at the next call."""

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__()
        self._answers = answers

    def record(self, call: Call) -> Any:
        if len(self.calls) == len(self._answers):
            raise _Question(call)
        vars(call)["output"] = self._answers[len(self.calls)]  # made for this question, and nobody else's
        self.calls.append(call)
        return call.output

    def next_answer(self) -> Any:
        return self._answers[len(self.calls)] if len(self.calls) < len(self._answers) else None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        raise _Unlisted


def _replayed(run: Callable[[Any], Any], data: Any, answers: Sequence[Any]) -> _Replayed:
    recorder = _Told(answers)
    with insecure_noise(0), recorded_by(recorder):
        try:
            run(data)
        except _Question as asked:
            return _Replayed(recorder.calls, asked.call)
    return _Replayed(recorder.calls, None)


def _choices(call: Call, share: float) -> Answers:
    return [(place, 0.0) for place in range(np.size(call.value))]


def _cells(call: Call, share: float) -> Answers:
    return [(place, 0.0) for place in call.law.places]


def _votes(call: Call, share: float) -> Answers:
    if np.ndim(call.value) == 1:
        checks = itertools.product((False, True), repeat=len(call.value))
        return [(np.array(option), 0.0) for option in checks]
    rows, classes = np.shape(call.value)
    winners = itertools.product(range(classes), repeat=rows)
    return [(np.array(option, dtype=np.int64), 0.0) for option in winners]


def _decisions(call: Call, share: float) -> Answers:
    return [(False, 0.0), (True, 0.0)]


def _streams(call: Call, share: float) -> Answers:
    """Outcomes of the questions of one call, none after the last refusal; for one call per stream."""
    found = set()
    for option in itertools.product((RELEASED, UNSTABLE), repeat=len(call.value)):
        outcomes = np.array(option, dtype=np.int8)
        over = np.cumsum(outcomes == UNSTABLE) >= call.law.max_unstable
        outcomes[1:][over[:-1]] = HALTED
        found.add(tuple(outcomes.tolist()))
    return [(np.array(option, dtype=np.int8), 0.0) for option in sorted(found)]


def _vectors(call: Call, share: float) -> Answers:
    nodes, log_weights = gibbs_nodes(call)
    return list(zip(nodes, log_weights.tolist(), strict=True))


_ANSWERS: dict[str, Callable[[Call, float], Answers]] = {
    "ExponentialMechanism": _choices,
    "LeveledSelection": _choices,
    "LaplaceNoisyMax": _choices,
    "WalkEnd": _cells,
    "NoisyPlurality": _votes,
    "ConfidentPlurality": _votes,
    "StableRelease": _decisions,
    "SparseVector": _streams,
    "GibbsMechanism": _vectors,
}
