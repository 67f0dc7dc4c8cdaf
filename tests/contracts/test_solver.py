"""The contract of solvers and plans: every registered solver, the one that CONTRIBUTING prints, every other release.

A check takes a solver or a plan and fails where one promises too much. Three facts make a promise true, and each has a
check here or next door: the bill is worth the guarantee (`price`), a run makes the calls on the bill and no others
(`unbilled`), and a mechanism adds the noise that its event says (`test_mechanism.py`).
"""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import pickle
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))
import recipes
import releases
import test_private_size

from benchmarks import matrix
from discreet import Ledger, release, sets, solvers
from discreet._checks import ParameterError
from discreet.audit.sensitivity import objective_problems, perturbs_objective
from discreet.audit.trace import PlannedRun
from discreet.estimators.groups import plan_for_groups
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy import events
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.calibration import group_event, record_guarantee
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.solvers import base

EPSILON, DELTA, ROWS_PER_PERSON = 1.0, 1e-4, 3
SOLVERS = {name: base.resolve(name) for name in base.names()} | {"recipe": recipes.SOLVER.OneStep()}
#: Calibrations as papers print them: kept for comparison, safe, and looser than their guarantee.
PRINTED = {name for name in SOLVERS if name.endswith(("-dissertation", "-talwar", "-jain-thakurta"))}
PURE = {"auto", "exponential", "frank-wolfe", "localized", "objective", "output", "simplex-sampling"}
#: One in so many pairs of loss and set will do for these, one in three for others.
SLOW = {"auto": 9, "exponential": 9, "localized": 9} | dict.fromkeys(
    ("mirror-descent", "mirror-descent-talwar", "noisy-gd", "noisy-gd-dissertation", "noisy-sgd",
     "output-jain-thakurta", "objective-dissertation"), 6)  # fmt: skip
#: What the noise of a plan follows from, and the factor that halves the noise.
NOISE = {"noise_multiplier": 0.5, "stddev": 0.5, "scale": 0.5, "unit": 0.5, "epsilon": 2.0}


