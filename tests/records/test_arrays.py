"""Sums over records: the same whatever the storage, the order, the threads; null records add nothing."""

from __future__ import annotations

import itertools
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info

from discreet import PrivateLogisticRegression, insecure_noise
from discreet.losses import HuberHinge, HuberRegression, Logistic, Softmax
from discreet.records import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.class_sums.mechanism import focused_part, log_lengths, split

LOSSES = [Logistic(), HuberHinge(0.5), HuberRegression(0.3), Softmax(4)]
BOUNDS = [Bounds(1.0, intercept=True), Bounds(0.7, intercept=False)]


def problem(loss, bounds, n=700, d=9, seed=0):
    """Half-empty rows that float32 holds exactly, valid labels, a theta."""
    rng = np.random.default_rng(seed)
    X = np.float64(np.float32(rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)))
    if isinstance(loss, Softmax):
        y = rng.integers(0, loss.n_classes, n).astype(float)
    elif isinstance(loss, HuberRegression):
        y = rng.normal(0, 1, n)
    else:
        y = rng.choice([-1.0, 1.0], n)
    p = bounds.n_features(d)
    theta = rng.standard_normal(p if loss.n_outputs == 1 else (p, loss.n_outputs))
    return X, y, theta


def clipped(X, bounds):
    """The records, materialized."""
    rows = np.column_stack([X, np.ones(len(X))]) if bounds.intercept else X
    norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
    return rows * np.minimum(1.0, bounds.feature_norm / norms)[:, None]


STORAGE = {
    "C": lambda X: X,
    "Fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "big-endian": lambda X: X.astype(">f8"),
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
    "csr int64 indices": lambda X: _with_long_indices(sp.csr_array(X)),
    "csr unsorted": lambda X: _unsorted(sp.csr_array(X)),
    "coo": sp.coo_array,
}


def _with_long_indices(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _unsorted(X):
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[a:b], X.data[a:b] = X.indices[a:b][::-1].copy(), X.data[a:b][::-1].copy()
    X.has_sorted_indices = False
    return X


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_value_and_gradient_are_the_textbook_sums(loss, bounds):
    X, y, theta = problem(loss, bounds)
    V = clipped(X, bounds)
    value, gradient = loss.value(y, V @ theta).sum(), V.T @ loss.derivative(y, V @ theta)
    for name, store in STORAGE.items():
        records = ArrayRecords(store(X), y, bounds)
        computed = records.value_and_gradient(loss, theta)
        assert computed[0] == pytest.approx(value, rel=1e-12), name
        np.testing.assert_allclose(computed[1], gradient, rtol=0, atol=1e-11, err_msg=name)
        np.testing.assert_allclose(records.raw_predictions(theta), V @ theta, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradient_is_the_slope_of_the_value(loss):
    X, y, theta = problem(loss, BOUNDS[0], n=200)
    records = ArrayRecords(X, y, BOUNDS[0])
    gradient = records.value_and_gradient(loss, theta)[1]
    direction = np.random.default_rng(5).standard_normal(theta.shape)
    h = 1e-6
    ahead, behind = (records.value_and_gradient(loss, theta + s * h * direction)[0] for s in (1, -1))
    assert np.vdot(gradient, direction) == pytest.approx((ahead - behind) / (2 * h), abs=1e-6)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_hessians_are_slopes_of_the_gradient(loss, bounds):
    X, y, theta = problem(loss, bounds, n=300)
    direction = np.random.default_rng(6).standard_normal(theta.shape)
    dense, sparse = ArrayRecords(X, y, bounds), ArrayRecords(sp.csr_array(X), y, bounds)
    h = 1e-7
    ahead, behind = (dense.value_and_gradient(loss, theta + s * h * direction)[1] for s in (1, -1))
    product = dense.hessian_product(loss, theta)(direction)
    np.testing.assert_allclose(product, (ahead - behind) / (2 * h), atol=1e-5)
    np.testing.assert_allclose(sparse.hessian_product(loss, theta)(direction), product, atol=1e-12)
    matrix = dense.hessian(loss, theta)
    np.testing.assert_allclose(matrix @ direction.ravel(), product.ravel(), atol=1e-11)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)
    with pytest.raises(ValueError, match="hessian_product"):
        sparse.hessian(loss, theta)


def test_estimated_and_averaged_hessians():
    X, y, theta = problem(Logistic(), BOUNDS[0], n=6000)
    records = ArrayRecords(X, y, BOUNDS[0])
    exact = records.hessian(Logistic(), theta)
    assert np.linalg.norm(records.hessian(Logistic(), theta, every=5) - exact, 2) < 0.3 * np.linalg.norm(
        exact, 2
    )
    nearly = records.hessian(Logistic(), theta, smoothing=1e-4)
    np.testing.assert_allclose(nearly, exact, rtol=1e-4, atol=1e-4)
    hinge = records.hessian(HuberHinge(0.1), np.zeros(10))
    assert not hinge.any()  # no record is near its corner at 0 ...
    assert records.hessian(HuberHinge(0.1), np.zeros(10), smoothing=1.0).any()  # ... but the corner is felt
    X, y, theta = problem(Softmax(4), BOUNDS[0])
    records = ArrayRecords(X, y, BOUNDS[0])
    full = records.hessian(Softmax(4), theta).reshape(10, 4, 10, 4)
    np.testing.assert_allclose(
        records.mean_class_hessian(Softmax(4), theta), np.einsum("akbk->ab", full) / 3, atol=1e-12
    )


@pytest.mark.parametrize("loss", LOSSES[:3], ids=str)
def test_estimates_survive_saturated_predictions(loss):
    X, y, theta = problem(loss, BOUNDS[0], n=3000)
    for scale in (10.0, 40.0, 1e3, 1e6):
        assert np.all(np.isfinite(ArrayRecords(X, y, BOUNDS[0]).hessian(loss, scale * theta, smoothing=1.0)))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("store", ["C", "csr_array", "float32"])
def test_results_do_not_depend_on_the_number_of_threads(loss, store, monkeypatch):
    monkeypatch.setattr("discreet.records.clipped_rows._SMALL", 0)
    X, y, theta = problem(loss, BOUNDS[0], n=20_011)
    one, three = (ArrayRecords(STORAGE[store](X), y, BOUNDS[0], n_threads=k) for k in (1, 3))
    first, second = one.value_and_gradient(loss, theta), three.value_and_gradient(loss, theta)
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])
    np.testing.assert_array_equal(
        one.hessian_product(loss, theta)(theta), three.hessian_product(loss, theta)(theta)
    )


