"""Second-order regression: limits without noise, the bill, neighbors replayed, and what is refused."""

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtr
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge

from discreet import (
    Ledger,
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
    insecure_noise,
)
from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.losses import HuberRegression, Linear, Poisson, Quantile, Squared
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Composed, flatten
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.solvers.auto import AutomaticChoice
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.perturbation.objective import ObjectivePerturbation
from discreet.solvers.second_order import clipped_gradients, regression
from discreet.solvers.second_order.newton import NoisyNewton
from discreet.solvers.second_order.posterior import PosteriorMean, aims_of, clip_multiple
from discreet.solvers.statistics import SufficientStatistics

BOUNDS = Bounds(1.0)
RELATIONS = list(Neighboring)
LOSSES = {
    "squared": Squared(1.0, 1.0),
    "huber": HuberRegression(0.2),
    "quantile": Quantile(0.8),
    "poisson": Poisson(1.0, 1.0),
}


def table(n=4000, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, size=(n, 3)) * [1.0, 0.5, 0.2]
    return X, X @ [0.6, -0.8, 1.0] + 0.2 + noise * rng.normal(size=n)


def plan_for(loss="squared", n=400, epsilon=1.0, relation=Neighboring.REPLACE_ONE, p=3, **settings):
    problem = Problem(LOSSES[loss], BOUNDS, n, p + 1, label_bound=1.0)
    return NoisyNewton(**settings).plan(problem, Guarantee(epsilon, 1e-6, relation))


# -- limits ------------------------------------------------------------------------------------------------------------


def test_without_noise_it_is_least_squares():
    X, y = table()
    model = PrivateLinearRegression(1e9, 1e-6, feature_bound=1.3, target_bounds=(-2, 2), solver="newton").fit(
        X, y
    )
    plain = LinearRegression().fit(X, y)
    assert np.abs(model.coef_ - plain.coef_).max() < 1e-4
    assert abs(model.intercept_ - plain.intercept_) < 1e-4


def test_without_noise_a_ridge_is_the_ridge_of_scikit_learn():
    X, y = table()
    model = PrivateRidge(
        1e9, 1e-6, feature_bound=1.3, target_bounds=(-2, 2), l2=0.1, fit_intercept=False, solver="newton"
    ).fit(X, y)
    plain = Ridge(alpha=0.1 * len(y), fit_intercept=False).fit(X, y)
    assert np.abs(model.coef_ - plain.coef_).max() < 1e-4


def test_without_noise_it_is_where_the_gradient_of_the_huber_loss_vanishes():
    X, y = table(noise=0.05)
    y[::10] += 0.8  # outliers on one side
    model = PrivateHuberRegressor(
        1e9,
        1e-6,
        feature_bound=1.3,
        target_bounds=(-2, 2),
        huber_width=0.1,
        solver=NoisyNewton(n_iterations=60),
    ).fit(X, y)
    rows = np.column_stack([X, np.ones(len(y))])
    left, least_squares = (
        np.linalg.norm(np.clip(found.predict(X) - y, -0.1, 0.1) @ rows)
        for found in (model, LinearRegression().fit(X, y))
    )
    assert left < 1e-2 * least_squares


def test_without_noise_counts_have_the_means_of_scikit_learn():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    y = rng.poisson(np.exp(1.0 + X @ [0.6, -0.5]))
    model = PrivatePoissonRegressor(
        1e7, 1e-6, feature_bound=1.8, target_bounds=(0, 30), solver=NoisyNewton(n_iterations=60)
    ).fit(X, y)
    plain = PoissonRegressor(alpha=0).fit(X, y)
    assert np.abs(model.predict(X) / plain.predict(X) - 1).max() < 0.02


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_asked_share_of_targets_lies_below_a_quantile(quantile):
    X, y = table(10_000, noise=0.2)
    model = PrivateQuantileRegressor(
        2.0, 1e-6, feature_bound=1.3, target_bounds=(-2, 2), quantile=quantile, solver="newton"
    ).fit(X, y)
    assert np.mean(y < model.predict(X)) == pytest.approx(quantile, abs=0.03)


