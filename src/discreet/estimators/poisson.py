"""Private Poisson regression: counts with a logarithmic link."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from discreet import _inputs
from discreet.estimators import _data, _fit
from discreet.estimators._model import Array
from discreet.estimators._regressor import PrivateLinearRegressor, ScaledTargets
from discreet.losses import Loss, Poisson
from discreet.problem import Problem
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger

_RANGE = 50.0  # highest over lowest predicted mean, unless the user says otherwise


class PrivatePoissonRegressor(PrivateLinearRegressor):
    """Poisson regression under differential privacy: the mean of a count is exp(coef . x + intercept).

    An unbounded exponential has no bounded gradient. So predicted means are kept between ``least_mean`` and the highest
    target: beyond, the loss goes on along its tangent, and predictions are clipped.

    Parameters
    ----------
    target_bounds : (float, float)
        Lowest and highest target, declared from public knowledge; the lowest must be at least 0. Required.
    least_mean : float, default None
        The lowest mean that is ever predicted, greater than 0; None is a fiftieth of the highest target. The wider the
        range of means, the more noise.
    solver : str or solver object, default "objective"
        "objective", "noisy-gd" or "output".
    epsilon, delta, neighboring, feature_bound, l2, fit_intercept, ledger, bad_rows, n_samples, \
max_rows_per_group, random_state
        As for `PrivateRidge`.

    Attributes
    ----------
    coef_, intercept_ : released coefficients of the logarithm of the mean, for clipped rows.
    privacy_ : the `PrivacyStatement`; print it.
    fitted_parameters_ : the parameters of the fit, which predictions and files go by; others wait for the next fit.

    Privacy
    -------
    As for `PrivateRidge`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivatePoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(50_000, 2))
    >>> y = rng.poisson(np.exp(1.0 + X @ [1.0, -0.5]))
    >>> model = PrivatePoissonRegressor(target_bounds=(0, 20), feature_bound=1.7).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5]).max() < 0.3)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        least_mean: float | None = None,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        fit_intercept: bool = True,
        solver: str | base.Solver = "objective",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.least_mean = least_mean
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _means(self) -> tuple[float, float]:
        """The lowest and highest mean that is predicted."""
        middle, half_width = self._target_range()
        if middle < half_width:
            raise ValueError(f"counts are at least 0; target_bounds must be too, got {self.target_bounds!r}")
        high = middle + half_width
        if self.least_mean is None:
            return high / _RANGE, high
        least = _inputs.real("least_mean", self.least_mean, above=0)
        if not least < high:
            raise ValueError(f"least_mean must lie below the highest target {high:g}, got {least!r}")
        return least, high

    def _middle(self) -> tuple[float, float]:
        """The mean predicted at raw prediction 0, and the largest raw prediction."""
        low, high = self._means()
        return math.sqrt(low * high), math.log(high / low) / 2

    def _loss(self, half_width: float) -> Loss:
        middle, reach = self._middle()
        return Poisson(prediction_bound=reach, label_bound=self._means()[1] / middle * (1 + 1e-12))

    def _targets(self, y: NDArray[Any]) -> ScaledTargets:
        """Counts in units of the mean at raw prediction 0."""
        middle, half_width = self._target_range()
        unit = self._middle()[0]
        with np.errstate(all="ignore"):
            scaled = np.clip(y, middle - half_width, middle + half_width) / unit
        return ScaledTargets(np.where(np.isfinite(scaled), scaled, 0.0), ~np.isfinite(y), middle, half_width)

    def _publish(self, theta: Array, targets: ScaledTargets, problem: Problem) -> None:
        self.coef_, intercept = self._split(theta[0])
        self.intercept_ = float(intercept) + math.log(self._middle()[0])

    def predict(self, X: ArrayLike) -> Array:
        """Predicted means of rows shrunk to ``feature_bound``, between ``least_mean`` and the highest target."""
        check_is_fitted(self)
        fitted = _fit.as_fitted(self)
        middle, reach = fitted._middle()
        raw = fitted._raw(_data.checked_rows(self, X), self.coef_, self.intercept_ - math.log(middle))
        return np.asarray(middle * np.exp(np.clip(raw, -reach, reach)))
