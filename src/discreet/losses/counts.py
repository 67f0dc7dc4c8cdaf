"""The loss of counts: Poisson regression with a logarithmic link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from discreet.losses.base import EXP_ULPS, Array, floats
from discreet.privacy.events import Family


@dataclass(frozen=True)
class Poisson:
    """Half the deviance e^t - y t - (y - y log y) of a count with mean e^t, for |t| <= prediction_bound = T.

    The exponential has no bounded slope, so beyond T the loss goes on along its tangent: f' = exp(clip(t, -T, T)) - y
    is non-decreasing, the loss convex, and for 0 <= y <= Y

        |f'| <= max(e^T, Y - e^-T),      f'' <= e^T.

    >>> loss = Poisson(prediction_bound=1.0, label_bound=2.0)
    >>> round(loss.lipschitz, 4), float(loss.derivative(1.0, 0.0)), round(float(loss.derivative(0.0, 50.0)), 4)
    (2.7183, 0.0, 2.7183)
    """

    prediction_bound: float
    label_bound: float

    kernel_id: ClassVar[int] = 9
    family: ClassVar[Family] = "general"
    n_outputs: ClassVar[int] = 1
    kernel_parameter: ClassVar[float] = 0.0
    evaluation_error: ClassVar[float] = EXP_ULPS + 2.0  # of a number of at most e^T, and one subtraction
    value_at_zero: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        bounds = {"prediction_bound": (1e-3, 20.0), "label_bound": (1e-6, 1e6)}
        for name, (low, high) in bounds.items():
            bound = getattr(self, name)
            if isinstance(bound, bool) or not low <= bound <= high:
                raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {bound!r}")
            object.__setattr__(self, name, float(bound))

    @property
    def smoothness(self) -> float:
        """e^prediction_bound, rounded up."""
        return math.exp(self.prediction_bound) * (1 + 2.0**-48)

    @property
    def lipschitz(self) -> float:
        """max(e^T, Y - e^-T), rounded up."""
        return max(self.smoothness, (self.label_bound - math.exp(-self.prediction_bound)) * (1 + 2.0**-48))

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels lie between 0 and their bound."""
        labels = np.asarray(y, dtype=np.float64)
        return np.asarray((labels >= 0) & (labels <= self.label_bound))

    def _inside(self, t: Array) -> Array:
        return np.asarray(np.clip(t, -self.prediction_bound, self.prediction_bound))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """Half the deviance, along a tangent beyond the bound."""
        label, t = floats(y, raw_prediction)
        inside = self._inside(t)
        beyond = (np.exp(inside) - label) * (t - inside)
        return np.asarray(np.exp(inside) - label * inside - (label - xlogy(label, label)) + beyond)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The predicted mean, held in its range, minus the count."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.exp(self._inside(t)) - label)

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """e^t within the bound, else 0."""
        _, t = floats(y, raw_prediction)
        return np.where(np.abs(t) <= self.prediction_bound, np.exp(self._inside(t)), 0.0)
