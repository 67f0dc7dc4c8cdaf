"""Sampled vertices of the entropic minimizer: closed forms, the tight range, its law, and broken twins."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.special import softmax

from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.losses import Hinge, HuberRegression, Logistic, Softmax, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.events import BoundedRange, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, BoxBounds
from discreet.sets import L1Ball, L2Ball, Simplex, VertexPolytope
from discreet.solvers import base
from discreet.solvers.minimizers.entropic import EntropicObjective, combination, minimize
from discreet.solvers.vertices.simplex_sampling import Constants, SimplexPlan, SimplexSampling

RELATIONS = list(Neighboring)


def problem_of(n, p, loss=None, geometry=None, **others):
    loss = loss or Squared(1 + 1e-9, 1.0)
    return Problem(
        loss, BoxBounds.of(p, intercept=False), n, p, geometry=geometry or Simplex(1.0, p), **others
    )


def data(n=300, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p))
    return X, np.clip(0.7 * X[:, 0] + 0.3 * X[:, 1] + 0.3 * rng.normal(size=n), -1, 1)


def records_of(problem, X, y):
    return ArrayRecords(problem.bounds.clip(X), y, problem.bounds)


def objective_of(problem, X, y, entropy):
    c = Constants.of(problem, Guarantee(1.0, 1e-6))
    smoothness = c.n_samples * c.smoothness * c.half_range**2
    return EntropicObjective(records_of(problem, X, y), problem.loss, problem.geometry, entropy, smoothness)


def phi(objective, w):
    """The regularized objective, for w > 0."""
    theta = combination(objective.geometry, w)
    value = objective.records.value_and_gradient(objective.loss, theta)[0]
    return value + objective.entropy * float(w @ np.log(w))


# -- the minimizer ------------------------------------------------------------------------------------------


def test_linear_losses_have_a_softmax_as_their_minimizer():
    X, _ = data(200, 6)
    y = np.where(X[:, 0] > 0, 50.0, -50.0)  # so far out that the Huber loss is linear, of slope -+0.3
    problem = problem_of(200, 6, HuberRegression(0.3))
    point = minimize(objective_of(problem, X, y, 7.0), 1e-6, 1e-9)
    total = X.T @ np.where(y > 0, -0.3, 0.3)
    np.testing.assert_allclose(point.weights, softmax(-total / 7.0), rtol=1e-9)
    np.testing.assert_allclose(point.gradient, total, rtol=1e-12)


@pytest.mark.parametrize("kappa", [0.1, 10.0, 1e3])
@pytest.mark.parametrize("shape", ["simplex", "l1-ball", "vertices"])
@pytest.mark.lemma("simplex-sampling.md#lemma")
def test_residual_certifies_the_duality_gap(kappa, shape):
    X, y = data(150, 4, seed=3)
    geometry = {
        "simplex": Simplex(1.0, 4),
        "l1-ball": L1Ball(1.0, 4),
        "vertices": VertexPolytope([[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, -1], [0.2, 0.2, 0.2, 0.2]]),
    }[shape]
    objective = objective_of(problem_of(150, 4, geometry=geometry), X, y, 150 / kappa)
    loose, tight = minimize(objective, 5.0, 1e-9), minimize(objective, 1e-6, 1e-9)
    gap = phi(objective, loose.weights) - phi(objective, tight.weights)
    assert -1e-9 <= gap <= loose.oscillation**2 / (8 * objective.entropy) + 1e-9
    distance = np.abs(loose.weights - tight.weights).sum()
    assert distance <= loose.oscillation / (2 * objective.entropy) + 1e-9
    rng = np.random.default_rng(0)
    for _ in range(50):  # nothing nearby is better
        other = tight.weights * np.exp(0.1 * rng.normal(size=len(tight.weights)))
        assert phi(objective, other / other.sum()) >= phi(objective, tight.weights) - 1e-9


def test_underflowing_weights_do_no_harm():
    """At this lambda the losers' weights are far below the smallest float64; their logits are still right."""
    X, _ = data(2000, 3, seed=1)
    problem = problem_of(2000, 3, HuberRegression(1.0))
    point = minimize(objective_of(problem, X, 50 * X[:, 0], 0.5), 1e-3, 1e-7)
    assert point.weights[1:].max() == 0
    assert -point.logits.min() > 1000
    np.testing.assert_allclose(point.logits * 0.5, -(point.gradient - point.gradient[0]), atol=1e-3)


