"""What a promise assumes of a Dask collection."""

import dask.array as da
import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from discreet import PrivateLogisticRegression, PrivateMatrixCompletion, PrivateTransferClassifier
from discreet.records.clusters.dask import REPEATABLE

X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2)) / 2
Y = (X[:, 0] > 0).astype(int)


def test_fits_on_dask_say_that_partitions_must_be_repeatable():
    rows = da.from_array(X, chunks=(200, 2))
    linear = PrivateLogisticRegression(epsilon=5.0, delta=1e-6, classes=[0, 1], solver="noisy-gd")
    transfer = PrivateTransferClassifier(
        DecisionTreeClassifier(), aggregator="shares", n_teachers=10, epsilon=5.0, delta=1e-6, classes=[0, 1]
    )
    completion = PrivateMatrixCompletion(rating_bounds=(1, 5), epsilon=5.0, delta=1e-6, items=range(20))
    ratings = sp.random(60, 20, density=0.3, random_state=0, format="csr")
    ratings.data[:] = 1 + np.arange(ratings.nnz) % 5
    blocks = da.from_array(ratings.toarray(), chunks=(30, 20)).map_blocks(sp.csr_matrix)
    for model, here, there in [
        (linear, (X, Y), (rows, Y)),
        (transfer, (X, Y, X[:50]), (rows, Y, X[:50])),
        (completion, (ratings,), (blocks,)),
    ]:
        assert REPEATABLE not in clone(model).fit(*here).privacy_.assumptions
        assert REPEATABLE in clone(model).fit(*there).privacy_.assumptions
