"""The classifier: what it learns, what it charges, and that nothing after the charge can raise."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from discreet import (
    Ledger,
    PrivacyWarning,
    PrivateLabeler,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    insecure_noise,
)
from discreet.privacy.ledger.ledger import BudgetExceeded

TREE = DecisionTreeClassifier(max_depth=2)


def blobs(n, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, 2)) + 6 * np.stack([np.cos(2.1 * y), np.sin(2.1 * y)], axis=1)
    return X, y


PUBLIC, TRUTH = blobs(150, seed=1)


def model(estimator=TREE, student=None, **parameters):
    defaults = {"classes": [0, 1], "delta": 1e-6, "n_teachers": 200}
    return PrivateTransferClassifier(estimator, student, **{**defaults, **parameters})


@pytest.mark.parametrize("aggregator", ["auto", "shares", "sparse-vector", "plurality", "confident"])
def test_the_student_learns_and_the_statement_says_so(aggregator):
    X, y = blobs(6000)
    fitted = model(aggregator=aggregator, epsilon=2.0).fit(X, y, PUBLIC)
    assert fitted.score(*blobs(500, seed=2)) > 0.95
    assert fitted.n_answered_ > 100
    assert (fitted.privacy_.epsilon, fitted.privacy_.delta) == (2.0, 1e-6)
    assert fitted.privacy_.delta_at(2.0) <= 1e-6
    known = np.array([label is not None for label in fitted.labels_])
    assert known.sum() == fitted.n_answered_
    assert (fitted.labels_[known] == TRUTH[known]).mean() > 0.9


def test_several_classes_and_string_labels():
    X, y = blobs(9000, n_classes=3)
    names = np.array(["ash", "birch", "cedar"])
    public, truth = blobs(120, seed=1, n_classes=3)
    fitted = model(classes=names, n_teachers=300, epsilon=2.0).fit(X, names[y], public)
    assert fitted.score(public, names[truth]) > 0.95
    assert fitted.predict_proba(public).shape == (120, 3)
    assert list(fitted.classes_) == list(names)


def test_without_noise_worth_mentioning_it_is_distillation():
    """At a huge epsilon every question of distance 1 or more gets the majority of the teachers, and no other."""
    from discreet.mechanisms.samplers.entropy import fresh_entropy
    from discreet.mechanisms.voting import stability
    from discreet.transfer import teachers
    from discreet.transfer.teachers import assign_rows

    X, y = blobs(2000)
    public = np.random.default_rng(0).normal(size=(300, 2)) * 3
    settings = {"n_teachers": 25, "aggregator": "sparse-vector", "max_unstable": 300, "random_state": 0}
    with insecure_noise(1):
        fitted = model(epsilon=100_000.0, **settings).fit(X, y, public)
    with insecure_noise(1):
        chunks = assign_rows(2000, 25, fresh_entropy())
    poll = teachers.Poll(TREE, public, np.array([0, 1]), 25, np.random.SeedSequence(0))
    votes = teachers.collect_votes(poll, X, y, chunks)
    winners, distances = stability(votes)
    known = np.array([label is not None for label in fitted.labels_])
    assert fitted.plan_.aggregator.vector.margin <= 2
    assert np.all(known[distances >= 4])
    assert not np.any(known[distances == 0])  # ties stay unanswered at every epsilon
    assert np.array_equal(fitted.labels_[known].astype(int), winners[known])
    assert fitted.privacy_.epsilon == math.inf  # the noise was seeded


def test_any_model_works_with_its_own_preprocessing():
    X, y = blobs(6000)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 0] > 0, "left", "right")})
    public = pd.DataFrame({"a": PUBLIC[:, 0], "b": PUBLIC[:, 1], "c": "left"})
    columns = make_column_transformer(
        (StandardScaler(), ["a", "b"]), (OneHotEncoder(handle_unknown="ignore"), ["c"])
    )
    fitted = model(
        make_pipeline(columns, LogisticRegression()),
        student=make_pipeline(columns, GaussianNB()),
        n_teachers=60,
        epsilon=4.0,
    )
    fitted.fit(frame, y, public)
    assert fitted.score(public, TRUTH) > 0.95
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]


def test_sparse_rows_and_parallel_teachers_give_the_same_votes():
    X, y = blobs(2000)
    results = []
    for n_jobs in (1, 2):
        with insecure_noise(4):
            fitted = model(n_teachers=50, n_jobs=n_jobs, random_state=0, epsilon=5.0)
            fitted.fit(sp.csr_matrix(X), y, sp.csr_matrix(PUBLIC))
        results.append(fitted.labels_)
    assert np.array_equal(results[0], results[1])


def test_users_are_protected_as_a_whole():
    X, y = blobs(6000)
    ids = np.arange(6000) // 3
    fitted = model(aggregator="sparse-vector", epsilon=3.0).fit(X, y, PUBLIC, groups=ids)
    assert fitted.privacy_.guarantee.unit == "user"
    assert fitted.plan_.changed == 2
    assert "2000, 2, 150" in str(fitted.plan_)
    assert "users each" in str(fitted.plan_)
    removable = model(neighboring="add-remove-one", n_samples=6000).fit(X, y, PUBLIC, groups=ids)
    assert removable.plan_.changed == 1


def by_classifier(X, y, ids):
    fitted = model(delta=None, n_teachers="auto", aggregator="plurality").fit(X, y, PUBLIC, groups=ids)
    return fitted.plan_, fitted.privacy_


def by_regressor(X, y, ids):
    fitted = PrivateTransferRegressor(Ridge(), (0.0, 1.0)).fit(X, y, PUBLIC, groups=ids)
    return fitted.plan_, fitted.privacy_


def by_labeler(X, y, ids):
    stream = PrivateLabeler(TREE, 50, classes=[0, 1], aggregator="plurality").fit(X, y, groups=ids)
    return stream.plan_, stream.privacy_


@pytest.mark.parametrize("fit", [by_classifier, by_regressor, by_labeler])
def test_how_many_rows_a_user_has_is_not_published(fit):
    """The neighbor has one row in place of another user's 2000: plan, delta, noise and statement stay the same."""
    seen = []
    for extra in (1, 2000):
        X, y = blobs(1000 + extra)
        ids = np.concatenate([np.arange(1000), np.full(extra, -1)])
        plan, statement = fit(X, y, ids)
        seen.append((plan, str(plan), statement.to_dict()))
        assert plan.n_samples == 1001
        assert any(
            "number of users, 1001, is public; that of records is not" in a for a in statement.assumptions
        )
    assert seen[0] == seen[1]


