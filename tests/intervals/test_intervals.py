"""Intervals for coefficients: sensitivities as declared, one charge, the right width, and coverage."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from benchmarks.coverage import _AWKWARD as AWKWARD
from benchmarks.coverage import awkward, linear, logistic
from discreet import (
    Binned,
    Categorical,
    Ledger,
    Numeric,
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSelection,
    Schema,
    card,
    coefficient_intervals,
)
from discreet.audit.replay import replay
from discreet.intervals import intervals, newton
from discreet.intervals.newton import Weight, matrix_mechanism, plan_intervals, residual_mechanism
from discreet.losses import Logistic, Squared
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring, PrivacyWarning
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds

BOUND = 2.0


def made(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, X @ [0.5, -0.5] + rng.uniform(-0.5, 0.5, size=n), rng


def test_estimate_is_the_least_squares_solution_when_noise_is_small():
    X, y, _ = made(20_000)
    model = PrivateRidge(1.0, target_bounds=(-3, 3), feature_bound=BOUND, l2=0.1).fit(X, y)
    found = coefficient_intervals(model, X, y, epsilon=1e4, delta=1e-3)
    exact = LinearRegression().fit(X, y)
    assert np.allclose(found.estimate, [*exact.coef_, exact.intercept_], atol=1e-3)
    residuals = y - exact.predict(X)
    design = np.column_stack([X, np.ones(len(X))])
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * residuals.var())
    assert np.allclose(found.standard_error, errors, rtol=0.02)
    robust = coefficient_intervals(model, X, y, epsilon=1e4, delta=1e-3, robust=True)
    assert np.allclose(robust.standard_error, errors, rtol=0.1)


def test_logistic_estimate_is_the_maximum_likelihood_one_when_noise_is_small():
    X, raw, rng = made(20_000)
    y = (2 * raw + rng.logistic(size=len(X)) > 0).astype(int)
    model = PrivateLogisticRegression(1.0, classes=[0, 1], feature_bound=BOUND).fit(X, y)
    found = coefficient_intervals(model, X, y, epsilon=1e4, delta=1e-3, steps=4)
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    assert np.allclose(found.estimate, [*exact.coef_[0], *exact.intercept_], atol=5e-3)
    chance = exact.predict_proba(X)[:, 1]
    design = np.column_stack([X, np.ones(len(X))])
    information = (design.T * (chance * (1 - chance))) @ design
    assert np.allclose(found.standard_error, np.sqrt(np.diag(np.linalg.inv(information))), rtol=0.02)


WARDS = Schema(
    {"age": Numeric(0, 100), "ward": Categorical(("north", "south", "east")), "size": Binned((1.0, 2.0))}
)


def visits(n, seed=0):
    """Rows of a schema with categories, all cells there, and a number that depends on each of them."""
    rng = np.random.default_rng(seed)
    table = {
        "age": rng.uniform(0, 100, n),
        "ward": rng.choice(["north", "south", "east"], n),
        "size": rng.uniform(0, 3, n),
    }
    rows = WARDS.transform(table)
    return rows, rows @ [0.5, 0.0, 0.4, -0.4, 0.0, 0.3, 0.6] + rng.uniform(-0.5, 0.5, n) - 0.3, rng


@pytest.mark.parametrize("intercept", [True, False])
def test_levels_are_differences_from_their_references(intercept):
    """As in a regression on all columns but the references, which has one solution."""
    X, y, rng = visits(20_000)
    assert WARDS.levels == ((1, 2, 3), (4, 5, 6))
    left = [0, 2, 3, 5, 6] if intercept else [0, 1, 2, 3, 5, 6]
    places = [*left, 7] if intercept else left
    common = {"feature_bound": WARDS.feature_bound(intercept=intercept), "fit_intercept": intercept}
    small = {"epsilon": 1e4, "delta": 1e-3, "levels": WARDS.levels}
    model = PrivateRidge(1.0, target_bounds=(-3, 3), l2=0.01, **common).fit(X, y)
    found = coefficient_intervals(model, X, y, **small)
    exact = LinearRegression(fit_intercept=intercept).fit(X[:, left], y)
    wanted = [*exact.coef_, exact.intercept_] if intercept else exact.coef_
    assert np.allclose(found.estimate[places], wanted, atol=1e-3)
    residuals = y - exact.predict(X[:, left])
    design = np.column_stack([X[:, left], np.ones(len(X))]) if intercept else X[:, left]
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * residuals.var())
    assert np.allclose(found.standard_error[places], errors, rtol=0.03)
    assert found.references == tuple(sorted({1, 4} - set(left)))
    assert found.lower[4] == found.upper[4] == found.estimate[4] == 0
    assert str(found).count("reference") == len(found.references)
    labels = (y + rng.logistic(size=len(X)) / 4 > 0).astype(int)
    model = PrivateLogisticRegression(1.0, classes=[0, 1], **common).fit(X, labels)
    found = coefficient_intervals(model, X, labels, steps=5, **small)
    exact = LogisticRegression(C=np.inf, tol=1e-10, fit_intercept=intercept).fit(X[:, left], labels)
    wanted = [*exact.coef_[0], *exact.intercept_] if intercept else exact.coef_[0]
    assert np.allclose(found.estimate[places], wanted, atol=2e-2)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_start_without_references_predicts_the_same(intercept):
    X, _, rng = visits(100)
    start = rng.normal(size=7 + intercept)
    design = np.column_stack([X, np.ones(len(X))])[:, : len(start)]
    moved, kept = intervals._against_references(start, WARDS.levels, intercept=intercept)
    assert np.allclose(design[:, kept] @ moved, design @ start)
    assert intervals._against_references(start, (), intercept=intercept)[1].all()


def test_levels_that_are_not_named_are_the_advice(tmp_path):
    """All levels and the intercept repeat each other: nothing but a reference makes their intervals finite."""
    X, y, rng = visits(20_000)
    labels = (y + rng.logistic(size=len(X)) > 0).astype(int)
    model = PrivateLogisticRegression(1.0, classes=[0, 1], feature_bound=WARDS.feature_bound()).fit(X, labels)
    with pytest.warns(
        PrivacyWarning, match=r"levels of a category do, .* levels=, for instance schema\.levels"
    ):
        assert np.isinf(coefficient_intervals(model, X, labels, epsilon=8.0).upper).all()
    named = coefficient_intervals(model, X, labels, epsilon=8.0, levels=WARDS.levels)
    assert np.isfinite(named.upper).all()
    card.save(model, tmp_path / "model.json", schema=WARDS)
    loaded = card.load(tmp_path / "model.json")
    assert coefficient_intervals(loaded, X, labels, epsilon=8.0).references == (1, 4)
    with pytest.raises(ValueError, match="levels must list columns from 0 to 6, none of them twice"):
        coefficient_intervals(model, X, labels, levels=[(1, 2), (2, 3)])


def logistic_model(X, y, coef, intercept, bound):
    """A released model whose coefficients are set by hand."""
    model = PrivateLogisticRegression(1.0, classes=[0, 1], feature_bound=bound).fit(X, y)
    model.coef_, model.intercept_ = np.array([coef]), np.array([intercept])
    return model


def test_rare_labels_from_a_model_in_the_tail_do_not_overshoot():
    # Newton's steps from -5.8 lead to +0.9, -2.5 and -3.3, and the intervals around that are short.
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, size=(20_000, 2))
    y = (rng.uniform(size=len(X)) < expit(X @ [0.5, -0.5] - 4)).astype(int)
    model = logistic_model(X, y, [0.5, -0.5], -5.8, 1.5)
    found = coefficient_intervals(model, X, y, epsilon=1e4, delta=1e-6)
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    off = np.abs(found.estimate - [*exact.coef_[0], *exact.intercept_])
    assert np.all(off <= found.remainder + 0.05 * found.standard_error)
    assert np.all(np.isfinite(found.upper))
    assert not found.doubt


def test_a_remainder_makes_intervals_longer_and_a_long_last_step_infinite():
    X, raw, rng = made(20_000)
    y = (2 * raw + rng.logistic(size=len(X)) > 0).astype(int)
    options = {"epsilon": 1e4, "delta": 1e-6, "steps": 1}
    near = coefficient_intervals(logistic_model(X, y, [0.75, -0.75], 0.0, BOUND), X, y, **options)
    half = (near.upper - near.lower) / 2
    # Beside a bias of several standard errors only one tail counts: 1.645.
    assert np.all(near.remainder > 2 * near.standard_error)
    assert np.allclose(half, near.remainder + 1.645 * near.standard_error, rtol=1e-3)
    with pytest.warns(PrivacyWarning, match="starting model was too far off"):
        far = coefficient_intervals(logistic_model(X, y, [-0.5, 0.5], 0.0, BOUND), X, y, **options)
    assert np.all(np.isinf(far.upper))
    assert "too far off" in str(far)


def test_coefficients_beyond_the_ball_get_infinite_intervals():
    # Small columns: the ball around a shrunk model has radius 7.6, and the coefficients are 20 and -10.
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.1, 0.1, size=(50_000, 2))
    y = (rng.uniform(size=len(X)) < expit(X @ [20.0, -10.0] + 0.5)).astype(int)
    model = logistic_model(X, y, [1.2, -0.5], 0.2, 2.0)
    with pytest.warns(PrivacyWarning, match="too far off"):
        found = coefficient_intervals(model, X, y, epsilon=20.0, delta=1e-6)
    assert np.all(np.isinf(found.upper))


@pytest.mark.parametrize("times", [1, 4])
def test_a_bound_on_the_number_of_records_does_not_shorten_intervals(times):
    X, y, _ = made(5000)
    model = PrivateRidge(
        target_bounds=(-3, 3), feature_bound=BOUND, neighboring="add-remove-one", n_samples=times * len(X)
    ).fit(X, y)
    found = coefficient_intervals(model, X, y, epsilon=1e4, delta=1e-6, n_samples=times * len(X))
    design = np.column_stack([X, np.ones(len(X))])
    residuals = y - LinearRegression().fit(X, y).predict(X)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * residuals.var())
    assert np.allclose(found.standard_error, errors, rtol=0.02)


def test_one_step_is_exact_from_a_model_whose_slopes_are_at_their_bound():
    X, y, _ = made(20_000)
    model = PrivateRidge(target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    model.coef_, model.intercept_ = np.array([90.0, 90.0]), 0.0
    found = coefficient_intervals(model, X, y, epsilon=1e4, delta=1e-6)
    exact = LinearRegression().fit(X, y)
    assert np.allclose(found.estimate, [*exact.coef_, exact.intercept_], atol=1e-3)
    assert np.all(found.remainder == 0)


PLAN = plan_intervals(
    Problem(Logistic(), Bounds(1.0, intercept=False), 6, 2), Guarantee(1.0, 1e-6), 30.0, 3, False
)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 2.0), st.floats(0.0, 1.0))
def test_what_the_expansion_leaves_out_is_within_its_bound(seed, length, off):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(6, 2))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(rng.uniform(size=6) < 0.5, 1.0, -1.0)
    records, loss = ArrayRecords(rows, labels, Bounds(1.0, intercept=False)), Logistic()
    start, along, aside = 3 * rng.normal(size=2), rng.normal(size=2), rng.normal(size=2)
    move, astray = length * along / np.linalg.norm(along), off * aside / np.linalg.norm(aside)
    curvature = records.hessian(loss, start + move / 2 + astray)
    change = np.subtract(*(records.value_and_gradient(loss, at)[1] for at in (start + move, start)))
    left_out = change - curvature @ move
    bound = newton._relative_error(length, off)
    size = math.sqrt(left_out @ np.linalg.solve(curvature, left_out))
    assert size <= bound * math.sqrt(move @ curvature @ move) * (1 + 1e-6) + 1e-9


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 4.0), st.floats(0.0, 0.3), st.booleans())
def test_the_minimum_along_a_step_is_no_farther_than_stated(seed, length, off, intercept):
    rng, loss, bounds = np.random.default_rng(seed), Logistic(), Bounds(1.5, intercept=intercept)
    plan = replace(PLAN, problem=Problem(loss, bounds, 8, 2))
    rows = rng.normal(size=(8, 2 - intercept)) * rng.choice([0.3, 3.0])
    records = ArrayRecords(rows, np.where(rng.uniform(size=8) < 0.5, 1.0, -1.0), bounds)
    start, move, aside = rng.choice([0.5, 4.0]) * rng.normal(size=2), rng.normal(size=2), rng.normal(size=2)
    move *= length / plan._largest_change(move)
    aside *= off / plan._largest_change(aside)
    times = newton._farthest(plan._largest_change(move), plan._largest_change(aside))
    # The slope at the start is what the curvature near the middle says, and the curvature along the step makes up for
    # it within that many steps.
    slope = move @ records.hessian(loss, start + move / 2 + aside) @ move
    if math.isfinite(times):
        points = start + np.linspace(0, times, 400)[:, None] * move
        along = [move @ records.hessian(loss, point) @ move for point in points]
        assert np.trapezoid(along, dx=times / 399) >= slope * (1 - 1e-4)
    else:
        assert length * math.exp(off) > 1
    full = np.column_stack([rows, np.ones(8)]) if intercept else rows
    changes = np.abs(records.scales * (full @ start))
    assert changes.max() <= plan._largest_change(start) * (1 + 1e-9)
    assert plan._largest_change(start) <= 1.5 * np.linalg.norm(start) * (1 + 1e-9)


@pytest.mark.parametrize("off", [0.0, 0.2, 0.4])
def test_a_minimizer_in_the_tail_is_farther_away_than_the_step_is_long(off):
    """Curvature falls off as e^-t and was taken ``off`` before the middle: the step's own length says too little."""
    fooled = 0
    for step in np.linspace(0.05, 2.0, 120):
        covered = step * math.exp(off - step / 2)  # of the slope, which is 1 - e^-way
        if covered >= 1:
            continue
        way, times = -math.log1p(-covered), newton._farthest(step, off)
        assert times * step >= way * (1 - 1e-9)
        fooled += newton._relative_error(step, off) * step < way - step
        if math.isfinite(times):
            stated = times * newton._relative_error(times * step, off + (times - 1) * step / 2) * step
            assert stated >= way - step
    assert (fooled > 0) == (off > 0.2)


