"""Bound: the ledger knows what was released under every charge, and anybody can compare.

Each program of `releases` runs with a ledger. Its statement then names a receipt that is bound, and the digest in it is
that of the numbers that the program shows.
"""

import copy
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import releases
from test_paid import statements

from discreet import Ledger, PrivateFTRL, PrivateLabeler, PrivateOnlineLinearModel, evaluate, release
from discreet.description.quantiles import domain_bounds
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.release import answers_digest, release_digest

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise


class Books:
    """A budget for programs that were given none: opened with the terms of what is charged."""

    unit = None  # until something is charged

    def __init__(self, path):
        self.path = path

    def charge(self, event, **terms):
        self.ledger = Ledger(self.path, 100.0, 0.5, neighboring=terms["neighboring"], unit=terms["unit"])
        return self.ledger.charge(event, **terms)

    def receipt(self, charge):
        return self.ledger.receipt(charge)

    def bind(self, receipt, digest):
        return self.ledger.bind(receipt, digest)


@pytest.fixture
def books(tmp_path, monkeypatch):
    """All ledgers that were charged."""
    numbers, opened = itertools.count(), []

    def given(ledger):
        if ledger is None:
            opened.append(Books(tmp_path / f"{next(numbers)}.db"))
            return opened[-1]
        return ledger

    monkeypatch.setattr(release, "opened", given)
    return opened


def digest_of(shown):
    """The digest of what a program shows."""
    if isinstance(shown, tuple) and isinstance(shown[0], dict):
        return release_digest(domain_bounds(shown[0]))
    if isinstance(shown, tuple):
        return answers_digest(shown[0])
    return release_digest(getattr(shown, "best_estimator_", shown).released_)


@pytest.mark.parametrize("name", releases.PROGRAMS)
def test_every_release_is_bound_to_its_charge(name, books):
    with insecure_noise(0):
        shown = releases.PROGRAMS[name](releases.ordinary(0))
    (statement,) = statements(shown)
    assert statement.paid.bound
    assert statement.paid.released == digest_of(shown)
    ledger = books[0].ledger  # the first: tries of a search come after the charge for all of it
    (charge,) = ledger.history()
    assert (charge.sequence, charge.released) == (statement.paid.charge, statement.paid.released)
    assert statement.paid.head == ledger.head


@pytest.mark.parametrize(
    "name", ["evaluate classifier", "evaluate regressor", "coefficient_intervals ridge", "describe"]
)
def test_every_number_of_a_report_counts(name, books):
    with insecure_noise(0):
        shown = releases.PROGRAMS[name](releases.ordinary(0))
    known = release_digest(shown.released_)
    for part, values in shown.released_.items():
        if values is None or not np.size(values) or np.asarray(values).dtype.kind != "f":
            continue
        other = copy.deepcopy(shown.released_)
        other[part] = np.array(other[part])
        other[part].flat[-1] = 0.5 if np.isinf(other[part].flat[-1]) else np.inf
        assert release_digest(other) != known


# -- streams ---------------------------------------------------------------------------------------------------------


def budget(path):
    return Ledger(path / "budget.db", 10.0, 1e-2)


def test_a_stream_is_bound_at_its_horizon(tmp_path):
    X, y = releases.ordinary(0)
    learner = PrivateOnlineLinearModel(2, 5, 1.0, 1e-3, classes=[0, 1], ledger=budget(tmp_path))
    for row, label in zip(X[:4], releases.labels_of(y)[:4], strict=True):
        learner.learn_one(row, label)
    assert not learner.privacy_.paid.bound
    learner.learn_one(X[4], 1)
    assert learner.privacy_.paid.bound


