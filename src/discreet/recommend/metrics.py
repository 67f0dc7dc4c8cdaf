"""Metrics of predictions and rankings. Their values on private ratings are private, too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


def rmse(ratings: ArrayLike, predictions: ArrayLike) -> float:
    """Return the root mean squared error.

    >>> rmse([1.0, 3.0], [1.0, 5.0]) == 2**0.5
    True
    """
    difference = np.asarray(ratings, dtype=np.float64) - np.asarray(predictions, dtype=np.float64)
    return float(np.sqrt(np.mean(difference**2)))


def _top(scores: ArrayLike, k: int) -> np.ndarray:
    """Return the k best items, best first; items with score -inf are never shown."""
    values = np.asarray(scores, dtype=np.float64)
    near = values >= np.partition(values, -k)[-k] if k < len(values) else np.ones(len(values), dtype=bool)
    candidates = np.flatnonzero(near & (values > -np.inf))
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]


class Ranking(NamedTuple):
    """Precision, recall and NDCG of k shown items."""

    precision: float
    recall: float
    ndcg: float


def ranking_at(scores: ArrayLike, relevant: ArrayLike, k: int = 10) -> Ranking:
    """Return precision, recall and NDCG of the k best-scored items; all 0 if no item is relevant.

    >>> ranking_at([0.9, 0.1, 0.5], relevant=[0, 1], k=1)
    Ranking(precision=1.0, recall=0.5, ndcg=1.0)
    """
    wanted = np.unique(np.asarray(relevant))
    if not len(wanted):
        return Ranking(0.0, 0.0, 0.0)
    hits = np.isin(_top(scores, k), wanted)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    gain = discounts[: len(hits)] @ hits / discounts[: min(k, len(wanted))].sum()
    return Ranking(float(hits.sum() / k), float(hits.sum() / len(wanted)), float(gain))


def precision_at(scores: ArrayLike, relevant: ArrayLike, k: int = 10) -> float:
    """Return the fraction of the k best-scored items that are relevant.

    >>> precision_at([0.9, 0.1, 0.5], relevant=[0, 1], k=2)
    0.5
    """
    return ranking_at(scores, relevant, k).precision


def recall_at(scores: ArrayLike, relevant: ArrayLike, k: int = 10) -> float:
    """Return the fraction of the relevant items among the k best-scored; 0 if none is relevant.

    >>> recall_at([0.9, 0.1, 0.5], relevant=[0], k=1)
    1.0
    """
    return ranking_at(scores, relevant, k).recall


def ndcg_at(scores: ArrayLike, relevant: ArrayLike, k: int = 10) -> float:
    """Return the normalized discounted cumulative gain of the k best-scored items, for binary relevance.

    >>> ndcg_at([0.9, 0.1, 0.5], relevant=[0], k=3)
    1.0
    """
    return ranking_at(scores, relevant, k).ndcg
