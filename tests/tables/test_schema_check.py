"""Counts of cells that a schema does not describe, for the holder of a table."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from discreet import Binned, Boolean, Categorical, Numeric, Schema, SchemaError, Target, Text
from discreet.cli import main
from discreet.tables.drafting import ColumnCheck, check

SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "sex": Categorical(("female", "male")),
        "hours": Binned((20, 40)),
        "smoker": Boolean(),
        "note": Text(8),
    },
    target=Target("ill", ("no", "yes")),
    group="patient",
)
TABLE = {
    "age": ["31", "", "130", "old"],
    "sex": ["female", "F", "NA", "male"],
    "hours": ["10", "?", "90", "many"],
    "smoker": ["yes", "no", "", "sometimes"],
    "note": ["a", "", "b", "c"],
    "ill": ["no", "", "maybe", "yes"],
    "patient": ["1", "2", "", "4"],
}


def test_every_kind_of_column_is_counted():
    found = check(SCHEMA, TABLE)
    assert found.columns == (
        ColumnCheck("age", "numeric", 1, 1, 1),
        ColumnCheck("sex", "categorical", 1, 1, 0),
        ColumnCheck("hours", "binned", 1, 0, 1),
        ColumnCheck("smoker", "boolean", 1, 0, 1),
        ColumnCheck("note", "text", 1, 0, 0),
        ColumnCheck("ill", "target", 1, 1, 0),
        ColumnCheck("patient", "group", 1, 0, 0),
    )
    assert (found.n_rows, found.n_left_out) == (4, 3)


def test_rows_left_out_are_those_that_a_fit_leaves_out():
    schema = Schema(SCHEMA.columns, SCHEMA.target)
    rows, _ = schema.encode(TABLE, bad_rows="null")
    assert check(schema, TABLE).n_left_out == np.isnan(rows).all(axis=1).sum()
    costs = Schema({"age": Numeric(0, 100)}, Target("cost", bounds=(0, 10)))
    found = check(costs, {"age": [1, 2, 3], "cost": ["5", "11", "x"]})
    assert found.columns[1] == ColumnCheck("cost", "target", 0, 1, 1)
    assert found.n_left_out == 1  # 11 is clipped


def test_types_that_cannot_be_read_are_named():
    with pytest.raises(SchemaError, match="column 'age', declared numeric"):
        check(Schema({"age": Numeric(0, 1)}), {"age": pd.Series(pd.to_datetime(["2020-01-01"]))})


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["female", "male", "F"])])
def test_categories_of_polars_are_read(kind):
    schema = Schema({"sex": Categorical(("female", "male"))})
    frame = pl.DataFrame({"sex": ["female", "male", None, "F"]})
    rows = schema.transform(frame.with_columns(pl.col("sex").cast(kind)))
    assert np.array_equal(rows, [[1, 0], [0, 1], [0, 0], [0, 0]])


def test_dictionaries_in_several_chunks_and_in_none():
    schema = Schema({"sex": Categorical(("female", "male"))})
    parts = [pa.array(part).dictionary_encode() for part in (["male", None], ["female"])]
    assert np.array_equal(schema.transform({"sex": pa.chunked_array(parts)}), [[0, 1], [0, 0], [1, 0]])
    assert schema.transform({"sex": pa.chunked_array([], parts[0].type)}).shape == (0, 2)


def test_the_command_finds_mistakes_and_says_that_its_output_is_private(tmp_path, capsys):
    Schema({"age": Numeric(0, 1), "sex": Categorical(("F", "M"))}, Target("ill", ("no", "yes"))).to_file(
        tmp_path / "schema.toml"
    )
    (tmp_path / "table.csv").write_text("age,sex,ill\n31,female,no\n64,male,yes\n18,F,\n")
    assert main(["schema", "check", str(tmp_path / "schema.toml"), str(tmp_path / "table.csv")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PRIVATE")
    assert "Do not publish" in shown
    assert "'age': most cells do not match the schema" in shown
    assert "'sex': most cells" in shown
    assert "'ill'" not in shown
    assert "a missing label: 1." in " ".join(shown.split())
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    assert "schema check" in " ".join(capsys.readouterr().out.split())
