"""What people who know scikit-learn try first: each habit is answered by what does it here."""

from __future__ import annotations

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import discreet
from discreet import (
    Categorical,
    Ledger,
    NoLedgerWarning,
    Numeric,
    PrivateLasso,
    PrivateLogisticRegression,
    PrivateMatrixCompletion,
    PrivateMedian,
    PrivateRidge,
    PrivateSearchCV,
    PrivateSparseLogisticRegression,
    PrivateTransferClassifier,
    Schema,
    Target,
    release,
)
from discreet._checks import _HABITS
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.cli import catalog
from discreet.estimators.rehearsal import simulate


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (PrivateLogisticRegression, {"C": 1.0}, r"l2, the ridge on the mean loss, is 1 / \(C \* n_samples\)"),
        (PrivateLasso, {"alpha": 0.1}, "l1_radius bounds the coefficients"),
        (PrivateRidge, {"alpha": 0.1}, "alpha / n_samples"),
        (PrivateLogisticRegression, {"penalty": "l1"}, "PrivateSparseLogisticRegression"),
        (PrivateSparseLogisticRegression, {"class_weight": "balanced"}, "FixedThresholdClassifier"),
        (
            PrivateSparseLogisticRegression,
            {"class_weight": {0: 1}},
            "PrivateLinearSVC take weights that are public",
        ),
        (PrivateLogisticRegression, {"max_iter": 100}, r"NoisyGradientDescent\(n_iterations=100\)"),
        (PrivateRidge, {"tol": 1e-4}, "must not depend on the data"),
        (PrivateRidge, {"n_jobs": -1}, "OMP_NUM_THREADS"),
        (PrivateMedian, {"verbose": 1}, "on_progress"),
        (PrivateMatrixCompletion, {"factors": 8}, "rank is the largest number"),
        (PrivateTransferClassifier, {"verbose": 1}, "on_progress"),
        (PrivateRidge, {"epsilom": 1.0}, "did you mean 'epsilon'"),
        (PrivateRidge, {"nonsense": 1.0}, "there are epsilon, delta"),
    ],
)
def test_a_habit_is_answered(kind, given, words):
    with pytest.raises(TypeError, match=words) as refused:
        kind(**given)
    assert f"{kind.__name__} has no parameter {next(iter(given))!r}" in str(refused.value)


def test_a_search_has_no_folds():
    with pytest.raises(TypeError, match="holdout is the fraction of records"):
        PrivateSearchCV(PrivateRidge(), {"l2": [1]}, cv=5)


def test_advice_names_parameters_and_things_that_exist():
    names = {estimator for model in catalog.MODELS.values() for estimator in model.estimators.values()}
    parameters = {one for name in names for one in inspect.signature(getattr(discreet, name)).parameters}
    parameters |= set(inspect.signature(PrivateSearchCV).parameters)
    for name, advice in _HABITS.items():
        for parameter, words in advice:
            assert not parameter or parameter in parameters, name
            for word in words.replace("(", " ").replace(",", " ").replace(";", " ").split():
                if word.startswith("Private"):
                    assert hasattr(discreet, word), word


def test_constructors_stay_those_of_scikit_learn():
    model = PrivateRidge(2.0, target_bounds=(0, 1), l2=0.5)
    for same in (clone(model), pickle.loads(pickle.dumps(model))):
        assert type(same) is PrivateRidge
        assert same.get_params() == model.get_params()
    assert list(inspect.signature(PrivateRidge).parameters)[:2] == ["epsilon", "delta"]
    with pytest.raises(ValueError, match="Invalid parameter 'C'"):
        model.set_params(C=1)


def test_target_bounds_name_what_finds_them():
    rows = np.zeros((50, 2))
    with pytest.raises(ValueError, match=r"discreet\.private_domains"):
        PrivateRidge().fit(rows, rows[:, 0])
    with pytest.raises(ValueError, match=r"discreet\.private_domains"):
        discreet.PrivateAdditiveRegressor(feature_bounds=(-1, 1)).fit(rows, rows[:, 0])


