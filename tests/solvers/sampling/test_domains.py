"""Exact sampling from boxes, L1 balls and simplices: membership, envelopes, the law, the price, refusals."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from discreet import Ledger, PrivateLogisticRegression, PrivateRidge
from discreet._checks import ParameterError
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.losses import Hinge, HuberRegression, Logistic
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import Box, GroupedL1Ball, L1Ball, Simplex
from discreet.solvers.sampling import envelopes
from discreet.solvers.sampling.domains import Domain, check_exact, plane
from discreet.solvers.sampling.expected_tries import find_center
from discreet.solvers.sampling.exponential import ExponentialSampling
from discreet.solvers.sampling.localized import Localized

pytestmark = pytest.mark.slow

FAILURE = 1e-8  # chance that a test fails with fresh noise
PLANAR = [Box((-0.5, 0.0), (1.0, 2.0)), L1Ball(1.5, 2), Simplex(2.0, 3)]
SETS = [Box((-1.0, 0.0, -2.0), (1.0, 0.5, 3.0)), L1Ball(1.5, 3), Simplex(2.0, 4), L1Ball(1.0, 9)]


def invented(n, p, loss=None, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    raw = 3 * rows[:, 0] + rows[:, -1] + 0.3 * rng.normal(size=n)
    y = np.clip(raw, -1.5, 1.5) if isinstance(loss, HuberRegression) else np.where(raw > 0, 1.0, -1.0)
    return ArrayRecords(rows, y, Bounds(1.0, intercept=False), n_threads=1)


def plan_of(geometry, n, epsilon=2.0, loss=None, relation=Neighboring.REPLACE_ONE, **options):
    loss = loss or Logistic()
    bound = 1.5 if isinstance(loss, HuberRegression) else None
    size = geometry.n_features
    problem = Problem(loss, Bounds(1.0, intercept=False), n, size, 1, None, geometry, bound)
    solver = ExponentialSampling(method="rejection", most_tries=math.inf, clock=False, **options)
    return solver.plan(problem, Guarantee(epsilon, 0.0, relation))


def prepared(plan, records):
    domain, floor = plan.domain, plan.shape.tilt_floor
    energy = domain.energy(records, plan.problem.loss, plan.rate, plan.l2)
    center = find_center(energy, domain.limits, floor)
    return energy, envelopes.build(energy, domain.limits, plan.gibbs.grid, center, floor)


def draws(plan, records, count):
    energy, envelope = prepared(plan, records)
    entropy, found = fresh_entropy(), []
    while len(found) < count:
        found += [point for point, _, ok in plan.gibbs.tries(energy, envelope, entropy, 2048) if ok]
    return plan.domain.coefficients(np.array(found[:count]))


def candidates(plan, count, seed=0):
    """Random grid points of the set, many of them near its border."""
    rng, domain, grid = np.random.default_rng(seed), plan.domain, plan.gibbs.grid
    ball = domain.ball
    spread = rng.normal(size=(count, domain.size))
    spread *= (ball.radius * rng.random(count) ** 0.3 / np.linalg.norm(spread, axis=1))[:, None]
    points = np.array(ball.center) + spread
    nearest = [domain.coordinates(domain.geometry.project(theta)) for theta in domain.coefficients(points)]
    rounded = np.rint(np.vstack([points, np.array(nearest) * (1 - 1e-9)]) / grid) * grid
    inside = rounded[plan.gibbs.candidates(rounded)]
    assert len(inside) > 20
    return inside


def test_an_l1_ball_of_one_coefficient_is_an_interval():
    ball, box = Domain(L1Ball(1.5, 1)), Domain(Box((-1.5,), (1.5,)))
    assert ball.limits[1:] == box.limits[1:]
    points = np.array([[-1.5], [1.5], [1.75]])
    assert ball.contains(points).tolist() == box.contains(points).tolist() == [True, True, False]


def test_membership_is_decided_exactly():
    tiny = 2.0**-40
    box = Domain(Box((0.0, -1.0), (1.0, 1.0)))
    assert box.contains(np.array([[0.0, 1.0], [1.0, 1.0 + tiny], [-tiny, 0.0]])).tolist() == [
        True,
        False,
        False,
    ]
    ball = Domain(L1Ball(1.0, 3))
    points = np.array([[0.5, -0.25, 0.25], [0.5, -0.25, 0.25 + tiny]])
    assert ball.contains(points).tolist() == [True, False]
    simplex = Domain(Simplex(3.0, 3))
    corner, outside = simplex.coordinates(np.array([2.9, 0.1, 0.0])), np.array([1.0, 2.1, -0.1])
    assert simplex.contains(np.array([0.999 * corner, simplex.coordinates(outside)])).tolist() == [
        True,
        False,
    ]
    back = simplex.coefficients(corner[None])[0]
    np.testing.assert_allclose(back, [2.9, 0.1, 0.0], atol=1e-14)


@pytest.mark.parametrize("p", [2, 3, 10, 500])
def test_the_plane_of_a_simplex(p):
    basis = plane(p)
    np.testing.assert_allclose(basis.T @ basis, np.eye(p - 1), atol=1e-13)
    assert np.abs(basis.sum(axis=0)).max() < 1e-13


@pytest.mark.parametrize("geometry", SETS, ids=str)
def test_limits_contain_the_set(geometry):
    """Vertices and random points; the ball inside touches the border."""
    domain, rng = Domain(geometry), np.random.default_rng(0)
    points = [geometry.project(3 * rng.normal(size=geometry.n_features)) for _ in range(200)]
    points += [geometry.linear_minimizer(rng.normal(size=geometry.n_features)) for _ in range(200)]
    at = np.array([domain.coordinates(point) for point in points])
    for limit in domain.limits:
        if isinstance(limit, envelopes.Slab):
            assert np.linalg.norm(limit.direction) <= 1 + 1e-12
            assert np.all(np.abs(at @ limit.direction - limit.middle) <= limit.radius)
        else:
            assert np.all(np.linalg.norm(at - limit.center, axis=1) <= limit.radius)
    ways = rng.normal(size=(400, domain.size))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    assert domain.contains(np.array(domain.ball.center) + 0.999 * domain.inner_radius * ways).all()


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), HuberRegression(0.7)], ids=str)
@pytest.mark.parametrize("geometry", SETS, ids=str)
@pytest.mark.lemma("exponential-sampling.md#theorem-10")
def test_envelope_holds_at_points_of_the_set(geometry, loss):
    records = invented(300, geometry.n_features, loss)
    plan = plan_of(geometry, 300, loss=loss)
    energy, envelope = prepared(plan, records)
    law, size = envelope.proposal, plan.domain.size
    ratios = (law.factor / np.diag(law.factor)).T
    for theta in candidates(plan, 100):
        noise = np.empty(size, dtype=np.int64)
        for j in range(size - 1, -1, -1):
            center = law.mean[j] - ratios[j, j + 1 :] @ (theta[j + 1 :] - law.mean[j + 1 :])
            noise[j] = round(theta[j] / law.grid) - int(np.rint(center / law.grid))
        drop = energy(theta) - float(law.exponent(noise[None])[0]) + envelope.log_bound
        away = np.square(theta - np.array(plan.domain.ball.center)).sum()
        least = 0.5 * envelope.tilts[0] * (plan.domain.ball.radius**2 - away)
        assert drop >= least - 1e-9
        assert not envelope.refine(theta, drop - least + 1e-9)


def extreme(domain, most):
    """Slabs tilted as far as they may be, one or several, beside balls at the floor and records in one direction."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        way = rng.normal(size=domain.size)
        some = rng.permutation(len(most)) <= rng.choice([1, 2, len(most)])
        tilts = [
            high if steep and isinstance(limit, envelopes.Slab) else 1.0
            for limit, high, steep in zip(domain.limits, most, some, strict=True)
        ]
        precision = 2.0**26 * np.outer(way, way) / (way @ way)  # the floor is 2^-26 of the largest precision
        yield precision, tilts


