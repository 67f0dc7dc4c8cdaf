"""Gamma-norm noise: exact normals, the law of the norm and of the direction, exact rounding, pure privacy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from discreet.mechanisms import gamma_norm
from discreet.mechanisms.additive import LaplaceNoise
from discreet.mechanisms.gamma_norm import (
    GammaNormMechanism,
    GammaNormNoise,
    draw_normals,
    exact_candidate,
    rounded_products,
)
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.privacy.events import Pure
from discreet.privacy.guarantee import Sensitivity

UNLIKELY = 1e-7  # chance with which any one of these tests fails on fresh noise


def seeded(seed: int) -> Entropy:
    with insecure_noise(seed):
        return fresh_entropy()


def signed(numbers):
    return np.where(numbers.negative, -1.0, 1.0) * numbers.magnitudes()


def test_normals_are_normal_and_nothing_else():
    sample = signed(draw_normals(200_000, fresh_entropy()))
    assert stats.kstest(sample, "norm").pvalue > UNLIKELY
    for wrong in (0.97, 1.03):
        assert stats.kstest(sample, "norm", args=(0, wrong)).pvalue < 1e-12


def test_more_digits_refine_the_number_and_never_change_it():
    numbers = draw_normals(300, fresh_entropy())
    for index in range(300):
        short, long = numbers.floor(index, 63), numbers.floor(index, 300)
        assert long >> (300 - 63) == short
        assert numbers.floor(index, 300) == long  # digits once drawn are kept
        value = Fraction(long, 2 ** (300 + gamma_norm.CELL_BITS))
        error = abs(Fraction(float(numbers.magnitudes()[index])) - value)
        assert error <= value / 2**53 + Fraction(1, 2**61)


def test_undrawn_digits_are_uniform():
    numbers = draw_normals(4000, fresh_entropy())
    later = [(numbers.floor(index, 191) % 2**64) / 2**64 for index in range(4000)]
    assert stats.kstest(later, "uniform").pvalue > UNLIKELY


def test_exact_arithmetic_agrees_with_floats_where_they_are_sure():
    entropy = fresh_entropy()
    words = entropy.words(3 * 600).reshape(600, 3)
    words[:, 2] |= np.uint64(2**64 - 2**52)  # coins close to 1, where many candidates are rejected
    accepted, refined = gamma_norm._accepted(words, entropy)
    assert not refined
    assert 20 < len(accepted) < 580
    for candidate in range(600):
        assert (exact_candidate(words[candidate], entropy) is not None) == (candidate in accepted)


def test_a_coin_too_close_to_call_is_decided_exactly():
    """A coin placed at exp(-drop) to 64 bits: floats cannot tell, further digits do, and both outcomes occur."""
    entropy = fresh_entropy()
    second = np.uint64(2**63)  # r = 1/2 and more digits
    first = np.uint64(2**62)
    cell = int(gamma_norm._cells(np.array([first]))[0])
    drop = 0.5 * gamma_norm._QUADRATIC * (2 * cell + 0.5)
    third = np.uint64(int(math.exp(-drop) * 2**53) << 11)
    words = np.tile(np.array([first, second, third], dtype=np.uint64), (5, 1))
    accepted, refined = gamma_norm._accepted(words, entropy)
    assert set(refined) == set(accepted.tolist())
    assert all(fraction.floor(63) == 2**62 for _, fraction in refined.values())


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.lemma("gamma-noise.md#theorem-1")
def test_the_norm_has_a_gamma_law_and_the_direction_none(size):
    noise, entropy = GammaNormNoise(0.3), fresh_entropy()
    draws = np.array([noise.draw(size, entropy) for _ in range(2000)])
    norms = np.linalg.norm(draws, axis=1)
    assert stats.kstest(norms / 0.3, stats.gamma(size).cdf).pvalue > UNLIKELY
    # The classic error: a radius drawn from the wrong gamma law, or from an exponential one.
    assert size == 1 or stats.kstest(norms / 0.3, stats.gamma(1).cdf).pvalue < 1e-12
    if size > 1:  # one squared coordinate of a uniform direction
        share = (draws[:, 0] / norms) ** 2
        assert stats.kstest(share, stats.beta(0.5, (size - 1) / 2).cdf).pvalue > UNLIKELY
    assert abs(np.mean(draws[:, 0] > 0) - 0.5) < 5.4 * 0.5 / math.sqrt(2000)


def test_in_one_dimension_it_is_rounded_laplace_noise():
    """At a scale of 3 steps every probability is known: exp(-(k - 1/2) / 3) (1 - exp(-1/3)) / 2 for k > 0."""
    entropy = fresh_entropy()
    counts = np.zeros(12)
    for _ in range(4000):
        value = rounded_products(3, draw_normals(1, entropy), draw_normals(2, entropy))[0][0]
        counts[min(11, value)] += 1
    k = np.arange(11)
    law = np.where(k == 0, 1 - np.exp(-1 / 6), np.exp(-(k - 0.5) / 3) * (1 - np.exp(-1 / 3)))
    law = np.append(law, 1 - law.sum())
    assert stats.chisquare(counts, law * counts.sum()).pvalue > UNLIKELY


def test_in_two_dimensions_every_cell_has_its_probability():
    entropy, steps, n = fresh_entropy(), 2, 4000
    seen = np.zeros((4, 4))
    for _ in range(n):
        directions, radius = draw_normals(2, entropy), draw_normals(3, entropy)
        a, b = np.minimum(3, rounded_products(steps, directions, radius)[0])
        seen[a, b] += 1

    def density(x, y):
        return math.exp(-math.hypot(x, y) / steps) / (2 * math.pi * steps**2)

    edges = [(0.0, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 60.0)]
    law = np.array([[4 * integrate.dblquad(density, *a, *b, epsabs=1e-7)[0] for b in edges] for a in edges])
    assert law.sum() == pytest.approx(1, abs=1e-5)
    assert stats.chisquare(seen.ravel(), law.ravel() / law.sum() * n).pvalue > UNLIKELY


def test_rounding_is_exact_also_where_floats_cannot_tell():
    directions, radius = draw_normals(30_000, fresh_entropy()), draw_normals(30_001, fresh_entropy())
    steps = 2**31 - 19
    values, n_exact = rounded_products(steps, directions, radius)
    assert n_exact > 0  # about one in a thousand at this size
    bits = 250
    unit = 2 ** (bits + gamma_norm.CELL_BITS)
    length = math.isqrt(sum(radius.floor(i, bits) ** 2 for i in range(len(radius))))
    for index in range(0, 30_000, 7):
        product = Fraction(steps * directions.floor(index, bits) * length, unit * unit)
        assert values[index] == math.floor(product + Fraction(1, 2))


def test_mechanism_prices_and_scales():
    mechanism = GammaNormMechanism(Sensitivity(2.0), noise_multiplier=4.0, size=100)
    assert mechanism.event == Pure(0.25)
    assert 8.0 <= mechanism.scale < 8.0 * (1 + 1e-6)
    assert mechanism.noise.grid == LaplaceNoise(mechanism.scale).grid
    assert mechanism.scale <= mechanism.noise.effective_scale < mechanism.scale * (1 + 2**-29)
    with pytest.raises(ValueError, match="L2"):
        GammaNormMechanism(Sensitivity(1.0, norm=1), 1.0, 3)
    with pytest.raises(ValueError, match="must lie between"):
        GammaNormNoise(1e300)


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 255.9999])
@pytest.mark.lemma("gamma-noise.md#theorem-2")
def test_noise_covers_the_rounding(multiplier, size):
    mechanism = GammaNormMechanism(Sensitivity(1.0), multiplier, size)
    rounding = Fraction(mechanism.noise.grid) * (math.isqrt(size * 10**40) + 1) / 10**20
    assert Fraction(mechanism.noise.effective_scale) >= Fraction(multiplier) * (1 + rounding)


def test_noise_and_words_do_not_depend_on_the_value():
    mechanism = GammaNormMechanism(Sensitivity(1.0), 1.0, size=4)
    first, second = seeded(3), seeded(3)
    a = mechanism.release([0.0, 0.0, 0.0, 0.0], first)
    b = mechanism.release([1.0, -5.0, 1e3, math.nan], second)
    np.testing.assert_array_equal(b - a, [1.0, -5.0, 1e3, 0.0])
    np.testing.assert_array_equal(first.words(5), second.words(5))


def test_shapes():
    noise = GammaNormNoise(1.0)
    for shape, expected in ((3, (3,)), ((2, 3), (2, 3)), ((0,), (0,))):
        assert noise.draw(shape, seeded(1)).shape == expected
