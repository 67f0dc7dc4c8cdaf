"""What all private linear regressors share; subclasses name the loss of targets scaled to [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from discreet import _inputs
from discreet.estimators import _data, _fit
from discreet.estimators._model import Array, PrivateLinearModel
from discreet.losses import Loss
from discreet.problem import Problem
from discreet.solvers import base


@dataclass(frozen=True)
class ScaledTargets:
    """Targets (y - middle) / half_width, clipped to [-1, 1]; 0 where they are none."""

    values: Array
    null: _data.Mask
    middle: float
    half_width: float


class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Linear regression; targets carry declared bounds."""

    coef_: Array
    intercept_: float

    def _loss(self, half_width: float) -> Loss:
        raise NotImplementedError

    def _target_range(self) -> tuple[float, float]:
        """Middle and half width of the declared bounds."""
        if self.target_bounds is None:
            raise ValueError(
                "target_bounds must be declared: (lowest, highest) target that is possible, known without looking at "
                "the private data; targets outside are clipped"
            )
        low, high = _inputs.interval("target_bounds", self.target_bounds)
        return low / 2 + high / 2, high / 2 - low / 2

    def plan(self, n_samples: int, n_features: int, *, sparse: bool = False) -> base.Plan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the training data; under "add-remove-one" ``n_samples`` is a public
            upper bound; with ``max_rows_per_group`` it counts places, the number of groups times that bound.
        sparse : whether the rows will be a SciPy sparse matrix.
        """
        _inputs.count("n_features", n_features)
        loss = self._loss(self._target_range()[1])
        solver = base.resolve(self.solver)
        return self._calibrated(solver, loss, n_samples, n_features, label_bound=1.0, sparse=sparse)

    def _checked(self, X: Any, y: Any, strict: bool) -> tuple[Any, NDArray[Any]]:
        return _data.checked_targets(self, X, y, strict=strict)

    def _targets(self, y: NDArray[Any]) -> ScaledTargets:
        middle, half_width = self._target_range()
        with np.errstate(all="ignore"):
            scaled = np.clip((y - middle) / half_width, -1.0, 1.0)
        finite = np.where(np.isfinite(scaled), scaled, 0.0)
        return ScaledTargets(finite, ~np.isfinite(y), middle, half_width)

    def _planned(self, n_samples: int, n_columns: int, targets: ScaledTargets, *, sparse: bool) -> base.Plan:
        return self.plan(n_samples, n_columns, sparse=sparse)

    def _labels(self, targets: ScaledTargets, problem: Problem) -> list[NDArray[Any]]:
        return [targets.values]

    def _null(self, targets: ScaledTargets) -> _data.Mask:
        return targets.null

    def _publish(self, theta: Array, targets: ScaledTargets, problem: Problem) -> None:
        self.coef_, intercept = self._split(targets.half_width * theta[0])
        self.intercept_ = float(intercept) + targets.middle

    def _facts(self, targets: ScaledTargets) -> tuple[str, ...]:
        low, high = self.target_bounds
        return (f"targets lie between {low:g} and {high:g}, or are clipped there (given by the user)",)

    def predict(self, X: ArrayLike) -> Array:
        """Predictions for rows shrunk or cut to ``feature_bound``, within ``target_bounds``."""
        check_is_fitted(self)
        fitted = _fit.as_fitted(self)
        middle, half_width = fitted._target_range()
        raw = fitted._raw(_data.checked_rows(self, X), self.coef_, self.intercept_ - middle)
        return np.asarray(middle + np.clip(raw, -half_width, half_width))
