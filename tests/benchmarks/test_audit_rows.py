"""What pairs are worth: closed forms where they exist, nothing where questions depend on answers."""

import pytest

from benchmarks.audit_rows import attained, pair_worth
from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit import catalog, subjects
from discreet.audit.attack import claimed, gathered
from discreet.audit.estimates import loss_bound

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
