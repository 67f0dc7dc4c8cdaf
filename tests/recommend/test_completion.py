"""The estimator: the promise, the local step, the joint-DP property, bad input, and limits without noise."""

import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from discreet import BudgetExceeded, Ledger, PrivacyWarning, PrivateMatrixCompletion, insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.statement import PrivacyStatement
from discreet.recommend.item_models import RidgeModel
from discreet.recommend.methods import METHODS
from discreet.recommend.metrics import ndcg_at, precision_at, recall_at, rmse
from discreet.recommend.ratings import Ratings, Scale, read
from discreet.sets.base import project_magnitudes
from discreet.solvers.components import spikes


def low_rank(m=3000, n=30, rank=2, seen=0.4, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(-1, 1, (m, rank)) @ rng.uniform(-1, 1, (rank, n)) / rank
    mask = rng.random((m, n)) < seen
    return truth, sp.csr_array((truth[mask], np.nonzero(mask)), shape=(m, n))


TRUTH, R = low_rank()


def fitted(method="subspace", epsilon=5.0, **parameters):
    settings = {"rating_bounds": (-1, 1), "rank": 4} | parameters
    return PrivateMatrixCompletion(method, epsilon, 1e-6, **settings).fit(R)


# -- the promise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["replace-one", "zero-out", "add-remove-one"])
@pytest.mark.parametrize("method", METHODS)
def test_the_promise_is_the_price_of_the_event(method, relation):
    model = PrivateMatrixCompletion(
        method, 0.7, 1e-5, neighboring=relation, rating_bounds=(-1, 1), n_users=4000
    )
    plan = model.plan(3000, 30)
    price = accountants.delta(plan.event, 0.7, plan.guarantee.neighboring)
    least = 0.0 if method == "frank-wolfe-printed" else 0.99e-5  # printed noise may be more than needed
    assert least <= price <= 1e-5
    assert (plan.guarantee.kind, plan.guarantee.unit) == ("joint-dp", "user")
    assert "unit: user" in str(plan)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_predicts_and_states(method):
    model = fitted(method, rank=2)
    assert model.method_ == method
    assert (
        model.privacy_.event
        == PrivateMatrixCompletion(method, 5.0, 1e-6, rating_bounds=(-1, 1), rank=2).plan(*R.shape).event
    )
    predictions = model.predict(R[:50])
    assert predictions.shape == (50, 30)
    assert np.isfinite(predictions).all()
    assert np.abs(predictions).max() <= 1
    assert "joint differential privacy, unit: user" in str(model.privacy_).replace("\n" + " " * 18, " ")
    again = PrivacyStatement.from_dict(json.loads(model.privacy_.to_json()))
    assert again == model.privacy_


def test_shares_of_the_budget_add_up():
    plan = PrivateMatrixCompletion("subspace", 1.0, 1e-6, rating_bounds=(-1, 1)).plan(3000, 30)
    multipliers = [mechanism.noise_multiplier for mechanism in plan.mechanisms.values()]
    assert sum(z**-2 for z in multipliers) == pytest.approx(plan.facts.mu**2, rel=1e-5)


def test_calibration_matches_the_reference_values():
    """One dense covariance alone: sigma = sqrt(2) / mu, mu(1, 1e-6) = .236704."""
    plan = PrivateMatrixCompletion("pgd", 1.0, 1e-6, n_iterations=1, rating_bounds=(-1, 1)).plan(3000, 30)
    assert plan.mechanisms["covariance 0"].stddev == pytest.approx(math.sqrt(2) / 0.236704, rel=1e-5)


def test_auto_takes_one_covariance_where_dense_rows_are_declared():
    def chosen(epsilon, per_user, n_users=1200):
        model = PrivateMatrixCompletion(epsilon=epsilon, delta=1e-6, ratings_per_user=per_user)
        return model.plan(n_users, 1200).method.name

    assert chosen(5.0, 924) == chosen(10.0, 924) == "svd"
    assert chosen(1.0, 924) == "profile"  # no direction rises above the noise
    assert chosen(5.0, 100) == chosen(5.0, None) == "profile"
    assert chosen(5.0, None, 100_000) == "subspace"


@pytest.mark.parametrize("method", ["frank-wolfe", "frank-wolfe-printed", "pgd"])
def test_every_user_subtracts_their_own_mean_first(method):
    """Thakkar (2019), section 6.4: a local step. What is released then depends on what is left of a row only."""
    rng = np.random.default_rng(3)
    shifts = rng.integers(-4, 5, size=(len(TRUTH), 1)) / 8  # exact in binary, so that only rounding differs
    grid = np.round(32 * TRUTH) / 64
    settings = {"rating_bounds": (-2, 2), "rank": 2}
    models = []
    for ratings in (grid, grid + shifts):
        rows = sp.csr_array((ratings[R.nonzero()], R.nonzero()), shape=R.shape)
        with insecure_noise(1):
            models.append(PrivateMatrixCompletion(method, 5.0, 1e-6, **settings).fit(rows))
        one = rows[:1]
        mean = one.sum() / one.nnz
        empty_direction = models[-1].predict(sp.csr_array(([mean], ([0], [0])), shape=(1, 30)))
        np.testing.assert_allclose(empty_direction, np.full((1, 30), mean), atol=1e-9)
    first, second = (model.model_.item_vectors for model in models)
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_auto_reads_public_numbers_only():
    small = PrivateMatrixCompletion(epsilon=1.0, delta=1e-6).plan(6040, 3449)
    large = PrivateMatrixCompletion(epsilon=1.0, delta=1e-6).plan(500_000, 400)
    huge = PrivateMatrixCompletion(epsilon=5.0, delta=1e-9).plan(10_000_000, 50_000)
    assert [plan.method.name for plan in (small, large, huge)] == ["profile", "subspace", "power"]


def test_seeded_noise_is_marked_and_fresh_noise_differs():
    with insecure_noise(1):
        first = fitted("profile")
    with insecure_noise(1):
        second = fitted("profile")
    assert np.array_equal(first.model_.base, second.model_.base)
    assert first.privacy_.epsilon == math.inf
    assert not np.any(fitted("profile").model_.base == fitted("profile").model_.base)


# -- joint differential privacy ---------------------------------------------------------------------------------


def changed_row(matrix, user):
    dense = matrix.toarray()
    mask = np.zeros(matrix.shape, dtype=bool)
    mask[matrix.nonzero()] = True
    dense[user], mask[user] = 1.0, True
    return sp.csr_array((dense[mask], np.nonzero(mask)), shape=matrix.shape)


@pytest.mark.parametrize("method", METHODS)
def test_others_change_through_the_release_only(method):
    other = changed_row(R, 7)
    with insecure_noise(3):
        model = fitted(method, rank=2)
    with insecure_noise(3):
        neighbor = PrivateMatrixCompletion(method, 5.0, 1e-6, rating_bounds=(-1, 1), rank=2).fit(other)
    keep = np.delete(np.arange(40), 7)
    # With the release fixed, everyone else's predictions are bit-identical whoever is in the batch ...
    assert np.array_equal(model.predict(R[:40])[keep], model.predict(other[:40])[keep])
    assert np.array_equal(model.predict(R[:40])[3], model.predict(R[[3]])[0])
    # ... and the release does feel the changed user, so that the test can fail.
    assert not np.array_equal(model.predict(R[keep]), neighbor.predict(R[keep]))


@pytest.mark.parametrize("method", METHODS)
def test_the_fitted_object_holds_no_user(method):
    model = fitted(method, rank=2)
    sizes = [value.shape for value in vars(model.model_).values() if isinstance(value, np.ndarray)]
    assert sizes
    assert all(R.shape[0] not in shape for shape in sizes)
    assert len(pickle.dumps(model)) < 60_000


def test_threads_serve_every_user_the_same_bits(monkeypatch):
    clicks = PrivateMatrixCompletion("als", 5.0, 1e-6, feedback="implicit", rank=3).fit(R)
    models = [fitted(), clicks, PrivateMatrixCompletion("subspace", 5.0, 1e-6, feedback="implicit").fit(R)]
    expected = [model.predict(R[:300]) for model in models]
    monkeypatch.setattr("discreet.recommend.ratings._BLOCK_ENTRIES", 100)
    monkeypatch.setattr("discreet.recommend.item_models._SCORES_PER_THREAD", 50)
    for model, predictions in zip(models, expected, strict=True):
        assert np.array_equal(model.predict(R[:300]), predictions)


def test_a_new_user_is_served_like_an_old_one():
    model = fitted()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(model.predict(R[[5]]), again.predict(R[[5]]))
    assert np.array_equal(model.fold_in(R[[5]])[0], model.fold_in(R[:10])[5])


# -- what is learned ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["subspace", "svd", "power", "als", "cleansing"])
def test_large_epsilon_completes_a_low_rank_matrix(method):
    model = fitted(method, 1e4, rank=2)
    assert rmse(TRUTH[:200], model.predict(R[:200])) < 0.4 * TRUTH.std()


def test_exact_covariance_and_vanishing_ridge_complete_rank_one_exactly():
    rng = np.random.default_rng(0)
    v = rng.normal(size=20)
    truth = np.outer(rng.normal(size=50), v)
    found = spikes(truth.T @ truth, 0.0, 1, keep_diagonal=True)
    model = RidgeModel(np.zeros(20), found.vectors, np.ones(1), 1e-12)
    starts = np.arange(0, 201, 4)
    items = np.concatenate([np.sort(rng.permutation(20)[:4]) for _ in range(50)]).astype(np.int32)
    rows = Ratings(starts, items, truth[np.repeat(np.arange(50), 4), items], 20)
    assert np.abs(model.scores(model.user_factors(rows)) / truth - 1).max() < 1e-6


@pytest.mark.parametrize(("rounds", "ratio"), [(5, 0.590), (10, 0.613)])
def test_printed_steps_stop_short_and_corrected_steps_do_not(rounds, ratio):
    """Steps of 1 / T reach 1 - (1 - 1/T)^(T - 1) of a fully observed rank-one matrix, the first round wasted."""
    rng = np.random.default_rng(0)
    truth = np.outer(rng.choice([-0.5, 0.5], 400), np.tile([-1.0, 1.0], 8))  # of mean 0 in every row
    everything = sp.csr_array(
        (truth.ravel(), np.tile(np.arange(16), 400), np.arange(0, 6401, 16)), shape=truth.shape
    )
    settings = {"rating_bounds": (-1, 1), "n_iterations": rounds, "nuclear_norm": 0.5, "ratings_per_user": 16}
    printed = PrivateMatrixCompletion("frank-wolfe-printed", 1e10, 1e-6, **settings).fit(everything)
    assert np.mean(printed.predict(everything) / truth) == pytest.approx(ratio, abs=0.02)
    corrected = PrivateMatrixCompletion("frank-wolfe", 1e10, 1e-6, row_clip=1.0, **settings).fit(everything)
    assert np.mean(corrected.predict(everything) / truth) > 0.95
    oja = PrivateMatrixCompletion("frank-wolfe-oja", 1e10, 1e-6, row_clip=1.0, **settings).fit(everything)
    np.testing.assert_allclose(oja.predict(everything), corrected.predict(everything), atol=0.02)


def test_oja_inside_frank_wolfe_charges_every_product():
    plan = PrivateMatrixCompletion("frank-wolfe-oja", 1.0, 1e-6, n_iterations=4).plan(5000, 30)
    products = [name for name in plan.mechanisms if name.startswith("residual product")]
    assert len(products) == 12
    assert len(plan.mechanisms) == 16
    assert accountants.epsilon(plan.event, 1e-6, plan.guarantee.neighboring) <= 1.0
    # Doubling any one multiplier's share would have to show: the sum of squared ratios is the whole budget.
    spent = sum((m.sensitivity.value / m.stddev) ** 2 for m in plan.mechanisms.values())
    assert spent == pytest.approx(plan.facts.mu**2, rel=0.01)


def test_item_effects_are_recovered_and_popular_items_rank_first_for_strangers():
    rng = np.random.default_rng(0)
    effects = np.linspace(-0.4, 0.4, 20)
    noise = 0.2 * rng.normal(size=(20_000, 20))
    mask = rng.random((20_000, 20)) < 0.5
    values = np.clip(3 + 2 * (effects + noise), 1, 5)
    ratings = sp.csr_array((values[mask], np.nonzero(mask)), shape=mask.shape)
    model = PrivateMatrixCompletion("bias", 1.0, 1e-6).fit(ratings)
    nobody = sp.csr_array((1, 20))
    assert rmse(3 + 2 * effects, model.predict(nobody)[0]) < 0.08
    items, scores = model.recommend(nobody, 3)
    assert items.tolist() == [19, 18, 17]
    assert np.all(np.diff(scores) <= 0)


def test_implicit_feedback_finds_groups():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 5000)
    chance = np.where((np.arange(20) < 10)[None, :] == (group == 0)[:, None], 0.5, 0.05)
    clicks = sp.csr_array((rng.random((5000, 20)) < chance).astype(float))
    model = PrivateMatrixCompletion("auto", 1.0, 1e-6, feedback="implicit").fit(clicks)
    row = sp.csr_array(([1.0, 1.0], ([0, 0], [2, 3])), shape=(1, 20))
    items, _ = model.recommend(row, 6)
    assert np.mean(items < 10) == 1.0
    assert not set(items) & {2, 3}
    alike, cosines = model.similar_items(0, 5)
    assert np.mean(alike < 10) >= 0.8
    assert np.all(np.diff(cosines) <= 0)


