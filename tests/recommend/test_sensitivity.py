"""What one user can do to every global sum: never more than declared, and the bound is attained."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.recommend.item_models import ReplayModel, RidgeModel
from discreet.recommend.methods import als, frank_wolfe, power, profile, subspace
from discreet.recommend.plan import Facts
from discreet.recommend.ratings import Ratings

N = 12
RELATIONS = [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT]


def facts(relation=Neighboring.REPLACE_ONE, **changes):
    values = {"n_users": 50, "n_items": N, "rank": 3, "row_clip": 0.3, "rating_clip": 0.4} | changes
    return Facts(Guarantee(1.0, 1e-6, relation, "user", "joint-dp"), **values)


def rows(*users):
    """Ratings from dictionaries item -> value."""
    starts = np.concatenate([[0], np.cumsum([len(user) for user in users])]).astype(np.int64)
    items = np.array([j for user in users for j in sorted(user)], dtype=np.int32)
    values = np.array([user[j] for user in users for j in sorted(user)], dtype=np.float64)
    return Ratings(starts, items, values, N)


def released_model(seed=0, k=2):
    rng = np.random.default_rng(seed)
    features = np.column_stack([np.ones(N), rng.normal(size=(N, k))])
    return RidgeModel(0.2 * rng.normal(size=N), features, np.full(k + 1, 0.1), 0.2)


def blank(k=1):
    return RidgeModel(np.zeros(N), np.zeros((N, k)), np.ones(k), 1.0)


def distance(f, first, second):
    return float(np.linalg.norm(f(first) - f(second)))


USER = st.dictionaries(st.integers(0, N - 1), st.floats(-1, 1), max_size=N)


@pytest.mark.parametrize("relation", RELATIONS)
@given(first=USER, second=USER, seed=st.integers(0, 3), per_user=st.sampled_from([1.0, 5.0]))
@settings(max_examples=60, deadline=None)
def test_no_user_moves_a_sum_further_than_declared(relation, first, second, seed, per_user):
    where = facts(relation, per_user=per_user)
    if relation is Neighboring.ZERO_OUT:
        second = {}
    one, two = rows({3: 0.5}, first, {0: -1.0, 5: 1.0}), rows({3: 0.5}, second, {0: -1.0, 5: 1.0})
    rng = np.random.default_rng(seed)
    importance, effects = rng.uniform(0.1, 3, size=N), 0.5 * rng.normal(size=N)
    model, slack = released_model(seed), 1 + 1e-12
    scale = profile._count_scale(where)
    listed = {release.name: release.sensitivity for release in profile.profile_releases(where, 1.0)}

    def stacked(ratings):
        sums = profile.weighted_sums(where, ratings, importance, effects)
        return np.concatenate([scale * sums[0], sums[1]])

    assert distance(stacked, one, two) <= listed[profile.PROFILE] * slack
    assert (
        distance(lambda r: profile.weighted_sums(where, r, importance, effects)[1], one, two)
        <= listed["item effects 0"] * slack
    )
    cov = subspace.covariance_release(where, "", 1.0).sensitivity
    assert distance(lambda r: subspace.covariance(where, r, model, importance), one, two) <= cov * slack
    stack = als.AlternatingLeastSquares().releases(where)[-1].sensitivity
    assert distance(lambda r: als.normal_equations(where, r, model, 1, importance), one, two) <= stack * slack
    block = power.quantized_block(where, np.linalg.qr(rng.normal(size=(N, 3)))[0])
    limit = power.product_sensitivity(where)
    assert distance(lambda r: power.product(where, r, model, importance, block), one, two) <= limit * slack
    scalar = next(r for r in frank_wolfe.FrankWolfe().releases(where) if r.order == 0).sensitivity
    direction = np.linalg.qr(rng.normal(size=(N, 1)))[0][:, 0]
    directions = np.linalg.qr(rng.normal(size=(N, 2)))[0]
    for centered in (False, True):
        walk = ReplayModel(directions, np.array([0.0, 0.3]), np.array([2.0, 1.0]), 0.7, centered=centered)
        apart = distance(lambda r, walk=walk: frank_wolfe._covariance(where, r, walk), one, two)
        assert apart <= where.apart * slack
        energy = distance(lambda r, walk=walk: frank_wolfe._energy(where, r, walk, direction), one, two)
        assert energy <= scalar * slack


@pytest.mark.lemma("recommenders.md#theorem-1")
def test_orthogonal_rows_attain_the_covariance_bound():
    where = facts()
    one, two = rows({0: 1.0}), rows({1: 1.0})
    far = distance(lambda r: subspace.covariance(where, r, blank(), np.ones(N)), one, two)
    assert far == pytest.approx(math.sqrt(2), abs=1e-9)
    alone = distance(lambda r: subspace.covariance(where, r, blank(), np.ones(N)), one, rows({}))
    assert alone == pytest.approx(1.0, abs=1e-9)


@pytest.mark.lemma("recommenders.md#theorem-2")
def test_opposite_ratings_attain_the_profile_bound_and_counts_are_free():
    where = facts()
    up, down = rows({0: 1.0, 1: -1.0}), rows({0: -1.0, 1: 1.0})

    def sums(ratings):
        return profile.weighted_sums(where, ratings, np.ones(N), np.zeros(N))

    assert np.array_equal(sums(up)[0], sums(down)[0])
    assert distance(sums, up, down) == pytest.approx(2.0, abs=1e-6)
    apart = distance(sums, rows({0: 1.0, 1: -1.0}), rows({2: 1.0, 3: -1.0}))
    assert apart == pytest.approx(2.0, abs=1e-6)


def test_a_user_with_very_many_ratings_counts_like_any_other():
    where = facts()
    everything = rows(dict.fromkeys(range(N), 0.3) | {0: -1.0})
    sums = profile.weighted_sums(where, everything, np.ones(N), np.zeros(N))
    assert np.linalg.norm(sums[0]) <= 1.0
    assert np.linalg.norm(sums[1]) <= 1.0


def test_product_of_one_column_attains_its_bound():
    where = facts(rank=1)
    block = power.quantized_block(where, np.eye(N)[:, :1])
    far = distance(
        lambda r: power.product(where, r, blank(), np.ones(N), block), rows({0: 1.0}), rows({1: 1.0})
    )
    assert far == pytest.approx(1.0, rel=1e-3)
    assert far <= power.product_sensitivity(where)


@pytest.mark.parametrize(
    ("alpha", "beta", "value"), [(1, 1, 4.5), (1, 0.3, 2.645), (1, 1.9, 7.605), (1, 3, 12), (0.1, 1, 4)]
)
def test_separate_noise_for_normal_equations_has_the_proved_price(alpha, beta, value):
    """Addendum, Theorem 1: sup of alpha |dA|^2 + beta |db|^2 over unit factors with cosine x and y = +-1."""
    x = np.linspace(0, 1, 20_001)
    change = 2 * (alpha + beta) + 2 * x * (beta - alpha * x)
    assert change.max() == pytest.approx(value, rel=1e-6)
    if beta <= 2 * alpha:
        s2 = beta / (2 * alpha)  # the augmented form at the same noise never costs more
        assert 2 * alpha * (1 + s2) ** 2 == pytest.approx(value, rel=1e-9)


@pytest.mark.lemma("recommenders.md#theorem-3")
def test_normal_equations_attain_their_bound():
    """Factors of unit length and orthogonal for the two users, ratings at the clip."""
    where = facts(rank=2)
    features = np.zeros((N, 3))
    features[0, 1], features[1, 2] = 1.0, 1.0
    model = RidgeModel(np.zeros(N), features, np.array([1.0, 1e9, 1e9]), 1.0)
    f = lambda r: als.normal_equations(where, r, model, 1, np.ones(N))  # noqa: E731
    far = distance(f, rows({0: 1.0}), rows({1: 1.0}))
    assert far == pytest.approx(2 * math.sqrt(2), rel=1e-3)


def test_sums_do_not_depend_on_the_order_of_users_or_on_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    users = [
        dict(zip(rng.permutation(N)[:5].tolist(), rng.uniform(-1, 1, 5), strict=True)) for _ in range(200)
    ]
    model, importance = released_model(1), rng.uniform(0.5, 2, N)
    where = facts(n_users=200)
    whole = subspace.covariance(where, rows(*users), model, importance)
    backwards = subspace.covariance(where, rows(*users[::-1]), model, importance)
    monkeypatch.setattr("discreet.recommend.ratings._BLOCK_ENTRIES", 37)
    in_blocks = subspace.covariance(where, rows(*users), model, importance)
    assert np.array_equal(whole, backwards)
    assert np.array_equal(whole, in_blocks)
    stack = als.normal_equations(where, rows(*users), model, 1, importance)
    assert np.array_equal(stack, als.normal_equations(where, rows(*users[::-1]), model, 1, importance))


@pytest.mark.parametrize(
    "way", [{"_SPARSE": 100}, {"_SPARSE": 0, "_NEAR_ENTRIES": 7}, {"_SPARSE": 0, "_SMALL": 0}], ids=str
)
def test_covariances_are_the_same_integers_whichever_way_they_are_formed(way, monkeypatch):
    rng = np.random.default_rng(4)
    users = [
        dict(zip(rng.permutation(N)[:size].tolist(), rng.uniform(-1, 1, size), strict=True))
        for size in rng.integers(0, 8, 60)
    ]
    block = rows(*users)
    q = rng.integers(-(2**15), 2**15, len(block.items))
    dense = np.zeros((60, N), dtype=np.int64)
    dense[np.repeat(np.arange(60), np.diff(block.starts)), block.items] = q
    for name, value in way.items():
        monkeypatch.setattr(subspace, name, value)
    found = np.zeros((N, N), dtype=np.int64)
    subspace.add_covariance(block, q, found)
    np.testing.assert_array_equal(np.tril(found), np.tril(dense.T @ dense))


def test_a_user_contributes_the_same_bits_in_any_company():
    rng = np.random.default_rng(2)
    users = [
        dict(zip(rng.permutation(N)[:6].tolist(), rng.uniform(-1, 1, 6), strict=True)) for _ in range(50)
    ]
    model, where = released_model(3), facts()
    together = subspace.residual_integers(where, rows(*users), model, np.ones(N), 1 << 15)
    without = subspace.residual_integers(where, rows(*users[1:]), model, np.ones(N), 1 << 15)
    assert np.array_equal(together[6:], without)


def test_integers_equal_a_direct_evaluation():
    where, users = facts(), [{0: 0.5, 2: -0.5}, {1: 1.0, 2: 1.0}]
    bound = where.bound(2)
    expected = np.zeros((N, N))
    for user in users:
        a = np.zeros(N)
        for j, value in user.items():
            a[j] = value / math.sqrt(len(user))
        q = np.trunc(a * bound / max(0.3, np.linalg.norm(a)))
        expected += np.outer(q, q)
    assert np.allclose(
        subspace.covariance(where, rows(*users), blank(), np.ones(N)) * bound**2, expected, atol=2 * bound
    )


def test_too_many_users_for_exact_sums_are_refused():
    with pytest.raises(ValueError, match="exact 64-bit sums"):
        facts(n_users=2**40).bound(2)
