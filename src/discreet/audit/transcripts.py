"""Transcripts: all answers of all mechanisms of a program, and what they reveal about the data.

Run a program on one data set and record its answers. Then run it on the neighbor with mechanisms that repeat these
answers, so that later questions are those the neighbor would have asked. The log-likelihood ratio of the transcript is
the sum over all calls of log p(answer | question) - log p(answer | neighbor's question). By the Neyman-Pearson lemma no
test distinguishes the two data sets better than a threshold on it, and everything published is a function of the
transcript and public randomness. This works for any program.

If every answer has a few possible values (choices, votes, tests, ends of walks), or is a number over which a quadrature
integrates (an exactly sampled coefficient), `pair_epsilon` enumerates all transcripts with their probabilities on both
data sets. Then delta(epsilon) of the pair is a finite sum, and no attack on this pair can show a larger epsilon.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet._typing import Array
from discreet.audit.likelihoods import by_kind, gibbs_nodes, log_likelihood
from discreet.audit.trace import Replayer, Weakener
from discreet.mechanisms.gibbs import GibbsMechanism
from discreet.mechanisms.recording import Call, Recorder, Sample, recorded_by
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.mechanisms.sparse_vector import HALTED, RELEASED, UNSTABLE

Run = Callable[[Any], ArrayLike]
Answers = list[tuple[Any, float]]  # with the logarithms of their quadrature weights
MOST = 3000  # largest number of transcripts that are enumerated
_ROUNDING = 1e-9  # relative; results are rounded down
_LARGEST = 50.0  # log-likelihood ratios and epsilons are clipped here, infinite ones included


@dataclass(frozen=True)
class Transcripts:
    """Log-likelihood ratios (first over second data set) and releases, for runs on each data set."""

    first: Array
    second: Array
    released: tuple[Array, Array] = field(repr=False)


class _Forced(Replayer):
    """Repeats the answers of an earlier run and samples the same people; the first record always, or never.

    If records are added and removed, only the larger data set has the first record. ``lacking``: the earlier run was on
    the smaller data set; this is detected when the sizes differ.
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


def places(start: int, runs: int, seconds: float, fewest: int) -> Iterator[int]:
    """Yield the numbers of ``runs`` runs, after ``start`` earlier ones with the same seed.

    Yield fewer, but at least ``fewest``, if they take more than ``seconds`` of processor time.
    """
    begin = time.process_time()
    for place in range(start, start + runs):
        yield place
        if place + 1 >= start + fewest and time.process_time() - begin > seconds:
            return


def noise_seed(seed: int, place: int, side: int) -> int:
    """Return the seed of one run on one of the two data sets."""
    return (seed << 40) + (place << 1) + side


def numbers(published: Any) -> Array:
    """Return what a program publishes as one row of numbers."""
    return np.nan_to_num(np.ravel(np.asarray(published, dtype=np.float64)))


def transcripts(
    run: Run,
    first: Any,
    second: Any,
    runs: int,
    *,
    seed: int,
    share: float = 1.0,
    start: int = 0,
    seconds: float = math.inf,
    fewest: int = 20,
) -> Transcripts:
    """Run ``run`` on each of two neighbors that differ in their first record, in the order of `places`.

    Parameters
    ----------
    run : the program; returns what it publishes, as numbers.
    first, second : neighboring data sets.
    seed : seed of repeatable noise, because every mechanism call is recorded.
    share : fraction of the noise that is kept; less than 1 is the broken twin.
    """
    ratios: tuple[list[float], list[float]] = ([], [])
    shown: tuple[list[Array], list[Array]] = ([], [])
    for place in places(start, runs, seconds, fewest):
        for side, (data, other) in enumerate(((first, second), (second, first))):
            ratio, published = _log_ratio(run, data, other, (seed, place, side), share)
            ratios[side].append(-ratio if side else ratio)
            shown[side].append(numbers(published))
    a, b = (np.clip(part, -_LARGEST, _LARGEST) for part in ratios)
    return Transcripts(a, b, (np.stack(shown[0]), np.stack(shown[1])))


def questions_of_both(run: Run, first: Any, second: Any, *, seed: int) -> list[tuple[Call, Call]] | None:
    """Return the calls of one run and the neighbor's calls in their place; None if a secret sample was drawn."""
    recorded = _Recorded(run, first, (seed, 0, 0), 1.0)
    if recorded.samples:
        return None
    return list(zip(recorded.answers, recorded.questions_of(second), strict=True))


