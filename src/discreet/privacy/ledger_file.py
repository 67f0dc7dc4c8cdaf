"""The file behind a ledger: a SQLite table of charges that only grows, each sealed by the one before.

This module knows how a charge is stored and how a damaged history is noticed; it knows nothing about prices.
The format is described in docs/ledger.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discreet._files import LEDGER_ID
from discreet.privacy.durable import LedgerError, publish, transact
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring

FORMAT_VERSION = 1
FIXED = "what is written in a privacy ledger stays as it is"
SCHEMA = {
    "meta": "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "charges": (
        "CREATE TABLE charges (sequence INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, "
        "who TEXT NOT NULL, label TEXT NOT NULL, event TEXT NOT NULL, neighboring TEXT NOT NULL, "
        "closes INTEGER NOT NULL, digest TEXT NOT NULL)"
    ),
    **{
        f"{table}_{action.lower()}": (
            f"CREATE TRIGGER {table}_{action.lower()} BEFORE {action} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{FIXED}'); END"
        )
        for table, actions in {
            "meta": ("INSERT", "UPDATE", "DELETE"),
            "charges": ("UPDATE", "DELETE"),
        }.items()
        for action in actions
    },
}

_COLUMNS = ("sequence", "time", "who", "label", "event", "neighboring", "closes")


@dataclass(frozen=True)
class Terms:
    """What is fixed when a ledger is created, and sealed into its history."""

    epsilon: float
    delta: float
    neighboring: Neighboring
    adaptive: bool
    order: float | None
    identity: str
    created: str
    unit: str = "record"

    @property
    def seal(self) -> str:
        """The digest that the first charge builds on: editing the terms breaks the whole chain."""
        return _digest("", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The terms as plain JSON-ready values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring.value,
            "adaptive": self.adaptive,
            "order": self.order,
            "identity": self.identity,
            "created": self.created,
            # ledgers were about records before they could be about users, and their seals stay valid
            **({} if self.unit == "record" else {"unit": self.unit}),
        }


@dataclass(frozen=True)
class Charge:
    """One line of a ledger.

    ``sequence`` counts from 1 without gaps and is the only order; ``time`` (UTC, ISO 8601) and ``who`` (the user of
    the operating system, or the name given) are remarks. ``closes`` marks a first charge that took the whole cap,
    after which nothing more is admitted. ``digest`` seals the charge with everything before it; it follows from the
    rest, so that it counts in no comparison.
    """

    sequence: int
    time: str
    who: str
    label: str
    event: Event
    neighboring: Neighboring
    closes: bool = False
    digest: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        parts = [f"{self.sequence:>5}", self.time, self.who, self.label, str(self.event)]
        return "  ".join([part for part in parts if part] + ["(closes the ledger)"] * self.closes)


@dataclass(frozen=True)
class Tail:
    """How far a history has been read and checked."""

    sequence: int
    digest: str


def _digest(previous: str, fields: dict[str, Any]) -> str:
    return hashlib.sha256((previous + _canonical(fields)).encode()).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def utc_now() -> str:
    """The wall clock, for people; nothing depends on it."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")


