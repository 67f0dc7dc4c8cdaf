"""Ridge from noisy second moments: what is added against the noise, and where predictions go as noise grows."""

import numpy as np
import pytest

from discreet.losses import Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.second_order.coordinates import NoisyMoments
from discreet.solvers.statistics import SufficientStatistics, solve_ridge

UNSHRUNK = SufficientStatistics(prior_precision=0.0)


def planned(n, p, epsilon=1.0, *, solver=None, norm=1.0, intercept=True, l2=None, label=1.0):
    problem = Problem(Squared(label, label), Bounds(norm, intercept), n, p, l2=l2)
    return (solver or SufficientStatistics()).plan(problem, Guarantee(epsilon, 1e-6))


def records(n, p, mean=0.6, slope=0.0, seed=0):
    """Targets around a mean, which is not the middle of their bounds."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p)) * np.sqrt(3 / p)
    y = np.clip(mean + slope * X[:, 0] + 0.2 * rng.normal(size=n), -1, 1)
    return (
        ArrayRecords(X, y, Bounds(1.0)),
        np.hstack([X, np.ones((n, 1))]) / np.sqrt(1 + (X**2).sum(1))[:, None],
        y,
    )


def test_ridges_in_closed_form():
    """0.45 s sqrt(2 m) + 4 m s^2 / (n R^2) for a block of m columns; the constant is a block alone."""
    plan = planned(200, 6, norm=1.5, l2=0.01)
    s = plan.moments.gaussian.stddev
    for place, m in ((0, 5), (4, 5), (5, 1)):
        expected = 2.0 + 0.45 * s * np.sqrt(2 * m) + 4 * m * s**2 / (200 * 2.25)
        assert plan.ridges[place] == pytest.approx(expected, rel=1e-12)
    alone = planned(200, 6, norm=1.5, l2=0.01, intercept=False)
    expected = 2.0 + 0.45 * s * np.sqrt(12) + 24 * s**2 / (200 * 2.25)
    assert alone.ridges == pytest.approx(np.full(6, expected), rel=1e-12)


def test_ridges_follow_the_units_of_rows_and_not_those_of_targets():
    plain = planned(200, 6).ridges
    assert planned(200, 6, norm=3.0).ridges == pytest.approx(9 * plain, rel=1e-9)
    assert planned(200, 6, label=10.0).ridges == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("n_columns", [1, 7])
def test_the_prior_is_the_ridge_of_least_mean_squared_error(n_columns):
    """Columns that share the squared norm evenly, coefficients so wide that predictions are spread like a uniform law
    between the bounds, noise in the products alone: the error averaged over all three is least at precision 3."""
    n, bound = 50, 2.0
    solver = SufficientStatistics(ridge_per_noise=0.0, prior_precision=3.0)
    plan = planned(n, n_columns, solver=solver, intercept=False, norm=1.5, label=bound)
    share = n * 1.5**2 / n_columns
    width = bound**2 / 3 / n_columns / (share / n)  # variance of a coefficient
    noise = (plan.moments.gaussian.stddev / plan.moments.weight) ** 2

    def error(ridge):
        return (ridge**2 * width + noise) / (share + ridge) ** 2

    best = plan.ridges[0]
    assert error(best) < min(error(0.99 * best), error(1.01 * best))


def test_without_noise_it_is_ridge():
    found, rows, y = records(400, 3, slope=0.3)
    for l2 in (None, 0.05):
        plan = planned(400, 4, 1e9, l2=l2)
        assert (plan.ridges - (l2 or 0.0) * 400).max() < 1e-3
        exact = np.linalg.solve(rows.T @ rows + (l2 or 0.0) * 400 * np.eye(4), rows.T @ y)
        assert np.abs(plan.run([found], fresh_entropy()).theta[0] - exact).max() < 1e-4


def test_with_nothing_but_noise_predictions_are_in_the_middle():
    """Noise in a coefficient is at most s / ridge = n / (4 s) standard deviations; nine are a chance below 1e-17. With
    no prior it is as large as ever, because the ridge grows only as the noise does."""
    found, _, _ = records(20, 5)
    plan, twin = (planned(20, 6, 1e-3, solver=solver) for solver in (None, UNSHRUNK))
    smallest = 20 / (4 * plan.moments.gaussian.stddev)
    assert smallest < 1e-3
    norms = [np.linalg.norm(p.run([found], fresh_entropy()).theta) for p in (plan, twin) for _ in range(20)]
    assert max(norms[:20]) < (9 * np.sqrt(6) + 1e-3) * smallest
    assert np.median(norms[20:]) > 0.1


def test_the_mean_is_found_before_anything_else():
    """One release, solved with the constant apart and with a ridge that is the same for all: where noise in thirty
    columns drowns them, the mean is known all the same. Both limits are over six standard errors of 40 fits away."""
    found, rows, _ = records(150, 30)
    plan = planned(150, 31)
    apart, alike = [], []
    for _ in range(40):
        noisy = plan.moments.release(found, fresh_entropy())
        for ridges, errors in ((plan.ridges, apart), (np.full(31, plan.ridges[0]), alike)):
            errors.append(np.mean((rows @ solve_ridge(noisy, ridges) - 0.6) ** 2))
    assert np.mean(apart) < 0.36 / 10
    assert np.mean(alike) > 2 * np.mean(apart)


@pytest.mark.parametrize(("n", "epsilon"), [(30, 0.1), (100, 0.1), (30, 1.0)])
def test_few_rows_lose_less_than_without_the_prior(n, epsilon):
    """Mean squared error of 120 fits, with predictions clipped to the bounds. Their ratio is at most 0.21 on average,
    and the limit over seven standard errors away."""
    found, _, _ = records(n, 8, mean=0.1)
    _, rows, y = records(2000, 8, mean=0.1, seed=1)
    errors = []
    for solver in (None, UNSHRUNK):
        plan = planned(n, 9, epsilon, solver=solver)
        fits = [plan.run([found], fresh_entropy()).theta[0] for _ in range(120)]
        errors.append(np.mean([np.mean((np.clip(rows @ theta, -1, 1) - y) ** 2) for theta in fits]) - y.var())
    assert errors[0] < 0.6 * errors[1]


def test_a_singular_release_is_solved_by_the_shortest_coefficients():
    noisy = NoisyMoments(np.diag([2.0, 0.0, -1.0]), np.array([1.0, 1.0, 1.0]), 1.0, 1.0)
    assert solve_ridge(noisy, np.zeros(3)) == pytest.approx([0.5, 0.0, 0.0])
    assert solve_ridge(noisy, np.array([0.0, 2.0, 4.0])) == pytest.approx([0.5, 0.5, 0.25])


@pytest.mark.parametrize("name", ["ridge_per_noise", "prior_precision"])
@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
def test_impossible_ridges_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number of at least 0"):
        planned(100, 4, solver=SufficientStatistics(**{name: value}))
