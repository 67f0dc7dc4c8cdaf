"""Weights of classes: bounds, worst pairs, prices and refusals; the contract of losses is in tests/contracts."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "contracts"))
from test_solver import overpriced, price, run, unbilled, with_half_the_noise

from discreet import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    card,
    coefficient_intervals,
    insecure_noise,
)
from discreet._checks import ParameterError
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers import base

WEIGHTED = ClassWeighted(Logistic(), (1.0, 5.0))
SEVERAL = ClassWeighted(Softmax(3), (1.0, 4.0, 0.5))
TWO_CLASSES = {"auto", "noisy-gd", "noisy-sgd", "newton", "objective", "output", "psgd"}
THREE_CLASSES = {"auto", "noisy-gd", "noisy-sgd", "newton", "psgd"}
SENSITIVITY = {Neighboring.REPLACE_ONE: 2.0, Neighboring.ADD_REMOVE_ONE: 1.0, Neighboring.ZERO_OUT: 1.0}


def problem(loss):
    return Problem(loss, Bounds(1.0, False), 60, 3)


def records(loss, n=60):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=n) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], n)
    return ArrayRecords(rng.normal(size=(n, 3)), labels, Bounds(1.0, False))


@pytest.mark.lemma("class-weights.md#theorem-1")
@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("kind", [Logistic(), HuberHinge(0.5)], ids=str)
def test_the_sensitivity_is_attained_by_rows_of_the_heaviest_class(kind, relation):
    loss, reach = ClassWeighted(kind, (1.0, 5.0)), 30.0
    bound = base.gradient_sensitivity(loss, 1.0, reach, relation).value
    # rows whose slopes are steepest: far on the wrong side of the plane, where both gradients point apart
    theta = np.array([reach, 0.0])
    rows = np.array([[-0.6, 0.8], [-0.6, -0.8]])
    moves = loss.derivative(np.ones(2), rows @ theta)[:, None] * rows
    alone = np.linalg.norm(moves[0])
    assert alone == pytest.approx(5.0, rel=1e-6)
    apart = max(  # opposite rows, in the limit of a shallow angle to the plane
        np.linalg.norm(np.diff(loss.derivative(np.ones(2), pair @ theta)[:, None] * pair, axis=0))
        for s in np.linspace(0.0, 1.0, 2001)
        for pair in [np.array([[-s, np.sqrt(1 - s * s)], [-s, -np.sqrt(1 - s * s)]])]
    )
    moved = apart if relation is Neighboring.REPLACE_ONE else alone
    assert moved <= bound <= 5.0 * SENSITIVITY[relation] * (1 + 1e-9)
    assert moved >= 0.93 * bound
    lighter = base.gradient_sensitivity(kind, 1.0, reach, relation).value
    assert moved > lighter  # the bound of the loss without weights would be false


@pytest.mark.lemma("class-weights.md#theorem-1")
def test_the_hinge_attains_its_sensitivity_exactly():
    loss = ClassWeighted(Hinge(), (1.0, 5.0))
    rows = np.array([[1.0, 0.0], [-1.0, 0.0]])
    moves = loss.derivative(np.ones(2), np.zeros(2))[:, None] * rows
    bound = base.gradient_sensitivity(loss, 1.0, 1.0, Neighboring.REPLACE_ONE).value
    assert np.linalg.norm(moves[0] - moves[1]) == 10.0 <= bound <= np.nextafter(10.0, 11.0)


@pytest.mark.lemma("class-weights.md#theorem-1")
@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("loss", [WEIGHTED, ClassWeighted(HuberHinge(0.5), (2.0, 1.0)), SEVERAL], ids=str)
def test_every_solver_pays_for_the_largest_weight_or_refuses(loss, relation):
    found = set()
    for name in base.names():
        try:
            plan = base.resolve(name).plan(problem(loss), Guarantee(1.0, 1e-4, relation))
        except ValueError:
            continue
        if name.endswith(("-dissertation", "-talwar", "-jain-thakurta")):
            continue
        found.add(name)
        assert overpriced(plan) == "", name
        twin = with_half_the_noise(plan)
        assert price(twin) > plan.guarantee.delta, name
        kept = records(loss)
        assert unbilled(plan, kept, run(plan, kept)[1]) == [], name
        assert unbilled(plan, kept, run(twin, kept)[1]), name
    expected = THREE_CLASSES if loss.n_outputs > 1 else TWO_CLASSES
    unproved = {Neighboring.REPLACE_ONE: "noisy-sgd", Neighboring.ADD_REMOVE_ONE: "psgd"}
    expected = expected - {unproved.get(relation)}
    assert found >= expected
    assert not found & {"discriminant", "refocused-sums", "exponential", "localized", "statistics"}
    assert ("objective" in found) == (loss.n_outputs == 1)


def test_the_noise_of_gradients_grows_by_the_largest_weight():
    guarantee = Guarantee(1.0, 1e-4)
    settings = dataclasses.replace(base.resolve("noisy-gd"), n_iterations=10, cap=None, radius=1e3)
    plain = settings.plan(problem(HuberHinge(0.5)), guarantee)
    heavy = settings.plan(problem(ClassWeighted(HuberHinge(0.5), (1.0, 5.0))), guarantee)
    assert heavy.release.stddev == pytest.approx(5 * plain.release.stddev, rel=1e-9)


def test_equal_weights_are_a_multiple_of_the_loss():
    """Without noise: minimizers of w f + w (l2 / 2) |theta|^2 do not depend on w."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 2))
    y = (X @ [1.0, -1.0] + rng.logistic(size=4000) > 0).astype(int)
    settings = {"epsilon": 1e7, "delta": 1e-6, "classes": [0, 1], "solver": "objective", "feature_bound": 4.0}
    with insecure_noise(0):
        one = PrivateLogisticRegression(**settings, l2=0.01).fit(X, y)
        three = PrivateLogisticRegression(**settings, l2=0.03, class_weight={0: 3, 1: 3}).fit(X, y)
    np.testing.assert_allclose(three.coef_, one.coef_, atol=1e-3)


