"""Records in parts answer as records in one piece: mapped files, threads, and a cluster that loses a worker."""

import os
import signal

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from discreet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    insecure_noise,
)
from discreet.losses import Logistic, Softmax
from discreet.records import arrow, batches
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clusters.dask import DaskRows
from discreet.records.open import is_dask
from discreet.records.partitioned import LocalParts, PartitionedRecords

N, P = 3000, 5
BOUNDS = Bounds(1.5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, P))
    return X, np.where(X[:, 0] + rng.normal(size=N) > 0, 1.0, -1.0)


def in_parts(X, y, sizes):
    edges = np.cumsum(sizes)[:-1]
    rows = np.split(np.arange(len(y)), edges)
    parts = [ArrayRecords(X[chosen], y[chosen], BOUNDS) for chosen in rows]
    return PartitionedRecords(LocalParts(parts), sizes, X.shape[1], sp.issparse(X), BOUNDS, y)


def check_same(parts, whole, loss, theta):
    """All answers agree within the rounding that both prove."""
    value, gradient = whole.value_and_gradient(loss, theta)
    partial_value, partial_gradient = parts.value_and_gradient(loss, theta)
    norm = float(np.linalg.norm(theta))
    allowed = whole.gradient_rounding(loss, norm) + parts.gradient_rounding(loss, norm)
    assert np.linalg.norm(partial_gradient - gradient) <= allowed
    assert partial_value == pytest.approx(value, rel=1e-12)
    direction = np.random.default_rng(2).normal(size=np.shape(theta))
    np.testing.assert_allclose(
        parts.hessian_product(loss, theta)(direction),
        whole.hessian_product(loss, theta)(direction),
        rtol=1e-9,
        atol=1e-9,
    )
    if not whole.sparse:
        np.testing.assert_allclose(
            parts.hessian(loss, theta), whole.hessian(loss, theta), rtol=1e-9, atol=1e-9
        )
    assert (parts.n_samples, parts.n_features) == (whole.n_samples, whole.n_features)


@pytest.mark.parametrize("sizes", [(N,), (1, N - 1), (1000, 1500, 500)], ids=str)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_sums_of_parts_are_the_sum(data, sizes, kind):
    X, y = data
    X = kind(X)
    theta = np.linspace(-1, 1, P + 1)
    check_same(in_parts(X, y, sizes), ArrayRecords(X, y, BOUNDS), Logistic(), theta)


def test_softmax_and_other_labels(data):
    X, y = data
    codes = np.digitize(X[:, 0], [-0.5, 0.5]).astype(float)
    theta = np.linspace(-1, 1, 3 * (P + 1)).reshape(P + 1, 3)
    parts = in_parts(X, y, (1000, 2000)).with_labels(codes)
    whole = ArrayRecords(X, codes, BOUNDS)
    check_same(parts, whole, Softmax(3), theta)
    np.testing.assert_allclose(
        parts.mean_class_hessian(Softmax(3), theta), whole.mean_class_hessian(Softmax(3), theta), rtol=1e-9
    )


def test_more_parts_mean_more_rounding_never_less(data):
    X, y = data
    few, many = in_parts(X, y, (1500, 1500)), in_parts(X, y, (10,) * 300)
    assert many.additions(Logistic()) > 300
    assert few.gradient_rounding(Logistic(), 1.0) > 0


# --- files ---


@pytest.fixture
def parquet(tmp_path, data):
    X, y = data
    path = tmp_path / "data.parquet"
    columns = {f"x{j}": X[:, j] for j in range(P)} | {"y": y}
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


