"""Records of an additive model: one vector per column, looked up by the bin of each cell, and sums of these.

No record is longer than 1: bins of ordered columns get rows of the root of a kernel, so that neighbors are alike,
beside a straight line; categories get unit vectors. Proof: docs/proofs/additive-models.md, section 2.

No record is ever stored, only the bins of its cells. A sum over records is a sum of whole numbers for every bin, times
the vectors of the bins: it is the same to the last bit however rows are cut and wherever they are. Proof:
docs/proofs/additive-models.md, section 3.
"""

from __future__ import annotations

import itertools
import math
import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._typing import Array, Integers, Mask
from discreet.additive.bins import Bins
from discreet.additive.columns import HEIGHT
from discreet.records.bounds import gamma

_RANGE = 0.1  # over which bins of a column are alike, in units of their number
_LINEAR = 0.5  # of an ordered column's squared norm, for a straight line
_CONSTANT = 0.15  # of a record's squared norm, for the constant
_LEAST = 1e-9  # of a kernel's eigenvalues
ROUNDED = 1 - 2.0**-44  # keeps norms that were computed in floating point below their bound


@dataclass(frozen=True)
class Coordinates:
    """Tables of vectors, one per column: a record is the concatenation of those of its bins, and a constant.

    Attributes
    ----------
    tables : per column, one row per bin.
    constant : the last coordinate of every record; 0 for none.
    """

    tables: tuple[Array, ...]
    constant: float

    @property
    def width(self) -> int:
        """Length of a record."""
        return sum(int(table.shape[1]) for table in self.tables) + int(self.constant > 0)

    @property
    def norm(self) -> float:
        """The largest norm of a record, as computed."""
        longest = [float(np.square(table).sum(axis=1).max()) for table in self.tables]
        return math.sqrt(math.fsum(longest) + self.constant**2)

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where each column's coordinates lie."""
        ends = np.cumsum([0, *(table.shape[1] for table in self.tables)])
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends.tolist()))

    def mean(self, bins: Sequence[Bins]) -> Array:
        """The mean record, by the noisy counts of bins."""
        row = np.zeros(self.width)
        for table, part, one in zip(self.tables, self.parts, bins, strict=True):
            mass = np.maximum(one.counts, 0.0)
            row[part] = mass @ table / max(float(mass.sum()), 1.0)
        if self.constant > 0:
            row[-1] = self.constant
        return row

    def shapes(self, theta: Array) -> tuple[list[Array], Array]:
        """What coefficients give each bin of each column, and the constant they add; outputs are the last axis."""
        shapes = [table @ theta[part] for table, part in zip(self.tables, self.parts, strict=True)]
        last = self.constant * theta[-1] if self.constant > 0 else np.zeros(theta.shape[1:])
        return shapes, np.asarray(last)


def coordinates(bins: Sequence[Bins], ordered: Sequence[bool]) -> Coordinates:
    """The coordinates of columns with these bins; every record has norm at most 1, in floating point too."""
    tables, weights = [], []
    for one, smooth in zip(bins, ordered, strict=True):
        table, effective = with_line(one.n_bins) if smooth else (np.eye(one.n_bins), float(one.n_bins))
        if one.missing:
            table = np.block(
                [[table, np.zeros((len(table), 1))], [np.zeros((1, table.shape[1])), np.ones((1, 1))]]
            )
        tables.append(table)
        weights.append(math.sqrt(max(effective, 2.0) - 1))
    shares = (1 - _CONSTANT) * np.array(weights) / math.fsum(weights)
    scaled = tuple(table * math.sqrt(share) * ROUNDED for table, share in zip(tables, shares, strict=True))
    return Coordinates(scaled, math.sqrt(_CONSTANT) * ROUNDED)


