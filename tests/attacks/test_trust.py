"""Attacks that made a ledger, a file or a page of version 0.1.0 say what was not so; `test_claims` says how to run."""

import base64
import hashlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_claims import moved

import discreet
from discreet import card
from discreet.cli import main
from discreet.privacy.events import BoundedRange, Composed, Laplace
from tests.privacy.ledger.test_locks import from_another_process

posix = pytest.mark.skipif(os.name != "posix", reason="locks and permissions of POSIX systems")


def fitted(**parameters):
    rows = np.random.default_rng(0).uniform(-1, 1, size=(400, 2)) / 2
    told = {"classes": [0, 1], **parameters}
    return discreet.PrivateLogisticRegression(1.0, 1e-6, **told).fit(rows, (rows[:, 0] > 0).astype(int))


def resealed(path, change):
    """Change a file as someone would who knows how to make checksums."""
    content = json.loads(path.read_text())
    change(content)
    seals = {name: content.pop(name) for name in ("sha256", "signature") if name in content}
    text = json.dumps(content, separators=(",", ":"))
    path.write_text(json.dumps(content | seals | {"sha256": hashlib.sha256(text.encode()).hexdigest()}))


def numbers(content, place):
    """The part of a file that holds something, wherever this version keeps it."""
    if isinstance(content, dict):
        for name, part in content.items():
            if name == place:
                yield content
            yield from numbers(part, place)
    if isinstance(content, list):
        for part in content:
            yield from numbers(part, place)


# -- ledgers --------------------------------------------------------------------------------------------------------


@posix
def test_a_refused_write_keeps_the_lock_of_a_charge(tmp_path):
    """Closing any handle on a file drops its locks: 110 charges were acknowledged under a cap of 100."""
    path = tmp_path / "budget.ledger"
    ledger, model = discreet.Ledger(path, 1.0, 1e-6), fitted()
    charging = sqlite3.connect(path, isolation_level=None)  # as a charge in another thread
    charging.execute("BEGIN IMMEDIATE")
    with pytest.raises((FileExistsError, card.CardError, ValueError)):
        card.save(model, path)
    asked = from_another_process(path)
    charging.close()
    assert asked == "locked"
    assert ledger.history() == []


def test_a_label_does_not_decide_whom_a_charge_protects(tmp_path):
    ledger = discreet.Ledger(tmp_path / "budget.ledger", 9.0, 1e-5)
    path, model = tmp_path / "model.json", fitted()
    charge = ledger.charge(model.privacy_.event, label="weekly report, per user", neighboring="replace-one")
    model.privacy_ = discreet.PrivacyStatement.from_dict(
        {**model.privacy_.to_dict(), "paid": {**_receipt(ledger, charge)}}
    )
    card.save(model, path)
    resealed(path, lambda content: content["privacy"]["guarantee"].update(unit="user"))
    with pytest.raises(card.CardError, match="different unit"):
        card.verify(path, ledger=ledger)


def _receipt(ledger, charge):
    """What a file says that names this charge."""
    found = ledger.receipt(charge)
    return {name: getattr(found, name) for name in ("ledger", "charge", "digest")}


@pytest.mark.parametrize("shown", ["history", "show"])
def test_a_label_cannot_hide_a_line_of_a_ledger(shown, tmp_path, capsys):
    ledger = discreet.Ledger(tmp_path / "budget.ledger", 9.0, 1e-5)
    ledger.charge(Laplace(10.0), label="\x1b[1A\x1b[2K\x1b[8m\nnothing", who="\x1b[8mnobody")
    assert main(["ledger", shown, str(ledger.path)]) == 0
    assert "\x1b[8m" not in capsys.readouterr().out


# -- model files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (
            "library",
            "0.1.0\nClaimed     epsilon 0.1, delta 1e-09, unit: user\nSignature   by the given key\x1b[8m",
        ),
        ("unit", "record\x1b[8m"),
    ],
)
def test_a_file_cannot_forge_the_report_about_itself(place, value, tmp_path, capsys):
    path = tmp_path / "model.json"
    card.save(fitted(), path)
    resealed(path, lambda content: [part.update({place: value}) for part in numbers(content, place)])
    main(["verify", str(path)])
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\nSignature   by the given key" not in told.out + told.err


@pytest.mark.parametrize(("name", "value"), [("ledger", "evil.db"), ("random_state", 7)])
def test_a_file_cannot_set_the_ledger_or_the_seed_of_later_fits(name, value, tmp_path):
    path = tmp_path / "model.json"
    card.save(fitted(), path)
    resealed(path, lambda content: content["parameters"].update({name: value}))
    try:
        model = card.load(path)
    except card.CardError:
        return
    assert getattr(model, name, None) != value


