"""Every set against brute force and an independent solver."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from discreet.sets import (
    BallIntersection,
    Box,
    Geometry,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Polytope,
    Simplex,
    VertexPolytope,
)

HEXAGON = [[math.cos(k), math.sin(k), 0.3 * k] for k in range(6)]
SETS = {
    "l2": L2Ball(1.5, 4),
    "l1": L1Ball(1.5, 4),
    "simplex": Simplex(2.0, 4),
    "box": Box((-1.0, 0.0, -2.0), (1.0, 0.5, 3.0)),
    "grouped": GroupedL1Ball(1.5, 5, 2),
    "interpolation": InterpolationBall(1.5, 4, 0.4),
    "almost l2": InterpolationBall(1.5, 4, 1.0),
    "nuclear": NuclearBall(1.5, (2, 3)),
    "vertices": VertexPolytope(HEXAGON),
    "octahedron": VertexPolytope(np.vstack([np.eye(3), -np.eye(3)])),
    "l1 and ball": BallIntersection(L1Ball(1.0, 3), (0.3, 0.1, 0.0), 0.4),
    "box and ball": BallIntersection(Box((-1.0,) * 3, (1.0,) * 3), (0.0, 0.9, 0.0), 0.8),
}


@pytest.fixture(params=SETS, ids=str)
def geometry(request):
    return SETS[request.param]


def points(geometry, count=40, seed=0):
    """Points of the set: projections of far points, linear minimizers, and mixtures of them."""
    rng = np.random.default_rng(seed)
    p = geometry.n_features
    found = [geometry.project(3 * rng.normal(size=p)) for _ in range(count)]
    found += [geometry.linear_minimizer(rng.normal(size=p)) for _ in range(count)]
    mixtures = rng.dirichlet(np.full(len(found), 0.1), size=count) @ np.array(found)
    return np.vstack([np.array(found), mixtures])


def test_it_is_a_geometry(geometry):
    assert isinstance(geometry, Geometry)
    assert np.allclose(geometry.project(geometry.center()), geometry.center())


def test_projection_satisfies_the_variational_inequality(geometry):
    """q is the projection of z exactly if <z - q, x - q> <= 0 for every x of the set."""
    rng = np.random.default_rng(1)
    inside = points(geometry)
    for scale in (0.1, 1.0, 10.0):
        for _ in range(15):
            z = scale * rng.normal(size=geometry.n_features)
            q = geometry.project(z)
            worst = geometry.linear_minimizer(q - z)
            assert np.max((inside - q) @ (z - q)) <= 1e-7 * (1 + scale)
            assert (worst - q) @ (z - q) <= 1e-7 * (1 + scale)
            assert np.allclose(geometry.project(q), q, atol=1e-7)


def test_linear_minimizer_beats_every_point(geometry):
    rng = np.random.default_rng(2)
    inside = points(geometry)
    for _ in range(40):
        d = rng.normal(size=geometry.n_features)
        best = geometry.linear_minimizer(d)
        assert np.min(inside @ d) >= best @ d - 1e-7
        assert np.allclose(geometry.project(best), best, atol=1e-6)


def test_linear_minimizer_agrees_with_projections_of_far_points(geometry):
    """min <d, x> over the set is the limit of <d, project(-t d)>: an independent route to the same number."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        d = rng.normal(size=geometry.n_features)
        value = geometry.linear_minimizer(d) @ d
        # Strong convexity of the projection's objective: off by at most diameter^2 / (2 t).
        assert value == pytest.approx(geometry.project(-1e5 * d) @ d, abs=1e-4)


def test_projection_agrees_with_a_general_purpose_solver():
    rng = np.random.default_rng(4)
    for name in ("l1", "grouped", "interpolation", "simplex"):
        geometry = SETS[name]
        p = geometry.n_features
        for _ in range(3):
            z = 2 * rng.normal(size=p)
            if name == "simplex":
                constraints = [{"type": "eq", "fun": lambda x: x.sum() - 2.0}]
                bounds = [(0, None)] * p
            else:
                constraints = [{"type": "ineq", "fun": lambda x, g=geometry: 1 - g.gauge(x)}]
                bounds = None
            start = 0.5 * geometry.project(z) + 0.5 * geometry.center() + 1e-3
            result = minimize(
                lambda x, z=z: 0.5 * np.sum((x - z) ** 2), start, constraints=constraints, bounds=bounds,
                method="SLSQP", options={"maxiter": 500, "ftol": 1e-13},
            )  # fmt: skip
            mine = 0.5 * np.sum((geometry.project(z) - z) ** 2)
            # The norms are not smooth: the general solver may stop early or just outside, but never below the minimum.
            inside = result.x if name == "simplex" else result.x / max(1.0, geometry.gauge(result.x))
            found = 0.5 * np.sum((inside - z) ** 2)
            assert mine <= found + 1e-6
            assert found - mine <= 2e-2


def test_gauge_is_one_on_the_boundary(geometry):
    rng = np.random.default_rng(5)
    if isinstance(geometry, BallIntersection) or geometry is SETS["vertices"]:
        pytest.skip("tested separately")
    for _ in range(10):
        edge = geometry.linear_minimizer(rng.normal(size=geometry.n_features))
        assert geometry.gauge(edge) == pytest.approx(1.0, abs=1e-6)
        assert geometry.gauge(0.25 * edge) == pytest.approx(0.25, abs=1e-6)


