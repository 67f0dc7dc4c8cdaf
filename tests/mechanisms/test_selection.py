"""The exponential mechanism: its exact law, its exact sensitivity, and wrong versions that must be caught."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.mechanisms import selection
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.privacy.accounting.renyi import concentration, renyi_divergence
from discreet.privacy.events import BoundedRange
from discreet.privacy.guarantee import Neighboring


def seeded(seed: int) -> Entropy:
    with insecure_noise(seed):
        return fresh_entropy()


def frequencies_pvalue(counts: np.ndarray, probabilities: np.ndarray) -> float:
    keep = probabilities * counts.sum() >= 5
    observed = np.append(counts[keep], counts[~keep].sum())
    expected = np.append(probabilities[keep], probabilities[~keep].sum()) * counts.sum()
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("exact", [False, True])
def test_frequencies_are_the_softmax(exact):
    scores = np.array([0.0, 1.0, -2.0, 1.0, 3.0, 2.5])
    mechanism = ExponentialMechanism(score_range=2.0, epsilon=1.5, size=6)
    entropy, rounds = seeded(1), 2_000 if exact else 40_000
    if exact:
        steps = mechanism.steps(scores)
        draws = [mechanism._select_exactly(steps, int(word), entropy) for word in entropy.words(rounds)]
    else:
        draws = [mechanism.select(scores, entropy) for _ in range(rounds)]
    counts = np.bincount(draws, minlength=6)
    softmax = np.exp(scores * 1.5 / 2.0)
    assert frequencies_pvalue(counts, softmax / softmax.sum()) > 1e-3
    twice = np.exp(scores * 1.5)  # the twin that forgets the factor two of the range
    assert frequencies_pvalue(counts, twice / twice.sum()) < 1e-6


@pytest.mark.lemma("frank-wolfe.md#lemma-3")
def test_the_fast_path_agrees_with_exact_arithmetic_word_by_word():
    rng = np.random.default_rng(0)
    mechanism = ExponentialMechanism(1.0, 0.3, 50)
    entropy = seeded(2)
    for _ in range(200):
        scores = rng.normal(size=50) * 20
        word = np.array([entropy.words(1)[0]])
        fast = mechanism.select(scores, _Fixed(word))
        assert fast == mechanism._select_exactly(mechanism.steps(scores), int(word[0]), entropy)


class _Fixed(Entropy):
    """Words from a list, then from a cipher."""

    def __init__(self, words):
        super().__init__()
        self._list = [int(word) for word in words]

    def words(self, count):
        if self._list and int(count) == 1:
            return np.array([self._list.pop(0)], dtype=np.uint64)
        return super().words(count)


def test_words_on_a_boundary_go_to_exact_arithmetic(monkeypatch):
    called = []
    original = ExponentialMechanism._select_exactly
    monkeypatch.setattr(ExponentialMechanism, "_select_exactly", lambda *a: called.append(1) or original(*a))
    mechanism = ExponentialMechanism(1.0, 1.0, 4)
    flat = np.zeros(4)
    for word, expected in [(2**62, 1), (2**62 - 1, 0), (2**63, 2), (3 * 2**62, 3)]:
        # 2^64 U is exactly the boundary: later bits decide, and only an all-zero continuation is undecided.
        assert mechanism.select(flat, _Fixed([word])) == expected
    assert len(called) == 4
    assert mechanism.select(flat, _Fixed([2**61])) == 0
    assert len(called) == 4


@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 100, 101, 5000])
def test_prefix_sums(size):
    weights = np.random.default_rng(size).random(size)
    sums, additions = selection._prefix_sums(weights)
    assert np.allclose(sums, np.cumsum(weights), rtol=1e-13)
    assert additions <= 2 * math.sqrt(size) + 6


def test_exact_arithmetic_is_rarely_needed(monkeypatch):
    called = []
    monkeypatch.setattr(ExponentialMechanism, "_select_exactly", lambda *a: called.append(1) or 0)
    mechanism = ExponentialMechanism(1.0, 0.1, 20_000)
    scores, entropy = np.random.default_rng(0).normal(size=20_000), seeded(9)
    for _ in range(300):
        mechanism.select(scores, entropy)
    assert not called


def test_largest_and_smallest_words_are_legal():
    mechanism = ExponentialMechanism(1.0, 1.0, 3)
    scores = np.array([-1e5, 0.0, -1e5])
    for word in (0, 1, 2**64 - 1):
        assert mechanism.select(scores, _Fixed([word])) in (0, 1, 2)
    assert ExponentialMechanism(1.0, 1.0, 1).select([7.0], seeded(0)) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=6),
    st.floats(-3, 3),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.floats(0.01, 3),
)
def test_the_integer_range_is_never_exceeded(scores, shift, moves, score_range):
    """Scores that move unevenly by at most the range, and together by any amount."""
    a = np.array(scores)
    b = a + shift + np.array(moves[: len(a)]) * score_range
    b = np.where(b - a > shift + score_range, a, b)
    h = np.array([Fraction(float(y)) - Fraction(float(x)) for x, y in zip(a, b, strict=True)])
    spread = float(max(h) - min(h)) * (1 + 1e-12) + 1e-300
    mechanism = ExponentialMechanism(max(spread, 1e-6), 1.0, len(a))
    change = mechanism.steps(b) - mechanism.steps(a)
    assert change.max() - change.min() <= mechanism.integer_range
    # Log-likelihood ratios range over at most epsilon, exactly.
    assert mechanism.rate * int(np.ptp(change)) <= 1


def test_round_half_even_would_break_the_sensitivity():
    """The reason for rounding down: rint turns a change of 1 step into 2."""
    a, b = np.array([0.5]), np.array([1.5])
    assert np.rint(b) - np.rint(a) == 2
    assert np.floor(b) - np.floor(a) == 1


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=8),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.floats(0.01, 6),
    st.floats(1.01, 60),
)
@pytest.mark.lemma("frank-wolfe.md#lemma-1")
def test_renyi_divergence_of_bounded_range_pairs(logits, moves, epsilon, order):
    """D_a <= a epsilon^2 / 8 (docs/proofs/frank-wolfe.md, Lemma 1), with the tighter curve in between."""
    log_p = np.array(logits)
    log_q = log_p + epsilon * np.array(moves[: len(log_p)])
    log_p, log_q = (v - np.logaddexp.reduce(v) for v in (log_p, log_q))
    divergence = np.logaddexp.reduce(order * log_p + (1 - order) * log_q) / (order - 1)
    sharp = renyi_divergence(BoundedRange(epsilon), order, Neighboring.REPLACE_ONE)
    assert divergence <= sharp * (1 + 1e-9) + 1e-12
    assert sharp <= order * epsilon**2 / 8 * (1 + 1e-9)
    assert concentration(BoundedRange(epsilon)) <= epsilon**2 / 8 * (1 + 1e-9)


def test_the_bound_is_nearly_attained():
    """A coin whose log-odds move by epsilon: the constant 1/8 is sharp as epsilon goes to 0."""
    epsilon, order = 0.02, 3.0
    p, q = 1 / (1 + math.exp(epsilon / 2)), 1 / (1 + math.exp(-epsilon / 2))
    divergence = math.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (
        order - 1
    )
    assert 0.999 < divergence / (order * epsilon**2 / 8) <= 1.0


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_the_worst_pair_of_scores_uses_the_range_that_is_charged(epsilon):
    """One score moves by the whole range, the other by nothing: the log-ratios of the two choices are epsilon apart."""
    mechanism = ExponentialMechanism(3.0, epsilon, 2)
    assert mechanism.event == BoundedRange(epsilon)
    ratios = np.log(mechanism.probabilities([3.0, 0.0]) / mechanism.probabilities([0.0, 0.0]))
    assert epsilon * (1 - 2**-28) < np.ptp(ratios) <= epsilon


def test_scores_that_are_no_numbers_raise_nothing():
    mechanism = ExponentialMechanism(1.0, 1.0, 4)
    steps = mechanism.steps([np.nan, np.inf, -np.inf, 1e300])
    assert steps.tolist() == [0, 0, 0, int(selection._LARGEST)]
    assert mechanism.select([np.nan, 0.0, 0.0, -1e300], seeded(3)) in (0, 1, 2)


def test_scale_is_the_range_over_epsilon():
    for score_range, epsilon in [(3e-7, 0.1), (1.0, 2.0), (12345.0, 1e-3)]:
        mechanism = ExponentialMechanism(score_range, epsilon, 2)
        assert score_range / epsilon <= mechanism.scale <= score_range / epsilon * (1 + 2**-28)


@pytest.mark.parametrize(
    "arguments", [(0.0, 1.0, 2), (1.0, 0.0, 2), (1.0, math.inf, 2), (math.nan, 1.0, 2), (1.0, 1.0, 0)]
)
def test_nonsense_is_refused(arguments):
    with pytest.raises(ValueError, match="must be a"):
        ExponentialMechanism(*arguments)
    with pytest.raises(ValueError, match="compares 2 scores"):
        ExponentialMechanism(1.0, 1.0, 2).select([1.0], seeded(0))


def test_large_candidate_sets_are_fast_enough_to_use():
    mechanism = ExponentialMechanism(1.0, 1.0, 200_000)
    scores = np.zeros(200_000)
    scores[123] = math.log(200_000) + 5
    counts = np.bincount([mechanism.select(scores, seeded(k)) == 123 for k in range(20)], minlength=2)
    assert counts[1] >= 15  # expected share 0.993


def test_noisy_maximum_has_the_law_of_the_largest_laplace_variable():
    """Two candidates: P(second wins) has a closed form; twice the scale is caught."""
    gap, epsilon = 1.0, 1.0
    mechanism = LaplaceNoisyMax(1.0, epsilon, 2)
    entropy, rounds = seeded(12), 20_000
    wins = sum(mechanism.select([0.0, gap], entropy) for _ in range(rounds))

    def chance(scale):
        x = gap / scale  # difference of two Laplace variables: P(> x) = (2 + x) e^-x / 4
        return 1 - (2 + x) * math.exp(-x) / 4

    assert stats.binomtest(wins, rounds, chance(mechanism.scale)).pvalue > 1e-3
    assert stats.binomtest(wins, rounds, chance(2 * mechanism.scale)).pvalue < 1e-6
    assert 1.0 <= mechanism.scale * epsilon <= 1.00001
    # The integers that are added differ by at most what the scale pays for.
    largest = math.floor(1.0 / mechanism.grid) + 2
    assert largest * mechanism.grid / mechanism.scale <= epsilon
    with pytest.raises(ValueError, match="at least 2"):
        LaplaceNoisyMax(1.0, 1e-9, 2)