def cells(every=1):
    """Every loss alone and with sets, under one relation after the other; rows and labels for each."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(matrix.N, matrix.P))
    for place, (name, loss) in enumerate(matrix.losses().items()):
        labels = matrix.labels(name, loss, rng)
        bound = matrix.LABEL_BOUND if name in matrix.REAL_TARGETS else None
        for step, (inside, geometry) in enumerate(matrix.geometries(loss.n_outputs).items()):
            relation = list(Neighboring)[(step // 3 + place // 3) % 3]
            if step == 0 or (step + place) % every == 0:
                problem = Problem(loss, Bounds(1.0, False), matrix.N, matrix.P, 1, None, geometry, bound)
                yield f"{name}, {inside}, {relation.value}", problem, relation, rows, labels


def admitted(solver, delta=DELTA, every=1):
    """The first plan of each solver for each loss, set and relation; of the rest, the refusals."""
    for place, problem, relation, rows, labels in cells(every):
        try:
            yield place, solver.plan(problem, Guarantee(EPSILON, delta, relation)), rows, labels
        except ValueError as refusal:
            yield place, refusal, rows, labels


def plans_of(solver, **settings):
    return [found for found in admitted(solver, **settings) if isinstance(found[1], base.Plan)]


# -- the checks ----------------------------------------------------------------------------------------------------


def price(plan):
    """Delta of what is charged, at the epsilon that is promised."""
    promise = plan.guarantee
    return accountants.delta(plan.event, promise.epsilon, promise.neighboring)


def overpriced(plan):
    """What is wrong with the bill: worth more than the promise, or so much less that noise is wasted."""
    promise, cost = plan.guarantee, price(plan)
    if cost > promise.delta:
        return f"delta is {cost:.6g} at epsilon {promise.epsilon:g}, promised was {promise.delta:.6g}"
    if cost >= 0.99 * promise.delta > 0:
        return ""
    pure = accountants.epsilon(plan.event, 0.0, promise.neighboring)
    return (
        ""
        if 0.99 * promise.epsilon <= pure <= promise.epsilon
        else f"only delta {cost:.6g} of the promise is used"
    )


def run(plan, records):
    """A run under test noise: the coefficients, and the recorder of its mechanisms."""
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        theta = plan.run([records], fresh_entropy()).theta
    return theta, recorder


def unbilled(bill, records, recorder):
    """What is wrong with a run: a call that is not on the ``bill``, or is on it and was not made."""
    calls = recorder.calls
    if perturbs_objective(bill):
        made = PlannedRun(bill, [records], 0, len(calls), ())
        short = calls[-1].scale < scale_of(bill.output) * (1 - 1e-9)
        return [
            *objective_problems(made, calls),
            *(["less noise on the output than billed"] if short else []),
        ]
    rates = {sample.before: sample.rate for sample in recorder.samples}
    ran = Counter(
        events.Subsampled(call.event, rates[index]) if index in rates else call.event
        for index, call in enumerate(calls)
    )
    billed = Counter()
    for line in bill.releases:
        billed[dataclasses.replace(line, times=None).event] += 1 if line.times is None else line.times
    return [] if ran == billed else [f"the run made {dict(ran)}, the bill says {dict(billed)}"]


def scale_of(mechanism):
    """The scale of the noise that a mechanism adds to vectors."""
    noise = mechanism.noise
    return noise.effective_stddev if hasattr(noise, "effective_stddev") else noise.effective_scale


def with_half_the_noise(plan):
    """The twin of a plan: half the noise wherever it has some."""
    changes = {name: getattr(plan, name) * by for name, by in NOISE.items() if name in fields(plan)}
    changes |= {name: with_half_the_noise(getattr(plan, name)) for name in fields(plan) & {"start"}}
    assert changes, f"what does the noise of {type(plan).__name__} follow from? List it in NOISE"
    return dataclasses.replace(plan, **changes)


def fields(plan):
    return {field.name for field in dataclasses.fields(plan)}


def containers(rows, labels, bounds):
    """The same records in memory, in single precision, sparse, and in parts."""
    single = rows.astype(np.float32)
    pieces = [ArrayRecords(rows[half], labels[half], bounds) for half in (slice(0, 30), slice(30, None))]
    sizes = [part.n_samples for part in pieces]
    return {
        "dense": ArrayRecords(rows, labels, bounds),
        "float32": ArrayRecords(single, labels, bounds),
        "csr": ArrayRecords(sp.csr_array(rows), labels, bounds),
        "parts": PartitionedRecords(LocalParts(pieces), sizes, rows.shape[1], False, bounds, labels),
    }


def arrays_in(thing, seen):
    """Every array that an object holds, however deep."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
    elif isinstance(thing, dict):
        for part in thing.values():
            yield from arrays_in(part, seen)
    elif isinstance(thing, list | tuple):
        for part in thing:
            yield from arrays_in(part, seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        yield from arrays_in(vars(thing), seen)


def unreasoned(refusal):
    """What a refusal leaves out: the parameter or solver that it is about, or what to do about it."""
    if isinstance(refusal, ParameterError):
        named = refusal.name in ("solver", "constraint", "neighboring", "delta", "epsilon", "l2")
        advised = any(map(str, refusal.hint))
    else:
        found = re.match(r"solver '([a-z-]+)' ", str(refusal))
        named = found is not None and found.group(1) in base.names()
        advised = re.search(r"\b(needs|use|pass|choose)\b", str(refusal))
    return "" if named and advised else "says not what to do" if named else "names no parameter and no solver"


# -- over the registry ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_every_cell_is_billed_for_what_it_runs_or_refused_with_a_reason(name):
    """The price, the calls and the containers of every plan that is granted; the reason of every refusal."""
    granted = 0
    for place, plan, rows, labels in admitted(SOLVERS[name], every=SLOW.get(name, 3)):
        if isinstance(plan, ValueError):
            assert not unreasoned(plan), (place, plan)
            continue
        granted += 1
        fault = overpriced(plan)
        assert not fault or (name in PRINTED and fault.startswith("only")), (place, fault)
        kept = containers(rows, labels, plan.problem.bounds)
        dense, recorder = run(plan, kept["dense"])
        assert unbilled(plan, kept["dense"], recorder) == [], place
        other = "parts" if plan.sums_only and granted % 2 else "csr"
        found = run(plan, kept[other])[0]
        assert not matrix._fault(dense, plan.problem), place
        assert not matrix._fault(found, plan.problem), (place, other)
        if other == "parts" or getattr(plan, "incremental", None) is None:  # else other steps on CSR rows
            assert matrix._disagreement(dense, found) == [], (place, other)
    assert granted


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_promises_are_kept_exactly(name):
    plans = plans_of(SOLVERS[name], delta=0.0, every=9 if name in SLOW else 6)
    assert plans
    for place, plan, *_ in plans:
        assert overpriced(plan) == "", place


@pytest.mark.parametrize("name", sorted(set(SOLVERS) - PURE))
def test_gaussian_noise_gives_no_pure_promise(name):
    assert plans_of(SOLVERS[name], delta=0.0, every=9) == []


@functools.cache
def first_plans(name):
    """A plan of a solver for each relation that it takes."""
    found = {}
    for (place, problem, _, rows, labels), relation in itertools.product(cells(), Neighboring):
        if relation not in found:
            with contextlib.suppress(ValueError):
                plan = SOLVERS[name].plan(problem, Guarantee(EPSILON, DELTA, relation))
                found[relation] = f"{place}, {relation.value}", plan, rows, labels
        if len(found) == len(Neighboring):
            break
    return list(found.values())


@pytest.mark.parametrize("name", SOLVERS)
def test_half_the_noise_is_caught(name):
    """A bill for half the noise breaks the promise; a run with half the noise breaks the bill."""
    for place, plan, rows, labels in first_plans(name):
        twin = with_half_the_noise(plan)
        if name not in PRINTED:
            assert overpriced(plan) == "", place
            assert price(twin) > plan.guarantee.delta, place
        records = ArrayRecords(rows, labels, plan.problem.bounds)
        assert unbilled(plan, records, run(twin, records)[1]), place


@pytest.mark.parametrize("name", ["newton", *test_private_size.VARIANTS])
def test_solvers_with_an_intercept_and_their_variants_are_billed_for_what_they_run(name):
    """Sizes of classes, frequencies, centers and slopes; a bill or a run with half the noise is caught."""
    solver, granted = test_private_size.SOLVERS[name], 0
    for (place, one, rows, labels), relation in itertools.product(test_private_size.plans(name), Neighboring):
        try:
            plan = solver.plan(one.problem, Guarantee(EPSILON, DELTA, relation))
        except ValueError:
            continue
        granted += 1
        twin, records = with_half_the_noise(plan), ArrayRecords(rows, labels, plan.problem.bounds)
        assert overpriced(plan) == "", place
        assert price(twin) > plan.guarantee.delta, place
        assert unbilled(plan, records, run(plan, records)[1]) == [], place
        assert unbilled(plan, records, run(twin, records)[1]), place
    assert granted >= len(Neighboring)


@pytest.mark.parametrize("name", sorted(set(SOLVERS) - PRINTED - {"exponential", "localized", "auto"}))
@pytest.mark.parametrize(("epsilon", "models"), [(0.1, 1), (10.0, 3)])
def test_other_budgets_and_several_models_are_billed_what_they_promise(name, epsilon, models):
    for place, one, *_ in first_plans(name)[:1]:
        problem = dataclasses.replace(one.problem, n_samples=20_000, n_models=models)
        try:
            plan = SOLVERS[name].plan(problem, Guarantee(epsilon, 1e-7, one.guarantee.neighboring))
        except ValueError as refusal:
            if fault := unreasoned(refusal):
                pytest.fail(f"{place}: {fault}: {refusal}")
            continue
        assert overpriced(plan) == "", place


@pytest.mark.parametrize("name", SOLVERS)
def test_people_with_several_rows_are_promised_no_more_than_is_paid(name):
    for place, one, *_ in first_plans(name):
        guarantee = Guarantee(EPSILON, DELTA, one.guarantee.neighboring)
        try:
            plan = plan_for_groups(SOLVERS[name], one.problem, guarantee, ROWS_PER_PERSON)
        except ValueError as refusal:
            if fault := unreasoned(refusal):
                pytest.fail(f"{place}: {fault}: {refusal}")
            continue
        assert plan.guarantee == dataclasses.replace(guarantee, unit="user")
        assert price(plan) <= DELTA, place  # the general conversion to people wastes a little
        whole = group_event(plan.record_event, ROWS_PER_PERSON)
        if (
            whole is not None
        ):  # else what a row pays for is proved to be enough for a person by the general rule
            paid = accountants.delta(whole, EPSILON, guarantee.neighboring)
            assert paid <= DELTA, place
        else:
            worst = record_guarantee(guarantee, ROWS_PER_PERSON)
            assert (worst.epsilon, worst.delta) == (
                plan.record_guarantee.epsilon,
                plan.record_guarantee.delta,
            )
            assert accountants.delta(plan.record_event, worst.epsilon, worst.neighboring) <= worst.delta, (
                place
            )


@pytest.mark.parametrize("name", SOLVERS)
def test_plans_are_frozen_small_and_printable(name):
    for place, plan, *_ in first_plans(name):
        with pytest.raises(dataclasses.FrozenInstanceError):
            plan.reason = "another"
        copy = pickle.loads(pickle.dumps(plan))
        assert copy.event == plan.event, place
        assert str(copy) == str(plan), place
        assert f"{EPSILON:g}" in str(plan)
        assert all(matrix.N not in array.shape for array in arrays_in(plan, set())), place


@pytest.mark.parametrize("name", SOLVERS)
def test_containers_are_taken_or_refused_by_capability(name):
    """Single precision is exact in double precision; parts go where a plan asks for sums only."""
    place, plan, rows, labels = first_plans(name)[0]
    kept = containers(rows, labels, plan.problem.bounds)
    exact = ArrayRecords(rows.astype(np.float32).astype(np.float64), labels, plan.problem.bounds)
    assert matrix._disagreement(run(plan, exact)[0], run(plan, kept["float32"])[0]) == [], place
    if plan.sums_only:
        release.check(plan, [kept["parts"]])
        assert matrix._disagreement(run(plan, kept["dense"])[0], run(plan, kept["parts"])[0]) == [], place
    else:
        with pytest.raises(ValueError, match="must be in memory"):
            release.check(plan, [kept["parts"]])


@pytest.mark.parametrize("name", base.names())
def test_refusals_come_before_the_charge(name, tmp_path):
    """The first estimator for which a solver does not plan keeps its budget, and its data are not read."""
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=0.5)
    for kind in releases.LINEAR.values():
        if "solver" not in inspect.signature(kind).parameters:
            continue
        own = releases.given(kind, **releases.PARAMETERS | {"delta": 0.0})
        model = kind(1.0, **own, solver=name, ledger=ledger)
        try:
            model.plan(releases.N, releases.P)
        except ValueError as refusal:
            X, y = releases.ordinary(0)
            with pytest.raises(ValueError, match=re.escape(str(refusal)[:40])):
                model.fit(X, releases.labels_of(y) if hasattr(model, "classes") else y)
            assert ledger.history() == []
            return
    pytest.fail("no estimator is refused")


