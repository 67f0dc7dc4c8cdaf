"""The exponential mechanism on a ball: the sampler's law, the privacy ratio, refusals and the estimator."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

from discreet import Ledger, PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import Hinge, HuberHinge, HuberRegression, Linear, Logistic, Quantile, Softmax, Squared
from discreet.mechanisms.gibbs import GibbsMechanism
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.events import BoundedRange, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import GroupedL1Ball, L2Ball
from discreet.solvers.sampling import envelopes
from discreet.solvers.sampling.envelopes import Energy, energy_range, value_rounding
from discreet.solvers.sampling.expected_tries import find_center, log_tries
from discreet.solvers.sampling.exponential import ExponentialSampling

pytestmark = pytest.mark.slow

FAILURE = 1e-8  # chance that a test fails with fresh noise
LOSSES = [
    Logistic(),
    HuberHinge(0.5),
    HuberHinge(1e-3),
    Hinge(),
    Squared(2.0, 1.5),
    HuberRegression(0.7),
    Quantile(0.3),
]
LABEL_BOUND = 1.5


def classes(loss):
    return loss.family in ("logistic", "monotone")


def labels(loss, n, rng):
    return np.where(rng.random(n) < 0.7, 1.0, -1.0) if classes(loss) else rng.uniform(-1.5, 1.5, n)


def invented(n, p, loss=None, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p)) * spread
    return ArrayRecords(rows, labels(loss or Logistic(), n, rng), Bounds(1.0, intercept=False), n_threads=1)


def plan_of(records, radius, epsilon=1.0, loss=None, relation=Neighboring.REPLACE_ONE, l2=None, **options):
    loss = loss or Logistic()
    bound = None if classes(loss) else LABEL_BOUND
    problem = Problem(loss, records.bounds, records.n_samples, records.n_features, 1, l2, None, bound)
    solver = ExponentialSampling(radius=radius, clock=False, **options)
    return solver.plan(problem, Guarantee(epsilon, 0.0, relation))


def prepared(plan, records, center=None):
    """The energy, and an envelope that touches at ``center``."""
    energy = Energy(records, plan.problem.loss, plan.rate, plan.l2)
    floor = plan.shape.tilt_floor
    if center is None:
        center = find_center(energy, plan.gibbs.balls, floor)
    return energy, envelopes.build(energy, plan.gibbs.balls, plan.gibbs.grid, center, floor)


def draws(plan, records, count, center=None, entropy=None):
    """Independent samples of the released law, all from one envelope."""
    energy, envelope = prepared(plan, records, center)
    entropy = entropy or fresh_entropy()
    found = []
    while len(found) < count:
        found += [point for point, _, ok in plan.gibbs.tries(energy, envelope, entropy, 2048) if ok]
    return np.array(found[:count])


def exponent_at(envelope, theta):
    """Q at any grid point: undo the proposal's steps."""
    law, p = envelope.proposal, len(theta)
    ratios = (law.factor / np.diag(law.factor)).T
    noise = np.empty(p, dtype=np.int64)
    for j in range(p - 1, -1, -1):
        center = law.mean[j] - ratios[j, j + 1 :] @ (theta[j + 1 :] - law.mean[j + 1 :])
        noise[j] = int(theta[j] / law.grid) - int(np.rint(center / law.grid))
    return float(law.exponent(noise[None])[0])


def density_1d(records, loss, rate, radius, points):
    raw = records.raw_predictions(np.ones(1))
    losses = np.array([loss.value(records.labels, raw * theta).sum() for theta in points])
    weights = np.exp(-rate * (losses - losses.min()))
    return weights / np.trapezoid(weights, points)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.lemma("exponential-sampling.md#theorem-2")
def test_law_in_one_dimension_against_quadrature(loss):
    records = invented(60, 1, loss)
    plan = plan_of(records, 1.7, 2.0, loss)
    sample = draws(plan, records, 4000)[:, 0]
    points = np.linspace(-1.7, 1.7, 4001)
    density = density_1d(records, loss, plan.rate, 1.7, points)
    cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(points))])
    assert scipy.stats.kstest(sample, lambda x: np.interp(x, points, cumulative)).pvalue > FAILURE


