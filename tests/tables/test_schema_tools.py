"""Templates from public samples, the schema command, and schemas in scikit-learn pipelines."""

import csv
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline

from discreet import (
    Boolean,
    Categorical,
    Ledger,
    Numeric,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    SchemaEncoder,
    SchemaError,
    Target,
    Text,
    card,
)
from discreet.cli import main
from discreet.tables.cohort import COHORT_SCHEMA, make_cohort
from discreet.tables.drafting import misread, template

SAMPLE = {
    "age": ["31", "64", "?", "18"],
    "ward": ["north", "south", "north", ""],
    "smoker": ["yes", "no", "no", "NA"],
    "note": [f"word {i}" for i in range(4)],
    "empty": ["", "", "", ""],
    "patient": ["1", "2", "2", "3"],
    "ill": ["no", "yes", "no", "no"],
}


@pytest.fixture
def sample_file(tmp_path):
    path = tmp_path / "sample.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(SAMPLE)
        writer.writerows(zip(*SAMPLE.values(), strict=True))
    return path


# --- templates ---


def test_a_template_guesses_every_kind_of_column():
    made = template(SAMPLE, target="ill", group="patient", max_categories=3)
    assert dict(made.columns) == {
        "age": Numeric(15, 65),
        "ward": Categorical(("north", "south")),
        "smoker": Boolean(),
        "note": Text(square_roots=True),
    }
    assert made.target == Target("ill", ("no", "yes"))
    assert made.group == "patient"
    made.transform(SAMPLE)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([1, 2, 3], Target("y", (1, 2, 3))),
        ([0.5, 1.5, 2.5], Target("y", ("0.5", "1.5", "2.5"))),
        (list(range(200)), Target("y", bounds=(0, 200))),
    ],
)
def test_targets_are_classes_or_bounds(cells, expected):
    assert template({"x": [1] * len(cells), "y": cells}, target="y").target == expected


def test_bounds_enclose_the_sample_and_are_round():
    for low, high in [(0.013, 0.2), (-7, 3), (1e6, 1e6), (3, 3.0001)]:
        domain = template({"x": [low, high, (low + high) / 2]}).columns["x"]
        assert domain.lower <= low <= high <= domain.upper


def test_samples_that_say_nothing_are_refused():
    with pytest.raises(SchemaError, match="no column"):
        template({"x": [None, ""]})
    with pytest.raises(SchemaError, match="fewer than two"):
        template({"x": [1, 2], "y": ["a", "a"]}, target="y")
    with pytest.raises(SchemaError, match="by hand"):
        template({"x": range(60), "y": [f"w{i}" for i in range(60)]}, target="y")


def test_none_is_a_category_among_words_and_missing_elsewhere():
    made = template(
        {
            "insurance": ["none", "private", "NA", ""],
            "age": ["none", "3", "40", "5"],
            "smoker": ["yes", "none", "no", "no"],
            "pain": ["none", "mild", "?", "mild"],
        },
        target="pain",
    )
    assert made.columns["insurance"].categories == ("none", "private")
    assert isinstance(made.columns["age"], Numeric)
    assert isinstance(made.columns["smoker"], Boolean)
    assert made.target.classes == ("mild", "none")


# --- the command ---


