"""Intervals per person: k times the noise, rows counted privately, never per row around a model of people."""

import dataclasses

import numpy as np
import pytest

from discreet import Ledger, PrivateLinearRegression, PrivateLogisticRegression, coefficient_intervals
from discreet.audit.replay import replay
from discreet.intervals import intervals
from discreet.intervals.newton import IntervalPlan, plan_intervals
from discreet.losses import Logistic, Squared
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.bounds import Bounds

BOUND = 2.0


def made(n_people=1000, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.repeat([f"p{i}" for i in range(n_people)], rng.integers(1, 5, size=n_people))
    X = rng.uniform(-1, 1, size=(len(ids), 2))
    return X, X @ [0.5, -0.5] + rng.uniform(-0.5, 0.5, size=len(ids)), ids


def fitted(X, y, ids, **options):
    model = PrivateLinearRegression(
        5.0, 1e-4, target_bounds=(-3, 3), feature_bound=BOUND, max_rows_per_group=2, **options
    )
    return model.fit(X, y, groups=ids)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("loss", [Logistic(), Squared(prediction_bound=1.0, label_bound=1.0)])
def test_every_release_has_k_times_the_noise(relation, loss):
    bound = None if isinstance(loss, Logistic) else 1.0
    problem = Problem(loss, Bounds(BOUND), 1000, 3, label_bound=bound)
    one = plan_intervals(problem, Guarantee(1.0, 1e-6, relation, "user"), 5.0, 2, False, 1)
    many = plan_intervals(problem, Guarantee(1.0, 1e-6, relation, "user"), 5.0, 2, False, 3)
    assert many.event == one.event
    for last in (False, True):
        assert many.gradient(last).stddev == pytest.approx(3 * one.gradient(last).stddev, rel=1e-6)
        assert many.curvature(last).stddev == pytest.approx(3 * one.curvature(last).stddev, rel=1e-6)
    if isinstance(loss, Squared):
        assert many.spread.stddev == pytest.approx(3 * one.spread.stddev, rel=1e-6)
        assert many.spread.size == 2  # the number of rows is private, and released beside the residuals


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one"])
def test_everything_of_a_person_may_change(relation, monkeypatch):
    X, y, ids = made(150)
    size = {} if relation == "replace-one" else {"neighboring": relation, "n_samples": 600}
    model = fitted(X, y, ids, **size)
    alone = ids != ids[0]
    X = np.concatenate([np.tile([1.0, -1.0], (2, 1)), X[alone]])
    y, ids = np.concatenate([[3.0] * 2, y[alone]]), np.concatenate([ids[:1], ids[:1], ids[alone]])
    if relation == "replace-one":
        other = (np.concatenate([-X[:2], X]), np.concatenate([y[:2], y]), np.concatenate([ids[:2], ids]))
        other[0][2:4] = other[0][:2]
    else:
        other = X[2:], y[2:], ids[2:]

    def program(part):
        rows, targets, who = part
        options = {"groups": who, "max_rows_per_group": 2, "n_samples": size.get("n_samples")}
        return coefficient_intervals(model, rows, targets, epsilon=20.0, delta=1e-3, **options).upper

    found = replay(program, (X, y, ids), other)
    assert found.passed, str(found)
    assert found.worst_input_ratio > 0.4

    def forgetful(*given):
        plan = plan_intervals(*given)
        return dataclasses.replace(plan, max_rows=1)

    monkeypatch.setattr(intervals, "plan_intervals", forgetful)
    assert "distance" in replay(program, (X, y, ids), other).failed_checks


def test_estimates_are_those_of_the_rows_that_are_used():
    X, y, ids = made(4000)
    found = coefficient_intervals(
        fitted(X, y, ids), X, y, epsilon=1e4, delta=1e-3, groups=ids, max_rows_per_group=4
    )
    assert np.allclose(found.estimate, [0.5, -0.5, 0.0], atol=0.05)
    assert found.privacy_.guarantee.unit == "user"
    # Residuals are divided by the number of rows, and not by that of places.
    design = np.column_stack([X, np.ones(len(X))])
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) / 12)
    assert np.allclose(
        found.standard_error, 2 * errors, rtol=0.05
    )  # rows of a person may be alike: root of 4


def test_a_model_of_people_gets_no_intervals_per_row(tmp_path):
    X, y, ids = made(200)
    model, ledger = fitted(X, y, ids), Ledger(tmp_path / "budget", epsilon=9.0, delta=1e-2)
    with pytest.raises(ValueError, match="protects all rows of a person"):
        coefficient_intervals(model, X, y, ledger=ledger)
    with pytest.raises(ValueError, match="max_rows_per_group"):
        coefficient_intervals(model, X, y, groups=ids, ledger=ledger)
    assert not ledger.history()


def test_logistic_intervals_per_person():
    rng = np.random.default_rng(3)
    ids = np.repeat(np.arange(20_000), 2)
    X = rng.uniform(-1, 1, size=(len(ids), 2))
    y = (X @ [1.0, -1.0] + rng.logistic(size=len(ids)) > 0).astype(int)
    model = PrivateLogisticRegression(5.0, 1e-6, classes=[0, 1], feature_bound=BOUND, max_rows_per_group=2)
    model.fit(X, y, groups=ids)
    found = coefficient_intervals(model, X, y, epsilon=4.0, delta=1e-6, groups=ids, max_rows_per_group=2)
    assert np.all((found.lower <= [1.0, -1.0, 0.0]) & (found.upper >= [1.0, -1.0, 0.0]))
    assert np.all(found.upper - found.lower < 0.6)


def test_the_covariance_is_a_fixed_point():
    from discreet.intervals.newton import _with_curvature_noise

    rng = np.random.default_rng(4)
    made = rng.normal(size=(3, 3))
    inverse = np.linalg.inv(made @ made.T + 9 * np.eye(3))
    middle, move, blur = np.diag([3.0, 2.0, 1.0]), rng.normal(size=3), 1.5
    found = _with_curvature_noise(middle, move, inverse, blur)
    second = np.outer(move, move) + found
    wanted = inverse @ (middle + blur**2 / 2 * (np.trace(second) * np.eye(3) + second)) @ inverse
    assert np.allclose(found, wanted, rtol=1e-12)


def test_curvature_near_its_noise_gives_finite_intervals_that_cover():
    # Before, the curvature had to be three times its noise, and none of these was finite.
    hits, finite = [], 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-0.5, 0.5, size=(3500, 3))
        truth = np.array([0.5, -0.3, 0.0, 0.1])
        y = X @ truth[:-1] + truth[-1] + rng.uniform(-0.4, 0.4, size=len(X))
        model = PrivateLinearRegression(0.5, 1e-6, target_bounds=(-1.5, 1.5), feature_bound=1.4)
        found = coefficient_intervals(model.fit(X, y), X, y, epsilon=0.5, delta=1e-6)
        finite += np.isfinite(found.upper[0])
        if np.isfinite(found.upper[0]):
            hits.append((found.lower <= truth) & (truth <= found.upper))
    assert finite > 20
    assert np.mean(hits) > 0.88


def test_plans_print_the_bound():
    problem = Problem(Logistic(), Bounds(BOUND), 1000, 3)
    plan = plan_intervals(problem, Guarantee(1.0, 1e-6, unit="user"), 5.0, 2, False, 3)
    assert isinstance(plan, IntervalPlan)
    assert "at most 3 rows of every group" in plan.mechanism
