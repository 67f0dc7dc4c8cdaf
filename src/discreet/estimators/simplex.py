"""Private mixtures: models whose weights are at least 0 and add up to a public total.

Each column is an expert: a forecast of the target, or a vote for a class. The private model is a weighted average of
experts, and its price grows with the logarithm of their number (Jain and Thakurta, 2014, section 5).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from discreet import _inputs
from discreet.box_bounds import BoxBounds
from discreet.estimators import _fit
from discreet.estimators._classifier import LogOddsClassifier
from discreet.estimators._model import Array, PrivateLinearModel
from discreet.estimators._regressor import PrivateLinearRegressor, ScaledTargets
from discreet.geometries import Simplex
from discreet.losses import Logistic, Loss, Squared
from discreet.problem import Problem
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement

_RADII = (1e-2, 1e3)


class _OverSimplex(PrivateLinearModel):
    """What both estimators share: entrywise bounds, a simplex, a certificate; no intercept."""

    fit_intercept = False

    def _size(self) -> float:
        """Sum of the weights in the solver's units, in which features lie between -1 and 1."""
        return 1.0

    def _feature_scale(self) -> float:
        """Half the width of the range of a feature."""
        raise NotImplementedError

    def _bounds(self, n_columns: int) -> BoxBounds:
        return BoxBounds.of(n_columns, self._feature_scale(), intercept=False)

    def _clip(self, n_columns: int) -> Callable[[Any], Any]:
        return self._bounds(n_columns).clip

    def _problem(
        self, loss: Loss, n_samples: int, n_columns: int, n_models: int, label_bound: float | None
    ) -> Problem:
        free = super()._problem(loss, n_samples, n_columns, n_models, label_bound)
        return dataclasses.replace(free, geometry=Simplex(self._size(), free.n_features))

    def _state(
        self, plan: base.Plan, release: base.Release, assumptions: tuple[str, ...]
    ) -> PrivacyStatement:
        """The statement with the bounds that matter here."""
        statement = _fit.state(plan, release, assumptions)
        bounds = {name: value for name, value in statement.bounds.items() if not name.startswith("row norm")}
        bounds["half width of the range of features"] = self._feature_scale()
        bounds["sum of the weights (features scaled to [-1, 1])"] = self._size()
        return dataclasses.replace(statement, bounds=bounds)


