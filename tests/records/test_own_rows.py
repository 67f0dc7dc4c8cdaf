"""A record is a function of its own row: nothing that one row holds changes how the rows of others are read."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from discreet import PrivateLogisticRegression, PrivateSimplexRegressor, PrivateSparseLogisticRegression
from discreet.bounds import Bounds
from discreet.box_bounds import BoxBounds
from discreet.estimators import _cells, _data
from discreet.losses import Logistic
from discreet.mechanisms.entropy import insecure_noise
from discreet.records import arrow
from discreet.records.arrays import ArrayRecords
from discreet.records.dask import DaskRows, labels_of

N, P = 400, 4
rng = np.random.default_rng(8)
X = (rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.7)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
LARGE = 2**53  # the next whole number is none of float64's


def out_of_order(matrix):
    """The same CSR matrix, with the entries of one row stored in another order."""
    matrix = matrix.copy()
    row = int(np.argmax(np.diff(matrix.indptr) >= 2))
    entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
    matrix.indices[entries] = matrix.indices[entries][::-1]
    matrix.data[entries] = matrix.data[entries][::-1]
    return matrix


@pytest.mark.parametrize("column_bound", [1.0, 2.0, 3.0])
def test_neither_order_nor_type_of_entries_moves_a_cut(column_bound):
    bounds = BoxBounds.of(P, column_bound)
    rows = sp.csr_array(X)
    expected = bounds.clip(X.astype(np.float64))
    for matrix in (rows, out_of_order(rows), rows.astype(np.float64), rows.tocsc()):
        assert np.array_equal(bounds.clip(matrix).toarray(), expected)
    assert np.array_equal(bounds.clip(X), expected)


@pytest.mark.parametrize("bounds", [Bounds(1.0), BoxBounds.of(P, intercept=False)], ids=["norm", "box"])
def test_the_scale_of_a_row_does_not_depend_on_the_rows_beside_it(bounds):
    far = 4.0 * X.astype(np.float64)  # by a power of two: float32 still holds it
    expected = [bounds.row_scales(far[row : row + 1])[0] for row in range(N)]
    for matrix in (far, np.asfortranarray(far), far.astype(np.float32)):
        assert np.array_equal(bounds.row_scales(matrix), expected)
    rows = sp.csr_array(far)
    alone = [bounds.row_scales(rows[row : row + 1])[0] for row in range(N)]
    assert np.array_equal(bounds.row_scales(rows), alone)


MODELS = {
    "sparse": PrivateSparseLogisticRegression(
        delta=1e-6, feature_bound=3.0, classes=[0, 1], solver="frank-wolfe", bad_rows="null"
    ),
    "norm": PrivateLogisticRegression(delta=1e-6, feature_bound=0.7, classes=[0, 1], bad_rows="null"),
    "simplex": PrivateSimplexRegressor(delta=1e-6, target_bounds=(-1.0, 2.3), bad_rows="null"),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_same_noise_gives_the_same_model_whatever_the_type(model):
    rows = sp.csr_array(X)
    groups = [[X, X.astype(np.float64), pd.DataFrame(X).astype(object)]]
    if not isinstance(model, PrivateSimplexRegressor):
        groups.append([rows, rows.astype(np.float64), out_of_order(rows), rows.astype(np.complex64)])
    for group in groups:
        released = []
        for matrix in group:
            with insecure_noise(5):
                released.append(model.fit(matrix, Y).coef_)
        assert all(np.array_equal(coef, released[0]) for coef in released)


def test_centering_does_not_depend_on_the_type_either():
    clip = MODELS["simplex"]._clip(P)
    assert np.array_equal(clip(X), clip(X.astype(np.float64)))


def test_an_imaginary_cell_leaves_the_real_ones_alone():
    rows = X.astype(complex)
    rows[3, 1] += 2j
    for matrix in (rows, sp.csr_array(rows), sp.lil_array(rows)):
        read = _data.checked_rows(PrivateLogisticRegression(), matrix, strict=False, reset=True)
        dense = read.toarray() if sp.issparse(read) else read
        assert np.isnan(dense[3, 1])
        dense[3, 1] = X[3, 1]
        assert np.array_equal(dense, X)


@pytest.mark.parametrize("kind", [np.float16, np.longdouble, np.int8, ">f4", ">f8"])
def test_any_type_of_entries_gives_the_same_records(kind):
    rows = sp.csr_array(np.round(X))
    other = rows.copy()
    other.data = rows.data.astype(kind)
    values = [ArrayRecords(m, 2.0 * Y - 1, Bounds(1.0)) for m in (rows, other)]
    sums = [records.value_and_gradient(Logistic(), np.linspace(-1, 1, P + 1))[1] for records in values]
    assert np.array_equal(*sums)


# --- labels ---


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("batch_bytes", [1 << 12, 1 << 26], ids=["other batches", "same batch"])
def test_a_missing_label_of_a_file_leaves_the_others_exact(kind, batch_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "_BATCH_BYTES", batch_bytes)
    labels = [LARGE + label for label in np.tile(Y, 10).tolist()]
    labels[0] = None
    table = {"a": np.tile(X[:, 0], 10), "y": pa.array(labels, kind)}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with arrow.opened(tmp_path / "t.parquet", target="y") as rows:
        assert rows.labels.tolist() == labels
        codes = _cells.codes(rows.labels, np.array([LARGE, LARGE + 1]))
    assert codes.tolist() == [-1, *np.tile(Y, 10)[1:]]


def test_labels_beyond_the_whole_numbers_of_floats_are_told_apart_in_every_type():
    labels = [LARGE + 1, LARGE, 5]
    for array in (np.array(labels), np.array(labels, dtype=np.uint64), np.array([*labels, None])[:3]):
        assert _cells.codes(array, np.array([5.0, float(LARGE)])).tolist() == [-1, 1, 0]
        assert _cells.codes(array, np.array([LARGE, LARGE + 1])).tolist() == [1, 0, -1]


def test_a_partition_with_a_missing_label_leaves_the_others_exact():
    whole, broken = pd.Series([LARGE, LARGE + 1]), pd.Series([np.nan, 1.0])
    parts = [dask.delayed(part) for part in (whole, broken)]
    labels = labels_of(dd.from_delayed(parts, meta=whole[:0], verify_meta=False))
    assert labels[:2].tolist() == [LARGE, LARGE + 1]
    assert _cells.codes(labels, np.array([LARGE, LARGE + 1])).tolist() == [0, 1, -1, -1]
    for collection in (da.from_array(Y, chunks=90), dd.from_pandas(pd.Series(Y), npartitions=3)):
        assert np.array_equal(labels_of(collection), Y)


def test_text_that_is_not_utf8_is_no_label_and_no_error(tmp_path):
    words = pa.array([b"no", b"\xff\xfe", b"yes", None])
    for kind in (pa.string(), pa.binary()):
        pq.write_table(pa.table({"a": [1.0, 2, 3, 4], "y": words.view(kind)}), tmp_path / "t.parquet")
        with arrow.opened(tmp_path / "t.parquet", target="y") as rows:
            assert _cells.codes(rows.labels, np.array(["no", "yes"])).tolist() == [0, -1, 1, -1]


# --- Dask ---


def nullable(kind):
    frame = pd.DataFrame(np.round(X.astype(np.float64)), columns=list("abcd"))
    if kind in ("boolean", "bool"):
        frame["b"] = (frame["b"] > 0).astype(kind)
    elif kind != "mixed":
        frame = frame.astype(kind)
    if kind != "bool":
        frame["b"] = frame["b"].astype(object) if kind == "mixed" else frame["b"]
        frame.loc[3, "b"] = "a word" if kind in ("mixed", "object") else pd.NA
    return frame


@pytest.mark.parametrize(
    "kind", ["Float64", "Float32", "Int64", "double[pyarrow]", "boolean", "bool", "object", "mixed"]
)
def test_dask_frames_are_read_cell_by_cell_as_frames_in_memory_are(kind):
    frame = nullable(kind)
    rows = DaskRows(dd.from_pandas(frame, npartitions=3))
    expected = _cells.as_numbers(frame)
    nulls = [] if kind == "bool" else [3]
    assert np.flatnonzero(~rows.valid(Bounds(1.0))).tolist() == nulls
    read = np.concatenate(rows._workers.answers(np.asarray, rows._blocks))
    assert read.dtype == np.float64
    assert np.array_equal(read, expected, equal_nan=True)
    with insecure_noise(5):
        model = PrivateLogisticRegression(classes=[0, 1], solver="objective", bad_rows="null").fit(
            dd.from_pandas(frame, npartitions=3), Y
        )
    assert model.feature_names_in_.tolist() == list("abcd")


def test_the_type_of_dask_rows_is_the_declared_one():
    def blocks(*parts, dtype):
        return da.concatenate([da.from_delayed(dask.delayed(part), (np.nan, P), dtype) for part in parts])

    words = X.astype(object)
    words[3, 1] = "a word"
    for rows, kind in (
        (blocks(X, words, dtype="f4"), np.float32),
        (blocks(X, words, dtype="f8"), np.float64),
    ):
        opened = DaskRows(rows)
        assert opened._workers.answers(_type, opened._blocks) == [kind, kind]
    sparse = [sp.csr_array(X), sp.csr_array(X)]
    sparse[1].data = sparse[1].data.astype(object)
    sparse[1].data[0] = "a word"
    valid = DaskRows(blocks(*sparse, dtype="f4")).valid(Bounds(1.0))
    assert np.flatnonzero(~valid).tolist() == [N + int(np.argmax(np.diff(sparse[1].indptr) > 0))]


def _type(block):
    return block.dtype
