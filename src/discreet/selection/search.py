"""Private search over candidates, with the surface of scikit-learn's search classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from discreet import _inputs
from discreet.estimators import _cells, _data, _fit
from discreet.mechanisms.entropy import fresh_entropy
from discreet.mechanisms.sampling import permutation
from discreet.privacy.guarantee import Guarantee, refuse_large_default
from discreet.privacy.statement import PrivacyStatement
from discreet.privacy.tries import LAWS, law_with_mean
from discreet.selection.plans import SelectionPlan, plan_split, plan_tries
from discreet.selection.trial import Trainer, check_candidate, examine, planned_event, prepared

if TYPE_CHECKING:
    from discreet.privacy.events import Event
    from discreet.privacy.ledger import Ledger

METHODS = ("tries", "split", "split-parallel")


def _chosen_has(name: str) -> Any:
    def check(search: Any) -> bool:
        return hasattr(
            search.best_estimator_ if hasattr(search, "best_estimator_") else search._all()[0], name
        )

    return check


class PrivateSelection(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """The best of several private models, chosen privately; the stated epsilon covers training and choosing.

    Parameters
    ----------
    candidates : list of unfitted estimators of this package
        All classifiers or all regressors, and no pipelines: encode the rows first. Their own epsilon, delta, relation
        and ledger are replaced by the search's.
    epsilon, delta, neighboring : the promise of the whole search; delta None is 1 / n_samples**2, which needs 32
        records. Under "add-remove-one" the sizes of the two parts would be private; it is refused.
    method : {"tries", "split", "split-parallel"}
        "tries": a random number of times, a candidate drawn by lot is trained and scored with noise, and the best is
        released. Its price hardly depends on the number of candidates. "split": every candidate is trained on the
        same records, at the price of all fits together, and one is chosen by the exponential mechanism. \
