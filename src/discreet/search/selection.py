"""Private search over candidates, with the interface of scikit-learn's search classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import Habits, ParameterError, Setting, calm
from discreet.estimators.groups import bounded_rows
from discreet.estimators.linear import released, unfitted
from discreet.estimators.parameters import (
    REQUIRED,
    Charged,
    budget,
    estimator,
    exceeding,
    parameter,
    relation,
)
from discreet.mechanisms.repetition import permutation
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.accounting.repetition import LAWS, law_with_mean
from discreet.privacy.guarantee import Guarantee, guarantee_of, refuse_large_default
from discreet.privacy.page import ShowsPromise
from discreet.privacy.statement import OTHER_RELEASES, PrivacyStatement
from discreet.records.arrow import FileRows
from discreet.records.bounds import Bounds
from discreet.records.open import (
    Labels,
    Rows,
    blanked,
    checked_rows,
    class_count,
    open_rows,
    read_labels,
    refuse_row,
    refuse_target,
    take,
)
from discreet.release import (
    NOT_CHECKED,
    PLATFORM_ASSUMPTIONS,
    Carried,
    carry_out,
    foreign_parts,
    size_facts,
    unit_assumption,
)
from discreet.search.plans import (
    Chosen,
    OnePlan,
    Records,
    SelectionPlan,
    Trainer,
    TriesPlan,
    check_candidate,
    examine,
    plan_split,
    plan_tries,
    planned,
    prepared,
)
from discreet.tables.reading import as_cells, to_numbers

if TYPE_CHECKING:
    from discreet.privacy.events import Event

METHODS = ("tries", "split", "split-parallel")


def _chosen_has(name: str) -> Any:
    return lambda search: hasattr(getattr(search, "best_estimator_", search._example()), name)


@estimator
class SearchParameters(Charged):
    """Parameters of both searches, after the candidates and the budget."""

    _: KW_ONLY
    neighboring: str = relation(
        '"add-remove-one" is refused, because the sizes of the two parts would be private.',
        *("replace-one", "zero-out"),
    )
    method: str = parameter(
        "tries",
        '{"tries", "split", "split-parallel"}',
        '"tries": train a random candidate and score it with noise, a random number of times, and release the best. '
        'Its price hardly depends on the number of candidates. "split": train every candidate on the same records, at '
        'the price of all fits together, and choose one by the exponential mechanism. "split-parallel": train every '
        "candidate on its own records, each with the whole budget.",
    )
    expected_tries: float | None = parameter(
        None,
        "float",
        'For "tries"; None is twice the number of candidates, or a single fit on all records if there is one.',
    )
    tries: str = parameter(
        "geometric",
        '{"geometric", "logarithmic", "poisson"}',
        'Distribution of the number of tries. "logarithmic" costs least and often tries only once; "poisson" costs '
        "most and hardly ever does.",
    )
    holdout: float = parameter(
        0.2, "float", "Share of the records used to compare models, and not for training."
    )
    classes: Any = parameter(
        None,
        "list",
        "The public label set; None takes the first candidate's, or reads it from the data with a warning.",
    )
    bad_rows: str = parameter(
        "error",
        '{"error", "null"}',
        "What to do with rows that are not finite, have an entry beyond 2**300 or an unknown label; null rows count in "
        "neither training nor scores.",
    )
    max_rows_per_group: int | None = parameter(
        None,
        "int",
        "Protect people, with ``fit(..., groups=ids)``: use at most this many rows of each, and hold out people "
        "instead of rows. Choose it without looking at the data; the candidates' own must be None.",
    )


class PrivateSearch(ShowsPromise, Habits, SearchParameters, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Shared by both searches; a subclass lists the candidates in ``_all``, and gives one in ``_example``."""

    epsilon: float
    delta: float | None
    best_estimator_: Any
    best_index_: int
    best_score_: float | None
    privacy_: PrivacyStatement

    def _all(self) -> list[Any]:
        """Return the unfitted candidates."""
        raise NotImplementedError

    def _example(self) -> Any:
        """Return one candidate, which shows the methods of a search before it is fitted; None if there is none."""
        raise NotImplementedError

    def plan(
        self, n_samples: int, n_features: int, n_classes: int | None = None, *, sparse: bool = False
    ) -> SelectionPlan:
        """Return what a search on data of this shape would run and cost; no data is needed.

        With ``max_rows_per_group``, ``n_samples`` counts places: the number of people times that bound. ``n_classes``
        None stands for those that are declared in ``classes``, or 2.
        """
        candidates = self._checked()
        guarantee, size = guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        refuse_large_default(self.delta, size)
        if not guarantee.neighboring.size_is_public:
            raise ParameterError(
                "neighboring",
                "must make the numbers of training and held-out records public",
                Setting("neighboring", "replace-one", "zero-out"),
            )
        rows = self._rows_per_group()
        if rows is not None:
            guarantee = replace(guarantee, unit="user")
        per_unit = rows or 1
        n_train = size - per_unit * self._n_held_out(size // per_unit, len(candidates))
        classifies = is_classifier(candidates[0])
        kinds = class_count(n_classes, self._declared(candidates[0])) if classifies else None

        def plan_candidate(index: int, one: Guarantee, n_each: int) -> Event:
            # Labels decide nothing but their number, so a plan may use any label set of this size.
            labels = None if kinds is None else np.arange(kinds)
            ready = prepared(candidates[index], one, labels, self.bad_rows, rows)
            return planned(ready, n_each, n_features, kinds, sparse=sparse).event

        method = _checks.choice("method", self.method, METHODS)
        if self._chooses_nothing(len(candidates)):
            return OnePlan(guarantee, plan_candidate(0, guarantee, n_train))
        if method == "tries":
            mean = 2.0 * len(candidates) if self.expected_tries is None else self.expected_tries
            law = law_with_mean(
                _checks.choice("tries", self.tries, LAWS), _checks.real("expected_tries", mean)
            )
            return plan_tries(plan_candidate, len(candidates), n_train, guarantee, law, per_unit)
        training = "composed" if method == "split" else "parallel"
        if training == "parallel" and n_train // per_unit < 2 * len(candidates):
            raise ValueError(f"{n_train} training records are too few for {len(candidates)} disjoint parts")
        return plan_split(plan_candidate, len(candidates), n_train, guarantee, training, per_unit)  # type: ignore[arg-type]

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, target: str | None = None, schema: Any = None
    ) -> Self:
        """Search privately; charges the ledger once, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features); or a source of rows, such as a
            folder or a query (docs/scale.md), whose rows stay in a mapped file unless a candidate reads single rows.
        y : labels or targets, one per row.
        groups : ids of people, one per row, with ``max_rows_per_group``.
        target, schema : the column of labels, if they are a column of X, and what makes rows of a raw table.
        """
        fitted = unfitted(self)
        rules = {"classes": self.classes, "bad_rows": self.bad_rows}
        with calm(), open_rows(X, y, target, schema=schema, **rules) as (rows, labels):
            fitted._search(rows, labels, groups)
        self.__dict__ = fitted.__dict__
        return self

    def _search(self, X: Any, y: Any, groups: Any) -> None:
        candidates = self._checked()
        storage = X.assumptions if isinstance(X, Rows) else ()
        if isinstance(X, Rows) and not isinstance(X, FileRows):
            raise ValueError(
                "a search needs rows in memory or in a source: compute the collection, or write files"
            )
        records, labels = self._records(candidates[0], X, y, groups)
        n_rows, n_columns = records.X.shape
        known = None if labels is None else labels.classes
        n_classes = 2 if known is None else len(known)
        plan = self.plan(n_rows, n_columns, n_classes, sparse=bool(sp.issparse(records.X)))
        rows = self._rows_per_group()
        ready = [prepared(one, plan.fit_guarantee, known, self.bad_rows, rows) for one in candidates]
        n_units = n_rows // (rows or 1)
        n_held_out = self._n_held_out(n_units, len(candidates))
        n_each = (n_units - n_held_out) // (len(ready) if self.method == "split-parallel" else 1)
        sizes = n_each * (rows or 1), n_columns, None if known is None else n_classes
        if not all(planned(one, *sizes).sums_only for one in ready):
            records = records.in_memory()
        examine(ready, records)

        def split(entropy: Entropy) -> Trainer:
            order = permutation(n_units, entropy)
            return Trainer(ready, records, order[n_held_out:], order[:n_held_out], rows)

        def published(chosen: Chosen) -> dict[str, Any]:
            if hasattr(self, "feature_names_in_"):
                # It was trained on bare rows, but must still refuse columns in another order.
                chosen.model.feature_names_in_ = self.feature_names_in_
            return released(chosen.model)

        carried = carry_out(plan, split, self.ledger, type(self).__name__, published=published)
        chosen = carried.release
        self.best_index_, self.best_estimator_ = chosen.index, chosen.model
        # With several rows per person, the number of held-out rows is private, so their share cannot be given.
        shared = chosen.score is not None and rows in (None, 1)
        self.best_score_ = min(1.0, max(0.0, chosen.score / n_held_out)) if shared else None  # type: ignore[operator]
        if known is not None:
            self.classes_ = known
        self.best_estimator_.released_ = dict(carried.published)
        self.privacy_ = self._state(plan, carried, n_rows, labels, storage)
        # The chosen model carries the statement of the whole search.
        self.best_estimator_.privacy_ = self.privacy_
        self.best_estimator_.set_params(ledger=self.ledger)  # another fit would be charged again

    def _checked(self) -> list[Any]:
        candidates = self._all()
        if not candidates:
            raise ValueError("there is nothing to choose from: pass at least one candidate")
        for candidate in candidates:
            check_candidate(candidate)
        if len({is_classifier(one) for one in candidates}) > 1:
            raise ParameterError("candidates", "must be all classifiers or all regressors of this package")
        if is_regressor(candidates[0]) and len({one._target_range() for one in candidates}) > 1:
            raise ParameterError(
                "candidates",
                "must have the same target_bounds: they are compared by their errors as shares of "
                "that range, so that the widest would seem best. Declare one range for all of them",
            )
        return candidates

    def _rows_per_group(self) -> int | None:
        return _checks.count_or_none("max_rows_per_group", self.max_rows_per_group)

    def _chooses_nothing(self, n_candidates: int) -> bool:
        """Whether there is one candidate, and nobody asked for several tries of it."""
        return n_candidates == 1 and (self.method != "tries" or self.expected_tries is None)

    def _n_held_out(self, n_rows: int, n_candidates: int) -> int:
        share = _checks.real("holdout", self.holdout, above=0)
        if share >= 1 or n_rows < 4:
            raise ParameterError(
                "holdout", f"must lie between 0 and 1 and leave records to train on, got {self.holdout!r}"
            )
        return 0 if self._chooses_nothing(n_candidates) else min(n_rows - 2, max(1, round(share * n_rows)))

    def _declared(self, first: Any) -> Any:
        """The public label set: that of the search, or of its first candidate; None if neither declares one."""
        return self.classes if self.classes is not None else getattr(first, "classes", None)

    def _records(self, first: Any, X: Any, y: Any, groups: Any = None) -> tuple[Records, Labels | None]:
        """Return all records, with null ones blanked, and the label set; raises before any charge.

        What happens to a record depends on that record alone, or on the rows of its person. With groups, every person
        has as many places as rows may be used; empty places hold null records.
        """
        strict = _checks.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        rows: Any = checked_rows(self, X, strict=strict, reset=True)
        cells = as_cells(y)
        if cells.shape != (rows.shape[0],):
            raise ParameterError(
                "y", f"must hold one value per row: {rows.shape[0]} rows, y of shape {cells.shape}"
            )
        slots = bounded_rows(groups, self._rows_per_group(), len(cells), strict=strict, padded=True)
        empty = np.zeros(len(cells), dtype=bool) if slots is None else slots.empty
        if slots is not None:
            rows, cells = take(rows, slots.rows), cells[slots.rows]
        mapped = isinstance(rows, Rows)  # null rows of a file are blanked when they are read
        usable = rows.valid(Bounds()) if mapped else Bounds().valid_rows(rows)
        if mapped and strict and not usable.all():
            refuse_row(int(np.argmin(usable)))
        usable = usable & ~empty
        if is_classifier(first):
            labels = read_labels(cells, self._declared(first), self.bad_rows)
            codes = np.where(usable, labels.codes, -1)
            known = labels.classes if strict else np.array([*labels.classes.tolist(), None], dtype=object)
            return Records(rows if mapped else blanked(rows, codes < 0), known[codes], codes, empty), labels
        numbers = to_numbers(cells)
        if strict and not np.all(finite := np.isfinite(numbers)):
            refuse_target(int(np.argmin(finite)))
        truth = np.where(usable & np.isfinite(numbers), numbers, np.nan)
        rows = rows if mapped else blanked(rows, np.isnan(truth))
        return Records(rows, np.where(empty, numbers, truth), truth, empty), None

    def _state(
        self,
        plan: SelectionPlan,
        carried: Carried[Chosen],
        n_rows: int,
        labels: Labels | None,
        storage: tuple[str, ...],
    ) -> PrivacyStatement:
        rows = self._rows_per_group()
        given = [*size_facts(plan.guarantee.neighboring, n_rows, rows, plan.guarantee.delta)]
        if labels is not None:
            given.append(labels.assumption)
        for candidate in self._checked():  # any of them may have been tried
            inside = getattr(candidate, "constraint", None)
            given += [fact for fact in foreign_parts(candidate.solver, inside) if fact not in given]
        time = (
            "HOW LONG THE SEARCH TOOK: it reveals the number of tries, which must stay secret for the guarantee to hold"
            if isinstance(plan, TriesPlan)
            else "how long the search took and how much memory it used"
        )
        fit = carried.release.model.privacy_
        made = carried.state(
            bounds={
                **fit.bounds,
                "records": float(n_rows),
                "held-out records": float(
                    (rows or 1) * self._n_held_out(n_rows // (rows or 1), len(self._checked()))
                ),
            },
            assumptions=(*given, *storage, unit_assumption(plan.guarantee), *_ASSUMPTIONS),
            not_covered=(time, *_NOT_COVERED),
        )
        return replace(made, secure=carried.secure and fit.secure)

    @available_if(_chosen_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Return predictions of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict(X))

    @available_if(_chosen_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return probabilities of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict_proba(X))

    @available_if(_chosen_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return scores of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.decision_function(X))

    def score(self, X: Any, y: Any) -> float:
        """Return the chosen model's score, without noise: publish it only if X and y are public."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        example = self._example()
        if hasattr(example, "__sklearn_tags__"):
            inner = example.__sklearn_tags__()
            tags.estimator_type = inner.estimator_type
            tags.classifier_tags = inner.classifier_tags
            tags.regressor_tags = inner.regressor_tags
            tags.target_tags = inner.target_tags
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


_ASSUMPTIONS = (
    "candidates were chosen without looking at the private data (given by the user)",
    NOT_CHECKED,
    *PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = (
    "models that were not chosen, and their scores: they must not leave the trusted process",
    "scores and predictions computed on private rows and published afterwards",
    OTHER_RELEASES,
)


@estimator
class PrivateSelection(PrivateSearch):
    """Choose the best of several private models privately; the stated epsilon covers training and choosing.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    best_estimator_, best_index_ : the released model, which carries the statement of the whole search, and the index of
        its candidate.
    best_score_ : its noisy share of right answers (or mean of 1 - squared error over squared range), included in the
        price under "tries"; None under "split", for one candidate, and if people may have several rows. As the best of
        several scores it is optimistic: evaluate on other data.
    privacy_ : the `PrivacyStatement` of the whole search.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of everything released; docs/proofs/selection.md. NOT covered under "tries": how
    long the search took, because it tells the number of tries, which must stay secret. No table of all scores is
    kept: it would have to be paid for.

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

    candidates: Sequence[Any] = parameter(
        REQUIRED,
        "list of unfitted linear models of this package",
        "All classifiers, or all regressors with the same ``target_bounds``. Pipelines are not supported: encode the "
        "rows first. The search replaces their epsilon, delta, relation and ledger by its own.",
        positional=True,
    )
    epsilon: float = budget("the whole search")
    delta: float | None = exceeding("n_samples", "which needs 32 records")

    def _all(self) -> list[Any]:
        return list(self.candidates)

    def _example(self) -> Any:
        return next(iter(self.candidates), None)


@estimator
class PrivateSearchCV(PrivateSearch):
    """Search over a grid of parameters with the interface of scikit-learn's ``GridSearchCV``, for one stated epsilon.

    Records are held out once instead of in folds, because every fold would use budget. For the same reason
    there is no refit on all records.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    best_params_ : parameters of the chosen candidate.
    best_estimator_, best_index_, best_score_, privacy_ : as for `PrivateSelection`.

    Notes
    -----
    Privacy: As for `PrivateSelection`.

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

    estimator: Any = parameter(
        REQUIRED, "unfitted linear model of this package", "What the grid varies.", positional=True
    )
    param_grid: Any = parameter(
        REQUIRED,
        "dict or list of dicts",
        "As for ``GridSearchCV``; the privacy parameters are not varied.",
        positional=True,
    )
    epsilon: float = budget("the whole search")
    delta: float | None = exceeding("n_samples", "which needs 32 records")

    def _all(self) -> list[Any]:
        refused = {"epsilon", "delta", "neighboring", "ledger", "max_rows_per_group"}
        for parameters in self._grid():
            if wrong := refused & set(parameters):
                raise ParameterError("param_grid", f"must not vary {sorted(wrong)}: the search sets them")
        return [clone(self.estimator).set_params(**parameters) for parameters in self._grid()]

    def _example(self) -> Any:
        return self.estimator

    def _grid(self) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, target: str | None = None, schema: Any = None
    ) -> Self:
        """Search privately; charges the ledger once, before anything private runs; see `PrivateSelection`."""
        super().fit(X, y, groups=groups, target=target, schema=schema)
        self.best_params_: dict[str, Any] = self._grid()[self.best_index_]
        return self
