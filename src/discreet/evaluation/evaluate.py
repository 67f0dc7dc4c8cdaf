"""Evaluate a released model on private records: validate, plan, charge, run, state."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from discreet import _checks
from discreet._checks import ParameterError, calm
from discreet._typing import Array
from discreet.estimators.groups import bounded_rows
from discreet.estimators.pipelines import SchemaEncoder
from discreet.estimators.regressors import FIND_BOUNDS
from discreet.evaluation.estimates import Estimate, Noise
from discreet.evaluation.plans import Codes, CountPlan, SumPlan
from discreet.evaluation.predictions import Answers, answers, opened, taken
from discreet.evaluation.report import (
    Evaluation,
    areas,
    calibration_of,
    centers,
    classifier_metrics,
    regressor_metrics,
)
from discreet.privacy.guarantee import Guarantee, guarantee_of, refuse_large_default, relation_of
from discreet.privacy.statement import OTHER_RELEASES, PrivacyStatement
from discreet.records.open import check_people, class_codes, read_labels, refuse_target
from discreet.release import PLATFORM_ASSUMPTIONS, Carried, carry_out, check_unit, size_facts, unit_assumption
from discreet.tables.reading import as_cells, to_numbers

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger

MOST_BINS = 10_000
MOST_SCORED = 10  # classes; each has a table of its own, and with more the noise hides all areas


@calm()
def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    target: str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    neighboring: str = "replace-one",
    confidence: float = 0.95,
    bins: int = 20,
    by: Any = None,
    by_values: Any = None,
    groups: Any = None,
    max_rows_per_group: int | None = None,
    target_bounds: tuple[float, float] | None = None,
    n_samples: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    bad_rows: str = "error",
    group_values: Any = None,
) -> Evaluation:
    """Compute metrics of a released model on private held-out records, with noise and confidence intervals.

    Classifiers: accuracy, recall, precision, confusion matrix and, with ``predict_proba``, AUC of probabilities rounded
    to ``bins`` equal bins. For two classes also the calibration, and the mean of the exact probabilities minus the
    observed frequency; for up to ten classes the AUC of each against the rest, and their mean. Regressors: R^2 and mean
    squared error.

    Parameters
    ----------
    model : a fitted model that is already released; anything with ``predict``, pipelines included.
    X, y : private records that the model was not trained on (otherwise the interval is about training data). ``X`` is
        whatever the model takes; the order of a frame's columns is the model's to check. Or a source, such as a folder
        or a query (docs/scale.md), which the model is asked about block by block.
    target : name of the column of labels, if they are a column of X.
    epsilon, delta, neighboring : privacy budget and relation of the whole evaluation; delta None is 1 / n_samples**2,
        which needs 32 records, delta 0 gives Laplace noise.
    confidence : confidence of each interval, for noise and sampling together.
    bins : number of bins of probabilities, from 2 to 10,000.
    by : one value per record, for metrics of subgroups.
    by_values : the public list of subgroups; other records count in no subgroup's metrics.
    groups : ids of people, one per row; the guarantee then covers all rows of a person. None protects single rows,
        and is refused for a model that was fitted with groups.
    max_rows_per_group : how many rows of one person count, required with ``groups``; the noise grows by this factor.
        Choose it without looking at the data. The rows that count are drawn for each person separately.
    target_bounds : lowest and highest target, for regressors; None takes those of the model, of a pipeline's last step
        or of the model that a search chose.
    n_samples : public upper bound on the number of rows, under "add-remove-one".
    ledger : charged after the model has predicted and all inputs are checked, before anything is released.
    bad_rows : {"error", "null"}
        What to do with rows that the model refuses or that have no valid label, target or prediction. "null" skips them
        silently, also rows with an entry beyond 2**300. It reads frames and arrays of numbers, and tables for a
        pipeline that starts with a `SchemaEncoder`; other cells count as missing.
    group_values : refused; use ``by`` and ``by_values`` for subgroups.

    Returns
    -------
    Evaluation
        Metrics by name (``result["accuracy"]``), each with its interval; those of subgroups in ``by_group``; the
        statement as ``privacy_``; a page by ``to_html``.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of all metrics together, including subgroups: docs/proofs/evaluation.md. Intervals are
    functions of the released counts and cost nothing. Unit: one row or, with ``groups``, all rows of a person.

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
    bad_rows = _checks.choice("bad_rows", bad_rows, ("error", "null"))
    if not 0 < confidence < 1:
        raise ParameterError("confidence", f"must lie strictly between 0 and 1, got {confidence!r}")
    n_bins = _checks.count("bins", bins, at_least=2)
    if n_bins > MOST_BINS:
        raise ParameterError(
            "bins", f"must be at most {MOST_BINS}, got {bins}: each is counted with noise of its own"
        )
    strict = bad_rows == "error"
    if group_values is not None:
        raise ValueError(
            "groups now takes person ids, whose rows are protected together; for metrics of subgroups pass "
            "by=... and by_values=... instead of groups and group_values"
        )
    check_unit(_innermost(model), groups)
    _check_schema(model, groups)
    check_people(X, groups)
    if target_bounds is None:
        target_bounds = getattr(_innermost(model), "target_bounds", None)
    with opened(model, X, y, target, bad_rows, target_bounds) as (model, X, y, storage):
        targets = as_cells(y)
        if targets.ndim != 1:
            raise ParameterError("y", f"must hold one value per row, got an array of shape {targets.shape}")
        values, parts = _subgroups(by, by_values, len(targets))
        relation = relation_of(neighboring)
        rows = _checks.count_or_none("max_rows_per_group", max_rows_per_group)
        # If the number of people is public, each has the same number of places: this reveals nothing more.
        slots = bounded_rows(groups, rows, len(targets), strict=strict, padded=relation.size_is_public)
        if slots is not None:
            X, targets, parts = taken(X, slots.rows), targets[slots.rows], parts[slots.rows]
        guarantee, size = guarantee_of(epsilon, delta, neighboring, len(targets), n_samples)
        refuse_large_default(delta, size)
        answered = answers(model, X, len(targets), strict=strict, alone=not relation.size_is_public)
        if slots is not None:
            guarantee = replace(guarantee, unit="user")
            answered = replace(answered, usable=answered.usable & ~slots.empty)
        asked = _Asked(
            answered, targets, strict, values, parts, confidence, ledger, guarantee, size, rows, storage
        )
        if hasattr(model, "classes_"):
            return _classifier(asked, n_bins)
        return _regressor(asked, *_target_range(target_bounds))


