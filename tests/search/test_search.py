"""Private search: what is charged is what was run, the surface is scikit-learn's, and cheats are caught."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from discreet import (
    Ledger,
    PrivateERM,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    PrivateSelection,
    card,
    insecure_noise,
    on_progress,
)
from discreet.audit.replay import replay
from discreet.losses import Logistic
from discreet.privacy.accounting import accountants
from discreet.privacy.events import OneOf, RandomTries
from discreet.privacy.ledger.ledger import BudgetExceeded
from discreet.records.bounds import BoxBounds
from discreet.records.open import blanked
from discreet.search.plans import UNIT, record_scores
from discreet.solvers.gradients.noisy_gd import NoisyGradientPlan

MODEL = PrivateLogisticRegression(classes=[0, 1], solver="output")
GRID = {"feature_bound": [0.01, 1.0, 2.0], "l2": [1e-4, 1e-3]}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    return X, (X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=6000) > 0).astype(int)


@pytest.mark.parametrize("method", ["tries", "split", "split-parallel"])
@pytest.mark.lemma("selection.md#section-5")
def test_search_finds_a_good_model_for_the_stated_price(data, method, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-4)
    search = PrivateSearchCV(MODEL, GRID, 2.0, 1e-6, method=method, ledger=ledger).fit(*data)
    (charge,) = ledger.history()
    assert charge.event == search.privacy_.event
    assert accountants.epsilon(charge.event, 1e-6, ledger.neighboring) <= 2.0
    assert search.privacy_.epsilon == 2.0
    # A model that is passed on alone must not claim the price of a single try.
    assert search.best_estimator_.privacy_ == search.privacy_
    assert search.best_params_ == dict(GRID_POINTS[search.best_index_])
    assert search.score(*data) == search.best_estimator_.score(*data)
    assert search.predict(data[0]).shape == (6000,)
    assert search.predict_proba(data[0]).shape == (6000, 2)
    assert (search.best_score_ is not None) == (method == "tries")


GRID_POINTS = [{"feature_bound": bound, "l2": l2} for bound in GRID["feature_bound"] for l2 in GRID["l2"]]


def test_the_budget_of_one_try_is_used_up(data):
    plan = PrivateSearchCV(MODEL, GRID, 1.0, 1e-6).plan(6000, 3)
    price = accountants.epsilon(plan.event, 1e-6, plan.guarantee.neighboring)
    assert 0.99 < price <= 1.0
    assert isinstance(plan.event, RandomTries)
    assert isinstance(plan.event.event, OneOf)
    assert plan.fit_guarantee.epsilon > 0.6  # far cheaper than paying for every try
    split = PrivateSearchCV(MODEL, GRID, 1.0, 1e-6, method="split").plan(6000, 3)
    assert split.fit_guarantee.epsilon < plan.fit_guarantee.epsilon


@pytest.mark.parametrize("method", ["tries", "split", "split-parallel"])
def test_a_plan_is_printed_in_words(method):
    model = PrivateLogisticRegression(classes=[0, 1])
    plan = PrivateSearchCV(model, {"l2": [0.01, 0.1]}, method=method).plan(20_000, 5)
    first, guarantee, *rest = str(plan).splitlines()
    assert first == f"Plan: {plan.mechanism}"
    assert guarantee.split(None, 1) == ["guarantee", "(1, 2.5e-09), replace-one"]
    assert f"{plan.fit_guarantee.epsilon:.6g}" in str(rest)


@pytest.mark.parametrize("method", ["tries", "split", "split-parallel"])
@pytest.mark.lemma("selection.md#section-5")
def test_one_candidate_is_trained_on_all_records_at_its_own_price(data, method, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-4)
    alone = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver="output")
    search = PrivateSelection([MODEL], 1.0, 1e-6, method=method, ledger=ledger).fit(*data)
    (charge,) = ledger.history()
    assert charge.event == search.privacy_.event == alone.plan(6000, 3).event
    assert search.privacy_.bounds["held-out records"] == 0.0
    assert (search.best_index_, search.best_score_) == (0, None)
    assert "number of tries" not in str(search.privacy_)


def test_several_tries_of_one_candidate_are_paid_for(data):
    plan = PrivateSelection([MODEL], 1.0, 1e-6, expected_tries=3.0).plan(6000, 3)
    assert isinstance(plan.event, RandomTries)
    assert plan.fit_guarantee.epsilon < 0.9


def test_scikit_learn_surface(data):
    search = PrivateSearchCV(MODEL, GRID)
    assert is_classifier(search)
    assert not is_regressor(search)
    assert clone(search).get_params()["estimator__solver"] == "output"
    assert hasattr(search, "predict_proba")
    svm = PrivateSelection([PrivateLinearSVC(classes=[0, 1])])
    assert not hasattr(svm, "predict_proba")
    assert hasattr(svm, "decision_function")
    pipeline = make_pipeline(FunctionTransformer(), PrivateSearchCV(MODEL, GRID)).fit(*data)
    assert pipeline.predict(data[0]).shape == (6000,)


def test_ordinary_grid_search_works_and_charges_every_fit(data, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=10.0, delta=1e-3)
    model = PrivateLogisticRegression(0.5, 1e-6, classes=[0, 1], solver="output", ledger=ledger)
    GridSearchCV(model, {"l2": [1e-3, 1e-2]}, cv=3).fit(*data)
    assert len(ledger.history()) == 2 * 3 + 1
    small = Ledger(tmp_path / "small", epsilon=0.9, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        GridSearchCV(model.set_params(ledger=small), {"l2": [1e-3, 1e-2]}, cv=3, error_score="raise").fit(
            *data
        )


def test_a_search_that_does_not_fit_the_ledger_does_not_run(data, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=0.5, delta=1e-6)
    search = PrivateSearchCV(MODEL, GRID, 1.0, 1e-7, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        search.fit(*data)
    assert not hasattr(search, "best_estimator_")
    assert not ledger.history()


def test_regressors_are_searched_too():
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
    y = X @ [1.0, -2.0, 0.5]
    models = [PrivateRidge(feature_bound=1.4, target_bounds=(-2, 2), l2=l2) for l2 in (1e6, None)]
    search = PrivateSelection(models, epsilon=2.0, method="split").fit(X, y)
    assert is_regressor(search)
    assert not hasattr(search, "predict_proba")
    # The useless candidate loses by about 100 of 4,000 points; the choice overturns that with chance e^-100.
    assert search.best_index_ == 1
    assert search.score(X, y) > 0.8


def test_scores_of_records_lie_in_the_unit_interval_and_read_one_record_each():
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, size=(500, 2)), rng.uniform(-3, 3, size=500)
    model = PrivateRidge(target_bounds=(-1, 1), feature_bound=2.0).fit(X, y)
    scores = record_scores(model, X, y)
    assert scores.min() >= 0
    assert scores.max() <= UNIT
    alone = record_scores(model, X[:1], y[:1])
    assert abs(int(alone[0]) - int(scores[0])) <= 1
    assert not record_scores(model, X, np.full(500, np.nan)).any()


def test_null_records_count_for_nothing(data):
    X, y = data[0].copy(), data[1]
    X[::7] = np.nan
    search = PrivateSelection([MODEL, MODEL], neighboring="zero-out", bad_rows="null")
    search.fit(X, np.where(np.arange(6000) % 11 == 0, 5, y))
    assert search.best_index_ in (0, 1)
    with pytest.raises(ValueError, match="NaN"):
        PrivateSelection([MODEL]).fit(X, y)


def test_misuse_is_refused_before_anything_is_charged(data, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    cases = [
        (PrivateSelection([], ledger=ledger), ValueError, "nothing to choose"),
        (PrivateSelection([LogisticRegression()], ledger=ledger), TypeError, "LogisticRegression is none"),
        (PrivateSelection([PrivateSelection([MODEL])], ledger=ledger), TypeError, "of another search"),
        (PrivateSelection([make_pipeline(MODEL)], ledger=ledger), TypeError, r"over pipeline\[-1\]"),
        (PrivateSelection([PrivateERM(Logistic())], ledger=ledger), TypeError, "PrivateERM has neither"),
        (PrivateSelection([MODEL, PrivateRidge()], ledger=ledger), ValueError, "all classifiers or all"),
        (PrivateSelection([MODEL], holdout=1.0, ledger=ledger), ValueError, "holdout"),
        (PrivateSelection([MODEL], method="best", ledger=ledger), ValueError, "method"),
        (PrivateSearchCV(MODEL, {"epsilon": [1, 2]}, ledger=ledger), ValueError, "must not vary"),
    ]
    for search, kind, message in cases:
        with pytest.raises(kind, match=message):
            search.fit(*data)
    hidden = PrivateSelection([MODEL], neighboring="add-remove-one", ledger=ledger)
    with pytest.raises(ValueError, match=r"add-remove-one|numbers of training and held-out records public"):
        hidden.fit(*data)
    assert not ledger.history()


def test_a_pipeline_is_refused_before_a_cell_is_read(tmp_path):
    table = pd.DataFrame({"sex": ["female", "male"] * 50})
    with pytest.raises(TypeError, match=r"SchemaEncoder\(schema\)\.transform"):
        PrivateSearchCV(make_pipeline(MODEL), {"privatelogisticregression__l2": [1, 2]}).fit(
            table, [0, 1] * 50
        )


def test_the_chosen_model_knows_the_names_of_columns(data):
    rows, y = pd.DataFrame(data[0], columns=["a", "b", "c"]), data[1]
    search = PrivateSearchCV(MODEL, GRID, 2.0, method="split").fit(rows, y)
    for model in (search, search.best_estimator_):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.predict(rows)
            model.predict_proba(rows)
        with pytest.raises(ValueError, match="same order"):
            model.predict(rows[["c", "b", "a"]])
    bare = PrivateSearchCV(MODEL, GRID, 2.0, method="split").fit(*data)
    assert not hasattr(bare.best_estimator_, "feature_names_in_")


def test_words_among_numbers_count_for_nothing_or_are_refused_unquoted(tmp_path):
    rng = np.random.default_rng(4)
    X, ledger = rng.uniform(-0.5, 0.5, size=(1000, 2)), Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    rows, y = X.astype(object), X[:, 0].astype(object)
    rows[3, 0], y[5] = "secret", "secret"
    models = [PrivateRidge(feature_bound=1.4, target_bounds=(-1, 1), l2=l2) for l2 in (1e-2, 1e-1)]
    search = PrivateSelection(models, method="split", ledger=ledger)
    for one, other in ((rows, X[:, 0]), (X, y)):
        with pytest.raises(ValueError, match="number") as refusal:
            search.fit(one, other)
        assert "secret" not in str(refusal.value)
    assert not ledger.history()
    search.set_params(bad_rows="null").fit(rows, y)
    assert len(ledger.history()) == 1


def test_few_records_need_a_chosen_delta(data, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    X, y = data[0][:20], data[1][:20]
    with pytest.raises(ValueError, match="delta defaults to"):
        PrivateSelection([MODEL], method="split", ledger=ledger).fit(X, y)
    assert not ledger.history()
    PrivateSelection([MODEL], 1.0, 1e-6, method="split", ledger=ledger).fit(X, y)


def test_rows_on_a_cluster_are_refused_before_the_charge(data, tmp_path):
    import dask.array as da

    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    with pytest.raises(ValueError, match="in memory"):
        PrivateSelection([MODEL], ledger=ledger).fit(da.from_array(data[0], chunks=(50, 3)), data[1])
    assert not ledger.history()


def test_statement_warns_of_time_and_survives_a_file(data):
    search = PrivateSelection([MODEL, MODEL], 1.0, 1e-6).fit(*data)
    statement = search.privacy_
    assert any("HOW LONG" in text for text in statement.not_covered)
    again = type(statement).from_dict(statement.to_dict())
    assert again.event == statement.event
    assert again.epsilon_at(1e-6) <= 1.0
    with insecure_noise(0):
        assert PrivateSelection([MODEL], 1.0, 1e-6).fit(*data).privacy_.epsilon == np.inf


def test_the_chosen_model_is_saved_with_the_promise_of_the_search(data, tmp_path):
    search = PrivateSelection([MODEL, MODEL], 1.0, 1e-6).fit(*data)
    card.save(search.best_estimator_, tmp_path / "model.json")
    again = card.load(tmp_path / "model.json")
    assert again.privacy_.event == search.privacy_.event
    assert np.array_equal(again.predict(data[0]), search.predict(data[0]))


def test_replay_on_neighbors_finds_nothing(data):
    X, y = data[0][:300], data[1][:300]
    other_X, other_y = X.copy(), y.copy()
    other_X[0], other_y[0] = -X[0], 1 - y[0]
    search = PrivateSelection([MODEL, MODEL], 1.0, 1e-3, expected_tries=3)
    for seed in range(3):
        found = replay(lambda part: clone(search).fit(*part), (X, y), (other_X, other_y), seed=seed)
        assert found.passed, str(found)


@pytest.mark.parametrize("method", ["split", "tries"])
def test_what_is_planned_for_wide_sparse_rows_is_what_runs(method):
    """The automatic choice looks at how rows are kept, and so must the price of a try."""
    rng = np.random.default_rng(0)
    X, y = sp.random(2000, 1100, 0.01, "csr", rng=rng), rng.integers(2, size=2000)
    candidates = [PrivateLogisticRegression(feature_bound=bound) for bound in (0.5, 1.0)]
    search = PrivateSelection(candidates, 2.0, 1e-6, method=method, classes=[0, 1])
    planned = search.plan(2000, 1100, sparse=True)
    assert planned.event != search.plan(2000, 1100).event
    assert search.fit(X, y).privacy_.event == planned.event


@pytest.mark.parametrize("wrong", ["kinds of labels", "settings of one candidate"])
def test_what_a_try_would_refuse_is_refused_before_the_charge(data, tmp_path, wrong):
    X, y = data
    ledger = Ledger(tmp_path / "budget", epsilon=10.0, delta=1e-4)
    seeded = PrivateLogisticRegression(random_state=np.random.default_rng(0))
    # Alike: a quick price.
    candidates = [PrivateLogisticRegression(solver="output", l2=l2) for l2 in (0.01, 0.1)]
    if wrong == "settings of one candidate":
        candidates.append(seeded)
    else:
        y = np.where(y == 1, 0.5, 1.5)  # continuous, to scikit-learn
    with pytest.raises((TypeError, ValueError)):
        PrivateSelection(candidates, classes=sorted(set(y.tolist())), ledger=ledger).fit(X, y)
    assert len(ledger.history()) == 0


def test_fitting_the_chosen_model_again_is_charged(data, tmp_path):
    X, y = data
    ledger = Ledger(tmp_path / "budget", epsilon=10.0, delta=1e-4)
    # Alike: a quick price.
    candidates = [PrivateLogisticRegression(solver="output", l2=l2) for l2 in (0.01, 0.1)]
    search = PrivateSelection(candidates, classes=[0, 1], method="split", ledger=ledger).fit(X, y)
    search.best_estimator_.fit(X, y)
    assert len(ledger.history()) == 2


def searched(X, y, tmp_path, **options):
    """A search that must run through, charged once."""
    ledger = Ledger(tmp_path / "budget", epsilon=9.0, delta=1e-3)
    options = {"classes": ["a", "b"], "bad_rows": "null", "method": "split"} | options
    search = PrivateSelection([MODEL, MODEL], 2.0, 1e-6, ledger=ledger, **options).fit(X, y)
    assert len(ledger.history()) == 1
    return search


@pytest.mark.parametrize("missing", [pd.NA, None, np.nan, pd.NaT, [1, 2], "c"])
def test_a_label_that_is_missing_aborts_nothing_after_the_charge(data, tmp_path, missing):
    labels = np.where(data[1] == 1, "a", "b").astype(object)
    for row in range(0, 6000, 5):  # some of them are held out
        labels[row] = missing
    search = searched(data[0], labels, tmp_path)
    assert set(search.predict(data[0])) <= {"a", "b"}


@pytest.mark.parametrize("method", ["tries", "split"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_tries_are_silent_whatever_the_rows_hold(data, tmp_path, make, method):
    """One warning for every try would tell their number."""
    X = data[0].copy()
    X[::5] = 1.7e308 * np.sign(X[::5])
    heard = []
    with warnings.catch_warnings(), np.errstate(all="call", call=lambda *what: heard.append(what)):
        warnings.simplefilter("error")
        searched(make(X), np.where(data[1] == 1, "a", "b"), tmp_path, method=method)
    assert not heard


def test_a_record_that_is_no_row_or_has_no_label_is_blank_and_has_no_truth(data):
    X, labels = data[0].copy(), np.where(data[1] == 1, "a", "b").astype(object)
    X[0, 1], X[1, 2], X[2, 0], labels[3] = np.nan, 2.0**301, -np.inf, "c"
    search = PrivateSelection([MODEL], classes=["a", "b"], bad_rows="null")
    for rows in (X, sp.csr_array(X), sp.csr_matrix(X)):
        given = rows.copy()
        records, _ = search._records(MODEL, rows, labels)
        shown = records.X if rows is X else records.X.toarray()
        np.testing.assert_array_equal(shown, np.where(np.arange(6000)[:, None] < 4, 0.0, X))
        assert records.truth[:4].tolist() == [-1] * 4
        assert records.y[:4].tolist() == [None] * 4
        assert records.y[4:].tolist() == labels[4:].tolist()
        if rows is not X:
            assert records.X.nnz == rows.nnz  # nothing was filled in, and nothing of the caller's was changed
            np.testing.assert_array_equal(rows.data, given.data)


def test_blanked_rows_of_a_sparse_matrix_stay_sparse():
    rows = sp.random_array((50, 10**9), density=1e-8, format="csr", rng=np.random.default_rng(0))
    made = blanked(rows, np.arange(50) < 25)
    assert made.nnz == rows.nnz
    assert not made[:25].sum()
    assert made[25:].sum() == rows[25:].sum()


@pytest.mark.filterwarnings("ignore::discreet.NoiseWarning")
def test_the_chosen_model_bounds_rows_as_it_did_in_training(tmp_path):
    """The automatic choice may look for single columns of wide rows, and then bounds entries instead of norms."""
    rows = np.random.default_rng(0).choice([-1.0, 1.0], size=(400, 1500))
    candidate = PrivateLogisticRegression(classes=[0, 1])
    search = PrivateSelection([candidate], 1.0, 1e-4, method="split").fit(rows, (rows[:, 0] > 0).astype(int))
    assert search.best_estimator_.row_bounds_ == BoxBounds.of(1500)
    assert search.privacy_.bounds["records"] == 400
    exact = rows @ search.best_estimator_.coef_[0] + search.best_estimator_.intercept_
    np.testing.assert_allclose(search.decision_function(rows), exact, rtol=1e-9)
    card.save(search.best_estimator_, tmp_path / "model.json")
    np.testing.assert_allclose(card.load(tmp_path / "model.json").decision_function(rows), exact, rtol=1e-9)


def test_regressors_are_compared_over_one_range():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(1000, 2))
    search = PrivateSearchCV(PrivateRidge(), {"target_bounds": [(-1, 1), (-100, 100)]}, method="split")
    with pytest.raises(ValueError, match="the same target_bounds"):
        search.fit(X, X[:, 0])
    same = PrivateSearchCV(PrivateRidge(), {"target_bounds": [(-1, 1), [-1.0, 1.0]]}, method="split")
    assert same.fit(X, X[:, 0]).best_params_["target_bounds"] in ((-1, 1), [-1.0, 1.0])


def test_a_search_of_nothing_can_be_looked_at():
    empty = PrivateSelection([])
    assert not is_classifier(empty)
    assert not hasattr(empty, "predict")
    assert "PrivateSelection" in repr(empty)
    assert is_classifier(PrivateSearchCV(MODEL, {"epsilon": [1.0]}))  # what is wrong with it is said by fit


def test_a_search_that_is_refused_keeps_what_was_found_before(data):
    search = PrivateSelection([MODEL, MODEL], 2.0, 1e-6, method="split").fit(*data)
    before, found = search.predict(data[0]), search.privacy_
    with pytest.raises(ValueError, match="one value per row"):
        search.fit(data[0][:, :2], data[1][:5])
    assert np.array_equal(search.predict(data[0]), before)
    assert search.privacy_ is found


@pytest.mark.parametrize("method", ["tries", "split"])
def test_two_candidates_take_a_few_fits_and_tell_nothing_of_how_far_they_are(data, method, monkeypatch):
    """How many tries there were is secret: a listener hears the same of every search, whatever their number."""
    X, y = data[:2]
    runs, heard = [], []
    genuine = NoisyGradientPlan.run
    monkeypatch.setattr(NoisyGradientPlan, "run", lambda *given: runs.append(1) or genuine(*given))
    model = PrivateLogisticRegression(classes=np.unique(y).tolist(), solver="noisy-gd")
    for _ in range(4):
        reports = []
        with on_progress(reports.append):
            PrivateSearchCV(model, {"feature_bound": [1.0, 2.0]}, method=method).fit(X, y)
        heard.append([str(report) for report in reports])
    assert len({tuple(reports) for reports in heard}) == 1
    assert heard[0]
    # Split: every candidate once. Tries: a random number with a mean of a few, of which four searches take not many.
    assert len(runs) == 8 if method == "split" else len(runs) <= 80
