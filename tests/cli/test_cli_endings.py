"""Commands that end early: signals, readers that leave, full disks, taken names; nothing paid for is lost unsaid."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from discreet import Ledger, __main__, card, cli, release
from discreet.cli import main
from discreet.privacy.events import Pure
from discreet.tables.schema import Numeric, Schema, Target


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a table, its schema, a model and a ledger."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=500)
    labels = np.where(3 * x + rng.logistic(size=500) > 0, "yes", "no")
    lines = [f"{value:.4f},{label}" for value, label in zip(x, labels, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["x,ill", *lines]) + "\n")
    Schema({"x": Numeric(-1, 1)}, Target("ill", ("no", "yes"))).to_file("schema.toml")
    assert main([*FIT, "--output", "model.json"]) == 0
    Ledger("budget.db", 50.0, 1e-3)
    return tmp_path


FIT = ["fit", "table.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6"]
EVALUATE = ["evaluate", "model.json", "table.csv", "--epsilon", "1", "--delta", "1e-6"]
PREDICT = ["predict", "model.json", "table.csv"]
EXPORT = ["ledger", "export", "budget.db"]
PAID = ["--ledger", "budget.db"]


def charges():
    return len(Ledger("budget.db").history())


# --- signals ---


def test_a_request_to_end_tells_whether_it_was_charged(folder, capsys, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(release, "run", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert main([*FIT, *PAID, "--output", "second.json"]) == 143
    told = capsys.readouterr().err
    assert (
        "interrupted; the ledger was charged (number 1, PrivateLogisticRegression), and a charge stays"
        in told
    )
    assert not (folder / "second.json").exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interruption_after_the_model_was_written_says_where_it_is(folder, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.options, "print_balance", interrupted)
    assert main([*FIT, *PAID, "--output", "second.json"]) == 130
    assert (
        "interrupted; the model is in second.json; the ledger was charged (number 1"
        in capsys.readouterr().err
    )


def test_an_interruption_in_the_midst_of_a_charge_says_that_it_does_not_know(folder, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "charge", interrupted)
    assert main([*FIT, *PAID, "--output", "second.json"]) == 130
    assert "interrupted; the ledger may have been charged, and" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_charges_of_others_are_not_told_as_ones_own(folder, capsys, monkeypatch, error):
    def overtaken(*_, **__):
        Ledger("budget.db").charge(Pure(0.1), label="of somebody else")
        raise error("something went wrong")

    monkeypatch.setattr(release, "charge", overtaken)
    assert main([*FIT, *PAID, "--output", "second.json"]) in (1, 130)
    told = capsys.readouterr().err
    assert "was charged (number" not in told
    assert ("nothing was charged" in told) == (error is KeyboardInterrupt)


def test_interruptions_are_quiet_before_and_after_the_work(monkeypatch):
    handlers = []

    def note():
        handlers.append(signal.getsignal(signal.SIGINT))
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(cli, "main", note)
        assert __main__.run() == 130
        assert handlers == [signal.default_int_handler]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background job
        assert __main__.run() == 130
        assert handlers[1:] == [signal.SIG_IGN]
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_package_is_a_program():
    run = subprocess.run([sys.executable, "-m", "discreet", "--version"], capture_output=True, text=True)
    assert run.returncode == 0
    assert run.stdout.startswith("discreet ")


# --- standard output that fails ---


def into_broken_pipe(command):
    """Run a command whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream, contextlib.redirect_stdout(stream):
        return main(command)


def into_full_disk(command, place):
    """Run a command whose output goes to a disk without space."""

    class Full(io.FileIO):
        def write(self, _content):
            raise OSError(28, "No space left on device")

    stream = io.TextIOWrapper(io.BufferedWriter(Full(place, "w")))
    with contextlib.redirect_stdout(stream):
        code = main(command)
    with contextlib.suppress(OSError):
        stream.close()
    return code


def test_a_reader_that_left_is_told_where_the_model_is(folder, capsys):
    assert into_broken_pipe([*FIT, *PAID, "--output", "second.json"]) == 141
    told = capsys.readouterr().err
    assert "standard output was closed; the model is in second.json; the ledger was charged (number 1" in told
    assert card.load("second.json").privacy_.epsilon == 1.0


def test_a_reader_that_left_loses_nothing_else(folder, capsys):
    assert into_broken_pipe(["ledger", "show", "budget.db"]) == 141
    assert capsys.readouterr().err == ""


