"""Calibrated noise meets its guarantee, and hardly exceeds what is needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.calibration import Unattainable, calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    Pure,
    Repeated,
    Subsampled,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import Guarantee, Neighboring

TABLE_DELTA = 1 / 45000**2
MAKERS: list[Callable[[float], Event]] = [
    Gaussian,
    lambda x: Repeated(Gaussian(x), 1000),
    lambda x: Gaussian(1e4 * x),
    lambda x: Gaussian(1e-6 * x),
    lambda x: Approximated(Gaussian(x), TABLE_DELTA / 100),
    lambda x: Repeated(Laplace(x), 7),
    lambda x: Pure(1 / x),
    lambda x: BoundedRange(1 / x),
    lambda x: Repeated(BoundedRange(1 / x), 30),
    lambda x: ZeroConcentrated(1 / x),
    lambda x: Composed((Pure(0.05), Gaussian(x))),
    lambda x: ObjectivePerturbation("logistic", x, 0.05, 0.25, 0.0005),
    lambda x: ObjectivePerturbation("softmax", x, 0.001, 0.25, 0.0005, 5),
    lambda x: Repeated(ObjectivePerturbation("logistic", x, 0.0005, 0.25, 0.0005), 2),
]


def price(event: Event, guarantee: Guarantee) -> float:
    return accountants.delta(event, guarantee.epsilon, guarantee.neighboring)


@pytest.mark.parametrize("make_event", MAKERS, ids=lambda make: repr(make(1.0)))
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_price_is_at_most_the_guarantee_and_hardly_less(
    make_event: Callable[[float], Event], epsilon: float
) -> None:
    guarantee = Guarantee(epsilon, TABLE_DELTA)
    found = price(make_event(calibrate(make_event, guarantee)), guarantee)
    assert 0.99 * guarantee.delta <= found <= guarantee.delta


@pytest.mark.parametrize(
    ("epsilon", "batch", "published"), [(1.0, 300, 1.453), (0.1, 300, 10.95), (1.0, 50, 0.874)]
)
def test_published_noise_for_subsampled_gradients(epsilon: float, batch: int, published: float) -> None:
    guarantee = Guarantee(epsilon, TABLE_DELTA, Neighboring.ZERO_OUT)
    found = calibrate(lambda x: Repeated(Subsampled(Gaussian(x), batch / 45000), 1000), guarantee)
    assert found == pytest.approx(published, rel=1e-3)


@given(st.floats(1e-3, 50), st.floats(-15, -1))
@settings(max_examples=60)
def test_gaussian_noise_for_any_guarantee(epsilon: float, log_delta: float) -> None:
    guarantee = Guarantee(epsilon, 10**log_delta)
    exact, general = 1 / gaussian_mu(epsilon, guarantee.delta), calibrate(Gaussian, guarantee)
    assert 0.99 * guarantee.delta <= price(Gaussian(general), guarantee) <= guarantee.delta
    assert exact == pytest.approx(general, rel=1e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(27.134948955463578, 1e-15), (19.0, 10**-6.19921875), (1.0, 1e-305)]
)
def test_not_even_the_last_digit_of_delta_is_exceeded(epsilon: float, delta: float) -> None:
    """The scale of the search cannot tell such prices from the limit; the prices themselves must decide."""
    guarantee = Guarantee(epsilon, delta)
    assert price(Gaussian(calibrate(Gaussian, guarantee)), guarantee) <= delta


def test_wherever_the_search_starts_it_ends_at_the_same_noise() -> None:
    guarantee = Guarantee(1.0, TABLE_DELTA)
    for low, high in ((1e-3, 1e7), (100.0, 200.0), (1e-3, 0.01), (5.0, 6.0)):
        assert calibrate(Gaussian, guarantee, low=low, high=high) == pytest.approx(5.611631, rel=1e-6)


def test_few_evaluations() -> None:
    calls = []

    def make_event(x: float) -> Event:
        calls.append(x)
        return ObjectivePerturbation("logistic", x, 0.05, 0.25, 0.0005)

    calibrate(make_event, Guarantee(1.0, TABLE_DELTA))
    assert len(calls) <= 12


@pytest.mark.parametrize("times", [1, 7])
def test_pure_guarantees_add_up(times: int) -> None:
    guarantee = Guarantee(0.7)
    found = calibrate(lambda x: Repeated(Laplace(x), times), guarantee)
    spent = accountants.epsilon(Repeated(Laplace(found), times), 0.0, guarantee.neighboring)
    assert 0.7 * (1 - 1e-9) <= spent <= 0.7


def test_noise_grows_with_every_demand() -> None:
    def noise(epsilon: float, delta: float) -> float:
        return calibrate(lambda x: Composed((Laplace(20.0), Gaussian(x))), Guarantee(epsilon, delta))

    assert noise(0.5, 1e-6) > noise(1.0, 1e-6) > noise(1.0, 1e-5)


def test_gaussian_noise_never_meets_a_pure_guarantee() -> None:
    with pytest.raises(Unattainable, match="pure kind"):
        calibrate(Gaussian, Guarantee(1.0))


def test_a_fixed_part_above_the_guarantee_is_reported() -> None:
    with pytest.raises(Unattainable, match="no amount of noise"):
        calibrate(lambda x: Composed((Gaussian(x), Approximate(0.1, 1e-5))), Guarantee(1.0, 1e-6))
    with pytest.raises(Unattainable, match="no amount of noise"):
        calibrate(lambda x: Composed((Gaussian(x), Pure(2.0))), Guarantee(1.0, 1e-6))


def test_more_privacy_than_asked_is_fine_when_there_is_no_choice() -> None:
    assert calibrate(lambda x: Pure(0.1), Guarantee(1.0)) < 1e-3
    assert math.isfinite(calibrate(lambda x: Pure(0.1), Guarantee(1.0, 1e-6)))


def test_a_nonsensical_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low"):
        calibrate(Gaussian, Guarantee(1.0, 1e-6), low=2.0, high=1.0)
