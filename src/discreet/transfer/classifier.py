"""Private transfer for labels: disjoint teachers vote on public rows, and a student learns from the released votes.

Training a student is free, because the votes are public by then. `votes` has shape (n_rows, n_classes); each row sums
to zero (vote shares minus 1 / n_classes, or one-hot labels minus 1 / n_classes). The noise has mean zero and does not
depend on the row: models that average over similar rows (large leaves, strong penalties, many trees) average it away,
and the held-out votes of a student's predictions are an unbiased score.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, clone, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.estimators.parameters import budget, estimator, exceeding, parameter, public_labels
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import USUAL_EPSILON, PrivacyWarning
from discreet.records.open import class_count, read_labels
from discreet.release import carry_out
from discreet.transfer import base, teachers
from discreet.transfer.aggregation import labels_of
from discreet.transfer.base import as_table, note_columns
from discreet.transfer.plan import AGGREGATORS, TransferPlan, plan_votes
from discreet.transfer.students import TransferModel
from discreet.transfer.teachers import Poll, assign, seeded, take

_FOLDS = 3


def _student_has(method: str) -> Any:
    def found(model: Any) -> bool:
        if hasattr(model, "student_"):
            return hasattr(model.student_, method)
        return all(
            hasattr(RegressionStudent if is_regressor(unfitted) else unfitted, method)
            for unfitted in model._unfitted_students()
        )

    return found


def _listed(student: Any) -> list[Any]:
    return list(student) if isinstance(student, list | tuple) else [student]


@estimator
class PrivateTransferClassifier(ClassifierMixin, base.VoteParameters, TransferModel):  # type: ignore[misc]
    """Any classifier, made private by voting: teachers label public rows, a student learns from the labels.

    The private records are split into disjoint chunks, one model (a teacher) is trained on each, and the teachers vote
    on public, unlabeled rows. Either noisy votes are released (shares, plurality), or the winners that no single record
    can change (sparse vector). The student trained on them is an ordinary model that may be used without limit.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    student_ : the trained model.
    labels_ : released label of every public row, None without an answer (object array).
    votes_ : released noisy share of the teachers for every public row and class, minus 1 / K; None unless
        ``aggregator`` is "shares".
    n_answered_ : number of answers.
    privacy_ : the privacy statement.
    plan_ : the plan that was run.
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn.

    Notes
    -----
    Privacy: Relation ``neighboring``; one record changes one teacher (two where whole users are exchanged,
    because ids decide the chunk), and with it one vote per question, or one vector of votes of bounded norm. Event: see
    ``plan``. Chunks that are empty, that hold one class, or whose model fails give a vote that depends on the chunk
    alone, never an error. NumPy's and Python's global generators, and every ``random_state`` inside ``estimator``, are
    set from the teacher's own seed while it trains and votes, and restored afterwards; ``privacy_`` names what cannot
    be reached. Assumes that ``X_public`` is public.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(20000, 2)), rng.normal(size=(300, 2))
    >>> model = PrivateTransferClassifier(DecisionTreeClassifier(), classes=[0, 1], delta=1e-6, n_teachers=400)
    >>> model = model.fit(X, (X[:, 0] > 0).astype(int), public)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]]), model.privacy_.epsilon
    (array([1, 0]), 1.0)
    """

    estimator: Any = base.teachers_model("classifier")
    student: Any = parameter(
        None,
        "classifier, regressor or list of them",
        "Model that is trained on the public rows; None uses ``estimator``, for trees with larger leaves if these "
        "agree better with released votes. A classifier learns the winners, weighted by their noisy lead if its "
        "``fit`` takes weights; a regressor learns the noisy votes, and the class with the highest prediction wins. "
        "Of a list, the one is chosen that agrees best with released votes it was not trained on, which costs no "
        "privacy. Choose students that average out noise: large leaves, strong penalties, many trees.",
        positional=True,
    )
    n_teachers: int | str = base.teachers_count("takes what the aggregator needs")
    epsilon: float = budget("one fit")
    delta: float | None = exceeding("n_samples")
    aggregator: str = parameter(
        "auto",
        '{"auto", "shares", "sparse-vector", "plurality", "confident"}',
        '"shares" releases the noisy votes of all classes, from which a student learns most. "sparse-vector" pays only '
        "for questions on which teachers disagree, and suits teachers that mostly agree and very many public rows. "
        '"plurality" releases noisy winners only, "confident" those with enough votes. "auto" takes shares if neither '
        "``expected_unstable`` nor ``max_unstable`` is given.",
        positional=True,
    )
    classes: Any = public_labels(positional=True)
    _: KW_ONLY
    label_private: bool = parameter(
        False,
        "bool",
        "Whether all columns are public and only labels are protected; X itself may then be used as ``X_public``.",
    )
    X_public: Any = parameter(None, "array or data frame", "Public rows, for tools that call ``fit(X, y)``.")

    def plan(
        self, n_samples: int, n_queries: int, n_classes: int | None = None, *, by_group: bool = False
    ) -> TransferPlan:
        """Return what a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_queries : public sizes.
        n_classes : number of classes; None for those that are declared in ``classes``, or 2.
        by_group : whether ``fit`` will get user ids in ``groups``; then ``n_samples`` counts users.
        """
        chosen = base.settings(self, None, n_samples, by_group)
        return plan_votes(self, chosen, class_count(n_classes, self.classes), n_queries)

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        X_public: Any = None,
        *,
        groups: ArrayLike | None = None,
        target: str | None = None,
        schema: Any = None,
    ) -> PrivateTransferClassifier:
        """Train teachers on (X, y), label ``X_public`` privately, and train the student.

        Parameters
        ----------
        X, y : private rows and their labels. X may be a table of numbers that need not fit in memory (files, folders,
            queries: docs/scale.md), which is mapped and read chunk by chunk; its column ``target`` holds the labels.
            Or a Dask array or data frame: then teachers are trained on the workers, and only votes travel.
        X_public : public rows with the same columns, in memory; default: the constructor's, or X itself if
            ``label_private``.
        groups : user ids, one per row: all records of a user go to one teacher, and users are protected.
        target : name of the column of labels, if they are a column of X.
        schema : a `discreet.Schema` that makes rows and labels of a raw table; ``X_public`` has its features.
        """
        seed = _checks.seed(self.random_state)
        _checks.real("epsilon", self.epsilon, above=0, hint=USUAL_EPSILON)
        _checks.choice("aggregator", self.aggregator, AGGREGATORS)
        queries = self.X_public if X_public is None else X_public
        with base.opened(X, y, target, schema=schema, classes=self.classes) as (rows, labels):
            inputs = base.read_inputs(rows, labels, queries, groups, own=bool(self.label_private))
            return self._fit(inputs, groups, seed)

    def _fit(
        self, inputs: base.Inputs, groups: ArrayLike | None, seed: np.random.SeedSequence
    ) -> PrivateTransferClassifier:
        labels = read_labels(inputs.y, self.classes, "error", droppable=False)
        n_rows, by_group = inputs.X.shape[0], groups is not None
        chosen = base.settings(self, inputs.n_units, self.n_samples, by_group)
        plan = plan_votes(self, chosen, len(labels.classes), inputs.queries.shape[0])
        sizes = plan.sizes
        teachers.rehearse(self.estimator, inputs.queries, labels.classes, plan.n_samples // plan.n_teachers)

        opinions = plan.aggregator.name == "shares"
        poll = Poll(self.estimator, inputs.queries, labels.classes, plan.n_teachers, seed, opinions)

        def votes(entropy: Entropy) -> teachers.Votes:
            chunks = assign(n_rows, groups, plan.n_teachers, entropy)
            return teachers.collect_votes(poll, inputs.X, labels.codes, chunks, self.n_jobs)

        carried = carry_out(
            plan,
            votes,
            self.ledger,
            type(self).__name__,
            published=lambda release: {
                "labels_": labels_of(release.codes, labels.classes),
                "votes_": release.shares,
            },
        )
        self.released_ = dict(carried.published)
        self.plan_, self.classes_ = plan, labels.classes
        self.labels_, self.votes_ = labels_of(carried.release.codes, labels.classes), carried.release.shares
        self.n_answered_ = int((carried.release.codes >= 0).sum())
        note_columns(self, inputs.queries)
        stated = base.assumptions(labels, chosen.size, plan.guarantee, bool(self.label_private))
        self.privacy_ = base.state(carried, sizes, stated, inputs.X)
        try:
            return self.fit_student(inputs.queries)
        except Exception as error:
            error.add_note(
                "The votes are paid for and kept in labels_ and votes_: correct the student and call "
                "fit_student(X_public, student), which costs nothing."
            )
            raise

    def fit_student(self, X_public: Any, student: Any = None) -> PrivateTransferClassifier:
        """Train the student, or another one, on the released votes: free, and as often as you like.

        Parameters
        ----------
        X_public : the public rows that were labeled, in the same order.
        student : the model to train, or a list to choose from; None is the constructor's choice.
        """
        check_is_fitted(self, "labels_")
        queries = as_table("X_public", X_public)
        if queries.shape[0] != len(self.labels_):
            raise ParameterError("X_public", f"must hold the {len(self.labels_)} rows that were labeled")
        answered = np.flatnonzero([label is not None for label in self.labels_])
        known = self.labels_[answered].astype(self.classes_.dtype)
        if len(np.unique(known)) < 2:
            self.student_ = self._constant_student(queries, known)
            return self
        votes = self.votes_ if self.votes_ is not None else one_hot(known, self.classes_)
        models = self._unfitted_students() if student is None else _listed(student)
        if student is None and self.student is None and self.votes_ is not None:
            models += with_larger_leaves(self.estimator)
        if self.random_state is not None:
            seed = int(_checks.seed(self.random_state).generate_state(1)[0] >> np.uint32(1))
            models = [seeded(model, seed) for model in models]
        rows = take(queries, answered)
        self.student_ = fit_student(
            best_student(models, rows, votes, self.classes_), rows, votes, self.classes_
        )
        return self

    def _unfitted_students(self) -> list[Any]:
        return _listed(self.estimator if self.student is None else self.student)

    def _constant_student(self, queries: Any, known: NDArray[Any]) -> Any:
        label = known[0] if len(known) else self.classes_[0]
        what = "no public row got a label" if not len(known) else f"all answers were {label!r}"
        warnings.warn(
            f"{what}, so the student always predicts {label!r}. The budget is spent as stated. More records, fewer "
            "teachers that agree better, fewer questions, a larger epsilon, or aggregator='plurality' "
            "can help: see plan_",
            PrivacyWarning,
            stacklevel=4,
        )
        one_row = take(queries, slice(0, 1))
        return DummyClassifier(strategy="constant", constant=label).fit(one_row, np.array([label]))

    @available_if(_student_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probabilities, one column per label of ``classes_``."""
        check_is_fitted(self, "student_")
        found = np.asarray(self.student_.predict_proba(self._rows(X)), dtype=np.float64)
        full = np.zeros((len(found), len(self.classes_)))
        full[:, np.searchsorted(self.classes_, self.student_.classes_)] = found
        return full

    @available_if(_student_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the student's decision function."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.decision_function(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        parts = [get_tags(model).input_tags for model in (self.estimator, *self._unfitted_students())]
        tags.input_tags.sparse = all(part.sparse for part in parts)
        tags.input_tags.allow_nan = all(part.allow_nan for part in parts)
        tags.non_deterministic = True
        return tags


class RegressionStudent:
    """Regressors as a classifier: they predict the votes of every class, and the highest prediction wins."""

    def __init__(self, models: Sequence[Any], classes: NDArray[Any]) -> None:
        self.models = list(models)
        self.classes_ = classes

    def votes(self, X: Any) -> Array:
        """Return predicted votes of every class; one model is enough for two classes."""
        found = np.column_stack([model.predict(X) for model in self.models])
        return np.column_stack([-found, found]) if len(self.classes_) == 2 else found

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels."""
        return np.asarray(self.classes_[self.votes(X).argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Return predicted votes as shares: clipped to [0, 1] and normalized; they are not calibrated."""
        shares = np.clip(self.votes(X) + 1 / len(self.classes_), 0.0, 1.0)
        return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny))


