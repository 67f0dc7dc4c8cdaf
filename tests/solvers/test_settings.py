"""Whole numbers among solvers' settings: NumPy's count like Python's, what is none is refused before any charge."""

from dataclasses import replace

import numpy as np
import pytest

from discreet import PrivateLogisticRegression
from discreet.losses import Logistic
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.bounds import Bounds
from discreet.sets import BallIntersection, GroupedL1Ball, L1Ball, L2Ball, NuclearBall, Simplex
from discreet.solvers import NoisyGradientDescent, NoisyNewton, base
from discreet.solvers.base import resolve
from discreet.solvers.median import LocationProblem, MedianDescent

ANYWHERE = Problem(Logistic(), Bounds(), 200, 3)
IN_A_BALL = Problem(Logistic(), Bounds(), 200, 3, geometry=L1Ball(2.0, 3))
GUARANTEE = Guarantee(1.0, 1e-5, "zero-out")
SETTINGS = [
    ("noisy-gd", "n_iterations", ANYWHERE),
    ("noisy-sgd", "n_iterations", ANYWHERE),
    ("noisy-gd-dissertation", "n_iterations", ANYWHERE),
    ("newton", "n_iterations", ANYWHERE),
    ("discriminant", "n_iterations", ANYWHERE),
    ("psgd", "n_passes", ANYWHERE),
    ("psgd", "batch_size", ANYWHERE),
    ("frank-wolfe", "n_iterations", IN_A_BALL),
    ("frank-wolfe-dissertation", "n_iterations", IN_A_BALL),
    ("mirror-descent", "n_iterations", IN_A_BALL),
    ("mirror-descent", "max_iterations", IN_A_BALL),
    ("simplex-sampling", "n_draws", IN_A_BALL),
    ("median", "n_iterations", LocationProblem(200, 3, 1.0)),
]
each_setting = pytest.mark.parametrize(
    ("solver", "name", "problem"), SETTINGS, ids=[f"{solver}-{name}" for solver, name, _ in SETTINGS]
)


def planned(solver, name, value, problem):
    kind = MedianDescent if solver == "median" else type(base.resolve(solver))
    return kind(**{name: value}).plan(problem, GUARANTEE)


@each_setting
def test_a_whole_number_of_numpy_plans_what_an_int_does(solver, name, problem):
    plan, same = planned(solver, name, 3, problem), planned(solver, name, np.int64(3), problem)
    assert same == plan
    assert same.event.to_dict() == plan.event.to_dict()
    assert str(same) == str(plan)


@each_setting
@pytest.mark.parametrize("nonsense", [0, -1, 2.5, True, "3"])
def test_what_is_no_count_is_refused_by_name(solver, name, problem, nonsense):
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        planned(solver, name, nonsense, problem)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize(
    "solver", ["noisy-gd", "output", NoisyGradientDescent(radius=1.7), NoisyNewton(moment_share=0.137)]
)
def test_numbers_of_fewer_digits_lose_none_in_a_price(kind, solver):
    """NumPy computes with them in their own precision: sensitivities would be rounded down, or overflow."""

    def planned(number):
        given = solver
        if not isinstance(solver, str):
            name = "radius" if solver.name == "noisy-gd" else "moment_share"
            given = replace(solver, **{name: number(kind(getattr(solver, name)))})
        inside = L2Ball(number(kind(2.3)), 4) if isinstance(solver, str) else None
        model = PrivateLogisticRegression(
            1.0, 1e-6, classes=[0, 1], feature_bound=1.3, constraint=inside, solver=given
        )
        plan = model.plan(1000, 3)
        return [
            (one.mechanism.sensitivity, one.mechanism.noise_multiplier, one.event) for one in plan.releases
        ]

    assert planned(lambda number: number) == planned(float)


def test_a_solver_of_a_user_stays_as_it_is():
    given = NoisyGradientDescent(radius=np.float32(1.7), n_iterations=np.int64(20))
    assert resolve(given) == NoisyGradientDescent(radius=float(np.float32(1.7)), n_iterations=20)
    assert (type(given.radius), type(given.n_iterations)) == (np.float32, np.int64)


def test_sets_and_promises_hold_numbers_of_python():
    size, count = np.float16(1.7), np.int8(100)
    sets = [
        L2Ball(size, count),
        L1Ball(size, count),
        Simplex(size, count),
        GroupedL1Ball(size, count, np.int8(2)),
    ]
    sets += [BallIntersection(sets[0], np.zeros(100), np.float32(0.3)), NuclearBall(size, (count, count))]
    assert {type(one.radius(2.0)) for one in sets} == {float}
    assert {type(one.n_features) for one in sets} == {int}
    assert sets[-1].n_features == 10_000
    promise = Guarantee(np.float32(0.1), np.float16(1e-3))
    assert (type(promise.epsilon), type(promise.delta)) == (float, float)
