"""Gaussian and Laplace noise on a public grid, and the mechanisms that release a vector or symmetric matrices with it.

A floating-point sum ``value + noise`` leaks through its last bits (Mironov, 2012; Haney et al., 2022). Here the value
is rounded to a multiple of a power of two that depends on public numbers only, the noise is an exact sample of a
discrete distribution on the integers, and the sum is an integer sum. The released ``k * grid`` is post-processing of
the integer k. Proofs: docs/proofs/discrete-noise.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array, Integers
from discreet.mechanisms.recording import listening, observed
from discreet.mechanisms.samplers.discrete import discrete_gaussian, discrete_laplace
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Discretized, Event, Gaussian, Pure
from discreet.privacy.guarantee import Sensitivity

Shape = SupportsIndex | Sequence[int]
Indices = NDArray[np.intp]

_STEPS = 2.0**30  # the least number of grid steps in one unit of noise scale
_TABLE_SCALE = 256  # scale of the table's distribution; one table serves every noise scale
_LARGEST = 2.0**62  # values are clamped to this many grid steps, which leaves int64 room for the noise
_SCALES = (2.0**-900, 2.0**900)
_ROUND_UP = 1 + 2.0**-48  # covers every float64 rounding in a scale, and the underflow of value / grid


def _check_scale(name: str, value: float) -> None:
    low, high = _SCALES
    if not low <= value <= high:
        raise ValueError(
            f"{name} must lie between {low:.3g} and {high:.3g}, got {value!r}; "
            "rescale the data if it really lies outside"
        )


def _grid(scale: float) -> float:
    """Return the power of two that fits into ``scale`` at least 2^30 and fewer than 2^31 times."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 31)


def _width(scale: float) -> int:
    """Return how many grid steps share one entry of the table, rounded up by less than one part in 2^22."""
    return math.ceil(scale / _grid(scale) / _TABLE_SCALE)


def from_grid(steps: Integers, grid: float) -> Array:
    """Return ``steps * grid``: exact below 2^53 steps, the nearest float above."""
    return steps.astype(np.float64) * grid


def sizes_of(shape: Shape) -> tuple[int, ...]:
    """Return the sizes of all axes."""
    return tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)


@dataclass(frozen=True)
class GaussianNoise:
    """Discrete Gaussian noise of at least the given standard deviation on a grid finer than 2^-30 of it.

    Parameters
    ----------
    stddev : float
        Requested standard deviation, per coordinate.

    Attributes
    ----------
    grid : float
        A power of two with ``stddev / grid`` in [2^30, 2^31). Every draw is a multiple of it.
    effective_stddev : float
        The scale of the sampled distribution: ``stddev`` rounded up by less than one part in 2^22.
    total_variation : float
        Bound, per coordinate, on the distance to a continuous Gaussian of ``effective_stddev`` rounded to the
        grid.

    Privacy
    -------
    Added to vectors of multiples of ``grid`` that differ by at most D in L2 norm, the noise is rho-zCDP with
    rho = (D / effective_stddev)^2 / 2 exactly (Canonne, Kamath and Steinke, 2020), and as private as
    continuous Gaussian noise up to ``total_variation`` per coordinate. The caller must round the value to the grid;
    :class:`GaussianMechanism` does so.

    Examples
    --------
    >>> noise = GaussianNoise(0.7)
    >>> noise.grid == 2.0**-31, noise.effective_stddev >= 0.7, noise.total_variation < 1e-19
    (True, True, True)
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> draws = noise.draw((3, 4), fresh_entropy())
    >>> draws.shape, bool(np.all(draws % noise.grid == 0))
    ((3, 4), True)
    """

    stddev: float

    def __post_init__(self) -> None:
        _check_scale("stddev", self.stddev)

    @property
    def grid(self) -> float:
        """The step between neighboring values of the noise."""
        return _grid(self.stddev)

    @property
    def effective_stddev(self) -> float:
        """The sampled scale, exact in float64."""
        return _TABLE_SCALE * _width(self.stddev) * self.grid

    effective_scale = effective_stddev  # by the name that all noises share

    @property
    def total_variation(self) -> float:
        """Bound on the distance to the rounded Gaussian, per coordinate; proved for scales of at least 20 steps."""
        return 0.021 / (_TABLE_SCALE * _width(self.stddev)) ** 2

    def draw(self, shape: Shape, entropy: Entropy) -> Array:
        """Draw independent noise of the given shape, in multiples of ``grid``."""
        noise = from_grid(self.draw_integers(shape, entropy), self.grid)
        return observed(self, entropy, noise, scale=self.effective_stddev)

    def draw_integers(self, shape: Shape, entropy: Entropy) -> Integers:
        """Draw the same noise, counted in steps of ``grid``."""
        sizes, width = sizes_of(shape), _width(self.stddev)
        return discrete_gaussian(_TABLE_SCALE, width).draw(math.prod(sizes), entropy).reshape(sizes)

    def add_to(self, value: ArrayLike, entropy: Entropy) -> Array:
        """Round ``value`` down to the grid and add noise. The sum is formed in integers, for mechanisms to release."""
        steps = _to_grid(value, np.size(value), self.grid)
        return from_grid(steps + self.draw_integers(steps.shape, entropy), self.grid)


