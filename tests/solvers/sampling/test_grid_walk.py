"""The grid walk: its law in the limit, and its refusal to claim privacy before the certified number of steps."""

import math

import numpy as np
import pytest

from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.events import NonPrivate, Pure
from discreet.solvers.sampling.grid_walk import GridWalk


def test_a_short_walk_claims_nothing():
    walk = GridWalk(2, 2.0, rate=0.05, lipschitz=100.0, score_range=4.0)
    point, event = walk.run(lambda theta: float(theta @ theta), 50, fresh_entropy())
    assert event == NonPrivate()
    assert np.all(np.abs(point) <= 1.0)
    assert isinstance(walk.event(walk.certified_steps), Pure)
    assert walk.event(walk.certified_steps).epsilon >= 0.2


def test_certified_steps_grow_beyond_reach():
    """p = 2, n = 1000, epsilon = 1: more steps than the grid has points, by orders of magnitude."""
    walk = GridWalk(2, 2.0, rate=1 / 4, lipschitz=1000.0, score_range=4.0)
    assert walk.certified_steps > 1e9
    assert walk.certified_steps > 1000 * walk.points_per_axis**2


def test_law_of_a_certified_walk():
    walk = GridWalk(1, 2.0, rate=1.0, lipschitz=1.5, score_range=2.0)
    assert walk.certified_steps < 30_000
    points = (np.arange(walk.points_per_axis) + 0.5) * walk.spacing - 1.0
    weights = np.exp(-1.5 * np.abs(points - 0.4))
    entropy, ends = fresh_entropy(), []
    for _ in range(400):  # far fewer steps mix this small grid in fact
        ends.append(walk.run(lambda theta: 1.5 * abs(float(theta[0]) - 0.4), 60, entropy)[0][0])
    counts = np.array([np.sum(np.isclose(ends, point)) for point in points])
    assert counts.sum() == 400
    expected = 400 * weights / weights.sum()
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected) + 1)


@pytest.mark.parametrize("name", ["side", "rate", "lipschitz"])
def test_nonsense_is_refused(name):
    fields = {"side": 1.0, "rate": 1.0, "lipschitz": 1.0, name: -math.inf}
    with pytest.raises(ValueError, match=name):
        GridWalk(2, score_range=1.0, **fields)
