"""Private linear classifiers with the scikit-learn interface."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet import _inputs
from discreet.bounds import Bounds
from discreet.estimators import _fit
from discreet.losses import HuberHinge, Logistic, Loss, Softmax
from discreet.privacy.guarantee import Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement

Array = NDArray[np.float64]


class _PrivateLinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What all private linear classifiers share; subclasses name the loss."""

    coef_: Array
    intercept_: Array
    classes_: NDArray[Any]
    multi_class_: str
    privacy_: PrivacyStatement

    def plan(self, n_samples: int, n_features: int, n_classes: int = 2) -> base.Plan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features, n_classes : public shape of the training data; under "add-remove-one" ``n_samples`` is
            a public upper bound.
        """
        _inputs.count("n_features", n_features)
        _inputs.count("n_classes", n_classes, at_least=2)
        guarantee, size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        solver = base.resolve(self.solver)
        bounds = Bounds(_inputs.real("feature_bound", self.feature_bound, above=0), bool(self.fit_intercept))
        loss, n_models = self._loss(solver, n_classes)
        l2 = None if self.l2 is None else _inputs.real("l2", self.l2, above=0)
        problem = Problem(loss, bounds, size, n_features + bounds.intercept, n_models, l2)
        return solver.plan(problem, guarantee)

    def fit(self, X: Any, y: Any) -> _PrivateLinearClassifier:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features).
        y : labels, one per row.
        """
        bad_rows = _inputs.choice("bad_rows", self.bad_rows, ("error", "null"))
        _inputs.seed(self.random_state)
        X, y = self._validated(X, y, bad_rows)
        labels = _fit.read_labels(y, self.classes, bad_rows)
        n_rows, n_features = X.shape
        # The plan must not see the data: under a relation that hides the number of rows, neither may it see n_rows.
        size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, self.n_samples)[1]
        plan = self.plan(size, n_features, len(labels.classes))
        records = self._records(X, labels, plan.problem, bad_rows)
        _fit.charge(self.ledger, plan, label=type(self).__name__)
        release = _fit.run(plan, records)
        self._publish(release.theta, labels.classes, plan.problem)
        self.privacy_ = _fit.state(plan, release, self._assumptions(labels, size))
        return self

    def _validated(self, X: Any, y: Any, bad_rows: str) -> tuple[Any, NDArray[Any]]:
        strict = bad_rows == "error"
        X, y = (
            validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                order="C",
                ensure_all_finite=strict,
                y_numeric=False,
                multi_output=False,
            )
            if strict
            else (
                validate_data(
                    self,
                    X,
                    accept_sparse="csr",
                    dtype=[np.float64, np.float32],
                    order="C",
                    ensure_all_finite=False,
                ),
                np.asarray(y),
            )
        )
        if y.ndim != 1 or len(y) != X.shape[0]:
            raise ValueError(f"y must hold one label per row: {X.shape[0]} rows, y of shape {y.shape}")
        if strict:
            check_classification_targets(y)
        return X, y

    def _records(self, X: Any, labels: _fit.Labels, problem: Problem, bad_rows: str) -> list[ArrayRecords]:
        nulls = ~problem.bounds.valid_rows(X) | (labels.codes < 0) if bad_rows == "null" else None
        if problem.loss.n_outputs > 1:
            return [ArrayRecords(X, labels.codes, problem.bounds, nulls)]
        positives = [1] if len(labels.classes) == 2 else range(len(labels.classes))
        first = ArrayRecords(X, np.where(labels.codes == positives[0], 1.0, -1.0), problem.bounds, nulls)
        return [first, *(first.with_labels(np.where(labels.codes == k, 1.0, -1.0)) for k in positives[1:])]

    def _publish(self, theta: Array, classes: NDArray[Any], problem: Problem) -> None:
        """Set the fitted attributes from released numbers and public facts only."""
        weights = theta[0].T if problem.loss.n_outputs > 1 else theta
        if problem.bounds.intercept:
            self.coef_, self.intercept_ = weights[:, :-1].copy(), weights[:, -1].copy()
        else:
            self.coef_, self.intercept_ = weights.copy(), np.zeros(len(weights))
        self.classes_ = classes
        self.multi_class_ = "softmax" if problem.loss.n_outputs > 1 else "ovr"

    def _assumptions(self, labels: _fit.Labels, size: int) -> tuple[str, ...]:
        label_set = (
            "the label set was declared by the user"
            if labels.declared
            else "THE LABEL SET WAS READ FROM THE PRIVATE DATA and is treated as public: a label that only one person "
            "has would be revealed"
        )
        if Neighboring(self.neighboring).size_is_public:
            rows = f"the number of rows, {size}, is public"
        else:
            rows = f"{size} is a public upper bound on the number of rows (given by the user)"
        chosen = () if self.delta is not None else ("delta was set to 1 / n_samples**2 by default",)
        return (label_set, rows, *chosen)

    def decision_function(self, X: Any) -> Array:
        """Signed distances to the decision boundary, of rows clipped as in training."""
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=False
        )
        scales = Bounds(float(self.feature_bound), bool(self.fit_intercept)).row_scales(X)
        raw = (np.asarray(X @ self.coef_.T) + self.intercept_) * scales[:, None]
        return raw.ravel() if len(self.coef_) == 1 else raw

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of every row."""
        raw = self.decision_function(X)
        codes = (raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


class PrivateLogisticRegression(_PrivateLinearClassifier):
    """Logistic regression under differential privacy, binary or multinomial.

    Rows are clipped to ``feature_bound`` in L2 norm, the intercept's constant column included. With the defaults
    there is nothing to tune: noise and regularization follow from public numbers.

    Parameters
    ----------
    epsilon : float, default 1.0
        Privacy budget of one fit, in nats. Smaller is more private.
    delta : float, default None
        Probability with which epsilon may be exceeded; None is 1 / n_samples**2.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Which data sets must be indistinguishable. Under "add-remove-one" the number of rows is private, and
        ``n_samples`` declares an upper bound.
    feature_bound : float, default 1.0
        Largest L2 norm of a row, the intercept's 1 included; longer rows are shrunk onto it. A public choice.
    l2 : float, default None
        Ridge coefficient relative to the mean loss; None chooses one from public numbers. Raised where the privacy
        proof needs more.
    classes : list, default None
        The public label set. If None it is read from the data, with a warning and a note in the statement.
    multi_class : {"auto", "softmax", "ovr"}
        One softmax with one noise matrix, or one model per class with the exact cost of all together.
    fit_intercept : bool, default True
        Whether to add a constant column (regularized and perturbed like every other).
    solver : str or solver object, default "auto"
        "auto" chooses by public facts; "objective" (tight objective perturbation), "noisy-gd", "noisy-sgd", "newton",
        "output", "psgd", and names ending in "-dissertation" for the printed calibrations.
    ledger : Ledger or path, default None
        Budget from which every fit is charged before it runs.
    bad_rows : {"error", "null"}
        What to do with rows that are not finite or whose label is unknown: raise before any charge (you hold the
        data and should know), or treat them as null records so that no error depends on a private value.
    n_samples : int, default None
        Public upper bound on the number of rows, needed only under "add-remove-one".
    random_state : None, int or SeedSequence
        Repeatability of optimizers; never of the privacy noise.

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
    classes_ : labels, in the order of the rows of ``coef_``.
    privacy_ : the `PrivacyStatement`; print it.

    Privacy
    -------
    (epsilon, delta)-DP of ``coef_`` and ``intercept_`` under the stated relation; unit: one row. Not covered: the
    time a fit takes, and anything published from private rows other than through the released coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> model = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1]).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.privacy_.epsilon
    1.0
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        classes: Any = None,
        multi_class: str = "auto",
        fit_intercept: bool = True,
        solver: str | base.Solver = "auto",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.classes = classes
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.random_state = random_state

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        choice = _inputs.choice("multi_class", self.multi_class, ("auto", "softmax", "ovr"))
        if n_classes == 2:
            return Logistic(), 1
        one_vs_rest = choice == "ovr" or (choice == "auto" and solver.multiclass == "one-vs-rest")
        return (Logistic(), n_classes) if one_vs_rest else (Softmax(n_classes), 1)

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, of rows clipped as in training."""
        raw = self.decision_function(X)
        if raw.ndim == 1:
            positive = expit(raw)
            return np.column_stack([1 - positive, positive])
        if self.multi_class_ == "ovr":
            chances = expit(raw)
            return np.asarray(chances / chances.sum(axis=1, keepdims=True))
        return np.asarray(softmax(raw, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))


class PrivateLinearSVC(_PrivateLinearClassifier):
    """Linear support vector classification (Huber-smoothed hinge loss) under differential privacy.

    Parameters
    ----------
    huber_width : float, default 0.5
        Half-width of the quadratic piece that replaces the hinge's corner: smaller is closer to the hinge and needs
        more regularization.
    epsilon, delta, neighboring, feature_bound, l2, classes, fit_intercept, solver, ledger, bad_rows, n_samples, \
random_state
        As for `PrivateLogisticRegression`. More than two classes are fitted one-vs-rest, priced jointly.

    Privacy
    -------
    As for `PrivateLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    >>> bool(PrivateLinearSVC(epsilon=1.0, classes=["no", "yes"]).fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        huber_width: float = 0.5,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        classes: Any = None,
        fit_intercept: bool = True,
        solver: str | base.Solver = "auto",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.huber_width = huber_width
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.random_state = random_state

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        loss = HuberHinge(_inputs.real("huber_width", self.huber_width, above=0))
        return loss, 1 if n_classes == 2 else n_classes
