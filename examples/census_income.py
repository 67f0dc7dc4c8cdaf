"""From a raw table to a verified, saved and evaluated private model, everything private paid for.

Uses the census table `adult_raw.parquet` where DISCREET_DATA names a folder that holds it, and invented patients
elsewhere.
"""

import os
import tempfile
from pathlib import Path

import pandas as pd

import discreet
from discreet.tables.cohort import COHORT_SCHEMA, make_cohort

CENSUS = discreet.Schema(
    {
        "age": discreet.Binned((25, 30, 35, 40, 45, 50, 55, 60, 65)),
        "education_num": discreet.Numeric(1, 16),
        "hours_per_week": discreet.Binned((20, 35, 40, 45, 50, 60)),
        "capital_gain": discreet.Binned((1, 3000, 5000, 7000, 10_000)),
        "capital_loss": discreet.Binned((1, 1500, 2000)),
        "sex": discreet.Categorical(("Female", "Male")),
        "relationship": discreet.Categorical(
            ("Husband", "Wife", "Own-child", "Not-in-family", "Other-relative", "Unmarried")
        ),
        "occupation": discreet.Categorical(
            (
                "Adm-clerical",
                "Armed-Forces",
                "Craft-repair",
                "Exec-managerial",
                "Farming-fishing",
                "Handlers-cleaners",
                "Machine-op-inspct",
                "Other-service",
                "Priv-house-serv",
                "Prof-specialty",
                "Protective-serv",
                "Sales",
                "Tech-support",
                "Transport-moving",
            )
        ),
    },
    target=discreet.Target("income", ("<=50K", ">50K")),
)


def read_table():
    """A table and the public knowledge about it."""
    path = Path(os.environ.get("DISCREET_DATA", "nowhere")) / "adult_raw.parquet"
    if path.exists():
        return pd.read_parquet(path), CENSUS, 0.83
    return make_cohort(40_000).to_pandas(), COHORT_SCHEMA, 0.75


def main():
    table, schema, expected = read_table()
    table = table.sample(frac=1.0, random_state=0)
    half = len(table) * 4 // 5
    with tempfile.TemporaryDirectory() as folder:
        ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=1.0, delta=1e-6, adaptive=False)
        rows, labels = schema.encode(table[:half])
        model = discreet.PrivateLogisticRegression(
            epsilon=0.9,
            delta=5e-7,
            classes=schema.classes,
            feature_bound=schema.feature_bound(),
            ledger=ledger,
        ).fit(rows, labels)
        discreet.card.save(model, Path(folder) / "model.json", schema=schema)
        print(discreet.card.verify(Path(folder) / "model.json", ledger=ledger))
        held_out, answers = schema.encode(table[half:])
        result = discreet.evaluate(model, held_out, answers, epsilon=0.1, delta=5e-7, ledger=ledger)
        print(f"private estimate of the accuracy: {result['accuracy']}")
        print(f"the ledger: {ledger.spent()}")
        assert result["accuracy"].value > expected - 0.03
        assert ledger.spent().epsilon <= 1.0


if __name__ == "__main__":
    main()
