"""Noisy second moments, and coordinates from them: shrink shared directions, drop directions with little energy.

A noisy second moment shows the directions that most records share. If the columns have an order (pixels, times,
wavelengths), neighboring columns are similar, and records with many columns lie in few directions of a cosine basis,
which is known without data. One noisy sum of energies shows which. Noise in the other directions would only blur
predictions. If the columns have no order, energies are even, and nothing is dropped.

`MomentMechanism` releases the second moment sum_i v_i v_i^T, optionally with the weighted vector sum_i y_i v_i of
bounded targets. It releases the upper triangle with off-diagonal entries times sqrt(2), so that the Euclidean norm of
the released vector is the Frobenius norm of the matrix. `SpectrumMechanism` releases the energies. Everything else here
is post-processing. Proofs: docs/proofs/gradient-methods.md, sections 4, 7 and 10. The constants were measured on public
data: docs/decisions/0009-noisy-descent-rule.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from discreet._checks import ParameterError, Setting
from discreet._typing import Array
from discreet.losses import Squared
from discreet.mechanisms.additive import GaussianMechanism, half_vector, symmetric_matrix
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds, gamma, gradient_rounding, row_rounding, summation_rounding
from discreet.records.clipped_rows import COMPILED_FROM, COPY_ENTRIES, csr_view, one_blas_thread

MOST_FEATURES = 4000  # larger matrices are expensive, and noise hides them
_ROWS = 4096  # records per block
_LEAST_NORM = 0.05  # to which reshaped records are clipped, relative to the norm before
#: Bound on records that can be reshaped: after two looks, and frequencies of `MOST_FEATURES` columns, 2^-100 is left.
SHORTEST_NORM = 2.0**-85
_MOST_LOST = 1 << 15  # entries of a matrix of directions that stays in the cache
_SINGLES = 1 << 28  # entries, at most, that are copied
_UNEVEN = 0.5  # fraction of the energy that would have to move to make all frequencies equal
#: Bound on the norm of one record's energies, over its squared norm; most records have many frequencies.
LONGEST_ENERGIES = 0.25


def moment_sensitivity(feature_norm: float, weighted_target: float, neighboring: Neighboring) -> Sensitivity:
    """Return the L2 sensitivity of (sum v v^T, w sum y v) for |v| <= R and |w y| <= ``weighted_target``.

    One record contributes R sqrt(R^2 + B), B = weighted_target^2. Replacing one record by another moves the pair by
    sqrt(2) (R^2 + B / 2) if B <= 2 R^2, and by 2 R sqrt(B) otherwise: the worst pair of rows is at an angle of
    cosine B / (2 R^2), with opposite targets.

    >>> round(moment_sensitivity(1.0, 0.0, Neighboring.ZERO_OUT).value, 4)
    1.0
    >>> round(moment_sensitivity(1.0, 1.0, Neighboring.REPLACE_ONE).value, 4)
    2.1213
    """
    square, target = feature_norm**2, weighted_target**2
    if neighboring.contributions == 1:
        value = feature_norm * math.sqrt(square + target)
    elif target <= 2 * square:
        value = math.sqrt(2.0) * (square + target / 2)
    else:
        value = 2 * feature_norm * weighted_target
    return Sensitivity(value * SLACK)


@dataclass(frozen=True)
class NoisyMoments:
    """One release: a symmetric matrix, a vector (zero if not requested), and their noise."""

    second: Array
    cross: Array
    second_stddev: float
    cross_stddev: float

    @property
    def matrix_noise(self) -> float:
        """Approximate largest eigenvalue of the noise in ``second``: stddev sqrt(2 p)."""
        return self.second_stddev * math.sqrt(2 * len(self.second))


@dataclass(frozen=True)
class MomentMechanism:
    """Release the second moment and, if ``label_bound`` > 0, the products with the targets.

    Parameters
    ----------
    n_samples, n_features, feature_norm : public sizes and the bound on records.
    label_bound : bound on |y|, enforced by the caller; 0 releases the matrix alone.
    weight : weight of the products relative to the matrix; their noise is 1 / weight times the matrix's.
    row_error : bound on the rounding error of a record that was computed from others.
    rounding : bound on further errors of the matrix in Frobenius norm, where it is transformed after summing.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on p (p + 1) / 2 or p (p + 3) / 2 numbers.
    """

    n_samples: int
    n_features: int
    feature_norm: float
    label_bound: float
    weight: float
    neighboring: Neighboring
    noise_multiplier: float
    row_error: float = 0.0
    rounding: float = 0.0

    def __post_init__(self) -> None:
        if self.n_features > MOST_FEATURES:
            raise ParameterError(
                "X",
                f"has {self.n_features} columns, whose second moment has too many entries to release; at most "
                f"{MOST_FEATURES} columns are supported",
                "choose fewer columns",
                Setting("solver", "noisy-gd"),
            )
        _ = self.gaussian

    @property
    def size(self) -> int:
        """Number of released values."""
        p = self.n_features
        return p * (p + 1) // 2 + (p if self.label_bound > 0 else 0)

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism of the release; its sensitivity covers the rounding of both sums."""
        n, radius, size = self.n_samples, self.feature_norm, self.size
        weighted = self.weight * self.label_bound
        exact = moment_sensitivity(radius, weighted, self.neighboring).value
        matrix_rounding = summation_rounding(n, radius**2) + 2.01 * n * radius * self.row_error
        matrix_rounding += self.rounding
        vector_rounding = 0.0
        if weighted > 0:
            loss = Squared(self.label_bound, self.label_bound)
            vector_rounding = self.weight * gradient_rounding(loss, n, self.n_features, radius, 0.0)
        total = (exact + 2 * (matrix_rounding + vector_rounding)) * SLACK
        return GaussianMechanism(Sensitivity(total), self.noise_multiplier, size)

    @property
    def event(self) -> events.Event:
        """The event of one release."""
        return self.gaussian.event

    def release(self, records: Records, entropy: Entropy, shape: Reshaping | None = None) -> NoisyMoments:
        """Release the noisy moments of the records, or of their images under a ``shape``."""
        p, second = self.n_features, records.gram()
        parts = [half_vector(second if shape is None else shape.matrix.T @ second @ shape.matrix)]
        if self.label_bound > 0:
            targets = np.clip(records.labels, -self.label_bound, self.label_bound)
            parts.append(self.weight * records.weighted_sum(targets))
        noisy = self.gaussian.release(np.concatenate(parts), entropy)
        second = symmetric_matrix(noisy[: len(parts[0])], p)
        cross = noisy[len(parts[0]) :] / self.weight if self.label_bound > 0 else np.zeros(p)
        stddev = self.gaussian.stddev
        return NoisyMoments(second, cross, stddev, stddev / self.weight)