def test_a_full_disk_behind_standard_output_is_told_with_the_charge(folder, capsys):
    assert into_full_disk([*FIT, *PAID, "--output", "second.json"], folder / "output.txt") == 1
    told = capsys.readouterr().err
    assert (
        "standard output could not be written: No space left on device; the model is in second.json" in told
    )
    assert "the ledger was charged (number 1" in told


def test_metrics_are_written_before_they_are_printed(folder, capsys):
    assert into_broken_pipe([*EVALUATE, *PAID, "--output", "metrics.json"]) == 141
    assert "accuracy" in json.loads((folder / "metrics.json").read_text())["metrics"]
    assert "the metrics are in metrics.json; the ledger was charged (number 1" in capsys.readouterr().err


def test_metrics_go_to_standard_error_if_that_is_all_there_is(folder, capsys):
    assert into_broken_pipe([*EVALUATE, *PAID]) == 141
    told = capsys.readouterr().err
    assert "accuracy" in told
    assert "the ledger was charged (number 1, evaluate)" in told


def test_metrics_are_not_paid_for_without_a_place_to_go(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main([*EVALUATE, *PAID]) == 1
    assert "standard output is closed" in capsys.readouterr().err
    assert charges() == 0
    assert main([*EVALUATE, *PAID, "--output", "metrics.json"]) == 0
    assert (folder / "metrics.json").stat().st_size > 0


def test_tables_without_standard_output(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["ledger", "history", "budget.db"]) == 0
    assert capsys.readouterr().err == ""


def test_a_name_that_the_terminal_cannot_show_costs_nothing(folder, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    (folder / "blø.csv").write_bytes((folder / "table.csv").read_bytes())
    assert main(["schema", "check", "schema.toml", "blø.csv"]) == 0
    assert b"bl\\xf8.csv" in stream.buffer.getvalue()


# --- files that are there already ---


@pytest.mark.parametrize(
    "command", [FIT, EVALUATE, PREDICT, EXPORT], ids=lambda command: " ".join(command[:2])
)
def test_files_are_replaced_only_if_asked_to_and_ledgers_never(folder, capsys, command):
    (folder / "there.csv").write_text("precious")
    paid = PAID if command in (FIT, EVALUATE) else []
    assert main([*command, *paid, "--output", "there.csv"]) == 1
    assert "pass --overwrite" in capsys.readouterr().err
    assert (folder / "there.csv").read_text() == "precious"
    Ledger("other.db", 1.0, 1e-6)
    for place in ("other.db", "budget.db"):
        assert main([*command, *paid, "--output", place, "--overwrite"]) == 1
        told = capsys.readouterr().err
        assert "a ledger is never replaced" in told or "would replace the input file" in told
    assert charges() == len(Ledger("other.db").history()) == 0
    assert main([*command, *paid, "--output", "there.csv", "--overwrite"]) == 0
    assert (folder / "there.csv").read_text() != "precious"


def test_an_export_does_not_replace_what_it_reads(folder, capsys):
    os.link("budget.db", "same.db")
    assert main([*EXPORT, "--output", "same.db", "--overwrite"]) == 1
    assert "would replace the input file" in capsys.readouterr().err
    assert charges() == 0


def test_output_to_a_dash_or_a_folder(folder, capsys):
    for place, told in (("-", "needs a file name, got '-'"), (".", "is a folder")):
        assert main([*FIT, *PAID, "--output", place]) == 1
        assert told in capsys.readouterr().err
    assert charges() == 0


def test_of_two_fits_to_one_name_only_one_is_paid_for(folder, capsys, monkeypatch):
    save, rival = card.save, []

    def save_later(*arguments, **options):
        rival.append(main([*FIT, *PAID, "--output", "new.json"]))
        save(*arguments, **options)

    monkeypatch.setattr(card, "save", save_later)
    assert main([*FIT, *PAID, "--output", "new.json"]) == 0
    assert rival == [1]
    assert "'new.json' exists" in capsys.readouterr().err
    assert charges() == 1
    assert card.load("new.json").privacy_.epsilon == 1.0


def test_too_many_bins_are_refused_before_the_charge(folder, capsys):
    assert main([*EVALUATE, *PAID, "--bins", "100000000"]) == 1
    assert "bins must be at most 10000" in capsys.readouterr().err
    assert charges() == 0
