"""Worst-case neighbors: pairs of data sets, and coefficients, at which bounds are close to equality.

Gradients. For a loss of one linear prediction (and the softmax), two records v and v' shift the summed gradient most if
they point in opposite directions and both are badly misclassified. Opposite records have opposite predictions, so they
need a small common component along which the coefficients are large: v = (r, s), v' = (-r, s) with small s, and
coefficients far out along the second axis. Then |shift| = 2 r L, arbitrarily close to the bound 2 R L.

Coefficients drawn from a ball: one coefficient, which the record pulls in one of two directions. The log density of an
exponential mechanism is concave, and one record changes it about linearly; the ratio of two such densities has its
extremes only at the ends of the interval, and in more dimensions only near two points of the ball. So one coefficient
is the worst case. Other records pull in one direction, which makes the far end rare, so that its odds move most. Under
zero-out, a record in a wide ball is nearly flat on one half, and the change has its whole range on the other half.

Sums by class: a row of full length that leaves one class and enters another. Leaving changes one sum by the whole row
and its constant, and entering changes another by as much: sqrt(2) times the longest row, for any two rows. Within a
class a row would keep its constant, unless it is so long that clipping removes it. So the labels differ, and the rows
can be chosen for the next step: gradients of scores along the direction of the sums.

Scores are about 1 for most rows, and clipped at 2. Few other rows share the column of the row that differs, all in one
class, and the rest are alike: the score of that column is then beyond the clip, and the row's image has full length. A
hinge is equally steep for both labels while coefficients are small: classes of equal size, separated by few rows. A
logistic loss is steep for misclassified records; under replace-one both records should be. Most others are in one
class, so that the constant misclassifies a row that keeps its constant and has only a part in that column; its neighbor
is so long that clipping leaves almost no constant, and the score misclassifies it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone

from discreet._typing import Array
from discreet.privacy.guarantee import Neighboring
from discreet.problem import Problem
from discreet.solvers import base

_FAR = 2.0**20  # size of adversarial coefficients, in units of 1 / R
_COMMON = 2.0**-10  # the common component s of the two records, in units of R


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring data sets ``(X, y)`` and the relation between them."""

    first: tuple[Any, Any]
    second: tuple[Any, Any]
    neighboring: Neighboring


def worst_pair(
    neighboring: Neighboring | str,
    *,
    n_columns: int = 2,
    n_rest: int = 0,
    feature_bound: float = 1.0,
    fit_intercept: bool = True,
    labels: tuple[Any, Any] = (0, 1),
    common: float = _COMMON,
    flip: bool = False,
) -> Pair:
    """Return data sets whose first row differs as much as the relation allows.

    Parameters
    ----------
    neighboring : relation. Replace: the row is replaced by one in the opposite direction. Zero-out: it is replaced by a
        row of nan, a null record under ``bad_rows="null"``. Add-remove: it is left out.
    n_columns : number of columns; at least 2 without an intercept.
    n_rest : number of further rows, all alike, which push the coefficients to where the first row is
        misclassified.
    labels : the label of the further rows, and that of the row that differs.
    common : share of a record's norm along the axis on which the coefficients grow.
    flip : under replace-one, keep the row almost unchanged and change its label: two equal contributions of opposite
        sign. This detects a constant column outside the clip, which opposite rows do not.

    Examples
    --------
    >>> pair = worst_pair("replace-one", n_columns=1)
    >>> pair.first[0].round(2).tolist(), pair.second[0].round(2).tolist()
    ([[1024.0]], [[-1024.0]])
    """
    relation = Neighboring(neighboring)
    if n_columns < 1 or (n_columns < 2 and not fit_intercept):
        raise ValueError("the worst pair needs two directions: two columns, or one column and an intercept")
    row, rest = np.zeros(n_columns), np.zeros(n_columns)
    if fit_intercept:
        # Next to a constant 1, then clipped to the bound.
        row[0] = max(feature_bound, np.sqrt(1 / common**2 - 1)) if common < 1 else 0.0
    else:
        row[:2] = feature_bound * np.sqrt(1 - common**2), feature_bound * common
        rest[1] = feature_bound
    opposite = row.copy()
    if flip:
        if n_columns < 2:
            raise ValueError("flip needs two columns")
        row[1] = common * row[0]
        opposite[:2] = row[0], -row[1]
    else:
        opposite[0] = -row[0]
    others = np.tile(rest, (n_rest, 1))
    y = np.array([labels[1]] + [labels[0]] * n_rest)
    first = np.vstack([row[None, :], others])
    if relation is Neighboring.REPLACE_ONE:
        second, other_y = np.vstack([opposite[None, :], others]), y.copy()
        other_y[0] = labels[0] if flip else y[0]
    elif relation is Neighboring.ZERO_OUT:
        second, other_y = np.vstack([np.full((1, n_columns), np.nan), others]), y
    else:
        second, other_y = others, y[1:]
    return Pair((first, y), (second, other_y), relation)


