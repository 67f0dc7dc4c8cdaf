"""Every model from the shell: planned, fitted, shown and applied; the plan is what the fit then runs."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest

import discreet
from discreet import card
from discreet.cli import budget as budget_commands
from discreet.cli import catalog, main, models
from discreet.tables.reading import read_table
from discreet.tables.schema import Boolean, Categorical, Numeric, Schema, Target

ROWS, PEOPLE, PER_PERSON = 300, 150, 2
COLUMNS = {"age": Numeric(0, 100), "ward": Categorical(("north", "south")), "smoker": Boolean()}
TARGETS = {"classes": Target("ill", ("no", "yes")), "number": Target("cost", bounds=(0, 50))}
GUARANTEE = ("--epsilon", "1", "--delta", "1e-5")
OF_COLUMNS = [name for name, model in catalog.MODELS.items() if model.reads not in ("ratings", "teachers")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of visits, one schema for each kind of target, with and without people, and ratings."""
    place = tmp_path_factory.mktemp("shell")
    rng = np.random.default_rng(0)
    age, south, smoker = rng.integers(0, 100, ROWS), rng.random(ROWS) < 0.5, rng.random(ROWS) < 0.3
    ill = age / 100 + smoker - rng.random(ROWS) > 0.3
    cost = np.clip(age / 4 + 10 * south + rng.normal(size=ROWS), 0, 50).round(2)
    lines = ["person;age;ward;smoker;ill;cost"]
    for i in range(ROWS):
        words = ["south" if south[i] else "north", "yes" if smoker[i] else "no", "yes" if ill[i] else "no"]
        lines.append(f"p{i % PEOPLE};{age[i]};{words[0]};{words[1]};{words[2]};{cost[i]}")
    (place / "visits.csv").write_text("\n".join(lines) + "\n")
    for kind, target in {**TARGETS, "none": None}.items():
        Schema(COLUMNS, target).to_file(place / f"{kind}.toml")
        Schema(COLUMNS, target, group="person").to_file(place / f"{kind}-people.toml")
    ratings = [
        "user,item,rating",
        *(f"u{u},i{i},{rng.integers(1, 6)}" for u in range(60) for i in range(u % 3, 12, 2)),
    ]
    (place / "ratings.csv").write_text("\n".join(ratings) + "\n")
    (place / "items.txt").write_text("\n".join(f"i{i}" for i in range(12)) + "\n")
    return place


def run(*arguments):
    assert main([str(argument) for argument in arguments]) == 0


def planned(monkeypatch, *arguments):
    """The plan that the command prints."""
    said = []
    for module in (budget_commands, models):
        monkeypatch.setattr(module, "say", said.append)
    run("plan", *arguments)
    monkeypatch.undo()
    return said[0]