@dataclass(frozen=True)
class Reshaping:
    """Coordinates from released numbers: records v become ``matrix``^T v, clipped to ``norm``."""

    matrix: Array
    norm: float
    curvature: float
    n_directions: int

    def coefficients(self, theta: Array) -> Array:
        """Return the coefficients, for unchanged records, of every model with coefficients ``theta`` here."""
        return np.array([self.matrix @ one for one in theta])

    def images(self, sums: Array) -> Array:
        """Return sums of records in these coordinates, from those of unchanged records."""
        return np.array([self.matrix.T @ one for one in sums])

    def then(self, again: Reshaping) -> Reshaping:
        """Compose with a second map, applied to the records made by this one."""
        return replace(again, matrix=self.matrix @ again.matrix)

    def within(self, spectrum: Spectrum, basis: Array) -> Reshaping:
        """Compose with the projection onto the kept columns of an orthonormal basis."""
        if spectrum.kept.all():
            return self
        projection = basis[:, spectrum.kept] @ basis[:, spectrum.kept].T
        norm = self.norm * math.sqrt(spectrum.share)
        return replace(
            self, matrix=self.matrix @ projection, norm=norm, n_directions=int(spectrum.kept.sum())
        )


def moment_mechanism(
    problem: Problem,
    neighboring: Neighboring,
    noise_multiplier: float,
    norm: float | None = None,
    *,
    shrunk: bool = False,
) -> MomentMechanism:
    """Return the mechanism for the second moment of the records, or of `mapped` ones clipped to ``norm``.

    The images of `shrunk` records are summed before they are transformed: the rounding is that of records of the norm
    before. It need not be symmetric, and the released triangle, with its weights, holds up to sqrt(2) times as much.
    """
    n, p, bound = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    rounding = 0.0
    if shrunk:
        product = 2.1 * gamma(p + 2) * (math.sqrt(p) + 1) * n * bound**2
        rounding = 1.42 * (summation_rounding(n, bound**2) + product)
    return MomentMechanism(
        n_samples=n,
        n_features=p,
        feature_norm=bound if norm is None else norm,
        label_bound=0.0,
        weight=1.0,
        neighboring=neighboring,
        noise_multiplier=noise_multiplier,
        row_error=0.0 if norm is None else row_rounding(p, bound),
        rounding=rounding,
    )


