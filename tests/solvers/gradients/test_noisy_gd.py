"""Noisy gradient descent: sensitivities that are attained, exact prices, known laws, limits, and broken twins."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from discreet import PrivateLinearSVC, PrivateLogisticRegression, insecure_noise
from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.losses import CappedLogistic, CappedSoftmax, Hinge, HuberHinge, Linear, Logistic, Softmax
from discreet.losses.classification import logistic_gap
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.gaussian import gaussian_epsilon
from discreet.privacy.events import Discretized, Gaussian, Repeated, Subsampled
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import Box, L1Ball, L2Ball, Simplex
from discreet.solvers import base
from discreet.solvers.base import gradient_sensitivity
from discreet.solvers.gradients.descent import Descent
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent, NoisySGD, project

REPLACE, ADD, ZERO = Neighboring.REPLACE_ONE, Neighboring.ADD_REMOVE_ONE, Neighboring.ZERO_OUT
PROMISE = Guarantee(1.0, 1e-6)


def problem(loss=None, n=1000, p=4, feature_norm=1.0, **kwargs):
    return Problem(loss or Logistic(), Bounds(feature_norm, intercept=False), n, p, **kwargs)


def gradient(loss, row, label, theta):
    records = ArrayRecords(np.atleast_2d(row), [label], Bounds(1.0, intercept=False))
    return records.value_and_gradient(loss, theta)[1]


def blobs(n=4000, p=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) / np.sqrt(p)
    return X, np.argmax(X @ rng.normal(size=(p, n_classes)) + 0.2 * rng.normal(size=(n, n_classes)), axis=1)


# -- sensitivity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tau", "value"),
    [
        (0.25, 1.007665),
        (0.5, 1.029109),
        (1, 1.099095),
        (2, 1.269841),
        (3, 1.418958),
        (5, 1.617278),
        (10, 1.820845),
    ],
)
def test_logistic_gap_has_the_published_values(tau, value):
    assert logistic_gap(tau) == pytest.approx(value, abs=1e-6)


def test_logistic_gap_at_the_ends():
    assert logistic_gap(0.0) == pytest.approx(1.0, abs=1e-9)
    assert 1.99 < logistic_gap(1e4) <= 2.0


@pytest.mark.parametrize("tau", [0.5, 2.0, 6.0])
def test_no_two_records_move_the_gradient_further_than_the_gap(tau):
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(20_000, 2, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    theta = tau * np.array([1.0, 0.0, 0.0])
    slopes = 1 / (1 + np.exp(directions @ theta))
    gradients = -slopes[..., None] * directions
    largest = np.linalg.norm(gradients[:, 0] - gradients[:, 1], axis=1).max()
    assert 0.97 * logistic_gap(tau) < largest <= logistic_gap(tau)


@pytest.mark.parametrize("tau", [0.5, 2.0, 6.0])
@pytest.mark.lemma("gradient-methods.md#theorem-1")
def test_the_gap_is_attained_by_two_rows(tau):
    s = np.linspace(0, 1, 100_001)
    best = s[np.argmax(np.sqrt(1 - s**2) / (1 + np.exp(-tau * s)))]
    side = math.sqrt(1 - best**2)
    theta = np.array([tau, 0.0])
    one, two = (gradient(Logistic(), [-best, sign * side], 1.0, theta) for sign in (1, -1))
    assert np.linalg.norm(one - two) == pytest.approx(logistic_gap(tau), rel=1e-6)
    # a twin that forgets the factor of the replace relation is caught by this very pair
    assert np.linalg.norm(one - two) > gradient_sensitivity(Logistic(), 1.0, tau, ZERO).value


@pytest.mark.parametrize("loss", [CappedLogistic(0.6), HuberHinge(0.5)], ids=str)
@pytest.mark.parametrize("relation", [REPLACE, ZERO])
@pytest.mark.lemma("gradient-methods.md#theorem-2")
@pytest.mark.lemma("gradient-methods.md#section-2")
def test_bounded_derivatives_attain_their_sensitivity(loss, relation):
    theta = np.array([-30.0, 0.0])
    one = gradient(loss, [1.0, 0.0], 1.0, theta)
    other = gradient(loss, [1.0, 0.0], -1.0, -theta) if relation is REPLACE else np.zeros(2)
    bound = gradient_sensitivity(loss, 1.0, 30.0, relation).value
    assert np.linalg.norm(one) == pytest.approx(loss.lipschitz)
    assert np.linalg.norm(one - other) <= bound
    assert bound == pytest.approx(relation.contributions * loss.lipschitz, rel=1e-9)


def test_capped_softmax_moves_at_most_by_its_cap():
    rng = np.random.default_rng(1)
    loss = CappedSoftmax(5, 0.4)
    derivatives = loss.derivative(rng.integers(5, size=2000), 10 * rng.normal(size=(2000, 5)))
    norms = np.linalg.norm(derivatives, axis=1)
    assert norms.max() <= 0.4 * (1 + 1e-12)
    assert norms.max() > 0.399
    steps = rng.normal(size=(2000, 5)) * 1e-4
    raw, labels = 3 * rng.normal(size=(2000, 5)), rng.integers(5, size=2000)
    change = np.linalg.norm(loss.derivative(labels, raw + steps) - loss.derivative(labels, raw), axis=1)
    assert np.all(change <= loss.smoothness * np.linalg.norm(steps, axis=1) * (1 + 1e-6))


def test_a_cap_bounds_what_a_record_does_to_the_gradients_of_a_run():
    """At zero coefficients a logistic derivative is 1/2: two opposite rows attain a cap below that, and no more."""
    plan = NoisyGradientDescent(n_iterations=2, radius=3.0, cap=0.3).plan(problem(n=20), PROMISE)
    X, y = np.zeros((20, 4)), np.ones(20)
    X[0, 0] = 1.0
    found = replay(running(plan), *([ArrayRecords(sign * X, y, plan.problem.bounds)] for sign in (1, -1)))
    assert found.passed, str(found)
    assert found.worst_input_ratio == pytest.approx(1.0, rel=1e-9)


def test_declared_sensitivity_includes_rounding():
    plan = NoisyGradientDescent(radius=3.0, cap=1.0).plan(problem(), PROMISE)
    exact = gradient_sensitivity(Logistic(), 1.0, 3.0, REPLACE).value
    assert exact < plan.release.sensitivity.value < exact * (1 + 1e-6)


# -- price ---------------------------------------------------------------------------------------------------


def test_price_is_that_of_one_gaussian_with_all_steps():
    plan = NoisyGradientDescent(n_iterations=64).plan(problem(), PROMISE)
    mu = math.sqrt(64) * plan.release.sensitivity.value / plan.release.stddev
    assert gaussian_epsilon(mu, 1e-6) == pytest.approx(1.0, rel=1e-4)


def test_sampled_steps_are_priced_as_sampled():
    promise = Guarantee(1.0, 1e-6, ZERO)
    full = NoisyGradientDescent(n_iterations=100).plan(problem(), promise)
    sampled = NoisySGD(sampling_rate=0.05, n_iterations=100).plan(problem(), promise)
    assert sampled.noise_multiplier < 0.2 * full.noise_multiplier
    assert accountants.delta(sampled.event, 1.0, ZERO) <= promise.delta
    # a twin that charges the steps without their sampling would be refused by the accountant
    assert accountants.delta(full.event, 1.0, ZERO) <= promise.delta
    assert sampled.noise_multiplier / 0.05 == pytest.approx(full.noise_multiplier, rel=0.6)


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_the_charge_names_the_steps_the_rate_and_the_noise_of_the_run(rate):
    """What is charged is what runs: as many calls, each on a sample of the rate, with the noise of the event."""
    X, y = blobs(200)
    plan = NoisySGD(sampling_rate=rate, n_iterations=7).plan(problem(n=200), Guarantee(1.0, 1e-6, ZERO))
    one = Discretized(Gaussian(plan.noise_multiplier), 4)
    assert plan.event == Repeated(one if rate == 1 else Subsampled(one, rate), 7)
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        plan.run([ArrayRecords(X, 2.0 * y - 1, plan.problem.bounds)], fresh_entropy())
    assert [call.event for call in recorder.calls] == [one] * 7
    assert [(sample.rate, sample.before) for sample in recorder.samples] == (
        [(rate, k) for k in range(7)] if rate < 1 else []
    )


@pytest.mark.parametrize("kind", ["plain", "leveled"])
def test_the_gradients_of_several_models_move_together(kind):
    """One row that every model gets wrong moves all of their gradients: sqrt(K) times as far as one's."""
    one, three = (
        NoisyGradientDescent(radius=3.0, cap=1.0, level_rows=kind == "leveled").plan(
            problem(n_models=k), PROMISE
        )
        for k in (1, 3)
    )
    moved = one.release.sensitivity.value
    assert three.release.sensitivity.value == pytest.approx(math.sqrt(3) * moved, rel=1e-12)
    assert three.release.size == 3 * one.release.size


