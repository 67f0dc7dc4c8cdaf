"""Answer a stream of questions about private rows, until a budget is spent: `PrivateLabeler` and `PrivateQueries`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, Setting, silence
from discreet.estimators.groups import read_people
from discreet.estimators.parameters import (
    REQUIRED,
    Charged,
    budget,
    estimator,
    exceeding,
    parameter,
    public_labels,
    relation,
)
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.mechanisms.voting import Counts
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, relation_of
from discreet.records.open import check_people, class_count, read_labels
from discreet.release import begin
from discreet.transfer import base, teachers
from discreet.transfer.aggregation import StableVotes, StableVotesRun, VoteRun, labels_of
from discreet.transfer.base import Columns, as_table, check_same_columns
from discreet.transfer.held_stream import BudgetSpent, HeldStream
from discreet.transfer.plan import TransferPlan, plan_votes
from discreet.transfer.subsample import counted_votes
from discreet.transfer.teachers import Poll, assign

__all__ = ["BudgetSpent", "PrivateLabeler"]


@estimator
class PrivateLabeler(base.VoteParameters, HeldStream):
    """Answer questions about new rows, one by one, by the private vote of teachers on disjoint records.

    The budget is charged once, by ``fit``, for the whole stream. By default every question gets the winner of a noisy
    plurality, and the stream ends after ``n_queries`` of them. With ``aggregator="sparse-vector"``, or a number of
    refusals ``max_unstable``, answers on which teachers agree use no budget and only abstentions count; this suits
    teachers that almost always agree, and very long streams. Questions may depend on earlier answers.

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
    the last holder can use. The library cannot prevent that a copy of the file is continued, too. When the stream
    halts, or with ``close``, its answers are bound to the charge (the ledger stores their `answers_digest`), and
    teachers, votes and the threshold are deleted, in the file as well. Only the number and names of the private
    table's columns remain, which are public.

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
            poll = Poll(self.estimator, inputs.queries, labels.classes, plan.n_teachers, seed)
            records = inputs.X, labels.codes, chunks, self.n_jobs
            if pool is None:
                self._teachers = teachers.train_all(replace(poll, queries=None), *records)
            else:
                self._votes = teachers.collect_votes(poll, *records)
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


_BETA = 0.05  # chance that one of the planned stable questions is refused


@dataclass(frozen=True)
class QueryPlan:
    """Answer questions on which most chunks agree, by one sparse vector for the whole stream.

    Privacy
    -------
    A unit changes ``changed`` votes of every question; the halved lead over the runner-up has sensitivity 1 and is 0
    if the winner can change. Event ``Approximate(epsilon, delta)`` for any number of adaptive questions.
    """

    guarantee: Guarantee
    n_chunks: int
    n_queries: int
    votes: StableVotes

    mechanism = (
        "subsample and aggregate for a stream of questions, by sparse vector on the distance to instability"
    )
    theorem = (
        "docs/proofs/sparse-vector.md, sections 3, 6, 8 and 11 (after Dwork et al., 2009; Thakkar, 2019)"
    )

    @property
    def event(self) -> Event:
        return self.votes.event

    @property
    def lead_needed(self) -> int:
        """Lead over the runner-up, in chunks, at which all planned questions are answered with probability 0.95."""
        return int(self.votes.gap_needed(self.n_queries, _BETA))

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "chunks": float(self.n_chunks),
            "questions planned for": float(self.n_queries),
            "unstable answers before it halts": float(self.votes.vector.max_unstable),
            "lead answered with probability 0.95": float(self.lead_needed),
        }

    def start(self, entropy: Entropy) -> StableVotesRun:
        """Start the stream."""
        return self.votes.start(entropy)

    def resume(self, state: dict[str, int], entropy: Entropy) -> StableVotesRun:
        """Continue the stream."""
        return self.votes.resumed(state, entropy)


