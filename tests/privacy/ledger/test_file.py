"""Races, crashes and damage: a charge is whole or absent, and a changed history is noticed."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import cross_val_score

from benchmarks.ledger import measure
from discreet.privacy.events import (
    Event,
    Pure,
)
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger import sqlite
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError

REPLACE_ONE = Neighboring.REPLACE_ONE


def edit(path: Path, *statements: str) -> None:
    """Change a ledger behind its back, as somebody with an SQLite shell could."""
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()


class TestDamage:
    """A history that is not what was written is never charged to."""

    @pytest.fixture
    def used(self, path: Path) -> Ledger:
        ledger = Ledger(path, 1.0, 0.0)
        for label in ("first", "second", "third"):
            ledger.charge(Pure(0.125), label=label)
        return ledger

    def test_triggers_refuse_changes(self, used: Ledger) -> None:
        connection = sqlite3.connect(used.path)
        for statement in (
            "UPDATE charges SET event = '{}'",
            "DELETE FROM charges",
            "UPDATE meta SET value = '9.0' WHERE name = 'epsilon'",
            "DELETE FROM meta",
            "INSERT INTO meta VALUES ('more', '1')",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="stays as it is"):
                connection.execute(statement)
        connection.close()
        used.verify()

    @pytest.mark.parametrize(
        ("statement", "reason"),
        [
            ("UPDATE charges SET label = 'other' WHERE sequence = 1", "charge 1 was edited"),
            (
                "UPDATE charges SET event = replace(event, '0.125', '0.001') WHERE sequence = 3",
                "charge 3 was edited",
            ),
            ("UPDATE charges SET label = x'ff' WHERE sequence = 2", "charge 2 was edited"),
            ("DELETE FROM charges WHERE sequence = 2", "charge 2 is missing"),
            ("DELETE FROM charges WHERE sequence = 3", "3 charges were made and 2 are there"),
            ("DELETE FROM charges", "3 charges were made and 0 are there"),
            ("UPDATE meta SET value = '9.0' WHERE name = 'epsilon'", "charge 1 was edited"),
            ("DELETE FROM meta WHERE name = 'epsilon'", "terms cannot be read"),
            ("DROP TABLE meta", None),
        ],
    )
    def test_edits_behind_its_back(self, used: Ledger, statement: str, reason: str | None) -> None:
        if reason is None:
            with pytest.raises(sqlite3.OperationalError):
                edit(used.path, statement)  # its triggers cannot be put back
            return
        edit(used.path, statement)
        with pytest.raises(LedgerError, match=reason):
            Ledger(used.path)
        with pytest.raises(LedgerError):
            used.verify()

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE charges SET digest = '' WHERE sequence = 3",
            "DELETE FROM charges WHERE sequence = 3",
            "UPDATE meta SET value = '9.0' WHERE name = 'epsilon'",
        ],
    )
    def test_noticed_by_the_next_charge_of_a_running_process(self, used: Ledger, statement: str) -> None:
        edit(used.path, statement)
        with pytest.raises(LedgerError, match=r"cannot be trusted|has changed"):
            used.charge(Pure(0.1))

    @pytest.mark.parametrize(
        ("statement", "reason"),
        [
            ("UPDATE releases SET released = 'other' WHERE number = 1", "release 1 was edited"),
            ("UPDATE releases SET charge = 3 WHERE number = 2", "release 2 was edited"),
            ("UPDATE releases SET after = 2 WHERE number = 1", "1 was edited|is missing|are there"),
            ("UPDATE charges SET unit = 'user' WHERE sequence = 4", "charge 4 was edited"),
            ("UPDATE charges SET kind = NULL WHERE sequence = 4", "charge 4 was edited"),
            ("DELETE FROM releases WHERE number = 1", "charge 4 was edited|release 1 is missing"),
            ("DELETE FROM releases WHERE number = 2", "2 releases were made and 1 are there"),
            ("DROP TABLE releases", "cannot be trusted"),
            ("PRAGMA user_version = 1", "schema was changed"),
        ],
    )
    def test_edits_of_releases_and_units(self, used: Ledger, statement: str, reason: str) -> None:
        """Charges and releases are one chain: charge 4 seals the release before it."""
        first, second, *_ = used.history()
        used.bind(used.receipt(second), "2" * 64)
        used.charge(Pure(0.125), label="fourth")
        used.bind(used.receipt(first), "1" * 64)
        assert [charge.released for charge in Ledger(used.path).history()] == ["1" * 64, "2" * 64, None, None]
        connection = sqlite3.connect(used.path)
        for change in ("UPDATE releases SET released = ''", "DELETE FROM releases"):
            with pytest.raises(sqlite3.IntegrityError, match="stays as it is"):
                connection.execute(change)
        connection.close()
        if statement.startswith("DROP"):
            connection = sqlite3.connect(used.path, isolation_level=None)
            connection.execute(statement)
            connection.close()
        else:
            edit(used.path, statement)
        with pytest.raises(LedgerError, match=reason):
            Ledger(used.path)
        with pytest.raises(LedgerError):
            used.verify()

    def test_dropped_triggers_are_noticed(self, used: Ledger) -> None:
        connection = sqlite3.connect(used.path)
        connection.execute("DROP TRIGGER charges_delete")
        connection.commit()
        connection.close()
        with pytest.raises(LedgerError, match="schema was changed at 'charges_delete'"):
            Ledger(used.path)

    def test_every_flipped_byte_is_noticed_or_harmless(self, used: Ledger) -> None:
        honest, history = used.path.read_bytes(), used.history()
        generator = np.random.default_rng(7)
        # Pages are mostly empty space, so look where bytes are.
        places = [place for place, byte in enumerate(honest) if byte]
        noticed = 0
        for place in generator.choice(places, 100, replace=False):
            damaged = bytearray(honest)
            damaged[place] ^= 1 << int(generator.integers(8))
            used.path.write_bytes(damaged)
            try:
                assert Ledger(used.path).history() == history
            except LedgerError:
                noticed += 1
        assert noticed > 50

    @pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.5, 0.99])
    def test_truncation(self, used: Ledger, kept: float) -> None:
        content = used.path.read_bytes()
        used.path.write_bytes(content[: int(len(content) * kept)])
        for attempt in (
            lambda: Ledger(used.path),
            lambda: Ledger(used.path, 1.0, 0.0),
            lambda: used.charge(Pure(0.1)),
        ):
            with pytest.raises(LedgerError):
                attempt()

    def test_not_a_ledger(self, path: Path) -> None:
        path.write_text("epsilon, delta\n1, 0\n" * 100)
        with pytest.raises(LedgerError, match="not a privacy ledger"):
            Ledger(path, 1.0, 0.0)
        path.unlink()
        sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close()
        with pytest.raises(LedgerError, match="database of another kind"):
            Ledger(path, 1.0, 0.0)

    def test_a_format_from_the_future(self, used: Ledger) -> None:
        connection = sqlite3.connect(used.path)
        connection.execute("PRAGMA user_version = 3")
        connection.close()
        with pytest.raises(LedgerError, match=r"format 3.*reads formats up to 2"):
            Ledger(used.path)
        with pytest.raises(LedgerError, match="format 3"):
            used.charge(Pure(0.1))

    def test_a_deleted_ledger_is_not_started_afresh(self, used: Ledger) -> None:
        used.path.unlink()
        for attempt in (used.spent, used.history, lambda: used.charge(Pure(0.1))):
            with pytest.raises(LedgerError, match="does it still exist"):
                attempt()
        assert not used.path.exists()

    def test_a_replaced_ledger_is_not_charged(self, used: Ledger) -> None:
        carried = pickle.dumps(used)
        used.path.unlink()
        Ledger(used.path, 1.0, 0.0)
        with pytest.raises(LedgerError, match="has changed"):
            used.charge(Pure(0.1))
        with pytest.raises(LedgerError, match="replaced by another ledger"):
            pickle.loads(carried)

    def test_an_older_copy_is_noticed_by_who_has_seen_more(self, used: Ledger) -> None:
        older = used.path.read_bytes()
        used.charge(Pure(0.125))
        used.path.write_bytes(older)
        with pytest.raises(LedgerError, match="no longer what this process has read"):
            used.charge(Pure(0.125))


class TestTroubleWhileCharging:
    """Whatever goes wrong, a charge is either whole or absent, and an absent one raised."""

    def test_read_only_file(self, pure: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        pure.charge(Pure(0.5))
        connect = sqlite.connect
        monkeypatch.setattr(sqlite, "connect", lambda where, mode: connect(where, "ro"))
        assert Ledger(pure.path).spent().epsilon == 0.5  # reading needs no permission to write
        with pytest.raises(LedgerError, match="it is read-only"):
            pure.charge(Pure(0.1))
        monkeypatch.undo()
        assert len(pure.history()) == 1

    def test_full_disk(self, pure: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        connect = sqlite.connect

        def on_a_full_disk(where: Path, mode: str) -> sqlite3.Connection:
            connection = connect(where, mode)
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        monkeypatch.setattr(sqlite, "connect", on_a_full_disk)
        with pytest.raises(LedgerError, match="disk is full"):
            pure.charge(Pure(0.1), label="long " * 5000)
        monkeypatch.undo()
        assert pure.history() == []
        pure.charge(Pure(1.0))

    def test_a_lock_that_is_never_released(self, pure: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite, "PATIENCE_SECONDS", 0.05)
        monkeypatch.setattr(sqlite, "ATTEMPT_SECONDS", 0.02)
        other = sqlite3.connect(pure.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="kept it locked"):
            pure.charge(Pure(0.1))
        other.execute("ROLLBACK")
        other.close()
        assert pure.charge(Pure(0.1)).sequence == 1

    def test_an_event_that_cannot_be_read_back(self, pure: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        class Unknown(Pure):
            pass

        monkeypatch.delitem(Event.kinds, "Unknown")
        with pytest.raises(LedgerError):
            pure.charge(Unknown(0.1))
        assert pure.history() == []

    @pytest.mark.parametrize(
        ("moment", "recorded"), [("BEGIN", 1), ("INSERT", 1), ("COMMIT", 1), ("after", 2)]
    )
    def test_killed(self, pure: Ledger, moment: str, recorded: int) -> None:
        pure.charge(Pure(0.25))
        script = f"""
