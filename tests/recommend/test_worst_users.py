"""The two users whose exchange moves a sum furthest, by search: near the declared distance, never beyond."""

import numpy as np
import pytest

from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.recommend.item_models import RidgeModel
from discreet.recommend.methods import als, power, subspace
from discreet.recommend.plan import Facts
from discreet.recommend.ratings import Ratings

N = 8
TRIES = 400


def facts(relation, **changes):
    values = {"n_users": 40, "n_items": N, "rank": 2, "row_clip": 0.3, "rating_clip": 0.4} | changes
    return Facts(Guarantee(1.0, 1e-6, relation, "user", "joint-dp"), **values)


def ratings(user):
    """One user's ratings; NaN where there is none."""
    items = np.flatnonzero(np.isfinite(user)).astype(np.int32)
    return Ratings(np.array([0, len(items)], dtype=np.int64), items, user[items], N)


def released_model(rng, scale):
    features = np.column_stack([np.ones(N), scale * rng.normal(size=(N, 2))])
    return RidgeModel(0.2 * rng.normal(size=N), features, np.array([0.1, 1e3, 1e3]), 0.1)


def normal_equations(where, model, importance, rng):
    declared = als.AlternatingLeastSquares().releases(where)[-1].sensitivity
    return declared, lambda user: als.normal_equations(where, ratings(user), model, 1, importance)


def products(where, model, importance, rng):
    block = power.quantized_block(where, np.linalg.qr(rng.normal(size=(N, 2)))[0])
    return power.product_sensitivity(where), lambda user: power.product(
        where, ratings(user), model, importance, block
    )


def covariances(where, model, importance, rng):
    declared = subspace.covariance_release(where, "", 1.0).sensitivity
    return declared, lambda user: subspace.covariance(where, ratings(user), model, importance)


def moved(user, rng):
    """A user with one rating made, taken back or changed, mostly to an end of the range."""
    other = user.copy()
    other[rng.integers(N)] = rng.choice([-1.0, 1.0, np.nan, rng.uniform(-1, 1)])
    return other


@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
@pytest.mark.parametrize("make", [normal_equations, products, covariances])
@pytest.mark.parametrize("per_user", [1.0, 4.0])
def test_the_worst_users_that_a_search_finds_stay_within_the_declared_distance(make, relation, per_user):
    worst = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        where = facts(relation, per_user=per_user)
        model, importance = released_model(rng, 1.0 + seed), rng.uniform(0.2, 3.0, size=N)
        declared, total = make(where, model, importance, rng)
        nobody = np.full(N, np.nan)
        pair = [np.where(rng.random(N) < 0.3, rng.choice([-1.0, 1.0], N), np.nan), nobody]

        def distance(users, total=total):
            return float(np.linalg.norm(total(users[0]) - total(users[1])))

        best = distance(pair)
        for _ in range(TRIES):
            both = relation is Neighboring.REPLACE_ONE
            trial = [moved(pair[0], rng), moved(pair[1], rng) if both and rng.random() < 0.5 else pair[1]]
            if (found := distance(trial)) >= best:
                pair, best = trial, found
        assert best <= declared * (1 + 1e-12)
        worst = max(worst, best / declared)
    assert worst > 0.85  # so that a distance declared much too small would be noticed
