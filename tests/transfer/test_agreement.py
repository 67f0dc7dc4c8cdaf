"""Subsample and aggregate, and the epsilon that must not be published."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from discreet import Ledger
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.mechanisms.sparse_vector import _curve
from discreet.privacy.guarantee import Guarantee
from discreet.transfer.aggregation import data_dependent_epsilon, divergence
from discreet.transfer.plan import plan_transfer
from discreet.transfer.subsample import SubsamplePlan, subsample_and_aggregate

ROWS = np.random.default_rng(0).normal(size=(8000, 2)) + np.array([0.0, 1.0])
NAMES = ["first", "second"]


def larger(X):
    return NAMES[int(X[:, 1].mean() > X[:, 0].mean())]


def test_agreement_is_released_and_disagreement_is_not(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    found = subsample_and_aggregate(larger, ROWS, NAMES, n_chunks=100, epsilon=1.0, delta=1e-6, ledger=ledger)
    assert found.value == "second"
    assert found.privacy_.epsilon == 1.0
    assert len(ledger.history()) == 1
    noise = ROWS - [0.0, 1.0]
    assert subsample_and_aggregate(larger, noise, NAMES, n_chunks=60, epsilon=1.0, delta=1e-6).value is None


def test_a_failing_function_votes_for_the_first_candidate():
    def broken(X):
        raise RuntimeError("no")

    found = subsample_and_aggregate(broken, ROWS, NAMES, n_chunks=100, epsilon=1.0, delta=1e-6)
    assert found.value == "first"


def test_warnings_of_a_chunk_stay_with_it(recwarn):
    def unsafe(X):
        return NAMES[int(np.log(X[:, 0] + 1e6).sum() > 0)]  # of a row below -1e6 a warning and NaN

    outlier = np.vstack([[[-1e9, 0.0]], ROWS])
    found = subsample_and_aggregate(unsafe, outlier, NAMES, n_chunks=100, epsilon=1.0, delta=1e-6)
    assert found.value == "second"
    assert not [str(warning.message) for warning in recwarn]


def test_a_tiny_epsilon_is_refused_free_of_charge(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    for epsilon in (1e-5, 1e-7, 1e-300):
        with pytest.raises(ValueError, match="is too small: with delta=1e-09"):
            subsample_and_aggregate(
                larger, ROWS, NAMES, n_chunks=50, epsilon=epsilon, delta=1e-9, ledger=ledger
            )
    assert len(ledger.history()) == 0


def test_the_table_of_a_release_is_there_before_the_charge():
    """Nothing that takes long is left for the time after it."""
    SubsamplePlan(Guarantee(0.013, 1e-7), 50, 2)
    found = _curve.cache_info().misses
    plan = SubsamplePlan(Guarantee(0.013, 1e-7), 50, 2)
    plan.run([30, 20], fresh_entropy())
    assert plan.lead_needed > 1000
    assert _curve.cache_info().misses == found


def test_bad_input_is_refused():
    for wrong in ({"n_chunks": 1}, {"delta": 0.0}, {"epsilon": -1.0}, {"neighboring": "similar"}):
        with pytest.raises(ValueError):
            subsample_and_aggregate(
                larger, ROWS, NAMES, **{"n_chunks": 9, "epsilon": 1.0, "delta": 1e-6, **wrong}
            )
    with pytest.raises(ValueError, match="at least two"):
        subsample_and_aggregate(larger, ROWS, ["first"], n_chunks=9, epsilon=1.0, delta=1e-6)


def renyi(p, q, order):
    return math.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (order - 1)


def test_the_data_dependent_bound_covers_both_directions():
    """Two classes, lead 20 beside lead 18: the published formula fails for the reverse direction."""
    stddev, order = 1.4363, 5.0
    p, q = (norm.cdf(lead / (math.sqrt(2) * stddev)) for lead in (20, 18))
    p, q = min(p, 1 - 1e-16), min(q, 1 - 1e-16)
    votes, other = np.array([[20, 0]]), np.array([[19, 1]])
    tail, far = (norm.sf(lead / (math.sqrt(2) * stddev)) for lead in (18, 20))
    reverse = math.log1p(tail * math.expm1((order - 1) * math.log(tail / far))) / (order - 1)
    assert reverse == pytest.approx(1.48e-3, rel=0.01)
    assert divergence(votes, stddev, order)[0] == pytest.approx(1.52e-5, rel=0.01)  # one direction only
    assert divergence(other, stddev, order)[0] >= reverse
    assert renyi(p, q, 2.0) <= divergence(votes, stddev, 2.0)[0] + 1e-12


def test_it_is_smaller_than_the_promise_where_teachers_agree_and_says_what_it_is():
    plan = plan_transfer(Guarantee(1.0, 1e-6), 10**6, 3, 500, aggregator="plurality")
    stddev = plan.aggregator.mechanism.stddev
    votes = np.tile([[3000, 50, 10]], (500, 1))
    found = data_dependent_epsilon(votes, stddev, 1e-6)
    assert found.value < 0.5
    assert not found.publishable
    assert "NOT PUBLISHABLE" in str(found)
    split = data_dependent_epsilon(np.tile([[1500, 1500, 60]], (500, 1)), stddev, 1e-6)
    assert 0.9 < split.value < 1.3  # no better than what was promised
