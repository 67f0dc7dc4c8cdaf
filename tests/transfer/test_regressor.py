"""Regression and the error rate: sensitivities by replay, noise as stated, errors before the charge."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from discreet import Ledger, PrivateTransferRegressor, insecure_noise, private_error_rate
from discreet.audit.replay import replay
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.transfer import regressor
from discreet.transfer.error_rate import ErrorRatePlan


def line(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    return X, 2 * X[:, 0] + 0.1 * rng.normal(size=n)


def test_the_student_learns_a_line(tmp_path):
    X, y = line(40_000)
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    model = PrivateTransferRegressor(Ridge(1e-3), (0.0, 2.0), delta=1e-6, ledger=ledger).fit(
        X, y, line(200, 1)[0]
    )
    assert abs(model.predict([[0.5]])[0] - 1.0) < 0.1
    assert len(ledger.history()) == 1
    assert accountants.delta(model.plan_.event, 1.0, Neighboring.REPLACE_ONE) <= 1e-6
    assert model.labels_.min() >= 0
    assert model.labels_.max() <= 2


def test_a_student_that_fails_loses_no_labels(tmp_path):
    X, y = line(2000)
    public = line(50, 1)[0]
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    model = PrivateTransferRegressor(
        Ridge(), (0.0, 2.0), student=Ridge(alpha=-1.0), delta=1e-6, ledger=ledger
    )
    with pytest.raises(ValueError, match="'alpha' parameter") as raised:
        model.fit(X, y, public)
    assert "kept in labels_" in raised.value.__notes__[0]
    assert len(model.labels_) == len(public)
    assert len(ledger.history()) == 1


def test_the_noise_is_as_stated():
    plan = PrivateTransferRegressor(Ridge(), (-1.0, 3.0), delta=1e-6, n_teachers=5000).plan(10**6, 400)
    sums = np.full(400, 5000 << 19)
    draws = np.concatenate([plan.run(sums, fresh_entropy()) for _ in range(20)])
    assert abs(draws.mean() - 1.0) < 5 * plan.stddev / np.sqrt(8000)
    assert abs(draws.std() / plan.stddev - 1) < 0.05


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300, 1e300, 0.3])
@pytest.mark.lemma("sparse-vector.md#section-9")
def test_a_teacher_moves_a_sum_by_at_most_the_width(value):
    class Constant(Ridge):
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.full(len(X), value)

    steps = regressor._predicted(Constant(), np.zeros((2, 1)), np.zeros(2), np.zeros((5, 1)), 0.0, 1.0, 0)
    assert steps.min() >= 0
    assert steps.max() <= regressor._STEPS


def test_bad_bounds_are_refused():
    X, y = line(100)
    for bounds, message in [
        ((1.0, 0.0), "lowest < highest"),
        ((0.0, np.inf), "finite"),
        (3.0, r"two numbers \(lowest, highest\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            PrivateTransferRegressor(Ridge(), bounds).fit(X, y, X)
    with pytest.raises(ValueError, match="Nothing was charged"):
        PrivateTransferRegressor(Ridge(alpha=-1.0), (0, 1), n_teachers=5).fit(X, y, X)
    with pytest.raises(ValueError, match="more than the 100 records"):
        PrivateTransferRegressor(Ridge(), (0, 1), n_teachers=101).fit(X, y, X)


@pytest.mark.lemma("sparse-vector.md#section-10")
def test_the_error_rate_is_found_with_its_corrected_sensitivity(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    y = ((X[:, 0] > 0) ^ (rng.random(6000) < 0.1)).astype(int)
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    with insecure_noise(1):
        found = private_error_rate(
            DecisionTreeClassifier(max_depth=1),
            X,
            y,
            epsilon=0.5,
            n_teachers=100,
            classes=[0, 1],
            ledger=ledger,
        )
    assert abs(found.rate - 0.13) < 0.02 + 0.06  # their error, and three scales of the noise
    assert found.upper >= found.rate
    assert found.unstable_among(1000) >= 3 * found.rate * 1000
    assert found.privacy_.guarantee.epsilon == 0.5
    assert len(ledger.history()) == 1
    assert ErrorRatePlan(Guarantee(0.5), 100, 1200).sensitivity == 1 / 100
    assert ErrorRatePlan(Guarantee(0.5), 2000, 1200).sensitivity == 1 / 1200


def test_one_training_record_moves_the_single_model_error_by_more_than_the_ensemble():
    """The seed's claim fails: a model that memorizes flips on every held-out row."""
    held_out = np.ones(50)
    single = [np.mean(np.full(50, label) != held_out) for label in (0, 1)]
    assert abs(single[0] - single[1]) == 1.0  # 1/n_validation would promise 0.02
    ensemble = [(9 * 0.0 + error) / 10 for error in single]
    assert abs(ensemble[0] - ensemble[1]) <= ErrorRatePlan(Guarantee(1.0), 10, 50).sensitivity


HELD_OUT = 5


def held_out_changed():
    """Separable rows, the last five held out and all of class 1: a neighbor changes the label or the row of one."""
    X = np.random.default_rng(0).choice([-3.0, 3.0], size=(4000 + HELD_OUT, 2))
    X[-HELD_OUT:] = 3.0
    y = (X[:, 0] > 0).astype(int)
    relabeled, broken, far = y.copy(), X.copy(), X.copy()
    relabeled[-1], broken[-1], far[-1] = 0, np.nan, -3.0
    return (X, y), {"label": (X, relabeled), "nan": (broken, y), "features": (far, y)}


@pytest.mark.parametrize("change", ["label", "nan", "features"])
def test_a_held_out_record_moves_one_vote_of_every_teacher(change):
    """All 20 votes on that row and none on others, which is the declared distance; the whole block would be 100."""

    def program(data):
        found = private_error_rate(
            LogisticRegression(),
            *data,
            epsilon=1.0,
            n_teachers=20,
            classes=[0, 1],
            validation_fraction=HELD_OUT / (4000 + HELD_OUT),
            random_state=0,
        )
        return np.array([found.rate])

    data, neighbors = held_out_changed()
    found = replay(program, data, neighbors[change])
    assert found.passed, str(found)
    assert found.worst_ratio == pytest.approx(1.0)


def test_the_error_rate_needs_a_public_size():
    X = np.zeros((100, 2))
    with pytest.raises(ValueError, match="number of held-out rows public"):
        private_error_rate(
            DecisionTreeClassifier(),
            X,
            np.zeros(100),
            epsilon=1.0,
            n_teachers=5,
            neighboring="add-remove-one",
        )


def test_users_and_processes_change_nothing_but_the_plan():
    X, y = line(3000)
    results = []
    for n_jobs in (1, 2):
        with insecure_noise(3):
            model = PrivateTransferRegressor(Ridge(), (0.0, 2.0), n_teachers=20, epsilon=50.0, n_jobs=n_jobs)
            results.append(model.fit(X, y, X[:50], groups=np.arange(3000) // 2).labels_)
    assert np.array_equal(results[0], results[1])
    assert model.plan_.changed == 2
    assert model.plan_.n_samples == 1500
