"""The number of tries has exactly the law that the proof uses."""

import math
import time

import numpy as np
import pytest
from scipy.stats import chisquare

from discreet.mechanisms.repetition import below, draw_tries
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting.repetition import TriesLaw, law_with_mean


def chances(law, most):
    """P(K = k), k = 1 ... most, by closed forms."""
    k = np.arange(1, most + 1)
    if law.law == "poisson":
        logs = k * math.log(law.scale) - np.array([math.lgamma(j + 1.0) for j in k])
        return np.exp(logs) / math.expm1(law.scale)
    keep = math.exp(-1 / law.scale)
    if law.shape == 1:
        return (1 - keep) * keep ** (k - 1)
    return keep**k / k / -math.log1p(-keep)


@pytest.mark.parametrize("name", ["logarithmic", "geometric", "poisson"])
@pytest.mark.lemma("selection.md#section-4")
def test_law_of_the_number_of_tries(name):
    law, entropy, size = law_with_mean(name, 4.0), fresh_entropy(), 4000
    draws = np.array([draw_tries(law, entropy) for _ in range(size)])
    expected = chances(law, 12)
    seen = np.append([(draws == k).sum() for k in range(1, 13)], (draws > 12).sum())
    wanted = size * np.append(expected, 1 - expected.sum())
    assert chisquare(seen, wanted).pvalue > 1e-7
    other = chances(law_with_mean(name, 5.0), 12)
    assert chisquare(seen, size * np.append(other, 1 - other.sum())).pvalue < 1e-7


def test_large_poisson_numbers_are_sums_of_small_ones():
    law, entropy, size = TriesLaw("poisson", 0.0, 40.0), fresh_entropy(), 3000
    draws = np.array([draw_tries(law, entropy) for _ in range(size)])
    edges = [0, 30, 34, 37, 40, 43, 46, 50]
    cumulative = np.append(0.0, np.cumsum(chances(law, 200)))
    wanted = size * np.diff([*(cumulative[edge] for edge in edges), 1.0])
    seen = np.histogram(draws, [*(edge + 0.5 for edge in edges), 1e9])[0]
    assert chisquare(seen, wanted).pvalue > 1e-7


def test_the_largest_number_of_tries_that_can_be_planned_is_drawn_at_once():
    law, entropy = law_with_mean("poisson", 1e5), fresh_entropy()
    begin = time.process_time()
    assert abs(draw_tries(law, entropy) - 1e5) < 7 * math.sqrt(1e5)
    assert time.process_time() - begin < 10  # seconds; it was not drawn in hours


def test_uniform_numbers_below_a_bound():
    entropy = fresh_entropy()
    counts = np.bincount([below(3, entropy) for _ in range(6000)], minlength=3)
    assert chisquare(counts).pvalue > 1e-7
    assert below(1, entropy) == 0


def test_shapes_without_a_sampler_are_refused():
    with pytest.raises(ValueError, match="logarithmic or the geometric"):
        draw_tries(TriesLaw("negative-binomial", 0.5, 3.0), fresh_entropy())
