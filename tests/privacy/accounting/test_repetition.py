"""The price of the best of a random number of tries, against exact laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.repetition import LAWS, TriesLaw, epsilon_of, law_with_mean, profile_of
from discreet.privacy.events import Approximate, Event, Gaussian, OneOf, Pure, RandomTries
from discreet.privacy.guarantee import Neighboring

RELATION = Neighboring.REPLACE_ONE


def pmf(law, most):
    """The law of K from its definition, by normalizing its weights."""
    k = np.arange(1, most + 1)
    if law.law == "poisson":
        log_weights = k * math.log(law.scale) - np.array([math.lgamma(j + 1.0) for j in k])
    else:
        shape = np.array(
            [math.lgamma(j + law.shape) - math.lgamma(j + 1.0) - math.lgamma(1 + law.shape) for j in k]
        )
        log_weights = -k / law.scale + shape
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def hockey_stick(p, q, epsilon):
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


def best_of(p, chances):
    """The exact law of the largest of K independent draws from p."""
    k = np.arange(1, len(chances) + 1)
    up_to = np.concatenate([[0.0], np.minimum(np.cumsum(p), 1.0)])
    return np.diff((up_to[:, None] ** k) @ chances)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("mean", [1.5, 4.0, 20.0])
def test_mean_is_that_of_the_law(name, mean):
    law = law_with_mean(name, mean)
    assert law.mean == pytest.approx(mean, rel=1e-8)
    chances = pmf(law, 5000)
    assert float(chances @ np.arange(1, 5001)) == pytest.approx(mean, rel=1e-6)


laws_of_one_try = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6)


@given(laws_of_one_try, laws_of_one_try, st.sampled_from(LAWS), st.sampled_from([2.0, 8.0]))
@pytest.mark.lemma("selection.md#theorem-4")
@pytest.mark.lemma("selection.md#corollary-5")
@pytest.mark.lemma("selection.md#corollary-6")
def test_bound_holds_for_exact_laws(first, second, name, mean):
    size = min(len(first), len(second))
    p, q = (np.array(part[:size]) / sum(part[:size]) for part in (first, second))
    law = law_with_mean(name, mean)
    chances = pmf(law, 3000)
    a, b = best_of(p, chances), best_of(q, chances)

    def profile(epsilon):
        return hockey_stick(p, q, epsilon)

    overhead = law.overhead(profile)
    for epsilon in (0.0, 0.05, 0.2, 0.5, 1.0):
        assert hockey_stick(a, b, epsilon + overhead) <= law.mean * profile(epsilon) + 1e-9


def test_not_paying_for_the_choice_would_be_false():
    """The bound without its overhead fails on a two-point law: the choice has a price of its own."""
    law = law_with_mean("geometric", 20.0)
    p, q = np.array([2 / 3, 1 / 3]), np.array([1 / 3, 2 / 3])
    chances = pmf(law, 3000)
    one = math.log(2.0)  # one try is log(2)-DP
    assert hockey_stick(p, q, one) < 1e-12
    assert hockey_stick(best_of(p, chances), best_of(q, chances), one) > 0.01


@pytest.mark.parametrize("name", LAWS)
def test_every_try_may_fail(name):
    """A try that gives a record away once in a million times, and scores best then: twenty of them do so in fifty
    thousand, and a smaller delta can be promised of no epsilon."""
    law = law_with_mean(name, 20.0)
    p, q = np.array([1 - 1e-6, 1e-6]), np.array([1.0, 0.0])
    failed = hockey_stick(*(best_of(part, pmf(law, 3000)) for part in (p, q)), 5.0)
    assert failed == pytest.approx(20e-6, rel=1e-3)
    for delta, promised in ((0.9 * failed, False), (1.1 * failed, True)):
        price = accountants.epsilon(law.event(Approximate(0.1, 1e-6), delta, RELATION), delta, RELATION)
        assert math.isfinite(price) is promised


def test_pure_tries_cost_at_most_two_or_three_times_as_much():
    for name, times in (("logarithmic", 2), ("geometric", 3)):
        for mean in (2.0, 20.0, 1000.0):
            event = law_with_mean(name, mean).event(Pure(0.3), 0.0, RELATION)
            price = accountants.epsilon(event, 0.0, RELATION)
            assert 0.3 < price < times * 0.3
    law = law_with_mean("geometric", 20.0)
    gamma = -math.expm1(-1 / law.scale)
    exact = 0.3 + 2 * math.log((math.exp(0.3) + gamma) / (1 + gamma * math.exp(0.3)))
    event = law.event(Pure(0.3), 0.0, RELATION)
    assert accountants.epsilon(event, 0.0, RELATION) == pytest.approx(exact, rel=1e-6)


def test_overhead_is_on_the_valid_side():
    law = law_with_mean("logarithmic", 20.0)
    profile = profile_of(Gaussian(5.0), RELATION)
    x = law.overhead(profile) / (1 + law.shape)
    gamma = -math.expm1(-1 / law.scale)
    assert math.expm1(x) >= (1 - gamma) / gamma * profile(x)
    assert math.expm1(0.99 * x) < (1 - gamma) / gamma * profile(0.99 * x)


def test_more_tries_and_dearer_tries_cost_more():
    def price(name, mean, noise):
        event = law_with_mean(name, mean).event(Gaussian(noise), 1e-8, RELATION)
        return accountants.epsilon(event, 1e-8, RELATION)

    for name in LAWS:
        alone = accountants.epsilon(Gaussian(10.0), 1e-8, RELATION)
        assert alone < price(name, 3.0, 10.0) < price(name, 30.0, 10.0) < price(name, 30.0, 5.0)


def test_the_price_of_tries_is_rounded_up():
    tries, delta = law_with_mean("poisson", 5.0).event(Gaussian(3.0), 1e-6, RELATION), 1e-6
    law = TriesLaw(tries.law, tries.shape, tries.scale)
    overhead = law.largest_overhead([profile_of(tries.event, RELATION)])
    one = epsilon_of(tries.event, delta / law.mean, RELATION)
    assert overhead + one < epsilon_of(tries, delta, RELATION) < (overhead + one) * (1 + 1e-9)


@pytest.mark.lemma("selection.md#lemma-1")
def test_one_of_costs_the_dearest():
    event = OneOf((Gaussian(5.0), Gaussian(10.0)), 1e-6, "replace-one")
    price = accountants.epsilon(Gaussian(5.0), 1e-6, RELATION)
    assert accountants.epsilon(event, 1e-6, RELATION) == pytest.approx(price)
    mixed = profile_of(OneOf((Gaussian(1.0), Pure(0.1)), 0.0, "replace-one"), RELATION)
    assert mixed(0.05) == accountants.delta(Gaussian(1.0), 0.05, RELATION)


def test_events_survive_a_file_and_describe_themselves():
    event = law_with_mean("poisson", 5.0).event(
        OneOf((Gaussian(3.0), Approximate(0.2, 1e-9)), 1e-6, "zero-out"), 1e-6, Neighboring.ZERO_OUT
    )
    again = Event.from_dict(event.to_dict())
    assert again == event
    assert accountants.epsilon(again, 1e-6, Neighboring.ZERO_OUT) > 0
    with pytest.raises(ValueError, match="unknown law"):
        RandomTries(Pure(1.0), "binomial", 0.0, 1.0, 0.0, "replace-one")
    with pytest.raises(ValueError, match="at least one"):
        OneOf((), 0.0, "replace-one")


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="one of"):
        law_with_mean("constant", 5.0)
    with pytest.raises(ValueError, match="above 1"):
        law_with_mean("poisson", 1.0)
    assert TriesLaw("negative-binomial", 1.0, 1 / 16).mean >= 1