def test_the_thread_limit_of_blas_is_restored():
    X, y, theta = problem(Softmax(4), BOUNDS[0])
    records = ArrayRecords(X, y, BOUNDS[0])
    before = [pool["num_threads"] for pool in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: records.value_and_gradient(Softmax(4), theta), range(40)))
    assert [pool["num_threads"] for pool in threadpool_info()] == before


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("store", list(STORAGE))
def test_null_records_add_nothing_to_any_sum(loss, store):
    bounds = BOUNDS[0]
    X, y, theta = problem(loss, bounds, n=600)
    null = np.zeros(600, dtype=bool)
    null[[0, 5, 6, 7, 311, 599]] = True
    spoiled, labels = X.copy(), y.copy()
    spoiled[5], spoiled[6, 2], spoiled[7] = np.nan, np.inf, 1e300
    labels[[0, 599]] = np.nan
    with np.errstate(over="ignore"):
        records = ArrayRecords(STORAGE[store](spoiled), labels, bounds, null)
    expected = ArrayRecords(X[~null], y[~null], bounds)
    value, gradient = records.value_and_gradient(loss, theta)
    assert value == pytest.approx(expected.value_and_gradient(loss, theta)[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected.value_and_gradient(loss, theta)[1], atol=1e-11)
    np.testing.assert_allclose(
        records.hessian_product(loss, theta)(theta), expected.hessian_product(loss, theta)(theta), atol=1e-11
    )
    if not records.sparse:
        np.testing.assert_allclose(records.hessian(loss, theta), expected.hessian(loss, theta), atol=1e-11)


def test_all_records_null_or_none_at_all():
    theta = np.ones(4)
    everything_null = ArrayRecords(np.full((5, 3), np.nan), np.ones(5), Bounds(), np.ones(5, dtype=bool))
    nothing = ArrayRecords(np.zeros((0, 3)), [], Bounds())
    for records in (everything_null, nothing):
        value, gradient = records.value_and_gradient(Logistic(), theta)
        assert value == 0
        assert not gradient.any()


def test_bad_rows_and_labels_are_named():
    X = np.ones((4, 2))
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"1 rows with values that are not finite.*row 2"):
        ArrayRecords(X, np.ones(4), Bounds())
    records = ArrayRecords(np.ones((4, 2)), [1, -1, 0, 1], Bounds())
    with pytest.raises(ValueError, match=r"1 labels are not valid for Logistic.*row 2"):
        records.value_and_gradient(Logistic(), np.zeros(3))
    with pytest.raises(ValueError, match="labels are not valid"):
        ArrayRecords(np.ones((2, 2)), [0, 3], Bounds()).value_and_gradient(Softmax(3), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="theta must have shape"):
        records.value_and_gradient(Logistic(), np.zeros(2))
    with pytest.raises(ValueError, match="y must have one entry per row"):
        ArrayRecords(np.ones((4, 2)), np.ones(3), Bounds())
    with pytest.raises(ValueError, match="null_rows must have one entry per row"):
        ArrayRecords(np.ones((4, 2)), np.ones(4), Bounds(), [True])
    with pytest.raises(ValueError, match="two dimensions"):
        ArrayRecords(np.ones(4), np.ones(4), Bounds())
    with pytest.raises(ValueError, match="n_threads"):
        ArrayRecords(np.ones((4, 2)), np.ones(4), Bounds(), n_threads=0)
    with pytest.raises(ValueError, match="real numbers"):
        ArrayRecords(sp.csr_array(np.ones((4, 2)) * 1j), np.ones(4), Bounds())


