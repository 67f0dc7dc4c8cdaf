"""AUC of several classes: exact without noise, weighted tables at their price, intervals that cover."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from discreet import Guarantee, evaluate, insecure_noise
from discreet.audit.replay import replay
from discreet.evaluation.estimates import Noise
from discreet.evaluation.evaluate import MOST_SCORED
from discreet.evaluation.plans import CountPlan
from discreet.evaluation.report import areas
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Neighboring

MEAN = "AUC (mean of classes)"


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    logits = X @ rng.normal(size=(3, 4)) + [0.5, 0.0, 0.0, -0.5] + rng.gumbel(size=(4000, 4))
    y = np.array(["a", "b", "c", "d"])[logits.argmax(axis=1)]
    return LogisticRegression().fit(X[:1000], y[:1000]), X[1000:], y[1000:]


def test_without_noise_they_are_the_usual_ones(fitted):
    model, X, y = fitted
    found = evaluate(model, X, y, epsilon=1e5, delta=0.5, bins=2000)
    chances = model.predict_proba(X)
    for k, label in enumerate(model.classes_):
        exact = roc_auc_score(y == label, chances[:, k])
        assert found[f"AUC of {label}"].value == pytest.approx(exact, abs=2e-3)
    macro = roc_auc_score(y, chances, multi_class="ovr", average="macro")
    assert found[MEAN].value == pytest.approx(macro, abs=2e-3)
    assert found.calibration == ()


def test_subgroups_have_them_too(fitted):
    model, X, y = fitted
    side = np.where(X[:, 0] > 0, "right", "left")
    found = evaluate(model, X, y, epsilon=1e5, delta=0.5, bins=500, by=side, by_values=["left", "right"])
    chances = model.predict_proba(X)
    for value in ("left", "right"):
        exact = roc_auc_score(y[side == value], chances[side == value], multi_class="ovr")
        assert found.by_group[value][MEAN].value == pytest.approx(exact, abs=5e-3)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.lemma("evaluation.md#lemma-1")
def test_weighted_tables_move_by_what_is_declared(relation, delta):
    plan = CountPlan(
        Guarantee(1.0, delta, relation), ((1, 3, 3), *[(1, 2, 5)] * 3), weights=(1.0, 0.5, 0.5, 0.5)
    )
    first = tuple(np.array([0]) for _ in range(4))
    changed = tuple(np.zeros(0, dtype=np.int64) for _ in range(4))
    if relation is Neighboring.REPLACE_ONE:
        changed = (np.array([8]), *[np.array([9])] * 3)
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        for cells in (first, changed):
            plan.run((cells, None), fresh_entropy())
    moved = recorder.calls[0].value - recorder.calls[1].value
    declared = plan.release.sensitivity
    assert np.linalg.norm(moved, declared.norm) == pytest.approx(declared.value, rel=1e-9)


def test_released_counts_are_those_of_the_records():
    plan = CountPlan(Guarantee(1e6, 0.4), ((1, 3, 3), (1, 2, 5)), weights=(1.0, 0.25))
    cells = np.repeat(np.arange(9), 7), np.repeat([0, 9], [40, 23])
    with insecure_noise(1):
        confusion, scores = plan.run((cells, None), fresh_entropy())
    assert np.allclose(confusion, 7, atol=0.1)
    assert scores[0, 0, 0] == pytest.approx(40, abs=0.2)
    assert scores[0, 1, 4] == pytest.approx(23, abs=0.2)


@pytest.mark.parametrize("classes", range(3, MOST_SCORED + 1))
def test_the_tables_of_scores_cost_about_as_much_as_one(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40 * classes, 2))
    y = np.arange(len(X)) % classes
    found = evaluate(LogisticRegression().fit(X, y), X, y, epsilon=1.0, delta=1e-5)
    alone = CountPlan(Guarantee(1.0, 1e-5), ((1, classes, classes),)).stddev
    assert 1.1 < found.privacy_.noise["noise stddev of a count"] / alone < 1.42
    assert MEAN in found.metrics


def test_many_classes_have_none():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(440, 2))
    y = np.arange(440) % (MOST_SCORED + 1)
    assert MEAN not in evaluate(LogisticRegression().fit(X, y), X, y, epsilon=1.0).metrics


def test_replay_on_neighbors_finds_nothing(fitted):
    model, X, y = fitted
    other, labels = X[:300].copy(), y[:300].copy()
    other[0], labels[0] = [9.0, -9.0, 9.0], "d" if y[0] != "d" else "a"

    def program(data):
        return evaluate(model, *data, epsilon=1.0)

    assert replay(program, (X[:300], y[:300]), (other, labels)).passed


def measured(rng, sizes, lift, bins, stddev):
    """Noisy tables of three classes whose own score is higher by ``lift``, and the AUC of each as it really is."""
    edges = np.linspace(0, 1, bins + 1)[1:-1]

    def binned(n, own):
        return np.bincount(np.digitize(rng.beta(2 + lift * own, 2, n), edges), minlength=bins)

    tables = []
    for k in range(3):
        rest = sum(binned(sizes[j], False) for j in range(3) if j != k)
        tables.append(np.stack([rest, binned(sizes[k], True)]) + stddev * rng.normal(size=(2, bins)))
    return tables


@pytest.mark.parametrize(
    ("sizes", "stddev"), [((900, 600, 300), 5.0), ((900, 200, 120), 8.0), ((500, 60, 50), 8.0)]
)
def test_intervals_of_the_mean_cover(sizes, stddev):
    rng, bins, lift = np.random.default_rng(5), 10, 1.0
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    own, rest = (
        np.bincount(np.digitize(rng.beta(2 + lift * k, 2, 10**6), edges), minlength=bins) / 10**6
        for k in (True, False)
    )
    truth = float(own @ (np.cumsum(rest) - rest / 2))
    given = hits = 0
    trials = 200
    for _ in range(trials):
        drawn = [rng.poisson(size) for size in sizes]
        found = areas(np.arange(3), Noise(stddev**2, 0.95), measured(rng, drawn, lift, bins, stddev))
        one = found[MEAN]
        covered = one.lower <= truth <= one.upper
        assert math.isnan(one.value) is any(math.isnan(found[f"AUC of {k}"].value) for k in range(3))
        if not math.isnan(one.value):
            given += 1
            hits += covered
    if given:
        assert hits >= 0.95 * given - 3.5 * math.sqrt(0.05 * 0.95 * given)
    assert given == trials or sizes[2] < 300
