"""Evaluation per person: k times the sensitivity of a row, and what it takes to ask for it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

from discreet import Guarantee, Ledger, PrivateLogisticRegression, SchemaEncoder, evaluate, insecure_noise
from discreet.audit.replay import replay
from discreet.evaluation.estimates import Noise, proportion
from discreet.evaluation.plans import CountPlan, SumPlan
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Neighboring
from discreet.tables.schema import Numeric, Schema, Target

HARDLY_PRIVATE = 1e5


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    ids = np.repeat([f"p{i}" for i in range(400)], rng.integers(1, 6, size=400))
    X = rng.normal(size=(len(ids), 2))
    y = np.where(X @ [1.0, -1.0] + rng.logistic(size=len(ids)) > 0, "yes", "no")
    return LogisticRegression().fit(X[:300], y[:300]), X, y, ids


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("kind", ["counts", "sums"])
def test_no_person_moves_more_than_declared_and_some_move_as_much(relation, delta, kind):
    rng, k = np.random.default_rng(1), 3
    guarantee = Guarantee(1.0, delta, relation, "user")
    recorder, worst = Recorder(), 0.0
    plan = (
        CountPlan(guarantee, ((2, 2, 2), (2, 2, 5)), 2, 0.1, k)
        if kind == "counts"
        else SumPlan(guarantee, 2, k)
    )

    def run(rows):
        if kind == "sums":
            y, errors, part = rows
            plan.run((y, errors, part.astype(np.int64)), fresh_entropy())
            return
        first, second, part, rest = rows
        cells = first.astype(np.int64), second.astype(np.int64)
        plan.run((cells, (part.astype(np.int64), rest)), fresh_entropy())

    def person(n, alike):
        """n rows; where they are alike, all of them are the same extreme row."""
        draws = 1 if alike else n
        part = rng.integers(2, size=draws)
        if kind == "sums":
            y = rng.choice([-1.0, 1.0], size=draws) if alike else rng.uniform(-1, 1, size=draws)
            rows = np.stack([y, 2 * y * rng.integers(2, size=draws), part])
        else:
            rest = rng.choice([-0.1, 0.1], size=draws) if alike else rng.uniform(-0.1, 0.1, size=draws)
            rows = np.stack([rng.integers(8, size=draws), rng.integers(20, size=draws), part, rest])
        return np.repeat(rows, n // draws, axis=1) if n else rows[:, :0]

    with insecure_noise(0), recorded_by(recorder):
        for turn in range(300):
            alike = turn % 2 == 0
            run(person(k, alike))
            nobody = relation is not Neighboring.REPLACE_ONE
            run(person(0 if nobody else rng.integers(k + 1) if not alike else k, alike))
            moved = recorder.calls[-2].value - recorder.calls[-1].value
            worst = max(worst, float(np.linalg.norm(moved.ravel(), plan.sensitivity.norm)))
    assert worst <= plan.sensitivity.value
    assert worst == pytest.approx(plan.sensitivity.value, rel=1e-4)


def test_at_most_so_many_rows_of_everybody_count(people):
    model, X, y, ids = people
    sizes = np.unique(ids, return_counts=True)[1]
    for k in (1, 2, 9):
        found = evaluate(model, X, y, epsilon=HARDLY_PRIVATE, delta=1e-3, groups=ids, max_rows_per_group=k)
        assert found.confusion.sum() == pytest.approx(np.minimum(sizes, k).sum(), abs=1)
        assert found.privacy_.guarantee.unit == "user"
        assert "the number of groups, 400, is public" in found.privacy_.assumptions[0]


def test_everything_of_a_person_may_change(people):
    model, X, y, ids = people
    mine = ids == ids[0]
    alone = ids != ids[0]
    # The neighbor has another number of rows, all of them elsewhere.
    other = (
        np.concatenate([np.tile([9.0, -9.0], (5, 1)), X[alone]]),
        np.concatenate([["no"] * 5, y[alone]]),
        np.concatenate([[ids[0]] * 5, ids[alone]]),
    )
    assert mine[0]

    def program(part):
        rows, labels, who = part
        found = evaluate(model, rows, labels, epsilon=1.0, delta=1e-3, groups=who, max_rows_per_group=2)
        return found.confusion, [one.value for one in found.metrics.values()]

    found = replay(program, (X, y, ids), other)
    assert found.passed, str(found)


@pytest.mark.parametrize("delta", [1e-3, 0.0])
def test_a_plan_with_the_noise_of_one_row_is_caught(people, monkeypatch, delta):
    model, X, y, ids = people
    X, y = X.copy(), y.copy()
    ids = np.array([str(place // 2) for place in range(len(X))])
    other, labels = X.copy(), y.copy()
    X[:2], other[:2] = [9.0, -9.0], [-9.0, 9.0]
    y[:2], labels[:2] = "yes", "no"

    def program(part):
        found = evaluate(model, *part, epsilon=1.0, delta=delta, groups=ids, max_rows_per_group=2)
        return found.confusion

    honest = replay(program, (X, y), (other, labels))
    assert honest.passed, str(honest)
    one_row = CountPlan.sensitivity.fget

    def forgetful(plan):
        return one_row(CountPlan(plan.guarantee, plan.shapes, plan.n_sums, plan.half_bin))

    monkeypatch.setattr(CountPlan, "sensitivity", property(forgetful))
    assert "distance" in replay(program, (X, y), (other, labels)).failed_checks


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one", "zero-out"])
def test_frames_dicts_and_regressors(people, relation):
    _, X, _, ids = people
    target = np.clip(X[:, 0] / 4, -1, 1)
    model = LinearRegression().fit(X, target)
    size = 2000 if relation == "add-remove-one" else None
    found = evaluate(
        model,
        pd.DataFrame(X).to_numpy(),
        target,
        epsilon=HARDLY_PRIVATE,
        delta=1e-3,
        target_bounds=(-1, 1),
        groups=ids,
        max_rows_per_group=3,
        neighboring=relation,
        n_samples=size,
    )
    error = np.mean((np.clip(model.predict(X), -1, 1) - target) ** 2)
    assert found["mean squared error"].value == pytest.approx(error, rel=0.5, abs=1e-3)


def test_rows_of_a_person_may_be_alike_and_intervals_allow_for_it():
    hits, misses = np.array([9000.0]), np.array([1000.0])
    alone = proportion(hits, misses, Noise(1.0, 0.95))
    alike = proportion(hits, misses, Noise(1.0, 0.95, rows=4))
    assert alike.upper - alike.lower == pytest.approx(2 * (alone.upper - alone.lower), rel=0.01)


def test_a_ledger_of_people_pays_for_people_only(people, tmp_path):
    model, X, y, ids = people
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-3, unit="user")
    with pytest.raises(Exception, match="Pass groups="):
        evaluate(model, X, y, ledger=ledger, delta=1e-6)
    evaluate(model, X, y, ledger=ledger, delta=1e-6, groups=ids, max_rows_per_group=1)
    (charge,) = ledger.history()
    assert charge.unit == "user"


def test_the_old_use_of_groups_is_refused_with_advice(people):
    model, X, y, ids = people
    with pytest.raises(ValueError, match="pass by="):
        evaluate(model, X, y, groups=np.where(X[:, 0] > 0, "a", "b"), group_values=["a", "b"])
    with pytest.raises(ValueError, match="max_rows_per_group"):
        evaluate(model, X, y, groups=ids)
    with pytest.raises(ValueError, match="pass groups="):
        evaluate(model, X, y, max_rows_per_group=2)


def test_a_model_of_people_is_not_evaluated_per_row(people, tmp_path):
    _, X, y, ids = people
    model = PrivateLogisticRegression(5.0, 1e-3, classes=["no", "yes"], max_rows_per_group=2)
    model.fit(X, y, groups=ids)
    ledger = Ledger(tmp_path / "budget", epsilon=9.0, delta=1e-2)
    with pytest.raises(ValueError, match="protects all rows of a person"):
        evaluate(model, X, y, ledger=ledger)
    assert not ledger.history()
    assert evaluate(model, X, y, groups=ids, max_rows_per_group=2).privacy_.guarantee.unit == "user"


def test_a_schema_with_a_group_column_is_not_evaluated_per_row(people):
    _, X, y, ids = people
    columns = {name: Numeric(-4, 4) for name in "ab"}
    schema = Schema(columns, Target("ill", classes=("no", "yes")), group="who")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "ill": y, "who": ids})
    model = PrivateLogisticRegression(5.0, 1e-3, classes=["no", "yes"], feature_bound=schema.feature_bound())
    encoder = SchemaEncoder(schema).fit(table)
    pipeline = make_pipeline(encoder, model.fit(np.array(encoder.transform(table)), y))
    with pytest.raises(ValueError, match="'who'"):
        evaluate(pipeline, table, y)
    found = evaluate(pipeline, table, y, groups=schema.groups(table), max_rows_per_group=2)
    assert found.privacy_.guarantee.unit == "user"
