"""Coordinates made from released numbers: directions that records share are shrunk, those of little energy left out.

Everything here is post-processing of a noisy second moment or of noisy energies. The constants were measured on public
data: docs/decisions/0009-noisy-descent-rule.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet._typing import Array
from discreet.privacy.guarantee import Neighboring
from discreet.problem import Problem
from discreet.records.kernels.passes import gamma
from discreet.solvers.gradients.frequencies import Spectrum
from discreet.solvers.statistics import MomentMechanism, NoisyMoments

_CLIP = 0.9
_LEVELS = 0.7, 1.5  # directions are shrunk to a multiple of the noise in the second moment between these two


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
