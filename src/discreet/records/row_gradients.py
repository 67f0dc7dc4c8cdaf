"""Rows for losses that are asked record by record: sums of clipped gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet._typing import Array, Mask
from discreet.losses.row_gradients import GradientLoss

_ROWS = 256  # added up at a time, and handed to a batch function


@dataclass(frozen=True)
class RowGradients:
    """Rows and labels as they came, for gradients that are clipped one by one.

    Attributes
    ----------
    X : array or CSR matrix of shape (n_samples, n_columns).
    labels : one number per row.
    null : rows that add nothing to any sum.

    Privacy
    -------
    Each term of a sum is a function of its own row and theta, of norm at most ``loss.clip``; it passes at most
    256 + n / 256 additions, which `discreet.records.bounds.worst_additions` covers.
    """

    X: Any
    labels: Array
    null: Mask

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.labels)

    def value_and_gradient(self, loss: GradientLoss, theta: Array) -> tuple[float, Array]:
        """No value, and the sum of the clipped gradients."""
        return math.nan, self.gradient(loss, theta)

    def gradient(self, loss: GradientLoss, theta: Array) -> Array:
        """The sum of the clipped gradients."""
        total = np.zeros(theta.size)
        for start in range(0, self.n_samples, _ROWS):
            rows = slice(start, start + _ROWS)
            if not self.null[rows].all():
                total += self._gradients(loss, theta.ravel(), rows).sum(axis=0)
        return total.reshape(theta.shape)

    def _gradients(self, loss: GradientLoss, theta: Array, rows: slice) -> Array:
        """The clipped gradients of a few rows, 0 for null ones; a batch has zeros in their place and keeps its size."""
        block, y, null = self.X[rows], self.labels[rows], self.null[rows]
        dense = np.array(block.toarray() if bool(sp.issparse(block)) else block, dtype=np.float64)
        dense[null] = 0.0
        found = np.zeros((len(y), theta.size))
        asked = slice(None) if loss.batch else ~null
        found[asked] = loss.rows(theta, dense[asked], np.where(null, 0.0, y)[asked])
        found[null] = 0.0
        return found

    def in_memory(self) -> RowGradients:
        """These records."""
        return self

    def take(self, rows: NDArray[np.int64]) -> RowGradients:
        """The chosen records."""
        return RowGradients(self.X[rows], self.labels[rows], self.null[rows])
