"""The README and the guides are run, and their links followed."""

import re
import shlex
from pathlib import Path

import pytest

from discreet.cli import main
from discreet.schema import Schema

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


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
