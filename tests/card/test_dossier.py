"""Dossiers: every answer comes from the file, open questions stay open, false files have none."""

import json

import numpy as np
import pytest

from discreet import Ledger, PrivateLogisticRegression, card
from discreet.card.dossier import OPEN, dossier
from discreet.card.kinds import CardError
from discreet.mechanisms.samplers.entropy import insecure_noise


def fitted(**options):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    return PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], solver="output", **options).fit(X, y)


def test_a_dossier_says_what_the_file_promises_and_who_paid(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-3)
    model, path = fitted(ledger=ledger), tmp_path / "model.json"
    card.save(model, path)
    found = dossier(path, ledger=ledger, audit="claimed 1, shown 0.8,\n twin caught")
    assert set(found.sections) == {"NIST SP 800-226", "EDPB Opinion 28/2024", "ISO/IEC 27559"}
    nist = found.sections["NIST SP 800-226"]
    assert nist["Privacy parameters"].startswith("epsilon 1, delta 0.0001; recomputed")
    assert "gradient-methods.md#theorem-5" in nist["Proof"]
    assert str(model.privacy_.paid) in nist["Composition and accounting"]
    assert "shown 0.8, twin caught" in found.sections["EDPB Opinion 28/2024"]["Resistance to attacks"]
    assert found.registry["privacy_loss"] == {"epsilon": 1.0, "delta": 1e-4}
    assert len(found.open_questions) == str(found).count(OPEN) == 5
    assert json.loads(json.dumps(found.to_dict()))["subject"] == found.subject


def test_without_an_audit_or_a_ledger_it_says_so(tmp_path):
    card.save(fitted(), tmp_path / "model.json")
    text = str(dossier(tmp_path / "model.json"))
    assert "none is attached" in text
    assert "no ledger paid for it" in text


def test_a_model_without_a_promise_has_no_dossier(tmp_path):
    with insecure_noise(0):
        card.save(fitted(), tmp_path / "model.json")
    with pytest.raises(CardError, match="not private"):
        dossier(tmp_path / "model.json")
