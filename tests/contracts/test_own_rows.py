"""A record is a function of its own row: nothing that one cell holds changes how the rows of others are read.

For every container and type of column, every kind of cell takes the place of one cell; all other rows must stay
bit-identical, and equal to those of a plain list. Where the container itself rewrites its other cells, the pair is
named in REWRITTEN: there the type of the column, which statements call public, has changed.
"""

import contextlib
import csv
import importlib
import itertools
import math
import pkgutil
from datetime import date, datetime
from decimal import Decimal

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from discreet import (
    Binned,
    Boolean,
    Categorical,
    Ledger,
    Numeric,
    PrivateLogisticRegression,
    PrivateMatrixCompletion,
    PrivateMedian,
    PrivateRidge,
    PrivateSimplexRegressor,
    PrivateSparseLogisticRegression,
    PrivateTransferClassifier,
    Schema,
    SchemaError,
    Target,
    Text,
    private_quantiles,
    records,
)
from discreet.additive.columns import Column
from discreet.description.columns import columns_of
from discreet.description.quantiles import _values
from discreet.estimators.groups import read_people
from discreet.losses import Logistic
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.recommend import sources
from discreet.recommend.ratings import Scale, opened
from discreet.records import arrow, batches
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, BoxBounds
from discreet.records.clusters.dask import DaskRows, labels_of
from discreet.records.open import (
    as_numbers,
    checked_classes,
    checked_rows,
    checked_targets,
    class_codes,
    read_labels,
)
from discreet.records.sources import Source, source_of
from discreet.solvers.gradients.row_centering import CenteredBounds, LeveledBounds
from discreet.tables import domains
from discreet.tables.reading import TableError, column, read_table
from discreet.transfer.subsample import subsample_and_aggregate
from tests.contracts.sources import SOURCES

LARGE = 2**60  # float64 does not hold the next whole number
PLACE = 2  # of the cell that is replaced

COLUMNS = {
    "bool": [True, False, True, True, False, True],
    "int": [0, 1, 0, 1, 7, 1],
    "large int": [LARGE, LARGE + 1, LARGE, LARGE + 1, LARGE, 5],
    "float": [0.5, 1.0, 0.0, -2.5, 1.0, 0.5],
    "whole float": [0.0, 1.0, 0.0, 1.0, 7.0, 1.0],
    "text": ["north", "south", "1", "north", "na", "1.0"],
    "number text": ["0", "1", "01", "1.0", "true", "1"],
    "date": [
        date(2020, 1, 1),
        date(2020, 1, 2),
        date(2020, 1, 1),
        date(2020, 1, 2),
        date(2020, 1, 1),
        date(2020, 1, 3),
    ],
    "time": [datetime(2020, 1, 1 + place % 2) for place in range(6)],
    "decimal": [Decimal(text) for text in ("0", "1", "0.5", "1", "0.5", "1")],
}
CELLS = {
    "none": None,
    "nan": math.nan,
    "NA": pd.NA,
    "bool": True,
    "numpy bool": np.bool_(False),
    "int": 1,
    "large int": LARGE + 1,
    "huge int": 10**400,
    "whole float": 1.0,
    "float": 0.25,
    "word": "word",
    "empty": "",
    "text of a number": "1.0",
    "text of a bool": "true",
    "date": date(2020, 1, 2),
    "time": datetime(2021, 3, 4, 5),
    "numpy date": np.datetime64("2020-01-01", "ns"),
    "decimal": Decimal("1.25"),
    "complex": 1 + 2j,
    "bytes": b"word",
    "list": [1],
    "half a character": "a\udcff",
}


# Pairs of containers and columns of which one cell makes the container itself rewrite others, and who notices: NumPy
# makes 1 or the text "True" of True, and the text "1.0" of 1.0; both round whole numbers beside a float or a gap.
REWRITTEN = {
    ("NumPy", "bool"): {"text", "people"},
    ("NumPy", "float"): {"text"},
    ("NumPy", "whole float"): {"text"},
    ("NumPy", "large int"): {"text", "large categories"},
    ("pandas", "large int"): {"text", "large categories"},
    ("pandas nullable", "large int"): {"text", "large categories"},
    ("frame", "large int"): {"text", "large categories"},
    # Dask makes texts of all cells of a column of objects, before anybody reads them.
    ("Dask", "bool"): {"people"},
    ("Dask", "float"): {"text"},
    ("Dask", "whole float"): {"text"},
    ("Dask", "large int"): {"text", "large categories"},
}


