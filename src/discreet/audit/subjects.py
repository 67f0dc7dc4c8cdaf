"""Subjects of audits: a program, two worst-case neighbors, and the numbers that an attacker sees.

The pair is the worst one by theory where it is known (``exact``), otherwise the best of a few candidates in a short
trial. A subject's ``program`` is replayed; its ``run`` is repeated many times on each data set.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from discreet.audit.attack import exact_losses, minimizer_law_known, prepared, released
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.trace import PlannedRun, Program, fitting
from discreet.audit.transcripts import Run, exact_delta, exact_epsilon, transcript_laws, transcripts
from discreet.audit.worst_pairs import (
    audit_cases,
    ball_cases,
    class_case,
    draws_from_ball,
    neighbors_of,
    sums_classes,
    worst_pair,
)
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.solvers import base

EPSILON, DELTA = 1.0, 1e-2
_TRIAL_RUNS, _TRIAL_TRANSCRIPTS, _TRIAL_LISTED = 40, 12, 300
_CLEARLY = 5.0  # times delta: a twin with a larger delta at the claimed epsilon is caught in few runs


@dataclass(frozen=True, eq=False)
class Subject:
    """One thing to audit.

    Attributes
    ----------
    name, relation : its name, and the relation of the guarantee.
    program, strained : the program to replay, and the neighbors for it.
    run, first, second : one attacked run, which returns numbers, and the neighbors for it.
    event : the event charged for one run.
    exact : whether the pair is known to be the worst one.
    composed : whether the guarantee covers all answers of all mechanisms together, so that the attacker may see them;
        False if some must stay secret.
    log_density : log density of the release up to a constant, as a function of the data, the release and the share of
        the noise; for subjects whose answers stay secret.
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
    log_density: Callable[[Any, Any, float], float] | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the plan, or the budget of the audit."""
        if isinstance(self.first, PlannedRun):
            return cast(Guarantee, self.first.plan.guarantee)
        return Guarantee(EPSILON, DELTA, self.relation)


def brief(solver: Any) -> Any:
    """Return the solver with few steps, each with a larger share of the budget, and without a fixed running time."""
    found = base.resolve(solver)
    known = {part.name for part in dataclasses.fields(cast(Any, found))}
    steps = _STEPS.get(getattr(found, "name", ""), 4)
    changes = {
        name: value for name, value in {"n_iterations": steps, "clock": False}.items() if name in known
    }
    return dataclasses.replace(cast(Any, found), **changes)


def linear_model(name: str, relation: Neighboring, solver: str | None = None) -> Any:
    """Return a linear model of this package with the budget of an audit, with its default solver or another one."""
    import discreet

    options = LINEAR_MODELS.get(name, {"classes": [0, 1]})
    model = getattr(discreet, name)(EPSILON, DELTA, neighboring=relation.value, **options)
    if solver is not None or name in _SLOW:
        model.set_params(solver=brief(model.solver if solver is None else solver))
    return model


def linear_subject(
    name: str, relation: Neighboring, solver: str | None = None, others: int = 1000
) -> Subject:
    """Return the subject of a linear model of this package, named after its solver unless that is the default."""
    subject = of(linear_model(name, relation, solver), others)
    return subject if solver is None else dataclasses.replace(subject, name=f"{name}, {solver}")


def of(estimator: Any, others: int = 1000) -> Subject:
    """Return the subject of a linear model of this package, with its own guarantee, relation and solver.

    Of the candidate pairs, take the one whose runs differ most.
    """
    from discreet.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
    from discreet.estimators.mixtures import PrivateSimplexClassifier, PrivateSimplexRegressor

    name, relation = type(estimator).__name__, Neighboring(estimator.neighboring)
    known = estimator.get_params(deep=False)
    if "solver" not in known or not known.keys() & {"classes", "target_bounds"}:
        raise ValueError(
            f"worst-case neighbors are known for the linear models of this package, not for {name}; use "
            "discreet.audit.replay with your own neighbors"
        )
    if isinstance(estimator, PrivateLinearSVC | PrivateLogisticRegression):
        if sums_classes(estimator):
            return _fitted(name, [class_case(estimator)], relation)
        cases = ball_cases(estimator) if draws_from_ball(estimator) else audit_cases(estimator, others)
        # If the number of rows is declared, a case refuses more rows.
        declared = [case.n_samples - 1 for case, _ in cases if relation is Neighboring.ADD_REMOVE_ONE]
        strained = worst_pair(
            relation,
            n_rest=min([60, *declared]),
            feature_bound=estimator.feature_bound,
            fit_intercept=estimator.fit_intercept,
            labels=tuple(cases[0][0].classes[:2]),
        )
        subject = _fitted(name, cases, relation)
        if estimator.constraint is not None:
            return subject  # the set has a fixed dimension, and the other pair has more columns
        # Opposite records are never both fully misclassified: that pair only comes close.
        exact = isinstance(estimator, PrivateLinearSVC) or relation is Neighboring.ZERO_OUT
        return dataclasses.replace(subject, strained=(strained.first, strained.second), exact=exact)
    changes: dict[str, Any] = {"ledger": None, "bad_rows": "null"}
    if "classes" in known:
        low, high = changes["classes"] = [0, 1]
    else:
        low, high = estimator.target_bounds
    if relation is Neighboring.ADD_REMOVE_ONE:
        changes["n_samples"] = 100
    model = clone(estimator).set_params(**changes)
    if isinstance(estimator, PrivateSimplexClassifier | PrivateSimplexRegressor):
        return _mixture(model, relation, low, high)
    pairs = _pairs(relation, low, high)
    return _fitted(
        name, [(case, pair) for pair in pairs for case in _steep(model, len(pair.first[1]))], relation
    )


def _steep(model: Any, n_samples: int) -> list[Any]:
    """Return the model, and variants whose loss stays as steep as at zero: a large ridge, or a small set."""
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
    "PrivateSparseLinearSVC": {"classes": [0, 1]},
    "PrivateSimplexClassifier": {"classes": [0, 1]},
}
_SLOW = ("PrivateQuantileRegressor", "PrivateSparseLinearSVC")
#: Pure steps are priced as randomized response, which gets looser for noisy maxima with more steps; short steps need
#: time to reach a region where a logistic loss is steep.
_STEPS = {"frank-wolfe-dissertation": 2, "noisy-gd-dissertation": 8}


def _pairs(relation: Neighboring, low: float, high: float) -> list[Any]:
    """Return candidate pairs.

    Opposite rows with opposite targets, among few or many rows with no signal or all with the same one; an opposite
    target of a row without zeros; rows that agree with one of the two, which makes the other's choice rare, so that
    its odds move most; rows at 120 degrees, the worst case for second moments; and rows for which one vertex of a ball
    gains and two lose: noisy maxima differ most with one candidate against several.
    """
    pairs = []
    far, off = [1e3, 0.0], [-500.0, 500.0 * 3**0.5]
    for row, others, count in (
        (far, [0.0, 0.0], 3),
        ([1e3, 1e3], [0.0, 0.0], 3),
        (far, [0.0, 1e3], 20),
        (far, [0.0, 0.0], 60),
        (far, far, 1),
        (far, far, 3),
        (far, far, 6),
        ([1e3] * 3, [-1e3, 1e3, 1e3], 20),
    ):
        X = np.vstack([[row], np.tile([others], (count, 1))])
        y = np.array([high] + [low] * count)
        pairs.append(neighbors_of(X, y, 0, relation, row, low))
        if relation is Neighboring.REPLACE_ONE and others == [0.0, 0.0] and row == far and count == 3:
            pairs.append(neighbors_of(X, y, 0, relation, [-1e3, 0.0], high))
            pairs.append(neighbors_of(X, y, 0, relation, off, high))
    return pairs


def _mixture(model: Any, relation: Neighboring, low: float, high: float) -> Subject:
    """Return the subject of a mixture: one record with few right columns, which the neighbor moves.

    The even mixture of all columns is wrong, and the right columns gain what others lose. One right column of many
    attains the declared distance, but a draw almost never shows it. For a replaced record, fewer columns reveal more:
    two of five where log-odds are large, one against eight for squared errors. For a removed record, one of twenty
    reveals more than one of forty, and a small radius keeps a logistic loss as steep as at zero.
    """

    def pair(columns: int, right: int, others: int) -> Any:
        row = np.full((2, columns), -1e3)
        row[0, :right] = row[1, columns - others :] = 1e3
        # If the record is removed, a row of zeros stays, which favors no column.
        stays = int(relation is Neighboring.ADD_REMOVE_ONE)
        X = np.vstack([row[:1], np.zeros((stays, columns))])
        return neighbors_of(X, np.full(len(X), high), 0, relation, row[1], high)

    name, alone = type(model).__name__, pair(40, 1, 1)
    if relation is Neighboring.ADD_REMOVE_ONE:
        model = model.set_params(n_samples=len(alone.first[1]))  # more would hide the record
    subject = _fitted(name, [(model, alone)], relation)
    if relation is Neighboring.ZERO_OUT:
        return subject
    changes: dict[str, Any] = {}
    solver = base.resolve(model.solver)
    if relation is Neighboring.ADD_REMOVE_ONE:
        chosen = pair(20, 1, 1)
        if hasattr(model, "radius"):
            changes["radius"] = 0.1
    elif hasattr(model, "radius"):
        chosen, changes["radius"] = pair(5, 2, 2), 100.0
        if hasattr(solver, "n_draws"):
            changes["solver"] = dataclasses.replace(cast(Any, solver), n_draws=3)
    else:
        chosen = pair(20, 1, 8)
    attacked_pair = _fitted(name, [(clone(model).set_params(**changes), chosen)], relation)
    return dataclasses.replace(attacked_pair, program=subject.program, strained=subject.strained)


def _fitted(name: str, cases: Sequence[tuple[Any, Any]], relation: Neighboring) -> Subject:
    """Return an estimator on the pair whose runs differ most; its plan is made once and run many times."""
    ready: list[tuple[Any, Any]] = []  # cached preparations of draws

    def run(planned: Any) -> ArrayLike:
        if not hasattr(planned.plan, "prepared"):
            return np.asarray(planned.plan.run(planned.records, fresh_entropy()).theta)
        draws = next((known for side, known in ready if side is planned), None)
        if draws is None:
            draws = planned.plan.prepared(planned.records)
            ready.append((planned, draws))
        entropy = fresh_entropy()
        return np.array([draw(entropy) for draw in draws])

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
    """Return the subject whose two data sets are easiest to distinguish."""
    return tried[0] if len(tried) == 1 else max(tried, key=_divergence)


def _divergence(subject: Subject) -> float:
    """Compute or estimate how well the two data sets can be distinguished; affects the power of the attack only."""
    first, second = subject.first, subject.second
    if isinstance(first, PlannedRun) and minimizer_law_known(first.plan):
        losses = exact_losses(first, second, _TRIAL_RUNS, seed=7, share=0.5)
        return float(np.mean(-np.expm1(np.minimum(0.5 - losses, 0.0))))
    if isinstance(first, PlannedRun) and perturbs_objective(first.plan):
        a, b = (released(subject.run, data, _TRIAL_RUNS, seed=7, share=0.5) for data in (first, second))
        return float(
            np.max(np.abs(a.mean(axis=0) - b.mean(axis=0)) / (a.std(axis=0) + b.std(axis=0) + 1e-300))
        )
    laws, weak = (
        transcript_laws(subject.run, first, second, share=share, most=_TRIAL_LISTED) for share in (1.0, 0.5)
    )
    if laws is not None and weak is not None:
        claimed = accountants.epsilon(subject.event, DELTA, subject.relation)
        broken = max(exact_delta(*weak, claimed), exact_delta(*weak[::-1], claimed))
        shown = max(exact_epsilon(*laws, DELTA), exact_epsilon(*laws[::-1], DELTA))
        return shown * min(1.0, broken / (_CLEARLY * DELTA))
    # As many as on any machine: a choice by the clock would make another row of it there.
    transcript = transcripts(subject.run, first, second, _TRIAL_TRANSCRIPTS, seed=7, share=0.5)
    return max(
        float(np.mean(-np.expm1(np.minimum(0.5 - part, 0.0))))
        for part in (transcript.first, -transcript.second)
    )


def subject_of(name: str, run: Any, first: Any, second: Any, event: Event, **options: Any) -> Subject:
    """Return a program that is replayed and attacked on the same two neighbors under replace-one."""
    return Subject(name, Neighboring.REPLACE_ONE, run, (first, second), run, first, second, event, **options)


def planned_as(model: Any, plan: Any) -> Any:
    """Give a model its plan, so that fits do not calibrate again."""
    vars(model)["plan"] = lambda *sizes, **options: plan
    return model


#: Solvers that solver="auto" may choose.
_CHOICES = ("objective", "newton", "discriminant", "noisy-gd", "statistics", "mirror-descent")


def pinned(model: Any, solver: str | None) -> Any:
    """Return an unfitted estimator with a loaded model's parameters, guarantee and solver.

    ``solver="auto"`` chooses by public sizes, and an attack uses data of other sizes. So the choice is recovered from
    the statement: it is the solver whose plan, at the stated sizes, charges the same event or, if last digits differ,
    has the same description.

    Parameters
    ----------
    model : fitted model.
    solver : the name in its file, which may be "auto"; None if the solver was an object, which files do not keep.

    Raises
    ------
    ValueError
        The solver cannot be recovered.
    """
    stated = model.privacy_
    promise = stated.guarantee
    asked = clone(model).set_params(
        epsilon=promise.epsilon, delta=promise.delta, neighboring=promise.neighboring.value
    )
    if getattr(asked, "max_rows_per_group", None) is not None:
        raise ValueError(
            "the model protects people with several rows, for which no worst-case data are known; use "
            "discreet.audit.replay with your own neighbors"
        )
    if getattr(asked, "solver", None) is None:
        return asked  # medians and recommenders have no choice of solver
    if solver not in (None, "auto"):
        return asked.set_params(solver=solver)
    plans = [] if solver is None else list(_choices(asked, model))
    same = [name for name, plan in plans if plan.event == stated.event]
    same += [name for name, plan in plans if plan.mechanism == stated.mechanism]
    if not same:
        raise ValueError(
            f"the model was fitted by {stated.mechanism!r}, and its file does not identify the solver; pass --solver "
            "NAME to attack that solver with the same guarantee"
        )
    return asked.set_params(solver=same[0])


def _choices(asked: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the plan of every solver that ``auto`` may choose, for the model's sizes, dense and sparse."""
    sizes = [int(model.privacy_.bounds["records"]), model.n_features_in_]
    if hasattr(model, "classes_"):
        sizes.append(len(model.classes_))
    if hasattr(asked, "multi_class"):
        asked.set_params(multi_class=model.multi_class_)  # the default depends on the solver
    for name in _CHOICES:
        for sparse in (False, True):
            with contextlib.suppress(ValueError):  # the solver does not support this model
                yield name, asked.set_params(solver=name).plan(*sizes, sparse=sparse)
