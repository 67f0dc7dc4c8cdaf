"""Secret choices of records: rates, independence, repeatability under a test seed."""

import numpy as np
import pytest
from scipy import stats

from discreet.mechanisms.repetition import permutation, poisson_sample
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy


@pytest.mark.parametrize("rate", [0.003, 0.25, 0.9])
def test_sample_sizes_are_binomial(rate):
    entropy = fresh_entropy()
    sizes = np.array([len(poisson_sample(400, rate, entropy)) for _ in range(500)])
    assert stats.binomtest(int(sizes.sum()), 400 * 500, rate).pvalue > 1e-5
    assert sizes.var() == pytest.approx(400 * rate * (1 - rate), rel=0.35)


def test_every_record_is_as_likely_as_any_other():
    entropy = fresh_entropy()
    counts = np.zeros(50)
    for _ in range(2000):
        counts[poisson_sample(50, 0.3, entropy)] += 1
    assert stats.chisquare(counts).pvalue > 1e-5


def test_rate_zero_and_one():
    assert len(poisson_sample(10, 0.0, fresh_entropy())) == 0
    assert list(poisson_sample(4, 1.0, fresh_entropy())) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="between 0 and 1"):
        poisson_sample(4, 1.5, fresh_entropy())


def test_permutations_are_uniform():
    entropy = fresh_entropy()
    orders = [tuple(permutation(3, entropy)) for _ in range(1200)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-5


def test_a_rate_is_never_exceeded():
    """Of all 2^64 words a quarter is below 2^62; the next one is out."""

    class Chosen(Entropy):
        def words(self, count):
            return np.array([2**62 - 1, 2**62, 2**62 + 1], dtype=np.uint64)

    assert list(poisson_sample(3, 0.25, Chosen())) == [0]
