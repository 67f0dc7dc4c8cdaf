"""Frank-Wolfe with its intercept outside the ball and a paid length: sensitivities, bills, twins, limits."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.papers.fingerprints import fingerprinting
from discreet import PrivateLasso, PrivateSparseLogisticRegression, insecure_noise
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import Logistic, Squared
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import BoxBounds
from discreet.records.clipped_rows import COMPILED_FROM
from discreet.sets import L1Ball
from discreet.solvers.vertices import paced_walk
from discreet.solvers.vertices.frank_wolfe import FrankWolfe
from discreet.solvers.vertices.paced_walk import PacedWalkPlan

RELATIONS = list(Neighboring)


def problem_of(n=200, p=3, loss=None, size=5.0, intercept=True, n_models=1):
    bounds = BoxBounds.of(p, intercept=intercept)
    features = bounds.n_features(p)
    ball = L1Ball(size, features)
    return Problem(loss or Logistic(), bounds, n, features, n_models, geometry=ball, label_bound=1.0)


def plan_of(problem, relation=Neighboring.REPLACE_ONE, steps=8, epsilon=1.0, delta=1e-6):
    walk = FrankWolfe(steps, evidence_share=paced_walk.EVIDENCE_SHARE)
    plan = walk.plan(problem, Guarantee(epsilon, delta, relation))
    assert isinstance(plan, PacedWalkPlan)
    return plan


def one_record(problem, row, label):
    return ArrayRecords(np.array([row]), [label], problem.bounds)


def moved(question, first, other, *arguments):
    """How far a sum moves from one record to another, or to none."""
    there = question(first, *arguments)
    return there - question(other, *arguments) if other is not None else there


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("frank-wolfe.md#theorem-2")
def test_corrections_move_as_far_as_declared_and_no_farther(relation):
    problem = problem_of()
    plan = plan_of(problem, relation)
    replaced = relation is Neighboring.REPLACE_ONE
    yes, no = one_record(problem, [1.0, 0, 0], 1.0), one_record(problem, [-1.0, 0, 0], -1.0)
    start = moved(paced_walk.derivatives, yes, no if replaced else None, Logistic(), np.zeros(4))
    assert 0.95 <= abs(start[0]) / plan.start.sensitivity.value <= 1
    point = np.array([-5.0, 0, 0, 0])
    later = moved(paced_walk.derivatives, yes, no if replaced else None, Logistic(), point)
    assert 0.95 <= abs(later[0]) / plan.correction.sensitivity.value <= 1


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", [Logistic(), Squared(5.0, 1.0)], ids=["logistic", "squared"])
@pytest.mark.lemma("frank-wolfe.md#theorem-3")
def test_evidence_moves_as_far_as_declared_and_no_farther(relation, loss):
    problem = problem_of(loss=loss)
    plan = plan_of(problem, relation)
    c, steep = plan.longest_score, float(np.abs(loss.derivative(1.0, 0.0)))
    weights = np.array([1 / steep, paced_walk._ASIDE, paced_walk._ASIDE / c])
    yes, no = one_record(problem, [1.0, 0, 0], 1.0), one_record(problem, [-1.0, 0, 0], 1.0)
    point = np.array([5.0, 0, 0, 0])
    other = no if relation is Neighboring.REPLACE_ONE else None
    change = moved(paced_walk.along, yes, other, loss, point, 0.0, c) * weights
    assert 0.95 <= np.linalg.norm(change) / plan.evidence.sensitivity.value <= 1
    if other is not None:  # a twin that forgets that two records differ
        twin = plan._noisy(1.1 * c, 1.5 * c, plan.evidence_share, 1, 3)
        assert np.linalg.norm(change) > twin.sensitivity.value


def test_random_pairs_stay_within_the_declared_sensitivities():
    rng = np.random.default_rng(0)
    problem = problem_of()
    plan = plan_of(problem)
    c = plan.longest_score
    for _ in range(200):
        first, other = (one_record(problem, rng.uniform(-1, 1, 3), rng.choice([-1.0, 1.0])) for _ in range(2))
        offset = rng.uniform(-10, 10)
        theta = problem.geometry.project(rng.normal(size=4) * 4)
        theta[-1] = offset
        gap = moved(paced_walk.derivatives, first, other, Logistic(), theta)
        assert abs(gap[0]) <= plan.correction.sensitivity.value
        steep = Logistic().derivative_bound(abs(offset))
        weights = np.array([1 / steep, paced_walk._ASIDE, paced_walk._ASIDE / c])
        theta[-1] = 0.0
        gap = moved(paced_walk.along, first, other, Logistic(), theta, offset, c) * weights
        assert np.linalg.norm(gap) <= plan.evidence.sensitivity.value


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_bill_is_worth_the_promise_and_half_the_noise_is_not(relation, delta, intercept):
    models = 1 + RELATIONS.index(relation)
    plan = plan_of(problem_of(intercept=intercept, n_models=models), relation, steps=5, delta=delta)

    def price(event):
        return accountants.epsilon(event, delta, relation)

    assert 0.99 <= price(plan.event) <= 1 + 1e-9
    twin = dataclasses.replace(plan, unit=plan.unit / 2)
    assert price(twin.event) > 1 + 1e-3
    walk = dataclasses.replace(plan.walk, epsilon=2 * plan.walk.epsilon)
    assert price(dataclasses.replace(plan, walk=walk).event) > 1.2


def calls(plan, records):
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        plan.run(records, fresh_entropy())
    return Counter(call.event for call in recorder.calls)


def billed(plan):
    bill = Counter()
    for line in plan.releases:
        bill[dataclasses.replace(line, times=None).event] += line.times or 1
    return bill


class Forgetful(PacedWalkPlan):
    """The twin that does not pay for the intercept it begins with."""

    @property
    def releases(self):
        return tuple(line for line in super().releases if "begin with" not in line.name)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_run_makes_the_calls_on_its_bill(make, delta):
    problem = problem_of(n=60, n_models=2)
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(60, 3)), rng.choice([-1.0, 1.0], size=60)
    plan = plan_of(problem, steps=9, delta=delta)
    records = [ArrayRecords(make(X), labels, problem.bounds) for labels in (y, -y)]
    assert calls(plan, records) == billed(plan)
    twin = Forgetful(problem, plan.record_guarantee, plan.walk, plan.unit, plan.evidence_share)
    assert calls(twin, records) != billed(twin)
    assert accountants.epsilon(twin.event, delta, "replace-one") < 0.999 * plan.guarantee.epsilon


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_models_that_read_the_rows_together_make_the_calls_on_the_bill(share):
    n = COMPILED_FROM // 3 + 1
    problem = problem_of(n=n, n_models=3)
    rng = np.random.default_rng(4)
    first = ArrayRecords(rng.uniform(-1, 1, size=(n, 3)), np.ones(n), problem.bounds)
    records = [first.with_labels(rng.choice([-1.0, 1.0], size=n)) for _ in range(3)]
    plan = FrankWolfe(9, evidence_share=0.0, slope_share=share).plan(problem, Guarantee(1.0, 1e-6))
    (group,) = plan.walk.side_by_side(records)
    assert len(group.walks) == 3
    assert calls(plan, records) == billed(plan)


def test_models_that_read_the_rows_together_choose_as_each_alone():
    n = COMPILED_FROM // 3 + 1
    problem = problem_of(n=n, n_models=2)
    X = np.random.default_rng(4).uniform(-1, 1, size=(n, 3))
    first = ArrayRecords(X, np.sign(X[:, 0] - 0.2), problem.bounds)
    other = first.with_labels(np.sign(X[:, 1] + 2 * X[:, 2]))
    plan = FrankWolfe(12, evidence_share=0.0).plan(problem, Guarantee(1e4, 1e-6))  # noise decides nothing
    together = plan.run([first, other], fresh_entropy()).theta
    alone = [list(plan.walk.side_by_side([part])) for part in (first, other)]
    assert all(group.gradients is None for groups in alone for group in groups)
    found = [
        plan._run_group([part], *groups, fresh_entropy())[0][0]
        for part, groups in zip((first, other), alone, strict=True)
    ]
    np.testing.assert_allclose(together, found, atol=1e-2)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_replays_of_worst_neighbors_pass(make):
    X = np.vstack([[[1.0, 1.0]], np.tile([[0.5, -0.5]], (30, 1))])
    y = np.arange(31) % 2
    other, labels = X.copy(), y.copy()
    other[0], labels[0] = -1.0, 1 - y[0]
    model = PrivateSparseLogisticRegression(1.0, 1e-3, classes=[0, 1], solver=FrankWolfe(6))
    found = replay(fitting(model), (make(X), y), (make(other), labels))
    assert found.passed, str(found)
    assert 0.95 < found.worst_input_ratio <= 1


def test_null_records_say_nothing():
    problem = problem_of(n=40)
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, size=(40, 3)), rng.choice([-1.0, 1.0], size=40)
    null = np.arange(40) < 15
    all_rows = ArrayRecords(X, y, problem.bounds, null)
    rest = ArrayRecords(X[15:], y[15:], problem.bounds)
    point = np.array([1.0, -2.0, 0.5, 0.3])
    for question, extra in ((paced_walk.derivatives, ()), (paced_walk.along, (0.2, 1.5))):
        assert np.allclose(
            question(all_rows, Logistic(), point, *extra), question(rest, Logistic(), point, *extra)
        )


def test_where_noise_rules_there_is_no_coefficient():
    """The mean of ten fits is that of the constant model, or within one standard error of it."""
    losses, centers, empty = [], [], 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.choice([-1.0, 1.0], size=(300, 50))
        y = np.clip(0.3 * X[:, 0] + 0.15 * rng.normal(size=300), -1, 1)
        with insecure_noise(seed), pytest.warns(UserWarning, match="mostly noise"):
            model = PrivateLasso(0.1, 1e-6, target_bounds=(-1, 1)).fit(X, y)
        losses.append(np.mean((X @ model.coef_ + model.intercept_ - y) ** 2))
        centers.append(np.mean(y**2))
        empty += not np.any(model.coef_)
    assert empty >= 5
    gaps = np.array(losses) - centers
    assert gaps.mean() <= max(gaps.std(ddof=1) / math.sqrt(10), 0.1 * np.mean(centers))


def test_the_fingerprinting_instance_is_left_alone():
    X, y = fingerprinting()
    with insecure_noise(0), pytest.warns(UserWarning, match="mostly noise"):
        fits = [
            PrivateLasso(0.1, 1e-6, target_bounds=(-1, 1), fit_intercept=False).fit(X, y) for _ in range(5)
        ]
    losses = [np.sum((X @ model.coef_ - y) ** 2) for model in fits]
    assert np.mean(losses) <= 17.0  # zero has 16, a whole vertex more than 500
    whole = FrankWolfe(choice="vertices")
    with insecure_noise(0), pytest.warns(UserWarning, match="mostly noise"):
        leap = PrivateLasso(0.1, 1e-6, target_bounds=(-1, 1), fit_intercept=False, solver=whole).fit(X, y)
    assert np.sum((X @ leap.coef_ - y) ** 2) > 100


def test_uneven_classes_have_their_intercept():
    """Rare positives and no signal: the log-odds of the share, whatever the ball."""
    rng = np.random.default_rng(3)
    X = (rng.random((4000, 20)) < 0.1).astype(float)
    y = (rng.random(4000) < 0.05).astype(int)
    with insecure_noise(1):
        model = PrivateSparseLogisticRegression(2.0, 1e-6, classes=[0, 1], l1_radius=0.5).fit(
            sp.csr_array(X), y
        )
    assert model.intercept_[0] == pytest.approx(math.log(y.mean() / (1 - y.mean())), abs=0.5)
    assert model.predict(X).max() == 0


def test_small_entries_are_warned_about_before_the_charge():
    X = sp.random(3000, 2000, 0.01, "csr", rng=np.random.default_rng(4))
    y = np.random.default_rng(5).integers(2, size=3000)
    with insecure_noise(0), pytest.warns(UserWarning, match="Rows of norm 1 have smaller entries"):
        PrivateSparseLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(X, y)
    plan = PrivateSparseLogisticRegression(1.0, 1e-6).plan(10**6, 2000, sparse=True)
    assert plan.least_seen < 0.05


def test_sums_from_margin_counters_are_those_of_the_records():
    problem = problem_of(n=50)
    rng = np.random.default_rng(6)
    X, y = sp.random(50, 3, 0.6, "csr", rng=rng), rng.choice([-1.0, 1.0], size=50)
    null = np.arange(50) < 9
    plan = plan_of(problem, steps=12)
    records = ArrayRecords(X, y, problem.bounds, null)
    ((walk,),) = (group.walks for group in plan.walk.side_by_side([records]))
    for _ in range(5):
        walk.choose(0.4, fresh_entropy())
    expected = paced_walk.derivatives(records, Logistic(), np.append(walk.theta, 0.4))
    assert walk.derivative_sum(0.4) == pytest.approx(expected, abs=1e-3)
