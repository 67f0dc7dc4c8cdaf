"""Neighbors for coefficients that are drawn from a ball: one coefficient, which a record pulls one way or the other.

The density of an exponential mechanism over a ball is the product of what other records and the one that differs say.
Its logarithm is concave, and one record changes it by a function that is about linear in the coefficient; the ratio of
two such densities reaches its ends only at the ends of the interval, and in more dimensions only near two points of
the ball. So one coefficient is worst. Others pull one way, which makes the far end rare, and its odds move most. Under
zero-out a record in a wide ball is as good as indifferent on one half of it: there the change has its whole range on
the other half.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from discreet.audit.canaries import Pair, neighbors_of
from discreet.privacy.guarantee import Neighboring
from discreet.solvers import base

# In units of R^2 / epsilon: it keeps a noisy minimizer where the record is as steep as can be.
_RIDGE = 20.0


def draws_from_ball(estimator: Any) -> bool:
    """Whether the estimator's solver draws coefficients from a ball around the origin or around a noisy minimizer."""
    return hasattr(base.resolve(estimator.solver), "most_tries")


def ball_cases(estimator: Any) -> list[tuple[Any, Pair]]:
    """Linear classifiers like the given one, with its guarantee, relation and kind of solver, each with a pair."""
    relation, solver = Neighboring(estimator.neighboring), base.resolve(estimator.solver)
    if not hasattr(solver, "radius"):  # around a noisy minimizer: the ball is what the noise makes it
        return [_case(estimator, solver, others=1, ridge=_RIDGE)]
    if relation is Neighboring.REPLACE_ONE:
        # The change is linear in a small ball; in a larger one a hinge is bent, and the change steepest inside.
        balls = [(reach, math.ceil(pull / estimator.epsilon)) for reach in (0.05, 1.5) for pull in (4, 5)]
    else:
        balls = [(12.0, int(relation is Neighboring.ADD_REMOVE_ONE))]
    return [
        _case(
            estimator, dataclasses.replace(cast(Any, solver), radius=reach / estimator.feature_bound), others
        )
        for reach, others in balls
    ]


def _case(estimator: Any, solver: Any, others: int, ridge: float = 0.0) -> tuple[Any, Pair]:
    size, count = float(estimator.feature_bound), others + 1
    classes = [0, 1] if estimator.classes is None else list(np.unique(np.asarray(estimator.classes)))
    rows, labels = np.full((count, 1), size), np.full(count, classes[1])
    pair = neighbors_of(rows, labels, 0, estimator.neighboring, [-size], classes[1])
    model = clone(estimator).set_params(classes=classes, ledger=None, bad_rows="null", fit_intercept=False)
    l2 = ridge * size**2 / min(1.0, estimator.epsilon) / count
    return model.set_params(n_samples=count, solver=solver, l2=max(l2, 1e-12)), pair
