"""Sums of wide rows: what a record can move, what is post-processing, twins, limits."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp

from discreet import PrivateLogisticRegression, PrivateSparseLogisticRegression, insecure_noise
from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.estimators.pipelines import SquareRootRows
from discreet.losses import Logistic, Softmax
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.class_sums import refocused
from discreet.solvers.class_sums.column_evidence import column_sizes, leans, water_filling
from discreet.solvers.class_sums.mechanism import (
    CONSTANT,
    capped_residuals,
    clipped_scores,
    focused_part,
    log_lengths,
    split_sums,
)
from discreet.solvers.class_sums.refocused import (
    CAP,
    RefocusedPlan,
    RefocusedSums,
    difference_weight,
    total_and_difference,
)

RELATIONS = list(Neighboring)
SECOND = "sums of the classes in weighted columns"


def problem_of(n=3000, p=5, loss=None, intercept=True):
    bounds = Bounds(1.0, intercept)
    return Problem(loss or Logistic(), bounds, n, bounds.n_features(p), sparse=True)


def plan_of(problem, relation=Neighboring.REPLACE_ONE, epsilon=20.0, **settings):
    return RefocusedSums(**settings).plan(problem, Guarantee(epsilon, 1e-6, relation))


def one_record(row, label, problem):
    return ArrayRecords(sp.csr_array(np.array([row])), [label], problem.bounds)


def texts(n=4000, p=400, seed=0, signed=False, n_classes=2):
    """Rows of 15 words of Zipf's law; some lean towards a class."""
    rng = np.random.default_rng(seed)
    law = 1 / (np.arange(p) + 5.0)
    words = np.searchsorted(np.cumsum(law / law.sum()), rng.random((n, 15))).clip(0, p - 1)
    X = np.zeros((n, p))
    np.add.at(X, (np.arange(n)[:, None], words), rng.choice([-1.0, 1.0], size=(n, 15)) if signed else 1.0)
    weights = rng.normal(size=(p, n_classes if n_classes > 2 else 1))
    raw = X @ weights
    y = raw.argmax(axis=1) if n_classes > 2 else (raw[:, 0] > np.median(raw)).astype(int)
    return SquareRootRows().fit_transform(sp.csr_array(X)), y


# -- rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_focused_rows_have_norm_one_and_are_their_own(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.5) * 10.0 ** rng.integers(-80, 80, size=(50, 1))
    X[3] = 0.0
    null = np.arange(50) == 5
    weights = np.array([1.0, 0.0, 3.0, 1e-3, 2.0, 0.5])
    bounds = Bounds(1.0, True)
    found = focused_part(ArrayRecords(make(X), np.ones(50), bounds, null), weights)
    rows = found.dense(slice(None)) * found.scales[:, None]
    expected = X * weights
    norms = np.linalg.norm(expected, axis=1)
    expected = expected / np.where(norms > 0, norms, 1.0)[:, None]
    expected[5] = 0.0
    assert np.allclose(rows, expected, atol=1e-12)
    assert np.linalg.norm(rows, axis=1).max() <= 1
    order = rng.permutation(50)[:31]
    part = focused_part(ArrayRecords(make(X[order]), np.ones(31), bounds, null[order]), weights)
    assert np.array_equal(part.dense(slice(None)) * part.scales[:, None], rows[order])


def test_null_records_add_nothing_to_any_sum():
    problem = problem_of(20)
    rng = np.random.default_rng(1)
    X, y = sp.random(20, 5, 0.5, "csr", rng=rng), rng.choice([-1.0, 1.0], size=20)
    null = np.arange(20) < 8
    all_rows = ArrayRecords(X, y, problem.bounds, null)
    rest = ArrayRecords(X[8:], y[8:], problem.bounds)
    weights, theta = rng.random(5), rng.normal(size=6)
    for question, arguments in (
        (log_lengths, (1.0,)),
        (clipped_scores, (rng.normal(size=(6, 2)), 3.0)),
        (capped_residuals, (weights, Logistic(), theta, CAP)),
    ):
        assert np.allclose(question(all_rows, *arguments), question(rest, *arguments), atol=1e-12)


