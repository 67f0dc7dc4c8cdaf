"""Private additive models on tables: AUC of classifiers, R^2 of regressors, on a held-out fifth.

Ranges of numbers are public knowledge about the quantity, wide and round; categories are those that occur in the file
and are treated as public. Bins are chosen by the fit and paid for. Run ``python -m benchmarks.additive``, which writes
``results/additive.md``; ``--sets``, ``--epsilons``, ``--splits`` and ``--pairs`` narrow it down, and cells that were
measured before are kept in ``results/additive.json``. Defaults include pairs of columns where the public rule
adds some; ``--pairs 0`` measures without. ``--speed`` times a fit of 50,000 rows and 15 columns.
``python -m benchmarks.ebm`` compares with DP-EBM.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks import regression, second_order
from benchmarks.data import VARIABLE, MissingData
from discreet import Categorical, Numeric, PrivateAdditiveClassifier, PrivateAdditiveRegressor, Schema

RESULTS = Path(__file__).parent / "results"
DELTA = 1e-6
EPSILONS = (0.1, 0.5, 1.0, 4.0)
RELATIONS = {"AR": "add-remove-one", "RO": "replace-one"}
PAIRS = "default", "0"
Range = tuple[float, float]


@dataclass(frozen=True)
class Source:
    """A table: its file, numeric columns with public ranges, which of them are logarithmic, and what is predicted."""

    file: str
    ranges: dict[str, Range]
    target: str
    positive: Callable[[str], bool]
    logarithmic: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    prepared: Callable[[Any], Any] = field(default=lambda table: table)


def _diagnosis(code: str) -> str:
    """The chapter of an ICD-9 code, as the literature on this table groups them."""
    if code in ("?", "nan", "None"):
        return "missing"
    if code[0] in "EV":
        return code[0]
    number = float(code)
    if 250 <= number < 251:
        return "diabetes"
    chapters = {
        "infections": (1, 140), "neoplasms": (140, 240), "endocrine": (240, 280), "mental": (290, 320),
        "nervous": (320, 390), "circulatory": (390, 460), "respiratory": (460, 520), "digestive": (520, 580),
        "genitourinary": (580, 630), "skin": (680, 710), "musculoskeletal": (710, 740), "symptoms": (780, 800),
        "injury": (800, 1000),
    }  # fmt: skip
    return next((name for name, (low, high) in chapters.items() if low <= number < high), "other")


def _grouped(table: Any) -> Any:
    return table.assign(**{f"diag_{k}": table[f"diag_{k}"].astype(str).map(_diagnosis) for k in (1, 2, 3)})


TABLES = {
    "Adult": Source(
        "adult_raw.parquet",
        {
            "age": (17, 90),
            "education_num": (1, 16),
            "capital_gain": (0, 100_000),
            "capital_loss": (0, 5000),
            "hours_per_week": (1, 99),
        },
        "income",
        lambda text: text == ">50K",
        ("capital_gain", "capital_loss"),
        ("fnlwgt", "education", "split"),
    ),
    "Bank": Source(
        "bank_marketing.parquet",
        {
            "age": (18, 95),
            "balance": (-8000, 100_000),
            "day": (1, 31),
            "duration": (0, 4000),
            "campaign": (1, 50),
            "pdays": (-1, 900),
            "previous": (0, 50),
        },
        "y",
        lambda text: text == "yes",
        ("duration", "campaign", "previous"),
    ),
    "Telco": Source(
        "telco_churn.parquet",
        {"tenure": (0, 72), "MonthlyCharges": (0, 150), "TotalCharges": (0, 10_000)},
        "Churn",
        lambda text: text == "Yes",
    ),
    "COMPAS": Source(
        "compas.parquet",
        {
            "age": (18, 90),
            "juv_fel_count": (0, 20),
            "juv_misd_count": (0, 15),
            "juv_other_count": (0, 20),
            "priors_count": (0, 40),
            "days_b_screening_arrest": (-500, 1100),
        },
        "two_year_recid",
        lambda text: text == "1",
        (),
        ("is_recid", "decile_score", "score_text", "age_cat"),
    ),
    "Diabetes-130": Source(
        "diabetes130_raw.parquet",
        {
            "time_in_hospital": (1, 14),
            "num_lab_procedures": (1, 130),
            "num_procedures": (0, 6),
            "num_medications": (1, 80),
            "number_outpatient": (0, 40),
            "number_emergency": (0, 70),
            "number_inpatient": (0, 20),
            "number_diagnoses": (1, 16),
        },
        "readmitted",
        lambda text: text != "NO",
        (),
        ("encounter_id", "patient_nbr", "weight", "examide", "citoglipton"),
        _grouped,
    ),
    "German": Source(
        "german_credit.parquet",
        {
            "duration_in_month": (1, 72),
            "credit_amount": (0, 20_000),
            "installment_rate_in_percentage_of_disposable_income": (1, 4),
            "present_residence_since": (1, 4),
            "age_in_years": (18, 90),
            "number_of_existing_credits_at_this_bank": (1, 4),
            "number_of_people_being_liable_to_provide_maintenance_for": (1, 2),
        },
        "credit_risk",
        lambda text: text == "2",
        ("credit_amount",),
    ),
}
MEASURED = {"Magic": "magic.npz", "Electricity": "electricity.npz"}  # ranges are those of the file
NOMINAL = {"bike": ("season", "yr", "mnth", "holiday", "weekday", "workingday", "weathersit")}
TARGETS = {"California": "california", "Bike": "bike", "Wine": "wine", "Bike, counts": "bike"}
SETS = (*TABLES, *MEASURED, *TARGETS)
_SPEED = 50_000, 15


@dataclass(frozen=True)
class Data:
    """A table in memory with its public domains."""

    columns: dict[str, Any]
    labels: Any
    schema: Schema
    bounds: Range | None
    loss: str = "squared"

    def part(self, rows: Any) -> tuple[dict[str, Any], Any]:
        """Some of the rows."""
        return {name: values[rows] for name, values in self.columns.items()}, self.labels[rows]


def load(name: str) -> Data:
    """A data set, or `MissingData` with what to do."""
    folder = os.environ.get(VARIABLE)
    file = MEASURED.get(name) or (TABLES[name] if name in TABLES else _source(name)).file
    if not folder or not (path := Path(folder) / file).exists():
        raise MissingData(f"set {VARIABLE} to the folder that holds {file}")
    if name in MEASURED:
        return _measured(path)
    return _table(path, TABLES[name]) if name in TABLES else _numbers(path, name)


def _source(name: str) -> regression.Source:
    key = TARGETS[name]
    return regression.SOURCES[key] if key in regression.SOURCES else second_order.SETS[key]


def _measured(path: Path) -> Data:
    with np.load(path, allow_pickle=False) as file:
        rows, y = file["X"].astype(np.float64), file["y"].astype(int)
    columns = {f"x{place}": values for place, values in enumerate(rows.T)}
    domains = {name: Numeric(float(cells.min()), float(cells.max())) for name, cells in columns.items()}
    return Data(columns, y, Schema(domains), None)


def _table(path: Path, source: Source) -> Data:
    import pandas as pd

    table = source.prepared(pd.read_parquet(path))
    labels = table[source.target].astype(str).map(source.positive).to_numpy().astype(int)
    columns: dict[str, Any] = {}
    domains: dict[str, Any] = {}
    for column in table.columns:
        if column == source.target or column in source.left_out:
            continue
        if column in source.ranges:
            low, high = source.ranges[column]
            columns[column] = table[column].to_numpy(dtype=np.float64)
            domains[column] = Numeric(float(low), float(high), logarithmic=column in source.logarithmic)
        else:
            columns[column] = table[column].astype(str).to_numpy(dtype=object)
            domains[column] = Categorical(tuple(sorted(set(columns[column]))))
    return Data(columns, labels, Schema(domains), None)


def _numbers(path: Path, name: str) -> Data:
    source = _source(name)
    rows, y = regression._read(path, source)
    nominal = NOMINAL.get(TARGETS[name], ())
    columns = {
        column: rows[:, place].astype(int) if column in nominal else rows[:, place]
        for place, column in enumerate(source.columns)
    }
    domains = {
        column: Categorical(tuple(range(int(low), int(high) + 1)))
        if column in nominal
        else Numeric(float(low), float(high))
        for column, (low, high) in source.columns.items()
    }
    low, high = source.target_bounds
    loss = "poisson" if name.endswith("counts") else "squared"
    return Data(columns, np.clip(y, low, high), Schema(domains), source.target_bounds, loss)


def split(data: Data, seed: int) -> list[Any]:
    """The rows to learn from, and those to score."""
    order = np.random.default_rng(seed).permutation(len(data.labels))
    return list(np.split(order, [int(0.8 * len(order))]))


def score(data: Data, epsilon: float, relation: str, pairs: str, seed: int) -> tuple[float, float]:
    """AUC or R^2 of one split, and the processor seconds of the fit."""
    train, test = split(data, seed)
    told: dict[str, Any] = {
        "neighboring": relation,
        "n_samples": len(train),
        "schema": data.schema,
        "pairs": None if pairs == "default" else int(pairs),
    }
    X, y = data.part(train)
    start = time.process_time()
    if data.bounds is None:
        model: Any = PrivateAdditiveClassifier(epsilon, DELTA, classes=[0, 1], **told).fit(X, y)
    else:
        told |= {"target_bounds": data.bounds, "loss": data.loss}
        model = PrivateAdditiveRegressor(epsilon, DELTA, **told).fit(X, y)
    seconds = time.process_time() - start
    X, y = data.part(test)
    found = model.score(X, y) if data.bounds is not None else roc_auc_score(y, model.decision_function(X))
    return float(found), seconds


def cells(options: argparse.Namespace) -> Iterator[tuple[str, float, str, str]]:
    """Everything that is asked for."""
    for name in options.sets:
        for pairs in options.pairs:
            for relation in options.relations:
                for epsilon in options.epsilons:
                    yield name, epsilon, relation, pairs


def measure(options: argparse.Namespace, known: dict[str, Any]) -> None:
    """Fit what is missing; ``known`` maps a cell to its scores and seconds."""
    loaded: dict[str, Data] = {}
    for name, epsilon, relation, pairs in cells(options):
        key = f"{name}|{epsilon:g}|{relation}|{pairs}"
        found = known.setdefault(key, {"scores": [], "seconds": []})
        for seed in range(len(found["scores"]), options.splits):
            if name not in loaded:
                loaded = {name: load(name)}
            value, seconds = score(loaded[name], epsilon, RELATIONS[relation], pairs, seed)
            found["scores"].append(round(value, 5))
            found["seconds"].append(round(seconds, 2))
        print(key, np.round(np.mean(found["scores"]), 4), found["seconds"], flush=True)
        options.kept.write_text(json.dumps(known, indent=1) + "\n")


def measure_speed() -> dict[str, float]:
    """Processor and wall seconds of a classifier with defaults, the second fit of a process."""
    n, columns = _SPEED
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, columns))
    y = (np.sin(3 * X[:, 0]) + X[:, 1] + rng.logistic(size=n) > 0).astype(int)
    for _ in range(2):
        start, used = time.perf_counter(), time.process_time()
        PrivateAdditiveClassifier(1.0, DELTA, feature_bounds=(-1, 1), classes=[0, 1]).fit(X, y)
        found = {"processor": time.process_time() - used, "wall": time.perf_counter() - start}
    return {name: round(seconds, 1) for name, seconds in found.items()}


def report(known: dict[str, Any]) -> str:
    """The table of everything that was measured."""
    known = dict(known)
    speed = known.pop("speed", None)
    kinds = [(relation, pairs) for pairs in PAIRS for relation in RELATIONS]
    heads = [f"{relation}{', no pairs' if pairs == '0' else ''}" for relation, pairs in kinds]
    lines = [
        "# Private additive models",
        "",
        "AUC of `PrivateAdditiveClassifier`, R² of `PrivateAdditiveRegressor` (California, Bike, Wine; with "
        '`loss="poisson"` where counts are named), defaults, on '
        f"a held-out fifth: mean and standard error over splits, their number in brackets. delta = {DELTA:g}; AR is "
        "add-remove-one with the number of rows declared, RO replace-one. Bins are chosen by the fit and paid for; "
        "ranges are declared (Magic, Electricity: those of the file), categories are those of the file. "
        "Constants of the method were compared on other splits "
        "of the same tables, so that these figures are a little too good. "
        "These splits were looked at before, with earlier constants, and that prompted some of the comparisons. "
        "Defaults have three pairs of columns where the public rule adds them. "
        "Seconds are processor time.",
        "",
        f"| data set | epsilon | {' | '.join(heads)} | seconds of a fit |",
        "|---" * (len(heads) + 3) + "|",
    ]
    for name in SETS:
        for epsilon in EPSILONS:
            row = [known.get(f"{name}|{epsilon:g}|{relation}|{pairs}") for relation, pairs in kinds]
            if any(row):
                seconds = [second for one in row if one for second in one["seconds"]]
                texts = ["" if not one else shown(one["scores"]) for one in row]
                lines.append(f"| {name} | {epsilon:g} | {' | '.join(texts)} | {np.median(seconds):.1f} |")
    lines += [
        "",
        "Tried and left out: cutting bins at the nearest edge of a cell instead of beyond a full bin. Greedy cuts put "
        "the 24 hours of Bike into 12 to 15 bins in the three fits looked at, and nearest cuts narrowed its gap "
        "between AR and RO. But on tables outside this list (late flights, delays, a census, letters, shuttle), "
        "which were to decide, they gained nothing and cost R² on delays; with a fifth fewer bins they changed nothing "
        "on delays and the census.",
    ]
    if speed:
        rows, columns = _SPEED
        lines += [
            "",
            f"A fit of {rows} rows and {columns} numeric columns (epsilon 1, defaults) took "
            f"{speed['processor']:g} seconds of processor time, {speed['wall']:g} seconds by the clock.",
        ]
    return "\n".join(lines) + "\n"


def shown(scores: list[float]) -> str:
    """Mean, standard error and number of splits."""
    error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else float("nan")
    return f"{np.mean(scores):.3f} ± {error:.3f} ({len(scores)})"


def main() -> None:
    """Write and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--relations", nargs="*", default=["AR"], choices=list(RELATIONS))
    parser.add_argument("--pairs", nargs="*", default=["default"], choices=PAIRS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--speed", action="store_true", help="time a fit instead")
    parser.add_argument("--kept", type=Path, default=RESULTS / "additive.json")
    parser.add_argument("--output", type=Path, default=RESULTS / "additive.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # that the answer will be mostly noise, where it is
    known = json.loads(options.kept.read_text()) if options.kept.exists() else {}
    if options.speed:
        known["speed"] = measure_speed()
        options.kept.write_text(json.dumps(known, indent=1) + "\n")
    else:
        measure(options, known)
    text = report(known)
    options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
