"""Membership and tracing: what leaks is seen, what is private keeps within its bound."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.membership import (
    advantage_bound,
    fingerprinting,
    membership,
    record_losses,
    trace_members,
)
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import LABEL_UNITS, Guarantee, Neighboring, Sensitivity


def halves():
    """Real records in random order, and labels of which a fifth are noise: something to remember."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0) / 10
    rng = np.random.default_rng(0)
    order, flips = rng.permutation(len(y)), rng.random(len(y)) < 0.2
    X, y = X[order], np.where(flips, 1 - y, y)[order]
    middle = len(y) // 2
    return (X[:middle], y[:middle]), (X[middle:], y[middle:])


def test_a_model_that_remembers_is_seen_through():
    members, others = halves()
    view = membership(KNeighborsClassifier(1).fit(*members), members, others)
    assert view.advantage > 0.15
    assert view.low > 0
    assert view.area > 0.55
    assert view.allowed == 1.0  # nothing was promised


def test_a_private_model_keeps_within_its_bound():
    members, others = halves()
    for kind in (PrivateLogisticRegression, PrivateLinearSVC):
        model = kind(1.0, 1e-5, classes=[0, 1]).fit(*members)
        view = membership(model, members, others)
        assert view.allowed == pytest.approx(np.tanh(0.5), abs=1e-4)
        assert not view.exceeds
        assert abs(view.advantage) < 0.35  # four standard deviations of either rate
        assert "advantage" in str(view)


def test_a_false_promise_would_be_noticed():
    members, others = halves()
    model = KNeighborsClassifier(1).fit(*members)
    model.privacy_ = PrivateLinearSVC(0.05, 0.0, classes=[0, 1]).fit(*members).privacy_
    assert membership(model, members, others).exceeds


@pytest.mark.parametrize(
    ("promise", "allowed"),
    [
        *((Guarantee(0.5, 0.0, unit=unit), 1.0) for unit in LABEL_UNITS),
        (Guarantee(0.5, 0.0, unit="user"), np.tanh(0.25)),
        (Guarantee(0.5, 0.0, Neighboring.ZERO_OUT, unit="user"), np.tanh(0.5)),
        (Guarantee(0.5, 0.0, Neighboring.ZERO_OUT), np.tanh(0.25)),
    ],
)
def test_a_promise_bounds_only_what_it_is_about(promise, allowed):
    """Privacy of labels hides the label of a record, not that the record was there."""
    members, others = halves()
    model = KNeighborsClassifier(1).fit(*members)
    statement = PrivateLinearSVC(0.5, 0.0, classes=[0, 1]).fit(*members).privacy_
    model.privacy_ = dataclasses.replace(statement, guarantee=promise)
    assert membership(model, members, others).allowed == pytest.approx(allowed)


def test_regressors_and_small_samples():
    (X, _), (other, _) = halves()
    rng = np.random.default_rng(1)
    targets, strange = rng.normal(size=len(X)), rng.normal(size=len(other))
    model = KNeighborsRegressor(1).fit(X, targets)
    assert record_losses(model, X, targets).max() == 0.0
    assert membership(model, (X, targets), (other, strange)).advantage > 0.9
    with pytest.raises(ValueError, match="20 records"):
        membership(model, (X[:5], targets[:5]), (other, strange))


def test_the_bound_on_the_advantage_is_the_crossing_of_both_inequalities():
    for epsilon, delta in ((0.3, 0.0), (1.0, 1e-2), (4.0, 0.1)):
        # On the diagonal h = 1 - f both inequalities are the same line.
        f = (1 - delta) / (1 + np.exp(epsilon))
        assert advantage_bound(epsilon, delta) == pytest.approx(1 - 2 * f)
    with pytest.raises(ValueError, match="epsilon"):
        advantage_bound(-1.0)


INSTANCE = fingerprinting(400, 8000)


def test_tracing_finds_the_members_of_an_exact_average():
    found = trace_members(lambda rows: np.nanmean(rows, axis=0), INSTANCE, 1e-5)
    assert found.epsilon > 2
    assert found.details["correct"] == found.details["guesses"]


def test_tracing_keeps_within_the_claim_of_the_gaussian_mechanism():
    """A bound above the claim has a chance below 1e-6, whatever the noise."""
    mechanism = GaussianMechanism(Sensitivity(1.0), 1 / gaussian_mu(1.0, 1e-5), 8000)

    def release(rows):
        return mechanism.release(np.nansum(rows, axis=0), fresh_entropy())

    assert trace_members(release, INSTANCE, 1e-5, 1 - 1e-6).epsilon <= 1.0


def test_tracing_through_the_coefficients_of_a_classifier():
    """With much ridge, a linear classifier of one label is an average of its rows."""
    small = fingerprinting(300, 600)

    def coefficients(epsilon):
        def release(rows):
            model = PrivateLinearSVC(
                epsilon,
                1e-5,
                classes=[0, 1],
                bad_rows="null",
                neighboring="zero-out",
                l2=2.0,
                fit_intercept=False,
            )
            return model.set_params(solver="objective").fit(rows, np.ones(len(rows), dtype=int)).coef_

        return release

    assert trace_members(coefficients(1.0), small, 1e-5, 1 - 1e-6).epsilon <= 1.0
    assert trace_members(coefficients(500.0), small, 1e-5).epsilon > 1.0  # the attack is not blind
