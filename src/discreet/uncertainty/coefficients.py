"""Confidence intervals for coefficients: noisy Newton steps from a released model, paid for.

A Newton step from any point near the population's minimizer lands, up to second order, on the sample's minimizer
without regularization; what was added to hide one record is Gaussian with a known variance. So the interval needs no
knowledge of how the starting model was made. Proofs: docs/proofs/uncertainty.md.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from discreet import _inputs
from discreet.bounds import Bounds
from discreet.estimators import _data, _fit
from discreet.losses import Logistic, Loss, Squared
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy, fresh_entropy
from discreet.privacy.calibration import calibrate
from discreet.privacy.events import Composed, Event, Repeated
from discreet.privacy.guarantee import Guarantee, refuse_large_default
from discreet.privacy.statement import PrivacyStatement
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers.sensitivity import gradient_mechanism
from discreet.uncertainty.releases import (
    Weight,
    matrix_mechanism,
    release_matrix,
    release_residuals,
    residual_mechanism,
)

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger

Array = NDArray[np.float64]

# Parts of the squared Gaussian-DP parameter: the last step's gradient decides the width of the intervals.
_SHARES = {"gradient": 0.5, "curvature": 0.2, "spread": 0.15}
_APPROACH = {"gradient": 0.2, "curvature": 0.1}  # of each step before the last, in the same unit
_STEPS = 3  # for the logistic loss: small fits are shrunk a lot, and two steps from them left a bias
_LEAST_CURVATURE = 3.0  # smallest eigenvalue of the curvature in units of the largest of its noise


@dataclass(frozen=True)
class CoefficientIntervals:
    """Estimates and intervals of a linear model's coefficients in the population the records came from.

    Attributes
    ----------
    estimate : one number per column, then the intercept if the model has one; without regularization.
    standard_error : of noise and sampling together.
    noise : the part of it that is privacy noise.
    lower, upper : ends of the intervals; infinite where the released curvature is not distinguishable from noise.
    level : probability with which one interval covers.
    """

    estimate: Array
    standard_error: Array
    noise: Array
    lower: Array
    upper: Array
    level: float
    privacy_: PrivacyStatement = field(repr=False)

    def __str__(self) -> str:
        lines = [
            f"{100 * self.level:g}% intervals   estimate   std. error   of it noise     lower      upper"
        ]
        for j, name in enumerate([*map(str, range(len(self.estimate)))]):
            values = (self.estimate[j], self.standard_error[j], self.noise[j], self.lower[j], self.upper[j])
            lines.append(f"{name:<14}" + "".join(f"{value:12.5g}" for value in values))
        return "\n".join(lines)


@dataclass(frozen=True)
class IntervalPlan:
    """Calibrated Newton steps from public coefficients.

    Attributes
    ----------
    problem, guarantee : as for a solver.
    radius : of the ball in which all points stay.
    steps : number of Newton steps; one is exact for the squared loss.
    robust : whether the spread of gradients is released as a matrix, or follows from the model.
    unit : multiplier of one Gaussian release that costs as much as everything.
    """

    problem: Problem
    guarantee: Guarantee
    radius: float
    steps: int
    robust: bool
    unit: float

    def _multiplier(self, part: str, last: bool = True) -> float:
        """Of one release, whose part of the budget is its share of all shares."""
        whole = sum(_SHARES.values()) + (self.steps - 1) * sum(_APPROACH.values())
        if not self._releases_spread:
            whole -= _SHARES["spread"]
        return self.unit * math.sqrt(whole / (_SHARES if last else _APPROACH)[part])

    @property
    def _releases_spread(self) -> bool:
        """The spread that a logistic model itself implies is its curvature, and needs no release."""
        return self.robust or isinstance(self.problem.loss, Squared)

    def gradient(self, last: bool) -> GaussianMechanism:
        """The noisy gradient of one step."""
        loss, relation = self.problem.loss, self.guarantee.neighboring
        return gradient_mechanism(
            self.problem, loss, self.radius, relation, self._multiplier("gradient", last)
        )

    def curvature(self, last: bool) -> GaussianMechanism:
        """The noisy Hessian of one step."""
        weight, multiplier = Weight(self.problem.loss, False), self._multiplier("curvature", last)
        return matrix_mechanism(weight, self.problem, self.radius, self.guarantee.neighboring, multiplier)

    @cached_property
    def spread(self) -> GaussianMechanism | None:
        """The noisy sum of g g^T over the records' gradients, or of squared residuals."""
        if not self._releases_spread:
            return None
        multiplier = self._multiplier("spread")
        if not self.robust:
            return residual_mechanism(self.problem, self.radius, multiplier)
        weight = Weight(self.problem.loss, True)
        return matrix_mechanism(weight, self.problem, self.radius, self.guarantee.neighboring, multiplier)

    @property
    def event(self) -> Event:
        """What is charged: every release of every step."""
        parts: list[Event] = [self.gradient(True).event, self.curvature(True).event]
        if self.steps > 1:
            approach = Composed((self.gradient(False).event, self.curvature(False).event))
            parts.append(Repeated(approach, self.steps - 1))
        return Composed(tuple(parts if self.spread is None else [*parts, self.spread.event]))

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        return f"Gaussian noise on curvature and gradients of {self.steps} Newton steps from a released model"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sensitivities of docs/proofs/uncertainty.md, section 1; exact composition of Gaussian releases"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "gradient noise stddev (sum scale)": self.gradient(True).stddev,
            "curvature noise stddev (sum scale)": self.curvature(True).stddev,
            "steps": float(self.steps),
            "radius": self.radius,
        }

    def run(self, records: ArrayRecords, start: Array, entropy: Entropy) -> tuple[Array, Array, Array]:
        """The estimate, its covariance, and the part of the covariance that is noise."""
        theta = _inside(start, self.radius)
        for _ in range(self.steps - 1):
            gradient, curvature = self._released(records, theta, False, entropy)
            theta = _inside(
                theta - _damped_step(curvature, gradient, self.curvature(False).stddev), self.radius
            )
        gradient, curvature = self._released(records, theta, True, entropy)
        stddev, blur = self.gradient(True).stddev, self.curvature(True).stddev
        inverse = _inverse(curvature, blur)
        if inverse is None:
            unknown = np.full_like(curvature, np.inf)
            return theta, unknown, unknown
        middle = self._spread_at(records, theta, gradient, curvature, inverse, entropy)
        move = -inverse @ gradient
        blurred = blur**2 / 2 * (move @ move * np.eye(len(move)) + np.outer(move, move))
        noisy = inverse @ (stddev**2 * np.eye(len(move)) + blurred) @ inverse
        return theta + move, noisy + inverse @ middle @ inverse, noisy

    def _released(
        self, records: ArrayRecords, theta: Array, last: bool, entropy: Entropy
    ) -> tuple[Array, Array]:
        """Noisy gradient and curvature at a point."""
        loss = self.problem.loss
        gradient = self.gradient(last).release(records.value_and_gradient(loss, theta)[1], entropy)
        return gradient, release_matrix(self.curvature(last), records, Weight(loss, False), theta, entropy)

    def _spread_at(
        self,
        records: ArrayRecords,
        theta: Array,
        gradient: Array,
        curvature: Array,
        inverse: Array,
        entropy: Entropy,
    ) -> Array:
        """An estimate of the sum of g g^T over records, g their gradients at the population's minimizer."""
        if self.spread is None:
            return _positive(curvature)
        loss = self.problem.loss
        if self.robust:
            return _positive(release_matrix(self.spread, records, Weight(loss, True), theta, entropy))
        # Residuals at the end of the step from those at its start; the noise of the gradient is not a fit.
        squares = release_residuals(self.spread, records, loss, theta, entropy)
        squares -= float(gradient @ inverse @ gradient)
        squares += self.gradient(True).stddev ** 2 * float(np.trace(inverse))
        return max(0.0, squares) / max(1, self.problem.n_samples - len(theta)) * _positive(curvature)


