"""Few dense rows take NumPy's sums instead of compiled passes: the same numbers up to the proved rounding."""

import numpy as np
import pytest

from discreet.losses import HuberHinge, HuberRegression, Logistic, Softmax, Squared
from discreet.records import Bounds, clipped_rows, gradient_rounding
from discreet.records.arrays import ArrayRecords

LOSSES = [Logistic(), HuberHinge(0.5), Softmax(3), Squared(1.0, 1.0), HuberRegression(0.3)]


def rows(loss, n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 7)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))
    y = rng.integers(loss.n_outputs, size=n) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], size=n)
    return ArrayRecords(X, y, Bounds(1.5, intercept=True)), rng


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_both_ways_agree_up_to_the_rounding_that_sensitivities_pay_for(loss, monkeypatch):
    records, rng = rows(loss)
    theta = rng.normal(size=(8,) if loss.n_outputs == 1 else (8, loss.n_outputs))
    compiled = records.value_and_gradient(loss, theta)
    monkeypatch.setattr(clipped_rows, "COMPILED_FROM", 1 << 18)
    assert not records._compiled(loss)
    few = records.value_and_gradient(loss, theta)
    allowed = gradient_rounding(loss, 300, 8, 1.5, float(np.linalg.norm(theta)))
    assert np.linalg.norm(few[1] - compiled[1]) <= 2 * allowed
    assert few[0] == pytest.approx(compiled[0], rel=1e-12)


def test_a_prediction_is_a_function_of_its_own_row(monkeypatch):
    monkeypatch.setattr(clipped_rows, "COMPILED_FROM", 1 << 18)
    records, rng = rows(Logistic())
    theta = rng.normal(size=8)
    together = records.raw_predictions(theta)
    for i in rng.integers(300, size=20):
        alone = ArrayRecords(records.matrix[i : i + 1], [1.0], records.bounds)
        assert alone.raw_predictions(theta)[0] == together[i]
