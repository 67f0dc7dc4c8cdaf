"""Private additive models with the scikit-learn interface: one shape per column, and a few per pair of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Mask
from discreet.additive.base import PrivateAdditiveModel
from discreet.additive.columns import Column
from discreet.additive.plan import AdditivePlan, AdditiveRelease
from discreet.additive.shapes import AdditiveModel
from discreet.additive.stages import Task
from discreet.estimators.linear import as_fitted
from discreet.estimators.parameters import estimator, parameter
from discreet.estimators.regressors import FIND_BOUNDS, range_of_means
from discreet.privacy.statement import PrivacyStatement
from discreet.records.open import Labels, checked_classes, checked_targets, class_count, read_labels


@estimator
class PrivateAdditiveClassifier(ClassifierMixin, PrivateAdditiveModel):  # type: ignore[misc]
    """Additive logistic regression under differential privacy: log-odds are a sum of one shape per column.

    Each shape is a table that can be read, drawn and edited. Bins are chosen inside the fit and paid for; more than two
    classes share one softmax.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    shapes_ : per column a table of bins, what each adds to the log-odds, its noise band, and released counts.
    pairs_ : tables of the pairs of columns that were chosen.
    intercept_ : log-odds that the shapes add to.
    importances_ : mean absolute value of every shape.
    classes_ : labels.
    {fitted}

    Notes
    -----
    {privacy}

    References
    ----------
    Nori, Caruana, Bu, Shen and Kulkarni (2021) for private additive models by boosting; the method here and its proof:
    docs/proofs/additive-models.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateAdditiveClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2))
    >>> y = (np.abs(X[:, 0]) + 0.2 * X[:, 1] > 0.5).astype(int)
    >>> model = PrivateAdditiveClassifier(epsilon=1.0, classes=[0, 1], feature_bounds=(-1, 1)).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> list(model.shapes_["x0"])
    ['bin', 'lower', 'upper', 'value', 'low', 'high', 'count']
    """

    _task = "classes"

    classes: Any = parameter(
        None,
        "list",
        "The public label set; None is that of the schema. If there is none it is read from the data, with a warning "
        "and a note in the statement.",
    )

    def plan(
        self, n_samples: int, n_features: int | None = None, n_classes: int | None = None
    ) -> AdditivePlan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples : public number of rows; under "add-remove-one" an upper bound; with ``max_rows_per_group`` it counts
            places, the number of groups times that bound.
        n_features : number of columns, where there is no schema.
        n_classes : number of classes; None for those that are declared, or 2.
        """
        known = class_count(n_classes, self._declared())
        return self._calibrated(n_samples, self._public_columns(n_features), known)

    def _declared(self) -> Any:
        """The public label set, if there is one."""
        if self.classes is not None or self.schema is None or self.schema.target is None:
            return self.classes
        return self.schema.classes

    def _checked(self, rows: Any, y: Any, strict: bool) -> NDArray[Any]:
        return checked_classes(self, rows, y, strict=strict)[1]

    def _targets(self, y: NDArray[Any]) -> tuple[Array, Mask, tuple[str, ...]]:
        labels: Labels = read_labels(y, self._declared(), self.bad_rows)
        self.classes_ = labels.classes
        return labels.codes.astype(np.float64), labels.codes < 0, (labels.assumption,)

    def _planned(self, n_samples: int, columns: tuple[Column, ...]) -> AdditivePlan:
        return self._calibrated(n_samples, columns, len(self.classes_))

    def _outputs(self) -> list[str]:
        return [str(label) for label in self.classes_] if len(self.classes_) > 2 else []

    def decision_function(self, X: Any) -> Array:
        """Log-odds of the second class, or one raw prediction per class."""
        raw = self._raw(X)
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class."""
        raw = self.decision_function(X)
        if raw.ndim == 1:
            return np.column_stack([expit(-raw), expit(raw)])
        return np.asarray(softmax(raw, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of every row."""
        raw = self.decision_function(X)
        codes = (raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)
        return np.asarray(self.classes_[codes])