def plan_intervals(
    problem: Problem, guarantee: Guarantee, radius: float, steps: int, robust: bool
) -> IntervalPlan:
    """The smallest noise that meets the guarantee."""
    if guarantee.delta == 0:
        raise ValueError("intervals are made with Gaussian noise, which needs delta > 0")

    def event(unit: float) -> Event:
        return IntervalPlan(problem, guarantee, radius, steps, robust, unit).event

    return IntervalPlan(problem, guarantee, radius, steps, robust, calibrate(event, guarantee))


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
    n_samples: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> CoefficientIntervals:
    """Noise-aware intervals for the coefficients of a linear or binary logistic regression.

    Parameters
    ----------
    model : fitted `PrivateLogisticRegression` (two classes), `PrivateRidge` or `PrivateLinearRegression`; it is the
        starting point, and its bounds and relation are used.
    X, y : private records, those of the fit or others; rows as the model itself takes them.
    epsilon, delta : the price of the intervals, on top of the model's; delta None is 1 / n_samples**2, which needs 32
        records.
    level : probability with which one interval covers.
    robust : False assumes the model (logistic, or errors of equal variance); True estimates the spread of gradients
        as well, which holds for any law of the records and needs more of them.
    steps : Newton steps; None is 1 for the squared loss, where one is exact, and 3 for the logistic: the first ones
        come near, however far off the starting model is.
    n_samples : public upper bound on the number of rows, under "add-remove-one".
    ledger : charged before anything private runs.

    Privacy
    -------
    (epsilon, delta)-DP of the estimate and the intervals; see docs/proofs/uncertainty.md. Covers the population's
    coefficients of CLIPPED rows, without regularization; not after a choice of columns on the same data.

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
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    rows = _data.checked_rows(model, X).astype(np.float64, copy=False)
    guarantee, size = _fit.guarantee_of(epsilon, delta, model.neighboring, rows.shape[0], n_samples)
    refuse_large_default(delta, size)
    loss, start, labels, unit, shift = _public_parts(model, _inputs.cells(y))
    bounds = Bounds(float(model.feature_bound), bool(model.fit_intercept))
    if len(start) != bounds.n_features(rows.shape[1]) or len(labels) != rows.shape[0]:
        raise ValueError("X and y must have the columns and rows of the model's data")
    n_steps = (
        _inputs.count("steps", steps) if steps is not None else 1 if isinstance(loss, Squared) else _STEPS
    )
    problem = Problem(loss, bounds, size, len(start), label_bound=1.0 if isinstance(loss, Squared) else None)
    radius = 2 * float(np.linalg.norm(start)) + 10 / bounds.feature_norm
    plan = plan_intervals(problem, guarantee, radius, n_steps, bool(robust))
    records = ArrayRecords(rows, labels, bounds)
    _fit.charge(ledger, plan, label="coefficient_intervals")
    entropy = fresh_entropy()
    theta, covariance, noisy = plan.run(records, start, entropy)
    if not np.all(np.isfinite(covariance)):
        warnings.warn(
            "the released curvature is not distinguishable from its noise: there are too few records for this many "
            "columns at this epsilon, and the intervals are infinite",
            _fit.PrivacyWarning,
            stacklevel=2,
        )
    error, noise = (unit * np.sqrt(np.maximum(np.diag(part), 0.0)) for part in (covariance, noisy))
    estimate = unit * theta
    if bounds.intercept:
        estimate[-1] += shift
    half = float(ndtri(0.5 + level / 2)) * error
    return CoefficientIntervals(
        estimate, error, noise, estimate - half, estimate + half, level, _state(plan, entropy.secure)
    )


def _check_model(model: Any) -> None:
    """Refuse what is not a fitted linear model, and say where one is to be found."""
    inside = ""
    if isinstance(model, Pipeline):
        # Whether its other steps treat each row alone is not known, and the sensitivity rests on it.
        inside = "pipeline[-1], with the rows that pipeline[:-1].transform(X) gives"
    elif hasattr(model, "best_estimator_"):
        inside = "search.best_estimator_"
    if inside:
        raise TypeError(
            f"intervals start from a linear model itself, not from a {type(model).__name__}; pass {inside}"
        )
    check_is_fitted(model, ["coef_", "privacy_"])


def _public_parts(model: Any, y: NDArray[Any]) -> tuple[Loss, Array, Array, float, float]:
    """Loss, starting point, labels as the loss wants them, unit of the coefficients and shift of the intercept."""
    if hasattr(model, "classes_"):
        if len(model.classes_) != 2 or not hasattr(model, "predict_proba"):
            raise ValueError("intervals are proved for logistic regression with two classes")
        codes = _fit.read_labels(y, model.classes_, "error", droppable=False).codes
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
    targets = _inputs.to_numbers(y)
    if not np.all(np.isfinite(targets)):
        raise ValueError("y holds targets that are not finite numbers; correct them, or leave their rows out")
    labels = np.clip((targets - middle) / half, -1.0, 1.0)
    return Squared(prediction_bound=1.0, label_bound=1.0), weights, labels, half, middle


def _inside(theta: Array, radius: float) -> Array:
    norm = float(np.linalg.norm(theta))
    return theta if norm <= radius else theta * (radius / norm)


def _inverse(matrix: Array, stddev: float) -> Array | None:
    """The inverse, or None where an eigenvalue is not clear of the noise."""
    least = _LEAST_CURVATURE * stddev * math.sqrt(2 * len(matrix))
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= least:
        return None
    return np.asarray((vectors / values) @ vectors.T)


def _damped_step(matrix: Array, gradient: Array, stddev: float) -> Array:
    """A Newton step that goes slowly where the curvature is not clear of the noise."""
    values, vectors = np.linalg.eigh(matrix)
    floor = stddev * math.sqrt(2 * len(matrix))
    return np.asarray(vectors @ ((vectors.T @ gradient) / np.maximum(values, floor)))


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _state(plan: IntervalPlan, secure: bool) -> PrivacyStatement:
    return PrivacyStatement.of(
        plan,
        bounds={"records": float(plan.problem.n_samples), "row norm": plan.problem.bounds.feature_norm},
        assumptions=(_fit.unit_assumption(plan.guarantee), *_ASSUMPTIONS),
        not_covered=_NOT_COVERED,
        secure=secure,
    )


_ASSUMPTIONS = (
    "the starting coefficients are released already, under a promise of their own that adds to this one",
    "coverage, not privacy: records are independent and enough for the normal approximation",
    *_fit.PLATFORM_ASSUMPTIONS,
)
_NOT_COVERED = (
    "how long the computation took",
    "other releases from the same data, the starting model among them: their costs add up",
)
