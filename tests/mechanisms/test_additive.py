"""Noise on a grid: scales, grids, the price of rounding, and inputs chosen to break it."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.mechanisms.additive import (
    GaussianMechanism,
    GaussianNoise,
    LaplaceMechanism,
    LaplaceNoise,
    _to_grid,
)
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.privacy.events import Discretized, Gaussian, Pure
from discreet.privacy.guarantee import Sensitivity

SCALES = [1.0, 0.7, math.nextafter(1.0, 0), math.nextafter(2.0, 0), 1e-12, 3e40, 2.0**-900, 2.0**900]
ADVERSARIAL = [0.0, -0.0, 5e-324, -5e-324, 1e-300, 1.0, -1e15, 1e308, -1.7e308, math.inf, -math.inf, math.nan]


def seeded(seed: int) -> Entropy:
    with insecure_noise(seed):
        return fresh_entropy()


@pytest.mark.parametrize("scale", SCALES)
def test_grid_and_effective_scale(scale):
    gaussian, laplace = GaussianNoise(scale), LaplaceNoise(scale)
    assert gaussian.grid == laplace.grid
    assert math.frexp(gaussian.grid)[0] == 0.5
    assert 2**30 <= scale / gaussian.grid < 2**31
    for effective in (gaussian.effective_stddev, laplace.effective_scale):
        excess = Fraction(effective) / Fraction(scale) - 1
        assert 0 <= excess < Fraction(1, 2**22)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-300, 1e300])
def test_scales_out_of_range_are_refused(scale):
    for noise in (GaussianNoise, LaplaceNoise):
        with pytest.raises(ValueError, match="must lie between"):
            noise(scale)


@pytest.mark.parametrize(
    ("noise", "law"),
    [(GaussianNoise(0.3), stats.norm(scale=0.3)), (LaplaceNoise(0.3), stats.laplace(scale=0.3))],
)
def test_draws_have_the_stated_scale_and_no_other(noise, law):
    draws = noise.draw((1024, 1024), seeded(1))
    assert draws.shape == (1024, 1024)
    assert draws.dtype == np.float64
    assert np.all(draws == np.floor(draws / noise.grid) * noise.grid)
    sample = draws.ravel()
    assert stats.kstest(sample, law.cdf).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, law.dist(scale=0.3 * wrong).cdf).pvalue < 1e-12


def test_shapes():
    noise = GaussianNoise(1.0)
    for shape, expected in ((3, (3,)), (np.int64(3), (3,)), ((), ()), ((2, 0), (2, 0)), ([2, 3], (2, 3))):
        assert noise.draw(shape, seeded(2)).shape == expected


@pytest.mark.parametrize("steps", [20.0, 50.5, 300.0])
def test_total_variation_bound(steps):
    """The proved bound at scales where the distance can be computed; its constant is nearly attained."""
    k = np.arange(-int(12 * steps), int(12 * steps) + 1)
    discrete = np.exp(-(k**2) / (2 * steps**2))
    discrete /= discrete.sum()
    right = np.where(k >= 0, stats.norm.sf((k - 0.5) / steps), stats.norm.cdf((k + 0.5) / steps))
    left = np.where(k >= 0, stats.norm.sf((k + 0.5) / steps), stats.norm.cdf((k - 0.5) / steps))
    distance = np.abs(discrete - (right - left)).sum() / 2
    assert 0.0200 < distance * steps**2 < 0.021


def test_total_variation_of_the_noise():
    noise = GaussianNoise(1.0)
    assert noise.total_variation == pytest.approx(0.021 / 2.0**60, rel=1e-6)


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 70.0, 255.9999])
@pytest.mark.parametrize("sensitivity", [1e-9, 1.0, math.nextafter(2.0, 0), 1e9])
def test_noise_covers_the_rounding(sensitivity, multiplier, size):
    gaussian = GaussianMechanism(Sensitivity(sensitivity), multiplier, size)
    laplace = LaplaceMechanism(Sensitivity(sensitivity, 1.0), multiplier, min(size, 1000))
    exact = Fraction(sensitivity)
    rounding = Fraction(gaussian.noise.grid) * (math.isqrt(size * 10**40) + 1) / 10**20
    assert Fraction(gaussian.noise.effective_stddev) >= Fraction(multiplier) * (exact + rounding)
    assert Fraction(laplace.noise.effective_scale) >= Fraction(multiplier) * (
        exact + Fraction(laplace.noise.grid) * laplace.size
    )
    assert gaussian.stddev <= multiplier * sensitivity * 1.001


def test_events():
    gaussian = GaussianMechanism(Sensitivity(2.0), 1.5, 1000)
    event = gaussian.event
    assert event == Discretized(Gaussian(1.5), 1000)
    assert LaplaceMechanism(Sensitivity(2.0, 1.0), 4.0, 10).event == Pure(0.25)


def test_release_is_the_value_plus_noise_of_the_stated_scale():
    size = 200_000
    value = np.linspace(-5, 5, size)
    for mechanism, law in (
        (GaussianMechanism(Sensitivity(2.0), 1.5, size), stats.norm),
        (LaplaceMechanism(Sensitivity(2.0, 1.0), 1.5, size), stats.laplace),
    ):
        scale = mechanism.noise.effective_stddev if law is stats.norm else mechanism.noise.effective_scale
        residual = mechanism.release(value, seeded(3)) - value
        assert stats.kstest(residual, law(scale=scale).cdf).pvalue > 1e-3
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(residual, law(scale=scale * wrong).cdf).pvalue < 1e-12


@pytest.mark.parametrize("make", [GaussianMechanism, LaplaceMechanism])
@pytest.mark.parametrize("sensitivity", [1.0, 1e-200, 1e200])
def test_no_value_raises_warns_or_leaves_the_grid(make, sensitivity):
    norm = 2.0 if make is GaussianMechanism else 1.0
    mechanism = make(Sensitivity(sensitivity, norm), 1.0, len(ADVERSARIAL))
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        released = mechanism.release(ADVERSARIAL, seeded(4))
    assert np.all(np.isfinite(released))
    steps = released / mechanism.noise.grid
    assert np.all(steps == np.floor(steps))
    assert np.all(np.abs(steps) <= 2.0**62 + 2.0**40)


def test_values_that_are_not_finite_count_as_zero():
    mechanism = GaussianMechanism(Sensitivity(1.0), 1.0, 3)
    replaced = mechanism.release([math.nan, math.inf, -math.inf], seeded(5))
    assert replaced.tolist() == mechanism.release(np.zeros(3), seeded(5)).tolist()


def test_the_grid_does_not_depend_on_the_value():
    """The last bits of a float sum would tell a small value from a large one; these do not."""
    mechanism = GaussianMechanism(Sensitivity(1.0), 1.0, 4096)
    for value in (0.0, 1e-30, 1 / 3, 1e5):
        steps = mechanism.release(np.full(4096, value), seeded(6)) / mechanism.noise.grid
        assert np.all(steps == np.rint(steps))
        assert len(np.unique(steps.astype(np.int64) % 8)) == 8


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False)
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(-900, 900),
)
@pytest.mark.lemma("discrete-noise.md#section-4")
def test_rounding_costs_at_most_one_step_per_coordinate(pairs, exponent):
    grid = 2.0**exponent
    first, second = (_to_grid(np.array(side), len(pairs), grid) for side in zip(*pairs, strict=True))
    for k, m, (a, b) in zip(first.tolist(), second.tolist(), pairs, strict=True):
        assert abs(k - m) <= abs(Fraction(a) - Fraction(b)) / Fraction(grid) + 1


def test_refusals():
    with pytest.raises(ValueError, match="L2 norm"):
        GaussianMechanism(Sensitivity(1.0, 1.0), 1.0, 1)
    with pytest.raises(ValueError, match="L1 norm"):
        LaplaceMechanism(Sensitivity(1.0, 2.0), 1.0, 1)
    with pytest.raises(ValueError, match="needs no noise"):
        GaussianMechanism(Sensitivity(0.0), 1.0, 1)
    for multiplier in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="noise_multiplier"):
            GaussianMechanism(Sensitivity(1.0), multiplier, 1)
    for size in (0, -1, True, 1.0):
        with pytest.raises(ValueError, match="size"):
            GaussianMechanism(Sensitivity(1.0), 1.0, size)
    with pytest.raises(ValueError, match="too large"):
        LaplaceMechanism(Sensitivity(1.0, 1.0), 1e4, 10**6)
    with pytest.raises(ValueError, match="must lie between"):
        GaussianMechanism(Sensitivity(1e-299), 1.0, 1)
    with pytest.raises(ValueError, match="releases 3 numbers"):
        GaussianMechanism(Sensitivity(1.0), 1.0, 3).release(np.zeros(4), seeded(7))
