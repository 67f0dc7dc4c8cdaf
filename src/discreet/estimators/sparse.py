"""Private models with few large coefficients: least squares and logistic regression over an L1 ball.

Entries of the features, not norms of rows, are bounded, and coefficients stay in an L1 ball: then the price of privacy
grows with the logarithm of the number of columns (Talwar, Thakurta and Zhang, 2015).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import _inputs
from discreet.box_bounds import BoxBounds
from discreet.estimators import _fit
from discreet.estimators._classifier import LogOddsClassifier
from discreet.estimators._model import Array, PrivateLinearModel
from discreet.estimators._regressor import PrivateLinearRegressor
from discreet.geometries import L1Ball
from discreet.losses import Logistic, Loss, Squared
from discreet.problem import Problem
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement

_SIZES = (1e-3, 1e4)  # of the L1 ball, in units of the label or of the log-odds


class _OverL1Ball(PrivateLinearModel):
    """What both estimators share: entrywise bounds, an L1 ball, a certificate."""

    feature_bound: float
    fit_intercept: bool

    def _label_scale(self) -> float:
        """What one unit of the solver's predictions is worth, in units of ``l1_radius``."""
        return 1.0

    def _size(self) -> float:
        """Size of the L1 ball in the solver's units."""
        if self.l1_radius is None:
            return 1.0
        size = _inputs.real("l1_radius", self.l1_radius, above=0) / self._label_scale()
        low, high = _SIZES
        if not low <= size <= high:
            raise ValueError(
                f"l1_radius must lie between {low:g} and {high:g} times the scale of the labels, got {size:g} times; a "
                "larger ball needs more noise, a smaller one holds hardly more than the constant model"
            )
        return size

    def _bounds(self, n_columns: int) -> BoxBounds:
        bound = _inputs.real("feature_bound", self.feature_bound, above=0)
        return BoxBounds.of(n_columns, bound, bool(self.fit_intercept))

    def _clip(self, n_columns: int) -> Callable[[Any], Any]:
        return self._bounds(n_columns).clip

    def _problem(
        self, loss: Loss, n_samples: int, n_columns: int, n_models: int, label_bound: float | None
    ) -> Problem:
        free = super()._problem(loss, n_samples, n_columns, n_models, label_bound)
        return dataclasses.replace(free, geometry=L1Ball(self._size(), free.n_features))

    def _split(self, weights: Array) -> tuple[Array, Array]:
        coef, intercept = super()._split(weights)
        return coef / self.feature_bound, intercept

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        return np.asarray(self._clip(rows.shape[1])(rows) @ (coef * self.feature_bound).T + intercept)

    def _state(
        self, plan: base.Plan, release: base.Release, assumptions: tuple[str, ...]
    ) -> PrivacyStatement:
        """The statement with the bounds that matter here."""
        statement = _fit.state(plan, release, assumptions)
        bounds: dict[str, float | str] = {
            "largest absolute feature": float(self.feature_bound),
            "L1 ball (features scaled to [-1, 1])": self._size(),
        }
        bounds |= {name: value for name, value in statement.bounds.items() if not name.startswith("row norm")}
        return dataclasses.replace(statement, bounds=bounds)


