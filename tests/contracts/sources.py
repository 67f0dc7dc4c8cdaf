"""Every kind of source of rows, made of an Arrow table that is cut in two: what the contracts read from."""

import contextlib
import tempfile
from pathlib import Path

import dask.dataframe as dd
import polars as pl
import pyarrow.csv as csv
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.records.pretended_spark import pretended


def pieces(table):
    half = (len(table) + 1) // 2
    return [table.slice(0, half), table.slice(half)]


@contextlib.contextmanager
def folder(table):
    """Two Parquet files."""
    with tempfile.TemporaryDirectory() as place:
        for number, piece in enumerate(pieces(table)):
            pq.write_table(piece, Path(place) / f"{number}.parquet")
        yield place


def one_file(name, write):
    @contextlib.contextmanager
    def written(table):
        with tempfile.TemporaryDirectory() as place:
            write(table, f"{place}/{name}")
            yield f"{place}/{name}"

    return written


@contextlib.contextmanager
def dataset(table):
    with folder(table) as place:
        yield ds.dataset(place)


@contextlib.contextmanager
def stream(table):
    yield table.to_reader(max_chunksize=2)


@contextlib.contextmanager
def lazy_polars(table):
    with folder(table) as place:
        yield pl.scan_parquet(place)


@contextlib.contextmanager
def duckdb_query(table):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with folder(table) as place, duckdb.connect() as connection:
        try:
            yield connection.sql(f"SELECT * FROM '{place}/*.parquet'")
        except duckdb.Error:
            raise ValueError("DuckDB has no such type") from None


@contextlib.contextmanager
def dask_frame(table):
    yield dd.from_pandas(table.to_pandas(), npartitions=2)


@contextlib.contextmanager
def spark(table):
    with pretended() as session:
        yield session.frame(*pieces(table))


#: Makers of sources, by the class that reads them and what they are.
SOURCES = {
    ("Files", "folder"): folder,
    ("Files", "CSV"): one_file("table.csv", csv.write_csv),
    ("Files", "Arrow file"): one_file("table.feather", feather.write_feather),
    ("Dataset", "dataset"): dataset,
    ("Stream", "stream"): stream,
    ("LazyQuery", "lazy polars"): lazy_polars,
    ("DuckQuery", "DuckDB"): duckdb_query,
    ("DaskTable", "Dask"): dask_frame,
    ("SparkTable", "Spark"): spark,
}
