"""Prices keep their digits, and lie on the private side, however small an event is: against 60 digits and more."""

from __future__ import annotations

import math
import pickle

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.accountants import PureAccountant, RenyiCurveAccountant, UnsupportedEvent
from discreet.privacy.accounting.curves import curve
from discreet.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, hockey_stick
from discreet.privacy.accounting.renyi import (
    bounded_range_divergence,
    concentration,
    excess,
    excess_of_all,
    laplace_divergence,
    pure_divergence,
    renyi_delta,
    renyi_divergence,
    renyi_epsilon,
)
from discreet.privacy.events import (
    DEEPEST,
    Approximate,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    OneOf,
    Pure,
    RandomTries,
    Repeated,
    Subsampled,
)
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger

ZERO, REPLACE = Neighboring.ZERO_OUT, Neighboring.REPLACE_ONE


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(150):
        yield


def ndtr(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def exact_delta(epsilon, mu):
    e, m = mpf(epsilon), mpf(mu)
    return ndtr(m / 2 - e / m) - mpmath.exp(e) * ndtr(-m / 2 - e / m)


def exact_pure(epsilon, order):
    e, a = mpf(epsilon), mpf(order)
    return mpmath.log(mpmath.cosh((a - mpf(0.5)) * e) / mpmath.cosh(e / 2)) / (a - 1)


def exact_laplace(width, order):
    e, a = mpf(width), mpf(order)
    moment = a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)
    return mpmath.log(moment / (2 * a - 1)) / (a - 1)


def exact_bounded_range(epsilon, order):
    e, a = mpf(epsilon), mpf(order)
    w = mpmath.exp(-e)
    x = (a - 1) * (1 - w**a) / (a * w * (1 - w ** (a - 1)))
    return mpmath.log(((1 - w**a) * x ** (a - 1) - w * (1 - w ** (a - 1)) * x**a) / (1 - w)) / (a - 1)


ORDERS = [1 + 1e-8, 1.001, 1.125, 2.0, 24.0, 300.0, 1e6]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("computed", "exact"),
    [
        (pure_divergence, exact_pure),
        (laplace_divergence, exact_laplace),
        (bounded_range_divergence, exact_bounded_range),
    ],
)
def test_divergences_of_all_sizes_keep_their_digits(computed, exact, order: float) -> None:
    for size in np.geomspace(1e-30, 300, 90).tolist():
        assert abs(mpf(computed(size, order)) / exact(size, order) - 1) < 2e-14


def test_a_range_beyond_every_order_costs_itself() -> None:
    exact = exact_bounded_range(2.0, 1e9)
    assert exact <= bounded_range_divergence(2.0, 1e9) < exact * (1 + mpf(1e-7))


@pytest.mark.parametrize("order", [1.001, 2.0, 24.0])
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e-30, 3e-9, 1e-4, 1.0])
def test_no_divergence_is_below_its_lower_bound(size: float, order: float) -> None:
    """The one of order 1, the Kullback-Leibler divergence, is smaller than all others."""
    mpmath.mp.dps = 700  # until the fixture resets it
    e = mpf(size)
    for leaf, least in [
        (Pure(size), e * mpmath.tanh(e / 2)),
        (Laplace(1 / size), e - 1 + mpmath.exp(-e)),
        (Gaussian(1 / size), mpf(1 / (mpf(1 / size) ** 2)) / 2),
        (BoundedRange(size), exact_bounded_range(size, 1 + mpf(10) ** -20)),
    ]:
        assert renyi_divergence(leaf, order, ZERO) >= least * (1 - mpf(10) ** -15)
        assert renyi_divergence(leaf, order, ZERO) > 0
        assert concentration(leaf) >= least * (1 - mpf(10) ** -15)


