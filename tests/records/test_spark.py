"""Fits on Spark, in local mode with two processes: sums are those of the same partitions elsewhere, whatever dies.

A session takes half a minute to start, so these tests run by night, where Java and PySpark are installed.
"""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from functools import partial

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet import (
    Categorical,
    Ledger,
    Numeric,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    Target,
    describe,
)
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.records.bounds import Bounds
from discreet.records.clusters import spark
from discreet.records.clusters.base import WorkersLost
from discreet.solvers import NoisyGradientDescent
from tests.records.one_table import ESTIMATORS, MODEL, NUMBERS, release, table_for

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore"),
]

N, PARTS = 2000, 2
COLUMNS = ["sin(id) AS a", "cast(cos(3 * id) AS float) AS b", "cast(sin(id) + cos(7 * id) > 0 AS int) AS y"]


@pytest.fixture(autouse=True)
def compiled_at_all_sizes():
    """Which passes run is not what these tests are about: rows are few."""


@pytest.fixture(scope="module")
def session():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2,4]").config(map=settings)
    started = builder.getOrCreate()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def frame(session):
    return session.range(0, N, 1, PARTS).selectExpr(*COLUMNS)


@pytest.fixture(scope="module")
def arrays(frame):
    table = frame.toArrow()
    X = np.column_stack([table.column(name).to_numpy() for name in "ab"]).astype(np.float64)
    return X, table.column("y").to_numpy()


