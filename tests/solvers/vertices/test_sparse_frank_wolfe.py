"""Frank-Wolfe on CSR rows: exact sums, records that do not see each other, the law of the choices, the certificate."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from discreet import PrivateLasso, PrivateSparseLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import HuberHinge, HuberRegression, Logistic, Squared
from discreet.mechanisms.level_selection import LeveledSelection
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import BoxBounds
from discreet.sets import L1Ball, Simplex
from discreet.solvers.papers import DissertationFrankWolfe
from discreet.solvers.vertices import sparse_frank_wolfe as sparse
from discreet.solvers.vertices.frank_wolfe import FrankWolfe, VertexPlan
from discreet.solvers.vertices.frank_wolfe_plan import choice_weights, steps

LOSSES = {
    "logistic": Logistic(),
    "squared": Squared(3.0, 1.0),
    "huber": HuberRegression(0.7),
    "hinge": HuberHinge(0.5),
}
SIZE = 3.0


def rows_of(n=120, p=30, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=0.2, format="csr", random_state=rng, data_sampler=rng.standard_normal)
    y = np.where(np.asarray(X[:, [0]].sum(axis=1)).ravel() + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y


def problem_of(n, p, loss=None, intercept=False, **others):
    bounds = BoxBounds.of(p, intercept=intercept)
    features = bounds.n_features(p)
    return Problem(
        loss or Logistic(), bounds, n, features, geometry=L1Ball(SIZE, features), label_bound=1.0, **others
    )


def plan_of(problem, steps, guarantee=None):
    plan = FrankWolfe(steps, "vertices").plan(problem, guarantee or Guarantee(1.0, 1e-6))
    walk = plan.walk if problem.bounds.intercept else plan
    assert isinstance(walk, VertexPlan)
    assert walk.incremental is not None
    return walk


def records_of(problem, X, y, null=None):
    return ArrayRecords(problem.bounds.clip(X), y, problem.bounds, null)


def forced(monkeypatch, chosen):
    """Let selections answer with given vertices; returns the list that receives the totals they saw."""
    seen, answers = [], itertools.cycle(chosen)
    monkeypatch.setattr(
        LeveledSelection,
        "select",
        lambda self, totals, entropy: seen.append(totals.values.copy()) or next(answers),
    )
    return seen


def offset_at(t, intercept):
    """An intercept that moves between some of the steps."""
    return 0.3 * math.cos(t // 7) if intercept else 0.0


def walk(problem, records, grids, chosen):
    """All derivatives and totals along given choices, one state per step."""
    apart = problem.bounds.intercept
    rows = sparse.WholeRows.of(records, grids[1].entry_bits)
    margins = np.zeros(rows.shape[0], dtype=np.int64)
    gradient = sparse._Gradient(rows, records.labels, problem, grids[0], margins, 0.0, offset_at(0, apart))
    p, parts = rows.shape[1], choice_weights(len(chosen), "even")
    totals = np.cumsum(parts)
    for t, vertex in enumerate(chosen):
        if t > 0:
            factor = SIZE / totals[t] / 2 ** grids[1].entry_bits
            if t == 1:
                gradient = sparse._Gradient(
                    rows, records.labels, problem, grids[1], margins, factor, offset_at(t, apart)
                )
            else:
                gradient.renew(factor, offset_at(t, apart))
        yield gradient._state[8].copy(), gradient.totals, margins.copy()
        sign = 1 if vertex < p else -1
        sparse._move(vertex % p, sign * parts[t + 1], *rows.by_column, margins)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_totals_are_exact_and_derivatives_within_the_tolerance(name, intercept):
    X, y = rows_of()
    loss = LOSSES[name]
    problem = problem_of(*X.shape, loss, intercept)
    grids = plan_of(problem, 60, Guarantee(20.0, 1e-6)).incremental
    records = records_of(problem, X, y)
    ball = L1Ball(SIZE, X.shape[1])
    chosen = np.random.default_rng(1).integers(0, ball.n_vertices, size=60)
    unit = 2 ** grids[1].entry_bits
    whole = np.trunc(np.clip(X.toarray(), -1, 1) * unit).astype(np.int64)
    theta, renewed, before = np.zeros(ball.n_features), 0, None
    parts = choice_weights(60, "even")
    rates, sums = steps(parts), np.cumsum(parts)
    for t, (derivatives, totals, margins) in enumerate(walk(problem, records, grids, chosen)):
        grid = grids[min(t, 1)]
        assert np.array_equal(totals.values, whole.T @ derivatives)
        assert np.allclose(margins / sums[t] / unit * SIZE, whole @ theta / unit, atol=1e-12)
        exact = loss.derivative(y, whole @ theta / unit + offset_at(t, intercept))
        assert np.abs(derivatives * grid.step - exact).max() <= grid.derivative_error
        assert np.abs(derivatives).max() <= grid.steps
        for level in range(len(totals.starts) - 1):
            members = totals.order[totals.starts[level] : totals.starts[level + 1]]
            assert np.all(np.abs(totals.values[members]) >> totals.shift == level)
        renewed += 0 if before is None else int(np.sum(before != derivatives))
        before = derivatives
        ball.move_towards(theta, int(chosen[t]), rates[t])
    assert 0 < renewed < 60 * len(y)  # some derivatives are old


@pytest.mark.lemma("sparse-frank-wolfe.md#lemma-2")
def test_a_record_does_not_see_the_others():
    """Given equal choices, a record's derivative is the same to the last bit whatever else is in the data."""
    X, y = rows_of(80, 12)
    problem = problem_of(80, 12)
    grids = plan_of(problem, 40).incremental
    chosen = np.random.default_rng(2).integers(0, 24, size=40)
    order = np.random.default_rng(3).permutation(80)[:57]
    states = walk(problem, records_of(problem, X, y), grids, chosen)
    others = walk(problem, records_of(problem, X[order], y[order]), grids, chosen)
    for (all_records, _, _), (some, _, _) in zip(states, others, strict=True):
        assert np.array_equal(all_records[order], some)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.lemma("sparse-frank-wolfe.md#theorem-1")