class PrivateSimplexRegressor(_OverSimplex, PrivateLinearRegressor):
    """The best weighted average of forecasts under differential privacy.

    minimize mean (sum_j coef_j x_j - y)^2 / 2 over weights coef_j >= 0 that sum to 1. Every column of X is a forecast
    of y, in the unit of y; both are clipped to ``target_bounds``.

    Parameters
    ----------
    epsilon : float, default 1.0
        Privacy budget of one fit, in nats. Smaller is more private.
    delta : float, default None
        Probability with which epsilon may be exceeded; None is 1 / n_samples**2, 0 is possible.
    target_bounds : (float, float)
        Lowest and highest target and forecast, declared from public knowledge. Required.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Which data sets must be indistinguishable.
    solver : str or solver object, default "simplex-sampling"
        "simplex-sampling", "frank-wolfe" or "mirror-descent"; ``SimplexSampling(n_draws=...)`` to choose the number of
        draws.
    ledger : Ledger or path, default None
        Budget from which every fit is charged before it runs.
    bad_rows : {"error", "null"}
        What to do with rows or targets that are not finite.
    n_samples : int, default None
        Public upper bound on the number of rows, needed only under "add-remove-one".
    max_rows_per_group : int, default None
        With ``fit(X, y, groups=...)``: how many rows of one group are used at most; the promise is then about all rows
        of a group. A public choice.
    random_state : None, int or SeedSequence
        Accepted for compatibility; nothing here is random but the privacy noise.

    Attributes
    ----------
    coef_ : released weights of clipped forecasts; multiples of 1 / m after m draws.
    intercept_ : 0.
    certificate_ : bound on the excess empirical risk over all mixtures, of targets scaled to [-1, 1]; that of
        ``plan(n, p).certificate``, available before fitting, may be larger.
    privacy_ : the `PrivacyStatement`; print it.
    fitted_parameters_ : the parameters of the fit, which predictions and files go by; others wait for the next fit.

    Privacy
    -------
    (epsilon, delta)-DP of ``coef_`` under the stated relation; unit: one row. Not covered: the time a fit takes, and
    anything published from private rows other than through the released weights.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        neighboring: str = "replace-one",
        solver: str | base.Solver = "simplex-sampling",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.neighboring = neighboring
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _feature_scale(self) -> float:
        return self._target_range()[1]

    def _loss(self, half_width: float) -> Loss:
        # A little room for iterates that leave the simplex by an ulp: inside, the loss is exactly the squared one.
        return Squared(prediction_bound=1 + 1e-9, label_bound=1.0)

    def _checked(self, X: Any, y: Any, strict: bool) -> tuple[Any, Any]:
        rows, targets = super()._checked(X, y, strict)
        self._target_range()
        return self._dense(rows), targets

    def _dense(self, rows: Any) -> Any:
        """Centering fills a sparse matrix, unless it is centered already."""
        middle, _ = self._target_range()
        if sp.issparse(rows) and middle != 0:
            raise ValueError(
                "X is sparse, and centering forecasts at the middle of target_bounds would fill it; pass a dense X, "
                "or target_bounds that are symmetric about 0"
            )
        return rows

    def _clip(self, n_columns: int) -> Callable[[Any], Any]:
        middle, _ = self._target_range()
        return partial(_clip_around, middle, super()._clip(n_columns))

    def _publish(self, theta: Array, targets: ScaledTargets, problem: Problem) -> None:
        self.coef_, self.intercept_ = theta[0].copy(), 0.0

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        """Averages of clipped forecasts, less the middle of the range."""
        return np.asarray(self._clip(rows.shape[1])(self._dense(rows)) @ coef * self._feature_scale())


def _clip_around(middle: float, clip: Callable[[Any], Any], rows: Any) -> Any:
    # In float64 as the cut that follows: one cell that is no number may decide the type of all others.
    return clip(rows if middle == 0 else np.subtract(rows, middle, dtype=np.float64))


class PrivateSimplexClassifier(_OverSimplex, LogOddsClassifier):
    """The best weighted vote of experts under differential privacy.

    minimize the mean logistic loss of log-odds sum_j coef_j x_j over weights coef_j >= 0 with feature_bound sum_j
    coef_j = radius; more than two classes are fitted one-vs-rest, priced together. A column that speaks against a
    class has no weight for it: append its negative if it may count.

    Parameters
    ----------
    epsilon, delta, neighboring, solver, ledger, bad_rows, n_samples, \
max_rows_per_group, random_state
        As for `PrivateSimplexRegressor`.
    radius : float, default 5.0
        The largest log-odds that a prediction can have.
    feature_bound : float, default 1.0
        Largest absolute entry of X; entries beyond are clipped, on both sides. A public choice.
    classes : list, default None
        The public label set. If None it is read from the data, with a warning and a note in the statement.

    Attributes
    ----------
    coef_, classes_, privacy_ : as for `PrivateLogisticRegression`.
    intercept_ : zeros.
    certificate_ : bound on the excess empirical risk over all mixtures (of each model where there are several).

    Privacy
    -------
    As for `PrivateSimplexRegressor`.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        radius: float = 5.0,
        feature_bound: float = 1.0,
        neighboring: str = "replace-one",
        classes: Any = None,
        solver: str | base.Solver = "simplex-sampling",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.feature_bound = feature_bound
        self.neighboring = neighboring
        self.classes = classes
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _size(self) -> float:
        radius, (low, high) = _inputs.real("radius", self.radius, above=0), _RADII
        if not low <= radius <= high:
            raise ValueError(f"radius must lie between {low:g} and {high:g}, got {radius!r}")
        return radius

    def _feature_scale(self) -> float:
        return _inputs.real("feature_bound", self.feature_bound, above=0)

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        return Logistic(), 1 if n_classes == 2 else n_classes

    def _split(self, weights: Array) -> tuple[Array, Array]:
        return weights / self._feature_scale(), np.zeros(weights.shape[:-1])

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        return np.asarray(self._clip(rows.shape[1])(rows) @ (coef * self._feature_scale()).T + intercept)
