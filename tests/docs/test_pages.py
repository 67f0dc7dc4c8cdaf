"""Pages whose code is run: the papers' calls, the errata's arithmetic, moving from other libraries."""

import ast
import hashlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import discreet
from benchmarks.attest.outside import INTERVAL
from discreet import transfer
from discreet.solvers import base

DOCS = Path(__file__).parents[2] / "docs"
PAPERS = (DOCS / "papers.md").read_text(encoding="utf-8")
CALLS = re.findall(r"^\|[^|]+\| `(.+?)` \|", PAPERS, re.MULTILINE)


def blocks(name):
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / name).read_text(encoding="utf-8"), re.M | re.S)


def run(name, scope=None):
    """What the blocks of a page leave, run one after the other."""
    scope = {} if scope is None else scope
    for number, block in enumerate(blocks(name)):
        exec(compile(block, f"{name}, block {number}", "exec"), scope)
    return scope


@pytest.fixture(scope="module")
def data():
    return run("papers.md")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_the_papers_runs(call, data):
    result = eval(call, dict(data))
    assert result is not None
    if hasattr(result, "privacy_"):
        assert result.privacy_.epsilon > 0


def test_every_table_of_the_papers_has_calls():
    rows = [line for line in PAPERS.splitlines() if line.startswith("| ") and "in the paper" not in line]
    assert len(rows) == len(CALLS) > 30


def test_every_solver_of_a_paper_is_on_the_page():
    printed = {name for name in base.names() if name.endswith(("-dissertation", "-talwar", "-thakurta"))}
    assert printed <= set(re.findall(r'solver="([\w-]+)"', PAPERS))


def test_names_of_the_papers_are_those_that_solvers_take():
    sentence = PAPERS.partition("takes the names of the papers: ")[2].partition(". ")[0]
    told = {}
    for part in sentence.split(";"):
        *names, solver = re.findall(r"`([\w-]+)`", part)
        told |= dict.fromkeys(names, solver)
    assert told == dict(base.ALIASES)


def test_the_errata_compute_what_they_claim():
    scope = run("errata.md")
    table = (DOCS / "errata.md").read_text(encoding="utf-8")
    assert f"= {scope['talwar']:.2f}$ where 1 is claimed" in table
    assert f"= {scope['jain']:.2f}$ for 1" in table


def test_the_front_page_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(20_000, 5))
    run("index.md", {"X": rows, "y": (rows[:, 0] > 0).astype(int)})
    printed = " ".join(capsys.readouterr().out.split())
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
    fields = re.split(r"\n(?=\S)", shown.strip())
    assert len(fields) == 3
    for field in fields:
        assert " ".join(field.split()) in printed


def test_numbers_of_things_on_the_front_page_are_true():
    text = " ".join((DOCS / "index.md").read_text(encoding="utf-8").split())
    false = (DOCS / "errata.md").read_text(encoding="utf-8")
    rows = false.partition("## Not private as printed")[2].partition("\n## ")[0].count("\n| ") - 1
    assert (rows, "thirteen of their constants" in text) == (13, True)
    assert (len(list((DOCS / "gallery").glob("*.py"))), "Fifteen worked examples" in text) == (15, True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["from-scikit-learn.md", "from-other-libraries.md"])
def test_a_page_about_moving_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = run(name)
    assert scope["ledger"].history()


def test_the_page_about_pages_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = run("pages.md")
    text = (tmp_path / "model.html").read_text(encoding="utf-8")
    assert scope["about"].purpose in text
    assert "not recorded" not in text
    assert (tmp_path / "budget.html").exists()


def test_every_measurement_has_a_kept_result():
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:python|make) [^`]+)`.*$", text, re.M)
    lines = re.findall(r"^\| `(?:python|make) .*$", text, re.M)
    without = []
    for command, line in zip(rows, lines, strict=True):
        kept = re.findall(r"benchmarks/results/([\w.-]+)", line)
        if not kept or not all((DOCS.parent / "benchmarks" / "results" / name).exists() for name in kept):
            without.append(command)
    assert len(rows) > 25
    assert not without


def test_names_on_the_pages_are_public():
    for name in ("from-scikit-learn.md", "from-other-libraries.md", "papers.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        named = set(re.findall(r"\b(Private[A-Z]\w+|private_\w+)", text))
        assert named <= {*discreet.__all__, *transfer.__all__}, name


def described(name):
    """The sections that the docstring of a public name lacks."""
    value = getattr(discreet, name)
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, Exception):
        return [] if text else ["a sentence"]
    wanted = {"a note on privacy": r"^Notes\n-----\nPrivacy: ", "Examples": r"^Examples\n--------\n"}
    if inspect.signature(value).parameters:
        wanted["Parameters or Attributes"] = r"^(Parameters|Attributes)\n----------\n"
    if not inspect.isclass(value):
        wanted["Returns or Yields"] = r"^(Returns\n-------|Yields\n------)\n"
    return [name for name, pattern in wanted.items() if not re.search(pattern, text, re.M)]


def test_every_public_name_is_described():
    from discreet._api import HOMES

    lacking = {name: described(name) for name in HOMES}
    assert not {name: parts for name, parts in lacking.items() if parts}


def test_a_claim_is_checked_as_the_page_says(capsys):
    pytest.importorskip("dp_accounting")
    exec(compile(blocks("audit.md")[0], "audit.md, block 0", "exec"), {})
    _, ours, between, lemmas = map(str.strip, capsys.readouterr().out.splitlines())
    low, high = ast.literal_eval(between)
    assert low - INTERVAL <= float(ours) <= high + INTERVAL
    for lemma, digest in ast.literal_eval(lemmas).items():
        text = (DOCS / "proofs" / lemma.partition("#")[0]).read_bytes()
        assert hashlib.sha256(text).hexdigest() == digest
