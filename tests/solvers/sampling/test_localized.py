"""Localization: both stages priced, the radius an exact quantile, the law exact, the gain as foretold."""

import math

import numpy as np
import pytest
import scipy.stats

from discreet import PrivateLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import HuberHinge, HuberRegression, Logistic
from discreet.mechanisms.gamma_norm import GammaNormNoise
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import L2Ball
from discreet.solvers.sampling import envelopes
from discreet.solvers.sampling.envelopes import Energy
from discreet.solvers.sampling.expected_tries import find_center
from discreet.solvers.sampling.exponential import ExponentialSampling
from discreet.solvers.sampling.localized import Localized

pytestmark = pytest.mark.slow

FAILURE = 1e-8


def invented(n, p, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-4 * rows[:, 0])), 1.0, -1.0)
    return ArrayRecords(rows, y, Bounds(1.0, intercept=False), n_threads=1)


def problem_of(records, l2=None, **options):
    return Problem(Logistic(), records.bounds, records.n_samples, records.n_features, l2=l2, **options)


def plan_of(records, epsilon=1.0, l2=0.1):
    return Localized(clock=False).plan(problem_of(records, l2), Guarantee(epsilon))


@pytest.mark.lemma("exponential-sampling.md#theorem-7")
def test_price_is_the_sum_of_both_stages():
    records = invented(1000, 5)
    for relation in Neighboring:
        for models in (1, 3):
            problem = problem_of(records, 0.05, n_models=models)
            plan = Localized().plan(problem, Guarantee(0.7, 0.0, relation))
            assert accountants.delta(plan.event, 0.7, relation) == 0.0
            spent = accountants.epsilon(plan.event, 0.0, relation)
            assert 0.7 * (1 - 1e-9) <= spent <= 0.7


def test_radius_is_the_quantile_of_the_noise():
    plan = plan_of(invented(200, 4))
    noise = GammaNormNoise(plan.start.output.scale)
    lengths = np.array([np.linalg.norm(noise.draw(4, fresh_entropy())) for _ in range(4000)])
    outside = int(np.sum(lengths > plan.radius))
    assert scipy.stats.binom.sf(outside - 1, 4000, 1 / 200) > FAILURE
    assert scipy.stats.binom.cdf(outside, 4000, 0.9 / 200) > FAILURE
    several = Localized().plan(problem_of(invented(200, 4), 0.1, n_models=3), Guarantee(1.0))
    noise = GammaNormNoise(several.start.output.scale)
    lengths = np.array(
        [np.linalg.norm(noise.draw((3, 4), fresh_entropy()), axis=1).max() for _ in range(2000)]
    )
    assert scipy.stats.binom.sf(int(np.sum(lengths > several.radius)) - 1, 2000, 1 / 200) > FAILURE


def test_radius_beats_that_of_the_paper():
    plan = plan_of(invented(2000, 20))
    assert plan.radius < plan.start.output.scale * 3 * 20 * math.log(2000) / 10


@pytest.mark.nightly
def test_law_on_two_balls_against_quadrature():
    """Both constraints bind; coordinates of the second stage against a fine grid."""
    records = invented(400, 2, seed=1)
    plan = plan_of(records, 6.0, 0.02)
    middle = np.array([plan.outer * 0.5, 0.3])
    gibbs = plan.gibbs(middle)
    balls = (
        type(gibbs.balls[0])((0.0, 0.0), float(np.linalg.norm(middle)) + 0.2 * plan.radius),
        gibbs.balls[1],
    )
    gibbs = type(gibbs)(gibbs.epsilon, balls, gibbs.grid)
    energy = Energy(records, Logistic(), plan.rate, plan.l2)
    floor = plan.shape.tilt_floor
    envelope = envelopes.build(energy, balls, gibbs.grid, find_center(energy, balls, floor), floor)
    entropy, found = fresh_entropy(), []
    while len(found) < 3000:
        found += [point for point, _, ok in gibbs.tries(energy, envelope, entropy, 2048) if ok]
    sample = np.array(found[:3000])
    axes = [np.linspace(m - plan.radius, m + plan.radius, 401) for m in middle]
    cube = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    inside = [np.square(cube - ball.center).sum(1) <= ball.radius**2 for ball in balls]
    cube = cube[inside[0] & inside[1]]
    raw = records.raw_predictions(cube.T.copy())
    energies = plan.rate * np.logaddexp(0.0, -records.labels[:, None] * raw).sum(0)
    energies += 0.5 * plan.rate * plan.l2 * np.square(cube).sum(1)
    weights = np.exp(energies.min() - energies)
    for direction in ([1.0, 0.0], [0.0, 1.0], [0.6, 0.8]):
        order = np.argsort(cube @ direction)
        values, cumulative = (cube @ direction)[order], np.cumsum(weights[order]) / weights.sum()
        test = scipy.stats.kstest(sample @ direction, lambda x, v=values, c=cumulative: np.interp(x, v, c))
        assert test.statistic < 0.008 + scipy.stats.kstwobign.isf(FAILURE) / math.sqrt(3000)


