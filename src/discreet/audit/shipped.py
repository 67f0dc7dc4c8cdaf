"""Mechanisms, voters, streams and recommenders on the pairs that their proofs call the worst."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.audit.subjects import DELTA, EPSILON, Subject
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.entropy import fresh_entropy
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.mechanisms.stability import StableRelease
from discreet.mechanisms.symmetric import SymmetricGaussianMechanism
from discreet.mechanisms.tree import TreeMechanism
from discreet.mechanisms.voting import ConfidentPlurality, NoisyPlurality
from discreet.privacy.calibration import calibrate
from discreet.privacy.events import Discretized, Event, Gaussian, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity

ANY = Neighboring.REPLACE_ONE
_PROMISE = Guarantee(EPSILON, DELTA)


def mechanisms() -> Iterator[Subject]:
    """Every mechanism on inputs at the declared distance."""
    yield from _additive()
    yield from _selections()
    yield from _votes()
    tree = TreeMechanism(
        Sensitivity(1.0), _multiplier(lambda m: Repeated(_gaussian(m), 3)), size=1, horizon=4
    )
    yield _subject(
        "TreeMechanism, 4 steps", lambda data: _prefixes(tree, data), [1.0, 0, 0, 0], [0.0] * 4, tree.event
    )


def _additive() -> Iterator[Subject]:
    for mechanism in (
        GaussianMechanism(Sensitivity(1.0), _multiplier(_gaussian), size=1),
        LaplaceMechanism(Sensitivity(1.0, norm=1), 1 / EPSILON, size=1),
        GammaNormMechanism(Sensitivity(1.0), 1 / EPSILON, size=1),
    ):

        def run(value: float, tested: Any = mechanism) -> ArrayLike:
            return np.asarray(tested.release([value], fresh_entropy()))

        yield _subject(type(mechanism).__name__, run, 1.0, 0.0, mechanism.event)
    symmetric = SymmetricGaussianMechanism(Sensitivity(1.0), _multiplier(_gaussian), order=2)

    def matrix(value: float) -> ArrayLike:
        return float(symmetric.release(np.diag([value, 0.0]), fresh_entropy())[0, 0])

    yield _subject(type(symmetric).__name__, matrix, 1.0, 0.0, symmetric.event)


def _selections() -> Iterator[Subject]:
    """Two candidates; the better one leads by so much that the other is rare, and its odds move by e^epsilon."""
    for kind in (ExponentialMechanism, LaplaceNoisyMax):
        honest = kind(1.0, EPSILON, 2)
        twin = kind(1.0, 2 * EPSILON, 2)

        def run(scores: Any, tested: Any = honest) -> ArrayLike:
            return float(tested.select(scores, fresh_entropy()))

        def weaker(scores: Any, tested: Any = twin) -> ArrayLike:
            return float(tested.select(scores, fresh_entropy()))

        pair = [0.0, -1.0], [0.0, -2.0]
        yield dataclasses.replace(_subject(kind.__name__, run, *pair, honest.event), weaker=weaker)


def _votes() -> Iterator[Subject]:
    stable = StableRelease(EPSILON, DELTA)

    def decide(distance: int, tested: Any = stable) -> ArrayLike:
        return float(tested.release(1, distance, fresh_entropy()) is not None)

    doubled = StableRelease(2 * EPSILON, 2 * DELTA)
    subject = _subject("StableRelease", decide, 1, 0, stable.event)
    yield dataclasses.replace(subject, weaker=lambda distance: decide(distance, doubled))

    vector = SparseVector.calibrated(EPSILON, DELTA, max_unstable=1, n_queries=8, refresh=False)
    poorer = SparseVector(
        2 * EPSILON, vector.threshold_scale / 2, vector.query_scale / 2, vector.margin // 2, 1, False
    )

    def ask(distances: Any, tested: SparseVector = vector) -> ArrayLike:
        outcomes = tested.start(fresh_entropy()).ask_many(np.array(distances) + tested.margin)
        return float(outcomes.tolist() == [1, 1, 1, 0])

    # Three questions become easier while the last one becomes harder: the worst direction of the proof.
    subject = _subject(
        "SparseVector, 4 questions", ask, [2, 2, 2, 0], [1, 1, 1, 1], vector.event, exact=False
    )
    yield dataclasses.replace(subject, weaker=lambda distances: ask(distances, poorer))

    plain = NoisyPlurality(_multiplier(_votes_gaussian), 2, n_queries=1)
    checked = ConfidentPlurality(10, _multiplier(_checked), _multiplier(_checked), 2, 1, 1)
    for mechanism in (plain, checked):

        def vote(counts: Any, tested: Any = mechanism) -> ArrayLike:
            code = tested.start(fresh_entropy()).answer(np.array([counts]))[0]
            return np.array([code == 0, code == 1], dtype=np.float64)

        def weaker_vote(counts: Any, tested: Any = mechanism) -> ArrayLike:
            halves = {
                name: getattr(tested, name) / 2
                for name in ("noise_multiplier", "check_multiplier", "vote_multiplier")
                if hasattr(tested, name)
            }
            return vote(counts, dataclasses.replace(tested, **halves))

        exact = mechanism is plain
        subject = _subject(type(mechanism).__name__, vote, [10, 7], [9, 8], mechanism.event, exact=exact)
        yield dataclasses.replace(subject, weaker=weaker_vote)


def streams_and_users() -> Iterator[Subject]:
    """Online learners, the recommenders, quantiles: what is not a fit of a linear model."""
    from discreet import PrivateFTRL, PrivateMedian, PrivateOnlineLinearModel, private_quantiles

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

        costs = np.array([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
        other = np.vstack([-costs[:1], costs[1:]])
        yield _subject(f"PrivateFTRL, {method}", actions, costs, other, plan.event, exact=False)

    online: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False}
    stream = PrivateOnlineLinearModel(1, 4, EPSILON, DELTA, **online).plan()

    def models(records: Any) -> ArrayLike:
        model = _planned(PrivateOnlineLinearModel(1, 4, EPSILON, DELTA, **online), stream)
        path = []
        for x, label in records:
            path.append(model.learn_one([x], label).coef_.copy())
        return np.array(path)

    records = [(1.0, 1)] + [(0.0, 1)] * 3
    yield _subject(
        "PrivateOnlineLinearModel", models, records, [(1.0, 0), *records[1:]], stream.event, exact=False
    )

    def median(rows: Any) -> ArrayLike:
        return np.asarray(PrivateMedian(EPSILON, DELTA, radius=1.0).fit(rows).median_)

    rows = np.vstack([[[1.0, 0.0]], np.zeros((3, 2))])
    planned = PrivateMedian(EPSILON, DELTA, radius=1.0).plan(4, 2)
    yield _subject("PrivateMedian", median, rows, rows * [[-1.0, 1.0]], planned.event, exact=False)

    def quantile(values: Any) -> ArrayLike:
        found = private_quantiles(values, 0.5, candidates=[0.0, 1.0, 2.0, 3.0], epsilon=EPSILON)
        return np.asarray(found.values)

    # Moved from above all candidates to below them, a value makes low ones better and high ones worse.
    values = np.array([5.0, 1.5, 1.5, 1.5, 1.5])
    event = private_quantiles(values, 0.5, candidates=[0.0, 1.0, 2.0, 3.0], epsilon=EPSILON).privacy_.event
    yield _subject(
        "private_quantiles", quantile, values, np.array([-1.0, 1.5, 1.5, 1.5, 1.5]), event, exact=False
    )
    yield from recommenders()


def recommenders() -> Iterator[Subject]:
    """Every method of the recommender; only for item effects is the worst pair of users known."""
    import scipy.sparse as sp

    from discreet import PrivateMatrixCompletion
    from discreet.recommend.methods import METHODS
    from discreet.recommend.ratings import Scale, read

    rng = np.random.default_rng(0)
    many = np.where(rng.random((40, 8)) < 0.5, rng.integers(1, 6, (40, 8)), 0).astype(float)
    changed = many.copy()
    changed[0] = np.where(many[0] > 0, 0.0, 5.0)
    two = [sp.csr_array([[s, -s], [0.5, 0.25]]) for s in (1.0, -1.0)]
    for method in METHODS:
        small = method == "bias"
        bounds = (-1.0, 1.0) if small else (1.0, 5.0)
        model = PrivateMatrixCompletion(method, EPSILON, DELTA, rank=2, rating_bounds=bounds)
        first, second = two if small else [sp.csr_array(part) for part in (many, changed)]
        plan = model.plan(*first.shape)

        def run(ratings: Any, plan: Any = plan) -> ArrayLike:
            model = plan.run(ratings, fresh_entropy())
            return np.asarray(
                next(vars(model)[name] for name in ("base", "directions", "bases") if name in vars(model))
            )

        sides = [read(part, Scale(*bounds), None)[0] for part in (first, second)]

        def program(data: Any, model: Any = model) -> Any:
            from sklearn.base import clone

            return clone(model).fit(data)

        yield Subject(
            f"PrivateMatrixCompletion, {method}",
            plan.guarantee.neighboring,
            program,
            (first, second),
            run,
            sides[0],
            sides[1],
            plan.event,
        )


def _subject(name: str, run: Any, first: Any, second: Any, event: Event, *, exact: bool = True) -> Subject:
    return Subject(name, ANY, run, (first, second), run, first, second, event, exact)


def _planned(stream: Any, plan: Any) -> Any:
    """A stream that does not calibrate again what is known already."""
    vars(stream)["plan"] = lambda: plan
    return stream


def _prefixes(tree: TreeMechanism, vectors: Any) -> ArrayLike:
    """The noisy blocks that hold the first step, as prefix sums show them."""
    run, entropy = tree.start(), fresh_entropy()
    shown = []
    for step, value in enumerate(vectors, start=1):
        run.add([value], entropy)
        if step.bit_count() == 1:
            shown.append(float(run.prefix()[0]))
    return np.array(shown)


def _gaussian(multiplier: float) -> Event:
    return Discretized(Gaussian(multiplier), 1)


def _votes_gaussian(multiplier: float) -> Event:
    return Discretized(Gaussian(multiplier), 2)


def _checked(multiplier: float) -> Event:
    return ConfidentPlurality(10, multiplier, multiplier, 2, 1, 1).event


def _multiplier(event: Callable[[float], Event]) -> float:
    """The least noise at epsilon 1, delta 0.01."""
    return math.nextafter(calibrate(event, _PROMISE), math.inf)
