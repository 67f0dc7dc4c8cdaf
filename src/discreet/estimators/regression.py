"""Private linear regressors with the scikit-learn interface; targets carry declared bounds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from discreet import _inputs
from discreet.estimators._regressor import PrivateLinearRegressor
from discreet.geometries import Geometry
from discreet.losses import HuberRegression, Loss, Quantile, Squared
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger


class PrivateRidge(PrivateLinearRegressor):
    """Ridge regression under differential privacy.

    Rows are clipped to ``feature_bound`` in L2 norm, the intercept's constant column included, and targets to
    ``target_bounds``. Scale columns by public constants, so that each spans about the same range.

    Parameters
    ----------
    epsilon : float, default 1.0
        Privacy budget of one fit, in nats. Smaller is more private.
    delta : float, default None
        Probability with which epsilon may be exceeded; None is 1 / n_samples**2.
    target_bounds : (float, float)
        Lowest and highest target, declared from public knowledge. Required.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Which data sets must be indistinguishable.
    feature_bound : float, default 1.0
        Largest L2 norm of a row, the intercept's 1 included; longer rows are shrunk onto it. A public choice.
    l2 : float, default None
        Ridge coefficient relative to the mean loss; regularization against the noise is added to it.
    fit_intercept : bool, default True
        Whether to add a constant column (regularized and perturbed like every other).
    constraint : set of `discreet.geometries`, default None
        Where the coefficients must lie, the intercept last, in units in which targets run from -1 to 1: ``coef_`` and
        ``intercept_`` less the middle of ``target_bounds``, both over half their width. "frank-wolfe",
        "mirror-descent", "noisy-gd", "objective" and "output" know sets.
    solver : str or solver object, default "statistics"
        "statistics" (noisy second moments), "noisy-gd" for many columns, "objective".
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
        Repeatability of optimizers; never of the privacy noise.

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
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
    >>> from discreet import PrivateRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0
    >>> bool(PrivateRidge(epsilon=1.0, feature_bound=1.4, target_bounds=(1, 5)).fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        fit_intercept: bool = True,
        constraint: Geometry | None = None,
        solver: str | base.Solver = "statistics",
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
        self.feature_bound = feature_bound
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.constraint = constraint
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        return Squared(prediction_bound=1.0, label_bound=1.0)


class PrivateLinearRegression(PrivateLinearRegressor):
    """Least squares under differential privacy: `PrivateRidge` with no regularization but that against the noise.

    Parameters
    ----------
    epsilon, delta, target_bounds, neighboring, feature_bound, fit_intercept, constraint, solver, ledger, bad_rows, \
n_samples, max_rows_per_group, random_state
        As for `PrivateRidge`.

    Privacy
    -------
    As for `PrivateRidge`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLinearRegression
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(50_000, 2))
    >>> model = PrivateLinearRegression(target_bounds=(-2, 2), feature_bound=1.3).fit(X, X @ [2.0, -1.0])
    >>> bool(abs(model.coef_ - [2.0, -1.0]).max() < 0.3)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        fit_intercept: bool = True,
        constraint: Geometry | None = None,
        solver: str | base.Solver = "statistics",
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
        self.feature_bound = feature_bound
        self.fit_intercept = fit_intercept
        self.constraint = constraint
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        return Squared(prediction_bound=1.0, label_bound=1.0)


class PrivateHuberRegressor(PrivateLinearRegressor):
    """Regression with the Huber loss, robust against outlying targets, under differential privacy.

    Parameters
    ----------
    huber_width : float, default None
        Residual, in the unit of the targets, beyond which the loss grows linearly; None is a tenth of the range of
        the targets. Smaller is more robust and needs less noise.
    solver : str or solver object, default "objective"
        "objective", "noisy-gd" or "output".
    epsilon, delta, target_bounds, neighboring, feature_bound, l2, fit_intercept, constraint, ledger, bad_rows, \
n_samples, max_rows_per_group, random_state
        As for `PrivateRidge`.

    Privacy
    -------
    As for `PrivateRidge`.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        huber_width: float | None = None,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        fit_intercept: bool = True,
        constraint: Geometry | None = None,
        solver: str | base.Solver = "objective",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.huber_width = huber_width
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.constraint = constraint
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        if self.huber_width is None:
            return HuberRegression(0.2)
        return HuberRegression(_inputs.real("huber_width", self.huber_width, above=0) / half_width)


class PrivateQuantileRegressor(PrivateLinearRegressor):
    """Regression of a quantile of the targets (pinball loss, rounded at its corner) under differential privacy.

    Parameters
    ----------
    quantile : float, default 0.5
        Between 0 and 1; 0.5 is the median.
    solver : str or solver object, default "noisy-gd"
        "noisy-gd"; "objective" works but needs much regularization, because the corner is sharp.
    epsilon, delta, target_bounds, neighboring, feature_bound, l2, fit_intercept, constraint, ledger, bad_rows, \
n_samples, max_rows_per_group, random_state
        As for `PrivateRidge`.

    Privacy
    -------
    As for `PrivateRidge`.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        quantile: float = 0.5,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        fit_intercept: bool = True,
        constraint: Geometry | None = None,
        solver: str | base.Solver = "noisy-gd",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.quantile = quantile
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.constraint = constraint
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        return Quantile(_inputs.real("quantile", self.quantile), width=0.01)
