"""Noise whose density falls with its Euclidean norm, exp(-|z| / scale): pure differential privacy in L2.

For two values at L2 distance D the densities differ by a factor of at most exp(D / scale), by the triangle inequality.
|z| has a gamma law with ``size`` degrees of freedom, hence the name. In R^p

    z = scale |M| N,     N ~ N(0, I_p),   M ~ N(0, I_{p+1}) independent,

and what is released is value + z rounded to a public grid: post-processing of a continuous mechanism, whose rounding
is decided with as many digits as it takes. Proofs: docs/proofs/gamma-noise.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from discreet.mechanisms.additive import LaplaceNoise, PureMechanism, Shape, from_grid
from discreet.mechanisms.discrete import Integers
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.normals import CELL_BITS, FRACTION_BITS, Array, Normals, draw_normals
from discreet.mechanisms.recording import observed


@dataclass(frozen=True)
class GammaNormNoise:
    """A vector with density proportional to exp(-|z| / scale), rounded to the nearest points of a grid.

    Attributes
    ----------
    grid : float
        A power of two with ``scale / grid`` in [2^30, 2^31). Every draw is a multiple of it.
    effective_scale : float
        The scale of the law that is rounded: ``scale`` rounded up to a whole number of steps.

    Privacy
    -------
    Added to vectors of multiples of ``grid`` that differ by at most D in L2 norm, one draw is
    (D / effective_scale)-DP exactly, with delta = 0. A draw is ONE vector, whatever its shape: its entries are not
    independent.

    Examples
    --------
    >>> from discreet.mechanisms.entropy import fresh_entropy
    >>> draw = GammaNormNoise(0.01).draw(10_000, fresh_entropy())
    >>> bool(90 < np.linalg.norm(draw) < 110)  # size x scale = 100, give or take 1
    True
    """

    scale: float

    def __post_init__(self) -> None:
        LaplaceNoise(self.scale)  # refuses scales without a grid

    @property
    def grid(self) -> float:
        """The step between neighboring values of the noise."""
        return LaplaceNoise(self.scale).grid

    @property
    def steps(self) -> int:
        """The scale in whole steps of the grid."""
        return math.ceil(self.scale / self.grid)

    @property
    def effective_scale(self) -> float:
        """The scale that is sampled, exact in float64."""
        return self.steps * self.grid

    def draw(self, shape: Shape, entropy: Entropy) -> Array:
        """One vector of the given shape, in multiples of ``grid``."""
        noise = from_grid(self.draw_integers(shape, entropy), self.grid)
        return observed(self, entropy, noise, scale=self.effective_scale)

    def draw_integers(self, shape: Shape, entropy: Entropy) -> Integers:
        """The same vector, counted in steps of ``grid``."""
        sizes = tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)
        size = math.prod(sizes)
        directions, radius = draw_normals(size, entropy), draw_normals(size + 1, entropy)
        magnitudes = rounded_products(self.steps, directions, radius)[0]
        return np.where(directions.negative, -magnitudes, magnitudes).reshape(sizes)


def rounded_products(steps: int, directions: Normals, radius: Normals) -> tuple[Integers, int]:
    """``steps`` |M| |N_i| rounded to the nearest whole number, for every i; and how many took exact arithmetic.

    Float64 decides where its proved error bound lets it; whole numbers of any length decide the rest.
    """
    factors = radius.magnitudes()
    length = math.sqrt(math.fsum(factors * factors))
    magnitudes = directions.magnitudes()
    products = steps * length * magnitudes
    error = products * 10 * 2.0**-53 + 2.0**-60 * steps * (math.sqrt(len(radius)) * (magnitudes + 1) + length)
    lifted = products + 0.5
    whole = np.floor(lifted)
    margin = error + lifted * 2.0**-53
    unclear = ~((lifted - whole > margin) & (whole + 1 - lifted > margin) & (lifted < 2.0**52))
    values = np.where(unclear, 0.0, whole).astype(np.int64)
    open_places = [int(place) for place in np.flatnonzero(unclear)]
    bits = FRACTION_BITS
    while open_places:
        bounds = _length_bounds(radius, bits)
        undecided = []
        for place in open_places:
            low, high = _product_bounds(steps, directions.floor(place, bits), bounds, bits)
            if low == high:
                values[place] = low
            else:
                undecided.append(place)
        open_places, bits = undecided, bits + 64
    return values, int(unclear.sum())


def _length_bounds(radius: Normals, bits: int) -> tuple[int, int]:
    """Whole numbers around 2^(bits + 8) |M|."""
    known = [radius.floor(index, bits) for index in range(len(radius))]
    low = sum(number * number for number in known)
    high = sum((number + 1) ** 2 for number in known)
    return math.isqrt(low), math.isqrt(high) + 1


def _product_bounds(steps: int, known: int, length: tuple[int, int], bits: int) -> tuple[int, int]:
    """The least and the largest whole number that steps |M| |N_i| can round to, given the digits."""
    shift = 2 * (bits + CELL_BITS)
    half = 1 << (shift - 1)
    return (steps * known * length[0] + half) >> shift, (steps * (known + 1) * length[1] + half) >> shift


@dataclass(frozen=True)
class GammaNormMechanism(PureMechanism):
    """Release a vector of ``size`` numbers with gamma-norm noise of ``noise_multiplier`` times its L2 sensitivity.

    Parameters
    ----------
    sensitivity : Sensitivity
        L2 distance between the values of neighbors, for the float64 numbers passed to ``release``.
    noise_multiplier : float
        Noise scale over sensitivity: 1 / epsilon.
    size : int
        Number of coordinates, public.

    Privacy
    -------
    Event: ``Pure(1 / noise_multiplier)``, exactly, under whatever relation the sensitivity refers to. Rounding down to
    the grid adds at most ``grid * sqrt(size)`` to the distance, which ``scale`` includes. Values that are not finite
    are handled as in :class:`~discreet.mechanisms.additive.GaussianMechanism`. The norm of the noise is about ``size``
    times its scale; Laplace noise for the same L2 sensitivity would have a norm sqrt(2) times that.

    Examples
    --------
    >>> from discreet.privacy.guarantee import Sensitivity
    >>> GammaNormMechanism(Sensitivity(1.0), noise_multiplier=2.0, size=3).event
    Pure(epsilon=0.5)
    """

    norm: ClassVar[float] = 2.0

    @property
    def rounding_steps(self) -> float:
        """One step in every coordinate, in L2."""
        return math.sqrt(self.size)

    @cached_property
    def noise(self) -> GammaNormNoise:
        """The noise that is added."""
        return GammaNormNoise(self.scale)
