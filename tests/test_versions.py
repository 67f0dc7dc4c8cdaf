"""Files of version 0.1.0 (tests/data/0.1.0, made by the script there) open, go on and say what they do not know."""

from __future__ import annotations

import json
import shutil
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest

from discreet import BudgetExceeded, Ledger, PrivateFTRL, PrivateLabeler, PrivateOnlineLinearModel, card
from discreet.cli import main
from discreet.privacy.events import Pure
from discreet.release import release_digest

SAMPLES = Path(__file__).parent / "data" / "0.1.0"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())
LEDGERS, MODELS = EXPECTED["ledgers"], EXPECTED["models"]
PAID_BY = {name: "users" if name in ("users", "recommender") else "records" for name in MODELS}


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(SAMPLES, tmp_path / "samples"))


def rows(path):
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT sequence, time, who, label, event, neighboring, closes, digest FROM charges ORDER BY sequence"
    ).fetchall()
    connection.close()
    return found


def described(ledger):
    return [
        [charge.sequence, charge.time, charge.who, charge.label, charge.event.to_dict(), charge.digest]
        for charge in ledger.history()
    ]


@pytest.mark.parametrize("name", LEDGERS)
def test_ledgers_are_read_without_being_changed(name, folder):
    path = folder / f"{name}.ledger"
    before = path.read_bytes()
    ledger = Ledger(path)
    assert described(ledger) == LEDGERS[name]["charges"]
    assert ledger.spent().epsilon == pytest.approx(LEDGERS[name]["spent"], rel=1e-9)
    assert {(charge.unit, charge.kind, charge.released) for charge in ledger.history()} == {
        (None, None, None)
    }
    assert ledger.head == LEDGERS[name]["charges"][-1][-1]
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", LEDGERS)
def test_ledgers_go_on_and_old_charges_stay_as_they_are(name, folder):
    path = folder / f"{name}.ledger"
    before, ledger, twin = rows(path), Ledger(path), Ledger(path)
    made = ledger.charge(Pure(0.01), label="new")
    assert (made.unit, made.kind) == (ledger.unit, "dp")
    receipt = ledger.bind(ledger.receipt(made), release_digest({"x": 1.0}))
    assert receipt.bound
    assert rows(path)[:-1] == before
    again = Ledger(path)
    assert described(again)[:-1] == LEDGERS[name]["charges"]
    assert again.history()[-1].released == receipt.released
    assert again.head == twin.head == receipt.head
    twin.charge(Pure(0.01))
    Ledger(path).verify()
    with pytest.raises(BudgetExceeded):
        again.charge(Pure(100.0))


def test_an_old_charge_can_be_bound_and_keeps_its_digest(folder):
    path = folder / "records.ledger"
    ledger = Ledger(path)
    before = rows(path)
    assert ledger.bind(ledger.receipt(ledger.history()[0]), "0" * 64).bound
    assert rows(path) == before
    assert Ledger(path).history()[0].unit is None


def test_an_upgraded_ledger_has_the_schema_of_a_new_one(folder, tmp_path):
    Ledger(folder / "fixed.ledger").charge(Pure(0.01))
    new = Ledger(tmp_path / "new.ledger", 1.0, 0.0)

    def schema(path):
        return dict(sqlite3.connect(path).execute("SELECT name, sql FROM sqlite_master"))

    assert schema(folder / "fixed.ledger") == schema(new.path)


@pytest.mark.parametrize("name", MODELS)
def test_models_load_predict_and_verify(name, folder):
    path, expected = folder / f"{name}.json", MODELS[name]
    model = card.load(path)
    if "scores" in expected:
        scores = getattr(model, "decision_function", model.predict)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the probe has no column names
            np.testing.assert_array_equal(scores(np.array(EXPECTED["probe"])), expected["scores"])
    assert card.verify(path).claimed.unit == expected["unit"]
    if expected["charge"] is None:
        return
    found = card.verify(path, ledger=folder / f"{PAID_BY[name]}.ledger")
    assert (found.charge, found.matches, found.unit_recorded) == (expected["charge"], None, False)
    assert "unit and kind are not recorded by the ledger" in str(found)
    assert "Release     not recorded by the ledger" in str(found)
    card.save(model, path, overwrite=True)
    assert card.verify(path, ledger=folder / f"{PAID_BY[name]}.ledger").charge == expected["charge"]


def test_what_is_not_known_reads_not_recorded(folder, capsys):
    assert main(["ledger", "history", str(folder / "users.ledger")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("not recorded") == 2 * len(LEDGERS["users"]["charges"])


@pytest.mark.parametrize("name", ["labeler", "pool"])
def test_labelers_go_on_where_they_stopped(name, folder):
    labeler = PrivateLabeler.resume(folder / f"{name}.stream")
    assert labeler.remaining == EXPECTED[name]
    answers = labeler.label(EXPECTED["probe"]) if name == "labeler" else labeler.label_rows([0, 1])
    assert set(answers) <= {0, 1}
    assert labeler.remaining != EXPECTED[name]


@pytest.mark.parametrize("name", ["sampling", "tree"])
def test_streams_go_on_where_they_stopped(name, folder):
    learner = PrivateFTRL.resume(folder / f"{name}.stream", at_least=EXPECTED[name])
    assert learner.step == EXPECTED[name]
    learner.learn_one([0.1, 0.2, 0.3])
    assert learner.step == EXPECTED[name] + 1


def test_online_models_go_on_where_they_stopped(folder):
    model = PrivateOnlineLinearModel.resume(folder / "linear.stream")
    assert model.learn_one([0.1, 0.2, 0.3], "yes").step == EXPECTED["linear"] + 1
