"""Coordinates made from released numbers: directions that records share are shrunk, those of little energy left out.

A noisy second moment tells in which directions records mostly point. Columns in an order tell more: pixels, times and
wavelengths have neighbors that are alike, and records of such columns, however many, lie in few directions of a cosine
basis, which is known without data. One noisy sum of energies tells in which; noise in the others would only blur
predictions. Where the columns come in no order, energies are even, and nothing is left out.

All else here is post-processing. Proofs: docs/proofs/gradient-methods.md, sections 7 and 10. The constants were
measured on public data: docs/decisions/0009-noisy-descent-rule.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from discreet._typing import Array
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import one_blas_thread
from discreet.records.kernels.passes import gamma
from discreet.solvers.statistics import MomentMechanism, NoisyMoments, summation_rounding

_ROWS = 4096  # records looked at together
_CLIP = 0.9
_LEVELS = 0.7, 1.5  # directions are shrunk to a multiple of the noise in the second moment between these two
_UNEVEN = 0.5  # share of the energy that would have to move for all frequencies to have the same
# The longest vector of energies that one record may have, over its squared norm; most records have many frequencies.
_LONGEST_ENERGIES = 0.25


@dataclass(frozen=True)
class Reshaping:
    """What released numbers say about coordinates: records v become ``matrix``^T v, clipped to ``norm``."""

    matrix: Array
    norm: float
    curvature: float
    n_directions: int

    def then(self, again: Reshaping) -> Reshaping:
        """Followed by another, of the records that this one made."""
        return replace(again, matrix=self.matrix @ again.matrix)

    def within(self, spectrum: Spectrum, basis: Array) -> Reshaping:
        """Followed by the projection on the kept columns of an orthonormal basis."""
        if spectrum.kept.all():
            return self
        projection = basis[:, spectrum.kept] @ basis[:, spectrum.kept].T
        norm = self.norm * math.sqrt(spectrum.share)
        return replace(
            self, matrix=self.matrix @ projection, norm=norm, n_directions=int(spectrum.kept.sum())
        )


def look_mechanism(
    problem: Problem, neighboring: Neighboring, noise_multiplier: float, norm: float | None = None
) -> MomentMechanism:
    """The release of the second moment of the records, or of reshaped ones that were clipped to ``norm``."""
    return MomentMechanism(
        n_samples=problem.n_samples,
        n_features=problem.n_features,
        feature_norm=problem.bounds.feature_norm if norm is None else norm,
        label_bound=0.0,
        weight=1.0,
        neighboring=neighboring,
        noise_multiplier=noise_multiplier,
        row_error=0.0 if norm is None else row_error(problem),
    )


def row_error(problem: Problem) -> float:
    """What rounding can do to a reshaped record (docs/proofs/gradient-methods.md, section 7)."""
    p = problem.n_features
    return 1.01 * gamma(p + 32) * (math.sqrt(p) + 1) * problem.bounds.feature_norm


def most_stretched(look: MomentMechanism) -> float:
    """How much longer coefficients may be in the new coordinates: as much as records shrink along them."""
    noise = look.gaussian.stddev * math.sqrt(2 * look.n_features)  # as `NoisyMoments.matrix_noise`
    return math.sqrt(1 + look.n_samples * look.feature_norm**2 / noise)


def reshaped(
    noisy: NoisyMoments,
    n_samples: int,
    bound: float,
    relative: float,
    clip: float,
    curvature: float = 1.0,
    unsure: float = 0.0,
) -> Reshaping:
    """Shrink the directions that stand out of the noise down to it; see what norm is left of ``bound``.

    Eigenvalues below the level, ``relative`` times the noise, are noise for the most part: their directions are left
    alone. ``curvature`` is that of the loss, for rows of norm 1 that all point one way. The mean square of a reshaped
    record is taken to be ``unsure`` standard deviations above what was seen.
    """
    eigenvalues, vectors = np.linalg.eigh(noisy.second)
    level = relative * noisy.matrix_noise
    shares = level / np.maximum(eigenvalues, level)
    # What cutting at the level takes off the noise alone, on average, is put back.
    cut = len(eigenvalues) * noisy.matrix_noise * semicircle_excess(relative)
    above = unsure * noisy.second_stddev * math.sqrt(len(eigenvalues))
    left = (float(eigenvalues @ shares) + cut + above) / n_samples  # mean square of a reshaped record
    scale = float(shares.max())  # shrinking everything alike would change nothing
    norm = min(bound, max(0.05 * bound, clip * math.sqrt(max(left, 0.0) / scale)))
    curvature *= min(norm**2, (level + noisy.matrix_noise) / (n_samples * scale))
    matrix = (vectors * np.sqrt(shares / scale)) @ vectors.T
    return Reshaping(matrix, norm, curvature, len(eigenvalues))


def reshaped_cap(signal: float) -> float:
    """How hard one record may pull; less than in plain descent, whose shorter flow must answer to labels at once."""
    return float(min(1.0, 0.3 * max(1.0, signal / 400) ** 0.3))


def default_clip(signal: float) -> float:
    """Most records are clipped while noise rules; none as it vanishes."""
    return float(_CLIP * max(1.0, signal / 1500) ** 0.25)


def default_level(signal: float) -> float:
    """How far directions are shrunk, in units of the matrix's noise: the more signal, the smaller ones are worth it."""
    least, most = _LEVELS
    return min(most, max(least, most * math.sqrt(1000 / signal)))


def frequency_level(signal: float) -> float:
    """The energy of a frequency worth keeping, over the mean one: what stands out of the gradients' squared noise."""
    return min(1.0, (1000 / signal) ** 2)


def semicircle_excess(level: float) -> float:
    """The mean of max(0, x - level) under Wigner's semicircle law on [-1, 1]: what cutting noise at a level removes."""
    if level >= 1:
        return 0.0
    half = math.sqrt(1 - level**2)
    tail = math.pi / 4 - (level * half + math.asin(level)) / 2
    return 2 / math.pi * (half**3 / 3 - level * tail)


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


def frequency_visibility(
    n_samples: int, n_features: int, neighboring: Neighboring, noise_multiplier: float
) -> float:
    """The mean energy of a frequency over the noise in it; the norm of the records does not matter."""
    return n_samples / (
        n_features * acute_sum_sensitivity(_LONGEST_ENERGIES, neighboring).value * noise_multiplier
    )


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
        return _LONGEST_ENERGIES * self.norm**2

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
    >>> concentrated(np.array([4.0, 3.0, 2.0, 1.0, 1.0, 1.0]), 1.0, intercept=False).kept.all()
    np.True_
    >>> concentrated(np.array([9.0, 8.0, -1.0, 0.5, -0.5, 0.0]), 1.0, intercept=False)
    Spectrum(kept=array([ True,  True, False, False, False, False]), share=1.0)
    """
    everything = Spectrum(np.ones(len(noisy), dtype=bool), 1.0)
    mean = float(noisy.mean())
    if mean <= 0 or float(np.abs(noisy - mean).sum()) / (2 * len(noisy) * mean) < _UNEVEN:
        return everything
    kept = noisy > level * mean
    if intercept:
        kept[-1] = True
    share = float(noisy[kept].sum() / noisy.sum())  # above 1 where the noise of the others is negative in all
    return Spectrum(kept, min(share, 1.0)) if share > 0 else everything
