"""Data that cannot be used are refused before anything is charged, in words that quote none of them."""

import json
import os

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from discreet import Categorical, Ledger, PrivateLogisticRegression, Schema
from discreet.privacy.ledger import sqlite
from discreet.records import arrow
from discreet.records.bounds import Bounds
from discreet.records.open import checked_rows
from discreet.records.partitioned import LocalParts, PartitionedRecords

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
SECRET = "HIV positive"


# --- sparse cells ---


def with_word(form):
    matrix = getattr(sp, f"{form}_array")(X)
    matrix.data = matrix.data.astype(object)
    matrix.data.flat[4] = SECRET
    return matrix


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_word_among_sparse_entries_is_a_null_row_or_an_error_that_does_not_quote_it(form):
    model = PrivateLogisticRegression(classes=[0, 1], bad_rows="null")
    matrix = with_word(form)
    rows = checked_rows(model, matrix, strict=False, reset=True).toarray()
    [(row, column)] = np.argwhere(np.isnan(rows))
    rows[row, column] = X[row, column]
    assert np.array_equal(rows, X)
    assert matrix.data.flat[4] == SECRET  # what was passed is left as it was
    with pytest.raises(ValueError, match=rf"X\[{row}, {column}\]: not a number") as caught:
        PrivateLogisticRegression(classes=[0, 1]).fit(matrix, Y)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__  # SciPy's own words would


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_an_infinite_entry_is_refused_in_every_precision(kind):
    X = np.array([[1.0, 0.0], [0.0, np.inf]], dtype=kind)
    with pytest.raises(ValueError, match="missing \\(NaN\\), infinite or beyond"):
        PrivateLogisticRegression(1.0, 1e-3, classes=[0, 1]).fit(X, [0, 1])


def test_complex_entries_are_refused_without_being_printed():
    matrix = sp.csr_array(X + 0.123456j)
    model = PrivateLogisticRegression(classes=[0, 1], bad_rows="null").fit(matrix, Y)
    for use in (PrivateLogisticRegression(classes=[0, 1]).fit, lambda rows, y: model.predict(rows)):
        with pytest.raises(ValueError, match="Complex data not supported: every cell") as caught:
            use(matrix, Y)
        assert "123456" not in str(caught.value)


# --- Dask ---


def blocks(*parts):
    return da.concatenate([da.from_delayed(dask.delayed(part), (np.nan, 3), float) for part in parts])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((X[:30], X[30:, :2]), "the partitions of X differ"),
        ((X[:30], sp.csr_array(X[30:])), "the partitions of X differ"),
        ((sp.csr_array(X[:30]), X[30:]), "the partitions of X differ"),
        ((X[:0], X[:0]), "no rows or no columns"),
        ((X[:30], X[30:, 0]), "two dimensions"),
    ],
    ids=["width", "sparse later", "dense later", "no rows", "one dimension"],
)
def test_partitions_that_do_not_fit_together_cost_nothing(parts, message, tmp_path):
    ledger = Ledger(tmp_path / "ledger", 5.0, 1e-5)
    model = PrivateLogisticRegression(classes=[0, 1], ledger=ledger, bad_rows="null", solver="objective")
    with pytest.raises(ValueError, match=message):
        model.fit(blocks(*parts), Y)
    assert not ledger.history()


def test_words_in_a_dask_frame_are_an_error_unless_asked_otherwise():
    frame = pd.DataFrame(X.astype(object), columns=list("abc"))
    frame.loc[3, "b"] = SECRET
    with pytest.raises(ValueError, match="values that are not finite") as caught:
        PrivateLogisticRegression(classes=[0, 1], solver="objective").fit(
            dd.from_pandas(frame, npartitions=2), Y
        )
    assert SECRET not in str(caught.value)


def test_the_refusal_of_many_small_partitions_tells_no_sizes():
    sizes = [17] * 4001
    with pytest.raises(ValueError, match="partitions of at least 256 rows") as caught:
        PartitionedRecords(LocalParts([]), sizes, 3, False, Bounds(1.0), np.zeros(sum(sizes)))
    assert not any(str(number) in str(caught.value) for number in (17, 4001, sum(sizes)))


# --- files ---


def parquet(path, columns, names):
    pq.write_table(pa.table([pa.array(column) for column in columns], names=names), path)
    return path


def test_columns_of_one_name_are_refused(tmp_path):
    path = parquet(tmp_path / "t.parquet", [X[:, 0], X[:, 1], Y], ["a", "a", "y"])
    with pytest.raises(ValueError, match=r"more than one column is named 'a' in .*; rename all but one"):
        arrow.opened(path, target="y")
    arrow.convert(  # a column that is not asked for may have any name
        parquet(path, [X[:, 0], X[:, 1], X[:, 2], Y], ["a", "a", "b", "y"]),
        tmp_path / "t.arrow",
        target="y",
        columns=["b"],
    )