@pytest.mark.parametrize("radius", [1.0, 3.0])
@pytest.mark.nightly
def test_law_in_two_dimensions_against_quadrature(radius):
    """Both coordinates and the norm; the constraint binds."""
    records = invented(400, 2, seed=3)
    plan = plan_of(records, radius, 4.0)
    sample = draws(plan, records, 4000)
    axis = np.linspace(-radius, radius, 401)
    cube = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    cube = cube[np.square(cube).sum(1) <= radius**2]
    raw = records.raw_predictions(cube.T.copy())
    energies = plan.rate * np.logaddexp(0.0, -records.labels[:, None] * raw).sum(0)
    weights = np.exp(energies.min() - energies)
    for feature in (lambda t: t[:, 0], lambda t: t[:, 1], lambda t: t @ [0.6, -0.8]):
        order = np.argsort(feature(cube))
        values, cumulative = feature(cube)[order], np.cumsum(weights[order]) / weights.sum()
        # A grid of 401 points per axis leaves an error of about 1 / 401 in the distribution function.
        distance = scipy.stats.kstest(feature(sample), lambda x, v=values, c=cumulative: np.interp(x, v, c))
        assert distance.statistic < 0.006 + scipy.stats.kstwobign.isf(FAILURE) / math.sqrt(4000)


@pytest.mark.parametrize(
    ("p", "radius", "epsilon"), [(3, 2.0, 1.0), (10, 1.5, 1.0), (40, 1.0, 1.0), (100, 1.0, 0.5)]
)
def test_stein_identities(p, radius, epsilon):
    """E[(B^2 - |theta|^2) dE/dtheta_j + 2 theta_j] = 0 for every coordinate, as Hotelling's test sees it."""
    n, count = 1500, 1500
    records = invented(n, p, seed=p)
    plan = plan_of(records, radius, epsilon)
    energy = Energy(records, Logistic(), plan.rate)
    sample = draws(plan, records, count)
    gradients = np.array([energy.gradient(theta)[1] for theta in sample])
    slack = radius**2 - np.square(sample).sum(1, keepdims=True)
    terms = slack * gradients + 2 * sample
    mean = terms.mean(0)
    squared = count * mean @ np.linalg.solve(np.cov(terms.T), mean)
    assert scipy.stats.f(p, count - p).sf(squared * (count - p) / (p * (count - 1))) > FAILURE


def test_squared_loss_is_a_truncated_normal():
    records = invented(50, 1, Squared(3.0, 1.5), seed=5)
    plan = plan_of(records, 3.0, 3.0, Squared(3.0, 1.5))
    raw = records.raw_predictions(np.ones(1))
    precision = plan.rate * float(raw @ raw)
    mean = plan.rate * float(raw @ records.labels) / precision
    low, high = (-3.0 - mean) * math.sqrt(precision), (3.0 - mean) * math.sqrt(precision)
    law = scipy.stats.truncnorm(low, high, mean, 1 / math.sqrt(precision))
    assert scipy.stats.kstest(draws(plan, records, 4000)[:, 0], law.cdf).pvalue > FAILURE


def test_law_does_not_depend_on_the_center():
    records = invented(500, 4, seed=2)
    plan = plan_of(records, 1.5, 3.0)
    one = draws(plan, records, 3000)
    two = draws(plan, records, 3000, center=np.array([0.4, -0.5, 0.3, 0.2]))
    for direction in np.eye(4):
        assert scipy.stats.ks_2samp(one @ direction, two @ direction).pvalue > FAILURE


def test_law_does_not_depend_on_the_tilt(monkeypatch):
    records = invented(500, 4, seed=2)
    plan = plan_of(records, 1.5, 3.0)
    one = draws(plan, records, 3000)
    genuine = envelopes.best_tilts
    monkeypatch.setattr(envelopes, "best_tilts", lambda *a: [3 * tilt + 1 for tilt in genuine(*a)])
    two = draws(plan, records, 3000)
    for direction in np.eye(4):
        assert scipy.stats.ks_2samp(one @ direction, two @ direction).pvalue > FAILURE


