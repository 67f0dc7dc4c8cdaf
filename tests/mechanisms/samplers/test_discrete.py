"""The samplers against their exact laws, and wrong samplers that the same tests must catch."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.mechanisms.samplers import discrete
from discreet.mechanisms.samplers.discrete import (
    DiscreteLaw,
    GeometricNoise,
    cumulative_table,
    discrete_gaussian,
    discrete_laplace,
)
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise

S63 = Fraction(63, 10)
LAWS = {
    "gaussian 0.5": discrete_gaussian(0.5),
    "gaussian 3": discrete_gaussian(3),
    "gaussian 300": discrete_gaussian(300),
    "gaussian 3 x 100": discrete_gaussian(3, 100),
    "gaussian 6.3 x 8": discrete_gaussian(S63, 8),
    "laplace 0.5": discrete_laplace(0.5),
    "laplace 3": discrete_laplace(3),
    "laplace 300": discrete_laplace(300),
    "laplace 3 x 100": discrete_laplace(3, 100),
}


def seeded(seed: int) -> Entropy:
    with insecure_noise(seed):
        return fresh_entropy()


def pmf(law: DiscreteLaw) -> tuple[np.ndarray, np.ndarray]:
    """All integers that matter and their probabilities, from the definition."""
    a, b = float(law.weights.linear) / law.width, float(law.weights.quadratic) / law.width**2
    reach = 1
    while a * reach + b * reach**2 < 60:
        reach *= 2
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-a * np.abs(x) - b * x.astype(float) ** 2)
    return x, weights / weights.sum()


def chi_square_pvalue(sample: np.ndarray, x: np.ndarray, probability: np.ndarray) -> float:
    """Pearson's test, neighboring cells pooled until each expects at least 25."""
    counts = np.bincount(np.clip(sample, x[0], x[-1]) - x[0], minlength=len(x))
    expected = probability * len(sample)
    cell = np.minimum((np.cumsum(expected) / 25).astype(int), int(len(sample) / 25) - 1)
    pooled_counts, pooled = np.bincount(cell, counts), np.bincount(cell, expected)
    keep = pooled > 0
    pooled_counts, pooled = pooled_counts[keep], pooled[keep]
    # A first or last cell may have come out thin: give it to its neighbor.
    while pooled[-1] < 15:
        pooled_counts, pooled = (np.append(v[:-2], v[-2:].sum()) for v in (pooled_counts, pooled))
    while pooled[0] < 15:
        pooled_counts, pooled = (np.append(v[:2].sum(), v[2:]) for v in (pooled_counts, pooled))
    return float(stats.chisquare(pooled_counts, pooled * pooled_counts.sum() / pooled.sum()).pvalue)


@pytest.mark.parametrize("name", LAWS)
def test_chi_square_against_the_exact_law(name):
    law = LAWS[name]
    sample = law.draw(1 << 18, seeded(1))
    assert chi_square_pvalue(sample, *pmf(law)) > 1e-3


@pytest.mark.parametrize(("name", "wrong"), [("gaussian 300", 294), ("gaussian 300", 306)])
def test_chi_square_notices_two_percent_of_scale(name, wrong):
    assert chi_square_pvalue(LAWS[name].draw(1 << 20, seeded(2)), *pmf(discrete_gaussian(wrong))) < 1e-6


@pytest.mark.parametrize("name", LAWS)
def test_moments(name):
    law = LAWS[name]
    x, probability = pmf(law)
    sample = law.draw(1 << 18, seeded(3)).astype(float)
    for power in (1, 2, 3, 4):
        moment = float(probability @ x.astype(float) ** power)
        error = math.sqrt(float(probability @ (x.astype(float) ** power - moment) ** 2) / len(sample))
        assert abs(float(np.mean(sample**power)) - moment) < 4 * error


@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        (discrete_gaussian(256, 7_654_321), stats.norm(scale=256 * 7_654_321).cdf),
        (discrete_laplace(256, 7_654_321), stats.laplace(scale=256 * 7_654_321).cdf),
    ],
    ids=["gaussian", "laplace"],
)
def test_kolmogorov_smirnov_at_large_scale(law, cdf):
    sample = law.draw(1 << 20, seeded(4)).astype(float)
    assert stats.kstest(sample, cdf).pvalue > 1e-3
    for wrong in (2 / 3, 0.97, 1.03, 3 / 2):
        assert stats.kstest(sample * wrong, cdf).pvalue < 1e-6