def test_mirror_descent_alone_gets_there(monkeypatch):
    from discreet.solvers.minimizers import entropic

    monkeypatch.setattr(entropic, "_newton_step", lambda objective, point: None)
    X, y = data(100, 4)
    assert minimize(objective_of(problem_of(100, 4), X, y, 20.0), 1e-4, 1e-9).oscillation <= 1e-4


def test_tolerance_below_rounding_is_refused():
    X, y = data(20, 3)
    with pytest.raises(ValueError, match="four times the rounding error"):
        minimize(objective_of(problem_of(20, 3), X, y, 1.0), 1e-9, 1e-9)


# -- the range ----------------------------------------------------------------------------------------------


def planted(kappa, slope=1e-3, common=40):
    """Neighbors at which Theorem 1 is attained: two groups of equal columns and one column against each.

    The changed record pulls the groups apart; the common ones hold them together, all by columns whose weight is
    negligible and whose gradients therefore move freely.
    """
    tau, copies = min(1.0, 1 / math.sqrt(kappa)), 120 * math.ceil(max(kappa, 5.0))
    row = np.concatenate([np.full(copies, tau), np.full(copies, -tau), [1.0, -1.0]])
    changed = np.concatenate([np.full(copies, -1.0), np.full(copies, 1.0), [1.0, -1.0]])
    X = np.vstack([np.tile(row, (common, 1)), changed])
    y, other = np.zeros(common + 1), np.zeros(common + 1)
    y[-1], other[-1] = -1e6, 1e6  # slopes +L and -L there
    problem = problem_of(common + 1, X.shape[1], HuberRegression(slope))
    return problem, X, y, other


@pytest.mark.parametrize(
    ("kappa", "range_"), [(0.41, 5.163), (1.0, 6.0), (4.0, 8.0), (25.0, 14.0), (100.0, 24.0)]
)
@pytest.mark.lemma("simplex-sampling.md#theorem-1")
def test_planted_instance_attains_the_range(kappa, range_):
    problem, X, y, other = planted(kappa)
    entropy = (len(y) - 1) / kappa
    scores = [minimize(objective_of(problem, X, t, entropy), 1e-9, 1e-12).gradient for t in (y, other)]
    observed = np.ptp(scores[0] - scores[1]) / problem.loss.lipschitz
    c = Constants.of(problem, Guarantee(1.0, 1e-6))
    exact = c.changed * (1 + c.response(entropy, c.common) / 4) / problem.loss.lipschitz
    assert exact == pytest.approx(range_, rel=1e-3)
    assert 0.99 * range_ < observed <= exact
    assert c.range(entropy) == pytest.approx(exact * problem.loss.lipschitz, rel=2e-3)


def test_replay_of_the_planted_instance_is_near_the_declared_range_and_catches_a_twin():
    solver, guarantee = SimplexSampling(n_draws=3), Guarantee(0.6, 1e-6)
    plan = solver.plan(planted(5.0, slope=0.1)[0], guarantee)
    kappa = 40 / plan.entropy  # where the planned entropy has its worst case
    problem, X, y, other = planted(kappa, slope=0.1)
    plan = solver.plan(problem, guarantee)
    first, second = ([records_of(problem, X, t)] for t in (y, other))
    found = replay(running(plan), first, second)
    assert found.passed, found
    assert kappa > 1
    assert found.worst_input_ratio > 0.97

    class Twin(SimplexPlan):
        """Forgets that the common records answer."""

        @property
        def draw(self):
            honest = super().draw
            return dataclasses.replace(honest, score_range=self.constants.changed)

    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    assert "distance" in replay(running(Twin(**fields)), first, second).failed_checks