def test_a_wrong_envelope_is_caught():
    """The twin whose proposal is not below its bound: acceptance is clipped at 1 and the law is wrong."""
    records = invented(60, 1)
    plan = plan_of(records, 1.7, 8.0)
    energy, envelope = prepared(plan, records)
    shifted = replace(envelope.proposal, mean=envelope.proposal.mean + 0.5)
    broken = replace(envelope, proposal=shifted, tilts=(0.0,), refine=None)
    entropy, found = fresh_entropy(), []
    while len(found) < 4000:
        found += [point[0] for point, _, ok in plan.gibbs.tries(energy, broken, entropy, 2048) if ok]
    points = np.linspace(-1.7, 1.7, 4001)
    density = density_1d(records, Logistic(), plan.rate, 1.7, points)
    cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(points))])
    assert scipy.stats.kstest(found, lambda x: np.interp(x, points, cumulative)).pvalue < FAILURE


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.lemma("exponential-sampling.md#lemma-4")
def test_envelope_holds_at_random_points_of_the_ball(loss, sparse):
    rng = np.random.default_rng(1)
    records = invented(300, 5, loss, seed=7)
    if sparse:
        records = ArrayRecords(sp.csr_array(records.matrix), records.labels, records.bounds)
    plan = plan_of(records, 1.9, 2.0, loss, most_tries=1e9)
    energy, envelope = prepared(plan, records)
    for scale in rng.uniform(0.0, 1.0, 200) ** 0.2:
        direction = rng.normal(size=5)
        theta = (
            np.rint(direction / np.linalg.norm(direction) * 1.899 * scale / plan.gibbs.grid) * plan.gibbs.grid
        )
        drop = energy(theta) - exponent_at(envelope, theta) + envelope.log_bound
        least = 0.5 * envelope.tilts[0] * (1.9**2 - theta @ theta)
        assert drop >= least - 1e-9
        assert not envelope.refine(theta, drop - least + 1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_parabolas_stay_below(loss):
    rng = np.random.default_rng(0)
    for low, high in [(-1.0, 1.0), (-8.0, 8.0), (0.3, 0.31), (-2.0, 5.0)]:
        t = np.linspace(low, high, 2001)
        for y in (-1.0, 1.0) if classes(loss) else (-1.5, 0.2, 1.5):
            tangents = np.concatenate([rng.uniform(low, high, 20), [low, high, low + 1e-8, high - 1e-9]])
            ones = np.ones(len(tangents))
            bends = envelopes.minorant_curvatures(loss, y * ones, tangents, low * ones, high * ones, 12.0)
            for z, bend in zip(tangents, bends, strict=True):
                below = loss.value(y, z) + loss.derivative(y, z) * (t - z) + 0.5 * bend * (t - z) ** 2
                assert np.all(loss.value(y, t) >= below - 1e-12)
            assert np.all(bends >= 0)


def test_early_rejections_change_nothing():
    """Same words, with and without the shortcuts: the same point."""
    records = invented(3000, 6, seed=4)
    plan = plan_of(records, 3.0, 1.0)
    energy, envelope = prepared(plan, records)
    plain = type(envelope)(envelope.proposal, envelope.tilts, envelope.log_bound)
    for seed in range(5):
        with insecure_noise(seed):
            first = plan.gibbs.release(energy, lambda: envelope, fresh_entropy())
        with insecure_noise(seed):
            second = plan.gibbs.release(energy, lambda: plain, fresh_entropy())
        assert np.array_equal(first, second)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.lemma("exponential-sampling.md#theorem-1")
def test_worst_pair_reaches_epsilon_and_not_more(relation, epsilon):
    """Exact densities of two neighbors in one dimension, by quadrature."""
    rows = np.full((4000, 1), 1.0)
    y = np.ones(4000)
    bounds = Bounds(1.0, intercept=False)
    null = np.zeros(4000, dtype=bool)
    if relation is Neighboring.REPLACE_ONE:
        other = ArrayRecords(rows, np.where(np.arange(4000) == 0, -1.0, 1.0), bounds)
    else:
        null[0] = True
        other = ArrayRecords(rows, y, bounds, null)
    records = ArrayRecords(rows, y, bounds)
    plan = plan_of(records, 2.0, epsilon, relation=relation)
    points = np.linspace(-2.0, 2.0, 20_001)
    log_density = []
    for part in (records, other):
        energies = np.array([Energy(part, Logistic(), plan.rate)(np.array([t])) for t in points[::50]])
        energies = np.interp(points, points[::50], energies)
        log_density.append(
            -energies - np.log(np.trapezoid(np.exp(energies.min() - energies), points)) + energies.min()
        )
    ratio = np.abs(log_density[0] - log_density[1]).max()
    assert 0.95 * epsilon <= ratio <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
def test_rounding_of_four_sums_is_part_of_the_range(relation):
    """Each of two neighbors' energies is computed at two points."""
    sizes, reach = (10**6, 20), 3.0
    exact = relation.contributions * Logistic().value_range(reach)
    rounding = value_rounding(Logistic(), *sizes, reach, 0.0)
    assert rounding > 1e-9 * exact
    declared = energy_range(Logistic(), *sizes, reach, None, relation)
    assert declared == pytest.approx(exact + 4 * rounding, rel=1e-11)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_range_bounds_every_pair(loss):
    t = np.linspace(-2.0, 2.0, 2001)
    bound = None if classes(loss) else LABEL_BOUND
    worst = 0.0
    for y in (-1.0, 1.0) if classes(loss) else np.linspace(-1.5, 1.5, 61):
        worst = max(worst, float(np.ptp(loss.value(y, t))))
    declared = loss.value_range(2.0, bound)
    assert worst <= declared <= (1.001 if not isinstance(loss, Quantile) else 1.3) * worst
    full = energy_range(loss, 1000, 5, 2.0, bound, Neighboring.REPLACE_ONE)
    assert 2 * declared < full < 2 * declared + 1e-6


def test_rounding_of_the_sum_is_within_its_bound():
    records = invented(20_000, 30, seed=9)
    theta = np.random.default_rng(0).normal(size=30)
    theta *= 8.0 / np.linalg.norm(theta)
    rows = records.matrix.astype(np.longdouble) * records.scales[:, None]
    exact = np.logaddexp(np.longdouble(0), -records.labels * (rows @ theta.astype(np.longdouble))).sum()
    error = abs(records.value_and_gradient(Logistic(), theta)[0] - float(exact))
    assert error < value_rounding(Logistic(), 20_000, 30, 8.0, 1.0) < 1e-6


def test_enumeration_has_the_exact_law():
    records = invented(40, 2, seed=6)
    plan = plan_of(records, 1.0, 6.0, method="grid")
    energy = Energy(records, Logistic(), 1.0)
    scores = np.array([-energy(point) for point in plan.points])
    expected = plan.selection.probabilities(scores)
    ratio = np.log(expected / expected.max()) / (scores - scores.max() - 1e-300)
    assert np.allclose(ratio[scores < scores.max() - 1e-3], plan.rate, rtol=1e-6)
    assert plan.run([records], fresh_entropy()).theta[0].tolist() in plan.points.tolist()


def test_enumeration_is_for_few_coefficients():
    with pytest.raises(ValueError, match="at most 3 coefficients"):
        plan_of(invented(10, 4), 1.0, method="grid")


def test_impractical_plans_are_refused_before_any_charge(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=0.0)
    rows = np.random.default_rng(0).normal(size=(3000, 30))
    y = np.arange(3000) % 2
    model = PrivateLogisticRegression(
        1.0, 0.0, classes=[0, 1], solver=ExponentialSampling(radius=400.0), ledger=ledger
    )
    with pytest.raises(ValueError, match=r"tries .*solver='objective' or 'localized'"):
        model.fit(rows, y)
    assert ledger.history() == []


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(Softmax(3), Bounds(), 100, 4), "multi_class='ovr'"),
        (Problem(Logistic(), Bounds(), 100, 4, geometry=GroupedL1Ball(1.0, 4, 2)), "not from GroupedL1Ball"),
        (Problem(HuberRegression(1.0), Bounds(), 100, 4), "label_bound"),
        (Problem(Linear(), Bounds(), 100, 4), "pass solver='objective'"),
        (Problem(Logistic(), Bounds(), 100, 20_000), "up to 500 coefficients"),
    ],
)
def test_refusals(problem, message):
    with pytest.raises(ValueError, match=message):
        ExponentialSampling().plan(problem, Guarantee(1.0))