def kernel_root(n_bins: int) -> tuple[Array, float]:
    """Rows of norm 1 whose products are exp(-distance / range), one per bin, and their effective number."""
    places = np.arange(n_bins)
    distances = np.abs(places[:, None] - places[None, :]) / (_RANGE * n_bins)
    eigenvalues, vectors = np.linalg.eigh(np.exp(-distances))
    eigenvalues = np.maximum(eigenvalues, _LEAST)
    effective = eigenvalues.sum() ** 2 / np.square(eigenvalues).sum()
    return unit_rows(vectors * np.sqrt(eigenvalues)), float(effective)


def with_line(n_bins: int) -> tuple[Array, float]:
    """The same, half of the squared norm, beside a straight line of the other half: rows of norm at most 1."""
    root, effective = kernel_root(n_bins)
    line = np.linspace(-1.0, 1.0, n_bins) if n_bins > 1 else np.zeros(1)
    return np.column_stack([root * math.sqrt(1 - _LINEAR), line * math.sqrt(_LINEAR)]), effective


def unit_rows(table: Array) -> Array:
    """The rows scaled to norm 1."""
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))


_KEEP_BYTES = 1 << 28  # mapped pages that may stay before they are given back
_WHOLE_BITS = 52  # of whole numbers whose sums are exact


@dataclass(frozen=True)
class Codes:
    """The bin of every cell, row by row; a cell in none has the number of its column's bins.

    Attributes
    ----------
    matrix : of shape (rows, columns).
    sizes : number of bins of every column.
    file : the mapped file in which the matrix is; None if it is in memory.
    """

    matrix: NDArray[Any]
    sizes: tuple[int, ...]
    file: mmap.mmap | None = None

    @staticmethod
    def of(sizes: Sequence[int], parts: Iterable[Sequence[Integers]], *, stored: bool) -> Codes:
        """Take the bins of some rows after the other, column by column; -1 is none.

        ``stored`` keeps them in a mapped file that no folder names.
        """
        kind = np.min_scalar_type(max(sizes))
        blocks = (
            np.column_stack([np.where(code < 0, size, code) for code, size in zip(part, sizes, strict=True)])
            for part in parts
        )
        if not stored:
            return Codes(np.concatenate([block.astype(kind) for block in blocks]), tuple(sizes))
        with tempfile.TemporaryFile(prefix="discreet-") as stream:
            for block in blocks:
                stream.write(block.astype(kind).tobytes())
            stream.flush()
            file = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return Codes(np.frombuffer(file, kind).reshape(-1, len(sizes)), tuple(sizes), file)

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """The rows, ``HEIGHT`` at a time."""
        read = 0
        for start in range(0, len(self.matrix), HEIGHT):
            block = self.matrix[start : start + HEIGHT]
            yield slice(start, start + len(block)), block
            read += block.nbytes
            if self.file is not None and read > _KEEP_BYTES and hasattr(mmap, "MADV_DONTNEED"):
                self.file.madvise(mmap.MADV_DONTNEED)
                read = 0


