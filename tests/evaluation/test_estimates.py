"""Intervals from noisy counts: closed forms, conditional laws, coverage where noise decides whether they are given."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import laplace, truncnorm

from benchmarks.near_noise import RESULTS, classified, measure, of_three, regressed
from discreet.evaluation.estimates import CLEAR, UNKNOWN, Noise, Scores, proportion

Z = float(ndtri(0.975))
CLEAN = Noise(0.0, 0.95)


def cells(*counts):
    return np.array(counts, dtype=float)


def test_wilson_without_noise_and_wider_with_it():
    n, p = 200, 0.9
    center = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    one = proportion(cells(180), cells(20), CLEAN)
    assert (one.lower, one.upper) == pytest.approx((center - half, center + half))
    other = proportion(cells(180), cells(20), Noise(100.0, 0.95))
    assert other.lower < one.lower
    assert other.upper > one.upper
    assert other.noise > 0


def test_fieller_far_above_the_noise():
    hits, misses, s = cells(3000, 2000, 500), cells(900, 800), 400.0
    found = proportion(hits, misses, Noise(s, 0.95))
    n, d, a, b = hits.sum(), hits.sum() + misses.sum(), 3, 2
    # (n - p d)^2 = z^2 (d p (1 - p) + s (a (1 - p)^2 + b p^2)), a quadratic equation in p
    square = d * d + Z**2 * d - Z**2 * s * (a + b)
    middle = -2 * n * d - Z**2 * d + 2 * Z**2 * s * a
    low, high = sorted(np.roots([square, middle, n * n - Z**2 * s * a]).real)
    assert (found.lower, found.upper) == pytest.approx((low, high), abs=1e-9)


def test_below_the_threshold_nothing_is_said_and_just_above_it_next_to_nothing():
    noise = Noise(100.0, 0.95)
    threshold = CLEAR * math.sqrt(2 * noise.variance)
    assert proportion(cells(threshold - 1e-6), cells(0), noise) == UNKNOWN
    found = proportion(cells(threshold + 1e-6), cells(0), noise)
    assert found.value == 1
    assert (found.lower, found.upper) == (0.0, 1.0)
    assert proportion(cells(10 * threshold), cells(0), noise).lower > 0.8


@pytest.mark.parametrize("low", [-np.inf, -9.0, -1.0, 0.5, 4.0, 30.0])
def test_acceptance_is_that_of_the_conditional_law(low):
    far = float(truncnorm(low, np.inf).isf(0.025))
    x = np.array([far - 1e-6, far + 1e-6, max(low, -Z) + 1e-6, -Z - 1e-6])
    wanted = [True, False, True, False]
    ends = np.full(4, low), np.full(4, np.inf)
    assert Noise(1.0, 0.95).accepts(x, *ends).tolist() == wanted
    assert Noise(1.0, 0.95).accepts(-x, -ends[1], -ends[0]).tolist() == wanted
    # Laplace noise: what its own tails accept as well.
    law = laplace(scale=math.sqrt(0.5))
    farther = law.isf(0.025 * law.sf(low))
    x = np.array([farther - 1e-6, farther + 1e-6])
    ends = np.full(2, low), np.full(2, np.inf)
    assert Noise(1.0, 0.95, gaussian=False).accepts(x, *ends).tolist() == [True, False]


def test_auc_by_differences():
    rng = np.random.default_rng(2)
    counts = rng.uniform(5e4, 5e5, size=(2, 6))
    found = Scores(counts, CLEAN).area_under_curve()
    gradient = np.zeros_like(counts)
    for place in np.ndindex(2, 6):
        moved = counts.copy()
        moved[place] += 1
        gradient[place] = Scores(moved, CLEAN).area_under_curve().value - found.value
    half = Z * math.sqrt(float(np.sum(gradient**2 * counts)))
    assert (found.upper - found.lower) / 2 == pytest.approx(half, rel=1e-3)


def test_bins_agree_with_the_other_table_by_least_squares():
    rng = np.random.default_rng(3)
    bins, others = rng.uniform(0, 9, size=(2, 5)), rng.uniform(0, 9, size=(2, 2))
    agreed = Scores.agreed(bins, others, Noise(2.0, 0.95))
    for k in range(2):
        # Minimize |b - bins|^2 + |o - others|^2 subject to sum b = sum o.
        constraint = np.array([*[1.0] * 5, -1.0, -1.0])
        given = np.concatenate([bins[k], others[k]])
        exact = given - constraint * (constraint @ given) / 7
        assert agreed.counts[k] == pytest.approx(exact[:5])
    whole = 2.0 * (np.eye(7) - np.outer(constraint, constraint) / 7)[:5, :5]
    weights = rng.normal(size=5)
    assert agreed.variance(weights) == pytest.approx(weights @ whole @ weights)
    assert agreed.covariance(weights) == pytest.approx(np.ones(5) @ whole @ weights)


def test_the_mean_is_searched_for_where_it_can_be():
    counts = np.array([[60.0], [40.0]])
    weights = np.array([[0.5], [-0.5]])
    found = Scores(counts, Noise(1e4, 0.95)).mean(weights, 0.0, 0.5)
    assert (found.lower, found.upper) == (-1.0, 1.0)
    assert math.isnan(found.value)


NEAR = {
    # Coverage of AUC fell to 0.58 and 0.80 here, of calibration to 0.74, when p was divided by as if it were known.
    "100 bins": partial(classified, n=6000, positives=174, bins=100, epsilon=1.0, delta=1e-6),
    "20 bins": partial(classified, n=4000, positives=60, bins=20, epsilon=1.0, delta=1e-6),
    "Laplace": partial(classified, n=4000, positives=60, bins=20, epsilon=1.0, delta=0.0),
    "people": partial(classified, n=4000, positives=120, bins=20, epsilon=1.0, delta=1e-6, rows=2),
    "regression": partial(regressed, n=1000, largest=0.3, epsilon=1.0, delta=1e-6),
    "few targets": partial(regressed, n=35, largest=0.8, epsilon=1.0, delta=0.0),
}


@pytest.mark.parametrize("setting", NEAR)
def test_intervals_that_are_given_near_the_noise_cover(setting):
    for row in measure(150, setting, NEAR[setting]):
        # 0.93 less 3.5 standard errors of as many trials as there are.
        for coverage, part in ((row.coverage, 1.0), (row.coverage_given, row.given)):
            if part > 0:
                assert coverage >= 0.93 - 3.5 * math.sqrt(0.07 * 0.93 / (150 * part)), row


def test_an_area_that_noise_in_many_bins_hides_is_unknown():
    """The count of a class may be clear of its noise while the sum over its bins is not; few bins are enough there."""
    noise = Noise(64.0, 0.95)
    for bins, known in ((20, True), (100, False)):
        counts = np.stack([np.full(bins, 4000.0 / bins), np.full(bins, 55.0 / bins)])
        scores = Scores(counts, noise, shared=bins + 2)
        assert scores.clear(55.0) > 0
        assert math.isnan(scores.area_under_curve().value) is not known


def test_every_metric_was_measured_near_its_noise():
    """The kept table has rows of whatever `evaluate` reports, for records and for people."""
    measured = [line for line in RESULTS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rng = np.random.default_rng(0)
    three = partial(of_three, n=4000, rarest=200, epsilon=1.0, delta=1e-6)
    for one in (NEAR["people"], NEAR["20 bins"], NEAR["regression"], three):
        for metric in one(rng):
            rows = [line for line in measured if line.startswith(f"| {metric},")]
            assert any("people" in line for line in rows), metric
            assert any("people" not in line for line in rows), metric
