"""The compiled softmax pass and float32 rows against NumPy formulas and exact arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from discreet.losses import HuberRegression, Logistic, Softmax, Squared
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.kernels.softmax import exponentials


def test_exponentials_are_within_four_units_of_roundoff():
    values = -np.concatenate(
        [np.random.default_rng(0).exponential(20.0, 1500), [0.0, 1e-300, 0.34657, 699.9]]
    )
    found = values.copy()
    exponentials(found, len(found))
    with mpmath.workdps(40):
        errors = [
            abs(mpmath.mpf(f) / mpmath.exp(mpmath.mpf(v)) - 1) for f, v in zip(found, values, strict=True)
        ]
    assert max(errors) < 4 * 2.0**-53
    below = np.array([-701.0, -1e300, -np.inf])
    exponentials(below, 3)
    assert np.all((below > 0) & (below < 1e-300))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 4, 7, 32, 33])
@pytest.mark.parametrize("n", [0, 1, 3, 16, 201])
def test_softmax_sums(n, n_classes, intercept):
    rng = np.random.default_rng(n + n_classes)
    X, y = rng.normal(size=(n, 9)) * 3, rng.integers(0, n_classes, size=n).astype(float)
    bounds, loss = Bounds(feature_norm=2.0, intercept=intercept), Softmax(n_classes)
    null = rng.random(n) < 0.2
    records = ArrayRecords(X, y, bounds, null)
    theta = rng.normal(size=(records.n_features, n_classes)) * 5
    value, gradient = records.value_and_gradient(loss, theta)
    rows = np.column_stack([X, np.ones(n)]) if intercept else X
    rows = rows * records.scales[:, None]
    values, derivatives = loss.value_and_derivative(y, rows @ theta)
    keep = ~null
    assert value == pytest.approx(float(values[keep].sum()), rel=1e-12, abs=1e-12)
    assert np.allclose(gradient, rows[keep].T @ derivatives[keep], rtol=0, atol=1e-11)
    assert gradient.flags.c_contiguous


@pytest.mark.parametrize("loss", [Logistic(), Squared(4.0, 1.0), HuberRegression(0.5), Softmax(3)], ids=str)
def test_float32_rows_are_the_same_rows_and_not_copied(loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(333, 7)).astype(np.float32)
    y = (np.arange(333) % 3).astype(float) if isinstance(loss, Softmax) else rng.choice([-1.0, 1.0], 333)
    narrow, wide = (ArrayRecords(rows, y, Bounds(1.0)) for rows in (X, X.astype(np.float64)))
    assert narrow.matrix is X
    assert narrow._in_place
    theta = rng.normal(size=8 if loss.n_outputs == 1 else (8, 3))
    a, b = narrow.value_and_gradient(loss, theta), wide.value_and_gradient(loss, theta)
    assert a[0] == pytest.approx(b[0], rel=1e-13)
    assert np.allclose(a[1], b[1], rtol=0, atol=1e-12)
    if loss.n_outputs == 1:
        direction = rng.normal(size=8)
        products = [records.hessian_product(loss, theta)(direction) for records in (narrow, wide)]
        assert np.allclose(*products, rtol=0, atol=1e-12)


def test_squared_loss_is_compiled_and_agrees():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(500, 6)) * 4, rng.uniform(-1, 1, size=500)
    loss = Squared(0.5, 1.0)
    records = ArrayRecords(X, y, Bounds(3.0, intercept=False))
    assert records._compiled(loss)
    theta = rng.normal(size=6)
    raw = records.raw_predictions(theta)
    value, gradient = records.value_and_gradient(loss, theta)
    assert value == pytest.approx(float(loss.value(y, raw).sum()), rel=1e-12)
    expected = (X * records.scales[:, None]).T @ loss.derivative(y, raw)
    assert np.allclose(gradient, expected, rtol=0, atol=1e-11)


def test_taking_rows_keeps_their_clipping():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(50, 4)) * 3, rng.choice([-1.0, 1.0], 50)
    records = ArrayRecords(X, y, Bounds(1.0), np.arange(50) == 7)
    some = records.take(np.array([3, 7, 9]))
    assert np.array_equal(some.scales, records.scales[[3, 7, 9]])
    assert np.array_equal(some.labels, records.labels[[3, 7, 9]])
    assert some.n_samples == 3
