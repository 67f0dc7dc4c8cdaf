"""Every moment at which one of four new users got stuck or was misled, and the test that now leads them on.

A data scientist, a statistician at the shell, a privacy officer and a platform engineer tried the library. Each moment
names the test that fails if they get stuck there again; small ones are tested below.
"""

from __future__ import annotations

import ast
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

import discreet
from discreet import Ledger, PrivateLogisticRegression, card, insecure_noise, on_progress, private_domains
from discreet.cli import main
from discreet.privacy.events import Gaussian
from discreet.records.clipped_rows import COMPILED_FROM
from discreet.records.kernels import passes
from discreet.tables.cohort import COHORT_SCHEMA

ROOT = Path(__file__).parents[1]
MOMENTS = """
the first minute
  the first fit was silent for 14 s       test_first_minute.py::test_the_ten_lines_compile_one_sampler_and_load_no_optional_package
  large first fits compile in silence     test_friction.py::test_compiling_is_announced_before_the_charge
  help waited for NumPy                   test_first_minute.py::test_help_loads_no_numbers

the data scientist
  habits break the promise, unwarned      estimators/test_habits.py::test_habits_that_fit_often_name_the_total
  a scaler before the model, unnoticed    estimators/test_pipelines.py::test_steps_that_learn_are_named_with_what_to_do
  a statement claimed public scaling      estimators/test_habits.py::test_a_statement_says_that_nobody_checked_how_columns_were_made
  notebooks warned at every display       display/test_notebook.py::test_an_estimator_shows_itself_without_a_warning
  C=, penalty=, max_iter=: bare TypeError estimators/test_habits.py::test_a_habit_is_answered
  no page maps the names of scikit-learn  docs/test_pages.py::test_a_page_about_moving_runs
  target_bounds: a dead end               estimators/test_habits.py::test_target_bounds_name_what_finds_them
  wide_grid was not public                description/test_quantiles.py::test_wide_grid_is_symmetric_and_increasing
  domains stated indices, not values      description/test_quantiles.py::test_the_statement_of_domains_names_values_of_every_column
  a loaded model refused raw tables       cli/test_commands.py::test_a_saved_model_reads_raw_tables
  card.save replaced files                test_friction.py::test_a_model_file_is_replaced_only_if_asked_to
  no seed for tests in the first guide    test_friction.py::test_the_first_guide_tells_how_to_repeat_noise_in_tests
  a search took as long as many fits      search/test_search.py::test_two_candidates_take_a_few_fits_and_tell_nothing_of_how_far_they_are
  LazyFrame, DuckDB: obscure errors       records/test_sources.py::test_every_source_gives_the_rows_of_the_table
  coefficients without names              estimators/test_habits.py::test_a_model_behind_a_schema_knows_the_names_of_its_columns
  no feature_importances_                 test_friction.py::test_importances_are_answered_on_the_page_for_movers
  reprs of thousands of characters        test_friction.py::test_what_is_printed_can_be_read
  no display of plans and statements      display/test_notebook.py::test_everything_with_a_promise_shows_itself
  nobody could say how many fits are left cli/test_commands.py::test_budgets_in_words
  refusals at another delta, unsaid       test_friction.py::test_a_refusal_names_the_delta_of_its_price
  the first guide did not run             test_docs.py::test_guides_run_and_leave_a_ledger_that_admits_more
  misspelled names of the package         test_friction.py::test_a_misspelled_or_remembered_name_is_answered
  classes as a set: "at least two"        test_friction.py::test_classes_without_an_order_are_called_what_they_are
  Ledger(3.0): bare TypeError             test_friction.py::test_a_ledger_that_is_given_its_budget_first_shows_how
  a generator refused without advice      test_friction.py::test_a_generator_is_refused_with_what_repeats_noise
  partial_fit, summary: bare errors       test_friction.py::test_a_remembered_attribute_is_answered_and_still_missing
  describe without a schema: bare error   test_friction.py::test_describe_without_a_schema_says_how_to_get_one
  Schema(target="ill"): AttributeError    test_friction.py::test_wrong_calls_are_told_what_to_write
  columns without a domain: no example    test_friction.py::test_wrong_calls_are_told_what_to_write
  a dict as X: "reshape your data"        test_friction.py::test_wrong_calls_are_told_what_to_write
  a file, an array as a table: no way on  test_friction.py::test_wrong_calls_are_told_what_to_write
  quantiles without candidates: TypeError test_friction.py::test_wrong_calls_are_told_what_to_write
  domains of a list: AttributeError       test_friction.py::test_wrong_calls_are_told_what_to_write
  Numeric(min=0): bare TypeError          test_friction.py::test_wrong_calls_are_told_what_to_write
  dates as classes: charged, not saved    test_friction.py::test_wrong_calls_are_told_what_to_write
  epsilon 1000: not a word                test_friction.py::test_an_epsilon_that_promises_nothing_is_called_that
  people in a ledger of rows, in Python   test_friction.py::test_people_in_a_ledger_of_rows_are_pointed_out_before_the_charge
  additive without a schema asked for y   test_friction.py::test_wrong_calls_are_told_what_to_write
  solver="lbfgs": a list of 22 names      test_friction.py::test_wrong_calls_are_told_what_to_write
  C in set_params or the grid of a search test_friction.py::test_wrong_calls_are_told_what_to_write
  a schema's classes read from the data   estimators/test_habits.py::test_a_fit_with_a_schema_takes_what_it_declares

the statistician
  fit --target: "did you mean aggregator" cli/test_commands.py::test_did_you_mean
  template --output: "--help lists all"   cli/test_commands.py::test_did_you_mean
  two dashes counted as likeness          cli/test_commands.py::test_two_dashes_are_no_likeness
  `discreet help` was no command          cli/test_commands.py::test_help_is_a_word_too
  a template with ids as a number         cli/test_commands.py::test_a_template_points_at_columns_that_may_number_people
  evaluate forgot the schema's people     cli/test_cli_evaluate.py::test_a_schema_with_a_group_column_is_evaluated_per_person_or_not_at_all
  no evaluation inside a user's budget    cli/test_walks.py::test_a_hospital_whose_patients_come_twice
  people in a ledger of rows, unsaid      test_friction.py::test_a_ledger_of_rows_is_pointed_out_to_who_protects_people
  columns of a printed plan not in line   test_friction.py::test_the_values_of_a_plan_stand_in_one_column
  plan ignored the group                  cli/test_models.py::test_a_plan_is_what_the_fit_runs
  no page from the shell                  cli/test_commands.py::test_a_page_for_people
  no signing from the shell               cli/test_commands.py::test_keys_and_signatures
  doubt of intervals printed twice        cli/test_commands.py::test_a_doubt_of_intervals_is_printed_once
  no regression from the shell            cli/test_walks.py::test_a_regression
  no intervals from the shell             cli/test_commands.py::test_intervals
  with categories all were infinite       intervals/test_intervals.py::test_levels_that_are_not_named_are_the_advice
  prices at another delta than asked for  test_friction.py::test_prices_are_named_as_they_were_asked_for
  --C, --verbose, --input: no advice      cli/test_commands.py::test_did_you_mean
  --vary l2: "did you mean 'l2'?"         cli/test_commands.py::test_did_you_mean
  a private key where the public is due   test_friction.py::test_the_wrong_key_of_a_pair_is_called_that
  the price of people without their unit  test_friction.py::test_a_price_names_its_unit
  plans of recommenders not in line       test_friction.py::test_the_values_of_a_plan_stand_in_one_column
  evaluate sent recommenders in a circle  test_friction.py::test_a_recommender_is_not_sent_to_an_evaluation_that_refuses_it
  key --output: "prints to standard out"  cli/test_commands.py::test_did_you_mean
  -o, -e: "unrecognized arguments"        cli/test_commands.py::test_did_you_mean
  no search from the shell                cli/test_commands.py::test_search
  no export from the shell                cli/test_commands.py::test_exports_predict_alike
  semicolons                              cli/test_walks.py::test_a_regression
  workbooks and UTF-16                    cli/test_cli.py::test_files_that_are_no_csv_are_called_what_they_are
  help without examples                   cli/test_commands.py::test_examples_are_command_lines
  no suggestion for a misspelling         cli/test_commands.py::test_did_you_mean
  no completion                           cli/test_commands.py::test_completion
  wrong paths were told after seconds     cli/test_commands.py::test_wrong_paths_are_told_before_anything_heavy_is_loaded
  no remaining time                       cli/test_commands.py::test_progress_shows_planned_steps_on_terminals_only
  nothing in a log                        cli/test_commands.py::test_other_libraries_log_nothing_and_phases_are_logged_on_demand
  accuracy without a baseline             cli/test_walks.py::test_a_hospital_whose_patients_come_twice
  no AUC of several classes               evaluation/test_several_classes.py::test_without_noise_they_are_the_usual_ones
  no odds ratios, no reference level      cli/test_commands.py::test_odds_ratios_have_reference_levels
  shares that do not add up               cli/test_commands.py::test_budgets_in_words
  no page of the ledger                   display/test_notebook.py::test_a_ledger_shows_who_when_what_for_spent_and_left

pages
  a card of solver internals              card/test_page.py::test_the_promise_is_a_picture
  cards cut on a phone                    docs/test_library_pages.py::test_a_browser_shows_every_page_of_the_library
  bars of hashed words                    card/test_page.py::test_words_are_left_out_and_the_reference_is_named
  bars without noise                      card/test_page.py::test_intervals_show_which_part_is_noise
  audits unreadable for an officer        audit/test_attack.py::test_the_command_writes_a_page
  lists of the front page, scripts        docs/test_site.py::test_a_browser_shows_every_page
  proofs lost their stars                 docs/test_site.py::test_markdown_takes_nothing_from_a_proof
  formulas not typeset                    docs/test_site.py::test_every_formula_is_on_its_page
  no API reference                        docs/test_site.py::test_every_public_name_has_a_page
  pages not in the navigation             docs/test_site.py::test_every_page_is_in_a_menu

the privacy officer
  the odds are not on the card            card/test_page.py::test_belief_follows_the_odds
  "unchanged" after a forgery             card/test_release.py::test_replaced_numbers_with_a_right_checksum_are_refused
  "not asked for" instead of "none"       card/test_release.py::test_the_words_say_what_was_not_checked
  no second accountant                    benchmarks/test_outside.py
  older files refused                     test_versions.py::test_models_load_predict_and_verify
  charges without a release or a purpose  card/test_release.py::test_every_kind_of_model_is_bound_to_its_charge
  nothing about regulation                card/test_dossier.py::test_a_dossier_says_what_the_file_promises_and_who_paid
  no date, purpose, owner, approval       card/test_page.py::test_declarations_travel_in_the_file
  no total of the ledger on the card      card/test_page.py::test_the_day_and_the_budget_come_from_the_ledger
  proofs that the reader does not have    privacy/test_proofs.py

the platform engineer
  folders, globs, datasets, SQL           records/test_sources.py::test_every_source_gives_the_rows_of_the_table
  s3://, gs://: one slash eaten           records/test_sources.py::test_an_object_store_gives_the_rows_of_the_table
  misleading refusals                     records/test_sources.py::test_what_cannot_be_read_is_refused_before_the_charge
  raw tables larger than memory           records/test_sources.py::test_every_estimator_releases_the_same_from_every_source
  Dask workers restarted without end      records/test_faults.py
  Spark                                   records/test_spark.py
  no logs, progress or callbacks          mechanisms/test_reporting.py::test_phases_and_planned_steps
  no container                            docs/test_operations.py::test_the_container_copies_what_there_is_and_runs_known_commands
  no lock with hashes                     docs/test_operations.py::test_the_lock_has_names_versions_and_hashes_and_nothing_else
  no offline recipe                       docs/test_operations.py::test_options_of_pip_in_the_recipes_exist
  no supported versions                   test_friction.py::test_supported_versions_are_declared_and_checked
  caches in read-only images              cli/test_commands.py::test_read_only_containers_use_what_was_compiled_when_they_were_built
  no notebook                             test_examples.py::test_a_notebook_runs_and_shows_everything_without_a_warning
  no warmup                               test_friction.py::test_warmup_says_where_compiled_code_is_kept
"""  # noqa: E501
NAMED = [line.rsplit(maxsplit=1) for line in MOMENTS.splitlines() if line.startswith("  ")]


