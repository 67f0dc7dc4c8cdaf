"""Sums of classes: their sensitivity, what is made of them, and the classifier at the end."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

from discreet import PrivateLinearSVC, PrivateLogisticRegression, insecure_noise
from discreet.losses import HuberHinge, Linear, Logistic, Softmax, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.sets import L2Ball
from discreet.solvers.class_sums.discriminant import (
    NoisyDiscriminant,
    along,
    column_means,
    directions,
    hidden_share,
    pooled_shares,
    ridge_direction,
    row_length,
)
from discreet.solvers.class_sums.mechanism import (
    CONSTANT,
    ClassSumsMechanism,
    NoisyClassSums,
    _split_sparse,
    split,
)
from discreet.solvers.second_order.margins import class_shares

RELATIONS = list(Neighboring)
PROMISE = Guarantee(1.0, 1e-6)


def sums_of(X, codes, n_classes, norm=1.0, constant=CONSTANT):
    """The exact sums, by definition."""
    rows = np.hstack([np.maximum(X, 0), np.maximum(-X, 0), np.full((len(X), 1), constant * norm)])
    longest = norm * math.sqrt(1 + constant**2)
    rows = rows * np.minimum(1, longest / np.linalg.norm(rows, axis=1))[:, None]
    return np.stack([rows[codes == k].sum(axis=0) for k in range(n_classes)])


def mechanism(n=3, p=4, k=2, relation=Neighboring.REPLACE_ONE, norm=1.0, noise=1.0, constant=CONSTANT):
    return ClassSumsMechanism(n, p, k, norm, relation, noise, constant=constant)


@pytest.mark.parametrize("constant", [CONSTANT, 4 * CONSTANT])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("discriminant.md#theorem-1")
def test_no_pair_of_rows_is_further_apart_than_the_sensitivity_and_some_are_as_far(relation, constant):
    rng = np.random.default_rng(0)
    bound = mechanism(relation=relation, constant=constant).gaussian.sensitivity.value
    largest = 0.0
    for trial in range(4000):
        one, two = (
            rng.normal(size=(2, 1, 4))
            * rng.choice([0.1, 1.0, 10.0], (2, 1, 1))
            * rng.integers(0, 2, (2, 1, 4))
        )
        if trial == 0:
            one = two = np.array([[1.0, 0, 0, 0]])
        first = sums_of(one, np.zeros(1, int), 2, constant=constant)
        second = sums_of(two, np.ones(1, int) if trial % 2 == 0 else np.zeros(1, int), 2, constant=constant)
        if relation is not Neighboring.REPLACE_ONE:
            second = np.zeros_like(second)
        largest = max(largest, float(np.linalg.norm(first - second)))
    assert bound * (1 - 1e-9) <= largest <= bound
    # the bound of a smaller constant is false
    assert largest > mechanism(relation=relation, constant=constant / 2).gaussian.sensitivity.value


def test_rows_of_one_class_that_keep_their_signs_would_be_too_far_apart():
    one = np.array([1.0, 0.0, CONSTANT])
    two = np.array([-1.0, 0.0, CONSTANT])
    assert np.linalg.norm(one - two) > 1.3 * mechanism().gaussian.sensitivity.value


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("norm", [0.5, 1.0, 4.0])
def test_split_rows_sum_up_to_the_sums_of_the_classes(make, norm):
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(200, 5)) * rng.integers(0, 2, (200, 5)) * 64) / 64  # exact in float32 too
    codes = rng.integers(0, 3, 200)
    null = np.zeros(200, dtype=bool)
    null[:7] = True
    made = mechanism(200, 5, 3, norm=norm)
    records = ArrayRecords(make(X), codes, Bounds(norm), null)
    parts = [
        ArrayRecords(make(X)[at], codes[at], Bounds(norm), null[at]) for at in (slice(0, 60), slice(60, 200))
    ]
    apart = PartitionedRecords(LocalParts(parts), [60, 140], 5, sparse.issparse(make(X)), Bounds(norm), codes)
    wanted = sums_of(X[7:], codes[7:], 3, norm)
    zero = np.zeros(made.width)
    for rows in (records, apart):
        parted = split(rows, norm * CONSTANT, made.bounds)
        found = [-parted.with_labels(codes == k).value_and_gradient(Linear(), zero)[1] for k in range(3)]
        assert np.abs(np.stack(found) - wanted).max() < 1e-6


def test_a_place_that_is_stored_twice_counts_with_its_sum():
    twice = sparse.csr_matrix((np.array([0.5, -0.3]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    rows = split(ArrayRecords(twice, [1.0], Bounds(1.0)), CONSTANT, mechanism(1, 3).bounds)
    assert np.allclose(rows.dense(slice(0, 1)), [[0, 0.2, 0, 0, 0, 0, CONSTANT]])


def test_released_sums_have_the_planned_noise():
    empty = ArrayRecords(np.zeros((4, 500)), np.ones(4), Bounds(2.0), np.ones(4, dtype=bool))
    made = mechanism(4, 500, 2, Neighboring.ADD_REMOVE_ONE, norm=2.0, noise=3.0)
    assert made.gaussian.stddev == pytest.approx(3.0 * 2.0 * math.sqrt(1 + CONSTANT**2), rel=1e-6)
    found = made.release(empty, np.zeros(4, int), fresh_entropy())
    assert found.variance == pytest.approx(
        (made.gaussian.stddev / 2.0) ** 2 * (1 if found.variance < 15 else 2)
    )
    # a thousand normal numbers: their mean square is within 6 standard deviations, sqrt(2 / 1000) each
    assert abs(np.mean(found.features**2) / found.variance - 1) < 6 * math.sqrt(2 / 1000)


def test_negative_parts_are_dropped_only_where_they_are_few():
    made = mechanism(100, 2, 2, noise=1e-6)
    counts = [[50 * CONSTANT], [50 * CONSTANT]]
    none = made.read(np.hstack([[[30, 20], [10, 40]], [[1, 0], [0, 2]], counts]))
    assert np.array_equal(none.features, [[30, 20], [10, 40]])
    assert np.array_equal(none.sizes, [40, 60])
    signed = made.read(np.hstack([[[30, 20], [10, 40]], [[20, 20], [5, 20]], counts]))
    assert np.array_equal(signed.features, [[10, 0], [5, 20]])
    assert np.array_equal(signed.sizes, [65, 100])
    assert signed.variance == 2 * none.variance
    assert np.allclose(none.counts, 50)


def test_shares_are_those_released_without_noise():
    for shares in ([0.9, 0.1], [0.5, 0.5], [0.999, 0.001], [0.7, 0.2, 0.1]):
        assert class_shares(np.array(shares), 0.0) == pytest.approx(shares, rel=2e-3)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_shares_are_posterior_means_under_the_prior_of_jeffreys(n_classes):
    """Compare with weighted draws of the prior: a share is marginally Beta(1/2, (k - 1)/2)."""
    drawn = np.random.default_rng(0).beta(0.5, (n_classes - 1) / 2, 400_000)
    for seen in (-0.2, 0.05, 0.4):
        noisy = np.full(n_classes, (1 - seen) / (n_classes - 1))
        noisy[0] = seen
        variance = 0.01 / (1 - 1 / n_classes)  # before errors that add up to 0
        means = []
        for one in noisy:
            weights = np.exp(-((one - drawn) ** 2) / 0.02)
            means.append(weights @ drawn / weights.sum())
        assert class_shares(noisy, variance) == pytest.approx(np.array(means) / np.sum(means), rel=0.02)


def test_a_share_that_vanishes_in_the_noise_costs_less_log_loss_than_even_odds():
    noise = 0.1 * np.random.default_rng(1).normal(size=200)
    for share in (0.005, 0.03, 0.1):
        lost = []
        for z in noise:
            found = class_shares(np.array([1 - share - z, share + z]), 0.02)
            assert 0 < found[1] < 1
            lost.append(share * math.log(share / found[1]) + (1 - share) * math.log((1 - share) / found[0]))
        assert np.mean(lost) < 0.05  # even odds cost 0.66, 0.56 and 0.37


def noisy_sums(rng, lengths, n, noise):
    """Class sums of rows of these lengths, half of a class each, along one direction of 40, with noise of the rows."""
    row = np.abs(rng.normal(size=40))
    row /= np.linalg.norm(row)
    counts = np.array([0.8 * n, 0.2 * n])
    features = counts[:, None] * np.multiply.outer(lengths, row)
    features = features + noise * rng.normal(size=features.shape)
    count_noise = noise / CONSTANT
    counts = counts + count_noise * rng.normal(size=2)
    return NoisyClassSums(features, features.sum(axis=0), counts, 1.0, noise**2, count_noise**2)


def test_sums_of_rows_tell_the_sizes_of_classes_better_than_constants():
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(200):
        sums = noisy_sums(rng, (1.0, 1.0), 1000, 50.0)
        shares, variance = pooled_shares(sums, 1000)
        errors.append((1000 * shares[1] - 200, sums.counts[1] - 200))
        assert variance < sums.count_variance / 1000**2
        assert shares.sum() == pytest.approx(1.0)
    pooled, constants = np.sqrt(np.mean(np.square(errors), axis=0))
    assert pooled < constants / 2


def test_without_noise_constants_tell_the_sizes_of_classes_of_long_and_short_rows():
    sums = noisy_sums(np.random.default_rng(0), (0.5, 1.0), 1000, 1e-3)
    assert pooled_shares(sums, 1000)[0] == pytest.approx([0.8, 0.2], abs=1e-4)


def test_what_noise_may_explain_of_a_contrast_along_the_mean_row_is_left_out():
    row, across = np.array([0.8, 0.6, 0.0]), np.array([-0.6, 0.8, 0.5])
    assert along(2 * row + across, row) == pytest.approx(2 * row)
    assert hidden_share(2 * row + across, row, 0.5) == 1.0  # 2 is less than three standard deviations
    assert hidden_share(2 * row + across, row, 1e-3) == pytest.approx(9e-3 / 4)
    assert hidden_share(across, row, 0.0) == 0.0
    assert hidden_share(across, np.zeros(3), 1.0) == 1.0


def test_lengths_of_rows_count_only_where_they_rise_above_the_noise():
    sums = noisy_sums(np.random.default_rng(0), (1.0, 1.1), 1000, 50.0)
    row = sums.features.sum(axis=0)
    found = directions(sums, 1000).matrix[:, 0]
    assert abs(found @ row) < 1e-9 * np.linalg.norm(found) * np.linalg.norm(row)
    sums = noisy_sums(np.random.default_rng(0), (1.0, 1.1), 1000, 1e-3)
    assert directions(sums, 1000).matrix[:, 0] @ sums.features.sum(axis=0) > 0


def test_columns_below_the_noise_share_what_is_left():
    means, seen = column_means(np.array([5.0, 0.2, -0.1, 0.5]), 0.1)
    assert seen.tolist() == [True, False, False, True]
    assert means.tolist() == pytest.approx([5.0, 0.1, 0.1, 0.5])
    means, _ = column_means(np.array([5.0, -0.2, -0.1, 0.2]), 0.1)
    assert means[1:] == pytest.approx([0.2 / 3] * 3)  # no less than noise could hide


def test_the_estimated_covariance_has_no_bias_and_the_naive_one_has():
    rng = np.random.default_rng(2)
    contrast = rng.normal(size=50) * 0.1
    weights = 1 / (np.full(50, 0.02) + 0.1)
    noisy = contrast + 0.2 * rng.normal(size=(20_000, 50))
    true = weights @ contrast**2
    estimates = (noisy**2 - 0.04) @ weights
    error = estimates.std() / math.sqrt(len(estimates))
    assert abs(estimates.mean() - true) < 5 * error
    assert abs((noisy**2 @ weights).mean() - true) > 100 * error


def test_without_noise_the_direction_is_fishers_and_under_noise_the_difference_of_means():
    rng = np.random.default_rng(3)
    moments = rng.dirichlet(np.ones(30))
    contrast = moments * rng.normal(size=30)
    found, covariance = ridge_direction(contrast, moments, 0.0, 0.0)
    fisher = contrast / moments
    assert np.corrcoef(found, fisher)[0, 1] > 1 - 1e-9
    # Fisher's score has covariance |score|^2 with the class, and the direction is scaled to scores of 1
    assert covariance == pytest.approx(math.sqrt(moments @ fisher**2), rel=1e-6)
    assert moments @ found**2 == pytest.approx(1.0)
    blurred, doubtful = ridge_direction(contrast, moments, 100.0, 1e6)
    assert np.corrcoef(blurred, contrast)[0, 1] > 0.99
    assert doubtful == 0.0


def test_the_chosen_ridge_is_about_the_best():
    rng = np.random.default_rng(4)
    moments = np.sort(rng.dirichlet(np.full(20_000, 0.3)))
    for size, noise in ((0.1, 3e-4), (0.1, 1e-4), (0.02, 1e-4)):
        contrast = np.sqrt(moments) * rng.normal(size=len(moments)) * size
        noisy = contrast + noise * rng.normal(size=len(moments))
        found = ridge_direction(noisy, moments, noise**2, 1300 * noise**2)[0]
        others = [noisy / (moments + ridge) for ridge in np.geomspace(1300 * noise**2, 10.0, 30)]
        reached = _correlation(found, contrast, moments)
        every = [_correlation(other, contrast, moments) for other in others]
        assert reached > 0.9 * max(every)
        assert reached > 1.02 * min(every)


def _correlation(direction, contrast, moments):
    return direction @ contrast / math.sqrt(moments @ direction**2)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", [Logistic(), Softmax(4), HuberHinge()])
@pytest.mark.lemma("discriminant.md#theorem-2")
def test_the_event_costs_what_is_promised_and_hardly_less(relation, loss):
    problem, promise = Problem(loss, Bounds(1.0), 1000, 50), Guarantee(0.7, 1e-7, relation)
    assert accountants.epsilon(NoisyDiscriminant().plan(problem, promise).event, 1e-7, relation) <= 0.7
    plan = NoisyDiscriminant(sums_share=0.9).plan(problem, promise)
    spent = accountants.epsilon(plan.event, 1e-7, relation)
    assert 0.99 * 0.7 < spent <= 0.7
    twin = NoisyDiscriminant(sums_share=0.5).plan(plan.problem, plan.guarantee)
    assert twin.sums.gaussian.stddev > 1.3 * plan.sums.gaussian.stddev
    assert twin.release(1.0).stddev < 0.6 * plan.release(1.0).stddev


def words(n, p, seed, signed=False):
    """Rows of few counts, with columns as rare as words, and labels that depend on a tenth of them."""
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, p + 1)
    labels = rng.integers(0, 2, n)
    tilt = np.where(np.arange(p) % 10 == 3, 3.0, 1.0)
    rows = np.stack(
        [rng.multinomial(15, (c := chances * (tilt if y else 1.0)) / c.sum()) for y in labels]
    ).astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if signed:
        rows *= np.where(np.arange(p) % 2, 1.0, -1.0)
    return rows, labels


def test_it_ranks_texts_of_which_no_single_word_tells_much():
    X, y = words(4000, 1500, 0)
    T, truth = words(2000, 1500, 1)
    model = PrivateLogisticRegression(1.0, classes=[0, 1], solver="discriminant").fit(sparse.csr_matrix(X), y)
    assert roc_auc_score(truth, model.decision_function(T)) > 0.65  # 0.77 +- 0.02


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_columns_that_exclude_each_other_are_each_told_by_their_own_majority(make):
    rng = np.random.default_rng(5)
    columns = rng.integers(0, 12, 6000)
    y = (rng.random(6000) < np.where(columns % 3 == 0, 0.9, 0.2)).astype(int)
    model = PrivateLogisticRegression(1e4, 1e-6, classes=[0, 1], solver="discriminant")
    model.fit(make(np.eye(12)[columns]), y)
    assert np.array_equal(model.predict(np.eye(12)), (np.arange(12) % 3 == 0).astype(int))
    # equal rates get equal scores
    scores = model.decision_function(np.eye(12))
    assert scores[::3].std() < 0.2 * (scores[::3].mean() - scores[1::3].mean())


@pytest.mark.parametrize("signed", [False, True])
def test_dense_and_sparse_rows_give_the_same_model(signed):
    X, y = words(500, 40, 2, signed)
    found = []
    for rows in (X, sparse.csr_matrix(X)):
        with insecure_noise(3):
            found.append(
                PrivateLogisticRegression(1.0, classes=[0, 1], solver="discriminant").fit(rows, y).coef_
            )
    assert np.allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_more_than_two_classes_and_no_intercept(intercept):
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 4, 4000)
    X = 0.6 * np.eye(4)[codes] + 0.1 * rng.normal(size=(4000, 4))
    model = PrivateLogisticRegression(
        2.0, classes=range(4), solver="discriminant", fit_intercept=intercept
    ).fit(X, codes)
    assert model.coef_.shape == (4, 4)
    assert model.score(X, codes) > 0.97
    assert np.abs(model.intercept_).max() > 0 if intercept else np.all(model.intercept_ == 0)


def test_an_svm_is_fitted_too_and_where_nothing_can_be_seen_the_larger_class_is_answered():
    X, y = words(3000, 300, 3)
    T, truth = words(2000, 300, 4)
    svm = PrivateLinearSVC(2.0, classes=[0, 1], solver="discriminant").fit(X, y)
    assert svm.score(T, truth) > 0.6  # 0.71 +- 0.02
    rare = (np.arange(3000) % 10 == 0).astype(int)
    blind = PrivateLogisticRegression(0.05, classes=[0, 1], solver="discriminant").fit(X, rare)
    assert blind.predict(T).mean() < 0.2


def test_refusals():
    problem = Problem(Logistic(), Bounds(1.0), 100, 3)
    for solver, given, promise, words_ in [
        (NoisyDiscriminant(), problem, Guarantee(1.0), "delta"),
        (
            NoisyDiscriminant(),
            Problem(Squared(1.0, 1.0), Bounds(1.0), 100, 3),
            PROMISE,
            "does not support the loss",
        ),
        (NoisyDiscriminant(), Problem(Logistic(), Bounds(1.0), 100, 3, n_models=3), PROMISE, "softmax"),
        (NoisyDiscriminant(), Problem(Logistic(), Bounds(1.0), 100, 3, l2=0.1), PROMISE, "own ridge"),
        (
            NoisyDiscriminant(),
            Problem(Logistic(), Bounds(1.0), 100, 3, geometry=L2Ball(1.0, 3)),
            PROMISE,
            "discriminant",
        ),
        (NoisyDiscriminant(sums_share=1.0), problem, PROMISE, "sums_share"),
        (NoisyDiscriminant(n_iterations=0), problem, PROMISE, "n_iterations"),
    ]:
        with pytest.raises(ValueError, match=words_):
            solver.plan(given, promise)


def test_directions_survive_sums_that_say_nothing():
    made = mechanism(10, 3, 2, noise=1.0)
    found = directions(made.read(np.zeros((2, 7))), 10)
    assert np.isfinite(np.vstack([found.matrix, found.means])).all()
    assert (found.gaps == 0).all()


def test_the_length_of_rows_shows_in_what_is_left_of_their_constants():
    for length in (1.0, 1.5, 10.0):
        left = math.sqrt((1 + CONSTANT**2) / (length**2 + CONSTANT**2))
        assert row_length(left, CONSTANT) == pytest.approx(length)
    assert row_length(1.0, 1.0) == 1.0


@pytest.mark.parametrize("length", [0.5, 1.0, 4.0])
def test_rows_longer_than_the_bound_get_thresholds_of_their_length(length):
    rng = np.random.default_rng(7)
    columns = rng.integers(0, 6, 8000)
    y = (rng.random(8000) < np.where(columns == 0, 0.9, 0.05)).astype(int)
    model = PrivateLogisticRegression(50.0, 1e-6, classes=[0, 1], solver="discriminant")
    model.fit(length * np.eye(6)[columns], y)
    assert model.predict(length * np.eye(6)).tolist() == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("left", [1.0, 0.5])
def test_where_rows_were_shrunk_the_mean_row_scores_nothing(left):
    """Its score would have to be taken off by the constant, which shrinks with the length of a row."""
    sums = NoisyClassSums(
        np.array([[40.0, 10.0, 8.0], [10.0, 5.0, 30.0]]),
        np.array([50.0, 15.0, 38.0]),
        left * np.array([60.0, 40.0]),
        left,
        1e-6,
        1e-6,
    )
    found = directions(sums, 100)
    mean = sums.features.sum(axis=0) / 100
    assert found.means == pytest.approx(mean @ found.matrix)
    assert (abs(found.means[0]) < 1e-12) == (left < 0.9)
    assert found.length == pytest.approx(row_length(left, CONSTANT))


@pytest.mark.parametrize("intercept", [False, True])
def test_no_row_is_too_large_to_be_scored(intercept):
    """Scores are made of rows before these are shrunk: entries of 2**299 times directions of 2**200."""
    X = np.full((11, 2), 1e-30)
    X[0] = 2.0**299, -(2.0**298)
    model = PrivateLogisticRegression(
        1.0, 1e-2, classes=[0, 1], solver="discriminant", feature_bound=1e-30, fit_intercept=intercept
    ).fit(X, np.arange(11) % 2)
    assert np.isfinite(model.coef_).all()


def test_rows_are_taken_for_shrunk_only_where_their_number_is_public():
    half = np.array([[30.0, 20.0, 0.0, 0.0, 25 * CONSTANT], [10.0, 40.0, 0.0, 0.0, 25 * CONSTANT]])
    for relation in RELATIONS:
        found = mechanism(100, 2, 2, relation, noise=1e-6).read(half)
        assert found.left == pytest.approx(0.5 if relation.size_is_public else 1.0)
        assert np.allclose(found.counts, 25)
        full = mechanism(100, 2, 2, relation, noise=10.0).read(half)  # noise may explain that half is missing
        assert full.left == 1.0
        assert np.allclose(full.counts, 50)
    nothing = mechanism(100, 2, 2, noise=1.0).read(0 * half)
    assert 0 < nothing.left < 0.2  # no less than noise could hide


def test_a_softmax_of_two_classes_is_a_logistic_model():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(3000, 3)) * 0.3
    y = (X[:, 0] > 0).astype(float)
    plan = NoisyDiscriminant().plan(Problem(Softmax(2), Bounds(1.0), 3000, 4), Guarantee(5.0, 1e-6))
    theta = plan.run([ArrayRecords(X, y, Bounds(1.0))], fresh_entropy()).theta[0]
    assert theta.shape == (4, 2)
    raw = X @ theta[:3] + theta[3]
    assert np.mean(raw.argmax(axis=1) == y) > 0.9


def test_entries_of_small_types_are_split_by_their_size():
    """The absolute value of the least int8 is itself: a sum of negative parts would run away from its bound."""
    X = sparse.csr_array(np.array([[-128, 0, 5]], dtype=np.int8))
    assert _split_sparse(X, 0.25).toarray().tolist() == [[0.0, 0.0, 5.0, 128.0, 0.0, 0.0, 0.25]]
