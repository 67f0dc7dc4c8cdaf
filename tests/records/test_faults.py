"""What becomes of a fit when processes die: every partition counts once, or the fit ends in one message.

Processes are really killed. Tests that start a cluster more than once, or wait for workers to be started again, run by
night.
"""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.scale_model import counted, expected
from discreet import Ledger, PrivateLogisticRegression, insecure_noise
from discreet.records.bounds import Bounds
from discreet.records.clusters import dask, kept_rows, workers
from discreet.records.clusters.base import WorkersLost, checksum
from discreet.records.clusters.columns import Column, joined, small_labels
from discreet.records.clusters.crew import Crew
from discreet.records.clusters.dask import DaskRows
from discreet.records.clusters.kept_rows import unchanged
from discreet.records.clusters.workers import Cluster, SummedParts, Threads

N, P, PARTS = 2000, 3, 4
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, P))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
BOUNDS, THETA = Bounds(2.0), np.linspace(-1, 1, P + 1)


@pytest.fixture(autouse=True)
def compiled_at_all_sizes():
    """Which passes run is not what these tests are about: rows are few."""


def collection(rows=X):
    import dask.array as da

    return da.from_array(rows, chunks=(N // PARTS, P))


class Panic(BaseException):
    """No `Exception`, as the panics of libraries in Rust are not."""


def raises(part, error=ValueError):
    raise error(f"the private label {part.labels[0]}")


def failing(asked, *parts):
    raise ValueError(f"the private number {parts[0][0, 0]}")


def check_silent(caught):
    """The message is constant, and nothing that a worker said is behind it."""
    assert str(caught.value) == str(WorkersLost())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


# --- without a cluster ---


def test_what_a_partition_raises_is_not_repeated():
    records = DaskRows(collection()).records(Y, BOUNDS, None)
    for error in (ValueError, KeyError, MemoryError, RuntimeError, Panic):
        with pytest.raises(WorkersLost) as caught:
            records.sum_rows(raises, error)
        check_silent(caught)
    with pytest.raises(WorkersLost) as caught:
        SummedParts(Threads().kept(np.asarray, [X, X]), Threads()).total(failing, None)
    check_silent(caught)


class FakeClient:
    """A cluster whose workers are started again under another name at every look."""

    def __init__(self, *, dying, status="running", nobody=False):
        self._dying, self._status, self._nobody, self.looks = dying, status, nobody, 0

    def nthreads(self):
        return {"worker 0": 1}

    def scheduler_info(self, n_workers):
        assert n_workers == -1  # all of them
        self.looks += self._dying
        if self._nobody:
            return {"workers": {}}
        return {"workers": {f"worker {self.looks}": {"status": self._status}}}


def test_workers_that_keep_dying_end_the_wait():
    cluster = Cluster(FakeClient(dying=True))
    for _ in range(workers._MOST_LOST):
        cluster._check_workers()
    with pytest.raises(WorkersLost):
        cluster._check_workers()


@pytest.mark.parametrize("ending", [{"status": "paused"}, {"nobody": True}], ids=str)
def test_workers_without_memory_or_no_workers_end_the_wait_and_slow_ones_do_not(ending):
    stuck, slow = Cluster(FakeClient(dying=False, **ending)), Cluster(FakeClient(dying=False))
    for _ in range(workers._LONGEST_PAUSE):
        stuck._check_workers()
        slow._check_workers()
    slow._check_workers()
    with pytest.raises(WorkersLost):
        stuck._check_workers()


def test_what_dask_refuses_for_want_of_memory_ends_in_the_same_message(monkeypatch):
    class Refusing(FakeClient):
        def gather(self, futures):
            raise MemoryError("a task has 610.35 MiB worth of input dependencies")

    monkeypatch.setattr(Cluster, "_wait", lambda cluster, futures: None)
    with pytest.raises(WorkersLost) as caught:
        Cluster(Refusing(dying=False)).gathered([])
    check_silent(caught)


@pytest.mark.parametrize("change", ["cell", "order", "rows"])
def test_a_partition_that_changes_is_noticed(change):
    other = {"cell": X.copy(), "order": X[::-1].copy(), "rows": X[:-1].copy()}[change]
    other[0, 0] += 1e-9 if change == "cell" else 0.0
    assert checksum(X) == checksum(X.copy())
    assert checksum(other) != checksum(X)
    told = lambda rows: rows, BOUNDS, [None, None], []
    with pytest.raises(ValueError, match="other rows than before"):
        kept_rows._records(told, dask._matrix(other, np.float64), checksum(X))


def test_labels_travel_as_bytes_where_they_can():
    for labels in (np.array([1.0, -1.0]), np.array([0.0, 100.0]), np.array([127.0, -128.0])):
        assert small_labels(labels).nbytes == 2
        assert np.array_equal(small_labels(labels), labels)
    for labels in (np.array([0.5]), np.array([128.0]), np.array([1e300]), np.array([-129.0])):
        assert small_labels(labels) is labels


@pytest.mark.parametrize(
    ("size", "threads", "partitions", "passes"), [(2, 1, 8, 3), (2, 4, 8, 9), (5, 2, 40, 3), (1, 1, 1, 1)]
)
def test_messages_of_a_fit_are_those_of_the_formulas(size, threads, partitions, passes):
    """On a cluster that is simulated: the library's own code, with a client that counts."""
    found = counted(size, threads, partitions, passes)
    for what, count in expected(size, partitions, passes).items():
        assert found[what] == count


def test_neither_rows_nor_labels_come_to_the_driver():
    few, many = (counted(2, 1, 4, 3, height=height) for height in (10, 1000))
    assert few["bytes back"] <= many["bytes back"] <= few["bytes back"] + 200  # digits of sizes and checksums
    assert abs(few["bytes to workers"] - many["bytes to workers"]) <= 100  # digits of checksums


class NoRoom(Threads):
    """Workers too small to hold their partitions: every question is a task."""

    def holders(self, entries, numbers):
        return {}


class Forgetful(Threads):
    """Workers that are lost after every answer: all is made again, and asked as tasks."""

    def finished(self, work, worker):
        if isinstance(work, list):
            raise OSError
        return work


@pytest.mark.parametrize("kind", [NoRoom, Forgetful])
@pytest.mark.parametrize("solver", ["noisy-gd", "newton", "discriminant"])
def test_the_release_is_the_same_whoever_answers(kind, solver, monkeypatch):
    """Bit for bit: by those who hold partitions, or by tasks, with labels there and rows that count for nothing."""
    import dask.array as da

    rows, labels = X.copy(), (Y > 0).astype(int)
    rows[7], labels[1500] = np.nan, 5
    given = collection(rows), da.from_array(labels, chunks=N // PARTS)
    model = PrivateLogisticRegression(classes=[0, 1], delta=1e-6, solver=solver, bad_rows="null")
    with insecure_noise(3):
        wanted = model.fit(*given).coef_
    monkeypatch.setattr(dask, "workers", kind)
    with insecure_noise(3):
        assert np.array_equal(model.fit(*given).coef_, wanted)


def test_what_nobody_asks_for_again_is_forgotten():
    crew = Crew(Threads(), Threads().kept(np.asarray, [X, X]))
    (rows,) = crew.opened
    doubled = crew.kept(np.add, rows, rows)
    assert [np.array_equal(found, 2 * X) for found in crew.answers(np.asarray, doubled)] == [True, True]
    held = crew._members[0].holder._made
    assert held.keys() == {rows.number, doubled.number}
    del doubled
    crew.answers(np.shape, rows)
    assert held.keys() == {rows.number}


# --- labels that stay where they are ---


def kept_column(values, sizes=(700, 300, 1000)):
    threads = Threads()
    parts = np.split(values, np.cumsum(sizes)[:-1])
    return Column.kept_as(threads, sizes, threads.kept(np.asarray, parts))


def test_a_column_answers_as_an_array_does():
    values = RNG.integers(-1, 3, size=N)
    column = kept_column(values)
    assert len(column) == N
    assert column.shape == values.shape
    for of in (
        lambda y: np.where(y == 1, 1.0, -1.0),
        lambda y: np.clip((y - 0.5) / 2, -0.25, 0.25),
        lambda y: (y > 0).astype(np.int64),
        lambda y: ~np.isfinite(y) | (y < 0),
        lambda y: np.where(np.isfinite(y), y, 0.0) * (y == 2),
        np.flatnonzero,
        np.unique,
        lambda y: int(np.argmax(y == 2)),
        lambda y: int(np.argmin(y < 2)),
        lambda y: bool(np.any(y > 5)),
        lambda y: bool(np.all(y < 5)),
        lambda y: int((y < 0).sum()),
        lambda y: y[y < 0],
        lambda y: y[[3, 1999]],
        lambda y: np.add.reduce(y),
        lambda y: y + values,
    ):
        assert np.array_equal(np.asarray(of(column)), np.asarray(of(values)))
    assert isinstance(np.where(column == 1, 1.0, -1.0), Column)
    assert isinstance(np.clip(column, -1, 1), Column)


def test_a_label_that_changes_ends_the_fit():
    with pytest.raises(ValueError, match="other rows than before"):
        unchanged(dask._cells(np.array([0, 1, 1])), checksum(np.array([0, 1, 0])))
    for one, other in ([["a", None], ["a", "b"]], [["a", 1], ["a", "1"]]):
        assert checksum(np.array(one, dtype=object)) != checksum(np.array(other, dtype=object))
    assert joined([np.array([2**60]), np.array([np.nan])]).tolist()[0] == 2**60


# --- a driver that dies ---

DRIVER = """
    import os, signal, sys
    from discreet import PrivateLogisticRegression, on_progress

    def die(report):
        if report.phase == "run":
            print("charged", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    with on_progress(die):
        PrivateLogisticRegression(classes=[0, 1], delta=1e-6, ledger=sys.argv[1]).fit(sys.argv[2], target="y")
"""


def test_a_driver_that_dies_after_the_charge_leaves_the_charge_and_no_rows(tmp_path):
    (tmp_path / "temporary").mkdir()
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    pq.write_table(pa.table({"a": X[:, 0], "y": (Y > 0).astype(int)}), tmp_path / "rows.parquet")
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), tmp_path / "budget", tmp_path / "rows.parquet"],
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL
    assert run.stdout == b"charged\n"
    assert len(ledger.history()) == 1
    assert list((tmp_path / "temporary").iterdir()) == []


# --- a cluster that loses workers ---


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as local,
        distributed.Client(local),
    ):
        yield local