def failure(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("people", [False, True], ids=["rows", "people"])
@pytest.mark.parametrize("name", OF_COLUMNS)
def test_a_plan_is_what_the_fit_runs(folder, tmp_path, monkeypatch, capsys, name, people):
    kind = next(iter(catalog.MODELS[name].estimators))
    schema = folder / f"{kind}{'-people' if people else ''}.toml"
    chosen = ("--schema", schema, "--model", name, *GUARANTEE)
    chosen += ("--max-rows-per-group", PER_PERSON) if people else ()
    plan = planned(monkeypatch, *chosen, *(("--people", PEOPLE) if people else ("--rows", ROWS)))
    output = tmp_path / "model.json"
    run("fit", folder / "visits.csv", "--separator", ";", "--output", output, *chosen)
    found = card.read(output)
    assert found.estimator == catalog.MODELS[name].estimators[kind]
    assert found.privacy.event == plan.event
    assert found.privacy.guarantee == plan.guarantee
    assert found.privacy.guarantee.unit == ("user" if people else "record")
    run("show", output)
    assert found.estimator in capsys.readouterr().out
    if catalog.MODELS[name].reads != "points":
        run("predict", output, folder / "visits.csv", "--separator", ";", "--output", tmp_path / "out.csv")
        assert read_table(tmp_path / "out.csv").num_rows == ROWS


def test_weights_of_classes(folder, tmp_path, monkeypatch, capsys):
    chosen = ("--schema", folder / "classes.toml", "--class-weight", "yes=3", *GUARANTEE)
    plan = planned(monkeypatch, *chosen, "--rows", ROWS)
    run("fit", folder / "visits.csv", "--separator", ";", "--output", tmp_path / "m.json", *chosen)
    found = card.read(tmp_path / "m.json")
    assert found.parameters["class_weight"] == {"yes": 3.0}
    assert found.privacy.event == plan.event
    wrong = (
        "fit",
        folder / "visits.csv",
        "--separator",
        ";",
        "--output",
        tmp_path / "n.json",
        "--schema",
        folder / "classes.toml",
    )
    assert "'perhaps', which is not among" in failure(
        capsys, *wrong, *GUARANTEE, "--class-weight", "perhaps=3"
    )


@pytest.mark.parametrize(
    ("target", "teacher"), [("classes", "linear"), ("number", "tree"), ("classes-people", "forest")]
)
def test_teachers_from_the_shell(folder, tmp_path, capsys, target, teacher):
    visits = (folder / "visits.csv", "--separator", ";")
    run("ledger", "create", tmp_path / "b.ledger", "--epsilon", 3, "--delta", "1e-4",
        *(("--unit", "user") if "people" in target else ()))  # fmt: skip
    run("fit", *visits, "--schema", folder / f"{target}.toml", "--model", "transfer", "--teacher", teacher,
        "--teachers", 20, "--public", folder / "visits.csv", *GUARANTEE, "--ledger", tmp_path / "b.ledger", "--output",
        tmp_path / "m.json")  # fmt: skip
    assert card.read(tmp_path / "m.json").privacy.guarantee.unit == (
        "user" if "people" in target else "record"
    )
    run("predict", tmp_path / "m.json", *visits, "--output", tmp_path / "out.csv")
    assert read_table(tmp_path / "out.csv").num_rows == ROWS
    run("verify", tmp_path / "m.json", "--ledger", tmp_path / "b.ledger")
    run("show", tmp_path / "m.json")
    run("card", tmp_path / "m.json", "--output", tmp_path / "page.html")
    assert "PrivateTransfer" in capsys.readouterr().out


def test_teachers_say_what_they_need(folder, tmp_path, capsys):
    asked = ("fit", folder / "visits.csv", "--separator", ";", "--model", "transfer", *GUARANTEE, "--output",
             tmp_path / "m.json")  # fmt: skip
    assert "--public is required" in failure(capsys, *asked, "--schema", folder / "classes.toml")
    number = (
        *asked,
        "--schema",
        folder / "number.toml",
        "--public",
        folder / "visits.csv",
        "--aggregator",
        "shares",
    )
    assert "--aggregator is for classes" in failure(capsys, *number)
    plan = ("plan", "--model", "transfer", "--rows", 300, "--schema", folder / "classes.toml", *GUARANTEE)
    assert "discreet plan transfer" in failure(capsys, *plan)


@pytest.mark.parametrize("neighboring", ["add-remove-one", "zero-out"])
def test_plans_under_other_relations(folder, tmp_path, monkeypatch, neighboring):
    chosen = ("--schema", folder / "number-people.toml", *GUARANTEE, "--neighboring", neighboring)
    chosen += ("--max-rows-per-group", PER_PERSON)
    bound = ("--max-rows", 500) if neighboring == "add-remove-one" else ()
    size = ("--rows", 500) if bound else ("--people", PEOPLE)
    plan = planned(monkeypatch, *chosen, *size)
    run("fit", folder / "visits.csv", "--separator", ";", "--output", tmp_path / "m.json", *chosen, *bound)
    assert card.read(tmp_path / "m.json").privacy.event == plan.event


def test_a_recommender_from_the_shell(folder, tmp_path, monkeypatch, capsys):
    chosen = ("--model", "recommender", "--method", "bias", *GUARANTEE)
    plan = planned(monkeypatch, "--people", 60, "--items", 12, *chosen)
    run(
        "fit",
        folder / "ratings.csv",
        *chosen,
        "--catalog",
        folder / "items.txt",
        "--output",
        tmp_path / "m.json",
    )
    found = card.read(tmp_path / "m.json")
    assert (found.estimator, found.privacy.event) == ("PrivateMatrixCompletion", plan.event)
    run("predict", tmp_path / "m.json", folder / "ratings.csv", "--top", 3, "--output", tmp_path / "best.csv")
    best = read_table(tmp_path / "best.csv")
    assert best.column_names == ["user", "item", "score"]
    seen = {tuple(line.split(",")[:2]) for line in (folder / "ratings.csv").read_text().splitlines()[1:]}
    pairs = list(zip(best["user"].to_pylist(), best["item"].to_pylist(), strict=True))
    assert len(pairs) == 3 * 60
    assert not seen & set(pairs)
    model = card.load(tmp_path / "m.json")
    own = read_table(folder / "ratings.csv").slice(0, 6)  # of the first user
    items, _ = model.recommend(own, 3)
    assert [item for user, item in pairs if user == "u0"] == list(items)
    capsys.readouterr()
    for arguments, words in {
        ("plan", "--people", 60, "--columns", 12): "with --people and --items",
        ("plan", "--rows", 60, "--items", 12): "protects users with all their ratings",
        (
            "fit",
            folder / "ratings.csv",
            "--schema",
            folder / "none.toml",
            "--output",
            tmp_path / "x",
        ): "leave out --schema",
        ("fit", folder / "ratings.csv", "--l2", 1, "--output", tmp_path / "x"): "--l2 is for logistic",
    }.items():
        assert words in failure(capsys, *arguments, *chosen)


def test_strange_ratings_name_the_options_that_allow_them(folder, tmp_path, capsys):
    ratings = tmp_path / "strange.csv"
    ratings.write_text((folder / "ratings.csv").read_text() + "u0,i0,9\nu0,i0,1\n")
    fit = ("fit", ratings, "--model", "recommender", "--method", "bias", "--catalog", folder / "items.txt")
    fit += (*GUARANTEE, "--output", tmp_path / "m.json")
    assert "or pass --duplicates mean" in failure(capsys, *fit, "--out-of-bounds", "clip")
    wrong = failure(capsys, *fit, "--duplicates", "mean")
    assert "pass --rating-bounds LOW HIGH for the true public range, or pass --out-of-bounds clip" in wrong
    run(*fit, "--duplicates", "mean", "--out-of-bounds", "clip", "--rating-clip", 0.4, "--row-clip", 0.3)
    kept = card.read(tmp_path / "m.json").parameters
    assert (kept["duplicates"], kept["out_of_bounds"]) == ("mean", "clip")
    assert (kept["rating_clip"], kept["row_clip"]) == (0.4, 0.3)


def test_labels_alone_can_be_protected(capsys):
    plan = ("plan", "transfer", "--rows", 4000, "--queries", 100, *GUARANTEE, "--label-private")
    run(*plan)
    assert "unit: label of one record" in capsys.readouterr().out
    assert "pass --neighboring replace-one" in failure(capsys, *plan, "--neighboring", "zero-out")


def test_errors_name_the_option_and_not_the_parameter_behind_it(capsys):
    command = "plan transfer --rows 1000 --queries 10 --epsilon 1 --teachers 1"
    assert main(command.split()) == 1
    assert "error: --teachers must be at least 2, got 1" in capsys.readouterr().err


def test_options_reach_the_estimators(folder, tmp_path):
    common = ("fit", folder / "visits.csv", "--separator", ";", *GUARANTEE, "--output")
    for name, kind, given, expected in (
        ("quantile", "number", ("--quantile", 0.9), {"quantile": 0.9}),
        ("huber", "number", ("--huber-width", 3), {"huber_width": 3.0, "target_bounds": [0, 50]}),
        (
            "poisson",
            "number",
            ("--least-mean", 2, "--no-intercept"),
            {"least_mean": 2.0, "fit_intercept": False},
        ),
        ("lasso", "number", ("--l1-radius", 10), {"l1_radius": 10.0}),
        ("median", "none", ("--radius", 3), {"radius": 3.0}),
        (
            "additive",
            "number",
            ("--max-bins", 4, "--monotonic", "age=rising", "--loss", "poisson", "--least-mean", 1),
            {"max_bins": 4, "loss": "poisson", "least_mean": 1.0},
        ),
        ("logistic", "classes", ("--l2", 0.1, "--feature-bound", 1.5), {"l2": 0.1, "feature_bound": 1.5}),
    ):
        output = tmp_path / f"{name}.json"
        run(*common, output, "--model", name, "--schema", folder / f"{kind}.toml", *given)
        parameters = card.read(output).parameters
        assert {one: parameters[one] for one in expected} == expected
    assert np.all(np.diff(card.load(tmp_path / "additive.json").shapes_["age"]["value"]) >= 0)


def test_counts_need_a_number(folder, tmp_path, capsys):
    fit = (
        "fit",
        folder / "visits.csv",
        "--separator",
        ";",
        *GUARANTEE,
        "--output",
        tmp_path / "x",
        "--model",
    )
    chosen = ("additive", "--schema", folder / "classes.toml", "--loss", "poisson")
    assert "--loss is for numbers" in failure(capsys, *fit, *chosen)


def test_the_model_follows_the_target(folder, tmp_path, capsys):
    common = ("fit", folder / "visits.csv", "--separator", ";", *GUARANTEE, "--output")
    for kind, name in (("classes", "PrivateLogisticRegression"), ("number", "PrivateRidge")):
        run(*common, tmp_path / kind, "--schema", folder / f"{kind}.toml")
        assert card.read(tmp_path / kind).estimator == name
    capsys.readouterr()
    wrong = (*common, tmp_path / "x", "--schema")
    assert "choose --model logistic, svm" in failure(
        capsys, *wrong, folder / "classes.toml", "--model", "ridge"
    )
    assert "declares no target" in failure(capsys, *wrong, folder / "none.toml", "--model", "ridge")
    assert "--quantile is for quantile, not for logistic" in failure(
        capsys, *wrong, folder / "classes.toml", "--quantile", 0.5
    )
    assert "--schema is required" in failure(capsys, *common, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_plans_say_what_they_need(folder, capsys):
    plan = ("plan", *GUARANTEE)
    people = (*plan, "--schema", folder / "classes-people.toml")
    for arguments, words in {
        (*people, "--rows", 300): "--max-rows-per-group K",
        (*people, "--rows", 300, "--max-rows-per-group", 2): "pass --people",
        (*plan, "--columns", 3, "--people", 300): "pass --rows",
        (*plan, "--columns", 3, "--rows", 300, "--model", "ridge"): "--target-bounds must be declared",
        (*plan, "--columns", 3, "--rows", 300, "--model", "additive"): "pass --schema",
        (
            *plan,
            "--schema",
            folder / "number.toml",
            "--rows",
            300,
            "--target-bounds",
            0,
            1,
        ): "without a schema",
        (*plan, "--columns", 3, "--rows", 300, "--model", "median", "--simulate"): "must be declared",
    }.items():
        assert words in failure(capsys, *arguments)


def test_plans_without_a_schema(monkeypatch, capsys):
    plan = planned(
        monkeypatch, "--columns", 5, "--rows", 400, "--model", "ridge", "--target-bounds", 0, 9, *GUARANTEE
    )
    assert plan.event == discreet.PrivateRidge(1.0, 1e-5, target_bounds=(0, 9)).plan(400, 5).event
    run("plan", "--columns", 2, "--rows", 2000, "--model", "ridge", "--target-bounds", 0, 9, *GUARANTEE, "--simulate",
        "--repeats", 1, "--epsilons", 5, "--seed", 0)  # fmt: skip
    assert "R^2 on synthetic data" in capsys.readouterr().out


def test_the_catalog_names_parameters_that_estimators_declare():
    """An option sets a parameter; what has none is shared, said by the schema, or for Python alone."""
    shared = {
        "epsilon",
        "delta",
        "neighboring",
        "ledger",
        "bad_rows",
        "n_samples",
        "n_users",
        "max_rows_per_group",
    }
    by_schema = {"classes", "target_bounds", "bounds", "schema", "feature_bounds"}
    python = {"constraint", "random_state", "student"}
    used = set()
    for name, model in catalog.MODELS.items():
        kinds = [getattr(discreet, estimator) for estimator in model.estimators.values()]
        declared = [set(inspect.signature(kind).parameters) for kind in kinds]
        assert set(model.options) <= set.union(*declared)
        for parameters in declared:
            without = {"solver", "center"} if name == "median" else set()
            assert parameters <= set(model.options) | shared | by_schema | python | without, name
        used |= set(model.options)
    assert used == set(catalog.OPTIONS)


def test_every_saved_kind_is_in_the_catalog():
    from discreet.card.card import FAMILIES

    reached = {estimator for model in catalog.MODELS.values() for estimator in model.estimators.values()}
    # Forecasts must come in the unit of the target, and a schema scales columns.
    # A loss of one's own is an object.
    assert set(FAMILIES) - reached == {"PrivateSimplexRegressor", "PrivateERM"}


@pytest.mark.parametrize("kind", ["classes", "number", "classes-people"])
def test_teachers_label_public_rows(folder, tmp_path, capsys, monkeypatch, kind):
    (tmp_path / "public.csv").write_text("age;ward;smoker\n10;north;no\n90;south;yes\n50;south;no\n")
    common = ("label", folder / "visits.csv", "--separator", ";", "--schema", folder / f"{kind}.toml")
    common += ("--public", tmp_path / "public.csv", "--teachers", 10, *GUARANTEE)
    budget = discreet.Ledger(tmp_path / "budget.db", 5.0, 1e-3)
    stated = ("--statement", tmp_path / "labels.json")
    run(*common, "--ledger", budget.path, "--output", tmp_path / "labels.csv", *stated)
    assert json.loads((tmp_path / "labels.json").read_text())["guarantee"]["epsilon"] == 1
    assert "labels.json' exists" in failure(capsys, *common, "--output", tmp_path / "more.csv", *stated)
    assert not (tmp_path / "more.csv").exists()
    found = read_table(tmp_path / "labels.csv")
    assert found.column_names[:4] == ["age", "ward", "smoker", "label"]
    assert found["age"].to_pylist() == ["10", "90", "50"]
    (charge,) = budget.history()
    assert charge.unit == ("user" if "people" in kind else "record")
    if kind == "number":
        assert all(0 <= float(label) <= 50 for label in found["label"].to_pylist())
        return
    assert set(found["label"].to_pylist()) <= {"no", "yes", None}
    said = ("--rows", PEOPLE if "people" in kind else ROWS, "--queries", 3, "--teachers", 10)
    said += ("--by-user",) if "people" in kind else ()
    assert planned(monkeypatch, "transfer", *said, *GUARANTEE).event == charge.event