def test_the_test_of_every_moment_exists():
    """A name without a test of its own is a file of tests."""
    for moment, node in NAMED:
        file, _, name = node.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        tests = [one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
        assert name in tests if name else any(test.startswith("test_") for test in tests), moment


# --- the data scientist ---


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(3000, 3)) / 2
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def model(rows):
    return PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(*rows)


def test_a_model_file_is_replaced_only_if_asked_to(model, tmp_path):
    path = tmp_path / "model.json"
    card.save(model, path)
    before = path.read_bytes()
    with pytest.raises(
        FileExistsError, match=r"model\.json' exists; name another file, or pass overwrite=True"
    ):
        card.save(model, path, about=card.About(purpose="another"))
    assert path.read_bytes() == before
    card.save(model, path, about=card.About(purpose="another"), overwrite=True)
    assert card.read(path).about.purpose == "another"
    ledger = Ledger(tmp_path / "budget", 1.0, 0.0)
    with pytest.raises(FileExistsError, match="a ledger is never replaced"):
        card.save(model, ledger.path, overwrite=True)
    with pytest.raises(FileExistsError, match="a ledger is never replaced"):
        card.save(model, ledger.path)
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".tmp"] == []


def test_the_first_guide_tells_how_to_repeat_noise_in_tests(rows):
    text = (ROOT / "docs" / "first-model.md").read_text(encoding="utf-8")
    assert "`with discreet.insecure_noise(0):`" in text
    made = []
    for _ in range(2):
        with insecure_noise(0):
            made.append(PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(*rows))
    assert np.array_equal(made[0].coef_, made[1].coef_)
    assert "NOT PRIVATE" in str(made[0].privacy_)


