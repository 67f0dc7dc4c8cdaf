"""Permutation SGD: drift against closed forms and brute force, enforced conditions, the law, broken twins."""

import numpy as np
import pytest
from scipy import stats

from discreet import PrivateLogisticRegression, insecure_noise
from discreet.losses import CappedSoftmax, HuberRegression, Logistic
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers import base
from discreet.solvers.gradients.psgd import SCHEDULES, PermutationSGD, drift, learning_rates

BOUNDS = Bounds(1.0, intercept=False)
PROMISE = Guarantee(1.0, 1e-6)


def problem(loss=None, n=60, p=3, **kwargs):
    return Problem(loss or Logistic(), BOUNDS, n, p, **kwargs)


def test_convex_constant_rate_has_the_closed_form():
    """2 T L eta / k (Wu et al., 2017)."""
    rates = learning_rates("constant", 7, 20, 0.8, 0.0, 0.25)
    assert drift(rates, 20, jump=2 / 50, l2=0.0, smoothness=0.25) == pytest.approx(2 * 7 * 0.8 / 50)


def test_strongly_convex_rate_per_step_stays_below_the_published_bound():
    n, batch, l2 = 2000, 10, 0.05
    steps = n // batch
    rates = learning_rates("strongly-convex", 10, steps, 1.0, l2, 0.25)
    found = drift(rates, steps, jump=2 / batch, l2=l2, smoothness=0.25)
    assert 0.5 * 2 / (l2 * n) < found <= 2 / (l2 * n) * (1 + 1e-9)


def test_a_rate_per_pass_is_caught():
    """The schedule of Thakkar's Algorithm 3 uses the number of the pass, not of the step: far more drift."""
    n, batch, l2, passes = 2000, 10, 0.05, 10
    steps = n // batch
    per_pass = np.repeat(np.minimum(1 / 0.3, 1 / (l2 * (1 + np.arange(passes)))), steps)
    assert drift(per_pass, steps, jump=2 / batch, l2=l2, smoothness=0.25) > 5 * 2 / (l2 * n)


def test_contraction_uses_the_regularized_smoothness():
    """At rate 2 / smoothness a regularized step expands; that rate must be refused."""
    with pytest.raises(ValueError, match="2 / \\(smoothness \\+ l2\\)"):
        drift(np.array([8.0]), 1, jump=1.0, l2=0.05, smoothness=0.25)


def slowest_run(rates, steps, jump, l2, smoothness):
    """The drift by its definition, step by step: shrink, and jump where the record's batch is used."""
    distances = np.zeros(steps)
    for step, rate in enumerate(rates):
        distances *= max(abs(1 - rate * l2), abs(1 - rate * (smoothness + l2)))
        distances[step % steps] += rate * jump
    return distances.max()