@pytest.mark.parametrize("modulus", [2, 3, 7, 16, 257])
@pytest.mark.parametrize("make", [discrete_gaussian, discrete_laplace])
def test_no_holes_every_residue_is_equally_likely(make, modulus):
    sample = make(256, (1 << 22) + 5).draw(1 << 17, seeded(5))
    counts = np.bincount(sample % modulus, minlength=modulus)
    assert counts.min() > 0
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(
    "law", [discrete_gaussian(S63, 8), discrete_laplace(S63, 8)], ids=["gaussian", "laplace"]
)
@pytest.mark.lemma("discrete-noise.md#section-1")
def test_the_decomposition_has_the_stated_law(law):
    """Sum the probabilities of all paths to every x; the factors are those that the sampler uses."""
    thresholds = [0, *(int(t) for t in cumulative_table(law.weights).thresholds)]
    paths: dict[int, float] = {}
    for index in range(len(thresholds) - 1):
        share = (thresholds[index + 1] - thresholds[index]) / 2**64
        for offset in range(law.width):
            accept = math.exp(-law.weights.drop(index, Fraction(offset, law.width)))
            for sign in (1, -1):
                x = sign * (index * law.width + offset)
                if sign > 0 or x != 0:
                    paths[x] = paths.get(x, 0.0) + share / law.width / 2 * accept
    accepted = sum(paths.values())
    x, probability = pmf(law)
    built = np.array([paths.get(int(value), 0.0) / accepted for value in x])
    assert np.max(np.abs(built - probability)) < 1e-15


@pytest.mark.parametrize(
    "law", [discrete_gaussian(S63, 8), discrete_laplace(S63, 5)], ids=["gaussian", "laplace"]
)
def test_the_kernel_uses_exactly_these_factors(law):
    """Spell every candidate, with the coin on either side of its probability, and watch the kernel."""
    thresholds = [0, *(int(t) for t in cumulative_table(law.weights).thresholds)]
    entropy = seeded(6)
    for index in range(len(thresholds) - 1):
        if thresholds[index + 1] - thresholds[index] < 4:
            break  # no word strictly between: the exact path's business
        first = (thresholds[index] + thresholds[index + 1]) // 2
        for offset in range(law.width):
            inside = (2 * offset + 1) * 2**40 // (2 * law.width)
            probability = math.exp(-law.weights.drop(index, Fraction(offset, law.width)))
            for negative in (0, 1):
                for shift, expected in ((-(2.0**-40), True), (2.0**-40, False)):
                    third = int((probability + shift) * 2.0**64)
                    if not 0 <= third < 2**64:
                        continue
                    words = np.array([first, inside << 24 | negative, third], dtype=np.uint64)
                    x = index * law.width + offset
                    expected_values = [-x if negative else x] if expected and (x or not negative) else []
                    assert law.accepted(words, entropy).tolist() == expected_values


@pytest.mark.parametrize("name", LAWS)
def test_kernel_and_exact_path_agree(name):
    law = LAWS[name]
    entropy = seeded(7)
    words = entropy.words(3 * 1000)
    exact = [law.exact(words[3 * i : 3 * i + 3], entropy) for i in range(1000)]
    assert law.accepted(words, entropy).tolist() == [x for x in exact if x is not None]


def test_close_candidates_take_the_exact_path_and_keep_their_place(monkeypatch):
    law = discrete_gaussian(256, 1 << 22)
    table = cumulative_table(law.weights)
    entropy = seeded(8)
    words = entropy.words(3 * 50).reshape(50, 3)
    words[:, 2] = 0  # coins that accept
    words[10, 0] = table.thresholds[40]
    words[20] = [5, 1 << 30, 2**64 - 1]  # offset 0: accepted with probability one, but within 2^-48 of it
    words[30, 0] = 2**64 - 1
    asked = []
    original = DiscreteLaw.exact

    def spy(self, three, source):
        sample = original(self, three, source)
        asked.append(tuple(int(word) for word in three))
        return None if len(asked) == 3 else sample

    monkeypatch.setattr(DiscreteLaw, "exact", spy)
    values = law.accepted(words.reshape(-1), entropy)
    assert asked == [tuple(int(word) for word in words[row]) for row in (10, 20, 30)]
    assert len(values) == 49
    assert abs(values[10]) // law.width in (40, 41)
    assert values[20] == 0
    plain = law.accepted(np.delete(words, (10, 20, 30), axis=0).reshape(-1), entropy)
    assert np.delete(values, (10, 20)).tolist() == plain.tolist()


