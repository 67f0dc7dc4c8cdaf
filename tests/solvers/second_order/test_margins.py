"""Histograms of margins: the declared sensitivity is attained, and factors are found where the noise allows it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax

from discreet import PrivateLogisticRegression, insecure_noise
from discreet.audit.replay import replay
from discreet.audit.trace import fitting, running
from discreet.losses import Logistic, Softmax
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import of_predictions
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.solvers.second_order import margins
from discreet.solvers.second_order.coordinates import NoisyMoments
from discreet.solvers.second_order.margins import (
    KNOTS,
    MARGIN_SIZES,
    MarginMechanism,
    calibrated_line,
    calibrated_scale,
    class_histogram,
    default_scale,
    leaning,
    mean_prediction,
    rare_lean,
)
from discreet.solvers.second_order.newton import NoisyNewton, count_weight

BOUNDS = Bounds(1.0, intercept=False)


def histogram(records, theta):
    return records.sum_rows(of_predictions, margins.histogram, theta)


def counted(row, label, theta):
    return histogram(ArrayRecords(np.atleast_2d(row), np.array([label]), BOUNDS), theta)


def mechanism(neighboring, theta_norm=1.0, n_samples=100):
    return MarginMechanism(n_samples, 2, 1, 1.0, theta_norm, neighboring, 2.0)


@pytest.mark.lemma("gradient-methods.md#theorem-11")
def test_the_sensitivity_is_attained_and_never_exceeded():
    theta = np.array([4.0, 0.0])
    at_knots = counted([0.5, 0.0], 1.0, theta) - counted([0.25, 0.0], -1.0, theta)
    assert np.linalg.norm(at_knots) == pytest.approx(np.sqrt(2))
    rng = np.random.default_rng(0)
    apart = [
        np.linalg.norm(
            counted(rng.normal(size=2), rng.choice([-1.0, 1.0]), theta)
            - counted(rng.normal(size=2), rng.choice([-1.0, 1.0]), theta)
        )
        for _ in range(300)
    ]
    for neighboring in Neighboring:
        declared = mechanism(neighboring).gaussian.sensitivity.value
        exact = np.sqrt(2) if neighboring is Neighboring.REPLACE_ONE else 1.0
        assert exact < declared < exact * (1 + 1e-9)
    assert max(apart) <= mechanism(Neighboring.REPLACE_ONE).gaussian.sensitivity.value


def test_rounding_grows_with_the_coefficients_and_the_records():
    small = mechanism(Neighboring.ZERO_OUT).gaussian.sensitivity.value
    assert mechanism(Neighboring.ZERO_OUT, theta_norm=1e9).gaussian.sensitivity.value > small + 1e-5
    assert mechanism(Neighboring.ZERO_OUT, n_samples=10**9).gaussian.sensitivity.value > small + 1e-5


def test_every_record_counts_once_and_null_records_do_not():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(900, 2)) * 30, rng.choice([-1.0, 1.0], size=900)
    null = np.arange(900) % 3 == 0
    theta = np.array([40.0, -3.0])  # margins far beyond the last knots too
    whole = ArrayRecords(X, y, BOUNDS, null_rows=null)
    counts = histogram(whole, theta)
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(600)
    halves = [
        ArrayRecords(X[part], y[part], BOUNDS, null_rows=null[part])
        for part in (slice(400), slice(400, None))
    ]
    parts = PartitionedRecords(LocalParts(halves), [400, 500], 2, False, BOUNDS, y)
    assert histogram(parts, theta) == pytest.approx(counts)


def test_a_softmax_of_two_classes_has_the_margins_of_a_logistic_model():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(200, 2)), rng.choice([-1.0, 1.0], size=200)
    theta = rng.normal(size=2) * 3
    two = np.stack([np.zeros(2), theta], axis=1)
    softmax = histogram(ArrayRecords(X, (y > 0).astype(float), BOUNDS), two)
    assert softmax == pytest.approx(histogram(ArrayRecords(X, y, BOUNDS), theta))


@pytest.mark.parametrize("too_large", [0.8, 1.0, 3.0])
def test_without_noise_the_factor_minimizes_the_log_loss(too_large):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(40_000, 2)) / np.sqrt(2)
    truth = np.array([5.0, -2.0])
    y = np.where(rng.random(40_000) < expit(X @ truth), 1.0, -1.0)
    counts = histogram(ArrayRecords(X, y, BOUNDS), too_large * truth)
    found = calibrated_scale(counts, 1.0, 0.6, 40_000)
    assert found == pytest.approx(1 / too_large, rel=0.08)


@pytest.mark.parametrize("n_classes", [3, 10, 60])
@pytest.mark.parametrize("size", [0.2, 1.0, 2.0])
def test_probabilities_of_many_classes_are_calibrated(n_classes, size):
    """The log loss after rescaling is close to the best that any factor reaches, however many classes there are."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(20_000, 8)) / np.sqrt(8)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    truth = 4.0 * rng.normal(size=(8, n_classes))
    y = (X @ truth + rng.gumbel(size=(20_000, n_classes))).argmax(axis=1).astype(float)
    theta = size * truth
    counts = histogram(ArrayRecords(X, y, BOUNDS), theta)
    raw = X @ theta
    found = calibrated_scale(counts, 1.0, 0.6, 20_000, n_classes, float(raw.var(axis=1).mean()))

    def loss(factor):
        chances = log_softmax(factor * raw, axis=1)
        return -chances[np.arange(len(y)), y.astype(int)].mean()

    best = min(loss(factor) for factor in np.geomspace(0.05, 20, 60))
    assert loss(found) < best + 0.1
    assert best < loss(0.03) - 0.2  # a factor that is too small is far worse


