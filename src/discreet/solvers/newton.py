"""A noisy quasi-Newton method for logistic regression: few steps, each preconditioned by a private curvature bound.

The logistic Hessian is at most a quarter of the second moment of the records at every point (Boehning and Lindsay,
1988; half of it for the softmax). That matrix is released once; then every noisy gradient is multiplied by the inverse
of a matrix that is known to all, which is post-processing. Proofs: docs/proofs/gradient-methods.md, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.losses import CappedLogistic, CappedSoftmax, Logistic, Loss, Softmax
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.moments import MomentMechanism, NoisyMoments
from discreet.solvers.noisy_gradient import (
    default_cap,
    default_radius,
    flow_time,
    project,
    refuse_geometry,
    refuse_pure,
    signal_over_noise,
    typical_curvature,
)
from discreet.solvers.sensitivity import gradient_mechanism

Array = NDArray[np.float64]

_MOMENT_SHARE = 0.15  # of the squared Gaussian-DP parameter
_STEPS = 15
_AVERAGED = 5


@dataclass(frozen=True)
class NoisyNewton:
    """Noisy gradients preconditioned by a noisy curvature bound; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy gradients.
    moment_share : part of the budget (squared Gaussian-DP parameter) for the second moment.
    radius, cap : as for `NoisyGradientDescent`.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, logistic and softmax losses of at most 4000 columns; the matrix and
    all iterates may be published.

    References
    ----------
    Avella-Medina, Bradshaw and Loh (2023) for noisy Newton methods; Ganesh et al. (2023) for the double noise.
    """

    name: ClassVar[str] = "newton"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    n_iterations: int = _STEPS
    moment_share: float = _MOMENT_SHARE
    radius: float | None = None
    cap: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyNewtonPlan:
        """Split the budget, calibrate both releases together."""
        refuse_pure(self.name, guarantee)
        refuse_geometry(self.name, problem)
        loss = problem.loss
        if not isinstance(loss, Logistic | Softmax):
            raise ValueError(
                f"solver 'newton' rests on the curvature bound of the logistic loss and the softmax, which {loss} does "
                "not have; use 'noisy-gd' or 'objective'"
            )
        _inputs.count("n_iterations", self.n_iterations)
        if not 0 < self.moment_share < 1:
            raise ValueError(f"moment_share must lie between 0 and 1, got {self.moment_share!r}")
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        cap = self.cap if self.cap is not None else default_cap(problem, guarantee, budget)
        field: Loss = loss
        if isinstance(loss, Softmax) and cap < loss.lipschitz:
            field = CappedSoftmax(loss.n_classes, cap)
        elif isinstance(loss, Logistic) and cap < 1:
            field = CappedLogistic(cap)
        signal = signal_over_noise(problem, guarantee, field, budget)
        radius = self.radius if self.radius is not None else default_radius(problem, signal)
        unit = calibrate(lambda m: _event(problem, m, self.n_iterations, self.moment_share), guarantee)
        return NoisyNewtonPlan(
            problem,
            guarantee,
            field,
            radius,
            self.n_iterations,
            flow_time(problem, signal),
            unit,
            self.moment_share,
        )


@dataclass(frozen=True)
class NoisyNewtonPlan:
    """A calibrated run of the noisy quasi-Newton method."""

    problem: Problem
    guarantee: Guarantee
    field: Loss
    radius: float
    n_iterations: int
    flow_time: float
    unit: float
    moment_share: float

    def __post_init__(self) -> None:
        if (
            isinstance(self.n_iterations, bool)
            or not isinstance(self.n_iterations, int)
            or self.n_iterations < 1
        ):
            raise ValueError(f"n_iterations must be a whole number of at least 1, got {self.n_iterations!r}")
        if not 0 < self.radius < math.inf:
            raise ValueError(f"radius must be a finite number greater than 0, got {self.radius!r}")
        _ = self.moments, self.release

    @cached_property
    def moments(self) -> MomentMechanism:
        """The release of the second moment."""
        problem = self.problem
        return MomentMechanism(
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            feature_norm=problem.bounds.feature_norm,
            label_bound=0.0,
            weight=1.0,
            neighboring=self.guarantee.neighboring,
            noise_multiplier=_moment_multiplier(self.unit, self.moment_share),
        )

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy sum of gradients of all models at one point."""
        multiplier = _gradient_multiplier(self.unit, self.n_iterations, self.moment_share)
        return gradient_mechanism(
            self.problem, self.field, self.radius, self.guarantee.neighboring, multiplier
        )

    @property
    def event(self) -> events.Event:
        """What is charged."""
        return _event(self.problem, self.unit, self.n_iterations, self.moment_share)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"Gaussian noise on the second moment and on {self.n_iterations} gradients, quasi-Newton steps"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sensitivity of second moments (Theorem 4) and of gradients on a ball (Theorems 1 and 2), exact "
            "composition of Gaussian releases; docs/proofs/gradient-methods.md"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "second moment noise stddev (sum scale)": self.moments.gaussian.stddev,
            "gradient noise stddev (sum scale)": self.release.stddev,
            "gradient sensitivity": self.release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "radius": self.radius,
            "derivative bound": self.field.lipschitz,
            "sampler": "exact discrete Gaussian, AES-256-CTR keyed by the operating system",
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Release the curvature bound, then walk down preconditioned noisy gradients."""
        problem = self.problem
        ridge = problem.l2 or 0.0
        inverse = self._preconditioner(self.moments.release(records[0], entropy), ridge)
        theta = np.zeros((problem.n_models, *problem.shape))
        total = np.zeros_like(theta)
        n_averaged = min(_AVERAGED, self.n_iterations)
        for step in range(self.n_iterations):
            sums = [
                part.value_and_gradient(self.field, at)[1] for part, at in zip(records, theta, strict=True)
            ]
            noisy = self.release.release(np.stack(sums).ravel(), entropy).reshape(theta.shape)
            mean = noisy / problem.n_samples + ridge * theta
            moved = np.stack([at - inverse @ gradient for at, gradient in zip(theta, mean, strict=True)])
            theta = project(moved, self.radius)
            if step >= self.n_iterations - n_averaged:
                total += theta
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(noisy)))
        theta = total / n_averaged
        if problem.loss.n_outputs > 1:
            theta -= theta.mean(axis=-1, keepdims=True)  # pure noise that moves no prediction
        return base.Release(theta, entropy.secure)

    def _preconditioner(self, noisy: NoisyMoments, ridge: float) -> Array:
        """The inverse of a bound on the curvature, damped so that directions without signal move slowly.

        Adding the largest eigenvalue of the noise keeps it a bound; the rest of the damping makes the steps in a flat
        direction add up to the flow time of plain gradient descent.
        """
        eigenvalues, vectors = np.linalg.eigh(noisy.second)
        bound = typical_curvature(self.field) * (np.maximum(eigenvalues, 0.0) + noisy.matrix_noise)
        damped = bound / self.problem.n_samples + ridge + self.n_iterations / self.flow_time
        return np.asarray((vectors / damped) @ vectors.T)

    def __str__(self) -> str:
        return base.printed(self)


def _moment_multiplier(unit: float, share: float) -> float:
    return unit / math.sqrt(share)


def _gradient_multiplier(unit: float, steps: int, share: float) -> float:
    return unit * math.sqrt(steps / (1 - share))


def _event(problem: Problem, unit: float, steps: int, share: float) -> events.Event:
    """Both releases in units of one Gaussian release of multiplier ``unit`` that costs as much."""
    p = problem.n_features
    moment = events.Discretized(events.Gaussian(_moment_multiplier(unit, share)), p * (p + 1) // 2)
    gradient = events.Discretized(
        events.Gaussian(_gradient_multiplier(unit, steps, share)), problem.n_coefficients
    )
    return events.Composed((moment, events.Repeated(gradient, steps)))


base.register(NoisyNewton.name, NoisyNewton)
