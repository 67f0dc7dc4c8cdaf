"""A stream of arbitrary questions about private rows, answered where disjoint chunks agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _checks
from discreet._checks import ParameterError, Setting, silence
from discreet.estimators.groups import read_people
from discreet.estimators.parameters import REQUIRED, Charged, budget, estimator, parameter, relation
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, relation_of
from discreet.records.open import check_people
from discreet.release import begin
from discreet.transfer import base
from discreet.transfer.aggregation import StableVotes, StableVotesRun, VoteRun
from discreet.transfer.held_stream import HeldStream
from discreet.transfer.subsample import counted_votes
from discreet.transfer.teachers import assign

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

    @property
    def event(self) -> Event:
        """The event of the whole stream."""
        return self.votes.event

    @property
    def mechanism(self) -> str:
        """A description of the mechanism."""
        return "subsample and aggregate for a stream of questions, by sparse vector on the distance to instability"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "docs/proofs/sparse-vector.md, sections 3, 6, 8 and 11 (after Dwork et al., 2009; Thakkar, 2019)"
        )

    @property
    def lead_needed(self) -> int:
        """Lead over the runner-up, in chunks, at which all planned questions are answered with probability 0.95."""
        return int(self.votes.gap_needed(self.n_queries, _BETA))

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the stream."""
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