def test_a_charge_pays_for_no_other_kind_of_promise(tmp_path):
    ledger = discreet.Ledger(tmp_path / "budget.ledger", 9.0, 1e-5)
    path = tmp_path / "model.json"
    card.save(fitted(ledger=ledger), path)
    assert card.verify(path, ledger=ledger).charge == 1
    resealed(path, lambda content: content["privacy"]["guarantee"].update(kind="joint-dp"))
    with pytest.raises(card.CardError, match="different kind"):
        card.verify(path, ledger=ledger)


def test_a_charge_pays_for_no_other_numbers(tmp_path):
    """Coefficients were replaced, the checksum recomputed, and the ledger found the file paid for."""
    ledger = discreet.Ledger(tmp_path / "budget.ledger", 9.0, 1e-5)
    path = tmp_path / "model.json"
    card.save(fitted(ledger=ledger), path)
    other = base64.b64encode(np.array([[5.0, -5.0]]).tobytes()).decode()
    resealed(path, lambda content: content["arrays"]["coef_"].update(base64=other))
    assert card.load(path).coef_.tolist() == [[5.0, -5.0]]
    with pytest.raises(card.CardError):
        card.verify(path, ledger=ledger)


def test_the_report_on_a_checksum_does_not_say_unchanged(tmp_path, capsys):
    path = tmp_path / "model.json"
    card.save(fitted(), path)
    main(["verify", str(path)])
    assert "unchanged" not in capsys.readouterr().out


HOSTILE = {
    "different Laplace events": lambda: Composed(tuple(Laplace(1000.0 + i) for i in range(3000))),
    "different ranges": lambda: Composed(tuple(BoundedRange(0.001 + i / 1e6) for i in range(1500))),
}


@pytest.mark.parametrize("name", HOSTILE)
@posix
def test_a_small_file_does_not_keep_verify_busy(name, tmp_path):
    """Ten seconds of a processor are more than a price may take, and a fraction of what these took."""
    path, model = tmp_path / "model.json", fitted()
    event = discreet.PrivacyStatement(
        model.privacy_.guarantee, HOSTILE[name](), "a mechanism", "a theorem"
    ).to_dict()["event"]
    card.save(model, path)
    resealed(path, lambda content: content["privacy"].update(event=event))
    code = "import sys; from discreet import card\ntry: card.verify(sys.argv[1])\nexcept card.CardError: pass"
    ended = subprocess.run(
        [sys.executable, "-c", code, path],
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (10, 11)),
    )
    assert ended.returncode == 0


# -- commands, pages and what they leave behind ---------------------------------------------------------------------

SCHEMA = """
group = "who"

[columns.x]
kind = "numeric"
lower = -1
upper = 1

[target]
column = "ill"
classes = ["no", "yes"]
"""


@pytest.fixture
def folder(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, size=2000)
    lines = [f"{a:.4f},{'yes' if a > 0 else 'no'},p{place // 4}" for place, a in enumerate(x)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,ill,who", *lines]) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    fit = ["fit", str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "schema.toml"), "--epsilon", "4"]
    assert main([*fit, "--max-rows-per-group", "4", "--output", str(tmp_path / "model.json")]) == 0
    return tmp_path


def test_a_table_of_people_is_not_evaluated_row_by_row(folder, capsys):
    """The schema names a column of people, and the statement said that each person is one row."""
    command = [
        "evaluate",
        str(folder / "model.json"),
        str(folder / "rows.csv"),
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    ]
    assert main(command) != 0
    assert "--max-rows-per-group" in capsys.readouterr().err


@posix
def test_predictions_and_ledgers_are_their_owners_alone(folder):
    mask = os.umask(0o022)
    try:
        written = ["predict", str(folder / "model.json"), str(folder / "rows.csv")]
        assert main([*written, "--output", str(folder / "predictions.csv")]) == 0
        discreet.Ledger(folder / "budget.ledger", 1.0, 0.0).charge(Laplace(10.0))
    finally:
        os.umask(mask)
    for name in ("predictions.csv", "budget.ledger"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name


def test_a_name_cannot_swallow_the_script_of_a_page(tmp_path):
    pytest.importorskip("vl_convert")
    model = fitted()
    model.feature_names_in_ = np.array(["<!--<script>", "other"], dtype=object)
    card.to_html(model, tmp_path / "page.html")
    assert "<!--" not in (tmp_path / "page.html").read_text()


@posix
def test_the_journal_of_a_stream_does_not_outlive_it(tmp_path):
    """SQLite's journal held the teachers' pages, and was deleted as it was."""
    stream_file = moved("discreet.online.stream_file", "discreet.transfer.stream_file")
    place, kept, mark = tmp_path / "stream.db", tmp_path / "kept", b"a teacher's private page"
    stream_file.create(place, mark * 2000, {"left": 3})

    def forget():
        os.link(
            f"{place}-journal", kept
        )  # a second link keeps the bytes that deleting would leave on the disk
        return "nothing"

    stream_file.spend(place, 1, lambda: (None, {"left": 0}), forget)
    assert mark not in kept.read_bytes()