def test_every_epoch_is_bound(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", 10.0, 1e-2)
    learner = PrivateFTRL(2, 3, 1.0, 1e-3, at_horizon="restart", ledger=ledger)
    actions = []
    for costs in releases.ordinary(0)[0][:4]:
        actions.append(learner.predict_one())
        learner.learn_one(costs)
    learner.close()
    first, second = ledger.history()
    # the fourth action belongs to the first epoch, which it ends
    assert first.released == answers_digest(actions)
    assert second.released == answers_digest([])
    with pytest.raises(RuntimeError, match="closed"):
        learner.learn_one([0.0, 0.0])


def test_a_resumed_stream_is_bound_with_its_ledger_only(tmp_path):
    ledger = budget(tmp_path)
    learner, actions = PrivateFTRL(2, 50, 1.0, 1e-3, ledger=ledger), []
    for costs in releases.ordinary(0)[0][:10]:
        actions.append(learner.predict_one())
        learner.learn_one(costs)
    learner.save(tmp_path / "stream")
    learner = PrivateFTRL.resume(tmp_path / "stream")
    actions.append(learner.predict_one())
    learner.save(tmp_path / "again")
    other = PrivateFTRL.resume(tmp_path / "again", ledger=ledger.path)
    assert other.privacy_.paid.charge == 1
    other.close()
    assert other.privacy_.paid.released == answers_digest(actions)
    assert other.privacy_.paid.head == Ledger(ledger.path).head


def test_a_stream_resumed_without_a_ledger_says_that_it_is_not_bound(tmp_path):
    """Its charge stands and is named; what was answered is not in the ledger, and nobody says that it were."""
    ledger = budget(tmp_path)
    learner = PrivateFTRL(2, 50, 1.0, 1e-3, ledger=ledger)
    learner.predict_one()
    learner.save(tmp_path / "stream")
    other = PrivateFTRL.resume(tmp_path / "stream")
    other.predict_one()
    other.close()
    assert other.privacy_.paid.charge == 1
    assert "not bound to a release" in str(other.privacy_.paid)
    assert other.privacy_.paid.released is None
    assert len(Ledger(ledger.path).history()) == 1


def test_a_stream_that_lost_answers_stays_unbound(tmp_path):
    ledger = budget(tmp_path)
    learner = PrivateFTRL(2, 50, 1.0, 1e-3, ledger=ledger)
    learner.save(tmp_path / "stream")
    learner.predict_one()
    other = PrivateFTRL.resume(tmp_path / "stream", ledger=ledger)
    other.close()
    assert "not bound" in str(other.privacy_.paid)


def test_a_stream_without_its_ledger_stays_unbound(tmp_path):
    ledger = budget(tmp_path)
    PrivateFTRL(2, 50, 1.0, 1e-3, ledger=ledger).save(tmp_path / "stream")
    other = PrivateFTRL.resume(tmp_path / "stream", ledger=tmp_path / "missing.db")
    other.close()
    assert other.privacy_.paid.charge == 1
    assert not other.privacy_.paid.bound
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize("saved", [False, True])
def test_a_labeler_is_bound_when_it_ends(tmp_path, saved):
    X, y = releases.ordinary(0)
    ledger = budget(tmp_path)
    labeler = PrivateLabeler(
        releases.TREE,
        n_queries=8,
        n_teachers=20,
        epsilon=2.0,
        delta=1e-3,
        classes=[0, 1],
        aggregator="plurality",
        ledger=ledger,
    ).fit(X, releases.labels_of(y))
    answers = [*labeler.label(releases.PUBLIC[:3])]
    if saved:
        labeler.save(tmp_path / "stream")
        labeler = PrivateLabeler.resume(tmp_path / "stream", ledger=ledger)
    answers += [*labeler.label(releases.PUBLIC[3:])]
    assert labeler.halted
    assert labeler.privacy_.paid.released == answers_digest(answers)
    if saved:
        assert PrivateLabeler.resume(tmp_path / "stream").privacy_.paid == labeler.privacy_.paid


def test_a_closed_labeler_forgets_its_teachers(tmp_path):
    X, y = releases.ordinary(0)
    labeler = PrivateLabeler(
        releases.TREE,
        n_queries=8,
        n_teachers=20,
        epsilon=2.0,
        delta=1e-3,
        classes=[0, 1],
        ledger=budget(tmp_path),
    ).fit(X, releases.labels_of(y))
    labeler.save(tmp_path / "stream")
    answers = [*labeler.label(releases.PUBLIC[:2])]
    labeler.close()
    assert not hasattr(labeler, "_teachers")
    assert b"DecisionTree" not in (tmp_path / "stream").read_bytes().split(b"estimator", 1)[0]
    again = PrivateLabeler.resume(tmp_path / "stream")
    assert again.halted
    assert again.privacy_.paid.released == answers_digest(answers)
    with pytest.raises(RuntimeError, match="halted"):
        again.label(releases.PUBLIC[:2])


def test_a_ledger_that_cannot_be_written_costs_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(Ledger, "bind", lambda *_: 1 / 0)
    X, y = releases.ordinary(0)
    found = evaluate(
        releases.released("PrivateRidge"),
        X,
        y,
        epsilon=1.0,
        delta=1e-2,
        ledger=Ledger(tmp_path / "b.db", 2.0, 1e-2),
    )
    assert found.metrics
    assert not found.privacy_.paid.bound