def test_huge_rows_are_clipped_not_lost():
    X = np.array([[1e90, -1e90], [3.0, 4.0]])
    records = ArrayRecords(X, [1.0, 1.0], Bounds(1.0, intercept=False))
    np.testing.assert_allclose(records.raw_predictions([1.0, 0.0]), [np.sqrt(0.5), 0.6])
    value, gradient = records.value_and_gradient(Logistic(), np.array([1.0, 2.0]))
    assert np.isfinite(value)
    assert np.linalg.norm(gradient) <= 2


def test_duplicate_entries_cannot_escape_the_clip():
    X = sp.csr_matrix(([0.8] * 10, [1] * 10, [0, 10]), shape=(1, 3))
    X.has_canonical_format = True
    records = ArrayRecords(X, [1.0], Bounds(1.0, intercept=False))
    _, gradient = records.value_and_gradient(Logistic(), np.array([0.0, -50.0, 0.0]))
    assert np.linalg.norm(gradient) <= 1


def doubled(kind, times=1):
    """Rows (1.6, 0, 0.3) and (0, -2, 0) in a container that holds entries twice and out of order, and denies it."""
    shape = (2 * times, 3)
    data = np.tile([0.3, 0.8, 0.8, -1.0, -1.0], times)
    columns = np.tile([2, 0, 0, 1, 1], times)
    rows = np.tile([0, 0, 0, 1, 1], times) + 2 * np.repeat(np.arange(times), 5)
    if kind in (sp.coo_array, sp.coo_matrix):
        return kind((data, (rows, columns)), shape=shape)
    if kind is sp.bsr_array:
        blocks = np.array([[[0.8, 0.0, 0.15], [0.0, -1.0, 0.0]]] * 2 * times)
        X = kind((blocks, np.zeros(2 * times, dtype=int), 2 * np.arange(times + 1)), shape=shape)
    else:
        by_row = kind in (sp.csr_array, sp.csr_matrix)
        major, minor = (rows, columns) if by_row else (columns, rows)
        order = np.argsort(major, kind="stable")
        starts = np.searchsorted(major[order], np.arange(shape[0 if by_row else 1] + 1))
        X = kind((data[order], minor[order], starts), shape=shape)
    X.has_sorted_indices = X.has_canonical_format = True
    return X


CONTAINERS = (
    sp.csr_array,
    sp.csr_matrix,
    sp.csc_array,
    sp.csc_matrix,
    sp.bsr_array,
    sp.coo_array,
    sp.coo_matrix,
)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_records_store_each_entry_once_whatever_the_container_says(kind):
    records = ArrayRecords(doubled(kind), [1.0, -1.0], Bounds(10.0), [False, True])
    for one in (records, records.take(np.array([0])), records.with_labels([-1.0, 1.0])):
        for start, stop in itertools.pairwise(one.matrix.indptr):
            places = one.matrix.indices[start:stop]
            assert (np.diff(places) > 0).all()
        np.testing.assert_array_equal(one.matrix.toarray()[0], [1.6, 0.0, 0.3])


