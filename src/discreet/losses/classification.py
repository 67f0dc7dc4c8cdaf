"""Losses of labels -1 and +1: logistic, hinge and their bounded or rounded relatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.losses.base import EXP_ULPS, Array, check_width, floats, signs
from discreet.privacy.events import Family


@dataclass(frozen=True)
class Logistic:
    """f(y, t) = log(1 + exp(-y t)) for labels -1 and +1.

    |f'| < 1, f'' <= 1/4 (attained at t = 0), and f' has the sign of -y whatever t is.

    >>> float(Logistic().second_derivative(1.0, 0.0))
    0.25
    """

    kernel_id: ClassVar[int] = 0
    family: ClassVar[Family] = "logistic"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    n_outputs: ClassVar[int] = 1
    kernel_parameter: ClassVar[float] = 0.0
    evaluation_error: ClassVar[float] = EXP_ULPS + 4.0
    value_at_zero: ClassVar[float] = math.log(2.0)

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are -1 or +1."""
        return signs(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """log(1 + exp(-y t)), without overflow."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.logaddexp(0.0, -label * t))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y / (1 + exp(y t))."""
        label, t = floats(y, raw_prediction)
        return np.asarray(-label * _sigmoid(-label * t))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """e^{-|t|} / (1 + e^{-|t|})^2."""
        _, t = floats(y, raw_prediction)
        decay = np.exp(-np.abs(t))
        return np.asarray(decay / (1.0 + decay) ** 2)


def _sigmoid(z: Array) -> Array:
    decay = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, decay) / (1.0 + decay)


@dataclass(frozen=True)
class CappedLogistic:
    """The logistic loss continued by a straight line where its slope reaches ``cap``; labels -1 and +1.

    f' = -y min(1 / (1 + exp(y t)), cap): still convex, and |f'| <= cap. A record that the model gets badly
    wrong pulls no harder than one it is unsure about, so less noise hides it. At cap = 1 it is the logistic
    loss.

    >>> float(CappedLogistic(0.6).derivative(1.0, -100.0))
    -0.6
    """

    cap: float = 0.6

    kernel_id: ClassVar[int] = 4
    family: ClassVar[Family] = "monotone"
    smoothness: ClassVar[float] = 0.25
    n_outputs: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if isinstance(self.cap, bool) or not 0.01 <= self.cap <= 1:
            raise ValueError(f"cap must lie between 0.01 and 1, got {self.cap!r}; 0.6 is usual")
        object.__setattr__(self, "cap", float(self.cap))

    @property
    def lipschitz(self) -> float:
        """The cap."""
        return self.cap

    @property
    def kernel_parameter(self) -> float:
        """The cap."""
        return self.cap

    @property
    def evaluation_error(self) -> float:
        """That of the logistic loss, in units of the cap; taking a minimum is exact and never adds."""
        return Logistic.evaluation_error / self.cap

    @property
    def value_at_zero(self) -> float:
        """f at t = 0, rounded up."""
        return float(self.value(1.0, 0.0)) * (1 + 1e-14)

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are -1 or +1."""
        return signs(y)

    def _corner(self) -> float:
        """The margin y t at which the slope reaches the cap."""
        return math.log((1.0 - self.cap) / self.cap) if self.cap < 1.0 else -math.inf

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """Logistic beyond the corner, a line of slope -cap before it."""
        label, t = floats(y, raw_prediction)
        z = label * t
        corner = self._corner()
        short = np.maximum(corner - z, 0.0) if self.cap < 1.0 else np.zeros_like(z)
        return np.asarray(np.logaddexp(0.0, -np.maximum(z, corner)) + self.cap * short)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The logistic derivative, held at the cap."""
        label, t = floats(y, raw_prediction)
        return np.asarray(-label * np.minimum(_sigmoid(-label * t), self.cap))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The logistic one beyond the corner, 0 before it."""
        label, t = floats(y, raw_prediction)
        curvature = Logistic().second_derivative(label, t)
        return np.where(label * t >= self._corner(), curvature, 0.0)


@dataclass(frozen=True)
class HuberHinge:
    """The hinge max(0, 1 - z), z = y t, made quadratic within ``width`` of its corner; labels -1 and +1.

    f = 0 for z > 1 + h, (1 + h - z)^2 / (4 h) for |1 - z| <= h, and 1 - z below. |f'| <= 1, f'' <= 1 / (2 h),
    and f' never has the sign of y. The second derivative jumps at |1 - z| = h; there it is taken from inside.

    >>> HuberHinge(0.5).smoothness
    1.0
    """

    width: float = 0.5

    kernel_id: ClassVar[int] = 1
    family: ClassVar[Family] = "monotone"
    lipschitz: ClassVar[float] = 1.0
    n_outputs: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_width(self.width, "how far from the corner the hinge is rounded; 0.5 is usual")
        object.__setattr__(self, "width", float(self.width))

    @property
    def smoothness(self) -> float:
        """1 / (2 width), rounded up."""
        nearest = 0.5 / self.width
        exact = Fraction(1, 2) / Fraction(self.width)
        return nearest if nearest >= exact else math.nextafter(nearest, math.inf)

    @property
    def kernel_parameter(self) -> float:
        """The width."""
        return self.width

    @property
    def evaluation_error(self) -> float:
        """The rounding of 1 + width, magnified by the slope, and three more operations."""
        return (1.0 + self.width) / (2.0 * self.width) + 4.0

    @property
    def value_at_zero(self) -> float:
        """f at t = 0, rounded up: a record with no influence still has a loss."""
        return float(self.value(1.0, 0.0)) * (1 + 1e-15)

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are -1 or +1."""
        return signs(y)

    def _slope(self, z: Array) -> Array:
        return np.asarray(np.clip(((1.0 + self.width) - z) / (2.0 * self.width), 0.0, 1.0))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The rounded hinge."""
        label, t = floats(y, raw_prediction)
        slope = self._slope(label * t)
        return np.where(slope < 1.0, self.width * slope * slope, 1.0 - label * t)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y times the slope, which runs from 1 to 0 across the corner."""
        label, t = floats(y, raw_prediction)
        return np.asarray(-label * self._slope(label * t))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 / (2 width) near the corner, else 0."""
        label, t = floats(y, raw_prediction)
        return np.where(np.abs(1.0 - label * t) <= self.width, 0.5 / self.width, 0.0)


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 - y t) for labels -1 and +1; not smooth, so only for solvers that need no smoothness.

    Those are noisy gradients ("noisy-gd", "noisy-sgd", "mirror-descent"), where the number of rows is public.

    >>> float(Hinge().derivative(1.0, 0.0))
    -1.0
    """

    kernel_id: ClassVar[int] = 7
    family: ClassVar[Family] = "monotone"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf
    n_outputs: ClassVar[int] = 1
    kernel_parameter: ClassVar[float] = 0.0
    evaluation_error: ClassVar[float] = math.inf
    value_at_zero: ClassVar[float] = 1.0

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are -1 or +1."""
        return signs(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """max(0, 1 - y t)."""
        label, t = floats(y, raw_prediction)
        return np.asarray(np.maximum(0.0, 1.0 - label * t))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y below the corner, 0 from it on."""
        label, t = floats(y, raw_prediction)
        return np.where(label * t < 1.0, -label, 0.0)

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """0 wherever it exists."""
        _, t = floats(y, raw_prediction)
        return np.zeros_like(t)
