"""Minimizers over sets: certificates that hold for any pair of points, known solutions, exact laws with atoms."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize as scipy_minimize

from discreet.losses import Hinge, HuberHinge, Logistic, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.objective import objective_delta
from discreet.privacy.events import ObjectivePerturbation as ObjectiveEvent
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import Box, GroupedL1Ball, L1Ball, L2Ball, Simplex, VertexPolytope
from discreet.solvers import base
from discreet.solvers.minimizers.constrained import (
    distance_bound,
    minimize_over,
    outside_bound,
    smallest_distance,
    support_bound,
)
from discreet.solvers.minimizers.minimizer import Objective
from discreet.solvers.perturbation.objective import ObjectivePerturbation
from discreet.solvers.perturbation.output import OutputPerturbation

P = 5
SETS = [
    L2Ball(0.7, P),
    L1Ball(0.7, P),
    Simplex(0.7, P),
    Box((-0.3,) * P, (0.1, 0.2, 0.3, 0.4, 0.5)),
    L2Ball(50.0, P),
    GroupedL1Ball(0.7, P, 2),
]
BOUNDS = Bounds(1.0, intercept=False)


def objective(seed=0, n=60, l2=0.5, loss=None):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, P)), rng.choice([-1.0, 1.0], n)
    return Objective(ArrayRecords(X, y, BOUNDS), loss or Logistic(), l2, 3 * rng.normal(size=P))


def least(goal, geometry):
    records = goal.records
    norm = float(np.linalg.norm(goal.linear))
    return smallest_distance(goal.loss, records.n_samples, P, 1.0, goal.l2, norm, geometry)


@pytest.mark.parametrize("geometry", SETS, ids=str)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.1)], ids=str)
def test_the_minimizer_is_the_one_that_an_independent_solver_finds(geometry, loss):
    goal = objective(loss=loss)
    theta = minimize_over(goal, geometry, least(goal, geometry))
    value = goal.value_and_gradient(theta)[0]
    rng = np.random.default_rng(1)
    for _ in range(300):  # no point of the set is better, nor is any by a projected step of SciPy's answer
        other = geometry.project(theta + rng.normal(size=P) * rng.choice([1e-3, 0.1, 1.0]))
        assert goal.value_and_gradient(other)[0] >= value - 1e-9
    free = scipy_minimize(
        lambda x: (
            goal.value_and_gradient(geometry.project(x))[0] + 5 * np.sum((x - geometry.project(x)) ** 2)
        ),
        theta + 0.01,
        method="Nelder-Mead",
        options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12},
    )
    assert goal.value_and_gradient(geometry.project(free.x))[0] >= value - 1e-9


@pytest.mark.parametrize("geometry", SETS, ids=str)
def test_without_data_the_minimizer_is_a_projection(geometry):
    rng = np.random.default_rng(2)
    linear = rng.normal(size=P) * 2
    empty = ArrayRecords(np.zeros((3, P)), np.ones(3), BOUNDS, np.ones(3, dtype=bool))
    goal = Objective(empty, Logistic(), 0.8, linear)
    tolerance = least(goal, geometry)
    found = minimize_over(goal, geometry, tolerance)
    assert np.linalg.norm(found - geometry.project(-linear / 0.8)) <= tolerance + 1e-14


@pytest.mark.parametrize("geometry", SETS, ids=str)
def test_the_certificate_holds_for_arbitrary_points(geometry):
    """Not only for the points that the method visits: also for steps that a broken optimizer might take."""
    goal, rng = objective(3), np.random.default_rng(4)
    tolerance = least(goal, geometry)
    best, curvature = minimize_over(goal, geometry, tolerance), goal.curvature
    tight = 0.0
    for _ in range(400):
        size = 10.0 ** rng.uniform(-6, 0.5)
        before = best + size * rng.normal(size=P)
        gradient = goal.value_and_gradient(before)[1]
        after = geometry.project(before - gradient / curvature)
        if rng.random() < 0.5:
            after = geometry.project(after + size * rng.normal(size=P))
        bound = distance_bound(goal, geometry, before, gradient, after, curvature)
        distance = np.linalg.norm(after - best)
        assert distance <= bound + tolerance
        tight = max(tight, distance / bound)
    assert tight > 0.01  # it is a bound worth having, not infinity


@pytest.mark.parametrize("geometry", SETS, ids=str)
@pytest.mark.lemma("constrained-minimizers.md#theorem-1")
def test_the_certificate_is_attained_across_the_set(geometry):
    """A point that did not move at all, at one end of the set, while the minimizer is at the other: the slope alone
    tells, and tells exactly, because without data the objective is a parabola."""
    direction = np.array([1.0, -0.2, 0.3, -0.4, 0.5])
    start, best = (geometry.linear_minimizer(sign * direction) for sign in (1, -1))
    empty = ArrayRecords(np.zeros((3, P)), np.ones(3), BOUNDS, np.ones(3, dtype=bool))
    goal = Objective(empty, Logistic(), 0.8, -0.8 * best)
    gradient = goal.value_and_gradient(start)[1]
    assert np.allclose(gradient, 0.8 * (start - best))
    bound = distance_bound(goal, geometry, start, gradient, start, goal.curvature)
    distance = np.linalg.norm(start - best)
    assert distance <= bound <= distance * (1 + 1e-6)


@pytest.mark.parametrize("aside", [1e-2, 1e-4])
def test_the_certificate_holds_for_points_that_rounding_left_outside(aside):
    """A pull nine times the ridge holds the minimizer on the circle; a point beside it, and so far outside that the
    slope along the pull vanishes, is much further from it than from the circle."""
    empty = ArrayRecords(np.zeros((1, 2)), np.ones(1), BOUNDS, np.ones(1, dtype=bool))
    circle, goal = L2Ball(1.0, 2), Objective(empty, Logistic(), 0.8, np.array([-8.0, 0.0]))
    point = np.array([1 + aside**2 * (1 + 1 / 18) / 9, aside])
    gradient = goal.value_and_gradient(point)[1]
    distance = np.linalg.norm(point - [1.0, 0.0])
    assert support_bound(circle, -gradient) - -gradient @ point < 0.01 * aside**2
    assert outside_bound(circle, point) < aside * distance
    bound = distance_bound(goal, circle, point, gradient, point, goal.curvature)
    assert distance <= bound < 4 * distance


@pytest.mark.parametrize("geometry", SETS, ids=str)
def test_support_and_distance_are_upper_bounds_and_sharp(geometry):
    rng = np.random.default_rng(5)
    for _ in range(200):
        direction, point = rng.normal(size=P), rng.normal(size=P)
        value = float(direction @ geometry.linear_minimizer(-direction))
        assert value <= support_bound(geometry, direction) <= value + 1e-12
        away = np.linalg.norm(point - geometry.project(point))
        assert away <= outside_bound(geometry, point) * (1 + 1e-12)
        inside = geometry.project(point)
        assert outside_bound(geometry, inside) < 1e-14


@pytest.mark.parametrize("solver", [ObjectivePerturbation(), OutputPerturbation()])
@pytest.mark.parametrize("geometry", SETS, ids=str)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_releases_lie_in_the_set(solver, geometry, delta):
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(50, P)), rng.choice([-1.0, 1.0], 50)
    problem = Problem(Logistic(), BOUNDS, 50, P, n_models=2, geometry=geometry)
    plan = solver.plan(problem, Guarantee(1.0, delta))
    theta = plan.run([ArrayRecords(X, y, BOUNDS), ArrayRecords(X, -y, BOUNDS)], fresh_entropy()).theta
    assert theta.shape == (2, P)
    for model in theta:
        assert outside_bound(geometry, model) < 1e-12


@pytest.mark.lemma("constrained-minimizers.md#theorem-4")
def test_constrained_minimizers_move_no_further_than_declared():
    """Exchange records at the boundary, where projections bend the path of the minimizer."""
    geometry, n, total_l2 = L2Ball(0.5, P), 20, 2.0
    problem = Problem(Logistic(), BOUNDS, n, P, l2=total_l2 / n, geometry=geometry)
    plan = OutputPerturbation().plan(problem, Guarantee(1.0, 1e-6))
    rng, largest = np.random.default_rng(7), 0.0
    for _ in range(40):
        X, y = rng.normal(size=(n, P)), rng.choice([-1.0, 1.0], n)
        moved, changed = X.copy(), y.copy()
        moved[0], changed[0] = rng.normal(size=P), -y[0]
        pair = [
            minimize_over(Objective(ArrayRecords(a, b, BOUNDS), Logistic(), total_l2), geometry, 1e-5)
            for a, b in ((X, y), (moved, changed))
        ]
        largest = max(largest, np.linalg.norm(pair[0] - pair[1]))
    assert 0.1 * plan.sensitivity.value < largest <= plan.sensitivity.value


def interval_law(rows, labels, low, high, total_l2, stddev):
    """Exact law of the perturbed minimizer over [low, high]: two atoms and the distribution in between."""
    theta = np.linspace(low, high, 4001)
    slopes = Logistic().derivative(labels[:, None], rows[:, None] * theta)
    # P(minimizer <= theta): b(theta) decreases.
    below = stats.norm.sf(-(rows @ slopes + total_l2 * theta) / stddev)
    return np.concatenate([[below[0]], np.diff(below), [1 - below[-1]]])


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0])
@pytest.mark.lemma("constrained-minimizers.md#theorem-3")
def test_exact_laws_with_atoms_at_the_boundary_satisfy_the_profile(epsilon):
    """In one dimension the hockey-stick divergence over an interval can be integrated, atoms included."""
    rng, total_l2, stddev, worst = np.random.default_rng(8), 1.0, 0.8, 0.0
    event = ObjectiveEvent("logistic", stddev, leverage=1 / total_l2, smoothness=0.25, output_mu=0.0)
    bound = float(objective_delta(event, epsilon, Neighboring.REPLACE_ONE))
    for _ in range(60):
        rows, labels = rng.choice([-1.0, 1.0], 6), rng.choice([-1.0, 1.0], 6)
        other = labels.copy()
        other[0] = -labels[0]
        low, high = np.sort(rng.normal(size=2))
        first, second = (interval_law(rows, y, low, high, total_l2, stddev) for y in (labels, other))
        assert first.sum() == pytest.approx(1)
        delta = np.maximum(first - np.exp(epsilon) * second, 0).sum()
        assert delta <= bound
        worst = max(worst, delta)
    assert worst > 1e-3 * bound


def test_law_over_an_interval_has_the_atoms_of_the_proof():
    rows, labels = np.ones((10, 1)), np.tile([1.0, -1.0], 5)
    problem = Problem(Logistic(), BOUNDS, 10, 1, geometry=Box((-0.2,), (0.3,)))
    plan = ObjectivePerturbation(prediction_noise=2.0).plan(problem, Guarantee(0.5, 1e-2))
    records, entropy = [ArrayRecords(rows, labels, BOUNDS)], fresh_entropy()
    theta = np.array([plan.run(records, entropy).theta.item() for _ in range(600)])
    law = interval_law(rows.ravel(), labels, -0.2, 0.3, plan.total_l2, plan.objective_noise.effective_stddev)
    near = 6 * plan.output.stddev  # the output stage blurs an atom by so much at most, and is projected back
    cells = int(2 * near / 0.5 * 4000)
    for place, atom, around in ((-0.2, law[0], law[:cells]), (0.3, law[-1], law[-cells:])):
        share, chance = np.mean(np.abs(theta - place) < near), 5.4 * 0.5 / np.sqrt(600)
        assert atom - chance < share < around.sum() + chance
        assert atom > 1.5 * chance


def test_prices_do_not_depend_on_the_set():
    promise = Guarantee(0.5, 1e-7)
    free, bound = (
        ObjectivePerturbation().plan(Problem(Logistic(), BOUNDS, 300, P, geometry=geometry), promise)
        for geometry in (None, L1Ball(1.0, P))
    )
    assert free.stddev == bound.stddev
    assert 0.99e-7 <= accountants.delta(bound.event, 0.5, Neighboring.REPLACE_ONE) <= 1e-7


@pytest.mark.parametrize("name", ["objective", "output"])
def test_sets_and_losses_without_certificates_are_refused(name):
    solver, promise = base.resolve(name), Guarantee(1.0, 1e-6)
    with pytest.raises(ValueError, match="certifies minimizers over"):
        solver.plan(Problem(Logistic(), BOUNDS, 50, 4, geometry=VertexPolytope(np.eye(4))), promise)
    with pytest.raises(ValueError, match="made for 3 coefficients"):
        solver.plan(Problem(Logistic(), BOUNDS, 50, 4, geometry=L2Ball(1.0, 3)), promise)
    with pytest.raises(ValueError, match="HuberHinge"):
        solver.plan(Problem(Hinge(), BOUNDS, 50, 4), promise)


def test_ridge_over_a_ball_equals_the_closed_form_at_large_epsilon():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(400, P)) / 4
    y = np.clip(X @ np.array([1.0, -1.0, 0.5, 0.0, 0.2]), -1, 1)
    loss = Squared(prediction_bound=2.0, label_bound=1.0)
    problem = Problem(loss, BOUNDS, 400, P, l2=0.01, geometry=L2Ball(10.0, P), label_bound=1.0)
    theta = (
        OutputPerturbation()
        .plan(problem, Guarantee(1e7, 1e-6))
        .run([ArrayRecords(X, y, BOUNDS)], fresh_entropy())
        .theta[0]
    )
    clipped = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    exact = np.linalg.solve(clipped.T @ clipped + 4.0 * np.eye(P), clipped.T @ y)
    assert np.abs(theta - exact).max() < 1e-2
