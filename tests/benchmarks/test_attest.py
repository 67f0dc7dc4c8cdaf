"""The parts of ``make attest``: lemmas and their tests, kills, materials, rows of the table, the page."""

import contextlib
import hashlib
import itertools
import json
import random
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks import audit, audit_variants
from benchmarks.attest import __main__ as attest
from benchmarks.attest import audited, build, faults, figures, fuzz
from benchmarks.attest.page import page, summary
from discreet import BudgetExceeded, Ledger, LedgerError
from discreet.audit.replay import replay
from discreet.card import attestation
from discreet.card.attestation import digest


def test_every_lemma_in_use_has_tests_with_names():
    found = attest.lemmas()
    assert len(found) > 90
    assert [name for name, use in found.items() if not use["tests"]] == []
    assert "tests/mechanisms/test_tree.py::" in found["online.md#theorem-2"]["tests"][0]


def troubled(kind, count, monkeypatch):
    """So many kills of one kind; skipped where it cannot be tried."""
    if kind not in faults._ANYWHERE and faults.kills(0).left_out:
        pytest.skip("nothing can be mounted here")
    monkeypatch.setattr(faults, "KINDS", {kind: 1})
    monkeypatch.setattr(faults, "_ANYWHERE", (kind,))
    found = faults.kills(count, seed=1)
    assert found.kinds == {kind: count}
    return found


@pytest.mark.parametrize("kind", list(faults.KINDS))
def test_killed_writers_lose_nothing(kind, monkeypatch):
    found = troubled(kind, 25, monkeypatch)
    assert found.passed, found
    assert found.acknowledged > 0
    if kind in ("full disk", "read-only"):
        assert found.refused > 0


def hasty(path, say):
    """A writer that tells of charges before they are made."""
    faults.os.write(say, b"b")
    while True:
        faults.os.write(say, b"c")
        faults.time.sleep(0.001)


def deaf(path, say):
    """A writer that does not hear that a charge failed."""
    faults.os.write(say, b"b")
    while True:
        with contextlib.suppress(LedgerError, BudgetExceeded):
            Ledger(path).charge(faults.Pure(faults._STEP), label="kill")
        faults.os.write(say, b"c")


@pytest.mark.parametrize(("twin", "kind"), [(hasty, "kill"), (deaf, "full disk"), (deaf, "read-only")])
def test_writers_that_acknowledge_too_much_are_caught(twin, kind, monkeypatch):
    monkeypatch.setattr(faults, "_write", twin)
    found = troubled(kind, 25, monkeypatch)
    assert found.lost > 0
    assert not found.passed


@pytest.mark.nightly
def test_ten_thousand_kills():
    found = faults.kills(10_000, seed=2)
    assert found.passed, found


@pytest.mark.parametrize("kind", list(fuzz.KINDS))
def test_hostile_inputs_meet_clear_errors_or_results(kind):
    found = fuzz.fuzz(60, seed=3, kinds=[kind])
    assert found.passed, found.surprises
    assert found.refused[kind] > 5


@pytest.mark.nightly
def test_a_hundred_thousand_hostile_inputs():
    found = fuzz.fuzz(100_000, seed=4)
    assert found.passed, found.surprises


