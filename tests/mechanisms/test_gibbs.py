"""Correlated Gaussians on a grid: exact point masses, the right shape, and a true bound on what rounding adds."""

import math

import numpy as np
import pytest
import scipy.stats

from discreet.mechanisms.gibbs import LatticeGaussian, power_of_two_below
from discreet.mechanisms.samplers.entropy import fresh_entropy

FAILURE = 1e-8  # of a test with fresh noise


def proposal(p, seed=0, grid=2.0**-22):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(p, p))
    precision = matrix @ matrix.T / p + 0.5 * np.eye(p)
    return LatticeGaussian(rng.normal(size=p), np.linalg.cholesky(precision), grid), precision


def quadratic(law, theta):
    return 0.5 * np.square((theta - law.mean) @ law.factor).sum(axis=1)


@pytest.mark.parametrize("p", [1, 2, 7, 40])
def test_exponent_is_chi_square_and_close_to_the_quadratic_form(p):
    law, _ = proposal(p)
    theta, noise = law.draw(4000, fresh_entropy())
    exponent = law.exponent(noise)
    assert scipy.stats.kstest(2 * exponent, scipy.stats.chi2(p).cdf).pvalue > FAILURE
    assert np.all(exponent <= quadratic(law, theta) + law.excess(float(np.linalg.norm(theta, axis=1).max())))
    # Widths are rounded up by at most one part in the number of 256-step units.
    assert np.all(exponent >= quadratic(law, theta) * (1 - 4 / law.widths.min()) - 1e-3)


def test_points_lie_on_the_grid_and_have_the_right_covariance():
    law, precision = proposal(3, grid=2.0**-20)
    theta, _ = law.draw(40_000, fresh_entropy())
    assert np.all(theta / law.grid == np.rint(theta / law.grid))
    whitened = (theta - law.mean) @ np.linalg.cholesky(precision)
    for column in whitened.T:
        assert scipy.stats.kstest(column, scipy.stats.norm.cdf).pvalue > FAILURE
    correlation = np.corrcoef(whitened.T)[np.triu_indices(3, 1)]
    assert np.all(np.abs(correlation) < 6 / math.sqrt(40_000))


def test_exact_exponent_agrees_with_the_float():
    law, _ = proposal(5)
    _, noise = law.draw(20, fresh_entropy())
    for row, value in zip(noise, law.exponent(noise), strict=True):
        assert math.isclose(float(law.exact_exponent(row)), value, rel_tol=1e-14)


@pytest.mark.lemma("exponential-sampling.md#lemma-2")
def test_point_masses_are_exactly_those_of_the_exponent():
    """On a grid as coarse as its scale, counts can be compared with exp(-Q) point by point."""
    law = LatticeGaussian(np.array([0.3, -0.2]), np.array([[1.0, 0.0], [0.7, 1.3]]), 2.0**-6)
    theta, noise = law.draw(60_000, fresh_entropy())
    assert law.widths.tolist() == [1, 1]  # the least width: a standard deviation of 256 steps
    bins = np.floor_divide(noise, 64)
    cells, counts = np.unique(bins, axis=0, return_counts=True)
    steps = np.arange(-40 * 64, 40 * 64)
    masses = np.exp(-0.5 * (steps / 256) ** 2)
    masses /= masses.sum()
    one = {k: masses[np.floor_divide(steps, 64) == k].sum() for k in range(-40, 40)}
    expected = np.array([one[a] * one[b] for a, b in cells]) * len(theta)
    big = expected > 20
    statistic = float(np.sum((counts[big] - expected[big]) ** 2 / expected[big]))
    assert scipy.stats.chi2(int(big.sum())).sf(statistic) > FAILURE


@pytest.mark.parametrize(
    ("value", "power"), [(1.0, 1.0), (0.99, 0.5), (5.0, 4.0), (2.0**-30 * 1.5, 2.0**-30)]
)
def test_power_of_two_below(value, power):
    assert power_of_two_below(value) == power
