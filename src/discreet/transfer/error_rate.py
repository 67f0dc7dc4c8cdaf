"""A private estimate of how often teachers are wrong, with the sensitivity of the whole ensemble.

The error of *one* model on held-out rows can jump from 0 to 1 when one training record changes. The error averaged
over all teachers cannot: a training record changes one teacher, a held-out record one row of each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _checks
from discreet._checks import ParameterError, Setting, calm
from discreet.mechanisms.additive import LaplaceMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, Sensitivity, relation_of
from discreet.records.open import read_labels
from discreet.release import carry_out
from discreet.tables.schema import RowsOfPeople
from discreet.transfer import base
from discreet.transfer.teachers import Poll, assign_rows, collect_votes, take

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class ErrorRatePlan:
    """The number of wrong votes of all teachers on all held-out rows, with Laplace noise.

    Privacy
    -------
    Rows are split by position, so a record is either used for training or held out. Replacing a training record changes
    one teacher: at most ``n_validation`` votes. Replacing a held-out record changes one vote of each of ``n_teachers``,
    if a model predicts each row from that row alone; a row on which it fails gets the fallback alone. The L1
    sensitivity is the larger of the two; event: Pure(epsilon). The number of rows must be public.
    """

    guarantee: Guarantee
    n_teachers: int
    n_validation: int

    mechanism = "error rate of all teachers on held-out rows, with Laplace noise"
    theorem = (
        "Laplace mechanism (Dwork et al., 2006) with the sensitivity of docs/proofs/sparse-vector.md, 10"
    )

    @property
    def _laplace(self) -> LaplaceMechanism:
        most = max(self.n_teachers, self.n_validation)
        return LaplaceMechanism(Sensitivity(float(most), norm=1), 1 / self.guarantee.epsilon, 1)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the error rate: max(1 / n_teachers, 1 / n_validation)."""
        return 1 / min(self.n_teachers, self.n_validation)

    @property
    def event(self) -> Event:
        return self._laplace.event

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {"noise scale of the error rate": self.sensitivity / self.guarantee.epsilon}

    def run(self, n_wrong: int, entropy: Entropy) -> float:
        """Return the noisy error rate, clipped to [0, 1]."""
        noisy = float(self._laplace.release(np.array([float(n_wrong)]), entropy)[0])
        return min(1.0, max(0.0, noisy / (self.n_teachers * self.n_validation)))


@dataclass(frozen=True)
class ErrorRate:
    """A released error rate with its privacy statement.

    rate : the estimate.
    upper : exceeds the teachers' true error rate on the held-out rows with probability 95%.
    """

    rate: float
    upper: float
    privacy_: PrivacyStatement

    @property
    def released_(self) -> dict[str, Any]:
        """The released number; the ledger stores its digest (`release_digest`), and ``upper`` follows from it."""
        return {"rate": self.rate}

    def unstable_among(self, n_queries: int, beta: float = 0.05) -> int:
        """Estimate how many of ``n_queries`` questions are unstable, if every third wrong vote makes one so.

        If the error rate is g, at most 3 g n of n questions have a third of the teachers wrong, up to fluctuations.
        """
        expected = self.upper * n_queries
        return max(1, math.ceil(3 * (expected + math.sqrt(expected * math.log(n_queries / beta) / 2))))


@calm()
def private_error_rate(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    epsilon: float,
    n_teachers: int,
    classes: Any = None,
    validation_fraction: float = 0.2,
    neighboring: str = "replace-one",
    n_jobs: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: Any = None,
) -> ErrorRate:
    """Estimate how often teachers are wrong, to choose ``max_unstable`` or to see whether transfer can work.

    Parameters
    ----------
    estimator, X, y, n_teachers, classes, n_jobs, ledger, random_state :
        As in :class:`PrivateTransferClassifier`.
    epsilon : float
        The price, added to that of any other release from the same data.
    validation_fraction : float, default 0.2
        Share of the rows that are held out: the last ones.
    neighboring : {"replace-one", "zero-out"}
        "add-remove-one" is refused, because the number of held-out rows would be private.

    Returns
    -------
    ErrorRate
        The estimate ``rate``, the bound ``upper``, and the statement as ``privacy_``.

    Notes
    -----
    Privacy: event Pure(epsilon); see :class:`ErrorRatePlan`. One row per person. Held-out rows are private and
    predicted in blocks: ``estimator.predict`` must treat each row separately, as the models of scikit-learn do. A
    model that scales or ranks the given rows against each other is not covered.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> found = private_error_rate(DecisionTreeClassifier(), X, y, epsilon=1.0, n_teachers=20, classes=[0, 1])
    >>> found.rate < 0.1
    True
    """
    relation = relation_of(neighboring)
    if not relation.size_is_public:
        raise ParameterError(
            "neighboring",
            "must make the number of held-out rows public",
            Setting("neighboring", "replace-one", "zero-out"),
        )
    if not 0 < validation_fraction < 1:
        raise ParameterError("validation_fraction", f"must lie between 0 and 1, got {validation_fraction!r}")
    if isinstance(X, RowsOfPeople):
        raise ParameterError(
            "X",
            "has several rows per person (its schema declares a group column): max_rows_per_group and "
            "groups are not supported here",
            "keep one row of each person, and use a schema without a group column",
        )
    X, y = base.as_table("X", X), np.asarray(y)
    if y.shape != (X.shape[0],):
        raise ParameterError("y", f"must hold one label per row: {X.shape[0]} rows, y of shape {y.shape}")
    n_rows = X.shape[0]
    n_train = n_rows - max(1, round(validation_fraction * n_rows))
    count = _checks.count("n_teachers", n_teachers, at_least=2)
    if count > n_train:
        raise ValueError(f"n_teachers={count} is more than the {n_train} records left for training")
    epsilon = _checks.real("epsilon", epsilon, above=0)
    plan = ErrorRatePlan(Guarantee(epsilon, 0.0, relation), count, n_rows - n_train)
    labels = read_labels(y, classes, "error", droppable=False)
    seed = _checks.seed(random_state)

    def n_wrong(entropy: Entropy) -> int:
        poll = Poll(estimator, take(X, slice(n_train, n_rows)), labels.classes, count, seed, apart=True)
        chunks = assign_rows(n_train, count, entropy)
        votes = collect_votes(poll, take(X, slice(0, n_train)), labels.codes[:n_train], chunks, n_jobs)
        right = votes[np.arange(plan.n_validation), labels.codes[n_train:]].astype(np.int64).sum()
        return count * plan.n_validation - int(right)

    carried = carry_out(plan, n_wrong, ledger, "private_error_rate", published=lambda rate: {"rate": rate})
    rate = carried.release
    upper = min(1.0, rate + plan.sensitivity * math.log(1 / (2 * 0.05)) / epsilon)
    stated = (
        labels.assumption,
        f"the number of records, {n_rows}, is public",
        "a model predicts the label of a row from that row alone, not from others asked with it (given by the user)",
    )
    bounds: dict[str, float | str] = {"teachers": float(count), "held-out rows": float(plan.n_validation)}
    return ErrorRate(rate, upper, base.state(carried, bounds, stated))
