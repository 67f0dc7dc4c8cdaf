"""Geometric median (least sum of distances to all records) by noisy gradient descent.

A record's gradient is the unit vector from the record to theta, at any distance, so the sensitivity is 2 (replace)
or 1 for all rows. The loss is not that of a linear model, so the proofs of Gaussian objective perturbation do not
apply; noisy gradient descent does not need that structure. Proof: docs/proofs/geometric-median.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from discreet import _checks, reporting
from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.records.bounds import Bounds
from discreet.records.kernels.passes import UNIT_ROUNDOFF, gamma
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
    n_iterations : number of noisy gradients.
    width : distance, in radii of the ball, below which a record's gradient shrinks linearly to zero.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation; all iterates may be published.
    """

    n_iterations: int = 100
    width: float = 0.01

    def plan(self, problem: LocationProblem, guarantee: Guarantee) -> MedianPlan:
        """Return the plan with the least noise that meets the guarantee."""
        if guarantee.delta == 0:
            raise ValueError(
                "the geometric median is found by gradients with Gaussian noise, which cannot give delta = 0; choose a "
                "delta greater than 0, for instance 1 / n**2"
            )
        steps = _checks.count("n_iterations", self.n_iterations)
        width = _checks.real("width", self.width)
        if not 1e-6 <= width <= 1:
            raise ParameterError(
                "width",
                f"must lie between 1e-6 and 1, got {width!r}",
                "it is a share of the radius",
            )
        size = problem.n_features

        def event(multiplier: float) -> events.Event:
            return events.Repeated(events.Discretized(events.Gaussian(multiplier), size), steps)

        return MedianPlan(problem, guarantee, steps, width, calibrate(event, guarantee))


@dataclass(frozen=True)
class MedianPlan(base.Plan):
    """A calibrated run."""

    problem: LocationProblem  # type: ignore[assignment]  # points have no loss and no bounds
    n_iterations: int
    width: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.release  # raise now, before any charge, if anything can fail

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy sum of unit vectors."""
        problem = self.problem
        rounding = direction_rounding(problem.n_samples, problem.n_features, self.width)
        sensitivity = Sensitivity(self.record_guarantee.neighboring.contributions + 2 * rounding)
        return GaussianMechanism(sensitivity, self.noise_multiplier, problem.n_features)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.release, "directions", self.n_iterations),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return f"{self.n_iterations} sums of unit vectors with Gaussian noise, projected descent"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return "sums of unit vectors, exact composition of Gaussian releases; docs/proofs/geometric-median.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "noise stddev (sum of unit vectors)": self.release.stddev,
            "sensitivity": self.release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "width (share of the radius)": self.width,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

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
            noisy = self.release.release(sums, entropy)
            rate = 4.0 / (step + 8.0)
            theta = ball.project(theta - rate / problem.n_samples * noisy)
            if step >= self.n_iterations - n_averaged:
                total += theta
            reporting.step(step + 1, self.n_iterations)
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
