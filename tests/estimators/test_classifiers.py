"""The estimators: the promise they print, the errors they raise before charging, and their limits."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC
from sklearn.utils.validation import has_fit_parameter

from discreet import Ledger, PrivacyWarning, PrivateLinearSVC, PrivateLogisticRegression, insecure_noise
from discreet.losses import HuberHinge
from discreet.privacy.accounting import accountants
from discreet.privacy.statement import PrivacyStatement

ESTIMATORS = [PrivateLogisticRegression, PrivateLinearSVC]


def blobs(n=3000, p=5, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) / np.sqrt(p)
    W = rng.normal(size=(p, n_classes))
    return X, np.argmax(X @ W + 0.1 * rng.normal(size=(n, n_classes)), axis=1)


@pytest.fixture(params=ESTIMATORS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.mark.parametrize("n_classes", [2, 4])
def test_large_epsilon_learns_what_scikit_learn_learns(kind, n_classes):
    X, y = blobs(n_classes=n_classes)
    model = kind(epsilon=1e6, feature_bound=3.0, classes=range(n_classes)).fit(X, y)
    reference = LogisticRegression(C=1e4, max_iter=5000) if kind is PrivateLogisticRegression else LinearSVC()
    reference.fit(X, y)
    assert model.score(X, y) > reference.score(X, y) - 0.02
    assert model.coef_.shape == reference.coef_.shape
    assert model.intercept_.shape == reference.intercept_.shape


def test_epsilon_to_infinity_equals_scikit_learn():
    X, y = blobs()
    l2 = 1e-3
    model = PrivateLogisticRegression(
        epsilon=1e8, feature_bound=5.0, l2=l2, classes=[0, 1], fit_intercept=False
    )
    reference = LogisticRegression(C=1 / (l2 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        X, y
    )
    assert np.abs(model.fit(X, y).coef_ - reference.coef_).max() < 1e-3


def test_epsilon_to_infinity_equals_scikit_learn_multinomial():
    X, y = blobs(n_classes=4)
    l2 = 1e-3
    model = PrivateLogisticRegression(
        epsilon=1e7, feature_bound=5.0, l2=l2, classes=range(4), fit_intercept=False
    )
    reference = LogisticRegression(C=1 / (l2 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        X, y
    )
    assert np.abs(model.fit(X, y).coef_ - reference.coef_).max() < 1e-3


def test_two_fits_never_share_noise(kind):
    X, y = blobs(500)
    fits = [kind(classes=[0, 1], random_state=0).fit(X, y).coef_ for _ in range(3)]
    assert not np.any(fits[0] == fits[1])
    assert not np.any(fits[1] == fits[2])


def test_parallel_fits_never_share_noise():
    from joblib import Parallel, delayed

    X, y = blobs(500)
    coefficients = Parallel(n_jobs=2)(
        delayed(lambda: PrivateLogisticRegression(classes=[0, 1], random_state=0).fit(X, y).coef_)()
        for _ in range(4)
    )
    assert len({value for coef in coefficients for value in coef.ravel()}) == 4 * 5


def test_sparse_frame_and_float32_agree_with_dense(kind):
    X, y = blobs(800)
    X[np.abs(X) < 0.2] = 0
    X = X.astype(np.float32).astype(np.float64)
    fits = {}
    for name, data in {
        "dense": X,
        "csr": sp.csr_matrix(X),
        "array": sp.csr_array(X),
        "float32": X.astype(np.float32),
        "frame": pd.DataFrame(X, columns=list("abcde")),
        "fortran": np.asfortranarray(X),
    }.items():
        with insecure_noise(1):
            fits[name] = kind(classes=[0, 1], fit_intercept=name != "nothing").fit(data, y)
    for name, model in fits.items():
        # The output noise is drawn from the same words; only the minimizer may differ, within its tolerance.
        assert np.allclose(model.coef_, fits["dense"].coef_, atol=1e-2), name
    assert list(fits["frame"].feature_names_in_) == list("abcde")


def test_csr_is_never_densified():
    n, p = 2000, 200_000
    rng = np.random.default_rng(0)
    X = sp.random(n, p, density=20 / p, format="csr", rng=rng)
    y = rng.integers(0, 2, size=n)
    model = PrivateLogisticRegression(classes=[0, 1]).fit(X, y)
    assert model.coef_.shape == (1, p)
    assert model.predict(X).shape == (n,)


# -- the promise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighboring", ["replace-one", "zero-out", "add-remove-one"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_promise_is_the_price_of_the_event(kind, neighboring, n_classes):
    X, y = blobs(400, n_classes=n_classes)
    declared = 500 if neighboring == "add-remove-one" else None
    model = kind(0.7, 1e-5, neighboring=neighboring, classes=range(n_classes), n_samples=declared).fit(X, y)
    statement = model.privacy_
    assert (statement.epsilon, statement.delta, statement.neighboring) == (0.7, 1e-5, neighboring)
    price = accountants.delta(statement.event, 0.7, statement.neighboring)
    assert 0.99e-5 <= price <= 1e-5
    assert statement.delta_at(1.4) < price < statement.delta_at(0.35)
    assert statement.epsilon_at(1e-5) <= 0.7


def test_statement_is_for_lawyers_and_machines(kind):
    X, y = blobs(400)
    statement = kind(classes=[0, 1]).fit(X, y).privacy_
    text = str(statement)
    for word in (
        "Guarantee",
        "replace-one",
        "Unit",
        "Theorem",
        "Noise",
        "Bounds",
        "Assumptions",
        "Not covered",
        "Delta at",
    ):
        assert word in text
    again = PrivacyStatement.from_dict(json.loads(statement.to_json()))
    assert again == statement
    assert str(again) == text


def test_default_delta_is_one_over_n_squared():
    X, y = blobs(400)
    assert PrivateLogisticRegression(classes=[0, 1]).fit(X, y).privacy_.delta == 1 / 400**2


def test_inferred_labels_are_warned_about_and_written_down(kind):
    X, y = blobs(400)
    with pytest.warns(PrivacyWarning, match="classes="):
        model = kind().fit(X, y)
    assert any("READ FROM THE PRIVATE DATA" in line for line in model.privacy_.assumptions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind(classes=[0, 1]).fit(X, y)
    assert not any("READ FROM" in line for line in model.privacy_.assumptions)


@pytest.mark.parametrize(
    "classes", [[0, "yes"], [False, 1], np.array([0, "yes"], dtype=object), [None, "yes"]]
)
def test_a_mixture_of_classes_is_refused(kind, classes):
    """NumPy would make texts of all, and no label 0 would equal the text "0"."""
    X, y = blobs(400)
    with pytest.raises(ValueError, match="classes must be all text, all numbers or all true/false"):
        kind(classes=classes).fit(X, y)
    kind(classes=[np.int64(0), 1.0]).fit(X, y)


def test_seeded_noise_is_marked_not_private(kind):
    X, y = blobs(400)
    with insecure_noise(3):
        first = kind(classes=[0, 1]).fit(X, y)
    with insecure_noise(3):
        second = kind(classes=[0, 1]).fit(X, y)
    assert np.array_equal(first.coef_, second.coef_)
    assert "NOT PRIVATE" in str(first.privacy_)
    assert first.privacy_.epsilon == np.inf
    assert first.privacy_.to_dict()["private"] is False


def test_plan_needs_no_data_and_equals_the_fit(kind):
    X, y = blobs(400)
    model = kind(epsilon=0.5, classes=[0, 1])
    plan = model.plan(400, 5)
    assert model.fit(X, y).privacy_.event == plan.event
    assert "guarantee" in str(plan)


def test_released_numbers_lie_on_the_public_grid(kind):
    X, y = blobs(400, n_classes=3)
    model = kind(classes=[0, 1, 2], solver="objective").fit(X, y)
    grid = model.privacy_.noise["output grid"]
    for values in (model.coef_, model.intercept_):
        assert np.array_equal(values, np.rint(values / grid) * grid)


# -- bad input -----------------------------------------------------------------------------------------------


def with_value(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


X_GOOD, Y_GOOD = blobs(200)
BAD = {
    "absurd": ({}, with_value(X_GOOD, 1e300), Y_GOOD, r"X\[3, 1\].*beyond 2"),
    "one class": ({"classes": None}, X_GOOD, np.zeros(200), "at least two"),
    "wrong length": ({}, X_GOOD, Y_GOOD[:-1], "one label per row"),
    "zero epsilon": ({"epsilon": 0.0}, X_GOOD, Y_GOOD, "epsilon"),
    "infinite epsilon": ({"epsilon": np.inf}, X_GOOD, Y_GOOD, "epsilon"),
    "negative delta": ({"delta": -1e-9}, X_GOOD, Y_GOOD, "delta"),
    "no delta": ({"delta": 0.0, "solver": "noisy-gd"}, X_GOOD, Y_GOOD, "delta"),
    "unknown size": ({"neighboring": "add-remove-one"}, X_GOOD, Y_GOOD, "n_samples"),
    "too few declared": (
        {"neighboring": "add-remove-one", "n_samples": 100},
        X_GOOD,
        Y_GOOD,
        "n_samples must be at least the number of rows",
    ),
    "negative bound": ({"feature_bound": -1.0}, X_GOOD, Y_GOOD, "feature_bound"),
    "unknown solver": ({"solver": "magic"}, X_GOOD, Y_GOOD, "solver .* is unknown"),
    "bad rows": ({"bad_rows": "drop"}, X_GOOD, Y_GOOD, "bad_rows"),
    "generator": ({"random_state": np.random.default_rng(0)}, X_GOOD, Y_GOOD, "random_state"),
    "missing labels": ({"bad_rows": "null", "classes": None}, X_GOOD, Y_GOOD, "classes"),
    "negative ridge": ({"l2": -1.0}, X_GOOD, Y_GOOD, "l2"),
    "continuous labels": ({"classes": None}, X_GOOD, X_GOOD[:, 0], "(?i)label|class"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_any_charge(kind, case, tmp_path):
    changes, X, y, message = BAD[case]
    ledger = Ledger(tmp_path / "budget.db", epsilon=1.0, delta=1e-3)
    model = kind(**({"classes": [0, 1], "ledger": ledger, "delta": 1e-6} | changes))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y)
    assert ledger.history() == []
    assert not hasattr(model, "coef_")


def test_more_columns_than_at_fit(kind):
    model = kind(classes=[0, 1]).fit(X_GOOD, Y_GOOD)
    with pytest.raises(ValueError, match="features"):
        model.predict(np.hstack([X_GOOD, X_GOOD]))


# -- null records: no error and no control flow depends on a private value --------------------------------------


def test_bad_rows_become_null_records(kind):
    X, y = with_value(X_GOOD, np.nan), Y_GOOD.astype(object)
    y[7] = "strange"
    y[8] = None
    keep = np.ones(200, dtype=bool)
    keep[[3, 7, 8]] = False
    with insecure_noise(5):
        nulled = kind(1.0, 1e-5, classes=[0, 1], bad_rows="null", neighboring="zero-out").fit(X, y)
    zeroed = np.where(keep[:, None], X_GOOD, 0.0)
    with insecure_noise(5):  # a zero row without intercept contributes nothing either
        reference = kind(1.0, 1e-5, classes=[0, 1], bad_rows="null", neighboring="zero-out").fit(
            np.where(keep[:, None], zeroed, np.inf), Y_GOOD
        )
    assert np.array_equal(nulled.coef_, reference.coef_)


@pytest.mark.parametrize(
    "X", [np.full_like(X_GOOD, np.nan), np.sign(X_GOOD) * 1.7e308], ids=["nan", "overflow"]
)
def test_nothing_but_null_rows_still_releases_a_model(kind, X):
    model = kind(1.0, 1e-5, classes=[0, 1], bad_rows="null").fit(X, Y_GOOD)
    assert np.isfinite(model.coef_).all()


def test_all_labels_unknown_still_releases_a_model(kind):
    model = kind(1.0, 1e-5, classes=["a", "b"], bad_rows="null").fit(X_GOOD, np.full(200, "z"))
    assert np.isfinite(model.coef_).all()


def test_sparse_null_rows(kind):
    X = sp.csr_matrix(with_value(X_GOOD, np.nan))
    model = kind(1.0, 1e-5, classes=[0, 1], bad_rows="null").fit(X, Y_GOOD)
    assert np.isfinite(model.coef_).all()


# -- scikit-learn's habits -----------------------------------------------------------------------------------


def test_a_ledger_remembers_which_noise_was_not_secret(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=1e-3)
    model = PrivateLogisticRegression(0.5, 1e-6, classes=[0, 1], ledger=ledger)
    with insecure_noise(1):
        model.fit(X_GOOD, Y_GOOD)
    model.fit(X_GOOD, Y_GOOD)
    assert [charge.label for charge in ledger.history()] == [
        "PrivateLogisticRegression, insecure noise",
        "PrivateLogisticRegression",
    ]


def test_clones_and_cross_validation_share_one_ledger(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=1e-3)
    model = PrivateLogisticRegression(0.5, 1e-6, classes=[0, 1], ledger=ledger)
    assert clone(model).ledger is ledger
    cross_val_score(model, X_GOOD, Y_GOOD, cv=3, n_jobs=2)
    assert len(ledger.history()) == 3


def test_ledger_may_be_given_as_a_path(tmp_path):
    path = tmp_path / "budget.db"
    Ledger(path, epsilon=1.0, delta=1e-3)
    PrivateLogisticRegression(0.1, 1e-6, classes=[0, 1], ledger=str(path)).fit(X_GOOD, Y_GOOD)
    assert len(Ledger(path).history()) == 1


def test_fit_never_writes_a_parameter(kind):
    model = kind(classes=[0, 1])
    before = dict(model.get_params())
    assert model.fit(X_GOOD, Y_GOOD) is model
    assert model.get_params() == before


def test_probabilities_are_probabilities():
    for n_classes, multi_class in [(2, "auto"), (3, "softmax"), (3, "ovr")]:
        X, y = blobs(400, n_classes=n_classes)
        model = PrivateLogisticRegression(classes=range(n_classes), multi_class=multi_class).fit(X, y)
        chances = model.predict_proba(X)
        assert chances.shape == (400, n_classes)
        assert np.allclose(chances.sum(axis=1), 1)
        assert np.array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))
        assert np.allclose(np.log(chances), model.predict_log_proba(X))


def test_huge_rows_predict_like_their_direction():
    X, y = blobs(400)
    model = PrivateLogisticRegression(classes=[0, 1], fit_intercept=False).fit(X, y)
    assert np.array_equal(model.predict(X), model.predict(1e6 * X))
    assert np.allclose(model.decision_function(1e6 * X), model.decision_function(1e9 * X))


def test_weights_are_refused_with_the_reason(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-3)
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], ledger=ledger)
    with pytest.raises(
        TypeError, match=r"sample_weight is not a parameter of fit\(\): a record with weight w"
    ):
        model.fit(X_GOOD, Y_GOOD, sample_weight=np.ones(len(Y_GOOD)))
    with pytest.raises(TypeError, match=r"weights is not a parameter of fit\(\)$"):
        model.fit(X_GOOD, Y_GOOD, weights=None)
    assert not has_fit_parameter(model, "sample_weight")
    assert len(ledger.history()) == 0


def test_several_classes_of_a_support_vector_machine_share_one_release():
    """Ordered classes: no line separates the middle one from the others, so that one-vs-rest cannot see it."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6000, 4)) / 2
    y = np.digitize(X @ [1.0, -1.0, 0.5, 0.0], [-0.3, 0.3])
    scores = {}
    for choice in ("auto", "ovr"):
        model = PrivateLinearSVC(3.0, 1e-6, classes=[0, 1, 2], multi_class=choice).fit(X[:5000], y[:5000])
        scores[choice] = model.score(X[5000:], y[5000:])
        assert model.coef_.shape == (3, 4)
        assert model.multi_class_ == ("softmax" if choice == "auto" else "ovr")
    assert scores["auto"] > 0.95
    assert scores["auto"] > scores["ovr"] + 0.05
    with pytest.raises(ValueError, match="huber_width must be greater than 0"):
        PrivateLinearSVC(classes=[0, 1, 2], multi_class="joint", huber_width=0.0).plan(100, 4, 3)
    widths = None, 2.0, 0.5
    margins = [PrivateLinearSVC(huber_width=width).plan(5000, 4, 3).problem.loss.margin for width in widths]
    assert margins == [0.25, 0.25, 1.0]
    assert PrivateLinearSVC().plan(5000, 4, 2).problem.loss == HuberHinge(0.5)
