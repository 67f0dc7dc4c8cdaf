"""What a loss of (label, raw prediction) must say about itself, and what several losses share."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

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


def floats(*arrays: ArrayLike) -> list[Array]:
    """Every argument as float64."""
    return [np.asarray(array, dtype=np.float64) for array in arrays]


def signs(y: ArrayLike) -> NDArray[np.bool_]:
    """Which labels are -1 or +1."""
    labels = np.asarray(y, dtype=np.float64)
    return np.asarray((labels == 1.0) | (labels == -1.0))


def finite_targets(y: ArrayLike) -> NDArray[np.bool_]:
    """Which labels are finite, and small enough that a residual is."""
    return np.asarray(np.abs(np.asarray(y, dtype=np.float64)) <= 2.0**900)


def check_width(width: float, meaning: str) -> None:
    """Refuse a width that is not a usable number."""
    if isinstance(width, bool) or not 1e-6 <= width <= 1e6:
        raise ValueError(f"width must lie between 1e-6 and 1e6, got {width!r}; it is {meaning}")
