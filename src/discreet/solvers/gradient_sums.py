"""The noisy sum of gradients: all that a step of noisy descent asks of the records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.records.arrays import ArrayRecords
from discreet.solvers.leveled import LeveledBounds

Array = NDArray[np.float64]


def noisy_sum(
    records: list[ArrayRecords],
    field: Loss,
    point: Array,
    release: GaussianMechanism,
    entropy: Entropy,
    shape: LeveledBounds | None = None,
) -> Array:
    """The noisy sums of gradients of all models, each at its own point; of leveled records with a ``shape``."""
    points = coefficients(point, shape)
    sums = [part.value_and_gradient(field, at)[1] for part, at in zip(records, points, strict=True)]
    return release.release(images(np.stack(sums), shape).ravel(), entropy).reshape(point.shape)


def images(sums: Array, shape: LeveledBounds | None) -> Array:
    """What ``shape`` makes of the sums of every model."""
    return sums if shape is None else shape.images(sums)


def coefficients(theta: Array, shape: LeveledBounds | None) -> Array:
    """What coefficients for rows of this ``shape`` are for rows as they came."""
    return theta if shape is None else shape.coefficients(theta)
