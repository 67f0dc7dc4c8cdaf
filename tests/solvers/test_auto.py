"""The automatic choice: public facts only, explained, and never another promise than that of the chosen solver."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import pure
from discreet import NoiseWarning, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from discreet.losses import HuberHinge, HuberRegression, Logistic, Softmax, Squared
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem, gradient_signal
from discreet.records.bounds import Bounds, BoxBounds
from discreet.sets import Box, GroupedL1Ball, L1Ball, L2Ball, VertexPolytope
from discreet.solvers.auto import AutomaticChoice
from discreet.solvers.class_sums.discriminant import NoisyDiscriminant
from discreet.solvers.class_sums.refocused import RefocusedSums
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.perturbation.objective import ObjectivePerturbation
from discreet.solvers.second_order.newton import NoisyNewton
from discreet.solvers.vertices.frank_wolfe import FrankWolfe


def problem(loss, n, p, l2=None):
    return Problem(loss, Bounds(), n, p, 1, l2)


@pytest.mark.parametrize(
    ("loss", "n", "p", "epsilon", "expected"),
    [
        (Logistic(), 45_000, 105, 0.1, NoisyNewton),  # the shape of Adult, a little larger
        (Logistic(), 36_000, 105, 0.01, NoisyDiscriminant),
        (Logistic(), 56_000, 119, 1.0, NoisyNewton),  # of KDDCup99
        (Softmax(10), 56_000, 785, 1.0, NoisyNewton),  # of MNIST
        (Softmax(7), 465_000, 55, 1.0, NoisyNewton),  # of Covertype
        (Logistic(), 800, 5000, 1.0, NoisyGradientDescent),  # of Gisette
        (Logistic(), 500, 20, 0.1, NoisyDiscriminant),  # noise hides everything
        (Logistic(), 1_000, 105, 1.0, NoisyDiscriminant),  # it hides the second moment
        (HuberHinge(), 1_000, 105, 1.0, NoisyDiscriminant),
        (Logistic(), 5_000_000, 100, 1e-5, NoisyGradientDescent),  # a copy of the rows would be large
        (Softmax(10), 2_000, 785, 1.0, NoisyDiscriminant),
        (Softmax(10), 56_000, 785, 0.1, NoisyNewton),  # the border is the same for more classes
        (Softmax(10), 56_000, 785, 0.02, NoisyDiscriminant),
        (Logistic(), 113_000, 22, 1.0, NoisyNewton),
        (Logistic(), 113_000, 22, 8.0, NoisyNewton),  # more epsilon does not lead to another solver
        (Logistic(), 5_000_000, 100, 1.0, ObjectivePerturbation),  # a copy of the rows would be large
        (Logistic(), 10_000, 5, 1e6, ObjectivePerturbation),  # no noise to speak of
        (HuberHinge(), 45_000, 105, 0.1, NoisyNewton),
        (HuberHinge(), 800, 5000, 1.0, ObjectivePerturbation),
        (HuberHinge(), 5_000_000, 100, 1.0, ObjectivePerturbation),
    ],
)
def test_choice_follows_the_documented_rule(loss, n, p, epsilon, expected):
    guarantee = Guarantee(epsilon, 1 / n**2)
    chosen = AutomaticChoice().plan(problem(loss, n, p), guarantee)
    assert chosen.event == expected().plan(problem(loss, n, p), guarantee).event
    assert expected.name in chosen.reason
    assert chosen.reason in str(chosen)


@pytest.mark.parametrize(
    ("epsilon", "columns"), [(0.5, (True, False)), (0.1, (True, True)), (1.0, (False, False))]
)
def test_single_columns_of_dense_rows_are_looked_for_longer(epsilon, columns):
    facts = problem(Logistic(), 800, 5001)
    for sparse, expected in zip((False, True), columns, strict=True):
        chosen = AutomaticChoice().plan(replace(facts, sparse=sparse), Guarantee(epsilon, 1 / 800**2))
        assert chosen.reason.startswith("frank-wolfe") == expected


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), HuberHinge()])
@pytest.mark.parametrize(
    ("n", "p", "epsilon", "expected"),
    [
        (18_000, 6_400, 1.0, RefocusedSums),  # of reviews of clothes
        (15_000, 43_000, 10.0, RefocusedSums),  # of newsgroups
        (15_000, 43_000, 0.1, NoisyDiscriminant),
        (300_000, 5_000, 10.0, NoisyGradientDescent),
        (10**7, 2_000, 10.0, ObjectivePerturbation),
    ],
)
def test_wide_rows_in_a_sparse_matrix_are_taken_for_texts(loss, n, p, epsilon, expected):
    guarantee = Guarantee(epsilon, 1 / n**2)
    texts = replace(problem(loss, n, p), sparse=True)
    chosen = AutomaticChoice().plan(texts, guarantee)
    assert chosen.reason.startswith(expected.name)
    assert chosen.event == expected().plan(texts, guarantee).event
    dense = AutomaticChoice().plan(replace(texts, sparse=False), guarantee)
    assert (dense.event == chosen.event) == (expected is ObjectivePerturbation)


def test_a_fit_plans_for_the_matrix_it_gets():
    rng = np.random.default_rng(0)
    X = sp.random(3000, 1500, 0.01, "csr", rng=rng)
    y = rng.integers(2, size=3000)
    model = PrivateLogisticRegression(1.0, 1e-7, classes=[0, 1])
    planned = model.plan(3000, 1500, sparse=True)
    assert model.fit(X, y).privacy_.event == planned.event
    assert "in weighted columns" in model.privacy_.mechanism
    dense = PrivateLogisticRegression(1.0, 1e-7, classes=[0, 1]).fit(X.toarray(), y)
    assert dense.privacy_.event == model.plan(3000, 1500).event != planned.event


@pytest.mark.parametrize(
    ("n", "p", "epsilon", "expected"),
    [(465_000, 54, 1.0, "newton"), (800, 5000, 1.0, "noisy-gd"), (465_000, 54, 100.0, "objective")],
)
def test_several_huber_svms_share_a_budget_best_by_descent(n, p, epsilon, expected):
    plan = PrivateLinearSVC(epsilon, 1e-11).plan(n, p, n_classes=7)
    assert plan.reason.startswith(expected)


def test_where_no_direction_is_seen_single_columns_are_looked_for():
    """Of 3000 columns one tells the class; all rows have a norm far beyond 1."""
    chosen = AutomaticChoice().plan(problem(Logistic(), 800, 5001), Guarantee(0.1, 1 / 800**2))
    assert chosen.reason.startswith("frank-wolfe, because the records are 11.3 times the noise")
    assert accountants.delta(chosen.event, 0.1, Neighboring.REPLACE_ONE) <= 1 / 800**2
    assert isinstance(chosen.problem.bounds, BoxBounds)
    rng = np.random.default_rng(0)
    X, y = rng.choice([-1.0, 1.0], size=(1300, 3000)), rng.integers(2, size=1300)
    X[:, 7] = 2.0 * y - 1.0
    for rows in (X, sp.csr_matrix(X)):
        # The scale of a choice is 20, the best score is ahead by 650 - 75: another has a chance of 6000 e^-28 < 1e-8.
        with pytest.warns(NoiseWarning):
            model = PrivateLogisticRegression(0.1, 1e-6, classes=[0, 1]).fit(rows, y)
        assert model.score(X, y) == 1.0
        assert "exponential mechanism" in model.privacy_.mechanism


def test_a_single_column_is_chosen_with_all_that_its_budget_allows():
    """Nothing goes into the length of the step, and pure noise is taken where it is the smaller one."""
    chosen = AutomaticChoice().plan(problem(Logistic(), 800, 5001), Guarantee(0.1, 1e-6))
    assert not chosen.evidence_share
    assert chosen.guarantee.delta == 0
    assert accountants.delta(chosen.event, 0.1, Neighboring.REPLACE_ONE) == 0
    many_rows = replace(chosen.problem, n_samples=1_000_000)
    many = FrankWolfe(50, evidence_share=0.0).plan(many_rows, Guarantee(0.1, 1e-6))
    assert many.guarantee.delta == 1e-6
    assert 50 * many.epsilon > 0.1  # more than an equal share of epsilon


def test_more_classes_are_not_looked_for_by_columns():
    plan = AutomaticChoice().plan(problem(Softmax(3), 800, 5001), Guarantee(0.1, 1e-6))
    assert not plan.reason.startswith("frank-wolfe")


def test_so_are_the_columns_of_a_huber_svm():
    plan = AutomaticChoice().plan(problem(HuberHinge(), 800, 5001), Guarantee(0.1, 1e-6))
    assert plan.reason.startswith("frank-wolfe")


@pytest.mark.parametrize(
    ("inside", "epsilon", "delta", "expected"),
    [
        (L2Ball(5.0, 20), 0.05, 1e-6, NoisyGradientDescent),
        (L2Ball(5.0, 20), 2.0, 1e-6, ObjectivePerturbation),
        (Box((-2.0,) * 20, (2.0,) * 20), 2.0, 1e-6, ObjectivePerturbation),
        (L1Ball(5.0, 20), 2.0, 1e-6, ObjectivePerturbation),
        (GroupedL1Ball(5.0, 20, 5), 0.05, 1e-6, NoisyGradientDescent),
        (GroupedL1Ball(5.0, 20, 5), 2.0, 1e-6, ObjectivePerturbation),
        (VertexPolytope(np.vstack([np.eye(20), -np.eye(20)])), 2.0, 1e-6, MirrorDescent),
        (VertexPolytope(np.vstack([np.eye(20), -np.eye(20)])), 2.0, 0.0, FrankWolfe),
        (L1Ball(5.0, 20), 2.0, 0.0, ObjectivePerturbation),
        (L2Ball(5.0, 20), 2.0, 0.0, ObjectivePerturbation),
    ],
)
def test_the_choice_in_a_set_follows_the_signal(inside, epsilon, delta, expected):
    """Frank-Wolfe has the slower rate where rows are bounded by their norm (`benchmarks/results/sets.md`)."""
    facts = replace(problem(Logistic(), 20_000, 20), geometry=inside)
    chosen = AutomaticChoice().plan(facts, Guarantee(epsilon, delta))
    assert chosen.reason.startswith(f"{expected.name}, because")
    assert chosen.event == expected().plan(facts, Guarantee(epsilon, delta)).event


def test_entries_bounded_one_by_one_are_for_frank_wolfe():
    facts = replace(
        problem(Logistic(), 20_000, 20), geometry=L1Ball(5.0, 20), bounds=BoxBounds.of(20, intercept=False)
    )
    assert AutomaticChoice().plan(facts, Guarantee(1.0, 1e-6)).reason.startswith("frank-wolfe")


def test_a_ridge_is_never_ignored():
    chosen = AutomaticChoice().plan(problem(Logistic(), 1000, 10, l2=0.1), Guarantee(0.1, 1e-6))
    assert chosen.noise["total l2 (sum scale)"] == pytest.approx(100.0)


def test_signal_to_noise_knows_the_relation():
    case = problem(Logistic(), 1000, 16)
    replace = gradient_signal(case, Guarantee(1.0, 1e-6))
    blank = gradient_signal(case, Guarantee(1.0, 1e-6, Neighboring.ZERO_OUT))
    assert blank == pytest.approx(2 * replace)


def test_pure_guarantees_get_a_pure_solver():
    for kind in (PrivateLogisticRegression, PrivateLinearSVC):
        plan = kind(1.0, 0.0).plan(1000, 5)
        assert accountants.delta(plan.event, 1.0, Neighboring.REPLACE_ONE) == 0.0
        assert "pure" in str(plan)


def test_rows_are_predicted_as_they_were_trained_on():
    """Where single columns are looked for, rows are shrunk by their largest entry, also by a model from a file."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1500))
    model = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1]).fit(X, (X[:, 0] > 0).astype(int))
    assert isinstance(model.plan(200, 1500).problem.bounds, BoxBounds)
    raw = X @ model.coef_[0] + model.intercept_[0]
    assert np.allclose(model.decision_function(X), raw / np.abs(X).max(axis=1), rtol=1e-12)
    assert not any(name == "row norm (intercept included)" for name in model.privacy_.bounds)


