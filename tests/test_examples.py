"""Every example runs as a user would run it, and its own assertions hold."""

import ast
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script):
    environment = {name: value for name, value in os.environ.items() if name != "DISCREET_DATA"}
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, env=environment
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip()
    assert "Warning" not in run.stderr


def shown(value):
    """What a notebook shows of the last value of a cell."""
    if hasattr(value, "_repr_mimebundle_"):
        return value._repr_mimebundle_()["text/html"]
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_everything_without_a_warning(notebook):
    """Cell by cell, as a kernel does, with what each of them shows; warnings are errors."""
    content = json.loads(notebook.read_text())
    assert content["nbformat"] == 4
    scope, pages = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in content["cells"]:
            if cell["cell_type"] != "code":
                continue
            assert not cell["outputs"]  # outputs are made, not kept
            *body, last = ast.parse(cell["source"]).body
            kept = [] if isinstance(last, ast.Expr) else [last]
            exec(compile(ast.Module([*body, *kept], []), notebook.name, "exec"), scope)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), scope)
                pages += value is not None and "<div" in shown(value)
    assert pages >= 6  # tables, models, plans, statements, ledgers and evaluations are pages


def test_every_example_is_listed():
    listed = (FOLDER / "README.md").read_text()
    assert all(f"`{script.name}`" in listed for script in (*SCRIPTS, *NOTEBOOKS))
