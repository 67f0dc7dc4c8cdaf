"""One try: train a candidate on its part of the records, score it on the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from discreet.estimators._model import PrivateLinearModel
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee
from discreet.selection.scores import total_score

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Chosen:
    """The outcome of a search: the candidate's index, its fitted model and, where it was paid for, its noisy score."""

    index: int
    model: Any = field(repr=False)
    score: float | None


def check_candidate(candidate: Any) -> None:
    """Refuse what a search cannot price before it sees data."""
    if isinstance(candidate, Pipeline):
        raise TypeError(
            "a search needs estimators of this package, which state their price before they see data, and not a "
            "pipeline around them: search over pipeline[-1] and pass the rows that the other steps make, for instance "
            "SchemaEncoder(schema).transform(table)"
        )
    if not isinstance(candidate, PrivateLinearModel):
        raise TypeError(
            "a search needs linear models of this package, which state their price before they see data; "
            f"{type(candidate).__name__} is none. The candidates of another search can be listed in this one"
        )
    if getattr(candidate, "max_rows_per_group", None) is not None:
        raise ValueError(
            "a search protects single rows: candidates with max_rows_per_group are not supported; bound the rows of "
            "each person first, or fit one model with groups"
        )


def prepared(candidate: Any, guarantee: Guarantee, classes: NDArray[Any] | None, bad_rows: str) -> Any:
    """A copy of a candidate with the budget of one fit; the search alone talks to the ledger."""
    changes: dict[str, Any] = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "neighboring": guarantee.neighboring.value,
        "ledger": None,
    }
    known = candidate.get_params(deep=False)
    if "bad_rows" in known:
        changes["bad_rows"] = bad_rows
    if classes is not None and "classes" in known:
        changes["classes"] = classes.tolist()
    return clone(candidate).set_params(**changes)


def examine(candidates: list[Any], records: Records) -> None:
    """Raise now what a fit of a prepared candidate would raise about its settings, rows or labels after the charge."""
    for candidate in candidates:
        model = clone(candidate)
        model._targets(model._examined(records.X, records.y)[1])


def planned_event(
    candidate: Any, n_samples: int, n_columns: int, n_classes: int | None, *, sparse: bool
) -> Event:
    """What a fit of a prepared candidate would charge."""
    sizes = (n_samples, n_columns) if n_classes is None else (n_samples, n_columns, n_classes)
    event = candidate.plan(*sizes, sparse=sparse).event
    assert isinstance(event, Event)
    return event


@contextmanager
def unheard() -> Iterator[None]:
    """Whatever warns in here is not heard: what a try says could be counted, and the number of tries is secret."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True, eq=False)
class Records:
    """The private records of a search; a null record is a row of zeros with no label or target.

    Attributes
    ----------
    X, y : rows, and labels or targets, as a fit takes them.
    truth : what predictions are compared with: the places of labels among the classes, or targets; -1 or NaN for none.
    """

    X: Any
    y: NDArray[Any]
    truth: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains and scores on a fixed split; lives only while a plan runs.

    Attributes
    ----------
    candidates : prepared estimators.
    records : all of them.
    train, held_out : row numbers, disjoint.
    """

    candidates: list[Any]
    records: Records
    train: Indices
    held_out: Indices

    def fitted(self, index: int, event: Event, shares: int = 1) -> Any:
        """A new fit of candidate ``index``, on all training records or on its own of ``shares`` equal shares."""
        size = len(self.train) // shares
        rows = self.train if shares == 1 else self.train[index * size : (index + 1) * size]
        model = clone(self.candidates[index]).fit(self.records.X[rows], self.records.y[rows])
        if model.privacy_.event != event:
            raise RuntimeError(
                f"candidate {index} ran {model.privacy_.event} and not what was planned and paid for, {event}; "
                "please report this: its price must be known before the data is seen"
            )
        return model

    def score(self, model: Any) -> float:
        """The exact score on the held-out records, for a mechanism to add noise to."""
        return total_score(model, self.records.X[self.held_out], self.records.truth[self.held_out])