def test_poisson_sampling_is_refused_under_replace_one():
    with pytest.raises(ValueError, match="zero-out and add-remove-one only"):
        NoisySGD().plan(problem(), PROMISE)


# -- law -----------------------------------------------------------------------------------------------------


def null_records(n=50, p=1):
    return ArrayRecords(np.zeros((n, p)), np.ones(n), Bounds(1.0, intercept=False), np.ones(n, dtype=bool))


@pytest.mark.lemma("gradient-methods.md#theorem-3")
def test_noise_has_exactly_the_planned_law():
    plan = NoisyGradientDescent(n_iterations=1, learning_rate=1.0, momentum=0.0, radius=1e6, cap=1.0).plan(
        problem(n=50, p=2000), PROMISE
    )
    theta = plan.run([null_records(p=2000)], fresh_entropy()).theta.ravel()
    scale = plan.release.stddev / 50
    assert stats.kstest(theta, "norm", args=(0, scale)).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(theta, "norm", args=(0, scale * wrong)).pvalue < 1e-6


def test_without_signal_the_walk_is_the_known_random_walk():
    plan = NoisyGradientDescent(
        n_iterations=9, learning_rate=1.0, momentum=0.0, radius=1e6, cap=1.0, averaging=0.01
    ).plan(problem(n=50, p=3000), PROMISE)
    theta = plan.run([null_records(p=3000)], fresh_entropy()).theta.ravel()
    assert stats.kstest(theta, "norm", args=(0, 3 * plan.release.stddev / 50)).pvalue > 1e-4


