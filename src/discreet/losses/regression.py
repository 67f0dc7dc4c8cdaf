"""Losses of real targets (squared, Huber, quantile), of counts (Poisson), and the linear loss of lower bounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from discreet._typing import Array, Mask
from discreet.losses import base
from discreet.losses.base import EXP_ULPS, Kernel, Loss, check_between, floats
from discreet.privacy.guarantee import SLACK


class ResidualLoss(Loss):
    """A loss of the residual r = t - y."""

    @abstractmethod
    def _value(self, residual: Array) -> Array:
        """f at residual r."""

    @abstractmethod
    def _slope(self, residual: Array) -> Array:
        """f' at residual r."""

    @abstractmethod
    def _curvature(self, residual: Array) -> Array:
        """f'' at residual r."""

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are finite and not too large for a finite residual."""
        label = np.asarray(y, dtype=np.float64)
        return np.asarray(np.abs(label) <= 2.0**900)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f(t - y)."""
        label, t = floats(y, raw_prediction)
        return np.asarray(self._value(t - label))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f'(t - y)."""
        label, t = floats(y, raw_prediction)
        return np.asarray(self._slope(t - label))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f''(t - y)."""
        label, t = floats(y, raw_prediction)
        return np.asarray(self._curvature(t - label))


class ClippedResidual(ResidualLoss):
    """Half the squared residual, continued by a line beyond |r| = ``lipschitz``."""

    smoothness = 1.0
    evaluation_error = 2.0

    @property
    def kernel(self) -> Kernel:
        """The residual, clipped."""
        return Kernel(base.RESIDUAL, self.lipschitz)

    def _value(self, residual: Array) -> Array:
        return np.asarray(base.residual_value(residual, self._slope(residual)))

    def _slope(self, residual: Array) -> Array:
        return np.asarray(base.residual_slope(residual, self.lipschitz))

    def _curvature(self, residual: Array) -> Array:
        return np.where(np.abs(residual) <= self.lipschitz, 1.0, 0.0)

    def derivative_bound(self, reach: float, label_bound: float | None = None) -> float:
        """Return the largest residual, if labels are bounded."""
        if label_bound is None:
            return self.lipschitz
        return min(self.lipschitz, (reach + label_bound) * SLACK)

    def value_range(self, reach: float, label_bound: float | None = None) -> float:
        """Return the range from the farthest t to the nearest: f is even in t - y, so its range grows with |y|."""
        generic = 2.0 * reach * self.lipschitz
        if label_bound is not None:
            nearest = min(label_bound, reach)
            ends = self.value(np.full(2, label_bound), np.array([-reach, nearest]))
            rounding = 2.0**-40 * self.value_scale(reach, label_bound)
            generic = min(generic, float(ends[0] - ends[1]) + rounding)
        return generic * SLACK


@final
@dataclass(frozen=True)
class Squared(ClippedResidual):
    """(t - y)^2 / 2 for |t| <= prediction_bound and |y| <= label_bound, both declared.

    Without bounds the derivative t - y is unbounded and no noise can hide it. A solver that uses this loss keeps the
    coefficients in a ball with |t| <= prediction_bound; outside, the derivative stays at its bound.

    >>> round(Squared(prediction_bound=2.0, label_bound=1.0).lipschitz, 6)
    3.0
    """

    prediction_bound: float = field()
    label_bound: float = field()

    proved_for = frozenset({"convex", "quadratic", "single-peaked", "counted"})
    aims_at = "mean"

    def __post_init__(self) -> None:
        for name in ("prediction_bound", "label_bound"):
            bound = check_between(name, getattr(self, name), 1e-6, 1e6, "rescale the targets")
            object.__setattr__(self, name, bound)

    @property
    def lipschitz(self) -> float:
        """prediction_bound + label_bound."""
        return math.nextafter(self.prediction_bound + self.label_bound, math.inf)

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are within their bound."""
        label = np.asarray(y, dtype=np.float64)
        return np.asarray(np.abs(label) <= self.label_bound)


