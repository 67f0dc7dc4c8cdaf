"""Losses whose classes count differently, by public weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from discreet._typing import Array, Mask
from discreet.losses.base import Loss, Theorem, floats
from discreet.losses.classification import Hinge, HuberHinge, Logistic
from discreet.losses.multiclass import Softmax
from discreet.privacy.events import Family
from discreet.privacy.guarantee import SLACK

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
_KEPT: frozenset[Theorem] = frozenset({"convex", "second-order"})


def _times_largest(name: str) -> Any:
    """A constant of the loss, times the largest weight."""

    def constant(self: ClassWeighted) -> float:
        return self._times(getattr(self.loss, name))

    return property(constant, doc="That of the loss, times the largest weight.")


@final
@dataclass(frozen=True)
class ClassWeighted(Loss):
    """w_y f(y, t): the loss f of a class label, times the public weight of its class.

    Every bound of f is multiplied by the largest weight (docs/proofs/class-weights.md), and so is the noise. What holds
    for the named formula of f alone does not hold for a multiple of it and is not claimed.

    Parameters
    ----------
    loss : `Logistic`, `HuberHinge`, `Hinge` or `Softmax`.
    weights : one number per class, between 1e-6 and 1e6: of the labels -1 and +1, or of the codes of a softmax.

    >>> rare = ClassWeighted(Logistic(), (1.0, 5.0))
    >>> round(rare.lipschitz, 12), round(rare.smoothness, 12)
    (5.0, 1.25)
    >>> rare.derivative([-1.0, 1.0], [0.0, 0.0])
    array([ 0.5, -2.5])
    """

    loss: Logistic | HuberHinge | Hinge | Softmax
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Logistic | HuberHinge | Hinge | Softmax):
            raise TypeError(f"loss must be one of class labels, got {self.loss!r}")
        given = tuple(self.weights)
        if any(
            isinstance(weight, bool) or not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT for weight in given
        ):
            raise ValueError(
                f"weights must lie between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, got {given!r}"
            )
        if len(given) != max(2, self.loss.n_outputs):
            raise ValueError(f"weights must be one per class, {max(2, self.loss.n_outputs)}, got {given!r}")
        object.__setattr__(self, "weights", tuple(float(weight) for weight in given))

    @property
    def largest(self) -> float:
        """The largest weight."""
        return max(self.weights)

    @property
    def family(self) -> Family:  # type: ignore[override]
        """The label still determines the sign of one derivative. Nothing else of a named formula is left."""
        return "monotone" if self.loss.n_outputs == 1 else "general"

    @property
    def proved_for(self) -> frozenset[Theorem]:  # type: ignore[override]
        """What needs no more than convexity and the two bounds."""
        return self.loss.proved_for & _KEPT

    @property
    def label_bound(self) -> float | None:  # type: ignore[override]
        """That of the loss."""
        return self.loss.label_bound

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        """That of the loss."""
        return self.loss.n_outputs

    lipschitz = _times_largest("lipschitz")
    smoothness = _times_largest("smoothness")
    value_at_zero = _times_largest("value_at_zero")
    value_constant = _times_largest("value_constant")
    curvature_slope = _times_largest("curvature_slope")
    typical_curvature = _times_largest("typical_curvature")

    @property
    def evaluation_error(self) -> float:
        """One product more than the loss."""
        return self.loss.evaluation_error + 2.0

    def derivative_bound(self, reach: float, label_bound: float | None = None) -> float:
        """Return that of the loss, times the largest weight."""
        return float(min(self.lipschitz, self._times(self.loss.derivative_bound(reach, label_bound))))

    def value_range(self, reach: float, label_bound: float | None = None) -> float:
        """Return that of the loss, times the largest weight."""
        most = 2.0 * reach * self.lipschitz * SLACK
        return float(min(most, self._times(self.loss.value_range(reach, label_bound))))

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Return which labels are those of the loss."""
        return self.loss.valid_labels(y)

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """w_y f(y, t)."""
        return np.asarray(self._weights(y) * self.loss.value(y, raw_prediction))

    def derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """w_y f'(y, t)."""
        return self._weighted(y, self.loss.derivative(y, raw_prediction))

    def second_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> Array:
        """w_y f''(y, t)."""
        return self._weighted(y, self.loss.second_derivative(y, raw_prediction))

    def value_and_derivative(self, y: ArrayLike, raw_prediction: ArrayLike) -> tuple[Array, Array]:
        """Return both."""
        values, derivatives = self.loss.value_and_derivative(y, raw_prediction)
        return np.asarray(self._weights(y) * values), self._weighted(y, derivatives)

    def _times(self, bound: float) -> float:
        """The bound times the largest weight, rounded up unless the product is exact."""
        product = bound * self.largest
        return product if self.largest == 1.0 or math.isinf(product) else math.nextafter(product, math.inf)

    def _weights(self, y: ArrayLike) -> Array:
        """The weight of every label; of a null record, whose label is 0, that of some class."""
        (labels,) = floats(y)
        codes = labels.astype(np.int64) if self.n_outputs > 1 else (labels > 0).astype(np.int64)
        return np.asarray(np.array(self.weights)[codes])

    def _weighted(self, y: ArrayLike, terms: Array) -> Array:
        weights = self._weights(y)
        return np.asarray(weights.reshape(weights.shape + (1,) * (terms.ndim - weights.ndim)) * terms)
