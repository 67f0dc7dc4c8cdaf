"""Pointwise losses of (label, raw prediction), with the constants that privacy proofs read.

A loss is a function f(y, t) of a label and a raw prediction t = <v, theta>. The record's gradient is
f'(y, t) v and its Hessian f''(y, t) v v^T, so bounds on |f'| and f'' together with |v| <= R are all that a
sensitivity needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.privacy.events import Family

Array = NDArray[np.float64]

#: Assumed relative error of exp, in units of the unit roundoff 2**-53; libm and vector versions stay below.
EXP_ULPS = 8.0


@runtime_checkable
class Loss(Protocol):
    """What a solver may ask of a loss.

    ``lipschitz`` bounds the norm of the derivative and ``smoothness`` the second derivative, for every label
    and prediction; ``family`` names the privacy profile that applies; ``evaluation_error`` bounds the
    rounding error of a computed derivative at a given prediction, in units of 2**-53 times ``lipschitz``;
    ``value_at_zero`` is the public value of a record's loss at raw prediction 0, or infinity if it depends on
    the label. ``kernel_id`` and ``kernel_parameter`` select the loss inside compiled kernels.
    """

    kernel_id: ClassVar[int]

    @property
    def family(self) -> Family: ...
    @property
    def lipschitz(self) -> float: ...
    @property
    def smoothness(self) -> float: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def kernel_parameter(self) -> float: ...
    @property
    def evaluation_error(self) -> float: ...
    @property
    def value_at_zero(self) -> float: ...
    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]: ...
    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array: ...
    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array: ...
    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array: ...


def _floats(*arrays: ArrayLike) -> list[Array]:
    return [np.asarray(array, dtype=np.float64) for array in arrays]


def _signs(y: ArrayLike) -> NDArray[np.bool_]:
    labels = np.asarray(y, dtype=np.float64)
    return np.asarray((labels == 1.0) | (labels == -1.0))


def _check_width(width: float, meaning: str) -> None:
    if isinstance(width, bool) or not 1e-6 <= width <= 1e6:
        raise ValueError(f"width must lie between 1e-6 and 1e6, got {width!r}; it is {meaning}")


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
        return _signs(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """log(1 + exp(-y t)), without overflow."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(np.logaddexp(0.0, -label * t))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y / (1 + exp(y t))."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(-label * _sigmoid(-label * t))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """e^{-|t|} / (1 + e^{-|t|})^2."""
        _, t = _floats(y, raw_prediction)
        decay = np.exp(-np.abs(t))
        return np.asarray(decay / (1.0 + decay) ** 2)


def _sigmoid(z: Array) -> Array:
    decay = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, decay) / (1.0 + decay)


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
        _check_width(self.width, "how far from the corner the hinge is rounded; 0.5 is usual")
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
        return _signs(y)

    def _slope(self, z: Array) -> Array:
        return np.asarray(np.clip(((1.0 + self.width) - z) / (2.0 * self.width), 0.0, 1.0))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The rounded hinge."""
        label, t = _floats(y, raw_prediction)
        slope = self._slope(label * t)
        return np.where(slope < 1.0, self.width * slope * slope, 1.0 - label * t)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y times the slope, which runs from 1 to 0 across the corner."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(-label * self._slope(label * t))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 / (2 width) near the corner, else 0."""
        label, t = _floats(y, raw_prediction)
        return np.where(np.abs(1.0 - label * t) <= self.width, 0.5 / self.width, 0.0)


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
        _check_width(self.width, "the residual beyond which the loss grows linearly")
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
        return np.asarray(np.abs(np.asarray(y, dtype=np.float64)) <= 2.0**900)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The rounded absolute residual."""
        label, t = _floats(y, raw_prediction)
        slope = np.clip(t - label, -self.width, self.width)
        return np.asarray(slope * (t - label - 0.5 * slope))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The residual, clipped to the width."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(np.clip(t - label, -self.width, self.width))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 within the width, else 0."""
        label, t = _floats(y, raw_prediction)
        return np.where(np.abs(t - label) <= self.width, 1.0, 0.0)


