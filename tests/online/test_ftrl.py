"""Private FTRL: its regret, its law, adaptive adversaries, twins that must be caught, and the horizon."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from scipy.special import log_softmax

from discreet import BudgetExceeded, HorizonReached, Ledger, PrivateFTRL
from discreet.audit.estimates import loss_bound
from discreet.audit.replay import replay
from discreet.online.ftrl import SamplingPlan, TreePlan
from discreet.privacy.accounting import accountants


class Planned(PrivateFTRL):
    """Takes its plan ready-made: calibration is the same for many runs."""

    def __init__(self, plan):
        super().__init__(plan.n_actions, plan.horizon, cost_bound=plan.cost_bound)
        self.ready = plan

    def plan(self):
        return self.ready


def stochastic(steps, actions, seed=0):
    costs = np.random.default_rng(seed).uniform(-1, 1, size=(steps, actions))
    costs[:, actions // 2] = np.minimum(costs[:, actions // 2], 0.2)
    return costs


def adversarial(steps, actions, seed=0):
    """One action is far better in the first half and far worse in the second, when it is too late to leave it."""
    costs = np.ones((steps, actions))
    costs[: steps // 2, 0] = costs[steps // 2 :, 1] = -1.0
    return costs


def regret_of(learner, costs):
    paid = sum(row[action] for action, row in zip(learner.play(costs), costs, strict=True))
    return paid - costs.sum(axis=0).min()


@pytest.mark.parametrize("method", ["sampling", "tree"])
@pytest.mark.parametrize("stream", [stochastic, adversarial])
@pytest.mark.parametrize("actions", [2, 30])
def test_regret_is_within_twice_the_bound(method, stream, actions):
    plan = PrivateFTRL(actions, 800, epsilon=2.0, delta=1e-6, method=method).plan()
    costs = stream(800, actions)
    regrets = [regret_of(Planned(plan), costs) for _ in range(3)]
    slack = 5 * math.sqrt(800 / 3)  # five standard errors of the average of three runs
    assert np.mean(regrets) <= 2 * plan.regret
    assert np.mean(regrets) <= plan.regret + slack


def test_constant_costs_of_two_actions_in_closed_form():
    """After t steps of costs (0, c) the second action has probability 1 / (1 + exp(t c / lambda))."""
    plan = PrivateFTRL(2, 40, epsilon=8.0, delta=1e-6, method="sampling").plan()
    learner = Planned(plan)
    learner.predict_one()
    learner.partial_fit(np.tile([0.0, 0.25], (12, 1)))
    chance = 1 / (1 + math.exp(12 * 0.25 / plan.scale))
    law = plan.draw.probabilities(-learner._sums * plan.quantum)
    assert law[1] == pytest.approx(chance, rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_plans_meet_their_guarantee(delta, relation):
    for method in ("sampling", "tree") if delta else ("sampling",):
        plan = PrivateFTRL(5, 300, 0.5, delta, method=method, neighboring=relation).plan()
        assert accountants.epsilon(plan.event, delta, plan.guarantee.neighboring) <= 0.5 * (1 + 1e-9)
        assert "expected regret" in str(plan)


def test_long_streams_use_the_closed_form_and_keep_the_guarantee():
    plan = PrivateFTRL(5, 3000, 1.0, 1e-6, method="sampling").plan()
    rho = 3000 * plan.epsilon**2 / 8
    assert rho == pytest.approx(0.024356, rel=1e-3)  # what (1, 1e-6) is worth
    assert accountants.delta(plan.event, 1.0, plan.guarantee.neighboring) <= 1e-6


def test_auto_takes_the_tree_for_few_actions_and_long_streams():
    assert isinstance(PrivateFTRL(3, 20_000, 1.0, 1e-6).plan(), TreePlan)
    assert isinstance(PrivateFTRL(2000, 2000, 1.0, 1e-6).plan(), SamplingPlan)
    assert isinstance(PrivateFTRL(3, 2000, 1.0, 0.0).plan(), SamplingPlan)


# -- privacy ------------------------------------------------------------------------------------------------

FIRST, OTHER = np.array([1.0, -1.0]), np.array([-1.0, 1.0])


def adaptive_losses(plan, runs):
    """Exact privacy losses of transcripts; costs pull back whatever the last action was, so that draws stay even."""
    losses = []
    for _ in range(runs):
        learner = Planned(plan)
        learner.learn_one(FIRST)
        sums, loss = FIRST.copy(), 0.0
        for _ in range(plan.horizon - 1):
            action = learner.predict_one()
            here = log_softmax(-sums / plan.scale)[action]
            there = log_softmax(-(sums - FIRST + OTHER) / plan.scale)[action]
            loss += here - there
            costs = np.where(np.arange(2) == action, 1.0, -1.0)  # the adversary reacts
            learner.learn_one(costs)
            sums += costs
        losses.append(loss)
    return np.array(losses)


@pytest.mark.lemma("online.md#theorem-1")
def test_an_adaptive_adversary_stays_below_the_claim_and_catches_a_twin():
    plan = PrivateFTRL(2, 16, epsilon=1.0, delta=1e-2, method="sampling").plan()
    found = loss_bound(adaptive_losses(plan, 250), 1e-2, confidence=1 - 1e-7)
    assert found.epsilon <= 1.0
    twin = SamplingPlan(plan.guarantee, 2, 16, 1.0, 4 * plan.epsilon)  # forgot a factor
    assert loss_bound(adaptive_losses(twin, 250), 1e-2, confidence=1 - 1e-7).epsilon > 1.0


@pytest.mark.parametrize("method", ["sampling", "tree"])
def test_replay_of_neighboring_streams(method):
    plan = PrivateFTRL(3, 12, epsilon=1.0, delta=1e-4, method=method).plan()

    def program(costs):
        return [int(action) for action in Planned(plan).play(costs)]

    costs = np.random.default_rng(0).uniform(-1, 1, size=(12, 3))
    others = costs.copy()
    costs[2], others[2] = [1, -1, -1], [-1, 1, 1]
    found = replay(program, costs, others, skip=("recorded",))
    assert found.passed, found
    assert 0.99 < found.worst_input_ratio <= 1.0

    class Halved(Planned):
        """Declares half of what one step moves."""

        def _clipped(self, values):
            return 2 * super()._clipped(values)

    def twin(costs):
        return [int(action) for action in Halved(plan).play(costs)]

    assert "distance" in replay(twin, costs, others).failed_checks


def test_costs_are_clipped_and_nonsense_counts_as_nothing():
    plan = PrivateFTRL(3, 5, epsilon=1.0, method="sampling").plan()
    learner = Planned(plan).learn_one([np.nan, 1e9, -np.inf])
    np.testing.assert_allclose(learner._sums * plan.quantum, [0.0, 1.0, -1.0])


# -- the horizon, charges, bad input ------------------------------------------------------------------------


def test_an_endless_stream_ends_at_the_horizon():
    learner = PrivateFTRL(3, 7, epsilon=1.0)
    assert len(list(learner.play(itertools.repeat([0.1, 0.2, 0.3])))) == 7
    learner.predict_one()  # one action after the last step is paid for
    with pytest.raises(HorizonReached, match="restart"):
        learner.learn_one([0.0, 0.0, 0.0])


def test_a_restarted_epoch_forgets_and_is_charged_again(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", epsilon=2.5, delta=1e-12)
    learner = PrivateFTRL(2, 4, 1.0, 0.0, at_horizon="restart", ledger=ledger, method="sampling")
    assert ledger.history() == []  # nothing happened yet
    actions = learner.play(itertools.repeat([1.0, -1.0]))
    for _ in range(4):
        next(actions)
    assert len(ledger.history()) == 1
    learner.learn_one([1.0, -1.0])
    assert len(ledger.history()) == 1
    learner.learn_one([1.0, -1.0])
    assert (learner.epoch, learner.step) == (2, 1)
    assert len(ledger.history()) == 2
    learner.partial_fit(np.zeros((3, 2)))
    with pytest.raises(BudgetExceeded, match="epoch 3"):
        learner.learn_one([0.0, 0.0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_actions": 1}, "n_actions"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 2**31}, "2\\*\\*30"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"cost_bound": -1.0}, "cost_bound"),
        ({"cost_bound": 1e200}, "rescale"),
        ({"method": "lazy"}, "method"),
        ({"neighboring": "add-remove-one"}, "move all later ones"),
        ({"method": "tree", "delta": 0.0}, "delta = 0"),
        ({"at_horizon": "stop"}, "at_horizon"),
    ],
)
def test_bad_parameters_are_refused_before_a_charge(parameters, message, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-3)
    learner = PrivateFTRL(**{"n_actions": 3, "horizon": 10, "delta": 1e-4, "ledger": ledger} | parameters)
    with pytest.raises(ValueError, match=message):
        learner.predict_one()
    assert ledger.history() == []


def test_bad_costs_cost_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-3)
    learner = PrivateFTRL(3, 10, 0.5, 1e-4, ledger=ledger)
    for costs in ([1.0], [[1.0, 2.0, 3.0]]):
        with pytest.raises(ValueError, match="one number per action"):
            learner.learn_one(costs)
    with pytest.raises(ValueError, match="one row per step"):
        learner.partial_fit([1.0, 2.0, 3.0])
    assert ledger.history() == []
    assert learner.step == 0


def test_streams_are_neither_pickled_nor_copied():
    learner = PrivateFTRL(3, 10)
    for copier in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="save"):
            copier(learner)
