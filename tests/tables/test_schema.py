"""Schemas: fixed rows of bounded norm, row by row, and errors that never quote a cell."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import PrivateLogisticRegression
from discreet.tables.csv_files import write_csv
from discreet.tables.domains import cell_text
from discreet.tables.reading import TableError, read_table
from discreet.tables.schema import Boolean, Categorical, Numeric, Schema, SchemaError, Target

SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "ward": Categorical(("north", "south", "7")),
        "smoker": Boolean(),
    },
    target=Target("readmitted", ("no", "yes")),
)
TABLE = {
    "age": [0.0, 50.0, 100.0, None, 250.0],
    "ward": ["north", " south ", "7", "moon", None],
    "smoker": [True, False, None, True, False],
    "readmitted": ["no", "yes", "no", "yes", "no"],
}
EXPECTED = np.array(
    [
        [-1, 1, 0, 0, 1],
        [0, 0, 1, 0, -1],
        [1, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, -1],
    ],
    dtype=float,
)


def as_csv(tmp_path, table=TABLE):
    path = tmp_path / "table.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    return read_table(path)


def as_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table(TABLE), path)
    return read_table(path)


KINDS = {
    "dictionary": lambda _: TABLE,
    "arrow": lambda _: pa.table(TABLE),
    "pandas": lambda _: pd.DataFrame(TABLE),
    "pandas objects": lambda _: pd.DataFrame(TABLE, dtype=object),
    "pandas categories": lambda _: pd.DataFrame(TABLE).astype({"ward": "category", "readmitted": "category"}),
    "chunked arrow": lambda _: pa.concat_tables([pa.table(TABLE).slice(0, 2), pa.table(TABLE).slice(2)]),
    "csv": as_csv,
    "parquet": as_parquet,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_rows(kind, tmp_path):
    table = KINDS[kind](tmp_path)
    np.testing.assert_array_equal(SCHEMA.transform(table), EXPECTED)
    np.testing.assert_array_equal(SCHEMA.target_codes(table), [0, 1, 0, 1, 0])
    rows, labels = SCHEMA.encode(table)
    np.testing.assert_array_equal(rows, EXPECTED)
    assert labels.tolist() == TABLE["readmitted"]


def test_public_shape():
    assert SCHEMA.feature_names == ("age", "ward=north", "ward=south", "ward=7", "smoker")
    assert SCHEMA.n_features == 5
    assert SCHEMA.row_norm_bound == math.sqrt(3)
    assert SCHEMA.feature_bound() == 2.0
    assert SCHEMA.feature_bound(intercept=False) == math.sqrt(3)
    assert SCHEMA.needed == ["age", "ward", "smoker", "readmitted"]


cells = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**6), 10**6),
    st.booleans(),
    st.sampled_from(["north", "7", "yes", "n", "1e999", "-inf", " 12 ", "NaN", "?", "word", ""]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(cells, cells, cells, cells), min_size=1, max_size=6))
def test_a_row_depends_on_itself_alone_and_keeps_its_bound(records):
    """The transform commutes with taking rows: without that, one person could move another person's row."""
    names = ("age", "ward", "smoker", "readmitted")
    together = SCHEMA.transform(dict(zip(names, zip(*records, strict=True), strict=True)), bad_rows="null")
    for position, record in enumerate(records):
        alone = SCHEMA.transform(
            {name: [cell] for name, cell in zip(names, record, strict=True)}, bad_rows="null"
        )
        np.testing.assert_array_equal(together[position], alone[0])
    norms = np.linalg.norm(np.nan_to_num(together), axis=1)
    assert np.all(norms <= SCHEMA.row_norm_bound * (1 + 1e-15))


