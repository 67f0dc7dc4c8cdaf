"""The command line: the whole path by commands, exit codes, one-line errors, and help that is instant."""

from __future__ import annotations

import io
import json
import re
import stat
import subprocess
import sys

import numpy as np
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from discreet import card, release
from discreet.cli import main
from discreet.privacy.events import (
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Gaussian,
    Grouped,
    Laplace,
    Pure,
    Repeated,
    Subsampled,
)
from discreet.privacy.ledger.ledger import Ledger
from discreet.tables.cohort import COHORT_SCHEMA, make_cohort
from discreet.tables.reading import read_table
from discreet.tables.schema import Boolean, Categorical, Numeric, Schema, Target

HEAVY = {"numpy", "scipy", "sklearn", "numba", "dp_accounting", "pyarrow", "pandas", "rich"}


@pytest.fixture(scope="module")
def cohort():
    return make_cohort(6_000)


@pytest.fixture
def place(tmp_path, cohort):
    """A folder with a private table in both formats, its schema, and a ledger."""
    parquet.write_table(cohort, tmp_path / "table.parquet")
    arrow_csv.write_csv(cohort, tmp_path / "table.csv")
    COHORT_SCHEMA.to_file(tmp_path / "schema.toml")
    Ledger(tmp_path / "budget.ledger", 2.0, 1e-6)
    return tmp_path


def fit_command(place, data="table.parquet", *more):
    return [
        *("fit", str(place / data), "--schema", str(place / "schema.toml"), "--epsilon", "1"),
        *("--ledger", str(place / "budget.ledger"), "--output", str(place / "model.json")),
        *more,
    ]