def test_derivatives_of_a_quantile_do_not_widen_the_residuals(monkeypatch):
    """All derivatives of a quantile are as large as their bound, which says nothing about the residuals."""
    seen = []

    def watched(*arguments):
        for aim in aims_of(*arguments):
            seen.append(aim)
            yield aim

    monkeypatch.setattr(regression, "aims_of", watched)
    X, y = table(10_000, noise=0.2)
    PrivateQuantileRegressor(2.0, 1e-6, feature_bound=1.3, target_bounds=(-2, 2), solver="newton").fit(X, y)
    assert [aim.shape for aim in seen] == ["residual", "density"]
    assert seen[1].scale.scale == pytest.approx(0.1, rel=0.4)  # in half ranges of the targets


@pytest.mark.parametrize("relation", RELATIONS)
def test_defaults_learn(relation):
    X, y = table(6000)
    model = PrivateRidge(
        1.0, 1e-6, neighboring=relation.value, n_samples=6000, feature_bound=1.2, target_bounds=(-2, 2)
    ).fit(X, y)
    assert model.score(X, y) > LinearRegression().fit(X, y).score(X, y) - 0.03


def test_caps_widen_as_noise_vanishes_until_nothing_is_clipped():
    multiples = [clip_multiple(signal) for signal in (0.1, 10, 1e3, 1e5)]
    assert multiples[0] == 0.8
    assert multiples == sorted(multiples)
    (aim,) = aims_of(LOSSES["squared"], 1e9, 20, None)
    assert aim.cap == LOSSES["squared"].lipschitz * (1 - 2**-52)
    assert regression.row_clip(1e12) > 30


# -- where nothing can be learned --------------------------------------------------------------------------------------


def test_where_nothing_can_be_learned_only_the_constant_is_fitted():
    plan = plan_for(n=100, epsilon=0.1)
    assert plan.constant_only
    X, y = table(100)
    with insecure_noise(0):
        theta = plan.run([ArrayRecords(X, y, BOUNDS)], fresh_entropy()).theta[0]
    assert np.array_equal(theta[:-1], np.zeros(3))
    assert not plan_for(n=4000, epsilon=1.0).constant_only


def test_pure_noise_is_shrunk_towards_the_mean(monkeypatch):
    """Predictions of targets that have nothing to do with the rows vary less than half as much as without evidence."""
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-0.5, 0.5, size=(2000, 10)), np.clip(rng.normal(size=2000) / 4, -1, 1)

    def spread():
        found = []
        for seed in range(4):
            with insecure_noise(seed):
                model = PrivateRidge(
                    0.1, 1e-6, feature_bound=1.3, target_bounds=(-1, 1), solver="newton"
                ).fit(X, y)
            found.append(model.predict(X).var())
        return np.mean(found)

    shrunk = spread()
    monkeypatch.setattr(PosteriorMean, "_likeliest", lambda state, along, known: 1.0)
    assert shrunk < 0.5 * spread()


# -- the bill ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("n", [20, 5000])
@pytest.mark.lemma("second-order-regression.md#theorem-3")
def test_calibration_uses_the_whole_budget_and_no_more(relation, n):
    plan = plan_for(n=n, epsilon=0.8, relation=relation)
    assert 0.99e-6 <= accountants.delta(plan.event, 0.8, relation) <= 1e-6


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [20, 400])
def test_the_charge_is_what_the_mechanisms_of_a_run_say(loss, n):
    """Caps and norms follow the data; the price of every release does not."""
    X, y = table(n)
    for scale in (1.0, 0.01):
        plan = plan_for(loss, n, n_iterations=5)
        recorder = Recorder()
        with insecure_noise(0), recorded_by(recorder):
            plan.run([ArrayRecords(scale * X, np.clip(scale * y, 0, 1), BOUNDS)], fresh_entropy())
        assert len(recorder.calls) == 2 + 5
        made = Composed(tuple(call.event for call in recorder.calls))
        assert dict(flatten(plan.event)) == dict(flatten(made))


