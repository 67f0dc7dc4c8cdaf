"""Mutants differ in one place, compile, and leave text for people alone."""

import ast

import pytest

from benchmarks import mutation

MODULE = '''"""Number 7."""

LIMIT: float = 3.0


def bound(value: int = 2, *, strict: bool = False) -> float:
    """At most 5."""
    if value < 0:
        raise ValueError(f"must be at least {0}, got {value}")
    return max(-value, 1) * 2.0


def __str__(self):
    return "x" * 3
'''


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(mutation, "SOURCES", tmp_path)
    (tmp_path / "m.py").write_text(MODULE)
    return tmp_path / "m.py"


def test_every_change_is_one_change(path):
    found = {
        (made.before, made.after)
        for made in (mutation.mutated(path, place) for place in mutation.places(path))
    }
    assert found == {
        ("value < 0", "value <= 0"),
        ("0", "1"),
        ("max(-value, 1) * 2.0", "max(-value, 1) / 2.0"),
        ("max(-value, 1)", "min(-value, 1)"),
        ("-value", "+value"),
        ("1", "2"),
        ("2.0", "4.0"),
    }


def test_a_mutant_is_the_module_with_that_change(path):
    for place in mutation.places(path):
        made = mutation.mutated(path, place)
        assert ast.unparse(ast.parse(made.source)) != ast.unparse(ast.parse(MODULE))
        assert made.source.count("\n") == ast.unparse(ast.parse(MODULE)).count("\n")
        assert str(made).startswith(f"m.py:{made.line}: ")


def test_modules_are_tested_by_what_mirrors_them():
    root = mutation.SOURCES
    own, around = mutation.tests_of(root / "mechanisms" / "additive.py")
    assert [file.name for file in own] == ["test_additive.py"]
    assert own[0] in around
    for name in mutation._USERS:
        assert all(file.exists() for file in mutation.tests_of(root / name)[1]), name
    assert len(mutation.chosen(["mechanisms/additive.py"], 3, 0)) == 3