@dataclass(frozen=True, eq=False)
class _Asked:
    """A checked request for an evaluation; exists only while it runs.

    Attributes
    ----------
    answered, targets : the model's predictions and the truth for every record.
    strict : whether bad records are refused.
    values, parts : the public subgroups, and the index of every record's own.
    size : public number of records, or a bound on it; places for people's rows, if people are protected.
    rows_per_group : maximum number of rows per person; None if rows are protected.
    storage : what the guarantee assumes about where the records come from.
    """

    answered: Answers
    targets: NDArray[Any]
    strict: bool
    values: list[Any]
    parts: Codes
    confidence: float
    ledger: Any
    guarantee: Guarantee
    size: int
    rows_per_group: int | None
    storage: tuple[str, ...]

    @property
    def n_parts(self) -> int:
        """Number of disjoint parts of the records: the subgroups and the rest, or 1 without subgroups."""
        return len(self.values) + 1 if self.values else 1

    @property
    def rows(self) -> int:
        """Maximum number of rows of the protected unit."""
        return 1 if self.rows_per_group is None else self.rows_per_group

    def noise_of(self, plan: CountPlan | SumPlan) -> Noise:
        """Return a plan's noise in the form that intervals need."""
        return Noise(plan.variance, self.confidence, self.guarantee.delta > 0, self.rows)

    def state(self, plan: CountPlan | SumPlan, carried: Carried[Any]) -> PrivacyStatement:
        """Return the privacy statement of the evaluation."""
        (given,) = size_facts(
            self.guarantee.neighboring, self.size, self.rows_per_group, plan.guarantee.delta
        )
        return carried.state(
            assumptions=(given, *self.storage, unit_assumption(plan.guarantee), *_ASSUMPTIONS),
            not_covered=_NOT_COVERED,
        )

    def bound(self, found: Evaluation, plan: CountPlan | SumPlan, carried: Carried[Any]) -> Evaluation:
        """Return the report with the charge bound to it."""
        return replace(found, privacy_=self.state(plan, carried.binding(found.released_)))


def _subgroups(by: Any, by_values: Any, n_rows: int) -> tuple[list[Any], Codes]:
    """Return the public subgroups and, for every record, the index of its own; one beyond the last for all others."""
    if by is None:
        return [], np.zeros(n_rows, dtype=np.int64)
    if by_values is None:
        raise ParameterError(
            "by_values", "must list the public subgroups, because which of them occur in the data is private"
        )
    labels, values = as_cells(by), list(by_values)
    if labels.shape != (n_rows,) or not values or len(set(values)) != len(values):
        raise ParameterError("by", "must hold one value per row, and by_values different values")
    codes = class_codes(labels, np.array(values, dtype=object))
    return values, np.where(codes < 0, len(values), codes)


