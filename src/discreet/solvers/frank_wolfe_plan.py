"""What both kinds of Frank-Wolfe plans share: the steps, the certificate, the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discreet.geometries import Geometry
from discreet.mechanisms.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.certificates import (
    Certificate,
    CertifiedRelease,
    curvature,
    geometry_of,
    record_bound,
    slope,
    with_bounded_labels,
)

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NAME = "frank-wolfe"
CONFIDENCE = 0.95
WEIGHTS = "even", "rising"
_FIRST = 64  # the even weights of the center and of the first choice; each later one weighs one more


@dataclass(frozen=True)
class FrankWolfePlan:
    """What both kinds of run share: the steps, the certificate, the words."""

    problem: Problem
    guarantee: Guarantee
    n_iterations: int
    weights: str

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return True

    @cached_property
    def geometry(self) -> Geometry:
        """The set of the problem."""
        return geometry_of(self.problem, NAME)

    @cached_property
    def parts(self) -> Integers:
        """The weights of the center and of every choice."""
        return choice_weights(self.n_iterations, self.weights)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        raise NotImplementedError

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        raise NotImplementedError

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        raise NotImplementedError

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        raise NotImplementedError

    @property
    def certificate(self) -> Certificate:
        """What is known about the excess risk before any data is seen; of each model where there are several."""
        raise NotImplementedError

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> CertifiedRelease:
        """Choose, move, repeat."""
        found = [self._run_one(part, entropy) for part in with_bounded_labels(records, self.problem)]
        theta = np.stack([theta.reshape(self.problem.shape) for theta, _ in found])
        certificate = max((one for _, one in found), key=lambda one: one.expected)
        return CertifiedRelease(theta, entropy.secure, certificate)

    def _run_one(self, records: ArrayRecords, entropy: Entropy) -> tuple[Array, Certificate]:
        raise NotImplementedError

    def _gradient(self, records: ArrayRecords, theta: Array) -> Array:
        """The summed gradient with the ridge term."""
        problem = self.problem
        gradient = records.value_and_gradient(problem.loss, theta.reshape(problem.shape))[1].ravel()
        if problem.l2:
            gradient += problem.n_samples * problem.l2 * theta
        return gradient

    def _certificate(self, errors: Sequence[float], likely_errors: Sequence[float]) -> Certificate:
        """From bounds on what each choice loses (sum scale), on average and with probability 0.95 together."""
        constants = curvature(self.problem, self.geometry), center_error(self.problem, self.geometry)
        optimization = float(optimization_error(*constants, self.n_iterations, self.weights)[-1])
        share = self.parts[1:] / (self.parts.sum() * self.problem.n_samples)
        return Certificate(
            optimization + float(share @ np.array(errors)),
            optimization + float(share @ np.array(likely_errors)),
            CONFIDENCE,
        )

    def __str__(self) -> str:
        return base.printed(self, {"excess risk at most": str(self.certificate)})


def choice_weights(n_choices: int, kind: str) -> Integers:
    """The weights of the center and of every choice in the point that is reached; a single choice is taken whole.

    Even ones suit a handful of choices and forget the first of hundreds; rising ones are 1, 2, 3, ..., the center's 0.
    """
    rising = np.arange(n_choices)
    if kind == "rising":
        return np.append(0, 1 + rising)
    return np.append(_FIRST if n_choices > 1 else 0, _FIRST + rising)


def steps(parts: Integers) -> Array:
    """a_0, ..., a_{T - 1}: the weight of each choice over all weights so far."""
    return np.asarray(parts[1:] / np.cumsum(parts)[1:])


def optimization_error(worst: float, start: float, most: int, kind: str) -> Array:
    """H_T of the noiseless recursion h <- (1 - a) h + a^2 worst / 2 from h = start, for T = 1, ..., most."""
    parts = choice_weights(most, kind)
    totals = np.cumsum(parts)[1:]
    errors = (parts[0] * start + worst / 2 * np.cumsum(parts[1:] ** 2 / totals)) / totals
    errors[0] = worst / 2
    return np.asarray(errors)


def center_error(problem: Problem, geometry: Geometry) -> float:
    """Bound on the excess risk of the center: slope times distance, or the loss there."""
    center = geometry.center()
    bound, norm = record_bound(problem)
    size, size_2 = float(np.linalg.norm(center, norm)), float(np.linalg.norm(center))
    far = min(geometry.diameter(norm), geometry.radius(norm) + size)
    far_2 = min(geometry.diameter(2.0), geometry.radius(2.0) + size_2)
    linear = slope(problem, bound * size) * bound * far + (problem.l2 or 0.0) * size_2 * far_2
    return linear if size > 0 else min(linear, problem.loss.value_at_zero)
