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
    options = ["--delta", "1e-6", "--group", "place", "--ledger", str(folder / "budget")]
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
    assert main([*command, "--group", "x"]) == 1
    assert "categorical column" in capsys.readouterr().err
