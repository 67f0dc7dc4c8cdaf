"""Capped, squared, hinge, quantile, Poisson and linear losses: derivatives, declared constants, convexity."""

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.metrics import mean_poisson_deviance

from discreet.losses import (
    CappedLogistic,
    CappedSoftmax,
    Hinge,
    Linear,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
)

SCALAR = [CappedLogistic(0.3), CappedLogistic(0.6), Squared(2.0, 1.0), Quantile(0.3, 0.1), Quantile(0.9, 0.5),
          Poisson(1.5, 3.0), Poisson(0.5, 20.0), Linear(1.0)]  # fmt: skip


def labels(loss, n, rng):
    if isinstance(loss, CappedLogistic | Hinge):
        return rng.choice([-1.0, 1.0], n)
    if isinstance(loss, Poisson):
        return rng.choice([0.0, 1.0, loss.label_bound], n)
    return rng.uniform(-1, 1, n)


@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_derivatives_are_those_of_the_value(loss):
    rng = np.random.default_rng(0)
    for y, t in zip(labels(loss, 60, rng), rng.normal(size=60) * 3, strict=True):
        slope = approx_fprime(np.array([t]), lambda x, y=y: float(loss.value(y, x[0])), 1e-6)[0]
        assert loss.derivative(y, t) == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize("loss", [*SCALAR, Hinge()], ids=str)
def test_declared_constants_hold_and_are_attained(loss):
    rng = np.random.default_rng(1)
    y, t = labels(loss, 4000, rng), rng.normal(size=4000) * 6
    slopes = loss.derivative(y, t)
    assert np.abs(slopes).max() <= loss.lipschitz
    assert np.abs(slopes).max() == pytest.approx(loss.lipschitz, rel=1e-3)
    step = 1e-4
    rise = (loss.derivative(y, t + step) - slopes) / step
    assert rise.min() >= -1e-9  # convex
    if math.isfinite(loss.smoothness):
        assert rise.max() <= loss.smoothness * (1 + 1e-6)
        assert loss.second_derivative(y, t).max() <= loss.smoothness
    assert isinstance(loss, Loss)


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
    assert loss.valid_labels([-0.1, 0.0, loss.label_bound, 1e9, np.nan]).tolist() == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_poisson_is_evaluated_within_its_declared_error():
    loss = Poisson(3.0, 10.0)
    limit = loss.evaluation_error * 2.0**-53 * loss.lipschitz
    with mpmath.workdps(50):
        for t in np.random.default_rng(0).uniform(-3, 3, 200):
            assert abs(mpmath.exp(mpmath.mpf(t)) - 4 - mpmath.mpf(float(loss.derivative(4.0, t)))) <= limit


def test_values_are_continuous_at_the_corner():
    loss = CappedLogistic(0.6)
    corner = math.log(0.4 / 0.6)
    assert float(loss.value(1.0, corner - 1e-9)) == pytest.approx(
        float(loss.value(1.0, corner + 1e-9)), abs=1e-8
    )


def test_no_cap_is_the_loss_itself():
    rng = np.random.default_rng(0)
    y, t = rng.choice([-1.0, 1.0], 100), rng.normal(size=100)
    assert np.allclose(CappedLogistic(1.0).value(y, t), Logistic().value(y, t))
    assert np.allclose(CappedLogistic(1.0).derivative(y, t), Logistic().derivative(y, t))
    codes, raw = rng.integers(3, size=50), rng.normal(size=(50, 3))
    assert np.allclose(
        CappedSoftmax(3, math.sqrt(2)).derivative(codes, raw), Softmax(3).derivative(codes, raw)
    )


def test_capped_softmax_keeps_the_direction():
    derivative = Softmax(3).derivative(0, [0.0, 5.0, 0.0])
    capped = CappedSoftmax(3, 0.2).derivative(0, [0.0, 5.0, 0.0])
    assert np.allclose(capped, derivative * 0.2 / np.linalg.norm(derivative))


def test_quantile_loss_is_minimal_at_the_quantile():
    y = np.linspace(0, 1, 1001)
    grid = np.linspace(0, 1, 201)
    totals = [Quantile(0.8, 0.001).value(y, t).sum() for t in grid]
    assert grid[np.argmin(totals)] == pytest.approx(0.8, abs=0.006)


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
