"""The file of a ledger: append-only SQLite tables of charges and releases, each row chained to the one before.

This module stores charges and detects a damaged history; it knows nothing about prices. The format is described in
docs/ledger.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discreet._files import LEDGER_ID, databases
from discreet.display.console import printable
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger.sqlite import Database, LedgerError, publish

FORMAT_VERSION = 2
FIXED = "what is written in a privacy ledger stays as it is"
_META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_CHARGES = (
    "CREATE TABLE charges (sequence INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, "
    "who TEXT NOT NULL, label TEXT NOT NULL, event TEXT NOT NULL, neighboring TEXT NOT NULL, "
    "closes INTEGER NOT NULL, digest TEXT NOT NULL)"
)
_ADDED = ("unit TEXT", "kind TEXT")  # columns of charges since format 2, empty in older charges
_RELEASES = (
    "CREATE TABLE releases (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, "
    "after INTEGER NOT NULL, charge INTEGER NOT NULL, released TEXT NOT NULL, digest TEXT NOT NULL)"
)


def _schema(**tables: str) -> dict[str, str]:
    """Return the tables and the triggers that make them append-only; meta does not even grow."""
    actions = {name: (("INSERT",) if name == "meta" else ()) + ("UPDATE", "DELETE") for name in tables}
    return tables | {
        f"{table}_{action.lower()}": (
            f"CREATE TRIGGER {table}_{action.lower()} BEFORE {action} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{FIXED}'); END"
        )
        for table in tables
        for action in actions[table]
    }


# Upgrading an older format gives the schema of a new ledger, because SQLite adds columns at the end.
SCHEMAS = {
    1: _schema(meta=_META, charges=_CHARGES),
    2: _schema(meta=_META, charges=", ".join([_CHARGES[:-1], *_ADDED]) + ")", releases=_RELEASES),
}
_COLUMNS = ("sequence", "time", "who", "label", "event", "neighboring", "closes")
_RELEASE_COLUMNS = ("number", "time", "after", "charge", "released")


@dataclass(frozen=True)
class Terms:
    """Terms fixed when a ledger is created, and sealed into its history."""

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
        """The digest that the first charge builds on; editing the terms breaks the whole chain."""
        return _digest("", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as plain JSON-ready values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring.value,
            "adaptive": self.adaptive,
            "order": self.order,
            "identity": self.identity,
            "created": self.created,
            # ledgers per record keep the format from before units existed, so that their seals stay valid
            **({} if self.unit == "record" else {"unit": self.unit}),
        }


@dataclass(frozen=True)
class Charge:
    """One charge of a ledger.

    ``sequence`` counts from 1 without gaps and defines the order. ``time`` (UTC, ISO 8601) and ``who`` (the user of the
    operating system, or the name given) are remarks. ``closes`` marks a first charge that took the whole cap, after
    which nothing more is admitted. ``unit`` and ``kind`` say whom the event protects and in which sense; they are None
    in charges made before version 0.2.0. ``digest`` seals the charge with everything before it, and ``released`` is the
    digest of what was released under it, None if not recorded; comparisons ignore both.
    """

    sequence: int
    time: str
    who: str
    label: str
    event: Event = field(repr=False)  # long: print(charge) shows it
    neighboring: Neighboring = field(repr=False)
    closes: bool = False
    unit: str | None = None
    kind: str | None = None
    digest: str = field(default="", compare=False, repr=False)
    released: str | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        remarks = printable(self.who), printable(self.label)
        parts = [f"{self.sequence:>5}", self.time, *remarks, str(self.event)]
        return "  ".join([part for part in parts if part] + ["(closes the ledger)"] * self.closes)


@dataclass(frozen=True)
class Tail:
    """How far a history has been read and checked: number of charges, number of releases, and the chain's head."""

    sequence: int
    digest: str
    releases: int = 0


@dataclass(frozen=True)
class Links:
    """What follows a tail: further charges, the release digest of each charge that has one, and the new tail."""

    charges: list[Charge]
    released: dict[int, str]
    tail: Tail