def as_csv(cells, folder, bad_rows):
    path = folder / "table.csv"
    with path.open("w", newline="", errors="replace") as stream:
        writer = csv.writer(stream)
        writer.writerow(["row", "c"])
        writer.writerows((row, "" if cell is None else cell) for row, cell in enumerate(cells))
    return read_table(path, ["c"], bad_rows=bad_rows)


def as_parquet(cells, folder):
    pq.write_table(pa.table({"c": pa.array(cells)}), folder / "table.parquet")
    return read_table(folder / "table.parquet")


def in_batches(data, bad_rows="error"):
    """The table that a source gives in batches."""
    return pa.Table.from_batches(source_of(data, bad_rows=bad_rows).batches(["c"]))


def from_source(make):
    """The container that a kind of source is, as it is read in batches."""

    def held(cells, _):
        with make(pa.table({"c": pa.array(cells)})) as data:
            return in_batches(data)

    return held


def as_dask(cells, folder):
    return in_batches(dd.from_pandas(pd.DataFrame({"c": cells}), npartitions=2))


def objects(cells):
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


# How a column of cells may come: as one column, and what can be made of no cell that it cannot hold.
SERIES = {
    "list": lambda cells: cells,
    "objects": objects,
    "NumPy": np.asarray,
    "pandas": pd.Series,
    "pandas objects": lambda cells: pd.Series(objects(cells), dtype=object),
    "pandas nullable": lambda cells: pd.Series(pd.array(cells)),
    "pandas categories": lambda cells: pd.Series(objects(cells), dtype=object).astype("category"),
    "pandas Arrow": lambda cells: pd.Series(pa.array(cells), dtype=pd.ArrowDtype(pa.array(cells).type)),
    "polars": lambda cells: pl.Series(cells),
    "polars categories": lambda cells: pl.Series(cells, dtype=pl.Categorical),
    "Arrow": pa.array,
    "Arrow dictionary": lambda cells: pa.array(cells).dictionary_encode(),
    "chunked Arrow": lambda cells: pa.chunked_array([pa.array(cells)[:1], pa.array(cells)[1:]]),
}
TABLES = {
    **{name: lambda cells, folder, make=make: {"c": make(cells)} for name, make in SERIES.items()},
    "frame": lambda cells, folder: pd.DataFrame({"c": cells}),
    "frame of polars": lambda cells, folder: pl.DataFrame({"c": cells}),
    "table of Arrow": lambda cells, folder: pa.table({"c": cells}),
    "CSV": lambda cells, folder: as_csv(cells, folder, "error"),
    "CSV by lines": lambda cells, folder: as_csv(cells, folder, "null"),
    "Parquet": as_parquet,
    **{name: from_source(make) for (_, name), make in SOURCES.items() if name not in ("CSV", "Dask")},
    "Dask": as_dask,
}
# No type of a column is refused where there is none: every cell of these is read by itself.
UNTYPED = {"list", "objects", "pandas objects", "CSV", "CSV by lines"}


def replaced(cells, cell):
    return [cell if place == PLACE else other for place, other in enumerate(cells)]


def held(make, cells, *arguments):
    """The container with these cells, None where it cannot hold them together."""
    try:
        return make(cells, *arguments)
    except (TypeError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError):
        return None


def others(rows):
    """What was read of all rows but the replaced one, to the last bit."""
    return [
        np.asarray(row).tobytes() if isinstance(row, np.ndarray | float) else row
        for row in np.delete(rows, PLACE, axis=0)
    ]