@dataclass(frozen=True)
class LaplaceNoise:
    """Discrete Laplace noise of at least the given scale on a grid finer than 2^-30 of it.

    Attributes
    ----------
    grid : float
        A power of two with ``scale / grid`` in [2^30, 2^31). Every draw is a multiple of it.
    effective_scale : float
        The scale of the sampled distribution: ``scale`` rounded up by less than one part in 2^22.

    Privacy
    -------
    Added to vectors of multiples of ``grid`` that differ by at most D in L1 norm, the noise is
    (D / effective_scale)-DP exactly, with delta = 0.
    """

    scale: float

    def __post_init__(self) -> None:
        _check_scale("scale", self.scale)

    @property
    def grid(self) -> float:
        """The step between neighboring values of the noise."""
        return _grid(self.scale)

    @property
    def effective_scale(self) -> float:
        """The sampled scale, exact in float64."""
        return _TABLE_SCALE * _width(self.scale) * self.grid

    def draw(self, shape: Shape, entropy: Entropy) -> Array:
        """Draw independent noise of the given shape, in multiples of ``grid``."""
        noise = from_grid(self.draw_integers(shape, entropy), self.grid)
        return observed(self, entropy, noise, scale=self.effective_scale)

    def draw_integers(self, shape: Shape, entropy: Entropy) -> Integers:
        """Draw the same noise, counted in steps of ``grid``."""
        sizes, width = sizes_of(shape), _width(self.scale)
        return discrete_laplace(_TABLE_SCALE, width).draw(math.prod(sizes), entropy).reshape(sizes)


class IntegerNoise(Protocol):
    """Noise in integer steps of a public grid."""

    @property
    def grid(self) -> float: ...
    @property
    def effective_scale(self) -> float: ...
    def draw_integers(self, shape: Shape, entropy: Entropy) -> Integers: ...


@dataclass(frozen=True)
class AdditiveMechanism:
    """Release a vector rounded to a public grid, with noise on that grid."""

    sensitivity: Sensitivity
    noise_multiplier: float
    size: int
    norm: ClassVar[float]  # of the sensitivity

    def __post_init__(self) -> None:
        check_mechanism(self.sensitivity, self.norm, self.noise_multiplier, self.size)
        self.noise  # noqa: B018 - a scale out of range is refused here, before any data

    @property
    def scale(self) -> float:
        """Scale of the noise, including the price of rounding by up to one step in every coordinate."""
        steps = float(self.size) if self.norm == 1 else math.sqrt(self.size)
        return scale_with_rounding(self.sensitivity.value, self.noise_multiplier, steps)

    @property
    def noise(self) -> IntegerNoise:
        """The noise that is added."""
        raise NotImplementedError

    @property
    def event(self) -> Event:
        """The event of one call of ``release``."""
        raise NotImplementedError

    def release(self, value: ArrayLike, entropy: Entropy) -> Array:
        """Release the noisy value, in the shape of ``value``."""
        steps = _to_grid(value, self.size, self.noise.grid)
        noisy = steps + self.noise.draw_integers(steps.shape, entropy)
        return observed(
            self,
            entropy,
            from_grid(noisy, self.noise.grid),
            scale=self.noise.effective_scale,
            value=value,
            sensitivity=self.sensitivity,
            event=self.event,
        )


@dataclass(frozen=True)
class GaussianMechanism(AdditiveMechanism):
    """Release a vector of ``size`` numbers with Gaussian noise of ``noise_multiplier`` times its sensitivity.

    Parameters
    ----------
    sensitivity : Sensitivity
        L2 distance between the values of neighbors. It must hold for the float64 numbers passed to ``release``,
        including rounding errors from their computation.
    noise_multiplier : float
        Noise scale over sensitivity.
    size : int
        Public number of coordinates.

    Privacy
    -------
    Event: ``Gaussian(noise_multiplier)`` up to a total variation of less than 2e-20 per coordinate, under the relation
    of the sensitivity. Rounding down to the grid moves two values apart by at most ``grid * sqrt(size)``, which
    ``stddev`` includes. Non-finite values are replaced by 0 and huge ones are clamped without an error, because an
    error would reveal them. The guarantee only covers neighbors whose values are finite and within the sensitivity.

    Examples
    --------
    >>> mechanism = GaussianMechanism(Sensitivity(2.0), noise_multiplier=1.5, size=3)
    >>> 3.0 <= mechanism.stddev < 3.0 * (1 + 1e-8)
    True
    >>> mechanism.event
    Discretized(event=Gaussian(noise_multiplier=1.5), variates=...)
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> mechanism.release([0.0, 1.0, 2.0], fresh_entropy()).shape
    (3,)
    """

    norm: ClassVar[float] = 2.0

    @property
    def stddev(self) -> float:
        """Standard deviation per coordinate, including the price of rounding."""
        return self.scale

    @cached_property
    def noise(self) -> GaussianNoise:
        return GaussianNoise(self.stddev)

    @cached_property
    def event(self) -> Event:
        """The event of one call of ``release``."""
        return Discretized(Gaussian(self.noise_multiplier), self.size)


