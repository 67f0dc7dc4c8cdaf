"""Reports: phases and planned steps, the same in logs and callbacks, and nothing that the data decides."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from discreet import (
    BudgetExceeded,
    Ledger,
    PrivateLogisticRegression,
    PrivateMedian,
    PrivateSearchCV,
    insecure_noise,
    on_progress,
    private_quantiles,
)
from discreet.mechanisms.recording import Report, releasing, step
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
Y = (X[:, 0] > 0).astype(int)
MODEL = PrivateLogisticRegression(1.0, 1e-3, classes=[0, 1])


def heard(run):
    reports = []
    with on_progress(reports.append):
        run()
    return reports


def test_phases_and_planned_steps(caplog):
    model = MODEL.set_params(solver=NoisyGradientDescent(n_iterations=5))
    with caplog.at_level(logging.DEBUG, logger="discreet"):
        reports = heard(lambda: model.fit(X, Y))
    assert [report.phase for report in reports] == ["charge", *["run"] * 6, "done"]
    assert [(report.step, report.steps) for report in reports[2:-1]] == [(k, 5) for k in range(1, 6)]
    assert {report.release for report in reports} == {"PrivateLogisticRegression"}
    assert reports[0].detail == "(1, 0.001), replace-one, unit: record"
    assert reports[1].detail == model.privacy_.mechanism
    mine = [record for record in caplog.records if record.name == "discreet"]
    assert [record.getMessage() for record in mine] == [str(report) for report in reports]
    assert [record.levelno for record in mine if "step" in record.getMessage()] == [logging.DEBUG] * 5
    assert str(reports[2]) == "PrivateLogisticRegression: step 1 of 5"


def test_searches_for_a_minimum_report_begin_and_end_only():
    """How many passes they make depends on the data."""
    reports = heard(lambda: MODEL.set_params(solver="objective").fit(X, Y))
    assert [(report.phase, report.steps) for report in reports] == [("charge", 0), ("run", 0), ("done", 0)]


@pytest.mark.parametrize("seed", range(4))
def test_tries_of_a_search_are_not_heard(seed):
    search = PrivateSearchCV(
        PrivateLogisticRegression(solver=NoisyGradientDescent(n_iterations=3), classes=[0, 1]),
        {"l2": [1.0, 10.0]},
        2.0,
        1e-3,
        method="tries",
    )
    with insecure_noise(seed):
        reports = heard(lambda: search.fit(X, Y))
    assert [report.phase for report in reports] == ["charge", "run", "done"]
    assert {report.release for report in reports} == {"PrivateSearchCV"}


def test_a_refusal_is_reported_as_far_as_it_goes(tmp_path):
    ledger, reports = Ledger(tmp_path / "b.db", 0.1, 0.0), []
    with on_progress(reports.append), pytest.raises(BudgetExceeded):
        private_quantiles(X[:, 0], 0.5, candidates=[-1.0, 0.0, 1.0], epsilon=1.0, ledger=ledger)
    assert [report.phase for report in reports] == ["charge"]
    assert [report.phase for report in heard(lambda: PrivateMedian(1.0, 1e-3, radius=1.0).fit(X))][:2] == [
        "charge",
        "run",
    ]


def test_listeners_are_heard_in_their_block_only():
    outer, inner = [], []
    with on_progress(outer.append):
        with on_progress(inner.append), releasing("one") as tell:
            tell("run", "")
            step(1, 2)
            with releasing("inside") as hidden:
                hidden("run", "")
                step(1, 9)
        step(3, 3)
    step(4, 4)
    assert outer == inner == [Report("one", "run"), Report("one", "run", step=1, steps=2)]


def test_seconds_are_private_and_for_those_who_ask(caplog):
    timed, plain = [], []
    listening = on_progress(plain.append), on_progress(timed.append, timings=True)
    with caplog.at_level(logging.DEBUG, logger="discreet"), listening[0], listening[1]:
        MODEL.set_params(solver=NoisyGradientDescent(n_iterations=3)).fit(X, Y)
    seconds = [report.private_seconds for report in timed]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0
    assert ": PRIVATE, " in str(timed[-1])
    assert all(report.private_seconds is None for report in plain)
    assert [replace(report, private_seconds=None) for report in timed] == plain
    assert not any("PRIVATE" in record.getMessage() for record in caplog.records)


def test_nothing_is_printed_without_a_handler(capfd):
    MODEL.set_params(solver="objective").fit(X, Y)
    assert capfd.readouterr() == ("", "")
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("discreet").handlers)
