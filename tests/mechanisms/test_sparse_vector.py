"""Sparse vector: the exact law of small streams, its price in both directions, and twins that must be caught."""

import itertools
import math

import numpy as np
import pytest

from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.sparse_vector import HALTED, RELEASED, UNSTABLE, SparseVector, SparseVectorRun
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Pure, Repeated
from discreet.privacy.guarantee import Neighboring

TAIL = 400  # threshold noise beyond this is below 1e-100 at the scales used here


def law(distances, b1, b2, margin, times, refresh=False, query_noise=True):
    """P(outcomes) of every tuple of released (1) and refused (0), in exact arithmetic up to float rounding."""
    a1, a2 = math.exp(-1 / b1), math.exp(-1 / b2)
    noise = np.arange(TAIL)
    start = (1 - a1) * a1**noise  # weight of every threshold
    threshold = margin - noise

    def refuse(distance):
        if not query_noise:
            return (distance <= threshold).astype(float)
        return a2 ** np.maximum(0, distance - threshold)

    outcomes = {}
    for bits in itertools.product((1, 0), repeat=len(distances)):
        refused, weights, chance = 0, start.copy(), 1.0
        shown = []
        for distance, bit in zip(distances, bits, strict=True):
            if refused == times:
                break
            shown.append(bit)
            p = refuse(distance)
            weights = weights * (p if bit == 0 else 1 - p)
            if bit == 0:
                refused += 1
                if refresh and refused < times:
                    chance, weights = chance * weights.sum(), start.copy()
        outcomes[tuple(shown)] = chance * weights.sum()
    return outcomes


def worst_loss(first, second, **settings):
    p, q = law(first, **settings), law(second, **settings)
    losses = []
    for outcome in p:
        if max(p[outcome], q[outcome]) < 1e-80:
            continue
        losses.append(
            math.inf if min(p[outcome], q[outcome]) == 0 else abs(math.log(p[outcome] / q[outcome]))
        )
    return max(losses)


def neighbors(rng, length, step=1):
    first = rng.integers(0, 9, size=length)
    kind = rng.integers(4)
    moves = {
        0: np.ones(length, int),
        1: -np.ones(length, int),
        2: np.resize([1, -1], length),
        3: rng.integers(-1, 2, size=length),
    }[kind]
    if rng.random() < 0.5:
        moves[-1] = -moves[-1]
    return first, np.maximum(0, first + step * moves)


def settings_of(rng, refresh):
    return {
        "b1": rng.uniform(0.7, 4),
        "b2": rng.uniform(0.7, 6),
        "margin": int(rng.integers(0, 6)),
        "times": int(rng.integers(1, 4)),
        "refresh": refresh,
    }


def price(s):
    if s.get("refresh"):
        return s["times"] * (1 / s["b1"] + 2 / s["b2"])
    return 1 / s["b1"] + 2 * s["times"] / s["b2"]


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.lemma("sparse-vector.md#theorem-1")
def test_no_small_stream_loses_more_than_epsilon(refresh):
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(150):
        s = settings_of(rng, refresh)
        first, second = neighbors(rng, int(rng.integers(2, 7)))
        shares.append(worst_loss(first, second, **s) / price(s))
    assert max(shares) <= 1 + 1e-9
    assert max(shares) > 0.6  # and the bound is not idle


def test_the_bound_is_attained():
    s = {"b1": 1.0, "b2": 3.0, "margin": 30, "times": 2}
    first, second = [20, 20, 20, 40, 40], [19, 19, 19, 41, 41]
    assert worst_loss(first, second, **s) == pytest.approx(price(s), rel=1e-12)


def test_a_twin_without_query_noise_is_caught():
    rng = np.random.default_rng(2)
    assert any(
        worst_loss(*neighbors(rng, 4), **settings_of(rng, False), query_noise=False) == math.inf
        for _ in range(20)
    )


def test_a_twin_that_keeps_its_threshold_at_the_price_of_one_refusal_is_caught():
    one = {"b1": 1.0, "b2": 3.0, "margin": 30, "times": 1}
    several = {**one, "times": 3}  # the threshold is neither renewed nor paid for
    first, second = [20, 20, 40, 40, 40], [19, 19, 41, 41, 41]
    assert worst_loss(first, second, **one) <= price(one) * (1 + 1e-12)
    assert worst_loss(first, second, **several) > 1.7 * price(one)