@pytest.mark.parametrize(("length", "off"), [(0.0, 1e3), (1e-300, 1e3), (4.1, 0.0), (1e3, 1e3), (0.1, 4.1)])
def test_steps_too_long_for_a_bound_have_none(length, off):
    """Exponentials of such lengths may exceed all doubles, and an error would come after the charge."""
    assert PLAN._relative_remainder(np.array([length, 0.0]), np.array([0.0, off])) is None


def test_the_way_is_bounded_up_to_the_longest_step():
    lengths = np.linspace(0.01, 4.0, 400)
    times = np.array([newton._farthest(length, 0.0) for length in lengths])
    # From 2.44 on nothing bounds how far beyond the step the minimizer is.
    assert np.all(np.diff(times[np.isfinite(times)]) >= -1e-12)
    assert 2.4 < lengths[np.isfinite(times)].max() < 2.5
    for length, most in zip(lengths, times, strict=True):
        if math.isfinite(most):
            # The least curvature that the bounds of its derivatives allow, from the middle of the step.
            inside = max(2 - 2 * math.exp(-length / 2), math.sqrt(8) * math.sin(length / math.sqrt(8)))
            beyond = math.exp(-length / 2) - math.exp(-length * (most - 0.5))
            assert inside + beyond >= length * (1 - 1e-9)