REFUSED = "refused by type"
DOMAINS = {
    "numeric": Numeric(-3, 3),
    "marked": Numeric(0, 2.0**61, missing_feature=True, logarithmic=True),
    "binned": Binned((0.5, 1.0, 2.0**60)),
    "numbers as categories": Categorical((0, 1, 7), unknown="bucket"),
    "bools as categories": Categorical((False, True), unknown="bucket"),
    "large categories": Categorical((LARGE, LARGE + 1, 5), unknown="bucket"),
    "texts as categories": Categorical(("north", "01", "5", "2020-01-01"), unknown="bucket"),
    "boolean": Boolean(),
    "text": Text(64),
}

DESCRIBED = ("marked", "boolean", "text")
ADDITIVE = ("marked", "binned", "bools as categories", "boolean")
READERS = (
    *DOMAINS,
    *(f"described {name}" for name in DESCRIBED),
    *(f"additive {name}" for name in ADDITIVE),
    "target",
    "labels",
    "true labels",
    "bounds",
    "people",
)


def places(domain, cells):
    """Where a description counts each cell, and what it adds to sums."""
    (part,) = columns_of(Schema({"c": domain}), {"c": 4})
    found, malformed = part.read(cells)
    excess = np.zeros(len(cells)) if found.excess is None else found.excess
    return np.column_stack([found.codes, excess, malformed])


def read_by_schema(table):
    """What every domain, target and group makes of the column "c"; REFUSED where its type can be none."""

    def attempt(reading):
        try:
            return others(reading())
        except (TableError, ValueError) as error:
            return REFUSED if "type" in str(error) else str(error)

    try:
        cells = column(table, "c")
    except TableError:
        return dict.fromkeys(READERS, REFUSED)
    found = {
        name: attempt(lambda domain=domain: np.column_stack(domain.encode(cells)))
        for name, domain in DOMAINS.items()
    }
    found |= {
        f"described {name}": attempt(lambda domain=DOMAINS[name]: places(domain, cells)) for name in DESCRIBED
    }
    found |= {
        f"additive {name}": attempt(
            lambda name=name: np.column_stack(Column("c", DOMAINS[name]).read(cells)).astype(float)
        )
        for name in ADDITIVE
    }
    for name, target in {
        "target": Target("c", bounds=(-3, 3)),
        "labels": Target("c", (0, 1, 7)),
        "true labels": Target("c", (False, True)),
    }.items():
        schema = Schema({"other": Boolean()}, target)
        found[name] = attempt(lambda schema=schema: schema.target_values(table, bad_rows="null"))
    found["bounds"] = attempt(lambda: _values(table, "c", strict=False))
    found["people"] = attempt(lambda: Schema({"other": Boolean()}, group="c").groups(table))
    return found


@pytest.mark.parametrize("container", TABLES)
@pytest.mark.parametrize("kind", COLUMNS)
def test_schemas_read_every_cell_by_itself(kind, container, tmp_path):
    cells, make = COLUMNS[kind], TABLES[container]
    before = held(make, cells, tmp_path)
    if before is None:
        pytest.skip("this container does not hold such cells")
    before = read_by_schema(before)
    expected = read_by_schema({"c": cells})
    for reader in before.keys() - (
        {"text", "people"} if "CSV" in container else set()
    ):  # files spell 1.0 as they like
        assert before[reader] in (expected[reader], REFUSED), reader
    different = set()
    for cell in CELLS.values():
        table = held(make, replaced(cells, cell), tmp_path)
        after = before if table is None else read_by_schema(table)
        if container in UNTYPED:
            assert REFUSED not in after.values()
        different |= {
            reader
            for reader in after
            if after[reader] != before[reader] and REFUSED not in (after[reader], before[reader])
        }
    assert different == REWRITTEN.get((container, kind), set())


def test_every_kind_of_domain_is_read():
    kinds = {kind for kind in vars(domains).values() if isinstance(kind, type) and hasattr(kind, "encode")}
    assert {type(domain) for domain in DOMAINS.values()} == kinds - {domains.Domain}


def test_every_kind_of_source_is_read():
    for module in pkgutil.iter_modules(records.__path__):
        importlib.import_module(f"discreet.records.{module.name}")
    assert {kind.__name__ for kind in Source.__subclasses__()} == {kind for kind, _ in SOURCES}
    assert {name for _, name in SOURCES} <= TABLES.keys() & RATED.keys()


