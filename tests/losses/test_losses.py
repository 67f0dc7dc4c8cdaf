"""What single losses promise beyond the contract: exact values, evaluation errors, limits, refused constants."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from sklearn.metrics import mean_poisson_deviance

from discreet.losses import (
    CappedLogistic,
    CappedSoftmax,
    HuberHinge,
    HuberRegression,
    Linear,
    Logistic,
    Poisson,
    Quantile,
    Softmax,
    Squared,
)


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


def test_poisson_is_evaluated_within_its_declared_error():
    loss = Poisson(3.0, 10.0)
    limit = loss.evaluation_error * 2.0**-53 * loss.lipschitz
    with mpmath.workdps(50):
        for t in np.random.default_rng(0).uniform(-3, 3, 200):
            assert abs(mpmath.exp(mpmath.mpf(t)) - 4 - mpmath.mpf(float(loss.derivative(4.0, t)))) <= limit


@pytest.mark.parametrize("loss", [Poisson(1.5, 3.0), Poisson(0.5, 20.0)], ids=str)
def test_poisson_is_the_half_deviance_inside_and_a_tangent_outside(loss):
    t = np.linspace(-loss.prediction_bound, loss.prediction_bound, 50)
    for y in (0.0, 0.7, loss.label_bound):
        assert np.allclose(2 * loss.value(y, t), [mean_poisson_deviance([y], [m]) for m in np.exp(t)])
        assert loss.value(y, t).min() >= 0
        for end in (-1, 1):
            edge = end * loss.prediction_bound
            slope = loss.value(y, edge + 3 * end) - loss.value(y, edge + 2 * end)
            assert slope * end == pytest.approx(float(loss.derivative(y, edge)))


def test_huber_hinge_approaches_the_hinge():
    t = np.linspace(-3, 3, 601)
    np.testing.assert_allclose(HuberHinge(1e-6).value(1.0, t), np.maximum(0, 1 - t), atol=1e-6)


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


def test_a_cap_of_1_is_the_logistic_loss():
    rng = np.random.default_rng(0)
    y, t = rng.choice([-1.0, 1.0], 100), rng.normal(size=100)
    assert np.array_equal(CappedLogistic(1.0).value(y, t), Logistic().value(y, t))
    assert np.array_equal(CappedLogistic(1.0).derivative(y, t), Logistic().derivative(y, t))


def test_quantile_loss_is_minimal_at_the_quantile():
    y = np.linspace(0, 1, 1001)
    grid = np.linspace(0, 1, 201)
    totals = [Quantile(0.8, 0.001).value(y, t).sum() for t in grid]
    assert grid[np.argmin(totals)] == pytest.approx(0.8, abs=0.006)


@pytest.mark.parametrize(
    ("loss", "valid", "invalid"),
    [
        (Logistic(), [1, -1], [0, np.nan, 2]),
        (Softmax(3), [0, 2], [3, -1, 0.5, np.nan]),
        (HuberRegression(), [0.0, -3.0], [np.inf, np.nan]),
        (Squared(1.0, 2.0), [0.0, -2.0], [2.1, np.nan]),
        (Poisson(1.0, 2.0), [0.0, 0.5, 2.0], [-0.1, 1e9, np.nan]),
        (Linear(1.0), [-1.0, 0.3], [1.1, np.nan]),
    ],
    ids=str,
)
def test_labels(loss, valid, invalid):
    assert loss.valid_labels(valid).all()
    assert not loss.valid_labels(invalid).any()


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf, True])
@pytest.mark.parametrize("make", [HuberHinge, HuberRegression, lambda width: Quantile(0.5, width)])
def test_unusable_widths_are_refused(make, width):
    with pytest.raises(ValueError, match="width must lie between"):
        make(width)


@pytest.mark.parametrize("n_classes", [1, 0, 2.5, True, 10**6])
def test_unusable_class_counts_are_refused(n_classes):
    with pytest.raises(ValueError, match="n_classes"):
        Softmax(n_classes)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: CappedLogistic(0.0), "cap must lie"),
        (lambda: CappedSoftmax(3, 2.0), "cap must lie"),
        (lambda: CappedSoftmax(1, 0.5), "n_classes"),
        (lambda: Squared(0.0, 1.0), "prediction_bound"),
        (lambda: Quantile(1.0), "quantile must lie"),
        (lambda: Poisson(30.0, 1.0), "prediction_bound"),
        (lambda: Poisson(1.0, 0.0), "label_bound"),
        (lambda: Linear(math.inf), "label_bound"),
    ],
)
def test_impossible_constants_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()
