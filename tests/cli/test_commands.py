"""Commands beyond fits: describe, search, intervals, show, keys, exports, pages; help, suggestions, completion."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest

import discreet
from discreet import Ledger, card
from discreet.cli import COMMANDS, _parser, catalog, main
from discreet.cli.options import did_you_mean
from discreet.cli.session import fitting
from discreet.mechanisms.recording import Report, releasing, step
from discreet.privacy.events import Pure
from discreet.privacy.ledger.ledger import room
from discreet.tables.schema import Boolean, Categorical, Numeric, Schema, Target

ROWS = 4000
COLUMNS = {"age": Numeric(0, 100), "ward": Categorical(("north", "south")), "smoker": Boolean()}
SCHEMA = Schema(COLUMNS, Target("ill", ("no", "yes")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, its schema, a ledger, and a model of it."""
    place = tmp_path_factory.mktemp("commands")
    rng = np.random.default_rng(0)
    age, south = rng.integers(0, 100, ROWS), rng.random(ROWS) < 0.5
    smoker, chance = rng.random(ROWS) < 0.3, rng.random(ROWS)
    ill = 1 / (1 + np.exp(-(age - 50) / 20 - south)) > chance
    words = (("no", "yes")[int(value)] for value in itertools.chain(smoker, ill))
    smokes, labels = list(itertools.islice(words, ROWS)), list(words)
    lines = [f"{age[i]},{('north', 'south')[int(south[i])]},{smokes[i]},{labels[i]}" for i in range(ROWS)]
    (place / "visits.csv").write_text("\n".join(["age,ward,smoker,ill", *lines]) + "\n")
    SCHEMA.to_file(place / "schema.toml")
    Ledger(place / "budget.db", 100.0, 1e-3)
    assert main([*FIT.split(), *_paths(place), "--output", str(place / "model.json")]) == 0
    return place


FIT = "fit --epsilon 5 --delta 1e-6 --solver objective"


def _paths(place):
    return str(place / "visits.csv"), "--schema", str(place / "schema.toml")


@pytest.fixture
def shell(folder, tmp_path, monkeypatch, capsys):
    """Run a command line in a folder of its own, with the files of the other at hand; gives what it printed."""
    for path in folder.iterdir():
        if path.name != "budget.db":
            (tmp_path / path.name).symlink_to(path)
    Ledger(tmp_path / "budget.db", 100.0, 1e-3)
    monkeypatch.chdir(tmp_path)

    def run(line, code=0):
        capsys.readouterr()
        assert main(shlex.split(line)) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


# --- numbers that are paid for ---


def test_describe(shell):
    said = shell(
        "describe visits.csv --schema schema.toml --epsilon 2 --ledger budget.db --pair age ward "
        "--bins 4 --output d.json"
    )
    assert "age x ward" in said
    each = (
        r"more releases like this one \(epsilon 2 at delta 6\.25e-08 each, which is [\d.]+ at delta 0\.001\)"
    )
    assert re.search(each, " ".join(said.split()))
    with open("d.json") as stream:
        written = json.load(stream)
    assert written["privacy"]["guarantee"]["epsilon"] == 2
    assert len(written["columns"]["age"]["histogram"]["edges"]) == 5
    (charge,) = Ledger("budget.db").history()
    assert charge.label == "describe"
    assert "exists, and another description costs another charge" in shell(
        "describe visits.csv --schema schema.toml --epsilon 2 --output d.json", 1
    )


def test_intervals(shell):
    said = shell(
        "intervals model.json visits.csv --epsilon 20 --delta 1e-4 --ledger budget.db --output i.json"
    )
    assert "ward=south" in said
    with open("i.json") as stream:
        rows = json.load(stream)["coefficients"]
    assert [row["name"] for row in rows] == [
        *(name for name in SCHEMA.feature_names if name != "ward=north"),
        "intercept",
    ]
    assert "Levels are compared with ward=north." in said
    assert all(-np.inf < row["lower"] < row["estimate"] < row["upper"] < np.inf for row in rows)
    assert Ledger("budget.db").history()[0].label == "coefficient_intervals"


