"""The slope and the intercept after a long walk: sensitivities, bills, limits, and what they are for."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from discreet import PrivateSparseLinearSVC, PrivateSparseLogisticRegression, insecure_noise
from discreet._checks import ParameterError
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import HuberHinge, Logistic, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import BoxBounds
from discreet.sets import L1Ball
from discreet.solvers.vertices import score_fit
from discreet.solvers.vertices.frank_wolfe import FrankWolfe
from discreet.solvers.vertices.paced_walk import PacedWalkPlan
from tests.solvers.vertices.test_paced_walk import billed, calls, moved, one_record

RELATIONS = list(Neighboring)
LOSSES = pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=["logistic", "huber"])


def problem_of(n=400, p=3, loss=None, size=40.0, intercept=True, n_models=1):
    bounds = BoxBounds.of(p, intercept=intercept)
    features = bounds.n_features(p)
    ball = L1Ball(size, features)
    return Problem(
        loss or Logistic(),
        bounds,
        n,
        features,
        n_models,
        geometry=ball,
        label_bound=1.0,
    )


def plan_of(problem, relation=Neighboring.REPLACE_ONE, epsilon=5.0, delta=1e-3, **settings):
    plan = FrankWolfe(slope_share=0.1, **settings).plan(problem, Guarantee(epsilon, delta, relation))
    assert isinstance(plan, PacedWalkPlan)
    return plan


@pytest.mark.parametrize("relation", RELATIONS)
@LOSSES
@pytest.mark.lemma("frank-wolfe.md#theorem-4")
def test_sums_move_as_far_as_declared_and_no_farther(relation, loss):
    problem = problem_of(loss=loss)
    fit = plan_of(problem, relation).fit
    replaced = relation is Neighboring.REPLACE_ONE
    point = np.array([fit.size, 0.0, 0.0, 0.0])
    yes, no = one_record(problem, [1.0, 0, 0], 1.0), one_record(problem, [-1.0, 0, 0], 1.0)
    other = no if replaced else None
    change = np.linalg.norm(moved(score_fit.moments, yes, other, point, fit.longest))
    assert 0.999 <= change / fit.moments.sensitivity.value <= 1
    wrong = one_record(problem, [1.0, 0, 0], -1.0)
    far = np.array([50.0, 50.0]) if isinstance(loss, Logistic) and not replaced else np.zeros(2)
    gap = moved(score_fit.gradients, wrong, yes if replaced else None, loss, point, 0.0, 1.0, far)
    change = np.linalg.norm(gap) / fit.gradients.sensitivity.value
    assert change <= 1
    if not (
        replaced and isinstance(loss, Logistic)
    ):  # its two labels have derivatives that are 1 apart, never 2
        assert change >= 0.999


@LOSSES
def test_random_pairs_stay_within_the_declared_sensitivities(loss):
    rng = np.random.default_rng(0)
    problem = problem_of(loss=loss)
    fit = plan_of(problem).fit
    for _ in range(200):
        first, other = (one_record(problem, rng.uniform(-1, 1, 3), rng.choice([-1.0, 1.0])) for _ in range(2))
        point = np.append(rng.dirichlet(np.ones(3)) * fit.size * rng.choice([-1, 1], size=3), 0.0)
        gap = moved(score_fit.moments, first, other, point, fit.longest)
        assert np.linalg.norm(gap) <= fit.moments.sensitivity.value
        mean, unit = rng.uniform(-fit.longest, fit.longest), rng.uniform(0.01, 3.0)
        gap = moved(score_fit.gradients, first, other, loss, point, mean, unit, rng.uniform(-50, 50, size=2))
        assert np.linalg.norm(gap) <= fit.gradients.sensitivity.value


@pytest.mark.parametrize("relation", RELATIONS)
@LOSSES
def test_the_bill_is_worth_the_promise_and_is_what_a_run_calls(relation, loss):
    problem = problem_of(loss=loss, n_models=2, n=600)
    plan = plan_of(problem, relation)
    assert plan.slope_share

    def price(event):
        return accountants.epsilon(event, 1e-3, relation)

    assert 0.99 * 5 <= price(plan.event) <= 5 * (1 + 1e-9)
    assert price(dataclasses.replace(plan, unit=plan.unit / 2).event) > 5.05
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(600, 3)), rng.choice([-1.0, 1.0], size=600)
    for make in (np.asarray, sp.csr_array):
        records = [ArrayRecords(make(X), labels, problem.bounds) for labels in (y, -y)]
        assert calls(plan, records) == billed(plan)


@pytest.mark.parametrize("epsilon", [0.4, 5.0])
@pytest.mark.parametrize("kind", [PrivateSparseLogisticRegression, PrivateSparseLinearSVC])
def test_replays_of_worst_neighbors_pass(kind, epsilon):
    X = np.vstack([[[1.0, 1.0]], np.tile([[0.5, -0.5]], (400, 1))])
    y = np.arange(401) % 2
    other, labels = X.copy(), y.copy()
    other[0], labels[0] = -1.0, 1 - y[0]
    model = kind(epsilon, 1e-3, classes=[0, 1])
    plan = model.plan(401, 2)
    assert bool(plan.slope_share) == (epsilon == 5.0)
    assert not plan.evidence_share
    if kind is PrivateSparseLogisticRegression:
        assert plan.walk.problem.loss.lipschitz < 1.0
    found = replay(fitting(model), (X, y), (other, labels))
    assert found.passed, str(found)


def test_null_records_say_nothing():
    problem = problem_of()
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, size=(40, 3)), rng.choice([-1.0, 1.0], size=40)
    null = np.arange(40) < 15
    rows = ArrayRecords(X, y, problem.bounds, null), ArrayRecords(X[15:], y[15:], problem.bounds)
    point, at = np.array([1.0, -2.0, 0.5, 0.0]), np.array([2.0, -1.0])
    moments = [score_fit.moments(part, point, 2.0) for part in rows]
    gradients = [score_fit.gradients(part, Logistic(), point, 0.3, 0.5, at) for part in rows]
    assert np.allclose(*moments)
    assert np.allclose(*gradients)


def test_the_walk_covers_half_of_the_ball_and_refusals_say_what_is_needed():
    assert plan_of(problem_of()).walk.geometry.radius(1.0) == 20.0
    needs = "needs a margin loss with an intercept"
    with pytest.raises(ParameterError, match=needs):
        plan_of(problem_of(loss=Squared(40.0, 1.0)))
    with pytest.raises(ParameterError, match=needs):
        plan_of(problem_of(), delta=0.0)
    with pytest.raises(ParameterError, match=needs):
        plan_of(problem_of(intercept=False))
    with pytest.raises(ParameterError, match="takes the place of evidence_share"):
        plan_of(problem_of(), evidence_share=0.2)
    with pytest.raises(ParameterError, match=r"between 0 and 0\.9"):
        FrankWolfe(slope_share=1.0).plan(problem_of(), Guarantee(5.0, 1e-3))


def test_derivatives_are_capped_for_dense_rows_whose_choices_are_clear_of_the_noise():
    def cap(model, epsilon, **solver):
        if solver:
            model = model(epsilon, 1e-6, classes=[0, 1], solver=FrankWolfe(**solver))
        else:
            model = model(epsilon, 1e-6, classes=[0, 1])
        plan = model.plan(2000, 20)
        assert plan.problem.loss == Logistic()
        return plan.walk.problem.loss.lipschitz

    assert cap(PrivateSparseLogisticRegression, 0.1) == 1.0  # the length is paid for
    assert cap(PrivateSparseLogisticRegression, 0.5) == 0.5
    assert cap(PrivateSparseLogisticRegression, 0.5, n_iterations=7) == 0.5
    assert cap(PrivateSparseLogisticRegression, 0.5, choice="vertices") == 1.0
    assert cap(PrivateSparseLogisticRegression, 50.0) == 1.0
    sparse = PrivateSparseLogisticRegression(0.5, 1e-6, classes=[0, 1]).plan(2000, 20, sparse=True)
    assert sparse.walk.problem.loss == Logistic()


@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.lemma("frank-wolfe.md#section-10")
def test_the_model_stays_in_its_ball_and_the_certificate_holds(share):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(2000, 3))
    y = np.where(X @ [3.0, -1.0, 0.5] + 1 + rng.logistic(size=2000) > 0, 1.0, -1.0)
    problem = problem_of(n=2000, size=4.0)
    with insecure_noise(0):
        plan = FrankWolfe(slope_share=share, evidence_share=0.0, capped=True).plan(
            problem, Guarantee(0.5, 1e-3)
        )
        assert plan.walk.problem.loss.lipschitz < 1.0
        found = plan.run([ArrayRecords(X, y, problem.bounds)], fresh_entropy())
    theta = found.theta.ravel()
    assert np.abs(theta[:-1]).sum() <= 4.0 * (1 + 1e-12)

    def risk(parts):
        return np.logaddexp(0, -y * (X @ (parts[:3] - parts[3:]) + theta[-1])).mean()

    ball = {"type": "ineq", "fun": lambda parts: 4.0 - parts.sum()}
    best = minimize(risk, np.full(6, 0.1), bounds=[(0, None)] * 6, constraints=[ball], method="SLSQP").fun
    own = risk(np.append(np.maximum(theta[:3], 0), np.maximum(-theta[:3], 0)))
    assert own - best <= found.certificate.expected


@pytest.mark.parametrize("kind", [PrivateSparseLogisticRegression, PrivateSparseLinearSVC])
def test_long_walks_are_better_with_a_slope(kind):
    rng = np.random.default_rng(4)
    X = (rng.random(size=(20_000, 60)) < 0.3).astype(float)
    weights = np.append([2.0, 2.0, -2.0, -2.0, 1.5, 1.5, 1.0, 1.0, -1.0, -1.0], np.zeros(50))
    y = (X @ weights + rng.logistic(size=20_000) > 2.0).astype(int)
    gaps = []
    for seed in range(6):
        scores = []
        for solver in (FrankWolfe(), FrankWolfe(evidence_share=0.0)):
            with insecure_noise(seed):
                model = kind(0.2, 1e-8, classes=[0, 1], solver=solver).fit(X, y)
            scores.append(model.score(X, y))
        gaps.append(scores[0] - scores[1])
    assert np.mean(gaps) > 0
