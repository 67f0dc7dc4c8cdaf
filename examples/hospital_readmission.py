"""Patients with several visits: the promise is about the patient, so no patient counts with more than two rows.

Protecting rows one by one would look better and promise less: a patient with eight visits would have eight times the
epsilon.
"""

import tempfile
from pathlib import Path

import numpy as np

import discreet


def invented_visits(n_patients, rng):
    """Visits of invented patients: a few have many, and visits of one patient resemble each other."""
    visits = 1 + rng.poisson(np.where(rng.uniform(size=n_patients) < 0.1, 6.0, 0.5))
    patient = np.repeat(np.arange(n_patients), visits)
    health = rng.normal(size=(n_patients, 5))[patient] + 0.3 * rng.normal(size=(len(patient), 5))
    chance = 1 / (1 + np.exp(-2 * health @ np.array([1.0, -0.8, 0.5, 0.0, 0.2])))
    return health / 3, (rng.uniform(size=len(patient)) < chance).astype(int), patient


def main(folder):
    ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=3.0, delta=1e-5, unit="user")
    rng = np.random.default_rng(7)
    rows, readmitted, patient = invented_visits(30_000, rng)
    new_rows, new_readmitted, _ = invented_visits(5_000, rng)
    model = discreet.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, classes=[0, 1], max_rows_per_group=2, ledger=ledger
    )
    model.fit(rows, readmitted, groups=patient)
    print(model.privacy_)
    accuracy = model.score(new_rows, new_readmitted)
    always = max(new_readmitted.mean(), 1 - new_readmitted.mean())
    print(f"accuracy on new patients {accuracy:.3f}, always the commoner answer {always:.3f}")
    assert model.privacy_.guarantee.unit == "user"
    assert accuracy > always + 0.1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
