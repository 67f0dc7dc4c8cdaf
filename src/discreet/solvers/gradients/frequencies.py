"""Columns in an order: in which frequencies the records lie, and the projection on those that hold most of them.

Pixels, times and wavelengths have neighbors that are alike. Records of such columns, however many, lie in few
directions of a cosine basis, which is known without data. One noisy sum tells in which; noise in the others would
only blur predictions. Where the columns come in no order, energies are even, and nothing is left out.
Proofs: docs/proofs/gradient-methods.md, section 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from discreet._typing import Array
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.clipped_rows import one_blas_thread
from discreet.records.kernels.passes import gamma
from discreet.solvers.gradients.descent import LONGEST_ENERGIES
from discreet.solvers.statistics import summation_rounding

_ROWS = 4096  # records looked at together
_UNEVEN = 0.5  # share of the energy that would have to move for all frequencies to have the same


def cosine_basis(n_features: int, intercept: bool) -> Array:
    """Orthonormal columns: cosines over the order of the features, and the constant, if there is one, by itself.

    >>> cosine_basis(3, True).round(3)
    array([[ 0.707,  0.707,  0.   ],
           [ 0.707, -0.707,  0.   ],
           [ 0.   ,  0.   ,  1.   ]])
    """
    ordered = n_features - int(intercept)
    basis = np.eye(n_features)
    basis[:ordered, :ordered] = dct(np.eye(ordered), norm="ortho", axis=0).T
    return basis


@dataclass(frozen=True)
class Spectrum:
    """Which frequencies are kept, and the share of the records' energy in them."""

    kept: NDArray[np.bool_]
    share: float


@dataclass(frozen=True)
class SpectrumMechanism:
    """Release of the energies sum_i <f_j, w_i>^2 of reshaped records in the cosine basis f_j.

    Records were reshaped and clipped to ``norm``; rounding made each wrong by ``row_error`` at most. The energies of
    one are a vector of L1 norm |w|^2; its Euclidean norm is cut to a quarter of ``norm``^2.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on n_features numbers.
    """

    n_samples: int
    n_features: int
    intercept: bool
    norm: float
    neighboring: Neighboring
    noise_multiplier: float
    row_error: float = 0.0

    def __post_init__(self) -> None:
        _ = self.gaussian  # what can fail does so now

    @cached_property
    def basis(self) -> Array:
        """The frequencies, one per column."""
        return cosine_basis(self.n_features, self.intercept)

    @property
    def limit(self) -> float:
        """The longest that the energies of one record may be."""
        return LONGEST_ENERGIES * self.norm**2

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release; its sensitivity covers the rounding of the records and of the sum."""
        n, p = self.n_samples, self.n_features
        row = 2.1 * self.norm * (self.row_error + gamma(p + 64) * (math.sqrt(p) + 1) * self.norm)
        rounding = n * row + summation_rounding(n, self.limit)
        exact = acute_sum_sensitivity(self.limit, self.neighboring).value  # energies are not negative
        return GaussianMechanism(Sensitivity((exact + 2 * rounding) * SLACK), self.noise_multiplier, p)

    @property
    def event(self) -> events.Event:
        """What one release costs."""
        return self.gaussian.event

    def release(self, records: Records, level: float, entropy: Entropy) -> Spectrum:
        """The frequencies that noisy energies of the records speak for; ``level`` as of `concentrated`."""
        noisy = self.gaussian.release(records.sum_rows(energies, self.basis, self.limit), entropy)
        return concentrated(noisy, level, self.intercept)


def energies(records: ArrayRecords, basis: Array, limit: float) -> Array:
    """The sum over records of their squared coordinates in ``basis``, each vector of them cut to norm ``limit``."""
    total = np.zeros(basis.shape[1])
    with one_blas_thread:
        for first in range(0, records.n_samples, _ROWS):
            rows = slice(first, first + _ROWS)
            squares = np.square((records.dense(rows) @ basis) * records.scales[rows, None])
            norms = np.sqrt(np.square(squares).sum(axis=1))
            total += (limit / np.maximum(norms, limit)) @ squares
    return total


def concentrated(noisy: Array, level: float, intercept: bool) -> Spectrum:
    """Frequencies of more than ``level`` times the mean energy, if energies are uneven; else all of them.

    Uneven: half of all energy would have to move to make them even. That share, Hoover's index, is what the frequencies
    above the mean hold beyond their number. The constant is always kept. A function of released numbers.

    >>> concentrated(np.array([9.0, 8.0, 1.0, 0.5, 0.5, 0.0]), 1.0, intercept=False).kept.tolist()
    [True, True, False, False, False, False]
    >>> concentrated(np.array([4.0, 3.0, 2.0, 1.0, 1.0, 1.0]), 1.0, intercept=False).share
    1.0
    """
    mean = float(noisy.mean())
    hoover = float(np.abs(noisy - mean).sum()) / (2 * len(noisy) * mean) if mean > 0 else 0.0
    kept = noisy > level * mean
    if intercept:
        kept[-1] = True
    share = float(noisy[kept].sum() / noisy.sum()) if mean > 0 else 1.0
    if hoover < _UNEVEN or not 0 < share < 1:
        return Spectrum(np.ones(len(noisy), dtype=bool), 1.0)
    return Spectrum(kept, share)