@pytest.mark.parametrize("kind", CONTAINERS)
def test_norms_of_class_sums_see_entries_that_are_stored_twice(kind):
    dense = ArrayRecords(np.array([[1.6, 0.0, 0.3], [0.0, -2.0, 0.0]]), [1.0, -1.0], Bounds(10.0))
    records = ArrayRecords(doubled(kind), [1.0, -1.0], Bounds(10.0))
    weights = np.array([1.0, 3.0, 2.0])
    parts = [focused_part(one, weights) for one in (records, dense)]
    focused, expected = (part.dense(slice(None)) * part.scales[:, None] for part in parts)
    np.testing.assert_allclose(np.linalg.norm(focused, axis=1), 1.0 - 35 * 2.0**-52, rtol=1e-15)
    np.testing.assert_allclose(focused, expected, rtol=1e-15)
    lengths = [log_lengths(one, 1.0) for one in (records, dense)]
    np.testing.assert_allclose(*lengths, rtol=1e-14)
    parts = [split(one, 0.25, Bounds(1.0, intercept=False)) for one in (records, dense)]
    sums = [part.weighted_sum(np.array([1.0, 0.0])) for part in parts]
    np.testing.assert_allclose(*sums, rtol=1e-14)
    assert np.linalg.norm(sums[0]) <= 1


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("source", ["matrix", "Dask"])
def test_fits_of_doubled_entries_are_fits_of_their_sums(kind, source):
    def fitted(X):
        y = np.tile([1, 0], X.shape[0] // 2)
        if source == "Dask":
            dask = pytest.importorskip("dask.array")
            places = dask.zeros((X.shape[0], 1), chunks=(-1, 1))
            meta = sp.csr_array((0, 0))
            X = places.map_blocks(lambda _, held: held[0], [X], chunks=(X.shape[0], 3), meta=meta)
            y = dask.from_array(y, chunks=len(y))
        model = PrivateLogisticRegression(1e3, 1e-6, classes=[0, 1], solver="refocused-sums")
        with insecure_noise(0), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X, y).coef_

    once = sp.csr_array(np.tile([[1.6, 0.0, 0.3], [0.0, -2.0, 0.0]], (50, 1)))
    np.testing.assert_allclose(fitted(doubled(kind, 50)), fitted(once), rtol=1e-6)


def test_inputs_are_left_alone():
    X, y, theta = problem(Logistic(), BOUNDS[0])
    for matrix in (X.copy(), sp.csr_array(X)):
        before = matrix.copy()
        records = ArrayRecords(matrix, y, BOUNDS[0])
        records.value_and_gradient(Logistic(), theta)
        records.hessian_product(Logistic(), theta)(theta)
        difference = matrix - before
        assert (difference.nnz if sp.issparse(matrix) else np.abs(difference).max()) == 0
    read_only = X.copy()
    read_only.flags.writeable = False
    assert np.isfinite(ArrayRecords(read_only, y, BOUNDS[0]).value_and_gradient(Logistic(), theta)[0])


def test_dense_rows_are_used_in_place():
    X, y, _ = problem(Logistic(), BOUNDS[0])
    assert ArrayRecords(X, y, BOUNDS[0]).matrix is X


def test_other_labels_on_the_same_rows():
    X, y, theta = problem(Logistic(), BOUNDS[0])
    records = ArrayRecords(X, y, BOUNDS[0])
    flipped = records.with_labels(-y)
    expected = ArrayRecords(X, -y, BOUNDS[0]).value_and_gradient(Logistic(), theta)
    assert flipped.value_and_gradient(Logistic(), theta)[0] == expected[0]
    assert records.value_and_gradient(Logistic(), theta)[0] != expected[0]
    with pytest.raises(ValueError, match="not valid"):
        records.with_labels(0 * y).value_and_gradient(Logistic(), theta)


def test_records_survive_pickling():
    X, y, theta = problem(Logistic(), BOUNDS[0])
    records = ArrayRecords(X, y, BOUNDS[0])
    again = pickle.loads(pickle.dumps(records))
    assert again.value_and_gradient(Logistic(), theta)[0] == records.value_and_gradient(Logistic(), theta)[0]