def most_stretched(problem: Problem, neighboring: Neighboring, noise_multiplier: float) -> float:
    """Bound how much coefficients grow in coordinates by this second moment: the inverse of how much records shrink."""
    moments = moment_mechanism(problem, neighboring, noise_multiplier)
    noise = moments.gaussian.stddev * math.sqrt(2 * moments.n_features)  # as `NoisyMoments.matrix_noise`
    return math.sqrt(1 + moments.n_samples * moments.feature_norm**2 / noise)


def reshaped(
    noisy: NoisyMoments,
    n_samples: int,
    bound: float,
    relative: float,
    clip: float,
    curvature: float = 1.0,
    unsure: float = 0.0,
) -> Reshaping:
    """Shrink the directions that rise above the noise down to it, and set the new norm, at most ``bound``.

    Eigenvalues below the level, ``relative`` times the noise, are mostly noise; their directions are unchanged.
    ``curvature`` is that of the loss for rows of norm 1 in one direction. The mean square of a reshaped record is
    assumed to be ``unsure`` standard deviations above its estimate.
    """
    eigenvalues, vectors = np.linalg.eigh(noisy.second)
    level = relative * noisy.matrix_noise
    shares = level / np.maximum(eigenvalues, level)
    # Add back what cutting at the level removes from the noise alone, on average.
    cut = len(eigenvalues) * noisy.matrix_noise * semicircle_excess(relative)
    above = unsure * noisy.second_stddev * math.sqrt(len(eigenvalues))
    left = (float(eigenvalues @ shares) + cut + above) / n_samples  # mean square of a reshaped record
    scale = float(shares.max())  # a common factor would change nothing
    norm = min(bound, max(_LEAST_NORM * bound, clip * math.sqrt(max(left, 0.0) / scale)))
    curvature *= min(norm**2, (level + noisy.matrix_noise) / (n_samples * scale))
    matrix = (vectors * np.sqrt(shares / scale)) @ vectors.T
    return Reshaping(matrix, norm, curvature, len(eigenvalues))


def semicircle_excess(level: float) -> float:
    """Return the mean of max(0, x - level) under Wigner's semicircle law on [-1, 1]: noise above a cut at the level."""
    if level >= 1:
        return 0.0
    half = math.sqrt(1 - level**2)
    tail = math.pi / 4 - (level * half + math.asin(level)) / 2
    return 2 / math.pi * (half**3 / 3 - level * tail)


def shrunk(records: Records, shape: Reshaping, n_samples: int) -> Records | None:
    """Return the records, each times the factor that keeps its image under ``shape`` within the norm.

    Nothing but the factors is computed: rows stay as they are, in memory, in a file or on a cluster, dense or CSR.
    Every image is within the norm in exact arithmetic, and each factor is a function of its own row, to the last bit:
    the public ``n_samples`` decides how it is computed, never the number of rows that there are.
    None if ``shape`` changes so many directions that computing the images is faster.
    """
    lost = _lost_directions(shape.matrix)
    if lost is None:
        return None
    sizes: Any = {"width": records.n_columns, "bounds": records.bounds, "sparse": records.sparse}
    compiled = _are_many(n_samples, records.n_columns)
    return records.map_rows(ArrayRecords.shortened, lost, shape.norm, _slack(len(lost)), compiled, **sizes)