@pytest.mark.parametrize("relation", list(Neighboring))
def test_residuals_and_number_of_records_move_by_no_more_than_declared(relation):
    loss = Squared(1.0, 1.0)
    problem = Problem(loss, Bounds(1.0, intercept=False), 10, 2)
    mechanism = residual_mechanism(problem, 1.0, 1.0, not relation.size_is_public)
    largest = loss.lipschitz**2
    moved = [largest] if relation.size_is_public else [largest, largest]
    assert mechanism.size == len(moved)
    assert np.linalg.norm(moved) <= mechanism.sensitivity.value <= 1.001 * np.linalg.norm(moved)


def test_one_charge_of_what_is_run(tmp_path):
    X, y, _ = made(5000)
    model = PrivateLinearRegression(1.0, 1e-6, target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-5)
    found = coefficient_intervals(model, X, y, epsilon=1.0, delta=1e-6, ledger=ledger)
    (charge,) = ledger.history()
    assert charge.event == found.privacy_.event
    price = accountants.delta(charge.event, 1.0, ledger.neighboring)
    assert 0.9e-6 < price <= 1e-6
    assert "95% intervals" in str(found)
    assert np.all(found.lower < found.estimate)
    assert np.all(found.noise < found.standard_error)


vectors = st.lists(st.floats(-1, 1), min_size=2, max_size=2)