import os, signal, sqlite3
from discreet.privacy.events import Pure
from discreet.privacy.ledger.ledger import Ledger
ledger = Ledger({str(pure.path)!r})
class Deadly(sqlite3.Connection):
    def execute(self, statement, *values):
        if statement.startswith({moment!r}):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(statement, *values)
connect = sqlite3.connect
sqlite3.connect = lambda *names, **options: connect(*names, factory=Deadly, **options)
ledger.charge(Pure(0.25))
os.kill(os.getpid(), signal.SIGKILL)
"""
        ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        for reader in (pure, Ledger(pure.path)):
            reader.verify()
            assert len(reader.history()) == recorded
        assert pure.charge(Pure(0.25)).sequence == recorded + 1


class TestSharing:
    def test_one_identity(self, pure: Ledger, tmp_path: Path) -> None:
        other = Ledger(tmp_path / "other", 1.0, 0.0)
        link = tmp_path / "link"
        link.symlink_to(pure.path)
        assert pure == Ledger(link) == Ledger(os.path.relpath(pure.path))
        assert len({pure, Ledger(link), other}) == 2
        assert pure != other
        assert pure != str(pure.path)
        assert all(twin is pure for twin in (clone(pure), copy.copy(pure), copy.deepcopy([pure])[0]))
        assert repr(pure) == (
            f"Ledger({str(pure.path)!r}, epsilon=1.0, delta=0.0, neighboring='replace-one', adaptive=True, "
            "unit='record')"
        )
        assert eval(repr(pure)) == pure

    def test_pickles_carry_no_charges(self, pure: Ledger) -> None:
        carried = pickle.dumps(pure)
        pure.charge(Pure(0.75))
        reopened = pickle.loads(carried)
        assert reopened.spent().epsilon == 0.75
        with pytest.raises(BudgetExceeded):
            reopened.charge(Pure(0.5))

    def test_threads(self, path: Path) -> None:
        ledger, admitted, refused = Ledger(path, 1.0, 0.0), [], []

        def work() -> None:
            for _ in range(10):
                try:
                    admitted.append(ledger.charge(Pure(0.03125)).sequence)
                except BudgetExceeded:
                    refused.append(1)

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(admitted) == list(range(1, 33))
        assert len(refused) == 18
        Ledger(path).verify()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
    def test_forks_while_another_thread_charges(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 0.0)
        thread = threading.Thread(target=lambda: [ledger.charge(Pure(2**-8)) for _ in range(100)])
        thread.start()
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for _ in range(5):
                        ledger.charge(Pure(2**-8))
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        thread.join()
        assert codes == [0] * 4
        assert len(Ledger(path).history()) == 120

    def test_workers_of_joblib(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 0.0)
        charges = Parallel(n_jobs=2)(delayed(ledger.charge)(Pure(0.125), label=str(i)) for i in range(8))
        assert sorted(charge.sequence for charge in charges) == list(range(1, 9))
        with pytest.raises(BudgetExceeded):
            ledger.charge(Pure(0.125))

    def test_cross_validation_shares_the_budget(self, path: Path) -> None:
        class Majority(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
            """Inside the test, so that workers receive the class itself."""

            def __init__(self, ledger: Ledger | None = None) -> None:
                self.ledger = ledger

            def fit(self, X: Any, y: Any) -> Any:
                self.ledger.charge(Pure(0.25), label="fold")  # type: ignore[union-attr]
                self.classes_ = np.array([0, 1])
                return self

            def predict(self, X: Any) -> Any:
                return np.zeros(len(X), dtype=int)

        ledger = Ledger(path, 1.0, 0.0)
        X, y = np.zeros((12, 1)), np.tile([0, 1], 6)
        scores = cross_val_score(Majority(ledger), X, y, cv=3, n_jobs=2, error_score="raise")
        assert scores == pytest.approx(0.5)
        assert len(ledger.history()) == 3
        with pytest.raises(BudgetExceeded):
            cross_val_score(Majority(ledger), X, y, cv=3, n_jobs=2, error_score="raise")
        assert len(ledger.history()) == 4

    def test_a_race_with_a_killed_process(self) -> None:
        result = measure(processes=4, charges=30)
        assert {name: value for name, value in result.items() if name.startswith("ok_") and not value} == {}
        assert result["charged"] <= result["room"] < result["attempted"]
