"""SQLite transactions that survive kill -9, forks and power cuts, with readable errors.

Ledgers and streams use such files. Every connection is held inside one lock of the process
(`discreet._files.databases`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from discreet import _files
from discreet._files import databases
from discreet.display.console import printable

PATIENCE_SECONDS = 120.0
ATTEMPT_SECONDS = 0.5  # how long one attempt may block forks of this process
T = TypeVar("T")


class LedgerError(RuntimeError):
    """The ledger could not be opened, trusted or written. The release being charged must not run."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # the message may quote the file


@dataclass(frozen=True)
class Database:
    """A SQLite file that is only used in whole transactions.

    Attributes
    ----------
    path : the file.
    name : its name in errors.
    undone : what did not happen when a transaction failed, for errors.
    error : the type of the errors.
    erases : whether the journal, which holds earlier pages, is overwritten before it is removed.
    """

    path: Path
    name: str = "ledger"
    undone: str = "nothing was charged"
    error: type[RuntimeError] = LedgerError
    erases: bool = False

    def transact(self, begin: str, work: Callable[[sqlite3.Connection], T], mode: str = "rw") -> T:
        """Run ``work`` in one transaction on its own connection, waiting for other writers.

        When it returns, everything ``work`` wrote is on disk. If it raises ``error`` or whatever ``work`` raised,
        nothing was written, unless the disk itself failed at the last moment. After "BEGIN EXCLUSIVE" ``work`` is
        called once; otherwise it may be called repeatedly.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with databases.lock, contextlib.closing(connect(self.path, mode)) as connection:
                    if self.erases:
                        connection.execute("PRAGMA journal_mode = PERSIST")
                    _begin(connection, begin)
                    if self.erases:  # keep the lock until the connection is closed
                        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                    try:
                        result = work(connection)
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        if self.erases:
                            self._erase_journal()
                        raise
                    # The caller may touch data only after SQLite has acknowledged the commit.
                    connection.execute("COMMIT")
                    if self.erases:
                        self._erase_journal()
                    return result
            except sqlite3.Error as error:
                if _is_busy(error) and time.monotonic() < deadline:
                    continue  # nothing was written: closing the connection rolled everything back
                raise self._explained(error) from error
            except UnicodeDecodeError as error:  # even SQLite's message is unreadable
                raise self.error(
                    f"the {self.name} {self.path} cannot be trusted: the file is damaged"
                ) from error
            except OSError as error:
                raise self.error(f"the {self.name} {self.path} could not be used: {error}") from error

    def _erase_journal(self) -> None:
        _files.erase(f"{os.path.realpath(self.path)}-journal")

    def _explained(self, error: sqlite3.Error) -> RuntimeError:
        """Translate an SQLite failure into advice for the user."""
        reasons = {
            sqlite3.SQLITE_BUSY: (
                f"another process has kept it locked for {PATIENCE_SECONDS:.0f} seconds; wait for it or end it"
            ),
            sqlite3.SQLITE_READONLY: "it is read-only; give write permission on the file and its directory",
            sqlite3.SQLITE_FULL: "the disk is full; free some space and try again",
            sqlite3.SQLITE_CANTOPEN: "it cannot be opened; does it still exist, and may this user open it?",
            sqlite3.SQLITE_NOTADB: f"it is not a privacy {self.name}, or its first bytes are damaged",
            sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a copy that is up to date",
        }
        reason = reasons.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if reason is None:
            return self.error(
                f"the {self.name} {self.path} failed, and what it was asked for must not be run: {error}"
            )
        return self.error(
            f"the {self.name} {self.path} could not be used, and {self.undone}: {reason} ({error})"
        )


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection that never creates a file by accident and whose commits survive a power cut."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=ATTEMPT_SECONDS
    )
    # A rollback journal keeps the ledger one file; EXTRA also syncs the directory after the journal is removed.
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA secure_delete = ON")  # overwrite what is erased
    return connection


def _begin(connection: sqlite3.Connection, statement: str) -> None:
    """Begin a transaction, retrying every 2 ms, because SQLite's own waiting backs off to 100 ms."""
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
    """Rename unless the name is taken; a lock on the folder, released with the process, excludes others."""
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