def test_a_reader_that_looks_at_other_cells_is_caught(monkeypatch):
    """A twin that reads a column by the type that its cells have together, as a frame does."""
    monkeypatch.setattr(
        Numeric,
        "encode",
        lambda domain, cells: (
            np.clip(pd.to_numeric(pd.Series(cells.to_pylist()), errors="coerce").to_numpy(float), -3, 3)[
                :, None
            ]
            * (1.0 if None in cells.to_pylist() else 0.5),
            np.zeros(len(cells), dtype=bool),
        ),
    )
    with pytest.raises(AssertionError):
        test_schemas_read_every_cell_by_itself("float", "list", None)


any_cell = st.one_of(
    st.sampled_from(list(CELLS.values())),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=5),
    st.decimals(),
    st.dates(),
    st.datetimes(),
    st.fractions(),
    st.binary(max_size=5),
    st.complex_numbers(),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(any_cell, min_size=1, max_size=6))
def test_a_cell_among_objects_means_what_it_means_alone(cells):
    for make in (SERIES["list"], SERIES["objects"], SERIES["pandas objects"]):
        whole = column({"c": make(cells)}, "c")
        numbers, people = as_numbers(make(cells)), read_people(make(cells), strict=False)
        for place, cell in enumerate(cells):
            alone = column({"c": [cell]}, "c")
            for domain in DOMAINS.values():
                together, single = domain.encode(whole), domain.encode(alone)
                for several, one in zip(together, single, strict=True):
                    assert several[place].tobytes() == one[0].tobytes()
            if not any(isinstance(one, list) for one in cells):  # a list of lists is a matrix
                assert np.array_equal(numbers[place], as_numbers([cell])[0], equal_nan=True)
            own = read_people([cell], strict=False).names
            assert own == [people.names[code] for code in people.codes[place : place + 1] if code >= 0]


@pytest.mark.parametrize(
    "domain", [*DOMAINS.values(), Categorical((1, 0)), Categorical(("true", "false"))], ids=repr
)
def test_one_true_and_their_texts_mean_the_same_everywhere(domain):
    cells = [1, 1.0, True, np.bool_(True), np.float32(1), Decimal("1.00"), "1", "1.0", " true ", "TRUE"]
    if domain.kind == "text":
        pytest.skip("words are compared as they are written")
    rows = [domain.encode(column({"c": [cell]}, "c"))[0][0].tolist() for cell in cells]
    rows += domain.encode(column({"c": np.array([True, False])}, "c"))[0][:1].tolist()
    rows += domain.encode(pa.array([1], pa.int8()))[0].tolist()
    assert rows == rows[:1] * len(rows)
    assert np.array_equal(as_numbers(objects(cells)), np.ones(len(cells)))


# --- rows, labels and targets of estimators ---


def beside(column):
    """A frame with the column beside one of numbers."""
    return pd.DataFrame({"c": column, "d": np.arange(6.0)})


MATRICES = {
    "list": lambda cells: [[cell, float(row)] for row, cell in enumerate(cells)],
    "objects": lambda cells: np.column_stack([objects(cells), objects(np.arange(6.0))]),
    "NumPy": lambda cells: np.asarray(cells)[:, None],
    "sparse": lambda cells: sp.csr_array(np.asarray(cells)[:, None]),
    "polars": lambda cells: pl.DataFrame({"c": cells, "d": np.arange(6.0)}),
    "Arrow": lambda cells: pa.table({"c": cells, "d": np.arange(6.0)}),
    **{
        name: lambda cells, make=make: beside(make(cells))
        for name, make in SERIES.items()
        if name.startswith("pandas")
    },
}


@pytest.mark.parametrize("container", MATRICES)
@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_are_read_cell_by_cell(kind, container):
    cells, make = COLUMNS[kind], MATRICES[container]
    expected = others(as_numbers([[cell] for cell in cells])[:, 0])
    for cell in (cells[PLACE], *CELLS.values()):
        if (matrix := held(make, replaced(cells, cell))) is None or isinstance(cell, list):
            continue
        rows = checked_rows(PrivateRidge(), matrix, strict=False, reset=True)
        rows = rows.toarray() if sp.issparse(rows) else rows
        assert others(rows[:, 0].astype(np.float64)) == expected