def test_gauge_of_an_intersection_by_bisection():
    geometry = BallIntersection(L1Ball(1.0, 3), (0.1, 0.1, 0.0), 0.4)
    rng = np.random.default_rng(6)
    for _ in range(20):
        theta = rng.normal(size=3)
        low, high = 0.0, 100.0
        for _ in range(80):
            t = (low + high) / 2
            scaled = theta / t
            inside = np.abs(scaled).sum() <= 1 and np.linalg.norm(scaled - geometry.center()) <= 0.4
            low, high = (low, t) if inside else (t, high)
        assert geometry.gauge(theta) == pytest.approx(high, rel=1e-9)
    assert VertexPolytope(HEXAGON).gauge(np.array([0.0, 0.0, -1.0])) == math.inf
    assert Simplex(1.0, 2).gauge(np.array([-0.1, 1.0])) == math.inf
    with pytest.raises(ValueError, match="origin"):
        Box((1.0,), (2.0,)).gauge(np.ones(1))


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_diameters_and_radii_hold_and_are_attained(geometry, norm):
    inside = points(geometry, count=80, seed=7)
    p = geometry.n_features
    extremes = [geometry.linear_minimizer(s * e) for s in (1.0, -1.0) for e in np.eye(p)]
    for signs in np.array(np.meshgrid(*[[-1.0, 1.0]] * p)).reshape(p, -1).T:
        extremes.append(geometry.linear_minimizer(signs))
    inside = np.vstack([inside, extremes])
    distances = np.linalg.norm(inside[:, None] - inside[None], norm, axis=2)
    norms = np.linalg.norm(inside, norm, axis=1)
    diameter, radius = geometry.diameter(norm), geometry.radius(norm)
    assert distances.max() <= diameter + 1e-7
    assert norms.max() <= radius + 1e-7
    if not isinstance(geometry, BallIntersection):
        assert distances.max() >= 0.9 * diameter
        assert norms.max() >= 0.9 * radius


def test_gaussian_width_is_an_upper_bound_close_to_simulation(geometry):
    rng = np.random.default_rng(8)
    draws = rng.normal(size=(4000, geometry.n_features))
    values = np.array(
        [
            -(geometry.linear_minimizer(g) @ g)
            for g in draws[: 400 if "Inter" in type(geometry).__name__ else 4000]
        ]
    )
    mean, error = values.mean(), values.std() / math.sqrt(len(values))
    width = geometry.gaussian_width()
    assert width >= mean - 4 * error
    slack = {NuclearBall: 1.5, VertexPolytope: 2.2, BallIntersection: 2.5, InterpolationBall: 1.2}
    assert width <= slack.get(type(geometry), 1.0) * mean + 5 * error + 0.005


def test_closed_forms_of_widths():
    assert L2Ball(2.0, 1).gaussian_width() == pytest.approx(2 * math.sqrt(2 / math.pi))
    assert L1Ball(1.0, 1).gaussian_width() == pytest.approx(math.sqrt(2 / math.pi), abs=1.1e-3)
    assert Simplex(1.0, 2).gaussian_width() == pytest.approx(1 / math.sqrt(math.pi), abs=2.1e-3)
    assert GroupedL1Ball(1.0, 7, 7).gaussian_width() == pytest.approx(
        L2Ball(1.0, 7).gaussian_width(), abs=2.1e-3
    )
    assert GroupedL1Ball(1.0, 7, 1).gaussian_width() == pytest.approx(
        L1Ball(1.0, 7).gaussian_width(), abs=2.1e-3
    )
    for p in (10, 1000, 100_000):
        assert L1Ball(1.0, p).gaussian_width() <= math.sqrt(2 * math.log(2 * p))


def test_grouped_ball_with_single_entries_is_the_l1_ball():
    rng = np.random.default_rng(9)
    for _ in range(20):
        z = rng.normal(size=6)
        a, b = GroupedL1Ball(1.0, 6, 1), L1Ball(1.0, 6)
        assert np.allclose(a.project(z), b.project(z))
        assert np.allclose(a.linear_minimizer(z), b.linear_minimizer(z))
    z = rng.normal(size=4)
    assert np.allclose(NuclearBall(1.0, (1, 4)).project(3 * z), L2Ball(1.0, 4).project(3 * z))
    vertices = VertexPolytope(np.vstack([np.eye(5), -np.eye(5)]))
    for _ in range(20):
        z = rng.normal(size=5)
        assert np.allclose(vertices.project(z), L1Ball(1.0, 5).project(z), atol=1e-9)
        assert vertices.gauge(z) == pytest.approx(np.abs(z).sum())


@pytest.mark.parametrize("name", ["l1", "simplex", "vertices"])
def test_polytopes_know_their_vertices(name):
    geometry = SETS[name]
    assert isinstance(geometry, Polytope)
    d = np.random.default_rng(10).normal(size=geometry.n_features)
    corners = np.array([geometry.vertex(k) for k in range(geometry.n_vertices)])
    assert np.allclose(geometry.vertex_scores(d), corners @ d)
    theta = geometry.center()
    geometry.move_towards(theta, 2, 0.25)
    assert np.allclose(theta, 0.75 * geometry.center() + 0.25 * corners[2])


def test_a_hundred_thousand_coordinates_are_no_burden():
    p = 100_000
    z = np.random.default_rng(11).normal(size=p)
    for geometry in (L1Ball(1.0, p), Simplex(1.0, p), GroupedL1Ball(1.0, p, 10)):
        projected = geometry.project(z)
        assert geometry.gauge(projected) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: L2Ball(0.0, 2),
        lambda: L1Ball(1.0, 0),
        lambda: L1Ball(math.nan, 3),
        lambda: Box((1.0,), (0.0,)),
        lambda: Box((1.0,), (2.0, 3.0)),
        lambda: InterpolationBall(1.0, 3, 0.0),
        lambda: VertexPolytope([[math.inf]]),
        lambda: BallIntersection(L1Ball(1.0, 2), (2.0, 0.0), 1.0),
        lambda: L2Ball(1.0, 2).radius(3.0),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError):
        make()
