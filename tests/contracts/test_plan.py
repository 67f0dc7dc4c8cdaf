"""Plans made without data: that of every estimator is the plan of its fit, and every default works without delta."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))
from test_estimator import (
    CLASSIFIERS,
    LABELED,
    NUMBERS,
    RATINGS,
    RECIPE,
    SEARCHES,
    fitted,
    releases,
    unfitted,
)

import discreet
from discreet.audit.trace import difference
from discreet.losses import Hinge
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.bounds import Bounds
from discreet.solvers import base

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise

X, Y = releases.ordinary(0)
N_ROWS, N_COLUMNS = X.shape
MODELS = [name for name in LABELED if "Transfer" not in name and name not in SEARCHES]
GROUPED = [name for name in NUMBERS if "max_rows_per_group" in unfitted(name).get_params()]


def same(plan, model):
    """Whether a plan costs what the fit was charged, noise and sizes included."""
    return plan.event == model.privacy_.event and difference(dict(plan.noise), model.privacy_.noise) is None


@pytest.mark.parametrize("name", [*MODELS, "PrivateMedian"])
def test_the_plan_is_that_of_the_fit(name):
    model = fitted(unfitted(name))
    assert same(model.plan(N_ROWS, N_COLUMNS), model)


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if "Transfer" not in name])
def test_so_it_is_for_the_classes_that_are_declared(name):
    three = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
    model = fitted(unfitted(name, classes=[0, 1, 2]), y=three)
    assert same(model.plan(N_ROWS, N_COLUMNS), model)
    assert not same(model.plan(N_ROWS, N_COLUMNS, 2), model)


@pytest.mark.parametrize("name", GROUPED)
def test_so_it_is_for_groups(name):
    model = unfitted(name, max_rows_per_group=2)
    labels = releases.labels_of(Y) if name in CLASSIFIERS else Y
    ids = np.arange(N_ROWS) // 3
    model = model.fit(X, groups=ids) if name == "PrivateMedian" else model.fit(X, labels, groups=ids)
    assert same(model.plan(2 * len(np.unique(ids)), N_COLUMNS), model)


@pytest.mark.parametrize("name", [name for name in MODELS if "Additive" not in name])
def test_so_it_is_for_sparse_rows(name):
    model = fitted(unfitted(name), X=sp.csr_array(X))
    assert same(model.plan(N_ROWS, N_COLUMNS, sparse=True), model)


@pytest.mark.parametrize("name", SEARCHES)
def test_so_it_is_for_a_search(name):
    model = fitted(unfitted(name))
    assert model.plan(N_ROWS, N_COLUMNS).event == model.privacy_.event
    one = discreet.PrivateLogisticRegression(classes=[0, 1, 2])
    search = discreet.PrivateSelection([one], epsilon=1.0, delta=1e-2, method="split")
    assert search.plan(300, 2) == search.plan(300, 2, 3)
    assert search.plan(300, 2) != search.plan(300, 2, 2)


def test_so_it_is_for_transfer_and_ratings():
    n_public = len(releases.PUBLIC)
    for name in ("PrivateTransferClassifier", "PrivateTransferRegressor"):
        model = fitted(unfitted(name))
        assert model.plan(N_ROWS, n_public) == model.plan_
    model = unfitted("PrivateTransferClassifier", classes=[0, 1, 2])
    assert model.plan(N_ROWS, n_public) == model.plan(N_ROWS, n_public, 3)
    labeler = discreet.PrivateLabeler(releases.TREE, 5, 20, classes=[0, 1, 2], delta=1e-2)
    assert labeler.plan(N_ROWS) == labeler.plan(N_ROWS, 3)
    ratings = fitted(unfitted("PrivateMatrixCompletion"))
    assert ratings.plan(*RATINGS.shape).event == ratings.privacy_.event


#: What needs a delta says so; an error may recommend nothing that fails.
NEED_DELTA = ("PrivateAdditive", "PrivateTransfer", "PrivateSearchCV", "PrivateSelection", RECIPE.__name__)


@pytest.mark.parametrize(
    "name", [name for name in [*MODELS, "PrivateMedian"] if not name.startswith(NEED_DELTA)]
)
def test_every_default_works_without_delta(name):
    model = fitted(unfitted(name, delta=0.0))
    assert model.privacy_.delta == 0
    assert model.privacy_.delta_at(1.0) == 0


def test_a_refusal_without_delta_recommends_what_works():
    model = discreet.PrivateRidge(1.0, 0.0, target_bounds=(-1.0, 1.0), solver="statistics")
    with pytest.raises(ValueError, match="solver='auto' or 'objective' for pure differential privacy"):
        model.fit(X, Y)
    model.set_params(solver="auto").fit(X, Y)
    corners = base.resolve("auto").plan(Problem(Hinge(), Bounds(), 50, 1), Guarantee(1.0, 0.0))
    assert "the loss has corners" in corners.reason