@pytest.mark.parametrize("kind", ["bool", "int", "float"])
def test_rows_of_a_file_are_read_cell_by_cell(kind, tmp_path):
    cells = COLUMNS[kind]
    for cell in (cells[PLACE], None):
        table = {"c": pa.array(replaced(cells, cell)), "d": np.arange(6.0), "y": [0, 1] * 3}
        pq.write_table(pa.table(table), tmp_path / "t.parquet")
        with arrow.opened(tmp_path / "t.parquet", target="y") as rows:
            assert others(next(rows.blocks())[:, 0].astype(np.float64)) == others(
                as_numbers(np.array(cells, float))
            )


LABEL_COLUMNS = ("bool", "int", "large int", "whole float", "text", "number text")
# Here NumPy and pandas rewrite the labels themselves: texts of numbers are no numbers, and rounded ones are others.
REWRITTEN_LABELS = {("NumPy", kind) for kind in ("bool", "int", "large int", "whole float")} | {
    ("pandas", "large int"),
    ("pandas nullable", "large int"),
}


@pytest.mark.parametrize("container", SERIES)
@pytest.mark.parametrize("kind", LABEL_COLUMNS)
def test_labels_and_targets_are_read_cell_by_cell(kind, container):
    cells, make = COLUMNS[kind], SERIES[container]
    X, classes = np.eye(6), sorted(set(cells), key=str)
    model = PrivateLogisticRegression(classes=classes, bad_rows="null")
    codes, targets = (
        others(np.array([classes.index(cell) for cell in cells])),
        others(as_numbers(objects(cells))),
    )
    different = False
    for cell in (cells[PLACE], *CELLS.values()):
        if (y := held(make, replaced(cells, cell))) is None:
            continue
        labels = checked_classes(model, X, y, strict=False)[1]
        order = [read_labels(labels, classes, "null").classes.tolist().index(label) for label in classes]
        expected = [order[int(code)] for code in codes]
        different |= others(read_labels(labels, classes, "null").codes) != expected
        assert others(checked_targets(PrivateRidge(), X, y, strict=False)[1]) == targets
    assert different == ((container, kind) in REWRITTEN_LABELS)


# --- people ---


@pytest.mark.parametrize("container", SERIES)
@pytest.mark.parametrize("kind", COLUMNS)
def test_people_are_told_apart_by_their_own_cells(kind, container):
    cells, make = COLUMNS[kind], SERIES[container]

    def people(ids):
        found = read_people(ids, 6, strict=False)
        return others([found.names[code] if code >= 0 else None for code in found.codes])

    found, refused = set(), []
    for cell in (cells[PLACE], *CELLS.values()):
        if (ids := held(make, replaced(cells, cell))) is None:
            continue
        try:
            found.add(tuple(people(ids)))
        except (TypeError, ValueError) as error:
            refused.append(str(error))
    if not found and not refused:
        pytest.skip("this container does not hold such cells")
    assert not refused or container not in UNTYPED
    assert all("type" in reason for reason in refused)
    rewritten = container == "NumPy" and kind in (
        "bool",
        "float",
        "whole float",
    )  # into numbers, and into texts
    assert len(found) <= 1 or rewritten


