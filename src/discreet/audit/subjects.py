"""Everything that is audited: a program, two neighbors that strain it, and what an attacker reads off its release.

Pairs are the worst that theory knows where it knows one (``exact``), and otherwise chosen among a few plausible ones by
a short trial. A subject's program is replayed; its ``run`` is repeated many times on either side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from discreet.audit import estimates
from discreet.audit.attack import Attack, exact_bound, prepared, projections
from discreet.audit.canaries import audit_case, neighbors_of, worst_pair
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.witness import PlannedRun, Program, Weakener, fitting
from discreet.mechanisms.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.recording import recorded_by
from discreet.privacy import accountants
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, Neighboring

Array = NDArray[np.float64]
Run = Callable[[Any], ArrayLike]

EPSILON, DELTA = 1.0, 1e-2
_TRIAL_RUNS = 40


@dataclass(frozen=True, eq=False)
class Subject:
    """One thing to audit.

    Attributes
    ----------
    name, relation : what it is, and under which relation.
    program, strained : what is replayed, and on which neighbors.
    run, first, second : one run of what is attacked, as numbers, and the neighbors it runs on.
    event : what is charged for one run.
    exact : whether the pair is known to be the worst one.
    weaker : one run with half of the noise; None where `Weakener` makes the twin by itself.
    """

    name: str
    relation: Neighboring
    program: Program
    strained: tuple[Any, Any]
    run: Run
    first: Any
    second: Any
    event: Event
    exact: bool = False
    weaker: Run | None = None

    @property
    def guarantee(self) -> Guarantee:
        """What is promised: by the plan, or the budget of the audit."""
        if isinstance(self.first, PlannedRun):
            return cast(Guarantee, self.first.plan.guarantee)
        return Guarantee(EPSILON, DELTA, self.relation)


def released(run: Run, data: Any, runs: int, *, seed: int | None, share: float = 1.0) -> Array:
    """The numbers of ``runs`` runs, one row each; seeded, or with real noise if ``seed`` is None."""
    if share != 1.0 and seed is None:
        raise ValueError("weakened noise is never secure: pass a seed")
    with contextlib.nullcontext() if seed is None else insecure_noise(seed):
        rows = []
        for _ in range(runs):
            if share == 1.0:
                rows.append(np.ravel(np.asarray(run(data), dtype=np.float64)))
                continue
            with recorded_by(Weakener(share)):
                rows.append(np.ravel(np.asarray(run(data), dtype=np.float64)))
    return np.stack(rows)


def attacked(
    subject: Subject,
    runs: int,
    *,
    delta: float = DELTA,
    confidence: float = 0.95,
    seed: int | None = 0,
    share: float = 1.0,
) -> Attack:
    """Run a subject, or its twin with ``share`` of the noise, ``runs`` times on either side, and bound epsilon."""
    run, kept = subject.run, share
    if share != 1.0 and subject.weaker is not None:
        run, kept = subject.weaker, 1.0
    other = None if seed is None else seed + 1
    a, b = projections(
        released(run, subject.first, runs, seed=seed, share=kept),
        released(run, subject.second, runs, seed=other, share=kept),
    )
    return Attack(
        claimed=accountants.epsilon(subject.event, delta, subject.relation),
        delta=delta,
        runs=runs,
        score="best linear projection",
        bound=estimates.threshold_bound(a, b, delta, confidence),
        alarm=estimates.threshold_bound(a, b, delta, 1 - 1e-6, joint=True),
        exact=_inside(subject, runs // 2, delta, confidence, seed) if share == 1.0 else None,
        scores=(a, b),
    )


def _inside(
    subject: Subject, runs: int, delta: float, confidence: float, seed: int | None
) -> estimates.LowerBound | None:
    first = subject.first
    if seed is None or not isinstance(first, PlannedRun) or not perturbs_objective(first.plan):
        return None
    if not hasattr(first.plan.objective_noise, "effective_stddev") or first.plan.problem.geometry is not None:
        return None  # exact ratios are known for normal noise and minimizers in all of space
    return exact_bound(first, subject.second, runs, delta, confidence, seed + 4, 1.0)


def classifiers(relations: Sequence[Neighboring], solvers: Sequence[str], others: int) -> Iterator[Subject]:
    """Both linear classifiers with each of the solvers that plans for them."""
    from discreet.estimators.linear import PrivateLinearSVC, PrivateLogisticRegression

    for kind in (PrivateLinearSVC, PrivateLogisticRegression):
        for solver in solvers:
            for relation in relations:
                model = kind(EPSILON, DELTA, neighboring=relation.value, classes=[0, 1], solver=solver)
                try:
                    model.plan(100, 2, 2)
                except (ValueError, TypeError):
                    continue  # not a solver for this problem
                case, pair = audit_case(model, others)
                strained = worst_pair(relation, n_columns=2, n_rest=60)
                name = f"{kind.__name__}, {solver}"
                # Opposite records are never both misclassified for certain: that pair only comes close.
                steep = kind is PrivateLinearSVC or relation is Neighboring.ZERO_OUT
                exact = solver == "objective" and steep
                yield _fitted(name, case, (strained.first, strained.second), [pair], relation, exact)


def regressors(relations: Sequence[Neighboring], only: Sequence[str] = ()) -> Iterator[Subject]:
    """The other linear models (or ``only`` some of them), with their default solvers."""
    import discreet

    for name, options in LINEAR_MODELS.items():
        if only and name not in only:
            continue
        for relation in relations:
            yield of(getattr(discreet, name)(EPSILON, DELTA, neighboring=relation.value, **options))


def of(estimator: Any) -> Subject:
    """The subject made of any linear model of this package, with its own guarantee, relation and solver."""
    name, relation = type(estimator).__name__, Neighboring(estimator.neighboring)
    known = estimator.get_params(deep=False)
    if "solver" not in known or not known.keys() & {"classes", "target_bounds"}:
        raise ValueError(
            f"neighbors are known for the linear models of this package, not for {name}; replay it on neighbors of "
            "your own with discreet.audit.replay"
        )
    changes: dict[str, Any] = {"ledger": None, "bad_rows": "null"}
    if "classes" in known:
        low, high = changes["classes"] = [0, 1]
    else:
        low, high = estimator.target_bounds
    if relation is Neighboring.ADD_REMOVE_ONE:
        changes["n_samples"] = 50
    pairs = _pairs(relation, low, high)
    model = clone(estimator).set_params(**changes)
    return _fitted(name, model, (pairs[0].first, pairs[0].second), pairs, relation, False)


LINEAR_MODELS: dict[str, dict[str, Any]] = {
    "PrivateRidge": {"target_bounds": (-1.0, 1.0)},
    "PrivateLinearRegression": {"target_bounds": (-1.0, 1.0)},
    "PrivateHuberRegressor": {"target_bounds": (-1.0, 1.0)},
    "PrivateQuantileRegressor": {"target_bounds": (-1.0, 1.0)},
    "PrivatePoissonRegressor": {"target_bounds": (0.0, 10.0)},
    "PrivateLasso": {"target_bounds": (-1.0, 1.0)},
    "PrivateSimplexRegressor": {"target_bounds": (-1.0, 1.0)},
    "PrivateSparseLogisticRegression": {"classes": [0, 1]},
    "PrivateSimplexClassifier": {"classes": [0, 1]},
}


def _pairs(relation: Neighboring, low: float, high: float) -> list[Any]:
    """Neighbors worth trying: an opposite row, an opposite target, and both among rows that pull one way."""
    pairs = []
    for rest in (np.zeros((3, 2)), np.tile([[0.0, 1e3]], (20, 1))):
        X = np.vstack([[[1e3, 0.0]], rest])
        y = np.array([high] + [low] * len(rest))
        pairs.append(neighbors_of(X, y, 0, relation, [-1e3, 0.0], high))
        if relation is Neighboring.REPLACE_ONE:
            pairs.append(neighbors_of(X, y, 0, relation, [1e3, 0.0], low))
    return pairs


def _fitted(
    name: str,
    model: Any,
    strained: tuple[Any, Any],
    pairs: Sequence[Any],
    relation: Neighboring,
    exact: bool,
) -> Subject:
    """An estimator: its plan is made once and run many times on the records of either side."""

    def run(planned: Any) -> ArrayLike:
        return np.asarray(planned.plan.run(planned.records, fresh_entropy()).theta)

    tried = [(prepared(model, pair.first), prepared(model, pair.second)) for pair in pairs]
    first, second = tried[0]
    if len(tried) > 1:
        first, second = max(tried, key=lambda both: _distance(run, *both))
    return Subject(name, relation, fitting(model), strained, run, first, second, first.plan.event, exact)


def _distance(run: Run, first: Any, second: Any) -> float:
    """How far apart the means of a few weakened runs are, in standard deviations: a matter of power only."""
    a, b = (released(run, data, _TRIAL_RUNS, seed=7, share=0.5) for data in (first, second))
    return float(np.max(np.abs(a.mean(axis=0) - b.mean(axis=0)) / (a.std(axis=0) + b.std(axis=0) + 1e-300)))
