"""Ridge regression from one noisy release of its sufficient statistics.

The squared loss needs only sum v v^T and sum y v. They are released once with Gaussian noise; solving is
post-processing. The extra ridge depends on public numbers only, with one value for the columns and one for the
intercept: where noise dominates, predictions shrink to the mean of the targets, and then to the middle of their
bounds. The rule: docs/decisions/0010-ridge-where-noise-rules.md.

`MomentMechanism` releases the second moment sum_i v_i v_i^T, optionally with the weighted vector sum_i y_i v_i of
bounded targets. It releases the upper triangle with off-diagonal entries times sqrt(2), so that the Euclidean norm of
the released vector is the Frobenius norm of the matrix. Proofs: docs/proofs/gradient-methods.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Squared
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.kernels.passes import gamma, gradient_rounding
from discreet.solvers import base

MOST_FEATURES = 4000  # larger matrices are expensive, and noise hides them


def moment_sensitivity(feature_norm: float, weighted_target: float, neighboring: Neighboring) -> Sensitivity:
    """Return the L2 sensitivity of (sum v v^T, w sum y v) for |v| <= R and |w y| <= ``weighted_target``.

    One record contributes R sqrt(R^2 + B), B = weighted_target^2. Replacing one record by another moves the pair by
    sqrt(2) (R^2 + B / 2) if B <= 2 R^2, and by 2 R sqrt(B) otherwise: the worst pair of rows is at an angle of
    cosine B / (2 R^2), with opposite targets.

    >>> round(moment_sensitivity(1.0, 0.0, Neighboring.ZERO_OUT).value, 4)
    1.0
    >>> round(moment_sensitivity(1.0, 1.0, Neighboring.REPLACE_ONE).value, 4)
    2.1213
    """
    square, target = feature_norm**2, weighted_target**2
    if neighboring.contributions == 1:
        value = feature_norm * math.sqrt(square + target)
    elif target <= 2 * square:
        value = math.sqrt(2.0) * (square + target / 2)
    else:
        value = 2 * feature_norm * weighted_target
    return Sensitivity(value * SLACK)


def summation_rounding(n_samples: int, norm: float) -> float:
    """Bound the rounding error of a sum with one term of at most this norm per record, over blocks and parts.

    A record's term passes through one block of at most 2^17 rows, the blocks of its part, and the parts.
    """
    additions = min(n_samples, 2**17 + n_samples // 128 + 64)
    return 1.01 * gamma(additions + 16) * n_samples * norm


@dataclass(frozen=True)
class NoisyMoments:
    """One release: a symmetric matrix, a vector (zero if not requested), and their noise."""

    second: Array
    cross: Array
    second_stddev: float
    cross_stddev: float

    @property
    def matrix_noise(self) -> float:
        """Approximate largest eigenvalue of the noise in ``second``: stddev sqrt(2 p)."""
        return self.second_stddev * math.sqrt(2 * len(self.second))


@dataclass(frozen=True)
class MomentMechanism:
    """Release the second moment and, if ``label_bound`` > 0, the products with the targets.

    Parameters
    ----------
    n_samples, n_features, feature_norm : public sizes and the bound on records.
    label_bound : bound on |y|, enforced by the caller; 0 releases the matrix alone.
    weight : weight of the products relative to the matrix; their noise is 1 / weight times the matrix's.
    row_error : bound on the rounding error of a record that was computed from others.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on p (p + 1) / 2 or p (p + 3) / 2 numbers.
    """

    n_samples: int
    n_features: int
    feature_norm: float
    label_bound: float
    weight: float
    neighboring: Neighboring
    noise_multiplier: float
    row_error: float = 0.0

    def __post_init__(self) -> None:
        if self.n_features > MOST_FEATURES:
            raise ParameterError(
                "X",
                f"has {self.n_features} columns, whose second moment has too many entries to release; at most "
                f"{MOST_FEATURES} columns are supported",
                "choose fewer columns",
                Setting("solver", "noisy-gd"),
            )
        _ = self.gaussian

    @property
    def size(self) -> int:
        """Number of released values."""
        p = self.n_features
        return p * (p + 1) // 2 + (p if self.label_bound > 0 else 0)

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism of the release; its sensitivity covers the rounding of both sums."""
        n, radius, size = self.n_samples, self.feature_norm, self.size
        weighted = self.weight * self.label_bound
        exact = moment_sensitivity(radius, weighted, self.neighboring).value
        matrix_rounding = summation_rounding(n, radius**2) + 2.01 * n * radius * self.row_error
        vector_rounding = 0.0
        if weighted > 0:
            loss = Squared(self.label_bound, self.label_bound)
            vector_rounding = self.weight * gradient_rounding(loss, n, self.n_features, radius, 0.0)
        total = (exact + 2 * (matrix_rounding + vector_rounding)) * SLACK
        return GaussianMechanism(Sensitivity(total), self.noise_multiplier, size)

    @property
    def event(self) -> events.Event:
        """The event of one release."""
        return self.gaussian.event

    def release(self, records: Records, entropy: Entropy) -> NoisyMoments:
        """Release the noisy moments of the records."""
        p = self.n_features
        rows, columns = np.triu_indices(p)
        scales = np.where(rows == columns, 1.0, math.sqrt(2.0))
        parts = [records.gram()[rows, columns] * scales]
        if self.label_bound > 0:
            targets = np.clip(records.labels, -self.label_bound, self.label_bound)
            parts.append(self.weight * records.weighted_sum(targets))
        noisy = self.gaussian.release(np.concatenate(parts), entropy)
        second = np.zeros((p, p))
        second[rows, columns] = noisy[: len(rows)] / scales
        second = second + np.triu(second, 1).T
        cross = noisy[len(rows) :] / self.weight if self.label_bound > 0 else np.zeros(p)
        stddev = self.gaussian.stddev
        return NoisyMoments(second, cross, stddev, stddev / self.weight)


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
        base.require(self.name, problem, "quadratic", Setting("solver", "noisy-gd", "objective"))
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
