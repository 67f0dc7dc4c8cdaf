"""The private LASSO and sparse logistic regression: promise, accuracy, high dimension, and the lower-bound instance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from benchmarks.papers.fingerprints import fingerprinting
from discreet import (
    BudgetExceeded,
    Ledger,
    PrivateLasso,
    PrivateSparseLinearSVC,
    PrivateSparseLogisticRegression,
    insecure_noise,
)
from discreet.privacy.accounting import accountants
from discreet.problem import choice_signal
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

BALL = "L1 ball (features scaled to [-1, 1])"


def regression(n=4000, p=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p))
    return X, X[:, :3] @ [3.0, -2.0, 1.0] + 10.0 + 0.3 * rng.normal(size=n)


def padded(X, p):
    n, kept = X.shape
    columns = np.tile(np.arange(kept), n)
    return sp.csr_array((X.ravel(), columns, np.arange(0, n * kept + 1, kept)), shape=(n, p))


def risk(model, X, y):
    """Mean loss of targets scaled to [-1, 1], without the clip of predictions."""
    half = (model.target_bounds[1] - model.target_bounds[0]) / 2
    raw = X @ model.coef_ + model.intercept_
    return float(np.mean((raw - y) ** 2)) / (2 * half**2)


@pytest.mark.parametrize("solver", ["frank-wolfe", "mirror-descent"])
def test_it_learns_and_states_its_promise(solver):
    X, y = regression()
    model = PrivateLasso(epsilon=2.0, target_bounds=(2, 18), solver=solver).fit(X, y)
    assert model.score(X, y) > 0.5
    assert model.privacy_.epsilon == 2.0
    assert model.privacy_.delta == 1 / 4000**2
    assert accountants.delta(model.privacy_.event, 2.0, "replace-one") <= model.privacy_.delta
    assert "largest absolute feature" in model.privacy_.bounds
    assert not any(name.startswith("row norm") for name in model.privacy_.bounds)
    assert "docs/proofs/" in str(model.privacy_)


def test_large_epsilon_finds_the_least_squares_solution():
    X, y = regression()
    model = PrivateLasso(epsilon=1e6, target_bounds=(2, 18), solver=FrankWolfe(n_iterations=1500)).fit(X, y)
    reference = np.linalg.lstsq(np.column_stack([X, np.ones(len(y))]), y, rcond=None)[0]
    assert np.abs(model.coef_ - reference[:-1]).max() < 0.15
    assert model.intercept_ == pytest.approx(reference[-1], abs=0.15)


def test_certificate_before_and_after():
    X, y = regression()
    model = PrivateLasso(epsilon=1.0, target_bounds=(2, 18))
    before = model.plan(*X.shape).certificate
    with pytest.raises(AttributeError):
        _ = model.certificate_
    model.fit(X, y)
    assert model.certificate_.expected <= before.expected
    best = 0.3**2 / (2 * 8**2)  # the true coefficients are inside the ball
    assert risk(model, X, y) - best <= model.certificate_.likely


def test_scales_of_features_and_targets_do_not_matter():
    X, y = regression(500)
    models = []
    for scale, shift, unit in ((1.0, 0.0, 1.0), (4.0, 256.0, 2.0)):
        bounds = (shift + unit * 2, shift + unit * 18)
        model = PrivateLasso(target_bounds=bounds, feature_bound=scale, solver=FrankWolfe(n_iterations=10))
        with insecure_noise(3):
            models.append(model.fit(X * scale, shift + unit * y))
    assert np.allclose(models[1].coef_ * 4.0 / 2.0, models[0].coef_, atol=1e-9)
    assert models[1].intercept_ == pytest.approx(256.0 + 2.0 * models[0].intercept_, abs=1e-6)
    assert np.allclose(models[1].predict(X * 4.0), 256.0 + 2.0 * models[0].predict(X))


def test_dense_and_sparse_agree():
    X, y = regression(600, 12)
    X[np.abs(X) < 2] *= np.random.default_rng(1).random(X.shape)[np.abs(X) < 2] > 0.5
    fits = []
    for rows in (X, X.astype(np.float32), sp.csr_matrix(X), sp.csr_array(X)):
        with insecure_noise(5):
            solver = FrankWolfe(n_iterations=20, choice="vertices")
            fits.append(PrivateLasso(5e3, target_bounds=(2, 18), solver=solver).fit(rows, y))
    for one, other in (fits[:2], fits[2:]):
        assert np.allclose(other.coef_, one.coef_, atol=1e-12)
        assert np.allclose(other.predict(sp.csr_matrix(X)), one.predict(X))
    # CSR rows take other steps and other random words: almost without noise, to the same point.
    assert np.allclose(fits[2].coef_, fits[0].coef_, atol=0.1)


def test_a_thousandfold_of_zero_columns_costs_a_logarithm():
    """100 -> 100,000 columns, CSR all the way: growth by the ratio of the logarithms, 2.3, with room for chance."""
    rng = np.random.default_rng(2)
    n = 6000
    X = rng.choice([-1.0, 1.0], size=(n, 100))
    y = 0.6 * X[:, 0] - 0.4 * X[:, 1]
    excess = {}
    for p in (100, 100_000):
        rows = padded(X, p)
        with insecure_noise(11):
            fits = [PrivateLasso(target_bounds=(-1, 1), fit_intercept=False).fit(rows, y) for _ in range(8)]
        excess[p] = np.mean([np.mean((X @ m.coef_[:100] - y) ** 2) / 2 for m in fits])
        assert all(np.count_nonzero(m.coef_) <= m.privacy_.noise["iterations"] for m in fits)
    ratio = math.log(200_000) / math.log(200)
    assert excess[100_000] <= 1.5 * ratio * excess[100]
    assert excess[100_000] < 0.5 * np.mean(y**2) / 2  # and something was learned
    plans = [PrivateLasso(target_bounds=(-1, 1)).plan(n, p).certificate.expected for p in (100, 100_000)]
    assert plans[1] <= ratio * plans[0]


@pytest.mark.parametrize(
    "solver", [FrankWolfe(), FrankWolfe(choice="gradient"), MirrorDescent(max_iterations=30)], ids=str
)
def test_the_fingerprinting_instance_is_never_beaten_at_small_epsilon(solver):
    """A loss below 1.1 tau w would have probability below 1e-3 under the claimed privacy: the run would be a bug."""
    w, p, epsilon, delta = 16, 512, 0.1, 1e-6
    tau = 1 / w  # k = p rows of the orthogonal matrix
    phi = 1 / 1.1 - tau - 1 / p
    alarm = math.exp(w * epsilon) * (math.exp(-2 * (phi - 0.5) ** 2 * (p - 1)) + w * delta)
    assert alarm < 1e-3
    X, y = fingerprinting(w, p)
    consensus = np.sign(X[:w].sum(axis=0)) / p
    assert np.sum((X @ consensus - y) ** 2) < 1.1 * tau * w  # without privacy it is easy
    for _ in range(3):
        model = PrivateLasso(epsilon, delta, target_bounds=(-1, 1), fit_intercept=False, solver=solver).fit(
            X, y
        )
        assert np.sum((X @ model.coef_ + model.intercept_ - y) ** 2) >= 1.1 * tau * w


def test_sparse_logistic_regression_binary_and_many_classes():
    rng = np.random.default_rng(3)
    X = rng.choice([-1.0, 1.0], size=(6000, 30))
    binary = np.where(X[:, 2] > 0, "yes", "no")
    model = PrivateSparseLogisticRegression(epsilon=2.0, classes=["no", "yes"]).fit(X, binary)
    assert model.score(X, binary) > 0.95
    assert model.coef_.shape == (1, 30)
    assert model.predict_proba(X[:5]).sum(axis=1) == pytest.approx(1.0)
    assert np.abs(model.coef_).sum() <= model.privacy_.bounds[BALL] * (1 + 1e-9)
    codes = np.where(X[:, 0] > 0, 2, np.where(X[:, 1] > 0, 1, 0))
    model = PrivateSparseLogisticRegression(epsilon=8.0, classes=[0, 1, 2]).fit(X, codes)
    assert model.score(X, codes) > 0.7
    assert all(event.times % 3 == 0 for event in model.privacy_.event.events)
    assert model.predict_proba(X[:5]).shape == (5, 3)
    wild = PrivateSparseLogisticRegression(epsilon=2.0, classes=["no", "yes"], solver="mirror-descent")
    assert wild.fit(X, binary).score(X, binary) > 0.8


@pytest.mark.parametrize("kind", [PrivateSparseLogisticRegression, PrivateSparseLinearSVC])
def test_the_default_ball_and_evidence_follow_from_public_facts(kind):
    """Few records: a short walk whose length is paid for. Many dense ones: a long walk, then a slope."""

    def planned(n_samples, sparse=False, **settings):
        plan = kind(0.1, 1e-9, classes=[0, 1], **settings).plan(n_samples, 100, sparse=sparse)
        return plan.problem.geometry.size, plan.evidence_share, plan.slope_share

    assert planned(4_000) == (5.0, 0.1, 0.0)
    assert planned(15_000) == (5.0, 0.0, 0.0)
    assert planned(40_000) == (40.0, 0.0, 0.1)
    assert planned(40_000, sparse=True) == (5.0, 0.0, 0.0)
    assert planned(40_000, l1_radius=3.0) == (3.0, 0.0, 0.0)
    assert planned(40_000, solver=FrankWolfe(evidence_share=0.2)) == (40.0, 0.2, 0.0)


def test_no_more_choices_are_made_than_rise_above_the_noise():
    steps = []
    for n in (500, 1_000, 2_000, 4_000):
        plan = PrivateLasso(0.1, 1e-6, target_bounds=(-1, 1)).plan(n, 1000)
        steps.append(plan.n_iterations)
        assert plan.n_iterations <= max(1, choice_signal(plan.problem, plan.guarantee, 2000))
    assert steps == sorted(steps)
    assert steps[0] == 1 < steps[-1]
    asked = PrivateLasso(0.1, 1e-6, target_bounds=(-1, 1), solver=FrankWolfe(7)).plan(1_000, 1000)
    assert asked.n_iterations == 7


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one", "zero-out"])
def test_every_relation(relation):
    X, y = regression(1000)
    model = PrivateLasso(3.0, 1e-6, target_bounds=(2, 18), neighboring=relation, n_samples=1200).fit(X, y)
    assert model.privacy_.neighboring == relation
    bounds = 1200 if relation == "add-remove-one" else 1000
    assert model.privacy_.bounds["records"] == bounds


def test_pure_privacy_is_possible():
    X, y = regression(3000, 5)
    model = PrivateLasso(4.0, 0.0, target_bounds=(2, 18)).fit(X, y)
    assert model.privacy_.delta == 0
    assert accountants.epsilon(model.privacy_.event, 0.0, "replace-one") <= 4.0


def test_the_ledger_is_charged_before_the_fit(tmp_path):
    X, y = regression(200, 4)
    ledger = Ledger(tmp_path / "budget", epsilon=0.8, delta=1e-6)
    PrivateLasso(0.7, 1e-6, target_bounds=(2, 18), ledger=ledger).fit(X, y)
    with pytest.raises(BudgetExceeded):
        PrivateLasso(0.7, 1e-6, target_bounds=(2, 18), ledger=ledger).fit(X, y)


def test_bad_rows_and_bad_settings():
    X, y = regression(300, 4)
    dirty, wrong = X.copy(), y.copy()
    dirty[3, 1], wrong[5] = np.nan, np.inf
    with pytest.raises(ValueError):
        PrivateLasso(target_bounds=(2, 18)).fit(dirty, y)
    with pytest.raises(ValueError, match="not finite"):
        PrivateLasso(target_bounds=(2, 18)).fit(X, wrong)
    model = PrivateLasso(target_bounds=(2, 18), bad_rows="null").fit(dirty, wrong)
    assert np.all(np.isfinite(model.coef_))
    with pytest.raises(ValueError, match="target_bounds must be declared"):
        PrivateLasso().fit(X, y)
    with pytest.raises(ValueError, match="l1_radius"):
        PrivateLasso(target_bounds=(2, 18), l1_radius=1e9).fit(X, y)
    with pytest.raises(ValueError, match=r"solver .* is unknown"):
        PrivateLasso(target_bounds=(2, 18), solver="magic").fit(X, y)
    copy = clone(PrivateLasso(target_bounds=(2, 18), l1_radius=3.0))
    assert copy.l1_radius == 3.0


def test_clipping_at_prediction_is_the_clipping_of_training():
    X, y = regression(300, 4)
    model = PrivateLasso(5.0, target_bounds=(2, 18)).fit(X, y)
    assert np.allclose(model.predict(X * 1e6), model.predict(X))
    assert model.predict(-1e9 * np.ones((1, 4)))[0] >= 2
