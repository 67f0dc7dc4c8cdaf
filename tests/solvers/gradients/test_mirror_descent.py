"""Mirror descent: its noise, its steps, its certificate."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from discreet.losses import Logistic, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.events import Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, BoxBounds
from discreet.sets import (
    Box,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexPolytope,
)
from discreet.sets.potentials import SquaredNorm
from discreet.solvers import base
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.vertices.frank_wolfe import FrankWolfe


def seeded(seed):
    with insecure_noise(seed):
        return fresh_entropy()


def rows(n=2000, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=n) > 0, 1.0, -1.0)


def problem_of(n, geometry, loss=None, **others):
    p = geometry.n_features
    return Problem(loss or Logistic(), Bounds(1.0, intercept=False), n, p, geometry=geometry, **others)


def mean_risk(problem, X, y, theta):
    return float(np.mean(problem.loss.value(y, X @ theta))) + (problem.l2 or 0.0) / 2 * np.sum(theta**2)


def minimum(problem, X, y):
    """Plain projected gradient descent, run long enough."""
    theta = problem.geometry.center()
    for _ in range(4000):
        slopes = problem.loss.derivative(y, X @ theta)
        theta = problem.geometry.project(theta - 2.0 * (X.T @ slopes / len(y) + (problem.l2 or 0.0) * theta))
    return mean_risk(problem, X, y, theta)


def test_squared_norm_is_projected_gradient_descent_bit_for_bit():
    X, y = rows()
    geometry = L1Ball(1.5, 6)
    problem = problem_of(2000, geometry)
    plan = MirrorDescent("squared-norm", n_iterations=25).plan(problem, Guarantee(1.0, 1e-6))
    records = ArrayRecords(X, y, problem.bounds)
    theta, average, entropy = np.zeros(6), np.zeros(6), seeded(1)
    for t in range(25):
        gradient = records.value_and_gradient(Logistic(), theta)[1]
        noisy = plan.release.release(gradient, entropy)
        theta = geometry.project(theta - plan.learning_rate / 2000 * noisy)
        average += (theta - average) / (t + 1)
    assert np.array_equal(plan.run([records], seeded(1)).theta[0], average)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.lemma("mirror-descent.md#section-1")
def test_noise_meets_the_guarantee_exactly(relation):
    guarantee = Guarantee(1.0, 1e-6, relation)
    plan = MirrorDescent(n_iterations=40).plan(problem_of(2000, L1Ball(1.0, 6)), guarantee)
    assert math.sqrt(40) / plan.noise_multiplier == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-4)
    price = accountants.delta(plan.event, 1.0, relation)
    assert 0.99e-6 <= price <= 1e-6


def test_every_model_is_charged_for():
    """Models are asked one after another, each with the noise of a release by itself."""
    problem = replace(problem_of(2000, L1Ball(1.0, 6)), n_models=3)
    plan = MirrorDescent(n_iterations=40).plan(problem, Guarantee(1.0, 1e-6))
    assert plan.event == Repeated(plan.release.event, 120)
    assert math.sqrt(120) / plan.noise_multiplier == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-4)


def test_sensitivity_over_the_ball_uses_the_relation():
    plans = {
        relation: MirrorDescent(n_iterations=5).plan(
            problem_of(2000, L2Ball(1.0, 4)), Guarantee(1.0, 1e-6, relation)
        )
        for relation in Neighboring
    }
    assert plans[Neighboring.REPLACE_ONE].release.sensitivity.value == pytest.approx(1.099095, rel=1e-4)
    assert plans[Neighboring.ZERO_OUT].release.sensitivity.value == pytest.approx(0.731059, rel=1e-4)


SETS = {
    "l1": L1Ball(1.5, 6),
    "l2": L2Ball(1.5, 6),
    "simplex": Simplex(1.5, 6),
    "box": Box((-0.5,) * 6, (0.7,) * 6),
    "groups": GroupedL1Ball(1.5, 6, 2),
    "interpolation": InterpolationBall(1.5, 6, 0.5),
    "vertices": VertexPolytope(1.5 * np.vstack([np.eye(6), -np.ones((1, 6)) / 6])),
    "nuclear": NuclearBall(1.5, (2, 3)),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("potential", ["squared-norm", "entropy", "q-norm"])
@pytest.mark.lemma("mirror-descent.md#theorem-1")
@pytest.mark.lemma("mirror-descent.md#theorem-2")
def test_certificate_is_respected_or_the_pair_refused(name, potential):
    X, y = rows(3000)
    problem = problem_of(3000, SETS[name])
    solver = MirrorDescent(potential, max_iterations=60)
    meant = {
        "squared-norm": SETS,
        "entropy": ("l1", "simplex", "vertices"),
        "q-norm": ("l1", "groups", "nuclear"),
    }
    if name not in meant[potential]:
        with pytest.raises(ValueError, match="potential is for"):
            solver.plan(problem, Guarantee(2.0, 1e-6))
        return
    plan = solver.plan(problem, Guarantee(2.0, 1e-6))
    records = ArrayRecords(X, y, problem.bounds)
    best = minimum(problem, X, y)
    excess = [mean_risk(problem, X, y, plan.run([records], seeded(k)).theta[0]) - best for k in range(4)]
    assert np.mean(excess) <= plan.certificate.expected
    assert min(excess) >= -1e-7


@pytest.mark.parametrize("potential", ["squared-norm", "entropy", "q-norm"])
def test_without_noise_it_converges(potential):
    X, y = rows(500)
    problem = problem_of(500, L1Ball(1.5, 6), l2=0.01)
    plan = MirrorDescent(potential, n_iterations=400).plan(problem, Guarantee(1e8, 1e-6))
    found = plan.run([ArrayRecords(X, y, problem.bounds)], seeded(3)).theta[0]
    gap = mean_risk(problem, X, y, found) - minimum(problem, X, y)
    assert gap <= plan.certificate.expected < 0.02


def test_step_and_steps_minimize_the_bound():
    problem, guarantee = problem_of(5000, L1Ball(1.0, 50)), Guarantee(1.0, 1e-6)
    best = MirrorDescent("entropy").plan(problem, guarantee)
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = MirrorDescent(
            "entropy", n_iterations=best.n_iterations, learning_rate=best.learning_rate * factor
        )
        assert other.plan(problem, guarantee).certificate.expected >= best.certificate.expected
    longest = MirrorDescent("entropy", n_iterations=500).plan(problem, guarantee)
    assert best.certificate.expected <= 1.06 * longest.certificate.expected
    assert best.n_iterations <= 500


def test_dimension_costs_a_logarithm_on_the_l1_ball_and_a_root_on_the_l2_ball():
    def expected(geometry):
        problem = problem_of(1_000_000, geometry)
        kind = "entropy" if isinstance(geometry, L1Ball) else "squared-norm"
        return (
            MirrorDescent(kind, max_iterations=100_000)
            .plan(problem, Guarantee(0.1, 1e-12))
            .certificate.expected
        )

    root = math.log(expected(L2Ball(1.0, 10_000)) / expected(L2Ball(1.0, 100))) / math.log(100)
    assert root == pytest.approx(0.5, abs=0.05)
    assert (
        expected(L1Ball(1.0, 10_000)) / expected(L1Ball(1.0, 100)) <= math.log(20_000) / math.log(200) * 1.05
    )


def test_auto_prefers_entropy_or_q_norm_on_large_l1_balls():
    guarantee = Guarantee(1.0, 1e-6)
    assert (
        MirrorDescent().plan(problem_of(10_000, L1Ball(1.0, 1000)), guarantee).potential.name
        != "squared-norm"
    )
    assert MirrorDescent().plan(problem_of(10_000, L2Ball(1.0, 10)), guarantee).potential == SquaredNorm()


def test_squared_loss_with_bounded_entries():
    rng = np.random.default_rng(5)
    X = rng.choice([-1.0, 1.0], size=(4000, 8))
    y = 0.6 * X[:, 0]
    problem = Problem(Squared(1.0, 1.0), BoxBounds.of(8, intercept=False), 4000, 8, geometry=L1Ball(1.0, 8))
    plan = MirrorDescent(max_iterations=100).plan(problem, Guarantee(3.0, 1e-6))
    release = plan.run([ArrayRecords(X, y, problem.bounds)], seeded(6))
    assert np.mean((X @ release.theta[0] - y) ** 2) / 2 <= plan.certificate.expected
    assert release.certificate == plan.certificate


def test_refusals_and_words():
    problem = problem_of(100, L1Ball(1.0, 6))
    with pytest.raises(ValueError, match="requires delta > 0"):
        base.resolve("mirror-descent").plan(problem, Guarantee(1.0))
    with pytest.raises(ValueError, match="needs one"):
        MirrorDescent().plan(Problem(Logistic(), Bounds(), 100, 6), Guarantee(1.0, 1e-6))
    with pytest.raises(ValueError, match="unknown potential"):
        MirrorDescent("cosine").plan(problem, Guarantee(1.0, 1e-6))
    plan = MirrorDescent().plan(problem, Guarantee(1.0, 1e-6))
    assert "excess risk at most" in str(plan)
    assert "mirror descent" in plan.mechanism


def test_strong_convexity_helps_and_is_respected():
    X, y = rows(3000)
    plain = problem_of(3000, L2Ball(2.0, 6))
    strong = problem_of(3000, L2Ball(2.0, 6), l2=0.2)
    guarantee = Guarantee(2.0, 1e-6)
    plan = MirrorDescent("squared-norm").plan(strong, guarantee)
    assert plan.decay < 1
    assert (
        plan.certificate.expected < MirrorDescent("squared-norm").plan(plain, guarantee).certificate.expected
    )
    records, best = ArrayRecords(X, y, strong.bounds), minimum(strong, X, y)
    excess = [mean_risk(strong, X, y, plan.run([records], seeded(k)).theta[0]) - best for k in range(8)]
    assert -1e-9 <= np.mean(excess) <= plan.certificate.expected


def test_certificate_rates_in_the_number_of_records():
    """Noise dominated: 1/n for convex, 1/n^2 (up to a logarithm) for strongly convex objectives."""

    def expected(n, **others):
        problem = problem_of(n, L2Ball(1.0, 50), **others)
        return (
            MirrorDescent("squared-norm", max_iterations=10**6)
            .plan(problem, Guarantee(0.5, 1e-9))
            .certificate.expected
        )

    assert math.log(expected(160_000) / expected(10_000)) / math.log(16) == pytest.approx(-1.0, abs=0.1)
    slope = math.log(expected(160_000, l2=0.5) / expected(10_000, l2=0.5)) / math.log(16)
    assert slope == pytest.approx(-2.0, abs=0.3)


def almost_linear_excess(n, p, repeats=40):
    """Mean excess risk of the hardest linear instance: a mean as large as what the noise hides.

    On a ball of radius 1e-5 the logistic loss is as good as -<theta, d> / 2, d = y x. Most rows cancel, the others
    agree just often enough.
    """
    geometry = L2Ball(1e-5, p)
    problem = problem_of(n, geometry)
    plan = MirrorDescent("squared-norm", n_iterations=30).plan(problem, Guarantee(1.0, 1e-6))
    # All T noisy gradients see the same mean, so what counts is the noise of their average.
    hidden = plan.release.stddev * math.sqrt(p / 30) / n
    rng = np.random.default_rng(p)
    direction = rng.choice([-1.0, 1.0], size=p) / math.sqrt(p)
    agreeing = round(n * min(1.0, 2 * hidden) / 2) * 2
    signs = np.ones(n)
    signs[agreeing:] = np.tile([1.0, -1.0], (n - agreeing) // 2)
    X = signs[:, None] * direction
    records = ArrayRecords(X, np.ones(n), problem.bounds)
    best = mean_risk(problem, X, np.ones(n), 1e-5 * direction)
    found = [
        mean_risk(problem, X, np.ones(n), plan.run([records], seeded(k)).theta[0]) - best
        for k in range(repeats)
    ]
    assert np.mean(found) <= plan.certificate.expected
    return np.mean(found)


@pytest.mark.nightly
def test_measured_rates_on_the_hardest_linear_instance():
    """Excess risk falls like 1/n and grows like sqrt(p), within 0.15."""
    in_n = math.log(almost_linear_excess(16_000, 20) / almost_linear_excess(2_000, 20)) / math.log(8)
    assert in_n == pytest.approx(-1.0, abs=0.15)
    in_p = math.log(almost_linear_excess(8_000, 128) / almost_linear_excess(8_000, 8)) / math.log(16)
    assert in_p == pytest.approx(0.5, abs=0.15)


class Leaving(L1Ball):
    """A ball whose answers lie outside it, as those of a set that somebody else wrote may."""

    def project(self, theta):
        return 2 * super().project(theta)

    def linear_minimizer(self, direction):
        return 2 * super().linear_minimizer(direction)


@pytest.mark.parametrize(
    "solver",
    [
        MirrorDescent("squared-norm", n_iterations=6, learning_rate=1e15),
        FrankWolfe(n_iterations=6, choice="gradient"),
    ],
    ids=["mirror-descent", "frank-wolfe"],
)
def test_no_step_leaves_the_ball_of_the_sensitivity(solver):
    problem = Problem(Logistic(), Bounds(1.0, intercept=False), 10, 2, geometry=Leaving(1.0001, 2))
    asked = []

    class Watched(ArrayRecords):
        def value_and_gradient(self, loss, theta):
            asked.append(float(np.linalg.norm(theta)))
            return super().value_and_gradient(loss, theta)

    records = Watched(np.tile([1.0, 0.3], (10, 1)), np.ones(10), problem.bounds)
    solver.plan(problem, Guarantee(1.0, 1e-2)).run([records], fresh_entropy())
    assert 1.0 < max(asked) <= 1.0001 * (1 + 2.0**-50)


def test_a_set_of_one_point():
    problem = Problem(Squared(1.0, 1.0), BoxBounds.of(1, intercept=False), 50, 1, geometry=Simplex(1.0, 1))
    plan = MirrorDescent().plan(problem, Guarantee(1.0, 1e-3))
    records = ArrayRecords(np.ones((50, 1)), np.ones(50), problem.bounds)
    assert plan.run([records], fresh_entropy()).theta == pytest.approx(1.0)
