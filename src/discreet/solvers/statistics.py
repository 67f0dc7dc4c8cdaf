"""Ridge regression from one noisy release of its sufficient statistics.

The squared loss needs only sum v v^T and sum y v. They are released once with Gaussian noise; solving is
post-processing. The extra ridge depends on public numbers only, with one value for the columns and one for the
intercept: where noise dominates, predictions shrink to the mean of the targets, and then to the middle of their
bounds. The rule: docs/decisions/0010-ridge-where-noise-rules.md. Proofs: docs/proofs/gradient-methods.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.solvers import base
from discreet.solvers.second_order.coordinates import MomentMechanism, NoisyMoments

# In units of the noise's largest eigenvalue; measured on public data (benchmarks/regression.py).
_RIDGE_PER_NOISE = 0.45
_PRIOR_PRECISION = 4.0  # 3 for a uniform law between the bounds, a third more for the noise in the matrix


@dataclass(frozen=True)
class SufficientStatistics:
    """Squared loss only: one noisy second moment, then a ridge solve.

    Parameters
    ----------
    ridge_per_noise : regularization added to ``l2``, in units of the largest eigenvalue of the noise alone.
    prior_precision : prior precision of predictions around the middle of the target bounds: one over their variance,
        in units of the squared bound. It matters when records are few relative to the noise.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation; targets bounded by ``Problem.label_bound``.

    References
    ----------
    Vu and Slavkovic (2009); Wang (2018), who regularizes adaptively.
    """

    name: ClassVar[str] = "statistics"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    ridge_per_noise: float = _RIDGE_PER_NOISE
    prior_precision: float = _PRIOR_PRECISION

    def plan(self, problem: Problem, guarantee: Guarantee) -> SufficientStatisticsPlan:
        """Return the plan with the least noise that meets the guarantee."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        base.require(self.name, problem, "quadratic", "noisy-gd", "objective")
        if problem.n_models != 1:
            raise ValueError(f"solver {self.name!r} fits one model, not {problem.n_models}; use 'noisy-gd'")
        size = problem.n_features * (problem.n_features + 3) // 2
        noise_multiplier = calibrate(lambda m: events.Discretized(events.Gaussian(m), size), guarantee)
        return SufficientStatisticsPlan(
            problem, guarantee, noise_multiplier, self.ridge_per_noise, self.prior_precision
        )


@dataclass(frozen=True)
class SufficientStatisticsPlan(base.Plan):
    """A calibrated release of sufficient statistics."""

    noise_multiplier: float
    ridge_per_noise: float
    prior_precision: float

    def __post_init__(self) -> None:
        for name in ("ridge_per_noise", "prior_precision"):
            if not 0 <= (value := getattr(self, name)) < np.inf:
                raise ParameterError(name, f"must be a finite number of at least 0, got {value!r}")
        _ = self.moments

    sums_only = True

    @cached_property
    def moments(self) -> MomentMechanism:
        """The release. The weight gives a target the scale of a column of full length."""
        problem, label_bound = self.problem, self.problem.loss.label_bound
        assert label_bound is not None
        return MomentMechanism(
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            feature_norm=problem.bounds.feature_norm,
            label_bound=label_bound,
            weight=problem.bounds.feature_norm / label_bound,
            neighboring=self.record_guarantee.neighboring,
            noise_multiplier=self.noise_multiplier,
        )

    @cached_property
    def ridges(self) -> Array:
        """Ridge added to the diagonal (sum scale); the intercept, which comes last, has its own."""
        problem = self.problem
        stddev, mass = self.moments.gaussian.stddev, problem.n_samples * problem.bounds.feature_norm**2
        constants = int(problem.bounds.intercept)
        sizes = np.repeat([problem.n_features - constants, 1], [problem.n_features - constants, constants])
        against_noise = self.ridge_per_noise * stddev * np.sqrt(2 * sizes)
        against_few = self.prior_precision * sizes * stddev * (stddev / mass)
        return np.asarray((problem.l2 or 0.0) * problem.n_samples + against_noise + against_few)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.moments, "second moment of rows and targets"),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return "Gaussian noise on the second moment of rows and targets, then a ridge solve"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return "joint sensitivity of second moments (Theorem 4), one Gaussian release; docs/proofs/gradient-methods.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        gaussian = self.moments.gaussian
        return {
            "second moment noise stddev (sum scale)": gaussian.stddev,
            "joint sensitivity": gaussian.sensitivity.value,
            "target products noise stddev": gaussian.stddev / self.moments.weight,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release the moments and solve the ridge system."""
        theta = solve_ridge(self.moments.release(records[0], entropy), self.ridges)
        return base.Release(theta[None], entropy.secure)


def solve_ridge(noisy: NoisyMoments, ridges: Array) -> Array:
    """Return the ridge solution of the nearest positive semidefinite matrix. It is finite for every release."""
    eigenvalues, vectors = np.linalg.eigh(noisy.second)
    positive = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    return np.asarray(np.linalg.pinv(positive + np.diag(ridges), hermitian=True) @ noisy.cross)


base.register(SufficientStatistics.name, SufficientStatistics)
