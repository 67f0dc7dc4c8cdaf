"""Leveled rows: the promise holds exactly, sums move by the declared amount at most, and shared directions are gone."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from discreet import PrivateLogisticRegression, insecure_noise
from discreet.losses import HuberHinge, Logistic, Softmax
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers import base
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent, NoisySGD
from discreet.solvers.gradients.row_centering import LeveledBounds

RELATIONS = list(Neighboring)
PROMISE = Guarantee(1.0, 1e-6)


def exact_squares(row, scale, intercept):
    """|Q v|^2 and |v|^2 of v = scale (row, 1) in rational arithmetic."""
    entries = [Fraction(float(x)) * Fraction(float(scale)) for x in row]
    constant = Fraction(float(scale)) if intercept else Fraction(0)
    mean = sum(entries, Fraction(0)) / len(entries)
    leveled = sum((x - mean) ** 2 for x in entries) + constant**2 / 4
    return leveled, sum(x * x for x in entries) + constant**2


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, lambda X: np.asarray(X, dtype=np.float32)])
def test_every_record_keeps_the_promise_exactly(make, intercept):
    rng = np.random.default_rng(0)
    rows = np.vstack(
        [
            rng.normal(size=(60, 7)) * 10.0 ** rng.integers(-4, 5, size=(60, 1)),
            np.full((1, 7), 3.0),
            3.0 + 1e-9 * rng.normal(size=(20, 7)),  # nearly constant: what is left drowns in rounding
            1e5 + rng.normal(size=(20, 7)),
            np.zeros((1, 7)),
        ]
    )
    X = make(rows)
    scales = LeveledBounds(1.5, intercept).row_scales(X)
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    for row, scale in zip(dense, scales, strict=True):
        leveled, whole = exact_squares(row, scale, intercept)
        assert 0 < scale <= 1
        assert leveled <= Fraction(9, 4)
        assert whole <= 64 * Fraction(9, 4)
    plain = Bounds(1.5, intercept).row_scales(X)
    assert np.all(scales >= plain)
    assert np.median(scales / plain) > 1


def test_rows_that_are_no_numbers_are_null_and_huge_rows_are_clipped_as_ever():
    X = np.array([[np.nan, 1.0], [np.inf, 1.0], [1e90, -1e90], [1.0, 2.0]])
    scales = LeveledBounds().row_scales(X)
    assert np.array_equal(scales == 0, [True, True, False, False])
    assert scales[2] == Bounds().row_scales(X)[2]


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("gradient-methods.md#theorem-8")
def test_leveled_sums_move_by_the_declared_sensitivity_at_most(relation, loss):
    """Sums over two neighbors at the same point; opposite rows come close to the bound."""
    rng = np.random.default_rng(1)
    n, p = 200, 12
    labels = (
        np.where(rng.random(n) < 0.5, -1.0, 1.0) if loss.n_outputs == 1 else rng.integers(3, size=n) * 1.0
    )
    problem = Problem(loss, Bounds(), n, p + 1)
    plan = NoisyGradientDescent(level_rows=True).plan(problem, Guarantee(1.0, 1e-6, relation))
    bound, bounds, gaps = plan.release.sensitivity.value, plan.problem.bounds, []
    for trial in range(30):
        X = rng.normal(size=(n, p)) + 5
        X[-1] = 50 * rng.normal(size=p)
        other = X.copy()
        other[-1] = -X[-1]
        point = rng.normal(size=problem.shape) * (trial % 3)
        null = np.arange(n) == n - 1
        first = ArrayRecords(X, labels, bounds)
        second = (
            ArrayRecords(other, labels, bounds)
            if relation is Neighboring.REPLACE_ONE
            else ArrayRecords(X, labels, bounds, null)
        )
        at = bounds.level(point)
        sums = [bounds.level(one.value_and_gradient(plan.field, at)[1]) for one in (first, second)]
        gaps.append(np.linalg.norm(sums[0] - sums[1]))
    assert max(gaps) <= bound
    assert max(gaps) > 0.8 * bound


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_whole_budget_is_used_and_no_more(relation):
    problem = Problem(Logistic(), Bounds(), 5000, 2001)
    plan = NoisyGradientDescent().plan(problem, Guarantee(0.7, 1e-6, relation))
    assert plan.shape is not None
    assert 0.99e-6 <= accountants.delta(plan.event, 0.7, relation) <= 1e-6


def test_wide_rows_are_leveled_unless_told_otherwise():
    wide, narrow = (Problem(Logistic(), Bounds(), 5000, p) for p in (1001, 1000))
    assert NoisyGradientDescent().plan(wide, PROMISE).shape is not None
    assert NoisyGradientDescent().plan(narrow, PROMISE).shape is None
    assert NoisyGradientDescent(level_rows=False).plan(wide, PROMISE).shape is None
    assert NoisyGradientDescent().plan(Problem(HuberHinge(), Bounds(), 5000, 1001), PROMISE).shape is None
    assert base.resolve("noisy-gd-dissertation").plan(wide, PROMISE).shape is None
    assert NoisySGD().plan(wide, Guarantee(1.0, 1e-6, Neighboring.ZERO_OUT)).shape is not None
    assert "leveled rows" in str(NoisyGradientDescent(center_share=0.0).plan(wide, PROMISE))
    assert "centered rows" in str(NoisyGradientDescent().plan(wide, PROMISE))
    with pytest.raises(ValueError, match="level_rows applies to logistic"):
        NoisyGradientDescent(level_rows=True).plan(Problem(HuberHinge(), Bounds(), 50, 5), PROMISE)


def shifted(n=3000, p=40, seed=0):
    """Rows of which most is a constant that says nothing."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(n, p))
    return signal + 20.0, (signal @ rng.normal(size=p) > 0).astype(int)


