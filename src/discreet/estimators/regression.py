"""Private linear regressors with the scikit-learn interface; targets carry declared bounds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet import _inputs
from discreet.bounds import Bounds
from discreet.estimators import _fit
from discreet.losses import HuberRegression, Loss, Quantile, Squared
from discreet.privacy.guarantee import Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement

Array = NDArray[np.float64]


class _PrivateLinearRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """What all private linear regressors share; subclasses name the loss of targets scaled to [-1, 1]."""

    coef_: Array
    intercept_: float
    privacy_: PrivacyStatement

    def _loss(self, half_width: float) -> Loss:
        raise NotImplementedError

    def _target_range(self) -> tuple[float, float]:
        """Middle and half width of the declared bounds."""
        if self.target_bounds is None:
            raise ValueError(
                "target_bounds must be declared: (lowest, highest) target that is possible, known without looking at "
                "the private data; targets outside are clipped"
            )
        values = tuple(self.target_bounds) if np.iterable(self.target_bounds) else ()
        if len(values) != 2:
            raise ValueError(
                f"target_bounds must be two numbers (lowest, highest), got {self.target_bounds!r}"
            )
        low, high = (_inputs.real("target_bounds", value) for value in values)
        if not low < high:
            raise ValueError(
                f"target_bounds must be (lowest, highest) with lowest < highest, got {(low, high)}"
            )
        return low / 2 + high / 2, high / 2 - low / 2

    def plan(self, n_samples: int, n_features: int) -> base.Plan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the training data.
        """
        _inputs.count("n_features", n_features)
        guarantee, size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        bounds = Bounds(_inputs.real("feature_bound", self.feature_bound, above=0), bool(self.fit_intercept))
        l2 = getattr(self, "l2", None)
        l2 = None if l2 is None else _inputs.real("l2", l2, above=0)
        loss = self._loss(self._target_range()[1])
        problem = Problem(loss, bounds, size, n_features + bounds.intercept, l2=l2, label_bound=1.0)
        return base.resolve(self.solver).plan(problem, guarantee)

    def fit(self, X: ArrayLike, y: ArrayLike) -> _PrivateLinearRegressor:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features).
        y : targets, one per row; clipped to ``target_bounds``.
        """
        bad_rows = _inputs.choice("bad_rows", self.bad_rows, ("error", "null"))
        _inputs.seed(self.random_state)
        strict = bad_rows == "error"
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", ensure_all_finite=strict
        )
        targets = np.asarray(y, dtype=np.float64)
        if targets.ndim != 1 or len(targets) != rows.shape[0]:
            raise ValueError(
                f"y must hold one target per row: {rows.shape[0]} rows, y of shape {targets.shape}"
            )
        if strict and not np.all(np.isfinite(targets)):
            raise ValueError("y holds targets that are not finite; correct them, or pass bad_rows='null'")
        middle, half_width = self._target_range()
        _, size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, rows.shape[0], self.n_samples)
        plan = self.plan(size, rows.shape[1])
        nulls = ~plan.problem.bounds.valid_rows(rows) | ~np.isfinite(targets) if not strict else None
        with np.errstate(all="ignore"):
            scaled = np.clip((targets - middle) / half_width, -1.0, 1.0)
        records = ArrayRecords(rows, np.where(np.isfinite(scaled), scaled, 0.0), plan.problem.bounds, nulls)
        _fit.charge(self.ledger, plan, label=type(self).__name__)
        release = _fit.run(plan, [records])
        self._publish(release.theta[0], middle, half_width)
        self.privacy_ = _fit.state(plan, release, self._assumptions(size))
        return self

    def _publish(self, theta: Array, middle: float, half_width: float) -> None:
        """Coefficients of the targets as given, from released numbers and public facts only."""
        weights = half_width * theta
        if self.fit_intercept:
            self.coef_, self.intercept_ = weights[:-1].copy(), float(weights[-1]) + middle
        else:
            self.coef_, self.intercept_ = weights.copy(), middle

    def _assumptions(self, size: int) -> tuple[str, ...]:
        if Neighboring(self.neighboring).size_is_public:
            rows = f"the number of rows, {size}, is public"
        else:
            rows = f"{size} is a public upper bound on the number of rows (given by the user)"
        low, high = self.target_bounds
        targets = f"targets lie between {low:g} and {high:g}, or are clipped there (given by the user)"
        chosen = () if self.delta is not None else ("delta was set to 1 / n_samples**2 by default",)
        return (targets, rows, *chosen)

    def predict(self, X: ArrayLike) -> Array:
        """Predictions for rows clipped as in training, within ``target_bounds``."""
        check_is_fitted(self)
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=False
        )
        middle, half_width = self._target_range()
        scales = Bounds(float(self.feature_bound), bool(self.fit_intercept)).row_scales(rows)
        raw = (np.asarray(rows @ self.coef_) + (self.intercept_ - middle)) * scales
        return np.asarray(middle + np.clip(raw, -half_width, half_width))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


class PrivateRidge(_PrivateLinearRegressor):
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
    solver : str or solver object, default "statistics"
        "statistics" (noisy second moments), "noisy-gd" for many columns, "objective".
    ledger : Ledger or path, default None
        Budget from which every fit is charged before it runs.
    bad_rows : {"error", "null"}
        What to do with rows or targets that are not finite.
    n_samples : int, default None
        Public upper bound on the number of rows, needed only under "add-remove-one".
    random_state : None, int or SeedSequence
        Repeatability of optimizers; never of the privacy noise.

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
    privacy_ : the `PrivacyStatement`; print it.

    Privacy
    -------
    (epsilon, delta)-DP of ``coef_`` and ``intercept_`` under the stated relation; unit: one row. Not covered: the time
    a fit takes, and anything published from private rows other than through the released coefficients.

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
        solver: str | base.Solver = "statistics",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        return Squared(prediction_bound=1.0, label_bound=1.0)


class PrivateLinearRegression(_PrivateLinearRegressor):
    """Least squares under differential privacy: `PrivateRidge` with no regularization but that against the noise.

    Parameters
    ----------
    epsilon, delta, target_bounds, neighboring, feature_bound, fit_intercept, solver, ledger, bad_rows, n_samples, \