@estimator
class PrivateAdditiveRegressor(RegressorMixin, PrivateAdditiveModel):  # type: ignore[misc]
    """Additive regression under differential privacy: predictions are a sum of one shape per column.

    With ``loss="poisson"`` the sum is the logarithm of a predicted count. Each shape is a table that can be read, drawn
    and edited. Bins are chosen inside the fit and paid for. Residuals are clipped at a width that the fit follows at no
    further price.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    shapes_ : per column a table of bins, what each adds to a prediction, its noise band, and released counts.
    pairs_ : tables of the pairs of columns that were chosen.
    intercept_ : what the shapes add to; of counts, the logarithm of a mean.
    importances_ : mean absolute value of every shape.
    {fitted}

    Notes
    -----
    {privacy}

    References
    ----------
    docs/proofs/additive-models.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateAdditiveRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2))
    >>> y = np.abs(X[:, 0]) + 0.5 * X[:, 1]
    >>> model = PrivateAdditiveRegressor(epsilon=1.0, target_bounds=(-1, 2), feature_bounds=(-1, 1)).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> visits = rng.poisson(np.exp(1 + X[:, 0]))
    >>> model = PrivateAdditiveRegressor(
    ...     epsilon=1.0, target_bounds=(0, 20), feature_bounds=(-1, 1), loss="poisson"
    ... ).fit(X, visits)
    >>> factors = np.exp(model.shapes_["x0"]["value"])
    >>> bool(4 < factors[-1] / factors[0] < 10)
    True
    """

    target_bounds: tuple[float, float] | None = parameter(
        None,
        "(float, float)",
        "Lowest and highest target, declared from public knowledge; targets outside are clipped. None is those of the "
        "schema.",
    )
    loss: str = parameter(
        "squared",
        "str",
        '"squared", or "poisson" for counts: shapes then add to the logarithm of the predicted mean, so that their '
        "exponentials multiply it.",
    )
    least_mean: float | None = parameter(
        None,
        "float",
        "Of counts: the lowest mean that is ever predicted, greater than 0; None is a fiftieth of the highest target.",
    )

    def plan(self, n_samples: int, n_features: int | None = None) -> AdditivePlan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples : public number of rows; under "add-remove-one" an upper bound; with ``max_rows_per_group`` it counts
            places, the number of groups times that bound.
        n_features : number of columns, where there is no schema.
        """
        self._target_range()
        return self._calibrated(n_samples, self._public_columns(n_features), 1)

    def _target_range(self) -> tuple[float, float]:
        """Middle and half width of the declared bounds."""
        bounds = self.target_bounds
        if bounds is None and self.schema is not None and self.schema.target is not None:
            bounds = self.schema.target_bounds
        if bounds is None:
            raise ParameterError(
                "target_bounds",
                "must be declared: (lowest, highest) target that is possible, known without looking at the private "
                "data. Targets outside are clipped",
                FIND_BOUNDS,
            )
        low, high = _checks.interval("target_bounds", bounds)
        return low / 2 + high / 2, high / 2 - low / 2

    @property
    def _task(self) -> Task:  # type: ignore[override]
        """Whether targets are numbers or counts."""
        known = _checks.choice("loss", self.loss, ("squared", "poisson"))
        if known == "squared" and self.least_mean is not None:
            raise ParameterError(
                "least_mean",
                "has a meaning for counts only",
                Setting("loss", "poisson"),
                Setting("least_mean", None),
            )
        return "count" if known == "poisson" else "target"

    def _means(self, middle: float, half_width: float) -> tuple[float, float]:
        """Of counts, the mean predicted at raw prediction 0 and the largest absolute raw prediction."""
        least, most = range_of_means(middle, half_width, self.least_mean)
        return math.sqrt(least * most), math.log(most / least) / 2

    def _reach(self) -> float:
        return self._means(*self._target_range())[1] if self._task == "count" else super()._reach()

    def _checked(self, rows: Any, y: Any, strict: bool) -> NDArray[Any]:
        return checked_targets(self, rows, y, strict=strict)[1]

    def _targets(self, y: NDArray[Any]) -> tuple[Array, Mask, tuple[str, ...]]:
        self.target_range_ = self._target_range()
        middle, half_width = self.target_range_
        with np.errstate(all="ignore"):
            if self._task == "count":
                scaled = (
                    np.clip(y, middle - half_width, middle + half_width) / self._means(middle, half_width)[0]
                )
            else:
                scaled = np.clip((y - middle) / half_width, -1.0, 1.0)
        low, high = middle - half_width, middle + half_width
        fact = f"targets lie between {low:g} and {high:g}, or are clipped there (given by the user)"
        return np.where(np.isfinite(scaled), scaled, 0.0), ~np.isfinite(y), (fact,)

    def _planned(self, n_samples: int, columns: tuple[Column, ...]) -> AdditivePlan:
        return self._calibrated(n_samples, columns, 1)

    def _finished(self, release: AdditiveRelease, signs: Mapping[int, int]) -> AdditiveModel:
        model = super()._finished(release, signs)
        if self._task == "count":
            return model.scaled(1.0, math.log(self._means(*self.target_range_)[0]))
        middle, half_width = self.target_range_
        return model.scaled(half_width, middle)

    def _arrays(self, model: AdditiveModel) -> dict[str, NDArray[Any]]:
        return {**super()._arrays(model), "target_range": np.array(self.target_range_)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], privacy: PrivacyStatement, **parameters: Any) -> Self:
        """A fitted model from ``to_arrays()``, its ``privacy_`` and its constructor parameters."""
        model = super().from_arrays(arrays, privacy, **parameters)
        middle, half_width = np.asarray(arrays["target_range"]).tolist()
        model.target_range_ = middle, half_width
        return model

    def predict(self, X: Any) -> Array:
        """Predictions, within ``target_bounds``; of counts, means between ``least_mean`` and the highest target."""
        raw = self._raw(X)[:, 0]
        fitted = as_fitted(self)
        if fitted._task == "count":
            middle, reach = fitted._means(*self.target_range_)
            return np.asarray(middle * np.exp(np.clip(raw - math.log(middle), -reach, reach)))
        middle, half_width = self.target_range_
        return np.asarray(middle + np.clip(raw - middle, -half_width, half_width))
