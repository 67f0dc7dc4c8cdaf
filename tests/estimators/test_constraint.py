"""Coefficients in a set that the user names: every set behind the same estimators, and what is refused."""

import numpy as np
import pytest
from sklearn.base import clone

from discreet import (
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    card,
)
from discreet.sets import (
    BallIntersection,
    Box,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexPolytope,
)
from discreet.solvers import NoisyGradientDescent

SETS = [
    L2Ball(2.0, 4),
    L1Ball(2.0, 4),
    Simplex(2.0, 4),
    Box((-1.0,) * 4, (1.0,) * 4),
    GroupedL1Ball(2.0, 4, 2),
    InterpolationBall(2.0, 4, 0.5),
    NuclearBall(2.0, (2, 2)),
    VertexPolytope(np.vstack([2 * np.eye(4), -2 * np.eye(4), [[1.0, -1.0, 0.0, 0.0]]])),
    BallIntersection(L1Ball(2.0, 4), (0.5, 0.0, 0.0, 0.0), 1.0),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    return X, X @ [1.0, -2.0, 0.5]


def outside(model, inside):
    theta = np.append(model.coef_, model.intercept_)
    return np.linalg.norm(theta - inside.project(theta))


@pytest.mark.parametrize("inside", SETS, ids=lambda inside: type(inside).__name__)
@pytest.mark.parametrize("solver", ["frank-wolfe", "mirror-descent"])
def test_a_model_lies_in_its_set_and_is_certified(rows, inside, solver):
    X, signal = rows
    model = PrivateLogisticRegression(1.0, 1e-6, constraint=inside, solver=solver, classes=[False, True])
    model.fit(X, signal > 0)
    assert outside(model, inside) < 1e-9
    assert 0 < model.certificate_.expected < 1
    assert model.certificate_.expected <= model.plan(2000, 3).certificate.expected * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
@pytest.mark.parametrize("inside", SETS, ids=lambda inside: type(inside).__name__)
def test_so_does_a_model_of_the_automatic_choice(rows, inside, epsilon):
    X, signal = rows
    model = PrivateLogisticRegression(epsilon, 1e-6, constraint=inside, classes=[False, True])
    assert outside(model.fit(X, signal > 0), inside) < 1e-9


def test_almost_without_noise_the_best_vertex_combination_is_found(rows):
    """Of the vertices e_1 and -e_2 both point to the positive class, -e_1 and e_2 away from it."""
    X, signal = rows
    corners = VertexPolytope(np.array([[3.0, 0, 0, 0], [0, -3.0, 0, 0], [-3.0, 0, 0, 0], [0, 3.0, 0, 0]]))
    model = PrivateLogisticRegression(1e6, 1e-6, constraint=corners, classes=[False, True])
    model.fit(X, signal > 0)
    assert model.coef_[0, 0] > 0.2
    assert model.coef_[0, 1] < -1.0
    assert np.abs(model.coef_[0]).sum() == pytest.approx(3.0, abs=0.1)


def test_a_softmax_has_one_set_for_all_classes(rows):
    X, signal = rows
    labels = np.digitize(signal, [-1.0, 1.0])
    inside = NuclearBall(2.0, (4, 3))
    model = PrivateLogisticRegression(1.0, 1e-6, constraint=inside, classes=[0, 1, 2]).fit(X, labels)
    theta = np.column_stack([model.coef_, model.intercept_]).T
    assert theta.shape == (4, 3)
    assert np.linalg.svd(theta)[1].sum() <= 2.0 + 1e-9


@pytest.mark.parametrize(
    "model",
    [
        PrivateLinearRegression(1.0, 1e-6, target_bounds=(-2, 6), solver="mirror-descent"),
        PrivateHuberRegressor(1.0, 1e-6, target_bounds=(-2, 6), solver="frank-wolfe"),
    ],
    ids=["squares", "Huber"],
)
def test_a_regressor_is_bound_in_units_of_half_the_range(rows, model):
    X, signal = rows
    inside = L1Ball(0.5, 4)
    model = clone(model).set_params(constraint=inside).fit(X, np.clip(signal, -2, 6))
    scaled = np.append(model.coef_, model.intercept_ - 2.0) / 4.0
    assert np.abs(scaled).sum() <= 0.5 * (1 + 1e-9)


def test_a_support_vector_machine_takes_a_set(rows):
    X, signal = rows
    model = PrivateLinearSVC(1.0, 1e-6, constraint=L2Ball(1.0, 4), classes=[False, True]).fit(X, signal > 0)
    assert outside(model, L2Ball(1.0, 4)) < 1e-9
    assert model.score(X, signal > 0) > 0.8


@pytest.mark.parametrize(
    ("constraint", "error", "words"),
    [
        (L2Ball(1.0, 3), ValueError, "vectors of 3 numbers, a model here has 4 coefficients"),
        ("l2", TypeError, "constraint must be a set of discreet.sets"),
    ],
)
def test_what_is_no_such_set_is_refused_before_the_charge(rows, tmp_path, constraint, error, words):
    from discreet import Ledger

    X, signal = rows
    ledger = Ledger(tmp_path / "budget", epsilon=10.0, delta=1e-4)
    model = PrivateLogisticRegression(constraint=constraint, classes=[False, True], ledger=ledger)
    with pytest.raises(error, match=words):
        model.fit(X, signal > 0)
    assert len(ledger.history()) == 0


@pytest.mark.parametrize("solver", ["newton", "psgd", "discriminant"])
def test_a_solver_without_sets_says_which_have_them(rows, solver):
    model = PrivateLogisticRegression(constraint=L2Ball(1.0, 4), solver=solver)
    with pytest.raises(ValueError, match="mirror-descent"):
        model.plan(2000, 3)


def test_nothing_of_an_earlier_certificate_stays(rows):
    X, signal = rows
    model = PrivateLogisticRegression(
        1.0, 1e-6, constraint=L1Ball(2.0, 4), classes=[False, True], solver="frank-wolfe"
    )
    assert hasattr(model.fit(X, signal > 0), "certificate_")
    assert not hasattr(
        model.set_params(solver=NoisyGradientDescent(momentum=0.5)).fit(X, signal > 0), "certificate_"
    )


def test_a_saved_model_describes_its_set(rows, tmp_path):
    X, signal = rows
    model = PrivateLogisticRegression(1.0, 1e-6, constraint=L1Ball(2.0, 4), classes=[0, 1])
    model.fit(X, (signal > 0).astype(int))
    card.save(model, tmp_path / "model.json")
    again = card.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert "L1Ball(size=2.0" in (tmp_path / "model.json").read_text()