@dataclass(frozen=True)
class BinnedRecords:
    """Records that are sums of the vectors of their bins, each times a scale.

    Attributes
    ----------
    codes : the bins.
    vectors : of the bins of all columns; behind those of a column, zeros for a cell in none; last, the constant part.
    n_samples : public number of records, or an upper bound.
    scales : whole multiples of 1 / `root_steps`, 0 for null records.

    Privacy
    -------
    Each record is a function of its own row, to the last bit, and its exact norm is at most the declared one.
    """

    codes: Codes
    vectors: Array
    n_samples: int
    scales: Array

    @staticmethod
    def of(made: Coordinates, codes: Codes, null: Mask, n_samples: int) -> BinnedRecords:
        """Records of norm at most 1."""
        parts = [np.vstack([table, np.zeros(table.shape[1])]) for table in made.tables]
        vectors = np.zeros((sum(len(part) for part in parts) + 1, made.width))
        start = 0
        for part, place in zip(parts, made.parts, strict=True):
            vectors[start : start + len(part), place] = part
            start += len(part)
        vectors[-1, -1] += made.constant
        return BinnedRecords(codes, vectors, n_samples, np.where(null, 0.0, 1.0))._within(1.0)

    @property
    def n_features(self) -> int:
        """Length of a record."""
        return int(self.vectors.shape[1])

    def images(self, matrix: Array, norm: float) -> BinnedRecords:
        """Records with the products of ``matrix``^T and the vectors, at most ``norm`` long."""
        return replace(self, vectors=self.vectors @ matrix)._within(norm)

    def _within(self, norm: float) -> BinnedRecords:
        """The same sums of vectors, scaled to be no longer than ``norm`` in exact arithmetic."""
        lengths = np.linalg.norm(self.vectors, axis=1)
        longest = sum(float(part.max()) for part in np.split(lengths, self._starts[1:]))
        n_parts = len(self._starts)
        error = 1.01 * gamma(self.n_features + (n_parts + 1) ** 2 + 8) * longest**2
        room, whole = norm * (1 - 2.0**-46), root_steps(self.n_samples)
        products = self.vectors @ self.vectors.T
        scales = np.zeros(len(self.scales))
        for rows, hot in self.blocks():
            length = np.sqrt(np.maximum(_squares(products, hot.indices.reshape(-1, n_parts)), 0.0) + error)
            scales[rows] = np.floor(np.minimum(room / np.maximum(length, room), 1.0) * whole) / whole
        return replace(self, scales=np.where(self.scales == 0, 0.0, scales))

    @property
    def _starts(self) -> Integers:
        """Where the vectors of every column begin, and the constant."""
        return np.cumsum([0, *(size + 1 for size in self.codes.sizes)])

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Some rows as a sparse matrix with a one for each of their vectors."""
        starts = self._starts.astype(np.int32)
        for rows, block in self.codes.blocks():
            places = np.empty((len(block), len(starts)), dtype=np.int32)
            places[:, :-1] = block
            places[:, -1] = 0
            places += starts
            ends = np.arange(0, places.size + 1, len(starts), dtype=np.int32)
            shape = len(block), len(self.vectors)
            yield rows, sp.csr_array((np.ones(places.size), places.ravel(), ends), shape=shape)

    def gram(self) -> Array:
        """The sum of records times themselves: whole numbers for every two bins, times their vectors."""
        counts = np.zeros((len(self.vectors),) * 2)
        steps = root_steps(self.n_samples)
        for rows, hot in self.blocks():
            weighted = hot.copy()
            weighted.data *= np.repeat(np.square(self.scales[rows] * steps), len(self.codes.sizes) + 1)
            counts += (weighted.T.tocsr() @ hot).toarray()
        return np.asarray(self.vectors.T @ counts @ self.vectors) / steps**2


def _squares(products: Array, places: Integers) -> Array:
    """The squared norms of sums of vectors, from the products of any two; each row is added up in one order."""
    size, flat = len(products), products.ravel()
    columns = [column.astype(np.int64) for column in places.T]
    total = np.zeros(len(places))
    for number, column in enumerate(columns):
        total += flat[column * (size + 1)]
        for other in columns[:number]:
            total += 2.0 * flat[column * size + other]
    return total


def steps(n_samples: int) -> float:
    """How many steps weights between 0 and 1 can have so that sums of them are exact.

    >>> steps(1000) == 2.0**42
    True
    """
    return 2.0 ** (_WHOLE_BITS - n_samples.bit_length())


def root_steps(n_samples: int) -> float:
    """The same for numbers whose squares are summed.

    >>> root_steps(1000) == 2.0**21
    True
    """
    return 2.0 ** ((_WHOLE_BITS - n_samples.bit_length()) // 2)


def gram_rounding(n_samples: int, width: int, n_vectors: int) -> float:
    """Bound the error of `BinnedRecords.gram`: counts are exact, two products with the vectors are not."""
    return 2.2 * gamma(width + 8) * n_samples * n_vectors


def sum_rounding(n_samples: int, width: int, n_vectors: int) -> float:
    """Bound the error of a sum of records with weights of at most 1: counts are exact, one product is not."""
    return 1.01 * gamma(width + 8) * n_samples * math.sqrt(n_vectors)