def test_sampled_gradients_are_divided_by_the_expected_batch_size():
    """All records alike: a twin that divides by the true batch size would give a constant."""
    n, rate = 400, 0.25
    X, y = np.full((n, 1), 1.0), np.ones(n)
    plan = NoisySGD(
        sampling_rate=rate, n_iterations=1, learning_rate=1.0, momentum=0.0, radius=10.0, cap=1.0
    ).plan(problem(n=n, p=1), Guarantee(1e6, 1e-6, ZERO))
    records = [ArrayRecords(X, y, Bounds(1.0, intercept=False))]
    moved = np.array([plan.run(records, fresh_entropy()).theta.item() for _ in range(300)])
    sizes = moved * 2 * n * rate  # each record's slope is 1/2
    assert sizes.mean() == pytest.approx(n * rate, abs=4 * math.sqrt(n * rate * (1 - rate) / 300))
    assert sizes.std() == pytest.approx(math.sqrt(n * rate * (1 - rate)), rel=0.25)


def test_every_gradient_is_asked_inside_the_ball(monkeypatch):
    asked = []
    original = ArrayRecords.gradient
    monkeypatch.setattr(
        ArrayRecords,
        "gradient",
        lambda self, loss, at: asked.append(at) or original(self, loss, at),
    )
    X, y = blobs(300)
    solver = NoisyGradientDescent(radius=0.5, learning_rate=20.0, momentum=0.9, n_iterations=30)
    PrivateLogisticRegression(epsilon=5.0, classes=[0, 1], solver=solver).fit(X, y)
    assert len(asked) == 30
    assert max(np.linalg.norm(at) for at in asked) <= 0.5 * (1 + 1e-12)


def test_projection():
    theta = np.array([[3.0, 4.0], [0.3, 0.4], [np.inf, 0.0]])
    assert np.allclose(project(theta, 1.0), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])


