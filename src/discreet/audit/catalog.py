"""Subjects that can be audited by class name: mechanisms, streams, recommenders, voters, linear models.

Each runs on the worst pair of data sets: the one from its proof for mechanisms, the worst known one otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from discreet.audit.subjects import (
    DELTA,
    EPSILON,
    LINEAR_MODELS,
    Subject,
    linear_subject,
    most_different,
    planned_as,
    subject_of,
)
from discreet.audit.workflow import transfer, workflow
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism, SymmetricGaussianMechanism
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.level_selection import LeveledSelection, LeveledTotals, largest_range
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import SparseVector, StableRelease
from discreet.mechanisms.tree import TreeMechanism
from discreet.mechanisms.voting import ConfidentPlurality, NoisyPlurality
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Discretized, Event, Gaussian, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity

_PROMISE = Guarantee(EPSILON, DELTA)
_worst = partial(subject_of, exact=True)


def mechanisms() -> Iterator[Subject]:
    """Yield every mechanism, on inputs at the declared distance."""
    yield from _additive()
    yield from _selections()
    yield from _votes()
    tree = TreeMechanism(
        Sensitivity(1.0), _multiplier(lambda m: Repeated(_gaussian(m), 3)), size=1, horizon=4
    )
    yield _worst(
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

        yield _worst(type(mechanism).__name__, run, 1.0, 0.0, mechanism.event)
    symmetric = SymmetricGaussianMechanism(Sensitivity(1.0), _multiplier(_gaussian), order=2)

    def matrix(value: float) -> ArrayLike:
        return float(symmetric.release(np.diag([value, 0.0]), fresh_entropy())[0, 0])

    yield _worst(type(symmetric).__name__, matrix, 1.0, 0.0, symmetric.event)


def _selections() -> Iterator[Subject]:
    """Give one candidate so large a lead that others are rare, and their odds move by almost e^epsilon.

    The worst case of an exponential mechanism is two candidates; of noisy maxima, one against several.
    """
    for kind, size, leads in (
        (ExponentialMechanism, 2, (1.0, 1.25, 1.5)),
        (LaplaceNoisyMax, 9, (0.25, 0.5, 0.75)),
    ):
        mechanism = kind(1.0, EPSILON, size)

        def run(scores: Any, tested: Any = mechanism) -> ArrayLike:
            return float(tested.select(scores, fresh_entropy()))

        pairs = [([0.0] + [-lead] * (size - 1), [-1.0] + [-lead] * (size - 1)) for lead in leads]
        if kind is ExponentialMechanism:
            pairs = [([0.0, -lead], [0.0, -lead - 1.0]) for lead in leads]
        yield most_different([_worst(kind.__name__, run, *pair, mechanism.event) for pair in pairs])

    leveled = LeveledSelection(largest_range(EPSILON, 6), EPSILON, 1)

    def choose(totals: Any) -> ArrayLike:
        return float(leveled.select(LeveledTotals(np.array(totals), leveled.shift, 1 << 10), fresh_entropy()))

    # Two candidates, +-G: the likely one loses as much as the rare one gains.
    half = leveled.step_range // 2
    yield _worst("LeveledSelection", choose, [110], [110 - half], leveled.event)


def _votes() -> Iterator[Subject]:
    stable = StableRelease(EPSILON, DELTA)

    def decide(distance: int) -> ArrayLike:
        return float(stable.release(1, distance, fresh_entropy()) is not None)

    yield _worst("StableRelease", decide, 3, 2, stable.event)

    vector = SparseVector.calibrated(EPSILON, DELTA, max_unstable=1, n_queries=8, refresh=False)

    def ask(distances: Any) -> ArrayLike:
        return vector.start(fresh_entropy()).ask_many(np.array(distances) + vector.margin)

    # Three questions become easier while the last one becomes harder: the worst direction of the proof.
    yield subject_of("SparseVector, 4 questions", ask, [2, 2, 2, 0], [1, 1, 1, 1], vector.event)

    plain = NoisyPlurality(_multiplier(lambda m: _gaussian(m, 2)), 2, n_queries=1)
    checked = ConfidentPlurality(10, _multiplier(_checked), _multiplier(_checked), 2, 1, 1)
    for mechanism in (plain, checked):

        def vote(counts: Any, tested: Any = mechanism) -> ArrayLike:
            code = tested.start(fresh_entropy()).answer(np.array([counts]))[0]
            return np.array([code == 0, code == 1], dtype=np.float64)

        # One voter changes sides where both the winner and whether it has enough votes are uncertain.
        pairs = [([top, low], [top - 1, low + 1]) for top in range(6, 15) for low in range(4, top)]
        yield most_different(
            [_worst(type(mechanism).__name__, vote, *pair, mechanism.event) for pair in pairs]
        )


def _prefixes(tree: TreeMechanism, vectors: Any) -> ArrayLike:
    """Return the noisy blocks that contain the first step, as prefix sums."""
    run, entropy = tree.start(), fresh_entropy()
    shown = []
    for step, value in enumerate(vectors, start=1):
        run.add([value], entropy)
        if step.bit_count() == 1:
            shown.append(float(run.prefix()[0]))
    return np.array(shown)


def _gaussian(multiplier: float, size: int = 1) -> Event:
    return Discretized(Gaussian(multiplier), size)


def _checked(multiplier: float) -> Event:
    return ConfidentPlurality(10, multiplier, multiplier, 2, 1, 1).event


def _multiplier(event: Callable[[float], Event]) -> float:
    """Return the least noise at epsilon 1, delta 0.01."""
    return math.nextafter(calibrate(event, _PROMISE), math.inf)


def played(player: Any, costs: Any) -> ArrayLike:
    """Return the actions of a player that learns the costs one by one."""
    chosen = []
    for row in costs:
        player.learn_one(row)
        if player.step < player.horizon:
            chosen.append(float(player.predict_one()))
    return np.array(chosen)


def streams() -> Iterator[Subject]:
    """Yield online learners."""
    from discreet import PrivateFTRL, PrivateOnlineLinearModel

    for method in ("tree", "sampling"):
        plan = PrivateFTRL(2, 4, EPSILON, DELTA, method=method).plan()

        def actions(costs: Any, method: str = method, plan: Any = plan) -> ArrayLike:
            return played(planned_as(PrivateFTRL(2, 4, EPSILON, DELTA, method=method), plan), costs)

        tried = []
        for lead in (0.0, 0.5, 1.0):  # later costs that make the record's favored action rare
            costs = np.array([[1.0, -1.0], [-lead, lead], [-lead, lead], [0.0, 0.0]])
            other = np.vstack([-costs[:1], costs[1:]])
            tried.append(subject_of(f"PrivateFTRL, {method}", actions, costs, other, plan.event))
        yield most_different(tried)

    options: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False, "radius": 1e6}
    stream = PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **options).plan()

    def models(sign: float) -> ArrayLike:
        """Play an adaptive adversary: the ninth record is misclassified and nearly orthogonal to the model."""
        model = planned_as(PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **options), stream)
        path = []
        for step in range(1, 17):
            record = np.zeros(2)
            if step == 9:
                along = model.coef_ / np.linalg.norm(model.coef_)
                record = 0.01 * along + sign * 0.9999 * np.array([-along[1], along[0]])
            path.append(model.learn_one(record, 0).coef_)
        return np.array(path)

    # A record chosen after seeing models is in one block fewer than the price covers.
    yield subject_of("PrivateOnlineLinearModel", models, 1.0, -1.0, stream.event)


def recommenders() -> Iterator[Subject]:
    """Yield every method, on two users of extreme taste for different items, the same items, or half of them."""
    from discreet.recommend.methods import METHODS

    for method in METHODS:
        yield most_different(list(_users(method)))


def _users(method: str) -> Iterator[Subject]:
    import scipy.sparse as sp

    from discreet import PrivateMatrixCompletion
    from discreet.recommend.ratings import Scale, read

    others = np.array([[3.0, 4.0, 0.0, 2.0], [0.0, 2.0, 5.0, 3.0], [1.0, 0.0, 4.0, 0.0]])
    # Single random vectors; with many, some lie in the plane of the two rows.
    rounds: dict[str, Any] = {"n_iterations": 20} if method == "frank-wolfe-oja" else {}
    model = PrivateMatrixCompletion(method, EPSILON, DELTA, rank=3, **rounds)
    plan = model.plan(len(others) + 1, 4)

    def run(ratings: Any) -> ArrayLike:
        released = plan.run(ratings, fresh_entropy())
        names = ("base", "directions", "bases", "factors")
        return np.asarray(next(vars(released)[name] for name in names if name in vars(released)))

    def program(data: Any) -> Any:
        return clone(model).fit(data)

    for one, two in (
        ([5.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]),
        ([5.0, 1.0, 5.0, 1.0], [1.0, 5.0, 1.0, 5.0]),
        ([5.0, 1.0, 5.0, 1.0], [5.0, 5.0, 1.0, 1.0]),
    ):
        first, second = (sp.csr_array(np.vstack([[row], others])) for row in (one, two))
        one_side, other = (read(table, Scale(1.0, 5.0), None)[0] for table in (first, second))
        name, relation = f"PrivateMatrixCompletion, {method}", plan.guarantee.neighboring
        yield Subject(name, relation, program, (first, second), run, one_side, other, plan.event)


def _classifiers() -> Iterator[Subject]:
    for name in ("PrivateLinearSVC", "PrivateLogisticRegression"):
        yield linear_subject(name, Neighboring.REPLACE_ONE, "auto", 3000)


_PARTS = (  # with the beginnings of their names, so that looking up a name makes no other part
    (mechanisms, "gaussianmech laplace gammanorm symmetric exponentialmech leveled stable sparsevector"),
    (mechanisms, "noisyplurality confidentplurality treemech"),
    (streams, "privateftrl privateonlinelinear"),
    (
        workflow,
        "private_quantiles private_norm_bound private_domains evaluate coefficient_intervals describe",
    ),
    (workflow, "privatesearchcv privatemedian gridwalk"),
    (transfer, "privatetransfer privatelabeler private_error_rate"),
    (recommenders, "privatematrixcompletion"),
    (_classifiers, "privatelinearsvc privatelogisticregression"),
)
_ALIASES = {"privateselection": "privatesearchcv"}


def named(name: str) -> Subject:
    """Return the subject whose name is, or begins with, ``name``, ignoring case."""
    wanted = _ALIASES.get(name.lower(), name.lower())
    for kind in LINEAR_MODELS:
        if kind.lower() == wanted:
            return linear_subject(kind, Neighboring.REPLACE_ONE)
    for part, names in _PARTS:
        if any(one.startswith(wanted) or wanted.startswith(one) for one in names.split()):
            for subject in part():
                if subject.name.lower().startswith(wanted):
                    return subject
    raise ValueError(
        f"there is no audit subject {name!r}; pass a model file, logistic, svm, {', '.join(LINEAR_MODELS)}, or another "
        "name from benchmarks/results/audit.md"
    )