def _classifier(asked: _Asked, n_bins: int) -> Evaluation:
    answered, n_parts = asked.answered, asked.n_parts
    labels = read_labels(asked.targets, answered.model.classes_, "error" if asked.strict else "null")
    classes, k = labels.classes, len(labels.classes)
    predicted = answered.codes(classes, strict=asked.strict)
    usable = answered.usable & (labels.codes >= 0) & (predicted >= 0)
    scored = classes[1:] if k == 2 else classes  # two classes need one score
    chances = answered.chances(scored, strict=asked.strict) if k <= MOST_SCORED else None
    plan = CountPlan(asked.guarantee, ((n_parts, k, k),), max_rows=asked.rows)
    if chances is not None:
        usable &= np.isfinite(chances).all(axis=1)
        plan = _with_scores(plan, len(scored), n_bins)
    parts, truth = asked.parts[usable], labels.codes[usable]
    cells: tuple[Codes, ...] = ((parts * k + truth) * k + predicted[usable],)
    remainders: tuple[Codes, Array] | None = None
    if chances is not None:
        chances = np.clip(chances[usable], 0.0, 1.0)
        bins_of = np.minimum(np.floor(chances * n_bins), n_bins - 1).astype(np.int64)
        positive = truth[:, None] == np.arange(k)[-len(scored) :]
        cells += tuple(((parts[:, None] * 2 + positive) * n_bins + bins_of).T)
        if k == 2:
            remainders = parts, chances[:, 0] - centers(n_bins)[bins_of[:, 0]]
    carried = carry_out(plan, (cells, remainders), asked.ledger, "evaluate")
    tables = carried.release
    noise, whole = asked.noise_of(plan), [table.sum(axis=0) for table in tables]

    def metrics(cells: int, confusion: Array, *scores: Any) -> dict[str, Estimate]:
        if k == 2 or not scores:
            return classifier_metrics(classes, noise, cells, confusion, *scores)
        of_scores = noise.times(cells / plan.weights[-1] ** 2)
        return classifier_metrics(classes, noise, cells, confusion) | areas(classes, of_scores, scores)

    found = Evaluation(
        metrics(n_parts, *whole),
        {value: metrics(1, *(table[g] for table in tables)) for g, value in enumerate(asked.values)},
        whole[0],
        calibration_of(whole[1], noise, n_parts) if k == 2 and chances is not None else (),
        classes,
        asked.confidence,
        asked.state(plan, carried),
    )
    return asked.bound(found, plan, carried)


def _with_scores(plan: CountPlan, n_scores: int, n_bins: int) -> CountPlan:
    """Return the plan with a table of true class by bin for each score; together they weigh about as much as one."""
    (confusion,), weight = plan.shapes, 2.0 ** -math.ceil(math.log2(n_scores) / 2)
    shapes = (confusion, *[(confusion[0], 2, n_bins)] * n_scores)
    if n_scores == 1:
        return replace(plan, shapes=shapes, n_sums=confusion[0], half_bin=0.5 / n_bins)
    return replace(plan, shapes=shapes, weights=(1.0, *[weight] * n_scores))


def _check_schema(model: Any, groups: Any) -> None:
    """Raise if single rows are to be protected although the model's schema says that a person can have several."""
    encoder = model[0] if isinstance(model, Pipeline) else None
    if groups is None and isinstance(encoder, SchemaEncoder) and encoder.schema.group is not None:
        raise ParameterError(
            "groups",
            f"must be given: the schema's group column {encoder.schema.group!r} says that a person can have several "
            "rows",
            "pass groups=schema.groups(table) and max_rows_per_group=...",
        )


def _target_range(target_bounds: Any) -> tuple[float, float]:
    """Return the middle and half width of the possible targets."""
    if target_bounds is None:
        raise ParameterError(
            "target_bounds", "must be declared: (lowest, highest) target that is possible", FIND_BOUNDS
        )
    low, high = _checks.interval("target_bounds", target_bounds)
    return low / 2 + high / 2, high / 2 - low / 2


def _innermost(model: Any) -> Any:
    """Return the model that predicts: the last step of a pipeline, or the one that a search chose."""
    if isinstance(model, Pipeline):
        return _innermost(model[-1])
    return _innermost(model.best_estimator_) if hasattr(model, "best_estimator_") else model


def _regressor(asked: _Asked, middle: float, half: float) -> Evaluation:
    answered, n_parts = asked.answered, asked.n_parts
    y = to_numbers(asked.targets)
    if asked.strict and not np.all(finite := np.isfinite(y)):
        refuse_target(int(np.argmin(finite)))
    predicted = answered.numbers(strict=asked.strict)
    usable = answered.usable & np.isfinite(y) & np.isfinite(predicted)
    plan = SumPlan(asked.guarantee, n_parts, asked.rows)
    with np.errstate(all="ignore"):
        y, predicted = (np.clip((part - middle) / half, -1.0, 1.0) for part in (y, predicted))
    summed = y[usable], (y - predicted)[usable], asked.parts[usable]
    carried = carry_out(plan, summed, asked.ledger, "evaluate")
    sums, noise = carried.release, asked.noise_of(plan)
    found = Evaluation(
        regressor_metrics(sums.sum(axis=0), noise, half, n_parts),
        {value: regressor_metrics(sums[g], noise, half) for g, value in enumerate(asked.values)},
        None,
        (),
        None,
        asked.confidence,
        asked.state(plan, carried),
    )
    return asked.bound(found, plan, carried)


_ASSUMPTIONS = (
    "the model is released, or private in itself: only the records it is evaluated on are protected here",
    "the model answers for each record from that record alone (given by the user)",
    "the subgroups, the bins and the target bounds were declared without looking at the private data",
    *PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = ("how long the evaluation took and how much memory it used", OTHER_RELEASES)
