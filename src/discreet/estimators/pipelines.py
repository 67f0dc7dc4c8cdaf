"""Which steps of a pipeline learn from private rows without paying for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from discreet._checks import ParameterTypeError
from discreet.display.console import printable
from discreet.estimators.encoder import SchemaEncoder

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
