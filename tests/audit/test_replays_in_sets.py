"""Every solver that keeps coefficients in a set is replayed there: what it declares, charges and publishes."""

import numpy as np
import pytest

from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import worst_pair
from discreet.sets import BallIntersection, L1Ball, L2Ball, VertexPolytope
from discreet.solvers import base

SETS = {
    "L2": L2Ball(1.5, 3),
    "L1": L1Ball(1.5, 3),
    "vertices": VertexPolytope(np.vstack([np.eye(3), -np.eye(3), [[0.4, 0.4, 0.4]]])),
    "intersection": BallIntersection(L2Ball(1.5, 3), (0.5, 0.0, 0.0), 0.7),
}


# These two always draw from a ball, and are replayed without a set.
EVERYWHERE = {"exponential", "localized"}


@pytest.mark.parametrize("inside", SETS.values(), ids=SETS)
@pytest.mark.parametrize("name", sorted(set(base.names()) - EVERYWHERE))
def test_every_solver_that_knows_the_set(name, inside):
    planned = 0
    for neighboring in ("replace-one", "zero-out"):
        for kind in (PrivateLogisticRegression, PrivateLinearSVC):
            model = kind(
                1.0,
                1e-2,
                neighboring=neighboring,
                constraint=inside,
                solver=name,
                classes=[0, 1],
                bad_rows="null",
            )
            try:
                model.plan(62, 2)
            except (ValueError, TypeError):
                continue  # refused before any data
            planned += 1
            pair = worst_pair(neighboring, n_rest=60)
            found = replay(fitting(model), pair.first, pair.second)
            assert found.passed, str(found)
            assert found.worst_ratio <= 1.0
    if not planned:
        pytest.skip(f"{name} does not know {type(inside).__name__}")
