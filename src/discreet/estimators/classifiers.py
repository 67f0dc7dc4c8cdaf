"""Private linear classifiers with the scikit-learn interface: a base class, then one class per loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array
from discreet.estimators.linear import PrivateLinearModel, Task, as_fitted
from discreet.estimators.parameters import (
    ClassifierParameters,
    coefficient_set,
    estimator,
    intercept,
    norm_bound,
    parameter,
    public_weights,
    ridge,
)
from discreet.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Loss, Softmax
from discreet.losses.weighted import LARGEST_WEIGHT, SMALLEST_WEIGHT
from discreet.problem import Problem
from discreet.records.open import Targets, checked_classes, class_count, declared_classes, read_labels
from discreet.sets import Geometry
from discreet.solvers import base

_WIDTH, _JOINT_WIDTH = (
    0.5,
    2.0,
)  # of a hinge's corner: of one model for two classes, and of all classes together


class PrivateLinearClassifier(ClassifierMixin, ClassifierParameters, PrivateLinearModel):  # type: ignore[misc]
    """Base class of linear classifiers. A subclass names its loss for a number of classes, and the number of models."""

    coef_: Array
    intercept_: Array
    classes_: NDArray[Any]
    multi_class_: str

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        raise NotImplementedError

    def plan(
        self, n_samples: int, n_features: int, n_classes: int | None = None, *, sparse: bool = False
    ) -> base.Plan:
        """Return what a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the training data; under "add-remove-one" ``n_samples`` is a public
            upper bound; with ``max_rows_per_group`` it counts places, the number of groups times that bound.
        n_classes : number of classes; None for those that are declared in ``classes``, or 2.
        sparse : whether the rows will be a SciPy sparse matrix, which ``solver="auto"`` takes into account.
        """
        n_columns, known = _checks.count("n_features", n_features), class_count(n_classes, self.classes)
        return self._plan(None, n_samples, n_columns, known, sparse=sparse)

    def _read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        rows, cells = checked_classes(self, X, y, strict=self.bad_rows == "error")
        labels = read_labels(cells, self.classes, self.bad_rows)
        facts, weights = [labels.assumption], getattr(self, "class_weight", None)
        if weights is not None:
            chosen = f"the weights of classes, {weights}, were chosen without looking at the private data"
            facts.append(f"{chosen} (given by the user)")
        return rows, Targets(labels.codes, labels.codes < 0, tuple(facts), labels.classes)

    def _task(self, solver: base.Solver, n_columns: int, n_classes: int | None) -> Task:
        loss, n_models = self._loss(solver, n_classes or 2)
        return Task(solver, self._weighted(loss, n_models), n_models)

    def _weighted(self, loss: Loss, n_models: int) -> Loss:
        """Return the loss, weighted by class if ``class_weight`` is given."""
        weights = class_weights(getattr(self, "class_weight", None), self.classes)
        if weights is None or set(weights) == {1.0}:
            return loss
        if n_models > 1:
            raise ParameterError(
                "class_weight",
                "goes with classes that are fitted together: one model against the rest would weigh them all alike",
                Setting("multi_class", "auto"),
            )
        return ClassWeighted(cast(Any, loss), weights)

    def _attributes(self, theta: Array, targets: Targets, problem: Problem) -> dict[str, Any]:
        joint = problem.loss.n_outputs > 1
        coef, intercept = self._split(theta[0].T if joint else theta)
        facts = {"classes_": targets.classes, "multi_class_": "softmax" if joint else "ovr"}
        return {"coef_": coef, "intercept_": intercept, **facts}

    def decision_function(self, X: Any) -> Array:
        """Return signed distances to the decision boundary, for rows clipped to ``feature_bound``."""
        check_is_fitted(self)
        raw = as_fitted(self)._raw(self._rows(X), self.coef_, self.intercept_)
        return raw.ravel() if len(self.coef_) == 1 else raw

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of every row."""
        raw = self.decision_function(X)
        codes = (raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)
        return np.asarray(self.classes_[codes])


def class_weights(given: Any, classes: Any) -> tuple[float, ...] | None:
    """Return one weight per declared class, 1 for classes that are left out; None without weights."""
    if given is None:
        return None
    if isinstance(given, str):
        raise ParameterError(
            "class_weight",
            f"must be a dict of public numbers, got {given!r}: counts of classes are private, and weights made of them "
            "would tell about the rows without paying",
            "move the threshold of the released model instead, which is free and usually better: "
            "sklearn.model_selection.FixedThresholdClassifier(model, threshold=...) (docs/pitfalls.md)",
            Setting("class_weight", purpose="with shares that are public, as {label: weight}"),
        )
    if not isinstance(given, Mapping):
        raise ParameterError(
            "class_weight", f"must be a dict of labels and numbers, got {type(given).__name__}"
        )
    if classes is None:
        raise ParameterError(
            "classes", "must list the public labels that class_weight gives numbers for", Setting("classes")
        )
    known = declared_classes(classes).tolist()
    if strange := [label for label in given if label not in known]:
        raise ParameterError(
            "class_weight", f"names {strange[0]!r}, which is not among the declared classes {known}"
        )
    weights = tuple(_checks.real("class_weight", given.get(label, 1.0), above=0) for label in known)
    if not SMALLEST_WEIGHT <= min(weights) <= max(weights) <= LARGEST_WEIGHT:
        raise ParameterError(
            "class_weight",
            f"must hold numbers between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, got {given!r}",
        )
    return weights


