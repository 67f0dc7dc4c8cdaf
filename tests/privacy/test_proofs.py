"""From constant to lemma to test: nothing unproved, nothing dangling, no lemma in use that no test exercises."""

import ast
import functools
import hashlib
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from discreet import PrivateLogisticRegression, sets, solvers
from discreet.losses.base import Loss
from discreet.privacy import events, proofs
from discreet.privacy.statement import PrivacyStatement, lemmas_of
from discreet.solvers import base

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "discreet"
PROOFS = ROOT / "docs" / "proofs"
#: Calls that make a constant of privacy: a sensitivity or a bound on records that becomes one, an event, a calibration.
CONSTANTS = {
    *("Sensitivity", "sum_sensitivity", "acute_sum_sensitivity"),
    *("gradient_sensitivity", "computed_gradient_sensitivity"),
    *("calibrate", "calibrated_unit"),
} | {kind.__name__ for kind in events.Event.__subclasses__()}
#: Not constants: containers whose parts are priced where they are made, and what claims nothing.
CONSTANTS -= {"Composed", "Repeated", "NonPrivate"}
#: Accountants evaluate events, and audits imitate them; neither promises anything.
OUTSIDE = ("privacy/accounting", "privacy/events.py", "audit")

#: Protocols and bases, which promise nothing by themselves.
ABSTRACT = ("Stated", "Plan", "Method")


def called(node):
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def constants(path):
    """Qualified names of the outermost definitions of a file that make constants."""
    module = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
    for part in ast.parse(path.read_text(encoding="utf-8")).body:
        name = f"{module}.{part.name}" if hasattr(part, "name") else module
        if any(isinstance(node, ast.Call) and called(node) in CONSTANTS for node in ast.walk(part)):
            yield name


@functools.cache
def all_constants():
    files = [
        path for path in SOURCES.rglob("*.py") if not path.relative_to(SOURCES).as_posix().startswith(OUTSIDE)
    ]
    return {name for path in files for name in constants(path)}


def named(node):
    """Names that a statement of a class's body defines: of a method, or of an attribute."""
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {getattr(node, "name", "")}


def stating():
    """Classes that name a theorem in their statements."""
    for path in SOURCES.rglob("*.py"):
        for part in ast.parse(path.read_text(encoding="utf-8")).body:
            words = [node for node in getattr(part, "body", ()) if named(node) & {"theorem", "proof"}]
            if isinstance(part, ast.ClassDef) and words and part.name not in ABSTRACT:
                yield f"{'.'.join(path.relative_to(SOURCES).with_suffix('').parts)}.{part.name}"


def proved(name):
    return name in proofs.PROVED_BY or name.rpartition(".")[0] in proofs.PROVED_BY


@functools.cache
def exercised():
    """Lemmas that tests name, read from their markers without importing them."""
    marker = re.compile(r'^\s*@pytest\.mark\.lemma\("([^"]+)"\)$', re.MULTILINE)
    return {
        lemma
        for path in (ROOT / "tests").rglob("test_*.py")
        for lemma in marker.findall(path.read_text("utf-8"))
    }


def known_lemmas():
    return {
        f"{path.name}#{anchor}" for path in PROOFS.glob("*.md") for anchor in proofs.anchors(path.read_text())
    }


def subclasses(kind):
    for module in pkgutil.walk_packages(solvers.__path__, "discreet.solvers."):
        importlib.import_module(module.name)
    found = list(kind.__subclasses__())
    for part in found:
        found += part.__subclasses__()
    return [
        part for part in found if part.__module__.startswith("discreet.") and not part.__abstractmethods__
    ]


def test_every_constant_names_the_lemma_that_proves_it():
    assert len(all_constants()) > 80
    assert sorted(name for name in all_constants() if not proved(name)) == []


def test_everything_that_states_a_theorem_has_lemmas():
    found = set(stating())
    assert len(found) > 25
    assert sorted(name for name in found if not proved(name)) == []


@pytest.mark.parametrize("made", ["guarantee.Sensitivity(0.5)", "sum_sensitivity(bound / 2, relation)"])
def test_a_constant_outside_of_the_table_is_found(tmp_path, monkeypatch, made):
    monkeypatch.setitem(globals(), "SOURCES", tmp_path)
    path = tmp_path / "new.py"
    path.write_text(f"class Plan:\n    def sensitivity(self):\n        return {made}\n")
    assert list(constants(path)) == ["new.Plan"]


def test_the_table_names_what_exists():
    for name in proofs.PROVED_BY:
        module, _, part = name.rpartition(".")
        try:
            found = getattr(importlib.import_module(f"discreet.{module}"), part, None)
        except ModuleNotFoundError:
            found = None
        if found is None:
            importlib.import_module(f"discreet.{name}")  # constants of a whole module


