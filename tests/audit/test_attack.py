"""Black-box attacks on the shipped estimators at epsilon 1, delta 0.01: never above the claim; half noise is caught.

Noise is seeded, so these tests give the same answer every time; the alarm itself is wrong once in a million.
"""

import numpy as np
import pytest

import discreet
from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.attack import (
    attacked,
    exact_losses,
    judged,
    log_ratio,
    minimizer_law_known,
    planned_runs,
    prepared,
)
from discreet.audit.estimates import loss_bound
from discreet.audit.report import audit, histogram
from discreet.audit.subjects import subject_of
from discreet.audit.worst_pairs import audit_cases
from discreet.cli import main
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Gaussian
from discreet.sets import GroupedL1Ball, L2Ball, Simplex

DELTA = 1e-2


def case(kind, neighboring, others=300):
    model = kind(1.0, DELTA, neighboring=neighboring, classes=[0, 1], solver="objective")
    estimator, pair = audit_cases(model, others)[0]  # the worst for objective perturbation
    return prepared(estimator, pair.first), prepared(estimator, pair.second)


def attack(first, second, *, runs, seed, share=1.0, likelihood=True):
    """Run the plan of two prepared runs, and bound its epsilon from below."""
    found = planned_runs(first, second, runs, seed=seed, share=share, likelihood=likelihood)
    claimed = accountants.epsilon(first.plan.event, DELTA, first.plan.guarantee.neighboring)
    return judged(found, claimed, delta=DELTA)


@pytest.fixture(scope="module")
def svm():
    return case(PrivateLinearSVC, "replace-one")


@pytest.fixture(scope="module")
def logistic():
    return case(PrivateLogisticRegression, "zero-out", others=100)


def test_the_svm_keeps_its_promise_and_the_attack_is_not_blind(svm):
    found = attack(*svm, runs=200, seed=11)
    assert found.claimed == pytest.approx(1.0, rel=1e-3)
    assert not found.refuted
    assert found.bound.epsilon <= found.claimed
    assert 0.5 < found.exact.epsilon <= found.claimed


def test_an_svm_with_half_the_noise_is_caught(svm):
    found = attack(*svm, runs=200, seed=12, share=0.5)
    assert found.refuted
    assert found.exact.epsilon > found.claimed


def test_logistic_regression_keeps_its_promise_and_the_attack_is_not_blind(logistic):
    found = attack(*logistic, runs=200, seed=13)
    assert not found.refuted
    assert 0.5 < found.exact.epsilon <= found.claimed


def test_a_logistic_regression_with_half_the_noise_is_caught(logistic):
    assert attack(*logistic, runs=150, seed=14, share=0.5).refuted


@pytest.mark.parametrize("kind", [PrivateLinearSVC, PrivateLogisticRegression])
def test_exact_likelihood_ratios_reach_most_of_the_claim(kind):
    first, second = case(kind, "zero-out", others=100)
    for a, b in ((first, second), (second, first)):
        found = loss_bound(exact_losses(a, b, 200, seed=5), DELTA, 0.95)
        assert 0.5 < found.epsilon <= 1.0
        assert loss_bound(exact_losses(a, b, 150, seed=6, share=0.5), DELTA, 1 - 1e-6).epsilon > 1.0


def test_the_log_ratio_integrates_to_one():
    """E exp(-loss) under the first law is the total mass of the second."""
    first, second = case(PrivateLogisticRegression, "zero-out", others=20)
    ratios = np.exp(-exact_losses(first, second, 800, seed=3))
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(len(ratios))
    theta = np.zeros((1, *first.plan.problem.shape))
    assert log_ratio(first, second, theta) == -log_ratio(second, first, theta)


def in_set(inside):
    """Prepared runs with coefficients in a set, on the pair that is the worst for a perturbed objective."""
    model = PrivateLinearSVC(1.0, DELTA, classes=[0, 1], solver="objective", constraint=inside)
    estimator, pair = audit_cases(model)[0]
    return prepared(estimator, pair.first), prepared(estimator, pair.second)


def test_minimizers_inside_a_set_have_the_density_of_all_of_space(svm):
    inside = exact_losses(*in_set(GroupedL1Ball(0.4, 2, 1)), 60, seed=5, share=0.5)
    assert inside == pytest.approx(exact_losses(*svm, 60, seed=5, share=0.5), abs=5e-3)  # tolerances
    assert loss_bound(inside, DELTA, 1 - 1e-6).epsilon > 1.0


def test_minimizers_on_the_boundary_show_nothing():
    """Some lie inside of a small ball; those on its boundary count as losses that prove nothing."""
    losses = exact_losses(*in_set(L2Ball(0.02, 2)), 40, seed=5, share=0.5)
    assert 0 < np.isinf(losses).sum() < 40
    assert loss_bound(losses, DELTA).epsilon < loss_bound(losses[np.isfinite(losses)], DELTA).epsilon


