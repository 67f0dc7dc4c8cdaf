"""Tables wherever they are, as batches of whole rows: files, folders, lakes, queries.

A source gives the names and types of its columns at once, and its rows in batches of Arrow, one after the other.
Nothing here knows what a cell means: `discreet.records.arrow` makes numbers of the batches, or a `Schema` does. Rows of
a source are read once for a fit, so that every pass sees the same rows, whatever the source would give the next time.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from discreet.tables.reading import as_column, is_from, require_names

_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 1 << 27
SUFFIXES = (".parquet", ".pq", ".csv", ".arrow", ".feather")

OWN_ROWS = (
    "every row that the query gives is made of one row of the private tables, and every such row gives at most one: it "
    "does not aggregate, rank, deduplicate, sample or limit private rows, nor join them with each other (given by the "
    "user)"
)


class Source(ABC):
    """A table somewhere that is read in batches of rows.

    Attributes
    ----------
    name : what errors call it.
    schema : names and types of its columns.
    untyped : columns whose cells are stored without a type, as text; each of them is given a meaning by itself.
    keys : columns that are written in the names of folders; features only if a `Schema` declares them.
    assumptions : what a promise assumes of it.
    n_rows : number of rows, if it is known before they are read.
    once : whether it can be read only once.
    """

    name: str
    schema: Any
    untyped: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()
    n_rows: int | None = None
    once: bool = False

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Some columns of all rows, as record batches of any size."""

    def parts(self, columns: Sequence[str], height: int) -> Iterator[Any]:
        """The same rows in batches of exactly ``height`` rows but for the last one.

        So the parts of a fit, and with them its release, depend on the rows and their order alone, not on how the
        source is cut into files, groups or batches.
        """
        return rebatched(self.batches(columns), height)

    def columns(self, names: Sequence[str]) -> Any:
        """Some columns of all rows as an Arrow table in memory."""
        import pyarrow as pa

        self.require(names)
        kinds = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(self.batches(names), schema=kinds)

    def require(self, columns: Sequence[str]) -> None:
        """Raise unless each of these columns is there exactly once."""
        require_names(self.schema.names, columns, repr(self.name))


def rebatched(batches: Iterable[Any], height: int) -> Iterator[Any]:
    """The same rows in batches of exactly ``height`` rows but for the last one; none without rows."""
    waiting: list[Any] = []
    held = 0
    for whole in batches:
        batch = whole
        while held + batch.num_rows >= height:
            cut = height - held
            yield _joined([*waiting, batch.slice(0, cut)])
            batch, waiting, held = batch.slice(cut), [], 0
        if batch.num_rows:
            waiting.append(batch)
            held += batch.num_rows
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[Any]) -> Any:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    import pyarrow as pa

    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]


def list_length(kind: Any) -> int:
    """The length of every cell of a column of vectors; 0 for any other type.

    >>> import pyarrow as pa
    >>> list_length(pa.list_(pa.float32(), 3)), list_length(pa.list_(pa.float32())), list_length(pa.float32())
    (3, 0, 0)
    """
    import pyarrow as pa

    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 0


