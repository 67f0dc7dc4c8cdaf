"""Private mixtures: accuracy, statements, charges, bad input, relations, storage, scikit-learn's checks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet import (
    BudgetExceeded,
    Ledger,
    PrivacyWarning,
    PrivateLasso,
    PrivateSimplexClassifier,
    PrivateSimplexRegressor,
)
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.solvers.vertices.simplex_sampling import SimplexSampling


def forecasts(n=4000, p=30, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.uniform(0, 10, size=n)
    return np.column_stack([y + 1, y - 1, *rng.uniform(0, 10, size=(p - 2, n))]), y


def votes(n=4000, p=30, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=n)
    X = rng.choice([-1.0, 1.0], size=(n, p))
    for k in range(n_classes):
        X[:, k] = np.where(y == k, 1.0, -1.0)
    return X, y


def test_regressor_finds_the_good_forecasts():
    """Each of 42 draws is good with probability 0.89: fewer than half are once in 2e9."""
    X, y = forecasts()
    model = PrivateSimplexRegressor(epsilon=30.0, target_bounds=(0, 10)).fit(X, y)
    assert model.coef_.sum() == pytest.approx(1.0)
    assert np.all(model.coef_ >= 0)
    assert model.intercept_ == 0.0
    assert model.coef_[:2].sum() > 0.5
    assert model.score(X, y) > 0.8
    mean_loss = float(np.mean(((model.predict(X) - y) / 5) ** 2)) / 2
    assert mean_loss <= model.certificate_.likely
    assert "sampled from the entropy-regularized" in model.privacy_.mechanism
    assert "coefficients" in str(model.privacy_)
    assert model.privacy_.epsilon == 30.0


def test_predictions_are_averages_of_clipped_forecasts():
    X, y = forecasts()
    model = PrivateSimplexRegressor(epsilon=30.0, target_bounds=(0, 10)).fit(X, y)
    rows = np.random.default_rng(1).uniform(-20, 30, size=(50, X.shape[1]))
    np.testing.assert_allclose(model.predict(rows), np.clip(rows, 0, 10) @ model.coef_)


def test_sparse_rows_equal_dense_rows_where_they_are_centered():
    X, y = forecasts()
    X, y = np.where(np.abs(X - 5) > 3, X - 5, 0.0), y - 5
    model = PrivateSimplexRegressor(epsilon=4.0, target_bounds=(-5, 5), solver=SimplexSampling(n_draws=9))
    model.fit(sp.csr_array(X), y)
    np.testing.assert_allclose(model.predict(sp.csr_array(X[:9])), model.predict(X[:9]))
    with pytest.raises(ValueError, match="symmetric about 0"):
        clone(model).set_params(target_bounds=(0, 10)).fit(sp.csr_array(X), y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifier_finds_the_good_voters(n_classes):
    X, y = votes(n_classes=n_classes)
    model = PrivateSimplexClassifier(epsilon=30.0, classes=list(range(n_classes))).fit(X, y)
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.coef_.sum(axis=1), 5.0)
    chances = model.predict_proba(X[:20])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert model.plan(4000, 30, n_classes).problem.n_models == (1 if n_classes == 2 else 3)


def test_features_are_measured_in_their_bound():
    X, y = votes()
    model = PrivateSimplexClassifier(epsilon=8.0, classes=[0, 1], feature_bound=100.0).fit(100 * X, y)
    np.testing.assert_allclose(model.coef_.sum(), 0.05)
    assert np.abs(model.decision_function(1e6 * X)).max() <= 5 + 1e-9


@pytest.mark.parametrize("solver", ["frank-wolfe", "mirror-descent"])
def test_other_solvers_work_over_the_same_simplex(solver):
    X, y = forecasts()
    model = PrivateSimplexRegressor(epsilon=8.0, target_bounds=(0, 10), solver=solver).fit(X, y)
    assert model.coef_.sum() == pytest.approx(1.0)
    assert np.all(model.coef_ >= 0)


def test_the_solver_works_over_other_polytopes():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(8000, 20))
    model = PrivateLasso(epsilon=8.0, target_bounds=(-1, 1), solver="simplex-sampling", fit_intercept=False)
    model.fit(X, -X[:, 3])
    assert model.coef_.argmin() == 3
    assert np.abs(model.coef_).sum() <= 1 + 1e-9


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out", "add-remove-one"])
def test_every_relation_passes_a_replay(relation, delta):
    X, y = votes(60, 4)
    model = PrivateSimplexClassifier(0.7, delta, classes=[0, 1], neighboring=relation, n_samples=60)
    model.bad_rows = "null"
    X2, y2 = X.copy(), y.copy()
    if relation == "replace-one":
        X2[-1], y2[-1] = -X2[-1], 1 - y2[-1]
    elif relation == "zero-out":
        y2[-1] = 7  # not a class: a null record
    else:
        X2, y2 = X2[:-1], y2[:-1]
    found = replay(fitting(model), (X, y), (X2, y2))
    assert found.passed, found
    assert found.worst_input_ratio is not None
    assert found.worst_input_ratio <= 1


def test_ledger_is_charged_before_and_errors_cost_nothing(tmp_path):
    X, y = forecasts(200, 5)
    ledger = Ledger(tmp_path / "ledger.db", epsilon=1.5, delta=1e-3)
    model = PrivateSimplexRegressor(epsilon=1.0, delta=1e-5, target_bounds=(0, 10), ledger=ledger)
    wrong = [
        ({"target_bounds": None}, X, y, "target_bounds must be declared"),
        ({"target_bounds": (3, 3)}, X, y, "lowest < highest"),
        ({"epsilon": -1.0}, X, y, "epsilon"),
        ({"solver": "nonsense"}, X, y, "solver .* is unknown"),
        ({"bad_rows": "drop"}, X, y, "bad_rows"),
        ({}, X[:, :1], y, "at least two"),
        ({}, np.where(X > 9, np.nan, X), y, "NaN"),
        ({}, X, np.where(y > 9, np.inf, y), "not finite"),
        ({}, X, y[:-1], "one target per row"),
        ({}, X, None, "requires y"),
    ]
    for parameters, rows, targets, message in wrong:
        with pytest.raises((ValueError, TypeError), match=message):
            clone(model).set_params(**parameters).fit(rows, targets)
    assert ledger.history() == []
    model.fit(X, y)
    assert len(ledger.history()) == 1
    with pytest.raises(BudgetExceeded):
        model.fit(X, y)


def test_bad_rows_can_be_null_records():
    X, y = forecasts(300, 5)
    X[3], y[4] = np.nan, np.inf
    PrivateSimplexRegressor(target_bounds=(0, 10), bad_rows="null").fit(X, y)


@pytest.mark.parametrize("radius", [0.0, -1.0, 1e9, "five"])
def test_radius_is_checked(radius):
    X, y = votes(20, 3)
    with pytest.raises((ValueError, TypeError), match="radius"):
        PrivateSimplexClassifier(radius=radius, classes=[0, 1]).fit(X, y)


def test_plan_needs_no_data_and_says_what_it_certifies():
    plan = PrivateSimplexRegressor(1.0, 1e-6, target_bounds=(0, 1)).plan(100_000, 1000)
    assert plan.guarantee.epsilon == 1.0
    assert 0 < plan.certificate.expected < 0.2
    assert "draws" in str(plan)


NOISE = "two fits of a private model draw different noise, even on the same data"
MIXTURE = "weights are at least 0, so columns that speak against the label cannot be used"
EXPECTED_FAILURES = {
    "check_fit_idempotent": NOISE,
    "check_supervised_y_2d": NOISE,
    "check_regressor_data_not_an_array": NOISE,
    "check_classifier_data_not_an_array": NOISE,
    "check_regressors_int": NOISE,
    "check_classifiers_train": MIXTURE,
    "check_regressors_train": MIXTURE,
}


@pytest.mark.filterwarnings("ignore::discreet.PrivacyWarning")
@parametrize_with_checks(
    [
        PrivateSimplexClassifier(1e3, 1e-6, feature_bound=10.0, solver=SimplexSampling(n_draws=30)),
        PrivateSimplexRegressor(1e3, 1e-6, target_bounds=(-100, 100), solver=SimplexSampling(n_draws=30)),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        check(estimator)