@pytest.mark.parametrize("solver", ["objective", "noisy-gd", "newton"])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_a_weighted_fit_approaches_that_of_scikit_learn(kind, solver):
    """Large epsilon: weights of 4 find far more of a rare class, as they do without privacy."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(2)
    X = rng.normal(size=(20_000, 3)) / 2
    y = (X @ [2.0, -1.0, 0.5] + rng.logistic(size=len(X)) > 2.0).astype(int)
    weights = {1: 4.0}
    with insecure_noise(3):
        model = kind(200.0, classes=[0, 1], class_weight=weights, feature_bound=2.5, solver=solver).fit(X, y)
        plain = kind(200.0, classes=[0, 1], feature_bound=2.5, solver=solver).fit(X, y)
    exact = LogisticRegression(C=1e6, class_weight=weights).fit(X, y)
    assert plain.predict(X).mean() < 0.6 * model.predict(X).mean()
    assert np.mean(model.predict(X) == exact.predict(X)) > 0.97
    direction = model.coef_[0] / np.linalg.norm(model.coef_)
    assert direction @ exact.coef_[0] / np.linalg.norm(exact.coef_) > 0.99


def test_several_classes_with_weights():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6000, 2))
    y = np.array(["a", "b", "c"])[np.argmax(X @ rng.normal(size=(2, 3)) + rng.gumbel(size=(6000, 3)), axis=1)]
    with insecure_noise(5):
        model = PrivateLogisticRegression(50.0, classes=["a", "b", "c"], class_weight={"c": 6.0}).fit(X, y)
        plain = PrivateLogisticRegression(50.0, classes=["a", "b", "c"]).fit(X, y)
    assert np.mean(model.predict(X) == "c") > 1.2 * np.mean(plain.predict(X) == "c")


def test_the_statement_names_the_weights_and_their_proof(tmp_path):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(500, 2))
    y = np.where(X[:, 0] > 0.5, 1, 0)
    model = PrivateLogisticRegression(1.0, classes=[0, 1], class_weight={1: 3.0}).fit(X, y)
    assert "the weights of classes, {1: 3.0}, were chosen without looking" in str(model.privacy_)
    assert "class-weights.md#theorem-1" in model.privacy_.proofs
    path = tmp_path / "model.json"
    card.save(model, path)
    again = card.load(path)
    assert again.class_weight == {1: 3.0}
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.plan(500, 2).event == model.plan(500, 2).event
    with pytest.raises(ParameterError, match="has no intervals"):
        coefficient_intervals(again, X, y, epsilon=1.0)


def test_weights_of_one_change_nothing():
    plain = PrivateLogisticRegression(1.0, 1e-5, classes=[0, 1]).plan(1000, 4)
    ones = PrivateLogisticRegression(1.0, 1e-5, classes=[0, 1], class_weight={0: 1, 1: 1.0}).plan(1000, 4)
    assert ones == plain


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"class_weight": "balanced"}, r"counts of classes are private.*FixedThresholdClassifier"),
        ({"class_weight": [1, 5]}, "must be a dict of labels and numbers, got list"),
        ({"class_weight": {2: 5.0}}, r"names 2, which is not among the declared classes \[0, 1\]"),
        ({"class_weight": {1: 0.0}}, "greater than 0"),
        ({"class_weight": {1: 1e9}}, "between 1e-06 and 1e"),
        ({"class_weight": {1: 5.0}, "classes": None}, "must list the public labels that class_weight"),
        ({"class_weight": {1: 5.0}, "solver": "discriminant"}, "does not support the loss ClassWeighted"),
        ({"class_weight": {1: 5.0}, "classes": [0, 1, 2], "multi_class": "ovr"}, "fitted together"),
        ({"class_weight": {1: 5.0}, "classes": [0, 1, 2], "solver": "objective"}, "softmax with equal weights"),
    ],
)  # fmt: skip
def test_other_weights_are_refused_before_anything_is_paid(settings, words):
    model = PrivateLogisticRegression(**{"classes": [0, 1], **settings})
    with pytest.raises(ParameterError if "discriminant" not in words else ValueError, match=words):
        model.plan(1000, 3)


def test_only_losses_of_labels_have_weights():
    with pytest.raises(TypeError, match="one of class labels"):
        ClassWeighted(Squared(1.0, 1.0), (1.0, 2.0))
    with pytest.raises(ValueError, match="one per class, 3"):
        ClassWeighted(Softmax(3), (1.0, 2.0))


@pytest.mark.lemma("class-weights.md#theorem-1")
@pytest.mark.parametrize("solver", ["noisy-gd", "objective"])
def test_a_replay_stays_within_the_stated_sensitivity(solver):
    """One record of the heavy class replaced by its opposite, with all noise fixed."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(80, 3))
    y = rng.integers(2, size=80)
    X[0], y[0] = [1e3, 0, 0], 1
    other, labels = X.copy(), y.copy()
    other[0] = [-1e3, 0, 0]
    model = PrivateLinearSVC(
        1.0, 1e-5, classes=[0, 1], class_weight={1: 5.0}, solver=solver, fit_intercept=False
    )
    found = replay(fitting(model), (X, y), (other, labels))
    assert found.passed, found
    assert found.worst_ratio > 0.95  # a bound without the weight would have been passed five times