# -- limits, refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_it_finds_what_scikit_learn_finds(n_classes):
    X, y = blobs(n_classes=n_classes)
    l2 = 0.01
    solver = NoisyGradientDescent(
        n_iterations=600, learning_rate=2.0, momentum=0.95, cap=math.sqrt(2), averaging=0.1
    )
    model = PrivateLogisticRegression(
        epsilon=1e8, feature_bound=5.0, l2=l2, classes=range(n_classes), fit_intercept=False, solver=solver
    ).fit(X, y)
    reference = LogisticRegression(C=1 / (l2 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        X, y
    )
    assert np.abs(model.coef_ - reference.coef_).max() < 1e-3


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one", "zero-out"])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_defaults_learn(relation, kind, n_classes):
    X, y = blobs(8000, n_classes=n_classes)
    model = kind(
        epsilon=2.0, neighboring=relation, n_samples=8000, classes=range(n_classes), solver="noisy-gd"
    )
    reference = LogisticRegression().fit(X, y).score(X, y)
    assert model.fit(X, y).score(X, y) > reference - 0.04


def test_dense_and_sparse_agree():
    from scipy import sparse

    X, y = blobs(500)
    coefficients = []
    for rows in (X, sparse.csr_matrix(X)):
        with insecure_noise(3):
            coefficients.append(
                PrivateLogisticRegression(classes=[0, 1], solver="noisy-gd").fit(rows, y).coef_
            )
    assert np.abs(coefficients[0] - coefficients[1]).max() < 1e-5


def test_what_is_not_proved_is_refused():
    with pytest.raises(ValueError, match="requires delta > 0"):
        NoisyGradientDescent().plan(problem(), Guarantee(1.0))
    with pytest.raises(ValueError, match="whose derivative jumps"):
        NoisyGradientDescent().plan(problem(Hinge()), Guarantee(1.0, 1e-6, ADD))
    with pytest.raises(ValueError, match="cap applies to logistic"):
        NoisyGradientDescent(cap=0.5).plan(problem(HuberHinge()), PROMISE)
    for bad in ({"n_iterations": 0}, {"momentum": 1.0}, {"radius": -1.0}, {"averaging": 0.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            NoisyGradientDescent(**bad).plan(problem(), PROMISE)


def test_plan_prints_and_reads_no_data():
    text = str(NoisyGradientDescent().plan(problem(Softmax(3)), PROMISE))
    assert "noisy steps" in text
    assert "learning rate" in text


@pytest.mark.parametrize(
    ("printed", "tight"),
    [
        ("noisy-gd-dissertation", NoisyGradientDescent(100)),
        ("output-jain-thakurta", "output"),
        ("psgd-dissertation", "psgd"),
    ],
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_printed_calibrations_are_sound_and_noisier(printed, tight, epsilon):
    promise = Guarantee(epsilon, 1e-6)
    loose, exact = (base.resolve(solver).plan(problem(n=5000), promise) for solver in (printed, tight))
    assert accountants.delta(loose.event, epsilon, REPLACE) <= promise.delta
    assert loose.noise_multiplier >= exact.noise_multiplier
    if epsilon == 1.0:
        assert loose.noise_multiplier > 1.1 * exact.noise_multiplier


# -- sets and strong convexity -------------------------------------------------------------------------------

SETS = [L2Ball(0.5, 4), L1Ball(0.5, 4), Simplex(1.0, 4), Box((0.1,) * 4, (0.4,) * 4)]


@pytest.mark.parametrize("inside", SETS, ids=lambda inside: type(inside).__name__)
@pytest.mark.parametrize(
    "solver", [NoisyGradientDescent(), NoisySGD(sampling_rate=0.5)], ids=["full", "sampled"]
)
def test_over_a_set_every_gradient_is_asked_for_inside(inside, solver, monkeypatch):
    X, labels = blobs(500)
    task = problem(n=500, geometry=inside)
    plan = solver.plan(task, Guarantee(1.0, 1e-6, ZERO))
    asked = []
    original = ArrayRecords.gradient

    def watched(self, loss, theta):
        asked.append(np.array(theta))
        return original(self, loss, theta)

    monkeypatch.setattr(ArrayRecords, "gradient", watched)
    theta = plan.run([ArrayRecords(X, 2.0 * labels - 1, task.bounds)], fresh_entropy()).theta[0]
    assert len(asked) == plan.n_iterations
    assert max(np.linalg.norm(point - inside.project(point)) for point in [*asked, theta]) < 1e-12
    assert plan.radius == inside.radius(2.0)
    assert plan.release.sensitivity.value == pytest.approx(
        gradient_sensitivity(plan.field, 1.0, plan.radius, ZERO).value, rel=1e-6
    )


def test_over_a_set_without_noise_the_constrained_minimum_is_reached():
    """A logistic loss of rows along one axis: the minimizers over the box are one of its sides."""
    X = np.tile([[1.0, 0.0]], (1000, 1))
    task = problem(n=1000, p=2, geometry=Box((-1.0, 0.2), (0.5, 0.8)))
    plan = NoisyGradientDescent(cap=1.0).plan(task, Guarantee(1e8, 1e-6))
    theta = plan.run([ArrayRecords(X, np.ones(1000), task.bounds)], fresh_entropy()).theta[0]
    assert theta[0] == pytest.approx(0.5, abs=1e-6)
    assert 0.2 <= theta[1] <= 0.8


def test_a_softmax_in_a_set_is_not_centered():
    X, labels = blobs(500, n_classes=3)
    inside = Box((0.1,) * 12, (0.9,) * 12)
    task = problem(Softmax(3), n=500, geometry=inside)
    plan = NoisyGradientDescent().plan(task, PROMISE)
    theta = plan.run([ArrayRecords(X, labels, task.bounds)], fresh_entropy()).theta[0]
    assert np.linalg.norm(theta.ravel() - inside.project(theta.ravel())) < 1e-12
    assert np.abs(theta.mean(axis=1)).min() > 0.05  # the mean over the classes is not taken off


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"radius": 1.0}, "radius is that of the set"),
        ({"level_rows": True}, "in all of space"),
    ],
)
def test_what_does_not_go_with_a_set_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        NoisyGradientDescent(**settings).plan(problem(geometry=SETS[0]), PROMISE)