def test_the_problems_ball_is_used():
    problem = Problem(Logistic(), Bounds(), 500, 4, geometry=L2Ball(0.7, 4))
    assert ExponentialSampling(radius=3.0).plan(problem, Guarantee(1.0)).radius == 0.7


@pytest.mark.nightly
def test_default_radius_shrinks_until_it_is_practical():
    problem = Problem(Hinge(), Bounds(), 20_000, 30)
    free = ExponentialSampling(most_tries=1e9).plan(problem, Guarantee(1.0))
    tight = ExponentialSampling(most_tries=1000).plan(problem, Guarantee(1.0))
    assert tight.radius < free.radius
    assert tight.expected_tries <= 1000 < replace(tight, radius=tight.radius / 0.9).expected_tries


def test_no_rows_and_null_rows_are_drawn_like_others():
    null = np.ones(3, dtype=bool)
    bounds = Bounds(1.0, intercept=False)
    problem = Problem(Logistic(), bounds, 3, 2)
    plan = ExponentialSampling(radius=1.0, clock=False).plan(problem, Guarantee(1.0))
    for records in (
        ArrayRecords(np.zeros((0, 2)), [], bounds),
        ArrayRecords(np.full((3, 2), np.nan), [1.0, 1.0, 1.0], bounds, null),
    ):
        assert np.linalg.norm(plan.run([records], fresh_entropy()).theta) <= 1.0


