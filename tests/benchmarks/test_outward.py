"""The audit turned outward, tested against toys in place of the peers: one broken, one correct."""

import sys

import pytest

from benchmarks.attest import outward, paper_programs, peer_programs
from benchmarks.papers import peers

TOYS = """
import json, random, sys
case, runs = sys.argv[1], int(sys.argv[2])
print(json.dumps({"name": case, "epsilon": 1.0, "delta": 0.0, "relation": "replace-one"}))
draw, share = random.Random(7), {"broken": 0.2, "correct": 1.0}[case]
for _ in range(runs):
    for side in (0, 1):
        print(json.dumps([side, [side + share * (draw.expovariate(1.0) - draw.expovariate(1.0))]]))
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    path = tmp_path / "toys.py"
    path.write_text(TOYS)
    monkeypatch.setattr(outward, "_WORKER", path)
    monkeypatch.setattr(peers, "interpreter", lambda name, environment: sys.executable)
    monkeypatch.setitem(peers.ENVIRONMENTS, "toys", peers.Environment((), "replace-one"))
    for case, report in (("broken", "somewhere 1"), ("correct", "")):
        monkeypatch.setitem(outward.CASES, case, (None, "toys", report))


def test_the_broken_toy_is_found_and_the_correct_one_is_not(toys):
    rows = [outward.audited(case, 600) for case in ("broken", "correct")]
    assert [row.refuted for row in rows] == [True, False]
    assert all(row.expected for row in rows)
    text = outward.as_text(rows, "today")
    assert "| FALSE | somewhere 1 |" in text
    assert "| not refuted | control |" in text


def test_a_violation_that_is_not_found_again_fails(toys, monkeypatch):
    monkeypatch.setitem(outward.CASES, "correct", (None, "toys", "somewhere 2"))
    assert not outward.audited("correct", 200).expected


def test_a_peer_that_cannot_be_run_says_so(toys, monkeypatch):
    def missing(name, environment):
        raise peers.PeerFailed("could not be installed: no network")

    monkeypatch.setattr(peers, "interpreter", missing)
    found = outward.audited("broken", 50)
    assert found.expected
    assert "could not be installed" in outward.as_text([found], "today")


def test_every_case_has_an_environment():
    assert {case[1] for case in peer_programs.CASES.values()} <= set(peers.ENVIRONMENTS)
    assert {bool(case[2]) for case in peer_programs.CASES.values()} == {True, False}


@pytest.mark.parametrize("case", paper_programs.CASES)
def test_what_papers_print_is_found_and_its_controls_are_not(case):
    found = outward.audited(case, 400)
    assert found.expected, found
    assert found.refuted == (not case.endswith("-control"))


def test_rows_of_other_cases_are_kept():
    old = outward.as_text(
        [outward.Found("a", "x", 1.0, 0.0, 2.0, 9, "r"), outward.Found("b", "y", 1.0, 0.0, 0.5, 9, "")],
        "then",
    )
    kept = [line for line in old.splitlines() if line.startswith("| ")][1:]
    new = outward.as_text([outward.Found("b", "y", 1.0, 0.0, 0.7, 9, "")], "now", kept)
    assert "| x | a | 1.000 | 0 | 2.000 | 9 | FALSE | r | then |" in new
    assert "| y | b | 1.000 | 0 | 0.700 | 9 | not refuted | control | now |" in new
    assert new.count("| b |") == 1
