"""Dossiers: every answer comes from the file, open questions stay open, false files have none."""

import json

import numpy as np
import pytest

from discreet import Ledger, PrivateLogisticRegression, card
from discreet.card.card import CardError
from discreet.card.dossier import OPEN, dossier
from discreet.cli import main
from discreet.mechanisms.samplers.entropy import insecure_noise


def fitted(delta=1e-4, **options):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    return PrivateLogisticRegression(1.0, delta, classes=[0, 1], solver="output", **options).fit(X, y)


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
    assert found.sections["EDPB Opinion 28/2024"]["Membership inference"].startswith(
        "a 50:50 guess about one record becomes at most 73% sure"
    )
    assert "NIST SP 800-226: Utility and bias" in found.open_questions
    assert len(found.open_questions) == str(found).partition("Registry")[0].count(OPEN) == 7
    assert json.loads(json.dumps(found.to_dict()))["subject"] == found.subject


#: The registry's schema of July 2026: fields of a deployment by section, those that are required, and closed lists.
SECTIONS = {
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date "
    "data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type "
    "data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}
REQUIRED = {"basic": set(SECTIONS["basic"].split()[:-1]), "administrative": {"registry_authors"}}
LISTS = {
    "data_product_type": {"Summary statistics", "Machine learning model", "Dataset", "Synthetic data"},
    "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    "model_name": {"Local", "Central", "Shuffle", "Federated"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
}


@pytest.mark.parametrize("delta", [1e-4, 0.0])
def test_the_record_has_the_fields_of_the_registry(tmp_path, delta):
    card.save(fitted(delta=delta), tmp_path / "model.json")
    found = dossier(tmp_path / "model.json")
    record = json.loads(str(found).rpartition("```json")[2].removesuffix("```"))
    assert record == found.registry
    assert set(record) == {"url_slug", "status", "tier", "deployment"}
    assert set(record["deployment"]) == set(SECTIONS)
    for name, section in record["deployment"].items():
        assert REQUIRED.get(name, set()) <= set(section) <= set(SECTIONS[name].split())
        assert all(section[field] in allowed for field, allowed in LISTS.items() if field in section)
    loss = record["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": 1.0, "delta": delta}
    variant = record["deployment"]["dp_variant"]["variant_name"]
    assert variant == ("Approximate DP" if delta else "Pure DP")


def test_a_dossier_can_hold_the_audit_of_its_own_mechanism(tmp_path, capsys):
    card.save(fitted(), tmp_path / "model.json")
    command = ["card", str(tmp_path / "model.json"), "--output", str(tmp_path / "d.md"), "--audit", "60"]
    assert main([*command, "--dossier", "--owner", "ward office"]) == 0
    text = (tmp_path / "d.md").read_text()
    assert '"ward office"' in text
    assert "none is attached" not in text
    assert "half" in text
    assert main(command) == 1
    assert "--audit needs --dossier" in capsys.readouterr().err


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
