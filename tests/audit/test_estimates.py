"""Lower bounds: exact where closed forms exist, below the truth as often as they say, nothing from blind attacks."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from discreet.audit.estimates import (
    clopper_pearson,
    gaussian_bound,
    loss_bound,
    one_run_bound,
    one_run_p_value,
    threshold_bound,
)
from discreet.privacy.accounting.gaussian import gaussian_epsilon, gaussian_mu


def gaussian_scores(mu, runs, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=runs) + mu, rng.normal(size=runs)


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (50, 50), (3, 40), (20, 40)])
def test_clopper_pearson_inverts_the_binomial(hits, trials):
    low, high = clopper_pearson(hits, trials, 0.95)
    if hits > 0:
        assert binom.sf(hits - 1, trials, low) == pytest.approx(0.05, rel=1e-6)
    if hits < trials:
        assert binom.cdf(hits, trials, high) == pytest.approx(0.05, rel=1e-6)
    assert low <= hits / trials <= high


@pytest.mark.parametrize("joint", [False, True])
def test_bounds_exceed_the_truth_no_oftener_than_stated(joint):
    mu, delta = 0.8, 0.01
    truth = gaussian_epsilon(mu, delta)
    above = sum(
        threshold_bound(*gaussian_scores(mu, 400, seed), delta, 0.8, joint=joint).epsilon > truth
        for seed in range(100)
    )
    assert above <= 20 + 3 * math.sqrt(100 * 0.2 * 0.8)
    assert above < 20  # the best event of a Gaussian pair is known: in fact the bound is conservative


def test_bounds_come_close_with_many_runs():
    mu, delta = 1.0, 0.01
    truth = gaussian_epsilon(mu, delta)
    first, second = gaussian_scores(mu, 40_000, 1)
    assert 0.75 * truth < threshold_bound(first, second, delta).epsilon < truth
    assert 0.75 * truth < threshold_bound(first, second, delta, joint=True).epsilon < truth
    assert 0.9 * truth < gaussian_bound(first, second, delta).epsilon < truth
    assert 0.9 * truth < loss_bound(mu * first - mu**2 / 2, delta).epsilon < truth


def test_the_joint_region_beats_the_box_at_high_confidence():
    first, second = gaussian_scores(1.0, 4000, 2)
    sure = 1 - 1e-6
    assert (
        threshold_bound(first, second, 0.01, sure, joint=True).epsilon
        > threshold_bound(first, second, 0.01, sure).epsilon
    )


def test_direction_and_order_do_not_matter():
    first, second = gaussian_scores(1.0, 4000, 3)
    for a, b in ((first, second), (second, first), (-first, -second), (-second, -first)):
        assert threshold_bound(a, b, 0.01).epsilon > 1.0
        assert gaussian_bound(a, b, 0.01).details["mu"] > (0.0 if a is not first else 0.8)


def test_the_known_epsilon_of_randomized_response():
    rng = np.random.default_rng(0)
    epsilon = 1.0
    stay = math.exp(epsilon) / (1 + math.exp(epsilon))
    first, second = rng.random(40_000) < stay, rng.random(40_000) >= stay
    found = threshold_bound(first, second, 0.0).epsilon
    assert 0.9 * epsilon < found < epsilon
    losses = np.where(first, epsilon, -epsilon)
    assert 0.5 < loss_bound(losses, 0.05).epsilon < math.log(stay / (1 - stay))


# -- betting on exact losses ------------------------------------------------------------------------------------------


def gaussian_losses(mu, runs, rng):
    return mu * rng.normal(size=runs) + mu**2 / 2


def test_a_few_hundred_exact_losses_show_most_of_a_claim():
    """Where a Chernoff bound on numbers in [0, 1] would see nothing: the losses of small claims are small numbers."""
    for epsilon in (1.0, 0.137):
        mu, rng = gaussian_mu(epsilon, 0.01), np.random.default_rng(1)
        found = loss_bound(gaussian_losses(mu, 400, rng), 0.01, reverse=gaussian_losses(mu, 400, rng))
        assert 0.6 * epsilon < found.epsilon <= epsilon
        half = loss_bound(
            gaussian_losses(2 * mu, 200, rng), 0.01, 1 - 1e-6, reverse=gaussian_losses(2 * mu, 200, rng)
        )
        assert half.epsilon > epsilon


@pytest.mark.parametrize("ways", [1, 2])
def test_a_bet_may_be_stopped_when_it_looks_best(ways):
    """The chance that the bound exceeds the truth at ANY of many looks is the stated one (Ville)."""
    mu, delta, wrong = 0.6, 0.01, 0
    truth = gaussian_epsilon(mu, delta)
    for seed in range(80):
        rng = np.random.default_rng(seed)
        losses = [gaussian_losses(mu, 200, rng) for _ in range(ways)]
        for runs in (10, 40, 100, 200):
            parts = [part[:runs] for part in losses]
            reverse = parts[1] if ways == 2 else None
            if loss_bound(parts[0], delta, 0.8, reverse=reverse).epsilon > truth:
                wrong += 1
                break
    assert wrong <= 16 + 3 * math.sqrt(80 * 0.2 * 0.8)


@pytest.mark.lemma("audit.md#theorem-2")
def test_a_bet_on_a_claim_that_is_true_with_equality_stays_fair():
    """Randomized response of exactly the claimed epsilon and delta = 0: no loss exceeds it, nothing can be won."""
    losses = np.where(np.random.default_rng(0).random(5000) < 0.73, 1.0, -1.0)
    assert loss_bound(losses, 0.0).epsilon <= 1.0
    assert loss_bound(losses, 0.0).epsilon > 0.99


def test_both_directions_are_worth_more_than_one():
    rng = np.random.default_rng(3)
    one, two = gaussian_losses(0.7, 150, rng), gaussian_losses(0.7, 150, rng)
    single = loss_bound(one, 0.01).epsilon
    assert loss_bound(one, 0.01, reverse=two).epsilon > single
    # A direction in which nothing is lost costs little.
    assert loss_bound(one, 0.01, reverse=np.full(150, -1.0)).epsilon > 0.8 * single


def test_equal_data_sets_give_nothing():
    first, second = gaussian_scores(0.0, 5000, 4)
    for bound in (threshold_bound, gaussian_bound):
        assert bound(first, second, 0.0, 1 - 1e-6).epsilon < 0.2
    assert loss_bound(np.zeros(100), 0.0).epsilon == 0.0


def test_an_outright_leak_is_limited_only_by_the_number_of_runs():
    first, second = np.ones(2000), np.zeros(2000)
    assert threshold_bound(first, second, 0.01).epsilon > 5
    assert loss_bound(np.full(2000, np.inf), 0.01).epsilon > 0.9


def test_a_gaussian_mechanism_has_the_mu_it_says():
    """Mean and variance of the score against their exact values, to five standard errors."""
    from discreet.mechanisms.additive import GaussianMechanism
    from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
    from discreet.privacy.guarantee import Sensitivity

    runs, mechanism = 20_000, GaussianMechanism(Sensitivity(1.0), 2.0, size=20_000)
    with insecure_noise(0):
        first = mechanism.release(np.full(runs, 1.0), fresh_entropy())  # every coordinate is a run of its own
        second = mechanism.release(np.zeros(runs), fresh_entropy())
    estimate = (first.mean() - second.mean()) / mechanism.stddev
    assert abs(estimate - 0.5) <= 5 * math.sqrt(2 / runs)
    assert abs(first.var() / mechanism.stddev**2 - 1) <= 5 * math.sqrt(2 / runs)
    found = gaussian_bound(first, second, 0.01, 1 - 1e-6)
    assert 0.3 < found.details["mu"] < 0.5


# -- many canaries in one run ----------------------------------------------------------------------------------------


def test_one_run_p_value_is_the_binomial_tail_for_pure_privacy():
    chance = math.e / (1 + math.e)
    assert one_run_p_value(50, 20, 18, 1.0, 0.0) == pytest.approx(binom.sf(17, 20, chance))


def test_one_run_p_value_grows_with_delta_and_epsilon_and_is_capped():
    values = [one_run_p_value(1000, 100, 90, 1.0, delta) for delta in (0.0, 1e-6, 1e-4, 1e-2, 1.0)]
    assert values == sorted(values)
    assert values[-1] == 1.0
    values = [one_run_p_value(1000, 100, 90, epsilon, 1e-6) for epsilon in (0.0, 0.5, 1.0, 2.0)]
    assert values == sorted(values)


@pytest.mark.lemma("audit.md#theorem-4")
def test_one_run_bound_holds_for_randomized_response_on_every_coin():
    """The extremal mechanism of the theorem: every coin is reported truly with the largest allowed probability."""
    epsilon, above, closest = 1.0, 0, 0.0
    stay = math.exp(epsilon) / (1 + math.exp(epsilon))
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth = rng.random(1000) < 0.5
        scores = np.where(rng.random(1000) < stay, truth, ~truth) + 0.1 * rng.random(1000)
        found = one_run_bound(scores, truth, 0.0, 0.8).epsilon
        above += found > epsilon
        closest += found / 200
    assert above <= 40 + 3 * math.sqrt(200 * 0.2 * 0.8)
    assert closest > 0.7 * epsilon


def test_one_run_bound_of_independent_gaussian_releases():
    mu, delta = 2.0, 1e-5
    rng = np.random.default_rng(5)
    truth = rng.random(5000) < 0.5
    found = one_run_bound(mu * truth + rng.normal(size=5000), truth, delta, guesses=100).epsilon
    assert 1.0 < found < gaussian_epsilon(mu, delta)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="finite scores"):
        threshold_bound([1.0, np.nan, 2.0, 3.0], [1.0] * 4, 0.1)
    with pytest.raises(ValueError, match="confidence"):
        threshold_bound([1.0] * 9, [1.0] * 9, 0.1, 1.0)
    with pytest.raises(ValueError, match="correct"):
        one_run_p_value(5, 6, 1, 1.0, 0.0)
    with pytest.raises(ValueError, match="losses"):
        loss_bound([1.0], 0.1)
    with pytest.raises(ValueError, match="successes"):
        clopper_pearson(3, 2, 0.9)
