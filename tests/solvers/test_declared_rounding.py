"""What float64 does to sums is part of every declared sensitivity: at a million records it shows, and is all there."""

import math
from dataclasses import replace

import numpy as np
import pytest

from discreet.losses import CappedLogistic, HuberHinge, Linear, Logistic
from discreet.privacy.guarantee import Guarantee, Neighboring, acute_sum_sensitivity
from discreet.problem import Problem
from discreet.records.bounds import UNIT_ROUNDOFF, Bounds, gamma, gradient_rounding, summation_rounding
from discreet.sets import L2Ball
from discreet.solvers.base import computed_gradient_sensitivity, gradient_sensitivity
from discreet.solvers.class_sums.mechanism import ClassSumsMechanism
from discreet.solvers.gradients.psgd import PermutationSGD, drift
from discreet.solvers.gradients.row_centering import LeveledBounds, leveled, leveled_mechanism
from discreet.solvers.vertices.frank_wolfe_plan import gradient_sensitivity_over

N, P = 10**6, 20
REPLACE = Neighboring.REPLACE_ONE
PROBLEM = Problem(HuberHinge(), Bounds(2.0, intercept=False), N, P)


def close(value):
    """Up to the slack that pays for the formulas themselves."""
    return pytest.approx(value, rel=2.0**-38)


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=str)
def test_both_sums_of_gradients(loss):
    exact = gradient_sensitivity(loss, 2.0, 3.0, REPLACE).value
    rounding = gradient_rounding(loss, N, P, 2.0, 3.0)
    assert rounding > 1e-9 * exact
    assert computed_gradient_sensitivity(loss, N, P, 2.0, 3.0, REPLACE).value == close(exact + 2 * rounding)


def test_the_ridge_term():
    """Equal for neighbors, and rounded once more on either side."""
    ball, promise = L2Ball(3.0, P), Guarantee(1.0, 1e-6)
    free, ridge = (gradient_sensitivity_over(replace(PROBLEM, l2=l2), ball, promise) for l2 in (None, 0.5))
    assert ridge - free == pytest.approx(8 * UNIT_ROUNDOFF * N * (1.0 * 2.0 + 0.5 * 3.0), rel=1e-6)


@pytest.mark.parametrize(("n", "additions"), [(1000, 1000), (10**6, 2**17 + 10**6 // 128 + 64)])
def test_second_moments_round_once_per_addition(n, additions):
    """One after another in a block of at most 2^17 rows, then block by block."""
    assert summation_rounding(n, 4.0) == pytest.approx(1.01 * gamma(additions + 16) * n * 4.0)


def test_leveled_sums_and_the_leveling():
    problem = leveled(PROBLEM)
    longest = LeveledBounds.longest * 2.0
    rounding = gradient_rounding(Logistic(), N, P, longest, 3.0) + 1.02 * gamma(P + 8) * N * longest
    found = leveled_mechanism(problem, Logistic(), 3.0, REPLACE, 1.0).sensitivity.value
    assert found == close(2 * 2.0 + 2 * rounding)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_sums_of_every_class(n_classes):
    mechanism = ClassSumsMechanism(N, P, n_classes, 1.0, REPLACE, 1.0)
    norm = mechanism.bounds.feature_norm
    rounding = math.sqrt(n_classes) * gradient_rounding(Linear(), N, mechanism.width, norm, 0.0)
    exact = acute_sum_sensitivity(norm, REPLACE).value
    assert mechanism.gaussian.sensitivity.value == close(exact + 2 * rounding)


def test_every_step_of_both_runs():
    plan = PermutationSGD("constant", n_passes=2, batch_size=1000).plan(PROBLEM, Guarantee(1.0, 1e-6))
    exact = drift(plan.rates, 1000, jump=2 * 2.0 / 1000, l2=0.0, smoothness=PROBLEM.loss.smoothness * 4.0)
    reach = 2.0 * plan.rates.sum()  # no run gets further from its start
    gradient = gradient_rounding(PROBLEM.loss, 1000, P, 2.0, reach) / 1000
    rounding = np.sum(plan.rates * gradient + 8 * UNIT_ROUNDOFF * (reach + 2.0 * plan.rates))
    assert rounding > 1e-9 * exact
    assert plan.sensitivity.value == close(exact + 2 * rounding)


def test_nothing_sharper_is_claimed_of_a_cap_that_the_ball_reaches():
    """Only where the cap is never met is a capped derivative the logistic one, with its smaller gap."""
    met, unmet = (gradient_sensitivity(CappedLogistic(cap), 1.0, 1.0, REPLACE).value for cap in (0.6, 0.75))
    assert met == close(2 * 0.6)
    assert unmet == close(gradient_sensitivity(Logistic(), 1.0, 1.0, REPLACE).value)