def test_any_name_of_a_column_comes_back(tmp_path):
    names = ["a\nb", "", 'quoted "c"', "äöü"]
    path = parquet(tmp_path / "t.parquet", [*X.T, Y, Y], [*names, "y"])
    with arrow.opened(path, target="y") as rows:
        assert rows.feature_names == tuple(names)
        assert rows.shape == (60, 4)


def test_labels_that_are_lists_are_refused_by_their_type(tmp_path):
    path = parquet(tmp_path / "t.parquet", [X[:, 0], [[SECRET]] * 60], ["a", "y"])
    with pytest.raises(ValueError, match="which is no label: labels are numbers, text or true/false"):
        arrow.opened(path, target="y")


def test_empty_tables_are_refused_with_and_without_a_schema(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.string()), "y": pa.array([], pa.string())}), path)
    schema = Schema({"a": Categorical(("u", "v"))}).with_target("y", ("no", "yes"))
    with pytest.raises(ValueError, match="columns but no rows"):
        arrow.encoded(path, schema)


def foreign(path, rows, labels, metadata=None):
    """An Arrow file that `convert` did not make."""
    metadata = {arrow.FEATURES: json.dumps(["a", "b"])} if metadata is None else metadata
    batch = pa.record_batch([rows, labels], names=[arrow.ROWS, arrow.LABEL])
    layout = batch.schema.with_metadata(metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, layout) as writer:
        writer.write_batch(batch.cast(layout))
    return path


PAIRS = pa.list_(pa.float64(), 2)


@pytest.mark.parametrize(
    ("rows", "labels", "metadata", "message"),
    [
        (pa.array([[1.0, 2.0], None], PAIRS), pa.array([0, 1]), None, "are null"),
        (pa.array([[1.0, None], [1.0, 2.0]], PAIRS), pa.array([0, 1]), None, "are null"),
        (pa.array([[1.0, 2.0], [1.0]]), pa.array([0, 1]), None, "its rows are"),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.array([0]), None, "its rows are"),
        (pa.array([[1.0, 2.0]], PAIRS), pa.array([[0]]), None, "its labels are"),
        (pa.array([[1.0, 2.0]], PAIRS), pa.array([0]), {b"features": "a\nb"}, "names of features"),
        (pa.array([[1.0, 2.0]], PAIRS), pa.array([0]), {arrow.FEATURES: '["a"]'}, "1 features are named"),
        (pa.array([[1.0, 2.0]], PAIRS), pa.array([0]), {arrow.FEATURES: "{"}, "convert"),
        (pa.array([], PAIRS), pa.array([], pa.int64()), None, "no rows"),
    ],
    ids=["null row", "null cell", "ragged", "whole numbers", "labels", "older", "names", "damaged", "empty"],
)
def test_arrow_files_of_another_make_are_refused(rows, labels, metadata, message, tmp_path):
    path = foreign(tmp_path / "t.arrow", rows, labels, metadata)
    with pytest.raises(ValueError, match=rf"not an Arrow file made by .*{message}"):
        arrow.opened(path, target=None)


def test_an_arrow_file_of_the_same_make_is_read(tmp_path):
    path = foreign(tmp_path / "t.arrow", pa.array([[1.0, 2.0]], PAIRS), pa.array([7]))
    with arrow.opened(path, target=None) as rows:
        assert rows.feature_names == ("a", "b")
        assert rows.labels.tolist() == [7]


# --- tables ---


def test_a_column_of_lists_has_no_domain():
    schema = Schema({"a": Categorical(("u", "v"))})
    for cells in (pa.array([[SECRET], ["v"]]), pa.array([{"part": SECRET}, None])):
        with pytest.raises(ValueError, match=r"column 'a' holds values of type .*own column") as caught:
            schema.transform(pa.table({"a": cells}))
        assert SECRET not in str(caught.value)


def test_text_that_is_not_utf8_matches_no_category_and_raises_nothing():
    words = pa.array([b"u", b"\xffu", b"v", None]).view(pa.string())
    schema = Schema({"a": Categorical(("u", "v"), unknown="bucket")})
    expected = [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    for table in (pa.table({"a": words}), pa.table({"a": pa.chunked_array([words[:2], words[2:]])})):
        assert schema.transform(table, bad_rows="null").tolist() == expected


# --- the ledger's file ---


def test_without_hard_links_a_name_gets_a_whole_file_or_none(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("not here")

    monkeypatch.setattr(os, "link", refuse)
    draft, path = tmp_path / "draft", tmp_path / "ledger"
    draft.write_bytes(b"whole")
    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", refuse)
        with pytest.raises(OSError, match="not here"):
            sqlite.publish(draft, path)
    assert not path.exists()
    sqlite.publish(draft, path)
    assert path.read_bytes() == b"whole"
    draft.write_bytes(b"another")
    with pytest.raises(FileExistsError):
        sqlite.publish(draft, path)
    assert path.read_bytes() == b"whole"
