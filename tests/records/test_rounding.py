"""The rounding bound holds against exact arithmetic, and it is not vacuous."""

from __future__ import annotations

from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

from discreet.losses import CappedLogistic, CappedSoftmax, HuberHinge, HuberRegression, Logistic, Softmax
from discreet.records import ArrayRecords, gradient_rounding
from discreet.records.bounds import Bounds, gamma, worst_additions
from discreet.solvers.class_sums.mechanism import clipped_scores
from discreet.solvers.vertices import paced_walk

CAPPED = [CappedLogistic(0.6), CappedSoftmax(3, 0.4)]
LOSSES = [Logistic(), HuberHinge(0.5), HuberHinge(0.01), HuberRegression(0.3), Softmax(3), *CAPPED]


def exact_gradient(loss, X, y, theta, bounds):
    """The gradient of the records s_i (x_i, 1), with every float taken as the real number it is."""
    scales = bounds.row_scales(X)
    columns = np.atleast_2d(theta.T).T
    total = [[mpmath.mpf(0)] * columns.shape[1] for _ in range(columns.shape[0])]
    for x, label, scale in zip(X, y, scales, strict=True):
        v = [mpmath.mpf(scale) * mpmath.mpf(float(e)) for e in [*x, *([1.0] if bounds.intercept else [])]]
        raw = [mpmath.fsum(a * mpmath.mpf(b) for a, b in zip(v, column, strict=True)) for column in columns.T]
        for j, derivative in enumerate(exact_derivative(loss, label, raw)):
            for i, entry in enumerate(v):
                total[i][j] += derivative * entry
    return total


def exact_derivative(loss, label, raw):
    one = mpmath.mpf(1)
    if isinstance(loss, Softmax | CappedSoftmax):
        exponentials = [mpmath.exp(t) for t in raw]
        residual = [e / mpmath.fsum(exponentials) - (k == label) for k, e in enumerate(exponentials)]
        if isinstance(loss, Softmax):
            return residual
        cap, length = mpmath.mpf(loss.cap), mpmath.sqrt(mpmath.fsum(r * r for r in residual))
        return [r * min(one, cap / length) if length > 0 else r for r in residual]
    (t,) = raw
    if isinstance(loss, CappedLogistic):
        return [-label * min(mpmath.mpf(loss.cap), 1 / (1 + mpmath.exp(label * t)))]
    if isinstance(loss, Logistic):
        return [-label / (1 + mpmath.exp(label * t))]
    h = mpmath.mpf(loss.width)
    if isinstance(loss, HuberHinge):
        return [-label * min(one, max(0 * one, (1 + h - label * t) / (2 * h)))]
    return [min(h, max(-h, t - mpmath.mpf(label)))]


def distance(exact, computed):
    columns = np.atleast_2d(computed.T).T
    return float(
        mpmath.sqrt(
            mpmath.fsum(
                (exact[i][j] - mpmath.mpf(float(columns[i, j]))) ** 2
                for i in range(columns.shape[0])
                for j in range(columns.shape[1])
            )
        )
    )


