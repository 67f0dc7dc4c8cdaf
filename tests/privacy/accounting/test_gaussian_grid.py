"""The price of a grid: the ratio of laws that the proof states, in exact arithmetic, and its effect on delta."""

import math

import mpmath
import pytest

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.gaussian import TAIL, delta_on_grid, gaussian_delta, growth, ideal_target
from discreet.privacy.events import Approximated, Composed, Discretized, Gaussian, Repeated, Subsampled
from discreet.privacy.guarantee import Neighboring

REPLACE = Neighboring.REPLACE_ONE


@pytest.mark.parametrize("sigmas", [0, 0.5, 1, 3, 10, 40, 1500])
def test_ratio_of_discrete_and_rounded_gaussian(sigmas):
    """log(p_k / q_k) at k = sigmas * 2^30 stays within (K^2 + 1) 2^-63, in 60-digit arithmetic."""
    with mpmath.workdps(60):
        s = mpmath.mpf(2) ** 30
        k = mpmath.mpf(int(sigmas * 2**30))
        # The cell's probability over the density at its center, by a series that converges at once.
        rounded = mpmath.quad(lambda u: mpmath.exp(-(u * u) / (2 * s * s) - k * u / s**2), [-0.5, 0, 0.5])
        log_ratio = float(mpmath.log(rounded) * mpmath.mpf(2) ** 63)
    assert abs(log_ratio) <= sigmas**2 + 1
    if sigmas > 1:
        assert log_ratio > 0.25 * sigmas**2  # the bound is not idle


@pytest.mark.parametrize("epsilon", [0.0, 1e-16, 0.1, 1.0, 30.0, 1e3, 1e6])
def test_grid_costs_next_to_nothing_at_any_epsilon(epsilon):
    mu = 0.1 if epsilon < 1 else math.sqrt(epsilon / 2)
    ideal = float(gaussian_delta(epsilon, mu))
    found = accountants.delta(Discretized(Gaussian(1 / mu), 1000), epsilon, REPLACE)
    assert ideal <= found <= ideal * (1 + 1e-3) + 1e-12


@pytest.mark.lemma("discrete-noise.md#section-3.1")
def test_a_loss_grows_by_the_ratio_of_both_laws():
    """No ideal loss is above 1; on the grid both probabilities may be off by the ratio: losses reach 1 + 2 ratio."""
    variates = 2**50  # so many that the ratio shows
    ratio = growth(variates, 1.0)

    def ideal(epsilon):
        return max(0.0, -math.expm1(epsilon - 1.0))

    assert 0.01 < ratio < 0.1
    assert delta_on_grid(ideal, variates, 1.0) == pytest.approx(math.exp(ratio) * -math.expm1(-2 * ratio))
    assert delta_on_grid(ideal, variates, 1.0 + 2.1 * ratio) < 1e-36


@pytest.mark.parametrize("variates", [1, 10**6, 2**36])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 500.0])
def test_what_lies_beyond_the_reach_is_neglected_for_all_variates_together(variates, epsilon):
    """The ratio is (K^2 + 1) 2^-63 each; beyond K standard deviations all of them have at most 2 e^(-epsilon - 90)."""
    reach_squared = growth(variates, epsilon) / variates * 2.0**63 - 1
    assert math.log(variates) - reach_squared / 2 <= -(epsilon + 90) + 1e-9


def test_the_older_price_would_have_exploded():
    fine = accountants.delta(Discretized(Gaussian(0.1), 1000), 100.0, REPLACE)
    coarse = accountants.delta(Approximated(Gaussian(0.1), 1000 * 0.021 / 2**60), 100.0, REPLACE)
    assert fine < 1e-3
    assert coarse == 1.0


def test_variates_add_up_over_the_tree():
    from discreet.privacy.events import leaves_of

    tree = Composed(
        (Repeated(Discretized(Gaussian(1.0), 5), 3), Subsampled(Discretized(Gaussian(1.0), 2), 0.1))
    )
    assert leaves_of(tree).variates == 17


def test_target_and_price_agree():
    def ideal(epsilon):
        return float(gaussian_delta(epsilon, 0.2))

    shift, delta = ideal_target(1e-6, 10_000, 1.0)
    assert shift == 2 * growth(10_000, 1.0)
    if ideal(1.0 - shift) <= delta:
        assert delta_on_grid(ideal, 10_000, 1.0) <= 1e-6
    assert delta_on_grid(lambda _: 0.0, 10, 1.0) == TAIL
    assert delta_on_grid(ideal, 10**18, 1.0) == 1.0  # so many variates that nothing is claimed


def test_epsilon_inverts_delta_on_the_grid():
    event = Discretized(Gaussian(5.0), 10**6)
    epsilon = accountants.epsilon(event, 1e-8, REPLACE)
    assert accountants.delta(event, epsilon, REPLACE) <= 1e-8
    assert accountants.delta(event, epsilon * 0.999, REPLACE) > 1e-8


def test_count_of_variates_is_checked():
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="variates"):
            Discretized(Gaussian(1.0), wrong)
