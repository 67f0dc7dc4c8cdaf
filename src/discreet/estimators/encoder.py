"""Transformers that learn nothing: a raw table by its schema, rows of counts by public square roots."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array

from discreet import _checks
from discreet._checks import ParameterTypeError
from discreet._typing import Array
from discreet.tables.schema import Schema, named


class SchemaEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a raw table into bounded rows by the fixed rules of a schema.

    Parameters
    ----------
    schema : Schema
        Public domains of the columns. Use ``feature_bound=schema.feature_bound()`` in the estimator that follows.
    bad_rows : {"error", "null"}
        What to do with cells that are not valid in their column; "null" gives rows of NaN, which an estimator with
        ``bad_rows="null"`` treats as records that contribute nothing.

    Attributes
    ----------
    n_features_in_ : number of columns of the table that are used.
    feature_names_in_ : their names.

    Notes
    -----
    Privacy: ``fit`` learns no statistics, spends no budget, and does not read the table.
    Each row of the result depends on one row of the table, so any guarantee about rows holds for the raw
    table.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from discreet import PrivateLogisticRegression, SchemaEncoder
    >>> from discreet.tables.cohort import COHORT_SCHEMA, make_cohort
    >>> people = make_cohort(20_000)
    >>> model = make_pipeline(
    ...     SchemaEncoder(COHORT_SCHEMA),
    ...     PrivateLogisticRegression(
    ...         epsilon=1.0, classes=COHORT_SCHEMA.classes, feature_bound=COHORT_SCHEMA.feature_bound()
    ...     ),
    ... )
    >>> labels = COHORT_SCHEMA.target_values(people)
    >>> bool(model.fit(people, labels).score(people, labels) > 0.78)
    True
    """

    feature_names_in_: NDArray[Any]
    n_features_in_: int

    def __init__(self, schema: Schema, *, bad_rows: str = "error") -> None:
        self.schema = schema
        self.bad_rows = bad_rows

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the names of the columns; nothing is learned from the table."""
        schema = self._schema()
        self.feature_names_in_ = np.array(list(schema.columns), dtype=object)
        self.n_features_in_ = len(schema.columns)
        return self

    def transform(self, X: Any) -> Array:
        """Return the rows of a pyarrow Table, a pandas or polars frame, or a dictionary of columns."""
        bad_rows: Any = _checks.choice("bad_rows", self.bad_rows, ("error", "null"))
        schema = self._schema()
        return named(schema.transform(X, bad_rows=bad_rows), schema.feature_names)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features, which follow from the schema."""
        return np.array(self._schema().feature_names, dtype=object)

    def _schema(self) -> Schema:
        if not isinstance(self.schema, Schema):
            raise ParameterTypeError(
                "schema",
                f"must be a discreet.Schema, got {type(self.schema).__name__}",
                "read a file with Schema.from_file(...)",
            )
        return self.schema

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


class SquareRootRows(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replace every entry by its signed square root, and scale every row to norm 1.

    For counts and weights of words, clicks or diagnoses: frequent entries no longer dominate the others, and rows have
    norm 1, which is the ``feature_bound`` of the estimator that follows.

    Privacy
    -------
    ``fit`` learns nothing, and each row of the result is a function of one row: any guarantee about the result holds
    for the original rows.

    Examples
    --------
    >>> SquareRootRows().fit_transform(np.array([[9.0, -16.0], [0.0, 0.0]]))
    array([[ 0.6, -0.8],
           [ 0. ,  0. ]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the number of columns; nothing else is learned."""
        self.n_features_in_ = int(X.shape[1])
        return self

    def transform(self, X: Any) -> Any:
        """Return the scaled rows; a sparse matrix becomes CSR."""
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
    """Return 1 / norm; empty rows are unchanged."""
    return 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0))
