"""What becomes of cells and labels that are none: null records without an error, or errors that quote nothing."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from discreet import Ledger, PrivacyWarning, PrivateLogisticRegression, PrivateRidge, private_quantiles
from discreet.estimators.groups import bounded_rows
from discreet.records import open as opening
from discreet.records.open import as_numbers, read_labels

SECRET = "HIV positive"
NO_NUMBERS = {
    "text": SECRET,
    "blank": "",
    "none": None,
    "NA": pd.NA,
    "NaT": pd.NaT,
    "list": [1],
    "array": np.array([1.0]),
    "complex": 1 + 2j,
    "date": np.datetime64("2020-01-01"),
    "signaling decimal": Decimal("sNaN"),
    "object": {"a": 1},
}
X = np.random.default_rng(0).normal(size=(60, 3)) / 3
Y = (X[:, 0] > 0).astype(int)


def with_cell(cell, shape="array"):
    rows = X.astype(object)
    rows[3, 1] = cell
    if shape == "frame":
        return pd.DataFrame(rows, columns=list("abc")).astype({"a": float, "c": float})
    return rows.tolist() if shape == "list" else rows


def column_of(values, cell):
    cells = np.empty(len(values), dtype=object)
    cells[:] = values.tolist()
    cells[3] = cell
    return cells


@pytest.mark.parametrize("shape", ["array", "frame", "list"])
@pytest.mark.parametrize("cell", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_cell_that_is_no_number_makes_its_row_null_and_leaves_the_others_alone(cell, shape):
    model = PrivateLogisticRegression(classes=[0, 1], bad_rows="null")
    rows, labels = opening.checked_classes(model, with_cell(cell, shape), Y, strict=False)
    assert np.isnan(rows[3, 1])
    others = np.delete(np.arange(60), 3)
    assert np.array_equal(rows[others], X[others])
    assert model.n_features_in_ == 3
    assert np.array_equal(read_labels(labels, [0, 1], "null").codes, Y)


@pytest.mark.parametrize("container", [np.asarray, list, pd.Series])
@pytest.mark.parametrize("cell", [*NO_NUMBERS.values(), "maybe", 7], ids=[*NO_NUMBERS, "unknown", "number"])
def test_a_label_that_is_none_makes_its_row_null_and_leaves_the_others_alone(cell, container):
    for values, classes in ((Y, [0, 1]), (np.where(Y, "yes", "no"), ["no", "yes"])):
        given = container(column_of(values, cell))
        labels = opening.checked_classes(PrivateLogisticRegression(), X, given, strict=False)[1]
        codes = read_labels(labels, classes, "null").codes
        assert codes[3] == -1
        assert np.array_equal(np.delete(codes, 3), np.delete(Y, 3))


@pytest.mark.parametrize("cell", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_target_that_is_no_number_makes_its_row_null(cell):
    targets = opening.checked_targets(PrivateRidge(), X, column_of(X[:, 0], cell), strict=False)[1]
    assert np.isnan(targets[3])
    assert np.array_equal(np.delete(targets, 3), np.delete(X[:, 0], 3))


@pytest.mark.parametrize("kind", ["string", "boolean", "Int64", "category"])
def test_missing_labels_of_pandas_types(kind):
    classes = {"string": ["no", "yes"], "category": ["no", "yes"], "boolean": [False, True], "Int64": [0, 1]}[
        kind
    ]
    labels = pd.Series(np.array(classes, dtype=object)[Y]).where(np.arange(60) != 3).astype(kind)
    model = PrivateLogisticRegression(classes=classes, bad_rows="null").fit(
        pd.DataFrame(X, columns=list("abc")), labels
    )
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


def test_whole_fits_with_words_are_charged_and_released(tmp_path):
    ledger = Ledger(tmp_path / "budget", 100.0, 1e-3)
    for shape in ("array", "frame", "list"):
        PrivateLogisticRegression(classes=[0, 1], bad_rows="null", ledger=ledger).fit(
            with_cell(SECRET, shape), Y
        )
    PrivateRidge(target_bounds=(-2, 2), bad_rows="null", ledger=ledger).fit(X, column_of(X[:, 0], SECRET))
    assert len(ledger.history()) == 4
    found = private_quantiles(
        with_cell(SECRET), 0.5, candidates=[-2, 0, 2], epsilon=9, bad_rows="null", ledger=ledger
    )
    assert found.values.shape == (3, 1)


def test_types_of_numbers_are_kept_where_no_cell_can_change_them():
    assert as_numbers(X.astype(np.float32)).dtype == np.float32
    # One word makes a column of objects out of a float32 one, so that a frame is float64 in any case.
    assert as_numbers(pd.DataFrame(X.astype(np.float32))).dtype == np.float64
    mixed = pl.DataFrame({"a": ["1.5", None, "x"], "b": [1, 2, 3]})
    assert np.array_equal(as_numbers(mixed), [[1.5, 1], [np.nan, 2], [np.nan, 3]], equal_nan=True)
    columns = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X))
    assert sp.issparse(opening.checked_rows(PrivateRidge(), columns, strict=False, reset=True))


@pytest.mark.parametrize("shape", ["array", "frame", "list"])
@pytest.mark.parametrize("cell", [SECRET, pd.NA, 10**400, pd.Timestamp("2020-01-01"), np.inf, 1e300])
def test_errors_name_the_place_and_the_way_out_and_quote_nothing(cell, shape):
    with pytest.raises((TypeError, ValueError)) as caught:
        PrivateLogisticRegression(classes=[0, 1]).fit(with_cell(cell, shape), Y)
    message = str(caught.value)
    assert ("X['b'], row 3" if shape == "frame" else "X[3, 1]") in message
    assert "bad_rows='null'" in message
    assert "Imputer" not in message
    assert not any(part in message for part in ("HIV", "2020", "000000"))
    if not isinstance(cell, float | int):
        assert "discreet.Schema" in message


def test_sparse_cells_and_predictions_are_found_too():
    rows = sp.csr_matrix(np.where(np.abs(X) < 0.1, 0.0, X))
    model = PrivateLogisticRegression(classes=[0, 1]).fit(rows, Y)
    place = int(np.searchsorted(rows.indptr, 20, side="right")) - 1
    rows.data[20] = np.nan
    with pytest.raises(ValueError, match=rf"X\[{place}, {rows.indices[20]}\]: .*bad_rows='null'"):
        PrivateLogisticRegression(classes=[0, 1]).fit(rows, Y)
    with pytest.raises(ValueError, match=r"X\[1, 2\]: .*leave such rows out"):
        model.predict([[0, 0, 0], [0, 0, np.nan]])


@pytest.mark.parametrize("strict", [True, False])
def test_a_single_column_is_refused_without_being_printed(strict):
    model = PrivateLogisticRegression(classes=[0, 1], bad_rows="error" if strict else "null")
    with pytest.raises(ValueError, match="Reshape your data") as caught:
        model.fit(np.full(60, 0.123456), Y)
    assert "123456" not in str(caught.value)


def test_labels_of_another_type_are_shown_with_their_types():
    with pytest.raises(
        ValueError, match=r"outside classes: [01] \(number\).* declared are '0' \(text\), '1' \(text\)"
    ):
        PrivateLogisticRegression(classes=["0", "1"]).fit(X, Y)
    with pytest.raises(ValueError, match=r"no label .* in row 3 .*bad_rows='null'"):
        PrivateLogisticRegression(classes=[0, 1]).fit(X, column_of(Y, None))
    with pytest.raises(ValueError, match=r"not finite numbers, the first in row 3 ") as caught:
        PrivateRidge(target_bounds=(-1, 1)).fit(X, column_of(X[:, 0], SECRET))
    assert "HIV" not in str(caught.value)


@pytest.mark.parametrize("delta", [0.5, 2e-3, 0.02])
def test_a_delta_that_promises_little_is_warned_about(delta):
    for fit in (
        lambda: PrivateLogisticRegression(classes=[0, 1], delta=delta).fit(X, Y),
        lambda: PrivateRidge(target_bounds=(-1, 1), delta=delta).fit(X, X[:, 0]),
    ):
        with pytest.warns(PrivacyWarning, match=rf"delta = {delta:g} is too large to protect anyone.*1 / n"):
            fit()


def test_the_warning_comes_before_the_charge_and_usual_deltas_pass_in_silence(tmp_path):
    ledger = Ledger(tmp_path / "budget", 10.0, 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        with pytest.raises(PrivacyWarning):
            PrivateLogisticRegression(classes=[0, 1], delta=0.5, ledger=ledger).fit(X, Y)
        assert len(ledger.history()) == 0
        PrivateLogisticRegression(classes=[0, 1], ledger=ledger).fit(X, Y)
        PrivateLogisticRegression(classes=[0, 1], delta=1e-4, ledger=ledger).fit(X, Y)


def test_an_empty_parquet_file_is_refused(tmp_path):
    pd.DataFrame({"a": [1.0], "y": [0]}).iloc[:0].to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="no rows"):
        PrivateLogisticRegression(classes=[0, 1]).fit(tmp_path / "empty.parquet", target="y")


@pytest.mark.parametrize("cell", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_an_id_of_any_type_raises_nothing(cell):
    ids = [*range(59), cell]
    slots = bounded_rows(ids, 1, 60, strict=False, padded=True)
    assert slots.rows[:59].tolist() == list(range(59))


@pytest.mark.parametrize(
    "cell", [10**400, "1e400", Decimal("1e400"), str(10**400)], ids=["int", "e", "decimal", "digits"]
)
def test_a_number_beyond_float64_is_infinite_however_it_is_spelled(cell):
    rows = opening.checked_rows(PrivateRidge(), with_cell(cell), strict=False, reset=True)
    assert rows[3, 1] == np.inf
    assert np.array_equal(np.delete(rows, 3, axis=0), np.delete(X, 3, axis=0))


def test_numbers_too_large_for_float64_are_null_without_a_warning():
    wide = X.astype(np.longdouble)
    wide[3, 1] = np.longdouble("1e4000") if np.finfo(np.longdouble).max > 1e308 else np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = opening.checked_rows(PrivateRidge(), wide, strict=False, reset=True)
    assert np.isinf(rows[3, 1])
