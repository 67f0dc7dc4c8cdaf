"""Binned numbers, hashed text, buckets for the unknown, groups, bounded targets and normalized rows."""

import hashlib
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import Binned, Boolean, Categorical, Numeric, Schema, SchemaError, Target, Text
from discreet.tables.reading import column

FULL = Schema(
    {
        "age": Numeric(0, 100, missing_feature=True),
        "income": Numeric(0, 1e6, default=0.0, logarithmic=True),
        "hours": Binned((20, 40)),
        "ward": Categorical(("north", "south"), unknown="bucket"),
        "smoker": Boolean(),
        "note": Text(16),
    },
    target=Target("cost", bounds=(0, 500)),
    group="patient",
    normalize=True,
)
TABLE = {
    "age": [50, None, 500],
    "income": [0.0, None, 1e9],
    "hours": [10, 20, None],
    "ward": ["north", "moon", None],
    "smoker": ["yes", "no", "?"],
    "note": ["Broken leg, left", "", None],
    "cost": [10, 600, -3],
    "patient": ["a", "b", "a"],
}


def encode(domain, cells):
    return domain.encode(column({"x": cells}, "x"))[0]


# --- domains ---


def test_a_missing_number_can_be_told_from_a_middle_one():
    assert encode(Numeric(0, 10, missing_feature=True), [0, 5, None]).tolist() == [[-1, 0], [0, 0], [0, 1]]
    assert Numeric(0, 1, missing_feature=True).feature_names("x") == ["x", "x missing"]


@given(st.floats(-1e9, 1e9))
def test_logarithmic_numbers_stay_in_order_and_within_bounds(value):
    domain = Numeric(0, 1e6, logarithmic=True)
    scaled = float(encode(domain, [value])[0, 0])
    expected = 2 * math.log1p(min(max(value, 0), 1e6)) / math.log1p(1e6) - 1
    assert scaled == pytest.approx(expected, abs=1e-12)
    assert -1 <= scaled <= 1


def test_bins_are_half_open_and_the_outer_ones_unbounded():
    domain = Binned((0, 10))
    rows = encode(domain, [-1e300, -0.1, 0, 9.99, 10, 1e300, None, "inf"])
    assert rows.argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2, 0, 2]
    assert rows.sum(axis=1).tolist() == [1, 1, 1, 1, 1, 1, 0, 1]
    assert domain.feature_names("x") == ["x<0", "0<=x<10", "x>=10"]
    with pytest.raises(SchemaError, match="not numbers"):
        Schema({"x": domain}).transform({"x": ["many"]})


def test_unknown_categories_share_a_bucket_and_missing_ones_do_not():
    domain = Categorical(("north", "south"), unknown="bucket")
    assert encode(domain, ["south", "moon", "mars", None, "?"]).tolist() == [
        [0, 1, 0],
        [0, 0, 1],
        [0, 0, 1],
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert domain.feature_names("w") == ["w=north", "w=south", "w=*"]


def test_square_roots_of_words_keep_their_signs_and_their_norm():
    counts, roots = (
        encode(Text(64, square_roots=square), ["arm arm arm arm leg"])[0] for square in (False, True)
    )
    assert np.array_equal(np.sign(counts), np.sign(roots))
    assert sorted(np.abs(roots[roots != 0]) ** 2) == pytest.approx([0.2, 0.8])  # one leg, four arms
    assert sorted(np.abs(counts[counts != 0]) ** 2) == pytest.approx([1 / 17, 16 / 17])


def test_text_is_hashed_word_by_word_with_a_public_hash():
    digest = int.from_bytes(hashlib.blake2b(b"leg", digest_size=8).digest())
    row = encode(Text(8), ["LEG leg"])[0]
    assert row[digest // 2 % 8] == (1.0 if digest % 2 else -1.0)
    assert np.count_nonzero(row) == 1


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1, max_size=8))
def test_text_rows_depend_on_their_own_cell_and_have_norm_one_or_zero(cells):
    rows = encode(Text(8), cells)
    norms = np.linalg.norm(rows, axis=1)
    assert np.all((np.abs(norms - 1) < 1e-12) | (norms == 0))
    for row, cell in zip(rows, cells, strict=True):
        assert np.array_equal(row, encode(Text(8), [cell])[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Binned(()), "at least one"),
        (lambda: Binned((2, 1)), "increasing"),
        (lambda: Binned((1, math.nan)), "finite"),
        (lambda: Binned("12"), "edges must be a list"),
        (lambda: Text(0), "whole number from 1"),
        (lambda: Text(8, square_roots=1), "true or false"),
        (lambda: Text(10**9), "whole number from 1"),
        (lambda: Categorical(("a",), unknown="guess"), "'ignore' or 'bucket'"),
        (lambda: Categorical("ab"), "must be a list"),
        (lambda: Numeric(0, 1, missing_feature="yes"), "true or false"),
        (lambda: Target("y", ("a", "b"), (0, 1)), "not both"),
        (lambda: Target("y"), "classes, or bounds"),
        (lambda: Target("y", bounds=(1, 0)), "lowest, highest"),
        (lambda: Schema({"a": Boolean()}, group="a"), "neither a feature"),
        (lambda: Schema({"a": Boolean()}, Target("g", (0, 1)), group="g"), "nor the target"),
        (lambda: Schema({"a": Boolean()}, group=3), "name of a column"),
        (lambda: Schema({"a": Boolean()}, normalize=1), "true or false"),
    ],
)
def test_malformed_declarations_are_refused(make, message):
    with pytest.raises(SchemaError, match=message):
        make()


