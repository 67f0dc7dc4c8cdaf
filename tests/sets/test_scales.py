"""Every set at every size, asked about points inside, on the edge, tied, far away, tiny and zero."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from discreet.sets import (
    BallIntersection,
    Box,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexPolytope,
)
from discreet.sets.base import euclidean_width, project_to_simplex, resized, scaled_norm

SQUARE = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
OCTAHEDRON = np.vstack([np.eye(3), -np.eye(3)])
HEXAGON = np.array([[math.cos(k), math.sin(k), 0.3 * k - 0.5] for k in range(6)])
MAKERS = {
    "l2": lambda s: L2Ball(1.5 * s, 4),
    "l1": lambda s: L1Ball(1.5 * s, 4),
    "simplex": lambda s: Simplex(2.0 * s, 4),
    "box": lambda s: Box((-s, 0.0, -2 * s), (s, 0.5 * s, 3 * s)),
    "grouped": lambda s: GroupedL1Ball(1.5 * s, 5, 2),
    "interpolation": lambda s: InterpolationBall(1.5 * s, 4, 0.4),
    "almost l1": lambda s: InterpolationBall(1.5 * s, 4, 1e-6),
    "nuclear": lambda s: NuclearBall(1.5 * s, (2, 3)),
    "square": lambda s: VertexPolytope(SQUARE * s),
    "octahedron": lambda s: VertexPolytope(OCTAHEDRON * s),
    "hexagon": lambda s: VertexPolytope(HEXAGON * s),
    "l1 and ball": lambda s: BallIntersection(L1Ball(s, 2), (0.9 * s, 0.0), 1.3 * s),
    "simplex and ball": lambda s: BallIntersection(Simplex(s, 3), (s / 3,) * 3, 0.8 * s),
    "box and ball": lambda s: BallIntersection(Box((-s,) * 3, (s,) * 3), (0.0, 0.9 * s, 0.0), 0.8 * s),
    "nuclear and ball": lambda s: BallIntersection(NuclearBall(s, (2, 2)), (0.3 * s, 0.0, 0.0, 0.3 * s), 0.5 * s),
    "square and ball": lambda s: BallIntersection(VertexPolytope(SQUARE * s), (0.3 * s, 0.7 * s), 0.8 * s),
}  # fmt: skip
SIZES = (1.0, 1e-9, 1e-6, 1e3, 1e6, 1e99)
SLOW = ("nuclear and ball", "square and ball")  # a root of projections that are no closed forms
CASES = [(name, size) for name in MAKERS for size in SIZES if name not in SLOW or size in (1e-9, 1e6)]
every_set_and_size = pytest.mark.parametrize(("name", "size"), CASES)


def outside(geometry, x, size):
    """By how many sizes x violates the definition of the set, computed in units of the size."""
    assert np.all(np.isfinite(x))
    if isinstance(geometry, BallIntersection):
        ball = np.linalg.norm((x - geometry.center()) / size) - geometry.size / size
        return max(outside(geometry.base, x, size), ball)
    unit = x / size
    if isinstance(geometry, Box):
        low, high = np.array(geometry.lower) / size, np.array(geometry.upper) / size
        return max(np.max(low - unit), np.max(unit - high))
    if isinstance(geometry, VertexPolytope):
        rows = geometry.vertices / size
        # The least shift, in L1, into the hull.
        shifted = np.hstack([rows.T, np.eye(len(x)), -np.eye(len(x))])
        weights = np.append(np.ones(len(rows)), np.zeros(2 * len(x)))
        return linprog(1 - weights, A_eq=np.vstack([shifted, weights]), b_eq=np.append(unit, 1.0)).fun
    if isinstance(geometry, Simplex):
        return max(abs(unit.sum() - geometry.size / size), -unit.min())
    norms = {
        L2Ball: lambda: np.linalg.norm(unit),
        L1Ball: lambda: np.abs(unit).sum(),
        GroupedL1Ball: lambda: sum(np.linalg.norm(unit[k : k + geometry.group_size]) for k in geometry._starts),
        InterpolationBall: lambda: (1 - geometry.mix) * np.abs(unit).sum() + geometry.mix * np.linalg.norm(unit),
        NuclearBall: lambda: np.linalg.norm(unit.reshape(geometry.shape), "nuc"),
    }  # fmt: skip
    return norms[type(geometry)]() - geometry.size / size


def directions(p):
    """Random, axes, zero, ties and near ties."""
    rng = np.random.default_rng(p)
    tied = np.ones(p)
    nearly = -np.ones(p)
    nearly[-1] -= 1e-15
    mixed = np.zeros(p)
    mixed[:2] = 1.0, -1.0
    return [*rng.normal(size=(3, p)), np.eye(p)[0], -np.eye(p)[-1], np.zeros(p), tied, -tied, nearly, mixed]


def hard_points(geometry, size):
    """Inside, on the edge, near it, far, tiny, zero."""
    p = geometry.n_features
    for d in directions(p):
        edge = geometry.linear_minimizer(d)
        yield from (edge, 0.5 * (edge + geometry.center()), edge + 1e-9 * (edge - geometry.center()))
        yield from (d * 1e-300, *(d * (t * size) for t in (1.0, 1e3, 1e9, 1e16)), d * 1e200)


@every_set_and_size
def test_projections_are_in_the_set_and_nearest(name, size):
    """x is nearest to z if <z - x, v - x> <= 0 for every v of the set, and first of all for the v that maximizes it."""
    geometry = MAKERS[name](size)
    others = np.array([geometry.linear_minimizer(d) for d in directions(geometry.n_features)])
    for z in hard_points(geometry, size):
        x = geometry.project(z)
        assert outside(geometry, x, size) <= 1e-12
        assert np.abs(geometry.project(x) - x).max() <= 1e-12 * size
        ahead, distance = resized(z - x, 1.0), scaled_norm(z - x) / size
        for v in (geometry.linear_minimizer(-ahead), *others):
            # In units of the size: first the cosine for points far away, then the product for near ones.
            assert ahead @ (v / size - x / size) * min(1.0, distance) <= 2e-12


@every_set_and_size
def test_projections_scale_with_the_set(name, size):
    one, scaled = MAKERS[name](1.0), MAKERS[name](size)
    rng = np.random.default_rng(0)
    for far in (0.5, 2.0, 1e4):
        z = far * rng.normal(size=one.n_features)
        assert np.allclose(
            scaled.project(size * z) / size, one.project(z), rtol=0, atol=1e-15 * (1e3 + 10 * far)
        )


@every_set_and_size
def test_linear_minimizers_are_in_the_set_and_beat_every_point(name, size):
    geometry = MAKERS[name](size)
    p = geometry.n_features
    others = np.array([geometry.linear_minimizer(d) for d in directions(p)])
    rng = np.random.default_rng(1)
    others = np.vstack([others, [geometry.project(3 * size * rng.normal(size=p)) for _ in range(10)]])
    for d in directions(p):
        far = geometry.project(geometry.center() - 1e14 * size * d)  # another route to the same value
        for scale in (1.0, 1e-160, 1e-300, 1e5, 1e200):
            x = geometry.linear_minimizer(scale * d)
            assert outside(geometry, x, size) <= 1e-12
            assert np.max(x / size @ d - np.vstack([others, far]) / size @ d) <= 1e-12


@every_set_and_size
def test_gauges_agree_with_membership(name, size):
    """What is in the set has a gauge of at most 1, and the gauge grows in proportion, from 1e-300 to 1e200."""
    geometry = MAKERS[name](size)
    if name == "box and ball":  # the origin lies outside the ball
        with pytest.raises(ValueError, match="origin"):
            geometry.gauge(np.zeros(geometry.n_features))
        return
    assert geometry.gauge(np.zeros(geometry.n_features)) == 0
    for d in directions(geometry.n_features):
        edge = geometry.linear_minimizer(d)
        gauge = geometry.gauge(edge)
        assert gauge <= 1 + 1e-9
        if not np.any(d) or gauge < 0.1:
            continue
        assert outside(geometry, edge / gauge, size) <= 1e-9
        if not isinstance(geometry, Simplex):
            assert outside(geometry, edge / gauge * 1.001, size) > 1e-5
        for t in (1e-190, 1e-9, 1e9, 1e100):
            assert geometry.gauge(t * edge) == pytest.approx(t * gauge, rel=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_the_same_set_written_in_two_ways(size):
    """Vertices against closed forms, and structured norms against those they contain."""
    s = size
    pairs = [
        (VertexPolytope(SQUARE * s), Box((-s, -s), (s, s))),
        (VertexPolytope(OCTAHEDRON * s), L1Ball(s, 3)),
        (VertexPolytope(np.eye(4) * s), Simplex(s, 4)),
        (GroupedL1Ball(s, 5, 1), L1Ball(s, 5)),
        (GroupedL1Ball(s, 5, 5), L2Ball(s, 5)),
        (InterpolationBall(s, 5, 1.0), L2Ball(s, 5)),
        (NuclearBall(s, (1, 5)), L2Ball(s, 5)),
        (BallIntersection(L2Ball(3 * s, 4), (0.0,) * 4, s), L2Ball(s, 4)),
    ]
    rng = np.random.default_rng(2)
    for a, b in pairs:
        for far in (0.1, 1.0, 1e2, 1e4, 1e6):
            for z in (
                far * rng.normal(size=a.n_features),
                np.append(far, rng.uniform(-0.5, 0.5, a.n_features - 1)),
            ):
                assert np.allclose(
                    a.project(s * z) / s, b.project(s * z) / s, rtol=0, atol=1e-15 * (100 + 10 * far)
                )
            if not isinstance(a, BallIntersection) and not isinstance(b, Simplex):
                assert a.gauge(s * z) == pytest.approx(b.gauge(s * z), rel=1e-9)


def in_fractions(values, total):
    """The projection onto the simplex in exact arithmetic."""
    exact = [Fraction(float(value)) for value in values]
    best, cumulated = None, Fraction(0)
    for k, value in enumerate(sorted(exact, reverse=True), 1):
        cumulated += value
        threshold = (cumulated - Fraction(total)) / k
        best = threshold if value > threshold else best
    return np.array([float(max(value - best, Fraction(0))) for value in exact])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("far", [1e-12, 1.0, 1e3, 1e9, 1e16, 1e200])
def test_far_points_lose_no_digits_on_the_simplex(size, far):
    rng = np.random.default_rng(3)
    for values in (
        rng.normal(size=5),
        np.ones(5),
        np.array([1.0, 0.0, 0.0, 0.0, -1 / 3]),
        1 + 1e-15 * np.arange(5),
    ):
        z = far * values * (size if far < 1e200 else 1.0)
        assert np.abs(project_to_simplex(z, size) - in_fractions(z, size)).max() <= 2e-15 * size


def test_a_polytope_far_from_the_origin_or_flat():
    shifted = VertexPolytope(SQUARE + 1e6)
    assert np.allclose(shifted.project(np.array([1e6 + 0.25, 0.0])), [1e6 + 0.25, 1e6 - 1], rtol=0, atol=1e-9)
    thin = VertexPolytope(SQUARE * [1e6, 1e-3])
    assert np.allclose(thin.project(np.array([123.0, 5.0])), [123.0, 1e-3], rtol=0, atol=1e-9)
    assert thin.gauge(np.array([5e5, 1.5e-3])) == pytest.approx(1.5)
    doubled = VertexPolytope([[0, 0], [0, 0], [1, 0], [1, 0], [0.5, 0]])
    assert doubled.project(np.array([0.3, 1.0])) == pytest.approx([0.3, 0.0])
    assert VertexPolytope([[1, 2]]).project(np.array([5.0, 1e200])) == pytest.approx([1.0, 2.0])


def test_many_vertices_on_a_sphere():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(400, 6))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    polytope = VertexPolytope(rows)
    for far in (0.3, 1.0, 5.0, 1e5):
        for z in far * rng.normal(size=(5, 6)):
            x = polytope.project(z)
            assert np.max((rows - x) @ (z - x)) <= 1e-13 * (1 + far)
            assert outside(polytope, x, 1.0) <= 1e-12


def test_the_width_of_a_ball_of_any_dimension():
    """E |g|_2 lies between sqrt(p - 1/2) and sqrt(p - 1/2 + 1 / (8p) + 1 / (16 p^2)), up to rounding."""
    for p in (10, 100, 10**4, 20_000, 10**6, 10**9, 10**12, 10**16):
        width = euclidean_width(p)
        assert math.sqrt(p - 0.5) * (1 - 3e-12) <= width
        assert width <= math.sqrt(p - 0.5 + 1 / (8 * p) + 1 / (16 * p**2)) * (1 + 3e-12)


def test_radii_are_never_too_small():
    for p in range(1, 300):
        corner = L2Ball(1.0, p).linear_minimizer(np.ones(p))
        assert L2Ball(1.0, p).radius(1.0) >= math.fsum(np.abs(corner))
        assert Fraction(L2Ball(1.0, p).radius(1.0)) ** 2 >= p
    assert Box((-1e200,) * 2, (1e200,) * 2).radius() == pytest.approx(math.sqrt(2) * 1e200)
    assert VertexPolytope([[1e-200, 0], [0, 1e-200]]).diameter() == pytest.approx(math.sqrt(2) * 1e-200)
