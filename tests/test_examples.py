"""Every example runs as a user would run it, and its own assertions hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script):
    environment = {name: value for name, value in os.environ.items() if name != "DISCREET_DATA"}
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, env=environment
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip()


def test_every_example_is_listed():
    listed = (FOLDER / "README.md").read_text()
    assert all(f"`{script.name}`" in listed for script in SCRIPTS)
