"""Filters hold against analysts who choose every next size after looking."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from discreet.privacy.events import Gaussian, OneOf, Pure, Repeated
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger.rules import NOTHING, UNPRICED, Filter, cost, largest

REPLACE_ONE = Neighboring.REPLACE_ONE


def worst_adaptive_delta(
    admits: Callable[[int, int], bool], epsilon: float, step: float, most: int, stream: int = 0
) -> float:
    """Delta of the cleverest analyst, exactly: dynamic programming over all adaptive strategies.

    The analyst runs randomized responses of size ``step`` or ``3 * step`` as long as ``admits(small, large)``
    holds and picks every next one, or stops, after seeing the privacy loss so far. The value of stopping at
    loss l is (1 - e^(epsilon - l))_+; everything is in expectation under one of the two neighbors. Meanwhile a stream
    stays open, which gives ``stream`` answers of size ``step``, each whenever it is asked for.
    """
    width = 4 * most + stream
    losses = step * np.arange(-width, width + 1)
    stop = np.maximum(0.0, -np.expm1(epsilon - losses))
    value: dict[tuple[int, int, int], np.ndarray] = {}

    def ahead(counts: tuple[int, int, int], size: int) -> np.ndarray | None:
        if counts not in value:
            return None
        up = 1 / (1 + math.exp(-size * step))
        future = np.pad(value[counts], size, mode="edge")
        return up * future[2 * size :] + (1 - up) * future[: -2 * size]

    for asked in range(stream, -1, -1):
        for large in range(most, -1, -1):
            for small in range(most - large, -1, -1):
                if admits(small, large):
                    choices = [stop, ahead((asked, small + 1, large), 1), ahead((asked, small, large + 1), 3)]
                    choices.append(ahead((asked + 1, small, large), 1))
                    possible = [choice for choice in choices if choice is not None]
                    value[asked, small, large] = np.maximum.reduce(possible)
    return float(value[0, 0, 0][width])


class TestCleverestAnalyst:
    """No strategy beats the filter; a rule that is only right for fixed sizes is beaten."""

    epsilon, delta, step, most = 1.0, 1e-2, 0.05, 220

    @pytest.mark.lemma("composition.md#section-2")
    def test_filter_holds(self) -> None:
        rule = Filter.for_cap(self.epsilon, self.delta, REPLACE_ONE)
        small, large = rule.cost(Pure(self.step)), rule.cost(Pure(3 * self.step))
        admitted = [n for n in range(self.most) if rule.admits(small.times(n))]
        assert 20 < len(admitted) < self.most  # more than basic sums allow, and the table is large enough

        def admits(n_small: int, n_large: int) -> bool:
            return rule.admits(small.times(n_small) + large.times(n_large))

        assert 0 < worst_adaptive_delta(admits, self.epsilon, self.step, self.most) <= self.delta

    def test_fixed_price_does_not(self) -> None:
        def fixed_delta(n_small: int, n_large: int) -> float:
            law = np.ones(1)
            for size, count in ((1, n_small), (3, n_large)):
                up = 1 / (1 + math.exp(-size * self.step))
                kernel = np.zeros(2 * size + 1)
                kernel[0], kernel[-1] = 1 - up, up
                for _ in range(count):
                    law = np.convolve(law, kernel)
            reach = n_small + 3 * n_large
            losses = self.step * np.arange(-reach, reach + 1)
            return float(law @ np.maximum(0.0, -np.expm1(self.epsilon - losses)))

        def admits(n_small: int, n_large: int) -> bool:
            return n_small + 9 * n_large < 120 and fixed_delta(n_small, n_large) <= self.delta

        assert worst_adaptive_delta(admits, self.epsilon, self.step, 120) > self.delta

    @pytest.mark.lemma("composition.md#section-2")
    def test_a_stream_that_stays_open_is_within_the_cap(self) -> None:
        """Charges are chosen by its answers so far, and it is asked more after them: nothing is gained."""
        step, most, answers = 0.1, 24, 10
        rule = Filter.for_cap(self.epsilon, self.delta, REPLACE_ONE)
        paid = rule.cost(Repeated(Pure(step), answers))
        small, large = rule.cost(Pure(step)), rule.cost(Pure(3 * step))

        def admits(n_small: int, n_large: int) -> bool:
            return rule.admits(paid + small.times(n_small) + large.times(n_large))

        def forgetful(n_small: int, n_large: int) -> bool:
            return rule.admits(small.times(n_small) + large.times(n_large))

        assert admits(5, 0)  # there is room beside it
        found = worst_adaptive_delta(admits, self.epsilon, step, most, answers)
        assert 0 < found <= self.delta
        assert worst_adaptive_delta(forgetful, self.epsilon, step, most, answers) > self.delta


def test_what_ideal_mechanisms_leave_out_is_lost_once_for_each_data_set() -> None:
    """Each of the two distributions may be off by the variation; the second counts e^epsilon times."""
    mass, variation = Fraction(1, 10**9), Fraction(1, 10**12)
    lost = dataclasses.replace(NOTHING, mass=mass, variation=variation).failures(1.0)
    exact = mass + (1 + Fraction(math.e)) * variation
    assert exact <= lost <= exact * (1 + Fraction(1, 10**6))
    assert dataclasses.replace(NOTHING, mass=mass).failures(1.0) == mass


@pytest.mark.parametrize("limit", [3e-7, 0.2, 9.0])
def test_the_largest_admitted_size_is_found_from_below(limit: float) -> None:
    found = largest(lambda size: size <= limit, 10.0)
    assert limit / (1 + 1e-8) <= found <= limit
    assert largest(lambda size: False, 10.0) == largest(lambda size: True, 0.0) == 0.0


def test_what_was_priced_under_a_relation_has_a_price_under_no_other() -> None:
    event = OneOf((Gaussian(5.0), Pure(0.1)), 1e-6, "replace-one")
    assert cost(event, None, REPLACE_ONE) != UNPRICED
    assert cost(event, None, Neighboring.ZERO_OUT) == UNPRICED