"split-parallel": every candidate is trained on records of its own, at full price.
    expected_tries : float, default None
        For "tries"; None is twice the number of candidates.
    tries : {"geometric", "logarithmic", "poisson"}
        The law of the number of tries. The logarithmic law costs least and often tries only once; the Poisson law
        costs most and hardly ever does.
    holdout : float, default 0.2
        Share of the records that models are compared on, and not trained on.
    classes : list, default None
        The public label set; None takes the first candidate's, or reads it from the data with a warning.
    ledger : Ledger or path, default None
        Charged once, before the first try.
    bad_rows : {"error", "null"}
        What to do with rows that are not finite or whose label is unknown.

    Attributes
    ----------
    best_estimator_, best_index_ : the released model, which carries the statement of the whole search, and which
        candidate it is.
    best_score_ : its noisy share of right answers (or mean of 1 - squared error over squared range), paid for under
        "tries"; None under "split". Being the best of several, it flatters: evaluate on other data.
    privacy_ : the `PrivacyStatement` of the whole search.

    Privacy
    -------
    (epsilon, delta)-DP of everything released; docs/proofs/selection.md. NOT covered under "tries": how long the
    search took, because it tells the number of tries, which must stay secret. No table of all scores is kept: it would
    have to be paid for.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression, PrivateSelection
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> bounds = [PrivateLogisticRegression(feature_bound=bound) for bound in (0.01, 1.0, 3.0)]
    >>> search = PrivateSelection(bounds, epsilon=1.0, classes=[0, 1]).fit(X, y)
    >>> search.privacy_.epsilon, bool(search.score(X, y) > 0.9)
    (1.0, True)
    """

    best_estimator_: Any
    best_index_: int
    best_score_: float | None
    privacy_: PrivacyStatement

    def __init__(
        self,
        candidates: Sequence[Any],
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        neighboring: str = "replace-one",
        method: str = "tries",
        expected_tries: float | None = None,
        tries: str = "geometric",
        holdout: float = 0.2,
        classes: Any = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
    ) -> None:
        self.candidates = candidates
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.method = method
        self.expected_tries = expected_tries
        self.tries = tries
        self.holdout = holdout
        self.classes = classes
        self.ledger = ledger
        self.bad_rows = bad_rows

    def _all(self) -> list[Any]:
        return list(self.candidates)

    def plan(
        self, n_samples: int, n_features: int, n_classes: int = 2, *, sparse: bool = False
    ) -> SelectionPlan:
        """What a search on data of this shape, in a sparse matrix or not, would run and cost; no data is needed."""
        candidates = self._checked()
        guarantee, size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        refuse_large_default(self.delta, size)
        if not guarantee.neighboring.size_is_public:
            raise ValueError(
                "a search needs public numbers of training and held-out records: use neighboring='replace-one' or "
                "'zero-out'"
            )
        n_train = size - self._n_held_out(size)
        classifies = is_classifier(candidates[0])

        def plan_candidate(index: int, one: Guarantee, n_each: int) -> Event:
            # Labels decide nothing but their number, so a plan may use any label set of this size.
            labels = np.arange(n_classes) if classifies else None
            ready = prepared(candidates[index], one, labels, self.bad_rows)
            kinds = n_classes if classifies else None
            return planned_event(ready, n_each, n_features, kinds, sparse=sparse)

        method = _inputs.choice("method", self.method, METHODS)
        if method == "tries":
            mean = 2.0 * len(candidates) if self.expected_tries is None else self.expected_tries
            law = law_with_mean(
                _inputs.choice("tries", self.tries, LAWS), _inputs.real("expected_tries", mean)
            )
            return plan_tries(plan_candidate, len(candidates), n_train, guarantee, law)
        training = "composed" if method == "split" else "parallel"
        if training == "parallel" and n_train < 2 * len(candidates):
            raise ValueError(f"{n_train} training records are too few for {len(candidates)} disjoint parts")
        return plan_split(plan_candidate, len(candidates), n_train, guarantee, training)  # type: ignore[arg-type]

    def fit(self, X: Any, y: Any) -> PrivateSelection:
        """Search privately; charges the ledger once, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features).
        y : labels or targets, one per row.
        """
        bad_rows = _inputs.choice("bad_rows", self.bad_rows, ("error", "null"))
        candidates = self._checked()
        strict = bad_rows == "error"
        if _data.in_parts(X):
            raise ValueError("a search needs rows in memory: pass an array, a data frame or a sparse matrix")
        rows: Any = _data.checked_rows(self, X, strict=strict, reset=True)
        labels, targets, nulls = self._targets(candidates[0], rows, y, bad_rows)
        n_classes = 2 if labels is None else len(labels.classes)
        plan = self.plan(rows.shape[0], rows.shape[1], n_classes, sparse=bool(sp.issparse(rows)))
        known = None if labels is None else labels.classes
        ready = [prepared(one, plan.fit_guarantee, known, bad_rows) for one in candidates]
        examine(ready, rows, targets)
        receipt = _fit.charge(self.ledger, plan, label=type(self).__name__)
        entropy = fresh_entropy()
        order = permutation(rows.shape[0], entropy)
        n_held_out = self._n_held_out(rows.shape[0])
        trainer = Trainer(ready, rows, targets, nulls, order[n_held_out:], order[:n_held_out])
        chosen = plan.run(trainer, entropy)
        self.best_index_, self.best_estimator_ = chosen.index, chosen.model
        self.best_score_ = None if chosen.score is None else min(1.0, max(0.0, chosen.score / n_held_out))
        if labels is not None:
            self.classes_ = labels.classes
        secure = entropy.secure and chosen.model.privacy_.secure
        self.privacy_ = self._state(plan, rows.shape[0], labels, secure).paid_by(receipt)
        # The chosen model on its own is worth no less than the search it comes from.
        self.best_estimator_.privacy_ = self.privacy_
        self.best_estimator_.set_params(ledger=self.ledger)  # another fit would cost again
        if hasattr(self, "feature_names_in_"):
            # It was trained on bare rows, and must refuse columns in another order all the same.
            self.best_estimator_.feature_names_in_ = self.feature_names_in_
        return self

    def _checked(self) -> list[Any]:
        candidates = self._all()
        if not candidates:
            raise ValueError("there is nothing to choose from: pass at least one candidate")
        kinds = {(is_classifier(one), is_regressor(one)) for one in candidates}
        if len(kinds) > 1 or kinds == {(False, False)}:
            raise ValueError("candidates must be all classifiers or all regressors of this package")
        for candidate in candidates:
            check_candidate(candidate)
        return candidates

    def _n_held_out(self, n_rows: int) -> int:
        share = _inputs.real("holdout", self.holdout, above=0)
        if share >= 1 or n_rows < 4:
            raise ValueError(
                f"holdout must lie between 0 and 1 and leave records to train on, got {self.holdout!r}"
            )
        return min(n_rows - 2, max(1, round(share * n_rows)))

    def _targets(
        self, first: Any, rows: Any, y: Any, bad_rows: str
    ) -> tuple[_fit.Labels | None, NDArray[Any], NDArray[np.bool_]]:
        """Labels, targets and null records; raises before any charge."""
        targets = _inputs.cells(y)
        if targets.shape != (rows.shape[0],):
            raise ValueError(
                f"y must hold one value per row: {rows.shape[0]} rows, y of shape {targets.shape}"
            )
        data = rows.data if hasattr(rows, "indptr") else rows
        broken = np.zeros(rows.shape[0], dtype=bool)
        if not np.all(np.isfinite(data)):
            dense = rows.toarray() if hasattr(rows, "indptr") else rows
            broken = ~np.isfinite(dense).all(axis=1)
        if not is_classifier(first):
            targets = _inputs.to_numbers(targets)
            broken |= ~np.isfinite(targets)
            if bad_rows == "error" and broken.any():
                _cells.refuse_target(int(np.argmax(broken)))
            return None, targets, broken
        declared = self.classes if self.classes is not None else getattr(first, "classes", None)
        labels = _fit.read_labels(targets, declared, bad_rows)
        return labels, targets, broken | (labels.codes < 0)

    def _state(
        self, plan: SelectionPlan, n_rows: int, labels: _fit.Labels | None, secure: bool
    ) -> PrivacyStatement:
        given = [f"the number of records, {n_rows}, is public"]
        if labels is not None:
            given.append(
                "the label set was declared by the user"
                if labels.declared
                else "THE LABEL SET WAS READ FROM THE PRIVATE DATA and is treated as public"
            )
        time = (
            "HOW LONG THE SEARCH TOOK: it tells the number of tries, without whose secrecy nothing is promised"
            if self.method == "tries"
            else "how long the search took and how much memory it used"
        )
        return PrivacyStatement.of(
            plan,
            bounds={"records": float(n_rows), "held-out records": float(self._n_held_out(n_rows))},
            assumptions=(*given, _fit.unit_assumption(plan.guarantee), *_ASSUMPTIONS),
            not_covered=(time, *_NOT_COVERED),
            secure=secure,
        )

    @available_if(_chosen_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict(X))

    @available_if(_chosen_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict_proba(X))

    @available_if(_chosen_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.decision_function(X))

    def score(self, X: Any, y: Any) -> float:
        """The chosen model's score, without noise: to be published only where X and y are public."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self._all()[0].__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.target_tags = inner.target_tags
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