class LogOddsClassifier(PrivateLinearClassifier):
    """A classifier whose decision function is the log-odds of a class, or the logits of a softmax."""

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class.

        Rows longer than ``feature_bound`` are scaled down before prediction. Solvers that center rows clip them after
        centering, so very long rows get less confident probabilities than in training; predicted labels do not change.
        """
        raw = self.decision_function(X)
        if raw.ndim == 1:
            return np.column_stack([expit(-raw), expit(raw)])
        if self.multi_class_ == "ovr":
            chances = expit(raw)
            return np.asarray(chances / chances.sum(axis=1, keepdims=True))
        return np.asarray(softmax(raw, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))


@estimator
class PrivateLogisticRegression(LogOddsClassifier):
    """Logistic regression under differential privacy, binary or multinomial.

    Rows are clipped to ``feature_bound`` in L2 norm, the intercept's constant column included. With the defaults
    there is nothing to tune: noise and regularization follow from public numbers.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
    classes_ : labels, in the order of the rows of ``coef_``.
    {fitted}

    Notes
    -----
    {privacy}

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

    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    multi_class: str = parameter(
        "auto",
        '{"auto", "softmax", "ovr"}',
        "One softmax with one noise matrix, or one model per class, all within one epsilon.",
    )
    class_weight: Mapping[Any, float] | None = public_weights()
    constraint: Geometry | None = coefficient_set(
        "The coefficients of a softmax are one vector, column by column of X; one-vs-rest models have one each."
    )
    solver: str | base.Solver = parameter(
        "auto",
        "str or solver object",
        '"auto" chooses by public facts; others are "objective" (tight objective perturbation), "noisy-gd", '
        '"noisy-sgd", "newton", "discriminant", "refocused-sums", "output", "psgd", and names ending in '
        '"-dissertation" for the printed calibrations.',
    )

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        choice = _checks.choice("multi_class", self.multi_class, ("auto", "softmax", "ovr"))
        if n_classes == 2:
            return Logistic(), 1
        one_vs_rest = choice == "ovr" or (choice == "auto" and solver.multiclass == "one-vs-rest")
        return (Logistic(), n_classes) if one_vs_rest else (Softmax(n_classes), 1)


@estimator
class PrivateLinearSVC(PrivateLinearClassifier):
    """Linear support vector classification (Huber-smoothed hinge loss) under differential privacy.

    More than two classes are fitted together, by the hinge of Crammer and Singer with a smooth maximum: one release
    for all of them.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
    classes_ : labels, in the order of the rows of ``coef_``.
    {fitted}

    Notes
    -----
    {privacy}

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

    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    huber_width: float | None = parameter(
        None,
        "float or None",
        "Half-width of the quadratic piece that replaces the hinge's corner: smaller is closer to the hinge and needs "
        "more regularization. None is 0.5, and 2 for more than two classes that are fitted together, whose noise a "
        'narrow one magnifies. 0 is the hinge itself, one-vs-rest, for solvers that need no smoothness: "noisy-gd", '
        '"mirror-descent" in a set, and "exponential" for delta = 0.',
    )
    multi_class: str = parameter(
        "auto",
        '{"auto", "joint", "ovr"}',
        'For more than two classes: "joint" fits them by one hinge loss with one noise matrix (Crammer and Singer, '
        'with a maximum that is smoothed over ``huber_width``); "ovr" fits one model per class, within one epsilon.',
    )
    class_weight: Mapping[Any, float] | None = public_weights()
    constraint: Geometry | None = coefficient_set(
        "The coefficients of all classes are one vector, column by column of X; one-vs-rest models have one each."
    )

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        choice = _checks.choice("multi_class", self.multi_class, ("auto", "joint", "ovr"))
        width = None if self.huber_width is None else _checks.real("huber_width", self.huber_width)
        sharp = width == 0
        together = choice == "joint" or (choice == "auto" and solver.multiclass == "softmax" and not sharp)
        if sharp and choice == "joint" and n_classes > 2:
            raise ParameterError(
                "huber_width",
                "must be greater than 0 for classes that are fitted together",
                Setting("multi_class", "ovr", purpose="for the hinge itself"),
            )
        if n_classes > 2 and together:
            wide = _JOINT_WIDTH if width is None else _checks.real("huber_width", width, above=0)
            return Softmax(n_classes, margin=0.5 / wide), 1
        narrow = _WIDTH if width is None else width
        loss = Hinge() if sharp else HuberHinge(_checks.real("huber_width", narrow, above=0))
        return loss, 1 if n_classes == 2 else n_classes
