"""The benchmark at a tiny size: it runs, and completion beats predicting nothing."""

import numpy as np
from benchmarks.recommenders import measure, most_rated, rank_one, score, without_privacy

from discreet import PrivateMatrixCompletion


def test_tiny_run():
    task = rank_one(4000, 40, 12)
    rows = {row["method"]: row for row in measure(task, ("subspace", "bias"), (5.0,))}
    assert set(rows) == {"subspace", "bias"}
    assert rows["subspace"]["rmse"] < 0.5 * task.ratings.std()
    assert rows["bias"]["rmse"] < 1.1 * task.ratings.std()


def test_held_out_ratings_are_not_trained_on():
    task = rank_one(500, 30, 8)
    assert np.all(np.asarray(task.train[task.users, task.items]).ravel() == 0)
    assert task.train.nnz == 500 * 8


def test_restriction_and_reference():
    task = most_rated(rank_one(2000, 40, 12), 20)
    assert task.train.shape == (2000, 20)
    model = PrivateMatrixCompletion("profile", 1.0, 1e-6, rating_bounds=(-1, 1)).fit(task.train)
    assert np.isfinite(score(task, model))
    assert without_privacy(task, rank=2, sweeps=2) < 1.1 * task.ratings.std()
