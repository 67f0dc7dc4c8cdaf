"""Symmetric Gaussian noise: layout, scale, price, and the exact separation of two worst neighbors."""

import math

import numpy as np
import pytest

from discreet.mechanisms.additive import SymmetricGaussianMechanism, mirror_lower
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.events import Discretized, Gaussian
from discreet.privacy.guarantee import Sensitivity


def noise(order, count=1, stddev=2.0, seed=0):
    mechanism = SymmetricGaussianMechanism(Sensitivity(1.0), stddev, order, count)
    with insecure_noise(seed):
        return mechanism.release(np.zeros((count, order, order)), fresh_entropy())


def test_diagonal_has_the_stated_variance_and_the_rest_half_of_it():
    draws = noise(20, count=2000)
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    diagonal = draws[:, np.arange(20), np.arange(20)].ravel()
    beside = draws[:, *np.tril_indices(20, -1)].ravel()
    for sample, variance in ((diagonal, 4.0), (beside, 2.0)):
        error = math.sqrt(2 / len(sample))
        assert abs(sample.var() / variance - 1) < 5 * error
        assert abs(sample.mean()) < 5 * math.sqrt(variance / len(sample))


def test_spectral_norm_is_that_of_a_symmetrized_matrix():
    draws = noise(500, stddev=1.0)[0]
    largest = np.abs(np.linalg.eigvalsh(draws)).max()
    assert abs(largest / math.sqrt(500) - math.sqrt(2)) < 0.08  # deviates by some n^(-2/3) = 0.016


def test_values_lie_on_the_grid_and_the_event_counts_variates():
    mechanism = SymmetricGaussianMechanism(Sensitivity(3.0), 0.5, 4, 7)
    assert mechanism.event == Discretized(Gaussian(0.5), 7 * 10)
    assert mechanism.stddev >= 1.5
    assert mechanism.stddev < 1.5 * (1 + 1e-7)


@pytest.mark.parametrize(("order", "count"), [(1, 1), (2, 10**6), (3000, 1)])
def test_noise_covers_the_rounding(order, count):
    """One step of the coarser grid in every entry, in Frobenius norm, and the noise beside the diagonal as well."""
    mechanism = SymmetricGaussianMechanism(Sensitivity(1.0), 200.0, order, count)
    on, beside = mechanism._noises
    needed = 200.0 * (1.0 + on.grid * order * math.sqrt(count))
    assert on.effective_stddev >= needed
    assert beside.effective_stddev >= needed / math.sqrt(2)


def test_worst_neighbors_are_exactly_mu_apart():
    """C e_1 against C e_2: (W_11 - W_22) / sqrt(2) separates by sqrt(2) C^2, in units of the noise 1 / multiplier."""
    runs, multiplier = 40_000, 3.0
    mechanism = SymmetricGaussianMechanism(Sensitivity(math.sqrt(2)), multiplier, 2, runs)
    first, second = np.zeros((runs, 2, 2)), np.zeros((runs, 2, 2))
    first[:, 0, 0], second[:, 1, 1] = 1.0, 1.0
    with insecure_noise(1):
        samples = [mechanism.release(value, fresh_entropy()) for value in (first, second)]
    statistics = [(s[:, 0, 0] - s[:, 1, 1]) / math.sqrt(2) for s in samples]
    stddev = multiplier * math.sqrt(2)
    mu = (statistics[0].mean() - statistics[1].mean()) / stddev
    assert abs(mu - 1 / multiplier) <= 5 * math.sqrt(2 / runs)
    assert abs(statistics[0].var() / stddev**2 - 1) <= 5 * math.sqrt(2 / runs)


def test_wrong_shapes_are_refused():
    mechanism = SymmetricGaussianMechanism(Sensitivity(1.0), 1.0, 3)
    with pytest.raises(ValueError, match="symmetric matrices of order 3"):
        mechanism.release(np.zeros((2, 2)), fresh_entropy())
    with pytest.raises(ValueError, match="size"):
        SymmetricGaussianMechanism(Sensitivity(1.0), 1.0, 0)


def test_in_place_release_is_the_same_release_and_a_recorder_still_hears_the_exact_value():
    rng = np.random.default_rng(0)
    value = rng.integers(0, 100, (2, 300, 300)).astype(np.float64)
    value += value.transpose(0, 2, 1)
    mechanism = SymmetricGaussianMechanism(Sensitivity(1.0), 2.0, 300, 2)
    with insecure_noise(5):
        apart = mechanism.release(value, fresh_entropy())
    recorder, place = Recorder(), value.copy()
    with insecure_noise(5), recorded_by(recorder):
        assert mechanism.release(place, fresh_entropy(), in_place=True) is not None
    assert np.array_equal(place, apart)
    assert np.array_equal(place, place.transpose(0, 2, 1))
    assert np.array_equal(recorder.calls[0].value, value)


@pytest.mark.parametrize("order", [1, 255, 256, 257, 600])
def test_mirroring_in_tiles(order):
    square = np.random.default_rng(0).normal(size=(order, order))
    lower = np.tril(square)
    mirror_lower(square)
    assert np.array_equal(square, lower + np.tril(lower, -1).T)
