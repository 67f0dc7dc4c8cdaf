"""The epsilon of a pair without sampling: all transcripts of a program that only chooses, each with its probability.

Where every answer is one of a few (choices, votes, tests, ends of walks), or a number in an interval over which an
integral is a sum (an exactly sampled coefficient), the program is made to give every answer in turn. The probabilities
on both data sets are products of the mechanisms' laws, and delta(epsilon) of the pair is a finite sum: no larger
epsilon can be seen on this pair by anybody, however often the program is run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.likelihoods import gibbs_nodes, log_likelihood
from discreet.mechanisms.entropy import insecure_noise
from discreet.mechanisms.gibbs import GibbsMechanism
from discreet.mechanisms.recording import Call, Recorder, recorded_by
from discreet.mechanisms.sparse_vector import HALTED, RELEASED, UNSTABLE

Array = NDArray[np.float64]
Answers = list[tuple[Any, float]]  # with the logarithms of their weights in a sum that is an integral

MOST = 3000  # transcripts beyond which nothing is listed
_ROUNDING = 1e-9  # relative; what is computed is rounded down
_LARGEST = 50.0  # epsilons beyond this, infinite ones among them, are cut off


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
    heard = [_heard(run, side, [answer for answer, _ in given]) for side in sides]
    questions = [part.question for part in heard]
    if (questions[0] is None) != (questions[1] is None):
        raise ValueError("one data set led to a further question, its neighbor did not: replay finds out why")
    if questions[0] is None:
        weight = sum(log for _, log in given)
        yield tuple(log_likelihood(part.calls, share) + weight for part in heard)  # type: ignore[misc]
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
    heard = [_heard(run, side, [answer for answer, _ in [*given, answers[0]]]) for side in sides]
    if any(part.question is not None for part in heard):
        raise _Unlisted
    weight = sum(log for _, log in given)
    for answer, log in answers:
        for part in heard:
            vars(part.calls[-1])["output"] = answer
        yield tuple(log_likelihood(part.calls, share) + weight + log for part in heard)  # type: ignore[misc]


def answers_to(call: Call, share: float = 1.0) -> Answers:
    """All answers that a call could have got."""
    for kind in type(call.law).__mro__:
        if kind.__name__ in _ANSWERS and call.value is not None:
            return _ANSWERS[kind.__name__](call, share)
    raise _Unlisted


@dataclass
class _Heard:
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

    def heard(self, call: Call) -> Any:
        if len(self.calls) == len(self._answers):
            raise _Question(call)
        vars(call)["output"] = self._answers[len(self.calls)]  # made for this question, and nobody else's
        self.calls.append(call)
        return call.output

    def foretold(self) -> Any:
        return self._answers[len(self.calls)] if len(self.calls) < len(self._answers) else None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        raise _Unlisted


def _heard(run: Callable[[Any], Any], data: Any, answers: Sequence[Any]) -> _Heard:
    recorder = _Told(answers)
    with insecure_noise(0), recorded_by(recorder):
        try:
            run(data)
        except _Question as asked:
            return _Heard(recorder.calls, asked.call)
    return _Heard(recorder.calls, None)


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
