"""The exact arithmetic, against mpmath: thresholds, lazy comparisons, and the law of the slow path."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import stats

from discreet.mechanisms.samplers.discrete import (
    GUIDE_BITS,
    Weights,
    cumulative_table,
    discrete_gaussian,
    discrete_laplace,
    exact_coin,
    exact_index,
    exp_minus,
    partial_sums,
)
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise

LAWS = {
    "gaussian 0.5": discrete_gaussian(0.5).weights,
    "gaussian 6.3": discrete_gaussian(Fraction(63, 10)).weights,
    "gaussian 256": discrete_gaussian(256).weights,
    "laplace 0.5": discrete_laplace(0.5).weights,
    "laplace 256": discrete_laplace(256).weights,
}


class Script:
    """An entropy source that says what it is told."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


@cache
def cumulative(weights: Weights, digits: int = 120) -> list[mpmath.mpf]:
    """P(J <= j) by summation at high precision, the tail included."""
    with mpmath.workdps(digits):
        linear = mpmath.mpf(weights.linear.numerator) / weights.linear.denominator
        quadratic = mpmath.mpf(weights.quadratic.numerator) / weights.quadratic.denominator
        terms = []
        while not terms or terms[-1] > mpmath.mpf(10) ** -digits:
            terms.append(mpmath.exp(-linear * len(terms) - quadratic * len(terms) ** 2))
        total = mpmath.fsum(terms)
        sums, partial = [], mpmath.mpf(0)
        for term in terms:
            partial += term
            sums.append(partial / total)
        return sums


@pytest.mark.parametrize("bits", [1, 64, 300])
@pytest.mark.parametrize(
    "exponent", [Fraction(0), Fraction(1, 3), Fraction(7), Fraction(400), Fraction(1, 10**30)]
)
def test_exp_minus_is_within_one_unit(exponent, bits):
    with mpmath.workdps(400):
        truth = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * mpmath.mpf(2) ** bits
        assert abs(exp_minus(exponent, bits) - truth) <= 1


@pytest.mark.parametrize("name", LAWS)
def test_partial_sums_respect_their_error_bound(name):
    weights = LAWS[name]
    sums, error = partial_sums(weights, 128)
    truth = cumulative(weights, 60)
    with mpmath.workdps(60):
        total = mpmath.mpf(1) / truth[0]  # w_0 = 1
        worst = max(
            abs(partial - part * total * mpmath.mpf(2) ** 128)
            for partial, part in zip(sums, truth, strict=False)
        )
        assert worst <= error
        assert abs(sums[-1] - total * mpmath.mpf(2) ** 128) <= error
    assert error < 2**60


@pytest.mark.parametrize("name", LAWS)
def test_thresholds_are_floors_and_the_guide_points_to_them(name):
    table = cumulative_table(LAWS[name])
    truth = cumulative(LAWS[name], 60)
    with mpmath.workdps(60):
        floors = [int(mpmath.floor(part * 2**64)) for part in truth[: len(table.thresholds)]]
    assert table.thresholds.tolist() == floors
    assert floors[-1] == 2**64 - 1
    assert floors.count(2**64 - 1) == 1
    for bucket, start in enumerate(table.guide.tolist()):
        low = bucket << (64 - GUIDE_BITS)
        assert floors[start] >= low
        assert start == 0 or floors[start - 1] < low


def test_weights_must_decrease():
    with pytest.raises(ValueError, match="decrease"):
        Weights(Fraction(0), Fraction(0))


@pytest.mark.parametrize("name", ["gaussian 6.3", "gaussian 256", "laplace 256"])
def test_a_word_equal_to_a_threshold_is_extended(name):
    weights = LAWS[name]
    table, truth = cumulative_table(weights), cumulative(weights)
    for index in (0, 5, 17):
        word = int(table.thresholds[index])
        with mpmath.workdps(120):
            scaled = truth[index] * mpmath.mpf(2) ** 192
            following = [int(mpmath.floor(scaled / 2**64)) % 2**64, int(mpmath.floor(scaled)) % 2**64]
        assert exact_index(weights, word, Script(following[0] - 1)) == index
        assert exact_index(weights, word, Script(following[0] + 1)) == index + 1
        assert exact_index(weights, word, Script(following[0], following[1] - 1)) == index
        assert exact_index(weights, word, Script(following[0], following[1] + 1)) == index + 1
        assert exact_index(weights, word - 1, Script()) == index
        assert exact_index(weights, word + 1, Script()) == index + 1


@pytest.mark.parametrize("name", LAWS)
def test_the_far_tail_is_reached_with_its_exact_probability(name):
    weights = LAWS[name]
    truth = cumulative(weights, 150)
    for extra in (1, 2):
        with mpmath.workdps(150):
            level = 1 - 2.5 * mpmath.mpf(2) ** (-64 * (extra + 1))
            expected = next(j for j, part in enumerate(truth) if part > level)
        spelled = [2**64 - 1] * (extra - 1) + [2**64 - 3, 2**63, 0]
        assert exact_index(weights, 2**64 - 1, Script(*spelled)) == expected
        assert expected >= len(cumulative_table(weights).thresholds) - 1


def test_the_slow_path_has_the_right_law():
    """Given a word equal to a threshold, the index is j with the probability of the threshold's fraction."""
    weights = LAWS["gaussian 6.3"]
    table, truth = cumulative_table(weights), cumulative(weights)
    trials = 1500
    with insecure_noise(11):
        entropy = fresh_entropy()
    for index in (1, 4):
        word = int(table.thresholds[index])
        with mpmath.workdps(120):
            fraction = float(truth[index] * 2**64 - word)
        hits = sum(exact_index(weights, word, entropy) == index for _ in range(trials))
        assert stats.binomtest(hits, trials, fraction).pvalue > 1e-4


def test_the_exact_coin():
    exponent = Fraction(1, 50)
    with mpmath.workdps(100):
        scaled = mpmath.exp(-mpmath.mpf(1) / 50) * mpmath.mpf(2) ** 128
        word, following = divmod(int(mpmath.floor(scaled)), 2**64)
    assert exact_coin(exponent, word - 1, Script())
    assert not exact_coin(exponent, word + 1, Script())
    assert exact_coin(exponent, word, Script(following - 2))
    assert not exact_coin(exponent, word, Script(following + 2))
    assert exact_coin(Fraction(0), 2**64 - 1, Script())