@pytest.mark.parametrize(
    "ids",
    [
        np.array([1.0, 2.0]),
        np.array([1.5, np.nan]),
        pd.Series([1, None]),
        pd.Series([1.0, 2.0], dtype="Float64"),
        pd.Series([1.0, 2.0]).astype("category"),
        pl.Series([1.0, 2.0]),
        pa.array([1.0, None]),
    ],
    ids=lambda ids: f"{type(ids).__module__} {getattr(ids, 'dtype', '')}",
)
@pytest.mark.parametrize("bad_rows", ["error", "null"])
def test_columns_of_floats_are_never_ids(ids, bad_rows, tmp_path):
    ledger = Ledger(tmp_path / "budget", 10.0, 1e-3)
    X, options = np.eye(2), {"max_rows_per_group": 1, "bad_rows": bad_rows, "ledger": ledger}
    advice = "whole numbers or strings.*read them as text, or as pandas' nullable Int64"
    for fit in (
        lambda: PrivateLogisticRegression(classes=[0, 1], delta=1e-6, **options).fit(X, [0, 1], groups=ids),
        lambda: PrivateRidge(target_bounds=(0, 1), delta=1e-6, **options).fit(X, [0, 1], groups=ids),
        lambda: PrivateMedian(radius=1.0, delta=1e-6, **options).fit(X, groups=ids),
        lambda: private_quantiles(X, 0.5, candidates=[0, 1], epsilon=1.0, groups=ids, **options),
        lambda: PrivateTransferClassifier(DecisionTreeClassifier(), classes=[0, 1], ledger=ledger).fit(
            X, [0, 1], X, groups=ids
        ),
        lambda: subsample_and_aggregate(
            len, X, [0, 1], n_chunks=2, epsilon=1.0, delta=1e-6, groups=ids, ledger=ledger
        ),
        lambda: PrivateMatrixCompletion("profile", rating_bounds=(0, 1), items=[0, 1], ledger=ledger).fit(
            pd.DataFrame({"user": np.asarray(ids, float), "item": [0, 1], "rating": [1.0, 1.0]})
        ),
    ):
        with pytest.raises(TypeError, match=advice):
            fit()
    assert ledger.history() == []
    with pytest.raises(SchemaError, match=advice):
        Schema({"a": Boolean()}, group="c").groups({"c": ids})


def test_a_float_among_objects_is_a_missing_id_and_a_whole_number_is_its_text():
    ids = [7, "7", 7.0, " 7 ", "07", np.int64(7), np.float32(7), None, "na", Decimal(7)]
    found = read_people(ids, strict=False)
    assert found.names == ["7", "07"]
    assert found.codes.tolist() == [0, 0, -1, 0, 1, 0, -1, -1, -1, 0]
    with pytest.raises(ValueError, match="groups has no id in 4 rows"):
        read_people(ids, strict=True)


