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
from discreet.solvers.certificates import Certificate, CertifiedRelease, curvature, geometry_of

Array = NDArray[np.float64]

NAME = "frank-wolfe"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class FrankWolfePlan:
    """What both kinds of run share: the steps, the certificate, the words."""

    problem: Problem
    guarantee: Guarantee
    n_iterations: int

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return True

    @cached_property
    def geometry(self) -> Geometry:
        """The set of the problem."""
        return geometry_of(self.problem, NAME)

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
        found = [self._run_one(part, entropy) for part in records]
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
        optimization = optimization_error(self.problem, self.geometry, self.n_iterations)[-1]
        weights = 2.0 * np.arange(1, self.n_iterations + 1) / (self.n_iterations * (self.n_iterations + 1.0))
        n = self.problem.n_samples
        return Certificate(
            float(optimization + weights @ np.array(errors) / n),
            float(optimization + weights @ np.array(likely_errors) / n),
            CONFIDENCE,
        )

    def __str__(self) -> str:
        return base.printed(self, {"excess risk at most": str(self.certificate)})


def optimization_error(problem: Problem, geometry: Geometry, most: int) -> Array:
    """h_T of the noiseless recursion h <- (1 - a) h + a^2 curvature / 2 for T = 1, ..., most."""
    constant = curvature(problem, geometry)
    errors, h = np.empty(most), 0.0
    for t in range(most):
        rate = 2 / (t + 2)
        h = (1 - rate) * h + rate * rate * constant / 2
        errors[t] = h
    return errors