def _lost_directions(matrix: Array) -> Array | None:
    """Return F with |M^T v|^2 = |v|^2 - |F^T v|^2 up to rounding; None if F has many columns.

    M leaves most directions as they are, so I - M M^T has a low rank. What rounding leaves of it is measured.
    """
    p = len(matrix)
    rest = np.eye(p) - matrix @ matrix.T
    values, vectors = np.linalg.eigh(rest)
    kept = values > _slack(p) / (8 * p)
    factor = np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))
    left = float(np.linalg.norm(rest - factor @ factor.T)) + 2.1 * gamma(p + 2) * p
    few = factor.shape[1] <= p // 2 and factor.size <= _MOST_LOST
    return factor if few and left <= _slack(p) / 2 else None


def _slack(n_features: int) -> float:
    """Bound the error of a squared norm in new coordinates, over the squared norm of the record."""
    return 12 * gamma(n_features + 64) * (n_features + 1)


def _are_many(n_samples: int, n_columns: int) -> bool:
    """Whether compiled code is worth compiling, for so many rows as were declared."""
    return n_samples * n_columns >= COMPILED_FROM


def singles(records: Records, n_samples: int, bounds: Bounds | None = None) -> Records:
    """Return the records with their entries rounded to single precision, which halves the time of a pass over them.

    Rounded rows are bounded anew, by other ``bounds`` if given. Entries are rounded one by one, so each new record is a
    function of its own row, to the last bit. Rows that are few, sparse or too many stay as they are, judging by the
    public ``n_samples``: all rows would change with the one that makes them many.
    """
    columns = records.n_columns
    rounded = not records.sparse and _are_many(n_samples, columns) and n_samples * columns <= _SINGLES
    if not rounded and bounds is None:
        return records
    bounds = bounds or records.bounds
    return records.map_rows(_rebounded, bounds, rounded, width=columns, bounds=bounds, sparse=records.sparse)


