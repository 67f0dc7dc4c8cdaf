"""Audit rows beside the catalog's: sets, printed calibrations, pure promises, several classes, second-order steps.

Every row is a configuration that users can choose and that no default shows: coefficients in a set (``constraint``),
the noise that papers print, delta = 0, three classes, noisy Newton steps of regressions, sums of texts, additive
models, labels alone, agreement of chunks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

import discreet
from benchmarks.audit_relations import relations
from discreet.audit.subjects import (
    DELTA,
    EPSILON,
    Subject,
    _fitted,
    _pairs,
    brief,
    of,
    planned_as,
    subject_of,
)
from discreet.audit.trace import trace
from discreet.audit.worst_pairs import neighbors_of, worst_pair
from discreet.losses import Hinge
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.sets import (
    BallIntersection,
    Box,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexPolytope,
)
from discreet.transfer.labeler import PrivateQueries
from discreet.transfer.subsample import SubsamplePlan

_SMALL = 0.4  # radius of a set in which no prediction passes the kink of a hinge
_WIDE = 1.5  # of one coefficient: where a hinge is bent, the change of the energy is steepest inside
_WIDER = 12.0  # a record is as good as indifferent on one half of it
_PULL = 3  # records, all but one of which make one vertex rare
_TWO, _THREE = [0, 1], [0, 1, 2]
_RELATIONS = ("replace-one", "zero-out", "add-remove-one")


def variants(match: str = "") -> Iterator[Subject]:
    """All of them, or those whose names contain ``match``."""
    for name, relation, model in [
        *_in_sets(),
        *_printed(),
        *_pure(),
        *_classes(),
        *_second_order(),
    ]:
        if match in name:
            yield dataclasses.replace(of(model.set_params(neighboring=relation), 300), name=name)
    for name, make in _PROGRAMS.items():
        if match in name:
            yield make(name)
    yield from relations(match)


Row = tuple[str, str, Any]


def _svc(**options: Any) -> Any:
    return discreet.PrivateLinearSVC(**{"epsilon": EPSILON, "delta": DELTA, "classes": _TWO, **options})


def _in_sets() -> Iterator[Row]:
    """Coefficients in every kind of set: a hinge is as steep everywhere in a small one."""
    corners = _SMALL * np.vstack([np.eye(2), -np.eye(2)])
    balls = (
        L1Ball(_SMALL, 2),
        L2Ball(_SMALL, 2),
        Box((-_SMALL,) * 2, (_SMALL,) * 2),
        GroupedL1Ball(_SMALL, 2, 1),
    )
    every = (
        *balls,
        Simplex(_SMALL, 2),
        InterpolationBall(_SMALL, 2, 0.5),
        NuclearBall(_SMALL, (1, 2)),
        VertexPolytope(corners),
        BallIntersection(L1Ball(_SMALL, 2), (0.1, 0.0), _SMALL),
    )
    for solver, sets in (
        ("noisy-gd", every),
        ("objective", balls),
        ("output", balls[:1]),
        ("frank-wolfe", (*balls[:2], Simplex(_SMALL, 2), VertexPolytope(corners))),
        ("mirror-descent", balls[:1]),
    ):
        for place, inside in enumerate(sets):
            name = f"PrivateLinearSVC, {solver}, in {type(inside).__name__}"
            for relation in (
                _RELATIONS if place < 2 else _RELATIONS[:1]
            ):  # what a relation changes is not the set
                yield name, relation, _svc(constraint=inside, solver=brief(solver))


def _printed() -> Iterator[Row]:
    """The noise of Talwar, Thakurta and Zhang (2014), charged at what it is worth."""
    for solver in ("mirror-descent-talwar", "frank-wolfe-talwar"):
        for relation in _RELATIONS[:2]:
            model = _svc(constraint=L2Ball(_SMALL, 2), solver=brief(solver))
            yield f"PrivateLinearSVC, {solver}", relation, model


def _pure() -> Iterator[Row]:
    """Promises without delta."""
    for solver in ("output", "objective"):
        for relation in _RELATIONS:
            yield f"PrivateLinearSVC, {solver}, pure", relation, _svc(delta=0.0, solver=brief(solver))
    for solver, relation, wide in (
        ("exponential", "replace-one", _WIDE),
        ("exponential", "zero-out", _WIDER),
        ("localized", "replace-one", _WIDE),
    ):
        for inside in (Box((-wide,), (wide,)), L1Ball(wide, 1)):
            name = f"PrivateLinearSVC, {solver}, in {type(inside).__name__}"
            model = _svc(delta=0.0, solver=brief(solver), constraint=inside, fit_intercept=False)
            yield name, relation, model
    for kind in (discreet.PrivateHuberRegressor, discreet.PrivateLasso):
        yield f"{kind.__name__}, pure", "replace-one", kind(EPSILON, 0.0, target_bounds=(-1.0, 1.0))


def _classes() -> Iterator[Row]:
    """Three classes, by one softmax or one model each."""
    for solver in ("noisy-gd", "newton"):
        model = discreet.PrivateLogisticRegression(EPSILON, DELTA, classes=_THREE, solver=brief(solver))
        yield f"PrivateLogisticRegression, {solver}, 3 classes", "replace-one", model
    for solver in ("output", "noisy-gd"):
        yield (
            f"PrivateLinearSVC, {solver}, 3 classes",
            "replace-one",
            _svc(classes=_THREE, solver=brief(solver)),
        )


def _second_order() -> Iterator[Row]:
    """Noisy second moments, then clipped gradients with their companions."""
    for kind in (discreet.PrivateRidge, discreet.PrivateHuberRegressor):
        model = kind(EPSILON, DELTA, target_bounds=(-1.0, 1.0), solver=brief("newton"))
        yield f"{kind.__name__}, newton", "replace-one", model


# -- programs ----------------------------------------------------------------------------------------------------------


def _texts(name: str) -> Subject:
    """Sums of wide rows, looked at once and summed again along what was seen: a long row that changes its class."""
    model = _svc(solver=brief("refocused-sums"), bad_rows="null", fit_intercept=False)
    relation = Neighboring.REPLACE_ONE
    return _fitted(name, [(model, pair) for pair in _pairs(relation, 0, 1)], relation)


def _in_simplex(name: str) -> Subject:
    """Two records that pull towards opposite vertices, among others that agree with one of them.

    In a wide simplex each is as wrong as can be at one vertex and as good as right at the other: the sum of losses
    changes by nearly its whole range in between. Around a noisy minimizer, which much ridge holds in the middle, rows
    of the plane of the simplex are the steepest.
    """
    localized = "localized" in name
    count, short = (2, math.sqrt(0.5)) if localized else (_PULL, 1 / _WIDER)
    own = np.array([-math.sqrt(1 - short**2), short])
    model = _svc(
        delta=0.0,
        solver=brief("localized" if localized else "exponential"),
        constraint=Simplex(_WIDER, 2),
        fit_intercept=False,
        n_samples=count,
        l2=20.0 / count if localized else 1e-12,
    )
    relation = Neighboring.REPLACE_ONE
    pair = neighbors_of(np.tile(own, (count, 1)), np.ones(count, dtype=int), 0, relation, own[::-1], 1)
    return _fitted(name, [(model, pair)], relation)


def _additive(name: str) -> Subject:
    """A record that shares every bin with another and whose residual is clipped on the other side."""
    classifies = "Classifier" in name
    told: dict[str, Any] = {"classes": _TWO} if classifies else {"target_bounds": (-1.0, 1.0)}
    if "counts" in name:
        told = {"target_bounds": (0.0, 1.0), "loss": "poisson"}
    model = getattr(discreet, name.split(",")[0])(
        EPSILON, DELTA, feature_bounds=(-1.0, 1.0), n_iterations=2, pairs=0, **told
    )
    rows = np.tile(np.random.default_rng(0).uniform(-1, 1, size=(30, 2)), (2, 1))
    y = np.zeros(60, dtype=int) if classifies else np.full(60, told["target_bounds"][0])
    rows[0], y[0] = [0.9, 0.9], 1
    other, labels = rows.copy(), y.copy()
    other[0], labels[0] = [-0.9, -0.9], y[1]
    plan = model.plan(60, 2, 2) if classifies else model.plan(60, 2)

    def shapes(data: Any) -> ArrayLike:
        fitted = planned_as(clone(model), plan).fit(*data)
        return np.asarray(fitted.predict(rows[:4]), dtype=np.float64)

    return subject_of(name, shapes, (rows, y), (other, labels), plan.event)


def _labels(name: str) -> Subject:
    """Rows are public; one label changes, and with it the vote of its teacher."""
    from sklearn.neighbors import KNeighborsClassifier

    from discreet import PrivateTransferClassifier

    model = PrivateTransferClassifier(
        KNeighborsClassifier(1),
        n_teachers=5,
        epsilon=EPSILON,
        delta=DELTA,
        aggregator="plurality",
        classes=_TWO,
        label_private=True,
        random_state=0,
    )
    plan = model.plan(5, 5, 2)
    rows = np.zeros((5, 1))  # the first record of a chunk answers for it
    first, second = np.array([1, 0, 0, 0, 0]), np.zeros(5, dtype=int)

    def answers(labels: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(rows, labels).labels_, dtype=np.float64)

    votes = [trace(answers, side).calls[0].value.astype(np.int64) for side in (first, second)]

    def run(counts: Any) -> ArrayLike:
        return np.asarray(plan.start(fresh_entropy()).answer(counts))

    return Subject(
        name, Neighboring.REPLACE_ONE, answers, (first, second), run, votes[0], votes[1], plan.event
    )


def _pure_ridge(name: str) -> Subject:
    """A record, blanked out, whose target is as far from its prediction as the loss allows.

    Squared errors are as steep as declared only there, and so much ridge is paid for that thousands of other records
    are needed to hold the coefficient. Under replace-one two records would need opposite predictions as well, which
    takes hundreds of thousands of others; there the replay alone reaches the declared distance, at coefficients that an
    adversary chose.
    """
    relation, others = Neighboring.ZERO_OUT, 6000
    model = discreet.PrivateRidge(EPSILON, 0.0, target_bounds=(-1.0, 1.0), neighboring=relation.value)
    model.set_params(solver=brief("objective"), fit_intercept=False, bad_rows="null")
    X = np.tile([1.0, 0.0], (others + 1, 1))
    y = np.full(others + 1, -1.0)
    y[0] = 1.0
    subject = _fitted(name, [(model, neighbors_of(X, y, 0, relation))], relation)
    strained = worst_pair(relation, n_rest=3, fit_intercept=False, labels=(-1.0, 1.0))
    return dataclasses.replace(subject, strained=(strained.first, strained.second))


def _components(name: str) -> Subject:
    """A long row exchanged for one at the worst angle: a right one for second moments, wider where sums count too.

    A block of directions shows all of it if it spans the plane of the two rows.
    """
    method = name.rpartition(", ")[2]
    model = discreet.PrivatePCA(EPSILON, DELTA, n_components=2, center=method == "centered")
    model.set_params(method="power" if method == "power" else "svd")
    plan = model.plan(4, 2)

    def directions(rows: Any) -> ArrayLike:
        fitted = planned_as(clone(model), plan).fit(rows)
        return np.concatenate([fitted.components_.ravel(), fitted.explained_variance_])

    cosine = 0.125 if method == "centered" else 0.0
    first, second = np.zeros((4, 2)), np.zeros((4, 2))
    first[0], second[0] = [1.0, 0.0], [-cosine, (1 - cosine**2) ** 0.5]
    return subject_of(name, directions, first, second, plan.event)


def _minimized(name: str) -> Subject:
    """Any loss: opposite records, whose gradients are as long as declared everywhere in a small set."""
    inside = L2Ball(_SMALL, 2)
    loss: Any = Hinge()
    if "gradients" in name:
        loss = discreet.GradientLoss(_pull, clip=1.0)
    model = discreet.PrivateERM(
        loss, inside, epsilon=EPSILON, delta=DELTA, solver=brief("noisy-gd"), fit_intercept=False
    )
    first, second = (np.vstack([[row], np.zeros((3, 2))]) for row in ([1.0, 0.0], [-1.0, 0.0]))
    plan = model.plan(4, 2)
    y = np.ones(4)

    def minimizer(rows: Any) -> ArrayLike:
        return np.asarray(planned_as(clone(model), plan).fit(rows, y).coef_)

    return subject_of(name, minimizer, first, second, plan.event)


def _pull(theta: Any, x: Any, y: Any) -> Any:
    """The gradient of a linear loss, longer than the clip."""
    return -100.0 * x


def _agreement(name: str) -> Subject:
    """Chunks that agree just so: one of them changes its mind."""
    plan = SubsamplePlan(Guarantee(EPSILON, DELTA, Neighboring.REPLACE_ONE), 41, 2)

    def decided(counts: Any) -> ArrayLike:
        found = plan.run(counts, fresh_entropy())
        return np.array([-1.0 if found is None else float(found)])

    return subject_of(name, decided, [24, 17], [23, 18], plan.event)


def _queries(name: str) -> Subject:
    """Four questions near the margin: one chunk changes its mind, three become easier and the last one harder."""
    plan = PrivateQueries(n_queries=8, epsilon=EPSILON, delta=DELTA).plan()
    margin = plan.votes.vector.margin

    def votes(distances: list[int]) -> Any:
        gaps = 2 * (np.array(distances) + margin) + 1
        return np.column_stack([1000 + (gaps + 1) // 2, 1000 - gaps // 2])

    def answers(counts: Any) -> ArrayLike:
        return np.asarray(plan.start(fresh_entropy()).answer(counts), dtype=np.float64)

    return subject_of(name, answers, votes([2, 2, 2, 0]), votes([1, 1, 1, 1]), plan.event)


_PROGRAMS = {
    "PrivateLinearSVC, refocused-sums": _texts,
    "PrivateLinearSVC, exponential, in Simplex": _in_simplex,
    "PrivateLinearSVC, localized, in Simplex": _in_simplex,
    "PrivateAdditiveClassifier": _additive,
    "PrivateAdditiveRegressor": _additive,
    "PrivateAdditiveRegressor, counts": _additive,
    "PrivateTransferClassifier, labels alone": _labels,
    "subsample_and_aggregate": _agreement,
    "PrivateQueries": _queries,
    "PrivateRidge, pure": _pure_ridge,
    "PrivatePCA, svd": _components,
    "PrivatePCA, centered": _components,
    "PrivatePCA, power": _components,
    "PrivateERM, hinge": _minimized,
    "PrivateERM, gradients": _minimized,
}
