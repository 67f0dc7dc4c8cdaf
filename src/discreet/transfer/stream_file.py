"""A stream of questions on disk: what it may still spend is written down before every answer is given.

One SQLite file holds the teachers, or their votes, and the secret state of the stream. Whoever continues the stream
takes a new generation number; an older holder is then refused, so that two processes can never spend the same
budget. When the stream has halted the teachers are overwritten.
"""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_FORMAT = "discreet labeler 1"


class StreamError(RuntimeError):
    """The file of a stream cannot be used, or somebody else continues the stream."""


def create(path: str | os.PathLike[str], content: Any, state: dict[str, int]) -> int:
    """Write a new file, readable by its owner only; returns the generation of its first holder."""
    where = Path(path)
    try:
        os.close(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StreamError(f"{where} exists already; a stream is saved once, to a path of its own") from None
    with _opened(where) as connection, _transaction(connection):
        connection.execute("CREATE TABLE stream (format TEXT, generation INTEGER, state TEXT, content BLOB)")
        connection.execute(
            "INSERT INTO stream VALUES (?, ?, ?, ?)", (_FORMAT, 1, json.dumps(state), pickle.dumps(content))
        )
    return 1


def refuse_forked(process: int) -> None:
    """Raise unless this is the process, of that number, which holds a stream."""
    if process != os.getpid():
        raise StreamError(
            "this process was forked from the one that holds the stream, and both would spend the same budget; "
            "save(path) there and resume(path) here"
        )


def take_over(
    path: str | os.PathLike[str], check: Callable[[Any, dict[str, int]], None] = lambda content, state: None
) -> tuple[Any, dict[str, int], int]:
    """The content, the state and the generation of a new holder; every older holder is refused from now on.

    ``check(content, state)`` may raise, and then nothing has changed: the older holder goes on.
    """
    where = Path(path)
    if not where.is_file():
        raise StreamError(f"there is no saved stream at {where}")
    with _opened(where) as connection, _transaction(connection):
        kind, generation, state, content = _row(connection, where, "format, generation, state, content")
        if kind != _FORMAT:
            raise StreamError(f"{where} holds {kind!r}; this version reads {_FORMAT!r}")
        try:
            kept, known = pickle.loads(content), dict(json.loads(state))
        except Exception as error:  # bytes that are no pickle can raise anything
            raise StreamError(f"{where} is damaged: what it holds cannot be read") from error
        check(kept, known)
        connection.execute("UPDATE stream SET generation = ?", (generation + 1,))
    return kept, known, generation + 1


def spend(
    path: Path,
    generation: int,
    answer: Callable[[], tuple[T, dict[str, int]]],
    content: Callable[[], Any] = lambda: None,
    held: dict[str, int] | None = None,
) -> T:
    """Run ``answer`` and give out its result only once its new state is on disk.

    Parameters
    ----------
    path, generation : the file and its holder.
    answer : gives the result and the new state.
    content : called afterwards; gives what is to take the place of the content, None to leave it.
    held : the state from which the holder goes on, if it is to be the one in the file.
    """
    with _opened(path) as connection, _transaction(connection):
        current, stored = _row(connection, path, "generation, state")
        if current != generation:
            raise StreamError(
                f"the stream at {path} was resumed elsewhere; its budget can be spent by one holder only"
            )
        if held is not None and json.loads(stored) != held:
            raise StreamError(
                f"the stream at {path} is not where its holder left it: somebody else went on with it, an older copy "
                "took its place, or an answer could not be written down; resume(path) goes on from the file"
            )
        result, state = answer()
        connection.execute("UPDATE stream SET state = ?", (json.dumps(state),))
        if (remaining := content()) is not None:
            connection.execute("UPDATE stream SET content = ?", (pickle.dumps(remaining),))
    return result


def _row(connection: sqlite3.Connection, path: Path, names: str) -> Any:
    try:
        row = connection.execute(f"SELECT {names} FROM stream").fetchone()
    except sqlite3.DatabaseError as error:
        raise StreamError(f"{path} is not a saved stream: {error}") from error
    if row is None:
        raise StreamError(f"{path} is not a saved stream: it is empty")
    return row


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten
        yield connection
    except sqlite3.DatabaseError as error:
        raise StreamError(f"cannot use the stream at {path}: {error}") from error
    finally:
        connection.close()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