@final
@dataclass(frozen=True)
class HuberRegression(ClippedResidual):
    """r^2 / 2 for |r| <= width, width |r| - width^2 / 2 beyond, r = t - y; any finite label.

    |f'| <= width and f'' <= 1. The sign of f' is not fixed, so the profile is that of a general GLM.

    >>> float(HuberRegression(1.0).derivative(0.0, 5.0))
    1.0
    """

    width: float = 1.0

    proved_for = frozenset({"convex", "single-peaked", "counted"})
    aims_at = "mean"

    def __post_init__(self) -> None:
        hint = "it is the residual beyond which the loss grows linearly"
        object.__setattr__(self, "width", check_between("width", self.width, 1e-6, 1e6, hint))

    @property
    def lipschitz(self) -> float:
        """The width."""
        return self.width

    @property
    def value_constant(self) -> float:
        """The width."""
        return self.width


@final
@dataclass(frozen=True)
class Quantile(ResidualLoss):
    """The pinball loss of a quantile, rounded within ``width`` of its corner; any finite label.

    With r = t - y the derivative runs from -quantile (r <= -width) to 1 - quantile (r >= width) along a
    straight line: |f'| <= max(quantile, 1 - quantile) and f'' = 1 / (2 width).

    >>> float(Quantile(0.75).derivative(0.0, 5.0)), float(Quantile(0.75).derivative(0.0, -5.0))
    (0.25, -0.75)
    """

    quantile: float = 0.5
    width: float = 0.01

    proved_for = frozenset({"convex", "single-peaked"})
    aims_at = "quantile"
    evaluation_error = 10.0  # four operations on a number of at most 1, in units of the slope, at least 1/2

    def __post_init__(self) -> None:
        if isinstance(self.quantile, bool) or not 0 < self.quantile < 1:
            raise ValueError(f"quantile must lie between 0 and 1, got {self.quantile!r}; 0.5 is the median")
        hint = "it is how far from the corner the pinball loss is rounded"
        object.__setattr__(self, "quantile", float(self.quantile))
        object.__setattr__(self, "width", check_between("width", self.width, 1e-6, 1e6, hint))

    @property
    def lipschitz(self) -> float:
        """The steeper of the two slopes."""
        return max(self.quantile, math.nextafter(1.0 - self.quantile, 1.0))

    @property
    def smoothness(self) -> float:
        """1 / (2 width), rounded up."""
        return math.nextafter(0.5 / self.width, math.inf)

    @property
    def value_constant(self) -> float:
        """The width."""
        return self.width

    def _rise(self, residual: Array) -> Array:
        """Return the position of the residual across the corner, from 0 to 1."""
        return np.asarray(np.clip(0.5 + residual * (0.5 / self.width), 0.0, 1.0))

    def _value(self, residual: Array) -> Array:
        rise = self._rise(residual)
        # The integral of the rise: 0 before the corner, width * rise^2 within, the residual after it.
        area = np.where(rise < 1.0, self.width * rise * rise, residual)
        return np.asarray(area - self.quantile * residual)

    def _slope(self, residual: Array) -> Array:
        return np.asarray(self._rise(residual) - self.quantile)

    def _curvature(self, residual: Array) -> Array:
        return np.where(np.abs(residual) <= self.width, 0.5 / self.width, 0.0)


@final
@dataclass(frozen=True)
class Absolute(ResidualLoss):
    """|t - y| for any finite label: what the median of the targets minimizes, with its corner.

    Not smooth, so only for solvers that need no smoothness: noisy gradients, where the number of rows is public, and
    exponential sampling. `Quantile` is half of it, rounded within a width of the corner. The difference t - y rounds,
    but never to the wrong sign, so that a computed derivative is one of the loss.

    >>> Absolute().derivative([0.0, 0.0, 0.0], [-3.0, 0.0, 0.5])
    array([-1.,  0.,  1.])
    """

    proved_for = frozenset({"convex", "single-peaked"})
    lipschitz = 1.0
    smoothness = math.inf
    evaluation_error = math.inf

    def _value(self, residual: Array) -> Array:
        return np.abs(residual)

    def _slope(self, residual: Array) -> Array:
        return np.sign(residual)

    def _curvature(self, residual: Array) -> Array:
        return np.zeros_like(residual)


