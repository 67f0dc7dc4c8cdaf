"""The table: every part gives subjects, every subject replays, and a row says how many runs it is made of."""

import numpy as np
import pytest
from benchmarks import audit as command

from discreet.audit import programs, shipped, subjects, table
from discreet.audit.replay import replay
from discreet.privacy.guarantee import Neighboring
from discreet.recommend.methods import METHODS

MECHANISMS = {subject.name: subject for subject in shipped.mechanisms()}


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_replay_at_the_declared_distance(name):
    subject = MECHANISMS[name]
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)
    assert 0.95 <= found.worst_ratio <= 1.0 + 1e-9


@pytest.mark.parametrize("name", ["ExponentialMechanism", "NoisyPlurality", "SparseVector, 4 questions"])
def test_half_the_noise_is_caught(name):
    found = subjects.attacked(MECHANISMS[name], 600, seed=5)
    assert not found.refuted
    assert 0.3 * found.claimed < found.exact.epsilon <= found.claimed
    assert subjects.attacked(MECHANISMS[name], 900, seed=7, share=0.5).refuted


@pytest.mark.parametrize("part", ["streams", "workflow", "transfer"])
def test_programs_replay(part):
    for subject in getattr(programs, part)():
        found = replay(subject.program, *subject.strained)
        assert found.passed, f"{subject.name}: {found}"
        assert found.worst_ratio > 0.9 or subject.name.startswith("GridWalk"), f"{subject.name}: {found}"


def test_recommenders_replay_and_attain_the_declared_distance():
    for method in METHODS:
        worst = 0.0
        for subject in programs._users(method):
            found = replay(subject.program, *subject.strained)
            assert found.passed, f"{subject.name}: {found}"
            worst = max(worst, found.worst_ratio)
            if worst >= 0.95:
                break
        assert worst >= 0.95, subject.name


# Some take seconds to try their pairs, and are replayed in test_replay.py.
_SLOW = {"PrivateQuantileRegressor", "PrivatePoissonRegressor", "PrivateHuberRegressor"}


@pytest.mark.parametrize("name", sorted({*subjects.LINEAR_MODELS} - _SLOW))
def test_linear_models_replay(name):
    subject = next(subjects.regressors([Neighboring.ZERO_OUT], [name]))
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)


def test_a_row_counts_its_runs():
    line = table.row(MECHANISMS["LaplaceMechanism"], runs=720, seconds=60)
    assert (line.runs, line.worst_case, line.sees) == (720, "attained", "transcript")
    assert line.sound
    assert line.caught
    assert line.twin_runs in (60, 240, 720)
    text = table.as_text([line])
    assert text.count("\n") == 2
    assert "LaplaceMechanism" in text


def test_a_twin_that_is_not_caught_is_explained():
    line = table.row(MECHANISMS["ConfidentPlurality"], runs=60, seconds=60)
    assert not line.caught
    assert "runs" in line.note


def test_rows_are_kept_under_a_summary_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "audit.md")
    for name in ("LaplaceMechanism", "StableRelease", "LaplaceMechanism"):
        command.keep([table.row(MECHANISMS[name], runs=60, seconds=1)])
    text = command.RESULTS.read_text()
    assert "2 rows: 2 replays passed, 2 reach 0.95" in text
    assert text.count("| LaplaceMechanism |") == 1


def test_subjects_are_found_by_name():
    assert table.named("gaussianmech").name == "GaussianMechanism"
    assert table.named("PrivateRidge").name == "PrivateRidge"
    assert table.named("private_error_rate").name == "private_error_rate"
    assert table.named("privateLinearSVC").name == "PrivateLinearSVC, auto"
    with pytest.raises(ValueError, match="known to the audit"):
        table.named("nothing")


def test_a_twin_of_a_choice_is_sharper():
    subject = next(subject for subject in programs.streams() if "sampling" in subject.name)
    full, half = (subjects.released(subject.run, subject.first, 400, seed=3, share=s) for s in (1.0, 0.25))
    assert np.mean(half[:, 0]) > np.mean(full[:, 0]) + 0.02  # the cheaper action is drawn more often