STEEP = [*SETS, L1Ball(1.0, 8), Simplex(1.0, 30)]


def factored(domain, most):
    """How many of the extreme matrices have a factor."""
    found = 0
    for precision, tilts in extreme(domain, most):
        try:
            np.linalg.cholesky(precision + envelopes.tilt_of(domain.limits, tilts, domain.size)[0])
        except np.linalg.LinAlgError:
            continue
        found += 1
    return found


@pytest.mark.parametrize("geometry", STEEP, ids=str)
def test_no_factorization_fails(geometry):
    """One that fails on some data would be an output after the charge."""
    domain = Domain(geometry)
    assert factored(domain, envelopes._most_tilts(domain.limits, domain.size)) == 30


def test_tilts_without_a_bound_are_caught():
    domain = Domain(L1Ball(1.0, 8))
    assert factored(domain, [2.0**60] * len(domain.limits)) < 30


@pytest.mark.parametrize("geometry", STEEP, ids=str)
def test_the_search_for_exact_centers_ends(geometry, monkeypatch):
    """On the finest grid that a plan allows, from the flattest proposal that tilts allow."""
    domain = Domain(geometry)
    records = invented(50, geometry.n_features)
    energy = domain.energy(records, Logistic(), 1.0, 0.0)
    floor = 50 * 2.0**-26
    farthest = np.linalg.norm(domain.ball.center) + domain.ball.radius
    grid = 2.0 ** (math.floor(math.log2(8 * math.sqrt(domain.size) * farthest / 2.0**50)) + 1)
    check_exact("exponential", domain, grid)
    with pytest.raises(ParameterError, match="too far for 'exponential'"):
        check_exact("exponential", domain, grid / 2)
    most = envelopes._most_tilts(domain.limits, domain.size)
    steep = [
        floor * high if isinstance(limit, envelopes.Slab) and number == 1 else floor
        for number, (limit, high) in enumerate(zip(domain.limits, most, strict=True))
    ]
    monkeypatch.setattr(envelopes, "best_tilts", lambda *_: steep)
    calls, tilt_of = [], envelopes.tilt_of
    monkeypatch.setattr(envelopes, "tilt_of", lambda *parts: calls.append(1) or tilt_of(*parts))
    made = envelopes.build(energy, domain.limits, grid, domain.coordinates(geometry.center()), floor)
    assert made.proposal.farthest_center(envelopes.outer_radius(domain.limits)) < 2.0**50 * grid
    assert len(calls) < 60