def test_a_mapped_file_holds_the_same_records(parquet, tmp_path, data, monkeypatch):
    X, y = data
    monkeypatch.setattr(batches, "PART_BYTES", 1 << 16)
    monkeypatch.setattr(arrow, "_KEEP_BYTES", 1 << 14)  # pages are given back between parts
    arrow.convert(parquet, tmp_path / "data.arrow", target="y")
    with arrow.opened(tmp_path / "data.arrow", target=None) as rows:
        assert rows.shape == (N, P)
        assert rows.feature_names == tuple(f"x{j}" for j in range(P))
        np.testing.assert_array_equal(rows.labels, y)
        np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), X)
        assert len(list(rows.blocks())) == 2
        records = rows.records(y, BOUNDS, None)
        check_same(records, ArrayRecords(X, y, BOUNDS), Logistic(), np.linspace(-1, 1, P + 1))
    assert (tmp_path / "data.arrow").exists()


def test_a_parquet_file_leaves_nothing_behind(parquet, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow.tempfile, "tempdir", str(tmp_path))
    seen, named = [], []

    def tell(done, total):
        seen.append((done, total))
        named.extend(path.name for path in tmp_path.iterdir())

    with arrow.opened(parquet, target="y", progress=tell) as rows:
        assert seen[-1] == (N, N)
        assert rows.shape == (N, P)
        named += [path.name for path in tmp_path.iterdir()]
    # No folder ever names the private rows, so not even a killed process can leave them behind.
    assert set(named) == {"data.parquet"}
    with pytest.raises(ValueError, match=r"no such column: 'z'; .*data\.parquet' has "):
        arrow.opened(parquet, target="z")
    assert [path.name for path in tmp_path.iterdir()] == ["data.parquet"]


def test_temporary_rows_are_readable_by_their_owner_only(parquet, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow.tempfile, "tempdir", str(tmp_path))
    modes = []

    class Noted(arrow.FileRows):
        def __init__(self, stream, assumptions):
            modes.append(os.stat(stream.fileno()).st_mode & 0o777)
            super().__init__(stream, assumptions)

    monkeypatch.setattr(arrow, "FileRows", Noted)
    arrow.opened(parquet, target="y").close()
    assert modes == [0o600]


