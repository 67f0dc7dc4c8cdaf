"""Audit subjects other than linear models: bounds, evaluations, intervals, searches, medians, transfers."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.base import clone

from discreet.audit.subjects import (
    DELTA,
    EPSILON,
    Subject,
    brief,
    most_different,
    planned_as,
    subject_of,
)
from discreet.audit.trace import trace
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring

_QUERIES = np.zeros((4, 1))


def workflow() -> Iterator[Subject]:
    """Yield bounds, descriptions, evaluations, intervals, searches, medians and the grid walk."""
    yield from _bounds()
    yield _description()
    yield from _evaluations()
    yield from _searches()
    from discreet import PrivateMedian
    from discreet.solvers.median import MedianDescent

    median = PrivateMedian(EPSILON, DELTA, radius=1.0, solver=MedianDescent(n_iterations=4))
    planned = median.plan(4, 2)

    def center(rows: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(median), planned).fit(rows).median_)

    rows = np.vstack([[[1.0, 0.0]], np.zeros((3, 2))])
    yield subject_of("PrivateMedian", center, rows, rows * [[-1.0, 1.0]], planned.event)
    yield _walk()


def _walk() -> Subject:
    """Use two cells, between which a record's effect has its whole range; other records make one of them rare."""
    from discreet.solvers.sampling.grid_walk import GridWalk

    walk = GridWalk(1, 2.0, rate=(EPSILON - 0.02) / 2, lipschitz=1.8, score_range=2.0)
    steps = walk.certified_steps

    def end(slope: float) -> ArrayLike:
        return walk.run(lambda point: slope * float(point[0]), steps, fresh_entropy())[0]

    return subject_of("GridWalk, 1 coefficient", end, 1.8, -0.2, walk.event(steps))


def _bounds() -> Iterator[Subject]:
    """Yield quantiles of values in one interval, except one value that moves from above all candidates to below.

    Every interval below then improves by a rank, and every one above gets a rank worse. There are so many of both that
    the interval of the quantile, the likeliest one, whose rank is unchanged, hardly matters.
    """
    from discreet import private_domains, private_norm_bound, private_quantiles

    grid = np.arange(1.0, 23.0)  # 18 intervals below the values, 2 above them
    values = np.array([99.0, 19.5])
    other = np.array([0.1, 19.5])

    def quantile(values: Any) -> Any:
        return private_quantiles(values, 0.5, candidates=grid, epsilon=EPSILON)

    event = quantile(values).privacy_.event
    yield subject_of("private_quantiles", lambda values: quantile(values).values, values, other, event)

    def norm(rows: Any) -> ArrayLike:
        options: dict[str, Any] = {"level": 0.5, "candidates": grid, "intercept": False}
        return private_norm_bound(rows, epsilon=EPSILON, **options).values

    yield subject_of("private_norm_bound", norm, values[:, None], other[:, None], event)

    # Both ends are quantiles near the middle, and the record moves both.
    column, moved = np.array([99.0, 8.5, 8.5]), np.array([0.1, 8.5, 8.5])

    def domains(column: Any) -> Any:
        return private_domains({"a": column}, candidates={"a": grid[:12]}, coverage=0.02, epsilon=EPSILON)

    def ends(column: Any) -> ArrayLike:
        found = domains(column)[0]["a"]
        return np.array([found.lower, found.upper])

    yield subject_of("private_domains", ends, column, moved, domains(column)[1].event)


def _description() -> Subject:
    """Replace a row at one end of a number's bounds by one at the other end."""
    from discreet import Boolean, Numeric, Schema, describe

    schema = Schema({"a": Numeric(0, 1), "b": Boolean()})
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "bins": 2, "pairs": [("a", "b")]}

    def described(values: Any) -> Any:
        return describe({"a": values, "b": values > 0.5}, schema, **options)

    values, other = np.array([0.0, 0.5, 0.5, 0.5]), np.array([1.0, 0.5, 0.5, 0.5])
    event = described(values).privacy_.event
    return subject_of("describe", lambda values: described(values).released, values, other, event)


