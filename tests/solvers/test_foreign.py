"""Solvers, optimizers and sets that are not from discreet are believed, and the statement says so."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize

from discreet import (
    PrivateLogisticRegression,
    PrivateMedian,
    PrivateSelection,
)
from discreet.sets import BallIntersection, L2Ball
from discreet.solvers import base
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.median import MedianDescent
from discreet.solvers.perturbation.objective import ObjectivePerturbation
from discreet.solvers.perturbation.output import OutputPerturbation

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(400, 2)) / 2
Y = (X[:, 0] > 0).astype(int)


@dataclass(frozen=True)
class Mine:
    """A solver of the user's, which plans as another one does and charges a tenth of it."""

    name = "mine"
    multiclass = "one-vs-rest"

    def plan(self, problem, guarantee):
        return NoisyGradientDescent().plan(problem, replace(guarantee, epsilon=10 * guarantee.epsilon))


@dataclass(frozen=True)
class SmallerBall(L2Ball):
    """A set of the user's that says it is smaller than it is."""

    def radius(self, norm=2.0):
        return super().radius(norm) / 100


def logistic(**parameters):
    return PrivateLogisticRegression(
        epsilon=5.0, delta=1e-6, classes=[0, 1], **{"solver": "noisy-gd", **parameters}
    )


def foreign(statement):
    return [fact for fact in statement.assumptions if "not from discreet" in fact]


def test_a_solver_of_the_users_is_named():
    (fact,) = foreign(logistic(solver=Mine()).fit(X, Y).privacy_)
    assert fact.startswith("solver not from discreet (")
    assert "Mine): its event and its noise are assumed to be right" in fact


def test_a_registered_solver_is_named_too():
    base.register("mine", Mine)
    try:
        assert "Mine" in foreign(logistic(solver="mine").fit(X, Y).privacy_)[0]
    finally:
        del base._SOLVERS["mine"]


@pytest.mark.parametrize("kind", [OutputPerturbation, ObjectivePerturbation])
def test_an_optimizer_of_the_users_is_named(kind):
    """It sees the rows through their sums: one that runs for ever on some of them is a release that does not exist."""
    solver = kind(optimizer=partial(minimize, method="BFGS"))
    (fact,) = foreign(logistic(solver=solver).fit(X, Y).privacy_)
    assert "optimizer not from discreet (functools.partial)" in fact
    assert "that it ends on all data" in fact


@pytest.mark.parametrize("part", [False, True])
def test_a_set_of_the_users_is_named(part):
    inside = SmallerBall(2.0, 3)
    if part:
        inside = BallIntersection(inside, (0.0, 0.0, 0.0), 1.0)
    (fact,) = foreign(logistic(constraint=inside).fit(X, Y).privacy_)
    assert "SmallerBall): its radius, diameter, vertices and projections are assumed to be right" in fact


def test_what_is_from_discreet_is_not():
    for parameters in ({}, {"solver": OutputPerturbation()}, {"constraint": L2Ball(2.0, 3)}):
        assert not foreign(logistic(**parameters).fit(X, Y).privacy_)


def test_every_candidate_of_a_search_is_named_once():
    candidates = [logistic(), logistic(solver=Mine()), logistic(solver=Mine(), l2=0.1)]
    search = PrivateSelection(candidates, epsilon=5.0, delta=1e-6, method="split").fit(X, Y)
    assert len(foreign(search.privacy_)) == 1


def test_a_solver_of_a_median_is_named():
    class MyDescent(MedianDescent):
        """The same, and not from here."""

    assert not foreign(PrivateMedian(radius=1.0, epsilon=5.0, delta=1e-6).fit(X).privacy_)
    found = PrivateMedian(radius=1.0, epsilon=5.0, delta=1e-6, solver=MyDescent()).fit(X).privacy_
    assert "MyDescent" in foreign(found)[0]
