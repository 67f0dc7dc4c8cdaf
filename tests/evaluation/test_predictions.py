"""The model answers before the ledger is charged: whatever can be wrong with it, the rows or the targets is free."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from discreet import (
    Ledger,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSelection,
    SchemaEncoder,
    evaluate,
)
from discreet.tables.cohort import COHORT_SCHEMA, make_cohort

HARDLY_PRIVATE = 1e5
NAMES = list("abc")


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).uniform(-0.5, 0.5, size=(2000, 3))


@pytest.fixture(scope="module")
def labels(rows):
    return (rows @ [3.0, -2.0, 0.5] > 0).astype(int)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "budget", epsilon=1e6, delta=1e-3)


class Fixed:
    """A released model with given answers."""

    def __init__(self, answers, chances=None, classes=None):
        self.answers = answers
        if chances is not None:
            self.predict_proba = lambda X: chances
        if classes is not None:
            self.classes_ = np.array(classes)

    def predict(self, X):
        return self.answers


def frame(rows):
    return pd.DataFrame(rows, columns=NAMES)


def accuracy(model, X, y, **options):
    return evaluate(model, X, y, epsilon=HARDLY_PRIVATE, **options)["accuracy"].value


def test_targets_that_are_no_numbers_are_refused_unquoted_and_uncharged(rows, ledger):
    model = PrivateRidge(target_bounds=(-1, 1), feature_bound=1.4).fit(rows, rows[:, 0])
    for cell in ("secret", np.nan, np.inf, None):
        y = rows[:, 0].astype(object)
        y[3] = cell
        with pytest.raises(ValueError, match="not finite numbers, the first in row 3") as refusal:
            evaluate(model, rows, y, ledger=ledger)
        assert "secret" not in str(refusal.value)
    assert not ledger.history()


def test_targets_that_are_no_numbers_count_for_nothing_if_asked(rows, ledger):
    model = Fixed(np.zeros(2000))
    y = np.where(np.arange(2000) < 1000, 0.5, -1.0).astype(object)
    y[1000:] = "secret"
    options = {"epsilon": HARDLY_PRIVATE, "target_bounds": (-1, 1), "ledger": ledger}
    found = evaluate(model, rows, y, bad_rows="null", **options)
    assert found["mean squared error"].value == pytest.approx(0.25, abs=1e-3)
    assert len(ledger.history()) == 1


def refused_models(rows, labels):
    few = rows[:, :2]
    by_name = make_pipeline(make_column_transformer(("passthrough", ["a", "b"])), LogisticRegression())
    return {
        "unfitted": (PrivateRidge(target_bounds=(-1, 1)), rows, NotFittedError, "not fitted"),
        "unfitted classifier": (PrivateLogisticRegression(), rows, NotFittedError, "not fitted"),
        "columns": (LinearRegression().fit(rows, labels), few, ValueError, "2 features"),
        "columns of a classifier": (LogisticRegression().fit(rows, labels), few, ValueError, "2 features"),
        "names": (by_name.fit(frame(rows), labels), rows, ValueError, "dataframes"),
        "no model": (object(), rows, TypeError, "predict"),
        "too few answers": (Fixed(np.zeros(3)), rows, ValueError, "one value per row"),
        "too many axes": (Fixed(np.zeros((2000, 1))), rows, ValueError, "one value per row"),
        "answers": (Fixed(np.full(2000, np.nan)), rows, ValueError, "values of predict that are not finite"),
        "labels": (Fixed(np.full(2000, 2), classes=[0, 1]), rows, ValueError, "predict gave labels"),
        "chances": (
            Fixed(labels, np.full((2000, 2), np.nan), classes=[0, 1]),
            rows,
            ValueError,
            "values of predict_proba that are not finite",
        ),
        "shape of chances": (Fixed(labels, np.zeros((2000, 1)), [0, 1]), rows, ValueError, "shape"),
    }


@pytest.mark.parametrize("name", refused_models(np.eye(2000, 3), np.arange(2000) % 2))
def test_models_that_cannot_answer_cost_nothing(name, rows, labels, ledger):
    model, X, kind, message = refused_models(rows, labels)[name]
    with pytest.raises(kind, match=message):
        evaluate(model, X, labels, target_bounds=(-1, 1), ledger=ledger)
    assert not ledger.history()


@pytest.mark.parametrize("bad_rows", ["error", "null"])
@pytest.mark.parametrize(
    "make", [frame, lambda rows: pl.DataFrame(rows, NAMES), lambda rows: pa.table(frame(rows))]
)
def test_columns_in_another_order_are_refused(make, bad_rows, rows, labels, ledger):
    model = PrivateLogisticRegression(5.0, classes=[0, 1], feature_bound=1.4).fit(make(rows), labels)
    X = make(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "epsilon 100000 promises next to nothing")
        exact = model.score(X, labels)
        assert accuracy(model, X, labels, bad_rows=bad_rows) == pytest.approx(exact, abs=1e-3)
    other = X.select(NAMES[::-1]) if hasattr(X, "select") else X[NAMES[::-1]]
    with pytest.raises(ValueError, match="same order"):
        evaluate(model, other, labels, bad_rows=bad_rows, ledger=ledger)
    assert not ledger.history()


def test_a_pipeline_reads_the_table_itself(ledger):
    people = make_cohort(3000)
    y = COHORT_SCHEMA.target_values(people)
    bound = COHORT_SCHEMA.feature_bound()
    model = PrivateLogisticRegression(5.0, classes=COHORT_SCHEMA.classes, feature_bound=bound)
    pipeline = make_pipeline(SchemaEncoder(COHORT_SCHEMA), model).fit(people, y)
    exact = pipeline.score(people, y)
    for table in (people, pa.table(people).to_pandas()):
        for bad_rows in ("error", "null"):
            assert accuracy(pipeline, table, y, bad_rows=bad_rows) == pytest.approx(exact, abs=1e-3)
    broken = pa.table(people).to_pandas().astype({"age": object})
    broken.loc[:999, "age"] = "secret"
    with pytest.raises(ValueError, match="'age'") as refusal:
        evaluate(pipeline, broken, y, ledger=ledger)
    assert "secret" not in str(refusal.value)
    assert not ledger.history()
    found = evaluate(pipeline, broken, y, epsilon=HARDLY_PRIVATE, bad_rows="null")
    assert found.confusion.sum() == pytest.approx(2000, abs=2)


def test_a_pipeline_of_a_regressor_knows_its_target_bounds(rows):
    model = PrivateRidge(5.0, target_bounds=(-1, 1), feature_bound=3.0)
    pipeline = make_pipeline(StandardScaler().fit(rows), model).fit(rows, rows[:, 0])
    found = evaluate(pipeline, rows, rows[:, 0], epsilon=HARDLY_PRIVATE)["R^2"].value
    assert found == pytest.approx(pipeline.score(rows, rows[:, 0]), abs=1e-2)


def test_a_search_of_regressors_knows_its_target_bounds(rows):
    search = PrivateSelection([PrivateRidge(target_bounds=(-1, 1), feature_bound=3.0)], 5.0, method="split")
    search.fit(rows, rows[:, 0])
    for model in (search, make_pipeline(StandardScaler(with_std=False), search).fit(rows, rows[:, 0])):
        found = evaluate(model, rows, rows[:, 0], epsilon=HARDLY_PRIVATE)["R^2"].value
        assert found == pytest.approx(model.score(rows, rows[:, 0]), abs=1e-2)


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one"])
@pytest.mark.parametrize("make", [list, lambda column: np.array(column, dtype=object)])
def test_a_table_may_be_a_dict_of_columns(relation, make):
    people = pa.table(make_cohort(80))
    y = COHORT_SCHEMA.target_values(people)
    model = PrivateLogisticRegression(5.0, 1e-6, classes=COHORT_SCHEMA.classes)
    pipeline = make_pipeline(SchemaEncoder(COHORT_SCHEMA), model).fit(people, y)
    table = {name: make(people[name].to_pylist()) for name in people.column_names}
    size = None if relation == "replace-one" else 100
    found = accuracy(pipeline, table, y, delta=1e-6, neighboring=relation, n_samples=size)
    assert found == pytest.approx(pipeline.score(people, y), abs=1e-2)


def test_rows_beyond_all_measure_count_for_nothing_if_asked(rows, labels):
    model = LogisticRegression().fit(rows, labels)
    X = rows.copy()
    X[:100, 1] = 1.7e308
    for made in (X, sp.csr_array(X)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "epsilon 100000 promises next to nothing")
            found = evaluate(model, made, labels, epsilon=HARDLY_PRIVATE, bad_rows="null")
        assert found.confusion.sum() == pytest.approx(1900, abs=2)


def test_words_among_numbers_count_for_nothing_if_asked(rows, labels):
    model = LogisticRegression().fit(frame(rows), labels)
    X = frame(rows).astype(object)
    X.loc[:99, "b"] = "secret"
    found = evaluate(model, X, labels, epsilon=HARDLY_PRIVATE, bad_rows="null")
    assert found.confusion.sum() == pytest.approx(1900, abs=2)
    sparse = sp.csr_array(rows)
    sparse.data[:3] = [np.nan, np.inf, 1.0]
    given = sparse.copy()
    plain = LogisticRegression().fit(rows, labels)
    found = evaluate(plain, sparse, labels, epsilon=HARDLY_PRIVATE, bad_rows="null")
    assert found.confusion.sum() == pytest.approx(1999, abs=2)
    assert np.array_equal(sparse.toarray(), given.toarray(), equal_nan=True)
    with pytest.raises(ValueError, match="sparse matrix of numbers"):
        evaluate(plain, labels, labels, bad_rows="null")


def test_answers_that_are_none_count_for_nothing_if_asked(rows, labels):
    half = np.arange(2000) < 500
    strange = Fixed(np.where(half, 7, labels), classes=[0, 1])
    found = evaluate(strange, rows, labels, epsilon=HARDLY_PRIVATE, bad_rows="null")
    assert found.confusion.sum() == pytest.approx(1500, abs=2)
    unsure = Fixed(labels, np.where(half[:, None], np.nan, 0.5) * np.ones(2), [0, 1])
    found = evaluate(unsure, rows, labels, epsilon=HARDLY_PRIVATE, bad_rows="null")
    assert found.confusion.sum() == pytest.approx(1500, abs=2)


def test_the_order_of_classes_is_the_models_own(rows, labels):
    chances = np.column_stack([labels, 1.0 - labels])  # of 1, then of 0
    model = Fixed(labels, chances, classes=[1, 0])
    found = evaluate(model, rows, labels, epsilon=HARDLY_PRIVATE)
    assert found["accuracy"].value == pytest.approx(1.0, abs=1e-3)
    assert found["AUC"].value == pytest.approx(1.0, abs=1e-3)


def test_a_model_that_takes_missing_cells_is_given_them(rows, labels):
    X = np.where(np.arange(2000)[:, None] % 3 == 0, np.nan, rows)
    model = HistGradientBoostingClassifier(max_iter=5).fit(X, labels)
    assert accuracy(model, X, labels) == pytest.approx(model.score(X, labels), abs=1e-3)


def test_groups_may_be_missing_or_of_several_kinds(rows, labels):
    groups = pd.Series(["a", pd.NA, 1, None] * 500, dtype=object)
    found = evaluate(
        Fixed(labels, classes=[0, 1]),
        rows,
        labels,
        epsilon=HARDLY_PRIVATE,
        by=groups.tolist(),
        by_values=["a", 1],
    )
    assert all(found.by_group[value]["accuracy"].value == pytest.approx(1.0, abs=1e-2) for value in ("a", 1))


def test_a_delta_nobody_chose_is_refused_for_a_handful_of_records(rows, labels, ledger):
    model = Fixed(labels[:2], classes=[0, 1])
    with pytest.raises(ValueError, match=r"delta defaults to .* 0.25 for 2 records"):
        evaluate(model, rows[:2], labels[:2], ledger=ledger)
    assert not ledger.history()
    evaluate(model, rows[:2], labels[:2], delta=1e-6, ledger=ledger)
    enough = Fixed(labels[:32], classes=[0, 1])
    assert evaluate(enough, rows[:32], labels[:32]).privacy_.delta == 1 / 32**2


class Crowd:
    """A released model whose answers depend on how many rows it sees, as the last bits of products do."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return np.full(X.shape[0], X.shape[0] % 2)

    def predict_proba(self, X):
        return np.column_stack([1 - 0.9 * self.predict(X), 0.9 * self.predict(X)])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, lambda X: pd.DataFrame(X, columns=NAMES)])
@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one"])
def test_where_the_number_of_rows_is_private_each_is_asked_about_alone(rows, relation, make):
    """One row more must change the counts of no other."""
    shares = []
    for n in (400, 401):
        size = None if relation == "replace-one" else 500
        given = {"epsilon": HARDLY_PRIVATE, "delta": 1e-6, "neighboring": relation, "n_samples": size}
        found = evaluate(Crowd(), make(rows[:n]), np.ones(n, dtype=int), **given)
        shares.append(found["accuracy"].value)
    assert shares == pytest.approx([0.0, 1.0] if relation == "replace-one" else [1.0, 1.0], abs=0.01)
