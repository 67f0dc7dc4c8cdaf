"""Transformers that learn nothing, and which steps of a pipeline learn from private rows without paying for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array

from discreet import _checks
from discreet._checks import ParameterTypeError
from discreet._typing import Array
from discreet.display.console import printable
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


_SCALE = "declare the bounds in a Schema and begin with SchemaEncoder"
_CATEGORIES = "pass categories=[...] from a code book, or begin with SchemaEncoder"
_CHOOSE = "choose columns without the private rows, or use PrivateLasso"
_ELSEWHERE = "fit it on public rows and wrap it in sklearn's FrozenEstimator, or leave it out"

#: What well-known steps learn, and what to do instead, by the name of their class.
_LEARNED = {
    "StandardScaler": ("means and standard deviations of columns", _SCALE),
    "MinMaxScaler": ("smallest and largest values of columns", _SCALE),
    "MaxAbsScaler": ("largest absolute values of columns", _SCALE),
    "RobustScaler": ("quantiles of columns", _SCALE),
    "QuantileTransformer": ("quantiles of columns", _SCALE),
    "PowerTransformer": ("the shape of columns", _SCALE),
    "KBinsDiscretizer": ("edges of bins", "declare Binned edges in a Schema"),
    "SplineTransformer": ("ends of columns", _SCALE),
    "OneHotEncoder": ("which categories occur", _CATEGORIES),
    "OrdinalEncoder": ("which categories occur", _CATEGORIES),
    "TargetEncoder": ("mean targets of categories", _CATEGORIES),
    "SimpleImputer": (
        "means, medians or frequent values, and which columns are empty",
        "pass strategy='constant' and keep_empty_features=True",
    ),
    "KNNImputer": (
        "the rows themselves",
        "pass SimpleImputer(strategy='constant', keep_empty_features=True)",
    ),
    "CountVectorizer": ("a vocabulary", "use HashingVectorizer, or Text in a Schema"),
    "TfidfVectorizer": ("a vocabulary and its frequencies", "use HashingVectorizer, or Text in a Schema"),
    "PCA": ("directions of the rows", _ELSEWHERE),
    "TruncatedSVD": ("directions of the rows", _ELSEWHERE),
    "SelectKBest": ("which columns to keep", _CHOOSE),
    "SelectFromModel": ("which columns to keep", _CHOOSE),
    "VarianceThreshold": ("which columns vary", _CHOOSE),
    "GridSearchCV": ("which parameters score best", "use PrivateSearchCV"),
    "RandomizedSearchCV": ("which parameters score best", "use PrivateSearchCV"),
    "CalibratedClassifierCV": ("a map of scores", "the probabilities of a private model need none"),
}
_PUBLIC = frozenset({"PolynomialFeatures", "FrozenEstimator"})


@dataclass(frozen=True)
class UnpaidStep:
    """A step that learns from the rows it is fitted on, although nothing is charged for it.

    Attributes
    ----------
    name : where it is in the pipeline; names of nested steps are joined by two underscores, as in ``set_params``.
    kind : its class.
    learns : what it learns.
    instead : what to do instead.
    """

    name: str
    kind: str
    learns: str
    instead: str

    def __str__(self) -> str:
        return printable(f"{self.name} ({self.kind}) learns {self.learns}; {self.instead}")


@dataclass(frozen=True)
class PipelineCheck:
    """The steps of a pipeline that learn without paying; none if it is ``passed``."""

    unpaid: tuple[UnpaidStep, ...]

    @property
    def passed(self) -> bool:
        """Whether everything that the pipeline learns is paid for."""
        return not self.unpaid

    def __str__(self) -> str:
        if self.passed:
            return "every step that learns from the rows pays for it"
        lines = [
            "the promise of the model does not cover these steps, which learn from the rows without paying:"
        ]
        return "\n".join([*lines, *(f"  {step}" for step in self.unpaid)])


def check_pipeline(pipeline: Any) -> PipelineCheck:
    """Find the steps of a pipeline that learn from rows without paying, before it is fitted to private rows.

    Parameters
    ----------
    pipeline : a scikit-learn ``Pipeline``, nested in any way with ``ColumnTransformer`` and ``FeatureUnion``, or a
        single estimator. It is not fitted, and no data is needed.

    Returns
    -------
    PipelineCheck
        Whether the pipeline ``passed``, and the steps that are ``unpaid``, each with its reason. Print it.

    Notes
    -----
    Privacy: nothing is released. Private steps pass, and so do steps that scikit-learn's tags call stateless or
    whose parameters leave nothing to learn. Every other step is reported, even if nothing is known about it. The
    function of a ``FunctionTransformer`` is not inspected: it must treat each row separately.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from discreet import PrivateLogisticRegression
    >>> print(check_pipeline(make_pipeline(StandardScaler(), PrivateLogisticRegression(classes=[0, 1]))))
    the promise of the model does not cover these steps, which learn from the rows without paying:
      standardscaler (StandardScaler) learns means and standard deviations of columns; declare the bounds ...
    """
    if not isinstance(pipeline, BaseEstimator):
        raise ParameterTypeError(
            "pipeline", f"must be a scikit-learn pipeline or estimator, got {type(pipeline).__name__}"
        )
    return PipelineCheck(tuple(_unpaid("", pipeline)))


def _unpaid(name: str, step: Any) -> Iterator[UnpaidStep]:
    """Return the unpaid steps among one step and those inside it."""
    inside = _steps(step)
    if inside is not None:
        for part, one in inside:
            yield from _unpaid(f"{name}__{part}" if name else part, one)
    elif not (isinstance(step, str) or step is None or _pays(step) or _learns_nothing(step)):
        kind = type(step).__name__
        learns, instead = _LEARNED.get(kind, ("from the rows", _ELSEWHERE))
        if kind not in _LEARNED and hasattr(step, "predict"):
            instead = "use a private model"
        yield UnpaidStep(name or kind, kind, learns, instead)


def _steps(step: Any) -> list[tuple[str, Any]] | None:
    """Return the steps inside this one by name; None if it is not a container."""
    if isinstance(step, Pipeline):
        return list(step.steps)
    if isinstance(step, FeatureUnion):
        return list(step.transformer_list)
    if isinstance(step, ColumnTransformer):
        return [*((name, one) for name, one, *_ in step.transformers), ("remainder", step.remainder)]
    if isinstance(step, TransformedTargetRegressor):
        return [("regressor", step.regressor), ("transformer", step.transformer)]
    return None


def _pays(step: Any) -> bool:
    """Whether this is an estimator of the package, which charges a ledger for what it learns."""
    return type(step).__module__.startswith("discreet.") and hasattr(step, "epsilon")


def _learns_nothing(step: Any) -> bool:
    """Whether nothing is left to learn: no state, or public parameters in its place."""
    kind = type(step).__name__
    if isinstance(step, SchemaEncoder) or kind in _PUBLIC:
        return True
    if kind in ("OneHotEncoder", "OrdinalEncoder"):
        frequent = getattr(step, "min_frequency", None), getattr(step, "max_categories", None)
        chosen = getattr(step, "drop", None) == "if_binary" or frequent != (None, None)
        return not isinstance(step.categories, str) and not chosen
    if kind == "SimpleImputer":
        return bool(step.strategy == "constant" and step.keep_empty_features)
    return not get_tags(step).requires_fit