def neighbors_of(
    X: Any, y: Any, index: int, neighboring: Neighboring | str, row: Any = None, label: Any = None
) -> Pair:
    """Return the data set (X, y) and its neighbor, in which record ``index`` is blanked out, removed, or replaced.

    ``row`` and ``label`` replace it under replace-one.
    """
    relation = Neighboring(neighboring)
    X, y = np.array(X, dtype=np.float64), np.array(y)
    if relation is Neighboring.ADD_REMOVE_ONE:
        return Pair((X, y), (np.delete(X, index, axis=0), np.delete(y, index)), relation)
    other, other_y = X.copy(), y.copy()
    if relation is Neighboring.ZERO_OUT:
        other[index] = np.nan
    else:
        other[index], other_y[index] = row, label
    return Pair((X, y), (other, other_y), relation)


def audit_cases(estimator: Any, others: int = 1000) -> list[tuple[Any, Pair]]:
    """Return variants of a linear classifier, each with a pair on which its runs may differ most.

    The guarantee, the relation, the solver and the bounds stay; the adversary chooses data, sizes and the ridge.

    * A hinge is steepest at zero coefficients: a single record, and so much ridge that noise moves no prediction across
      the kink. The coefficients are then an affine image of noise plus gradient. If they are drawn from a ball, ridge
      hides the record, so a second case has none.
    * The logistic and the softmax loss are steep only where the canary is badly misclassified; ``others`` records hold
      the coefficients there. If the canary is replaced by its opposite and noise is part of the objective, more records
      of both labels lie along the direction in which the two differ: their curvature keeps noise from favoring one of
      them. The canary spends the optimal share of its norm on being misclassified.
    * With noise on a minimizer, curvature hides the canary and a ridge is needed: further cases without those records,
      and with less ridge for the last of a few passes.
    """
    needed = ("neighboring", "classes", "fit_intercept", "feature_bound", "l2", "n_samples")
    if missing := [name for name in needed if not hasattr(estimator, name)]:
        raise ValueError(
            f"worst-case data are known for linear classifiers, not for {type(estimator).__name__} (no {missing[0]}); "
            "use discreet.audit.replay with your own neighbors"
        )
    relation = Neighboring(estimator.neighboring)
    radius, tight = float(estimator.feature_bound), min(1.0, float(estimator.epsilon))
    if type(estimator).__name__ == "PrivateLinearSVC":
        ridges = (200 * radius**2 / tight, 0.0)
        return [_case(estimator, relation, 1, 0, _COMMON, ridge) for ridge in ridges]
    ridge, share, steady = 2.5 / tight, 1.0, 0
    if relation is Neighboring.REPLACE_ONE:
        share, steady = _misclassified_share(others, ridge), 2 * (others // 8)
    return [_case(estimator, relation, others, steady, share, 0.0)] + [
        _case(estimator, relation, others, 0, _misclassified_share(others, part), part * radius**2)
        for part in (ridge, ridge / 8)
    ]


def _case(
    estimator: Any, relation: Neighboring, n_rest: int, n_steady: int, share: float, ridge: float
) -> tuple[Any, Pair]:
    classes = _classes(estimator)
    intercept = bool(estimator.fit_intercept)
    pair = worst_pair(
        relation,
        n_columns=1 if intercept else 2,
        n_rest=n_rest,
        feature_bound=estimator.feature_bound,
        fit_intercept=intercept,
        labels=(classes[0], classes[1]),
        common=share,
    )
    case = _variant(estimator, n_rest + n_steady + 1, ridge)
    return case, _steadied(pair, n_steady, (classes[0], classes[1]))


def _classes(estimator: Any) -> list[Any]:
    return [0, 1] if estimator.classes is None else list(np.unique(np.asarray(estimator.classes)))


def _variant(estimator: Any, n_samples: int, ridge: float, **changes: Any) -> Any:
    """Return a copy without a ledger for so many rows, with ``ridge`` in all of them together."""
    # Solvers raise a small ridge coefficient to the least one that their proof allows.
    least = {"n_samples": n_samples, "l2": max(ridge / n_samples, 1e-12)}
    fixed = {"classes": _classes(estimator), "ledger": None, "bad_rows": "null"}
    return clone(estimator).set_params(**fixed, **(least | changes))


def _steadied(pair: Pair, count: int, labels: tuple[Any, Any]) -> Pair:
    """Add ``count`` rows along the first column, of alternating labels, to both data sets."""
    if not count:
        return pair
    sides = []
    for X, y in (pair.first, pair.second):
        rows = np.zeros((count, X.shape[1]))
        rows[:, 0] = 2.0**20 * np.abs(X).max()
        sides.append((np.vstack([X, rows]), np.concatenate([y, np.resize(labels, count)])))
    return Pair(sides[0], sides[1], pair.neighboring)


def _misclassified_share(others: int, ridge: float) -> float:
    """Return the common component s that maximizes 2 sqrt(1 - s^2) sigmoid(s t), for R = 1 and coefficients at t.

    Without noise t solves others x sigmoid(-t) = ridge x t.
    """
    t = float(brentq(lambda t: others / (1 + np.exp(t)) - ridge * t, 0.0, 100.0))
    shares = np.linspace(0.05, 0.95, 181)
    return float(shares[np.argmax(np.sqrt(1 - shares**2) / (1 + np.exp(-shares * t)))])


def adversarial_points(problem: Problem) -> list[Array]:
    """Return coefficients at which the gradients of `worst_pair` reach their bounds, and zero.

    Along each of the last two axes, one class's prediction is far above another's, in all orders.
    """
    points = [np.zeros(problem.shape)]
    far = _FAR / problem.bounds.feature_norm
    for axis in sorted({problem.n_features - 1, min(1, problem.n_features - 1)}):
        if problem.loss.n_outputs == 1:
            directions = [np.array(sign) for sign in (-far, far)]
        else:
            pairs = itertools.islice(itertools.permutations(range(problem.loss.n_outputs), 2), 12)
            unit = np.eye(problem.loss.n_outputs)
            directions = [far * (unit[up] - unit[down]) for up, down in pairs]
        for direction in directions:
            point = np.zeros(problem.shape)
            point[axis] = direction
            points.append(point)
    return points


# In units of R^2 / epsilon: keeps a noisy minimizer where the record's gradient is steepest.
_RIDGE = 20.0


def draws_from_ball(estimator: Any) -> bool:
    """Whether the solver draws coefficients from a ball, around the origin or a noisy minimizer."""
    return hasattr(base.resolve(estimator.solver), "most_tries")


def ball_cases(estimator: Any) -> list[tuple[Any, Pair]]:
    """Return variants of a linear classifier whose solver draws from a ball, each with a pair."""
    relation, solver = Neighboring(estimator.neighboring), base.resolve(estimator.solver)
    if not hasattr(solver, "radius"):  # around a noisy minimizer: the ball is what the noise makes it
        return [_ball_case(estimator, solver, others=1, ridge=_RIDGE)]
    if relation is Neighboring.REPLACE_ONE:
        # The change is linear in a small ball; in a larger one a hinge bends, and the change is steepest inside.
        balls = [(reach, math.ceil(pull / estimator.epsilon)) for reach in (0.05, 1.5) for pull in (4, 5)]
    else:
        balls = [(12.0, int(relation is Neighboring.ADD_REMOVE_ONE))]
    return [
        _ball_case(
            estimator, dataclasses.replace(cast(Any, solver), radius=reach / estimator.feature_bound), others
        )
        for reach, others in balls
    ]


def _ball_case(estimator: Any, solver: Any, others: int, ridge: float = 0.0) -> tuple[Any, Pair]:
    size, count, label = float(estimator.feature_bound), others + 1, _classes(estimator)[1]
    rows, labels = np.full((count, 1), size), np.full(count, label)
    pair = neighbors_of(rows, labels, 0, estimator.neighboring, [-size], label)
    total = ridge * size**2 / min(1.0, estimator.epsilon)
    return _variant(estimator, count, total, solver=solver, fit_intercept=False), pair


_OTHERS = 6000  # rows at epsilon 1; more for smaller epsilon
_TELLING = 30  # of these rows, those in the column of the row that differs
_LEAST_EPSILON = 0.1  # below it, the number of rows stays the same
_CROWD = 0.8  # share of the rows in one class, if the constant should misclassify
_PART = 0.3  # share of the norm of a row with a constant that lies in that column
_LONG = 30.0  # in units of the longest row: clipping then leaves almost no constant


def sums_classes(estimator: Any) -> bool:
    """Whether the solver first releases the sums of the classes."""
    return hasattr(base.resolve(estimator.solver), "sums_share")


def class_case(estimator: Any) -> tuple[Any, Pair]:
    """Return a variant of a linear classifier whose solver releases class sums, with its pair."""
    relation, size = Neighboring(estimator.neighboring), float(estimator.feature_bound)
    classes = _classes(estimator)
    noise = 1 / min(1.0, max(_LEAST_EPSILON, float(estimator.epsilon)))
    count, telling = math.ceil(_OTHERS * noise), math.ceil(_TELLING * noise)
    logistic = type(estimator).__name__ != "PrivateLinearSVC"
    both = logistic and relation is Neighboring.REPLACE_ONE
    X, long = np.zeros((count + 1, 2)), [0.0, _LONG * size]
    X[1 : telling + 1, 1] = X[telling + 1 :, 0] = size
    X[0] = [size * math.sqrt(1 - _PART**2), size * _PART] if both else long
    # The second class comes first, with all rows of that column.
    codes = (np.arange(count + 1) <= count * (1 - _CROWD if both else 0.5)).astype(int)
    codes[0] = int(both)
    pair = neighbors_of(X, np.array(classes)[codes], 0, relation, long, classes[1 - codes[0]])
    return _variant(estimator, count + 1, 0.0, l2=None), pair
