"""What a student learns from released votes, noisy or not: free, because the votes are public by then.

Votes are a matrix (rows, classes) whose rows add up to nothing: noisy shares less what a tie would have, or whole votes
for released labels. Noise is independent of the row and has mean zero, so that whatever averages over similar rows,
large leaves, strong penalties, many trees, averages it away; and the held-out votes of a student's predictions
are an unbiased score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from discreet.transfer.rows import take

Array = NDArray[np.float64]

_FOLDS = 3


class RegressionStudent:
    """Regressors as a classifier: they predict the votes of every class, and the highest prediction wins."""

    def __init__(self, models: Sequence[Any], classes: NDArray[Any]) -> None:
        self.models = list(models)
        self.classes_ = classes

    def votes(self, X: Any) -> Array:
        """Predicted votes of every class; of two classes one is enough."""
        found = np.column_stack([model.predict(X) for model in self.models])
        return np.column_stack([-found, found]) if len(self.classes_) == 2 else found

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels."""
        return np.asarray(self.classes_[self.votes(X).argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Predicted votes as shares: cut to [0, 1] and divided by their sum; they are not calibrated."""
        shares = np.clip(self.votes(X) + 1 / len(self.classes_), 0.0, 1.0)
        return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny))


def one_hot(labels: NDArray[Any], classes: NDArray[Any]) -> Array:
    """Whole votes for known labels."""
    return np.asarray((labels[:, np.newaxis] == classes).astype(np.float64) - 1 / len(classes))


def fit_student(model: Any, X: Any, votes: Array, classes: NDArray[Any]) -> Any:
    """Fit an unfitted classifier to the winners, weighted by their lead, or a regressor to the votes themselves."""
    if is_regressor(model):
        targets = votes[:, 1:] if len(classes) == 2 else votes
        fitted = [clone(model).fit(X, targets[:, number]) for number in range(targets.shape[1])]
        return RegressionStudent(fitted, classes)
    highest = np.sort(votes, axis=1)[:, -2:]
    lead = highest[:, 1] - highest[:, 0]
    labels = classes[votes.argmax(axis=1)]
    name = _weight_name(model)
    if name is None or np.ptp(lead) == 0:
        return clone(model).fit(X, labels)
    return clone(model).fit(X, labels, **{name: lead / lead.mean()})


def best_student(models: Sequence[Any], X: Any, votes: Array, classes: NDArray[Any]) -> Any:
    """Of several unfitted models the one whose predictions get most of the votes on rows it was not trained on."""
    if len(models) == 1:
        return models[0]
    folds = np.arange(X.shape[0]) % _FOLDS
    scores = [
        sum(_score(model, X, votes, classes, folds == fold) for fold in range(_FOLDS)) for model in models
    ]
    return models[int(np.argmax(scores))]


def _score(model: Any, X: Any, votes: Array, classes: NDArray[Any], held: NDArray[np.bool_]) -> float:
    if len(np.unique(votes[~held].argmax(axis=1))) < 2:
        return 0.0
    fitted = fit_student(model, take(X, np.flatnonzero(~held)), votes[~held], classes)
    found = np.searchsorted(classes, fitted.predict(take(X, np.flatnonzero(held))))
    return float(votes[held][np.arange(len(found)), found].sum())


def _weight_name(model: Any) -> str | None:
    """The argument of ``fit`` that takes weights; None for models without one."""
    if isinstance(model, Pipeline):
        step, last = model.steps[-1]
        return f"{step}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(model, "sample_weight") else None
