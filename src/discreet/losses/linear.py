"""The linear loss, of which the lower bounds on private learning are made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.losses.base import Array, floats
from discreet.privacy.events import Family


@dataclass(frozen=True)
class Linear:
    """f(y, t) = -y t for labels of absolute value at most ``label_bound``.

    f' = -y whatever t is, and f'' = 0: a record pulls as hard as it can everywhere. It has no minimum; a ridge or a
    bounded set gives it one. With y = 1 the mean loss is -<mean row, theta>, the instance on which releasing a model
    is releasing a mean (Bassily, Smith and Thakurta, 2014, section V). The sign of f' is fixed by the label.

    >>> float(Linear().derivative(0.5, 100.0))
    -0.5
    """

    label_bound: float = 1.0

    kernel_id: ClassVar[int] = 10
    family: ClassVar[Family] = "monotone"
    smoothness: ClassVar[float] = 2.0**-10  # an upper bound on 0: rules for step sizes divide by it
    n_outputs: ClassVar[int] = 1
    kernel_parameter: ClassVar[float] = 0.0
    evaluation_error: ClassVar[float] = 0.0
    value_at_zero: ClassVar[float] = math.inf  # 0, but the loss may be negative elsewhere

    def __post_init__(self) -> None:
        if isinstance(self.label_bound, bool) or not 1e-6 <= self.label_bound <= 1e6:
            raise ValueError(
                f"label_bound must lie between 1e-6 and 1e6, got {self.label_bound!r}; rescale the labels"
            )
        object.__setattr__(self, "label_bound", float(self.label_bound))

    @property
    def lipschitz(self) -> float:
        """The bound on labels."""
        return self.label_bound

    def valid_labels(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Which labels are within their bound."""
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
