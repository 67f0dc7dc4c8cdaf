"""How excess risk falls with n and grows with p where noise rules: the slopes that theory predicts."""

import numpy as np
import pytest

from discreet.bounds import Bounds
from discreet.losses import HuberRegression, Squared
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers.nonprivate import Objective, minimize
from discreet.solvers.output_perturbation import OutputPerturbation
from discreet.solvers.sufficient_statistics import SufficientStatistics

BOUNDS = Bounds(1.0, intercept=False)
PROMISE = Guarantee(1.0, 1e-6)


def data(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p)) / np.sqrt(p)
    return X, np.clip(X @ rng.normal(size=p) * 0.3, -1, 1)


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def excess_of_output(n, p, l2=0.5, repeats=40):
    """Excess of the regularized risk, which is strongly convex: a quadratic form in the noise."""
    loss = HuberRegression(1.0)
    X, y = data(n, p)
    records = ArrayRecords(X, y, BOUNDS)
    plan = OutputPerturbation().plan(Problem(loss, BOUNDS, n, p, l2=l2), PROMISE)
    objective = Objective(records, loss, l2 * n)
    best = minimize(objective, 1e-6).theta
    lowest = objective.value_and_gradient(best)[0]
    found = [plan.run([records], fresh_entropy()).theta[0] for _ in range(repeats)]
    return np.mean([objective.value_and_gradient(theta)[0] - lowest for theta in found]) / n


def test_output_perturbation_falls_with_the_square_of_n():
    sizes = np.array([500, 1000, 2000, 4000])
    assert slope(sizes, [excess_of_output(int(n), 10) for n in sizes]) == pytest.approx(-2.0, abs=0.15)


def test_output_perturbation_grows_linearly_in_p():
    columns = np.array([8, 16, 32, 64])
    assert slope(columns, [excess_of_output(500, int(p), repeats=60) for p in columns]) == pytest.approx(
        1.0, abs=0.15
    )


def excess_of_ridge(n, p=5, repeats=40):
    X, y = data(n, p)
    records = ArrayRecords(X, y, BOUNDS)
    plan = SufficientStatistics(ridge_per_noise=0.0).plan(Problem(Squared(1.0, 1.0), BOUNDS, n, p), PROMISE)
    second, cross = X.T @ X / n, X.T @ y / n
    best = np.linalg.solve(second, cross)
    found = [plan.run([records], fresh_entropy()).theta[0] - best for _ in range(repeats)]
    return np.mean([d @ second @ d for d in found])


def test_ridge_falls_with_the_square_of_n():
    sizes = np.array([4000, 8000, 16_000, 32_000])
    assert slope(sizes, [excess_of_ridge(int(n)) for n in sizes]) == pytest.approx(-2.0, abs=0.2)
