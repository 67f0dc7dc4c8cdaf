"""What all noisy gradient methods share: the loop, its public defaults, and the noisy sum of gradients.

The loop takes projected Nesterov steps and averages the last iterates. It sees noisy gradients only, never data:
everything it does is post-processing. How far it goes, and how large the derivative of one record may be, follows from
public numbers by constants that were measured on public data (docs/decisions/0009-noisy-descent-rule.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from discreet import reporting
from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import Guarantee, Neighboring, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import one_blas_thread
from discreet.sets import Geometry
from discreet.solvers.gradients.row_centering import LeveledBounds

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
    t in the average (Lacoste-Julien, Schmidt and Bach, 2012). ``square_root`` divides step t by sqrt(t).
    """

    n_iterations: int
    learning_rate: float
    momentum: float
    averaging: float
    radius: float
    inside: Geometry | None = None
    strength: float = 0.0
    square_root: bool = False

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
            reporting.step(step + 1, self.n_iterations)
            if progress is not None:
                progress(step + 1, float(np.linalg.norm(gradient)))
        return total / weights

    def _rate(self, step: int) -> float:
        if self.square_root:
            return self.learning_rate / math.sqrt(step + 1)
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


_TIME = 0.055  # flow time per (signal over noise)^1.5


def signal_over_noise(problem: Problem, guarantee: Guarantee, field: Loss, budget: float) -> float:
    """Records per class over the noise of one release of everything, in units of a record's derivative bound."""
    contributions = guarantee.neighboring.contributions * math.sqrt(problem.n_models)
    per_class = problem.n_samples / max(1, field.n_outputs)
    return float(per_class * budget / (contributions * field.lipschitz))


def flow_time(problem: Problem, signal: float) -> float:
    """Sum of the steps: in time t, noise moves the prediction of a full row by t / (signal over noise) or so.

    More records bear more time. More columns mean more directions that time fills with noise before it finds
    anything in them, and somewhat less time is better, at most by a factor that is nearer 1 the more signal there is.
    """
    per_class = max(1, problem.loss.n_outputs)
    least = min(0.6, max(0.3, 0.3 * signal / 1000))
    columns = min(1.5, max(least, (problem.n_features / 100) ** -0.25))
    return float(_TIME * columns * signal**1.5 * per_class / problem.bounds.feature_norm**2)


def default_radius(problem: Problem, signal: float) -> float:
    """Wide enough not to matter: far beyond where the flow time leads."""
    return 100.0 * max(1.0, math.sqrt(signal)) / problem.bounds.feature_norm


def default_cap(problem: Problem, guarantee: Guarantee, budget: float) -> float:
    """How hard one record may pull: the less the noise, the closer to the loss as it is.

    Records that the model gets wrong are the ones a cap silences; while noise rules they cost more than they tell.
    """
    signal = signal_over_noise(problem, guarantee, problem.loss, budget) * problem.loss.lipschitz
    if problem.loss.n_outputs > 1:
        return float(0.15 * max(1.0, signal / 500) ** (1 / 3))
    return float(0.55 * max(1.0, signal / 2000) ** (1 / 3))


def capped(problem: Problem, guarantee: Guarantee, budget: float, cap: float | None) -> Loss:
    """The loss with its derivative capped, by the public rule where ``cap`` is None."""
    loss = problem.loss
    if cap is None:
        if "likelihood" not in loss.proved_for:
            return loss
        cap = default_cap(problem, guarantee, budget)
    return loss.capped(cap)


def noisy_sum(
    records: list[Records],
    field: Loss,
    point: Array,
    release: GaussianMechanism,
    entropy: Entropy,
    shape: LeveledBounds | None = None,
) -> Array:
    """The noisy sums of gradients of all models, each at its own point; of leveled records with a ``shape``."""
    points = point if shape is None else shape.coefficients(point)
    sums = np.stack([one.value_and_gradient(field, at)[1] for one, at in zip(records, points, strict=True)])
    exact = sums if shape is None else shape.images(sums)
    return release.release(exact.ravel(), entropy).reshape(point.shape)


def images(sums: Array, shape: LeveledBounds | None) -> Array:
    """What ``shape`` makes of the sums of every model."""
    return sums if shape is None else shape.images(sums)


def coefficients(theta: Array, shape: LeveledBounds | None) -> Array:
    """What coefficients for rows of this ``shape`` are for rows as they came."""
    return theta if shape is None else shape.coefficients(theta)


_ROWS = 4096  # records mapped at a time


def mapped(records: Records, matrix: Array, feature_norm: float) -> Records:
    """The records v_i replaced by matrix^T v_i, clipped to another norm; a dense copy, part by part if there are parts.

    Each new row is a function of its own record, up to rounding (docs/proofs/gradient-methods.md, section 7).
    """
    bounds = Bounds(feature_norm, intercept=False)
    return records.map_rows(_images, matrix, bounds, width=matrix.shape[1], bounds=bounds, sparse=False)


def _images(records: ArrayRecords, matrix: Array, bounds: Bounds) -> ArrayRecords:
    images = np.zeros((records.n_samples, matrix.shape[1]))
    unit = 2.0 ** max(0, math.frexp(np.abs(matrix).max())[1])
    scaled = matrix / unit  # entries of rows up to 2**300 must not overflow before the row's own scale
    with one_blas_thread:
        for first in range(0, records.n_samples, _ROWS):
            rows = slice(first, first + _ROWS)
            block = records.matrix[rows] if records.sparse else records.dense(rows)
            images[rows] = block @ scaled[: records.n_columns]
            if records.bounds.intercept:
                images[rows] += scaled[-1]
            images[rows] *= records.scales[rows, None]
    images *= unit
    return ArrayRecords(images, records.labels, bounds, records.scales == 0)


# The longest vector of energies that one record may have, over its squared norm; most records have many frequencies.
LONGEST_ENERGIES = 0.25


def frequency_visibility(
    n_samples: int, n_features: int, neighboring: Neighboring, noise_multiplier: float
) -> float:
    """The mean energy of a frequency over the noise in it; the norm of the records does not matter."""
    return n_samples / (
        n_features * acute_sum_sensitivity(LONGEST_ENERGIES, neighboring).value * noise_multiplier
    )
