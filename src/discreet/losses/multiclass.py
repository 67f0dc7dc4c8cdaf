"""Losses of class codes 0, 1, 2, ...: the softmax, with or without a margin, and its bounded relative."""

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

    With a ``margin`` m the predictions of all classes but y are raised by m first: the loss asks not only that class y
    wins but by how much. It is the hinge of Crammer and Singer (2001), max_k (t_k + m [k != y]) - t_y, with a smooth
    maximum, log K above it at most; coefficients times c are those of margin c m and a maximum c times as sharp. Then q
    depends on y, and is any point of the simplex all the same: what is proved for the softmax from q alone holds for
    every margin (docs/proofs/own-losses.md, section 3).

    >>> Softmax(4).derivative(2, [0.0, 0.0, 0.0, 0.0])
    array([ 0.25,  0.25, -0.75,  0.25])
    >>> Softmax(2, margin=2.0).derivative(0, [2.0, 0.0])
    array([-0.5,  0.5])
    """

    n_classes: int
    margin: float = 0.0

    family = "softmax"
    proved_for = frozenset({"convex", "classes", "second-order", "likelihood"})
    lipschitz = math.sqrt(2.0)  # the nearest double lies above
    smoothness = 0.5

    def __post_init__(self) -> None:
        hint = "it is how much higher the right class should be; 2 is usual for a support vector machine"
        object.__setattr__(self, "margin", check_between("margin", self.margin, 0.0, 100.0, hint))
        if isinstance(self.n_classes, bool) or not isinstance(self.n_classes, int | np.integer):
            raise ValueError(f"n_classes must be a whole number, got {self.n_classes!r}")
        if not 2 <= self.n_classes <= 100_000:
            raise ValueError(f"n_classes must lie between 2 and 100000, got {self.n_classes!r}")
        object.__setattr__(self, "n_classes", int(self.n_classes))
        object.__setattr__(self, "n_outputs", self.n_classes)

    @property
    def evaluation_error(self) -> float:
        """Two exponentials, a shift by the largest prediction, a sum over classes (proofs/rounding.md, 3)."""
        plain = 2.0 * EXP_ULPS + 6.0 + 2.0 * self.n_classes
        return (
            plain if self.margin == 0 else plain + 2.0 * (EXP_ULPS + 1.0) + 2.0 * self.n_classes * self.margin
        )

    @property
    def kernel(self) -> Kernel | None:
        """The softmax formula; none with a margin."""
        return Kernel(base.SOFTMAX, 0.0) if self.margin == 0 else None

    @property
    def value_at_zero(self) -> float:
        """log(1 + (n_classes - 1) exp(margin)), rounded up."""
        return math.log(1.0 + (self.n_classes - 1) * math.exp(self.margin)) * (1 + 1e-15)

    @property
    def value_constant(self) -> float:
        """The margin."""
        return self.margin

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are whole numbers from 0 to n_classes - 1."""
        labels = np.asarray(y, dtype=np.float64)
        return np.asarray((labels == np.floor(labels)) & (labels >= 0) & (labels < self.n_classes))

    def probabilities(self, raw_prediction: ArrayLike, y: ArrayLike | None = None) -> Array:
        """exp(t_k) / sum_j exp(t_j) along the last axis; with a margin, of predictions raised for the label ``y``."""
        (t,) = floats(raw_prediction)
        exponentials = np.exp(t - t.max(axis=-1, keepdims=True))
        if self.margin and y is not None:
            self._raise(exponentials, self._codes(y)[..., None])
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
        if self.margin:
            self._raise(excess, codes)
        total = excess.sum(axis=-1, keepdims=True)
        excess /= total
        np.put_along_axis(excess, codes, np.take_along_axis(excess, codes, axis=-1) - 1.0, axis=-1)
        return np.asarray(np.log(total[..., 0]) - own), excess

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """diag(q) - q q^T for every label, which matters where there is a margin."""
        q: Any = self.probabilities(raw_prediction, y)
        return np.asarray(q[..., None] * (np.eye(self.n_classes) - q[..., None, :]))

    def capped(self, cap: float) -> Loss:
        """The softmax with its derivative shrunk."""
        return self if cap >= self.lipschitz else CappedSoftmax(self.n_classes, cap, self.margin)

    @property
    def typical_curvature(self) -> float:
        """Curvature at equal probabilities."""
        return 1 / self.n_classes

    def _raise(self, exponentials: Array, codes: NDArray[np.int64]) -> None:
        """Multiply the exponentials of all classes but the labels by exp(margin), in place."""
        own = np.take_along_axis(exponentials, codes, axis=-1)
        exponentials *= math.exp(self.margin)
        np.put_along_axis(exponentials, codes, own, axis=-1)

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
    margin: float = 0.0

    family = "softmax"
    smoothness = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", self._full.margin)  # which refuses impossible numbers
        object.__setattr__(self, "n_outputs", self._full.n_classes)
        object.__setattr__(self, "cap", check_between("cap", self.cap, 0.01, math.sqrt(2.0), "0.3 is usual"))

    @property
    def _full(self) -> Softmax:
        return Softmax(self.n_classes, self.margin)

    @property
    def lipschitz(self) -> float:
        """The cap."""
        return self.cap

    @property
    def kernel(self) -> Kernel | None:
        """The softmax formula with its cap; none with a margin."""
        return Kernel(base.SOFTMAX, self.cap) if self.margin == 0 else None

    @property
    def evaluation_error(self) -> float:
        """The softmax's in units of the cap, then a norm of n_classes terms, a quotient and a product."""
        softmax = self._full
        return softmax.evaluation_error * softmax.lipschitz / self.cap + self.n_classes + 8.0

    @property
    def value_at_zero(self) -> float:
        """That of the softmax."""
        return self._full.value_at_zero

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Which labels are whole numbers from 0 to n_classes - 1."""
        return self._full.valid_labels(y)

    def probabilities(self, raw_prediction: ArrayLike, y: ArrayLike | None = None) -> Array:
        """Those of the softmax."""
        return self._full.probabilities(raw_prediction, y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The softmax's negative log-likelihood."""
        return self._full.value(y, raw_prediction)

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """q - e_y, not longer than the cap."""
        residual = self._full.derivative(y, raw_prediction)
        norms = np.sqrt(np.square(residual).sum(axis=-1, keepdims=True))
        return np.asarray(residual * (self.cap / np.maximum(norms, self.cap)))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """The softmax's, an upper bound."""
        return self._full.second_derivative(y, raw_prediction)

    @property
    def typical_curvature(self) -> float:
        """Curvature at equal probabilities, reduced if the cap clips their derivative."""
        residual = math.sqrt(1 - 1 / self.n_classes)
        return min(1.0, self.cap / residual) / self.n_classes