@given(st.floats(allow_nan=False), st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_numbers_are_scaled_linearly_and_clipped(value, one, other):
    lower, upper = min(one, other), max(one, other)
    if not upper - lower > 1e-290:
        return
    (row,), _ = Numeric(lower, upper).encode(pa.array([value]))
    clipped = min(max(value, lower), upper)
    exact = 2 * (clipped / (upper - lower)) - (lower / (upper - lower) + upper / (upper - lower))
    assert -1 <= row[0] <= 1
    if abs(upper - lower) > 1e-3 * max(abs(upper), abs(lower)):
        assert row[0] == pytest.approx(exact, abs=1e-9)


def test_text_numbers_equal_numbers():
    texts = ["1", " 2.5 ", "+3e1", ".5", "5.", "-1e400", "inf", "-Infinity"]
    (values, malformed) = Numeric(-100, 100).encode(pa.array(texts))
    (expected, _) = Numeric(-100, 100).encode(pa.array([float(text) for text in texts]))
    np.testing.assert_array_equal(values, expected)
    assert not malformed.any()


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "NaN", "null", "None", "?", None])
def test_missing_becomes_the_public_default(missing):
    assert Numeric(0, 100).encode(pa.array([missing], pa.string()))[0][0, 0] == 0.0
    assert Numeric(0, 100, default=25).encode(pa.array([missing], pa.string()))[0][0, 0] == -0.5
    assert Boolean().encode(pa.array([missing], pa.string()))[0][0, 0] == 0.0


def test_declared_category_wins_over_missing_words():
    insured = Categorical(("none", "private"))
    np.testing.assert_array_equal(
        insured.encode(pa.array(["none", "", "private"]))[0], [[1, 0], [0, 0], [0, 1]]
    )


@pytest.mark.parametrize(
    ("column", "kind"),
    [("age", "numeric"), ("smoker", "boolean")],
    ids=["text in numbers", "neither true nor false"],
)
def test_meaningless_cells_name_the_column_and_not_the_value(column, kind):
    table = TABLE | {column: ["1", "0", "secret-77", "0", None]}
    with pytest.raises(SchemaError, match=f"'{column}' is declared {kind}") as caught:
        SCHEMA.transform(table)
    assert "secret" not in str(caught.value)
    assert "bad_rows" in str(caught.value)
    rows = SCHEMA.transform(table, bad_rows="null")
    assert np.isnan(rows).all(axis=1).tolist() == [False, False, True, False, False]


def test_columns_of_an_impossible_type():
    table = TABLE | {"age": np.array(["2020-01-01"] * 5, dtype="datetime64[D]")}
    with pytest.raises(SchemaError, match=r"column 'age'.*not numbers"):
        SCHEMA.transform(table)


def test_unknown_labels_say_what_is_allowed():
    table = TABLE | {"readmitted": ["no", "secret", "yes", None, "no"]}
    with pytest.raises(SchemaError, match=r"allowed: 'no', 'yes'") as caught:
        SCHEMA.target_codes(table)
    assert "secret" not in str(caught.value)
    assert SCHEMA.target_codes(table, bad_rows="null").tolist() == [0, -1, 1, -1, 0]
    rows, labels = SCHEMA.encode(table, bad_rows="null")
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, False, True, False]
    assert labels.tolist() == ["no", None, "yes", None, "no"]
    with pytest.raises(ValueError, match="bad_rows must be"):
        SCHEMA.target_codes(table, bad_rows="drop")


@pytest.mark.parametrize("classes", [("no", "yes"), (0, 1), (False, True)], ids=str)
def test_labels_that_are_none_are_no_class(classes):
    """A missing label that was read as the first class would teach it."""
    schema = Schema({"a": Numeric(-3, 3)}, Target("r", classes))
    a = np.random.default_rng(0).normal(size=5000)
    labels = [classes[int(value > 0)] for value in a]
    table = {"a": a, "r": [None if value > 0 and row % 5 else labels[row] for row, value in enumerate(a)]}
    values = schema.target_values(table, bad_rows="null")
    assert values.tolist() == table["r"]
    assert values.dtype == schema.target_values({"r": labels}, bad_rows="null").dtype == object
    model = PrivateLogisticRegression(5.0, 1e-6, classes=schema.classes, bad_rows="null")
    model.set_params(feature_bound=schema.feature_bound()).fit(schema.transform(table), values)
    assert np.mean(model.predict(schema.transform({"a": a[a > 1]})) == classes[1]) > 0.9


