"""Fits on Spark without Java: every partition counts once, however often its task runs, or the fit ends.

`test_spark` does the same with Spark itself, by night and where it is installed.
"""

import dask.array as da
import numpy as np
import pyarrow as pa
import pytest

from discreet import Ledger, PrivateLogisticRegression, PrivateRidge, Schema, Target, describe
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.records.batches import Numbers
from discreet.records.bounds import Bounds
from discreet.records.clusters import spark
from discreet.records.clusters.base import WorkersLost
from discreet.solvers import NoisyGradientDescent
from discreet.tables.domains import Numeric
from tests.records.pretended_spark import pretended

N, PARTS = 900, 3
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(N, 2))
Y = (X[:, 0] + RNG.normal(size=N) / 5 > 0).astype(np.int64)
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
CUTS = [TABLE.slice(start, N // PARTS) for start in range(0, N, N // PARTS)]
FAULTS = {
    "none": {},
    "tasks that run twice": {"twice": True},
    "tasks that fail at first": {"failing": 2},
    "nothing is kept": {"forgetful": True},
    "all of it": {"twice": True, "failing": 1, "forgetful": True},
}


@pytest.fixture(autouse=True)
def compiled_at_all_sizes():
    """Which passes run is not what these tests are about: rows are few."""


def model(solver=None, **parameters):
    told = {"epsilon": 2.0, "delta": 1e-6, "classes": [0, 1], **parameters}
    return PrivateLogisticRegression(solver=solver or NoisyGradientDescent(n_iterations=3), **told)


@pytest.mark.parametrize("solver", [None, "discriminant", "objective"], ids=str)
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_the_release_is_that_of_the_same_partitions_elsewhere(faults, solver, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    with pretended(**faults) as session, insecure_noise(5):
        one = model(solver, ledger=ledger).fit(session.frame(*CUTS), target="y")
        found = np.append(one.coef_, one.intercept_)
        assert session.tasks > PARTS
        assert spark.REPEATABLE in one.privacy_.assumptions
    with insecure_noise(5):
        other = model(solver).fit(da.from_array(X, chunks=(N // PARTS, 2)), Y)
    assert np.array_equal(found, np.append(other.coef_, other.intercept_))
    assert len(ledger.history()) == 1


def test_answers_that_come_twice_count_for_nothing():
    with pretended() as session, spark.SparkRows(session.frame(*CUTS), "y", bad_rows="error") as rows:
        records = rows.records(np.where(rows.labels > 0, 1.0, -1.0), Bounds(), None)
        session.doubled = True
        with pytest.raises(WorkersLost):
            records.value_and_gradient(model()._loss(None, 2)[0], np.zeros(3))


def test_a_partition_that_is_missing_ends_the_pass():
    with pretended() as session, spark.SparkRows(session.frame(*CUTS), "y", bad_rows="error") as rows:
        rows._crew._keys.append((0, 5))
        with pytest.raises(WorkersLost):
            rows._crew.answers(np.shape, [0] * (PARTS + 1))


@pytest.mark.parametrize("change", ["cell", "rows", "order"])
def test_a_source_that_changes_after_the_charge_ends_the_fit_in_one_message(change, tmp_path):
    """Nothing is kept, so every pass makes the partition again; it changes once it was charged for."""
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    places = {"cell": [1, *range(1, 300)], "rows": range(299), "order": [*range(1, 300), 0]}
    other = CUTS[0].take(list(places[change]))

    def drifting():
        return (other if ledger.history() else CUTS[0]).to_batches()

    with pretended(forgetful=True) as session, pytest.raises(WorkersLost) as caught:
        model(ledger=ledger).fit(session.frame(drifting, *CUTS[1:]), target="y")
    assert str(caught.value) == str(WorkersLost())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert len(ledger.history()) == 1


def test_a_question_that_fails_on_a_row_says_nothing():
    def fails(part):
        raise ValueError(f"somebody's row is {part.labels[0]}")

    with pretended() as session, spark.SparkRows(session.frame(*CUTS), "y", bad_rows="error") as rows:
        records = rows.records(np.where(rows.labels > 0, 1.0, -1.0), Bounds(), None)
        with pytest.raises(WorkersLost) as lost:
            records._parts.ask(fails)
    assert "somebody" not in str(lost.value)
    assert lost.value.__cause__ is None


def test_schemas_bad_rows_and_tables():
    texts = [None if place == 7 else str(cell) for place, cell in enumerate(X[:, 0])]
    texts[9] = "a word"
    table = pa.table({"a": texts, "b": X[:, 1], "t": X[:, 1]})
    cuts = [table.slice(start, N // PARTS) for start in range(0, N, N // PARTS)]
    schema = Schema({"a": Numeric(-1, 1), "b": Numeric(-1, 1)}, Target("t", bounds=(-1, 1)))
    ridge = PrivateRidge(target_bounds=(-1, 1), delta=1e-6, bad_rows="null", solver="statistics")
    with pretended() as session, insecure_noise(5):
        one = ridge.fit(session.frame(*cuts), schema=schema).coef_
    rows, targets = schema.encode(table, bad_rows="null")
    with insecure_noise(5):
        other = ridge.fit(da.from_array(rows, chunks=(N // PARTS, rows.shape[1])), targets).coef_
    assert np.array_equal(one, other)
    strict = Schema({"a": Numeric(-1, 1)}, Target("y", (0, 1)))
    with pretended() as session, insecure_noise(5):
        told = describe(session.frame(*CUTS), strict, delta=1e-6)["a"].mean.value
    with insecure_noise(5):
        assert told == describe(TABLE, strict, delta=1e-6)["a"].mean.value


@pytest.mark.parametrize("wide", [False, True], ids=["single precision", "double precision"])
@pytest.mark.parametrize("target", ["y", "x", "a`b"])
def test_features_in_one_column_of_vectors_are_the_same_rows(wide, target):
    """Bit for bit what the columns themselves give: of all types, with missing cells and names of any kind."""
    columns = {
        "flag": pa.array([True, None, False]),
        "small": pa.array([-7, 3, None], pa.int8()),
        "with ` and, ": pa.array([0.1, None, float("nan")], pa.float32()),
        **({"long": pa.array([2**53 + 1, -1, 0]), "double": pa.array([1e-300, None, 0.1])} if wide else {}),
        target: pa.array([1, 0, 1]),
    }
    with pretended() as session:
        table = spark.SparkTable(session.frame(pa.table(columns)))
        reading = Numbers.of(table, target, None, None, "null")
        packed, told = table.packed(reading)
        (plain,), (vectors,) = (list(frame._parts[0]()) for frame in (table.chosen(reading.columns), packed))
        (expected, labels), (found, others) = reading(plain), told(vectors)
    assert found.dtype == expected.dtype == (np.float64 if wide else np.float32)
    assert np.array_equal(found, expected, equal_nan=True)
    assert labels.equals(others)
    assert told.height == reading.height