@pytest.mark.parametrize("geometry", PLANAR, ids=str)
def test_law_in_two_dimensions_against_quadrature(geometry):
    """The constraint binds, and the mass lies at the border."""
    records = invented(60, geometry.n_features, seed=3)
    plan = plan_of(geometry, 60, 1.5)
    sample = draws(plan, records, 4000)
    assert max(np.abs(geometry.project(theta) - theta).max() for theta in sample[:200]) < 1e-12
    ball = plan.domain.ball
    axes = [np.linspace(c - ball.radius, c + ball.radius, 601) for c in ball.center]
    cube = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    cube = plan.domain.coefficients(cube[plan.domain.contains(cube)])
    raw = records.raw_predictions(cube.T.copy())
    energies = plan.rate * np.logaddexp(0.0, -records.labels[:, None] * raw).sum(0)
    weights = np.exp(energies.min() - energies)
    for direction in np.eye(geometry.n_features):
        order = np.argsort(cube @ direction)
        values, cumulative = (cube @ direction)[order], np.cumsum(weights[order]) / weights.sum()
        test = scipy.stats.kstest(sample @ direction, lambda x, v=values, c=cumulative: np.interp(x, v, c))
        assert test.statistic < 0.01 + scipy.stats.kstwobign.isf(FAILURE) / math.sqrt(4000)