def test_few_targets_are_fitted_without_delta_and_with_clipped_residuals():
    def plan(n, delta, **settings):
        return PrivateRidge(0.1, delta, target_bounds=(-3, 3), **settings).plan(n, 5)

    for delta in (0.0, 1e-6):
        few = plan(300, delta)
        assert few.reason.startswith("objective")
        assert few.guarantee == Guarantee(0.1, 0.0)
        assert few.problem.loss == HuberRegression(0.2)
    assert plan(30_000, 1e-6).reason.startswith("newton")
    widths = [plan(n, 0.0).problem.loss.lipschitz for n in (300, 3_000, 30_000, 300_000)]
    assert widths == sorted(widths)
    assert plan(300_000, 0.0).problem.loss == Squared(1.0, 1.0)  # nothing is clipped where noise is small
    wide = PrivateRidge(0.1, 1e-6, target_bounds=(-3, 3)).plan(
        300, 40
    )  # pure noise grows faster with the columns
    assert wide.reason.startswith("newton")


@pytest.mark.parametrize(
    "name", ["PrivateRidge", "PrivateLinearRegression", "PrivateHuberRegressor", "PrivateMedian"]
)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_no_default_loses_to_doing_nothing(name, delta):
    """300 records at epsilon 0.1: the middle of the range, or the center of the ball, is the truth or near it."""
    fit = pure.median if name == "PrivateMedian" else partial(pure.regressor, name)
    with warnings.catch_warnings(action="ignore"):
        shares = [np.divide(*fit(300, 0.1, delta, seed)) for seed in range(200, 224)]
    assert (
        np.mean(shares) < 1.1
    )  # about 0.97, with a standard error of 0.04; second-order regression had 1.2 to 1.4