def fitted(X, y, epsilon, **options):
    solver = NoisyGradientDescent(**options)
    return PrivateLogisticRegression(epsilon, 1e-6, classes=[0, 1], solver=solver).fit(X, y)


def test_what_all_rows_share_costs_nothing():
    X, y = shifted()
    assert fitted(X, y, 1.0, level_rows=True).score(X, y) > 0.8
    assert fitted(X, y, 1.0, level_rows=False).score(X, y) < 0.75


def test_coefficients_sum_to_zero_and_dense_and_sparse_agree():
    X, y = shifted(500)
    found = []
    for rows in (X, sp.csr_matrix(X)):
        with insecure_noise(3):
            found.append(fitted(rows, y, 1.0, level_rows=True, n_iterations=50).coef_)
    assert abs(found[0].sum()) < 1e-9 * np.abs(found[0]).sum()
    assert np.abs(found[0] - found[1]).max() < 1e-5


def test_the_ridge_is_one_on_the_coefficients():
    """Without noise a leveled fit minimizes the mean loss of its records plus the ridge over leveled coefficients."""
    X, y = shifted(400, 6)
    l2 = 0.05
    problem = Problem(Logistic(), Bounds(), 400, 7, l2=l2)
    solver = NoisyGradientDescent(
        *(800, 2.0, 0.9), cap=1.0, averaging=0.05, level_rows=True, center_share=0.0
    )
    plan = solver.plan(problem, Guarantee(1e8, 1e-6))
    records = ArrayRecords(X, np.where(y == 1, 1.0, -1.0), plan.problem.bounds)
    theta = plan.run([records], fresh_entropy()).theta[0]
    gradient = records.value_and_gradient(Logistic(), theta)[1] / 400 + l2 * theta
    assert np.abs(plan.problem.bounds.level(gradient)).max() < 1e-4


def test_wide_dense_rows_take_half_the_steps_while_noise_dominates():
    steps = []
    for columns, sparse in ((1200, False), (1200, True), (800, False)):
        problem = Problem(Logistic(), Bounds(), 4000, columns + 1, sparse=sparse)
        steps.append(NoisyGradientDescent().plan(problem, Guarantee(0.5, 1e-7)).n_iterations)
    assert steps == [25, 50, 50]