def _digest(previous: str, fields: dict[str, Any]) -> str:
    return hashlib.sha256((previous + _canonical(fields)).encode()).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def utc_now() -> str:
    """Return the wall clock time, for display only."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")


class LedgerFile:
    """An existing ledger file. Holds no connection: every operation opens and closes its own."""

    def __init__(self, path: Path, identity: str | None = None) -> None:
        self.path = path
        with contextlib.suppress(FileNotFoundError):  # the transaction explains it
            databases.add(self, path)  # before the file is opened: nobody else may open it from now on
        self._database = Database(path)
        self.terms = self._database.transact("BEGIN", self._read_terms)
        if identity is not None and identity != self.terms.identity:
            raise LedgerError(f"{path} has changed: the file was replaced by another ledger")

    @staticmethod
    def create(path: Path, make_terms: Callable[[str, str], Terms]) -> None:
        """Create a complete, empty ledger at ``path`` in one step, unless a file exists there.

        The file is built under another name and then linked, so a crash leaves no partial ledger, and two processes
        that create the same ledger end up with one. Labels and names are not public, so only the owner may read the
        file; change its permissions to share it.
        """
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        terms = make_terms(uuid.uuid4().hex, utc_now())

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA application_id = {LEDGER_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            schema = dict(SCHEMAS[FORMAT_VERSION])
            connection.execute(schema.pop("meta"))
            connection.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [(name, _canonical(value)) for name, value in terms.to_dict().items()],
            )
            for statement in schema.values():
                connection.execute(statement)

        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            Database(draft).transact("BEGIN EXCLUSIVE", write)
            with contextlib.suppress(FileExistsError):
                publish(draft, path)
        except (LedgerError, OSError) as error:
            raise LedgerError(f"cannot create the ledger {path}: {error}") from error
        finally:
            for leftover in (draft, Path(f"{draft}-journal")):
                with contextlib.suppress(OSError):
                    leftover.unlink()

    def read(self, after: Tail | None = None, *, structure: bool = False) -> Links:
        """Return what follows a tail checked before (by default everything), checked against the terms and the chain.

        With ``structure`` also check the database itself and its schema.
        """

        def checked(connection: sqlite3.Connection) -> Links:
            if structure:
                self._check_structure(connection)
            return self._read(connection, after)

        return self._database.transact("BEGIN", checked)

    def append(
        self, after: Tail, decide: Callable[[list[Charge]], bool], event: Event, **remarks: str
    ) -> tuple[Links, Charge]:
        """Write one charge durably, in the same transaction in which ``decide`` saw everything before it.

        ``decide`` receives the charges after ``after`` and returns whether the charge closes the ledger; if it raises,
        the file is unchanged. ``remarks`` are who, label, unit and kind. Returns all that follows ``after``, and the
        charge.
        """

        def write(connection: sqlite3.Connection) -> tuple[Links, Charge]:
            news = self._read(connection, after)
            charge = Charge(
                news.tail.sequence + 1,
                utc_now(),
                event=event,
                neighboring=self.terms.neighboring,
                closes=decide(news.charges),
                **remarks,
            )
            fields = _fields(charge)
            if self._charge(fields) != charge:
                raise LedgerError(
                    f"{event!r} would not be read back from {self.path} as it is; nothing was charged"
                )
            self._upgrade(connection)
            digest = _insert(connection, "charges", fields, news.tail.digest)
            charge = replace(charge, digest=digest)
            tail = replace(news.tail, sequence=charge.sequence, digest=digest)
            return replace(news, charges=[*news.charges, charge], tail=tail), charge

        return self._database.transact("BEGIN IMMEDIATE", write)

    def bind(self, after: Tail, charge: int, digest: str, released: str) -> Links:
        """Store once, with a charge given by number and digest, the digest of what was released under it.

        Returns all that follows ``after``.
        """

        def write(connection: sqlite3.Connection) -> Links:
            news = self._read(connection, after)
            if _digest_at(connection, "charges", "sequence", charge) != digest:
                raise LedgerError(f"charge {charge} of {self.path} is not the one that was made")
            self._upgrade(connection)
            if connection.execute("SELECT 1 FROM releases WHERE charge = ?", (charge,)).fetchone():
                raise LedgerError(f"charge {charge} of {self.path} has a release already")
            fields = {
                "number": news.tail.releases + 1,
                "time": utc_now(),
                "after": news.tail.sequence,
                "charge": charge,
                "released": released,
            }
            head = _insert(connection, "releases", fields, news.tail.digest)
            tail = replace(news.tail, releases=news.tail.releases + 1, digest=head)
            return Links(news.charges, news.released | {charge: released}, tail)

        return self._database.transact("BEGIN IMMEDIATE", write)

    def _check_structure(self, connection: sqlite3.Connection) -> None:
        for (report,) in connection.execute("PRAGMA integrity_check"):
            if report != "ok":
                raise self._untrusted(f"SQLite reports: {report}")
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
        schema = SCHEMAS[self._format(connection)]
        for name in schema.keys() | found.keys():
            if found.get(name) != schema.get(name):
                raise self._untrusted(f"its schema was changed at {name!r}")

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Upgrade an older format, leaving existing rows and digests unchanged."""
        older = SCHEMAS[self._format(connection)]
        if "releases" in older:
            return
        for column in _ADDED:
            connection.execute(f"ALTER TABLE charges ADD COLUMN {column}")
        for name, statement in SCHEMAS[FORMAT_VERSION].items():
            if name not in older:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _format(self, connection: sqlite3.Connection) -> int:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in SCHEMAS:
            raise LedgerError(
                f"{self.path} has ledger format {version}, and this version of discreet reads formats up to "
                f"{FORMAT_VERSION}: use the version that wrote it, or a newer one"
            )
        return int(version)

    def _read_terms(self, connection: sqlite3.Connection) -> Terms:
        if self.path.stat().st_size == 0:
            raise self._foreign("the file is empty")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != LEDGER_ID:
            raise self._foreign("it is a SQLite database of another kind")
        self._format(connection)
        (pages,), (size,) = (
            connection.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size")
        )
        if self.path.stat().st_size != pages * size:
            raise self._untrusted("the file was cut off, or something was added at its end")
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

    def _read(self, connection: sqlite3.Connection, after: Tail | None) -> Links:
        terms = self._read_terms(connection)
        if terms != self.terms:
            raise LedgerError(f"{self.path} has changed: the file was replaced or its terms were edited")
        tail = after or Tail(0, terms.seal)
        recent = "releases" in SCHEMAS[self._format(connection)]
        heads = [terms.seal, _digest_at(connection, "charges", "sequence", tail.sequence)]
        if recent:
            heads.append(_digest_at(connection, "releases", "number", tail.releases))
        if tail.digest not in heads:
            raise self._untrusted(f"charge {tail.sequence} is no longer what this process has read before")
        charges: list[Charge] = []
        released: dict[int, str] = {}
        for table, fields, digest in self._rows(connection, tail, recent):
            number = fields["sequence" if table == "charges" else "number"]
            expected = (tail.sequence if table == "charges" else tail.releases) + 1
            name = "charge" if table == "charges" else "release"
            if number != expected:
                raise self._untrusted(f"{name} {expected} is missing")
            damaged = any(isinstance(value, bytes) for value in fields.values())
            if damaged or digest != _digest(tail.digest, fields):
                raise self._untrusted(f"{name} {number} was edited")
            if table == "charges":
                charges.append(replace(self._charge(fields), digest=digest))
                tail = replace(tail, sequence=number, digest=digest)
            else:
                if fields["charge"] in released or not 1 <= fields["charge"] <= tail.sequence:
                    raise self._untrusted(f"release {number} belongs to no charge of its own")
                released[fields["charge"]] = fields["released"]
                tail = replace(tail, releases=number, digest=digest)
        # AUTOINCREMENT remembers the largest number ever used, so missing last rows are noticed too.
        given = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
        for name, reached in (("charges", tail.sequence), ("releases", tail.releases)):
            if given.get(name, 0) != reached:
                raise self._untrusted(f"{given.get(name, 0)} {name} were made and {reached} are there")
        charges = [replace(charge, released=released.get(charge.sequence)) for charge in charges]
        return Links(charges, released, tail)

    @staticmethod
    def _rows(
        connection: sqlite3.Connection, tail: Tail, recent: bool
    ) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yield the rows after a tail in the order of the chain: table, sealed columns, digest.

        A release stores the number of charges before it. Columns that are empty in older charges were not sealed.
        """
        names = [*_COLUMNS, *(("unit", "kind") if recent else ())]
        releases: list[tuple[Any, ...]] = []
        if recent:
            releases = connection.execute(
                f"SELECT {', '.join(_RELEASE_COLUMNS)}, digest FROM releases WHERE number > ? ORDER BY number",
                (tail.releases,),
            ).fetchall()
        releases.reverse()
        reached = tail.sequence

        def pending() -> Iterator[tuple[str, dict[str, Any], str]]:
            while releases and releases[-1][_RELEASE_COLUMNS.index("after")] == reached:
                *values, digest = releases.pop()
                yield "releases", dict(zip(_RELEASE_COLUMNS, values, strict=True)), digest

        yield from pending()
        for *values, digest in connection.execute(
            f"SELECT {', '.join(names)}, digest FROM charges WHERE sequence > ? ORDER BY sequence", (reached,)
        ):
            fields = dict(zip(names, values, strict=True))
            sealed = {name: value for name, value in fields.items() if name in _COLUMNS or value is not None}
            yield "charges", sealed, digest
            reached = fields["sequence"]
            yield from pending()

    def _charge(self, fields: dict[str, Any]) -> Charge:
        try:
            event = Event.from_dict(json.loads(fields["event"]))
        except ValueError as error:
            raise LedgerError(
                f"{self.path}: charge {fields['sequence']} is of a kind that this version of discreet cannot "
                f"price ({error}); use a newer version"
            ) from error
        return Charge(
            fields["sequence"],
            fields["time"],
            fields["who"],
            fields["label"],
            event,
            Neighboring(fields["neighboring"]),
            bool(fields["closes"]),
            fields.get("unit"),
            fields.get("kind"),
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


def _insert(connection: sqlite3.Connection, table: str, fields: dict[str, Any], previous: str) -> str:
    """Add a row to the chain and return its digest, the new head."""
    sealed = fields | {"digest": _digest(previous, fields)}
    places = ", ".join(f":{name}" for name in sealed)
    connection.execute(f"INSERT INTO {table} ({', '.join(sealed)}) VALUES ({places})", sealed)
    return str(sealed["digest"])


def _digest_at(connection: sqlite3.Connection, table: str, key: str, number: int) -> str | None:
    found = connection.execute(f"SELECT digest FROM {table} WHERE {key} = ?", (number,)).fetchone()
    return None if found is None else found[0]


def _fields(charge: Charge) -> dict[str, Any]:
    """Return the sealed fields of a new charge."""
    return {
        "sequence": charge.sequence,
        "time": charge.time,
        "who": charge.who,
        "label": charge.label,
        "event": _canonical(charge.event.to_dict()),
        "neighboring": charge.neighboring.value,
        "closes": int(charge.closes),
        "unit": charge.unit,
        "kind": charge.kind,
    }
