"""Votes: the stability distance by brute force, the optimal release curve, noisy pluralities."""

import itertools
import math

import numpy as np
import pytest

from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.sparse_vector import StableRelease, _curve
from discreet.mechanisms.voting import (
    ABSTAINED,
    HALTED,
    ConfidentPlurality,
    NoisyPlurality,
    stability,
)
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Neighboring


def all_votes(n_classes, n_teachers):
    return [
        votes
        for votes in itertools.product(range(n_teachers + 1), repeat=n_classes)
        if sum(votes) == n_teachers
    ]


def moves(votes, changed):
    """All vote vectors that ``changed`` changed votes lead to."""
    found = {votes}
    for _ in range(changed):
        found |= {
            tuple(v - (k == i) + (k == j) for k, v in enumerate(each))
            for each in found
            for i in range(len(votes))
            for j in range(len(votes))
            if each[i]
        }
    return found


@pytest.mark.parametrize(
    ("n_classes", "most", "changed"), [(2, 12, 1), (3, 9, 1), (4, 7, 1), (5, 6, 1), (2, 12, 2), (3, 8, 2)]
)
@pytest.mark.lemma("sparse-vector.md#section-6")
def test_the_distance_is_safe_for_every_small_vote(n_classes, most, changed):
    """Proof by exhaustion: sensitivity 1, and 0 on both sides wherever the winner changes."""
    for n_teachers in range(1, most + 1):
        every = all_votes(n_classes, n_teachers)
        winners, distances = stability(np.array(every), changed)
        known = dict(zip(every, zip(winners, distances, strict=True), strict=True))
        for votes in every:
            winner, distance = known[votes]
            for other in moves(votes, changed):
                assert abs(distance - known[other][1]) <= 1, (votes, other)
                if winner != known[other][0]:
                    assert distance == known[other][1] == 0, (votes, other)


def test_the_unhalved_distance_of_the_dissertation_is_caught():
    """gap - 1 moves by two, and is positive beside a tie that was resolved the other way."""
    worst, wrong = 0, 0
    for votes in all_votes(2, 6):
        for other in moves(votes, 1):
            distances = [max(0, abs(v[0] - v[1]) - 1) for v in (votes, other)]
            worst = max(worst, abs(distances[0] - distances[1]))
            if np.argmax(votes) != np.argmax(other):
                wrong = max(wrong, *distances)
    assert (worst, wrong) == (2, 1)


def test_stability_takes_long_streams_in_blocks():
    rng = np.random.default_rng(0)
    counts = rng.multinomial(50, [0.5, 0.3, 0.2], size=70_000).astype(np.uint8)
    winners, distances = stability(counts)
    ordered = np.sort(counts.astype(int), axis=1)
    assert np.array_equal(distances, np.maximum(0, (ordered[:, 2] - ordered[:, 1] - 1) // 2))
    assert np.array_equal(winners, counts.argmax(axis=1))


@pytest.mark.parametrize("wrong", [np.ones(3, int), np.ones((3, 1), int), np.ones((3, 2))])
def test_votes_must_be_counts(wrong):
    with pytest.raises(TypeError, match="whole numbers"):
        stability(wrong)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-6), (3.0, 1e-3), (0.5, 1e-9)])
@pytest.mark.lemma("sparse-vector.md#section-5")
def test_the_release_curve_keeps_all_four_inequalities_and_is_tight(epsilon, delta):
    curve = [q / 2**128 for q in _curve(epsilon, delta)]
    growth = math.exp(epsilon)
    assert curve[0] == pytest.approx(delta)
    assert curve[-1] == 1
    slack = 1e-12
    for now, after in itertools.pairwise(curve):
        assert after >= now
        assert after <= growth * now + delta + slack
        assert now <= growth * after + delta + slack
        assert 1 - now <= growth * (1 - after) + delta + slack
        assert 1 - after <= growth * (1 - now) + delta + slack
        best = min(1.0, growth * now + delta, 1 - (1 - now - delta) / growth)
        assert after == pytest.approx(best, abs=1e-12)


def test_the_release_curve_reproduces_its_reference_values():
    assert [StableRelease(e, 1e-6).distance_needed(0.0) for e in (1.0, 0.1)] == [27, 217]
    assert [StableRelease(e, 1e-6).distance_needed(0.01) for e in (1.0, 0.1)] == [17, 147]


