"""Replays of voters, streams, searches, quantiles, evaluations and groups; their known-bad twins and what sees them."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.tree import DecisionTreeClassifier

import discreet
from discreet import (
    PrivateFTRL,
    PrivateLabeler,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateOnlineLinearModel,
)
from discreet.audit.estimates import threshold_bound
from discreet.audit.replay import replay
from discreet.audit.trace import fitting, trace
from discreet.audit.worst_pairs import neighbors_of, worst_pair
from discreet.estimators import linear
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.mechanisms.tree import TreeMechanism
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Neighboring, Sensitivity
from discreet.transfer import aggregation

sys.path.insert(0, str(Path(__file__).parent))
import more_twins

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(120, 2))
Y = (X[:, 0] > 0).astype(int)
PUBLIC = RNG.uniform(-1, 1, size=(12, 2))
OTHER_X, OTHER_Y = X.copy(), Y.copy()
OTHER_X[0], OTHER_Y[0] = [-1.0, 1.0], 1 - Y[0]
PAIR = ((X, Y), (OTHER_X, OTHER_Y))


# -- what is shipped passes ------------------------------------------------------------------------------------------


def labeling(aggregator):
    def program(data):
        tree = DecisionTreeClassifier(max_depth=1, random_state=0)
        labeler = PrivateLabeler(
            tree,
            n_queries=12,
            n_teachers=40,
            delta=1e-2,
            aggregator=aggregator,
            classes=[0, 1],
            random_state=0,
        )
        return labeler.fit(*data).label(PUBLIC)

    return program


@pytest.mark.parametrize("aggregator", ["sparse-vector", "plurality", "confident"])
def test_voters(aggregator):
    found = replay(labeling(aggregator), *PAIR)
    assert found.passed, str(found)
    assert found.worst_input_ratio is not None


@pytest.mark.parametrize("aggregator", ["sparse-vector", "plurality"])
def test_a_vote_on_the_edge_uses_the_whole_distance(aggregator):
    """One changed record flips one vote of every question: the inputs are as far apart as declared."""
    model = discreet.PrivateTransferClassifier(
        DecisionTreeClassifier(), n_teachers=9, delta=1e-2, aggregator=aggregator, classes=[0, 1]
    )
    plan = model.plan(90, 4, 2)

    def program(counts):
        return plan.run(np.array(counts), fresh_entropy()).codes

    found = replay(program, [[9, 0]] * 4, [[8, 1]] * 4)
    assert found.passed, str(found)
    assert 0.99 < found.worst_ratio <= 1.0


def choosing(method, costs_of=lambda costs: costs, kind=PrivateFTRL):
    def program(costs):
        learner, actions = kind(3, 8, 1.0, 1e-2, method=method), []
        for row in costs_of(costs):
            actions.append(learner.predict_one())
            learner.learn_one(row)
        return actions

    return program


COSTS = np.array([[1.0, -1.0, 1.0], *RNG.uniform(-1, 1, (7, 3))])
OTHER_COSTS = np.vstack([-COSTS[:1], COSTS[1:]])


@pytest.mark.parametrize("method", ["tree", "sampling"])
def test_experts(method):
    found = replay(choosing(method), COSTS, OTHER_COSTS)
    assert found.passed, str(found)
    assert 0.95 < found.worst_ratio <= 1.0


def test_an_online_model():
    def program(records):
        model = PrivateOnlineLinearModel(2, 8, 1.0, 1e-2, target_bounds=(-1.0, 1.0), fit_intercept=False)
        return [model.learn_one(x, y).coef_ for x, y in records]

    records = [([1.0, 0.0], 1.0)] + [([0.1, 0.2], 0.3)] * 7
    other = [([1.0, 0.0], -1.0), *records[1:]]
    found = replay(program, records, other)
    assert found.passed, str(found)
    assert 0.4 < found.worst_ratio <= 1.0  # the slope is 1 of at most 2 before anything was learned


@pytest.mark.parametrize("method", ["tries", "split"])
def test_a_search(method):
    candidates = [PrivateLinearSVC(classes=[0, 1], l2=l2) for l2 in (0.01, 1.0)]
    search = discreet.PrivateSelection(candidates, epsilon=2.0, delta=1e-2, method=method)
    assert replay(fitting(search), *PAIR).passed


def test_quantiles_and_the_median():
    def quantile(values):
        return discreet.private_quantiles(values, 0.5, candidates=[0.0, 1.0, 2.0, 3.0], epsilon=1.0).values

    found = replay(quantile, np.array([5.0] + [1.5] * 8), np.array([-1.0] + [1.5] * 8))
    assert found.passed, str(found)
    assert found.worst_ratio == 1.0

    def median(rows):
        return discreet.PrivateMedian(1.0, 1e-2, radius=1.0).fit(rows)

    rows = np.vstack([[[1.0, 0.0]], np.zeros((5, 2))])
    found = replay(median, rows, rows * [[-1.0, 1.0]])
    assert found.passed, str(found)


def test_an_evaluation():
    model = PrivateLogisticRegression(5.0, 1e-2, classes=[0, 1]).fit(X, Y)

    def program(data):
        return discreet.evaluate(model, *data, epsilon=1.0, delta=1e-2)

    found = replay(program, *PAIR)
    assert found.passed, str(found)


GROUPS = np.repeat(np.arange(40), 3)


def grouped(solver):
    def program(data):
        model = PrivateLogisticRegression(
            1.0, 1e-2, classes=[0, 1], max_rows_per_group=3, solver=solver, bad_rows="null"
        )
        return model.fit(*data, groups=GROUPS)

    return program


WHOLE_PERSON = (
    (np.vstack([np.tile([[50.0, 0.1]], (3, 1)), X[3:]]), Y),
    (np.vstack([np.tile([[-50.0, 0.1]], (3, 1)), X[3:]]), Y),
)


@pytest.mark.parametrize("solver", ["objective", "noisy-gd", "output"])
def test_groups_are_measured_as_whole_people(solver):
    found = replay(grouped(solver), *WHOLE_PERSON)
    assert found.passed, str(found)
    assert solver == "objective" or 0.1 < found.worst_ratio <= 1.0


# -- twins: printed calibrations ------------------------------------------------------------------------------------


def test_replay_catches_the_printed_subsampled_noise():
    twin = PrivateLogisticRegression(
        1.0,
        1e-3,
        classes=[0, 1],
        neighboring="zero-out",
        solver=more_twins.PrintedSGD(sampling_rate=0.01, n_iterations=10),
        bad_rows="null",
    )
    assert (
        "claim"
        in replay(
            fitting(twin), *(getattr(worst_pair("zero-out", n_rest=60), side) for side in ("first", "second"))
        ).failed_checks
    )


@pytest.mark.parametrize(
    "charged", [{}, {"sampling_rate": 0.05}, {"n_iterations": 9}, {"noise_multiplier": 50.0}], ids=str
)
def test_what_was_sampled_is_what_was_charged(charged):
    """A bill for fewer steps, rarer samples or more noise than there were is a cheaper one, and false."""
    solver = more_twins.Undercharged(sampling_rate=0.1, n_iterations=10, charged=tuple(charged.items()))
    model = PrivateLogisticRegression(
        1.0, 1e-3, classes=[0, 1], neighboring="zero-out", solver=solver, bad_rows="null"
    )
    pair = worst_pair("zero-out", n_rest=20)
    assert replay(fitting(model), pair.first, pair.second).failed_checks == ({"price"} if charged else set())


def test_replay_catches_a_rate_per_pass():
    data = np.vstack([[[1.0, 0.0]], np.zeros((49, 2))])
    pair = neighbors_of(data, np.ones(50, dtype=int), 0, "replace-one", [-1.0, 0.0], 1)
    failed = {}
    for name, solver in (
        ("printed", more_twins.PrintedPermutationSGD(n_passes=2, batch_size=1)),
        ("honest", discreet.solvers.gradients.psgd.PermutationSGD("strongly-convex", 2, batch_size=1)),
    ):
        model = PrivateLogisticRegression(
            1.0, 1e-2, classes=[0, 1], l2=0.05, solver=solver, fit_intercept=False, multi_class="ovr"
        )
        # Whether the record comes late, where the drift is large, is up to the permutation.
        seeds = range(12)
        failed[name] = set().union(
            *(replay(fitting(model), pair.first, pair.second, seed=seed).failed_checks for seed in seeds)
        )
    assert failed == {"printed": {"distance"}, "honest": set()}


def test_replay_catches_the_printed_laplace_noise():
    twin = discreet.PrivateLasso(1.0, 1e-6, target_bounds=(-1, 1), solver=more_twins.PrintedFrankWolfe(200))
    pair = neighbors_of(X[:30], np.ones(30), 0, "replace-one", [-1.0, 0.0], -1.0)
    assert replay(fitting(twin), pair.first, pair.second).failed_checks == {"claim"}


# -- twins: votes and choices -----------------------------------------------------------------------------------------


def test_replay_catches_a_margin_that_is_not_halved(monkeypatch):
    model = discreet.PrivateTransferClassifier(
        DecisionTreeClassifier(), n_teachers=9, delta=1e-2, aggregator="sparse-vector", classes=[0, 1]
    )
    plan = model.plan(90, 4, 2)
    monkeypatch.setattr(aggregation, "stability", more_twins.unhalved_margin)

    def program(counts):
        return plan.run(np.array(counts), fresh_entropy()).codes

    found = replay(program, [[9, 0]] * 4, [[8, 1]] * 4)
    assert found.failed_checks == {"distance"}
    assert found.worst_ratio == 2.0


def test_an_attack_catches_an_exponent_that_is_doubled():
    """Of two candidates the worse is chosen; honest odds move by e, the twin's by e^2."""
    scores = {}
    for kind in (ExponentialMechanism, more_twins.DoubledExponent):
        mechanism = kind(1.0, 1.0, 2)
        for place, worse in enumerate((-0.5, -1.5)):
            with insecure_noise(place):
                entropy = fresh_entropy()
                scores[kind, place] = [mechanism.select([0.0, worse], entropy) for _ in range(4000)]
    claimed = accountants.epsilon(mechanism.event, 0.0, Neighboring.REPLACE_ONE)
    honest, twin = (
        threshold_bound(scores[kind, 0], scores[kind, 1], 0.0, 1 - 1e-6, joint=True).epsilon
        for kind in (ExponentialMechanism, more_twins.DoubledExponent)
    )
    assert honest <= claimed < twin


