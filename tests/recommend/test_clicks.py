"""Implicit feedback: prices of the addendum's theorem, sums in integers, and what is learned from clicks."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import PrivateMatrixCompletion, insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.recommend.methods import clicks
from discreet.recommend.methods.als import solved
from discreet.recommend.metrics import Ranking, ndcg_at, ranking_at
from discreet.recommend.plan import Facts
from discreet.recommend.ratings import Ratings

N = 10


def facts(relation=Neighboring.REPLACE_ONE, **changes):
    values = {"n_users": 50, "n_items": N, "rank": 3, "row_clip": 1.0, "implicit": True} | changes
    return Facts(Guarantee(1.0, 1e-6, relation, "user", "joint-dp"), **values)


def rows(*users):
    starts = np.concatenate([[0], np.cumsum([len(user) for user in users])]).astype(np.int64)
    items = np.array([j for user in users for j in sorted(user)], dtype=np.int32)
    return Ratings(starts, items, np.ones(len(items)), N)


def groups(m=6000, n=20, seed=0):
    """Two kinds of users, each clicking mostly one half of the items."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, m)
    chance = np.where((np.arange(n) < n // 2)[None, :] == (kind == 0)[:, None], 0.5, 0.05)
    return sp.csr_array((rng.random((m, n)) < chance).astype(float))


@pytest.mark.parametrize(
    ("gamma", "square", "alpha", "beta", "value"),
    [(1, 4, 1, 1, 19.6), (5, 2, 0.3, 1, 15.5571), (0.1, 10, 0.1, 1, 40.0)],
)
def test_joint_price_of_clicks_and_the_price_that_is_charged(gamma, square, alpha, beta, value):
    """sup over cosines of gamma |dG|^2 + alpha |dA|^2 + beta |db|^2; separate composition never costs less."""
    x = np.linspace(0, 1, 100_001)
    change = 2 * gamma * (1 - x**2) + 2 * square * (alpha + beta) + 2 * square * x * (beta - alpha * x)
    assert change.max() == pytest.approx(value, rel=1e-5)
    apart = 2 * alpha + 2 * beta + beta**2 / (2 * alpha) if beta <= 2 * alpha else 4 * beta
    assert value <= (2 * gamma + square * apart) * (1 + 1e-5)


USER = st.sets(st.integers(0, N - 1), max_size=N)


@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
@given(first=USER, second=USER, seed=st.integers(0, 3), per_user=st.sampled_from([1.0, 4.0]))
@settings(max_examples=60, deadline=None)
def test_no_user_moves_a_sum_further_than_declared(relation, first, second, seed, per_user):
    where = facts(relation, per_user=per_user)
    if relation is Neighboring.ZERO_OUT:
        second = set()
    one, two = rows({3}, first, {0, 5}), rows({3}, second, {0, 5})
    features = np.random.default_rng(seed).normal(size=(N, 3))
    before, after = (clicks.click_equations(where, r, features, np.ones(3)) for r in (one, two))
    assert np.linalg.norm(before[0] - after[0]) <= 2 * where.apart * (1 + 1e-12)
    assert np.linalg.norm(before[1] - after[1]) <= where.apart * (1 + 1e-12)
    a, b = (clicks.unit_covariance(where, r) for r in (one, two))
    assert np.linalg.norm(a - b) <= where.apart * (1 + 1e-12)


@pytest.mark.lemma("recommenders.md#theorem-4")
def test_users_with_orthogonal_factors_attain_the_bound():
    where, features = facts(rank=2), np.zeros((N, 2))
    features[0, 0], features[1, 1] = 1.0, 1.0
    one, two = (clicks.click_equations(where, rows({j}), features, np.full(2, 1e-9)) for j in (0, 1))
    assert np.linalg.norm(one[0] - two[0]) == pytest.approx(2 * math.sqrt(2), rel=1e-3)
    assert np.linalg.norm(one[1] - two[1]) == pytest.approx(math.sqrt(2), rel=1e-3)


def test_sums_are_those_of_a_direct_evaluation_in_any_order():
    rng = np.random.default_rng(0)
    users = [set(rng.permutation(N)[:4].tolist()) for _ in range(30)]
    features, where = rng.normal(size=(N, 3)), facts()
    stack, everyone = clicks.click_equations(where, rows(*users), features, np.ones(3))
    expected, gram = np.zeros((N, 4, 4)), np.zeros((3, 3))
    for user in users:
        v = features[sorted(user)]
        u = np.linalg.solve(v.T @ v + len(user) * np.eye(3), v.sum(axis=0))
        u *= min(1.0, 0.5 / np.linalg.norm(u)) / 0.5
        z = np.append(u, 1.0)
        gram += np.outer(u, u)
        for j in user:
            expected[j] += np.outer(z, z) / math.sqrt(len(user))
    assert np.allclose(everyone, gram, atol=1e-2)
    assert np.allclose(stack, expected, atol=0.05)  # weights have 8 bits
    again = clicks.click_equations(where, rows(*users[::-1]), features, np.ones(3))
    assert np.array_equal(stack, again[0])
    assert np.array_equal(everyone, again[1])


def test_noise_alone_cannot_blow_up_a_solution():
    right = np.ones((1, 3))
    assert np.linalg.norm(solved(-np.eye(3)[None], right, 0.5)) <= np.linalg.norm(right) / 0.5 + 1e-12


@pytest.mark.parametrize("method", clicks.IMPLICIT)
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_the_promise_is_the_price_of_the_event(method, relation):
    model = PrivateMatrixCompletion(method, 0.7, 1e-5, feedback="implicit", neighboring=relation)
    plan = model.plan(3000, 30)
    assert 0.99e-5 <= accountants.delta(plan.event, 0.7, plan.guarantee.neighboring) <= 1e-5


@pytest.mark.parametrize("method", ["subspace", "power", "als"])
def test_groups_are_found(method):
    model = PrivateMatrixCompletion(method, 5.0, 1e-6, rank=2, feedback="implicit").fit(groups())
    row = sp.csr_array(([1.0, 1.0], ([0, 0], [2, 3])), shape=(1, 20))
    items, scores = model.recommend(row, 6)
    assert np.mean(items < 10) >= 5 / 6
    assert not set(items) & {2, 3}
    assert np.all(np.diff(scores) <= 0)
    alike, _ = model.similar_items(0, 5)
    assert np.mean(alike < 10) >= 0.8


def test_popularity_is_everybodys_order():
    rng = np.random.default_rng(0)
    data = sp.csr_array((rng.random((20_000, 6)) < np.linspace(0.1, 0.6, 6)).astype(float))
    model = PrivateMatrixCompletion("bias", 1.0, 1e-6, feedback="implicit").fit(data)
    assert np.argsort(model.predict(sp.csr_array((1, 6)))[0]).tolist() == list(range(6))
    with pytest.raises(ValueError, match="no directions"):
        model.similar_items(0)


def test_stored_values_and_repetitions_do_not_matter_and_frames_need_no_rating():
    data = groups(300)
    loud = data.copy()
    loud.data[:] = np.random.default_rng(1).uniform(-5, 9, size=loud.nnz)
    coo = data.tocoo()
    frame = pd.DataFrame({"user": coo.coords[0], "item": coo.coords[1]})
    frame = pd.concat([frame, frame.iloc[:5]])

    def fitted(rows):
        with insecure_noise(4):
            return PrivateMatrixCompletion(
                "subspace", 5.0, 1e-6, rank=2, feedback="implicit", items=range(20)
            ).fit(rows)

    first = fitted(data).model_
    for other in (fitted(loud).model_, fitted(frame).model_):
        assert np.array_equal(first.popularity, other.popularity)
        assert np.array_equal(first.directions, other.directions)


def test_auto_reads_public_numbers_only():
    def taken(m, n):
        model = PrivateMatrixCompletion(epsilon=1.0, delta=1e-9, feedback="implicit")
        return model.plan(m, n).method.name

    assert (taken(1000, 500), taken(500_000, 400), taken(50_000_000, 30_000)) == ("bias", "subspace", "power")


def test_ranking_metrics_agree_with_their_definitions():
    scores, relevant = [0.9, 0.1, 0.8, 0.7], [0, 3]
    gain = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert ranking_at(scores, relevant, 3) == pytest.approx(Ranking(2 / 3, 1.0, gain))
    assert ndcg_at([3.0, 2.0, 1.0], [], 2) == 0.0
    assert ranking_at([-np.inf, 1.0], [0], 2) == Ranking(0.0, 0.0, 0.0)
