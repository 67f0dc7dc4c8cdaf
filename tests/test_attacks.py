"""Every finding of the reviews of version 0.1.0 beside the tests that keep it from coming back.

Findings are named as in the reviews: of the core and of what is around it, A (a claim was false), B (a leak beside the
claim), S (statistics), C (gaps of proofs), D (fragile). The first test of each failed on version 0.1.0 where there was
an attack to fail. `docs/attacks.md` tells the stories.
"""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "attacks.md"

CLAIMS, TRUST = "attacks/test_claims.py", "attacks/test_trust.py"
ENDINGS, OWN, SILENCE = (f"contracts/test_{name}.py" for name in ("endings", "own_rows", "silence"))
LOCKS, ISOLATION = "privacy/ledger/test_locks.py", "transfer/test_isolation.py"

FINDINGS = {
    # minimizers over a set that never end
    "core A1": [
        (CLAIMS, "test_output_perturbation_over_a_set_releases_for_every_data_set"),
        (CLAIMS, "test_objective_perturbation_over_a_set_releases_for_every_noise"),
        (ENDINGS, "test_no_search_over_a_set_returns_to_where_it_was"),
        (ENDINGS, "test_a_certificate_that_ignores_how_theta_is_stored_is_caught"),
        (ENDINGS, "test_plain_steps_reach_the_least_tolerance_over_sets"),
    ],
    # NumPy's error state
    "core B1": [
        (CLAIMS, "test_a_tiny_entry_raises_and_says_nothing_after_the_charge"),
        (SILENCE, "test_nothing_is_said"),
        (SILENCE, "test_threads_are_silent"),
        (SILENCE, "test_sources_are_silent"),
    ],
    # scales of rows in another order
    "core C1": [
        (CLAIMS, "test_the_scale_of_a_row_depends_on_that_row_alone"),
        (OWN, "test_the_scale_of_a_row_does_not_depend_on_the_rows_beside_it"),
    ],
    # endings of the other searches
    "core C2": [
        (CLAIMS, "test_neighbors_without_a_set_take_about_as_many_passes"),
        (ENDINGS, "test_searches_in_all_of_space_end_within_the_bound_of_their_plan"),
        (ENDINGS, "test_plain_steps_reach_the_least_tolerance_in_all_of_space"),
        (ENDINGS, "test_entropic_searches_end_within_the_bound_of_their_plan"),
        (ENDINGS, "test_mirror_descent_reaches_the_least_tolerance"),
    ],
    # a column named "records"
    "core D1": [
        (CLAIMS, "test_a_column_may_be_called_records"),
        (OWN, "test_a_column_may_have_any_name"),
    ],
    # sets and solvers that are believed
    "core D2": [
        (CLAIMS, "test_a_set_of_the_users_is_named_in_the_statement"),
        (CLAIMS, "test_a_solver_of_the_users_is_named_in_the_statement"),
        ("solvers/test_foreign.py", "test_a_solver_of_the_users_is_named"),
    ],
    # comparisons that fail open
    "core D3": [
        (ENDINGS, "test_no_certificate_is_given_for_what_is_not_a_number"),
        ("privacy/accounting/test_precision.py", "test_what_is_not_a_number_has_no_price"),
    ],
    # roundings to nearest that no price feels
    "core D4": [
        ("privacy/accounting/test_precision.py", "test_closed_profiles_are_rounded_up"),
    ],
    # not reached by the first review
    "core, not reached": [
        (
            "records/test_faults.py",
            "test_a_worker_killed_in_its_task_counts_once_and_one_that_always_dies_ends_the_fit",
        ),
        ("records/test_arrow_replays.py", "test_replays_of_fits_on_a_file_stay_within_the_declared_distance"),
        (LOCKS, "test_processes_that_insist_on_the_path_of_a_ledger_stay_within_its_cap"),
    ],
    # one cell that changes how a column is read
    "around A1": [
        (CLAIMS, "test_a_missing_cell_among_truths_leaves_other_rows_alone"),
        (CLAIMS, "test_a_missing_cell_among_truths_leaves_private_domains_alone"),
        (OWN, "test_schemas_read_every_cell_by_itself"),
        (OWN, "test_one_true_and_their_texts_mean_the_same_everywhere"),
    ],
    # teachers and the global generator
    "around A2": [
        (CLAIMS, "test_one_label_changes_one_teacher"),
        (CLAIMS, "test_one_row_changes_one_chunk_of_a_function"),
        (ISOLATION, "test_a_record_changes_no_teacher_but_its_own"),
        (ISOLATION, "test_global_generators_are_as_before"),
    ],
    # ids of people
    "around A3": [
        (CLAIMS, "test_one_missing_id_regroups_nobody"),
        (OWN, "test_columns_of_floats_are_never_ids"),
        (OWN, "test_large_ids_beside_a_missing_one_stay_apart"),
    ],
    # locks of ledgers
    "around A4": [
        (TRUST, "test_a_refused_write_keeps_the_lock_of_a_charge"),
        (LOCKS, "test_processes_that_insist_on_the_path_of_a_ledger_stay_within_its_cap"),
        (LOCKS, "test_a_refused_look_keeps_the_lock_of_another_thread"),
    ],
    # what verify and ledger print
    "around B1": [
        (TRUST, "test_a_file_cannot_forge_the_report_about_itself"),
        (TRUST, "test_a_label_cannot_hide_a_line_of_a_ledger"),
    ],
    # evaluations per person
    "around B2": [
        (TRUST, "test_a_table_of_people_is_not_evaluated_row_by_row"),
        ("contracts/test_people.py", "test_rows_of_people_are_not_protected_one_by_one"),
    ],
    # files that set the ledger of later fits
    "around B3": [(TRUST, "test_a_file_cannot_set_the_ledger_or_the_seed_of_later_fits")],
    # what verify accepts
    "around B4": [
        (TRUST, "test_a_charge_pays_for_no_other_kind_of_promise"),
        (TRUST, "test_a_charge_pays_for_no_other_numbers"),
        (TRUST, "test_the_report_on_a_checksum_does_not_say_unchanged"),
        ("card/test_release.py", "test_every_kind_of_model_is_bound_to_its_charge"),
    ],
    # intervals of AUC near the noise
    "around S1": [
        (CLAIMS, "test_intervals_of_auc_cover_where_positives_are_near_their_noise"),
        (CLAIMS, "test_intervals_of_calibration_cover_where_bins_are_near_their_noise"),
    ],
    # coefficient intervals that are rarely finite
    "around S2": [(CLAIMS, "test_plain_logistic_fits_have_finite_intervals")],
    # streams that stay open
    "around C1": [("privacy/ledger/test_rules.py", "test_a_stream_that_stays_open_is_within_the_cap")],
    # what a teacher is a function of
    "around C2": [(ISOLATION, "test_replays_of_whole_fits_stay_within_the_declared_distance")],
    # types of columns
    "around C3": [
        (CLAIMS, "test_types_of_columns_are_stated_to_be_public"),
        (OWN, "test_labels_and_targets_are_read_cell_by_cell"),
    ],
    # events that take long to price
    "around D1": [
        (TRUST, "test_a_small_file_does_not_keep_verify_busy"),
        ("card/test_pricing.py", "test_what_would_take_long_is_refused"),
        ("card/test_card_trust.py", "test_words_of_a_small_file_do_not_fill_the_memory"),
    ],
    # sources that are not repeatable
    "around D2": [
        (CLAIMS, "test_sources_on_a_cluster_are_stated_to_be_repeatable"),
        ("records/test_faults.py", "test_a_partition_that_changes_is_noticed"),
        (
            "records/test_spark_tasks.py",
            "test_a_source_that_changes_after_the_charge_ends_the_fit_in_one_message",
        ),
    ],
    # names that swallow scripts
    "around D3": [(TRUST, "test_a_name_cannot_swallow_the_script_of_a_page")],
    # units read from labels
    "around D4": [(TRUST, "test_a_label_does_not_decide_whom_a_charge_protects")],
    # permissions
    "around D5": [
        (TRUST, "test_predictions_and_ledgers_are_their_owners_alone"),
        (LOCKS, "test_a_new_ledger_is_its_owners_alone"),
    ],
    # journals of streams
    "around D6": [(TRUST, "test_the_journal_of_a_stream_does_not_outlive_it")],
    # files of 0.1.0
    "files of 0.1.0": [
        ("test_versions.py", "test_ledgers_go_on_and_old_charges_stay_as_they_are"),
        ("test_versions.py", "test_models_load_predict_and_verify"),
        ("test_versions.py", "test_streams_go_on_where_they_stopped"),
        ("test_versions.py", "test_what_is_not_known_reads_not_recorded"),
    ],
}


def names_in(file):
    """Names of the tests that a file defines, in classes as well."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_has_its_tests(finding):
    assert FINDINGS[finding]
    for file, name in FINDINGS[finding]:
        assert name in names_in(file)


def test_every_attack_belongs_to_a_finding():
    named = {name for tests in FINDINGS.values() for _, name in tests}
    attacks = {name for file in (CLAIMS, TRUST) for name in names_in(file) if name.startswith("test_")}
    assert attacks <= named


def test_the_page_names_tests_that_exist():
    """A name may be cut: its beginning or its end is enough."""
    known = {name for file in TESTS.rglob("test_*.py") for name in names_in(file.relative_to(TESTS))}
    written = re.findall(r"`(…?[a-z_]{6,}…?)`", PAGE.read_text(encoding="utf-8"))
    found = [word for word in written if "test_" in word or "…" in word]
    assert len(found) > 25
    for word in found:
        whole = word.strip("…")
        assert any(
            name == word or ("…" in word and (name.startswith(whole) or name.endswith(whole)))
            for name in known
        ), word