class _Recorded:
    """One recorded run, and the questions that another data set would have asked in its place."""

    def __init__(self, run: Run, data: Any, seed: tuple[int, int, int], share: float) -> None:
        self._run, self._seed = run, seed
        noted = Weakener(share, seed)
        self.published = self._record(data, noted)
        self.answers, self.samples = noted.calls, noted.samples
        self._lacking = False

    def questions_of(self, data: Any, included: bool = False) -> list[Call]:
        """Return the questions that this data set asks, given the recorded answers."""
        forced = _Forced(self.answers, self.samples, included, self._lacking)
        self._record(data, forced)
        self._lacking = forced.lacking
        return [_answered(*both) for both in zip(forced.calls, self.answers, strict=True)]

    def _record(self, data: Any, recorder: Recorder) -> ArrayLike:
        with insecure_noise(noise_seed(*self._seed)), recorded_by(recorder):
            return self._run(data)


def _log_ratio(
    run: Run, data: Any, other: Any, seed: tuple[int, int, int], share: float
) -> tuple[float, ArrayLike]:
    """Run once on ``data``; return the log-likelihood ratio to ``other``, and what was published."""
    recorded = _Recorded(run, data, seed, share)
    if not recorded.samples:
        ratio = log_likelihood(recorded.answers, share) - log_likelihood(recorded.questions_of(other), share)
        return ratio, recorded.published
    # Whether the record was sampled is secret: each step's answer is a mixture of both cases.
    sides = [recorded.questions_of(side, included) for side in (other, data) for included in (True, False)]
    total = 0.0
    ends = [sample.before for sample in recorded.samples[1:]] + [len(recorded.answers)]
    for sample, end in zip(recorded.samples, ends, strict=True):
        step = slice(sample.before, end)
        logs = [log_likelihood(side[step], share) for side in sides]
        total += _mixed(logs[2], logs[3], sample.rate) - _mixed(logs[0], logs[1], sample.rate)
    return total, recorded.published


def _mixed(included: float, left_out: float, rate: float) -> float:
    return float(np.logaddexp(np.log(rate) + included, np.log1p(-rate) + left_out))


def _answered(call: Call, answer: Call) -> Call:
    """Return the neighbor's question with the recorded answer."""
    if call.public != answer.public:
        raise ValueError(
            f"the neighbor asked {call.public} instead of {answer.public}; `replay` shows the difference"
        )
    vars(call)["output"] = answer.output  # no other object uses this call
    return call


# -- enumerating all transcripts ----------------------------------------------------------------------------------


def pair_epsilon(
    run: Run, first: Any, second: Any, delta: float, *, share: float = 1.0, most: int = MOST
) -> float | None:
    """Return the exact epsilon of ``run`` on this pair at ``delta``, the larger of both directions.

    None if answers have no short list of values, a secret sample is drawn, or there are more than ``most`` transcripts.
    ``share`` of the noise is kept, as in `likelihoods`.
    """
    laws = transcript_laws(run, first, second, share=share, most=most)
    if laws is None:
        return None
    return max(exact_epsilon(*laws, delta), exact_epsilon(*laws[::-1], delta)) * (1 - _ROUNDING)