@pytest.mark.nightly
def test_it_beats_the_plain_mechanism_by_about_the_foretold_factor():
    """Excess of the regularized sum of losses, strongly convex, against p / rate of both."""
    records = invented(6000, 5, seed=2)
    problem = problem_of(records, 0.2)
    guarantee = Guarantee(1.0)
    local = Localized(clock=False).plan(problem, guarantee)
    plain = ExponentialSampling(radius=local.outer, clock=False).plan(problem, guarantee)
    assert plain.rate < local.rate / 4

    def excess(plan, repeats):
        energy = Energy(records, Logistic(), 1.0, plan.l2)
        best = min(
            energy(find_center(Energy(records, Logistic(), 1e3, plan.l2), plain.gibbs.balls, 1e-6)),
            1e18,
        )
        return np.mean([energy(plan.run([records], fresh_entropy()).theta[0]) - best for _ in range(repeats)])

    # The excess of p coordinates is gamma-like with mean p / (2 rate): 24 repeats know it to 15%.
    gain = excess(plain, 24) / excess(local, 24)
    foretold = local.rate / plain.rate
    assert 0.3 * foretold < gain < 3.0 * foretold


def test_it_refuses_before_any_charge_what_would_take_too_long():
    with pytest.raises(ValueError, match="solver='objective'"):
        Localized(most_tries=10).plan(problem_of(invented(100, 30), 1e-3), Guarantee(0.1))
    with pytest.raises(ValueError, match="label_bound"):
        Localized().plan(Problem(HuberRegression(1.0), Bounds(), 100, 4), Guarantee(1.0))


def test_flat_hinges_are_refused_and_rare_labels_end():
    """Labels that nothing explains leave a hinge flat near its minimum; what is foretold is for those, too."""
    with pytest.raises(ValueError, match="would take about"):
        Localized().plan(Problem(HuberHinge(0.5), Bounds(1.0, intercept=False), 20_000, 10), Guarantee(1.0))
    places = np.arange(20_000)
    y = np.where((places // 10) % 10 == 0, 1, -1)
    model = PrivateLogisticRegression(1.0, 0.0, classes=[-1, 1], fit_intercept=False, solver="localized")
    assert np.all(model.fit(np.eye(10)[places % 10], y).coef_ < 0.0)


def test_the_problems_ball_is_respected():
    records = invented(500, 3)
    problem = problem_of(records, 0.05, geometry=L2Ball(0.4, 3))
    plan = Localized(clock=False).plan(problem, Guarantee(1.0))
    for _ in range(5):
        assert np.linalg.norm(plan.run([records], fresh_entropy()).theta[0]) <= 0.4


def test_the_estimator_and_its_replay():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 3))
    y = (rows @ [1.0, -2.0, 0.5] > 0).astype(int)
    model = PrivateLogisticRegression(1.0, 0.0, classes=[0, 1], solver="localized").fit(rows, y)
    assert model.score(rows, y) > 0.8
    other = y.copy()
    other[0] = 1 - other[0]
    found = replay(fitting(model), (rows[:40], y[:40]), (rows[:40], other[:40]))
    assert found.passed, str(found)
