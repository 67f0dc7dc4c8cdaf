"""Operations: the lock file, the offline recipe and the container's recipe, as far as they can be read."""

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from discreet.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
LOCKED = (ROOT / "requirements.txt").read_text()


def entries(text):
    """Name, version and hashes of every requirement."""
    for line in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = line.split()
        name, version = requirement.split("==")
        yield name, version, hashes


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_has_names_versions_and_hashes_and_nothing_else():
    found = list(entries(LOCKED))
    assert len(found) > 10
    for name, _, hashes in found:
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), name
    assert "://" not in LOCKED


def test_the_lock_is_what_the_package_needs_in_the_pinned_versions():
    pins = {normal(name): version for name, version in PINS.items()}
    versions = {name: version for name, version, _ in entries(LOCKED)}
    assert versions == {name: pins[name] for name in versions}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {normal(re.match(r"[\w.-]+", one)[0]) for one in needed} <= set(versions)


def lock():
    spec = importlib.util.spec_from_file_location("lock", ROOT / ".ci" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.locked


def test_wheels_become_lines(tmp_path):
    (tmp_path / "My_Tool-1.2-cp311-none-any.whl").write_bytes(b"one")
    (tmp_path / "My_Tool-1.2-cp312-none-any.whl").write_bytes(b"two")
    (tmp_path / "other-3-py3-none-any.whl").write_bytes(b"")
    tool, other = entries(lock()(tmp_path))
    assert tool[:2] == ("my-tool", "1.2")
    assert len(tool[2]) == 2
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of nothing
    assert other == ("other", "3", [f"--hash=sha256:{digest}"])


def test_two_versions_and_none_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="there are no wheels"):
        lock()(tmp_path)
    for version in ("1", "2"):
        (tmp_path / f"tool-{version}-py3-none-any.whl").write_bytes(b"")
    with pytest.raises(SystemExit, match="tool is there as 1 and as 2"):
        lock()(tmp_path)


def steps():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield line.split(maxsplit=1)


def test_the_container_copies_what_there_is_and_runs_known_commands():
    commands = {command.name for group in COMMANDS.values() for command in group}
    for step, words in steps():
        if step == "COPY":
            *sources, _ = words.split()
            assert all((ROOT / source).exists() for source in sources), words
        if step == "RUN" and words.startswith("discreet"):
            assert words.split()[1] in commands
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.search(r'"\.\[([\w,]+)\]"', (ROOT / "Dockerfile").read_text())[1].split(",")
    assert set(asked) <= set(extras)
    base = dict(steps())["FROM"]
    version = re.search(r"python:3\.(\d+)", base)[1]
    (wheels,) = [hashes for name, _, hashes in entries(LOCKED) if name == "numpy"]
    assert 11 <= int(version) < 11 + len(wheels)  # one wheel for each version of Python, from 3.11 on


def test_the_container_runs_a_pinned_image_as_an_unprivileged_user():
    """What a linter of such files asks for, in order: a version, no cache, exact files, a user before anything runs."""
    found = [(step, words) for step, words in steps()]
    assert found[0][0] == "FROM"
    assert re.fullmatch(r"python:3\.\d+-slim", found[0][1])
    names = [step for step, _ in found]
    assert not {"ADD", "MAINTAINER"} & set(names)
    user = names.index("USER")
    (made,) = [words for step, words in found[:user] if words.startswith("useradd")]
    assert made.split()[-1] == found[user][1] != "root"
    assert int(re.search(r"--uid (\d+)", made)[1]) > 1000
    for step, words in found:
        if step == "RUN":
            assert "sudo" not in words
            assert all("--no-cache-dir" in one for one in words.split("&&") if "pip install" in one)
        if step == "COPY":
            assert all(source not in (".", "*") for source in words.split()[:-1])
    (kernels,) = [words.partition("=")[2] for step, words in found if step == "ENV"]
    assert kernels.startswith(f"/home/{found[user][1]}/")
    assert user < names.index("ENV") < found.index(("RUN", "discreet warmup")) < names.index("ENTRYPOINT")
    for name in ("ENTRYPOINT", "CMD"):  # as lists: a shell in between would swallow signals
        assert json.loads(dict(found)[name])


def test_options_of_pip_in_the_recipes_exist():
    from pip._internal.commands import create_command

    text = (ROOT / "docs" / "operations.md").read_text() + (ROOT / "Dockerfile").read_text().replace(
        "\\\n", " "
    )
    found = 0
    for line in re.findall(r"python -m pip ([^\n&]+)", text):
        action, *words = shlex.split(line)
        known = create_command(action).parser
        options = [word for word in words if word.startswith("--")]
        assert all(known.has_option(option) for option in options), line
        found += 1
    assert found >= 6
