"""Everything that is audited: a program, two neighbors that strain it, and what an attacker reads off its release.

Pairs are the worst that theory knows where it knows one (``exact``), and otherwise chosen among a few plausible ones by
a short trial. A subject's program is replayed; its ``run`` is repeated many times on either side.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from discreet.audit import estimates
from discreet.audit.attack import (
    Attack,
    alarm_of,
    attack,
    exact_bound,
    exact_losses,
    minimizer_law_known,
    prepared,
    projections,
)
from discreet.audit.canaries import audit_cases, neighbors_of, worst_pair
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.transcripts import Run, transcripts
from discreet.audit.witness import PlannedRun, Program, Weakener, fitting
from discreet.mechanisms.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.recording import recorded_by
from discreet.privacy import accountants
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.solvers import base

Array = NDArray[np.float64]

EPSILON, DELTA = 1.0, 1e-2
FEWEST = 60  # runs, below which nothing can be said
_TRIAL_RUNS, _TRIAL_SECONDS = 40, 0.5


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
    composed : whether the promise is one about all answers of all mechanisms together, so that an attacker may see
        them; False where some of them must stay secret.
    remark : why an attack is bound to stay far below the claim, where that is known.
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
    composed: bool = True
    remark: str = ""

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
                rows.append(np.nan_to_num(np.ravel(np.asarray(run(data), dtype=np.float64))))
                continue
            with recorded_by(Weakener(share)):
                rows.append(np.nan_to_num(np.ravel(np.asarray(run(data), dtype=np.float64))))
    return np.stack(rows)


def attacked(
    subject: Subject,
    runs: int,
    *,
    delta: float = DELTA,
    confidence: float = 0.95,
    seed: int | None = 0,
    share: float = 1.0,
    seconds: float = float("inf"),
) -> Attack:
    """Run a subject, or its twin with ``share`` of the noise, ``runs`` times on either side, and bound epsilon.

    Without a seed the real noise is attacked by what is released; likelihoods of transcripts, and all twins, need one.
    """
    if isinstance(subject.first, PlannedRun) and perturbs_objective(subject.first.plan):
        runs = min(runs, _affordable(subject, seconds))
        options: dict[str, Any] = {"delta": delta, "confidence": confidence, "seed": seed, "share": share}
        return attack(subject.first, subject.second, runs=runs, exact_runs=runs, **options)
    heard = None
    if subject.composed:
        sides = subject.first, subject.second
        heard = transcripts(subject.run, *sides, runs, seed=seed or 0, share=share, seconds=seconds)
    if heard is not None and seed is not None:
        scores, shown = (heard.first, heard.second), heard.released
        sees, score = "transcript", "likelihood ratio of all answers of all mechanisms"
    else:
        runs = min(runs, _affordable(subject, seconds))
        shown = (
            released(subject.run, subject.first, runs, seed=seed, share=share),
            released(subject.run, subject.second, runs, seed=None if seed is None else seed + 1, share=share),
        )
        scores, sees, score = projections(*shown), "released numbers", "best linear projection"
    losses = None if heard is None else (heard.first, -heard.second)
    return Attack(
        claimed=accountants.epsilon(subject.event, delta, subject.relation),
        delta=delta,
        runs=len(scores[0]),
        sees=sees,
        score=score,
        bound=estimates.threshold_bound(*scores, delta, confidence),
        alarm=alarm_of(scores, losses, delta),
        exact=None if losses is None else exact_bound(losses, delta, confidence),
        model=estimates.threshold_bound(*projections(*shown), delta, confidence),
        scores=scores,
    )


def _affordable(subject: Subject, seconds: float) -> int:
    """How many runs per data set fit into the time; the first run compiles and is not counted."""
    if seconds == float("inf"):
        return 10**9
    released(subject.run, subject.first, 2, seed=0)
    begin = time.process_time()
    released(subject.run, subject.first, 10, seed=0)
    # On two data sets, and perturbed objectives once more for their exact losses, which cost about as much as a run.
    return max(FEWEST, int(seconds / 6 / max(1e-6, (time.process_time() - begin) / 10)))


def classifiers(relations: Sequence[Neighboring], solvers: Sequence[str], others: int) -> Iterator[Subject]:
    """Both linear classifiers with each of the solvers that plans for them.

    The logistic loss is tried under the first relation that a solver plans for: its pairs only come close.
    """
    from discreet.estimators.linear import PrivateLinearSVC, PrivateLogisticRegression

    for kind in (PrivateLinearSVC, PrivateLogisticRegression):
        for solver in solvers:
            for relation in relations:
                options: dict[str, Any] = {"neighboring": relation.value, "classes": [0, 1]}
                model = kind(EPSILON, DELTA, solver=brief(solver), **options)
                try:
                    model.plan(100, 2, 2)
                except (ValueError, TypeError):
                    continue  # not a solver for this problem
                yield dataclasses.replace(of(model, others), name=f"{kind.__name__}, {solver}")
                if kind is PrivateLogisticRegression:
                    break


def regressors(relations: Sequence[Neighboring], only: Sequence[str] = ()) -> Iterator[Subject]:
    """The other linear models (or ``only`` some of them), with their default and their other solvers."""
    import discreet

    for name, options in LINEAR_MODELS.items():
        if only and name not in only:
            continue
        for solver in (None, *OTHER_SOLVERS.get(name, ())):
            for relation in relations:
                model = getattr(discreet, name)(EPSILON, DELTA, neighboring=relation.value, **options)
                if solver is not None or name in _SLOW:
                    model.set_params(solver=brief(model.solver if solver is None else solver))
                subject = of(model)
                yield subject if solver is None else dataclasses.replace(subject, name=f"{name}, {solver}")


def brief(solver: Any) -> Any:
    """A solver that makes few steps and does not wait: the price of each is all the higher."""
    found = base.resolve(solver)
    known = {part.name for part in dataclasses.fields(cast(Any, found))}
    changes = {name: value for name, value in {"n_iterations": 4, "clock": False}.items() if name in known}
    return dataclasses.replace(cast(Any, found), **changes)


def of(estimator: Any, others: int = 1000) -> Subject:
    """The subject made of any linear model of this package, with its own guarantee, relation and solver.

    Of the cases that theory suggests, the one is taken whose runs differ most.
    """
    name, relation = type(estimator).__name__, Neighboring(estimator.neighboring)
    known = estimator.get_params(deep=False)
    if "solver" not in known or not known.keys() & {"classes", "target_bounds"}:
        raise ValueError(
            f"neighbors are known for the linear models of this package, not for {name}; replay it on neighbors of "
            "your own with discreet.audit.replay"
        )
    if name in ("PrivateLinearSVC", "PrivateLogisticRegression"):
        cases = audit_cases(estimator, others)
        strained = worst_pair(
            relation,
            n_rest=60,
            feature_bound=estimator.feature_bound,
            fit_intercept=estimator.fit_intercept,
            labels=tuple(cases[0][0].classes[:2]),
        )
        subject = _fitted(name, cases, relation)
        # Opposite records are never both misclassified for certain: that pair only comes close.
        exact = name == "PrivateLinearSVC" or relation is Neighboring.ZERO_OUT
        return dataclasses.replace(subject, strained=(strained.first, strained.second), exact=exact)
    changes: dict[str, Any] = {"ledger": None, "bad_rows": "null"}
    if "classes" in known:
        low, high = changes["classes"] = [0, 1]
    else:
        low, high = estimator.target_bounds
    if relation is Neighboring.ADD_REMOVE_ONE:
        changes["n_samples"] = 50
    model = clone(estimator).set_params(**changes)
    pairs = _simplex_pairs(relation, low, high) if "Simplex" in name else _pairs(relation, low, high)
    return _fitted(
        name, [(case, pair) for pair in pairs for case in _steep(model, len(pair.first[1]))], relation
    )


def _steep(model: Any, n_samples: int) -> list[Any]:
    """The model, and again such that its loss stays as steep as at zero: under much ridge, or over a small set."""
    known = model.get_params(deep=False)
    cases = [model]
    if "l2" in known and not hasattr(base.resolve(model.solver), "moment_share"):
        cases.append(clone(model).set_params(l2=200.0 * model.feature_bound**2 / n_samples))
    if "l1_radius" in known:
        cases.append(clone(model).set_params(l1_radius=0.01))
    return cases


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
#: Solvers that no classifier and no default shows.
OTHER_SOLVERS: dict[str, tuple[str, ...]] = {
    "PrivateLasso": ("frank-wolfe-dissertation", "mirror-descent"),
    "PrivateSparseLogisticRegression": ("frank-wolfe-dissertation", "mirror-descent"),
}
_SLOW = ("PrivateQuantileRegressor",)


def _pairs(relation: Neighboring, low: float, high: float) -> list[Any]:
    """Neighbors worth trying.

    Opposite rows and opposite targets, among rows that say nothing or pull one way; an opposite target of a row
    with no zeros; among rows that agree with one of the two, which makes the other's choice rare, so that its odds move
    most; and rows at 120 degrees, which are the worst for second moments.
    """
    pairs = []
    far, off = [1e3, 0.0], [-500.0, 500.0 * 3**0.5]
    for row, others, count in (
        (far, [0.0, 0.0], 3),
        ([1e3, 1e3], [0.0, 0.0], 3),
        (far, [0.0, 1e3], 20),
        (far, far, 1),
        (far, far, 3),
        (far, far, 6),
    ):
        X = np.vstack([[row], np.tile([others], (count, 1))])
        y = np.array([high] + [low] * count)
        pairs.append(neighbors_of(X, y, 0, relation, row, low))
        if relation is Neighboring.REPLACE_ONE and others == [0.0, 0.0] and row == far:
            pairs.append(neighbors_of(X, y, 0, relation, [-1e3, 0.0], high))
            pairs.append(neighbors_of(X, y, 0, relation, off, high))
    return pairs


def _simplex_pairs(relation: Neighboring, low: float, high: float) -> list[Any]:
    """One record alone, whose columns agree on the wrong answer but for one, which is another in the neighbor.

    Then the even mixture of all columns is as wrong as can be, and the two columns gain and lose most.
    """
    row = np.full((1, 40), -1e3)
    other = row.copy()
    row[0, 0] = other[0, 1] = 1e3
    return [neighbors_of(row, np.array([high]), 0, relation, other[0], high)]


def _fitted(name: str, cases: Sequence[tuple[Any, Any]], relation: Neighboring) -> Subject:
    """An estimator on the pair on which its runs differ most: its plan is made once and run many times."""

    def run(planned: Any) -> ArrayLike:
        return np.asarray(planned.plan.run(planned.records, fresh_entropy()).theta)

    tried, refusals = [], []
    for model, pair in cases:
        try:
            sides = prepared(model, pair.first), prepared(model, pair.second)
        except ValueError as problem:
            refusals.append(problem)
            continue
        strained = (pair.first, pair.second)
        event = sides[0].plan.event
        tried.append(Subject(name, relation, fitting(model), strained, run, *sides, event))
    if not tried:
        raise refusals[0]
    return most_different(tried)


def most_different(tried: Sequence[Subject]) -> Subject:
    """The one of several pairs whose two sides are told apart best."""
    return tried[0] if len(tried) == 1 else max(tried, key=_divergence)


def _divergence(subject: Subject) -> float:
    """About how well runs on the two sides can be told apart, from a few runs: a matter of power only."""
    first, second = subject.first, subject.second
    if isinstance(first, PlannedRun) and minimizer_law_known(first.plan):
        losses = exact_losses(first, second, _TRIAL_RUNS, seed=7, share=0.5)
        return float(np.mean(-np.expm1(np.minimum(0.5 - losses, 0.0))))
    if isinstance(first, PlannedRun) and perturbs_objective(first.plan):
        a, b = (released(subject.run, data, _TRIAL_RUNS, seed=7, share=0.5) for data in (first, second))
        return float(
            np.max(np.abs(a.mean(axis=0) - b.mean(axis=0)) / (a.std(axis=0) + b.std(axis=0) + 1e-300))
        )
    heard = transcripts(
        subject.run, first, second, _TRIAL_RUNS, seed=7, share=0.5, seconds=_TRIAL_SECONDS, fewest=4
    )
    return max(
        float(np.mean(-np.expm1(np.minimum(0.5 - part, 0.0)))) for part in (heard.first, -heard.second)
    )
