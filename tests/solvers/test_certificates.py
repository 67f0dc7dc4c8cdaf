"""Certificates: plans state a bound on the excess risk before the data is seen, and runs stay below it."""

import math

import numpy as np
import pytest
from scipy.stats import chi, gamma

from discreet import PrivateLinearRegression, PrivateLogisticRegression
from discreet.losses import Logistic, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import L1Ball, L2Ball
from discreet.solvers import base
from discreet.solvers.certificates import NoiseNorm
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.sampling.exponential import ExponentialSampling

N, P = 2000, 3
RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-1, 1, size=(N, P)) / math.sqrt(P)
Y = np.where(RNG.random(N) < 1 / (1 + np.exp(-ROWS @ [3.0, -2.0, 0.0])), 1.0, -1.0)


def problem(geometry, loss=None):
    return Problem(loss or Logistic(), Bounds(1.0, intercept=False), N, P, geometry=geometry)


def records():
    return [ArrayRecords(ROWS, Y, Bounds(1.0, intercept=False))]


def risk(theta, loss=None):
    return float((loss or Logistic()).value(Y, ROWS @ theta).mean())


def least_risk(geometry, loss=None):
    """The least risk in the set, by projected gradient descent to convergence."""
    loss, theta = loss or Logistic(), np.zeros(P)
    for _ in range(1000):
        slope = loss.derivative(Y, ROWS @ theta)
        theta = geometry.project(theta - 2.0 * (slope @ ROWS) / N)
    return risk(theta, loss)


def excesses(plan, geometry, runs=12, loss=None):
    least = least_risk(geometry, loss)
    return np.array(
        [risk(plan.run(records(), fresh_entropy()).theta.ravel(), loss) - least for _ in range(runs)]
    )


@pytest.mark.parametrize("solver", ["objective", "output"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("geometry", [L2Ball(2.0, P), L1Ball(2.0, P)], ids=["L2", "L1"])
def test_perturbed_minimizers_stay_below_their_certificate(solver, delta, geometry):
    plan = base.resolve(solver).plan(problem(geometry), Guarantee(1.0, delta))
    found = excesses(plan, geometry)
    bound = plan.certificate
    assert found.min() > -1e-6
    assert found.mean() <= bound.expected < bound.likely
    assert np.mean(found <= bound.likely) >= 0.9
    assert "excess risk at most" in str(plan)
    assert plan.run(records(), fresh_entropy()).certificate == bound


def test_noisy_descent_stays_below_its_certificate():
    ball, loss = L2Ball(2.0, P), Squared(prediction_bound=2.0, label_bound=1.0)
    solver = NoisyGradientDescent(n_iterations=40, learning_rate=0.5, momentum=0.0, averaging=0.25)
    plan = solver.plan(problem(ball, loss), Guarantee(1.0, 1e-6))
    found = excesses(plan, ball, loss=loss)
    assert found.mean() <= plan.certificate.expected
    assert plan.certificate.expected == pytest.approx(
        16 / (2 * 0.5 * 10) + 0.5 * P * (plan.release.stddev / N) ** 2, rel=1e-3
    )
    for other in ({"momentum": 0.5}, {"learning_rate": 3.0}):  # nothing is proved for these
        settings = {"n_iterations": 40, "learning_rate": 0.5, "momentum": 0.0} | other
        assert (
            NoisyGradientDescent(**settings).plan(problem(ball, loss), Guarantee(1.0, 1e-6)).certificate
            is None
        )
    capped = NoisyGradientDescent(n_iterations=40, momentum=0.0, cap=0.3)
    assert capped.plan(problem(ball), Guarantee(1.0, 1e-6)).certificate is None


def test_exact_samples_stay_below_their_certificate():
    ball = L2Ball(2.0, P)
    plan = ExponentialSampling(clock=False).plan(problem(ball), Guarantee(1.0, 0.0))
    found = excesses(plan, ball)
    assert found.mean() <= plan.certificate.expected
    assert plan.certificate.expected == pytest.approx(P / (plan.rate * N), rel=1e-2)
    assert plan.certificate.likely == pytest.approx(gamma.ppf(0.95, P) / (plan.rate * N), rel=1e-2)
    assert np.mean(found <= plan.certificate.likely) >= 0.9


def test_norms_of_noise():
    plain, pure = NoiseNorm(4, 1.5, pure=False), NoiseNorm(4, 1.5, pure=True)
    assert plain.quantile(0.05) == pytest.approx(1.5 * chi.ppf(0.95, 4))
    assert plain.mean_square == pytest.approx(1.5**2 * 4)
    assert plain.mean >= 1.5 * chi.mean(4)
    assert pure.quantile(0.05) == pytest.approx(1.5 * gamma.ppf(0.95, 4))
    assert (pure.mean, pure.mean_square) == (6.0, pytest.approx(1.5**2 * 20))


def test_estimators_keep_the_certificate_and_auto_in_a_set_often_has_one():
    X, y = ROWS, (Y > 0).astype(int)
    model = PrivateLogisticRegression(
        1.0, 1e-6, classes=[0, 1], constraint=L2Ball(2.0, P + 1), solver="objective"
    ).fit(X, y)
    assert model.certificate_ == model.plan(N, P).certificate
    for delta in (1e-6, 0.0):
        model.set_params(solver="auto", delta=delta)
        assert model.plan(100_000, P).certificate.expected < 0.1  # the loss of the center is log 2
    targets = PrivateLinearRegression(1.0, 1e-6, target_bounds=(-1, 1), constraint=L2Ball(1.0, P + 1))
    assert targets.plan(100_000, P).certificate.expected < 0.1
    assert not hasattr(PrivateLogisticRegression(1.0, 0.0, classes=[0, 1]).fit(X, y), "certificate_")