def failure(capsys, *arguments):
    """Run a command that must fail; returns its one line of explanation."""
    assert main([str(argument) for argument in arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


# --- help ---


@pytest.mark.parametrize(
    "command", [[], ["demo"], ["plan"], ["fit"], ["predict"], ["ledger"], ["ledger", "create"]], ids=" ".join
)
def test_help_exists(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    assert "usage: discreet" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom discreet.cli import main\n"
        "for command in ([], ['demo'], ['plan'], ['fit'], ['predict'], ['ledger']):\n"
        "    try: main([*command, '--help'])\n"
        "    except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    assert "argparse" in loaded
    assert not loaded & HEAVY


def test_no_command_is_a_usage_error(capsys):
    assert main([]) == 2
    assert "usage: discreet" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("discreet 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "0"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "-1"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "nan"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "inf"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "1", "--delta", "1"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "1", "--delta", "-0.1"],
        ["plan", "--rows", "0", "--columns", "3", "--epsilon", "1"],
        ["plan", "--rows", "100", "--columns", "1000000000", "--epsilon", "1"],
        ["plan", "--rows", "100000000000000000000", "--columns", "3", "--epsilon", "1"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "1e300"],
        ["plan", "--rows", "100", "--epsilon", "1"],
        ["plan", "--rows", "100", "--columns", "3", "--epsilon", "1", "--model", "forest"],
        ["fit", "table.csv"],
        ["ledger"],
        ["ledger", "create", "x"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_command_lines(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


# --- plan ---


def test_plan_needs_no_data(capsys):
    assert main(["plan", "--rows", "40000", "--columns", "30", "--epsilon", "0.5"]) == 0
    output = capsys.readouterr().out
    assert "0.5" in output
    assert "6.25e-10" in output  # 1 / rows^2
    assert "noise" in output
    assert "chosen by solver=auto" in output
    assert "No data was read" in output


def test_plan_for_texts(capsys):
    texts = ["plan", "--rows", "18000", "--columns", "6400", "--epsilon", "1"]
    assert main([*texts, "--sparse"]) == 0
    assert "refocused-sums, because rows are wide and sparse" in capsys.readouterr().out
    assert main(texts) == 0
    assert "discriminant" not in capsys.readouterr().out
    assert "dense rows" in failure(capsys, *texts, "--sparse", "--simulate")


def test_plan_by_schema_equals_plan_by_shape(tmp_path, capsys):
    path = tmp_path / "schema.json"
    COHORT_SCHEMA.with_target("care_level", ("a", "b", "c")).to_file(path)
    common = ["plan", "--rows", "40000", "--epsilon", "1", "--model", "svm"]
    assert main([*common, "--schema", str(path)]) == 0
    by_schema = capsys.readouterr().out
    bound = repr(COHORT_SCHEMA.feature_bound())
    columns = str(COHORT_SCHEMA.n_features)
    assert main([*common, "--columns", columns, "--classes", "3", "--feature-bound", bound]) == 0
    assert capsys.readouterr().out == by_schema


def test_plan_that_is_impossible(capsys):
    gaussian = ("--solver", "noisy-gd", "--delta", 0)
    message = failure(capsys, "plan", "--rows", 100, "--columns", 3, "--epsilon", 1, *gaussian)
    assert "delta" in message
    message = failure(capsys, "plan", "--rows", 100, "--columns", 3, "--epsilon", 1, "--solver", "magic")
    assert "magic" in message
    failure(capsys, "plan", "--rows", 100, "--columns", 3, "--epsilon", 1, "--classes", 1)


def test_plans_and_fits_of_a_number_name_the_models_for_it(place, capsys):
    COHORT_SCHEMA.with_target("length", bounds=(18, 100)).to_file(place / "schema.toml")
    plan = ("plan", "--schema", place / "schema.toml", "--rows", 100, "--epsilon", 1)
    for command in (plan, fit_command(place)):
        assert "is a number, which logistic does not predict; choose --model ridge, linear, huber" in failure(
            capsys, *command, "--model", "logistic"
        )
    assert Ledger(place / "budget.ledger").history() == []


@pytest.mark.parametrize("solver", ["newton", "objective"])
def test_labels_and_values_of_a_plan_are_apart(solver, capsys):
    assert main(["plan", "--rows", "40000", "--columns", "30", "--epsilon", "1", "--solver", solver]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert len(lines) > 4
    assert all("  " in line.strip() for line in lines)


# --- fit and predict ---


@pytest.mark.parametrize("data", ["table.csv", "table.parquet"])
def test_from_table_to_predictions(place, data, capsys, cohort):
    assert main(fit_command(place, data)) == 0
    output = capsys.readouterr().out
    assert "Privacy statement" in output
    assert "replace-one" in output
    model = card.load(place / "model.json")
    assert model.privacy_.epsilon == 1.0
    assert model.privacy_.delta == pytest.approx(1 / 6000**2)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.schema_ == COHORT_SCHEMA
    assert len(Ledger(place / "budget.ledger").history()) == 1

    assert (
        main(["predict", str(place / "model.json"), str(place / data), "--output", str(place / "out.csv")])
        == 0
    )
    written = read_table(place / "out.csv")
    assert written.column_names == ["prediction", "probability of no", "probability of yes"]
    assert stat.S_IMODE((place / "out.csv").stat().st_mode) == 0o600  # about private rows
    predicted = np.array(written.column("prediction").to_pylist())
    np.testing.assert_array_equal(predicted, model.predict(COHORT_SCHEMA.transform(cohort)))
    chances = np.array(written.column("probability of yes").to_pylist(), dtype=float)
    np.testing.assert_array_equal(predicted == "yes", chances > 0.5)
    truth = np.array(cohort.column("readmitted").to_pylist())
    assert np.mean(predicted == truth) > 0.7


def test_statement_never_holds_accuracy_on_private_rows(place, capsys):
    assert main(fit_command(place)) == 0
    captured = capsys.readouterr()
    assert "accuracy" not in (captured.out + captured.err).lower()


def test_errors_speak_of_the_options_that_a_command_has(place, capsys):
    fit = fit_command(place, "table.csv")
    assert "pass --max-rows N as a public upper bound or pass --neighboring replace-one" in failure(
        capsys, *fit, "--neighboring", "add-remove-one"
    )
    assert "--max-rows must be at least the number of rows, got 10;" in failure(
        capsys, *fit, "--neighboring", "add-remove-one", "--max-rows", "10"
    )
    assert "--max-rows is for --neighboring add-remove-one" in failure(capsys, *fit, "--max-rows", "9000")
    assert main(fit) == 0
    capsys.readouterr()
    text = (place / "table.csv").read_text().replace("\n", "\nold", 1)
    (place / "words.csv").write_text(text)
    refit = fit_command(place, "words.csv", "--overwrite")
    assert "pass --bad-rows null to ignore such rows" in failure(capsys, *refit)
    message = failure(
        capsys, "predict", place / "model.json", place / "words.csv", "--output", place / "out.csv"
    )
    assert "correct them or leave them empty\n" in message
    assert "bad" not in message
    greedy = [*fit[:-1], place / "second.json", "--epsilon", "5"]
    assert "(--fixed-sizes) counts tighter" in failure(capsys, *greedy)


def test_the_command_and_the_function_count_in_as_many_bins():
    from inspect import signature

    from discreet import evaluate
    from discreet.cli import _parser

    arguments = _parser().parse_args(["evaluate", "m", "d", "--epsilon", "1"])
    assert arguments.bins == signature(evaluate).parameters["bins"].default


def test_a_large_delta_is_warned_about(place, capsys):
    command = [part for part in fit_command(place) if "ledger" not in part]
    assert main([*command, "--delta", "0.5"]) == 0
    assert "warning: delta = 0.5 is too large to protect anyone" in capsys.readouterr().err


def test_svm_of_three_classes(place, capsys):
    COHORT_SCHEMA.with_target("care_level", ("self care", "home visits", "nursing")).to_file(
        place / "schema.toml"
    )
    assert main(fit_command(place, "table.parquet", "--model", "svm")) == 0
    arguments = [
        "predict",
        str(place / "model.json"),
        str(place / "table.csv"),
        "--output",
        str(place / "out.csv"),
    ]
    assert main(arguments) == 0
    written = read_table(place / "out.csv")
    assert set(written.column("prediction").to_pylist()) <= {"self care", "home visits", "nursing"}


def test_add_remove_hides_the_number_of_rows(place, capsys):
    command = ["fit", str(place / "table.csv"), "--schema", str(place / "schema.toml"), "--epsilon", "1"]
    command += ["--neighboring", "add-remove-one", "--output", str(place / "model.json")]
    assert "public" in failure(capsys, *command)
    assert main([*command, "--max-rows", "9000"]) == 0
    captured = capsys.readouterr()
    assert "6000" not in captured.out
    assert "9000" in captured.out
    assert "no --ledger was given" in captured.err


def test_without_a_ledger_a_note_says_so(place, capsys):
    command = fit_command(place)
    del command[command.index("--ledger") : command.index("--ledger") + 2]
    assert main(command) == 0
    assert "no --ledger was given" in capsys.readouterr().err


# --- bad input is noticed before anything is charged ---


def write_table(place, **columns):
    content = {"age": ["30", "40"], "ward": ["a", "b"], "y": ["no", "yes"], **columns}
    lines = [",".join(content), *(",".join(row) for row in zip(*content.values(), strict=True))]
    (place / "small.csv").write_text("\n".join(lines) + "\n")
    schema = Schema(
        {"age": Numeric(0, 100), "ward": Categorical(("a", "b"))}, target=Target("y", ("no", "yes"))
    )
    schema.to_file(place / "schema.toml")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": ["30", "secret"]}, "column 'age' is declared numeric"),
        ({"y": ["no", "secret"]}, "allowed: 'no', 'yes'"),
        ({"y": ["no", ""]}, "labels that are missing"),
    ],
)
def test_bad_cells(place, capsys, columns, message):
    write_table(place, **columns)
    line = failure(capsys, *fit_command(place, "small.csv"))
    assert message in line
    assert "secret" not in line
    assert Ledger(place / "budget.ledger").history() == []
    assert not (place / "model.json").exists()


def test_bad_rows_can_be_ignored_silently(place, capsys):
    write_table(
        place, age=["30", "secret"] * 50, ward=["a", "b"] * 50, y=["no", "yes"] * 49 + ["what", "yes"]
    )
    assert main(fit_command(place, "small.csv", "--bad-rows", "null")) == 0
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err
    assert len(Ledger(place / "budget.ledger").history()) == 1


def test_missing_and_broken_files(place, capsys):
    assert "there is no file" in failure(capsys, *fit_command(place, "none.csv"))
    assert "must end in" in failure(capsys, *fit_command(place, "budget.ledger"))
    (place / "broken.parquet").write_bytes(b"PAR1")
    assert "not a readable Parquet file" in failure(capsys, *fit_command(place, "broken.parquet"))
    write_table(place)
    (place / "small.csv").write_text("age,y\n1,no\n")
    assert "no such column: 'ward'" in failure(capsys, *fit_command(place, "small.csv"))
    Schema({"age": Boolean()}).to_file(place / "schema.toml")
    assert "declares no target" in failure(capsys, *fit_command(place))
    (place / "schema.toml").write_text("columns = 3")
    assert "schema file" in failure(capsys, *fit_command(place))
    (place / "schema.toml").unlink()
    assert "there is no schema file" in failure(capsys, *fit_command(place))
    assert Ledger(place / "budget.ledger").history() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 and so on", "is a Parquet file"),
        ("age,y\n1,no\n".encode("utf-16"), "is UTF-16 text"),
        ("age,y\n1,no\n".encode("utf-16-le"), "holds zero bytes"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is a picture"),
        (b"PK\x03\x04\0\0", "a spreadsheet"),
        (b"\x1f\x8b\x08\0", "is compressed"),
        (b'age,ward,y\n1,"' + b"a" * (1 << 21) + b'",no\n', "a line of more than 1 MB"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_files_that_are_no_csv_are_called_what_they_are(place, capsys, content, message):
    (place / "odd.csv").write_bytes(content)
    assert message in failure(capsys, *fit_command(place, "odd.csv"))
    if b"\n1," not in content:  # in a table that is one, no line but the first may be told about
        assert message in failure(capsys, *fit_command(place, "odd.csv", "--bad-rows", "null"))


def test_a_key_that_is_not_there(place, capsys):
    message = failure(capsys, "verify", place / "schema.toml", "--key", place / "nope")
    assert "there is no key file" in message
    assert "`discreet key` makes a pair" in message


def test_templates_are_utf8_wherever_they_are_printed(place, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    (place / "sample.csv").write_text("größe,y\n1,no\n2,yes\n", encoding="utf-8")
    assert main(["schema", "template", str(place / "sample.csv"), "--target", "y"]) == 0
    (place / "made.toml").write_bytes(stream.buffer.getvalue())
    assert list(Schema.from_file(place / "made.toml").columns) == ["größe"]


def test_charts_are_asked_for_before_the_work(place, capsys, monkeypatch):
    from discreet.display import charts

    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    assert "pip install 'discreet[report]'" in failure(capsys, "audit", "logistic", "--output", "audit.html")


def test_audits_refuse_options_that_they_would_not_use(place, capsys):
    for option, value in (
        ("epsilon", "5"),
        ("delta", "0.1"),
        ("neighboring", "zero-out"),
        ("solver", "newton"),
    ):
        message = failure(capsys, "audit", "PrivateFTRL", f"--{option}", value)
        assert f"--{option} is for logistic and svm; PrivateFTRL is audited with its own settings" in message


def test_places_for_the_model_are_checked_first(place, capsys):
    (place / "model.json").write_text("precious")
    assert "--overwrite" in failure(capsys, *fit_command(place))
    assert (place / "model.json").read_text() == "precious"
    command = fit_command(place)
    command[command.index("--output") + 1] = str(place / "none" / "model.json")
    assert "cannot write" in failure(capsys, *command)
    assert Ledger(place / "budget.ledger").history() == []
    assert main(fit_command(place, "table.csv", "--overwrite")) == 0
    assert card.load(place / "model.json").privacy_.epsilon == 1.0


def test_ledgers_that_cannot_pay(place, capsys):
    small = Ledger(place / "small.ledger", 0.5, 1e-6)
    command = fit_command(place)
    command[command.index("--ledger") + 1] = str(small.path)
    assert "does not fit" in failure(capsys, *command)
    assert not (place / "model.json").exists()
    assert small.history() == []
    command[command.index("--ledger") + 1] = str(place / "none.ledger")
    assert "there is no ledger" in failure(capsys, *command)
    assert not (place / "none.ledger").exists()
    (place / "corrupt.ledger").write_bytes(b"garbage" * 100)
    command[command.index("--ledger") + 1] = str(place / "corrupt.ledger")
    assert "ledger" in failure(capsys, *command)
    other = Ledger(place / "other.ledger", 5.0, 1e-6, neighboring="add-remove-one")
    command[command.index("--ledger") + 1] = str(other.path)
    assert "add-remove-one" in failure(capsys, *command)


def test_a_disk_that_fills_up_during_the_fit(place, capsys, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "could not write: No space left on device")

    monkeypatch.setattr(card, "save", full)
    line = failure(capsys, *fit_command(place))
    assert "fitted but not saved" in line
    assert "No space left on device; the ledger was charged (number 1, Private" in line


def test_models_that_cannot_predict(place, capsys):
    output = ["--output", place / "out.csv"]
    assert "there is no model file" in failure(
        capsys, "predict", place / "none.json", place / "table.csv", *output
    )
    assert main(fit_command(place)) == 0
    capsys.readouterr()
    write_table(place)
    assert "no such column" in failure(capsys, "predict", place / "model.json", place / "small.csv", *output)
    content = json.loads((place / "model.json").read_text())
    content["classes"] = ["yes", "no"]
    (place / "model.json").write_text(json.dumps(content))
    assert "damaged or changed" in failure(
        capsys, "predict", place / "model.json", place / "table.csv", *output
    )
    assert not (place / "out.csv").exists()


def test_unexpected_errors_show_no_traceback_unless_asked(place, capsys, monkeypatch):
    def broken(_path):
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(card, "load", broken)
    (place / "m.json").touch()
    command = ["predict", str(place / "m.json"), str(place / "table.csv"), "--output", str(place / "o.csv")]
    assert failure(capsys, *command) == "error: first line second line\n"
    with pytest.raises(ZeroDivisionError):
        main(["--traceback", *command])


# --- ledger ---


def test_ledger_commands(place, capsys):
    path = str(place / "new.ledger")
    assert main(["ledger", "create", path, "--epsilon", "2", "--delta", "1e-6", "--fixed-sizes"]) == 0
    assert "epsilon 2, delta 1e-06, replace-one" in capsys.readouterr().out
    assert not Ledger(path).adaptive
    assert main(["ledger", "show", path]) == 0
    assert "nothing spent" in capsys.readouterr().out
    command = fit_command(place, "table.parquet", "--solver", "objective")
    command[command.index("--ledger") + 1] = path
    assert main(command) == 0
    capsys.readouterr()
    assert main(["ledger", "show", path]) == 0
    shown = capsys.readouterr().out
    assert "1 charge" in shown
    assert "Remaining" in shown
    assert main(["ledger", "history", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == "no"
    assert "PrivateLogisticRegression" in lines[3]
    assert "ObjectivePerturbation" in lines[3]
    assert len(lines) == 4


def test_a_history_tells_what_composed_charges_hold(place, capsys):
    ledger = Ledger(place / "history.ledger", 2.0, 1e-6, neighboring="zero-out", adaptive=False)
    steps = Repeated(Discretized(Gaussian(90.0), 6), 30)
    ledger.charge(Composed((Discretized(Gaussian(20.0), 3), steps, Laplace(9.0), Pure(0.01))))
    ledger.charge(Approximated(Composed((Gaussian(80.0), BoundedRange(0.01))), 1e-15))
    ledger.charge(Subsampled(Gaussian(50.0), 0.01))
    ledger.charge(Grouped(Gaussian(50.0), 2))
    assert main(["ledger", "history", str(ledger.path)]) == 0
    shown = capsys.readouterr().out
    for text in (
        "Gaussian(noise_multiplier 20) + 30 x Gaussian(noise_multiplier 90) + Laplace(noise_multiplier 9) + 1 more",
        "Gaussian(noise_multiplier 80) + BoundedRange(epsilon 0.01)",
        "Subsampled(Gaussian(noise_multiplier 50), rate 0.01)",
        "Grouped(Gaussian(noise_multiplier 50), size 2)",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("hit", "told"),
    [("charge", "nothing was charged"), ("run", r"charged \(number 1, Private.*a charge stays")],
)
def test_an_interruption_tells_whether_it_was_charged(place, capsys, monkeypatch, hit, told):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(release, hit, interrupted)
    assert main(fit_command(place, "table.parquet", "--solver", "objective")) == 130
    message = capsys.readouterr().err
    assert re.search(
        rf"^interrupted; .*{told}.*`discreet ledger show {place / 'budget.ledger'}`", message, re.M
    )
    assert len(Ledger(place / "budget.ledger").history()) == (hit == "run")
    assert not (place / "model.json").exists()
    command = fit_command(place)
    del command[command.index("--ledger") : command.index("--output")]
    assert main(command) == 130
    assert "interrupted\n" in capsys.readouterr().err


def test_ledger_mistakes(place, capsys):
    path = place / "budget.ledger"
    assert "exists" in failure(capsys, "ledger", "create", path, "--epsilon", 9, "--delta", 0.5)
    assert Ledger(path).epsilon == 2.0
    for action in ("show", "history"):
        assert "there is no ledger" in failure(capsys, "ledger", action, place / "none.ledger")
    assert not (place / "none.ledger").exists()
    (place / "corrupt.ledger").write_bytes(b"SQLite format 3\x00" + b"x" * 1000)
    assert "ledger" in failure(capsys, "ledger", "show", place / "corrupt.ledger")
    failure(capsys, "ledger", "create", place / "none" / "x.ledger", "--epsilon", 1, "--delta", 0)


# --- what people see ---


def test_tables_on_a_terminal_and_elsewhere(capsys, monkeypatch):
    from discreet.display import console

    rows = [("a [bold]label[/bold]", "0.5", "81.2%"), ("b", "", "9%")]
    console.table("A title", ("model", "epsilon", "accuracy"), rows)
    plain = capsys.readouterr().out
    assert plain.splitlines()[0] == "A title"
    assert plain.splitlines()[3].endswith("81.2%")
    assert plain.splitlines()[4].endswith("   9%")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    console.table("A title", ("model", "epsilon", "accuracy"), rows)
    drawn = capsys.readouterr().out
    assert "┃" in drawn
    assert "a [bold]label[/bold]" in drawn


def test_progress_is_drawn_on_terminals_only(capsys, monkeypatch):
    from discreet.display import console

    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with console.progress("first step", 2) as done:
            done("second step")
        with console.working("something"):
            pass
        captured = capsys.readouterr()
        assert captured.out == ""
        assert bool(captured.err) == terminal


# --- demo ---


def test_demo(tmp_path, capsys):
    folder = tmp_path / "demo"
    assert main(["demo", "--people", "5000", "--output", str(folder)]) == 0
    output = capsys.readouterr().out
    for text in (
        "more common label",
        "without privacy",
        "0.05",
        "Privacy statement",
        "Remaining",
        "Refused: ",
    ):
        assert text in output
    ledger = Ledger(folder / "demo.ledger")
    assert len(ledger.history()) == 4  # the refused charge is not among them
    assert ledger.spent().epsilon <= ledger.epsilon
    assert "choose an empty folder" in failure(capsys, "demo", "--output", folder)
    assert "at least 2000 people" in failure(capsys, "demo", "--people", 100)
