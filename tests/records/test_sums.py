"""Weighted sums and Gram matrices: what the formulas say, wherever rows are kept, and to the last bit as losses sum."""

import numpy as np
import pytest
import scipy.sparse as sp

from discreet.losses import CappedLogistic, HuberHinge, Linear, Logistic, Softmax, Squared
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import COMPILED_FROM
from discreet.records.partitioned import LocalParts, PartitionedRecords

N, P = 700, 5
BOUNDS = Bounds(1.5)
NULL = np.arange(N) % 50 == 3


def in_parts(X, y, null):
    cuts = [slice(0, 100), slice(100, 101), slice(101, N)]
    parts = [ArrayRecords(X[rows], y[rows], BOUNDS, null[rows]) for rows in cuts]
    sizes = [part.n_samples for part in parts]
    return PartitionedRecords(LocalParts(parts), sizes, P, bool(sp.issparse(X)), BOUNDS, y)


KINDS = {
    "dense": ArrayRecords,
    "float32": lambda X, y, bounds, null: ArrayRecords(X.astype(np.float32), y, bounds, null),
    "csr": lambda X, y, bounds, null: ArrayRecords(sp.csr_array(X), y, bounds, null),
    "parts": lambda X, y, bounds, null: in_parts(X, y, null),
    "csr parts": lambda X, y, bounds, null: in_parts(sp.csr_array(X), y, null),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, P)).astype(np.float32).astype(np.float64)
    return X, rng.uniform(-1, 1, N), rng.uniform(0, 2, N)


def clipped(X):
    rows = np.column_stack([X, np.ones(N)])
    scales = np.minimum(1.0, BOUNDS.feature_norm / np.linalg.norm(rows, axis=1))
    return rows * np.where(NULL, 0.0, scales)[:, None]


@each_kind
def test_sums_are_those_of_the_clipped_records(table, kind):
    X, y, weights = table
    records, rows = KINDS[kind](X, y, BOUNDS, NULL), clipped(X)
    assert isinstance(records, Records)
    np.testing.assert_allclose(records.weighted_sum(y), rows.T @ y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(records.gram(), rows.T @ rows, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(records.gram(weights), (rows.T * weights) @ rows, rtol=1e-9, atol=1e-9)


@each_kind
def test_sums_are_bit_for_bit_those_of_losses_with_these_derivatives(table, kind):
    X, y, _ = table
    records, zero = KINDS[kind](X, y, BOUNDS, NULL), np.zeros(P + 1)
    np.testing.assert_array_equal(records.weighted_sum(y), -records.value_and_gradient(Linear(), zero)[1])
    unlabeled = records.with_labels(np.zeros(N))
    product = unlabeled.hessian_product(Squared(1.0, 1.0), zero)
    if records.sparse:
        by_losses = np.column_stack([product(unit) for unit in np.eye(P + 1)])
    else:
        by_losses = unlabeled.hessian(Squared(1.0, 1.0), zero)
    np.testing.assert_array_equal(records.gram(), by_losses)


@each_kind
def test_weights_of_null_records_are_ignored_and_others_must_be_numbers(table, kind):
    X, y, weights = table
    records = KINDS[kind](X, y, BOUNDS, NULL)
    strange = np.where(NULL, np.nan, weights)
    np.testing.assert_array_equal(records.weighted_sum(strange), records.weighted_sum(weights))
    np.testing.assert_array_equal(records.gram(strange), records.gram(weights))
    with pytest.raises(ValueError, match="finite"):
        records.weighted_sum(np.where(NULL, 0.0, np.inf))
    with pytest.raises(ValueError, match="one entry per row"):
        records.weighted_sum(weights[1:])


@each_kind
def test_rows_are_mapped_and_summed_part_by_part(table, kind):
    X, y, _ = table
    records = KINDS[kind](X, y, BOUNDS, NULL)
    other = Bounds(0.5)
    shorter = records.map_rows(_shorter, other, width=P, bounds=other, sparse=records.sparse)
    whole = ArrayRecords(sp.csr_array(X) if records.sparse else X, y, other, NULL)
    assert (shorter.n_samples, shorter.n_features, shorter.bounds) == (N, P + 1, other)
    np.testing.assert_allclose(shorter.weighted_sum(y), whole.weighted_sum(y), rtol=1e-9, atol=1e-12)
    count = records.sum_rows(_used)
    assert count.tolist() == [N - NULL.sum()]


def test_records_in_parts_show_no_single_rows(table):
    X, y, _ = table
    whole = ArrayRecords(X, y, BOUNDS, NULL)
    assert whole.in_memory() is whole
    with pytest.raises(ValueError, match="parts"):
        in_parts(X, y, NULL).in_memory()


def _shorter(records, bounds):
    return ArrayRecords(records.matrix, records.labels, bounds, records.scales == 0)


def _used(records):
    return np.array([np.count_nonzero(records.scales)])


@pytest.mark.parametrize("loss", [Logistic(), CappedLogistic(0.5), HuberHinge(0.5)], ids=str)
@pytest.mark.parametrize("columns", [3, 20, 54, 400])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_from_one_pass_are_those_of_each_model_alone_to_the_last_bit(loss, columns, dtype):
    n = max(400, COMPILED_FROM // columns + 37)
    rng = np.random.default_rng(columns)
    X, null = rng.normal(size=(n, columns)).astype(dtype), np.arange(n) % 3000 == 7
    for models, hidden in ((1, None), (2, null), (7, None), (7, null)):
        first = ArrayRecords(X, np.ones(n), Bounds(1.5), hidden)
        labeled = [first.with_labels(rng.choice([-1.0, 1.0], size=n)) for _ in range(models)]
        together = first.gradients_together(labeled, loss)
        assert together is not None
        points = rng.normal(size=(models, columns + 1)) * np.arange(1, models + 1)[:, None]
        alone = [part.gradient(loss, point) for part, point in zip(labeled, points, strict=True)]
        np.testing.assert_array_equal(together(points), alone)


@pytest.mark.parametrize("kind", ["csr", "parts", "csr parts"])
def test_sparse_rows_and_parts_are_read_for_each_model(table, kind):
    X, y, _ = table
    records = KINDS[kind](X, y, BOUNDS, NULL)
    labeled = [records.with_labels(signs) for signs in (np.ones(N), -np.ones(N))]
    assert records.gradients_together(labeled, Logistic()) is None


def test_one_pass_serves_models_of_the_same_rows_alone():
    n = COMPILED_FROM // P + 1
    X, y = np.random.default_rng(6).normal(size=(n, P)), np.ones(n)
    first = ArrayRecords(X, y, BOUNDS)
    for other in (ArrayRecords(X, y, Bounds(1.0)), ArrayRecords(X.copy(), y, BOUNDS)):
        assert first.gradients_together([first, other], Logistic()) is None
    assert first.gradients_together([first, first.with_labels(-y)], Softmax(3)) is None
    with pytest.raises(ValueError, match="not valid"):
        first.gradients_together([first, first.with_labels(2 * y)], Logistic())
