"""Losses of labels -1 and +1: logistic, hinge and their capped or rounded variants."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from discreet._typing import Array, Mask
from discreet.losses import base
from discreet.losses.base import EXP_ULPS, Kernel, Loss, check_between
from discreet.privacy.events import Family
from discreet.privacy.guarantee import SLACK


class MarginLoss(Loss):
    """A loss of the margin z = y t for labels -1 and +1 that never increases with z."""

    family: Family = "monotone"
    label_bound = 1.0

    @abstractmethod
    def _value(self, z: Array) -> Array:
        """f at margin z."""

    @abstractmethod
    def _slope(self, z: Array) -> Array:
        """-f' at margin z, at least 0."""

    @abstractmethod
    def _curvature(self, z: Array) -> Array:
        """f'' at margin z."""

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are -1 or +1."""
        label = np.asarray(y, dtype=np.float64)
        return np.asarray((label == 1.0) | (label == -1.0))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f(y t)."""
        return np.asarray(self._value(_margins(y, raw_prediction)[1]))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f'(y t) y."""
        return self._derivative(*_margins(y, raw_prediction))

    def value_and_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """Return both, from the same margins."""
        label, z = _margins(y, raw_prediction)
        return np.asarray(self._value(z)), self._derivative(label, z)

    def _derivative(self, label: Array, z: Array) -> Array:
        return np.asarray(-label * self._slope(z))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f''(y t)."""
        return np.asarray(self._curvature(_margins(y, raw_prediction)[1]))

    def value_range(self, reach: float, label_bound: float | None = None) -> float:
        """Return the difference of the values at both ends."""
        ends = self.value(np.ones(2), np.array([-reach, reach]))
        return min(2.0 * reach * self.lipschitz, float(ends[0] - ends[1]) + 2.0**-40 * (1 + reach)) * SLACK


def _margins(y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
    """Return labels y and margins y t, as float64."""
    label = np.asarray(y, dtype=np.float64)
    return label, np.asarray(label * np.asarray(raw_prediction, dtype=np.float64))


@final
@dataclass(frozen=True)
class Logistic(MarginLoss):
    """f(y, t) = log(1 + exp(-y t)) for labels -1 and +1.

    |f'| < 1, f'' <= 1/4 (attained at t = 0), and f' has the sign of -y for every t.

    >>> float(Logistic().second_derivative(1.0, 0.0))
    0.25
    """

    family = "logistic"
    proved_for = frozenset({"convex", "single-peaked", "classes", "second-order", "likelihood", "counted"})
    lipschitz = 1.0
    smoothness = typical_curvature = 0.25
    evaluation_error = EXP_ULPS + 4.0
    value_at_zero = math.log(2.0)
    curvature_slope = 0.1  # the third derivative is at most 1 / (6 sqrt(3)) = 0.0962...
    kernel = Kernel(base.LOGISTIC, 1.0)

    def _value(self, z: Array) -> Array:
        return np.asarray(np.logaddexp(0.0, -z))

    def _slope(self, z: Array) -> Array:
        return _logistic_slope(z, 1.0)

    def _curvature(self, z: Array) -> Array:
        decay = np.exp(-np.abs(z))
        return np.asarray(decay / (1.0 + decay) ** 2)

    def derivative_bound(self, reach: float, label_bound: float | None = None) -> float:
        """1 / (1 + exp(-reach))."""
        return min(self.lipschitz, sigmoid(reach) * SLACK)

    def gradient_gap(self, reach: float) -> float:
        """Smaller than twice the slope, because opposite rows have gradients in the same direction."""
        return min(2.0 * self.derivative_bound(reach), logistic_gap(reach))

    def capped(self, cap: float) -> Loss:
        """Return the logistic loss continued by a line."""
        return self if cap >= self.lipschitz else CappedLogistic(cap)


def _logistic_slope(z: Array, cap: float) -> Array:
    return np.asarray(base.logistic_slope(z, np.exp(-np.abs(z)), cap))


def sigmoid(t: float) -> float:
    """1 / (1 + exp(-t)), without overflow."""
    return 1.0 / (1.0 + math.exp(-t)) if t >= 0 else math.exp(t) / (1.0 + math.exp(t))


def logistic_gap(tau: float) -> float:
    """Return the largest distance of two logistic gradients of unit rows at one point of norm at most ``tau``.

    kappa(tau) = 2 max over s of sqrt(1 - s^2) sigmoid(tau s): 1 at tau = 0, 2 as tau grows. At tau = 0 opposite rows
    have gradients in the same direction, so replacing one by the other moves the gradient by 1, not by 2.

    >>> round(logistic_gap(1.0), 4), round(logistic_gap(10.0), 4)
    (1.0991, 1.8208)
    """
    if not 0 <= tau < math.inf:
        raise ValueError(f"tau must be a finite number of at least 0, got {tau!r}")
    low, high = 0.0, 1.0  # the maximum is the unique root of s = tau (1 - sigmoid(tau s)) (1 - s^2)
    for _ in range(200):
        s = 0.5 * (low + high)
        if s < tau * sigmoid(-tau * s) * (1.0 - s * s):
            low = s
        else:
            high = s
    # On [low, high] both factors are monotone, so this bounds the maximum from above.
    return min(2.0, 2.0 * math.sqrt(1.0 - low * low) * sigmoid(tau * high) * SLACK)


@final
@dataclass(frozen=True)
class CappedLogistic(MarginLoss):
    """The logistic loss continued by a straight line where its slope reaches ``cap``; labels -1 and +1.

    f' = -y min(1 / (1 + exp(y t)), cap): still convex, and |f'| <= cap. The gradient of a badly misclassified record is
    no larger than that of an uncertain one, so less noise hides it. At cap = 1 it is the logistic loss.

    >>> float(CappedLogistic(0.6).derivative(1.0, -100.0))
    -0.6
    """

    cap: float = 0.6

    proved_for = frozenset({"convex", "single-peaked"})
    smoothness = typical_curvature = 0.25

    def __post_init__(self) -> None:
        object.__setattr__(self, "cap", check_between("cap", self.cap, 0.01, 1.0, "0.6 is usual"))

    lipschitz = value_constant = property(attrgetter("cap"), doc="The cap.")

    @property
    def evaluation_error(self) -> float:
        """That of the logistic loss, in units of the cap; taking a minimum is exact and never adds."""
        return Logistic.evaluation_error / self.cap

    @property
    def value_at_zero(self) -> float:
        """f at t = 0, rounded up."""
        return float(self.value(1.0, 0.0)) * (1 + 1e-14)

    @property
    def kernel(self) -> Kernel:
        """The logistic formula with its cap."""
        return Kernel(base.LOGISTIC, self.cap)

    @property
    def _corner(self) -> float:
        """The margin at which the slope reaches the cap."""
        return math.log((1.0 - self.cap) / self.cap) if self.cap < 1.0 else -math.inf

    def _value(self, z: Array) -> Array:
        corner = self._corner
        short = np.maximum(corner - z, 0.0) if self.cap < 1.0 else np.zeros_like(z)
        return np.asarray(np.logaddexp(0.0, -np.maximum(z, corner)) + self.cap * short)

    def _slope(self, z: Array) -> Array:
        return _logistic_slope(z, self.cap)

    def _curvature(self, z: Array) -> Array:
        return np.where(z >= self._corner, Logistic()._curvature(z), 0.0)

    def derivative_bound(self, reach: float, label_bound: float | None = None) -> float:
        """Return the cap, or the logistic loss's bound if that is smaller."""
        return min(self.cap, Logistic().derivative_bound(reach))

    def gradient_gap(self, reach: float) -> float:
        """Return that of the logistic loss if no prediction reaches the cap."""
        uncapped = self.cap >= sigmoid(reach) * SLACK
        return Logistic().gradient_gap(reach) if uncapped else 2.0 * self.derivative_bound(reach)