def test_law_on_an_interval_that_is_not_around_zero():
    records = invented(80, 1, seed=5)
    plan = plan_of(Box((0.2,), (1.7,)), 80, 3.0)
    sample = draws(plan, records, 4000)[:, 0]
    points = np.linspace(0.2, 1.7, 4001)
    raw = records.raw_predictions(np.ones(1))
    losses = np.logaddexp(0.0, -records.labels[:, None] * raw[:, None] * points).sum(0)
    weights = np.exp(-plan.rate * (losses - losses.min()))
    cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (weights[1:] + weights[:-1]))])
    cumulative /= cumulative[-1]
    assert scipy.stats.kstest(sample, lambda x: np.interp(x, points, cumulative)).pvalue > FAILURE


def corners(geometry):
    if isinstance(geometry, Box):
        return np.array(list(itertools.product(*zip(geometry.lower, geometry.upper, strict=True))))
    return np.array([geometry.vertex(k) for k in range(geometry.n_vertices)])


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("geometry", [*PLANAR, SETS[0], L1Ball(1.0, 9)], ids=str)
def test_the_range_of_a_record_is_bounded_and_nearly_attained(geometry, relation):
    """max - min over the set of the difference of neighbors' energies; half the temperature is caught."""
    plan = plan_of(geometry, 100, 1.0, relation=relation)
    records = invented(100, geometry.n_features)
    at = corners(geometry)
    # The worst record points at the farthest corner.
    farthest = at[np.argmax(np.linalg.norm(at, axis=1))]
    row = farthest / np.linalg.norm(farthest)
    rows, labels = records.matrix.copy(), records.labels.copy()
    rows[0], labels[0] = row, 1.0
    others, theirs = rows.copy(), labels.copy()
    others[0] = -row if relation is Neighboring.REPLACE_ONE else 0.0
    energies = []
    for part in ((rows, labels), (others, theirs)):
        energy = plan.domain.energy(
            ArrayRecords(*part, records.bounds, n_threads=1), Logistic(), plan.rate, plan.l2
        )
        energies.append([energy(plan.domain.coordinates(point)) for point in at])
    gap = np.subtract(*energies)
    assert np.ptp(gap) <= 1.0
    if isinstance(geometry, L1Ball):  # symmetric: the opposite corner is there, too
        assert np.ptp(gap) > 0.999


def test_prices():
    for geometry, relation in zip(PLANAR, Neighboring, strict=True):
        plan = plan_of(geometry, 200, 0.7, relation=relation)
        assert accountants.delta(plan.event, 0.7, relation) == 0.0
        assert 0.7 * (1 - 1e-9) <= accountants.epsilon(plan.event, 0.0, relation) <= 0.7


@pytest.mark.nightly
def test_foretold_tries_hold_on_a_table_of_that_shape():
    for geometry in PLANAR:
        records = invented(400, geometry.n_features)
        plan = plan_of(geometry, 400)
        energy, envelope = prepared(plan, records)
        tries = [ok for _, _, ok in plan.gibbs.tries(energy, envelope, fresh_entropy(), 20000)]
        assert 20000 / max(1, sum(tries)) < 3 * plan.expected_tries


@pytest.mark.parametrize(
    "geometry", [Box((-1.0, -1.0), (1.0, 2.0)), L1Ball(2.0, 2), Simplex(2.0, 2)], ids=str
)
@pytest.mark.parametrize("solver", ["exponential", "localized"])
def test_estimators_release_points_of_the_set(geometry, solver, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 1))
    y = (X[:, 0] > 0).astype(int)
    ledger = Ledger(tmp_path / "budget.ledger", epsilon=3.0, delta=0.0)
    ridge = {} if solver == "exponential" else {"l2": 0.1}
    model = PrivateLogisticRegression(
        3.0, delta=0, solver=solver, constraint=geometry, classes=[0, 1], ledger=ledger, **ridge
    ).fit(X, y)
    theta = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(geometry.project(theta), theta, atol=1e-12)
    assert ledger.remaining().epsilon < 1e-6
    assert 0 < model.certificate_.likely < 0.2


