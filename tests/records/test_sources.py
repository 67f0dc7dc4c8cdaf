"""One table in many places: every source gives the same rows, and all releases made of them are the same."""

import contextlib
import csv
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from benchmarks.scale_sources import raw_schema, write_raw
from discreet import (
    Boolean,
    Categorical,
    Ledger,
    Numeric,
    PrivateAdditiveClassifier,
    PrivateLogisticRegression,
    PrivateSearchCV,
    PrivateSelection,
    Schema,
    SchemaEncoder,
    Target,
    describe,
    evaluate,
)
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.records import arrow, batches
from discreet.records.clusters import spark
from discreet.records.clusters.dask import REPEATABLE
from discreet.records.open import open_rows
from discreet.records.sources import OWN_ROWS, source_of
from discreet.solvers import NoisyGradientDescent
from discreet.tables.reading import TableError
from tests.records.object_store import serving
from tests.records.one_table import (
    ESTIMATORS,
    LINEAR,
    MODEL,
    NUMBERS,
    RNG,
    SCHEMA,
    TABLE,
    N,
    release,
    table_for,
)
from tests.records.pretended_spark import pretended


@pytest.fixture(autouse=True)
def compiled_at_all_sizes():
    """Which passes run is not what these tests are about: rows are few."""


def parquet(table, folder):
    pq.write_table(table, folder / "whole.parquet", row_group_size=70)
    return folder / "whole.parquet"


def several(table, folder, write=pq.write_table, suffix="parquet"):
    """Three files of different sizes, in a folder with files that hold no rows."""
    place = folder / "parts"
    place.mkdir(exist_ok=True)
    for number, (low, high) in enumerate([(0, 100), (100, 101), (101, N)]):
        write(table.slice(low, high - low), place / f"part-{number}.{suffix}")
    (place / "_SUCCESS").write_bytes(b"")
    (place / ".part-0.parquet.crc").write_bytes(b"?")
    return place


def hive(table, folder):
    """Folders whose names are a column that no estimator reads."""
    for year, part in enumerate([table.slice(0, 130), table.slice(130)]):
        place = folder / "lake" / f"year={2020 + year}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, place / "part.parquet")
    return folder / "lake"


def in_memory_system(table, folder):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for number, part in enumerate([table.slice(0, 90), table.slice(90)]):
        with system.open(f"/lake/{folder.name}/part-{number}.parquet", "wb") as stream:
            pq.write_table(part, stream)
    return f"memory://lake/{folder.name}"


def write_arrow(table, path):
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=64)


def arrow_file(table, folder):
    write_arrow(table, folder / "table.arrow")
    return folder / "table.arrow"


def csv_file(table, folder):
    pa.csv.write_csv(table, folder / "table.csv")
    return folder / "table.csv"


def duck(table, folder):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    path = several(table, folder)
    return duckdb.sql(f"SELECT * FROM '{path}/*.parquet'")


def as_dask(table, npartitions=3):
    import dask.dataframe as dd

    return dd.from_pandas(table.to_pandas(), npartitions=npartitions)


SOURCES = {
    "Parquet": parquet,
    "folder": several,
    "glob": lambda table, folder: str(several(table, folder) / "part-*.parquet"),
    "list": lambda table, folder: sorted(several(table, folder).glob("*.parquet")),
    "Hive partitions": hive,
    "memory://": in_memory_system,
    "Arrow": arrow_file,
    "CSV": csv_file,
    "CSV files": lambda table, folder: several(table, folder, pa.csv.write_csv, "csv"),
    "dataset": lambda table, folder: ds.dataset(several(table, folder)),
    "DuckDB": duck,
    "polars": lambda table, folder: pl.scan_parquet(parquet(table, folder)),
    "stream": lambda table, folder: table.to_reader(max_chunksize=50),
    "Dask": lambda table, folder: as_dask(table, 1),
}
QUERIES = {"DuckDB", "polars", "stream", "Dask"}