@pytest.mark.parametrize(
    ("classes", "cells"),
    [
        ((0, 1), [0, 1, 0]),
        ((0, 1), [0.0, 1.0, 0.0]),
        ((0, 1), ["0", "1", "0"]),
        ((False, True), [False, True, False]),
    ],
)
def test_labels_of_other_types(classes, cells):
    schema = Schema({"age": Numeric(0, 1)}, Target("y", classes))
    table = {"age": [0, 1, 0], "y": cells}
    assert schema.target_codes(table).tolist() == [0, 1, 0]
    assert schema.encode(table)[1].tolist() == [classes[0], classes[1], classes[0]]


def test_missing_columns_and_ragged_tables():
    with pytest.raises(TableError, match="no such column: 'smoker'; the table has 'age', 'ward'"):
        SCHEMA.transform({"age": [1], "ward": ["7"]})
    with pytest.raises(TableError, match="'ward' has 1 rows"):
        SCHEMA.transform({"age": [1, 2], "ward": ["7"], "smoker": [True, True]})
    with pytest.raises(TableError, match="cannot use int as a table"):
        SCHEMA.transform(3)
    frame = pd.DataFrame([[1, 2]], columns=["age", "age"])
    with pytest.raises(TableError, match="more than one column is named 'age'"):
        Schema({"age": Numeric(0, 1)}).transform(frame)


def test_a_schema_without_target():
    schema = Schema(SCHEMA.columns)
    np.testing.assert_array_equal(schema.transform(TABLE), EXPECTED)
    with pytest.raises(SchemaError, match="declares no target"):
        schema.target_codes(TABLE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Numeric(1, 1), "lower must be less"),
        (lambda: Numeric(0, math.inf), "upper must be a finite"),
        (lambda: Numeric("0", 1), "lower must be a finite"),
        (lambda: Numeric(-(10**400), 1), "lower must be a finite"),
        (lambda: Numeric(0, 1, default=10**400), "default must be a finite"),
        (lambda: Numeric(0, 1, default=2), "default must be between"),
        (lambda: Categorical(()), "at least 1"),
        (lambda: Categorical(("a", " a")), "must differ"),
        (lambda: Categorical((1, "1")), "must differ"),
        (lambda: Categorical((1.5,)), "must be text"),
        (lambda: Target("y", ("one",)), "at least 2"),
        (lambda: Target("y", ("one", 2)), "not a mixture"),
        (lambda: Target("y", (1, 2**63)), "between"),
        (lambda: Schema({}), "at least one column"),
        (lambda: Schema({"a": "numeric"}), "must have a domain"),
        (lambda: Schema.from_dict({"columns": {"a": {"kind": {}}}}), "must have a kind"),
        (lambda: Schema({"a": Boolean()}, Target("a", (0, 1))), "must not be among"),
    ],
)
def test_malformed_domains_are_refused(make, message):
    with pytest.raises(SchemaError, match=message):
        make()


# --- dictionaries and files ---

AWKWARD = Schema(
    {
        'a "quoted" = [name].\n': Numeric(-0.1, 1e300, default=0.3),
        "ünïcode 🏥\x7f\x01": Categorical(("\\", '"', "é", "a.b", 3, True)),
        "z": Boolean(),
        "a": Boolean(),
    },
    Target("y", (2, 0, 1)),
)


@pytest.mark.parametrize(
    "schema", [SCHEMA, AWKWARD, Schema(SCHEMA.columns)], ids=["plain", "awkward", "no target"]
)
@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_files_hold_the_schema_exactly(schema, suffix, tmp_path):
    path = tmp_path / f"schema{suffix}"
    schema.to_file(path)
    again = Schema.from_file(path)
    assert again == schema
    assert hash(again) == hash(schema)
    assert list(again.columns) == list(schema.columns)
    assert again.feature_names == schema.feature_names