def test_under_add_remove_a_bound_counts_users():
    X, y = blobs(3000)
    ids = np.arange(3000) // 10
    declared = {"neighboring": "add-remove-one", "n_teachers": 20, "aggregator": "plurality", "epsilon": 50.0}
    fitted = model(**declared, n_samples=300).fit(X, y, PUBLIC, groups=ids)
    assert any("300 is a public upper bound on the number of users" in a for a in fitted.privacy_.assumptions)
    with pytest.raises(ValueError, match=r"at least the number of users, got 299.*Nothing was charged"):
        model(**declared, n_samples=299).fit(X, y, PUBLIC, groups=ids)
    with pytest.raises(ValueError, match="n_teachers=301 is more than the 300 users"):
        model(n_teachers=301).fit(X, y, PUBLIC, groups=ids)


def test_label_privacy_labels_its_own_rows():
    X, y = blobs(3000)
    fitted = model(label_private=True, n_teachers=60, epsilon=3.0, aggregator="plurality").fit(X, y)
    assert len(fitted.labels_) == 3000
    assert fitted.privacy_.guarantee.unit == "label of one record"
    text = " ".join(str(fitted.privacy_).split())
    assert (
        "replace-one: the label of one record is exchanged for any other; all columns and the number" in text
    )
    assert "person's record" not in text
    assert any("ALL COLUMNS ARE PUBLIC" in text for text in fitted.privacy_.assumptions)
    with pytest.raises(ValueError, match="replace-one"):
        model(label_private=True, neighboring="add-remove-one", n_samples=3000).fit(X, y)


def test_label_privacy_uses_shares_by_default():
    X, y = blobs(3000)
    fitted = model(label_private=True, n_teachers="auto", epsilon=3.0).fit(X, y)
    assert fitted.plan_.aggregator.name == "shares"
    assert fitted.score(*blobs(500, seed=1)) > 0.9


def test_under_add_remove_the_number_of_rows_is_not_used():
    plans = []
    for n in (5000, 5500):
        X, y = blobs(n)
        fitted = model(neighboring="add-remove-one", n_samples=6000, delta=None, n_teachers="auto")
        plans.append(fitted.fit(X, y, PUBLIC).plan_)
    assert plans[0] == plans[1]
    with pytest.raises(ValueError, match="n_samples"):
        model(neighboring="add-remove-one").fit(X, y, PUBLIC)


