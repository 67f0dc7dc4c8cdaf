"""A saved model is attacked with the solver that was run, whatever ``auto`` would choose for the attacker's data."""

import itertools

import numpy as np
import pytest

from discreet import PrivateLinearSVC, PrivateLogisticRegression, PrivateMedian, PrivateRidge, card
from discreet.audit import transcripts
from discreet.audit.report import audit
from discreet.audit.subjects import linear_subject, pinned
from discreet.cli import main
from discreet.privacy.guarantee import Neighboring
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent


def data(n, columns=3, classes=2):
    X = np.random.default_rng(4).normal(size=(n, columns)) / 2
    return X, np.digitize(X[:, 0], [0.0] if classes == 2 else [-0.3, 0.3])


def test_the_file_of_a_model_fitted_by_auto_is_attacked_with_its_own_mechanism(tmp_path, capsys):
    path = str(tmp_path / "model.json")
    model = PrivateLogisticRegression(classes=[0, 1]).fit(*data(2000))
    card.save(model, path)
    assert "second moment" in model.privacy_.mechanism
    assert main(["audit", path, "--runs", "20"]) == 0
    shown = capsys.readouterr().out
    assert "solver 'newton'" in shown
    assert "attacked:            Gaussian noise on the second moment" in shown
    assert main(["audit", path, "--runs", "20", "--solver", "objective"]) == 0
    assert "attacked:            objective perturbation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (PrivateLogisticRegression(classes=[0, 1]), "newton"),
        (PrivateLogisticRegression(classes=[0, 1], delta=0), "objective"),
        (PrivateLogisticRegression(classes=[0, 1, 2], multi_class="ovr"), "newton"),
        (PrivateLinearSVC(classes=[0, 1], neighboring="add-remove-one", n_samples=700), "newton"),
        (PrivateRidge(target_bounds=(0, 1)), "newton"),
    ],
)
def test_the_solver_is_found_by_what_was_charged(model, solver, tmp_path):
    classes = 2 if getattr(model, "classes", None) is None else len(model.classes)
    fitted = model.fit(*data(600, classes=classes))
    card.save(fitted, tmp_path / "model.json")
    named = card.read(tmp_path / "model.json").parameters["solver"]
    found = pinned(card.load(tmp_path / "model.json"), named)
    assert found.solver == solver
    promise = fitted.privacy_.guarantee
    assert (found.epsilon, found.delta, found.neighboring) == (
        promise.epsilon,
        promise.delta,
        promise.neighboring,
    )


def test_a_solver_that_cannot_be_named_is_not_replaced_by_another(tmp_path, capsys):
    path = str(tmp_path / "model.json")
    unnamed = NoisyGradientDescent(n_iterations=3)
    card.save(PrivateLogisticRegression(classes=[0, 1], solver=unnamed).fit(*data(600)), path, overwrite=True)
    assert main(["audit", path]) == 1
    assert "fitted by '3 full-batch gradients" in capsys.readouterr().err
    grouped = PrivateLogisticRegression(classes=[0, 1], max_rows_per_group=2, solver="noisy-gd")
    card.save(grouped.fit(*data(600), groups=np.arange(600) // 2), path, overwrite=True)
    assert main(["audit", path]) == 1
    assert "people with several rows" in capsys.readouterr().err
    card.save(PrivateMedian(radius=2.0).fit(data(600)[0]), path, overwrite=True)
    assert main(["audit", path]) == 1
    assert "not for PrivateMedian" in capsys.readouterr().err


def test_a_declared_number_of_rows_holds_the_strained_pair():
    report = audit(
        PrivateLinearSVC(1.0, 1e-2, neighboring="add-remove-one", solver="objective"), runs=20, seed=0
    )
    assert report.passed, report


@pytest.mark.parametrize("pace", [0.0, 1.0, 100.0])
def test_the_pair_does_not_depend_on_the_speed_of_the_machine(pace, monkeypatch):
    """A list of rows is compared with that of another machine, by what was charged for them."""
    usual = linear_subject("PrivateHuberRegressor", Neighboring.ZERO_OUT)
    monkeypatch.setattr(transcripts.time, "process_time", itertools.count(0.0, pace).__next__)
    assert linear_subject("PrivateHuberRegressor", Neighboring.ZERO_OUT).event == usual.event