def test_importances_are_answered_on_the_page_for_movers(model):
    text = (ROOT / "docs" / "from-scikit-learn.md").read_text(encoding="utf-8")
    assert "| `feature_importances_` | `discreet.card.coefficients(model)`" in text
    assert len(card.coefficients(model).rows) >= 3


def test_what_is_printed_can_be_read(rows, model, tmp_path):
    """Of a schema one line for each column; of lists and tuples in a session, no event and no list of assumptions."""
    lines = str(COHORT_SCHEMA).splitlines()
    assert "  ward (categorical): ward=" in str(COHORT_SCHEMA)
    assert len(lines) == 6 + len(COHORT_SCHEMA.columns)
    assert max(map(len, lines)) < 200
    ledger = Ledger(tmp_path / "budget", 3.0, 1e-5)
    PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], ledger=ledger).fit(*rows)
    found = private_domains({"a": rows[0][:, 0]}, {"a": None}, epsilon=1.0, ledger=ledger)
    assert len(repr(found)) < 700
    assert len(repr(ledger.history())) < 500
    assert "PrivateLogisticRegression" in repr(ledger.history())
    assert len(repr(model.privacy_)) < 500


def test_a_refusal_names_the_delta_of_its_price(tmp_path):
    """A price is stated at the ledger's delta, at which it is compared, and not at the one that was asked for."""
    ledger = Ledger(tmp_path / "budget", 1.0, 1e-5)
    with pytest.raises(
        discreet.BudgetExceeded, match=r"\(epsilon [\d.]+ alone at delta 1e-05\) does not fit"
    ):
        ledger.charge(Gaussian(1.0))