def matrix(records, weight, theta):
    """What is released before its noise."""
    return records.gram(weight(records.labels, records.raw_predictions(theta)))


@given(
    vectors,
    vectors,
    st.floats(-1, 1),
    st.floats(-1, 1),
    vectors,
    st.booleans(),
    st.sampled_from(list(Neighboring)),
)
@pytest.mark.lemma("uncertainty.md#section-1")
def test_matrices_move_by_no_more_than_declared(row, other, y, other_y, theta, squared_slope, relation):
    bounds = Bounds(1.0, intercept=False)
    for loss in (Logistic(), Squared(1.0, 1.0)):
        labels = [np.sign(value) or 1.0 if isinstance(loss, Logistic) else value for value in (y, other_y)]
        weight = Weight(loss, squared_slope)
        problem = Problem(loss, bounds, 1, 2)
        declared = matrix_mechanism(weight, problem, 10.0, relation, 1.0).sensitivity.value
        sums = [
            matrix(ArrayRecords(np.array([part]), np.array([label]), bounds), weight, np.array(theta) * 3)
            for part, label in zip((row, other), labels, strict=True)
        ]
        second = sums[1] if relation is Neighboring.REPLACE_ONE else 0.0
        assert np.linalg.norm(sums[0] - second) <= declared


def test_worst_case_of_the_matrix_sensitivity_is_attained():
    bounds, weight = Bounds(1.0, intercept=False), Weight(Squared(1.0, 1.0), False)
    problem = Problem(Squared(1.0, 1.0), bounds, 1, 2)
    declared = matrix_mechanism(weight, problem, 1.0, Neighboring.REPLACE_ONE, 1.0).sensitivity.value
    sums = [
        matrix(ArrayRecords(np.array([row]), np.zeros(1), bounds), weight, np.zeros(2))
        for row in ([1.0, 0.0], [0.0, 1.0])
    ]
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(declared, rel=1e-9)


