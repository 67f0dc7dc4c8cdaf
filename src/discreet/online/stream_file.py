"""A stream on disk: what it may still spend is written before every answer is given.

One SQLite file holds the teachers, or their votes, and the secret state of the stream. Resuming a stream takes a new
generation number, and older holders are then refused, so two processes can never spend the same budget. When the
stream has halted, the teachers are overwritten in the file and in SQLite's journal.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from discreet.privacy.ledger.sqlite import Database

T = TypeVar("T")
_FORMAT = "discreet labeler 1"
# An answer must be drawn only once, so a transaction that has started cannot be made to wait for others.
_ALONE = "BEGIN EXCLUSIVE"


class StreamError(RuntimeError):
    """The file of a stream cannot be used, or somebody else continues the stream."""


def create(path: str | os.PathLike[str], content: Any, state: dict[str, Any]) -> int:
    """Write a new file, readable by its owner only, and return the generation of its first holder."""
    where = Path(path)
    try:
        os.close(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StreamError(f"{where} exists already; a stream is saved once, to a path of its own") from None

    def write(connection: sqlite3.Connection) -> int:
        connection.execute("CREATE TABLE stream (format TEXT, generation INTEGER, state TEXT, content BLOB)")
        connection.execute(
            "INSERT INTO stream VALUES (?, ?, ?, ?)", (_FORMAT, 1, json.dumps(state), pickle.dumps(content))
        )
        return 1

    return _database(where).transact(_ALONE, write)


def refuse_forked(process: int) -> None:
    """Raise unless this process, by its number, is the one that holds the stream."""
    if process != os.getpid():
        raise StreamError(
            "this process was forked from the one that holds the stream, and both would spend the same budget; "
            "save(path) there and resume(path) here"
        )


def take_over(
    path: str | os.PathLike[str], check: Callable[[Any, dict[str, Any]], None] = lambda content, state: None
) -> tuple[Any, dict[str, Any], int]:
    """Return the content, the state and the generation of a new holder; older holders are refused from now on.

    If ``check(content, state)`` raises, nothing changes and the older holder continues.
    """
    where = Path(path)
    if not where.is_file():
        raise StreamError(f"there is no saved stream at {where}")

    def take(connection: sqlite3.Connection) -> tuple[Any, dict[str, Any], int]:
        kind, generation, state, content = _row(connection, where, "format, generation, state, content")
        if kind != _FORMAT:
            raise StreamError(f"{where} holds {kind!r}; this version reads {_FORMAT!r}")
        try:
            kept, known = _Unpickler(io.BytesIO(content)).load(), dict(json.loads(state))
        except Exception as error:  # invalid bytes can raise anything
            raise StreamError(f"{where} is damaged: what it holds cannot be read") from error
        check(kept, known)
        connection.execute("UPDATE stream SET generation = ?", (generation + 1,))
        return kept, known, generation + 1

    return _database(where).transact(_ALONE, take)


def spend(
    path: Path,
    generation: int,
    answer: Callable[[], tuple[T, dict[str, Any]]],
    content: Callable[[], Any] = lambda: None,
    held: dict[str, Any] | None = None,
) -> T:
    """Run ``answer`` and return its result only after its new state is on disk.

    Parameters
    ----------
    path, generation : the file and its holder.
    answer : returns the result and the new state.
    content : called afterwards; returns the new content, or None to keep it.
    held : the state from which the holder continues, if it must equal the one in the file.
    """

    def give(connection: sqlite3.Connection) -> T:
        current, stored = _row(connection, path, "generation, state")
        if current != generation:
            raise StreamError(
                f"the stream at {path} was resumed elsewhere; its budget can be spent by one holder only"
            )
        if held is not None and json.loads(stored) != held:
            raise StreamError(
                f"the stream at {path} is not in the state its holder left: somebody else continued it, an older copy "
                "replaced it, or an answer could not be written; resume(path) continues from the file"
            )
        result, state = answer()
        connection.execute("UPDATE stream SET state = ?", (json.dumps(state),))
        if (remaining := content()) is not None:
            connection.execute("UPDATE stream SET content = ?", (pickle.dumps(remaining),))
        return result

    return _database(path).transact(_ALONE, give)


def _row(connection: sqlite3.Connection, path: Path, names: str) -> Any:
    try:
        row = connection.execute(f"SELECT {names} FROM stream").fetchone()
    except sqlite3.DatabaseError as error:
        raise StreamError(f"{path} is not a saved stream: {error}") from error
    if row is None:
        raise StreamError(f"{path} is not a saved stream: it is empty")
    return row


def _database(path: Path) -> Database:
    return Database(path.absolute(), "stream", "nothing was answered", StreamError, erases=True)


# Modules in which older versions pickled classes that have moved since.
_MOVED = {"discreet.transfer.rows": "discreet.transfer.base"}


class _Unpickler(pickle.Unpickler):
    """Reads pickles of older versions."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(_MOVED.get(module, module), name)
