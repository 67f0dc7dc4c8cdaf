"""Nobody's look at a ledger drops the locks under which another thread charges it."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discreet import _files, card
from discreet._files import check_writable, reserved, write_atomically
from discreet.privacy.events import Pure
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError
from discreet.privacy.ledger.sqlite import Database

TRY_TO_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    print("locked")
else:
    print("free")
"""


def from_another_process(path: Path) -> str:
    """Whether another process could begin to write now."""
    return subprocess.run(
        [sys.executable, "-c", TRY_TO_LOCK, str(path)], capture_output=True, text=True, check=True
    ).stdout.strip()


def reserve(path: Path) -> None:
    with reserved(path):
        pass


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX systems")
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    "look",
    [
        lambda path: write_atomically(path, b"new"),
        lambda path: check_writable(path, 10),
        reserve,
        lambda path: card.read(path),
    ],
    ids=["write", "check", "reserve", "read"],
)
def test_a_refused_look_keeps_the_lock_of_another_thread(
    look: Callable[[Path], Any], linked: bool, tmp_path: Path
) -> None:
    path, name = tmp_path / "budget.ledger", tmp_path / "name"
    ledger = Ledger(path, 1.0, 0.0)
    os.link(path, name)
    refused = []

    def insist() -> None:
        try:
            look(name if linked else path)
        except (FileExistsError, card.CardError) as error:
            refused.append(error)

    def work(connection: sqlite3.Connection) -> str:
        thread = threading.Thread(target=insist)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return from_another_process(path)

    assert Database(path).transact("BEGIN IMMEDIATE", work) == "locked"
    assert len(refused) == 1
    ledger.charge(Pure(0.1))


def test_a_ledger_that_is_not_open_here_is_recognized_while_nothing_is_open(tmp_path: Path) -> None:
    """Its header is read inside the lock that every connection lives in."""
    path = tmp_path / "budget.ledger"
    Ledger(path, 1.0, 0.0)  # and forgotten at once
    assert not _files.databases.holds(path)
    done = threading.Event()

    def insist() -> None:
        with pytest.raises(FileExistsError, match="privacy ledger"):
            write_atomically(path, b"new")
        done.set()

    thread = threading.Thread(target=insist)
    with _files.databases.lock:
        thread.start()
        assert not done.wait(0.2)
    thread.join()
    assert done.is_set()


def test_a_file_that_took_the_place_of_a_ledger_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / "budget.ledger"
    ledger = Ledger(path, 1.0, 0.0)
    del ledger
    path.unlink()
    for content in (b"one", b"two", b"three"):
        write_atomically(path, content)
    assert path.read_bytes() == b"three"


def charge_and_insist(path: Path, answers: Any) -> None:
    """Charge until the cap is reached, while two threads try to write to the ledger's own path."""
    ledger, ended, charged = Ledger(path), threading.Event(), 0

    def insist() -> None:
        while not ended.is_set():
            try:
                write_atomically(path, b"no")
            except FileExistsError:
                continue

    threads = [threading.Thread(target=insist) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        while True:
            ledger.charge(Pure(2**-5))
            charged += 1
    except BudgetExceeded:
        answers.put(charged)
    except LedgerError as error:
        answers.put(str(error))
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_processes_that_insist_on_the_path_of_a_ledger_stay_within_its_cap(tmp_path: Path) -> None:
    """Every acknowledged charge is in the file, and no more than fit."""
    path = tmp_path / "budget.ledger"
    Ledger(path, 1.0, 0.0)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    workers = [context.Process(target=charge_and_insist, args=(path, answers)) for _ in range(3)]
    for worker in workers:
        worker.start()
    acknowledged = [answers.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    assert all(isinstance(number, int) for number in acknowledged), acknowledged
    assert sum(acknowledged) == len(Ledger(path).history()) == 32


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_a_new_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.ledger", 1.0, 0.0)
    ledger.charge(Pure(0.1))
    assert ledger.path.stat().st_mode & 0o777 == 0o600
