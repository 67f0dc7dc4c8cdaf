"""Voters, each on the worst votes known for it: one record per teacher, so that a changed record is a changed vote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.audit.making import REPLACED, planned_as, subject_of, unfitted
from discreet.audit.subjects import DELTA, EPSILON, Subject, most_different
from discreet.audit.witness import trace
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.events import Event

_QUERIES = np.zeros((4, 1))


def transfer() -> Iterator[Subject]:
    """Voters, each with one record per teacher: a changed record is a changed vote."""
    from sklearn.dummy import DummyRegressor
    from sklearn.neighbors import KNeighborsClassifier

    from discreet import PrivateLabeler, PrivateTransferRegressor, private_error_rate
    from discreet.transfer.planner import AGGREGATORS

    teacher = KNeighborsClassifier(1)
    for aggregator in AGGREGATORS:
        yield most_different(list(_answers(teacher, aggregator)))

    def labeler() -> Any:
        return PrivateLabeler(
            teacher, 1, 5, EPSILON, DELTA, aggregator="plurality", classes=[0, 1], random_state=0
        )

    planned = labeler().plan(5, 2)
    rows = np.array([[0.0], [9.0], [9.0], [9.0], [9.0]])

    def label(labels: Any) -> ArrayLike:
        """The question is the first record itself: its teacher answers with its label, all others with 0."""
        made = planned_as(labeler(), planned)
        return np.asarray(made.fit(rows, labels).label(rows[:1]), dtype=np.float64)

    sides = np.array([1, 0, 0, 0, 0]), np.zeros(5, dtype=int)
    yield _voted("PrivateLabeler, plurality", label, sides, planned.event, planned.start)

    regressor = PrivateTransferRegressor(
        DummyRegressor(), (0.0, 1.0), n_teachers=4, epsilon=EPSILON, delta=DELTA, random_state=0
    )
    averaged = regressor.plan(4, 4)

    def means(targets: Any) -> ArrayLike:
        return np.asarray(
            planned_as(unfitted(regressor), averaged).fit(np.zeros((4, 1)), targets, _QUERIES).labels_
        )

    yield _voted(
        "PrivateTransferRegressor",
        means,
        (np.eye(4)[0], np.zeros(4)),
        averaged.event,
        lambda e: _Mean(averaged, e),
    )

    def rate(labels: Any) -> ArrayLike:
        options: dict[str, Any] = {"epsilon": EPSILON, "n_teachers": 2, "classes": [0, 1], "random_state": 0}
        found = private_error_rate(teacher, np.zeros((5, 1)), labels, **options)
        return np.array([found.rate])

    labels = np.zeros(5, dtype=int)
    price = private_error_rate(
        teacher, np.zeros((5, 1)), labels, epsilon=EPSILON, n_teachers=2, classes=[0, 1]
    ).privacy_.event
    yield subject_of("private_error_rate", rate, np.array([0, 0, 0, 0, 1]), labels, price)


def _answers(teacher: Any, aggregator: str) -> Iterator[Subject]:
    """One question, or four to a sparse vector, on which one teacher of many changes sides."""
    from discreet import PrivateTransferClassifier
    from discreet.transfer.aggregation import SharedVotes, StableVotes
    from discreet.transfer.teachers import STEPS

    # Where few teachers answer one of many classes, a check for six tenths of them and the vote are in doubt together.
    teachers, n_classes = (7, 4) if aggregator == "confident" else (41, 2)
    model = PrivateTransferClassifier(
        teacher,
        n_teachers=teachers,
        epsilon=EPSILON,
        delta=DELTA,
        aggregator=aggregator,
        classes=list(range(n_classes)),
    )
    plan = model.plan(teachers, 4 if aggregator == "sparse-vector" else 1, n_classes)

    def answer(votes: Any) -> ArrayLike:
        return np.asarray(plan.run(np.array(votes), fresh_entropy()).codes)

    if isinstance(plan.aggregator, StableVotes):
        # Three questions become easier while the last one becomes harder: the worst direction of the proof.
        leads = np.array([[2, 2, 2, 0], [1, 1, 1, 1]]) + plan.aggregator.vector.margin
        first, second = (np.stack([21 + side, 20 - side], axis=1) for side in np.minimum(leads, 20))
        pairs = [(first, second)]
    elif isinstance(plan.aggregator, SharedVotes):
        pairs = [(np.array([[22, 19]]) * STEPS, np.array([[21, 20]]) * STEPS)]
    elif aggregator == "confident":
        tops = ([3, 2, 1, 1], [4, 1, 1, 1], [4, 2, 1, 0], [5, 1, 1, 0])
        pairs = [(np.array([votes]), np.array([votes]) + np.array([-1, 0, 1, 0])) for votes in tops]
    else:
        pairs = [
            (np.array([[votes, 41 - votes]]), np.array([[votes - 1, 42 - votes]])) for votes in range(21, 29)
        ]
    name = f"PrivateTransferClassifier, {aggregator}"
    yield from (subject_of(name, answer, first, second, plan.event) for first, second in pairs)


@dataclass(frozen=True)
class _Mean:
    plan: Any
    entropy: Any

    def answer(self, sums: Any) -> ArrayLike:
        """The noisy means."""
        return np.asarray(self.plan.run(sums, self.entropy))


def _voted(name: str, program: Any, data: tuple[Any, Any], event: Event, start: Any) -> Subject:
    """A program is replayed from its records; the attack begins with their votes, because teachers take time."""
    votes = [trace(program, side).calls[0].value.astype(np.int64) for side in data]

    def run(counts: Any) -> ArrayLike:
        return np.asarray(start(fresh_entropy()).answer(counts))

    return Subject(name, REPLACED, program, data, run, votes[0], votes[1], event)
