"""What pairs are worth: closed forms where they exist, nothing where questions depend on answers."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest
from sklearn.dummy import DummyClassifier

import discreet
from benchmarks import audit, audit_relations
from benchmarks.audit_rows import attained, pair_worth
from discreet import Neighboring, PrivateLinearSVC, PrivateLogisticRegression, _api, sets, solvers
from discreet.audit import catalog, subjects
from discreet.audit.attack import claimed, gathered
from discreet.audit.estimates import loss_bound
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import worst_pair
from discreet.solvers import base

MECHANISMS = {subject.name: subject for subject in catalog.mechanisms()}


def case(kind, solver, others=20, relation="replace-one"):
    options = {"classes": [0, 1], "neighboring": relation, "solver": subjects.brief(solver)}
    return subjects.of(kind(1.0, 1e-2, **options), others)


@pytest.mark.parametrize(
    "name", ["GaussianMechanism", "SymmetricGaussianMechanism", "TreeMechanism, 4 steps"]
)
def test_gaussian_noise_at_the_declared_distance_is_worth_its_claim(name):
    subject = MECHANISMS[name]
    assert pair_worth(subject, 1e-2) == pytest.approx(claimed(subject, 1e-2), rel=1e-4)
    assert pair_worth(subject, 1e-2, share=0.5) > 2 * claimed(subject, 1e-2)


@pytest.mark.parametrize("solver", ["noisy-gd", "output", "objective"])
def test_solvers_whose_canary_is_as_steep_in_every_run(solver):
    subject = case(PrivateLinearSVC, solver)
    assert 0.95 * claimed(subject, 1e-2) < pair_worth(subject, 1e-2) <= claimed(subject, 1e-2)


@pytest.mark.parametrize("solver", ["noisy-gd", "objective"])
def test_nothing_is_said_where_distances_depend_on_the_answers(solver):
    assert pair_worth(case(PrivateLogisticRegression, solver), 1e-2) is None


def test_other_noise_is_not_taken_for_gaussian():
    assert pair_worth(MECHANISMS["LaplaceMechanism"], 1e-2) is None


@pytest.mark.parametrize("name", ["NoisyPlurality", "LaplaceNoisyMax", "GaussianMechanism"])
def test_nobody_sees_more_than_a_pair_is_worth(name):
    subject = MECHANISMS[name]
    first, second = gathered(subject, 400, seed=3).losses
    seen, worth = loss_bound(first, 1e-2, reverse=second).epsilon, pair_worth(subject, 1e-2)
    assert 0.5 * worth < seen <= worth


@pytest.mark.parametrize(
    ("kind", "relation", "solver", "worst"),
    [
        (PrivateLinearSVC, "replace-one", "noisy-gd", True),
        # Opposite records are not both misclassified.
        (PrivateLogisticRegression, "replace-one", "noisy-gd", False),
        (PrivateLogisticRegression, "replace-one", "objective", False),
        (PrivateLogisticRegression, "zero-out", "objective", True),
    ],
)
def test_a_worst_case_is_attained_or_not(kind, relation, solver, worst):
    subject = case(kind, solver, relation=relation)
    price = claimed(subject, 1e-2)
    assert attained(subject, pair_worth(subject, 1e-2), price) == worst


def test_less_than_the_claim_is_not_its_worst_case():
    """Theory and distances do not count where the pair's worth is known."""
    subject = MECHANISMS["GaussianMechanism"]
    assert attained(subject, 0.96, 1.0)
    assert not attained(subject, 0.94, 1.0)


def rows_of_the_table():
    """Names of subjects in the stored table."""
    return {subject for subject, _ in audit.stored_rows()}


def released_names():
    """Public names that release something about data."""
    functions = ("describe", "evaluate", "coefficient_intervals")
    return [name for name in _api.HOMES if name.lower().startswith("private") or name in functions]


#: The other name of a search.
SAME = {"PrivateSelection": "PrivateSearchCV"}


def shown_by(name, rows):
    return [row for row in rows if row == name or row.startswith(f"{name},")]


def test_every_public_release_has_a_row():
    assert len(released_names()) > 20
    rows = rows_of_the_table()
    missing = {name for name in released_names() if not shown_by(SAME.get(name, name), rows)}
    assert missing == set()


def test_every_set_has_a_row():
    kinds = {name for name in sets.__all__ if dataclasses.is_dataclass(getattr(sets, name))}
    assert len(kinds) == 9
    assert kinds - {name.rpartition(", in ")[2] for name in rows_of_the_table()} == set()


def test_every_release_has_rows_under_every_relation_that_it_knows():
    shown = {(name.split(",")[0], relation) for name, relation in audit.stored_rows()}
    asked = {
        (SAME.get(name, name), relation)
        for name in released_names()
        if "neighboring" in inspect.signature(getattr(discreet, name)).parameters
        for relation in Neighboring
    }
    missing = {(name, relation) for name, relation in asked if (name, relation.value) not in shown}
    assert missing == set(audit_relations.REFUSED)


def test_relations_without_a_row_are_refused():
    for name, relation in audit_relations.REFUSED:
        with pytest.raises(ValueError, match="neighboring"):
            REFUSALS[name](relation.value)


REFUSALS = {
    "PrivateFTRL": lambda relation: discreet.PrivateFTRL(2, 4, neighboring=relation).plan(),
    "PrivateOnlineLinearModel": lambda relation: discreet.PrivateOnlineLinearModel(
        2, 4, neighboring=relation
    ).plan(),
    "PrivateSearchCV": lambda relation: discreet.PrivateSearchCV(
        PrivateLinearSVC(classes=[0, 1]), {"l2": [1.0]}, classes=[0, 1], neighboring=relation
    ).plan(100, 2, 2),
    "private_error_rate": lambda relation: discreet.private_error_rate(
        DummyClassifier(), [[0.0]] * 9, [0, 1] * 4 + [0], neighboring=relation, n_teachers=2, epsilon=1.0
    ),
}


def test_every_registered_solver_has_a_row():
    """By its own name, or as the default of a model whose row names none."""
    for module in pkgutil.walk_packages(solvers.__path__, "discreet.solvers."):
        importlib.import_module(module.name)
    rows = rows_of_the_table()
    defaults = {
        getattr(discreet, row)().solver
        for row in rows
        if row.startswith("Private")
        and hasattr(discreet, row)
        and "solver" in inspect.signature(getattr(discreet, row)).parameters
    }
    named = {part for row in rows for part in row.split(", ")[1:]}
    assert {name for name in base.names() if name not in named | defaults} == set()


@pytest.mark.parametrize("kind", ["estimator", "solver"])
def test_something_new_without_a_row_is_noticed(kind, monkeypatch):
    if kind == "estimator":
        monkeypatch.setitem(_api.HOMES, "PrivateNovelty", "discreet.novelty")
        with pytest.raises(AssertionError, match="PrivateNovelty"):
            test_every_public_release_has_a_row()
    else:
        monkeypatch.setattr(base, "names", lambda: ["objective", "novel-descent"])
        with pytest.raises(AssertionError, match="novel-descent"):
            test_every_registered_solver_has_a_row()


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_pure_ridge_replays_at_the_declared_distance(relation):
    model = discreet.PrivateRidge(1.0, 0.0, target_bounds=(-1.0, 1.0), neighboring=relation, bad_rows="null")
    model.set_params(solver=subjects.brief("objective"), fit_intercept=False)
    pair = worst_pair(relation, n_rest=3, fit_intercept=False, labels=(-1.0, 1.0))
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)
    assert 0.999 < found.worst_ratio <= 1 + 1e-9