@estimator
class PrivateQueries(Charged, HeldStream):
    """Answer any questions about private rows, one by one, if disjoint chunks of the rows agree on the answer.

    A question is a function of some rows and the public list of its possible answers. It is put to every chunk, and
    the answer that most chunks give is released if no single person could change it. Stable answers are free; an
    unstable one is refused (None), and after ``max_unstable`` refusals the stream halts. The budget is charged once, by
    ``fit``, for the whole stream. Questions may depend on earlier answers, and there may be more of them than planned.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    halted : whether all refusals are used up.
    remaining : what remains, by name.
    privacy_ : the statement about all answers of the stream.
    plan_ : the plan.

    Privacy
    -------
    All answers together, refusals and the moment of halting included, are (epsilon, delta)-DP under ``neighboring``,
    for any questions that see only their rows and keep nothing from one call to the next. Until it halts the object
    holds the rows, their chunks and the noise of the running threshold: publish its answers, never the object or its
    file. Saving, resuming and closing are as for :class:`PrivateLabeler`.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(10000, 2)) + [0.0, 1.0]
    >>> stream = PrivateQueries(n_queries=20, epsilon=1.0, delta=1e-6).fit(rows)
    >>> stream.ask(lambda X: bool(X[:, 1].mean() > X[:, 0].mean()), [False, True])
    True
    >>> stream.ask(lambda X: int(X[:, 1].mean().round()), range(-3, 4)), stream.halted
    (1, False)
    >>> stream.close()

    References
    ----------
    Thakkar (2019), Algorithm 9; Bassily, Thakkar and Thakurta (2018).
    """

    _noun = "stream of queries"
    _missing = "has no rows yet; call fit(X) first"
    _held = "the rows themselves"
    _plan_type = QueryPlan
    _SECRET = ("_rows", "_chunks")

    n_queries: int = parameter(
        100,
        "int",
        "Stable questions that are all answered with probability 0.95; it balances the noises, and limits nothing.",
        positional=True,
    )
    n_chunks: int | None = parameter(
        None,
        "int",
        "Number of disjoint chunks; by default twice the lead that an answer needs, so that three votes in four do.",
        positional=True,
    )
    max_unstable: int = parameter(1, "int", "Refusals before the stream halts.", positional=True)
    _: KW_ONLY
    epsilon: float = budget("the whole stream", positional=False)
    delta: float = parameter(REQUIRED, "float", "Probability with which epsilon may be exceeded.")
    neighboring: str = relation("A record is a row, or all rows of a user with ``groups`` in ``fit``.")
    random_state: Any = parameter(
        None,
        "None, int or SeedSequence",
        "Seed of the global generators that questions may use; never of the privacy noise.",
    )

    def plan(self, *, by_group: bool = False) -> QueryPlan:
        """What ``fit`` would start and cost; no data is needed."""
        relation = relation_of(self.neighboring)
        promise = Guarantee(
            _checks.real("epsilon", self.epsilon, above=0),
            _checks.real("delta", self.delta, above=0),
            relation,
            "user" if by_group else "record",
        )
        n_queries = _checks.count("n_queries", self.n_queries, at_least=1)
        refusals = _checks.count("max_unstable", self.max_unstable, at_least=1)
        vector = SparseVector.calibrated(promise.epsilon, promise.delta, refusals, n_queries, _BETA)
        changed = base.changed_teachers(relation, by_group=by_group, label_private=False)
        votes = StableVotes(vector, changed)
        lead = math.ceil(votes.gap_needed(n_queries, _BETA))
        n_chunks = 2 * lead if self.n_chunks is None else _checks.count("n_chunks", self.n_chunks, at_least=2)
        if n_chunks < lead:
            raise ParameterError(
                "n_chunks",
                f"is {n_chunks}, but an answer needs a lead of {lead} chunks over the next one",
                Setting("n_chunks", purpose=f"of at least {lead}, better {2 * lead}"),
                "ask for fewer queries, allow fewer refusals, or use a larger epsilon",
            )
        return QueryPlan(promise, n_chunks, n_queries, votes)

    def fit(self, X: Any, *, groups: ArrayLike | None = None) -> PrivateQueries:
        """Charge the budget of the whole stream, draw the chunks and the first threshold.

        Parameters
        ----------
        X : private rows.
        groups : user ids, one per row.
        """
        if hasattr(self, "plan_"):
            raise RuntimeError("this stream has begun; make a new one for other data")
        check_people(X, groups)
        table = base.as_table("X", X)
        if groups is not None:
            read_people(groups, table.shape[0], strict=True)
        self._seed = _checks.seed(self.random_state)
        plan = self.plan(by_group=groups is not None)
        begun = begin(plan, self.ledger, type(self).__name__)
        with silence():
            self._chunks = assign(table.shape[0], groups, plan.n_chunks, begun.release)
        self._rows, self.plan_ = table, plan
        stated = ("the questions and their lists of answers are public (given by the user)",)
        self.privacy_ = base.state(begun, dict(plan.noise), stated)
        self._begin(plan.start(begun.release), begun)
        return self

    def ask(self, function: Callable[[Any], Any], candidates: Sequence[Any]) -> Any | None:
        """Return the answer on which most chunks agree; None if it is not stable.

        Parameters
        ----------
        function : maps some rows to one of ``candidates``; errors and other answers count as the first candidate.
        candidates : public list of all possible answers, at least two.

        Raises
        ------
        BudgetSpent
            If the stream had halted before.
        """
        self._check_asking()
        if len(candidates) < 2:
            raise ParameterError(
                "candidates", f"must list at least two possible answers, got {list(candidates)!r}"
            )

        def count() -> list[int]:
            return counted_votes(
                function, self._rows, self._chunks, candidates, self.plan_.n_chunks, self._seed
            )

        winners: list[int] = []

        def answer(stream: VoteRun, votes: list[int]) -> list[str | None]:
            winners.append(int(stream.answer(np.array([votes], dtype=np.int64))[0]))
            return [
                None if winners[0] < 0 else repr(candidates[winners[0]])
            ]  # any answer can be hashed as text

        self._spend(count, answer)
        return None if winners[0] < 0 else candidates[winners[0]]

    def _spent(self) -> str:
        promise = self.plan_.guarantee
        return (
            f"the stream has halted: {self.plan_.votes.vector.max_unstable} answers were unstable, all that "
            f"({promise.epsilon:g}, {promise.delta:.3g}) paid for; a new stream is a new charge"
        )
