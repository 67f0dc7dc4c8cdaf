"""The loop that all noisy gradient methods share: projected Nesterov steps, and an average of the last iterates.

It sees noisy gradients only, never data: everything here is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.solvers.base import Progress

Array = NDArray[np.float64]


_MOMENTA = (0.0, 0.8, 0.9, 0.95)
_MEMORIES = 8  # the steps must be this many times as many as momentum remembers
_LARGEST_RADIUS, _LARGEST_RATE = 1e12, 1e90  # rates grow like 1 / R^2, and R may be 2^-100
STEP = 1.25  # Nesterov's method is stable up to 4/3 over the largest curvature


@dataclass(frozen=True)
class Descent:
    """Public settings of a walk down noisy gradients.

    ``averaging`` is the last share of the iterates that is averaged; every point at which a gradient is asked for
    lies in the ball of radius ``radius`` (each model in its own).
    """

    n_iterations: int
    learning_rate: float
    momentum: float
    averaging: float
    radius: float

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
        total = np.zeros_like(start)
        n_averaged = max(1, round(self.averaging * self.n_iterations))
        for step in range(self.n_iterations):
            point = project(theta + self.momentum * (theta - before), self.radius)
            gradient = noisy_gradient(point)
            before, theta = theta, project(point - self.learning_rate * gradient, self.radius)
            if step >= self.n_iterations - n_averaged:
                total += theta
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(gradient)))
        return total / n_averaged


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
