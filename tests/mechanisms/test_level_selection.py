"""Leveled selection: its law, its levels, the exact path, and what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.mechanisms import level_selection
from discreet.mechanisms.level_selection import (
    LeveledSelection,
    LeveledTotals,
    add_at,
    largest_range,
    power_coin,
)
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.events import BoundedRange

DRAWS = 20_000
UNLIKELY = 1e-7  # p-values below are taken for errors


def totals_of(values, shift, largest=None):
    values = np.array(values, dtype=np.int64)
    return LeveledTotals(values, shift, int(np.abs(values).max()) if largest is None else largest)


def change(totals, index, amount):
    add_at(index, amount, totals.values, totals.shift, totals.order, totals.place, totals.starts)


def law(values, scale):
    scores = np.concatenate([-np.array(values), values]) / scale
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def p_value(counts, probabilities):
    keep = probabilities * counts.sum() >= 5
    observed = np.append(counts[keep], counts[~keep].sum())
    expected = np.append(probabilities[keep], probabilities[~keep].sum()) * counts.sum()
    return stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue


@pytest.mark.parametrize(
    "values",
    [
        [0, 3, -17, 60, -59, 31, 32, -100, 99, 5],
        [0] * 7,
        [500, -500, 499, 0, 0, 0, 0, 0],
        [*range(-40, 40)],
    ],
    ids=["mixed", "all equal", "one sided", "many"],
)
def test_choices_follow_the_softmax(values):
    mechanism = LeveledSelection(step_range=40, epsilon=0.9, size=len(values))
    totals, entropy = totals_of(values, mechanism.shift), fresh_entropy()
    chosen = [mechanism.select(totals, entropy) for _ in range(DRAWS)]
    counts = np.bincount(chosen, minlength=2 * len(values))
    assert p_value(counts, law(values, mechanism.scale)) > UNLIKELY
    if any(values):
        assert p_value(counts, law(values, mechanism.scale * 1.5)) < UNLIKELY
        assert p_value(counts, law([-v for v in values], mechanism.scale)) < UNLIKELY or sorted(
            values
        ) == sorted(-v for v in values)


def test_the_law_survives_changes_of_the_totals():
    values = np.array([900, -20, 35, 0, 0, -7, 300])
    mechanism = LeveledSelection(40, 0.5, len(values))
    totals = totals_of(np.zeros(len(values)), mechanism.shift, 2000)
    rng = np.random.default_rng(0)
    for _ in range(200):
        index = int(rng.integers(len(values)))
        change(totals, index, int(rng.integers(-900, 900)) - int(totals.values[index]))
    for index, value in enumerate(values):
        change(totals, index, int(value) - int(totals.values[index]))
    entropy = fresh_entropy()
    counts = np.bincount([mechanism.select(totals, entropy) for _ in range(DRAWS)], minlength=14)
    assert p_value(counts, law(values, mechanism.scale)) > UNLIKELY


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.integers(-1000, 1000)), max_size=60),
    st.integers(0, 8),
)
def test_levels_stay_in_order(values, changes, shift):
    totals = totals_of(values, shift, 1000 * 61)
    expected = list(values)
    for index, amount in changes:
        index %= len(values)
        change(totals, index, amount)
        expected[index] += amount
    assert totals.values.tolist() == expected
    assert sorted(totals.order.tolist()) == list(range(len(values)))
    assert totals.order[totals.place].tolist() == list(range(len(values)))
    for level in range(len(totals.starts) - 1):
        members = totals.order[totals.starts[level] : totals.starts[level + 1]]
        assert all(abs(expected[j]) >> shift == level for j in members)
    assert totals.starts[-1] == len(values)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3000, 3000), min_size=1, max_size=40), st.integers(0, 6))
def test_heavy_levels_weigh_what_they_should(values, shift):
    starts = totals_of(values, shift).starts
    levels, edges, heaviest, n_light = level_selection._heavy_levels(starts)
    counts = np.diff(starts)
    weights = {int(k): int(k) + level_selection._room(int(counts[k])) for k in np.flatnonzero(counts)}
    assert heaviest == max(weights.values())
    heavy = [k for k, e in weights.items() if e >= heaviest - level_selection._SPAN]
    assert sorted(levels.tolist()) == heavy
    sizes = np.diff(edges, prepend=0)
    assert all(
        size == 2 ** (weights[k] - heaviest + level_selection._SPAN)
        for k, size in zip(levels, sizes, strict=True)
    )
    assert n_light > 0 or len(heavy) == len(weights)
    light = sum(
        Fraction(2) ** (e - heaviest + level_selection._SPAN) for k, e in weights.items() if k not in heavy
    )
    assert light < level_selection._FEW
    assert edges[-1] + level_selection._FEW < 2**62


def test_floats_and_exact_arithmetic_decide_alike():
    values = [0, 3, -17, 60, -59, 31, 32, -100, 99, 5, 4000]
    totals, entropy = totals_of(values, 5), fresh_entropy()
    levels, edges, heaviest, n_light = level_selection._heavy_levels(totals.starts)
    parts = (totals.values, totals.order, totals.starts, totals.shift)
    kept = 0
    for _ in range(600):
        words = entropy.words(3)
        found, _ = level_selection._first_kept(words, 0, levels, edges, n_light > 0, *parts)
        exact = level_selection._decide_exactly(totals, words, levels, edges, heaviest, n_light, entropy)
        assert found == exact or found < -1
        kept += found >= 0
    assert kept > 20


def test_light_levels_get_their_share():
    """One index 60 doublings above three others: light levels are told apart by bits drawn on demand."""
    totals, entropy = totals_of([61, 3, 2, 2], 0), fresh_entropy()
    levels, _, heaviest, n_light = level_selection._heavy_levels(totals.starts)
    assert levels.tolist() == [61]
    assert n_light > 0
    found = [level_selection._light_level(totals.starts, 0, heaviest, entropy) for _ in range(4000)]
    # Level 3 weighs 2^4, level 2 2^4, in units of 2^(62 - 54) = 2^8: each has 1/16 of the first unit.
    counts = np.array([found.count(3), found.count(2), found.count(-1)])
    assert p_value(counts, np.array([1 / 16, 1 / 16, 14 / 16])) > UNLIKELY
    assert level_selection._light_level(totals.starts, 1, heaviest, entropy) == -1


@pytest.mark.parametrize("exponent", [Fraction(1, 3), Fraction(7, 2), Fraction(40, 3), Fraction(1, 2**40)])
def test_coins_are_exact_at_the_threshold(exponent):
    with mpmath.workdps(60):
        power = mpmath.power(2, -mpmath.mpf(exponent.numerator) / exponent.denominator)
        threshold = int(mpmath.floor(power * 2**64))
    entropy = fresh_entropy()
    assert power_coin(exponent, threshold - 1, entropy)
    if threshold + 1 < 2**64:
        assert not power_coin(exponent, threshold + 1, entropy)
    assert power_coin(Fraction(0), 2**64 - 1, entropy)


class _Words:
    """An entropy that gives these words, one by one."""

    def __init__(self, words):
        self._words = iter(words)

    def words(self, count):
        return [next(self._words) for _ in range(count)]


@pytest.mark.parametrize("exponent", [Fraction(1, 3), Fraction(7, 5), Fraction(12345, 677)])
@pytest.mark.parametrize("shared", [2, 5, 9])
def test_a_coin_is_decided_by_the_digits_in_which_it_differs(exponent, shared):
    """Uniform numbers that share many words with 2^-exponent, and are one below or above it in the last of them."""
    with mpmath.workdps(300):
        power = mpmath.mpf(2) ** (-mpmath.mpf(exponent.numerator) / exponent.denominator)
        digits = int(mpmath.floor(power * mpmath.mpf(2) ** (64 * shared)))
    for off, below in ((-1, True), (0, True), (1, False), (2, False)):
        number = digits + off
        words = [(number >> 64 * (shared - 1 - place)) % 2**64 for place in range(shared)]
        assert power_coin(exponent, words[0], _Words([*words[1:], 0, 0])) is below


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 0.7, 30.0])
@pytest.mark.parametrize("steps", [1, 37, 2**31 + 5])
def test_the_shift_is_the_least_private_one(epsilon, steps):
    shift = LeveledSelection(steps, epsilon, 5).shift
    assert steps * math.log(2) / 2**shift <= epsilon * (1 + 1e-12)
    assert shift == 0 or steps * math.log(2) / 2 ** (shift - 1) > epsilon * (1 - 1e-12)
    assert largest_range(epsilon, shift) >= steps


@pytest.mark.lemma("sparse-frank-wolfe.md#lemma-1")
def test_neighbors_are_within_the_range_and_half_the_noise_is_not():
    epsilon, values = 0.5, np.array([3, -8, 20])
    mechanism = LeveledSelection(largest_range(epsilon, 6), epsilon, 3)
    assert mechanism.event == BoundedRange(epsilon)
    half = mechanism.step_range // 2
    other = values + np.array([half, -half, 0])
    for scale, private in ((mechanism.scale, True), (mechanism.scale / 2, False)):
        spread = np.ptp(np.log(law(values, scale) / law(other, scale)))
        assert (spread <= epsilon * (1 + 1e-9)) == private
        assert spread > 0.9 * epsilon


def test_a_recorder_sees_all_scores():
    from discreet.mechanisms.samplers.entropy import insecure_noise

    mechanism, recorder = LeveledSelection(40, 0.9, 2, unit=0.5), Recorder()
    with insecure_noise(3), recorded_by(recorder):
        mechanism.select(totals_of([6, -2], mechanism.shift), fresh_entropy())
    assert recorder.calls[0].value.tolist() == [-3.0, 1.0, 3.0, -1.0]
    assert recorder.calls[0].score_range == 20.0


def test_refusals():
    for arguments in ((0, 1.0, 3), (5, 0.0, 3), (5, 1.0, 0), (2**61, 1e-3, 3)):
        with pytest.raises(ValueError):
            LeveledSelection(*arguments)
    with pytest.raises(ValueError, match="too many levels"):
        totals_of([1], 0, 2**40)
    assert len(totals_of([1], 50, 2**61).starts) == 2**11 + 2
    with pytest.raises(ValueError, match="too many levels"):  # their sums would not fit into 64 bits
        totals_of([1], 50, 2**61 + 1)
    with pytest.raises(ValueError, match="chooses among 4 totals"):
        LeveledSelection(40, 0.9, 4).select(totals_of([1, 2], 6), fresh_entropy())