# -- twins: streams, groups, processes -------------------------------------------------------------------------------


def test_replay_catches_tree_noise_reused_across_nodes():
    def program(values):
        tree = kind(Sensitivity(1.0), 2.0, size=3, horizon=8)
        run, entropy = tree.start(), fresh_entropy()
        for value in values:
            run.add(value, entropy)
        return run.prefix()

    values = np.zeros((8, 3))
    kind = more_twins.ReusingTree
    assert "reuse" in replay(program, values, values).failed_checks
    kind = TreeMechanism
    assert replay(program, values, values).passed


def test_replay_catches_a_stream_whose_noise_is_never_refreshed():
    twin = choosing("tree", kind=more_twins.StaleFTRL)
    assert "reuse" in replay(twin, COSTS, OTHER_COSTS).failed_checks


def test_replay_catches_groups_without_the_factor(monkeypatch):
    monkeypatch.setattr(linear, "plan_for_groups", more_twins.without_the_factor)
    assert replay(grouped("noisy-gd"), *WHOLE_PERSON).failed_checks == {"price"}


def test_replay_catches_a_start_vector_that_is_not_normalized(monkeypatch):
    from discreet.recommend.methods import power

    ratings = np.where(RNG.random((40, 8)) < 0.5, RNG.integers(1, 6, (40, 8)), 0).astype(float)
    other = ratings.copy()
    other[0] = np.where(ratings[0] > 0, 0.0, 5.0)
    honest = power.quantized_block

    def long(facts, block):
        return 50 * honest(facts, block)

    def program(data):
        return discreet.PrivateMatrixCompletion("power", 1.0, 1e-2, rank=2).fit(sp.csr_array(data))

    assert replay(program, ratings, other).passed
    monkeypatch.setattr(power, "quantized_block", long)
    assert "distance" in replay(program, ratings, other).failed_checks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.fresh_noise
def test_counting_repeats_catches_a_source_shared_by_processes():
    repeats = {}
    for kind in (more_twins.SharedAcrossProcesses, type(fresh_entropy())):
        source, seen = kind(), []
        for _ in range(3):
            read, write = os.pipe()
            if os.fork() == 0:
                os.write(write, source.words(4).tobytes())
                os._exit(0)
            os.wait()
            seen.append(os.read(read, 32))
            os.close(read), os.close(write)
        repeats[kind.__name__] = 3 - len(set(seen))
    assert repeats == {"SharedAcrossProcesses": 2, "Entropy": 0}


def test_charges_are_heard_with_their_calls():
    seen = trace(choosing("sampling"), COSTS)
    assert len(seen.charges) == 1
    assert (seen.charges[0].first_call, seen.charges[0].last_call) == (0, len(seen.calls))
    assert len(seen.calls) == 8
