"""Private models with few large coefficients: least squares and logistic regression over an L1 ball.

Entries of the features, not norms of rows, are bounded, and coefficients stay in an L1 ball: then the price of privacy
grows with the logarithm of the number of columns (Talwar, Thakurta and Zhang, 2015).
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet import _inputs
from discreet.box_bounds import BoxBounds
from discreet.estimators import _fit
from discreet.estimators.linear import _PrivateLinearClassifier
from discreet.estimators.regression import _PrivateLinearRegressor
from discreet.geometries import L1Ball
from discreet.losses import Logistic, Loss, Squared
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.certificates import Certificate

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement

Array = NDArray[np.float64]

_SIZES = (1e-3, 1e4)  # of the L1 ball, in units of the label or of the log-odds


class _OverL1Ball:
    """What both estimators share: entrywise bounds, an L1 ball, a certificate."""

    feature_bound: float
    fit_intercept: bool
    certificate_: Certificate

    def _problem(
        self,
        loss: Loss,
        n_samples: int,
        n_columns: int,
        size: float,
        n_models: int = 1,
        label_bound: float | None = None,
    ) -> Problem:
        bounds = self._bounds(n_columns)
        n_features = bounds.n_features(n_columns)
        return Problem(
            loss,
            bounds,
            n_samples,
            n_features,
            n_models,
            geometry=L1Ball(size, n_features),
            label_bound=label_bound,
        )

    def _bounds(self, n_columns: int) -> BoxBounds:
        bound = _inputs.real("feature_bound", self.feature_bound, above=0)
        return BoxBounds.of(n_columns, bound, bool(self.fit_intercept))

    def _unscaled(self, weights: Array, unit: float) -> tuple[Array, Array]:
        """Coefficients and intercepts, in units of the features and labels as they were given."""
        weights = weights * unit
        if self.fit_intercept:
            return weights[..., :-1] / self.feature_bound, weights[..., -1].copy()
        return weights / self.feature_bound, np.zeros(weights.shape[:-1])

    def _linear(self, X: Any, coef: Array) -> Array:
        """Linear predictions of rows clipped as in training, without the intercept."""
        return np.asarray(self._bounds(X.shape[1]).clip(X) @ (coef * self.feature_bound).T)

    def _state(
        self, plan: base.Plan, release: base.Release, assumptions: tuple[str, ...]
    ) -> PrivacyStatement:
        """The statement with the bounds that matter here; the certificate, if the solver has one, beside it."""
        certificate = getattr(release, "certificate", None)
        if certificate is not None:
            self.certificate_ = certificate
        statement = _fit.state(plan, release, assumptions)
        geometry = plan.problem.geometry
        assert isinstance(geometry, L1Ball)
        bounds: dict[str, float | str] = {
            "largest absolute feature": float(self.feature_bound),
            "L1 ball (features scaled to [-1, 1])": geometry.size,
        }
        bounds |= {name: value for name, value in statement.bounds.items() if not name.startswith("row norm")}
        return dataclasses.replace(statement, bounds=bounds)


class PrivateLasso(_OverL1Ball, _PrivateLinearRegressor):
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
    random_state : None, int or SeedSequence
        Accepted for compatibility; nothing here is random but the privacy noise.

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped features.
    certificate_ : bound on the excess empirical risk over the ball, of targets scaled to [-1, 1]; the same is
        available before fitting as ``plan(n, p).certificate``.
    privacy_ : the `PrivacyStatement`; print it.

    Privacy
    -------
    (epsilon, delta)-DP of ``coef_`` and ``intercept_`` under the stated relation; unit: one row. Not covered: the time
    a fit takes, and anything published from private rows other than through the released coefficients.

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
        self.random_state = random_state

    def _size(self) -> float:
        """The L1 ball in units of half the width of the target bounds."""
        if self.l1_radius is None:
            return 1.0
        return _ball_size(_inputs.real("l1_radius", self.l1_radius, above=0) / self._target_range()[1])

    def plan(self, n_samples: int, n_features: int) -> base.Plan:
        """What a fit on data of this shape would run, cost and certify; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the training data; under "add-remove-one" ``n_samples`` is a public
            upper bound.
        """
        _inputs.count("n_features", n_features)
        guarantee, n = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        self._target_range()
        size = self._size()
        # A little room for iterates that leave the ball by an ulp: inside, the loss is exactly the squared one.
        loss = Squared(prediction_bound=size * (1 + 1e-9), label_bound=1.0)
        problem = self._problem(loss, n, n_features, size, label_bound=1.0)
        return base.resolve(self.solver).plan(problem, guarantee)

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateLasso:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features); CSR is never made dense.
        y : targets, one per row; clipped to ``target_bounds``.
        """
        strict = _inputs.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        _inputs.seed(self.random_state)
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", ensure_all_finite=strict
        )
        if y is None:
            raise ValueError("PrivateLasso requires y to be passed, but the target y is None")
        targets = np.asarray(y, dtype=np.float64)
        if targets.ndim != 1 or len(targets) != rows.shape[0]:
            raise ValueError(
                f"y must hold one target per row: {rows.shape[0]} rows, y of shape {targets.shape}"
            )
        if strict and not np.all(np.isfinite(targets)):
            raise ValueError("y holds targets that are not finite; correct them, or pass bad_rows='null'")
        middle, half_width = self._target_range()
        _, n = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, rows.shape[0], self.n_samples)
        plan = self.plan(n, rows.shape[1])
        bounds = self._bounds(rows.shape[1])
        nulls = None if strict else ~bounds.valid_rows(rows) | ~np.isfinite(targets)
        with np.errstate(all="ignore"):
            scaled = np.clip((targets - middle) / half_width, -1.0, 1.0)
        scaled = np.where(np.isfinite(scaled), scaled, 0.0)
        records = ArrayRecords(bounds.clip(rows), scaled, bounds, nulls)
        _fit.charge(self.ledger, plan, label=type(self).__name__)
        release = _fit.run(plan, [records])
        coef, intercept = self._unscaled(release.theta, half_width)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + middle
        self.privacy_ = self._state(plan, release, self._assumptions(n))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predictions for features clipped as in training, within ``target_bounds``."""
        check_is_fitted(self)
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=False
        )
        middle, half_width = self._target_range()
        raw = self._linear(rows, self.coef_) + self.intercept_
        return np.asarray(np.clip(raw, middle - half_width, middle + half_width))


class PrivateSparseLogisticRegression(_OverL1Ball, _PrivateLinearClassifier):
    """Logistic regression over an L1 ball under differential privacy.

    minimize the mean logistic loss over sum_j feature_bound |coef_j| + |intercept| <= l1_radius; more than two classes
    are fitted one-vs-rest, priced together.

    Parameters
    ----------
    epsilon, delta, neighboring, feature_bound, fit_intercept, solver, ledger, bad_rows, n_samples, random_state
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
        self.random_state = random_state

    def plan(self, n_samples: int, n_features: int, n_classes: int = 2) -> base.Plan:
        """What a fit on data of this shape would run, cost and certify; no data is needed.

        Parameters
        ----------
        n_samples, n_features, n_classes : public shape of the training data.
        """
        _inputs.count("n_features", n_features)
        _inputs.count("n_classes", n_classes, at_least=2)
        guarantee, n = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        size = _ball_size(_inputs.real("l1_radius", self.l1_radius, above=0))
        problem = self._problem(Logistic(), n, n_features, size, 1 if n_classes == 2 else n_classes)
        return base.resolve(self.solver).plan(problem, guarantee)

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateSparseLogisticRegression:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features); CSR is never made dense.
        y : labels, one per row.
        """
        bad_rows = _inputs.choice("bad_rows", self.bad_rows, ("error", "null"))
        _inputs.seed(self.random_state)
        rows, targets = self._validated(X, y, bad_rows)
        labels = _fit.read_labels(targets, self.classes, bad_rows)
        _, n = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, rows.shape[0], self.n_samples)
        plan = self.plan(n, rows.shape[1], len(labels.classes))
        records = self._records(rows, labels, plan.problem, bad_rows)
        _fit.charge(self.ledger, plan, label=type(self).__name__)
        release = _fit.run(plan, records)
        self.coef_, self.intercept_ = self._unscaled(release.theta, 1.0)
        self.classes_, self.multi_class_ = labels.classes, "ovr"
        self.privacy_ = self._state(plan, release, self._assumptions(labels, n))
        return self

    def _records(self, X: Any, labels: _fit.Labels, problem: Problem, bad_rows: str) -> list[ArrayRecords]:
        bounds = self._bounds(X.shape[1])
        nulls = ~bounds.valid_rows(X) | (labels.codes < 0) if bad_rows == "null" else None
        positives = [1] if len(labels.classes) == 2 else range(len(labels.classes))
        signs = [np.where(labels.codes == k, 1.0, -1.0) for k in positives]
        first = ArrayRecords(bounds.clip(X), signs[0], bounds, nulls)
        return [first, *(first.with_labels(other) for other in signs[1:])]

    def decision_function(self, X: ArrayLike) -> Array:
        """Log-odds of features clipped as in training."""
        check_is_fitted(self)
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=False
        )
        raw = self._linear(rows, self.coef_) + self.intercept_
        return raw.ravel() if len(self.coef_) == 1 else raw

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of every class, of features clipped as in training."""
        raw = self.decision_function(X)
        if raw.ndim == 1:
            return np.column_stack([expit(-raw), expit(raw)])
        chances = expit(raw)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _ball_size(size: float) -> float:
    low, high = _SIZES
    if not low <= size <= high:
        raise ValueError(
            f"l1_radius must lie between {low:g} and {high:g} times the scale of the labels, got {size:g} times; a "
            "larger ball needs more noise, a smaller one holds hardly more than the constant model"
        )
    return size
