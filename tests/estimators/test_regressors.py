"""Private regressors: limits, bounds on targets, stability at small n, refusals before any charge."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import HuberRegressor, QuantileRegressor, Ridge

from discreet import (
    Ledger,
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    insecure_noise,
)

KINDS = [PrivateRidge, PrivateLinearRegression, PrivateHuberRegressor, PrivateQuantileRegressor]
RELATIONS = ["replace-one", "add-remove-one", "zero-out"]


def line(n=20_000, p=3, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, size=(n, p))
    return X, 4.0 + X @ np.array([2.0, -1.0, 0.5])[:p] + noise * rng.normal(size=n)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.mark.parametrize("relation", RELATIONS)
def test_defaults_learn(kind, relation):
    X, y = line()
    model = kind(epsilon=1.0, target_bounds=(1, 7), feature_bound=1.4, neighboring=relation, n_samples=len(y))
    assert model.fit(X, y).score(X, y) > 0.85
    assert model.coef_.shape == (3,)
    assert model.privacy_.epsilon == 1.0


@pytest.mark.parametrize("make", [PrivateRidge, PrivateLinearRegression])
def test_huge_epsilon_equals_least_squares(make):
    X, y = line(2000)
    model = make(epsilon=1e9, target_bounds=(0, 8), feature_bound=2.0).fit(X, y)
    reference = Ridge(alpha=1e-6).fit(X, y)
    assert np.abs(model.coef_ - reference.coef_).max() < 1e-3
    assert model.intercept_ == pytest.approx(reference.intercept_, abs=1e-3)


def test_l2_is_that_of_scikit_learn():
    X, y = line(2000)
    y -= 4.0
    model = PrivateRidge(
        epsilon=1e9, target_bounds=(-4, 4), feature_bound=2.0, l2=0.05, fit_intercept=False
    ).fit(X, y)
    reference = Ridge(alpha=0.05 * len(y), fit_intercept=False).fit(X, y)
    assert np.abs(model.coef_ - reference.coef_).max() < 1e-3


def test_huber_ignores_wild_targets():
    X, y = line(20_000)
    wild = y.copy()
    wild[::10] = 40.0
    model = PrivateHuberRegressor(epsilon=2.0, target_bounds=(-40, 40), huber_width=0.5, feature_bound=1.4)
    robust = HuberRegressor(alpha=0).fit(X, wild)
    assert model.fit(X, wild).score(X, y) > 0.8
    assert robust.score(X, y) > 0.8


def test_huge_epsilon_finds_the_quantile():
    X, y = line(3000, noise=0.3)
    model = PrivateQuantileRegressor(epsilon=1e6, target_bounds=(1, 7), feature_bound=1.4, quantile=0.9).fit(
        X, y
    )
    reference = QuantileRegressor(quantile=0.9, alpha=0).fit(X, y)
    assert np.mean(y <= model.predict(X)) == pytest.approx(0.9, abs=0.02)
    assert np.abs(model.predict(X) - reference.predict(X)).mean() < 0.06


@pytest.mark.parametrize("n", [2, 10, 100])
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_small_data_never_diverges(kind, n, epsilon):
    X, y = line(n)
    model = kind(epsilon=epsilon, delta=1e-6, target_bounds=(1, 7), feature_bound=1.4).fit(X, y)
    assert np.all(np.isfinite(model.coef_))
    predictions = model.predict(line(500, seed=1)[0])
    assert predictions.min() >= 1
    assert predictions.max() <= 7


def test_dense_and_sparse_agree(kind):
    X, y = line(2000)
    predictions = []
    for rows in (X, sparse.csr_matrix(X)):
        with insecure_noise(5):
            predictions.append(kind(target_bounds=(1, 7), feature_bound=1.4).fit(rows, y).predict(rows))
    assert np.abs(predictions[0] - predictions[1]).max() < 1e-4


def test_targets_outside_their_bounds_are_clipped(kind):
    X, y = line(500)
    far = y.copy()
    far[:50] = 1e300
    clipped = np.clip(far, 1, 7)
    fits = []
    for targets in (far, clipped):
        with insecure_noise(5):
            fits.append(kind(target_bounds=(1, 7)).fit(X, targets).coef_)
    assert np.array_equal(fits[0], fits[1])


def test_bad_rows(kind):
    X, y = line(500)
    X[3, 0], y[7] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"NaN|not finite"):
        kind(target_bounds=(1, 7)).fit(X, y)
    model = kind(target_bounds=(1, 7), bad_rows="null").fit(X, y)
    assert np.all(np.isfinite(model.coef_))


@pytest.mark.parametrize(
    ("bounds", "match"),
    [
        (None, "must be declared.*discreet.private_domains"),
        ((3, 1), "lowest < highest"),
        ((1,), "target_bounds"),
    ],
)
def test_target_bounds_are_required_before_any_charge(kind, bounds, match, tmp_path):
    X, y = line(50)
    ledger = Ledger(tmp_path / "budget.db", epsilon=1.0, delta=1e-3)
    with pytest.raises(ValueError, match=match):
        kind(target_bounds=bounds, ledger=ledger).fit(X, y)
    assert len(ledger.history()) == 0


def test_plan_needs_no_data(kind):
    plan = kind(target_bounds=(0, 1)).plan(1000, 5)
    assert "guarantee" in str(plan)


def test_classification_solvers_are_refused_with_a_reason():
    with pytest.raises(ValueError, match="squared loss"):
        PrivateHuberRegressor(target_bounds=(0, 1), solver="statistics").plan(1000, 5)


def test_a_declared_size_does_not_replace_the_public_one():
    """n_samples is a bound for add-remove-one; under replace-one the true number of rows is public and is used."""
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(300, 2))
    model = PrivateRidge(1.0, target_bounds=(-1, 1), n_samples=10).fit(X, X[:, 0])
    assert model.privacy_.delta == 1 / 300**2
    assert model.privacy_.bounds["records"] == 300
