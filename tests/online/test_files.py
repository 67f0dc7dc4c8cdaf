"""Saving and resuming in the middle of a stream: nothing is spent twice, stale files are refused, noise is new."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import numpy as np
import pytest

from discreet import HorizonReached, Ledger, PrivateFTRL, PrivateOnlineLinearModel
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.online import StreamError, stream_file
from discreet.privacy.accounting.calibration import calibrate

METHODS = ["sampling", "tree"]


def learner(method, tmp_path, horizon=200):
    ledger = Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-3)
    return ledger, PrivateFTRL(3, horizon, 1.0, 1e-3, method=method, ledger=ledger)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_stream_continues_where_it_was_and_is_charged_once(method, tmp_path):
    ledger, first = learner(method, tmp_path)
    first.partial_fit(np.full((20, 3), 0.5))
    action = first.predict_one()
    first.save(tmp_path / "stream")
    again = PrivateFTRL.resume(tmp_path / "stream", at_least=20)
    assert (again.step, again.epoch, again.ledger) == (20, 1, None)
    assert again.predict_one() == action  # drawn before the save, so not drawn again
    again.learn_one([1.0, 0.0, 0.0])
    assert again.step == 21
    assert len(ledger.history()) == 1
    with pytest.raises(StreamError, match="resumed elsewhere"):
        first.learn_one([1.0, 0.0, 0.0])


@pytest.mark.parametrize("method", METHODS)
def test_steps_taken_after_a_save_are_spent_even_if_they_were_lost(method, tmp_path):
    _, first = learner(method, tmp_path)
    first.partial_fit(np.zeros((20, 3)))
    first.save(tmp_path / "stream")
    first.learn_one([1.0, 0.0, 0.0])
    del first  # a crash
    again = PrivateFTRL.resume(tmp_path / "stream", at_least=21)
    assert 21 <= again.step <= 20 + 64
    left = 200 - again.step
    again.partial_fit(np.zeros((left, 3)))
    with pytest.raises(HorizonReached):
        again.learn_one([0.0, 0.0, 0.0])


@pytest.mark.parametrize("method", METHODS)
def test_an_action_drawn_after_a_save_uses_up_a_step(method, tmp_path):
    _, first = learner(method, tmp_path, horizon=20)
    first.partial_fit(np.zeros((20, 3)))
    first.save(tmp_path / "stream")
    first.predict_one()
    again = PrivateFTRL.resume(tmp_path / "stream")
    with pytest.raises(HorizonReached, match="lost"):
        again.predict_one()


def test_after_a_crash_old_records_are_in_no_new_block(tmp_path):
    """Their blocks may have been released already: the resumed tree holds new records only."""
    _, first = learner("tree", tmp_path)
    first.partial_fit(np.ones((3, 3)))
    first.save(tmp_path / "stream")
    published = first._tree.prefix()
    first.learn_one([1.0, 1.0, 1.0])
    again = PrivateFTRL.resume(tmp_path / "stream")
    assert not again._tree.exact.any()
    assert again._tree.step == 0
    np.testing.assert_array_equal(again._before, published)


def test_saving_again_closes_the_older_file(tmp_path):
    _, first = learner("sampling", tmp_path)
    first.learn_one([0.0, 0.0, 0.0]).save(tmp_path / "one")
    first.save(tmp_path / "two")
    closed = PrivateFTRL.resume(tmp_path / "one")
    with pytest.raises(HorizonReached):
        closed.learn_one([0.0, 0.0, 0.0])
    assert PrivateFTRL.resume(tmp_path / "two").step == 1


def test_a_superseded_holder_cannot_save_what_somebody_else_continues(tmp_path):
    _, first = learner("tree", tmp_path)
    first.learn_one([0.0, 0.0, 0.0]).save(tmp_path / "one")
    second = PrivateFTRL.resume(tmp_path / "one")
    with pytest.raises(StreamError, match="resumed elsewhere"):
        first.save(tmp_path / "two")
    assert not (tmp_path / "two").exists()
    second.learn_one([0.0, 0.0, 0.0]).save(tmp_path / "two")
    assert PrivateFTRL.resume(tmp_path / "two").step == 2
    with pytest.raises(StreamError, match="resumed elsewhere"):
        second.save(tmp_path / "three")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("fails", range(6))
def test_wherever_a_save_ends_early_at_most_one_can_go_on(fails, saved, order, tmp_path, monkeypatch):
    """The n-th access to a file fails, before or after it has taken effect; all that exists is then continued."""
    first = PrivateFTRL(3, 70, 1.0, 1e-3, method="tree")
    first.learn_one([0.0, 0.0, 0.0])
    if saved:
        first.save(tmp_path / "one")
    calls = []

    def failing(name):
        real = getattr(stream_file, name)

        def call(*given):
            calls.append(name)
            if len(calls) == fails // 2 + 1:
                if fails % 2:
                    real(*given)
                raise KeyboardInterrupt
            return real(*given)

        return call

    with monkeypatch.context() as patched:
        for name in ("create", "spend"):
            patched.setattr(stream_file, name, failing(name))
        try:
            first.save(tmp_path / "two")
        except KeyboardInterrupt:
            pass
        else:
            assert (fails // 2, saved) == (2, False)  # a first save has nothing to close
    going_on = [first]
    for name in ("one", "two"):
        try:
            going_on.append(PrivateFTRL.resume(tmp_path / name))
        except StreamError:
            continue
    taken = []
    for holder in going_on[::order]:
        try:
            while True:
                holder.learn_one([0.0, 0.0, 0.0])
                taken.append(holder.step)
        except (HorizonReached, StreamError):
            pass
    assert len(taken) == len(set(taken))  # no step number twice


def test_whoever_may_not_continue_a_file_takes_it_from_nobody(tmp_path):
    _, first = learner("tree", tmp_path)
    first.partial_fit(np.zeros((3, 3))).save(tmp_path / "stream")
    with pytest.raises(StreamError, match="does not hold"):
        PrivateOnlineLinearModel.resume(tmp_path / "stream")
    with pytest.raises(StreamError, match="stale copy"):
        PrivateFTRL.resume(tmp_path / "stream", at_least=4)
    with pytest.raises(ValueError, match="at_least"):
        PrivateFTRL.resume(tmp_path / "stream", at_least=-1)
    assert first.learn_one([0.0, 0.0, 0.0]).step == 4


@pytest.mark.parametrize("method", METHODS)
def test_a_file_is_not_continued_with_noise_that_was_not_charged(method, tmp_path, monkeypatch):
    """As after an upgrade of the library that calibrates otherwise."""
    _, first = learner(method, tmp_path)
    first.learn_one([0.0, 0.0, 0.0]).save(tmp_path / "stream")
    with monkeypatch.context() as patched:
        patched.setattr("discreet.online.ftrl.calibrate", lambda *given: 0.9 * calibrate(*given))
        with pytest.raises(StreamError, match="other noise"):
            PrivateFTRL.resume(tmp_path / "stream")
    assert first.learn_one([0.0, 0.0, 0.0]).step == 2
    assert PrivateFTRL.resume(tmp_path / "stream").epoch == 1


def test_parameters_changed_after_the_charge_do_not_get_through_a_file(tmp_path):
    first = PrivateFTRL(3, 50, 1.0, 1e-3, method="tree").learn_one([0.0, 0.0, 0.0])
    vars(first)["horizon"] = 5000  # past what refuses it
    first.save(tmp_path / "stream")
    with pytest.raises(StreamError, match="other noise"):
        PrivateFTRL.resume(tmp_path / "stream")


def test_a_stale_copy_is_refused_by_who_knows_how_far_the_stream_was(tmp_path):
    _, first = learner("sampling", tmp_path)
    first.partial_fit(np.zeros((10, 3)))
    first.save(tmp_path / "stream")
    shutil.copy(tmp_path / "stream", tmp_path / "copy")
    first.partial_fit(np.zeros((100, 3)))
    with pytest.raises(StreamError, match="stale copy"):
        PrivateFTRL.resume(tmp_path / "copy", at_least=first.step)


@pytest.mark.fresh_noise
def test_two_copies_of_a_file_do_not_repeat_noise(tmp_path):
    model = PrivateOnlineLinearModel(2, 100, 1.0, 1e-3, classes=[0, 1])
    model.learn_one([0.1, 0.2], 1)
    model.save(tmp_path / "stream")
    shutil.copy(tmp_path / "stream", tmp_path / "copy")
    one, two = (PrivateOnlineLinearModel.resume(tmp_path / name) for name in ("stream", "copy"))
    np.testing.assert_array_equal(one.coef_, two.coef_)  # what was published before stays
    one.learn_one([0.3, 0.1], 0)
    two.learn_one([0.3, 0.1], 0)
    assert np.all(one.coef_ != two.coef_)


def test_insecure_noise_stays_known_through_a_file(tmp_path):
    with insecure_noise(0):
        first = PrivateFTRL(2, 10, 1.0, method="sampling").learn_one([0.0, 0.0])
        assert not first.privacy_.secure
        first.save(tmp_path / "stream")
    assert not PrivateFTRL.resume(tmp_path / "stream").privacy_.secure


def test_a_forked_process_is_refused(monkeypatch):
    first = PrivateFTRL(2, 10, 1.0, method="sampling").learn_one([0.0, 0.0])
    monkeypatch.setattr("discreet.online.stream.os.getpid", lambda: -1)
    with pytest.raises(StreamError, match="forked"):
        first.learn_one([0.0, 0.0])


def test_files_that_are_none(tmp_path):
    with pytest.raises(StreamError, match="no saved stream"):
        PrivateFTRL.resume(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(StreamError):
        PrivateFTRL.resume(tmp_path / "text")
    PrivateFTRL(2, 10, method="sampling").learn_one([0.0, 0.0]).save(tmp_path / "stream")
    with pytest.raises(StreamError, match="does not hold"):
        PrivateOnlineLinearModel.resume(tmp_path / "stream")
    with pytest.raises(StreamError, match="exists already"):
        PrivateFTRL(2, 10, method="sampling").learn_one([0.0, 0.0]).save(tmp_path / "stream")


def test_the_guide_runs():
    page = Path(__file__).parents[2] / "docs" / "online.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.failed == 0
    assert found.attempted > 5
