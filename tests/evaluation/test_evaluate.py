"""Private evaluation: exact without noise, stated sensitivities, one charge, intervals that cover."""

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix, r2_score, roc_auc_score

from benchmarks.coverage import evaluations
from discreet import Guarantee, Ledger, evaluate, insecure_noise
from discreet.audit.replay import replay
from discreet.evaluation.estimates import Noise
from discreet.evaluation.plans import TERMS, CountPlan, SumPlan
from discreet.evaluation.report import classifier_metrics
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Neighboring

HARDLY_PRIVATE = 1e5


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = np.where(X @ [1.0, -1.0] + rng.logistic(size=3000) > 0, "yes", "no")
    return LogisticRegression().fit(X[:1000], y[:1000]), X[1000:], y[1000:]


def test_without_noise_the_metrics_are_the_usual_ones(fitted):
    model, X, y = fitted
    found = evaluate(model, X, y, epsilon=HARDLY_PRIVATE, delta=0.5, bins=2000)
    assert found["accuracy"].value == pytest.approx(model.score(X, y), abs=1e-3)
    assert np.allclose(found.confusion, confusion_matrix(y, model.predict(X)), atol=0.5)
    exact = roc_auc_score(y == "yes", model.predict_proba(X)[:, 1])
    assert found["AUC"].value == pytest.approx(exact, abs=2e-3)
    gap = model.predict_proba(X)[:, 1].mean() - (y == "yes").mean()
    assert found["mean predicted - observed"].value == pytest.approx(gap, abs=2e-3)


def test_regression_without_noise():
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.4, 0.4, size=(4000, 2))
    y = X @ [1.0, -0.5] + rng.uniform(-0.2, 0.2, size=4000)
    model = LinearRegression().fit(X[:500], y[:500])
    # Sums of fourth powers decide the width of the interval and are small: it takes less noise to see them.
    found = evaluate(model, X, y, epsilon=1e9, delta=0.5, target_bounds=(-1, 1))
    assert found["R^2"].value == pytest.approx(r2_score(y, model.predict(X)), abs=1e-3)
    error = np.mean((y - model.predict(X)) ** 2)
    assert found["mean squared error"].value == pytest.approx(error, abs=1e-4)
    influence = _influence(y, model.predict(X))
    half = 1.96 * influence.std() / math.sqrt(4000)
    assert (found["R^2"].upper - found["R^2"].lower) / 2 == pytest.approx(half, rel=0.1)


def _influence(y, predicted):
    spread = np.var(y)
    lost = np.mean((y - predicted) ** 2) / spread
    return (lost * (y - y.mean()) ** 2 - (y - predicted) ** 2) / spread


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.lemma("evaluation.md#lemma-1")
def test_observed_sensitivity_is_the_declared_one(relation, delta):
    plan = CountPlan(Guarantee(1.0, delta, relation), ((2, 2, 2), (2, 2, 5)))
    first = (np.array([0, 3]), np.array([0, 7]))
    changed = tuple(part[1:] for part in first)
    if relation is Neighboring.REPLACE_ONE:
        changed = (np.array([7, 3]), np.array([19, 7]))
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        for cells in (first, changed):
            plan.run((cells, None), fresh_entropy())
    moved = recorder.calls[0].value - recorder.calls[1].value
    declared = plan.release.sensitivity
    assert np.linalg.norm(moved, declared.norm) == pytest.approx(declared.value, rel=1e-9)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_remainders_move_by_no_more_than_declared_and_by_that_much(relation, delta):
    half = 0.5 / 7
    plan = CountPlan(Guarantee(1.0, delta, relation), ((3, 2, 2), (3, 2, 7)), 3, half)
    one = (np.array([0]), np.array([0]))
    other = (np.array([11]), np.array([41]))
    group, recorder = np.array([0]), Recorder()
    with insecure_noise(0), recorded_by(recorder):
        plan.run((one, (group, np.array([-9.0]))), fresh_entropy())  # beyond half a bin: clipped
        if relation is Neighboring.REPLACE_ONE:
            plan.run((other, (group, np.array([half]))), fresh_entropy())
            plan.run((other, (group + 2, np.array([half]))), fresh_entropy())
        else:
            none = np.zeros(0, dtype=np.int64)
            plan.run(((none, none), (none, np.zeros(0))), fresh_entropy())
    moved = [recorder.calls[0].value - call.value for call in recorder.calls[1:]]
    norms = [np.linalg.norm(part.ravel(), plan.sensitivity.norm) for part in moved]
    assert max(norms) <= plan.sensitivity.value
    assert max(norms) == pytest.approx(plan.sensitivity.value, rel=1e-5)
    assert plan.size == 12 + 42 + 3


