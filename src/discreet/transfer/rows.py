"""Rows of whatever a model accepts: arrays, sparse matrices, data frames, lists; and of files and Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def as_table(name: str, X: Any) -> Any:
    """``X`` as something with rows and a shape; contents are the model's business."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    table = X if in_parts(X) or (hasattr(X, "shape") and hasattr(X, "__getitem__")) else _numbers(name, X)
    if len(table.shape) != 2:
        raise ValueError(
            f"{name} must have two dimensions (rows, columns), got shape {tuple(table.shape)}; "
            "for a single column use X.reshape(-1, 1)"
        )
    if table.shape[0] == 0:
        raise ValueError(f"{name} has no rows; pass at least one")
    return table


def _numbers(name: str, X: Any) -> NDArray[np.float64]:
    """Lists as a matrix of numbers: otherwise one cell of one row would decide the type of all others."""
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is no array and cannot be read as rows of numbers, all of the same length; for other contents "
            "pass a data frame, or an array with dtype=object. Nothing was charged."
        ) from None


def take(X: Any, rows: NDArray[np.int64] | slice) -> Any:
    """Some rows in the container they came in; of a mapped file as a matrix in memory, in ascending order only."""
    if hasattr(X, "blocks"):
        return _from_file(X, np.arange(X.shape[0])[rows])
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def in_parts(X: Any) -> bool:
    """Whether these are opened rows of a file or of a Dask collection: matrices of numbers, not all in memory."""
    return hasattr(X, "feature_names") and not hasattr(X, "iloc")


def stacked(blocks: Sequence[Any]) -> Any:
    """Matrices below each other, dense or sparse."""
    if hasattr(blocks[0], "tocsr"):
        return sp.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def _from_file(file: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
    found, start = [], 0
    for block in file.blocks():
        low, high = np.searchsorted(rows, [start, start + len(block)])
        found.append(block[rows[low:high] - start])
        start += len(block)
    return np.concatenate(found)


def public_matrix(X: Any, queries: Any) -> Any:
    """Public rows as a matrix, to go with private rows in parts; raises where names of columns differ."""
    if not hasattr(queries, "iloc"):
        return queries
    mine, theirs = X.feature_names, tuple(str(name) for name in queries.columns)
    if mine and mine != theirs:
        raise ValueError(
            f"the columns of X_public, {list(theirs)[:5]}, are not those of the private data, {list(mine)[:5]}, in the "
            "same order. Nothing was charged."
        )
    return queries.to_numpy()


def columns(X: Any) -> list[str] | None:
    """The names of the columns, where there are any."""
    return [str(name) for name in X.columns] if hasattr(X, "columns") else None


def note_columns(model: Any, X: Any) -> None:
    """Keep number and names of the columns of ``X`` where scikit-learn looks for them."""
    model.n_features_in_ = int(X.shape[1])
    names = columns(X)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


@dataclass(frozen=True)
class Columns:
    """How many columns a table has, and their names where there are any; nothing of what they hold."""

    count: int
    names: list[str] | None

    @staticmethod
    def of(X: Any) -> Columns:
        """Those of a table."""
        return Columns(int(X.shape[1]), columns(X))


def check_same_columns(private: Columns, other: Any, name: str) -> None:
    """Raise if ``other`` does not have the columns of the private data, in the same order."""
    if other.shape[1] != private.count:
        raise ValueError(
            f"{name} has {other.shape[1]} columns and the private data {private.count}; give both the same "
            "columns in the same order. Nothing was charged."
        )
    mine, theirs = private.names, columns(other)
    if (mine is None) != (theirs is None):
        raise ValueError(
            f"{name} and the private data must both be data frames, or neither: with names on one side only the "
            "columns cannot be compared. Nothing was charged."
        )
    if mine is not None and theirs is not None and mine != theirs:
        odd = sorted(set(mine) ^ set(theirs))[:5]
        why = f"differ in {odd}" if odd else "come in another order"
        raise ValueError(
            f"the columns of {name} and of the private data {why}; give both the same columns in the same order. "
            "Nothing was charged."
        )