def test_a_doubt_of_intervals_is_printed_once(shell, capsys):
    capsys.readouterr()
    line = "intervals model.json visits.csv --epsilon 0.01 --delta 1e-4 --ledger budget.db"
    assert main(shlex.split(line)) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert said.count("the released curvature is") == 1


def test_search(shell):
    common = (
        "search visits.csv --schema schema.toml --epsilon 3 --delta 1e-6 --solver output --ledger budget.db"
    )
    said = shell(f"{common} --vary feature-bound=0.1,2 --search-by split --output best.json")
    assert "Chosen: feature-bound" in said
    found = card.read("best.json")
    assert found.parameters["feature_bound"] in (0.1, 2.0)
    assert found.privacy.epsilon == 3.0
    assert found.schema == SCHEMA
    assert "compares linear models" in shell(f"{common} --model additive --vary pairs=1,2 --output x", 1)
    assert "--quantile is for quantile" in shell(f"{common} --vary quantile=0.1,0.2 --output x", 1)
    assert len(Ledger("budget.db").history()) == 1
    for wrong in ("featur-bound=1,2", "l2", "l2=0,1", "no-intercept=1"):
        with pytest.raises(SystemExit):
            main(shlex.split(f"{common} --vary {wrong} --output x"))


# --- model files ---


def test_odds_ratios_have_reference_levels(shell):
    said = shell("show model.json")
    assert "(5, 1e-06)-differentially private" in said
    model = card.load("model.json")
    found = {row[0]: row[1:] for row in card.coefficients(model).rows}
    north, south = model.coef_[0][1:3]
    assert found["ward=north"][1] == "reference"
    assert float(found["ward=south"][1]) == pytest.approx(math.exp(south - north), rel=1e-3)
    assert float(found["age"][1]) == pytest.approx(math.exp(2 * model.coef_[0][0]), rel=1e-3)
    ends = {"age": [0, 100], "ward": ["north"] * 2, "smoker": ["no"] * 2}
    odds = np.exp(model.decision_function(SCHEMA.transform(ends)))
    if np.all(model.row_bounds_.row_scales(SCHEMA.transform(ends)) == 1):
        assert float(found["age"][1]) == pytest.approx(odds[1] / odds[0], rel=1e-3)
    assert (
        shell("show model.json --top 1").count("ward=") + shell("show model.json --top 1").count("age") <= 2
    )


def test_effects_of_regressions_have_reference_levels():
    """In units of the target, and for counts as ratios of rates."""
    rng = np.random.default_rng(0)
    table = {"age": rng.uniform(0, 100, 4000), "ward": rng.choice(["north", "south"], 4000)}
    table["stay"] = table["age"] / 10 + 5 * (table["ward"] == "south")
    schema = Schema(
        {"age": Numeric(0, 100), "ward": Categorical(("north", "south"))}, Target("stay", bounds=(0, 20))
    )
    bound = schema.feature_bound()
    ridge = discreet.PrivateRidge(1e3, 1e-6, feature_bound=bound).fit(table, schema=schema)
    found = card.coefficients(ridge)
    assert found.header == ("column", "coefficient", "effect")
    effects = {row[0]: row[2] for row in found.rows}
    assert effects["ward=north"] == "reference"
    assert float(effects["age"]) == pytest.approx(10, rel=0.2)
    assert float(effects["ward=south"]) == pytest.approx(5, rel=0.2)
    assert "Effects, which add to the prediction: of a category against the first" in found.remark
    counts = discreet.PrivatePoissonRegressor(10.0, 1e-6, feature_bound=bound).fit(table, schema=schema)
    found = card.coefficients(counts)
    assert found.header[2] == "rate ratio"
    coefficient = {row[0]: float(row[1]) for row in found.rows}["age"]
    ratio = {row[0]: row[2] for row in found.rows}["age"]
    assert float(ratio) == pytest.approx(np.exp(2 * coefficient), rel=1e-2)