def test_totals_of_neighbors_differ_within_the_range_and_attain_it(name, relation, monkeypatch):
    loss, p = LOSSES[name], 6
    worst = 0.0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = np.clip(rng.normal(size=(9, p)) * 2, -1, 1)
        y = rng.choice([-1.0, 1.0], size=9)
        other, labels, null = X.copy(), y.copy(), np.zeros(9, dtype=bool)
        X[4] = 1.0
        if relation is Neighboring.REPLACE_ONE:
            other[4], labels[4] = -X[4], y[4]
        else:
            null[4] = True
        problem = problem_of(9, p, loss)
        plan = plan_of(problem, 12, Guarantee(3.0, 1e-6, relation))
        chosen = rng.integers(0, 2 * p, size=12)
        seen = [forced(monkeypatch, chosen) for _ in range(2)]
        for k, (rows, signs, nulls) in enumerate(((X, y, None), (other, labels, null))):
            seen[k] = forced(monkeypatch, chosen)
            plan.run([records_of(problem, sp.csr_array(rows), signs, nulls)], fresh_entropy())
        for t, (a, b) in enumerate(zip(*seen, strict=True)):
            h = np.concatenate([a - b, b - a])
            ratio = np.ptp(h) / plan.incremental[min(t, 1)].selection.step_range
            worst = max(worst, ratio)
            assert ratio <= 1
    assert worst > (0.9 if relation is Neighboring.REPLACE_ONE or name == "hinge" else 0.45)


