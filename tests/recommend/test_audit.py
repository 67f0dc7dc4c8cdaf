"""Audits at one user: from published numbers alone, epsilon is bounded from below, and never above the claim."""

import numpy as np
import pytest
import scipy.sparse as sp

from discreet import PrivateMatrixCompletion, insecure_noise
from discreet.audit.estimates import threshold_bound
from discreet.audit.replay import replay
from discreet.audit.trace import Weakener
from discreet.mechanisms.recording import recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.recommend.methods import METHODS
from discreet.recommend.methods.clicks import IMPLICIT
from discreet.recommend.ratings import Clicks, Scale, read

DELTA, RUNS = 1e-2, 2000


def published(model, rows, statistic, share=1.0):
    """The statistic of the released item side over many runs of one plan."""
    plan = model.plan(*rows.shape)
    scale = Clicks() if model.feedback == "implicit" else Scale(-1.0, 1.0)
    ratings = read(rows, scale, None)[0]
    found = []
    with insecure_noise(1), recorded_by(Weakener(share)):
        for _ in range(RUNS):
            found.append(statistic(plan.run(ratings, fresh_entropy())))
    return np.array(found), plan


CASES = {
    # Opposite tastes: item effects move by twice the bound.
    "bias": (
        {"method": "bias", "rating_bounds": (-1, 1)},
        sp.csr_array([[1.0, -1.0], [0.5, 0.25]]),
        sp.csr_array([[-1.0, 1.0], [0.5, 0.25]]),
        lambda model: model.base[0] - model.base[1],
    ),
    # One click each, on different items: counts are sqrt(2) apart.
    "popularity": (
        {"method": "bias", "feedback": "implicit"},
        sp.csr_array(([1.0, 1.0], ([0, 1], [0, 2])), shape=(2, 3)),
        sp.csr_array(([1.0, 1.0], ([0, 1], [1, 2])), shape=(2, 3)),
        lambda model: model.popularity[0] - model.popularity[1],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_user_is_told_apart_no_better_than_claimed(case):
    parameters, first, second, statistic = CASES[case]
    model = PrivateMatrixCompletion(epsilon=2.0, delta=DELTA, **parameters)
    (a, plan), (b, _) = (published(model, rows, statistic) for rows in (first, second))
    claimed = accountants.epsilon(plan.event, DELTA, plan.guarantee.neighboring)
    found = threshold_bound(a, b, DELTA, 1 - 1e-6, joint=True)
    assert found.epsilon <= claimed
    assert threshold_bound(a, b, DELTA, 0.95).epsilon > 0.2 * claimed  # the statistic does see the user


def test_a_build_with_a_third_of_the_noise_is_caught():
    parameters, first, second, statistic = CASES["bias"]
    model = PrivateMatrixCompletion(epsilon=2.0, delta=DELTA, **parameters)
    (a, plan), (b, _) = (published(model, rows, statistic, share=1 / 3) for rows in (first, second))
    claimed = accountants.epsilon(plan.event, DELTA, plan.guarantee.neighboring)
    assert threshold_bound(a, b, DELTA, 1 - 1e-6, joint=True).epsilon > claimed


@pytest.mark.parametrize(
    ("method", "feedback"),
    [*((method, "explicit") for method in METHODS), *((method, "implicit") for method in IMPLICIT)],
)
def test_replay_of_every_method_finds_nothing(method, feedback):
    rng = np.random.default_rng(0)
    ratings = np.where(rng.random((40, 8)) < 0.5, rng.integers(1, 6, (40, 8)), 0).astype(float)
    other = ratings.copy()
    # Low and high ratings: of equal ones nothing is left where users subtract their own mean.
    other[0] = np.where(ratings[0] > 0, 0.0, np.resize([1.0, 5.0, 5.0], 8))

    def program(user_items):
        model = PrivateMatrixCompletion(method, 1.0, 1e-2, rank=2, feedback=feedback)
        return model.fit(sp.csr_matrix(user_items))

    found = replay(program, ratings, other)
    assert found.passed, str(found)
    assert found.worst_ratio > 0.4
