"""Energies of frequencies: the declared sensitivity is attained, order is found where there is one, and only there."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from discreet import PrivateLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import Logistic
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.solvers.second_order.coordinates import (
    SpectrumMechanism,
    concentrated,
    cosine_basis,
    energies,
)
from discreet.solvers.second_order.newton import NoisyNewton, frequency_level

RELATIONS = list(Neighboring)


def records_of(rows, norm=1.0):
    return ArrayRecords(np.atleast_2d(rows), np.ones(len(np.atleast_2d(rows))), Bounds(norm, intercept=False))


def smooth_curves(n, p, *, roughness=0.02, seed=0):
    """Rows that are sums of eight slow waves; their class is the sign of one combination of them."""
    rng = np.random.default_rng(seed)
    times = (np.arange(p) + 0.5) / p
    waves = np.cos(np.pi * np.outer(np.arange(1, 9), times)) * math.sqrt(2 / p)
    weights = rng.normal(size=(n, 8)) / math.sqrt(8)
    X = weights @ waves + roughness / math.sqrt(p) * rng.normal(size=(n, p))
    return X, np.where(weights @ rng.normal(size=8) + 0.1 * rng.normal(size=n) > 0, 1, 0)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_basis_is_orthonormal_and_leaves_the_constant_alone(intercept):
    basis = cosine_basis(33, intercept)
    assert np.abs(basis.T @ basis - np.eye(33)).max() < 1e-13
    assert bool(np.abs(basis[-1, :-1]).max() == 0) is intercept


def test_rounding_of_reshaped_records_is_paid_for():
    """A record that is wrong by e moves its energies by 2 |w| e, a little more than that with its own e^2."""
    exact, rough = (
        SpectrumMechanism(1000, 8, False, 0.5, Neighboring.REPLACE_ONE, 3.0, error).gaussian.sensitivity.value
        for error in (0.0, 1e-6)
    )
    assert rough - exact == pytest.approx(2 * 1000 * 2.1 * 0.5 * 1e-6, rel=1e-6)


def test_energies_are_squared_coordinates_cut_to_their_limit():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6)) * rng.choice([0.1, 0.4], size=(300, 1)) / math.sqrt(6)
    basis, limit = cosine_basis(6, False), 0.03
    expected = np.zeros(6)
    for row in rows:
        squares = (basis.T @ row) ** 2
        expected += squares * min(1.0, limit / np.linalg.norm(squares))
    records = records_of(rows)
    assert energies(records, basis, limit) == pytest.approx(expected, rel=1e-12)
    parts = [records_of(rows[:100]), records_of(rows[100:])]
    together = PartitionedRecords(LocalParts(parts), [100, 200], 6, False, records.bounds, np.ones(300))
    assert together.sum_rows(energies, basis, limit) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("gradient-methods.md#theorem-10")
def test_two_frequencies_attain_the_sensitivity(relation):
    """One wave exchanged for another moves the sum by sqrt(2) limits: a bound of one limit would be caught."""
    mechanism = SpectrumMechanism(10, 8, False, 0.7, relation, 3.0)
    basis = cosine_basis(8, False)
    one = energies(records_of(0.7 * basis[:, 2]), basis, mechanism.limit)
    other = energies(records_of(0.7 * basis[:, 5]), basis, mechanism.limit)
    if relation is not Neighboring.REPLACE_ONE:
        other = np.zeros(8)
    distance = float(np.linalg.norm(one - other))
    declared = mechanism.gaussian.sensitivity.value
    assert distance <= declared <= distance * (1 + 1e-9)
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = rng.normal(size=(2, 8)) * rng.exponential(size=(2, 1))
        rows *= 0.7 / np.maximum(0.7, np.linalg.norm(rows, axis=1))[:, None]
        pair = [energies(records_of(row), basis, mechanism.limit) for row in rows]
        if relation is not Neighboring.REPLACE_ONE:
            pair[1] = np.zeros(8)
        assert np.linalg.norm(pair[0] - pair[1]) <= declared


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_releases_use_the_whole_budget_and_no_more(relation):
    promise = Guarantee(0.8, 1e-7, relation)
    plan = NoisyNewton(ordered_columns=True).plan(
        Problem(Logistic(), Bounds(1.0, intercept=False), 5000, 8), promise
    )
    assert 0.99 * promise.delta <= accountants.delta(plan.event, 0.8, relation) <= promise.delta
    once = plan.moments(plan.shares.moments[0]), plan.spectrum(0.3), plan.margins(1.0)
    parts = np.array([mechanism.noise_multiplier**-2 for mechanism in once])
    total = parts.sum() + plan.n_iterations * plan.gradients(1.0).noise_multiplier ** -2
    assert parts / total == pytest.approx(np.array([0.03, 0.01, 0.05]))


def test_public_numbers_decide_whether_to_look():
    def looks(n, p, epsilon=1.0, **options):
        problem = Problem(Logistic(), Bounds(1.0), n, p)
        return NoisyNewton(**options).plan(problem, Guarantee(epsilon, 1e-9)).spectrum(1.0) is not None

    assert looks(56_000, 785)
    assert not looks(56_000, 120)
    assert not looks(5_000, 785)
    assert not looks(56_000, 785, epsilon=0.1)
    assert looks(5_000, 120, ordered_columns=True)
    assert not looks(56_000, 785, ordered_columns=False)


def test_shares_that_leave_nothing_for_gradients_are_refused():
    problem = Problem(Logistic(), Bounds(1.0), 1000, 5)
    with pytest.raises(ValueError, match=r"between 0 and 0\.8275"):
        NoisyNewton(ordered_columns=True, moment_share=0.995).plan(problem, Guarantee(1.0, 1e-6))


def test_order_is_found_and_its_absence_too():
    X, _ = smooth_curves(500, 64)
    basis = cosine_basis(64, False)
    limit = 0.25 * np.square(X).sum(axis=1).max()
    norm = float(np.linalg.norm(X, axis=1).max())
    found = concentrated(energies(records_of(X, norm), basis, limit), 1.0, intercept=False)
    assert found.kept[1:9].all()
    assert found.kept.sum() == 8
    assert 0.99 < found.share < 1
    shuffled = X[:, np.random.default_rng(0).permutation(64)]
    lost = concentrated(energies(records_of(shuffled, norm), basis, limit), 1.0, intercept=False)
    assert lost.kept.all()
    assert lost.share == 1.0
    assert concentrated(-np.ones(5), 1.0, intercept=False).kept.all()  # noise can be anything


def test_the_constant_is_kept_and_less_is_left_out_as_noise_vanishes():
    noisy = np.array([90.0, 60.0, 3.0, 1.5, 1.0, 1.0, 1.0, 0.5])
    assert concentrated(noisy, 1.0, intercept=True).kept.tolist() == [True, True, *[False] * 5, True]
    assert concentrated(noisy, 0.1, intercept=True).kept.tolist() == [True, True, True, *[False] * 4, True]
    assert frequency_level(900.0) == 1.0
    assert frequency_level(10_000.0) == pytest.approx(0.01)


def test_as_noise_vanishes_it_finds_what_scikit_learn_finds():
    X, y = smooth_curves(3000, 12)
    l2 = 0.01
    options = {"feature_bound": 5.0, "l2": l2, "classes": [0, 1], "fit_intercept": False}
    solver = NoisyNewton(n_iterations=2000, cap=1.0, ordered_columns=True)
    model = PrivateLogisticRegression(1e9, solver=solver, **options).fit(X, y)
    reference = LogisticRegression(C=1 / (l2 * len(y)), fit_intercept=False, tol=1e-10).fit(X, y)
    assert np.abs(model.coef_ - reference.coef_).max() < 2e-3


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("relation", [relation.value for relation in RELATIONS])
def test_replays_pass(relation, n_classes):
    rng = np.random.default_rng(5)
    X, _ = smooth_curves(60, 12)
    y = rng.integers(n_classes, size=60)
    X[0] = 40.0 * cosine_basis(12, False)[:, 3]
    other, labels = X.copy(), y.copy()
    if relation == "replace-one":
        other[0] = 40.0 * cosine_basis(12, False)[:, 8]
    elif relation == "zero-out":
        other[0] = np.nan
    else:
        other, labels = X[1:], y[1:]
    model = PrivateLogisticRegression(
        1.0, 1e-2, classes=list(range(n_classes)), neighboring=relation, bad_rows="null",
        n_samples=80 if relation == "add-remove-one" else None,
        solver=NoisyNewton(n_iterations=5, ordered_columns=True),
    )  # fmt: skip
    found = replay(fitting(model), (X, y), (other, labels))
    assert found.passed, str(found)
    assert 0.1 < found.worst_ratio <= 1.0


def test_ordered_columns_are_worth_more_than_their_price():
    """Eight classes, 32 waves in 300 rough columns: noise in the other directions costs points."""
    rng = np.random.default_rng(0)
    waves = np.cos(np.pi * np.outer(np.arange(1, 33), (np.arange(300) + 0.5) / 300)) * math.sqrt(2 / 300)
    weights = rng.normal(size=(10_000, 32)) / math.sqrt(32)
    X = weights @ waves + 0.6 / math.sqrt(300) * rng.normal(size=(10_000, 300))
    y = np.argmax(weights @ rng.normal(size=(32, 8)), axis=1)
    scores = [
        PrivateLogisticRegression(classes=range(8), solver=NoisyNewton(ordered_columns=ordered))
        .fit(X, y)
        .score(X, y)
        for ordered in (True, False)
    ]
    assert scores[0] > scores[1] + 0.005  # about 0.037 +- 0.006 from one draw of the noise to the next


def test_energies_are_of_clipped_records():
    rows = np.array([[30.0, 40.0, 0.0, 0.0], [0.1, 0.0, 0.2, 0.0]])
    basis = cosine_basis(4, intercept=False)
    found = energies(records_of(rows), basis, limit=1e9)
    assert found.sum() == pytest.approx(1.0 + 0.05)
    assert np.allclose(found, energies(records_of(rows / [[50.0], [1.0]]), basis, limit=1e9))