def test_shapes_widths_and_refusals():
    assert discrete_gaussian(3).draw(0, seeded(9)).shape == (0,)
    assert len(discrete_gaussian(0.5).draw(100_003, seeded(9))) == 100_003
    for width in (0, 2**24 + 1):
        with pytest.raises(ValueError, match="width"):
            discrete_gaussian(3, width)
    for bad in (0, -1.0, 1e-6, 5000, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale must lie between"):
            discrete_laplace(bad)


def test_offsets_are_uniform_for_the_largest_width():
    law = discrete_gaussian(1000, 2**24)
    sample = law.draw(1 << 18, seeded(10))
    assert stats.kstest((np.abs(sample) % law.width) / law.width, "uniform").pvalue > 1e-3


# Broken twins: what must not pass.


def geometric_by_bits(scale: float, n: int, probability, rng: np.random.Generator) -> np.ndarray:
    """A geometric variable whose binary digits are drawn independently."""
    bits = [(rng.random(n) < probability(2**i / scale)).astype(np.int64) << i for i in range(12)]
    return np.sum(bits, axis=0)


@pytest.mark.parametrize(
    ("probability", "right"),
    [(lambda t: 1 / (1 + math.exp(min(t, 700))), True), (lambda t: math.exp(-t), False)],
    ids=["x/(1+x)", "x"],
)
def test_laplace_from_geometric_bits_needs_the_right_bit_probability(probability, right):
    rng = np.random.default_rng(0)
    n, scale = 1 << 17, 8.0
    difference = geometric_by_bits(scale, n, probability, rng) - geometric_by_bits(scale, n, probability, rng)
    pvalue = chi_square_pvalue(difference, *pmf(discrete_laplace(scale)))
    assert (pvalue > 1e-3) if right else (pvalue < 1e-12)


@pytest.mark.parametrize(
    "law", [discrete_gaussian(3, 100), discrete_laplace(3, 100)], ids=["gaussian", "laplace"]
)
def test_a_sampler_that_never_rejects_is_caught(law):
    table, words = cumulative_table(law.weights), seeded(12).words(3 << 18)
    values, close = np.empty(1 << 18, dtype=np.int64), np.empty((1 << 18, 2), dtype=np.int64)
    n, _ = discrete._try_candidates(
        words, table.thresholds, table.guide, np.uint64(law.width), 0.0, 0.0, values, close
    )
    assert chi_square_pvalue(values[:n], *pmf(law)) < 1e-12


def test_a_sampler_with_two_zeros_is_caught():
    law = discrete_gaussian(3)
    magnitude = np.abs(law.draw(1 << 18, seeded(13)))
    sample = law.draw(1 << 18, seeded(14))
    doubled = np.where(magnitude == 0, 0, sample)
    assert chi_square_pvalue(doubled, *pmf(law)) < 1e-12


def test_geometric_noise_has_its_law():
    with insecure_noise(1):
        draws = GeometricNoise(3.7).draw(40_000, fresh_entropy())
        large = GeometricNoise(5000.0).draw(20_000, fresh_entropy())
    a = math.exp(-1 / 3.7)
    for k in range(12):
        chance = (1 - a) * a**k
        assert abs((draws == k).mean() - chance) < 5 * math.sqrt(chance / 40_000)
    assert draws.min() == 0
    assert abs(large.mean() / 5000 - 1) < 0.05
    assert abs(np.quantile(large, 0.9) / (5000 * math.log(10)) - 1) < 0.05
    with pytest.raises(ValueError, match="scale"):
        GeometricNoise(0.01)