def test_every_set_is_in_the_matrix():
    protocols = ("Array", "Geometry", "Polytope")
    tried = {type(geometry).__name__ for geometry in matrix.geometries().values()} - {"NoneType"}
    assert tried == set(sets.__all__) - set(protocols)


def test_every_solver_class_is_registered():
    """Classes that the package exports are run above by their names."""
    exported = {getattr(solvers, name) for name in solvers.__all__}
    planning = {kind for kind in exported if isinstance(kind, type) and hasattr(kind, "plan")} - {base.Solver}
    assert planning == {type(base.resolve(name)) for name in base.names()}


def test_models_that_differ_are_caught():
    """Rows that a run reads otherwise than it should give another model, whatever the noise."""
    _, plan, rows, labels = first_plans("output")[0]
    twisted = ArrayRecords(sp.csr_array(rows * 0.9), labels, plan.problem.bounds)
    right = ArrayRecords(rows, labels, plan.problem.bounds)
    assert matrix._disagreement(run(plan, right)[0], run(plan, twisted)[0])


# -- every other release -------------------------------------------------------------------------------------------

#: Looser than promised: a printed calibration, and a threshold that is a whole number of votes.
LOOSE = {
    "PrivateMatrixCompletion frank-wolfe-printed",
    "PrivateTransferClassifier sparse-vector",
    "PrivateQueries",
    "PrivateQueries people",
    "PrivateSimplexRegressor people",  # the general conversion to groups does not use all of delta
}
OTHERS = [name for name in releases.PROGRAMS if not name.startswith("solver ")]


