"""Neighbors for sums by class: a row of full length that leaves one class and enters another.

Leaving changes one sum by the whole row and its constant, entering changes another by as much: sqrt(2) of the longest
row, whatever the two rows are. Exchanged within a class a row keeps its constant, unless it is so long that clipping
leaves none. So the labels differ, and the rows are free to strain what comes after: gradients of scores along the
direction that the sums give.

Scores are about 1 for most rows, and clipped at 2. Few others share the column of the row that differs, all in one
class, and the rest are alike: then the score of that column is beyond the clip, and the image of the row as long as
any. A hinge is as steep for one label as for the other while coefficients are small, as they are where the classes are
of one size and few rows tell them apart. A logistic loss is steep for records on the wrong side. Under replace-one both
of them should be: most others are of one class, so that the constant denies the label of a row that keeps its constant,
only a part of which lies in that column; its neighbor is so long that next to no constant is left after the clip, and
it is the score that denies its label.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import clone

from discreet.audit.canaries import Pair, neighbors_of
from discreet.privacy.guarantee import Neighboring
from discreet.solvers import base

_OTHERS = 6000  # rows; more where noise is stronger
_TELLING = 30  # of them, in the column of the row that differs
_LEAST_EPSILON = 0.1  # below, no more rows are taken
_CROWD = 0.8  # of the rows, where the constant is to deny a label
_PART = 0.3  # of the norm of a row with a constant, in the column that tells
_LONG = 30.0  # in units of the longest row: beside it, the constant of a clipped row is small


def sums_classes(estimator: Any) -> bool:
    """Whether the estimator's solver releases the sums of the classes first."""
    return hasattr(base.resolve(estimator.solver), "sums_share")


def class_case(estimator: Any) -> tuple[Any, Pair]:
    """A linear classifier like the given one, with its guarantee, relation, solver and bounds, and the pair above."""
    relation, size = Neighboring(estimator.neighboring), float(estimator.feature_bound)
    classes = [0, 1] if estimator.classes is None else list(np.unique(np.asarray(estimator.classes)))
    noise = 1 / min(1.0, max(_LEAST_EPSILON, float(estimator.epsilon)))
    count, telling = math.ceil(_OTHERS * noise), math.ceil(_TELLING * noise)
    logistic = type(estimator).__name__ != "PrivateLinearSVC"
    both = logistic and relation is Neighboring.REPLACE_ONE
    X, long = np.zeros((count + 1, 2)), [0.0, _LONG * size]
    X[1 : telling + 1, 1] = X[telling + 1 :, 0] = size
    X[0] = [size * math.sqrt(1 - _PART**2), size * _PART] if both else long
    # The second class comes first, with all rows that tell.
    codes = (np.arange(count + 1) <= count * (1 - _CROWD if both else 0.5)).astype(int)
    codes[0] = int(both)
    pair = neighbors_of(X, np.array(classes)[codes], 0, relation, long, classes[1 - codes[0]])
    changes = {"classes": classes, "ledger": None, "bad_rows": "null", "n_samples": count + 1, "l2": None}
    return clone(estimator).set_params(**changes), pair