@pytest.mark.parametrize("l2", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
def test_drift_is_the_recursion_over_every_place(l2, share):
    rng = np.random.default_rng(0)
    rates = share * rng.uniform(0.8, 1.0, 24) * 2 / (1.0 + l2)
    declared = drift(rates, 6, jump=0.3, l2=l2, smoothness=1.0)
    assert declared == pytest.approx(slowest_run(rates, 6, 0.3, l2, 1.0), rel=1e-9)


def test_steps_beyond_the_minimum_shrink_as_the_regularized_curvature_says():
    """Quadratic records, long steps: each carries the distance of two runs to the other side, at 0.8 of its length.

    Without the ridge in the curvature, the factor would be 0.2 or 0.4, and the drift half of what happens.
    """
    rate, l2, smoothness, steps, passes, labels = 1.2, 0.5, 1.0, 2, 5, np.array([0.3, -0.1])
    ends = []
    for changed in (0.0, 1.0):  # the last label of a pass, whose record is used every second step
        theta = 0.0
        for step in range(steps * passes):
            label = labels[step % steps] + changed * (step % steps == 1)
            theta -= rate * (smoothness * (theta - label) + l2 * theta)
        ends.append(theta)
    moved = abs(ends[1] - ends[0])
    assert moved == pytest.approx(rate * (1 - 0.8 ** (2 * passes)) / (1 - 0.8**2))
    assert drift(np.full(10, rate), steps, jump=1.0, l2=l2, smoothness=smoothness) == pytest.approx(moved)


def test_several_models_drift_together():
    one, three = (PermutationSGD().plan(problem(n=600, n_models=k, l2=0.05), PROMISE) for k in (1, 3))
    assert three.sensitivity.value == pytest.approx(np.sqrt(3) * one.sensitivity.value, rel=1e-12)
    assert three.output.size == 3 * one.output.size


@pytest.mark.parametrize("l2", [None, 0.05])
def test_rates_that_expand_are_refused_before_any_charge(l2):
    with pytest.raises(ValueError, match="choose a smaller rate"):
        PermutationSGD(learning_rate=8.1, schedule="constant").plan(problem(l2=l2), PROMISE)


def run_without_noise(plan, X, y, order):
    theta = np.zeros(X.shape[1])
    records = ArrayRecords(X, y, BOUNDS)
    for step, rate in enumerate(plan.rates):
        start = step % plan.steps_per_pass * plan.batch_size
        rows = order[start : start + plan.batch_size]
        batch = ArrayRecords(X[rows], y[rows], BOUNDS)
        gradient = batch.value_and_gradient(plan.problem.loss, theta)[1] / plan.batch_size
        theta = theta - rate * (gradient + plan.l2 * theta)
    assert records.n_samples == len(y)
    return theta


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.lemma("gradient-methods.md#theorem-6")
def test_no_neighbor_drifts_further_than_declared(schedule):
    rng = np.random.default_rng(0)
    l2 = 0.05 if schedule == "strongly-convex" else None
    plan = PermutationSGD(schedule, n_passes=3, learning_rate=4.0, batch_size=10).plan(
        problem(l2=l2), PROMISE
    )
    largest = 0.0
    for _ in range(40):
        X, y = rng.normal(size=(60, 3)), rng.choice([-1.0, 1.0], 60)
        X2, y2 = X.copy(), y.copy()
        place = rng.integers(60)
        X2[place], y2[place] = -X[place] + rng.normal(size=3), y[place]
        order = rng.permutation(60)
        distance = run_without_noise(plan, X, y, order) - run_without_noise(plan, X2, y2, order)
        largest = max(largest, float(np.linalg.norm(distance)))
    assert 0.1 * plan.sensitivity.value < largest <= plan.sensitivity.value


def test_drift_is_attained_where_the_loss_is_linear():
    loss = HuberRegression(0.5)
    plan = PermutationSGD("constant", n_passes=4, learning_rate=0.3, batch_size=5).plan(
        problem(loss, 20, 1), PROMISE
    )
    X, y = np.ones((20, 1)), np.full(20, 100.0)
    flipped = y.copy()
    flipped[7] = -100.0
    order = np.arange(20)
    moved = abs(run_without_noise(plan, X, y, order) - run_without_noise(plan, X, flipped, order)).item()
    assert moved == pytest.approx(4 * 2 * 0.5 * 0.3 / 5)
    assert moved <= plan.sensitivity.value <= moved * (1 + 1e-6)


def test_noise_is_added_once_with_the_planned_law():
    p = 1500
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, p)), rng.choice([-1.0, 1.0], 60)
    plan = PermutationSGD("constant", n_passes=2, learning_rate=1.0, batch_size=60).plan(
        problem(p=p), PROMISE
    )
    theta = plan.run([ArrayRecords(X, y, BOUNDS)], fresh_entropy()).theta[0]
    rest = theta - run_without_noise(plan, X, y, np.arange(60))  # one batch: the order does not matter
    assert stats.kstest(rest, "norm", args=(0, plan.output.stddev)).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(rest, "norm", args=(0, plan.output.stddev * wrong)).pvalue < 1e-6


def test_tail_batches_are_left_out_and_the_order_is_random():
    X, y = np.arange(7.0)[:, None] / 10, np.ones(7)
    plan = PermutationSGD("constant", n_passes=1, learning_rate=1.0, batch_size=3).plan(
        problem(n=7, p=1), Guarantee(1e7, 1e-6)
    )
    ends = {round(plan.run([ArrayRecords(X, y, BOUNDS)], fresh_entropy()).theta.item(), 3) for _ in range(20)}
    assert plan.steps_per_pass == 2
    assert len(ends) > 3


@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
def test_calibration_uses_the_whole_budget_and_no_more(relation):
    promise = Guarantee(0.5, 1e-7, relation)
    plan = PermutationSGD().plan(problem(n=5000), promise)
    assert 0.99 * promise.delta <= accountants.delta(plan.event, 0.5, relation) <= promise.delta


def test_private_numbers_of_rows_are_refused():
    with pytest.raises(ValueError, match="add-remove-one"):
        PermutationSGD().plan(problem(), Guarantee(1.0, 1e-6, Neighboring.ADD_REMOVE_ONE))


def test_defaults_learn_and_dense_and_sparse_agree():
    from scipy import sparse

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3)) / 2
    y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    coefficients = []
    for rows in (X, sparse.csr_matrix(X)):
        with insecure_noise(1):
            model = PrivateLogisticRegression(epsilon=2.0, classes=[0, 1], solver="psgd").fit(rows, y)
        assert model.score(X, y) > 0.9
        coefficients.append(model.coef_)
    assert np.abs(coefficients[0] - coefficients[1]).max() < 1e-6


@pytest.mark.parametrize("solver", ["psgd", "objective", "output"])
def test_a_capped_softmax_is_no_loss_to_minimize(solver):
    """Its field is not monotone, which steps that do not drift apart and minimizers both need."""
    problem = Problem(CappedSoftmax(3, 0.3), Bounds(), 1000, 5, l2=0.1)
    with pytest.raises(ValueError, match="gradient of a convex loss"):
        base.resolve(solver).plan(problem, Guarantee(1.0, 1e-6))
