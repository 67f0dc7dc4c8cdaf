"""Rows of counts by public square roots, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array


class SquareRootRows(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replace every entry by its square root, sign kept, and scale every row to norm 1.

    For counts and weights of words, clicks or diagnoses: frequent entries stop drowning the others, and a row has norm
    1, which is the ``feature_bound`` of the estimator that follows.

    Privacy
    -------
    ``fit`` learns nothing, and each row of the result is a function of one row: whatever is promised about rows holds
    for the rows that were given.

    Examples
    --------
    >>> SquareRootRows().fit_transform(np.array([[9.0, -16.0], [0.0, 0.0]]))
    array([[ 0.6, -0.8],
           [ 0. ,  0. ]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Nothing is learned but the number of columns."""
        self.n_features_in_ = int(X.shape[1])
        return self

    def transform(self, X: Any) -> Any:
        """The rows of an array, or of a sparse matrix, which becomes CSR."""
        rows: Any = check_array(X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, copy=True)
        sparse = bool(sp.issparse(rows))
        entries = rows.data if sparse else rows
        entries[...] = np.copysign(np.sqrt(np.abs(entries)), entries)
        if not sparse:
            return rows * _inverse(np.square(rows).sum(axis=1))[:, None]
        rows.sum_duplicates()
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        rows.data *= np.repeat(_inverse(squares), np.diff(rows.indptr))
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        return tags


def _inverse(squares: Any) -> Any:
    """1 / norm; empty rows stay as they are."""
    return 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0))
