"""Streams, voters, searches, evaluations, bounds and recommenders, each on the worst neighbors known for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.audit.subjects import DELTA, EPSILON, Subject, brief, most_different
from discreet.audit.witness import trace
from discreet.mechanisms.entropy import fresh_entropy, insecure_noise
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring

REPLACED = Neighboring.REPLACE_ONE
_QUERIES = np.zeros((4, 1))


def streams() -> Iterator[Subject]:
    """Online learners."""
    from discreet import PrivateFTRL, PrivateOnlineLinearModel

    for method in ("tree", "sampling"):
        plan = PrivateFTRL(2, 4, EPSILON, DELTA, method=method).plan()

        def actions(costs: Any, method: str = method, plan: Any = plan) -> ArrayLike:
            player = _planned(PrivateFTRL(2, 4, EPSILON, DELTA, method=method), plan)
            chosen = []
            for row in costs:
                player.learn_one(row)
                if player.step < 4:
                    chosen.append(float(player.predict_one()))
            return np.array(chosen)

        tried = []
        for lead in (0.0, 0.5, 1.0):  # later costs that make the action which the record favors rare
            costs = np.array([[1.0, -1.0], [-lead, lead], [-lead, lead], [0.0, 0.0]])
            other = np.vstack([-costs[:1], costs[1:]])
            tried.append(_subject(f"PrivateFTRL, {method}", actions, costs, other, plan.event))
        yield most_different(tried)

    options: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False, "radius": 1e6}
    stream = PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **options).plan()

    def models(sign: float) -> ArrayLike:
        """An adversary who watches: the ninth record is misclassified, and nearly orthogonal to the model."""
        model = _planned(PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **options), stream)
        path = []
        for step in range(1, 17):
            record = np.zeros(2)
            if step == 9:
                along = model.coef_ / np.linalg.norm(model.coef_)
                record = 0.01 * along + sign * 0.9999 * np.array([-along[1], along[0]])
            path.append(model.learn_one(record, 0).coef_)
        return np.array(path)

    yield _subject(
        "PrivateOnlineLinearModel",
        models,
        1.0,
        -1.0,
        stream.event,
        remark="a record that can be chosen after models were seen is in one block less than is paid for",
    )


def workflow() -> Iterator[Subject]:
    """Bounds, medians, evaluations, intervals, searches: what surrounds a fit."""
    yield from _bounds()
    yield from _evaluations()
    yield from _searches()
    from discreet import PrivateMedian
    from discreet.solvers.geometric_median import MedianDescent

    median = PrivateMedian(EPSILON, DELTA, radius=1.0, solver=MedianDescent(n_iterations=4))
    planned = median.plan(4, 2)

    def center(rows: Any) -> ArrayLike:
        return np.asarray(_planned(_copy(median), planned).fit(rows).median_)

    rows = np.vstack([[[1.0, 0.0]], np.zeros((3, 2))])
    yield _subject("PrivateMedian", center, rows, rows * [[-1.0, 1.0]], planned.event)

    from discreet.solvers.grid_walk import GridWalk

    walk = GridWalk(1, 2.0, rate=(EPSILON - 0.02) / 4, lipschitz=1.0, score_range=4.0)
    steps = walk.certified_steps

    def end(slope: float) -> ArrayLike:
        return walk.run(lambda point: slope * float(point[0]), steps, fresh_entropy())[0]

    yield _subject(
        "GridWalk, 1 coefficient",
        end,
        1.0,
        -1.0,
        walk.event(steps),
        composed=False,
        remark=f"a run takes {steps} certified steps, and of two points only the middles of two cells are released",
    )


def _bounds() -> Iterator[Subject]:
    from discreet import private_domains, private_norm_bound, private_quantiles

    grid = [0.0, 1.0, 2.0, 3.0]

    def quantile(values: Any) -> ArrayLike:
        return private_quantiles(values, 0.5, candidates=grid, epsilon=EPSILON).values

    # Moved from above all candidates to below them, a value makes low intervals better and high ones worse.
    values = np.array([5.0, 1.5, 1.5, 1.5, 1.5])
    other = np.concatenate([[-1.0], values[1:]])
    event = private_quantiles(values, 0.5, candidates=grid, epsilon=EPSILON).privacy_.event
    remark = "the interval that holds the quantile is the likeliest and does not change: a ratio reaches half the range"
    yield _subject("private_quantiles", quantile, values, other, event, remark=remark)

    def norm(rows: Any) -> ArrayLike:
        return private_norm_bound(
            rows, level=0.5, candidates=[0.5, 1.0, 2.0, 3.0], intercept=False, epsilon=EPSILON
        ).values

    short = np.concatenate([[0.1], values[1:]])
    yield _subject("private_norm_bound", norm, values[:, None], short[:, None], event, remark=remark)

    def domain(column: Any) -> ArrayLike:
        found = private_domains({"a": column}, {"a": grid}, coverage=0.5, epsilon=EPSILON)[0]["a"]
        return np.array([found.lower, found.upper])

    price = private_domains({"a": values}, {"a": grid}, coverage=0.5, epsilon=EPSILON)[1].event
    yield _subject("private_domains", domain, values, other, price, remark=remark)


class _Given:
    """A released model that answers by the sign of the first column."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 where the first column is positive."""
        return (np.asarray(X)[:, 0] > 0).astype(np.int64)


