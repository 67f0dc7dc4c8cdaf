"""Invented fits: random sizes, rows, relations, containers and budgets, each replayed on a neighbor."""

import numpy as np
import pytest
import scipy.sparse as sp

from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.losses import HuberHinge, Logistic, Softmax
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.solvers.class_sums.discriminant import NoisyDiscriminant
from discreet.solvers.class_sums.refocused import RefocusedSums
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.second_order.newton import NoisyNewton

SOLVERS = {
    "newton": NoisyNewton(n_iterations=3),
    "newton of frequencies": NoisyNewton(n_iterations=2, ordered_columns=True),
    "discriminant": NoisyDiscriminant(n_iterations=3),
    "refocused-sums": RefocusedSums(),
    "refocused-sums of few columns": RefocusedSums(max_columns=2),
    "noisy-gd": NoisyGradientDescent(n_iterations=3),
    "noisy-gd of centered rows": NoisyGradientDescent(n_iterations=3, level_rows=True, center_share=0.1),
}
LOSSES = Logistic(), Softmax(2), Softmax(4), HuberHinge(0.5)
FORMS = "dense", "in columns", "float32", "csr", "parts"


def chosen(rng, few, many):
    """A size, mostly a small one."""
    low, middle, high = *few, many
    return int(rng.integers(low, middle) if rng.random() < 0.8 else rng.integers(middle, high))


def planned(rng, solver):
    """A plan for a random problem, the form of its rows, and how many there are."""
    while True:
        loss, relation, form = (
            choices[rng.integers(len(choices))] for choices in (LOSSES, list(Neighboring), FORMS)
        )
        n, p = chosen(rng, (3, 120), 1_500), chosen(rng, (1, 40), 230)
        bounds = Bounds(10.0 ** rng.uniform(-3, 3) if rng.random() < 0.4 else 1.0, bool(rng.integers(2)))
        declared = n if relation.size_is_public else n + int(rng.integers(0, n + 1))
        promise = Guarantee(10.0 ** rng.uniform(-1, 2), 10.0 ** rng.uniform(-8, -2), relation)
        problem = Problem(loss, bounds, declared, bounds.n_features(p), sparse=form == "csr")
        try:
            return solver.plan(problem, promise), form, n, p
        except ValueError:
            continue  # not proved for this problem


def table(rng, plan, n, p):
    """Rows of which the first is mostly long, labels, and which are null."""
    bound, outputs = plan.problem.bounds.feature_norm, plan.problem.loss.n_outputs
    X = rng.normal(size=(n, p)) * bound * 10.0 ** rng.uniform(-2, 1)
    X = np.abs(X) if rng.random() < 0.3 else X + rng.normal(size=p) * bound * rng.integers(2)
    X *= rng.random((n, p)) < rng.choice([0.2, 1.0])
    X[0] = rng.normal(size=p) * bound * 10.0 ** rng.uniform(0, 5)
    if rng.random() < 0.3:
        X[0] = 3 * bound * (np.arange(p) == rng.integers(p))
    y = rng.integers(0, outputs, n) * 1.0 if outputs > 1 else rng.choice([-1.0, 1.0], n)
    return X, y, (rng.random(n) < rng.choice([0.0, 0.1])) & (np.arange(n) > 0)


def neighbor(rng, plan, X, y, null):
    """Another first row, no first row, or a null one."""
    relation, outputs = plan.guarantee.neighboring, plan.problem.loss.n_outputs
    if relation is Neighboring.ADD_REMOVE_ONE:
        return X[1:], y[1:], null[1:]
    X, y, null = X.copy(), y.copy(), null.copy()
    if relation is Neighboring.ZERO_OUT:
        X[0], null[0] = np.nan, True
        return X, y, null
    X[0] = (X[0], -X[0], rng.normal(size=X.shape[1]) * 5 * plan.problem.bounds.feature_norm)[rng.integers(3)]
    if rng.random() < 0.7:
        y[0] = (y[0] + 1) % outputs if outputs > 1 else -y[0]
    return X, y, null


def records(form, bounds, X, y, null):
    if form == "parts" and len(y) > 3:
        halves = slice(0, len(y) // 2), slice(len(y) // 2, None)
        parts = [ArrayRecords(X[half], y[half], bounds, null[half]) for half in halves]
        return PartitionedRecords(
            LocalParts(parts), [part.n_samples for part in parts], X.shape[1], False, bounds, y
        )
    made = {"in columns": np.asfortranarray, "float32": np.float32, "csr": sp.csr_array}.get(form, np.asarray)
    return ArrayRecords(made(np.where(null[:, None], 0.0, X)), y, bounds, null)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("name", SOLVERS)
def test_invented_fits_move_by_no_more_than_declared(name, part):
    rng, closest = np.random.default_rng([part, *name.encode()]), 0.0
    for _ in range(25):
        plan, form, n, p = planned(rng, SOLVERS[name])
        data = table(rng, plan, n, p)
        pair = [records(form, plan.problem.bounds, *one) for one in (data, neighbor(rng, plan, *data))]
        found = replay(running(plan), *([one] for one in pair), seed=part, skip={"repeatable"})
        assert found.passed, (plan.problem, form, str(found))
        closest = max(closest, found.worst_input_ratio)
    assert closest > 0.99  # some are as far apart as they may be
