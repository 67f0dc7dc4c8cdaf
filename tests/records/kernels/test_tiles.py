"""Tiles of dot products and sums against NumPy, at every width, and their promise that order depends on shape only."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from discreet.losses import CappedLogistic, CappedSoftmax, HuberHinge, HuberRegression, Logistic, Softmax
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.kernels.numba_tools import WIDTH
from discreet.records.kernels.passes import by_class, by_feature, groups, wide
from discreet.records.kernels.softmax import exponentials
from discreet.records.kernels.tiles import ROWS, block_dots, block_sums


def tiled(X, theta, coefficients):
    """Dot products with the columns of theta, and the sum of the rows weighted by coefficients."""
    rows, weights = wide(X), by_class(theta, X.shape[1])
    sizes, m = groups(len(weights)), len(X)
    t = np.full((len(weights), m + ROWS), np.nan)
    fetched = block_dots(rows, 0, m, weights, sizes, t)
    dots = t[:, :m].copy()
    t[:, :m] = coefficients
    total = np.zeros(weights.shape)
    block_sums(rows, 0, m, t, sizes, total, fetched)
    return dots, by_feature(total, X.shape[1], theta.shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_classes", [1, 2, 4, 10, 11])
@pytest.mark.parametrize("d", [1, 7, 8, 9, 33, 100, 385, 800])
def test_dots_and_sums(d, n_classes, dtype):
    rng = np.random.default_rng(d)
    for m in (1, 4, 13):
        guarded = np.full((m + 2, d), np.nan, dtype)  # what lies before and after a block must not matter
        guarded[1:-1] = rng.normal(size=(m, d))
        X, theta = guarded[1:-1], rng.normal(size=(d + 1, n_classes))
        coefficients = rng.normal(size=(n_classes, m))
        dots, sums = tiled(X, theta, coefficients)
        records = np.column_stack([X, np.ones(m)]).astype(np.float64)
        assert np.allclose(dots, (records @ theta).T, rtol=0, atol=1e-11)
        assert np.allclose(sums, (coefficients @ records).T, rtol=0, atol=1e-11)


@pytest.mark.parametrize("d", [3, 50, 400])
def test_equal_rows_have_equal_dot_products(d):
    rng = np.random.default_rng(d)
    row, theta = rng.normal(size=d).astype(np.float32), rng.normal(size=(d, 7))
    found = [
        tiled(np.tile(row.astype(dtype), (m, 1)), theta, np.zeros((7, m)))[0]
        for m in (1, 4, 11)
        for dtype in (np.float32, np.float64)
    ]
    assert all(np.array_equal(dots, np.tile(found[0], dots.shape[1])) for dots in found)


def test_groups_cover_all_classes_and_leave_none_alone():
    for n_classes in range(1, 40):
        sizes = groups(n_classes)
        assert sizes.sum() == n_classes
        assert n_classes == 1 or sizes.min() > 1


def test_rows_of_theta_begin_where_vectors_do():
    theta = np.arange(33.0).reshape(11, 3)
    rows = by_class(theta, 10)
    assert rows.ctypes.data % (8 * WIDTH) == 0
    assert rows.strides[0] % (8 * WIDTH) == 0
    assert np.array_equal(by_feature(rows, 10, theta.shape), theta)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.int64, np.longdouble, bool])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), HuberRegression(0.7)], ids=str)
def test_sparse_rows_are_the_dense_rows(loss, dtype):
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(700, 11)).astype(dtype)
    y, null = rng.choice([-1.0, 1.0], size=700), rng.random(700) < 0.1
    theta = rng.normal(size=12)
    sparse, dense = (ArrayRecords(rows, y, Bounds(2.0), null) for rows in (sp.csr_array(X), X.astype(float)))
    for a, b in zip(*(records.value_and_gradient(loss, theta) for records in (sparse, dense)), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-11)


def products():
    """Some of everything, as a list of numbers."""
    rng = np.random.default_rng(0)
    X, theta, coefficients = rng.normal(size=(7, 13)), rng.normal(size=(14, 6)), rng.normal(size=(6, 7))
    dots, sums = tiled(X, theta, coefficients)
    powers = -np.abs(X[0])
    exponentials(powers, len(powers))
    return [*dots.ravel().tolist(), *sums.ravel().tolist(), *powers.tolist()]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86 processors")
@pytest.mark.parametrize(("width", "features"), [(2, ""), (4, "+avx,+avx2,+fma")])
def test_processors_with_narrower_vectors(tmp_path, width, features):
    if width > WIDTH:
        pytest.skip("this processor has narrower vectors")
    path = str(Path(__file__).parent)
    program = (
        f"import sys; sys.path.insert(0, {path!r}); import json, test_tiles as t; "
        "print(json.dumps([t.WIDTH, t.products()]))"
    )
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path),
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
    }
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found_width, found = json.loads(output)
    assert found_width == width
    assert np.allclose(found, products(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("store", [np.asarray, np.float32, sp.csr_array], ids=["float64", "float32", "csr"])
@pytest.mark.parametrize(
    "loss", [CappedLogistic(0.6), CappedLogistic(0.2), CappedLogistic(1.0), CappedSoftmax(4, 0.3)], ids=str
)
def test_capped_losses_are_their_formulas(loss, store):
    rng = np.random.default_rng(5)
    X, null = np.float32(rng.normal(size=(300, 9))).astype(float), rng.random(300) < 0.1
    y = rng.integers(0, 4, size=300).astype(float) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], 300)
    records = ArrayRecords(store(X), y, Bounds(2.0), null)
    # Default fits take their steps on these losses; several outputs are compiled for dense rows only.
    assert records._compiled(loss) is (not records.sparse or loss.n_outputs == 1)
    theta = 4 * rng.normal(size=(10, 4) if loss.n_outputs > 1 else 10)
    value, gradient = records.value_and_gradient(loss, theta)
    v = (np.column_stack([X, np.ones(300)]) * records.scales[:, None])[~null]
    assert value == pytest.approx(float(loss.value(y[~null], v @ theta).sum()), rel=1e-12)
    assert np.allclose(gradient, v.T @ loss.derivative(y[~null], v @ theta), rtol=0, atol=1e-11)


def test_block_products_of_many_classes_do_not_overflow():
    X, y = np.ones((256, 9)), np.zeros(256)
    value, gradient = ArrayRecords(X, y, Bounds(1.0)).value_and_gradient(Softmax(32), np.zeros((10, 32)))
    assert value == pytest.approx(256 * np.log(32), rel=1e-13)
    assert np.isfinite(gradient).all()