def test_targets_beyond_their_bound_count_as_the_bound():
    loss, bounds = HuberRegression(5.0), Bounds(1.0, intercept=False)
    problem = Problem(loss, bounds, 50, 1, label_bound=1.0)
    plan = ExponentialSampling(radius=1.0, clock=False).plan(problem, Guarantee(1.0))
    released = []
    for y in (1.0, 1e6):
        with insecure_noise(3):
            released.append(
                plan.run([ArrayRecords(np.ones((50, 1)), np.full(50, y), bounds)], fresh_entropy()).theta
            )
    assert np.array_equal(*released)


def test_event_is_worth_the_guarantee():
    plan = plan_of(invented(100, 3), 1.0, 0.8)
    assert plan.event == BoundedRange(0.8)
    assert accountants.delta(plan.event, 0.8, Neighboring.REPLACE_ONE) == 0.0
    problem = Problem(Logistic(), Bounds(), 500, 4, n_models=5)
    several = ExponentialSampling().plan(problem, Guarantee(1.0))
    assert several.event == Repeated(BoundedRange(several.epsilon), 5)
    # What it declares of its energies is what it costs.
    assert GibbsMechanism(0.8, (), 1.0).event == BoundedRange(0.8)
    assert accountants.delta(several.event, 1.0, Neighboring.REPLACE_ONE) == 0.0
    approximate = ExponentialSampling().plan(problem, Guarantee(1.0, 1e-3))
    assert approximate.epsilon >= several.epsilon
    assert accountants.delta(approximate.event, 1.0, Neighboring.REPLACE_ONE) <= 1e-3


def test_estimators_learn_and_state_pure_privacy():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 3))
    y = (rows @ [1.0, -2.0, 0.5] > 0).astype(int)
    model = PrivateLogisticRegression(1.0, 0.0, classes=[0, 1], solver="exponential").fit(rows, y)
    assert model.score(rows, y) > 0.85
    assert model.privacy_.delta == 0.0
    svc = PrivateLinearSVC(1.0, 0.0, classes=[0, 1], solver="exponential").fit(rows, y)
    assert svc.score(rows, y) > 0.85
    three = PrivateLogisticRegression(3.0, 0.0, classes=[0, 1, 2], solver="exponential")
    assert three.fit(rows, y + (rows[:, 0] > 1)).coef_.shape == (3, 3)


def test_replay_finds_nothing_and_the_range_is_tight():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 2))
    y = (rows[:, 0] > 0).astype(int)
    rows[0], y[0] = [9.0, 0.0], 1
    other = y.copy()
    other[0] = 0
    model = PrivateLogisticRegression(1.0, 0.0, classes=[0, 1], fit_intercept=False, solver="exponential")
    found = replay(fitting(model), (rows, y), (rows, other))
    assert found.passed, str(found)
    assert 0.95 < found.worst_input_ratio <= 1.0


def test_progress_tells_public_numbers_only():
    heard = []
    records = invented(300, 3)
    plan = plan_of(records, 1.0)
    plan.run([records], fresh_entropy(), lambda step, value: heard.append((step, value)))
    assert heard == [(1, plan.expected_tries)]


