"""Whole numbers among solvers' settings: NumPy's count like Python's, what is none is refused before any charge."""

import numpy as np
import pytest

from discreet.losses import Logistic
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.bounds import Bounds
from discreet.sets import L1Ball
from discreet.solvers import base
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
