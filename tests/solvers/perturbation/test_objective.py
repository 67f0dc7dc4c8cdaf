"""Objective perturbation: the law of what is released, and that the optimizer cannot break it."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize as scipy_minimize

from discreet import insecure_noise
from discreet.losses import HuberHinge, Logistic, Softmax
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Discretized
from discreet.privacy.events import ObjectivePerturbation as ObjectiveEvent
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers import base
from discreet.solvers.perturbation.objective import DissertationRule, ObjectivePerturbation

GUARANTEE = Guarantee(1.0, 1e-5)


def problem(loss=None, n=500, p=3, radius=1.0, n_models=1, l2=None, intercept=False):
    return Problem(loss or Logistic(), Bounds(radius, intercept), n, p, n_models, l2)


def run(plan, X, y, seed):
    with insecure_noise(seed):
        return plan.run([ArrayRecords(X, y, plan.problem.bounds)], fresh_entropy()).theta


def test_without_data_the_release_is_pure_noise():
    """theta = -b / l2 plus the output noise: Gaussian with a known scale, and no other."""
    plan = ObjectivePerturbation().plan(problem(p=4), GUARANTEE)
    X, y = np.zeros((500, 4)), np.ones(500)
    draws = np.concatenate([run(plan, X, y, seed).ravel() for seed in range(400)])
    scale = math.hypot(plan.objective_noise.effective_stddev / plan.total_l2, plan.output.stddev)
    assert stats.kstest(draws / scale, "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(draws / (wrong * scale), "norm").pvalue < 1e-6


def test_law_in_one_dimension_is_the_exact_density():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(30, 1))
    y = np.sign(X.ravel() + 0.3 * rng.normal(size=30))
    plan = ObjectivePerturbation().plan(problem(n=30, p=1), Guarantee(2.0, 1e-2))
    draws = np.array([run(plan, X, y, seed).item() for seed in range(1500)])
    stddev, l2 = plan.objective_noise.effective_stddev, plan.total_l2
    # b(theta) is monotone, so the distribution function of the minimizer is that of b.
    theta = np.sort(draws)
    gradient = np.array([(X.ravel() * Logistic().derivative(y, X.ravel() * t)).sum() for t in theta])
    cdf = 1 - stats.norm.cdf(-(gradient + l2 * theta) / stddev)
    assert stats.kstest(cdf, "uniform").pvalue > 1e-3


def test_scaling_rows_scales_the_noise():
    small = ObjectivePerturbation().plan(problem(radius=1.0), GUARANTEE)
    large = ObjectivePerturbation().plan(problem(radius=3.0), GUARANTEE)
    assert large.stddev == pytest.approx(3 * small.stddev, rel=1e-6)
    assert large.total_l2 == pytest.approx(9 * small.total_l2, rel=1e-6)


def test_every_coordinate_is_regularized_and_perturbed():
    plan = ObjectivePerturbation().plan(problem(p=4, intercept=True), GUARANTEE)
    X, y = np.zeros((500, 3)), np.ones(500)
    draws = np.array([run(plan, X, y, seed)[0] for seed in range(60)])
    assert np.all(draws.std(axis=0) > 0.3 * plan.stddev / (plan.total_l2 + 500 / 4))


def worst_optimizer(fun, x0, jac=None, **_):
    """Stops as far from the minimum as it is allowed to, in a direction that depends on the data."""
    found = scipy_minimize(fun, x0, jac=jac, method="BFGS", options={"gtol": 1e-12}).x
    return found + 1e-3 * np.sign(jac(x0))


def lying_optimizer(fun, x0, jac=None, **_):
    return np.full_like(x0, np.nan)


def failing_optimizer(fun, x0, jac=None, **_):
    raise RuntimeError("no convergence")


@pytest.mark.parametrize(
    "optimizer", [worst_optimizer, lying_optimizer, failing_optimizer, "newton", "lbfgs", "newton-cg"]
)
def test_any_optimizer_ends_within_the_verified_tolerance(optimizer):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    y = np.sign(X[:, 0])
    reference = run(ObjectivePerturbation().plan(problem(), GUARANTEE), X, y, 7)
    plan = ObjectivePerturbation(optimizer=optimizer).plan(problem(), GUARANTEE)
    # Same noise: the two releases differ by at most both distances to the minimizer and a grid step.
    allowed = 2 * plan.gradient_tolerance / plan.total_l2 + 4 * plan.output.noise.grid
    assert np.linalg.norm(run(plan, X, y, 7) - reference) <= allowed


def with_tolerance(plan, tolerance):
    """The same plan, as if its minimizers were verified to another tolerance."""
    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    other = type(plan)(**fields)
    del vars(other)["output_sensitivity"]
    vars(other)["gradient_tolerance"] = tolerance
    return other


@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize(("loss", "n_models"), [(Logistic(), 1), (Logistic(), 3), (Softmax(4), 1)], ids=str)
@pytest.mark.lemma("gamma-noise.md#theorem-5")
def test_output_stage_hides_two_tolerances_and_the_grid(loss, n_models, delta):
    """2 (tolerance + half a grid step per coordinate) / l2, and sqrt(K) of it for K models."""
    plan = ObjectivePerturbation().plan(problem(loss, n_models=n_models), Guarantee(1.0, delta))
    half_step = plan.objective_noise.grid / 2 * math.sqrt(3 * loss.n_outputs)
    for tolerance in (plan.gradient_tolerance, 2 * plan.gradient_tolerance, 1e3 * half_step):
        declared = with_tolerance(plan, tolerance).output_sensitivity.value
        distance = 2 * (tolerance + half_step) / plan.total_l2 * math.sqrt(n_models)
        assert declared == pytest.approx(distance, rel=1e-12)


def test_minimizers_at_opposite_ends_of_the_tolerance_attain_the_output_sensitivity():
    """Without data the minimizer is -b / l2; an optimizer may stop a tolerance from it, on either side."""
    plan, ends = ObjectivePerturbation().plan(problem(), GUARANTEE), []
    for side in (1, -1):

        def far_end(fun, x0, jac=None, side=side, **_):
            step = side * plan.gradient_tolerance * np.ones_like(x0) / math.sqrt(len(x0))
            return (0.999 * step - jac(np.zeros_like(x0))) / plan.total_l2

        recorder = Recorder()
        with recorded_by(recorder):
            run(dataclasses.replace(plan, optimizer=far_end), np.zeros((500, 3)), np.ones(500), 7)
        ends.append(recorder.calls[1].value)
    assert 0.998 < np.linalg.norm(ends[0] - ends[1]) / plan.output.sensitivity.value <= 1


@pytest.mark.parametrize(
    ("loss", "n_models", "n_outputs"),
    [(Logistic(), 1, 1), (HuberHinge(0.5), 3, 3), (Softmax(4), 1, 4)],
    ids=str,
)
def test_the_charge_is_that_of_the_run(loss, n_models, n_outputs):
    """Noise over R L (over R of a softmax), R^2 over the ridge, and one objective, or one class, after another."""
    plan = ObjectivePerturbation().plan(problem(loss, radius=2.0, n_models=n_models), GUARANTEE)
    recorder = Recorder()
    with insecure_noise(7), recorded_by(recorder):
        records = ArrayRecords(np.zeros((500, 3)), np.ones(500), plan.problem.bounds)
        plan.run([records] * n_models, fresh_entropy())
    *drawn, released = recorder.calls
    assert len(drawn) == n_models
    for draw in drawn:
        assert plan.stddev <= draw.scale <= plan.stddev * (1 + 2**-20)
    output_mu = 1 / released.event.event.noise_multiplier
    event = ObjectiveEvent(
        loss.family, plan.stddev / 2.0, 4.0 / plan.total_l2, loss.smoothness, output_mu, n_outputs
    )
    assert plan.event == Discretized(event, 2 * 3 * n_outputs)


def test_gradient_shift_between_neighbors_is_within_the_record_bound():
    rng = np.random.default_rng(2)
    bounds = Bounds(1.0, True)
    for _ in range(50):
        X = 5 * rng.normal(size=(20, 3))
        y = np.sign(rng.normal(size=20))
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = -X[0], y[0]
        theta = 10 * rng.normal(size=4)
        for loss in (Logistic(), HuberHinge(0.5)):
            gradients = [
                ArrayRecords(a, b, bounds).value_and_gradient(loss, theta)[1] for a, b in ((X, y), (X2, y2))
            ]
            assert np.linalg.norm(gradients[0] - gradients[1]) <= 2.0 + 1e-9


def test_worst_pair_attains_the_record_bound():
    theta = np.array([-1e3, 0.0])
    X = np.array([[1.0, 0.0]])
    gradients = [
        ArrayRecords(rows, [1.0], Bounds(1.0, False)).value_and_gradient(HuberHinge(0.5), point)[1]
        for rows, point in ((X, theta), (-X, -theta))
    ]
    assert np.linalg.norm(gradients[0] - gradients[1]) == pytest.approx(2.0, rel=1e-9)


def test_dissertation_rule_is_as_printed_and_private():
    plan = DissertationRule().plan(problem(n=45_000, p=100), Guarantee(1.0, 1 / 45_000**2))
    assert plan.stddev == pytest.approx(16.83, rel=1e-3)  # the printed constant at epsilon 1
    assert accountants.delta(plan.event, 1.0, Neighboring.REPLACE_ONE) <= plan.guarantee.delta
    ours = ObjectivePerturbation().plan(problem(n=45_000, p=100), plan.guarantee)
    assert ours.stddev < plan.stddev / 1.3
    plan = DissertationRule().plan(problem(n=45_000, p=100), Guarantee(0.1, 1 / 45_000**2))
    assert plan.stddev == pytest.approx(163.6, rel=1e-3)


def test_dissertation_rule_splits_over_classes():
    plan = DissertationRule().plan(problem(n=1000, p=5, n_models=3), GUARANTEE)
    assert accountants.delta(plan.event, 1.0, Neighboring.REPLACE_ONE) <= 1e-5
    with pytest.raises(ValueError, match="one-vs-rest"):
        DissertationRule().plan(problem(Softmax(3)), GUARANTEE)


def test_user_ridge_is_respected_unless_privacy_needs_more():
    strong = ObjectivePerturbation().plan(problem(l2=1.0), GUARANTEE)
    assert strong.total_l2 == 500.0
    weak = ObjectivePerturbation().plan(problem(l2=1e-9), GUARANTEE)
    assert weak.total_l2 == pytest.approx(2.5)


def test_event_counts_every_variate():
    plan = ObjectivePerturbation().plan(problem(Softmax(4), p=7), GUARANTEE)
    assert isinstance(plan.event, Discretized)
    assert plan.event.variates == 2 * 7 * 4


def test_zero_columns_do_not_change_the_law_of_the_others():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    y = np.sign(X[:, 0])
    plan = ObjectivePerturbation(prediction_noise=1.0).plan(problem(n=300, p=2), GUARANTEE)
    wide = ObjectivePerturbation(prediction_noise=1.0).plan(problem(n=300, p=6), GUARANTEE)
    assert wide.stddev == pytest.approx(plan.stddev, rel=1e-6)
    narrow = [run(plan, X, y, seed)[0, 0] for seed in range(300)]
    padded = [run(wide, np.hstack([X, np.zeros((300, 4))]), y, 1000 + seed)[0, 0] for seed in range(300)]
    assert stats.ks_2samp(narrow, padded).pvalue > 1e-3


def test_solvers_are_found_by_name():
    assert isinstance(base.resolve("objective"), ObjectivePerturbation)
    assert {"objective", "objective-dissertation"} <= set(base.names())
    with pytest.raises(ValueError, match=r"solver .* is unknown"):
        base.resolve("nonsense")
    with pytest.raises(TypeError, match="solver"):
        base.resolve(42)


def test_the_gamma_of_the_dissertation_trades_passes_for_output_noise():
    rule = ObjectivePerturbation().plan(problem(), GUARANTEE)
    coarse = ObjectivePerturbation(gradient_tolerance=100 * rule.gradient_tolerance).plan(
        problem(), GUARANTEE
    )
    assert coarse.gradient_tolerance == 100 * rule.gradient_tolerance
    assert coarse.stddev == rule.stddev  # the objective's noise is the same
    assert 90 < coarse.output.stddev / rule.output.stddev < 110
    strict = ObjectivePerturbation(gradient_tolerance=1e-300).plan(problem(), GUARANTEE)
    assert 0 < strict.gradient_tolerance <= rule.gradient_tolerance  # what double precision can verify


def test_the_split_between_objective_and_output_is_a_setting():
    rule = ObjectivePerturbation().plan(problem(), GUARANTEE)
    even = ObjectivePerturbation(output_share=0.7).plan(problem(), GUARANTEE)
    assert even.stddev > 1.2 * rule.stddev
    assert even.output_mu == pytest.approx(28 * rule.output_mu)
    for plan in (rule, even):
        price = accountants.delta(plan.event, GUARANTEE.epsilon, GUARANTEE.neighboring)
        assert 0.99 * GUARANTEE.delta <= price <= GUARANTEE.delta


@pytest.mark.parametrize(
    ("solver", "guarantee", "message"),
    [
        (ObjectivePerturbation(output_share=1.0), GUARANTEE, "output_share must lie between"),
        (ObjectivePerturbation(gradient_tolerance=0.0), GUARANTEE, "gradient_tolerance must be"),
        (ObjectivePerturbation(gradient_tolerance=1.0), Guarantee(1.0), "leave it at None where delta = 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(solver, guarantee, message):
    with pytest.raises(ValueError, match=message):
        solver.plan(problem(), guarantee)