class _Given:
    """A released classifier: the sign of the first column."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return 1 where the first column is positive."""
        return (np.asarray(X)[:, 0] > 0).astype(np.int64)


class _First:
    """A released regressor: the first column."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the first column."""
        return np.asarray(X, dtype=np.float64)[:, 0]


def _evaluations() -> Iterator[Subject]:
    from discreet import PrivateLogisticRegression, coefficient_intervals, evaluate

    X, y, y6 = np.ones((4, 1)), np.array([1, 1, 1, 1]), np.array([1, 0, 0, 0, 0, 0])
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}

    def checked(labels: Any) -> Any:
        return evaluate(_Given(), X, labels, **options)

    def accuracy(labels: Any) -> ArrayLike:
        return np.array([checked(labels)["accuracy"].value])

    yield subject_of("evaluate, classifier", accuracy, y, np.array([0, 1, 1, 1]), checked(y).privacy_.event)

    def compared(data: Any) -> Any:
        return evaluate(_First(), *data, target_bounds=(-1.0, 1.0), **options)

    def error(data: Any) -> ArrayLike:
        return np.array([compared(data)["mean squared error"].value])

    def answered(guess: float, truth: float) -> tuple[Any, Any]:
        return np.array([[guess], [0.0], [0.0], [0.0]]), np.array([truth, 0.0, 0.0, 0.0])

    price = compared(answered(0.0, 1.0)).privacy_.event
    # Equal predictions at one end, targets at both ends: the records that are farthest apart.
    yield subject_of("evaluate, regressor", error, answered(1, -1), answered(1, 1), price)

    # A record that the start misclassifies as badly as possible, present or not: its gradient has full length.
    rows = np.zeros((6, 2))
    rows[0] = [0.0, 1.0]
    public: dict[str, Any] = {"n_samples": 6}
    with insecure_noise(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLogisticRegression(
            EPSILON, DELTA, classes=[0, 1], fit_intercept=False, neighboring="add-remove-one", **public
        ).fit(rows, y6)
    model.coef_ = np.array([[0.0, -8.0]])

    def intervals(data: Any) -> ArrayLike:
        X, y = data
        return coefficient_intervals(model, X, y, steps=1, **public, **options).estimate

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        statement = coefficient_intervals(model, rows, y6, steps=1, **public, **options).privacy_
    # A record with a steep gradient has no curvature, so the curvature release reveals nothing.
    sides = (rows, y6), (rows[1:], y6[1:])
    subject = subject_of("coefficient_intervals", intervals, *sides, statement.event)
    yield dataclasses.replace(subject, relation=Neighboring.ADD_REMOVE_ONE)


def _searches() -> Iterator[Subject]:
    """Yield "split" with a training record that differs, and "tries" with a held-out record that affects all scores.

    The losing tries and their number are secret. The winner's noisy score is released, with a known density: that of
    one score times f'(probability of a smaller one), with f the generating function of the number of tries
    (docs/proofs/selection.md, Lemma 3).
    """
    from discreet import PrivateLinearSVC, PrivateSearchCV

    rows, labels = np.zeros((10, 2)), np.repeat([1, 0], 5)
    rows[0] = [1e3, 0.0]
    first, second = (rows, labels), (rows * [[-1.0, 1.0]], labels)
    model = PrivateLinearSVC(classes=[0, 1], solver=brief("output"), fit_intercept=False)
    options: dict[str, Any] = {"holdout": 0.1, "classes": [0, 1]}

    def searching(method: str, **more: Any) -> tuple[Any, Any]:
        search = PrivateSearchCV(
            model, {"l2": [20.0, 21.0]}, EPSILON, DELTA, method=method, **options, **more
        )
        plan = search.plan(10, 2, 2)

        def choose(data: Any) -> ArrayLike:
            found = planned_as(clone(search), plan).fit(*data)
            return np.concatenate([[found.best_index_], found.best_estimator_.coef_.ravel()])

        return choose, plan

    choose, plan = searching("split")
    yield subject_of("PrivateSearchCV, split", choose, first, second, plan.event)

    fitted, tries = searching("tries", expected_tries=2.0)

    def best(right: float) -> ArrayLike:
        return np.array([tries.run(_Scored(right), fresh_entropy()).score])

    def log_density(right: float, shown: Any, share: float) -> float:
        scale = share * float(tries.score.noise.effective_stddev)
        z = (float(shown[0]) - right) / scale
        return -z * z / 2 + _log_slope(tries.law, float(ndtr(z)))

    subject = subject_of("PrivateSearchCV, tries", best, 1.0, 0.0, tries.event, composed=False)
    yield dataclasses.replace(subject, program=fitted, strained=(first, second), log_density=log_density)


@dataclass(frozen=True)
class _Scored:
    """Replaces training: every candidate has the same number of right answers on the held-out records."""

    right: float

    def fitted(self, index: int, event: Any) -> None:
        """Return no model: it does not depend on a held-out record."""

    def score(self, model: None) -> float:
        """Return the number of right answers."""
        return self.right


def _log_slope(law: Any, chance: float) -> float:
    """Return log f'(chance), up to a constant, for the generating function f of the number of tries."""
    if law.law == "poisson":
        return float(law.scale * chance)
    gamma = -math.expm1(-1 / law.scale)
    return -float(1 + law.shape) * math.log1p(-(1 - gamma) * chance)


def transfer() -> Iterator[Subject]:
    """Yield voters with one record per teacher, so that a changed record is a changed vote."""
    from sklearn.dummy import DummyRegressor
    from sklearn.neighbors import KNeighborsClassifier

    from discreet import PrivateLabeler, PrivateTransferRegressor, private_error_rate
    from discreet.transfer.plan import AGGREGATORS

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
        """Ask about the first record: its teacher answers with its label, all others with 0."""
        made = planned_as(labeler(), planned)
        return np.asarray(made.fit(rows, labels).label(rows[:1]), dtype=np.float64)

    sides = np.array([1, 0, 0, 0, 0]), np.zeros(5, dtype=int)

    def voted(counts: Any) -> ArrayLike:
        return np.asarray(planned.start(fresh_entropy()).answer(counts))

    yield _voted("PrivateLabeler, plurality", label, sides, voted, planned.event)

    regressor = PrivateTransferRegressor(
        DummyRegressor(), (0.0, 1.0), n_teachers=4, epsilon=EPSILON, delta=DELTA, random_state=0
    )
    averaged = regressor.plan(4, 4)

    def means(targets: Any) -> ArrayLike:
        model = planned_as(clone(regressor), averaged)
        return np.asarray(model.fit(np.zeros((4, 1)), targets, _QUERIES).labels_)

    def averages(sums: Any) -> ArrayLike:
        return np.asarray(averaged.run(sums, fresh_entropy()))

    yield _voted("PrivateTransferRegressor", means, (np.eye(4)[0], np.zeros(4)), averages, averaged.event)

    options: dict[str, Any] = {"epsilon": EPSILON, "n_teachers": 2, "classes": [0, 1], "random_state": 0}

    def rate(labels: Any) -> Any:
        return private_error_rate(teacher, np.zeros((5, 1)), labels, **options)

    labels = np.zeros(5, dtype=int)
    price = rate(labels).privacy_.event
    yield subject_of(
        "private_error_rate", lambda labels: [rate(labels).rate], np.array([0, 0, 0, 0, 1]), labels, price
    )


def _answers(teacher: Any, aggregator: str) -> Iterator[Subject]:
    """Yield one question (four for a sparse vector) on which one of many teachers changes its vote."""
    from discreet import PrivateTransferClassifier
    from discreet.transfer.aggregation import SharedVotes, StableVotes
    from discreet.transfer.teachers import STEPS

    # With few teachers and many classes, the check for 60% agreement and the vote are uncertain together.
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


def _voted(name: str, program: Any, data: tuple[Any, Any], run: Any, event: Event) -> Subject:
    """Return a program that is replayed from its records, and attacked from their votes, because teachers are slow."""
    votes = [trace(program, side).calls[0].value.astype(np.int64) for side in data]
    return Subject(name, Neighboring.REPLACE_ONE, program, data, run, votes[0], votes[1], event)
