"""Noisy second moments, ridge from them, and the quasi-Newton method that uses them."""

import math

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.linear_model import LogisticRegression

from discreet import PrivateLinearSVC, PrivateLogisticRegression, insecure_noise
from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.losses import HuberHinge, Linear, Logistic, Squared
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Composed, flatten
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, summation_rounding
from discreet.solvers.second_order.coordinates import (
    MomentMechanism,
    mapped,
    moment_sensitivity,
    semicircle_excess,
)
from discreet.solvers.second_order.newton import NoisyNewton
from discreet.solvers.statistics import SufficientStatistics

BOUNDS = Bounds(1.0, intercept=False)
RELATIONS = list(Neighboring)


def first_moments(plan):
    return plan.moments(plan.shares.moments[0])


def largest_gradients(plan):
    return plan.gradients(plan.problem.bounds.feature_norm)


def statistic(v, weighted):
    """(v v^T, w y v) flattened with the Euclidean norm of the released vector."""
    rows, columns = np.triu_indices(len(v))
    outer = np.outer(v, v)[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))
    return np.concatenate([outer, weighted * v])


@pytest.mark.parametrize("target", [0.0, 0.5, 1.0, 1.4, 2.0, 5.0])
@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
@pytest.mark.lemma("gradient-methods.md#theorem-4")
def test_moment_sensitivity_is_the_largest_distance(target, relation):
    rng = np.random.default_rng(0)
    bound = moment_sensitivity(1.0, target, relation).value
    largest = 0.0
    for _ in range(4000):
        cosine = rng.uniform(-1, 1)
        norms = np.where(rng.random(2) < 0.5, 1.0, rng.uniform(0, 1, 2))
        one = norms[0] * np.array([1.0, 0.0])
        two = norms[1] * np.array([cosine, math.sqrt(1 - cosine**2)])
        first = statistic(one, rng.choice([-1, 1]) * target)
        second = statistic(two, rng.choice([-1, 1]) * target)
        if relation is not Neighboring.REPLACE_ONE:
            second = np.zeros_like(second)
        largest = max(largest, float(np.linalg.norm(first - second)))
    assert 0.995 * bound <= largest <= bound


def test_the_worst_pair_attains_the_sensitivity():
    for target in (0.3, 1.0, 1.3):
        cosine = target**2 / 2
        two = np.array([cosine, math.sqrt(1 - cosine**2)])
        distance = np.linalg.norm(statistic(np.array([1.0, 0.0]), target) - statistic(two, -target))
        bound = moment_sensitivity(1.0, target, Neighboring.REPLACE_ONE).value
        assert distance == pytest.approx(bound, rel=1e-9)
        # forgetting either the relation or the targets is caught by this pair
        assert distance > moment_sensitivity(1.0, target, Neighboring.ZERO_OUT).value
        assert distance > moment_sensitivity(1.0, 0.0, Neighboring.REPLACE_ONE).value


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("intercept", [True, False])
def test_second_moment_is_that_of_the_clipped_rows(make, intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    bounds = Bounds(1.2, intercept=intercept)
    rows = np.hstack([X, np.ones((300, 1))]) if intercept else X
    rows = rows * bounds.row_scales(X)[:, None]
    found = ArrayRecords(make(X), rng.normal(size=300), bounds).gram()
    assert np.abs(found - rows.T @ rows).max() < 1e-10


def test_noise_of_the_matrix_is_symmetric_with_the_planned_law():
    p = 60
    moments = MomentMechanism(10, p, 1.0, 1.0, 0.5, Neighboring.REPLACE_ONE, 3.0)
    null = ArrayRecords(np.zeros((10, p)), np.zeros(10), BOUNDS, np.ones(10, dtype=bool))
    noisy = moments.release(null, fresh_entropy())
    assert np.array_equal(noisy.second, noisy.second.T)
    stddev = moments.gaussian.stddev
    off = noisy.second[np.triu_indices(p, 1)]
    for draws, scale in (
        (off, stddev / math.sqrt(2)),
        (np.diag(noisy.second), stddev),
        (noisy.cross, stddev / 0.5),
    ):
        assert stats.kstest(draws, "norm", args=(0, scale)).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(off, "norm", args=(0, wrong * stddev / math.sqrt(2))).pvalue < 1e-6
    assert np.linalg.eigvalsh(noisy.second).max() == pytest.approx(noisy.matrix_noise, rel=0.3)


def test_products_with_targets_are_weighted_when_they_are_released_and_not_when_they_are_read():
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-0.5, 0.5, size=(40, 3)), rng.uniform(-1, 1, 40)
    mechanism = MomentMechanism(40, 3, 1.0, 1.0, 3.0, Neighboring.REPLACE_ONE, 1e-9)
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        noisy = mechanism.release(ArrayRecords(X, y, BOUNDS), fresh_entropy())
    assert recorder.calls[0].value[6:] == pytest.approx(3.0 * X.T @ y)
    assert noisy.cross == pytest.approx(X.T @ y, abs=1e-6)
    assert noisy.second == pytest.approx(X.T @ X, abs=1e-6)
    assert noisy.cross_stddev == pytest.approx(noisy.second_stddev / 3)


