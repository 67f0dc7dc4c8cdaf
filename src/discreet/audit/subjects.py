"""Everything that is audited: a program, two neighbors that strain it, and what an attacker reads off its release.

Pairs are the worst that theory knows where it knows one (``exact``), and otherwise chosen among a few plausible ones by
a short trial. A subject's program is replayed; its ``run`` is repeated many times on either side.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
_TRIAL_RUNS, _TRIAL_SECONDS, _TRIAL_LISTED = 40, 0.5, 300
_CLEARLY = 5.0  # times delta: a twin whose delta is larger at the claimed epsilon is caught soon


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
    log_density : of what is released, up to a constant, where it is known though answers must stay secret: a function
        of the data, what is released and the share of the noise.
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
        """What is promised: by the plan, or the budget of the audit."""
        if isinstance(self.first, PlannedRun):
            return cast(Guarantee, self.first.plan.guarantee)
        return Guarantee(EPSILON, DELTA, self.relation)


def classifiers(relations: Sequence[Neighboring], solvers: Sequence[str], others: int) -> Iterator[Subject]:
    """Both linear classifiers with each of the solvers that plans for them.

    The logistic loss is tried under the first relation that a solver plans for: its pairs only come close. Pairs of
    class sums attain the claim, and are tried under every relation, and with three classes.
    """
    from discreet.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression

    for kind in (PrivateLinearSVC, PrivateLogisticRegression):
        for solver in solvers:
            if solver in _BY_CLASS:
                yield from _by_class(kind, solver)
                continue
            if solver in _OWN_PAIRS:
                continue
            for relation in relations:
                options: dict[str, Any] = {"neighboring": relation.value, "classes": [0, 1]}
                model = kind(EPSILON, DELTA, solver=brief(solver), **options)
                try:
                    model.plan(100, 2, 2)
                except (ValueError, TypeError):
                    continue  # not a solver for this problem
                count = 10 * others if solver in _CROWDED else others
                yield dataclasses.replace(of(model, count), name=f"{kind.__name__}, {solver}")
                if kind is PrivateLogisticRegression:
                    break


def _by_class(kind: Any, solver: str) -> Iterator[Subject]:
    """Two classes, and three where a single model tells them apart."""
    for classes, name in (([0, 1], solver), ([0, 1, 2], f"{solver}, 3 classes")):
        for relation in Neighboring:
            model = kind(EPSILON, DELTA, solver=brief(solver), neighboring=relation.value, classes=classes)
            try:
                model.set_params(n_samples=100).plan(100, 2, len(classes))
            except ValueError:
                continue  # a model for each class
            yield dataclasses.replace(of(model), name=f"{kind.__name__}, {name}")


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
    steps = _STEPS.get(getattr(found, "name", ""), 4)
    changes = {
        name: value for name, value in {"n_iterations": steps, "clock": False}.items() if name in known
    }
    return dataclasses.replace(cast(Any, found), **changes)


def of(estimator: Any, others: int = 1000) -> Subject:
    """The subject made of any linear model of this package, with its own guarantee, relation and solver.

    Of the cases that theory suggests, the one is taken whose runs differ most.
    """
    from discreet.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
    from discreet.estimators.mixtures import PrivateSimplexClassifier, PrivateSimplexRegressor

    name, relation = type(estimator).__name__, Neighboring(estimator.neighboring)
    known = estimator.get_params(deep=False)
    if "solver" not in known or not known.keys() & {"classes", "target_bounds"}:
        raise ValueError(
            f"neighbors are known for the linear models of this package, not for {name}; replay it on neighbors of "
            "your own with discreet.audit.replay"
        )
    if isinstance(estimator, PrivateLinearSVC | PrivateLogisticRegression):
        if sums_classes(estimator):
            return _fitted(name, [class_case(estimator)], relation)
        cases = ball_cases(estimator) if draws_from_ball(estimator) else audit_cases(estimator, others)
        # Where the number of rows is declared, a case refuses more rows than it was made for.
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
            return subject  # a set is one of so many coefficients, and the other pair has more
        # Opposite records are never both misclassified for certain: that pair only comes close.
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
    "PrivateSparseLinearSVC": {"classes": [0, 1]},
    "PrivateSimplexClassifier": {"classes": [0, 1]},
}
#: Solvers that no classifier and no default shows.
OTHER_SOLVERS: dict[str, tuple[str, ...]] = {
    "PrivateRidge": ("statistics",),
    "PrivateHuberRegressor": ("objective",),
    "PrivateQuantileRegressor": ("noisy-gd",),
    "PrivatePoissonRegressor": ("objective",),
    "PrivateLasso": ("frank-wolfe-dissertation", "mirror-descent"),
    "PrivateSparseLogisticRegression": ("frank-wolfe-dissertation", "mirror-descent"),
}
_BY_CLASS = ("discriminant",)
#: No ridge and no small set keeps them where a record is steep; a program of its own audits them.
_OWN_PAIRS = ("refocused-sums",)
_SLOW = ("PrivateQuantileRegressor", "PrivateSparseLinearSVC")
#: Pure steps are priced as randomized responses, from which noisy maxima are the farther the more of them there are;
#: short steps need time to come to where a logistic loss is steep.
_STEPS = {"frank-wolfe-dissertation": 2, "noisy-gd-dissertation": 8}
#: Where more records around the canary of a logistic loss cost little and hold the coefficients better.
_CROWDED = (
    "auto",
    "objective",
    "objective-dissertation",
    "output",
    "output-jain-thakurta",
    "noisy-gd-dissertation",
)


def _pairs(relation: Neighboring, low: float, high: float) -> list[Any]:
    """Neighbors worth trying.

    Opposite rows and opposite targets, among few or many rows that carry no signal, or that all have the same one; an
    opposite target of a row with no zeros; among rows that agree with one of the two, which makes the other's choice
    rare, so that its odds move most; rows at 120 degrees, which are the worst for second moments; and among rows that
    leave one vertex of a ball which gains against two which lose: noisy maxima differ most where one stands against
    several.
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
    """One record alone, whose columns agree on the wrong answer but for some, which are others in the neighbor.

    Then the even mixture of all columns is wrong, and those columns gain what others lose. Wrong by most, and the
    declared distance is reached, if it is one column of many; but then a draw hardly ever shows it. Exchanged for
    another record, fewer columns tell more: where log-odds are large, two of five are as wrong as one of many, and
    squared errors pay for one against eight. Where the record leaves, one of twenty tells more than one of forty, and a
    small radius keeps a logistic loss as steep as at zero.
    """

    def pair(columns: int, right: int, others: int) -> Any:
        row = np.full((2, columns), -1e3)
        row[0, :right] = row[1, columns - others :] = 1e3
        # Where the record leaves, somebody has to stay: a row of zeros, which favors no column.
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
    """An estimator on the pair on which its runs differ most: its plan is made once and run many times."""

    ready: list[tuple[Any, Any]] = []  # draws that need not be prepared again

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
    """The one of several pairs whose two sides are told apart best."""
    return tried[0] if len(tried) == 1 else max(tried, key=_divergence)