def strained(relation, n=200, target=-1.0):
    """Neighbors that differ in a row of full length, whose residuals have opposite signs; or in a ``target`` of 0."""
    X = np.tile([[0.0, 0.0, 0.0]], (n, 1))
    y = np.zeros(n)
    X[0], y[0] = [1e3, 0.0, 0.0], 1.0
    if relation is Neighboring.REPLACE_ONE:
        other = np.where(np.arange(n) == 0, target, y)
        return ArrayRecords(X, y, BOUNDS), ArrayRecords(X, other, BOUNDS)
    if relation is Neighboring.ZERO_OUT:
        return ArrayRecords(X, y, BOUNDS), ArrayRecords(X, y, BOUNDS, np.arange(n) == 0)
    return ArrayRecords(X, y, BOUNDS), ArrayRecords(X[1:], y[1:], BOUNDS)


def replayed(relation, target=-1.0):
    plan = plan_for(n=200, epsilon=2.0, relation=relation, n_iterations=4)
    assert not plan.constant_only
    first, second = strained(relation, target=target)
    return replay(running(plan), [first], [second])


@pytest.mark.parametrize("relation", RELATIONS)
def test_neighbors_stay_within_every_declared_distance_and_come_close(relation):
    found = replayed(relation)
    assert found.passed, str(found)
    assert max(distance.ratio for distance in found.distances) > 0.95


@pytest.mark.parametrize("twin", ["heavy companion", "cap of one relation", "cap of the data"])
def test_broken_twins_are_caught(twin, monkeypatch):
    relation = Neighboring.REPLACE_ONE
    if twin == "heavy companion":
        monkeypatch.setattr(clipped_gradients, "companion_weight", lambda relation: 2.0 * math.sqrt(2))
    elif twin == "cap of one relation":
        monkeypatch.setattr(
            clipped_gradients, "sum_sensitivity", lambda bound, relation: clipped_gradients.Sensitivity(bound)
        )
    else:
        plain = clipped_gradients.clipped_sums

        def by_the_data(records, loss, cap, theta, squares):
            residuals = np.abs(loss.derivative(records.labels, records.raw_predictions(theta)))
            return plain(records, loss, max(float(residuals.max()), 1e-3), theta, squares)

        monkeypatch.setattr(clipped_gradients, "clipped_sums", by_the_data)
    assert not replayed(relation, target=0.0 if twin == "heavy companion" else -1.0).passed


# -- records wherever they are -----------------------------------------------------------------------------------------


def test_dense_sparse_and_partitioned_rows_agree():
    X, y = table(1000)
    plan = plan_for(n=1000)
    halves = [ArrayRecords(X[rows], y[rows], BOUNDS) for rows in (slice(0, 400), slice(400, 1000))]
    kept = (
        ArrayRecords(X, y, BOUNDS),
        ArrayRecords(sparse.csr_array(X), y, BOUNDS),
        PartitionedRecords(LocalParts(halves), [400, 600], 3, False, BOUNDS, y),
    )
    found = []
    for records in kept:
        with insecure_noise(1):
            found.append(plan.run([records], fresh_entropy()).theta[0])
    assert np.abs(found[1] - found[0]).max() < 1e-4
    assert np.abs(found[2] - found[0]).max() < 1e-4