@given(
    st.integers(0, 10**6),
    st.sampled_from(RELATIONS),
    st.sampled_from(["squared", "logistic"]),
    st.floats(0.2, 300.0),
    st.floats(0.0, 1.0),
)
@settings(max_examples=40)
def test_scores_of_neighbors_stay_within_the_range(seed, relation, name, entropy, sloppiness):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 30)), int(rng.integers(2, 6))
    geometry = [Simplex(2.0, p), L1Ball(1.5, p)][int(rng.integers(2))]
    loss = Squared(geometry.size + 1e-9, 1.0) if name == "squared" else Logistic()
    problem = problem_of(n, p, loss, geometry)
    X = rng.choice([-1.0, 0.0, 1.0], size=(n, p))
    y = rng.choice([-1.0, 1.0], size=n)
    guarantee = Guarantee(1.0, 1e-6, relation)
    if relation is Neighboring.REPLACE_ONE:
        X2, y2 = np.vstack([X[:-1], rng.choice([-1.0, 1.0], size=p)]), np.append(y[:-1], -y[-1])
    else:
        X2, y2 = X[:-1], y[:-1]
    c = Constants.of(problem, guarantee)
    tolerance = c.tolerance(entropy)
    rounding = c.residual_rounding if sloppiness < 0.5 else tolerance / 4
    scores = [
        minimize(objective_of(problem, *part, entropy), tolerance, rounding).gradient
        for part in ((X, y), (X2, y2))
    ]
    assert np.ptp(scores[0] - scores[1]) <= c.range(entropy)


def test_who_counts_as_common():
    """Under add-remove-one a set of the largest size has a neighbor with as many common records as it has rows."""
    problem = problem_of(50, 3)
    commons = [Constants.of(problem, Guarantee(1.0, 0.0, relation)).common for relation in RELATIONS]
    assert commons == [49, 50, 49]
    replace, remove, _ = (Constants.of(problem, Guarantee(1.0, 0.0, relation)) for relation in RELATIONS)
    assert replace.changed == 2 * remove.changed


def test_one_draw_of_two_vertices_by_exact_probabilities():
    """m = 1, p = 2: the whole law of the release is two numbers, and its loss stays within epsilon."""
    problem = problem_of(12, 2)
    plan = SimplexSampling(n_draws=1).plan(problem, Guarantee(0.5))
    X = np.tile([1.0, -1.0], (12, 1))
    worst = 0.0
    for value in (0.0, -1.0, 1.0):
        y = np.full(12, value)
        laws = []
        for last in (-1.0, 1.0):
            y[-1] = last
            objective = objective_of(problem, X, y, plan.entropy)
            point = minimize(objective, plan.constants.tolerance(plan.entropy), 1e-9)
            laws.append(plan.draw.probabilities(-point.gradient))
        worst = max(worst, float(np.abs(np.log(laws[0] / laws[1])).max()))
    assert 0.05 < worst <= 0.5  # far from all data an index can only lose half of the range


# -- plans --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_plan_meets_the_guarantee_and_wastes_little(relation, delta):
    guarantee = Guarantee(1.0, delta, relation)
    plan = SimplexSampling().plan(problem_of(5000, 40, n_models=2), guarantee)
    assert plan.event == Repeated(BoundedRange(plan.epsilon), 2 * plan.n_draws)
    price = accountants.epsilon(plan.event, delta, relation)
    assert 0.98 <= price <= 1.0
    assert plan.draw.scale == pytest.approx(plan.entropy, rel=1e-6)
    assert plan.constants.range(plan.entropy) <= plan.entropy * plan.epsilon * (1 + 1e-12)
    assert "average of" in str(plan)
    assert "excess risk" in str(plan)


def test_plan_matches_the_derived_rates():
    """Constants all 1, epsilon 1, delta 1e-6, p = 1000: excess .045, .0139, .0043 at n = 1e5, 1e6, 1e7."""
    for n, entropy, excess in ((10**5, 485, 0.045), (10**6, 1499, 0.0139), (10**7, 4700, 0.0043)):
        plan = SimplexSampling().plan(problem_of(n, 1000, HuberRegression(1.0)), Guarantee(1.0, 1e-6))
        assert plan.entropy == pytest.approx(entropy, rel=0.02)
        assert plan.certificate.expected == pytest.approx(excess, rel=0.02)
    many = SimplexSampling().plan(problem_of(10**5, 10**5, HuberRegression(1.0)), Guarantee(1.0, 1e-6))
    assert many.certificate.expected == pytest.approx(0.066, rel=0.03)


