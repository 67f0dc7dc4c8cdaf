"""Geometric median (least sum of distances to all records) by noisy gradient descent.

A record pulls theta with the unit vector from theta to the record, however far away it is: the gradient's sensitivity
is 2 (replace) or 1, whatever the rows are. The loss is not that of a linear model, so the proofs of objective
perturbation with Gaussian noise do not apply; noisy gradients need no such structure. The noise is Gaussian, or of the
gamma-norm kind where delta = 0. Proof: docs/proofs/geometric-median.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.mechanisms import recording
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import SLACK, Guarantee, Sensitivity
from discreet.records.bounds import UNIT_ROUNDOFF, Bounds, gamma
from discreet.sets import L2Ball
from discreet.solvers import base

_CHUNK_ENTRIES = 1 << 18


class Points:
    """The points z_i = s_i (x_i - center) / radius of the unit ball; rows outside are clipped onto its surface.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_columns); the points are a dense copy of it.
    center, radius : the public ball.

    Privacy
    -------
    Each point is a function of its own row. Rows with non-finite entries are null records, with no gradient.
    """

    def __init__(self, X: Any, center: Array, radius: float) -> None:
        n_samples, self.n_features = (int(size) for size in X.shape)
        self._height = max(1, _CHUNK_ENTRIES // max(1, self.n_features))
        self._points = np.empty((n_samples, self.n_features))
        filled = 0
        for start in range(0, n_samples, self._height):
            points = _inside(X[start : start + self._height], center, Bounds(radius, intercept=False))
            self._points[filled : filled + len(points)] = points
            filled += len(points)
        self._points = self._points[:filled]

    def direction_sum(self, theta: Array, width: float) -> Array:
        """sum_i (theta - z_i) / max(|theta - z_i|, width): the gradient of the rounded distances to all points."""
        total = np.zeros(self.n_features)
        for start in range(0, len(self._points), self._height):
            away = theta - self._points[start : start + self._height]
            lengths = np.sqrt(np.einsum("ij,ij->i", away, away))
            total += (1.0 / np.maximum(lengths, width)) @ away
        return total


def _inside(rows: Any, center: Array, bounds: Bounds) -> Array:
    """Return the finite rows, centered, divided by the radius and clipped."""
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    with np.errstate(all="ignore"):
        shifted = np.array(dense, dtype=np.float64) - center
        scales = bounds.row_scales(shifted)
    kept = scales > 0
    return np.asarray(shifted[kept] * (scales[kept] / bounds.feature_norm)[:, None])


def direction_rounding(n_samples: int, n_features: int, width: float) -> float:
    """Bound the L2 error of a computed ``direction_sum`` at a theta in the unit ball.

    n ((p + 32) 2^-52 / width + gamma_{p+8} + gamma_{m+2}): points are off by at most (p + 32) 2^-52, and the direction
    is 1 / width-Lipschitz in them; each direction rounds componentwise; each term passes m additions, within its chunk
    and over chunks (docs/proofs/geometric-median.md).
    """
    height = max(1, _CHUNK_ENTRIES // n_features)
    additions = min(n_samples, height + n_samples // height + 1)
    moved = (n_features + 32) * 2 * UNIT_ROUNDOFF / width
    return 1.01 * n_samples * (moved + gamma(n_features + 8) + gamma(additions + 2))


@dataclass(frozen=True)
class LocationProblem:
    """Public sizes of a location estimate: records, columns, and radius of the ball that contains them."""

    n_samples: int
    n_features: int
    radius: float


@dataclass(frozen=True)
class MedianDescent:
    """Projected noisy gradient descent on the mean distance. Returns the average of the second half of the iterates.

    Parameters
    ----------
    n_iterations : number of noisy gradients; None is 100, or fewer where delta = 0: as many as leave the noise of a
        mean gradient at a quarter of a unit vector, and one if not even four do.
    width : distance, in radii of the ball, below which a record pulls less than fully.

    Privacy
    -------
    (epsilon, delta), delta = 0 included, every relation; all iterates may be published.
    """

    n_iterations: int | None = None
    width: float = 0.01

    def plan(self, problem: LocationProblem, guarantee: Guarantee) -> MedianPlan:
        """The least noise that meets the guarantee."""
        steps = _default_steps(problem, guarantee)
        if self.n_iterations is not None:
            steps = _checks.count("n_iterations", self.n_iterations)
        width = _checks.real("width", self.width)
        if not 1e-6 <= width <= 1:
            raise ParameterError(
                "width",
                f"must lie between 1e-6 and 1, got {width!r}",
                "it is a share of the radius",
            )
        size = problem.n_features
        if guarantee.delta == 0:
            return MedianPlan(problem, guarantee, steps, width, steps / guarantee.epsilon * SLACK)

        def event(multiplier: float) -> events.Event:
            return events.Repeated(events.Discretized(events.Gaussian(multiplier), size), steps)

        return MedianPlan(problem, guarantee, steps, width, calibrate(event, guarantee))


_GAUSSIAN_STEPS = 100
# Length of the noise on a mean gradient, over the longest one there can be, that steps without Gaussian noise may have
# each; and the fewest steps that get anywhere near the median. Chosen on generated points, see benchmarks/pure.py.
_STEP_NOISE, _LEAST_STEPS = 0.24, 4
_HOPELESS = 0.35  # noise of one mean gradient with the whole budget, over the longest


def _default_steps(problem: LocationProblem, guarantee: Guarantee) -> int:
    """How many noisy gradients; without delta their noise grows with their number, so that few are affordable.

    With Gaussian noise many short steps are as good as few long ones, unless the noise of all exceeds the longest mean
    gradient by far: then one step, shrunk by what noise explains, is left.
    """
    if guarantee.delta > 0:
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * problem.n_samples
        noise = guarantee.neighboring.contributions * math.sqrt(problem.n_features) / budget
        return 1 if noise > _HOPELESS else _GAUSSIAN_STEPS
    whole = guarantee.neighboring.contributions * problem.n_features
    affordable = _STEP_NOISE * guarantee.epsilon * problem.n_samples / whole
    if affordable < _LEAST_STEPS / 2:
        return 1
    return int(min(max(affordable, _LEAST_STEPS), _GAUSSIAN_STEPS))


@dataclass(frozen=True)
class MedianPlan(base.Plan):
    """A calibrated run."""

    problem: LocationProblem  # type: ignore[assignment]  # points have no loss and no bounds
    n_iterations: int
    width: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.release  # raise now, before any charge, if anything can fail

    @property
    def pure(self) -> bool:
        """Whether the noise is of the gamma-norm kind, whose guarantee has delta = 0."""
        return self.record_guarantee.delta == 0

    @cached_property
    def release(self) -> GaussianMechanism | GammaNormMechanism:
        """The noisy sum of unit vectors."""
        problem = self.problem
        rounding = direction_rounding(problem.n_samples, problem.n_features, self.width)
        sensitivity = Sensitivity(self.record_guarantee.neighboring.contributions + 2 * rounding)
        kind = GammaNormMechanism if self.pure else GaussianMechanism
        return kind(sensitivity, self.noise_multiplier, problem.n_features)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.release, "directions", self.n_iterations),)

    @property
    def how(self) -> str:
        """How the noise is added, in words."""
        kind = "gamma-norm" if self.pure else "Gaussian"
        return f"{self.n_iterations} sums of unit vectors with {kind} noise, projected descent"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        composed = "basic composition of pure" if self.pure else "exact composition of Gaussian"
        return f"sums of unit vectors, {composed} releases; docs/proofs/geometric-median.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        release = self.release
        noise: tuple[str, float] = ("noise stddev (sum of unit vectors)", self._stddev)
        sampler = "exact discrete Gaussian"
        if isinstance(release, GammaNormMechanism):
            noise = ("noise scale (norm of the noise on a sum of unit vectors)", release.scale)
            sampler = "exactly rounded gamma-norm noise"
        return {
            noise[0]: noise[1],
            "sensitivity": release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "width (share of the radius)": self.width,
            "sampler": f"{sampler}, {SOURCE}",
        }

    @property
    def _stddev(self) -> float:
        """Standard deviation of one entry of the noise."""
        release = self.release
        if isinstance(release, GammaNormMechanism):
            return release.scale * math.sqrt(self.problem.n_features + 1)
        return release.stddev

    def _plausible(self, noisy: Array) -> Array:
        """The part of a noisy sum that noise does not explain, no longer than the sum of unit vectors can be.

        Where steps are few, one that follows the noise is not made up for by later ones.
        """
        if not self.pure and self.n_iterations > 1:
            return noisy
        length = float(np.linalg.norm(noisy))
        explained = self.problem.n_features * self._stddev**2
        kept = max(0.0, 1.0 - explained / length**2) if length else 0.0
        return noisy * min(kept, self.problem.n_samples / max(length, 1.0))

    def run(  # type: ignore[override]  # points of a ball, not records with labels
        self, points: Points, entropy: Entropy, progress: Progress | None = None
    ) -> base.Release:
        """Walk towards the median, in units of the radius around the center."""
        problem = self.problem
        ball = L2Ball(1.0, problem.n_features)
        theta = ball.center()
        total, n_averaged = np.zeros_like(theta), self.n_iterations - self.n_iterations // 2
        for step in range(self.n_iterations):
            sums = points.direction_sum(theta, self.width)
            noisy = self._plausible(self.release.release(sums, entropy))
            rate = 4.0 / (step + 8.0)
            theta = ball.project(theta - rate / problem.n_samples * noisy)
            if step >= self.n_iterations - n_averaged:
                total += theta
            recording.step(step + 1, self.n_iterations)
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(noisy)))
        return base.Release(total[None] / n_averaged, entropy.secure)

    @property
    def sizes(self) -> Mapping[str, str]:
        """Public sizes for the printed plan."""
        problem = self.problem
        return {
            "records x columns": f"{problem.n_samples} x {problem.n_features}",
            "radius of the ball": f"{problem.radius:g}",
        }
