"""One try: train a candidate on its part of the records and score it on the others.

A score is an integer per held-out record, between 0 and a public unit. Integers add up exactly, so the sensitivity of
a total is exactly that of one record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline

from discreet.estimators.linear import PrivateLinearModel
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee
from discreet.records.arrow import FileRows
from discreet.records.open import blanked, class_codes, take
from discreet.solvers.base import Plan

_SCORED = 1 << 16  # rows of a file that are scored at a time
UNIT = 2**20  # the best score of one record; totals of 2^33 records are exact in float64


def record_scores(model: Any, X: Any, truth: NDArray[Any]) -> NDArray[np.int64]:
    """Score every row: right or wrong for labels, 1 - (error / range)^2 for numbers; 0 for null records.

    ``truth`` is that of `Records`. A record's score depends only on that record and the released model.
    """
    predicted = model.predict(X)
    if hasattr(model, "classes_"):
        right = (truth >= 0) & (class_codes(predicted, model.classes_) == truth)
        return np.where(right, UNIT, 0).astype(np.int64)
    low, high = model.target_bounds
    with np.errstate(all="ignore"):
        errors = (np.clip(truth, low, high) - predicted) / (high - low)
        gains = 1 - np.square(np.clip(errors, -1.0, 1.0))
    return np.asarray(np.floor(UNIT * np.where(np.isfinite(gains), gains, 0.0)), dtype=np.int64)


def total_score(model: Any, X: Any, truth: NDArray[Any]) -> float:
    """Return the sum of all scores in units of the best one, exact in float64."""
    return float(record_scores(model, X, truth).sum()) / UNIT


Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Chosen:
    """The result of a search: the candidate's index, its fitted model and, if it was paid for, its noisy score."""

    index: int
    model: Any = field(repr=False)
    score: float | None


def check_candidate(candidate: Any) -> None:
    """Raise for candidates that cannot be priced before they see data."""
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
    if not (is_classifier(candidate) or is_regressor(candidate)):
        raise TypeError(
            "a search compares classifiers by accuracy and regressors by errors within target_bounds; "
            f"{type(candidate).__name__} has neither"
        )
    if getattr(candidate, "max_rows_per_group", None) is not None:
        raise ValueError(
            "the search bounds the rows of every person itself: pass max_rows_per_group to the search, and leave it "
            "None in the candidates"
        )


def prepared(
    candidate: Any,
    guarantee: Guarantee,
    classes: NDArray[Any] | None,
    bad_rows: str,
    rows_per_group: int | None = None,
) -> Any:
    """Return a copy of a candidate with the budget of one fit; only the search charges the ledger."""
    changes: dict[str, Any] = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "neighboring": guarantee.neighboring.value,
        "ledger": None,
    }
    known = candidate.get_params(deep=False)
    if rows_per_group is not None:
        changes["max_rows_per_group"] = rows_per_group
    if "bad_rows" in known:
        changes["bad_rows"] = bad_rows
    if classes is not None and "classes" in known:
        changes["classes"] = classes.tolist()
    return clone(candidate).set_params(**changes)


def examine(candidates: list[Any], records: Records) -> None:
    """Raise now any error about settings, rows or labels that a fit would raise after the charge."""
    for candidate in candidates:
        model = clone(candidate)
        model._check_settings()
        model._read(records.X, records.y)


def planned(
    candidate: Any, n_samples: int, n_columns: int, n_classes: int | None, *, sparse: bool = False
) -> Plan:
    """Return what a fit of a prepared candidate would run and charge."""
    sizes = (n_samples, n_columns) if n_classes is None else (n_samples, n_columns, n_classes)
    return candidate.plan(*sizes, sparse=sparse)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Records:
    """The private records of a search; a null record is a row of zeros with no label or target.

    Attributes
    ----------
    X, y : rows, in memory or in a mapped file, and labels or targets, as a fit takes them.
    truth : what predictions are compared with: class indices, or targets; -1 or NaN for none.
    empty : places without a row; None if rows are protected.
    """

    X: Any
    y: NDArray[Any]
    truth: NDArray[Any]
    empty: NDArray[np.bool_] | None = None

    def in_memory(self) -> Records:
        """Return the same records, for fits that read single rows."""
        if not isinstance(self.X, FileRows):
            return self
        null = (self.truth < 0) | np.isnan(self.truth)
        return replace(self, X=blanked(self.X.matrix(np.float64), null))


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains and scores on a fixed split; exists only while a plan runs.

    Attributes
    ----------
    candidates : prepared estimators.
    records : all of them.
    train, held_out : indices of rows, or of people; disjoint.
    rows_per_group : places of every person, one person after the other; None if rows are protected.
    """

    candidates: list[Any]
    records: Records
    train: Indices
    held_out: Indices
    rows_per_group: int | None = None
    _parts: dict[int, tuple[Any, NDArray[Any], dict[str, Any]]] = field(default_factory=dict, init=False)

    def fitted(self, index: int, event: Event, shares: int = 1) -> Any:
        """Fit candidate ``index``, on all training records or on its own one of ``shares`` equal shares."""
        share = 0 if shares == 1 else index
        if share not in self._parts:  # which is the same for all tries
            self._parts[share] = self._part(share, shares)
        X, y, people = self._parts[share]
        model = clone(self.candidates[index]).fit(X, y, **people)
        if model.privacy_.event != event:
            raise RuntimeError(
                f"candidate {index} ran {model.privacy_.event} and not what was planned and paid for, {event}; "
                "please report this: its price must be known before the data is seen"
            )
        return model

    def score(self, model: Any) -> float:
        """Return the exact score on the held-out records, for a mechanism to add noise to."""
        rows = self._places(self.held_out)
        if not isinstance(self.records.X, FileRows):
            return total_score(model, self.records.X[rows], self.records.truth[rows])
        rows.sort()
        blocks = (rows[start : start + _SCORED] for start in range(0, len(rows), _SCORED))
        return math.fsum(self._score(model, self.records.X, block) for block in blocks)

    def _score(self, model: Any, X: FileRows, rows: Indices) -> float:
        """Return the score on a few rows of a file; null ones may hold anything."""
        truth = self.records.truth[rows]
        return total_score(model, blanked(X.take(rows), (truth < 0) | np.isnan(truth)), truth)

    def _part(self, share: int, shares: int) -> tuple[Any, NDArray[Any], dict[str, Any]]:
        """Return the rows and labels of one share of the training records, and whose they are if that matters."""
        size = len(self.train) // shares
        units = self.train if shares == 1 else self.train[share * size : (share + 1) * size]
        rows, people = self._places(units), {}
        if self.rows_per_group is not None and self.records.empty is not None:
            rows = rows[~self.records.empty[rows]]  # a fit creates its own empty places
            people = {"groups": rows // self.rows_per_group}
        return take(self.records.X, rows), self.records.y[rows], people

    def _places(self, units: Indices) -> Indices:
        """Return all places of these units."""
        k = self.rows_per_group or 1
        return (units[:, None] * k + np.arange(k)).ravel()