def data(loss, kind, n=160, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    theta_scale = 1.0
    if kind == "canceling":  # opposite records: the exact sum is tiny, the terms are not
        X[n // 2 :] = X[: n // 2] * (1 + 1e-9)
    elif kind == "spread":  # entries over many orders of magnitude, smallest first
        X *= 10.0 ** rng.integers(-12, 12, X.shape)
        X = X[np.argsort(np.linalg.norm(X, axis=1))]
    elif kind == "steep":  # large theta: the raw predictions carry most of the error
        theta_scale = 1e4
    if isinstance(loss, Softmax | CappedSoftmax):
        y = rng.integers(0, loss.n_classes, n).astype(float)
    elif isinstance(loss, HuberRegression):
        y = rng.normal(0, 1, n)
    else:
        y = np.repeat([1.0, -1.0], n // 2)
    p = d + 1
    theta = theta_scale * rng.standard_normal(p if loss.n_outputs == 1 else (p, loss.n_outputs))
    if isinstance(loss, HuberHinge) and kind != "steep":
        theta *= 3  # put records on both sides of the corner
    return X, y, theta


@pytest.mark.parametrize("kind", ["plain", "canceling", "spread", "steep"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.lemma("rounding.md#section-4")
def test_computed_gradients_are_within_the_bound(loss, kind):
    bounds = Bounds(1.3, intercept=True)
    X, y, theta = data(loss, kind)
    with mpmath.workdps(60):
        exact = exact_gradient(loss, X, y, theta, bounds)
        orders = [np.arange(len(y)), np.argsort(X[:, 0]), np.random.default_rng(1).permutation(len(y))]
        for order in orders:
            for matrix in (X[order], np.asfortranarray(X[order]), sp.csr_array(X[order])):
                records = ArrayRecords(matrix, y[order], bounds)
                limit = records.gradient_rounding(loss, float(np.linalg.norm(theta)))
                error = distance(exact, records.value_and_gradient(loss, theta)[1])
                assert error <= limit
                assert limit <= 1e-8 * len(y) * (1 + np.linalg.norm(theta))


@pytest.mark.parametrize("kind", ["plain", "steep"])
def test_single_precision_would_break_the_bound(kind):
    """The broken twin: a gradient computed in float32 is caught."""
    bounds, loss = Bounds(1.3, intercept=True), Logistic()
    X, y, theta = data(loss, kind)
    V = np.float32(np.column_stack([X, np.ones(len(X))]) * bounds.row_scales(X)[:, None])
    sloppy = V.T @ np.float32(loss.derivative(y, V @ np.float32(theta)))
    records = ArrayRecords(X, y, bounds)
    with mpmath.workdps(60):
        error = distance(exact_gradient(loss, X, y, theta, bounds), sloppy.astype(float))
    assert error > records.gradient_rounding(loss, float(np.linalg.norm(theta)))


def test_float32_rows_are_exact_records():
    bounds, loss = Bounds(0.9), Logistic()
    X, y, theta = data(loss, "plain", n=80)
    X = X.astype(np.float32)
    records = ArrayRecords(X, y, bounds)
    with mpmath.workdps(60):
        error = distance(
            exact_gradient(loss, X, y, theta, bounds), records.value_and_gradient(loss, theta)[1]
        )
    assert error <= records.gradient_rounding(loss, float(np.linalg.norm(theta)))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=str)
def test_permuting_rows_moves_a_large_sum_by_less_than_the_bound(loss):
    rng = np.random.default_rng(3)
    X, y, theta = data(loss, "plain", n=40_000)
    bounds = Bounds(1.0)
    dense = ArrayRecords(X, y, bounds)
    order = rng.permutation(len(y))
    permuted = ArrayRecords(X[order], y[order], bounds)
    sparse = ArrayRecords(sp.csr_array(X), y, bounds)
    norm = float(np.linalg.norm(theta))
    first = dense.value_and_gradient(loss, theta)[1]
    for other in (permuted, sparse):
        moved = np.linalg.norm(other.value_and_gradient(loss, theta)[1] - first)
        assert 0 < moved <= dense.gradient_rounding(loss, norm) + other.gradient_rounding(loss, norm)


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 2), (17, 5000), (100, 100), (5000, 3), (5000, 1500), (200_000, 1), (300_000, 2)]
)
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=str)
def test_public_worst_case_covers_every_storage(shape, loss):
    n, d = shape
    X, y = np.zeros(shape), np.ones(n)
    empty = sp.csr_array(shape)
    full_row = sp.csr_array(([1.0] * min(d, 3), ([n - 1] * min(d, 3), list(range(min(d, 3))))), shape=shape)
    for matrix in (X, empty, full_row):
        records = ArrayRecords(matrix, y, Bounds())
        assert records.additions(loss) <= worst_additions(n)
        assert records.gradient_rounding(loss, 3.0) <= gradient_rounding(loss, n, d + 1, 1.0, 3.0)


def test_the_bound_grows_with_everything_that_hurts():
    base = {"n_samples": 1000, "n_features": 10, "feature_norm": 1.0, "theta_norm": 5.0}
    low = gradient_rounding(Logistic(), **base)
    assert 0 < low < 1e-8
    for name in base:
        assert gradient_rounding(Logistic(), **{**base, name: base[name] * 2}) > low
    with pytest.raises(ValueError, match="too long"):
        gamma(1e15)


# -- sums that solvers make of a whole part of records -----------------------------------------------------------

MANY = 1 << 20


class Given:
    """Records and a loss whose terms are given: one of 2^53 beside ones, each of which an addition to it loses."""

    scales, labels = np.ones(MANY), np.ones(MANY)
    sparse = False

    def __init__(self):
        self.terms = np.ones(MANY)
        self.terms[0] = 2.0**53

    def raw_predictions(self, point):
        return self.terms.copy()

    def derivative(self, labels, raw):
        return raw


@pytest.mark.lemma("rounding.md#section-4")
@pytest.mark.parametrize(
    "total",
    [
        lambda given: paced_walk.derivatives(given, given, np.zeros(1)),
        lambda given: paced_walk.along(
            given, SimpleNamespace(derivative=lambda y, t: -np.ones_like(t)), 0, 0, 2.0**60
        ),
        lambda given: clipped_scores(given, np.zeros((1, 2)), 2.0**60),
    ],
    ids=["derivatives", "along", "scores"],
)
def test_no_term_passes_through_more_additions_than_were_declared(total):
    """One sum over all rows, in an order of BLAS's or row after row, would lose a constant part of all ones."""
    given = Given()
    lost = 2**53 + (MANY - 1) - int(total(given)[0])
    assert 0 <= lost <= worst_additions(MANY)
