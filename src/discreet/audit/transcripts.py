"""The strongest attack there is on a composition: the exact likelihood ratio of all answers of all mechanisms.

A program is run on one data set and its answers are taken down; then on the neighbor, where the mechanisms are made to
give the same answers, so that every later question is the one that the neighbor would have asked. The log-likelihood
ratio of the transcript is the sum over the calls of log p(answer | question) - log p(answer | neighbor's question).
By Neyman and Pearson no test tells the two data sets apart better than a threshold on it, and whatever is published is
a function of the transcript and of public randomness. Programs need no code of their own for this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.audit.likelihoods import log_likelihood
from discreet.audit.witness import Replayer, Weakener
from discreet.mechanisms.entropy import insecure_noise
from discreet.mechanisms.recording import Call, Recorder, Sample, recorded_by

Array = NDArray[np.float64]
Run = Callable[[Any], ArrayLike]

_LARGEST = 50.0  # ratios beyond this, infinite ones among them, are cut off


@dataclass(frozen=True)
class Transcripts:
    """Log-likelihood ratios of first over second data set, and what was released, run by run on either one."""

    first: Array
    second: Array
    released: tuple[Array, Array] = field(repr=False)


class _Forced(Replayer):
    """Gives the answers and samples of an earlier run; the first record is in all samples, in none, or as it was."""

    def __init__(self, answers: Sequence[Call], samples: Sequence[Sample], included: bool | None) -> None:
        super().__init__(answers)
        self._drawn, self._included = iter(samples), included

    def foretold(self) -> Any:
        place = len(self.calls)
        return self._answers[place].output if place < len(self._answers) else None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        drawn = next(self._drawn).indices
        if self._included is None:
            return drawn
        others = drawn[drawn != 0]
        return np.concatenate([[0], others]).astype(drawn.dtype) if self._included else others


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
    heard = _Heard(run, first, (seed, 0, 0), 1.0)
    if heard.samples:
        return None
    return list(zip(heard.answers, heard.asked_of(second), strict=True))


class _Heard:
    """One run, and the questions that others would have asked in its place."""

    def __init__(self, run: Run, data: Any, seed: tuple[int, int, int], share: float) -> None:
        self._run, self._seed = run, seed
        noted = Weakener(share, seed)
        self.published = self._listen(data, noted)
        self.answers, self.samples = noted.calls, noted.samples

    def asked_of(self, data: Any, included: bool | None = None) -> list[Call]:
        """The questions of another data set, with the answers that were given."""
        forced = _Forced(self.answers, self.samples, included)
        self._listen(data, forced)
        return [_answered(*both) for both in zip(forced.calls, self.answers, strict=True)]

    def _listen(self, data: Any, recorder: Recorder) -> ArrayLike:
        number = (self._seed[0] << 40) + (self._seed[1] << 1) + self._seed[2]
        with insecure_noise(number), recorded_by(recorder):
            return self._run(data)


def _log_ratio(
    run: Run, data: Any, other: Any, seed: tuple[int, int, int], share: float
) -> tuple[float, ArrayLike]:
    """Of one run on ``data``: the ratio to ``other``, and what was published."""
    heard = _Heard(run, data, seed, share)
    if not heard.samples:
        ratio = log_likelihood(heard.answers, share) - log_likelihood(heard.asked_of(other), share)
        return ratio, heard.published
    # Nobody sees whether the record was sampled: each step's answer is a mixture of both cases.
    sides = [heard.asked_of(side, included) for side in (data, other) for included in (True, False)]
    total = 0.0
    ends = [sample.before for sample in heard.samples[1:]] + [len(heard.answers)]
    for sample, end in zip(heard.samples, ends, strict=True):
        step = slice(sample.before, end)
        logs = [log_likelihood(side[step], share) for side in sides]
        total += _mixed(logs[0], logs[1], sample.rate) - _mixed(logs[2], logs[3], sample.rate)
    return total, heard.published


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
