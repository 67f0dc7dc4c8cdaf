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
from discreet.mechanisms.recording import Call, Recorder, recorded_by

Array = NDArray[np.float64]
Run = Callable[[Any], ArrayLike]

_LARGEST = 50.0  # ratios beyond this, infinite ones among them, are cut off


@dataclass(frozen=True)
class Transcripts:
    """Log-likelihood ratios of first over second data set, and what was released, run by run on either one."""

    first: Array
    second: Array
    released: tuple[Array, Array] = field(repr=False)


@dataclass(frozen=True)
class _Sample:
    """A secret sample of records, and how many calls had been made before it was drawn."""

    indices: Any
    rate: float
    before: int


class _Noted(Weakener):
    """Takes down answers, with a part of their noise, and the secret samples."""

    def __init__(self, share: float, seed: Sequence[int]) -> None:
        super().__init__(share, seed)
        self.samples: list[_Sample] = []

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        self.samples.append(_Sample(indices, rate, len(self.calls)))
        return indices


class _Forced(Replayer):
    """Gives the answers and samples of an earlier run; the first record is in all samples, in none, or as it was."""

    def __init__(self, answers: Sequence[Call], samples: Sequence[_Sample], included: bool | None) -> None:
        super().__init__(answers)
        self._samples, self._included, self._used = samples, included, 0

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        drawn = self._samples[self._used].indices
        self._used += 1
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
    """
    ratios: tuple[list[float], list[float]] = ([], [])
    shown: tuple[list[Array], list[Array]] = ([], [])
    begin = time.process_time()
    for place in range(runs):
        for side, (data, other) in enumerate(((first, second), (second, first))):
            ratio, published = _log_ratio(run, data, other, (seed, place, side), share)
            ratios[side].append(-ratio if side else ratio)
            shown[side].append(np.nan_to_num(np.ravel(np.asarray(published, dtype=np.float64))))
        if place + 1 >= fewest and time.process_time() - begin > seconds:
            break
    a, b = (np.clip(part, -_LARGEST, _LARGEST) for part in ratios)
    return Transcripts(a, b, (np.stack(shown[0]), np.stack(shown[1])))


def _log_ratio(
    run: Run, data: Any, other: Any, seed: tuple[int, int, int], share: float
) -> tuple[float, ArrayLike]:
    """Of one run on ``data``: the ratio to ``other``, and what was published."""
    noted = _Noted(share, seed)
    published = _heard(run, data, seed, noted)
    answers, samples = noted.calls, noted.samples

    def questions(asked: Any, included: bool | None) -> list[Call]:
        forced = _Forced(answers, samples, included)
        _heard(run, asked, seed, forced)
        return [_answered(*both) for both in zip(forced.calls, answers, strict=True)]

    if not samples:
        return log_likelihood(answers, share) - log_likelihood(questions(other, None), share), published
    # Nobody sees whether the record was sampled: each step's answer is a mixture of both cases.
    sides = [questions(data, True), questions(data, False), questions(other, True), questions(other, False)]
    total = 0.0
    ends = [sample.before for sample in samples[1:]] + [len(answers)]
    for sample, end in zip(samples, ends, strict=True):
        step = slice(sample.before, end)
        logs = [log_likelihood(side[step], share) for side in sides]
        total += _mixed(logs[0], logs[1], sample.rate) - _mixed(logs[2], logs[3], sample.rate)
    return total, published


def _mixed(included: float, left_out: float, rate: float) -> float:
    return float(np.logaddexp(np.log(rate) + included, np.log1p(-rate) + left_out))


def _heard(run: Run, data: Any, seed: tuple[int, int, int], recorder: Recorder) -> ArrayLike:
    number = (seed[0] << 40) + (seed[1] << 1) + seed[2]
    with insecure_noise(number), recorded_by(recorder):
        return run(data)


def _answered(call: Call, answer: Call) -> Call:
    """The neighbor's question with the answer that was given."""
    if call.public != answer.public:
        raise ValueError(
            f"the neighbor asked {call.public} where {answer.public} was asked: replay finds out why"
        )
    vars(call)["output"] = answer.output  # the call was made for this comparison and belongs to nobody else
    return call
