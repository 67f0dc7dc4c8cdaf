"""Evaluate a released model on private records: validate, plan, charge, run, state."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from discreet import _inputs
from discreet.estimators import _cells, _fit
from discreet.evaluation.estimates import Noise
from discreet.evaluation.plans import Codes, CountPlan, SumPlan
from discreet.evaluation.predictions import Answers, answers
from discreet.evaluation.report import Evaluation, calibration_of, classifier_metrics, regressor_metrics
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee, refuse_large_default
from discreet.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger


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
    calibration of probabilities rounded to ``bins`` equal bins. Regressors: R^2 and mean squared error.

    Parameters
    ----------
    model : a fitted model that is already released; anything with ``predict``, pipelines included.
    X, y : private records the model was not trained on, or the interval is about training data. ``X`` is whatever
        the model takes; the order of a frame's columns is the model's to check.
    epsilon, delta, neighboring : the price of the whole evaluation; delta None is 1 / n_samples**2, which needs 32
        records, delta 0 gives Laplace noise.
    confidence : of each interval, for noise and sampling together.
    groups : one value per record, for metrics of subgroups.
    group_values : the public list of subgroups; records of others are counted in no subgroup's metrics.
    target_bounds : lowest and highest target, for regressors; None takes the model's.
    n_samples : public upper bound on the number of rows, under "add-remove-one".
    ledger : charged when the model has answered and all inputs are found to be in order, before anything is released.
    bad_rows : {"error", "null"}
        What to do with rows that the model refuses, whose label or target is none, or whose prediction is none. "null"
        leaves them out silently. It reads frames and arrays of numbers, and tables for a pipeline that begins with a
        `SchemaEncoder`; other cells count as no numbers.

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
    strict = bad_rows == "error"
    targets = _inputs.cells(y)
    if targets.ndim != 1:
        raise ValueError(f"y must hold one value per row, got an array of shape {targets.shape}")
    guarantee, size = _fit.guarantee_of(epsilon, delta, neighboring, len(targets), n_samples)
    refuse_large_default(delta, size)
    values, codes = _group_codes(groups, group_values, len(targets))
    given = (
        f"the number of records, {size}, is public"
        if guarantee.neighboring.size_is_public
        else f"{size} is a public upper bound on the number of records (given by the user)",
    )
    answered = answers(model, X, len(targets), strict=strict, alone=not guarantee.neighboring.size_is_public)
    shared = (answered, targets, strict, values, codes, confidence, ledger, given, guarantee)
    if hasattr(model, "classes_"):
        return _classifier(n_bins, *shared)
    return _regressor(_target_range(model, target_bounds), *shared)


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


def _classifier(
    n_bins: int,
    answered: Answers,
    targets: NDArray[Any],
    strict: bool,
    values: list[Any],
    groups: Codes,
    confidence: float,
    ledger: Any,
    given: tuple[str, ...],
    guarantee: Guarantee,
) -> Evaluation:
    labels = _fit.read_labels(targets, answered.model.classes_, "error" if strict else "null")
    classes, truth = labels.classes, labels.codes
    predicted = answered.codes(classes, strict=strict)
    usable = answered.usable & (truth >= 0) & (predicted >= 0)
    k, n_parts = len(classes), len(values) + 1 if values else 1
    chance = answered.chances(classes[1], strict=strict) if k == 2 else None
    shapes: tuple[tuple[int, ...], ...] = ((n_parts, k, k),)
    if chance is not None:
        usable &= np.isfinite(chance)
        shapes += ((n_parts, 2, n_bins),)
    plan = CountPlan(guarantee, shapes)
    _fit.charge(ledger, plan, label="evaluate")
    entropy = fresh_entropy()
    cells: tuple[Codes, ...] = (((groups * k + truth) * k + predicted)[usable],)
    if chance is not None:
        bin_of = np.clip(np.floor(np.nan_to_num(chance) * n_bins), 0, n_bins - 1).astype(np.int64)
        cells += (((groups * 2 + truth) * n_bins + bin_of)[usable],)
    tables = plan.run(cells, entropy)
    noise = Noise.of(plan.variance, confidence, guarantee.delta > 0)
    scores = None if chance is None else tables[1]
    whole = None if scores is None else scores.sum(axis=0)
    by_group = {
        value: classifier_metrics(tables[0][g], None if scores is None else scores[g], classes, noise)
        for g, value in enumerate(values)
    }
    return Evaluation(
        classifier_metrics(tables[0].sum(axis=0), whole, classes, noise, n_parts),
        by_group,
        tables[0].sum(axis=0),
        () if whole is None else calibration_of(whole, noise, n_parts),
        classes,
        confidence,
        _state(plan, given, entropy.secure),
    )


def _target_range(model: Any, target_bounds: Any) -> tuple[float, float]:
    """Middle and half width of the targets that are possible."""
    if target_bounds is None:
        last = model[-1] if isinstance(model, Pipeline) else model
        target_bounds = getattr(last, "target_bounds", None)
    if target_bounds is None:
        raise ValueError("target_bounds must be declared: (lowest, highest) target that is possible")
    low, high = (_inputs.real("target_bounds", bound) for bound in target_bounds)
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    if not half > 0:
        raise ValueError(f"target_bounds must be (lowest, highest) with lowest < highest, got {(low, high)}")
    return middle, half


def _regressor(
    target_range: tuple[float, float],
    answered: Answers,
    targets: NDArray[Any],
    strict: bool,
    values: list[Any],
    groups: Codes,
    confidence: float,
    ledger: Any,
    given: tuple[str, ...],
    guarantee: Guarantee,
) -> Evaluation:
    middle, half = target_range
    y = _inputs.to_numbers(targets)
    if strict and not np.all(finite := np.isfinite(y)):
        _cells.refuse_target(int(np.argmin(finite)))
    predicted = answered.numbers(strict=strict)
    usable = answered.usable & np.isfinite(y) & np.isfinite(predicted)
    n_parts = len(values) + 1 if values else 1
    plan = SumPlan(guarantee, n_parts)
    _fit.charge(ledger, plan, label="evaluate")
    entropy = fresh_entropy()
    with np.errstate(all="ignore"):
        y, predicted = (np.clip((part - middle) / half, -1.0, 1.0) for part in (y, predicted))
    sums = plan.run(y[usable], (y - predicted)[usable], groups[usable], entropy)
    noise = Noise.of(plan.variance, confidence, guarantee.delta > 0)
    return Evaluation(
        regressor_metrics(sums.sum(axis=0), noise, half, n_parts),
        {value: regressor_metrics(sums[g], noise, half) for g, value in enumerate(values)},
        None,
        (),
        None,
        confidence,
        _state(plan, given, entropy.secure),
    )


def _state(plan: CountPlan | SumPlan, given: tuple[str, ...], secure: bool) -> PrivacyStatement:
    return PrivacyStatement.of(
        plan,
        assumptions=(*given, _fit.unit_assumption(plan.guarantee), *_ASSUMPTIONS),
        not_covered=_NOT_COVERED,
        secure=secure,
    )


_ASSUMPTIONS = (
    "the model is released, or private in itself: only the records it is evaluated on are protected here",
    "the model answers for each record from that record alone (given by the user)",
    "the subgroups, the bins and the target bounds were declared without looking at the private data",
    *_fit.PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = (
    "how long the evaluation took and how much memory it used",
    "other releases from the same data: their costs add up, which is what a ledger is for",
)