def numbers_of(source, folder, table=NUMBERS, **rules):
    with arrow.opened(SOURCES[source](table, folder), **rules) as rows:
        return rows.matrix(), rows.labels.tolist()


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_rows_of_the_table(source, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PART_BYTES", 1)  # parts of 1024 rows, whatever the batches
    rows, labels = numbers_of(source, tmp_path, target="y", classes=[0, 1])
    wanted = np.column_stack([NUMBERS.column(name).to_numpy() for name in ("a", "b", "sick")])
    assert np.array_equal(rows, wanted.astype(float))
    assert labels == NUMBERS.column("y").to_pylist()
    with arrow.opened(SOURCES[source](TABLE, tmp_path), target=None, schema=SCHEMA) as encoded:
        rows, labels = SCHEMA.encode(TABLE)
        assert np.array_equal(encoded.matrix(), rows)
        assert encoded.labels.tolist() == labels.tolist()
        assert (OWN_ROWS in encoded.assumptions) == (source in QUERIES)


CONTAINERS = {"Arrow table": lambda table: table, "pandas": pa.Table.to_pandas, "polars frame": pl.from_arrow}
STAYING = ("linear", "words", "targets")  # estimators whose rows stay on a cluster


@pytest.mark.parametrize("source", [*SOURCES, *CONTAINERS, "Spark"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_releases_the_same_from_every_source(estimator, source, tmp_path, recwarn):
    """Bit for bit. `make contracts` runs every pair, with Spark pretended; `test_spark` runs those of Spark itself."""
    table = table_for(estimator)
    model = MODEL.fit(NUMBERS, target="y") if estimator == "evaluation" else None
    if (estimator, source) == ("recommender", "stream"):
        with pytest.raises(ValueError, match="read only once"):
            release(estimator, SOURCES[source](table, tmp_path))
        return
    # Teachers get their rows by a draw over the parts of a source, of which a table in memory has none.
    drawn = estimator == "transfer" and source not in CONTAINERS
    with insecure_noise(7):
        expected, _ = release(estimator, parquet(table, tmp_path) if drawn else table, model)
    with pretended() if source == "Spark" else contextlib.nullcontext() as session, insecure_noise(7):
        if session is not None:
            data = session.frame(table)
        else:
            data = CONTAINERS[source](table) if source in CONTAINERS else SOURCES[source](table, tmp_path)
        found, privacy = release(estimator, data, model)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)
    there = source == "Dask" and estimator in (*STAYING, "transfer", "recommender")
    assert (OWN_ROWS in privacy.assumptions) == (source in {*QUERIES, "Spark"} and not there)
    assert (REPEATABLE in privacy.assumptions) == there
    assert (spark.REPEATABLE in privacy.assumptions) == (source == "Spark")


PEOPLE = pa.array(RNG.integers(0, 70, size=N))
TEXTS = pa.array([f" p{number} " for number in PEOPLE.to_pylist()])
BY_PERSON = PrivateLogisticRegression(
    epsilon=2.0, delta=1e-6, feature_bound=3.0, classes=[0, 1], solver="noisy-gd", max_rows_per_group=2
)


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove-one"])
@pytest.mark.parametrize("ids", [PEOPLE, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_people_release_the_same_from_every_source(source, ids, neighboring, tmp_path, recwarn):
    """Bit for bit: at most two rows of each, chosen by a keyed hash of the id, in the order of first appearance."""
    n_people = None if neighboring == "replace-one" else 200
    model = clone(BY_PERSON).set_params(neighboring=neighboring, n_samples=n_people)
    table = NUMBERS.append_column("id", ids)
    features = np.column_stack([NUMBERS.column(name).to_numpy() for name in ("a", "b", "sick")]).astype(float)
    for rules, rows in (
        ({"target": "y"}, (features, NUMBERS.column("y").to_numpy())),
        ({"schema": BY_SCHEMA}, BY_SCHEMA.encode(table)),
    ):
        with insecure_noise(7):
            expected = clone(model).fit(*rows, ids.to_numpy(zero_copy_only=False)).coef_
        data = SOURCES[source](table, tmp_path)
        for where in (data, table):
            with insecure_noise(7):
                found = clone(model).fit(where, groups="id", **rules)
            assert found.privacy_.guarantee.unit == "user"
            assert np.array_equal(found.coef_, expected)


BY_SCHEMA = Schema(
    {"a": Numeric(-9, 9), "b": Numeric(0, 9), "sick": Boolean()},
    Target("y", (0, 1)),
    group="id",
    normalize=False,
)


def test_people_are_refused_before_the_charge_where_they_cannot_be_told_apart(tmp_path):
    import dask.array as da

    ledger = Ledger(tmp_path / "budget", 10.0, 1e-3)
    model = clone(BY_PERSON).set_params(ledger=ledger)
    rows = parquet(NUMBERS.append_column("id", PEOPLE), tmp_path)
    y = NUMBERS.column("y").to_numpy()
    for fit, error in [
        (lambda: model.fit(rows, target="y", groups="nobody"), "no such column: 'nobody'"),
        (lambda: model.fit(rows, target="y", groups="a"), "holds numbers of type double"),
        (lambda: model.fit(rows, target="y"), "must be given"),
        (lambda: model.fit(da.ones((N, 2), chunks=(80, 2)), y, PEOPLE.to_numpy()), "on a cluster"),
        (lambda: model.fit(np.ones((N, 2)), y, "id"), "names a column"),
        (
            lambda: clone(model).set_params(max_rows_per_group=None).fit(rows, target="y", groups="id"),
            "must be declared",
        ),
    ]:
        with pytest.raises((ValueError, TypeError), match=error):
            fit()
    assert ledger.history() == []


def test_a_pipeline_is_evaluated_on_raw_batches(tmp_path):
    pipeline = make_pipeline(
        SchemaEncoder(SCHEMA), PrivateLogisticRegression(delta=1e-6, classes=[False, True])
    )
    pipeline.fit(TABLE, TABLE.column("sick"))
    for source in (csv_file(TABLE, tmp_path), several(TABLE, tmp_path)):
        with insecure_noise(7):
            found = evaluate(pipeline, source, target="sick", delta=1e-6)
        with insecure_noise(7):
            whole = evaluate(pipeline, TABLE, TABLE.column("sick"), delta=1e-6)
        assert found["accuracy"].value == whole["accuracy"].value


BATCH = (
    1 << 24
)  # a quarter of the usual one; the blocks that Arrow reads ahead, 4 to 7 MB, are the same for any


def test_a_fit_on_raw_cells_holds_three_batches_at_most(tmp_path, monkeypatch):
    """Bytes of arrays and objects at their peak, and Arrow's whenever a batch is encoded; rows are in a mapped file."""
    monkeypatch.setattr(batches, "PART_BYTES", BATCH)
    schema, path = raw_schema(), tmp_path / "raw.csv"
    height = BATCH // (8 * len(schema.feature_names))
    model = clone(LINEAR).set_params(classes=["no", "yes"], solver=NoisyGradientDescent(n_iterations=2))
    write_raw(path, 2000)
    model.fit(path, schema=schema)  # code and libraries
    write_raw(path, 4 * height)
    before, heights, cells = pa.total_allocated_bytes(), [], []
    encode = batches.Encoded.__call__

    def noted(reading, batch):
        heights.append(batch.num_rows)
        cells.append(pa.total_allocated_bytes() - before)
        return encode(reading, batch)

    monkeypatch.setattr(batches.Encoded, "__call__", noted)
    tracemalloc.start()
    try:
        model.fit(path, schema=schema)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert heights == [height] * 4
    assert peak + max(cells) <= 3 * BATCH + 8 * model.coef_.size


def peak_of(work):
    """Bytes of arrays and objects at their peak; Arrow's, a row group of the file, come on top."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide(folder, n_rows, columns=16, group=1000):
    """A file of numbers in row groups of the same height, with its schema."""
    rng = np.random.default_rng(2)
    cells = {f"x{number}": rng.uniform(-1, 1, size=n_rows) for number in range(columns)}
    path = folder / f"{n_rows}.parquet"
    pq.write_table(pa.table(cells | {"y": rng.integers(0, 2, size=n_rows)}), path, row_group_size=group)
    return path, Schema(dict.fromkeys(cells, Numeric(-1, 1)), Target("y", (0, 1)))


def test_a_description_holds_batches_not_rows(tmp_path):
    """Eight times the rows need no more memory."""
    (few, schema), (many, _) = wide(tmp_path, 8000), wide(tmp_path, 64_000)
    describe(few, schema, delta=1e-9)  # code and libraries
    small, large = (peak_of(lambda path=path: describe(path, schema, delta=1e-9)) for path in (few, many))
    assert large <= 1.1 * small
    with insecure_noise(3):
        found = describe(many, schema, delta=1e-9).released
    with insecure_noise(3):
        assert np.array_equal(found, describe(pq.read_table(many), schema, delta=1e-9).released)


def test_an_additive_model_holds_batches_not_cells(tmp_path, monkeypatch):
    """What grows are labels, scales and marks of rows, and what is made of labels: six numbers of eight bytes."""
    monkeypatch.setattr(batches, "PART_BYTES", 1 << 17)
    (few, schema), (many, _) = wide(tmp_path, 16_000), wide(tmp_path, 128_000)
    model = PrivateAdditiveClassifier(schema=schema, delta=1e-9, n_iterations=2, pairs=1, max_bins=6)
    model.fit(few)  # code and libraries
    small, large = (peak_of(lambda path=path: model.fit(path)) for path in (few, many))
    assert large - small <= 6 * 8 * (128_000 - 16_000)
    with insecure_noise(3):
        found = model.fit(many).released_
    with insecure_noise(3):
        expected = model.fit(pq.read_table(many)).released_
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.filterwarnings("ignore")
def test_additive_models_of_people_release_the_same_from_every_source(source, tmp_path):
    schema = Schema({"a": Numeric(-9, 9), "b": Numeric(0, 9)}, Target("y", (0, 1)), group="id")
    table = NUMBERS.append_column("id", TEXTS)
    model = PrivateAdditiveClassifier(schema=schema, delta=1e-6, n_iterations=2, max_rows_per_group=2)
    with insecure_noise(7):
        expected = model.fit(table).released_
    with insecure_noise(7):
        found = model.fit(SOURCES[source](table, tmp_path)).released_
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert model.privacy_.guarantee.unit == "user"


@pytest.mark.parametrize("method", ["tries", "split", "split-parallel"])
def test_a_search_leaves_rows_in_a_file(method, tmp_path, monkeypatch):
    """It holds a batch, and labels, places and scores of rows; and finds what it finds in memory."""
    monkeypatch.setattr(batches, "PART_BYTES", 1 << 19)
    path, schema = wide(tmp_path, 48_000)
    rows, labels = schema.encode(pq.read_table(path))
    told = {"epsilon": 4.0, "delta": 1e-9, "classes": [0, 1], "method": method}
    search = PrivateSearchCV(LINEAR, {"feature_bound": [1.0, 3.0]}, **told)
    with insecure_noise(3):
        expected = clone(search).fit(rows, labels)
    with insecure_noise(3):
        found = clone(search).fit(path, schema=schema)
    assert found.best_index_ == expected.best_index_
    assert found.best_score_ == expected.best_score_
    assert np.allclose(found.best_estimator_.coef_, expected.best_estimator_.coef_, atol=1e-9)
    assert (
        peak_of(lambda: clone(search).fit(path, schema=schema))
        <= 4 * (1 << 19) + 80 * len(rows)
        < rows.nbytes
    )


@pytest.mark.parametrize("bad_rows", ["error", "null"])
def test_a_search_of_a_file_treats_bad_rows_as_one_in_memory(bad_rows, tmp_path):
    ledger = Ledger(tmp_path / "budget", 10.0, 1e-3)
    features, labels = RNG.normal(size=(400, 2)), RNG.integers(0, 2, size=400)
    features[5, 1] = np.nan
    pq.write_table(pa.table([*features.T, labels], ["a", "b", "y"]), tmp_path / "t.parquet")
    told = {"epsilon": 4.0, "delta": 1e-9, "classes": [0, 1], "bad_rows": bad_rows, "ledger": ledger}
    search = PrivateSearchCV(LINEAR, {"feature_bound": [1.0, 3.0]}, **told)
    if bad_rows == "error":
        with pytest.raises(ValueError, match="row 5"):
            search.fit(tmp_path / "t.parquet", target="y")
        assert ledger.history() == []
        return
    with insecure_noise(3):
        expected = clone(search).fit(features, labels).best_estimator_.coef_
    with insecure_noise(3):
        assert np.array_equal(
            clone(search).fit(tmp_path / "t.parquet", target="y").best_estimator_.coef_, expected
        )


def test_a_search_brings_rows_to_memory_for_solvers_that_read_single_ones(tmp_path):
    path, schema = wide(tmp_path, 400)
    told = {"epsilon": 4.0, "delta": 1e-9, "classes": [0, 1]}
    candidates = [clone(LINEAR), clone(LINEAR).set_params(solver="psgd", l2=0.1)]
    with insecure_noise(3):
        expected = PrivateSelection(candidates, **told).fit(*schema.encode(pq.read_table(path)))
    with insecure_noise(3):
        found = PrivateSelection(candidates, **told).fit(path, schema=schema)
    assert np.array_equal(found.best_estimator_.coef_, expected.best_estimator_.coef_)


# --- an object store ---


def through_arrow(store, monkeypatch):
    """Arrow's own client of S3 as the driver of fsspec."""
    from fsspec.implementations.arrow import ArrowFSWrapper
    from fsspec.registry import _registry
    from pyarrow import fs

    class Driver(ArrowFSWrapper):
        protocol = "s3"

        def __init__(self, **options):
            told = {"access_key": "somebody", "secret_key": "something", "region": "here"}
            system = fs.S3FileSystem(endpoint_override=store.address, scheme="http", **told)
            super().__init__(system, **options)

    monkeypatch.setitem(_registry, "s3", Driver)


def through_s3fs(store, monkeypatch):
    s3fs = pytest.importorskip("s3fs", reason="s3fs, another driver of fsspec for S3, is not installed")
    import fsspec

    told = {"key": "somebody", "secret": "something", "endpoint_url": f"http://{store.address}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", told)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("driver", [through_arrow, through_s3fs])
@pytest.mark.parametrize("address", ["s3://lake/visits", "s3://lake/visits/**/*.parquet"])
@pytest.mark.parametrize("estimator", ["linear", "schema", "recommender", "describe"])
def test_an_object_store_gives_the_rows_of_the_table(estimator, address, driver, monkeypatch):
    """Also where its folders are Hive partitions, whose names hold no feature that a schema does not declare."""
    table = table_for(estimator)
    with serving() as store:
        driver(store, monkeypatch)
        for number, part in enumerate([table.slice(0, 90), table.slice(90, 1), table.slice(91)]):
            sink = pa.BufferOutputStream()
            pq.write_table(part, sink)
            store.objects[f"lake/visits/year={number}/part.parquet"] = sink.getvalue().to_pybytes()
        with insecure_noise(7):
            expected, _ = release(estimator, table)
        with insecure_noise(7):
            found, _ = release(estimator, address)
        assert "GET lake/visits/year=2/part.parquet" in store.asked
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


# --- a cell means what it means alone ---


def with_cell(place, name, cell):
    cells = NUMBERS.column(name).to_pylist()
    cells[place] = cell
    kind = NUMBERS.schema.field(name).type
    return NUMBERS.set_column(NUMBERS.schema.get_field_index(name), name, pa.array(cells, kind))


@pytest.mark.parametrize("name", ["a", "b", "y"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_missing_cell_changes_no_other_row(source, name, tmp_path):
    rules = {"target": "y", "classes": [0, 1], "bad_rows": "null"}
    rows, labels = numbers_of(source, tmp_path, **rules)
    changed, others = numbers_of(source, tmp_path, table=with_cell(17, name, None), **rules)
    assert np.array_equal(np.delete(changed, 17, axis=0), np.delete(rows, 17, axis=0))
    assert np.delete(np.array(others, dtype=object), 17).tolist() == np.delete(labels, 17).tolist()
    assert others[17] is None or others[17] != others[17] or np.isnan(changed[17]).any()


CELLS = [
    "word",
    "",
    "1e400",
    "-0",
    '"',
    'a"b',
    "1,5",
    "1;5",
    "nan",
    "\\N",
    "true",
    "\udcff",
    "a\rb",
    " 1 ",
    "0x10",
]


@pytest.mark.parametrize("place", ["cell", "label"])
def test_no_cell_of_a_csv_file_changes_another_row(place, tmp_path):
    lines = [
        [f"{a}", f"{b}", "1" if y else "0"]
        for a, b, y in zip(*(NUMBERS.column(n).to_pylist() for n in "aby"), strict=True)
    ]

    def read(rows):
        with (tmp_path / "t.csv").open("w", newline="", errors="surrogateescape") as stream:
            stream.write("a,b,y\n" + "".join(",".join(row) + "\n" for row in rows))
        with arrow.opened(tmp_path / "t.csv", target="y", classes=[0, 1], bad_rows="null") as found:
            return found.matrix(), np.array(found.labels, dtype=object)

    rows, labels = read(lines)
    for cell in CELLS:
        changed = [list(line) for line in lines]
        changed[17][0 if place == "cell" else 2] = cell
        after, others = read(changed)
        assert np.array_equal(np.delete(after, 17, axis=0), np.delete(rows, 17, axis=0))
        assert np.delete(others, 17).tolist() == np.delete(labels, 17).tolist()


def test_partition_values_are_text_that_a_schema_gives_a_meaning(tmp_path):
    for ward, values in {
        "north": [1.0, 2.0],
        "07": [3.0],
        "a%2Fb": [5.0],
        "__HIVE_DEFAULT_PARTITION__": [4.0],
    }.items():
        (tmp_path / f"ward={ward}").mkdir()
        pq.write_table(
            pa.table({"a": values, "sick": [True] * len(values)}), tmp_path / f"ward={ward}" / "0.parquet"
        )
    table = source_of(tmp_path)
    assert table.schema.field("ward").type == pa.string()
    read = pa.Table.from_batches(table.batches(["a", "ward"])).to_pydict()
    assert sorted(zip(read["a"], read["ward"], strict=True)) == [
        (1.0, "north"),
        (2.0, "north"),
        (3.0, "07"),
        (4.0, None),
        (5.0, "a/b"),
    ]
    schema = Schema({"ward": Categorical(("north", "07"))}, Target("sick", (False, True)))
    with arrow.opened(tmp_path, target=None, schema=schema) as rows:
        assert rows.shape == (5, 2)
    with arrow.opened(
        tmp_path, target="sick"
    ) as rows:  # a folder's name is no feature unless a schema declares it
        assert rows.feature_names == ("a",)
    (tmp_path / "elsewhere.parquet").write_bytes((tmp_path / "ward=07" / "0.parquet").read_bytes())
    with pytest.raises(TableError, match=r"is in no folder ward=\.\.\.|no such column: 'ward'"):
        arrow.opened(tmp_path, target=None, schema=schema)


def test_parts_do_not_depend_on_how_a_source_is_cut():
    whole = pa.table({"a": np.arange(1000)})
    for size in (1, 7, 100, 999, 5000):
        parts = source_of(whole.to_reader(max_chunksize=size)).parts(["a"], 300)
        assert [part.column("a").to_pylist() for part in parts] == [
            list(range(low, min(low + 300, 1000))) for low in range(0, 1000, 300)
        ]


# --- refusals, all before any charge ---


def test_what_cannot_be_read_is_refused_before_the_charge(tmp_path):
    ledger = Ledger(tmp_path / "budget", 10.0, 1e-3)
    model = PrivateLogisticRegression(classes=[0, 1], delta=1e-6, ledger=ledger)
    pq.write_table(NUMBERS, tmp_path / "a.parquet")
    pq.write_table(NUMBERS.set_column(1, "b", NUMBERS.column("b").cast(pa.float64())), tmp_path / "b.parquet")
    (tmp_path / "empty").mkdir()
    pq.write_table(NUMBERS.slice(0, 0), tmp_path / "none.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "words.csv").write_text("a,y\n1,0\nx,1\n")
    grouped = Schema({"a": Numeric(-9, 9)}, Target("y", (0, 1)), group="b")
    for data, rules, error in [
        ([tmp_path / "a.parquet", tmp_path / "b.parquet"], {"target": "y"}, "of the same types"),
        (tmp_path / "empty", {"target": "y"}, "there is no file in"),
        (tmp_path / "*.nothing", {"target": "y"}, "there is no file"),
        (tmp_path / "none.parquet", {"target": "y"}, "no rows"),
        (tmp_path / "broken.parquet", {"target": "y"}, "is not a readable Parquet file"),
        (tmp_path / "a.parquet", {}, "name the column of labels"),
        (tmp_path / "a.parquet", {"y": [0, 1]}, "labels are read from the file"),
        (tmp_path / "a.parquet", {"schema": grouped}, "max_rows_per_group"),
        (tmp_path / "words.csv", {"target": "y"}, "not finite"),
        ([tmp_path / "a.parquet", tmp_path / "words.csv"], {"target": "y"}, "files of one kind"),
        (np.eye(2), {"target": "y"}, "names a column of a file or a frame"),
        (NUMBERS, {"target": "z"}, "must name one column"),
        (NUMBERS, {"target": "y", "y": [0] * N}, "must be None"),
        ("memory://nowhere/at/all.parquet", {"target": "y"}, "there is no file"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=error):
            model.fit(data, **rules)
    assert ledger.history() == []


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "Arrow"])
def test_a_frame_may_hold_its_labels(make):
    frame = make({name: NUMBERS.column(name).to_numpy(zero_copy_only=False) for name in NUMBERS.column_names})
    with open_rows(frame, target="y") as (rows, labels):
        assert [str(name) for name in pa.table(rows).column_names] == ["a", "b", "sick"]
        assert np.asarray(labels).tolist() == NUMBERS.column("y").to_pylist()


def test_lists_of_texts_are_no_paths():
    assert source_of(["a text", "another one"]) is None
    assert source_of([]) is None
    with pytest.raises(FileNotFoundError):
        source_of(["a.csv", "b.csv"])


def test_csv_writers_do_not_matter(tmp_path):
    with (tmp_path / "quoted.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow(["a", "y"])
        writer.writerows([["1.5", "yes"], ["2.5", "no"]])
    for bad_rows in ("error", "null"):
        with arrow.opened(
            tmp_path / "quoted.csv", target="y", classes=["no", "yes"], bad_rows=bad_rows
        ) as rows:
            assert rows.matrix().tolist() == [[1.5], [2.5]]
            assert rows.labels.tolist() == ["yes", "no"]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.int8()], ids=str)
def test_vectors_are_as_many_features_as_they_have_entries(kind, tmp_path, monkeypatch):
    """A column of embeddings gives the rows of its matrix; a missing vector or entry touches no other row."""
    monkeypatch.setattr(batches, "PART_BYTES", 1 << 12)
    rng = np.random.default_rng(4)
    rows = (rng.integers(-3, 4, size=(3000, 5)) / (1 if kind == pa.int8() else 4)).tolist()
    table = {"age": pa.array(rng.normal(size=3000)), "y": pa.array(rng.integers(0, 2, size=3000))}
    whole = pa.table(table | {"embedding": pa.array(rows, type=pa.list_(kind, 5))})
    rows[7], rows[11] = None, [1, None, 2, 0, 1]
    holes = pa.table(table | {"embedding": pa.array(rows, type=pa.list_(kind, 5))})
    found = []
    for number, one in enumerate((whole, holes)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(one, path, row_group_size=700)
        with arrow.opened(path, target="y") as opened:
            assert opened.feature_names == ("age", *(f"embedding[{place}]" for place in range(5)))
            found.append(opened.matrix())
    expected = np.column_stack([whole["age"], np.array(whole["embedding"].to_pylist(), dtype=float)])
    np.testing.assert_array_equal(found[0], expected)
    assert np.isnan(found[1][7, 1:]).all()
    assert np.isnan(found[1][11]).tolist() == [False, False, True, False, False, False]
    others = np.setdiff1d(np.arange(3000), [7, 11])
    np.testing.assert_array_equal(found[1][others], expected[others])


def test_narrow_vectors_stay_narrow_and_lists_of_any_length_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    cells = [[0.5, 1.0]] * 20
    pq.write_table(pa.table({"e": pa.array(cells, type=pa.list_(pa.float16(), 2)), "y": [0, 1] * 10}), path)
    with arrow.opened(path, target="y") as opened:
        assert opened.matrix().dtype == np.float32
    pq.write_table(pa.table({"e": pa.array(cells), "y": [0, 1] * 10}), path)
    with pytest.raises(ValueError, match="vectors of one length"):
        arrow.opened(path, target="y")