def test_the_excess_of_the_exponential_over_its_tangent() -> None:
    mpmath.mp.dps = 400
    points = np.concatenate([np.geomspace(1e-150, 300, 200), -np.geomspace(1e-150, 300, 200)])
    exact = [mpmath.expm1(mpf(x)) - mpf(x) for x in points.tolist()]
    for found in ([excess(x) for x in points.tolist()], excess_of_all(points).tolist()):
        assert max(abs(mpf(value) / true - 1) for value, true in zip(found, exact, strict=True)) < 3e-15


@pytest.mark.parametrize("order", [2, 5, 24])
@pytest.mark.parametrize(("rate", "multiplier"), [(1e-3, 1e6), (1e-3, 10.0), (0.1, 1e5), (0.4, 2.0)])
def test_divergences_of_sampled_noise_are_not_lost_in_rounding(
    rate: float, multiplier: float, order: int
) -> None:
    q, m = mpf(rate), 1 / mpf(multiplier)
    moment = sum(
        mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(mpf(k) * (k - 1) * m**2 / 2)
        for k in range(order + 1)
    )
    exact = mpmath.log(moment) / (order - 1)
    found = renyi_divergence(Subsampled(Gaussian(multiplier), rate), float(order), ZERO)
    assert exact <= found < exact * mpf(1.01)


def test_many_tiny_charges_do_not_refill_a_ledger(tmp_path) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 1.0, 1e-6)
    for leaf in (BoundedRange(3e-9), Pure(3e-9), Laplace(3e8)):
        with pytest.raises(BudgetExceeded):
            ledger.charge(Repeated(leaf, 10**18))
        with pytest.raises(BudgetExceeded):
            ledger.charge(Composed((Repeated(leaf, 10**18), Gaussian(0.5))))
    ledger.charge(Repeated(BoundedRange(3e-9), 10**15))
    with pytest.raises(BudgetExceeded):
        ledger.charge(Gaussian(0.5))


def points_of_profiles() -> list[tuple[float, float]]:
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(1200):
        mu = float(10 ** rng.uniform(-12, 2))
        inside = float(mu * mu / 2 - rng.uniform(-38, 3) * mu)
        pairs.append((inside if rng.random() < 0.7 else float(10 ** rng.uniform(-14, 3)), mu))
    return pairs


def test_gaussian_profiles_are_rounded_up_by_next_to_nothing() -> None:
    pairs = points_of_profiles()
    together = gaussian_delta(np.array([e for e, _ in pairs]), np.array([mu for _, mu in pairs]))
    for (epsilon, mu), found in zip(pairs, together.tolist(), strict=True):
        exact = exact_delta(epsilon, mu)
        if exact < mpf(10) ** -300:
            continue
        for value in (found, float(gaussian_delta(epsilon, mu))):
            assert exact <= value <= min(exact * (1 + mpf(1e-11)), mpf(1))


def test_hockey_sticks_of_other_normal_losses_are_rounded_up() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        stddev = float(10 ** rng.uniform(-8, 1.5))
        mean = float(rng.normal() * 3 * stddev)
        threshold = float(mean - rng.uniform(-30, 8) * stddev)
        e, m, s = mpf(threshold), mpf(mean), mpf(stddev)
        z = (m - e) / s
        exact = ndtr(z) - mpmath.exp(e - m + s * s / 2) * ndtr(z - s)
        found = float(hockey_stick(threshold, mean, stddev))
        assert exact <= found <= min(exact * (1 + mpf(2e-11)), mpf(1))


def test_the_largest_mu_meets_its_delta_exactly() -> None:
    for epsilon in (10.0 ** np.arange(-8, 2.1, 0.5)).tolist():
        for delta in (1e-300, 1e-100, 1e-37, 1e-12, 1e-6, 0.1, 0.9):
            used = exact_delta(epsilon, mpf(gaussian_mu(epsilon, delta))) / mpf(delta)
            assert 1 - mpf(1e-10) < used <= 1


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 0.5, 1e4, 1e6])
@pytest.mark.parametrize("delta", [1e-320, 1e-100, 1e-6, 0.5, 1 - 1e-9])
def test_extreme_promises_have_a_noise(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert 0 < mu < math.inf
    assert float(gaussian_delta(epsilon, mu)) <= delta
    assert gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-7) + 1e-12


