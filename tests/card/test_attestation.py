"""Attestations: a true one passes, and everything that can be wrong in one is found."""

import copy
import json

import pytest

from discreet.card import attestation
from discreet.card.attestation import AttestationError, claim, sealed, verify_attestation
from discreet.cli import main
from discreet.privacy.events import Gaussian, Pure
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.proofs import PROVED_BY

REPLACED = Neighboring.REPLACE_ONE
TOLD = {"subject": "a", "relation": "replace-one"}


@pytest.fixture
def body(tmp_path, monkeypatch):
    """An attestation of a version that makes two claims."""
    made = contents()
    monkeypatch.setattr(attestation, "LIST", tmp_path / "rows.tsv")
    attestation.LIST.write_text(attestation.list_of(made))
    return made


def contents():
    return {
        "version": "0.2.0",
        "mode": "short",
        "made": "2026-01-01T00:00:00+00:00",
        "sources": attestation.sources(),
        "proofs": attestation.proof_hashes(),
        "claims": [claim("a", Gaussian(2.0), 1e-2, REPLACED), claim("b", Pure(0.5), 0.0, REPLACED)],
        "lemmas": {
            lemma: {"proves": [part], "tests": ["t"]} for part, names in PROVED_BY.items() for lemma in names
        },
        "exact": [
            {
                "subject": "a, listed",
                "passed": True,
                "caught": True,
                "claimed": 1.0,
                "ratio": 0.9,
                "twin": 2.0,
            }
        ],
        "replays": [{**told, "passed": True, "ratio": 0.99} for told in (TOLD, {**TOLD, "subject": "b"})],
        "attacks": [
            {**told, "sound": True, "caught": True, "shown": 0.4, "half_noise": 3.0}
            for told in (TOLD, {**TOLD, "subject": "b"})
        ],
        "outside": [
            *(
                {"tool": "dp-accounting", "subject": name, "verdict": "agrees", "caught": True}
                for name in "ab"
            ),
            *(
                {"tool": tool, "subject": "a", "verdict": "skipped", "note": "not there"}
                for tool in ("opendp", "jax-privacy", "dp-recorder")
            ),
        ],
        "wheel": {"identical": True},
        "kills": {"passed": True, "kills": 1000},
        "fuzz": {"passed": True, "cases": 10_000},
        "figures": {"inputs": {"passed": True}},
        "tests": {"failed": 0},
        "not_tested": ["the weather"],
    }


def written(tmp_path, body):
    path = tmp_path / "attestation.json"
    path.write_text(json.dumps(sealed(body)))
    return path


def test_a_true_attestation_passes(tmp_path, body, capsys):
    found = verify_attestation(written(tmp_path, body))
    assert found.passed, found.problems
    assert found.counts["claims"] == 2
    assert main(["attest", str(written(tmp_path, body))]) == 0
    told = capsys.readouterr().out
    assert "not tested: the weather" in told
    assert "every claim was recomputed" in told


