"""The interface of a loss: its formulas, the constants that proofs use, and the theorems proved for it.

The formulas of compiled losses are defined here once. NumPy evaluates them on arrays. The compiled passes over rows
evaluate the same functions on single numbers, with `clip`, `least` and `select` compiled to branches
(`discreet.records.kernels.numba_tools`). Numba caches compiled passes on disk and does not notice changes of this
file: after a change, delete ``src/**/__pycache__/*.nbi``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from discreet._typing import Array, Mask
from discreet.privacy.events import Family
from discreet.privacy.guarantee import SLACK

#: The formula that a compiled pass evaluates.
LOGISTIC, HINGE, RESIDUAL, SOFTMAX = range(4)


class Kernel(NamedTuple):
    """The compiled form of a loss: one of the formulas above, and its parameter.

    LOGISTIC : cap on the slope; 1 for no cap.
    HINGE : width within which the corner is rounded.
    RESIDUAL : bound to which the residual is clipped.
    SOFTMAX : cap on the norm of the derivative; 0 for no cap.
    """

    formula: int
    parameter: float


def clip(x: Any, low: float, high: float) -> Any:
    """Clip to [low, high]."""
    return np.clip(x, low, high)


def least(a: Any, b: float) -> Any:
    """Return the smaller of two numbers."""
    return np.minimum(a, b)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return ``yes`` where the condition holds, otherwise ``no``."""
    return np.where(condition, yes, no)


def logistic_slope(z: Any, decay: Any, cap: float) -> Any:
    """|f'| of the logistic loss at margin z, at most ``cap``, for decay = exp(-|z|)."""
    return least(select(z >= 0.0, decay, 1.0) / (1.0 + decay), cap)


def hinge_slope(z: Any, width: float) -> Any:
    """|f'| of the rounded hinge at margin z: from 1 to 0 across the corner."""
    return clip(((1.0 + width) - z) / (2.0 * width), 0.0, 1.0)


def hinge_value(z: Any, slope: Any, width: float) -> Any:
    """The rounded hinge at margin z, where its slope is ``slope``."""
    return select(slope < 1.0, width * slope * slope, 1.0 - z)


def residual_slope(residual: Any, width: float) -> Any:
    """The residual, clipped to ``width``."""
    return clip(residual, -width, width)


def residual_value(residual: Any, slope: Any) -> Any:
    """Half the squared residual, continued by its tangent where the slope is clipped."""
    return slope * (residual - 0.5 * slope)


FORMULAS = (logistic_slope, hinge_slope, hinge_value, residual_slope, residual_value)

#: Assumed relative error of exp, in units of the unit roundoff 2**-53; libm and vector versions stay below it.
EXP_ULPS = 8.0

#: Theorems that may be proved for a loss. A solver requires them by name and refuses a loss without one.
Theorem = Literal["convex", "quadratic", "single-peaked", "classes", "second-order", "likelihood", "counted"]
MEANINGS: dict[Theorem, str] = {
    "convex": "the gradient of a convex loss",
    "quadratic": "the squared loss, whose minimizer depends on two sums only",
    "single-peaked": "a second derivative that rises and then falls, and a proved error of computed values",
    "classes": "the logistic loss, the softmax or the Huber-SVM",
    "second-order": "a smooth loss of class labels",
    "likelihood": "the logistic loss or the softmax, with or without a margin",
    "counted": "a compiled derivative that can be counted in whole steps",
}