def test_all_derivatives_are_new_where_an_intercept_moves_far():
    X, y = rows_of()
    problem = problem_of(*X.shape, Logistic(), True)
    plan, records, entropy = (
        plan_of(problem, 60, Guarantee(20.0, 1e-6)),
        records_of(problem, X, y),
        fresh_entropy(),
    )
    grids = plan.incremental
    rows = sparse.WholeRows.of(records, grids[1].entry_bits)
    steps = sparse.IncrementalSteps(problem, grids, plan._first_grid, plan.parts, rows, records.labels)
    reach = steps.grids[1].tolerance / Logistic().smoothness
    for offset in (0.0, 0.0, 0.9 * reach):
        before = steps._gradient
        steps.choose(offset, entropy)
    assert steps._gradient is before
    margins = steps._margins * (SIZE / steps._totals[3] / 2 ** grids[1].entry_bits)
    steps.choose(0.9 * reach + 3.0, entropy)
    assert steps._gradient is not before
    exact = Logistic().derivative(y, margins + (0.9 * reach + 3.0) * rows.constants)
    assert np.abs(steps._gradient._state[8] * grids[1].step - exact).max() <= grids[1].step * (1 + 1e-9)


def test_first_choices_follow_the_softmax_of_the_true_gradient():
    X, y = rows_of(300, 5)
    problem = problem_of(300, 5)
    plan = plan_of(problem, 1, Guarantee(0.3, 1e-6))
    records, entropy = records_of(problem, X, y), fresh_entropy()
    grids = plan.incremental
    rows = sparse.WholeRows.of(records, grids[1].entry_bits)
    chosen = []
    for _ in range(5000):
        steps = sparse.IncrementalSteps(problem, grids, plan._first_grid, plan.parts, rows, records.labels)
        steps.choose(0.0, entropy)
        chosen += steps._chosen
    gradient = records.value_and_gradient(Logistic(), np.zeros(5))[1]
    scores = np.concatenate([gradient, -gradient]) * SIZE

    def p_value(scale):
        law = np.exp(-scores / scale)
        return stats.chisquare(np.bincount(chosen, minlength=10), law / law.sum() * 5000).pvalue

    assert p_value(grids[0].selection.scale) > 1e-7
    assert p_value(grids[0].selection.scale / 1.5) < 1e-7
    # No noise is lost to the grid: within 1/1000 of range / epsilon.
    exact = 2 * 2 * 0.5 * SIZE / plan.epsilon
    assert exact * 0.9999 <= grids[0].selection.scale <= exact * 1.002


def test_the_price_is_that_of_the_full_steps():
    problem = problem_of(500, 40)
    plan = plan_of(problem, 25)
    assert {grid.selection.event for grid in plan.incremental} == {plan.event.event}


@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_almost_without_noise_it_minimizes_and_keeps_its_certificate(name):
    X, y = rows_of(2000, 25, seed=4)
    loss = LOSSES[name]
    problem = problem_of(2000, 25, loss)
    dense = np.clip(X.toarray(), -1, 1)

    def risk(theta):
        return float(np.mean(loss.value(y, dense @ theta)))

    full = FrankWolfe(400, "vertices").plan(problem, Guarantee(1e5, 1e-6))
    best = risk(full.run([ArrayRecords(dense, y, problem.bounds)], fresh_entropy()).theta[0])
    for epsilon, gap in ((1.0, math.inf), (2000.0, 0.02)):
        plan = plan_of(problem, 120, Guarantee(epsilon, 1e-6))
        release = plan.run([records_of(problem, X, y)], fresh_entropy())
        excess = risk(release.theta[0]) - best
        assert excess <= min(release.certificate.likely, gap)
        assert release.certificate.expected <= plan.certificate.expected * (1 + 1e-12)
        assert np.abs(release.theta).sum() <= SIZE * (1 + 1e-12)
        assert np.count_nonzero(release.theta) <= 120


def test_old_derivatives_cost_little_of_the_certificate():
    plan = plan_of(problem_of(20_000, 100_000), 100)
    grid = plan.incremental[1]
    noise = grid.selection.scale * math.log(200_000)
    assert 2 * 20_000 * SIZE * grid.derivative_error < 0.15 * noise


@pytest.mark.parametrize("kind", ["even", "rising"])
@pytest.mark.parametrize("n_choices", [1, 7, 70])
def test_points_are_those_of_the_recursion(n_choices, kind):
    ball, parts = L1Ball(2.0, 7), choice_weights(n_choices, kind)
    chosen = np.random.default_rng(6).integers(0, 14, size=n_choices)
    theta = ball.center()
    for rate, vertex in zip(steps(parts), chosen, strict=True):
        ball.move_towards(theta, int(vertex), rate)
    assert np.allclose(sparse.combined(chosen, parts, ball), theta, atol=1e-14)


