"""Whole walks from the shell alone: of a statistician, a privacy officer and a platform engineer.

Each begins with what a newcomer types, mistakes included, and every message leads to the next command. The walk of a
data scientist is the notebook `examples/first_model.ipynb`.
"""

from __future__ import annotations

import hashlib
import json
import shlex

import numpy as np
import pyarrow.parquet as pq
import pytest

from discreet import Ledger, card
from discreet.card.card import from_array
from discreet.cli import main
from discreet.tables.reading import read_table

COLUMNS = """
[columns.age]
kind = "numeric"
lower = 18
upper = 98

[columns.ward]
kind = "categorical"
categories = ["north", "south"]
"""
VISITS = 3000


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Run command lines in an empty folder; gives what was printed, to standard error if it must fail."""
    monkeypatch.chdir(tmp_path)

    def run(line, code=0):
        capsys.readouterr()
        try:
            ended = main(shlex.split(line)[1:])
        except SystemExit as stopped:
            ended = stopped.code
        captured = capsys.readouterr()
        assert ended == code, captured.err
        return captured.err if code else captured.out

    return run


def hospital(path, begin, end):
    """Visits of patients who come twice, as a European program would export them."""
    rng = np.random.default_rng(begin)
    lines = ["patient;age;ward;days;back"]
    for visit in range(begin, end):
        age, south = int(rng.integers(18, 98)), bool(rng.random() < 0.5)
        days = min(30.0, age / 8 + 5 * south + rng.exponential(1.0))
        back = rng.random() < 1 / (1 + np.exp(-(age - 58) / 8 - south))
        lines.append(
            f"p{visit // 2};{age};{'south' if south else 'north'};{days:.1f};{'yes' if back else 'no'}"
        )
    path.write_text("\n".join(lines) + "\n")


# --- the statistician: a regression, a hospital whose patients have several visits, a recommender ---


def test_a_regression(shell, tmp_path):
    hospital(tmp_path / "visits.csv", 0, VISITS)
    hospital(tmp_path / "held_out.csv", VISITS, 2 * VISITS)
    (tmp_path / "stay.toml").write_text(COLUMNS + '\n[target]\ncolumn = "days"\nbounds = [0, 30]\n')
    fit = "discreet fit visits.csv --schema stay.toml --epsilon 2 --ledger budget.db --output stay.json"
    assert "did you mean 'fit'?" in shell(fit.replace(" fit ", " fti "), 2)
    assert "`discreet ledger create` makes one" in shell(fit, 1)
    shell("discreet ledger create budget.db --epsilon 10 --delta 1e-5")
    assert "--separator ';'" in shell(fit, 1)
    assert "choose --model ridge" in shell(f"{fit} --separator ';' --model logistic", 1)
    fit += " --separator ';'"
    assert "No data was read" in shell(f"discreet plan --schema stay.toml --rows {VISITS} --epsilon 2")
    said = shell(fit)
    assert "Model written to stay.json" in said
    assert "more releases like this one" in said
    assert "coefficient" in shell("discreet show stay.json")
    shell("discreet predict stay.json held_out.csv --separator ';' --output days.csv")
    predicted = np.array(read_table("days.csv").column("prediction").to_pylist(), dtype=float)
    truth = np.array(read_table("held_out.csv", separator=";").column("days").to_pylist(), dtype=float)
    assert np.mean((predicted - truth) ** 2) < 0.5 * np.var(truth)
    assert "R^2" in shell(
        "discreet evaluate stay.json held_out.csv --separator ';' --epsilon 1 --ledger budget.db"
    )
    shell(
        "discreet intervals stay.json visits.csv --separator ';' --epsilon 2 --ledger budget.db --output i.json"
    )
    rows = {row["name"]: row for row in json.loads((tmp_path / "i.json").read_text())["coefficients"]}
    assert rows["age"]["lower"] < rows["age"]["estimate"] < rows["age"]["upper"]
    labels = [charge.label for charge in Ledger("budget.db").history()]
    assert labels == ["PrivateRidge", "evaluate", "coefficient_intervals"]
    assert "charge 1 of the given ledger" in shell("discreet verify stay.json --ledger budget.db")


def test_a_hospital_whose_patients_come_twice(shell, tmp_path):
    hospital(tmp_path / "visits.csv", 0, VISITS)
    hospital(tmp_path / "held_out.csv", VISITS, 2 * VISITS)
    target = '\n[target]\ncolumn = "back"\nclasses = ["no", "yes"]\n'
    (tmp_path / "people.toml").write_text('group = "patient"\n' + COLUMNS + target)
    shell("discreet ledger create budget.db --epsilon 20 --delta 1e-5 --unit user")
    plan = f"discreet plan --schema people.toml --people {VISITS // 2} --epsilon 3"
    assert "--max-rows-per-group K" in shell(plan, 1)
    assert "No data was read" in shell(f"{plan} --max-rows-per-group 2")
    fit = "discreet fit visits.csv --separator ';' --schema people.toml --epsilon 3 --ledger budget.db --output m.json"
    assert "--max-rows-per-group K" in shell(fit, 1)
    assert "Unit:             user" in shell(f"{fit} --max-rows-per-group 2")
    evaluate = (
        "discreet evaluate m.json held_out.csv --separator ';' --epsilon 3 --ledger budget.db --by ward"
    )
    assert "--max-rows-per-group K" in shell(evaluate, 1)  # a schema with people is never evaluated per row
    said = shell(f"{evaluate} --max-rows-per-group 2 --output metrics.json")
    assert "majority baseline" in said
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["privacy"]["guarantee"]["unit"] == "user"
    describe = (
        "discreet describe visits.csv --separator ';' --schema people.toml --epsilon 1 --ledger budget.db"
    )
    assert "--max-rows-per-group K" in shell(describe, 1)
    shell(f"{describe} --max-rows-per-group 2")
    assert {charge.unit for charge in Ledger("budget.db").history()} == {"user"}
    assert len(Ledger("budget.db").history()) == 3
    shown = shell("discreet ledger show budget.db")
    assert "per user" in shown
    assert "room for about" in shown
    shell("discreet key officer.pem officer.pub")
    shell("discreet sign m.json --key officer.pem --output signed.json")
    assert "not checked: no key was given" in shell("discreet verify signed.json")
    assert "by the given key" in shell("discreet verify signed.json --key officer.pub --ledger budget.db")
    raw = {"age": [20, 90], "ward": ["north", "south"]}
    assert card.load("signed.json").predict(raw).tolist() == ["no", "yes"]


def test_a_recommender(shell, tmp_path):
    rng = np.random.default_rng(0)
    taste = rng.uniform(-1, 1, size=(800, 1)) * np.linspace(-1, 1, 15)
    rated = rng.random(taste.shape) < 0.5
    lines = [f"u{u},film {i},{3 + 2 * taste[u, i]:.2f}" for u, i in zip(*np.nonzero(rated), strict=True)]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    (tmp_path / "films.txt").write_text("".join(f"film {i}\n" for i in range(15)))
    shell("discreet ledger create budget.db --epsilon 20 --delta 1e-4 --unit user")
    fit = "discreet fit ratings.csv --model recommender --epsilon 8 --ledger budget.db --output films.json"
    assert "there is no catalog 'film.txt'" in shell(f"{fit} --catalog film.txt", 1)
    assert "No data was read" in shell(
        "discreet plan --model recommender --people 800 --items 15 --epsilon 8"
    )
    assert "joint" in shell(f"{fit} --catalog films.txt")
    (charge,) = Ledger("budget.db").history()
    assert (charge.unit, charge.kind) == ("user", "joint-dp")
    (tmp_path / "me.csv").write_text("user,item,rating\nme,film 14,5\nme,film 13,5\nme,film 0,1\n")
    shell("discreet predict films.json me.csv --top 3 --output best.csv")
    best = read_table("best.csv")
    assert best["user"].to_pylist() == ["me"] * 3
    assert not {"film 14", "film 13", "film 0"} & set(best["item"].to_pylist())
    scores = [float(score) for score in best["score"].to_pylist()]
    assert scores == sorted(scores, reverse=True)
    assert "charge 1 of the given ledger" in shell("discreet verify films.json --ledger budget.db")


# --- the privacy officer ---


def forged(path, place):
    """The same file with other coefficients, and a checksum that is right again."""
    content = json.loads(path.read_text())
    del content["sha256"]
    content["arrays"]["coef_"] = from_array(np.ones(content["arrays"]["coef_"]["shape"]))
    canonical = json.dumps(content, separators=(",", ":")).encode()
    place.write_text(json.dumps({**content, "sha256": hashlib.sha256(canonical).hexdigest()}))


def test_a_privacy_officer(shell, tmp_path):
    """Asked to approve a file: is it what it says, who paid, what is left, and does somebody else compute the same?"""
    hospital(tmp_path / "visits.csv", 0, VISITS)
    target = '\n[target]\ncolumn = "back"\nclasses = ["no", "yes"]\n'
    (tmp_path / "schema.toml").write_text(COLUMNS + target)
    shell("discreet ledger create budget.db --epsilon 3 --delta 1e-5")
    shell(
        "discreet fit visits.csv --separator ';' --schema schema.toml --epsilon 1 --delta 1e-6 --ledger budget.db "
        "--solver noisy-gd --output model.json"
    )
    said = " ".join(shell("discreet verify model.json").split())
    assert "Signature none" in said
    assert "anyone can" in said  # recompute a checksum
    assert "charge 1 of the given ledger" in shell("discreet verify model.json --ledger budget.db")
    forged(tmp_path / "model.json", tmp_path / "forged.json")
    assert "are not those that its receipt is bound to" in shell("discreet verify forged.json", 1)
    shell(
        "discreet card model.json --dossier --ledger budget.db --purpose 'planning beds' --output dossier.md"
    )
    dossier = (tmp_path / "dossier.md").read_text()
    for words in ("NIST SP 800-226", "planning beds", "to be answered by the controller"):
        assert words in dossier
    assert "room for about" in shell("discreet ledger show budget.db")
    shell("discreet ledger export budget.db --output budget.json")
    (charge,) = json.loads((tmp_path / "budget.json").read_text())["charges"]
    statement = card.read("model.json").privacy
    assert charge["event"] == statement.to_dict()["event"]
    accounting = pytest.importorskip("dp_accounting")  # an accountant that is not ours, from the events alone
    whole = sum(count / noise**2 for noise, count in multipliers(charge["event"])) ** -0.5
    theirs = accounting.get_epsilon_gaussian(whole, 1e-6)
    assert theirs == pytest.approx(1.0, rel=1e-3)


def multipliers(event, times=1):
    """Noise multipliers of all Gaussian releases of an event, with how often each is made."""
    if isinstance(event, dict):
        times *= event.get("times", 1)
        if "noise_multiplier" in event:
            yield event["noise_multiplier"], times
        for part in event.values():
            yield from multipliers(part, times)
    elif isinstance(event, list):
        for part in event:
            yield from multipliers(part, times)


# --- the platform engineer ---


def test_a_platform_engineer(shell, tmp_path, capsys):
    """A nightly job on many files: logs, exit codes, nothing replaced, one budget."""
    hospital(tmp_path / "visits.csv", 0, VISITS)
    table = read_table("visits.csv", separator=";")
    (tmp_path / "lake").mkdir()
    for part in range(3):
        pq.write_table(table.slice(part * 1000, 1000), tmp_path / "lake" / f"part-{part}.parquet")
    target = '\n[target]\ncolumn = "back"\nclasses = ["no", "yes"]\n'
    (tmp_path / "schema.toml").write_text(COLUMNS + target)
    shell("discreet ledger create budget.db --epsilon 1.6 --delta 1e-5")
    fit = "fit lake --schema schema.toml --epsilon 1 --delta 1e-6 --ledger budget.db --output model.json"
    assert main(shlex.split(f"--verbose {fit}")) == 0
    log = capsys.readouterr().err
    assert "PrivateLogisticRegression: charge: (1, 1e-06), replace-one, unit: record" in log
    assert "PrivateLogisticRegression: done" in log
    assert "visits" not in log  # no value, no name of a file with rows
    before = (tmp_path / "model.json").read_bytes()
    assert "pass --overwrite" in shell(f"discreet {fit}", 1)
    assert (tmp_path / "model.json").read_bytes() == before
    assert len(Ledger("budget.db").history()) == 1  # what was refused cost nothing
    shell(f"discreet {fit.replace('model.json', 'second.json')}")
    refused = shell(f"discreet {fit.replace('model.json', 'third.json')}", 1)
    assert "does not fit under the cap" in refused
    assert not (tmp_path / "third.json").exists()
    assert "there is no" in shell(f"discreet {fit.replace('lake', 'lakes')}", 1)
    shell("discreet fit --no-such-option", 2)