def test_hardly_any_noise_has_no_epsilon() -> None:
    assert gaussian_epsilon(1e200, 1e-6) == math.inf
    assert gaussian_epsilon(1e20, 1e-6) == pytest.approx(5e39)


def test_sampled_profiles_are_rounded_up_by_next_to_nothing() -> None:
    rng = np.random.default_rng(2)
    for _ in range(400):
        rate, mu = float(0.999 * 10 ** rng.uniform(-12, 0)), float(10 ** rng.uniform(-3, 1.3))
        e = float(10 ** rng.uniform(-8, 1.5)) if rng.random() < 0.5 else float(rng.random() * min(rate, 20))
        profile = curve(Subsampled(Gaussian(1 / mu), rate), ZERO)
        q, growth, m = mpf(rate), mpmath.exp(mpf(e)), 1 / mpf(1 / mu)
        forward = q * exact_delta(mpmath.log(1 + (growth - 1) / q), m)
        c = 1 - (1 - q) * growth
        backward = c * exact_delta(mpmath.log(q * growth / c), m) if c > 0 else mpf(0)
        for found, exact in ((profile.forward, forward), (profile.backward, backward)):
            if exact > mpf(10) ** -290:
                assert exact <= float(found(np.array([e]))[0]) <= exact * (1 + mpf(1e-10))


@pytest.mark.parametrize("event", [Pure(0.3), Laplace(3.0), BoundedRange(0.3), Approximate(0.3, 1e-5)])
def test_closed_profiles_are_rounded_up(event: Event) -> None:
    e0 = mpf(1) / 3 if isinstance(event, Laplace) else mpf(0.3)
    for e in np.linspace(0, 0.29, 30).tolist():
        gap = mpf(e) - e0
        response = -mpmath.expm1(gap) / (1 + mpmath.exp(-e0))
        exact = {
            Pure: response,
            Laplace: -mpmath.expm1(gap / 2),
            BoundedRange: mpmath.expm1(gap / 2) ** 2 / -mpmath.expm1(-e0),
            Approximate: mpf(1e-5) + (1 - mpf(1e-5)) * response,
        }[type(event)]
        assert exact <= accountants.delta(event, e, ZERO) <= exact * (1 + mpf(1e-13))


@pytest.mark.parametrize("times", [10, 1000, 2**20])
def test_the_law_of_many_randomized_responses_is_rounded_up(times: int) -> None:
    width, epsilon = 0.3 / math.sqrt(times), 0.5
    e, least = mpf(width), math.ceil((epsilon / width + times) / 2)
    with mpmath.workdps(40):
        keep = -mpmath.log1p(mpmath.exp(-e))
        choose = mpmath.loggamma(times + 1) - mpmath.loggamma(least + 1) - mpmath.loggamma(times - least + 1)
        chance, ratio = mpmath.exp(choose + times * keep - (times - least) * e), mpmath.exp(e)
        total = mpf(0)
        for j in range(least, min(times, least + math.ceil(12 * math.sqrt(times))) + 1):
            total -= chance * mpmath.expm1(epsilon - (2 * j - times) * e)
            chance *= ratio * (times - j) / (j + 1)
        found = PureAccountant().delta(Repeated(Pure(width), times), epsilon, ZERO)
        assert total <= found <= total * (1 + mpf(1e-6))


@pytest.mark.parametrize(
    "event",
    [
        Repeated(Pure(1e-9), 10**18),
        Repeated(Laplace(1e9), 10**18),
        Composed((Repeated(Laplace(1e9), 10**18), Pure(0.1))),
        Repeated(Approximate(1e-9, 1e-30), 10**18),
    ],
)
def test_more_runs_than_can_be_listed_are_priced_by_their_divergences(event: Event) -> None:
    found = accountants.epsilon(event, 1e-6, ZERO)
    assert found == RenyiCurveAccountant().epsilon(event, 1e-6, ZERO)
    assert 4.8 < found < 5.3


