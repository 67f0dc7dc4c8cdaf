"""How excess risk falls with n and grows with p where noise rules: the slopes that theory predicts."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.papers.rates import Point, current, exponent_of, l1_ball, slope
from benchmarks.papers.results import Row
from benchmarks.rates import FAMILIES_HERE, read, slopes, table
from discreet.losses import Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.statistics import SufficientStatistics

BOUNDS = Bounds(1.0, intercept=False)
PROMISE = Guarantee(1.0, 1e-6)
FAMILIES = {family.name: family for family in FAMILIES_HERE}
FAST = [
    ("ridge logistic", "output perturbation"),
    ("ridge logistic", "objective perturbation"),
    ("ridge logistic", "noisy gradient descent"),
    ("ridge, rounded absolute loss", "output perturbation"),
    ("ridge logistic, delta = 0", "output perturbation"),
    ("ridge logistic, delta = 0", "objective perturbation"),
    ("linear on a ball", "mirror descent"),
    ("linear on a ball", "Frank-Wolfe"),
]


def data(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p)) / np.sqrt(p)
    return X, np.clip(X @ rng.normal(size=p) * 0.3, -1, 1)


def quick(name, axis):
    """Only the ends of an axis."""
    family = FAMILIES[name]
    return replace(family, sizes={axis: (family.sizes[axis][0], family.sizes[axis][-1])}, fits=40)


@pytest.mark.parametrize("axis", ["rows", "columns"])
@pytest.mark.parametrize(("name", "method"), FAST)
def test_slopes_are_those_of_theory(name, method, axis):
    """Two sizes instead of ``python -m benchmarks.rates``, and a wider tolerance: over six standard errors of a slope,
    which are 0.05 (half of the mean risk, 40 fits, sizes that differ eightfold)."""
    family = quick(name, axis)
    assert slopes(family, axis, method, 1)[0] == pytest.approx(exponent_of(family, axis), abs=0.35)


@pytest.mark.parametrize("axis", ["rows", "columns", "epsilon"])
def test_a_twin_whose_noise_grows_too_fast_is_off(axis):
    family = quick("ridge logistic", axis)
    found = slopes(family, axis, "output perturbation", 1, twin=True)[0]
    assert found == pytest.approx(exponent_of(family, axis) + 1, abs=0.4)


def test_the_logarithm_of_delta_hides_in_the_tolerance():
    """Exact calibration in place of 1 / epsilon is what is left of the difference to theory."""
    family = FAMILIES["ridge logistic"]
    sizes, delta = np.array(family.sizes["epsilon"]), family.solvers["output perturbation"][1]
    exact = slope(sizes, np.array([gaussian_mu(epsilon, delta) ** -2 for epsilon in sizes]))
    assert abs(exact - family.theory["epsilon"]) < 0.08


def test_vertices_are_chosen_well_only_with_little_noise():
    """0.024 is n^(-2/3) times ten; without any of the signal the risk would be 0.12."""
    loud, usual = (l1_ball("frank-wolfe", Point(8000, 512, 1.0, louder), 1e-6, 0, 2) for louder in (8.0, 1.0))
    assert 0.015 < usual.mean() < 0.04
    assert loud.mean() > 1.5 * usual.mean()


def test_rows_of_other_sizes_are_left_out():
    rows = [
        Row("rates", "ridge logistic: rows", "output perturbation", 1.0, 0, x=2000.0, value=1.0),
        Row("rates", "ridge logistic: rows", "output perturbation", 1.0, 0, x=2001.0, value=1.0),
        Row("rates", "strongly convex: rows", "output perturbation", 1.0, 0, x=2000.0, value=1.0),
    ]
    assert current(rows) == rows[:1]


def test_lines_that_are_not_measured_stay(tmp_path):
    path = tmp_path / "rates.md"
    old = "| ridge logistic | rows | output perturbation | -2.00 ± 0.01 | -2.00 | yes | -1.00 | yes |"
    path.write_text(f"# Rates\n\n{old}\n")
    assert old in table(read(path)).splitlines()


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