@pytest.mark.parametrize("robust", [False, True])
def test_replay_on_neighbors_finds_nothing(robust):
    X, y, _ = made(400)
    model = PrivateLinearRegression(5.0, 1e-3, target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    other_X, other_y = X.copy(), y.copy()
    other_X[0], other_y[0] = [1.0, -1.0], -3.0

    def program(part):
        return coefficient_intervals(model, *part, epsilon=20.0, delta=1e-3, robust=robust).upper

    found = replay(program, (X, y), (other_X, other_y))
    assert found.passed, str(found)


def test_replay_without_a_record_finds_nothing():
    X, y, _ = made(400)
    X[0], y[0] = [1.0, -1.0], 3.0
    options = {"neighboring": "add-remove-one", "n_samples": 500}
    model = PrivateRidge(5.0, 1e-3, target_bounds=(-3, 3), feature_bound=BOUND, **options).fit(X, y)

    def program(part):
        return coefficient_intervals(model, *part, epsilon=20.0, delta=1e-3, n_samples=500).upper

    found = replay(program, (X, y), (X[1:], y[1:]))
    assert found.passed, str(found)


def test_too_few_records_give_infinite_intervals_and_a_warning():
    X, y, _ = made(60)
    model = PrivateLinearRegression(1.0, 1e-3, target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    with pytest.warns(PrivacyWarning, match="not distinguishable"):
        found = coefficient_intervals(model, X, y, epsilon=0.1, delta=1e-3)
    assert np.all(np.isinf(found.upper))
    assert np.all(np.isfinite(found.estimate))


def test_what_is_not_proved_is_refused():
    X, y, _ = made(300)
    huber = PrivateHuberRegressor(target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    with pytest.raises(ValueError, match="not for PrivateHuberRegressor"):
        coefficient_intervals(huber, X, y)
    three = PrivateLogisticRegression(classes=[0, 1, 2]).fit(X, np.arange(300) % 3)
    with pytest.raises(ValueError, match="two classes"):
        coefficient_intervals(three, X, np.arange(300) % 3)
    ridge = PrivateRidge(target_bounds=(-3, 3)).fit(X, y)
    with pytest.raises(ValueError, match="delta > 0"):
        coefficient_intervals(ridge, X, y, delta=0.0)
    with pytest.raises(ValueError, match="level"):
        coefficient_intervals(ridge, X, y, level=1.0)


def test_what_is_wrong_with_rows_and_targets_is_noticed_before_the_charge(tmp_path):
    X, y, _ = made(300)
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-3)
    rows = pd.DataFrame(X, columns=["a", "b"])
    model = PrivateRidge(target_bounds=(-3, 3), feature_bound=BOUND).fit(rows, y)
    strange = y.astype(object)
    strange[5] = "secret"
    for table, targets, message in (
        (rows[["b", "a"]], y, "same order"),
        (rows[["a"]], y, "feature names"),
        (rows, strange, "not finite numbers"),
        (rows, np.where(y > 0, np.inf, y), "not finite numbers"),
        (rows[:31], y[:31], "delta defaults to"),
    ):
        with pytest.raises(ValueError, match=message) as refusal:
            coefficient_intervals(model, table, targets, ledger=ledger)
        assert "secret" not in str(refusal.value)
    assert not ledger.history()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", PrivacyWarning)  # there are few records
        coefficient_intervals(model, rows, y, ledger=ledger)
    assert len(ledger.history()) == 1


def test_pipelines_and_searches_are_told_what_to_pass():
    X, y, _ = made(300)
    model = PrivateRidge(target_bounds=(-3, 3), feature_bound=BOUND)
    pipeline = make_pipeline(FunctionTransformer(), model).fit(X, y)
    with pytest.raises(TypeError, match=r"pipeline\[-1\], with the rows"):
        coefficient_intervals(pipeline, X, y)
    with pytest.raises(TypeError, match="best_estimator_"):
        coefficient_intervals(PrivateSelection([model]).fit(X, y), X, y)


@pytest.mark.parametrize("one", [linear, logistic])
def test_intervals_cover(one):
    # 40 repetitions, four coefficients each that are nearly independent: a coverage of 0.94 gives fewer than 132 hits
    # of 160 with a chance below 1e-6.
    hits = sum(int((one(seed, 5000, 3, 1.0, False)[0] <= 1).sum()) for seed in range(40))
    assert hits >= 132


@pytest.mark.parametrize("drawn", [True, False])
def test_a_start_that_is_mostly_noise_is_drawn_towards_zero(drawn, monkeypatch):
    """From where it was, the steps would not arrive; the intervals that they give cover all the same."""
    if not drawn:
        monkeypatch.setattr(newton, "_LONG_START", np.inf)
    rng, truth = np.random.default_rng(4), np.array([1.0, -1.0, 0.2])
    X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ truth[:2] - truth[2]))).astype(int)
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], feature_bound=1.3).fit(X, y)
    model.coef_, model.intercept_ = np.array([[25.0, 25.0]]), np.array([-20.0])
    with insecure_noise(1), warnings.catch_warnings(action="ignore"):
        found = coefficient_intervals(model, X, y, epsilon=4.0, delta=1e-6)
    assert np.isfinite(found.upper).all() == drawn
    assert ((found.lower <= truth) & (truth <= found.upper)).all()


