"""What a pair of data sets is worth: the epsilon that a program has on it, computed instead of sampled.

Nobody can see more on this pair, however often the program is run. Where it falls short of the claim there is a worse
pair, or the price of the mechanisms is not that of the worst pair they have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.attack import minimizer_law_known, minimizers, noise_and_volume
from discreet.audit.enumeration import pair_epsilon
from discreet.audit.likelihoods import is_gaussian
from discreet.audit.replay import replay
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.transcripts import questions_of_both
from discreet.audit.witness import PlannedRun
from discreet.privacy.gaussian import gaussian_epsilon

if TYPE_CHECKING:
    from discreet.audit.subjects import Subject

ATTAINED = 0.95  # part of a declared distance, or of a claim, that counts as all of it
_LISTED = 1000  # transcripts at most
_TRIED = 12  # runs whose questions are compared
_SAME = 1e-2


def pair_worth(subject: Subject, delta: float, share: float = 1.0) -> float | None:
    """The epsilon at ``delta`` of a subject's pair, the larger of both directions; None where it is not known.

    It is known where there are few transcripts, which are listed (`enumeration`), and where every call adds Gaussian
    noise and the distances of all calls together are the same in every run: then the privacy loss is a normal variable.
    For a perturbed objective that is so where the shift of its gradient is the same at every minimizer, and the
    volume of the Hessian.
    """
    if isinstance(subject.first, PlannedRun) and minimizer_law_known(subject.first.plan):
        return _objective_worth(subject.first, subject.second, delta, share)
    if not subject.composed:
        return None
    listed = pair_epsilon(subject.run, subject.first, subject.second, delta, share=share, most=_LISTED)
    if listed is not None:
        return listed
    squares = []
    for place in range(_TRIED):
        asked = questions_of_both(subject.run, subject.first, subject.second, seed=place)
        if asked is None or not all(is_gaussian(call) for call, _ in asked):
            return None
        squares.append(
            sum(float(np.sum(np.square(call.value - other.value))) / call.scale**2 for call, other in asked)
        )
    return _of_squares(squares, delta, share)


def attained(subject: Subject, worth: float | None, claimed: float) -> bool:
    """Whether a subject's pair is the worst case of what is claimed.

    It is if it is worth about as much. Where its worth is not known, if theory knows no worse pair, or if the inputs of
    all mechanisms are about as far apart as declared; the noise of a perturbed objective has no input.
    """
    if worth is not None:
        return worth >= ATTAINED * claimed
    if subject.exact or (isinstance(subject.first, PlannedRun) and perturbs_objective(subject.first.plan)):
        return subject.exact
    seen = replay(subject.run, subject.first, subject.second)
    ratios = [distance.ratio for distance in seen.distances if distance.where.startswith("call")]
    return bool(ratios) and min(ratios) >= ATTAINED


def _objective_worth(first: PlannedRun, second: PlannedRun, delta: float, share: float) -> float | None:
    """From the shift of the noise that leads to the same minimizer, over the noise's standard deviation."""
    stddev = getattr(first.plan.objective_noise, "effective_stddev", None)
    if stddev is None:
        return None
    squares = []
    for theta in minimizers(first, _TRIED, seed=0):
        parts = [
            [
                noise_and_volume(records, first.plan, point)
                for point, records in zip(theta, side.records, strict=True)
            ]
            for side in (first, second)
        ]
        if any(abs(a[1] - b[1]) > _SAME**2 for a, b in zip(*parts, strict=True)):
            return None
        squares.append(
            sum(float(np.sum(np.square(a[0] - b[0]))) for a, b in zip(*parts, strict=True)) / stddev**2
        )
    return _of_squares(squares, delta, share)


def _of_squares(squares: list[float], delta: float, share: float) -> float | None:
    """The epsilon of a normal loss, if its spread is the same in all runs."""
    if max(squares) > min(squares) * (1 + _SAME):
        return None
    return gaussian_epsilon(math.sqrt(min(squares)) / share, delta)
