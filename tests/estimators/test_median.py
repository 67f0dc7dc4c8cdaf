"""The private geometric median: sensitivity, rounding, robustness, limits, refusals, audit."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet import Ledger, PrivateMedian
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import Pair
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.solvers.median import LocationProblem, MedianDescent, Points, direction_rounding


def weiszfeld(X, steps=3000):
    theta = X.mean(axis=0)
    for _ in range(steps):
        weights = 1 / np.maximum(np.linalg.norm(X - theta, axis=1), 1e-12)
        theta = weights @ X / weights.sum()
    return theta


def cluster(n, center, spread=0.5, seed=0):
    return np.random.default_rng(seed).normal(center, spread, size=(n, len(center)))


def test_limit_of_large_epsilon_is_the_geometric_median():
    X = cluster(500, [2.0, -1.0, 0.5])
    median = PrivateMedian(1e9, 1e-6, radius=5.0).fit(X).median_
    assert np.linalg.norm(median - weiszfeld(X)) < 1e-3


def test_outliers_move_a_mean_and_not_the_median():
    X = cluster(20_000, [3.0, -1.0])
    X[:6000] = [1e9, 1e9]
    model = PrivateMedian(1.0, radius=10.0).fit(X)
    # the median of the mixture is pulled by less than the spread; chance of more than this: below 1e-9
    assert np.linalg.norm(model.median_ - [3.0, -1.0]) < 0.6
    assert np.linalg.norm(X.mean(axis=0)) > 1e8


def test_directions_match_their_definition_and_never_exceed_one():
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(40, 3)), 0.3 * rng.normal(size=3)
    clipped = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    away = theta - clipped
    expected = (away / np.maximum(np.linalg.norm(away, axis=1), 0.05)[:, None]).sum(axis=0)
    np.testing.assert_allclose(Points(X, np.zeros(3), 1.0).direction_sum(theta, 0.05), expected, atol=1e-12)
    np.testing.assert_allclose(
        Points(sp.csr_array(X), np.zeros(3), 1.0).direction_sum(theta, 0.05), expected, atol=1e-12
    )
    for row in X:
        assert np.linalg.norm(Points(row[None], np.zeros(3), 1.0).direction_sum(theta, 0.05)) <= 1 + 1e-15


@pytest.mark.parametrize("width", [0.01, 1e-6])
def test_rounding_stays_below_the_proved_bound(width):
    """Against exact rationals, with points closer to theta than the width, and a row far outside the ball."""
    rng = np.random.default_rng(1)
    theta = np.array([0.25, -0.5])
    X = np.vstack([theta + 1e-7 * rng.normal(size=(10, 2)), rng.normal(size=(10, 2)), [[1e90, -3e89]]])
    computed = Points(X, np.zeros(2), 1.0).direction_sum(theta, width)
    exact = [Fraction(0), Fraction(0)]
    for row in X:
        entries = [Fraction(float(value)) for value in row]
        square = sum(entry * entry for entry in entries)
        # the square root to 200 bits, as a fraction
        length = Fraction(math.isqrt(int(square * 4**200)), 2**200)
        inside = entries if length <= 1 else [entry / length for entry in entries]
        away = [Fraction(t) - entry for t, entry in zip(theta.tolist(), inside, strict=True)]
        distance = Fraction(math.isqrt(int(sum(a * a for a in away) * 4**200)), 2**200)
        for k in range(2):
            exact[k] += away[k] / max(distance, Fraction(width))
    error = math.hypot(*(float(Fraction(float(c)) - e) for c, e in zip(computed, exact, strict=True)))
    assert error <= direction_rounding(len(X), 2, width)


@pytest.mark.parametrize("relation", list(Neighboring))
def test_calibration_uses_the_whole_budget_and_no_more(relation):
    plan = MedianDescent().plan(LocationProblem(1000, 3, 1.0), Guarantee(0.7, 1e-8, relation))
    assert 0.99e-8 <= accountants.delta(plan.event, 0.7, relation) <= 1e-8
    assert plan.release.sensitivity.value == pytest.approx(relation.contributions, rel=1e-6)
    assert plan.release.sensitivity.value > relation.contributions


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one", "zero-out"])
@pytest.mark.lemma("geometric-median.md#theorem-1")
def test_replays_find_nothing_and_the_worst_pair_attains_the_sensitivity(relation):
    rest = np.tile([[0.0, 0.5]], (5, 1))
    first = np.vstack([[[1.0, 0.0]], rest])
    other = {"replace-one": np.vstack([[[-1.0, 0.0]], rest]), "add-remove-one": rest,
             "zero-out": np.vstack([[[np.nan, 0.0]], rest])}[relation]  # fmt: skip
    model = PrivateMedian(
        1.0, 1e-2, radius=1.0, neighboring=relation, n_samples=6, bad_rows="null", solver=MedianDescent(5)
    )
    pair = Pair((first,), (other,), Neighboring(relation))
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)
    assert 0.95 < found.worst_ratio <= 1.0


@pytest.mark.lemma("geometric-median.md#theorem-2")
@pytest.mark.parametrize("relation", list(Neighboring))
def test_pure_noise_costs_epsilon_and_no_delta(relation):
    plan = MedianDescent().plan(LocationProblem(2000, 4, 1.0), Guarantee(0.7, 0.0, relation))
    assert accountants.delta(plan.event, 0.7, relation) == 0
    assert 0.699 < accountants.epsilon(plan.event, 0.0, relation) <= 0.7
    noise = (
        plan.n_iterations * relation.contributions * 4 / (0.7 * 2000)
    )  # mean norm, over that of unit gradients
    assert 0.22 < noise <= 0.24
    assert MedianDescent().plan(LocationProblem(20, 4, 1.0), Guarantee(0.7, 0.0, relation)).n_iterations == 1
    assert MedianDescent(7).plan(LocationProblem(20, 4, 1.0), Guarantee(0.7, 0.0, relation)).n_iterations == 7


def test_the_pure_median_is_near_the_median_and_not_worse_than_its_center_where_noise_rules():
    X = cluster(4000, [2.0, -1.0, 0.5])
    near = [
        np.linalg.norm(PrivateMedian(1.0, 0.0, radius=5.0).fit(X).median_ - weiszfeld(X, 200))
        for _ in range(5)
    ]
    assert np.mean(near) < 0.2

    def risk(theta):
        return np.linalg.norm(few - theta, axis=1).mean()

    few = cluster(60, [2.0, -1.0, 0.5])
    risks = [risk(PrivateMedian(0.5, 0.0, radius=5.0).fit(few).median_) for _ in range(40)]
    assert np.mean(risks) - np.std(risks) / np.sqrt(40) < risk(np.zeros(3))


def test_a_replay_of_the_pure_median_finds_nothing():
    first, second = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([[-1.0, 0.0], [0.0, 0.5]])
    model = PrivateMedian(1.0, 0.0, radius=1.0, solver=MedianDescent(3))
    assert replay(fitting(model), (first,), (second,)).passed


def test_a_twin_that_forgets_that_records_are_exchanged_is_found(monkeypatch):
    monkeypatch.setattr(Neighboring.REPLACE_ONE, "contributions", 1)
    first, second = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([[-1.0, 0.0], [0.0, 0.5]])
    found = replay(
        fitting(PrivateMedian(1.0, 1e-2, radius=1.0, solver=MedianDescent(5))), (first,), (second,)
    )
    assert "distance" in found.failed_checks


def test_ledger_statement_and_clone(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", epsilon=2.0, delta=1e-4)
    model = clone(PrivateMedian(1.0, 1e-5, radius=2.0, center=[1.0, 1.0], ledger=ledger))
    model.fit(cluster(300, [1.2, 0.9]))
    assert len(ledger.history()) == 1
    assert model.privacy_.epsilon == 1.0
    assert "unit vectors" in str(model.privacy_)
    assert "geometric-median" in model.plan(300, 2).theorem
    assert "radius of the ball" in str(model.plan(300, 2))


def test_refusals():
    X = cluster(50, [0.0, 0.0])
    with pytest.raises(ValueError, match="radius must be declared"):
        PrivateMedian().fit(X)
    with pytest.raises(ValueError, match="neighboring must be one of"):
        PrivateMedian(radius=1.0, neighboring="foo").fit(X)
    with pytest.raises(ValueError, match="2 finite numbers"):
        PrivateMedian(radius=1.0, center=[0.0]).fit(X)
    with pytest.raises(ValueError, match="width"):
        PrivateMedian(radius=1.0, solver=MedianDescent(width=2.0)).fit(X)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        PrivateMedian(radius=1.0).fit(X)
    assert np.all(np.isfinite(PrivateMedian(radius=1.0, bad_rows="null").fit(X).median_))


@parametrize_with_checks([PrivateMedian(1e5, 1e-3, radius=10.0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_groups_protect_people_with_several_rows():
    rng = np.random.default_rng(3)
    ids = np.repeat(np.arange(4000), rng.integers(1, 6, size=4000))
    X = rng.normal([1.0, -1.0], 0.3, size=(len(ids), 2))
    model = PrivateMedian(epsilon=1.0, delta=1e-6, radius=5.0, max_rows_per_group=2).fit(X, groups=ids)
    assert np.abs(model.median_ - [1.0, -1.0]).max() < 0.3
    assert model.privacy_.guarantee.unit == "user"
    assert model.privacy_.bounds["records"] == 8000
    assert "the number of groups, 4000, is public; that of rows is not" in model.privacy_.assumptions
    alone = PrivateMedian(epsilon=1.0, delta=1e-6, radius=5.0).fit(X[:8000])
    stddev = "noise stddev (sum of unit vectors)"
    assert model.privacy_.noise[stddev] == pytest.approx(2 * alone.privacy_.noise[stddev], rel=1e-2)
    with pytest.raises(ValueError, match="max_rows_per_group must be declared where groups are given"):
        PrivateMedian(radius=5.0).fit(X, groups=ids)
    for rows, kind in (("two", TypeError), (0, ValueError)):
        with pytest.raises(kind, match="max_rows_per_group must be"):
            PrivateMedian(radius=5.0, max_rows_per_group=rows).fit(X, groups=ids)
