"""Records made of others: mini-batches, in one pass after another or by Poisson sampling, and linear images."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from discreet.bounds import Bounds
from discreet.records.arrays import ArrayRecords
from discreet.records.parts import PartitionedRecords
from discreet.records.storage import one_blas_thread

_ROWS = 4096  # records mapped at a time


def consecutive(records: ArrayRecords, order: NDArray[np.int64], batch_size: int) -> list[ArrayRecords]:
    """The records in the given order, cut into full batches; a shorter rest at the end is left out."""
    n_batches = len(order) // batch_size
    return [records.take(order[i * batch_size : (i + 1) * batch_size]) for i in range(n_batches)]


def mapped(records: ArrayRecords, matrix: NDArray[np.float64], feature_norm: float) -> ArrayRecords:
    """The records v_i replaced by matrix^T v_i, clipped to another norm; a dense copy, part by part if there are parts.

    Each new row is a function of its own record, up to rounding (docs/proofs/gradient-methods.md, section 7).
    """
    bounds = Bounds(feature_norm, intercept=False)
    if isinstance(records, PartitionedRecords):
        return cast(
            ArrayRecords, records.derived(mapped, matrix, feature_norm, width=matrix.shape[1], bounds=bounds)
        )
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