def test_the_release_coin_has_its_probability():
    test = StableRelease(1.0, 0.01)
    with insecure_noise(2):
        entropy = fresh_entropy()
        for distance in (1, 3):
            chance = test.probability(distance)
            released = sum(test.release("x", distance, entropy) == "x" for _ in range(4000))
            assert abs(released - 4000 * chance) < 5 * math.sqrt(4000 * chance)
    assert test.release("x", 10**6, fresh_entropy()) == "x"
    with pytest.raises(ValueError, match="nothing would ever be released"):
        StableRelease(1.0, 0.0)


@pytest.mark.parametrize("changed", [1, 2])
@pytest.mark.lemma("sparse-vector.md#section-7")
def test_noisy_plurality_has_the_noise_it_is_priced_for(changed):
    """mu of one question is the largest shift, sqrt(2) changed, over the noise."""
    mechanism = NoisyPlurality(3.0, 4, 10, changed)
    shift = max(math.dist(votes, other) for votes in all_votes(3, 6) for other in moves(votes, changed))
    assert shift == pytest.approx(changed * math.sqrt(2))
    assert mechanism.noise.effective_stddev >= 3.0 * shift
    with insecure_noise(3):
        wins = (
            NoisyPlurality(3.0, 2, 20_000, changed)
            .start(fresh_entropy())
            .answer(np.tile([[3, 0]], (20_000, 1)))
        )
    flipped = 0.5 * math.erfc(3 / (2 * mechanism.stddev))
    assert abs(wins.mean() - flipped) < 5 * math.sqrt(flipped / 20_000)


@pytest.mark.parametrize("changed", [1, 2])
def test_confident_plurality_has_the_noise_it_is_priced_for(changed):
    """The highest count moves by ``changed``, all of them by sqrt(2) times as much."""
    mechanism = ConfidentPlurality(3, 2.0, 3.0, 3, 10, 5, changed)
    pairs = [(votes, other) for votes in all_votes(3, 6) for other in moves(votes, changed)]
    highest = max(abs(max(votes) - max(other)) for votes, other in pairs)
    shift = max(math.dist(votes, other) for votes, other in pairs)
    for noise, least in ((mechanism.check_noise, 2.0 * highest), (mechanism.vote_noise, 3.0 * shift)):
        assert least <= noise.effective_stddev < least * (1 + 2**-20)


def test_plurality_answers_what_was_paid_for_and_halts():
    run = NoisyPlurality(1.0, 3, 7).start(fresh_entropy())
    first = run.answer(np.tile([[1000, 0, 0]], (5, 1)))
    then = run.answer(np.tile([[0, 0, 1000]], (5, 1)))
    assert first.tolist() == [0] * 5
    assert then.tolist() == [2, 2, HALTED, HALTED, HALTED]
    assert run.halted


def test_confident_plurality_abstains_and_stops_after_its_answers():
    mechanism = ConfidentPlurality(600, 10.0, 10.0, 2, 100, 3)
    run = mechanism.start(fresh_entropy())
    counts = np.array([[500, 500], [1000, 0], [0, 1000], [500, 500], [1000, 0], [1000, 0]])
    assert run.answer(counts).tolist() == [ABSTAINED, 0, 1, ABSTAINED, 0, HALTED]
    assert run.halted
    assert run.n_answered == 3
    event = mechanism.event
    mu = math.sqrt(100 / 10.0**2 + 3 / 10.0**2)
    bound = accountants.epsilon(event, 1e-6, Neighboring.REPLACE_ONE)
    from discreet.privacy.accounting.gaussian import gaussian_epsilon

    assert bound == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=1e-3)


def test_a_million_votes_are_answered_in_little_memory():
    import tracemalloc

    counts = np.tile(np.array([[900, 60, 40]], dtype=np.uint16), (1_000_000, 1))
    tracemalloc.start()
    run = NoisyPlurality(50.0, 3, 1_000_000).start(fresh_entropy())
    codes = run.answer(counts)
    winners, _ = stability(counts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (codes == winners).mean() > 0.999
    assert peak < 100e6
