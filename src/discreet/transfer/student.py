"""The student: any model, trained on public rows that were labelled privately by the vote of teachers."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from discreet import _inputs
from discreet.estimators import _fit
from discreet.mechanisms.entropy import fresh_entropy
from discreet.transfer import _path, teachers
from discreet.transfer.learn import RegressionStudent, best_student, fit_student, one_hot
from discreet.transfer.plan import TransferPlan, VoteRelease
from discreet.transfer.planner import plan_transfer
from discreet.transfer.rows import as_table, in_parts, note_columns, take

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement


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


class PrivateTransferClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier, made private by agreement: disjoint teachers label public rows, a student learns them.

    The private records are split into disjoint chunks, one model is trained on each, and the models vote on
    public, unlabelled rows. What is released are votes with noise (shares, plurality), or the winners that no single
    record can change (sparse vector). The student is trained on them: an ordinary model, free to use forever.

    Parameters
    ----------
    estimator : classifier
        Anything with the interface of scikit-learn: forests, boosting, neural networks, pipelines with their own
        preprocessing. Must be unfitted, and must hold nothing learned from the private data.
    student : classifier, regressor or list of them, default None
        Trained on the public rows; None uses ``estimator``. A classifier learns the winners, weighted by their noisy
        lead where its ``fit`` takes weights; a regressor learns the noisy votes, and the class with the highest
        prediction wins. Of a list the one is taken that agrees best with released votes it was not trained on, which
        costs no privacy. Noise wants students that average: large leaves, strong penalties, many trees.
    n_teachers : int or "auto"
        Disjoint chunks. "auto" takes what the aggregator needs, with at least 50 records each; see ``plan``.
    epsilon, delta : float
        Budget of one fit; delta None is 1 / n_samples**2.
    aggregator : {"auto", "shares", "sparse-vector", "plurality", "confident"}
        Shares releases the noisy votes of all classes, from which a student learns most. Sparse vector pays for
        unstable questions only, and suits teachers that mostly agree and very many public rows. Plurality releases
        noisy winners only. "auto" takes shares if the records suffice and ``expected_unstable`` is not given.
    classes : list, default None
        The public label set; None reads it from the data, with a warning and a note in the statement.
    max_unstable : int or "auto"
        Unstable questions after which sparse vector halts.
    expected_unstable : float, default None
        Public guess of the share of questions on which teachers disagree, for "auto" to decide by.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Under "add-remove-one" the number of rows is private, and ``n_samples`` declares an upper bound.
    n_samples : int, default None
        Public number of records, or bound on it; of users where ``fit`` gets ``groups``, whose numbers of records
        are private. Everywhere else too, ``delta`` and records per teacher included, users are counted then.
    label_private : bool, default False
        All columns are public and only labels are protected; then X itself may serve as ``X_public``.
    X_public : array or data frame, default None
        Public rows, for tools that call ``fit(X, y)``.
    n_jobs : int, default None
        Processes for the teachers, as in joblib.
    ledger : Ledger or path, default None
        Charged once, before anything private runs.
    random_state : None, int or SeedSequence
        Seeds of the teachers and of the student; never of the privacy noise.

    Attributes
    ----------
    student_ : the trained model.
    labels_ : released label of every public row, None where there is no answer (object array).
    votes_ : released noisy share of the teachers for every public row and class, less 1 / K; None unless
        ``aggregator`` is "shares".
    n_answered_ : number of answers.
    privacy_ : the privacy statement.
    plan_ : the plan that was run.
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn.

    Privacy
    -------
    Relation ``neighboring``; one record changes one teacher (two where whole users are exchanged, because ids decide
    the chunk), hence one vote per question or one opinion of bounded length. Event: see ``plan``. Chunks that are
    empty, that hold one class, or whose model fails give a vote that depends on the chunk alone, never an error.
    Assumes that ``X_public`` is public.

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

    student_: Any
    labels_: NDArray[Any]
    votes_: NDArray[np.float64] | None
    n_answered_: int
    classes_: NDArray[Any]
    privacy_: PrivacyStatement
    plan_: TransferPlan

    def __init__(
        self,
        estimator: Any,
        student: Any = None,
        n_teachers: int | str = "auto",
        epsilon: float = 1.0,
        delta: float | None = None,
        aggregator: str = "auto",
        classes: Any = None,
        *,
        max_unstable: int | str = "auto",
        expected_unstable: float | None = None,
        neighboring: str = "replace-one",
        n_samples: int | None = None,
        label_private: bool = False,
        X_public: Any = None,
        n_jobs: int | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.student = student
        self.n_teachers = n_teachers
        self.epsilon = epsilon
        self.delta = delta
        self.aggregator = aggregator
        self.classes = classes
        self.max_unstable = max_unstable
        self.expected_unstable = expected_unstable
        self.neighboring = neighboring
        self.n_samples = n_samples
        self.label_private = label_private
        self.X_public = X_public
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state

    def plan(
        self, n_samples: int, n_queries: int, n_classes: int = 2, *, by_group: bool = False
    ) -> TransferPlan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_queries, n_classes : public sizes.
        by_group : whether ``fit`` will get user ids in ``groups``; then ``n_samples`` counts users.
        """
        chosen = _path.settings(self, None, n_samples, by_group)
        return plan_transfer(
            chosen.guarantee,
            chosen.size,
            n_classes,
            n_queries,
            n_teachers=self.n_teachers,
            aggregator=self.aggregator,
            max_unstable=self.max_unstable,
            expected_unstable=self.expected_unstable,
            changed=chosen.changed,
        )

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        X_public: Any = None,
        *,
        groups: ArrayLike | None = None,
        target: str | None = None,
    ) -> PrivateTransferClassifier:
        """Train teachers on (X, y), label ``X_public`` privately, train the student.

        Parameters
        ----------
        X, y : private rows and their labels. X may be the path of a Parquet file of numbers, which is mapped and read
            chunk by chunk; its column ``target`` holds the labels. Or a Dask array or data frame: then teachers are
            trained on the workers, and only votes travel.
        X_public : public rows with the same columns, in memory; default: the constructor's, or X itself if
            ``label_private``.
        groups : user ids, one per row: all records of a user go to one teacher, and users are protected.
        target : name of the column of labels, for files.
        """
        seed = _inputs.seed(self.random_state)
        with _path.opened(X, y, target) as (rows, labels):
            return self._fit(
                _path.read_inputs(rows, labels, self._queries(rows, X_public), groups), groups, seed
            )

    def _fit(
        self, inputs: _path.Inputs, groups: ArrayLike | None, seed: np.random.SeedSequence
    ) -> PrivateTransferClassifier:
        labels = _fit.read_labels(inputs.y, self.classes, "error", droppable=False)
        n_rows, by_group = inputs.X.shape[0], groups is not None
        chosen = _path.settings(self, _path.n_units(n_rows, groups), self.n_samples, by_group)
        plan = self.plan(chosen.size, inputs.queries.shape[0], len(labels.classes), by_group=by_group)
        teachers.rehearse(self.estimator, inputs.queries, labels.classes, plan.n_samples // plan.n_teachers)
        _fit.charge(self.ledger, plan, type(self).__name__)
        entropy = fresh_entropy()
        chunks = _path.assign(n_rows, groups, plan.n_teachers, entropy)
        with _path.training(plan.n_teachers, self.n_jobs, n_rows) as step:
            votes = teachers.collect_votes(
                self.estimator,
                inputs.X,
                labels.codes,
                chunks,
                inputs.queries,
                labels.classes,
                plan.n_teachers,
                seed,
                self.n_jobs,
                step,
                plan.aggregator.name == "shares",
            )
        release = plan.run(votes, entropy)
        del votes, chunks
        self._publish(plan, release, labels.classes, inputs.queries)
        stated = _path.assumptions(labels, chosen.size, plan.guarantee, bool(self.label_private))
        self.privacy_ = _path.state(plan, plan.sizes, stated, release.secure)
        try:
            return self.fit_student(inputs.queries)
        except Exception as error:
            error.add_note(
                "The votes are paid for and kept in labels_ and votes_: correct the student and call "
                "fit_student(X_public, student), which costs nothing."
            )
            raise

    def fit_student(self, X_public: Any, student: Any = None) -> PrivateTransferClassifier:
        """Train the student, or another one, on what was released: free, and as often as you like.

        Parameters
        ----------
        X_public : the public rows that were labelled, in the same order.
        student : the model to train, or a list to choose from; None is the constructor's choice.
        """
        check_is_fitted(self, "labels_")
        queries = as_table("X_public", X_public)
        if queries.shape[0] != len(self.labels_):
            raise ValueError(f"X_public must hold the {len(self.labels_)} rows that were labelled")
        answered = np.flatnonzero([label is not None for label in self.labels_])
        known = self.labels_[answered].astype(self.classes_.dtype)
        if len(np.unique(known)) < 2:
            self.student_ = self._constant_student(queries, known)
            return self
        votes = self.votes_ if self.votes_ is not None else one_hot(known, self.classes_)
        models = self._unfitted_students() if student is None else _listed(student)
        if self.random_state is not None:
            seed = int(_inputs.seed(self.random_state).generate_state(1)[0] >> np.uint32(1))
            models = [teachers.seeded(model, seed) for model in models]
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
            f"{what}, so that the student is the constant {label!r}. The budget is spent as stated. With more records "
            "or fewer teachers that agree better, with fewer questions, a larger epsilon, or "
            "aggregator='plurality', more can be learned: see plan_",
            _fit.PrivacyWarning,
            stacklevel=4,
        )
        one_row = take(queries, slice(0, 1))
        return DummyClassifier(strategy="constant", constant=label).fit(one_row, np.array([label]))

    def _queries(self, X: Any, X_public: Any) -> Any:
        queries = X_public if X_public is not None else self.X_public
        if queries is None and self.label_private and not in_parts(X):
            return X
        if queries is None:
            raise ValueError(
                "fit needs public rows to label: pass X_public, without labels and with the columns of X; or, if all "
                "columns are public and only labels are private, label_private=True"
            )
        return queries

    def _publish(self, plan: TransferPlan, release: VoteRelease, classes: NDArray[Any], queries: Any) -> None:
        """Set fitted attributes from released answers and public facts only."""
        codes = release.codes
        self.plan_ = plan
        self.classes_ = classes
        self.votes_ = release.shares
        self.labels_ = np.full(len(codes), None, dtype=object)
        self.labels_[codes >= 0] = classes[codes[codes >= 0]]
        self.n_answered_ = int((codes >= 0).sum())
        note_columns(self, queries)

    def predict(self, X: Any) -> NDArray[Any]:
        """The student's labels."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(X))

    @available_if(_student_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The student's probabilities, one column per label of ``classes_``."""
        check_is_fitted(self, "student_")
        found = np.asarray(self.student_.predict_proba(X), dtype=np.float64)
        full = np.zeros((len(found), len(self.classes_)))
        full[:, np.searchsorted(self.classes_, self.student_.classes_)] = found
        return full

    @available_if(_student_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The student's decision function."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.decision_function(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        parts = [get_tags(model).input_tags for model in (self.estimator, *self._unfitted_students())]
        tags.input_tags.sparse = all(part.sparse for part in parts)
        tags.input_tags.allow_nan = all(part.allow_nan for part in parts)
        tags.non_deterministic = True
        return tags
