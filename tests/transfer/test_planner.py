"""The planner: it keeps its promise, says what it needs, and refuses what cannot be."""

import pytest

from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.transfer.plan import plan_transfer

PROMISE = Guarantee(1.0, 1e-6)


@pytest.mark.parametrize("aggregator", ["shares", "sparse-vector", "plurality", "confident"])
@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("changed", [1, 2])
def test_every_plan_costs_at_most_its_promise(aggregator, relation, changed):
    promise = Guarantee(0.7, 1e-7, relation)
    plan = plan_transfer(promise, 100_000, 5, 2_000, aggregator=aggregator, changed=changed)
    price = accountants.delta(plan.event, 0.7, relation)
    assert price <= 1e-7
    assert price > 0.3e-7
    assert plan.changed == changed


def test_more_votes_per_unit_need_twice_the_lead():
    one, two = (plan_transfer(PROMISE, 10**6, 3, 1000, max_unstable=5, changed=c) for c in (1, 2))
    assert two.gap_needed == pytest.approx(2 * one.gap_needed, rel=0.01)
    one, two = (plan_transfer(PROMISE, 10**6, 3, 1000, aggregator="plurality", changed=c) for c in (1, 2))
    assert two.gap_needed == pytest.approx(2 * one.gap_needed)


def test_auto_uses_shares_where_nothing_is_known_about_agreement():
    plan = plan_transfer(PROMISE, 500_000, 2, 5_000)
    assert plan.aggregator.name == "shares"
    assert plan.share_noise == pytest.approx(1.25, rel=0.01)
    assert "the student must average over" in str(plan)
    # More public rows mean more noise on each and more rows to average over: shares stay as good as they are.
    many = plan_transfer(PROMISE, 20_000, 2, 1_000_000)
    few = plan_transfer(PROMISE, 20_000, 2, 10_000)
    assert many.aggregator.name == few.aggregator.name == "shares"
    assert many.share_noise / few.share_noise == pytest.approx(10, rel=0.01)
    assert plan_transfer(PROMISE, 500_000, 2, 5_000, n_teachers=100).aggregator.name == "shares"
    assert "out of reach" in str(plan_transfer(PROMISE, 500, 2, 5_000, aggregator="shares"))
    with pytest.raises(ValueError, match="all questions at once"):
        plan_transfer(PROMISE, 500_000, 2, 5_000, aggregator="shares", stream=True)
    with pytest.raises(TypeError, match="all questions at once"):
        plan.start(fresh_entropy())


def test_auto_answers_every_question_of_a_stream_that_noise_allows():
    def chosen(n_samples, n_queries, **more):
        return plan_transfer(PROMISE, n_samples, 2, n_queries, stream=True, **more)

    plan = chosen(20_000, 200)
    assert plan.aggregator.name == "plurality"
    assert "answers every question" in plan.reason
    assert chosen(20_000, 1_000).aggregator.name == "plurality"  # the labeler's default length
    # The noise of one question, at the assumed agreement of 95%, is overturned in one case of 200.
    lead = 0.9 * plan.n_teachers
    assert plan.aggregator.gap_needed(1, 0.005) <= lead <= 1.01 * plan.aggregator.gap_needed(1, 0.005)
    # Where refusals are counted or foreseen: sparse vector.
    assert chosen(20_000, 200, max_unstable=5).aggregator.name == "sparse-vector"
    assert chosen(20_000, 200, expected_unstable=0.001).aggregator.name == "sparse-vector"


@pytest.mark.nightly  # prices of millions of questions
def test_a_stream_too_long_for_a_plurality_takes_sparse_vector():
    assert plan_transfer(PROMISE, 500_000, 2, 10_000_000, stream=True).aggregator.name == "sparse-vector"


def test_auto_uses_sparse_vector_for_agreement_and_plurality_for_disagreement():
    assert (
        plan_transfer(PROMISE, 500_000, 2, 5_000, expected_unstable=0.001).aggregator.name == "sparse-vector"
    )
    noisy = plan_transfer(PROMISE, 500_000, 2, 5_000, expected_unstable=0.2)
    assert noisy.aggregator.name == "plurality"
    assert noisy.max_unstable is None


def test_as_many_unstable_answers_as_the_teachers_afford():
    few = plan_transfer(PROMISE, 10**6, 2, 1000, n_teachers=500, aggregator="sparse-vector")
    many = plan_transfer(PROMISE, 10**6, 2, 1000, n_teachers=2000, aggregator="sparse-vector")
    assert 1 < few.max_unstable < many.max_unstable
    for plan in (few, many):
        assert plan.gap_needed <= 0.9 * plan.n_teachers
        more = plan_transfer(
            PROMISE, 10**6, 2, 1000, n_teachers=plan.n_teachers, max_unstable=plan.max_unstable + 1
        )
        assert more.gap_needed > 0.9 * plan.n_teachers


def test_the_printed_plan_says_what_is_needed():
    text = str(plan_transfer(PROMISE, 2_000, 3, 1_000, n_teachers=40, aggregator="sparse-vector"))
    for word in ("teachers", "lead needed", "consensus needed", "out of reach", "(1, 1e-06)"):
        assert word in text


def test_consensus_is_the_lead_as_a_share():
    plan = plan_transfer(PROMISE, 10**6, 2, 1000, aggregator="sparse-vector")
    assert plan.consensus_needed == pytest.approx((plan.n_teachers + plan.gap_needed) / 2 / plan.n_teachers)
    wasted = 1000 * plan.aggregator.vector.refusal_probability(int(plan.gap_needed - 1) // 2)
    assert wasted <= 0.25 * plan.max_unstable


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_teachers": 101}, "more than the 100 records"),
        ({"n_teachers": 1}, "at least 2"),
        ({"n_teachers": "many"}, "'auto'"),
        ({"max_unstable": 0}, "at least 1"),
        ({"aggregator": "majority"}, "aggregator must be one of"),
        ({"expected_unstable": 2.0}, "between 0 and 1"),
    ],
)
def test_bad_plans_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        plan_transfer(PROMISE, 100, 2, 50, **wrong)


def test_pure_privacy_is_refused():
    with pytest.raises(ValueError, match="delta > 0"):
        plan_transfer(Guarantee(1.0, 0.0), 100, 2, 50)


def test_the_command_prints_the_plan(capsys):
    from discreet.cli import main

    assert (
        main(
            ["plan", "transfer", "--rows", "494021", "--queries", "5000", "--epsilon", "1", "--delta", "1e-6"]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "shares: nothing is known about how well teachers agree" in text
    assert "No data was read" in text
    assert (
        main(["plan", "transfer", "--rows", "10", "--queries", "5", "--epsilon", "1", "--teachers", "20"])
        == 1
    )
    assert "more than the 10 records" in capsys.readouterr().err
