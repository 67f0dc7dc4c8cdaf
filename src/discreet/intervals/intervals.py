"""Confidence intervals for coefficients, by private Newton steps from a released model.

A Newton step from a point near the population's minimizer lands on the sample's minimizer without regularization, up
to a bounded remainder; the privacy noise is Gaussian with a known variance. So the interval does not depend on how the
starting model was made, only on its being near. Proofs: docs/proofs/uncertainty.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ncx2
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError, Setting, calm
from discreet._typing import Array, Mask
from discreet.estimators.groups import bounded_rows
from discreet.estimators.linear import as_fitted
from discreet.intervals.newton import FAINT, NEAR, IntervalPlan, Landing, plan_intervals
from discreet.losses import Logistic, Loss, Squared
from discreet.privacy.guarantee import PrivacyWarning, guarantee_of, refuse_large_default, relation_of
from discreet.privacy.statement import PrivacyStatement
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.open import check_people, checked_rows, read_labels, take
from discreet.release import PLATFORM_ASSUMPTIONS, Carried, carry_out, check_unit, unit_assumption
from discreet.tables.reading import as_cells, to_numbers

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger


_REPEATED = (
    ". If some columns add up to a constant, as all levels of a category do, no number of records is enough: pass them "
    "as levels=, for instance schema.levels"
)
_STEPS = 3  # for the logistic loss: the starting model may be far off, and two steps left a bias


class UnsureWarning(PrivacyWarning):
    """Released numbers show that standard errors are unknown."""


@dataclass(frozen=True)
class CoefficientIntervals:
    """Estimates and intervals of a linear model's coefficients in the population the records came from.

    Attributes
    ----------
    estimate : one number per column, then the intercept if the model has one; without regularization.
    standard_error : standard error from noise and sampling together; infinite if unknown.
    noise : the part of it due to privacy noise.
    remainder : bound on the linearization error of the last step, added to the length of the intervals; 0 for the
        squared loss.
    lower, upper : ends of the intervals; where standard errors are unknown, infinite or those of a joint test.
    level : probability that one interval covers, in the limit of many records.
    doubt : why standard errors are unknown; empty otherwise.

    A reference level has no uncertainty: all its numbers are 0.
    """

    estimate: Array
    standard_error: Array
    noise: Array
    remainder: Array
    lower: Array
    upper: Array
    level: float
    doubt: str
    privacy_: PrivacyStatement = field(repr=False)

    @property
    def released_(self) -> dict[str, Any]:
        """All numbers; the ledger stores their digest (`release_digest`)."""
        return {name: value for name, value in vars(self).items() if name != "privacy_"}

    @property
    def references(self) -> tuple[int, ...]:
        """The columns that were left out as reference levels."""
        return tuple(int(place) for place in np.flatnonzero(self.standard_error == 0))

    def __str__(self) -> str:
        lines = [
            f"{100 * self.level:g}% intervals   estimate   std. error   of it noise     lower      upper"
        ]
        for j, name in enumerate([*map(str, range(len(self.estimate)))]):
            values = (self.estimate[j], self.standard_error[j], self.noise[j], self.lower[j], self.upper[j])
            numbers = "".join(f"{value:12.5g}" for value in values)
            lines.append(f"{name:<14}" + ("   reference" if j in self.references else numbers))
        return "\n".join([*lines, self.doubt] if self.doubt else lines)


@calm()
def coefficient_intervals(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    level: float = 0.95,
    robust: bool = False,
    steps: int | None = None,
    levels: Iterable[Sequence[int]] | None = None,
    n_samples: int | None = None,
    groups: Any = None,
    max_rows_per_group: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> CoefficientIntervals:
    """Compute noise-aware intervals for the coefficients of a linear or binary logistic regression.

    Parameters
    ----------
    model : fitted `PrivateLogisticRegression` (two classes), `PrivateRidge` or `PrivateLinearRegression`; it provides
        the starting point, the bounds and the relation.
    X, y : private records, those of the fit or others; rows in the form the model takes.
    epsilon, delta : privacy budget of the intervals, in addition to the model's; delta None is 1 / n_samples**2, which
        needs 32 records.
    level : probability that one interval covers, in the limit of many records; docs/uncertainty.md has measurements for
        finite numbers.
    robust : False assumes the model (logistic, or errors of equal variance); True also estimates the spread of
        gradients, which is valid for any distribution of the records but needs more of them.
    steps : Newton steps; None is 1 for the squared loss, where one is exact, and 3 for the logistic. If the starting
        model is so far off that the last step is still long, the intervals are infinite. More steps come nearer, but
        each takes part of epsilon.
    levels : groups of indicator columns, one of which is 1 in every row, such as the levels of a category:
        ``schema.levels``, the default for a model that was loaded with its schema. Together they add up to the
        intercept's column, so no number of records determines all of their coefficients. The first of each group is
        left out as the reference, and the others are differences from it; a row without any of them, such as a missing
        cell, counts as the reference.
    n_samples : public upper bound on the number of rows, under "add-remove-one".
    groups : ids of people, one per row; the guarantee then covers all rows of a person. None protects single rows.
        Required if the model was fitted with groups.
    max_rows_per_group : how many rows of one person are used, required with ``groups``; chosen without looking at the
        data. The noise grows by this factor, and so does the allowance for similar rows of a person.
    ledger : charged before anything private runs.

    Returns
    -------
    CoefficientIntervals
        ``estimate``, ``lower`` and ``upper``, intercept last; the standard error and the part of it that is noise;
        the statement as ``privacy_``.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of the estimate and the intervals, per row or, with ``groups``, per person; see
    docs/proofs/uncertainty.md. The intervals cover the population's coefficients of CLIPPED rows, without
    regularization, and do not account for a choice of columns on the same data.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLinearRegression, coefficient_intervals
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 2))
    >>> y = X @ [2.0, -1.0] + rng.uniform(-0.5, 0.5, size=50_000)
    >>> model = PrivateLinearRegression(target_bounds=(-2, 2), feature_bound=1.3).fit(X, y)
    >>> found = coefficient_intervals(model, X, y, epsilon=1.0)
    >>> found.estimate.shape, bool(found.noise.max() < found.standard_error.min())
    ((3,), False)
    """
    _check_model(model)
    if not 0 < level < 1:
        raise ParameterError("level", f"must lie strictly between 0 and 1, got {level!r}")
    model = as_fitted(model)
    check_unit(model, groups)
    check_people(X, groups)
    rows = checked_rows(model, X).astype(np.float64, copy=False)
    loss, start, labels, unit, shift = _public_parts(model, as_cells(y))
    bounds = Bounds(float(model.feature_bound), bool(model.fit_intercept))
    if len(start) != bounds.n_features(rows.shape[1]) or len(labels) != rows.shape[0]:
        raise ValueError("X and y must have the columns and rows of the model's data")
    levels = getattr(getattr(model, "schema_", None), "levels", ()) if levels is None else levels
    start, kept = _against_references(start, levels, intercept=bounds.intercept)
    rows = rows[:, np.flatnonzero(kept[: rows.shape[1]])]
    per_group = _checks.count_or_none("max_rows_per_group", max_rows_per_group)
    padded = relation_of(model.neighboring).size_is_public
    slots = bounded_rows(groups, per_group, len(labels), strict=True, padded=padded)
    if slots is not None:
        rows, labels = take(rows, slots.rows), labels[slots.rows]
    guarantee, size = guarantee_of(epsilon, delta, model.neighboring, len(labels), n_samples)
    refuse_large_default(delta, size)
    if slots is not None:
        guarantee = replace(guarantee, unit="user")
    quadratic = "quadratic" in loss.proved_for
    n_steps = _checks.count("steps", steps) if steps is not None else 1 if quadratic else _STEPS
    problem = Problem(loss, bounds, size, len(start), label_bound=1.0 if quadratic else None)
    radius = 2 * float(np.linalg.norm(start)) + 10 / bounds.feature_norm
    plan = plan_intervals(problem, guarantee, radius, n_steps, bool(robust), per_group or 1)
    records = ArrayRecords(rows, labels, bounds, None if slots is None else slots.empty)
    carried = carry_out(plan, (records, start), ledger, "coefficient_intervals")
    landing = carried.release
    tested = None if landing.joint is None else landing.joint.ends(level)
    doubt = NEAR if tested is not None else landing.doubt
    if doubt == FAINT and kept.all():
        doubt += _REPEATED
    if doubt:
        warnings.warn(doubt, UnsureWarning, stacklevel=2)
    error, noise = (
        unit * np.sqrt(np.maximum(np.diag(part), 0.0)) for part in (landing.covariance, landing.noise)
    )
    estimate, remainder = unit * landing.theta, unit * landing.remainder
    moved = np.zeros_like(estimate)
    moved[-1] = shift if bounds.intercept else 0.0
    estimate += moved
    # The error is normal around a point that is off by up to the remainder: use the quantile of |z + remainder|.
    half = np.sqrt(ncx2.ppf(level, 1, np.square(remainder / error))) * error
    lower, upper = estimate - half, estimate + half
    if tested is not None:
        lower, upper = (unit * end + moved for end in tested)

    def placed(values: Array) -> Array:
        whole = np.zeros(len(kept))
        whole[kept] = values
        return whole

    found = CoefficientIntervals(
        placed(estimate),
        placed(error),
        placed(noise),
        placed(remainder),
        placed(lower),
        placed(upper),
        level,
        doubt,
        _state(plan, carried),
    )
    return replace(found, privacy_=_state(plan, carried.binding(found.released_)))


def _check_model(model: Any) -> None:
    """Raise unless ``model`` is a fitted linear model, and say where to find one."""
    inside = ""
    if isinstance(model, Pipeline):
        # The sensitivity requires steps that treat each row alone, which is not known here.
        inside = "pipeline[-1], with the rows that pipeline[:-1].transform(X) gives"
    elif hasattr(model, "best_estimator_"):
        inside = "search.best_estimator_"
    if inside:
        raise TypeError(
            f"intervals need the linear model itself, got a {type(model).__name__}; pass {inside}"
        )
    check_is_fitted(model, ["coef_", "privacy_"])
    if getattr(as_fitted(model), "class_weight", None) is not None:
        raise ParameterError(
            "class_weight",
            "has no intervals: they would cover the coefficients of equal weights, not those of this model",
            Setting("class_weight", None, purpose="and fit again"),
        )


def _public_parts(model: Any, y: NDArray[Any]) -> tuple[Loss, Array, Array, float, float]:
    """Return loss, starting point, labels for the loss, unit of the coefficients and shift of the intercept."""
    if hasattr(model, "classes_"):
        if len(model.classes_) != 2 or not hasattr(model, "predict_proba"):
            raise ValueError(
                f"intervals are proved for logistic regression with two classes, not for {type(model).__name__} with "
                f"{len(model.classes_)}"
            )
        codes = read_labels(y, model.classes_, "error", droppable=False).codes
        start = np.append(model.coef_[0], model.intercept_) if model.fit_intercept else model.coef_[0].copy()
        return Logistic(), start, np.where(codes == 1, 1.0, -1.0), 1.0, 0.0
    if type(model).__name__ not in ("PrivateRidge", "PrivateLinearRegression"):
        raise ValueError(
            f"intervals are proved for linear and logistic regression, not for {type(model).__name__}"
        )
    low, high = model.target_bounds
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    weights = np.asarray(model.coef_, dtype=np.float64).ravel() / half
    if model.fit_intercept:
        weights = np.append(weights, (model.intercept_ - middle) / half)
    targets = to_numbers(y)
    if not np.all(np.isfinite(targets)):
        raise ParameterError(
            "y", "holds targets that are not finite numbers", "correct them, or leave their rows out"
        )
    labels = np.clip((targets - middle) / half, -1.0, 1.0)
    return Squared(prediction_bound=1.0, label_bound=1.0), weights, labels, half, middle


def _against_references(
    start: Array, levels: Iterable[Sequence[int]], *, intercept: bool
) -> tuple[Array, Mask]:
    """The same predictions without the first column of every group, and which coefficients are left.

    A group's columns add up to 1, so the coefficient of the reference goes to the intercept, and is taken from the
    others. Without an intercept, the first group takes its place and keeps all its columns.
    """
    groups = [[_checks.count("levels", place, at_least=0) for place in group] for group in levels]
    n_columns = len(start) - intercept
    flat = [place for group in groups for place in group]
    if len(set(flat)) < len(flat) or max(flat, default=0) >= n_columns:
        raise ParameterError(
            "levels", f"must list columns from 0 to {n_columns - 1}, none of them twice, got {groups}"
        )
    start, kept = start.copy(), np.ones(len(start), dtype=bool)
    constant = [n_columns] if intercept else groups.pop(0) if groups else []
    for reference, *others in filter(None, groups):
        start[others] -= start[reference]
        start[constant] += start[reference]
        kept[reference] = False
    return start[kept], kept


def _state(plan: IntervalPlan, carried: Carried[Landing]) -> PrivacyStatement:
    return carried.state(
        bounds={"records": float(plan.problem.n_samples), "row norm": plan.problem.bounds.feature_norm},
        assumptions=(unit_assumption(plan.guarantee), *_ASSUMPTIONS),
        not_covered=_NOT_COVERED,
    )


_ASSUMPTIONS = (
    "the starting coefficients are already released; the cost of their release adds to this one",
    "coverage, not privacy: records are independent and enough for the normal approximation; the starting model is "
    "near enough, or the intervals are infinite",
    *PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = (
    "how long the computation took",
    "other releases from the same data, the starting model among them: their costs add up",
)