class _First:
    """A released regressor that answers with the first column."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The first column."""
        return np.asarray(X, dtype=np.float64)[:, 0]


def _evaluations() -> Iterator[Subject]:
    from discreet import PrivateLogisticRegression, coefficient_intervals, evaluate

    X, y, y6 = np.ones((4, 1)), np.array([1, 1, 1, 1]), np.array([1, 0, 0, 0, 0, 0])
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}

    def accuracy(labels: Any) -> ArrayLike:
        return np.array([evaluate(_Given(), X, labels, **options)["accuracy"].value])

    event = evaluate(_Given(), X, y, **options).privacy_.event
    yield _subject("evaluate, classifier", accuracy, y, np.array([0, 1, 1, 1]), event)

    def error(data: Any) -> ArrayLike:
        found = evaluate(_First(), *data, target_bounds=(-1.0, 1.0), **options)
        return np.array([found["mean squared error"].value])

    def answered(guess: float, truth: float) -> tuple[Any, Any]:
        return np.array([[guess], [0.0], [0.0], [0.0]]), np.array([truth, 0.0, 0.0, 0.0])

    price = evaluate(_First(), *answered(0.0, 1.0), target_bounds=(-1.0, 1.0), **options).privacy_.event
    pairs = [
        (answered(*one), answered(*two))
        for one, two in (((1, -1), (1, 1)), ((0, 1), (0, -1)), ((1, -1), (0, 0)))
    ]
    remark = "sums of powers of two numbers, which cannot all be at the ends of the box that is paid for"
    yield most_different(
        [_subject("evaluate, regressor", error, *pair, price, remark=remark) for pair in pairs]
    )

    # A model for which the record is misclassified, and its opposite as well: both gradients are as long as can be.
    rows, other = np.zeros((6, 2)), np.zeros((6, 2))
    rows[0], other[0] = [0.9987, 0.05], [-0.9987, 0.05]
    with insecure_noise(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLogisticRegression(EPSILON, DELTA, classes=[0, 1], fit_intercept=False).fit(rows, y6)
    model.coef_ = np.array([[0.0, -200.0]])

    def intervals(data: Any) -> ArrayLike:
        return coefficient_intervals(model, data, y6, steps=1, **options).estimate

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        statement = coefficient_intervals(model, rows, y6, steps=1, **options).privacy_
    remark = "a record that is steep is not curved: the curvature that is paid for as well shows nothing"
    yield _subject("coefficient_intervals", intervals, rows, other, statement.event, remark=remark)


def _searches() -> Iterator[Subject]:
    from discreet import PrivateLinearSVC, PrivateSearchCV

    rows, labels = np.zeros((10, 2)), np.repeat([1, 0], 5)
    rows[0] = [1e3, 0.0]
    first, second = (rows, labels), (rows * [[-1.0, 1.0]], labels)
    for method in ("split", "tries"):
        model = PrivateLinearSVC(classes=[0, 1], solver=brief("output"), fit_intercept=False)
        search = PrivateSearchCV(
            model, {"l2": [20.0, 21.0]}, EPSILON, DELTA, method=method, holdout=0.1, classes=[0, 1]
        )
        plan = search.plan(10, 2, 2)

        def choose(data: Any, search: Any = search, plan: Any = plan) -> ArrayLike:
            found = _planned(_copy(search), plan).fit(*data)
            return np.concatenate([[found.best_index_], found.best_estimator_.coef_.ravel()])

        secret = method == "tries"
        remark = "the answers of tries that lost, and their number, are secret: only what is released may be attacked"
        yield _subject(
            f"PrivateSearchCV, {method}",
            choose,
            first,
            second,
            plan.event,
            composed=not secret,
            remark=remark if secret else "",
        )


def transfer() -> Iterator[Subject]:
    """Voters, each with one record per teacher: a changed record is a changed vote."""
    from sklearn.dummy import DummyRegressor
    from sklearn.neighbors import KNeighborsClassifier

    from discreet import (
        PrivateLabeler,
        PrivateTransferClassifier,
        PrivateTransferRegressor,
        private_error_rate,
    )
    from discreet.transfer.aggregation import SharedVotes, StableVotes
    from discreet.transfer.planner import AGGREGATORS
    from discreet.transfer.teachers import STEPS

    teacher = KNeighborsClassifier(1)
    for aggregator in AGGREGATORS:
        n_queries = 4 if aggregator == "sparse-vector" else 1
        model = PrivateTransferClassifier(
            teacher, n_teachers=41, epsilon=EPSILON, delta=DELTA, aggregator=aggregator, classes=[0, 1]
        )
        plan = model.plan(41, n_queries, 2)

        def answer(votes: Any, plan: Any = plan) -> ArrayLike:
            return np.asarray(plan.run(np.array(votes), fresh_entropy()).codes)

        unit = STEPS if isinstance(plan.aggregator, SharedVotes) else 1
        first, second = np.array([[22, 19]]) * unit, np.array([[21, 20]]) * unit
        if isinstance(plan.aggregator, StableVotes):
            # Three questions become easier while the last one becomes harder: the worst direction of the proof.
            leads = np.array([[2, 2, 2, 0], [1, 1, 1, 1]]) + plan.aggregator.vector.margin
            first, second = (np.stack([21 + side, 20 - side], axis=1) for side in np.minimum(leads, 20))
        elif aggregator == "confident":
            enough = cast(Any, plan.aggregator).mechanism.threshold
            first, second = (np.array([[enough - k, 41 - enough + k]]) for k in (0, 1))
        remark = (
            "where the check is in doubt the vote is not, and both are paid for"
            if aggregator == "confident"
            else ""
        )
        name = f"PrivateTransferClassifier, {aggregator}"
        yield _subject(name, answer, first, second, plan.event, remark=remark)

    def labeler() -> Any:
        return PrivateLabeler(
            teacher, 1, 5, EPSILON, DELTA, aggregator="plurality", classes=[0, 1], random_state=0
        )

    planned = labeler().plan(5, 2)
    rows = np.array([[0.0], [9.0], [9.0], [9.0], [9.0]])

    def label(labels: Any) -> ArrayLike:
        """The question is the first record itself: its teacher answers with its label, all others with 0."""
        made = _planned(labeler(), planned)
        return np.asarray(made.fit(rows, labels).label(rows[:1]), dtype=np.float64)

    sides = np.array([1, 0, 0, 0, 0]), np.zeros(5, dtype=int)
    yield _voted("PrivateLabeler, plurality", label, sides, planned.event, planned.start)

    regressor = PrivateTransferRegressor(
        DummyRegressor(), (0.0, 1.0), n_teachers=4, epsilon=EPSILON, delta=DELTA, random_state=0
    )
    averaged = regressor.plan(4, 4)

    def means(targets: Any) -> ArrayLike:
        return np.asarray(
            _planned(_copy(regressor), averaged).fit(np.zeros((4, 1)), targets, _QUERIES).labels_
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
    yield _subject("private_error_rate", rate, np.array([0, 0, 0, 0, 1]), labels, price)


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


def recommenders() -> Iterator[Subject]:
    """Every method, on two users of extreme taste: of other items, of the same items, or of half of them."""
    from discreet.recommend.methods import METHODS

    for method in METHODS:
        yield most_different(list(_users(method)))


def _users(method: str) -> Iterator[Subject]:
    import scipy.sparse as sp

    from discreet import PrivateMatrixCompletion
    from discreet.recommend.ratings import Scale, read

    others = np.array([[3.0, 4.0, 0.0, 2.0], [0.0, 2.0, 5.0, 3.0], [1.0, 0.0, 4.0, 0.0]])
    model = PrivateMatrixCompletion(method, EPSILON, DELTA, rank=3)
    plan = model.plan(len(others) + 1, 4)

    def run(ratings: Any) -> ArrayLike:
        released = plan.run(ratings, fresh_entropy())
        return np.asarray(
            next(
                vars(released)[name]
                for name in ("base", "directions", "bases", "factors")
                if name in vars(released)
            )
        )

    def program(data: Any) -> Any:
        return _copy(model).fit(data)

    for one, two in (
        ([5.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]),
        ([5.0, 1.0, 5.0, 1.0], [1.0, 5.0, 1.0, 5.0]),
        ([5.0, 1.0, 5.0, 1.0], [5.0, 5.0, 1.0, 1.0]),
    ):
        tables = tuple(sp.csr_array(np.vstack([[row], others])) for row in (one, two))
        sides = [read(part, Scale(1.0, 5.0), None)[0] for part in tables]
        name, relation = f"PrivateMatrixCompletion, {method}", plan.guarantee.neighboring
        yield Subject(name, relation, program, (tables[0], tables[1]), run, sides[0], sides[1], plan.event)


def _subject(name: str, run: Any, first: Any, second: Any, event: Event, **options: Any) -> Subject:
    return Subject(name, REPLACED, run, (first, second), run, first, second, event, **options)


def _copy(model: Any) -> Any:
    from sklearn.base import clone

    return clone(model)


def _planned(model: Any, plan: Any) -> Any:
    """A model that does not calibrate again what is known already."""
    vars(model)["plan"] = lambda *sizes, **options: plan
    return model