@dataclass(frozen=True)
class Softmax:
    """f(y, t) = log sum_k exp(t_k) - t_y for class codes y in 0 .. n_classes - 1 and t in R^n_classes.

    The derivative q - e_y has norm at most sqrt(2), and the Hessian diag(q) - q q^T eigenvalues at most 1/2.

    >>> Softmax(4).derivative(2, [0.0, 0.0, 0.0, 0.0])
    array([ 0.25,  0.25, -0.75,  0.25])
    """

    n_classes: int

    kernel_id: ClassVar[int] = 3
    family: ClassVar[Family] = "softmax"
    lipschitz: ClassVar[float] = math.sqrt(2.0)  # the nearest double lies above
    smoothness: ClassVar[float] = 0.5
    kernel_parameter: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.n_classes, bool) or not isinstance(self.n_classes, int | np.integer):
            raise ValueError(f"n_classes must be a whole number, got {self.n_classes!r}")
        if not 2 <= self.n_classes <= 100_000:
            raise ValueError(f"n_classes must lie between 2 and 100000, got {self.n_classes!r}")
        object.__setattr__(self, "n_classes", int(self.n_classes))

    @property
    def n_outputs(self) -> int:
        """The number of classes."""
        return self.n_classes

    @property
    def evaluation_error(self) -> float:
        """Two exponentials, a shift by the largest prediction, a sum over classes (proofs/rounding.md, 3)."""
        return 2.0 * EXP_ULPS + 6.0 + 2.0 * self.n_classes

    @property
    def value_at_zero(self) -> float:
        """log n_classes, rounded up."""
        return math.log(self.n_classes) * (1 + 1e-15)

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are whole numbers from 0 to n_classes - 1."""
        labels = np.asarray(y, dtype=np.float64)
        return np.asarray((labels == np.floor(labels)) & (labels >= 0) & (labels < self.n_classes))

    def probabilities(self, raw_prediction: ArrayLike) -> Array:
        """exp(t_k) / sum_j exp(t_j) along the last axis."""
        (t,) = _floats(raw_prediction)
        exponentials = np.exp(t - t.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The negative log-likelihood of each label."""
        return self.value_and_derivative(y, raw_prediction)[0]

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """q - e_y, one row of n_classes entries per label."""
        return self.value_and_derivative(y, raw_prediction)[1]

    def value_and_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """Both at the price of one exponential per class."""
        (t,) = _floats(raw_prediction)
        codes = self._codes(y)[..., None]
        shifted = t - t.max(axis=-1, keepdims=True)
        own = np.take_along_axis(shifted, codes, axis=-1)[..., 0]
        excess = np.exp(shifted, out=shifted)
        total = excess.sum(axis=-1, keepdims=True)
        excess /= total
        np.put_along_axis(excess, codes, np.take_along_axis(excess, codes, axis=-1) - 1.0, axis=-1)
        return np.asarray(np.log(total[..., 0]) - own), excess

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """diag(q) - q q^T for every label; the label itself does not matter."""
        q: Any = self.probabilities(raw_prediction)
        return np.asarray(q[..., None] * (np.eye(self.n_classes) - q[..., None, :]))

    @staticmethod
    def _codes(y: ArrayLike) -> NDArray[np.int64]:
        return np.asarray(np.asarray(y), dtype=np.int64)


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
        return _signs(y)

    def _corner(self) -> float:
        """The margin y t at which the slope reaches the cap."""
        return math.log((1.0 - self.cap) / self.cap) if self.cap < 1.0 else -math.inf

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """Logistic beyond the corner, a line of slope -cap before it."""
        label, t = _floats(y, raw_prediction)
        z = label * t
        corner = self._corner()
        short = np.maximum(corner - z, 0.0) if self.cap < 1.0 else np.zeros_like(z)
        return np.asarray(np.logaddexp(0.0, -np.maximum(z, corner)) + self.cap * short)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The logistic derivative, held at the cap."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(-label * np.minimum(_sigmoid(-label * t), self.cap))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The logistic one beyond the corner, 0 before it."""
        label, t = _floats(y, raw_prediction)
        curvature = Logistic().second_derivative(label, t)
        return np.where(label * t >= self._corner(), curvature, 0.0)