def test_the_command_writes_a_schema_that_reads_back(sample_file, tmp_path, capsys):
    assert main(["schema", "template", str(sample_file), "--target", "ill", "--group", "patient"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# A template from a sample that must be PUBLIC")
    path = tmp_path / "schema.toml"
    path.write_text(text)
    assert Schema.from_file(path) == Schema.from_dict(tomllib.loads(text))
    assert Schema.from_file(path).group == "patient"
    assert main(["schema", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "ward=north, ward=south" in shown
    assert "group:          patient" in shown


def test_the_command_writes_other_formats_and_explains_errors(sample_file, capsys):
    assert main(["schema", "template", str(sample_file), "--format", "json"]) == 0
    assert "age" in json.loads(capsys.readouterr().out)["columns"]
    assert main(["schema", "template", str(sample_file), "--target", "nothing"]) == 1
    assert "no such column: 'nothing'" in capsys.readouterr().err
    assert main(["schema", "show", "nowhere.toml"]) == 1


def test_fit_uses_the_group_column(tmp_path, capsys):
    rng = np.random.default_rng(1)
    path, schema, model = (str(tmp_path / name) for name in ("d.csv", "s.toml", "m.json"))
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["x", "y", "person"])
        for person in range(400):
            for _ in range(rng.integers(1, 4)):
                x = rng.uniform(-1, 1)
                writer.writerow([f"{x:.3f}", "yes" if x > 0 else "no", person])
    Schema({"x": Numeric(-1, 1)}, Target("y", ("no", "yes")), group="person").to_file(schema)
    command = ["fit", path, "--schema", schema, "--output", model, "--epsilon", "5"]
    assert main(command) == 1
    assert "--max-rows-per-group" in capsys.readouterr().err
    assert main([*command, "--max-rows-per-group", "2"]) == 0
    assert "all rows of one person" in " ".join(capsys.readouterr().out.split())
    loaded = card.load(model)
    assert loaded.privacy_.guarantee.unit == "user"
    assert loaded.schema_.group == "person"


# --- pipelines ---


@pytest.fixture(scope="module")
def people():
    return make_cohort(6000).to_pandas()


def private(**options):
    return PrivateLogisticRegression(
        4.0, classes=COHORT_SCHEMA.classes, feature_bound=COHORT_SCHEMA.feature_bound(), **options
    )


def test_a_pipeline_from_the_raw_table_fits_scores_and_clones(people):
    labels = COHORT_SCHEMA.target_values(people)
    model = make_pipeline(SchemaEncoder(COHORT_SCHEMA), private())
    assert np.mean(cross_val_score(model, people, labels, cv=2)) > 0.72
    copied = clone(model)
    assert copied[0].schema == COHORT_SCHEMA
    assert copied.get_params()["schemaencoder__bad_rows"] == "error"


def test_groups_reach_the_estimator_through_the_pipeline(people):
    labels = COHORT_SCHEMA.target_values(people)
    model = Pipeline([("rows", SchemaEncoder(COHORT_SCHEMA)), ("model", private(max_rows_per_group=2))])
    model.fit(people, labels, model__groups=np.arange(len(people)) // 2)
    assert model[-1].privacy_.guarantee.unit == "user"


def test_features_have_names_and_frames_if_asked(people):
    encoder = SchemaEncoder(COHORT_SCHEMA)
    assert encoder.get_feature_names_out().tolist() == list(COHORT_SCHEMA.feature_names)
    frame = encoder.set_output(transform="pandas").fit_transform(people)
    assert list(frame.columns) == list(COHORT_SCHEMA.feature_names)
    assert np.array_equal(frame.to_numpy(), COHORT_SCHEMA.transform(people))
    assert encoder.fit(people).n_features_in_ == len(COHORT_SCHEMA.columns)


def test_fitting_the_encoder_learns_nothing(people):
    """The same state whatever table it saw, even none of the right columns."""
    one = SchemaEncoder(COHORT_SCHEMA).fit(people)
    other = SchemaEncoder(COHORT_SCHEMA).fit({"unrelated": [1]})
    assert one.__dict__.keys() == other.__dict__.keys()
    assert one.feature_names_in_.tolist() == other.feature_names_in_.tolist()
    with pytest.raises(TypeError, match=r"discreet\.Schema"):
        SchemaEncoder("schema.toml").fit(people)


def test_bad_cells_become_null_records_all_the_way():
    schema = Schema({"x": Numeric(-1, 1)}, Target("y", bounds=(-1, 1)))
    table = {"x": ["0.5", "many", "-0.5"] * 200, "y": ["0.5", "0", "much"] * 200}
    model = PrivateRidge(5.0, 1e-5, target_bounds=schema.target_bounds, feature_bound=1.5, bad_rows="null")
    pipeline = make_pipeline(SchemaEncoder(schema, bad_rows="null"), model)
    pipeline.fit(table, schema.target_values(table, bad_rows="null"))
    assert np.isfinite(pipeline[-1].coef_).all()
    with pytest.raises(SchemaError, match="not numbers"):
        clone(pipeline).set_params(schemaencoder__bad_rows="error").fit(table, [0.0] * 600)


def test_the_guide_runs(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "schema.md").read_text()
    rng = np.random.default_rng(0)
    n = 3000
    table = {
        "age": rng.uniform(0, 100, n),
        "income": rng.exponential(30_000, n),
        "hours": rng.uniform(10, 60, n),
        "ward": rng.choice(["north", "south", "moon"], n),
        "smoker": rng.choice(["yes", "no"], n),
        "complaint": rng.choice(["a cold", "broken leg"], n),
        "patient": np.arange(n) // 2,
    }
    table["readmitted"] = np.where(table["age"] > 50, "yes", "no")
    ledger = Ledger(tmp_path / "budget.ledger", epsilon=2.0, delta=1e-5)
    scope = {"table": table, "new_table": table, "ledger": ledger, "rows": rng.normal(size=(n, 3))}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "schema.md", "exec"), scope)
    assert scope["model"].score(table, table["readmitted"]) > 0.75
    assert scope["found"]["age"].upper > 50
    assert 0.2 < ledger.spent().epsilon <= 0.3
    for line in re.findall(r"^discreet (.*)$", text, flags=re.MULTILINE):
        with pytest.raises(SystemExit) as stop:
            main([*line.split()[:2], "--help"])
        assert stop.value.code == 0


def test_words_that_look_like_numbers_or_dates_are_told():
    cells = {"18,5": "decimal comma", "1.018,5": "decimal comma", "2024-03-01": "dates", "1.3.2024": "dates"}
    assert all(words in misread(pa.chunked_array([[cell, None, ""]])) for cell, words in cells.items())
    assert not any(misread(pa.chunked_array([[cell]])) for cell in ("18,5 kg", "A1", "north", "", "1.3"))
