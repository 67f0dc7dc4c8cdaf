"""The private linear learner on a stream: accuracy, regret, neighbors, null records, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from discreet import Ledger, PrivateOnlineLinearModel
from discreet.audit.replay import replay
from discreet.losses import Logistic
from discreet.online.linear import OnlineLinearPlan
from discreet.privacy.accounting import accountants


def data(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.6, 0.6, size=(n, 2))
    return X, np.where(X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=n) > 0, 1, 0)


@pytest.mark.lemma("online.md#theorem-3")
def test_classifier_learns_and_its_regret_is_below_the_bound():
    X, y = data()
    model = PrivateOnlineLinearModel(2, 3000, epsilon=4.0, classes=[0, 1], radius=3.0)
    plan, loss, paid = model.plan(), Logistic(), 0.0
    signs, records = 2.0 * y - 1.0, np.column_stack([X, np.ones(3000)])
    records /= np.maximum(1.0, np.linalg.norm(records, axis=1))[:, None]
    for row, label, sign, record in zip(X, y, signs, records, strict=True):
        theta = np.append(model.coef_, model.intercept_)
        assert np.linalg.norm(theta) <= 3.0 * (1 + 1e-12)
        paid += float(loss.value(sign, record @ theta))
        model.learn_one(row, label)
    best = minimize(
        lambda theta: float(loss.value(signs, records @ theta).sum()),
        np.zeros(3),
        constraints={"type": "ineq", "fun": lambda theta: 9.0 - theta @ theta},
    ).fun
    assert paid - best <= plan.regret
    assert plan.bound_of(1500) < plan.bound_of(3000) == plan.regret
    accuracy = np.mean([model.predict_one(row) == label for row, label in zip(X[:300], y[:300], strict=True)])
    assert accuracy > 0.7
    assert model.average_.shape == (3,)
    assert model.privacy_.epsilon == 4.0


def test_regressor_predicts_within_its_bounds():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2000, 1))
    model = PrivateOnlineLinearModel(1, 2000, 40.0, target_bounds=(0.0, 10.0), feature_bound=1.5)
    model.partial_fit(X, 5 + 4 * X[:, 0])
    assert model.predict_one([0.9]) > model.predict_one([-0.9])
    assert 0.0 <= model.predict_one([1e9]) <= 10.0


def test_replay_of_neighboring_streams_and_a_twin():
    X, y = data(40)
    plan = PrivateOnlineLinearModel(2, 40, 1.0, 1e-4, classes=[0, 1]).plan()

    class Planned(PrivateOnlineLinearModel):
        def plan(self):
            return plan

    class Unclipped(Planned):
        """Forgets to clip records."""

        def _record(self, row, scale):
            return super()._record(row, 1.0)

    def program(kind):
        def run(records):
            model = kind(2, 40, classes=[0, 1])
            thetas = []
            for row, label in zip(*records, strict=True):
                model.learn_one(row, label)
                thetas.append(np.append(model.coef_, model.intercept_))
            return np.array(thetas)

        return run

    others = X.copy()
    X[5], others[5] = [50.0, 50.0], [-50.0, -50.0]
    labels = y.copy()
    y[5], labels[5] = 0, 0
    found = replay(program(Planned), (X, y), (others, labels), skip=("recorded",))
    assert found.passed, found
    assert 0.4 < found.worst_input_ratio <= 1.0
    assert "distance" in replay(program(Unclipped), (X, y), (others, labels)).failed_checks


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_plan_meets_its_guarantee(relation):
    plan = PrivateOnlineLinearModel(4, 1000, 1.0, 1e-6, classes=[0, 1], neighboring=relation).plan()
    assert isinstance(plan, OnlineLinearPlan)
    price = accountants.epsilon(plan.event, 1e-6, plan.guarantee.neighboring)
    assert 0.99 < price <= 1.0
    # One record is in 10 of the blocks of 1000 steps: ten Gaussian releases.
    assert plan.tree.levels == 10
    assert plan.tree.noise.effective_stddev == pytest.approx(
        plan.noise_multiplier * plan.tree.sensitivity.value, rel=1e-6
    )
    assert plan.regret == pytest.approx(plan.radius * math.sqrt(2 * 1000 * plan.drift))


def test_bad_records_are_null_records():
    model = PrivateOnlineLinearModel(2, 10, 1.0, classes=["a", "b"])
    for row, label in (([np.nan, 0.0], "a"), ([np.inf, 1.0], "b"), ([0.1, 0.1], "c")):
        model.learn_one(row, label)
    assert model.step == 3
    assert not model._tree.exact.any()
    for label in (None, 4711, [1, 1], ["a"], ["a", "b", "c"]):
        model.learn_one([0.1, 0.1], label)
    model.learn_one([0.1, "4711"], None).learn_one([0.1, "word"], "a")
    assert model.step == 10
    assert not model._tree.exact.any()


@pytest.mark.parametrize("target", [math.nan, math.inf, None, "word", 10**400, [1.0], {}])
def test_a_target_that_is_no_number_is_a_null_record(target):
    regressor = PrivateOnlineLinearModel(2, 10, 1.0, target_bounds=(0, 1))
    regressor.learn_one([0.1, 0.1], target)
    assert regressor.step == 1
    assert not regressor._tree.exact.any()
    regressor.learn_one([0.1, 0.1], "0.9").learn_one([0.1, 0.1], np.float32(0.9)).learn_one([0.1, 0.1], 1)
    assert regressor._tree.exact.any()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"classes": None}, "declare classes"),
        ({"target_bounds": (0, 1)}, "not both"),
        ({"classes": [1, 1]}, "two different"),
        ({"classes": None, "target_bounds": (1, 0)}, "lowest < highest"),
        ({"radius": 0.0}, "radius"),
        ({"feature_bound": -1.0}, "feature_bound"),
        ({"delta": 0.0}, "delta = 0"),
        ({"n_features": 0}, "n_features"),
        ({"neighboring": "add-remove-one"}, "move all later ones"),
    ],
)
def test_bad_parameters_are_refused_before_a_charge(parameters, message, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-3)
    settings = {"n_features": 2, "horizon": 10, "delta": 1e-4, "classes": [0, 1], "ledger": ledger}
    model = PrivateOnlineLinearModel(**settings | parameters)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(np.zeros((1, model.n_features)), [0])
    assert ledger.history() == []


def test_bad_records_shapes_cost_nothing():
    model = PrivateOnlineLinearModel(2, 10, classes=[0, 1])
    with pytest.raises(ValueError, match="2 features"):
        model.learn_one([1.0], 0)
    with pytest.raises(ValueError, match="2 columns"):
        model.partial_fit(np.zeros((3, 1)), np.zeros(3))
    assert model.step == 0
    assert model.epoch == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("feature_bound", 50.0), ("fit_intercept", False), ("epsilon", 9.0), ("classes", [2, 3])],
)
def test_what_the_noise_was_made_for_cannot_be_changed_in_a_running_stream(name, value):
    """A larger bound would let one record move the sums further than they were charged for."""
    model = PrivateOnlineLinearModel(2, horizon=10, classes=[0, 1])
    setattr(model, name, getattr(model, name))  # before the charge anything may be set
    model.learn_one([0.5, 0.5], 1)
    with pytest.raises(AttributeError, match="fixed when the stream was charged"):
        setattr(model, name, value)
    model.at_horizon = "restart"
    assert model.learn_one([0.5, 0.5], 0).step == 2