WRONG = [
    (lambda X, y: discreet.Schema({"age": (0, 100)}), r"such as Numeric\(0, 100\), .* got \(0, 100\)"),
    (
        lambda X, y: discreet.Schema(AGE, target="ill"),
        r"Target\('ill', classes=\[\.\.\.\]\) or Target\('ill', b",
    ),
    (
        lambda X, y: LOGISTIC.fit({"age": X[:, 0]}, y),
        "X must be an array or a data frame, got dict; .*DataFrame",
    ),
    (lambda X, y: LOGISTIC.fit(None, y), "X must be an array or a data frame, got NoneType"),
    (
        lambda X, y: discreet.Numeric(0),
        r"Numeric: missing a required argument: 'upper'; write Numeric\(0, 100\)",
    ),
    (lambda X, y: discreet.Boolean("yes"), r"Boolean: too many positional arguments; write Boolean\(\)"),
    (
        lambda X, y: discreet.Numeric(min=0),
        r"no parameter 'min'; write Numeric\(0, 100\), there are lower, upper",
    ),
    (
        lambda X, y: discreet.Target("ill", labels=[0, 1]),
        r"no parameter 'labels'; write Target\('ill', classes=",
    ),
    (
        lambda X, y: clone(LOGISTIC).set_params(classes=np.array(DAYS)).fit(X, np.array(DAYS)[y]),
        "classes must be text, whole numbers or true/false, got .*write dates",
    ),
    (
        lambda X, y: clone(LOGISTIC).set_params(classes=None).fit(X, np.array(DAYS)[y] - np.array(DAYS)[0]),
        "y must be text, whole numbers or true/false, got timedelta64.*write dates",
    ),
    (lambda X, y: discreet.Schema(AGE).transform(X), r"pandas\.DataFrame\(array, columns="),
    (lambda X, y: discreet.Schema(AGE).transform("visits.csv"), r"pandas\.read_csv"),
    (lambda X, y: discreet.Schema(AGE).transform(pl.LazyFrame({"age": [1]})), r"collect\(\) it first"),
    (lambda X, y: discreet.private_quantiles(X, 0.5, epsilon=1.0), r"candidates=discreet\.wide_grid\(\)"),
    (lambda X, y: private_domains({"age": [1.0]}, ["age"], epsilon=1.0), r'pass \{"income": None\}'),
    (lambda X, y: discreet.PrivateAdditiveClassifier(1.0).fit(X), "schema must be given where the labels"),
    (lambda X, y: clone(LOGISTIC).set_params(solver="lbfgs").fit(X, y), "scikit-learn's.*leave it out"),
    (lambda X, y: clone(LOGISTIC).set_params(C=1.0), r"Invalid parameter 'C'.*l2, .* 1 / \(C \* n_samples\)"),
    (lambda X, y: discreet.PrivateSearchCV(LOGISTIC, {"C": [1, 2]}).fit(X, y), "Invalid parameter 'C'.*l2"),
    (
        lambda X, y: discreet.PrivateSearchCV(LOGISTIC, {"feature_bond": [1, 2]}).fit(X, y),
        "'feature_bond' .*did you mean 'feature_bound'",
    ),
]
AGE = {"age": discreet.Numeric(0, 100)}
DAYS = [np.datetime64("2020-01-01"), np.datetime64("2021-01-01")]
LOGISTIC = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1])


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_wrong_calls_are_told_what_to_write(rows, call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(*rows)


def test_prices_are_named_as_they_were_asked_for(rows, tmp_path):
    """A ledger compares prices at its own delta; people asked for another one."""
    ledger = Ledger(tmp_path / "budget", 1.0, 1e-5)
    with pytest.raises(
        discreet.BudgetExceeded, match=r"^epsilon 2 at delta 1e-06 was requested, but .*alone at delta 1e-05"
    ):
        PrivateLogisticRegression(2.0, 1e-6, classes=[0, 1], ledger=ledger).fit(*rows)
    with pytest.raises(discreet.BudgetExceeded, match=r"^the charge 'PrivateLogisticRegression'"):
        PrivateLogisticRegression(2.0, 1e-5, classes=[0, 1], ledger=ledger).fit(*rows)
    plan = PrivateLogisticRegression(0.5, 1e-6, classes=[0, 1]).plan(3000, 3)
    _, left = ledger.balance(plan.event, plan.guarantee)
    assert re.search(r"epsilon 0\.5 at delta 1e-06 each, which is 0\.4\d+ at delta 1e-05", left)


def test_a_price_names_its_unit(rows, model):
    X, y = rows
    found = discreet.evaluate(
        model, X, y, epsilon=1.0, delta=1e-6, groups=np.arange(3000) // 2, max_rows_per_group=2
    )
    assert "price: (1, 1e-06), replace-one, unit: user" in str(found)
    table = discreet.describe({"age": X[:, 0]}, discreet.Schema(AGE), epsilon=1.0, delta=1e-6)
    assert "price: (1, 1e-06), replace-one, unit: record" in str(table)


def test_an_epsilon_that_promises_nothing_is_called_that(rows, tmp_path):
    """In the plan, before the fit, in the statement and on its page; from public numbers alone."""
    words = "epsilon 1000 promises next to nothing: odds may change by a factor of e^1000"
    large = PrivateLogisticRegression(1000.0, 1e-6, classes=[0, 1])
    assert words in str(large.plan(3000, 3))
    with pytest.warns(discreet.PrivacyWarning, match=re.escape(words)):
        large.fit(*rows)
    assert words in " ".join(str(large.privacy_).split())
    large.privacy_.to_html(tmp_path / "statement.html")
    assert words in (tmp_path / "statement.html").read_text(encoding="utf-8")
    usual = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1])
    assert "nothing" not in str(usual.plan(3000, 3)) + str(usual.fit(*rows).privacy_)