# -- data -----------------------------------------------------------------------------------------------------


def test_frame_and_matrix_agree_and_labels_come_back():
    coo = R[:, :].tocoo()
    names = np.array([f"item {j:02d}" for j in range(30)])
    frame = pd.DataFrame({"user": coo.coords[0], "item": names[coo.coords[1]], "rating": coo.data})
    with insecure_noise(2):
        first = fitted("profile")
    with insecure_noise(2):
        second = PrivateMatrixCompletion("profile", 5.0, 1e-6, rating_bounds=(-1, 1), items=names).fit(frame)
    assert np.array_equal(first.model_.base, second.model_.base)
    mine = frame[frame.user == 3]
    items, _ = second.recommend(mine, 4)
    assert len(items) == 4
    assert not set(items) & set(mine.item)
    with pytest.warns(PrivacyWarning, match="catalog"):
        inferred = PrivateMatrixCompletion("profile", rating_bounds=(-1, 1)).fit(frame)
    assert any("CATALOG" in line for line in inferred.privacy_.assumptions)


def test_explicit_zeros_are_ratings_and_empty_users_are_fine():
    matrix = sp.csr_array((np.zeros(3), ([0, 0, 2], [1, 2, 0])), shape=(4, 5))
    assert matrix.nnz == 3
    model = PrivateMatrixCompletion("profile", 1.0, 1e-6, rating_bounds=(-1, 1)).fit(matrix)
    assert np.isfinite(model.predict(matrix)).all()


