"""SQLite transactions that survive kill -9, forks and power cuts, with failures in plain words."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_SECONDS = 120.0
ATTEMPT_SECONDS = 0.5  # how long one attempt keeps forks of this process waiting
T = TypeVar("T")


class LedgerError(RuntimeError):
    """The ledger could not be opened, trusted or written; what was being charged must not run."""


# SQLite keeps its locks per process, so a fork while a connection is open would leave the child with locks
# that it believes in but does not hold. Every connection of this module lives inside this lock, and a fork
# waits for it.
_connections = threading.RLock()


def _after_fork_in_child() -> None:
    global _connections
    _connections = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _connections.acquire(),
        after_in_parent=lambda: _connections.release(),
        after_in_child=_after_fork_in_child,
    )


def transact(path: Path, begin: str, work: Callable[[sqlite3.Connection], T], mode: str = "rw") -> T:
    """Run ``work`` in one transaction of its own connection, waiting for other writers.

    When it returns, what ``work`` wrote is on disk; when it raises ``LedgerError`` or what ``work`` raised,
    nothing was written, unless the disk itself failed in the last moment. ``work`` may be called repeatedly.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with _connections, contextlib.closing(connect(path, mode)) as connection:
                _begin(connection, begin)
                result = work(connection)
                # Only a commit that SQLite has acknowledged lets the caller go on to touch data.
                connection.execute("COMMIT")
                return result
        except sqlite3.Error as error:
            if _is_busy(error) and time.monotonic() < deadline:
                continue  # nothing was written: closing the connection rolled everything back
            raise _explained(error, path) from error
        except UnicodeDecodeError as error:  # not even SQLite's complaint is legible
            raise LedgerError(f"the ledger {path} cannot be trusted: the file is damaged") from error
        except OSError as error:
            raise LedgerError(f"the ledger {path} could not be used: {error}") from error


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that never creates a file by accident and whose commits survive a power cut."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=ATTEMPT_SECONDS
    )
    # A rollback journal keeps the ledger one file; EXTRA also syncs the directory once the journal is gone.
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _begin(connection: sqlite3.Connection, statement: str) -> None:
    """Begin a transaction, asking again every 2 ms: SQLite's own waiting backs off to 100 ms."""
    deadline = time.monotonic() + ATTEMPT_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            connection.execute(statement)
            break
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
    connection.execute(f"PRAGMA busy_timeout = {ATTEMPT_SECONDS * 1000:.0f}")


def publish(draft: Path, path: Path) -> None:
    """Give a finished file its name unless the name is taken (FileExistsError), and make the name durable."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        _rename(draft, path)
    if os.name == "posix":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _rename(draft: Path, path: Path) -> None:
    """Rename unless the name is taken; a lock on the folder, which ends with the process, keeps others from it."""
    if os.name != "posix":
        os.rename(draft, path)  # raises FileExistsError itself
        return
    import fcntl

    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        os.rename(draft, path)
    finally:
        os.close(folder)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _explained(error: sqlite3.Error, path: Path) -> LedgerError:
    """A failure of SQLite in the words of someone who has to do something about it."""
    reasons = {
        sqlite3.SQLITE_BUSY: (
            f"another process has kept it locked for {PATIENCE_SECONDS:.0f} seconds; wait for it or end it"
        ),
        sqlite3.SQLITE_READONLY: "it is read-only; give write permission on the file and its directory",
        sqlite3.SQLITE_FULL: "the disk is full; free some space and try again",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened; does it still exist, and may this user open it?",
        sqlite3.SQLITE_NOTADB: "it is not a privacy ledger, or its first bytes are damaged",
        sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a copy that holds every charge",
    }
    reason = reasons.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    if reason is None:
        return LedgerError(f"the ledger {path} failed, and what was being charged must not run: {error}")
    return LedgerError(f"the ledger {path} could not be used, and nothing was charged: {reason} ({error})")
