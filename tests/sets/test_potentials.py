"""Mirror maps: steps against a general solver, constants against simulation."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from discreet.sets import Box, GroupedL1Ball, L1Ball, L2Ball, NuclearBall, Simplex, VertexPolytope
from discreet.sets.potentials import Entropy, Potential, QNorm, SquaredNorm, potential

PAIRS = {
    "squared ball": (SquaredNorm(), L2Ball(1.5, 6)),
    "squared box": (SquaredNorm(), Box((0.0,) * 4, (1.0,) * 4)),
    "entropy simplex": (Entropy(), Simplex(2.0, 5)),
    "entropy l1": (Entropy(), L1Ball(2.0, 5)),
    "entropy vertices": (
        Entropy(),
        VertexPolytope([[1.0, 0.5, 0.0], [-1.0, 0.2, 1.0], [0.0, -1.0, 0.3], [0.4, 0.4, -1.0]]),
    ),
    "q-norm l1": (QNorm(), L1Ball(1.5, 8)),
    "q-norm groups": (QNorm(), GroupedL1Ball(1.5, 9, 2)),
    "q-norm nuclear": (QNorm(), NuclearBall(1.5, (4, 5))),
}


@pytest.fixture(params=PAIRS, ids=str)
def pair(request):
    return PAIRS[request.param]


def psi(kind, geometry, x):
    if isinstance(kind, SquaredNorm):
        return 0.5 * np.sum((x - geometry.center()) ** 2)
    q = kind.exponent(geometry)
    return np.sum(geometry.magnitudes(x) ** q) ** (2 / q) / (2 * (q - 1))


def test_steps_stay_in_the_set_and_start_at_the_minimum(pair):
    kind, geometry = pair
    assert isinstance(kind, Potential)
    rng = np.random.default_rng(0)
    theta, state = kind.start(geometry)
    assert np.allclose(theta, geometry.center())
    for scale in (0.01, 1.0, 100.0):
        theta, state = kind.step(geometry, theta, state, scale * rng.normal(size=geometry.n_features))
        assert np.all(np.isfinite(theta))
        assert np.linalg.norm(geometry.project(theta) - theta) <= 1e-9


@pytest.mark.parametrize("name", ["squared ball", "q-norm l1", "q-norm groups", "q-norm nuclear"])
def test_a_step_minimizes_what_it_should(name):
    """<move, x> + Psi(x) - <grad Psi(theta), x>: no point of the set does better."""
    kind, geometry = PAIRS[name]
    rng = np.random.default_rng(1)
    theta, state = kind.start(geometry)
    for scale in (0.3, 1.0, 3.0):
        move = scale * rng.normal(size=geometry.n_features)
        before = np.zeros(geometry.n_features) if state is None else state.copy()
        slope = theta - geometry.center() if isinstance(kind, SquaredNorm) else before

        def objective(x, slope=slope, move=move):
            return move @ x + psi(kind, geometry, x) - slope @ x

        theta, state = kind.step(geometry, theta, state, move)
        best = objective(theta)
        for _ in range(300):
            other = geometry.project(theta + rng.exponential(0.1) * rng.normal(size=geometry.n_features))
            assert objective(other) >= best - 1e-9


def test_entropy_steps_are_mirror_steps_on_the_weights():
    """Against an independent solver of the same problem in the weights."""
    geometry, rng = Simplex(2.0, 4), np.random.default_rng(2)
    theta, state = Entropy().start(geometry)
    for _ in range(3):
        move = rng.normal(size=4) * 0.3
        w = theta / 2.0

        def objective(v, w=w, move=move):
            return 2.0 * move @ v + np.sum(v * np.log(np.maximum(v, 1e-300) / w))

        found = minimize(
            objective, w, bounds=[(1e-12, 1)] * 4, constraints={"type": "eq", "fun": lambda v: v.sum() - 1}
        )
        theta, state = Entropy().step(geometry, theta, state, move)
        assert np.allclose(theta / 2.0, found.x, atol=1e-4)


def test_l1_entropy_is_the_simplex_entropy_on_signed_copies():
    rng = np.random.default_rng(3)
    ball, simplex = L1Ball(1.5, 3), Simplex(1.5, 6)
    a, state_a = Entropy().start(ball)
    b, state_b = Entropy().start(simplex)
    for _ in range(5):
        move = rng.normal(size=3)
        a, state_a = Entropy().step(ball, a, state_a, move)
        b, state_b = Entropy().step(simplex, b, state_b, np.concatenate([move, -move]))
        assert np.allclose(a, b[:3] - b[3:])


def dual_norms(kind, geometry, draws):
    if isinstance(kind, SquaredNorm):
        return np.linalg.norm(draws, axis=1)
    if isinstance(kind, Entropy):
        corners = np.array([geometry.vertex(k) for k in range(geometry.n_vertices)])
        return np.abs(draws @ corners.T).max(axis=1)
    q = kind.exponent(geometry)
    r = q / (q - 1)
    return np.array([np.sum(geometry.magnitudes(g) ** r) ** (1 / r) for g in draws])


def test_noise_square_is_a_tight_upper_bound(pair):
    kind, geometry = pair
    draws = np.random.default_rng(4).normal(size=(3000, geometry.n_features))
    square = np.mean(dual_norms(kind, geometry, draws) ** 2)
    assert 0.95 * square <= kind.noise_square(geometry) <= 4.0 * square


def test_range_bounds_the_divergence_from_the_start(pair):
    kind, geometry = pair
    rng = np.random.default_rng(5)
    largest = 0.0
    for _ in range(100):
        point = geometry.linear_minimizer(rng.normal(size=geometry.n_features))
        if isinstance(kind, Entropy):
            largest = math.log(geometry.n_vertices)
        else:
            largest = max(largest, psi(kind, geometry, point) - psi(kind, geometry, geometry.center()))
    assert largest <= kind.range(geometry) * (1 + 1e-9)
    assert largest >= 0.2 * kind.range(geometry)


@pytest.mark.parametrize("name", ["q-norm l1", "q-norm groups", "q-norm nuclear"])
def test_strong_convexity_of_the_q_norm(name):
    """Psi((x + y) / 2) <= (Psi(x) + Psi(y)) / 2 - |x - y|_q^2 / 8 on random pairs."""
    kind, geometry = PAIRS[name]
    rng, q = np.random.default_rng(6), kind.exponent(geometry)
    for _ in range(300):
        x, y = rng.normal(size=(2, geometry.n_features)) * rng.exponential(1.0, size=(2, 1))
        gap = np.sum(geometry.magnitudes(x - y) ** q) ** (2 / q)
        middle = psi(kind, geometry, (x + y) / 2)
        assert middle <= (psi(kind, geometry, x) + psi(kind, geometry, y)) / 2 - gap / 8 + 1e-9


def test_names_and_misfits():
    assert potential("q-norm") == QNorm()
    with pytest.raises(ValueError, match="unknown potential"):
        potential("cosine")
    with pytest.raises(ValueError, match="entropy potential is for"):
        Entropy().check(L2Ball(1.0, 3))
    with pytest.raises(ValueError, match="q-norm potential is for"):
        QNorm().check(Simplex(1.0, 3))
