"""The point with the least sum of distances to all records, by noisy gradient descent.

A record pulls theta with the unit vector from theta to the record, however far away it is: the gradient's sensitivity
is 2 (replace) or 1, whatever the rows are. The loss is not that of a linear model, so the proofs of objective
perturbation with Gaussian noise do not apply; noisy gradients need no such structure. Proof:
docs/proofs/geometric-median.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet import _inputs
from discreet.geometries import L2Ball
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.privacy.statement import plan_text
from discreet.records.points import Points, direction_rounding
from discreet.solvers import base


@dataclass(frozen=True)
class LocationProblem:
    """Public sizes of a location estimate: records, columns, and the radius of the ball that holds them."""

    n_samples: int
    n_features: int
    radius: float


@dataclass(frozen=True)
class MedianDescent:
    """Projected noisy gradient descent on the mean distance; the average of the second half of the iterates.

    Parameters
    ----------
    n_iterations : number of noisy gradients.
    width : distance, in radii of the ball, below which a record pulls less than fully.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation; all iterates may be published.
    """

    n_iterations: int = 100
    width: float = 0.01

    def plan(self, problem: LocationProblem, guarantee: Guarantee) -> MedianPlan:
        """The least noise that meets the guarantee."""
        if guarantee.delta == 0:
            raise ValueError(
                "the geometric median is found by gradients with Gaussian noise, which cannot give delta = 0; choose a "
                "delta greater than 0, for instance 1 / n**2"
            )
        steps = _inputs.count("n_iterations", self.n_iterations)
        width = _inputs.real("width", self.width)
        if not 1e-6 <= width <= 1:
            raise ValueError(f"width must lie between 1e-6 and 1, got {width!r}; it is a share of the radius")
        size = problem.n_features

        def event(multiplier: float) -> events.Event:
            return events.Repeated(events.Discretized(events.Gaussian(multiplier), size), steps)

        return MedianPlan(problem, guarantee, steps, width, calibrate(event, guarantee))


@dataclass(frozen=True)
class MedianPlan:
    """A calibrated run."""

    problem: LocationProblem
    guarantee: Guarantee
    n_iterations: int
    width: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        _ = self.release  # everything that can fail does so now, before a charge

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy sum of unit vectors."""
        problem = self.problem
        rounding = direction_rounding(problem.n_samples, problem.n_features, self.width)
        sensitivity = Sensitivity(self.guarantee.neighboring.contributions + 2 * rounding)
        return GaussianMechanism(sensitivity, self.noise_multiplier, problem.n_features)

    @property
    def event(self) -> events.Event:
        """T Gaussian releases."""
        return events.Repeated(self.release.event, self.n_iterations)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"{self.n_iterations} sums of unit vectors with Gaussian noise, projected descent"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return "sums of unit vectors, exact composition of Gaussian releases; docs/proofs/geometric-median.md"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "noise stddev (sum of unit vectors)": self.release.stddev,
            "sensitivity": self.release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "width (share of the radius)": self.width,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, points: Points, entropy: Entropy, progress: base.Progress | None = None) -> base.Release:
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
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(noisy)))
        return base.Release(total[None] / n_averaged, entropy.secure)

    def __str__(self) -> str:
        problem = self.problem
        sizes = {
            "records x columns": f"{problem.n_samples} x {problem.n_features}",
            "radius of the ball": f"{problem.radius:g}",
        }
        return plan_text(self, sizes)