class LedgerFile:
    """An existing ledger file. Holds no connection: every operation opens its own and closes it."""

    def __init__(self, path: Path, identity: str | None = None) -> None:
        self.path = path
        self.terms = transact(self.path, "BEGIN", self._read_terms)
        if identity is not None and identity != self.terms.identity:
            raise LedgerError(
                f"{path} is not the ledger it was: the file has been replaced by another ledger"
            )

    @staticmethod
    def create(path: Path, make_terms: Callable[[str, str], Terms]) -> None:
        """Put a complete, empty ledger at ``path`` in one step, or leave alone what is there.

        The file is built under another name and then linked, so that no crash leaves half a ledger and two
        processes that create the same ledger end up with one.
        """
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        terms = make_terms(uuid.uuid4().hex, utc_now())

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA application_id = {LEDGER_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.execute(SCHEMA["meta"])
            connection.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [(name, _canonical(value)) for name, value in terms.to_dict().items()],
            )
            for name, statement in SCHEMA.items():
                if name != "meta":
                    connection.execute(statement)

        try:
            transact(draft, "BEGIN EXCLUSIVE", write, mode="rwc")
            with contextlib.suppress(FileExistsError):
                publish(draft, path)
        except (LedgerError, OSError) as error:
            raise LedgerError(f"cannot create the ledger {path}: {error}") from error
        finally:
            for leftover in (draft, Path(f"{draft}-journal")):
                with contextlib.suppress(OSError):
                    leftover.unlink()

    def read(self, after: Tail | None = None) -> tuple[list[Charge], Tail]:
        """The charges after a tail that was checked before (by default all), checked against the chain."""
        return transact(self.path, "BEGIN", lambda connection: self._read(connection, after))

    def verify(self) -> tuple[list[Charge], Tail]:
        """Check everything: the database's own structure, the schema, the terms and every charge."""

        def check(connection: sqlite3.Connection) -> tuple[list[Charge], Tail]:
            for (report,) in connection.execute("PRAGMA integrity_check"):
                if report != "ok":
                    raise self._untrusted(f"SQLite reports: {report}")
            found = dict(
                connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
            )
            for name in SCHEMA.keys() | found.keys():
                if found.get(name) != SCHEMA.get(name):
                    raise self._untrusted(f"its schema was changed at {name!r}")
            return self._read(connection, None)

        return transact(self.path, "BEGIN", check)

    def append(
        self, after: Tail, who: str, label: str, decide: Callable[[list[Charge]], tuple[Event, bool]]
    ) -> tuple[list[Charge], Charge, Tail]:
        """Write one charge, durably, in the same transaction in which ``decide`` saw everything before it.

        ``decide`` receives the charges after ``after`` and returns the event and whether the charge closes the
        ledger; what it raises leaves the file as it was.
        """

        def write(connection: sqlite3.Connection) -> tuple[list[Charge], Charge, Tail]:
            news, tail = self._read(connection, after)
            event, closes = decide(news)
            charge = Charge(tail.sequence + 1, utc_now(), who, label, event, self.terms.neighboring, closes)
            fields = _fields(charge)
            if self._charge(fields) != charge:
                raise LedgerError(
                    f"{event!r} would not be read back from {self.path} as it is; nothing was charged"
                )
            digest = _digest(tail.digest, fields)
            connection.execute(
                "INSERT INTO charges "
                "VALUES (:sequence, :time, :who, :label, :event, :neighboring, :closes, :digest)",
                fields | {"digest": digest},
            )
            return news, replace(charge, digest=digest), Tail(charge.sequence, digest)

        return transact(self.path, "BEGIN IMMEDIATE", write)

    def _read_terms(self, connection: sqlite3.Connection) -> Terms:
        if self.path.stat().st_size == 0:
            raise self._foreign("the file is empty")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != LEDGER_ID:
            raise self._foreign("it is a SQLite database of another kind")
        if version != FORMAT_VERSION:
            raise LedgerError(
                f"{self.path} has ledger format {version}, and this version of discreet reads format "
                f"{FORMAT_VERSION}: use the version that wrote it, or a newer one"
            )
        try:
            fields = {
                name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM meta")
            }
            fields["neighboring"] = Neighboring(fields["neighboring"])
            return Terms(**fields)
        except (TypeError, ValueError, KeyError, sqlite3.OperationalError) as error:
            if isinstance(error, sqlite3.Error) and "no such table" not in str(error):
                raise
            raise self._untrusted("its terms cannot be read") from error

    def _read(self, connection: sqlite3.Connection, after: Tail | None) -> tuple[list[Charge], Tail]:
        terms = self._read_terms(connection)
        if terms != self.terms:
            raise LedgerError(
                f"{self.path} is not the ledger it was: the file was replaced or its terms were edited"
            )
        tail = after or Tail(0, terms.seal)
        if tail.sequence:
            found = connection.execute(
                "SELECT digest FROM charges WHERE sequence = ?", (tail.sequence,)
            ).fetchone()
            if found != (tail.digest,):
                raise self._untrusted(
                    f"charge {tail.sequence} is no longer what this process has read before"
                )
        charges = []
        rows = connection.execute(
            "SELECT sequence, time, who, label, event, neighboring, closes, digest FROM charges "
            "WHERE sequence > ? ORDER BY sequence",
            (tail.sequence,),
        )
        for *values, digest in rows:
            fields = dict(zip(_COLUMNS, values, strict=True))
            if fields["sequence"] != tail.sequence + 1:
                raise self._untrusted(f"charge {tail.sequence + 1} is missing")
            if any(isinstance(value, bytes) for value in values) or digest != _digest(tail.digest, fields):
                raise self._untrusted(f"charge {fields['sequence']} was edited")
            charges.append(replace(self._charge(fields), digest=digest))
            tail = Tail(fields["sequence"], digest)
        # AUTOINCREMENT remembers the largest sequence ever given, so that a missing end is noticed as well.
        reached = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'charges'").fetchone() or (
            0,
        )
        if reached != (tail.sequence,):
            raise self._untrusted(f"{reached[0]} charges were made and {tail.sequence} are there")
        return charges, tail

    def _charge(self, fields: dict[str, Any]) -> Charge:
        try:
            event = Event.from_dict(json.loads(fields["event"]))
        except ValueError as error:
            raise LedgerError(
                f"{self.path}: charge {fields['sequence']} is of a kind that this version of discreet cannot "
                f"price ({error}); use a newer version"
            ) from error
        neighboring = Neighboring(fields["neighboring"])
        return Charge(
            fields["sequence"],
            fields["time"],
            fields["who"],
            fields["label"],
            event,
            neighboring,
            bool(fields["closes"]),
        )

    def _foreign(self, reason: str) -> LedgerError:
        return LedgerError(
            f"{self.path} is not a privacy ledger: {reason}; choose another path, or restore the file"
        )

    def _untrusted(self, reason: str) -> LedgerError:
        return LedgerError(
            f"the ledger {self.path} cannot be trusted: {reason}. Nothing is charged to it; restore the file "
            "from a copy that holds every charge, or treat its budget as spent"
        )


def _fields(charge: Charge) -> dict[str, Any]:
    return {
        "sequence": charge.sequence,
        "time": charge.time,
        "who": charge.who,
        "label": charge.label,
        "event": _canonical(charge.event.to_dict()),
        "neighboring": charge.neighboring.value,
        "closes": int(charge.closes),
    }
