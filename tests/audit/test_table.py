"""The table: every part gives subjects, every subject replays, and a row says how many runs it is made of."""

import numpy as np
import pytest

from discreet.audit import shipped, subjects, table
from discreet.audit.replay import replay
from discreet.privacy.guarantee import Neighboring

MECHANISMS = {subject.name: subject for subject in shipped.mechanisms()}


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_replay_at_the_declared_distance(name):
    subject = MECHANISMS[name]
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)
    assert 0.95 <= found.worst_ratio <= 1.0 + 1e-9


@pytest.mark.parametrize("name", ["GaussianMechanism", "ExponentialMechanism", "NoisyPlurality"])
def test_half_the_noise_is_caught_where_the_worst_case_is_known(name):
    found = subjects.attacked(MECHANISMS[name], 2500, seed=5)
    twin = subjects.attacked(MECHANISMS[name], 5000, seed=7, share=0.5)
    assert not found.refuted
    assert 0.3 * found.claimed < found.bound.epsilon <= found.claimed
    assert twin.alarm.epsilon > 0.9 * found.claimed


def test_streams_and_recommenders_replay():
    for subject in shipped.streams_and_users():
        found = replay(subject.program, *subject.strained)
        assert found.passed, f"{subject.name}: {found}"
        assert found.worst_ratio > 0.2, f"{subject.name}: {found}"


# Quantile regression takes seconds to try its pairs, and is replayed in test_replay.py.
@pytest.mark.parametrize("name", sorted({*subjects.LINEAR_MODELS} - {"PrivateQuantileRegressor"}))
def test_linear_models_replay(name):
    for subject in subjects.regressors([Neighboring.ZERO_OUT], [name]):
        found = replay(subject.program, *subject.strained)
        assert found.passed, str(found)


def test_a_row_counts_its_runs():
    line = table.row(MECHANISMS["LaplaceMechanism"], runs=100, twin_runs=120, seconds=60)
    assert (line.runs, line.twin_runs, line.worst_case) == (100, 120, "known")
    assert line.sound
    text = table.as_text([line])
    assert text.count("\n") == 2
    assert "LaplaceMechanism" in text


def test_subjects_are_found_by_name():
    assert table.named("gaussianmech").name == "GaussianMechanism"
    assert table.named("PrivateRidge").name == "PrivateRidge"
    with pytest.raises(ValueError, match="known to the audit"):
        table.named("nothing")


def test_a_twin_of_a_choice_is_sharper():
    subject = next(subject for subject in shipped.streams_and_users() if "sampling" in subject.name)
    full, half = (subjects.released(subject.run, subject.first, 400, seed=3, share=s) for s in (1.0, 0.25))
    assert np.mean(half[:, 0]) > np.mean(full[:, 0]) + 0.02  # the cheaper action is drawn more often
