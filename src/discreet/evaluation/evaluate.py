"""Evaluate a released model on private records: validate, plan, charge, run, state."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from discreet import _inputs
from discreet.estimators import _cells, _fit
from discreet.evaluation.estimates import Noise
from discreet.evaluation.plans import Codes, CountPlan, SumPlan
from discreet.evaluation.predictions import Answers, answers
from discreet.evaluation.report import (
    Evaluation,
    calibration_of,
    centers,
    classifier_metrics,
    regressor_metrics,
)
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee, refuse_large_default
from discreet.privacy.statement import OTHER_RELEASES, PrivacyStatement

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger

MOST_BINS = 10_000


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    neighboring: str = "replace-one",
    confidence: float = 0.95,
    bins: int = 20,
    groups: Any = None,
    group_values: Any = None,
    target_bounds: tuple[float, float] | None = None,
    n_samples: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    bad_rows: str = "error",
) -> Evaluation:
    """Metrics of a released model on private held-out records, with noise and confidence intervals.

    Classifiers: accuracy, recall, precision, confusion matrix and, for two classes with ``predict_proba``, AUC and
    calibration of probabilities rounded to ``bins`` equal bins, and the mean of probabilities, not rounded, minus the
    observed share. Regressors: R^2 and mean squared error.

    Parameters
    ----------
    model : a fitted model that is already released; anything with ``predict``, pipelines included.
    X, y : private records the model was not trained on, or the interval is about training data. ``X`` is whatever
        the model takes; the order of a frame's columns is the model's to check.
    epsilon, delta, neighboring : the price of the whole evaluation; delta None is 1 / n_samples**2, which needs 32
        records, delta 0 gives Laplace noise.
    confidence : of each interval, for noise and sampling together.
    bins : of probabilities, from 2 to 10,000.
    groups : one value per record, for metrics of subgroups.
    group_values : the public list of subgroups; records of others are counted in no subgroup's metrics.
    target_bounds : lowest and highest target, for regressors; None takes those of the model, of a pipeline's last step
        or of the model that a search chose.
    n_samples : public upper bound on the number of rows, under "add-remove-one".
    ledger : charged when the model has answered and all inputs are found to be in order, before anything is released.
    bad_rows : {"error", "null"}
        What to do with rows that the model refuses, whose label or target is none, or whose prediction is none. "null"
        leaves them out silently, and rows with an entry beyond 2**300 too. It reads frames and arrays of numbers, and
        tables for a pipeline that begins with a `SchemaEncoder`; other cells count as no numbers.

    Privacy
    -------
    (epsilon, delta)-DP of all metrics together, subgroups included: docs/proofs/evaluation.md. Intervals are functions
    of the released counts and cost nothing. One row per person.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression, evaluate
    >>> X = np.random.default_rng(0).normal(size=(40_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> model = PrivateLogisticRegression(classes=[0, 1]).fit(X[:30_000], y[:30_000])
    >>> result = evaluate(model, X[30_000:], y[30_000:], epsilon=0.5)
    >>> bool(result["accuracy"].value > 0.9), result.privacy_.epsilon
    (True, 0.5)
    """
    bad_rows = _inputs.choice("bad_rows", bad_rows, ("error", "null"))
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    n_bins = _inputs.count("bins", bins, at_least=2)
    if n_bins > MOST_BINS:
        raise ValueError(
            f"bins must be at most {MOST_BINS}, got {bins}: each is counted with noise of its own"
        )
    strict = bad_rows == "error"
    targets = _inputs.cells(y)
    if targets.ndim != 1:
        raise ValueError(f"y must hold one value per row, got an array of shape {targets.shape}")
    guarantee, size = _fit.guarantee_of(epsilon, delta, neighboring, len(targets), n_samples)
    refuse_large_default(delta, size)
    values, codes = _group_codes(groups, group_values, len(targets))
    answered = answers(model, X, len(targets), strict=strict, alone=not guarantee.neighboring.size_is_public)
    asked = _Asked(answered, targets, strict, values, codes, confidence, ledger, guarantee, size)
    if hasattr(model, "classes_"):
        return _classifier(asked, n_bins)
    return _regressor(asked, *_target_range(model, target_bounds))


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is asked of an evaluation and found to be in order; lives only while it runs.

    Attributes
    ----------
    answered, targets : what the model says of every record, and what is true.
    strict : whether bad records are refused.
    values, groups : the public subgroups, and the place of every record's own among them.
    size : the public number of records, or a bound on it.
    """

    answered: Answers
    targets: NDArray[Any]
    strict: bool
    values: list[Any]
    groups: Codes
    confidence: float
    ledger: Any
    guarantee: Guarantee
    size: int

    @property
    def n_parts(self) -> int:
        """Number of disjoint parts of the records: the subgroups and the rest, if there are any."""
        return len(self.values) + 1 if self.values else 1

    def noise_of(self, plan: CountPlan | SumPlan) -> Noise:
        """What intervals must know of a plan's noise."""
        return Noise.of(plan.variance, self.confidence, self.guarantee.delta > 0)

    def state(self, plan: CountPlan | SumPlan, secure: bool) -> PrivacyStatement:
        """The promise of the evaluation."""
        given = (
            f"the number of records, {self.size}, is public"
            if self.guarantee.neighboring.size_is_public
            else f"{self.size} is a public upper bound on the number of records (given by the user)"
        )
        return PrivacyStatement.of(
            plan,
            assumptions=(given, _fit.unit_assumption(plan.guarantee), *_ASSUMPTIONS),
            not_covered=_NOT_COVERED,
            secure=secure,
        )


def _group_codes(groups: Any, group_values: Any, n_rows: int) -> tuple[list[Any], Codes]:
    """The public subgroups and, for every record, the number of its own; one beyond the last for all others."""
    if groups is None:
        return [], np.zeros(n_rows, dtype=np.int64)
    if group_values is None:
        raise ValueError(
            "group_values must list the public subgroups: which of them occur in the data is private"
        )
    labels, values = _inputs.cells(groups), list(group_values)
    if labels.shape != (n_rows,) or not values or len(set(values)) != len(values):
        raise ValueError("groups must hold one value per row, and group_values different values")
    codes = _cells.codes(labels, np.array(values, dtype=object))
    return values, np.where(codes < 0, len(values), codes)


def _classifier(asked: _Asked, n_bins: int) -> Evaluation:
    answered, n_parts = asked.answered, asked.n_parts
    labels = _fit.read_labels(asked.targets, answered.model.classes_, "error" if asked.strict else "null")
    classes, k = labels.classes, len(labels.classes)
    predicted = answered.codes(classes, strict=asked.strict)
    usable = answered.usable & (labels.codes >= 0) & (predicted >= 0)
    chance = answered.chances(classes[1], strict=asked.strict) if k == 2 else None
    plan = CountPlan(asked.guarantee, ((n_parts, k, k),))
    if chance is not None:
        usable &= np.isfinite(chance)
        plan = CountPlan(asked.guarantee, (*plan.shapes, (n_parts, 2, n_bins)), n_parts, 0.5 / n_bins)
    _fit.charge(asked.ledger, plan, label="evaluate")
    entropy = fresh_entropy()
    groups, truth = asked.groups[usable], labels.codes[usable]
    cells: tuple[Codes, ...] = ((groups * k + truth) * k + predicted[usable],)
    if chance is None:
        tables = plan.run(cells, entropy)
    else:
        chance = np.clip(chance[usable], 0.0, 1.0)
        bin_of = np.minimum(np.floor(chance * n_bins), n_bins - 1).astype(np.int64)
        cells += ((groups * 2 + truth) * n_bins + bin_of,)
        tables = plan.run(cells, entropy, (groups, chance - centers(n_bins)[bin_of]))
    noise, whole = asked.noise_of(plan), [table.sum(axis=0) for table in tables]
    return Evaluation(
        classifier_metrics(classes, noise, n_parts, *whole),
        {
            value: classifier_metrics(classes, noise, 1, *(table[g] for table in tables))
            for g, value in enumerate(asked.values)
        },
        whole[0],
        () if chance is None else calibration_of(whole[1], noise, n_parts),
        classes,
        asked.confidence,
        asked.state(plan, entropy.secure),
    )


def _target_range(model: Any, target_bounds: Any) -> tuple[float, float]:
    """Middle and half width of the targets that are possible."""
    if target_bounds is None:
        target_bounds = getattr(_innermost(model), "target_bounds", None)
    if target_bounds is None:
        raise ValueError("target_bounds must be declared: (lowest, highest) target that is possible")
    low, high = _inputs.interval("target_bounds", target_bounds)
    return low / 2 + high / 2, high / 2 - low / 2


def _innermost(model: Any) -> Any:
    """What predicts in the end: the last step of a pipeline, the model that a search chose."""
    if isinstance(model, Pipeline):
        return _innermost(model[-1])
    return _innermost(model.best_estimator_) if hasattr(model, "best_estimator_") else model


def _regressor(asked: _Asked, middle: float, half: float) -> Evaluation:
    answered, n_parts = asked.answered, asked.n_parts
    y = _inputs.to_numbers(asked.targets)
    if asked.strict and not np.all(finite := np.isfinite(y)):
        _cells.refuse_target(int(np.argmin(finite)))
    predicted = answered.numbers(strict=asked.strict)
    usable = answered.usable & np.isfinite(y) & np.isfinite(predicted)
    plan = SumPlan(asked.guarantee, n_parts)
    _fit.charge(asked.ledger, plan, label="evaluate")
    entropy = fresh_entropy()
    with np.errstate(all="ignore"):
        y, predicted = (np.clip((part - middle) / half, -1.0, 1.0) for part in (y, predicted))
    sums = plan.run(y[usable], (y - predicted)[usable], asked.groups[usable], entropy)
    noise = asked.noise_of(plan)
    return Evaluation(
        regressor_metrics(sums.sum(axis=0), noise, half, n_parts),
        {value: regressor_metrics(sums[g], noise, half) for g, value in enumerate(asked.values)},
        None,
        (),
        None,
        asked.confidence,
        asked.state(plan, entropy.secure),
    )


_ASSUMPTIONS = (
    "the model is released, or private in itself: only the records it is evaluated on are protected here",
    "the model answers for each record from that record alone (given by the user)",
    "the subgroups, the bins and the target bounds were declared without looking at the private data",
    *_fit.PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = (
    "how long the evaluation took and how much memory it used",
    OTHER_RELEASES,
)