def exact_epsilon(p: Array, q: Array, delta: float) -> float:
    """Return the smallest epsilon >= 0 with P(S) <= e^epsilon Q(S) + delta for all S, attained by the largest p / q.

    >>> bool(np.isclose(exact_epsilon(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 0.0), np.log(3)))
    True
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.nan_to_num(p / q, nan=0.0, posinf=np.inf), kind="stable")
        hits, alarms = np.cumsum(p[order]), np.cumsum(q[order])
        shown = np.where(hits > delta, np.log(np.maximum(hits - delta, 0.0) / alarms), 0.0)
    return float(np.clip(shown.max(), 0.0, _LARGEST))


def exact_delta(p: Array, q: Array, epsilon: float) -> float:
    """Return the smallest delta with P(S) <= e^epsilon Q(S) + delta for all events S."""
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0)))


def transcript_laws(
    run: Run, first: Any, second: Any, *, share: float = 1.0, most: int = MOST
) -> tuple[Array, Array] | None:
    """Return the probabilities of all transcripts on each data set, or None; see `pair_epsilon`."""
    try:
        logs = list(_leaves(run, (first, second), share, [], most))
    except _NotEnumerable:
        return None
    p, q = np.exp(np.array(logs)).T
    return p, q


def _leaves(
    run: Run, sides: tuple[Any, Any], share: float, given: Answers, most: float
) -> Iterator[tuple[float, float]]:
    """Yield log-probabilities on both sides of all transcripts that begin with the ``given`` answers."""
    parts = [_replayed(run, side, [answer for answer, _ in given]) for side in sides]
    questions = [question for _, question in parts]
    if (questions[0] is None) != (questions[1] is None):
        raise ValueError("only one of the data sets has another question; `replay` shows the difference")
    if questions[0] is None:
        weight = sum(log for _, log in given)
        yield tuple(log_likelihood(calls, share) + weight for calls, _ in parts)  # type: ignore[misc]
        return
    answers = answers_to(questions[0])
    if len(answers) > most:
        raise _NotEnumerable
    if isinstance(questions[0].law, GibbsMechanism):
        yield from _last(run, sides, share, given, answers)
        return
    for answer in answers:
        yield from _leaves(run, sides, share, [*given, answer], most / len(answers))


def _last(
    run: Run, sides: tuple[Any, Any], share: float, given: Answers, answers: Answers
) -> Iterator[tuple[float, float]]:
    """Do the same for a last question with many answers: run once, and exchange the last answer."""
    parts = [_replayed(run, side, [answer for answer, _ in [*given, answers[0]]]) for side in sides]
    if any(question is not None for _, question in parts):
        raise _NotEnumerable
    weight = sum(log for _, log in given)
    for answer, log in answers:
        for calls, _ in parts:
            vars(calls[-1])["output"] = answer
        yield tuple(log_likelihood(calls, share) + weight + log for calls, _ in parts)  # type: ignore[misc]


def answers_to(call: Call) -> Answers:
    """Return all possible answers to a call."""
    if call.value is None:
        raise _NotEnumerable
    if isinstance(call.law, GibbsMechanism):
        nodes, log_weights = gibbs_nodes(call)
        return list(zip(nodes, log_weights.tolist(), strict=True))
    values = by_kind(_ANSWERS, call)
    if values is None:
        raise _NotEnumerable
    return [(value, 0.0) for value in values(call)]


class _NotEnumerable(BaseException):
    """A call has too many possible answers; not an `Exception`, which programs may handle."""


class _Question(BaseException):
    """A call whose answer is not given; it ends the run."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


class _Scripted(Recorder):
    """Gives the answers of a list, and ends the run at the next call."""

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__()
        self._answers = answers

    def record(self, call: Call) -> Any:
        if len(self.calls) == len(self._answers):
            raise _Question(call)
        vars(call)["output"] = self._answers[len(self.calls)]  # no other object uses this call
        self.calls.append(call)
        return call.output

    def next_answer(self) -> Any:
        return self._answers[len(self.calls)] if len(self.calls) < len(self._answers) else None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        raise _NotEnumerable


def _replayed(run: Run, data: Any, answers: Sequence[Any]) -> tuple[list[Call], Call | None]:
    """Run with these answers; return the calls that were answered, and the next one, if there is one."""
    recorder = _Scripted(answers)
    with insecure_noise(0), recorded_by(recorder):
        try:
            run(data)
        except _Question as question:
            return recorder.calls, question.call
    return recorder.calls, None


def _choices(call: Call) -> Iterable[Any]:
    return range(np.size(call.value))


def _votes(call: Call) -> Iterable[Any]:
    if np.ndim(call.value) == 1:
        return map(np.array, itertools.product((False, True), repeat=len(call.value)))
    rows, classes = np.shape(call.value)
    winners = itertools.product(range(classes), repeat=rows)
    return (np.array(option, dtype=np.int64) for option in winners)


def _streams(call: Call) -> Iterable[Any]:
    """List the outcomes of one call's questions, up to the last refusal; for one call per stream."""
    found = set()
    for option in itertools.product((RELEASED, UNSTABLE), repeat=len(call.value)):
        outcomes = np.array(option, dtype=np.int8)
        over = np.cumsum(outcomes == UNSTABLE) >= call.law.max_unstable
        outcomes[1:][over[:-1]] = HALTED
        found.add(tuple(outcomes.tolist()))
    return [np.array(option, dtype=np.int8) for option in sorted(found)]


_ANSWERS: dict[str, Callable[[Call], Iterable[Any]]] = {
    "ExponentialMechanism": _choices,
    "LeveledSelection": _choices,
    "LaplaceNoisyMax": _choices,
    "WalkEnd": lambda call: call.law.places,
    "NoisyPlurality": _votes,
    "ConfidentPlurality": _votes,
    "StableRelease": lambda call: (False, True),
    "SparseVector": _streams,
}