def test_keys_and_signatures(shell, tmp_path):
    shell("key private.pem public.pem")
    assert (tmp_path / "private.pem").stat().st_mode & 0o077 == 0
    assert "a key is never replaced" in shell("key private.pem other.pem", 1)
    shell("sign model.json --key private.pem --output signed.json")
    assert "by the given key" in shell("verify signed.json --key public.pem")
    assert main(["verify", "model.json", "--key", "public.pem"]) == 1
    assert card.read("signed.json").release_digest == card.read("model.json").release_digest
    before = (tmp_path / "model.json").read_bytes()
    assert "would replace the input file" in shell(
        "sign model.json --key private.pem --output model.json --overwrite", 1
    )
    assert (tmp_path / "model.json").read_bytes() == before
    shell("key second.pem second.pub")
    shell("sign signed.json --key second.pem --output again.json")
    assert "by the given key" in shell("verify again.json --key second.pub")


def test_exports_predict_alike(shell):
    onnx = pytest.importorskip("onnxruntime")
    shell("export model.json --output model.onnx")
    shell("export model.json --output model.joblib")
    model, rows = (
        card.load("model.json"),
        SCHEMA.transform({"age": [10, 90], "ward": ["north", "south"], "smoker": [0, 1]}),
    )
    graph = onnx.InferenceSession("model.onnx")
    np.testing.assert_allclose(graph.run(["score"], {"X": rows})[0], model.predict_proba(rows))
    np.testing.assert_array_equal(joblib.load("model.joblib").predict(rows), model.predict(rows))
    assert "pass --format onnx or scikit-learn" in shell("export model.json --output model.txt", 1)
    shell("export model.json --format onnx --output model.txt")


def test_a_page_for_people(shell, tmp_path):
    from dataclasses import fields

    from discreet.card.card import About
    from discreet.cli.publishing import ABOUT

    assert list(ABOUT) == [field.name for field in fields(About)]
    shell("card model.json --purpose 'planning beds' --ledger budget.db --output page.html")
    page = (tmp_path / "page.html").read_text()
    assert "planning beds" in page
    assert "ward=south" in page or "south" in page


def test_a_dossier_for_those_who_must_judge(shell, tmp_path):
    shell("card model.json --dossier --output dossier.md")
    text = (tmp_path / "dossier.md").read_text()
    assert text.startswith("# Dossier: PrivateLogisticRegression")
    assert "NIST SP 800-226" in text
    assert "to be answered by the controller" in text


def test_a_saved_model_reads_raw_tables(shell):
    model = card.load("model.json")
    raw = {"age": [10, 90], "ward": ["north", "south"], "smoker": [False, True]}
    np.testing.assert_array_equal(model.predict(raw), model.predict(SCHEMA.transform(raw)))
    frame = pytest.importorskip("pandas").DataFrame(raw)
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(SCHEMA.transform(raw)))


# --- budgets in words ---


def test_budgets_in_words(tmp_path, capsys):
    ledger = Ledger(tmp_path / "l", 1.0, 0.0)
    assert ledger.remaining().like_last is None
    assert room(ledger.further(Pure(0.3))) == "room for about 3 more releases"
    ledger.charge(Pure(0.3), label="first", who="ann")
    ledger.charge(Pure(0.1), label="second", who="bob")
    ledger.charge(Pure(0.3), label="third", who="ann")
    assert str(ledger.remaining()).startswith(
        "room for about 1 more release like the last one, or for one pure release"
    )
    assert room(ledger.further(Pure(0.4))) == "no room for another release"
    assert room(ledger.further(Pure(1e-6))) == "room for at least 1000 more releases"
    assert main(["ledger", "show", str(ledger.path)]) == 0
    said = capsys.readouterr().out
    assert "Remaining  room for about 1 more release like the last one" in said
    shares = {row[0]: float(row[2]) for row in map(str.split, said.splitlines()[-2:])}
    assert sum(shares.values()) == pytest.approx(ledger.spent().epsilon)
    assert shares == pytest.approx({"ann": 0.6, "bob": 0.1})


