"""Real data sets for benchmarks, found through the environment variable DISCREET_DATA, never copied here.

One protocol for all: columns are divided by a constant treated as public (the largest absolute value of the column,
255 for pixels), text rows by their L2 norm; a generator seeded with the number of the split shuffles the rows, the
first 80% train, and delta is 1 / n_train^2. Clipping and the intercept are the estimator's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

VARIABLE = "DISCREET_DATA"
TEXT = frozenset({"reuters_moneyfx", "clothing_reviews", "news20"})
MULTICLASS = frozenset({"covtype", "mnist"})
_KDD_ROWS = 70_000  # the dissertation's size, drawn once with seed 0


class MissingData(RuntimeError):
    """The data set is not on this machine."""


@dataclass(frozen=True)
class Split:
    """One training and test split."""

    name: str
    seed: int
    X_train: Any
    y_train: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]

    @property
    def delta(self) -> float:
        """1 / n_train^2."""
        return 1.0 / len(self.y_train) ** 2

    @property
    def classes(self) -> list[int]:
        """The public label set."""
        return list(range(int(max(self.y_train.max(), self.y_test.max())) + 1))


def splits(name: str, seeds: range) -> Iterator[Split]:
    """The splits of one data set; raises `MissingData` with what to do where it is not to be had."""
    X, y = load(name)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.8 * len(y))])
        yield Split(name, seed, X[train], y[train], X[test], y[test])


@lru_cache(maxsize=1)
def load(name: str) -> tuple[Any, NDArray[np.int64]]:
    """Scaled rows and labels 0 .. K-1 of a whole data set."""
    X, labels = _read(name)
    y = _codes(name, labels)
    if name in TEXT:
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        return sp.csr_matrix(sp.diags(1.0 / np.where(norms > 0, norms, 1.0)) @ X), y
    if name == "kddcup99":
        rows = np.random.default_rng(0).choice(len(y), _KDD_ROWS, replace=False)
        X, y = X[rows], y[rows]
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    bound = np.full(dense.shape[1], 255.0) if name == "mnist" else np.abs(dense).max(axis=0)
    return dense / np.where(bound > 0, bound, 1.0), y


def _read(name: str) -> tuple[Any, NDArray[Any]]:
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise MissingData(f"set {VARIABLE} to the folder that holds {name}.npz")
    path = Path(folder) / f"{name}.npz"
    if not path.exists():
        raise MissingData(f"{path} is missing")
    with np.load(path, allow_pickle=False) as file:
        labels = file["y"]
        if "X" in file.files:
            return file["X"].astype(np.float64), labels
    return sp.csr_matrix(sp.load_npz(path)).astype(np.float64), labels


def _codes(name: str, labels: NDArray[Any]) -> NDArray[np.int64]:
    if name in MULTICLASS:
        return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.int64)
    positive = labels >= 10 if name == "news20" else labels == labels.max()
    return np.asarray(positive, dtype=np.int64)
