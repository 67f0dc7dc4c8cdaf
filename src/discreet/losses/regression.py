"""Losses of real targets: squared, Huber, quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.losses.base import Array, check_width, finite_targets, floats
from discreet.privacy.events import Family


@dataclass(frozen=True)
class Squared:
    """(t - y)^2 / 2 for |t| <= prediction_bound and |y| <= label_bound, both declared.

    Without bounds the derivative t - y has none and no noise can hide it. A solver that uses this loss keeps
    the coefficients in a ball, so that |t| <= prediction_bound; beyond it the derivative stays at its bound.

    >>> round(Squared(prediction_bound=2.0, label_bound=1.0).lipschitz, 6)
    3.0
    """

    prediction_bound: float
    label_bound: float

    kernel_id: ClassVar[int] = 6
    family: ClassVar[Family] = "general"
    smoothness: ClassVar[float] = 1.0
    n_outputs: ClassVar[int] = 1
    kernel_parameter: ClassVar[float] = 0.0
    evaluation_error: ClassVar[float] = 2.0
    value_at_zero: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        for name in ("prediction_bound", "label_bound"):
            bound = getattr(self, name)
            if isinstance(bound, bool) or not 1e-6 <= bound <= 1e6:
                raise ValueError(f"{name} must lie between 1e-6 and 1e6, got {bound!r}; rescale the targets")
            object.__setattr__(self, name, float(bound))

    @property
    def lipschitz(self) -> float:
        """prediction_bound + label_bound."""
        return math.nextafter(self.prediction_bound + self.label_bound, math.inf)

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are within their bound."""
        return np.asarray(np.abs(np.asarray(y, dtype=np.float64)) <= self.label_bound)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """Half the squared residual, linear beyond the bound."""
        label, t = floats(y, raw_prediction)
        slope = np.clip(t - label, -self.lipschitz, self.lipschitz)
        return np.asarray(slope * (t - label - 0.5 * slope))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The residual, held at its bound."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.clip(t - label, -self.lipschitz, self.lipschitz))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 within the bound, else 0."""
        label, t = floats(y, raw_prediction)
        return np.where(np.abs(t - label) <= self.lipschitz, 1.0, 0.0)


@dataclass(frozen=True)
class HuberRegression:
    """r^2 / 2 for |r| <= width, width |r| - width^2 / 2 beyond, r = t - y; any finite label.

    |f'| <= width and f'' <= 1. The sign of f' is not fixed, so the profile is that of a general GLM.

    >>> float(HuberRegression(1.0).derivative(0.0, 5.0))
    1.0
    """

    width: float = 1.0

    kernel_id: ClassVar[int] = 2
    family: ClassVar[Family] = "general"
    smoothness: ClassVar[float] = 1.0
    n_outputs: ClassVar[int] = 1
    evaluation_error: ClassVar[float] = 2.0
    value_at_zero: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        check_width(self.width, "the residual beyond which the loss grows linearly")
        object.__setattr__(self, "width", float(self.width))

    @property
    def lipschitz(self) -> float:
        """The width."""
        return self.width

    @property
    def kernel_parameter(self) -> float:
        """The width."""
        return self.width

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are finite, and small enough that a residual is."""
        return finite_targets(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The rounded absolute residual."""
        label, t = floats(y, raw_prediction)
        slope = np.clip(t - label, -self.width, self.width)
        return np.asarray(slope * (t - label - 0.5 * slope))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The residual, clipped to the width."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.clip(t - label, -self.width, self.width))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 within the width, else 0."""
        label, t = floats(y, raw_prediction)
        return np.where(np.abs(t - label) <= self.width, 1.0, 0.0)


@dataclass(frozen=True)
class Quantile:
    """The pinball loss of a quantile, rounded within ``width`` of its corner; any finite label.

    With r = t - y the derivative runs from -quantile (r <= -width) to 1 - quantile (r >= width) along a
    straight line: |f'| <= max(quantile, 1 - quantile) and f'' = 1 / (2 width).

    >>> float(Quantile(0.75).derivative(0.0, 5.0)), float(Quantile(0.75).derivative(0.0, -5.0))
    (0.25, -0.75)
    """

    quantile: float = 0.5
    width: float = 0.01

    kernel_id: ClassVar[int] = 8
    family: ClassVar[Family] = "general"
    n_outputs: ClassVar[int] = 1
    value_at_zero: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        if isinstance(self.quantile, bool) or not 0 < self.quantile < 1:
            raise ValueError(f"quantile must lie between 0 and 1, got {self.quantile!r}; 0.5 is the median")
        check_width(self.width, "how far from the corner the pinball loss is rounded")
        object.__setattr__(self, "quantile", float(self.quantile))
        object.__setattr__(self, "width", float(self.width))

    @property
    def lipschitz(self) -> float:
        """The steeper of the two slopes."""
        return max(self.quantile, math.nextafter(1.0 - self.quantile, 1.0))

    @property
    def smoothness(self) -> float:
        """1 / (2 width), rounded up."""
        return math.nextafter(0.5 / self.width, math.inf)

    @property
    def kernel_parameter(self) -> float:
        """The width."""
        return self.width

    @property
    def evaluation_error(self) -> float:
        """Four operations on a number of at most 1, in units of the slope, which is at least 1/2."""
        return 10.0

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are finite, and small enough that a residual is."""
        return finite_targets(y)

    def _rise(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """The residual, and how far across the corner it is: 0 to 1."""
        label, t = floats(y, raw_prediction)
        residual = t - label
        return residual, np.clip(0.5 + residual * (0.5 / self.width), 0.0, 1.0)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The pinball loss, rounded at its corner."""
        residual, rise = self._rise(y, raw_prediction)
        # The integral of the rise: 0 before the corner, width * rise^2 within, the residual after it.
        area = np.where(rise < 1.0, self.width * rise * rise, residual)
        return np.asarray(area - self.quantile * residual)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """From -quantile to 1 - quantile."""
        _, rise = self._rise(y, raw_prediction)
        return np.asarray(rise - self.quantile)

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 / (2 width) within the width, else 0."""
        residual, _ = self._rise(y, raw_prediction)
        return np.where(np.abs(residual) <= self.width, 0.5 / self.width, 0.0)
