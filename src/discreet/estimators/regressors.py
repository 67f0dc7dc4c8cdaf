"""Private linear regressors with the scikit-learn interface; targets carry declared bounds.

A subclass names its loss for targets scaled to [-1, 1]. Poisson regression has a logarithmic link instead.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.estimators.linear import PrivateLinearModel, Task, as_fitted
from discreet.estimators.parameters import (
    RegressorParameters,
    coefficient_set,
    estimator,
    intercept,
    norm_bound,
    parameter,
    ridge,
    solver_choice,
)
from discreet.losses import HuberRegression, Loss, Poisson, Quantile, Squared
from discreet.problem import Problem
from discreet.records.open import Targets, checked_targets
from discreet.sets import Geometry
from discreet.solvers import base

FIND_BOUNDS = "if nobody knows them, discreet.private_domains finds bounds of a column, for a stated epsilon"


class PrivateLinearRegressor(RegressorMixin, RegressorParameters, PrivateLinearModel):  # type: ignore[misc]
    """Base class of linear regressors: scales targets by their declared bounds."""

    coef_: Array
    intercept_: float

    def _loss(self, half_width: float) -> Loss:
        raise NotImplementedError

    def _bounds_of_targets(self) -> tuple[float, float]:
        """Return the declared bounds."""
        if self.target_bounds is None:
            raise ParameterError(
                "target_bounds",
                "must be declared: (lowest, highest) target that is possible, known without looking at the private "
                "data. Targets outside are clipped",
                FIND_BOUNDS,
            )
        return _checks.interval("target_bounds", self.target_bounds)

    def _target_range(self) -> tuple[float, float]:
        """Return the middle and half width of the declared bounds."""
        low, high = self._bounds_of_targets()
        return low / 2 + high / 2, high / 2 - low / 2

    def _read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        rows, y = checked_targets(self, X, y, strict=self.bad_rows == "error")
        low, high = self._bounds_of_targets()
        with np.errstate(all="ignore"):
            scaled = self._scaled(y)
        fact = f"targets lie between {low:g} and {high:g}, or are clipped there (given by the user)"
        return rows, Targets(np.where(np.isfinite(scaled), scaled, 0.0), ~np.isfinite(y), (fact,))

    def _scaled(self, y: Array) -> Array:
        """Return targets in the units of the loss: (y - middle) / half_width, clipped to [-1, 1]."""
        middle, half_width = self._target_range()
        return cast(Array, np.clip((y - middle) / half_width, -1.0, 1.0))

    def _task(self, solver: base.Solver, n_columns: int, n_classes: int | None) -> Task:
        return Task(solver, self._loss(self._target_range()[1]), label_bound=1.0)

    def _attributes(self, theta: Array, targets: Targets, problem: Problem) -> dict[str, Any]:
        middle, half_width = self._target_range()
        coef, intercept = self._split(half_width * theta[0])
        return {"coef_": coef, "intercept_": float(intercept) + middle}

    def predict(self, X: ArrayLike) -> Array:
        """Return predictions within ``target_bounds``, for rows clipped to ``feature_bound``."""
        check_is_fitted(self)
        fitted = as_fitted(self)
        middle, half_width = fitted._target_range()
        raw = fitted._raw(self._rows(X), self.coef_, self.intercept_ - middle)
        return np.asarray(middle + np.clip(raw, -half_width, half_width))


TARGET_UNITS = (
    "Units in which targets run from -1 to 1: ``coef_`` and ``intercept_`` less the middle of ``target_bounds``, both "
    "over half their width."
)


@estimator
class PrivateRidge(PrivateLinearRegressor):
    """Ridge regression under differential privacy.

    Rows are clipped to ``feature_bound`` in L2 norm, the intercept's constant column included, and targets to
    ``target_bounds``. Scale columns by public constants, so that each spans about the same range.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
    {fitted}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0
    >>> bool(PrivateRidge(epsilon=1.0, feature_bound=1.4, target_bounds=(1, 5)).fit(X, y).score(X, y) > 0.9)
    True
    """

    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    constraint: Geometry | None = coefficient_set(TARGET_UNITS)
    solver: str | base.Solver = solver_choice("newton", "statistics", "noisy-gd", "objective")

    def _loss(self, half_width: float) -> Loss:
        return Squared(prediction_bound=1.0, label_bound=1.0)


@estimator
class PrivateLinearRegression(PrivateLinearRegressor):
    """Least squares under differential privacy: `PrivateRidge` with no regularization but that against the noise.

    Parameters
    ----------
    {parameters}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLinearRegression
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(50_000, 2))
    >>> model = PrivateLinearRegression(target_bounds=(-2, 2), feature_bound=1.3).fit(X, X @ [2.0, -1.0])
    >>> bool(abs(model.coef_ - [2.0, -1.0]).max() < 0.3)
    True
    """

    feature_bound: float = norm_bound()
    fit_intercept: bool = intercept()
    constraint: Geometry | None = coefficient_set(TARGET_UNITS)
    solver: str | base.Solver = solver_choice("newton", "statistics", "noisy-gd", "objective")

    def _loss(self, half_width: float) -> Loss:
        return Squared(prediction_bound=1.0, label_bound=1.0)


@estimator
class PrivateHuberRegressor(PrivateLinearRegressor):
    """Regression with the Huber loss, robust against outlying targets, under differential privacy.

    Parameters
    ----------
    {parameters}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateHuberRegressor
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(50_000, 2))
    >>> y = X @ [2.0, -1.0]
    >>> y[::20] = 3.0
    >>> model = PrivateHuberRegressor(target_bounds=(-3, 3), feature_bound=1.3).fit(X, y)
    >>> bool(abs(model.coef_ - [2.0, -1.0]).max() < 0.5)
    True
    """

    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    constraint: Geometry | None = coefficient_set(TARGET_UNITS)
    huber_width: float | None = parameter(
        None,
        "float",
        "Residual, in the unit of the targets, beyond which the loss grows linearly; None is a tenth of the range of "
        "the targets. Smaller is more robust and needs less noise.",
    )
    solver: str | base.Solver = solver_choice("newton", "objective", "noisy-gd", "output")

    def _loss(self, half_width: float) -> Loss:
        if self.huber_width is None:
            return HuberRegression(0.2)
        return HuberRegression(_checks.real("huber_width", self.huber_width, above=0) / half_width)


@estimator
class PrivateQuantileRegressor(PrivateLinearRegressor):
    """Regression of a quantile of the targets (pinball loss, rounded at its corner) under differential privacy.

    The corner is rounded over a hundredth of half the range of the targets, and over a tenth where ``delta`` is 0.

    Parameters
    ----------
    {parameters}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
    >>> y = X @ [2.0, -1.0] + rng.uniform(-1, 1, size=20_000)
    >>> model = PrivateQuantileRegressor(target_bounds=(-3, 3), feature_bound=1.3, quantile=0.8).fit(X, y)
    >>> bool(abs(np.mean(y < model.predict(X)) - 0.8) < 0.05)
    True
    """

    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    constraint: Geometry | None = coefficient_set(TARGET_UNITS)
    quantile: float = parameter(0.5, "float", "Between 0 and 1; 0.5 is the median.")
    solver: str | base.Solver = solver_choice("newton", "noisy-gd", "objective")

    def _loss(self, half_width: float) -> Loss:
        # Without delta a sharp corner needs a large ridge (benchmarks/pure.py).
        return Quantile(_checks.real("quantile", self.quantile), width=0.1 if self.delta == 0 else 0.01)


_RANGE = 50.0  # highest over lowest predicted mean, unless the user says otherwise


@estimator
class PrivatePoissonRegressor(PrivateLinearRegressor):
    """Poisson regression under differential privacy: the mean of a count is the exponential of a score.

    An unbounded exponential has no bounded gradient. So predicted means are kept between ``least_mean`` and the highest
    target: beyond, the loss continues along its tangent, and predictions are clipped.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : released coefficients of the logarithm of the mean, for clipped rows.
    {fitted}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivatePoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(50_000, 2))
    >>> y = rng.poisson(np.exp(1.0 + X @ [1.0, -0.5]))
    >>> model = PrivatePoissonRegressor(target_bounds=(0, 20), feature_bound=1.7).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5]).max() < 0.3)
    True
    """

    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    least_mean: float | None = parameter(
        None,
        "float",
        "Lowest predicted mean, greater than 0; None is a fiftieth of the highest target. The wider "
        "the range of means, the more noise.",
    )
    solver: str | base.Solver = solver_choice("newton", "objective", "noisy-gd", "output")

    def _means(self) -> tuple[float, float]:
        """Return the lowest and the highest predicted mean."""
        return range_of_means(*self._target_range(), self.least_mean)

    def _middle(self) -> tuple[float, float]:
        """Return the mean predicted at raw prediction 0, and the largest raw prediction."""
        low, high = self._means()
        return math.sqrt(low * high), math.log(high / low) / 2

    def _loss(self, half_width: float) -> Loss:
        middle, reach = self._middle()
        return Poisson(prediction_bound=reach, label_bound=self._means()[1] / middle * (1 + 1e-12))

    def _scaled(self, y: Array) -> Array:
        """Return counts in units of the mean at raw prediction 0."""
        middle, half_width = self._target_range()
        return np.clip(y, middle - half_width, middle + half_width) / self._middle()[0]

    def _attributes(self, theta: Array, targets: Targets, problem: Problem) -> dict[str, Any]:
        coef, intercept = self._split(theta[0])
        return {"coef_": coef, "intercept_": float(intercept) + math.log(self._middle()[0])}

    def predict(self, X: ArrayLike) -> Array:
        """Return means between ``least_mean`` and the highest target, for rows clipped to ``feature_bound``."""
        check_is_fitted(self)
        fitted = as_fitted(self)
        middle, reach = fitted._middle()
        raw = fitted._raw(self._rows(X), self.coef_, self.intercept_ - math.log(middle))
        return np.asarray(middle * np.exp(np.clip(raw, -reach, reach)))


def range_of_means(middle: float, half_width: float, least_mean: float | None) -> tuple[float, float]:
    """Return the lowest and highest mean that is predicted of counts between these bounds."""
    low, high = middle - half_width, middle + half_width
    if low < 0:
        raise ParameterError(
            "target_bounds", f"must not lie below 0, where there are no counts, got ({low:g}, {high:g})"
        )
    if least_mean is None:
        return high / _RANGE, high
    least = _checks.real("least_mean", least_mean, above=0)
    if not least < high:
        raise ParameterError("least_mean", f"must lie below the highest target {high:g}, got {least!r}")
    return least, high
