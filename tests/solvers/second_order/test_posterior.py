"""Posterior means of coefficients: limits with closed forms, and the scale of residuals that companions tell."""

import math

import numpy as np
import pytest
from scipy import stats

from discreet.solvers.second_order.coordinates import NoisyMoments
from discreet.solvers.second_order.posterior import (
    Curvature,
    PosteriorMean,
    ResidualScale,
    clipped_square,
    prior_root,
    unclipped_share,
)


def problem(seed=0, n=400, p=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * [3.0, 1.0, 1.0, 0.3, 0.1]
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


def gradient(X, y, theta, cap=math.inf):
    return X.T @ np.clip(X @ theta - y, -cap, cap)


def test_without_noise_one_gradient_is_enough_for_least_squares():
    X, y = problem()
    state = PosteriorMean(Curvature(X.T @ X, 0.0), 100 * np.eye(5))
    state.update(gradient(X, y, state.theta), 1e-6, 1.0)
    assert np.allclose(state.theta, np.linalg.lstsq(X, y)[0], atol=1e-6)


def test_one_gradient_of_known_noise_is_the_mean_of_a_gaussian_posterior():
    X, y = problem()
    H, noise = X.T @ X, 40.0
    noisy = gradient(X, y, np.zeros(5)) + noise * np.random.default_rng(1).normal(size=5)
    state = PosteriorMean(Curvature(H, 0.0), 0.7 * np.eye(5))
    theta = state.update(noisy, noise, 1.0)
    precision = np.eye(5) / (0.49 * state.prior) + H @ H / noise**2
    assert np.allclose(theta, np.linalg.solve(precision, -H @ noisy / noise**2), rtol=1e-9)
    assert state.variance == pytest.approx(np.trace(np.linalg.inv(precision)), rel=1e-9)


def test_sure_gradients_count_more_and_many_count_like_one():
    X, y = problem()
    H, rng = X.T @ X, np.random.default_rng(2)
    errors = {1: [], 16: []}
    for steps, found in errors.items():
        for _ in range(40):
            state = PosteriorMean(Curvature(H, 0.0), 10 * np.eye(5))
            for _ in range(steps):
                noise = 20 * math.sqrt(steps)
                noisy = gradient(X, y, state.theta) + noise * rng.normal(size=5)
                state.update(noisy, noise, 1.0)
            found.append(np.linalg.norm(X @ (state.theta - np.linalg.lstsq(X, y)[0])))
    assert np.mean(errors[16]) == pytest.approx(np.mean(errors[1]), rel=0.25)


def test_doubted_steps_reach_the_huber_estimate_that_clipped_gradients_vanish_at():
    X, y = problem()
    y[::7] += 8.0
    state = PosteriorMean(Curvature(X.T @ X, 0.0), 100 * np.eye(5))
    for _ in range(40):
        state.update(gradient(X, y, state.theta, cap=1.0), 1e-9, 0.6, doubt=0.4)
    trusting = PosteriorMean(Curvature(X.T @ X, 0.0), 100 * np.eye(5))
    for _ in range(40):
        trusting.update(gradient(X, y, trusting.theta, cap=1.0), 1e-9, 0.6)
    left = np.linalg.norm(gradient(X, y, state.theta, cap=1.0))
    assert left < 1e-4 * np.linalg.norm(gradient(X, y, np.zeros(5), cap=1.0))
    assert left < 0.1 * np.linalg.norm(gradient(X, y, trusting.theta, cap=1.0))


def test_coordinates_do_not_matter():
    X, y = problem()
    A = np.random.default_rng(5).normal(size=(5, 5))
    noisy = gradient(X, y, np.zeros(5)) + 30.0
    here = PosteriorMean(Curvature(X.T @ X, 0.0), prior_root(np.eye(5), np.full(5, 2.0)))
    W = X @ A
    there = PosteriorMean(Curvature(W.T @ W, 0.0), prior_root(A, np.full(5, 2.0)))
    here.update(noisy, 1e-5, 1.0)
    there.update(A.T @ noisy, 1e-5, 1.0)
    assert np.allclose(here.theta, A @ there.theta, rtol=1e-5)


def test_pure_noise_shrinks_the_prior():
    rng, H = np.random.default_rng(6), 50 * np.eye(30)
    state = PosteriorMean(Curvature(H, 0.0), np.eye(30), least_prior=0.005)
    state.update(5.0 * rng.normal(size=30), 5.0, 1.0)
    strong = PosteriorMean(Curvature(H, 0.0), np.eye(30), least_prior=0.005)
    strong.update(50.0 * rng.normal(size=30), 5.0, 1.0)
    assert state.prior < 0.1 < 0.5 < strong.prior


def test_eigenvalues_that_noise_hides_share_their_mean():
    second = np.diag([100.0, 3.0, -1.0, 1.0])
    noisy = NoisyMoments(second, np.zeros(4), 2.0, 2.0)
    found = Curvature.from_moments(noisy, np.eye(4))
    hidden = 1.0 + 0.2 * noisy.matrix_noise
    assert np.allclose(np.linalg.eigvalsh(found.matrix), [hidden, hidden, hidden, 100.0])
    assert found.error == 2.0
    assert Curvature.from_moments(noisy, np.eye(4) / 2).error == 0.5


@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0])
def test_what_a_normal_residual_leaves_of_its_cap(ratio):
    law = stats.norm()
    assert clipped_square(ratio) == pytest.approx(law.expect(lambda r: min(1.0, (r / ratio) ** 2)), rel=1e-6)
    assert unclipped_share(ratio) == pytest.approx(law.cdf(ratio) - law.cdf(-ratio))


@pytest.mark.parametrize("truth", [0.03, 0.2, 1.5])
@pytest.mark.parametrize("multiple", [1.0, 8.0])
def test_the_scale_is_found_from_noisy_companions(truth, multiple):
    rng, tracker = np.random.default_rng(7), ResidualScale(0.5)
    for _ in range(20):
        cap = multiple * tracker.scale
        noisy = clipped_square(cap / truth) + 0.001 * rng.normal()
        tracker.update(noisy, 0.001, cap)
    assert tracker.scale == pytest.approx(truth, rel=0.1)