def test_large_ids_beside_a_missing_one_stay_apart():
    """float64 makes one group of many, and the statement tells: one missing id would regroup everybody."""
    ids = [LARGE + place // 2 for place in range(200)]
    broken = [None, *ids[1:]]
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = PrivateLogisticRegression(
        classes=[0, 1], max_rows_per_group=2, delta=1e-6, bad_rows="null", feature_bound=3.0
    )
    for make in (list, objects, pa.array, pl.Series, lambda ids: pd.array(ids, dtype="Int64")):
        for groups in (make(ids), make(broken)):
            model.fit(X, X[:, 0] > 0, groups=groups)
            assert any("the number of groups, 100, is public" in line for line in model.privacy_.assumptions)


# --- ratings ---

RATINGS = {
    "user": [11, 11, 11, 12, 12, 13, 13, 13, 13],
    "item": [0, 1, 2, 0, 3, 0, 1, 2, 3],
    "rating": [1, 0, 1, 1, 1, 0, 0, 1, 0],
}


def in_memory(make):
    @contextlib.contextmanager
    def held_ratings(table):
        yield make(table)

    return held_ratings


def as_matrix(table):
    users, items = np.asarray(table["user"]), np.asarray(table["item"])
    if users.dtype.kind not in "iu" or items.dtype.kind not in "iu":
        raise TypeError("no place in a matrix")
    return sp.csr_array((np.asarray(table["rating"]), (users - RATINGS["user"][0], items)), shape=(4, 4))


def made_of_arrow(make):
    """A source of ratings; a table has columns of one type."""
    return lambda table: make(pa.table(table))


RATED = {
    "pandas": in_memory(pd.DataFrame),
    "pandas objects": in_memory(
        lambda table: pd.DataFrame({name: objects(cells) for name, cells in table.items()})
    ),
    "polars": in_memory(pl.DataFrame),
    "Arrow": in_memory(pa.table),
    "sparse matrix": in_memory(as_matrix),
    "Dask of objects": in_memory(lambda table: dd.from_pandas(pd.DataFrame(table), npartitions=2)),
    "Dask array": in_memory(lambda table: da.from_array(as_matrix(table), chunks=(2, 4), asarray=False)),
    **{name: made_of_arrow(make) for (_, name), make in SOURCES.items()},
}


def rows_of(ratings):
    """How many users have each row, in a code of what they say of every item; users may be on workers."""

    def add(block, sums):
        for low, high in itertools.pairwise(block.starts):
            said = np.zeros(4, int)
            said[block.items[low:high]] = 1 + np.rint(np.asarray(block.values[low:high], float)).astype(int)
            sums[said @ 3 ** np.arange(4)] += int(said.any())  # a matrix has rows of nobody

    return ratings.total((3**4,), add)


def read_ratings(make, table):
    """Every user's row, None where the container cannot hold the cells or they are refused, before any charge."""
    rules = {"out_of_bounds": "clip", "duplicates": "mean"}
    try:
        with make(table) as data, opened(data, Scale(0.0, 1.0), range(4), **rules) as (users, _):
            return rows_of(users)
    except (TypeError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError):
        return None


@pytest.mark.parametrize("name", RATINGS)
@pytest.mark.parametrize("source", RATED)
def test_a_rating_belongs_to_its_own_user(source, name):
    make = RATED[source]
    if source == "stream":
        with pytest.raises(ValueError, match="can be read only once"), make(RATINGS) as data:
            opened(data, Scale(0.0, 1.0), range(4), out_of_bounds="clip", duplicates="mean").__enter__()
        return
    others = read_ratings(make, {column: cells[:5] for column, cells in RATINGS.items()})
    assert others.sum() == 2
    read_at_all = 0
    for cell in CELLS.values():  # in a rating of the third user
        found = read_ratings(make, RATINGS | {name: [*RATINGS[name][:-1], cell]})
        if found is not None:
            read_at_all += 1
            assert (found >= others).all()
            assert found.sum() in (3, 4)
    assert read_at_all or (name == "user" and source in ("sparse matrix", "Dask array"))  # users are places


def test_users_of_any_type_go_to_the_bucket_of_their_text():
    parts = [pd.Series([7, 8]), pd.Series(["7", " 8"]), pd.Series(objects([7, "8"]), dtype=object)]
    buckets = [sources._buckets(part, 1000).tolist() for part in parts]
    assert buckets == buckets[:1] * 3


# --- kinds of data are told apart by type ---


@pytest.mark.parametrize(
    "name", ["records", "feature_names", "blocks", "columns", "sparse", "iloc", "tocsr", "collect_votes"]
)
def test_a_column_may_have_any_name(name):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=300), "other": rng.normal(size=300)})
    y = (frame["other"] > 0).astype(int)
    model = PrivateLogisticRegression(classes=[0, 1], delta=1e-6, feature_bound=2.0).fit(frame, y)
    assert model.feature_names_in_.tolist() == [name, "other"]
    assert model.predict(frame).shape == (300,)
    PrivateTransferClassifier(
        DecisionTreeClassifier(max_depth=1), n_teachers=10, delta=1e-6, classes=[0, 1], aggregator="plurality"
    ).fit(frame, y, frame[:20])
    schema = Schema({name: Numeric(-1, 1), "other": Numeric(-1, 1)})
    assert schema.transform(frame).shape == (300, 2)


# --- rows in memory, in files and on clusters ---

N, P = 400, 4
rng = np.random.default_rng(8)
X = (rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.7)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


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


BOUNDS = ("norm", "box", "leveled", "centered")


def bounds_of(kind, n_columns):
    center = np.random.default_rng(2).normal(size=n_columns)
    return {
        "norm": Bounds(1.0),
        "box": BoxBounds.of(n_columns, intercept=False),
        "leveled": LeveledBounds(1.0),
        "centered": CenteredBounds(1.0, center=center),
    }[kind]


def test_every_kind_of_bounds_is_tested():
    def kinds(base):
        ours = [kind for kind in base.__subclasses__() if kind.__module__.startswith("discreet.")]
        return {base}.union(*map(kinds, ours))

    assert {type(bounds_of(kind, 3)) for kind in BOUNDS} == kinds(Bounds)


