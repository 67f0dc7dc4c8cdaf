"""The hinge under noisy gradients: records at the corner, where rounding decides, and where that is harmless."""

import numpy as np
import pytest
import scipy.sparse as sp

from discreet.losses import Hinge, HuberHinge
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import L1Ball, L2Ball
from discreet.solvers import base
from discreet.solvers.base import computed_gradient_sensitivity
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent

BOUNDS = Bounds(1.0, intercept=False)
KEPT = [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT]


def at_the_corner(n, p, seed):
    """Rows whose margin is 1 up to rounding, so that the last bit decides about their gradient."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=p)
    theta *= 1.5 / np.linalg.norm(theta)
    rows = 0.3 * rng.normal(size=(n, p)) / np.sqrt(p)
    rows += ((1.0 - rows @ theta) / (theta @ theta))[:, None] * theta
    rows *= (1 + rng.integers(-3, 4, n) * 2.0**-53)[:, None]
    assert np.linalg.norm(rows, axis=1).max() < 1
    return rows, np.ones(n), theta


@pytest.mark.parametrize("relation", KEPT)
@pytest.mark.parametrize("store", [np.array, np.float32, sp.csr_array], ids=["dense", "float32", "csr"])
def test_computed_sums_of_neighbors_stay_within_the_declared_distance(relation, store):
    n, p, largest = 700, 7, 0.0
    for seed in range(30):
        X, y, theta = at_the_corner(n, p, seed)
        if store is np.float32:
            X = X.astype(np.float32).astype(np.float64)
        else:
            derivatives = Hinge().derivative(y, X @ theta)
            assert 20 < np.count_nonzero(derivatives) < n - 20  # rounding puts them on both sides
        index = seed * 20
        other, labels = X.copy(), y.copy()
        null = np.zeros(n, dtype=bool)
        if relation is Neighboring.ZERO_OUT:
            null[index], other[index] = True, 0.0
        else:
            other[index], labels[index] = theta / 1.5, -1.0
        sums = [
            ArrayRecords(store(a), b, BOUNDS, c).value_and_gradient(Hinge(), theta)[1]
            for a, b, c in ((X, y, None), (other, labels, null))
        ]
        declared = computed_gradient_sensitivity(Hinge(), n, p, 1.0, 1.5, relation).value
        assert np.linalg.norm(sums[0] - sums[1]) <= declared
        assert declared == pytest.approx(relation.contributions, rel=1e-6)
        largest = max(largest, np.linalg.norm(sums[0] - sums[1]))
    assert largest > 0.4


def test_a_bound_that_trusts_exact_margins_would_not_hold_for_rows_that_move():
    """The reason for refusing add-remove-one: equal margins, another order of terms, another side of the corner."""
    X, y, theta = at_the_corner(4000, 7, 0)
    order = np.arange(7)[::-1]
    forwards = Hinge().derivative(y, X @ theta)
    backwards = Hinge().derivative(y, X[:, order] @ theta[order])
    assert np.count_nonzero(forwards != backwards) > 10


@pytest.mark.parametrize("name", ["noisy-gd", "mirror-descent"])
@pytest.mark.parametrize("relation", KEPT)
def test_learns(name, relation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)) / 2
    y = np.sign(X @ [1.0, -2.0, 0.5, 0.0])
    geometry = L2Ball(3.0, 4) if name == "mirror-descent" else None
    plan = base.resolve(name).plan(
        Problem(Hinge(), BOUNDS, 20_000, 4, geometry=geometry), Guarantee(1.0, 1e-6, relation)
    )
    theta = plan.run([ArrayRecords(X, y, BOUNDS)], fresh_entropy()).theta[0]
    assert np.mean(np.sign(X @ theta) == y) > 0.9


def test_poisson_samples_learn_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3)) / 2
    y = np.sign(X @ [1.0, -2.0, 0.5])
    plan = base.resolve("noisy-sgd").plan(
        Problem(Hinge(), BOUNDS, 5000, 3), Guarantee(2.0, 1e-5, Neighboring.ZERO_OUT)
    )
    theta = plan.run([ArrayRecords(X, y, BOUNDS)], fresh_entropy()).theta[0]
    assert np.mean(np.sign(X @ theta) == y) > 0.8


@pytest.mark.parametrize("name", ["noisy-gd", "noisy-sgd", "mirror-descent"])
def test_add_remove_one_is_refused_with_the_reason(name):
    geometry = L1Ball(1.0, 3) if name == "mirror-descent" else None
    problem = Problem(Hinge(), BOUNDS, 100, 3, geometry=geometry)
    with pytest.raises(ValueError, match="change places"):
        base.resolve(name).plan(problem, Guarantee(1.0, 1e-6, Neighboring.ADD_REMOVE_ONE))


@pytest.mark.parametrize("share", [0.9, 0.7])
@pytest.mark.parametrize("n", [2_000, 50_000])
def test_rows_that_are_all_alike_settle_at_the_corner(share, n):
    """With one column of ones the least loss is at 1. Constant steps swing around it at any n: 0.03 to 0.11 above."""
    y = np.where(np.arange(n) < share * n, 1.0, -1.0)
    records = [ArrayRecords(np.ones((n, 1)), y, BOUNDS)]
    problem = Problem(Hinge(), BOUNDS, n, 1)

    def excess(**settings):
        plan = NoisyGradientDescent(**settings).plan(problem, Guarantee(1.0, 1e-6))
        found = [plan.run(records, fresh_entropy()).theta[0, 0] for _ in range(5)]
        return np.mean([np.maximum(0, 1 - y * theta).mean() for theta in found]) - 2 * (1 - share)

    assert excess() < 0.015
    if n > 2_000:
        assert excess(schedule="constant") > 0.015
        assert base.resolve("auto").plan(problem, Guarantee(1.0, 1e-6)).reason.startswith("noisy-gd")


def test_steps_fall_in_a_line_for_corners_in_all_of_space_only():
    free = NoisyGradientDescent().plan(Problem(Hinge(), BOUNDS, 5_000, 4), Guarantee(1.0, 1e-6))
    rates = [free.descent._rate(step) for step in range(free.n_iterations)]
    assert np.diff(rates) == pytest.approx(-free.learning_rate / free.n_iterations)
    assert rates[-1] == pytest.approx(free.learning_rate / free.n_iterations)
    assert free.averaging * free.n_iterations == pytest.approx(1)
    for problem in (
        Problem(Hinge(), BOUNDS, 5_000, 4, geometry=L2Ball(3.0, 4)),
        Problem(HuberHinge(), BOUNDS, 5_000, 4),
    ):
        plan = NoisyGradientDescent().plan(problem, Guarantee(1.0, 1e-6))
        assert not plan.fading
        assert plan.averaging == 0.25
    with pytest.raises(ValueError, match="schedule"):
        NoisyGradientDescent(schedule="falling").plan(
            Problem(Hinge(), BOUNDS, 5_000, 4), Guarantee(1.0, 1e-6)
        )