class Charged(BaseException):
    """A plan was about to be charged; carries it."""


@functools.cache
def charged_plan(name):
    """What a program would be charged for; it is stopped there, and its data are never used."""

    def stop(ledger, plan, label):
        raise Charged(plan)

    for model in ("PrivateLogisticRegression", "PrivateRidge"):
        releases.released(model)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(release, "charge", stop)
        with pytest.raises(Charged) as stopped:
            releases.PROGRAMS[name](releases.ordinary(0))
    return stopped.value.args[0]


def sharper(event):
    """What the same releases cost with half the noise."""
    if isinstance(event, events.Gaussian | events.ObjectivePerturbation):
        return dataclasses.replace(event, noise_multiplier=event.noise_multiplier / 2)
    if isinstance(event, events.Pure | events.BoundedRange | events.Approximate):
        return dataclasses.replace(event, epsilon=2 * event.epsilon)
    inner = {"event": sharper(event.event)} if hasattr(event, "event") else {}
    if hasattr(event, "events"):
        inner = {"events": tuple(map(sharper, event.events))}
    assert inner, event
    return dataclasses.replace(event, **inner)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_release_is_billed_what_it_promises(name):
    plan = charged_plan(name)
    fault = overpriced(plan)
    assert not fault or (name in LOOSE and fault.startswith("only"))
    promise = plan.guarantee
    if name != "PrivateMatrixCompletion frank-wolfe-printed":
        half = accountants.delta(sharper(plan.event), promise.epsilon, promise.neighboring)
        assert half > promise.delta
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        plan.guarantee = dataclasses.replace(promise, epsilon=promise.epsilon / 2)
    assert pickle.loads(pickle.dumps(plan)).event == plan.event
    assert str(plan)
    assert all(releases.N not in array.shape for array in arrays_in(plan, set()))


# -- the checks themselves -----------------------------------------------------------------------------------------


def test_the_printed_recipe_is_short():
    assert len(recipes.SOLVER_CODE.strip().splitlines()) <= 60


def test_a_bill_that_forgets_a_call_is_caught():
    """A run that asks twice and pays once."""

    class Twice(recipes.SOLVER.OneStepPlan):
        def run(self, records, entropy, progress=None):
            super().run(records, entropy)
            return super().run(records, entropy)

    _, plan, rows, labels = first_plans("recipe")[0]
    records = ArrayRecords(rows, labels, plan.problem.bounds)
    twice = Twice(plan.problem, plan.record_guarantee, plan.noise_multiplier)
    assert unbilled(plan, records, run(plan, records)[1]) == []
    assert unbilled(plan, records, run(twice, records)[1])


@pytest.mark.parametrize(("factor", "fault"), [(0.999, "promised"), (1.1, "only")])
def test_a_bill_that_is_wrong_is_caught(factor, fault):
    _, plan, *_ = first_plans("recipe")[0]
    assert overpriced(plan) == ""
    assert fault in overpriced(dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * factor))