# -- what a record can move ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("text.md#theorem-1")
def test_residual_sums_move_as_far_as_declared(relation):
    """Opposite rows that the model gets wrong; a twin that forgets the second record is caught."""
    problem = problem_of()
    plan = plan_of(problem, relation)
    assert plan.shares.residuals > 0
    theta = np.array([3.0, 0, 0, 0, 0, 0])
    first, other = one_record([1.0, 0, 0, 0, 0], -1.0, problem), one_record([-1.0, 0, 0, 0, 0], -1.0, problem)
    arguments = np.ones(5), Logistic(), theta, CAP
    change = capped_residuals(first, *arguments)
    if relation is Neighboring.REPLACE_ONE:
        other = one_record([1.0, 0, 0, 0, 0], 1.0, problem)
        theta[0] = 0.0
        change = change - capped_residuals(other, *arguments)
    declared = plan.weighted_sums("sums of residuals", CAP).sensitivity.value
    assert 0.95 <= np.linalg.norm(change) / declared <= 1
    assert np.linalg.norm(change) > plan.weighted_sums("sums of residuals", CAP / 2).sensitivity.value


def turned(record, weights):
    """The totals and differences that one record adds."""
    factors = np.outer(weights, np.ones(2))
    return split_sums(record, np.ones(5), factors, 0.0)[:, :-1].ravel()


@pytest.mark.parametrize("relation", [Neighboring.ADD_REMOVE_ONE, Neighboring.ZERO_OUT])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.6])
@pytest.mark.lemma("text.md#theorem-1")
def test_total_and_difference_move_by_one_record(relation, share):
    problem = problem_of()
    mechanism = plan_of(problem, relation).total_and_difference()
    difference = difference_weight(np.array([1 - share, share]))
    total = math.sqrt(1 - difference**2)
    assert 0.5 <= difference**2 <= 0.8 + 1e-12
    for sign, row in ((1.0, [0.3, -0.4, 0, 0, 0]), (-1.0, [0, 0, 5.0, 0, 0])):
        rows = one_record(row, sign, problem)
        moved = np.linalg.norm(turned(rows, (total, sign * difference)))
        assert 0.95 <= moved / mechanism.sensitivity.value <= 1
        assert np.linalg.norm(turned(rows, (total, 2 * sign * difference))) > mechanism.sensitivity.value


def test_under_replace_one_a_difference_would_move_further_than_the_sums_of_the_classes():
    """Equal rows of opposite labels and distant rows of one: more weight on the difference than 1/2 costs too much."""
    assert not total_and_difference(Guarantee(1.0, 1e-6), 2)
    problem = problem_of()
    first, other = (one_record(row, 1.0, problem) for row in ([1.0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0]))
    difference, total = math.sqrt(0.8), math.sqrt(0.2)
    moves = [
        np.linalg.norm(turned(first, (total, difference)) - turned(first, (total, -difference))),
        np.linalg.norm(turned(first, (total, difference)) - turned(other, (total, difference))),
    ]
    assert max(moves) > 1.7 > math.sqrt(2)
    for relation in RELATIONS[1:]:
        assert total_and_difference(Guarantee(1.0, 1e-6, relation), 2)
        assert not total_and_difference(Guarantee(1.0, 1e-6, relation), 3)
        mechanism = plan_of(problem, relation).total_and_difference()
        assert mechanism.event == plan_of(problem, relation).releases[2].event.event


@pytest.mark.parametrize("relation", [Neighboring.ADD_REMOVE_ONE, Neighboring.ZERO_OUT])
def test_half_the_noise_on_total_and_difference_breaks_the_bill(relation, monkeypatch):
    rng = np.random.default_rng(5)
    problem, promise = problem_of(60), Guarantee(20.0, 1e-2, relation)
    data = [ArrayRecords(sp.csr_array(rng.normal(size=(60, 5))), np.tile([1.0, -1.0], 30), problem.bounds)]
    plan, genuine = RefocusedSums().plan(problem, promise), RefocusedPlan.total_and_difference
    assert SECOND in [release.name for release in plan.releases]

    def halved(plan):
        made = genuine(plan)
        return dataclasses.replace(made, noise_multiplier=made.noise_multiplier / 2)

    assert replay(running(plan), data, data).passed
    monkeypatch.setattr(RefocusedPlan, "total_and_difference", halved)
    assert replay(running(plan), data, data).failed_checks == {"price"}
    assert replay(running(RefocusedSums().plan(problem, promise)), data, data).failed_checks == {"claim"}