def test_too_many_columns_are_refused():
    with pytest.raises(ValueError, match="noisy-gd"):
        MomentMechanism(10, 5000, 1.0, 0.0, 1.0, Neighboring.ZERO_OUT, 1.0)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        (NoisyNewton(), Logistic()),
        (NoisyNewton(), HuberHinge()),
        (SufficientStatistics(), Squared(1.0, 1.0)),
    ],
    ids=["newton", "newton, Huber-SVM", "ridge"],
)
def test_calibration_uses_the_whole_budget_and_no_more(relation, solver, loss):
    promise = Guarantee(0.8, 1e-7, relation)
    plan = solver.plan(Problem(loss, BOUNDS, 5000, 8), promise)
    assert 0.99 * promise.delta <= accountants.delta(plan.event, 0.8, relation) <= promise.delta


def test_newton_splits_its_budget_in_squares():
    plan = NoisyNewton(n_iterations=10, moment_share=0.3).plan(
        Problem(Logistic(), BOUNDS, 5000, 8), Guarantee(1, 1e-6)
    )
    looks = [plan.moments(share, 0.5).noise_multiplier ** -2 for share in plan.shares.moments]
    assert looks[0] == pytest.approx(first_moments(plan).noise_multiplier ** -2)
    assert looks[0] / sum(looks) == pytest.approx(0.3)
    others = 10 * largest_gradients(plan).noise_multiplier ** -2 + plan.margins(1.0).noise_multiplier ** -2
    assert sum(looks) / (sum(looks) + others) == pytest.approx(0.3)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.lemma("gradient-methods.md#theorem-7")
def test_the_charge_is_what_the_mechanisms_of_a_run_say(ordered):
    """Looks at the moment, energies if there are any, and every gradient of all models, each with its own noise."""
    X, y = blobs(2, n=200)
    problem = Problem(HuberHinge(), BOUNDS, 200, 4, n_models=3)
    plan = NoisyNewton(n_iterations=5, ordered_columns=ordered).plan(problem, Guarantee(1.0, 1e-6))
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        plan.run([ArrayRecords(X, 2.0 * y - 1, BOUNDS)] * 3, fresh_entropy())
    assert len(recorder.calls) == 2 + 5
    made = Composed(tuple(call.event for call in recorder.calls))
    assert dict(flatten(plan.event)) == dict(flatten(made))


def test_the_gradients_of_several_models_move_together():
    one, three = (
        NoisyNewton(radius=2.0, cap=1.0).plan(
            Problem(Logistic(), BOUNDS, 500, 4, n_models=k), Guarantee(1, 1e-6)
        )
        for k in (1, 3)
    )
    together = largest_gradients(three).sensitivity.value
    assert together == pytest.approx(math.sqrt(3) * largest_gradients(one).sensitivity.value, rel=1e-12)