def test_strongly_convex_steps_and_weights_are_those_of_the_paper():
    """One coefficient, a slope of -1 and a ridge m: iterates and their average by hand, without noise."""
    strength, steps, rate = 0.5, 7, 0.9
    descent = Descent(steps, rate, 0.0, 1.0, 100.0, strength=strength)
    found = descent.run(np.zeros((1, 1)), lambda point: strength * point - 1.0)[0, 0]
    theta, iterates = 0.0, []
    for t in range(1, steps + 1):
        theta -= min(rate, 2 / (strength * (t + 1))) * (strength * theta - 1.0)
        iterates.append(theta)
    assert found == pytest.approx(np.average(iterates, weights=range(1, steps + 1)), rel=1e-12)


def test_strongly_convex_steps_keep_the_bound_and_beat_constant_noise():
    """The excess risk stays below 2 (G^2 + p s^2) / (m (T + 1)), and falls like 1 / T at a fixed noise per step."""
    rng, strength, p = np.random.default_rng(0), 0.2, 20
    optimum = np.full(p, 0.3)

    def risk(steps):
        total = 0.0
        for _ in range(50):
            descent = Descent(steps, 1.0, 0.0, 1.0, 5.0, strength=strength)
            found = descent.run(
                np.zeros((1, p)), lambda point: strength * (point - optimum) + rng.normal(size=point.shape)
            )
            total += strength / 2 * np.sum((found[0] - optimum) ** 2) / 50
        return total

    short, long = risk(100), risk(1600)
    steepest = strength * (5.0 + np.linalg.norm(optimum))
    for steps, value in ((100, short), (1600, long)):
        assert value <= 2 * (steepest**2 + p) / (strength * (steps + 1))
    slope = np.log(long / short) / np.log(16)
    assert slope == pytest.approx(-1.0, abs=0.15)


def test_the_strongly_convex_schedule_fits_near_the_ridge_minimizer():
    X, labels = blobs(20_000)
    solver = NoisyGradientDescent(schedule="strongly-convex", cap=1.0)
    model = PrivateLogisticRegression(
        1e6, 1e-6, l2=0.05, solver=solver, classes=[0, 1], feature_bound=3.0, fit_intercept=False
    ).fit(X, labels)
    exact = LogisticRegression(C=1 / (0.05 * len(X)), fit_intercept=False, tol=1e-10).fit(X, labels)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.02)


def test_the_price_does_not_depend_on_the_schedule():
    plans = [
        NoisyGradientDescent(n_iterations=30, schedule=schedule).plan(problem(l2=0.1), PROMISE)
        for schedule in ("constant", "strongly-convex")
    ]
    assert plans[0].event == plans[1].event


