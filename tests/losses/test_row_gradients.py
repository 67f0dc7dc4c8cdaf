"""Gradients of a user's function: what one row can do to a sum, and what a function that fails cannot do."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from discreet.losses import GradientLoss
from discreet.losses.row_gradients import shrunk
from discreet.privacy.guarantee import Neighboring
from discreet.records.arrays import RowGradients
from discreet.solvers.base import computed_gradient_sensitivity

RNG = np.random.default_rng(0)


def toward(theta, x, y):
    return theta - x


def toward_all(theta, X, y):
    return theta - X


def exact_square(row):
    return sum(Fraction(float(entry)) ** 2 for entry in row)


@given(
    st.lists(st.floats(allow_nan=True), min_size=3, max_size=3),
    st.sampled_from([1.0, 0.1, 1 / 3, 2.0**-90, 1e20]),
)
def test_no_row_is_longer_than_the_bound_in_exact_arithmetic(row, bound):
    (made,) = shrunk(np.array([row]), bound)
    assert exact_square(made) <= Fraction(bound) ** 2
    if not np.all(np.isfinite(row)):
        assert not made.any()
    elif exact_square(row) < Fraction(bound * (1 - 1e-12)) ** 2:
        assert made.tolist() == row
    else:
        assert exact_square(made) >= Fraction(bound * (1 - 1e-12)) ** 2


def test_long_rows_keep_their_direction():
    rows = RNG.normal(size=(50, 4)) * 10.0 ** RNG.integers(-3, 300, size=(50, 1))
    made = shrunk(rows, 1.0)
    cosines = (made / np.linalg.norm(made, axis=1)[:, None] * (rows / np.abs(rows).max(axis=1)[:, None])).sum(
        axis=1
    )
    assert cosines / np.linalg.norm(rows / np.abs(rows).max(axis=1)[:, None], axis=1) == pytest.approx(1.0)


class Panic(BaseException):
    """No `Exception`, as the panics of libraries in Rust are not."""


def leaky(theta, x, y):
    """Raises, returns nonsense or the wrong shape, by the first entry."""
    if x[0] == 1:
        raise KeyError(x[1])
    if x[0] == 2:
        return [math.nan, 1.0]
    if x[0] == 3:
        return np.ones(5)
    if x[0] == 4:
        raise SystemExit(int(x[1]))
    if x[0] == 5:
        return "nothing"
    if x[0] == 7:
        raise Panic(x[1])
    return x


def leaky_batch(theta, X, y):
    return np.stack([leaky(theta, x, y) for x in X])


@pytest.mark.parametrize("loss", [GradientLoss(leaky, 9.0), GradientLoss(leaky_batch, 9.0, batch=True)])
def test_rows_that_fail_have_no_gradient_and_say_nothing(loss):
    X = np.array([[0.0, 1.0], [1, 7], [2, 7], [3, 7], [4, 7], [5, 7], [7, 7], [6, 2]])
    found = loss.rows(np.zeros(2), X, np.zeros(8))
    assert found.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [6, 2]]


def spoiling(theta, x, y):
    theta[0] = x[0] = 7.0
    return theta


def test_a_function_cannot_change_its_arguments():
    X, theta = np.ones((3, 2)), np.zeros(2)
    assert not GradientLoss(spoiling, 1.0).rows(theta, X, np.zeros(3)).any()  # each call is an error
    assert X.tolist() == np.ones((3, 2)).tolist()
    assert not theta.any()


@pytest.mark.lemma("own-losses.md#theorem-1")
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("relation", list(Neighboring))
def test_sums_of_neighbors_are_within_the_declared_distance_and_attain_it(relation, batch):
    loss = GradientLoss(toward_all if batch else toward, 0.7, batch=batch)
    n, p, theta = 700, 3, np.array([0.1, -0.2, 0.3])
    X, y, null = RNG.normal(size=(n, p)), np.zeros(n), np.zeros(n, dtype=bool)
    if batch and not relation.size_is_public:
        with pytest.raises(ValueError, match="batch"):
            computed_gradient_sensitivity(loss, n, p, 1.0, 5.0, relation)
        return
    X[300] = [50.0, 0.0, 0.0]
    declared = computed_gradient_sensitivity(loss, n, p, 1.0, 5.0, relation).value
    before = RowGradients(X, y, null).value_and_gradient(loss, theta)[1]
    if relation is Neighboring.REPLACE_ONE:
        X[300] = [-50.0, 0.0, 0.0]
    elif relation is Neighboring.ZERO_OUT:
        null[300] = True
    else:
        X, y, null = np.delete(X, 300, axis=0), y[:-1], null[:-1]
    moved = np.linalg.norm(RowGradients(X, y, null).value_and_gradient(loss, theta)[1] - before)
    assert 0.999 * declared < moved <= declared
    assert declared == pytest.approx(0.7 * relation.contributions, rel=1e-6)


def test_sparse_rows_and_samples_are_the_same_rows():
    X, y = RNG.normal(size=(600, 3)) * (RNG.random((600, 3)) < 0.5), RNG.normal(size=600)
    null, loss = np.arange(600) % 7 == 0, GradientLoss(toward, 1.0)
    dense = RowGradients(X, y, null)
    sums = [
        one.value_and_gradient(loss, np.ones(3))[1] for one in (dense, RowGradients(sp.csr_array(X), y, null))
    ]
    assert np.array_equal(*sums)
    rows = np.array([3, 7, 300])
    taken = dense.in_memory().take(rows).value_and_gradient(loss, np.ones(3))[1]
    assert taken == pytest.approx(loss.rows(np.ones(3), X[[3, 300]], y[[3, 300]]).sum(axis=0))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: GradientLoss(3, 1.0), "gradient must be a function"),
        (lambda: GradientLoss(toward, 0.0), "clip must lie between"),
        (lambda: GradientLoss(toward, math.inf), "clip must lie between"),
        (lambda: GradientLoss(toward, 1.0, smoothness=0.0), "smoothness must be greater than 0"),
        (lambda: GradientLoss(lambda t, x, y: 1 / 0, 1.0).try_out(2, 3), "ZeroDivisionError"),
        (lambda: GradientLoss(lambda t, x, y: x, 1.0).try_out(2, 3), r"shape \(2,\), got shape \(3,\)"),
        (lambda: GradientLoss(toward, 1.0, example=([1.0], 0.0)).try_out(1, 3), "row of 3 numbers"),
    ],
)
def test_what_cannot_be_meant_is_refused(made, message):
    with pytest.raises((ValueError, TypeError), match=message):
        made()


def test_it_is_tried_on_the_example_that_it_is_made_for():
    by_label = GradientLoss(lambda theta, x, y: {1.0: x, 2.0: -x}[y], 1.0, example=(np.ones(3), 1.0))
    by_label.try_out(3, 3)


def test_it_has_no_predictions():
    with pytest.raises(TypeError, match="no function of a linear prediction"):
        GradientLoss(toward, 1.0).derivative(0.0, 0.0)
