"""Clipped gradients with their companion: worst pairs, rounding, and what a wrong constant would let through."""

import math

import numpy as np
import pytest
from scipy import sparse

from discreet import insecure_noise
from discreet.losses import HuberRegression, Poisson, Quantile, Squared
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.events import Discretized, Gaussian
from discreet.privacy.guarantee import Neighboring
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.second_order.clipped_gradients import (
    ClippedGradientMechanism,
    clipped_sums,
    companion_weight,
)

NORM, CAP = 0.8, 0.3
GOLDEN = math.sqrt(5) - 2  # the smaller of two pulls at which the companion is tight
RELATIONS = list(Neighboring)


def mechanism(relation, loss=None, **changes):
    settings = {
        "n_samples": 50,
        "n_features": 3,
        "feature_norm": NORM,
        "radius": 2.0,
        "noise_multiplier": 5.0,
    }
    return ClippedGradientMechanism(
        loss or Squared(1.0, 1.0), CAP, neighboring=relation, **settings | changes
    )


def records(rows, targets, null=None):
    return ArrayRecords(np.asarray(rows, float), targets, Bounds(NORM, intercept=False), null)


def released_value(made, data):
    """The vector that meets the noise."""
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        made.release(data, np.zeros(3), fresh_entropy())
    return np.asarray(recorder.calls[-1].value)


def pull(share, sign=1.0):
    """A row of full length and a target whose clipped residual is ``share`` of the cap, at theta = 0."""
    return [NORM, 0.0, 0.0], -sign * share * CAP


def distance(weight, ours, theirs, exchanged):
    """How far apart two records are, in units of cap times norm, with this weight of the companion."""
    squares = [np.array([sign * share, weight * share**2]) for share, sign in (ours, theirs)]
    if exchanged:
        return float(np.linalg.norm(squares[0] - squares[1]))
    share, sign = ours
    return float(np.linalg.norm([sign * share, weight * (1 - share**2)]))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.lemma("second-order-regression.md#theorem-1")
def test_no_pair_of_records_is_further_apart_than_two_that_pull_with_all_their_might(relation):
    exchanged = relation.contributions == 2
    shares = np.linspace(0, 1, 201)
    pairs = [((a, 1.0), (b, -1.0)) for a in shares for b in (shares if exchanged else [0.0])]
    most = max(distance(companion_weight(relation), *pair, exchanged) for pair in pairs)
    assert most == pytest.approx(relation.contributions, rel=1e-12)


@pytest.mark.parametrize(("relation", "weight"), [("replace-one", math.sqrt(2.80)), ("add-remove-one", 1.01)])
def test_a_heavier_companion_would_be_further_apart(relation, weight):
    relation = Neighboring(relation)
    worst = ((1.0, 1.0), (GOLDEN, -1.0)) if relation.contributions == 2 else ((0.0, 1.0), (0.0, 1.0))
    assert distance(weight, *worst, relation.contributions == 2) > relation.contributions
    assert distance(companion_weight(relation), *worst, relation.contributions == 2) <= relation.contributions


@pytest.mark.lemma("second-order-regression.md#theorem-2")
def test_the_weight_is_the_largest_there_can_be():
    assert companion_weight(Neighboring.REPLACE_ONE) ** 2 <= (11 + 5 * math.sqrt(5)) / 8
    assert (companion_weight(Neighboring.REPLACE_ONE) + 0.001) ** 2 > (11 + 5 * math.sqrt(5)) / 8


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("share", [1.0, 0.6, GOLDEN, 0.0])
@pytest.mark.lemma("second-order-regression.md#theorem-1")
def test_computed_sums_of_neighbors_stay_within_the_sensitivity(relation, share):
    rng = np.random.default_rng(3)
    rows, targets = rng.normal(size=(50, 3)), rng.uniform(-1, 1, size=50)
    made, differs = mechanism(relation), np.arange(50) == 7
    rows[7], targets[7] = pull(share if relation.contributions == 1 else 1.0)
    ours = released_value(made, records(rows, targets))
    if relation is Neighboring.ADD_REMOVE_ONE:
        theirs = released_value(made, records(rows[~differs], targets[~differs]))
    elif relation is Neighboring.ZERO_OUT:
        theirs = released_value(made, records(rows, targets, differs))
    else:
        rows[7], targets[7] = pull(share, -1.0)
        theirs = released_value(made, records(rows, targets))
    ratio = np.linalg.norm(ours - theirs) / made.gaussian.sensitivity.value
    assert ratio <= 1
    if share in (1.0, GOLDEN) and relation.contributions == 2:
        assert ratio > 0.95
    if share in (1.0, 0.0) and relation.contributions == 1:
        assert ratio > 0.95  # at either end: pulling with all its might, or not at all


