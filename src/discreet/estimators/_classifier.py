"""What all private linear classifiers share; subclasses name the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from discreet import _inputs
from discreet.estimators import _data, _fit
from discreet.estimators._model import Array, PrivateLinearModel
from discreet.losses import Loss
from discreet.problem import Problem
from discreet.solvers import base


class PrivateLinearClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Linear classification; subclasses name the loss of a number of classes, and how many models it takes."""

    coef_: Array
    intercept_: Array
    classes_: NDArray[Any]
    multi_class_: str

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        raise NotImplementedError

    def plan(self, n_samples: int, n_features: int, n_classes: int = 2, *, sparse: bool = False) -> base.Plan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features, n_classes : public shape of the training data; under "add-remove-one" ``n_samples`` is
            a public upper bound; with ``max_rows_per_group`` it counts places, the number of groups times that bound.
        sparse : whether the rows will be a SciPy sparse matrix, which ``solver="auto"`` looks at.
        """
        _inputs.count("n_features", n_features)
        _inputs.count("n_classes", n_classes, at_least=2)
        solver = base.resolve(self.solver)
        loss, n_models = self._loss(solver, n_classes)
        return self._calibrated(solver, loss, n_samples, n_features, n_models, sparse=sparse)

    def _checked(self, X: Any, y: Any, strict: bool) -> tuple[Any, NDArray[Any]]:
        return _data.checked_classes(self, X, y, strict=strict)

    def _targets(self, y: NDArray[Any]) -> _fit.Labels:
        return _fit.read_labels(y, self.classes, self.bad_rows)

    def _planned(self, n_samples: int, n_columns: int, targets: _fit.Labels, *, sparse: bool) -> base.Plan:
        return self.plan(n_samples, n_columns, len(targets.classes), sparse=sparse)

    def _labels(self, targets: _fit.Labels, problem: Problem) -> list[NDArray[Any]]:
        if problem.loss.n_outputs > 1:
            return [targets.codes]
        positives = [1] if len(targets.classes) == 2 else range(len(targets.classes))
        return [np.where(targets.codes == k, 1.0, -1.0) for k in positives]

    def _null(self, targets: _fit.Labels) -> _data.Mask:
        return targets.codes < 0

    def _publish(self, theta: Array, targets: _fit.Labels, problem: Problem) -> None:
        joint = problem.loss.n_outputs > 1
        self.coef_, self.intercept_ = self._split(theta[0].T if joint else theta)
        self.classes_ = targets.classes
        self.multi_class_ = "softmax" if joint else "ovr"

    def _facts(self, targets: _fit.Labels) -> tuple[str, ...]:
        return (targets.assumption,)

    def decision_function(self, X: Any) -> Array:
        """Signed distances to the decision boundary, of rows shrunk or cut to ``feature_bound``."""
        check_is_fitted(self)
        raw = _fit.as_fitted(self)._raw(_data.checked_rows(self, X), self.coef_, self.intercept_)
        return raw.ravel() if len(self.coef_) == 1 else raw

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of every row."""
        raw = self.decision_function(X)
        codes = (raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)
        return np.asarray(self.classes_[codes])


class LogOddsClassifier(PrivateLinearClassifier):
    """A classifier whose decision function is the log-odds of a class, or the logits of a softmax."""

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, of rows shrunk or cut to ``feature_bound``.

        So are the rows that most solvers train on. Where a solver centers or levels rows first, it shrinks what is left
        of them instead, and may train on longer rows than those it predicts for: labels are the same, probabilities of
        rows beyond ``feature_bound`` are nearer to 1/2.
        """
        raw = self.decision_function(X)
        if raw.ndim == 1:
            return np.column_stack([expit(-raw), expit(raw)])
        if self.multi_class_ == "ovr":
            chances = expit(raw)
            return np.asarray(chances / chances.sum(axis=1, keepdims=True))
        return np.asarray(softmax(raw, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