def dies_once(part, flag):
    """Kill the worker of the first who asks, in the middle of its task."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return np.array([part.n_samples])
    return os.kill(os.getpid(), signal.SIGKILL)


def dies(part):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.nightly
def test_a_worker_killed_in_its_task_counts_once_and_one_that_always_dies_ends_the_fit(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(workers, "_LONGEST_PAUSE", 10)
    records = DaskRows(collection()).records(Y, BOUNDS, None)
    assert records.sum_rows(dies_once, str(tmp_path / "flag")).tolist() == [N]
    assert (tmp_path / "flag").exists()
    with pytest.raises(WorkersLost) as caught:
        records.sum_rows(dies)
    check_silent(caught)


def drifting():
    """Other rows whenever it is computed."""
    return np.random.default_rng().normal(size=(N // PARTS, P))


@pytest.mark.nightly
def test_a_source_that_changes_ends_the_fit_after_the_charge(cluster, tmp_path):
    import dask.array as da
    from dask import delayed

    from discreet import on_progress

    blocks = [da.from_delayed(delayed(drifting, pure=False)(), (N // PARTS, P), float) for _ in range(PARTS)]
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)

    def kill(report):
        if report.phase == "run":
            for worker in list(cluster.workers.values()):
                os.kill(worker.pid, signal.SIGKILL)

    model = PrivateLogisticRegression(classes=[0, 1], delta=1e-6, solver="noisy-gd", ledger=ledger)
    with on_progress(kill), pytest.raises(WorkersLost) as caught:
        model.fit(da.concatenate(blocks), (Y > 0).astype(int))
    check_silent(caught)
    assert len(ledger.history()) == 1


def too_large():
    """A partition of 640 MB."""
    return np.zeros((2_000_000, 40))


@pytest.mark.nightly
def test_workers_that_are_too_small_for_a_partition_end_the_fit_before_the_charge(tmp_path):
    """Each is killed for its memory, started again, given the same partition, and killed again."""
    import dask.array as da
    from dask import delayed

    distributed = pytest.importorskip("distributed")
    rows = da.from_delayed(delayed(too_large, pure=False)(), (2_000_000, 40), float)
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)
    model = PrivateLogisticRegression(classes=[0, 1], delta=1e-8, solver="noisy-gd", ledger=ledger)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="450MB", dashboard_address=None, silence_logs=50
        ) as local,
        distributed.Client(local),
        pytest.raises(WorkersLost) as caught,
    ):
        model.fit(rows, da.zeros(2_000_000, chunks=2_000_000, dtype=int))
    check_silent(caught)
    assert ledger.history() == []