def test_people_in_a_ledger_of_rows_are_pointed_out_before_the_charge(rows, tmp_path):
    X, y = rows
    ledgers = [Ledger(tmp_path / unit, 10.0, 1e-4, unit=unit) for unit in ("record", "user")]
    said = []
    for ledger in ledgers:
        model = PrivateLogisticRegression(2.0, 1e-6, classes=[0, 1], max_rows_per_group=2, ledger=ledger)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            model.fit(X, y, groups=np.arange(3000) // 2)
        said.append([str(one.message) for one in heard if "single rows" in str(one.message)])
    assert "record caps what is released about single rows, and this release protects people" in said[0][0]
    assert [len(one) for one in said] == [1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(discreet.PrivacyWarning, match="create one with unit='user'"):
            model.set_params(ledger=ledgers[0]).fit(X, y, groups=np.arange(3000) // 2)
    assert len(ledgers[0].history()) == 1


# --- the statistician ---


def test_the_wrong_key_of_a_pair_is_called_that(model, tmp_path):
    private, public, path = (tmp_path / name for name in ("private.pem", "public.pem", "model.json"))
    card.new_key(private, public)
    with pytest.raises(card.CardError, match=r"public\.pem' is the public key of a pair; files are signed"):
        card.save(model, path, key=public)
    card.save(model, path, key=private)
    with pytest.raises(card.CardError, match=r"private\.pem' is the private key of a pair; files are signed"):
        card.verify(path, key=private)


SCHEMA = """
group = "who"

[columns.age]
kind = "numeric"
lower = 0
upper = 100

[target]
column = "ill"
classes = ["no", "yes"]
"""


def test_a_ledger_of_rows_is_pointed_out_to_who_protects_people(tmp_path, capsys):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    visits = [f"p{k // 2},{k % 100},{'yes' if k % 100 > 50 else 'no'}" for k in range(2000)]
    (tmp_path / "visits.csv").write_text("\n".join(["who,age,ill", *visits]) + "\n")
    Ledger(tmp_path / "budget", 10.0, 1e-4)
    places = {name: str(tmp_path / name) for name in ("visits.csv", "schema.toml", "budget", "model.json")}
    command = ["fit", places["visits.csv"], "--schema", places["schema.toml"], "--ledger", places["budget"]]
    assert (
        main([*command, "--epsilon", "2", "--max-rows-per-group", "2", "--output", places["model.json"]]) == 0
    )
    said = " ".join(capsys.readouterr().err.split())
    assert (
        said.count("ledger create --unit user`) to cap what all releases together reveal about a person") == 1
    )


# --- the platform engineer ---


def test_supported_versions_are_declared_and_checked():
    text = (ROOT / "pyproject.toml").read_text()
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    checked = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/check.yml").read_text())[1]
    assert declared == re.findall(r"3\.\d+", checked)
    assert f'requires-python = ">={declared[0]}' in text


def test_compiling_is_announced_before_the_charge(rows, monkeypatch, capsys):
    """Judging by public sizes, and only where nobody has compiled yet."""
    from discreet.cli.session import fitting

    X, y = np.tile(rows[0], (32, 1)), np.tile(rows[1], 32)
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1])

    def phases(X, y):
        heard = []
        with on_progress(heard.append):
            model.fit(X, y)
        return [report.phase for report in heard if not report.steps]

    monkeypatch.setattr(passes, "is_compiled", lambda: False)
    assert phases(X, y) == phases(-X, 1 - y) == ["compile", "charge", "run", "done"]
    assert phases(*rows) == ["charge", "run", "done"]
    with fitting():
        model.fit(X, y)
    assert "note: the first fit to a large table compiles code" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(passes, "is_compiled", lambda: True)
    assert phases(X, y) == ["charge", "run", "done"]


def test_a_private_number_of_rows_is_not_told_by_what_is_compiled(monkeypatch):
    """Code is compiled for large tables alone; under add-remove-one, one row must not decide what is reported."""
    monkeypatch.setattr(passes, "is_compiled", lambda: False)
    X = np.tile(np.eye(64), (COMPILED_FROM // 64**2, 1))
    model = PrivateLogisticRegression(
        1.0, 1e-6, classes=[0, 1], neighboring="add-remove-one", n_samples=2 * len(X), solver="newton"
    )
    heard = {}
    for rows in (X, X[1:]):
        heard[len(rows)] = []
        with on_progress(heard[len(rows)].append):
            model.fit(rows, np.arange(len(rows)) % 2)
    assert heard[len(X)] == heard[len(X) - 1]


def test_what_was_compiled_is_known():
    """By this process, or by one that kept it."""
    X = np.tile(np.eye(4), (1 << 14, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(X, np.arange(len(X)) % 2)
    assert passes.is_compiled()


def test_warmup_says_where_compiled_code_is_kept(monkeypatch, capsys):
    from discreet.estimators import rehearsal

    assert main(["warmup"]) == 0
    folder = Path(capsys.readouterr().out.removeprefix("Compiled code is kept in").replace("\n", "").strip())
    assert any(folder.glob("*loss_and_gradient*.nbi"))
    monkeypatch.setattr(rehearsal, "warm_up", lambda: None)
    assert main(["warmup"]) == 1
    assert "set NUMBA_CACHE_DIR" in capsys.readouterr().err


def test_a_misspelled_or_remembered_name_is_answered():
    for name, meant in (
        ("PrivateLogisticRegresion", "PrivateLogisticRegression"),
        ("LogisticRegression", "PrivateLogisticRegression"),
        ("Ridge", "PrivateRidge"),
        ("Leger", "Ledger"),
    ):
        with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
            getattr(discreet, name)
    with pytest.raises(AttributeError, match=r"no attribute 'forest'$"):
        discreet.forest  # noqa: B018 - asking is the test


def test_classes_without_an_order_are_called_what_they_are():
    X, y = np.eye(20), np.arange(20) % 2
    for classes in ({0, 1}, {0: "no", 1: "yes"}, "01"):
        with pytest.raises(ValueError, match="classes must be a list, which has an order"):
            PrivateLogisticRegression(classes=classes).fit(X, y)


def test_a_ledger_that_is_given_its_budget_first_shows_how(tmp_path):
    with pytest.raises(discreet.LedgerError, match=r"Ledger\('budget.ledger', epsilon=3.0, delta=1e-6\)"):
        Ledger(3.0, 1e-6)


def test_a_generator_is_refused_with_what_repeats_noise():
    with pytest.raises(TypeError, match=r"never the noise; .* use discreet\.insecure_noise"):
        PrivateLogisticRegression(classes=[0, 1], random_state=np.random.default_rng(0)).fit(
            np.eye(2), [0, 1]
        )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("partial_fit", "PrivateOnlineLinearModel"),
        ("summary", "discreet.card.coefficients(model)"),
        ("pvalues", "discreet.coefficient_intervals"),
        ("feature_importances_", "discreet.card.coefficients(model)"),
    ],
)
def test_a_remembered_attribute_is_answered_and_still_missing(model, name, answer):
    for one in (model, clone(model), pickle.loads(pickle.dumps(model))):
        assert not hasattr(one, name)
        with pytest.raises(AttributeError, match=re.escape(answer)):
            getattr(one, name)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        model.unheard_of  # noqa: B018


def test_an_attribute_with_an_error_of_its_own_keeps_it():
    search = discreet.PrivateSearchCV(discreet.PrivateLinearSVC(1.0), {"feature_bound": [1.0, 2.0]})
    with pytest.raises(AttributeError, match="has no attribute 'predict_proba'"):
        search.predict_proba  # noqa: B018


@pytest.mark.parametrize("schema", [(), ({"age": (0, 100)},), ("schema.toml",)], ids=["none", "dict", "path"])
def test_describe_without_a_schema_says_how_to_get_one(schema):
    with pytest.raises(
        TypeError, match=r"schema must be a discreet.Schema.*from_file.*discreet schema template"
    ):
        discreet.describe({"age": [40.0, 50.0]}, *schema)


def test_the_values_of_a_plan_stand_in_one_column(capsys):
    assert main(["plan", "--rows", "5000", "--columns", "12", "--epsilon", "1"]) == 0
    _, *lines, _ = capsys.readouterr().out.splitlines()
    assert len(lines) > 8
    assert len({re.match(r"  .*?\S  +", line).end() for line in lines}) == 1
    assert main(["plan", "--model", "recommender", "--people", "500", "--items", "60", "--epsilon", "1"]) == 0
    *lines, _ = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert len({re.match(r".*?\S  +", line).end() for line in lines}) == 1


def test_a_recommender_is_not_sent_to_an_evaluation_that_refuses_it(tmp_path, capsys):
    lines = {(f"u{k % 200}", k // 200 + 7 * (k % 3)) for k in range(1000)}
    path, model = tmp_path / "ratings.csv", tmp_path / "model.json"
    path.write_text(
        "\n".join(["user,item,rating", *(f"{user},{item},{1 + item % 5}" for user, item in lines)])
    )
    (tmp_path / "items.txt").write_text("\n".join(map(str, range(30))))
    command = ["fit", str(path), "--model", "recommender", "--catalog", str(tmp_path / "items.txt")]
    assert main([*command, "--rating-bounds", "1", "5", "--epsilon", "2", "--output", str(model)]) == 0
    assert main(["evaluate", str(model), str(path), "--epsilon", "1"]) == 1
    assert "a recommender is measured in Python, by discreet.recommend.metrics" in capsys.readouterr().err