@dataclass(frozen=True)
class CappedSoftmax:
    """The softmax loss whose derivative q - e_y is shrunk onto the ball of radius ``cap``.

    The shrunk field is not the gradient of a function, so only solvers that pay for every noisy step may use
    it; its value is that of the softmax. Shrinking is a projection, which moves no two derivatives further
    apart: the Lipschitz constant of the derivative stays 1/2.

    >>> round(float(np.linalg.norm(CappedSoftmax(3, 0.5).derivative(0, [0.0, 9.0, 0.0]))), 6)
    0.5
    """

    n_classes: int
    cap: float = 0.5

    kernel_id: ClassVar[int] = 5
    family: ClassVar[Family] = "softmax"
    smoothness: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        Softmax(self.n_classes)  # refuses impossible numbers of classes
        if isinstance(self.cap, bool) or not 0.01 <= self.cap <= math.sqrt(2.0):
            raise ValueError(f"cap must lie between 0.01 and sqrt(2), got {self.cap!r}; 0.3 is usual")
        object.__setattr__(self, "cap", float(self.cap))

    @property
    def lipschitz(self) -> float:
        """The cap."""
        return self.cap

    @property
    def n_outputs(self) -> int:
        """The number of classes."""
        return self.n_classes

    @property
    def kernel_parameter(self) -> float:
        """The cap."""
        return self.cap

    @property
    def evaluation_error(self) -> float:
        """The softmax's in units of the cap, then a norm of n_classes terms, a quotient and a product."""
        softmax = Softmax(self.n_classes)
        return softmax.evaluation_error * softmax.lipschitz / self.cap + self.n_classes + 8.0

    @property
    def value_at_zero(self) -> float:
        """log n_classes, rounded up."""
        return Softmax(self.n_classes).value_at_zero

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are whole numbers from 0 to n_classes - 1."""
        return Softmax(self.n_classes).valid_labels(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The softmax's negative log-likelihood."""
        return Softmax(self.n_classes).value(y, raw_prediction)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """q - e_y, not longer than the cap."""
        residual = Softmax(self.n_classes).derivative(y, raw_prediction)
        norms = np.sqrt(np.square(residual).sum(axis=-1, keepdims=True))
        return np.asarray(residual * (self.cap / np.maximum(norms, self.cap)))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The softmax's, an upper bound."""
        return Softmax(self.n_classes).second_derivative(y, raw_prediction)


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
        label, t = _floats(y, raw_prediction)
        slope = np.clip(t - label, -self.lipschitz, self.lipschitz)
        return np.asarray(slope * (t - label - 0.5 * slope))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The residual, held at its bound."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(np.clip(t - label, -self.lipschitz, self.lipschitz))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """1 within the bound, else 0."""
        label, t = _floats(y, raw_prediction)
        return np.where(np.abs(t - label) <= self.lipschitz, 1.0, 0.0)


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 - y t) for labels -1 and +1; not smooth, so only for solvers that need no smoothness.

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
        return _signs(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """max(0, 1 - y t)."""
        label, t = _floats(y, raw_prediction)
        return np.asarray(np.maximum(0.0, 1.0 - label * t))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """-y below the corner, 0 from it on."""
        label, t = _floats(y, raw_prediction)
        return np.where(label * t < 1.0, -label, 0.0)

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """0 wherever it exists."""
        _, t = _floats(y, raw_prediction)
        return np.zeros_like(t)


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
        _check_width(self.width, "how far from the corner the pinball loss is rounded")
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
        return np.asarray(np.abs(np.asarray(y, dtype=np.float64)) <= 2.0**900)

    def _rise(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """The residual, and how far across the corner it is: 0 to 1."""
        label, t = _floats(y, raw_prediction)
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