def batch_rows(schema: Any, columns: Sequence[str]) -> int:
    """How many rows of these columns to ask for at once: fewer if they are wide."""
    width = sum(max(list_length(schema.field(name).type), 1) for name in columns)
    return int(min(_BATCH_ROWS, max(1024, _BATCH_BYTES // (8 * max(width, 1)))))


class Dataset(Source):
    """A ``pyarrow.dataset``: files of one schema, perhaps with partitions, as whoever made it declared them."""

    def __init__(self, data: Any) -> None:
        self.name, self.schema, self._data = "the dataset", data.schema, data

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches in the order of the fragments, with little read ahead."""
        ahead = {"batch_readahead": 1, "fragment_readahead": 1}
        rows = batch_rows(self.schema, columns)
        yield from self._data.to_batches(columns=list(columns), batch_size=rows, **ahead)


class DuckQuery(Source):
    """A DuckDB relation: a table, a view, or what ``duckdb.sql("SELECT ...")`` gives."""

    assumptions = (OWN_ROWS,)

    def __init__(self, relation: Any) -> None:
        self.name, self._relation = "the query", relation
        self.schema = relation.limit(0).to_arrow_table().schema

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches as DuckDB gives them."""
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        yield from self._relation.project(names).to_arrow_reader(batch_rows(self.schema, columns))


class LazyQuery(Source):
    """A polars LazyFrame, which is collected in batches."""

    assumptions = (OWN_ROWS,)

    def __init__(self, frame: Any) -> None:
        self.name, self._frame = "the query", frame
        self.schema = frame.collect_schema().to_frame().to_arrow().schema

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches in the order of the query."""
        chosen = self._frame.select(list(columns))
        rows = batch_rows(self.schema, columns)
        for frame in chosen.collect_batches(chunk_size=rows, maintain_order=True):
            yield from frame.to_arrow().to_batches()


class Stream(Source):
    """A ``pyarrow.RecordBatchReader``, which database drivers give; it can be read once."""

    assumptions = (OWN_ROWS,)
    once = True

    def __init__(self, reader: Any) -> None:
        self.name, self.schema, self._reader = "the stream", reader.schema, reader

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches as they come."""
        for batch in self._reader:
            yield batch.select(list(columns))


class DaskTable(Source):
    """A Dask data frame as a table: for what needs single rows, its partitions come here one after the other.

    Cells of columns of any object are taken as text, each by itself, as those of CSV files are.
    """

    assumptions = (OWN_ROWS,)

    def __init__(self, frame: Any) -> None:
        import pyarrow as pa

        self.name, self._frame = "the Dask frame", frame
        self.untyped = frozenset(str(name) for name, kind in frame.dtypes.items() if kind.kind == "O")
        kinds = pa.Schema.from_pandas(frame._meta.drop(columns=list(self.untyped)), preserve_index=False)
        types = {field.name: getattr(field.type, "value_type", field.type) for field in kinds}
        self.schema = pa.schema([(str(name), types.get(str(name), pa.string())) for name in frame.columns])

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """One partition after the other."""
        import pyarrow as pa

        wanted = pa.schema([self.schema.field(name) for name in columns])
        for part in self._frame[list(columns)].to_delayed():
            held = part.compute()
            cells = [
                as_column(held[name], name).cast(wanted.field(name).type, safe=False) for name in columns
            ]
            yield pa.record_batch(cells, schema=wanted)


def _spark(frame: Any) -> Source:
    from discreet.records.clusters.spark import SparkTable

    return SparkTable(frame)


def is_source(data: Any) -> bool:
    """Whether ``data`` names or is a table that is read in batches; see `source_of`."""
    if isinstance(data, list | tuple):  # which may be rows of text as well
        return len(data) > 0 and all(
            isinstance(one, os.PathLike) or (isinstance(one, str) and one.lower().endswith(SUFFIXES))
            for one in data
        )
    named = isinstance(data, str | os.PathLike)
    return (
        named
        or isinstance(data, Source)
        or is_from(data, "pyarrow", "RecordBatchReader")
        or any(is_from(data, *kind) for kind in _QUERIES)
    )


def source_of(data: Any, *, bad_rows: str = "error") -> Source | None:
    """The source that ``data`` names or is; None if it is something else, such as an array.

    Parameters
    ----------
    data : a path, folder, glob or address of `fsspec`, or a list of them; a ``pyarrow.dataset``; a DuckDB relation; a
        polars LazyFrame; a Spark or Dask data frame; a ``pyarrow.RecordBatchReader``.
    bad_rows : with "null", no line of a CSV file raises an error.
    """
    if isinstance(data, Source) or not is_source(data):
        return data if isinstance(data, Source) else None
    if is_from(data, "pyarrow", "RecordBatchReader"):
        return Stream(data)
    for kind, make in _QUERIES.items():
        if is_from(data, *kind):
            return make(data)
    from discreet.records.files import files

    return files(data, bad_rows)


_QUERIES: dict[tuple[str, str], Callable[[Any], Source]] = {
    ("pyarrow.dataset", "Dataset"): Dataset,
    ("duckdb", "DuckDBPyRelation"): DuckQuery,
    ("polars", "LazyFrame"): LazyQuery,
    ("dask.dataframe", "DataFrame"): DaskTable,
    ("pyspark.sql", "DataFrame"): _spark,
}
