"""Tracing: averages of many independent columns give away who is in them, unless noise hides everybody at once.

The instance is that of the lower bounds on private averages: every column has a public bias of its own, every person a
row of signs with these biases. Whoever is in the average leans towards it in every column a little, and the correlation

    score_i = sum_j (x_ij - bias_j) (answer_j - c bias_j)

adds that up, c being whatever makes the second factor orthogonal to the biases (Homer et al., 2008; Bun, Ullman and
Vadhan, 2014; Dwork et al., 2015). Here every candidate is included by a fair coin of its own, so that the scores of one
run bound epsilon from below (`estimates.one_run_bound`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.audit.estimates import LowerBound, one_run_bound

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FingerprintingInstance:
    """Candidates' rows of norm 1, the biases of their columns, and who is included.

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
        """The rows of those who are included; the others are null rows."""
        return np.where(self.included[:, None], self.rows, np.nan)

    def scores(self, answer: ArrayLike) -> Array:
        """How much every candidate leans towards an answer of one number per column."""
        values = np.ravel(np.asarray(answer, dtype=np.float64))
        known = (values @ self.bias) / (self.bias @ self.bias) * self.bias
        return np.asarray((self.rows - self.bias) @ (values - known))


def fingerprinting(n_candidates: int, n_columns: int, seed: int = 0) -> FingerprintingInstance:
    """Draw an instance; invented data, repeatable.

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
    release : function of rows, of which those of nan are null records, that publishes one number per column.

    Examples
    --------
    >>> instance = fingerprinting(200, 4000)
    >>> average = trace_members(lambda rows: np.nanmean(rows, axis=0), instance, delta=0.0)
    >>> average.epsilon > 2
    True
    """
    return one_run_bound(instance.scores(release(instance.data)), instance.included, delta, confidence)