class PrivateSearchCV(PrivateSelection):
    """Search over a grid of parameters with the surface of scikit-learn's ``GridSearchCV``, for one stated epsilon.

    Records are held out once instead of being folded: every fold would have to be paid for. There is no refit on all
    records for the same reason.

    Parameters
    ----------
    estimator : unfitted estimator of this package.
    param_grid : dict or list of dicts, as for ``GridSearchCV``.
    epsilon, delta, neighboring, method, expected_tries, tries, holdout, classes, ledger, bad_rows
        As for `PrivateSelection`.

    Attributes
    ----------
    best_params_ : parameters of the chosen candidate.
    best_estimator_, best_index_, best_score_, privacy_ : as for `PrivateSelection`.

    Privacy
    -------
    As for `PrivateSelection`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression, PrivateSearchCV
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> model = PrivateLogisticRegression(classes=[0, 1])
    >>> search = PrivateSearchCV(model, {"feature_bound": [0.01, 1.0], "l2": [1e-5, 1e-4]}).fit(X, y)
    >>> sorted(search.best_params_), search.privacy_.epsilon
    (['feature_bound', 'l2'], 1.0)
    """

    best_params_: dict[str, Any]

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        neighboring: str = "replace-one",
        method: str = "tries",
        expected_tries: float | None = None,
        tries: str = "geometric",
        holdout: float = 0.2,
        classes: Any = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.method = method
        self.expected_tries = expected_tries
        self.tries = tries
        self.holdout = holdout
        self.classes = classes
        self.ledger = ledger
        self.bad_rows = bad_rows

    def _all(self) -> list[Any]:
        refused = {"epsilon", "delta", "neighboring", "ledger"}
        for parameters in self._grid():
            if wrong := refused & set(parameters):
                raise ValueError(f"param_grid must not vary {sorted(wrong)}: the search sets them")
        return [clone(self.estimator).set_params(**parameters) for parameters in self._grid()]

    def _grid(self) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))

    def fit(self, X: Any, y: Any) -> PrivateSearchCV:
        """Search privately; charges the ledger once, before anything private runs."""
        super().fit(X, y)
        self.best_params_ = self._grid()[self.best_index_]
        return self


_ASSUMPTIONS = (
    "candidates were chosen without looking at the private data (given by the user)",
    "columns were scaled and chosen without looking at the private data (given by the user)",
    *_fit.PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = (
    "models that were not chosen, and their scores: they must not leave the trusted process",
    "scores and predictions computed on private rows and published afterwards",
    "other releases from the same data: their costs add up, which is what a ledger is for",
)