def one_hot(labels: NDArray[Any], classes: NDArray[Any]) -> Array:
    """Return one-hot votes for known labels, minus 1 / n_classes."""
    return np.asarray((labels[:, np.newaxis] == classes).astype(np.float64) - 1 / len(classes))


def fit_student(model: Any, X: Any, votes: Array, classes: NDArray[Any]) -> Any:
    """Fit a classifier to the winners, weighted by their lead, or a regressor to the votes themselves."""
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


_LEAVES = (3, 5, 10, 20)


def with_larger_leaves(model: Any) -> list[Any]:
    """Copies of a model of trees, or of a pipeline with one, whose leaves hold more rows; none of other models."""
    leaves = {
        name: value
        for name, value in model.get_params(deep=True).items()
        if name.rpartition("__")[2] == "min_samples_leaf" and isinstance(value, int)
    }
    least = min(leaves.values(), default=max(_LEAVES))
    return [clone(model).set_params(**dict.fromkeys(leaves, size)) for size in _LEAVES if size > least]


def best_student(models: Sequence[Any], X: Any, votes: Array, classes: NDArray[Any]) -> Any:
    """Return the unfitted model whose predictions get the most votes on rows it was not trained on."""
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
    """Return the argument of ``fit`` that takes weights; None for models without one."""
    if isinstance(model, Pipeline):
        step, last = model.steps[-1]
        return f"{step}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(model, "sample_weight") else None