def _divergence(subject: Subject) -> float:
    """How well runs on the two sides can be told apart, computed or guessed from a few runs: a matter of power only."""
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
        claimed = _claimed(subject.event, subject.relation)
        broken = max(exact_delta(*weak, claimed), exact_delta(*weak[::-1], claimed))
        worth = max(exact_epsilon(*laws, DELTA), exact_epsilon(*laws[::-1], DELTA))
        return worth * min(1.0, broken / (_CLEARLY * DELTA))
    transcript = transcripts(
        subject.run, first, second, _TRIAL_RUNS, seed=7, share=0.5, seconds=_TRIAL_SECONDS, fewest=4
    )
    return max(
        float(np.mean(-np.expm1(np.minimum(0.5 - part, 0.0))))
        for part in (transcript.first, -transcript.second)
    )


@lru_cache(maxsize=8)
def _claimed(event: Event, relation: Neighboring) -> float:
    return accountants.epsilon(event, DELTA, relation)


REPLACED = Neighboring.REPLACE_ONE


def subject_of(name: str, run: Any, first: Any, second: Any, event: Event, **options: Any) -> Subject:
    """A program that is replayed and attacked on the same two neighbors under replace-one."""
    return Subject(name, REPLACED, run, (first, second), run, first, second, event, **options)


def unfitted(model: Any) -> Any:
    """A copy of a model that knows nothing."""
    return clone(model)


def planned_as(model: Any, plan: Any) -> Any:
    """A model that does not calibrate again what is known already."""
    vars(model)["plan"] = lambda *sizes, **options: plan
    return model


_CHOICES = (
    "objective",
    "newton",
    "discriminant",
    "noisy-gd",
    "statistics",
    "mirror-descent",
)  # of solver="auto", by name


def pinned(model: Any, solver: str | None) -> Any:
    """An estimator with a loaded model's parameters and promise, and with the solver that was run.

    ``solver="auto"`` chooses by public sizes, and the data of an attack has other sizes than the model's. The choice is
    read off the statement: the solver that was run is the one whose plan, at the stated sizes, is charged with the same
    event or, where last digits differ, described in the same words.

    Parameters
    ----------
    model : fitted model.
    solver : the name that its file holds, "auto" included; None if the solver was an object, which no file restores.

    Raises
    ------
    ValueError
        The solver cannot be had again: then nothing else is attacked in its place.
    """
    stated = model.privacy_
    promise = stated.guarantee
    asked = clone(model).set_params(
        epsilon=promise.epsilon, delta=promise.delta, neighboring=promise.neighboring.value
    )
    if getattr(asked, "max_rows_per_group", None) is not None:
        raise ValueError(
            "the model protects people with several rows, for whom the audit knows no worst-case data; replay it on "
            "neighbors of your own with discreet.audit.replay"
        )
    if getattr(asked, "solver", None) is None:
        return asked  # medians and recommenders have one way of running
    if solver not in (None, "auto"):
        return asked.set_params(solver=solver)
    plans = [] if solver is None else list(_choices(asked, model))
    same = [name for name, plan in plans if plan.event == stated.event]
    same += [name for name, plan in plans if plan.mechanism == stated.mechanism]
    if not same:
        raise ValueError(
            f"the model was fitted by {stated.mechanism!r}, and its file names no solver that would run this on data "
            "of other sizes; --solver NAME attacks the solver of that name with the same promise"
        )
    return asked.set_params(solver=same[0])


def _choices(asked: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """What every solver that ``auto`` may choose plans for the model's sizes, dense or sparse."""
    sizes = [int(model.privacy_.bounds["records"]), model.n_features_in_]
    if hasattr(model, "classes_"):
        sizes.append(len(model.classes_))
    if hasattr(asked, "multi_class"):
        asked.set_params(multi_class=model.multi_class_)  # by default some solvers fit classes one by one
    for name in _CHOICES:
        for sparse in (False, True):
            with contextlib.suppress(ValueError):  # no solver for this model
                yield name, asked.set_params(solver=name).plan(*sizes, sparse=sparse)
