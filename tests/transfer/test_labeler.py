"""The labeler: a stream that abstains, knows what is left, halts exactly, and cannot be spent twice."""

import copy
import os
import pickle
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from discreet import BudgetSpent, Ledger, PrivateLabeler
from discreet.online import PrivateFTRL
from discreet.online.stream_file import StreamError


def data(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] > 0).astype(int)


CLEAR, UNCLEAR = [[4.0, 0.0]], [[0.0, 0.0]]


def labeler(**parameters):
    defaults = {"n_queries": 100, "n_teachers": 150, "classes": [0, 1], "delta": 1e-6, "max_unstable": 2}
    return PrivateLabeler(DecisionTreeClassifier(max_depth=3), **{**defaults, **parameters}).fit(*data())


def noisy_data(n=3000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, rng.integers(2, size=n)


def test_stable_questions_are_free_and_the_stream_halts_exactly():
    stream = labeler(max_unstable=1, epsilon=2.0)
    for _ in range(5):
        assert stream.label(CLEAR).tolist() == [1]
    assert stream.remaining == {"unstable answers": 1}
    unsure = PrivateLabeler(
        DecisionTreeClassifier(), 50, n_teachers=100, classes=[0, 1], delta=1e-6, max_unstable=3
    ).fit(*noisy_data())
    answers = unsure.label(np.random.default_rng(1).normal(size=(40, 2)))
    assert all(answer is None for answer in answers)
    assert unsure.halted
    assert unsure.remaining == {"unstable answers": 0}
    with pytest.raises(BudgetSpent, match="a new labeler is a new charge"):
        unsure.label(CLEAR)


def test_a_plurality_answers_as_many_as_were_paid_for():
    stream = labeler(aggregator="plurality", n_queries=3, max_unstable="auto", epsilon=2.0)
    assert stream.remaining == {"questions": 3, "answers": 3}
    answers = stream.label(CLEAR * 5)
    assert answers.tolist() == [1, 1, 1, None, None]
    assert stream.halted


def test_by_default_easy_questions_are_all_answered_and_nearly_all_right():
    stream = PrivateLabeler(LogisticRegression(), 100, classes=[0, 1], delta=1e-6).fit(*data(15_000))
    asked, truth = data(100, seed=1)
    answers = stream.label(asked)
    assert stream.plan_.aggregator.name == "plurality"
    assert np.mean(answers == truth) >= 0.9
    assert stream.halted


def test_one_charge_for_the_whole_stream(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    stream = labeler(ledger=ledger)
    stream.label(CLEAR * 10)
    assert len(ledger.history()) == 1
    assert stream.privacy_.delta_at(1.0) <= 1e-6
    with pytest.raises(RuntimeError, match="running stream"):
        stream.fit(*data())


@pytest.mark.parametrize("aggregator", ["sparse-vector", "plurality"])
def test_save_and_resume_in_mid_stream(tmp_path, aggregator):
    extra = {"max_unstable": "auto"} if aggregator == "plurality" else {}
    stream = labeler(aggregator=aggregator, n_queries=20, epsilon=2.0, **extra)
    stream.label(CLEAR * 3)
    path = tmp_path / "stream"
    stream.save(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    stream.label(CLEAR * 2)  # goes on, on disk
    left = stream.remaining
    again = PrivateLabeler.resume(path)
    assert again.remaining == left
    assert again.label(CLEAR).tolist() == [1]
    with pytest.raises(StreamError, match="resumed elsewhere"):
        stream.label(CLEAR)
    third = PrivateLabeler.resume(path)  # a crash of the second holder loses nothing and repeats nothing
    assert third.remaining == again.remaining


def test_what_was_spent_stays_spent_after_a_crash(tmp_path):
    stream = PrivateLabeler(
        DecisionTreeClassifier(), 50, n_teachers=100, classes=[0, 1], delta=1e-6, max_unstable=3
    ).fit(*noisy_data())
    path = tmp_path / "stream"
    stream.save(path)
    stream.label(UNCLEAR * 2)
    del stream
    again = PrivateLabeler.resume(path)
    assert again.remaining == {"unstable answers": 1}
    again.label(UNCLEAR * 5)
    assert PrivateLabeler.resume(path).halted


def in_a_fork(question):
    """What a forked process gets for an answer: the name of an error, or nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # never returns to the tests
        try:
            question()
        except Exception as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return answer.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("saved", [False, True])
def test_a_forked_process_cannot_spend_the_budget(tmp_path, saved):
    stream = labeler(aggregator="plurality", n_queries=20, max_unstable="auto", epsilon=2.0)
    if saved:
        stream.save(tmp_path / "stream")
    assert in_a_fork(lambda: stream.label(CLEAR)) == "StreamError"
    assert in_a_fork(lambda: stream.save(tmp_path / "second")) == "StreamError"
    assert stream.label(CLEAR).tolist() == [1]  # the holder goes on
    if saved:  # whoever resumes is the only holder
        assert in_a_fork(lambda: PrivateLabeler.resume(tmp_path / "stream").label(CLEAR)) == ""
        with pytest.raises(StreamError, match="resumed elsewhere"):
            stream.label(CLEAR)


def test_a_stream_has_one_file(tmp_path):
    stream = labeler()
    stream.save(tmp_path / "first")
    with pytest.raises(StreamError, match="would spend the same budget again"):
        stream.save(tmp_path / "second")
    assert not (tmp_path / "second").exists()
    with pytest.raises(StreamError, match="would spend the same budget again"):
        PrivateLabeler.resume(tmp_path / "first").save(tmp_path / "second")


def test_an_older_copy_in_place_of_the_file_is_noticed(tmp_path):
    stream = labeler(aggregator="plurality", n_queries=20, max_unstable="auto", epsilon=2.0)
    path, copied = tmp_path / "stream", tmp_path / "copy"
    stream.save(path)
    shutil.copy(path, copied)
    stream.label(CLEAR)
    shutil.copy(copied, path)
    with pytest.raises(StreamError, match="not in the state its holder left"):
        stream.label(CLEAR)


def test_a_pool_needs_no_teachers_after_the_fit(tmp_path):
    pool = np.array([*CLEAR, *UNCLEAR, [-4.0, 0.0]])
    budget = {"epsilon": 50.0, "delta": 1e-6, "max_unstable": 1}
    stream = PrivateLabeler(
        DecisionTreeClassifier(max_depth=3), 100, n_teachers=150, classes=[0, 1], **budget
    ).fit(*data(), pool=pool)
    assert not hasattr(stream, "_teachers")
    assert stream.label_rows([0, 2, 0]).tolist() == [1, 0, 1]
    stream.save(tmp_path / "stream")
    again = PrivateLabeler.resume(tmp_path / "stream")
    assert again.label_rows([2]).tolist() == [0]
    for wrong, error in (([3], ValueError), ([-1], ValueError), ([0.5], TypeError), (0, TypeError)):
        with pytest.raises(error, match="rows must"):
            again.label_rows(wrong)
    with pytest.raises(TypeError, match="label_rows"):
        again.label(CLEAR)
    with pytest.raises(TypeError, match="no pool"):
        labeler().label_rows([0])


@pytest.mark.parametrize("with_pool", [False, True])
def test_nothing_private_is_kept_once_the_stream_has_halted(tmp_path, with_pool):
    stream = PrivateLabeler(
        Telltale(), 2, n_teachers=20, classes=[0, 1], delta=1e-6, aggregator="plurality"
    ).fit(*data(), pool=CLEAR * 3 if with_pool else None)
    path = tmp_path / "stream"
    stream.save(path)
    secret = b"telltale" if not with_pool else b"_votes"
    assert secret in path.read_bytes()
    answers = stream.label_rows([0, 1, 2]) if with_pool else stream.label(CLEAR * 3)
    assert answers[2] is None
    assert stream.halted
    assert not {"_teachers", "_votes"} & set(vars(stream))
    assert secret not in path.read_bytes()  # overwritten, not only unlinked
    assert PrivateLabeler.resume(path).halted


def test_no_cell_of_the_table_is_kept(tmp_path):
    """Levels of a category are values that people have, even in a table without rows."""
    X, y = data()
    kinds = np.where(np.arange(len(X)) == 5, "rare diagnosis", "common")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": pd.Categorical(kinds)})
    numbers = make_column_transformer(("passthrough", ["a", "b"]))
    stream = PrivateLabeler(
        make_pipeline(numbers, DecisionTreeClassifier(max_depth=2)),
        2,
        n_teachers=20,
        classes=[0, 1],
        delta=1e-6,
        aggregator="plurality",
    ).fit(frame, y)
    stream.save(tmp_path / "stream")
    with pytest.raises(ValueError, match="another order"):
        stream.label(frame[["b", "a", "kind"]])
    stream.label(frame.iloc[:3])
    assert stream.halted
    assert b"rare diagnosis" not in (tmp_path / "stream").read_bytes()
    assert not any(hasattr(value, "iloc") for value in vars(stream).values())


@pytest.mark.parametrize("saved", [False, True])
def test_the_threshold_is_forgotten_when_the_stream_has_halted(tmp_path, saved):
    stream = PrivateLabeler(
        DecisionTreeClassifier(), 50, n_teachers=100, classes=[0, 1], delta=1e-6, max_unstable=1
    ).fit(*noisy_data())
    vector = stream.plan_.aggregator.vector
    stream._stream._run._threshold = secret = vector.margin + 10**6  # no question is stable
    if saved:
        stream.save(tmp_path / "stream")
        assert str(secret).encode() in (tmp_path / "stream").read_bytes()
    stream.label(UNCLEAR)
    assert stream.halted
    assert stream._stream.secret_state() == {"n_unstable": 1, "threshold": vector.margin}
    assert stream._stream._run._threshold == vector.margin
    if saved:
        assert str(secret).encode() not in (tmp_path / "stream").read_bytes()
        assert PrivateLabeler.resume(tmp_path / "stream").halted


class Telltale(DecisionTreeClassifier):
    """A teacher that can be recognized in a file."""

    def fit(self, X, y):
        self.mark_ = "telltale"
        return super().fit(X, y)


def test_a_labeler_is_neither_pickled_nor_copied():
    stream = labeler()
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="spend the same budget again"):
            duplicate(stream)


def test_files_that_are_no_streams_are_refused(tmp_path):
    with pytest.raises(StreamError, match="no saved stream"):
        PrivateLabeler.resume(tmp_path / "nothing")
    (tmp_path / "junk").write_text("junk" * 1000)
    with pytest.raises(StreamError):
        PrivateLabeler.resume(tmp_path / "junk")
    stream = labeler()
    with pytest.raises(StreamError, match="exists already"):
        stream.save(tmp_path / "junk")


def test_questions_must_have_the_columns_of_the_data():
    with pytest.raises(ValueError, match="3 columns and the private data 2"):
        labeler().label([[1.0, 2.0, 3.0]])
    with pytest.raises(RuntimeError, match="call fit"):
        PrivateLabeler(DecisionTreeClassifier()).label(CLEAR)
    with pytest.raises(ValueError, match="Nothing was charged"):
        PrivateLabeler(LogisticRegression(C=-1.0), classes=[0, 1]).fit(*data())


def test_a_file_of_another_kind_is_taken_from_nobody(tmp_path):
    learner = PrivateFTRL(3, 50, 1.0, 1e-3, method="tree").learn_one([0.0, 0.0, 0.0])
    learner.save(tmp_path / "stream")
    with pytest.raises(StreamError, match="does not hold a PrivateLabeler"):
        PrivateLabeler.resume(tmp_path / "stream")
    learner.learn_one([0.0, 0.0, 0.0])  # its holder goes on