def duplicated():
    return sp.csr_array((np.array([0.5, 1.0, 0.0]), np.array([1, 1, 2]), np.array([0, 2, 3])), shape=(2, 4))


def test_duplicates_can_be_averaged():
    model = PrivateMatrixCompletion("profile", 1.0, 1e-6, rating_bounds=(-1, 1), duplicates="mean")
    averaged = sp.csr_array((np.array([0.75, 0.0]), np.array([1, 2]), np.array([0, 1, 2])), shape=(2, 4))
    with insecure_noise(1):
        first = model.fit(duplicated()).model_.base
    with insecure_noise(1):
        assert np.array_equal(first, clone(model).fit(averaged).model_.base)


def frame(**columns):
    return pd.DataFrame({"user": [1, 1], "item": ["a", "b"], "rating": [3.0, 4.0]} | columns)


BAD = {
    "out of bounds": ({}, R * 3, "outside the declared range"),
    "not finite": ({}, R * np.nan, "not finite"),
    "duplicates": ({}, duplicated(), "rated more than once"),
    "dense": ({}, TRUTH, "sparse matrix"),
    "no column": ({}, pd.DataFrame({"user": [1], "item": [2]}), "rating"),
    "unknown item": ({"items": ["a"], "rating_bounds": (1, 5)}, frame(), "outside the catalog"),
    "repeated catalog": ({"items": ["a", "a"]}, frame(), "catalog once"),
    "wrong catalog": ({"items": range(7)}, R, "30 columns"),
    "empty": ({}, sp.csr_array((0, 3)), "at least one user"),
    "no rows": ({}, frame().iloc[:0], "no ratings"),
    "no user": ({"rating_bounds": (1, 5)}, frame(user=[1, None]).astype(object), "no user"),
    "users are floats": ({"rating_bounds": (1, 5)}, frame(user=[1.0, 2.0]), "not floating-point numbers"),
    "unknown user": ({"rating_bounds": (1, 5)}, frame(user=[1, pd.NA]), "no user"),
    "no item": ({"rating_bounds": (1, 5)}, frame(item=["a", None]), "no item"),
    "bounds upside down": ({"rating_bounds": (5, 1)}, R, "lowest < highest"),
    "bounds of one": ({"rating_bounds": 5}, R, "two numbers"),
    "method": ({"method": "magic"}, R, "method"),
    "rank": ({"rank": 0}, R, "rank"),
    "iterations": ({"n_iterations": 0}, R, "n_iterations"),
    "epsilon": ({"epsilon": 0.0}, R, "epsilon"),
    "pure": ({"delta": 0.0}, R, "delta"),
    "relation": ({"neighboring": "nearby"}, R, "neighboring"),
    "size": ({"neighboring": "add-remove-one"}, R, "n_users"),
    "too many users": ({"neighboring": "add-remove-one", "n_users": 10}, R, "n_users must be at least"),
    "feedback": ({"feedback": "loud"}, R, "feedback"),
    "implicit rival": ({"feedback": "implicit", "method": "svd"}, R, "implicit"),
    "too many items": ({"method": "subspace"}, sp.csr_array((2, 30_000)), "needs 7 GB"),
    "too many items for full rows": ({"method": "pgd"}, sp.csr_array((2, 6_000)), "at most 5000 items"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_any_charge(case, tmp_path):
    changes, data, message = BAD[case]
    ledger = Ledger(tmp_path / "budget.db", epsilon=1.0, delta=1e-3)
    model = PrivateMatrixCompletion(**({"delta": 1e-6, "rating_bounds": (-1, 1), "ledger": ledger} | changes))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(data)
    assert ledger.history() == []
    assert not hasattr(model, "model_")


@pytest.mark.parametrize(
    ("method", "feedback", "n_users"),
    [
        ("als", "explicit", 10**9),
        ("als", "implicit", 10**9),
        *((method, "explicit", 10**11) for method in METHODS),
        ("bias", "implicit", 10**11),
    ],
)
def test_too_many_users_for_exact_sums_are_refused_before_any_charge(method, feedback, n_users, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", 2.0, 1e-5, neighboring="add-remove-one", unit="user")
    model = PrivateMatrixCompletion(
        method, 1.0, 1e-24, neighboring="add-remove-one", n_users=n_users, ledger=ledger, feedback=feedback
    )
    with pytest.raises(ValueError, match="users are too many for exact 64-bit sums"):
        model.fit(sp.csr_array(np.ones((4, 3))))
    assert ledger.history() == []


def test_a_public_number_of_users_is_not_replaced_by_a_declared_one():
    ratings = sp.csr_array(np.ones((200, 3)))
    model = PrivateMatrixCompletion("bias", 1.0, n_users=10).fit(ratings)
    assert model.privacy_.delta == 1 / 200**2
    assert model.privacy_.bounds["users"] == 200
    bounded = PrivateMatrixCompletion("bias", 1.0, n_users=1000, neighboring="add-remove-one").fit(ratings)
    assert bounded.privacy_.bounds["users"] == 1000


def test_what_would_not_fit_into_memory_is_refused(monkeypatch):
    model = fitted("profile")
    # A machine with half a megabyte.
    monkeypatch.setattr("os.sysconf", lambda name: 1 << (10 if name == "SC_PAGE_SIZE" else 9))
    with pytest.raises(ValueError, match="fewer users at a time"):
        model.predict(R)
    assert model.predict(R[:100]).shape == (100, 30)
    for columns, message in (
        (40_000, "smaller public"),
        (2_000, "smaller public"),
        (300, "dense covariance"),
    ):
        with pytest.raises(ValueError, match=message):
            PrivateMatrixCompletion("subspace").fit(sp.csr_array((2, columns)))


def test_ratings_are_not_copied_and_may_be_memory_mapped(tmp_path):
    np.save(tmp_path / "ratings.npy", R.data)
    mapped = R.copy()
    mapped.data = np.load(tmp_path / "ratings.npy", mmap_mode="r")
    ratings = read(mapped, Scale(-1.0, 1.0), None)[0]
    assert np.shares_memory(ratings.values, mapped.data)
    assert ratings.part(3, 5).values.tolist() == R[[3, 4]].data.tolist()
    with insecure_noise(1):
        first = fitted("profile").model_.base
    with insecure_noise(1):
        second = PrivateMatrixCompletion("profile", 5.0, 1e-6, rating_bounds=(-1, 1)).fit(mapped).model_.base
    assert np.array_equal(first, second)


def test_out_of_bounds_can_be_clipped():
    with insecure_noise(1):
        clipped = fitted("profile", out_of_bounds="clip").model_.base
    with insecure_noise(1):
        wild = PrivateMatrixCompletion(
            "profile", 5.0, 1e-6, rating_bounds=(-1, 1), out_of_bounds="clip", rank=4
        )
        big = R.copy()
        big.data = np.where(np.abs(big.data) == np.abs(big.data).max(), 1e9 * np.sign(big.data), big.data)
        assert np.abs(wild.fit(big).model_.base - clipped).max() < 0.1


def test_prediction_refuses_strange_items_and_several_users():
    model = fitted("profile")
    with pytest.raises(ValueError, match="31 columns"):
        model.predict(sp.csr_array((1, 31)))
    with pytest.raises(ValueError, match="one user"):
        model.recommend(R[:2])
    strange = pd.DataFrame({"user": [1], "item": [30], "rating": [0.5]})
    for ask in (model.predict, model.recommend, model.fold_in):
        with pytest.raises(ValueError, match="outside the catalog"):
            ask(strange)
    with pytest.raises(ValueError, match="outside the catalog"):
        model.similar_items(99)
    with pytest.raises(ValueError, match="no directions"):
        fitted("bias").similar_items(0)


def test_budget_is_charged_once_and_guarded(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", epsilon=1.0, delta=1e-5)
    model = PrivateMatrixCompletion("profile", 0.9, 1e-6, rating_bounds=(-1, 1), ledger=ledger)
    model.fit(R)
    assert len(ledger.history()) == 1
    with pytest.raises(BudgetExceeded):
        clone(model).fit(R)


def test_a_release_cannot_be_repeated():
    from discreet.mechanisms.samplers.entropy import fresh_entropy
    from discreet.recommend.plan import Noise

    plan = PrivateMatrixCompletion("profile", rating_bounds=(-1, 1)).plan(100, 5)
    noise = Noise(plan, fresh_entropy())
    noise.release("user offsets", np.zeros(2))
    with pytest.raises(KeyError):
        noise.release("user offsets", np.zeros(2))


# -- metrics ----------------------------------------------------------------------------------------------------


def test_ranking_metrics_by_hand():
    scores = [0.1, 0.9, 0.8, -np.inf, 0.5]
    assert precision_at(scores, [1, 4], 2) == 0.5
    assert recall_at(scores, [1, 4], 2) == 0.5
    ideal = 1 + 1 / math.log2(3)
    assert ndcg_at(scores, [1, 4], 3) == pytest.approx((1 + 1 / 2) / ideal)
    assert ndcg_at(scores, [3], 5) == 0.0
    assert ndcg_at(scores, [], 5) == recall_at(scores, [], 5) == 0.0


def test_projection_onto_the_ball():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.uniform(0, 2, 6)
        projected = project_magnitudes(values, 3.0)
        assert projected.sum() <= 3.0 + 1e-12
        step = values - projected
        other = rng.dirichlet(np.ones(6)) * 3.0
        assert step @ (other - projected) <= 1e-9
