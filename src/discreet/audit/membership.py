"""Membership inference from a model's losses, and tracing of members from averages.

Members' records usually have a slightly smaller loss. Privacy bounds how much this reveals: under (epsilon, delta)-DP
in both directions, a test of "in" against "out" with hit rate h and false-alarm rate f has h <= e^epsilon f + delta and
1 - f <= e^epsilon (1 - h) + delta, hence

    h - f <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).

Tracing uses the instance of the lower bounds on private averages: every column has its own public bias, every person a
row of signs with these biases. Members are slightly correlated with the average in every column, and

    score_i = sum_j (x_ij - bias_j) (answer_j - c bias_j)

accumulates this, with c such that the second factor is orthogonal to the biases (Homer et al., 2008; Bun, Ullman and
Vadhan, 2014; Dwork et al., 2015). Each candidate is included by a fair coin, so the scores of one run bound epsilon
from below (`estimates.one_run_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array
from discreet.audit.estimates import LowerBound, clopper_pearson, one_run_bound
from discreet.privacy.statement import PrivacyStatement


def advantage_bound(epsilon: float, delta: float = 0.0) -> float:
    """Return the largest hit rate minus false-alarm rate that (epsilon, delta)-DP allows.

    >>> advantage_bound(0.0), round(advantage_bound(1.0), 3), advantage_bound(float("inf"))
    (0.0, 0.462, 1.0)
    """
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise ValueError(f"need epsilon >= 0 and delta in [0, 1], got {epsilon}, {delta}")
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta / (math.exp(min(epsilon, 700.0)) + 1))


@dataclass(frozen=True)
class MembershipView:
    """What a threshold on the loss reveals about membership, for one model.

    Attributes
    ----------
    advantage : hit rate minus false-alarm rate of the threshold, on held-out records.
    low, high : its 95% interval, assuming independent records.
    area : probability that a member's loss is below a nonmember's (0.5: nothing is learned).
    allowed : largest advantage the guarantee allows, on average over models; 1 without a guarantee, or if it does not
        cover membership (for example, of labels alone).
    losses : losses of members and of others.
    """

    advantage: float
    low: float
    high: float
    area: float
    allowed: float
    n_members: int
    n_others: int
    losses: tuple[Array, Array] = field(repr=False)

    @property
    def exceeds(self) -> bool:
        """Whether the whole interval is above what is allowed."""
        return self.low > self.allowed

    def __str__(self) -> str:
        interval = f"{self.advantage:+.4f}, between {self.low:+.4f} and {self.high:+.4f}"
        return "\n".join(
            (
                f"Membership by a threshold on the loss: {self.n_members} members, {self.n_others} others",
                f"  advantage            {interval} (95%, assuming independent records)",
                f"  allowed              {self.allowed:.4f} by the guarantee, for any attack",
                f"  area under the curve {self.area:.4f} (0.5 is guessing)",
                "  not covered          attacks that train their own models, or target one person",
            )
        )


def membership(model: Any, members: tuple[Any, Any], others: tuple[Any, Any]) -> MembershipView:
    """Attack a fitted model with its training records and with others from the same source.

    Parameters
    ----------
    model : fitted classifier or regressor; the guarantee in ``privacy_``, if any, gives the bound.
    members, others : (X, y) of records that were, and were not, in the training data. They should have been divided
        at random; otherwise the result measures other differences between them, too.

    Privacy
    -------
    The view is computed from private records without noise: show it only to those who may see them.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    >>> model = KNeighborsClassifier(1).fit(X[:200], y[:200])
    >>> membership(model, (X[:200], y[:200]), (X[200:], y[200:])).advantage > 0.3
    True
    """
    inside, outside = (record_losses(model, *side) for side in (members, others))
    if min(len(inside), len(outside)) < 20:
        raise ValueError(f"need at least 20 records on either side, got {len(inside)} and {len(outside)}")
    level = _best_level(inside[::2], outside[::2])
    hits, trials = int(np.sum(inside[1::2] < level)), len(inside[1::2])
    alarms, chances = int(np.sum(outside[1::2] < level)), len(outside[1::2])
    h_low, h_high = clopper_pearson(hits, trials, 1 - 0.05 / 4)
    f_low, f_high = clopper_pearson(alarms, chances, 1 - 0.05 / 4)
    return MembershipView(
        advantage=hits / trials - alarms / chances,
        low=h_low - f_high,
        high=h_high - f_low,
        area=_area(inside, outside),
        allowed=_allowed(getattr(model, "privacy_", None)),
        n_members=len(inside),
        n_others=len(outside),
        losses=(inside, outside),
    )


def _allowed(statement: PrivacyStatement | None) -> float:
    """Return the largest advantage that a guarantee allows; one for labels alone does not bound it."""
    if statement is None or statement.guarantee.unit not in ("record", "user"):
        return 1.0
    epsilon, delta = statement.epsilon, statement.delta
    if not statement.guarantee.covers("record"):  # replacing one row of a person takes two steps
        epsilon, delta = 2 * epsilon, min(1.0, (1 + math.exp(min(epsilon, 700.0))) * delta)
    return advantage_bound(epsilon, delta)


def record_losses(model: Any, X: Any, y: ArrayLike) -> Array:
    """Return the loss of every record: minus the log probability of its label, its margin, or its squared error."""
    labels = np.asarray(y)
    if not hasattr(model, "predict_proba") and not hasattr(model, "decision_function"):
        return np.asarray((np.asarray(model.predict(X), dtype=np.float64) - labels.astype(np.float64)) ** 2)
    own = np.arange(len(labels)), np.searchsorted(np.asarray(model.classes_), labels)
    if hasattr(model, "predict_proba"):
        chances = np.asarray(model.predict_proba(X), dtype=np.float64)
        return np.asarray(-np.log(np.maximum(chances[own], 1e-300)))
    margins = np.asarray(model.decision_function(X), dtype=np.float64)
    if margins.ndim == 1:
        return np.asarray(np.where(labels == model.classes_[1], -margins, margins))
    return np.asarray(-margins[own])


def _best_level(inside: Array, outside: Array) -> float:
    """Return the loss below which the share of members exceeds that of others most."""
    levels = np.unique(np.concatenate([inside, outside]))
    a, b = (np.searchsorted(np.sort(part), levels, side="right") / len(part) for part in (inside, outside))
    return float(np.nextafter(levels[int(np.argmax(a - b))], np.inf))


def _area(inside: Array, outside: Array) -> float:
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, side="left")
    equal = np.searchsorted(ordered, inside, side="right") - below
    return float(np.mean(1 - (below + equal / 2) / len(ordered)))


@dataclass(frozen=True, eq=False)
class FingerprintingInstance:
    """Candidates' rows of norm 1, the biases of the columns, and who is included.

    Attributes
    ----------
    rows : array (n_candidates, n_columns), entries +-1 / sqrt(n_columns).
    bias : expectation of every column.
    included : fair coins, one per candidate.
    """

    rows: Array
    bias: Array
    included: NDArray[np.bool_]

    @property
    def data(self) -> Array:
        """Return the rows, with null rows for those who are not included."""
        return np.where(self.included[:, None], self.rows, np.nan)

    def scores(self, answer: ArrayLike) -> Array:
        """Return the correlation of every candidate with an answer of one number per column."""
        values = np.ravel(np.asarray(answer, dtype=np.float64))
        known = (values @ self.bias) / (self.bias @ self.bias) * self.bias
        return np.asarray((self.rows - self.bias) @ (values - known))


def fingerprinting(n_candidates: int, n_columns: int, seed: int = 0) -> FingerprintingInstance:
    """Draw a synthetic instance.

    >>> instance = fingerprinting(50, 400)
    >>> instance.rows.shape, bool(np.allclose(np.linalg.norm(instance.rows, axis=1), 1))
    ((50, 400), True)
    """
    if n_candidates < 2 or n_columns < 1:
        raise ValueError(f"need at least 2 candidates and 1 column, got {n_candidates} and {n_columns}")
    rng = np.random.default_rng(seed)
    bias = rng.uniform(-1, 1, n_columns)
    signs = np.where(rng.random((n_candidates, n_columns)) < (1 + bias) / 2, 1.0, -1.0)
    scale = 1 / np.sqrt(n_columns)
    return FingerprintingInstance(signs * scale, bias * scale, rng.random(n_candidates) < 0.5)


def trace_members(
    release: Callable[[Array], ArrayLike],
    instance: FingerprintingInstance,
    delta: float,
    confidence: float = 0.95,
) -> LowerBound:
    """Run ``release`` once on the included rows and bound its epsilon, per zeroed-out row, from below.

    Parameters
    ----------
    release : function that publishes one number per column of rows; rows of nan are null records.

    Examples
    --------
    >>> instance = fingerprinting(200, 4000)
    >>> average = trace_members(lambda rows: np.nanmean(rows, axis=0), instance, delta=0.0)
    >>> average.epsilon > 2
    True
    """
    return one_run_bound(instance.scores(release(instance.data)), instance.included, delta, confidence)
