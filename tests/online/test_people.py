"""Streams per person: the first k steps of everybody count, and the noise is made for all of them."""

import re

import numpy as np
import pytest

from discreet import PrivateFTRL, PrivateOnlineLinearModel
from discreet.audit.replay import replay
from discreet.online.stream import StreamError


def learner(k=2, method="tree", **options):
    return PrivateFTRL(3, 16, epsilon=1.0, delta=1e-4, method=method, max_rows_per_group=k, **options)


@pytest.mark.parametrize("method", ["sampling", "tree"])
def test_the_price_is_that_of_a_step_and_the_noise_k_times_it(method):
    one, three = learner(1, method).plan(), learner(3, method).plan()
    assert three.guarantee.unit == "user"
    if method == "tree":
        assert three.event == one.event
        assert three.tree.noise.effective_stddev == pytest.approx(3 * one.tree.noise.effective_stddev)
    else:
        assert three.draw.scale / three.epsilon * one.epsilon >= 3 * one.draw.scale * (1 - 1e-9)


@pytest.mark.parametrize("method", ["sampling", "tree"])
def test_all_steps_of_a_person_may_change(method, monkeypatch):
    plan = learner(method=method).plan()
    who = ["a", "b", "a", "c", "a", "d", "e", "f", "g", "h", "a", "i", "j", "k", "l", "m"]
    mine = np.array([name == "a" for name in who])
    costs = np.random.default_rng(0).uniform(-1, 1, size=(16, 3))
    others = costs.copy()
    costs[mine], others[mine] = [1, -1, -1], [-1, 1, 1]

    def program(costs):
        return [int(action) for action in Planned().play(zip(costs, who, strict=True))]

    class Planned(PrivateFTRL):
        def __init__(self):
            super().__init__(3, 16, epsilon=1.0, delta=1e-4, method=method, max_rows_per_group=2)

        def plan(self):
            return plan

    found = replay(program, costs, others, skip=("recorded",))
    assert found.passed, found
    assert 0.99 < found.worst_input_ratio <= 1.0
    monkeypatch.setattr(Planned, "_counts", lambda stream, group: True)  # four steps of one person
    assert "distance" in replay(program, costs, others, skip=("recorded",)).failed_checks


def test_steps_beyond_the_bound_and_without_an_id_add_nothing():
    rng = np.random.default_rng(1)
    rows, labels = rng.uniform(-0.5, 0.5, size=(6, 2)), rng.integers(2, size=6)
    model = PrivateOnlineLinearModel(2, 6, 1.0, 1e-2, classes=[0, 1], max_rows_per_group=1)
    model._begun()
    added, add = [], model._tree.add

    def listening(gradient, entropy):
        added.append(bool(np.any(gradient != 0)))
        add(gradient, entropy)

    model._tree.add = listening
    for row, label, name in zip(rows, labels, ["a", "a", "b", "", "b", "c"], strict=True):
        model.learn_one(row, label, group=name)
    assert added == [True, False, True, False, False, True]
    assert model.step == 6
    assert "all steps of one person carry the same id" in model.privacy_.assumptions[0]


def test_every_step_says_whose_it_is():
    with pytest.raises(ValueError, match=re.escape("id as group=... at every step")):
        learner().learn_one([0, 0, 0])
    with pytest.raises(ValueError, match=re.escape("id as group=... at every step")):
        PrivateFTRL(3, 16).learn_one([0, 0, 0], group="a")
    stream = learner().partial_fit(np.zeros((3, 3)), groups=["a", "b", "a"])
    assert stream._seen == {"a": 2, "b": 1}
    model = PrivateOnlineLinearModel(2, 6, classes=[0, 1], max_rows_per_group=1)
    assert model.partial_fit(np.zeros((2, 2)), [0, 1], groups=[7, 8])._seen == {"7": 1, "8": 1}


def test_a_file_remembers_whose_steps_were_taken(tmp_path):
    stream = learner().partial_fit(np.zeros((3, 3)), groups=["a", "b", "a"])
    stream.save(tmp_path / "stream")
    again = PrivateFTRL.resume(tmp_path / "stream")
    assert again._seen == {"a": 2, "b": 1}
    assert again.max_rows_per_group == 2
    # Steps after the last save are lost, and with them whose they were.
    again.learn_one([1, 1, 1], group="c")
    with pytest.raises(StreamError, match="to which people the last steps belong"):
        PrivateFTRL.resume(tmp_path / "stream")


def test_a_new_epoch_begins_with_nobody():
    stream = PrivateFTRL(3, 2, epsilon=1.0, at_horizon="restart", max_rows_per_group=1, delta=1e-4)
    stream.partial_fit(np.zeros((3, 3)), groups=["a", "a", "a"])
    assert stream.epoch == 2
    assert stream._seen == {"a": 1}
