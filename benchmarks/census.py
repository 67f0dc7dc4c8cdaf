"""From the raw census table to a private model: UCI Adult through a schema, without any look at the data.

    python -m benchmarks.census [--repeats 10]

It writes ``results/census.md``. The customary split: 32,561 people train, 16,281 test; rows with missing cells are kept
on both sides.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import kept
from benchmarks.data import VARIABLE, MissingData
from discreet import Binned, Categorical, Numeric, PrivateLogisticRegression, Schema, Target
from discreet.tables.reading import read_table

FILE = "adult_raw.parquet"

# What the census code book says, not what the file holds.
SCHEMA = Schema(
    {
        "age": Binned((20, 25, 30, 35, 40, 45, 50, 55, 60, 65)),
        "workclass": Categorical(
            (
                "Private",
                "Self-emp-not-inc",
                "Self-emp-inc",
                "Federal-gov",
                "Local-gov",
                "State-gov",
                "Without-pay",
                "Never-worked",
            )
        ),
        "education_num": Numeric(1, 16),
        "marital_status": Categorical(
            (
                "Married-civ-spouse",
                "Divorced",
                "Never-married",
                "Separated",
                "Widowed",
                "Married-spouse-absent",
                "Married-AF-spouse",
            )
        ),
        "occupation": Categorical(
            (
                "Tech-support",
                "Craft-repair",
                "Other-service",
                "Sales",
                "Exec-managerial",
                "Prof-specialty",
                "Handlers-cleaners",
                "Machine-op-inspct",
                "Adm-clerical",
                "Farming-fishing",
                "Transport-moving",
                "Priv-house-serv",
                "Protective-serv",
                "Armed-Forces",
            )
        ),
        "relationship": Categorical(
            ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")
        ),
        "race": Categorical(("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")),
        "sex": Categorical(("Female", "Male")),
        "capital_gain": Binned((1, 3000, 5000, 7000, 10000)),
        "capital_loss": Binned((1, 1500, 2000, 2500)),
        "hours_per_week": Binned((20, 30, 40, 41, 50, 60)),
    },
    target=Target("income", ("<=50K", ">50K")),
)


def load() -> tuple[Any, Any]:
    """The training and the test table."""
    folder = os.environ.get(VARIABLE)
    path = Path(folder or ".") / FILE
    if not folder or not path.exists():
        raise MissingData(f"set {VARIABLE} to the folder that holds {FILE}")
    table = read_table(path, [*SCHEMA.needed, "split"])
    split = np.array(table.column("split").to_pylist())
    return table.filter(split == "train"), table.filter(split == "test")


def measure(epsilon: float = 1.0, repeats: int = 3) -> list[float]:
    """Test accuracies of fits with fresh noise."""
    train, test = load()
    X, y = SCHEMA.encode(train)
    X_test, y_test = SCHEMA.encode(test)
    return [
        float(
            PrivateLogisticRegression(epsilon, classes=SCHEMA.classes, feature_bound=SCHEMA.feature_bound())
            .fit(X, y)
            .score(X_test, y_test)
        )
        for _ in range(repeats)
    ]


def main() -> None:
    """Measure, print and keep accuracies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    try:
        rows = []
        for epsilon in (0.1, 0.3, 1.0, 3.0):
            found = 100 * np.array(measure(epsilon, options.repeats))
            error = found.std(ddof=1) / np.sqrt(len(found))
            rows.append((f"{epsilon:g}", f"{found.mean():.2f} ± {error:.2f}", f"{found.min():.2f}"))
    except MissingData as missing:
        print(f"skipped: {missing}")
        return
    said = f"Test accuracy in percent over {options.repeats} fits with fresh noise"
    kept.keep(
        "census", "Raw census table", {said: kept.table(("epsilon", "mean and its error", "lowest"), rows)}
    )


if __name__ == "__main__":
    main()