# --- fits without a ledger ---


def said(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, NoLedgerWarning)]


ROWS = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
LABELS = (ROWS[:, 0] > 0).astype(int)
MODEL = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver="output")


def test_the_first_fit_without_a_ledger_is_warned_of(counted_fits):
    (first,) = said(lambda: MODEL.fit(ROWS, LABELS))
    assert "no ledger was given" in first
    assert "pass ledger=Ledger(" in first
    (second,) = said(lambda: MODEL.fit(ROWS, LABELS))
    assert "2 releases of this process have no ledger" in second
    assert "add up: up to epsilon 2, delta 2e-06" in second
    assert said(lambda: MODEL.fit(ROWS, LABELS)) == []  # not at every one


def test_habits_that_fit_often_name_the_total(counted_fits):
    (*_, last) = said(lambda: cross_val_score(MODEL, ROWS, LABELS, cv=4))
    assert "4 releases" in last
    assert "up to epsilon 4, delta 4e-06" in last
    grid = GridSearchCV(MODEL, {"l2": [0.1, 1.0]}, cv=2)
    assert any("8 releases" in one for one in said(lambda: grid.fit(ROWS, LABELS)))


def test_what_is_said_depends_on_calls_alone(counted_fits, monkeypatch):
    first = [said(lambda: MODEL.fit(ROWS, LABELS)) for _ in range(4)]
    monkeypatch.setattr(release, "_uncharged", [])
    assert [said(lambda: MODEL.fit(-ROWS, 1 - LABELS)) for _ in range(4)] == first


def test_promises_of_different_kinds_are_not_added(counted_fits):
    said(lambda: MODEL.fit(ROWS, LABELS))
    other = clone(MODEL).set_params(neighboring="zero-out")
    (text,) = said(lambda: other.fit(ROWS, LABELS))
    assert "their prices add up;" in text


def test_a_ledger_rehearsals_and_tries_are_not_warned_of(counted_fits, tmp_path):
    ledger = Ledger(tmp_path / "l", 10.0, 1e-3)
    paid = clone(MODEL).set_params(ledger=ledger)
    assert said(lambda: paid.fit(ROWS, LABELS)) == []
    assert said(lambda: simulate(MODEL, 200, 2, epsilons=(1.0,), repeats=1)) == []
    assert release._uncharged == []
    search = PrivateSearchCV(MODEL, {"feature_bound": [0.5, 1.0]}, epsilon=2.0, delta=1e-5)
    assert (
        len(said(lambda: search.fit(ROWS, LABELS))) == 1
    )  # the search itself; the number of tries is secret
    assert len(release._uncharged) == 1


def test_audits_are_not_warned_of(counted_fits):
    """Their noise is seeded: nothing private is released, and neighbors must be told the same."""
    other = ROWS.copy()
    other[0] = 0.5
    found = replay(fitting(MODEL), (ROWS, LABELS), (other, LABELS))
    assert found.passed, str(found)
    assert release._uncharged == []