def test_a_twin_with_the_unhalved_margin_is_caught():
    """gap - 1 instead of (gap - 1) // 2 moves by two."""
    s = {"b1": 1.0, "b2": 3.0, "margin": 30, "times": 2}
    first, second = [20, 20, 20, 40, 40], [18, 18, 18, 42, 42]
    assert worst_loss(first, second, **s) == pytest.approx(2 * price(s))


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.lemma("sparse-vector.md#theorem-3")
def test_labels_of_split_questions_cost_delta_and_no_more(refresh):
    """Both directions of the hockey-stick divergence with answers, for streams with unequal answers."""
    rng = np.random.default_rng(3)
    shares = []
    for _ in range(60):
        s = settings_of(rng, refresh)
        s["margin"] = int(rng.integers(2, 8))
        first, second = neighbors(rng, int(rng.integers(2, 6)))
        split = rng.random(len(first)) < 0.3
        first, second = np.where(split, 0, first), np.where(split, 0, second)
        thresholds = s["times"] if refresh else 1
        delta = thresholds * math.exp(-(s["margin"] + 1) / s["b1"])
        epsilon = price(s)
        p, q = law(first, **s), law(second, **s)
        for one, other in ((p, q), (q, p)):
            stick = 0.0
            for outcome, chance in one.items():
                unequal = any(bit and split[i] for i, bit in enumerate(outcome))
                stick += chance if unequal else max(0.0, chance - math.exp(epsilon) * other[outcome])
            shares.append(stick / delta)
    assert max(shares) <= 1 + 1e-9
    assert max(shares) > 0.1


@pytest.mark.parametrize("refresh", [False, True])
def test_the_implementation_has_the_exact_law(refresh):
    vector = SparseVector(20.0, 1.3, 2.1, 3, 2, refresh)
    distances = np.array([6, 1, 5, 4])
    exact = law(distances, 1.3, 2.1, 3, 2, refresh)
    runs, counts = 3000, {}
    with insecure_noise(5):
        entropy = fresh_entropy()
        for _ in range(runs):
            outcome = tuple(int(o) for o in vector.start(entropy).ask_many(distances) if o != HALTED)
            counts[outcome] = counts.get(outcome, 0) + 1
    assert set(counts) <= set(exact)
    for outcome, chance in exact.items():
        spread = math.sqrt(runs * chance * (1 - chance)) + 1
        assert abs(counts.get(outcome, 0) - runs * chance) < 5 * spread, outcome


def test_asking_one_by_one_is_the_same_mechanism():
    vector = SparseVector(20.0, 1.3, 2.1, 3, 2)
    exact = law([5, 2], 1.3, 2.1, 3, 2)
    with insecure_noise(6):
        entropy = fresh_entropy()
        refused = 0
        for _ in range(1500):
            run = vector.start(entropy)
            refused += (run.ask(5), run.ask(2)) == (UNSTABLE, UNSTABLE)
    chance = exact[(0, 0)]
    assert abs(refused - 1500 * chance) < 5 * math.sqrt(1500 * chance)


def test_release_probabilities_are_the_closed_forms():
    vector = SparseVector(1.0, 4.785, 30.0, 66, 1)
    a1, a2 = math.exp(-1 / 4.785), math.exp(-1 / 30.0)
    assert vector.refusal_probability(66 + 7) == pytest.approx(a2**7 * (1 - a1) / (1 - a1 * a2))
    assert 1 - vector.refusal_probability(0) == pytest.approx(a1**67 * (1 - a2) / (1 - a1 * a2))
    for distance in (0, 3, 60, 66, 90):
        exact = law([distance], 4.785, 30.0, 66, 1)
        assert vector.refusal_probability(distance) == pytest.approx(exact[(0,)], rel=1e-9)


def test_the_chance_of_any_wrong_release_does_not_grow_with_the_stream():
    bound = SparseVector(20.0, 1.5, 2.0, 5, 3).wrong_release_delta
    chances = [1 - law([0] * n, 1.5, 2.0, 5, n + 1)[(0,) * n] for n in (1, 2, 4, 8)]
    assert chances == sorted(chances)
    assert chances[-1] <= bound


@pytest.mark.parametrize(
    ("times", "queries", "target"), [(1, 100, 58), (10, 1_000, 317), (20, 1_000, 560), (100, 10_000, 2_822)]
)
def test_the_stability_needed_meets_the_targets(times, queries, target):
    vector = SparseVector.calibrated(1.0, 1e-6, times, queries)
    assert vector.distance_needed(queries, 0.05) <= target
    assert vector.delta <= 1e-6
    assert 1 / vector.threshold_scale + 2 * times / vector.query_scale <= 1.0