class PrivateLasso(_OverL1Ball, PrivateLinearRegressor):
    """Least squares over an L1 ball under differential privacy: the private LASSO.

    minimize mean (prediction - y)^2 / 2 over sum_j feature_bound |coef_j| + |intercept - middle of target_bounds| <=
    l1_radius. With the default solver a fit of T steps has at most T coefficients that are not 0.

    Parameters
    ----------
    epsilon : float, default 1.0
        Privacy budget of one fit, in nats. Smaller is more private.
    delta : float, default None
        Probability with which epsilon may be exceeded; None is 1 / n_samples**2, 0 is possible.
    target_bounds : (float, float)
        Lowest and highest target, declared from public knowledge. Required.
    l1_radius : float, default None
        How far predictions may reach from the middle of ``target_bounds``; None is half the width of the bounds.
    feature_bound : float, default 1.0
        Largest absolute entry of X; entries beyond are clipped, on both sides. A public choice.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Which data sets must be indistinguishable.
    fit_intercept : bool, default True
        Whether to add a constant column, inside the L1 ball.
    solver : str or solver object, default "frank-wolfe"
        "frank-wolfe" or "mirror-descent"; ``FrankWolfe(n_iterations=...)`` to choose the number of steps.
    ledger : Ledger or path, default None
        Budget from which every fit is charged before it runs.
    bad_rows : {"error", "null"}
        What to do with rows or targets that are not finite.
    n_samples : int, default None
        Public upper bound on the number of rows, needed only under "add-remove-one".
    max_rows_per_group : int, default None
        With ``fit(X, y, groups=...)``: how many rows of one group are used at most. The promise is then about all rows
        of a group, and the number of groups is public instead of the number of rows. A public choice.
    random_state : None, int or SeedSequence
        Accepted for compatibility; nothing here is random but the privacy noise.

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped features.
    certificate_ : bound on the excess empirical risk over the ball, of targets scaled to [-1, 1]; that of
        ``plan(n, p).certificate``, available before fitting, may be larger.
    privacy_ : the `PrivacyStatement`; print it.
    fitted_parameters_ : the parameters of the fit, which predictions and files go by; others wait for the next fit.

    Privacy
    -------
    (epsilon, delta)-DP of ``coef_`` and ``intercept_`` under the stated relation; unit: one row, or one group of
    rows. Not covered: the time a fit takes, and anything published from private rows other than through the
    released coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], size=(20_000, 500))
    >>> y = 3.0 * X[:, 0] - 1.0 * X[:, 1]
    >>> model = PrivateLasso(epsilon=1.0, target_bounds=(-4, 4)).fit(X, y)
    >>> int(np.abs(model.coef_).argmax()), bool(model.score(X, y) > 0.5)
    (0, True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        l1_radius: float | None = None,
        feature_bound: float = 1.0,
        neighboring: str = "replace-one",
        fit_intercept: bool = True,
        solver: str | base.Solver = "frank-wolfe",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.l1_radius = l1_radius
        self.feature_bound = feature_bound
        self.neighboring = neighboring
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _label_scale(self) -> float:
        return self._target_range()[1]

    def _loss(self, half_width: float) -> Loss:
        # A little room for iterates that leave the ball by an ulp: inside, the loss is exactly the squared one.
        return Squared(prediction_bound=self._size() * (1 + 1e-9), label_bound=1.0)


class PrivateSparseLogisticRegression(_OverL1Ball, LogOddsClassifier):
    """Logistic regression over an L1 ball under differential privacy.

    minimize the mean logistic loss over sum_j feature_bound |coef_j| + |intercept| <= l1_radius; more than two classes
    are fitted one-vs-rest, priced together.

    Parameters
    ----------
    epsilon, delta, neighboring, feature_bound, fit_intercept, solver, ledger, bad_rows, n_samples, \
max_rows_per_group, random_state
        As for `PrivateLasso`.
    l1_radius : float, default 5.0
        Size of the ball: the largest log-odds that a prediction can have.
    classes : list, default None
        The public label set. If None it is read from the data, with a warning and a note in the statement.

    Attributes
    ----------
    coef_, intercept_, classes_, privacy_ : as for `PrivateLogisticRegression`.
    certificate_ : bound on the excess empirical risk over the ball (of the worst model where there are several).

    Privacy
    -------
    As for `PrivateLasso`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateSparseLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], size=(20_000, 500))
    >>> model = PrivateSparseLogisticRegression(epsilon=1.0, classes=[-1, 1]).fit(X, X[:, 3])
    >>> bool(model.score(X, X[:, 3]) > 0.9)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        l1_radius: float = 5.0,
        feature_bound: float = 1.0,
        neighboring: str = "replace-one",
        classes: Any = None,
        fit_intercept: bool = True,
        solver: str | base.Solver = "frank-wolfe",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.l1_radius = l1_radius
        self.feature_bound = feature_bound
        self.neighboring = neighboring
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        return Logistic(), 1 if n_classes == 2 else n_classes