def test_small_types_stay_small_and_missing_cells_are_nan(tmp_path):
    table = pa.table(
        {
            "a": pa.array([1, None, 3], pa.int16()),
            "b": pa.array([True, False, None]),
            "c": pa.array([0.5, 1.5, 2.5], pa.float32()),
            "who": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with arrow.opened(tmp_path / "t.parquet", target="who") as rows:
        (block,) = rows.blocks()
        assert block.dtype == np.float32
        np.testing.assert_array_equal(block, [[1, 1, 0.5], [np.nan, 0, 1.5], [3, np.nan, 2.5]])
        assert rows.labels.tolist() == ["x", "y", "x"]
        np.testing.assert_array_equal(rows.valid(BOUNDS), [True, False, False])


def test_files_that_cannot_be_used(tmp_path, parquet):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        arrow.opened(tmp_path / "none.parquet", target="y")
    with pytest.raises(ValueError, match="name the column of labels"):
        arrow.opened(parquet, target=None)
    (tmp_path / "x.txt").write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"whose names end in one of \.parquet, \.pq, \.csv"):
        arrow.opened(tmp_path / "x.txt", target="a")
    pq.write_table(pa.table({"a": ["u", "v"], "y": [0, 1]}), tmp_path / "text.parquet")
    with pytest.raises(ValueError, match=r"column 'a' holds string, not numbers; declare its domain"):
        arrow.opened(tmp_path / "text.parquet", target="y")
    with pa.OSFile(str(tmp_path / "bad.arrow"), "wb") as sink:
        sink.write(b"not arrow at all" * 10)
    with pytest.raises(ValueError, match="is not an Arrow file"):
        arrow.opened(tmp_path / "bad.arrow", target=None)


# --- Dask ---


MODELS = [
    PrivateLogisticRegression(delta=1e-6, classes=[-1, 0, 1], solver="noisy-gd", bad_rows="null"),
    PrivateLogisticRegression(delta=1e-6, solver="discriminant"),
    PrivateLinearSVC(delta=1e-6, classes=[-1, 0, 1], solver="objective"),
    PrivateLogisticRegression(delta=1e-6, classes=[-1, 0, 1], bad_rows="null"),
    PrivateRidge(target_bounds=(-1, 1), delta=1e-6, solver="statistics", bad_rows="null"),
    PrivateHuberRegressor(target_bounds=(-1, 1), delta=1e-6),
]


def dask_array(X, rows=700):
    import dask.array as da

    return da.from_array(X, chunks=(rows, 2))


def test_dask_threads_answer_the_same(data):
    X, y = data
    assert is_dask(dask_array(X))
    assert not is_dask(X)
    rows = DaskRows(dask_array(X))
    assert rows.shape == (N, P)
    records = rows.records(y, BOUNDS, None)
    check_same(records, ArrayRecords(X, y, BOUNDS), Logistic(), np.linspace(-1, 1, P + 1))
    check_same(records.with_labels(-y), ArrayRecords(X, -y, BOUNDS), Logistic(), np.linspace(-1, 1, P + 1))


@pytest.mark.parametrize("place", ["array", "frame", "other partitions"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{type(model).__name__} {model.solver}")
def test_labels_of_dask_release_what_labels_in_memory_do(model, place, data):
    """Bit for bit: from the same partitions, wherever the labels are."""
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    X, y = data
    cells = (
        object if place == "frame" and model.bad_rows == "null" else float
    )  # scikit-learn refuses numbers as objects
    labels = np.asarray(np.clip(np.round(X[:, 0] - y), -1, 1), dtype=cells)
    if model.bad_rows == "null":
        labels[[5, 1800]] = [None, 7] if cells is object else [np.nan, 7]
    rows = dask_array(X)
    with insecure_noise(3):
        wanted = clone(model).fit(rows, labels).coef_
    if place == "frame":
        parts = [dask.delayed(pd.Series(labels[start : start + 700])) for start in range(0, N, 700)]
        with dask.config.set({"dataframe.convert-string": False}):  # or Dask makes text of them
            there = dd.from_delayed(parts, meta=pd.Series([], dtype=cells), verify_meta=False).optimize()
    else:
        there = da.from_array(labels, chunks=700 if place == "array" else 900)
    with insecure_noise(3):
        assert np.array_equal(clone(model).fit(rows, there).coef_, wanted)


def test_dask_frames_and_bad_rows(data):
    import dask.dataframe as dd
    import pandas as pd

    X, y = data
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.loc[17, "c"] = np.nan
    rows = DaskRows(dd.from_pandas(frame, npartitions=4))
    assert rows.feature_names == tuple("abcde")
    valid = rows.valid(BOUNDS)
    assert np.flatnonzero(~valid).tolist() == [17]
    with pytest.raises(ValueError, match="not finite"):
        rows.records(y, BOUNDS, None)
    records = rows.records(y, BOUNDS, ~valid)
    whole = ArrayRecords(frame.to_numpy(), y, BOUNDS, ~valid)
    check_same(records, whole, Logistic(), np.linspace(-1, 1, P + 1))


def test_a_cluster_that_loses_a_worker_counts_every_record_once(data):
    distributed = pytest.importorskip("distributed")
    X, y = data
    theta = np.linspace(-1, 1, P + 1)
    whole = ArrayRecords(X, y, BOUNDS)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster),
    ):
        records = DaskRows(dask_array(X)).records(y, BOUNDS, None)
        check_same(records, whole, Logistic(), theta)
        worker = next(iter(cluster.workers.values()))
        os.kill(worker.pid, signal.SIGKILL)
        value, gradient = records.value_and_gradient(Logistic(), theta)
        exact_value, exact_gradient = whole.value_and_gradient(Logistic(), theta)
        assert value == pytest.approx(exact_value, rel=1e-12)
        np.testing.assert_allclose(gradient, exact_gradient, rtol=1e-9, atol=1e-9)