@final
@dataclass(frozen=True)
class HuberHinge(MarginLoss):
    """The hinge max(0, 1 - z), z = y t, made quadratic within ``width`` of its corner; labels -1 and +1.

    f = 0 for z > 1 + h, (1 + h - z)^2 / (4 h) for |1 - z| <= h, and 1 - z below. |f'| <= 1, f'' <= 1 / (2 h),
    and f' never has the sign of y. The second derivative jumps at |1 - z| = h, where its inner value is used.

    >>> HuberHinge(0.5).smoothness
    1.0
    """

    width: float = 0.5

    proved_for = frozenset({"convex", "single-peaked", "classes", "second-order", "counted"})
    lipschitz = 1.0

    def __post_init__(self) -> None:
        hint = "it is how far from the corner the hinge is rounded; 0.5 is usual"
        object.__setattr__(self, "width", check_between("width", self.width, 1e-6, 1e6, hint))

    @property
    def smoothness(self) -> float:
        """1 / (2 width), rounded up."""
        nearest = 0.5 / self.width
        exact = Fraction(1, 2) / Fraction(self.width)
        return nearest if nearest >= exact else math.nextafter(nearest, math.inf)

    @property
    def evaluation_error(self) -> float:
        """Covers the rounding of 1 + width, magnified by the slope, and three more operations."""
        return (1.0 + self.width) / (2.0 * self.width) + 4.0

    @property
    def value_at_zero(self) -> float:
        """f at t = 0, rounded up: a record without influence still has a loss."""
        return float(self.value(1.0, 0.0)) * (1 + 1e-15)

    @property
    def value_constant(self) -> float:
        """The width."""
        return self.width

    @property
    def kernel(self) -> Kernel:
        """The rounded hinge."""
        return Kernel(base.HINGE, self.width)

    def _value(self, z: Array) -> Array:
        return np.asarray(base.hinge_value(z, self._slope(z), self.width))

    def _slope(self, z: Array) -> Array:
        return np.asarray(base.hinge_slope(z, self.width))

    def _curvature(self, z: Array) -> Array:
        return np.where(np.abs(1.0 - z) <= self.width, 0.5 / self.width, 0.0)


@final
@dataclass(frozen=True)
class Hinge(MarginLoss):
    """max(0, 1 - y t) for labels -1 and +1. Not smooth, so only for solvers that do not need smoothness.

    These are the noisy gradient methods ("noisy-gd", "noisy-sgd", "mirror-descent"), if the number of rows is public.

    >>> float(Hinge().derivative(1.0, 0.0))
    -1.0
    """

    proved_for = frozenset({"convex", "single-peaked"})
    lipschitz = 1.0
    smoothness = math.inf
    evaluation_error = math.inf
    value_at_zero = 1.0

    def _value(self, z: Array) -> Array:
        return np.asarray(np.maximum(0.0, 1.0 - z))

    def _slope(self, z: Array) -> Array:
        return np.where(z < 1.0, 1.0, 0.0)

    def _derivative(self, label: Array, z: Array) -> Array:
        return np.where(z < 1.0, -label, 0.0)  # at the corner 0

    def _curvature(self, z: Array) -> Array:
        return np.zeros_like(z)