class Rare:
    """A calibrated model of a rare outcome: all its probabilities fall in the first bin."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])


@pytest.mark.parametrize("by_values", [None, ["low"]])
def test_mean_predicted_is_not_rounded_to_bins(by_values):
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 0.01, size=(50_000, 1))
    y = (rng.random(50_000) < X[:, 0]).astype(int)
    low = X[:, 0] < 0.005
    given = {"by": None if by_values is None else np.where(low, "low", "high")}
    found = evaluate(Rare(), X, y, epsilon=HARDLY_PRIVATE, by_values=by_values, **given)
    gap = found["mean predicted - observed"]
    assert gap.value == pytest.approx((X[:, 0] - y).mean(), abs=1e-5)
    assert gap.lower < 0 < gap.upper
    assert gap.upper - gap.lower < 0.005  # a bin is 0.05 wide
    if by_values is not None:
        part = found.by_group["low"]["mean predicted - observed"].value
        assert part == pytest.approx((X[low, 0] - y[low]).mean(), abs=1e-5)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("groups", [1, 3])
def test_sums_move_by_no_more_than_declared_and_by_that_much(relation, delta, groups):
    rng = np.random.default_rng(3)
    plan = SumPlan(Guarantee(1.0, delta, relation), groups)
    recorder, worst = Recorder(), 0.0
    with insecure_noise(0), recorded_by(recorder):
        for turn in range(400):
            y, prediction = rng.uniform(-1, 1, size=(2, 2))
            extreme = rng.random(size=(2, 2)) < 0.8
            y, prediction = (
                np.where(far, np.sign(x), x) for far, x in zip(extreme, (y, prediction), strict=True)
            )
            group = rng.integers(groups, size=2)
            keep = slice(0, 1)
            plan.run((y[keep], (y - prediction)[keep], group[keep]), fresh_entropy())
            null = relation is not Neighboring.REPLACE_ONE or turn % 2
            other = slice(0, 0) if null else slice(1, 2)
            plan.run((y[other], (y - prediction)[other], group[other]), fresh_entropy())
            moved = recorder.calls[-2].value - recorder.calls[-1].value
            worst = max(worst, float(np.linalg.norm(moved.ravel(), plan.sensitivity.norm)))
    assert (1 - 1e-5) * plan.sensitivity.value < worst <= plan.sensitivity.value
    assert len(TERMS) * groups == plan.size


def test_one_charge_for_all_metrics_and_subgroups(fitted, tmp_path):
    model, X, y = fitted
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-5)
    groups = np.where(X[:, 0] > 0, "a", "b")
    found = evaluate(
        model, X, y, epsilon=0.7, delta=1e-6, by=groups, by_values=["a", "b", "none"], ledger=ledger
    )
    (charge,) = ledger.history()
    assert charge.event == found.privacy_.event
    assert accountants.delta(charge.event, 0.7, ledger.neighboring) <= 1e-6
    assert set(found.by_group) == {"a", "b", "none"}
    parsed = json.loads(json.dumps(found.to_dict()))
    assert parsed["metrics"]["accuracy"]["value"] == found["accuracy"].value
    assert "group 'none'" in str(found)
    assert "confusion" in str(found)
    # Nobody is in the last subgroup, so its interval must not pretend to know.
    empty = found.by_group["none"]["recall of yes"]
    assert empty.upper - empty.lower > 0.5


def test_replay_on_neighbors_finds_nothing(fitted):
    model, X, y = fitted
    other_X, other_y = X[:50].copy(), y[:50].copy()
    other_X[0], other_y[0] = [9.0, -9.0], "no"

    def program(part):
        found = evaluate(model, *part, epsilon=1.0, delta=1e-3)
        return found.confusion, [one.value for one in found.metrics.values()]

    found = replay(program, (X[:50], y[:50]), (other_X, other_y))
    assert found.passed, str(found)


def test_bad_rows_count_for_nothing_or_are_refused(fitted, tmp_path):
    model, X, y = fitted
    broken, labels = X.copy(), y.astype(object)
    broken[:100], labels[100:150] = np.nan, "maybe"
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="NaN"):
        evaluate(model, broken, y, ledger=ledger)
    with pytest.raises(ValueError, match="maybe"):
        evaluate(model, X, labels, ledger=ledger)
    assert not ledger.history()
    found = evaluate(model, broken, labels, epsilon=HARDLY_PRIVATE, delta=0.5, bad_rows="null")
    assert found.confusion.sum() == pytest.approx(len(y) - 150, abs=2)


def test_misuse_is_refused(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match="by_values"):
        evaluate(model, X, y, by=y)
    with pytest.raises(ValueError, match="n_samples"):
        evaluate(model, X, y, neighboring="add-remove-one")
    with pytest.raises(ValueError, match="confidence"):
        evaluate(model, X, y, confidence=1.0)
    with pytest.raises(ValueError, match="target_bounds"):
        evaluate(LinearRegression().fit(X, X[:, 0]), X, X[:, 0])
    public = evaluate(model, X, y, neighboring="add-remove-one", n_samples=4000, delta=0.0)
    assert public.privacy_.delta == 0.0


@pytest.mark.nightly
def test_intervals_cover():
    # 200 repetitions of coverage at least 0.94 fall below 170 hits with a chance below 1e-6.
    for row in evaluations(200, 2000, 1.0, 1e-6):
        assert row.coverage >= 0.85, row


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.34, 0.33, 0.33)])
def test_the_majority_baseline_is_covered(shares):
    """Where classes are as frequent as each other, the largest of their noisy shares is too large."""
    rng, noise, hits = np.random.default_rng(0), Noise(100.0, 0.95), 0
    for _ in range(100):
        counts = np.repeat(rng.multinomial(2000, shares)[:, None], len(shares), axis=1) / len(shares)
        noisy = counts + 10 * rng.normal(size=counts.shape)
        found = classifier_metrics(np.arange(len(shares)), noise, 1, noisy)["majority baseline"]
        hits += found.lower <= max(shares) <= found.upper
        assert found.lower <= found.value <= found.upper
    assert hits >= 95 - 3.5 * math.sqrt(95 * 0.05)


def test_the_majority_baseline_of_a_clear_table():
    found = classifier_metrics(np.arange(2), Noise(1e-9, 0.95), 1, np.array([[700.0, 100.0], [100.0, 100.0]]))
    assert found["majority baseline"].value == pytest.approx(0.8)
    assert found["accuracy"].value == pytest.approx(0.8)
    assert math.isnan(
        classifier_metrics(np.arange(2), Noise(1e9, 0.95), 1, np.ones((2, 2)))["majority baseline"].value
    )
