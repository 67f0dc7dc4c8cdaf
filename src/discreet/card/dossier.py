"""A dossier for reviewers of one model: its guarantee, the proof, the charge, and what was not shown.

It follows three documents: NIST SP 800-226 (evaluating differential privacy guarantees), EDPB Opinion 28/2024
(personal data and AI models), ISO/IEC 27559 (a de-identification framework). A dossier collects facts from the model
file, its ledger and an audit; its readers decide whether they suffice. Questions that only the controller can answer
are marked as open.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discreet.card.card import About
from discreet.card.files import read
from discreet.card.verification import Verification, verify
from discreet.display.console import printable
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.page import posterior
from discreet.privacy.statement import PrivacyStatement

OPEN = "to be answered by the controller"
_NO_AUDIT = "none is attached; run `discreet audit MODEL --twin` and pass its report"


@dataclass(frozen=True)
class Dossier:
    """Answers about a model, by document and by question.

    Attributes
    ----------
    subject : the kind of model and the version that wrote it.
    sections : answers by document, then by question.
    registry : a record for a registry of deployments of differential privacy.
    """

    subject: str
    sections: Mapping[str, Mapping[str, str]]
    registry: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        answers = {name: dict(section) for name, section in self.sections.items()}
        return {"subject": self.subject, "sections": answers, "registry": dict(self.registry)}

    @property
    def open_questions(self) -> list[str]:
        """Questions for the controller."""
        return [
            f"{name}: {question}"
            for name, section in self.sections.items()
            for question, answer in section.items()
            if answer == OPEN
        ]

    def __str__(self) -> str:
        lines = [f"# Dossier: {printable(self.subject)}"]
        for name, section in self.sections.items():
            lines += ["", f"## {name}", ""]
            lines += [f"- **{question}.** {printable(answer)}" for question, answer in section.items()]
        lines += ["", "## Differential Privacy Deployments Registry", ""]
        lines += ["A draft of the record. JSON is YAML, which the registry asks for.", ""]
        lines += ["```json", json.dumps(self.registry, indent=2), "```"]
        return "\n".join(lines)


def dossier(
    path: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: Any = None,
    audit: object = None,
    about: About | None = None,
) -> Dossier:
    """Collect the dossier of a model file, after verifying it.

    Parameters
    ----------
    path : model file.
    key, ledger : as in `verify`.
    audit : the report of an audit of this model's configuration (`discreet.audit.audit`), or None.
    about : declarations of the controller; default: those in the file.

    Raises
    ------
    CardError
        The file does not pass `verify`.
    """
    checked = verify(path, key=key, ledger=ledger)
    card = read(path)
    stated = card.privacy
    report = _NO_AUDIT if audit is None else " ".join(str(audit).split())
    return Dossier(
        f"{card.estimator}, written by discreet {card.library}",
        {
            "NIST SP 800-226": _evaluation(stated, checked),
            "EDPB Opinion 28/2024": _anonymity(stated, report),
            "ISO/IEC 27559": _framework(stated, report),
        },
        _record(card.estimator, card.library, stated, card.about if about is None else about),
    )


def _promised(promise: Guarantee) -> str:
    return f"epsilon {promise.epsilon:g}, delta {promise.delta:.3g}"


def _listed(texts: tuple[str, ...]) -> str:
    return "; ".join(texts) or "none"


def _evaluation(said: PrivacyStatement, checked: Verification) -> dict[str, str]:
    """Answer the questions of NIST SP 800-226."""
    promise = said.guarantee
    paid = "no ledger paid for it" if said.paid is None else str(said.paid)
    proofs = (
        ", ".join(said.proofs) or "named in words only; the file was written before statements named lemmas"
    )
    return {
        "Privacy parameters": f"{_promised(promise)}; recomputed from the events: epsilon {checked.epsilon:.6g}",
        "Unit of privacy": f"{promise.unit}; neighboring: {promise.neighboring.value}, {said.relation}",
        "Trust model": "central: the party that runs the fit sees the data; only the release is protected",
        "Mechanism": said.mechanism,
        "Proof": f"{said.theorem}; lemmas: {proofs}",
        "Composition and accounting": f"{paid}; releases outside one ledger add up without being counted",
        "Bounds and clipping": ", ".join(f"{name} {value}" for name, value in said.bounds.items()) or "none",
        "Assumptions": _listed(said.assumptions),
        "Hazards that are not covered": _listed(said.not_covered),
        "Side channels": "time and memory of the fit are not protected unless the statement says so",
        "Utility and bias": OPEN,
        "Access control and security of the data": OPEN,
        "Data collection": OPEN,
    }


def _anonymity(said: PrivacyStatement, audit: str) -> dict[str, str]:
    promise = said.guarantee
    return {
        "Likelihood of direct extraction": f"bounded by {_promised(promise)} per {promise.unit}, for any attacker and "
        "everything computed from the release",
        "Likelihood of obtaining personal data by queries": "the same bound: predictions are functions of the release "
        "and of the queried row",
        "Membership inference": f"a 50:50 guess about one {promise.unit} becomes at most "
        f"{posterior(0.5, promise.epsilon):.0%} sure, except with probability {promise.delta:.3g}",
        "Resistance to attacks": f"audit: {audit}",
        "Selection and minimization of sources": OPEN,
        "Documentation for data subjects and authorities": "this dossier, the model file, and its ledger",
        "Legal basis, legitimate interest, rights of data subjects": OPEN,
    }


def _framework(said: PrivacyStatement, audit: str) -> dict[str, str]:
    return {
        "Context assessment (recipients, other data)": OPEN,
        "Data assessment": f"unit: {said.guarantee.unit}; assumptions about the data: {_listed(said.assumptions)}",
        "Identifiability assessment": f"formal: {_promised(said.guarantee)}; empirical: {audit}",
        "Identifiability mitigation": said.mechanism,
        "Governance before, during and after the release": OPEN,
    }


def _record(estimator: str, library: str, said: PrivacyStatement, about: About) -> dict[str, Any]:
    """Draft a record for the Differential Privacy Deployments Registry (its schema of July 2026), tier 3.

    Facts that are not in the model file are left open for the submitter.
    """
    promise = said.guarantee
    variant = "Pure DP" if promise.delta == 0 else "Approximate DP"
    return {
        "url_slug": OPEN,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": about.title or OPEN,
                "data_curators": [about.owner or OPEN],
                "intended_use": about.purpose or OPEN,
                "data_product_type": "Machine learning model",
                "data_product_region": OPEN,
                "description": f"{estimator} (discreet {library})",
                "publication_date": about.date or OPEN,
            },
            "dp_variant": {
                "variant_name": variant if promise.kind == "dp" else "Custom",
                "data_domain": _listed(said.assumptions),
                "unprotected_quantities": _listed(said.not_covered),
            },
            "privacy_loss": {
                "privacy_unit": promise.unit,
                "privacy_unit_details": f"{promise.neighboring.value}: {said.relation}",
                "privacy_parameters": {"epsilon": promise.epsilon, "delta": promise.delta},
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": OPEN,
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "predictions are functions of the release and of the queried row",
                "composition": "no ledger counted other releases" if said.paid is None else str(said.paid),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": OPEN,
                "mechanisms": f"{said.mechanism}; noise on a grid, drawn exactly, so that digits reveal nothing",
                "justification": f"{said.theorem}; lemmas: {', '.join(said.proofs) or 'named in words only'}",
            },
            "administrative": {"registry_authors": [OPEN]},
        },
    }