# --- schemas ---


def test_normalized_rows_have_norm_one():
    rows = FULL.transform(TABLE)
    assert rows.shape == (3, FULL.n_features)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert FULL.row_norm_bound == 1.0
    assert FULL.feature_bound() == pytest.approx(math.sqrt(2))
    zeros = Schema({"ward": Categorical(("north",))}, normalize=True).transform({"ward": ["moon"]})
    assert zeros.tolist() == [[0.0]]


def test_bounded_targets_are_clipped_and_missing_ones_told():
    rows, values = FULL.encode(TABLE)
    assert values.tolist() == [10, 500, 0]
    assert len(rows) == 3
    assert FULL.target_bounds == (0, 500)
    with pytest.raises(SchemaError, match="has no classes"):
        _ = FULL.classes
    broken = TABLE | {"cost": [10, None, "much"]}
    with pytest.raises(SchemaError, match="missing or not numbers"):
        FULL.encode(broken)
    assert np.isnan(FULL.encode(broken, bad_rows="null")[1]).tolist() == [False, True, True]
    with pytest.raises(SchemaError, match="no bounds"):
        _ = Schema({"a": Boolean()}, Target("y", (0, 1))).target_bounds


def test_groups_are_text_and_missing_ones_are_none():
    assert FULL.groups(TABLE).tolist() == ["a", "b", "a"]
    assert FULL.groups({"patient": [1, None, "2"]}).tolist() == ["1", None, "2"]
    assert FULL.groups({"patient": ["?", "NA", " x "]}).tolist() == [None, None, "x"]
    assert "patient" in FULL.needed
    with pytest.raises(SchemaError, match="no group column"):
        Schema({"a": Boolean()}).groups(TABLE)


def test_nothing_is_counted_or_fitted():
    """Transforming one row of a table gives that row of the transformed table, whatever the others hold."""
    whole = FULL.transform(TABLE)
    for place in range(3):
        alone = FULL.transform({name: cells[place : place + 1] for name, cells in TABLE.items()})
        assert np.array_equal(alone[0], whole[place])


@pytest.mark.parametrize("suffix", [".toml", ".json", ".yaml", ".yml"])
def test_files_hold_everything(suffix, tmp_path):
    if suffix.startswith(".y"):
        pytest.importorskip("yaml")
    path = tmp_path / f"schema{suffix}"
    FULL.to_file(path)
    assert Schema.from_file(path) == FULL
    assert Schema.from_dict(FULL.to_dict()) == FULL


def test_yaml_errors_and_its_absence_are_explained(tmp_path, monkeypatch):
    path = tmp_path / "schema.yaml"
    path.write_text("columns: [unclosed")
    if pytest.importorskip("yaml"):
        with pytest.raises(SchemaError, match="not YAML"):
            Schema.from_file(path)
    path.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(SchemaError):
        Schema.from_file(path)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SchemaError, match="PyYAML"):
        Schema.from_file(path)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables_of_every_library_give_the_same_rows(library):
    module = pytest.importorskip(library)
    table = module.table(TABLE) if library == "pyarrow" else module.DataFrame(TABLE)
    assert np.array_equal(FULL.transform(table), FULL.transform(TABLE))
    assert FULL.groups(table).tolist() == FULL.groups(TABLE).tolist()
    assert FULL.target_values(table).tolist() == FULL.target_values(TABLE).tolist()