@pytest.mark.parametrize("n_outputs", [1, 3, 100])
@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("default", [0.2, 0.6, 1.0])
def test_without_evidence_the_factor_is_the_default(n_outputs, spread, default):
    """Pure noise, a thousand times the number of records, moves the factor by a step of the list at most."""
    noisy = 1e6 * np.random.default_rng(4).normal(size=len(KNOTS))
    found = calibrated_scale(noisy, 1e6, default, 1_000, n_outputs, spread)
    assert found == pytest.approx(default, rel=0.06)


def test_noise_at_knots_that_no_record_reaches_does_not_count():
    """Margins of about 1 that tell nothing: the factor falls although noise fills the far knots."""
    rng = np.random.default_rng(4)
    exact = 4_000 * np.exp(-np.square(KNOTS) / 2)
    exact *= 4_000 / exact.sum()
    found = [calibrated_scale(exact + 60 * rng.normal(size=len(KNOTS)), 60.0, 0.6, 4_000) for _ in range(200)]
    assert max(found) < 0.6
    assert np.median(found) < 0.25
    # Taken at face value, the same counts call for larger factors than the default in more than a tenth of the cases.
    values = log_expit(np.geomspace(0.03, 1.5, 80)[:, None] * KNOTS)
    wild = [np.argmax(values @ (exact + 60 * rng.normal(size=len(KNOTS)))) for _ in range(200)]
    assert np.mean(np.geomspace(0.03, 1.5, 80)[wild] > 0.6) > 0.1


def test_the_default_factor():
    assert default_scale(Logistic().capped(0.3), 1e9) == pytest.approx(0.6)
    assert default_scale(Logistic(), 1e9) == pytest.approx(1.0)
    assert default_scale(Logistic().capped(0.3), 60.0) == pytest.approx(
        0.3
    )  # as many records as blur it by half


def test_models_that_give_no_probabilities_are_not_charged_for_margins():
    plan = NoisyNewton().plan(Problem(Logistic(), BOUNDS, 5_000, 4), Guarantee(1.0, 1e-6))
    ridge = NoisyNewton().plan(Problem(Logistic(), BOUNDS, 5_000, 4, l2=0.1), Guarantee(1.0, 1e-6))
    assert [release.name for release in plan.releases][-1] == "margins"
    assert "margins" not in [release.name for release in ridge.releases]
    assert plan.shares.margins > 0 == ridge.shares.margins


@pytest.mark.parametrize("relation", [relation.value for relation in Neighboring])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_replayed_neighbors_are_as_close_as_declared(relation, n_classes):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 2)), rng.integers(n_classes, size=60)
    X[0], other, labels = [9.0, 0.0], X.copy(), y.copy()
    if relation == "replace-one":
        other[0], labels[0] = [-9.0, 0.0], (y[0] + 1) % n_classes
    elif relation == "zero-out":
        other[0] = np.nan
    else:
        other, labels = X[1:], y[1:]
    model = PrivateLogisticRegression(
        1.0, 1e-2, classes=list(range(n_classes)), neighboring=relation, bad_rows="null",
        n_samples=80 if relation == "add-remove-one" else None, solver=NoisyNewton(n_iterations=3),
    )  # fmt: skip
    found = replay(fitting(model), (X, y), (other, labels))
    assert found.passed, str(found)


