"""Audit rows of the other relations: a record that is there or not, for everything that no linear model shows.

The catalog audits these programs under replace-one. Here the record that differs is blanked out (zero-out) or left out
(add-remove-one). It is as extreme as its bounds allow and stands alone, so that its whole contribution is missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.neighbors import KNeighborsClassifier

import discreet
from discreet.audit.catalog import played
from discreet.audit.subjects import DELTA, EPSILON, Subject, brief, planned_as, subject_of
from discreet.audit.trace import trace
from discreet.audit.workflow import _Given
from discreet.audit.worst_pairs import neighbors_of
from discreet.losses import HuberHinge
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Neighboring
from discreet.sets import L2Ball
from discreet.solvers.median import MedianDescent

OTHERS = (Neighboring.ZERO_OUT, Neighboring.ADD_REMOVE_ONE)
#: Relations without a row, and why.
REFUSED = {
    ("PrivateFTRL", Neighboring.ADD_REMOVE_ONE): "refused: an absent record would move all later ones",
    (
        "PrivateOnlineLinearModel",
        Neighboring.ADD_REMOVE_ONE,
    ): "refused: an absent record would move later ones",
    ("PrivateSearchCV", Neighboring.ADD_REMOVE_ONE): "refused: the sizes of the two parts would be private",
    ("private_error_rate", Neighboring.ADD_REMOVE_ONE): "refused: the number held out would be private",
}
_ROWS = 4


def relations(match: str = "") -> Iterator[Subject]:
    """All of them, or those whose names contain ``match``."""
    for name, make in _PROGRAMS.items():
        for relation in OTHERS:
            if match in name and (name, relation) not in REFUSED:
                yield dataclasses.replace(make(relation), name=name, relation=relation)


def _promise(relation: Neighboring, declared: str = "n_samples", rows: int = _ROWS) -> dict[str, Any]:
    """The promise of the audit; the number of rows is declared where it is private."""
    found: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "neighboring": relation.value}
    return found if relation.size_is_public else {**found, declared: rows}


def _alone(relation: Neighboring, row: Any, y: Any = None) -> tuple[Any, Any]:
    """One row among zeros, with it and without it."""
    X = np.zeros((_ROWS, len(row)))
    X[0] = row
    pair = neighbors_of(X, np.ones(_ROWS) if y is None else y, 0, relation)
    return pair.first, pair.second


def _components(relation: Neighboring) -> Subject:
    model = discreet.PrivatePCA(n_components=2, center=False, bad_rows="null", **_promise(relation))
    plan = model.plan(_ROWS, 2)

    def directions(data: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(data[0]).components_.ravel())

    return subject_of("", directions, *_alone(relation, [1.0, 0.0]), plan.event)


def _minimized(relation: Neighboring) -> Subject:
    options: dict[str, Any] = {
        "solver": brief("noisy-gd"),
        "fit_intercept": False,
        "bad_rows": "null",
        **_promise(relation),
    }
    # In a small ball no prediction comes to where this loss is bent.
    model = discreet.PrivateERM(HuberHinge(0.5), L2Ball(0.4, 2), **options)
    plan = model.plan(_ROWS, 2)

    def minimizer(data: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(*data).coef_)

    return subject_of("", minimizer, *_alone(relation, [1.0, 0.0]), plan.event)


def _median(relation: Neighboring) -> Subject:
    solver = MedianDescent(n_iterations=4)
    model = discreet.PrivateMedian(radius=1.0, solver=solver, bad_rows="null", **_promise(relation))
    plan = model.plan(_ROWS, 2)

    def center(data: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(data[0]).median_)

    return subject_of("", center, *_alone(relation, [1.0, 0.0]), plan.event)


def _additive(kind: Any, **told: Any) -> Callable[[Neighboring], Subject]:
    def make(relation: Neighboring) -> Subject:
        options: dict[str, Any] = {
            "feature_bounds": (-1.0, 1.0),
            "n_iterations": 2,
            "pairs": 0,
            "bad_rows": "null",
            **told,
        }
        model = kind(**options, **_promise(relation, rows=60))
        rows = np.tile(np.random.default_rng(0).uniform(-1, 1, size=(30, 2)), (2, 1))
        rows[0] = [0.9, 0.9]
        y = np.zeros(60, dtype=int) if "classes" in told else np.full(60, -1.0)
        y[0] = 1
        plan = model.plan(60, 2, 2) if "classes" in told else model.plan(60, 2)
        pair = neighbors_of(rows, y, 0, relation)

        def shapes(data: Any) -> ArrayLike:
            return np.asarray(planned_as(clone(model), plan).fit(*data).predict(rows[:4]), np.float64)

        return subject_of("", shapes, pair.first, pair.second, plan.event)

    return make


def _description(relation: Neighboring) -> Subject:
    schema = discreet.Schema({"a": discreet.Numeric(0, 1)})
    options: dict[str, Any] = {"bins": 2, "bad_rows": "null", **_promise(relation)}

    def numbers(data: Any) -> ArrayLike:
        return discreet.describe({"a": data[0][:, 0]}, schema, **options).released

    first, second = _alone(relation, [1.0])
    event = discreet.describe({"a": first[0][:, 0]}, schema, **options).privacy_.event
    return subject_of("", numbers, first, second, event)


def _evaluation(relation: Neighboring) -> Subject:
    options: dict[str, Any] = {"bad_rows": "null", **_promise(relation)}

    def accuracy(data: Any) -> ArrayLike:
        found = discreet.evaluate(_Given(), *data, **options)
        return np.array([found["accuracy"].value])

    first, second = _alone(relation, [1.0], np.array([1, 1, 1, 1]))
    event = discreet.evaluate(_Given(), *first, **options).privacy_.event
    return subject_of("", accuracy, first, second, event)


def _quantile(relation: Neighboring) -> Subject:
    """A value above all candidates, there or not: what lies below the other gains half a rank, the rest loses it."""
    grid = np.arange(1.0, 23.0)
    options: dict[str, Any] = {"candidates": grid, "epsilon": EPSILON, "neighboring": relation.value}
    values = np.array([[99.0], [19.5]])

    def quantile(data: Any) -> ArrayLike:
        return discreet.private_quantiles(data[0], 0.5, bad_rows="null", **options).values

    pair = neighbors_of(values, np.zeros(2), 0, relation)
    event = discreet.private_quantiles(values, 0.5, **options).privacy_.event
    return subject_of("", quantile, pair.first, pair.second, event)


def _users(relation: Neighboring) -> Subject:
    """A user of extreme taste among others, with no rating or not there."""
    import scipy.sparse as sp

    model = discreet.PrivateMatrixCompletion("profile", rank=3, **_promise(relation, "n_users"))
    plan = model.plan(_ROWS, 4)
    rows = np.array([[5.0, 1.0, 5.0, 1.0], [3.0, 4.0, 0.0, 2.0], [0.0, 2.0, 5.0, 3.0], [1.0, 0.0, 4.0, 0.0]])
    other = rows[1:] if relation is Neighboring.ADD_REMOVE_ONE else np.vstack([np.zeros((1, 4)), rows[1:]])

    def items(ratings: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(ratings).model_.base)

    return subject_of("", items, sp.csr_array(rows), sp.csr_array(other), plan.event)


def _stream(relation: Neighboring) -> Subject:
    """A misclassified record that is nearly orthogonal to the model, or one without a gradient."""
    told: dict[str, Any] = {
        "classes": [0, 1],
        "fit_intercept": False,
        "radius": 1e6,
        "neighboring": relation.value,
    }
    plan = discreet.PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **told).plan()

    def models(size: float) -> ArrayLike:
        model = planned_as(discreet.PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **told), plan)
        path = []
        for step in range(1, 17):
            record = np.zeros(2)
            if step == 9:
                along = model.coef_ / np.linalg.norm(model.coef_)
                record = size * (0.01 * along + 0.9999 * np.array([-along[1], along[0]]))
            path.append(model.learn_one(record, 0).coef_)
        return np.array(path)

    return subject_of("", models, 1.0, 0.0, plan.event)


def _player(relation: Neighboring) -> Subject:
    """Costs of one step, or none."""
    told: dict[str, Any] = {"method": "tree", "neighboring": relation.value}
    plan = discreet.PrivateFTRL(2, 4, EPSILON, DELTA, **told).plan()

    def actions(costs: Any) -> ArrayLike:
        return played(planned_as(discreet.PrivateFTRL(2, 4, EPSILON, DELTA, **told), plan), costs)

    costs = np.zeros((4, 2))
    costs[0] = [1.0, -1.0]
    return subject_of("", actions, costs, np.zeros((4, 2)), plan.event)


def _searched(relation: Neighboring) -> Subject:
    """A record that is trained on, under "split"."""
    rows, labels = np.zeros((10, 2)), np.repeat([1, 0], 5)
    rows[0] = [1e3, 0.0]
    model = discreet.PrivateLinearSVC(classes=[0, 1], solver=brief("output"), fit_intercept=False)
    options: dict[str, Any] = {"holdout": 0.1, "classes": [0, 1], "method": "split", "bad_rows": "null"}
    search = discreet.PrivateSearchCV(model, {"l2": [20.0, 21.0]}, **options, **_promise(relation))
    plan = search.plan(10, 2, 2)

    def choose(data: Any) -> ArrayLike:
        found = planned_as(clone(search), plan).fit(*data)
        return np.concatenate([[found.best_index_], found.best_estimator_.coef_.ravel()])

    pair = neighbors_of(rows, labels, 0, relation)
    return subject_of("", choose, pair.first, pair.second, plan.event)


def _voters(relation: Neighboring) -> Subject:
    """The one record of a teacher, without which it votes for the first class."""
    told: dict[str, Any] = {"aggregator": "plurality", "classes": [0, 1], "random_state": 0, "n_teachers": 5}
    model = discreet.PrivateTransferClassifier(KNeighborsClassifier(1), **told, **_promise(relation, rows=5))
    plan = model.plan(5, 1, 2)

    def answers(data: Any) -> ArrayLike:
        found = planned_as(clone(model), plan).fit(*data, np.zeros((1, 1)))
        return np.asarray(found.labels_, dtype=np.float64)

    return _voted(
        relation, answers, np.arange(5) == 0, plan, lambda votes, entropy: plan.start(entropy).answer(votes)
    )


def _labeler(relation: Neighboring) -> Subject:
    told: dict[str, Any] = {
        "aggregator": "plurality",
        "classes": [0, 1],
        "random_state": 0,
        **_promise(relation, rows=5),
    }

    def made() -> Any:
        return discreet.PrivateLabeler(KNeighborsClassifier(1), 1, 5, **told)

    plan = made().plan(5, 2)

    def label(data: Any) -> ArrayLike:
        found = planned_as(made(), plan).fit(*data).label(np.zeros((1, 1)))
        return np.asarray(found, dtype=np.float64)

    return _voted(
        relation, label, np.arange(5) == 0, plan, lambda votes, entropy: plan.start(entropy).answer(votes)
    )


def _mean_voters(relation: Neighboring) -> Subject:
    """Teachers that answer with the largest target they know."""
    told: dict[str, Any] = {"n_teachers": 5, "random_state": 0, **_promise(relation, rows=40)}
    teacher = DummyRegressor(strategy="quantile", quantile=1.0)
    model = discreet.PrivateTransferRegressor(teacher, (0.0, 1.0), **told)
    plan = model.plan(40, 1)

    def means(data: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(*data, np.zeros((1, 1))).labels_)

    return _voted(relation, means, np.eye(40)[0], plan, plan.run)


def _voted(relation: Neighboring, program: Any, y: Any, plan: Any, answer: Any) -> Subject:
    """The attack begins with the votes of teachers, because teachers take time."""
    data = _labeled(relation, y * 1, 0)
    votes = [trace(program, side).calls[0].value.astype(np.int64) for side in data]

    def run(counts: Any) -> ArrayLike:
        return np.asarray(answer(counts, fresh_entropy()))

    return Subject("", relation, program, data, run, votes[0], votes[1], plan.event)


def _labeled(relation: Neighboring, y: Any, index: int) -> tuple[Any, Any]:
    """Records that are nothing but labels; a blank one has the label 0."""
    X, blank = np.zeros((len(y), 1)), y.copy()
    blank[index] = 0
    if relation is Neighboring.ZERO_OUT:
        return (X, y), (X, blank)
    pair = neighbors_of(X, y, index, relation)
    return pair.first, pair.second


def _error_rate(relation: Neighboring) -> Subject:
    """A record that is held out and answered wrong."""
    options: dict[str, Any] = {"n_teachers": 2, "classes": [0, 1], "random_state": 0, "epsilon": EPSILON}
    options["neighboring"] = relation.value

    def rate(data: Any) -> ArrayLike:
        return np.array([discreet.private_error_rate(KNeighborsClassifier(1), *data, **options).rate])

    first, second = _labeled(relation, np.array([0, 0, 0, 0, 1]), 4)
    event = discreet.private_error_rate(KNeighborsClassifier(1), *first, **options).privacy_.event
    return subject_of("", rate, first, second, event)


_PROGRAMS: dict[str, Callable[[Neighboring], Subject]] = {
    "PrivatePCA": _components,
    "PrivateERM": _minimized,
    "PrivateMedian": _median,
    "PrivateAdditiveClassifier": _additive(discreet.PrivateAdditiveClassifier, classes=[0, 1]),
    "PrivateAdditiveRegressor": _additive(discreet.PrivateAdditiveRegressor, target_bounds=(-1.0, 1.0)),
    "PrivateMatrixCompletion": _users,
    "PrivateOnlineLinearModel": _stream,
    "PrivateFTRL": _player,
    "PrivateSearchCV": _searched,
    "PrivateTransferClassifier": _voters,
    "PrivateLabeler": _labeler,
    "PrivateTransferRegressor": _mean_voters,
    "private_error_rate": _error_rate,
    "describe": _description,
    "evaluate": _evaluation,
    "private_quantiles": _quantile,
}
