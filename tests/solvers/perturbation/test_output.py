"""Output perturbation: stability that is attained, exact prices, known laws, pure noise, limits."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from discreet import PrivateLinearSVC, PrivateLogisticRegression, insecure_noise
from discreet.losses import Hinge, HuberRegression, Logistic
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Pure
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.minimizers.minimizer import Objective, minimize
from discreet.solvers.perturbation.output import OutputPerturbation

RELATIONS = list(Neighboring)
BOUNDS = Bounds(1.0, intercept=False)


def problem(loss=None, n=200, p=3, **kwargs):
    return Problem(loss or Logistic(), BOUNDS, n, p, **kwargs)


def minimizer(X, y, loss, total_l2):
    return minimize(Objective(ArrayRecords(X, y, BOUNDS), loss, total_l2), 1e-7).theta


@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
@pytest.mark.lemma("gradient-methods.md#theorem-5")
def test_no_neighbor_moves_the_minimizer_further_than_declared(relation):
    rng = np.random.default_rng(0)
    n, total_l2 = 30, 2.0
    plan = OutputPerturbation().plan(problem(n=n, l2=total_l2 / n), Guarantee(1.0, 1e-6, relation))
    largest = 0.0
    for _ in range(60):
        X, y = rng.normal(size=(n, 3)), rng.choice([-1.0, 1.0], n)
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = (rng.normal(size=3), -y[0]) if relation is Neighboring.REPLACE_ONE else (0.0, 1.0)
        largest = max(
            largest,
            np.linalg.norm(minimizer(X, y, Logistic(), total_l2) - minimizer(X2, y2, Logistic(), total_l2)),
        )
    assert 0.1 * plan.sensitivity.value < largest <= plan.sensitivity.value


def test_sensitivity_is_attained_where_the_loss_is_linear():
    """Residuals beyond the width: the minimizer is the sum of +-width rows over l2, in closed form."""
    loss, total_l2 = HuberRegression(0.5), 4.0
    X, y = np.ones((5, 1)), np.full(5, 100.0)
    flipped = np.array([-100.0, 100, 100, 100, 100])
    moved = minimizer(X, y, loss, total_l2) - minimizer(X, flipped, loss, total_l2)
    assert minimizer(X, y, loss, total_l2).item() == pytest.approx(5 * 0.5 / total_l2, abs=1e-6)
    plan = OutputPerturbation().plan(problem(loss, n=5, p=1, l2=total_l2 / 5), Guarantee(1.0, 1e-6))
    assert plan.sensitivity.value == pytest.approx(np.linalg.norm(moved), rel=1e-3)
    assert np.linalg.norm(moved) <= plan.sensitivity.value
    # a twin calibrated for a record that vanishes, not one that is exchanged, is caught by this pair
    twin = OutputPerturbation().plan(
        problem(loss, n=5, p=1, l2=total_l2 / 5), Guarantee(1.0, 1e-6, Neighboring.ZERO_OUT)
    )
    assert np.linalg.norm(moved) > 1.9 * twin.sensitivity.value


def test_sensitivity_is_a_shift_and_twice_the_tolerance():
    """(S + 2 tolerance) / l2, and sqrt(K) of it for K models: twice the tolerance adds 2 tolerance / l2."""
    loss, total_l2 = HuberRegression(0.5), 4.0
    plan, loose, three = (
        OutputPerturbation().plan(problem(loss, n=5, l2=total_l2 / 5, n_models=k), Guarantee(1.0, 1e-6))
        for k in (1, 1, 3)
    )
    tolerance, shift = plan.gradient_tolerance, 2 * 0.5
    del vars(loose)["sensitivity"]
    vars(loose)["gradient_tolerance"] = 2 * tolerance
    assert plan.sensitivity.value == pytest.approx((shift + 2 * tolerance) / total_l2, rel=1e-11)
    assert loose.sensitivity.value - plan.sensitivity.value == pytest.approx(
        2 * tolerance / total_l2, rel=1e-7
    )
    assert three.sensitivity.value == pytest.approx(np.sqrt(3) * plan.sensitivity.value, rel=1e-12)


def test_minimizers_at_opposite_ends_of_the_tolerance_attain_the_sensitivity():
    """Whatever an optimizer does within the tolerance: here it stops as far out as it may, on either side."""
    total_l2, ends = 4.0, []
    plan = OutputPerturbation().plan(
        problem(HuberRegression(0.5), n=5, p=1, l2=total_l2 / 5), Guarantee(1.0, 1e-6)
    )
    for side in (1, -1):
        exact = (4 + side) * 0.5 / total_l2  # of four labels far above the line and one on either side

        def far_end(fun, x0, jac=None, exact=exact, side=side, **_):
            return np.full_like(x0, exact + 0.999 * side * plan.gradient_tolerance / total_l2)

        records = ArrayRecords(np.ones((5, 1)), np.array([side, 1, 1, 1, 1]) * 100.0, BOUNDS)
        recorder = Recorder()
        with insecure_noise(0), recorded_by(recorder):
            replace(plan, optimizer=far_end).run([records], fresh_entropy())
        ends.append(recorder.calls[0].value.item())
    moved = ends[0] - ends[1]
    assert 1 - 1e-6 < moved / plan.sensitivity.value <= 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_calibration_uses_the_whole_budget_and_no_more(relation):
    promise = Guarantee(0.7, 1e-8, relation)
    plan = OutputPerturbation().plan(problem(), promise)
    assert 0.99 * promise.delta <= accountants.delta(plan.event, 0.7, relation) <= promise.delta


def null_records(p):
    return [ArrayRecords(np.zeros((5, p)), np.ones(5), BOUNDS, np.ones(5, dtype=bool))]


def test_gaussian_noise_has_exactly_the_planned_law():
    plan = OutputPerturbation().plan(problem(n=5, p=2000, l2=1.0), Guarantee(1.0, 1e-6))
    theta = plan.run(null_records(2000), fresh_entropy()).theta.ravel()
    assert stats.kstest(theta, "norm", args=(0, plan.output.stddev)).pvalue > 1e-7
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(theta, "norm", args=(0, plan.output.stddev * wrong)).pvalue < 1e-6


@pytest.mark.lemma("gamma-noise.md#theorem-3")
def test_pure_noise_has_exactly_the_planned_law():
    """Its norm has the gamma law of as many degrees of freedom as there are coefficients."""
    plan = OutputPerturbation().plan(problem(n=5, p=6, l2=1.0), Guarantee(1.0))
    records, entropy = null_records(6), fresh_entropy()
    norms = [np.linalg.norm(plan.run(records, entropy).theta) for _ in range(1500)]
    assert stats.kstest(norms, stats.gamma(6, scale=plan.output.scale).cdf).pvalue > 1e-7
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norms, stats.gamma(6, scale=plan.output.scale * wrong).cdf).pvalue < 1e-12


def test_pure_noise_is_priced_as_pure():
    plan = OutputPerturbation().plan(problem(p=9), Guarantee(0.5))
    assert isinstance(plan.event, Pure)
    assert plan.event.epsilon <= 0.5
    assert plan.event.epsilon == pytest.approx(0.5, rel=1e-9)
    assert plan.output.sensitivity == plan.sensitivity  # in L2: no factor for the number of coefficients
    assert plan.output.scale == pytest.approx(2 * plan.sensitivity.value, rel=1e-6)


def test_huge_epsilon_equals_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4)) / 2
    y = (X @ rng.normal(size=4) > 0).astype(int)
    model = PrivateLogisticRegression(
        epsilon=1e8, feature_bound=5.0, l2=1e-3, classes=[0, 1], fit_intercept=False, solver="output"
    ).fit(X, y)
    reference = LogisticRegression(
        C=1 / (1e-3 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(X, y)
    assert np.abs(model.coef_ - reference.coef_).max() < 1e-2


@pytest.mark.parametrize("delta", [None, 0.0])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_defaults_learn(kind, delta):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) / 2
    y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    assert kind(epsilon=2.0, delta=delta, classes=[0, 1], solver="output").fit(X, y).score(X, y) > 0.9


def test_gaussian_noise_ignores_empty_columns_and_pure_noise_does_not():
    """Predictions feel |noise| in the direction of a row: the same for any number of columns, if it is Gaussian."""
    few, many = (OutputPerturbation().plan(problem(p=p, l2=0.1), Guarantee(1.0, 1e-6)) for p in (10, 10_000))
    assert many.output.stddev == pytest.approx(few.output.stddev, rel=1e-3)
    entropy, rows = fresh_entropy(), {10: 400, 1000: 40}
    spread = {
        p: np.std([OutputPerturbation().plan(problem(p=p, l2=0.1), Guarantee(1.0)).output.noise.draw(p, entropy)[:10]
                   for _ in range(repeats)])
        for p, repeats in rows.items()
    }  # fmt: skip
    # sqrt(1001 / 11) = 9.5; 400 draws of a heavy-tailed number, and 4000 of another
    assert 7 < spread[1000] / spread[10] < 13


def test_losses_with_corners_are_refused():
    with pytest.raises(ValueError, match="HuberHinge"):
        OutputPerturbation().plan(problem(Hinge()), Guarantee(1.0, 1e-6))