@pytest.mark.parametrize("relation", RELATIONS)
def test_lengths_and_means_move_as_far_as_declared(relation):
    problem = problem_of()
    plan = plan_of(problem, relation)
    long, short = (
        one_record([2.0**20, 0, 0, 0, 0], 1.0, problem),
        one_record([2.0**-20, 0, 0, 0, 0], 1.0, problem),
    )
    replaced = relation is Neighboring.REPLACE_ONE
    change = log_lengths(long, 1.0) - (log_lengths(short, 1.0) if replaced else 0)
    assert 0.95 <= abs(change[0]) / plan.lengths().sensitivity.value <= 1
    matrix = 100.0 * np.eye(6, 2)
    up, down = one_record([1.0, 1, 0, 0, 0], 1.0, problem), one_record([-1.0, -1, 0, 0, 0], 1.0, problem)
    change = clipped_scores(up, matrix, refocused._LONGEST)
    if replaced:
        change = change - clipped_scores(down, matrix, refocused._LONGEST)
    declared = plan.means("means of leans and residuals", 2, 100.0).sensitivity.value
    assert 0.95 <= np.linalg.norm(change) / declared <= 1


def test_signed_rows_are_split_before_they_are_summed():
    """Opposite rows in one class: without the split the sums would move by 2, declared is sqrt(2)."""
    problem = problem_of()
    sums = plan_of(problem).sums("sums of the classes")
    opposite = [one_record([sign, 0, 0, 0, 0], 1.0, problem) for sign in (1.0, -1.0)]
    moved = [split_sums(rows, np.ones(5), np.eye(2), CONSTANT) for rows in opposite]
    distance = np.linalg.norm(moved[0] - moved[1])
    assert 0.95 <= distance / sums.gaussian.sensitivity.value <= 1
    whole = [focused_part(rows, np.ones(5)).weighted_sum([1.0]) for rows in opposite]
    assert np.linalg.norm(whole[0] - whole[1]) > 1.9


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sums_of_split_rows_are_those_of_each_row_by_itself(make, signed, n_classes):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0 if signed else 0.1, 1.0, (40, 6)) * (rng.random((40, 6)) < 0.6)
    codes, null = rng.integers(0, n_classes, 40), rng.random(40) < 0.2
    labels = np.where(codes == 1, 1.0, -1.0) if n_classes == 2 else codes
    weights, factors = rng.random(6), rng.normal(size=(2, n_classes))
    records = ArrayRecords(make(X), labels, Bounds(1.0, True), null)
    found = split_sums(records, weights, factors, CONSTANT)
    expected = np.zeros((2, 13))
    for row, code in zip(X[~null] * weights, codes[~null], strict=True):
        row = row / max(np.linalg.norm(row), 1e-300)
        one = np.concatenate([np.maximum(row, 0), np.maximum(-row, 0), [CONSTANT]])
        expected += np.outer(factors[:, code], one)
    assert np.allclose(found, expected, atol=1e-12)


def test_rounding_is_part_of_every_sensitivity():
    small, large = (plan_of(problem_of(n, 100_000), epsilon=1.0) for n in (10**3, 10**7))
    few, many = (plan.weighted_sums(SECOND, 1.0).sensitivity.value - 2 for plan in (small, large))
    assert 0 < few < 1e-6 < many
    assert large.sums(SECOND).gaussian.sensitivity.value > math.sqrt(2 * 17 / 16) * (1 + 1e-7)


# -- the bill ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [100, 3000, 10**6])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("text.md#theorem-2")
def test_the_bill_is_worth_the_promise(n, relation):
    plan = plan_of(problem_of(n), relation, epsilon=1.0)
    assert 0.99e-6 <= accountants.delta(plan.event, 1.0, relation) <= 1e-6
    twin = dataclasses.replace(plan, unit=plan.unit / 2)
    assert accountants.delta(twin.event, 1.0, relation) > 1e-4
    names = [line.name for line in plan.releases]
    assert ("sums of residuals" in names) == (n == 10**6)
    assert (SECOND in names) == (n > 100)


# -- post-processing -----------------------------------------------------------------------------------------------


def test_water_filling_is_the_optimum():
    rng = np.random.default_rng(2)
    gains, signal = rng.exponential(size=12), 30.0
    found = water_filling(gains, signal)

    def value(shares):
        return float(np.sum(gains * shares / (shares + 1 / (signal * gains))))

    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0
    for _ in range(300):
        other = np.abs(found + 0.05 * rng.normal(size=12))
        assert value(other / other.sum()) <= value(found) + 1e-12