@pytest.mark.parametrize("kind", [base.Plan, Loss])
def test_every_plan_and_loss_has_lemmas(kind):
    found = subclasses(kind)
    assert len(found) > 8
    assert [part.__name__ for part in found if not lemmas_of(part)] == []


def test_every_event_and_set_has_lemmas():
    kinds = [kind for kind in events.Event.__subclasses__() if kind is not events.NonPrivate]
    kinds += [getattr(sets, name) for name in sets.__all__ if hasattr(getattr(sets, name), "project")]
    kinds = [kind for kind in kinds if not getattr(kind, "_is_protocol", False)]
    assert len(kinds) > 15
    assert [kind.__name__ for kind in kinds if not lemmas_of(kind)] == []


def test_no_lemma_dangles():
    cited = {lemma for lemmas in proofs.PROVED_BY.values() for lemma in lemmas}
    assert sorted(cited - known_lemmas()) == []
    assert sorted(exercised() - known_lemmas()) == []


def test_no_lemma_in_use_goes_without_a_test():
    cited = {lemma for lemmas in proofs.PROVED_BY.values() for lemma in lemmas}
    assert sorted(cited - exercised()) == []


def test_anchors_are_those_of_the_text():
    text = "# Title\n## 1. Theorem 2: sums\n**Lemma 3 (sums).** By **Lemma 9**\n### 1.2 More\n## References\n"
    assert list(proofs.anchors(text)) == ["section-1", "theorem-2", "lemma-3", "section-1.2"]


def test_statements_name_proofs_by_hash():
    plan = PrivateLogisticRegression(1.0, 1e-5, classes=[0, 1], solver="objective").plan(1000, 4, 2)
    statement = PrivacyStatement.of(plan)
    text = (PROOFS / "objective-perturbation.md").read_bytes()
    assert statement.proofs["objective-perturbation.md#theorem-2"] == hashlib.sha256(text).hexdigest()
    assert "composition.md#lemma-1" not in statement.proofs  # one release: nothing is composed
    assert "objective-perturbation.md#theorem-2" in str(statement)
    again = PrivacyStatement.from_dict(statement.to_dict())
    assert again.proofs == statement.proofs


def test_statements_without_proofs_stay_as_they_were():
    plan = PrivateLogisticRegression(1.0, 1e-5, classes=[0, 1], solver="output").plan(1000, 4, 2)
    fields = PrivacyStatement.of(plan).to_dict()
    del fields["proofs"]
    assert PrivacyStatement.from_dict(fields).to_dict() == fields
    largest = {"bounds": {"records": 2**1023 - 1}}
    assert PrivacyStatement.from_dict(fields | largest).to_dict() == fields | largest
    too_large = ({"bounds": {"records": number}} for number in (2**1024 - 1, 10**400))  # for a float
    for wrong in ({"proofs": 7}, {"noise": {"scale": {}}}, *too_large, {"noise": [1]}):
        with pytest.raises(ValueError, match="not a privacy statement"):
            PrivacyStatement.from_dict({**fields, **wrong})


def test_a_constant_that_loses_its_lemma_is_noticed(monkeypatch):
    name = next(name for name in sorted(all_constants()) if name in proofs.PROVED_BY)
    monkeypatch.delitem(proofs.PROVED_BY, name)
    monkeypatch.delitem(proofs.PROVED_BY, name.rpartition(".")[0], raising=False)
    with pytest.raises(AssertionError, match=name.rpartition(".")[2]):
        test_every_constant_names_the_lemma_that_proves_it()


@pytest.mark.parametrize("lemma", ["gradient-methods.md#theorem-99", "nowhere.md#theorem-1"])
def test_an_anchor_that_points_nowhere_is_noticed(lemma, monkeypatch):
    monkeypatch.setitem(proofs.PROVED_BY, "release.carry_out", (lemma,))
    with pytest.raises(AssertionError, match=lemma):
        test_no_lemma_dangles()


def test_a_lemma_that_loses_its_test_is_noticed(monkeypatch):
    kept = exercised() - {"gradient-methods.md#theorem-4"}
    monkeypatch.setitem(globals(), "exercised", lambda: kept)
    with pytest.raises(AssertionError, match=r"gradient-methods\.md#theorem-4"):
        test_no_lemma_in_use_goes_without_a_test()


def test_an_entry_for_something_that_is_gone_is_noticed(monkeypatch):
    monkeypatch.setitem(proofs.PROVED_BY, "solvers.nothing.NothingPlan", ("gradient-methods.md#theorem-4",))
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        test_the_table_names_what_exists()