def test_cases_leave_the_hostile_values_as_they_are():
    """A value that one case changed would come back, larger, in the next."""
    before = repr(fuzz.HOSTILE)
    for seed in range(200):
        made = fuzz.twisted(random.Random(seed), {"a": [1, {"b": 2}], "c": {"d": [3]}}, times=8)
        assert repr(made) == repr(
            fuzz.twisted(random.Random(seed), {"a": [1, {"b": 2}], "c": {"d": [3]}}, times=8)
        )
    assert repr(fuzz.HOSTILE) == before


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        ("schemas", 37691),
        ("schemas", 53745),
        ("schemas", 71728),
        ("schemas", 75191),
        ("rows", 5566),
        ("rows", 7505),
    ],
)
def test_whole_numbers_beyond_all_floats_meet_a_clear_error(kind, case):
    """Cases that once ended in an OverflowError."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        seeds = stack.enter_context(fuzz._seeds(Path(folder)))
        assert fuzz.KINDS[kind][1](random.Random(case), seeds)


def test_a_reader_that_believes_everything_is_caught(monkeypatch):
    monkeypatch.setattr(fuzz.card, "load", lambda path: fuzz.json.loads(path.read_bytes()))
    assert not fuzz.fuzz(60, seed=3, kinds=["models"]).passed


def test_a_run_that_fails_after_the_charge_is_caught(monkeypatch):
    genuine, calls = fuzz.release.run, itertools.count()

    def run(*arguments):
        if next(calls) >= 4:  # the first four make the models that are spoiled elsewhere
            raise ValueError("something in the data was strange")
        return genuine(*arguments)

    monkeypatch.setattr(fuzz.release, "run", run)
    found = fuzz.fuzz(60, seed=3, kinds=["rows"])
    assert "charged, and then failed" in found.surprises[0]


def test_a_ledger_that_forgets_is_caught(monkeypatch):
    monkeypatch.setattr(fuzz.Ledger, "history", lambda self: [])
    assert "0 of 3 charges" in fuzz.fuzz(30, seed=3, kinds=["ledgers"]).surprises[0]


def test_the_bill_of_materials_names_what_is_needed():
    found = build.bill_of_materials()
    names = {part["name"] for part in found["components"]}
    assert {"numpy", "scipy", "scikit-learn", "cryptography"} <= names
    assert "pytest" not in names
    assert all(part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}" for part in found["components"])
    assert "http" not in json.dumps(found)
    assert found == build.bill_of_materials()


@pytest.mark.parametrize("name", ["subsample_and_aggregate", "PrivateLinearSVC, noisy-gd, in L2Ball"])
def test_variants_replay_at_the_declared_distance(name):
    subject = next(audit_variants.variants(name))
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)
    assert 0.95 <= found.worst_ratio <= 1 + 1e-9


def test_every_row_is_replayed_and_attacked():
    subject = next(audit.subjects(["mechanisms"], match="GaussianMechanism"))
    line, row = audited._line(subject, runs=60, seconds=1.0)
    assert line["claims"]["epsilon"] == pytest.approx(1.0)
    assert row.event == digest(line["claims"]["event"])
    assert 0.95 <= line["replays"]["ratio"] <= 1 + 1e-9
    assert line["attacks"]["sound"]
    assert row.runs == 60
    assert row.twin_runs == 60 or (row.caught and row.twin_runs < 60)  # a twin is attacked until it is caught


def test_the_stored_table_is_read():
    assert audit.stored_rows()["GaussianMechanism", "replace-one"]["claimed"] == "1.0000"
    assert "variants" in audit.units()


def contents(**changes):
    """The contents of an attestation, as small as can be."""
    told = {"subject": "a", "relation": "replace-one"}
    prices = {"claimed": None, "lowest": None, "highest": None}
    body = {
        **dict.fromkeys(("version", "made", "python", "commit"), "x"),
        "mode": "short",
        "proofs": attestation.proof_hashes(),
        "claims": [{**told, "epsilon": 1.0}],
        "replays": [{**told, "passed": True, "ratio": 1.0}],
        "lemmas": {"online.md#theorem-2": {"proves": ["x"], "tests": ["tests/t.py::t"]}},
        "tests": {"passed": 3, "failed": 0},
        "exact": [
            {**told, "claimed": 1.0, "true": 0.9, "ratio": 0.9, "twin": 2.0, "passed": True, "caught": True}
        ],
        "attacks": [
            {
                **told,
                **dict.fromkeys(("pair", "runs"), 1.0),
                "shown": 0.8,
                "half_noise": 2.0,
                "sound": True,
                "caught": True,
                "note": "",
                "claimed": 1.0,
            }
        ],
        "figures": {"kills": {**faults.Kills(kills=90).to_dict(), "when": "last year"}},
        "outside": [{**told, **prices, "tool": "t", "verdict": "skipped", "note": "not there"}],
        "kills": faults.Kills(kills=5, acknowledged=4, kinds={"full disk": 5}, charges=4).to_dict(),
        "fuzz": fuzz.Fuzzed(cases=7, refused={"models": 6}, accepted={"rows": 1}).to_dict(),
        "wheel": {"skipped": "no wheel"},
        "packages": {"numpy": "2"},
        "not_tested": ["<weather>"],
    }
    return {**body, **changes}


def test_the_page_says_first_what_was_found_then_what_was_tried_and_what_was_not():
    text = page(contents())
    order = [
        "Nothing that was tried contradicts",
        "What was tried",
        "What was not tried",
        "&lt;weather&gt;",
        "<details>",
    ]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    for words in ("online.md#theorem-2", "full disk", "last year", "no wheel", "6 refused, 1 accepted"):
        assert words in text
    assert build.digest(b"") == hashlib.sha256(b"").hexdigest()


def test_the_page_of_a_version_with_a_finding_says_so():
    lost = faults.Kills(kills=5, acknowledged=4, charges=3, lost=1).to_dict()
    text = page(contents(kills=lost))
    assert "A check FAILED." in text
    assert "Do not rely on this version." in text
    assert "lost charges" in text
    assert "Nothing that was tried" not in text


def test_a_page_names_rows_that_are_missing():
    text = page(contents(), ["claims: 1 of 2 rows are missing: b"])
    assert "A check FAILED." in text
    assert "rows are missing: b" in text


def test_the_summary_says_what_is_wrong_what_was_tried_and_what_was_not():
    text = summary(contents(seconds={"kills": 90.0, "fuzz": 30.0}), ["claims: 1 of 2 rows are missing: b"])
    for words in (
        "Wrong: 1.",
        "* WRONG: claims: 1 of 2",
        "2 minutes",
        "| kills | 90 |",
        "* <weather>",
        "t: skipped 1",
    ):
        assert words in text
    assert "WRONG:" not in summary(contents(seconds={}))


def test_the_list_of_rows_is_that_of_the_stored_table():
    lines = [line.split("\t") for line in attestation.LIST.read_text().splitlines()]
    assert lines == sorted(lines)
    claims = {(subject, relation): event for part, subject, relation, _, event in lines if part == "claims"}
    assert claims == {key: row["event"] for key, row in audit.stored_rows().items()}
    assert sum(part == "exact" for part, *_ in lines) > 30


def test_figures_are_kept_part_by_part(tmp_path, monkeypatch):
    for part, count in (("kills", "2"), ("inputs", "9")):
        command = ["figures", part, f"--{part}", count, "--output", str(tmp_path / "f.json")]
        monkeypatch.setattr(sys, "argv", command)
        assert figures.main() == 0
    text = (tmp_path / "f.md").read_text()
    assert "2 times a writer" in text
    assert "9 cases" in text