def test_schemas_are_values():
    for again in (
        Schema.from_dict(SCHEMA.to_dict()),
        pickle.loads(pickle.dumps(SCHEMA)),
        copy.deepcopy(SCHEMA),
    ):
        assert again == SCHEMA
    reordered = Schema(dict(reversed(SCHEMA.columns.items())), SCHEMA.target)
    assert reordered != SCHEMA
    with pytest.raises(TypeError):
        SCHEMA.columns["age"] = Boolean()


def test_handwritten_toml(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        '[target]\ncolumn = "y"\nclasses = [0, 1]\n[columns.age]\nkind = "numeric"\nlower = 0\nupper = 120\n'
        '[columns."home ward"]\nkind = "categorical"\ncategories = ["a", "b"]\n'
    )
    expected = Schema(
        {"age": Numeric(0, 120), "home ward": Categorical(("a", "b"))}, target=Target("y", (0, 1))
    )
    assert Schema.from_file(path) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "a schema must be a table"),
        ("{}", "missing entries 'columns'"),
        ('{"columns": {}, "color": 1}', "unknown entries 'color'"),
        (
            '{"columns": {"a": {"kind": "date"}}}',
            "'a' must have a kind, one of: numeric, binned, categorical, boolean, text",
        ),
        ('{"columns": {"a": {"kind": "numeric", "lower": 0}}}', "column 'a' has missing entries 'upper'"),
        (
            '{"columns": {"a": {"kind": "numeric", "lower": 0, "upper": 1, "max": 2}}}',
            "unknown entries 'max'",
        ),
        ('{"columns": {"a": {"kind": "numeric", "lower": 1, "upper": 0}}}', "column 'a': lower must be less"),
        ('{"columns": {"a": {"kind": "categorical", "categories": "ab"}}}', "categories must be a list"),
        ('{"columns": {"a": {"kind": "categorical", "categories": 3}}}', "column 'a'"),
        (
            '{"columns": {"a": {"kind": "boolean"}}, "target": {"column": "y"}}',
            "needs its public classes, or bounds",
        ),
        (
            '{"columns": {"a": {"kind": "boolean"}}, "target": {"column": "y", "classes": "01"}}',
            "list of classes",
        ),
        ("[" * 100_000, "schema file"),
        ("not json", "schema file"),
    ],
)
def test_malformed_files_are_explained(content, message, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(content)
    with pytest.raises(SchemaError, match=message):
        Schema.from_file(path)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(SchemaError, match="there is no schema file"):
        Schema.from_file(tmp_path / "none.toml")
    with pytest.raises(SchemaError, match=r"must end in \.toml, \.json or \.yaml"):
        Schema.from_file(tmp_path / "schema.ini")
    with pytest.raises(SchemaError, match=r"must end in \.toml, \.json or \.yaml"):
        SCHEMA.to_file(tmp_path / "schema.ini")


# --- tables ---


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "there is no file"),
        ("table.xlsx", b"x", "must end in one of .csv"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"age,ward\n", "no rows"),
        ("ragged.csv", b"age,ward\n1,a\n2,b,secret\n", "different numbers of fields"),
        ("semi.csv", b"age;ward\n1,5;a\n2;b\n", r"separated by ';'.*--separator ';'"),
        ("latin.csv", "age,ward\nsécret,1\n".encode("latin-1"), "not UTF-8"),
        ("twice.csv", b"age,age\n1,2\n", "more than one column is named 'age'"),
        ("other.csv", b"ward\n1\n", "no such column: 'age'"),
        ("corrupt.parquet", b"PAR1 not really PAR1", "not a readable Parquet file"),
        ("text.parquet", b"age\n1\n", "not a readable Parquet file"),
    ],
)
def test_unreadable_tables_are_explained(name, content, message, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path, ["age"])
    assert "cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad_rows", ["error", "null"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"54,secret,1\n55,b,2\n", "none of them among 3 fields; if the names are missing, add them"),
        (b"age;secret\n1;2\n", "separated by ';': save it with commas"),
        (b"Age,secret\n1,2\n", "it has 'Age', and names must agree in every letter"),
        ("age,s\xe9cret,ward\n1,2,3\n".encode("latin-1"), "not UTF-8 text; save it as UTF-8"),
        (b"ward,secret\n1,2\n", "its first line names 2 columns"),
        (b"54,secret,secret\n55,b,2\n", "two columns have the same name|different column names"),
    ],
)
def test_the_first_line_is_explained_and_never_quoted(content, message, bad_rows, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path, ["age", "smoker", "ward"], bad_rows=bad_rows)
    assert "cret" not in str(caught.value)


