"""Subsample and aggregate: release the answer of any computation on which most disjoint chunks agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _checks
from discreet._checks import ParameterError, calm
from discreet.estimators.groups import read_people
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.sparse_vector import StableRelease
from discreet.mechanisms.voting import stability
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, relation_of
from discreet.records.open import check_people
from discreet.release import carry_out
from discreet.transfer import base
from discreet.transfer.teachers import Codes, assign, chunk_seed, isolated, take

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class SubsamplePlan:
    """Release the candidate that most chunks choose, if no single unit could change it.

    Privacy
    -------
    A unit changes ``changed`` votes; the halved lead over the runner-up has sensitivity 1 and is 0 if the winner can
    change. Event ``Approximate(epsilon, delta)``.
    """

    guarantee: Guarantee
    n_chunks: int
    n_candidates: int
    changed: int = 1

    mechanism = "subsample and aggregate with the optimal distance-to-instability test"
    theorem = "docs/proofs/sparse-vector.md, sections 5 and 6 (after Nissim, Raskhodnikova and Smith, 2007)"

    def __post_init__(self) -> None:
        # Computed now, before any charge, because its time grows with 1 / epsilon.
        self._test.distance_needed(0.0)

    @property
    def _test(self) -> StableRelease:
        return StableRelease(self.guarantee.epsilon, self.guarantee.delta)

    @property
    def event(self) -> Event:
        return self._test.event

    @property
    def lead_needed(self) -> int:
        """Lead over the runner-up, in chunks, at which the answer is always released."""
        return 2 * self.changed * self._test.distance_needed(0.0) + 1

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {"chunks": float(self.n_chunks), "lead released for certain": float(self.lead_needed)}

    def run(self, counts: Sequence[int], entropy: Entropy) -> int | None:
        """Return the index of the winning candidate, or None."""
        winners, distances = stability(np.array([counts], dtype=np.int64), self.changed)
        found = self._test.release(int(winners[0]), int(distances[0]), entropy)
        return None if found is None else int(found)


@dataclass(frozen=True)
class Agreement:
    """A released value, or None if the chunks did not agree, with its privacy statement."""

    value: Any | None
    privacy_: PrivacyStatement

    @property
    def released_(self) -> dict[str, Any]:
        """The released value; the ledger stores its digest (`release_digest`)."""
        return _named(self.value)


@calm()
def subsample_and_aggregate(
    function: Callable[[Any], Any],
    X: Any,
    candidates: Sequence[Any],
    *,
    n_chunks: int,
    epsilon: float,
    delta: float,
    neighboring: str = "replace-one",
    groups: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: Any = None,
) -> Agreement:
    """Run ``function`` on disjoint chunks of rows and release the answer they agree on.

    Parameters
    ----------
    function : maps some rows to one of ``candidates``; errors and other answers count as the first candidate.
    X : private rows.
    candidates : public list of all possible answers, at least two.
    n_chunks : public number of disjoint parts.
    epsilon, delta, neighboring, groups, ledger : as in :class:`PrivateTransferClassifier`.
    random_state : seed of the global generators that ``function`` may use; never of the privacy noise.

    Privacy
    -------
    (epsilon, delta)-DP under ``neighboring`` for any ``function`` that sees only its rows and keeps nothing from one
    call to the next. NumPy's and Python's global generators are set for every chunk.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(10000, 2)) + [0.0, 1.0]
    >>> larger = lambda X: "second" if X[:, 1].mean() > X[:, 0].mean() else "first"
    >>> subsample_and_aggregate(larger, rows, ["first", "second"], n_chunks=100, epsilon=1.0, delta=1e-6).value
    'second'
    """
    check_people(X, groups)
    X = base.as_table("X", X)
    relation = relation_of(neighboring)
    if len(candidates) < 2:
        raise ParameterError(
            "candidates", f"must list at least two possible answers, got {list(candidates)!r}"
        )
    if groups is not None:
        read_people(groups, X.shape[0], strict=True)
    promise = Guarantee(
        _checks.real("epsilon", epsilon, above=0),
        _checks.real("delta", delta, above=0),
        relation,
        "record" if groups is None else "user",
    )
    changed = base.changed_teachers(relation, by_group=groups is not None, label_private=False)
    plan = SubsamplePlan(promise, _checks.count("n_chunks", n_chunks, at_least=2), len(candidates), changed)
    seed = _checks.seed(random_state)

    def counts(entropy: Entropy) -> list[int]:
        chunks = assign(X.shape[0], groups, plan.n_chunks, entropy)
        return counted_votes(function, X, chunks, candidates, plan.n_chunks, seed)

    def value_of(winner: int | None) -> Any:
        return None if winner is None else candidates[winner]

    carried = carry_out(
        plan, counts, ledger, "subsample_and_aggregate", published=lambda winner: _named(value_of(winner))
    )
    bounds: dict[str, float | str] = {"chunks": float(plan.n_chunks), "candidates": float(len(candidates))}
    stated = ("the candidates are public (given by the user)",)
    return Agreement(value_of(carried.release), base.state(carried, bounds, stated))


def counted_votes(
    function: Callable[[Any], Any],
    X: Any,
    chunks: Codes,
    candidates: Sequence[Any],
    n_chunks: int,
    seed: np.random.SeedSequence,
) -> list[int]:
    """Return how many chunks answer with each candidate; every chunk votes, whatever it holds."""
    votes = [0] * len(candidates)
    for number in range(n_chunks):
        rows = take(X, np.flatnonzero(chunks == number))
        votes[_vote(function, rows, candidates, chunk_seed(seed, number))] += 1
    return votes


def _named(value: Any) -> dict[str, Any]:
    """Return an answer of any type as text, which can always be hashed."""
    return {"value": None if value is None else repr(value)}


def _vote(function: Callable[[Any], Any], rows: Any, candidates: Sequence[Any], seed: int) -> int:
    """Return the index of a chunk's answer; the first candidate for an empty chunk, an error or another answer."""
    if rows.shape[0] == 0:
        return 0
    try:
        with isolated(seed):
            return list(candidates).index(function(rows))
    except Exception:  # the content of the chunk must not decide whether this program continues
        return 0