@pytest.mark.parametrize(("times", "queries", "factor"), [(10, 1_000, 40), (100, 10_000, 17)])
def test_the_same_guarantee_needs_far_less_stability_than_the_printed_constants(times, queries, factor):
    delta, beta = 1e-6, 0.05
    scale = math.sqrt(32 * times * math.log(2 / delta))
    printed = 8 * scale * math.log(4 * queries * times / min(delta, beta / 2))
    ours = SparseVector.calibrated(1.0, delta, times, queries, beta).distance_needed(queries, beta)
    assert printed / ours >= factor


@pytest.mark.lemma("sparse-vector.md#theorem-2")
def test_refreshing_wins_for_very_many_refusals_and_is_composed_exactly():
    many = SparseVector.calibrated(1.0, 1e-6, 3000, 100_000)
    assert many.refresh
    runs = Repeated(Pure(many.epoch_epsilon), 3000)
    assert accountants.delta(runs, 1.0, Neighboring.REPLACE_ONE) + many.wrong_release_delta <= 1e-6


def test_every_threshold_of_a_refreshed_stream_may_release_wrongly():
    """Three questions of distance 0, each at a threshold of its own: three times the chance of one."""
    vector = SparseVector(20.0, 1.5, 0.5, 5, 3, refresh=True)
    chance = 1 - law([0] * 3, 1.5, 0.5, 5, 3, refresh=True)[(0, 0, 0)]
    assert vector.wrong_release_delta == pytest.approx(3 * math.exp(-6 / 1.5))
    assert 0.9 * vector.wrong_release_delta < chance <= vector.wrong_release_delta


def test_one_threshold_costs_what_its_worst_refusal_loses():
    """1/b1 + 2/b2, and with one threshold for T refusals 1/b1 + 2T/b2: no less is accepted."""
    assert SparseVector(9.0, 2.0, 5.0, 3, 4, refresh=True).epoch_epsilon == pytest.approx(1 / 2.0 + 2 / 5.0)
    SparseVector(1.0, 2.0, 20.0, 5, 5)
    with pytest.raises(ValueError, match="exceeds epsilon=1"):
        SparseVector(1.0, 2.0, 19.9996, 5, 5)


def test_exactly_so_many_refusals_and_then_silence():
    for refresh in (False, True):
        vector = SparseVector.calibrated(1.0, 1e-6, 7, 1000, refresh=refresh)
        run = vector.start(fresh_entropy())
        outcomes = run.ask_many(np.zeros(20_000, dtype=int))
        assert (outcomes == UNSTABLE).sum() == 7
        assert outcomes[:7].tolist() == [UNSTABLE] * 7
        assert run.halted
        assert run.unstable_left == 0
        assert run.ask(10**9) == HALTED


def test_a_long_stable_stream_is_free():
    vector = SparseVector.calibrated(1.0, 1e-6, 3, 1000)
    run = vector.start(fresh_entropy())
    outcomes = run.ask_many(np.full(100_000, 2000))
    assert (outcomes == RELEASED).all()
    assert run.unstable_left == 3


def test_online_release_gives_the_value_or_nothing():
    run = SparseVector.calibrated(1.0, 1e-6, 1, 10).start(fresh_entropy())
    assert run.release("stable", 10_000) == "stable"
    assert run.release("unstable", 0) is None
    assert run.release("stable", 10_000) is None  # halted


def test_a_resumed_stream_goes_on_with_its_threshold():
    vector = SparseVector.calibrated(1.0, 1e-6, 5, 100)
    run = vector.start(fresh_entropy())
    run.ask_many(np.zeros(2, dtype=int))
    again = SparseVectorRun.resumed(vector, run.secret_state(), fresh_entropy())
    assert again.secret_state() == run.secret_state()
    assert again.unstable_left == 3


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5])
def test_no_refusals_at_all_are_refused(wrong):
    with pytest.raises(ValueError, match="max_unstable must be a whole number of at least 1"):
        SparseVector.calibrated(1.0, 1e-6, wrong, 100)


def test_what_cannot_be_promised_is_refused():
    with pytest.raises(ValueError, match="delta = 0"):
        SparseVector.calibrated(1.0, 0.0, 1, 100)
    with pytest.raises(ValueError, match="exceeds epsilon"):
        SparseVector(1.0, 1.0, 1.0, 5, 5)
    with pytest.raises(TypeError, match="whole numbers"):
        SparseVector.calibrated(1.0, 1e-6, 1, 10).start(fresh_entropy()).ask_many(np.array([1.5]))