@final
@dataclass(frozen=True)
class Linear(Loss):
    """f(y, t) = -y t for labels of absolute value at most ``label_bound``.

    f' = -y for every t, and f'' = 0. The loss has no minimum without a ridge or a bounded set. With y = 1 the mean loss
    is -<mean row, theta>, for which releasing a model is releasing a mean (Bassily, Smith and Thakurta, 2014, section
    V). The label determines the sign of f'.

    >>> float(Linear().derivative(0.5, 100.0))
    -0.5
    """

    label_bound: float = 1.0

    family = "monotone"
    proved_for = frozenset({"convex"})
    smoothness = 2.0**-10  # an upper bound on 0, because rules for step sizes divide by it
    evaluation_error = 0.0
    # value_at_zero stays infinite: f is 0 at t = 0, but negative elsewhere.

    def __post_init__(self) -> None:
        bound = check_between("label_bound", self.label_bound, 1e-6, 1e6, "rescale the labels")
        object.__setattr__(self, "label_bound", bound)

    @property
    def lipschitz(self) -> float:
        """The bound on labels."""
        return self.label_bound

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are within their bound."""
        return np.asarray(np.abs(np.asarray(y, dtype=np.float64)) <= self.label_bound)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y t."""
        label, t = floats(y, raw_prediction)
        return np.asarray(-label * t)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.broadcast_to(-label, np.broadcast_shapes(label.shape, t.shape)).copy())

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """0."""
        _, t = floats(y, raw_prediction)
        return np.zeros_like(t)


@final
@dataclass(frozen=True)
class Poisson(Loss):
    """Half the deviance e^t - y t - (y - y log y) of a count with mean e^t, for |t| <= prediction_bound = T.

    The slope of the exponential is unbounded, so beyond T the loss continues along its tangent: f' = exp(clip(t, -T,
    T)) - y is nondecreasing, the loss is convex, and for 0 <= y <= Y

        |f'| <= max(e^T, Y - e^-T),      f'' <= e^T.

    >>> loss = Poisson(prediction_bound=1.0, label_bound=2.0)
    >>> round(loss.lipschitz, 4), float(loss.derivative(1.0, 0.0)), round(float(loss.derivative(0.0, 50.0)), 4)
    (2.7183, 0.0, 2.7183)
    """

    prediction_bound: float = field()
    label_bound: float = field()

    proved_for = frozenset({"convex"})
    aims_at = "count"
    evaluation_error = EXP_ULPS + 2.0  # of a number of at most e^T, and one subtraction

    def __post_init__(self) -> None:
        bounds = {"prediction_bound": (1e-3, 20.0), "label_bound": (1e-6, 1e6)}
        for name, ends in bounds.items():
            bound = check_between(name, getattr(self, name), *ends, "rescale the counts")
            object.__setattr__(self, name, bound)

    @property
    def smoothness(self) -> float:
        """e^prediction_bound, rounded up."""
        return math.exp(self.prediction_bound) * (1 + 2.0**-48)

    @property
    def lipschitz(self) -> float:
        """max(e^T, Y - e^-T), rounded up."""
        return max(self.smoothness, (self.label_bound - math.exp(-self.prediction_bound)) * (1 + 2.0**-48))

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels lie between 0 and their bound."""
        labels = np.asarray(y, dtype=np.float64)
        return np.asarray((labels >= 0) & (labels <= self.label_bound))

    def _inside(self, t: Array) -> Array:
        return np.asarray(np.clip(t, -self.prediction_bound, self.prediction_bound))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """Half the deviance, along its tangent beyond the bound."""
        label, t = floats(y, raw_prediction)
        inside = self._inside(t)
        beyond = (np.exp(inside) - label) * (t - inside)
        return np.asarray(np.exp(inside) - label * inside - (label - xlogy(label, label)) + beyond)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The predicted mean, clipped to its range, minus the count."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.exp(self._inside(t)) - label)

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """e^t within the bound, otherwise 0."""
        _, t = floats(y, raw_prediction)
        return np.where(np.abs(t) <= self.prediction_bound, np.exp(self._inside(t)), 0.0)