@pytest.mark.parametrize("relation", ["zero-out", "add-remove-one"])
def test_a_histogram_that_forgets_the_sizes_of_classes_is_caught(relation, monkeypatch):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    kept = relation == "add-remove-one"
    other = (X[1:], y[1:]) if kept else (np.vstack([[np.nan] * 2, X[1:]]), y)
    model = PrivateLogisticRegression(
        1.0, 1e-2, classes=[0, 1], neighboring=relation, bad_rows="null", n_samples=80 if kept else None,
        solver=NoisyNewton(n_iterations=3),
    )  # fmt: skip
    assert replay(fitting(model), (X, y), other).passed

    genuine = MarginMechanism.gaussian.func

    def forgetful(mechanism):
        return replace(genuine(replace(mechanism, count_weight=0.0)), size=mechanism.size)

    monkeypatch.setattr(MarginMechanism, "gaussian", property(forgetful))
    assert replay(fitting(model), (X, y), other).failed_checks == {"distance"}


@pytest.mark.parametrize("relation", Neighboring)
def test_half_the_noise_on_classes_apart_breaks_the_bill(relation, monkeypatch):
    """The histogram alone, of all releases: its event costs too much for the promise."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 2)), rng.choice([-1.0, 1.0], size=60)
    problem = Problem(Logistic(), Bounds(1.0), 60, 3)
    solver, promise = NoisyNewton(n_iterations=3), Guarantee(1.0, 1e-2, relation)
    plan, genuine = solver.plan(problem, promise), MarginMechanism.gaussian.func
    assert plan.shares.count_weight > 0

    def halved(mechanism):
        return replace(genuine(mechanism), noise_multiplier=mechanism.noise_multiplier / 2)

    data = [ArrayRecords(X, y, problem.bounds)]
    assert replay(running(plan), data, data).passed
    monkeypatch.setattr(MarginMechanism, "gaussian", property(halved))
    assert replay(running(plan), data, data).failed_checks == {"price"}
    assert replay(running(solver.plan(problem, promise)), data, data).failed_checks == {"claim"}


def test_probabilities_are_calibrated_where_labels_are_noisy():
    """Labels that no model predicts in three cases of ten: the log loss is near that of the true probabilities."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(30_000, 4)) / 2
    p = expit(X @ [4.0, -2.0, 1.0, 0.0])
    y = (rng.random(30_000) < p).astype(int)
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver="newton").fit(X[:20_000], y[:20_000])
    z, held = model.decision_function(X[20_000:]), y[20_000:]
    loss = -np.mean(log_expit(np.where(held == 1, z, -z)))
    best = -np.mean(np.where(held == 1, np.log(p[20_000:]), np.log1p(-p[20_000:])))
    assert loss < best + 0.02


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "epsilon"), [(1_000, 28, 1.0), (4_000, 28, 0.3), (1_000, 5, 1.0)]
)
def test_columns_that_tell_nothing_leave_the_class_shares(n_rows, n_columns, epsilon):
    """Mean excess over the log loss of even odds. Caps below 1/2 and factors of noisy counts had 0.036 to 0.078."""
    excess = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n_rows, n_columns)) / np.sqrt(n_columns)
        fresh = rng.normal(size=(4_000, n_columns)) / np.sqrt(n_columns)
        y = rng.integers(2, size=n_rows)
        model = PrivateLogisticRegression(epsilon, 1e-6, classes=[0, 1]).fit(X, y)
        assert model.plan(n_rows, n_columns).reason.startswith("newton")
        z = model.decision_function(fresh)
        excess.append(float(-log_expit(z).mean() / 2 - log_expit(-z).mean() / 2 - np.log(2)))
    assert np.mean(excess) < 0.025


# -- two classes apart -------------------------------------------------------------------------------------


def by_class(row, label, theta, weight):
    records = ArrayRecords(np.atleast_2d(row), np.array([label]), BOUNDS)
    return records.sum_rows(of_predictions, partial(class_histogram, weight), theta)


@pytest.mark.parametrize("weight", [0.5, 1.0, 1.5])
@pytest.mark.lemma("gradient-methods.md#theorem-11")
def test_the_sensitivity_of_classes_apart_is_attained_and_never_exceeded(weight):
    theta, rng = np.array([4.0, 0.0]), np.random.default_rng(0)
    labels = rng.choice([-1.0, 1.0], size=(400, 2))
    rows = rng.normal(size=(400, 2, 2))
    rows[0], labels[0] = [[0.5, 0.0], [0.25, 0.0]], [1.0, -1.0]  # at two knots, in different classes
    found = [
        np.linalg.norm(by_class(one, a, theta, weight) - by_class(other, b, theta, weight))
        for (one, other), (a, b) in zip(rows, labels, strict=True)
    ]
    alone = [np.linalg.norm(by_class(row[0], 1.0, theta, weight)) for row in rows]
    for neighboring in Neighboring:
        declared = replace(mechanism(neighboring), count_weight=weight).gaussian
        exact = np.hypot(1.0, weight) * np.sqrt(neighboring.contributions)
        assert exact < declared.sensitivity.value < exact * (1 + 1e-9)
        assert declared.size == MARGIN_SIZES[True] == len(by_class(rows[0, 0], 1.0, theta, weight))
    assert max(found) == pytest.approx(np.hypot(1.0, weight) * np.sqrt(2))
    assert max(alone) == pytest.approx(np.hypot(1.0, weight))
    # without the sizes of the classes the bound would be too small
    assert max(found) > mechanism(Neighboring.REPLACE_ONE).gaussian.sensitivity.value * 1.1


