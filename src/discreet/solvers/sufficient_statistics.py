"""Ridge regression from one noisy release of its sufficient statistics.

The squared loss needs only sum v v^T and sum y v. They are released once with Gaussian noise; solving is
post-processing. The ridge against the noise follows from public numbers alone, one for the columns and one for the
constant: where noise rules, predictions fall back to the mean of the targets, and from there to the middle of their
bounds. Proofs: docs/proofs/gradient-methods.md, section 4; the rule: docs/decisions/0010-ridge-where-noise-rules.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet.losses import Squared
from discreet.mechanisms.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.moments import MomentMechanism, NoisyMoments

# In units of the noise's largest eigenvalue; measured on public data, see benchmarks/regression.py.
_RIDGE_PER_NOISE = 0.45
_PRIOR_PRECISION = 4.0  # 3 for a uniform law between the bounds, a third more for the noise in the matrix


@dataclass(frozen=True)
class SufficientStatistics:
    """Squared loss only: one noisy second moment, then a ridge solve.

    Parameters
    ----------
    ridge_per_noise : regularization added on top of ``l2``, in units of the largest eigenvalue that noise alone has.
    prior_precision : how sure one is, before any data, that predictions are in the middle of the bounds of the target:
        one over their variance, in units of the squared bound. It counts where records are few beside the noise.

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
        """The smallest noise that meets the guarantee."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        if not isinstance(problem.loss, Squared) or problem.n_models != 1:
            raise ValueError(
                f"solver {self.name!r} needs the squared loss, whose minimizer depends on two sums only; for "
                f"{problem.loss} use 'noisy-gd' or 'objective'"
            )
        size = problem.n_features * (problem.n_features + 3) // 2
        noise_multiplier = calibrate(lambda m: events.Discretized(events.Gaussian(m), size), guarantee)
        return SufficientStatisticsPlan(
            problem, guarantee, noise_multiplier, self.ridge_per_noise, self.prior_precision
        )


@dataclass(frozen=True)
class SufficientStatisticsPlan:
    """A calibrated release of sufficient statistics."""

    problem: Problem
    guarantee: Guarantee
    noise_multiplier: float
    ridge_per_noise: float
    prior_precision: float

    def __post_init__(self) -> None:
        for name in ("ridge_per_noise", "prior_precision"):
            if not 0 <= (value := getattr(self, name)) < np.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
        _ = self.moments

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return True

    @cached_property
    def moments(self) -> MomentMechanism:
        """The release. The weight makes a target count like a column of full length."""
        problem, loss = self.problem, self.problem.loss
        assert isinstance(loss, Squared)
        return MomentMechanism(
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            feature_norm=problem.bounds.feature_norm,
            label_bound=loss.label_bound,
            weight=problem.bounds.feature_norm / loss.label_bound,
            neighboring=self.guarantee.neighboring,
            noise_multiplier=self.noise_multiplier,
        )

    @cached_property
    def ridges(self) -> base.Array:
        """What is added to the diagonal, in sums over records; the constant is a block of its own, the last."""
        problem = self.problem
        stddev, mass = self.moments.gaussian.stddev, problem.n_samples * problem.bounds.feature_norm**2
        constants = int(problem.bounds.intercept)
        sizes = np.repeat([problem.n_features - constants, 1], [problem.n_features - constants, constants])
        against_noise = self.ridge_per_noise * stddev * np.sqrt(2 * sizes)
        against_few = self.prior_precision * sizes * stddev * (stddev / mass)
        return np.asarray((problem.l2 or 0.0) * problem.n_samples + against_noise + against_few)

    @property
    def event(self) -> events.Event:
        """What is charged."""
        return self.moments.event

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return "Gaussian noise on the second moment of rows and targets, then a ridge solve"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return "joint sensitivity of second moments (Theorem 4), one Gaussian release; docs/proofs/gradient-methods.md"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        gaussian = self.moments.gaussian
        return {
            "second moment noise stddev (sum scale)": gaussian.stddev,
            "joint sensitivity": gaussian.sensitivity.value,
            "target products noise stddev": gaussian.stddev / self.moments.weight,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Release once, solve once."""
        theta = solve_ridge(self.moments.release(records[0], entropy), self.ridges)
        return base.Release(theta[None], entropy.secure)

    def __str__(self) -> str:
        return base.printed(self)


def solve_ridge(noisy: NoisyMoments, ridges: base.Array) -> base.Array:
    """The ridge solution of the nearest positive semidefinite matrix: finite for every release."""
    eigenvalues, vectors = np.linalg.eigh(noisy.second)
    positive = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    return np.asarray(np.linalg.pinv(positive + np.diag(ridges), hermitian=True) @ noisy.cross)


base.register(SufficientStatistics.name, SufficientStatistics)