def test_more_runs_than_anything_resolves_have_no_price(tmp_path) -> None:
    assert accountants.epsilon(Repeated(Subsampled(Gaussian(1e5), 1e-6), 10**18), 1e-6, ZERO) == math.inf
    assert accountants.delta(Repeated(Subsampled(Gaussian(1e5), 1e-6), 10**18), 1.0, ZERO) == 1.0
    ledger = Ledger(tmp_path / "a.ledger", 1.0, 1e-6)
    with pytest.raises(ValueError, match="no more than"):
        ledger.charge(Repeated(Repeated(Pure(1e-40), 10**20), 10**20))
    assert ledger.history() == []


def test_events_nested_too_deep_are_refused(tmp_path) -> None:
    event: Event = Pure(0.01)
    ledger = Ledger(tmp_path / "a.ledger", 1.0, 0.0)
    for _ in range(DEEPEST - 2):
        event = Composed((event,))
    assert event.depth == pickle.loads(pickle.dumps(event)).depth == DEEPEST - 2
    ledger.charge(event)
    assert ledger.spent().epsilon == 0.01
    assert Ledger(tmp_path / "a.ledger").history()[0].event == event
    event = Repeated(event, 1)
    with pytest.raises(ValueError, match="nested at most 98 deep, got 99"):
        ledger.charge(event)
    with pytest.raises(ValueError, match="nested at most 100 deep"):
        Repeated(Repeated(event, 1), 1)
    fields = event.to_dict()
    for _ in range(2000):
        fields = {"kind": "Repeated", "event": fields, "times": 1}
    with pytest.raises(ValueError, match="nested at most 100 deep"):
        Event.from_dict(fields)


SAMPLED = Subsampled(Gaussian(1.0), 0.01)
FOR_ZERO_OUT = [
    OneOf((SAMPLED,), 1e-6, "zero-out"),
    RandomTries(SAMPLED, "poisson", 0.0, 3.0, 1e-6, "zero-out"),
    Repeated(Composed((OneOf((Gaussian(9.0),), 1e-6, "zero-out"), Pure(0.01))), 2),
]


@pytest.mark.parametrize("event", FOR_ZERO_OUT)
def test_what_was_priced_under_one_relation_has_no_price_under_another(event: Event, tmp_path) -> None:
    assert accountants.epsilon(event, 1e-5, ZERO) < math.inf
    for relation in (REPLACE, Neighboring.ADD_REMOVE_ONE):
        for price in (accountants.epsilon, accountants.delta):
            with pytest.raises(UnsupportedEvent, match="priced under zero-out"):
                price(event, 1e-5, relation)
        assert not PureAccountant().supports(event, relation)
    ledger = Ledger(tmp_path / "a.ledger", 50.0, 1e-4)
    with pytest.raises(UnsupportedEvent, match="priced under zero-out"):
        ledger.charge(event)
    ledger.charge(Gaussian(10.0))
    with pytest.raises(UnsupportedEvent, match="priced under zero-out"):
        ledger.charge(event)
    assert len(ledger.history()) == 1


def test_alternatives_inside_a_selection_share_its_relation() -> None:
    inner = OneOf((SAMPLED,), 1e-6, "zero-out")
    with pytest.raises(UnsupportedEvent, match="priced under zero-out"):
        accountants.epsilon(RandomTries(inner, "poisson", 0.0, 3.0, 1e-6, "add-remove-one"), 1e-5, REPLACE)


def test_what_is_not_a_number_has_no_price():
    assert renyi_epsilon(math.nan, 2.0, 1e-6) == math.inf
    assert renyi_epsilon(math.inf, 2.0, 1e-6) == math.inf
    assert renyi_delta(math.nan, 2.0, 1.0) == 1.0
