"""What a model is chosen by: a whole number per held-out record, between 0 and a public unit.

Whole numbers add up exactly, so the sensitivity of a total is exactly that of one record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.estimators import _cells

UNIT = 2**20  # the best score of one record; totals of 2^33 records are exact in float64


def record_scores(model: Any, X: Any, truth: NDArray[Any]) -> NDArray[np.int64]:
    """The score of every row: right or wrong for labels, 1 - (error / range)^2 for numbers; 0 for null records.

    ``truth`` is that of `Records`. A record's score reads that record and the released model, nothing else.
    """
    predicted = model.predict(X)
    if hasattr(model, "classes_"):
        right = (truth >= 0) & (_cells.codes(predicted, model.classes_) == truth)
        return np.where(right, UNIT, 0).astype(np.int64)
    low, high = model.target_bounds
    with np.errstate(all="ignore"):
        errors = (np.clip(truth, low, high) - predicted) / (high - low)
        gains = 1 - np.square(np.clip(errors, -1.0, 1.0))
    return np.asarray(np.floor(UNIT * np.where(np.isfinite(gains), gains, 0.0)), dtype=np.int64)


def total_score(model: Any, X: Any, truth: NDArray[Any]) -> float:
    """The sum of all scores in units of the best one, exact in float64."""
    return float(record_scores(model, X, truth).sum()) / UNIT
