"""Private Poisson regression: its limit, its range, its refusals, its audit."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score

from discreet import PrivatePoissonRegressor
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import worst_pair


def counts(n, seed=0, coef=(1.0, -0.5)):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, rng.poisson(np.exp(0.5 + X @ np.array(coef)))


def test_limit_of_large_epsilon_is_scikit_learn():
    """Means stay inside their range and rows inside their bound, so both minimize the same function."""
    X, y = counts(3000)
    y = np.minimum(y, 12)
    model = PrivatePoissonRegressor(
        1e11, 1e-6, target_bounds=(0, 12), least_mean=0.1, feature_bound=4.0, l2=1e-4, solver="output"
    ).fit(X, y)
    exact = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=5000).fit(X, y)
    assert np.abs(model.coef_ - exact.coef_).max() < 2e-2
    assert model.intercept_ == pytest.approx(exact.intercept_, abs=2e-2)


@pytest.mark.parametrize("solver", ["objective", "noisy-gd"])
def test_learns_from_counts(solver):
    X, y = counts(40_000)
    model = PrivatePoissonRegressor(
        1.0, target_bounds=(0, 10), least_mean=0.2, feature_bound=1.8, solver=solver
    ).fit(X, y)
    exact = PoissonRegressor(alpha=0.0).fit(X, y)
    ours, theirs = (d2_tweedie_score(y, m.predict(X), power=1) for m in (model, exact))
    assert ours > theirs - 0.02  # it loses 0.0002 on average and 0.001 rarely


def test_predictions_stay_in_the_declared_range_and_csr_agrees():
    X, y = counts(500)
    model = PrivatePoissonRegressor(0.2, 1e-4, target_bounds=(0, 30), least_mean=0.5).fit(X, y)
    predicted = model.predict(100 * X)
    assert predicted.min() >= 0.5 * (1 - 1e-12)
    assert predicted.max() <= 30 * (1 + 1e-12)
    np.testing.assert_allclose(model.predict(sp.csr_array(X)), model.predict(X), rtol=1e-12)


def test_refusals():
    X, y = counts(50)
    for arguments, message in (
        ({}, "target_bounds must be declared"),
        ({"target_bounds": (-1, 5)}, "must not lie below 0"),
        ({"target_bounds": (0, 5), "least_mean": 6.0}, "below the highest target"),
        ({"target_bounds": (0, 5), "least_mean": 0.0}, "least_mean"),
    ):
        with pytest.raises(ValueError, match=message):
            PrivatePoissonRegressor(**arguments).fit(X, y)


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("delta", [1e-2, 0.0])
def test_replays_find_nothing(relation, delta):
    model = PrivatePoissonRegressor(1.0, delta, target_bounds=(0, 4), neighboring=relation, bad_rows="null")
    pair = worst_pair(relation, n_rest=4, labels=(0.0, 4.0))
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)
