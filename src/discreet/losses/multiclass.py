"""Losses of class codes 0, 1, 2, ...: the softmax and its capped variant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array, Mask
from discreet.losses import base
from discreet.losses.base import EXP_ULPS, Kernel, Loss, check_between, floats


@final
@dataclass(frozen=True)
class Softmax(Loss):
    """f(y, t) = log sum_k exp(t_k) - t_y for class codes y in 0 .. n_classes - 1 and t in R^n_classes.

    The derivative q - e_y has norm at most sqrt(2), and the Hessian diag(q) - q q^T eigenvalues at most 1/2.

    >>> Softmax(4).derivative(2, [0.0, 0.0, 0.0, 0.0])
    array([ 0.25,  0.25, -0.75,  0.25])
    """

    n_classes: int

    family = "softmax"
    proved_for = frozenset({"convex", "classes", "likelihood"})
    lipschitz = math.sqrt(2.0)  # the nearest double lies above
    smoothness = 0.5
    kernel = Kernel(base.SOFTMAX, 0.0)

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
        """Covers two exponentials, a shift by the largest prediction and a sum over classes (proofs/rounding.md, 3)."""
        return 2.0 * EXP_ULPS + 6.0 + 2.0 * self.n_classes

    @property
    def value_at_zero(self) -> float:
        """log n_classes, rounded up."""
        return math.log(self.n_classes) * (1 + 1e-15)

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are whole numbers from 0 to n_classes - 1."""
        labels = np.asarray(y, dtype=np.float64)
        return np.asarray((labels == np.floor(labels)) & (labels >= 0) & (labels < self.n_classes))

    def probabilities(self, raw_prediction: ArrayLike) -> Array:
        """exp(t_k) / sum_j exp(t_j) along the last axis."""
        (t,) = floats(raw_prediction)
        exponentials = np.exp(t - t.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The negative log-likelihood of each label."""
        return self.value_and_derivative(y, raw_prediction)[0]

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """q - e_y, one row of n_classes entries per label."""
        return self.value_and_derivative(y, raw_prediction)[1]

    def value_and_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """Return both, with one exponential per class."""
        (t,) = floats(raw_prediction)
        codes = self._codes(y)[..., None]
        shifted = t - t.max(axis=-1, keepdims=True)
        own = np.take_along_axis(shifted, codes, axis=-1)[..., 0]
        excess = np.exp(shifted, out=shifted)
        total = excess.sum(axis=-1, keepdims=True)
        excess /= total
        np.put_along_axis(excess, codes, np.take_along_axis(excess, codes, axis=-1) - 1.0, axis=-1)
        return np.asarray(np.log(total[..., 0]) - own), excess

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """diag(q) - q q^T for every label; independent of the label."""
        q: Any = self.probabilities(raw_prediction)
        return np.asarray(q[..., None] * (np.eye(self.n_classes) - q[..., None, :]))

    def capped(self, cap: float) -> Loss:
        """Return the softmax with a shorter derivative."""
        return self if cap >= self.lipschitz else CappedSoftmax(self.n_classes, cap)

    @property
    def typical_curvature(self) -> float:
        """Curvature at equal probabilities."""
        return 1 / self.n_classes

    @staticmethod
    def _codes(y: ArrayLike) -> NDArray[np.int64]:
        return np.asarray(np.asarray(y), dtype=np.int64)


@final
@dataclass(frozen=True)
class CappedSoftmax(Loss):
    """The softmax loss with its derivative q - e_y clipped to norm ``cap``.

    The clipped field is not the gradient of a function, so only solvers that pay for every noisy step may use it; its
    value is that of the softmax. Clipping is a projection, which never increases distances: the Lipschitz constant of
    the derivative stays 1/2.

    >>> round(float(np.linalg.norm(CappedSoftmax(3, 0.5).derivative(0, [0.0, 9.0, 0.0]))), 6)
    0.5
    """

    n_classes: int
    cap: float = 0.5

    family = "softmax"
    smoothness = 0.5

    def __post_init__(self) -> None:
        Softmax(self.n_classes)  # checks the number of classes
        object.__setattr__(self, "cap", check_between("cap", self.cap, 0.01, math.sqrt(2.0), "0.3 is usual"))

    @property
    def lipschitz(self) -> float:
        """The cap."""
        return self.cap

    @property
    def n_outputs(self) -> int:
        """The number of classes."""
        return self.n_classes

    @property
    def kernel(self) -> Kernel:
        """The softmax formula with its cap."""
        return Kernel(base.SOFTMAX, self.cap)

    @property
    def evaluation_error(self) -> float:
        """That of the softmax in units of the cap, plus a norm of n_classes terms, a quotient and a product."""
        softmax = Softmax(self.n_classes)
        return softmax.evaluation_error * softmax.lipschitz / self.cap + self.n_classes + 8.0

    @property
    def value_at_zero(self) -> float:
        """log n_classes, rounded up."""
        return Softmax(self.n_classes).value_at_zero

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are whole numbers from 0 to n_classes - 1."""
        return Softmax(self.n_classes).valid_labels(y)

    def probabilities(self, raw_prediction: ArrayLike) -> Array:
        """exp(t_k) / sum_j exp(t_j) along the last axis."""
        return Softmax(self.n_classes).probabilities(raw_prediction)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The softmax's negative log-likelihood."""
        return Softmax(self.n_classes).value(y, raw_prediction)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """q - e_y, clipped to norm ``cap``."""
        residual = Softmax(self.n_classes).derivative(y, raw_prediction)
        norms = np.sqrt(np.square(residual).sum(axis=-1, keepdims=True))
        return np.asarray(residual * (self.cap / np.maximum(norms, self.cap)))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """That of the softmax, an upper bound."""
        return Softmax(self.n_classes).second_derivative(y, raw_prediction)

    @property
    def typical_curvature(self) -> float:
        """Curvature at equal probabilities, reduced if the cap clips their derivative."""
        residual = math.sqrt(1 - 1 / self.n_classes)
        return min(1.0, self.cap / residual) / self.n_classes