@pytest.mark.lemma("second-order-regression.md#theorem-2")
def test_twice_the_norm_as_weight_is_caught_by_the_same_pair(monkeypatch):
    name = "discreet.solvers.second_order.clipped_gradients.companion_weight"
    monkeypatch.setattr(name, lambda relation: 2.0)
    made = mechanism(Neighboring.REPLACE_ONE)
    pairs = [
        released_value(made, records([row], [target])) for row, target in (pull(1.0), pull(GOLDEN, -1.0))
    ]
    assert np.linalg.norm(pairs[0] - pairs[1]) > made.gaussian.sensitivity.value


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize(
    "loss", [Squared(1.0, 1.0), HuberRegression(0.2), Quantile(0.8, 0.05), Poisson(1.0, 1.0)], ids=str
)
def test_sums_are_those_of_single_records(make, loss):
    rng = np.random.default_rng(0)
    X, y, theta = rng.normal(size=(9000, 4)), rng.uniform(0, 1, size=9000), rng.normal(size=4) / 2
    bounds = Bounds(1.5, intercept=False)
    null = np.arange(9000) % 7 == 0
    data = ArrayRecords(make(X), y, bounds, null)
    rows = X * np.where(null, 0.0, bounds.row_scales(X))[:, None]
    psi = np.clip(loss.derivative(np.where(null, 0.0, y), rows @ theta), -CAP, CAP)
    for squares in (True, False):
        terms = (psi / CAP) ** 2 if squares else 1 - (psi / CAP) ** 2
        found = clipped_sums(data, loss, CAP, theta, squares)
        assert np.abs(found[:-1] - psi @ rows).max() < 1e-9
        assert found[-1] == pytest.approx(terms[~null].sum(), rel=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_companion_is_read_back_as_the_mean_square(relation):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(4000, 3)), rng.uniform(-1, 1, size=4000)
    made = mechanism(relation, n_samples=4000, noise_multiplier=1e-6)
    found = made.release(records(X, y), np.zeros(3), fresh_entropy())
    assert found.mean_square == pytest.approx(np.mean(np.minimum(1, (y / CAP) ** 2)), abs=1e-6)
    assert found.mean_square_stddev == pytest.approx(made.gaussian.stddev / (made.weight * 4000))


@pytest.mark.parametrize("relation", RELATIONS)
def test_rounding_is_paid_for_and_small(relation):
    exact = relation.contributions * CAP * NORM
    for n in (10, 10**4, 10**6):
        declared = mechanism(relation, n_samples=n).gaussian.sensitivity.value
        assert exact < declared < exact * (1 + 1e-4)
    rough = mechanism(relation, row_error=1e-9).gaussian.sensitivity.value
    assert rough > mechanism(relation).gaussian.sensitivity.value + 2 * 50 * CAP * 1e-9


@pytest.mark.parametrize("cap", [0.01, 0.3, 2.0])
def test_the_price_does_not_depend_on_the_cap(cap):
    made = ClippedGradientMechanism(Squared(1.0, 1.0), cap, 50, 3, NORM, 2.0, Neighboring.REPLACE_ONE, 5.0)
    assert made.event == Discretized(Gaussian(5.0), 4)