# --- help, suggestions, completion ---

ALL = [command for listed in COMMANDS.values() for one in listed for command in (one.actions or (one,))]


def test_examples_are_command_lines():
    top = [one for listed in COMMANDS.values() for one in listed]
    assert [one.name for one in top if not one.examples] == ["warmup"]  # which takes no arguments
    examples = [
        line for one in (*top, *(action for one in top for action in one.actions)) for line in one.examples
    ]
    for line in examples:
        if line.startswith("source"):
            continue
        words = shlex.split(line.partition(">")[0])
        assert words[0] == "discreet"
        words = ["discreet", "plan-transfer", *words[3:]] if words[1:3] == ["plan", "transfer"] else words
        arguments = _parser().parse_args(words[1:])
        assert arguments.run in {command.run for command in ALL}


def test_every_command_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for title, commands in COMMANDS.items():
        assert f"\n{title}:\n" in shown
        for one in commands:
            assert f"\n  {one.name} " in shown
    assert "Exit codes: 0 done" in shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fti", "did you mean 'fit'?"),
        ("report m.json", "there is no command 'report'; use 'card'"),
        ("ledger creat", "did you mean 'create'?"),
        ("fit x.csv --epslon 1", "there is no option --epslon; did you mean '--epsilon'?"),
        ("fit x.csv --epsilon 1 --output m --max-row 3 --modle svm", "did you mean '--model'?"),
        (
            "fit x.csv --epsilon 1 --output m --model rigde",
            "there is no model 'rigde'; did you mean 'ridge'?",
        ),
        ("fit x.csv --epsilon 1 --output m --model forest", "there are logistic, svm"),
        ("plan --rows 9 --columns 2 --epsilon 1 --neighboring replac-one", "did you mean 'replace-one'?"),
        ("fit x.csv --epsilon 1 --output m --separator ab", "one character such as ';'"),
        ("predict m.json x.csv --output o --quickly", "`discreet predict --help` lists all"),
        ("fit x.csv --epsilon 1 --output m --target stay", "the schema names the target"),
        ("fit x.csv --epsilon 1 --output m --groups id", "the schema names the column of people"),
        ("fit x.csv --epsilon 1 --output m --seed=3", "there is no option --seed; noise comes from"),
        ("intervals m.json x.csv --epsilon 1 --schema s", "the model file holds the schema"),
        ("fit x.csv --epsilon 1 --output m --C 1", "--l2 is the penalty, 1 / (C * rows)"),
        (
            "fit x.csv --epsilon 1 --output m --verbose",
            "write it before the command: `discreet --verbose fit",
        ),
        (
            "fit --input x.csv --epsilon 1 --output m",
            "pass the table without an option, right after the command",
        ),
        ("fit x.csv --epsilon one --output m", "must be a number greater than 0 and at most 1000000"),
        ("search x.csv --epsilon 1 --output m --vary C=1,2", "such as l2=1e-4,1e-3, got 'C=1,2'; --l2 is"),
        ("search x.csv --epsilon 1 --output m --vary l1_radus=1,2", "did you mean 'l1_radius'?"),
        ("search x.csv --epsilon 1 --output m --vary l2", "such as l2=1e-4,1e-3, got 'l2'"),
        ("schema template x.csv --output s.toml", "this command prints to standard output; add > FILE"),
        ("key --output k.pem", "name the two files: `discreet key PRIVATE PUBLIC`"),
        ("schema template x.csv -o s.toml", "this command prints to standard output; add > FILE"),
        ("fit x.csv -e 1 --output m", "there is no option -e; write --epsilon"),
        ("fit x.csv -o m --epsilon 1", "there is no option -o; write --output"),
        ("card m.json --output p.html --force", "--overwrite replaces a file"),
        ("ledger", "name an action: create, "),
        ("schema", "name an action: template, "),
    ],
)
def test_did_you_mean(capsys, line, words):
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(line))
    assert stopped.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert words in said
    assert said.count("did you mean") == words.count("did you mean")


