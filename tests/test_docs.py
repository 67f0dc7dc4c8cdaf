"""The README and the guides are run, and their links followed."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import discreet
from discreet.cli import main
from discreet.solvers import base
from discreet.tables.schema import Schema

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "docs" / "results"  # copies that the build makes
PAGES = sorted(
    page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if GENERATED not in page.parents
)


def blocks(path, language):
    """The fenced blocks of one language."""
    pieces = re.split(r"^```(.*)\n", path.read_text(), flags=re.MULTILINE)
    # Text, opening fence, block, closing fence (empty), text, ...
    return [pieces[i + 1] for i in range(1, len(pieces), 4) if pieces[i] == language]


def test_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(ROOT / "README.md", "python")
    scope = {}
    exec(compile(example, "README.md", "exec"), scope)
    printed = capsys.readouterr().out
    assert scope["model"].score(scope["X"], scope["y"]) > 0.9
    assert scope["model"].privacy_.epsilon == 1.0
    assert "Privacy statement" in printed
    assert len(scope["ledger"].history()) == 1


def test_readme_commands_run_in_the_folder_of_the_demonstration(tmp_path, monkeypatch, capsys):
    rows = 2_000
    assert main(["demo", "--people", str(rows), "--output", str(tmp_path)]) == 0
    offered = capsys.readouterr().out.partition(f"cd {tmp_path}\n")[2]
    monkeypatch.chdir(tmp_path)
    lines = [line.split("#")[0].strip() for line in blocks(ROOT / "README.md", "")[0].splitlines()]
    assert [line.strip() for line in offered.split("\n") if line] == [
        line.replace("50000", str(rows)) for line in lines
    ]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 1_001


def test_files_that_pages_name_exist():
    """The changelog alone names what once was."""
    places = (ROOT, ROOT / "src", ROOT / "src/discreet", ROOT / "tests", ROOT / "docs", ROOT / ".ci")
    missing = [
        (page.name, name)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"`([\w.]+(?:/[\w.]+)+\.(?:py|md|toml|txt))`", page.read_text())
        if not any((place / name).exists() for place in (*places, page.parent))
    ]
    assert missing == []


def records():
    """What the guides leave to the reader: rows, labels, targets, a subgroup, a ledger and a model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 5)) / 2
    y = (X @ [1.0, -1.0, 0.5, 0.0, 0.0] > 0).astype(int)
    ledger = discreet.Ledger("readers.ledger", epsilon=5.0, delta=1e-5)
    model = discreet.PrivateLogisticRegression(classes=[0, 1]).fit(X, y)
    sex = rng.choice(["female", "male"], size=len(X))
    held_out = {"X_held_out": X, "y_held_out": y, "sex": sex, "X_new": X[:5]}
    return {"X": X, "y": y, "ledger": ledger, "model": model, **held_out}


def test_solvers_and_sets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = records()
    for example in blocks(ROOT / "docs" / "solvers.md", "python"):
        exec(compile(example, "solvers", "exec"), scope)
    assert scope["among_mine"].certificate_.expected > 0
    named = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs" / "solvers.md").read_text()))
    assert set(base.names()) - {"auto"} <= named


@pytest.mark.parametrize("page", ["describe", "evaluation", "first-model", "selection", "uncertainty"])
def test_guides_run_and_leave_a_ledger_that_admits_more(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = records()
    if page == "uncertainty":
        scope["y"] = 50 + 20 * scope["X"][:, 0]
    for example in blocks(ROOT / "docs" / f"{page}.md", "python"):
        exec(compile(example, page, "exec"), scope)
    ledger = scope["ledger"]
    assert ledger.history()
    model = scope.get("search", scope["model"])
    discreet.evaluate(model, scope["X"], scope["y"], epsilon=0.5, ledger=ledger)


def test_schema_of_the_guide_is_a_schema(tmp_path):
    (text,) = blocks(ROOT / "docs" / "command-line.md", "toml")
    path = tmp_path / "schema.toml"
    path.write_text(text)
    schema = Schema.from_file(path)
    assert list(schema.columns) == ["age", "sex", "smoker"]
    assert list(schema.classes) == ["no", "yes"]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "command-line.md"], ids=lambda page: page.name
)
def test_commands_of_the_guides_exist(page, capsys):
    lines = [line.split("#")[0] for block in blocks(page, "") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("discreet ")]
    assert commands
    for command in commands:
        depth = 3 if command[1] == "ledger" or command[2] == "transfer" else 2
        with pytest.raises(SystemExit) as stop:
            main([*command[1:depth], "--help"])
        assert stop.value.code == 0
        usage = capsys.readouterr().out
        for option in (word for word in command if word.startswith("--")):
            assert option in usage, f"{option} of {' '.join(command)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"
