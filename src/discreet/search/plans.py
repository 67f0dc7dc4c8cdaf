"""Ways to choose among candidates, each calibrated before any data is seen.

``TriesPlan`` draws a candidate at random, trains it and scores it with noise, a random number of times, and releases
the best. ``SplitPlan`` trains every candidate on one part of the records and chooses one by the exponential mechanism
on the other part. ``OnePlan`` trains the only candidate on all records. Proofs: docs/proofs/selection.md.

A score is an integer per held-out record, between 0 and a public unit. Integers add up exactly, so the sensitivity of
a total is exactly that of one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline

from discreet.estimators.linear import PrivateLinearModel
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.repetition import below, draw_tries
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.repetition import TriesLaw
from discreet.privacy.events import Composed, Discretized, Event, Gaussian, OneOf
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.privacy.page import ShowsPlan
from discreet.privacy.statement import Stated
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


PlanCandidate = Callable[[int, Guarantee, int], Event]  # (candidate, guarantee, records) -> event of its fit
Training = Literal["composed", "parallel"]

_CLOSE = 1e-3  # relative waste of epsilon at which the search stops
_MIN_SHARE = 1e-3  # smallest share of epsilon for a fit


class SelectionPlan(Stated, Protocol):
    """Interface of all plans."""

    @property
    def fit_guarantee(self) -> Guarantee: ...
    def run(self, trainer: Trainer, entropy: Entropy) -> Chosen:
        """Choose and train. Only the chosen model may be inspected."""
        ...


P = TypeVar("P", bound=SelectionPlan)


@dataclass(frozen=True)
class TriesPlan(ShowsPlan):
    """A random number of tries, each a fit on one part of the records and a noisy score on the other.

    Attributes
    ----------
    guarantee : guarantee of the whole search.
    fit_guarantee : guarantee of one try.
    law : distribution of the number of tries.
    fits : event of every candidate's fit.
    score_multiplier : noise of the score over its sensitivity.
    max_rows : maximum number of rows per person; 1 if records are protected.
    """

    guarantee: Guarantee
    fit_guarantee: Guarantee
    law: TriesLaw
    fits: tuple[Event, ...]
    score_multiplier: float
    max_rows: int = 1

    theorem = "random number of tries (Liu and Talwar, 2019; Papernot and Steinke, 2022): docs/proofs/selection.md, 3"

    @property
    def score(self) -> GaussianMechanism | LaplaceMechanism:
        """The noisy score: a record changes the right answers by at most 1, a person by ``max_rows``."""
        moved = float(self.max_rows)
        if self.guarantee.delta == 0:
            return LaplaceMechanism(Sensitivity(moved, norm=1), self.score_multiplier, 1)
        return GaussianMechanism(Sensitivity(moved), self.score_multiplier, 1)

    @property
    def event(self) -> Event:
        """The event, charged once."""
        promise = self.guarantee
        parts = tuple(dict.fromkeys((*self.fits, self.score.event)))
        one = OneOf(parts, promise.delta, promise.neighboring.value)
        return self.law.event(one, promise.delta, promise.neighboring)

    @property
    def mechanism(self) -> str:
        return (
            f"best of a secret number of tries, {self.law.mean:.4g} expected; every try trains one of {len(self.fits)} "
            "candidates, drawn at random, and scores it on held-out records with noise"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "candidates": float(len(self.fits)),
            "expected tries": self.law.mean,
            "epsilon of one try": self.fit_guarantee.epsilon,
            "delta of one try": self.fit_guarantee.delta,
            "score noise (records)": self.max_rows * self.score_multiplier,
            "law of the number of tries": f"{self.law.law}, shape {self.law.shape:g}, scale {self.law.scale:.6g}",
        }

    def run(self, trainer: Trainer, entropy: Entropy) -> Chosen:
        """Draw the number of tries, run them and keep the best; ties go to the first."""
        best: Chosen | None = None
        for _ in range(draw_tries(self.law, entropy)):
            index = below(len(self.fits), entropy)
            model = trainer.fitted(index, self.fits[index])
            score = float(self.score.release([trainer.score(model)], entropy)[0])
            if best is None or best.score is None or score > best.score:
                best = Chosen(index, model, score)
        assert best is not None
        return best


def plan_tries(
    plan_candidate: PlanCandidate,
    n_candidates: int,
    n_train: int,
    guarantee: Guarantee,
    law: TriesLaw,
    max_rows: int,
) -> TriesPlan:
    """Return the plan with the largest budget of one try that meets the guarantee."""

    def planned(epsilon: float) -> TriesPlan:
        one = replace(guarantee, epsilon=epsilon, delta=guarantee.delta / law.mean)
        fits = tuple(plan_candidate(index, one, n_train) for index in range(n_candidates))
        multiplier = 1 / epsilon
        if guarantee.delta > 0:
            multiplier = calibrate(lambda m: Discretized(Gaussian(m), 1), one)
        return TriesPlan(guarantee, one, law, fits, multiplier, max_rows)

    return _largest(planned, guarantee)


@dataclass(frozen=True)
class SplitPlan(ShowsPlan):
    """Candidates trained on one part of the records, one of them chosen on the other.

    Attributes
    ----------
    guarantee : guarantee of the whole search, and of either part.
    fit_guarantee : guarantee of one candidate's fit.
    fits : event of every candidate's fit.
    training : "composed": all candidates on all training records; "parallel": each on its own records.
    max_rows : maximum number of rows per person; 1 if records are protected.
    """

    guarantee: Guarantee
    fit_guarantee: Guarantee
    fits: tuple[Event, ...]
    training: Training
    max_rows: int = 1

    theorem = "disjoint parts and the exponential mechanism: docs/proofs/selection.md, sections 1 and 5"

    @property
    def choice(self) -> ExponentialMechanism:
        """The exponential mechanism on numbers of right answers.

        Replacing a record changes each by at most 1, possibly in opposite directions; blanking it lowers all. With
        several rows per person, each row adds as much.
        """
        moved = float(self.max_rows * self.guarantee.neighboring.contributions)
        return ExponentialMechanism(moved, self.guarantee.epsilon, len(self.fits))

    @property
    def event(self) -> Event:
        """The event, charged once: a record is used for training or for choosing, never both."""
        composed = self.training == "composed"
        trained = (Composed(self.fits),) if composed else tuple(dict.fromkeys(self.fits))
        return OneOf((*trained, self.choice.event), self.guarantee.delta, self.guarantee.neighboring.value)

    @property
    def mechanism(self) -> str:
        shared = "the same records" if self.training == "composed" else "disjoint records"
        return f"{len(self.fits)} candidates trained on {shared}, one chosen by the exponential mechanism on others"

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "candidates": float(len(self.fits)),
            "epsilon of one fit": self.fit_guarantee.epsilon,
            "delta of one fit": self.fit_guarantee.delta,
            "Gumbel scale of the choice (records)": self.choice.scale,
        }

    def run(self, trainer: Trainer, entropy: Entropy) -> Chosen:
        """Train all candidates and choose one."""
        share = len(self.fits) if self.training == "parallel" else 1
        models = [trainer.fitted(index, event, share) for index, event in enumerate(self.fits)]
        index = self.choice.select([trainer.score(model) for model in models], entropy)
        return Chosen(index, models[index], None)


def plan_split(
    plan_candidate: PlanCandidate,
    n_candidates: int,
    n_train: int,
    guarantee: Guarantee,
    training: Training,
    max_rows: int,
) -> SplitPlan:
    """Return the plan with the largest budget of one fit that meets the guarantee."""

    def planned(epsilon: float) -> SplitPlan:
        one = replace(guarantee, epsilon=epsilon, delta=guarantee.delta)
        units = n_train // max_rows
        n_each = max_rows * (units if training == "composed" else units // n_candidates)
        fits = tuple(plan_candidate(index, one, n_each) for index in range(n_candidates))
        return SplitPlan(guarantee, one, fits, training, max_rows)

    return _largest(planned, guarantee)


@dataclass(frozen=True)
class OnePlan(ShowsPlan):
    """The only candidate, trained on all records with the whole guarantee: nothing is compared, so nothing held out.

    Attributes
    ----------
    guarantee : guarantee of the search and of the fit.
    event : event of the fit.
    """

    guarantee: Guarantee
    event: Event

    mechanism = "one fit of the only candidate on all records; there is nothing to choose"
    theorem = "that of the fit: docs/proofs/selection.md, section 5"

    @property
    def fit_guarantee(self) -> Guarantee:
        """The whole guarantee."""
        return self.guarantee

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {"candidates": 1.0}

    def run(self, trainer: Trainer, entropy: Entropy) -> Chosen:
        """Train the candidate."""
        return Chosen(0, trainer.fitted(0, self.event), None)


def _largest(planned: Callable[[float], P], guarantee: Guarantee) -> P:
    """Return the plan with the largest budget of one fit that meets the guarantee, to within a thousandth."""

    def meets(plan: P) -> bool:
        price = accountants.epsilon(plan.event, guarantee.delta, guarantee.neighboring)
        return price <= guarantee.epsilon

    # Slightly below, because the inverse of a profile is rounded up.
    whole = planned(guarantee.epsilon * (1 - 1e-9))
    if meets(whole):  # disjoint parts, each with the whole budget
        return whole
    low, high = _MIN_SHARE * guarantee.epsilon, guarantee.epsilon
    best = planned(low)
    if not meets(best):
        raise ValueError(
            f"epsilon = {guarantee.epsilon:g} is too small for so many tries or candidates: not even "
            f"epsilon = {low:g} for each fits; raise epsilon, or compare fewer candidates"
        )
    while high - low > _CLOSE * high:
        middle = planned((low + high) / 2)
        if meets(middle):
            best, low = middle, middle.fit_guarantee.epsilon
        else:
            high = middle.fit_guarantee.epsilon
    return best
