"""Teachers asked about private rows: a row on which a model fails keeps that to itself. And tables made of lists."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from discreet import PrivateTransferClassifier
from discreet.transfer import teachers
from discreet.transfer.base import as_table
from discreet.transfer.teachers import FALLBACK, Teacher

CLASSES = np.array([0, 1])


def rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame, sp.csr_matrix])
@pytest.mark.parametrize("bad", [[0], [36], [4, 5, 20], list(range(37))])
def test_rows_on_which_a_model_fails_fall_back_alone(container, bad, monkeypatch):
    monkeypatch.setattr(teachers, "_QUERY_BLOCK", 10)  # several blocks
    teacher = Teacher(LogisticRegression().fit(container(rows(100)[0]), rows(100)[1]), FALLBACK)
    X = rows(37, seed=1)[0]
    expected = teacher.vote(container(X), CLASSES, apart=True)
    assert set(expected) == {0, 1}
    broken = X.copy()
    broken[bad] = np.nan
    expected[bad] = FALLBACK
    assert np.array_equal(teacher.vote(container(broken), CLASSES, apart=True), expected)


class Named(ClassifierMixin, BaseEstimator):
    """Says in words what is wrong with a row, in a list; remembers how many rows it was asked about."""

    def fit(self, X, y):
        self.sizes_ = []
        return self

    def predict(self, X):
        self.sizes_.append(len(X))
        return [int(row[0] > 0) if np.isfinite(row).all() else "not a row" for row in X]


def test_a_word_among_the_labels_makes_no_words_of_the_others():
    X = rows(20)[0]
    teacher = Teacher(Named().fit(X, None), FALLBACK)
    expected = (X[:, 0] > 0).astype(int)
    X[7] = np.inf
    expected[7] = FALLBACK
    assert np.array_equal(teacher.vote(X, CLASSES, apart=True), expected)


def test_good_rows_are_asked_in_a_block_of_the_same_shape():
    """What rounding makes of a row may depend on how many rows are asked at once."""
    X = rows(20)[0]
    X[7] = np.inf
    teacher = Teacher(Named().fit(X, None), FALLBACK)
    teacher.vote(X, CLASSES, apart=True)
    assert teacher.model.sizes_[0] == teacher.model.sizes_[-1] == 20


def test_a_model_that_always_fails_and_one_of_another_shape_never_raise():
    class Failing(Named):
        def predict(self, X):
            raise RuntimeError("no")

    class Short(Named):
        def predict(self, X):
            return np.ones(1, dtype=int)

    X = rows(9)[0]
    assert not Teacher(Failing(), FALLBACK).vote(X, CLASSES, apart=True).any()
    for apart in (False, True):  # one label is not spread over all rows
        assert not Teacher(Short(), FALLBACK).vote(X, CLASSES, apart).any()


def test_lists_hold_numbers_so_that_one_cell_cannot_change_the_type_of_all():
    X, y = rows(200)
    assert as_table("X", [[1, 2], [3, None]]).dtype == np.float64
    for cell in ("word", [1.0]):
        listed = X.tolist()
        listed[0][0] = cell
        with pytest.raises(ValueError, match=r"read as rows of numbers.*Nothing was charged"):
            PrivateTransferClassifier(KNeighborsClassifier(1), n_teachers=5, classes=[0, 1]).fit(listed, y, X)