@pytest.mark.parametrize("n_columns", [1, P, 37, 300])
@pytest.mark.parametrize("kind", BOUNDS)
def test_the_scale_of_a_row_does_not_depend_on_the_rows_beside_it(kind, n_columns):
    bounds, rng = bounds_of(kind, n_columns), np.random.default_rng(8)
    # Float32 still holds numbers that are multiplied by a power of two.
    far = 4.0 * rng.normal(size=(N, n_columns)).astype(np.float32).astype(np.float64)
    far *= rng.random(far.shape) < 0.7
    expected = [bounds.row_scales(far[row : row + 1])[0] for row in range(N)]
    for matrix in (far, np.asfortranarray(far), far.astype(np.float32), np.repeat(far, 2, axis=0)[::2]):
        assert np.array_equal(bounds.row_scales(matrix), expected)
    for count in (2, 3, 5, N - 1):  # neither on their number nor on its place among them
        assert np.array_equal(bounds.row_scales(far[N - count :]), expected[N - count :])
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
        read = checked_rows(PrivateLogisticRegression(), matrix, strict=False, reset=True)
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
    monkeypatch.setattr(batches, "PART_BYTES", batch_bytes)
    labels = [LARGE + label for label in np.tile(Y, 10).tolist()]
    labels[0] = None
    table = {"a": np.tile(X[:, 0], 10), "y": pa.array(labels, kind)}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with arrow.opened(tmp_path / "t.parquet", target="y") as rows:
        assert rows.labels.tolist() == labels
        codes = class_codes(rows.labels, np.array([LARGE, LARGE + 1]))
    assert codes.tolist() == [-1, *np.tile(Y, 10)[1:]]


def test_labels_beyond_the_whole_numbers_of_floats_are_told_apart_in_every_type():
    labels = [LARGE + 1, LARGE, 5]
    for array in (np.array(labels), np.array(labels, dtype=np.uint64), np.array([*labels, None])[:3]):
        assert class_codes(array, np.array([5.0, float(LARGE)])).tolist() == [-1, 1, 0]
        assert class_codes(array, np.array([LARGE, LARGE + 1])).tolist() == [1, 0, -1]


def test_a_partition_with_a_missing_label_leaves_the_others_exact():
    whole, broken = pd.Series([LARGE, LARGE + 1]), pd.Series([np.nan, 1.0])
    parts = [dask.delayed(part) for part in (whole, broken)]
    labels = labels_of(dd.from_delayed(parts, meta=whole[:0], verify_meta=False))
    assert labels[:2].tolist() == [LARGE, LARGE + 1]
    assert class_codes(labels, np.array([LARGE, LARGE + 1])).tolist() == [0, 1, -1, -1]
    for collection in (da.from_array(Y, chunks=90), dd.from_pandas(pd.Series(Y), npartitions=3)):
        assert np.array_equal(labels_of(collection), Y)


def test_text_that_is_not_utf8_is_no_label_and_no_error(tmp_path):
    words = pa.array([b"no", b"\xff\xfe", b"yes", None])
    for kind in (pa.string(), pa.binary()):
        pq.write_table(pa.table({"a": [1.0, 2, 3, 4], "y": words.view(kind)}), tmp_path / "t.parquet")
        with arrow.opened(tmp_path / "t.parquet", target="y") as rows:
            assert class_codes(rows.labels, np.array(["no", "yes"])).tolist() == [0, -1, 1, -1]


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
    expected = as_numbers(frame)
    nulls = [] if kind == "bool" else [3]
    assert np.flatnonzero(~rows.valid(Bounds(1.0))).tolist() == nulls
    read = np.concatenate(rows._keepers.answers(_held_cells, rows._rows))
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
        assert [block.dtype for block in opened._keepers.answers(_held_cells, opened._rows)] == [kind, kind]
    sparse = [sp.csr_array(X), sp.csr_array(X)]
    sparse[1].data = sparse[1].data.astype(object)
    sparse[1].data[0] = "a word"
    valid = DaskRows(blocks(*sparse, dtype="f4")).valid(Bounds(1.0))
    assert np.flatnonzero(~valid).tolist() == [N + int(np.argmax(np.diff(sparse[1].indptr) > 0))]


def _held_cells(block):
    return block.values