def blobs(n_classes, n=6000, p=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) / np.sqrt(p) * np.array([1.0, 1.0, 0.1, 0.1])
    return X, np.argmax(
        X @ (5 * rng.normal(size=(p, n_classes))) + 0.5 * rng.normal(size=(n, n_classes)), axis=1
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_it_finds_what_scikit_learn_finds(n_classes):
    X, y = blobs(n_classes)
    l2 = 0.01
    model = PrivateLogisticRegression(
        epsilon=1e9,
        feature_bound=5.0,
        l2=l2,
        classes=range(n_classes),
        fit_intercept=False,
        solver=NoisyNewton(n_iterations=300, cap=math.sqrt(2)),
    ).fit(X, y)
    reference = LogisticRegression(C=1 / (l2 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        X, y
    )
    assert np.abs(model.coef_ - reference.coef_).max() < 2e-3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_huber_svms_without_noise_are_those_of_objective_perturbation(n_classes):
    X, y = blobs(n_classes)
    found = [
        PrivateLinearSVC(1e9, feature_bound=5.0, l2=0.01, classes=range(n_classes), solver=solver)
        .fit(X, y)
        .decision_function(X)
        for solver in (NoisyNewton(n_iterations=300), "objective")
    ]
    assert np.abs(found[0] - found[1]).max() < 5e-3


@pytest.mark.parametrize("relation", RELATIONS)
def test_defaults_learn(relation):
    X, y = blobs(2, 20_000)
    model = PrivateLogisticRegression(
        epsilon=1.0, neighboring=relation, n_samples=20_000, classes=[0, 1], solver="newton"
    ).fit(X, y)
    assert model.score(X, y) > LogisticRegression(C=1e4).fit(X, y).score(X, y) - 0.03


def test_dense_and_sparse_agree():
    X, y = blobs(2, 1000)
    coefficients = []
    for rows in (X, sparse.csr_matrix(X)):
        with insecure_noise(1):
            coefficients.append(PrivateLogisticRegression(classes=[0, 1], solver="newton").fit(rows, y).coef_)
    assert np.abs(coefficients[0] - coefficients[1]).max() < 1e-4


def test_other_losses_are_refused():
    with pytest.raises(
        ValueError,
        match=r"solver 'newton' does not support the loss Linear.*needs a smooth loss of class labels",
    ):
        NoisyNewton().plan(Problem(Linear(), BOUNDS, 100, 3), Guarantee(1.0, 1e-6))
    with pytest.raises(ValueError, match="squared loss"):
        SufficientStatistics().plan(Problem(Logistic(), BOUNDS, 100, 3), Guarantee(1.0, 1e-6))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_mapped_records_are_clipped_images(make):
    rng = np.random.default_rng(0)
    X, matrix = rng.normal(size=(5000, 3)), rng.normal(size=(4, 4)) / 4
    bounds = Bounds(1.5)
    rows = np.hstack([X, np.ones((5000, 1))]) * bounds.row_scales(X)[:, None] @ matrix
    rows *= np.minimum(1.0, 0.4 / np.linalg.norm(rows, axis=1))[:, None]
    null = np.arange(5000) % 7 == 0
    rows[null] = 0.0
    images = mapped(ArrayRecords(make(X), np.ones(5000), bounds, null), matrix, 0.4)
    theta = rng.normal(size=4)
    assert np.abs(images.raw_predictions(theta) - rows @ theta).max() < 1e-12


def reshaping_of(X, epsilon, **options):
    n, p = X.shape
    plan = NoisyNewton(**options).plan(Problem(Logistic(), BOUNDS, n, p), Guarantee(epsilon, 1e-6))
    records = ArrayRecords(X, np.ones(n), BOUNDS)
    return plan, plan.reshaping(first_moments(plan).release(records, fresh_entropy()))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_a_later_look_takes_the_memory_of_the_earlier_one(make):
    """Bit for bit the same images, without a second copy; memory of another size is left alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 4))
    records = ArrayRecords(make(X), np.ones(9000), BOUNDS)
    one, other, narrow = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
    first = mapped(records, one, 0.4)
    fresh = mapped(records, other, 0.3).matrix
    again = mapped(records, other, 0.3, over=first)
    assert np.shares_memory(again.matrix, first.matrix)
    assert np.array_equal(again.matrix, fresh)
    assert np.array_equal(again.scales, mapped(records, other, 0.3).scales)
    assert not np.shares_memory(mapped(records, narrow, 0.3, over=again).matrix, again.matrix)
    assert np.array_equal(again.matrix, fresh)


def test_shared_directions_are_shrunk_and_the_norm_that_is_left_is_found():
    """Records with most of their length in one direction need far less noise without it."""
    rng = np.random.default_rng(0)
    X = np.hstack([np.full((40_000, 1), 0.95), 0.2 / np.sqrt(9) * rng.normal(size=(40_000, 9))])
    plan, shape = reshaping_of(X, 1.0, clip=1.0, moment_share=0.9)
    eigenvalues = np.linalg.eigvalsh(shape.matrix)
    assert 0 < eigenvalues[0] < 0.25
    assert eigenvalues[-1] <= 1 + 1e-12
    left = math.sqrt(np.mean(np.sum((X @ shape.matrix) ** 2, axis=1)))
    assert shape.norm == pytest.approx(left, rel=0.05)
    assert shape.norm < 0.3
    assert plan.gradients(shape.norm).stddev < 0.3 * largest_gradients(plan).stddev
    assert plan.gradients(shape.norm).noise_multiplier == largest_gradients(plan).noise_multiplier


def test_a_second_look_sees_what_the_first_could_not():
    """One direction holds nearly all, ten others stand out only once it is gone and records are short."""
    rng = np.random.default_rng(0)
    small = rng.normal(size=(20_000, 40)) * np.r_[np.full(10, 0.05), np.full(30, 0.01)]
    X = np.hstack([np.full((20_000, 1), 0.9), small])
    plan, first = reshaping_of(X, 1.0, clip=1.0)
    short = mapped(ArrayRecords(X, np.ones(20_000), BOUNDS), first.matrix, first.norm)
    again = plan.moments(plan.shares.moments[1], first.norm)
    assert again.gaussian.stddev < 0.1 * first_moments(plan).gaussian.stddev
    both = first.then(plan.reshaping(again.release(short, fresh_entropy()), first.norm))

    def shrunk(shape):
        """How much a row shrinks, on average, along the ten directions."""
        return np.linalg.norm(shape.matrix[1:11]) / math.sqrt(10)

    assert shrunk(first) > 0.95
    assert shrunk(both) < 0.8
    assert both.norm < 0.85 * first.norm


def test_rounding_of_reshaped_records_is_paid_for():
    plan = NoisyNewton().plan(Problem(Logistic(), BOUNDS, 10**6, 50), Guarantee(1.0, 1e-9))
    again = plan.moments(0.07, 0.3)
    without = MomentMechanism(10**6, 50, 0.3, 0.0, 1.0, Neighboring.REPLACE_ONE, again.noise_multiplier)
    paid = again.gaussian.sensitivity.value - without.gaussian.sensitivity.value
    assert paid == pytest.approx(4.02 * 10**6 * 0.3 * again.row_error + 2 * again.rounding, rel=1e-3)
    assert again.row_error > 0
    assert again.rounding > summation_rounding(10**6, 1.0)  # rows are summed at their full norm


def test_records_are_as_short_as_the_noise_supposes_once_they_are_reshaped():
    """Nearly all records point one way and are shrunk; the one that differs does not, and is clipped all the more."""
    X = np.vstack([[0.0, 1.0], np.tile([1.0, 0.0], (2000, 1))])
    y = np.resize([1.0, -1.0], 2001)
    plan = NoisyNewton(n_iterations=3).plan(Problem(HuberHinge(), BOUNDS, 2001, 2), Guarantee(50.0, 1e-2))
    found = replay(running(plan), [ArrayRecords(X, y, BOUNDS)], [ArrayRecords(X * [1.0, -1.0], y, BOUNDS)])
    assert found.passed, str(found)
    declared = [distance.declared for distance in found.distances if distance.where.startswith("call")]
    assert declared[-1] < 0.5 * largest_gradients(plan).sensitivity.value
    assert found.distances[len(declared) - 1].ratio > 0.9


@pytest.mark.parametrize("level", [-0.5, 0.0, 0.7, 0.99, 1.0, 1.5])
def test_what_a_level_cuts_off_the_noise_is_the_integral_over_its_law(level):
    x = np.linspace(-1, 1, 200_001)
    density = 2 / math.pi * np.sqrt(1 - x**2)
    assert semicircle_excess(level) == pytest.approx(
        np.trapezoid(np.maximum(0, x - level) * density, x), abs=1e-6
    )


def test_nothing_is_clipped_as_noise_vanishes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5)) * [0.3, 0.2, 0.1, 0.05, 0.02]
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    _, shape = reshaping_of(X, 1e7)
    assert np.linalg.norm(X @ shape.matrix, axis=1).max() <= shape.norm


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=["logistic", "Huber-SVM"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_replayed_gradients_stay_within_the_declared_sensitivity(relation, loss):
    """The same noise on two neighbors: the second gradient, at the same point, moves by the declared amount at most."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(300, 3)) * 0.3 + 0.5, [[9.0, -9.0, 9.0]]])
    y = np.append(rng.choice([-1.0, 1.0], 300), 1.0)
    plan = NoisyNewton().plan(Problem(loss, BOUNDS, 301, 3), Guarantee(1.0, 1e-6, relation))
    first = ArrayRecords(X, y, BOUNDS)
    shape = plan.reshaping(first_moments(plan).release(first, fresh_entropy()))
    exchanged, others = X.copy(), y.copy()
    exchanged[-1], others[-1] = -X[-1], 1.0
    null = np.arange(301) == 300
    second = (
        ArrayRecords(exchanged, others, BOUNDS)
        if relation is Neighboring.REPLACE_ONE
        else ArrayRecords(X, y, BOUNDS, null)
    )
    bound = plan.gradients(shape.norm).sensitivity.value
    largest = 0.0
    for _ in range(50):
        theta = rng.normal(size=3) * rng.choice([0.0, 1.0, 10.0])
        sums = [
            mapped(part, shape.matrix, shape.norm).value_and_gradient(plan.field, theta)[1]
            for part in (first, second)
        ]
        largest = max(largest, float(np.linalg.norm(sums[0] - sums[1])))
    assert largest <= bound
    assert largest > 0.4 * bound  # not idle: a bound for half the norm would fail


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("norm", [2.0**-100, 1.0, 2.0**100])
def test_second_moments_of_the_largest_rows_keep_their_sensitivity(make, norm):
    """The square of a row scale must not be so small that it rounds up: of rows near 2**537 it would be doubled."""
    for exponent in (*range(250, 300, 7), 299):
        rows = np.zeros((2, 2))
        rows[0, 0], rows[1, 1] = 1.41 * 2.0**exponent, 1.41 * 2.0**exponent
        first, second = (ArrayRecords(make(rows[[k]]), [1.0], Bounds(norm, intercept=False)) for k in (0, 1))
        moved = np.linalg.norm(first.gram() - second.gram()) / norm**2
        assert moved <= moment_sensitivity(1.0, 0.0, Neighboring.REPLACE_ONE).value * (1 + 1e-12)
        assert moved == pytest.approx(math.sqrt(2), rel=1e-9)
    beyond = np.array([[2.0**301, 0.0], [1.0, 0.0]])
    assert Bounds(norm, intercept=False).valid_rows(make(beyond)).tolist() == [False, True]


@pytest.mark.parametrize("bound", [1e-3, 1e-5])
def test_short_rows_need_long_steps(bound):
    """Rates grow like one over the squared bound; none is too long once the charge is paid."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)) * [1.0, 0.01, 0.01, 0.01]
    X *= bound / np.linalg.norm(X, axis=1, keepdims=True)
    y = (X[:, 0] > 0).astype(int)
    model = PrivateLogisticRegression(
        1.0, 1e-6, classes=[0, 1], feature_bound=bound, fit_intercept=False, solver="newton"
    )
    assert model.fit(X, y).score(X, y) > 0.95
