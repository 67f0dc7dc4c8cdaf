"""Second-order regression: two releases of the second moment, then a few gradients with clipped residuals.

The second moments reshape the records as for classification. Each gradient is released with a companion that shows
the size of the residuals and sets the next cap. The result is the posterior mean of the coefficients given all
gradients. If public numbers show that no direction can be learned, only the constant is fitted.
Proofs: docs/proofs/second-order-regression.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.accounting.calibration import Part, multiplier, split_unit
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, record_signal
from discreet.records.base import Records
from discreet.records.bounds import row_rounding
from discreet.solvers import base
from discreet.solvers.gradients.descent import default_radius
from discreet.solvers.second_order.clipped_gradients import ClippedGradientMechanism
from discreet.solvers.second_order.coordinates import (
    SHORTEST_NORM,
    MomentMechanism,
    NoisyMoments,
    Reshaping,
    mapped,
    moment_mechanism,
    most_stretched,
    reshaped,
)
from discreet.solvers.second_order.posterior import Curvature, PosteriorMean, aims_of, prior_root

_STEPS = 20
_MOMENT_SHARE = 0.1  # of the squared Gaussian-DP parameter, for two releases of the second moment
_FIRST_SHARE = 0.3  # of that share
_LEVEL = 1.0  # directions are shrunk to the noise in the second moment
_UNSURE = 2.0  # standard deviations added to the mean square of reshaped records
_PRIOR, _CONSTANT_PRIOR = (
    1.0,
    0.1,
)  # variance of predictions, in units of the squared half range of the targets
_LEAST_MASS = 0.05  # of the squared norm of records
# Below this signal (see `record_signal`) only the constant is fitted, with tighter clipping and a tighter prior.
_BLIND, _BLIND_CLIP, _BLIND_PRIOR = 8.0, 1.05, 0.025


def row_clip(signal: float) -> float:
    """Return the norm to which reshaped records are clipped, over their root mean square."""
    return _BLIND_CLIP if signal < _BLIND else float(max(1.4, 1.5 * (signal / 700) ** 0.15))


def plan_regression(
    name: str,
    problem: Problem,
    guarantee: Guarantee,
    n_iterations: int | None = None,
    moment_share: float | None = None,
    radius: float | None = None,
    cap: float | None = None,
    clip: float | None = None,
) -> NewtonRegressionPlan:
    """Split the budget and calibrate all releases together; settings as in `NoisyNewton`."""
    if problem.n_models != 1:
        raise ParameterError("solver", f"{name!r} fits one regression, not {problem.n_models}")
    if problem.l2 is not None and "quadratic" not in problem.loss.proved_for:
        raise ParameterError(
            "l2",
            f"is not supported by solver {name!r} for the loss {problem.loss}",
            Setting("l2", purpose="as None"),
            Setting("solver", "objective", "noisy-gd"),
        )
    steps = _STEPS if n_iterations is None else _checks.count("n_iterations", n_iterations)
    share = _MOMENT_SHARE if moment_share is None else moment_share
    if not 0 < share < 1:
        raise ParameterError("moment_share", f"must lie between 0 and 1, got {moment_share!r}")
    shares = _FIRST_SHARE * share, (1 - _FIRST_SHARE) * share
    signal = record_signal(problem, guarantee)
    blind = signal < _BLIND and problem.bounds.intercept
    fitted = _constant_only(problem) if blind else problem
    width = fitted.n_features
    moments = [Part(share, width * (width + 1) // 2) for share in shares]
    unit = split_unit([*moments, Part(1 - sum(shares), width + 1, steps)], guarantee)
    if radius is None:
        stretch = most_stretched(fitted, guarantee.neighboring, multiplier(unit, shares[-1]))
        radius = default_radius(problem, signal) * stretch
    return NewtonRegressionPlan(
        problem, guarantee, fitted, steps, shares, unit, signal, radius, cap, row_clip(signal) if clip is None else clip
    )  # fmt: skip


def _constant_only(problem: Problem) -> Problem:
    return replace(problem, n_features=1)


@dataclass(frozen=True)
class NewtonRegressionPlan(base.Plan):
    """A calibrated run of second-order regression.

    Attributes
    ----------
    fitted : the problem that is solved: the problem itself, or that of the constant alone.
    n_iterations, radius, clip : as in `NoisyNewton`.
    moment_shares : shares of the squared Gaussian-DP parameter for the releases of the second moment.
    unit : noise multiplier of a single release with the whole budget.
    signal : records over noise, see `record_signal`.
    cap : the largest derivative of a record; None for the public rule.
    """

    fitted: Problem
    n_iterations: int
    moment_shares: tuple[float, ...]
    unit: float
    signal: float
    radius: float
    cap: float | None
    clip: float

    def __post_init__(self) -> None:
        for name, value in (("clip", self.clip), ("radius", self.radius)):
            if not 0 < value < math.inf:
                raise ParameterError(name, f"must be a finite number greater than 0, got {value!r}")
        if self.cap is not None and not 0 < self.cap <= self.problem.loss.lipschitz:
            most = self.problem.loss.lipschitz
            raise ParameterError(
                "cap", f"must be greater than 0 and at most {most:g} for this loss, got {self.cap!r}"
            )
        if not self.problem.bounds.feature_norm >= SHORTEST_NORM:
            raise ParameterError("feature_bound", f"must be at least {SHORTEST_NORM:.3g} for solver 'newton'")
        _ = self.releases  # raise now, before any charge, if anything can fail

    sums_only = True

    @property
    def constant_only(self) -> bool:
        """Whether only the constant is fitted."""
        return self.fitted.n_features < self.problem.n_features

    def moments(self, share: float, norm: float | None = None) -> MomentMechanism:
        """The release of the second moment, for records reshaped and clipped to ``norm`` if given."""
        return moment_mechanism(
            self.fitted, self.record_guarantee.neighboring, multiplier(self.unit, share), norm
        )

    def gradient(self, norm: float, loss: Loss, cap: float) -> ClippedGradientMechanism:
        """The release of a clipped gradient of records reshaped and clipped to ``norm``; its price is fixed."""
        share = (1 - sum(self.moment_shares)) / self.n_iterations
        rounding = row_rounding(self.problem.n_features, self.problem.bounds.feature_norm)
        return ClippedGradientMechanism(
            loss, cap, self.fitted.n_samples, self.fitted.n_features, norm, self.radius,
            self.record_guarantee.neighboring, multiplier(self.unit, share), rounding,
        )  # fmt: skip

    @cached_property
    def largest(self) -> ClippedGradientMechanism:
        """The release with the most noise: records that are not shrunk, derivatives that are not clipped."""
        loss = self.problem.loss
        return self.gradient(self.problem.bounds.feature_norm, loss, loss.lipschitz)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        norm = self.problem.bounds.feature_norm
        shares = [
            base.PlannedRelease(self.moments(share, norm), "second moment") for share in self.moment_shares
        ]
        return (*shares, base.PlannedRelease(self.largest, "clipped gradients", self.n_iterations))

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        what = "the constant column" if self.constant_only else "reshaped records"
        return f"Gaussian noise on the second moment, twice, and on {self.n_iterations} clipped gradients of {what}"

    proof = (
        "sensitivity of second moments (Theorem 4 of gradient methods), of clipped gradients with their companion "
        "(Theorem 2), exact composition of Gaussian releases (Theorem 3); docs/proofs/second-order-regression.md"
    )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run, with the largest possible noise (records that are not shrunk)."""
        norm = self.problem.bounds.feature_norm
        return {
            **{
                f"second moment noise stddev, look {number} (sum scale)": self.moments(
                    share, norm
                ).gaussian.stddev
                for number, share in enumerate(self.moment_shares, start=1)
            },
            "largest gradient noise stddev (sum scale)": self.largest.gaussian.stddev,
            "largest gradient sensitivity": self.largest.gaussian.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "signal over noise": self.signal,
            "radius": self.radius,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release the second moments, then fit the coefficients by clipped gradients."""
        rows, last = records[0], np.eye(self.problem.n_features)[:, -1:]
        if self.constant_only:
            rows = mapped(rows, last, self.problem.bounds.feature_norm)
        first = self.moments(self.moment_shares[0]).release(rows, entropy)
        before = self._reshaping(first, self.problem.bounds.feature_norm)
        second = self.moments(self.moment_shares[1], before.norm).release(
            mapped(rows, before.matrix, before.norm), entropy
        )
        again = self._reshaping(second, before.norm)
        shape = before.then(again)
        seen = _Seen(self.fitted, shape, Curvature.from_moments(second, again.matrix), first)
        theta = seen.with_ridge(self._search(mapped(rows, shape.matrix, shape.norm), seen, entropy, progress))
        return base.Release((last @ theta if self.constant_only else theta)[None], entropy.secure)

    def _reshaping(self, noisy: NoisyMoments, bound: float) -> Reshaping:
        return reshaped(noisy, self.problem.n_samples, bound, _LEVEL, self.clip, unsure=_UNSURE)

    def _search(self, rows: Records, seen: _Seen, entropy: Entropy, progress: Progress | None) -> Array:
        """Release all gradients and return the posterior mean."""
        step, theta = 0, np.zeros(self.fitted.n_features)
        least = max(0.005, 0.2 * min(1.0, (self.signal / 60) ** 2))
        per_column = self.signal / self.fitted.n_features
        for aim in aims_of(self.problem.loss, per_column, self.n_iterations, self.cap):
            start, root = theta + seen.constant(aim.shift), aim.reach * seen.prior_root
            state = PosteriorMean(seen.curvature, root, start, radius=self.radius, least_prior=least)
            for _ in range(aim.n_steps):
                cap = aim.cap
                factor, doubt = aim.felt(cap, *seen.predictions(state.theta))
                release = self.gradient(seen.shape.norm, aim.loss, cap)
                found = release.release(rows, state.theta, entropy)
                state.update(found.gradient, found.stddev, factor, doubt)
                if aim.shape != "density":  # there all derivatives are large, whatever the residuals
                    aim.scale.update(found.mean_square, found.mean_square_stddev, cap)
                step += 1
                if progress is not None:
                    progress(step, float(np.linalg.norm(found.gradient)))
            theta = state.theta
        return theta


@dataclass(frozen=True)
class _Seen:
    """The released second moments, and what they imply about records and predictions."""

    problem: Problem
    shape: Reshaping
    curvature: Curvature
    first: NoisyMoments

    @cached_property
    def prior_root(self) -> Array:
        """Root of the prior covariance: the columns and the constant each give predictions the variance ``_PRIOR``."""
        p, norm = self.problem.n_features, self.problem.bounds.feature_norm
        mass = max(float(np.trace(self.first.second)) / self.problem.n_samples, _LEAST_MASS * norm**2)
        variances = np.full(p, _PRIOR / mass)
        if self.problem.bounds.intercept:
            variances *= 2
            variances[-1] *= (_CONSTANT_PRIOR if p > 1 else _BLIND_PRIOR) / _PRIOR
        return prior_root(self.shape.matrix, variances)

    @cached_property
    def _constant_size(self) -> float:
        """Root mean square of the constant entry of a record; at most 1 if it was not shrunk."""
        return math.sqrt(max(float(self.first.second[-1, -1]) / self.problem.n_samples, 0.01))

    def constant(self, shift: float) -> Array:
        """Return coefficients that move every prediction by about ``shift``; zero without an intercept."""
        along = np.zeros(self.problem.n_features)
        if self.problem.bounds.intercept:
            along[-1] = shift / self._constant_size
        return np.asarray(np.linalg.solve(self.shape.matrix, along))

    def predictions(self, theta: Array) -> tuple[float, float]:
        """Estimate the mean and variance of predictions at ``theta``."""
        n, mean = self.problem.n_samples, 0.0
        if self.problem.bounds.intercept:
            row = self.first.second[:, -1] / (n * self._constant_size)
            mean = float(row @ (self.shape.matrix @ theta))
        return mean, max(float(theta @ self.curvature.matrix @ theta) / n - mean**2, 0.0)

    def with_ridge(self, theta: Array) -> Array:
        """Return the coefficients of the original records, shrunk as a ridge shrinks least squares."""
        l2, matrix = self.problem.l2, self.shape.matrix
        if l2:
            ridge = l2 * self.problem.n_samples * matrix.T @ matrix
            theta = np.asarray(np.linalg.solve(self.curvature.matrix + ridge, self.curvature.matrix @ theta))
        return np.asarray(matrix @ theta)
