"""Privacy per patient against privacy per visit, on the Diabetes 130 hospitals data (several visits per patient).

    python -m benchmarks.groups

``python -m benchmarks.groups`` writes ``results/groups.md``. Will a patient come back to the hospital? Patients, not
visits, are split into training and test. "visit" protects single rows only and is there for comparison; k is
`max_rows_per_group`. Domains are those of the code book.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks import kept
from benchmarks.data import VARIABLE, MissingData
from discreet import Binned, Categorical, Numeric, PrivateLogisticRegression, Schema, Target
from discreet.tables.domains import Domain
from discreet.tables.reading import read_table

FILE = "diabetes130_raw.parquet"
BOUNDS = (1, 2, 3, 5)
_DOSES = ("No", "Steady", "Up", "Down")
_COLUMNS: dict[str, Domain] = {
    "race": Categorical(("AfricanAmerican", "Asian", "Caucasian", "Hispanic", "Other")),
    "gender": Categorical(("Female", "Male")),
    "age": Categorical(tuple(f"[{low}-{low + 10})" for low in range(0, 100, 10))),
    "admission_type_id": Categorical(tuple(range(1, 9))),
    "discharge_disposition_id": Categorical(tuple(range(1, 30))),
    "admission_source_id": Categorical(tuple(range(1, 27))),
    "time_in_hospital": Numeric(1, 14),
    "num_lab_procedures": Numeric(0, 130),
    "num_procedures": Numeric(0, 6),
    "num_medications": Numeric(0, 80),
    "number_outpatient": Binned((1, 2, 4)),
    "number_emergency": Binned((1, 2, 4)),
    "number_inpatient": Binned((1, 2, 3, 5)),
    "number_diagnoses": Numeric(1, 16),
    "max_glu_serum": Categorical((">200", ">300", "Norm")),
    "A1Cresult": Categorical((">7", ">8", "Norm")),
    "insulin": Categorical(_DOSES),
    "metformin": Categorical(_DOSES),
    "change": Categorical(("Ch", "No")),
    "diabetesMed": Categorical(("No", "Yes")),
}
SCHEMA = Schema(_COLUMNS, Target("readmitted", ("NO", ">30", "<30")), group="patient_nbr")


@dataclass(frozen=True)
class Row:
    """What one way of fitting reached, averaged over splits."""

    unit: str
    epsilon: float
    rows_used: int
    accuracy: float
    auc: float


def load() -> tuple[Any, Any, Any]:
    """Bounded rows, whether the patient came back, and whose visit it was."""
    folder = os.environ.get(VARIABLE)
    path = Path(folder or ".") / FILE
    if not folder or not path.exists():
        raise MissingData(f"set {VARIABLE} to the folder that holds {FILE}")
    table = read_table(path, SCHEMA.needed)
    X, labels = SCHEMA.encode(table)
    plain = np.array(X, subok=False)  # rows as such, which a fit per visit takes
    return plain, (labels != "NO").astype(int), SCHEMA.groups(table)


def measure(epsilon: float = 1.0, seeds: range = range(3)) -> Iterator[Row]:
    """Test accuracy and AUC per unit of privacy."""
    X, y, patients = load()
    people, codes = np.unique(patients.astype(str), return_inverse=True)
    for unit in ("none", "visit", *(f"patient, k={k}" for k in BOUNDS)):
        scores = []
        for seed in seeds:
            test = (np.random.default_rng(seed).random(len(people)) < 0.2)[codes]
            scores.append((_used(unit, codes[~test]), *_scores(unit, epsilon, X, y, patients, test)))
        used, accuracy, auc = np.mean(scores, axis=0)
        yield Row(unit, epsilon, round(float(used)), float(accuracy), float(auc))


def _scores(unit: str, epsilon: float, X: Any, y: Any, patients: Any, test: Any) -> tuple[float, float]:
    train = ~test
    if unit == "none":
        model: Any = LogisticRegression(max_iter=500).fit(X[train], y[train])
    else:
        k = int(unit.split("=")[1]) if "=" in unit else None
        model = PrivateLogisticRegression(
            epsilon, classes=[0, 1], feature_bound=SCHEMA.feature_bound(), max_rows_per_group=k
        ).fit(X[train], y[train], groups=None if k is None else patients[train])
    raw = model.decision_function(X[test])
    return float(np.mean((raw > 0) == y[test])), float(roc_auc_score(y[test], raw))


def _used(unit: str, codes: Any) -> int:
    sizes = np.bincount(codes)
    return int(np.minimum(sizes, int(unit.split("=")[1])).sum()) if "=" in unit else int(sizes.sum())


def main() -> None:
    """Measure, print and keep the table."""
    try:
        rows = [
            (row.unit, f"{row.epsilon:g}", row.rows_used, f"{row.accuracy:.4f}", f"{row.auc:.4f}")
            for row in measure()
        ]
    except MissingData as missing:
        print(f"skipped: {missing}")
        return
    header = ("private unit", "epsilon", "rows used", "accuracy", "AUC")
    kept.keep(
        "groups",
        "Privacy per patient",
        {"Diabetes 130 hospitals, means of three splits": kept.table(header, rows)},
    )


if __name__ == "__main__":
    main()
