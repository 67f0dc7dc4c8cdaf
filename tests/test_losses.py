"""Losses against finite differences, high precision, and their own declared constants."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from discreet.losses import HuberHinge, HuberRegression, Logistic, Loss, Softmax

BINARY = [Logistic(), HuberHinge(0.5), HuberHinge(0.05)]
SCALAR = [*BINARY, HuberRegression(1.0), HuberRegression(0.1)]


def labels_for(loss, size, rng):
    if isinstance(loss, HuberRegression):
        return rng.normal(0, 2, size)
    return rng.choice([-1.0, 1.0], size)


@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_derivatives_match_differences(loss):
    rng = np.random.default_rng(0)
    t, y = rng.normal(0, 3, 2000), labels_for(loss, 2000, rng)
    h = 1e-6
    slope = (loss.value(y, t + h) - loss.value(y, t - h)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(y, t), slope, atol=1e-6 * (1 + loss.smoothness))
    bend = (loss.derivative(y, t + h) - loss.derivative(y, t - h)) / (2 * h)
    smooth = loss.second_derivative(y, t + h) == loss.second_derivative(y, t - h)
    smooth |= isinstance(loss, Logistic)
    assert smooth.mean() > 0.99
    np.testing.assert_allclose(loss.second_derivative(y, t)[smooth], bend[smooth], atol=1e-6)


@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_constants_are_never_exceeded_and_attained(loss):
    t = np.concatenate([np.linspace(-60, 60, 200_001), [-1e300, 1e300, 0.0, 1.0, -1.0]])
    y = 0.0 if isinstance(loss, HuberRegression) else 1.0
    for label in (y, -y):
        slopes, bends = np.abs(loss.derivative(label, t)), loss.second_derivative(label, t)
        assert slopes.max() <= loss.lipschitz
        assert bends.max() <= loss.smoothness
        assert slopes.max() >= loss.lipschitz * (1 - 1e-12)
        assert bends.max() >= loss.smoothness * (1 - 1e-12)
        assert bends.min() >= 0
        assert loss.value(label, t).min() >= 0


@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_derivatives_increase(loss):
    t = np.linspace(-5, 5, 5001)
    for label in (1.0, -1.0):
        assert np.all(np.diff(loss.derivative(label, t)) >= 0)
        # No jump steeper than the declared smoothness.
        assert np.diff(loss.derivative(label, t)).max() <= loss.smoothness * (t[1] - t[0]) * (1 + 1e-9)


@pytest.mark.parametrize("loss", BINARY, ids=str)
def test_families_tell_the_truth_about_signs(loss):
    t = np.linspace(-40, 40, 4001)
    assert loss.family in ("logistic", "monotone")
    for label in (1.0, -1.0):
        assert np.all(loss.derivative(label, t) * label <= 0)


def test_a_general_family_is_declared_where_the_sign_changes():
    loss = HuberRegression(1.0)
    assert loss.family == "general"
    assert loss.derivative(0.0, -2.0) < 0 < loss.derivative(0.0, 2.0)


def test_logistic_agrees_with_high_precision():
    t = np.array([-800.0, -700.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 0.3, 5.0, 36.0, 700.0, 800.0])
    with mpmath.workdps(60):
        for label in (1.0, -1.0):
            for point in t:
                z = mpmath.mpf(label * point)
                derivative = float(Logistic().derivative(label, point))
                exact = -label / (1 + mpmath.exp(z))
                assert abs(derivative - exact) <= Logistic.evaluation_error * 2.0**-53
                value = float(Logistic().value(label, point))
                assert value == pytest.approx(float(mpmath.log1p(mpmath.exp(-z))), rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("width", [0.5, 0.05, 0.3])
def test_huber_hinge_is_evaluated_within_its_declared_error(width):
    loss = HuberHinge(width)
    limit = Fraction(loss.evaluation_error) / 2**53
    h = Fraction(width)
    for t in np.random.default_rng(3).normal(1, 2 * width, 500):
        exact = -min(Fraction(1), max(Fraction(0), (1 + h - Fraction(t)) / (2 * h)))
        assert abs(Fraction(float(loss.derivative(1.0, t))) - exact) <= limit


def test_huber_hinge_approaches_the_hinge():
    t = np.linspace(-3, 3, 601)
    np.testing.assert_allclose(HuberHinge(1e-6).value(1.0, t), np.maximum(0, 1 - t), atol=1e-6)


def test_softmax_gradient_hessian_and_constants():
    rng = np.random.default_rng(1)
    loss = Softmax(4)
    t, y = rng.normal(0, 3, (300, 4)), rng.integers(0, 4, 300)
    h = 1e-6
    for k in range(4):
        e = h * np.eye(4)[k]
        slope = (loss.value(y, t + e) - loss.value(y, t - e)) / (2 * h)
        np.testing.assert_allclose(loss.derivative(y, t)[:, k], slope, atol=1e-7)
        bend = (loss.derivative(y, t + e) - loss.derivative(y, t - e)) / (2 * h)
        np.testing.assert_allclose(loss.second_derivative(y, t)[:, k], bend, atol=1e-7)
    assert np.linalg.norm(loss.derivative(y, t), axis=1).max() <= loss.lipschitz
    eigenvalues = np.linalg.eigvalsh(loss.second_derivative(y, t))
    assert eigenvalues.min() >= -1e-15
    assert eigenvalues.max() <= loss.smoothness
    far = np.array([[0.0, 60.0, 0.0, 0.0]])
    assert np.linalg.norm(loss.derivative([0], far)) == pytest.approx(np.sqrt(2))
    halves = np.array([[50.0, 50.0, 0.0, 0.0]])
    assert np.linalg.eigvalsh(loss.second_derivative([0], halves)).max() == pytest.approx(0.5)


def test_softmax_is_evaluated_within_its_declared_error():
    loss = Softmax(5)
    rng = np.random.default_rng(2)
    limit = loss.evaluation_error * 2.0**-53 * loss.lipschitz
    with mpmath.workdps(50):
        for spread in (0.1, 3.0, 50.0, 1000.0):
            t = rng.normal(0, spread, 5)
            exact = [mpmath.exp(mpmath.mpf(v) - mpmath.mpf(t.max())) for v in t]
            total = sum(exact)
            computed = loss.derivative(2, t)
            errors = [exact[k] / total - (k == 2) - computed[k] for k in range(5)]
            assert mpmath.sqrt(sum(e * e for e in errors)) <= limit


def test_softmax_of_two_classes_is_logistic():
    t = np.linspace(-30, 30, 61)
    raw = np.stack([np.zeros_like(t), t], axis=1)
    ones = np.ones(61, dtype=int)
    np.testing.assert_allclose(Softmax(2).value(ones, raw), Logistic().value(1.0, t), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(
        Softmax(2).derivative(ones, raw)[:, 1], Logistic().derivative(1.0, t), atol=1e-15
    )


def test_softmax_does_not_overflow():
    raw = np.array([[1e300, -1e300, 0.0]])
    assert Softmax(3).value([0], raw)[0] == 0
    assert np.all(np.isfinite(Softmax(3).derivative([1], raw)))


@pytest.mark.parametrize("loss", [*SCALAR, Softmax(3)], ids=str)
def test_value_at_zero_is_public_or_infinite(loss):
    assert isinstance(loss, Loss)
    if isinstance(loss, HuberRegression):
        assert loss.value_at_zero == np.inf
    elif isinstance(loss, Softmax):
        assert loss.value([0], np.zeros((1, 3)))[0] <= loss.value_at_zero
    else:
        assert loss.value(1.0, 0.0) == loss.value(-1.0, 0.0)
        assert loss.value(1.0, 0.0) <= loss.value_at_zero * (1 + 1e-15)


def test_labels():
    assert Logistic().valid_labels([1, -1, 0, np.nan, 2]).tolist() == [True, True, False, False, False]
    assert Softmax(3).valid_labels([0, 2, 3, -1, 0.5, np.nan]).tolist() == [True, True] + 4 * [False]
    assert HuberRegression().valid_labels([0.0, np.inf, np.nan, -3.0]).tolist() == [True, False, False, True]


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf, True])
def test_unusable_widths_are_refused(width):
    with pytest.raises(ValueError, match="width"):
        HuberHinge(width)
    with pytest.raises(ValueError, match="width"):
        HuberRegression(width)


@pytest.mark.parametrize("n_classes", [1, 0, 2.5, True, 10**6])
def test_unusable_class_counts_are_refused(n_classes):
    with pytest.raises(ValueError, match="n_classes"):
        Softmax(n_classes)