@pytest.mark.parametrize("line", ["help", "help fit", "help ledger create"])
def test_help_is_a_word_too(capsys, line):
    outputs = []
    for words in (line.split(), [*line.split()[1:], "--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(f"usage: discreet {line[5:]}".rstrip())


def test_two_dashes_are_no_likeness():
    assert did_you_mean("--target", ["--aggregator", "--model"]) == ""
    assert did_you_mean("--modle", ["--aggregator", "--model"]) == "; did you mean '--model'?"


def test_a_template_points_at_columns_that_may_number_people(tmp_path, capsys):
    path = tmp_path / "sample.csv"
    rows = [f"{row // 2},{row % 40},{row / 7:.3f}" for row in range(300)]
    path.write_text("\n".join(["patient,age,cost", *rows]))
    assert main(["schema", "template", str(path)]) == 0
    told = capsys.readouterr()
    assert (
        told.err == "note: 'patient' may identify people: pass --group 'patient', or leave the column out\n"
    )
    assert "note:" not in told.out
    assert main(["schema", "template", str(path), "--group", "patient"]) == 0
    assert capsys.readouterr().err == ""


def test_wrong_paths_are_told_before_anything_heavy_is_loaded(tmp_path):
    (tmp_path / "t.csv").touch()
    code = (
        "import sys\nfrom discreet.cli import main\n"
        "for line in (['fit', 'none.csv', '--epsilon', '1', '--output', 'm'],\n"
        "             ['fit', 't.csv', '--schema', 'none.toml', '--epsilon', '1', '--output', 'm'],\n"
        "             ['predict', 'none.json', 't.csv', '--output', 'm'], ['verify', 'none.json'],\n"
        "             ['ledger', 'show', 'none.db'], ['describe', 'none.csv', '--schema', 's', '--epsilon', '1'],\n"
        "             ['completion', 'bash']):\n"
        "    print(main(line))\n"
        "for word in ('fit', 'search', 'intervals', 'describe', 'export'):\n"
        "    try: main([word, '--help'])\n"
        "    except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert run.stderr.count("error: there is no ") == 6
    assert "`discreet ledger create` makes one" in run.stderr
    loaded = set(run.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "scipy", "sklearn", "numba", "pyarrow", "pandas", "rich"}


def test_completion(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def completed(*words):
        line = " ".join(f"'{word}'" for word in words)
        code = (
            f"source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _discreet; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        run = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
        return set(run.stdout.split()) - {"script"}

    assert completed("discreet", "pre") == {"predict"}
    assert {"create", "show", "history", "plot", "export", "policy"} <= completed("discreet", "ledger", "")
    assert completed("discreet", "fit", "x.csv", "--sep") == {"--separator"}
    assert completed("discreet", "ledger", "create", "--uni") == {"--unit"}
    assert completed("discreet", "fit", "--neighboring", "z") == {"zero-out"}
    assert main(["completion", "fish"]) == 0
    assert "-l neighboring -xa 'replace-one add-remove-one zero-out'" in capsys.readouterr().out


def test_options_say_which_models_they_are_for(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {model.help}" in shown for name, model in catalog.MODELS.items())
    assert "default: 0.5, the median) [quantile]" in shown


# --- what operations need ---


def test_other_libraries_log_nothing_and_phases_are_logged_on_demand(shell, capsys, monkeypatch):
    from discreet.tables import reading

    genuine = reading.read_table

    def noisy(*arguments, **settings):
        logging.getLogger("numba.core").warning("bytecode dump")
        return genuine(*arguments, **settings)

    monkeypatch.setattr(reading, "read_table", noisy)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    fit = "fit visits.csv --schema schema.toml --epsilon 5 --delta 1e-6 --solver objective --output"
    assert main(shlex.split(f"{fit} quiet.json")) == 0
    assert "bytecode" not in capsys.readouterr().err
    assert main(shlex.split(f"--verbose {fit} loud.json")) == 0
    said = capsys.readouterr().err
    assert "bytecode" not in said
    assert "PrivateLogisticRegression: charge: (5, 1e-06), replace-one, unit: record" in said
    assert len(logging.getLogger("discreet").handlers) == 1


def test_progress_shows_planned_steps_on_terminals_only(capsys, monkeypatch):
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with fitting(), releasing("walk") as tell:
            tell("run", "noise")
            step(1, 2)
            step(2, 2)
        shown = capsys.readouterr().err
        assert bool(shown) == terminal
    assert str(Report("walk", "run", step=1, steps=2)) == "walk: step 1 of 2"


COUNTED = """
import sys, tempfile
import numba.core.caching, numba.core.event
from pathlib import Path
if sys.argv[1:]:
    class ReadOnly:
        @staticmethod
        def TemporaryFile(dir):
            if any(str(dir).startswith(path) for path in sys.argv[1:]):
                raise OSError(30, "Read-only file system")
            return tempfile.TemporaryFile(dir=dir)
        NamedTemporaryFile = tempfile.NamedTemporaryFile
    numba.core.caching.tempfile = ReadOnly
compiled = []
class Heard(numba.core.event.Listener):
    def on_start(self, event):
        compiled.append(event)
    def on_end(self, event):
        pass
numba.core.event.register("numba:compile", Heard())
from discreet.mechanisms.samplers.discrete import discrete_gaussian
from discreet.mechanisms.samplers.entropy import fresh_entropy
discrete_gaussian(256, 1000).draw(10, fresh_entropy())
print(len(compiled), numba.config.CACHE_DIR)
"""


def test_read_only_containers_use_what_was_compiled_when_they_were_built(tmp_path):
    """numba itself loads nothing from a folder that it cannot write, and would compile in every process."""

    def run(cache, *read_only):
        done = subprocess.run(
            [sys.executable, "-c", COUNTED, *map(str, read_only)],
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        compiled, folder = done.stdout.split()
        return int(compiled), Path(folder)

    built = tmp_path / "kernels"
    assert run(built) == (1, built)
    assert run(built) == (0, built)
    package = Path(discreet.__file__).parent
    compiled, copy = run(built, built, package, Path.home())
    assert compiled == 0
    assert copy != built
    assert not copy.exists()  # removed in the end
    assert run(tmp_path / "empty", tmp_path, package, Path.home())[0] == 1  # nothing was built: it still runs
    assert run(built, "/")[0] == 1  # nothing at all can be written


def test_kernels_compile_where_no_folder_can_be_written(monkeypatch):
    from discreet.mechanisms.samplers import numba_decorator

    genuine = numba_decorator.njit

    def refusing(**settings):
        if settings.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return genuine(**settings)

    monkeypatch.setattr(numba_decorator, "njit", refusing)
    monkeypatch.setattr(numba_decorator, "_copy_kernels", lambda: False)
    assert numba_decorator.compiled()(lambda x: x + 1)(1) == 2


def test_every_command_is_in_the_guide():
    guide = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    commands = [command for group in COMMANDS.values() for command in group]
    names = [f"{command.name} {action.name}" for command in commands for action in command.actions]
    names += [command.name for command in commands if not command.actions and command.name != "plan-transfer"]
    assert [name for name in names if f"discreet {name}" not in guide] == []
    assert "discreet plan transfer" in guide
