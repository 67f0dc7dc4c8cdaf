"""Some of the records: mini-batches, in one pass after another or by Poisson sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.records.arrays import ArrayRecords


def take(records: ArrayRecords, rows: NDArray[np.int64]) -> ArrayRecords:
    """The chosen records, clipped as before; their sums do not look at the others."""
    return ArrayRecords(
        records._X[rows],
        records._y[rows],
        records.bounds,
        records._null[rows],
        n_threads=1,
    )


def consecutive(records: ArrayRecords, order: NDArray[np.int64], batch_size: int) -> list[ArrayRecords]:
    """The records in the given order, cut into full batches; a shorter rest at the end is left out."""
    n_batches = len(order) // batch_size
    return [take(records, order[i * batch_size : (i + 1) * batch_size]) for i in range(n_batches)]
