"""The exact Gaussian profile against quadrature, high precision, and formulas that fail."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from discreet.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, hockey_stick

TABLE_DELTA = 1 / 45000**2


@pytest.mark.parametrize(
    ("epsilon", "multiplier", "digits"),
    [(0.1, 51.46146, 5), (1, 5.61163, 5), (3, 1.9807, 4), (10, 0.66046, 5)],
)
def test_published_noise_multipliers(epsilon: float, multiplier: float, digits: int) -> None:
    assert round(1 / gaussian_mu(epsilon, TABLE_DELTA), digits) == multiplier


def test_published_mu() -> None:
    assert round(gaussian_mu(1.0, 1e-6), 6) == 0.236704


@pytest.mark.parametrize("threshold", [-2.0, -0.1, 0.0, 0.5, 3.0])
@pytest.mark.parametrize(("mean", "stddev"), [(0.02, 0.2), (0.5, 1.0), (1.0, 0.3), (-0.4, 2.0)])
def test_hockey_stick_is_its_integral(threshold: float, mean: float, stddev: float) -> None:
    integral, _ = quad(
        lambda x: -math.expm1(threshold - x) * norm.pdf(x, mean, stddev),
        threshold,
        max(threshold, mean) + 14 * stddev,
        points=[mean] if mean > threshold else None,
        epsabs=1e-14,
        limit=200,
    )
    assert float(hockey_stick(threshold, mean, stddev)) == pytest.approx(integral, rel=1e-8, abs=1e-13)


def test_profile_is_the_hockey_stick_of_its_loss() -> None:
    epsilon = np.linspace(-3, 5, 41)
    np.testing.assert_allclose(
        gaussian_delta(epsilon, 0.7), hockey_stick(epsilon, 0.7**2 / 2, 0.7), rtol=0, atol=0
    )


def test_no_spread_is_the_limit_of_little_spread() -> None:
    points = np.array([-1.0, 0.3, 0.5, 2.0])
    np.testing.assert_allclose(hockey_stick(points, 0.5, 0.0), hockey_stick(points, 0.5, 1e-9), atol=1e-8)
    np.testing.assert_allclose(gaussian_delta(points, 0.0), np.maximum(0, -np.expm1(points)))


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.1, 0.02), (1.0, 0.178), (0.01, 1e-3), (10.0, 1.5), (50.0, 3.0), (5.0, 40.0)]
)
def test_profile_has_its_digits_far_in_the_tail(epsilon: float, mu: float) -> None:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert float(gaussian_delta(epsilon, mu)) == pytest.approx(float(exact), rel=1e-11)


@pytest.mark.parametrize("delta", [TABLE_DELTA, 1e-5, 1e-2])
def test_the_classic_formula_fails_for_large_epsilon(delta: float) -> None:
    def honest(epsilon: float) -> bool:
        multiplier = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        return float(gaussian_delta(epsilon, 1 / multiplier)) <= delta

    assert honest(1.0)
    assert not honest(10.0)


@pytest.mark.parametrize(
    ("formula", "first"),
    [
        (lambda e, d: (1 + math.sqrt(2 * math.log(1 / d))) / e, 24.29),
        (lambda e, d: math.sqrt(2 * math.log(2 / d)) / e, 10.61),
        (lambda e, d: math.sqrt(2 * math.log(1.25 / d)) / e, 9.70),
    ],
)
def test_where_textbook_formulas_first_fail(formula, first: float) -> None:  # type: ignore[no-untyped-def]
    """The thresholds were found with 40 digits."""
    grid = np.arange(0.1, 30, 0.01)
    broken = [e for e in grid if float(gaussian_delta(e, 1 / formula(e, TABLE_DELTA))) > TABLE_DELTA]
    assert broken[0] == pytest.approx(first, abs=0.011)


def test_a_formula_proved_for_every_epsilon_holds() -> None:
    for epsilon in np.geomspace(0.01, 100, 60):
        multiplier = 2 * math.sqrt(math.log(1 / TABLE_DELTA) + epsilon) / epsilon
        assert float(gaussian_delta(epsilon, 1 / multiplier)) <= TABLE_DELTA


@given(st.floats(1e-3, 60), st.floats(-14, -0.5))
def test_mu_and_epsilon_are_inverse_and_on_the_private_side(epsilon: float, log_delta: float) -> None:
    delta = 10**log_delta
    mu = gaussian_mu(epsilon, delta)
    assert float(gaussian_delta(epsilon, mu)) <= delta
    assert float(gaussian_delta(epsilon, mu * (1 + 1e-6))) > delta
    back = gaussian_epsilon(mu, delta)
    assert float(gaussian_delta(back, mu)) <= delta
    assert back == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


def test_limits() -> None:
    assert gaussian_mu(1.0, 0.0) == 0.0
    assert gaussian_mu(1.0, 1.0) == math.inf
    assert gaussian_epsilon(0.0, 0.0) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(0.01, 0.5) == 0.0