def test_truncated_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table(TABLE), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match="not a readable Parquet file"):
        read_table(path)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="is not a file"):
        read_table(tmp_path / "folder.csv")


def test_malformed_csv_lines_become_null_rows(tmp_path):
    path = tmp_path / "table.csv"
    lines = (
        "age,ward,smoker,readmitted",
        "1,north,yes,no",
        "2,south",
        "3,7,no,yes,9,9",
        "4,7,no,yes",
        "5é,7,no,no",
    )
    path.write_text("\n".join(lines), encoding="latin-1")
    table = read_table(path, SCHEMA.needed, bad_rows="null")
    assert table.num_rows == 5  # the number of rows is public: it must not change
    rows, _ = SCHEMA.encode(table, bad_rows="null")
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, True, False, True]
    np.testing.assert_array_equal(rows[[0, 3]], [[-0.98, 1, 0, 0, 1], [-0.92, 0, 0, 1, -1]])


@pytest.mark.parametrize("name", [*TABLE])
def test_no_cell_of_any_type_raises_or_touches_other_rows(name):
    expected, _ = SCHEMA.encode(TABLE, bad_rows="null")
    others = np.delete(np.arange(len(expected)), 1)
    strange = [
        [1],
        np.ones(2),
        {"a": 1},
        1j,
        pd.NA,
        pd.NaT,
        b"x",
        "\udc80",
        "a\0b",
        10**5000,
        np.inf,
        object(),
    ]
    for cell in strange:
        cells = np.empty(len(expected), dtype=object)
        cells[:] = list(TABLE[name])
        cells[1] = cell
        rows, _ = SCHEMA.encode({**TABLE, name: cells}, bad_rows="null")
        np.testing.assert_array_equal(rows[others], expected[others])


def test_csv_types_are_not_guessed(tmp_path):
    """One person's text must not turn the other people's 007 into a different category."""
    path = tmp_path / "table.csv"
    schema = Schema({"code": Categorical(("007", "7"))})
    path.write_text("code,x\n007,\n7,\n")
    np.testing.assert_array_equal(schema.transform(read_table(path)), [[1, 0], [0, 1]])
    path.write_text("code,x\n007,\nspy,\n")
    np.testing.assert_array_equal(schema.transform(read_table(path)), [[1, 0], [0, 0]])


def test_cell_text():
    values = [
        None,
        np.nan,
        pd.NA,
        pd.NaT,
        np.int64(3),
        np.float32(3),
        np.bool_(True),
        2.5,
        -0.0,
        1e300,
        np.inf,
    ]
    texts = [None, None, None, None, "3", "3", "true", "2.5", "0", "1e+300", "inf"]
    assert [cell_text(value) for value in values] == texts


def test_predictions_are_written(tmp_path):
    path = tmp_path / "out.csv"
    write_csv(path, {"prediction": np.array(["no", 'a "b", c']), "probability": np.array([0.25, 1.0])})
    again = read_table(path)
    assert again.column("prediction").to_pylist() == ["no", 'a "b", c']
    assert [float(text) for text in again.column("probability").to_pylist()] == [0.25, 1.0]
    with pytest.raises(OSError, match="there is no folder"):
        write_csv(tmp_path / "none" / "out.csv", {"a": [1]})


def test_schema_json_is_json():
    assert json.loads(json.dumps(AWKWARD.to_dict())) == AWKWARD.to_dict()