FAULTS = {
    "a cheap claim": (lambda body: body["claims"][0].update(epsilon=0.5), "claims epsilon 0.5"),
    "other code": (lambda body: body["sources"].update({"release.py": "0"}), "code are not those"),
    "other proofs": (lambda body: body["proofs"].pop("composition.md"), "proofs are not those"),
    "a twin that got away": (lambda body: body["exact"][0].update(caught=False), "not caught"),
    "a failed replay": (lambda body: body["replays"][0].update(passed=False), "not passed"),
    "a broken claim": (lambda body: body["attacks"][0].update(sound=False), "not sound"),
    "a second opinion": (lambda body: body["outside"][0].update(verdict="contradicts"), "contradicts"),
    "a lemma without a test": (
        lambda body: body["lemmas"]["composition.md#lemma-1"].update(tests=[]),
        "no test",
    ),
    "two wheels": (lambda body: body["wheel"].update(identical=False), "builds of the wheel differ"),
    "a lost charge": (lambda body: body["kills"].update(passed=False), "lost charges"),
    "a hostile file": (lambda body: body["fuzz"].update(passed=False), "hostile files"),
    "a failed test": (lambda body: body["tests"].update(failed=2), "2 tests"),
    "no word on kills": (lambda body: body["kills"].clear(), "lost charges"),
    "no word on hostile files": (lambda body: body["fuzz"].clear(), "hostile files"),
    "no word on builds": (lambda body: body["wheel"].clear(), "builds of the wheel differ"),
    "no word on tests": (lambda body: body.pop("tests"), "tests of lemmas failed"),
    "no exact audits": (lambda body: body["exact"].clear(), "exact: nothing was tried"),
    "no replays": (lambda body: body["replays"].clear(), "replays: nothing was tried"),
    "no claims": (lambda body: body["claims"].clear(), "claims: nothing was tried"),
    "no lemmas": (lambda body: body["lemmas"].clear(), "lemmas: nothing was tried"),
    "an unknown verdict": (lambda body: body["outside"][0].update(verdict="fine"), "fine"),
    "a claim less": (lambda body: body["claims"].pop(), "claims: 1 of 2 rows are missing: b, replace-one"),
    "a replay less": (lambda body: body["replays"].pop(0), "replays: 1 of 2 rows are missing: a"),
    "an exact audit less": (
        lambda body: body["exact"].__setitem__(0, {**body["exact"][0], "subject": "z"}),
        "exact: 1 of 1 rows are missing: a, listed",
    ),
    "a claim that nobody knows": (
        lambda body: body["claims"].append({**body["claims"][0], "subject": "z"}),
        "rows are unknown: z",
    ),
    "a lemma less": (
        lambda body: body["lemmas"].pop("composition.md#lemma-1"),
        "rows are missing: composition",
    ),
    "an attack less": (
        lambda body: body["attacks"].pop(),
        "attacks: 1 of 2 rows are missing: b, replace-one",
    ),
    "no attacks": (lambda body: body["attacks"].clear(), "attacks: nothing was tried"),
    "a cheaper charge": (
        lambda body: body["claims"][1].update(claim("b", Pure(0.1), 0.0, REPLACED)),
        "claims: b, replace-one is charged differently",
    ),
    "a price at another delta": (
        lambda body: body["claims"][0].update(claim("a", Gaussian(2.0), 0.5, REPLACED)),
        "claims: a, replace-one is charged differently",
    ),
    "a replay of neighbors that are close": (
        lambda body: body["replays"][0].update(ratio=0.5),
        "replays, a: 0.95 above ratio",
    ),
    "a distance beyond what is declared": (
        lambda body: body["replays"][0].update(ratio=1.01),
        "replays, a: ratio above 1.0",
    ),
    "more shown than claimed": (
        lambda body: body["attacks"][1].update(shown=0.51, claimed=9.0),
        "attacks, b: shown above claimed",
    ),
    "a twin within the claim": (
        lambda body: body["attacks"][1].update(half_noise=0.49, claimed=0.1),
        "attacks, b: claimed above half_noise",
    ),
    "numbers that are none": (
        lambda body: body["exact"][0].update(ratio="0.9"),
        "exact, a, listed: ratio above",
    ),
    "an event without a second opinion": (
        lambda body: body["outside"].pop(1),
        "outside, dp-accounting: 1 of 2 rows are missing: b",
    ),
    "no word of a tool": (lambda body: body["outside"].pop(), "no rows of dp-recorder"),
    "few kills": (lambda body: body["kills"].update(kills=999), "kills: 999 of 1000 were tried"),
    "few hostile files": (lambda body: body["fuzz"].update(cases=None), "fuzz: None of 10000 were tried"),
    "an unknown mode": (lambda body: body.update(mode="fast"), "kills: 1000 of 10000 were tried"),
    "a surprise overnight": (
        lambda body: body["figures"]["inputs"].update(passed=False),
        "inputs, at length",
    ),
    "no event": (lambda body: body["claims"][0].update(event={"type": "Nothing"}), "no price"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_found(tmp_path, body, fault):
    spoil, words = FAULTS[fault]
    spoiled = copy.deepcopy(body)
    spoil(spoiled)
    found = verify_attestation(written(tmp_path, spoiled))
    assert not found.passed
    assert any(words in text for text in found.problems), found.problems


@pytest.mark.parametrize("text", ["", "[]", "{}", "7", '{"body": {}, "body": {}}', '{"body": NaN}', "{"])
def test_what_is_no_attestation_is_refused(tmp_path, text):
    path = tmp_path / "attestation.json"
    path.write_text(text)
    with pytest.raises(AttestationError):
        verify_attestation(path)


def test_a_changed_file_is_refused(tmp_path, body, capsys):
    path = written(tmp_path, body)
    path.write_text(path.read_text().replace("the weather", "anything"))
    with pytest.raises(AttestationError, match="damaged"):
        verify_attestation(path)
    assert main(["attest", str(path)]) != 0
    assert "damaged" in capsys.readouterr().err
    assert main(["attest", str(tmp_path / "nothing.json")]) != 0