random_state
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
        solver: str | base.Solver = "statistics",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        return Squared(prediction_bound=1.0, label_bound=1.0)


class PrivateHuberRegressor(_PrivateLinearRegressor):
    """Regression with the Huber loss, robust against outlying targets, under differential privacy.

    Parameters
    ----------
    huber_width : float, default None
        Residual, in the unit of the targets, beyond which the loss grows linearly; None is a tenth of the range of
        the targets. Smaller is more robust and needs less noise.
    solver : str or solver object, default "objective"
        "objective", "noisy-gd" or "output".
    epsilon, delta, target_bounds, neighboring, feature_bound, l2, fit_intercept, ledger, bad_rows, n_samples, \
random_state
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
        solver: str | base.Solver = "objective",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
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
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        if self.huber_width is None:
            return HuberRegression(0.2)
        return HuberRegression(_inputs.real("huber_width", self.huber_width, above=0) / half_width)


class PrivateQuantileRegressor(_PrivateLinearRegressor):
    """Regression of a quantile of the targets (pinball loss, rounded at its corner) under differential privacy.

    Parameters
    ----------
    quantile : float, default 0.5
        Between 0 and 1; 0.5 is the median.
    solver : str or solver object, default "noisy-gd"
        "noisy-gd"; "objective" works but needs much regularization, because the corner is sharp.
    epsilon, delta, target_bounds, neighboring, feature_bound, l2, fit_intercept, ledger, bad_rows, n_samples, \
random_state
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
        solver: str | base.Solver = "noisy-gd",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
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
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.random_state = random_state

    def _loss(self, half_width: float) -> Loss:
        return Quantile(_inputs.real("quantile", self.quantile), width=0.01)