def one_hot(n, p, rare):
    """A table in order: row i has level i mod p, and in every level one label of ``rare`` is positive."""
    places = np.arange(n)
    return np.eye(p)[places % p], np.where((places // p) % rare == 0, 1.0, -1.0)


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=str)
@pytest.mark.parametrize("rare", [1, 2, 10])
def test_one_category_needs_no_more_tries_than_foretold(rare, loss):
    """Rows in a periodic order, few of them positive: wherever the center of an envelope is, it must be found."""
    n, p = 20_000, 10
    rows, y = one_hot(n, p, rare)
    problem = Problem(loss, Bounds(1.0, intercept=False), n, p)
    plan = ExponentialSampling(clock=False).plan(problem, Guarantee(1.0))
    energy = Energy(ArrayRecords(rows, y, problem.bounds, n_threads=1), loss, plan.rate)
    needed = math.exp(log_tries(energy, plan.gibbs.balls, plan.shape.tilt_floor))
    assert needed < 2 * plan.expected_tries <= 2 * 2e4


@pytest.mark.nightly
@pytest.mark.parametrize("labels", ["explained", "coin", "one"])
def test_even_rows_need_no_more_tries_than_foretold(labels):
    """A hinge whose labels nothing explains is flat at the bottom, which parabolas fit badly."""
    n, p = 4000, 8
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(n, p))
    y = {"explained": np.sign(rows[:, 0]), "coin": rng.choice([-1.0, 1.0], n), "one": np.ones(n)}[labels]
    problem = Problem(HuberHinge(0.5), Bounds(1.0, intercept=False), n, p)
    plan = ExponentialSampling(clock=False).plan(problem, Guarantee(1.0))
    energy = Energy(ArrayRecords(rows, y, problem.bounds, n_threads=1), problem.loss, plan.rate)
    assert math.exp(log_tries(energy, plan.gibbs.balls, plan.shape.tilt_floor)) < 2 * plan.expected_tries


def test_a_fit_on_one_rare_category_ends():
    rows, y = one_hot(20_000, 10, 10)
    model = PrivateLogisticRegression(1.0, 0.0, classes=[-1, 1], fit_intercept=False, solver="exponential")
    assert np.all(model.fit(rows, y).coef_ < -1.0)


@pytest.mark.nightly
def test_forecast_foretells_the_tries():
    records = invented(3000, 12, seed=8)
    plan = plan_of(records, 2.0, 1.0)
    energy, envelope = prepared(plan, records)
    floor = plan.shape.tilt_floor
    foretold = math.exp(-log_tries(energy, plan.gibbs.balls, floor))
    accepted = sum(
        ok for _ in range(3) for *_, ok in plan.gibbs.tries(energy, envelope, fresh_entropy(), 4096)
    )
    assert 0.5 < accepted / (3 * 4096) / foretold < 2.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_what_null_rows_hold_shows_in_no_warning(bad):
    X = np.random.default_rng(0).normal(size=(60, 2)) / 3
    X[:5] = bad
    model = PrivateLogisticRegression(0.5, 0.0, classes=[0, 1], solver="exponential", bad_rows="null")
    assert np.isfinite(model.fit(X, np.arange(60) % 2).coef_).all()


WIDE = Bounds(1.0), 30_000, 60


def test_a_cramped_default_is_refused_where_a_pure_minimizer_is_better():
    with pytest.raises(ValueError, match="although") as refused:
        ExponentialSampling().plan(Problem(Logistic(), *WIDE), Guarantee(1.0, 0.0))
    assert "pass solver='auto' or 'objective'" in str(refused.value)
    assert "ExponentialSampling(structured=True)" in str(refused.value)
    roomy = str(ExponentialSampling().plan(Problem(Logistic(), Bounds(1.0), 2_000, 3), Guarantee(1.0, 0.0)))
    assert "although" not in roomy


def test_a_cramped_ball_that_was_asked_for_is_drawn_from():
    plan = ExponentialSampling(radius=1.0).plan(Problem(Logistic(), *WIDE), Guarantee(1.0, 0.0))
    assert plan.radius == 1.0
    assert "although" in plan.doubt


def test_a_cramped_default_of_a_loss_with_corners_says_what_to_declare():
    plan = ExponentialSampling().plan(Problem(Hinge(), Bounds(1.0), 4_000, 4), Guarantee(1.0, 0.0))
    assert "ExponentialSampling(structured=True)" in str(plan)
