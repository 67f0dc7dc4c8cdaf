"""Private mixtures: models with nonnegative weights that add up to a public total.

Each column is an expert: a forecast of the target, or a vote for a class. The private model is a weighted average of
experts, and the noise grows with the logarithm of their number (Jain and Thakurta, 2014, section 5).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.estimators.classifiers import LogOddsClassifier
from discreet.estimators.linear import EntrywiseModel, Task
from discreet.estimators.parameters import entry_bound, estimator, parameter
from discreet.estimators.regressors import PrivateLinearRegressor
from discreet.losses import Logistic, Loss, Squared
from discreet.problem import Problem
from discreet.records.open import Targets
from discreet.sets import Simplex
from discreet.solvers import base

_RADII = (1e-2, 1e3)


@estimator
class _OverSimplex(EntrywiseModel):
    """Shared by both estimators: a simplex, a certificate, no intercept."""

    fit_intercept = False
    solver: str | base.Solver = parameter(
        "simplex-sampling",
        "str or solver object",
        '"simplex-sampling", "frank-wolfe" or "mirror-descent"; ``SimplexSampling(n_draws=...)`` chooses '
        "the number of draws.",
    )

    def _size(self) -> float:
        """Sum of the weights in the solver's units, in which features lie between -1 and 1."""
        return 1.0

    def _problem(self, task: Task, n_samples: int, n_columns: int) -> Problem:
        free = super()._problem(task, n_samples, n_columns)
        return dataclasses.replace(free, geometry=Simplex(self._size(), free.n_features))

    def _stated_bounds(self, problem: Problem) -> dict[str, float | str]:
        return {
            "half width of the range of features": self._feature_scale(),
            "sum of the weights (features scaled to [-1, 1])": self._size(),
        }


@estimator
class PrivateSimplexRegressor(_OverSimplex, PrivateLinearRegressor):
    """Weighted average of forecasts under differential privacy.

    minimize mean (sum_j coef_j x_j - y)^2 / 2 over weights coef_j >= 0 that sum to 1. Every column of X is a forecast
    of y, in the unit of y; both are clipped to ``target_bounds``.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : released weights of clipped forecasts; multiples of 1 / m after m draws.
    intercept_ : 0.
    certificate_ : bound on the excess empirical risk over all mixtures, for targets scaled to [-1, 1];
        ``plan(n, p).certificate``, available before fitting, may be larger.
    {fitted}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateSimplexRegressor
    >>> rng = np.random.default_rng(0)
    >>> y = rng.uniform(0, 10, size=20_000)
    >>> forecasts = np.column_stack([y + 1, y - 1, *rng.uniform(0, 10, size=(98, 20_000))])
    >>> model = PrivateSimplexRegressor(epsilon=8.0, target_bounds=(0, 10)).fit(forecasts, y)
    >>> round(float(model.coef_.sum()), 9), bool(model.score(forecasts, y) > 0.5)
    (1.0, True)
    """

    def _feature_scale(self) -> float:
        return self._target_range()[1]  # forecasts are centered first

    def _loss(self, half_width: float) -> Loss:
        # Slightly larger, because rounding may move iterates out of the simplex; inside, the loss is exactly squared.
        return Squared(prediction_bound=1 + 1e-9, label_bound=1.0)

    def _read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        rows, targets = super()._read(X, y)
        return self._dense(rows), targets

    def _dense(self, rows: Any) -> Any:
        """Return the rows; refuse sparse rows unless centered at 0, because centering would fill them."""
        middle, _ = self._target_range()
        if sp.issparse(rows) and middle != 0:
            raise ParameterError(
                "X",
                "is sparse, and centering forecasts at the middle of target_bounds would fill it",
                "pass a dense X, or target_bounds that are symmetric about 0",
            )
        return rows

    def _clip(self, n_columns: int) -> Callable[[Any], Any]:
        middle, _ = self._target_range()
        return partial(_clip_around, middle, self._bounds(n_columns).clip)

    def _attributes(self, theta: Array, targets: Targets, problem: Problem) -> dict[str, Any]:
        return {"coef_": theta[0].copy(), "intercept_": 0.0}

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        """Return averages of clipped forecasts, minus the middle of the range."""
        return np.asarray(self._clip(rows.shape[1])(self._dense(rows)) @ coef * self._feature_scale())


def _clip_around(middle: float, clip: Callable[[Any], Any], rows: Any) -> Any:
    # In float64, like the clipping that follows: one cell that is not a number may change the dtype of all others.
    return clip(rows if middle == 0 else np.subtract(rows, middle, dtype=np.float64))


@estimator
class PrivateSimplexClassifier(_OverSimplex, LogOddsClassifier):
    """Weighted vote of experts under differential privacy.

    minimize the mean logistic loss of log-odds sum_j coef_j x_j over weights coef_j >= 0 with feature_bound sum_j
    coef_j = radius; more than two classes are fitted one-vs-rest, within one epsilon. Weights are nonnegative, so
    a column cannot count against a class. To allow that, append the negated column.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, classes_, privacy_ : as for `PrivateLogisticRegression`.
    intercept_ : zeros.
    certificate_ : bound on the excess empirical risk over all mixtures (of each model if there are several).

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateSimplexClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], size=(20_000, 200))
    >>> model = PrivateSimplexClassifier(epsilon=8.0, classes=[-1, 1]).fit(X, X[:, 3])
    >>> bool(model.score(X, X[:, 3]) > 0.9)
    True
    """

    feature_bound: float = entry_bound()
    radius: float = parameter(5.0, "float", "The largest log-odds that a prediction can have.")

    def _size(self) -> float:
        radius, (low, high) = _checks.real("radius", self.radius, above=0), _RADII
        if not low <= radius <= high:
            raise ParameterError("radius", f"must lie between {low:g} and {high:g}, got {radius!r}")
        return radius

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        return Logistic(), 1 if n_classes == 2 else n_classes