@pytest.mark.parametrize(
    "solver", [ExponentialSampling(clock=False), Localized(clock=False)], ids=lambda s: s.name
)
def test_certificates_hold_on_average(solver):
    """The mean excess over the minimum in the set, against the bound from public numbers."""
    box, records = Box((-0.5, 0.0), (1.0, 2.0)), invented(400, 2)
    problem = Problem(Logistic(), records.bounds, 400, 2, l2=0.05, geometry=box)
    plan = solver.plan(problem, Guarantee(2.0))

    def risk(theta):
        value, slope = records.value_and_gradient(Logistic(), theta)
        return value / 400 + 0.025 * theta @ theta, slope / 400 + 0.05 * theta

    bounds = list(zip(box.lower, box.upper, strict=True))
    least = scipy.optimize.minimize(risk, [0.0, 0.5], jac=True, bounds=bounds, tol=1e-12).fun
    drawn = [risk(plan.run([records], fresh_entropy()).theta[0])[0] - least for _ in range(12)]
    assert min(drawn) > -1e-9
    assert np.mean(drawn) < plan.certificate.expected < 0.3


def test_several_models_and_regression():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(500, 1))
    box = Box((-2.0, -2.0), (2.0, 2.0))
    labels = np.digitize(X[:, 0], [-0.3, 0.3])
    model = PrivateLogisticRegression(
        3.0, delta=0, solver="exponential", constraint=box, classes=[0, 1, 2], multi_class="ovr"
    ).fit(X, labels)
    assert np.abs(np.column_stack([model.coef_, model.intercept_])).max() <= 2.0
    ridge = PrivateRidge(3.0, delta=0, solver="exponential", constraint=box, target_bounds=(-1, 1)).fit(
        X, X[:, 0] / 2
    )
    assert abs(ridge.coef_).max() <= 2.0


def test_enumeration_stays_in_the_set():
    for geometry in PLANAR:
        problem = Problem(
            Logistic(), Bounds(1.0, intercept=False), 300, geometry.n_features, geometry=geometry
        )
        plan = ExponentialSampling(method="grid", clock=False).plan(problem, Guarantee(2.0))
        assert len(plan.points) > 200
        assert plan.domain.contains(plan.points).all()
        theta = plan.run([invented(300, geometry.n_features)], fresh_entropy()).theta[0]
        np.testing.assert_allclose(geometry.project(theta), theta, atol=1e-12)


@pytest.mark.parametrize(
    "solver", [ExponentialSampling(most_tries=1.5), Localized(most_tries=1.5)], ids=lambda s: s.name
)
def test_what_is_refused(solver):
    def plan(geometry):
        problem = Problem(
            Logistic(), Bounds(1.0, intercept=False), 400, geometry.n_features, l2=0.01, geometry=geometry
        )
        return solver.plan(problem, Guarantee(1.0))

    with pytest.raises(ParameterError, match="not from GroupedL1Ball"):
        plan(GroupedL1Ball(1.0, 4, 2))
    with pytest.raises(ParameterError, match="single point"):
        plan(Simplex(1.0, 1))
    with pytest.raises(ParameterError, match="too thin"):
        plan(Box((0.0, 0.5), (1.0, 0.5)))
    with pytest.raises(ParameterError, match="too far for"):
        plan(Box((1e14, 0.0), (1e14 + 1, 1.0)))
    with pytest.raises(ParameterError, match="most_tries"):
        plan(L1Ball(1.0, 4))


def test_replay_hears_what_was_charged():
    X, y = np.linspace(-1, 1, 200)[:, None], np.arange(200) % 2
    other = np.vstack([[[1.0]], X[1:]])
    for geometry in (Box((0.0, -1.0), (1.0, 1.0)), L1Ball(1.0, 2), Simplex(1.0, 2)):
        model = PrivateLogisticRegression(
            2.0, delta=0, solver="exponential", constraint=geometry, classes=[0, 1]
        )
        assert replay(fitting(model), (X, y), (other, y)).passed