def test_number_of_draws_and_entropy_weight_are_two_ways_to_say_the_same():
    problem, guarantee = problem_of(2000, 10), Guarantee(1.0, 1e-6)
    plan = SimplexSampling(n_draws=20).plan(problem, guarantee)
    again = SimplexSampling(entropy_weight=plan.entropy / 2000 * (1 + 1e-6)).plan(problem, guarantee)
    assert again.n_draws == 20
    assert again.draw.scale == pytest.approx(plan.draw.scale, rel=1e-5)


@pytest.mark.parametrize(
    ("problem", "solver", "message"),
    [
        (problem_of(9, 3, geometry=L2Ball(1.0, 3)), SimplexSampling(), "needs a polytope"),
        (problem_of(9, 1), SimplexSampling(), "at least two"),
        (Problem(Logistic(), Bounds(), 9, 3), SimplexSampling(), "needs one"),
        (problem_of(9, 3, Hinge()), SimplexSampling(), "corners"),
        (problem_of(9, 3, l2=0.1), SimplexSampling(), "no l2"),
        (problem_of(9, 2, Softmax(2), Simplex(1.0, 4)), SimplexSampling(), "one output at a time"),
        (problem_of(9, 3), SimplexSampling(entropy_weight=1e-9), "use at least"),
        (problem_of(9, 3), SimplexSampling(n_draws=3, entropy_weight=1.0), "not both"),
        (problem_of(9, 3), SimplexSampling(n_draws=0), "at least 1"),
    ],
)
def test_refusals_name_what_to_do(problem, solver, message):
    with pytest.raises(ValueError, match=message):
        solver.plan(problem, Guarantee(1.0, 1e-6))


def test_registered_under_its_name():
    assert isinstance(base.resolve("simplex-sampling"), SimplexSampling)


# -- runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_release_is_an_average_of_vertices(convert):
    X, y = data(2000, 5)
    problem = problem_of(2000, 5)
    plan = SimplexSampling(n_draws=8).plan(problem, Guarantee(1.0, 1e-6))
    theta = plan.run([ArrayRecords(convert(X), y, problem.bounds)], fresh_entropy()).theta[0]
    assert theta.sum() == pytest.approx(1.0)
    assert np.all(theta >= 0)
    np.testing.assert_allclose(8 * theta, np.round(8 * theta), atol=1e-12)


def test_mean_risk_of_sampling_squared_loss_in_closed_form():
    """E F(average of m draws) - F(w) = mean_i (sum_j w_j x_ij^2 - <x_i, w>^2) / (2 m) for squared loss."""
    X, y = data(3000, 8)
    X *= np.random.default_rng(1).uniform(0.2, 1.0, size=X.shape)
    problem = problem_of(3000, 8)
    plan = SimplexSampling(n_draws=4).plan(problem, Guarantee(1.0, 1e-6))
    point = minimize(objective_of(problem, X, y, plan.entropy), 1e-6, 1e-8)
    w = plan.draw.probabilities(-point.gradient)

    def risk(theta):
        return float(np.mean((X @ theta - y) ** 2) / 2)

    expected = risk(w) + float(np.mean(X**2 @ w - (X @ w) ** 2)) / (2 * 4)
    records = [records_of(problem, X, y)]
    source = fresh_entropy()
    risks = np.array([risk(plan.run(records, source).theta[0]) for _ in range(200)])
    # The mean of 200 has 200 ** -.5 of the spread of one: 6 of these fail once in 5e8.
    assert abs(risks.mean() - expected) < 6 * risks.std() / math.sqrt(200)
    best = risk(nnls(np.vstack([X, 1e4 * np.ones(8)]), np.append(y, 1e4))[0])
    assert risks.mean() - best <= plan.certificate.expected
    assert np.quantile(risks, 0.95) - best <= plan.certificate.likely


def test_no_guarantee_no_noise_limit():
    """With an enormous budget the release is the minimizer itself, up to the draws."""
    X, y = data(500, 4)
    problem = problem_of(500, 4)
    plan = SimplexSampling(n_draws=2000).plan(problem, Guarantee(1e4, 1e-6))
    theta = plan.run([records_of(problem, X, y)], fresh_entropy()).theta[0]
    best = nnls(np.vstack([X, 1e4 * np.ones(4)]), np.append(y, 1e4))[0]
    assert np.abs(theta - best).max() < 6 * 0.5 / math.sqrt(2000)