def test_the_ledger_is_charged_once_and_before_anything_private(tmp_path):
    X, y = blobs(3000)
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    fitted = model(ledger=ledger, n_teachers=100).fit(X, y, PUBLIC)
    assert len(ledger.history()) == 1
    fitted.fit_student(PUBLIC, GaussianNB())
    fitted.fit_student(PUBLIC, RandomForestClassifier(5))  # unfitted ensembles have no truth value
    fitted.predict(PUBLIC)
    assert len(ledger.history()) == 1
    with pytest.raises(BudgetExceeded):
        model(Recorder(), ledger=ledger, n_teachers=100).fit(X, y, PUBLIC)
    assert max(Recorder.sizes) <= len(PUBLIC)  # only the rehearsal on public rows ran


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers what it was trained on."""

    sizes: list = []  # noqa: RUF012

    def fit(self, X, y):
        Recorder.sizes.append(len(X))
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


class Capricious(ClassifierMixin, BaseEstimator):
    """Fails in every way a model can, depending on what its chunk holds."""

    def __init__(self, mode="fit"):
        self.mode = mode

    def fit(self, X, y):
        self.bad_ = float(np.max(X)) > 1e6
        if self.bad_ and self.mode == "fit":
            raise RuntimeError("I have seen something")
        self.threshold_ = float(np.median(X[:, 0]))
        return self

    def predict(self, X):
        if self.bad_ and self.mode == "predict":
            raise RuntimeError("I have seen something")
        if self.bad_ and self.mode == "shape":
            return np.zeros(3)
        if self.bad_ and self.mode == "label":
            return np.full(len(X), 17)
        if self.bad_ and self.mode == "nan":
            return np.full(len(X), np.nan)
        return (X[:, 0] < self.threshold_).astype(int)


@pytest.mark.parametrize("mode", ["fit", "predict", "shape", "label", "nan"])
def test_a_teacher_that_fails_on_its_chunk_votes_for_the_first_class(mode):
    X, y = blobs(4000)
    X[7] = 1e9
    fitted = model(Capricious(mode), student=TREE, epsilon=3.0).fit(X, y, PUBLIC)
    assert fitted.score(PUBLIC, TRUTH) > 0.9


def test_an_estimator_that_fails_everywhere_is_noticed_before_the_charge(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    X, y = blobs(3000)
    with pytest.raises(ValueError, match="Nothing was charged"):
        model(LogisticRegression(C=-1.0), ledger=ledger).fit(X, y, PUBLIC)
    assert len(ledger.history()) == 0


def test_chunks_with_one_class_vote_for_it():
    X, y = blobs(1200)
    many = 600  # chunks of two rows, often of one class
    fitted = model(LogisticRegression(), n_teachers=many, epsilon=2.0).fit(X, y, PUBLIC)
    assert fitted.n_answered_ > 0
    rare = np.zeros(1200, dtype=int)
    rare[0] = 1
    with pytest.warns(PrivacyWarning, match="all answers were"):
        constant = model(LogisticRegression(), max_unstable=1).fit(X, rare, PUBLIC)
    assert set(constant.predict(PUBLIC)) == {0}


def test_when_all_public_points_are_unstable_there_is_a_clear_outcome(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 2)), rng.integers(2, size=3000)
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    with pytest.warns(PrivacyWarning, match="no public row got a label"):
        fitted = model(aggregator="sparse-vector", max_unstable=3, ledger=ledger).fit(X, y, PUBLIC)
    assert fitted.n_answered_ == 0
    assert len(ledger.history()) == 1
    assert fitted.predict(PUBLIC).shape == (150,)
    assert fitted.predict_proba(PUBLIC).shape == (150, 2)
    assert "(1, 1e-06)" in str(fitted.privacy_)


def test_public_rows_with_other_columns_are_refused_free_of_charge(tmp_path):
    X, y = blobs(3000)
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    frame = pd.DataFrame(X, columns=["a", "b"])
    wrong = [
        (X, PUBLIC[:, :1], "1 columns and the private data 2"),
        (frame, pd.DataFrame(PUBLIC, columns=["b", "a"]), "another order"),
        (frame, pd.DataFrame(PUBLIC, columns=["a", "z"]), "differ in"),
        (frame, PUBLIC, "both be data frames"),
        (X, PUBLIC[:0], "no rows"),
        (X, PUBLIC[0], "two dimensions"),
        (X, None, "needs public rows"),
    ]
    for private, public, message in wrong:
        with pytest.raises(ValueError, match=message):
            model(ledger=ledger).fit(private, y, public)
    assert len(ledger.history()) == 0


def test_other_bad_input_is_refused_free_of_charge(tmp_path):
    X, y = blobs(300)
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    for parameters, message in [
        ({"n_teachers": 301}, "more than the 300 records"),
        ({"max_unstable": 0}, "at least 1"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta > 0"),
        ({"classes": [0]}, "at least two"),
        ({"classes": [5, 6]}, "outside classes.*Nothing was charged"),
    ]:
        with pytest.raises(ValueError, match=message):
            model(**{"n_teachers": 10, **parameters}, ledger=ledger).fit(X, y, PUBLIC)
    with pytest.raises(ValueError, match="one label per row"):
        model(ledger=ledger).fit(X, y[:-1], PUBLIC)
    with pytest.raises(TypeError, match="random_state"):
        model(random_state=np.random.default_rng(0)).fit(X, y, PUBLIC)
    assert len(ledger.history()) == 0


def test_it_is_an_ordinary_scikit_learn_model():
    X, y = blobs(3000)
    estimator = model(
        RandomForestClassifier(3), RandomForestClassifier(5), X_public=PUBLIC, n_teachers=100, epsilon=3.0
    )
    copy = clone(estimator).set_params(estimator__n_estimators=4)
    assert copy.get_params()["estimator__n_estimators"] == 4
    assert cross_val_score(make_pipeline(StandardScaler(with_mean=False), copy), X, y, cv=2).shape == (2,)
    assert hasattr(copy, "predict_proba")
    assert not hasattr(copy, "decision_function")


def test_one_record_moves_at_most_one_vote_of_every_question():
    """Replay: the same chunks and seeds on neighbors; the votes differ by one teacher at most."""
    from discreet.transfer import teachers
    from discreet.transfer.teachers import assign_rows

    X, y = blobs(1500)
    other, label = X.copy(), y.copy()
    other[3], label[3] = [1e6, -1e6], 1 - y[3]

    def votes(rows, labels):
        with insecure_noise(8):
            from discreet.mechanisms.samplers.entropy import fresh_entropy

            chunks = assign_rows(1500, 30, fresh_entropy())
        seed = np.random.SeedSequence(1)
        poll = teachers.Poll(RandomForestClassifier(3), PUBLIC, np.array([0, 1]), 30, seed)
        return teachers.collect_votes(poll, rows, labels, chunks).astype(int)

    moved = np.abs(votes(X, y) - votes(other, label)).sum(axis=1)
    assert moved.max() <= 2
    assert votes(X, y).dtype == int
    assert np.all(votes(X, y).sum(axis=1) == 30)


def test_a_student_that_fails_loses_nothing(tmp_path):
    X, y = blobs(3000)
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-6)
    estimator = model(student=LogisticRegression(C=-1.0), epsilon=3.0, ledger=ledger)
    with pytest.raises(ValueError, match="'C' parameter") as raised:
        estimator.fit(X, y, PUBLIC)
    assert "call fit_student" in raised.value.__notes__[0]
    assert estimator.fit_student(PUBLIC, TREE).score(PUBLIC, TRUTH) > 0.9
    assert len(ledger.history()) == 1


def test_probabilities_that_always_fail_are_noticed_before_the_charge(tmp_path):
    class Silent(Recorder):
        def predict_proba(self, X):
            raise RuntimeError("never")

    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="Nothing was charged"):
        model(Silent(), aggregator="shares", ledger=ledger).fit(*blobs(3000), PUBLIC)
    assert len(ledger.history()) == 0


def test_teachers_are_not_kept():
    X, y = blobs(3000)
    fitted = model(epsilon=3.0).fit(X, y, PUBLIC)
    kept = {name for name in vars(fitted) if name.endswith("_")}
    assert kept == {
        "student_",
        "labels_",
        "votes_",
        "n_answered_",
        "classes_",
        "privacy_",
        "plan_",
        "n_features_in_",
        "released_",
    }
    assert set(fitted.released_) == {"labels_", "votes_"}
