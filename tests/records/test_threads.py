"""Threads are never more than processors: one team at a time, BLAS held to one thread meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from discreet import PrivateLabeler, PrivateLogisticRegression, PrivateSearchCV
from discreet.records import ArrayRecords, clipped_rows
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import one_blas_thread


@pytest.fixture
def teams(monkeypatch):
    """Every team of threads that a pass starts: its helpers, teams at work beside it, and BLAS's threads."""
    seen: list[tuple[int, int, int]] = []
    at_work, lock = [0], threading.Lock()

    class Counted(ThreadPoolExecutor):
        def __init__(self, helpers):
            with lock:
                at_work[0] += 1
                blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
                seen.append((helpers, at_work[0], max(blas, default=1)))
            super().__init__(helpers)

        def __exit__(self, *exception):
            with lock:
                at_work[0] -= 1
            return super().__exit__(*exception)

    monkeypatch.setattr(clipped_rows, "ThreadPoolExecutor", Counted)
    monkeypatch.setattr(clipped_rows, "_SMALL", 1)
    return seen


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    "model",
    [
        PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]),
        PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver="objective"),
        PrivateSearchCV(
            PrivateLogisticRegression(classes=[0, 1], solver="output"), {"l2": [1e-3, 1e-2]}, 1.0, 1e-6
        ),
    ],
    ids=["newton", "objective", "search"],
)
def test_fits_use_one_team_at_a_time(teams, model, monkeypatch):
    monkeypatch.setattr(clipped_rows.os, "sched_getaffinity", lambda process: range(3), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    model.fit(*rows())
    assert teams
    assert all(helpers <= 2 and beside == 1 and blas == 1 for helpers, beside, blas in teams)


def test_teachers_use_no_team_of_blas_threads():
    seen = []

    class Teacher(LogisticRegression):
        def fit(self, X, y):
            seen.append(max(pool["num_threads"] for pool in threadpool_info()))
            return super().fit(X, y)

    X, y = rows()
    model = PrivateLabeler(Teacher(), 5, 20, epsilon=5.0, delta=1e-6, classes=[0, 1], n_jobs=1)
    model.fit(X, y, pool=X[:5])
    assert len(seen) >= 20
    assert set(seen[-20:]) == {1}  # before them comes the rehearsal, which is one model alone


def test_the_environment_can_ask_for_fewer_threads(monkeypatch):
    monkeypatch.setattr(clipped_rows.os, "sched_getaffinity", lambda process: range(3), raising=False)
    for asked, expected in (("1", 1), ("2", 2), ("9", 3), ("", 3), ("2,1", 3)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert ArrayRecords(np.ones((1, 1)), [1.0], Bounds()).n_threads == expected


def test_the_first_error_of_any_thread_is_raised(monkeypatch):
    monkeypatch.setattr(clipped_rows, "_SMALL", 1)
    records = ArrayRecords(np.ones((64, 2)), np.ones(64), Bounds(), n_threads=3)

    def fails(part):
        raise IndexError(part)

    with pytest.raises(IndexError):
        records._run(fails, [1, 2, 3])
    assert records._run(lambda part: part * part, list(range(9))) == [k * k for k in range(9)]


def test_any_thread_may_be_the_first_to_enter_and_any_the_last_to_leave():
    """Threads of Dask live on after a fit. One that once set BLAS's limit must not keep others from setting it."""

    def blas():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with (
        threadpool_limits(limits=2, user_api="blas"),
        ThreadPoolExecutor(1) as one,
        ThreadPoolExecutor(1) as two,
    ):
        before = blas()
        one.submit(one_blas_thread.__enter__).result()
        two.submit(one_blas_thread.__enter__).result()
        one.submit(one_blas_thread.__exit__).result()
        assert set(blas()) == {1}
        two.submit(one_blas_thread.__exit__).result()
        assert blas() == before
        with one_blas_thread:
            assert set(blas()) == {1}
        assert blas() == before
