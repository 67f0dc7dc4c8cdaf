"""How excess risk falls with n and grows with p where noise rules: the slopes that theory predicts."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.rates import RATES, slope

from discreet.bounds import Bounds
from discreet.losses import Squared
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers.sufficient_statistics import SufficientStatistics

BOUNDS = Bounds(1.0, intercept=False)
PROMISE = Guarantee(1.0, 1e-6)


def data(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p)) / np.sqrt(p)
    return X, np.clip(X @ rng.normal(size=p) * 0.3, -1, 1)


FASTEST = [rate for rate in RATES if not rate.name.startswith(("newton", "psgd", "mirror"))]


@pytest.mark.parametrize("rate", FASTEST, ids=lambda rate: rate.name)
def test_slopes_are_those_of_theory(rate):
    """Fewer sizes than ``python -m benchmarks.rates``, and a wider tolerance: six standard errors of a slope."""
    quick = replace(rate, rows=rate.rows[::3], columns=rate.columns[::2])
    in_n, in_p = quick.measured(repeats=40)
    assert in_n == pytest.approx(rate.slope_in_n, abs=0.4)
    assert in_p == pytest.approx(rate.slope_in_p, abs=0.4)


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
