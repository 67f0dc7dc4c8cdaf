"""Every solver on every estimator and relation: it fits, or it refuses with a reason; nothing else."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from discreet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
)
from discreet.bounds import Bounds
from discreet.losses import Logistic
from discreet.privacy.guarantee import Neighboring
from discreet.records.arrays import ArrayRecords
from discreet.solvers.batches import consecutive, take
from discreet.solvers.noisy_gradient import NoisySGD

SOLVERS = {
    "noisy-gd": set(),
    "noisy-gd-dissertation": set(),
    "noisy-sgd": {"replace-one"},
    "newton": {"svm", "ridge", "huber", "quantile"},
    "output": set(),
    "output-jain-thakurta": set(),
    "psgd": {"add-remove-one"},
    "psgd-dissertation": {"add-remove-one"},
    "statistics": {"binary", "softmax", "svm", "huber", "quantile"},
}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3)) / 2
ESTIMATORS = {
    "binary": (lambda **kw: PrivateLogisticRegression(classes=[0, 1], **kw), RNG.integers(2, size=150)),
    "softmax": (lambda **kw: PrivateLogisticRegression(classes=[0, 1, 2], **kw), RNG.integers(3, size=150)),
    "svm": (lambda **kw: PrivateLinearSVC(classes=[0, 1, 2], **kw), RNG.integers(3, size=150)),
    "ridge": (lambda **kw: PrivateRidge(target_bounds=(0, 1), **kw), RNG.random(150)),
    "huber": (lambda **kw: PrivateHuberRegressor(target_bounds=(0, 1), **kw), RNG.random(150)),
    "quantile": (lambda **kw: PrivateQuantileRegressor(target_bounds=(0, 1), **kw), RNG.random(150)),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("relation", [relation.value for relation in Neighboring])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_cell(solver, relation, estimator):
    make, y = ESTIMATORS[estimator]
    # sampled steps take seconds to calibrate; few of them take fewer
    chosen = NoisySGD(0.5, n_iterations=2) if solver == "noisy-sgd" else solver
    model = make(neighboring=relation, n_samples=150, solver=chosen)
    if {relation, estimator} & SOLVERS[solver]:
        with pytest.raises(ValueError, match=r"(solver|use|is proved) .*"):
            model.plan(150, 3)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # one storage per relation: dense and sparse are compared number by number in each solver's own tests
        for rows in [X] if relation != "zero-out" else [sparse.csr_matrix(X)]:
            predictions = model.fit(rows, y).predict(rows)
            assert len(predictions) == 150


def test_batches_are_the_records_they_name():
    y = RNG.choice([-1.0, 1.0], 150)
    for rows in (X, sparse.csr_matrix(X)):
        records = ArrayRecords(rows, y, Bounds(1.0))
        theta = np.arange(4.0)
        order = RNG.permutation(150)
        batches = consecutive(records, order, 40)
        assert len(batches) == 3
        parts = sum(batch.value_and_gradient(Logistic(), theta)[1] for batch in batches)
        whole = ArrayRecords(rows[order[:120]], y[order[:120]], Bounds(1.0)).value_and_gradient(
            Logistic(), theta
        )[1]
        assert np.allclose(parts, whole)
        nothing = take(records, np.array([], dtype=np.int64))
        assert not nothing.value_and_gradient(Logistic(), theta)[1].any()