@pytest.mark.parametrize(
    ("l2", "settings", "words"),
    [
        (None, {}, "needs a ridge"),
        (0.1, {"momentum": 0.5}, "no momentum"),
        (0.1, {"schedule": "fast"}, "schedule"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(l2, settings, words):
    with pytest.raises(ValueError, match=words):
        NoisyGradientDescent(**{"schedule": "strongly-convex", **settings}).plan(problem(l2=l2), PROMISE)


def test_printed_steps_end_at_the_last_iterate_within_the_printed_bound():
    """Bassily, Smith and Thakurta's Algorithm 1; of a linear loss over a ball the minimum is known."""
    n, p = 2000, 3
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n, p)) / 4 + [0.3, 0.0, 0.0]
    records = ArrayRecords(X, np.ones(n), Bounds(1.0, intercept=False))
    mean = records.weighted_sum(np.ones(n)) / n
    task = Problem(Linear(), Bounds(1.0, intercept=False), n, p, geometry=L2Ball(2.0, p))
    solver = NoisyGradientDescent(schedule="square-root", n_iterations=100)
    plan = solver.plan(task, Guarantee(1.0, 1e-6))
    assert plan.event == NoisyGradientDescent(n_iterations=100).plan(task, Guarantee(1.0, 1e-6)).event
    assert [plan.descent._rate(t) for t in (0, 3)] == [plan.learning_rate, plan.learning_rate / 2]
    (theta,) = plan.run([records], fresh_entropy()).theta
    excess = 2.0 * np.linalg.norm(mean) - mean @ theta
    assert 0 <= excess <= 2 * 4.0 * (4.0 / plan.learning_rate) * (2 + np.log(100)) / 10
    assert excess < 0.2
    with pytest.raises(ValueError, match="needs one: pass constraint"):
        solver.plan(replace(task, geometry=None), Guarantee(1.0, 1e-6))
    with pytest.raises(ValueError, match="has no momentum"):
        replace(solver, momentum=0.9).plan(task, Guarantee(1.0, 1e-6))


def test_the_constant_may_take_the_time_in_which_noise_moves_it_by_a_half():
    """Few records: the walk of the constant is lengthened up to that noise; many, leveled or none: it is not."""
    bounds = Bounds(1.0, intercept=True)

    def plan(n, loss=None, bounds=bounds, n_features=20):
        return NoisyGradientDescent().plan(
            Problem(loss or Logistic(), bounds, n, n_features), Guarantee(0.1, 1e-6)
        )

    few = plan(300)
    assert few.pace > 1.5
    time = few.n_iterations * few.learning_rate / (1 - few.momentum)
    noise = few.release.stddev / (few.problem.n_samples * math.sqrt(few.n_iterations))  # per unit of time
    assert few.pace * time * noise == pytest.approx(0.5, rel=0.02)
    through = Bounds(1.0, intercept=False)
    others = plan(100_000), plan(300, Softmax(3)), plan(300, bounds=through), plan(300, n_features=2_000)
    assert [other.pace for other in others] == [1, 1, 1, 1]


def test_rare_classes_are_found_by_the_constant():
    """300 records, one in 33 of the rarer class, columns that tell nothing: 0.33 with one step size."""
    losses = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(300, 20)) / math.sqrt(20), (np.arange(300) < 9).astype(int)
        with warnings.catch_warnings(action="ignore"):
            model = PrivateLogisticRegression(0.3, 1e-6, classes=[0, 1], solver="noisy-gd").fit(X, y)
        p = model.predict_proba(rng.normal(size=(2_000, 20)) / math.sqrt(20))
        losses.append(-np.mean(0.97 * np.log(p[:, 0]) + 0.03 * np.log(p[:, 1])))
    assert np.mean(losses) < 0.31


def test_accumulated_noise_is_that_of_a_run_along_noise_alone() -> None:
    for momentum, averaging in ((0.0, 1.0), (0.9, 0.25)):
        descent = Descent(40, 0.3, momentum, averaging, 1e6)
        noise = iter(np.eye(40))
        reached = descent.run(np.zeros((1, 40)), lambda _, noise=noise: next(noise)[None])
        assert descent.accumulated() == pytest.approx(float(np.square(reached).sum()))