WORST_PAIRS = {
    "a heavy row and its opposite": (([1e3, 0, 0], 1), ([-1e3, 0, 0], 1)),
    "a heavy row and a light one": (([1e3, 0, 0], 1), ([1e3, 0, 0], 0)),
    "a heavy row and nothing": (([0, 1e3, 0], 1), ([0, 0, 0], 0)),
    "tiny against huge": (([0, 0, 1e-200], 0), ([0, 0, 1e80], 1)),
}
WEIGHTED_FITS = {
    "svc, noisy-gd": (PrivateLinearSVC, "noisy-gd", {1: 5.0}, [0, 1]),
    "svc, objective, light class": (PrivateLinearSVC, "objective", {0: 0.2}, [0, 1]),
    "svc, output": (PrivateLinearSVC, "output", {1: 3.0}, [0, 1]),
    "logistic, noisy-gd": (PrivateLogisticRegression, "noisy-gd", {1: 5.0}, [0, 1]),
    "logistic, objective": (PrivateLogisticRegression, "objective", {0: 0.5, 1: 4.0}, [0, 1]),
    "logistic, newton": (PrivateLogisticRegression, "newton", {1: 5.0}, [0, 1]),
    "logistic, psgd": (PrivateLogisticRegression, "psgd", {1: 5.0}, [0, 1]),
    "softmax, noisy-gd": (PrivateLogisticRegression, "noisy-gd", {1: 5.0}, [0, 1, 2]),
}


def replayed_pair(fit, pair, l2=0.1):
    kind, solver, weights, classes = WEIGHTED_FITS[fit]
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(80, 3)), rng.integers(len(classes), size=80)
    other, labels = X.copy(), y.copy()
    (X[0], y[0]), (other[0], labels[0]) = WORST_PAIRS[pair]
    penalty = {"l2": l2} if solver in {"output", "psgd"} else {}
    model = kind(
        1.0, 1e-5, classes=classes, class_weight=weights, solver=solver, fit_intercept=False, **penalty
    )
    return replay(fitting(model), (X, y), (other, labels))


@pytest.mark.lemma("class-weights.md#theorem-1")
@pytest.mark.parametrize("pair", WORST_PAIRS)
@pytest.mark.parametrize("fit", WEIGHTED_FITS)
def test_worst_pairs_stay_within_the_stated_sensitivity(fit, pair):
    found = replayed_pair(fit, pair)
    assert found.passed, found


@pytest.mark.parametrize("fit", WEIGHTED_FITS)
def test_a_twin_that_pays_for_the_smallest_weight_is_caught(fit, monkeypatch):
    monkeypatch.setattr(ClassWeighted, "largest", property(lambda self: min(self.weights)))
    assert not replayed_pair(fit, "a heavy row and its opposite").passed
