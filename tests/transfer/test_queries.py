"""A stream of arbitrary questions: answers, refusals, the ledger, saving and resuming, one row in one chunk."""

import copy
import pickle

import numpy as np
import pytest

from discreet import Ledger
from discreet._checks import ParameterError
from discreet.audit.transcripts import pair_epsilon
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.online.stream_file import StreamError
from discreet.release import answers_digest
from discreet.transfer import BudgetSpent, PrivateLabeler, PrivateQueries
from discreet.transfer.subsample import counted_votes
from discreet.transfer.teachers import assign

ROWS = np.random.default_rng(0).normal(size=(6000, 2)) + np.array([0.0, 1.0])
TWO = ["first", "second"]


def larger(X):
    return TWO[int(X[:, 1].mean() > X[:, 0].mean())]


def odd(X):
    return TWO[len(X) % 2]


def stream(**options):
    return PrivateQueries(**{"n_queries": 20, "epsilon": 2.0, "delta": 1e-6, **options})


def test_stable_questions_are_free_and_unstable_ones_end_the_stream(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-6)
    asking = stream(max_unstable=2, ledger=ledger).fit(ROWS)
    assert len(ledger.history()) == 1
    assert [asking.ask(larger, TWO) for _ in range(10)] == ["second"] * 10
    assert asking.remaining == {"unstable answers": 2}
    assert asking.ask(odd, TWO) is None
    assert not asking.halted
    assert asking.ask(odd, TWO) is None
    assert asking.halted
    with pytest.raises(BudgetSpent, match="2 answers were unstable"):
        asking.ask(larger, TWO)
    assert len(ledger.history()) == 1
    assert asking.privacy_.paid.bound
    assert not hasattr(asking, "_rows")
    assert not hasattr(asking, "_chunks")


def test_the_receipt_names_the_answers(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-6)
    asking = stream(ledger=ledger).fit(ROWS)
    given = [asking.ask(larger, TWO), asking.ask(lambda X: int(X[:, 1].mean() > 0.5), [0, 1])]
    asking.close()
    assert given == ["second", 1]
    assert asking.privacy_.paid.released == answers_digest(["'second'", "1"])
    with pytest.raises(BudgetSpent):
        asking.ask(larger, TWO)


def test_it_continues_in_one_pair_of_hands(tmp_path):
    asking = stream(max_unstable=2).fit(ROWS)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied or pickled"):
            attempt(asking)
    asking.ask(odd, TWO)
    asking.save(tmp_path / "stream")
    other = PrivateQueries.resume(tmp_path / "stream")
    assert other.remaining == {"unstable answers": 1}
    assert other.ask(larger, TWO) == "second"
    with pytest.raises(StreamError):
        asking.ask(larger, TWO)
    assert other.ask(odd, TWO) is None
    assert other.halted
    with pytest.raises(StreamError, match="does not hold a PrivateLabeler"):
        PrivateLabeler.resume(tmp_path / "stream")


def test_one_row_changes_one_vote():
    chunks = assign(len(ROWS), None, 50, fresh_entropy())
    other = ROWS.copy()
    other[0] = [1e9, -1e9]
    rng = np.random.default_rng(1)
    for _ in range(5):
        way = rng.normal(size=2)
        votes = [
            counted_votes(
                lambda X, w=way: int((X @ w).mean() > 0.3),
                data,
                chunks,
                [0, 1],
                50,
                np.random.SeedSequence(0),
            )
            for data in (ROWS, other)
        ]
        assert np.abs(np.subtract(*votes)).max() <= 1


@pytest.mark.lemma("sparse-vector.md#theorem-11")
def test_price_of_adaptive_questions_on_the_worst_votes():
    """All answers of two questions, the second depending on the first, enumerated; half of the noise costs more."""
    plan = stream(epsilon=1.0, delta=1e-3, n_queries=2, max_unstable=1).plan()
    margin = plan.votes.vector.margin
    pairs = []
    for distance in (0, 1, margin, margin + 3):
        gap = 2 * distance + 1
        pairs.append((np.array([[1000 + gap, 1000]] * 2), np.array([[1000 + gap + 1, 999]] * 2)))

    def run(votes):
        asking = plan.start(fresh_entropy())
        first = asking.answer(votes[:1])
        return np.append(first, asking.answer(votes[1:] if first[0] >= 0 else votes[:1]))

    worst = max(pair_epsilon(run, *pair, 1e-3) for pair in pairs)
    half = max(pair_epsilon(run, *pair, 1e-3, share=0.5) for pair in pairs)
    assert worst <= 1.0
    assert half > 1.0


def test_planning_and_refusals():
    plan = stream().plan()
    assert plan.n_chunks == 2 * plan.lead_needed
    assert (
        stream().plan(by_group=True).lead_needed > 1.9 * plan.lead_needed
    )  # a replaced user changes two chunks
    with pytest.raises(ParameterError, match=f"a lead of {plan.lead_needed} chunks"):
        stream(n_chunks=plan.lead_needed - 1).plan()
    for wrong in (
        {"delta": 0.0},
        {"epsilon": -1.0},
        {"n_queries": 0},
        {"max_unstable": 0},
        {"neighboring": "x"},
    ):
        with pytest.raises(ValueError):
            stream(**wrong).plan()
    with pytest.raises(RuntimeError, match="call fit"):
        stream().ask(larger, TWO)
    asking = stream().fit(ROWS)
    with pytest.raises(ParameterError, match="at least two"):
        asking.ask(larger, ["first"])
    with pytest.raises(RuntimeError, match="has begun"):
        asking.fit(ROWS)


def test_failing_questions_vote_for_the_first_answer():
    def broken(X):
        raise RuntimeError("no")

    assert stream().fit(ROWS).ask(broken, TWO) == "first"
    people = np.repeat([f"person {k}" for k in range(3000)], 2)
    asking = stream().fit(ROWS, groups=people)
    assert asking.privacy_.guarantee.unit == "user"
    assert asking.ask(larger, TWO) == "second"