def test_a_set_without_an_interior_has_no_known_density():
    assert not minimizer_law_known(in_set(Simplex(0.4, 2))[0].plan)


def test_evidence_can_be_gathered_in_parts(svm):
    whole = planned_runs(*svm, 30, seed=4)
    parts = planned_runs(*svm, 20, seed=4).and_then(planned_runs(*svm, 10, seed=4, start=20))
    for name in ("shown", "scores", "losses"):
        for one, two in zip(getattr(whole, name), getattr(parts, name), strict=True):
            np.testing.assert_array_equal(one, two)
    assert judged(whole, 1.0, delta=DELTA).exact == judged(parts, 1.0, delta=DELTA).exact


def test_every_planned_look_pays_for_its_thresholds_but_not_for_its_losses(svm):
    found = planned_runs(*svm, 200, seed=4, share=0.5)
    once, often = (judged(found, 1.0, delta=DELTA, looks=looks) for looks in (1, 4))
    assert often.bound.epsilon < once.bound.epsilon
    assert often.exact == once.exact
    assert often.bound.confidence == once.bound.confidence == 0.95


def test_projections_alone_see_a_leak_of_any_solver(svm):
    found = attack(*svm, runs=400, seed=1, share=0.02, likelihood=False)
    assert found.refuted
    assert found.score == "best linear projection"


def test_weakened_noise_is_never_secure(svm):
    with pytest.raises(ValueError, match="seed"):
        planned_runs(*svm, 20, seed=None, share=0.5)


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(ValueError, match="at least 20"):
        attacked(subject_of("one number", lambda data: [data], 0.0, 1.0, Gaussian(1.0)), 19)
    with pytest.raises(ValueError, match="linear models"):
        audit(discreet.PrivateMatrixCompletion("bias", 1.0, 1e-3))


def test_the_report_says_what_was_and_was_not_seen():
    report = audit(PrivateLinearSVC(1.0, 1e-5), runs=150, seed=0, with_twin=True)
    text = str(report)
    assert report.passed
    for words in (
        "claimed epsilon",
        "empirical epsilon",
        "could see",
        "could not see",
        "half-noise twin",
        "replay",
    ):
        assert words in text
    assert report.attacked.claimed < 0.5  # at delta 0.01 the event promises more than at its own delta
    assert histogram(report.attacked).count("|") == 4


def test_any_linear_model_can_be_audited():
    model = discreet.PrivateHuberRegressor(1.0, 1e-3, target_bounds=(0, 1), solver="objective")
    report = audit(model, runs=60, seed=0)
    assert report.passed
    assert report.guarantee.delta == 1e-3


def test_three_classes_can_be_audited():
    report = audit(
        PrivateLogisticRegression(1.0, DELTA, classes=[0, 1, 2], neighboring="zero-out"), runs=60, others=5
    )
    assert report.passed


def test_the_command_audits_an_estimator(capsys):
    assert main(["audit", "svm", "--runs", "60", "--plot"]) == 0
    shown = capsys.readouterr().out
    assert "nothing contradicts the guarantee" in shown
    assert "shown to be at least" in shown


@pytest.mark.parametrize("name", ["GaussianMechanism", "StableRelease", "PrivateFTRL, tree"])
def test_the_command_audits_mechanisms_and_streams(name, capsys):
    assert main(["audit", name, "--runs", "60"]) == 0
    assert f"Audit of {name}" in capsys.readouterr().out


def test_the_command_writes_a_page(tmp_path, capsys):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    command = ["audit", "svm", "--runs", "60", "--seed", "0", "--twin", "--output"]
    assert main([*command, str(tmp_path / "audit.html")]) == 0
    text = (tmp_path / "audit.html").read_text()
    assert "half-noise twin" in text
    assert "first data set" in text
    assert main([*command, str(tmp_path / "audit.txt")]) == 1


def test_the_command_audits_a_model_file(tmp_path, capsys):
    from discreet import card

    rng = np.random.default_rng(0)
    model = PrivateLinearSVC(0.7, classes=["no", "yes"]).fit(
        rng.normal(size=(50, 3)), np.repeat(["no", "yes"], 25)
    )
    card.save(model, tmp_path / "model.json")
    assert main(["audit", str(tmp_path / "model.json"), "--runs", "60"]) == 0
    assert "(0.7, 0.0004), replace-one" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense.json"],
        ["Nonsense"],
        ["svm", "--runs", "3"],
        ["svm", "--confidence", "0"],
        ["svm", "--solver", "x"],
    ],
)
def test_the_command_explains_what_is_wrong(arguments, capsys):
    assert main(["audit", *arguments]) == 1
    assert capsys.readouterr().err.startswith("error: ")