def test_predictions_are_counted_in_their_own_class_and_null_records_are_not():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(900, 2)) * 30, rng.choice([-1.0, 1.0], size=900)
    null = np.arange(900) % 3 == 0
    theta = np.array([40.0, -3.0])
    whole = ArrayRecords(X, y, BOUNDS, null_rows=null)
    found = whole.sum_rows(of_predictions, partial(class_histogram, 1.5), theta)
    for k, of_class in enumerate((y < 0, y > 0)):
        size = np.count_nonzero(of_class & ~null)
        cells = found[k * len(KNOTS) : (k + 1) * len(KNOTS)]
        assert cells.sum() == pytest.approx(size)
        assert found[-2 + k] == 1.5 * size
        raw = whole.raw_predictions(theta)[of_class & ~null]
        assert cells @ KNOTS == pytest.approx(np.clip(raw, KNOTS[0], KNOTS[-1]).sum())


@pytest.mark.parametrize("default", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("share", [0.03, 0.3, 0.5])
def test_without_evidence_the_line_has_the_default_factor_and_the_share_of_the_class(default, share):
    """Noise that hides all cells, but not the sizes of the classes: the mean chance is the share."""
    n, stddev = 10_000, 1e7
    noisy = stddev * np.random.default_rng(4).normal(size=MARGIN_SIZES[True])
    weight = 1e6  # so that the sizes stand out
    noisy[-2:] = weight * n * np.array([1 - share, share])
    factor, constant = calibrated_line(noisy, stddev, weight, default, n, 0.25)
    assert factor == pytest.approx(default, rel=0.1)
    spread = 0.5 * np.random.default_rng(5).standard_t(5, size=100_000)
    assert expit(constant + factor * spread).mean() == pytest.approx(share, rel=0.15)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_without_noise_the_line_minimizes_the_log_loss(share):
    rng = np.random.default_rng(6)
    t = rng.normal(size=200_000) * 1.5
    t -= t.mean()
    offset = np.log(share / (1 - share))
    y = np.where(rng.random(len(t)) < expit(offset + 1.8 * t), 1.0, -1.0)
    exact = class_histogram(1.0, t, y, np.ones(len(t), dtype=bool))
    factor, constant = calibrated_line(exact, 1.0, 1.0, 0.5, len(t), 2.25)
    best = -log_expit(y * (offset + 1.8 * t)).mean()
    assert -log_expit(y * (constant + factor * t)).mean() < best + 0.003
    assert -log_expit(y * 0.5 * t).mean() > best + 0.03


def test_sizes_of_classes_may_add_up_to_fewer_records_than_declared():
    """A declared bound twice the number of records, which is private: shares are those of the released sizes."""
    noisy = np.zeros(MARGIN_SIZES[True])
    noisy[-2:] = 3_000.0, 1_000.0
    found = calibrated_line(noisy, 10.0, 1.0, 0.03, 8_000, 0.25)
    assert expit(found[1]) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("clipped", [False, True])
def test_the_mean_prediction_is_read_off_a_second_moment(clipped):
    rng = np.random.default_rng(7)
    v = np.hstack([rng.normal(size=(5_000, 4)) * 0.3 + 0.5, np.ones((5_000, 1))])
    if clipped:
        v /= (
            np.linalg.norm(v, axis=1).mean() * 2
        )  # all shrunk alike: the mean is that of rows with a constant of 1
    matrix = np.diag([1.0, 0.5, 0.7, 0.2, 0.1]) + 0.01
    reshaped = v @ matrix
    theta = rng.normal(size=5)
    mean, spread = mean_prediction(reshaped.T @ reshaped, matrix, theta)
    predicted = v @ theta / v[:, -1]
    assert mean == pytest.approx(predicted.mean())
    assert spread == pytest.approx(predicted.var())
    zero = mean_prediction(np.zeros((5, 5)), matrix, theta)
    assert zero[0] == theta[-1]
    singular = mean_prediction(reshaped.T @ reshaped, np.zeros((5, 5)), theta)
    assert np.isfinite(singular).all()


def moments(v, stddev=0.0):
    return NoisyMoments(v.T @ v, np.zeros(v.shape[1]), stddev, 0.0)


def test_only_a_rare_class_is_expected_away_from_the_mean_row():
    row = np.array([0.6, 0.8])
    assert not rare_lean(0.02, row).any()
    assert not rare_lean(0.5, row).any()
    assert rare_lean(0.001, row) == pytest.approx(-row / 0.07)
    assert rare_lean(0.999, row) == pytest.approx(row / 0.07)  # the first class is the rare one
    assert rare_lean(0.015, 3 * row) == pytest.approx(-0.5 * row / 0.07)
    assert not rare_lean(0.001, np.zeros(2)).any()


def test_leaning_moves_no_mean_and_less_where_noise_hides_it():
    rng = np.random.default_rng(7)
    v = np.hstack([rng.normal(size=(5_000, 4)) * 0.1 + 0.5, np.ones((5_000, 1))])
    look, theta = (v.T @ v, np.eye(5)), rng.normal(size=5)
    moved = leaning(theta, 0.001, 5_000, 1.0, moments(v), look) - theta
    assert (v @ moved).mean() == pytest.approx(0.0, abs=1e-9)
    assert np.corrcoef(v @ moved, v[:, :4].sum(axis=1))[0, 1] < -0.99
    assert leaning(theta, 0.3, 5_000, 1.0, moments(v), look) == pytest.approx(theta)
    noisy = leaning(theta, 0.001, 5_000, 1.0, moments(v, 5_000.0), look) - theta
    assert 0 < np.linalg.norm(noisy) < 0.02 * np.linalg.norm(moved)
    first = moments(v)  # a single look: its noise would be in both
    assert (leaning(theta, 0.001, 5_000, 1.0, first, (first.second, np.eye(5))) == theta).all()


@pytest.mark.parametrize("solver", ["newton", "discriminant"])
def test_a_handful_of_records_unlike_the_others_is_ranked_first(solver):
    """Ten records of 2,000 are in the rare class: noise hides their sum, and nothing but the mean row tells them."""
    rng = np.random.default_rng(0)
    common, rare = np.eye(20)[0], np.eye(20)[1]
    y = np.zeros(6_000, dtype=int)
    y[rng.choice(2_000, 10, replace=False)] = 1
    y[2_000:2_200] = 1
    X = np.abs(0.05 * rng.normal(size=(6_000, 20))) + np.where(
        y[:, None] == 1, 0.3 * common + 0.3 * rare, 0.8 * common
    )
    areas = []
    for seed in range(5):
        with insecure_noise(seed):
            model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver=solver).fit(
                X[:2_000], y[:2_000]
            )
        z, held = model.decision_function(X[2_000:]), y[2_000:]
        areas.append((z[held == 1][:, None] > z[held == 0]).mean())
    assert np.mean(areas) > 0.9