@pytest.mark.parametrize("solver", [NoisyGradientDescent(n_iterations=3), "discriminant"], ids=str)
def test_spark_and_dask_release_the_same_from_the_same_partitions(solver, frame, arrays):
    model = PrivateLogisticRegression(epsilon=2.0, delta=1e-6, classes=[0, 1], solver=solver)
    with insecure_noise(5):
        one = model.fit(frame, target="y")
        found = [one.coef_, one.intercept_]
        assert spark.REPEATABLE in one.privacy_.assumptions
    with insecure_noise(5):
        other = model.fit(da.from_array(arrays[0], chunks=(N // PARTS, 2)), arrays[1])
    assert np.array_equal(found[0], other.coef_)
    assert np.array_equal(found[1], other.intercept_)


def test_raw_cells_bad_rows_and_targets(session):
    raw = session.range(0, N, 1, PARTS).selectExpr(
        "CASE WHEN id = 7 THEN 'word' ELSE cast(sin(id) AS string) END AS a",
        "CASE WHEN id % 3 = 0 THEN 'north' ELSE 'south' END AS ward",
        "CASE WHEN id = 9 THEN NULL ELSE cos(id) END AS y",
    )
    schema = Schema(
        {"a": Numeric(-1, 1), "ward": Categorical(("north", "south"))}, Target("y", bounds=(-1, 1))
    )
    model = PrivateRidge(target_bounds=(-1, 1), delta=1e-6, bad_rows="null", solver="statistics")
    with insecure_noise(5):
        one = model.fit(raw, schema=schema).coef_
    rows, targets = schema.encode(raw.toArrow(), bad_rows="null")
    with insecure_noise(5):
        other = model.fit(da.from_array(rows, chunks=(N // PARTS, rows.shape[1])), targets).coef_
    assert np.array_equal(one, other)
    with pytest.raises(
        Exception, match="a"
    ):  # before any charge the holder of the data is told what is wrong
        PrivateRidge(target_bounds=(-1, 1), delta=1e-6).fit(raw, schema=schema)


def test_tables_of_spark_come_in_batches_where_rows_are_needed(frame, arrays):
    read = pa.Table.from_batches(spark.SparkTable(frame).batches(["a", "y"]))
    assert np.array_equal(read.column("a").to_numpy(), arrays[0][:, 0])
    schema = Schema({"a": Numeric(-1, 1)}, Target("y", (0, 1)))
    with insecure_noise(5):
        one = describe(frame, schema, delta=1e-6)["a"].mean.value
    with insecure_noise(5):
        assert one == describe(frame.toArrow(), schema, delta=1e-6)["a"].mean.value


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_releases_from_spark_what_it_does_from_the_table(estimator, session, tmp_path):
    """Bit for bit, from one partition."""
    table = table_for(estimator)
    pq.write_table(table, tmp_path / "table.parquet")
    model = MODEL.fit(NUMBERS, target="y") if estimator == "evaluation" else None
    there = session.read.parquet(str(tmp_path / "table.parquet")).coalesce(1)
    with insecure_noise(7):
        expected, _ = release(estimator, tmp_path / "table.parquet", model)
    with insecure_noise(7):
        found, privacy = release(estimator, there, model)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)
    assert spark.REPEATABLE in privacy.assumptions


def _dies_once(part, flag):
    """Kill the process of the first who asks, in the middle of its task."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return part.n_samples
    return os.kill(os.getpid(), signal.SIGKILL)


def _fails(part):
    raise ValueError(f"somebody's row is {part.labels[0]}")


def test_a_killed_process_counts_once_and_a_failing_one_says_nothing(frame, arrays, tmp_path):
    with spark.SparkRows(frame, "y", bad_rows="error") as rows:
        records = rows.records(np.where(rows.labels > 0, 1.0, -1.0), Bounds(), None)
        assert records._parts.ask(_dies_once, str(tmp_path / "flag")) == [N // PARTS] * PARTS
        assert (tmp_path / "flag").exists()
        with pytest.raises(WorkersLost) as lost:
            records._parts.ask(_fails)
        assert "somebody" not in str(lost.value)
        assert lost.value.__cause__ is None
        assert lost.value.__suppress_context__


def _fails_once(part, flag):
    """Raise for the first who asks, by a line or in a task."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return part.n_samples
    raise ValueError("somebody's row")


def test_a_partition_that_fails_is_retried_and_counts_once(frame, tmp_path):
    with spark.SparkRows(frame, "y", bad_rows="error") as rows:
        records = rows.records(np.where(rows.labels > 0, 1.0, -1.0), Bounds(), None)
        for number in range(3):  # of which the first may come before the lines are open
            assert records._parts.ask(_fails_once, str(tmp_path / f"{number}")) == [N // PARTS] * PARTS


def test_questions_come_by_lines_and_spark_is_kept_awake(frame, monkeypatch):
    jobs = []
    honest = spark.SparkCrew._asked
    monkeypatch.setattr(spark.SparkCrew, "_asked", lambda *told: jobs.append(1) or honest(*told))
    with spark.SparkRows(frame, "y", bad_rows="error") as rows:
        records = rows.records(np.where(rows.labels > 0, 1.0, -1.0), Bounds(), None)
        sizes = [N // PARTS] * PARTS
        while len(rows._crew._lines._open) < len(set(rows._crew._processes.values())):
            assert records._parts.ask(_size) == sizes
        jobs.clear()
        monkeypatch.setattr(spark, "_AWAKE", 0.0)
        assert [records._parts.ask(_size) for _ in range(5)] == [sizes] * 5
        assert jobs == []
        context, name = rows._crew._context, rows._crew._name
        known = len(context.statusTracker().getJobIdsForGroup())
    assert len(context.statusTracker().getJobIdsForGroup()) == known
    for _ in range(3):  # whichever processes do these tasks
        assert context.parallelize(range(8), 8).mapPartitions(partial(_holds, name)).collect() == [False] * 8


def _size(part):
    return part.n_samples


def _holds(name, rows):
    return [bool(spark._held.get(name)) for _ in rows]


DRIVER = """
    import os, signal, sys
    from pyspark.sql import SparkSession
    from discreet import PrivateLogisticRegression, on_progress

    def die(report):
        if report.phase == "run":
            print("charged", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    session = SparkSession.builder.master("local[2]").config(map={
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    }).getOrCreate()
    frame = session.range(0, 2000, 1, 2).selectExpr("sin(id) AS a", "cast(sin(id) > 0 AS int) AS y")
    with on_progress(die):
        PrivateLogisticRegression(classes=[0, 1], delta=1e-6, ledger=sys.argv[1]).fit(frame, target="y")
"""


def test_a_driver_that_dies_after_the_charge_leaves_the_charge_and_no_rows(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    (tmp_path / "local").mkdir()
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), tmp_path / "budget"],
        env=os.environ | {"SPARK_LOCAL_DIRS": str(tmp_path / "local")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL
    assert run.stdout.endswith(b"charged\n")
    assert len(ledger.history()) == 1
    assert list((tmp_path / "local").rglob("discreet-*")) == []