class Loss(ABC):
    """A loss f(y, t) of a label y and a raw prediction t = <v, theta>, with the constants that privacy proofs use.

    A record's gradient is f'(y, t) v and its Hessian f''(y, t) v v^T, so a sensitivity needs only bounds on f', f'' and
    |v|. Every bound must hold for every valid label and every prediction: a bound that is too small makes a privacy
    guarantee false. Losses must be hashable and picklable; a frozen dataclass is both.

    A subclass must define
        valid_labels, value, derivative, second_derivative : elementwise functions of arrays.
        lipschitz : bound on |f'|.
        smoothness : bound on f''; infinite if f' jumps.
        evaluation_error : bound on the error of a computed derivative, in units of 2**-53 times ``lipschitz``, for an
            exact t. Infinite is allowed only together with an infinite ``smoothness``.

    and may define
        family : the profile that prices objective perturbation. "general" is always valid; "monotone" if the label
            alone determines the sign of f'; "logistic" if also f'' = |f'| (1 - |f'|); "softmax" for several outputs.
        proved_for : names of the theorems that hold (keys of `MEANINGS`). Without "convex", only solvers that pay for
            every noisy gradient accept the loss.
        value_at_zero : public upper bound on f at t = 0, for a loss that is never negative; infinite if unknown.
        label_bound : largest |y| of a valid label; None if there is none.
        prediction_bound : largest |t| for which the loss follows its named formula.
        curvature_slope : Lipschitz constant of f'' in t.
        value_constant : largest constant in the formula of ``value``.
        kernel : the compiled form, or None for NumPy. The two must agree.
        aims_at : what a regression predicts: the "mean" of targets, a "quantile", or the mean of a "count".
        quantile : the level, if the loss aims at a quantile.
        n_outputs : number of raw predictions per record. If more than 1 and the family is "softmax",
            ``probabilities`` must return q with f'' = diag(q) - q q^T.
        linear : whether f is a function of a linear prediction; only `GradientLoss` is not.
        placeless : whether a computed gradient depends on its record and theta alone, to the last bit, wherever the
            record is kept. Derivatives that jump need it where other records may change places.
        derivative_bound, gradient_gap, value_range, capped, typical_curvature : sharper than the defaults.

    The losses of this package are final: a subclass would claim what was proved for another formula.
    """

    family: Family = "general"
    proved_for: frozenset[Theorem] = frozenset()
    aims_at: Literal["mean", "quantile", "count"] | None = None
    quantile: float = 0.5
    label_bound: float | None = None
    prediction_bound: float = math.inf
    curvature_slope: float = math.inf
    n_outputs: int = 1
    linear: bool = True
    placeless: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__bases__:
            if getattr(base, "__final__", False):
                raise TypeError(
                    f"{cls.__name__} cannot be made from {base.__name__}, whose proofs hold for its own formula only; "
                    "derive it from Loss"
                )

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Bound on |f'|."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Bound on f''."""

    @property
    @abstractmethod
    def evaluation_error(self) -> float:
        """Bound on the error of a computed f', in units of 2**-53 times ``lipschitz``."""

    @property
    def value_at_zero(self) -> float:
        """Public upper bound on f at t = 0, if f is never negative."""
        return math.inf

    @property
    def value_constant(self) -> float:
        """Largest constant in the formula of ``value``."""
        return 0.0

    @property
    def kernel(self) -> Kernel | None:
        """The compiled form."""
        return None

    @abstractmethod
    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels the bounds hold for."""

    @abstractmethod
    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f(y, t)."""

    @abstractmethod
    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f'(y, t)."""

    @abstractmethod
    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """f''(y, t)."""

    def value_and_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """Return both, for losses that share work between them."""
        return self.value(y, raw_prediction), self.derivative(y, raw_prediction)

    def probabilities(self, raw_prediction: ArrayLike, y: ArrayLike | None = None) -> Array:
        """The q of f'' = diag(q) - q q^T, for losses of several outputs; it may depend on the label."""
        raise NotImplementedError(f"{type(self).__name__} has no class probabilities")

    def derivative_bound(self, reach: float, label_bound: float | None = None) -> float:
        """Bound |f'| for |t| <= ``reach``, and for |y| <= ``label_bound`` if the caller enforces that."""
        return self.lipschitz

    def gradient_gap(self, reach: float) -> float:
        """Bound |f'(y, <u, theta>) u - f'(z, <v, theta>) v| over |u|, |v| <= 1, |theta| <= ``reach`` and labels."""
        return 2.0 * self.derivative_bound(reach)

    def value_range(self, reach: float, label_bound: float | None = None) -> float:
        """Bound max f - min f over |t| <= ``reach``, for the worst label, with |y| <= ``label_bound`` if enforced."""
        return 2.0 * reach * self.lipschitz * SLACK

    def value_scale(self, reach: float, label_bound: float) -> float:
        """Bound |f| and the terms that its evaluation adds, for |t| <= ``reach`` and |y| <= ``label_bound``."""
        return max(1.0, self.lipschitz) * (1.0 + abs(self.value_constant) + reach + label_bound)

    def capped(self, cap: float) -> Loss:
        """Return the loss with |f'| capped at ``cap``; the loss itself if |f'| never exceeds it."""
        raise ValueError(f"cap applies to logistic and softmax losses, not to {self}; leave it at None")

    @property
    def known_hessian(self) -> bool:
        """Whether a record's Hessian has the form that minimizers and their proofs use: one direction, or a softmax."""
        return self.n_outputs == 1 or self.family == "softmax"

    @property
    def typical_curvature(self) -> float:
        """Curvature of the mean loss at theta = 0 for rows in one direction."""
        return min(1.0, self.smoothness)  # rounded corners are steep, but few records are near them


def floats(*arrays: ArrayLike) -> list[Array]:
    """Convert every argument to float64."""
    return [np.asarray(array, dtype=np.float64) for array in arrays]


def check_between(name: str, value: float, low: float, high: float, hint: str) -> float:
    """Return the value as a float, if it lies in [low, high]."""
    if isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {value!r}; {hint}")
    return float(value)
