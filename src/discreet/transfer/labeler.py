"""A private labeler: answers a stream of questions, abstains when unsure, and halts when its budget is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, silence
from discreet.estimators.parameters import budget, estimator, exceeding, parameter, public_labels
from discreet.mechanisms.voting import Counts
from discreet.records.open import class_count, read_labels
from discreet.release import begin
from discreet.transfer import base, teachers
from discreet.transfer.aggregation import labels_of
from discreet.transfer.base import Columns, as_table, check_same_columns
from discreet.transfer.held_stream import BudgetSpent, HeldStream
from discreet.transfer.plan import TransferPlan, plan_votes
from discreet.transfer.teachers import assign

__all__ = ["BudgetSpent", "PrivateLabeler"]


@estimator
class PrivateLabeler(base.VoteParameters, HeldStream):
    """Answer questions about new rows, one by one, by the private vote of teachers on disjoint records.

    The budget is charged once, by ``fit``, for the whole stream. By default every question gets the winner of a noisy
    plurality, and the stream ends after ``n_queries`` of them. With ``aggregator="sparse-vector"``, or a number of
    refusals ``max_unstable``, stable answers are free and only abstentions count: right for teachers that almost always
    agree, and for very long streams. Questions may depend on earlier answers.

    Unless the questions are known beforehand, the teachers are kept until the stream halts. If all questions come from
    a public ``pool``, the teachers vote on it once, in ``fit``, and only their votes are kept.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    halted : whether the budget is spent.
    remaining : what remains, by name.
    privacy_ : the statement about all answers of the labeler.
    plan_ : the plan.

    Notes
    -----
    Privacy: all answers together, including abstentions and the moment of halting, have the guarantee of ``privacy_``.
    Until it halts, the labeler itself is as private as the data: it holds the teachers, or their votes on the pool,
    and the noise of the running threshold. Publish its answers, never the object or its file. Pickling, copying and
    forking are refused, because two copies would spend one budget twice; ``save`` keeps a stream in one file that only
    the last holder can use. No file can prevent that a copy of it is continued, too. When the stream halts, or with
    ``close``, its answers are bound to the charge (the ledger stores their `answers_digest`), and teachers, votes and
    the threshold are deleted, in the file as well. Only the number and names of the private table's columns remain,
    which are public.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(10000, 2))
    >>> model = DecisionTreeClassifier(random_state=0)
    >>> labeler = PrivateLabeler(model, n_queries=50, n_teachers=200, max_unstable=1, delta=1e-6, classes=[0, 1])
    >>> labeler = labeler.fit(X, (X[:, 0] > 0).astype(int))
    >>> labeler.label([[3.0, 0.0]]), labeler.halted
    (array([1], dtype=object), False)
    """

    _noun = "labeler"
    _missing = "has no teachers yet; call fit(X, y) first"
    _held = "teachers that are as private as the data"
    _plan_type = TransferPlan
    _SECRET = ("_teachers", "_votes")

    estimator: Any = base.teachers_model("classifier")
    n_queries: int = parameter(
        1000,
        "int",
        "Questions to plan for. Sparse vector may be asked more; a plurality stops there.",
        positional=True,
    )
    n_teachers: int | str = base.teachers_count("takes what the aggregator needs")
    epsilon: float = budget("the whole stream")
    delta: float | None = exceeding("n_samples")
    aggregator: str = parameter(
        "auto",
        '{"auto", "plurality", "confident", "sparse-vector"}',
        'How votes become answers. "plurality" and "confident" release noisy winners, "sparse-vector" pays only for '
        'unstable questions. "auto" is "sparse-vector" with ``max_unstable``, and otherwise "plurality" unless the '
        "other needs fewer teachers that agree.",
        positional=True,
    )
    classes: Any = public_labels(positional=True)

    def plan(self, n_samples: int, n_classes: int | None = None, *, by_group: bool = False) -> TransferPlan:
        """What ``fit`` would run and cost; no data is needed. With ``by_group`` sizes count users.

        ``n_classes`` None stands for those that are declared in ``classes``, or 2.
        """
        chosen = base.settings(self, None, n_samples, by_group)
        return plan_votes(self, chosen, class_count(n_classes, self.classes), self.n_queries, stream=True)

    def fit(
        self, X: Any, y: ArrayLike, *, pool: Any = None, groups: ArrayLike | None = None
    ) -> PrivateLabeler:
        """Charge the budget of the whole stream, train the teachers, and draw the first threshold.

        Parameters
        ----------
        X, y : private rows and their labels.
        pool : public rows that `label_rows` may ask about later; then the teachers are not kept.
        groups : user ids, one per row.
        """
        if hasattr(self, "plan_"):
            raise RuntimeError("this labeler has a running stream; make a new one for other data")
        seed = _checks.seed(self.random_state)
        inputs = base.read_inputs(X, y, X if pool is None else pool, groups)
        labels = read_labels(inputs.y, self.classes, "error", droppable=False)
        n_rows, by_group = inputs.X.shape[0], groups is not None
        chosen = base.settings(self, inputs.n_units, self.n_samples, by_group)
        plan = plan_votes(self, chosen, len(labels.classes), self.n_queries, stream=True)
        if pool is not None:
            teachers.rehearse(
                self.estimator, inputs.queries, labels.classes, plan.n_samples // plan.n_teachers
            )
        elif isinstance(inputs.X, np.ndarray) and inputs.X.dtype.kind in "iuf":
            # No rows are public, so these are synthetic.
            shape = (plan.n_samples // plan.n_teachers, inputs.X.shape[1])
            made_up = np.sin(np.arange(math.prod(shape)) ** 2.0).reshape(shape)
            teachers.rehearse(self.estimator, made_up, labels.classes, len(made_up))
        begun = begin(plan, self.ledger, type(self).__name__)
        with silence():
            chunks = assign(n_rows, groups, plan.n_teachers, begun.release)
            shared = self.estimator, inputs.X, labels.codes, chunks
            last = labels.classes, plan.n_teachers, seed, self.n_jobs
            if pool is None:
                self._teachers = teachers.train_all(*shared, *last)
            else:
                self._votes = teachers.collect_votes(*shared, inputs.queries, *last)
        self.plan_, self.classes_ = plan, labels.classes
        self._columns = Columns.of(inputs.X)  # to check the columns of questions
        stated = base.assumptions(labels, chosen.size, plan.guarantee, label_private=False)
        self.privacy_ = base.state(begun, plan.sizes, stated)
        self._begin(plan.start(begun.release), begun)
        return self

    def label(self, X: Any) -> NDArray[Any]:
        """Label some rows, in order; None if the labeler abstains or has halted on the way.

        Raises
        ------
        BudgetSpent
            If the labeler had halted before the first row.
        """
        self._check_asking()
        if hasattr(self, "_votes"):
            raise TypeError(
                "this labeler keeps votes on its pool only: ask by row number, label_rows([0, 1, ...])"
            )
        X = as_table("X", X)
        check_same_columns(self._columns, X, "X")
        return self._answer(lambda: self._count(X))

    def label_rows(self, rows: ArrayLike) -> NDArray[Any]:
        """Label rows of the pool, by number and in order; otherwise as `label`.

        Parameters
        ----------
        rows : row numbers of the pool passed to ``fit``, counted from 0.
        """
        self._check_asking()
        if not hasattr(self, "_votes"):
            raise TypeError("this labeler has no pool; ask with label(X), or fit with pool=X_public")
        places = np.asarray(rows)
        if places.ndim != 1 or places.dtype.kind not in "iu":
            raise ParameterTypeError("rows", "must be a list of row numbers of the pool")
        if np.any((places < 0) | (places >= len(self._votes))):
            raise ParameterError(
                "rows", f"must lie between 0 and {len(self._votes) - 1}, the rows of the pool"
            )
        return self._answer(lambda: self._votes[places])

    def _spent(self) -> str:
        promise = self.plan_.guarantee
        return (
            f"the labeler has halted: {self.plan_.n_teachers} teachers have no more answers under "
            f"({promise.epsilon:g}, {promise.delta:.3g}); a new labeler is a new charge"
        )

    def _answer(self, count: Callable[[], Counts]) -> NDArray[Any]:
        return self._spend(count, lambda stream, counts: labels_of(stream.answer(counts), self.classes_))

    def _count(self, X: Any) -> NDArray[np.int64]:
        counts = np.zeros((X.shape[0], len(self.classes_)), dtype=np.int64)
        places = np.arange(X.shape[0])
        for teacher in self._teachers:
            counts[places, teacher.vote(X, self.classes_)] += 1
        return counts
