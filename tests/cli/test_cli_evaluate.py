"""``discreet evaluate``: from a fitted model file and a held-out table to metrics, charged once."""

import json

import numpy as np
import pytest

from discreet import Ledger
from discreet.cli import main

SCHEMA = """
[columns.x]
kind = "numeric"
lower = -1
upper = 1

[columns.place]
kind = "categorical"
categories = ["north", "south"]

[target]
column = "ill"
classes = ["no", "yes"]
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for name, rows in (("train", 3000), ("test", 2000)):
        x = rng.uniform(-1, 1, size=rows)
        ill = np.where(3 * x + rng.logistic(size=rows) > 0, "yes", "no")
        place = rng.choice(["north", "south"], size=rows)
        lines = [f"{a:.4f},{b},{c}" for a, b, c in zip(x, place, ill, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,place,ill", *lines]) + "\n")
    fit = ["fit", str(tmp_path / "train.csv"), "--schema", str(tmp_path / "schema.toml")]
    assert main([*fit, "--epsilon", "2", "--output", str(tmp_path / "model.json")]) == 0
    return tmp_path


def test_evaluate(folder, capsys):
    ledger = Ledger(folder / "budget", epsilon=1.0, delta=1e-5)
    command = ["evaluate", str(folder / "model.json"), str(folder / "test.csv"), "--epsilon", "0.9"]
    options = ["--delta", "1e-6", "--by", "place", "--ledger", str(folder / "budget")]
    assert main([*command, *options, "--output", str(folder / "metrics.json")]) == 0
    out = capsys.readouterr().out
    assert "accuracy" in out
    assert "group 'south'" in out
    assert "AUC" in out
    stored = json.loads((folder / "metrics.json").read_text())
    assert stored["metrics"]["accuracy"]["value"] > 0.65
    assert len(ledger.history()) == 1
    assert main([*command, *options]) == 1  # the budget is spent
    assert "does not fit" in capsys.readouterr().err


def test_evaluate_refuses_a_group_that_is_no_category(folder, capsys):
    command = ["evaluate", str(folder / "model.json"), str(folder / "test.csv"), "--epsilon", "1"]
    assert main([*command, "--by", "x"]) == 1
    assert "categorical column" in capsys.readouterr().err


def test_evaluate_notices_an_output_it_cannot_write_before_it_charges(folder, capsys):
    ledger = Ledger(folder / "budget", epsilon=10.0, delta=1e-3)
    model, data = folder / "model.json", folder / "test.csv"
    command = ["evaluate", str(model), str(data), "--epsilon", "1", "--ledger", str(folder / "budget")]
    before = {path.name: path.read_bytes() for path in (model, data)}
    (folder / "link.csv").symlink_to(data)
    for place, message in (
        (folder / "missing" / "metrics.json", "cannot write"),
        (folder, "cannot write"),
        (folder / "schema.toml", "pass --overwrite"),
        (model, "would replace the input file"),
        (folder / "link.csv", "would replace the input file"),
        (folder / "budget", "would replace the input file"),
    ):
        also = [] if "overwrite" in message else ["--overwrite"]
        assert main([*command, "--output", str(place), *also]) == 1
        assert message in capsys.readouterr().err
    assert not ledger.history()
    assert before == {path.name: path.read_bytes() for path in (model, data)}


def test_evaluate_replaces_metrics_if_asked_to(folder):
    place = folder / "metrics.json"
    place.write_text("old")
    command = ["evaluate", str(folder / "model.json"), str(folder / "test.csv"), "--epsilon", "1"]
    assert main([*command, "--output", str(place), "--overwrite"]) == 0
    assert "metrics" in json.loads(place.read_text())


def test_metrics_are_printed_even_if_the_file_fails_at_the_last_moment(folder, capsys, monkeypatch):
    import discreet._files

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(discreet._files, "check_writable", lambda path, size: None)
    monkeypatch.setattr(discreet._files, "write_atomically", full)
    command = ["evaluate", str(folder / "model.json"), str(folder / "test.csv"), "--epsilon", "1"]
    assert main([*command, "--output", str(folder / "metrics.json")]) == 1
    told = capsys.readouterr()
    assert "accuracy" in told.out
    assert "No space left" in told.err


@pytest.mark.parametrize("place", ["test.csv", "model.json"])
def test_predict_does_not_replace_what_it_reads(folder, capsys, place):
    before = (folder / place).read_bytes()
    command = ["predict", str(folder / "model.json"), str(folder / "test.csv")]
    assert main([*command, "--output", str(folder / place)]) == 1
    assert "would replace the input file" in capsys.readouterr().err
    assert (folder / place).read_bytes() == before


def test_fit_does_not_replace_what_it_reads(folder, capsys):
    before = (folder / "train.csv").read_bytes()
    fit = ["fit", str(folder / "train.csv"), "--schema", str(folder / "schema.toml"), "--epsilon", "2"]
    assert main([*fit, "--output", str(folder / "train.csv"), "--overwrite"]) == 1
    assert "would replace the input file" in capsys.readouterr().err
    assert (folder / "train.csv").read_bytes() == before


def test_a_share_of_nobody_is_printed_as_a_dash():
    from discreet.evaluation.estimates import UNKNOWN

    assert str(UNKNOWN) == "-"


GROUPED = SCHEMA.replace("[columns.x]", 'group = "who"\n\n[columns.x]', 1)


def test_a_schema_with_a_group_column_is_evaluated_per_person_or_not_at_all(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=4000)
    ill = np.where(3 * x + rng.logistic(size=4000) > 0, "yes", "no")
    lines = [f"{a:.4f},north,{b},p{place // 2}" for place, (a, b) in enumerate(zip(x, ill, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(["x,place,ill,who", *lines]) + "\n")
    (tmp_path / "schema.toml").write_text(GROUPED)
    model, data, budget = (str(tmp_path / name) for name in ("model.json", "rows.csv", "budget"))
    fit = ["fit", data, "--schema", str(tmp_path / "schema.toml"), "--epsilon", "4", "--output", model]
    assert main([*fit, "--max-rows-per-group", "2"]) == 0
    ledger = Ledger(budget, epsilon=3.0, delta=1e-5, unit="user")
    command = ["evaluate", model, data, "--epsilon", "2", "--delta", "1e-6", "--ledger", budget]
    assert main(command) == 1
    assert "--max-rows-per-group" in capsys.readouterr().err
    assert not ledger.history()
    out = str(tmp_path / "metrics.json")
    assert main([*command, "--max-rows-per-group", "2", "--by", "place", "--output", out]) == 0
    stored = json.loads((tmp_path / "metrics.json").read_text())
    assert stored["privacy"]["guarantee"]["unit"] == "user"
    assert len(ledger.history()) == 1


def test_the_old_name_of_subgroups_is_answered_with_the_new_one(folder, capsys):
    command = ["evaluate", str(folder / "model.json"), str(folder / "test.csv"), "--epsilon", "1"]
    assert main([*command, "--group", "place"]) == 1
    assert "--by place" in capsys.readouterr().err
