"""One way to a verified minimizer, in all of space or over a set, with one measure of what is left: l2 x distance.

In all of space that is a bound on the gradient, over a set it is measured by `discreet.solvers.constrained`. Either way
two verified minimizers of one objective are at most 2 tolerance / l2 apart.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.losses import CappedSoftmax
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.certificates import geometry_of
from discreet.solvers.constrained import minimize_over, require_known, smallest_distance
from discreet.solvers.nonprivate import Objective, Optimizer, minimize, smallest_tolerance

Array = NDArray[np.float64]


def check(name: str, problem: Problem) -> None:
    """Raise where no minimizer can be verified."""
    if not math.isfinite(problem.loss.smoothness):
        raise ValueError(
            f"solver {name!r} verifies its minimizer by the gradient, which {problem.loss} does not have everywhere; "
            "use HuberHinge instead of Hinge, or solver='noisy-gd'"
        )
    refuse_field(name, problem)
    if problem.geometry is not None:
        require_known(name, geometry_of(problem, name))


def refuse_field(name: str, problem: Problem) -> None:
    """A softmax with capped derivatives is no gradient and has no minimizer; its steps may move points apart."""
    if isinstance(problem.loss, CappedSoftmax):
        raise ValueError(
            f"solver {name!r} needs the gradient of a convex loss, which {problem.loss} is not; use Softmax, or "
            "solver='noisy-gd', which pays for every step"
        )


def least_tolerance(problem: Problem, total_l2: float, linear_norm: float) -> float:
    """The least l2 x distance that can be verified in double precision, from public sizes alone."""
    sizes = problem.loss, problem.n_samples, problem.n_features, problem.bounds.feature_norm
    if problem.geometry is None:
        return smallest_tolerance(*sizes, total_l2, linear_norm)
    return total_l2 * smallest_distance(*sizes, total_l2, linear_norm, problem.geometry)


def find(
    problem: Problem,
    records: ArrayRecords,
    total_l2: float,
    tolerance: float,
    linear: Array | None = None,
    *,
    optimizer: Optimizer = "auto",
    progress: base.Progress | None = None,
) -> Array:
    """A point whose distance to the exact minimizer is proved to be at most tolerance / total_l2."""
    objective = Objective(records, problem.loss, total_l2, linear)
    if problem.geometry is None:
        return minimize(objective, tolerance, optimizer=optimizer, progress=progress).theta
    return minimize_over(objective, problem.geometry, tolerance / total_l2, progress)


def published(problem: Problem, theta: Array, grid: float) -> Array:
    """Noisy models back in their set, or without the mean over classes that moves no prediction: post-processing.

    The mean is rounded to the ``grid`` of the noise, so that released numbers stay multiples of it.
    """
    if problem.geometry is not None:
        return np.stack([problem.geometry.project(model.ravel()).reshape(model.shape) for model in theta])
    if problem.loss.n_outputs > 1:
        return np.asarray(theta - np.rint(theta.mean(axis=-1, keepdims=True) / grid) * grid)
    return theta
