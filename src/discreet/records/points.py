"""Records as points of a ball, and the sum of the directions in which they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.bounds import Bounds
from discreet.records.kernels import UNIT_ROUNDOFF, gamma

Array = NDArray[np.float64]

_CHUNK_ENTRIES = 1 << 18


class Points:
    """The points z_i = s_i (x_i - center) / radius of the unit ball; rows too far away are pulled onto its surface.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_columns); the points are a dense copy of it.
    center, radius : the public ball.

    Privacy
    -------
    Each point is a function of its own row. Rows that are not finite are null records: they have no direction.
    """

    def __init__(self, X: Any, center: Array, radius: float) -> None:
        n_samples, self.n_features = (int(size) for size in X.shape)
        self._height = max(1, _CHUNK_ENTRIES // max(1, self.n_features))
        self._points = np.empty((n_samples, self.n_features))
        filled = 0
        for start in range(0, n_samples, self._height):
            points = _inside(X[start : start + self._height], center, Bounds(radius, intercept=False))
            self._points[filled : filled + len(points)] = points
            filled += len(points)
        self._points = self._points[:filled]

    def direction_sum(self, theta: Array, width: float) -> Array:
        """sum_i (theta - z_i) / max(|theta - z_i|, width): the gradient of the rounded distances to all points."""
        total = np.zeros(self.n_features)
        for start in range(0, len(self._points), self._height):
            away = theta - self._points[start : start + self._height]
            lengths = np.sqrt(np.einsum("ij,ij->i", away, away))
            total += (1.0 / np.maximum(lengths, width)) @ away
        return total


def _inside(rows: Any, center: Array, bounds: Bounds) -> Array:
    """The rows that are finite, relative to the center and in units of the bound, clipped."""
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    with np.errstate(all="ignore"):
        shifted = np.array(dense, dtype=np.float64) - center
        scales = bounds.row_scales(shifted)
    kept = scales > 0
    return np.asarray(shifted[kept] * (scales[kept] / bounds.feature_norm)[:, None])


def direction_rounding(n_samples: int, n_features: int, width: float) -> float:
    """A proved bound on the L2 error of a computed ``direction_sum`` at a theta of the unit ball.

    n ((p + 32) 2^-52 / width + gamma_{p+8} + gamma_{m+2}): points are off by (p + 32) 2^-52 at most, the direction is
    1 / width-Lipschitz in them; it rounds componentwise; and its term passes m additions, in its chunk and over chunks
    (docs/proofs/geometric-median.md).
    """
    height = max(1, _CHUNK_ENTRIES // n_features)
    additions = min(n_samples, height + n_samples // height + 1)
    moved = (n_features + 32) * 2 * UNIT_ROUNDOFF / width
    return 1.01 * n_samples * (moved + gamma(n_features + 8) + gamma(additions + 2))
