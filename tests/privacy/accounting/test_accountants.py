"""Accountants against closed forms, exact laws, each other and an independent implementation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

from discreet._typing import Array
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.accountants import (
    Accountant,
    BasicAccountant,
    ConcentratedAccountant,
    GaussianAccountant,
    LossDistributionAccountant,
    ProfileAccountant,
    PureAccountant,
    RenyiAccountant,
    RenyiCurveAccountant,
    UnsupportedEvent,
)
from discreet.privacy.accounting.curves import Curve, Majorant, curve, objective_majorant
from discreet.privacy.accounting.gaussian import gaussian_delta
from discreet.privacy.accounting.losses import composed_delta, connect_the_dots, convex_envelope, reach
from discreet.privacy.accounting.objective import objective_delta
from discreet.privacy.accounting.renyi import (
    _profile_divergence,
    concentrated_delta,
    concentrated_epsilon,
    concentration,
    renyi_delta,
    renyi_divergence,
    renyi_epsilon,
)
from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    Repeated,
    Subsampled,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import Neighboring

REPLACE, ZERO, ADD = Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT, Neighboring.ADD_REMOVE_ONE
TABLE_DELTA = 1 / 45000**2
PLD = LossDistributionAccountant()
LOGISTIC = ObjectivePerturbation("logistic", 12.0, 0.05, 0.25, 0.005)
SOFTMAX = ObjectivePerturbation("softmax", 17.0, 0.02, 0.25, 0.005, 4)
MIXED = Composed((Repeated(Gaussian(8.0), 3), Repeated(Laplace(12.0), 4), Pure(0.2), BoundedRange(0.3)))


# --- single events: the profile is that of a pair of laws
# -------------------------------------------------------


def two_laws_delta(p: Array, q: Array, epsilon: float) -> float:
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))


@pytest.mark.lemma("composition.md#section-4")
def test_laplace_profile_is_the_integral_of_two_densities() -> None:
    x, step = np.linspace(-40, 41, 2_000_001, retstep=True)
    for scale, epsilon in ((1.0, 0.3), (2.0, 0.0), (0.5, 1.7)):
        p, q = np.exp(-abs(x) / scale) / (2 * scale), np.exp(-abs(x - 1) / scale) / (2 * scale)
        exact = two_laws_delta(p, q, epsilon) * step
        assert accountants.delta(Laplace(scale), epsilon, REPLACE) == pytest.approx(exact, abs=2e-4)


def test_laplace_noise_on_two_coordinates_is_dominated_by_one() -> None:
    """Two coordinates shifted by a and b scales lose no more than one shifted by a + b."""
    for a, b in ((0.3, 0.7), (1.0, 1.0), (0.1, 2.0)):

        def second(e: Array, b: float = b) -> Array:
            return np.where(e < -b, -np.expm1(np.minimum(e, 0)), -np.expm1(np.minimum(e - b, 0) / 2))

        losses = np.linspace(-a, a, 20_001)
        density = np.exp((losses - a) / 2) / 4
        for epsilon in np.linspace(0, a + b, 9):
            between = float(np.trapezoid(density * second(epsilon - losses), losses))
            ends = second(epsilon - np.array([a, -a])) @ np.array([0.5, math.exp(-a) / 2])
            alone = accountants.delta(Laplace(1 / (a + b)), epsilon, REPLACE)
            assert between + ends <= alone + 1e-8
            composed = PLD.delta(Composed((Laplace(1 / a), Laplace(1 / b))), epsilon, REPLACE)
            assert composed >= between + ends - 1e-8


@given(st.floats(0.05, 4), st.floats(0, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
@pytest.mark.lemma("frank-wolfe.md#lemma-2")
def test_exponential_mechanisms_stay_below_the_bounded_range_profile(
    width: float, epsilon: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=6) * 2
    moves = rng.uniform(0, width, size=6)
    moves[:2] = (0.0, width)
    p, q = np.exp(scores), np.exp(scores + moves)
    p, q = p / p.sum(), q / q.sum()
    claim = accountants.delta(BoundedRange(width), epsilon, REPLACE)
    assert max(two_laws_delta(p, q, epsilon), two_laws_delta(q, p, epsilon)) <= claim + 1e-12


def test_bounded_range_profile_is_attained() -> None:
    width, epsilon = 1.3, 0.4
    t = (epsilon + width) / 2
    chance = -math.expm1(t - width) / -math.expm1(-width)
    p = np.array([chance, 1 - chance])
    q = p * np.exp([-t, width - t])
    assert q.sum() == pytest.approx(1)
    assert accountants.delta(BoundedRange(width), epsilon, REPLACE) == pytest.approx(
        two_laws_delta(p, q, epsilon)
    )


def test_bounded_range_is_cheaper_than_pure() -> None:
    for epsilon in (0.0, 0.2, 0.7):
        assert accountants.delta(BoundedRange(1.0), epsilon, REPLACE) < accountants.delta(
            Pure(1.0), epsilon, REPLACE
        )
    assert accountants.epsilon(BoundedRange(1.0), 0.0, REPLACE) == 1.0


@pytest.mark.parametrize(("rate", "multiplier"), [(0.01, 1.0), (0.3, 0.5), (0.9, 2.0)])
def test_subsampled_profile_is_the_integral_of_two_densities(rate: float, multiplier: float) -> None:
    mu = 1 / multiplier
    profile = curve(Subsampled(Gaussian(multiplier), rate), ZERO)
    assert profile is not None
    x = np.linspace(-12, 12 + mu, 200_001)
    plain, mixture = norm.pdf(x), (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, mu)
    for epsilon in (0.0, 0.02, 0.5):
        for one, other, way in ((mixture, plain, profile.forward), (plain, mixture, profile.backward)):
            exact = float(np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), x))
            assert float(way(np.array([epsilon]))[0]) == pytest.approx(exact, abs=1e-7)


def test_one_objective_perturbation_is_its_profile() -> None:
    for event in (LOGISTIC, SOFTMAX):
        for relation in Neighboring:
            expected = float(objective_delta(event, 1.0, relation))
            assert accountants.delta(event, 1.0, relation) == expected
            assert accountants.epsilon(event, expected, relation) == pytest.approx(1.0, rel=1e-9)


# --- pure
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "times", "epsilon"), [(0.1, 100, 2.0), (0.5, 3, 0.7), (1.0, 1, 0.3), (0.01, 5000, 1.5)]
)
def test_equal_pure_events_have_the_law_of_randomized_responses(
    width: float, times: int, epsilon: float
) -> None:
    j = np.arange(times + 1)
    truth = math.exp(width) / (1 + math.exp(width))
    exact = two_laws_delta(binom.pmf(j, times, truth), binom.pmf(j, times, 1 - truth), epsilon)
    event = Repeated(Pure(width), times)
    assert accountants.delta(event, epsilon, REPLACE) == pytest.approx(exact, rel=1e-7)
    assert accountants.delta(event, epsilon, REPLACE) >= exact
    assert PLD.delta(event, epsilon, REPLACE) == pytest.approx(exact, rel=3e-3)
    assert PLD.delta(event, epsilon, REPLACE) >= exact * (1 - 1e-9)


def test_pure_epsilons_add_up_at_delta_zero() -> None:
    event = Composed((Repeated(Pure(0.1), 3), Laplace(4.0), BoundedRange(0.5)))
    assert accountants.epsilon(event, 0.0, REPLACE) == pytest.approx(1.05)
    assert accountants.epsilon(Composed((Pure(0.1), Approximate(0.2, 0.0))), 0.0, REPLACE) == pytest.approx(
        0.3
    )
    assert accountants.epsilon(Composed((Pure(0.1), Gaussian(3.0))), 0.0, REPLACE) == math.inf
    assert PureAccountant().delta(event, 1.051, REPLACE) == 0.0
    assert BasicAccountant().epsilon(event, 0.0, REPLACE) == pytest.approx(1.05)
    for impure in (Gaussian(3.0), Approximate(0.2, 1e-9)):
        assert BasicAccountant().epsilon(Composed((Pure(0.1), impure)), 0.0, REPLACE) == math.inf


def test_a_loss_that_never_settles_is_followed_to_the_end() -> None:
    assert reach(lambda epsilon: np.where(epsilon < 1e8, 0.5, 0.0)) == 1e6
    assert reach(lambda epsilon: np.where(epsilon < 3.0, 0.5, 0.0)) == pytest.approx(3.0, rel=0.01)


# --- Gaussian
# -----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.5, 50), min_size=1, max_size=5), st.floats(0.1, 3))
@pytest.mark.lemma("composition.md#lemma-1")
def test_gaussian_composition_is_exact(multipliers: list[float], epsilon: float) -> None:
    mu = math.sqrt(sum(1 / m**2 for m in multipliers))
    event = Composed(tuple(Gaussian(m) for m in multipliers))
    assert accountants.delta(event, epsilon, REPLACE) == pytest.approx(
        float(gaussian_delta(epsilon, mu)), rel=1e-9
    )


@pytest.mark.parametrize("times", [1, 4, 100, 10_000])
def test_loss_distributions_of_gaussians_match_the_exact_price(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accountants, "_merge_gaussians", lambda counts: counts)
    event = Repeated(Gaussian(5.61163 * math.sqrt(times)), times)
    for epsilon in (0.3, 1.0, 1.4):
        exact = GaussianAccountant().delta(event, epsilon, REPLACE)
        priced = PLD.delta(event, epsilon, REPLACE)
        assert exact * (1 - 1e-9) <= priced <= exact * 1.001


# --- loss distributions
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "rounds", "batch", "multiplier", "truth", "tolerance"),
    [
        (1, 5, 50, 0.046, 756, 0.01),
        (1, 1000, 50, 0.651, 3.47, 0.01),
        (1, 100, 300, 1.234, 0.70, 0.01),
        (0.1, 5, 50, 0.460, 6.41, 0.01),
    ],
)
def test_published_noise_of_private_gradient_descent_is_not_private(
    epsilon: float, rounds: int, batch: int, multiplier: float, truth: float, tolerance: float
) -> None:
    event = Repeated(Subsampled(Gaussian(multiplier), batch / 45000), rounds)
    assert accountants.epsilon(event, TABLE_DELTA, ZERO) == pytest.approx(truth, rel=tolerance)


@pytest.mark.parametrize(
    ("multiplier", "rate", "rounds", "epsilon"), [(1.0, 0.01, 100, 1.0), (0.8, 0.02, 50, 2.0)]
)
def test_subsampled_gaussian_agrees_with_an_independent_implementation(
    multiplier: float, rate: float, rounds: int, epsilon: float
) -> None:
    from dp_accounting.pld import privacy_loss_distribution as independent

    theirs = (
        independent.from_gaussian_mechanism(
            multiplier, value_discretization_interval=2e-4, sampling_prob=rate, use_connect_dots=True
        )
        .self_compose(rounds)
        .get_delta_for_epsilon(epsilon)
    )
    event = Repeated(Subsampled(Gaussian(multiplier), rate), rounds)
    for relation in (ZERO, ADD):
        assert accountants.delta(event, epsilon, relation) == pytest.approx(theirs, rel=2e-3)


def test_connected_dots_agree_with_an_independent_implementation() -> None:
    from dp_accounting.pld import pld_pmf

    profile = curve(Gaussian(2.0), REPLACE)
    assert profile is not None
    ours, _ = connect_the_dots(profile, 0.01)
    low, high = ours.lowest, ours.lowest + len(ours.probabilities) - 1
    grid = 0.01 * np.arange(low, high + 1)
    theirs = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(0.01, low, high, gaussian_delta(grid, 0.5))
    for epsilon in (0.0, 0.333, 1.0, 2.5):
        expected = theirs.get_delta_for_epsilon(epsilon)
        assert composed_delta([(ours, 1)], epsilon) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "event", [Gaussian(3.0), Laplace(2.0), Pure(0.7), BoundedRange(1.0), LOGISTIC, SOFTMAX]
)
def test_connected_dots_are_a_law_that_dominates_the_profile(event: Event) -> None:
    profile = curve(event, REPLACE)
    assert profile is not None
    for interval in (0.05, 0.003):
        law, _ = connect_the_dots(profile, interval)
        assert np.all(law.probabilities >= 0)
        assert law.probabilities.sum() + law.infinite == pytest.approx(1, abs=1e-9)
        assert float(law.probabilities @ np.exp(-law.losses)) <= 1 + 1e-9
        if profile.exact:
            for epsilon in (0.0, 0.0123, 0.21, 0.66):
                assert composed_delta([(law, 1)], epsilon) >= profile.delta(epsilon) * (1 - 1e-9)


def test_envelope_is_the_largest_convex_curve_below() -> None:
    grid = np.linspace(0, 3, 301)
    bumpy = np.minimum(gaussian_delta(grid, 1.0), 0.9 * gaussian_delta(grid, 1.2)) * (
        1 + 0.1 * np.sin(9 * grid)
    )
    bumpy = np.minimum.accumulate(bumpy)
    smooth = convex_envelope(grid, bumpy)
    assert np.all(smooth <= bumpy + 1e-15)
    slopes = np.diff(smooth) / np.diff(np.exp(grid))
    assert np.all(np.diff(slopes) >= -1e-12)
    assert 2 * slopes[0] >= -(1 - smooth[0]) - 1e-12  # no kink after reflection
    already = gaussian_delta(grid, 1.0)
    np.testing.assert_allclose(convex_envelope(grid, already), already, atol=1e-12)


def test_envelope_of_a_bound_without_convexity_is_needed() -> None:
    """Skipping it yields negative masses: the trap of taking minima of bounds."""
    profile = curve(ObjectivePerturbation("monotone", 6.0, 0.5, 0.5, 0.0), REPLACE)
    assert profile is not None
    assert not profile.exact
    naive = Curve(profile.forward, profile.backward, exact=True)
    with pytest.raises(AssertionError, match="not convex"):
        connect_the_dots(naive, 0.01)
    law, _ = connect_the_dots(profile, 0.01)
    assert np.all(law.probabilities >= 0)


def test_composition_of_a_stubbed_profile_is_that_of_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """An objective perturbation whose profile were Gaussian must compose like Gaussians."""
    monkeypatch.setattr(
        "discreet.privacy.accounting.objective.objective_delta",
        lambda event, e, relation: gaussian_delta(e, 0.17),
    )
    event = Repeated(ObjectivePerturbation("general", 77.0, 1.0, 1.0, 0.0), 9)
    exact = float(gaussian_delta(2.0, 0.51))
    priced = LossDistributionAccountant().delta(event, 2.0, REPLACE)
    assert exact <= priced <= 1.001 * exact


def test_long_compositions_keep_their_digits_far_in_the_tail() -> None:
    law, _ = connect_the_dots(curve(Gaussian(50.0), REPLACE), 2e-4)  # type: ignore[arg-type]
    for epsilon in (1.0, 1.5, 2.0):
        exact = float(gaussian_delta(epsilon, math.sqrt(100) / 50))
        assert exact <= composed_delta([(law, 100)], epsilon) <= exact * 1.002


# --- Renyi and concentrated
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1.25, 2.0, 7.5, 33.0, 80.0])
@pytest.mark.parametrize("mu", [0.02, 0.17, 0.6])
def test_renyi_integral_of_the_gaussian_profile_is_the_closed_form(order: float, mu: float) -> None:
    profile = Curve(
        lambda e: gaussian_delta(e, mu), lambda e: gaussian_delta(e, mu), majorant=Majorant(1.0, 0.0, mu)
    )
    closed = order * mu**2 / 2
    assert closed <= _profile_divergence(profile, order) <= closed * 1.01


@pytest.mark.lemma("composition.md#section-3")
def test_renyi_representation_by_quadrature() -> None:
    order, mu = 3.0, 0.8
    integral, _ = quad(
        lambda e: (math.exp((order - 1) * e) + math.exp(-order * e)) * float(gaussian_delta(e, mu)), 0, 12
    )
    assert math.log1p(order * (order - 1) * integral) / (order - 1) == pytest.approx(
        order * mu**2 / 2, rel=1e-8
    )


@pytest.mark.parametrize("order", [1.1, 2.0, 6.0, 30.0])
@pytest.mark.parametrize("width", [0.05, 0.5, 2.0])
def test_renyi_closed_forms_are_sums_over_laws(order: float, width: float) -> None:
    truth = math.exp(width) / (1 + math.exp(width))
    p, q = np.array([truth, 1 - truth]), np.array([1 - truth, truth])
    pure = math.log(float(p**order @ q ** (1 - order))) / (order - 1)
    assert renyi_divergence(Pure(width), order, REPLACE) == pytest.approx(pure, rel=1e-9)
    x = np.linspace(-60, 62, 4_000_001)
    log_p, log_q = -abs(x) - math.log(2), -abs(x - width) - math.log(2)
    laplace = math.log(float(np.trapezoid(np.exp(order * log_p + (1 - order) * log_q), x))) / (order - 1)
    assert renyi_divergence(Laplace(1 / width), order, REPLACE) == pytest.approx(laplace, rel=1e-6)
    worst = -math.inf
    for t in np.linspace(0, width, 2001):
        chance = -math.expm1(t - width) / -math.expm1(-width)
        moment = chance * math.exp((order - 1) * t) + (1 - chance) * math.exp((order - 1) * (t - width))
        worst = max(worst, math.log(moment) / (order - 1))
    bounded = renyi_divergence(BoundedRange(width), order, REPLACE)
    assert worst <= bounded <= worst * (1 + 1e-4)


def test_renyi_of_subsampled_gaussians_agrees_with_an_independent_implementation() -> None:
    from dp_accounting import dp_event
    from dp_accounting.rdp import rdp_privacy_accountant

    for order, rate, multiplier in ((4.0, 0.01, 1.0), (16.0, 0.01, 2.0), (3.0, 0.2, 1.5), (30.0, 0.05, 1.0)):
        theirs = rdp_privacy_accountant.RdpAccountant([order])
        theirs.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier)))
        expected = float(theirs._rdp[0])
        assert expected * (1 - 1e-9) <= renyi_divergence(Subsampled(Gaussian(multiplier), rate), order, ZERO)
        assert renyi_divergence(Subsampled(Gaussian(multiplier), rate), order, ZERO) <= expected * 1.02


@pytest.mark.parametrize("relation", [REPLACE, ZERO])
@pytest.mark.parametrize(
    "event",
    [
        LOGISTIC,
        SOFTMAX,
        ObjectivePerturbation("monotone", 9.0, 0.1, 0.5, 0.01),
        ObjectivePerturbation("general", 9.0, 0.1, 1.0, 0.0),
        ObjectivePerturbation("logistic", 30.0, 0.01, 0.25, 0.005, 3),
    ],
)
def test_objective_majorant_lies_above_the_profile(
    event: ObjectivePerturbation, relation: Neighboring
) -> None:
    majorant = objective_majorant(event, relation)
    epsilon = np.linspace(0, 6, 61)
    above = np.minimum(1, majorant.count * gaussian_delta(epsilon - majorant.shift, majorant.mu))
    assert np.all(objective_delta(event, epsilon, relation) <= above * (1 + 1e-9))


@pytest.mark.parametrize("order", [1.5, 8.0, 33.0])
def test_renyi_of_objective_perturbation_is_above_that_of_its_shift(order: float) -> None:
    """A record can move the linear term by its full length, whatever the curvature does."""
    found = renyi_divergence(LOGISTIC, order, REPLACE)
    assert order * (2 / 12.0) ** 2 / 2 <= found <= 3 * order * (2 / 12.0) ** 2 / 2


@pytest.mark.parametrize(
    "leaf", [Pure(0.01), Pure(1.0), Pure(5.0), Laplace(20.0), Laplace(1.0), Laplace(0.2), BoundedRange(2.0)]
)
def test_divergences_never_exceed_order_times_concentration(leaf: Event) -> None:
    for order in (1 + 1e-6, 1.01, 1.5, 3.0, 10.0, 100.0, 1000.0):
        assert renyi_divergence(leaf, order, REPLACE) <= order * concentration(leaf) * (1 + 1e-6)


def test_concentration_improves_on_the_textbook() -> None:
    assert concentration(Pure(1.0)) == pytest.approx(math.tanh(0.5), rel=1e-9)
    assert concentration(Pure(1.0)) < 0.5
    assert concentration(Laplace(1.0)) == pytest.approx(math.exp(-1), rel=1e-9)
    assert concentration(BoundedRange(1.0)) == pytest.approx(1 / 8, rel=1e-9)


def test_published_concentration_budgets() -> None:
    assert concentrated_epsilon(0.0143978, TABLE_DELTA) == pytest.approx(1.0, rel=1e-5)
    assert concentrated_epsilon(1.69218e-4, TABLE_DELTA) == pytest.approx(0.1, rel=1e-5)
    assert concentrated_delta(0.0143978, 1.0) == pytest.approx(TABLE_DELTA, rel=1e-4)


@given(st.floats(1e-4, 2), st.floats(1.05, 200), st.floats(-12, -1))
def test_renyi_conversion_is_its_own_inverse(divergence: float, order: float, log_delta: float) -> None:
    delta = 10**log_delta
    epsilon = renyi_epsilon(divergence, order, delta)
    assert renyi_delta(divergence, order, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert renyi_delta(divergence, order, epsilon * (1 - 1e-6) - 1e-9) >= delta * (1 - 1e-9)


def test_renyi_refuses_what_has_no_divergence() -> None:
    accountant = RenyiAccountant(4.0)
    assert accountant.divergence(Composed(()), REPLACE) == 0
    assert accountant.divergence(Repeated(Gaussian(2.0), 3), REPLACE) == pytest.approx(1.5)
    for event in (NonPrivate(), Approximated(Gaussian(1.0), 1e-9), Approximate(0.1, 1e-9)):
        assert accountant.divergence(event, REPLACE) == math.inf
    assert accountant.divergence(Subsampled(Gaussian(1.0), 0.1), REPLACE) == math.inf
    with pytest.raises(ValueError, match="order"):
        RenyiAccountant(1.0)


# --- all accountants
# ------------------------------------------------------------------------------------------------

ALL: tuple[Accountant, ...] = (
    PureAccountant(),
    BasicAccountant(),
    GaussianAccountant(),
    ProfileAccountant(),
    ConcentratedAccountant(),
    RenyiAccountant(12.0),
    RenyiCurveAccountant(),
    LossDistributionAccountant(),
)
EVENTS = [
    Gaussian(3.0),
    Repeated(Gaussian(9.0), 7),
    Pure(0.4),
    Repeated(Pure(0.1), 20),
    Laplace(3.0),
    Repeated(BoundedRange(0.3), 5),
    Approximate(0.3, 1e-5),
    Repeated(Approximate(0.05, 1e-8), 6),
    ZeroConcentrated(0.02),
    Composed((ZeroConcentrated(0.01), Gaussian(9.0))),
    MIXED,
    LOGISTIC,
    Composed((LOGISTIC, Gaussian(20.0))),
    Repeated(Subsampled(Gaussian(1.1), 0.01), 40),
]


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_prices_fall_with_epsilon_and_invert(event: Event) -> None:
    for accountant in ALL:
        if not accountant.supports(event, ZERO):
            continue
        prices = [accountant.delta(event, epsilon, ZERO) for epsilon in (0.0, 0.1, 0.4, 0.9, 2.0)]
        assert all(late <= early * (1 + 1e-3) for early, late in pairwise(prices))
        assert all(0 <= price <= 1 for price in prices)
        found = accountant.epsilon(event, 1e-4, ZERO)
        assert accountant.delta(event, found, ZERO) <= 1e-4 * (1 + 1e-6)
        assert accountant.epsilon(event, 1e-3, ZERO) <= found


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_the_tightest_is_never_above_any(event: Event) -> None:
    for epsilon in (0.2, 1.0):
        best = accountants.delta(event, epsilon, ZERO)
        for accountant in ALL:
            if accountant.supports(event, ZERO):
                assert best <= accountant.delta(event, epsilon, ZERO) * (1 + 1e-3)
    best = accountants.epsilon(event, 1e-5, ZERO)
    for accountant in ALL:
        if accountant.supports(event, ZERO):
            assert best <= accountant.epsilon(event, 1e-5, ZERO) * (1 + 1e-3) + 1e-9


@given(st.floats(0.05, 2), st.floats(1e-12, 1e-4))
@pytest.mark.lemma("composition.md#section-7")
def test_inexact_sampling_costs_its_total_variation(epsilon: float, slip: float) -> None:
    ideal = accountants.delta(Gaussian(4.0), epsilon, REPLACE)
    event = Repeated(Approximated(Gaussian(8.0), slip), 4)
    expected = min(1.0, ideal + (1 + math.exp(epsilon)) * 4 * slip)
    assert accountants.delta(event, epsilon, REPLACE) == pytest.approx(expected, rel=1e-9)
    assert accountants.delta(event, epsilon, REPLACE) >= expected * (1 - 1e-12)


def test_epsilon_with_inexact_sampling_pays_for_itself() -> None:
    event = Approximated(Gaussian(4.0), 1e-7)
    found = accountants.epsilon(event, 1e-6, REPLACE)
    assert found > accountants.epsilon(Gaussian(4.0), 1e-6, REPLACE)
    assert accountants.delta(event, found, REPLACE) <= 1e-6
    assert accountants.delta(event, found * (1 - 1e-6), REPLACE) > 1e-6
    assert accountants.epsilon(event, 1e-7, REPLACE) == math.inf
    assert accountants.epsilon(event, 0.0, REPLACE) == math.inf


def test_no_guarantee_is_no_guarantee() -> None:
    for event in (NonPrivate(), Composed((Gaussian(1.0), NonPrivate())), Repeated(Pure(math.inf), 2)):
        assert accountants.delta(event, 5.0, REPLACE) == 1.0
        assert accountants.epsilon(event, 0.5, REPLACE) == math.inf


@pytest.mark.parametrize(
    "event",
    [
        Composed((Gaussian(1e-4), Pure(0.1))),
        Composed((Repeated(Pure(35.0), 300), Laplace(2.0))),
        Repeated(Laplace(0.02), 600),
        Composed((Gaussian(0.03), BoundedRange(40.0))),
    ],
)
def test_hardly_any_noise_is_priced_as_none(event: Event) -> None:
    assert accountants.delta(event, 0.01, REPLACE) == pytest.approx(1.0, abs=1e-4)


def test_a_composition_priced_as_one_run_is_caught() -> None:
    """A broken twin that forgets repetitions must be far below the real price."""
    event = Repeated(Subsampled(Gaussian(0.9), 0.02), 200)
    once = accountants.delta(event.event, 1.0, ZERO)
    assert accountants.delta(event, 1.0, ZERO) > 100 * once


def test_nothing_costs_nothing() -> None:
    for accountant in ALL:
        assert accountant.delta(Composed(()), 0.0, REPLACE) == 0.0
        assert accountant.epsilon(Composed(()), 0.0, REPLACE) == 0.0
    assert accountants.delta(Composed(()), 0.0, REPLACE) == 0.0


@pytest.mark.parametrize("event", [Subsampled(Gaussian(1.0), 0.1), Subsampled(Pure(1.0), 0.1)])
def test_what_is_not_proved_is_refused(event: Event) -> None:
    with pytest.raises(UnsupportedEvent, match="no privacy proof"):
        accountants.delta(Composed((event, Gaussian(1.0))), 1.0, REPLACE)
    with pytest.raises(UnsupportedEvent, match="no proof"):
        PLD.delta(event, 1.0, REPLACE)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        accountants.delta(Gaussian(1.0), -1.0, REPLACE)
    with pytest.raises(ValueError, match="delta"):
        accountants.epsilon(Gaussian(1.0), 1.5, REPLACE)