def test_leans_are_as_good_as_if_the_prior_were_known():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=5000) * 0.1
    variance = rng.uniform(0.001, 0.1, size=5000)
    seen = truth + rng.normal(size=5000) * np.sqrt(variance)
    mean, square = leans(seen, variance, np.ones(5000))
    known = seen * 0.01 / (0.01 + variance)
    assert np.mean((mean - truth) ** 2) <= 1.05 * np.mean((known - truth) ** 2)
    assert np.mean((mean - truth) ** 2) < 0.8 * np.mean(truth**2)
    assert square.mean() == pytest.approx(0.01, rel=0.1)


def test_sizes_are_never_negative_and_better_than_what_was_seen():
    rng = np.random.default_rng(4)
    truth = 30.0 / (1 + np.arange(3000.0))
    seen = truth + rng.normal(size=3000)
    found = column_sizes(seen, np.ones(3000))
    assert found.min() > 0
    assert np.mean((found - truth) ** 2) < 0.2 * np.mean((np.maximum(seen, 0) - truth) ** 2)


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighboring", [relation.value for relation in RELATIONS])
def test_texts_are_learned(neighboring):
    X, y = texts()
    with insecure_noise(1):
        model = PrivateLogisticRegression(
            8.0, 1e-6, neighboring=neighboring, n_samples=4000, classes=[0, 1], solver="refocused-sums"
        ).fit(X[:3000], y[:3000])
    assert model.score(X[3000:], y[3000:]) > 0.75
    assert "residuals" in model.privacy_.mechanism


@pytest.mark.parametrize("options", [{"signed": True}, {"n_classes": 4}], ids=str)
def test_signed_rows_and_several_classes_are_learned(options):
    X, y = texts(**options)
    with insecure_noise(2):
        model = PrivateLogisticRegression(
            20.0, 1e-6, classes=sorted(set(y.tolist())), solver="refocused-sums"
        ).fit(X[:3000], y[:3000])
    guess = np.bincount(y).max() / len(y)
    assert model.score(X[3000:], y[3000:]) > guess + 0.15


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_more_columns_than_asked_for_are_used(n_classes):
    X, y = texts(n_classes=n_classes)
    classes = list(range(n_classes))
    with insecure_noise(3):
        model = PrivateSparseLogisticRegression(8.0, 1e-6, classes=classes, max_columns=12).fit(X, y)
    assert 0 < np.count_nonzero(np.any(model.coef_ != 0, axis=0)) <= 12
    assert model.score(X, y) > np.bincount(y).max() / len(y) + 0.05
    assert not hasattr(model, "certificate_")
    with pytest.raises(ValueError, match="max_columns"):
        PrivateSparseLogisticRegression(max_columns=5, solver="mirror-descent").plan(100, 10)


def test_where_nothing_is_seen_a_model_is_still_a_model():
    problem = problem_of(20, 50)
    X = sp.random(20, 50, 0.1, "csr", rng=np.random.default_rng(5))
    for intercept, loss, y in ((True, Logistic(), np.ones(20)), (False, Softmax(2), np.zeros(20))):
        one = dataclasses.replace(
            problem, loss=loss, bounds=Bounds(1.0, intercept), n_features=50 + int(intercept)
        )
        release = plan_of(one, epsilon=0.1).run([ArrayRecords(X, y, one.bounds)], fresh_entropy())
        assert release.theta.shape == (1, *one.shape)
        assert np.isfinite(release.theta).all()


# -- square roots --------------------------------------------------------------------------------------------------


def test_square_roots_of_rows():
    X = np.array([[4.0, -9.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    expected = np.array([[2.0, -3.0, 0.0], [0, 0, 0], [1.0, 0, 0]]) / np.array([[math.sqrt(13)], [1], [1]])
    for rows in (X, sp.csr_array(X), sp.csr_matrix(X)):
        found = SquareRootRows().fit_transform(rows)
        dense = found.toarray() if sp.issparse(found) else found
        assert np.allclose(dense, expected)
        assert sp.issparse(found) == sp.issparse(rows)
    assert X[0, 0] == 4.0  # what was given is as it was