def test_sizes_of_classes_are_released_only_where_they_help():
    two = Problem(Logistic(), Bounds(1.0), 2_000, 5)
    found = [
        NoisyNewton().plan(replace(two, n_samples=n), Guarantee(1.0, 1e-6)).shares for n in (1_000, 10**6)
    ]
    assert found[0].count_weight > 0 == found[1].count_weight
    assert found[0].margins > found[1].margins
    for shares in found:
        assert sum(shares.moments) + shares.spectrum + shares.margins + shares.gradients == pytest.approx(1)
    assert count_weight(replace(two, loss=Softmax(3)), Guarantee(1.0, 1e-6), 0.05) == 0
    assert count_weight(replace(two, bounds=BOUNDS), Guarantee(1.0, 1e-6), 0.05) == 0


def test_a_rare_class_of_which_nothing_can_be_learned_keeps_its_share():
    """The mean excess over the log loss of the shares; one factor for all coefficients had 0.02 to 0.1 here."""
    excess = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = np.abs(rng.normal(size=(3_000, 10))) / np.sqrt(10)
        y = (rng.random(3_000) < 0.05).astype(int)
        with insecure_noise(seed):
            model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver="newton")
            model.fit(X[:1_000], y[:1_000])
        z, held = model.decision_function(X[1_000:]), y[1_000:]
        shares = -np.log(np.where(held == 1, held.mean(), 1 - held.mean())).mean()
        excess.append(float(-log_expit(np.where(held == 1, z, -z)).mean() - shares))
    assert np.mean(excess) < 0.015
