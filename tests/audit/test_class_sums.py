"""Sums by class: pairs that attain their sensitivity, a search for worse ones, and twins that forget a part of it."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from benchmarks.audit_parts import parts
from benchmarks.audit_rows import attained, pair_worth
from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit import attack as attacking
from discreet.audit import subjects
from discreet.audit.attack import claimed
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import class_case, neighbors_of, sums_classes, worst_pair
from discreet.privacy.guarantee import Neighboring
from discreet.solvers.class_sums import discriminant, mechanism

sys.path.insert(0, str(Path(__file__).parent))
import more_twins

pytestmark = pytest.mark.slow

RELATIONS = list(Neighboring)
KINDS = [(PrivateLinearSVC, 2), (PrivateLogisticRegression, 2), (PrivateLogisticRegression, 3)]
WITHIN = 1 / np.sqrt(1 + mechanism.CONSTANT**2)  # of the declared distance, between rows of one class


def model(kind=PrivateLogisticRegression, relation=Neighboring.REPLACE_ONE, n_classes=2, **changes):
    options = {"neighboring": relation.value, "classes": list(range(n_classes)), "bad_rows": "null"}
    if relation is Neighboring.ADD_REMOVE_ONE:
        options["n_samples"] = 50
    return kind(
        **({"epsilon": 1.0, "delta": 1e-2, "solver": subjects.brief("discriminant")} | options | changes)
    )


def of_sums(found):
    """Observed over declared, of the first call: the release of the sums."""
    return found.distances[0].ratio


def within_a_class(row, other, n_rest=20):
    """A row and another in the same class, among rows of both classes."""
    X = np.vstack([[row], np.tile([[0.5, -0.5]], (n_rest, 1))])
    return neighbors_of(X, np.arange(n_rest + 1) % 2, 0, "replace-one", other, 0)


OPPOSITE = within_a_class([1e6, 0.0], [-1e6, 0.0])


def subject_of(estimator, pair):
    estimator = estimator.set_params(n_samples=len(pair.first[1]))
    return subjects._fitted("sums", [(estimator, pair)], Neighboring(estimator.neighboring))


# -- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("kind", "n_classes"), KINDS)
def test_the_pair_attains_the_claim_and_no_more(kind, n_classes, relation):
    subject = subjects.of(model(kind, relation, n_classes))
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)
    assert 0.9999 < of_sums(found) <= 1.0
    claim, worth = claimed(subject, 1e-2), pair_worth(subject, 1e-2)
    assert worth <= claim
    assert attained(subject, worth, claim)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {"feature_bound": 0.01},
        {"feature_bound": 30.0},
        {"fit_intercept": False},
        {"epsilon": 0.3},
        {"epsilon": 8.0},
    ],
    ids=str,
)
def test_other_configurations_reach_the_distance_of_the_sums(relation, changes):
    case, pair = class_case(model(relation=relation, **changes))
    found = replay(fitting(case), pair.first, pair.second)
    assert found.passed, str(found)
    assert 0.999 < of_sums(found) <= 1.0


def test_every_relation_has_a_row_for_two_and_for_three_classes():
    names = [(subject.name, subject.relation) for subject in parts(["discriminant"])["classifiers"]]
    kinds = ["PrivateLinearSVC, discriminant", "PrivateLogisticRegression, discriminant"]
    expected = [name for kind in kinds for name in (kind, f"{kind}, 3 classes")]
    assert names == [(name, relation) for name in expected for relation in RELATIONS]
    assert not sums_classes(PrivateLogisticRegression(solver="noisy-gd"))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("other", [(0.0, 1.0), (-1.0, 0.0)], ids=["orthogonal", "opposite"])
@pytest.mark.parametrize(("length", "ratio"), [(1.0, WITHIN), (1e6, 1.0)])
def test_exchanged_within_a_class_a_row_keeps_what_clipping_leaves_of_its_constant(
    length, ratio, other, sparse
):
    pair = within_a_class([length, 0.0], np.multiply(length, other))
    sides = [(sp.csr_array(X) if sparse else X, y) for X, y in (pair.first, pair.second)]
    found = replay(fitting(model(epsilon=20.0)), *sides)  # large enough for the smallest constant
    assert found.passed, str(found)
    assert of_sums(found) == pytest.approx(ratio, abs=1e-6)
    assert of_sums(found) <= 1.0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("kind", "n_classes"), KINDS)
def test_the_worst_pairs_of_other_solvers(kind, n_classes, relation):
    for flip in {False, relation is Neighboring.REPLACE_ONE}:
        pair = worst_pair(relation, n_rest=40, n_columns=2, flip=flip)
        found = replay(fitting(model(kind, relation, n_classes)), pair.first, pair.second)
        assert found.passed, str(found)


rows = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([-1.0, 0.0, 1.0, np.nan]), min_size=2, max_size=2)
records = st.tuples(rows, st.sampled_from([0, 1, 2, 7]))


@pytest.mark.parametrize("relation", RELATIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.lists(records, min_size=2, max_size=6),
    other=records,
    kind=st.sampled_from(KINDS),
    sparse=st.booleans(),
    intercept=st.booleans(),
)
def test_no_neighbors_found_by_search_break_a_declaration(relation, data, other, kind, sparse, intercept):
    X, y = np.array([row for row, _ in data]), np.array([label for _, label in data])
    pair = neighbors_of(X, y, 0, relation, *other)
    sides = [(sp.csr_array(X) if sparse else X, y) for X, y in (pair.first, pair.second)]
    estimator = model(kind[0], relation, kind[1], fit_intercept=intercept)
    found = replay(fitting(estimator), *sides, skip={"repeatable"})
    target(of_sums(found))
    assert found.passed, str(found)


# -- attacks and twins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_half_the_noise_is_caught(relation):
    subject = subjects.of(model(relation=relation))
    found = attacking.attacked(subject, 100, seed=3)
    assert not found.refuted
    assert 0.5 * found.claimed < found.exact.epsilon <= found.claimed
    assert attacking.attacked(subject, 60, seed=4, share=0.5).refuted


def test_sums_calibrated_for_one_class_are_caught_where_a_row_moves_to_another(monkeypatch):
    monkeypatch.setattr(discriminant, "ClassSumsMechanism", more_twins.OneClassMoves)
    subject = subjects.of(model())
    found = replay(subject.program, *subject.strained)
    assert found.failed_checks == {"distance"}
    assert of_sums(found) == pytest.approx(np.sqrt(2), rel=1e-6)
    assert attacking.attacked(subject, 300, seed=5).refuted


def test_sums_of_rows_with_signs_are_caught_where_a_row_turns_around(monkeypatch):
    monkeypatch.setattr(mechanism, "split", more_twins.unsplit)
    found = replay(fitting(model()), OPPOSITE.first, OPPOSITE.second)
    assert found.failed_checks == {"distance"}
    assert of_sums(found) == pytest.approx(np.sqrt(2), rel=1e-6)
    assert attacking.attacked(subject_of(model(), OPPOSITE), 300, seed=6).refuted
    moved = subjects.of(model())  # to another class: signs do not matter
    assert replay(moved.program, *moved.strained).passed


def test_split_rows_that_turn_around_are_within_the_claim():
    found = attacking.attacked(subject_of(model(), OPPOSITE), 100, seed=6)
    assert 0.5 * found.claimed < found.exact.epsilon <= found.claimed