def test_a_statement_says_that_nobody_checked_how_columns_were_made(tmp_path):
    """What was scaled before a fit cannot be seen by it; a schema can."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 98, 400)
    y = (age > 58).astype(int)
    plain = PrivateLogisticRegression(classes=[0, 1]).fit(age[:, None] / 98, y)
    assert "not checked: columns were scaled and chosen" in str(plain.privacy_)
    schema = discreet.Schema({"age": discreet.Numeric(18, 98)}, discreet.Target("old", (0, 1)))
    made = PrivateLogisticRegression(classes=[0, 1]).fit({"age": age, "old": y}, schema=schema, target="old")
    assert "not checked" not in str(made.privacy_)
    assert "columns were scaled and chosen by a schema" in str(made.privacy_)


def test_a_model_behind_a_schema_knows_the_names_of_its_columns(tmp_path):
    """In a pipeline, in a file, and for raw tables, without a warning of scikit-learn about missing names."""
    rng = np.random.default_rng(1)
    table = {"age": rng.integers(18, 98, 600), "ward": rng.choice(["north", "south"], 600)}
    y = np.where(table["age"] > 58, "yes", "no")
    schema = discreet.Schema(
        {"age": discreet.Numeric(18, 98), "ward": discreet.Categorical(("north", "south"))},
        discreet.Target("ill", ("no", "yes")),
    )
    pipe = make_pipeline(discreet.SchemaEncoder(schema), PrivateLogisticRegression(classes=["no", "yes"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NoLedgerWarning)
        warnings.simplefilter("ignore", discreet.NoiseWarning)
        pipe.fit(table, y)
        found = pipe.predict(table)
        assert pipe[-1].feature_names_in_.tolist() == ["age", "ward=north", "ward=south"]
        assert pipe[-1].n_features_in_ == 3
        discreet.card.save(pipe[-1], tmp_path / "model.json", schema=schema)
        again = discreet.card.load(tmp_path / "model.json")
        assert np.array_equal(again.predict(table), found)
        assert np.array_equal(again.predict(pipe[0].transform(table)), found)
        names = [row[0] for row in discreet.card.coefficients(pipe[-1]).rows]
        assert names[:3] == ["age", "ward=north", "ward=south"]
    rows = pipe[0].transform(table)
    assert type(rows[:, [1, 0]]).feature_names == ()  # a part of the columns has no names
    other = discreet.SchemaEncoder(
        discreet.Schema({"ward": schema.columns["ward"], "age": schema.columns["age"]})
    )
    with pytest.raises(ValueError, match="must have the columns that the model was fitted on"):
        pipe[-1].predict(other.fit_transform(table))


@pytest.fixture(scope="module")
def raw():
    """A table with a label and a number, as a frame."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.integers(0, 100, 3000), "ward": rng.choice(["north", "south"], 3000)})
    frame["ill"] = np.where(frame["age"] + 40 * (frame["ward"] == "south") > 60, "yes", "no")
    frame["cost"] = 10.0 * frame["age"]
    return frame


COLUMNS = {"age": Numeric(0, 100), "ward": Categorical(("north", "south"))}


def test_a_fit_with_a_schema_takes_what_it_declares(raw):
    """Classes, or bounds of the target; and the model predicts for raw tables, like one from a file."""
    schema = Schema(COLUMNS, Target("ill", ("no", "yes")))
    model = PrivateLogisticRegression(4.0, feature_bound=schema.feature_bound())
    with warnings.catch_warnings():
        warnings.simplefilter("error", discreet.PrivacyWarning)
        warnings.simplefilter("ignore", NoLedgerWarning)
        model.fit(raw, schema=schema)
    assert any("label set was declared" in fact for fact in model.privacy_.assumptions)
    assert model.classes is None  # parameters stay as they were given
    assert list(model.feature_names_in_) == list(schema.feature_names)
    assert (model.predict(raw) == model.predict(schema.transform(raw))).all()
    assert discreet.evaluate(model, raw, raw["ill"], epsilon=1.0)["accuracy"].value > 0.7
    number = Schema(COLUMNS, Target("cost", bounds=(0, 1000)))
    ridge = PrivateRidge(4.0, feature_bound=number.feature_bound()).fit(raw, schema=number)
    assert ridge.target_bounds is None
    assert 0 <= ridge.predict(raw).min() <= ridge.predict(raw).max() <= 1000
    with pytest.raises(ValueError, match="'cost' is a number and has no classes; a regressor predicts it"):
        model.fit(raw, schema=number)
    with pytest.raises(ValueError, match="'ill' has classes and no bounds; a classifier predicts it"):
        ridge.fit(raw, schema=schema)
    with pytest.raises(ValueError, match="y must be None where a schema or target names the column"):
        ridge.fit(raw, raw["cost"], schema=number)