def test_the_exponential_is_accurate():
    x = -np.concatenate([np.linspace(0, 40, 4001), [100.0, 699.0]])
    found = np.array([sparse._exp(value) for value in x])
    assert np.abs(found / np.exp(x) - 1).max() < 1e-12
    assert sparse._exp(-1e4) == 0.0


@pytest.mark.parametrize("make", [PrivateLasso, PrivateSparseLogisticRegression])
def test_replays_of_estimators_pass_on_sparse_rows(make):
    X, y = rows_of(40, 8)
    options = {"target_bounds": (-1, 1)} if make is PrivateLasso else {"classes": [-1, 1]}
    model = make(1.0, 1e-2, solver=FrankWolfe(15, "vertices"), **options)
    rows = X.tolil()
    rows[3] = 1.0
    first = rows.tocsr()
    rows[3] = -1.0
    found = replay(fitting(model), (first, y), (rows.tocsr(), y))
    assert found.passed, str(found)
    assert any("LeveledSelection" in distance.where for distance in found.distances)
    assert 0.4 < found.worst_input_ratio <= 1


def test_null_rows_shared_rows_and_several_models():
    X, y = rows_of(200, 10, seed=5)
    problem = problem_of(200, 10, intercept=True, n_models=2)
    plan = plan_of(problem, 10)
    null = np.zeros(200, dtype=bool)
    null[:50] = True
    first = records_of(problem, X, y, null)
    whole = FrankWolfe(10, "vertices").plan(problem, Guarantee(1.0, 1e-6))
    release = whole.run([first, first.with_labels(-y)], fresh_entropy())
    assert release.theta.shape == (2, 11)
    without = records_of(problem, X[50:], y[50:])
    chosen = [0, 5, 19, 10, 3]
    for (_, a, _), (_, b, _) in zip(
        walk(problem, first, plan.incremental, chosen),
        walk(problem, without, plan.incremental, chosen),
        strict=True,
    ):
        assert np.array_equal(a.values, b.values)


def test_where_it_does_not_apply_the_full_steps_are_taken():
    guarantee = Guarantee(1.0, 1e-6)
    plain = problem_of(100, 6)
    cases = [
        problem_of(100, 6, l2=0.1),
        Problem(Logistic(), BoxBounds.of(6, intercept=False), 100, 6, geometry=Simplex(1.0, 6)),
    ]
    for problem in cases:
        plan = FrankWolfe(5, "vertices").plan(problem, guarantee)
        assert plan.incremental is None
        X, y = rows_of(100, 6)
        assert plan.run([records_of(problem, X, y)], fresh_entropy()).theta.shape == (1, 6)
    assert DissertationFrankWolfe(5).plan(plain, guarantee).incremental is None
    assert FrankWolfe(5, "vertices").plan(problem_of(10**9, 6), Guarantee(1e6, 1e-6)).incremental is None
    X, y = rows_of(101, 6)
    with pytest.raises(ValueError, match="at most 100 records"):
        plan_of(plain, 5).run([records_of(plain, X, y)], fresh_entropy())


def test_all_choices_see_entries_of_one_grid():
    """At the border between two numbers of bits the first choice and the later ones must round to the same side."""
    p, size, epsilon = 850_624, 2.7931870669928975, 0.01469119760111715
    problem = Problem(
        Logistic(), BoxBounds.of(p, intercept=False), 10**6, p, geometry=L1Ball(size, p), label_bound=1.0
    )
    for step in range(-20, 21):
        share = epsilon + step * math.ulp(epsilon)
        first, later = (
            sparse.grid_of(problem, Guarantee(1.0, 1e-6), share, choice_weights(5, "even"), first)
            for first in (True, False)
        )
        assert first.entry_bits == later.entry_bits
        assert first.steps == later.steps
