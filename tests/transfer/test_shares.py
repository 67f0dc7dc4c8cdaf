"""Opinions and their noisy sum: lengths that hold for any teacher, and students that average the noise away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from discreet import PrivateTransferClassifier, insecure_noise
from discreet.audit.replay import replay
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.transfer import teachers
from discreet.transfer.classifier import RegressionStudent, best_student, fit_student, with_larger_leaves
from discreet.transfer.plan import plan_transfer
from discreet.transfer.teachers import STEPS, Teacher, assign_rows, stretched

CLASSES = np.array([0, 1])


def longest(n_rows, n_classes):
    return STEPS**2 * n_rows * (n_classes - 1) / n_classes


def noisy_task(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (rng.random(n) < np.where(X[:, 0] > 0, 0.8, 0.2)).astype(int)


PUBLIC = np.random.default_rng(9).normal(size=(400, 2))
SIDE = (PUBLIC[:, 0] > 0).astype(int)


def model(**parameters):
    defaults = {"classes": [0, 1], "delta": 1e-6, "n_teachers": 200, "aggregator": "shares"}
    return PrivateTransferClassifier(**{"estimator": GaussianNB(), **defaults, **parameters})


@given(
    st.integers(2, 5).flatmap(
        lambda k: arrays(
            np.float32, st.tuples(st.integers(1, 30), st.just(k)), elements=st.floats(-1, 1, width=32)
        )
    )
)
def test_no_opinion_is_longer_than_whole_votes(vector):
    steps = [int(entry) for entry in stretched(vector).ravel()]
    assert sum(entry * entry for entry in steps) <= longest(*vector.shape)
    if np.abs(vector).max() > 1e-3:
        assert sum(entry * entry for entry in steps) > 0.9 * longest(*vector.shape)


class Strange(ClassifierMixin, BaseEstimator):
    """Its probabilities are anything but probabilities."""

    def __init__(self, answer):
        self.answer = answer
        self.classes_ = CLASSES

    def predict_proba(self, X):
        return self.answer(len(X))

    def predict(self, X):
        raise RuntimeError("I have seen something")


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: np.full((n, 2), np.nan),
        lambda n: np.full((n, 2), np.inf),
        lambda n: np.full((n, 2), -1e300),
        lambda n: np.eye(2)[np.zeros(n, dtype=int)],
        lambda n: np.zeros((3, 7)),
        lambda n: "no numbers",
    ],
)
def test_strange_teachers_have_opinions_of_bounded_length(answer):
    found = Teacher(Strange(answer), 0).opinion(PUBLIC, CLASSES)
    assert found.shape == (400, 2)
    assert int((found * found).sum()) <= longest(400, 2)


def test_constants_and_models_without_probabilities_give_whole_votes():
    X, y = noisy_task(200)
    for teacher in (Teacher(None, 1), Teacher(LinearSVC().fit(X, y), 0)):
        found = teacher.opinion(PUBLIC, CLASSES)
        codes = teacher.vote(PUBLIC, CLASSES)
        assert np.array_equal(found.argmax(axis=1), codes)
        assert np.abs(np.abs(found) - STEPS / 2).max() <= 1


def test_one_record_moves_the_sum_by_no_more_than_two_opinions():
    """Replay: the same chunks and seeds on neighbors."""
    X, y = noisy_task(1500)
    other, label = X.copy(), y.copy()
    other[3], label[3] = [1e6, -1e6], 1 - y[3]

    def opinions(rows, labels):
        with insecure_noise(8):
            chunks = assign_rows(1500, 30, fresh_entropy())
        seed = np.random.SeedSequence(1)
        poll = teachers.Poll(DecisionTreeClassifier(), PUBLIC, CLASSES, 30, seed, opinions=True)
        return teachers.collect_votes(poll, rows, labels, chunks)

    moved = opinions(X, y) - opinions(other, label)
    assert 0 < int((moved * moved).sum()) <= 4 * longest(400, 2)


@pytest.mark.lemma("vote-shares.md#theorem-1")
def test_the_declared_distance_is_reached_and_not_exceeded():
    plan = plan_transfer(Guarantee(1.0, 1e-2), 90, 2, 4, n_teachers=9, aggregator="shares")
    opinion = stretched(np.tile(np.float32([0.5, -0.5]), (4, 1)))
    rest = np.zeros((4, 2), dtype=np.int64)

    def program(sums):
        return plan.run(sums, fresh_entropy()).shares

    found = replay(program, rest + opinion, rest - opinion)
    assert found.passed, str(found)
    assert 0.99 < found.worst_ratio <= 1.0
    assert not replay(program, rest + opinion, rest - 2 * opinion).passed


def test_without_noise_worth_mentioning_the_mean_opinion_is_released():
    X, y = noisy_task(2000)
    with insecure_noise(1):
        fitted = model(n_teachers=20, epsilon=1e7, random_state=0).fit(X, y, PUBLIC)
    with insecure_noise(1):
        chunks = assign_rows(2000, 20, fresh_entropy())
    poll = teachers.Poll(GaussianNB(), PUBLIC, CLASSES, 20, np.random.SeedSequence(0), opinions=True)
    exact = teachers.collect_votes(poll, X, y, chunks)
    assert np.allclose(fitted.votes_, exact / STEPS / 20, atol=0.05)
    assert np.array_equal(fitted.labels_, exact.argmax(axis=1))


def test_the_student_averages_noise_that_drowns_single_votes():
    """Noise of 1.2 on leads below 1 makes many winners wrong. The slope of Ridge is their mean over 400 rows."""
    X, y = noisy_task(12_000)
    fitted = model(student=Ridge(1.0), n_teachers=140).fit(X, y, PUBLIC)
    assert fitted.plan_.share_noise > 1.0
    assert np.mean(fitted.labels_.astype(int) == SIDE) < 0.9
    assert fitted.score(PUBLIC, SIDE) > 0.85
    statement = str(fitted.privacy_)
    assert "vote-shares.md theorem 1" in statement
    assert "replace-one" in statement
    assert fitted.privacy_.delta_at(1.0) <= 1e-6


def test_regressors_and_classifiers_learn_several_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    codes = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    names = np.array(["ash", "birch", "cedar"])
    votes = np.eye(3)[codes] - 1 / 3 + rng.normal(size=(300, 3)) * 0.2
    for student in (RandomForestRegressor(30, random_state=0), RandomForestClassifier(30, random_state=0)):
        fitted = fit_student(student, X, votes, names)
        assert np.mean(fitted.predict(X) == names[codes]) > 0.95
        assert np.allclose(fitted.predict_proba(X).sum(axis=1), 1)
    assert isinstance(fit_student(Ridge(), X, votes, names), RegressionStudent)


def test_leads_become_weights_where_a_model_takes_them():
    X = np.array([[-1.0], [-1.0], [1.0], [1.0], [1.0]])
    votes = np.array([[0.5, -0.5], [0.5, -0.5], [0.3, -0.3], [-0.05, 0.05], [-0.05, 0.05]])
    weighted = make_pipeline(StandardScaler(), DecisionTreeClassifier())
    assert fit_student(weighted, X, votes, CLASSES).predict([[1.0]]) == 0
    assert fit_student(KNeighborsClassifier(3), X, votes, CLASSES).predict([[1.0]]) == 1


def test_without_a_student_larger_leaves_compete_with_those_of_the_estimator():
    sizes = [copy.get_params()["min_samples_leaf"] for copy in with_larger_leaves(DecisionTreeClassifier())]
    assert sizes == [3, 5, 10, 20]
    inside = with_larger_leaves(make_pipeline(StandardScaler(), DecisionTreeClassifier(min_samples_leaf=5)))
    assert [copy[-1].min_samples_leaf for copy in inside] == [10, 20]
    assert with_larger_leaves(LogisticRegression()) == []
    public = np.random.default_rng(5).normal(size=(2000, 2))
    fitted = model(estimator=DecisionTreeClassifier(random_state=0), n_teachers=150).fit(
        *noisy_task(9000), public
    )
    assert fitted.student_.min_samples_leaf > 1
    alone = fitted.fit_student(public, DecisionTreeClassifier(random_state=0)).student_
    assert alone.min_samples_leaf == 1


def test_of_several_students_the_one_is_taken_that_agrees_with_held_out_votes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    votes = np.where(X[:, :1] > 0, 0.3, -0.3) * np.array([-1, 1]) + rng.normal(size=(600, 2)) * 0.5
    overfit, smooth = DecisionTreeClassifier(), LogisticRegression()
    assert best_student([overfit, smooth], X, votes, CLASSES) is smooth
    # In simulations the scores differ by 12 standard deviations at this noise.
    public = rng.normal(size=(2000, 2))
    fitted = model(student=[overfit, smooth], n_teachers=300).fit(*noisy_task(9000), public)
    assert fitted.plan_.share_noise > 1.2
    assert isinstance(fitted.student_, LogisticRegression)
    assert hasattr(fitted, "predict_proba")
    assert isinstance(fitted.fit_student(public, Ridge()).student_, RegressionStudent)