# -- a curvature near its noise --------------------------------------------------------------------------------------


def symmetric(rng, p, stddev):
    """The noise of a released matrix: half the variance off the diagonal."""
    upper = np.triu(rng.normal(size=(p, p)), 1) / math.sqrt(2)
    return stddev * (upper + upper.T + np.diag(rng.normal(size=p)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.lemma("uncertainty.md#theorem")
def test_the_ends_of_a_joint_test_are_those_of_all_points_that_pass(seed):
    rng = np.random.default_rng(seed)
    p, level = 3, 0.9
    curvature = np.diag([6.0, 9.0, -30.0]) + symmetric(rng, p, 1.0)
    test = newton.JointTest(rng.normal(size=p), 5 * rng.normal(size=p), curvature, 1.0, 4.0)
    lower, upper = test.ends(level)
    most = stats.chi2.ppf(level, p)

    def excess(theta):
        d = test.start - theta
        u = test.gradient - curvature @ d
        return u @ u - most * (test.variance + test.curvature_noise**2 * d @ d)

    for coordinate in range(p):
        for end, side in ((lower, -1), (upper, 1)):
            # The best point for this value of the coefficient passes at the end, and none does beyond it.
            others = [place for place in range(p) if place != coordinate]

            def least(value, coordinate=coordinate, others=others):
                def placed(rest):
                    theta = np.empty(p)
                    theta[others], theta[coordinate] = rest, value
                    return excess(theta)

                return optimize.minimize(placed, np.zeros(p - 1)).fun

            step = 0.02 * (upper - lower)[coordinate]
            assert least(end[coordinate] - side * step) < 0 < least(end[coordinate] + side * step)


@pytest.mark.parametrize("smallest", [0.0, 0.3, 2.0, 5.0])
def test_a_joint_test_covers_however_small_the_curvature_is(smallest):
    """Where it is 0, nothing is known of one direction: intervals must be infinite, and are."""
    rng, p, level, blur = np.random.default_rng(1), 3, 0.9, 1.0
    truth, start = np.array([0.5, -0.2, 0.1]), np.zeros(p)
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    exact = basis @ np.diag([smallest, 20.0, 40.0]) @ basis.T
    covered, finite = [], []
    for _ in range(2000):
        gradient = exact @ (start - truth) + 2.0 * rng.normal(size=p)
        ends = newton.JointTest(start, gradient, exact + symmetric(rng, p, blur), blur, 4.0).ends(level)
        finite.append(ends is not None)
        covered.append(ends is None or bool(np.all((ends[0] <= truth) & (truth <= ends[1]))))
    assert np.mean(covered) > level - 0.02
    # docs/proofs/uncertainty.md, section 4: no honest rule has more finite ones.
    assert np.mean(finite) <= 1 - level + 2 * stats.norm.cdf(smallest / blur / 2) - 1 + 0.02


def test_linear_regressions_near_the_noise_have_finite_intervals():
    """Four of five such fits had none before there was a joint test."""
    with warnings.catch_warnings(), insecure_noise(0):
        warnings.simplefilter("ignore")
        widths = [awkward(seed, "linear, n = 3000, p = 3, epsilon = 0.5")[1] for seed in range(20)]
    assert np.mean(np.isfinite(widths)) >= 0.8


def test_a_joint_test_says_so():
    X, y, _ = made(300)
    model = PrivateLinearRegression(5.0, 1e-3, target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    for epsilon in np.geomspace(0.05, 2.0, 40):  # from too little to enough
        with insecure_noise(3), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = coefficient_intervals(model, X, y, epsilon=float(epsilon), delta=1e-3)
        if np.isfinite(found.upper).all():
            break
    assert found.doubt == newton.NEAR
    assert newton.NEAR in [str(one.message) for one in said]
    assert np.isinf(found.standard_error).all()
    assert np.all((found.lower <= found.estimate) & (found.estimate <= found.upper))


def test_at_most_one_of_four_intervals_can_be_finite_where_columns_are_nearly_the_same():
    """The figure of docs/uncertainty.md: a curvature of 0.34 times its noise, seen once and twice at a third."""
    rng = np.random.default_rng(0)
    X, truth, bound, epsilon = AWKWARD["logistic, correlation 0.99, n = 10000"](rng)
    n, rows = len(X), np.column_stack([X, np.ones(len(X))])
    problem = Problem(Logistic(), Bounds(bound), n, 3)
    plan = plan_intervals(problem, Guarantee(epsilon, 1 / n**2), 10.0, 3, False)
    chance = expit(rows @ truth)
    smallest = np.linalg.eigvalsh((rows * (chance * (1 - chance))[:, None]).T @ rows)[0]
    seen = [1 / plan.curvature(last).stddev ** 2 for last in (True, False, False)]
    distance = smallest * math.sqrt(sum(seen))
    assert 0.05 + 2 * stats.norm.cdf(distance / 2) - 1 < 0.25