@dataclass(frozen=True)
class PureMechanism(AdditiveMechanism):
    """Adds noise whose density falls by 1/e per ``scale`` of distance, in the norm of the sensitivity."""

    @property
    def event(self) -> Event:
        """The event of one call of ``release``."""
        return Pure(1 / self.noise_multiplier)


@dataclass(frozen=True)
class LaplaceMechanism(PureMechanism):
    """Release a vector of ``size`` numbers with Laplace noise of ``noise_multiplier`` times its sensitivity.

    Parameters
    ----------
    sensitivity : Sensitivity
        L1 distance between the values of neighbors (norm 1), for the float64 numbers passed to ``release``.
    noise_multiplier : float
        Noise scale over sensitivity: 1 / epsilon.
    size : int
        Public number of coordinates.

    Privacy
    -------
    Event: ``Pure(1 / noise_multiplier)``, exactly, under the relation of the sensitivity. Rounding down to the grid
    adds at most ``grid * size`` to the distance, which ``scale`` includes. The event is not ``Laplace``: the discrete
    distribution reaches its largest privacy loss slightly more often than the continuous one. Non-finite values are
    handled as in :class:`GaussianMechanism`.

    Examples
    --------
    >>> LaplaceMechanism(Sensitivity(1.0, norm=1), noise_multiplier=2.0, size=1).event
    Pure(epsilon=0.5)
    """

    norm: ClassVar[float] = 1.0

    @cached_property
    def noise(self) -> LaplaceNoise:
        return LaplaceNoise(self.scale)


def check_mechanism(sensitivity: Sensitivity, norm: float, noise_multiplier: float, size: int) -> None:
    """Raise for a sensitivity in another norm, or an invalid size or noise multiplier."""
    if sensitivity.norm != norm:
        raise ValueError(
            f"the sensitivity must be stated in the L{norm:.0f} norm, got norm {sensitivity.norm!r}"
        )
    if not sensitivity.value > 0:
        raise ValueError("the sensitivity must be greater than 0; a value that never changes needs no noise")
    if not (noise_multiplier > 0 and math.isfinite(noise_multiplier)):
        raise ValueError(f"noise_multiplier must be a finite number greater than 0, got {noise_multiplier!r}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"size must be a whole number of at least 1, got {size!r}")


def scale_with_rounding(sensitivity: float, noise_multiplier: float, rounding_steps: float) -> float:
    """Return the smallest scale s known to satisfy s >= noise_multiplier (sensitivity + grid(s) rounding_steps).

    The grid is at most s / 2^30, so s = noise_multiplier sensitivity / (1 - noise_multiplier rounding_steps / 2^30) is
    enough.
    """
    share = noise_multiplier * rounding_steps / _STEPS
    if not share <= 0.5:
        raise ValueError(
            f"noise_multiplier={noise_multiplier!r} is too large for so many coordinates: rounding them to "
            "the grid would need more noise than the value itself; release fewer coordinates or use "
            "less noise"
        )
    return noise_multiplier * sensitivity / (1 - share) * _ROUND_UP


def _to_grid(value: ArrayLike, size: int, grid: float) -> Integers:
    """Return ``value`` in integer steps of ``grid``, rounded down; defined for all float64, so that no value can raise.

    Clamping never increases distances. Rounding down moves two numbers apart by less than one step and, unlike rounding
    to even, commutes with integer steps.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.size != size:
        raise ValueError(f"this mechanism releases {size} numbers, got an array of shape {array.shape}")
    with np.errstate(all="ignore"):  # a warning can be turned into an error, which would depend on the data
        steps = np.where(np.isfinite(array), array, 0.0)
        steps /= grid
        np.minimum(np.maximum(steps, -_LARGEST, out=steps), _LARGEST, out=steps)
        return np.floor(steps, out=steps).astype(np.int64)


# -- symmetric matrices ------------------------------------------------------------------------------------------------
#
# A symmetric matrix W is the vector (W_ii, sqrt(2) W_ij for i > j), whose L2 norm is the Frobenius norm of W. Noise of
# standard deviation s on every coordinate of that vector is noise of s on the diagonal and s / sqrt(2) elsewhere. Its
# spectral norm is about sqrt(2) s sqrt(order), instead of 2 s sqrt(order) for independent or mirrored entries.

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