def test_groups_are_promised_for_all_their_rows():
    X, y = table(600)
    model = PrivateRidge(
        2.0, 1e-5, max_rows_per_group=2, feature_bound=1.2, target_bounds=(-2, 2), solver="newton"
    )
    stated = model.fit(X, y, groups=np.arange(600) // 2).privacy_
    assert stated.guarantee.unit == "user"
    assert np.isfinite(model.coef_).all()


# -- the automatic choice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "n", "p", "l2", "expected"),
    [
        ("squared", 300, 5, None, NoisyNewton),
        ("squared", 300, 5, 0.1, NoisyNewton),
        ("squared", 10**7, 5, None, SufficientStatistics),  # noise hardly matters
        ("squared", 10**5, 1500, None, NoisyGradientDescent),
        ("huber", 300, 5, None, NoisyNewton),
        ("huber", 300, 5, 0.1, ObjectivePerturbation),
        ("quantile", 300, 5, None, NoisyNewton),
        ("quantile", 10**7, 5, None, NoisyGradientDescent),
        ("poisson", 300, 5, None, NoisyNewton),
    ],
)
def test_auto_follows_the_documented_rule(loss, n, p, l2, expected):
    chosen = AutomaticChoice().plan(Problem(LOSSES[loss], BOUNDS, n, p, 1, l2), Guarantee(1.0, 1e-6))
    assert chosen.reason.startswith(expected.name)


def test_auto_without_delta_is_a_minimizer():
    plan = PrivateRidge(1.0, 0.0, target_bounds=(0, 1)).plan(1000, 3)
    assert "objective" in plan.reason
    assert plan.guarantee.delta == 0


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_it_cannot_do_is_refused_before_any_charge():
    with pytest.raises(ValueError, match="l2 is not supported"):
        PrivateHuberRegressor(1.0, 1e-6, l2=0.1, target_bounds=(0, 1), solver="newton").plan(100, 3)
    with pytest.raises(ValueError, match="delta > 0"):
        PrivateRidge(1.0, 0.0, target_bounds=(0, 1), solver="newton").plan(100, 3)
    with pytest.raises(ValueError, match="does not support the loss Linear"):
        NoisyNewton().plan(Problem(Linear(), BOUNDS, 100, 3), Guarantee(1.0, 1e-6))
    with pytest.raises(ValueError, match="one regression"):
        NoisyNewton().plan(Problem(LOSSES["squared"], BOUNDS, 100, 3, n_models=2), Guarantee(1.0, 1e-6))
    for name, value in (
        ("moment_share", 1.0),
        ("clip", 0.0),
        ("cap", 3.0),
        ("radius", math.inf),
        ("n_iterations", 0),
    ):
        with pytest.raises((ValueError, TypeError), match=name):
            plan_for(**{name: value})


def test_no_method_keeps_r2_near_zero_with_so_few_records():
    """The lower bound of docs/decisions/0017: two laws of targets that privacy does not let anybody tell apart."""
    gaps = np.linspace(0.05, 2, 400)

    def least_loss(signal):
        apart = 2 * ndtr(gaps / 2) - 1
        return float(np.max(np.square(gaps / 2) * ndtr(-signal * apart / 2)))

    assert least_loss(4.0) == pytest.approx(0.086, abs=0.001)
    assert least_loss(6.0) == pytest.approx(0.032, abs=0.001)
    assert least_loss(8.0) == pytest.approx(0.017, abs=0.001)
    assert least_loss(7.0) > 0.02 > least_loss(8.0)
    # A constant with Gaussian noise for clipped targets is above the bound, and within a factor of ten of it.
    for signal in (4.0, 6.0, 8.0):
        assert least_loss(signal) < (1.5 / signal) ** 2 < 10 * least_loss(signal)


@pytest.mark.parametrize("bound", [2.0**-100, 2.0**-92])
def test_norms_that_become_too_short_are_refused_before_the_charge(bound, tmp_path):
    """Records are clipped to a norm that the noisy moments decide; below 2^-100 nothing can be computed."""
    ledger = Ledger(tmp_path / "budget", epsilon=100.0, delta=1e-3)
    X = np.random.default_rng(0).normal(size=(4000, 3)) * bound / 8
    model = PrivateLinearRegression(
        50.0, 1e-6, target_bounds=(-1.0, 1.0), feature_bound=bound, solver="newton", ledger=ledger
    )
    with pytest.raises(ValueError, match="must be at least"):
        model.fit(X, np.sign(X[:, 0]))
    assert not ledger.history()
