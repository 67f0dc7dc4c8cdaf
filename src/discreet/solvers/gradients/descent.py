"""Shared parts of the noisy gradient methods: the loop, its public defaults, and the noisy sum of gradients.

The loop takes projected Nesterov steps and averages the last iterates. It sees only noisy gradients, so everything it
does is post-processing. The flow time and the cap on a record's derivative follow from public numbers, with constants
measured on public data (docs/decisions/0009-noisy-descent-rule.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms import recording
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, class_signal, gradient_signal
from discreet.records.base import Records
from discreet.sets import Geometry
from discreet.solvers.gradients.row_centering import LeveledBounds

_MOST_MOMENTUM = 0.95
_MEMORIES = 8  # minimum number of steps, in units of 1 / (1 - momentum)
_LARGEST_RADIUS, _LARGEST_RATE = 1e12, 1e90  # rates grow like 1 / R^2, and R may be 2^-100
_CLEAR_INSIDE = 40.0  # signal over noise from which a set needs no cap (benchmarks/sets.py)
STEP = 1.25  # in units of 1 / (largest curvature); Nesterov's method is stable up to 4/3


@dataclass(frozen=True)
class Descent:
    """Public settings of descent along noisy gradients.

    ``averaging`` is the fraction of final iterates that is averaged. Every point at which a gradient is computed lies
    in the ball of radius ``radius`` and, if given, in the set ``inside`` (each model separately). With a ``strength``
    of convexity m, step t = 1, 2, ... is 2 / (m (t + 1)), at most ``learning_rate``, and its iterate has weight t in
    the average (Lacoste-Julien, Schmidt and Bach, 2012). ``square_root`` divides step t by sqrt(t). ``fading`` steps
    fall in a line, from ``learning_rate`` to 0 after the last one.
    """

    n_iterations: int
    learning_rate: float
    momentum: float
    averaging: float
    radius: float
    inside: Geometry | None = None
    strength: float = 0.0
    square_root: bool = False
    fading: bool = False

    def __post_init__(self) -> None:
        steps = self.n_iterations
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ParameterError("n_iterations", f"must be a whole number of at least 1, got {steps!r}")
        if not 0 <= self.momentum < 1:
            raise ParameterError("momentum", f"must be at least 0 and less than 1, got {self.momentum!r}")
        limits = (
            ("radius", self.radius, _LARGEST_RADIUS),
            ("learning_rate", self.learning_rate, _LARGEST_RATE),
        )
        for name, value, most in limits:
            if not 0 < value <= most:
                raise ParameterError(
                    name, f"must be a number greater than 0 and at most {most:g}, got {value!r}"
                )
        if not 0 < self.averaging <= 1:
            raise ParameterError("averaging", f"must lie between 0 and 1, got {self.averaging!r}")

    @classmethod
    def lasting(
        cls, time: float, curvature: float, n_iterations: int, averaging: float, radius: float
    ) -> Descent:
        """Return a descent with this flow time: stable step sizes, with as much momentum as these fall short.

        On a quadratic the average of the last iterates is a fixed linear function of the gradients. For the same flow
        time its noise and its bias are next to the same for any number of steps, at every curvature, as long as the
        momentum that is needed leaves room for ``_MEMORIES`` of its memories.
        """
        largest_rate = STEP / curvature
        least = max(1.0 - _MOST_MOMENTUM, _MEMORIES / n_iterations)
        forgetting = min(1.0, max(largest_rate * n_iterations / time, least))
        rate = min(largest_rate, time * forgetting / n_iterations, _LARGEST_RATE)
        return cls(n_iterations, rate, 1.0 - forgetting, averaging, radius)

    def run(
        self, start: Array, noisy_gradient: Callable[[Array], Array], progress: Progress | None = None
    ) -> Array:
        """Return the average of the last iterates; ``noisy_gradient`` is the noisy gradient of the mean loss."""
        theta = before = start
        total, weights = np.zeros_like(start), 0.0
        n_averaged = max(1, round(self.averaging * self.n_iterations))
        for step in range(self.n_iterations):
            point = self._projected(theta + self.momentum * (theta - before))
            rate = self._rate(step)
            gradient = noisy_gradient(point)
            before, theta = theta, self._projected(point - rate * gradient)
            if step >= self.n_iterations - n_averaged:
                weight = step + 1.0 if self.strength else 1.0
                total += weight * theta
                weights += weight
            recording.step(step + 1, self.n_iterations)
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(gradient)))
        return total / weights

    def accumulated(self) -> float:
        """Return the variance of one coordinate for gradients of pure noise with variance 1, far from the borders.

        The average is linear in the noise. From the last step to the first, ``counts`` is what the weighted sum gains
        from an iterate and all that follow from it.
        """
        counts = later = weights = variance = 0.0
        n_averaged = max(1, round(self.averaging * self.n_iterations))
        for step in reversed(range(self.n_iterations)):
            weight = 0.0
            if step >= self.n_iterations - n_averaged:
                weight = step + 1.0 if self.strength else 1.0
            counts, later = weight + counts + self.momentum * (counts - later), counts
            variance += (self._rate(step) * counts) ** 2
            weights += weight
        return variance / weights**2

    def _rate(self, step: int) -> float:
        if self.square_root:
            return self.learning_rate / math.sqrt(step + 1)
        if self.fading:
            return self.learning_rate * (1 - step / self.n_iterations)
        if not self.strength:
            return self.learning_rate
        return min(self.learning_rate, 2 / (self.strength * (step + 2)))

    def _projected(self, theta: Array) -> Array:
        """Project every model onto its set, then onto the ball, which rounding may have left."""
        theta = project(theta, _LARGEST_RADIUS if self.inside is not None else self.radius)
        if self.inside is None:
            return theta
        nearest = [self.inside.project(one.ravel()).reshape(one.shape) for one in theta]
        return project(np.stack(nearest), self.radius)


def project(theta: Array, radius: float) -> Array:
    """Project each model onto the ball; a non-finite vector becomes 0."""
    flat = theta.reshape(len(theta), -1)
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(flat).sum(axis=1))
        if (norms <= radius).all():
            return theta
        scales = np.where(norms <= radius, 1.0, radius / norms)
    scales = np.where(np.isfinite(norms), scales, 0.0)
    safe = np.where(np.isfinite(norms)[:, None], flat, 0.0)
    return np.asarray((safe * scales[:, None]).reshape(theta.shape))


def centered(theta: Array) -> Array:
    """Subtract the mean over the classes of a softmax, which is pure noise and changes no prediction."""
    return np.asarray(theta - theta.mean(axis=-1, keepdims=True))


_TIME = 0.055  # flow time per (signal over noise)^1.5


def flow_time(problem: Problem, signal: float) -> float:
    """Return the sum of the step sizes; in time t, noise moves a full row's prediction by about t / signal.

    More records allow more time. With more columns, noise fills more directions before any signal is found, so less
    time is better, by a factor that approaches 1 as the signal grows.
    """
    per_class = max(1, problem.loss.n_outputs)
    least = min(0.6, max(0.3, 0.3 * signal / 1000))
    columns = min(1.5, max(least, (problem.n_features / 100) ** -0.25))
    return float(_TIME * columns * signal**1.5 * per_class / problem.bounds.feature_norm**2)


def default_radius(problem: Problem, signal: float) -> float:
    """Return a radius far beyond what the flow time reaches, so that it does not matter."""
    return 100.0 * max(1.0, math.sqrt(signal)) / problem.bounds.feature_norm


def default_cap(problem: Problem, guarantee: Guarantee, budget: float) -> float:
    """Return the default cap on a record's derivative. Less noise allows a larger cap, up to the uncapped loss.

    A cap limits records that the model gets wrong. While noise dominates, they cost more than they contribute. Where
    coefficients lie in a set, it is lifted as soon as the noise is clear of the gradient: the minimizer in the set is
    what was asked for, and a cap moves it.
    """
    signal = class_signal(problem, guarantee, problem.loss, budget) * problem.loss.lipschitz
    if problem.loss.n_outputs > 1:
        cap = 0.15 * max(1.0, signal / 500) ** (1 / 3)
    else:
        cap = 0.55 * max(1.0, signal / 2000) ** (1 / 3)
    clear = 1.0 if problem.geometry is None else max(1.0, gradient_signal(problem, guarantee) / _CLEAR_INSIDE)
    return float(cap * clear)


def reshaped_cap(signal: float) -> float:
    """Return the cap on a record's derivative, which grows with the signal.

    It is at least 1/2, the derivative at an even guess. Below that the capped loss is flat around even guesses, nothing
    pulls coefficients back from the noise, and predictions drift away from the class shares where columns tell nothing.
    """
    return float(min(1.0, max(0.5, 0.3 * (signal / 400) ** 0.3)))


def capped(problem: Problem, guarantee: Guarantee, budget: float, cap: float | None) -> Loss:
    """Return the loss with its derivative capped; if ``cap`` is None, by the public rule."""
    loss = problem.loss
    if cap is None:
        if "likelihood" not in loss.proved_for:
            return loss
        cap = default_cap(problem, guarantee, budget)
    return loss.capped(cap)


class Coordinates(Protocol):
    """A linear map of records, without the records: it maps coefficients back and sums forth."""

    def coefficients(self, theta: Array, /) -> Array:
        """Return coefficients for unchanged records."""
        ...

    def images(self, sums: Array, /) -> Array:
        """Return the images of sums over unchanged records."""
        ...


def noisy_sum(
    records: list[Records],
    field: Loss,
    point: Array,
    release: GaussianMechanism,
    entropy: Entropy,
    shape: Coordinates | None = None,
) -> Array:
    """Return the noisy gradient sums of all models, each at its own point; with a ``shape``, in its coordinates."""
    points = point if shape is None else shape.coefficients(point)
    sums = np.array([one.gradient(field, at) for one, at in zip(records, points, strict=True)])
    exact = sums if shape is None else shape.images(sums)
    return release.release(exact.ravel(), entropy).reshape(point.shape)


def noisy_mean_gradient(
    records: list[Records],
    field: Loss,
    release: GaussianMechanism,
    entropy: Entropy,
    n_samples: int,
    ridge: Array | None = None,
    shape: Coordinates | None = None,
) -> Callable[[Array], Array]:
    """Return the noisy gradient of the mean loss plus <theta, ridge theta> / 2, as a function of the point.

    With a ``shape``, the point and the gradient are in its coordinates.
    """

    def gradient(point: Array) -> Array:
        slope = None if ridge is None else np.stack([ridge @ one for one in point])
        mean = noisy_sum(records, field, point, release, entropy, shape) / n_samples
        return mean if slope is None else np.asarray(mean + slope)

    return gradient


def images(sums: Array, shape: LeveledBounds | None) -> Array:
    """Apply the map Q of ``shape`` to the sums of every model."""
    return sums if shape is None else shape.images(sums)


def coefficients(theta: Array, shape: LeveledBounds | None) -> Array:
    """Transform coefficients for rows of this ``shape`` into coefficients for the original rows."""
    return theta if shape is None else shape.coefficients(theta)
