"""Gaussian noise for symmetric matrices, equivalent to the plain Gaussian mechanism with half the variates.

A symmetric matrix W is the vector (W_ii, sqrt(2) W_ij for i > j), whose L2 norm is the Frobenius norm of W. Noise of
standard deviation s on every coordinate of that vector is noise of s on the diagonal and of s / sqrt(2) elsewhere. Its
spectral norm is about sqrt(2) s sqrt(order), instead of 2 s sqrt(order) for independent or mirrored entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.mechanisms.additive import GaussianNoise, check_mechanism, scale_with_rounding
from discreet.mechanisms.recording import listening, observed
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Discretized, Event, Gaussian
from discreet.privacy.guarantee import Sensitivity

Indices = NDArray[np.intp]
_BESIDE = math.sqrt(0.5) * (1 + 2.0**-50)  # never below 1 / sqrt(2)


@dataclass(frozen=True)
class SymmetricGaussianMechanism:
    """Release ``count`` symmetric matrices of the given ``order`` at once.

    Parameters
    ----------
    sensitivity : Sensitivity
        Frobenius distance between the values of neighbors, over all matrices together, for the float64 numbers
        passed to ``release``.
    noise_multiplier : float
        Noise scale over sensitivity.
    order, count : int
        Size and number of the matrices, public.

    Privacy
    -------
    Event: ``Gaussian(noise_multiplier)``, discretized. Rounding down to the grid moves two stacks of matrices apart by
    at most ``grid * order * sqrt(count)`` in Frobenius norm, which ``stddev`` includes. The two kinds of entries are
    drawn separately, each from its own discrete distribution, because halves of integer sums would leave the grid.

    Examples
    --------
    >>> mechanism = SymmetricGaussianMechanism(Sensitivity(2.0), noise_multiplier=1.5, order=3)
    >>> mechanism.event
    Discretized(event=Gaussian(noise_multiplier=1.5), variates=6)
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> noisy = mechanism.release(np.eye(3), fresh_entropy())
    >>> bool(np.all(noisy == noisy.T))
    True
    """

    sensitivity: Sensitivity
    noise_multiplier: float
    order: int
    count: int = 1

    def __post_init__(self) -> None:
        check_mechanism(self.sensitivity, 2.0, self.noise_multiplier, self.order)
        check_mechanism(self.sensitivity, 2.0, self.noise_multiplier, self.count)
        self._noises  # noqa: B018 - a scale out of range is refused here, before any data

    @property
    def stddev(self) -> float:
        """Standard deviation on the diagonal, including the price of rounding; elsewhere 1 / sqrt(2) of this."""
        steps = self.order * math.sqrt(self.count)
        return scale_with_rounding(self.sensitivity.value, self.noise_multiplier, steps)

    @cached_property
    def _noises(self) -> tuple[GaussianNoise, GaussianNoise]:
        return GaussianNoise(self.stddev), GaussianNoise(self.stddev * _BESIDE)

    @property
    def size(self) -> int:
        """Number of released numbers."""
        return self.count * self.order * (self.order + 1) // 2

    @property
    def event(self) -> Event:
        """The event of one call of ``release``."""
        return Discretized(Gaussian(self.noise_multiplier), self.size)

    def release(self, value: Array, entropy: Entropy, *, in_place: bool = False) -> Array:
        """Release noisy matrices, exactly symmetric; only the lower triangles of ``value`` are read.

        With ``in_place`` they overwrite ``value``, which saves memory for large matrices.
        """
        shape = value.shape
        stack = value[None] if value.ndim == 2 else value
        if stack.shape != (self.count, self.order, self.order):
            raise ValueError(
                f"this mechanism releases {self.count} symmetric matrices of order {self.order}, got shape {shape}"
            )
        exact = value.copy() if in_place and listening() else value
        on, beside = self._noises
        noisy = stack if in_place else np.empty(stack.shape)
        for i in range(self.order):  # row by row, to avoid a second matrix of integers
            noisy[:, i, :i] = beside.add_to(stack[:, i, :i], entropy)
            noisy[:, i, i] = on.add_to(stack[:, i, i], entropy)
        mirror_lower(noisy)
        return observed(
            self,
            entropy,
            noisy.reshape(shape),
            scale=on.effective_stddev,
            value=exact,
            sensitivity=self.sensitivity,
            event=self.event,
        )


def half_vector(matrix: Array) -> Array:
    """Return the upper triangle of a symmetric matrix, with off-diagonal entries times sqrt(2).

    Its Euclidean norm is the Frobenius norm of the matrix.

    >>> half_vector(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3)
    array([1.   , 2.828, 3.   ])
    """
    rows, columns, scales = _upper_triangle(len(matrix))
    return np.asarray(matrix[rows, columns] * scales)


def symmetric_matrix(vector: Array, order: int) -> Array:
    """Return the matrix with this `half_vector`.

    >>> symmetric_matrix(half_vector(np.array([[1.0, 2.0], [2.0, 3.0]])), 2).round(3)
    array([[1., 2.],
           [2., 3.]])
    """
    rows, columns, scales = _upper_triangle(order)
    matrix = np.zeros((order, order))
    matrix[rows, columns] = vector / scales
    return np.asarray(matrix + np.triu(matrix, 1).T)


def _upper_triangle(order: int) -> tuple[Indices, Indices, Array]:
    """Return the places of the upper triangle, and the factors of its entries."""
    rows, columns = np.triu_indices(order)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def mirror_lower(stack: Array) -> None:
    """Copy lower triangles above the diagonal, in tiles to avoid cache misses."""
    n, tile = stack.shape[-1], 256
    for top in range(0, n, tile):
        rows = slice(top, top + tile)
        square = stack[..., rows, rows]
        upper = np.triu_indices(square.shape[-1], 1)
        square[..., upper[0], upper[1]] = square[..., upper[1], upper[0]]
        for left in range(0, top, tile):
            columns = slice(left, left + tile)
            stack[..., columns, rows] = np.swapaxes(stack[..., rows, columns], -1, -2)
