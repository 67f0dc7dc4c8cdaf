"""The loop that all noisy gradient methods share: projected Nesterov steps, and an average of the last iterates.

It sees noisy gradients only, never data: everything here is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.geometries import Geometry
from discreet.solvers.base import Progress

Array = NDArray[np.float64]


_MOMENTA = (0.0, 0.8, 0.9, 0.95)
_MEMORIES = 8  # there must be this many times as many steps as momentum remembers
_LARGEST_RADIUS, _LARGEST_RATE = 1e12, 1e90  # rates grow like 1 / R^2, and R may be 2^-100
STEP = 1.25  # in units of 1 / (largest curvature); Nesterov's method is stable up to 4/3


@dataclass(frozen=True)
class Descent:
    """Public settings of a walk down noisy gradients.

    ``averaging`` is the last share of the iterates that is averaged; every point at which a gradient is asked for
    lies in the ball of radius ``radius`` and ``inside`` the set, if there is one (each model in its own). With a
    ``strength`` of convexity m step t = 1, 2, ... is 2 / (m (t + 1)), at most ``learning_rate``, and its end has weight
    t in the average (Lacoste-Julien, Schmidt and Bach, 2012).
    """

    n_iterations: int
    learning_rate: float
    momentum: float
    averaging: float
    radius: float
    inside: Geometry | None = None
    strength: float = 0.0

    def __post_init__(self) -> None:
        steps = self.n_iterations
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"n_iterations must be a whole number of at least 1, got {steps!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and less than 1, got {self.momentum!r}")
        limits = (
            ("radius", self.radius, _LARGEST_RADIUS),
            ("learning_rate", self.learning_rate, _LARGEST_RATE),
        )
        for name, value, most in limits:
            if not 0 < value <= most:
                raise ValueError(
                    f"{name} must be a number greater than 0 and at most {most:g}, got {value!r}"
                )
        if not 0 < self.averaging <= 1:
            raise ValueError(f"averaging must lie between 0 and 1, got {self.averaging!r}")

    @classmethod
    def lasting(
        cls, time: float, curvature: float, n_iterations: int, averaging: float, radius: float
    ) -> Descent:
        """A flow of this duration: in steps that the curvature allows, with momentum where plain ones fall short."""
        largest_rate = STEP / curvature
        reach = largest_rate * n_iterations
        allowed = [m for m in _MOMENTA if m == 0 or n_iterations * (1 - m) >= _MEMORIES]
        momentum = next((m for m in allowed if reach >= time * (1 - m)), allowed[-1])
        rate = min(largest_rate, time * (1 - momentum) / n_iterations, _LARGEST_RATE)
        return cls(n_iterations, rate, momentum, averaging, radius)

    def run(
        self, start: Array, noisy_gradient: Callable[[Array], Array], progress: Progress | None = None
    ) -> Array:
        """The average of the last iterates; ``noisy_gradient`` is that of the mean loss."""
        theta = before = start
        total, weights = np.zeros_like(start), 0.0
        n_averaged = max(1, round(self.averaging * self.n_iterations))
        for step in range(self.n_iterations):
            point = self._projected(theta + self.momentum * (theta - before))
            gradient = noisy_gradient(point)
            before, theta = theta, self._projected(point - self._rate(step) * gradient)
            if step >= self.n_iterations - n_averaged:
                weight = step + 1.0 if self.strength else 1.0
                total += weight * theta
                weights += weight
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(gradient)))
        return total / weights

    def _rate(self, step: int) -> float:
        if not self.strength:
            return self.learning_rate
        return min(self.learning_rate, 2 / (self.strength * (step + 2)))

    def _projected(self, theta: Array) -> Array:
        """Every model onto its set, then onto the ball, which it may have left by rounding."""
        theta = project(theta, _LARGEST_RADIUS if self.inside is not None else self.radius)
        if self.inside is None:
            return theta
        nearest = [self.inside.project(one.ravel()).reshape(one.shape) for one in theta]
        return project(np.stack(nearest), self.radius)


def project(theta: Array, radius: float) -> Array:
    """Each model onto the ball; a vector that is not finite becomes 0."""
    flat = theta.reshape(len(theta), -1)
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(flat).sum(axis=1))
        scales = np.where(norms <= radius, 1.0, radius / norms)
    scales = np.where(np.isfinite(norms), scales, 0.0)
    safe = np.where(np.isfinite(norms)[:, None], flat, 0.0)
    return np.asarray((safe * scales[:, None]).reshape(theta.shape))


def centered(theta: Array, n_outputs: int) -> Array:
    """Without the mean over the classes of a softmax, which is pure noise and moves no prediction."""
    return np.asarray(theta - theta.mean(axis=-1, keepdims=True)) if n_outputs > 1 else theta