def _rebounded(records: ArrayRecords, bounds: Bounds, rounded: bool) -> ArrayRecords:
    matrix = records.matrix
    if rounded and matrix.dtype != np.float32:
        matrix = np.empty(matrix.shape, dtype=np.float32)
        largest = np.finfo(np.float32).max
        height = max(1, COPY_ENTRIES // max(1, records.n_columns))
        for first in range(0, records.n_samples, height):
            made = matrix[first : first + height]
            with np.errstate(
                all="ignore"
            ):  # a warning can be turned into an error, which would depend on the data
                made[:] = records.matrix[first : first + height]
                np.clip(made, -largest, largest, out=made)
    elif bounds is records.bounds:
        return records
    return ArrayRecords(matrix, records.labels, bounds, records.scales == 0, n_threads=records.n_threads)


def in_coordinates(
    records: Records, shape: Reshaping, n_samples: int, over: Records | None = None
) -> tuple[Records, Reshaping | None]:
    """Return the records in the new coordinates; or `shrunk` ones, with the map of which they are still to be taken.

    ``over`` is as for `mapped`.
    """
    if (kept := shrunk(records, shape, n_samples)) is not None:
        return kept, shape
    return mapped(records, shape.matrix, shape.norm, over), None


def mapped(records: Records, matrix: Array, feature_norm: float, over: Records | None = None) -> Records:
    """Replace records v_i by matrix^T v_i, clipped to a new norm; makes a dense copy, part by part.

    Each new row is a function of its own record, up to rounding (docs/proofs/gradient-methods.md, section 7). The copy
    is made in the memory of an earlier one, if one that nobody needs any more is given and has its size: fresh memory
    takes as long as the product.
    """
    bounds, arguments = Bounds(feature_norm, intercept=False), [matrix]
    if isinstance(over, ArrayRecords) and over.matrix.shape == (records.n_samples, matrix.shape[1]):
        arguments.append(over.matrix)
    return records.map_rows(_images, bounds, *arguments, width=matrix.shape[1], bounds=bounds, sparse=False)


def _images(
    records: ArrayRecords, bounds: Bounds, matrix: Array, memory: Array | None = None
) -> ArrayRecords:
    images = np.empty((records.n_samples, matrix.shape[1])) if memory is None else memory
    unit = 2.0 ** max(0, math.frexp(np.abs(matrix).max())[1])
    scaled = matrix / unit  # entries of rows up to 2**300 must not overflow before the row's own scale
    copies = np.empty((0 if records.sparse else min(_ROWS, records.n_samples), records.n_columns))
    with one_blas_thread:
        for first in range(0, records.n_samples, _ROWS):
            rows = slice(first, first + _ROWS)
            made = images[rows]
            if records.sparse:
                made[:] = csr_view(records.matrix, rows) @ scaled[: records.n_columns]
            else:
                np.matmul(records.dense(rows, copies), scaled[: records.n_columns], out=made)
            if records.bounds.intercept:
                made += scaled[-1]
            made *= records.scales[rows, None]
            if unit != 1.0:
                made *= unit
    return ArrayRecords(images, records.labels, bounds, records.scales == 0)


def cosine_basis(n_features: int, intercept: bool) -> Array:
    """Return orthonormal columns: cosines over the order of the features, and the constant, if any, separately.

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
    """The kept frequencies, and their share of the records' energy."""

    kept: NDArray[np.bool_]
    share: float


@dataclass(frozen=True)
class SpectrumMechanism:
    """Release the energies sum_i <f_j, w_i>^2 of reshaped records in the cosine basis f_j.

    Records were reshaped and clipped to ``norm``, with a rounding error of at most ``row_error`` each. The energies of
    one record are a vector of L1 norm |w|^2; its Euclidean norm is clipped to a quarter of ``norm``^2.

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
        _ = self.gaussian  # raise now if anything can fail

    @cached_property
    def basis(self) -> Array:
        """The frequencies, one per column."""
        return cosine_basis(self.n_features, self.intercept)

    @property
    def limit(self) -> float:
        """Bound on the norm of one record's energies."""
        return LONGEST_ENERGIES * self.norm**2

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism of the release; its sensitivity covers the rounding of the records and of the sum."""
        n, p = self.n_samples, self.n_features
        row = 2.1 * self.norm * (self.row_error + gamma(p + 64) * (math.sqrt(p) + 1) * self.norm)
        rounding = n * row + summation_rounding(n, self.limit)
        exact = acute_sum_sensitivity(self.limit, self.neighboring).value  # energies are not negative
        return GaussianMechanism(Sensitivity((exact + 2 * rounding) * SLACK), self.noise_multiplier, p)

    @property
    def event(self) -> events.Event:
        """The event of one release."""
        return self.gaussian.event

    def release(self, records: Records, level: float, entropy: Entropy) -> Spectrum:
        """Return the frequencies to keep, from noisy energies of the records; ``level`` as in `concentrated`."""
        noisy = self.gaussian.release(records.sum_rows(energies, self.basis, self.limit), entropy)
        return concentrated(noisy, level, self.intercept)


def energies(records: ArrayRecords, basis: Array, limit: float) -> Array:
    """Sum the squared coordinates of the records in ``basis``, clipping each record's vector to norm ``limit``."""
    total = np.zeros(basis.shape[1])
    copies = np.empty((0 if records.sparse else min(_ROWS, records.n_samples), records.n_columns))
    with one_blas_thread:
        for first in range(0, records.n_samples, _ROWS):
            rows = slice(first, first + _ROWS)
            squares = np.square((records.dense(rows, copies) @ basis) * records.scales[rows, None])
            norms = np.sqrt(np.square(squares).sum(axis=1))
            total += (limit / np.maximum(norms, limit)) @ squares
    return total


def concentrated(noisy: Array, level: float, intercept: bool) -> Spectrum:
    """Keep frequencies with more than ``level`` times the mean energy if energies are uneven; otherwise keep all.

    Uneven means that half of the energy would have to move to make them equal. That share is Hoover's index, the excess
    of the frequencies above the mean. The constant is always kept. A function of released numbers.

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
    # Below the share of the largest where that of the constant, which is kept anyway, is negative.
    return Spectrum(kept, min(max(share, 1 / len(noisy)), 1.0)) if share > 0 else everything
