"""Values in files without a name: other processes read them in place while their maker lives, and nothing is left."""

import gc
import multiprocessing
import os
import signal

import numpy as np
import pytest

from discreet.losses import Logistic
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clusters import sheets
from discreet.records.clusters.sheets import Address, Gone

X = np.arange(12_000.0).reshape(4000, 3)
LABELS = np.where(X[:, 0] > 6000, 1.0, -1.0)
pytestmark = pytest.mark.skipif(not sheets.SHARED, reason="there is no /proc")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def make(pipe):
    """What a process that makes a sheet does; it lives until it is killed."""
    held = sheets.kept(("rows", X))
    pipe.send(held.addresses)
    pipe.recv()


@pytest.fixture
def maker():
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=make, args=(there,))
    process.start()
    yield process.pid, here.recv()
    process.kill()
    process.join()


def test_another_process_reads_in_place_until_the_maker_is_gone(maker):
    pid, addresses = maker
    entry = sheets.found(addresses)
    name, rows = entry.value
    assert name == "rows"
    assert np.array_equal(rows, X)
    assert rows.flags.aligned
    rows[0, 0] = 7.0  # is seen by nobody else
    assert sheets.found(addresses).value[1] is not rows
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert np.array_equal(rows[1:], X[1:])  # whoever has it mapped keeps it
    del entry, rows
    gc.collect()
    with pytest.raises(Gone):
        sheets.found(addresses)


def test_who_keeps_a_sheet_open_hands_it_on(maker):
    pid, addresses = maker
    entry = sheets.found(addresses, stay_open=True)
    assert entry.addresses[0].process == os.getpid()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert np.array_equal(sheets.found(entry.addresses).value[1], X)


def test_another_file_under_the_same_descriptor_is_no_sheet(tmp_path):
    entry = sheets.kept(X)
    (address,) = entry.addresses
    with pytest.raises(Gone):
        sheets.found([Address(b"0" * 16, address.process, address.descriptor)])
    with pytest.raises(Gone):
        sheets.found([Address(b"0" * 16, address.process, 10**6)])


def test_records_that_are_made_of_rows_share_their_sheet():
    rows = sheets.kept(X)
    made = sheets.kept(ArrayRecords(rows.value, LABELS, Bounds(10.0)), [rows])
    assert [sheet.name for sheet in made.sheets][1:] == [rows.sheets[0].name]
    assert len(made.sheets[0].map) < X.nbytes  # labels, norms and null rows
    again = sheets.kept(made.value.with_labels(-LABELS), [made])
    assert {sheet.name for sheet in made.sheets} == {sheet.name for sheet in again.sheets[1:]}
    theta = np.ones(4)
    expected = ArrayRecords(X, -LABELS, Bounds(10.0)).value_and_gradient(Logistic(), theta)[1]
    assert np.array_equal(again.value.value_and_gradient(Logistic(), theta)[1], expected)
    del rows, made
    gc.collect()
    assert np.array_equal(again.value.value_and_gradient(Logistic(), theta)[1], expected)


def test_a_value_without_arrays_and_one_with_empty_ones():
    assert sheets.kept({"a": 1}).value == {"a": 1}
    assert sheets.kept(np.empty((0, 3))).value.shape == (0, 3)
